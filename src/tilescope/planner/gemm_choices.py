"""The tiles and schedules of a product that are worth planning, by the time that gemm_time.py predicts for them.

Where no time was fitted (other tensor cores, cards without measured rates), every tile shape is tried with the plain
schedule, and floors decide. tcgen05 also takes tiles in pairs of blocks, and the transpose of C where A has few rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from math import prod
from typing import NamedTuple

from tilescope.arithmetic import ceil_div, rounded_up
from tilescope.mma.tmem_address import TMEM_LANES
from tilescope.planner.block_scales import lies_in_one_block
from tilescope.planner.gemm_correction import predict_on_card
from tilescope.planner.gemm_plan import tile_grid
from tilescope.planner.gemm_rates import transfer_us
from tilescope.planner.gemm_schedule import (
    COLUMN_GROUP,
    GROUPED_TILES,
    LARGEST_PARTS,
    LARGEST_SHARING,
    LARGEST_SPLIT,
    MOST_SUMS,
    PLAIN,
    Schedule,
    clusters,
)
from tilescope.planner.gemm_tiles import (
    K_TILE_BYTES,
    TILE_M,
    TILE_N,
    WIDE_TILES,
    pair_shapes,
    rank,
    tile_shapes,
    time_us,
    weighed,
)
from tilescope.planner.gemm_time import predicted, predicts
from tilescope.planner.planned_scales import SCALED_COLUMNS
from tilescope.planner.problem import Operand
from tilescope.planner.product import Product, Tile
from tilescope.planner.tile_order import choose_group
from tilescope.planner.wgmma_sums import most_sums, share_rows

_HOPELESS = 3.0  # times as long as the shortest
MOST_PLANNED = 10  # choices with the shortest times that are planned, more only if all of these are refused
_LEAST_SAVED = 0.1  # of what a block fetches, for which a cluster is worth trying
_FEWEST_K_TILES = 3  # of a block that shares k
_WGMMA_ROWS = (64, 128, 192, 256)  # of tiles
_FITTED_TILES = 4  # columns are also cut into equal tiles, at most this many …
_FITTED_ROUNDS = 4  # … and into as many as fill one round of the card, or more rounds, at most this many
_FEWEST_FITTED = 40  # columns of such tiles at least: of narrow ones, all that differ by 8 are slow
_LARGEST_COLUMNS = 256  # of one wgmma
_K_SPANS = (1, 2)  # of a K tile: two halve the steps to issue …
_MOST_SHARED_PARTS = 4  # of k, whose blocks also share an operand
_FEWEST_TURNED = 64 * 128  # sums of a tile that warpgroups take in turn …
_MOST_TURNED_K_TILES = (
    32  # … and its K steps: of longer tiles the epilogue is too small a part for the smaller tile to pay
)
_EXPERT_ROWS = 128  # of a tile, where experts have as many: smaller tiles fetch the weights of an expert more often
_EXPERT_SUMS = (
    128 * 192
)  # of a tile, where registers hold them: over 7 draws of rows, 128 x 128 took 4 % longer than 128 x 256
_SHARED_ROWS = 16  # of a tile that two blocks fetch: each a whole number of the swizzle's 8
_EXPERT_TAIL = 4  # blocks that share a tile of the last round, at most: how many tiles there are is known at the launch
_WIDE_STAGES = 6  # … and were faster on an H200 where this many stages of them fit, slower where fewer do

_CHOSEN = (
    "swapped",
    "split",
    "parts",
    "group",
    "tail",
    "multicast",
    "ping_pong",
)  # fields of a schedule that a predicted time decides

IsReadable = Callable[[Operand, tuple[int, int]], bool]


class Wanted(NamedTuple):
    """What was asked for; None: the planner chooses."""

    tile: Tile | None
    stages: int | None
    swapped: bool | None
    split: int | None
    parts: int | None
    group: int | None
    tail: int | None
    dependent: bool
    cta_group: int | None
    dynamic: bool
    multicast: tuple[int, int] | None
    ping_pong: bool | None

    def allows(self, schedule: Schedule) -> bool:
        """Whether a schedule is what was asked for."""
        if self.dependent and schedule.multicast != PLAIN.multicast:
            return False
        return all(value == getattr(schedule, name) for name, value in self.asked)

    @property
    def asked(self) -> list[tuple[str, object]]:
        """The fields of a schedule that were asked for, by name."""
        return [(name, value) for name in _CHOSEN if (value := getattr(self, name)) is not None]

    @property
    def plain(self) -> Schedule:
        """What was asked for, and the plain schedule for the rest."""
        return Schedule(
            swapped=bool(self.swapped),
            split=self.split or 1,
            parts=self.parts or 1,
            group=self.group or 0,
            tail=self.tail or 1,
            dependent=self.dependent,
            cta_group=self.cta_group or 1,
            dynamic=self.dynamic,
            multicast=self.multicast or PLAIN.multicast,
            ping_pong=bool(self.ping_pong),
        )


class Choice(NamedTuple):
    """A tile and how its blocks share the work."""

    tile: Tile
    schedule: Schedule
    is_predicted: bool = True
    is_last_resort: bool = False  # planned only if all others are refused


def choices(product: Product, wanted: Wanted, is_readable: IsReadable) -> list[Choice]:
    """The tiles and schedules to plan, of every tile the best; those that are predicted to be fastest come first."""
    if product.in_tensor_memory:
        return _tmem_choices(product, wanted, is_readable)
    if not predicts(product):
        shapes = [wanted.tile] if wanted.tile is not None else tile_shapes(product, is_readable, TILE_M)
        return [Choice(shape, wanted.plain, is_predicted=False) for shape in shapes]
    found: list[tuple[float, Choice]] = []
    asks = bool(wanted.asked) or wanted.dependent
    tiles = list(_by_tile(product, wanted, is_readable))
    for (tile, swapped), is_hopeful in zip(tiles, _are_hopeful(product, tiles), strict=True):
        offered = schedules(product, tile, swapped=swapped)
        allowed = [one for one in (offered if is_hopeful else islice(offered, 1)) if not asks or wanted.allows(one)]
        times = [
            (_us(product, tile, schedule), schedule) for schedule in allowed or [replace(wanted.plain, swapped=swapped)]
        ]
        us, fastest = min(times, key=lambda time: time[0])
        asked = replace(wanted.plain, **{name: getattr(fastest, name) for name in _CHOSEN})
        found.append((us, Choice(tile, asked)))
    found.sort(key=lambda timed: timed[0])
    return [choice for _, choice in found]


def _tmem_choices(product: Product, wanted: Wanted, is_readable: IsReadable) -> list[Choice]:
    """Tiles of one block and of pairs, those with the best floors first."""
    found = []
    groups: tuple[int, ...] = (1, 2) if wanted.tile is None else (1,)  # a tile that is asked for is one block's
    if wanted.cta_group is not None:
        groups = (wanted.cta_group,)
    for cta_group in groups:
        schedule = replace(wanted.plain, swapped=_is_swapped(product, wanted), cta_group=cta_group)
        for tile in _tmem_tiles(product, wanted, schedule, is_readable):
            grouped = GROUPED_TILES if tile_grid(product.shape, tile)[0] > GROUPED_TILES else 0
            group = grouped if wanted.group is None else wanted.group
            found.append(Choice(tile, replace(schedule, group=group)))
    if wanted.tile is None and wanted.multicast is None:
        found += [shared for choice in found for shared in _with_shared_operands(product, choice)]
    costs = {choice: weighed(product, choice.tile, choice.schedule, None, 0) for choice in found}
    lowest_us = min((time_us(cost) for cost in costs.values()), default=0.0)
    return [
        *sorted(found, key=lambda choice: rank(costs[choice], lowest_us)),
        *_last_resorts(product, wanted, is_readable),
    ]


def _with_shared_operands(product: Product, choice: Choice) -> Iterator[Choice]:
    """The same tile in clusters of two that share B or A, whichever is more, where that pays by documented rates.

    The rate of the L2 is in no document. Where memory could not bring what the SMs fetch within the time of the products, the
    L2 must, and fewer bytes are worth a cluster.
    """
    prediction = predicted(product, choice.tile, choice.schedule)
    if product.card is None or prediction is None or prediction.bound == "memory":
        return
    cost = weighed(product, choice.tile, choice.schedule, None, 0)
    if transfer_us(cost.busiest_bytes * product.card.sms, product.card.memory_gb_per_s) <= prediction.main_us:
        return
    tile_m, tile_n, _ = choice.tile
    tiles_m, tiles_n = tile_grid(product.shape, choice.tile)
    ways = [(tile_n, (2, 1), tiles_m), (tile_m, (1, 2), tiles_n)]
    shared, multicast, _ = max((way for way in ways if way[2] > 1), default=(0, PLAIN.multicast, 0))
    if shared / 2 >= _LEAST_SAVED * (tile_m + tile_n):
        yield choice._replace(schedule=replace(choice.schedule, multicast=multicast))


def _last_resorts(product: Product, wanted: Wanted, is_readable: IsReadable) -> Iterator[Choice]:
    """Tiles of one block as they are, those of 64 rows among them: tcgen05 takes as long for 64 rows as for 128."""
    if wanted.tile is not None or wanted.swapped or wanted.cta_group == 2:
        return
    for tile in tile_shapes(product, is_readable, TILE_M):
        yield Choice(tile, replace(wanted.plain, swapped=False), is_last_resort=True)


def _is_swapped(product: Product, wanted: Wanted) -> bool:
    """Whether B gives the rows: as asked, or where A has fewer rows than an instruction of tcgen05, and B has enough."""
    if wanted.swapped is not None:
        return wanted.swapped
    if product.output_type.smem_bits < 8:  # lanes store no single elements of the transpose
        return False
    if wanted.tile is not None:
        return _suits_swapped(wanted.tile)
    m, n, _ = product.shape
    fewest = TMEM_LANES if product.scales is None else SCALED_COLUMNS + 1  # columns of scaled tiles come in steps of 64
    return m < fewest <= TMEM_LANES <= n


def _tmem_tiles(product: Product, wanted: Wanted, schedule: Schedule, is_readable: IsReadable) -> list[Tile]:
    """The tile that was asked for, or those worth trying."""
    if wanted.tile is not None:
        return [wanted.tile]
    m, n, k = product.shape
    seen = product._replace(shape=(n, m, k)) if schedule.swapped else product
    shapes = pair_shapes(seen) if schedule.cta_group == 2 else tile_shapes(seen, is_readable, TILE_M[1:])
    if not schedule.swapped:
        return shapes
    return [(columns, rows, tile_k) for rows, columns, tile_k in shapes]


def _us(product: Product, tile: Tile, schedule: Schedule) -> float:
    prediction = predict_on_card(product, tile, schedule)
    assert prediction is not None
    return prediction.us


def _are_hopeful(product: Product, tiles: list[tuple[Tile, bool]]) -> list[bool]:
    """Which tiles some schedule may make the best: of those that are slow one after another, no other one is predicted.

    Blocks that share k make a tile as many times as fast as there are SMs for it, at best.
    """
    sms = product.sms or 1
    shortest: list[float] = []
    for tile, swapped in tiles:
        taken = prod(tile_grid(product.shape, tile)) * product.batch.count
        alone_us = _us(product, tile, Schedule(swapped=swapped, group=choose_group(product, tile)))
        shortest.append(alone_us * min(1.0, taken / sms))
    limit_us = _HOPELESS * min(shortest, default=0.0)
    return [us <= limit_us for us in shortest]


def _by_tile(product: Product, wanted: Wanted, is_readable: IsReadable) -> Iterator[tuple[Tile, bool]]:
    """Every tile, as it is and swapped."""
    for swapped in (False, True) if wanted.swapped is None else (wanted.swapped,):
        shapes = [wanted.tile] if wanted.tile is not None else list(_shapes(product, swapped, is_readable))
        for shape in shapes:
            if wanted.tile is not None and wanted.swapped is None and swapped != _suits_swapped(shape):
                continue
            yield shape, swapped


def _suits_swapped(tile: Tile) -> bool:
    """Whether a tile that was asked for must be swapped: its n is a multiple of wgmma's 64 rows, its m only of its columns."""
    m, n, _ = tile
    return m % TILE_M[0] != 0 and m % COLUMN_GROUP == 0 and n % TILE_M[0] == 0


def _shapes(product: Product, swapped: bool, is_readable: IsReadable) -> Iterator[Tile]:
    """Tiles of 64 to 256 rows, and of as many columns as one instruction takes; none twice as large as its matrix."""
    m, n, _ = product.shape
    rows_extent, columns_extent = (n, m) if swapped else (m, n)
    span_k = K_TILE_BYTES * 8 // product.operand_type.smem_bits
    loop = product.tensor_core.loop
    assert loop is not None
    one_instruction = loop.extents(product.operand_type).n
    for rows in _WGMMA_ROWS:
        if rows > _WGMMA_ROWS[0] and rows >= 2 * rows_extent:
            continue
        warpgroups = share_rows(rows)
        most = most_sums(product, warpgroups.groups)
        for columns in _widths(product, ceil_div(rows_extent, rows), columns_extent):
            too_wide = columns > TILE_N[0] and columns >= 2 * columns_extent
            if too_wide or warpgroups.blocks * columns // 2 > most:
                continue
            if product.block_scales and not _has_one_scale(product, rows if swapped else columns, swapped=swapped):
                continue
            by_rows = product.b_major == "K"  # whole atoms of 8 rows are always read
            if columns not in one_instruction or not (by_rows or is_readable("B", (columns, span_k))):
                continue
            tile_m = columns if swapped else rows
            if product.batch.is_of_experts and _fetches_too_often(product, tile_m, rows * columns):
                continue
            for tile_k in _k_tiles(product, span_k, rows, columns):
                yield (columns, rows, tile_k) if swapped else (rows, columns, tile_k)


def _widths(product: Product, row_tiles: int, columns_extent: int) -> list[int]:
    """Columns of tiles: usual ones, equal parts of few, and what fills whole rounds of the card with tiles.

    1195 x 5632 on 132 SMs: 44 tiles of 128 down 5632 leave 6 across 1195 for two rounds, so 200 columns.
    """
    counts = {*range(1, _FITTED_TILES + 1)}
    fitted = {rounded_up(ceil_div(columns_extent, count), COLUMN_GROUP) for count in counts}
    for rounds in range(1, _FITTED_ROUNDS + 1):
        count = (product.sms or 1) * rounds // (row_tiles * product.batch.count)
        width = ceil_div(columns_extent, count) if count else 0
        if width >= _FEWEST_FITTED:  # in groups of columns, or in what two blocks share and slices divide
            fitted |= {rounded_up(width, COLUMN_GROUP), rounded_up(width, _SHARED_ROWS)}
    return sorted({*TILE_N, *WIDE_TILES, *(width for width in fitted if width <= _LARGEST_COLUMNS)})


def _has_one_scale(product: Product, tile_n: int, *, swapped: bool) -> bool:
    """Whether a tile with that n needs one scale of B at a time."""
    side_by_side = product.fused.gate == "side by side"
    return lies_in_one_block(tile_n, product.shape[1], swapped=swapped, side_by_side=side_by_side)


def _fetches_too_often(product: Product, tile_m: int, sums: int) -> bool:
    """Whether larger tiles of experts with enough rows are worth it: neighbouring SMs have other experts, and share little."""
    m, n, _ = product.shape
    fewest = _EXPERT_SUMS if n >= _EXPERT_SUMS // _EXPERT_ROWS and not product.is_promoted else 0
    return m >= _EXPERT_ROWS and (tile_m < _EXPERT_ROWS or sums < fewest)


def _k_tiles(product: Product, span_k: int, rows: int, columns: int) -> Iterator[int]:
    """The k of a tile: a span; of small tiles also two, where k has several such steps and sums need no promotion."""
    slice_bytes = rows * K_TILE_BYTES
    for spans in _K_SPANS:
        tile_k = spans * span_k
        stages_bytes = _WIDE_STAGES * (rows + columns) * spans * K_TILE_BYTES
        fits = stages_bytes + slice_bytes < product.arch.smem_per_block_bytes
        if spans == 1 or (fits and not product.is_promoted and product.shape[2] >= _FEWEST_K_TILES * tile_k):
            yield tile_k


def schedules(product: Product, tile: Tile, *, swapped: bool) -> Iterator[Schedule]:
    """How blocks can share a tile: one tile after another, the last round shared, or k split while SMs would be idle."""
    k_tiles = ceil_div(product.shape[2], tile[2])
    group = 0 if product.batch.rows == "masked" else choose_group(product, tile)
    plain = Schedule(swapped=swapped, group=group)
    yield plain
    if product.batch.is_of_experts:  # how many tiles there are is known at the launch
        if k_tiles >= _FEWEST_K_TILES * _EXPERT_TAIL:
            yield replace(plain, tail=_EXPERT_TAIL)
        return
    yield from _last_rounds(product, tile, plain)
    yield from _turns(product, tile, plain)
    for multicast in _sharings(product, tile):
        shared = replace(plain, multicast=multicast, group=min(group, 1) * GROUPED_TILES)
        yield shared
        yield from _last_rounds(product, tile, shared)
        yield from _turns(product, tile, shared)
        yield from _parts(product, tile, shared)
    tiles = prod(tile_grid(product.shape, tile)) * product.batch.count
    sms = product.sms or 1
    if tiles > sms:
        return
    for split in (1, 2, 4, LARGEST_SPLIT):
        most = min(clusters(sms, split) // tiles, LARGEST_PARTS)
        for parts in sorted({1, 2, 3, (most + 1) // 2, most}):
            shared_by = split * parts
            if 1 <= parts <= most and shared_by > 1 and k_tiles >= _FEWEST_K_TILES * shared_by:
                yield replace(plain, split=split, parts=parts)


class _Rounds(NamedTuple):
    """How often the card's blocks, or clusters, take their tiles."""

    taken: int  # by blocks, or clusters
    at_once: int

    @classmethod
    def of(cls, product: Product, tile: Tile, schedule: Schedule) -> _Rounds:
        """Those of a schedule."""
        grid = schedule.cluster_grid(tile_grid(product.shape, tile))
        return cls(prod(grid) * product.batch.count, max(1, clusters(product.sms or 1, prod(schedule.cluster))))


def _last_rounds(product: Product, tile: Tile, schedule: Schedule) -> Iterator[Schedule]:
    """The tiles of a last round that would leave SMs idle are shared by 2 blocks, or by as many as there are."""
    k_tiles = ceil_div(product.shape[2], tile[2])
    rounds = _Rounds.of(product, tile, schedule)
    rest = rounds.taken % rounds.at_once
    if rounds.taken <= rounds.at_once or not rest:
        return
    for tail in {2, min(rounds.at_once // rest, k_tiles // 4)}:
        if 1 < tail <= rounds.at_once // rest and k_tiles >= _FEWEST_K_TILES * tail:
            yield replace(schedule, tail=tail)


def _parts(product: Product, tile: Tile, schedule: Schedule) -> Iterator[Schedule]:
    """Clusters that share an operand, and k."""
    k_tiles = ceil_div(product.shape[2], tile[2])
    rounds = _Rounds.of(product, tile, schedule)
    most = min(rounds.at_once // rounds.taken, k_tiles // _FEWEST_K_TILES, _MOST_SHARED_PARTS)
    for parts in range(2, most + 1):
        yield replace(schedule, parts=parts)


def _turns(product: Product, tile: Tile, schedule: Schedule) -> Iterator[Schedule]:
    """Warpgroups that take tiles in turn, where a block has several short ones and one warpgroup has registers for a tile.

    On an H200 none of them was the fastest kernel of a product with k beyond 2048, fused epilogues among them. Sums that are promoted
    are not offered: the tensor core waits for one warpgroup's additions, where two would alternate.
    """
    rows, columns, _ = schedule.sums(tile)
    rounds = _Rounds.of(product, tile, schedule)
    is_short = schedule.k_tiles(product.shape[2], tile[2]) <= _MOST_TURNED_K_TILES
    several = rounds.taken > rounds.at_once and is_short and not product.is_promoted
    if several and _FEWEST_TURNED <= rows * columns <= MOST_SUMS:
        yield replace(schedule, ping_pong=True)


def _sharings(product: Product, tile: Tile) -> Iterator[tuple[int, int]]:
    """Clusters whose blocks fetch B, or A, for each other: in parts that start where the swizzle does.

    Two blocks; four, where all clusters of them run at once.
    """
    if product.batch.is_of_experts or product.fused.gate == "side by side":
        return
    if (product.sms or 1) < LARGEST_SHARING:
        return
    tiles_m, tiles_n = tile_grid(product.shape, tile)
    for blocks in (2, LARGEST_SHARING):
        sharings = (
            ((blocks, 1), tiles_m, tile[1], product.b_major),
            ((1, blocks), tiles_n, tile[0], product.a_major),
        )
        for multicast, tiles, shared_rows, major in sharings:
            is_whole = major == "MN" or shared_rows % (blocks * COLUMN_GROUP) == 0
            if tiles >= blocks and is_whole and (blocks == 2 or _run_at_once(product, tile, multicast)):
                yield multicast


def _run_at_once(product: Product, tile: Tile, multicast: tuple[int, int]) -> bool:
    """Whether the card runs all clusters of a sharing in one round."""
    rounds = _Rounds.of(product, tile, replace(PLAIN, multicast=multicast))
    return rounds.taken <= rounds.at_once
