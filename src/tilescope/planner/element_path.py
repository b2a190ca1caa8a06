"""One element of a planned tile at every stop of its way: global memory, the copy, shared memory, the tensor core.

    plan((128, 64), "bf16").best.path(37, 21)

    global memory    row 37, byte 42 of the row        chunk 2 of 8
    copy             box 0, its row 37                  lands from +0x0
    shared memory    address 0x12fa: line 37            chunk 7 (2 XOR 37 mod 8), bank 30
    tensor core      instruction rows 0-63, K step 1    descriptor 0x4000004000010002
    result           row 37 of D                        warp 2, threads 84-87

Every number comes from the plan's own map, layout and descriptors: the emulator and the hardware agree with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilescope.arch import WARP_LANES
from tilescope.errors import RuleError
from tilescope.layout import oriented
from tilescope.mma.fragment import Fragment, fragment
from tilescope.mma.tmem_layout import tmem_layout
from tilescope.planner.consumers import descriptors_of, operand_of
from tilescope.planner.planned_tile import PlannedTile
from tilescope.planner.problem import Problem
from tilescope.rule import rule
from tilescope.value import Value, hex_field

PATH_ELEMENT = rule(
    "path-element",
    "The element to follow is in the tile.",
    argument="element",
    found="({mn}, {k}) in a tile of {tile: x }",
    limit="mn from 0 to {last_mn}, k from 0 to {last_k}",
    fix="Use an element of the tile.",
    source="the layout of the tile",
    passing='ts.plan((64, 64), "bf16").best.path(63, 63)',
    failing='ts.plan((64, 64), "bf16").best.path(64, 0)',
)
_ROWS_OF_ONE_BLOCK = (64, 128)  # that a tcgen05.mma of one block has
_TMEM_COLUMNS = 64  # of a D whose lanes are requested: they are the same for every width
_K_BITS = 256  # of a row of A that one mma.sync takes
_WARP_ROWS = 16  # of an accumulator that one warp of a warpgroup holds
_QUAD = 4  # threads that hold a row of 8 columns


@dataclass(frozen=True, slots=True)
class CopyStop(Value):
    """The copy that loads an element, and the element's place in its box."""

    number: int  # of the tile's copies, from 0
    coords: tuple[int, ...]  # of the box, driver order, from the corner of the tile
    place: tuple[int, ...]  # of the element in the box, driver order
    smem_offset_bytes: int  # where the box lands, from the tile's first byte


@dataclass(frozen=True, slots=True, kw_only=True)
class DescriptorStop(Value):
    """The descriptor that reads an element, and the element's place in what it reads."""

    mn_block: int  # number of the instruction along mn, from 0
    k_step: int  # number of the instruction along k, from 0
    word: int = hex_field()  # the 64 bits
    start_address: int = hex_field()  # of what it reads
    mn: int  # of the element, in the instruction's operand
    k: int  # of the element, in the instruction's operand


@dataclass(frozen=True, slots=True)
class RegisterStop(Value):
    """The register that holds an element once ldmatrix has loaded its fragment."""

    instruction: str  # the mma that takes it
    block: tuple[int, int]  # number of the fragment along mn and k
    lane: int  # of the warp
    register: int  # of the fragment, from 0
    first_bit: int  # of the element in that register
    address_lane: int | None  # whose address ldmatrix.x4 reads the element's row from; None where .x4 is not the way


@dataclass(frozen=True, slots=True)
class ResultStop(Value):
    """Where the products of an element are added up: a row of D for an element of A, a column for one of B."""

    axis: Literal["row", "column"]  # of D
    index: int  # in the instruction's D
    memory: Literal["registers", "tensor memory"]  # that holds D
    threads: tuple[int, ...]  # of the warpgroup, that hold that row or column; empty for tensor memory
    lane_or_column: int | None  # of tensor memory: the lane of a row, the first column of a column of 32 bits


def require_in_tile(problem: Problem, mn: int, k: int) -> None:
    """Refuse an element outside the tile."""
    rows, columns = problem.tile
    if not (0 <= mn < rows and 0 <= k < columns):
        raise PATH_ELEMENT.error(mn=mn, k=k, tile=problem.tile, last_mn=rows - 1, last_k=columns - 1)


def row_pitch_bytes(plan: PlannedTile) -> int:
    """From row to row of the matrix."""
    problem = plan.problem
    if problem.strides_bytes:
        return problem.strides_bytes[0]
    matrix = problem.global_shape or problem.tile
    return oriented(problem.major, *matrix)[1] * problem.data_type.bits // 8


def copy_stop(plan: PlannedTile, row: int, column: int) -> CopyStop | None:
    """The last box that starts at or before the element along every dimension; a folded map has other coordinates."""
    if plan.boxes is None or plan.folded:
        return None
    stop = None
    for number, copy in enumerate(plan.copies):
        place = (column - copy.coords[0], row - copy.coords[1])
        if all(0 <= at < extent for at, extent in zip(place, plan.boxes.box, strict=True)):
            stop = CopyStop(number, copy.coords, place, copy.smem_offset_bytes)
    return stop


def descriptor_stop(plan: PlannedTile, mn: int, k: int, smem_address: int) -> DescriptorStop | None:
    """The descriptor that reads the element; None where no tensor core reads the tile by descriptor."""
    if not plan.problem.reads_by_descriptor:
        return None
    loop = descriptors_of(plan.problem, plan.containers.with_start(smem_address))
    mn_block, mn_within = divmod(mn, loop.block_mn)
    k_step, k_within = divmod(k, loop.k_per_step)
    descriptor = loop[mn_block][k_step]
    return DescriptorStop(
        mn_block=mn_block,
        k_step=k_step,
        word=descriptor.encode(),
        start_address=descriptor.start_address,
        mn=mn_within,
        k=k_within,
    )


def register_stop(plan: PlannedTile, mn: int, k: int) -> RegisterStop | None:
    """The register that ldmatrix loads the element into; None for other consumers."""
    problem = plan.problem
    if problem.consumer_name != "ldmatrix":
        return None
    operand = problem.operand or "A"
    operand_fragment = fragment_of(operand, problem.data_type.name)
    if operand_fragment is None:
        return None
    block_mn, block_k = operand_fragment.shape if operand == "A" else operand_fragment.shape[::-1]
    mn_number, mn_within = divmod(mn, block_mn)
    k_number, k_within = divmod(k, block_k)
    place = (mn_within, k_within) if operand == "A" else (k_within, mn_within)
    lane, value = operand_fragment.holder(*place)
    register, first_bit = operand_fragment.register_of(value)
    is_four_matrices = operand_fragment.registers == 4
    return RegisterStop(
        instruction=operand_fragment.instruction,
        block=(mn_number, k_number),
        lane=lane,
        register=register,
        first_bit=first_bit,
        address_lane=8 * register + mn_within % 8 if is_four_matrices else None,
    )


def fragment_of(operand: Literal["A", "B"], data_type: str) -> Fragment | None:
    """The fragment of the widest mma.sync of a type; None where there is none."""
    from tilescope.data_type import DataType

    bits = DataType.named(data_type).smem_bits
    try:
        return fragment(f"mma.m16n8k{_K_BITS // bits}", operand=operand, data_type=data_type)
    except RuleError:
        return None


def result_stop(plan: PlannedTile, mn: int) -> ResultStop | None:
    """Where a row or column of D is stored: in registers of a warpgroup, or in tensor memory."""
    problem = plan.problem
    if not problem.reads_by_descriptor:
        return None
    loop = descriptors_of(problem, plan.containers.with_start(0))
    index = mn % loop.block_mn
    is_row = operand_of(problem) == "A"
    axis: Literal["row", "column"] = "row" if is_row else "column"
    if problem.consumer_name == "tcgen05":
        return ResultStop(axis, index, "tensor memory", (), tmem_lane(index, loop.block_mn) if is_row else index)
    return ResultStop(axis, index, "registers", row_threads(index) if is_row else _column_threads(index), None)


def tmem_lane(row: int, rows: int) -> int | None:
    """The lane of a row of D, by the data path of an instruction of that height; None where that is not one block's.

    >>> tmem_lane(37, 128), tmem_lane(37, 64)
    (37, 69)
    """
    if rows not in _ROWS_OF_ONE_BLOCK:
        return None
    return tmem_layout((rows, _TMEM_COLUMNS)).place(row, 0).lanes[0]


def row_threads(row: int) -> tuple[int, ...]:
    """The threads of a warpgroup that hold a row of wgmma's D.

    >>> row_threads(37)  # row 5 of the upper half of warp 2
    (84, 85, 86, 87)
    """
    warp, within = divmod(row, _WARP_ROWS)
    first = warp * WARP_LANES + within % 8 * _QUAD
    return tuple(range(first, first + _QUAD))


def _column_threads(column: int) -> tuple[int, ...]:
    """The threads of a warpgroup that hold a column of wgmma's D: one of each quad."""
    return tuple(range(column % 8 // 2, 4 * WARP_LANES, _QUAD))
