"""The maps of a log, each with its verdict: which are refused, on which lines, and how often each map is there.

    line 3    tiled 4096 x 4096 bfloat16, box 64 x 128, swizzle 128B    accepted ─┐  one LoggedMap:
    line 9    the same at another address                               accepted ─┘  x 2, lines 3 and 9
    line 38   tiled 4096 x 4096 bfloat16, box 128 x 128, swizzle 128B   refused      swizzle-span

Maps are equal if all arguments but the global address are, and if they break the same rules. The violations of accepted
maps are those of the first: a remark may name its address.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from tilescope.errors import PlainData, Violation
from tilescope.sentence import by, counted, format_value, is_printable, listed
from tilescope.tensor_map.map_arguments import MAP_KINDS, MapArguments, MapReport
from tilescope.tensor_map.text.pasted_source import MapSource
from tilescope.value import Row, Value, hex_field

MapVerdict: TypeAlias = Literal["accepted", "refused", "not understood"]
_KIND_IN_SHORT = {"tensor_map": "tiled", "im2col_map": "im2col", "im2col_wide_map": "im2col-wide"}
_LINES_LISTED = 10


@dataclass(frozen=True, slots=True)
class LoggedMap(Value):
    """A map of a log: the lines that contain it, its arguments, and its violations.

    >>> log = MapLog.of(MapSource.read(b'{"data_type": "u8", "dims": [64], "strides_bytes": [], "box": [512]}'))
    >>> log.maps[0].line, log.maps[0].verdict, log.maps[0].map
    (1, 'refused', 'tiled 64 u8, box 512')
    """

    _derived: ClassVar[tuple[str, ...]] = ("line", "times", "map")

    verdict: MapVerdict  # "not understood": a name that no table has, or an argument of the wrong type
    lines: tuple[int, ...]  # on which it begins, from 1; several if the log repeats it
    map_kind: str  # "tensor_map", "im2col_map" or "im2col_wide_map"
    arguments: Mapping[str, Any] = field(hash=False)  # by name; the address in hexadecimal, that of the first line
    addresses: tuple[int, ...] = hex_field()  # the different global addresses, in the order of the log
    violations: tuple[Violation, ...] = ()  # broken rules, warnings and notes

    def __post_init__(self) -> None:
        object.__setattr__(self, "arguments", _plain_arguments(self.arguments))

    @property
    def line(self) -> int:
        """The first of its lines."""
        return self.lines[0]

    @property
    def times(self) -> int:
        """How often it occurs in the log."""
        return len(self.lines)

    @property
    def map(self) -> str:
        """The map in a few words, without its address."""
        return map_in_short(_KIND_IN_SHORT[self.map_kind], self.arguments)

    @property
    def asked(self) -> MapArguments:
        """Its arguments as `check` takes them."""
        return MapArguments.of({"kind": self.map_kind, **self.arguments})


@dataclass(frozen=True, slots=True)
class MapLog(Value):
    r"""The maps of a log, equal ones together, in the order of their first lines.

    >>> line = '{"data_type": "u8", "dims": [64], "strides_bytes": [], "box": [%d]}'
    >>> log = MapLog.of(MapSource.read("\n".join(line % box for box in (16, 512, 16)).encode()))
    >>> log.summary
    '3 maps, 2 of them different, 1 refused: line 2.'
    """

    _derived: ClassVar[tuple[str, ...]] = ("total", "refused", "not_understood", "refused_lines")

    maps: tuple[LoggedMap, ...]
    lines_without_map: tuple[int, ...] = ()  # calls of the driver of which the log has no whole arguments
    is_cut: bool = False  # whether the log holds more different maps than are read

    @classmethod
    def of(cls, source: MapSource) -> MapLog:
        """The verdicts on the arguments of a source."""
        groups: dict[_Same, list[_Mention]] = {}
        for arguments, report in zip(source.asked, source.reports(), strict=True):
            same = _Same(
                arguments.map_class.kind, _without_address(arguments, report), _verdict(report), _answer_of(report)
            )
            groups.setdefault(same, []).append(_Mention(arguments, report))
        maps = (_make_entry(mentions, same) for same, mentions in groups.items())
        return cls(tuple(sorted(maps, key=lambda logged: logged.line)), source.lines_without_map, source.is_cut)

    def to_dict(self) -> PlainData:
        """Plain data; the counts come before the maps."""
        data = Value.to_dict(self)
        counts = {name: data[name] for name in self._derived}
        return {"kind": data["kind"]} | counts | data

    def with_verdict(self, verdict: MapVerdict) -> tuple[LoggedMap, ...]:
        """The maps that break this rule."""
        return tuple(logged for logged in self.maps if logged.verdict == verdict)

    @property
    def total(self) -> int:
        """How many maps the log holds, equal ones counted as often as they are there."""
        return sum(logged.times for logged in self.maps)

    @property
    def refused(self) -> int:
        """How many of them are refused."""
        return len(self.refused_lines)

    @property
    def refused_lines(self) -> tuple[int, ...]:
        """The lines of the refused ones."""
        return _lines_of(self.with_verdict("refused"))

    @property
    def not_understood(self) -> int:
        """How many of them are not understood."""
        return len(_lines_of(self.with_verdict("not understood")))

    @property
    def accepted(self) -> bool:
        """Whether every map is accepted."""
        return all(logged.verdict == "accepted" for logged in self.maps)

    @property
    def summary(self) -> str:
        """How many maps there are, and on which lines those are that are not accepted."""
        parts = [counted(self.total, "map")]
        if len(self.maps) < self.total:
            parts.append("all equal" if len(self.maps) == 1 else f"{len(self.maps)} of them different")
        if self.accepted:
            parts.append("accepted" if self.total == 1 else "all accepted")
        for verdict in ("refused", "not understood"):
            lines = _lines_of(self.with_verdict(verdict))
            if lines:
                parts.append(f"{len(lines)} {verdict}: {lines_in_words(lines)}")
        return f"{', '.join(parts)}."


class _Same(NamedTuple):
    """What equal maps of a log share."""

    map_kind: str
    arguments: str  # without the address
    verdict: MapVerdict
    said: tuple[object, ...]


class _Mention(NamedTuple):
    """A map of a log, and its violations."""

    asked: MapArguments
    report: MapReport


def _answer_of(report: MapReport) -> tuple[object, ...]:
    """The violations of a map: for an accepted one their names, since remarks may quote its address."""
    if report.accepted:
        return tuple(remark.rule for remark in report.violations)
    return report.violations


def _without_address(asked: MapArguments, report: MapReport) -> str:
    """Every argument but the address, which makes two maps equal; a sound map has defaults and plain names too."""
    arguments = asked.given
    if report.tensor_map is not None:
        arguments = {name: getattr(report.tensor_map, name) for name in report.tensor_map.readers}
    return repr({name: value for name, value in _plain_arguments(arguments).items() if name != "address"})


def _verdict(report: MapReport) -> MapVerdict:
    if report.accepted:
        return "accepted"
    return "not understood" if report.not_understood else "refused"


def _make_entry(mentions: list[_Mention], same: _Same) -> LoggedMap:
    """Mentions of equal maps as one."""
    first = mentions[0]
    values = [mention.asked.given.get("address") for mention in mentions]
    addresses = [address for address in values if isinstance(address, int)]
    return LoggedMap(
        verdict=same.verdict,
        lines=tuple(sorted(line for mention in mentions for line in mention.asked.lines)),
        map_kind=same.map_kind,
        arguments=first.asked.given,
        addresses=tuple(dict.fromkeys(addresses)),
        violations=first.report.violations,
    )


def _lines_of(maps: Iterable[LoggedMap]) -> tuple[int, ...]:
    return tuple(sorted(line for logged in maps for line in logged.lines))


def lines_in_words(lines: tuple[int, ...], most: int = _LINES_LISTED) -> str:
    """Lines as people list them; of very many, the first ones.

    >>> lines_in_words((38,)), lines_in_words((3, 9, 15)), lines_in_words((3, 9, 15, 21), most=2)
    ('line 38', 'lines 3, 9 and 15', 'lines 3, 9, …')
    """
    if len(lines) == 1:
        return f"line {lines[0]}"
    if len(lines) <= most:
        return f"lines {listed(lines)}"
    return f"lines {', '.join(map(str, lines[:most]))}, …"


def map_in_short(kind: str, arguments: Mapping[str, Any]) -> str:
    """A map in a few words, without its address; arguments that are missing are left out.

    >>> map_in_short("tiled", {"data_type": "bf16", "dims": (4096, 64), "box": (64, 8), "swizzle": "128B"})
    'tiled 4096 x 64 bf16, box 64 x 8, swizzle 128B'
    """
    words = [kind]
    if arguments.get("dims"):
        words.append(_extents(arguments["dims"]))
    if "data_type" in arguments:
        words.append(str(arguments["data_type"]))
    parts = [" ".join(words)]
    if arguments.get("box"):
        parts.append(f"box {_extents(arguments['box'])}")
    if "pixels_per_column" in arguments:
        channels = arguments.get("channels_per_pixel", "?")
        parts.append(f"{arguments['pixels_per_column']} pixels of {channels} channels")
    for name in ("interleave", "swizzle"):
        mode = arguments.get(name, "none")
        if mode != "none":
            parts.append(f"{name} {mode}")
    return ", ".join(parts)


def _extents(extents: object) -> str:
    return by(extents) if isinstance(extents, tuple | list) else str(extents)


def _plain_arguments(given: Mapping[str, object]) -> dict[str, object]:
    """Arguments as plain data: rows as their names, the address in hexadecimal."""
    plain = {str(name): _plain(value) for name, value in given.items() if value is not None}
    address = plain.get("address")
    if type(address) is int:
        plain["address"] = hex(address)
    return plain


def _plain(value: object) -> object:
    """A name, a number or a sequence of them; anything else, which no map has, as errors print it."""
    if isinstance(value, Row):
        return value.name
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    is_plain = (
        isinstance(value, str | bool)
        or (isinstance(value, int) and is_printable(value))
        or (isinstance(value, float) and isfinite(value))
    )
    return value if is_plain else format_value(value)


assert set(_KIND_IN_SHORT) == set(MAP_KINDS)
