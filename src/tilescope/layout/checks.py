"""What a layout may be made of: every reason why not, at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilescope.arithmetic import rounded_up
from tilescope.errors import RuleError, Violation, raise_all
from tilescope.layout.modes import SHAPE_STRIDE, Modes, as_modes
from tilescope.layout.tiling import ATOM_ORDERS, ELEMENT_BITS, MAX_RANK, AtomOrder, Major
from tilescope.reading import attempted, integer, integer_array, known_name, one_of, pair
from tilescope.rule import ARGUMENT_RANGE, rule
from tilescope.sentence import by, counted, printed, printed_hex

WINDOW_BYTES = 1 << 32  # a shared address has 32 bits
POINTER_BYTES = 1 << 48  # of a pointer that a debugger or CuTe prints
_ALIGNMENT_BYTES = 1024  # on which the pattern of every swizzle starts

TILE_ATOMS = rule(
    "tile-atoms",
    "A tile is a whole number of atoms, such as 8 rows of 128 bytes with swizzle 128B.",
    source='PTX ISA, "Canonical Layouts"',
    passing='ts.canonical_layout("K", "128B", "bf16").tile((64, 64))',
    failing='ts.canonical_layout("K", "128B", "bf16").tile((60, 64))',
)
ROW_BYTES = rule(
    "row-bytes",
    "A row of an atom is a whole number of bytes.",
    source="shared memory is addressed by byte",
    passing="ts.Layout((8, 8), 4)",
    failing="ts.Layout((8, 7), 4)",
)
ADDRESS_WINDOW = rule(
    "address-window",
    "A tile ends below shared address 2^32, and no stride of a layout leads to address 2^48.",
    source="PTX ISA, state space .shared: addresses have 32 bits",
    passing="ts.Layout((64, 64), 16, start=0xFFFF_0000)",
    failing="ts.Layout((64, 64), 16, start=0xFFFF_F000)",
)
LAYOUT_SIZE = rule(
    "layout-size",
    "An address map lists at most 2^22 elements, more than the shared memory of a block holds.",
    source="the shared memory of every architecture that tilescope knows",
    passing="ts.Layout((2048, 2048), 8).addresses()",
    failing="ts.Layout((2048, 2049), 8).addresses()",
)


def checked_tiling(
    shape: Any, element_bits: Any, atom: Any, atom_order: Any, padding_bytes: Any, start: Any, major: Major
) -> tuple[tuple[int, int], int, tuple[int, int], AtomOrder, int, int]:
    """The arguments of a tile of atoms as plain values, in the order they came; RuleError with every reason why not."""
    tile = pair("shape", shape, 1)
    whole = tile if atom is None else pair("atom", atom, 1)
    problems: list[Violation] = []
    bits, address = checked_start(problems, element_bits, start)
    order: AtomOrder = attempted(problems, "column", known_name, "atom_order", atom_order, ATOM_ORDERS, "atom order")
    padding = attempted(problems, 0, integer, "padding_bytes", padding_bytes, 0)
    row_elements = whole[1] if major == "K" else whole[0]
    if row_elements * bits % 8:
        found = f"a row of {counted(row_elements, 'element')} of {bits} bits"
        limit, fix = "rows are whole bytes", f"Use rows of {rounded_up(row_elements, 8)} elements."
        problems.append(ROW_BYTES.violation("atom", found, limit, fix, row_elements=row_elements, bits=bits))
    if tile[0] % whole[0] or tile[1] % whole[1]:
        enough = tuple(rounded_up(extent, step) for extent, step in zip(tile, whole, strict=True))
        found, limit = f"{by(tile)} elements in atoms of {by(whole)}", "a tile is a whole number of atoms"
        fix, change = f"Use {by(enough)}.", {"shape": enough}
        problems.append(TILE_ATOMS.violation("shape", found, limit, fix, change, shape=tile, atom=whole))
    if not problems:
        size = tile[0] * tile[1] // row_elements * (row_elements * bits // 8 + padding)
        if address + size <= WINDOW_BYTES:
            return tile, bits, whole, order, padding, address
        found, limit = f"{printed(size)} bytes from {printed_hex(address)}", "shared addresses have 32 bits"
        argument, fix = "shape", "Use the tile of one block, such as (128, 64)."
        if size <= WINDOW_BYTES:
            last = (WINDOW_BYTES - size) // _ALIGNMENT_BYTES * _ALIGNMENT_BYTES
            argument, fix = "start", f"Use a start of at most {last:#x}."
        problems.append(ADDRESS_WINDOW.violation(argument, found, limit, fix, size_bytes=size, start=address))
    raise RuleError(problems)


def checked_modes(modes: Any, element_bits: Any, unit_bits: Any, start: Any) -> Modes:
    """The modes with strides in bits; RuleError with every reason why they are no layout."""
    problems: list[Violation] = []
    bits, _ = checked_start(problems, element_bits, start)
    unit = bits if unit_bits is None else attempted(problems, 1, integer, "unit_bits", unit_bits, 1)
    nested = as_modes(modes)
    rank = len(nested.indices)
    if rank > MAX_RANK:
        limit, fix = f"a layout has at most {MAX_RANK}", "Use (a, b, c, d, (e, f)): join the last of them in one index."
        problems.append(SHAPE_STRIDE.violation("modes", f"{rank} indices", limit, fix, rank=rank))
    if min(stride for _, stride in nested.pairs) < 0:
        limit, fix = "strides of a layout are at least 0", "Start at the lowest address, with strides of at least 0."
        problems.append(SHAPE_STRIDE.violation("modes", str(nested), limit, fix, stride=nested.stride))
    elif nested.cosize > POINTER_BYTES:
        found, limit = f"elements up to {printed(nested.cosize)} apart", "addresses lie below 2^48"
        fix = "Use strides below 2^32."
        problems.append(ADDRESS_WINDOW.violation("modes", found, limit, fix, cosize=nested.cosize))
    raise_all(problems)
    return nested.scaled(unit) or nested


def checked_start(problems: list[Violation], element_bits: Any, start: Any) -> tuple[int, int]:
    """An element's bits and a start address; where they are none, the reasons join `problems`."""
    bits = attempted(problems, 8, one_of, "element_bits", element_bits, ELEMENT_BITS)
    return bits, attempted(problems, 0, integer, "start", start, 0, POINTER_BYTES - 1)


def checked_indices(layout: Any, coord: tuple[Any, ...]) -> tuple[Any, ...]:
    """Indices as integers, or as integer arrays that broadcast; RuleError for those outside the shape of a layout."""
    shape = layout.shape
    if len(coord) != len(shape):
        raise _outside(layout, f"{len(coord)} indices")
    for index, extent in zip(coord, shape, strict=True):
        if not isinstance(index, int):
            break
        if not 0 <= index < extent:
            raise _outside(layout, f"({', '.join(map(printed, coord))}) outside the tile")
    else:
        return coord
    arrays = [index for index in map(integer_array, coord) if index is not None]
    if len(arrays) != len(coord):
        raise _outside(layout, "indices that are no integers")
    try:
        np.broadcast_shapes(*(index.shape for index in arrays))
    except ValueError:
        raise _outside(layout, "indices whose shapes do not broadcast") from None
    for index, extent in zip(arrays, shape, strict=True):
        if index.size and (index.min() < 0 or index.max() >= extent):
            raise _outside(layout, f"indices from {index.min()} to {index.max()}")
    return tuple(index.astype(np.int64) for index in arrays)


def _outside(layout: Any, found: str) -> RuleError:
    names, shape = layout.names, layout.shape
    limit = "integer " + ", ".join(f"{name} 0..{extent - 1}" for name, extent in zip(names, shape, strict=True))
    last = f"Use indices up to {tuple(extent - 1 for extent in shape)}."
    return ARGUMENT_RANGE.error(", ".join(names), found, limit, last, shape=shape, index=found)
