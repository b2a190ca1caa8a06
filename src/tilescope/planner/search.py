"""From a problem to plans: every candidate is tried, refused with its reasons or kept with its costs, and ranked.

swizzle x atom order x box split ──▶ rules of the map, of the consumer, of shared memory ──▶ refused: why
                                                      │
                                                      ▼
                       costs ──▶ ranked: time, conflicts, request, copies, shared memory ──▶ proof in the emulator

`plan` proves every candidate. A GEMM asks for the best plan of many tiles and proves the three that it uses.
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
from tilescope.planner import reasons
from tilescope.planner.boxes import Boxes, Consumed, fold, map_arguments, misplaced, proven, split, unfoldable
from tilescope.planner.consumers import (
    UNCOUNTED,
    Wavefronts,
    cheapest,
    containers_for,
    counted_accesses,
    element_layout,
    swizzles_for,
)
from tilescope.planner.plans import RESERVED_BYTES, Costs, Plan, barrier_bytes, blocks_per_sm, stage_bytes
from tilescope.planner.problem import CopyName, Direction, Operand, Problem, Traffic
from tilescope.planner.reason import Obstacle, or_obstacles, plan_rule, violations
from tilescope.smem.access import Access
from tilescope.swizzle import SMEM_LINE_BYTES, Swizzle, SwizzleName
from tilescope.tensor_map import Copy, TensorMap, broken_by
from tilescope.tensor_map.option import L2PromotionName
from tilescope.value import Value, row_field

BEST_PROMOTION: dict[Traffic, L2PromotionName] = {"dense": "128B", "sparse": "none"}  # sparse: fetch no neighbours


class Refused(NamedTuple):
    """A candidate before its sentences are made: GEMMs try many, and print few."""

    swizzle: Swizzle
    atom_order: AtomOrder
    folded: bool
    obstacles: list[Obstacle]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal(Value):
    """A candidate that was refused, and why."""

    swizzle: Swizzle = row_field(Swizzle.named)
    atom_order: AtomOrder
    folded: bool
    violations: tuple[Violation, ...]


@dataclass(frozen=True, slots=True)
class Unplanned(Value):
    """A tile or a product for which there is no plan at all, and why."""

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
        return reasons.behind(candidate, self.best).sentence


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
    """What to do with a tile of (mn, k) elements: every way to bring it to its consumer, proven and ranked.

    None: the card's architecture (without either: sm_90 and an H200), its own tensor core, TMA where it exists.

    >>> best = plan((128, 64), "bf16").best
    >>> best.swizzle.name, best.box, best.gmem_request_bytes
    ('128B', (64, 128), 128)
    """
    problem = Problem(**locals())  # the arguments of a Problem are those of plan
    plans, refused = candidates(problem)
    views = {(plan.swizzle, plan.atom_order): plan for plan in plans}  # box splits of one layout share it
    consumed = {key: Consumed.of(plan) for key, plan in views.items()}
    refusals = (
        Refusal(
            swizzle=candidate.swizzle,
            atom_order=candidate.atom_order,
            folded=candidate.folded,
            violations=violations(candidate.obstacles),
        )
        for candidate in refused
    )
    proofs = (proven(plan, consumed[plan.swizzle, plan.atom_order]) for plan in plans)
    return PlanReport(problem, tuple(proofs), tuple(refusals))


def candidates(problem: Problem) -> tuple[list[Plan], list[Refused]]:
    """The plans of a problem, best first, not proven yet; and the refused candidates."""
    tried = list(_candidates(problem))
    kept = [candidate for candidate in tried if isinstance(candidate, Plan)]
    return reasons.ranked(kept), [candidate for candidate in tried if isinstance(candidate, Refused)]


def _candidates(problem: Problem) -> Iterator[Plan | Refused]:
    accesses = or_obstacles(counted_accesses, problem)
    orders = ATOM_ORDERS if problem.atom_order is None else (problem.atom_order,)
    tried = {
        key: or_obstacles(containers_for, problem, *key) for key in itertools.product(swizzles_for(problem), orders)
    }
    layouts = {key: layout for key, layout in tried.items() if isinstance(layout, Layout)}
    access, counts = cheapest(accesses if isinstance(accesses, tuple) else (), layouts)
    for key, layout in tried.items():
        counted = counts.get(key, UNCOUNTED)
        if isinstance(layout, list):
            yield Refused(*key, False, layout)
        elif problem.atom_order is None and layout.atom_order != key[1]:
            continue  # one atom wide or high: the same as in column order
        elif obstacles := _beyond_shared_memory(problem, layout) or (accesses if isinstance(accesses, list) else []):
            yield Refused(*key, False, obstacles)
        elif isinstance(counted, list):
            yield Refused(*key, False, counted)
        else:
            for boxes in _box_splits(problem, layout):
                yield _candidate(problem, layout, boxes, counted, access)


# fmt: off
_BLOCK_LIMIT = "a block of {arch} has {limit_bytes} bytes of shared memory (and {reserved_bytes} reserved)"
PLAN_SMEM = plan_rule(
    "plan-smem", "All stages and their mbarriers fit into the shared memory of a block.", "CUDA programming guide, compute capabilities",
    'ts.plan((128, 64), "bf16", stages=14).best', 'ts.plan((128, 64), "bf16", stages=15).best',
    tile=("{needed_bytes} bytes", _BLOCK_LIMIT, "Use a tile of {smaller: x }."),
    stages=("{stages} x {stage_bytes}[ and {barrier_bytes} of mbarriers] = {needed_bytes} bytes", _BLOCK_LIMIT, "Use stages={fit}."),
    slice=("{needed_bytes} bytes", _BLOCK_LIMIT, "Use n = {up}: C is then stored {span} columns at a time. Or use a smaller tile."),
)
# fmt: on


def _beyond_shared_memory(problem: Problem, layout: Layout) -> list[Obstacle]:
    """Refuse stages that exceed a block's shared memory."""
    barrier, stage, limit = barrier_bytes(problem), stage_bytes(layout), problem.arch.smem_per_block_bytes
    needed, fit = problem.stages * (stage + barrier), limit // (stage + barrier)
    if needed <= limit:
        return []
    told = {"needed_bytes": needed, "arch": problem.arch.name, "limit_bytes": limit, "reserved_bytes": RESERVED_BYTES}
    if fit:
        told |= {"stages": problem.stages, "stage_bytes": stage, "barrier_bytes": problem.stages * barrier, "fit": fit}
        return [PLAN_SMEM.broken("stages", "stages", **told)]
    smaller, size = list(problem.tile), stage
    while problem.stages * (size + barrier) > limit:  # half of the longer extent, until it fits
        longer = smaller.index(max(smaller))
        smaller[longer], size = smaller[longer] // 2, size // 2
    return [PLAN_SMEM.broken("tile", "tile", smaller=tuple(smaller), **told)]


def _box_splits(problem: Problem, layout: Layout) -> tuple[Boxes | None, ...]:
    """The box splits of a layout; None for a copy by threads."""
    if problem.copy != "tma":
        return (None,)
    unfolded = split(layout)
    return (*unfolded, fold(layout)) if problem.fold and len(unfolded[0].copies) > 1 else unfolded


def _candidate(
    problem: Problem, layout: Layout, boxes: Boxes | None, counted: Wavefronts, access: str
) -> Plan | Refused:
    tile, warnings = layout.as_rows().tiling, tuple[Violation, ...]()
    if boxes is not None:
        obstacles, warnings = _copy_obstacles(problem, layout, boxes)
        if obstacles:
            return Refused(layout.swizzle, tile.atom_order, boxes.folded, obstacles)
    lines = ceil_div(layout.size_bytes, SMEM_LINE_BYTES)  # threads write whole ones, in their order
    by_threads = Wavefronts(lines, lines) if boxes is None else UNCOUNTED
    read, written = (UNCOUNTED, counted) if problem.direction == "store" else (counted, by_threads)
    canonical = canonical_layout(problem.major, layout.swizzle, problem.data_type) if problem.for_tensor_core else None
    bases = {problem.arch.basis, layout.swizzle.basis}
    bases |= {problem.tensor_core.basis(canonical)} if problem.tensor_core is not None else set()
    request = min(tile.atom[1] * problem.data_type.bits // 8, REQUEST_BYTES)
    costs = Costs(
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
        **_rates(problem, boxes, request, blocks_per_sm(problem, layout), issuers=1),
        access=access,
    )
    return Plan(
        problem=problem,
        swizzle=layout.swizzle,
        atom_order=tile.atom_order,
        layout=element_layout(problem, layout),
        boxes=boxes,
        l2_promotion=BEST_PROMOTION[problem.traffic],
        costs=costs,
        basis="measured" if bases == {"measured"} else "documented",
        canonical=canonical,
        warnings=warnings,
    )


def _copy_obstacles(problem: Problem, layout: Layout, boxes: Boxes) -> tuple[list[Obstacle], tuple[Violation, ...]]:
    """Why a tile cannot be copied in these boxes, and what the rules warn of if it can."""
    shape = problem.global_shape or problem.tile
    obstacles = [*misplaced(layout, boxes), *(unfoldable(problem, layout, shape) if boxes.folded else ())]
    try:
        arguments = map_arguments(problem, layout, boxes, shape, problem.strides_bytes)
        tensor_map = TensorMap(**arguments, l2_promotion=BEST_PROMOTION[problem.traffic])
    except TensorMapError as error:
        return obstacles + [broken for broken in error.violations if broken.severity == "error"], ()
    for copy in (boxes.copies[-1], boxes.copies[0]):
        obstacles = obstacles or list(broken_by(Copy(tensor_map, problem.direction, copy.coords)))
    return obstacles, tuple(warning for warning in tensor_map.findings if warning.severity == "warning")


def _rates(problem: Problem, boxes: Boxes | None, request_bytes: int, blocks: int, issuers: int) -> dict[str, Any]:
    """What the card's table says of a candidate's copies, with these blocks on an SM and issuing threads in a block."""
    moved, card = problem.moved_bytes, problem.card
    rate = share = None
    if card is not None and boxes is None:
        rate = card.memory_gb_per_s * sector_share(request_bytes)
    elif card is not None and card.tma is not None and boxes is not None:
        shape: Any = {
            "tile_bytes": moved,
            "box_rows": boxes.rows,
            "boxes": len(boxes.copies),
            "issuers": blocks * issuers,
        }
        loaded = request_bytes, BEST_PROMOTION[problem.traffic], blocks * problem.stages * moved
        rate = card.tma.load(*loaded, **shape) if problem.direction == "load" else card.tma.store(request_bytes)
        share = rate / card.tma.fastest(problem.direction)
    bytes_a_cycle = rate * 1e3 / card.sms / card.clock_mhz if rate and card is not None and card.clock_mhz else None
    cycles = None if bytes_a_cycle is None else round(moved / bytes_a_cycle)
    return {"gb_per_s": rate, "bandwidth_share": share, "gmem_cycles": cycles}


def weighed_for(candidates: Iterable[Plan], *, blocks_per_sm: int, issuers: Mapping[int, int]) -> list[Plan]:
    """Candidates ranked anew for a kernel with `blocks_per_sm` blocks; `issuers[n]` threads of a block issue n copies."""

    def weighed(plan: Plan) -> Costs:
        kernel = blocks_per_sm, issuers[plan.tma_instructions]
        return replace(plan.costs, **_rates(plan.problem, plan.boxes, plan.gmem_request_bytes, *kernel))

    return reasons.ranked([replace(plan, costs=weighed(plan)) for plan in candidates])
