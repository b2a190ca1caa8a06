"""Expressions of a step: integers, and texts such as "i % 4" that give one for the values of their names.

Operators bind as in Python and, comparisons apart, as in C; / divides integers. Names are loop counters, the pipeline's
constants, and the names that every role has: rank, x, y, instance, blocks. The text is parsed, and anything but
arithmetic on integers is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple

from tilescope.errors import RuleError, unknown_name
from tilescope.pipeline.pipeline_rules import GRAMMAR, PLANNED, example
from tilescope.reading import plain_int
from tilescope.rule import rule
from tilescope.sentence import format_value, shorten
from tilescope.written import INTEGER_OPERATIONS

MAX_CHARACTERS = 200
MAX_SHIFT = 32
_FORMS = (
    ast.Expression,
    ast.Name,
    ast.Constant,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.Load,
    *INTEGER_OPERATIONS,
    ast.Not,
    ast.And,
    ast.Or,
    ast.Eq,
    ast.NotEq,
    ast.Lt,
    ast.LtE,
    ast.Gt,
    ast.GtE,
)

EXPRESSION = rule(
    "pipeline-expression",
    "An expression is integer arithmetic with names that are defined at its place.",
    argument="{at}",
    found="{shown}",
    limit="an expression is an integer, or a text such as 'i % 4'",
    fix="Use an integer, or i % 4: integers, names, + - * / % ^ & | << >> and comparisons.",
    source=GRAMMAR,
    passing=PLANNED,
    failing=example({"wait": "full", "parity": "abs(1)"}),
)
NO_ARITHMETIC = EXPRESSION.worded(limit="an expression is arithmetic such as 'i % 4'")
NOT_ON_INTEGERS = EXPRESSION.worded(found="{part} in {shown}", limit="an expression is arithmetic on integers")
UNDEFINED = EXPRESSION.worded(
    argument="{expression}",
    found="{expression} with {values}",
    limit="{reason}",
    fix="Use numbers for which it is defined: divisors other than 0, shifts from 0 to {most_places}.",
)
REFERENCE = rule(
    "pipeline-reference",
    "A reference to a barrier or slot is its name, or its name and stage: full[i % 4].",
    argument="{at}",
    found="{shown}",
    limit="a reference is a name, or a name and a stage: full[i % 4]",
    fix="Use full[i % 4], for example.",
    source=GRAMMAR,
    passing=PLANNED,
    failing=example({"arrive": "full["}),
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
    def read(cls, argument: str, written: object, names: Collection[str]) -> Expression:
        """Read an integer or a text; a RuleError if it is not an expression, or uses a name that is not in `names`."""
        number = int(written) if isinstance(written, bool) else plain_int(written)
        if number is not None:
            return cls("", None, number)
        if not isinstance(written, str) or len(written) > MAX_CHARACTERS:
            raise EXPRESSION.error(at=argument, shown=format_value(written), text=written)
        arithmetic = _arithmetic(written)
        if arithmetic is None:
            raise NO_ARITHMETIC.error(at=argument, shown=shorten(written), text=written)
        if isinstance(arithmetic, _Foreign):
            raise NOT_ON_INTEGERS.error(at=argument, part=arithmetic.part, shown=shorten(written), text=written)
        for name in arithmetic.co_names:
            if name not in names and name != _CHECKED_SHIFT:
                raise RuleError([unknown_name("name", argument, name, names)])
        if arithmetic.co_names:
            return cls(written, arithmetic)
        return cls(written, None, cls(written, arithmetic).value({}))

    def value(self, names: Mapping[str, int]) -> int:
        """The integer that the expression gives."""
        if self.code is None:
            return self.constant
        try:
            return int(eval(self.code, _GLOBALS, names))  # noqa: S307  only arithmetic
        except (ArithmeticError, ValueError) as error:
            facts: dict[str, Any] = {
                **names,
                "expression": self.text,
                "values": ", ".join(f"{name} = {value}" for name, value in names.items()),
                "reason": str(error),
                "most_places": MAX_SHIFT,
            }
            raise UNDEFINED.error(**facts) from None


@dataclass(frozen=True, slots=True)
class _Foreign:
    """The first part of a text that is not arithmetic on integers."""

    part: str


@lru_cache(maxsize=4096)  # a pipeline repeats the same few texts
def _arithmetic(text: str) -> CodeType | _Foreign | None:
    """The compiled text; None if it does not parse."""
    try:
        tree = ast.parse(text.strip().replace("//", "/").replace("/", "//"), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(op=ast.LShift()):  # a large shift would take all memory
                node.right = ast.Call(ast.Name(_CHECKED_SHIFT, ast.Load()), [node.right], [])
            case ast.Constant(value=value) if type(value) is not int:
                return _Foreign(repr(value))
            case _ if not isinstance(node, _FORMS):
                return _Foreign(type(node).__name__)
    return compile(ast.fix_missing_locations(tree), "<pipeline>", "eval")


def _checked_shift(places: int) -> int:
    """The right operand of <<, or a ValueError if it is out of range."""
    if not 0 <= places <= MAX_SHIFT:
        raise ValueError(f"a shift is by 0 to {MAX_SHIFT} bits, not by {places}")
    return places


_CHECKED_SHIFT = "checked shift"  # with a space, so that no text can use the name
_GLOBALS: dict[str, object] = {"__builtins__": {}, _CHECKED_SHIFT: _checked_shift}


class Reference(NamedTuple):
    """A barrier or slot by name, and the expression of its stage."""

    name: str
    stage: str


def reference(argument: str, written: object) -> Reference:
    """The name and the stage of a reference such as "full[i % 4]"; without brackets the stage is "0".

    >>> reference("wait", "full[i % 4]").stage, reference("wait", "done")
    ('i % 4', Reference(name='done', stage='0'))
    """
    if isinstance(written, str):
        name, bracket, rest = written.strip().partition("[")
        name, rest = name.strip(), rest.rstrip()
        if name.isidentifier() and (not bracket or rest.endswith("]")):
            return Reference(name, rest[:-1].strip() if bracket else "0")
    raise REFERENCE.error(at=argument, shown=format_value(written), reference=written)
