"""The 128 bytes of a CUtensorMap on sm_90: one table of fields, read and written.

Sixteen little-endian 64-bit words. NVIDIA does not document the layout. This is the one of an H200 under driver 580,
compared on 80,000 tiled and 40,000 im2col maps. Use it to read, compare and test; a program that launches kernels
should call the driver.

    word 0   │ address ······························································ 0-56 │
    word 1   │ stride[0] / 16 ·············· 32-63 │ l2 │tf32│fill│swz│intl│ type │ rank-1 │ im2col │
    word 2-3 │ stride[1..3] / 16, then the upper four bits of each stride
    word 4-6 │ dims[i] - 1, 32 bits each; element_strides[i] - 1, 3 bits each; box[0] - 1
    word 7   │ box[1..4] - 1            im2col: lower corners, upper corners, pixels - 1
    word 8   │ bytes of the box         word 9: bytes after which the swizzle repeats (16 for none)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from operator import add
from typing import Any, NamedTuple

from tilescope.bits import WordField, WordFormat
from tilescope.data_type import DATA_TYPE
from tilescope.errors import TensorMapError
from tilescope.rule import rule
from tilescope.sentence import counted
from tilescope.swizzle import SWIZZLE
from tilescope.tensor_map.limits import CORNER_BITS, MAX_RANK
from tilescope.tensor_map.option import INTERLEAVE, L2_PROMOTION, OOB_FILL
from tilescope.tensor_map.record import Im2colRecord, MapFacts, MapRecord, TiledRecord
from tilescope.tensor_map.samples import H200

DESCRIPTOR_BYTES = 128
WORD_BITS = 64
SIZE_FLAG_BIT = WORD_BITS + 21  # some drivers set it, for some tensors wrongly
_STRIDE_UNIT_BYTES = 16
_HIGH_STRIDE_BITS = 36  # the high field of a stride holds its bits from this one on
_NO_REPEAT_BYTES = 16  # the value of repeat_bytes without a swizzle
_ENCODED_ARCH = "sm_90"


def _stored_type(ptx_code: int) -> tuple[int, int]:
    """(code, tf32 bit) of a PTX type code: 11 and 12 are stored as 7 and 8 with the bit set."""
    return (ptx_code - 4, 1) if ptx_code >= 11 else (ptx_code, 0)


_TYPES = {_stored_type(row.ptx_code): row.name for row in DATA_TYPE.values() if row.ptx_code is not None}
_TYPE_CODES = {name: code for code, name in _TYPES.items()}
_NAMES = {  # in the order of their codes
    "interleave": tuple(INTERLEAVE),
    "swizzle": ("none", "32B", "64B", "128B"),
    "l2_promotion": tuple(L2_PROMOTION),
    "oob_fill": tuple(OOB_FILL),
}


def _name_of_code(names: Sequence[str]) -> Callable[[int], str]:
    """The value of a code: the name at that index."""

    def says(code: int) -> str:
        return names[code] if code < len(names) else f"no such code {code}"

    return says


def _repeat_in_words(value: int) -> str:
    return "16: no swizzle" if value == _NO_REPEAT_BYTES else f"{value} bytes until the swizzle repeats"


# A field: its name, its first and its last bit.
_IM2COL = WordField("im2col", 64, 64, says=_name_of_code(("tiled", "im2col")))
_RANK = WordField("rank", 64 + 4, 64 + 6, first=1, says=partial(counted, noun="dimension"))
_OPTIONS = (
    _IM2COL,
    _RANK,
    WordField("data_type", 64 + 7, 64 + 10, says=_name_of_code([_TYPES[code, 0] for code in range(11)])),
    WordField("interleave", 64 + 11, 64 + 12, says=_name_of_code(_NAMES["interleave"])),
    WordField("swizzle", 64 + 13, 64 + 14, says=_name_of_code(_NAMES["swizzle"])),
    WordField("oob_fill", 64 + 15, 64 + 15, says=_name_of_code(_NAMES["oob_fill"])),
    WordField("tf32", 64 + 16, 64 + 16, says=_name_of_code(("as it is", "rounded to tf32"))),
    WordField("l2_promotion", 64 + 17, 64 + 18, says=_name_of_code(_NAMES["l2_promotion"])),
    WordField("repeat_bytes", 9 * 64, 10 * 64 - 1, says=_repeat_in_words),
)
_NUMBERS = (
    WordField("address", 0, 56, says=hex),
    WordField("box_bytes", 8 * 64, 9 * 64 - 1, says=partial(counted, noun="byte")),
)
_COLUMN = (
    WordField("channels_per_pixel", 6 * 64 + 56, 6 * 64 + 63, first=1, says=partial(counted, noun="channel")),
    WordField("pixels_per_column", 7 * 64 + 32, 7 * 64 + 41, first=1, says=partial(counted, noun="pixel")),
)


class _Sequence(NamedTuple):
    """The positions of a sequence's entries: adjacent, `width_bits` each."""

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
# A stride is stored in units of 16 bytes: 32 bits in words 1 to 3, followed by its upper four bits.
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
    "encode() writes only descriptors whose bytes were measured: tiled and im2col maps of sm_90.",
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


def is_encodable(a: MapFacts) -> bool:
    """Whether the bits of such a map were measured."""
    return a.arch.name == _ENCODED_ARCH and a.subject != "wide"


def encode_map(a: MapRecord) -> bytes:
    """The 128 bytes of a map, as the driver writes them on sm_90."""
    if not is_encodable(a):
        wording = _WIDE_MAP_MEASURED if a.subject == "wide" else ENCODE_MEASURED
        raise TensorMapError([wording.violation(arch=a.arch.name)])
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
    if isinstance(a, TiledRecord):
        numbers += a.box
    elif isinstance(a, Im2colRecord):
        numbers += [*a.lower_corner, *a.upper_corner, a.channels_per_pixel, a.pixels_per_column]
    for (low, unit, first, mask), number in zip(_PACKING[is_im2col, rank], numbers, strict=True):
        word |= (number - first) // unit << low & mask
    return word.to_bytes(DESCRIPTOR_BYTES, "little")


def element_type_fields(ptx_code: int) -> dict[str, int]:
    """The fields that tensormap.replace writes for a type, by its PTX code.

    >>> element_type_fields(11)
    {'data_type': 7, 'tf32': 1}
    """
    code, tf32 = _stored_type(ptx_code)
    return {"data_type": code, "tf32": tf32}


@cache  # a few thousand combinations at most
def _option_bits(is_im2col: bool, rank: int, data_type: str, *options: str) -> int:
    """The bits that maps with the same options share; the options are in the order of `_NAMES`."""
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
    """The arguments of the map with these field values; None for an undefined code."""
    rank = min(values["rank"], MAX_RANK)
    arguments: dict[str, Any] = {"data_type": _TYPES.get((values["data_type"], values["tf32"]))}
    for name, names in _NAMES.items():
        code = values[name]
        arguments[name] = names[code] if code < len(names) else None
    low_strides = _list_entries(values, "strides_bytes[{}]", rank - 1)
    high_strides = _list_entries(values, "strides_bytes[{}] high", rank - 1)
    arguments |= {
        "address": values["address"],
        "dims": _list_entries(values, "dims[{}]", rank),
        "element_strides": _list_entries(values, "element_strides[{}]", rank),
        "strides_bytes": tuple(map(add, low_strides, high_strides)),
    }
    if not values["im2col"]:
        return arguments | {"box": _list_entries(values, "box[{}]", rank)}
    return arguments | {
        "lower_corner": _list_entries(values, "lower_corner[{}]", rank - 2),
        "upper_corner": _list_entries(values, "upper_corner[{}]", rank - 2),
        "channels_per_pixel": values["channels_per_pixel"],
        "pixels_per_column": values["pixels_per_column"],
    }


def _list_entries(values: Mapping[str, int], name: str, count: int) -> tuple[int, ...]:
    """The entries of a sequence."""
    return tuple([values[entry] for entry in _entry_names(name, count)])


@cache
def _entry_names(name: str, count: int) -> tuple[str, ...]:
    return tuple(name.format(place) for place in range(count))


def format_of(bits: int) -> WordFormat:
    """The fields of any 1024 bits: selected by the im2col bit and the rank."""
    return FORMATS[bool(_IM2COL.extract(bits)), _RANK.extract(bits)]
