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
from typing import Any

from tilescope.arch import Arch, ArchName
from tilescope.card import REQUEST_BYTES, Card, CardName, sector_share
from tilescope.errors import PlanError, RuleError, TensorMapError, Violation
from tilescope.layout import ATOM_ORDERS, AtomOrder, Layout, Major
from tilescope.mma.canonical import CanonicalLayout
from tilescope.planner import reasons
from tilescope.planner.boxes import Boxes, fold, map_arguments, misplaced, split, unfoldable
from tilescope.planner.consumers import (
    UNCOUNTED,
    Wavefronts,
    cheapest,
    counted_accesses,
    layout_for,
    or_error,
    swizzles_for,
    wavefronts_on,
)
from tilescope.planner.plans import Costs, Plan, blocks_per_sm, require_shared_memory
from tilescope.planner.problem import EXTENT_NAMES, CopyName, Direction, Operand, Problem, Traffic
from tilescope.planner.proof import Consumed, prove
from tilescope.planner.refusal import Refusal
from tilescope.smem.access import Access
from tilescope.swizzle import SMEM_LINE_BYTES, Swizzle, SwizzleName
from tilescope.tensor_map import Copy, TensorMap, broken_by
from tilescope.tensor_map.option import L2PromotionName
from tilescope.value import Value

BEST_PROMOTION: dict[Traffic, L2PromotionName] = {"dense": "128B", "sparse": "none"}  # sparse: fetch no neighbours


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
            distinct = {
                violation.rule + violation.found: violation
                for refusal in self.refused
                for violation in refusal.violations
            }
            raise PlanError(distinct.values())
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
    return planned(Problem(**locals()))


def planned(problem: Problem) -> PlanReport:
    """The report of a problem, every candidate proven."""
    plans, refused = candidates(problem)
    views: dict[tuple[Swizzle, AtomOrder], Consumed] = {}  # box splits of one layout share it
    for candidate in plans:
        key = candidate.swizzle, candidate.atom_order
        views[key] = views.get(key) or Consumed.of(problem, candidate.layout)
        prove(candidate, views[key])
    return PlanReport(problem, tuple(plans), tuple(refused))


def candidates(problem: Problem) -> tuple[list[Plan], list[Refusal]]:
    """The plans of a problem, best first, not proven yet; and the refused candidates."""
    kept: list[Plan] = []
    refused: list[Refusal] = []
    accesses = or_error(counted_accesses, problem)
    if isinstance(accesses, RuleError):
        accesses = RuleError(_with_extents(problem, violation) for violation in accesses.violations)
    orders = ATOM_ORDERS if problem.atom_order is None else (problem.atom_order,)
    tried = {key: or_error(layout_for, problem, *key) for key in itertools.product(swizzles_for(problem), orders)}
    layouts = {key: laid[0] for key, laid in tried.items() if isinstance(laid, tuple)}
    access, counts = cheapest(accesses if isinstance(accesses, tuple) else (), layouts)
    for key, laid in tried.items():
        room = or_error(require_shared_memory, problem, layouts[key]) if key in layouts else None
        counted = counts.get(key, UNCOUNTED)
        stopped = next((reason for reason in (laid, room, counted, accesses) if isinstance(reason, RuleError)), None)
        if problem.atom_order is None and key in layouts and layouts[key].atom_order != key[1]:
            continue  # one atom wide or high: the same as in column order
        if stopped is not None:
            refused.append(Refusal(swizzle=key[0], atom_order=key[1], folded=False, violations=stopped.violations))
            continue
        assert isinstance(laid, tuple)
        assert isinstance(counted, Wavefronts)
        for boxes in _ways(problem, laid[0]):
            candidate = _candidate(problem, *laid, boxes, counted, access)
            (refused if isinstance(candidate, Refusal) else kept).append(candidate)  # type: ignore[arg-type]
    return reasons.ranked(kept), refused


def _with_extents(problem: Problem, violation: Violation) -> Violation:
    """What a pattern says of rows x columns, with the names of these extents where they are not in the tile's order."""
    if violation.argument != "tile" or problem.row_names == EXTENT_NAMES[problem.direction]:
        return violation
    return replace(violation, found=f"{violation.found} ({' x '.join(problem.row_names)})")


def _ways(problem: Problem, layout: Layout) -> Iterator[Boxes | None]:
    """The box splits of a layout; None for a copy by threads."""
    if problem.copy != "tma":
        yield None
        return
    unfolded = split(layout)
    yield from unfolded
    if problem.fold and len(unfolded[0].copies) > 1:
        yield fold(layout)


def _candidate(
    problem: Problem,
    layout: Layout,
    canonical: CanonicalLayout | None,
    boxes: Boxes | None,
    counted: Wavefronts,
    access: str,
) -> Plan | Refusal:
    tile, promotion = layout.as_rows().tiling, BEST_PROMOTION[problem.traffic]
    warnings: tuple[Violation, ...] = ()
    if boxes is not None:
        violations, warnings = _of_copies(problem, layout, boxes, promotion)
        if violations:
            return Refusal(
                swizzle=layout.swizzle, atom_order=tile.atom_order, folded=boxes.folded, violations=tuple(violations)
            )
    read, written = counted, _thread_writes(layout) if boxes is None else UNCOUNTED
    if problem.direction == "store":
        read, written = UNCOUNTED, counted
    bases = {problem.arch.basis, layout.swizzle.basis}
    bases |= {problem.tensor_core.basis(canonical)} if problem.tensor_core is not None else set()
    costs = Costs(
        tma_instructions=0 if boxes is None else len(boxes.copies),
        gmem_request_bytes=min(tile.atom[1] * problem.data_type.bits // 8, REQUEST_BYTES),
        smem_bytes=layout.size_bytes,
        waste_bytes=layout.size_bytes - problem.rows * problem.row_bytes,
        smem_alignment_bytes=layout.alignment_bytes,
        transaction_bytes=problem.moved_bytes,
        read_wavefronts=read.taken, read_ideal=read.ideal, write_wavefronts=written.taken, write_ideal=written.ideal,
        **_rates(problem, layout, boxes, promotion, blocks_per_sm(problem, layout), issuers=1),
        access=access,
    )  # fmt: skip
    return Plan(
        problem=problem, swizzle=layout.swizzle, atom_order=tile.atom_order, layout=layout, boxes=boxes,
        l2_promotion=promotion, costs=costs, basis="measured" if bases == {"measured"} else "documented", canonical=canonical,
        warnings=warnings,
    )  # fmt: skip


def _of_copies(
    problem: Problem, layout: Layout, boxes: Boxes, promotion: L2PromotionName
) -> tuple[list[Violation], tuple[Violation, ...]]:
    """What stands against copying a tile in these boxes, and what the rules warn of."""
    shape = problem.global_shape or problem.tile
    violations = misplaced(layout, boxes)
    if boxes.folded:
        violations += [*unfoldable(problem, layout, shape)]
    try:
        arguments = map_arguments(problem, layout, boxes, shape, problem.strides_bytes)
        tensor_map = TensorMap(**arguments, l2_promotion=promotion)
    except TensorMapError as error:
        return violations + [broken for broken in error.violations if broken.severity == "error"], ()
    for copy in () if violations else (boxes.copies[-1], boxes.copies[0]):
        violations = violations or list(broken_by(Copy(tensor_map, problem.direction, copy.coords)))
    return violations, tuple(warning for warning in tensor_map.findings if warning.severity == "warning")


def _thread_writes(layout: Layout) -> Wavefronts:
    """A warp writes four whole lines, 16 bytes a lane, in the order in which they lie in shared memory."""
    lines = Layout((-(-layout.size_bytes // SMEM_LINE_BYTES), SMEM_LINE_BYTES), 8)
    return wavefronts_on(lines, Access.rows(lines.as_rows().shape, 8, "st.b128"))


def _rates(
    problem: Problem, layout: Layout, boxes: Boxes | None, promotion: L2PromotionName, blocks: int, issuers: int
) -> dict[str, Any]:
    """What the card's table says of a candidate's copies, with these blocks on an SM and issuing threads in a block."""
    moved, card = problem.moved_bytes, problem.card
    request = min(layout.as_rows().tiling.atom[1] * problem.data_type.bits // 8, REQUEST_BYTES)
    rate = share = cycles = None
    if card is not None and boxes is None:
        rate = card.memory_gb_per_s * sector_share(request)
    elif card is not None and card.tma is not None and boxes is not None:
        in_flight, copies = blocks * problem.stages * moved, len(boxes.copies)
        shape = {"tile_bytes": moved, "box_rows": boxes.rows, "boxes": copies, "issuers": blocks * issuers}
        loads = problem.direction == "load"
        rate = card.tma.load(request, promotion, in_flight, **shape) if loads else card.tma.store(request)
        share = rate / card.tma.fastest(problem.direction)
    if rate is not None and card is not None and card.clock_mhz is not None:
        cycles = round(moved / (rate * 1e3 / card.sms / card.clock_mhz))
    return {"gb_per_s": rate, "bandwidth_share": share, "gmem_cycles": cycles}


def weighed_for(candidates: Iterable[Plan], *, blocks_per_sm: int, issuers: Mapping[int, int]) -> list[Plan]:
    """Candidates weighed and ranked anew for a kernel with so many blocks on an SM; `issuers`: issuing threads by copies."""
    weighed = []
    for plan in candidates:
        threads = issuers[plan.tma_instructions]
        rates = _rates(plan.problem, plan.layout, plan.boxes, plan.l2_promotion, blocks_per_sm, threads)
        weighed.append(replace(plan, costs=replace(plan.costs, **rates)))
    return reasons.ranked(weighed)
