"""Why a plan is ranked where it is: the order of terms, and the reasons of a plan, of a tile or of a GEMM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tilescope.planner.consumers import LARGEST_PLAIN_ROW
from tilescope.planner.product import (
    ACCUMULATOR_BYTES,
    REGISTER_FILE_BYTES,
    TENSOR_MEMORY_COLUMNS,
    Product,
    accumulator_columns,
    is_exchanged,
)
from tilescope.planner.reason import Reason
from tilescope.swizzle import CHUNK_BYTES

if TYPE_CHECKING:
    from tilescope.planner.gemm_plan import GemmPlan
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
    # ldmatrix meets no conflict in one box of rows as they lie in global memory: an odd number of chunks a row
    reads_freely = problem.columns <= LARGEST_PLAIN_ROW and row_bytes // CHUNK_BYTES % 2
    if in_core_matrices and not problem.reads_by_descriptor and reads_freely:
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


def gemm_reasons(best: GemmPlan) -> Iterator[Reason]:
    """The numbers and choices of a GEMM's plan."""
    product, (m, n, _), epilogue = best.product, best.tile, best.epilogue
    exchanged = is_exchanged(product, best.tile)
    full = idle = None
    if best.rounds is not None and best.sms is not None:
        full, idle = best.tiles / (best.rounds * best.sms), max(0, best.sms - best.tiles)
    yield Reason.of("tiles", tile=best.tile, tiles=best.tiles, sms=best.sms, rounds=best.rounds, full=full)
    yield from _floor(product, best)
    yield from _choice(best)
    yield Reason.of("not-planned", options=("split K",) if exchanged else ("split K", "swapped operands"), idle=idle)
    if product.in_tensor_memory:
        columns = accumulator_columns(best.tile)
        yield Reason.of("tensor-memory", m=m, n=n, taken=columns, available=TENSOR_MEMORY_COLUMNS)
    else:
        yield Reason.of("registers", m=m, n=n, taken=m * n * ACCUMULATOR_BYTES, available=REGISTER_FILE_BYTES)
    yield Reason.of(
        "stages",
        stages=best.stages,
        a_bytes=best.a.stage_bytes,
        b_bytes=best.b.stage_bytes,
        epilogue_bytes=None if epilogue is None else epilogue.stage_bytes,
        barriers=None if best.a.boxes is None else 2 * best.stages,
        smem_bytes=best.smem_bytes,
        budget_bytes=best.budget_bytes,
    )
    rows = {matrix: _row(plan) for matrix, plan in (("A", best.a), ("B", best.b))}
    if rows["A"] == rows["B"]:
        yield Reason.of("rows", matrices=("A", "B"), **rows["A"])
    else:
        yield from (Reason.of("rows", matrices=(matrix,), **values) for matrix, values in rows.items())
    if epilogue is None:
        yield Reason.of("no-epilogue")
    else:
        told = {"slices": best.slices if best.slices > 1 else None, "access": epilogue.costs.access}
        yield Reason.of("epilogue", columns=epilogue.problem.columns, swizzle=epilogue.swizzle.name, **told)
    if exchanged:
        yield Reason.of("exchanged")
    if product.tensor_core.is_scaled(product.data_type):
        yield Reason.of("scale-factors", data_type=product.data_type.name)
    edges = {edge.values["extent"]: edge for plan in (best.a, best.b) for edge in plan.edge()}
    yield from (edges[name] for name in "mnk" if name in edges)


def _row(plan: Plan) -> dict[str, Any]:
    """How wide a row of A or B is in shared memory, and how the swizzle takes it."""
    problem, span = plan.problem, plan.swizzle.span_bytes
    return {
        "columns": problem.columns,
        "extent": problem.row_names[1],
        "row_bytes": problem.row_bytes,
        "spans": None if span is None else problem.row_bytes // span,
        "swizzle": plan.swizzle.name,
        "chunk_bytes": CHUNK_BYTES if span is None else None,
    }


def _floor(product: Product, best: GemmPlan) -> Iterator[Reason]:
    """The floor, whose rates it comes from, and what they do not know."""
    card, terms = product.card, best.ranked[0].terms
    if card is None:
        yield Reason.of("no-card", arch=product.arch.name)
        if product.sms is None:
            yield Reason.of("no-sms")
        return
    said = tuple(map(str, terms))
    yield Reason.of("floor", floor_us=terms[0].us, card=card.name, bound=terms[0].name, terms=said)
    known = {
        "TFLOP/s of this type": card.tflops(product.data_type),
        "the clock": card.clock_mhz,
        "one SM's rate": card.tma or not product.by_tma,
        "bytes in flight": card.tma or not product.by_tma,
    }
    if cells := tuple(name for name, cell in known.items() if not cell):
        yield Reason.of("not-weighed", cells=cells, card=card.name, verb="are" if len(cells) > 1 else "is")


def _choice(best: GemmPlan) -> Iterator[Reason]:
    for refused in [tile for tile in best.refused if tile.would_lead][:2]:
        first = refused.violations[0]
        yield Reason.of("would-lead", tile=refused.tile, found=first.found, limit=first.limit)
    chosen, *near = (tile for tile in best.ranked if tile.behind_in != "floor")
    if near and chosen.terms:
        told: dict[str, Any] = {"near": len(near) + 1, "busiest_bytes": chosen.busiest_bytes}
        if tied := next((tile for tile in near if tile.behind_in in ("instructions", "order")), None):
            told["tied" if tied.behind_in == "instructions" else "alike"] = tied.tile
            told |= {"more": tied.instructions, "fewest": chosen.instructions}
        yield Reason.of("near-floors", **told)
    elif best.others and chosen.terms:
        yield Reason.of("next-floor", next=best.others[0].tile)
