"""tensormap.replace: an encoded map is edited on the device, field by field.

    tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [map], 1, 32;      box[1] = 32

The instruction checks nothing; `replace` of a map checks the result like any other map. An edited map must be published before
a copy may use it (`PUBLISHING`).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import NamedTuple

from tilescope.arch import architectures_with
from tilescope.errors import TensorMapError, Violation, unknown_name
from tilescope.reading import integers, try_read
from tilescope.rule import rule
from tilescope.tensor_map.limits import (
    ADDRESS_END,
    ALIGNMENT_BYTES,
    LARGEST_BOX_EXTENT,
    LARGEST_ELEMENT_STRIDE,
    MAX_RANK,
    STRIDE_END_BYTES,
)
from tilescope.tensor_map.map_descriptor import DESCRIPTOR_BYTES, FORMATS, element_type_fields
from tilescope.tensor_map.record import MapRecord
from tilescope.tensor_map.samples import PTX_REPLACE

REPLACE = "tensormap.replace"


class ReplaceField(NamedTuple):
    """One field of tensormap.replace: the argument it changes, and how the instruction writes it."""

    argument: str
    ptx: str
    width: str  # of the value operand
    ordinals: int  # how many entries it has; 0: a single value
    value: str


# PTX ISA, "tensormap.replace".
_ROWS = (
    ReplaceField("address", ptx="global_address", width="b64", ordinals=0, value="byte address"),
    ReplaceField("dims", ptx="rank", width="b32", ordinals=0, value="rank - 1"),
    ReplaceField("box", ptx="box_dim", width="b32", ordinals=5, value="elements"),
    ReplaceField("dims", ptx="global_dim", width="b32", ordinals=5, value="elements; 2^32 does not fit"),
    ReplaceField(
        "strides_bytes", ptx="global_stride", width="b64", ordinals=4, value="bytes (toolkits before 12.5: bytes / 16)"
    ),
    ReplaceField("element_strides", ptx="element_stride", width="b32", ordinals=5, value="elements"),
    ReplaceField(
        "data_type", ptx="elemtype", width="b32", ordinals=0, value="PTX type code, immediate; 13..15 from sm_100 on"
    ),
    ReplaceField(
        "interleave", ptx="interleave_layout", width="b32", ordinals=0, value="0 none, 1 16B, 2 32B, immediate"
    ),
    ReplaceField(
        "swizzle",
        ptx="swizzle_mode",
        width="b32",
        ordinals=0,
        value="0 none, 1 32B, 2 64B, 3 128B, immediate; 4 (96B) on sm_103a",
    ),
    ReplaceField(
        "swizzle",
        ptx="swizzle_atomicity",
        width="b32",
        ordinals=0,
        value="0 16B, 1 32B, 2 32B + 8B flip, 3 64B, immediate; from sm_100 on",
    ),
    ReplaceField("oob_fill", ptx="fill_mode", width="b32", ordinals=0, value="0 zero, 1 nan, immediate"),
)
REPLACE_FIELDS = {row.ptx: row for row in _ROWS}
PUBLISHING = (
    "edit the copy of the map in shared memory (one thread), then __syncwarp()",
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [gmem], [smem], 128;  (whole warp)",
    "fence.proxy.tensormap::generic.acquire.gpu [gmem], 128;  (in the consumer, before its first copy)",
)


_WORD_FIELDS = {  # of the descriptor, by PTX field; {} is the place of an entry
    "global_address": "address",
    "rank": "rank",
    "box_dim": "box[{}]",
    "global_dim": "dims[{}]",
    "element_stride": "element_strides[{}]",
    "interleave_layout": "interleave",
    "swizzle_mode": "swizzle",
    "fill_mode": "oob_fill",
}


def edited_descriptor(blob: bytes, field: str, value: int, ordinal: int = 0) -> bytes:
    """The 128 bytes of a map after tensormap.replace wrote `value` to a field (its PTX name): nothing is checked.

    What follows from other fields, such as the bytes of the box, stays as it was.

    >>> from tilescope.tensor_map import TensorMap, decode_tensor_map
    >>> blob = TensorMap("bf16", (64, 64), (128,), (64, 64)).encode()
    >>> decode_tensor_map(edited_descriptor(blob, "box_dim", 32, ordinal=1)).box
    (64, 32)
    """
    form = FORMATS[False, MAX_RANK]
    written = {}
    if field == "global_stride":
        written = {f"strides_bytes[{ordinal}]": value, f"strides_bytes[{ordinal}] high": value}
    elif field == "elemtype":
        written = element_type_fields(value)
    else:
        name = _WORD_FIELDS[field].format(ordinal)
        written = {name: value + form.field(name).first if field == "rank" else value}  # the instruction takes rank - 1
    word = int.from_bytes(blob, "little")
    for name, number in written.items():
        place = form.field(name)
        word = word & ~place.mask | place.place(number)
    return word.to_bytes(DESCRIPTOR_BYTES, "little")


class KeptValue(NamedTuple):
    """What a field of a map keeps of a number that tensormap.replace writes there at run time."""

    limit: str
    least: int
    most: int
    step: int = 1
    how: str | None = None  # to return the stored value

    def nearest(self, value: int) -> int:
        """The next value from this one on that the map keeps, or the last.

        >>> KEPT_VALUES["global_stride"].nearest(120), KEPT_VALUES["box_dim"].nearest(300)
        (128, 256)
        """
        return min(max(value + -value % self.step, self.least), self.most)


KEPT_VALUES = {  # by PTX field; a dim of 0 is stored as 2^32, and is often that of an empty group, which is not loaded
    "global_address": KeptValue(
        "a map stores addresses below 2^57", 0, ADDRESS_END - ALIGNMENT_BYTES, step=ALIGNMENT_BYTES
    ),
    "global_stride": KeptValue(
        "a map stores strides as multiples of 16 bytes, below 2^40",
        0,
        STRIDE_END_BYTES - ALIGNMENT_BYTES,
        step=ALIGNMENT_BYTES,
        how="pad the rows to a multiple of 16 bytes",
    ),
    "box_dim": KeptValue("a map stores boxes of 1 to 256 elements", 1, LARGEST_BOX_EXTENT),
    "element_stride": KeptValue("a map stores element strides of 1 to 8", 1, LARGEST_ELEMENT_STRIDE),
}


def kept_value(blob: bytes, field: str, ordinal: int = 0) -> int:
    """What the 128 bytes of a map hold in a field of KEPT_VALUES (its PTX name).

    >>> from tilescope.tensor_map import TensorMap
    >>> blob = TensorMap("bf16", (64, 64), (128,), (64, 64)).encode()
    >>> kept_value(edited_descriptor(blob, "global_stride", 120), "global_stride")
    112
    """
    form = FORMATS[False, MAX_RANK]
    word = int.from_bytes(blob, "little")
    names = [f"strides_bytes[{ordinal}]", f"strides_bytes[{ordinal}] high"]
    if field != "global_stride":
        names = [_WORD_FIELDS[field].format(ordinal)]
    return sum(form.field(name).extract(word) for name in names)


def is_in_rank(blob: bytes, field: str, ordinal: int) -> bool:
    """Whether a map of this rank has the entry: copies ignore those beyond."""
    rank = FORMATS[False, MAX_RANK].field("rank").extract(int.from_bytes(blob, "little"))
    entries = {"global_address": 1, "global_stride": rank - 1}.get(field, rank)
    return ordinal < entries


_REPLACEABLE = tuple(sorted({row.argument for row in REPLACE_FIELDS.values()}))
REPLACE_FIELD = rule(
    "replace-field",
    "tensormap.replace changes a tiled map's address, shape, type, swizzle, interleave and fill; "
    "cuTensorMapReplaceAddress changes only the address.",
    argument="{field}",
    found="{field} of a {subject} map",
    limit="tensormap.replace writes {replaceable:, }: a tiled map's fields",
    fix="Encode another map with this {field}.",
    source=f"{PTX_REPLACE}; cuda.h, cuTensorMapReplaceAddress",
    basis="documented",
    subjects=("replacement",),
    architectures=architectures_with("tma"),
    passing='ts.TensorMap("u8", (64,), (), (64,)).replace(address=0x1000)',
    failing='ts.TensorMap("u8", (64,), (), (64,)).replace(l2_promotion="128B")',
)
_REPLACE_IN_IM2COL = REPLACE_FIELD.worded(
    limit="tensormap.replace writes {replaceable:, }: an im2col map's address only"
)
_REPLACE_ARCH = REPLACE_FIELD.worded(
    argument="arch",
    found="arch = {arch}",
    limit="tensormap.replace needs sm_90a or later",
    fix="Replace the address alone, on the host.",
)
_REPLACE_EXTENT = REPLACE_FIELD.worded(
    argument="dims",
    found="a dim of 2^32 elements",
    limit="global_dim is written with 32 bits",
    fix="Use 2^32 - 1, or encode another map.",
)
_DIM_END = 1 << 32  # what 32 bits do not hold, and a map may have


def replacement_fields(a: MapRecord, arguments: Container[str], fields: Mapping[str, object]) -> dict[str, object]:
    """The fields to change of a map that has these constructor `arguments`; refuses what the instruction cannot write."""
    problems = [problem for name in fields for problem in _field_problems(a, arguments, name)]
    if set(fields) != {"address"} and not a.arch.has("tensormap_replace"):
        problems.append(_REPLACE_ARCH.violation(arch=a.arch.name))
    unread: list[Violation] = []  # what is no sequence of integers is refused where the map is made
    no_dims: tuple[int, ...] = ()
    if _DIM_END in try_read(unread, no_dims, integers, "dims", fields.get("dims", ())):
        problems.append(_REPLACE_EXTENT.violation(dim=_DIM_END))
    if problems:
        raise TensorMapError(problems)
    return dict(fields)


def _field_problems(a: MapRecord, arguments: Container[str], name: str) -> list[Violation]:
    """Why the instruction does not write this field of such a map."""
    is_tiled = a.subject == "tiled"
    if name in _REPLACEABLE and (is_tiled or name == "address"):
        return []
    if name not in arguments:
        return [unknown_name("argument", name, name, _REPLACEABLE)]
    wording = REPLACE_FIELD.wording if is_tiled else _REPLACE_IN_IM2COL
    return [wording.violation(field=name, subject=a.subject, replaceable=_REPLACEABLE)]
