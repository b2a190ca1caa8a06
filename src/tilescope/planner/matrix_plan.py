"""The plan of a tile of A, of B, or of a slice of C: a search by `plan_search.py` with a product's facts about its matrices.

A    m x k    a load, for the tensor core's rows (with A and B swapped: its columns)
B    n x k    a load
C    m x n    a store; with A and B swapped the accumulators hold its transpose
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from tilescope.arithmetic import rounded_up
from tilescope.errors import Violation
from tilescope.layout import oriented
from tilescope.planner.obstacle import Obstacle, broken
from tilescope.planner.plan_search import PLAN_SMEM, SLICE_EXCEEDS_SMEM, candidates
from tilescope.planner.plans import Plan
from tilescope.planner.problem import Operand, Problem, uneven_row
from tilescope.planner.product import Product

_EPILOGUE_ROW_BYTES = 128
# Rules that one swizzle breaks and another may not. The search tries all swizzles, so a refusal by one of these does #
# not concern the product.
_SWIZZLE_RULES = {
    "canonical-swizzle",
    "packed-swizzle",
    "plan-layout",
    "plan-rows",
    "plan-span",
    "tcgen05-layout",
    "wgmma-layout",
}
Matrix = Literal["A", "B", "C"]
_EXTENTS: dict[Matrix, tuple[str, str]] = {"A": ("m", "k"), "B": ("n", "k"), "C": ("m", "n")}


def plan_matrix(product: Product, matrix: Matrix, tile: tuple[int, int], *, swapped: bool) -> Plan | list[Obstacle]:
    """The best plan of a tile of A, of B, or of a slice of C, not proven yet; or the obstacles to one.

    With A and B swapped the accumulators hold the transpose of C: n x m, with n contiguous in global memory.
    """
    first, second = _EXTENTS[matrix]
    exchanged = swapped and matrix == "C"
    names = (second, first) if exchanged else (first, second)
    shape = (tile[1], tile[0]) if exchanged else tile
    element = product.operand_type
    major = product.a_major if matrix == "A" else product.b_major
    if matrix == "C":
        element = product.output_type
        major = "MN" if exchanged else "K"
    obstacles: list[Obstacle] = [*uneven_row(oriented(major, *names)[1], oriented(major, *shape)[1], element)]
    if not obstacles:
        extents = dict(zip("mnk", product.shape, strict=True))
        if matrix == "C":
            extents |= dict(zip("mn", product.c_shape, strict=True))
        problem = Problem(
            shape,
            element,
            major=major,
            consumer=product.consumer,
            arch=product.arch,
            card=product.card,
            operand=_name_operand(matrix, swapped=swapped),
            direction="store" if matrix == "C" else "load",
            global_shape=(extents[names[0]], extents[names[1]]),
            extent_names=names,
        )
        plans, refused = candidates(problem)
        if plans:
            return plans[0]
        obstacles = _select_obstacles([candidate.obstacles for candidate in refused])
    return [_name_matrix(obstacle, matrix, tile[1], c_span_columns(product)) for obstacle in obstacles]


def _name_operand(matrix: Matrix, *, swapped: bool) -> Operand | None:
    """As which operand the tensor core takes a matrix."""
    if matrix == "C":
        return None
    if swapped:
        return "B" if matrix == "A" else "A"
    return matrix


def _name_matrix(obstacle: Obstacle, matrix: Matrix, columns: int, span: int) -> Obstacle:
    """The obstacle with the name of its matrix; it changes no argument, since its own are not those of the product."""
    if isinstance(obstacle, Violation):
        return replace(obstacle, change=None)
    facts = {"matrix": matrix, **obstacle.facts}
    if matrix == "C" and columns % span and obstacle.rule == PLAN_SMEM.name:
        # a whole number of spans would be stored in slices
        return broken(SLICE_EXCEEDS_SMEM, span=span, up=rounded_up(columns, span), **facts)
    return broken(obstacle.told, **facts)


def _select_obstacles(refusals: list[list[Obstacle]]) -> list[Obstacle]:
    """The obstacles that all swizzles share; if they share none, those of the swizzle that has fewest.

    Swizzles that break a rule about swizzles do not count, unless all do.
    """
    rules_of = [{obstacle.rule for obstacle in obstacles} for obstacles in refusals]
    sound = [number for number, rules in enumerate(rules_of) if rules.isdisjoint(_SWIZZLE_RULES)]
    numbers = sound or range(len(refusals))
    counted = [refusals[number] for number in numbers]
    shared = set.intersection(*(rules_of[number] for number in numbers))
    fewest = min(counted, key=len)
    return [obstacle for obstacle in fewest if obstacle.rule in shared] or fewest


def c_span_columns(product: Product) -> int:
    """Columns of C in one swizzle span."""
    return _EPILOGUE_ROW_BYTES * 8 // product.output_type.smem_bits
