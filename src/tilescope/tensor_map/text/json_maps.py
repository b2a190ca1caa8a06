"""The maps of a text in JSON: one map a line, as `watch` records them, or one map in all.

{"tensor_map": {"data_type": "u8", "dims": [64], …}, "result": 0}        line 1: a map
{"tensor_map": null, "result": 1}                                        line 2: a call whose arguments could not be read
{"event": "start"}                                                       line 3: left out, no map is meant
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from tilescope.errors import RuleError
from tilescope.rule import rule
from tilescope.tensor_map.checking import TMA_ARCHITECTURES
from tilescope.tensor_map.map_arguments import MAP_KINDS, MapArguments
from tilescope.tensor_map.text.distinct_maps import drop_duplicates

ARGUMENT_JSON = rule(
    "argument-json",
    "Arguments in JSON are one object with an entry for each named argument.",
    argument="json",
    found="a {type}",
    limit="a map is one JSON object",
    fix='Use what json.dumps(tensor_map.to_dict()) prints: {{"data_type": "bf16", "dims": [64, 64], …}}.',
    source="RFC 8259",
    basis="measured",
    subjects=("paste",),
    architectures=TMA_ARCHITECTURES,
    passing=(
        "ts.tensor_map.text.pasted_source.MapSource.from_json("
        '"""{"data_type": "u8", "dims": [64], "strides_bytes": [], "box": [64]}""")'
    ),
    failing='ts.tensor_map.text.pasted_source.MapSource.from_json("""["u8", [64], [], [64]]""")',
)
_NO_JSON = ARGUMENT_JSON.worded(found="no JSON: {error}")
_NO_MAP = ARGUMENT_JSON.worded(found="tensor_map is null")


class JsonMaps(NamedTuple):
    """What a text in JSON holds."""

    maps: tuple[MapArguments, ...]  # each once
    lines_without_map: tuple[int, ...]  # calls that watch recorded, whose arguments could not be read whole


class _JsonValue(NamedTuple):
    """A value of a text in JSON, and the line on which it begins."""

    line: int
    value: object


def maps_in_json(text: str | bytes) -> JsonMaps:
    r"""The maps of a text in JSON: one a line, or one in all; RuleError where there is none.

    A map is what its `to_dict` prints; an inspection or a convolution holds its map. Of several lines, those are left out
    that have no argument of a map: a log has other records too.

    >>> line = '{"tensor_map": {"data_type": "u8", "dims": [%d], "strides_bytes": [], "box": [16]}, "result": 0}'
    >>> found = maps_in_json("\n".join([line % 64, line % 128, '{"tensor_map": null, "result": 1}']))
    >>> [(asked.given["dims"], asked.lines) for asked in found.maps], found.lines_without_map
    ([([64], (1,)), ([128], (2,))], (3,))
    """
    values = _json_values(text)
    entries = [_JsonValue(entry.line, _held_map(entry.value)) for entry in values]
    empty = tuple(entry.line for entry in entries if entry.value is None)
    candidates = [entry for entry in entries if entry.value is not None]
    if empty and not candidates:
        raise RuleError([_NO_MAP.violation()])
    about_maps = [entry for entry in candidates if is_about_a_map(entry.value)]
    for entry in about_maps or candidates:
        if not isinstance(entry.value, dict):
            raise RuleError([ARGUMENT_JSON.violation(type=type(entry.value).__name__)])
    maps = (replace(MapArguments.of(entry.value), lines=(entry.line,)) for entry in about_maps or candidates)
    return JsonMaps(drop_duplicates(maps), empty)


def _held_map(value: object) -> object:
    """The map that an object has as `tensor_map`, or the value itself."""
    return value.get("tensor_map", value) if isinstance(value, dict) else value


def is_about_a_map(value: object) -> bool:
    """Whether an object in JSON describes a tensor map: it has the kind of one, or no kind and the extents of a tensor."""
    if not isinstance(value, dict):
        return False
    return value["kind"] in list(MAP_KINDS) if "kind" in value else "dims" in value


def _lines_of(text: str | bytes) -> Iterable[str | bytes]:
    """The lines as an editor counts them."""
    return text.split("\n") if isinstance(text, str) else text.split(b"\n")


def _json_values(text: str | bytes) -> list[_JsonValue]:
    """The value of each line, or the one value of the whole text."""
    numbered = enumerate(_lines_of(text), 1)
    try:
        return [_JsonValue(number, json.loads(line)) for number, line in numbered if line.strip()]
    except (ValueError, RecursionError):
        pass  # not one value a line
    try:
        return [_JsonValue(1, json.loads(text))]
    except (ValueError, RecursionError) as error:
        raise RuleError([_NO_JSON.violation(error=str(error))]) from None
