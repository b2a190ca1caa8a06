"""A GEMM tile planned whole: A, B and the epilogue, how many stages fit, and how well the tiles fill the card.

    for every k tile: A (tile_m x tile_k) ─┐
                                           ├─▶ tensor core ─▶ accumulators ─▶ slices of the tile ─▶ C
                      B (tile_n x tile_k) ─┘

Every tile shape worth trying is planned. The cheapest is the answer (gemm_plan.py says what cheap means). The others are
kept too: planned tiles with the reason why they come later, refused ones with the rules that they break.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

from tilescope.arch import Arch, ArchName
from tilescope.arithmetic import ceil_div, rounded_up
from tilescope.card import Card, CardName
from tilescope.data_type import DataType
from tilescope.errors import PlanError, Violation
from tilescope.layout import Major, major_named, oriented
from tilescope.mma.consumer import CONSUMER, consumers_of
from tilescope.planner.boxes import proven
from tilescope.planner.gemm_plan import (
    GemmPlan,
    RankedTile,
    RefusedTile,
    behind,
    end_of,
    rank,
    regions_of,
    tile_shapes,
    weighed,
)
from tilescope.planner.plans import Plan
from tilescope.planner.problem import LARGEST_STAGES, Problem, resolved, uneven_row
from tilescope.planner.product import (
    EXTENTS,
    GEMM_SMEM,
    Product,
    Tile,
    is_exchanged,
    narrow_instruction,
    product_problems,
    tile_problems,
)
from tilescope.planner.reason import Obstacle, violations
from tilescope.planner.search import PLAN_SMEM, candidates
from tilescope.reading import integer, integers, known_name

MAX_AUTO_STAGES = 8  # chosen, unless more are needed to keep enough bytes in flight
FEWEST_STAGES = 2  # one is filled while the other is read
EPILOGUE_ROW_BYTES = 128
LARGEST_SMS = 1024
LARGEST_EXTENT = 1 << 32
# Rules that a swizzle breaks and another may keep. The search tries all swizzles, so a refusal by one of these says
# nothing about the product.
_SWIZZLE_RULES = {
    "canonical-swizzle",
    "packed-swizzle",
    "plan-layout",
    "plan-rows",
    "plan-span",
    "tcgen05-layout",
    "wgmma-layout",
}

Planner = Callable[..., Plan | list[Obstacle]]  # of a matrix and its tile


def plan_gemm(
    m: int,
    n: int,
    k: int,
    data_type: Any,
    *,
    arch: ArchName | Arch | None = None,
    card: CardName | Card | None = None,
    consumer: str | None = None,
    a_major: Major = "K",
    b_major: Major = "K",
    output_type: Any = None,
    tile: tuple[int, int, int] | None = None,
    stages: int | None = None,
    sms: int | None = None,
) -> GemmPlan:
    """Tile shape, stages, swizzles, maps and shared-memory budget of a GEMM, planned together.

    None: the card's architecture (without either: sm_90 and an H200), its own consumer (tcgen05, wgmma, ldmatrix) and
    its SMs; C of the operands' type (of b1: int32). Split K is not planned. PlanError says why the product, or the
    tile, cannot be planned.

    >>> low_batch = plan_gemm(16, 4096, 4096, "bf16")
    >>> low_batch.tile[0], low_batch.b.swizzle.name
    (64, '128B')
    """
    sms = None if sms is None else integer("sms", sms, 1, LARGEST_SMS)
    stages = None if stages is None else integer("stages", stages, 1, LARGEST_STAGES)
    row, (target, device) = DataType.named(data_type), resolved(arch, card)
    output = DataType.named(("s32" if row.name == "b1" else row) if output_type is None else output_type)
    chosen = consumers_of(target)[0] if consumer is None else known_name("consumer", consumer, CONSUMER)
    extents = integer("m", m, 1, LARGEST_EXTENT), integer("n", n, 1, LARGEST_EXTENT), integer("k", k, 1, LARGEST_EXTENT)
    majors = major_named(a_major, "a_major"), major_named(b_major, "b_major")
    available = sms if sms is not None or device is None else device.sms
    product = Product(extents, row, output, target, device, chosen, *majors, available)
    asked = None if tile is None else integers("tile", tile, 3, 1, LARGEST_EXTENT)
    if problems := violations(product_problems(product)):
        raise PlanError(problems)
    return _best(product, asked, stages)  # type: ignore[arg-type]  # three extents


def _best(product: Product, asked: Tile | None, stages: int | None) -> GemmPlan:
    """The plan of the tile that was asked for, or of the cheapest; PlanError with one tile's obstacles if all are refused."""
    plan_of: Planner = cache(partial(_matrix_plan, product))  # several tiles have the same tile of A or of B
    shapes = [asked] if asked is not None else tile_shapes(product, lambda *tile: isinstance(plan_of(*tile), Plan))
    attempts = [_attempt(product, shape, stages, plan_of, asked=asked is not None) for shape in shapes]
    successes = [attempt for attempt in attempts if attempt.plans]
    lowest_us = min(attempt.cost.floor_us or 0.0 for attempt in successes or attempts)
    attempts.sort(key=lambda attempt: rank(attempt.cost, lowest_us))
    planned = [(attempt.cost, attempt.plans) for attempt in attempts if attempt.plans]
    if not planned:  # the tile that passed most checks gives the most useful reasons
        nearest = max(attempts, key=lambda tried: (tried.checks_passed, tried.cost.stages, -len(tried.obstacles)))
        raise PlanError(violations(nearest.obstacles))
    best, (a, b, epilogue) = planned[0]
    return GemmPlan(
        shape=product.shape,
        data_type=product.data_type,
        output_type=product.output_type,
        tile=best.tile,
        stages=best.stages,
        a=proven(a),
        b=proven(b),
        epilogue=epilogue and proven(epilogue),
        sms=product.sms,
        ranked=(best, *(replace(cost, behind=behind(cost, best, lowest_us)) for cost, _ in planned[1:])),
        refused=tuple(
            RefusedTile(
                tile=attempt.cost.tile,
                violations=violations(attempt.obstacles),
                would_lead=rank(attempt.cost, lowest_us) < rank(best, lowest_us),
            )
            for attempt in attempts
            if not attempt.plans
        ),
    )


class _Attempt(NamedTuple):
    """A tile: what it costs, and the plans of A, B and C, or the obstacles to them."""

    cost: RankedTile
    plans: tuple[Plan, Plan, Plan | None] | None = None
    obstacles: list[Obstacle] | tuple[()] = ()
    checks_passed: int = 0


def _attempt(product: Product, tile: Tile, stages: int | None, plan_of: Planner, *, asked: bool) -> _Attempt:
    def refused(checks_passed: int, obstacles: list[Obstacle], fitting: int = 0) -> _Attempt:
        return _Attempt(weighed(product, tile, None, fitting), None, obstacles, checks_passed)

    if obstacles := tile_problems(product, tile):
        return refused(0, obstacles)
    tile_m, tile_n, tile_k = tile
    a, b = plan_of("A", (tile_m, tile_k)), plan_of("B", (tile_n, tile_k))
    if isinstance(a, list) or isinstance(b, list):
        return refused(1, [obstacle for plan in (a, b) if isinstance(plan, list) for obstacle in plan])
    if obstacles := list(narrow_instruction(product, tile, b)):
        return refused(2, obstacles)
    epilogue: Plan | list[Obstacle] | None = None
    if product.by_tma:
        span = _span(product)  # stored at a time, where the tile is a whole number of spans
        epilogue = plan_of("C", (tile_m, tile_n if tile_n % span else span), is_exchanged(product, tile))
    if isinstance(epilogue, list):
        return refused(3, epilogue)
    fitting = _fitting_stages(product, a, b, epilogue, stages)
    if fitting < (FEWEST_STAGES if stages is None else stages):
        return refused(4, [_too_many_stages(product, tile, (a, b, epilogue), fitting, stages, asked)], fitting)
    return _Attempt(weighed(product, tile, (a, b), fitting), (a, b, epilogue))


def _matrix_plan(
    product: Product, matrix: str, tile: tuple[int, int], exchanged: bool = False
) -> Plan | list[Obstacle]:
    """The best plan of a tile of A, of B, or of a slice of C, not proven yet; or the obstacles to one.

    With A and B exchanged the accumulators hold the transpose of C: n x m, with n contiguous in global memory.
    """
    extents, element, order = dict(zip("mnk", product.shape, strict=True)), product.data_type, -1 if exchanged else 1
    options: dict[str, Any] = {"operand": matrix, "major": product.a_major if matrix == "A" else product.b_major}
    if matrix == "C":
        options, element = {"direction": "store", "major": "MN" if exchanged else "K"}, product.output_type
    shape: Any = tile[::order]
    names: Any = EXTENTS[matrix][::order]
    obstacles = uneven_row(oriented(options["major"], *names)[1], oriented(options["major"], *shape)[1], element)
    if not obstacles:
        options |= {"global_shape": tuple(extents[name] for name in names), "extent_names": names, "card": product.card}
        plans, refused = candidates(Problem(shape, element, consumer=product.consumer, arch=product.arch, **options))
        if plans:
            return plans[0]
        obstacles = _most_telling([candidate.obstacles for candidate in refused])
    return [_of_matrix(obstacle, matrix, tile[1], _span(product)) for obstacle in obstacles]


def _of_matrix(obstacle: Obstacle, matrix: str, columns: int, span: int) -> Obstacle:
    """The obstacle with the name of its matrix; it changes no argument, since its own are not those of the product."""
    if isinstance(obstacle, Violation):
        return replace(obstacle, change=None)
    values = {"matrix": matrix, **obstacle.values}
    if matrix == "C" and columns % span and obstacle.row is PLAN_SMEM.row:
        # a whole number of spans would be stored in slices
        return PLAN_SMEM.broken("tile", "slice", span=span, up=rounded_up(columns, span), **values)
    return obstacle._replace(values=values, change=None)


def _most_telling(refusals: list[list[Obstacle]]) -> list[Obstacle]:
    """The obstacles that all swizzles share; if they share none, those of the swizzle that has fewest.

    Swizzles that break a rule of their own do not count, unless all do.
    """
    sound = [obstacles for obstacles in refusals if not any(found.rule in _SWIZZLE_RULES for found in obstacles)]
    counted = sound or refusals
    shared = set.intersection(*({obstacle.rule for obstacle in obstacles} for obstacles in counted))
    fewest = min(counted, key=len)
    return [obstacle for obstacle in fewest if obstacle.rule in shared] or fewest


def _span(product: Product) -> int:
    """Columns of C in one swizzle span."""
    return EPILOGUE_ROW_BYTES * 8 // product.output_type.smem_bits


def _fitting_stages(product: Product, a: Plan, b: Plan, epilogue: Plan | None, stages: int | None) -> int:
    """How many stages fit into shared memory: at most those asked for, or those that are ever chosen."""
    most = MAX_AUTO_STAGES if stages is None else stages
    if stages is None and product.card is not None and product.card.tma is not None and product.by_tma:
        stage = a.transaction_bytes + b.transaction_bytes
        most = max(most, ceil_div(product.card.tma.enough_in_flight_bytes, stage))
    budget = product.arch.smem_per_block_bytes
    return next((count for count in range(most, 0, -1) if end_of(regions_of(a, b, epilogue, count)) <= budget), 0)


def _too_many_stages(
    product: Product, tile: Tile, plans: tuple[Plan, Plan, Plan | None], fitting: int, stages: int | None, asked: bool
) -> Obstacle:
    wanted, limit = FEWEST_STAGES if stages is None else stages, product.arch.smem_per_block_bytes
    a, b, epilogue = plans
    needed, operands = end_of(regions_of(*plans, wanted)), wanted * (a.stage_bytes + b.stage_bytes)
    (m, n, k), bits = tile, product.data_type.smem_bits
    fixes = [f"stages={fitting}" + (" (copy and product take turns)" if fitting == 1 else "")] if fitting else []
    if asked or not fitting:  # a half, a quarter or an eighth of k, if it is at least 32 bytes
        parts = (part for part in (k >> 1, k >> 2, k >> 3) if part * bits >= 256)
        fixes += [f"tile=({m}, {n}, {part})" for part in parts if needed - operands + operands * part // k <= limit][:1]
    return GEMM_SMEM.broken(
        "tile" if stages is None else "stages",
        "stages",
        stages=wanted,
        a_bytes=a.stage_bytes,
        b_bytes=b.stage_bytes,
        epilogue_bytes=None if epilogue is None else epilogue.stage_bytes,
        needed_bytes=needed,
        arch=product.arch.name,
        limit_bytes=limit,
        fewest=FEWEST_STAGES if stages is None else None,
        fixes=tuple(fixes) or (f"tile=(64, 64, {1024 // bits})",),
    )
