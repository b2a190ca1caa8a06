"""fma.rn.f32 for one thread after another, by a loop that numba compiles (the extra `fast`), with the bits of floating.py.

The product of doubles is exact. Their sum is rounded to odd, which leaves a trace of what was cut off, and then once to f32.
Importing this module loads numba; the loop is compiled for its first words, and kept on disk.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilescope.swizzle.line_streaming import compile_loop

Singles = npt.NDArray[np.float32]


def _multiply_and_add(a: Singles, b: Singles, c: Singles, results: Singles) -> None:
    """Fill `results`; a NaN may have any bits."""
    for place in range(len(results)):
        product = np.float64(a[place]) * np.float64(b[place])
        addend = np.float64(c[place])
        total = product + addend
        part = total - product
        error = (product - (total - part)) + (addend - part)
        bits = np.float64(total).view(np.int64)
        is_cut = error < 0.0 or error > 0.0
        step = 1 if (error > 0.0) == (total > 0.0) else -1
        bits += step if is_cut and bits & 1 == 0 else 0
        results[place] = np.float32(np.int64(bits).view(np.float64))


multiply_and_add = compile_loop(_multiply_and_add)
