"""Fragments drawn both ways: which thread holds each element, what each thread holds.

Which thread holds it                      What each thread holds
k      0-1   2-3   4-5   6-7               register    r0      r1
row 0  T0V0  T1V0  T2V0  T3V0              thread 0    0,0-1   8,0-1
row 1  T4V0  T5V0  T6V0  T7V0              thread 1    0,2-3   8,2-3

A cell represents the neighbours that share a register, so that narrow types stay readable. Colours are by thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from tilescope.arch import WARP_LANES, architectures_with
from tilescope.mma.fragment import QUAD_LANES, REGISTER_BITS, Fragment
from tilescope.mma.sparsity import group_elements
from tilescope.sentence import by, counted, listed
from tilescope.view.drawing import Beside, Drawing, Table
from tilescope.view.grid import Cell, Grid, Tier
from tilescope.view.number_span import extent, extents, number_span
from tilescope.view.walk_step import Step

_MAX_CELLS = 16  # columns of the element grid
_MAX_REGISTERS = 8  # columns of the thread grid
_MAX_LISTED = 8  # values of a thread, around a requested one
_MAX_SAID = 8  # elements of a thread that a step of a walk names
_NAMES = {  # of rows and columns, by operand
    "A": ("m", "k"),
    "B": ("k", "n"),
    "C": ("m", "n"),
    "D": ("m", "n"),
    "matrix": ("row", "column"),
    "tmem": ("lane", "column"),
    "E": ("m", "group"),
}
_NAMES_OF_SPARSE_A = ("m", "stored")


def draw_fragment(fragment: Fragment, lane: int | None = None, element: tuple[int, int] | None = None) -> Drawing:
    """A fragment both ways; `lane` (a thread) or the holder of `element` is marked and listed.

    A thread is listed with all its values, the holder of an element with those around it.

    >>> from tilescope.mma.fragment import fragment
    >>> draw_fragment(fragment("mma.m16n8k8", "A", "bf16")).title
    'mma.m16n8k8, operand A: 16 x 8 bfloat16 (m x k)'
    """
    value: int | None = None  # the requested one
    if element is not None:
        holder, value = fragment.holder(*element)  # refuses what does not exist
        lane = holder if lane is None else lane
    matrix = 0 if lane is None else fragment.matrix_of(lane, 0)  # refuses what does not exist
    block = _block(fragment)
    by_element = _element_grid(fragment, block, matrix, lane or 0, element)
    by_thread = _thread_grid(fragment, prod(block), lane or 0, value or 0)
    links = set() if lane is None else {f"T{lane}"}
    return Drawing(
        _title(fragment),
        {
            "sentence": _sentence(fragment, prod(block), matrix),
            "lane": None if lane is None else _lane_table(fragment, lane, value),
            "grids": Beside({"elements": by_element.marked(links), "threads": by_thread.marked(links)}),
            "facts": _facts(fragment),
        },
    )


def _title(fragment: Fragment) -> str:
    title = fragment.instruction
    if fragment.operand not in ("matrix", "tmem"):
        title += f", operand {fragment.operand}"
    size = by(fragment.shape)
    if fragment.matrices > 1:
        size = f"{fragment.matrices} x {size}"
    return f"{title}: {size} {fragment.content} ({by(_names(fragment))})"


def _names(fragment: Fragment) -> tuple[str, str]:
    """What rows and columns are called."""
    if fragment.operand == "A" and fragment.is_sparse:
        return _NAMES_OF_SPARSE_A
    return _NAMES[fragment.operand]


def _sparse_sentences(fragment: Fragment) -> Iterator[str]:
    """How the stored elements of a sparse A, or its metadata, belong to k; and whose metadata is read."""
    group = group_elements(fragment.data_type)
    group_k = f"k {group} g to {group} g + {group - 1}"
    if fragment.operand == "A":
        stored = group // 2
        belonging = "Stored element g is"
        if stored > 1:
            belonging = f"Stored elements {stored} g to {stored} g + {stored - 1} are"
        yield f"{belonging} of group g, {group_k}; operand E says which places of it they have."
    if fragment.operand == "E":
        yield f"Group g is {group_k}."
        if fragment.copies == 1:
            yield "All lanes are read: the sparsity selector is 0."
            return
        lanes = QUAD_LANES // fragment.copies
        read = []
        for selector in range(fragment.copies):
            read_lanes = range(selector * lanes, (selector + 1) * lanes)
            noun = "lane" if lanes == 1 else "lanes"
            read.append(f"selector {selector} reads {noun} {listed(read_lanes)}")
        yield f"Of every four lanes, {listed(read)}; the elements are drawn for selector 0."


def _sentence(fragment: Fragment, width: int, matrix: int) -> str:
    """The text of a cell with `width` values."""
    cell = "`T5V2` is value 2 of thread 5"
    if width > 1:
        first = width if width < fragment.values else 0  # a cell that exists
        values = f"values {extent(first, width, ' to ')} of thread 5"
        cell = f"`T5V{first}` stands for {values}: the {width} that share a register"
    sentences = [f"{fragment.threads} threads hold {fragment.values} values each; {cell}."]
    if fragment.matrices > 1:
        sentences.append(f"Drawn is matrix {matrix} of {fragment.matrices}.")
    if fragment.is_sparse:
        sentences.extend(_sparse_sentences(fragment))
    sentences.append("Colour: the thread.")
    return " ".join(sentences)


def walk_fragment(fragment: Fragment, *, lane: int | None = None, **_: object) -> Iterator[Step]:
    """The threads of one warp, the first or that of `lane`, with what each holds.

    >>> from tilescope.mma.fragment import fragment
    >>> next(walk_fragment(fragment("mma.m16n8k8", "A", "bf16"))).sentence
    'thread 0 holds (0, 0), (0, 1), (8, 0), (8, 1)'
    """
    first = (lane or 0) // WARP_LANES * WARP_LANES
    more = " …" if fragment.values > _MAX_SAID else ""
    for thread in range(first, min(first + WARP_LANES, fragment.threads)):
        elements = ", ".join(map(str, fragment.held_by(thread)[:_MAX_SAID]))
        yield Step(f"T{thread}", f"thread {thread} holds {elements}{more}")


def _block(fragment: Fragment) -> tuple[int, int]:
    """How many neighbouring rows or columns share a register."""
    width = max(1, min(REGISTER_BITS // fragment.element_bits, fragment.values))
    elements = fragment.held_by(0)[:width]
    rows = len({row for row, _ in elements})
    columns = len({column for _, column in elements})
    return (rows, columns) if 1 in (rows, columns) else (1, 1)


def _element_grid(
    fragment: Fragment, block: tuple[int, int], matrix: int, lane: int, element: tuple[int, int] | None
) -> Grid:
    """Who holds each element: one warp's rows of a warpgroup, and as many columns as stay readable."""
    thread, value = fragment.holders()
    row_name, column_name = _names(fragment)
    height, width = fragment.shape
    high, wide = block
    per_warp = height * WARP_LANES // fragment.threads
    top = lane // WARP_LANES * per_warp
    drawn_columns = min(width, _MAX_CELLS * wide)
    left = 0 if element is None else min(element[1] // 8 * 8, width - drawn_columns)

    def cell(row: int, column: int) -> Cell:
        holder = int(thread[matrix, row, column])
        number = int(value[matrix, row, column])
        where = f"{row_name} {extent(row, high)}, {column_name} {extent(column, wide)}"
        register, bit = fragment.register_of(number)
        title = f"{where}: thread {holder}, values from {number} (register {register}, from bit {bit})"
        return Cell(f"T{holder}V{number}", holder % WARP_LANES, title=title, link=f"T{holder}V{number} T{holder}")

    notes = []
    if per_warp < height:
        notes.append(
            f"Drawn: {row_name} {top} to {top + per_warp - 1}, warp {top // per_warp}. Warp w of the warpgroup holds "
            f"{row_name} {per_warp} w to {per_warp} w + {per_warp - 1} alike, as threads 32 w + lane."
        )
    if drawn_columns < width:
        repeats = f"every further 8 repeat the lanes with the next {fragment.values * 8 // width} values"
        notes.append(f"Drawn: {column_name} {left} to {left + drawn_columns - 1} of {width}; {repeats}.")
    return Grid.of(
        "Which thread holds each element",
        (row_name, column_name),
        extents(range(top, top + per_warp, high)),
        extents(range(left, left + drawn_columns, wide)),
        cell,
        rule_every=8,
        notes=notes,
    )


def _thread_grid(fragment: Fragment, width: int, lane: int, value: int) -> Grid:
    """What the threads of one warp hold; a column for the `width` values that share a register, `value` among them."""
    first_thread = lane // WARP_LANES * WARP_LANES
    matrix, row, column = fragment.indices()
    coords = np.stack([row, column], axis=-1)

    def cell(thread: int, first: int) -> Cell:
        elements = coords[thread, first : first + width]
        first_row, first_column = elements.min(axis=0).tolist()
        last_row, last_column = elements.max(axis=0).tolist()
        text = f"{number_span(first_row, last_row)},{number_span(first_column, last_column)}"  # "0,0-1" or "2-3,5"
        title = f"thread {thread}, values {extent(first, width)}: ({text}) of matrix {matrix[thread, first]}"
        return Cell(text, thread % WARP_LANES, title=title, link=f"T{thread}V{first} T{thread}")

    skipped = value // width // _MAX_REGISTERS * _MAX_REGISTERS
    steps = range(0, fragment.values, width)[skipped : skipped + _MAX_REGISTERS]
    of_matrices = fragment.matrices > 1 and fragment.operand == "matrix"
    drawn_values = len(steps) * width
    notes = []
    if drawn_values < fragment.values and skipped:
        notes.append(f"Values {extent(steps[0], drawn_values, ' to ')} of {fragment.values}.")
    elif drawn_values < fragment.values:
        notes.append(f"The first {drawn_values} of {fragment.values} values.")
    if fragment.threads > WARP_LANES:
        notes.append(f"Warp {first_thread // WARP_LANES} of {fragment.threads // WARP_LANES}.")
    if of_matrices:
        notes.append(f"Lane {fragment.shape[0]} j + r gives the address of row r of matrix j.")
    return Grid.of(
        f"What each thread holds: {','.join(_names(fragment))}",
        ("thread", "value"),
        range(first_thread, first_thread + WARP_LANES),
        {first: f"V{extent(first, width)}" for first in steps},
        cell,
        rule_every=8,
        outer=(Tier.of("matrix", matrix[0, list(steps)]),) if of_matrices else (),
        notes=notes,
    )


def _lane_table(fragment: Fragment, lane: int, asked: int | None) -> Table:
    """The values of a thread: all of them, or those around the requested one."""
    row_name, column_name = _names(fragment)
    records: list[dict[str, object]] = []
    listed = range(fragment.values)
    if asked is not None:
        first = asked // _MAX_LISTED * _MAX_LISTED
        listed = listed[first : first + _MAX_LISTED]
    for value in listed:
        row, column = fragment.coord(lane, value)
        register, bit = fragment.register_of(value)
        bits = extent(bit, min(REGISTER_BITS, fragment.value_bits))
        record: dict[str, object] = {"value": value, "register": register, "bits": bits}
        if fragment.matrices > 1:
            record["matrix"] = fragment.matrix_of(lane, value)
        records.append(record | {row_name: row, column_name: column})
    notes = []
    if len(listed) < fragment.values:
        notes.append(f"Values {number_span(listed[0], listed[-1], ' to ')} of {fragment.values}.")
    return Table.of(records, f"Thread {lane} holds", "r" * len(records[0]), notes=notes)


def _facts(fragment: Fragment) -> Table:
    first, second = _names(fragment)
    rows, columns = fragment.shape
    matrix = f" + {rows * columns} matrix" if fragment.matrices > 1 else ""
    if fragment.operand == "B":  # CuTe counts n before k
        first, second = second, first
        rows = columns
    taken = f"an element takes {counted(fragment.element_bits, 'bit')}"
    if fragment.value_bits < fragment.element_bits:
        taken += f", its value bits {extent(fragment.register_of(0)[1], fragment.value_bits, ' to ')} of them"
    facts = {
        "thread, value →": f"`{fragment.tv_layout}`  ({first} + {rows} {second}{matrix})",
        f"{first}, {second} →": f"`{fragment.inverse}`  (thread + {fragment.threads} value)",
        "registers": f"{fragment.registers} of 32 bits a thread; {taken}",
        "exists on": ", ".join(architectures_with(fragment.feature)),
    }
    if fragment.copies > 1 and fragment.operand != "E":
        read = extent(0, fragment.values // fragment.copies, " to ")
        facts["copies"] = f"{fragment.copies} of every element in registers of its thread; values {read} are read"
    return Table(facts)


DRAWINGS = {Fragment: draw_fragment}
WALKS = {Fragment: walk_fragment}
