"""The drawing of a swizzle: where each piece of a line lies, before and after, and the facts about the mode.

Logical               Physical
chunk  0 1 2 3 …      chunk  0 1 2 3 …      a cell says which source chunk is found there, and has
line 0 0 1 2 3 …      line 0 0 1 2 3 …      that chunk's colour: columns of one colour on the left
line 1 0 1 2 3 …      line 1 1 0 3 2 …      fan out over all banks on the right
"""

from __future__ import annotations

from dataclasses import dataclass

from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES, Swizzle
from tilescope.view.drawing import Drawing
from tilescope.view.grid import Cell, Grid, Header, Row, Tier
from tilescope.view.palette import Mark
from tilescope.view.parts import Beside, Paragraph, Part
from tilescope.view.swizzle_facts import fact_table, rule_sentence

_BANK_BYTES = 4
_MOST = 32  # columns or rows of a drawing; wider patterns are cut and say so


@dataclass(frozen=True, slots=True)
class _Frame:
    """How a swizzle is cut into rows and pieces for the drawing."""

    row_bytes: int
    piece_bytes: int
    row_step: int  # rows from one drawn row to the next: those between look the same
    row_count: int
    between_rows: bool  # pieces change rows instead of columns (negative shift)
    cut: bool  # the pattern is larger than the drawing

    @property
    def columns(self) -> int:
        return self.row_bytes // self.piece_bytes

    @property
    def is_line(self) -> bool:
        return self.row_bytes == SMEM_LINE_BYTES


def draw_swizzle(swizzle: Swizzle, address: int = 0) -> Drawing:
    """A mode's pattern from shared address `address` on, with its rule, limits, codes and sources.

    >>> print(draw_swizzle(Swizzle.named("32B")).text(80).splitlines()[2])
    Chunk c of line l (128 bytes) lies at place c XOR (l mod 2).
    """
    swizzle.apply(address)  # refuses what is no address
    frame = _frame(swizzle)
    grids: list[Part] = [_grid(swizzle, address, frame, physical) for physical in (False, True)]
    if swizzle.span_bytes and SMEM_LINE_BYTES % swizzle.span_bytes == 0 and swizzle.span_bytes < SMEM_LINE_BYTES:
        grids.append(_box_rows(swizzle, address))
    title = f"Swizzle {swizzle.name}"
    if address:
        title += f" at shared address {address:#x}, base offset {swizzle.base_offset(address)}"
    return Drawing(title, (Paragraph(rule_sentence(swizzle)), Beside(tuple(grids)), fact_table(swizzle, address)))


def logical_grid(swizzle: Swizzle, address: int = 0) -> Grid:
    """The pattern as a program counts it, without the swizzle.

    >>> logical_grid(Swizzle.named("32B")).rows[1].cells[2].title
    'logical bytes 0xa0 to 0xaf: lie at 0xb0 to 0xbf'
    """
    return _grid(swizzle, address, _frame(swizzle), physical=False)


def _frame(swizzle: Swizzle) -> _Frame:
    if swizzle.bits == 0:
        return _Frame(SMEM_LINE_BYTES, CHUNK_BYTES, 1, 1, between_rows=False, cut=False)
    piece = swizzle.piece_bytes
    row = SMEM_LINE_BYTES
    if swizzle.shift < 0 or swizzle.block_bytes > SMEM_LINE_BYTES or piece < _BANK_BYTES:
        piece = swizzle.atom_bytes  # pieces leave their line or are smaller than a bank: rows of their own size
        row = min(_MOST, 1 << swizzle.bits) * piece
    upper_bit = swizzle.base + abs(swizzle.shift)  # of the two fields of the address, the one that numbers rows
    step = max(1, (1 << upper_bit) // row)
    rows = max(1, (1 << upper_bit + swizzle.bits) // (row * step))
    return _Frame(row, piece, step, min(rows, _MOST), swizzle.shift < 0, max(rows, 1 << swizzle.bits) > _MOST)


def _grid(swizzle: Swizzle, address: int, frame: _Frame, physical: bool) -> Grid:
    first_row = address // frame.row_bytes
    period_rows = max(1, swizzle.repeat_bytes // frame.row_bytes)
    aimed = swizzle.apply(address) if physical else address
    rows = []
    for number in range(first_row, first_row + frame.row_count * frame.row_step, frame.row_step):
        start = number * frame.row_bytes
        cells = []
        for place in range(start, start + frame.row_bytes, frame.piece_bytes):
            source = swizzle.apply(place) if physical else place
            marked = address % frame.row_bytes != 0 and place <= aimed < place + frame.piece_bytes
            cells.append(_cell(swizzle, frame, place, source, physical, "focus" if marked else ""))
        labels = (str(number), f"{start:#06x}") if physical else (str(number),)
        ruled = number % period_rows == 0 and number > first_row and not frame.between_rows
        rows.append(Row(labels, tuple(cells), ruled))
    unit = "line" if frame.is_line else "row"
    names = (unit, "byte") if physical else (unit,)
    title = "Physical: as it lies in shared memory" if physical else "Logical: as a program counts"
    return Grid(title, _tiers(frame), tuple(rows), names, tuple(_notes(swizzle, frame, physical)))


def _cell(swizzle: Swizzle, frame: _Frame, place: int, source: int, physical: bool, mark: Mark) -> Cell:
    column = source % frame.row_bytes // frame.piece_bytes
    if frame.between_rows:
        text, colour = str(source // frame.row_bytes), source // frame.row_bytes // frame.row_step
    elif swizzle.flip_bytes:
        text, colour = f"{column // 2}{'LH'[column % 2]}", column // 2
    else:
        text, colour = str(column), column
    last = frame.piece_bytes - 1
    if physical:
        banks = f", {_banks(place, frame.piece_bytes)}" if frame.is_line else ""
        title = f"bytes {place:#x} to {place + last:#x}{banks}: hold logical bytes {source:#x} to {source + last:#x}"
    else:
        goes_to = swizzle.apply(place)
        title = f"logical bytes {place:#x} to {place + last:#x}: lie at {goes_to:#x} to {goes_to + last:#x}"
    return Cell(text, colour, mark, title, link=f"{source if physical else place:x}")


def _banks(address: int, length_bytes: int) -> str:
    first = address // _BANK_BYTES % 32
    last = first + length_bytes // _BANK_BYTES - 1
    return f"bank {first}" if first == last else f"banks {first}-{last}"


def _tiers(frame: _Frame) -> tuple[Tier, ...]:
    columns = range(frame.columns)
    if not frame.is_line:
        return (Tier.of(_piece_name(frame.piece_bytes), columns),)
    banks = []
    width = frame.piece_bytes // _BANK_BYTES
    for column in columns:
        first, last = column * width, (column + 1) * width - 1
        banks.append(Header(f"{first}-{last}" if last > first else str(first), short=str(first)))
    bank_tier = Tier("bank", tuple(banks))
    if frame.piece_bytes == CHUNK_BYTES:
        return bank_tier, Tier.of("chunk", columns)
    if frame.piece_bytes > CHUNK_BYTES:
        return bank_tier, Tier.of(_piece_name(frame.piece_bytes), columns)
    chunks = Tier.of("chunk", range(SMEM_LINE_BYTES // CHUNK_BYTES), span=CHUNK_BYTES // frame.piece_bytes)
    return chunks, bank_tier


def _piece_name(piece_bytes: int) -> str:
    return f"{piece_bytes} B" if piece_bytes < 1024 else f"{piece_bytes // 1024} KiB"


def _notes(swizzle: Swizzle, frame: _Frame, physical: bool) -> list[str]:
    notes = []
    if physical and swizzle.flip_bytes:
        notes.append("L and H are the lower and upper 8 bytes of a chunk; odd lines exchange them.")
    if physical and frame.between_rows:
        unit = "line" if frame.is_line else "row"
        notes.append(f"A cell names the {unit} that its bytes come from; the column stays.")
    if physical and frame.row_step > 1 and not frame.cut:
        notes.append(f"One row in {frame.row_step} is drawn: those between look the same.")
    if physical and frame.cut:
        notes.append(f"The pattern is larger than this drawing, which shows {_MOST} columns and rows of it at most.")
    return notes


def _box_rows(swizzle: Swizzle, address: int) -> Grid:
    """The same pattern by rows of the box, several of which share a line."""
    assert swizzle.span_bytes is not None
    start = address // SMEM_LINE_BYTES * SMEM_LINE_BYTES
    rows_per_line = SMEM_LINE_BYTES // swizzle.span_bytes
    places = range(swizzle.span_bytes // CHUNK_BYTES)
    rows = []
    for row in range(swizzle.period_lines * rows_per_line):
        line = start // SMEM_LINE_BYTES + row // rows_per_line
        cells = []
        for place in places:
            source = swizzle.chunk_in_row(row, place, start)
            at = start + row * swizzle.span_bytes + place * CHUNK_BYTES
            title = f"bytes {at:#x} to {at + CHUNK_BYTES - 1:#x}: hold chunk {source} of box row {row}"
            logical = start + row * swizzle.span_bytes + source * CHUNK_BYTES
            cells.append(Cell(str(source), source, title=title, link=f"{logical:x}"))
        rows.append(Row((str(row), str(line)), tuple(cells), ruled=row > 0 and row % rows_per_line == 0))
    tiers = (Tier.of("byte", (place * CHUNK_BYTES for place in places)), Tier.of("chunk", places))
    title = f"The same by box rows of {swizzle.span_bytes} bytes"
    return Grid(title, tiers, tuple(rows), ("row", "line"), _trap(swizzle, start))


def _trap(swizzle: Swizzle, start: int) -> tuple[str, ...]:
    """The rule by rows, and the first row where taking rows for lines goes wrong."""
    assert swizzle.span_bytes is not None
    rows_per_line = SMEM_LINE_BYTES // swizzle.span_bytes
    period = swizzle.period_lines
    phase = swizzle.base_offset(start)
    right = f"`c ^ ((r / {rows_per_line}{f' + {phase}' if phase else ''}) % {period})`"
    wrong = f"`c ^ (r % {period})`"
    places = range(swizzle.span_bytes // CHUNK_BYTES)
    for row in range(period * rows_per_line):
        found = [swizzle.chunk_in_row(row, place, start) for place in places]
        mistaken = [place ^ row % period for place in places]
        if found != mistaken:
            break
    said = f"Row {row} holds `{' '.join(map(str, found))}`, not `{' '.join(map(str, mistaken))}`."
    return (f"{rows_per_line} rows share a line: chunk c of row r lies at {right}, not at {wrong}. {said}",)
