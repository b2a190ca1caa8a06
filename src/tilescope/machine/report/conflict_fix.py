"""Fixes of bank conflicts: a swizzle or a padding of a tile under which no access of the run to the tile has a conflict.

A swizzle exchanges chunks of 16 bytes; padding leaves bytes free after each row. Both move the bytes for all writers
and readers of the tile. A layout that is good for one access may be bad for another, so all accesses are counted again.

    ld.b32 down a column, rows of 128 bytes        32 wavefronts
        swizzle 128B                                4
        4 bytes after every 128                     1     and the stores along rows still take 1: the fix
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


class TileFix(NamedTuple):
    """A swizzle, or free bytes after each row."""

    swizzle: str | None = None
    row_bytes: int | None = None
    padding_bytes: int | None = None


class TileUse(NamedTuple):
    """The accesses to a tile: one execution of each instruction, and the swizzle of its TMA copies."""

    instances: Sequence[Instance]
    written_swizzle: str | None  # of the tensor map; None: only threads access the tile


def find_fix(use: TileUse) -> TileFix | None:
    """The first fix without any conflict: a swizzle of the hardware, or the narrowest rows with the least padding.

    TMA copies cannot pad.
    """
    for fix in _possible_fixes(use):
        if all(_is_conflict_free(instance, fix, use.written_swizzle) for instance in use.instances):
            return fix
    return None


def _possible_fixes(use: TileUse) -> Iterator[TileFix]:
    for name in HARDWARE_SWIZZLES:
        if name != use.written_swizzle:
            yield TileFix(swizzle=name)
    if use.written_swizzle is not None:
        return
    widest = max(instance.kind.size_bytes for instance in use.instances)
    for row_bytes in _ROW_BYTES:
        for padding_bytes in _PADDINGS_BYTES:
            if padding_bytes % widest == 0 and row_bytes % widest == 0:
                yield TileFix(row_bytes=row_bytes, padding_bytes=padding_bytes)


def _is_conflict_free(instance: Instance, fix: TileFix, written_swizzle: str | None) -> bool:
    op = instance.kind.shared_op
    assert op is not None
    addresses, mask = _lane_offsets(instance)
    fixed_addresses = _move_addresses(addresses, fix, written_swizzle)
    return bool(count_wavefronts(op, fixed_addresses, mask)[0] == count_ideal(op, fixed_addresses, mask)[0])


def _lane_offsets(instance: Instance) -> tuple[Addresses, npt.NDArray[np.bool_]]:
    """Offsets in the shared memory of the block, (1, lanes), and the mask of active lanes."""
    mask = np.array([[address is not None for address in instance.lane_address]])
    addresses = np.array([[address or 0 for address in instance.lane_address]], np.int64)
    return addresses & SHARED_OFFSET_MASK, mask


def _move_addresses(addresses: Addresses, fix: TileFix, written_swizzle: str | None) -> Addresses:
    """The addresses of the same bytes after a fix.

    >>> _move_addresses(np.array([128, 256]), TileFix(row_bytes=128, padding_bytes=4), None)
    array([132, 264])
    """
    if fix.swizzle is not None:
        plain = addresses if written_swizzle is None else Swizzle.named(written_swizzle).apply(addresses)
        return np.asarray(SWIZZLE[fix.swizzle].apply(plain), np.int64)
    assert fix.row_bytes is not None
    assert fix.padding_bytes is not None
    return addresses + addresses // fix.row_bytes * fix.padding_bytes


def overlaps(instance: Instance, other: Instance) -> bool:
    """Whether the address ranges of two accesses overlap."""
    return overlaps_range(instance, *_address_range(other))


def _address_range(instance: Instance) -> tuple[int, int]:
    offsets = [address & SHARED_OFFSET_MASK for address in instance.lane_address if address is not None]
    return min(offsets), max(offsets) + max(instance.kind.size_bytes, BANK_BYTES)


def overlaps_range(instance: Instance, start: int, end: int) -> bool:
    """Whether the address range of an access overlaps a range of shared memory."""
    low, high = _address_range(instance)
    return low < end and start < high
