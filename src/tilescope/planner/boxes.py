"""A tile cut into TMA boxes, so that each box lands where its atoms belong.

TMA stores the rows of a box one after another. A box is therefore one atom wide (the swizzle's span), and as
high as the atoms that follow each other in shared memory:

    order "column"                 order "row"                     folded (one more dimension)
    ┌──┬──┐  box: span x rows      ┌──┬──┐  box: span x 8          ┌──┬──┐  box: span x rows x atoms
    │  │  │  one for each          ├──┼──┤  one for each           │  ┆  │  the whole tile: the map sees
    │  │  │  column of atoms       ├──┼──┤  atom                   │  ┆  │  the matrix as columns of spans
    └──┴──┘                        └──┴──┘                         └──┴──┘
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilescope.errors import Violation
from tilescope.layout import Layout
from tilescope.planner.problem import Problem
from tilescope.tensor_map import TensorMap
from tilescope.tensor_map.option import L2PromotionName
from tilescope.value import Value

LARGEST_BOX = 256  # elements of a box in one dimension


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
        rows = 1
        for extent in self.box[1:]:
            rows *= extent
        return rows


def split(layout: Layout) -> tuple[Boxes, ...]:
    """The ways to cut the tile into boxes of a rank-2 map: the tallest boxes, and boxes half as tall.

    >>> column = Layout((64, 32), 16, atom=(8, 16), swizzle="32B")
    >>> [(boxes.box, len(boxes.copies)) for boxes in split(column)]
    [((16, 64), 2), ((16, 32), 4)]
    >>> row = Layout((64, 32), 16, atom=(8, 16), atom_order="row", swizzle="32B")
    >>> [(boxes.box, len(boxes.copies)) for boxes in split(row)]
    [((16, 8), 16)]
    """
    atom_rows, width = layout.atom
    run = layout.shape[0] if layout.atom_order == "column" else atom_rows  # rows that follow each other
    tallest = max(_divisors(run, atom_rows if run > atom_rows else 1))
    heights = [tallest]
    if tallest % (2 * atom_rows) == 0:
        heights.append(tallest // 2)
    return tuple(
        Boxes(
            (width, height),
            tuple(
                PlannedCopy((column, row), layout.logical(row, column) - layout.start)
                for column in range(0, layout.shape[1], width)
                for row in range(0, layout.shape[0], height)
            ),
            folded=False,
        )
        for height in heights
    )


def _divisors(run: int, step: int) -> list[int]:
    """Heights that cut `run` rows into equal boxes of at most 256 rows, in multiples of `step` where possible."""
    whole = [rows for rows in range(step, min(run, LARGEST_BOX) + 1, step) if run % rows == 0]
    return whole or [1]


def fold(layout: Layout) -> Boxes | None:
    """The whole tile as one box of a rank-3 or rank-4 view; None where the box would be too large.

    >>> fold(Layout((64, 32), 16, atom=(8, 16), swizzle="32B")).box
    (16, 64, 2)
    >>> fold(Layout((64, 32), 16, atom=(8, 16), atom_order="row", swizzle="32B")).box
    (16, 8, 2, 8)
    """
    rows, columns = layout.shape
    atom_rows, width = layout.atom
    box = (width, rows, columns // width)
    if layout.atom_order == "row":
        box = (width, atom_rows, columns // width, rows // atom_rows)  # type: ignore[assignment]
    if max(box) > LARGEST_BOX:
        return None
    return Boxes(box, (PlannedCopy((0,) * len(box), 0),), folded=True)


def map_arguments(
    problem: Problem, layout: Layout, boxes: Boxes, global_shape: tuple[int, int], strides_bytes: Any
) -> dict[str, Any]:
    """Arguments of the tensor map that these boxes are copied through."""
    mn, k = global_shape
    columns, rows = (k, mn) if problem.major == "K" else (mn, k)
    bits = problem.data_type.bits
    pitch = strides_bytes[0] if strides_bytes else columns * bits // 8
    arguments: dict[str, Any] = {
        "data_type": problem.data_type, "box": boxes.box, "swizzle": layout.swizzle, "arch": problem.arch,
        "dims": (columns, rows), "strides_bytes": (pitch,),
    }  # fmt: skip
    if boxes.folded:
        width, atom_rows = boxes.box[0], layout.atom[0]
        span = width * bits // 8
        if layout.atom_order == "column":
            arguments |= {"dims": (width, rows, columns // width), "strides_bytes": (pitch, span)}
        else:
            arguments |= {
                "dims": (width, atom_rows, columns // width, rows // atom_rows),
                "strides_bytes": (pitch, span, atom_rows * pitch),
            }
    return arguments


def unfoldable(problem: Problem, layout: Layout, global_shape: tuple[int, int]) -> list[Violation]:
    """Why a matrix of this shape cannot be seen as columns of spans."""
    mn, k = global_shape
    columns, rows = (k, mn) if problem.major == "K" else (mn, k)
    problems = []
    if columns % layout.atom[1]:
        problems.append(Violation(
            "plan-fold", "error", "global_shape", f"{columns} contiguous elements",
            f"a folded map sees them as columns of {layout.atom[1]}", "Pad the matrix, or use the plan that is not folded.",
        ))  # fmt: skip
    if layout.atom_order == "row" and rows % layout.atom[0]:
        problems.append(Violation(
            "plan-fold", "error", "global_shape", f"{rows} rows", f"a map folded in row order sees groups of {layout.atom[0]}",
            "Pad the matrix, or use column order.",
        ))  # fmt: skip
    return problems


def built_map(arguments: dict[str, Any], address: int, l2_promotion: L2PromotionName) -> TensorMap:
    """The tensor map of a plan at a device address."""
    return TensorMap(**arguments, address=address, l2_promotion=l2_promotion)
