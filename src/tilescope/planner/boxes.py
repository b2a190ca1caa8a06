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

from tilescope.errors import ceil_div
from tilescope.layout import Layout, oriented
from tilescope.planner.problem import Problem
from tilescope.planner.reason import Obstacle, plan_rule
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
    even = [rows for rows in range(min(run, LARGEST_BOX), 0, -1) if run % rows == 0]
    # every box on a line of its own; where nothing fits, the nearest: the rules then say what is wrong with it
    heights = [rows for rows in even if rows == run or rows * tile.pitch_bytes % SMEM_LINE_BYTES == 0] or even
    half = heights[0] // 2
    starts_patterns = half * tile.pitch_bytes % layout.swizzle.repeat_bytes == 0
    tried = [heights[0], half] if half in heights and half >= SMALLEST_BOX and starts_patterns else heights[:1]
    return tuple(Boxes((width, height), _grid(layout, width, height), folded=False) for height in tried)


def _grid(layout: Layout, width: int, height: int) -> tuple[PlannedCopy, ...]:
    """The copies of all boxes, one column of the tile after the other."""
    tile = layout.as_rows()
    columns, rows = np.arange(0, tile.shape[1], width), np.arange(0, tile.shape[0], height)
    offsets = (tile.logical(rows[None, :], columns[:, None]) - layout.start).reshape(-1).tolist()
    return tuple(map(PlannedCopy, product(columns.tolist(), rows.tolist()), offsets))


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


# fmt: off
PLAN_ROWS = plan_rule(
    "plan-rows", "The rows of a tile are a whole number of its boxes and atoms, and every box starts on a line of 128 bytes.",
    "measured on an H200: a shared address off 128 bytes faults",
    'ts.plan((8, 320), "u8", consumer="ld.b32 rows").best', 'ts.plan((3, 320), "u8", consumer="ld.b32 rows").best', "measured",
    said=("{rows:row} of {pitch_bytes} bytes, {box_bytes} bytes a box", "the next box starts on a line of 128 bytes",
          "Use [{up} rows][{order} order]."),
    atoms=("{extent} rows in row order",
           "atoms of swizzle {swizzle} are {atom_rows} rows of {atom_elements} elements of {element_bits} bits",
           "Use {up}[, or {other}]."),
)
# fmt: on


def misplaced(layout: Layout, boxes: Boxes) -> list[Obstacle]:
    """Why the boxes cannot lie one behind the other: every box starts on a line of 128 bytes.

    >>> layout = Layout((3, 320), 8, atom=(3, 80))
    >>> [broken] = misplaced(layout, split(layout)[0])
    >>> broken.values["box_bytes"], broken.values["up"]
    (240, 8)
    """
    if not any(copy.smem_offset_bytes % SMEM_LINE_BYTES for copy in boxes.copies):
        return []
    tile, height = layout.as_rows().tiling, boxes.box[1]
    step = SMEM_LINE_BYTES // gcd(SMEM_LINE_BYTES, tile.pitch_bytes)  # rows that fill whole lines
    told = {"rows": height, "pitch_bytes": tile.pitch_bytes, "box_bytes": height * tile.pitch_bytes}
    if layout.atom_order == "column":
        return [PLAN_ROWS.broken("tile", up=(tile.shape[0] // step + 1) * step, **told)]
    return [PLAN_ROWS.broken("atom_order", order="column", **told)]


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


# fmt: off
PLAN_FOLD = plan_rule(
    "plan-fold", "A folded map sees the matrix as columns of one swizzle span, in row order also as groups of rows: whole ones.",
    "the dims of the folded map",
    '[v for refused in ts.plan((64, 128), "bf16", fold=True, global_shape=(512, 192)).refused for v in refused.violations]',
    '[v for refused in ts.plan((64, 128), "bf16", fold=True, global_shape=(512, 200)).refused for v in refused.violations]',
    columns=("{elements} contiguous elements", "a folded map sees them as columns of {span_elements}",
             "Pad the rows to {up} elements, or use the plan that is not folded."),
    rows=("{rows} rows", "a map folded in row order sees groups of {group_rows}", "Pad the matrix to {up} rows, or use column order."),
)
# fmt: on


def unfoldable(problem: Problem, layout: Layout, global_shape: tuple[int, int]) -> Iterator[Obstacle]:
    """Why a matrix of this shape cannot be seen as columns of spans."""
    rows, columns = oriented(problem.major, *global_shape)
    group, span = layout.as_rows().tiling.atom
    if columns % span:
        up = ceil_div(columns, span) * span
        yield PLAN_FOLD.broken("global_shape", "columns", elements=columns, span_elements=span, up=up)
    if layout.atom_order == "row" and rows % group:
        up = ceil_div(rows, group) * group
        yield PLAN_FOLD.broken("global_shape", "rows", rows=rows, group_rows=group, up=up)
