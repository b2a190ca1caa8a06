"""The search for a GEMM's tile: every choice is planned, checked and weighed, and the cheapest one is the answer.

    choice (tile, schedule)  ─▶  plans of A, B and a slice of C  ─▶  stages that fit  ─▶  cost
                                 any step may refuse, with its obstacles

`gemm_tiles.py` defines the cost. The other tiles are kept: planned ones with the reason why they rank lower, refused
ones with the rules that they break.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

from tilescope.errors import PlanError
from tilescope.mma.tmem_address import TMEM_LANES
from tilescope.planner.fused_checks import unfused_tile
from tilescope.planner.gemm_choices import MOST_PLANNED, list_choices
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.gemm_request import Choice, GemmRequest
from tilescope.planner.gemm_schedule import COLUMN_GROUP, Schedule, schedule_problems, unplanned_options
from tilescope.planner.gemm_stages import FEWEST_STAGES, TilePlans, count_fitting_stages, limit_to_useful_stages
from tilescope.planner.gemm_tiles import K_TILE_BYTES, behind, rank, time_us, weigh_tile
from tilescope.planner.matrix_plan import c_span_columns, plan_matrix
from tilescope.planner.multicast_parts import in_parts, multicast_problems
from tilescope.planner.obstacle import Broken, Obstacle, broken, violations
from tilescope.planner.planned_scales import scale_plans
from tilescope.planner.plans import Plan
from tilescope.planner.problem import Operand
from tilescope.planner.product import Product, Tile, accumulator_buffers, is_exchanged
from tilescope.planner.proof import proven
from tilescope.planner.ranked_tile import RankedTile, RefusedTile
from tilescope.planner.tile_checks import (
    FEWEST_STAGES_EXCEED_SMEM,
    GEMM_SMEM,
    few_stages_for_warps,
    narrow_instruction,
    tile_problems,
)
from tilescope.sentence import argument_said

_SWAPPED_SLICE = 64  # rows of C that a swapped tile stores at a time, or half as many, or what divides it
_FEWEST_SLICED = 16  # a slice has more rows than this …
_MOST_SLICED = 96  # … and fewer than this, unless it is the whole tile
_SCHEDULE_REFUSED = 5  # checks passed by a tile whose blocks cannot share it as they should
_TILE_K_BITS = 256  # that an instruction takes of k at least
# Rules about only the m, n or k of a tile, independent of other mistakes.
_EXTENT_RULES = {"plan-row", "tcgen05-tile", "wgmma-tile"}


def plan_best_tile(product: Product, request: GemmRequest) -> GemmPlan:
    """The plan of the requested tile, or of the cheapest; PlanError with one tile's obstacles if all are refused."""
    search = _TileSearch(product, request.stages, is_asked=request.tile is not None)
    attempts: list[_Attempt] = []
    for choice in list_choices(product, request, search.reads):
        if len(attempts) >= MOST_PLANNED and choice.is_predicted and any(tried.plans for tried in attempts):
            break  # the others take longer
        if choice.is_last_resort and any(tried.plans for tried in attempts):
            break
        attempt = search.attempt(choice.tile, choice.schedule)
        plain = replace(
            request.plain,
            swapped=choice.schedule.swapped,
            cta_group=choice.schedule.cta_group,
            multicast=choice.schedule.multicast,
            ping_pong=choice.schedule.ping_pong,
        )
        if attempt.checks_passed == _SCHEDULE_REFUSED and choice.schedule != plain:
            attempt = search.attempt(choice.tile, plain)  # arguments that were not requested need not be
        attempts.append(attempt)
    successes = [attempt for attempt in attempts if attempt.plans is not None]
    lowest_us = min(time_us(attempt.cost) for attempt in successes or attempts)
    attempts.sort(key=lambda attempt: rank(attempt.cost, lowest_us))
    planned = [(attempt.cost, attempt.plans) for attempt in attempts if attempt.plans is not None]
    if not planned:  # the tile that passed most checks gives the most useful reasons
        nearest = max(attempts, key=lambda tried: (tried.checks_passed, tried.cost.stages, -len(tried.obstacles)))
        raise PlanError(violations(nearest.obstacles))
    best, plans = planned[0]
    others = (replace(cost, behind=behind(cost, best, lowest_us)) for cost, _ in planned[1:])
    refused = (
        RefusedTile(
            tile=attempt.cost.tile,
            violations=violations(attempt.obstacles),
            would_lead=rank(attempt.cost, lowest_us) < rank(best, lowest_us),
        )
        for attempt in attempts
        if attempt.plans is None
    )
    return GemmPlan(
        shape=product.shape,
        data_type=product.data_type,
        output_type=product.output_type,
        tile=best.tile,
        stages=best.stages,
        a=proven(plans.a),
        b=proven(plans.b),
        epilogue=None if plans.epilogue is None else proven(plans.epilogue),
        sms=product.sms,
        ranked=(best, *others),
        refused=tuple(refused),
        scales=product.scales,
        batch=product.batch,
        fused=product.fused,
        block_scales=product.block_scales,
    )


class _Attempt(NamedTuple):
    """A tile: what it costs, and the plans of A, B and C, or the obstacles to them."""

    cost: RankedTile
    plans: TilePlans | None
    obstacles: Sequence[Obstacle] = ()
    checks_passed: int = 0


class _TileSearch:
    """The tiles of one product, tried one after another; several have the same tile of A or of B."""

    def __init__(self, product: Product, stages: int | None, *, is_asked: bool) -> None:
        self.product = product
        self.stages = stages  # None: as many as help
        self.is_asked = is_asked  # the one tile, which is not replaced by another
        self.plan_of = cache(partial(plan_matrix, product))

    def reads(self, matrix: Operand, tile: tuple[int, int]) -> bool:
        """Whether there is a plan for a tile of A or of B."""
        return isinstance(self.plan_of(matrix, tile, swapped=False), Plan)

    def attempt(self, tile: Tile, schedule: Schedule) -> _Attempt:
        """A tile with its plans, or with its first obstacle; with all known obstacles if the tile was requested."""
        product = self.product
        choice = Choice(tile, schedule)
        group = schedule.cta_group  # each block of a pair loads half of both operands
        tile_m, tile_n, tile_k = tile
        if beyond := [*tile_problems(product, tile, schedule), *unfused_tile(product, tile, schedule)]:
            further = self._further_obstacles(choice) if self.is_asked else []
            return self._refuse(choice, [*beyond, *further], checks_passed=0)
        a = self.plan_of("A", (tile_m // group, tile_k), swapped=schedule.swapped)
        b = self.plan_of("B", (tile_n // group, tile_k), swapped=schedule.swapped)
        if isinstance(a, list) or isinstance(b, list):
            unplanned = [obstacle for plan in (a, b) if isinstance(plan, list) for obstacle in plan]
            further = self._further_obstacles(choice) if self.is_asked else []
            return self._refuse(
                choice, [*unplanned, *(obstacle for obstacle in further if obstacle not in unplanned)], checks_passed=1
            )
        if narrow := narrow_instruction(product, schedule.sums(tile), a if schedule.swapped else b):
            return self._refuse(choice, narrow, checks_passed=2)
        unshared = list(multicast_problems(product, tile, schedule))
        a_parts, b_parts = in_parts(a, "A", schedule.multicast[1]), in_parts(b, "B", schedule.multicast[0])
        if unshared or isinstance(a_parts, list) or isinstance(b_parts, list):
            uneven = [obstacle for plan in (a_parts, b_parts) if isinstance(plan, list) for obstacle in plan]
            return self._refuse(choice, [*unshared, *uneven], checks_passed=2)
        a, b = a_parts, b_parts
        epilogue = self._epilogue(choice)
        if isinstance(epilogue, list):
            return self._refuse(choice, epilogue, checks_passed=3)
        scales = scale_plans(product, tile, schedule)
        accumulators = 0
        if product.in_tensor_memory:
            accumulators = accumulator_buffers(schedule.sums(tile), sum(scale.columns for scale in scales))
        slices = 1 if epilogue is None else _count_slices(product, choice, epilogue)
        plans = TilePlans(
            a,
            b,
            epilogue,
            accumulators,
            schedule.answers,
            scales,
            slices,
            product.fused.residual,
            schedule.storing_groups,
        )
        fitting = count_fitting_stages(product, plans, self.stages)
        if self.stages is None:
            fitting = limit_to_useful_stages(product, plans, choice, fitting)
        if fitting < (FEWEST_STAGES if self.stages is None else self.stages):
            exceeding = [self._too_many_stages(tile, plans, fitting)]
            return self._refuse(choice, exceeding, checks_passed=4, fitting=fitting)
        stages_bytes = fitting * (a.stage_bytes + b.stage_bytes)
        few = few_stages_for_warps(product, tile, schedule, fitting)
        if unscheduled := few or schedule_problems(product, tile, schedule, stages_bytes):
            return self._refuse(choice, unscheduled, checks_passed=_SCHEDULE_REFUSED, fitting=fitting)
        return _Attempt(weigh_tile(product, tile, schedule, (a, b), fitting), plans)

    def _further_obstacles(self, choice: Choice) -> list[Obstacle]:
        """Other obstacles of a tile that a block, or pair, cannot compute: its operands, and how it is shared.

        A k that no row of shared memory can have hides mistakes of m and n, so these are also checked with one span of
        k.
        """
        product, schedule = self.product, choice.schedule
        m, n, k = choice.tile
        is_said = (
            schedule.cta_group == 2 or product.scales is not None
        )  # all of m and n; with rows that are taken, k is left
        span_k = K_TILE_BYTES * 8 // product.operand_type.smem_bits
        obstacles: list[Obstacle] = []
        for matrix, rows in (("A", TMEM_LANES), ("B", TMEM_LANES)) if is_said else (("A", m), ("B", n)):
            for extent in dict.fromkeys((k, span_k)):
                planned = self.plan_of(matrix, (rows, extent), swapped=schedule.swapped)
                operand_obstacles = planned if isinstance(planned, list) else []
                obstacles += [
                    obstacle
                    for obstacle in operand_obstacles
                    if obstacle.rule in _EXTENT_RULES and obstacle not in obstacles
                ]
        return [*obstacles, *multicast_problems(product, choice.tile, schedule), *unplanned_options(product, schedule)]

    def _refuse(
        self, choice: Choice, obstacles: Sequence[Obstacle], *, checks_passed: int, fitting: int = 0
    ) -> _Attempt:
        return _Attempt(
            weigh_tile(self.product, choice.tile, choice.schedule, None, fitting), None, obstacles, checks_passed
        )

    def _epilogue(self, choice: Choice) -> Plan | list[Obstacle] | None:
        """The plan of what is stored of C at a time: a span of columns, where the tile is a whole number of spans.

        Of a swapped tile it is all of n, and only as much of m as keeps the buffer small.
        """
        if not self.product.by_tma:
            return None
        rows, columns, _ = choice.schedule.sums(choice.tile)
        fused = self.product.fused
        if choice.schedule.swapped:
            stored = _choose_slice(choice.schedule.share(columns), _SWAPPED_SLICE, COLUMN_GROUP)
            return self.plan_of("C", (stored, fused.columns(rows)), swapped=True)
        stored = _choose_slice(fused.columns(choice.schedule.share(columns)), c_span_columns(self.product))
        return self.plan_of("C", (rows, stored), swapped=is_exchanged(self.product, choice.tile))

    def _too_many_stages(self, tile: Tile, plans: TilePlans, fitting: int) -> Broken:
        """Why the stages do not fit a block's shared memory, with what would."""
        is_chosen = self.stages is None
        stages = FEWEST_STAGES if self.stages is None else self.stages
        return broken(
            FEWEST_STAGES_EXCEED_SMEM if is_chosen else GEMM_SMEM,
            stages=stages,
            a_bytes=plans.a.stage_bytes,
            b_bytes=plans.b.stage_bytes,
            epilogue_bytes=None if plans.epilogue is None else plans.epilogue.stage_bytes,
            needed_bytes=plans.smem_bytes(stages),
            arch=self.product.arch.name,
            limit_bytes=self.product.arch.smem_per_block_bytes,
            fewest=FEWEST_STAGES if is_chosen else None,
            fixes=self._fixes(tile, plans, stages, fitting),
        )

    def _fixes(self, tile: Tile, plans: TilePlans, wanted: int, fitting: int) -> tuple[str, ...]:
        """Arguments with which all stages fit: fewer of them, or a smaller k."""
        m, n, k = tile
        bits = self.product.operand_type.smem_bits
        fixes = []
        if fitting == 1:
            fixes.append(f"{argument_said('stages', 1)} (copy and product alternate)")
        elif fitting:
            fixes.append(argument_said("stages", fitting))
        if self.is_asked or not fitting:
            needed = plans.smem_bytes(wanted)
            operands = wanted * (plans.a.stage_bytes + plans.b.stage_bytes)
            for part in (k >> 1, k >> 2, k >> 3):
                smaller = needed - operands + operands * part // k
                if part * bits >= _TILE_K_BITS and smaller <= self.product.arch.smem_per_block_bytes:
                    fixes.append(argument_said("tile", (m, n, part)))
                    break
        return tuple(fixes) or (argument_said("tile", (64, 64, 1024 // bits)),)


def _choose_slice(extent: int, usual: int, step: int = 0) -> int:
    """The elements of an extent stored at a time: the usual number, or half of it, if it divides the extent; else all.

    With a step, also the largest multiple of it that divides, or a somewhat larger one: C may have any number of rows, but
    columns come in swizzle spans.

    >>> _choose_slice(256, 64), _choose_slice(224, 64), _choose_slice(24, 64), _choose_slice(200, 64), _choose_slice(200, 64, 8)
    (64, 32, 24, 200, 40)
    >>> _choose_slice(176, 64, 8)
    88
    """
    further = (*range(usual - step, _FEWEST_SLICED, -step), *range(usual, _MOST_SLICED, step)) if step else ()
    return next((size for size in (usual, usual // 2, *further) if extent % size == 0), extent)


def _count_slices(product: Product, choice: Choice, epilogue: Plan) -> int:
    """Slices of a tile of C that are stored one after another."""
    share = choice.schedule.share(choice.schedule.sums(choice.tile)[1])
    if choice.schedule.swapped:
        return share // epilogue.problem.tile[1]
    return product.fused.columns(share) // epilogue.problem.columns
