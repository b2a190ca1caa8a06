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
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from tilescope.bits import WordField, WordFormat, ones
from tilescope.data_type import DATA_TYPE
from tilescope.errors import TensorMapError, counted
from tilescope.swizzle import SWIZZLE
from tilescope.tensor_map.checking import map_rule
from tilescope.tensor_map.option import INTERLEAVE, L2_PROMOTION, OOB_FILL
from tilescope.tensor_map.rules.samples import H200, MATRIX

DESCRIPTOR_BYTES = 128
WORD_BITS = 64
LARGEST_RANK = 5
CORNER_BITS = {3: 16, 4: 8, 5: 5}  # signed bits of a corner, by rank
SIZE_FLAG_BIT = WORD_BITS + 21  # some drivers set it, for some tensors wrongly
_TF32_CODE = 11  # PTX codes 11 and 12 are stored as 7 and 8 with the tf32 bit
_TF32_STEP = 4


_TYPE_NAMES = [
    row.name for row in sorted(DATA_TYPE.values(), key=lambda row: row.ptx_code or 0) if row.ptx_code is not None
]


def _counted(noun: str) -> Callable[[int], str]:
    return lambda value: counted(value, noun)


def _coded(names: Iterable[str]) -> Callable[[int], str]:
    known = tuple(names)
    return lambda code: known[code] if code < len(known) else f"no such code {code}"


# fmt: off
_COMMON = (
    #         name            first bit  last bit
    WordField("address",      0,         56,      says=hex),
    WordField("im2col",       64,        64,      says=_coded(("tiled", "im2col"))),
    WordField("rank",         64 + 4,    64 + 6,  first=1, says=_counted("dimension")),
    WordField("data_type",    64 + 7,    64 + 10, says=_coded(_TYPE_NAMES[:_TF32_CODE])),
    WordField("interleave",   64 + 11,   64 + 12, says=_coded(INTERLEAVE)),
    WordField("swizzle",      64 + 13,   64 + 14, says=_coded(("none", "32B", "64B", "128B"))),
    WordField("oob_fill",     64 + 15,   64 + 15, says=_coded(OOB_FILL)),
    WordField("tf32",         64 + 16,   64 + 16, says=_coded(("as it is", "rounded to tf32"))),
    WordField("l2_promotion", 64 + 17,   64 + 18, says=_coded(L2_PROMOTION)),
    WordField("box_bytes",    8 * 64,    9 * 64 - 1, says=_counted("byte")),
    WordField("repeat_bytes", 9 * 64,    10 * 64 - 1,
              says=lambda value: f"{value} bytes until the swizzle repeats" if value != 16 else "16: no swizzle"),
)
# fmt: on


def _field(name: str, low: int, width_bits: int, **more: Any) -> WordField:
    return WordField(name, low, low + width_bits - 1, **more)


def _of_dimension(i: int) -> tuple[WordField, ...]:
    """The fields of dimension i that both kinds of map have."""
    return (
        _field(f"dims[{i}]", 4 * 64 + 32 * i, 32, first=1, says=_counted("element")),
        _field(f"element_strides[{i}]", 6 * 64 + 32 + 3 * i, 3, first=1),
    )


def _of_stride(i: int) -> tuple[WordField, ...]:
    """A stride is kept in units of 16 bytes: 32 bits here, its upper four bits in word 3."""
    return (
        _field(
            f"strides_bytes[{i}]", 64 + 32 + 32 * i, 32, unit=16,
            says=lambda value: f"{value // 16} x 16 bytes = {value} bytes",
        ),
        _field(
            f"strides_bytes[{i}] high", 3 * 64 + 32 + 4 * i, 4, unit=1 << 36,
            says=lambda value: f"{value >> 36} x 2^36 bytes",
        ),
    )  # fmt: skip


def _of_box(i: int) -> WordField:
    return _field(f"box[{i}]", 6 * 64 + 56 + 8 * i, 8, first=1, says=_counted("element"))


def _of_corner(name: str, start: int, bits: int, i: int) -> WordField:
    return _field(f"{name}[{i}]", 7 * 64 + start + bits * i, bits, signed=True)


_COLUMN = (
    _field("channels_per_pixel", 6 * 64 + 56, 8, first=1, says=_counted("channel")),
    _field("pixels_per_column", 7 * 64 + 32, 10, first=1, says=_counted("pixel")),
)
_CORNERS = (("lower_corner", 0), ("upper_corner", 16))


def _format(is_im2col: bool, rank: int) -> WordFormat:
    """The fields of a map of this kind and rank."""
    shape = [each for i in range(min(rank, LARGEST_RANK)) for each in _of_dimension(i)]
    shape += [each for i in range(min(rank, LARGEST_RANK) - 1) for each in _of_stride(i)]
    if is_im2col:
        bits = CORNER_BITS[min(max(rank, 3), LARGEST_RANK)]  # bytes that are no map may claim any rank
        spatial = range(max(0, min(3, rank - 2)))
        shape += [_of_corner(name, start, bits, i) for name, start in _CORNERS for i in spatial]
        shape += _COLUMN
    else:
        shape += [_of_box(i) for i in range(min(rank, LARGEST_RANK))]
    return WordFormat("tensor map", DESCRIPTOR_BYTES * 8, (*_COMMON, *shape))


FORMATS = {(is_im2col, rank): _format(is_im2col, rank) for is_im2col in (False, True) for rank in range(1, 9)}
# What encoding needs of each field.
_PACKING = {
    key: tuple((field.low, field.unit, field.first, field.mask) for field in form.fields)
    for key, form in FORMATS.items()
}
# The names of the entries of each sequence.
_ENTRIES = {
    name: tuple(f"{name}[{i}]" for i in range(LARGEST_RANK))
    for name in ("dims", "element_strides", "strides_bytes", "box", "lower_corner", "upper_corner")
} | {"strides high": tuple(f"strides_bytes[{i}] high" for i in range(LARGEST_RANK))}

encode_measured = map_rule(
    "encode-measured", "encode() writes what was measured: sm_90 maps, tiled and im2col.", source=H200,
    subjects=("encoding",), architectures=("sm_90",), passing=MATRIX, failing=MATRIX | {"arch": "sm_100"},
)  # fmt: skip


def encoded(a: Any) -> bytes:
    """The 128 bytes of a map, as the driver writes them on sm_90."""
    if a.arch.name != "sm_90" or a.subject == "wide":
        raise TensorMapError([encode_measured.violation(
            "arch", f"a {a.kind} for {a.arch.name}",
            "the descriptor's bits were measured on sm_90 for tiled and im2col maps",
            "Let the driver of that card encode it.",
        )])  # fmt: skip
    word = 0
    for (low, unit, first, mask), value in zip(_PACKING[a.subject == "im2col", len(a.dims)], _values(a), strict=True):
        word |= (value - first) // unit << low & mask
    return word.to_bytes(DESCRIPTOR_BYTES, "little")


def _values(a: Any) -> list[int]:
    """The value of every field of a map, in the order of its format."""
    code = a.data_type.ptx_code
    is_tf32 = code >= _TF32_CODE
    values = [
        a.address, a.subject == "im2col", len(a.dims), code - _TF32_STEP if is_tf32 else code, a.interleave.driver_code,
        a.swizzle.driver_code, a.oob_fill.driver_code, is_tf32, a.l2_promotion.driver_code, a.box_bytes,
        a.swizzle.repeat_bytes if a.swizzle.bits else 16,
    ]  # fmt: skip
    for pair in zip(a.dims, a.element_strides, strict=True):
        values += pair
    for stride in a.strides_bytes:  # its low and its high field take their own bits of it
        values += (stride, stride)
    if a.subject == "tiled":
        return [*values, *a.box]
    return [*values, *a.lower_corner, *a.upper_corner, a.channels_per_pixel, a.pixels_per_column]


def arguments_of(values: Mapping[str, int]) -> dict[str, Any]:
    """The arguments of the map whose fields hold these values; None for a code that stands for nothing."""
    rank = min(values["rank"], LARGEST_RANK)
    code = values["data_type"] + (_TF32_STEP if values["tf32"] else 0)
    by_code = {row.ptx_code: row.name for row in DATA_TYPE.values() if row.ptx_code is not None}
    arguments: dict[str, Any] = {
        "data_type": by_code.get(code) if (code >= _TF32_CODE) == bool(values["tf32"]) else None,
        "interleave": _row_name(INTERLEAVE, values["interleave"]),
        "swizzle": _row_name(SWIZZLE, values["swizzle"]),
        "l2_promotion": _row_name(L2_PROMOTION, values["l2_promotion"]),
        "oob_fill": _row_name(OOB_FILL, values["oob_fill"]),
        "address": values["address"],
        "dims": tuple(values[name] for name in _ENTRIES["dims"][:rank]),
        "element_strides": tuple(values[name] for name in _ENTRIES["element_strides"][:rank]),
        "strides_bytes": tuple(
            values[low] + values[high]
            for low, high in zip(_ENTRIES["strides_bytes"][: rank - 1], _ENTRIES["strides high"], strict=False)
        ),
    }
    if not values["im2col"]:
        return arguments | {"box": tuple(values[name] for name in _ENTRIES["box"][:rank])}
    corners = {name: tuple(values[entry] for entry in _ENTRIES[name] if entry in values) for name, _ in _CORNERS}
    return arguments | corners | {name: values[name] for name in ("channels_per_pixel", "pixels_per_column")}


def _row_name(table: Mapping[str, Any], code: int) -> str | None:
    return next((name for name, row in table.items() if row.driver_code == code), None)


def format_of(bits: int) -> WordFormat:
    """The fields of 1024 bits, whatever they are: by whether they claim to be an im2col map, and of which rank."""
    return FORMATS[bool(bits >> WORD_BITS & 1), (bits >> WORD_BITS + 4 & 7) + 1]


def left_over(bits: int) -> tuple[int, ...]:
    """Bits that are set in fields of dimensions which the map does not have.

    The driver sets none; tensormap.replace leaves them behind when it lowers the rank.
    """
    known = format_of(bits)
    whole = FORMATS[False, LARGEST_RANK].covered
    return () if bits >> WORD_BITS & 1 else ones(bits & ~known.covered & whole)


class Place(NamedTuple):
    """Where a field stands; `rank` where that depends on it, 0 where it does not."""

    name: str
    bit: int
    width_bits: int
    rank: int


def field_places() -> list[Place]:
    """The places of all fields, by their bits.

    >>> [each for each in field_places() if each.name == "lower_corner[1]"]
    [Place(name='lower_corner[1]', bit=456, width_bits=8, rank=4), Place(name='lower_corner[1]', bit=453, width_bits=5, rank=5)]
    """
    found: dict[str, dict[tuple[int, int], set[int]]] = {}
    for (_, rank), form in FORMATS.items():
        for field in form.fields:
            if rank <= LARGEST_RANK:
                found.setdefault(field.name, {}).setdefault((field.low, field.width_bits), set()).add(rank)
    places = [
        Place(name, *where, max(ranks) if len(wheres) > 1 or name.startswith(("lower", "upper")) else 0)
        for name, wheres in found.items()
        for where, ranks in wheres.items()
    ]
    return sorted(places, key=lambda place: (place.name, place.rank))
