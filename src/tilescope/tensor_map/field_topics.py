"""Editing an encoded map on the device, and what `explain` says of it and of the fields of a descriptor.

    tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [map], 1, 32;      box[1] = 32

The instruction takes one field at a time and checks nothing; `replace` here checks the result like any
other map. An edited map must be published before a copy may use it (`PUBLISHING`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from tilescope.errors import RuleError, TensorMapError, unknown_name
from tilescope.reading import integers
from tilescope.tensor_map.checking import map_rule
from tilescope.tensor_map.descriptor import WORD_BITS, field_places
from tilescope.tensor_map.samples import PTX_REPLACE


@dataclass(frozen=True, slots=True)
class ReplaceField:
    """One field of tensormap.replace: the argument it changes, and how the instruction writes it."""

    argument: str
    ptx: str
    width: str  # of the value operand
    ordinals: int  # how many entries it has; 0: a single value
    value: str


# PTX ISA, "tensormap.replace".
# fmt: off
REPLACE_FIELDS = {row.ptx: row for row in (
    #            argument           PTX field            width  entries  value
    ReplaceField("address",         "global_address",    "b64", 0, "byte address"),
    ReplaceField("dims",            "rank",              "b32", 0, "rank - 1"),
    ReplaceField("box",             "box_dim",           "b32", 5, "elements"),
    ReplaceField("dims",            "global_dim",        "b32", 5, "elements; 2^32 does not fit"),
    ReplaceField("strides_bytes",   "global_stride",     "b64", 4, "bytes (toolkits before 12.5: bytes / 16)"),
    ReplaceField("element_strides", "element_stride",    "b32", 5, "elements"),
    ReplaceField("data_type",       "elemtype",          "b32", 0, "PTX type code, immediate; 13..15 from sm_100 on"),
    ReplaceField("interleave",      "interleave_layout", "b32", 0, "0 none, 1 16B, 2 32B, immediate"),
    ReplaceField("swizzle",         "swizzle_mode",      "b32", 0, "0 none, 1 32B, 2 64B, 3 128B, immediate; 4 (96B) on sm_103a"),
    ReplaceField("swizzle",         "swizzle_atomicity", "b32", 0, "0 16B, 1 32B, 2 32B + 8B flip, 3 64B, immediate; from sm_100 on"),
    ReplaceField("oob_fill",        "fill_mode",         "b32", 0, "0 zero, 1 nan, immediate"),
)}
# fmt: on
PUBLISHING = (
    "edit the copy of the map in shared memory (one thread), then __syncwarp()",
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [gmem], [smem], 128;  (whole warp)",
    "fence.proxy.tensormap::generic.acquire.gpu [gmem], 128;  (in the consumer, before its first copy)",
)


replace_field = map_rule(
    "replace-field",
    "tensormap.replace changes a tiled map's address, shape, type, swizzle, interleave and fill; cuTensorMapReplaceAddress an "
    "address alone.",
    documented=f"{PTX_REPLACE}; cuda.h, cuTensorMapReplaceAddress",
    subjects=("replacement",),
    passing='ts.TensorMap("u8", (64,), (), (64,)).replace(address=0x1000)',
    failing='ts.TensorMap("u8", (64,), (), (64,)).replace(l2_promotion="128B")',
)


def replacement_fields(a: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a map to change, after what the instruction itself cannot write was refused."""
    problems = []
    replaceable = sorted({row.argument for row in REPLACE_FIELDS.values()})
    for name in fields:
        if name not in a.readers:
            problems.append(unknown_name("argument", name, name, replaceable))
        elif name not in replaceable or (a.subject != "tiled" and name != "address"):
            which = "a tiled map's fields" if a.subject == "tiled" else "an im2col map's address only"
            limit = f"tensormap.replace writes {', '.join(replaceable)}: {which}"
            fix = f"Encode another map with this {name}."
            problems.append(replace_field.violation(name, f"{name} of a {a.subject} map", limit, fix))
    if set(fields) != {"address"} and not a.arch.has("tensormap_replace"):
        limit, fix = "tensormap.replace needs sm_90a or later", "Replace the address alone, on the host."
        problems.append(replace_field.violation("arch", f"arch = {a.arch.name}", limit, fix))
    with suppress(RuleError):  # what is no sequence of integers is refused where the map is made
        if 1 << 32 in integers("dims", fields.get("dims", ())):
            limit, fix = "global_dim is written with 32 bits", "Use 2^32 - 1, or encode another map."
            problems.append(replace_field.violation("dims", "a dim of 2^32 elements", limit, fix, dim=1 << 32))
    if problems:
        raise TensorMapError(problems)
    return dict(fields)


PREFIX = "field "
REPLACE = "tensormap.replace"

# The fields of a CUtensorMap on sm_90, [i] standing for each dimension.
_FIELDS = {
    "address": "Where the first element lies in global memory: below 2^57, and a multiple of 16 bytes.",
    "im2col": "1 in an im2col map, 0 in a tiled one.",
    "rank": "How many dimensions the tensor has, less one.",
    "data_type": "The type in PTX's numbering. tfloat32 is stored as float32 (7) and tfloat32_ftz as float32_ftz (8), with "
    "the field tf32 set.",
    "interleave": "0 none, 1 16B, 2 32B: how channels lie in global memory.",
    "swizzle": "0 none, 1 32B, 2 64B, 3 128B: how the rows of a box lie in shared memory.",
    "oob_fill": "What a load writes outside the tensor: 0 zero, 1 NaN.",
    "tf32": "1 where a load rounds float32 to tfloat32.",
    "l2_promotion": "0 none, 1 64B, 2 128B, 3 256B: how much the L2 cache fetches at once.",
    "strides_bytes[i]": "The step of dimension i + 1 in units of 16 bytes: its low 32 bits here, its upper four bits in word 3.",
    "strides_bytes[i] high": "The upper four bits of the step of dimension i + 1, which counts 16-byte units.",
    "dims[i]": "The extent of dimension i in elements, less one.",
    "element_strides[i]": "The traversal stride of dimension i, less one.",
    "box[i]": "The extent of the box in dimension i, less one; tiled maps only.",
    "channels_per_pixel": "Channels that a copy brings of each pixel, less one; it takes the place of box[0] in im2col maps.",
    "pixels_per_column": "Pixels that one copy brings, less one; im2col maps only.",
    "lower_corner[i]": "Where the base pixels begin in W, H, D; two's complement, 16, 8 or 5 bits wide for rank 3, 4, 5.",
    "upper_corner[i]": "How far beyond the end the base pixels go in W, H, D; two's complement, as wide as the lower corner.",
    "box_bytes": "Bytes of the box, element strides divided out and rounded down; im2col: channels x pixels x bytes.",
    "repeat_bytes": "Bytes after which the swizzle pattern repeats: 256, 512, 1024; 16 without a swizzle.",
}


# What cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col call their arguments, where it is no term: the field of each.
_DRIVER_ARGUMENTS = {
    "tensorDataType": "data_type",
    "tensorRank": "rank",
    "globalAddress": "address",
    "globalDim": "dims[i]",
    "globalStrides": "strides_bytes[i]",
    "pixelBoxLowerCorner": "lower_corner[i]",
    "pixelBoxUpperCorner": "upper_corner[i]",
    "pixelBoxLowerCornerWidth": "lower_corner[i]",
    "pixelBoxUpperCornerWidth": "upper_corner[i]",
    "channelsPerPixel": "channels_per_pixel",
    "pixelsPerColumn": "pixels_per_column",
}
_FIELD_OF_ARGUMENT = {name.casefold(): field for name, field in _DRIVER_ARGUMENTS.items()}


class MapTopic(NamedTuple):
    """A field, or the instruction that edits fields."""

    name: str
    meaning: str
    see: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]


def names() -> list[str]:
    """All topics of this module."""
    return [REPLACE, *(PREFIX + name for name in _FIELDS)]


def spellings() -> dict[str, str]:
    """Other spellings of them."""
    instruction = {"replace": REPLACE, "cuTensorMapReplaceAddress": REPLACE, "fence.proxy.tensormap": REPLACE}
    fields = {name: PREFIX + name for name in _FIELDS}
    return instruction | fields | {name: PREFIX + field for name, field in _DRIVER_ARGUMENTS.items()}


def find(name: str) -> MapTopic | None:
    """The topic of that name: "field box[1]", "box[1]", "globalDim", "tensormap.replace"."""
    asked = " ".join(name.casefold().split())
    if asked in {REPLACE, *(spelling.casefold() for spelling, topic in spellings().items() if topic == REPLACE)}:
        return _replace()
    general = re.sub(r"\[\d\]", "[i]", asked.removeprefix(PREFIX).replace("-", "_"))
    general = _FIELD_OF_ARGUMENT.get(general.removesuffix("[i]"), general)
    if general not in _FIELDS:
        return None
    facts = tuple(
        (place.name, _in_words(place.bit, place.width_bits) + (f" (rank {place.rank})" if place.rank else ""))
        for place in field_places()
        if re.sub(r"\[\d\]", "[i]", place.name) == general
    )
    return MapTopic(PREFIX + general, _FIELDS[general], ("tensor map", REPLACE), facts)


def _in_words(bit: int, width_bits: int) -> str:
    word, low = divmod(bit, WORD_BITS)
    high = low + width_bits - 1
    return f"word {word}, bit{'s' if width_bits > 1 else ''} {low}" + (f"-{high}" if width_bits > 1 else "")


def _replace() -> MapTopic:
    meaning = (
        "Edits one field of a tiled tensor map on the device: `tensormap.replace.tile.FIELD.shared::cta.b1024.b32 [map], "
        "(index,) value`. It exists on sm_90a and later targets with a or f, and checks nothing: an edited map must keep "
        "every rule that the driver would have checked. On the host, cuTensorMapReplaceAddress changes the address alone, "
        "of any kind of map. A copy may use an edited map only after it was published with the fences below."
    )
    fields = tuple(
        (row.ptx, f"{row.width}{f', index 0 to {row.ordinals - 1}' if row.ordinals else ''}: {row.value}")
        for row in REPLACE_FIELDS.values()
    )
    cannot = ("cannot be replaced", "L2 promotion; whatever im2col maps have beside their address")
    steps = tuple((f"publish, {number}", said) for number, said in enumerate(PUBLISHING, 1))
    return MapTopic(REPLACE, meaning, ("tensor map", "replace-field"), (*fields, cannot, *steps))
