"""The drawing of a fragment, both ways: which thread holds each element, and what each thread holds.

Which thread holds it                      What each thread holds
k      0-1   2-3   4-5   6-7               register    r0      r1
row 0  T0V0  T1V0  T2V0  T3V0              thread 0    0,0-1   8,0-1
row 1  T4V0  T5V0  T6V0  T7V0              thread 1    0,2-3   8,2-3

A cell stands for the neighbours that share a register, so that narrow types stay readable. Colours are by lane.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import architectures_with
from tilescope.mma.fragment import REGISTER_BITS, Fragment
from tilescope.view.drawing import Drawing
from tilescope.view.grid import Cell, Grid, Row, Tier, number_span
from tilescope.view.parts import Beside, Paragraph, Part, Table

_WARP = 32
_MOST_CELLS = 16  # columns of the element grid
_MOST_REGISTERS = 8  # columns of the thread grid
_NAMES = {
    "A": ("m", "k"), "B": ("k", "n"), "C": ("m", "n"), "D": ("m", "n"), "matrix": ("row", "column"), "tmem": ("lane", "column"),
}  # fmt: skip


class _Block(NamedTuple):
    """How many neighbouring elements share a register, along which dimension."""

    rows: int
    columns: int
    elements: int

    @classmethod
    def of(cls, fragment: Fragment) -> _Block:
        width = max(1, min(REGISTER_BITS // fragment.element_bits, fragment.values))
        rows, columns = (len(set(each)) for each in zip(*fragment.held_by(0)[:width], strict=True))
        return cls(rows, columns, rows * columns) if 1 in (rows, columns) else cls(1, 1, 1)


def draw_fragment(fragment: Fragment, lane: int | None = None, element: tuple[int, int] | None = None) -> Drawing:
    """A fragment both ways; `lane` (a thread) or the holder of `element` is marked, and listed in full.

    >>> from tilescope.mma.fragment import fragment
    >>> draw_fragment(fragment("mma.m16n8k8", "A", "bf16")).title
    'mma.m16n8k8, operand A: 16 x 8 bfloat16 (m x k)'
    """
    if element is not None:
        holder = fragment.holder(*element)[0]
        lane = holder if lane is None else lane
    matrix = 0 if lane is None else fragment.matrix_of(lane, 0)  # refuses what does not exist
    block = _Block.of(fragment)
    operand = "" if fragment.operand in ("matrix", "tmem") else f", operand {fragment.operand}"
    several = f"{fragment.matrices} x " if fragment.matrices > 1 else ""
    rows, columns = fragment.shape
    size = f"{several}{rows} x {columns} {fragment.data_type.name} ({' x '.join(_NAMES[fragment.operand])})"
    listed: tuple[Part, ...] = () if lane is None else (_lane_table(fragment, lane),)
    grids = _element_grid(fragment, block, matrix, lane, element), _thread_grid(fragment, block, lane)
    said = Paragraph(_sentence(fragment, block, matrix))
    return Drawing(f"{fragment.instruction}{operand}: {size}", (said, *listed, Beside(grids), _facts(fragment)))


def _sentence(fragment: Fragment, block: _Block, matrix: int) -> str:
    said = f"{fragment.threads} threads hold {fragment.values} values each; "
    width = block.elements
    first = width if width < fragment.values else 0  # a cell that exists
    if width > 1:
        said += f"`T5V{first}` stands for values {_span(first, width, ' to ')} of thread 5: the {width} that share a register"
    else:
        said += "`T5V2` is value 2 of thread 5"
    if fragment.matrices > 1:
        said += f". Drawn is matrix {matrix} of {fragment.matrices}"
    return said + ". Colour: the lane."


def _element_grid(
    fragment: Fragment, block: _Block, matrix: int, lane: int | None, element: tuple[int, int] | None
) -> Grid:
    thread, value = fragment.holders()
    rows, columns = _shown(fragment, block, lane, element)
    row_name, column_name = _NAMES[fragment.operand]

    def cell(row: int, column: int) -> Cell:
        holder, number = int(thread[matrix, row, column]), int(value[matrix, row, column])
        where = f"{row_name} {_span(row, block.rows)}, {column_name} {_span(column, block.columns)}"
        register, bit = fragment.register_of(number)
        title = f"{where}: thread {holder}, values from {number} (register {register}, from bit {bit})"
        name = f"T{holder}V{number}"
        return Cell(name, holder % _WARP, "focus" if holder == lane else "", title, link=f"{name} T{holder}")

    lines = tuple(
        Row((_span(row, block.rows),), tuple(cell(row, column) for column in columns), row > rows[0] and row % 8 == 0)
        for row in rows
    )
    tier = Tier.of(column_name, (_span(column, block.columns) for column in columns))
    return Grid("Which thread holds each element", (tier,), lines, (row_name,), _cut(fragment, rows, columns))


def _shown(fragment: Fragment, block: _Block, lane: int | None, element: tuple[int, int] | None) -> tuple[range, range]:
    """The rows and columns that are drawn: one warp's rows of a warpgroup, and as many columns as stay readable."""
    rows, columns = fragment.shape
    rows_per_warp = rows * _WARP // fragment.threads
    first_row = (lane or 0) // _WARP * rows_per_warp
    most = min(columns, _MOST_CELLS * block.columns)
    first_column = 0 if element is None else min(element[1] // 8 * 8, columns - most)
    across = range(first_column, first_column + most, block.columns)
    return range(first_row, first_row + rows_per_warp, block.rows), across


def _cut(fragment: Fragment, rows: range, columns: range) -> tuple[str, ...]:
    row_name, column_name = _NAMES[fragment.operand]
    notes = []
    if (rows.start, rows.stop) != (0, fragment.shape[0]):
        notes.append(
            f"Drawn: {row_name} {rows.start} to {rows.stop - 1}, warp {rows.start // len(rows)}. Warp w of the warpgroup holds "
            f"{row_name} {len(rows)} w to {len(rows)} w + {len(rows) - 1} alike, as threads 32 w + lane."
        )
    if (columns.start, columns.stop) != (0, fragment.shape[1]):
        notes.append(
            f"Drawn: {column_name} {columns.start} to {columns.stop - 1} of {fragment.shape[1]}; every further 8 repeat "
            f"the lanes with the next {fragment.values * 8 // fragment.shape[1]} values."
        )
    return tuple(notes)


def _span(first: int, length: int, between: str = "-") -> str:
    return number_span(first, first + length - 1, between)


def _held(coords: npt.NDArray[np.int64]) -> str:
    """Elements of one register, such as "0,0-1" or "2-3,5"."""
    low, high = coords.min(axis=0).tolist(), coords.max(axis=0).tolist()
    return ",".join(map(number_span, low, high))


def _thread_grid(fragment: Fragment, block: _Block, lane: int | None) -> Grid:
    warp = 0 if lane is None else lane // _WARP
    steps = range(0, fragment.values, block.elements)[:_MOST_REGISTERS]
    matrix, row, column = fragment.indices()
    coords = np.stack([row, column], axis=-1)

    def cell(thread: int, first: int) -> Cell:
        text = _held(coords[thread, first : first + block.elements])
        values = f"thread {thread}, values {_span(first, block.elements)}"
        title = f"{values}: ({text}) of matrix {matrix[thread, first]}"
        link = f"T{thread}V{first} T{thread}"
        return Cell(text, thread % _WARP, "focus" if thread == lane else "", title, link=link)

    threads = range(warp * _WARP, (warp + 1) * _WARP)
    lines = tuple(
        Row((str(thread),), tuple(cell(thread, first) for first in steps), thread % 8 == 0 and thread > threads[0])
        for thread in threads
    )
    tiers = [Tier.of("value", (f"V{_span(first, block.elements)}" for first in steps))]
    notes = []
    if len(steps) * block.elements < fragment.values:
        notes.append(f"The first {len(steps) * block.elements} of {fragment.values} values.")
    if fragment.threads > _WARP:
        notes.append(f"Warp {warp} of {fragment.threads // _WARP}.")
    if fragment.matrices > 1 and fragment.operand == "matrix":
        tiers.insert(0, Tier.of("matrix", matrix[0, list(steps)]))
        notes.append(f"Lane {fragment.shape[0]} j + r gives the address of row r of matrix j.")
    names = ",".join(_NAMES[fragment.operand])
    return Grid(f"What each thread holds: {names}", tuple(tiers), lines, ("thread",), tuple(notes))


def _lane_table(fragment: Fragment, lane: int) -> Table:
    rows = []
    for value, coord in enumerate(fragment.held_by(lane)):
        register, bit = fragment.register_of(value)
        matrix = [fragment.matrix_of(lane, value)] if fragment.matrices > 1 else []
        bits = _span(bit, min(REGISTER_BITS, fragment.value_bits))
        rows.append(tuple(map(str, (value, register, bits, *matrix, *coord))))
    several = ("matrix",) if fragment.matrices > 1 else ()
    headings = ("value", "register", "bits", *several, *_NAMES[fragment.operand])
    return Table(tuple(rows), headings, title=f"Thread {lane} holds", align="r" * len(headings))


def _facts(fragment: Fragment) -> Table:
    first, second = _NAMES[fragment.operand]
    rows, columns = fragment.shape
    if fragment.operand == "B":
        first, second, rows = second, first, columns
    places = f"{first} + {rows} {second}"
    if fragment.matrices > 1:
        places += f" + {fragment.shape[0] * columns} matrix"
    taken = f"an element takes {fragment.element_bits} bits"
    if fragment.value_bits < fragment.element_bits:
        bits = _span(fragment.register_of(0)[1], fragment.value_bits, " to ")
        taken += f", its value bits {bits} of them"
    return Table((
        ("thread, value →", f"`{fragment.tv_layout}`  ({places})"),
        (f"{first}, {second} →", f"`{fragment.inverse}`  (thread + {fragment.threads} value)"),
        ("registers", f"{fragment.registers} of 32 bits a thread; {taken}"),
        ("exists on", ", ".join(architectures_with(fragment.feature))),
    ))  # fmt: skip
