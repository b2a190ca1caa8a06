"""The request to plan_pipeline: tiles that share a stage, their consumers, and the blocks that share the work.

In a cluster of Cx x Cy blocks (rank = x + Cx y), blocks with the same x share A and those with the same y share B. With
cta_group=2 two blocks along x multiply together, and tiles are the pair's: each block loads half of the rows of A and
half of the columns of B.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from tilescope.arithmetic import ceil_div
from tilescope.errors import PlanError, Violation, raise_all
from tilescope.mma.consumer import CONSUMER, Consumer
from tilescope.pipeline.parts import MAX_STAGES
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.obstacle import or_obstacles, violations
from tilescope.planner.pair_tiles import half_of, partial_instructions
from tilescope.planner.planned_tile import barrier_bytes
from tilescope.planner.plans import Plan
from tilescope.planner.problem import Problem
from tilescope.planner.wgmma_sums import share_rows
from tilescope.reading import flag, integer, known_name, pair, plain_int, try_read
from tilescope.rule import rule
from tilescope.sentence import format_value
from tilescope.swizzle import CHUNK_BYTES
from tilescope.sync.thread_limits import MAX_BLOCKS, WARP_THREADS, WARPGROUP_THREADS

Arrivals = Literal["warpgroup", "warp", "thread"]
ARRIVALS: dict[Arrivals, int] = {  # threads that arrive once
    "warpgroup": WARPGROUP_THREADS,
    "warp": WARP_THREADS,
    "thread": 1,
}
LARGEST_STEPS = 1 << 24  # that are described
LARGEST_CONSUMERS = 7

PLAN_PIPELINE = rule(
    "plan-pipeline",
    "A pipeline is planned for plans with the same kind of copy, and with matching stages, consumers and cluster.",
    argument="plan",
    found="{plan}",
    limit="a plan, plans, or a GEMM plan",
    fix="Use ts.plan(…).best, a list of plans, or ts.plan_gemm(…).",
    source="the arguments of plan_pipeline",
    passing='ts.plan_pipeline(ts.plan((64, 64), "bf16").best, stages=2)',
    failing="ts.plan_pipeline([])",
)
TILES_COPIED_UNLIKE = PLAN_PIPELINE.worded(
    found="plans of different directions or copies",
    limit="tiles of a stage arrive together",
    fix='Plan all of them with {direction:="{direction}"}, {copy:="{copy}"}.',
)
NO_PAIR = PLAN_PIPELINE.worded(
    argument="cta_group",
    found="cta_group = {cta_group} with {unit} and {blocks:block} along x",
    limit="pairs of blocks along x multiply by tcgen05",
    fix='Plan with {consumer:="tcgen05"}, and use {cluster:=2}.',
)
CLUSTER_OF_THREADS = PLAN_PIPELINE.worded(
    argument="cluster",
    found="a cluster with copy = {copy}",
    limit="TMA multicasts, threads do not",
    fix="Use {cluster:=1}.",
)
CLUSTER_OF_STORES = PLAN_PIPELINE.worded(
    argument="cluster",
    found="a cluster for a store",
    limit="every block stores its own tile",
    fix="Use {cluster:=1}.",
)
CLUSTER_OF_SPLIT = PLAN_PIPELINE.worded(
    argument="cluster",
    found="cluster = {cluster} for a GEMM whose k is split over {split:block}",
    limit="the blocks that share k are its cluster",
    fix="Use {cluster:=1}, or plan with {split:=1}.",
)
UNEVEN_PARTS = PLAN_PIPELINE.worded(
    argument="cluster",
    found="{tile_bytes} bytes in {parts} parts",
    limit="parts are multiples of 16 bytes",
    fix="Use {multicast:=False}, or {cluster:=1}.",
)
STAGES_EXCEED_SMEM = PLAN_PIPELINE.worded(
    argument="stages",
    found="{stages:stage} of {stage_bytes} bytes",
    limit="a block of {arch} has {limit_bytes} bytes of shared memory for them",
    fix="Use [[at most {fit:stage}, or ]]smaller tiles.",
)
NO_CLUSTER = PLAN_PIPELINE.worded(
    argument="cluster",
    found="cluster = {cluster}",
    limit="a number of blocks, or (x, y), at most {limit_blocks} together",
    fix="Use {cluster:=(2, 1)}.",
)


@dataclass(frozen=True, slots=True)
class Staging:
    """The parsed request."""

    gemm: GemmPlan | None
    tiles: tuple[Plan, ...]  # A, then B, as requested: for a pair the pair's; for a GEMM of pairs one block's
    stages: int
    consumers: int  # warpgroups
    cluster: tuple[int, int]
    cta_group: int
    steps: int
    multicast: bool
    arriving: Arrivals

    @property
    def first(self) -> Problem:
        """The problem of the first tile: all are copied in the same way."""
        return self.tiles[0].problem

    @property
    def takes_turns(self) -> bool:
        """Whether every consumer computes whole tiles."""
        return self.gemm is not None and self.gemm.schedule.ping_pong

    @property
    def by_descriptor(self) -> bool:
        """Whether the tensor core itself reads shared memory."""
        return _core(self.first).reads_by_descriptor

    @property
    def in_tmem(self) -> bool:
        """Whether the accumulators are in tensor memory."""
        return _core(self.first).accumulators == "tensor memory"

    @property
    def by_warpgroups(self) -> bool:
        """Whether warpgroups issue the products and hold the sums."""
        return self.by_descriptor and not self.in_tmem

    @property
    def unit(self) -> str:
        """What multiplies."""
        return _core(self.first).name if self.by_descriptor else "mma"

    @property
    def threads(self) -> int:
        """Threads of a consumer: a warpgroup, or for a GEMM by mma as many warps as share the tile."""
        if self.gemm is None or self.by_descriptor:
            return WARPGROUP_THREADS
        return WARP_THREADS * prod(self.gemm.warps)

    @property
    def arrivals(self) -> int:
        """Arrivals of a consumer at a barrier."""
        return ceil_div(self.threads, ARRIVALS[self.arriving])

    @property
    def blocks(self) -> int:
        """Blocks of the cluster."""
        return prod(self.cluster)

    @property
    def b_sharers(self) -> int:
        """Blocks along x that share B, if there is one: the blocks of a pair have half of it."""
        return self.cluster[0] // self.cta_group if len(self.tiles) > 1 else 1

    @property
    def shares(self) -> bool:
        """Whether blocks load parts for the others."""
        return self.multicast and (self.cluster[1] > 1 or self.b_sharers > 1)

    @property
    def copiers(self) -> int:
        """Threads that arrive at a full barrier."""
        return 1 if self.first.copy == "tma" else WARPGROUP_THREADS

    @property
    def producers(self) -> int:
        """Warps that issue copies."""
        return 1 if self.gemm is None else self.gemm.producers

    @property
    def c_buffers(self) -> int:
        """Buffers of slices of C."""
        return 1 if self.gemm is None else self.gemm.c_buffers

    @property
    def halves(self) -> int:
        """Parts in which the blocks of a pair load the tiles: a GEMM that was planned for pairs has one block's tiles."""
        planned_for_pairs = self.gemm is not None and self.gemm.schedule.cta_group == 2
        return 1 if planned_for_pairs else self.cta_group

    @property
    def accumulators(self) -> int:
        """Accumulators of a GEMM that take turns in tensor memory."""
        return 0 if self.gemm is None else self.gemm.accumulators

    @property
    def answers(self) -> int:
        """Answers of cluster launch control that a block keeps."""
        return 0 if self.gemm is None else self.gemm.schedule.answers

    @property
    def c_stage_bytes(self) -> int:
        """Shared memory of a slice of C in one block: the blocks of a pair have half of its rows each."""
        if self.gemm is None or self.gemm.epilogue is None:
            return 0
        return self.gemm.epilogue.stage_bytes // self.halves

    @property
    def c_stored_bytes(self) -> int:
        """Bytes of a slice of C that one block stores."""
        if self.gemm is None or self.gemm.epilogue is None:
            return 0
        return self.gemm.epilogue.transaction_bytes // self.halves


def _core(problem: Problem) -> Consumer:
    """Who multiplies: threads that read by a pattern do it in place of ldmatrix."""
    return problem.tensor_core or CONSUMER["ldmatrix"]


def read_staging(
    plan: Plan | Sequence[Plan] | GemmPlan,
    *,
    stages: int | None,
    consumers: int | None,
    cluster: int | tuple[int, int],
    cta_group: int,
    arrivals: Arrivals | None,
    multicast: bool,
    steps: int | None,
) -> Staging:
    """The arguments of plan_pipeline, read; every one that cannot be is named."""
    gemm = plan if isinstance(plan, GemmPlan) else None
    tiles = _tiles(plan)
    first = tiles[0].problem
    core = _core(first)
    problems: list[Violation] = []

    def number(argument: str, asked: int | None, usual: int, most: int) -> int:
        return try_read(problems, 1, integer, argument, usual if asked is None else asked, 1, most)

    sums_in_warpgroups = core.reads_by_descriptor and core.accumulators == "registers"
    warpgroups = 1
    if gemm is not None and sums_in_warpgroups:
        warpgroups = 2 if gemm.schedule.ping_pong else share_rows(gemm.sums[0]).groups
    split = 1 if gemm is None else gemm.schedule.split
    if split > 1 and cluster != 1:
        raise CLUSTER_OF_SPLIT.error(cluster=format_value(cluster), split=split)
    if gemm is not None and split == 1 and (cluster, cta_group) == (1, 1):
        cluster, cta_group = gemm.schedule.cluster, gemm.schedule.cta_group
    usual_arrivals = "warpgroup" if core.reads_by_descriptor else "warp"
    arriving = usual_arrivals if arrivals is None else arrivals
    read_stages = number("stages", stages, first.stages if gemm is None else gemm.stages, MAX_STAGES)
    staging = Staging(
        gemm=gemm,
        tiles=tiles,
        stages=read_stages,
        consumers=number("consumers", consumers, warpgroups, LARGEST_CONSUMERS),
        cluster=(split, 1) if split > 1 else try_read(problems, (1, 1), _cluster, cluster),
        cta_group=number("cta_group", cta_group, 1, 2),
        steps=number("steps", steps, 4 * read_stages + 2, LARGEST_STEPS),
        multicast=split == 1 and try_read(problems, False, flag, "multicast", multicast),
        arriving=try_read(problems, "thread", known_name, "arrivals", arriving, ARRIVALS),
    )
    raise_all(problems)
    return staging


def _tiles(plan: object) -> tuple[Plan, ...]:
    """The plans whose tiles share a stage."""
    if isinstance(plan, GemmPlan):
        return plan.a, plan.b
    listed = tuple(plan) if isinstance(plan, list | tuple) else (plan,)
    tiles = tuple(tile for tile in listed if isinstance(tile, Plan))
    if not tiles or len(tiles) < len(listed):
        raise PLAN_PIPELINE.error(plan=format_value(plan))
    return tiles


def _cluster(cluster: object) -> tuple[int, int]:
    """Blocks along x and along y."""
    extents = cluster if plain_int(cluster) is None else (cluster, 1)
    blocks = or_obstacles(pair, "cluster", extents, 1, MAX_BLOCKS)
    if isinstance(blocks, list) or prod(blocks) > MAX_BLOCKS:
        raise NO_CLUSTER.error(cluster=format_value(cluster), limit_blocks=MAX_BLOCKS)
    return blocks


def plans_of_a_block(staging: Staging) -> tuple[Plan, ...]:
    """The part of every tile that one block loads; PlanError if the tiles do not match, or do not fit a block."""
    if contradictions := violations(_contradictions(staging)):
        raise PlanError(contradictions)
    plans = staging.tiles
    if staging.halves == 2:
        plans = tuple(half_of(tile) for tile in staging.tiles)
    if beyond := violations([*_beyond_shared_memory(staging, plans), *_uneven_parts(staging, plans)]):
        raise PlanError(beyond)
    return plans


def _contradictions(staging: Staging) -> Iterator[Violation]:
    """Plans and blocks that do not go together."""
    direction = staging.first.direction
    copy = staging.first.copy
    across = staging.cluster[0]
    if any((tile.problem.direction, tile.problem.copy) != (direction, copy) for tile in staging.tiles):
        yield TILES_COPIED_UNLIKE.violation(direction=direction, copy=copy)
    unpaired = staging.cta_group == 2 and (not staging.in_tmem or across % 2 == 1)
    if unpaired:
        yield NO_PAIR.violation(cta_group=2, unit=staging.unit, blocks=across)
    if staging.blocks > 1 and copy != "tma":
        yield CLUSTER_OF_THREADS.violation(copy=copy)
    if staging.blocks > 1 and direction == "store":
        yield CLUSTER_OF_STORES.violation()
    is_planned = staging.gemm is not None and staging.gemm.schedule.cta_group == staging.cta_group  # and checked then
    if staging.in_tmem and direction == "load" and not unpaired and not is_planned:
        yield from partial_instructions(staging.tiles, staging.cta_group)


def _beyond_shared_memory(staging: Staging, plans: tuple[Plan, ...]) -> Iterator[Violation]:
    """Refuse stages that exceed what a GEMM's epilogue leaves of a block's shared memory."""
    arch = staging.first.arch
    scales = () if staging.gemm is None else staging.gemm.scale_plans
    stage_bytes = sum(plan.stage_bytes for plan in plans) + barrier_bytes(staging.first)
    stage_bytes += sum(scale.stage_bytes for scale in scales)
    storing_groups = staging.consumers if staging.takes_turns else 1
    limit = arch.smem_per_block_bytes - storing_groups * staging.c_buffers * staging.c_stage_bytes
    if staging.stages * stage_bytes > limit:
        yield STAGES_EXCEED_SMEM.violation(
            stages=staging.stages,
            stage_bytes=stage_bytes,
            arch=arch.name,
            limit_bytes=limit,
            fit=limit // stage_bytes or None,
        )


def _uneven_parts(staging: Staging, plans: tuple[Plan, ...]) -> Iterator[Violation]:
    """Refuse tiles that the blocks sharing them cannot load in equal parts."""
    sharers = (staging.cluster[1], staging.b_sharers)
    for plan, parts in zip(plans, sharers, strict=False):
        if staging.multicast and parts and plan.transaction_bytes % (CHUNK_BYTES * parts):
            yield UNEVEN_PARTS.violation(tile_bytes=plan.transaction_bytes, parts=parts)
