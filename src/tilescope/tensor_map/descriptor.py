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
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from operator import add
from typing import Any, NamedTuple

from tilescope.bits import WordField, WordFormat
from tilescope.data_type import DATA_TYPE
from tilescope.errors import RuleError, TensorMapError, unknown_name
from tilescope.reading import integers
from tilescope.sentence import counted
from tilescope.swizzle import SWIZZLE
from tilescope.tensor_map.checking import stated
from tilescope.tensor_map.option import INTERLEAVE, L2_PROMOTION, OOB_FILL
from tilescope.tensor_map.samples import H200, PTX_REPLACE

DESCRIPTOR_BYTES = 128
WORD_BITS = 64
MAX_RANK = 5
CORNER_BITS = {3: 16, 4: 8, 5: 5}  # signed bits of a corner, by rank
SIZE_FLAG_BIT = WORD_BITS + 21  # some drivers set it, for some tensors wrongly

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
    return lambda code: names[code] if code < len(names) else f"no such code {code}"


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
    WordField("repeat_bytes", 9 * 64,    10 * 64 - 1,
              says=lambda value: f"{value} bytes until the swizzle repeats" if value != 16 else "16: no swizzle"),
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


def _entries(name: str, count: int, low: int, width_bits: int, **more: Any) -> Iterable[WordField]:
    """The fields of a sequence, side by side; {} in `name` is the place of an entry."""
    for place in range(count):
        start = low + place * width_bits
        yield WordField(name.format(place), start, start + width_bits - 1, **more)


def _format(is_im2col: bool, rank: int) -> WordFormat:
    """The fields of a map of this kind and rank; bytes that are no map may claim any rank."""
    rank = min(rank, MAX_RANK)
    elements = partial(counted, noun="element")
    # A stride is kept in units of 16 bytes: 32 bits in words 1 to 3, its upper four bits behind them.
    low_stride = {"unit": 16, "says": lambda value: f"{value // 16} x 16 bytes = {value} bytes"}
    high_stride = {"unit": 1 << 36, "says": lambda value: f"{value >> 36} x 2^36 bytes"}
    shape = [
        *_entries("dims[{}]", rank, 4 * 64, 32, first=1, says=elements),
        *_entries("element_strides[{}]", rank, 6 * 64 + 32, 3, first=1),
        *_entries("strides_bytes[{}]", rank - 1, 64 + 32, 32, **low_stride),
        *_entries("strides_bytes[{}] high", rank - 1, 3 * 64 + 32, 4, **high_stride),
    ]
    if is_im2col:
        bits = CORNER_BITS[max(rank, 3)]
        shape += _entries("lower_corner[{}]", rank - 2, 7 * 64, bits, signed=True)
        shape += _entries("upper_corner[{}]", rank - 2, 7 * 64 + 16, bits, signed=True)
        shape += _COLUMN
    else:
        shape += _entries("box[{}]", rank, 6 * 64 + 56, 8, first=1, says=elements)
    return WordFormat("tensor map", DESCRIPTOR_BYTES * 8, (*_OPTIONS, *_NUMBERS, *shape))


FORMATS = {(is_im2col, rank): _format(is_im2col, rank) for is_im2col in (False, True) for rank in range(1, 9)}
# What encoding needs of the fields behind the options.
_PACKING = {
    key: tuple((field.low, field.unit, field.first, field.mask) for field in form.fields[len(_OPTIONS) :])
    for key, form in FORMATS.items()
}

encode_measured = stated(
    "encode-measured",
    "encode() writes what was measured: sm_90 maps, tiled and im2col.",
    "{kind} for {a.arch.name}",
    "the descriptor's bits were measured on sm_90 for tiled and im2col maps",
    "Let the driver of that card encode it.",
    argument="arch",
    source=H200,
    subjects=("encoding",),
    architectures=("sm_90",),
    passing='ts.TensorMap("u8", (64,), (), (64,)).encode()',
    failing='ts.TensorMap("u8", (64,), (), (64,), arch="sm_100").encode()',
)


def encoded(a: Any) -> bytes:
    """The 128 bytes of a map, as the driver writes them on sm_90."""
    if a.arch.name != "sm_90" or a.subject == "wide":
        kind = "an im2col-wide map" if a.subject == "wide" else "a map"
        raise TensorMapError([encode_measured.told(a, kind=kind)])
    key = a.subject == "im2col", len(a.dims)
    word = _option_bits(*key, a.data_type.name, a.interleave.name, a.swizzle.name, a.l2_promotion.name, a.oob_fill.name)
    # The low and the high field of a stride take their own bits of it.
    numbers = [a.address, a.box_bytes, *a.dims, *a.element_strides, *a.strides_bytes, *a.strides_bytes]
    numbers += [*a.lower_corner, *a.upper_corner, a.channels_per_pixel, a.pixels_per_column] if key[0] else a.box
    for (low, unit, first, mask), number in zip(_PACKING[key], numbers, strict=True):
        word |= (number - first) // unit << low & mask
    return word.to_bytes(DESCRIPTOR_BYTES, "little")


@cache  # a few thousand combinations at most
def _option_bits(is_im2col: bool, rank: int, data_type: str, *options: str) -> int:
    """The bits that maps with the same options share; the options stand in the order of `_NAMES`."""
    values = {name: names.index(option) for (name, names), option in zip(_NAMES.items(), options, strict=True)}
    repeat_bytes = SWIZZLE[_NAMES["swizzle"][values["swizzle"]]].repeat_bytes if values["swizzle"] else 16
    code, tf32 = _TYPE_CODES[data_type]
    values |= {"im2col": is_im2col, "rank": rank, "data_type": code, "tf32": tf32, "repeat_bytes": repeat_bytes}
    return sum(field.place(values[field.name]) for field in _OPTIONS)


def arguments_of(values: Mapping[str, int]) -> dict[str, Any]:
    """The arguments of the map whose fields hold these values; None for a code that stands for nothing."""
    rank = min(values["rank"], MAX_RANK)
    shape = tuple(values.values())[len(_OPTIONS) + len(_NUMBERS) :]
    low, high, rest = 2 * rank, 3 * rank - 1, 4 * rank - 2
    arguments: dict[str, Any] = {"data_type": _TYPES.get((values["data_type"], values["tf32"]))}
    arguments |= {name: dict(enumerate(names)).get(values[name]) for name, names in _NAMES.items()}
    arguments |= {
        "address": values["address"],
        "dims": shape[:rank],
        "element_strides": shape[rank:low],
        "strides_bytes": tuple(map(add, shape[low:high], shape[high:rest])),
    }
    if not values["im2col"]:
        return arguments | {"box": shape[rest:]}
    corner = (len(shape) + rest) // 2 - 1  # channels and pixels stand behind the corners
    arguments |= {"lower_corner": shape[rest:corner], "upper_corner": shape[corner:-2]}
    return arguments | dict(zip(("channels_per_pixel", "pixels_per_column"), shape[-2:], strict=True))


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


replace_field = stated(
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
    replaceable = sorted({row.argument for row in REPLACE_FIELDS.values()})
    which = "a tiled map's fields" if a.subject == "tiled" else "an im2col map's address only"
    limit, fix = f"tensormap.replace writes {', '.join(replaceable)}: {which}", "Encode another map with this {}."
    problems = [
        replace_field.told(argument=name, found=f"{name} of a {a.subject} map", limit=limit, fix=fix.format(name))
        if name in a.readers
        else unknown_name("argument", name, name, replaceable)
        for name in fields
        if name not in replaceable or (a.subject != "tiled" and name != "address")
    ]
    if set(fields) != {"address"} and not a.arch.has("tensormap_replace"):
        facts = {"argument": "arch", "found": f"arch = {a.arch.name}", "fix": "Replace the address alone, on the host."}
        problems.append(replace_field.told(limit="tensormap.replace needs sm_90a or later", **facts))
    with suppress(RuleError):  # what is no sequence of integers is refused where the map is made
        if 1 << 32 in integers("dims", fields.get("dims", ())):
            facts = {"limit": "global_dim is written with 32 bits", "fix": "Use 2^32 - 1, or encode another map."}
            problems.append(replace_field.told(argument="dims", found="a dim of 2^32 elements", dim=1 << 32, **facts))
    if problems:
        raise TensorMapError(problems)
    return dict(fields)


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


@cache
def topics() -> dict[str, MapTopic]:
    """What `explain` says of tensormap.replace and of the fields, by name."""
    meaning = (
        "Edits one field of a tiled tensor map on the device: `tensormap.replace.tile.FIELD.shared::cta.b1024.b32 [map], "
        "(index,) value`. It exists on sm_90a and later targets with a or f, and checks nothing: an edited map must keep "
        "every rule that the driver would have checked. On the host, cuTensorMapReplaceAddress changes the address alone, "
        "of any kind of map. A copy may use an edited map only after it was published with the fences below."
    )
    facts = [
        (row.ptx, f"{row.width}{f', index 0 to {row.ordinals - 1}' if row.ordinals else ''}: {row.value}")
        for row in REPLACE_FIELDS.values()
    ]
    facts += [("cannot be replaced", "L2 promotion; whatever im2col maps have beside their address")]
    facts += [(f"publish, {number}", said) for number, said in enumerate(PUBLISHING, 1)]
    known = {REPLACE: MapTopic(REPLACE, meaning, ("tensor map", "replace-field"), tuple(facts))}
    places = {  # those of corners depend on the rank
        (re.sub(r"\[\d\]", "[i]", field.name), field.name, rank if "corner" in field.name else 0, field.low, field.high)
        for (_, rank), form in FORMATS.items()
        if rank <= MAX_RANK
        for field in form.fields
    }
    for name, said in _FIELDS.items():
        facts = []
        for _, entry, rank, low, high in sorted(place for place in places if place[0] == name):
            bits = f"bits {low % WORD_BITS}-{high % WORD_BITS}" if high > low else f"bit {low % WORD_BITS}"
            facts.append((entry, f"word {low // WORD_BITS}, {bits}" + (f" (rank {rank})" if rank else "")))
        known[f"field {name}"] = MapTopic(f"field {name}", said, ("tensor map", REPLACE), tuple(facts))
    return known


def topic(name: str) -> MapTopic | None:
    """The topic of that name: "field box[1]", "box[1]", "globalDim", "tensormap.replace"."""
    asked = " ".join(name.casefold().split()).removeprefix("field ").replace("-", "_")
    general = re.sub(r"\[\d\]", "[i]", asked)
    spelled = {alias.casefold(): known for alias, known in TOPIC_SPELLINGS.items()} | {REPLACE: REPLACE}
    return topics().get(spelled.get(general) or spelled.get(general.removesuffix("[i]"), ""))
