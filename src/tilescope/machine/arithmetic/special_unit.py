"""The special function unit of an H200, bit for bit: rcp, rsqrt, sqrt, lg2, ex2, sin, cos and tanh of f32 (SASS: MUFU).

A function is cut into segments. In each it is one quadratic, in fixed point, and truncated, never rounded:

    f32      s eeeeeeee iiiiiii xxxxxxxxxxxxxxxx          rcp: 7 bits choose the segment i, 16 bits are its argument
                        └──┬──┘ └──────┬───────┘
                        row of c0, c1, c2   x = those bits, as 17 bits
    P(x) = (c0 << g) + K + c1 * x + c2 * sq(x)            g, K: one pair for each function

`sq` is a truncated squarer. x * x is a triangle of partial products: x_i x_j and x_j x_i are one, a column to the left. Columns
below 19 are dropped, so that the hardware need not build them. With 5 bits and columns below 5 dropped:

    column    8     7     6     5   |   4     3     2     1     0
    x0                         x4x0 | x3x0  x2x0  x1x0          x0         x_i in column 2i
    x1                  x4x1   x3x1 | x2x1         x1                      x_i x_j in column i + j + 1
    x2            x4x2  x3x2        |  x2
    x3      x4x3         x3         |
    x4       x4                     |
            └── kept, shifted right ┘ └────────── dropped ──────────┘

A worked value, rcp of 1.5: f = 0x400000, segment 64, x = 0; c0 = 44739244, g = 14, K = 4047:
P = (44739244 << 14) + 4047, P >> 16 = 11184811 = 0xAAAAAB, and ((252 - 127) << 23) + 0xAAAAAB = 0x3F2AAAAB, which is 0.6666667.

The coefficients are in special_unit_rows.tsv. docs/approximate-functions.md describes how they were determined, and how
to check them.

Without .ftz, PTX scales around the unit, which does not support subnormal numbers; div.full and div.approx are a product with rcp.

Every function here takes words, the bits of f32 numbers as 64-bit integers, and returns such words. It is written once:
numpy runs it on arrays, and special_unit_loop.py compiles it for one word after another.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Words: TypeAlias = Any  # an array of int64; a single int64 in compiled code
Integers: TypeAlias = npt.NDArray[np.int64]

ARCH = "sm_90"  # of the card that was measured
ARGUMENT_BITS = 17
DROPPED_COLUMNS = 19
FRACTION_BITS = 23
NAN = 0x7FFFFFFF

_SIGN = 1 << 31
_INFINITY = 0xFF << FRACTION_BITS
_ONE = 127 << FRACTION_BITS
_FRACTION = (1 << FRACTION_BITS) - 1
_ARGUMENT = (1 << ARGUMENT_BITS) - 1
_BINADE = 1 << FRACTION_BITS
_SEGMENT_SHIFT = FRACTION_BITS - 6  # of functions with 64 segments
_QUADRANTS_OF_RADIAN = 4 * float(np.array(0x3E22F983, np.uint32).view(np.float32))  # 4 times 1 / (2 pi), rounded to f32
_SINE_LIMIT = 2.0**30  # quadrants: f32 numbers beyond it are whole turns
_EX2_LIMIT = 2.0**7
_F32_BITS_OF_DOUBLE = -1 << 29

_TWO_24 = 127 + 24 << FRACTION_BITS
_TWO_12 = 127 + 12 << FRACTION_BITS
_TWO_MINUS_12 = 127 - 12 << FRACTION_BITS
_QUARTER = 125 << FRACTION_BITS
_FAR = 127 + 126 << FRACTION_BITS
_MINUS_126 = _SIGN | 127 + 6 << FRACTION_BITS | 0x7C0000
_LEAST_NORMAL_NUMBER = 2.0**-126

_TANH_FIRST_BINADE = 127 - 8
_TANH_INDEX_BITS = (0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 3)  # from 2^-8 on, by binade
_TANH_FIRST_ROWS = tuple(np.cumsum([0, *(1 << bits for bits in _TANH_INDEX_BITS)])[:-1].tolist())


class Rows(NamedTuple):
    """The table of a function, and those that all share, so that compiled code gets them as one argument."""

    base: Integers  # (c0 << g) + K by segment
    c1: Integers
    c2: Integers
    squares: npt.NDArray[np.uint16]  # sq(x) of every 17-bit x
    tanh_bits: Integers
    tanh_rows: Integers


@cache
def rows_of(name: str) -> Rows:
    """The rows of a function; those of cos are those of sin.

    >>> int(rows_of("rcp").base[64])
    733007777743
    """
    rows = _read_rows()["sin" if name == "cos" else name]
    guard_bits, constant = rows["constant"]
    c0, c1, c2 = np.array([row for segment, row in rows.items() if segment != "constant"], np.int64).T
    base = (c0 << guard_bits) + constant
    return Rows(base, c1.copy(), c2.copy(), _squares(), np.array(_TANH_INDEX_BITS), np.array(_TANH_FIRST_ROWS))


@cache
def _read_rows() -> dict[str, dict[str, list[int]]]:
    table = files(__package__).joinpath("special_unit_rows.tsv").read_text("utf-8")
    rows: dict[str, dict[str, list[int]]] = {}
    _header, *lines = [line for line in table.splitlines() if not line.startswith("#")]
    for line in lines:
        name, segment, *numbers = line.split("\t")
        rows.setdefault(name, {})[segment] = [int(number) for number in numbers if number]
    return rows


@cache
def _squares() -> npt.NDArray[np.uint16]:
    """sq(x) of every x: 131,072 numbers below 2^15."""
    return truncated_square(np.arange(1 << ARGUMENT_BITS, dtype=np.int32)).astype(np.uint16)


def truncated_square(x: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Compute x * x / 2^19 without the columns below 19, row by row of the triangle.

    >>> truncated_square(np.array([1 << 16, (1 << 17) - 1], np.int32)).tolist(), ((1 << 17) - 1) ** 2 >> 19
    ([8192, 32759], 32767)
    """
    total = np.zeros_like(x)
    for bit in range(ARGUMENT_BITS):
        shift = 2 * bit + 2 - DROPPED_COLUMNS  # of the bits above this one
        higher = x >> (bit + 1)
        row = (higher << shift) + (1 << 2 * bit >> DROPPED_COLUMNS) if shift >= 0 else higher >> -shift
        total += (x >> bit & 1) * row
    return total


def choose(is_first: Words, first: Words, second: Words) -> Words:
    """`first` where `is_first`, else `second`."""
    return np.where(is_first, first, second)


def evaluate(rows: Rows, segment: Words, x: Words) -> Words:
    """The quadratic P of a segment."""
    return rows.base[segment] + rows.c1[segment] * x + rows.c2[segment] * rows.squares[x]


def number_of(word: Words) -> Words:
    """The f32 number that a word encodes."""
    return np.uint32(word).view(np.float32)


def word_of(number: Words) -> Words:
    """The word of a number, rounded to f32."""
    return np.int64(np.float32(number).view(np.uint32))


def exponent_of(word: Words) -> Words:
    """The biased exponent."""
    return word >> FRACTION_BITS & 0xFF


def is_nan(word: Words) -> Words:
    """Whether a word is NaN."""
    return (word & ~_SIGN) > _INFINITY


def flush(word: Words, sign: Words) -> Words:
    """Zero in place of a number below 2^-126, with the sign."""
    return choose(word < _BINADE, 0, word) | sign


def normalise(magnitude: Words, fraction_bits: int, sign: Words) -> Words:
    """A fixed-point number as f32, truncated to 24 bits; a double holds it without rounding."""
    double = np.float64(magnitude).view(np.int64)
    word = ((double >> 52) - 1023 + 127 - fraction_bits << FRACTION_BITS) + (double >> 29 & _FRACTION)
    return choose(magnitude == 0, 0, word) | sign


def rcp(word: Words, rows: Rows) -> Words:
    """1 / x."""
    exponent = exponent_of(word)
    sign = word & _SIGN
    p = evaluate(rows, word >> 16 & 0x7F, (word & 0xFFFF) << 1)
    result = flush((252 - exponent << FRACTION_BITS) + (p >> 16), sign)
    result = choose(exponent == 0, _INFINITY | sign, result)
    result = choose(exponent == 255, sign, result)
    return choose(is_nan(word), NAN, result)


def root_segment(word: Words) -> Words:
    """The segment of rsqrt and sqrt: 64 for even powers of two, 64 for odd ones."""
    return (exponent_of(word) + 1 & 1) << 6 | word >> _SEGMENT_SHIFT & 0x3F


def rsqrt(word: Words, rows: Rows) -> Words:
    """1 / sqrt(x). A power of four is exact."""
    exponent = exponent_of(word)
    sign = word & _SIGN
    half = exponent - 127 >> 1
    p = evaluate(rows, root_segment(word), word & _ARGUMENT) >> 16
    is_power_of_four = (word & _FRACTION | exponent + 1 & 1) == 0
    result = (125 - half << FRACTION_BITS) + choose(is_power_of_four, 1 << 24, p)
    result = choose(word == _INFINITY, 0, result)
    result = choose(exponent == 0, _INFINITY | sign, choose(sign != 0, NAN, result))
    return choose(is_nan(word), NAN, result)


def sqrt(word: Words, rows: Rows) -> Words:
    """The square root."""
    exponent = exponent_of(word)
    sign = word & _SIGN
    half = exponent - 127 >> 1
    result = (126 + half << FRACTION_BITS) + (evaluate(rows, root_segment(word), word & _ARGUMENT) >> 17)
    result = choose(word == _INFINITY, _INFINITY, result)
    result = choose(exponent == 0, sign, choose(sign != 0, NAN, result))
    return choose(is_nan(word), NAN, result)


def lg2(word: Words, rows: Rows) -> Words:
    """log2(x): a sum with 36 fraction bits; a negative sum is replaced by its one's complement."""
    exponent = exponent_of(word)
    p = evaluate(rows, word >> _SEGMENT_SHIFT & 0x3F, word & _ARGUMENT)
    total = (p >> 2) + (exponent - 127 << 36)
    magnitude = choose(total < 0, ~total, total)
    result = normalise(magnitude, 36, choose(total < 0, _SIGN, 0))
    result = choose(word == _ONE, 0, result)
    result = choose(word == _INFINITY, _INFINITY, choose(word >= _SIGN, NAN, result))
    return choose(is_nan(word), NAN, choose(exponent == 0, _SIGN | _INFINITY, result))


def fixed_point(number: Words, limit: float) -> Words:
    """A number >= 0 with 23 fraction bits, truncated; `limit` in place of larger ones and of NaN."""
    return np.int64(np.fmin(number, limit) * _BINADE)


def ex2(word: Words, rows: Rows) -> Words:
    """2^x: the argument is truncated to 7 integer bits and 23 fraction bits."""
    exponent = exponent_of(word)
    is_negative = word >= _SIGN
    fixed = fixed_point(np.float64(number_of(word & ~_SIGN)), _EX2_LIMIT)
    integer = fixed >> FRACTION_BITS
    part = fixed & _FRACTION
    integer = choose(is_negative, choose(part == 0, -integer, -integer - 1), integer)
    part = choose(is_negative & (part != 0), ~part & _FRACTION, part)
    p = evaluate(rows, part >> _SEGMENT_SHIFT, part & _ARGUMENT)
    result = flush((integer + 126 << FRACTION_BITS) + (p >> 15), 0)
    result = choose(exponent >= 127 + 7, choose(is_negative, 0, _INFINITY), result)
    return choose(is_nan(word), NAN, result)


def sine_from(first_quadrant: int, word: Words, rows: Rows, sign: Words) -> Words:
    """The sine of x, from a quadrant on."""
    fixed = fixed_quadrants(word) + (first_quadrant << FRACTION_BITS)
    part = (fixed ^ -(fixed >> FRACTION_BITS & 1)) & _FRACTION
    p = evaluate(rows, part >> _SEGMENT_SHIFT, part & _ARGUMENT)
    return choose(exponent_of(word) == 255, NAN, normalise(p, 37, sign ^ fixed << 7 & _SIGN))


def fixed_quadrants(word: Words) -> Words:
    """Radians as quadrants: the product is cut to f32, then to 23 fraction bits."""
    radians = np.float64(number_of(word & ~_SIGN))
    quadrants = np.float64(radians * _QUADRANTS_OF_RADIAN).view(np.int64) & _F32_BITS_OF_DOUBLE
    return fixed_point(np.int64(quadrants).view(np.float64), _SINE_LIMIT)


def sin(word: Words, rows: Rows) -> Words:
    """The sine of radians."""
    return sine_from(0, word, rows, word & _SIGN)


def cos(word: Words, rows: Rows) -> Words:
    """The cosine of radians: the sine, a quadrant later."""
    return sine_from(1, word, rows, word & 0)


def tanh(word: Words, rows: Rows) -> Words:
    """The hyperbolic tangent: x itself below 2^-8, 1 from 8 on; between them segments that grow finer, then coarser."""
    exponent = exponent_of(word)
    sign = word & _SIGN
    binade = np.minimum(np.maximum(exponent - _TANH_FIRST_BINADE, 0), 10)
    bits = rows.tanh_bits[binade]
    fraction = word & _FRACTION
    segment = rows.tanh_rows[binade] + (fraction >> FRACTION_BITS - bits)
    p = evaluate(rows, segment, fraction >> FRACTION_BITS - ARGUMENT_BITS - bits & _ARGUMENT)
    result = normalise(p, 40, sign)
    result = choose(exponent < _TANH_FIRST_BINADE, word, result)
    result = choose(exponent >= 127 + 3, _ONE | sign, result)
    return choose(is_nan(word), NAN, result)


def multiply(a: Words, b: Words) -> Words:
    """mul.rn.f32."""
    word = multiply_numbers(a, b)
    return choose(is_nan(word), NAN, word)


def multiply_numbers(a: Words, b: Words) -> Words:
    """mul.rn.f32 where the product is a number, or is not used."""
    return word_of(number_of(a) * number_of(b))


def multiply_flushed(word: Words, reciprocal: Words) -> Words:
    """mul.rn.ftz.f32 with a reciprocal, which is never subnormal: a product below 2^-126 is zero, even if it would be rounded up."""
    product = np.float64(number_of(word * ((word & ~_SIGN) >= _BINADE))) * np.float64(number_of(reciprocal))
    result = choose(np.abs(product) < _LEAST_NORMAL_NUMBER, (word ^ reciprocal) & _SIGN, word_of(product))
    return choose(np.isnan(product), NAN, result)


def rcp_scaled(word: Words, rows: Rows) -> Words:
    """rcp.approx.f32."""
    scale = quotient_scale(word)
    return multiply(rcp(multiply(word, scale), rows), scale)


def quotient_scale(divisor: Words) -> Words:
    """The power of two that moves a divisor and its reciprocal among the normal numbers."""
    exponent = exponent_of(divisor)
    return choose(exponent == 0, _TWO_24, choose(exponent >= _FAR >> FRACTION_BITS, _QUARTER, _ONE))


def rsqrt_scaled(word: Words, rows: Rows) -> Words:
    """rsqrt.approx.f32."""
    is_tiny = exponent_of(word) == 0
    result = rsqrt(choose(is_tiny, multiply_numbers(word, _TWO_24), word), rows)
    return choose(is_tiny, multiply_numbers(result, _TWO_12), result)


def sqrt_scaled(word: Words, rows: Rows) -> Words:
    """sqrt.approx.f32."""
    is_tiny = exponent_of(word) == 0
    result = sqrt(choose(is_tiny, multiply_numbers(word, _TWO_24), word), rows)
    return choose(is_tiny, multiply_numbers(result, _TWO_MINUS_12), result)


def lg2_scaled(word: Words, rows: Rows) -> Words:
    """lg2.approx.f32."""
    is_tiny = exponent_of(word) == 0
    result = lg2(choose(is_tiny, multiply_numbers(word, _TWO_24), word), rows)
    less = word_of(number_of(result) - np.float32(24))
    return choose(is_tiny & (exponent_of(result) != 255), less, result)


def ex2_scaled(word: Words, rows: Rows) -> Words:
    """ex2.approx.f32."""
    is_low = (word > _MINUS_126) & (word <= _SIGN | _INFINITY)
    result = ex2(choose(is_low, word - _BINADE, word), rows)
    return choose(is_low, multiply_numbers(result, result), result)


def full_factors(dividend: Words, divisor: Words, rows: Rows) -> tuple[Words, Words]:
    """The factors of div.full.f32: the dividend and the reciprocal of the divisor, both scaled."""
    scale = quotient_scale(divisor)
    return multiply(dividend, scale), rcp(multiply(divisor, scale), rows)


def full_factors_flushed(dividend: Words, divisor: Words, rows: Rows) -> tuple[Words, Words]:
    """The factors of div.full.ftz.f32."""
    magnitude = divisor & ~_SIGN
    is_far = magnitude >= _FAR
    near = divisor - 2 * _BINADE * (is_far & (magnitude < _INFINITY))
    return choose(is_far, quarter_flushed(dividend), dividend), rcp(near, rows)


def quarter_flushed(word: Words) -> Words:
    """A quarter, zero if it is below 2^-126."""
    magnitude = word & ~_SIGN
    return choose(magnitude < 3 * _BINADE, word & _SIGN, word - 2 * _BINADE * (magnitude < _INFINITY))


def approx_factors(dividend: Words, divisor: Words, rows: Rows) -> tuple[Words, Words]:
    """The factors of div.approx.f32: nothing is scaled above 2^126, where the reciprocal is zero."""
    scale = choose(exponent_of(divisor) == 0, _TWO_24, _ONE)
    return multiply(dividend, scale), rcp(multiply(divisor, scale), rows)


def approx_factors_flushed(dividend: Words, divisor: Words, rows: Rows) -> tuple[Words, Words]:
    """The factors of div.approx.ftz.f32."""
    return dividend, rcp(divisor, rows)


def divide_full(dividend: Words, divisor: Words, rows: Rows) -> Words:
    """div.full.f32."""
    scaled, reciprocal = full_factors(dividend, divisor, rows)
    return multiply(scaled, reciprocal)


def divide_full_flushed(dividend: Words, divisor: Words, rows: Rows) -> Words:
    """div.full.ftz.f32."""
    scaled, reciprocal = full_factors_flushed(dividend, divisor, rows)
    return multiply_flushed(scaled, reciprocal)


def divide_approx(dividend: Words, divisor: Words, rows: Rows) -> Words:
    """div.approx.f32."""
    scaled, reciprocal = approx_factors(dividend, divisor, rows)
    return multiply(scaled, reciprocal)


def divide_approx_flushed(dividend: Words, divisor: Words, rows: Rows) -> Words:
    """div.approx.ftz.f32."""
    return multiply_flushed(dividend, rcp(divisor, rows))


def each_word(function: Callable[..., Words]) -> Callable[..., None]:
    """A loop for compiled code: a function of each word of an array."""

    def loop(words: Words, rows: Rows, results: Words) -> None:
        for place in range(words.size):
            results[place] = function(np.int64(words[place]), rows)

    return loop


def each_pair(function: Callable[..., Words]) -> Callable[..., None]:
    """A loop for compiled code: a quotient of each pair of words of two arrays."""

    def loop(dividends: Words, divisors: Words, rows: Rows, results: Words) -> None:
        for place in range(dividends.size):
            results[place] = function(np.int64(dividends[place]), np.int64(divisors[place]), rows)

    return loop


FLUSHED: dict[str, Callable[[Words, Rows], Words]] = {  # the .ftz forms
    "rcp": rcp,
    "rsqrt": rsqrt,
    "sqrt": sqrt,
    "lg2": lg2,
    "ex2": ex2,
    "sin": sin,
    "cos": cos,
    "tanh": tanh,
}
SCALED: dict[str, Callable[[Words, Rows], Words]] = {  # those without .ftz
    "rcp": rcp_scaled,
    "rsqrt": rsqrt_scaled,
    "sqrt": sqrt_scaled,
    "lg2": lg2_scaled,
    "ex2": ex2_scaled,
    "sin": sin,
    "cos": cos,
    "tanh": tanh,
}
QUOTIENTS: dict[tuple[str, bool], Callable[[Words, Words, Rows], Words]] = {  # by kind, and whether .ftz
    ("full", False): divide_full,
    ("full", True): divide_full_flushed,
    ("approx", False): divide_approx,
    ("approx", True): divide_approx_flushed,
}
FACTORS: dict[tuple[str, bool], Callable[[Words, Words, Rows], tuple[Words, Words]]] = {
    ("full", False): full_factors,
    ("full", True): full_factors_flushed,
    ("approx", False): approx_factors,
    ("approx", True): approx_factors_flushed,
}
PARTS: tuple[Callable[..., Words], ...] = (  # that the functions are made of: compiled code calls them
    evaluate,
    number_of,
    word_of,
    exponent_of,
    is_nan,
    flush,
    normalise,
    root_segment,
    fixed_point,
    sine_from,
    fixed_quadrants,
    multiply,
    multiply_numbers,
    multiply_flushed,
    quotient_scale,
    quarter_flushed,
    full_factors,
    full_factors_flushed,
    approx_factors,
)
