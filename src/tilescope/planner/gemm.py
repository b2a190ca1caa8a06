"""A GEMM tile planned whole: A, B and the epilogue, how many stages fit, and how well the tiles fill the card.

    for every k tile: A (tile_m x tile_k) ─┐
                                           ├─▶ tensor core ─▶ accumulators ─▶ slices of the tile ─▶ C
                      B (tile_n x tile_k) ─┘

Every tile shape worth trying is planned. The cheapest is the answer (gemm_tiles.py says what cheap means). The others are
kept too: planned tiles with the reason why they come later, refused ones with the rules that they break.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from math import prod
from typing import Any, Literal, NamedTuple

from tilescope.arch import Arch, ArchName
from tilescope.arithmetic import ceil_div, rounded_up
from tilescope.card import Card, CardName
from tilescope.data_type import DataType, elements_of_format
from tilescope.errors import PlanError, Violation
from tilescope.layout import Major, major_named, oriented
from tilescope.mma.consumer import CONSUMER, consumers_of
from tilescope.mma.scale_packing import ScaleFormat
from tilescope.mma.tmem_address import TMEM_LANES
from tilescope.planner.block_scales import NAME as BLOCK_SCALES
from tilescope.planner.fused_checks import BATCH_OF_EXPERTS, ROWS_WITHOUT_EXPERTS, unfused_product, unfused_tile
from tilescope.planner.fused_epilogue import PLAIN_EPILOGUE, Fused
from tilescope.planner.gemm_batch import EXPERT_ROWS, LARGEST_BATCH, ONE, Batch, Rows
from tilescope.planner.gemm_choices import MOST_PLANNED, list_choices
from tilescope.planner.gemm_plan import GemmPlan, tile_grid
from tilescope.planner.gemm_request import Choice, GemmRequest
from tilescope.planner.gemm_schedule import (
    COLUMN_GROUP,
    LARGEST_PARTS,
    LARGEST_SPLIT,
    Schedule,
    schedule_problems,
    unplanned_options,
)
from tilescope.planner.gemm_smem import find_end, place_regions
from tilescope.planner.gemm_tiles import K_TILE_BYTES, behind, rank, time_us, weighed
from tilescope.planner.multicast_parts import LARGEST_CLUSTER, in_parts, multicast_problems
from tilescope.planner.obstacle import Broken, Obstacle, broken, violations
from tilescope.planner.plan_search import PLAN_SMEM, SLICE_EXCEEDS_SMEM, candidates
from tilescope.planner.planned_scales import ScalePlan, scale_plans
from tilescope.planner.plans import Plan
from tilescope.planner.problem import LARGEST_STAGES, Operand, Problem, resolved, uneven_row
from tilescope.planner.product import Product, Tile, accumulator_buffers, is_exchanged
from tilescope.planner.product_checks import product_problems
from tilescope.planner.proof import proven
from tilescope.planner.ranked_tile import RankedTile, RefusedTile
from tilescope.planner.tile_checks import FEWEST_STAGES_EXCEED_SMEM, GEMM_SMEM, narrow_instruction, tile_problems
from tilescope.reading import flag, integer, integers, known_name, pair, plain_int
from tilescope.sentence import argument_said

MAX_AUTO_STAGES = 8  # chosen, unless more are needed to keep enough bytes in flight
FEWEST_STAGES = 2  # one is filled while the other is read
_SHORT_K_TILES = 8  # K steps of a tile whose store takes as long
_RESIDUAL_STAGES = 3  # at least, that are left beside buffers for a whole tile of C
EPILOGUE_ROW_BYTES = 128
LARGEST_SMS = 1024
SWAPPED_SLICE = 64  # rows of C that a swapped tile stores at a time, or half as many, or what divides it
_FEWEST_SLICED = 16  # rows of a slice are more
LARGEST_MATRIX_EXTENT = 1 << 32
_SCHEDULE_REFUSED = 5  # checks passed by a tile whose blocks cannot share it as they should
_SCALED_ELEMENTS = ("e4m3", "e2m1")  # of formats that are planned by their name
_TILE_K_BITS = 256  # that an instruction takes of k at least
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
# Rules about m, n or k of a tile by itself, whatever else is wrong with it.
_EXTENT_RULES = {"plan-row", "tcgen05-tile", "wgmma-tile"}

Matrix = Literal["A", "B", "C"]
EXTENTS: dict[Matrix, tuple[str, str]] = {"A": ("m", "k"), "B": ("n", "k"), "C": ("m", "n")}


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
    swapped: bool | None = None,
    split: int | None = None,
    parts: int | None = None,
    group: int | None = None,
    tail: int | None = None,
    dependent: bool = False,
    cta_group: int | None = None,
    dynamic: bool = False,
    multicast: int | tuple[int, int] | None = None,
    ping_pong: bool | None = None,
    scales: Any = None,
    epilogue: Any = None,
    batch: int | None = None,
    experts: int | None = None,
    rows: Rows | None = None,
) -> GemmPlan:
    """Tile shape, stages, swizzles, maps and shared-memory budget of a GEMM, planned together.

    Defaults (None) are the architecture of the card (sm_90 and an H200 without either), its consumer (tcgen05, wgmma or
    ldmatrix) and its SMs. C has the type of the operands; bf16 for 4- to 8-bit types, int32 for b1. `dependent` plans for
    programmatic dependent launch; the previous kernel must not write B. With `cta_group=2`, pairs of blocks use tcgen05, and
    `tile` is the tile of the pair. With `dynamic`, tcgen05 blocks request their next tile by cluster launch control. With
    `multicast=(2, 1)`, two tiles along m form a cluster and share B; with (1, 2), two tiles along n share A. With `ping_pong`,
    two warpgroups of wgmma alternate between tiles. PlanError has the reasons if the product, or the tile, cannot be planned.

    `data_type` may be a format of elements with scale factors for blocks of k: "mxfp8", "mxfp4" or "nvfp4". `scales` names the
    format if the elements are not its default ones: plan_gemm(…, "e5m2", scales="mxfp8"). For 8-bit floats on sm_90,
    scales="block128" has float32 scales for 1 x 128 elements of A and 128 x 128 of B, which the kernel applies in registers.
    "e2m1" without scales is loaded as 16u4_align16b, a byte of shared memory for each element, as kind f8f6f4 reads it.

    `epilogue` is fused with the product: words of scale, bias, relu, gelu, silu, swiglu, swiglu-interleaved and residual, joined
    by +. `batch` products of this shape are stored one after the other. `experts` is the number of groups, each with a separate
    B and m rows of A on average; `rows` is their layout: "contiguous" (groups start at multiples of the tile's m) or "masked".

    >>> low_batch = plan_gemm(8, 4096, 14336, "bf16")
    >>> low_batch.tile, low_batch.schedule, low_batch.b.swizzle.name
    ((8, 64, 128), Schedule(swapped=True, split=2), '128B')
    >>> pair = plan_gemm(8192, 8192, 8192, "bf16", card="B200")
    >>> pair.tile, pair.a.problem.tile, pair.b.problem.tile, pair.schedule.cta_group
    ((256, 256, 64), (128, 64), (128, 64), 2)
    """
    sms = None if sms is None else integer("sms", sms, 1, LARGEST_SMS)
    stages = None if stages is None else integer("stages", stages, 1, LARGEST_STAGES)
    in_blocks = isinstance(scales, str) and scales == BLOCK_SCALES
    row, scale_format = _elements(data_type, None if in_blocks else scales)
    target, device = resolved(arch, card)
    output = _usual_output(row) if output_type is None else DataType.named(output_type)
    product = Product(
        data_type=row,
        output_type=output,
        arch=target,
        card=device,
        consumer=consumers_of(target)[0] if consumer is None else known_name("consumer", consumer, CONSUMER),
        shape=(
            integer("m", m, 1, LARGEST_MATRIX_EXTENT),
            integer("n", n, 1, LARGEST_MATRIX_EXTENT),
            integer("k", k, 1, LARGEST_MATRIX_EXTENT),
        ),
        a_major=major_named(a_major, "a_major"),
        b_major=major_named(b_major, "b_major"),
        sms=device.sms if sms is None and device is not None else sms,
        scales=scale_format,
        batch=_read_batch(batch, experts, rows),
        fused=PLAIN_EPILOGUE if epilogue is None else Fused.named(epilogue),
        block_scales=in_blocks,
    )
    asked = None
    if tile is not None:
        tile_m, tile_n, tile_k = integers("tile", tile, 3, 1, LARGEST_MATRIX_EXTENT)
        asked = (tile_m, tile_n, tile_k)
    if problems := violations([*product_problems(product), *unfused_product(product)]):
        raise PlanError(problems)
    wanted = GemmRequest(
        tile=asked,
        stages=stages,
        swapped=None if swapped is None else flag("swapped", swapped),
        split=None if split is None else integer("split", split, 1, LARGEST_SPLIT),
        parts=None if parts is None else integer("parts", parts, 1, LARGEST_PARTS),
        group=None if group is None else integer("group", group, 0, LARGEST_MATRIX_EXTENT),
        tail=None if tail is None else integer("tail", tail, 1, LARGEST_PARTS),
        dependent=flag("dependent", dependent),
        cta_group=None if cta_group is None else integer("cta_group", cta_group, 1, 2),
        dynamic=flag("dynamic", dynamic),
        multicast=None if multicast is None else _shared_tiles(multicast),
        ping_pong=None if ping_pong is None else flag("ping_pong", ping_pong),
    )
    return _best(product, wanted)


def _shared_tiles(multicast: object) -> tuple[int, int]:
    """Tiles along m and along n that a cluster shares; a number is those along m."""
    asked = multicast if plain_int(multicast) is None else (multicast, 1)
    return pair("multicast", asked, 1, LARGEST_CLUSTER)


def _elements(data_type: object, scales: object) -> tuple[DataType, ScaleFormat | None]:
    """The type of the elements, and the format of their scale factors.

    >>> _elements("nvfp4", None)
    (DataType.named('e2m1'), ScaleFormat.named('nvfp4'))
    >>> _elements("e5m2", "mxfp8")[1].block
    32
    """
    elements = elements_of_format(data_type)
    if scales is not None:
        return elements or DataType.named(data_type), ScaleFormat.named(scales)
    if elements is None or elements.ptx not in _SCALED_ELEMENTS:
        return DataType.named(data_type), None
    return elements, ScaleFormat.named(data_type)


def _read_batch(batch: int | None, experts: int | None, rows: Rows | None) -> Batch:
    """How many products there are, and how their rows are stored."""
    if experts is None:
        if rows is not None:
            raise ROWS_WITHOUT_EXPERTS.error(rows=rows)
        return ONE if batch is None else Batch(integer("batch", batch, 1, LARGEST_BATCH))
    if batch is not None:
        raise BATCH_OF_EXPERTS.error(batch=batch, experts=experts)
    count = integer("experts", experts, 1, LARGEST_BATCH)
    return Batch(count, "contiguous" if rows is None else known_name("rows", rows, EXPERT_ROWS))


def _usual_output(operands: DataType) -> DataType:
    """The type of C where none is asked for: of 4- to 8-bit operands bf16, which holds their sums, of others their own."""
    if operands.name == "b1":
        return DataType.named("s32")
    return operands if operands.bits > 8 else DataType.named("bf16")


def _best(product: Product, wanted: GemmRequest) -> GemmPlan:
    """The plan of the tile that was asked for, or of the cheapest; PlanError with one tile's obstacles if all are refused."""
    search = _TileSearch(product, wanted.stages, is_asked=wanted.tile is not None)
    attempts: list[_Attempt] = []
    for choice in list_choices(product, wanted, search.reads):
        if len(attempts) >= MOST_PLANNED and choice.is_predicted and any(tried.plans for tried in attempts):
            break  # the others take longer
        if choice.is_last_resort and any(tried.plans for tried in attempts):
            break
        attempt = search.attempt(choice.tile, choice.schedule)
        plain = replace(
            wanted.plain,
            swapped=choice.schedule.swapped,
            cta_group=choice.schedule.cta_group,
            multicast=choice.schedule.multicast,
            ping_pong=choice.schedule.ping_pong,
        )
        if attempt.checks_passed == _SCHEDULE_REFUSED and choice.schedule != plain:
            attempt = search.attempt(choice.tile, plain)  # what was not asked for need not be
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


class _Plans(NamedTuple):
    """The plans of a tile; without TMA, C has none."""

    a: Plan
    b: Plan
    epilogue: Plan | None
    accumulators: int  # in tensor memory
    answers: int  # to requests for a tile
    scales: tuple[ScalePlan, ...]  # of A and B
    slices: int  # of a tile of C
    has_residual: bool
    storing_groups: int  # with buffers of C of their own

    def smem_bytes(self, stages: int, c_buffers: int = 1) -> int:
        """Shared memory of a block with that many stages, and buffers of C."""
        return find_end(
            place_regions(
                self.a,
                self.b,
                self.epilogue,
                stages,
                c_buffers=c_buffers * self.storing_groups,
                accumulators=self.accumulators,
                answers=self.answers,
                scales=self.scales,
                has_residual=self.has_residual,
                turns=self.storing_groups,
            )
        )


class _Attempt(NamedTuple):
    """A tile: what it costs, and the plans of A, B and C, or the obstacles to them."""

    cost: RankedTile
    plans: _Plans | None
    obstacles: Sequence[Obstacle] = ()
    checks_passed: int = 0


class _TileSearch:
    """The tiles of one product, tried one after another; several have the same tile of A or of B."""

    def __init__(self, product: Product, stages: int | None, *, is_asked: bool) -> None:
        self.product = product
        self.stages = stages  # None: as many as help
        self.is_asked = is_asked  # the one tile, which is not replaced by another
        self.plan_of = cache(partial(_matrix_plan, product))

    def reads(self, matrix: Operand, tile: tuple[int, int]) -> bool:
        """Whether there is a plan for a tile of A or of B."""
        return isinstance(self.plan_of(matrix, tile, swapped=False), Plan)

    def attempt(self, tile: Tile, schedule: Schedule) -> _Attempt:
        """A tile with its plans, or with the first obstacles to them; with all that are known, if it was asked for."""
        product = self.product
        choice = Choice(tile, schedule)
        group = schedule.cta_group  # each block of a pair brings half of both operands
        tile_m, tile_n, tile_k = tile
        if beyond := [*tile_problems(product, tile, schedule), *unfused_tile(product, tile, schedule)]:
            further = self._further_obstacles(choice) if self.is_asked else []
            return self._refused(choice, [*beyond, *further], checks_passed=0)
        a = self.plan_of("A", (tile_m // group, tile_k), swapped=schedule.swapped)
        b = self.plan_of("B", (tile_n // group, tile_k), swapped=schedule.swapped)
        if isinstance(a, list) or isinstance(b, list):
            unplanned = [obstacle for plan in (a, b) if isinstance(plan, list) for obstacle in plan]
            further = self._further_obstacles(choice) if self.is_asked else []
            return self._refused(
                choice, [*unplanned, *(one for one in further if one not in unplanned)], checks_passed=1
            )
        if narrow := narrow_instruction(product, schedule.sums(tile), a if schedule.swapped else b):
            return self._refused(choice, narrow, checks_passed=2)
        unshared = list(multicast_problems(product, tile, schedule))
        a_parts, b_parts = in_parts(a, "A", schedule.multicast[1]), in_parts(b, "B", schedule.multicast[0])
        if unshared or isinstance(a_parts, list) or isinstance(b_parts, list):
            uneven = [obstacle for plan in (a_parts, b_parts) if isinstance(plan, list) for obstacle in plan]
            return self._refused(choice, [*unshared, *uneven], checks_passed=2)
        a, b = a_parts, b_parts
        epilogue = self._epilogue(choice)
        if isinstance(epilogue, list):
            return self._refused(choice, epilogue, checks_passed=3)
        scales = scale_plans(product, tile, schedule)
        accumulators = 0
        if product.in_tensor_memory:
            accumulators = accumulator_buffers(schedule.sums(tile), sum(scale.columns for scale in scales))
        slices = 1 if epilogue is None else _slices(product, choice, epilogue)
        plans = _Plans(
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
        fitting = _fitting_stages(product, plans, self.stages)
        if self.stages is None:
            fitting = _useful_stages(product, plans, choice, fitting)
        if fitting < (FEWEST_STAGES if self.stages is None else self.stages):
            exceeding = [self._too_many_stages(tile, plans, fitting)]
            return self._refused(choice, exceeding, checks_passed=4, fitting=fitting)
        stages_bytes = fitting * (a.stage_bytes + b.stage_bytes)
        if unscheduled := schedule_problems(product, tile, schedule, stages_bytes):
            return self._refused(choice, unscheduled, checks_passed=_SCHEDULE_REFUSED, fitting=fitting)
        return _Attempt(weighed(product, tile, schedule, (a, b), fitting), plans)

    def _further_obstacles(self, choice: Choice) -> list[Obstacle]:
        """What else is wrong with a tile that a block, or pair, cannot compute: its operands, and how it is shared.

        A k that no row of shared memory can have hides what is wrong with m and n: they are asked about with a span of k, too.
        """
        product, schedule = self.product, choice.schedule
        m, n, k = choice.tile
        is_said = (
            schedule.cta_group == 2 or product.scales is not None
        )  # all of m and n; with rows that are taken, k is left
        span_k = K_TILE_BYTES * 8 // product.operand_type.smem_bits
        found: list[Obstacle] = []
        for matrix, rows in (("A", TMEM_LANES), ("B", TMEM_LANES)) if is_said else (("A", m), ("B", n)):
            for extent in dict.fromkeys((k, span_k)):
                planned = self.plan_of(matrix, (rows, extent), swapped=schedule.swapped)
                obstacles = planned if isinstance(planned, list) else []
                found += [each for each in obstacles if each.rule in _EXTENT_RULES and each not in found]
        return [*found, *multicast_problems(product, choice.tile, schedule), *unplanned_options(product, schedule)]

    def _refused(
        self, choice: Choice, obstacles: Sequence[Obstacle], *, checks_passed: int, fitting: int = 0
    ) -> _Attempt:
        return _Attempt(
            weighed(self.product, choice.tile, choice.schedule, None, fitting), None, obstacles, checks_passed
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
            stored = _slice(choice.schedule.share(columns), SWAPPED_SLICE, COLUMN_GROUP)
            return self.plan_of("C", (stored, fused.columns(rows)), swapped=True)
        stored = _slice(fused.columns(choice.schedule.share(columns)), _span(self.product))
        return self.plan_of("C", (rows, stored), swapped=is_exchanged(self.product, choice.tile))

    def _too_many_stages(self, tile: Tile, plans: _Plans, fitting: int) -> Broken:
        """Why the stages do not fit a block's shared memory, with what would."""
        is_chosen = self.stages is None
        wanted = FEWEST_STAGES if self.stages is None else self.stages
        return broken(
            FEWEST_STAGES_EXCEED_SMEM if is_chosen else GEMM_SMEM,
            stages=wanted,
            a_bytes=plans.a.stage_bytes,
            b_bytes=plans.b.stage_bytes,
            epilogue_bytes=None if plans.epilogue is None else plans.epilogue.stage_bytes,
            needed_bytes=plans.smem_bytes(wanted),
            arch=self.product.arch.name,
            limit_bytes=self.product.arch.smem_per_block_bytes,
            fewest=FEWEST_STAGES if is_chosen else None,
            fixes=self._fixes(tile, plans, wanted, fitting),
        )

    def _fixes(self, tile: Tile, plans: _Plans, wanted: int, fitting: int) -> tuple[str, ...]:
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


def _matrix_plan(product: Product, matrix: Matrix, tile: tuple[int, int], *, swapped: bool) -> Plan | list[Obstacle]:
    """The best plan of a tile of A, of B, or of a slice of C, not proven yet; or the obstacles to one.

    With A and B swapped the accumulators hold the transpose of C: n x m, with n contiguous in global memory.
    """
    first, second = EXTENTS[matrix]
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
            operand=_operand(matrix, swapped=swapped),
            direction="store" if matrix == "C" else "load",
            global_shape=(extents[names[0]], extents[names[1]]),
            extent_names=names,
        )
        plans, refused = candidates(problem)
        if plans:
            return plans[0]
        obstacles = _most_telling([candidate.obstacles for candidate in refused])
    return [_of_matrix(obstacle, matrix, tile[1], _span(product)) for obstacle in obstacles]


def _operand(matrix: Matrix, *, swapped: bool) -> Operand | None:
    """As which operand the tensor core takes a matrix."""
    if matrix == "C":
        return None
    if swapped:
        return "B" if matrix == "A" else "A"
    return matrix


def _of_matrix(obstacle: Obstacle, matrix: Matrix, columns: int, span: int) -> Obstacle:
    """The obstacle with the name of its matrix; it changes no argument, since its own are not those of the product."""
    if isinstance(obstacle, Violation):
        return replace(obstacle, change=None)
    facts = {"matrix": matrix, **obstacle.facts}
    if matrix == "C" and columns % span and obstacle.rule == PLAN_SMEM.name:
        # a whole number of spans would be stored in slices
        return broken(SLICE_EXCEEDS_SMEM, span=span, up=rounded_up(columns, span), **facts)
    return broken(obstacle.told, **facts)


def _most_telling(refusals: list[list[Obstacle]]) -> list[Obstacle]:
    """The obstacles that all swizzles share; if they share none, those of the swizzle that has fewest.

    Swizzles that break a rule of their own do not count, unless all do.
    """
    rules_of = [{obstacle.rule for obstacle in obstacles} for obstacles in refusals]
    sound = [number for number, rules in enumerate(rules_of) if rules.isdisjoint(_SWIZZLE_RULES)]
    numbers = sound or range(len(refusals))
    counted = [refusals[number] for number in numbers]
    shared = set.intersection(*(rules_of[number] for number in numbers))
    fewest = min(counted, key=len)
    return [obstacle for obstacle in fewest if obstacle.rule in shared] or fewest


def _slice(extent: int, usual: int, step: int = 0) -> int:
    """What is stored at a time of an extent: the usual, or half of it, where they divide the extent; else all.

    With a step also the largest of its multiples that does: rows of C may be any number, columns lie in swizzle spans.

    >>> _slice(256, 64), _slice(224, 64), _slice(24, 64), _slice(200, 64), _slice(200, 64, 8)
    (64, 32, 24, 200, 40)
    """
    further = range(usual - step, _FEWEST_SLICED, -step) if step else ()
    return next((size for size in (usual, usual // 2, *further) if extent % size == 0), extent)


def _slices(product: Product, choice: Choice, epilogue: Plan) -> int:
    """Slices of a tile of C that are stored one after another."""
    share = choice.schedule.share(choice.schedule.sums(choice.tile)[1])
    if choice.schedule.swapped:
        return share // epilogue.problem.tile[1]
    return product.fused.columns(share) // epilogue.problem.columns


def _span(product: Product) -> int:
    """Columns of C in one swizzle span."""
    return EPILOGUE_ROW_BYTES * 8 // product.output_type.smem_bits


def _useful_stages(product: Product, plans: _Plans, choice: Choice, fitting: int) -> int:
    """Of the stages that fit, those that help: no more than K steps, and one fewer where C needs its place."""
    tile, schedule = choice.tile, choice.schedule
    if schedule.split == 1:  # whose parts lie where stages were
        fitting = min(fitting, max(FEWEST_STAGES, _steps_of_a_block(product, tile, schedule)))
    if product.consumer == "wgmma" and schedule.persistent:
        fitting = _without_last(product, plans, fitting, schedule.k_tiles(product.shape[2], tile[2]))
    return fitting


def _without_last(product: Product, plans: _Plans, stages: int, k_tiles: int) -> int:
    """One stage fewer, where every slice of C then has a buffer of its own: a tile is stored while the next one is multiplied.

    On an H200 that was 2 to 8 % faster, and slower where three stages were left for many K steps.
    """
    fewest = _RESIDUAL_STAGES if k_tiles <= _SHORT_K_TILES else _RESIDUAL_STAGES + 1
    if stages <= fewest:
        return stages
    budget = product.arch.smem_per_block_bytes
    holds = [plans.smem_bytes(count, plans.slices) <= budget for count in (stages, stages - 1)]
    return stages - 1 if holds == [False, True] else stages


def _steps_of_a_block(product: Product, tile: Tile, schedule: Schedule) -> int:
    """K steps of the block that has most of them: a stage more would never be filled, and its barriers take time to begin."""
    tiles = prod(schedule.cluster_grid(tile_grid(product.shape, tile))) * product.batch.count
    at_once = max(1, (product.sms or 1) // prod(schedule.cluster))
    rounds = ceil_div(tiles, at_once) if schedule.persistent else 1
    return rounds * schedule.k_tiles(product.shape[2], tile[2])


def _fitting_stages(product: Product, plans: _Plans, stages: int | None) -> int:
    """How many stages fit into shared memory: at most those asked for, or those that are ever chosen."""
    most = MAX_AUTO_STAGES if stages is None else stages
    if stages is None and product.card is not None and product.card.tma is not None and product.by_tma:
        scale_bytes = sum(scale.transaction_bytes for scale in plans.scales)
        stage = plans.a.transaction_bytes + plans.b.transaction_bytes + scale_bytes
        most = max(most, ceil_div(product.card.tma.enough_in_flight_bytes, stage))
    budget = product.arch.smem_per_block_bytes
    if plans.has_residual and stages is None:  # TMA brings it ahead where every slice of C has a buffer
        held = (
            count for count in range(most, _RESIDUAL_STAGES - 1, -1) if plans.smem_bytes(count, plans.slices) <= budget
        )
        if (fitting := next(held, 0)) > 0:
            return fitting
    return next((count for count in range(most, 0, -1) if plans.smem_bytes(count) <= budget), 0)
