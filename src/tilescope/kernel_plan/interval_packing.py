"""Where things of known sizes go in one memory, if only some pairs of them may lie over each other.

An item is put at the lowest address where it hits nothing that it conflicts with. In the order of the best layout's
addresses this finds a layout as low as the best one, so the search goes through orders:

    conflicts  a-b, b-c     sizes a 4, b 2, c 3      a at 0, b at 4, c at 0: height 6
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tilescope.arithmetic import rounded_up

_MAX_TRIED = 4000  # placements of the search; beyond it the best layout so far is taken


@dataclass(frozen=True, slots=True)
class Item:
    """Something to place: its size, its alignment, and the halves of the memory that it can take.

    A whole item takes both halves (3). One that fits into half of the lanes of tensor memory takes either (1 or 2).
    """

    name: str
    size: int
    alignment: int = 1
    halves: tuple[int, ...] = (3,)


class Spot(NamedTuple):
    """Where an item lies."""

    offset: int
    half: int


class Packing(NamedTuple):
    """A layout: the spot of each item, its height, and whether no layout is lower."""

    spots: dict[str, Spot]
    height: int
    is_lowest: bool


def pack(items: Sequence[Item], conflicts: frozenset[tuple[str, str]], lower_bound: int) -> Packing:
    """The lowest layout that the search finds; `conflicts` are pairs of names, in both orders.

    >>> pairs = frozenset([("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")])
    >>> found = pack([Item("a", 4), Item("b", 2), Item("c", 3)], pairs, lower_bound=6)
    >>> found.height, found.is_lowest, found.spots["c"]
    (6, True, Spot(offset=0, half=3))
    """
    return _Search(items, conflicts, lower_bound).run()


class _Search:
    """Depth-first through the orders of items, with the height so far as the bound."""

    def __init__(self, items: Sequence[Item], conflicts: frozenset[tuple[str, str]], lower_bound: int) -> None:
        self.items = sorted(items, key=lambda item: (-item.alignment, -item.size, item.name))
        self.conflicts = conflicts
        self.lower_bound = lower_bound
        self.best: Packing | None = None
        self.tried = 0

    def run(self) -> Packing:
        self._place({}, tuple(range(len(self.items))), 0)
        assert self.best is not None
        is_lowest = self.best.height <= self.lower_bound or self.tried <= _MAX_TRIED
        return self.best._replace(is_lowest=is_lowest)

    def _place(self, spots: dict[str, Spot], left: tuple[int, ...], height: int) -> None:
        if not left:
            if self.best is None or height < self.best.height:
                self.best = Packing(dict(spots), height, is_lowest=False)
            return
        alike: set[tuple[int, int, tuple[int, ...], frozenset[str]]] = set()
        for position, number in enumerate(left):
            item = self.items[number]
            kind = (item.size, item.alignment, item.halves, self._foes(item))
            if kind in alike:
                continue
            alike.add(kind)
            for half in item.halves:
                self.tried += 1
                spot = Spot(self._lowest_offset(item, half, spots), half)
                top = max(height, spot.offset + item.size)
                if self.best is not None and top >= self.best.height:
                    continue
                spots[item.name] = spot
                self._place(spots, (*left[:position], *left[position + 1 :]), top)
                del spots[item.name]
                if self.best is not None and (self.best.height <= self.lower_bound or self.tried > _MAX_TRIED):
                    return

    def _foes(self, item: Item) -> frozenset[str]:
        """The items that it conflicts with; two items that conflict with the same ones and each other are alike."""
        return frozenset(other.name for other in self.items if (item.name, other.name) in self.conflicts) | {item.name}

    def _lowest_offset(self, item: Item, half: int, spots: dict[str, Spot]) -> int:
        taken = sorted(
            (spot.offset, spot.offset + other.size)
            for other in self.items
            if (spot := spots.get(other.name)) is not None
            and (item.name, other.name) in self.conflicts
            and spot.half & half
        )
        offset = 0
        for start, end in taken:
            if offset + item.size <= start:
                break
            offset = max(offset, rounded_up(end, item.alignment))
        return offset
