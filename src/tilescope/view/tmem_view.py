"""The drawing of tensor memory: a matrix as lanes by columns with the quarters of the warps, and who has which columns.

quarter   lane    m       column 0-63     64-127    128-191   192-255
warp 0    0-15    0-15           0-63     64-127    …                      a cell: columns n of the matrix
         16-31   16-31           0-63     …
warp 1   32-47   32-47
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilescope.mma.datapath import DATAPATHS
from tilescope.mma.tensor_memory import SLICE_COLUMNS, TensorMemory
from tilescope.mma.tmem_address import CELL_BITS, LANE_BITS, QUARTER_LANES, TMEM_COLUMNS, TMEM_LANES
from tilescope.mma.tmem_agreement import TmemAgreement
from tilescope.mma.tmem_allocation import TmemBudget
from tilescope.mma.tmem_layout import TmemLayout
from tilescope.view.drawing import Drawing
from tilescope.view.grid import Cell, Grid, Row, Tier, number_span
from tilescope.view.parts import Beside, Entry, Legend, Paragraph, Part, Table

_NOBODY = 1 << 40
_BAND_LANES = 16  # what a row of the drawing stands for
_MOST_GROUPS = 4  # columns of the drawing
_DRAWN_AS = {
    "D": "Accumulator D", "A": "A", "metadata": "Metadata of A", "SFA": "Scale factors of A", "SFB": "Scale factors of B",
}  # fmt: skip


def draw_tmem_layout(layout: TmemLayout, element: tuple[int, int] | None = None) -> Drawing:
    """A matrix in tensor memory, drawn as lanes by columns; the cells that hold `element` are marked and told.

    >>> from tilescope.mma.tmem_layout import tmem_layout
    >>> draw_tmem_layout(tmem_layout((128, 256))).title
    'Accumulator D, 128 x 256 (m x n), in tensor memory: layout D'
    """
    rows, columns = layout.matrix
    names = layout.names[:2]
    kind = f": layout {layout.datapath}" if layout.datapath else ""
    title = f"{_DRAWN_AS[layout.operand]}, {rows} x {columns} ({names[0]} x {names[1]}), in tensor memory{kind}"
    parts: list[Part] = [Paragraph(_sentence(layout))]
    if element is not None:
        parts.append(_element_table(layout, element))
    ctas = range(layout.ctas)
    grids = tuple(_lane_grid(layout, cta, element) for cta in ctas)
    parts += [Beside(grids) if len(grids) > 1 else grids[0], _facts(layout)]
    return Drawing(title, tuple(parts))


def _sentence(layout: TmemLayout) -> str:
    first, second = layout.names[:2]
    what = (
        f"{first}, then {second}" if layout.operand in ("SFA", "SFB") else f"the {second} that it holds of its {first}"
    )
    said = (
        f"128 lanes down, columns of 32 bits across; a cell of the drawing names {what}. Warp w of a block reaches the "
    )
    said += "lanes of quarter w mod 4 alone."
    if layout.ctas > 1:
        said += f" Each block of the pair holds {layout.rows} rows in its own tensor memory."
    if layout.copies > 1:
        said += f" Every element lies there {layout.copies} times."
    if layout.datapath and DATAPATHS[layout.datapath].is_half:
        said += " Half of the lanes stay free: a second accumulator fits in at lane 16."
    return said


def _owners(layout: TmemLayout) -> npt.NDArray[np.int64]:
    """For each (lane, column) the first element there as row * columns + column, or _NOBODY."""
    owner = np.full(TMEM_LANES * TMEM_COLUMNS, _NOBODY, np.int64)
    place = layout.bit_addresses()[: layout.rows, : layout.matrix[1]]
    number = np.arange(place.shape[0])[:, None, None] * layout.matrix[1] + np.arange(place.shape[1])[None, :, None]
    np.minimum.at(owner, place // LANE_BITS * TMEM_COLUMNS + place % LANE_BITS // CELL_BITS, number)
    return owner.reshape(TMEM_LANES, TMEM_COLUMNS)


def _lane_grid(layout: TmemLayout, cta: int, element: tuple[int, int] | None) -> Grid:
    """One block's lanes by columns, in bands of 16 lanes."""
    owner, columns = _owners(layout), layout.matrix[1]
    first, width = layout.base.column, layout.columns
    end_column = first + width
    notes: tuple[str, ...] = ()
    scales = layout.operand in (
        "SFA",
        "SFB",
    )  # a column of theirs holds other rows than its neighbour: drawn one by one
    step = 1 if scales else -(-width // _MOST_GROUPS)
    if scales and width > _MOST_GROUPS:
        first += 0 if element is None else (layout.place(*element).column - first) // _MOST_GROUPS * _MOST_GROUPS
        end_column = min(first + _MOST_GROUPS, end_column)
        notes = (f"Columns {number_span(first, end_column - 1)} of {width}.",)
    starts = range(first, end_column, step)
    marked = set()
    if element is not None and (place := layout.place(*element)).cta == cta:
        marked = {(lane, place.column) for lane in place.lanes}
    lines = []
    for lane in range(0, TMEM_LANES, _BAND_LANES):
        cells, band_rows = [], ""
        for start in starts:
            end = min(start + step, end_column)
            block = owner[lane : lane + _BAND_LANES, start:end]
            held = block[block != _NOBODY]
            where = f"lanes {lane}-{lane + _BAND_LANES - 1}, columns {start}-{end - 1}"
            if not held.size:
                cells.append(Cell("", "unused", title=f"{where}: free"))
                continue
            row, column = held // columns + cta * layout.rows, held % columns
            rows = number_span(int(row.min()), int(row.max()))
            across = number_span(int(column.min()), min(int(column.max()) + _per_cell(layout), columns) - 1)
            band_rows = "" if scales else rows
            focus = any(lane <= at < lane + _BAND_LANES and start <= cell < end for at, cell in marked)
            names = layout.names[:2]
            cells.append(Cell(
                f"{rows}, {across}" if scales else across, int(row.min() - cta * layout.rows) // _BAND_LANES,
                "focus" if focus else "", f"{where}: {names[0]} {rows}, {names[1]} {across}",
            ))  # fmt: skip
        labels = [
            f"warp {lane // QUARTER_LANES}" if lane % QUARTER_LANES == 0 else "",
            number_span(lane, lane + _BAND_LANES - 1),
        ]
        labels += [] if scales else [band_rows]
        lines.append(Row(tuple(labels), tuple(cells), ruled=lane % QUARTER_LANES == 0 and lane > 0))
    headers = (number_span(start, min(start + step, end_column) - 1) for start in starts)
    title = f"Block {cta} of the pair" if layout.ctas > 1 else "Lanes by columns"
    label_names = ("quarter", "lane") if scales else ("quarter", "lane", layout.names[0])
    return Grid(title, (Tier.of("column", headers),), tuple(lines), label_names, notes)


def _per_cell(layout: TmemLayout) -> int:
    """Elements of a row that share a 32-bit cell."""
    bits = layout.bit_addresses()[0, :2, 0]
    step = int(bits[1] - bits[0]) if len(bits) > 1 else CELL_BITS
    return CELL_BITS // step if 0 < step < CELL_BITS else 1


def _element_table(layout: TmemLayout, element: tuple[int, int]) -> Table:
    place = layout.place(*element)
    first, second = layout.names[:2]
    cell = layout.element_bits < CELL_BITS
    bits = f", bits {place.bit}-{place.bit + layout.element_bits - 1} of the cell" if cell else ""
    words = ", ".join(f"0x{lane << 16 | place.column:08x}" for lane in place.lanes)
    warps = sorted({lane // QUARTER_LANES for lane in place.lanes})
    rows = [
        ("lane" if len(place.lanes) == 1 else "lanes", ", ".join(map(str, place.lanes))),
        ("column", f"{place.column}{bits}"),
        ("address", f"`{words}`"),
        ("warp", f"{', '.join(map(str, warps))} (mod 4) {'reaches' if len(warps) == 1 else 'reach'} it"),
    ]
    if layout.ctas > 1:
        rows.insert(0, ("block", f"{place.cta} of the pair"))
    return Table(tuple(rows), title=f"Element ({first} {element[0]}, {second} {element[1]})")


def _facts(layout: TmemLayout) -> Table:
    lanes = layout.lanes
    used = f"{len(lanes)} of {TMEM_LANES} lanes, {layout.columns} columns from {layout.base.column} on"
    source = f"documented; {layout.source}" if layout.source else "documented"
    place = f"`{layout.bit_modes}`  (bits: lane << 21 | column << 5 | bit)"
    return Table((("uses", used), (f"{', '.join(layout.names)} →", place), ("basis", source)))


def draw_tmem_budget(budget: TmemBudget) -> Drawing:
    """The parts of a budget with their columns, and what found no room."""
    rows = tuple(
        (
            part.name,
            part.operand,
            str(part.columns),
            "no room" if part.first_column is None else _placed(part.first_column, part.columns, part.lane),
        )
        for part in budget.parts
    )
    table = Table(rows, ("part", "operand", "columns", "where"), align="llrl")
    said = (
        f"tcgen05.alloc {budget.alloc_columns} columns."
        if budget.fits
        else " ".join(f"{violation.found}: {violation.fix}" for violation in budget.violations)
    )
    verdict = "fits" if budget.fits else "does not fit"
    return Drawing(
        f"Tensor memory: {budget.columns} of {TMEM_COLUMNS} columns wanted; {verdict}", (table, Paragraph(said))
    )


def _placed(first: int, columns: int, lane: int) -> str:
    return f"{number_span(first, first + columns - 1)}" + (f", from lane {lane}" if lane else "")


def draw_tensor_memory(memory: TensorMemory) -> Drawing:
    """Who has which columns, in slices of 32, and what is to be said about it."""
    owner = np.full(TMEM_COLUMNS // SLICE_COLUMNS, -1)
    for number, (first, taken) in enumerate(memory.allocations):
        owner[first // SLICE_COLUMNS : (first + taken) // SLICE_COLUMNS] = number
    cells = []
    for at, number in enumerate(owner.tolist()):
        columns = number_span(at * SLICE_COLUMNS, at * SLICE_COLUMNS + SLICE_COLUMNS - 1)
        if number < 0:
            cells.append(Cell("free", "unused", title=f"columns {columns}: free"))
        else:
            cells.append(Cell(str(number), number, title=f"columns {columns}: allocation {number}"))
    half = len(cells) // 2
    rows = tuple(Row((str(at * SLICE_COLUMNS),), tuple(cells[at : at + half])) for at in (0, half))
    grid = Grid(
        "Columns, 32 to a cell", (Tier.of("+", range(0, half * SLICE_COLUMNS, SLICE_COLUMNS)),), rows, ("column",)
    )
    parts: list[Part] = [grid, Legend((Entry("number: which alloc has the columns", 0), Entry("free", "unused")))]
    if not memory.may_allocate:
        parts.append(Paragraph("The block has given up its right to allocate."))
    if memory.findings:
        parts.append(
            Table(tuple((finding.severity, str(finding)) for finding in memory.findings), title="What to look at")
        )
    return Drawing(f"Tensor memory: {int(memory.allocated.sum())} of {TMEM_COLUMNS} columns allocated", tuple(parts))


def draw_tmem_agreement(found: TmemAgreement) -> Drawing:
    """The verdict in a sentence."""
    verdict = "agrees" if found.agrees else f"does not agree: {found.cause}"
    parts: list[Part] = [Paragraph(found.sentence)]
    if found.correction is not None:
        parts.append(Table((("address", f"`{found.correction}`"),), title="What would be right"))
    return Drawing(f"{found.subject} in tensor memory {verdict}", tuple(parts))
