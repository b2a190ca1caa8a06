"""The roles that take tiles from a loading pipeline: consumers, and the epilogue that stores their sums."""

from __future__ import annotations

from tilescope.arithmetic import ceil_div
from tilescope.planner.loading import Loading, Step, Steps, both, step_of
from tilescope.sync.thread_limits import WARPGROUP_THREADS

_EPILOGUE_BAR = 1  # bar.sync id of the consumers' epilogue; 0 is __syncthreads
PROMOTED_RUN = 4  # K steps whose sums are promoted while the next one's products run: the last of a run is waited for
_STORED_STEPS = 2  # K steps after which the stores of the tile before have read its buffers
DRAIN: Step = {"wait_group": "bulk", "pending": 0, "read": True}


def consumer_role(loading: Loading) -> Step:
    """Warps or warpgroups that multiply into their registers."""
    staging = loading.staging
    mask: object = None
    if staging.shares:
        in_a_row = 1 in staging.cluster  # every block then feeds every other
        mask = (1 << staging.blocks) - 1 if in_a_row else loading.feeders
    free = step_of(release=f"empty[{loading.stage}]", count=staging.arrivals, mask=mask)
    multiply = step_of(multiply=loading.slots, unit=None if staging.by_warpgroups else "mma", tile=loading.step)
    read: Steps = [{"fence": "proxy.async"}]
    last: Steps = []
    if staging.by_warpgroups:
        # the products of one step run while those of the next are issued, where there is a stage to spare
        is_behind = loading.gemm is not None and staging.stages > 1 and not loading.gemm.product.is_promoted
        read = [{"commit": "wgmma"}, {"wait_group": "wgmma", "pending": int(is_behind)}]
        if is_behind:
            last = [
                {"wait_group": "wgmma", "pending": 0},
                free | {"release": f"empty[{loading.at(f'{loading.tile_steps()} - 1').stage}]"},
            ]
            free |= {"release": f"empty[{loading.at('k_tile - 1').stage}]", "when": "k_tile > 0"}
    meet = loading.meet(None if loading.registers is None else loading.registers.consumer)
    if loading.is_dependent:
        meet.append({"griddepcontrol": "launch"})
    issued, waited = read[:-1], read[-1:]
    k_step = [*loading.filled, multiply, *issued, *_residual_loads(loading), *waited, free]
    before: Steps = []
    if (
        staging.takes_turns
    ):  # a consumer needs the last phase of full to interpret a parity: the other consumer passes it on
        before = [{"wait": "order[instance]", "parity": "(turn + 1 - instance) % 2"}]
        last = [{"arrive": "order[1 - instance]"}, *last]
    after = [*last, *_residual_wait(loading), *_add_across_cluster(loading), *_stored_slices(loading)]
    if loading.gemm is not None and loading.gemm.step_sums == 2:
        loops = loading.tile_loop([*before, *_promoted_steps(loading, free), *after])
    else:
        loops = loading.loops(k_step, before, after)
    return {
        "name": "consumer",
        "threads": staging.threads,
        "instances": staging.consumers,
        "steps": [*meet, *loops, *_drain(loading)],
    }


def _promoted_steps(loading: Loading, free: Step) -> Steps:
    """The K steps of a tile in runs, whose steps have two accumulators in turn; then those that make no whole run.

    The compiler lets products run while other registers are read only if it sees both in a row: a run ends with a wait for all of them.
    """

    def products(at: Loading, pending: int) -> Steps:
        multiply = step_of(multiply=at.slots, tile=at.step)
        return [*at.filled, multiply, {"commit": "wgmma"}, {"wait_group": "wgmma", "pending": pending}]

    def released(at: Loading) -> Step:
        return free | {"release": f"empty[{at.stage}]"}

    count, alone, first = loading.tile_steps(), loading.at("rest"), f"{PROMOTED_RUN} * run"
    earlier = released(loading.at("k_tile - 1")) | {"when": f"k_tile % {PROMOTED_RUN} > 0"}
    in_run: Step = {
        "loop": "k_tile",
        "start": first,
        "count": PROMOTED_RUN,
        "steps": [*products(loading, 1), earlier],
    }
    last = [{"wait_group": "wgmma", "pending": 0}, released(loading.at(f"{first} + {PROMOTED_RUN} - 1"))]
    return [
        {"loop": "run", "count": f"{count} / {PROMOTED_RUN}", "steps": [in_run, *last]},
        {
            "loop": "rest",
            "start": f"{count} / {PROMOTED_RUN} * {PROMOTED_RUN}",
            "count": f"{count} % {PROMOTED_RUN}",
            "steps": [*products(alone, 0), released(alone)],
        },
    ]


def _residual_loads(loading: Loading) -> Steps:
    """The residual of a tile comes into the buffers of C during its first K steps, when the last tile has been stored."""
    gemm = loading.gemm
    if gemm is None or not gemm.stages_residual:
        return []
    when = f"k_tile == {_residual_step(loading)}"
    if loading.writers > 1:
        when = both(when, "instance == 0")
    part_bytes = loading.staging.c_stored_bytes // loading.writers
    copies: Steps = [
        {
            "copy": f"c[{_c_buffer(loading, str(number))}{part}]",
            "barrier": _residual_barrier(loading),
            "bytes": part_bytes,
            "when": when,
        }
        for number in range(gemm.slices)
        for part in range(loading.writers)
    ]
    return [
        {"wait_group": "bulk", "pending": 0, "read": True, "when": when},
        {"expect": _residual_barrier(loading), "bytes": gemm.slices * loading.staging.c_stored_bytes, "when": when},
        *copies,
    ]


def _residual_step(loading: Loading) -> int:
    """The K step at which the residual is fetched: the first, unless stores of the last tile are given time to read."""
    gemm = loading.gemm
    assert gemm is not None
    if not gemm.schedule.persistent:
        return 0
    fewest = ceil_div(gemm.k_tiles, gemm.schedule.tail)
    return min(_STORED_STEPS, fewest - 1)


def _residual_wait(loading: Loading) -> Steps:
    """No warp leaves a tile before its residual has been loaded."""
    gemm = loading.gemm
    if gemm is None or not gemm.stages_residual:
        return []
    turn = "turn" if loading.staging.takes_turns else "t"
    return [{"wait": _residual_barrier(loading), "parity": f"{turn} % 2" if gemm.schedule.persistent else 0}]


def _residual_barrier(loading: Loading) -> str:
    """Consumers that take tiles in turn have one each."""
    return "residual_full[instance]" if loading.staging.takes_turns else "residual_full"


def _c_buffer(loading: Loading, number: str = "slice") -> str:
    """The first of the buffers that a slice of C takes, one for each writer; by the number of the slice."""
    gemm = loading.gemm
    if gemm is None:
        return ""
    buffers = loading.staging.c_buffers
    takes_turns = loading.staging.takes_turns
    # A warpgroup that computes whole tiles has its own buffers.
    group_offset = f"instance * {buffers} + " if takes_turns else ""
    if buffers == 1:
        return group_offset
    in_turn = gemm.schedule.persistent and not gemm.holds_all_slices
    number = f"{'turn' if takes_turns else 't'} * {gemm.slices} + {number}" if in_turn else number
    return f"{group_offset}({number}) % {buffers} * {loading.writers} + "


def _add_across_cluster(loading: Loading) -> Steps:
    """The blocks of a cluster that share k add their sums; each block adds those of its columns.

    The sums are sent to the memory of the stages, so no block sends before all have read their stages.
    """
    gemm = loading.gemm
    if gemm is None or gemm.schedule.split == 1:
        return []
    senders = loading.staging.consumers
    owners = gemm.schedule.owners(gemm.sums[1])
    sender = f"rank * {senders} + instance" if senders > 1 else "rank"
    from_other = f"other * {senders} + instance" if senders > 1 else "other"
    everyone = (1 << owners) - 1
    others = {"mask": f"({everyone} | 1 << rank) ^ 1 << rank"} if owners > 1 else {"mask": 1, "when": "rank > 0"}
    return [
        {"cluster": "sync"},
        {"write": [f"parts[{sender}]"], **others},
        {"write": [f"a[({sender}) % STAGES]"], "mask": "1 << (rank + 1) % blocks", "when": f"{sender} < STAGES"},
        {"cluster": "sync"},
        {
            "loop": "other",
            "count": gemm.schedule.split,
            "steps": [{"read": [f"parts[{from_other}]"], "when": both("other != rank", _owns(loading))}],
        },
    ]


def _owns(loading: Loading) -> str | None:
    """The condition that a block has columns to store; None: all have."""
    gemm = loading.gemm
    if gemm is None or gemm.schedule.owners(gemm.sums[1]) == gemm.schedule.split:
        return None
    return f"rank < {gemm.schedule.owners(gemm.sums[1])}"


def _stored_slices(loading: Loading) -> Steps:
    """The epilogue of the blocks that store columns; if clusters share k, of the last cluster."""
    steps = _epilogue(loading)
    partial = f"partial[rank * {loading.staging.consumers} + instance]"
    if loading.gemm is not None and loading.gemm.schedule.parts > 1:
        steps = [{"write": [partial]}, *steps]
    elif loading.gemm is not None and loading.gemm.schedule.tail > 1:
        steps = [{"write": [partial], "when": "t == whole"}, *steps]
    owns = _owns(loading)
    return steps if owns is None else [{"loop": "owner", "count": owns, "steps": steps}]


def tmem_consumer_role(loading: Loading) -> Step:
    """One thread of the (leading) block multiplies; its commits free slots and hand accumulators over."""
    staging = loading.staging
    pair = None  # the mask of two blocks that multiply together
    leaders = None
    if staging.cta_group == 2:
        pair = "3 << rank"
        leaders = sum(1 << rank for rank in range(0, staging.blocks, 2))
    turn, parity = _accumulator_turn(loading, "t")
    into = None if loading.gemm is None else f"accumulator[{turn}]"
    k_step = [
        *loading.filled,
        step_of(multiply=loading.slots, unit=staging.unit, tile=loading.step, mask=pair, into=into),
        step_of(commit=f"empty[{loading.stage}]", mask=loading.feeders if staging.shares else pair),
    ]
    before: Steps = [{"wait": f"acc_empty[{turn}]", "parity": f"{parity} ^ 1"}, {"fence": "tcgen05.after"}]
    steps = [*loading.meet(), *loading.loops(k_step, before, [step_of(commit=f"acc_full[{turn}]", mask=pair)])]
    if loading.gemm is not None:
        last, last_parity = _accumulator_turn(loading, "u")
        drained: Steps = [{"tail": f"acc_empty[{last}]", "parity": f"{last_parity} ^ 1"}]
        steps.append({"loop": "u", "start": "tiles", "count": staging.accumulators, "steps": drained})
    return step_of(name="consumer", threads=1, mask=leaders, steps=steps)


def _accumulator_turn(loading: Loading, counter: str) -> tuple[str, str]:
    """Which accumulator a tile takes, and the parity of its use."""
    buffers = loading.staging.accumulators
    return f"{counter} % {buffers}", f"({counter} / {buffers}) % 2"


def tmem_epilogue_role(loading: Loading) -> Step:
    """A warpgroup takes accumulators from tensor memory slice by slice, and gives them back before it writes the last slice."""
    leader = "1 << (rank - rank % 2)" if loading.staging.cta_group == 2 else None
    turn, parity = _accumulator_turn(loading, "t")
    slices = 1 if loading.gemm is None else loading.gemm.slices
    last = f"slice == {slices - 1}" if slices > 1 else None
    read: Steps = [
        {"read": [f"accumulator[{turn}]"]},
        step_of(fence="tcgen05.before", when=last),
        step_of(release=f"acc_empty[{turn}]", count=WARPGROUP_THREADS, mask=leader, when=last),
    ]
    steps: Steps = [
        {"wait": f"acc_full[{turn}]", "parity": parity},
        {"fence": "tcgen05.after"},
        *_epilogue(loading, read),
        *(step | {"count": WARPGROUP_THREADS} if "release" in step else step for step in loading.next_tile()),
    ]
    loop: Step = {"loop": "t", "count": "tiles", "steps": steps}
    return {
        "name": "epilogue",
        "threads": WARPGROUP_THREADS,
        "steps": [*loading.meet(), loop, *_drain(loading)],
    }


def _epilogue(loading: Loading, read: Steps | None = None) -> Steps:
    """The slices of a tile of C, read from tensor memory, written by all threads and stored by one of them."""
    if loading.gemm is None or loading.gemm.epilogue is None:
        return read or []
    first = _c_buffer(loading)
    takes_turns = loading.staging.takes_turns
    writer = "0" if takes_turns else "instance"
    bar: object = f"{_EPILOGUE_BAR} + instance" if takes_turns else _EPILOGUE_BAR
    steps = stored_steps(
        written=f"c[{first}{writer}]",
        stored=[f"c[{first}{part}]" for part in range(loading.writers)],
        stored_bytes=loading.staging.c_stored_bytes,
        meet={"sync": bar, "threads": loading.writers * loading.staging.threads},
        pending=loading.staging.c_buffers - 1,
        when="instance == 0" if loading.writers > 1 else None,
    )
    if loading.gemm.stages_residual:  # whose arrival releases the buffers
        steps = [{"read": [f"c[{first}{writer}]"]}, *steps[2:]]
        return [{"loop": "slice", "count": loading.gemm.slices, "steps": steps}]
    if (
        not loading.staging.in_tmem and loading.gemm.holds_all_slices
    ):  # one wait for all buffers, and one synchronization
        wait_step, sync_step, *steps = steps
        return [wait_step | {"pending": 0}, sync_step, {"loop": "slice", "count": loading.gemm.slices, "steps": steps}]
    return [{"loop": "slice", "count": loading.gemm.slices, "steps": [*(read or []), *steps]}]


def _drain(loading: Loading) -> Steps:
    """Stores that must have read the epilogue's buffer before the block ends."""
    return [DRAIN] if loading.has_epilogue else []


def stored_steps(
    *, written: str, stored: list[str], stored_bytes: int, meet: Step, pending: int, when: str | None
) -> Steps:
    """A buffer that threads write once its last store has read it, and that one thread stores (`when`: which)."""
    return [
        step_of(wait_group="bulk", pending=pending, read=True, when=when),
        meet,
        {"write": [written]},
        {"fence": "proxy.async"},
        meet,
        step_of(store=stored, bytes=stored_bytes, when=when),
        step_of(commit="bulk", when=when),
    ]
