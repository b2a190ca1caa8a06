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
from tilescope.pipeline.mistake import example, pipeline_rule
from tilescope.reading import plain_int

MAX_CHARACTERS = 200
MAX_SHIFT = 32
_OPERATORS = (
    ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.BitXor, ast.BitAnd, ast.BitOr, ast.LShift, ast.RShift,
    ast.USub, ast.UAdd, ast.Invert, ast.Not, ast.And, ast.Or, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE,
)  # fmt: skip
_FORMS = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Load, *_OPERATORS)


EXPRESSION = pipeline_rule(
    "pipeline-expression", "An expression is arithmetic on integers and the names that are known where it stands.",
    example({"wait": "full", "parity": "abs(1)"}), source="the grammar of descriptions",
)  # fmt: skip
REFERENCE = pipeline_rule(
    "pipeline-reference", "A barrier or slot is referred to by its name, or by its name and stage: full[i % 4].",
    example({"arrive": "full["}), source="the grammar of descriptions",
)  # fmt: skip


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
    def read(cls, argument: str, given: Any, names: Collection[str]) -> Expression:
        """The expression that `given` is; a RuleError where it is none, or uses a name that nothing gives."""
        number = int(given) if isinstance(given, bool) else plain_int(given)
        if number is not None:
            return cls(str(number), None, number)
        if not isinstance(given, str) or len(given) > MAX_CHARACTERS:
            found = printed(given)
            raise _problem(argument, found, "an integer, or a text such as 'i % 4'", "Use 0, or 'i % 4'.")
        try:
            tree = ast.parse(given.strip().replace("//", "/").replace("/", "//"), mode="eval")
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            raise _problem(
                argument, shortened(given), "arithmetic such as 'i % 4'", "Use i % 4, for example."
            ) from None
        for node in ast.walk(tree):
            _require_arithmetic(argument, given, node, names)
        checked = ast.fix_missing_locations(_CheckedShifts().visit(tree))
        code = compile(checked, "<pipeline>", "eval")
        if not any(isinstance(node, ast.Name) and node.id != _SHIFT for node in ast.walk(checked)):
            return cls(given, None, cls(given, code).value({}))
        return cls(given, code)

    def value(self, names: Mapping[str, int]) -> int:
        """The integer that the expression gives."""
        if self.code is None:
            return self.constant
        try:
            return int(eval(self.code, _GLOBALS, names))  # noqa: S307  only arithmetic
        except (ArithmeticError, ValueError) as error:
            at = ", ".join(f"{name} = {value}" for name, value in names.items())
            raise _problem(
                self.text,
                f"{self.text} with {at}",
                str(error),
                "Use numbers for which it is defined: divisors other than 0, shifts from 0 to 63.",
            ) from None


class _CheckedShifts(ast.NodeTransformer):
    """Shifts to the left become calls that refuse large ones."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.LShift):
            return node
        return ast.Call(ast.Name(_SHIFT, ast.Load()), [node.left, node.right], [])


def _shifted(value: int, places: int) -> int:
    if not 0 <= places <= MAX_SHIFT:
        raise ValueError(f"a shift by {places}; at most {MAX_SHIFT}")
    return value << places


_SHIFT = "shifted left"  # no name that a text can hold
_GLOBALS: dict[str, Any] = {"__builtins__": {}, _SHIFT: _shifted}


def _require_arithmetic(argument: str, given: str, node: ast.AST, names: Collection[str]) -> None:
    match node:
        case ast.Name(id=name):
            if name not in names:
                raise RuleError([unknown_name("name", argument, name, names)])
        case ast.Constant(value=value):
            if type(value) is not int:
                raise _problem(argument, f"{value!r} in {shortened(given)}", "integers only", "Use integers.")
        case _ if not isinstance(node, _FORMS):
            found = f"{type(node).__name__} in {shortened(given)}"
            raise _problem(argument, found, "arithmetic on integers", "Use + - * / % ^ & | << >> and comparisons.")


def _problem(argument: str, found: str, limit: str, fix: str) -> RuleError:
    return EXPRESSION.error(argument, found, limit, fix)


def reference(argument: str, given: Any) -> tuple[str, str]:
    """The name and the index of a reference such as "full[i % 4]"; without brackets the index is "0".

    >>> reference("wait", "full[i % 4]"), reference("wait", "done")
    (('full', 'i % 4'), ('done', '0'))
    """
    if isinstance(given, str):
        name, bracket, rest = given.strip().partition("[")
        name, rest = name.strip(), rest.rstrip()
        if name.isidentifier() and (not bracket or rest.endswith("]")):
            return name, rest[:-1].strip() if bracket else "0"
    raise RuleError([REFERENCE.violation(argument, printed(given), "a name, or a name and a stage: full[i % 4]",
        "Use full[i % 4], for example.",
    )])  # fmt: skip
