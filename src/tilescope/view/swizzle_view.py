"""The drawing of a swizzle: the place of each piece of a line, before and after, and the facts about the mode.

Logical               Physical
chunk  0 1 2 3 …      chunk  0 1 2 3 …      a cell says which source chunk is found there, and has
line 0 0 1 2 3 …      line 0 0 1 2 3 …      that chunk's colour: columns of one colour on the left
line 1 0 1 2 3 …      line 1 1 0 3 2 …      fan out over all banks on the right
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Self

from tilescope.smem.op import BANK_BYTES
from tilescope.swizzle import CHUNK_BYTES, CHUNKS_PER_LINE, SMEM_LINE_BYTES, Swizzle
from tilescope.swizzle.swizzle_facts import facts, rule_sentence
from tilescope.view.drawing import Beside, Drawing, Table
from tilescope.view.grid import Cell, Grid, Header, Tier
from tilescope.view.memory_grid import bank_of, bank_words
from tilescope.view.walk_step import Step

_MOST = 32  # columns or rows of a drawing; wider patterns are cut and say so


class _Frame(NamedTuple):
    """How a swizzle is cut into rows and pieces for the drawing."""

    row_bytes: int
    piece_bytes: int
    row_step: int = 1  # rows from one drawn row to the next: those between look the same
    row_count: int = 1
    between_rows: bool = False  # pieces change rows instead of columns (negative shift)
    cut: bool = False  # the pattern is larger than the drawing

    @classmethod
    def of(cls, swizzle: Swizzle) -> Self:
        if swizzle.bits == 0:
            return cls(SMEM_LINE_BYTES, CHUNK_BYTES)
        row_bytes = SMEM_LINE_BYTES
        piece_bytes = swizzle.piece_bytes
        if swizzle.shift < 0 or swizzle.block_bytes > SMEM_LINE_BYTES or piece_bytes < BANK_BYTES:
            # pieces leave their line or are smaller than a bank: rows have the pieces' size
            piece_bytes = swizzle.atom_bytes
            row_bytes = min(_MOST, 1 << swizzle.bits) * piece_bytes
        upper_bit = swizzle.base + abs(swizzle.shift)  # of the two fields of the address, the one that numbers rows
        row_step = max(1, (1 << upper_bit) // row_bytes)
        rows = max(1, (1 << upper_bit + swizzle.bits) // (row_bytes * row_step))
        return cls(
            row_bytes,
            piece_bytes,
            row_step,
            row_count=min(rows, _MOST),
            between_rows=swizzle.shift < 0,
            cut=max(rows, 1 << swizzle.bits) > _MOST,
        )

    @property
    def is_line(self) -> bool:
        return self.row_bytes == SMEM_LINE_BYTES

    @property
    def row_name(self) -> str:
        return "line" if self.is_line else "row"

    @property
    def piece_name(self) -> str:
        if self.piece_bytes == CHUNK_BYTES:
            return "chunk"
        if self.piece_bytes < 1024:
            return f"{self.piece_bytes} B"
        return f"{self.piece_bytes // 1024} KiB"

    def places(self) -> range:
        """Where in a row the pieces start."""
        return range(0, self.row_bytes, self.piece_bytes)

    def rows_from(self, address: int) -> range:
        """The addresses of the rows that are drawn, the first that which holds `address`."""
        first = address // self.row_bytes * self.row_bytes
        step = self.row_step * self.row_bytes
        return range(first, first + self.row_count * step, step)


class _Columns(NamedTuple):
    """The headers over the pieces of a row: their name, the texts by first byte, and the tiers above them."""

    name: str
    headers: dict[int, object]
    outer: tuple[Tier, ...] = ()

    @classmethod
    def of(cls, frame: _Frame) -> Self:
        piece_bytes = frame.piece_bytes
        numbers: dict[int, object] = {byte: byte // piece_bytes for byte in frame.places()}
        if not frame.is_line:
            return cls(frame.piece_name, numbers)
        banks: dict[int, object] = {
            byte: Header.of_numbers(byte // BANK_BYTES, piece_bytes // BANK_BYTES) for byte in frame.places()
        }
        if piece_bytes < CHUNK_BYTES:
            chunks = Tier.of("chunk", range(CHUNKS_PER_LINE), span=CHUNK_BYTES // piece_bytes)
            return cls("bank", banks, (chunks,))
        return cls(frame.piece_name, numbers, (Tier.of("bank", banks.values()),))


def draw_swizzle(swizzle: Swizzle, address: int = 0) -> Drawing:
    """A mode's pattern from shared address `address` on, with its rule, limits, codes and sources.

    >>> print(draw_swizzle(Swizzle.named("32B")).text(80).splitlines()[2])
    Chunk c of line l (128 bytes) is stored at place c XOR (l mod 2).
    """
    swizzle.apply(address)  # refuses what is no address
    grids = {"logical": pattern_grid(swizzle, address), "physical": pattern_grid(swizzle, address, physical=True)}
    span_bytes = swizzle.span_bytes
    if span_bytes and span_bytes < SMEM_LINE_BYTES and SMEM_LINE_BYTES % span_bytes == 0:
        first_line = address // SMEM_LINE_BYTES * SMEM_LINE_BYTES
        grids["box rows"] = _box_rows(swizzle, span_bytes, first_line)
    return Drawing(
        _title(swizzle, address),
        {
            "rule": rule_sentence(swizzle),
            "grids": Beside(grids),
            "facts": Table(facts(swizzle, address)),
        },
    )


def _title(swizzle: Swizzle, address: int) -> str:
    title = f"Swizzle {swizzle.name}"
    if swizzle.hardware_mode not in (None, swizzle):
        title += f" (the {swizzle.hardware_mode} mode)"
    if address:
        title += f" at shared address {address:#x}, base offset {swizzle.base_offset(address)}"
    return title


def pattern_grid(swizzle: Swizzle, address: int = 0, *, physical: bool = False) -> Grid:
    """The pattern in logical order, or as in shared memory, whose cells name their contents.

    >>> pattern_grid(Swizzle.named("32B")).rows[1].cells[2].title
    'logical bytes 0xa0 to 0xaf: stored at 0xb0 to 0xbf'
    """
    frame = _Frame.of(swizzle)
    columns = _Columns.of(frame)
    title = "Logical: as a program counts"
    names: tuple[str, ...] = (frame.row_name, columns.name)
    rows: dict[int, tuple[str, ...]] = {start: (str(start // frame.row_bytes),) for start in frame.rows_from(address)}
    if physical:
        title = "Physical: as stored in shared memory"
        names = (frame.row_name, "byte", columns.name)
        rows = {start: (number, f"{start:#06x}") for start, (number,) in rows.items()}

    def cell(start: int, byte: int) -> Cell:
        return _piece_cell(swizzle, frame, start + byte, physical=physical)

    grid = Grid.of(
        title,
        names,
        rows,
        columns.headers,
        cell,
        rule_every=0 if frame.between_rows else max(frame.row_bytes, swizzle.repeat_bytes),
        outer=columns.outer,
        notes=_notes(swizzle, frame) if physical else (),
    )
    is_within_row = address % frame.row_bytes > 0
    piece = address // frame.piece_bytes * frame.piece_bytes
    return grid.marked({f"{piece:x}"}) if is_within_row else grid


def _piece_cell(swizzle: Swizzle, frame: _Frame, place: int, *, physical: bool) -> Cell:
    """The piece at a logical address or an address in shared memory."""
    other = swizzle.apply(place)
    source = other if physical else place  # what the piece is called after
    row = source // frame.row_bytes
    column = source % frame.row_bytes // frame.piece_bytes
    text = str(column)
    colour = column
    if frame.between_rows:
        text = str(row)
        colour = row // frame.row_step
    elif swizzle.flip_bytes:
        half = "LH"[column % 2]
        text = f"{column // 2}{half}"
        colour = column // 2
    here = f"{place:#x} to {place + frame.piece_bytes - 1:#x}"
    there = f"{other:#x} to {other + frame.piece_bytes - 1:#x}"
    title = f"logical bytes {here}: stored at {there}"
    if physical:
        banks = f", {bank_words(bank_of(place), frame.piece_bytes)}" if frame.is_line else ""
        title = f"bytes {here}{banks}: hold logical bytes {there}"
    return Cell(text, colour, title=title, link=f"{source:x}")


def _notes(swizzle: Swizzle, frame: _Frame) -> list[str]:
    notes = []
    if swizzle.flip_bytes:
        notes.append("L and H are the lower and upper 8 bytes of a chunk; odd lines exchange them.")
    if frame.between_rows:
        notes.append(f"A cell names the {frame.row_name} that its bytes come from; the column stays.")
    if frame.cut:
        notes.append(f"The pattern is larger than this drawing, which shows {_MOST} columns and rows of it at most.")
    elif frame.row_step > 1:
        notes.append(f"One row in {frame.row_step} is drawn: those between look the same.")
    return notes


def _box_rows(swizzle: Swizzle, span_bytes: int, start: int) -> Grid:
    """The same pattern by rows of the box, several of which share a line."""
    rows_per_line = SMEM_LINE_BYTES // span_bytes
    places = range(span_bytes // CHUNK_BYTES)
    rows = range(swizzle.period_lines * rows_per_line)
    sources = [[swizzle.chunk_in_row(row, place, start) for place in places] for row in rows]

    def cell(row: int, place: int) -> Cell:
        source = sources[row][place]
        first = start + row * span_bytes
        byte = first + place * CHUNK_BYTES
        title = f"bytes {byte:#x} to {byte + CHUNK_BYTES - 1:#x}: hold chunk {source} of box row {row}"
        return Cell(str(source), source, title=title, link=f"{first + source * CHUNK_BYTES:x}")

    return Grid.of(
        f"The same by box rows of {span_bytes} bytes",
        ("row", "line", "chunk"),
        {row: (str(row), str((start + row * span_bytes) // SMEM_LINE_BYTES)) for row in rows},
        places,
        cell,
        rule_every=rows_per_line,
        outer=(Tier.of("byte", range(0, span_bytes, CHUNK_BYTES)),),
        notes=[_rule_of_box_rows(swizzle, rows_per_line, start, sources)],
    )


def _rule_of_box_rows(swizzle: Swizzle, rows_per_line: int, start: int, sources: list[list[int]]) -> str:
    """How to address a chunk by its row, and what somebody would read who takes rows for lines."""
    period = swizzle.period_lines
    offset = swizzle.base_offset(start)
    line = f"r / {rows_per_line} + {offset}" if offset else f"r / {rows_per_line}"
    mistakes = [[place ^ row % period for place in range(len(chunks))] for row, chunks in enumerate(sources)]
    wrong = next(row for row, chunks in enumerate(sources) if chunks != mistakes[row])
    stored = " ".join(map(str, sources[wrong]))
    mistaken = " ".join(map(str, mistakes[wrong]))
    return (
        f"{rows_per_line} rows share a line: chunk c of row r is stored at `c ^ (({line}) % {period})`, "
        f"not at `c ^ (r % {period})`. Row {wrong} holds `{stored}`, not `{mistaken}`."
    )


def walk_swizzle(swizzle: Swizzle, *, address: int = 0) -> Iterator[Step]:
    """Every piece of the pattern, in the order in which a program counts.

    >>> next(walk_swizzle(Swizzle.named("32B"))).sentence
    'logical bytes 0x0 to 0xf: stored at 0x0 to 0xf'
    """
    for row in pattern_grid(swizzle, address).rows:
        for cell in row.cells:
            yield Step(cell.link, cell.title)


DRAWINGS = {Swizzle: draw_swizzle}
WALKS = {Swizzle: walk_swizzle}
