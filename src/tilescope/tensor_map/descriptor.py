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

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tilescope.data_type import DATA_TYPE
from tilescope.errors import TensorMapError
from tilescope.tensor_map.checking import map_rule
from tilescope.tensor_map.geometry import Geometry
from tilescope.tensor_map.rules.im2col import CORNER_BITS
from tilescope.tensor_map.rules.samples import H200, MATRIX
from tilescope.value import Value, hex_field

DESCRIPTOR_BYTES = 128
WORD_BITS = 64
LARGEST_RANK = 5
SIZE_FLAG_BIT = WORD_BITS + 21  # some drivers set it for large tensors, and CUTLASS clears it: ignored
_TF32_CODE = 11  # PTX codes 11 and 12 are stored as 7 and 8 with the tf32 bit


@dataclass(frozen=True, slots=True)
class DescriptorField(Value):
    """One field of a descriptor: where it is, what it holds, and what that means.

    >>> DescriptorField("rank", 68, 3, 1, "2 dimensions").word
    1
    """

    name: str
    bit: int  # first bit, counted through all sixteen words
    width_bits: int
    raw: int = hex_field()
    meaning: str = ""

    @property
    def word(self) -> int:
        """The 64-bit word that holds it."""
        return self.bit // WORD_BITS


@dataclass(frozen=True, slots=True)
class _Field:
    """A row of the table: its place, the number stored for a map, and that number in words."""

    name: str
    bit: int
    width_bits: int
    stored: Callable[[Any], int]  # from a map
    meaning: Callable[[int], str] = str

    @property
    def mask(self) -> int:
        return ((1 << self.width_bits) - 1) << self.bit


def _plus_one(what: str) -> Callable[[int], str]:
    return lambda raw: f"{raw + 1} {what}{'s' if raw and what else ''}".strip()


def _coded(table: Iterable[str]) -> Callable[[int], str]:
    names = tuple(table)
    return lambda raw: names[raw] if raw < len(names) else f"no such code {raw}"


def _type_code(a: Geometry) -> int:
    code = a.data_type.ptx_code
    assert code is not None  # a map holds one of the driver's sixteen types
    return code - 4 if code >= _TF32_CODE else code


_TYPE_NAMES = tuple(
    sorted(
        (row.name for row in DATA_TYPE.values() if row.ptx_code is not None),
        key=lambda name: DATA_TYPE[name].ptx_code or 0,
    )
)[:_TF32_CODE]


def _signed(bits: int) -> Callable[[int], str]:
    return lambda raw: str(raw - (1 << bits) if raw >> (bits - 1) else raw)


# fmt: off
_COMMON = (
    #      name            bit       width  stored                                        in words
    _Field("address",      0,           57, lambda a: a.address, hex),
    _Field("im2col",       64,           1, lambda a: int(a.subject == "im2col"), _coded(("tiled", "im2col"))),
    _Field("rank",         64 + 4,       3, lambda a: a.rank - 1, _plus_one("dimension")),
    _Field("data_type",    64 + 7,       4, _type_code, _coded(_TYPE_NAMES)),
    _Field("interleave",   64 + 11,      2, lambda a: a.interleave.driver_code, _coded(("none", "16B", "32B"))),
    _Field("swizzle",      64 + 13,      2, lambda a: a.swizzle.driver_code, _coded(("none", "32B", "64B", "128B"))),
    _Field("oob_fill",     64 + 15,      1, lambda a: a.oob_fill.driver_code, _coded(("zero", "nan"))),
    _Field("tf32",         64 + 16,      1, lambda a: int(a.data_type.ptx_code >= _TF32_CODE),
           _coded(("as it is", "rounded to tf32"))),
    _Field("l2_promotion", 64 + 17,      2, lambda a: a.l2_promotion.driver_code,
           _coded(("none", "64B", "128B", "256B"))),
    _Field("box_bytes",    8 * 64,      64, lambda a: a.box_bytes, lambda raw: f"{raw} bytes"),
    _Field("repeat_bytes", 9 * 64,      64, lambda a: a.swizzle.repeat_bytes if a.swizzle.bits else 16,
           lambda raw: f"{raw} bytes until the swizzle repeats" if raw != 16 else "16: no swizzle"),
)


def _of_dimension(i: int) -> tuple[_Field, ...]:
    """The fields of dimension i that both kinds of map have."""
    return (
        _Field(f"dims[{i}]", 4 * 64 + 32 * i, 32, lambda a: a.dims[i] - 1, _plus_one("element")),
        _Field(f"element_strides[{i}]", 6 * 64 + 32 + 3 * i, 3, lambda a: a.element_strides[i] - 1, _plus_one("")),
    )


def _of_stride(i: int) -> tuple[_Field, ...]:
    """A stride is kept in units of 16 bytes: 32 bits here, its upper four bits in word 3."""
    return (
        _Field(f"strides_bytes[{i}]", 64 + 32 + 32 * i, 32, lambda a: a.strides_bytes[i] // 16 & 0xFFFFFFFF,
               lambda raw: f"{raw} x 16 bytes = {raw * 16} bytes"),
        _Field(f"strides_bytes[{i}] high", 3 * 64 + 32 + 4 * i, 4, lambda a: a.strides_bytes[i] // 16 >> 32,
               lambda raw: f"{raw} x 2^36 bytes"),
    )


def _of_box(i: int) -> _Field:
    return _Field(f"box[{i}]", 6 * 64 + 56 + 8 * i, 8, lambda a: a.box[i] - 1, _plus_one("element"))


def _of_corner(name: str, start: int, bits: int, i: int) -> _Field:
    return _Field(f"{name}[{i}]", 7 * 64 + start + bits * i, bits, lambda a: getattr(a, name)[i] & ((1 << bits) - 1),
                  _signed(bits))


_CHANNELS = _Field("channels_per_pixel", 6 * 64 + 56, 8, lambda a: a.channels_per_pixel - 1, _plus_one("channel"))
_PIXELS = _Field("pixels_per_column", 7 * 64 + 32, 10, lambda a: a.pixels_per_column - 1, _plus_one("pixel"))
# fmt: on


def _table(is_im2col: bool, rank: int) -> tuple[_Field, ...]:
    """The fields of a map of this kind and rank, in the order of their bits."""
    shape = [each for i in range(min(rank, 5)) for each in _of_dimension(i)]
    shape += [each for i in range(min(rank, 5) - 1) for each in _of_stride(i)]
    if is_im2col:
        bits = CORNER_BITS[min(max(rank, 3), 5)]  # bytes that are no map may claim any rank
        spatial = range(max(0, min(3, rank - 2)))
        shape += [_of_corner(name, start, bits, i) for name, start in _CORNERS for i in spatial]
        shape += [_CHANNELS, _PIXELS]
    else:
        shape += [_of_box(i) for i in range(min(rank, 5))]
    return tuple(sorted([*_COMMON, *shape], key=lambda each: each.bit))


_CORNERS = (("lower_corner", 0), ("upper_corner", 16))
_TABLE = {(is_im2col, rank): _table(is_im2col, rank) for is_im2col in (False, True) for rank in range(1, 9)}
_STORED = {
    which: tuple((each.bit // WORD_BITS, each.bit % WORD_BITS, each.stored) for each in fields)
    for which, fields in _TABLE.items()
}
_KNOWN_BITS = {which: sum(each.mask for each in fields) for which, fields in _TABLE.items()}
_WORDS = struct.Struct("<16Q")

encode_measured = map_rule(
    "encode-measured",
    "encode() writes what was measured: sm_90 maps, tiled and im2col.",
    source=H200,
    subjects=("encoding",),
    architectures=("sm_90",),
    passing=MATRIX,
    failing=MATRIX | {"arch": "sm_100"},
)


def encoded(a: Geometry) -> bytes:
    """The 128 bytes of a map, as the driver writes them on sm_90."""
    if a.arch.name != "sm_90" or a.subject == "wide":
        limit = "the descriptor's bits were measured on sm_90 for tiled and im2col maps"
        fix = "Let the driver of that card encode it."
        raise TensorMapError([encode_measured.violation("arch", f"a {a.kind} for {a.arch.name}", limit, fix)])
    words = [0] * (DESCRIPTOR_BYTES * 8 // WORD_BITS)
    for word, shift, stored in _STORED[a.subject == "im2col", len(a.dims)]:
        words[word] |= stored(a) << shift
    return _WORDS.pack(*words)


def raw_fields(blob: bytes) -> dict[str, DescriptorField]:
    """Every field of 128 bytes, whatever they are, by name."""
    bits = int.from_bytes(blob, "little")
    found = {}
    for each in _TABLE[_which(bits)]:
        raw = (bits & each.mask) >> each.bit
        found[each.name] = DescriptorField(each.name, each.bit, each.width_bits, raw, each.meaning(raw))
    return found


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
    for (_, rank), fields in _TABLE.items():
        for each in fields:
            if rank <= 5:
                found.setdefault(each.name, {}).setdefault((each.bit, each.width_bits), set()).add(rank)
    places = [
        Place(name, *where, max(ranks) if len(wheres) > 1 or name.startswith(("lower", "upper")) else 0)
        for name, wheres in found.items()
        for where, ranks in wheres.items()
    ]
    return sorted(places, key=lambda place: (place.name, place.rank))


def unknown_bits(blob: bytes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Bits set in no field at all, and bits set in fields of dimensions that the map does not have.

    The driver sets neither; tensormap.replace leaves the second kind behind when it lowers the rank.
    """
    bits = int.from_bytes(blob, "little")
    is_im2col, rank = _which(bits)
    strange = bits & ~_KNOWN_BITS[is_im2col, rank]
    unused = 0 if is_im2col else strange & _KNOWN_BITS[False, LARGEST_RANK]
    return _places(strange & ~unused), _places(unused)


def _places(bits: int) -> tuple[int, ...]:
    return tuple(bit for bit in range(bits.bit_length()) if bits >> bit & 1)


def _which(bits: int) -> tuple[bool, int]:
    """Which table describes these bits: whether they are an im2col map, and their rank."""
    return bool(bits >> WORD_BITS & 1), (bits >> WORD_BITS + 4 & 7) + 1
