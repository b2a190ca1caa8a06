"""The proof of a plan: words that know their own place go through the planned copies and come out right.

Every word of the tile in global memory (4 bytes, or a wider element) holds its own index. The emulator copies it as planned; then the
consumer's view (descriptors where it has them, else the layout) reads every element back. A store is proven the
other way round: the layout puts every element where its producer writes it, and two stores bring theirs home.

    global 0 1 2 3 …  ──▶ planned copies ──▶ shared memory ──▶ descriptor / layout reads (mn, k) ──▶ its own index?

Values that TMA pads come in pieces of sixteen, one chunk of shared memory a piece. A load is proven by the first word of every
piece; a store takes a value from every byte, which an index does not fit: they are random, the same ones every time.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.errors import PlanError
from tilescope.layout import Layout, oriented
from tilescope.planner.boxes import map_arguments
from tilescope.planner.consumers import descriptors_of
from tilescope.planner.plans import Plan
from tilescope.planner.problem import Problem
from tilescope.planner.reason import plan_rule, violations
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES
from tilescope.tensor_map import TensorMap
from tilescope.tma import load, load_tiles, store
from tilescope.tma.elements import packed

Bytes = npt.NDArray[np.uint8]
WORD_BYTES = 4
PIECE_ELEMENTS = 16  # of a padded type, in one chunk of shared memory


class Consumed(NamedTuple):
    """The consumer's view of a tile at address 0: where it looks for an element (mn, k), and what must be there."""

    memory: Bytes  # of the tile in global memory
    address: npt.NDArray[np.int64]
    place: npt.NDArray[np.int64]  # the same in words, or in the bytes of padded values
    expected: npt.NDArray[Any]  # the word or the byte at this place
    misplaced: npt.NDArray[np.bool_] | bool  # looked for at another byte of that word

    @classmethod
    def of(cls, problem: Problem, layout: Layout) -> Consumed:
        """By descriptors where the consumer has them, else by the layout."""
        bits, smem_bits = problem.data_type.bits, problem.data_type.smem_bits
        mn, k = np.arange(problem.tile[0])[:, None], np.arange(problem.tile[1])[None, :]
        row, column = oriented(problem.major, mn, k)
        by_descriptor = problem.reads_by_descriptor
        address = descriptors_of(problem, layout).addresses() if by_descriptor else layout.address(mn, k)
        if bits < smem_bits and problem.direction == "store":
            values = np.random.default_rng(0).integers(0, 1 << bits, (problem.rows, problem.columns), np.uint8)
            return cls(packed(values, bits).reshape(-1), address, address, values[row, column], False)
        if bits < smem_bits:
            address, column = address // CHUNK_BYTES * CHUNK_BYTES, column // PIECE_ELEMENTS * PIECE_ELEMENTS
        shift = max(WORD_BYTES, smem_bits // 8).bit_length() - 1  # dividing arrays takes longer
        index = np.dtype(f"u{1 << shift}")
        byte = row * (problem.columns * bits // 8) + column * bits // 8
        memory = np.arange(problem.moved_bytes >> shift, dtype=index).view(np.uint8)
        misplaced = ((address ^ byte) & ((1 << shift) - 1)).astype(np.bool_)
        return cls(memory, address, address >> shift, (byte >> shift).astype(index), misplaced)


def proven(plan: Plan, consumed: Consumed | None = None) -> Plan:
    """The plan itself; PlanError, naming the first wrong element, if it does not do what it says."""
    consumed = consumed or Consumed.of(plan.problem, plan.layout)
    smem = np.full(-(-plan.smem_bytes // SMEM_LINE_BYTES) * SMEM_LINE_BYTES, 0xFF, np.uint8)
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
    boxes = load_tiles(tensor_map, memory)
    numbers = np.array([copy.coords for copy in plan.copies]) // tensor_map.box
    places = smem[: len(offsets) * tensor_map.smem_bytes].reshape(-1, tensor_map.smem_bytes)
    places[offsets // tensor_map.smem_bytes] = boxes[tuple(numbers.T[::-1])]


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
    arguments = map_arguments(plan.problem, plan.layout, plan.boxes, plan.problem.tile, None)
    if arguments["data_type"].tma.name.startswith("tfloat32"):
        arguments["data_type"] = "uint32"
    return TensorMap(**arguments)


# fmt: off
PLAN_PROOF = plan_rule(
    "plan-proof", "The emulated copies of a plan bring every element where its consumer reads it.",
    "tilescope's own emulator; only a mistake in the planner breaks it, so no example does", 'ts.plan((64, 64), "bf16").best', None,
    said=("swizzle {swizzle}, {order} order: wrong at {where}",
          "the emulated copies must bring every element where its consumer reads it", "Report this plan: tilescope made a mistake."),
)
# fmt: on


def _disproved(plan: Plan, where: str) -> PlanError:
    told = {"swizzle": plan.swizzle.name, "order": plan.atom_order, "where": where}
    return PlanError(violations([PLAN_PROOF.broken("plan", **told)]))
