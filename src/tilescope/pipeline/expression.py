"""Integer expressions in a pipeline's steps: stage indices, parities, masks.

    "i % 4"      "(i / 4) % 2 ^ 1"      "1 << (rank ^ 1)"

Operators bind as in Python and, comparisons apart, as in C; / divides integers. Names are loop counters, the
pipeline's constants, and what a block or a role knows of itself: rank, x, y, instance. The text is parsed, and only
arithmetic on integers is let through.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

from tilescope.errors import RuleError, printed, shortened, unknown_name
from tilescope.pipeline.mistake import GRAMMAR, example, pipeline_rule
from tilescope.reading import plain_int
from tilescope.written import INTEGER_OPERATIONS

MAX_CHARACTERS = 200
MAX_SHIFT = 32
_FORMS = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Load, *INTEGER_OPERATIONS,
    ast.Not, ast.And, ast.Or, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE,
)  # fmt: skip

EXPRESSION = pipeline_rule(
    "pipeline-expression",
    "An expression is arithmetic on integers and the names that are known where it stands.",
    example({"wait": "full", "parity": "abs(1)"}),
    source=GRAMMAR,
)
REFERENCE = pipeline_rule(
    "pipeline-reference",
    "A barrier or slot is referred to by its name, or by its name and stage: full[i % 4].",
    example({"arrive": "full["}),
    source=GRAMMAR,
)


@dataclass(frozen=True, slots=True)
class Expression:
    """An integer, or a text that gives one for the values of its names.

    >>> parity = Expression.read("parity", "(i / 4) % 2 ^ 1", ["i"])
    >>> [parity.value({"i": i}) for i in (0, 4, 8)]
    [1, 0, 1]
    """

    text: str
    code: CodeType | None  # None: a constant
    constant: int = 0

    @classmethod
    def of(cls, number: int) -> Expression:
        """The expression that is a number."""
        return cls(str(number), None, number)

    @classmethod
    def read(cls, argument: str, written: Any, names: Collection[str]) -> Expression:
        """The expression that an integer or a text is; a RuleError where it is none, or uses a name that is not known."""

        def refused(found: str, limit: str) -> RuleError:
            fix = "Use an integer, or i % 4: integers, names, + - * / % ^ & | << >> and comparisons."
            return EXPRESSION.error(argument, found, limit, fix, text=written)

        number = int(written) if isinstance(written, bool) else plain_int(written)
        if number is not None:
            return cls.of(number)
        if not isinstance(written, str) or len(written) > MAX_CHARACTERS:
            raise refused(printed(written), "an integer, or a text such as 'i % 4'")
        try:
            tree = ast.parse(written.strip().replace("//", "/").replace("/", "//"), mode="eval")
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            raise refused(shortened(written), "arithmetic such as 'i % 4'") from None
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name) if name not in names:
                    raise RuleError([unknown_name("name", argument, name, names)])
                case ast.BinOp(op=ast.LShift()):  # a large one would take all memory
                    node.right = ast.Call(ast.Name(_PLACES, ast.Load()), [node.right], [])
                case ast.Name():
                    continue
                case ast.Constant(value=value) if type(value) is int:
                    continue
                case _ if not isinstance(node, _FORMS):
                    shown = repr(node.value) if isinstance(node, ast.Constant) else type(node).__name__
                    raise refused(f"{shown} in {shortened(written)}", "arithmetic on integers")
        expression = cls(written, compile(ast.fix_missing_locations(tree), "<pipeline>", "eval"))
        return expression if used else cls.of(expression.value({}))

    def value(self, names: Mapping[str, int]) -> int:
        """The integer that the expression gives."""
        if self.code is None:
            return self.constant
        try:
            return int(eval(self.code, _GLOBALS, names))  # noqa: S307  only arithmetic
        except (ArithmeticError, ValueError) as error:
            at = ", ".join(f"{name} = {value}" for name, value in names.items())
            fix = f"Use numbers for which it is defined: divisors other than 0, shifts from 0 to {MAX_SHIFT}."
            raise EXPRESSION.error(self.text, f"{self.text} with {at}", str(error), fix, **names) from None


def _places(places: int) -> int:
    if not 0 <= places <= MAX_SHIFT:
        raise ValueError(f"a shift by {places}; at most {MAX_SHIFT}")
    return places


_PLACES = "places of a shift"  # no name that a text can hold
_GLOBALS: dict[str, Any] = {"__builtins__": {}, _PLACES: _places}


def reference(argument: str, written: Any) -> tuple[str, str]:
    """The name and the index of a reference such as "full[i % 4]"; without brackets the index is "0".

    >>> reference("wait", "full[i % 4]"), reference("wait", "done")
    (('full', 'i % 4'), ('done', '0'))
    """
    if isinstance(written, str):
        name, bracket, rest = written.strip().partition("[")
        name, rest = name.strip(), rest.rstrip()
        if name.isidentifier() and (not bracket or rest.endswith("]")):
            return name, rest[:-1].strip() if bracket else "0"
    limit = "a name, or a name and a stage: full[i % 4]"
    raise REFERENCE.error(argument, printed(written), limit, "Use full[i % 4], for example.", reference=written)
