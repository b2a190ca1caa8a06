"""Why a plan is ranked where it is: the order of terms, and the reasons of a plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from tilescope.arithmetic import ceil_div
from tilescope.planner.planned_tile import Costs, PlannedTile
from tilescope.planner.problem import Problem
from tilescope.planner.reason import Reason
from tilescope.swizzle import CHUNK_BYTES
from tilescope.tensor_map.limits import LARGEST_BOX_EXTENT

Tile = TypeVar("Tile", bound=PlannedTile)
# what plans are compared by after time, in the order of `rank`
_COMPARED = ("conflicts", "request", "copies", "unused bytes", "alignment")
_ENOUGH = 0.97  # of the full rate: 64 KiB in flight on an SM of an H200 reach it, 48 do not
_FASTEST = 0.995  # of the fastest measured rate; from here on, the text says that it is reached
ALIKE = 1.05  # times whose ratio is less than this are taken for equal: no table is better
_FATES = {  # of elements outside the matrix, if threads copy
    "cp.async": "to be filled by the kernel (cp.async with a smaller source size)",
    "ld.global": "to be filled by the kernel (a predicate)",
}


def rank_plans(plans: list[Tile]) -> list[Tile]:
    """The plans, best first."""
    fastest = min((plan.costs.cycles or 0 for plan in plans), default=0)
    return sorted(plans, key=lambda plan: rank(plan, fastest))


def rank(plan: PlannedTile, fastest_cycles: int) -> tuple[int, ...]:
    """The sort key of plans, most important first; smaller is better.

    time (the slower of global and shared memory; 0 where it is like the fastest plan's, or where no rates are known), then
    wavefronts lost to conflicts, then bytes of a request, then copies, then shared memory wasted, then alignment.
    """
    costs = plan.costs
    cycles = costs.cycles or 0
    return (
        0 if cycles < ALIKE * fastest_cycles else cycles,
        costs.excess_wavefronts,
        -costs.gmem_request_bytes,
        costs.tma_instructions,
        costs.waste_bytes,
        costs.smem_alignment_bytes,
    )


def decisive(plan: PlannedTile, best: PlannedTile) -> str | None:
    """The first term in which `plan` is behind `best`; None where it is not.

    Time is named by what takes it: conflicts, bandwidth, or where that was not measured the request.
    """
    costs = plan.costs
    if costs.wavefronts >= (costs.gmem_cycles or 0):
        time = "conflicts"
    else:
        time = "request" if costs.bandwidth_share is None else "bandwidth"
    if costs.cycles is not None and best.costs.cycles is not None and costs.cycles >= ALIKE * best.costs.cycles:
        return time
    for name, ours, theirs in zip(_COMPARED, rank(plan, 0)[1:], rank(best, 0)[1:], strict=True):
        if ours != theirs:
            return name if ours > theirs else time  # ahead in one: a third plan was so fast that time counts too
    return None


def behind(plan: PlannedTile, best: PlannedTile) -> Reason:
    """Why `plan` comes after `best`: the first term in which they differ.

    >>> from tilescope.planner import plan
    >>> report = plan((64, 64), "bf16")
    >>> report.why(report.candidates[-1])
    '52 % of the bandwidth, not 100 %'
    """
    term = decisive(plan, best)
    if term is None:
        return Reason.of("first" if plan == best else "equal")
    return Reason.of(f"behind-{term.replace(' ', '-')}", here=_cost(plan.costs, term), there=_cost(best.costs, term))


def _cost(costs: Costs, term: str) -> float | None:
    """What a plan costs in a term."""
    terms = {
        "conflicts": costs.excess_wavefronts,
        "request": costs.gmem_request_bytes,
        "copies": costs.tma_instructions,
        "unused bytes": costs.waste_bytes,
        "alignment": costs.smem_alignment_bytes,
        "bandwidth": costs.bandwidth_share,
    }
    return terms[term]


def reasons_of(plan: PlannedTile) -> Iterator[Reason]:
    """The reasons of a plan, term by term."""
    problem = plan.problem
    yield _swizzle(plan)
    core = problem.tensor_core
    if problem.for_tensor_core and core is not None and core.reads_packed(problem.data_type):
        yield Reason.of("packed", data_type=problem.data_type.name, unpacked="16u4_align16b")
    yield from _copies(plan)
    yield _rate(plan)
    if plan.copies:
        yield _promotion(plan)
    yield from _wavefronts(plan)
    if _plain_rows_would_do(plan):
        yield Reason.of("plain-rows-would-do", row_bytes=problem.row_bytes, access=plan.costs.access)
    yield _budget(plan)
    yield from _wait(plan)
    yield from _overwrite(plan)
    yield from edge_reasons(problem, problem.global_shape or problem.tile)
    for warning in plan.warnings:
        yield Reason.of("warning", rule=warning.rule, found=warning.found, limit=warning.limit, fix=warning.fix)


def _swizzle(plan: PlannedTile) -> Reason:
    """How the swizzle takes a row of the tile."""
    name = plan.swizzle.name
    span_bytes = plan.swizzle.span_bytes
    row_bytes = plan.problem.row_bytes
    if span_bytes and row_bytes > span_bytes:
        spans = row_bytes // span_bytes
        return Reason.of("row-of-spans", swizzle=name, row_bytes=row_bytes, spans=spans, span_bytes=span_bytes)
    if span_bytes:
        return Reason.of("row-is-a-span", swizzle=name, row_bytes=row_bytes)
    if plan.canonical is not None:
        return Reason.of("core-matrices")
    return Reason.of("plain-rows", swizzle=name, row_bytes=plan.containers.as_rows().tiling.pitch_bytes)


def _copies(plan: PlannedTile) -> Iterator[Reason]:
    """In which boxes the tile is copied, or by threads; and whether one thread is too slow to issue the copies."""
    copies = len(plan.copies)
    request_bytes = plan.gmem_request_bytes
    if not copies:
        yield Reason.of("copied-by-threads", copy=plan.problem.copy, request_bytes=request_bytes)
    elif plan.folded:
        yield Reason.of("folded-box", box=plan.box, request_bytes=request_bytes)
    else:
        has_one_order = 1 in plan.containers.as_rows().tiling.grid
        order = None if has_one_order else plan.atom_order
        yield Reason.of("boxes", copies=copies, box=plan.box, order=order, request_bytes=request_bytes)
    card = plan.problem.card
    if copies > 1 and card is not None and card.tma is not None and card.clock_mhz:
        issue_us = card.tma.issue_ns["one thread"] * copies / 1e3
        memory_us = (plan.costs.gmem_cycles or 0) / card.clock_mhz
        if memory_us and issue_us > memory_us:
            yield Reason.of("issue", copies=copies, issue_us=issue_us, memory_us=memory_us)


def _rate(plan: PlannedTile) -> Reason:
    """The card whose rates ranked the plan, their prediction, and the effects that they lack."""
    problem = plan.problem
    costs = plan.costs
    card = problem.card
    if card is None:
        return Reason.of("no-card", arch=problem.arch.name)
    if costs.gb_per_s is None or costs.gmem_cycles is None:
        cells = {"TMA's rates": card.tma, "the clock": card.clock_mhz}
        missing = tuple(name for name, cell in cells.items() if cell is None)
        verb = "is" if missing == ("the clock",) else "are"
        return Reason.of("not-weighed", cells=missing, verb=verb, card=card.name)
    if card.tma is None or plan.boxes is None or costs.bandwidth_share is None:
        share = costs.gb_per_s / card.memory_gb_per_s
        return Reason.of(
            "memory-rate",
            direction=problem.direction,
            gb_per_s=costs.gb_per_s,
            card=card.name,
            basis=card.basis("memory_gb_per_s"),
            request_bytes=plan.gmem_request_bytes,
            share=share if share < 1 else None,
        )
    full = card.tma.load(plan.gmem_request_bytes, plan.l2_promotion, None)
    flying = card.tma.load(plan.gmem_request_bytes, plan.l2_promotion, plan.in_flight_bytes)
    too_few = problem.direction == "load" and flying < _ENOUGH * full
    return Reason.of(
        "fastest-rate" if costs.bandwidth_share > _FASTEST else "rate",
        direction=problem.direction,
        gb_per_s=costs.gb_per_s,
        card=card.name,
        share=costs.bandwidth_share,
        in_flight_bytes=plan.in_flight_bytes if too_few else None,
    )


def _promotion(plan: PlannedTile) -> Reason:
    if plan.problem.direction == "store":
        return Reason.of("promotion-of-stores", promotion=plan.l2_promotion)
    if plan.l2_promotion == "none":
        return Reason.of("promotion-of-sparse-traffic")
    return Reason.of("promotion", promotion=plan.l2_promotion)


def _wavefronts(plan: PlannedTile) -> Iterator[Reason]:
    costs = plan.costs
    if costs.read_ideal is None and costs.write_ideal is None:
        yield Reason.of("uncounted")
    if costs.read_wavefronts is not None and costs.read_ideal is not None:
        yield _conflicts(costs, "reads", costs.access, costs.read_wavefronts, costs.read_ideal)
    if costs.write_wavefronts is not None and costs.write_ideal is not None:
        access = costs.access if plan.boxes else "st.b128"
        yield _conflicts(costs, "writes", access, costs.write_wavefronts, costs.write_ideal)


def _conflicts(costs: Costs, what: str, access: str, taken: int, ideal: int) -> Reason:
    """What reads or writes lose to bank conflicts, and whether global memory takes longer anyway."""
    cycles = costs.gmem_cycles
    hidden_behind = cycles if cycles is not None and costs.wavefronts <= cycles else None
    name = "wavefronts" if taken > ideal else "no-conflict"
    return Reason.of(name, what=what, access=access, taken=taken, lost=taken - ideal, hidden_behind=hidden_behind)


def _plain_rows_would_do(plan: PlannedTile) -> bool:
    """Whether ldmatrix has no conflict in one box with the rows as in global memory: an odd number of chunks per row."""
    problem = plan.problem
    in_core_matrices = plan.canonical is not None and plan.swizzle.span_bytes is None
    if not in_core_matrices or problem.reads_by_descriptor or plan.containers.as_rows().tiling.grid[1] == 1:
        return False
    return problem.columns <= LARGEST_BOX_EXTENT and problem.row_bytes // CHUNK_BYTES % 2 == 1


def _budget(plan: PlannedTile) -> Reason:
    stages = plan.problem.stages
    return Reason.of(
        "budget",
        stages=stages if stages > 1 else None,
        stage_bytes=plan.stage_bytes,
        total_bytes=plan.total_smem_bytes,
        barrier_bytes=plan.barrier_bytes,
        alignment_bytes=plan.smem_alignment_bytes,
        blocks=plan.blocks_per_sm,
    )


def _wait(plan: PlannedTile) -> Iterator[Reason]:
    """The synchronization between the writers and the readers of shared memory, if a barrier provides it."""
    completion = plan.completion
    if not completion.barrier:
        return
    stores = plan.problem.direction == "store"
    steps = []
    if completion.commit and not stores:
        steps.append(f"{completion.commit} and {completion.wait}")
    if completion.fence:
        steps.append(f"{completion.fence} by every writer")
    steps.append("a barrier")
    yield Reason.of("wait-of-store" if stores else "wait", steps=tuple(steps))


def _overwrite(plan: PlannedTile) -> Iterator[Reason]:
    """A store rounds the end of the tensor's rows up."""
    problem = plan.problem
    mn, k = problem.global_shape or problem.tile
    contiguous = k if problem.major == "K" else mn
    over_bytes = -(contiguous * problem.data_type.bits // 8) % CHUNK_BYTES
    if problem.direction == "store" and over_bytes:
        yield Reason.of("overwrite", over_bytes=over_bytes)


def edge_reasons(problem: Problem, matrix: tuple[int, int]) -> Iterator[Reason]:
    """The part of the last tiles of a matrix of (mn, k) elements that is outside the matrix."""
    fate = _FATES.get(problem.copy, "dropped" if problem.direction == "store" else "filled")
    for name, elements, part in zip(problem.extent_names, matrix, problem.tile, strict=True):
        if elements % part:
            yield Reason.of(
                "edge",
                extent=name,
                tiles=ceil_div(elements, part),
                part=part,
                last=elements % part,
                outside=-elements % part,
                fate=fate,
            )
