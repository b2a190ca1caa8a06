"""The drawing of a fragment, both ways: which thread holds each element, and what each thread holds.

Which thread holds it                      What each thread holds
k      0-1   2-3   4-5   6-7               register    r0      r1
row 0  T0V0  T1V0  T2V0  T3V0              thread 0    0,0-1   8,0-1
row 1  T4V0  T5V0  T6V0  T7V0              thread 1    0,2-3   8,2-3

A cell stands for the neighbours that share a register, so that narrow types stay readable. Colours are by lane.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilescope.arch import architectures_with
from tilescope.mma.fragment import REGISTER_BITS, Fragment
from tilescope.view.drawing import Drawing
from tilescope.view.grid import Cell, Grid, Header, Row, Tier
from tilescope.view.palette import Mark
from tilescope.view.parts import Beside, Paragraph, Part, Table

_WARP = 32
_MOST_CELLS = 16  # columns of the element grid
_MOST_REGISTERS = 8  # columns of the thread grid
_NAMES = {
    "A": ("m", "k"),
    "B": ("k", "n"),
    "C": ("m", "n"),
    "D": ("m", "n"),
    "matrix": ("row", "column"),
    "tmem": ("lane", "column"),
}


@dataclass(frozen=True, slots=True)
class _Block:
    """How many neighbouring elements share a register, along which dimension."""

    rows: int
    columns: int

    @classmethod
    def of(cls, fragment: Fragment) -> _Block:
        width = max(1, min(REGISTER_BITS // fragment.element_bits, fragment.values))
        first = fragment.held_by(0)[:width]
        rows, columns = {row for row, _ in first}, {column for _, column in first}
        return cls(len(rows), len(columns)) if 1 in (len(rows), len(columns)) else cls(1, 1)

    @property
    def elements(self) -> int:
        return self.rows * self.columns


def draw_fragment(fragment: Fragment, lane: int | None = None, element: tuple[int, int] | None = None) -> Drawing:
    """A fragment both ways; `lane` (a thread) or the holder of `element` is marked, and listed in full.

    >>> from tilescope.mma.fragment import fragment
    >>> draw_fragment(fragment("mma.m16n8k8", "A", "bf16")).title
    'mma.m16n8k8, operand A: 16 x 8 bfloat16 (m x k)'
    """
    if element is not None:
        holder = fragment.holder(*element)[0]
        if lane is None:
            lane = holder
    if lane is not None:
        fragment.held_by(lane)  # refuses what does not exist
    block = _Block.of(fragment)
    rows, columns = fragment.shape
    row_name, column_name = _NAMES[fragment.operand]
    operand = "" if fragment.operand in ("matrix", "tmem") else f", operand {fragment.operand}"
    several = f"{fragment.matrices} x " if fragment.matrices > 1 else ""
    size = f"{several}{rows} x {columns} {fragment.data_type.name} ({row_name} x {column_name})"
    title = f"{fragment.instruction}{operand}: {size}"
    matrix = 0 if lane is None else fragment.matrix_of(lane, 0)
    sentence = Paragraph(_sentence(fragment, block, matrix))
    parts: list[Part] = [sentence]
    if lane is not None:
        parts.append(_lane_table(fragment, lane))
    grids = _element_grid(fragment, block, matrix, lane, element), _thread_grid(fragment, block, lane)
    parts += [Beside(grids), _facts(fragment)]
    return Drawing(title, tuple(parts))


def _sentence(fragment: Fragment, block: _Block, matrix: int) -> str:
    held = f"{fragment.threads} threads hold {fragment.values} values each; "
    said = held + "`T5V2` is value 2 of thread 5"
    if block.elements > 1:
        said = (
            held
            + f"`T5V2` stands for values 2 to {1 + block.elements} of thread 5: the {block.elements} that share a register"
        )
    if fragment.matrices > 1:
        said += f". Drawn is matrix {matrix} of {fragment.matrices}"
    return said + ". Colour: the lane."


def _element_grid(
    fragment: Fragment, block: _Block, matrix: int, lane: int | None, element: tuple[int, int] | None
) -> Grid:
    thread, value = fragment.holders()
    rows, columns = _shown(fragment, block, lane, element)
    row_name, column_name = _NAMES[fragment.operand]
    lines = []
    for row in rows:
        cells = []
        for column in columns:
            holder, number = int(thread[matrix, row, column]), int(value[matrix, row, column])
            mark: Mark = "focus" if holder == lane else ""
            where = f"{row_name} {_span(row, block.rows)}, {column_name} {_span(column, block.columns)}"
            register, bit = fragment.register_of(number)
            title = f"{where}: thread {holder}, values from {number} (register {register}, from bit {bit})"
            cells.append(Cell(f"T{holder}V{number}", holder % _WARP, mark, title))
        ruled = row > rows[0] and row % 8 == 0
        lines.append(Row((_span(row, block.rows),), tuple(cells), ruled))
    headers = tuple(Header(_span(column, block.columns), short=_span(column, block.columns)) for column in columns)
    tier = Tier(column_name, headers)
    return Grid("Which thread holds each element", (tier,), tuple(lines), (row_name,), _cut(fragment, rows, columns))


def _shown(fragment: Fragment, block: _Block, lane: int | None, element: tuple[int, int] | None) -> tuple[range, range]:
    """The rows and columns that are drawn: one warp's rows of a warpgroup, and as many columns as stay readable."""
    rows, columns = fragment.shape
    first_row, last_row = 0, rows
    if fragment.threads > _WARP:
        rows_per_warp = rows * _WARP // fragment.threads
        first_row = (0 if lane is None else lane // _WARP) * rows_per_warp
        last_row = first_row + rows_per_warp
    most = _MOST_CELLS * block.columns
    first_column = 0
    if element is not None and columns > most:
        first_column = min(element[1] // 8 * 8, columns - most)
    last_column = min(columns, first_column + most)
    return range(first_row, last_row, block.rows), range(first_column, last_column, block.columns)


def _cut(fragment: Fragment, rows: range, columns: range) -> tuple[str, ...]:
    row_name, column_name = _NAMES[fragment.operand]
    notes = []
    if (rows.start, rows.stop) != (0, fragment.shape[0]):
        warp = rows.start // len(rows) if len(rows) else 0
        notes.append(
            f"Drawn: {row_name} {rows.start} to {rows.stop - 1}, warp {warp}. Warp w of the warpgroup holds "
            f"{row_name} {len(rows)} w to {len(rows)} w + {len(rows) - 1} alike, as threads 32 w + lane."
        )
    if (columns.start, columns.stop) != (0, fragment.shape[1]):
        notes.append(
            f"Drawn: {column_name} {columns.start} to {columns.stop - 1} of {fragment.shape[1]}; every further 8 repeat "
            f"the lanes with the next {fragment.values * 8 // fragment.shape[1]} values."
        )
    return tuple(notes)


def _span(first: int, length: int) -> str:
    return str(first) if length == 1 else f"{first}-{first + length - 1}"


def _held(coords: npt.NDArray[np.int64]) -> str:
    """Elements of one register, such as "0,0-1" or "2-3,5"."""
    low, high = coords.min(axis=0).tolist(), coords.max(axis=0).tolist()
    return ",".join(_span(first, last - first + 1) for first, last in zip(low, high, strict=True))


def _thread_grid(fragment: Fragment, block: _Block, lane: int | None) -> Grid:
    warp = 0 if lane is None else lane // _WARP
    steps = range(0, fragment.values, block.elements)[:_MOST_REGISTERS]
    matrix, row, column = fragment.indices()
    coords = np.stack([row, column], axis=-1)
    lines = []
    for thread in range(warp * _WARP, (warp + 1) * _WARP):
        cells = []
        for first in steps:
            text = _held(coords[thread, first : first + block.elements])
            title = (
                f"thread {thread}, values {_span(first, block.elements)}: ({text}) of matrix {matrix[thread, first]}"
            )
            cells.append(Cell(text, thread % _WARP, "focus" if thread == lane else "", title))
        lines.append(Row((str(thread),), tuple(cells), ruled=thread % 8 == 0 and thread % _WARP > 0))
    headers = tuple(Header(f"V{_span(first, block.elements)}") for first in steps)
    notes = []
    if len(steps) * block.elements < fragment.values:
        notes.append(f"The first {len(steps) * block.elements} of {fragment.values} values.")
    if fragment.threads > _WARP:
        notes.append(f"Warp {warp} of {fragment.threads // _WARP}.")
    if fragment.matrices > 1 and fragment.operand == "matrix":
        notes.append("Register j holds two elements of matrix j. Lane 8 j + r gives the address of its row r.")
    names = ",".join(_NAMES[fragment.operand])
    return Grid(f"What each thread holds: {names}", (Tier("value", headers),), tuple(lines), ("thread",), tuple(notes))


def _lane_table(fragment: Fragment, lane: int) -> Table:
    row_name, column_name = _NAMES[fragment.operand]
    rows = []
    for value, (row, column) in enumerate(fragment.held_by(lane)):
        register, bit = fragment.register_of(value)
        rows.append(
            (
                str(value),
                f"{register}",
                f"{bit}-{bit + min(REGISTER_BITS, fragment.element_bits) - 1}",
                f"{row}",
                f"{column}",
            )
        )
    return Table(
        tuple(rows), ("value", "register", "bits", row_name, column_name), title=f"Thread {lane} holds", align="rrrrr"
    )


def _facts(fragment: Fragment) -> Table:
    first, second = _NAMES[fragment.operand]
    if fragment.operand == "B":
        first, second = second, first
    places = f"{first} + {fragment.shape[1] if fragment.operand == 'B' else fragment.shape[0]} {second}"
    if fragment.matrices > 1:
        places += f" + {fragment.shape[0] * fragment.shape[1]} matrix"
    return Table(
        (
            ("thread, value →", f"`{fragment.tv_layout}`  ({places})"),
            (f"{first}, {second} →", f"`{fragment.inverse}`  (thread + {fragment.threads} value)"),
            ("registers", f"{fragment.registers} of 32 bits a thread; an element takes {fragment.element_bits} bits"),
            ("exists on", ", ".join(architectures_with(fragment.feature))),
        )
    )
