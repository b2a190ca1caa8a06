"""How a block's shared memory is shared out among the stages, the slices of C and the barriers of a GEMM.

shared memory   │ A 0 │ A 1 │ … │ B 0 │ B 1 │ … │ slice of C │ full 0, full 1, …, empty 0, empty 1, … │
                a region starts at a multiple of its alignment; the budget is where the last one ends

With tensor memory two accumulators take turns; their barriers, and the word in which tcgen05.alloc writes its address, come last:

                │ acc_full 0, acc_full 1, acc_empty 0, acc_empty 1 │ address │

Stages of scale factors, if there are any, are stored between those of B and the slice of C.
"""

from __future__ import annotations

from typing import NamedTuple

from tilescope.arithmetic import rounded_up
from tilescope.planner.planned_scales import SCALE_SLOTS, ScalePlan
from tilescope.planner.plans import Plan
from tilescope.sync.mbarrier import MBARRIER_BYTES

_TMEM_ADDRESS_BYTES = 4
ANSWER_BYTES = 16  # of cluster launch control


class SmemRegion(NamedTuple):
    """A part of a block's shared memory: where its pieces start, and how large a piece is."""

    name: str  # a, b, sfa, sfb, epilogue, barriers, accumulators, address, answers, answer_barriers, residual_barrier or order_barriers
    starts: tuple[int, ...]
    piece_bytes: int
    alignment_bytes: int


class _UnplacedRegion(NamedTuple):
    """A region before it has its place."""

    name: str
    pieces: int
    piece_bytes: int
    alignment_bytes: int


def place_regions(
    a: Plan,
    b: Plan,
    epilogue: Plan | None,
    stages: int,
    *,
    c_buffers: int = 1,
    accumulators: int = 0,
    answers: int = 0,
    scales: tuple[ScalePlan, ...] = (),
    has_residual: bool = False,
    turns: int = 1,
) -> tuple[SmemRegion, ...]:
    """A, B, the epilogue and the barriers of all stages, every region at the next multiple of its alignment.

    `accumulators` take turns in tensor memory: two barriers each, and one word for its address. So do `answers` of cluster
    launch control, with two barriers each.
    """
    unplaced = [
        _UnplacedRegion("a", stages, a.stage_bytes, a.smem_alignment_bytes),
        _UnplacedRegion("b", stages, b.stage_bytes, b.smem_alignment_bytes),
    ]
    for name, scale in zip(SCALE_SLOTS, scales, strict=False):
        unplaced.append(_UnplacedRegion(name, stages, scale.stage_bytes, scale.smem_alignment_bytes))
    if epilogue is not None:
        unplaced.append(_UnplacedRegion("epilogue", c_buffers, epilogue.stage_bytes, epilogue.smem_alignment_bytes))
    if a.boxes is not None:  # cp.async waits without
        unplaced.append(_UnplacedRegion("barriers", 2 * stages, MBARRIER_BYTES, MBARRIER_BYTES))
    if accumulators:
        unplaced.append(_UnplacedRegion("accumulators", 2 * accumulators, MBARRIER_BYTES, MBARRIER_BYTES))
        unplaced.append(_UnplacedRegion("address", 1, _TMEM_ADDRESS_BYTES, _TMEM_ADDRESS_BYTES))
    if answers:
        unplaced.append(_UnplacedRegion("answers", answers, ANSWER_BYTES, ANSWER_BYTES))
        unplaced.append(_UnplacedRegion("answer_barriers", 2 * answers, MBARRIER_BYTES, MBARRIER_BYTES))
    if has_residual:
        unplaced.append(_UnplacedRegion("residual_barrier", turns, MBARRIER_BYTES, MBARRIER_BYTES))
    if turns > 1:
        unplaced.append(_UnplacedRegion("order_barriers", turns, MBARRIER_BYTES, MBARRIER_BYTES))
    regions = []
    end = 0
    for name, pieces, piece_bytes, alignment_bytes in unplaced:
        start = rounded_up(end, alignment_bytes)
        end = start + pieces * piece_bytes
        regions.append(SmemRegion(name, tuple(range(start, end, piece_bytes)), piece_bytes, alignment_bytes))
    return tuple(regions)


def find_end(regions: tuple[SmemRegion, ...]) -> int:
    """Bytes from the first region's start to the last one's end."""
    return regions[-1].starts[-1] + regions[-1].piece_bytes
