"""A tensor map out of whatever shows it: 128 bytes, hexadecimal digits, words, JSON, or a pasted dump of arguments.

bytes that are no text            a descriptor
{"data_type": …}                  arguments as JSON
globalDim (64,8,1) boxDim …       a dump of arguments, or several of them
0x7f5a20000000 0x20000…           the words of a descriptor
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tilescope.errors import RuleError
from tilescope.rule import rule
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.argument_dump import dumped_arguments
from tilescope.tensor_map.arguments import MapArguments, MapReport
from tilescope.tensor_map.decoding import decode_tensor_map, inspect_tensor_map
from tilescope.tensor_map.descriptor import DESCRIPTOR_BYTES
from tilescope.tensor_map.paste import descriptor_bytes

_DUMP = re.compile(r"globalDim\b|gmem_address|elemType=|shape=\[|Failed to (?:initialize|create)|Triton Error")
_JSON = re.compile(r"""\s*\{(?:[^{]*"|\s*'?[A-Za-z_]\w*'?\s*:)""")  # what may stand in braces otherwise are words in C
_TEXT = re.compile(r"[\x09-\x0d\x20-\x7e\x80-\U0010ffff]*")

_ARGUMENTS = (
    'ts.tensor_map.MapArguments.from_json(\'{"data_type": "u8", "dims": [64], "strides_bytes": [], "box": [64]}\')'
)
INPUT_BINARY = rule(
    "input-binary",
    "Bytes that are no text are a descriptor, and a descriptor is 128 bytes.",
    source="cuda.h, CU_TENSOR_MAP_NUM_QWORDS",
    passing="ts.tensor_map.source.MapSource.read(bytes(128))",
    failing="ts.tensor_map.source.MapSource.read(bytes(127))",
)
ONE_MAP = rule(
    "one-map",
    "encode, load and diff take the arguments of one map at a time; check takes several.",
    source="the command line",
    passing=f"ts.tensor_map.source.MapSource(None, ({_ARGUMENTS},)).tensor_map()",
    failing=f"ts.tensor_map.source.MapSource(None, ({_ARGUMENTS},) * 2).tensor_map()",
)


class MapSource(NamedTuple):
    """What was given: a descriptor, or the arguments of one or several maps."""

    blob: bytes | None
    asked: tuple[MapArguments, ...] = ()

    @classmethod
    def from_json(cls, content: str | bytes) -> MapSource:
        """The arguments that JSON gives; JSON lines give several."""
        return cls(None, MapArguments.all_from_json(content))

    @classmethod
    def read(cls, content: bytes) -> MapSource:
        """The map that bytes or text show; RuleError where they show none.

        >>> MapSource.read(b'{"data_type": "u8", "dims": [64], "strides_bytes": [], "box": [64]}').tensor_map().box
        (64,)
        """
        text = content.decode("utf-8", errors="replace")
        if _TEXT.fullmatch(text) is None or "\ufffd" in text:
            if len(content) == DESCRIPTOR_BYTES:
                return cls(content)
            raise INPUT_BINARY.error(
                "source",
                f"{len(content)} bytes that are no text",
                "a descriptor is 128 bytes",
                "Pass the 128 bytes of the map alone.",
                values={"bytes": len(content)},
            )
        if _JSON.match(text):
            return cls.from_json(text)
        if _DUMP.search(text):
            return cls(None, dumped_arguments(text))
        try:
            return cls(descriptor_bytes(text))
        except RuleError:
            if text.lstrip().startswith("[") and "x" not in text:  # a list of too few words, or JSON
                return cls.from_json(text)
            raise

    def reports(self) -> tuple[MapReport, ...]:
        """What the rules say of each map."""
        if self.blob is None:
            return tuple(each.report() for each in self.asked)
        found = inspect_tensor_map(self.blob)
        return (MapReport(found.tensor_map is not None, found.violations, found.tensor_map),)

    def tensor_map(self) -> AnyMap:
        """The one map, or its violations raised."""
        if len(self.asked) > 1:
            raise ONE_MAP.error(
                "source",
                f"the arguments of {len(self.asked)} maps",
                "one map at a time",
                "Leave the others out.",
                values={"maps": len(self.asked)},
            )
        return self.asked[0].tensor_map() if self.blob is None else decode_tensor_map(self.blob)
