"""The planner, for the question "what should I do with this tile?"."""

from tilescope.planner.boxes import Boxes, PlannedCopy
from tilescope.planner.gemm import GemmPlan, plan_gemm
from tilescope.planner.plans import Costs, Plan, Refusal
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
    "Refusal",
    "best_consumer",
    "plan",
    "plan_gemm",
    "planned",
]
