"""Where a tensor map comes from: a file, stdin, or text on the command line; as bytes, JSON or a pasted dump."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tilescope.cli.map_options import read_input
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.argument_dump import dumped_arguments
from tilescope.tensor_map.arguments import MapArguments, MapReport
from tilescope.tensor_map.decoding import decode_tensor_map, inspect_tensor_map
from tilescope.tensor_map.descriptor import DESCRIPTOR_BYTES
from tilescope.tensor_map.paste import descriptor_bytes

_DUMP = re.compile(r"globalDim\b|gmem_address|elemType=|shape=\[|Failed to (?:initialize|create)|Triton Error")


class Source(NamedTuple):
    """What was given: a descriptor, or the arguments of one or several maps."""

    blob: bytes | None
    asked: tuple[MapArguments, ...] = ()

    def reports(self) -> tuple[MapReport, ...]:
        """What the rules say of each map."""
        if self.blob is None:
            return tuple(each.report() for each in self.asked)
        found = inspect_tensor_map(self.blob)
        return (MapReport(found.tensor_map is not None, found.violations, found.tensor_map),)

    def tensor_map(self) -> AnyMap:
        """The one map, or its violations raised."""
        return self.asked[0].tensor_map() if self.blob is None else decode_tensor_map(self.blob)


def read_source(words: tuple[str, ...]) -> Source:
    """The map that the words name (a file, "-" for stdin) or show (hex, words, JSON, a dump)."""
    content = _content(words)
    text = content.decode("utf-8", errors="replace")
    if len(content) == DESCRIPTOR_BYTES and not re.fullmatch(r"[\x09-\x0d\x20-\x7e]*", text):
        return Source(content)
    if text.lstrip().startswith("{") and '"' in text:
        return Source(None, (MapArguments.from_json(text),))
    if _DUMP.search(text):
        return Source(None, dumped_arguments(text))
    return Source(descriptor_bytes(text))


def _content(words: tuple[str, ...]) -> bytes:
    if len(words) == 1 and (words[0] == "-" or _is_file(words[0])):
        return read_input(words[0])
    return " ".join(words).encode("utf-8", errors="replace")


def _is_file(word: str) -> bool:
    try:
        return Path(word).is_file()
    except (OSError, ValueError):  # a text that no file could be called
        return False
