"""The aligned sum of aligned_sum.py by a loop that numba compiles (the extra `fast`).

One row of A at a time meets all columns of B, term after term, so that the inner loops run along n and become vector
instructions. The same float64 operations in the same places: all bits are those of numpy's.

Importing this module loads numba; it compiles the loop for its first arguments, and keeps the result on disk.
"""

# ruff: noqa: PLR0917  a compiled loop takes its arrays one after the other

from __future__ import annotations

import numpy as np
import numpy.typing as npt

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


add = compiled(_add)
