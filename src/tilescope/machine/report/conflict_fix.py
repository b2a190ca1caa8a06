"""Which change of a tile's addresses leaves no bank conflict, for all instructions of a run that access the tile.

A swizzle exchanges pieces of 16 bytes; a padding puts bytes after every row. Either gives every byte a new place, for writers
and readers of the tile alike. What helps one may hurt the other, so all of them are counted again.

    ld.b32 down a column, rows of 128 bytes        32 wavefronts
        swizzle 128B                                4
        4 bytes after every 128                     1     and the stores along rows still take 1: the cure
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.machine.observers.access_cost import Instance
from tilescope.smem.banks import count_ideal, count_wavefronts
from tilescope.smem.op import BANK_BYTES
from tilescope.swizzle import SWIZZLE, Swizzle
from tilescope.sync.address import SHARED_OFFSET_MASK

Addresses = npt.NDArray[np.int64]
HARDWARE_SWIZZLES = ("128B", "64B", "32B")
_ROW_BYTES = (32, 64, 128, 256, 512, 1024, 2048, 4096)
_PADDINGS_BYTES = (4, 8, 16, 32)


class Cure(NamedTuple):
    """A swizzle, or bytes after every row of some length."""

    swizzle: str | None = None
    row_bytes: int | None = None
    padding_bytes: int | None = None


class TileUse(NamedTuple):
    """How the instructions that touch a tile, one execution of each, and copies by TMA find its bytes."""

    instances: Sequence[Instance]
    written_swizzle: str | None  # of the map of the copies that fill or empty it; None: threads alone use it


def cured(use: TileUse) -> Cure | None:
    """The first change that leaves no conflict: a mode of the hardware, or the narrowest rows and the least padding.

    Copies by TMA can swizzle, not pad.
    """
    for cure in _cures(use):
        if all(_is_free(instance, cure, use.written_swizzle) for instance in use.instances):
            return cure
    return None


def _cures(use: TileUse) -> Iterator[Cure]:
    for name in HARDWARE_SWIZZLES:
        if name != use.written_swizzle:
            yield Cure(swizzle=name)
    if use.written_swizzle is not None:
        return
    widest = max(instance.kind.size_bytes for instance in use.instances)
    for row_bytes in _ROW_BYTES:
        for padding_bytes in _PADDINGS_BYTES:
            if padding_bytes % widest == 0 and row_bytes % widest == 0:
                yield Cure(row_bytes=row_bytes, padding_bytes=padding_bytes)


def _is_free(instance: Instance, cure: Cure, written_swizzle: str | None) -> bool:
    op = instance.kind.shared_op
    assert op is not None
    addresses, mask = lanes_of(instance)
    moved = _moved(addresses, cure, written_swizzle)
    return bool(count_wavefronts(op, moved, mask)[0] == count_ideal(op, moved, mask)[0])


def lanes_of(instance: Instance) -> tuple[Addresses, npt.NDArray[np.bool_]]:
    """Offsets in the block's shared memory, (1, lanes), and which lanes take part."""
    mask = np.array([[address is not None for address in instance.lane_address]])
    addresses = np.array([[address or 0 for address in instance.lane_address]], np.int64)
    return addresses & SHARED_OFFSET_MASK, mask


def _moved(addresses: Addresses, cure: Cure, written_swizzle: str | None) -> Addresses:
    """Where the bytes lie after the change.

    >>> _moved(np.array([128, 256]), Cure(row_bytes=128, padding_bytes=4), None)
    array([132, 264])
    """
    if cure.swizzle is not None:
        plain = addresses if written_swizzle is None else Swizzle.named(written_swizzle).apply(addresses)
        return np.asarray(SWIZZLE[cure.swizzle].apply(plain), np.int64)
    assert cure.row_bytes is not None
    assert cure.padding_bytes is not None
    return addresses + addresses // cure.row_bytes * cure.padding_bytes


def overlaps(one: Instance, other: Instance) -> bool:
    """Whether two executions reach into the same part of shared memory."""
    first = _reach(one)
    second = _reach(other)
    return first[0] < second[1] and second[0] < first[1]


def _reach(instance: Instance) -> tuple[int, int]:
    places = [address & SHARED_OFFSET_MASK for address in instance.lane_address if address is not None]
    return min(places), max(places) + max(instance.kind.size_bytes, BANK_BYTES)


def reaches(instance: Instance, start: int, end: int) -> bool:
    """Whether an execution touches a range of shared memory."""
    low, high = _reach(instance)
    return low < end and start < high
