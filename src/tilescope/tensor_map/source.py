"""A tensor map out of whatever shows it: 128 bytes, hexadecimal digits, words, JSON, or a pasted dump of arguments.

bytes that are no text            a descriptor
{"data_type": …}                  arguments as JSON
globalDim (64,8,1) boxDim …       a dump of arguments, or several of them
cuTensorMapEncodeTiled(&map, …    a call of the driver, with the arrays it is given
0x7f5a20000000 0x20000…           the words of a descriptor
a log of any length               the dumps in it, line by line
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO, NamedTuple

from tilescope.errors import RuleError
from tilescope.rule import rule
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.argument_dump import ARGUMENT_DUMP, MAX_MAPS, dumped_arguments, is_dump, maps_in
from tilescope.tensor_map.arguments import MapArguments, MapReport
from tilescope.tensor_map.decoding import decode_tensor_map, inspect_tensor_map
from tilescope.tensor_map.descriptor import DESCRIPTOR_BYTES
from tilescope.tensor_map.encode_call import encode_calls
from tilescope.tensor_map.pasted import descriptor_bytes

_JSON = re.compile(r"""\s*\{(?:[^{]*"|\s*'?[A-Za-z_]\w*'?\s*:)""")  # what may stand in braces otherwise are words in C
_ESCAPE = re.compile(rb"\x1b\[[0-9;]{0,20}[A-Za-z]")  # colours of a terminal
WHOLE_BYTES = 1 << 20  # what is read at once; more is a log
_LINE_BYTES = 1 << 16
_TEXT = re.compile(r"[\x09-\x0d\x20-\x7e\x80-\U0010ffff]*")
_UNDECODED = "\ufffd"  # what stands for bytes that are no UTF-8

_READ = "ts.tensor_map.source.MapSource.read({})"
_LINE = '{"data_type": "u8", "dims": [%d], "strides_bytes": [], "box": [64]}\n'
INPUT_BINARY = rule(
    "input-binary",
    "Bytes that are no text are a descriptor, and a descriptor is 128 bytes.",
    argument="source",
    found="{bytes} bytes that are no text",
    limit="a descriptor is 128 bytes",
    fix="Pass the 128 bytes of the map alone.",
    source="cuda.h, CU_TENSOR_MAP_NUM_QWORDS",
    passing=_READ.format("bytes(128)"),
    failing=_READ.format("bytes(127)"),
)
ONE_MAP = rule(
    "one-map",
    "encode, load and diff take the arguments of one map at a time; check takes several.",
    argument="source",
    found="the arguments of {maps} maps",
    limit="one map at a time",
    fix="Leave the others out.",
    source="the command line",
    passing=_READ.format((_LINE % 64).encode()) + ".tensor_map()",
    failing=_READ.format((_LINE % 64 + _LINE % 128).encode()) + ".tensor_map()",
)


class MapSource(NamedTuple):
    """What was given: a descriptor, or the arguments of one or several maps."""

    blob: bytes | None
    asked: tuple[MapArguments, ...] = ()

    @classmethod
    def from_json(cls, content: str | bytes) -> MapSource:
        """The arguments that JSON gives; JSON lines give several."""
        return cls(None, MapArguments.from_json(content))

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
        if _JSON.match(text):
            return cls.from_json(text)
        asked = encode_calls(text)
        if not asked and is_dump(text):
            asked = dumped_arguments(text)
        if asked:
            return cls(None, asked)
        try:
            return cls(descriptor_bytes(text))
        except RuleError:
            if text.lstrip().startswith("[") and "x" not in text:  # a list of too few words, or JSON
                return cls.from_json(text)
            raise

    @classmethod
    def read_log(cls, head: bytes, rest: IO[bytes]) -> MapSource:
        """The maps that a long log dumps or has as JSON lines; `head` is what was read of it already.

        One line at a time is kept, and a line is cut where it is longer than a dump could be.
        """
        in_json: list[MapArguments] = []

        def without_json() -> Iterator[str]:
            for line in _lines(head, rest):
                if _JSON.match(line) and len(in_json) < MAX_MAPS:
                    in_json.extend(asked for asked in _maps_in_json(line) if asked not in in_json)
                else:
                    yield line

        dumped = list(maps_in(without_json()))
        maps = [*dumped, *in_json]
        if not maps:
            raise ARGUMENT_DUMP.error()
        return cls(None, tuple(maps[:MAX_MAPS]))

    def reports(self) -> tuple[MapReport, ...]:
        """What the rules say of each map."""
        if self.blob is None:
            return tuple(asked.report() for asked in self.asked)
        inspected = inspect_tensor_map(self.blob)
        return (MapReport(inspected.sound, inspected.violations, inspected.tensor_map),)

    def tensor_map(self) -> AnyMap:
        """The one map, or its violations raised."""
        if len(self.asked) > 1:
            raise ONE_MAP.error(maps=len(self.asked))
        return self.asked[0].tensor_map() if self.blob is None else decode_tensor_map(self.blob)


def _maps_in_json(line: str) -> tuple[MapArguments, ...]:
    """The maps of a line of a log; most lines that begin like JSON are none."""
    try:
        return MapArguments.from_json(line)
    except RuleError:
        return ()


def _lines(head: bytes, rest: IO[bytes]) -> Iterator[str]:
    """The lines of a stream, of which the first bytes were read."""
    pending = head
    more = head
    while more:
        *whole, pending = pending.split(b"\n")
        for line in whole:
            yield _ESCAPE.sub(b"", line[:_LINE_BYTES]).decode("utf-8", errors="replace")
        more = rest.read(WHOLE_BYTES)
        pending = pending[:_LINE_BYTES] + more
    yield pending[:_LINE_BYTES].decode("utf-8", errors="replace")
