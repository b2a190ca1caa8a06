"""Why a plan is ranked where it is: the order of terms, and each term in words."""

from __future__ import annotations

from dataclasses import replace

from tilescope.planner.bandwidth import BEST_GB_PER_S
from tilescope.planner.consumers import LOOPS, reads_plain_rows_freely
from tilescope.planner.plans import Plan

TERMS = ("time", "conflicts", "request", "copies", "unused bytes", "alignment")
ALIKE = 1.05  # times whose ratio is less than this are taken for equal: no table is better


def ranked(plans: list[Plan]) -> list[Plan]:
    """The plans, best first."""
    fastest = min((plan.costs.cycles for plan in plans), default=0)
    return sorted(plans, key=lambda plan: rank(plan, fastest))


def rank(plan: Plan, fastest_cycles: int) -> tuple[int, ...]:
    """What plans are compared by, most important first; smaller is better.

    time (the slower of global and shared memory; 0 where it is like the fastest plan's), then wavefronts lost to
    conflicts, then bytes of a request, then copies, then shared memory wasted, then alignment.
    """
    costs = plan.costs
    return (
        0 if costs.cycles < ALIKE * fastest_cycles else costs.cycles, costs.excess_wavefronts, -costs.gmem_request_bytes,
        costs.tma_instructions, costs.waste_bytes, costs.smem_alignment_bytes,
    )  # fmt: skip


def decisive(plan: Plan, best: Plan) -> str | None:
    """The first term in which `plan` is behind `best`; None where it is not.

    Time is named by what takes it: conflicts, bandwidth, or where that was not measured the request.
    """
    costs = plan.costs
    slower = "request" if costs.bandwidth_share is None else "bandwidth"
    time = "conflicts" if costs.wavefronts >= costs.gmem_cycles else slower
    if costs.cycles >= ALIKE * best.costs.cycles:
        return time
    for name, ours, theirs in zip(TERMS[1:], rank(plan, 0)[1:], rank(best, 0)[1:], strict=True):
        if ours != theirs:
            return name if ours > theirs else time  # ahead here: a third plan was so fast that both count
    return None


def behind(plan: Plan, best: Plan) -> str:
    """Why `plan` comes after `best`: the first term in which they differ.

    >>> from tilescope.planner import plan
    >>> report = plan((64, 64), "bf16")
    >>> report.why(report.candidates[-1])
    '44 % of the bandwidth, not 100 %'
    """
    term = decisive(plan, best)
    if term is not None:
        return _in_words(plan, best)[term]
    return "first" if plan == best else "equal in every term"


def _in_words(plan: Plan, best: Plan) -> dict[str, str]:
    here, there = plan.costs, best.costs
    share = [f"{costs.bandwidth_share or 0:.0%}".replace("%", " %") for costs in (here, there)]
    return {
        "conflicts": f"{here.excess_wavefronts} wavefronts lost to conflicts, not {there.excess_wavefronts}",
        "bandwidth": f"{share[0]} of the bandwidth, not {share[1]}",
        "request": f"requests of {here.gmem_request_bytes} bytes, not {there.gmem_request_bytes}",
        "copies": f"{here.tma_instructions} copies, not {there.tma_instructions}",
        "unused bytes": f"{here.waste_bytes} bytes of shared memory unused, not {there.waste_bytes}",
        "alignment": f"needs {here.smem_alignment_bytes}-byte alignment, not {there.smem_alignment_bytes}",
    }


def explained(plan: Plan, best: Plan) -> Plan:
    """The plan with its reasons written down, term by term."""
    words = [_swizzle(plan)]
    if plan.boxes is not None:
        words += [_boxes(plan), _bandwidth(plan), _promotion(plan)]
    else:
        words += _by_threads(plan)
    words += [*_wavefronts(plan), *_plain_rows(plan), _budget(plan), *_store(plan)]
    words += [f"Edge: {each}." for each in plan.edge()]
    words += [f"Warning, {each}" for each in plan.warnings]
    if plan is not best and behind(plan, best) != "equal in every term":
        words.append(f"Not first: {behind(plan, best)}.")
    return replace(plan, reasons=tuple(words))


def _swizzle(plan: Plan) -> str:
    row_bytes, swizzle = plan.problem.row_bytes, plan.swizzle
    if swizzle.span_bytes is None:
        what = "none (core matrices of 8 x 16 bytes)" if plan.canonical is not None else "none (plain rows)"
        what = what if swizzle.bits == 0 else swizzle.name
        return f"Swizzle {what}: rows of {plan.layout.as_rows().tiling.pitch_bytes} bytes."
    share = "all" if swizzle.span_bytes == row_bytes else "a whole part"
    return f"Swizzle {swizzle.name}: its span of {swizzle.span_bytes} bytes is {share} of a row's {row_bytes} bytes."


def _boxes(plan: Plan) -> str:
    assert plan.boxes is not None
    box = " x ".join(map(str, plan.boxes.box))
    one = plan.tma_instructions == 1
    how = "folded: the map sees columns of spans, " if plan.folded else ""
    order = "" if 1 in plan.layout.as_rows().tiling.grid else f" in {plan.atom_order} order"
    return f"{plan.tma_instructions} {'copy' if one else 'copies'} of box {box}{order} ({how}{plan.gmem_request_bytes} bytes a request)."


def _by_threads(plan: Plan) -> list[str]:
    """Who moves what, and what a kernel must wait for before the consumer reads."""
    copy, consumer = plan.problem.copy, plan.problem.consumer
    words = [
        f"{copy}: each thread moves 16 bytes, 8 threads a line of 128; requests of {plan.gmem_request_bytes} bytes."
    ]
    wait = "cp.async.commit_group and wait_group, then a barrier" if copy == "cp.async" else "a barrier"
    if consumer in LOOPS:  # tensor cores read through the async proxy
        wait = wait.replace("a barrier", "fence.proxy.async.shared::cta by every writer and a barrier")
    words.append(f"Between the copy and the reads: {wait}.")
    return words


def _bandwidth(plan: Plan) -> str:
    assert plan.costs.bandwidth_share is not None
    share = f"{plan.costs.bandwidth_share:.0%}".replace("%", " %")
    direction = plan.problem.direction
    return (
        f"Predicted {share} of the fastest {direction}s of boxes measured ({BEST_GB_PER_S[direction]} GB/s on an H200)."
    )


def _promotion(plan: Plan) -> str:
    if plan.problem.direction == "store":
        return f"L2 promotion {plan.l2_promotion}: made no difference to stores."
    if plan.l2_promotion == "none":
        return "L2 promotion none: sparse traffic should not fetch neighbours."
    return f"L2 promotion {plan.l2_promotion}: never slower than none or 256B in the measurements."


def _wavefronts(plan: Plan) -> list[str]:
    costs, words = plan.costs, []
    for what, taken, ideal in (
        (f"reads ({costs.access})", costs.read_wavefronts, costs.read_ideal),
        (f"writes ({costs.access if plan.boxes else 'st.b128'})", costs.write_wavefronts, costs.write_ideal),
    ):
        if taken is not None and ideal is not None:
            lost = "no conflict" if taken == ideal else f"{taken - ideal} lost to bank conflicts"
            if taken > ideal and costs.wavefronts <= costs.gmem_cycles:
                lost += f", hidden behind {costs.gmem_cycles} cycles of global memory"
            words.append(f"Shared-memory {what}: {taken} wavefronts, {lost}.")
    if not words:
        words.append("TMA writes and tensor-core reads have no counted wavefronts; canonical atoms are made for them.")
    return words


def _plain_rows(plan: Plan) -> list[str]:
    """That rows of an odd number of chunks would do as they are: ldmatrix is planned for canonical atoms."""
    problem = plan.problem
    wide = plan.layout.as_rows().tiling.grid[1]
    in_core_matrices = plan.canonical is not None and plan.swizzle.span_bytes is None and wide > 1
    if problem.consumer != "ldmatrix" or not in_core_matrices or not reads_plain_rows_freely(problem):
        return []
    rows = f"Plain rows of {problem.row_bytes} bytes have no conflict either, and longer requests"
    return [f'{rows}: plan for consumer="{plan.costs.access}".']


def _budget(plan: Plan) -> str:
    stages = plan.problem.stages
    each = f"{stages} x {plan.stage_bytes} = " if stages > 1 else ""
    barriers = f" and {plan.barrier_bytes} of mbarriers" if plan.barrier_bytes else ""
    return (
        f"Shared memory: {each}{plan.total_smem_bytes} bytes{barriers}, aligned to {plan.smem_alignment_bytes}; "
        f"blocks that fit an SM: {plan.blocks_per_sm}."
    )


def _store(plan: Plan) -> list[str]:
    if plan.problem.direction != "store":
        return []
    words = [
        "Between the writes and the copy: fence.proxy.async.shared::cta by every writer, then a barrier; one thread stores."
    ]
    shape = plan.problem.global_shape or plan.problem.tile
    contiguous = shape[1] if plan.problem.major == "K" else shape[0]
    over = -(contiguous * plan.problem.data_type.bits // 8) % 16
    if over:
        words.append(f"A store overwrites {over} bytes behind each row: the tensor's end is rounded up to 16 bytes.")
    return words
