"""A GEMM tile planned whole: A, B and the epilogue, how many stages fit, and how well the tiles fill the card.

    for each k tile:  A (tile_m x tile_k) ─┐
                                           ├─▶ tensor core ─▶ accumulators ─▶ slices of the tile ─▶ C
                      B (tile_n x tile_k) ─┘

Every tile shape worth trying is planned. The cheapest is the plan (gemm_tiles.py says what cheap means); the others are
kept with the reason why they come after it, and those that cannot be with what they break.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

from tilescope.arch import Arch, ArchName
from tilescope.card import Card, CardName
from tilescope.data_type import DataType
from tilescope.errors import PlanError, RuleError, Violation, counted
from tilescope.layout import Major, major_named
from tilescope.mma.consumer import CONSUMER, consumers_of
from tilescope.planner.gemm_plan import GemmPlan, end_of, regions_of
from tilescope.planner.gemm_reasons import gemm_reasons
from tilescope.planner.gemm_rules import GEMM_SMEM
from tilescope.planner.gemm_tiles import (
    FloorTerm,
    RankedTile,
    RefusedTile,
    TileCosts,
    behind,
    floor_terms,
    rank,
    tile_costs,
    tile_grid,
    tile_rounds,
    tile_shapes,
)
from tilescope.planner.plans import Plan, Refusal
from tilescope.planner.problem import LARGEST_STAGES, Operand, Problem, resolved
from tilescope.planner.product import (
    EXTENTS,
    Product,
    Tile,
    is_exchanged,
    narrow_instruction,
    of_matrix,
    product_problems,
    tile_problems,
)
from tilescope.planner.reason import Reason
from tilescope.planner.search import candidates, proven
from tilescope.reading import integer, integers, known_name

MAX_AUTO_STAGES = 8  # chosen, unless more are needed to keep enough bytes in flight
FEWEST_STAGES = 2  # one is filled while the other is read
EPILOGUE_ROW_BYTES = 128
LARGEST_SMS = 1024
LARGEST_EXTENT = 1 << 32

PlanOrRefusal = Plan | tuple[Violation, ...]
Planner = Callable[..., PlanOrRefusal]


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

    None: the card's architecture (sm_90 and an H200 where neither is given), its own consumer (tcgen05, wgmma, ldmatrix) and
    its SMs; C of the operands' type (of b1: int32). Split K is not planned. PlanError says what of the product, or of a
    given tile, cannot be.

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


def _best(product: Product, given: Tile | None, stages: int | None) -> GemmPlan:
    """The plan of the given tile, or of the cheapest; PlanError with the reasons against the nearest where none can be."""
    plans = cache(partial(_operand_plan, product)), cache(partial(_result_plan, product))  # tiles share them

    def is_readable(matrix: Operand, tile: tuple[int, int]) -> bool:
        return isinstance(plans[0](matrix, tile), Plan)

    shapes = list(tile_shapes(product, is_readable)) if given is None else [given]
    planned: dict[Tile, _Planned] = {}
    refused: dict[Tile, _Refused] = {}
    for shape in shapes:
        found = _planned(product, shape, stages, *plans, is_given=given is not None)
        if isinstance(found, _Planned):
            planned[shape] = found
        else:
            refused[shape] = found
    terms = {shape: _terms(product, shape, planned.get(shape)) for shape in shapes}
    costs = {shape: tile_costs(product, shape, terms[shape]) for shape in shapes}
    lowest_us = min(costs[shape].floor_us for shape in planned or refused)

    def by_rank(shape: Tile) -> TileCosts:
        return rank(costs[shape], lowest_us)

    if not planned:
        raise PlanError(max((refused[shape] for shape in sorted(refused, key=by_rank)), key=_nearness).violations)
    first, *others = sorted(planned, key=by_rank)

    def ranked(shape: Tile) -> RankedTile:
        down, across = tile_grid(product.shape, shape)
        return RankedTile(
            tile=shape, stages=planned[shape].stages, tiles=down * across,
            rounds=None if product.sms is None else tile_rounds(product.shape, shape, product.sms), terms=terms[shape],
            busiest_bytes=costs[shape].busiest_bytes, instructions=costs[shape].instructions,
            behind=Reason.of("first") if shape == first else behind(product, costs[shape], costs[first], lowest_us),
        )  # fmt: skip

    chosen = planned[first]
    best = GemmPlan(
        shape=product.shape, data_type=product.data_type, output_type=product.output_type, tile=first, stages=chosen.stages,
        a=proven(chosen.a), b=proven(chosen.b), epilogue=chosen.epilogue and proven(chosen.epilogue), sms=product.sms, reasons=(),
        ranked=tuple(map(ranked, (first, *others))),
        refused=tuple(
            RefusedTile(tile=shape, violations=refused[shape].violations, would_lead=by_rank(shape) < by_rank(first))
            for shape in sorted(refused, key=by_rank)
        ),
    )  # fmt: skip
    return replace(best, reasons=tuple(gemm_reasons(product, best, is_given=given is not None)))


class _Planned(NamedTuple):
    stages: int
    a: Plan
    b: Plan
    epilogue: Plan | None


def _terms(product: Product, shape: Tile, found: _Planned | None) -> tuple[FloorTerm, ...]:
    return floor_terms(
        product, shape, None if found is None else (found.a, found.b), 0 if found is None else found.stages
    )


class _Refused(NamedTuple):
    """Why a tile cannot be, and how far it came."""

    violations: tuple[Violation, ...]
    passed: int  # checks, in the order in which they are made
    fitting: int = 0  # stages, of a tile of which only too few fit


def _nearness(refused: _Refused) -> tuple[int, int, int]:
    """Sort key: the candidate that passed most checks gives the most useful reasons."""
    return refused.passed, refused.fitting, -len(refused.violations)


def _planned(
    product: Product, tile: Tile, stages: int | None, operand_plan: Planner, result_plan: Planner, *, is_given: bool
) -> _Planned | _Refused:
    problems = tile_problems(product, tile)
    if problems:
        return _Refused(tuple(problems), passed=0)
    tile_m, tile_n, tile_k = tile
    a, b = operand_plan("A", (tile_m, tile_k)), operand_plan("B", (tile_n, tile_k))
    if isinstance(a, tuple) or isinstance(b, tuple):
        return _Refused(tuple(each for refusal in (a, b) if isinstance(refusal, tuple) for each in refusal), passed=1)
    if product.tensor_core.reads_by_descriptor:
        problems = narrow_instruction(product, tile, b.descriptors().block_mn)
        if problems:
            return _Refused(tuple(problems), passed=2)
    epilogue: PlanOrRefusal | None = None
    if product.by_tma:
        epilogue = result_plan((tile_m, _slice_width(tile_n, product.output_type)), is_exchanged(product, tile))
    if isinstance(epilogue, tuple):
        return _Refused(epilogue, passed=3)
    fitting = _fitting_stages(product, (a, b, epilogue), stages)
    wanted = max(fitting, FEWEST_STAGES) if stages is None else stages
    if fitting < wanted:
        violation = _too_many_stages(product, (a, b, epilogue), stages, fitting, is_given=is_given)
        return _Refused((violation,), passed=4, fitting=fitting)
    return _Planned(wanted, a, b, epilogue)


def _operand_plan(product: Product, matrix: Operand, tile: tuple[int, int]) -> PlanOrRefusal:
    """The best plan of A's or B's tile, or what stands against it."""
    is_a = matrix == "A"
    return _matrix_plan(
        product, matrix, tile, product.data_type, operand=matrix, major=product.a_major if is_a else product.b_major,
        global_shape=(product.shape[0 if is_a else 1], product.shape[2]), extent_names=EXTENTS[matrix],
    )  # fmt: skip


def _result_plan(product: Product, tile: tuple[int, ...], exchanged: bool) -> PlanOrRefusal:
    """The best plan of a slice of C, or what stands against it.

    With A and B exchanged the accumulators hold the transpose of C: n x m, with n contiguous in global memory.
    """
    order = slice(None, None, -1 if exchanged else 1)
    found = _matrix_plan(
        product, "C", tile[order], product.output_type, direction="store", major="MN" if exchanged else "K",
        global_shape=product.shape[:2][order], extent_names=EXTENTS["C"][order],
    )  # fmt: skip
    span = _span(product.output_type)
    if isinstance(found, Plan) or tile[1] % span == 0:
        return found
    in_slices = (
        f"Use a smaller tile, or try n = {-(-tile[1] // span) * span}: C is then stored {span} columns at a time."
    )
    return tuple(replace(each, fix=in_slices) if each.rule == "plan-smem" else each for each in found)


def _matrix_plan(
    product: Product, matrix: str, tile: tuple[int, ...], data_type: DataType, **options: Any
) -> PlanOrRefusal:
    try:
        problem = Problem(
            tile, data_type, consumer=product.consumer, arch=product.arch, card=product.card, **options  # type: ignore[arg-type]
        )  # fmt: skip
    except RuleError as error:
        return of_matrix(matrix, error.violations)
    plans, refused = candidates(problem)
    return plans[0] if plans else of_matrix(matrix, _nearest(refused))


# What only another swizzle would cure: the search tries them all, and one of the others came nearer.
_OF_A_SWIZZLE = frozenset({
    "canonical-swizzle", "packed-swizzle", "plan-layout", "plan-rows", "plan-span", "tcgen05-layout", "wgmma-layout",
})  # fmt: skip


def _nearest(refused: list[Refusal]) -> tuple[Violation, ...]:
    """What stands against the swizzles that are not out of the question: against all of them, or the one with least."""
    refusals = [refusal.violations for refusal in refused]
    near = [each for each in refusals if not any(one.rule in _OF_A_SWIZZLE for one in each)] or refusals
    laws = [{(one.rule, one.found) for one in each} for each in near]
    shared = set.intersection(*laws)
    least = min(near, key=len)
    return tuple(one for one in least if (one.rule, one.found) in shared) or least


def _slice_width(tile_n: int, output: DataType) -> int:
    """Columns of C that are stored at a time: one swizzle span where the tile is a whole number of them."""
    span = _span(output)
    return span if tile_n % span == 0 else tile_n


def _span(output: DataType) -> int:
    return EPILOGUE_ROW_BYTES * 8 // output.smem_bits


_Plans = tuple[Plan, Plan, Plan | None]


def _fitting_stages(product: Product, plans: _Plans, stages: int | None) -> int:
    """How many stages fit, of as many as were asked for or as are ever chosen."""
    most = MAX_AUTO_STAGES if stages is None else stages
    if stages is None and product.card is not None and product.card.tma is not None and product.by_tma:
        stage_bytes = plans[0].transaction_bytes + plans[1].transaction_bytes
        most = max(most, -(-product.card.tma.enough_in_flight_bytes // stage_bytes))
    fitting = 0
    while fitting < most and end_of(regions_of(*plans, fitting + 1)) <= product.arch.smem_per_block_bytes:
        fitting += 1
    return fitting


def _too_many_stages(product: Product, plans: _Plans, stages: int | None, fitting: int, *, is_given: bool) -> Violation:
    budget = product.arch.smem_per_block_bytes
    wanted = FEWEST_STAGES if stages is None else stages
    a, b, epilogue = plans
    needed = f"{counted(wanted, 'stage')} of {a.stage_bytes} + {b.stage_bytes} bytes"
    needed += "" if epilogue is None else f" and an epilogue of {epilogue.stage_bytes}"
    limit = f"a block of {product.arch.name} has {budget} bytes"
    if stages is None:
        limit += f", and at least {FEWEST_STAGES} stages are planned unless stages=1 is asked for"
    fixes = [f"stages={fitting}" + (" (copy and product take turns)" if fitting == 1 else "")] if fitting else []
    fixes += ["a smaller tile"] if is_given or not fitting else []
    needed_bytes = end_of(regions_of(*plans, wanted))
    return GEMM_SMEM.violation(
        "tile" if stages is None else "stages", f"{needed} = {needed_bytes} bytes with barriers", limit,
        f"Use {' or '.join(fixes)}.", stages=wanted, a_bytes=a.stage_bytes, b_bytes=b.stage_bytes,
        epilogue_bytes=0 if epilogue is None else epilogue.stage_bytes, needed_bytes=needed_bytes, limit_bytes=budget,
    )  # fmt: skip


def _major(name: str, given: Any) -> Major:
    try:
        return major_named(given)
    except RuleError as error:
        raise RuleError([replace(violation, argument=name, change=None) for violation in error.violations]) from None
