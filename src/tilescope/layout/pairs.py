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


def summed(pairs: tuple[Pairs, ...], coord: tuple[Any, ...], start: int = 0, unit: int = 1) -> Any:
    """The start plus the offset of a coordinate divided by `unit`; what is whole units is summed as such, which is quicker.

    >>> summed((((8, 1024),), ((64, 16),)), (1, 8), 0x400, 8)  # in bits, as a byte address
    1168
    """
    whole = all(stride % unit == 0 for index in pairs for _, stride in index)
    step = unit if whole else 1
    total: Any = start if whole else 0
    for index, digits in zip(pairs, coord, strict=True):
        offset: Any = 0
        for extent, stride in index[:-1]:
            outer = digits // extent
            offset = offset + (digits - outer * extent) * (stride // step)  # % takes numpy far longer
            digits = outer  # noqa: PLW2901  what is left of the index
        total = total + (offset + digits * (index[-1][1] // step))
    return total if whole else start + total // unit


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
