"""Swizzle modes by name, the driver's enumeration and PTX's pair of fields.

    128B_ATOM_32B
    CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B
    .swizzle_mode = 128B, .swizzle_atomicity = 32B             (in numbers: 3 and 1)

A mode describes how TMA stores boxes that are one span wide: a tile is one column of boxes after the other.
"""

from __future__ import annotations

import re
from math import gcd

from tilescope.arithmetic import rounded_up
from tilescope.layout import Layout, oriented
from tilescope.notation.hints import NO_EQUIVALENT, Hints, tile_of
from tilescope.notation.text import NOTATION_TEXT
from tilescope.sentence import shorten
from tilescope.swizzle import CHUNK_BYTES, SWIZZLE, Swizzle
from tilescope.swizzle.spelling import PTX_ATOMICITIES, PTX_MODES

DRIVER_PREFIX = "CU_TENSOR_MAP_SWIZZLE_"
_CODE_DIGITS = 4  # longer numbers are no code
_PTX_FIELD = re.compile(
    r"\.?swizzle_(mode|atomicity)(?:\.\S+)?\s*[=:,]?\s*(?:\[\w+\]\s*,)?\s*\.?([0-9A-Za-z+\-]+)\s*[,;]?\s*"
)


PTX_FIELDS = NOTATION_TEXT.worded(
    found="{text!r}",
    limit="a .swizzle_mode, and at most one .swizzle_atomicity, with their values",
    fix='Write ".swizzle_mode = 128B, .swizzle_atomicity = 16B".',
)
SPAN_CUTS_ELEMENTS = NOTATION_TEXT.worded(
    found="{element_bits}-bit elements",
    limit="whole ones in {unit_bytes} bytes",
    fix="Use element_bits = 8.",
)
UNEVEN_ROWS = NOTATION_TEXT.worded(
    found="rows of {columns} elements of {element_bits} bits",
    limit="with swizzle {swizzle} TMA stores rows in multiples of {unit_bytes} bytes",
    fix="Use {enough}, a multiple of {unit} elements.",
)
NO_ENUMERATOR = NO_EQUIVALENT.worded(
    found="swizzle {swizzle}",
    limit="the driver has no enumerator for it",
    fix="Spell it as ptx.",
)
SOFTWARE_SWIZZLE = NO_EQUIVALENT.worded(
    found="swizzle {swizzle}",
    limit="TMA knows {known:, }",
    fix="Use 128B, or store it with software.",
)


def read_mode(text: str, hints: Hints) -> Layout:
    """The tile that TMA stores with a mode, by its own or the driver's name.

    >>> str(read_mode("CU_TENSOR_MAP_SWIZZLE_64B", Hints(element_bits=16)).modes)
    '(8,32):(32,1)'
    """
    return _boxes(Swizzle.named(text), hints, text)


def read_ptx(text: str, hints: Hints) -> Layout:
    """The tile that TMA stores with PTX's swizzle mode and atomicity.

    >>> read_ptx(".swizzle_mode = 3, .swizzle_atomicity = 1", Hints(element_bits=32)).swizzle.name
    '128B_ATOM_32B'
    """
    pairs = _PTX_FIELD.findall(text)
    fields = {key: _number_or_name(value) for key, value in pairs}
    leftover = _PTX_FIELD.sub("", text)
    if leftover or len(fields) != len(pairs) or "mode" not in fields:
        raise PTX_FIELDS.error(text=shorten(leftover or text, 40))
    return _boxes(Swizzle.from_ptx(fields["mode"], fields.get("atomicity")), hints, "the PTX fields")


def _number_or_name(value: str) -> int | str:
    """The number of a field; a name, and digits that no code has, stay as they are."""
    return int(value) if value.isdigit() and len(value) <= _CODE_DIGITS else value


def spell_driver(layout: Layout) -> tuple[str]:
    """The driver's enumerator for the tensor map that stores the tile.

    >>> spell_driver(read_mode("128B_ATOM_64B", Hints(element_bits=16)))
    ('CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B',)
    """
    swizzle = _tensor_map_swizzle(layout)
    if swizzle.driver_code is None:
        raise NO_ENUMERATOR.error(swizzle=swizzle.name)
    return (DRIVER_PREFIX + swizzle.name.upper(),)


def spell_ptx(layout: Layout) -> tuple[str]:
    """PTX's fields of tensormap.replace for the tensor map that stores the tile.

    >>> spell_ptx(read_mode("64B", Hints(element_bits=16)))
    ('.swizzle_mode = 64B, .swizzle_atomicity = 16B',)
    """
    swizzle = _tensor_map_swizzle(layout)
    assert swizzle.ptx_mode is not None  # every mode of TMA has one
    text = f".swizzle_mode = {PTX_MODES[swizzle.ptx_mode]}"
    if swizzle.ptx_atomicity is not None:
        text += f", .swizzle_atomicity = {PTX_ATOMICITIES[swizzle.ptx_atomicity]}"
    return (text,)


def _boxes(swizzle: Swizzle, hints: Hints, where: str) -> Layout:
    """A tile in boxes one span wide, one column of rows after the other; without a swizzle, one box."""
    bits = hints.bits(None, where)
    major = hints.major or "K"
    span_bytes = swizzle.span_bytes
    unit_bytes = CHUNK_BYTES if span_bytes is None else span_bytes  # rows are a multiple of it
    unit = unit_bytes * 8 // gcd(unit_bytes * 8, bits)
    if span_bytes is not None and unit * bits != unit_bytes * 8:
        raise SPAN_CUTS_ELEMENTS.error(element_bits=bits, unit_bytes=unit_bytes)
    one_box = None if span_bytes is None or hints.shape is not None else oriented(major, 8, unit)
    mn, k = hints.tile_shape(one_box, where)
    rows, columns = oriented(major, mn, k)
    if columns % unit:
        raise UNEVEN_ROWS.error(
            columns=columns,
            element_bits=bits,
            swizzle=swizzle.name,
            unit_bytes=unit_bytes,
            unit=unit,
            enough=rounded_up(columns, unit),
        )
    atom = oriented(major, rows, columns if span_bytes is None else unit)
    return Layout((mn, k), bits, atom=atom, major=major, swizzle=swizzle, start=hints.start)


def _tensor_map_swizzle(layout: Layout) -> Swizzle:
    tile_of(layout)
    if layout.swizzle.feature is None:
        raise SOFTWARE_SWIZZLE.error(swizzle=layout.swizzle.name, known=tuple(SWIZZLE))
    return layout.swizzle
