"""A tensor map from any form of input: 128 bytes, hexadecimal digits, words, JSON, or a pasted dump of arguments.

bytes that are not text            a descriptor
{"data_type": …}                  arguments as JSON
globalDim (64,8,1) boxDim …       a dump of arguments, or several of them
cuTensorMapEncodeTiled(&map, …    a call of the driver, with the arrays it is given
0x7f5a20000000 0x20000…           the words of a descriptor
a log of any length               the dumps in it, line by line
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import IO, NamedTuple

from tilescope.errors import RuleError
from tilescope.rule import rule
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.map_arguments import MapArguments, MapReport
from tilescope.tensor_map.map_decoding import decode_tensor_map, inspect_tensor_map
from tilescope.tensor_map.map_descriptor import DESCRIPTOR_BYTES
from tilescope.tensor_map.text.argument_dump import ARGUMENT_DUMP, is_dump, maps_in
from tilescope.tensor_map.text.distinct_maps import DistinctMaps
from tilescope.tensor_map.text.encode_call import encode_calls
from tilescope.tensor_map.text.json_maps import is_about_a_map, maps_in_json
from tilescope.tensor_map.text.pasted import descriptor_bytes

_JSON = re.compile(r"""\s*\{(?:[^{]*"|\s*'?[A-Za-z_]\w*'?\s*:)""")  # words of C are in braces too
_ESCAPE = re.compile(rb"\x1b\[[0-9;]{0,20}[A-Za-z]")  # colours of a terminal
MAX_MAPS = 1 << 15  # different maps that are read from one log
WHOLE_BYTES = 1 << 20  # what is read at once; more is a log
_LINE_BYTES = 1 << 16
_TEXT = re.compile(r"[\x09-\x0d\x20-\x7e\x80-\U0010ffff]*")
_UNDECODED = "\ufffd"  # the replacement for bytes that are not UTF-8

_READ = "ts.tensor_map.text.pasted_source.MapSource.read({})"
_LINE = '{"data_type": "u8", "dims": [%d], "strides_bytes": [], "box": [64]}\n'
INPUT_BINARY = rule(
    "input-binary",
    "Binary input is a descriptor of 128 bytes.",
    argument="source",
    found="{bytes} bytes that are not text",
    limit="a descriptor is 128 bytes",
    fix="Pass the 128 bytes of the map alone.",
    source="cuda.h, CU_TENSOR_MAP_NUM_QWORDS",
    passing=_READ.format("bytes(128)"),
    failing=_READ.format("bytes(127)"),
)
ONE_MAP = rule(
    "one-map",
    "encode and load take the arguments of one map at a time; check, decode and diff take several.",
    argument="source",
    found="the arguments of {maps} maps",
    limit="one map at a time",
    fix="Name the line of one, such as FILE:{line}, or leave the others out.",
    source="the command line",
    passing=_READ.format((_LINE % 64).encode()) + ".tensor_map()",
    failing=_READ.format((_LINE % 64 + _LINE % 128).encode()) + ".tensor_map()",
)


class MapSource(NamedTuple):
    """The input: a descriptor, or the arguments of one or several maps."""

    blob: bytes | None
    asked: tuple[MapArguments, ...] = ()  # each once, in the order of the text
    lines_without_map: tuple[int, ...] = ()  # of a log: calls of the driver with some arguments missing
    is_cut: bool = False  # whether the log holds more maps than are read

    @classmethod
    def from_json(cls, content: str | bytes) -> MapSource:
        """The arguments that JSON gives; JSON lines give several."""
        json_maps = maps_in_json(content)
        return cls(None, json_maps.maps, json_maps.lines_without_map)

    @classmethod
    def read(cls, content: bytes) -> MapSource:
        """The map that bytes or text show; RuleError where they show none.

        >>> MapSource.read(b'{"data_type": "u8", "dims": [64], "strides_bytes": [], "box": [64]}').tensor_map().box
        (64,)
        """
        if len(content) != DESCRIPTOR_BYTES:
            content = _ESCAPE.sub(b"", content)
        text = content.decode("utf-8", errors="replace")
        if _TEXT.fullmatch(text) is not None and _UNDECODED not in text:
            return cls._read_text(text)
        if len(content) == DESCRIPTOR_BYTES:
            return cls(content)
        raise INPUT_BINARY.error(bytes=len(content))

    @classmethod
    def _read_text(cls, text: str) -> MapSource:
        lines = text.split("\n")
        if _JSON.match(text):
            return cls._read_json(text, lines)
        calls = encode_calls(text)
        if calls:
            return cls(None, calls)
        logged = cls._of_lines(lines)
        if logged.asked:
            return logged
        if is_dump(text):
            raise ARGUMENT_DUMP.error()
        try:
            return cls(descriptor_bytes(text))
        except RuleError:
            if text.lstrip().startswith("[") and "x" not in text:  # a list of too few words, or JSON
                return cls.from_json(text)
            raise

    @classmethod
    def _read_json(cls, text: str, lines: list[str]) -> MapSource:
        """The maps of JSON, or of a log that begins with a line of it."""
        try:
            return cls.from_json(text)
        except RuleError:
            logged = cls._of_lines(lines)
            if logged.asked:
                return logged
            raise

    @classmethod
    def read_log(cls, head: bytes, rest: IO[bytes]) -> MapSource:
        """The maps that a long log dumps or has as JSON lines; `head` is what was read of it already.

        One line at a time is in memory, and a line is cut if it is longer than a dump could be.
        """
        logged = cls._of_lines(_lines(head, rest))
        if not logged.asked:
            raise ARGUMENT_DUMP.error()
        return logged

    @classmethod
    def _of_lines(cls, lines: Iterable[str]) -> MapSource:
        """The maps of a log: those that lines of JSON hold, and those that other lines dump."""
        mentioned = DistinctMaps(MAX_MAPS)
        lines_without_map: list[int] = []

        def without_json() -> Iterator[tuple[int, str]]:
            for number, line in enumerate(lines, 1):
                record = _json_record(line)
                if record is None:
                    yield number, line
                elif is_about_a_map(record):
                    mentioned.add(replace(MapArguments.of(record), lines=(number,)))
                elif record.get("tensor_map", "") is None:
                    lines_without_map.append(number)

        for arguments in maps_in(without_json()):
            mentioned.add(arguments)
        return cls(None, mentioned.maps(), tuple(lines_without_map), mentioned.is_cut)

    @property
    def is_log(self) -> bool:
        """Whether it mentions several maps, or one several times."""
        return sum(max(1, len(arguments.lines)) for arguments in self.asked) > 1

    def reports(self) -> tuple[MapReport, ...]:
        """The violations of each map."""
        if self.blob is None:
            return tuple(arguments.report() for arguments in self.asked)
        inspected = inspect_tensor_map(self.blob)
        return (MapReport(inspected.sound, inspected.violations, inspected.tensor_map),)

    def tensor_map(self) -> AnyMap:
        """The one map, or its violations raised."""
        if len(self.asked) > 1:
            lines = self.asked[0].lines
            raise ONE_MAP.error(maps=len(self.asked), line=lines[0] if lines else 1)
        return self.asked[0].tensor_map() if self.blob is None else decode_tensor_map(self.blob)


def _json_record(line: str) -> dict[str, object] | None:
    """The JSON object on a line of a log, or the map in it; None for any other line."""
    if not _JSON.match(line):
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    tensor_map = record.get("tensor_map")
    return tensor_map if isinstance(tensor_map, dict) else record


def _lines(head: bytes, rest: IO[bytes]) -> Iterator[str]:
    """The lines of a stream, of which the first bytes were read."""
    pending = head
    more = head
    while more:
        *complete_lines, pending = pending.split(b"\n")
        for line in complete_lines:
            yield _ESCAPE.sub(b"", line[:_LINE_BYTES]).decode("utf-8", errors="replace")
        more = rest.read(WHOLE_BYTES)
        pending = pending[:_LINE_BYTES] + more
    yield pending[:_LINE_BYTES].decode("utf-8", errors="replace")
