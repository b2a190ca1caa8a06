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
    """The reasons of a plan, term by term: a reason takes those of the facts that its sentence names."""
    problem, costs, span, copies = plan.problem, plan.costs, plan.swizzle.span_bytes, plan.copies
    tiling, row_bytes, stores = plan.containers.as_rows().tiling, problem.row_bytes, problem.direction == "store"
    card, is_canonical = problem.card, plan.canonical is not None
    clock_mhz = None if card is None else card.clock_mhz
    issue_us = 0.0 if card is None or card.tma is None else card.tma.issue_ns["one thread"] * len(copies) / 1e3
    memory_us = (costs.gmem_cycles or 0) / clock_mhz if clock_mhz else 0.0
    # ldmatrix meets no conflict in one box of rows as they lie in global memory: an odd number of chunks a row
    reads_freely = problem.columns <= LARGEST_PLAIN_ROW and row_bytes // CHUNK_BYTES % 2
    in_core_matrices = is_canonical and span is None and tiling.grid[1] > 1 and not problem.reads_by_descriptor
    contiguous, completion = (problem.global_shape or problem.tile)[problem.major == "K"], plan.completion
    steps = [f"{completion.commit} and {completion.wait}"] if completion.commit and not stores else []
    steps += [f"{completion.fence} by every writer"] if completion.fence else []
    # fmt: off
    facts = {
        "swizzle": plan.swizzle.name, "span_bytes": span, "spans": span and row_bytes // span,
        "row_bytes": row_bytes if span or is_canonical else tiling.pitch_bytes,
        "copy": problem.copy, "copies": len(copies), "box": plan.box, "order": None if 1 in tiling.grid else plan.atom_order,
        "request_bytes": plan.gmem_request_bytes, "issue_us": issue_us, "memory_us": memory_us, "promotion": plan.l2_promotion,
        "access": costs.access, "stages": problem.stages if problem.stages > 1 else None, "stage_bytes": plan.stage_bytes,
        "total_bytes": plan.total_smem_bytes, "barrier_bytes": plan.barrier_bytes, "alignment_bytes": plan.smem_alignment_bytes,
        "blocks": plan.blocks_per_sm, "steps": (*steps, "a barrier"), "over_bytes": -(contiguous * problem.data_type.bits // 8) % 16,
    }
    yield from _told(facts, {
        "row-of-spans": span and row_bytes > span, "row-is-a-span": span and row_bytes <= span,
        "core-matrices": span is None and is_canonical, "plain-rows": span is None and not is_canonical,
        "boxes": copies and not plan.folded, "folded-box": plan.folded, "copied-by-threads": not copies,
        "issue": len(copies) > 1 and memory_us and issue_us > memory_us,
    })
    yield _rate(plan)
    yield from _told(facts, {
        "promotion-of-stores": copies and stores, "promotion": copies and not stores and plan.l2_promotion != "none",
        "promotion-of-sparse-traffic": copies and not stores and plan.l2_promotion == "none",
    })
    yield from _wavefronts(plan)
    yield from _told(facts, {
        "plain-rows-would-do": in_core_matrices and reads_freely, "budget": True,
        "wait-of-store": completion.barrier and stores, "wait": completion.barrier and not stores,
        "overwrite": stores and facts["over_bytes"],
    })
    # fmt: on
    yield from plan.edge()
    for warning in plan.warnings:
        yield Reason.of("warning", rule=warning.rule, found=warning.found, limit=warning.limit, fix=warning.fix)


def _told(facts: dict[str, Any], names: dict[str, Any]) -> Iterator[Reason]:
    """The reasons that hold, in their order."""
    return (Reason.of(name, **facts) for name, holds in names.items() if holds)


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


def gemm_reasons(best: GemmPlan) -> Iterator[Reason]:
    """The numbers and choices of a GEMM's plan."""
    product, (m, n, _), epilogue, in_tmem = best.product, best.tile, best.epilogue, best.product.in_tensor_memory
    exchanged, taken = is_exchanged(product, best.tile), m * n * ACCUMULATOR_BYTES
    # fmt: off
    facts: dict[str, Any] = {
        "tile": best.tile, "tiles": best.tiles, "sms": best.sms, "rounds": best.rounds,
        "full": best.tiles / (best.rounds * best.sms) if best.rounds and best.sms else None,
        "idle": max(0, best.sms - best.tiles) if best.sms else None,
        "options": ("split K",) if exchanged else ("split K", "swapped operands"), "data_type": product.data_type.name,
        "m": m, "n": n, "taken": accumulator_columns(best.tile) if in_tmem else taken,
        "available": TENSOR_MEMORY_COLUMNS if in_tmem else REGISTER_FILE_BYTES,
        "stages": best.stages, "a_bytes": best.a.stage_bytes, "b_bytes": best.b.stage_bytes,
        "barriers": None if best.a.boxes is None else 2 * best.stages, "smem_bytes": best.smem_bytes, "budget_bytes": best.budget_bytes,
        "epilogue_bytes": epilogue and epilogue.stage_bytes, "columns": epilogue and epilogue.problem.columns,
        "access": epilogue and epilogue.costs.access, "swizzle": epilogue and epilogue.swizzle.name,
        "slices": best.slices if best.slices > 1 else None,
    }
    # fmt: on
    yield Reason.of("tiles", **facts)
    yield from _floor(product, best)
    yield from _choice(best)
    yield from _told(facts, {"not-planned": True, "tensor-memory": in_tmem, "registers": not in_tmem, "stages": True})
    rows = {matrix: _row(plan) for matrix, plan in (("A", best.a), ("B", best.b))}
    shared = {("A", "B"): rows["A"]} if rows["A"] == rows["B"] else {(matrix,): row for matrix, row in rows.items()}
    yield from (Reason.of("rows", matrices=matrices, **row) for matrices, row in shared.items())
    scaled, stored = product.tensor_core.is_scaled(product.data_type), epilogue is not None
    names = {"no-epilogue": not stored, "epilogue": stored, "exchanged": exchanged, "scale-factors": scaled}
    yield from _told(facts, names)
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
        yield from _told({"arch": product.arch.name}, {"no-card": True, "no-sms": product.sms is None})
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
