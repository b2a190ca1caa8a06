"""Under which swizzles the lanes of an access go straight: the swizzle of a tile that only addresses show.

Threads write and read tiles by rows and columns. So in the tile, before its swizzle, every bit of a lane's number moves the lane
by one fixed distance: a number of chunks, or of rows. Under another swizzle than that of the tile it does not:

    lane          0    1    2  …    8    9   10  …          8 lanes a row, 4 rows of 128 bytes
    address       0   16   32     144  128  176              bit 0 of the lane: +16 in row 0, -16 in row 1
    under 128B    0   16   32     128  144  160              bit 0: +16, bit 1: +32, bit 2: +64, bit 3: +128, bit 4: +256

A swizzle moves chunks by their line alone. Lanes that go down one column, a row each, are moved by fixed distances under every
swizzle, but by crooked ones: 128 + 16, 256 - 32. Straight is a power of two, and without a swizzle any pitch of rows.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.swizzle import SWIZZLE, Swizzle

Offsets = npt.NDArray[np.int64]

MODES: tuple[Swizzle, ...] = tuple(SWIZZLE[name] for name in ("none", "32B", "64B", "128B"))
PLAIN = 1  # the bit of mode none in a set of modes
BIT_OF_MODE = {mode.name: 1 << number for number, mode in enumerate(MODES)}
PATTERN_BYTES = max(mode.repeat_bytes for mode in MODES)  # addresses this far apart have the same swizzle
_LEAST_LANES = 8  # the rows of a matrix of ldmatrix
_PATTERNS_KEPT = 4096


class LanePattern(NamedTuple):
    """Sets of modes, as bits: under which lanes go straight, and under which bits of their numbers are fixed distances."""

    straight: int = 0
    additive: int = 0
    lanes: int = 0  # that were looked at together

    @property
    def is_clear(self) -> bool:
        """Whether lanes are straight under exactly one mode, or under none of the modes."""
        return self.straight & (self.straight - 1) == 0


NO_PATTERN = LanePattern()


def modes_in(bits: int) -> tuple[str, ...]:
    """The names of the modes of a set.

    >>> modes_in(0b1001)
    ('none', '128B')
    """
    return tuple(mode.name for mode in MODES if bits & BIT_OF_MODE[mode.name])


def lane_pattern(offsets: Offsets) -> LanePattern:
    """The modes that all groups of lanes agree with: (groups, lanes) offsets in shared memory; lanes are a power of two.

    >>> lane = np.arange(32)
    >>> plain = lane // 8 * 128 + lane % 8 * 16
    >>> modes_in(lane_pattern(plain[None]).straight)
    ('none',)
    >>> modes_in(lane_pattern(SWIZZLE["128B"].apply(plain)[None]).straight)  # 4 rows: bit 9, the third of 128B, is the same
    ('64B', '128B')
    """
    lanes = offsets.shape[1]
    logical: Offsets = np.stack([mode.apply(offsets) for mode in MODES])
    first = logical[:, :, :1]
    distances = (
        logical[:, :, 1 << np.arange(lanes.bit_length() - 1)] - first
    )  # how far each bit of a lane's number moves it
    is_moved = np.asarray(first + distances @ _bits_of_lanes(lanes) == logical)  # as its bits say
    are_additive = np.asarray(is_moved.all(axis=(1, 2)))
    are_powers = _is_power_of_two(distances)
    are_straight = np.asarray(are_powers.all(axis=(1, 2)))
    straight = additive = 0
    for number, mode in enumerate(MODES):
        if not are_additive[number]:
            continue
        additive |= BIT_OF_MODE[mode.name]
        if are_straight[number] or (mode.bits == 0 and _are_pitches(distances[number], are_powers[number])):
            straight |= BIT_OF_MODE[mode.name]
    return LanePattern(straight, additive, lanes)


@cache
def _bits_of_lanes(lanes: int) -> Offsets:
    """(bits, lanes): the bits of the lanes' numbers."""
    bits = np.arange(lanes.bit_length() - 1)
    return np.asarray(np.arange(lanes) >> bits[:, None] & 1)


@lru_cache(_PATTERNS_KEPT)
def pattern_of_groups(offsets: bytes, groups: tuple[int, ...]) -> LanePattern:
    """The pattern of the first group size under which lanes go straight; `offsets` are bytes of int64, which may be negative.

    Launches repeat their patterns.
    """
    numbers = np.frombuffer(offsets, np.int64)
    numbers = numbers - (int(numbers.min()) & -PATTERN_BYTES)
    for group in groups:
        pattern = lane_pattern(numbers.reshape(-1, group))
        if pattern.straight:
            return pattern
    return pattern


def lane_groups(lanes: npt.NDArray[np.intp], block_lanes: int) -> tuple[int, ...]:
    """How many lanes to look at together, the most first: all of a block, then a warp; empty if lanes are missing.

    >>> lane_groups(np.arange(128), 128), lane_groups(np.arange(32, 64), 128), lane_groups(np.arange(5), 128)
    ((128, 32), (32,), ())
    >>> lane_groups(np.array([0, 1, 2, 3, 4, 5, 6, 7, 32, 33, 34, 35, 36, 37, 38, 39]), 64)  # ldmatrix.x1
    (8,)
    """
    count = len(lanes)
    first = int(lanes[0])
    if count % _LEAST_LANES or first % WARP_LANES:
        return ()
    if int(lanes[-1]) - first == count - 1:
        if count < WARP_LANES:
            return (count,) if _is_whole(count) else ()
        if count % WARP_LANES:
            return ()
        together = block_lanes if count % block_lanes == 0 and first % block_lanes == 0 else count
        if together > WARP_LANES and _is_whole(together) and first % together == 0:
            return together, WARP_LANES
        return (WARP_LANES,)
    for group in (WARP_LANES, WARP_LANES // 2, _LEAST_LANES):  # of warps that are not neighbours, or their first lanes
        if count % group == 0:
            by_warp = lanes.reshape(-1, group)
            if (by_warp - by_warp[:, :1] == np.arange(group)).all() and not (by_warp[:, 0] % WARP_LANES).any():
                return (group,)
    return ()


def _is_whole(number: int) -> bool:
    return number & (number - 1) == 0


def _is_power_of_two(distances: Offsets) -> npt.NDArray[np.bool_]:
    """Whether a distance has one bit within the pattern, in either direction; whole patterns do not count."""
    up = distances % PATTERN_BYTES
    down = -distances % PATTERN_BYTES
    is_power: npt.NDArray[np.bool_] = (up & (up - 1) == 0) | (down & (down - 1) == 0)
    return is_power


def _are_pitches(distances: Offsets, is_straight: npt.NDArray[np.bool_]) -> bool:
    """Whether the crooked distances are those of rows with one pitch: P, 2 P, 4 P."""
    for row, straight in zip(distances, is_straight, strict=True):
        pitches = row[~straight]
        if (pitches[1:] != 2 * pitches[:-1]).any():
            return False
    return True
