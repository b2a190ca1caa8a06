"""The drawing of a fragment or a thread-value layout, both ways: which thread holds each element, what each thread holds.

Which thread holds it                      What each thread holds
k      0-1   2-3   4-5   6-7               register    r0      r1
row 0  T0V0  T1V0  T2V0  T3V0              thread 0    0,0-1   8,0-1
row 1  T4V0  T5V0  T6V0  T7V0              thread 1    0,2-3   8,2-3

A cell stands for the neighbours that share a register, so that narrow types stay readable. Colours are by thread.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import architectures_with
from tilescope.layout import Modes
from tilescope.mma.fragment import REGISTER_BITS, Fragment
from tilescope.view.drawing import Drawing
from tilescope.view.grid import Cell, Grid, Tier, extent, holding, number_span
from tilescope.view.parts import Beside, Table

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

    @classmethod
    def of(cls, fragment: Fragment) -> _Block:
        width = max(1, min(REGISTER_BITS // fragment.element_bits, fragment.values))
        rows, columns = (len(set(places)) for places in zip(*fragment.held_by(0)[:width], strict=True))
        return cls(rows, columns) if 1 in (rows, columns) else cls(1, 1)

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
        lane = holder if lane is None else lane
    matrix = 0 if lane is None else fragment.matrix_of(lane, 0)  # refuses what does not exist
    block, width = _Block.of(fragment), _Block.of(fragment).elements
    operand = "" if fragment.operand in ("matrix", "tmem") else f", operand {fragment.operand}"
    several = f"{fragment.matrices} x " if fragment.matrices > 1 else ""
    rows, columns = fragment.shape
    size = f"{several}{rows} x {columns} {fragment.data_type.name} ({' x '.join(_NAMES[fragment.operand])})"
    cell = "`T5V2` is value 2 of thread 5"
    if width > 1:
        first = width if width < fragment.values else 0  # a cell that exists
        values = f"values {extent(first, width, ' to ')} of thread 5"
        cell = f"`T5V{first}` stands for {values}: the {width} that share a register"
    drawn = f" Drawn is matrix {matrix} of {fragment.matrices}." if fragment.matrices > 1 else ""
    said = f"{fragment.threads} threads hold {fragment.values} values each; {cell}.{drawn} Colour: the thread."
    grids = _element_grid(fragment, block, matrix, lane, element), _thread_grid(fragment, block, lane)
    listed = None if lane is None else _lane_table(fragment, lane)
    return Drawing(f"{fragment.instruction}{operand}: {size}", [said, listed, Beside(grids), _facts(fragment)])


def _element_grid(
    fragment: Fragment, block: _Block, matrix: int, lane: int | None, element: tuple[int, int] | None
) -> Grid:
    """Who holds each element: one warp's rows of a warpgroup, and as many columns as stay readable."""
    thread, value = fragment.holders()
    names, (height, width) = _NAMES[fragment.operand], fragment.shape
    per_warp = height * _WARP // fragment.threads
    first_row = (lane or 0) // _WARP * per_warp
    drawn_columns = min(width, _MOST_CELLS * block.columns)
    first_column = 0 if element is None else min(element[1] // 8 * 8, width - drawn_columns)

    def cell(row: int, column: int) -> Cell:
        holder, number = int(thread[matrix, row, column]), int(value[matrix, row, column])
        where = f"{names[0]} {extent(row, block.rows)}, {names[1]} {extent(column, block.columns)}"
        register, bit = fragment.register_of(number)
        title = f"{where}: thread {holder}, values from {number} (register {register}, from bit {bit})"
        name = f"T{holder}V{number}"
        return Cell(name, holder % _WARP, title=title, link=f"{name} T{holder}")

    notes = []
    if per_warp < height:
        notes.append(
            f"Drawn: {names[0]} {first_row} to {first_row + per_warp - 1}, warp {first_row // per_warp}. Warp w of the warpgroup holds "
            f"{names[0]} {per_warp} w to {per_warp} w + {per_warp - 1} alike, as threads 32 w + lane."
        )
    if drawn_columns < width:
        notes.append(
            f"Drawn: {names[1]} {first_column} to {first_column + drawn_columns - 1} of {width}; every further 8 repeat "
            f"the lanes with the next {fragment.values * 8 // width} values."
        )
    down = {row: extent(row, block.rows) for row in range(first_row, first_row + per_warp, block.rows)}
    columns = range(first_column, first_column + drawn_columns, block.columns)
    across = {column: extent(column, block.columns) for column in columns}
    title = "Which thread holds each element"
    return Grid.of(title, names, down, across, cell, rule_every=8, notes=notes).marked(
        () if lane is None else {f"T{lane}"}
    )


def _thread_grid(fragment: Fragment, block: _Block, lane: int | None) -> Grid:
    width, first_thread = block.elements, (lane or 0) // _WARP * _WARP
    matrix, row, column = fragment.indices()
    coords = np.stack([row, column], axis=-1)

    def cell(thread: int, first: int) -> Cell:
        held = coords[thread, first : first + width]
        text = ",".join(map(number_span, held.min(axis=0).tolist(), held.max(axis=0).tolist()))  # "0,0-1" or "2-3,5"
        title = f"thread {thread}, values {extent(first, width)}: ({text}) of matrix {matrix[thread, first]}"
        return Cell(text, thread % _WARP, title=title, link=f"T{thread}V{first} T{thread}")

    steps = range(0, fragment.values, width)[:_MOST_REGISTERS]
    of_matrices = fragment.matrices > 1 and fragment.operand == "matrix"
    outer = (Tier.of("matrix", matrix[0, list(steps)]),) if of_matrices else ()
    drawn_values = len(steps) * width
    notes = {
        f"The first {drawn_values} of {fragment.values} values.": drawn_values < fragment.values,
        f"Warp {first_thread // _WARP} of {fragment.threads // _WARP}.": fragment.threads > _WARP,
        f"Lane {fragment.shape[0]} j + r gives the address of row r of matrix j.": of_matrices,
    }
    title, names = f"What each thread holds: {','.join(_NAMES[fragment.operand])}", ("thread", "value")
    threads, values = range(first_thread, first_thread + _WARP), {first: f"V{extent(first, width)}" for first in steps}
    return Grid.of(title, names, threads, values, cell, rule_every=8, outer=outer, notes=holding(notes)).marked(
        () if lane is None else {f"T{lane}"}
    )


def _lane_table(fragment: Fragment, lane: int) -> Table:
    rows = []
    for value, coord in enumerate(fragment.held_by(lane)):
        register, bit = fragment.register_of(value)
        matrix = [fragment.matrix_of(lane, value)] if fragment.matrices > 1 else []
        rows.append((value, register, extent(bit, min(REGISTER_BITS, fragment.value_bits)), *matrix, *coord))
    several = ["matrix"] if fragment.matrices > 1 else []
    headings = ["value", "register", "bits", *several, *_NAMES[fragment.operand]]
    return Table(rows, headings, f"Thread {lane} holds", "r" * len(headings))


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
        taken += f", its value bits {extent(fragment.register_of(0)[1], fragment.value_bits, ' to ')} of them"
    facts = {
        "thread, value →": f"`{fragment.tv_layout}`  ({places})",
        f"{first}, {second} →": f"`{fragment.inverse}`  (thread + {fragment.threads} value)",
        "registers": f"{fragment.registers} of 32 bits a thread; {taken}",
        "exists on": ", ".join(architectures_with(fragment.feature)),
    }
    return Table(facts)


def draw_modes(modes: Modes, shape: tuple[int, int] | None = None) -> Drawing:
    """A thread-value layout: which index each thread holds, and with `shape`, which thread holds each element.

    >>> draw_modes(Modes(((4, 8), 2), ((2, 8), 1))).title
    'Thread-value layout of 32 threads x 2 values'
    """
    threads, *values = modes.indices
    index = Modes.of_indices((threads, tuple(chain(*values)) or ((1, 0),))).offsets()
    grids = [_held_grid(index)] if shape is None else [_holder_grid(index, shape), _held_grid(index)]
    facts = Table({"layout": f"`{modes}`", "offsets": f"0 to {modes.cosize - 1}"})
    return Drawing("Thread-value layout of {} threads x {} values".format(*index.shape), [Beside(tuple(grids)), facts])


def _held_grid(index: npt.NDArray[np.int64]) -> Grid:
    """The index of the tile that each value of each thread is."""

    def cell(thread: int, value: int) -> Cell:
        at = index[thread, value]
        title = f"thread {thread}, value {value}: index {at}"
        return Cell(str(at), thread % 8, title=title, link=f"T{thread}V{value} T{thread}")

    rows, columns = (
        {at: f"{letter}{at}" for at in range(count)} for letter, count in zip("TV", index.shape, strict=True)
    )
    names, nouns, most = ("thread", "value"), ("threads", "values"), (_WARP, _MOST_CELLS)
    return Grid.of("What each thread holds", names, rows, columns, cell, most=most, nouns=nouns)


def _holder_grid(index: npt.NDArray[np.int64], shape: tuple[int, int]) -> Grid:
    """The thread and value that holds each element of the tile, whose first index runs fastest."""
    holder: dict[int, list[tuple[int, int]]] = {}
    for (thread, value), at in np.ndenumerate(index):
        holder.setdefault(int(at), []).append((thread, value))

    def cell(row: int, column: int) -> Cell:
        held = holder.get(row + column * shape[0], [])
        if not held:
            return Cell("", "unused", title=f"({row}, {column}): nobody")
        said = f"({row}, {column}): " + ", ".join(f"thread {t} value {v}" for t, v in held[:4])
        thread, value = held[0]
        link = " ".join([*(f"T{t}V{v}" for t, v in held[:4]), f"T{thread}"])
        return Cell(f"T{thread} V{value}" + "+" * bool(held[1:]), thread % 8, title=said, link=link)

    rows, columns = map(range, shape)
    return Grid.of("Who holds each element", ("row", "column"), rows, columns, cell, most=(_WARP, _MOST_CELLS))
