"""A tile cut into pieces that are contiguous in shared memory, drawn both ways.

The tile                        Shared memory
k      0  8 16 24 …             bank       0    4    8   12 …      a cell of the tile says its 16-byte place, a cell
mn 0   0  1  2  3 …             0x0000   0,0  0,8 0,16 0,24 …      of memory the piece it holds; both share a link
mn 1   9  8 11 10 …             0x0080   1,8  1,0 1,24 1,16 …
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Self

import numpy as np
import numpy.typing as npt

from tilescope.layout import Layout
from tilescope.sentence import counted
from tilescope.swizzle import CHUNK_BYTES, CHUNKS_PER_LINE
from tilescope.view.grid import Cell, Grid
from tilescope.view.memory_grid import bank_of, memory_grid, memory_row_bytes
from tilescope.view.number_span import extent
from tilescope.view.palette import Mark

_MOST = 16  # rows and columns of a tile, in pieces
_MAX_LINES = 128  # of shared memory
_MAX_LINKS = 8  # pieces linked to a place of shared memory, if several are there
Element = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Pieces:
    """A tile cut into pieces that are contiguous in shared memory, contiguous index left to right."""

    addresses: npt.NDArray[np.int64]  # of the first bytes of pieces: rows x pieces
    elements: int  # of a piece
    bytes: int
    names: tuple[str, str]  # of rows and columns
    corner: Element = (0, 0)  # what the first piece starts with

    @classmethod
    def of(
        cls,
        layout: Layout,
        *,
        addresses: npt.NDArray[np.int64] | None = None,
        names: tuple[str, str] | None = None,
        most: int | None = None,
        corner: Element = (0, 0),
    ) -> Self:
        """The widest pieces, up to 16 bytes and `most` elements, that no row's swizzle takes apart."""
        addresses = row_addresses(layout) if addresses is None else addresses
        count = most or max(1, CHUNK_BYTES * 8 // layout.element_bits)
        while count > 1 and not _whole(addresses, count, layout.element_bits):
            count //= 2
        return cls(
            addresses=addresses[:, ::count],
            elements=count,
            bytes=max(1, count * layout.element_bits // 8),
            names=names or layout.as_rows().names,
            corner=corner,
        )

    @property
    def key(self) -> str:
        """The content and text of a cell of the tile."""
        elements = "one element" if self.elements == 1 else f"{self.elements} elements"
        return (
            f"A cell is {elements} of the tile ({counted(self.bytes, 'byte')}); "
            f"its number is the {self.bytes}-byte place that holds it, counted from shared address 0. "
            "One colour, one chunk of the banks."
        )

    def firsts(self) -> tuple[range, range]:
        """The rows and columns that pieces start with."""
        row, column = self.corner
        high, wide = self.addresses.shape
        return range(row, row + high), range(column, column + wide * self.elements, self.elements)

    def where(self, row: int, column: int) -> str:
        """The elements of a piece, such as "mn 1, k 8 to 15"."""
        return f"{self.names[0]} {row}, {self.names[1]} {extent(column, self.elements, ' to ')}"

    def grid(
        self,
        title: str,
        most: tuple[int, int] = (_MOST, _MOST),
        *,
        asked: Element | None = None,
        in_bytes: bool = False,
        elsewhere: npt.NDArray[np.bool_] | None = None,
    ) -> Grid:
        """The pieces of the tile, each with the number of the place that holds it, or with its address.

        Of a large tile those are drawn among which the element lies that was `asked` for, by its row and column. Pieces
        that lie `elsewhere` in another layout are marked.
        """

        def cell(row: int, column: int) -> Cell:
            place = row - self.corner[0], (column - self.corner[1]) // self.elements
            address = int(self.addresses[place])
            mark: Mark = "collision" if elsewhere is not None and elsewhere[place] else ""
            tooltip = f"{self.where(row, column)}: at {address:#x}, from bank {bank_of(address)}"
            text = f"{address:#05x}" if in_bytes else str(address // self.bytes)
            return Cell(text, address // CHUNK_BYTES % CHUNKS_PER_LINE, mark, title=tooltip, link=f"{row},{column}")

        rows, columns = self.firsts()
        notes = []
        if in_bytes:
            notes.append("A cell is a 16-byte chunk and says its address. Colour: the four banks that hold it.")
        around: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
        if asked is not None:
            around = (asked[0],), (asked[1] // self.elements * self.elements,)
        return Grid.of(title, self.names, rows, columns, cell, most=most, asked=around, notes=notes)

    def memory(self, title: str, colour: str = "its column of the tile", most: int = _MAX_LINES) -> Grid:
        """The lines of shared memory that the tile touches; a cell names the first element of the piece it holds."""
        elements_at: dict[int, list[Element]] = {}
        for first, address in zip(product(*self.firsts()), self.addresses.ravel().tolist(), strict=True):
            elements_at.setdefault(address // self.bytes * self.bytes, []).append(first)
        rows_are_k = self.names == ("k", "mn")  # cells name mn before k all the same

        def mn_first(row: object, column: object) -> str:
            return f"{column},{row}" if rows_are_k else f"{row},{column}"

        def cell(address: int) -> Cell:
            if address not in elements_at:
                return Cell("", "gap", title=f"from byte {address:#x} on: not of the tile")
            (row, column), *others = elements_at[address]
            title = f"from byte {address:#x} on: {self.where(row, column)}"
            if others:
                title += f", and {counted(len(others), 'other')}"
            link = " ".join(f"{row},{column}" for row, column in elements_at[address][:_MAX_LINKS])
            number = (column - self.corner[1]) // self.elements
            return Cell(mn_first(row, column), number, title=title, link=link)

        note = f"A cell names the {mn_first(*self.names)} that its piece starts with. Colour: {colour}."
        row_bytes = memory_row_bytes(self.bytes)
        lines = sorted({address // row_bytes * row_bytes for address in elements_at})
        return memory_grid(title, lines, cell, piece_bytes=self.bytes, most=most, notes=[note])


def row_addresses(layout: Layout) -> npt.NDArray[np.int64]:
    """The address of every element, by rows and columns of the drawing."""
    rows = layout.as_rows()
    return np.asarray(rows.address(*np.ix_(*map(np.arange, rows.shape))))


def _whole(addresses: npt.NDArray[np.int64], count: int, element_bits: int) -> bool:
    """Whether every run of `count` elements is contiguous and aligned to its size."""
    rows, columns = addresses.shape
    if columns % count or count * element_bits % 8:
        return False
    run_bytes = count * element_bits // 8
    runs = addresses.reshape(rows, columns // count, count)
    first = runs[:, :, :1]
    is_contiguous = (runs == first + np.arange(count) * element_bits // 8).all()
    is_aligned = (first % run_bytes == 0).all()
    return bool(is_contiguous and is_aligned)
