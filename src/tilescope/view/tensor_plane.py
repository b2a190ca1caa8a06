"""The plane of the tensor that a copy starts in, with the copy in it.

Small tensors are drawn exactly: a cell is 16 bytes of a row (or a pixel) and says which row.chunk of the copy it is.
In large ones cells end at round numbers, and where the copy begins and ends, so that no cell is half copied:

    dim 1 dim 0   0    128   192   512  1024 …         a box of 64 x 64 at (128, 256)
        0         ·     ·     ·     ·     ·
      256         ·    box    ·     ·     ·
      320         ·     ·     ·     ·     ·
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from itertools import chain, pairwise
from typing import NamedTuple, Self

import numpy as np

from tilescope.arithmetic import ceil_div, rounded_up
from tilescope.sentence import by
from tilescope.swizzle import CHUNK_BYTES
from tilescope.tma import Trace
from tilescope.view.grid import Cell, Grid
from tilescope.view.number_span import number_span, runs

EXACT_COLUMNS = 16  # drawn cell by cell up to here …
EXACT_ROWS = 32
_SCALED_COLUMNS = 10  # … and beyond in about this many cells besides the copy's own: they fit 80 characters
_SCALED_ROWS = 8
Interval = tuple[int, int]  # the first index, and the one behind the last


class _Axis(NamedTuple):
    """One direction of the plane, cut into cells at `edges`: where each begins, and where the last ends."""

    name: str
    dim: int
    edges: tuple[int, ...] = (0, 1)
    extent: int = 1  # of the tensor
    step: int = 1  # between edges, except at those of the copy
    exact: bool = True

    @classmethod
    def of(cls, name: str, dim: int, *, extent: int, copied: list[Interval], unit: int, most: int, scaled: int) -> Self:
        """Cells of a unit for the whole tensor and the copy beside it; more than `most` of them are `scaled` down."""
        low = min(0, copied[0][0] // unit * unit)
        high = max(extent, *(end for _, end in copied))
        units = ceil_div(high - low, unit)
        if units <= most:
            return cls(name, dim, tuple(range(low, low + units * unit + 1, unit)), extent, unit)
        step = unit << (ceil_div(units, scaled) - 1).bit_length()  # a power of two: round numbers
        ticks = range(rounded_up(low, step), high, step)
        shown_ticks = (tick for tick in ticks if not any(first < tick < end for first, end in copied))
        edges = sorted({low, 0, extent, high, *shown_ticks, *chain(*copied)})
        return cls(name, dim, tuple(edges), extent, step, exact=False)

    def cell_of(self, index: int) -> int:
        return self.edges[bisect_right(self.edges, index) - 1]

    def cells_of(self, first: int, end: int) -> list[int]:
        """The cells with indices `first` to below `end`, each by where it begins."""
        start = bisect_right(self.edges, first) - 1
        return [edge for edge in self.edges[start:] if edge < end]

    def where(self, cell: Interval) -> str:
        """The indices of a cell."""
        return f"dim {self.dim}: {number_span(cell[0], cell[1] - 1, ' to ')}" if self.name else ""

    def is_inside(self, cell: Interval) -> bool:
        """Whether the tensor reaches into a cell."""
        return cell[1] > 0 and cell[0] < self.extent


class _CopiedRows(NamedTuple):
    """The rows of the copy in the plane: their numbers, their lines, and where they start there."""

    rows: list[int]
    lines: list[int]
    starts: list[int]
    length: int  # of every row, in elements
    unit: int  # elements of a cell

    @classmethod
    def of(cls, trace: Trace) -> Self:
        a = trace.tensor_map
        coords = trace.row_coords
        across, down = plane_dims(trace)
        fixed = _fixed_dims(trace)
        rows = np.flatnonzero((coords[:, fixed] == coords[0, fixed]).all(axis=1))
        lines = np.zeros_like(rows) if down is None else coords[rows, down]
        starts = coords[rows, across]
        if takes_pixels(trace):
            return cls(rows.tolist(), lines.tolist(), starts.tolist(), length=1, unit=1)
        unit = max(1, CHUNK_BYTES * 8 // a.data_type.smem_bits)
        return cls(rows.tolist(), lines.tolist(), starts.tolist(), length=a.inner_elements, unit=unit)

    def intervals(self) -> dict[int, Interval]:
        """What is copied of each line, from its first element to behind its last."""
        intervals: dict[int, Interval] = {}
        for line, start in zip(self.lines, self.starts, strict=True):
            first, end = intervals.get(line, (start, start))
            intervals[line] = (min(first, start), max(end, start + self.length))
        return dict(sorted(intervals.items()))


class _Plane(NamedTuple):
    """A plane of the tensor: its two directions."""

    across: _Axis
    down: _Axis

    @classmethod
    def of(cls, trace: Trace, copied: _CopiedRows, exact: tuple[int, int]) -> Self:
        a = trace.tensor_map
        names = dim_names(trace)
        most_columns, most_rows = exact
        across_dim, down_dim = plane_dims(trace)
        intervals = copied.intervals()
        across = _Axis.of(
            names[across_dim],
            across_dim,
            extent=a.dims[across_dim],
            copied=sorted(set(intervals.values())),
            unit=copied.unit,
            most=most_rows if takes_pixels(trace) else most_columns,
            scaled=_SCALED_COLUMNS,
        )
        if down_dim is None:
            return cls(across, _Axis("", -1))
        lines = runs(intervals, a.element_strides[down_dim], intervals.get)
        down = _Axis.of(
            names[down_dim],
            down_dim,
            extent=a.dims[down_dim],
            copied=[(first, last + 1) for first, last in lines],
            unit=1,
            most=most_rows,
            scaled=_SCALED_ROWS,
        )
        return cls(across, down)

    @property
    def is_exact(self) -> bool:
        """Whether every cell is 16 bytes of a row, or a pixel."""
        return self.across.exact and self.down.exact


def plane(trace: Trace, exact: tuple[int, int]) -> Grid:
    """The plane of the tensor that contains the copy's first row, with the copy in it.

    Up to `exact` columns and rows are drawn cell by cell.
    """
    copied = _CopiedRows.of(trace)
    drawn = _Plane.of(trace, copied, exact)
    copied_cells = _copied_cells(trace, copied, drawn)

    def cell(line: Interval, column: Interval) -> Cell:
        words = [drawn.across.where(column)]
        if drawn.down.name:
            words.append(drawn.down.where(line))
        is_inside = drawn.across.is_inside(column) and drawn.down.is_inside(line)
        if not is_inside:
            words.append("outside the tensor")
        where = ", ".join(words)
        copied_cell = copied_cells.get((line[0], column[0]))
        if copied_cell is None:
            return Cell("·", "unused", title=where) if is_inside else Cell(title=where)
        title = f"{where}: {copied_cell.title}"
        if is_inside:
            return replace(copied_cell, title=title)
        return replace(copied_cell, text=f"({copied_cell.text})", colour="fill", title=title)

    return Grid.of(
        "The copy in the tensor",
        (drawn.down.name, drawn.across.name),
        {line: str(line[0]) if drawn.down.name else "" for line in pairwise(drawn.down.edges)},
        {column: column[0] for column in pairwise(drawn.across.edges)},
        cell,
        notes=_plane_notes(trace, drawn),
    )


def _copied_cells(trace: Trace, copied: _CopiedRows, drawn: _Plane) -> dict[Interval, Cell]:
    """The cells that are copied, by where their lines and columns begin; a cell of several rows is the first's."""
    pixels = takes_pixels(trace)
    cells: dict[Interval, Cell] = {}
    for row, line, start in zip(copied.rows, copied.lines, copied.starts, strict=True):
        for edge in drawn.across.cells_of(start, start + copied.length):
            piece = f"{row}.{(edge - start) // copied.unit}"
            text = str(row)
            if drawn.is_exact and copied.length > copied.unit:
                text = piece
            elif not drawn.is_exact and not pixels:
                text = "box"
            link = ""
            if drawn.is_exact:
                link = chunk_links(trace, row) if pixels else piece
            place = (drawn.down.cell_of(line), edge)
            cells.setdefault(place, Cell(text, row, title=f"row {row} of the copy", link=link))
    return cells


def _plane_notes(trace: Trace, drawn: _Plane) -> list[str]:
    axes = [axis for axis in drawn if axis.name]
    steps = [f"{axis.step} of {axis.name}" for axis in axes if not axis.exact]
    notes = []
    if steps:
        notes.append(f"Cells end at the copy's edges and, outside it, at every {' and '.join(steps)}.")
    if drawn.is_exact and drawn.across.step > 1:
        notes.append(f"A cell is {by(axis.step for axis in axes)} elements.")
    names = dim_names(trace)
    fixed = [f"{names[dim]} = {trace.row_coords[0, dim]}" for dim in _fixed_dims(trace)]
    if fixed:
        notes.append(f"The plane at {', '.join(fixed)}.")
    return notes


def _fixed_dims(trace: Trace) -> list[int]:
    """The dimensions with a single coordinate in the plane; not the channels, which are within a pixel."""
    across, down = plane_dims(trace)
    first = 0 if across == 0 else 1
    return [dim for dim in range(first, trace.tensor_map.rank) if dim not in (across, down)]


def plane_dims(trace: Trace) -> tuple[int, int | None]:
    """The dimensions that the plane shows across and down; None if it is one line.

    >>> from tilescope.tensor_map import TensorMap
    >>> plane_dims(Trace(TensorMap("bf16", (64, 8), (128,), (64, 2)), (0, 4)))
    (0, 1)
    """
    a = trace.tensor_map
    pixels = takes_pixels(trace)
    across = 1 if pixels and not a.interleave.slice_bytes else 0
    down = across + 1 if a.rank > (3 if pixels else 1) else None
    return across, down


def takes_pixels(trace: Trace) -> bool:
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
    """The names of the dimensions: their numbers, or the letters of an image."""
    a = trace.tensor_map
    letters = ("W", "H", "D")[: a.rank - 2]
    if a.interleave.slice_bytes:
        return *letters, "slice", "N"
    if a.kind != "tensor_map":
        return "C", *letters, "N"
    return tuple(f"dim {axis}" for axis in range(a.rank))
