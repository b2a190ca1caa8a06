"""The proof of a plan: words that know their own place go through the planned copies and come out right.

Every 4-byte word of the tile in global memory holds its own index. The emulator copies it as planned; then the
consumer's view (descriptors where it has them, else the layout) reads every element back. A store is proven the
other way round, through the same boxes:

    global 0 1 2 3 …  ──▶ planned copies ──▶ shared memory ──▶ descriptor / layout reads (mn, k) ──▶ its own index?

Values that TMA pads to a byte each come in pieces of sixteen: a load is proven by the first of each, a store by random
values.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.errors import PlanError
from tilescope.layout import Layout, oriented
from tilescope.planner.boxes import map_arguments
from tilescope.planner.consumers import descriptors_of
from tilescope.planner.plans import Plan
from tilescope.planner.problem import Direction, Problem
from tilescope.rule import rule
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES
from tilescope.tensor_map import TensorMap
from tilescope.tma import load, load_tiles, store
from tilescope.tma.packing import unpacked

WORD_BYTES, WORD_SHIFT = 4, 2
NOWHERE = 0xFFFFFFFF  # an index that no tile has
STORES_TRIED = 32  # from both ends: of many like boxes, not all are stored
PIECE_ELEMENTS = 16  # of a padded type, in 16 bytes of shared memory

PLAN_PROOF = rule(  # nothing breaks it but a mistake in the planner
    "plan-proof",
    "The emulated copies of a plan bring every element where its consumer reads it.",
    source="tilescope's own emulator",
    passing='ts.plan((64, 64), "bf16").best',
)


class Consumed(NamedTuple):
    """The consumer's view of a tile at address 0: where it looks for each element (mn, k), and what must be there."""

    address: npt.NDArray[np.int64]
    place: npt.NDArray[np.int64]  # the same in words
    word: npt.NDArray[np.uint32]  # the index of the word of global memory that holds the element
    misplaced: npt.NDArray[np.bool_]  # looked for at another byte of that word, or not looked at

    @classmethod
    def of(cls, problem: Problem, layout: Layout) -> Consumed:
        """By descriptors where the consumer has them, else by the layout."""
        mn, k = np.arange(problem.tile[0])[:, None], np.arange(problem.tile[1])[None, :]
        row, column = oriented(problem.major, mn, k)
        if problem.reads_by_descriptor:
            address = descriptors_of(problem, layout).addresses()
        else:
            address = layout.address(mn, k)
        byte = row * _row_bytes(problem) + column * problem.data_type.bits // 8
        misplaced = ((address ^ byte) & (WORD_BYTES - 1)).astype(np.bool_)
        if _is_padded(problem):
            misplaced[:] = False
        return cls(address, address >> WORD_SHIFT, (byte >> WORD_SHIFT).astype(np.uint32), misplaced)


def proven_directions(problem: Problem) -> tuple[Direction, ...]:
    """The copies that a proof makes: a store takes back what a load through the same boxes brought, unless it is padded."""
    if problem.direction == "load":
        return ("load",)
    return ("store",) if _is_padded(problem) else ("load", "store")


def prove(plan: Plan, consumed: Consumed) -> None:
    """Raise PlanError, naming the first wrong element, if the plan does not do what it says."""
    directions = proven_directions(plan.problem)
    if "load" not in directions:
        _prove_padded_store(plan, consumed)
        return
    words = np.arange(plan.problem.rows * _row_bytes(plan.problem) // WORD_BYTES, dtype=np.uint32)
    smem = _copied_by_threads(plan, words) if plan.boxes is None else _loaded(plan, words)
    _require_equal(plan, smem.view(np.uint32), consumed)
    if "store" in directions:
        _prove_store(plan, words, smem)


def _copied_by_threads(plan: Plan, words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    smem = _shared_memory(plan)
    order = plan.chunk_order.reshape(-1)
    smem.reshape(-1, CHUNK_BYTES)[order >= 0] = words.view(np.uint8).reshape(-1, CHUNK_BYTES)[order[order >= 0]]
    return smem


def _loaded(plan: Plan, words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    """Shared memory after the planned copies of the tile.

    Boxes that start where the swizzle's pattern does are all alike, and loaded at once.
    """
    assert plan.boxes is not None
    tensor_map, smem = _tile_map(plan), _shared_memory(plan)
    offsets = np.array([copy.smem_offset_bytes for copy in plan.copies])
    if (offsets % plan.smem_alignment_bytes).any() or (offsets % tensor_map.smem_bytes).any():
        for copy in plan.copies:
            coords = plan.copy_coords(copy, 0, 0)
            load(tensor_map, words, coords, smem=smem[copy.smem_offset_bytes :], smem_address=copy.smem_offset_bytes)
        return smem
    boxes = load_tiles(tensor_map, words)
    numbers = np.array([copy.coords for copy in plan.copies]) // plan.boxes.box
    places = smem[: len(offsets) * tensor_map.smem_bytes].reshape(-1, tensor_map.smem_bytes)
    places[offsets // tensor_map.smem_bytes] = boxes[tuple(numbers.T[::-1])]
    return smem


def _prove_store(plan: Plan, words: npt.NDArray[np.uint32], smem: npt.NDArray[np.uint8]) -> None:
    """The first and the last store take from shared memory what the load of the same boxes put there."""
    tensor_map, memory = _tile_map(plan), np.full_like(words, NOWHERE)
    shown = {plan.copies[0], plan.copies[-1]}
    for copy in shown:
        coords, start = plan.copy_coords(copy, 0, 0), copy.smem_offset_bytes
        store(tensor_map, smem[start:], memory, coords, smem_address=start)
    written = memory != NOWHERE
    wrong = np.flatnonzero(written & (memory != words))
    if wrong.size or written.sum() * WORD_BYTES != len(shown) * tensor_map.transaction_bytes:
        raise _disproved(plan, f"global byte {int(wrong[0]) * WORD_BYTES if wrong.size else 0} of the tile")


def _prove_padded_store(plan: Plan, consumed: Consumed) -> None:
    """An index does not fit so few bits: random values instead, the same ones every time."""
    problem, bits = plan.problem, plan.problem.data_type.bits
    smem, tensor_map = _shared_memory(plan), _tile_map(plan)
    values = np.random.default_rng(0).integers(0, 1 << bits, (problem.rows, problem.columns), np.uint8)
    smem[consumed.address] = values if problem.major == "K" else values.T
    memory = np.zeros((problem.rows, _row_bytes(problem)), np.uint8)
    stored = np.zeros(values.shape, np.bool_)
    for copy in (*plan.copies[:STORES_TRIED], *plan.copies[STORES_TRIED:][-STORES_TRIED:]):
        coords, start = plan.copy_coords(copy, 0, 0), copy.smem_offset_bytes
        store(tensor_map, smem[start:], memory, coords, smem_address=start)
        stored[coords[1] : coords[1] + tensor_map.box[1], coords[0] : coords[0] + tensor_map.box[0]] = True
    stored |= plan.folded  # one copy, the whole tile
    places = np.argwhere(np.where(stored, values, 0) != unpacked(memory, bits))
    if places.size:
        row, column = (int(place) for place in places[0])
        raise _disproved(plan, f"row {row}, element {column} of the tile in global memory")


def _shared_memory(plan: Plan) -> npt.NDArray[np.uint8]:
    """Shared memory of the tile, whole lines of it, with what no copy writes."""
    return np.full(-(-plan.smem_bytes // SMEM_LINE_BYTES) * SMEM_LINE_BYTES, 0xFF, np.uint8)


def _tile_map(plan: Plan) -> TensorMap:
    """The plan's map over the tile alone, moving bits as they are (tf32 would round the indices away)."""
    assert plan.boxes is not None
    arguments = map_arguments(plan.problem, plan.layout, plan.boxes, plan.problem.tile, None)
    if arguments["data_type"].tma.name.startswith("tfloat32"):
        arguments["data_type"] = "uint32"
    return TensorMap(**arguments)


def _is_padded(problem: Problem) -> bool:
    """Whether elements are wider in shared memory than in global memory."""
    return problem.data_type.bits < problem.data_type.smem_bits


def _row_bytes(problem: Problem) -> int:
    """Of a row of the tile in global memory."""
    return problem.columns * problem.data_type.bits // 8


def _require_equal(plan: Plan, smem: npt.NDArray[np.uint32], consumed: Consumed) -> None:
    differs = (smem[consumed.place] != consumed.word) | consumed.misplaced
    if _is_padded(plan.problem):
        inside = np.arange(plan.problem.columns) % PIECE_ELEMENTS > 0
        differs &= ~(inside if plan.problem.major == "K" else inside[:, None])
    if differs.any():
        mn, k = (int(index) for index in np.argwhere(differs)[0])
        raise _disproved(plan, f"element ({mn}, {k}), read at {int(consumed.address[mn, k]):#x}")


def _disproved(plan: Plan, where: str) -> PlanError:
    return PlanError([PLAN_PROOF.violation(
        "plan", f"swizzle {plan.swizzle.name}, {plan.atom_order} order: wrong at {where}",
        "the emulated copies must bring every element where its consumer reads it", "Report this plan: tilescope made a mistake.",
    )])  # fmt: skip
