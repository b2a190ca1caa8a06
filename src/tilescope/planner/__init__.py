"""The planner, for the question "what should I do with this tile?"."""

from tilescope.planner.boxes import Boxes, PlannedCopy
from tilescope.planner.gemm import plan_gemm
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.plan_search import PlanReport, Refusal, Unplanned, plan, weighed_for
from tilescope.planner.planned_tile import Completion, Costs
from tilescope.planner.plans import Plan
from tilescope.planner.problem import Problem
from tilescope.planner.ranked_tile import FloorTerm, RankedTile, RefusedTile
from tilescope.planner.reason import Reason
from tilescope.planner.sweeping import Sweep, read_problems, sweep

__all__ = [
    "Boxes",
    "Completion",
    "Costs",
    "FloorTerm",
    "GemmPlan",
    "Plan",
    "PlanReport",
    "PlannedCopy",
    "Problem",
    "RankedTile",
    "Reason",
    "Refusal",
    "RefusedTile",
    "Sweep",
    "Unplanned",
    "plan",
    "plan_gemm",
    "read_problems",
    "sweep",
    "weighed_for",
]
