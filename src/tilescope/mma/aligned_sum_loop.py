"""The aligned sum of aligned_sum.py by a loop that numba compiles (the extra `fast`).

One row of A at a time meets all columns of B, term after term, so that the inner loops run along n and become vector
instructions. The same float64 operations in the same places: all bits are those of numpy's.

Importing this module loads numba; it compiles the loop for its first arguments, and keeps the result on disk.
"""

# ruff: noqa: PLR0917  a compiled loop takes its arrays one after the other

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilescope.mma.element_value import ZERO_ADDEND_EXPONENT
from tilescope.swizzle.line_streaming import compiled

Doubles = npt.NDArray[np.float64]
Exponents = npt.NDArray[np.int16]

_FURTHEST = 1000  # exponent of the powers of two in the table
_POWERS = np.ldexp(1.0, np.arange(-_FURTHEST, _FURTHEST + 1))


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
    terms = a_values.shape[2]
    scale = np.empty(n)
    for one in range(batch):
        for row in range(m):
            furthest = largest[one, row]
            for term in range(terms):
                exponent = a_exponents[one, row, term]
                of_b = b_exponents[one, term]
                for column in range(n):
                    furthest[column] = max(furthest[column], exponent + of_b[column])
            total = sums[one, row]
            for column in range(n):
                scale[column] = _POWERS[fractional_bits - furthest[column] + _FURTHEST]
                total[column] = np.trunc(total[column] * scale[column])
            for term in range(terms):
                value = a_values[one, row, term]
                right = b_values[one, term]
                for column in range(n):
                    total[column] += np.trunc(value * right[column] * scale[column])
            for column in range(n):
                total[column] *= _POWERS[furthest[column] - fractional_bits + _FURTHEST]


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


def _cut(sums: Doubles, result_bits: int, d: npt.NDArray[np.float32]) -> None:
    """cut_to_float32 of aligned_sum.py."""
    lost_bits = 52 - result_bits
    least = 2.0 ** (-126 - result_bits)
    words = sums.view(np.int64)
    for place in range(len(sums)):
        if abs(sums[place]) < 2.0**-126:
            sums[place] = np.trunc(sums[place] / least) * least + 0.0
        else:
            words[place] = words[place] >> lost_bits << lost_bits
        d[place] = sums[place]


add = compiled(_add)
take_apart = compiled(_take_apart)
cut = compiled(_cut)
