"""The 128 bytes of a CUtensorMap on sm_90: one table of fields, read and written.

Sixteen little-endian 64-bit words. NVIDIA keeps the layout private; this is what an H200 under driver
580 writes, held against 80,000 tiled and 40,000 im2col maps. Read, compare and test with it; a program
that launches kernels asks the driver.

    word 0   │ address ······························································ 0-56 │
    word 1   │ stride[0] / 16 ·············· 32-63 │ l2 │tf32│fill│swz│intl│ type │ rank-1 │ im2col │
    word 2-3 │ stride[1..3] / 16, then the upper four bits of each stride
    word 4-6 │ dims[i] - 1, 32 bits each; element_strides[i] - 1, 3 bits each; box[0] - 1
    word 7   │ box[1..4] - 1            im2col: lower corners, upper corners, pixels - 1
    word 8   │ bytes of the box         word 9: bytes after which the swizzle repeats (16 for none)

On the device an encoded map is edited field by field:

    tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [map], 1, 32;      box[1] = 32

The instruction checks nothing; `replace` of a map checks the result like any other map. An edited map must be published before
a copy may use it (`PUBLISHING`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from tilescope.arch import architectures_with
from tilescope.bits import WordField, WordFormat
from tilescope.data_type import DATA_TYPE
from tilescope.errors import TensorMapError, Violation, unknown_name
from tilescope.reading import attempted, integers
from tilescope.rule import rule
from tilescope.sentence import counted
from tilescope.swizzle import SWIZZLE
from tilescope.tensor_map.option import INTERLEAVE, L2_PROMOTION, OOB_FILL
from tilescope.tensor_map.samples import H200, PTX_REPLACE

if TYPE_CHECKING:
    from tilescope.tensor_map.any_map import AnyMap
    from tilescope.tensor_map.kinds import Im2colMap, TensorMap

DESCRIPTOR_BYTES = 128
WORD_BITS = 64
MAX_RANK = 5
CORNER_BITS = {3: 16, 4: 8, 5: 5}  # signed bits of a corner, by rank
SIZE_FLAG_BIT = WORD_BITS + 21  # some drivers set it, for some tensors wrongly
_STRIDE_UNIT_BYTES = 16
_HIGH_STRIDE_BITS = 36  # of a stride in bytes, below those of its high field
_NO_REPEAT_BYTES = 16  # what stands in repeat_bytes without a swizzle
_ENCODED_ARCH = "sm_90"

# PTX codes 11 and 12 are stored as 7 and 8 with the tf32 bit.
_TYPES = {
    (row.ptx_code - 4 if row.ptx_code >= 11 else row.ptx_code, int(row.ptx_code >= 11)): row.name
    for row in DATA_TYPE.values()
    if row.ptx_code is not None
}
_TYPE_CODES = {name: code for code, name in _TYPES.items()}
_NAMES = {  # in the order of their codes
    "interleave": tuple(INTERLEAVE),
    "swizzle": ("none", "32B", "64B", "128B"),
    "l2_promotion": tuple(L2_PROMOTION),
    "oob_fill": tuple(OOB_FILL),
}


def _coded(names: Sequence[str]) -> Callable[[int], str]:
    """What a field says that holds a code: the name at that place."""

    def says(code: int) -> str:
        return names[code] if code < len(names) else f"no such code {code}"

    return says


def _repeat_in_words(value: int) -> str:
    return "16: no swizzle" if value == _NO_REPEAT_BYTES else f"{value} bytes until the swizzle repeats"


# fmt: off
_OPTIONS = (
    #         name            first bit  last bit
    WordField("im2col",       64,        64,      says=_coded(("tiled", "im2col"))),
    WordField("rank",         64 + 4,    64 + 6,  first=1, says=partial(counted, noun="dimension")),
    WordField("data_type",    64 + 7,    64 + 10, says=_coded([_TYPES[code, 0] for code in range(11)])),
    WordField("interleave",   64 + 11,   64 + 12, says=_coded(_NAMES["interleave"])),
    WordField("swizzle",      64 + 13,   64 + 14, says=_coded(_NAMES["swizzle"])),
    WordField("oob_fill",     64 + 15,   64 + 15, says=_coded(_NAMES["oob_fill"])),
    WordField("tf32",         64 + 16,   64 + 16, says=_coded(("as it is", "rounded to tf32"))),
    WordField("l2_promotion", 64 + 17,   64 + 18, says=_coded(_NAMES["l2_promotion"])),
    WordField("repeat_bytes", 9 * 64,    10 * 64 - 1, says=_repeat_in_words),
)
_NUMBERS = (
    WordField("address",      0,         56,         says=hex),
    WordField("box_bytes",    8 * 64,    9 * 64 - 1, says=partial(counted, noun="byte")),
)
_COLUMN = (
    WordField("channels_per_pixel", 6 * 64 + 56, 6 * 64 + 63, first=1, says=partial(counted, noun="channel")),
    WordField("pixels_per_column",  7 * 64 + 32, 7 * 64 + 41, first=1, says=partial(counted, noun="pixel")),
)
# fmt: on


class _Sequence(NamedTuple):
    """Where the entries of a sequence stand: side by side, `width_bits` each."""

    name: str
    low: int
    width_bits: int
    unit: int = 1
    first: int = 0
    signed: bool = False
    says: Callable[[int], str] = str

    def fields(self, count: int) -> Iterator[WordField]:
        """The fields of its first entries; {} in the name is the place of an entry."""
        for place in range(count):
            low = self.low + place * self.width_bits
            yield WordField(
                self.name.format(place),
                low,
                low + self.width_bits - 1,
                unit=self.unit,
                first=self.first,
                signed=self.signed,
                says=self.says,
            )


def _low_stride_in_words(value: int) -> str:
    return f"{value // _STRIDE_UNIT_BYTES} x 16 bytes = {value} bytes"


def _high_stride_in_words(value: int) -> str:
    return f"{value >> _HIGH_STRIDE_BITS} x 2^36 bytes"


_elements = partial(counted, noun="element")
_DIMS = _Sequence("dims[{}]", 4 * 64, 32, first=1, says=_elements)
_ELEMENT_STRIDES = _Sequence("element_strides[{}]", 6 * 64 + 32, 3, first=1)
# A stride is kept in units of 16 bytes: 32 bits in words 1 to 3, its upper four bits behind them.
_LOW_STRIDES = _Sequence("strides_bytes[{}]", 64 + 32, 32, unit=_STRIDE_UNIT_BYTES, says=_low_stride_in_words)
_HIGH_STRIDES = _Sequence(
    "strides_bytes[{}] high", 3 * 64 + 32, 4, unit=1 << _HIGH_STRIDE_BITS, says=_high_stride_in_words
)
_BOX = _Sequence("box[{}]", 6 * 64 + 56, 8, first=1, says=_elements)


def _format(is_im2col: bool, rank: int) -> WordFormat:
    """The fields of a map of this kind and rank; bytes that are no map may claim any rank."""
    rank = min(rank, MAX_RANK)
    shape = [
        *_DIMS.fields(rank),
        *_ELEMENT_STRIDES.fields(rank),
        *_LOW_STRIDES.fields(rank - 1),
        *_HIGH_STRIDES.fields(rank - 1),
    ]
    if is_im2col:
        bits = CORNER_BITS[max(rank, 3)]
        shape += _Sequence("lower_corner[{}]", 7 * 64, bits, signed=True).fields(rank - 2)
        shape += _Sequence("upper_corner[{}]", 7 * 64 + 16, bits, signed=True).fields(rank - 2)
        shape += _COLUMN
    else:
        shape += _BOX.fields(rank)
    return WordFormat("tensor map", DESCRIPTOR_BYTES * 8, (*_OPTIONS, *_NUMBERS, *shape))


FORMATS = {(is_im2col, rank): _format(is_im2col, rank) for is_im2col in (False, True) for rank in range(1, 9)}


class _Packing(NamedTuple):
    """What encoding needs of a field."""

    low: int
    unit: int
    first: int
    mask: int


_PACKING = {  # of the fields behind the options
    key: tuple(_Packing(field.low, field.unit, field.first, field.mask) for field in form.fields[len(_OPTIONS) :])
    for key, form in FORMATS.items()
}

ENCODE_MEASURED = rule(
    "encode-measured",
    "encode() writes what was measured: sm_90 maps, tiled and im2col.",
    argument="arch",
    found="a map for {arch}",
    limit="the descriptor's bits were measured on sm_90 for tiled and im2col maps",
    fix="Let the driver of that card encode it.",
    source=H200,
    basis="measured",
    subjects=("encoding",),
    architectures=(_ENCODED_ARCH,),
    passing='ts.TensorMap("u8", (64,), (), (64,)).encode()',
    failing='ts.TensorMap("u8", (64,), (), (64,), arch="sm_100").encode()',
)
_WIDE_MAP_MEASURED = ENCODE_MEASURED.worded(found="an im2col-wide map for {arch}")


def is_encodable(a: AnyMap) -> bool:
    """Whether the bits of such a map were measured."""
    return a.arch.name == _ENCODED_ARCH and a.subject != "wide"


def _is_im2col(a: AnyMap) -> TypeGuard[Im2colMap]:
    return a.subject == "im2col"


def _is_tiled(a: AnyMap) -> TypeGuard[TensorMap]:
    return a.subject == "tiled"


def encoded(a: AnyMap) -> bytes:
    """The 128 bytes of a map, as the driver writes them on sm_90."""
    if not is_encodable(a):
        told = _WIDE_MAP_MEASURED if a.subject == "wide" else ENCODE_MEASURED
        raise TensorMapError([told.violation(arch=a.arch.name)])
    is_im2col = a.subject == "im2col"
    rank = len(a.dims)
    word = _option_bits(
        is_im2col,
        rank,
        a.data_type.name,
        a.interleave.name,
        a.swizzle.name,
        a.l2_promotion.name,
        a.oob_fill.name,
    )
    # The low and the high field of a stride take their own bits of it.
    numbers = [a.address, a.box_bytes, *a.dims, *a.element_strides, *a.strides_bytes, *a.strides_bytes]
    if _is_tiled(a):
        numbers += a.box
    elif _is_im2col(a):
        numbers += [*a.lower_corner, *a.upper_corner, a.channels_per_pixel, a.pixels_per_column]
    for (low, unit, first, mask), number in zip(_PACKING[is_im2col, rank], numbers, strict=True):
        word |= (number - first) // unit << low & mask
    return word.to_bytes(DESCRIPTOR_BYTES, "little")


@cache  # a few thousand combinations at most
def _option_bits(is_im2col: bool, rank: int, data_type: str, *options: str) -> int:
    """The bits that maps with the same options share; the options stand in the order of `_NAMES`."""
    values = {name: names.index(option) for (name, names), option in zip(_NAMES.items(), options, strict=True)}
    swizzle = _NAMES["swizzle"][values["swizzle"]]
    code, tf32 = _TYPE_CODES[data_type]
    values |= {
        "im2col": int(is_im2col),
        "rank": rank,
        "data_type": code,
        "tf32": tf32,
        "repeat_bytes": _NO_REPEAT_BYTES if swizzle == "none" else SWIZZLE[swizzle].repeat_bytes,
    }
    return sum(field.place(values[field.name]) for field in _OPTIONS)


def arguments_of(values: Mapping[str, int]) -> dict[str, Any]:
    """The arguments of the map whose fields hold these values; None for a code that stands for nothing."""
    rank = min(values["rank"], MAX_RANK)
    arguments: dict[str, Any] = {"data_type": _TYPES.get((values["data_type"], values["tf32"]))}
    for name, names in _NAMES.items():
        code = values[name]
        arguments[name] = names[code] if code < len(names) else None
    low_strides = _held(values, "strides_bytes[{}]", rank - 1)
    high_strides = _held(values, "strides_bytes[{}] high", rank - 1)
    arguments |= {
        "address": values["address"],
        "dims": _held(values, "dims[{}]", rank),
        "element_strides": _held(values, "element_strides[{}]", rank),
        "strides_bytes": tuple(map(add, low_strides, high_strides)),
    }
    if not values["im2col"]:
        return arguments | {"box": _held(values, "box[{}]", rank)}
    return arguments | {
        "lower_corner": _held(values, "lower_corner[{}]", rank - 2),
        "upper_corner": _held(values, "upper_corner[{}]", rank - 2),
        "channels_per_pixel": values["channels_per_pixel"],
        "pixels_per_column": values["pixels_per_column"],
    }


def _held(values: Mapping[str, int], name: str, count: int) -> tuple[int, ...]:
    """The entries of a sequence."""
    return tuple([values[entry] for entry in _entry_names(name, count)])


@cache
def _entry_names(name: str, count: int) -> tuple[str, ...]:
    return tuple(name.format(place) for place in range(count))


def format_of(bits: int) -> WordFormat:
    """The fields of 1024 bits, whatever they are: by whether they claim to be an im2col map, and of which rank."""
    return FORMATS[bool(bits >> WORD_BITS & 1), (bits >> WORD_BITS + 4 & 7) + 1]


REPLACE = "tensormap.replace"


class ReplaceField(NamedTuple):
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


_REPLACEABLE = tuple(sorted({row.argument for row in REPLACE_FIELDS.values()}))
REPLACE_FIELD = rule(
    "replace-field",
    "tensormap.replace changes a tiled map's address, shape, type, swizzle, interleave and fill; cuTensorMapReplaceAddress an "
    "address alone.",
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


def replacement_fields(a: AnyMap, fields: Mapping[str, object]) -> dict[str, object]:
    """The fields of a map to change, after what the instruction itself cannot write was refused."""
    problems = [problem for name in fields for problem in _field_problems(a, name)]
    if set(fields) != {"address"} and not a.arch.has("tensormap_replace"):
        problems.append(_REPLACE_ARCH.violation(arch=a.arch.name))
    unread: list[Violation] = []  # what is no sequence of integers is refused where the map is made
    no_dims: tuple[int, ...] = ()
    if _DIM_END in attempted(unread, no_dims, integers, "dims", fields.get("dims", ())):
        problems.append(_REPLACE_EXTENT.violation(dim=_DIM_END))
    if problems:
        raise TensorMapError(problems)
    return dict(fields)


def _field_problems(a: AnyMap, name: str) -> list[Violation]:
    """Why the instruction does not write this field of such a map."""
    is_tiled = a.subject == "tiled"
    if name in _REPLACEABLE and (is_tiled or name == "address"):
        return []
    if name not in a.readers:
        return [unknown_name("argument", name, name, _REPLACEABLE)]
    told = REPLACE_FIELD.wording if is_tiled else _REPLACE_IN_IM2COL
    return [told.violation(field=name, subject=a.subject, replaceable=_REPLACEABLE)]


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
    """What `explain` says of tensormap.replace and of the fields, by name."""
    known = {REPLACE: MapTopic(REPLACE, _REPLACE_MEANING, ("tensor map", "replace-field"), tuple(_replace_facts()))}
    places = sorted(_field_places())
    for name, said in _FIELDS.items():
        facts = tuple((place.entry, place.in_words) for place in places if place.field == name)
        known[f"field {name}"] = MapTopic(f"field {name}", said, ("tensor map", REPLACE), facts)
    return known


def _replace_facts() -> Iterator[tuple[str, str]]:
    """The fields of tensormap.replace and how each is written, what cannot be replaced, and how an edit is published."""
    for row in REPLACE_FIELDS.values():
        index = f", index 0 to {row.ordinals - 1}" if row.ordinals else ""
        yield row.ptx, f"{row.width}{index}: {row.value}"
    yield "cannot be replaced", "L2 promotion; whatever im2col maps have beside their address"
    for number, said in enumerate(PUBLISHING, 1):
        yield f"publish, {number}", said


class _FieldPlace(NamedTuple):
    """Where a field stands, or an entry of it; sorted, a field's entries follow each other."""

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
    asked = " ".join(name.casefold().split()).removeprefix("field ").replace("-", "_")
    general = _with_index(asked)
    spelled = {alias.casefold(): known for alias, known in TOPIC_SPELLINGS.items()} | {REPLACE: REPLACE}
    return topics().get(spelled.get(general) or spelled.get(general.removesuffix("[i]"), ""))
