"""How many stages of a GEMM tile fit into a block's shared memory, and how many of those help.

128 x 256 x 64 of bf16, k = 4096    a stage of 16384 + 32768 bytes, a slice of C of 16384: 4 stages fit 232448 bytes
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from tilescope.arithmetic import ceil_div
from tilescope.planner.gemm_plan import tile_grid
from tilescope.planner.gemm_request import Choice
from tilescope.planner.gemm_schedule import Schedule
from tilescope.planner.gemm_smem import find_end, place_regions
from tilescope.planner.planned_scales import ScalePlan
from tilescope.planner.plans import Plan
from tilescope.planner.product import Product, Tile
from tilescope.planner.wgmma_sums import PRODUCER_WARPS, needs_more_registers

MAX_AUTO_STAGES = 8  # chosen, unless more are needed to keep enough bytes in flight
FEWEST_STAGES = 2  # one is filled while the other is read
_SHORT_K_TILES = 8  # K steps of a tile whose store takes as long
_FEWEST_TURNED_K_TILES = 6  # of warpgroups that take tiles in turn: a stage is then worth more than buffers of C
_RESIDUAL_STAGES = 3  # minimum that must remain beside buffers for a whole tile of C


class TilePlans(NamedTuple):
    """The plans of a tile; without TMA, C has none."""

    a: Plan
    b: Plan
    epilogue: Plan | None
    accumulators: int  # in tensor memory
    answers: int  # to requests for a tile
    scales: tuple[ScalePlan, ...]  # of A and B
    slices: int  # of a tile of C
    has_residual: bool
    storing_groups: int  # with separate buffers of C

    def smem_bytes(self, stages: int, c_buffers: int = 1) -> int:
        """Shared memory of a block with that many stages, and buffers of C."""
        return find_end(
            place_regions(
                self.a,
                self.b,
                self.epilogue,
                stages,
                c_buffers=c_buffers * self.storing_groups,
                accumulators=self.accumulators,
                answers=self.answers,
                scales=self.scales,
                has_residual=self.has_residual,
                turns=self.storing_groups,
            )
        )


def count_fitting_stages(product: Product, plans: TilePlans, stages: int | None) -> int:
    """The number of stages that fit into shared memory: at most those requested, or the usual maximum."""
    most = MAX_AUTO_STAGES if stages is None else stages
    if stages is None and product.card is not None and product.card.tma is not None and product.by_tma:
        scale_bytes = sum(scale.transaction_bytes for scale in plans.scales)
        stage = plans.a.transaction_bytes + plans.b.transaction_bytes + scale_bytes
        most = max(most, ceil_div(product.card.tma.enough_in_flight_bytes, stage))
    budget = product.arch.smem_per_block_bytes
    if plans.has_residual and stages is None:  # TMA loads it ahead if every slice of C has a buffer
        counts = (
            count for count in range(most, _RESIDUAL_STAGES - 1, -1) if plans.smem_bytes(count, plans.slices) <= budget
        )
        if (fitting := next(counts, 0)) > 0:
            return fitting
    return next((count for count in range(most, 0, -1) if plans.smem_bytes(count) <= budget), 0)


def limit_to_useful_stages(product: Product, plans: TilePlans, choice: Choice, fitting: int) -> int:
    """Of the stages that fit, the useful number: at most the K steps, and one fewer if C needs the space."""
    tile, schedule = choice.tile, choice.schedule
    if schedule.split == 1:  # stored in the memory of the stages
        fitting = min(fitting, max(FEWEST_STAGES, _count_steps(product, tile, schedule)))
    rows, columns, _ = schedule.sums(tile)
    takes_registers = needs_more_registers(product, rows, columns, ping_pong=schedule.ping_pong)
    if product.consumer == "wgmma" and schedule.persistent and not (takes_registers and fitting == PRODUCER_WARPS):
        fitting = _leave_room_for_c(product, plans, fitting, schedule.k_tiles(product.shape[2], tile[2]))
    return fitting


def _leave_room_for_c(product: Product, plans: TilePlans, stages: int, k_tiles: int) -> int:
    """One stage fewer, if every slice of C then has its buffer: a tile is stored while the next one is multiplied.

    On an H200 that was 2 to 8 % faster, and slower where three stages were left for many K steps. Warpgroups that take tiles in turn
    hide most of the stores anyway: from 6 K steps on, they were 2 to 3 % faster with the stage.
    """
    if plans.storing_groups > 1 and k_tiles >= _FEWEST_TURNED_K_TILES:
        return stages
    fewest = _RESIDUAL_STAGES if k_tiles <= _SHORT_K_TILES else _RESIDUAL_STAGES + 1
    if stages <= fewest:
        return stages
    budget = product.arch.smem_per_block_bytes
    holds = [plans.smem_bytes(count, plans.slices) <= budget for count in (stages, stages - 1)]
    return stages - 1 if holds == [False, True] else stages


def _count_steps(product: Product, tile: Tile, schedule: Schedule) -> int:
    """K steps of the block that has most of them: a stage more would never be filled, and its barriers take time to begin."""
    tiles = prod(schedule.cluster_grid(tile_grid(product.shape, tile))) * product.batch.count
    at_once = max(1, (product.sms or 1) // prod(schedule.cluster))
    rounds = ceil_div(tiles, at_once) if schedule.persistent else 1
    return rounds * schedule.k_tiles(product.shape[2], tile[2])
