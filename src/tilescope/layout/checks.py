"""What a layout may be made of: every reason why not, at once."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias, cast

import numpy as np

from tilescope.arithmetic import rounded_up
from tilescope.errors import RuleError, Violation, raise_all
from tilescope.layout.modes import SHAPE_STRIDE, Index, Modes, as_modes
from tilescope.layout.tiling import ATOM_ORDERS, ELEMENT_BITS, MAX_INDICES, AtomOrder, Major
from tilescope.reading import integer, integer_array, known_name, one_of, pair, try_read
from tilescope.rule import ARGUMENT_RANGE, rule
from tilescope.sentence import format_value

Coord: TypeAlias = "tuple[Index, ...]"

WINDOW_BYTES = 1 << 32  # a shared address has 32 bits
POINTER_BYTES = 1 << 48  # of a pointer that a debugger or CuTe prints
_ALIGNMENT_BYTES = 1024  # on which the pattern of every swizzle starts

TILE_ATOMS = rule(
    "tile-atoms",
    "A tile is a whole number of atoms, such as 8 rows of 128 bytes with swizzle 128B.",
    argument="shape",
    found="{shape: x } elements in atoms of {atom: x }",
    limit="a tile is a whole number of atoms",
    fix="Use {enough: x }.",
    source='PTX ISA, "Canonical Layouts"',
    passing='ts.canonical_layout("K", "128B", "bf16").tile((64, 64))',
    failing='ts.canonical_layout("K", "128B", "bf16").tile((60, 64))',
)
ROW_BYTES = rule(
    "row-bytes",
    "A row of an atom is a whole number of bytes.",
    argument="atom",
    found="a row of {row_elements:element} of {bits} bits",
    limit="rows are whole bytes",
    fix="Use rows of {enough} elements.",
    source="shared memory is addressed by byte",
    passing="ts.Layout((8, 8), 4)",
    failing="ts.Layout((8, 7), 4)",
)
ADDRESS_WINDOW = rule(
    "address-window",
    "A tile ends below shared address 2^32, and no stride of a layout leads to address 2^48.",
    argument="start",
    found="{size_bytes} bytes from {start:#x}",
    limit="shared addresses have 32 bits",
    fix="Use a start of at most {last:#x}.",
    source="PTX ISA, state space .shared: addresses have 32 bits",
    passing="ts.Layout((64, 64), 16, start=0xFFFF_0000)",
    failing="ts.Layout((64, 64), 16, start=0xFFFF_F000)",
)
TILE_BEYOND_WINDOW = ADDRESS_WINDOW.worded(argument="shape", fix="Use the tile of one block, such as (128, 64).")
STRIDE_BEYOND_POINTERS = ADDRESS_WINDOW.worded(
    argument="modes",
    found="elements up to {cosize} apart",
    limit="addresses are below 2^48",
    fix="Use strides below 2^32.",
)
TOO_MANY_INDICES = SHAPE_STRIDE.worded(
    argument="modes",
    found="{rank} indices",
    limit="a layout has at most {most}",
    fix="Use (a, b, c, d, (e, f)): join the last of them in one index.",
)
NEGATIVE_STRIDE = SHAPE_STRIDE.worded(
    argument="modes",
    found="{modes}",
    limit="strides of a layout are at least 0",
    fix="Start at the lowest address, with strides of at least 0.",
)
INDEX_OUTSIDE = ARGUMENT_RANGE.worded(found="{index}", limit="integer {ranges:, }", fix="Use indices up to {last}.")
LAYOUT_SIZE = rule(
    "layout-size",
    "An address map lists at most 2^22 elements, more than fit into the shared memory of a block.",
    argument="layout",
    found="{elements} elements",
    limit="an address map lists at most {most_elements}",
    fix="Use the tile of one block, such as (128, 64).",
    source="the shared memory of every architecture that tilescope knows",
    passing="ts.Layout((2048, 2048), 8).addresses()",
    failing="ts.Layout((2048, 2049), 8).addresses()",
)


class CheckedTile(NamedTuple):
    """The arguments of a tile of atoms as plain values."""

    shape: tuple[int, int]
    element_bits: int
    atom: tuple[int, int]
    atom_order: AtomOrder
    padding_bytes: int
    start: int


def checked_tiling(
    shape: object,
    element_bits: object,
    major: Major,
    *,
    atom: object,
    atom_order: object,
    padding_bytes: object,
    start: object,
) -> CheckedTile:
    """The arguments of a tile of atoms as plain values; RuleError with every reason why not."""
    tile = pair("shape", shape, 1)
    atom_shape = tile if atom is None else pair("atom", atom, 1)
    problems: list[Violation] = []
    bits, address = checked_start(problems, element_bits, start)
    order: AtomOrder = try_read(problems, "column", known_name, "atom_order", atom_order, ATOM_ORDERS, "atom order")
    padding = try_read(problems, 0, integer, "padding_bytes", padding_bytes, 0)
    row_elements = atom_shape[1] if major == "K" else atom_shape[0]
    if row_elements * bits % 8:
        problems.append(ROW_BYTES.violation(row_elements=row_elements, bits=bits, enough=rounded_up(row_elements, 8)))
    if tile[0] % atom_shape[0] or tile[1] % atom_shape[1]:
        enough = (rounded_up(tile[0], atom_shape[0]), rounded_up(tile[1], atom_shape[1]))
        problems.append(TILE_ATOMS.violation(shape=tile, atom=atom_shape, enough=enough, change={"shape": enough}))
    raise_all(problems)
    row_bytes = row_elements * bits // 8 + padding
    size = tile[0] * tile[1] // row_elements * row_bytes
    if size > WINDOW_BYTES:
        raise TILE_BEYOND_WINDOW.error(size_bytes=size, start=address)
    if address + size > WINDOW_BYTES:
        last = (WINDOW_BYTES - size) // _ALIGNMENT_BYTES * _ALIGNMENT_BYTES
        raise ADDRESS_WINDOW.error(size_bytes=size, start=address, last=last)
    return CheckedTile(tile, bits, atom_shape, order, padding, address)


def checked_modes(modes: object, element_bits: object, unit_bits: object, start: object) -> Modes:
    """The modes with strides in bits; RuleError with every reason why they are no layout."""
    problems: list[Violation] = []
    bits, _ = checked_start(problems, element_bits, start)
    unit = bits if unit_bits is None else try_read(problems, 1, integer, "unit_bits", unit_bits, 1)
    nested = as_modes(modes)
    rank = len(nested.indices)
    if rank > MAX_INDICES:
        problems.append(TOO_MANY_INDICES.violation(rank=rank, most=MAX_INDICES))
    if min(stride for _, stride in nested.pairs) < 0:
        problems.append(NEGATIVE_STRIDE.violation(modes=str(nested), stride=nested.stride))
    elif nested.cosize > POINTER_BYTES:
        problems.append(STRIDE_BEYOND_POINTERS.violation(cosize=nested.cosize))
    raise_all(problems)
    return nested.scaled(unit) or nested


def checked_start(problems: list[Violation], element_bits: object, start: object) -> tuple[int, int]:
    """An element's bits and a start address; where they are none, the reasons join `problems`."""
    bits = try_read(problems, 8, one_of, "element_bits", element_bits, ELEMENT_BITS)
    address = try_read(problems, 0, integer, "start", start, 0, POINTER_BYTES - 1)
    return bits, address


class Indexed(Protocol):
    """A value with indices: a layout."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the indices."""

    @property
    def names(self) -> tuple[str, ...]:
        """What the indices are called."""


def checked_indices(layout: Indexed, coord: tuple[object, ...]) -> Coord:
    """Indices as integers, or as integer arrays that broadcast; RuleError for those outside the shape of a layout."""
    shape = layout.shape
    if len(coord) != len(shape):
        raise _outside(layout, f"{len(coord)} indices")
    for index, extent in zip(coord, shape, strict=True):
        if not isinstance(index, int):
            break
        if not 0 <= index < extent:
            raise _outside(layout, f"({', '.join(map(format_value, coord))}) outside the tile")
    else:
        return cast("Coord", coord)  # each of them is an integer
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


def _outside(layout: Indexed, found: str) -> RuleError:
    ranges = [f"{name} 0..{extent - 1}" for name, extent in zip(layout.names, layout.shape, strict=True)]
    return INDEX_OUTSIDE.error(
        argument=", ".join(layout.names),
        index=found,
        shape=layout.shape,
        ranges=ranges,
        last=tuple(extent - 1 for extent in layout.shape),
    )
