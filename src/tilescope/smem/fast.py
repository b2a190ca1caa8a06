"""The wavefront rule of banks.py as one compiled loop, for large batches where numba is installed.

Importing numba and compiling takes a second or two the first time (the result is kept on disk), so the
loop is used only for batches that repay it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from tilescope.swizzle import SMEM_LINE_BYTES

FIRST_BATCH = 4096  # accesses in one call that make loading the compiled loop worth while: more will follow
NEXT_BATCH = 64  # once it is there
_LINE_SHIFT = 7


def kernel(accesses: int) -> Callable[..., None] | None:
    """The compiled loop if a batch of this size repays it, else None."""
    loaded = _compiled.cache_info().currsize > 0
    return _compiled() if accesses >= (NEXT_BATCH if loaded else FIRST_BATCH) else None


@lru_cache(maxsize=1)
def _compiled() -> Callable[..., None] | None:
    try:
        from tilescope.swizzle.streaming import compiled
    except ImportError:  # numba is not installed, or not made for this numpy
        return None
    return compiled(_count)


def _count(
    address: Any, mask: Any, masked: bool, lanes_per_group: int, cell_shift: int, pairs_merge: bool, counts: Any
) -> None:
    """Write the wavefronts of each row of `address` into `counts`.

    Lanes are first dealt to the columns of the line without a look at each other; only a column with more
    lanes than the degree found so far is looked through for equal lines.
    """
    columns = SMEM_LINE_BYTES >> cell_shift
    lines = np.empty((columns, 32), np.int64)  # that lanes want of each column
    wanted = np.empty(columns, np.int64)  # how many lanes do
    lanes = address.shape[1]
    for access in range(len(address)):
        per_group = lanes_per_group
        if pairs_merge:
            for distance in (1, 2):
                equal = True
                for lane in range(lanes):
                    other = lane ^ distance
                    if address[access, lane] != address[access, other] and not (
                        masked and not (mask[access, lane] and mask[access, other])
                    ):
                        equal = False
                        break
                if equal:
                    per_group = 2 * lanes_per_group
        total = 0
        for first in range(0, lanes, per_group):
            wanted[:] = 0
            for lane in range(first, first + per_group):
                column = (address[access, lane] & (SMEM_LINE_BYTES - 1)) >> cell_shift
                lines[column, wanted[column]] = address[access, lane] >> _LINE_SHIFT
                wanted[column] += mask[access, lane] if masked else 1
            degree = 0
            for column in range(columns):
                if wanted[column] > degree:
                    different = 0
                    for place in range(wanted[column]):
                        line = lines[column, place]
                        known = 0
                        while known < different and lines[column, known] != line:
                            known += 1
                        if known == different:
                            lines[column, different] = line
                            different += 1
                    degree = max(degree, different)
            total += degree
        counts[access] = total
