"""What a slot holds: the bytes that copies and threads put there, and which of them are stale.

    slot of 256 bytes      |---- tile 3, phase 1 ----|---- nothing ----|     a copy of 128 bytes: a reader of the slot
    0                     128                       256                      finds a gap

A copy that begins makes those segments stale that somebody has read, or that an earlier phase of its barrier filled: a
later reader of the slot expects new bytes, and finds stale ones where the copy does not reach.
"""

from __future__ import annotations

from typing import NamedTuple

from tilescope.sync.happens_before import Fill


class Segment(NamedTuple):
    """Bytes of a slot that one copy or write filled."""

    start: int
    end: int
    tile: int | None
    fill: Fill
    was_read: bool = False
    is_stale: bool = False


Contents = tuple[Segment, ...]  # in order of their bytes


def overwrite(contents: Contents, new: Segment) -> Contents:
    """The contents with a new segment, which replaces the bytes in its place.

    >>> whole = Segment(0, 256, 0, (0, 0, -1))
    >>> [(part.start, part.end, part.tile) for part in overwrite((whole,), Segment(64, 128, 1, (0, 1, -1)))]
    [(0, 64, 0), (64, 128, 1), (128, 256, 0)]
    """
    parts = [new]
    for old in contents:
        if old.start < new.start:
            parts.append(old._replace(end=min(old.end, new.start)))
        if old.end > new.end:
            parts.append(old._replace(start=max(old.start, new.end)))
    return tuple(sorted(parts, key=lambda part: part.start))


def mark_stale(contents: Contents, fill: Fill) -> Contents:
    """The contents when a copy of this fill begins: segments that were read, or filled in an earlier phase, are stale."""
    return tuple(
        part._replace(is_stale=True) if part.was_read or _is_earlier(part.fill, fill) else part for part in contents
    )


def _is_earlier(before: Fill, fill: Fill) -> bool:
    """Whether a fill is an earlier phase of the same barrier, or an earlier cp.async group of the same role."""
    if fill[0] >= 0:
        return before[0] == fill[0] and before[1] < fill[1]
    return before[:2] == fill[:2] and 0 <= before[2] < fill[2]


def find_gap(contents: Contents, size: int) -> tuple[int, int] | None:
    """The first bytes of a slot that nothing has filled, or that are stale; None if there are none.

    >>> find_gap((Segment(0, 128, 0, (0, 0, -1)),), 256)
    (128, 256)
    """
    reached = 0
    for part in contents:
        if part.start > reached:
            return reached, part.start
        if part.is_stale:
            return part.start, part.end
        reached = part.end
    return (reached, size) if reached < size else None


def mark_read(contents: Contents) -> Contents:
    """The contents after somebody has read them."""
    return tuple(part if part.was_read else part._replace(was_read=True) for part in contents)
