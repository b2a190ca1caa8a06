"""A tile as a grid of equal atoms, drawn with its contiguous index left to right.

An atom is stored whole; atoms follow each other down a column or along a row:

    tile of 2 x 2 atoms        order "column"          order "row"
    ┌────┬────┐
    │ 00 │ 01 │                00 10 01 11             00 01 10 11        ← in shared memory
    ├────┼────┤
    │ 10 │ 11 │                one TMA box spans       atoms of one row
    └────┴────┘                a column of atoms       lie side by side

A plain row-major tile is one atom as large as the tile; padding widens the pitch of its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Literal, NamedTuple, TypeVar

from tilescope.errors import RuleError, unknown_name
from tilescope.layout.pairs import Pairs, coalesced

AtomOrder = Literal["column", "row"]
ATOM_ORDERS: tuple[AtomOrder, ...] = ("column", "row")
Major = Literal["K", "MN"]
MAJORS: tuple[Major, ...] = ("K", "MN")
ELEMENT_BITS = (1, 2, 4, 6, 8, 16, 32, 64, 128)
Of = TypeVar("Of")


def major_named(major: object) -> Major:
    """The majorness, however it is spelled: K, k, MN, mn, M, N.

    >>> major_named("n")
    'MN'
    """
    folded = major.strip().upper() if isinstance(major, str) else ""
    if folded in ("MN", "M", "N"):
        return "MN"
    if folded == "K":
        return "K"
    raise RuleError([unknown_name("majorness", "major", major, MAJORS)])


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
    (first_extent, first_stride), (second_extent, second_stride) = (index[0] for index in pairs)
    if element_bits in (first_stride, second_stride):
        return "K" if second_stride == element_bits else "MN"
    return "K" if second_extent == 1 else "MN" if first_extent == 1 else None


class Tiling(NamedTuple):
    """A grid of equal atoms in rows and columns, which are contiguous.

    >>> Tiling((64, 32), 16, (8, 16), "row", 0).atom_strides_bytes
    (512, 256)
    """

    shape: tuple[int, int]  # rows, columns in elements
    element_bits: int
    atom: tuple[int, int]  # rows, columns of what is stored whole
    atom_order: AtomOrder
    padding_bytes: int  # after each row of an atom

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
        """How many atoms the tile is high and wide."""
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
        return prod(self.grid) * self.atom_bytes

    def pairs(self) -> tuple[Pairs, Pairs]:
        """(extent, stride in bits) of rows and of columns, the fewest that say it."""
        (below, beside), (high, wide) = self.atom_strides_bytes, self.grid
        rows = coalesced((self.atom[0], 8 * self.pitch_bytes), (high, 8 * below))
        return rows, coalesced((self.atom[1], self.element_bits), (wide, 8 * beside))


def find_tiling(rows: Pairs, columns: Pairs, element_bits: int) -> Tiling | None:
    """The grid of atoms that these strides (in bits) are; None where they are none.

    >>> find_tiling(((16, 1152),), ((64, 16), (2, 18432)), 16).padding_bytes
    16
    """
    for tiling in _tilings(rows, columns, element_bits):
        if tiling.pairs() == (rows, columns):
            return tiling
    return None


def _tilings(rows: Pairs, columns: Pairs, element_bits: int) -> Iterator[Tiling]:
    """Every grid that the strides leave possible."""
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
            yield Tiling(shape, element_bits, (atom_rows, atom_columns), order, padding_bits // 8)
