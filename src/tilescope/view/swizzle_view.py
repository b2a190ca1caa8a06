"""The drawing of a swizzle: where each piece of a line lies, before and after, and the facts about the mode.

Logical               Physical
chunk  0 1 2 3 …      chunk  0 1 2 3 …      a cell says which source chunk is found there, and has
line 0 0 1 2 3 …      line 0 0 1 2 3 …      that chunk's colour: columns of one colour on the left
line 1 0 1 2 3 …      line 1 1 0 3 2 …      fan out over all banks on the right
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES, Swizzle
from tilescope.view.drawing import Drawing
from tilescope.view.grid import Cell, Grid, Row, Tier, number_span
from tilescope.view.parts import Beside, Paragraph, Table
from tilescope.view.swizzle_facts import facts, rule_sentence

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
    def columns(self) -> range:
        return range(self.row_bytes // self.piece_bytes)

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
    grids = [_grid(swizzle, address, frame, physical) for physical in (False, True)]
    if swizzle.span_bytes and SMEM_LINE_BYTES % swizzle.span_bytes == 0 and swizzle.span_bytes < SMEM_LINE_BYTES:
        grids.append(_box_rows(swizzle, swizzle.span_bytes, address // SMEM_LINE_BYTES * SMEM_LINE_BYTES))
    title = f"Swizzle {swizzle.name}"
    if swizzle.hardware_mode not in (None, swizzle):
        title += f" (the {swizzle.hardware_mode} mode)"
    if address:
        title += f" at shared address {address:#x}, base offset {swizzle.base_offset(address)}"
    known = Table(tuple(facts(swizzle, address).items()))
    return Drawing(title, (Paragraph(rule_sentence(swizzle)), Beside(tuple(grids)), known))


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
    """The pattern as a program counts or as it lies in shared memory, whose cells say what they hold."""
    unit = "line" if frame.is_line else "row"
    first_row = address // frame.row_bytes
    period_rows = max(1, swizzle.repeat_bytes // frame.row_bytes)
    aimed = swizzle.apply(address) if physical else address
    rows = []
    for number in range(first_row, first_row + frame.row_count * frame.row_step, frame.row_step):
        start = number * frame.row_bytes
        cells = [
            _cell(swizzle, frame, place, physical) for place in range(start, start + frame.row_bytes, frame.piece_bytes)
        ]
        if address % frame.row_bytes and start <= aimed < start + frame.row_bytes:
            marked = (aimed - start) // frame.piece_bytes
            cells[marked] = replace(cells[marked], mark="focus")
        ruled = number % period_rows == 0 and number > first_row and not frame.between_rows
        rows.append(Row((str(number), f"{start:#06x}") if physical else (str(number),), tuple(cells), ruled))
    if not physical:
        return Grid("Logical: as a program counts", _tiers(frame), tuple(rows), (unit,))
    notes = {
        "L and H are the lower and upper 8 bytes of a chunk; odd lines exchange them.": swizzle.flip_bytes,
        f"A cell names the {unit} that its bytes come from; the column stays.": frame.between_rows,
        f"One row in {frame.row_step} is drawn: those between look the same.": frame.row_step > 1 and not frame.cut,
        f"The pattern is larger than this drawing, which shows {_MOST} columns and rows of it at most.": frame.cut,
    }
    said = tuple(note for note, holds in notes.items() if holds)
    return Grid("Physical: as it lies in shared memory", _tiers(frame), tuple(rows), (unit, "byte"), said)


def _cell(swizzle: Swizzle, frame: _Frame, place: int, physical: bool) -> Cell:
    other = swizzle.apply(place)
    source, last = other if physical else place, frame.piece_bytes - 1
    column = source % frame.row_bytes // frame.piece_bytes
    text, colour = str(column), column
    if frame.between_rows:
        text, colour = str(source // frame.row_bytes), source // frame.row_bytes // frame.row_step
    elif swizzle.flip_bytes:
        text, colour = f"{column // 2}{'LH'[column % 2]}", column // 2
    if not physical:
        return Cell(
            text, colour, title=f"logical bytes {place:#x} to {place + last:#x}: lie at {other:#x} to {other + last:#x}"
        )
    bank = place // _BANK_BYTES % 32
    banks = number_span(bank, bank + frame.piece_bytes // _BANK_BYTES - 1)
    where = f", bank{'s' if '-' in banks else ''} {banks}" if frame.is_line else ""
    title = f"bytes {place:#x} to {place + last:#x}{where}: hold logical bytes {other:#x} to {other + last:#x}"
    return Cell(text, colour, title=title)


def _tiers(frame: _Frame) -> tuple[Tier, ...]:
    piece = frame.piece_bytes
    pieces = Tier.of(f"{piece} B" if piece < 1024 else f"{piece // 1024} KiB", frame.columns)
    if not frame.is_line:
        return (pieces,)
    banks = Tier.of_ranges("bank", len(frame.columns), piece // _BANK_BYTES)
    if piece < CHUNK_BYTES:
        return Tier.of("chunk", range(SMEM_LINE_BYTES // CHUNK_BYTES), span=CHUNK_BYTES // piece), banks
    return banks, Tier.of("chunk", frame.columns) if piece == CHUNK_BYTES else pieces


def _box_rows(swizzle: Swizzle, span_bytes: int, start: int) -> Grid:
    """The same pattern by rows of the box, several of which share a line."""
    rows_per_line, places = SMEM_LINE_BYTES // span_bytes, range(span_bytes // CHUNK_BYTES)
    chunks = [
        [swizzle.chunk_in_row(row, place, start) for place in places]
        for row in range(swizzle.period_lines * rows_per_line)
    ]
    rows = []
    for row, sources in enumerate(chunks):
        at = range(start + row * span_bytes, start + (row + 1) * span_bytes, CHUNK_BYTES)
        cells = tuple(
            Cell(str(source), source, title=f"bytes {byte:#x} to {byte + CHUNK_BYTES - 1:#x}: hold chunk {source} of box row {row}")
            for byte, source in zip(at, sources, strict=True)
        )  # fmt: skip
        rows.append(Row((str(row), str(at[0] // SMEM_LINE_BYTES)), cells, ruled=row > 0 and row % rows_per_line == 0))
    tiers = (Tier.of("byte", (place * CHUNK_BYTES for place in places)), Tier.of("chunk", places))
    note = _trap(swizzle.period_lines, rows_per_line, swizzle.base_offset(start), chunks)
    return Grid(f"The same by box rows of {span_bytes} bytes", tiers, tuple(rows), ("row", "line"), (note,))


def _trap(period: int, rows_per_line: int, phase: int, chunks: list[list[int]]) -> str:
    """The rule by rows, and the first row where taking rows for lines goes wrong."""
    right = f"`c ^ ((r / {rows_per_line}{f' + {phase}' if phase else ''}) % {period})`"
    mistakes = [[place ^ row % period for place in range(len(chunks[0]))] for row in range(len(chunks))]
    row = next(row for row, found in enumerate(chunks) if found != mistakes[row])
    found, mistaken = (" ".join(map(str, each)) for each in (chunks[row], mistakes[row]))
    rule = f"{rows_per_line} rows share a line: chunk c of row r lies at {right}, not at `c ^ (r % {period})`."
    return f"{rule} Row {row} holds `{found}`, not `{mistaken}`."
