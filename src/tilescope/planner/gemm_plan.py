"""The plan of a GEMM: which tile of C a block computes, with which plans, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilescope.arithmetic import ceil_div
from tilescope.planner.gemm_maps import gemm_map
from tilescope.planner.gemm_reasons import gemm_reasons
from tilescope.planner.planned_gemm import PlannedGemm
from tilescope.planner.product import Tile
from tilescope.planner.reason import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmPlan(PlannedGemm):
    """C = A x B for one block's tile: its plans, their stages, the shared memory they share, and the other tiles.

    >>> from tilescope.planner import plan_gemm
    >>> best = plan_gemm(4096, 4096, 4096, "bf16")
    >>> best.tile, best.stages, best.a.swizzle.name
    ((128, 256, 64), 4, '128B')
    >>> best.ranked[1].tile, best.ranked[1].why
    ((128, 256, 64), '4 instructions a K step, not 2')
    """

    _derived: ClassVar[tuple[str, ...]] = (
        "reasons",
        "smem_bytes",
        "budget_bytes",
        "tiles",
        "rounds",
        "floor_us",
        "predicted_us",
    )

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Its numbers and choices."""
        return tuple(gemm_reasons(self))

    def kernel_facts(self) -> dict[str, object]:
        """The results of the plan as plain data: all addresses, the maps, the descriptors of the first stage."""
        starts = self.smem_offsets()
        plans = {"a": self.a, "b": self.b, "c": self.epilogue}
        copied = {name: plan for name, plan in plans.items() if plan is not None and plan.boxes is not None}
        readers = {name: plan for name, plan in (("a", self.a), ("b", self.b)) if plan.problem.reads_by_descriptor}
        return {
            "smem_offsets": starts,
            "tensor_maps": {name: gemm_map(self, name).to_dict() for name in copied},
            "descriptors": {name: plan.descriptor_words(starts[name][0]) for name, plan in readers.items()},
        }


def tile_grid(shape: tuple[int, int, int], tile: Tile) -> tuple[int, int]:
    """Tiles of C along m and along n."""
    return ceil_div(shape[0], tile[0]), ceil_div(shape[1], tile[1])
