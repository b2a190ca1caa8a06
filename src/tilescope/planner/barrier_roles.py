"""ts.plan_pipeline: the barriers and roles that bring planned tiles to their consumer, stage after stage.

    producer   wait empty ─▶ expect full ─▶ copies ──┐           tail: wait for every stage before it leaves
                  ▲                                  ▼
    consumer   release ◀─ wait_group ◀─ multiply ◀─ wait full

In a cluster of Cx x Cy blocks (rank = x + Cx y) blocks with the same x share A and those with the same y share B: every
block loads its part of a shared tile into all of them. So every block expects whole tiles, and a slot is free when the
consumers of every block that it feeds have released it.

With cta_group=2 two blocks along x multiply together, and tiles are the pair's, as m and n of the instruction are: each block
brings half of the rows of A and half of the columns of B, and the even block's barrier expects what both bring.

    A 256 x 64, B 256 x 64 of bf16    block 0: A rows 0-127, B columns 0-127      16384 + 16384 bytes ─┐
                                      block 1: A rows 128-255, B columns 128-255  16384 + 16384 bytes ─┴▶ 65536 at block 0

Counts that a kernel knows by name are constants of the pipeline (STAGES, k_tiles), so that the emitter prints the steps as
they stand here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from tilescope.arithmetic import ceil_div
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.threads import WARPGROUP_THREADS
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.plans import Plan
from tilescope.planner.staging import Arrivals, Staging, plans_of_a_block, read_staging
from tilescope.sentence import counted

Step = dict[str, object]  # by the names of pipeline.parts
Steps = list[Step]
_EPILOGUE_BAR = 1  # bar.sync id of the consumers' epilogue; 0 is __syncthreads
_DRAIN: Step = {"wait_group": "bulk", "pending": 0, "read": True}
_SLOTS = "abcdefgh"  # of a stage


class _Registers(NamedTuple):
    """Registers of a thread; the sums over a block are equal at entry and behind it."""

    at_entry: int
    producer: int
    consumer: int


_REGISTERS = {2: _Registers(168, 40, 232), 3: _Registers(128, 32, 160)}  # by consumers


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
    """Barriers, slots and roles for planned tiles: counts, bytes and parities that `ts.simulate` proves right.

    `plan` is one plan, several whose tiles share a stage (A, then B), or a GEMM plan, whose epilogue is included.
    `consumers` are warpgroups; `arrivals` says whether a consumer arrives once, by warp or by thread (None: once where the
    tensor core reads, by warp where threads do). `steps` is how many K steps are described.

    `cta_group=2` lets the even block of a pair multiply for both (tcgen05). Tiles, a GEMM plan's too, are then the pair's, as m
    and n of the instruction are: the pipeline is planned for what one block brings, half of A's rows and half of B's columns.

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
    described = _storing(staging, plans[0]) if stores else _Loading(staging, plans).pipeline()
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


def _step(**fields: object) -> Step:
    """A step, without the fields that are None."""
    return {name: value for name, value in fields.items() if value is not None}


class _Sharing(NamedTuple):
    """The mask of the blocks that share a tile, and in how many parts they bring it."""

    mask: str | None
    parts: int


class _Loading:
    """The pipeline that loads tiles for a consumer; a GEMM's takes its sums through an epilogue."""

    def __init__(self, staging: Staging, plans: tuple[Plan, ...]) -> None:
        self.staging = staging
        self.plans = plans  # of what one block brings of every tile
        self.gemm = staging.gemm
        self.step = self._step_number()
        self.stage = f"{self.step} % STAGES"
        self.turn = f"{self.step} / STAGES % 2"
        self.slots = [f"{name}[{self.stage}]" for name in _SLOTS[: len(plans)]]
        # of a slice of C: one part of the buffer for every one
        self.writers = 1 if staging.in_tmem else staging.consumers

    def _step_number(self) -> str:
        """Stages used before, over the whole kernel; blocks that share k take one tile."""
        if self.gemm is None:
            return "i"
        return "(t * K_TILES + k_tile)" if self.gemm.schedule.persistent else "k_tile"

    @property
    def has_epilogue(self) -> bool:
        """Whether slices of C go through shared memory."""
        return self.gemm is not None and self.gemm.epilogue is not None

    @property
    def registers(self) -> _Registers | None:
        """What setmaxnreg shares out; a GEMM's producer is a warp, not a warpgroup: the registers at entry suffice."""
        if self.gemm is not None or not self.staging.by_warpgroups:
            return None
        return _REGISTERS.get(self.staging.consumers)

    @property
    def filled(self) -> Steps:
        """A consumer's wait for a stage; what cp.async wrote is shown to a tensor core that reads by itself."""
        steps: Steps = [{"wait": f"full[{self.stage}]", "parity": self.turn}]
        if self.staging.first.copy == "cp.async" and self.staging.by_descriptor:
            steps.append({"fence": "proxy.async"})
        return steps

    @property
    def feeders(self) -> str:
        """The mask of the blocks whose copies land here: those of the same x (or pair) and those of the same y."""
        across, down = self.staging.cluster
        x = "x" if self.staging.cta_group == 1 else "(x - x % 2)"
        column = f"{_column(across, down, self.staging.cta_group)} << {x}"
        if self.staging.b_sharers == 1:
            return column
        return f"{column} | {(1 << across) - 1} << ({across} * y)"

    def pipeline(self) -> Step:
        """The pipeline, as Pipeline.from_dict takes it."""
        staging = self.staging
        roles = [self._producer(), self._tmem_consumer() if staging.in_tmem else self._consumer()]
        if self.gemm is not None and staging.in_tmem:
            roles.append(self._tmem_epilogue())
        return {
            "cluster": list(staging.cluster),
            "constants": {"STAGES": staging.stages, **self._loop_counts()},
            "registers": None if self.registers is None else self.registers.at_entry,
            "barriers": self._barriers(),
            "slots": self._slots(),
            "roles": roles,
        }

    def _loop_counts(self) -> dict[str, int]:
        if self.gemm is None:
            return {"k_tiles": self.staging.steps}
        counts = {"K_TILES": self.gemm.k_tiles}
        if self.is_dependent:
            counts["EARLY"] = min(self.staging.stages, self.gemm.k_tiles)
        if not self.gemm.schedule.persistent:
            return counts
        counts["tiles"] = 2  # for a block, so that parities are seen to count on
        if self.gemm.schedule.tail > 1:
            counts |= {"whole": 1, "TAIL_K_TILES": ceil_div(self.gemm.k_tiles, self.gemm.schedule.tail)}
        return counts

    def _barriers(self) -> dict[str, Step]:
        staging = self.staging
        releases = 1 if staging.in_tmem else staging.consumers * staging.arrivals
        feeding = staging.b_sharers + staging.cluster[1] - 1 if staging.shares else 1
        barriers: dict[str, Step] = {
            "full": {"count": staging.copiers, "stages": staging.stages},
            "empty": {"count": feeding * releases, "stages": staging.stages},
        }
        if self.gemm is not None and staging.in_tmem:
            barriers["acc_full"] = {"count": 1, "stages": 2}
            barriers["acc_empty"] = {"count": WARPGROUP_THREADS * staging.cta_group, "stages": 2}
        return barriers

    def _slots(self) -> dict[str, Step]:
        """The buffers of a stage; of them, copies fill what TMA moves: it leaves the gaps between narrow rows as they are."""
        staging = self.staging
        slots: dict[str, Step] = {}
        for name, plan in zip(_SLOTS, self.plans, strict=False):
            filled_bytes = plan.transaction_bytes if staging.first.copy == "tma" else plan.smem_bytes
            slots[name] = {"stages": staging.stages, "bytes": filled_bytes}
        if self.gemm is not None and staging.in_tmem:
            slots["accumulator"] = {"stages": 2, "space": "tmem"}
        if self.gemm is not None and staging.blocks > 1 and self.gemm.schedule.split > 1:
            senders = staging.blocks * staging.consumers
            slots["parts"] = {"stages": senders, "bytes": self.gemm.part_bytes // staging.consumers}
        if self.gemm is not None and self.gemm.workspace_bytes:
            slots["partial"] = {"stages": staging.blocks * staging.consumers, "space": "gmem"}
        if self.has_epilogue:
            slots["c"] = {
                "stages": staging.c_buffers * self.writers,
                "bytes": staging.c_stage_bytes // self.writers,
            }
        return slots

    def _meet(self, registers: int | None = None) -> Steps:
        """Barriers are initialised by the producer (the first role) and seen by everyone before anyone uses them.

        Blocks that share k alone use no barriers of each other.
        """
        splits = self.gemm is not None and self.gemm.schedule.split > 1
        steps: Steps = [{"sync": 0} if self.staging.blocks == 1 or splits else {"cluster": "sync"}]
        if registers is not None:
            steps.append({"registers": registers})
        return steps

    def _loops(self, steps: Steps, before: Steps, after: Steps) -> Steps:
        """The K loop; for a persistent GEMM within the loop over tiles, counted through."""
        if self.gemm is None:
            return [{"loop": "i", "count": "k_tiles", "steps": steps}]
        inner: Step = {"loop": "k_tile", "count": self._tile_steps(), "steps": steps}
        if not self.gemm.schedule.persistent:
            return [*before, inner, *after]
        return [{"loop": "t", "count": "tiles", "steps": [*before, inner, *after]}]

    def _tile_steps(self) -> str:
        """K steps of a tile; blocks that share a tile of the last round have fewer."""
        if self.gemm is None or self.gemm.schedule.tail == 1:
            return "K_TILES"
        return "(K_TILES - (t == whole) * (K_TILES - TAIL_K_TILES))"

    def _producer(self) -> Step:
        barriers = ["full", "empty"]
        if self.gemm is not None and self.staging.in_tmem:
            barriers += ["acc_full", "acc_empty"]
        several = self.staging.producers > 1
        made: Steps = [_step(init=barriers, when="instance == 0" if several else None), {"fence": "mbarrier_init"}]
        filling: Steps = [{"wait": f"empty[{self.stage}]", "parity": f"{self.turn} ^ 1"}, *self._filling()]
        filling = self._taking_turns(filling, self.step)
        if self.is_dependent:  # the first stages were filled before
            later = f"{self.step} >= EARLY"
            filling = [step | {"when": _both(later, cast("str | None", step.get("when")))} for step in filling]
        tail: Step = {
            "loop": "j",
            "start": self._all_steps(),
            "count": "STAGES",
            "steps": [{"tail": "empty[j % STAGES]", "parity": "j / STAGES % 2 ^ 1"}],
        }
        meet = self._meet(None if self.registers is None else self.registers.producer)
        return {
            "name": "producer",
            "threads": self.staging.copiers,
            "instances": self.staging.producers,
            "steps": [*made, *meet, *self._before_the_grid(), *self._loops(filling, [], []), tail],
        }

    @property
    def is_dependent(self) -> bool:
        """Whether the kernel starts before the one before it has ended."""
        return self.gemm is not None and self.gemm.schedule.dependent

    def _taking_turns(self, steps: Steps, step: str) -> Steps:
        """Steps of one stage, by the producer whose turn it is."""
        if self.staging.producers == 1:
            return steps
        return [one | {"when": f"{step} % {self.staging.producers} == instance"} for one in steps]

    def _before_the_grid(self) -> Steps:
        """Dependent launch: the next kernel may start, and B of the first stages is fetched while the kernel before runs."""
        gemm = self.gemm
        if gemm is None or not self.is_dependent:
            return []
        first = "t * K_TILES + " if gemm.schedule.persistent else ""  # t is 0

        def copies(counter: str, slot: str, plan: Plan, *, expects: bool) -> Step:
            step = f"({first}{counter})" if first else counter
            full = f"full[{step} % STAGES]"
            total = sum(each.transaction_bytes for each in self.plans)
            steps: Steps = [{"expect": full, "bytes": total}] if expects else []
            steps.append(
                {
                    "copy": f"{slot}[{step} % STAGES]",
                    "barrier": full,
                    "tile": step,
                    "bytes": plan.transaction_bytes,
                }
            )
            return {"loop": counter, "count": "EARLY", "steps": self._taking_turns(steps, step)}

        a, b = self.plans
        steps: Steps = [
            copies("early", "b", b, expects=True),
            {"griddepcontrol": "wait"},
            copies("late", "a", a, expects=False),
        ]
        launched: Step = {"griddepcontrol": "launch"}
        return [launched, {"loop": "t", "count": 1, "steps": steps}] if first else [launched, *steps]

    def _all_steps(self) -> str:
        """How many stages a block fills."""
        if self.gemm is None:
            return "k_tiles"
        if not self.gemm.schedule.persistent:
            return "K_TILES"
        if self.gemm.schedule.tail > 1:
            return "(whole * K_TILES + (tiles - whole) * TAIL_K_TILES)"
        return "tiles * K_TILES"

    def _filling(self) -> Steps:
        """The copies of a stage, and how they arrive at its barrier."""
        full = f"full[{self.stage}]"
        if self.staging.first.copy == "tma":
            return self._by_tma(full)
        if self.staging.first.copy == "cp.async":  # whose landing arrives
            copies: Steps = [
                {"copy": slot, "bytes": plan.smem_bytes, "by": "cp.async", "tile": self.step}
                for slot, plan in zip(self.slots, self.plans, strict=True)
            ]
            return [*copies, {"cp_arrive": full, "count": WARPGROUP_THREADS, "noinc": True}]
        writes: Steps = [{"write": self.slots, "tile": self.step}]
        if self.staging.by_descriptor:
            writes.append({"fence": "proxy.async"})
        return [*writes, {"arrive": full, "count": WARPGROUP_THREADS}]

    def _by_tma(self, full: str) -> Steps:
        """The bytes of all tiles are expected; then every tile is copied, or this block's part of a shared one."""
        in_pairs = self.staging.cta_group == 2
        total = sum(plan.transaction_bytes for plan in self.plans) * self.staging.cta_group
        steps = [_step(expect=full, bytes=total, when="rank % 2 == 0" if in_pairs else None)]
        for number, (slot, plan) in enumerate(zip(self.slots, self.plans, strict=True)):
            sharing = self._sharing_of_a() if number == 0 else self._sharing_of_b()
            steps.append(
                _step(
                    copy=slot,
                    barrier=full,
                    tile=self.step,
                    bytes=plan.transaction_bytes // sharing.parts,
                    mask=sharing.mask,
                    barrier_rank="rank - rank % 2" if in_pairs else None,
                )
            )
        return steps

    def _sharing_of_a(self) -> _Sharing:
        """Blocks with the same x share A."""
        across, down = self.staging.cluster
        if not self.staging.shares or down == 1:
            return _Sharing(None, 1)
        return _Sharing(f"{_column(across, down, 1)} << x", down)

    def _sharing_of_b(self) -> _Sharing:
        """Blocks with the same y share B, of pairs those at the same place in theirs."""
        across, _ = self.staging.cluster
        if not self.staging.shares or self.staging.b_sharers <= 1:
            return _Sharing(None, 1)
        row = f"{across} * y + x % 2" if self.staging.cta_group == 2 else f"{across} * y"
        blocks = sum(1 << x for x in range(0, across, self.staging.cta_group))
        return _Sharing(f"{blocks} << ({row})", self.staging.b_sharers)

    def _consumer(self) -> Step:
        """Warps or warpgroups that multiply into their registers."""
        staging = self.staging
        mask = self.feeders if staging.shares else None
        free = _step(release=f"empty[{self.stage}]", count=staging.arrivals, mask=mask)
        multiply = _step(multiply=self.slots, unit=None if staging.by_warpgroups else "mma", tile=self.step)
        read: Steps = [{"fence": "proxy.async"}]
        last: Steps = []
        if staging.by_warpgroups:
            # the products of one step run while those of the next are issued, where there is a stage to spare
            is_behind = self.gemm is not None and staging.stages > 1 and not self.gemm.product.is_promoted
            read = [{"commit": "wgmma"}, {"wait_group": "wgmma", "pending": int(is_behind)}]
            if is_behind:
                tile = "t * K_TILES + " if self.gemm is not None and self.gemm.schedule.persistent else ""
                last = [
                    {"wait_group": "wgmma", "pending": 0},
                    free | {"release": f"empty[({tile}{self._tile_steps()} - 1) % STAGES]"},
                ]
                free |= {"release": f"empty[({tile}k_tile - 1) % STAGES]", "when": "k_tile > 0"}
        meet = self._meet(None if self.registers is None else self.registers.consumer)
        if self.is_dependent:
            meet.append({"griddepcontrol": "launch"})
        loops = self._loops([*self.filled, multiply, *read, free], [], [*last, *self._added(), *self._stored_slices()])
        return {
            "name": "consumer",
            "threads": staging.threads,
            "instances": staging.consumers,
            "steps": [*meet, *loops, *self._drain()],
        }

    def _added(self) -> Steps:
        """The blocks of a cluster that share k add their sums, each those of its own columns.

        What they send lies where stages were: nobody sends before all have read theirs.
        """
        gemm = self.gemm
        if gemm is None or gemm.schedule.split == 1:
            return []
        senders = self.staging.consumers
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
                "steps": [{"read": [f"parts[{from_other}]"], "when": _both("other != rank", self._owns())}],
            },
        ]

    def _owns(self) -> str | None:
        """The condition that a block has columns of its own to store; None: all have."""
        gemm = self.gemm
        if gemm is None or gemm.schedule.owners(gemm.sums[1]) == gemm.schedule.split:
            return None
        return f"rank < {gemm.schedule.owners(gemm.sums[1])}"

    def _stored_slices(self) -> Steps:
        """The epilogue of the blocks that have columns of their own; where clusters share k, of the last of them."""
        steps = self._epilogue()
        partial = f"partial[rank * {self.staging.consumers} + instance]"
        if self.gemm is not None and self.gemm.schedule.parts > 1:
            steps = [{"write": [partial]}, *steps]
        elif self.gemm is not None and self.gemm.schedule.tail > 1:
            steps = [{"write": [partial], "when": "t == whole"}, *steps]
        owns = self._owns()
        return steps if owns is None else [{"loop": "owner", "count": owns, "steps": steps}]

    def _tmem_consumer(self) -> Step:
        """One thread of the (leading) block multiplies; its commits free slots and hand accumulators over."""
        staging = self.staging
        pair = None  # the mask of two blocks that multiply together
        leaders = None
        if staging.cta_group == 2:
            pair = "3 << rank"
            leaders = sum(1 << rank for rank in range(0, staging.blocks, 2))
        into = None if self.gemm is None else "accumulator[t % 2]"
        k_step = [
            *self.filled,
            _step(multiply=self.slots, unit=staging.unit, tile=self.step, mask=pair, into=into),
            _step(commit=f"empty[{self.stage}]", mask=self.feeders if staging.shares else pair),
        ]
        before: Steps = [{"wait": "acc_empty[t % 2]", "parity": "(t / 2) % 2 ^ 1"}, {"fence": "tcgen05.after"}]
        steps = [*self._meet(), *self._loops(k_step, before, [_step(commit="acc_full[t % 2]", mask=pair)])]
        if self.gemm is not None:
            drained: Steps = [{"tail": "acc_empty[u % 2]", "parity": "(u / 2) % 2 ^ 1"}]
            steps.append({"loop": "u", "start": "tiles", "count": 2, "steps": drained})
        return _step(name="consumer", threads=1, mask=leaders, steps=steps)

    def _tmem_epilogue(self) -> Step:
        """A warpgroup takes accumulators from tensor memory, and gives them back before it stores."""
        leader = "1 << (rank - rank % 2)" if self.staging.cta_group == 2 else None
        steps: Steps = [
            {"wait": "acc_full[t % 2]", "parity": "(t / 2) % 2"},
            {"fence": "tcgen05.after"},
            {"read": ["accumulator[t % 2]"]},
            {"fence": "tcgen05.before"},
            _step(release="acc_empty[t % 2]", count=WARPGROUP_THREADS, mask=leader),
            *self._epilogue(),
        ]
        loop: Step = {"loop": "t", "count": "tiles", "steps": steps}
        return {
            "name": "epilogue",
            "threads": WARPGROUP_THREADS,
            "steps": [*self._meet(), loop, *self._drain()],
        }

    def _epilogue(self) -> Steps:
        """The slices of a tile of C, written by all threads and stored by one of them."""
        if self.gemm is None or self.gemm.epilogue is None:
            return []
        first = ""  # of the buffers that this slice takes
        if self.staging.c_buffers > 1:
            number = f"t * {self.gemm.slices} + slice" if self.gemm.schedule.persistent else "slice"
            first = f"({number}) % {self.staging.c_buffers} * {self.writers} + "
        steps = _stored(
            written=f"c[{first}instance]",
            stored=[f"c[{first}{part}]" for part in range(self.writers)],
            stored_bytes=self.staging.c_stored_bytes,
            meet={"sync": _EPILOGUE_BAR, "threads": self.writers * self.staging.threads},
            pending=self.staging.c_buffers - 1,
            when="instance == 0" if self.writers > 1 else None,
        )
        return [{"loop": "slice", "count": self.gemm.slices, "steps": steps}]

    def _drain(self) -> Steps:
        """Stores that must have read the epilogue's buffer before the block ends."""
        return [_DRAIN] if self.has_epilogue else []


def _both(first: str, second: str | None) -> str:
    """A condition that holds where both do."""
    return first if second is None else f"({first}) & ({second})"


def _storing(staging: Staging, plan: Plan) -> Step:
    """The pipeline of a plan that stores: threads write a stage, and TMA takes it from there."""
    slot = "c[i % STAGES]"
    steps = _stored(
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
        "roles": [{"name": "epilogue", "threads": WARPGROUP_THREADS, "steps": [loop, _DRAIN]}],
    }


def _stored(*, written: str, stored: list[str], stored_bytes: int, meet: Step, pending: int, when: str | None) -> Steps:
    """A buffer that threads write once its last store has read it, and that one thread stores (`when`: which)."""
    return [
        _step(wait_group="bulk", pending=pending, read=True, when=when),
        meet,
        {"write": [written]},
        {"fence": "proxy.async"},
        meet,
        _step(store=stored, bytes=stored_bytes, when=when),
        _step(commit="bulk", when=when),
    ]


def _column(across: int, down: int, width: int) -> int:
    """The bits of `width` neighbouring blocks in every row of a cluster."""
    return sum(((1 << width) - 1) << across * row for row in range(down))
