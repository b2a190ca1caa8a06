"""A tile cut into TMA boxes, so that every box lands where its atoms belong.

TMA stores the rows of a box one after another. A box is therefore one atom wide (the swizzle's span), and as
high as the atoms that lie in a row in shared memory:

    order "column"                 order "row"                     folded (one more dimension)
    ┌──┬──┐  box: span x rows      ┌──┬──┐  box: span x 8          ┌──┬──┐  box: span x rows x atoms
    │  │  │  one for each          ├──┼──┤  one for each           │  ┆  │  the whole tile: the map sees
    │  │  │  column of atoms       ├──┼──┤  atom                   │  ┆  │  the matrix as columns of spans
    └──┴──┘                        └──┴──┘                         └──┴──┘
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import gcd, prod
from typing import Any

import numpy as np

from tilescope.errors import Violation
from tilescope.layout import Layout, oriented
from tilescope.planner.problem import Problem
from tilescope.planner.refusal import refusal
from tilescope.swizzle import SMEM_LINE_BYTES
from tilescope.value import Value

LARGEST_BOX = 256  # elements of a box in one dimension
SMALLEST_BOX = 8  # rows worth trying: below, nothing was measured


@dataclass(frozen=True, slots=True)
class PlannedCopy(Value):
    """One copy of a plan: where its box starts in the tile, and where it lands.

    `coords` are in the driver's order and relative to the tile's own corner.
    """

    coords: tuple[int, ...]
    smem_offset_bytes: int


@dataclass(frozen=True, slots=True)
class Boxes(Value):
    """A tile as boxes: their extent and the copies that bring them."""

    box: tuple[int, ...]  # driver order, elements
    copies: tuple[PlannedCopy, ...]
    folded: bool

    @property
    def rows(self) -> int:
        """Rows of one box in shared memory."""
        return prod(self.box[1:])


def split(layout: Layout) -> tuple[Boxes, ...]:
    """The ways to cut the tile into boxes of a rank-2 map: the tallest boxes, and boxes half as tall.

    Shorter ones move the same bytes with more copies: in the measurements they were never faster.

    A box starts on a line of 128 bytes; the swizzle follows the absolute address, so it may start within a pattern.

    >>> column = Layout((64, 32), 16, atom=(8, 16), swizzle="32B")
    >>> [(boxes.box, len(boxes.copies)) for boxes in split(column)]
    [((16, 64), 2), ((16, 32), 4)]
    >>> row = Layout((64, 32), 16, atom=(8, 16), atom_order="row", swizzle="32B")
    >>> [(boxes.box, len(boxes.copies)) for boxes in split(row)]
    [((16, 8), 16)]
    >>> split(Layout((296, 64), 16, atom=(8, 64), swizzle="128B"))[0].box  # at most 256 rows
    (64, 148)
    """
    tile = layout.as_rows().tiling
    atom_rows, width = tile.atom
    run = tile.shape[0] if tile.atom_order == "column" else atom_rows  # rows without a gap in shared memory
    heights = _heights(run, tile.pitch_bytes)
    half = heights[0] // 2
    starts_patterns = half * tile.pitch_bytes % layout.swizzle.repeat_bytes == 0
    heights = [heights[0], half] if half in heights and half >= SMALLEST_BOX and starts_patterns else heights[:1]
    return tuple(Boxes((width, height), _grid(layout, width, height), folded=False) for height in heights)


def _grid(layout: Layout, width: int, height: int) -> tuple[PlannedCopy, ...]:
    """The copies of all boxes, one column of the tile after the other."""
    tile = layout.as_rows()
    columns, rows = np.arange(0, tile.shape[1], width), np.arange(0, tile.shape[0], height)
    offsets = (tile.logical(rows[None, :], columns[:, None]) - layout.start).reshape(-1).tolist()
    corners = product(columns.tolist(), rows.tolist())
    return tuple(PlannedCopy(corner, offset) for corner, offset in zip(corners, offsets, strict=True))


def _heights(run: int, pitch_bytes: int) -> list[int]:
    """Heights of boxes that cut `run` rows evenly, every box on a line of its own, the tallest first.

    Where nothing fits, the nearest: the rules then say what is wrong with it.
    """
    even = [rows for rows in range(min(run, LARGEST_BOX), 0, -1) if run % rows == 0]
    return [rows for rows in even if rows == run or rows * pitch_bytes % SMEM_LINE_BYTES == 0] or even


def fold(layout: Layout) -> Boxes:
    """The whole tile as one box of a rank-3 or rank-4 view.

    >>> fold(Layout((64, 32), 16, atom=(8, 16), swizzle="32B")).box
    (16, 64, 2)
    >>> fold(Layout((64, 32), 16, atom=(8, 16), atom_order="row", swizzle="32B")).box
    (16, 8, 2, 8)
    """
    box = _folded(layout, *layout.as_rows().tiling.shape)
    return Boxes(box, (PlannedCopy((0,) * len(box), 0),), folded=True)


def _folded(layout: Layout, rows: int, columns: int) -> tuple[int, ...]:
    """The extents of a matrix seen as columns of spans; in row order also as groups of rows."""
    atom_rows, width = layout.as_rows().tiling.atom
    if layout.atom_order == "column":
        return width, rows, columns // width
    return width, atom_rows, columns // width, rows // atom_rows


def misplaced(layout: Layout, boxes: Boxes) -> list[Violation]:
    """Why the boxes cannot lie one behind the other: every box starts on a line of 128 bytes.

    >>> layout = Layout((3, 320), 8, atom=(3, 80))
    >>> [str(problem) for problem in misplaced(layout, split(layout)[0])]
    ['plan-rows: 3 rows of 80 bytes, 240 bytes a box; the next box starts on a line of 128 bytes. Use 8 rows.']
    """
    if not any(copy.smem_offset_bytes % SMEM_LINE_BYTES for copy in boxes.copies):
        return []
    tile, height = layout.as_rows().tiling, boxes.box[1]
    rows, pitch = tile.shape[0], tile.pitch_bytes
    step = SMEM_LINE_BYTES // gcd(SMEM_LINE_BYTES, pitch)  # rows that fill whole lines
    up = (rows // step + 1) * step
    order = None if layout.atom_order == "column" else "column"
    return [refusal(
        "plan-rows", "atom_order" if order else "tile", rows=height, pitch_bytes=pitch, box_bytes=height * pitch,
        up=None if order else up, order=order,
    )]  # fmt: skip


def map_arguments(
    problem: Problem, layout: Layout, boxes: Boxes, global_shape: tuple[int, int], strides_bytes: Any
) -> dict[str, Any]:
    """Arguments of the tensor map that these boxes are copied through."""
    rows, columns = oriented(problem.major, *global_shape)
    bits, (atom_rows, width) = problem.data_type.bits, layout.as_rows().tiling.atom
    pitch = strides_bytes[0] if strides_bytes else columns * bits // 8
    dims = _folded(layout, rows, columns) if boxes.folded else (columns, rows)
    strides = (pitch, width * bits // 8, atom_rows * pitch)
    described = {"data_type": problem.data_type, "swizzle": layout.swizzle, "arch": problem.arch}
    return described | {"box": boxes.box, "dims": dims, "strides_bytes": strides[: len(dims) - 1]}


def unfoldable(problem: Problem, layout: Layout, global_shape: tuple[int, int]) -> Iterator[Violation]:
    """Why a matrix of this shape cannot be seen as columns of spans."""
    rows, columns = oriented(problem.major, *global_shape)
    atom_rows, width = layout.as_rows().tiling.atom
    if columns % width:
        up = -(-columns // width) * width
        yield refusal("plan-fold", "global_shape", elements=columns, span_elements=width, up=up)
    if layout.atom_order == "row" and rows % atom_rows:
        up = -(-rows // atom_rows) * atom_rows
        yield refusal("plan-fold", "global_shape", "rows", rows=rows, group_rows=atom_rows, up=up)
