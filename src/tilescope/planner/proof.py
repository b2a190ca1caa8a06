"""The proof that a plan loads the tile: its copies are emulated, and every element is read where the consumer reads it.

Every word of the tile in global memory (4 bytes, or a wider element) has its index as its value. The emulator copies it
as planned; then the consumer's view (its descriptors, or else the layout) reads every element back. A store is proven
in the other direction: the layout puts every element where its producer writes it, and two stores copy them back.

    global 0 1 2 3 …  ──▶ planned copies ──▶ shared memory ──▶ descriptor / layout reads (mn, k) ──▶ its own index?

Values that TMA pads come in pieces of sixteen, one chunk of shared memory a piece. A load leaves them dense at its start, so
that the words of a piece are those of global memory. A store takes a value from every byte, which an index does not fit: they
are random, the same ones every time.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arithmetic import rounded_up
from tilescope.data_type import DataType
from tilescope.errors import PlanError
from tilescope.layout import oriented
from tilescope.planner.boxes import map_arguments
from tilescope.planner.consumers import PIECE_ELEMENTS
from tilescope.planner.plans import Plan
from tilescope.rule import rule
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES
from tilescope.tensor_map import TensorMap
from tilescope.tma import load, load_tiles, store
from tilescope.tma.elements import pack_values

Bytes = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int64]
_WORD_BYTES = 4

PLAN_PROOF = rule(
    "plan-proof",
    "The emulated copies of a plan write every element where its consumer reads it.",
    argument="plan",
    found="swizzle {swizzle}, {order} order: wrong at element ({mn}, {k}), read at {address:#x}",
    limit="the emulated copies must write every element where its consumer reads it",
    fix="Report this plan: tilescope made a mistake.",
    source="tilescope's own emulator; only a mistake in the planner breaks it, so no example does",
    passing='ts.plan((64, 64), "bf16").best',
)
STORE_DISPROVED = PLAN_PROOF.worded(
    found="swizzle {swizzle}, {order} order: wrong at global byte {byte} of the tile",
)


class Consumed(NamedTuple):
    """The consumer's view of a tile at address 0: where it looks for an element (mn, k), and what must be there."""

    memory: Bytes  # of the tile in global memory
    address: npt.NDArray[np.int64]
    place: npt.NDArray[np.int64]  # the same in words, or in the bytes of padded values
    expected: npt.NDArray[np.unsignedinteger]  # the word or the byte at this place
    misplaced: npt.NDArray[np.bool_] | bool  # looked for at another byte of that word

    @classmethod
    def of(cls, plan: Plan) -> Consumed:
        """By descriptors where the consumer has them, else by the layout."""
        problem = plan.problem
        mn = np.arange(problem.tile[0])[:, None]
        k = np.arange(problem.tile[1])[None, :]
        address = plan.descriptors().addresses() if problem.reads_by_descriptor else plan.layout.address(mn, k)
        row, column = oriented(problem.major, mn, k)
        is_padded = problem.data_type.bits < problem.data_type.smem_bits
        if is_padded and problem.direction == "store":
            return cls._of_padded_store(plan, address, row, column)
        return cls._of_words(plan, address, row, column)

    @classmethod
    def _of_padded_store(cls, plan: Plan, address: Indices, row: Indices, column: Indices) -> Consumed:
        """Random values, a byte of shared memory for each."""
        problem = plan.problem
        bits = problem.data_type.bits
        values = np.random.default_rng(0).integers(0, 1 << bits, (problem.rows, problem.columns), np.uint8)
        memory = pack_values(values, bits).reshape(-1)
        return cls(memory, address, place=address, expected=values[row, column], misplaced=False)

    @classmethod
    def _of_words(cls, plan: Plan, address: Indices, row: Indices, column: Indices) -> Consumed:
        """Every word of the tile in global memory holds its own index."""
        problem = plan.problem
        bits = problem.data_type.bits
        smem_bits = problem.data_type.smem_bits
        if (
            bits < smem_bits and problem.reads_by_descriptor
        ):  # it counts containers: sixteen are contiguous in their chunk
            address = address // CHUNK_BYTES * CHUNK_BYTES + column % PIECE_ELEMENTS * bits // 8
        shift = max(_WORD_BYTES, smem_bits // 8).bit_length() - 1  # dividing arrays takes longer
        index = np.dtype(f"u{1 << shift}")
        byte = row * (problem.columns * bits // 8) + column * bits // 8
        return cls(
            memory=np.arange(problem.moved_bytes >> shift, dtype=index).view(np.uint8),
            address=address,
            place=address >> shift,
            expected=(byte >> shift).astype(index),
            misplaced=((address ^ byte) & ((1 << shift) - 1)).astype(np.bool_),
        )


def proven(plan: Plan, consumed: Consumed | None = None) -> Plan:
    """The plan; a PlanError that names the first wrong element, if the copies are wrong."""
    consumed = consumed or Consumed.of(plan)
    smem = np.full(rounded_up(plan.smem_bytes, SMEM_LINE_BYTES), 0xFF, np.uint8)
    cells = smem.view(consumed.expected.dtype)
    if plan.problem.direction == "store":
        cells[consumed.place] = consumed.expected
        _prove_store(plan, consumed.memory, smem)
    elif plan.boxes is None:
        order = plan.chunk_order.reshape(-1)
        filled = order >= 0
        smem.reshape(-1, CHUNK_BYTES)[filled] = consumed.memory.reshape(-1, CHUNK_BYTES)[order[filled]]
    else:
        _load(plan, consumed.memory, smem)
    differs = (cells[consumed.place] != consumed.expected) | consumed.misplaced
    if differs.any():
        mn, k = (int(index) for index in np.argwhere(differs)[0])
        address = int(consumed.address[mn, k])
        wrong = PLAN_PROOF.violation(swizzle=plan.swizzle.name, order=plan.atom_order, mn=mn, k=k, address=address)
        raise PlanError([wrong])
    return plan


def _load(plan: Plan, memory: Bytes, smem: Bytes) -> None:
    """Run the planned copies; boxes that start at the start of the swizzle's pattern are equal, and loaded at once."""
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
    tensor_map = _tile_map(plan)
    before = ~memory
    after = before.copy()
    copies = {plan.copies[0], plan.copies[-1]}
    for copy in copies:
        start = copy.smem_offset_bytes
        store(tensor_map, smem[start:], after, copy.coords, smem_address=start)
    wrong = np.flatnonzero((after != memory) & (after != before))
    moved_bytes = len(copies) * prod(tensor_map.box) * plan.problem.data_type.bits // 8
    if wrong.size or (after == memory).sum() != moved_bytes:
        byte = int(wrong[0]) if wrong.size else 0
        raise PlanError([STORE_DISPROVED.violation(swizzle=plan.swizzle.name, order=plan.atom_order, byte=byte)])


def _tile_map(plan: Plan) -> TensorMap:
    """The plan's map over only the tile, with bits copied unchanged (tf32 would round the indices away)."""
    assert plan.boxes is not None
    arguments = map_arguments(plan.problem, plan.containers, plan.boxes, plan.problem.tile, None)
    if plan.problem.data_type.tma.name.startswith("tfloat32"):
        arguments["data_type"] = DataType.named("uint32")
    return TensorMap(**arguments)
