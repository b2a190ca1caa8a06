"""ts.plan_pipeline: the barriers and roles that bring planned tiles to their consumer, stage after stage.

    producer   wait empty ─▶ expect full ─▶ copies ──┐           tail: wait for every stage before it leaves
                  ▲                                  ▼
    consumer   release ◀─ wait_group ◀─ multiply ◀─ wait full

In a cluster of Cx x Cy blocks (rank = x + Cx y) blocks with the same x share A and those with the same y share B: each
loads its part of a shared tile into all of them. So every block expects whole tiles, and a slot is free when the
consumers of every block that it feeds have released it.

Counts that a kernel knows by name are constants of the pipeline (STAGES, k_tiles), so that the emitter prints the steps as
they stand here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilescope.pipeline.description import Pipeline
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.pipeline_arguments import WARPGROUP_THREADS, Arrivals, PipelineArguments
from tilescope.planner.plans import Plan

_EPILOGUE_BAR = 1  # bar.sync id of the consumers' epilogue; 0 is __syncthreads
# consumers: registers at entry, of the producer, of a consumer; the sums are equal
_REGISTERS = {2: (168, 40, 232), 3: (128, 32, 160)}


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
    tensor core reads, by warp where threads do); `cta_group=2` lets the even block of each pair multiply for both (tcgen05).
    `steps` is how many K steps are described.

    >>> import tilescope as ts
    >>> a, b = (ts.plan(tile, "bf16").best for tile in ((128, 64), (256, 64)))
    >>> pipeline = ts.plan_pipeline([a, b], stages=3, consumers=2)
    >>> [(barrier.name, barrier.count) for barrier in pipeline.barriers]
    [('full', 1), ('empty', 2)]
    >>> for barrier in ts.simulate(pipeline).barriers:
    ...     print(barrier.name, barrier.bytes, barrier.parities)
    full (49152,) (('consumer', 0),)
    empty (0,) (('producer', 1),)
    """
    return _Planning(plan, stages, consumers, cluster, cta_group, arrivals, multicast, steps).pipeline()


class _Planning(PipelineArguments):
    """The pieces that pipelines are made of."""

    def pipeline(self) -> Pipeline:
        tiles = " + ".join(f"{plan.problem.tile[0]}x{plan.problem.tile[1]}" for plan in self.plans)
        name = f"{tiles} {self.plans[0].problem.data_type.name}, {self.stages} stages"
        if self.store:
            return Pipeline.from_dict({"name": f"{name}, stored"} | self._storing())
        return Pipeline.from_dict({"name": name} | self._loading())

    # loads

    def _loading(self) -> dict[str, Any]:
        names = "ab" if len(self.plans) == 2 else "abcdefgh"[: len(self.plans)]
        self.names = list(names)
        slots: dict[str, Any] = {
            name: {"stages": self.stages, "bytes": plan.stage_bytes}
            for name, plan in zip(names, self.plans, strict=True)
        }
        barriers = {
            "full": {"count": self._full_count(), "stages": self.stages},
            "empty": {"count": self._empty_count(), "stages": self.stages},
        }
        constants = {
            "STAGES": self.stages,
            **({"k_tiles": self.steps} if self.gemm is None else self._gemm_constants()),
        }
        described: dict[str, Any] = {
            "cluster": list(self.cluster), "constants": constants, "barriers": barriers, "slots": slots,
        }  # fmt: skip
        roles = [self._producer(), self._consumer()]
        if self.gemm is not None and self.unit == "tcgen05":
            slots["accumulator"] = {"stages": 2, "space": "tmem"}
            barriers["acc_full"] = {"count": 1, "stages": 2}
            barriers["acc_empty"] = {"count": WARPGROUP_THREADS * self.cta_group, "stages": 2}
            roles.append(self._tmem_epilogue())
        if self.gemm is not None and self.gemm.epilogue is not None:
            slots["c"] = {"stages": self.writers, "bytes": self.gemm.epilogue.stage_bytes // self.writers}
        # a GEMM's producer is a warp, not a warpgroup: the registers at entry suffice
        if self.gemm is None and self.unit == "wgmma" and self.consumers in _REGISTERS:
            entry, producing, consuming = _REGISTERS[self.consumers]
            described["registers"] = entry
            for role, registers in zip(roles, (producing, consuming), strict=False):
                role["steps"].insert(len(self._meet(role["name"] == "producer")), {"registers": registers})
        return described | {"roles": roles}

    def _meet(self, makes: bool) -> list[dict[str, Any]]:
        """Barriers are initialised by the producer and seen by everyone before anyone uses them."""
        barriers = ["full", "empty"] + (
            ["acc_full", "acc_empty"] if self.gemm is not None and self.unit == "tcgen05" else []
        )
        made: list[dict[str, Any]] = [{"init": barriers}, {"fence": "mbarrier_init"}] if makes else []
        return [*made, {"sync": 0} if self.blocks == 1 else {"cluster": "sync"}]

    def _full_count(self) -> int:
        return 1 if self.copy == "tma" else WARPGROUP_THREADS

    def _empty_count(self) -> int:
        feeding = self.b_sharers + self.cluster[1] - 1 if self.shares else 1
        return feeding * (1 if self.unit == "tcgen05" else self.consumers * self.arrivals)

    def _loops(self, steps: list[dict[str, Any]], after: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        """The K loop; for a GEMM within the loop over tiles, counted through."""
        if self.gemm is None:
            return {"loop": "i", "count": "k_tiles", "steps": steps}
        inner = {"loop": "k_tile", "count": "K_TILES", "steps": steps}
        return {"loop": "t", "count": "tiles", "steps": [inner, *(after or [])]}

    def _gemm_constants(self) -> dict[str, int]:
        """K steps of a tile of C, and the tiles that a block takes: two, so that parities are seen to count on."""
        assert self.gemm is not None
        return {"K_TILES": -(-self.gemm.shape[2] // self.gemm.tile[2]), "tiles": 2}

    @property
    def step(self) -> str:
        """How many stages were used before, over the whole kernel."""
        return "i" if self.gemm is None else "(t * K_TILES + k_tile)"

    @property
    def stage(self) -> str:
        return f"{self.step} % STAGES"

    @property
    def turn(self) -> str:
        return f"{self.step} / STAGES % 2"

    @property
    def writers(self) -> int:
        """Groups of threads that write a slice of C: each has a part of the buffer."""
        return 1 if self.unit == "tcgen05" else self.consumers

    def _producer(self) -> dict[str, Any]:
        steps: list[dict[str, Any]] = [{"wait": f"empty[{self.stage}]", "parity": f"{self.turn} ^ 1"}]
        threads = 1
        if self.copy == "tma":
            steps += self._tma_steps()
        else:
            threads = WARPGROUP_THREADS
            steps += self._thread_steps()
        total = "k_tiles" if self.gemm is None else "tiles * K_TILES"
        tail = {"loop": "j", "start": total, "count": "STAGES", "steps": [
            {"tail": "empty[j % STAGES]", "parity": "j / STAGES % 2 ^ 1"}]}  # fmt: skip
        return {"name": "producer", "threads": threads, "steps": [*self._meet(True), self._loops(steps), tail]}

    def _tma_steps(self) -> list[dict[str, Any]]:
        full = f"full[{self.stage}]"
        total = sum(plan.transaction_bytes for plan in self.plans) * self.cta_group
        expect: dict[str, Any] = {"expect": full, "bytes": total}
        if self.cta_group == 2:
            expect["when"] = "rank % 2 == 0"
        steps = [expect]
        for name, plan in zip(self.names, self.plans, strict=True):
            copy: dict[str, Any] = {"copy": f"{name}[{self.stage}]", "barrier": full, "tile": self.step}
            mask, parts = self._sharing(name)
            copy["bytes"] = plan.transaction_bytes // parts
            if mask:
                copy["mask"] = mask
            if self.cta_group == 2:
                copy["barrier_rank"] = "rank - rank % 2"
            steps.append(copy)
        return steps

    def _sharing(self, name: str) -> tuple[str, int]:
        """The mask of the blocks that share a tile, and how many these are."""
        across, down = self.cluster
        if not self.shares:
            return "", 1
        if name == "a":
            return (f"{_column(across, down, 1)} << x", down) if down > 1 else ("", 1)
        row = sum(1 << each for each in range(0, across, self.cta_group))
        if self.b_sharers == 1:
            return "", 1
        place = f"{across} * y" if self.cta_group == 1 else f"({across} * y + x % 2)"
        return f"{row} << ({place})", self.b_sharers

    def _thread_steps(self) -> list[dict[str, Any]]:
        """Threads fill a stage: by cp.async, whose landing arrives, or through registers."""
        full = f"full[{self.stage}]"
        slots = [f"{name}[{self.stage}]" for name in self.names]
        if self.copy == "cp.async":
            copies = [
                {"copy": slot, "bytes": plan.smem_bytes, "by": "cp.async", "tile": self.step}
                for slot, plan in zip(slots, self.plans, strict=True)
            ]
            return [*copies, {"cp_arrive": full, "count": WARPGROUP_THREADS, "noinc": True}]
        fence = [{"fence": "proxy.async"}] if self.unit in ("wgmma", "tcgen05") else []
        return [{"write": slots, "tile": self.step}, *fence, {"arrive": full, "count": WARPGROUP_THREADS}]

    def _consumer(self) -> dict[str, Any]:
        slots = [f"{name}[{self.stage}]" for name in self.names]
        steps: list[dict[str, Any]] = [{"wait": f"full[{self.stage}]", "parity": self.turn}]
        if self.copy == "cp.async" and self.unit in ("wgmma", "tcgen05"):
            steps.append({"fence": "proxy.async"})
        if self.unit == "tcgen05":
            return self._tcgen05_consumer(steps, slots)
        release: dict[str, Any] = {"release": f"empty[{self.stage}]", "count": self.arrivals}
        if self.shares:
            release["mask"] = self._feeders()
        last: list[dict[str, Any]] = []
        if self.unit == "wgmma":
            # the products of one step run while those of the next are issued, where there is a stage to spare
            behind = self.gemm is not None and self.stages > 1
            steps += [
                {"multiply": slots, "tile": self.step},
                {"commit": "wgmma"},
                {"wait_group": "wgmma", "pending": int(behind)},
            ]
            if behind:
                last = [
                    {"wait_group": "wgmma", "pending": 0},
                    release | {"release": "empty[(t * K_TILES + K_TILES - 1) % STAGES]"},
                ]
                release |= {"release": f"empty[({self.step[1:-1]} - 1) % STAGES]", "when": "k_tile > 0"}
            steps.append(release)
        else:
            steps += [{"multiply": slots, "unit": "mma", "tile": self.step}, {"fence": "proxy.async"}, release]
        return {
            "name": "consumer", "threads": self.threads, "instances": self.consumers,
            "steps": [*self._meet(False), self._loops(steps, last + self._epilogue()), *self._drain()],
        }  # fmt: skip

    def _feeders(self) -> str:
        """The mask of the blocks whose copies land here: those of the same x (or pair) and those of the same y."""
        across, down = self.cluster
        x = "x" if self.cta_group == 1 else "(x - x % 2)"
        column = f"{_column(across, down, self.cta_group)} << {x}"
        return f"{column} | {(1 << across) - 1} << ({across} * y)" if self.b_sharers > 1 else column

    def _tcgen05_consumer(self, steps: list[dict[str, Any]], slots: list[str]) -> dict[str, Any]:
        """One thread of the (leading) block multiplies; its commits free slots and hand accumulators over."""
        multiply: dict[str, Any] = {"multiply": slots, "unit": "tcgen05", "tile": self.step}
        commit: dict[str, Any] = {"commit": f"empty[{self.stage}]"}
        pair = "3 << rank"
        if self.cta_group == 2:
            multiply["mask"] = pair
        if self.shares or self.cta_group == 2:
            commit["mask"] = self._feeders() if self.shares else pair
        before: list[dict[str, Any]] = []
        after: list[dict[str, Any]] = []
        if self.gemm is not None:
            multiply["into"] = "accumulator[t % 2]"
            before = [{"wait": "acc_empty[t % 2]", "parity": "(t / 2) % 2 ^ 1"}, {"fence": "tcgen05.after"}]
            after = [{"commit": "acc_full[t % 2]"} | ({"mask": pair} if self.cta_group == 2 else {})]
        loops = self._loops([*steps, multiply, commit], after)
        if before:
            loops["steps"] = [*before, *loops["steps"]]
        leaders = sum(1 << rank for rank in range(0, self.blocks, self.cta_group))
        tail = [] if self.gemm is None else [{"loop": "u", "start": "tiles", "count": 2, "steps": [
            {"tail": "acc_empty[u % 2]", "parity": "(u / 2) % 2 ^ 1"}]}]  # fmt: skip
        role: dict[str, Any] = {"name": "consumer", "threads": 1, "steps": [*self._meet(False), loops, *tail]}
        return role if self.cta_group == 1 else role | {"mask": leaders}

    def _tmem_epilogue(self) -> dict[str, Any]:
        """A warpgroup takes accumulators from tensor memory, and gives them back before it stores."""
        release: dict[str, Any] = {"release": "acc_empty[t % 2]", "count": WARPGROUP_THREADS}
        if self.cta_group == 2:
            release["mask"] = "1 << (rank - rank % 2)"
        steps = [
            {"wait": "acc_full[t % 2]", "parity": "(t / 2) % 2"}, {"fence": "tcgen05.after"}, {"read": ["accumulator[t % 2]"]},
            {"fence": "tcgen05.before"}, release, *self._epilogue(),
        ]  # fmt: skip
        loop = {"loop": "t", "count": "tiles", "steps": steps}
        return {"name": "epilogue", "threads": WARPGROUP_THREADS, "steps": [*self._meet(False), loop, *self._drain()]}

    # stores

    def _epilogue(self) -> list[dict[str, Any]]:
        """The slices of a tile of C, each written by its threads and stored by one of them."""
        if self.gemm is None or self.gemm.epilogue is None:
            return []
        first = {"when": "instance == 0"} if self.writers > 1 else {}
        meet = {"sync": _EPILOGUE_BAR, "threads": self.writers * self.threads}
        stored = self.gemm.epilogue.transaction_bytes
        return [{"loop": "slice", "count": self.gemm.slices, "steps": [
            {"wait_group": "bulk", "pending": 0, "read": True} | first, meet, {"write": ["c[instance]"]}, {"fence": "proxy.async"},
            meet, {"store": [f"c[{part}]" for part in range(self.writers)], "bytes": stored} | first, {"commit": "bulk"} | first,
        ]}]  # fmt: skip

    def _drain(self) -> list[dict[str, Any]]:
        return [{"wait_group": "bulk", "pending": 0, "read": True}] if self._epilogue() else []

    def _storing(self) -> dict[str, Any]:
        (plan, *_) = self.plans
        slot, meet = "c[i % STAGES]", {"sync": 0}
        steps: list[dict[str, Any]] = [
            {"wait_group": "bulk", "pending": self.stages - 1, "read": True}, meet, {"write": [slot]}, {"fence": "proxy.async"},
            meet, {"store": [slot], "bytes": plan.transaction_bytes}, {"commit": "bulk"},
        ]  # fmt: skip
        loop = {"loop": "i", "count": "k_tiles", "steps": steps}
        return {
            "constants": {"STAGES": self.stages, "k_tiles": self.steps},
            "slots": {"c": {"stages": self.stages, "bytes": plan.stage_bytes}},
            "roles": [{
                "name": "epilogue", "threads": WARPGROUP_THREADS,
                "steps": [loop, {"wait_group": "bulk", "pending": 0, "read": True}],
            }],
        }  # fmt: skip


def _column(across: int, down: int, width: int) -> int:
    """The bits of `width` blocks next to each other in every row of a cluster."""
    return sum(((1 << width) - 1) << across * row for row in range(down))
