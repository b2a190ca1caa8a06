"""Swizzle modes by name, the driver's enumeration and PTX's pair of fields.

    128B_ATOM_32B
    CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B
    .swizzle_mode = 128B, .swizzle_atomicity = 32B             (in numbers: 3 and 1)

A mode says how TMA stores boxes that are one span wide: a tile is one column of boxes after the other.
"""

from __future__ import annotations

import re
from math import gcd

from tilescope.arithmetic import rounded_up
from tilescope.layout import Layout, oriented
from tilescope.notation.hints import Hints, no_equivalent, tile_of
from tilescope.notation.text import refusal
from tilescope.sentence import shortened
from tilescope.swizzle import CHUNK_BYTES, SWIZZLE, Swizzle
from tilescope.swizzle.spelling import PTX_ATOMICITIES, PTX_MODES

DRIVER_PREFIX = "CU_TENSOR_MAP_SWIZZLE_"
_PTX_FIELD = re.compile(
    r"\.?swizzle_(mode|atomicity)(?:\.\S+)?\s*[=:,]?\s*(?:\[\w+\]\s*,)?\s*\.?([0-9A-Za-z+\-]+)\s*[,;]?\s*"
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
    said = _PTX_FIELD.findall(text)
    fields = {key: int(value) if value.isdigit() and len(value) < 5 else value for key, value in said}
    if (rest := _PTX_FIELD.sub("", text)) or len(fields) != len(said) or "mode" not in fields:
        limit = "a .swizzle_mode, and at most one .swizzle_atomicity, with their values"
        fix = 'Write ".swizzle_mode = 128B, .swizzle_atomicity = 16B".'
        raise refusal(f"{shortened(rest or text, 40)!r}", limit, fix)
    return _boxes(Swizzle.from_ptx(fields["mode"], fields.get("atomicity")), hints, "the PTX fields")


def spell_driver(layout: Layout) -> tuple[str]:
    """The driver's enumerator for the tensor map that stores the tile.

    >>> spell_driver(read_mode("128B_ATOM_64B", Hints(element_bits=16)))
    ('CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B',)
    """
    swizzle = _tensor_map_swizzle(layout)
    if swizzle.driver_code is None:
        raise no_equivalent(f"swizzle {swizzle}", "the driver has no enumerator for it", "Spell it as ptx.")
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
    bits, major, span_bytes = hints.bits(None, where), hints.major or "K", swizzle.span_bytes
    unit_bytes = CHUNK_BYTES if span_bytes is None else span_bytes  # rows are a multiple of it
    unit = unit_bytes * 8 // gcd(unit_bytes * 8, bits)
    if span_bytes is not None and unit * bits != unit_bytes * 8:
        limit = f"whole ones in {unit_bytes} bytes"
        raise refusal(f"{bits}-bit elements", limit, "Use element_bits = 8.", element_bits=bits)
    one_box = None if span_bytes is None or hints.shape is not None else oriented(major, 8, unit)
    mn, k = hints.tile_shape(one_box, where)
    rows, columns = oriented(major, mn, k)
    if columns % unit:
        found = f"rows of {columns} elements of {bits} bits"
        limit = f"with swizzle {swizzle} TMA stores rows in multiples of {unit_bytes} bytes"
        fix = f"Use {rounded_up(columns, unit)}, a multiple of {unit} elements."
        raise refusal(found, limit, fix, columns=columns, element_bits=bits)
    atom = oriented(major, rows, columns if span_bytes is None else unit)
    return Layout((mn, k), bits, atom=atom, major=major, swizzle=swizzle, start=hints.start)


def _tensor_map_swizzle(layout: Layout) -> Swizzle:
    tile_of(layout)
    if layout.swizzle.feature is None:
        fix = "Use 128B, or store it with software."
        raise no_equivalent(f"swizzle {layout.swizzle}", f"TMA knows {', '.join(SWIZZLE)}", fix)
    return layout.swizzle
