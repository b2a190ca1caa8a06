"""Why a plan is ranked where it is: the order of terms, and the reasons of a plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tilescope.planner.consumers import reads_plain_rows_freely
from tilescope.planner.reason import Reason

if TYPE_CHECKING:
    from tilescope.planner.plans import Plan

# What plans are compared by after time, and the costs that say so.
TERMS = {
    "conflicts": "excess_wavefronts",
    "request": "gmem_request_bytes",
    "copies": "tma_instructions",
    "unused bytes": "waste_bytes",
    "alignment": "smem_alignment_bytes",
    "bandwidth": "bandwidth_share",  # names time
}
_ENOUGH = 0.97  # of the full rate: 64 KiB in flight on an SM of an H200 reach it, 48 do not
ALIKE = 1.05  # times whose ratio is less than this are taken for equal: no table is better


def ranked(plans: list[Plan]) -> list[Plan]:
    """The plans, best first."""
    fastest = min((plan.costs.cycles or 0 for plan in plans), default=0)
    return sorted(plans, key=lambda plan: rank(plan, fastest))


def rank(plan: Plan, fastest_cycles: int) -> tuple[int, ...]:
    """What plans are compared by, most important first; smaller is better.

    time (the slower of global and shared memory; 0 where it is like the fastest plan's, or where no rates are known), then
    wavefronts lost to conflicts, then bytes of a request, then copies, then shared memory wasted, then alignment.
    """
    costs, cycles = plan.costs, plan.costs.cycles or 0
    time = 0 if cycles < ALIKE * fastest_cycles else cycles
    used = costs.tma_instructions, costs.waste_bytes, costs.smem_alignment_bytes
    return time, costs.excess_wavefronts, -costs.gmem_request_bytes, *used


def decisive(plan: Plan, best: Plan) -> str | None:
    """The first term in which `plan` is behind `best`; None where it is not.

    Time is named by what takes it: conflicts, bandwidth, or where that was not measured the request.
    """
    costs = plan.costs
    slower = "request" if costs.bandwidth_share is None else "bandwidth"
    time = "conflicts" if costs.wavefronts >= (costs.gmem_cycles or 0) else slower
    if costs.cycles is not None and best.costs.cycles is not None and costs.cycles >= ALIKE * best.costs.cycles:
        return time
    terms = zip(TERMS, rank(plan, 0)[1:], rank(best, 0)[1:], strict=False)
    # ahead in one: a third plan was so fast that time counts too
    return next((name if ours > theirs else time for name, ours, theirs in terms if ours != theirs), None)


def behind(plan: Plan, best: Plan) -> Reason:
    """Why `plan` comes after `best`: the first term in which they differ.

    >>> from tilescope.planner import plan
    >>> report = plan((64, 64), "bf16")
    >>> report.why(report.candidates[-1])
    '52 % of the bandwidth, not 100 %'
    """
    term = decisive(plan, best)
    if term is None:
        return Reason.of("first" if plan == best else "equal")
    here, there = (getattr(one.costs, TERMS[term]) for one in (plan, best))
    return Reason.of(f"behind-{term.replace(' ', '-')}", here=here, there=there)


def reasons_of(plan: Plan) -> Iterator[Reason]:
    """The reasons of a plan, term by term."""
    problem, costs, span, stores = plan.problem, plan.costs, plan.swizzle.span_bytes, plan.problem.direction == "store"
    tiling, row_bytes, copies = plan.layout.as_rows().tiling, problem.row_bytes, plan.tma_instructions
    if span is None:
        name = "core-matrices" if plan.canonical is not None else "plain-rows"
        yield Reason.of(name, swizzle=plan.swizzle.name, row_bytes=tiling.pitch_bytes)
    else:
        name = "row-of-spans" if row_bytes > span else "row-is-a-span"
        yield Reason.of(name, swizzle=plan.swizzle.name, row_bytes=row_bytes, spans=row_bytes // span, span_bytes=span)
    name = "copied-by-threads" if plan.boxes is None else "folded-box" if plan.folded else "boxes"
    order, request = None if 1 in tiling.grid else plan.atom_order, plan.gmem_request_bytes
    yield Reason.of(name, copy=problem.copy, copies=copies, box=plan.box, order=order, request_bytes=request)
    if plan.boxes is not None and problem.card is not None and problem.card.tma is not None and costs.gmem_cycles:
        issue_us = problem.card.tma.issue_ns["one thread"] * copies / 1e3
        memory_us = costs.gmem_cycles / (problem.card.clock_mhz or 1)  # cycles of a known clock
        if copies > 1 and issue_us > memory_us:
            yield Reason.of("issue", copies=copies, issue_us=issue_us, memory_us=memory_us)
    yield _rate(plan)
    if plan.boxes is not None:
        name = "promotion-of-sparse-traffic" if plan.l2_promotion == "none" else "promotion"
        yield Reason.of("promotion-of-stores" if stores else name, promotion=plan.l2_promotion)
    yield from _wavefronts(plan)
    in_core_matrices = plan.canonical is not None and span is None and tiling.grid[1] > 1
    if in_core_matrices and not problem.reads_by_descriptor and reads_plain_rows_freely(problem):
        yield Reason.of("plain-rows-would-do", row_bytes=row_bytes, access=costs.access)
    yield Reason.of(
        "budget",
        stages=problem.stages if problem.stages > 1 else None,
        stage_bytes=plan.stage_bytes,
        total_bytes=plan.total_smem_bytes,
        barrier_bytes=plan.barrier_bytes,
        alignment_bytes=plan.smem_alignment_bytes,
        blocks=plan.blocks_per_sm,
    )
    yield from _waits(plan)
    yield from plan.edge()
    for warning in plan.warnings:
        yield Reason.of("warning", rule=warning.rule, found=warning.found, limit=warning.limit, fix=warning.fix)


def _rate(plan: Plan) -> Reason:
    """Whose rates the plan was weighed by, what they predict, and what they do not know."""
    costs, card, request = plan.costs, plan.problem.card, plan.gmem_request_bytes
    if card is None:
        return Reason.of("no-card", arch=plan.problem.arch.name)
    told = {
        "direction": plan.problem.direction,
        "gb_per_s": costs.gb_per_s,
        "card": card.name,
        "request_bytes": request,
    }
    if costs.gb_per_s is None or costs.gmem_cycles is None:
        cells = {"TMA's rates": card.tma, "the clock": card.clock_mhz}
        missing = tuple(name for name, cell in cells.items() if cell is None)
        return Reason.of("not-weighed", cells=missing, verb="is" if missing == ("the clock",) else "are", **told)
    if card.tma is None or plan.boxes is None or costs.bandwidth_share is None:
        share = costs.gb_per_s / card.memory_gb_per_s
        return Reason.of("memory-rate", basis=card.basis("memory_gb_per_s"), share=share if share < 1 else None, **told)
    full, flying = (card.tma.load(request, plan.l2_promotion, count) for count in (None, plan.in_flight_bytes))
    too_few = plan.problem.direction == "load" and flying < _ENOUGH * full
    name, in_flight = (
        "fastest-rate" if costs.bandwidth_share > 0.995 else "rate",
        plan.in_flight_bytes if too_few else None,
    )
    return Reason.of(name, share=costs.bandwidth_share, in_flight_bytes=in_flight, **told)


def _wavefronts(plan: Plan) -> Iterator[Reason]:
    costs, cycles = plan.costs, plan.costs.gmem_cycles
    if costs.read_ideal is None and costs.write_ideal is None:
        yield Reason.of("uncounted")
    for what, access, taken, ideal in (
        ("reads", costs.access, costs.read_wavefronts, costs.read_ideal),
        ("writes", costs.access if plan.boxes else "st.b128", costs.write_wavefronts, costs.write_ideal),
    ):
        if taken is not None and ideal is not None:
            behind = cycles if cycles is not None and costs.wavefronts <= cycles else None
            name = "wavefronts" if taken > ideal else "no-conflict"
            yield Reason.of(name, what=what, access=access, taken=taken, lost=taken - ideal, hidden_behind=behind)


def _waits(plan: Plan) -> Iterator[Reason]:
    """What stands between writers and readers, where they are not ordered by an mbarrier."""
    completion, problem, stores = plan.completion, plan.problem, plan.problem.direction == "store"
    if completion.barrier:
        steps = [f"{completion.commit} and {completion.wait}"] if completion.commit and not stores else []
        steps += [f"{completion.fence} by every writer"] if completion.fence else []
        yield Reason.of("wait-of-store" if stores else "wait", steps=(*steps, "a barrier"))
    contiguous = (problem.global_shape or problem.tile)[problem.major == "K"]
    over = -(contiguous * problem.data_type.bits // 8) % 16
    if stores and over:
        yield Reason.of("overwrite", over_bytes=over)
