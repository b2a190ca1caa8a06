"""The tiles and schedules of a product that are worth planning, by the time that gemm_time.py predicts for them.

`wgmma_tiles.py` has the shapes, `schedule_choices.py` the schedules, and `tmem_choices.py` both for tcgen05. Where no time
was fitted (other tensor cores, cards without measured rates), every tile shape is tried with the plain schedule, and floors
decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from math import prod

from tilescope.planner.gemm_correction import predict_on_card
from tilescope.planner.gemm_plan import tile_grid
from tilescope.planner.gemm_request import DECIDED_BY_TIME, Choice, GemmRequest, IsReadable, suits_swapped
from tilescope.planner.gemm_schedule import PLAIN, Schedule
from tilescope.planner.gemm_tiles import NEAR_TIME_RATIO, TILE_M, tile_shapes
from tilescope.planner.gemm_time import predicts
from tilescope.planner.product import Product, Tile
from tilescope.planner.ranked_tile import Prediction
from tilescope.planner.schedule_choices import list_schedules
from tilescope.planner.tmem_choices import list_tmem_choices
from tilescope.planner.wgmma_tiles import list_wgmma_tiles

_HOPELESS = 2.5  # times as long as the shortest
MOST_PLANNED = 8  # choices with the shortest times that are planned, more only if all of these are refused


def list_choices(product: Product, request: GemmRequest, is_readable: IsReadable) -> list[Choice]:
    """The tiles and schedules to plan, of every tile the best; those that are predicted to be fastest come first."""
    if product.in_tensor_memory:
        return list_tmem_choices(product, request, is_readable)
    if not predicts(product):
        shapes = [request.tile] if request.tile is not None else tile_shapes(product, is_readable, TILE_M)
        return [Choice(shape, request.plain, is_predicted=False) for shape in shapes]
    timed_choices: list[tuple[float, Choice]] = []
    asks = bool(request.requested_fields) or request.dependent
    tiles = list(_list_tiles(product, request, is_readable))
    for (tile, swapped), is_hopeful in zip(tiles, _are_hopeful(product, tiles), strict=True):
        offered = list_schedules(product, tile, swapped=swapped)
        tried = offered if is_hopeful else islice(offered, 1)
        allowed = [schedule for schedule in tried if not asks or request.allows(_apply_order(schedule, request))]
        times = [
            (_predict_us(product, tile, schedule), schedule)
            for schedule in allowed or [replace(request.plain, swapped=swapped)]
        ]
        us, fastest = _fastest(times)
        if request.group is not None:
            fastest = _apply_order(fastest, request)
            us = _predict_us(product, tile, fastest)
        chosen = replace(request.plain, **{name: getattr(fastest, name) for name in DECIDED_BY_TIME})
        timed_choices.append((us, Choice(tile, chosen)))
    timed_choices.sort(key=lambda timed: round(timed[0], 1))  # of times that differ less, the tile as it is comes first
    return [choice for _, choice in timed_choices]


def _apply_order(schedule: Schedule, request: GemmRequest) -> Schedule:
    """The schedule in the requested order of tiles, if there is one that takes whole clusters together."""
    if request.group is None or request.group % schedule.multicast[0]:
        return schedule
    return replace(schedule, group=request.group)


def _fastest(times: list[tuple[float, Schedule]]) -> tuple[float, Schedule]:
    """The schedule with the shortest time; of equal times, one whose blocks share no operands."""
    us, fastest = min(times, key=lambda time: time[0])
    apart = [time for time in times if time[1].multicast == PLAIN.multicast and time[0] <= NEAR_TIME_RATIO * us]
    return min(apart, key=lambda time: time[0], default=(us, fastest))


def _predict_us(product: Product, tile: Tile, schedule: Schedule) -> float:
    """Microseconds that a tile and a schedule take, by the fitted rates."""
    return _predict(product, tile, schedule).us


def _predict(product: Product, tile: Tile, schedule: Schedule) -> Prediction:
    prediction = predict_on_card(product, tile, schedule)
    assert prediction is not None
    return prediction


def _are_hopeful(product: Product, tiles: list[tuple[Tile, bool]]) -> list[bool]:
    """The tiles that some schedule may make the best: tiles that are slow one after another are not predicted.

    Blocks that share k make a tile as many times as fast as there are SMs for it, at best; the launch takes as long.
    """
    sms = product.sms or 1
    shortest: list[float] = []
    for tile, swapped in tiles:
        taken = prod(tile_grid(product.shape, tile)) * product.batch.count
        alone = _predict(product, tile, Schedule(swapped=swapped))
        shortest.append(alone.launch_us + (alone.us - alone.launch_us) * min(1.0, taken / sms))
    limit_us = _HOPELESS * min(shortest, default=0.0)
    return [us <= limit_us for us in shortest]


def _list_tiles(product: Product, request: GemmRequest, is_readable: IsReadable) -> Iterator[tuple[Tile, bool]]:
    """Every tile, as it is and swapped: where 64 rows are at least twice m, only swapped ones, if there are any.

    Rows of a box beyond the matrix take time, too. On an H200, no tile of 64 rows was faster for m up to 32.
    """
    orders = (False, True) if request.swapped is None else (request.swapped,)
    shapes = {swapped: _list_shapes(product, request, is_readable, swapped=swapped) for swapped in orders}
    if 2 * product.shape[0] <= TILE_M[0] and shapes.get(True) and not product.batch.is_of_experts:
        shapes.pop(False, None)
    for swapped, tiles in shapes.items():
        for tile in tiles:
            yield tile, swapped


def _list_shapes(product: Product, request: GemmRequest, is_readable: IsReadable, *, swapped: bool) -> list[Tile]:
    if request.tile is None:
        return list(list_wgmma_tiles(product, swapped, is_readable))
    is_other = request.swapped is None and swapped != suits_swapped(request.tile)
    return [] if is_other else [request.tile]
