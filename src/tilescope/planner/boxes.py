"""A tile cut into TMA boxes, so that every box lands where its atoms belong.

TMA stores the rows of a box one after another. A box is therefore one atom wide (the swizzle's span), and as high as
the atoms that follow one another in shared memory:

    order "column"                 order "row"                     folded (one more dimension)
    ┌──┬──┐  box: span x rows      ┌──┬──┐  box: span x 8          ┌──┬──┐  box: span x rows x atoms
    │  │  │  one for each          ├──┼──┤  one for each           │  ┆  │  the whole tile: the map sees
    │  │  │  column of atoms       ├──┼──┤  atom                   │  ┆  │  the matrix as columns of spans
    └──┴──┘                        └──┴──┘                         └──┴──┘
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import gcd, prod
from typing import TypedDict

import numpy as np

from tilescope.arch import Arch
from tilescope.arithmetic import rounded_up
from tilescope.data_type import DataType
from tilescope.layout import Layout, oriented
from tilescope.planner.consumers import BOX_OFF_LINE_IN_ROW_ORDER, PLAN_ROWS
from tilescope.planner.obstacle import Broken, broken
from tilescope.planner.problem import Problem
from tilescope.rule import rule
from tilescope.swizzle import SMEM_LINE_BYTES, Swizzle
from tilescope.tensor_map.limits import LARGEST_BOX_EXTENT
from tilescope.value import Value

SMALLEST_BOX_ROWS = 8  # worth trying: below, nothing was measured


@dataclass(frozen=True, slots=True)
class PlannedCopy(Value):
    """One copy of a plan: where its box starts in the tile, and where it lands.

    `coords` are in the driver's order and relative to the tile's own corner.
    """

    coords: tuple[int, ...]
    smem_offset_bytes: int


@dataclass(frozen=True, slots=True)
class Boxes(Value):
    """A tile as boxes: their extent and the copies that load them."""

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
    heights = _even_heights(run, tile.pitch_bytes)
    tallest = heights[0]
    half = tallest // 2
    starts_patterns = half * tile.pitch_bytes % layout.swizzle.repeat_bytes == 0
    tried = [tallest]
    if half in heights and half >= SMALLEST_BOX_ROWS and starts_patterns:
        tried.append(half)
    return tuple(Boxes((width, height), _grid(layout, width, height), folded=False) for height in tried)


def cut_into_boxes(layout: Layout, rows: int) -> Boxes:
    """The tile in boxes of that many rows."""
    width = layout.as_rows().tiling.atom[1]
    return Boxes((width, rows), _grid(layout, width, rows), folded=False)


def _even_heights(run: int, pitch_bytes: int) -> list[int]:
    """Rows of boxes that divide a run of rows, the largest first, so that every box starts on a new line.

    If no such size exists, all sizes that divide the run: the rules then report what is wrong with them.
    """
    even = [rows for rows in range(min(run, LARGEST_BOX_EXTENT), 0, -1) if run % rows == 0]
    on_lines = [rows for rows in even if rows == run or rows * pitch_bytes % SMEM_LINE_BYTES == 0]
    return on_lines or even


def _grid(layout: Layout, width: int, height: int) -> tuple[PlannedCopy, ...]:
    """The copies of all boxes, one column of the tile after the other."""
    tile = layout.as_rows()
    columns = np.arange(0, tile.shape[1], width)
    rows = np.arange(0, tile.shape[0], height)
    offsets = (tile.logical(rows[None, :], columns[:, None]) - layout.start).reshape(-1).tolist()
    return tuple(map(PlannedCopy, product(columns.tolist(), rows.tolist()), offsets))


def fold(layout: Layout) -> Boxes:
    """The whole tile as one box of a rank-3 or rank-4 view.

    >>> fold(Layout((64, 32), 16, atom=(8, 16), swizzle="32B")).box
    (16, 64, 2)
    >>> fold(Layout((64, 32), 16, atom=(8, 16), atom_order="row", swizzle="32B")).box
    (16, 8, 2, 8)
    """
    box = _fold_extents(layout, *layout.as_rows().tiling.shape)
    return Boxes(box, (PlannedCopy((0,) * len(box), 0),), folded=True)


def _fold_extents(layout: Layout, rows: int, columns: int) -> tuple[int, ...]:
    """The extents of a matrix seen as columns of spans; in row order also as groups of rows."""
    atom_rows, width = layout.as_rows().tiling.atom
    if layout.atom_order == "row":
        return width, atom_rows, columns // width, rows // atom_rows
    return width, rows, columns // width


def find_misplaced_boxes(layout: Layout, boxes: Boxes) -> list[Broken]:
    """Why the boxes cannot follow one another: every box starts on a line of 128 bytes.

    >>> layout = Layout((3, 320), 8, atom=(3, 80))
    >>> [found] = find_misplaced_boxes(layout, split(layout)[0])
    >>> found.facts["box_bytes"], found.facts["up"]
    (240, 8)
    """
    if not any(copy.smem_offset_bytes % SMEM_LINE_BYTES for copy in boxes.copies):
        return []
    tile = layout.as_rows().tiling
    rows = boxes.box[1]
    pitch_bytes = tile.pitch_bytes
    box_bytes = rows * pitch_bytes
    if layout.atom_order == "row":
        return [
            broken(BOX_OFF_LINE_IN_ROW_ORDER, order="column", rows=rows, pitch_bytes=pitch_bytes, box_bytes=box_bytes)
        ]
    step = SMEM_LINE_BYTES // gcd(SMEM_LINE_BYTES, pitch_bytes)  # rows that fill whole lines
    up = (tile.shape[0] // step + 1) * step
    return [broken(PLAN_ROWS, up=up, rows=rows, pitch_bytes=pitch_bytes, box_bytes=box_bytes)]


class BoxMapArguments(TypedDict):
    """Arguments of the tensor map that boxes are copied through."""

    data_type: DataType
    swizzle: Swizzle
    arch: Arch
    box: tuple[int, ...]
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]


def map_arguments(
    problem: Problem,
    layout: Layout,
    boxes: Boxes,
    global_shape: tuple[int, int],
    strides_bytes: tuple[int, ...] | None,
) -> BoxMapArguments:
    """Arguments of the tensor map that these boxes are copied through."""
    rows, columns = oriented(problem.major, *global_shape)
    atom_rows, width = layout.as_rows().tiling.atom
    bits = problem.data_type.bits
    pitch = strides_bytes[0] if strides_bytes else columns * bits // 8
    dims = _fold_extents(layout, rows, columns) if boxes.folded else (columns, rows)
    strides = (pitch, width * bits // 8, atom_rows * pitch)
    return {
        "data_type": problem.data_type,
        "swizzle": layout.swizzle,
        "arch": problem.arch,
        "box": boxes.box,
        "dims": dims,
        "strides_bytes": strides[: len(dims) - 1],
    }


PLAN_FOLD = rule(
    "plan-fold",
    "A folded map divides the matrix into whole columns of one swizzle span, in row order also into whole groups of "
    "rows.",
    argument="global_shape",
    found="{elements} contiguous elements",
    limit="a folded map sees them as columns of {span_elements}",
    fix="Pad the rows to {up} elements, or use the plan that is not folded.",
    source="the dims of the folded map",
    passing=(
        '[v for refused in ts.plan((64, 128), "bf16", fold=True, global_shape=(512, 192)).refused '
        "for v in refused.violations]"
    ),
    failing=(
        '[v for refused in ts.plan((64, 128), "bf16", fold=True, global_shape=(512, 200)).refused '
        "for v in refused.violations]"
    ),
)
FOLDED_ROWS = PLAN_FOLD.worded(
    found="{rows} rows",
    limit="a map folded in row order sees groups of {group_rows}",
    fix="Pad the matrix to {up} rows, or use column order.",
)


def unfoldable(problem: Problem, layout: Layout, global_shape: tuple[int, int]) -> list[Broken]:
    """Why a matrix of this shape cannot be seen as columns of spans."""
    rows, columns = oriented(problem.major, *global_shape)
    group, span = layout.as_rows().tiling.atom
    obstacles = []
    if columns % span:
        obstacles.append(broken(PLAN_FOLD, elements=columns, span_elements=span, up=rounded_up(columns, span)))
    if layout.atom_order == "row" and rows % group:
        obstacles.append(broken(FOLDED_ROWS, rows=rows, group_rows=group, up=rounded_up(rows, group)))
    return obstacles
