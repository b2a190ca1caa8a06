"""The aligned sum in 32 bits, by loops that numba compiles (the extra `fast`): one tile at a time, twice as fast as in float64.

It is for factors of up to 11 significant bits whose exponents are moderate, which nearly all are. Then nothing is lost:

    a * b              22 bits at most: exact in float32
    a * b * scale      a power of two: exact, unless it is far below 1, and then cut to 0 as it should be
    int32(…)           cut towards zero; below 2**(F + 2), so that the sum of all terms is below 2**31

Everything else is refused: infinities, NaN, tf32, factors outside 2**-45 … 2**60, accumulators below 2**-95. Whoever calls takes
aligned_sum_loop.py for these. The bits are the same.
"""

# ruff: noqa: PLR0917  a compiled loop takes its arrays one after the other

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilescope.mma.element_value import REFUSED_EXPONENT, ZERO_ADDEND_EXPONENT
from tilescope.swizzle.line_streaming import compile_loop

Floats = npt.NDArray[np.float32]
Exponents = npt.NDArray[np.int16]
Codes = npt.NDArray[np.unsignedinteger]
Places = npt.NDArray[np.uint32]  # unsigned: a negative index would count from the end

TERMS_AT_ONCE = 8  # that the inner loops take: k is a multiple of it
_REFUSED_ADDEND = np.int16(20000)  # an exponent that no accumulator has
_LEAST_ADDEND = 0x1000_0000  # the word of 2**-95
_INFINITY = 0x7F80_0000
_BIAS = np.int16(127)
_MOST_SCALE = np.int16(120)  # only zeros have a larger one
_LEAST_EXPONENT = np.int16(-126)
_FLOAT64_FRACTION_BITS = 52


def _take_factors(
    codes: Codes, places: Places, sign: int, values: Floats, exponents: Exponents, own: Floats, own_exponents: Exponents
) -> bool:
    """Look up the factors at some places of codes, their sign bits flipped by `sign`. False: one of them is refused."""
    is_refused = False
    for index in range(len(places)):
        code = codes[places[index]] ^ sign
        own[index] = values[code]
        own_exponents[index] = exponents[code]
        is_refused |= exponents[code] == REFUSED_EXPONENT
    return not is_refused


def _take_addends(words: npt.NDArray[np.int32], exponents: Exponents) -> bool:
    """The exponents of a row of accumulators. False: one of them is refused."""
    for column in range(len(words)):
        magnitude = np.int32(words[column] & 0x7FFF_FFFF)
        is_refused = (magnitude < _LEAST_ADDEND) | (magnitude >= _INFINITY)
        exponent = _REFUSED_ADDEND if is_refused else np.int16((magnitude >> 23) - _BIAS)
        exponents[column] = np.int16(ZERO_ADDEND_EXPONENT) if magnitude == 0 else exponent
    largest = np.int16(0)
    for column in range(len(exponents)):
        largest = max(largest, exponents[column])
    return bool(largest != _REFUSED_ADDEND)


def _align(a: Exponents, b: Exponents, furthest: Exponents) -> None:
    """The largest exponents among eight terms of a row of A and of B (8, n), and those in `furthest` (n)."""
    for column in range(len(furthest)):  # 16 bits throughout: eight columns a vector
        first = max(np.int16(a[0] + b[0, column]), np.int16(a[1] + b[1, column]))
        second = max(np.int16(a[2] + b[2, column]), np.int16(a[3] + b[3, column]))
        third = max(np.int16(a[4] + b[4, column]), np.int16(a[5] + b[5, column]))
        fourth = max(np.int16(a[6] + b[6, column]), np.int16(a[7] + b[7, column]))
        furthest[column] = max(furthest[column], first, second, third, fourth)


def _scale(furthest: Exponents, fractional_bits: int, up: npt.NDArray[np.int32], down: npt.NDArray[np.int32]) -> None:
    """The words of the powers of two that move F fractional bits before the point, and that move them back."""
    for column in range(len(furthest)):
        exponent = np.int16(furthest[column] - fractional_bits)
        up[column] = np.int32(np.int16(_BIAS - max(exponent, np.int16(-_MOST_SCALE)))) << 23
        down[column] = np.int32(np.int16(_BIAS + max(exponent, _LEAST_EXPONENT))) << 23


def _add_terms(a: Floats, b: Floats, scale: Floats, total: npt.NDArray[np.int32]) -> None:
    """Add eight cut terms of a row of A and of B (8, n) to `total` (n)."""
    a0, a1, a2, a3, a4, a5, a6, a7 = a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]
    b0, b1, b2, b3, b4, b5, b6, b7 = b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]
    for column in range(len(total)):
        by = scale[column]
        first = np.int32(a0 * b0[column] * by) + np.int32(a1 * b1[column] * by)
        second = np.int32(a2 * b2[column] * by) + np.int32(a3 * b3[column] * by)
        third = np.int32(a4 * b4[column] * by) + np.int32(a5 * b5[column] * by)
        fourth = np.int32(a6 * b6[column] * by) + np.int32(a7 * b7[column] * by)
        total[column] += np.int32(np.int32(first + second) + np.int32(third + fourth))


def _cut_row(
    c: Floats,
    total: npt.NDArray[np.int32],
    up: Floats,
    down: Floats,
    mask: int,
    sums: npt.NDArray[np.float64],
    words: npt.NDArray[np.int64],
) -> None:
    """Add the cut accumulators to the terms, and write the sums over them, cut to the bits that the result has."""
    for column in range(len(c)):
        cut = np.float64(np.int32(c[column] * up[column]))
        sums[column] = (np.float64(total[column]) + cut) * np.float64(down[column])
    for column in range(len(c)):
        words[column] &= mask
    for column in range(len(c)):
        c[column] = sums[column]


take_factors = compile_loop(_take_factors)
take_addends = compile_loop(_take_addends)
align = compile_loop(_align)
scale_of = compile_loop(_scale)
add_terms = compile_loop(_add_terms)
cut_row = compile_loop(_cut_row)


def _add_tile(
    a_values: Floats,
    a_exponents: Exponents,
    b_values: Floats,
    b_exponents: Exponents,
    c: Floats,
    c_words: npt.NDArray[np.int32],
    fractional_bits: int,
    result_bits: int,
) -> bool:
    """Add the products of A (m, k) and B (k, n) to C (m, n), of which `c_words` is a view. False: refused, and C is spoilt."""
    m, n = c.shape
    terms = a_values.shape[1]
    furthest = np.empty(n, np.int16)
    up, down = np.empty(n, np.float32), np.empty(n, np.float32)
    up_words, down_words = up.view(np.int32), down.view(np.int32)
    total = np.empty(n, np.int32)
    sums = np.empty(n, np.float64)
    sum_words = sums.view(np.int64)
    mask = np.int64(-1) << _FLOAT64_FRACTION_BITS - result_bits
    for row in range(m):
        if not take_addends(c_words[row], furthest):
            return False
        for term in range(0, terms, TERMS_AT_ONCE):
            align(a_exponents[row, term : term + 8], b_exponents[term : term + 8], furthest)
        scale_of(furthest, fractional_bits, up_words, down_words)
        total[:] = 0
        for term in range(0, terms, TERMS_AT_ONCE):
            add_terms(a_values[row, term : term + 8], b_values[term : term + 8], up, total)
        cut_row(c[row], total, up, down, mask, sums, sum_words)
    return True


add_tile = compile_loop(_add_tile)
