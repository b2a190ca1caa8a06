"""The chunks of 16 bytes around one element of a tile, drawn in the same way at every stop of its path.

    Global memory          Shared memory            Read in K step           Result
    k    0-7  8-15 …       bank  0-3   4-7 …        k    0-7  8-15 …         mn
    36    ■    □           line 36  36.4  36.5 …    36    0    0     1       36   T16-19
    37    ■    □           line 37  37.5  37.4 …    37    0    0     1       37   T20-23

A chunk is named by its row and its number in the row, and has one colour and one link in all pictures.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from tilescope.layout import Major, oriented
from tilescope.layout.tiling import Rows
from tilescope.mma.fragment import Fragment
from tilescope.mma.readable_tile import SmemOperand
from tilescope.planner.consumers import operand_of
from tilescope.planner.element_path import fragment_of, row_threads, tmem_lane
from tilescope.planner.plans import ElementPath
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES
from tilescope.view.grid import Cell, Grid
from tilescope.view.memory_grid import bank_of, bank_words, memory_grid
from tilescope.view.number_span import extent, number_span
from tilescope.view.palette import Mark

_SHOWN_ROWS = 8  # of the tile: those of a swizzle's pattern
_SHOWN_CHUNKS = 8  # of a row


class Chunk(NamedTuple):
    """A chunk of the tile."""

    row: int  # of the tile, contiguous index across
    number: int  # in its row

    @property
    def link(self) -> str:
        """The word that links all cells that show it."""
        return f"{self.row}.{self.number}"


class _ResultLines(NamedTuple):
    """Rows or columns of D, and the chunks that contribute to them."""

    chunks: list[Chunk]
    first_mn: int
    last_mn: int


@dataclass(frozen=True)
class PathWindow:
    """The rows and chunks of the tile around an element that are drawn."""

    path: ElementPath

    @property
    def major(self) -> Major:
        """The contiguous dimension of the tile."""
        return self.path.plan.problem.major

    @property
    def names(self) -> tuple[str, str]:
        """The names of rows and columns: mn and k, or k and mn."""
        return oriented(self.major, "mn", "k")

    @property
    def extents(self) -> tuple[int, int]:
        """Rows and columns of the tile."""
        return oriented(self.major, *self.path.plan.problem.tile)

    @property
    def asked_chunk(self) -> Chunk:
        """The chunk that holds the element."""
        return Chunk(self.path.row, self.path.chunk)

    @property
    def asked_column(self) -> int:
        """The column of the tile that the element is in."""
        return oriented(self.major, self.path.mn, self.path.k)[1]

    @cached_property
    def chunk_elements(self) -> int:
        """How many elements a chunk holds."""
        return CHUNK_BYTES * 8 // self.path.plan.containers.element_bits

    @property
    def chunks_of_row(self) -> int:
        """How many chunks a row of the tile has."""
        return max(1, self.extents[1] // self.chunk_elements)

    @cached_property
    def rows(self) -> range:
        """The rows of the tile that are drawn."""
        first = self.path.row // _SHOWN_ROWS * _SHOWN_ROWS
        return range(first, min(first + _SHOWN_ROWS, self.extents[0]))

    @cached_property
    def numbers(self) -> range:
        """The chunks of a row that are drawn."""
        first = self.path.chunk // _SHOWN_CHUNKS * _SHOWN_CHUNKS
        return range(first, min(first + _SHOWN_CHUNKS, self.chunks_of_row))

    @cached_property
    def chunks(self) -> list[Chunk]:
        """All chunks that are drawn, row by row."""
        return [Chunk(row, number) for row in self.rows for number in self.numbers]

    @cached_property
    def _smem_tile(self) -> Rows:
        return self.path.plan.containers.with_start(self.path.smem_address).as_rows()

    def address(self, chunk: Chunk) -> int:
        """The place of a chunk in shared memory."""
        return int(self._smem_tile.address(chunk.row, chunk.number * self.chunk_elements))

    def place_words(self, chunk: Chunk) -> str:
        """The place of a chunk in shared memory, as a part of a sentence."""
        address = self.address(chunk)
        return f"at {address:#x}, {bank_words(bank_of(address), CHUNK_BYTES)}"

    def written(self, row: int, column: int) -> str:
        """An element as the field of a page holds it: mn, then k."""
        mn, k = oriented(self.major, row, column)
        return f"{mn},{k}"

    def element_in(self, chunk: Chunk) -> str:
        """The element of a chunk at the position that the requested one has in its chunk."""
        column = chunk.number * self.chunk_elements + self.asked_column % self.chunk_elements
        return self.written(chunk.row, min(column, self.extents[1] - 1))

    def k_of(self, chunk: Chunk) -> range:
        """The k of the elements of a chunk: one, where its elements run along mn."""
        column = chunk.number * self.chunk_elements
        first_k = oriented(self.major, chunk.row, column)[1]
        is_along_k = self.names[1] == "k"
        return range(first_k, first_k + (self.chunk_elements if is_along_k else 1))

    @property
    def operand(self) -> SmemOperand:
        """The operand that the tile is, A where none is named."""
        return self.path.plan.problem.operand or "A"

    @cached_property
    def fragment(self) -> Fragment:
        """The fragment that holds the element after ldmatrix."""
        fragment_layout = fragment_of(self.operand, self.path.plan.problem.data_type.name)
        assert fragment_layout is not None  # requested if a register was found in it
        return fragment_layout

    @cached_property
    def k_per_step(self) -> int | None:
        """What one step along k takes, of a descriptor or of a fragment; None where there are no steps."""
        if self.path.descriptor is not None:
            return self.path.plan.descriptors().k_per_step
        if self.path.register is not None:
            rows, columns = self.fragment.shape
            return columns if self.operand == "A" else rows
        return None

    @cached_property
    def _block_mn(self) -> int:
        """Rows of A or columns of B that one instruction takes."""
        return self.path.plan.descriptors().block_mn

    def gmem_grid(self) -> Grid:
        """The chunks as in the matrix."""
        return Grid.of(
            "Global memory: the rows of the tile",
            self.names,
            self.rows,
            self._headers(),
            lambda row, number: self._cell(Chunk(row, number), Chunk(row, number).link),
            notes=["A cell is 16 bytes: row.chunk. The framed one holds the element."],
        )

    def smem_grid(self) -> Grid:
        """The lines of shared memory that hold the chunks."""
        chunk_at = {self.address(chunk): chunk for chunk in self.chunks}
        lines = sorted({address // SMEM_LINE_BYTES * SMEM_LINE_BYTES for address in chunk_at})

        def cell(address: int) -> Cell:
            if address not in chunk_at:
                return Cell("", "unused", title=f"{address:#x}: rows that are not drawn")
            chunk = chunk_at[address]
            return self._cell(chunk, chunk.link)

        return memory_grid("Shared memory: where they are stored", lines, cell)

    def reading_grid(self) -> Grid:
        """The chunks as the tensor core takes them."""
        if self.path.descriptor is not None:
            title = "Tensor core: the K step that reads them"
        elif self.path.register is not None:
            title = "Registers: the threads that hold them"
        else:
            title = f"Read by {self.path.plan.problem.consumer_name}"
        return Grid.of(
            title,
            self.names,
            self.rows,
            self._headers(),
            lambda row, number: self._cell(Chunk(row, number), self._reader(Chunk(row, number))),
        )

    def element_grid(self) -> Grid:
        """The elements of the chunk, one by one."""
        row_name, column_name = self.names
        chunk = self.asked_chunk
        first = chunk.number * self.chunk_elements

        def cell(_: str, column: int) -> Cell:
            address = int(self._smem_tile.address(chunk.row, column))
            title = f"{row_name} {chunk.row}, {column_name} {column}: byte {address:#x}, bank {bank_of(address)}"
            mark: Mark = "focus" if column == self.asked_column else ""
            link = f"{chunk.link}.{column} {chunk.link}"
            return Cell(str(column), chunk.number % 8, mark, title, link=link, goes=self.written(chunk.row, column))

        return Grid.of(
            f"The elements of chunk {chunk.number} of {row_name} {chunk.row}",
            ("", column_name),
            [f"{row_name} {chunk.row}"],
            range(first, min(first + self.chunk_elements, self.extents[1])),
            cell,
        )

    def result_grid(self) -> Grid:
        """The rows or columns of D to which the chunks contribute."""
        result = self.path.result
        assert result is not None
        all_lines = self._result_lines()

        def cell(name: str, _: str) -> Cell:
            lines = all_lines[name]
            first = lines.first_mn % self._block_mn
            last = lines.last_mn % self._block_mn
            text = self._holder_text(first, last)
            mark: Mark = "focus" if lines.first_mn <= self.path.mn <= lines.last_mn else ""
            goes_to = self.asked_chunk if self.asked_chunk in lines.chunks else lines.chunks[0]
            return Cell(
                text,
                None,
                mark,
                f"{result.axis} {number_span(first, last)} of D: {text}",
                link=" ".join(chunk.link for chunk in lines.chunks),
                goes=self.element_in(goes_to),
            )

        return Grid.of(
            f"Result: {result.axis}s of D in {result.memory}",
            ("mn", "held by"),
            {name: name for name in all_lines},
            ["D"],
            cell,
        )

    def _result_lines(self) -> dict[str, _ResultLines]:
        """The rows or columns of D by their label: one for a row of the tile, or those of a chunk."""
        if self.names[0] == "mn":
            return {
                str(row): _ResultLines([Chunk(row, number) for number in self.numbers], row, row) for row in self.rows
            }
        lines = {}
        for number, header in self._headers().items():
            first = number * self.chunk_elements
            chunks = [Chunk(row, number) for row in self.rows]
            lines[header] = _ResultLines(chunks, first, first + self.chunk_elements - 1)
        return lines

    def _holder_text(self, first: int, last: int) -> str:
        """Who holds rows or columns of D."""
        result = self.path.result
        assert result is not None
        if result.memory == "tensor memory":
            if operand_of(self.path.plan.problem) == "B":
                return f"col {number_span(first, last)}"
            first_lane = tmem_lane(first, self._block_mn)
            last_lane = tmem_lane(last, self._block_mn)
            if first_lane is None or last_lane is None:
                return "by layout"
            return f"lane {number_span(first_lane, last_lane)}"
        if result.axis == "column":
            return f"col {number_span(first, last)}"
        return f"T{number_span(row_threads(first)[0], row_threads(last)[-1])}"

    def _headers(self) -> dict[int, str]:
        """The columns that each chunk holds."""
        return {number: self._columns_of(number) for number in self.numbers}

    def _columns_of(self, number: int, between: str = "-") -> str:
        return extent(number * self.chunk_elements, self.chunk_elements, between)

    def _cell(self, chunk: Chunk, text: str) -> Cell:
        """A chunk, as every picture shows it."""
        row_name, column_name = self.names
        elements = f"{row_name} {chunk.row}, {column_name} {self._columns_of(chunk.number, ' to ')}"
        title = f"{elements}: {self.place_words(chunk)}; {self._reader_words(chunk)}"
        mark: Mark = "focus" if chunk == self.asked_chunk else ""
        return Cell(text, chunk.number % 8, mark, title, link=chunk.link, goes=self.element_in(chunk))

    def _reader_words(self, chunk: Chunk) -> str:
        """Who reads a chunk, as a piece of a sentence."""
        if self.path.descriptor is not None:
            return f"read in K step {self._reader(chunk)}"
        if self.path.register is not None:
            return f"held by {self._reader(chunk)}"
        return f"read by {self.path.plan.problem.consumer_name}"

    def _reader(self, chunk: Chunk) -> str:
        """Who reads a chunk, in a cell: the K step, or the lanes and register that hold it."""
        if self.path.register is not None and self.path.descriptor is None:
            return self._holding_lanes(chunk)
        if self.path.descriptor is None or self.k_per_step is None:
            return chunk.link
        k = self.k_of(chunk)
        return number_span(k[0] // self.k_per_step, k[-1] // self.k_per_step)

    def _holding_lanes(self, chunk: Chunk) -> str:
        """The lanes and the registers that hold the first and the last element of a chunk after ldmatrix."""
        first_column = chunk.number * self.chunk_elements
        lanes = []
        registers = []
        for column in (first_column, first_column + self.chunk_elements - 1):
            mn, k = oriented(self.major, chunk.row, column)
            row_of_fragment, column_of_fragment = (mn, k) if self.operand == "A" else (k, mn)
            rows, columns = self.fragment.shape
            lane, value = self.fragment.holder(row_of_fragment % rows, column_of_fragment % columns)
            lanes.append(lane)
            registers.append(self.fragment.register_of(value)[0])
        return f"T{number_span(lanes[0], lanes[1])} r{number_span(registers[0], registers[1])}"
