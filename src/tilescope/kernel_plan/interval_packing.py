"""Places items of known sizes in one memory, if only some pairs of them may overlap.

An item is put at the lowest address where it hits nothing that it conflicts with. In the order of the best layout's
addresses this finds a layout as low as the best one, so the search goes through orders. It starts with two that are good
guesses, leaves an order as soon as it is as high as the best layout, and ends at a height that no layout can beat:

    conflicts  a-b, b-c     sizes a 4, b 2, c 3      a at 0, b at 4, c at 0: height 6
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tilescope.arithmetic import rounded_up

QUICK_TRIALS = 500  # placements of the search; beyond them the best layout so far is taken
THOROUGH_TRIALS = 8_000  # where a kernel would be refused otherwise
ALL_TRIALS = 8_000  # for all choices of stages of a kernel together; beyond them the first two orders are taken


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
    """The place of an item."""

    offset: int
    half: int


class Packing(NamedTuple):
    """A layout: the spot of each item, its height, whether no layout is lower, and how many places were tried."""

    spots: dict[str, Spot]
    height: int
    is_lowest: bool
    tried: int = 0


def pack(
    items: Sequence[Item],
    conflicts: frozenset[tuple[str, str]],
    lower_bound: int,
    trials: int = QUICK_TRIALS,
    *,
    enough: int = 0,
) -> Packing:
    """The lowest layout that the search finds, or the first of at most `enough`; `conflicts` are pairs in both orders.

    >>> pairs = frozenset([("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")])
    >>> found = pack([Item("a", 4), Item("b", 2), Item("c", 3)], pairs, lower_bound=6)
    >>> found.height, found.is_lowest, found.spots["c"]
    (6, True, Spot(offset=0, half=3))
    """
    return _Search(items, conflicts, lower_bound, trials, enough).run()


class _Taken(NamedTuple):
    """Addresses that an item takes; sorted by them."""

    start: int
    end: int
    number: int
    half: int


class _Search:
    """Depth-first through the orders of items, with the height so far as the bound."""

    def __init__(
        self,
        items: Sequence[Item],
        conflicts: frozenset[tuple[str, str]],
        lower_bound: int,
        trials: int,
        enough: int,
    ) -> None:
        self.items = sorted(items, key=lambda item: (-item.alignment, -item.size, item.name))
        numbers = {item.name: number for number, item in enumerate(self.items)}
        foes: list[set[int]] = [set() for _ in self.items]
        for first, second in conflicts:
            foes[numbers[first]].add(numbers[second])
        self.foes = [frozenset(each) for each in foes]
        # items of one kind are interchangeable: they have the same size, and the same conflicts
        self.kinds = [
            (item.size, item.alignment, item.halves, self.foes[number] | {number})
            for number, item in enumerate(self.items)
        ]
        self.lower_bound = lower_bound
        self.good = max(lower_bound, enough)
        self.trials = trials
        self.tried = 0
        self.best: dict[int, Spot] | None = None
        self.height = 0

    def run(self) -> Packing:
        """The lowest layout found."""
        by_size = tuple(range(len(self.items)))
        self._place_in_order(by_size)
        if not self._is_done():
            crowded = [sum(self.items[foe].size for foe in self.foes[number]) for number in by_size]
            self._place_in_order(tuple(sorted(by_size, key=lambda number: -crowded[number])))
        is_whole = False
        if not self._is_done():
            is_whole = self._search({}, [], by_size, 0)
        assert self.best is not None
        named = {self.items[number].name: spot for number, spot in self.best.items()}
        return Packing(named, self.height, is_whole or self.height <= self.lower_bound, self.tried)

    def _is_done(self) -> bool:
        return self.best is not None and (self.height <= self.good or self.tried > self.trials)

    def _place_in_order(self, order: Sequence[int]) -> None:
        """The layout of one order, each item in the half in which it ends lower."""
        spots: dict[int, Spot] = {}
        taken: list[_Taken] = []
        height = 0
        for number in order:
            self.tried += 1
            halves = self.items[number].halves
            spot = min((Spot(self._lowest_offset(number, half, taken), half) for half in halves), key=_offset_of)
            end = spot.offset + self.items[number].size
            spots[number] = spot
            insort(taken, _Taken(spot.offset, end, number, spot.half))
            height = max(height, end)
        if self.best is None or height < self.height:
            self.best = spots
            self.height = height

    def _search(self, spots: dict[int, Spot], taken: list[_Taken], left: tuple[int, ...], height: int) -> bool:
        """Go through the orders of the items that are left; whether all of them were."""
        if not left:
            self.best = dict(spots)
            self.height = height
            return True
        alike = set()
        for position, number in enumerate(left):
            if self.kinds[number] in alike:
                continue
            alike.add(self.kinds[number])
            item = self.items[number]
            for half in item.halves:
                self.tried += 1
                offset = self._lowest_offset(number, half, taken)
                end = offset + item.size
                if max(height, end) >= self.height:
                    continue
                spots[number] = Spot(offset, half)
                row = _Taken(offset, end, number, half)
                insort(taken, row)
                is_whole = self._search(spots, taken, left[:position] + left[position + 1 :], max(height, end))
                taken.remove(row)
                del spots[number]
                if not is_whole or self._is_done():
                    return False
        return True

    def _lowest_offset(self, number: int, half: int, taken: Sequence[_Taken]) -> int:
        """The lowest aligned address at which an item hits none of those that it conflicts with."""
        item = self.items[number]
        foes = self.foes[number]
        offset = 0
        for start, end, other, other_half in taken:
            if other in foes and other_half & half:
                if offset + item.size <= start:
                    break
                offset = max(offset, rounded_up(end, item.alignment))
        return offset


def _offset_of(spot: Spot) -> int:
    return spot.offset
