"""A tile as rows and columns, its contiguous index left to right: how it is drawn, and how threads read it.

Most tiles are a grid of equal atoms. An atom is stored contiguously, and atoms follow one another, down a column or
along a row:

    tile of 2 x 2 atoms        order "column"          order "row"
    ┌────┬────┐
    │ 00 │ 01 │                00 10 01 11             00 01 10 11        ← in shared memory
    ├────┼────┤
    │ 10 │ 11 │                one TMA box spans       atoms of one row
    └────┴────┘                a column of atoms       lie side by side

A plain row-major tile is one atom as large as the tile; padding widens the pitch of its rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from tilescope.errors import RuleError, unknown_name
from tilescope.layout.modes import Index, Modes, Pairs, Strides, coalesced
from tilescope.rule import rule
from tilescope.swizzle import Swizzle

AtomOrder = Literal["column", "row"]
ATOM_ORDERS: tuple[AtomOrder, ...] = ("column", "row")
Major = Literal["K", "MN"]
MAJORS: tuple[Major, ...] = ("K", "MN")
_MAJOR_SPELLINGS: dict[str, Major] = {"K": "K", "MN": "MN", "M": "MN", "N": "MN"}
ELEMENT_BITS = (1, 2, 4, 6, 8, 16, 32, 64, 128)
MAX_INDICES = 5  # of a layout: those of a tile, of an instruction in it, and of the stages
Of = TypeVar("Of")

LAYOUT_ATOMS = rule(
    "layout-atoms",
    "A copy, a plan or a search needs a tile made of rows in equal atoms; for other strides only addresses can be "
    "computed.",
    argument="layout",
    found="rows {rows}, columns {columns}, (extent, stride in bits)",
    limit="rows of one pitch in equal atoms, one after the other by column or by row",
    fix="Use a tile such as Layout((64, 64), 16, atom=(8, 64)).",
    source="the grid of atoms of `Layout`",
    passing="ts.Layout((64, 64), 16, atom=(8, 64)).as_rows().tiling",
    failing="ts.Layout.from_modes((((2, 4), 8), ((1, 32), 2)), 16).as_rows().tiling",
)


def major_named(major: object, argument: str = "major") -> Major:
    """The majorness, however it is spelled: K, k, MN, mn, M, N.

    >>> major_named("n")
    'MN'
    """
    folded = major.strip().upper() if isinstance(major, str) else ""
    if folded in _MAJOR_SPELLINGS:
        return _MAJOR_SPELLINGS[folded]
    raise RuleError([unknown_name("majorness", argument, major, MAJORS)])


def oriented(major: Major | None, first: Of, second: Of) -> tuple[Of, Of]:
    """(strided, contiguous) as (mn, k), and the other way round: its own inverse.

    >>> oriented("K", 8, 64), oriented("MN", 8, 64)
    ((8, 64), (64, 8))
    """
    return (second, first) if major == "MN" else (first, second)


def contiguous(pairs: tuple[Pairs, ...], element_bits: int) -> Major | None:
    """Which of two indices is contiguous: "K" the second, "MN" the first; None: neither, or there are not two.

    >>> contiguous((((8, 1024),), ((64, 16),)), 16)  # (extent, stride in bits)
    'K'
    """
    if len(pairs) != 2:
        return None
    first_extent, first_stride = pairs[0][0]
    second_extent, second_stride = pairs[1][0]
    if second_stride == element_bits:
        return "K"
    if first_stride == element_bits:
        return "MN"
    if second_extent == 1:
        return "K"
    if first_extent == 1:
        return "MN"
    return None


class Tiling(NamedTuple):
    """A grid of equal atoms; the elements of a row are contiguous.

    >>> Tiling((64, 32), 16, (8, 16), "row", 0).atom_strides_bytes
    (512, 256)
    """

    shape: tuple[int, int]  # rows, columns in elements
    element_bits: int
    atom: tuple[int, int]  # rows, columns of what is stored whole
    atom_order: AtomOrder
    padding_bytes: int  # after every row of an atom

    @property
    def pitch_bytes(self) -> int:
        """From one row of an atom to the next."""
        return self.atom[1] * self.element_bits // 8 + self.padding_bytes

    @property
    def atom_bytes(self) -> int:
        """From one atom to the next in shared memory."""
        return self.atom[0] * self.pitch_bytes

    @property
    def grid(self) -> tuple[int, int]:
        """Atoms down and across the tile."""
        return self.shape[0] // self.atom[0], self.shape[1] // self.atom[1]

    @property
    def atom_strides_bytes(self) -> tuple[int, int]:
        """Bytes to the atom below, and to the atom on the right."""
        high, wide = self.grid
        if self.atom_order == "column":
            return self.atom_bytes, high * self.atom_bytes
        return wide * self.atom_bytes, self.atom_bytes

    @property
    def size_bytes(self) -> int:
        """Shared memory from the first byte to the end of the last atom, padding included."""
        return self.shape[0] * (self.shape[1] // self.atom[1]) * self.pitch_bytes

    def pairs(self) -> tuple[Pairs, Pairs]:
        """(extent, stride in bits) of rows and of columns, in coalesced form."""
        below, beside = self.atom_strides_bytes
        high, wide = self.grid
        rows = coalesced((self.atom[0], 8 * self.pitch_bytes), (high, 8 * below))
        return rows, coalesced((self.atom[1], self.element_bits), (wide, 8 * beside))


def find_tiling(rows: Pairs, columns: Pairs, element_bits: int) -> Tiling | None:
    """The grid of atoms with these strides (in bits); None if there is none.

    >>> find_tiling(((16, 1152),), ((64, 16), (2, 18432)), 16).padding_bytes
    16
    """
    shape = prod(extent for extent, _ in rows), prod(extent for extent, _ in columns)
    wide_stride = columns[1][1] if len(columns) > 1 else 0
    atom_columns = columns[0][0]
    row_bits = atom_columns * element_bits
    choices: tuple[tuple[int, int, AtomOrder], ...] = (
        (shape[0], rows[0][1] if shape[0] > 1 else wide_stride or row_bits, "column"),
        (rows[0][0], rows[0][1], "row"),
        (1, wide_stride, "row"),
    )
    for atom_rows, pitch_bits, order in choices:
        padding_bits = pitch_bits - row_bits
        if padding_bits >= 0 and row_bits % 8 == 0 == padding_bits % 8 and shape[0] % atom_rows == 0:
            tiling = Tiling(shape, element_bits, (atom_rows, atom_columns), order, padding_bits // 8)
            if tiling.pairs() == (rows, columns):
                return tiling
    return None


class StoredTile(Protocol):
    """What rows and columns read of the layout that they are made from."""

    @property
    def tiling(self) -> Tiling | None:
        """The grid of atoms; None where there is none."""

    @property
    def element_bits(self) -> int:
        """Bits of an element."""

    @property
    def unit_bits(self) -> int:
        """What addresses count: 8 for bytes."""

    @property
    def start(self) -> int:
        """Address of the first element."""

    @property
    def swizzle(self) -> Swizzle:
        """The swizzle of its addresses."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows and columns of a tile, its contiguous index left to right; made by `Layout.as_rows`."""

    layout: StoredTile
    pairs: tuple[Pairs, Pairs]  # (extent, stride in bits) of rows and of columns
    names: tuple[str, str]  # of the index that counts rows, and of the one that counts columns

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.pairs
        return prod(extent for extent, _ in rows), prod(extent for extent, _ in columns)

    @property
    def tiling(self) -> Tiling:
        """The tile as a grid of atoms; RuleError where it is none."""
        if self.layout.tiling is None:
            rows, columns = self.pairs
            raise LAYOUT_ATOMS.error(rows=rows, columns=columns)
        return self.layout.tiling

    @property
    def run_elements(self) -> int:
        """Elements of a row that are neighbours before the swizzle."""
        extent, stride = self.pairs[1][0]
        return extent if stride == self.layout.element_bits else 1

    def logical(self, row: Index, column: Index) -> Any:  # an integer of integers, an array of arrays
        """Address before the swizzle, of indices inside the tile."""
        return Strides.of(self.pairs, self.layout.unit_bits).offset((row, column), self.layout.start)

    def address(self, row: Index, column: Index) -> Any:
        """Physical byte address, of indices inside the tile."""
        return self.layout.swizzle.apply(self.logical(row, column))

    def byte_address(self, row: Index, byte: Index) -> Any:
        """Physical address of byte `byte` of a row, as if the row lay in one piece."""
        rows, columns = self.pairs
        bits = self.layout.element_bits
        further = columns[1:] if columns[0][1] == bits else columns
        in_bytes = rows, ((self.run_elements * bits // 8, 8), *further)
        return replace(self, pairs=in_bytes).address(row, byte)


def mn_k_first(bit_modes: Modes, element_bits: int) -> tuple[Pairs, ...]:
    """The strides of mn, of k, and of the indices above them, in bits.

    CuTe prints the staged tile of an MMA as ((mma mn, mma k), mn, k, stages): the parts of mn come together, and of k.

    >>> staged = Modes(((128, 16), 1, 4, 2), ((1024, 16), 0, 256, 131072))
    >>> mn_k_first(staged, 16)
    (((128, 1024),), ((64, 16),), ((2, 131072),))
    """
    pairs = tuple(coalesced(*index) for index in bit_modes.indices)
    rank, blocks = len(pairs), bit_modes.parts[0].indices
    if rank < 3:
        return pairs if rank == 2 else (((1, 0),), *pairs)
    steps = [index[0][1] for index in pairs]
    if steps[-1] == element_bits and element_bits not in steps[:-1]:  # as Triton orders them: buffers, mn, k
        return (*pairs[-2:], *pairs[:-2])
    if rank == MAX_INDICES or len(blocks) != 2:
        return pairs
    major = contiguous(pairs[:2], element_bits) if rank == 3 else None
    plain = find_tiling(*oriented(major, *pairs[:2]), element_bits) if major else None
    if plain is not None and not plain.padding_bytes:  # (mn, k, stages)
        return pairs
    inner = [coalesced(*block, *outer) for block, outer in zip(blocks, pairs[1:3], strict=True)]
    return (*inner, *pairs[3:])
