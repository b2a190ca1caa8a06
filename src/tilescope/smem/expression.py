"""Lane addresses from an expression of `lane`, in C or Python style.

    "(lane % 8) * 144 + lane / 8 * 16"        →   0 144 288 … 1008  16 160 …   (32 numbers)

    loosest   |     ^     &     << >>     + -     * / // %     - + ~ (sign)     ( ) number lane   tightest

C and Python bind these operators alike, and agree on their values as long as nothing negative is divided, so that is
refused. Python's parser reads the text, nothing is run; length, shifts and numbers are bounded, so that a hostile text
costs a sentence, not time.
"""

from __future__ import annotations

import ast
import operator
import re
from typing import Any

from tilescope.errors import RuleError, argument_type
from tilescope.rule import rule
from tilescope.sentence import shortened
from tilescope.smem.op import WARP_LANES
from tilescope.written import C_SUFFIX, INTEGER_OPERATIONS

LANE_NAMES = ("lane", "lane_id", "laneid", "tid", "threadIdx.x")
MAX_CHARACTERS = 500
MAX_SHIFT = 40
MAX_NUMBER = 1 << 48

LANE_EXPRESSION = rule(
    "lane-expression",
    "An expression of lane has C's operators on integers, and gives an address for every lane.",
    source="the operators that C and Python share",
    passing='ts.Access.expression("lane / 8 * 16")',
    failing='ts.Access.expression("lane / 0")',
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
        found, fix = f"{len(text)} characters", "Pass the 32 addresses instead."
        raise _problem(text, found, f"at most {MAX_CHARACTERS} are read", fix, characters=len(text))
    if octal := _OCTAL.search(text):
        number = octal[0].lstrip("0") or "0"
        raise _problem(text, octal[0], "C reads a leading 0 as octal, Python refuses it", f"Write {number}.")
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
        return _bounded(text, part, [node.value] * WARP_LANES)
    operation: Any = INTEGER_OPERATIONS.get(type(node.op)) if isinstance(node, ast.BinOp | ast.UnaryOp) else None
    if operation is None:
        raise _unreadable(text, f"{shortened(part, 20)!r}")
    if isinstance(node, ast.UnaryOp):
        return _bounded(text, part, list(map(operation, _values(node.operand, text))))
    assert isinstance(node, ast.BinOp)
    left, right = _values(node.left, text), _values(node.right, text)
    for lane, (one, other) in enumerate(zip(left, right, strict=True)):
        if operation in (operator.floordiv, operator.mod):
            if other == 0:
                found, limit, fix = "a division by 0", "a divisor is at least 1", "Divide by 1 or more."
                raise _problem(text, f"{found} in lane {lane}", limit, fix, lane=lane, divisor=other)
            if one < 0 or other < 0:
                found, limit = f"{one} divided by {other}", "C and Python divide negative numbers differently"
                fix = "Add a multiple of the divisor first."
                raise _problem(text, f"{found} in lane {lane}", limit, fix, lane=lane, dividend=one, divisor=other)
        elif operation in (operator.lshift, operator.rshift) and not 0 <= other <= MAX_SHIFT:
            limit, fix = f"0 to {MAX_SHIFT}", f"Shift by at most {MAX_SHIFT}."
            raise _problem(text, f"a shift by {other} in lane {lane}", limit, fix, lane=lane, shift=other)
    return _bounded(text, part, list(map(operation, left, right)))


def _bounded(text: str, part: str, values: list[int]) -> list[int]:
    bits = max(map(abs, values)).bit_length()
    if bits >= MAX_NUMBER.bit_length():
        limit = f"values stay below 2^{MAX_NUMBER.bit_length() - 1}"
        fix = "Shared memory ends at 228 KiB: use smaller numbers."
        raise _problem(text, f"{shortened(part, 20)} is a number of {bits} bits", limit, fix, bits=bits)
    return values


def _unreadable(text: str, found: str) -> RuleError:
    limit = "integers, lane, + - * / % ^ & | ~ << >> and parentheses"
    return _problem(text, found, limit, f"Use 'lane * 16', for example; the lane is called {', '.join(LANE_NAMES)}.")


def _problem(text: str, found: str, limit: str, fix: str, **values: int) -> RuleError:
    return LANE_EXPRESSION.error("expression", f"{shortened(text, 60)}: {found}", limit, fix, **values)
