"""The box in the tensor: one plane of it, drawn where the copy reads or writes.

Small tensors are drawn exactly: a cell is 16 bytes of a row (or a pixel) and says which row.chunk of the copy it is.
In large ones cells end at round numbers, and where the copy begins and ends, so that no cell is half copied:

    dim 1 dim 0   0    128   192   512  1024 …         a box of 64 x 64 at (128, 256)
        0         ·     ·     ·     ·     ·
      256         ·    box    ·     ·     ·
      320         ·     ·     ·     ·     ·
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tilescope.errors import by, ceil_div
from tilescope.swizzle import CHUNK_BYTES
from tilescope.tma.tracing import Trace
from tilescope.tma.walk import row_coords
from tilescope.view.grid import Cell, Grid, number_span

EXACT_COLUMNS, EXACT_ROWS = 16, 32  # drawn cell by cell up to here …
_SCALED_COLUMNS, _SCALED_ROWS = 10, 8  # … and beyond in about so many cells, and the copy's own: they fit 80 characters
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
    def of(cls, name: str, dim: int, extent: int, copied: list[Interval], unit: int, most: int, scaled: int) -> _Axis:
        """Cells of a unit for the whole tensor and the copy beside it; those of more than `most` units are `scaled` down."""
        low = min(0, copied[0][0] // unit * unit)
        high = max(extent, *(end for _, end in copied))
        units = ceil_div(high - low, unit)
        if units <= most:
            return cls(name, dim, tuple(range(low, low + units * unit + 1, unit)), extent, unit)
        step = unit << (ceil_div(units, scaled) - 1).bit_length()  # a power of two: round numbers
        ticks = range(ceil_div(low, step) * step, high, step)
        kept = (tick for tick in ticks if not any(first < tick < end for first, end in copied))
        edges = {low, 0, extent, high, *kept, *(edge for interval in copied for edge in interval)}
        return cls(name, dim, tuple(sorted(edges)), extent, step, exact=False)

    def cell_of(self, index: int) -> int:
        return self.edges[bisect_right(self.edges, index) - 1]

    def reaches(self, cell: Interval) -> bool:
        """Whether the tensor reaches into a cell."""
        return cell[1] > 0 and cell[0] < self.extent

    def where(self, cell: Interval) -> str:
        return f"dim {self.dim}: {number_span(cell[0], cell[1] - 1, ' to ')}"


def plane(trace: Trace, exact: tuple[int, int] = (EXACT_COLUMNS, EXACT_ROWS)) -> Grid:
    """The plane of the tensor that the copy's first row lies in, with the copy in it.

    Up to `exact` columns and rows are drawn cell by cell.
    """
    most_columns, most_rows = exact
    a, coords, names = trace.tensor_map, row_coords(trace.copy), dim_names(trace)
    pixels = bool(a.interleave.slice_bytes) or a.kind != "tensor_map"
    x = 1 if pixels and not a.interleave.slice_bytes else 0
    y = x + 1 if a.rank > (3 if pixels else 1) else None
    fixed = [dim for dim in range(a.rank) if dim not in (x, y) and (dim > 0 or x == 0)]  # channels lie within a pixel
    rows = np.flatnonzero((coords[:, fixed] == coords[0, fixed]).all(axis=1))
    unit, length = (1, 1) if pixels else (max(1, CHUNK_BYTES * 8 // a.data_type.smem_bits), a.inner_elements)
    line_of = np.zeros_like(rows) if y is None else coords[rows, y]
    starts = coords[rows, x]
    lines = {
        line: (int(starts[line_of == line].min()), int(starts[line_of == line].max()) + length)
        for line in np.unique(line_of).tolist()
    }
    across = _Axis.of(
        names[x],
        x,
        a.dims[x],
        sorted(set(lines.values())),
        unit,
        most_rows if pixels else most_columns,
        _SCALED_COLUMNS,
    )
    down = _Axis("", -1)
    if y is not None:
        down = _Axis.of(names[y], y, a.dims[y], _runs(lines, a.element_strides[y]), 1, most_rows, _SCALED_ROWS)
    is_exact = across.exact and down.exact
    spots: dict[
        Interval, tuple[int, str, str]
    ] = {}  # by first line and column of the cell: row of the copy, text, link
    for row, line, start in zip(rows.tolist(), line_of.tolist(), starts.tolist(), strict=True):
        reached = (edge for edge in across.edges if across.cell_of(start) <= edge < start + length)
        for edge in reached:
            piece = f"{row}.{(edge - start) // unit}"
            text = piece if is_exact and length > unit else str(row) if is_exact or pixels else "box"
            link = (chunk_links(trace, row) if pixels else piece) if is_exact else ""
            spots.setdefault((down.cell_of(line), edge), (row, text, link))

    def cell(along: Interval, column: Interval) -> Cell:
        inside = across.reaches(column) and down.reaches(along)
        where = across.where(column) + (f", {down.where(along)}" if down.name else "")
        where += "" if inside else ", outside the tensor"
        spot = spots.get((along[0], column[0]))
        if spot is None:
            return Cell("·" if inside else "", "unused" if inside else None, title=where)
        row, text, link = spot
        title = f"{where}: row {row} of the copy"
        return Cell(text if inside else f"({text})", row if inside else "fill", title=title, link=link)

    axes = [across, down] if down.name else [across]
    steps = " and ".join(f"{axis.step} of {axis.name}" for axis in axes if not axis.exact)
    notes = [f"Cells end at every {steps}, and at the copy's edges."] if steps else []
    if is_exact and across.step > 1:
        notes.append(f"A cell is {by(axis.step for axis in axes)} elements.")
    if fixed:
        notes.append(f"The plane at {', '.join(f'{names[dim]} = {coords[0, dim]}' for dim in fixed)}.")
    labels = {along: str(along[0]) if down.name else "" for along in pairwise(down.edges)}
    columns = {column: column[0] for column in pairwise(across.edges)}
    return Grid.of("The copy in the tensor", (down.name, across.name), labels, columns, cell, notes=notes)


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


def _runs(lines: dict[int, Interval], stride: int) -> list[Interval]:
    """Neighbouring lines, at most `stride` apart, of which the copy covers the same."""
    runs: list[Interval] = []
    for line, covered in lines.items():
        if runs and line - runs[-1][1] < stride and lines[runs[-1][1] - 1] == covered:
            runs[-1] = runs[-1][0], line + 1
        else:
            runs.append((line, line + 1))
    return runs


def dim_names(trace: Trace) -> tuple[str, ...]:
    """What the dimensions are called: their numbers, or the letters of an image."""
    a = trace.tensor_map
    letters = ("W", "H", "D")[: a.rank - 2]
    if a.interleave.slice_bytes:
        return *letters, "slice", "N"
    if a.kind != "tensor_map":
        return "C", *letters, "N"
    return tuple(f"dim {axis}" for axis in range(a.rank))
