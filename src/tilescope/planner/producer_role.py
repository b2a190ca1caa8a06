"""The producer of a loading pipeline: it waits until a stage is free, expects its bytes and copies its tiles."""

from __future__ import annotations

from typing import NamedTuple, cast

from tilescope.planner.loading import Loading, Step, Steps, both, column_of, step_of
from tilescope.planner.planned_scales import ScalePlan
from tilescope.planner.plans import Plan
from tilescope.sync.thread_limits import WARPGROUP_THREADS


class _Sharing(NamedTuple):
    """The mask of the blocks that share a tile, and in how many parts they load it."""

    mask: str | None
    parts: int


def producer_role(loading: Loading) -> Step:
    """It initialises the barriers, fills every stage, and leaves when the last stages are free again."""
    barriers = ["full", "empty"]
    if loading.gemm is not None and loading.staging.in_tmem:
        barriers += ["acc_full", "acc_empty"]
    if loading.asks:
        barriers += ["next_full", "next_empty"]
    if loading.staging.takes_turns:
        barriers.append("order")
    if loading.gemm is not None and loading.gemm.stages_residual:
        barriers.append("residual_full")
    several = loading.staging.producers > 1
    setup: Steps = [step_of(init=barriers, when="instance == 0" if several else None), {"fence": "mbarrier_init"}]
    filling: Steps = [{"wait": f"empty[{loading.stage}]", "parity": f"{loading.turn} ^ 1"}, *_filling(loading)]
    filling = _taking_turns(loading, filling, loading.step)
    if loading.is_dependent:  # the first stages were filled before
        later = f"{loading.step} >= EARLY"
        filling = [step | {"when": both(later, cast("str | None", step.get("when")))} for step in filling]
    tail: Step = {
        "loop": "j",
        "start": _all_steps(loading),
        "count": "STAGES",
        "steps": [{"tail": "empty[j % STAGES]", "parity": "j / STAGES % 2 ^ 1"}],
    }
    meet = loading.meet(None if loading.registers is None else loading.registers.producer)
    return {
        "name": "producer",
        "threads": loading.staging.copiers,
        "instances": loading.staging.producers,
        "steps": [*setup, *meet, *_before_the_grid(loading), *loading.loops(filling, [], []), tail],
    }


def _taking_turns(loading: Loading, steps: Steps, step: str) -> Steps:
    """Steps of one stage, by the producer whose turn it is."""
    if loading.staging.producers == 1:
        return steps
    return [stage_step | {"when": f"{step} % {loading.staging.producers} == instance"} for stage_step in steps]


def _before_the_grid(loading: Loading) -> Steps:
    """Dependent launch: the next kernel may start, and B of the first stages is fetched while the kernel before runs."""
    gemm = loading.gemm
    if gemm is None or not loading.is_dependent:
        return []
    first = "t * K_TILES + " if gemm.schedule.persistent else ""  # t is 0

    def copies(counter: str, slot: str, plan: Plan, *, expects: bool) -> Step:
        step = f"({first}{counter})" if first else counter
        full = f"full[{step} % STAGES]"
        total = sum(each.transaction_bytes for each in loading.plans)
        steps: Steps = [{"expect": full, "bytes": total}] if expects else []
        steps.append(
            {
                "copy": f"{slot}[{step} % STAGES]",
                "barrier": full,
                "tile": step,
                "bytes": plan.transaction_bytes,
            }
        )
        return {"loop": counter, "count": "EARLY", "steps": _taking_turns(loading, steps, step)}

    a, b = loading.plans
    steps: Steps = [
        copies("early", "b", b, expects=True),
        {"griddepcontrol": "wait"},
        copies("late", "a", a, expects=False),
    ]
    launched: Step = {"griddepcontrol": "launch"}
    return [launched, {"loop": "t", "count": 1, "steps": steps}] if first else [launched, *steps]


def _all_steps(loading: Loading) -> str:
    """How many stages a block fills."""
    if loading.gemm is None:
        return "k_tiles"
    if not loading.gemm.schedule.persistent:
        return "K_TILES"
    if loading.gemm.schedule.tail > 1:
        return "(whole * K_TILES + (tiles - whole) * tail_k_tiles)"
    return "tiles * K_TILES"


def _filling(loading: Loading) -> Steps:
    """The copies of a stage, and how they arrive at its barrier."""
    full = f"full[{loading.stage}]"
    if loading.staging.first.copy == "tma":
        return _by_tma(loading, full)
    if loading.staging.first.copy == "cp.async":  # whose landing arrives
        copies: Steps = [
            {"copy": slot, "bytes": plan.smem_bytes, "by": "cp.async", "tile": loading.step}
            for slot, plan in zip(loading.slots, loading.plans, strict=True)
        ]
        return [*copies, {"cp_arrive": full, "count": WARPGROUP_THREADS, "noinc": True}]
    writes: Steps = [{"write": loading.slots, "tile": loading.step}]
    if loading.staging.by_descriptor:
        writes.append({"fence": "proxy.async"})
    return [*writes, {"arrive": full, "count": WARPGROUP_THREADS}]


def _by_tma(loading: Loading, full: str) -> Steps:
    """The bytes of all tiles are expected; then every tile is copied, or this block's part of a shared one."""
    in_pairs = loading.staging.cta_group == 2
    total = sum(part.transaction_bytes for part in loading.brought.values()) * loading.staging.cta_group
    steps = [step_of(expect=full, bytes=total, when="rank % 2 == 0" if in_pairs else None)]
    for number, (slot, part) in enumerate(zip(loading.slots, loading.brought.values(), strict=True)):
        sharing = _sharing_of_a(loading) if number == 0 else _sharing_of_b(loading)
        if isinstance(part, ScalePlan):  # every block loads its own scale factors
            sharing = _Sharing(None, 1)
        steps.append(
            step_of(
                copy=slot,
                barrier=full,
                tile=loading.step,
                bytes=part.transaction_bytes // sharing.parts,
                mask=sharing.mask,
                barrier_rank="rank - rank % 2" if in_pairs else None,
            )
        )
    return steps


def _sharing_of_a(loading: Loading) -> _Sharing:
    """Blocks with the same x share A."""
    across, down = loading.staging.cluster
    if not loading.staging.shares or down == 1:
        return _Sharing(None, 1)
    return _Sharing(f"{column_of(across, down, 1)} << x", down)


def _sharing_of_b(loading: Loading) -> _Sharing:
    """Blocks with the same y share B, of pairs those at the same place in theirs."""
    across, _ = loading.staging.cluster
    if not loading.staging.shares or loading.staging.b_sharers <= 1:
        return _Sharing(None, 1)
    row = f"{across} * y + x % 2" if loading.staging.cta_group == 2 else f"{across} * y"
    blocks = sum(1 << x for x in range(0, across, loading.staging.cta_group))
    return _Sharing(f"{blocks} << ({row})", loading.staging.b_sharers)
