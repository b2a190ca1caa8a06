"""The drawings of tensor memory: a matrix as lanes by columns, and who has which columns.

quarter   lane    m       column 0-63     64-127    128-191   192-255
warp 0    0-15    0-15           0-63     64-127    …                      a cell: columns n of the matrix
         16-31   16-31           0-63     …
warp 1   32-47   32-47
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilescope.arithmetic import ceil_div
from tilescope.mma.datapath import DATAPATHS
from tilescope.mma.tensor_memory import SLICE_COLUMNS, TensorMemory
from tilescope.mma.tmem_address import CELL_BITS, QUARTER_LANES, QUARTERS, TMEM_COLUMNS, TMEM_LANES, cells_of
from tilescope.mma.tmem_agreement import TmemAgreement
from tilescope.mma.tmem_budget import TmemBudget
from tilescope.mma.tmem_layout import TmemLayout, TmemPlace
from tilescope.mma.tmem_load import LoadedElement
from tilescope.view.drawing import Beside, Drawing, Entry, Legend, Table
from tilescope.view.grid import Cell, Grid
from tilescope.view.number_span import extent, extents, number_span
from tilescope.view.tensor_map_view import severities

_NOBODY = 1 << 40
_SCALES = ("SFA", "SFB")
_BAND_LANES = 16  # the meaning of a row of the drawing
_MAX_GROUPS = 4  # columns of the drawing
_BUDGET_COLUMNS = 8  # of tensor memory, to a cell of a budget's drawing
_BUDGET_LETTERS = 4  # of a part's name, in a cell
_DRAWN_AS = {
    "D": "Accumulator D",
    "A": "A",
    "metadata": "Metadata of A",
    "SFA": "Scale factors of A",
    "SFB": "Scale factors of B",
}
Element = tuple[int, int]


def draw_tmem_layout(
    layout: TmemLayout, element: Element | None = None, loaded: LoadedElement | None = None
) -> Drawing:
    """A matrix in tensor memory, drawn as lanes by columns; the cells with `element` are marked and described.

    `loaded` is the load of the element, and its place afterwards.

    >>> from tilescope.mma.tmem_layout import tmem_layout
    >>> draw_tmem_layout(tmem_layout((128, 256))).title
    'Accumulator D, 128 x 256 (m x n), in tensor memory: layout D'
    """
    rows, columns = layout.matrix
    first, second = layout.names[:2]
    title = f"{_DRAWN_AS[layout.operand]}, {rows} x {columns} ({first} x {second}), in tensor memory"
    if layout.datapath:
        title += f": layout {layout.datapath}"
    facts = {
        "uses": f"{len(layout.lanes)} of {TMEM_LANES} lanes, {layout.columns} columns from {layout.base.column} on",
        f"{', '.join(layout.names)} →": f"`{layout.bit_modes}`  (bits: lane << 21 | column << 5 | bit)",
        "basis": f"documented; {layout.source}" if layout.source else "documented",
    }
    return Drawing(
        title,
        {
            "sentence": _sentences(layout),
            "element": None if element is None else _element_table(layout, element),
            "load": None if loaded is None else _load_table(loaded),
            "grids": Beside({f"block {cta}": _lane_grid(layout, cta, element) for cta in range(layout.ctas)}),
            "facts": Table(facts),
        },
    )


def _sentences(layout: TmemLayout) -> str:
    """The drawing, and its notes."""
    first, second = layout.names[:2]
    what = f"{first}, then {second}" if layout.operand in _SCALES else f"the {second} that it holds of its {first}"
    sentences = [
        f"128 lanes down, columns of 32 bits across; a cell of the drawing names {what}.",
        "Warp w of a block reaches the lanes of quarter w mod 4 alone.",
    ]
    if layout.ctas > 1:
        sentences.append(f"Each block of the pair holds {layout.rows} rows in its own tensor memory.")
    if layout.copies > 1:
        sentences.append(f"Every element is there {layout.copies} times.")
    if layout.datapath is not None and DATAPATHS[layout.datapath].is_half:
        free = 16 - layout.base.lane
        sentences.append(f"Half of the lanes stay free: a second accumulator fits in at lane {free}.")
    return " ".join(sentences)


class _Held(NamedTuple):
    """The least and the largest row and column of the elements in some cells of tensor memory."""

    first_row: int
    last_row: int
    first_column: int
    last_column: int


class _Owners:
    """The first element of every cell of a block's tensor memory."""

    def __init__(self, layout: TmemLayout, cta: int) -> None:
        self.columns = layout.matrix[1]
        bits = layout.bit_addresses()[: layout.rows, : self.columns]
        rows = np.arange(layout.rows)[:, None, None] + cta * layout.rows
        numbers = rows * self.columns + np.arange(self.columns)[:, None]
        self.numbers = np.full((TMEM_LANES, TMEM_COLUMNS), _NOBODY)  # row * columns + column
        lane, column, _ = cells_of(bits)
        np.minimum.at(self.numbers, (lane, column), numbers)
        apart = int(bits[0, :2, 0][-1] - bits[0, 0, 0])  # of neighbours in a row; several may share a cell
        self.per_cell = CELL_BITS // apart if 0 < apart < CELL_BITS else 1

    def held(self, lane: int, start: int, stop: int) -> _Held | None:
        """What a band of lanes holds in columns `start` to below `stop`; None if that is nothing."""
        block = self.numbers[lane : lane + _BAND_LANES, start:stop]
        taken = block[block < _NOBODY]
        if not taken.size:
            return None
        rows, columns = divmod(taken, self.columns)
        last = min(int(columns.max()) + self.per_cell, self.columns) - 1
        return _Held(int(rows.min()), int(rows.max()), int(columns.min()), last)


def _lane_grid(layout: TmemLayout, cta: int, element: Element | None) -> Grid:
    """One block's lanes by columns, in bands of 16 lanes."""
    scales = layout.operand in _SCALES
    place = None if element is None else layout.place(*element)
    starts = _drawn_columns(layout, place)
    owners = _Owners(layout, cta)
    marked = set()
    if place is not None and place.cta == cta:
        marked = {(lane // _BAND_LANES * _BAND_LANES, place.column) for lane in place.lanes}

    def cell(lane: int, start: int) -> Cell:
        stop = min(start + starts.step, starts.stop)
        where = f"lanes {extent(lane, _BAND_LANES)}, columns {start}-{stop - 1}"
        owner = owners.held(lane, start, stop)
        if owner is None:
            return Cell("", "unused", title=f"{where}: free")
        rows = number_span(owner.first_row, owner.last_row)
        columns = number_span(owner.first_column, owner.last_column)
        is_asked = any((lane, column) in marked for column in range(start, stop))
        return Cell(
            f"{rows}, {columns}" if scales else columns,
            colour=(owner.first_row - cta * layout.rows) // _BAND_LANES,
            mark="focus" if is_asked else "",
            title=f"{where}: {layout.names[0]} {rows}, {layout.names[1]} {columns}",
        )

    labels: dict[int, tuple[str, ...]] = {}
    for lane, lanes in extents(range(0, TMEM_LANES, _BAND_LANES)).items():
        quarter = "" if lane % QUARTER_LANES else f"warp {lane // QUARTER_LANES}"
        labels[lane] = (quarter, lanes)
        if not scales:
            owner = owners.held(lane, starts.start, starts.stop)
            labels[lane] += ("" if owner is None else number_span(owner.first_row, owner.last_row),)
    notes = []
    if scales and len(starts) < layout.columns:
        notes.append(f"Columns {number_span(starts[0], starts[-1])} of {layout.columns}.")
    return Grid.of(
        f"Block {cta} of the pair" if layout.ctas > 1 else "Lanes by columns",
        ("quarter", "lane", "column") if scales else ("quarter", "lane", layout.names[0], "column"),
        labels,
        extents(starts),
        cell,
        rule_every=QUARTER_LANES,
        notes=notes,
    )


def _drawn_columns(layout: TmemLayout, place: TmemPlace | None) -> range:
    """Where the columns of the drawing start: all of a matrix, in a few groups; of scale factors a few, one by one.

    A column of scale factors has other rows than its neighbour; only those around the requested place are drawn.
    """
    first = layout.base.column
    end = first + layout.columns
    if layout.operand not in _SCALES:
        return range(first, end, ceil_div(layout.columns, _MAX_GROUPS))
    starts = range(first, end)
    if len(starts) <= _MAX_GROUPS:
        return starts
    skipped = 0 if place is None else starts.index(place.column) // _MAX_GROUPS * _MAX_GROUPS
    return starts[skipped : skipped + _MAX_GROUPS]


def _element_table(layout: TmemLayout, element: Element) -> Table:
    place = layout.place(*element)
    bits = f", bits {extent(place.bit, layout.element_bits)} of the cell" if layout.element_bits < CELL_BITS else ""
    words = ", ".join(f"0x{lane << 16 | place.column:08x}" for lane in place.lanes)
    warps = sorted({lane // QUARTER_LANES for lane in place.lanes})
    rows = {
        "block": f"{place.cta} of the pair" if layout.ctas > 1 else "",
        "lane" if len(place.lanes) == 1 else "lanes": ", ".join(map(str, place.lanes)),
        "column": f"{place.column}{bits}",
        "address": f"`{words}`",
        "warp": f"{', '.join(map(str, warps))} (mod 4) {'reaches' if len(warps) == 1 else 'reach'} it",
    }
    first, second = layout.names[:2]
    return Table(rows, title=f"Element ({first} {element[0]}, {second} {element[1]})")


def _load_table(loaded: LoadedElement) -> Table:
    """Who gets an element by a load."""
    rows = {
        "warp": f"{loaded.warp} (mod 4)",
        "address": f"`0x{loaded.address:08x}`",
        "lane": f"{loaded.lane} of the warp: thread {loaded.warp * QUARTER_LANES + loaded.lane} of a warpgroup",
        "register": f"{loaded.register}, from bit {loaded.bit} on" if loaded.bit else str(loaded.register),
    }
    return Table(rows, title=f"By {loaded.instruction}")


def draw_tmem_budget(budget: TmemBudget) -> Drawing:
    """The parts of a budget with their columns, and what found no room."""
    rows = []
    for part in budget.parts:
        where = "no room"
        if part.first_column is not None:
            where = extent(part.first_column, part.columns)
            if part.lane:
                where += f", from lane {part.lane}"
        rows.append((part.name, part.operand, part.columns, where))
    table = Table(rows, ("part", "operand", "columns", "where"), align="llrl")
    columns = _budget_grid(budget)
    title = f"Tensor memory: {budget.columns} of {TMEM_COLUMNS} columns wanted"
    if budget.fits:
        alloc = f"tcgen05.alloc {budget.alloc_columns} columns."
        return Drawing(f"{title}; fits", {"parts": table, "columns": columns, "alloc": alloc})
    refused = " ".join(f"{violation.found}: {violation.fix}" for violation in budget.violations)
    return Drawing(f"{title}; does not fit", {"parts": table, "columns": columns, "refused": refused})


def _budget_grid(budget: TmemBudget) -> Grid:
    """Which part has which columns, eight to a cell; parts in the two halves of the lanes share theirs."""
    colours = {part.name: number for number, part in enumerate(budget.parts)}

    def cell(start: int, offset: int) -> Cell:
        first = start + offset
        parts = [
            part
            for part in budget.parts
            if part.first_column is not None
            and part.first_column < first + _BUDGET_COLUMNS
            and first < part.first_column + part.columns
        ]
        columns = f"columns {extent(first, _BUDGET_COLUMNS, ' to ')}"
        if not parts:
            return Cell("", "unused", title=f"{columns}: free")
        names = ", ".join(part.name for part in parts)
        links = " ".join(f"part{colours[part.name]}" for part in parts)
        return Cell(parts[0].name[:_BUDGET_LETTERS], colours[parts[0].name], title=f"{columns}: {names}", link=links)

    across = range(0, TMEM_COLUMNS // QUARTERS, _BUDGET_COLUMNS)
    down = range(0, TMEM_COLUMNS, TMEM_COLUMNS // QUARTERS)
    return Grid.of("Columns, 8 to a cell", ("column", "+"), down, across, cell)


def draw_tensor_memory(memory: TensorMemory) -> Drawing:
    """The owners of columns, in slices of 32, and notes on them."""
    owner: dict[int, int] = {}
    for number, (first, taken) in enumerate(memory.allocations):
        owner |= dict.fromkeys(range(first, first + taken, SLICE_COLUMNS), number)

    def cell(start: int, column: int) -> Cell:
        columns = f"columns {extent(start + column, SLICE_COLUMNS)}"
        number = owner.get(start + column)
        if number is None:
            return Cell("free", "unused", title=f"{columns}: free")
        return Cell(str(number), number, title=f"{columns}: allocation {number}")

    half = TMEM_COLUMNS // 2
    grid = Grid.of("Columns, 32 to a cell", ("column", "+"), (0, half), range(0, half, SLICE_COLUMNS), cell)
    legend = Legend((Entry("number: which alloc has the columns", 0), Entry("free", "unused")))
    given_up = "" if memory.may_allocate else "The block has given up its right to allocate."
    title = f"Tensor memory: {int(memory.allocated.sum())} of {TMEM_COLUMNS} columns allocated"
    findings = severities(memory.findings)
    return Drawing(title, {"columns": grid, "legend": legend, "given up": given_up, "findings": findings})


def draw_tmem_agreement(agreement: TmemAgreement) -> Drawing:
    """The verdict in a sentence."""
    verdict = "agrees" if agreement.agrees else f"does not agree: {agreement.cause}"
    if agreement.agrees and agreement.cause is not None:
        verdict = f"agrees; warning: {agreement.cause}"
    right = {"address": "" if agreement.correction is None else f"`{agreement.correction}`"}
    return Drawing(
        f"{agreement.subject} in tensor memory {verdict}",
        {"sentence": agreement.sentence, "right": Table(right, title="What would be right")},
    )


DRAWINGS = {
    TensorMemory: draw_tensor_memory,
    TmemAgreement: draw_tmem_agreement,
    TmemBudget: draw_tmem_budget,
    TmemLayout: draw_tmem_layout,
}
