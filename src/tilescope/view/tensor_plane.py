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
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tilescope.swizzle import CHUNK_BYTES
from tilescope.tma.tracing import Trace
from tilescope.tma.walk import row_coords
from tilescope.view.grid import Cell, Grid, Row, Tier, number_span

EXACT_COLUMNS, EXACT_ROWS = 16, 32  # drawn cell by cell up to here …
SCALED_COLUMNS, SCALED_ROWS = 10, 8  # … and beyond in about so many cells, and the copy's own: they fit 80 characters
Interval = tuple[int, int]  # the first index, and the one behind the last


@dataclass(frozen=True, slots=True)
class _Axis:
    """One direction of the plane, cut into cells at `edges`: where each begins, and where the last ends."""

    dim: int
    edges: tuple[int, ...]
    extent: int  # of the tensor
    step: int  # between edges, where the copy has none
    exact: bool

    @classmethod
    def of(cls, trace: Trace, dim: int, copied: list[Interval], unit: int, most: int, scaled: int) -> _Axis:
        """Cells of a unit for the whole tensor and the copy beside it; those of more than `most` units are `scaled` down."""
        extent = trace.tensor_map.dims[dim]
        low = min(0, copied[0][0] // unit * unit)
        high = max(extent, *(end for _, end in copied))
        units = -(-(high - low) // unit)
        if units <= most:
            return cls(dim, tuple(range(low, low + units * unit + 1, unit)), extent, unit, exact=True)
        step = unit << (-(-units // scaled) - 1).bit_length()  # a power of two: round numbers
        ticks = range(-(-low // step) * step, high, step)
        kept = (tick for tick in ticks if not any(first < tick < end for first, end in copied))
        edges = {low, 0, extent, high, *kept, *(edge for interval in copied for edge in interval)}
        return cls(dim, tuple(sorted(edges)), extent, step, exact=False)

    def cell_of(self, index: int) -> int:
        return bisect_right(self.edges, index) - 1

    def reaches(self, cell: Interval) -> bool:
        """Whether the tensor reaches into a cell."""
        return cell[1] > 0 and cell[0] < self.extent


def plane(trace: Trace) -> Grid:
    """The plane of the tensor that the copy's first row lies in, with the copy in it."""
    a = trace.tensor_map
    coords = row_coords(trace.copy)
    pixels = bool(a.interleave.slice_bytes) or a.kind != "tensor_map"
    x = 1 if pixels and not a.interleave.slice_bytes else 0
    y = x + 1 if a.rank > (3 if pixels else 1) else None
    fixed = [dim for dim in range(a.rank) if dim not in (x, y) and (dim > 0 or x == 0)]  # channels lie within a pixel
    rows = np.flatnonzero((coords[:, fixed] == coords[0, fixed]).all(axis=1))
    chunk, length = (1, 1) if pixels else (max(1, CHUNK_BYTES * 8 // a.data_type.smem_bits), a.inner_elements)
    line_of = np.zeros_like(rows) if y is None else coords[rows, y]
    lines = {
        line: (int(found.min()), int(found.max()) + length)
        for line in np.unique(line_of).tolist()
        for found in [coords[rows[line_of == line], x]]
    }
    across = _Axis.of(
        trace, x, sorted(set(lines.values())), chunk, EXACT_ROWS if pixels else EXACT_COLUMNS, SCALED_COLUMNS
    )
    down = None if y is None else _Axis.of(trace, y, _runs(lines, a.element_strides[y]), 1, EXACT_ROWS, SCALED_ROWS)
    spots: dict[tuple[int, int], tuple[str, int]] = {}  # line and column of a cell: what it says, and the row's number
    exact = across.exact and (down is None or down.exact)
    for row, line, start in zip(rows.tolist(), line_of.tolist(), coords[rows, x].tolist(), strict=True):
        for column in range(across.cell_of(start), across.cell_of(start + length - 1) + 1):
            said = f"{row}.{(across.edges[column] - start) // chunk}" if exact and length > chunk else str(row)
            place = (down.cell_of(line) if down else 0, column)
            spots.setdefault(place, (said if exact or pixels else "box", row))
    return _grid(trace, across, down, [f"{_dim_names(trace)[dim]} = {coords[0, dim]}" for dim in fixed], spots)


def _runs(lines: dict[int, Interval], stride: int) -> list[Interval]:
    """Neighbouring lines, at most `stride` apart, of which the copy covers the same."""
    runs: list[Interval] = []
    for line, covered in lines.items():
        if runs and line - runs[-1][1] < stride and lines[runs[-1][1] - 1] == covered:
            runs[-1] = runs[-1][0], line + 1
        else:
            runs.append((line, line + 1))
    return runs


def _grid(
    trace: Trace, across: _Axis, down: _Axis | None, at: list[str], spots: dict[tuple[int, int], tuple[str, int]]
) -> Grid:
    names = _dim_names(trace)
    rows = []
    for line, along in enumerate(pairwise(down.edges if down else (0, 1))):
        cells = []
        for column, cell in enumerate(pairwise(across.edges)):
            inside = across.reaches(cell) and (down is None or down.reaches(along))
            where = f"dim {across.dim}: {number_span(cell[0], cell[1] - 1, ' to ')}"
            where += f", dim {down.dim}: {number_span(along[0], along[1] - 1, ' to ')}" if down else ""
            where += "" if inside else ", outside the tensor"
            text, row = spots.get((line, column), ("·" if inside else "", None))
            if row is None:
                cells.append(Cell(text, "unused" if inside else None, title=where))
            else:
                title = f"{where}: row {row} of the copy"
                cells.append(Cell(text, row, title=title) if inside else Cell(f"({text})", "fill", title=title))
        rows.append(Row((str(along[0]) if down else "",), tuple(cells)))
    axes = [across, *([down] if down else [])]
    steps = [f"{axis.step} of {names[axis.dim]}" for axis in axes if not axis.exact]
    notes = [f"Cells end at every {' and '.join(steps)}, and at the copy's edges."] if steps else []
    if not steps and across.step > 1:
        notes.append(f"A cell is {' x '.join(str(axis.step) for axis in axes)} elements.")
    notes += [f"The plane at {', '.join(at)}."] if at else []
    headers = Tier.of(names[across.dim], across.edges[:-1])
    return Grid("The copy in the tensor", (headers,), tuple(rows), (names[down.dim] if down else "",), tuple(notes))


def _dim_names(trace: Trace) -> tuple[str, ...]:
    """What the dimensions are called: their numbers, or the letters of an image."""
    a = trace.tensor_map
    letters = ("W", "H", "D")[: a.rank - 2]
    if a.interleave.slice_bytes:
        return *letters, "slice", "N"
    if a.kind != "tensor_map":
        return "C", *letters, "N"
    return tuple(f"dim {axis}" for axis in range(a.rank))
