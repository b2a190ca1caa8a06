"""ts.plan_pipeline: the barriers and roles that load planned tiles for their consumer, stage after stage.

    producer   wait empty ─▶ expect full ─▶ copies ──┐           tail: wait forevery stage before it leaves
                  ▲                                  ▼
    consumer   release ◀─ wait_group ◀─ multiply ◀─ wait full

In a cluster of Cx x Cy blocks (rank = x + Cx y) blocks with the same x share A and those with the same y share B: every
block loads its part of a shared tile into all of them. So every block expects whole tiles, and a slot is free when the
consumers of every block that it feeds have released it.

With cta_group=2, two blocks along x multiply together. Tiles are then those of the pair, like m and n of the
instruction: each block loads half of the rows of A and half of the columns of B, and the even block's barrier expects
the bytes of both.

    A 256 x 64, B 256 x 64 of bf16    block 0: A rows 0-127, B columns 0-127      16384 + 16384 bytes ─┐
                                      block 1: A rows 128-255, B columns 128-255  16384 + 16384 bytes ─┴▶ 65536 at block 0

Counts that a kernel refers to by name are constants of the pipeline (STAGES, k_tiles), so that the emitter can print
the steps unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilescope.arithmetic import ceil_div
from tilescope.pipeline.description import Pipeline
from tilescope.planner.consumer_roles import DRAIN, consumer_role, stored_steps, tmem_consumer_role, tmem_epilogue_role
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.gemm_smem import ANSWER_BYTES
from tilescope.planner.loading import Loading, Step
from tilescope.planner.plans import Plan
from tilescope.planner.producer_role import producer_role
from tilescope.planner.scheduler_role import answer_readers, scheduler_role
from tilescope.planner.staging import Arrivals, Staging, plans_of_a_block, read_staging
from tilescope.sentence import counted
from tilescope.sync.thread_limits import WARPGROUP_THREADS


def plan_pipeline(
    plan: Plan | Sequence[Plan] | GemmPlan,
    *,
    stages: int | None = None,
    consumers: int | None = None,
    cluster: int | tuple[int, int] = 1,
    cta_group: int = 1,
    arrivals: Arrivals | None = None,
    multicast: bool = True,
    steps: int | None = None,
) -> Pipeline:
    """Barriers, slots and roles for planned tiles: counts, bytes and parities that `ts.simulate` proves correct.

    `plan` is one plan, several whose tiles share a stage (A, then B), or a GEMM plan, whose epilogue is included.
    `consumers` is the number of warpgroups. `arrivals` chooses whether a consumer arrives once, per warp or per thread (None:
    once if the tensor core reads, per warp if threads do). `steps` is the number of K steps in the description.

    With `cta_group=2`, the even block of a pair issues the MMAs for both (tcgen05). Tiles are then those of the pair, as are m
    and n of the instruction, and each block loads half of A's rows and half of B's columns. A GEMM plan for pairs or for
    multicast needs neither `cta_group` nor `cluster`.

    >>> import tilescope as ts
    >>> a, b = (ts.plan(tile, "bf16").best for tile in ((128, 64), (256, 64)))
    >>> pipeline = ts.plan_pipeline([a, b], stages=3, consumers=2)
    >>> [(barrier.name, barrier.count) for barrier in pipeline.barriers]
    [('full', 1), ('empty', 2)]
    >>> for barrier in ts.simulate(pipeline).barriers:
    ...     print(barrier.name, barrier.bytes, barrier.parities)
    full (49152,) (('consumer', 0),)
    empty (0,) (('producer', 1),)
    >>> pair = [ts.plan((256, 64), "bf16", arch="sm_100").best] * 2
    >>> pipeline = ts.plan_pipeline(pair, stages=1, cluster=2, cta_group=2)
    >>> pipeline.name, ts.simulate(pipeline).barriers[0].bytes  # 128 x 64 of A and of B from each block
    ('256x64 + 256x64 bfloat16 of a pair, 1 stage', (65536, 0))
    """
    staging = read_staging(
        plan,
        stages=stages,
        consumers=consumers,
        cluster=cluster,
        cta_group=cta_group,
        arrivals=arrivals,
        multicast=multicast,
        steps=steps,
    )
    plans = plans_of_a_block(staging)
    stores = staging.first.direction == "store"
    described = _storing_pipeline(staging, plans[0]) if stores else _loading_pipeline(Loading(staging, plans))
    return Pipeline.from_dict({"name": _name(staging), **described})


def _name(staging: Staging) -> str:
    tiles = " + ".join("x".join(map(str, tile.problem.tile)) for tile in staging.tiles)
    parts = [f"{tiles} {staging.first.data_type.name}"]
    if staging.cta_group == 2:
        parts.append(" of a pair")
    parts.append(f", {counted(staging.stages, 'stage')}")
    if staging.first.direction == "store":
        parts.append(", stored")
    return "".join(parts)


def _loading_pipeline(loading: Loading) -> Step:
    """The pipeline, as Pipeline.from_dict takes it."""
    staging = loading.staging
    consumer = tmem_consumer_role(loading) if staging.in_tmem else consumer_role(loading.turn_of_consumer)
    roles = [producer_role(loading), consumer]
    if loading.gemm is not None and staging.in_tmem:
        roles.append(tmem_epilogue_role(loading))
    if loading.asks:
        roles.append(scheduler_role(loading))
    return {
        "cluster": list(staging.cluster),
        "constants": {"STAGES": staging.stages, **_loop_counts(loading)},
        "registers": None if loading.registers is None else loading.registers.at_entry,
        "barriers": _barriers(loading),
        "slots": _slots(loading),
        "roles": roles,
    }


def _loop_counts(loading: Loading) -> dict[str, int]:
    """The counts that the loops of the roles name."""
    if loading.gemm is None:
        return {"k_tiles": loading.staging.steps}
    counts = {"K_TILES": loading.gemm.k_tiles}
    if loading.is_dependent:
        counts["EARLY"] = min(loading.staging.stages, loading.gemm.k_tiles)
    if not loading.gemm.schedule.persistent:
        return counts
    counts["tiles"] = 4 if loading.staging.takes_turns else 2  # for a block, so that parities are seen to count on
    if loading.gemm.schedule.tail > 1:
        counts |= {"whole": 1, "tail_k_tiles": ceil_div(loading.gemm.k_tiles, loading.gemm.schedule.tail)}
    return counts


def _barriers(loading: Loading) -> dict[str, Step]:
    """The mbarriers, with the arrivals that end a phase of each."""
    staging = loading.staging
    releasing = 1 if staging.takes_turns else staging.consumers
    releases = 1 if staging.in_tmem else releasing * staging.arrivals
    feeding = staging.b_sharers + staging.cluster[1] - 1 if staging.shares else 1
    barriers: dict[str, Step] = {
        "full": {"count": staging.copiers, "stages": staging.stages},
        "empty": {"count": feeding * releases, "stages": staging.stages},
    }
    if loading.gemm is not None and staging.in_tmem:
        barriers["acc_full"] = {"count": 1, "stages": staging.accumulators}
        barriers["acc_empty"] = {"count": WARPGROUP_THREADS * staging.cta_group, "stages": staging.accumulators}
    if staging.takes_turns:
        barriers["order"] = {"count": 1, "stages": staging.consumers}
    if loading.gemm is not None and loading.gemm.stages_residual:
        barriers["residual_full"] = {"count": 1, "stages": loading.gemm.schedule.storing_groups}
    if loading.asks:
        barriers["next_full"] = {"count": 1, "stages": staging.answers}
        barriers["next_empty"] = {"count": answer_readers(staging.blocks, staging.cta_group), "stages": staging.answers}
    return barriers


def _slots(loading: Loading) -> dict[str, Step]:
    """The buffers of a stage; of them, copies fill what TMA moves: it leaves the gaps between narrow rows as they are."""
    staging = loading.staging
    slots: dict[str, Step] = {}
    for name, plan in loading.brought.items():
        filled_bytes = plan.transaction_bytes
        if isinstance(plan, Plan) and staging.first.copy != "tma":
            filled_bytes = plan.smem_bytes
        slots[name] = {"stages": staging.stages, "bytes": filled_bytes}
    if loading.gemm is not None and staging.in_tmem:
        slots["accumulator"] = {"stages": staging.accumulators, "space": "tmem"}
    if loading.asks:
        slots["answer"] = {"stages": staging.answers, "bytes": ANSWER_BYTES}
    if loading.gemm is not None and staging.blocks > 1 and loading.gemm.schedule.split > 1:
        senders = staging.blocks * staging.consumers
        slots["parts"] = {"stages": senders, "bytes": loading.gemm.part_bytes // staging.consumers}
    if loading.gemm is not None and loading.gemm.workspace_bytes:
        slots["partial"] = {"stages": staging.blocks * staging.consumers, "space": "gmem"}
    if loading.has_epilogue:
        slots["c"] = {
            "stages": staging.c_buffers * (staging.consumers if staging.takes_turns else loading.writers),
            "bytes": staging.c_stage_bytes // loading.writers,
        }
    return slots


def _storing_pipeline(staging: Staging, plan: Plan) -> Step:
    """The pipeline of a plan that stores: threads write a stage, and TMA takes it from there."""
    slot = "c[i % STAGES]"
    steps = stored_steps(
        written=slot,
        stored=[slot],
        stored_bytes=plan.transaction_bytes,
        meet={"sync": 0},
        pending=staging.stages - 1,
        when=None,
    )
    loop: Step = {"loop": "i", "count": "k_tiles", "steps": steps}
    return {
        "constants": {"STAGES": staging.stages, "k_tiles": staging.steps},
        "slots": {"c": {"stages": staging.stages, "bytes": plan.stage_bytes}},
        "roles": [{"name": "epilogue", "threads": WARPGROUP_THREADS, "steps": [loop, DRAIN]}],
    }
