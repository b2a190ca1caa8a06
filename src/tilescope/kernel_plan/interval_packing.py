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

QUICK_TRIALS = 500  # placements of the search; beyond them the best layout so far is taken
THOROUGH_TRIALS = 8_000  # where a kernel would be refused otherwise


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


def pack(
    items: Sequence[Item], conflicts: frozenset[tuple[str, str]], lower_bound: int, trials: int = QUICK_TRIALS
) -> Packing:
    """The lowest layout that the search finds; `conflicts` are pairs of names, in both orders.

    >>> pairs = frozenset([("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")])
    >>> found = pack([Item("a", 4), Item("b", 2), Item("c", 3)], pairs, lower_bound=6)
    >>> found.height, found.is_lowest, found.spots["c"]
    (6, True, Spot(offset=0, half=3))
    """
    return _Search(items, conflicts, lower_bound, trials).run()


class _Search:
    """Depth-first through the orders of items, with the height so far as the bound."""

    def __init__(
        self, items: Sequence[Item], conflicts: frozenset[tuple[str, str]], lower_bound: int, trials: int
    ) -> None:
        self.items = sorted(items, key=lambda item: (-item.alignment, -item.size, item.name))
        names = [item.name for item in self.items]
        self.foes = [
            frozenset(number for number, name in enumerate(names) if (item.name, name) in conflicts)
            for item in self.items
        ]
        # items of one kind may change places: they are alike, and conflict with each other and with the same others
        self.kinds = [
            (item.size, item.alignment, item.halves, self.foes[number] | {number})
            for number, item in enumerate(self.items)
        ]
        self.lower_bound = lower_bound
        self.best: Packing | None = None
        self.trials = trials
        self.tried = 0

    def run(self) -> Packing:
        """The lowest layout found."""
        self._place({}, tuple(range(len(self.items))), 0)
        assert self.best is not None
        is_lowest = self.best.height <= self.lower_bound or self.tried <= self.trials
        return self.best._replace(is_lowest=is_lowest)

    def _place(self, spots: dict[int, Spot], left: tuple[int, ...], height: int) -> None:
        if not left:
            named = {self.items[number].name: spot for number, spot in spots.items()}
            self.best = Packing(named, height, is_lowest=False)
            return
        alike = set()
        for position, number in enumerate(left):
            if self.kinds[number] in alike:
                continue
            alike.add(self.kinds[number])
            item = self.items[number]
            for half in item.halves:
                self.tried += 1
                offset = self._lowest_offset(number, half, spots)
                top = max(height, offset + item.size)
                if self.best is not None and top >= self.best.height:
                    continue
                spots[number] = Spot(offset, half)
                self._place(spots, left[:position] + left[position + 1 :], top)
                del spots[number]
                if self.best is not None and (self.best.height <= self.lower_bound or self.tried > self.trials):
                    return

    def _lowest_offset(self, number: int, half: int, spots: dict[int, Spot]) -> int:
        """The lowest aligned address at which an item hits none of those that it conflicts with."""
        item = self.items[number]
        foes = self.foes[number]
        taken = [
            (spot.offset, spot.offset + self.items[other].size)
            for other, spot in spots.items()
            if other in foes and spot.half & half
        ]
        taken.sort()
        offset = 0
        for start, end in taken:
            if offset + item.size <= start:
                break
            offset = max(offset, rounded_up(end, item.alignment))
        return offset
