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

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, Literal

from tilescope.arithmetic import ceil_div
from tilescope.errors import PlanError, Violation, raise_all
from tilescope.mma.consumer import CONSUMER
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.parts import MAX_STAGES
from tilescope.pipeline.threads import MAX_BLOCKS
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.pair_tiles import half_of, partial_instructions
from tilescope.planner.plans import Plan, barrier_bytes
from tilescope.planner.reason import Obstacle, or_obstacles, plan_rule, violations
from tilescope.reading import attempted, flag, integer, known_name, pair, plain_int
from tilescope.sentence import counted, printed

Arrivals = Literal["warpgroup", "warp", "thread"]
Steps = list[dict[str, Any]]
WARPGROUP_THREADS = 128
ARRIVALS = {"warpgroup": WARPGROUP_THREADS, "warp": 32, "thread": 1}  # threads that arrive once
_EPILOGUE_BAR = 1  # bar.sync id of the consumers' epilogue; 0 is __syncthreads
# consumers: registers at entry, of the producer, of a consumer; the sums are equal
_REGISTERS = {2: (168, 40, 232), 3: (128, 32, 160)}
_DRAIN = {"wait_group": "bulk", "pending": 0, "read": True}
_SLOTS = "abcdefgh"  # of a stage
# fmt: off
PLAN_PIPELINE = plan_rule(
    "plan-pipeline", "A pipeline is planned for plans that are copied alike, with stages, consumers and a cluster that fit them.",
    "the arguments of plan_pipeline", 'ts.plan_pipeline(ts.plan((64, 64), "bf16").best, stages=2)', "ts.plan_pipeline([])",
    plan=("{plan}", "a plan, plans, or a GEMM plan", "Use ts.plan(…).best, a list of plans, or ts.plan_gemm(…)."),
    alike=("plans of different directions or copies", "tiles of a stage arrive together",
           'Plan all of them with direction="{direction}", copy="{copy}".'),
    pair=("cta_group = {cta_group} with {unit} and {blocks:block} along x", "pairs of blocks along x multiply by tcgen05",
          'Plan with consumer="tcgen05", and use cluster=2.'),
    threads=("a cluster with copy = {copy}", "TMA multicasts, threads do not", "Use cluster=1."),
    store=("a cluster for a store", "every block stores its own tile", "Use cluster=1."),
    parts=("{tile_bytes} bytes in {parts} parts", "parts are multiples of 16 bytes", "Use multicast=False, or cluster=1."),
    room=("{stages:stage} of {stage_bytes} bytes", "a block of {arch} has {limit_bytes} bytes of shared memory for them",
          "Use [at most {fit:stage}, or ]smaller tiles."),
    cluster=("cluster = {cluster}", "a number of blocks, or (x, y), at most {limit_blocks} together", "Use cluster=(2, 1)."),
)
# fmt: on


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
    planning = _Planning(**locals())
    tiles = " + ".join("x".join(map(str, tile.problem.tile)) for tile in planning.tiles)
    stores = planning.first.direction == "store"
    of_pair = " of a pair" if planning.cta_group == 2 else ""
    stored = ", stored" if stores else ""
    name = f"{tiles} {planning.first.data_type.name}{of_pair}, {counted(planning.stages, 'stage')}{stored}"
    return Pipeline.from_dict({"name": name} | (planning.storing() if stores else planning.loading()))


def _step(**fields: Any) -> dict[str, Any]:
    """A step, without the fields that are None."""
    return {name: value for name, value in fields.items() if value is not None}


class _Planning:
    """What plan_pipeline was asked for, read and checked, and the pieces that pipelines are made of."""

    def __init__(self, plan: Any, **asked: Any) -> None:
        problems: list[Violation] = []

        def number(name: str, default: int, most: int) -> int:
            return attempted(problems, 1, integer, name, default if asked[name] is None else asked[name], 1, most)

        self.gemm = gemm = plan if isinstance(plan, GemmPlan) else None
        # the plans of the tiles as they were asked for: of a pair the pair's
        self.tiles = [gemm.a, gemm.b] if gemm else plan if isinstance(plan, list | tuple) else [plan]
        if not self.tiles or not all(isinstance(tile, Plan) for tile in self.tiles):
            raise PLAN_PIPELINE.broken("plan", "plan", plan=printed(plan)).error()
        self.first = first = self.tiles[0].problem
        core = first.tensor_core or CONSUMER["ldmatrix"]  # threads that read by a pattern do it in place of ldmatrix
        self.by_descriptor, self.in_tmem = core.reads_by_descriptor, core.accumulators == "tensor memory"
        self.by_warpgroups = self.by_descriptor and not self.in_tmem  # they issue the products and hold the sums
        self.unit = core.name if self.by_descriptor else "mma"
        self.stages = number("stages", first.stages if gemm is None else gemm.stages, MAX_STAGES)
        is_tall = gemm is not None and self.by_warpgroups and gemm.tile[0] >= WARPGROUP_THREADS
        self.consumers = number("consumers", 2 if is_tall else 1, 7)
        self.cluster = attempted(problems, (1, 1), _cluster, asked["cluster"])
        self.cta_group = number("cta_group", 1, 2)
        self.steps = number("steps", 4 * self.stages + 2, 1 << 24)
        self.multicast = attempted(problems, False, flag, "multicast", asked["multicast"])
        # mma: one group of as many warps as share the tile
        self.threads = WARPGROUP_THREADS if gemm is None or self.by_descriptor else 32 * prod(gemm.warps)
        usual = "warpgroup" if self.by_descriptor else "warp"
        arriving = usual if asked["arrivals"] is None else asked["arrivals"]
        once = attempted(problems, "thread", known_name, "arrivals", arriving, ARRIVALS)
        self.arrivals = ceil_div(self.threads, ARRIVALS[once])
        self.blocks = prod(self.cluster)
        # along x, if there is a B: the blocks of a pair have half of it
        self.b_sharers = self.cluster[0] // self.cta_group if len(self.tiles) > 1 else 1
        self.shares = self.multicast and (self.cluster[1] > 1 or self.b_sharers > 1)  # blocks load parts for the others
        self.copiers = 1 if first.copy == "tma" else WARPGROUP_THREADS  # threads that arrive at a full barrier
        # a GEMM's producer is a warp, not a warpgroup: the registers at entry suffice
        self.registers = _REGISTERS.get(self.consumers) if gemm is None and self.by_warpgroups else None
        epilogue = None if gemm is None else gemm.epilogue
        self.drain = [] if epilogue is None else [_DRAIN]
        # of a slice of C in one block: the blocks of a pair have half of its rows each
        self.c_stage_bytes = 0 if epilogue is None else epilogue.stage_bytes // self.cta_group
        self.c_stored_bytes = 0 if epilogue is None else epilogue.transaction_bytes // self.cta_group
        self.writers = 1 if self.in_tmem else self.consumers  # of a slice of C: one part of the buffer for every one
        raise_all(problems)
        if contradictions := violations(self._contradictions()):
            raise PlanError(contradictions)
        # what one block brings of every tile
        self.plans = [half_of(tile) for tile in self.tiles] if self.cta_group == 2 else list(self.tiles)
        if contradictions := violations(self._beyond_a_block()):
            raise PlanError(contradictions)
        self.step = "i" if gemm is None else "(t * K_TILES + k_tile)"  # stages used before, over the whole kernel
        self.stage, self.turn = f"{self.step} % STAGES", f"{self.step} / STAGES % 2"
        self.slots = [f"{name}[{self.stage}]" for name in _SLOTS[: len(self.plans)]]
        # a consumer's wait for a stage; what cp.async wrote is shown to a tensor core that reads by itself
        fence = [{"fence": "proxy.async"}] if first.copy == "cp.async" and self.by_descriptor else []
        self.filled: Steps = [{"wait": f"full[{self.stage}]", "parity": self.turn}, *fence]
        # the mask of the blocks whose copies land here: those of the same x (or pair) and those of the same y
        across, down = self.cluster
        column = f"{_column(across, down, self.cta_group)} << {'x' if self.cta_group == 1 else '(x - x % 2)'}"
        self.feeders = f"{column} | {(1 << across) - 1} << ({across} * y)" if self.b_sharers > 1 else column

    def _contradictions(self) -> Iterator[Obstacle]:
        (direction, copy), across = (self.first.direction, self.first.copy), self.cluster[0]
        different = any((plan.problem.direction, plan.problem.copy) != (direction, copy) for plan in self.tiles)
        unpaired = self.cta_group == 2 and (not self.in_tmem or across % 2)
        checks = (
            (different, PLAN_PIPELINE.broken("plan", "alike", direction=direction, copy=copy)),
            (unpaired, PLAN_PIPELINE.broken("cta_group", "pair", cta_group=2, unit=self.unit, blocks=across)),
            (self.blocks > 1 and copy != "tma", PLAN_PIPELINE.broken("cluster", "threads", copy=copy)),
            (self.blocks > 1 and direction == "store", PLAN_PIPELINE.broken("cluster", "store")),
        )
        yield from (one for broken, one in checks if broken)
        if self.in_tmem and direction == "load" and not unpaired:
            yield from partial_instructions(self.tiles, self.cta_group)

    def _beyond_a_block(self) -> Iterator[Obstacle]:
        """Refuse stages that a block has no room for, and tiles that cannot be shared out."""
        yield from self._beyond_shared_memory()
        for plan, parts in zip(self.plans, (self.cluster[1], self.b_sharers), strict=False):
            if self.multicast and parts and plan.transaction_bytes % (16 * parts):
                yield PLAN_PIPELINE.broken("cluster", "parts", tile_bytes=plan.transaction_bytes, parts=parts)

    def _beyond_shared_memory(self) -> Iterator[Obstacle]:
        """Refuse stages that exceed what a GEMM's epilogue leaves of a block's shared memory."""
        arch, stage_bytes = self.first.arch, sum(plan.stage_bytes for plan in self.plans) + barrier_bytes(self.first)
        limit = arch.smem_per_block_bytes - self.c_stage_bytes
        if self.stages * stage_bytes > limit:
            fitting = {"limit_bytes": limit, "fit": limit // stage_bytes or None}
            yield PLAN_PIPELINE.broken(
                "stages", "room", stages=self.stages, stage_bytes=stage_bytes, arch=arch.name, **fitting
            )

    def loading(self) -> dict[str, Any]:
        """The pipeline that loads tiles for a consumer; a GEMM's takes its sums through an epilogue."""
        gemm, stages, tiles = self.gemm, self.stages, zip(_SLOTS, self.plans, strict=False)
        slots: dict[str, Any] = {name: {"stages": stages, "bytes": self._filled_bytes(plan)} for name, plan in tiles}
        releases = 1 if self.in_tmem else self.consumers * self.arrivals
        feeding = self.b_sharers + self.cluster[1] - 1 if self.shares else 1
        barriers = {
            "full": {"count": self.copiers, "stages": stages},
            "empty": {"count": feeding * releases, "stages": stages},
        }
        roles = [self._producer(), self._tmem_consumer() if self.in_tmem else self._consumer()]
        # a GEMM: two tiles for a block, so that parities are seen to count on
        looped = {"K_TILES": ceil_div(gemm.shape[2], gemm.tile[2]), "tiles": 2} if gemm else {"k_tiles": self.steps}
        if gemm is not None and self.in_tmem:
            slots["accumulator"] = {"stages": 2, "space": "tmem"}
            emptied = {"count": WARPGROUP_THREADS * self.cta_group, "stages": 2}
            barriers |= {"acc_full": {"count": 1, "stages": 2}, "acc_empty": emptied}
            roles.append(self._tmem_epilogue())
        if gemm is not None and gemm.epilogue is not None:
            slots["c"] = {"stages": self.writers, "bytes": self.c_stage_bytes // self.writers}
        return {
            "cluster": list(self.cluster),
            "constants": {"STAGES": stages, **looped},
            "registers": None if self.registers is None else self.registers[0],
            "barriers": barriers,
            "slots": slots,
            "roles": roles,
        }

    def _filled_bytes(self, plan: Plan) -> int:
        """The bytes of a stage that copies fill: TMA leaves the gaps between narrow rows as they are."""
        return plan.transaction_bytes if self.first.copy == "tma" else plan.smem_bytes

    def _meet(self, registers: int = 0) -> Steps:
        """Barriers are initialised by the producer (the first role) and seen by everyone before anyone uses them."""
        sync = {"sync": 0} if self.blocks == 1 else {"cluster": "sync"}
        return [sync, *([{"registers": self.registers[registers]}] if registers and self.registers else [])]

    def _loops(self, steps: Steps, before: Steps, after: Steps) -> dict[str, Any]:
        """The K loop; for a GEMM within the loop over tiles, counted through."""
        if self.gemm is None:
            return {"loop": "i", "count": "k_tiles", "steps": steps}
        inner = {"loop": "k_tile", "count": "K_TILES", "steps": steps}
        return {"loop": "t", "count": "tiles", "steps": [*before, inner, *after]}

    def _producer(self) -> dict[str, Any]:
        full, tiles = f"full[{self.stage}]", zip(self.slots, self.plans, strict=True)
        accumulators = ["acc_full", "acc_empty"] if self.gemm is not None and self.in_tmem else []
        if self.first.copy == "tma":
            filling = self._by_tma(full)
        elif self.first.copy == "cp.async":  # whose landing arrives
            filling = [
                {"copy": slot, "bytes": plan.smem_bytes, "by": "cp.async", "tile": self.step} for slot, plan in tiles
            ]
            filling += [{"cp_arrive": full, "count": WARPGROUP_THREADS, "noinc": True}]
        else:
            fence = [{"fence": "proxy.async"}] if self.by_descriptor else []
            filling = [{"write": self.slots, "tile": self.step}, *fence, {"arrive": full, "count": WARPGROUP_THREADS}]
        wait = {"wait": f"empty[{self.stage}]", "parity": f"{self.turn} ^ 1"}
        tail = {
            "loop": "j",
            "start": "k_tiles" if self.gemm is None else "tiles * K_TILES",
            "count": "STAGES",
            "steps": [{"tail": "empty[j % STAGES]", "parity": "j / STAGES % 2 ^ 1"}],
        }
        made = [{"init": ["full", "empty", *accumulators]}, {"fence": "mbarrier_init"}, *self._meet(1)]
        return {
            "name": "producer",
            "threads": self.copiers,
            "steps": [*made, self._loops([wait, *filling], [], []), tail],
        }

    def _by_tma(self, full: str) -> Steps:
        """The bytes of all tiles are expected; then every tile is copied, or this block's part of a shared one."""
        (across, down), in_pairs = self.cluster, self.cta_group == 2
        total = sum(plan.transaction_bytes for plan in self.plans) * self.cta_group
        row = f"{across} * y + x % 2" if in_pairs else f"{across} * y"
        a_shared = (
            f"{_column(across, down, 1)} << x",
            down,
        )  # the mask of the blocks that share A, and how many these are
        b_shared = f"{sum(1 << x for x in range(0, across, self.cta_group))} << ({row})", self.b_sharers
        shared = [sharing if self.shares and sharing[1] > 1 else (None, 1) for sharing in (a_shared, b_shared)]
        copies = zip(self.slots, self.plans, [*shared, *shared[1:] * len(self.plans)], strict=False)
        return [
            _step(expect=full, bytes=total, when="rank % 2 == 0" if in_pairs else None),
            *(
                _step(
                    copy=slot,
                    barrier=full,
                    tile=self.step,
                    bytes=plan.transaction_bytes // parts,
                    mask=mask,
                    barrier_rank="rank - rank % 2" if in_pairs else None,
                )
                for slot, plan, (mask, parts) in copies
            ),
        ]

    def _consumer(self) -> dict[str, Any]:
        """Warps or warpgroups that multiply into their registers."""
        free = _step(release=f"empty[{self.stage}]", count=self.arrivals, mask=self.feeders if self.shares else None)
        multiply, last = _step(multiply=self.slots, unit=None if self.by_warpgroups else "mma", tile=self.step), []
        # the products of one step run while those of the next are issued, where there is a stage to spare
        behind = self.by_warpgroups and self.gemm is not None and self.stages > 1
        done = {"wait_group": "wgmma", "pending": int(behind)}
        if behind:
            last = [done | {"pending": 0}, free | {"release": "empty[(t * K_TILES + K_TILES - 1) % STAGES]"}]
            free |= {"release": "empty[(t * K_TILES + k_tile - 1) % STAGES]", "when": "k_tile > 0"}
        read = [{"commit": "wgmma"}, done] if self.by_warpgroups else [{"fence": "proxy.async"}]
        loops = self._loops([*self.filled, multiply, *read, free], [], last + self._epilogue())
        steps = [*self._meet(2), loops, *self.drain]
        return {"name": "consumer", "threads": self.threads, "instances": self.consumers, "steps": steps}

    def _tmem_consumer(self) -> dict[str, Any]:
        """One thread of the (leading) block multiplies; its commits free slots and hand accumulators over."""
        pair = "3 << rank" if self.cta_group == 2 else None  # the mask of two blocks that multiply together
        leaders = sum(1 << rank for rank in range(0, self.blocks, self.cta_group)) if pair else None
        into = None if self.gemm is None else "accumulator[t % 2]"
        steps = [
            *self.filled,
            _step(multiply=self.slots, unit=self.unit, tile=self.step, mask=pair, into=into),
            _step(commit=f"empty[{self.stage}]", mask=self.feeders if self.shares else pair),
        ]
        before = [{"wait": "acc_empty[t % 2]", "parity": "(t / 2) % 2 ^ 1"}, {"fence": "tcgen05.after"}]
        steps = [*self._meet(2), self._loops(steps, before, [_step(commit="acc_full[t % 2]", mask=pair)])]
        if self.gemm is not None:
            drained = [{"tail": "acc_empty[u % 2]", "parity": "(u / 2) % 2 ^ 1"}]
            steps += [{"loop": "u", "start": "tiles", "count": 2, "steps": drained}]
        return _step(name="consumer", threads=1, mask=leaders, steps=steps)

    def _tmem_epilogue(self) -> dict[str, Any]:
        """A warpgroup takes accumulators from tensor memory, and gives them back before it stores."""
        leader = "1 << (rank - rank % 2)" if self.cta_group == 2 else None
        steps = [
            {"wait": "acc_full[t % 2]", "parity": "(t / 2) % 2"},
            {"fence": "tcgen05.after"},
            {"read": ["accumulator[t % 2]"]},
            {"fence": "tcgen05.before"},
            _step(release="acc_empty[t % 2]", count=WARPGROUP_THREADS, mask=leader),
            *self._epilogue(),
        ]
        loop = {"loop": "t", "count": "tiles", "steps": steps}
        return {"name": "epilogue", "threads": WARPGROUP_THREADS, "steps": [*self._meet(), loop, *self.drain]}

    def _epilogue(self) -> Steps:
        """The slices of a tile of C, written by all threads and stored by one of them."""
        if self.gemm is None or self.gemm.epilogue is None:
            return []
        parts = [f"c[{part}]" for part in range(self.writers)]
        meet = {"sync": _EPILOGUE_BAR, "threads": self.writers * self.threads}
        first = {"when": "instance == 0"} if self.writers > 1 else {}
        steps = _stored("c[instance]", parts, self.c_stored_bytes, meet, 0, first)
        return [{"loop": "slice", "count": self.gemm.slices, "steps": steps}]

    def storing(self) -> dict[str, Any]:
        """The pipeline of a plan that stores: threads write a stage, and TMA takes it from there."""
        plan, slot = self.plans[0], "c[i % STAGES]"
        steps = _stored(slot, [slot], plan.transaction_bytes, {"sync": 0}, self.stages - 1, {})
        loop = {"loop": "i", "count": "k_tiles", "steps": steps}
        return {
            "constants": {"STAGES": self.stages, "k_tiles": self.steps},
            "slots": {"c": {"stages": self.stages, "bytes": plan.stage_bytes}},
            "roles": [{"name": "epilogue", "threads": WARPGROUP_THREADS, "steps": [loop, _DRAIN]}],
        }


def _stored(
    written: str, stored: list[str], bytes_stored: int, meet: dict[str, Any], pending: int, first: dict[str, str]
) -> Steps:
    """A buffer that threads write once its last store has read it, and that one thread stores (`first`: which)."""
    return [
        {"wait_group": "bulk", "pending": pending, "read": True} | first,
        meet,
        {"write": [written]},
        {"fence": "proxy.async"},
        meet,
        {"store": stored, "bytes": bytes_stored} | first,
        {"commit": "bulk"} | first,
    ]


def _cluster(cluster: Any) -> tuple[int, int]:
    """Blocks along x and along y."""
    blocks = or_obstacles(pair, "cluster", cluster if plain_int(cluster) is None else (cluster, 1), 1, MAX_BLOCKS)
    if isinstance(blocks, list) or prod(blocks) > MAX_BLOCKS:
        raise PLAN_PIPELINE.broken("cluster", "cluster", cluster=printed(cluster), limit_blocks=MAX_BLOCKS).error()
    return blocks


def _column(across: int, down: int, width: int) -> int:
    """The bits of `width` neighbouring blocks in every row of a cluster."""
    return sum(((1 << width) - 1) << across * row for row in range(down))
