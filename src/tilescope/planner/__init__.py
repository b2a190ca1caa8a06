"""The planner, for the question "what should I do with this tile?"."""

from tilescope.planner.boxes import Boxes, PlannedCopy
from tilescope.planner.gemm import plan_gemm
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.gemm_tiles import RankedTile, RefusedTile
from tilescope.planner.plans import Costs, Plan, Refusal, Unplanned
from tilescope.planner.problem import Problem, best_consumer
from tilescope.planner.search import PlanReport, plan, planned

__all__ = [
    "Boxes",
    "Costs",
    "GemmPlan",
    "Plan",
    "PlanReport",
    "PlannedCopy",
    "Problem",
    "RankedTile",
    "Refusal",
    "RefusedTile",
    "Unplanned",
    "best_consumer",
    "plan",
    "plan_gemm",
    "planned",
]
