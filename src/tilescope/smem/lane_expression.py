"""Lane addresses from an expression of `lane`, in C or Python style.

    "(lane % 8) * 144 + lane / 8 * 16"        →   0 144 288 … 1008  16 160 …   (32 numbers)

    loosest   |     ^     &     << >>     + -     * / // %     - + ~ (sign)     ( ) number lane   tightest

C and Python have the same precedence for these operators, and the same results as long as nothing negative is divided,
which is refused. Python's parser reads the text, and no code is run. Length, shifts and numbers are bounded, so that a
hostile text gives an error message and costs little time.
"""

from __future__ import annotations

import ast
import operator
import re

from tilescope.arch import WARP_LANES
from tilescope.errors import RuleError, argument_type
from tilescope.rule import rule
from tilescope.sentence import shorten
from tilescope.written import C_SUFFIX, INTEGER_OPERATIONS

LANE_NAMES = ("lane", "lane_id", "laneid", "tid", "threadIdx.x")
MAX_CHARACTERS = 500
MAX_SHIFT = 40
MAX_NUMBER = 1 << 48

LANE_EXPRESSION = rule(
    "lane-expression",
    "An expression of lane uses C's integer operators, and has an address for every lane.",
    argument="expression",
    found="{expression}: {unread}",
    limit="integers, lane, + - * / % ^ & | ~ << >> and parentheses",
    fix="Use 'lane * 16', for example; the lane is called {lane_names:, }.",
    source="the operators that C and Python share",
    passing='ts.Access.expression("lane / 8 * 16")',
    failing='ts.Access.expression("lane / 0")',
)
TOO_LONG = LANE_EXPRESSION.worded(
    found="{expression}: {characters} characters",
    limit="at most {most} are read",
    fix="Pass the 32 addresses instead.",
)
OCTAL = LANE_EXPRESSION.worded(
    found="{expression}: {octal}",
    limit="C reads a leading 0 as octal, Python refuses it",
    fix="Write {decimal}.",
)
DIVISION_BY_ZERO = LANE_EXPRESSION.worded(
    found="{expression}: a division by 0 in lane {lane}",
    limit="a divisor is at least 1",
    fix="Divide by 1 or more.",
)
NEGATIVE_DIVISION = LANE_EXPRESSION.worded(
    found="{expression}: {dividend} divided by {divisor} in lane {lane}",
    limit="C and Python divide negative numbers differently",
    fix="Add a multiple of the divisor first.",
)
LONG_SHIFT = LANE_EXPRESSION.worded(
    found="{expression}: a shift by {shift} in lane {lane}",
    limit="0 to {most}",
    fix="Shift by at most {most}.",
)
LARGE_NUMBER = LANE_EXPRESSION.worded(
    found="{expression}: {part} is a number of {bits} bits",
    limit="values stay below 2^{most_bits}",
    fix="Shared memory ends at 228 KiB: use smaller numbers.",
)

_OCTAL = re.compile(r"(?<![\w.])0[0-9]+(?![\w.])")


def lane_values(text: str) -> tuple[int, ...]:
    """The 32 values of the expression, for lane 0 to lane 31.

    >>> lane_values("(lane % 8) * 144 + lane / 8 * 16")[6:10]
    (864, 1008, 16, 160)
    >>> lane_values("threadIdx.x << 4 ^ (threadIdx.x & 0x18)")[9]
    152
    >>> lane_values("lane / 0")
    Traceback (most recent call last):
      ...
    tilescope.errors.RuleError: lane-expression: lane / 0: a division by 0 in lane 0; ...
    """
    if not isinstance(text, str):
        raise RuleError([argument_type("expression", text, "a text", "Use 'lane * 16', for example.")])
    if len(text) > MAX_CHARACTERS:
        raise TOO_LONG.error(expression=_shorten(text), characters=len(text), most=MAX_CHARACTERS)
    octal = _OCTAL.search(text)
    if octal:
        raise OCTAL.error(expression=_shorten(text), octal=octal[0], decimal=octal[0].lstrip("0") or "0")
    plain = re.sub(r"[\s\0]", " ", C_SUFFIX.sub(r"\1", text)).strip()
    try:
        return tuple(_values(ast.parse(plain, mode="eval").body, plain))
    except SyntaxError as error:
        raise _unreadable(plain, f"{error.msg}, at character {error.offset or len(plain)}") from None
    except (MemoryError, RecursionError):
        raise _unreadable(plain, "parentheses or signs too deep within each other") from None


def _values(node: ast.expr, text: str) -> list[int]:
    """The value of a part of the expression in every lane."""
    part = ast.get_source_segment(text, node) or ""
    if part in LANE_NAMES:
        return list(range(WARP_LANES))
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return _require_range(text, part, [node.value] * WARP_LANES)
    if isinstance(node, ast.UnaryOp) and type(node.op) in INTEGER_OPERATIONS:
        change_sign = INTEGER_OPERATIONS[type(node.op)]
        return _require_range(text, part, [change_sign(value) for value in _values(node.operand, text)])
    if isinstance(node, ast.BinOp) and type(node.op) in INTEGER_OPERATIONS:
        combine = INTEGER_OPERATIONS[type(node.op)]
        left = _values(node.left, text)
        right = _values(node.right, text)
        if combine in (operator.floordiv, operator.mod):
            _require_divisible(text, left, right)
        elif combine in (operator.lshift, operator.rshift):
            _require_short_shifts(text, right)
        return _require_range(text, part, [combine(first, second) for first, second in zip(left, right, strict=True)])
    raise _unreadable(text, repr(shorten(part, 20)))


def _require_divisible(text: str, dividends: list[int], divisors: list[int]) -> None:
    for lane, (dividend, divisor) in enumerate(zip(dividends, divisors, strict=True)):
        if divisor == 0:
            raise DIVISION_BY_ZERO.error(expression=_shorten(text), lane=lane, divisor=divisor)
        if dividend < 0 or divisor < 0:
            raise NEGATIVE_DIVISION.error(expression=_shorten(text), lane=lane, dividend=dividend, divisor=divisor)


def _require_short_shifts(text: str, shifts: list[int]) -> None:
    for lane, shift in enumerate(shifts):
        if not 0 <= shift <= MAX_SHIFT:
            raise LONG_SHIFT.error(expression=_shorten(text), lane=lane, shift=shift, most=MAX_SHIFT)


def _require_range(text: str, part: str, values: list[int]) -> list[int]:
    bits = max(map(abs, values)).bit_length()
    most_bits = MAX_NUMBER.bit_length() - 1
    if bits > most_bits:
        raise LARGE_NUMBER.error(expression=_shorten(text), part=shorten(part, 20), bits=bits, most_bits=most_bits)
    return values


def _unreadable(text: str, unread: str) -> RuleError:
    return LANE_EXPRESSION.error(expression=_shorten(text), unread=unread, lane_names=LANE_NAMES)


def _shorten(text: str) -> str:
    return shorten(text, 60)
