"""A tile cut into TMA boxes, so that every box lands where its atoms belong; and the proof that a plan brings the tile.

TMA stores the rows of a box one after another. A box is therefore one atom wide (the swizzle's span), and as
high as the atoms that lie in a row in shared memory:

    order "column"                 order "row"                     folded (one more dimension)
    ┌──┬──┐  box: span x rows      ┌──┬──┐  box: span x 8          ┌──┬──┐  box: span x rows x atoms
    │  │  │  one for each          ├──┼──┤  one for each           │  ┆  │  the whole tile: the map sees
    │  │  │  column of atoms       ├──┼──┤  atom                   │  ┆  │  the matrix as columns of spans
    └──┴──┘                        └──┴──┘                         └──┴──┘

For the proof every word of the tile in global memory (4 bytes, or a wider element) holds its own index. The emulator copies
it as planned; then the consumer's view (descriptors where it has them, else the layout) reads every element back. A store is
proven the other way round: the layout puts every element where its producer writes it, and two stores bring theirs home.

    global 0 1 2 3 …  ──▶ planned copies ──▶ shared memory ──▶ descriptor / layout reads (mn, k) ──▶ its own index?

Values that TMA pads come in pieces of sixteen, one chunk of shared memory a piece. A load leaves them dense at its start, so
that the words of a piece are those of global memory. A store takes a value from every byte, which an index does not fit: they
are random, the same ones every time.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import gcd, prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arithmetic import rounded_up
from tilescope.errors import PlanError, RuleError
from tilescope.layout import Layout, oriented
from tilescope.planner.consumers import PIECE_ELEMENTS, PLAN_ROWS
from tilescope.planner.problem import Problem
from tilescope.planner.reason import Obstacle, plan_rule
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES
from tilescope.tensor_map import TensorMap
from tilescope.tma import load, load_tiles, store
from tilescope.tma.elements import packed
from tilescope.value import Value

if TYPE_CHECKING:
    from tilescope.planner.plans import Plan

Bytes = npt.NDArray[np.uint8]
LARGEST_BOX = 256  # elements of a box in one dimension
SMALLEST_BOX = 8  # rows worth trying: below, nothing was measured
WORD_BYTES = 4


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
    in_groups = layout.atom_order == "row"
    return (width, atom_rows, columns // width, rows // atom_rows) if in_groups else (width, rows, columns // width)


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


def unfoldable(problem: Problem, layout: Layout, global_shape: tuple[int, int]) -> list[Obstacle]:
    """Why a matrix of this shape cannot be seen as columns of spans."""
    rows, columns = oriented(problem.major, *global_shape)
    group, span = layout.as_rows().tiling.atom
    wide, high = rounded_up(columns, span), rounded_up(rows, group)
    checks = (
        (wide != columns, PLAN_FOLD.broken("global_shape", "columns", elements=columns, span_elements=span, up=wide)),
        (high != rows, PLAN_FOLD.broken("global_shape", "rows", rows=rows, group_rows=group, up=high)),
    )
    return [one for broken, one in checks[: 1 if layout.atom_order == "column" else 2] if broken]


class Consumed(NamedTuple):
    """The consumer's view of a tile at address 0: where it looks for an element (mn, k), and what must be there."""

    memory: Bytes  # of the tile in global memory
    address: npt.NDArray[np.int64]
    place: npt.NDArray[np.int64]  # the same in words, or in the bytes of padded values
    expected: npt.NDArray[Any]  # the word or the byte at this place
    misplaced: npt.NDArray[np.bool_] | bool  # looked for at another byte of that word

    @classmethod
    def of(cls, plan: Plan) -> Consumed:
        """By descriptors where the consumer has them, else by the layout."""
        problem = plan.problem
        bits, smem_bits = problem.data_type.bits, problem.data_type.smem_bits
        mn, k = np.arange(problem.tile[0])[:, None], np.arange(problem.tile[1])[None, :]
        row, column = oriented(problem.major, mn, k)
        address = plan.descriptors().addresses() if problem.reads_by_descriptor else plan.layout.address(mn, k)
        if bits < smem_bits and problem.direction == "store":
            values = np.random.default_rng(0).integers(0, 1 << bits, (problem.rows, problem.columns), np.uint8)
            return cls(packed(values, bits).reshape(-1), address, address, values[row, column], False)
        if (
            bits < smem_bits and problem.reads_by_descriptor
        ):  # which counts containers: sixteen lie dense in their chunk
            address = address // CHUNK_BYTES * CHUNK_BYTES + column % PIECE_ELEMENTS * bits // 8
        shift = max(WORD_BYTES, smem_bits // 8).bit_length() - 1  # dividing arrays takes longer
        index = np.dtype(f"u{1 << shift}")
        byte = row * (problem.columns * bits // 8) + column * bits // 8
        memory = np.arange(problem.moved_bytes >> shift, dtype=index).view(np.uint8)
        misplaced = ((address ^ byte) & ((1 << shift) - 1)).astype(np.bool_)
        return cls(memory, address, address >> shift, (byte >> shift).astype(index), misplaced)


def proven(plan: Plan, consumed: Consumed | None = None) -> Plan:
    """The plan itself; PlanError, naming the first wrong element, if it does not do what it says."""
    consumed = consumed or Consumed.of(plan)
    smem = np.full(rounded_up(plan.smem_bytes, SMEM_LINE_BYTES), 0xFF, np.uint8)
    cells = smem.view(consumed.expected.dtype)
    if plan.problem.direction == "store":
        cells[consumed.place] = consumed.expected
        _prove_store(plan, consumed.memory, smem)
    elif plan.boxes is None:
        order = plan.chunk_order.reshape(-1)
        smem.reshape(-1, CHUNK_BYTES)[order >= 0] = consumed.memory.reshape(-1, CHUNK_BYTES)[order[order >= 0]]
    else:
        _load(plan, consumed.memory, smem)
    differs = (cells[consumed.place] != consumed.expected) | consumed.misplaced
    if differs.any():
        mn, k = (int(index) for index in np.argwhere(differs)[0])
        raise _disproved(plan, f"element ({mn}, {k}), read at {int(consumed.address[mn, k]):#x}")
    return plan


def _load(plan: Plan, memory: Bytes, smem: Bytes) -> None:
    """Run the planned copies; boxes that start where the swizzle's pattern does are all alike, and loaded at once."""
    tensor_map = _tile_map(plan)
    offsets = np.array([copy.smem_offset_bytes for copy in plan.copies])
    if (offsets % plan.smem_alignment_bytes).any() or (offsets % tensor_map.smem_bytes).any():
        for copy in plan.copies:
            start = copy.smem_offset_bytes
            load(tensor_map, memory, copy.coords, smem=smem[start:], smem_address=start)
        return
    numbers = np.array([copy.coords for copy in plan.copies]) // tensor_map.box
    places = smem[: len(offsets) * tensor_map.smem_bytes].reshape(-1, tensor_map.smem_bytes)
    places[offsets // tensor_map.smem_bytes] = load_tiles(tensor_map, memory)[tuple(numbers.T[::-1])]


def _prove_store(plan: Plan, memory: Bytes, smem: Bytes) -> None:
    """The first and the last store write their part of the tile, and nothing else: every byte was its complement."""
    tensor_map, before = _tile_map(plan), ~memory
    after, copies = before.copy(), {plan.copies[0], plan.copies[-1]}
    for copy in copies:
        start = copy.smem_offset_bytes
        store(tensor_map, smem[start:], after, copy.coords, smem_address=start)
    wrong = np.flatnonzero((after != memory) & (after != before))
    moved_bytes = len(copies) * prod(tensor_map.box) * plan.problem.data_type.bits // 8
    if wrong.size or (after == memory).sum() != moved_bytes:
        raise _disproved(plan, f"global byte {int(wrong[0]) if wrong.size else 0} of the tile")


def _tile_map(plan: Plan) -> TensorMap:
    """The plan's map over the tile alone, moving bits as they are (tf32 would round the indices away)."""
    assert plan.boxes is not None
    arguments = map_arguments(plan.problem, plan.containers, plan.boxes, plan.problem.tile, None)
    is_rounded = plan.problem.data_type.tma.name.startswith("tfloat32")
    return TensorMap(**arguments | ({"data_type": "uint32"} if is_rounded else {}))


# fmt: off
PLAN_PROOF = plan_rule(
    "plan-proof", "The emulated copies of a plan bring every element where its consumer reads it.",
    "tilescope's own emulator; only a mistake in the planner breaks it, so no example does", 'ts.plan((64, 64), "bf16").best', None,
    said=("swizzle {swizzle}, {order} order: wrong at {where}",
          "the emulated copies must bring every element where its consumer reads it", "Report this plan: tilescope made a mistake."),
)
# fmt: on


def _disproved(plan: Plan, where: str) -> RuleError:
    return PLAN_PROOF.broken("plan", swizzle=plan.swizzle.name, order=plan.atom_order, where=where).error(PlanError)
