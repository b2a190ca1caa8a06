"""The answers of `explain` about the fields of a descriptor, and the instruction that edits them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from tilescope.tensor_map.limits import MAX_RANK
from tilescope.tensor_map.map_descriptor import FORMATS, WORD_BITS
from tilescope.tensor_map.replacement import PUBLISHING, REPLACE, REPLACE_FIELDS

# The fields of a CUtensorMap on sm_90, [i] standing for each dimension.
_FIELDS = {
    "address": "Address of the first element in global memory: below 2^57, and a multiple of 16 bytes.",
    "im2col": "1 in an im2col map, 0 in a tiled one.",
    "rank": "How many dimensions the tensor has, less one.",
    "data_type": "The type in PTX's numbering. tfloat32 is stored as float32 (7) and tfloat32_ftz as float32_ftz (8), with "
    "the field tf32 set.",
    "interleave": "0 none, 1 16B, 2 32B: how channels are stored in global memory.",
    "swizzle": "0 none, 1 32B, 2 64B, 3 128B: how the rows of a box are stored in shared memory.",
    "oob_fill": "What a load writes outside the tensor: 0 zero, 1 NaN.",
    "tf32": "1 where a load rounds float32 to tfloat32.",
    "l2_promotion": "0 none, 1 64B, 2 128B, 3 256B: how much the L2 cache fetches at once.",
    "strides_bytes[i]": "The step of dimension i + 1 in units of 16 bytes: its low 32 bits here, its upper four bits in word 3.",
    "strides_bytes[i] high": "The upper four bits of the step of dimension i + 1, which counts 16-byte units.",
    "dims[i]": "The extent of dimension i in elements, less one.",
    "element_strides[i]": "The traversal stride of dimension i, less one.",
    "box[i]": "The extent of the box in dimension i, less one; tiled maps only.",
    "channels_per_pixel": "Channels that a copy loads of each pixel, minus one; replaces box[0] in im2col maps.",
    "pixels_per_column": "Pixels that one copy loads, minus one; im2col maps only.",
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
TOPIC_SPELLINGS = {"replace": REPLACE, "cuTensorMapReplaceAddress": REPLACE, "fence.proxy.tensormap": REPLACE}
TOPIC_SPELLINGS |= {name: f"field {name}" for name in _FIELDS}
TOPIC_SPELLINGS |= {name: f"field {field}" for name, field in _DRIVER_ARGUMENTS.items()}


class MapTopic(NamedTuple):
    """A field, or the instruction that edits fields."""

    name: str
    meaning: str
    see: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]


_REPLACE_MEANING = (
    "Edits one field of a tiled tensor map on the device: `tensormap.replace.tile.FIELD.shared::cta.b1024.b32 [map], "
    "(index,) value`. It exists on sm_90a and later targets with a or f, and checks nothing: an edited map must keep "
    "every rule that the driver would have checked. On the host, cuTensorMapReplaceAddress changes the address alone, "
    "of any kind of map. A copy may use an edited map only after it was published with the fences below."
)


@cache
def topics() -> dict[str, MapTopic]:
    """The answers of `explain` about tensormap.replace and the fields, by name."""
    topics_by_name = {
        REPLACE: MapTopic(REPLACE, _REPLACE_MEANING, ("tensor map", "replace-field"), tuple(_replace_facts()))
    }
    places = sorted(_field_places())
    for name, meaning in _FIELDS.items():
        facts = tuple((place.entry, place.in_words) for place in places if place.field == name)
        topics_by_name[f"field {name}"] = MapTopic(f"field {name}", meaning, ("tensor map", REPLACE), facts)
    return topics_by_name


def _replace_facts() -> Iterator[tuple[str, str]]:
    """The fields of tensormap.replace and how each is written, what cannot be replaced, and how an edit is published."""
    for row in REPLACE_FIELDS.values():
        index = f", index 0 to {row.ordinals - 1}" if row.ordinals else ""
        yield row.ptx, f"{row.width}{index}: {row.value}"
    yield "cannot be replaced", "L2 promotion; whatever im2col maps have beside their address"
    for number, sentence in enumerate(PUBLISHING, 1):
        yield f"publish, {number}", sentence


class _FieldPlace(NamedTuple):
    """The place of a field, or of an entry of it; in sorted order, a field's entries follow each other."""

    field: str  # box[i]
    entry: str  # box[1]
    rank: int  # of the maps that have it there; 0: of all
    low: int
    high: int

    @property
    def in_words(self) -> str:
        low, high = self.low % WORD_BITS, self.high % WORD_BITS
        bits = f"bits {low}-{high}" if high > low else f"bit {low}"
        of_rank = f" (rank {self.rank})" if self.rank else ""
        return f"word {self.low // WORD_BITS}, {bits}{of_rank}"


def _field_places() -> set[_FieldPlace]:
    """The places of all fields, in maps of every kind and rank."""
    return {
        _FieldPlace(
            field=_with_index(field.name),
            entry=field.name,
            rank=rank if "corner" in field.name else 0,  # the places of corners depend on it
            low=field.low,
            high=field.high,
        )
        for (_, rank), form in FORMATS.items()
        if rank <= MAX_RANK
        for field in form.fields
    }


def _with_index(name: str) -> str:
    """The field of an entry: box[i] of box[1]."""
    return re.sub(r"\[\d\]", "[i]", name)


def topic(name: str) -> MapTopic | None:
    """The topic of that name: "field box[1]", "box[1]", "globalDim", "tensormap.replace"."""
    spelling = " ".join(name.casefold().split()).removeprefix("field ").replace("-", "_")
    general = _with_index(spelling)
    spelled = {alias.casefold(): topic_name for alias, topic_name in TOPIC_SPELLINGS.items()} | {REPLACE: REPLACE}
    return topics().get(spelled.get(general) or spelled.get(general.removesuffix("[i]"), ""))
