"""The aligned sum of aligned_sum.py by a loop that numba compiles (the extra `fast`).

One row of A at a time is multiplied by all columns of B, term after term, so that the inner loops run along n and
become vector instructions. Products, truncations and exact sums are the same as numpy's, so all bits are equal.

Importing this module loads numba; it compiles the loop for its first arguments, and keeps the result on disk.
"""

# ruff: noqa: PLR0917  a compiled loop takes its arrays one after the other

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilescope.mma.element_value import ZERO_ADDEND_EXPONENT
from tilescope.swizzle.line_streaming import compile_loop

Doubles = npt.NDArray[np.float64]
Exponents = npt.NDArray[np.int16]

_BIAS = 1023  # of the exponent of a float64 …
_FRACTION_BITS = 52  # … above its fraction


def _align_row(a_exponents: Exponents, b_exponents: Exponents, furthest: Exponents) -> None:
    """The largest exponents among the terms of a row of A (k) and B (k, n), and those in `furthest` (n)."""
    for term in range(len(a_exponents)):
        exponent = a_exponents[term]
        of_b = b_exponents[term]
        for column in range(len(furthest)):  # 16 bits throughout: eight columns a vector
            furthest[column] = max(furthest[column], np.int16(exponent + of_b[column]))


def _add_row(a: Doubles, b: Doubles, scale: Doubles, total: Doubles) -> None:
    """Add the cut terms of a row of A (k) and B (k, n) to `total` (n): whole numbers, whose sum is exact in any order."""
    in_fours = len(a) - len(a) % 4
    for term in range(0, in_fours, 4):
        a0, a1, a2, a3 = a[term], a[term + 1], a[term + 2], a[term + 3]
        b0, b1, b2, b3 = b[term], b[term + 1], b[term + 2], b[term + 3]
        for column in range(len(total)):
            by = scale[column]
            first = np.trunc(a0 * b0[column] * by) + np.trunc(a1 * b1[column] * by)
            second = np.trunc(a2 * b2[column] * by) + np.trunc(a3 * b3[column] * by)
            total[column] += first + second
    for term in range(in_fours, len(a)):
        for column in range(len(total)):
            total[column] += np.trunc(a[term] * b[term, column] * scale[column])


align_row = compile_loop(_align_row)
add_row = compile_loop(_add_row)


def _add(
    a_values: Doubles,
    a_exponents: Exponents,
    b_values: Doubles,
    b_exponents: Exponents,
    sums: Doubles,
    largest: Exponents,
    fractional_bits: int,
) -> None:
    """Add the products of A (batch, m, k) and B (batch, k, n) to `sums` (batch, m, n), which holds C; `largest` C's exponents."""
    batch, m, n = sums.shape
    words = np.empty(n, np.int64)
    scale = words.view(np.float64)  # powers of two, made of their exponents
    for item in range(batch):
        for row in range(m):
            furthest = largest[item, row]
            total = sums[item, row]
            align_row(a_exponents[item, row], b_exponents[item], furthest)
            for column in range(n):
                words[column] = fractional_bits - furthest[column] + _BIAS << _FRACTION_BITS
            for column in range(n):
                total[column] = np.trunc(total[column] * scale[column])
            add_row(a_values[item, row], b_values[item], scale, total)
            for column in range(n):
                words[column] = furthest[column] - fractional_bits + _BIAS << _FRACTION_BITS
            for column in range(n):
                total[column] *= scale[column]


def _take_apart(
    c: npt.NDArray[np.float32], values: Doubles, exponents: Exponents, has_specials: npt.NDArray[np.bool_]
) -> None:
    """Values and exponents of float32 words; `has_specials`: one of them is infinite or NaN."""
    words = c.view(np.uint32)
    for place in range(len(c)):
        field = np.int16(words[place] >> 23 & 0xFF)
        if field == 0xFF:
            has_specials[0] = True
        values[place] = c[place]
        exponents[place] = max(field, np.int16(1)) - 127 if values[place] != 0 else ZERO_ADDEND_EXPONENT


def _truncate_to_float32(sums: Doubles, result_bits: int, d: npt.NDArray[np.float32]) -> None:
    """cut_to_float32 of aligned_sum.py."""
    lost_bits = _FRACTION_BITS - result_bits
    least = 2.0 ** (-126 - result_bits)
    words = sums.view(np.int64)
    for place in range(len(sums)):
        if abs(sums[place]) < 2.0**-126:
            sums[place] = np.trunc(sums[place] / least) * least + 0.0
        else:
            words[place] = words[place] >> lost_bits << lost_bits
        d[place] = sums[place]


add = compile_loop(_add)
take_apart = compile_loop(_take_apart)
cut = compile_loop(_truncate_to_float32)
