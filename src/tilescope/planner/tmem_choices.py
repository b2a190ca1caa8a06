"""The tiles and schedules worth planning where tcgen05 multiplies, those with the best floors first.

Tiles of one block and of pairs of blocks are tried, and the transpose of C where A has few rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilescope.mma.tmem_address import TMEM_LANES
from tilescope.planner.gemm_plan import tile_grid
from tilescope.planner.gemm_rates import transfer_us
from tilescope.planner.gemm_request import Choice, GemmRequest, IsReadable, suits_swapped
from tilescope.planner.gemm_schedule import GROUPED_TILES, PLAIN, Schedule
from tilescope.planner.gemm_tiles import TILE_M, pair_shapes, rank, tile_shapes, time_us, weigh_tile
from tilescope.planner.gemm_time import predict_time
from tilescope.planner.planned_scales import SCALED_COLUMNS
from tilescope.planner.product import Product, Tile

_LEAST_SAVED = 0.1  # of what a block fetches, for which a cluster is worth trying


def list_tmem_choices(product: Product, request: GemmRequest, is_readable: IsReadable) -> list[Choice]:
    """Tiles of one block and of pairs, those with the best floors first."""
    choices = []
    groups: tuple[int, ...] = (1, 2) if request.tile is None else (1,)  # a requested tile is one block's
    if request.cta_group is not None:
        groups = (request.cta_group,)
    for cta_group in groups:
        schedule = replace(request.plain, swapped=_is_swapped(product, request), cta_group=cta_group)
        for tile in _list_tiles(product, request, schedule, is_readable):
            grouped = GROUPED_TILES if tile_grid(product.shape, tile)[0] > GROUPED_TILES else 0
            group = grouped if request.group is None else request.group
            choices.append(Choice(tile, replace(schedule, group=group)))
    if request.tile is None and request.multicast is None:
        choices += [shared for choice in choices for shared in _share_operands(product, choice)]
    costs = {choice: weigh_tile(product, choice.tile, choice.schedule, None, 0) for choice in choices}
    lowest_us = min((time_us(cost) for cost in costs.values()), default=0.0)
    return [
        *sorted(choices, key=lambda choice: rank(costs[choice], lowest_us)),
        *_list_last_resorts(product, request, is_readable),
    ]


def _share_operands(product: Product, choice: Choice) -> Iterator[Choice]:
    """The same tile in clusters of two that share B or A, whichever is more, where that pays by documented rates.

    The L2 bandwidth is not documented. If memory cannot deliver what the SMs load within the time of the products, the
    L2 must, and a cluster that loads fewer bytes is worth its cost.
    """
    prediction = predict_time(product, choice.tile, choice.schedule)
    if product.card is None or prediction is None or prediction.bound == "memory":
        return
    cost = weigh_tile(product, choice.tile, choice.schedule, None, 0)
    if transfer_us(cost.busiest_bytes * product.card.sms, product.card.memory_gb_per_s) <= prediction.main_us:
        return
    tile_m, tile_n, _ = choice.tile
    tiles_m, tiles_n = tile_grid(product.shape, choice.tile)
    ways = [(tile_n, (2, 1), tiles_m), (tile_m, (1, 2), tiles_n)]
    shared, multicast, _ = max((way for way in ways if way[2] > 1), default=(0, PLAIN.multicast, 0))
    if shared / 2 >= _LEAST_SAVED * (tile_m + tile_n):
        yield choice._replace(schedule=replace(choice.schedule, multicast=multicast))


def _list_last_resorts(product: Product, request: GemmRequest, is_readable: IsReadable) -> Iterator[Choice]:
    """Tiles of one block as they are, those of 64 rows among them: tcgen05 takes as long for 64 rows as for 128."""
    if request.tile is not None or request.swapped or request.cta_group == 2:
        return
    for tile in tile_shapes(product, is_readable, TILE_M):
        yield Choice(tile, replace(request.plain, swapped=False), is_last_resort=True)


def _is_swapped(product: Product, request: GemmRequest) -> bool:
    """Whether B provides the rows: as requested, or if A has fewer rows than an instruction of tcgen05, and B has enough."""
    if request.swapped is not None:
        return request.swapped
    if product.output_type.smem_bits < 8:  # lanes store no single elements of the transpose
        return False
    if request.tile is not None:
        return suits_swapped(request.tile)
    m, n, _ = product.shape
    fewest = TMEM_LANES if product.scales is None else SCALED_COLUMNS + 1  # columns of scaled tiles come in steps of 64
    return m < fewest <= TMEM_LANES <= n


def _list_tiles(product: Product, request: GemmRequest, schedule: Schedule, is_readable: IsReadable) -> list[Tile]:
    """The requested tile, or the tiles to try."""
    if request.tile is not None:
        return [request.tile]
    m, n, k = product.shape
    seen = product._replace(shape=(n, m, k)) if schedule.swapped else product
    shapes = pair_shapes(seen) if schedule.cta_group == 2 else tile_shapes(seen, is_readable, TILE_M[1:])
    if not schedule.swapped:
        return shapes
    return [(columns, rows, tile_k) for rows, columns, tile_k in shapes]
