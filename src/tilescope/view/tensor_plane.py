"""The box in the tensor: one plane of it, drawn where the copy reads or writes.

Small tensors are drawn exactly: a cell is 16 bytes of a row (or a pixel) and says which row.chunk of the copy it is.
Large ones are drawn to scale, and the box is a spot in them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.swizzle import CHUNK_BYTES
from tilescope.tma.tracing import Trace
from tilescope.tma.walk import row_coords
from tilescope.view.grid import Cell, Grid, Row, Tier

EXACT_COLUMNS, EXACT_ROWS = 16, 32  # drawn cell by cell up to here …
SCALED_COLUMNS, SCALED_ROWS = 12, 8  # … and beyond to scale, with about so many cells: they fit 80 characters


@dataclass(frozen=True, slots=True)
class _Axis:
    """One direction of the plane: from which index on, in which steps, how many cells."""

    dim: int
    begin: int
    step: int  # indices in one cell
    cells: int
    extent: int  # of the tensor

    @classmethod
    def of(cls, trace: Trace, dim: int, visited: npt.NDArray[np.int64], unit: int, most: int, scaled: int) -> _Axis:
        """Cells for the whole tensor and for what the copy visits outside it; more than `most` are `scaled` down."""
        extent = trace.tensor_map.dims[dim]
        low = min(0, int(visited.min()) // unit * unit)
        high = max(extent, int(visited.max()) + 1)
        units = -(-(high - low) // unit)
        scale = 1 if units <= most else 1 << (-(-units // scaled) - 1).bit_length()  # a power of two: round numbers
        step = unit * scale
        return cls(dim, low // step * step, step, -(-(high - low // step * step) // step), extent)

    def starts(self) -> range:
        return range(self.begin, self.begin + self.cells * self.step, self.step)

    def inside(self, start: int) -> bool:
        return start + self.step > 0 and start < self.extent


def plane(trace: Trace, exact: tuple[int, int] = (EXACT_COLUMNS, EXACT_ROWS)) -> Grid:
    """The plane of the tensor that the copy's first row lies in, with the copy in it; `exact` columns and rows at most."""
    most_columns, most_rows = exact
    a = trace.tensor_map
    coords = row_coords(trace.copy)
    pixels = bool(a.interleave.slice_bytes) or a.kind != "tensor_map"
    if pixels:
        first = 0 if a.interleave.slice_bytes else 1
        across = _Axis.of(trace, first, coords[:, first], 1, most_rows, SCALED_COLUMNS)
        has_height = a.rank - 2 > 1
        down = _Axis.of(trace, first + 1, coords[:, first + 1], 1, most_rows, SCALED_ROWS) if has_height else None
    else:
        chunk = max(1, CHUNK_BYTES * 8 // a.data_type.smem_bits)
        reached = np.array([trace.coords[0], trace.coords[0] + a.inner_elements - 1])
        across = _Axis.of(trace, 0, reached, chunk, most_columns, SCALED_COLUMNS)
        down = _Axis.of(trace, 1, coords[:, 1], 1, most_rows, SCALED_ROWS) if a.rank > 1 else None
    shown = {across.dim, down.dim if down else across.dim}
    fixed = [
        dim for dim in range(a.rank) if dim not in shown and (pixels is False or dim != 0 or a.interleave.slice_bytes)
    ]
    at_first = np.all(coords[:, fixed] == coords[0, fixed], axis=1) if fixed else np.ones(len(coords), np.bool_)
    rows = [(row, *coords[row].tolist()) for row in np.flatnonzero(at_first).tolist()]
    spot = _pixel_spot(trace, rows, across, down) if pixels else _element_spot(trace, rows, across, down)
    return _grid(trace, across, down, fixed, coords, spot, pixels)


class _Held(NamedTuple):
    """What a cell of the tensor has of the copy."""

    text: str
    row: int
    link: str  # the chunks of shared memory that hold it, as row.chunk


Spot = Callable[[int, int], "_Held | None"]


def chunk_links(trace: Trace, row: int) -> str:
    """The words by which cells name the chunks of a row of the copy: "3.0 3.1".

    >>> from tilescope.tensor_map import TensorMap
    >>> chunk_links(Trace(TensorMap("bf16", (64, 8), (128,), (16, 2)), (0, 0)), 1)
    '1.0 1.1'
    """
    a = trace.tensor_map
    chunks = (a.interleave.slice_bytes or a.inner_bytes) // CHUNK_BYTES
    return " ".join(f"{row}.{chunk}" for chunk in range(chunks))


def _pixel_spot(trace: Trace, rows: list[tuple[int, ...]], across: _Axis, down: _Axis | None) -> Spot:
    """What the copy has at a pixel: its row number."""
    exact = across.step == 1 and (down is None or down.step == 1)
    known: dict[tuple[int, int], int] = {}
    for row, *place in rows:
        column = (place[across.dim] - across.begin) // across.step
        line = (place[down.dim] - down.begin) // down.step if down else 0
        known.setdefault((line, column), row)

    def found(line: int, column: int) -> _Held | None:
        row = known.get((line, column))
        return None if row is None else _Held(str(row), row, chunk_links(trace, row) if exact else "")

    return found


def _element_spot(trace: Trace, rows: list[tuple[int, ...]], across: _Axis, down: _Axis | None) -> Spot:
    """What the copy has at a chunk of the tensor: row.chunk, or just the row where cells are larger."""
    a = trace.tensor_map
    chunk = max(1, CHUNK_BYTES * 8 // a.data_type.smem_bits)
    by_line: dict[int, int] = {}
    for row, *place in rows:
        by_line.setdefault((place[down.dim] - down.begin) // down.step if down else 0, row)
    exact = across.step == chunk and (down is None or down.step == 1)
    first, end = trace.coords[0], trace.coords[0] + a.inner_elements

    def found(line: int, column: int) -> _Held | None:
        start = across.begin + column * across.step
        row = by_line.get(line)
        if row is None or start >= end or start + across.step <= first:
            return None
        if not exact:
            return _Held("", row, "")
        link = f"{row}.{(start - first) // chunk}"  # a box starts on 16 bytes, as the cells do
        return _Held(link if a.inner_elements > chunk else str(row), row, link)

    return found


def _grid(
    trace: Trace,
    across: _Axis,
    down: _Axis | None,
    fixed: list[int],
    coords: npt.NDArray[np.int64],
    spot: Spot,
    pixels: bool,
) -> Grid:
    rows = []
    for line, start_down in enumerate(down.starts() if down else range(1)):
        cells = []
        for column, start_across in enumerate(across.starts()):
            inside = across.inside(start_across) and (down is None or down.inside(start_down))
            where = f"dim {across.dim}: {_range(start_across, across)}"
            where += f", dim {down.dim}: {_range(start_down, down)}" if down else ""
            where += "" if inside else ", outside the tensor"
            held = spot(line, column)
            if held is None:
                cells.append(Cell("·" if inside else "", "unused" if inside else None, title=where))
                continue
            text, title = held.text or "box", f"{where}: row {held.row} of the copy"
            shown = text if inside else f"({text})"
            cells.append(Cell(shown, held.row if inside else "fill", title=title, link=held.link))
        rows.append(Row((str(start_down) if down else "",), tuple(cells)))
    names = dim_names(trace)
    headers = Tier.of(names[across.dim], across.starts())
    notes = []
    if across.step * (down.step if down else 1) > 1 and (pixels or across.step > 1):
        size = f"{across.step}" + (f" x {down.step}" if down else "")
        notes.append(f"A cell is {size} {'pixels' if pixels else 'elements'}.")
    if fixed:
        at = ", ".join(f"{names[dim]} = {coords[0, dim]}" for dim in fixed)
        notes.append(f"The plane at {at}.")
    return Grid("The copy in the tensor", (headers,), tuple(rows), (names[down.dim] if down else "",), tuple(notes))


def dim_names(trace: Trace) -> tuple[str, ...]:
    """What the dimensions are called: their numbers, or the letters of an image."""
    a = trace.tensor_map
    letters = ("W", "H", "D")[: a.rank - 2]
    if a.interleave.slice_bytes:
        return *letters, "slice", "N"
    if a.kind != "tensor_map":
        return "C", *letters, "N"
    return tuple(f"dim {axis}" for axis in range(a.rank))


def _range(start: int, axis: _Axis) -> str:
    return str(start) if axis.step == 1 else f"{start} to {start + axis.step - 1}"
