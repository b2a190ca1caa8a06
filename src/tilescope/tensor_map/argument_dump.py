"""The arguments that CUTLASS, TileLang and Triton print when the driver refuses a map.

    CUTLASS, TileLang                                     Triton
    TMA Desc Addr:   0x7ffd7d2800c0                       Failed to create tensor map descriptor: invalid argument
    format         6                                      elemType=6 rank=2 global_address=0x7f0000 elemSize=2
    dim            3                                      swizzle=3 padding=0
    gmem_address   0x7f0000                               shape=[1024, 1024]
    globalDim      (1024,1024,1,1,1)                      strides=[2048]
    globalStrides  (2,2048,2097152,0,0)                   blockSize=[64, 128] elementStrides=[1, 1] fill=0
    boxDim         (64,128,1,1,1)
    …

    Error: Failed to initialize the TMA descriptor 1

All print the driver's numbers, innermost first; names such as CU_TENSOR_MAP_SWIZZLE_128B may stand for them. They differ
in the strides: CUTLASS prints five, TileLang one for each dimension, and both begin with the innermost, which the driver
is not told; Triton prints what it passes. `TMA Desc Addr` is where the map itself lies; the number behind the error is
the driver's answer, a CUresult (Triton spells it).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tilescope.data_type import DATA_TYPE
from tilescope.errors import RuleError
from tilescope.swizzle import SWIZZLE
from tilescope.tensor_map.arguments import MapArguments
from tilescope.tensor_map.checking import map_rule
from tilescope.tensor_map.driver_answer import INVALID_VALUE, DriverAnswer
from tilescope.tensor_map.option import INTERLEAVE, L2_PROMOTION, OOB_FILL

_SAMPLE = (
    "Triton Error [CUDA]: Failed to create tensor map descriptor: invalid argument\n"
    "elemType=6 rank=2 global_address=0x7f5a20000000 elemSize=2 swizzle=3 padding=0\n"
    "shape=[1024, 1024]\nstrides=[2048]\nblockSize=[64, 128] elementStrides=[1, 1] fill=0\n"
)
argument_dump = map_rule(
    "argument-dump",
    "A dump of arguments names at least the type and the extents of the tensor.",
    source="what CUTLASS, TileLang and Triton print",
    subjects=("paste",),
    passing={"dump": _SAMPLE},
    failing={"dump": "Triton Error [CUDA]: invalid argument"},
)

# What a dump calls it: our name for it.
_NAMES = {
    **dict.fromkeys(("format", "tensorDataType", "elemType"), "data_type"),
    **dict.fromkeys(("dim", "tensorRank", "rank"), "rank"),
    **dict.fromkeys(("gmem_address", "globalAddress", "global_address"), "address"),
    **dict.fromkeys(("globalDim", "shape"), "dims"),
    **dict.fromkeys(("globalStrides", "globalStridesRaw"), "all_strides"),
    **dict.fromkeys(("cudaGlobalStrides", "strides"), "strides_bytes"),
    **dict.fromkeys(("boxDim", "blockSize"), "box"),
    "elementStrides": "element_strides",
    "interleave": "interleave",
    "swizzle": "swizzle",
    "l2Promotion": "l2_promotion",
    **dict.fromkeys(("oobFill", "fill"), "oob_fill"),
    **dict.fromkeys(("smem_box_channel", "channelsPerPixel"), "channels_per_pixel"),
    **dict.fromkeys(("smem_box_pixel", "pixelsPerColumn"), "pixels_per_column"),
    **dict.fromkeys(("pixelBoxLowerCorner", "pixelBoxLower"), "lower_corner"),
    **dict.fromkeys(("pixelBoxUpperCorner", "pixelBoxUpper"), "upper_corner"),
}
_TABLES: dict[str, dict[str, Any]] = {
    "data_type": DATA_TYPE,
    "interleave": INTERLEAVE,
    "swizzle": SWIZZLE,
    "l2_promotion": L2_PROMOTION,
    "oob_fill": OOB_FILL,
}
_AT = re.compile(r"TMA Desc Addr:?\s+0x([0-9a-fA-F]{1,16})\b")
_RESULT = re.compile(
    r"(?:Failed to initialize the TMA descriptor\s+(\d{1,4})\b|tensor map descriptor: invalid argument())"
)
_LISTS = ("dims", "all_strides", "strides_bytes", "box", "element_strides", "lower_corner", "upper_corner")
_START = re.compile(r"TMA Desc Addr|Failed to create (?:im2col )?tensor map|tensorDataType\b")
_PAIR = re.compile(
    rf"\b({'|'.join(sorted(_NAMES, key=len, reverse=True))})(?:\s*[=:]\s*|[ \t]+)"
    r"(<?(?:CUtensorMap\w{1,40}(?:\.|::))?CU_TENSOR_MAP_\w{1,80}"
    r"|\([-\d, ]{0,200}\)|\[[-\d, ]{0,200}\]|0x[0-9a-fA-F]{1,40}|-?\d{1,40}(?!\w))"
)


def dumped_arguments(text: str) -> tuple[MapArguments, ...]:
    """The arguments of every map that the text dumps, each once; RuleError where it dumps none.

    >>> asked, = dumped_arguments("format 6 dim 2 globalDim (64,8,1) globalStrides (2,128,0) boxDim (128,8,1) swizzle 3")
    >>> asked.given["strides_bytes"], asked.given["swizzle"], [found.rule for found in asked.check()]
    ((128,), '128B', ['swizzle-span', 'box-larger'])
    """
    starts = [found.start() for found in _START.finditer(text)] or [0]
    ends = [*starts[1:], len(text)]
    found: list[MapArguments] = []
    for start, end in zip(starts, ends, strict=True):
        given = _arguments(_PAIR.findall(text[start:end]))
        if given is not None:
            asked = replace(MapArguments.of(given), answer=_answer(text[start:end]))
            if asked not in found:
                found.append(asked)
    if not found:
        raise RuleError(
            [
                argument_dump.violation(
                    "text",
                    "no arguments of a tensor map",
                    "the arguments that CUTLASS, TileLang or Triton print, or JSON",
                    "Paste the lines with globalDim or shape, or give options such as --dims.",
                )
            ]
        )
    return tuple(found)


def _answer(text: str) -> DriverAnswer:
    at, result = _AT.search(text), _RESULT.search(text)
    answered = None if result is None else int(result[1]) if result[1] else INVALID_VALUE
    return DriverAnswer(None if at is None else int(at[1], 16), answered)


def _arguments(pairs: Iterable[tuple[str, str]]) -> dict[str, Any] | None:
    """The arguments of one dump; the first mention of a name counts."""
    given: dict[str, Any] = {}
    is_triton = False
    for name, value in pairs:
        ours = _NAMES[name]
        is_triton |= name in ("elemType", "blockSize")
        if value[0] in "([":
            if ours in _LISTS:
                given.setdefault(ours, tuple(int(each) for each in re.findall(r"-?\d+", value)))
        elif ours in _TABLES and (named := re.search("CU_TENSOR_MAP_.*", value)):
            given.setdefault(ours, named[0])
        elif ours not in _LISTS and value[0] in "-0123456789":
            given.setdefault(ours, int(value, 0 if value.startswith("0x") else 10))
    if "data_type" not in given or "dims" not in given:
        return None
    for name in _TABLES.keys() & given.keys():
        given[name] = row_name(_TABLES[name], given[name])
    _cut_to_rank(given)
    if "lower_corner" in given and "box" in given:  # Triton's block of an im2col map: channels, pixels
        box = given.pop("box")
        given.update(zip(("channels_per_pixel", "pixels_per_column"), box, strict=False))
    if is_triton:
        given.setdefault("l2_promotion", "128B")  # what Triton always passes, and does not print
    return given


def row_name(table: dict[str, Any], given: int | str) -> str:
    """The name of the row that the driver numbers or calls so; an unknown one stays, for a rule to name it."""
    if isinstance(given, str):
        with suppress(RuleError):
            return str(type(next(iter(table.values()))).named(given).name)
        return given
    return next((row.name for row in table.values() if row.driver_code == given), f"number {given}")


def _cut_to_rank(given: dict[str, Any]) -> None:
    """Leave out the entries beyond the rank, and the innermost stride, which the driver is not told."""
    rank = given.pop("rank", len(given["dims"]))
    strides = given.pop("all_strides", None)
    if strides is not None:
        given.setdefault("strides_bytes", strides[1:])
    for name, fewer in (("dims", 0), ("box", 0), ("element_strides", 0), ("strides_bytes", 1)):
        if name in given and not (name == "box" and "lower_corner" in given):
            given[name] = given[name][: max(0, rank - fewer)]
