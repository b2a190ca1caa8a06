"""The proof of a plan: words that know their own place go through the planned copies and come out right.

Every 4-byte word of the tile in global memory holds its own index. The emulator copies it as planned; then the
consumer's view (descriptors where it has them, else the layout) reads every element back:

    global 0 1 2 3 …  ──▶ planned copies ──▶ shared memory ──▶ descriptor / layout reads (mn, k) ──▶ its own index?

Values that TMA pads to a byte each come in pieces of sixteen: a load is proven by the first of each, a store by as many
passes of 6 bits as an index has.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt

from tilescope.errors import PlanError, Violation
from tilescope.mma.packed import unpacked
from tilescope.planner.boxes import map_arguments
from tilescope.planner.plans import Plan
from tilescope.swizzle import SMEM_LINE_BYTES
from tilescope.tensor_map import TensorMap
from tilescope.tma import load, store

WORD_BYTES = 4
PIECE_ELEMENTS = 16  # of a padded type, in 16 bytes of shared memory


def prove(plan: Plan) -> None:
    """Raise PlanError, naming the first wrong element, if the plan does not do what it says."""
    if plan.problem.direction == "store":
        _prove_store(plan)
    else:
        _prove_load(plan)


def _prove_load(plan: Plan) -> None:
    problem = plan.problem
    words = np.arange(problem.rows * _row_bytes(plan) // WORD_BYTES, dtype=np.uint32)
    smem = _shared_memory(plan)
    if plan.boxes is None:
        chunks = words.view(np.uint8).reshape(-1, 16)
        order = plan.chunk_order.reshape(-1)
        smem.reshape(-1, 16)[order >= 0] = chunks[order[order >= 0]]
    else:
        tensor_map = _tile_map(plan)
        for copy in plan.copies:
            coords = plan.copy_coords(copy, 0, 0)
            load(tensor_map, words, coords, smem=smem[copy.smem_offset_bytes :], smem_address=copy.smem_offset_bytes)
    _require_equal(plan, smem.view(np.uint32), _consumed_addresses(plan))


def _prove_store(plan: Plan) -> None:
    problem = plan.problem
    mn, k = np.arange(problem.tile[0])[:, None], np.arange(problem.tile[1])[None, :]
    address = plan.address(mn, k)
    smem = _shared_memory(plan)
    if _is_padded(plan):
        bits, number = _bits(plan), np.arange(problem.rows * problem.columns).reshape(problem.rows, problem.columns)
        for shift in range(0, int(number.max()).bit_length(), bits):
            part = (number >> shift & (1 << bits) - 1).astype(np.uint8)
            smem[address] = part if problem.major == "K" else part.T
            places = np.argwhere(unpacked(_stored(plan, smem), bits) != part)
            if places.size:
                row, column = (int(each) for each in places[0])
                raise _disproved(plan, f"row {row}, element {column} of the tile in global memory")
        return
    first_word = _expected(plan)[0]
    for word in range(-(-_bits(plan) // (8 * WORD_BYTES))):  # an element of 64 bits is two words
        smem.view(np.uint32)[address // WORD_BYTES + word] = first_word + word
    memory = _stored(plan, smem).reshape(-1)
    wrong = np.flatnonzero(memory.view(np.uint32) != np.arange(memory.size // WORD_BYTES))
    if wrong.size:
        raise _disproved(plan, f"global byte {int(wrong[0]) * WORD_BYTES} of the tile")


def _stored(plan: Plan, smem: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Global memory of the tile after the planned stores, (rows, row bytes)."""
    memory = np.full((plan.problem.rows, _row_bytes(plan)), 0xFF, np.uint8)
    tensor_map = _tile_map(plan)
    for copy in plan.copies:
        coords = plan.copy_coords(copy, 0, 0)
        store(tensor_map, smem[copy.smem_offset_bytes :], memory, coords, smem_address=copy.smem_offset_bytes)
    return memory


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


def _expected(plan: Plan) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """For every element (mn, k): the index of the word that holds it in global memory, and its byte within that word."""
    problem = plan.problem
    mn, k = np.arange(problem.tile[0])[:, None], np.arange(problem.tile[1])[None, :]
    row, column = (mn, k) if problem.major == "K" else (k, mn)
    byte = row * _row_bytes(plan) + column * _bits(plan) // 8
    return (byte // WORD_BYTES).astype(np.uint32), byte % WORD_BYTES


def _is_padded(plan: Plan) -> bool:
    """Whether elements are wider in shared memory than in global memory."""
    return _bits(plan) < plan.problem.data_type.smem_bits


def _bits(plan: Plan) -> int:
    """Of an element in global memory; threads copy a tile as it lies in shared memory."""
    return plan.problem.data_type.smem_bits if plan.boxes is None else plan.problem.data_type.bits


def _row_bytes(plan: Plan) -> int:
    return plan.problem.columns * _bits(plan) // 8


def _consumed_addresses(plan: Plan) -> npt.NDArray[np.int64]:
    """Where the consumer looks for every element (mn, k)."""
    problem = plan.problem
    mn, k = problem.tile
    if plan.canonical is None or problem.consumer == "ldmatrix":
        addresses: npt.NDArray[np.int64] = plan.address(np.arange(mn)[:, None], np.arange(k)[None, :])
        return addresses
    return cast("npt.NDArray[np.int64]", plan.descriptors(0).addresses())


def _require_equal(plan: Plan, smem: npt.NDArray[np.uint32], address: npt.NDArray[np.int64]) -> None:
    word, byte = _expected(plan)
    differs = (smem[address // WORD_BYTES] != word) | (address % WORD_BYTES != byte)
    if _is_padded(plan):
        inside = np.arange(plan.problem.columns) % PIECE_ELEMENTS > 0
        differs &= ~(inside if plan.problem.major == "K" else inside[:, None])
    wrong = np.argwhere(differs)
    if wrong.size:
        mn, k = (int(index) for index in wrong[0])
        raise _disproved(plan, f"element ({mn}, {k}), read at {int(address[mn, k]):#x}")


def _disproved(plan: Plan, where: str) -> PlanError:
    return PlanError([Violation(
        "plan-proof", "error", "plan", f"swizzle {plan.swizzle.name}, {plan.atom_order} order: wrong at {where}",
        "the emulated copies must bring every element where its consumer reads it", "Report this plan: it is an error of tilescope's.",
    )])  # fmt: skip
