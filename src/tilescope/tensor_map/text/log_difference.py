"""Two logs of maps compared: which maps both hold, which changed and how, which only one of them holds.

    one                             other
    line 1   box 64 x 64            line 1   box 64 x 64      both, at whatever address
    line 2   box 64 x 128    ───▶   line 3   box 64 x 256     changed: box[1] 128, 256
                                    line 4   box 32 x 64      only in the other

A map of one log that the other does not hold goes with the next such map of the other, kind by kind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import ClassVar, NamedTuple

from tilescope.sentence import counted
from tilescope.tensor_map.difference import MapDifference, differing, entries_of
from tilescope.tensor_map.text.map_log import LoggedMap, MapLog, lines_in_words
from tilescope.value import Value


@dataclass(frozen=True, slots=True)
class ChangedMap(Value):
    """Maps of one log that the other has with other arguments, all with the same change."""

    map: str  # as in the one log, in short
    one_lines: tuple[int, ...]
    other_lines: tuple[int, ...]  # as many, in the same order
    arguments: tuple[MapDifference, ...]


@dataclass(frozen=True, slots=True)
class MapLogDiff(Value):
    r"""What differs between the maps of two logs, addresses aside.

    >>> from tilescope.tensor_map.text.pasted_source import MapSource
    >>> line = '{"data_type": "u8", "dims": [64], "strides_bytes": [], "box": [%d]}'
    >>> texts = [f"{line % 16}\n{line % box}" for box in (32, 64)]
    >>> MapLogDiff.of(*(MapLog.of(MapSource.read(text.encode())) for text in texts)).summary
    '1 map in both logs, 1 changed: line 2.'
    """

    _derived: ClassVar[tuple[str, ...]] = ("same", "summary")

    in_both: int  # maps that both logs hold
    changed: tuple[ChangedMap, ...]
    only_one: tuple[LoggedMap, ...]  # their `lines` are those that the other log has nothing for
    only_other: tuple[LoggedMap, ...]

    @property
    def same(self) -> bool:
        """Whether both logs hold the same maps."""
        return not (self.changed or self.only_one or self.only_other)

    @property
    def summary(self) -> str:
        """How many maps both logs hold, and on which lines the others are."""
        parts = [f"{counted(self.in_both, 'map')} in both logs"]
        changed = tuple(sorted(line for change in self.changed for line in change.one_lines))
        if changed:
            parts.append(f"{len(changed)} changed: {lines_in_words(changed)}")
        for maps, where in ((self.only_one, "the first"), (self.only_other, "the second")):
            lines = tuple(sorted(line for logged in maps for line in logged.lines))
            if lines:
                parts.append(f"{len(lines)} only in {where}: {lines_in_words(lines)}")
        return f"{', '.join(parts)}."

    @classmethod
    def of(cls, one: MapLog, other: MapLog) -> MapLogDiff:
        """Compare the maps of two logs in any order."""
        ones, others = _by_arguments(one), _by_arguments(other)
        in_both = 0
        rest_of_one: list[_Mention] = []
        rest_of_other: list[_Mention] = []
        for same in ones | others:
            of_one, of_other = ones.get(same, []), others.get(same, [])
            common = min(len(of_one), len(of_other))
            in_both += common
            rest_of_one += of_one[common:]
            rest_of_other += of_other[common:]
        pairs = list(_pairs(rest_of_one, rest_of_other))
        changed = [(a, b) for a, b in pairs if a is not None and b is not None]
        return cls(
            in_both=in_both,
            changed=tuple(_changed_maps(changed)),
            only_one=_group_mentions(a for a, b in pairs if a is not None and b is None),
            only_other=_group_mentions(b for a, b in pairs if a is None and b is not None),
        )


class _Mention(NamedTuple):
    """One line of a log, and the map that it holds."""

    line: int
    held: LoggedMap
    entries: dict[str, str]  # its arguments in words


def _by_arguments(log: MapLog) -> dict[tuple[tuple[str, str], ...], list[_Mention]]:
    """The lines of a log by the map that they hold."""
    mentions: dict[tuple[tuple[str, str], ...], list[_Mention]] = defaultdict(list)
    for logged in log.maps:
        entries = _entries(logged)
        mentions[tuple(entries.items())] += [_Mention(line, logged, entries) for line in logged.lines]
    return mentions


def _entries(held: LoggedMap) -> dict[str, str]:
    """Every argument but the address in words, with defaults where all names are known."""
    arguments = dict(held.arguments)
    if held.verdict == "accepted":
        tensor_map = held.asked.tensor_map()
        arguments = {name: getattr(tensor_map, name) for name in tensor_map.readers}
    elif held.verdict == "refused":
        arguments = held.asked.with_defaults()
    arguments.pop("address", None)
    return entries_of(held.map_kind, arguments)


def _pairs(ones: list[_Mention], others: list[_Mention]) -> Iterator[tuple[_Mention | None, _Mention | None]]:
    """Maps of the same kind next to each other, in the order of their logs; None if a log has no more."""
    for kind in sorted({mention.held.map_kind for mention in (*ones, *others)}):
        of_one = sorted((mention for mention in ones if mention.held.map_kind == kind), key=_line)
        of_other = sorted((mention for mention in others if mention.held.map_kind == kind), key=_line)
        yield from zip_longest(of_one, of_other)


def _line(mention: _Mention) -> int:
    return mention.line


def _changed_maps(pairs: Iterable[tuple[_Mention, _Mention]]) -> Iterator[ChangedMap]:
    """Pairs of maps, grouped by their change."""
    groups: dict[tuple[str, tuple[MapDifference, ...]], list[tuple[int, int]]] = defaultdict(list)
    for first, second in pairs:
        differences = differing(first.entries, second.entries)
        groups[first.held.map, differences].append((first.line, second.line))
    for (words, differences), lines in groups.items():
        one_lines, other_lines = zip(*lines, strict=True)
        yield ChangedMap(words, one_lines, other_lines, differences)


def _group_mentions(mentions: Iterable[_Mention]) -> tuple[LoggedMap, ...]:
    """Maps with those of their lines that are mentioned."""
    lines: dict[int, list[int]] = defaultdict(list)
    maps: dict[int, LoggedMap] = {}
    for mention in mentions:
        maps[mention.held.line] = mention.held
        lines[mention.held.line].append(mention.line)
    return tuple(
        LoggedMap(
            logged.verdict, tuple(lines[first]), logged.map_kind, logged.arguments, logged.addresses, logged.violations
        )
        for first, logged in maps.items()
    )
