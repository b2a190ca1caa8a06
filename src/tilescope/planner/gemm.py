"""A GEMM tile planned whole: A, B and the epilogue, how many stages fit, and how well the tiles fill the card.

    for every k tile: A (tile_m x tile_k) ─┐
                                           ├─▶ tensor core ─▶ accumulators ─▶ slices of the tile ─▶ C
                      B (tile_n x tile_k) ─┘

Every tile shape worth trying is planned. The cheapest is the plan (gemm_tiles.py says what cheap means); the others are
kept with the reason why they come after it, and those that cannot be with what they break.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any, Literal, NamedTuple

from tilescope.arch import Arch, ArchName
from tilescope.card import Card, CardName
from tilescope.data_type import DataType
from tilescope.errors import PlanError, RuleError, Violation
from tilescope.layout import Major, major_named
from tilescope.mma.consumer import CONSUMER, consumers_of
from tilescope.planner.gemm_plan import GemmPlan, end_of, regions_of
from tilescope.planner.gemm_tiles import RankedTile, RefusedTile, behind, rank, tile_shapes, weighed
from tilescope.planner.plans import Plan
from tilescope.planner.problem import LARGEST_STAGES, Problem, resolved
from tilescope.planner.product import (
    EXTENTS,
    Product,
    Tile,
    is_exchanged,
    narrow_instruction,
    product_problems,
    tile_problems,
)
from tilescope.planner.proof import proven
from tilescope.planner.refusal import Refusal, refusal
from tilescope.planner.search import candidates
from tilescope.reading import integer, integers, known_name

MAX_AUTO_STAGES = 8  # chosen, unless more are needed to keep enough bytes in flight
FEWEST_STAGES = 2  # one is filled while the other is read
EPILOGUE_ROW_BYTES = 128
LARGEST_SMS = 1024
LARGEST_EXTENT = 1 << 32
# What only another swizzle would cure: the search tries them all, and one of the others came nearer.
_OF_A_SWIZZLE = {
    "canonical-swizzle",
    "packed-swizzle",
    "plan-layout",
    "plan-rows",
    "plan-span",
    "tcgen05-layout",
    "wgmma-layout",
}

MatrixName = Literal["A", "B", "C"]
PlanOrRefusal = Plan | tuple[Violation, ...]
Planner = Callable[..., PlanOrRefusal]  # of a matrix and its tile


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
    its SMs; C of the operands' type (of b1: int32). Split K is not planned. PlanError says what of the product, or of
    the tile, cannot be.

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
    majors = _major("a_major", a_major), _major("b_major", b_major)
    available = sms if sms is not None or device is None else device.sms
    product = Product(extents, row, output, target, device, chosen, *majors, available)
    asked = None if tile is None else integers("tile", tile, 3, 1, LARGEST_EXTENT)
    if problems := product_problems(product):
        raise PlanError(problems)
    return _best(product, asked, stages)  # type: ignore[arg-type]  # three extents


def _best(product: Product, asked: Tile | None, stages: int | None) -> GemmPlan:
    """The plan of the tile that was asked for, or of the cheapest; PlanError with the reasons against the nearest if none can be."""
    plan_of: Planner = cache(partial(_matrix_plan, product))  # tiles share them

    def is_readable(matrix: MatrixName, tile: tuple[int, int]) -> bool:
        return isinstance(plan_of(matrix, tile), Plan)

    shapes = [asked] if asked is not None else list(tile_shapes(product, is_readable))
    planned: dict[Tile, _Planned] = {}
    refused: dict[Tile, _Refused] = {}
    tiles: dict[Tile, RankedTile] = {}
    for shape in shapes:
        outcome = _planned(product, shape, stages, plan_of, asked=asked is not None)
        if isinstance(outcome, _Planned):
            planned[shape] = outcome
            tiles[shape] = weighed(product, shape, (outcome.a, outcome.b), outcome.stages)
        else:
            refused[shape] = outcome
            tiles[shape] = weighed(product, shape, None, 0)
    lowest_us = min(tiles[shape].floor_us or 0.0 for shape in planned or refused)
    ranks = {shape: rank(tile, lowest_us) for shape, tile in tiles.items()}
    in_order = sorted(shapes, key=ranks.__getitem__)
    if not planned:
        raise PlanError(max((refused[shape] for shape in in_order), key=_nearness).violations)
    first, *others = (shape for shape in in_order if shape in planned)
    chosen, best = planned[first], tiles[first]
    return GemmPlan(
        shape=product.shape,
        data_type=product.data_type,
        output_type=product.output_type,
        tile=first,
        stages=chosen.stages,
        a=proven(chosen.a),
        b=proven(chosen.b),
        epilogue=chosen.epilogue and proven(chosen.epilogue),
        sms=product.sms,
        ranked=(best, *(replace(tiles[shape], behind=behind(tiles[shape], best, lowest_us)) for shape in others)),
        refused=tuple(
            RefusedTile(tile=shape, violations=refused[shape].violations, would_lead=ranks[shape] < ranks[first])
            for shape in in_order
            if shape in refused
        ),
    )


class _Planned(NamedTuple):
    stages: int
    a: Plan
    b: Plan
    epilogue: Plan | None


class _Refused(NamedTuple):
    """Why a tile cannot be, and how far it came."""

    violations: tuple[Violation, ...]
    passed: int  # checks, in the order in which they are made
    fitting: int = 0  # stages, of a tile of which only too few fit


def _nearness(refused: _Refused) -> tuple[int, int, int]:
    """Sort key: the candidate that passed most checks gives the most useful reasons."""
    return refused.passed, refused.fitting, -len(refused.violations)


def _planned(product: Product, tile: Tile, stages: int | None, plan_of: Planner, *, asked: bool) -> _Planned | _Refused:
    if problems := tile_problems(product, tile):
        return _Refused(tuple(problems), passed=0)
    tile_m, tile_n, tile_k = tile
    a, b = plan_of("A", (tile_m, tile_k)), plan_of("B", (tile_n, tile_k))
    if isinstance(a, tuple) or isinstance(b, tuple):
        return _Refused((*(a if isinstance(a, tuple) else ()), *(b if isinstance(b, tuple) else ())), passed=1)
    if problems := list(narrow_instruction(product, tile, b)):
        return _Refused(tuple(problems), passed=2)
    epilogue: PlanOrRefusal | None = None
    if product.by_tma:
        span = _span(product)  # stored at a time, where the tile is a whole number of spans
        epilogue = plan_of("C", (tile_m, tile_n if tile_n % span else span), is_exchanged(product, tile))
    if isinstance(epilogue, tuple):
        return _Refused(epilogue, passed=3)
    whole = _Planned(_fitting_stages(product, a, b, epilogue, stages), a, b, epilogue)
    if whole.stages < (FEWEST_STAGES if stages is None else stages):
        return _Refused((_too_many_stages(product, tile, whole, stages, asked),), passed=4, fitting=whole.stages)
    return whole


def _matrix_plan(product: Product, matrix: MatrixName, tile: tuple[int, int], exchanged: bool = False) -> PlanOrRefusal:
    """The best plan of a tile of A, of B, or of a slice of C, not proven yet; or what stands against it.

    With A and B exchanged the accumulators hold the transpose of C: n x m, with n contiguous in global memory.
    """
    extents, order = dict(zip("mnk", product.shape, strict=True)), slice(None, None, -1 if exchanged else 1)
    options: dict[str, Any] = {"direction": "store", "major": "MN" if exchanged else "K"}
    if matrix != "C":
        options = {"operand": matrix, "major": product.a_major if matrix == "A" else product.b_major}
    try:
        problem = Problem(
            tile[order],  # type: ignore[arg-type]  # two extents, whatever their order
            product.output_type if matrix == "C" else product.data_type,
            consumer=product.consumer,
            arch=product.arch,
            card=product.card,
            global_shape=tuple(extents[name] for name in EXTENTS[matrix][order]),  # type: ignore[arg-type]
            extent_names=EXTENTS[matrix][order],  # type: ignore[arg-type]
            **options,
        )
    except RuleError as error:
        violations = error.violations
    else:
        plans, refused = candidates(problem)
        if plans:
            return plans[0]
        violations = _nearest(refused)
    span, told = _span(product), []
    for violation in violations:
        fix = violation.fix
        if matrix == "C" and tile[1] % span and violation.rule == "plan-smem":
            fix = f"Use n = {-(-tile[1] // span) * span}: C is then stored {span} columns at a time. Or use a smaller tile."
        told.append(replace(violation, found=f"{matrix}: {violation.found}", fix=fix, change=None))
    return tuple(told)


def _nearest(refused: list[Refusal]) -> tuple[Violation, ...]:
    """What stands against the swizzles that are not out of the question: against all of them, or the one with least."""
    refusals = [refusal.violations for refusal in refused]
    near = [reasons for reasons in refusals if not any(one.rule in _OF_A_SWIZZLE for one in reasons)] or refusals
    shared = set.intersection(*({(one.rule, one.found) for one in reasons} for reasons in near))
    least = min(near, key=len)
    return tuple(one for one in least if (one.rule, one.found) in shared) or least


def _span(product: Product) -> int:
    """Columns of C in one swizzle span."""
    return EPILOGUE_ROW_BYTES * 8 // product.output_type.smem_bits


def _fitting_stages(product: Product, a: Plan, b: Plan, epilogue: Plan | None, stages: int | None) -> int:
    """How many stages fit, of as many as were asked for or as are ever chosen."""
    most = MAX_AUTO_STAGES if stages is None else stages
    if stages is None and product.card is not None and product.card.tma is not None and product.by_tma:
        enough = product.card.tma.enough_in_flight_bytes
        most = max(most, -(-enough // (a.transaction_bytes + b.transaction_bytes)))
    budget = product.arch.smem_per_block_bytes
    fitting = (count for count in range(most, 0, -1) if end_of(regions_of(a, b, epilogue, count)) <= budget)
    return next(fitting, 0)


def _too_many_stages(product: Product, tile: Tile, whole: _Planned, stages: int | None, asked: bool) -> Violation:
    fitting, a, b, epilogue = whole
    wanted, limit = FEWEST_STAGES if stages is None else stages, product.arch.smem_per_block_bytes
    needed, operands = end_of(regions_of(a, b, epilogue, wanted)), wanted * (a.stage_bytes + b.stage_bytes)
    (m, n, k), bits = tile, product.data_type.smem_bits
    fixes = [f"stages={fitting}" + (" (copy and product take turns)" if fitting == 1 else "")] if fitting else []
    if asked or not fitting:  # half of k, or half of that, as long as it is 32 bytes
        parts = [k >> halvings for halvings in (1, 2, 3) if (k >> halvings) * bits >= 256]
        less = [part for part in parts if needed - operands + operands * part // k <= limit]
        fixes += [f"tile=({m}, {n}, {part})" for part in less[:1]]
    return refusal(
        "gemm-smem", "tile" if stages is None else "stages", "stages", stages=wanted, a_bytes=a.stage_bytes, b_bytes=b.stage_bytes,
        epilogue_bytes=None if epilogue is None else epilogue.stage_bytes, needed_bytes=needed,
        arch=product.arch.name, limit_bytes=limit, fewest=FEWEST_STAGES if stages is None else None,
        fixes=tuple(fixes) or (f"tile=(64, 64, {1024 // bits})",),
    )  # fmt: skip


def _major(name: str, major: Any) -> Major:
    try:
        return major_named(major)
    except RuleError as error:
        raise RuleError([replace(violation, argument=name, change=None) for violation in error.violations]) from None
