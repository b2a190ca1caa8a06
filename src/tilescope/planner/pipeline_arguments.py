"""The arguments of ts.plan_pipeline: what they may be, and what they give together."""

from __future__ import annotations

from math import prod
from typing import Any, Literal

from tilescope.errors import PlanError, RuleError, Violation, printed, unknown_name
from tilescope.pipeline.parts import MAX_BLOCKS, MAX_STAGES
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.plans import Plan
from tilescope.reading import attempted, flag, plain_int
from tilescope.rule import rule

PLAN_PIPELINE = rule(
    "plan-pipeline",
    "A pipeline is planned for plans that are copied alike, with stages, consumers and a cluster that fit them.",
    source="the arguments of plan_pipeline",
    passing='ts.plan_pipeline(ts.plan((64, 64), "bf16").best, stages=2)',
    failing="ts.plan_pipeline([])",
)

Arrivals = Literal["warpgroup", "warp", "thread"]
WARPGROUP_THREADS = 128
ARRIVALS = {"warpgroup": WARPGROUP_THREADS, "warp": 32, "thread": 1}  # threads that arrive once


class PipelineArguments:
    """What plan_pipeline was asked for, read and checked."""

    def __init__(
        self,
        plan: Any,
        stages: Any,
        consumers: Any,
        cluster: Any,
        cta_group: Any,
        arrivals: Any,
        multicast: Any,
        steps: Any,
    ) -> None:
        problems: list[Violation] = []

        def number(name: str, given: Any, low: int, high: int) -> int:
            found = plain_int(given)
            if found is None or not low <= found <= high:
                limit = f"an integer from {low} to {high}"
                problems.append(PLAN_PIPELINE.violation(name, f"{name} = {printed(given)}", limit, f"Give {limit}."))
                return low
            return found

        self.gemm = plan if isinstance(plan, GemmPlan) else None
        self.plans = self._plans(plan, problems)
        first = self.plans[0].problem if self.plans else None
        default_stages = self.gemm.stages if self.gemm is not None else (first.stages if first is not None else 1)
        self.stages = number("stages", default_stages if stages is None else stages, 1, MAX_STAGES)
        self.unit = first.consumer if first is not None and isinstance(first.consumer, str) else "ldmatrix"
        self.copy = first.copy if first is not None else "tma"
        self.store = first is not None and first.direction == "store"
        default = 2 if self.gemm is not None and self.unit == "wgmma" and self.gemm.tile[0] >= 128 else 1
        self.consumers = number("consumers", default if consumers is None else consumers, 1, 7)
        self.cluster = self._cluster(cluster, problems)
        self.cta_group = number("cta_group", cta_group, 1, 2)
        self.steps = number("steps", 4 * self.stages + 2 if steps is None else steps, 1, 1 << 24)
        self.multicast = attempted(problems, False, flag, "multicast", multicast)
        by_warps = self.gemm is not None and self.unit == "ldmatrix"  # one group of as many warps as share the tile
        self.threads = 32 * prod(self.gemm.warps) if self.gemm is not None and by_warps else WARPGROUP_THREADS
        if arrivals is None:
            arrivals = "warpgroup" if self.unit in ("wgmma", "tcgen05") else "warp"
        if not isinstance(arrivals, str) or arrivals not in ARRIVALS:
            problems.append(unknown_name("arrivals", "arrivals", arrivals, ARRIVALS))
            arrivals = "thread"
        self.arrivals = -(-self.threads // ARRIVALS[arrivals])
        if problems:
            raise RuleError(problems)
        self._contradictions()

    @staticmethod
    def _plans(given: Any, problems: list[Violation]) -> list[Plan]:
        if isinstance(given, GemmPlan):
            return [given.a, given.b]
        found = [given] if isinstance(given, Plan) else list(given) if isinstance(given, list | tuple) else []
        if not found or not all(isinstance(each, Plan) for each in found):
            fix = "Use ts.plan(…).best, a list of plans, or ts.plan_gemm(…)."
            problems.append(PLAN_PIPELINE.violation("plan", printed(given), "a plan, plans, or a GEMM plan", fix))
            return []
        return found

    @staticmethod
    def _cluster(given: Any, problems: list[Violation]) -> tuple[int, int]:
        extents = [given, 1] if plain_int(given) is not None else list(given) if isinstance(given, list | tuple) else []
        found = [plain_int(extent) or 0 for extent in extents]
        if len(found) != 2 or min(found) < 1 or found[0] * found[1] > MAX_BLOCKS:
            limit = f"a number of blocks, or (x, y), at most {MAX_BLOCKS} together"
            problems.append(
                PLAN_PIPELINE.violation("cluster", f"cluster = {printed(given)}", limit, "Use (2, 1), for example.")
            )
            return 1, 1
        return found[0], found[1]

    def _contradictions(self) -> None:
        problems = []

        def refuse(argument: str, found: str, limit: str, fix: str) -> None:
            problems.append(PLAN_PIPELINE.violation(argument, found, limit, fix))

        kinds = {(each.problem.direction, each.problem.copy, str(each.problem.consumer)) for each in self.plans}
        if len({kind[:2] for kind in kinds}) > 1:
            refuse(
                "plan",
                "plans of different directions or copies",
                "tiles of a stage arrive together",
                "Plan them alike.",
            )
        if self.cta_group == 2 and (self.unit != "tcgen05" or self.cluster[0] % 2):
            refuse(
                "cta_group", f"cta_group = 2 with {self.unit} and {self.cluster[0]} blocks along x",
                "pairs of blocks along x multiply by tcgen05", 'Plan with consumer="tcgen05" and an even cluster[0].',
            )  # fmt: skip
        if self.blocks > 1 and self.copy != "tma":
            refuse("cluster", f"a cluster with copy = {self.copy}", "TMA multicasts, threads do not", "Use cluster=1.")
        if self.blocks > 1 and self.store:
            refuse("cluster", "a cluster for a store", "every block stores its own tile", "Use cluster=1.")
        for plan, parts in zip(self.plans, (self.cluster[1], self.b_sharers), strict=False):
            if self.multicast and parts and plan.transaction_bytes % (16 * parts):
                refuse(
                    "cluster", f"{plan.transaction_bytes} bytes in {parts} parts", "parts are multiples of 16 bytes",
                    "Use multicast=False, or a smaller cluster.",
                )  # fmt: skip
        if problems:
            raise PlanError(problems)

    @property
    def blocks(self) -> int:
        """Blocks of the cluster."""
        return self.cluster[0] * self.cluster[1]

    @property
    def b_sharers(self) -> int:
        """Blocks along x that share a tile of B, if there is one; in pairs each block has half of it."""
        return self.cluster[0] // self.cta_group if len(self.plans) > 1 else 1

    @property
    def shares(self) -> bool:
        """Whether blocks load parts of shared tiles into each other."""
        return self.multicast and (self.cluster[1] > 1 or self.b_sharers > 1)
