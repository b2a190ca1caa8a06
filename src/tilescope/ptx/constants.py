"""Numbers of a PTX text, and the constant expressions made of them.

0x10  017  0b101  42U         integers of 64 bits: hexadecimal, octal, binary, decimal; U: unsigned
0f3F800000  0d3FF0000000000000  the bits of a float of 32 and of 64 bits
1.5  2e-3                       floats of 64 bits
4*(8+1) - ~0                    + - * / % & | ^ ~ << >> of integers, as C has them, in 64 bits
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable

from tilescope.ptx.lexer import Cursor, Token
from tilescope.ptx.rules import DIVISION_BY_ZERO, LIMIT
from tilescope.ptx.syntax import Immediate

MAX_NESTING = 32  # parentheses in an expression, braces in a vector
_WORD_END = 1 << 64
_SIGNED_END = 1 << 63
_INTEGER_CHARACTERS = 70  # of the longest literal of 64 bits: binary
_SIGN_BIT = {32: 1 << 31, 64: 1 << 63}
_NUMBERS = frozenset({"integer", "float", "hex_float"})
WARP_SIZE = "WARP_SZ"
_WARP_LANES = 32


def _shifted_left(value: int, count: int) -> int:
    return value << count if 0 <= count < 64 else 0


def _shifted_right(value: int, count: int) -> int:
    return value >> min(count, 64) if count >= 0 else 0


def _quotient(dividend: int, divisor: int) -> int:
    """C's division, which rounds towards 0."""
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


def _remainder(dividend: int, divisor: int) -> int:
    return dividend - divisor * _quotient(dividend, divisor)


_BINDING = {"|": 1, "^": 2, "&": 3, "<<": 4, ">>": 4, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6}
_OPERATION: dict[str, Callable[[int, int], int]] = {
    "|": operator.or_,
    "^": operator.xor,
    "&": operator.and_,
    "<<": _shifted_left,
    ">>": _shifted_right,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _quotient,
    "%": _remainder,
}


def starts_constant(token: Token) -> bool:
    """Whether a constant expression begins with this token."""
    return token.kind in _NUMBERS or token.text in ("-", "+", "~", "(") or token.text == WARP_SIZE


def read_constant(cursor: Cursor, expected: str = "a number") -> Immediate:
    """A constant expression.

    >>> from tilescope.ptx.lexer import Text
    >>> read_constant(Cursor(Text("2+3*4"))), read_constant(Cursor(Text("-0f3F800000")))
    (Immediate(value=14, float_bits=None), Immediate(value=3212836864, float_bits=32))
    """
    return _sum(cursor, expected, binding=0, depth=0)


def read_integer(cursor: Cursor, expected: str = "an integer") -> int:
    """A constant expression that is an integer."""
    token = cursor.token
    constant = read_constant(cursor, expected)
    if constant.float_bits is not None:
        cursor.refuse(expected, token)
    return constant.value


def read_count(cursor: Cursor, what: str, most: int) -> int:
    """A count from 0 to `most`; `what` is counted, in the plural."""
    token = cursor.token
    count = read_integer(cursor, f"the number of {what}")
    if count < 0:
        cursor.refuse(f"a number of {what} that is not negative", token)
    if count > most:
        raise cursor.text.error(LIMIT.wording, token.start, amount=count, what=what, most=most)
    return count


def _sum(cursor: Cursor, expected: str, binding: int, depth: int) -> Immediate:
    """Terms and the operators between them that bind more tightly than `binding`."""
    left = _term(cursor, expected, depth)
    while _BINDING.get(cursor.token.text, 0) > binding:
        token = cursor.take()
        right = _sum(cursor, "a number", _BINDING[token.text], depth)
        left = _apply_operator(cursor, token, left, right)
    return left


def _apply_operator(cursor: Cursor, token: Token, left: Immediate, right: Immediate) -> Immediate:
    if left.float_bits is not None or right.float_bits is not None:
        cursor.refuse("the end of the number: constant expressions are of integers only", token)
    if right.value == 0 and token.text in ("/", "%"):
        raise cursor.text.error(DIVISION_BY_ZERO, token.start)
    return Immediate(_in_64_bits(_OPERATION[token.text](left.value, right.value)))


def _term(cursor: Cursor, expected: str, depth: int) -> Immediate:
    """A number, or one with a sign, or an expression in parentheses."""
    if depth > MAX_NESTING:
        raise cursor.text.error(
            LIMIT.wording, cursor.token.start, amount=depth, what="parentheses and signs", most=MAX_NESTING
        )
    token = cursor.token
    if token.kind in _NUMBERS:
        return _literal(cursor)
    if token.text == WARP_SIZE:
        cursor.take()
        return Immediate(_WARP_LANES)
    if token.text not in ("-", "+", "~", "("):
        cursor.refuse(expected)
    cursor.take()
    if token.text == "(":
        inner = _sum(cursor, "a number", 0, depth + 1)
        cursor.expect(")")
        return inner
    return _apply_sign(cursor, token, _term(cursor, "a number", depth + 1))


def _apply_sign(cursor: Cursor, sign: Token, number: Immediate) -> Immediate:
    if sign.text == "+":
        return number
    if number.float_bits is None:
        return Immediate(_in_64_bits(-number.value if sign.text == "-" else ~number.value))
    if sign.text == "~":
        cursor.refuse("a sign", sign)
    return Immediate(number.value ^ _SIGN_BIT[number.float_bits], number.float_bits)


def _in_64_bits(value: int) -> int:
    """A value as a 64-bit word: unchanged if it fits as signed or unsigned, else its lower 64 bits."""
    if -_SIGNED_END <= value < _WORD_END:
        return value
    return value % _WORD_END


def _literal(cursor: Cursor) -> Immediate:
    token = cursor.take()
    if token.kind == "float":
        return Immediate(float_word(float(token.text)), 64)
    if token.kind == "hex_float":
        digits = token.text[2:]  # without 0f or 0d
        return Immediate(int(digits, 16), 4 * len(digits))
    digits = token.text.removesuffix("U").lower()
    if len(digits) > _INTEGER_CHARACTERS:
        raise cursor.text.error(LIMIT.wording, token.start, amount=len(digits), what="digits", most=_INTEGER_CHARACTERS)
    value = _integer(cursor, token, digits)
    if value >= _WORD_END:
        raise cursor.text.error(
            LIMIT.wording, token.start, amount=value.bit_length(), what="bits of an integer", most=64
        )
    return Immediate(value)


def _integer(cursor: Cursor, token: Token, digits: str) -> int:
    if digits.startswith("0x"):
        return int(digits, 16)
    if digits.startswith("0b"):
        return int(digits, 2)
    if not digits.startswith("0"):
        return int(digits)
    if digits.strip("01234567"):
        cursor.refuse("octal digits after the leading 0", token)
    return int(digits, 8)


def float_word(value: float) -> int:
    """The 64 bits of a float.

    >>> hex(float_word(1.0))
    '0x3ff0000000000000'
    """
    (word,) = struct.unpack("<Q", struct.pack("<d", value))
    return int(word)
