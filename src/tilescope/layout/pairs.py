"""The strides of one index: (extent, stride) pairs, fastest first, and sums of them.

((64, 16), (2, 65536))        64 elements of 16 bits, then the next 64 at bit 65536: what CuTe writes (64,2):(16,65536)
"""

from __future__ import annotations

from typing import Any

Pairs = tuple[tuple[int, int], ...]


def coalesced(*pairs: tuple[int, int]) -> Pairs:
    """The fewest (extent, stride) pairs that say the same.

    >>> coalesced((8, 2), (1, 7), (4, 16)), coalesced((1, 5))
    (((32, 2),), ((1, 0),))
    """
    kept: list[tuple[int, int]] = []
    for extent, stride in pairs:
        if extent > 1 and kept and stride == kept[-1][0] * kept[-1][1]:
            kept[-1] = kept[-1][0] * extent, kept[-1][1]
        elif extent > 1:
            kept.append((extent, stride))
    return tuple(kept) or ((1, 0),)


def summed(pairs: tuple[Pairs, ...], coord: tuple[Any, ...], start: int, unit_bits: int) -> Any:
    """Start + the offset of a coordinate in units of an address; whole units are summed as such, which is quicker."""
    whole = all(stride % unit_bits == 0 for index in pairs for _, stride in index)
    total: Any = start if whole else 0
    for index, digits in zip(pairs, coord, strict=True):
        offset: Any = 0
        for extent, stride in index[:-1]:
            outer = digits // extent
            offset = offset + (digits - outer * extent) * (stride // unit_bits if whole else stride)
            digits = outer  # noqa: PLW2901  what is left of the index
        total = total + (offset + digits * (index[-1][1] // unit_bits if whole else index[-1][1]))
    return total if whole else start + total // unit_bits


def steps_of(pairs: tuple[Pairs, ...]) -> list[tuple[int, int, int, int]]:
    """(stride, extent, index, weight in it) of every step that moves."""
    found = []
    for place, index in enumerate(pairs):
        weight = 1
        for extent, stride in index:
            found += [(stride, extent, place, weight)] if stride else []
            weight *= extent
    return found
