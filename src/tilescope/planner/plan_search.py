"""From a problem to plans: every candidate is tried, refused with its reasons or kept with its costs, and ranked.

swizzle x atom order x box split ──▶ rules of the map, of the consumer, of shared memory ──▶ refused: why
                                                      │
                                                      ▼
                       costs ──▶ ranked: time, conflicts, request, copies, shared memory ──▶ proof in the emulator

`plan` proves every candidate. A GEMM searches the best plan of many tiles and proves only the three that it uses.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tilescope.arch import Arch, ArchName
from tilescope.arithmetic import ceil_div
from tilescope.card import REQUEST_BYTES, Card, CardName, sector_share
from tilescope.errors import PlanError, TensorMapError, Violation
from tilescope.layout import ATOM_ORDERS, AtomOrder, Layout, Major
from tilescope.mma.canonical import canonical_layout
from tilescope.planner import plan_reasons
from tilescope.planner.boxes import Boxes, find_misplaced_boxes, fold, map_arguments, split, unfoldable
from tilescope.planner.consumers import (
    UNCOUNTED,
    Wavefronts,
    cheapest,
    containers_for,
    counted_accesses,
    element_layout,
    swizzles_for,
)
from tilescope.planner.obstacle import Broken, Obstacle, broken, or_obstacles, violations
from tilescope.planner.planned_tile import RESERVED_BYTES, Costs, barrier_bytes, blocks_per_sm, stage_bytes
from tilescope.planner.plans import Plan
from tilescope.planner.problem import CopyName, Direction, Operand, Problem, Traffic
from tilescope.planner.proof import Consumed, proven
from tilescope.rule import rule
from tilescope.smem.access import Access
from tilescope.swizzle import SMEM_LINE_BYTES, Swizzle, SwizzleName
from tilescope.tensor_map import Copy, TensorMap, broken_by
from tilescope.tensor_map.option import L2PromotionName
from tilescope.value import Value, row_field

BEST_PROMOTION: dict[Traffic, L2PromotionName] = {"dense": "128B", "sparse": "none"}  # sparse: fetch no neighbours


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal(Value):
    """A refused candidate with its reasons."""

    swizzle: Swizzle = row_field(Swizzle.named)
    atom_order: AtomOrder
    folded: bool
    violations: tuple[Violation, ...]


class Refused(NamedTuple):
    """A candidate before its sentences are made: GEMMs try many, and print few."""

    swizzle: Swizzle
    atom_order: AtomOrder
    folded: bool
    obstacles: list[Obstacle]

    def refusal(self) -> Refusal:
        """The candidate with its sentences."""
        return Refusal(
            swizzle=self.swizzle,
            atom_order=self.atom_order,
            folded=self.folded,
            violations=violations(self.obstacles),
        )


@dataclass(frozen=True, slots=True)
class Unplanned(Value):
    """A tile or a product without a plan, and the reasons."""

    asked: str
    violations: tuple[Violation, ...]


@dataclass(frozen=True, slots=True)
class PlanReport(Value):
    """All plans of a problem, best first, and all refused candidates with their reasons.

    >>> report = plan((64, 32), "bf16", consumer="ldmatrix")
    >>> report.best.swizzle.name, len(report.candidates) > 3, report.refused[0].violations[0].rule
    ('64B', True, 'tile-atoms')
    """

    problem: Problem
    candidates: tuple[Plan, ...]
    refused: tuple[Refusal, ...]

    @property
    def best(self) -> Plan:
        """The first plan; PlanError with every refusal's reasons when none is left."""
        if not self.candidates:
            listed = (violation for refusal in self.refused for violation in refusal.violations)
            raise PlanError({violation.rule + violation.found: violation for violation in listed}.values())
        return self.candidates[0]

    def why(self, candidate: Plan) -> str:
        """Why this candidate does not come first: a sentence about the first term in which it differs."""
        return plan_reasons.behind(candidate, self.best).sentence


def plan(
    tile: tuple[int, int],
    data_type: Any,
    *,
    major: Major = "K",
    consumer: str | Access | None = None,
    arch: ArchName | Arch | None = None,
    card: CardName | Card | None = None,
    swizzle: SwizzleName | Swizzle | None = None,
    atom_order: AtomOrder | None = None,
    operand: Operand | None = None,
    stages: int = 1,
    copy: CopyName | None = None,
    direction: Direction = "load",
    traffic: Traffic = "dense",
    fold: bool = False,
    global_shape: tuple[int, int] | None = None,
    strides_bytes: tuple[int, ...] | None = None,
) -> PlanReport:
    """Plans for a tile of (mn, k) elements: every way to load it for its consumer, proven and ranked.

    Defaults (None) are the architecture of the card (sm_90 and an H200 without either), its tensor core, and TMA if it exists.

    >>> best = plan((128, 64), "bf16").best
    >>> best.swizzle.name, best.box, best.gmem_request_bytes
    ('128B', (64, 128), 128)
    """
    problem = Problem(
        tile,
        data_type,
        major=major,
        consumer=consumer,
        arch=arch,
        card=card,
        swizzle=swizzle,
        atom_order=atom_order,
        operand=operand,
        stages=stages,
        copy=copy,
        direction=direction,
        traffic=traffic,
        fold=fold,
        global_shape=global_shape,
        strides_bytes=strides_bytes,
    )
    plans, refused = candidates(problem)
    views = {(plan.swizzle, plan.atom_order): plan for plan in plans}  # box splits of one layout share it
    consumed = {key: Consumed.of(plan) for key, plan in views.items()}
    proofs = tuple(proven(plan, consumed[plan.swizzle, plan.atom_order]) for plan in plans)
    return PlanReport(problem, proofs, tuple(candidate.refusal() for candidate in refused))


class Candidates(NamedTuple):
    """What was tried for a problem."""

    plans: list[Plan]  # best first, not proven yet
    refused: list[Refused]

    def obstacles(self) -> Iterator[Obstacle]:
        """The obstacles of the refused candidates."""
        return (obstacle for candidate in self.refused for obstacle in candidate.obstacles)


def candidates(problem: Problem) -> Candidates:
    """The plans of a problem, best first, not proven yet; and the refused candidates."""
    tried = list(_candidates(problem))
    plans = [candidate for candidate in tried if isinstance(candidate, Plan)]
    refused = [candidate for candidate in tried if isinstance(candidate, Refused)]
    return Candidates(plan_reasons.rank_plans(plans), refused)


def _candidates(problem: Problem) -> Iterator[Plan | Refused]:
    """Every swizzle and atom order, in every split into boxes."""
    accesses = or_obstacles(counted_accesses, problem)
    orders = ATOM_ORDERS if problem.atom_order is None else (problem.atom_order,)
    tried = {
        (swizzle, order): or_obstacles(containers_for, problem, swizzle, order)
        for swizzle, order in itertools.product(swizzles_for(problem), orders)
    }
    layouts = {key: layout for key, layout in tried.items() if isinstance(layout, Layout)}
    access, counts = cheapest(accesses if isinstance(accesses, tuple) else (), layouts)
    for (swizzle, order), layout in tried.items():
        if isinstance(layout, list):
            yield Refused(swizzle, order, False, layout)
            continue
        if problem.atom_order is None and layout.atom_order != order:
            continue  # one atom wide or high: the same as in column order
        counted = counts[swizzle, order]
        obstacles: list[Obstacle] = [*_beyond_shared_memory(problem, layout)]
        if not obstacles and isinstance(accesses, list):
            obstacles = accesses
        if obstacles:
            yield Refused(swizzle, order, False, obstacles)
        elif isinstance(counted, list):
            yield Refused(swizzle, order, False, counted)
        else:
            for boxes in _box_splits(problem, layout):
                yield _candidate(problem, layout, boxes, counted, access)


_BLOCK_LIMIT = "a block of {arch} has {limit_bytes} bytes of shared memory (and {reserved_bytes} reserved)"
PLAN_SMEM = rule(
    "plan-smem",
    "All stages and their mbarriers fit into the shared memory of a block.",
    argument="stages",
    found="[[{matrix}: ]]{stages} x {stage_bytes}[[ and {barrier_bytes} of mbarriers]] = {needed_bytes} bytes",
    limit=_BLOCK_LIMIT,
    fix="Use {stages:={fit}}.",
    source="CUDA programming guide, compute capabilities",
    passing='ts.plan((128, 64), "bf16", stages=14).best',
    failing='ts.plan((128, 64), "bf16", stages=15).best',
)
TILE_EXCEEDS_SMEM = PLAN_SMEM.worded(
    argument="tile",
    found="[[{matrix}: ]]{needed_bytes} bytes",
    fix="Use a tile of {smaller: x }.",
)
SLICE_EXCEEDS_SMEM = PLAN_SMEM.worded(
    argument="tile",
    found="[[{matrix}: ]]{needed_bytes} bytes",
    fix="Use n = {up}: C is then stored {span} columns at a time. Or use a smaller tile.",
)


def _beyond_shared_memory(problem: Problem, layout: Layout) -> list[Broken]:
    """Refuse stages that exceed a block's shared memory."""
    barrier = barrier_bytes(problem)
    stage = stage_bytes(layout)
    limit = problem.arch.smem_per_block_bytes
    needed = problem.stages * (stage + barrier)
    if needed <= limit:
        return []
    fit = limit // (stage + barrier)
    if fit:
        return [
            broken(
                PLAN_SMEM,
                needed_bytes=needed,
                arch=problem.arch.name,
                limit_bytes=limit,
                reserved_bytes=RESERVED_BYTES,
                stages=problem.stages,
                stage_bytes=stage,
                barrier_bytes=problem.stages * barrier,
                fit=fit,
            )
        ]
    return [
        broken(
            TILE_EXCEEDS_SMEM,
            smaller=_smaller_tile(problem, stage, barrier),
            needed_bytes=needed,
            arch=problem.arch.name,
            limit_bytes=limit,
            reserved_bytes=RESERVED_BYTES,
        )
    ]


def _smaller_tile(problem: Problem, stage: int, barrier: int) -> tuple[int, int]:
    """The tile with half of its longer extent, until all stages fit."""
    mn, k = problem.tile
    while problem.stages * (stage + barrier) > problem.arch.smem_per_block_bytes:
        if mn >= k:
            mn //= 2
        else:
            k //= 2
        stage //= 2
    return mn, k


def _box_splits(problem: Problem, layout: Layout) -> tuple[Boxes | None, ...]:
    """The box splits of a layout; None for a copy by threads."""
    if problem.copy != "tma":
        return (None,)
    unfolded = split(layout)
    if problem.fold and len(unfolded[0].copies) > 1:
        return (*unfolded, fold(layout))
    return unfolded


def _candidate(
    problem: Problem, layout: Layout, boxes: Boxes | None, counted: Wavefronts, access: str
) -> Plan | Refused:
    """The plan of a layout in these boxes, or why they cannot be copied."""
    tile = layout.as_rows().tiling
    warnings: tuple[Violation, ...] = ()
    if boxes is not None:
        obstacles, warnings = _copy_obstacles(problem, layout, boxes)
        if obstacles:
            return Refused(layout.swizzle, tile.atom_order, boxes.folded, obstacles)
    canonical = canonical_layout(problem.major, layout.swizzle, problem.data_type) if problem.for_tensor_core else None
    bases = {problem.arch.basis, layout.swizzle.basis}
    if problem.tensor_core is not None:
        bases.add(problem.tensor_core.basis(canonical))
    return Plan(
        problem=problem,
        swizzle=layout.swizzle,
        atom_order=tile.atom_order,
        layout=element_layout(problem, layout),
        boxes=boxes,
        l2_promotion=BEST_PROMOTION[problem.traffic],
        costs=_costs(problem, layout, boxes, counted, access),
        basis="measured" if bases == {"measured"} else "documented",
        canonical=canonical,
        warnings=warnings,
    )


def _costs(problem: Problem, layout: Layout, boxes: Boxes | None, counted: Wavefronts, access: str) -> Costs:
    """What a candidate costs; `counted` are the consumer's reads, for a store the epilogue's writes."""
    if problem.direction == "store":
        read = UNCOUNTED
        written = counted
    else:
        read = counted
        lines = ceil_div(layout.size_bytes, SMEM_LINE_BYTES)  # threads write whole ones, in their order
        written = Wavefronts(lines, lines) if boxes is None else UNCOUNTED
    request = min(layout.as_rows().tiling.atom[1] * problem.data_type.bits // 8, REQUEST_BYTES)
    rates = _rates(problem, boxes, request, blocks_per_sm(problem, layout), issuers=1)
    return Costs(
        tma_instructions=0 if boxes is None else len(boxes.copies),
        gmem_request_bytes=request,
        smem_bytes=layout.size_bytes,
        waste_bytes=layout.size_bytes - problem.rows * problem.row_bytes,
        smem_alignment_bytes=layout.alignment_bytes,
        transaction_bytes=problem.moved_bytes,
        read_wavefronts=read.taken,
        read_ideal=read.ideal,
        write_wavefronts=written.taken,
        write_ideal=written.ideal,
        gb_per_s=rates.gb_per_s,
        bandwidth_share=rates.bandwidth_share,
        gmem_cycles=rates.gmem_cycles,
        access=access,
    )


def _copy_obstacles(problem: Problem, layout: Layout, boxes: Boxes) -> tuple[list[Obstacle], tuple[Violation, ...]]:
    """Why a tile cannot be copied in these boxes, and what the rules warn of if it can."""
    shape = problem.global_shape or problem.tile
    obstacles: list[Obstacle] = [*find_misplaced_boxes(layout, boxes)]
    if boxes.folded:
        obstacles += unfoldable(problem, layout, shape)
    arguments = map_arguments(problem, layout, boxes, shape, problem.strides_bytes)
    try:
        tensor_map = TensorMap(**arguments, l2_promotion=BEST_PROMOTION[problem.traffic])
    except TensorMapError as error:
        return obstacles + [violation for violation in error.violations if violation.severity == "error"], ()
    for copy in (boxes.copies[-1], boxes.copies[0]):
        obstacles = obstacles or list(broken_by(Copy(tensor_map, problem.direction, copy.coords)))
    return obstacles, tuple(warning for warning in tensor_map.findings if warning.severity == "warning")


class Rates(NamedTuple):
    """The card table's rate of a candidate's copies; None: not known."""

    gb_per_s: float | None
    bandwidth_share: float | None
    gmem_cycles: int | None


def _rates(problem: Problem, boxes: Boxes | None, request_bytes: int, blocks: int, *, issuers: int) -> Rates:
    """The rates with these blocks on an SM and issuing threads in a block."""
    card = problem.card
    tma = None if card is None else card.tma
    if card is None or (boxes is not None and tma is None):
        return Rates(None, None, None)
    moved = problem.moved_bytes
    share = None
    if boxes is None or tma is None:
        rate = card.memory_gb_per_s * sector_share(request_bytes)
    else:
        if problem.direction == "store":
            rate = tma.store(request_bytes)
        else:
            rate = tma.load(
                request_bytes,
                BEST_PROMOTION[problem.traffic],
                blocks * problem.stages * moved,
                tile_bytes=moved,
                box_rows=boxes.rows,
                boxes=len(boxes.copies),
                issuers=blocks * issuers,
            )
        share = rate / tma.fastest(problem.direction)
    if not rate or not card.clock_mhz:
        return Rates(rate, share, None)
    bytes_a_cycle = rate * 1e3 / card.sms / card.clock_mhz
    return Rates(rate, share, round(moved / bytes_a_cycle))


def weighed_for(candidates: Iterable[Plan], *, blocks_per_sm: int, issuers: Mapping[int, int]) -> list[Plan]:
    """Candidates ranked anew for a kernel with `blocks_per_sm` blocks; `issuers[n]` threads of a block issue n copies."""
    weighed = []
    for plan in candidates:
        threads = issuers[plan.tma_instructions]
        rates = _rates(plan.problem, plan.boxes, plan.gmem_request_bytes, blocks_per_sm, issuers=threads)
        costs = replace(
            plan.costs,
            gb_per_s=rates.gb_per_s,
            bandwidth_share=rates.bandwidth_share,
            gmem_cycles=rates.gmem_cycles,
        )
        weighed.append(replace(plan, costs=costs))
    return plan_reasons.rank_plans(weighed)
