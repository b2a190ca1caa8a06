"""The drawing of a copy: the box in the tensor, and shared memory line by line; and of a tile found in a dump.

The box in the tensor          Shared memory
        element  0    8   …            bank   0    4    8   12  …
dim 1                        byte     chunk   0    1    2    3  …
  32        0.0  0.1 …       0x400          0.0  0.1  0.2  0.3 …      a cell says row.chunk of the copy, and has
  33        1.0  1.1 …       0x480          1.1  1.0  1.3  1.2 …      its row's colour, on both sides

Small tensors are drawn exactly: a cell is 16 bytes of a row (or a pixel) and says which row.chunk of the copy it is.
In large ones cells end at round numbers, and where the copy begins and ends, so that no cell is half copied:

    dim 1 dim 0   0    128   192   512  1024 …         a box of 64 x 64 at (128, 256)
        0         ·     ·     ·     ·     ·
      256         ·    box    ·     ·     ·
      320         ·     ·     ·     ·     ·
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, pairwise
from typing import NamedTuple, Self

import numpy as np

from tilescope.arithmetic import ceil_div, rounded_up
from tilescope.sentence import by, counted
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES
from tilescope.tma import Identification, Origin, Trace
from tilescope.tma.place import Place
from tilescope.view.drawing import Beside, Drawing, Entry, Legend, Table
from tilescope.view.grid import Cell, Grid, chunk_bytes, holding, lines_of_bytes, memory_grid, number_span, runs
from tilescope.view.layout_view import draw_layout
from tilescope.view.palette import CHUNK_COLOURS, Mark
from tilescope.view.walk import Step

MAX_LINES = 32
_MAX_STEPS = 512  # of a walk
EXACT_COLUMNS, EXACT_ROWS = 16, 32  # drawn cell by cell up to here …
_SCALED_COLUMNS, _SCALED_ROWS = 10, 8  # … and beyond in about so many cells, and the copy's own: they fit 80 characters
Interval = tuple[int, int]  # the first index, and the one behind the last
_SIGNS = "~x"  # behind the name of a chunk: the tensor ends within it; its halves are exchanged
_VERB = {"load": "Load", "store": "Store", "gather4": "Gather", "scatter4": "Scatter"}


def draw_trace(
    trace: Trace,
    *,
    lines: int | None = MAX_LINES,
    exact: tuple[int, int] = (EXACT_COLUMNS, EXACT_ROWS),
    places: tuple[Place, ...] = (),
) -> Drawing:
    """The box in the tensor beside the lines of shared memory that it covers, at most `lines` of them.

    A tensor of more than `exact` columns (16 bytes) or rows is drawn to scale. `places` are described first, and marked.

    >>> from tilescope.tensor_map import TensorMap
    >>> a = TensorMap("bf16", (64, 8), (128,), (64, 2), swizzle="128B")
    >>> print(draw_trace(Trace(a, (0, 4))).text(120).splitlines()[0])
    Load of a box at (0, 4) to shared address 0x0
    """
    a, start = trace.tensor_map, trace.smem_address
    what = "four rows" if "4" in trace.operation else "a box" if a.kind == "tensor_map" else "a column of pixels"
    where = f"{'to' if trace.is_load else 'from'} shared address {start:#x}"
    title = f"{_VERB[trace.operation]} of {what} at {trace.coords} {where}"
    links = {_chunk(trace, place.address // CHUNK_BYTES * CHUNK_BYTES).link for place in places} - {""}
    lines_drawn, period = lines_of_bytes(start, start + trace.footprint_bytes), a.swizzle.period_lines
    shared = memory_grid(
        f"Shared memory, swizzle {a.swizzle.name}",
        lines_drawn,
        lambda address: _chunk(trace, address),
        most=lines,
        period=period if a.swizzle.bits else 0,
        numbered=True,
    )
    tensor = plane(trace, exact).marked(links)
    shared = shared.marked(links)
    return Drawing(
        title,
        {
            "places": tuple(_place(trace, place) for place in places),
            "grids": Beside({"plane": tensor, "memory": shared}),
            "legend": _legend(trace, tensor, shared),
            "facts": _facts(trace),
        },
    )


def walk_trace(trace: Trace, **_: object) -> Iterator[Step]:
    """The rows of the copy, in the order of shared memory."""
    for row, coords in enumerate(trace.row_coords[:_MAX_STEPS].tolist()):
        yield Step(chunk_links(trace, row), f"row {row} of the copy: coordinates {tuple(coords)}")


def _place(trace: Trace, place: Place) -> Table:
    """One address: what lies there, and what an XOR of the offset would have given."""
    address = place.address
    line, chunk, bank = address // SMEM_LINE_BYTES, address % SMEM_LINE_BYTES // CHUNK_BYTES, address // 4 % 32
    where = {"shared address": f"{address:#x}: line {line}, chunk {chunk}, bank {bank}"}
    if place.element is None or place.offset_xor_address is None:
        return Table(where | {"holds": "nothing of this copy: it leaves the byte alone"}, title=f"At {address:#x}")
    row, column = place.element
    instead = "the same address" + ("" if trace.base_offset else ": the buffer starts where the pattern does")
    if place.offset_xor_address != address:
        there = "a gap" if place.element_instead is None else "row {}, column {}".format(*place.element_instead)
        aligned = f"align the buffer to {trace.tensor_map.swizzle.repeat_bytes} bytes"
        instead = f"{place.offset_xor_address:#x} instead, where {there} lies. The hardware XORs the address: do the same, or {aligned}"
    source = {
        "element": f"byte {place.source_offset or 0:#x} of the tensor",
        "fill": f"outside the tensor: {'filled' if trace.is_load else 'dropped'}",
        "overrun": "behind the end of a row of the tensor, which the store overwrites",
        "gap": "",
    }[place.holds]
    facts = {
        "element": f"row {row}, column {column} of the box, byte {place.byte} of it",
        "in the tensor": f"coordinates {place.coords} (innermost first), {source}",
        **where,
        "XOR of the offset": instead if trace.tensor_map.swizzle.bits else "",
    }
    return Table(facts, title=f"Row {row}, column {column}")


def _chunk(trace: Trace, address: int) -> Cell:
    """The cell of 16 bytes of shared memory."""
    a = trace.tensor_map
    held = [trace.element_at(address + byte) for byte in (0, 7, 8, 15)]  # the ends of both halves
    if len({origin.holds for origin in held}) > 1:
        held = [trace.element_at(address + byte) for byte in range(CHUNK_BYTES)]
    kinds = {origin.holds for origin in held}
    row = next((origin.row for origin in held if origin.row is not None), None)
    where = chunk_bytes(address)
    if row is None:
        return Cell("-", "gap", title=f"{where}: the copy leaves them alone")
    physical = a.swizzle.apply(address)
    link = f"{row}.{(physical - trace.smem_address) % a.pitch_bytes // CHUNK_BYTES}"
    label = link if chunks_of_row(trace) > 1 else str(row)
    if "element" not in kinds:
        text, said = ("fill", "filled") if trace.is_load else ("drop", "dropped")
        title = f"{where}: {label} {said}, coordinates {_span(held)} lie outside the tensor"
        return Cell(text, "fill", title=title, link=link)
    signs = _SIGNS[0] * ("fill" in kinds) + _SIGNS[1] * bool((physical ^ address) & a.swizzle.flip_bytes)
    overrun = " and, behind the row's end, overwrite what follows" if "overrun" in kinds else ""
    elements = [origin for origin in held if origin.holds == "element"]
    sources = [element.source_offset for element in elements if element.source_offset is not None]
    title = f"{where}: elements {_span(elements)}, tensor bytes {min(sources):#x} to {max(sources):#x}{overrun}"
    return Cell(label + signs, row, "collision" if overrun else "", title, link=link)


def _span(held: list[Origin]) -> str:
    """The first and last coordinates of some bytes: (0, 33) to (7, 33)."""
    coords = [origin.coords for origin in held if origin.coords is not None]
    first, last = min(coords), max(coords)
    return str(first) if first == last else f"{first} to {last}"


def _legend(trace: Trace, tensor: Grid, shared: Grid) -> Legend:
    """What the cells mean, of those that are drawn."""
    copied, cells = ([cell for row in grid.rows for cell in row.cells] for grid in (tensor, shared))
    value = "zero" if trace.tensor_map.oob_fill.name == "zero" else "0x7FF7 in every 16 bits"
    outside = f"filled with {value}" if trace.is_load else "dropped"
    several = chunks_of_row(trace) > 1
    repeats = "the eight colours repeat" if trace.rows > len(CHUNK_COLOURS) else "every row has its colour"
    says = "row.chunk" if several else "its row"
    of_rows, of_tensor = ([cell for cell in drawn if isinstance(cell.colour, int)] for drawn in (cells, copied))
    cut, swapped = ([cell for cell in of_rows if sign in cell.text] for sign in _SIGNS)
    overrun, asked = ([cell for cell in cells if cell.mark == mark] for mark in ("collision", "focus"))
    meanings: list[tuple[str, list[Cell], str, Mark]] = [
        (f"row {{row}}; {repeats}, and a cell says {says}", of_rows, "", ""),
        (
            "pixel that becomes row {row}; a cell of several names the first",
            [cell for cell in of_tensor if _takes_pixels(trace) and (several or not cell.link)],
            "",
            "",
        ),
        ("the part of the tensor that is copied", [cell for cell in of_tensor if cell.text == "box"], "", ""),
        (f"outside the tensor: {outside}", [cell for cell in cells if cell.colour == "fill"], "", ""),
        (
            "the part of the copy that lies outside the tensor",
            [cell for cell in copied if cell.colour == "fill"],
            "",
            "",
        ),
        ("the tensor ends within the chunk; the rest is outside", cut, "~", ""),
        ("not part of the copy: keeps its bytes", [cell for cell in cells if cell.colour == "gap"], "", ""),
        ("the store also overwrites what lies behind the row", overrun, "", "collision"),
        ("its 8-byte halves are exchanged", swapped, "x", ""),
        ("what was asked for", asked, "", "focus"),
    ]
    entries = []
    for text, drawn, sign, mark in meanings:
        for first in drawn[:1]:
            sample = first.text if first.text == "box" else first.text.rstrip(_SIGNS) + sign
            entries.append(Entry(text.format(row=first.colour), first.colour, mark, sample))
    return Legend(tuple(entries))


def _facts(trace: Trace) -> Table:
    a, overrun, offset = trace.tensor_map, trace.overrun_bytes, trace.base_offset
    whole, others = trace.filled_rows, trace.rows - trace.filled_rows
    cut_bytes = trace.outside_bytes - (overrun // others if others else 0)  # of a row; what overruns is not dropped
    rows = f"the other {others}" if whole else "every row" if others > 1 else "the row"
    outside = holding({f"{whole} of {trace.rows} rows": whole, f"{cut_bytes} bytes of {rows}": cut_bytes})
    whole_chunks = "a store writes whole 16 bytes"
    facts = {
        "tensor": f"{a.data_type.name}, dims {a.dims}" + (f", strides {a.strides_bytes} bytes" if a.rank > 1 else ""),
        "copy": f"{counted(trace.rows, 'row')} of {a.interleave.slice_bytes or a.inner_bytes} bytes, {a.pitch_bytes} bytes apart",
        "mbarrier": "" if trace.transaction_bytes is None else f"expect_tx {trace.transaction_bytes} bytes",
        "written": f"{trace.written_bytes} bytes of {'shared' if trace.is_load else 'global'} memory",
        "outside": f"{' and '.join(outside)}: {'filled' if trace.is_load else 'dropped'}" if outside else "",
        "overrun": f"{overrun} bytes behind the rows' ends are overwritten: {whole_chunks}" if overrun else "",
        "base offset": f"{offset}: the buffer starts on line {offset} of the swizzle's pattern" if offset else "",
        "basis": trace.basis,
    }
    return Table(facts)


def draw_identification(tile: Identification) -> Drawing:
    """A tile found in a dump: where it lies, in which layout, and how much of it fits; if it was not found, that alone."""
    if not tile.found:
        return Drawing("The tile is not in the dump", {"advice": tile.advice})
    fits, wrong = tile.compared_bytes - tile.wrong_bytes - tile.missing_bytes, tile.first_wrong
    as_good, said = counted(tile.equally_good, "more layout"), ""
    if wrong is not None:
        element = f"element ({wrong.row}, {wrong.column}) byte {wrong.byte}"
        said = f"at {wrong.address:#x} of the dump: {element} should be {wrong.expected:#04x} and is {wrong.found:#04x}"
    facts = {
        "offset": f"byte {tile.offset:#x} of the dump",
        "swizzle": f"{tile.swizzle.name}, base offset {tile.base_offset}",
        "order": tile.order_words + (" of the transposed tile" if tile.transposed else ""),
        "pitch": f"{tile.layout.as_rows().tiling.pitch_bytes} bytes from row to row",
        "fits": f"{fits} of {tile.compared_bytes} bytes",
        "outside": f"{tile.missing_bytes} bytes of the tile would lie outside the dump" if tile.missing_bytes else "",
        "first wrong": said,
        "as good": f"{as_good} explain as much; this is the simplest" if tile.equally_good else "",
    }
    title = "The tile is in the dump" if tile.explained else "A part of the tile is in the dump"
    return Drawing(title, {"dump": Table(facts), **dict(draw_layout(tile.layout).named)})


class _Axis(NamedTuple):
    """One direction of the plane, cut into cells at `edges`: where each begins, and where the last ends."""

    name: str
    dim: int
    edges: tuple[int, ...] = (0, 1)
    extent: int = 1  # of the tensor
    step: int = 1  # between edges, except at those of the copy
    exact: bool = True

    @classmethod
    def of(cls, name: str, dim: int, extent: int, copied: list[Interval], unit: int, most: int, scaled: int) -> Self:
        """Cells of a unit for the whole tensor and the copy beside it; those of more than `most` units are `scaled` down."""
        low, high = min(0, copied[0][0] // unit * unit), max(extent, *(end for _, end in copied))
        units = ceil_div(high - low, unit)
        if units <= most:
            return cls(name, dim, tuple(range(low, low + units * unit + 1, unit)), extent, unit)
        step = unit << (ceil_div(units, scaled) - 1).bit_length()  # a power of two: round numbers
        ticks = range(rounded_up(low, step), high, step)
        kept = (tick for tick in ticks if not any(first < tick < end for first, end in copied))
        edges = sorted({low, 0, extent, high, *kept, *chain(*copied)})
        return cls(name, dim, tuple(edges), extent, step, exact=False)

    def cell_of(self, index: int) -> int:
        return self.edges[bisect_right(self.edges, index) - 1]

    def where(self, cell: Interval) -> tuple[str, bool]:
        """The indices of a cell, and whether the tensor reaches into it."""
        said = f"dim {self.dim}: {number_span(cell[0], cell[1] - 1, ' to ')}" if self.name else ""
        return said, cell[1] > 0 and cell[0] < self.extent


def plane(trace: Trace, exact: tuple[int, int] = (EXACT_COLUMNS, EXACT_ROWS)) -> Grid:
    """The plane of the tensor that the copy's first row lies in, with the copy in it.

    Up to `exact` columns and rows are drawn cell by cell.
    """
    most_columns, most_rows = exact
    a, coords, names = trace.tensor_map, trace.row_coords, dim_names(trace)
    pixels = _takes_pixels(trace)
    x, y = plane_dims(trace)
    fixed = [dim for dim in range(a.rank) if dim not in (x, y) and (dim > 0 or x == 0)]  # channels lie within a pixel
    rows = np.flatnonzero((coords[:, fixed] == coords[0, fixed]).all(axis=1))
    unit, length = (1, 1) if pixels else (max(1, CHUNK_BYTES * 8 // a.data_type.smem_bits), a.inner_elements)
    line_of, starts = np.zeros_like(rows) if y is None else coords[rows, y], coords[rows, x]
    lines = {
        line: (int(starts[line_of == line].min()), int(starts[line_of == line].max()) + length)
        for line in np.unique(line_of).tolist()
    }
    most = most_rows if pixels else most_columns
    across = _Axis.of(names[x], x, a.dims[x], sorted(set(lines.values())), unit, most, _SCALED_COLUMNS)
    down = _Axis("", -1)
    if y is not None:
        copied = [(first, last + 1) for first, last in runs(lines, a.element_strides[y], lines.get)]
        down = _Axis.of(names[y], y, a.dims[y], copied, 1, most_rows, _SCALED_ROWS)
    is_exact = across.exact and down.exact
    spots: dict[Interval, Cell] = {}  # by first line and column
    for row, line, start in zip(rows.tolist(), line_of.tolist(), starts.tolist(), strict=True):
        for edge in across.edges[across.edges.index(across.cell_of(start)) :]:
            if edge >= start + length:
                break
            piece = f"{row}.{(edge - start) // unit}"
            text = piece if is_exact and length > unit else str(row) if is_exact or pixels else "box"
            link = (chunk_links(trace, row) if pixels else piece) if is_exact else ""
            spots.setdefault((down.cell_of(line), edge), Cell(text, row, title=f": row {row} of the copy", link=link))

    def cell(along: Interval, column: Interval) -> Cell:
        (first, reaches_across), (second, reaches_down) = across.where(column), down.where(along)
        inside, spot = reaches_across and reaches_down, spots.get((along[0], column[0]))
        where = ", ".join(holding({first: 1, second: second, "outside the tensor": not inside}))
        if spot is None:
            return Cell("·" if inside else "", "unused" if inside else None, title=where)
        said = replace(spot, title=where + spot.title)
        return said if inside else replace(said, text=f"({spot.text})", colour="fill")

    axes = [axis for axis in (across, down) if axis.name]
    steps = " and ".join(f"{axis.step} of {axis.name}" for axis in axes if not axis.exact)
    notes = {
        f"Cells end at the copy's edges and, outside it, at every {steps}.": steps,
        f"A cell is {by(axis.step for axis in axes)} elements.": is_exact and across.step > 1,
        f"The plane at {', '.join(f'{names[dim]} = {coords[0, dim]}' for dim in fixed)}.": fixed,
    }
    labels = {along: str(along[0]) if down.name else "" for along in pairwise(down.edges)}
    columns = {column: column[0] for column in pairwise(across.edges)}
    return Grid.of("The copy in the tensor", (down.name, across.name), labels, columns, cell, notes=holding(notes))


def plane_dims(trace: Trace) -> tuple[int, int | None]:
    """The dimensions that the plane shows across and down; None if it is one line.

    >>> from tilescope.tensor_map import TensorMap
    >>> plane_dims(Trace(TensorMap("bf16", (64, 8), (128,), (64, 2)), (0, 4)))
    (0, 1)
    """
    a = trace.tensor_map
    pixels = _takes_pixels(trace)
    across = 1 if pixels and not a.interleave.slice_bytes else 0
    down = across + 1 if a.rank > (3 if pixels else 1) else None
    return across, down


def _takes_pixels(trace: Trace) -> bool:
    """Whether a row of the copy is a pixel of an image."""
    return bool(trace.tensor_map.interleave.slice_bytes) or trace.tensor_map.kind != "tensor_map"


def chunk_links(trace: Trace, row: int) -> str:
    """The words that link the chunks of a row of the copy: "3.0 3.1".

    >>> from tilescope.tensor_map import TensorMap
    >>> chunk_links(Trace(TensorMap("bf16", (64, 8), (128,), (16, 2)), (0, 0)), 1)
    '1.0 1.1'
    """
    return " ".join(f"{row}.{chunk}" for chunk in range(chunks_of_row(trace)))


def chunks_of_row(trace: Trace) -> int:
    """How many whole chunks of 16 bytes a row of the copy has."""
    a = trace.tensor_map
    return (a.interleave.slice_bytes or a.inner_bytes) // CHUNK_BYTES


def dim_names(trace: Trace) -> tuple[str, ...]:
    """What the dimensions are called: their numbers, or the letters of an image."""
    a = trace.tensor_map
    letters = ("W", "H", "D")[: a.rank - 2]
    if a.interleave.slice_bytes:
        return *letters, "slice", "N"
    if a.kind != "tensor_map":
        return "C", *letters, "N"
    return tuple(f"dim {axis}" for axis in range(a.rank))


DRAWINGS = {Identification: draw_identification, Trace: draw_trace}
WALKS = {Trace: walk_trace}
