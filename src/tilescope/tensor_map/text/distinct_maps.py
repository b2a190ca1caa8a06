"""The maps that a text mentions, each once, with all the lines that mention it.

line 3    dims 64      ─┐
line 7    dims 128      ├──▶  dims 64: lines 3 and 9; dims 128: line 7
line 9    dims 64      ─┘
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tilescope.tensor_map.map_arguments import MapArguments


class DistinctMaps:
    """Maps that a text mentions, each once, with all the lines that mention it.

    Two entries are the same map if their arguments and the driver's results are equal.

    >>> mentioned = DistinctMaps()
    >>> for line, extent in ((3, 64), (7, 128), (9, 64)):
    ...     mentioned.add(replace(MapArguments.of({"dims": (extent,)}), lines=(line,)))
    >>> [(asked.given["dims"], asked.lines) for asked in mentioned.maps()]
    [((64,), (3, 9)), ((128,), (7,))]
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._first: dict[tuple[object, ...], MapArguments] = {}
        self._lines: dict[tuple[object, ...], list[int]] = {}
        self.is_cut = False  # whether there were more maps than are taken

    def add(self, asked: MapArguments) -> None:
        """Take in a mention."""
        answer = asked.answer
        same = (asked.map_class, repr(asked.given), answer.result, answer.is_misaligned)
        if same in self._first:
            self._lines[same].extend(asked.lines)
        elif self._most is None or len(self._first) < self._most:
            self._first[same] = asked
            self._lines[same] = list(asked.lines)
        else:
            self.is_cut = True

    def maps(self) -> tuple[MapArguments, ...]:
        """The maps in the order of the text."""
        maps = [replace(arguments, lines=tuple(self._lines[same])) for same, arguments in self._first.items()]
        return tuple(sorted(maps, key=_first_line))


def _first_line(asked: MapArguments) -> int:
    return asked.lines[0] if asked.lines else 0


def drop_duplicates(maps: Iterable[MapArguments]) -> tuple[MapArguments, ...]:
    """The maps that differ, each with all its lines."""
    mentioned = DistinctMaps()
    for arguments in maps:
        mentioned.add(arguments)
    return mentioned.maps()
