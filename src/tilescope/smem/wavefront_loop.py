"""The wavefronts of large batches of accesses, by a loop that numba compiles (the extra `fast`).

The rule is that of banks.py. First, lanes of a group are assigned to the columns of the line without comparing them;
only a column with more lanes than the current degree is searched for equal lines:

    column      0      1      2      3     of 4, 8 or 16 bytes: a group has as many lanes as the line has columns
    lines       7      2      2            that lanes want there
                       5      2
    different   1      2      1            the largest is the degree: 2 wavefronts

Importing this module loads numba; it compiles the loop for its first arguments, and keeps the result on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.swizzle import SMEM_LINE_BYTES
from tilescope.swizzle.line_streaming import compile_loop

Loop = TypeVar("Loop", bound=Callable[..., object])
Addresses = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
LINE_SHIFT = SMEM_LINE_BYTES.bit_length() - 1


def _machine_code(loop: Loop) -> Loop:
    code: Any = compile_loop(loop)
    return code  # type: ignore[no-any-return]


@_machine_code
def _asks_in_pairs(address: Addresses, mask: Mask, distance: int) -> bool:
    """Whether the lanes i and i ^ distance of one access have the same address whenever both are active."""
    for lane in range(len(address)):
        other = lane ^ distance
        if address[lane] != address[other] and (len(mask) == 0 or (mask[lane] and mask[other])):
            return False
    return True


@_machine_code
def _different(lines: Addresses, wanted: int) -> int:
    """How many of the first `wanted` lines are different; those are moved to the front."""
    different = 0
    for place in range(wanted):
        line = lines[place]
        index = 0
        while index < different and lines[index] != line:
            index += 1
        if index == different:
            lines[different] = line
            different += 1
    return different


@_machine_code
def _group_degree(address: Addresses, mask: Mask, cell_shift: int, lines: Addresses, wanted: Addresses) -> int:
    """The wavefronts of one group of lanes; `lines` and `wanted` are room to work in."""
    wanted[:] = 0
    for lane in range(len(address)):
        column = (address[lane] & (SMEM_LINE_BYTES - 1)) >> cell_shift
        lines[column, wanted[column]] = address[lane] >> LINE_SHIFT
        wanted[column] += 1 if len(mask) == 0 else mask[lane]
    degree = 0
    for column in range(len(wanted)):
        if wanted[column] > degree:
            degree = max(degree, _different(lines[column], wanted[column]))
    return degree


@_machine_code
def count(address: Addresses, mask: Mask, cell_shift: int, pairs_merge: bool, counts: Addresses) -> None:
    """Write the wavefronts of each row of `address` into `counts`; a mask without rows means that every lane is active."""
    columns = SMEM_LINE_BYTES >> cell_shift
    lines = np.empty((columns, WARP_LANES), np.int64)  # lanes that access each column
    lanes_per_column = np.empty(columns, np.int64)  # how many lanes do
    lanes = address.shape[1]
    nobody = mask[:0].ravel()
    for access in range(len(address)):
        places = address[access]
        active = mask[access] if len(mask) else nobody
        per_group = columns
        if pairs_merge and (_asks_in_pairs(places, active, 1) or _asks_in_pairs(places, active, 2)):
            per_group = 2 * columns
        total = 0
        for first in range(0, lanes, per_group):
            last = first + per_group
            total += _group_degree(places[first:last], active[first:last], cell_shift, lines, lanes_per_column)
        counts[access] = total
