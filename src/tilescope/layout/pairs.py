"""The strides of one index: (extent, stride) pairs, fastest first, and sums of them.

((64, 16), (2, 65536))        64 elements of 16 bits, then the next 64 at bit 65536: what CuTe writes (64,2):(16,65536)
"""

from __future__ import annotations

from functools import lru_cache
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


def summed(pairs: tuple[Pairs, ...], coord: tuple[Any, ...], start: int = 0, unit: int = 1) -> Any:
    """The start plus the offset of a coordinate divided by `unit`; what is whole units is summed as such, which is quicker.

    >>> summed((((8, 1024),), ((64, 16),)), (1, 8), 0x400, 8)  # in bits, as a byte address
    1168
    """
    in_units = pairs if unit == 1 else _in_units(pairs, unit)
    total: Any = 0 if in_units is None else start
    for index, digits in zip(in_units or pairs, coord, strict=True):
        offset: Any = 0
        for extent, stride in index[:-1]:
            outer = digits // extent
            offset = offset + (digits - outer * extent) * stride  # % takes numpy far longer
            digits = outer  # noqa: PLW2901  what is left of the index
        total = total + (offset + digits * index[-1][1])
    return start + total // unit if in_units is None else total


@lru_cache(maxsize=4096)
def _in_units(pairs: tuple[Pairs, ...], unit: int) -> tuple[Pairs, ...] | None:
    """The pairs with strides in units; None where one is no whole number of them."""
    if any(stride % unit for index in pairs for _, stride in index):
        return None
    return tuple(tuple((extent, stride // unit) for extent, stride in index) for index in pairs)


def steps_of(pairs: tuple[Pairs, ...]) -> list[tuple[int, int, int, int]]:
    """(stride, extent, index, weight in it) of every step, the smallest first.

    >>> steps_of((((8, 64), (2, 1)), ((4, 16),)))
    [(1, 2, 0, 8), (16, 4, 1, 1), (64, 8, 0, 1)]
    """
    steps = []
    for place, index in enumerate(pairs):
        weight = 1
        for extent, stride in index:
            steps += [(stride, extent, place, weight)] if extent > 1 else []
            weight *= extent
    return sorted(steps)
