"""The order of the tiles of C: which blocks share the rows that they fetch, and how often memory delivers the operands.

group 0    down m, one column of tiles after another      every row of A again for each column, unless the L2 holds A
group 4    4 tiles down m, then the next column           A comes once for a group, and B again for every group
group 1    along n

Rows that several blocks of a set fetch cost the L2 once. The sets were found by timing 608 kernels on an H200 in up to eight
orders each:

    blocks without clusters    eight sets of 16 or 17 consecutive blocks
    clusters                   cluster i is in set i mod 8: the eight GPCs take clusters in turn

The best order by this rule took 1.0 % longer than the fastest measured one in the mean (at most 9 %), in a split k 0.8 %.
833 x 2000 x 3056 in 8 x 16 tiles of 112 x 128: 20 us in groups of 4, 26 us along n.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from tilescope.arithmetic import ceil_div
from tilescope.planner.gemm_plan import tile_grid
from tilescope.planner.gemm_rates import H200_RATES, transfer_us
from tilescope.planner.gemm_schedule import PLAIN, Schedule, clusters
from tilescope.planner.product import Product, Tile

_SETS = 8  # of blocks that share what they fetch: as many as an H200 has GPCs
_GROUPS = (1, 2, 3, 4, 6, 8, 16)  # tiles along m, or clusters, that are taken together, beside all
_COUNTED_ROUNDS = 2  # of the card: later rounds fetch as much
_L2_SHARE_HELD = 0.6  # of the L2: matrices that fit into it come from memory once


class Fetches(NamedTuple):
    """How often a set of blocks fetches the rows of A of a tile, and those of B."""

    a: float
    b: float


def count_operand_bytes(product: Product, tile: Tile, group: int) -> float:
    """Operand bytes from memory: A once for every group, and B again for every group, unless the L2 holds what is shared."""
    m, n, k = product.shape
    row_bytes = k * product.data_type.bits / 8
    if _come_once(product, tile):
        return (m + n) * row_bytes
    tiles_m, tiles_n = tile_grid(product.shape, tile)
    rows = min(group or tiles_m, tiles_m)
    columns_at_once = max(1, (product.sms or 1) // rows)
    a_times = 1 if rows * tile[0] * row_bytes <= _held_bytes(product) else ceil_div(tiles_n, columns_at_once)
    b_times = 1 if n * row_bytes <= _held_bytes(product) else ceil_div(tiles_m, rows)
    return (m * a_times + n * b_times) * row_bytes


def _come_once(product: Product, tile: Tile) -> bool:
    """Whether memory delivers A and B once in any order: the L2 holds them, or all blocks go through k together."""
    m, n, k = product.shape
    tiles_m, tiles_n = tile_grid(product.shape, tile)
    operand_bytes = (m + n) * k * product.data_type.bits / 8
    return operand_bytes <= _held_bytes(product) or tiles_m * tiles_n <= (product.sms or 1)


def _held_bytes(product: Product) -> float:
    l2_bytes = product.card.l2_bytes if product.card is not None else None
    return (l2_bytes or 0) * _L2_SHARE_HELD


def count_fetched_bytes(product: Product, tile: Tile, schedule: Schedule) -> float:
    """Operand bytes that the sets of blocks fetch from the L2. Tiles of experts share nothing.

    >>> from tilescope.planner import plan_gemm
    >>> product = plan_gemm(833, 2000, 3056, "bf16").product
    >>> [round(count_fetched_bytes(product, (112, 128, 64), Schedule(group=group)) / 1e6) for group in (4, 1)]
    [51, 104]
    """
    a_tile_bytes, b_tile_bytes = _tile_bytes(product, tile)
    if product.batch.is_of_experts:
        tiles = prod(tile_grid(product.shape, tile)) * product.batch.count
        return tiles * (a_tile_bytes + b_tile_bytes)
    grid = schedule.cluster_grid(tile_grid(product.shape, tile))
    group = min(max(1, schedule.group // schedule.multicast[0]), grid[0]) if schedule.group else grid[0]
    groups = _list_groups(grid[0])
    counted = groups if group in groups else (group,)
    fetches = _count_fetches(grid, counted, _count_cluster_blocks(schedule), product.sms or 1)
    return _fetched_bytes(product, tile, schedule, fetches)[counted.index(group)]


def choose_group(product: Product, tile: Tile, schedule: Schedule = PLAIN) -> int:
    """Tiles along m that are taken together, for the shortest time of L2 and memory; 0: all.

    >>> from tilescope.planner import plan_gemm
    >>> choose_group(plan_gemm(833, 2000, 3056, "bf16").product, (112, 128, 64))
    4
    """
    grid = schedule.cluster_grid(tile_grid(product.shape, tile))
    groups = _list_groups(grid[0])
    if len(groups) == 1:
        return 0
    along_m = schedule.multicast[0]
    fetches = _count_fetches(grid, groups, _count_cluster_blocks(schedule), product.sms or 1)
    shared_bytes = _fetched_bytes(product, tile, schedule, fetches)
    times_us = [transfer_us(each, H200_RATES.shared_l2_gb_per_s) for each in shared_bytes]
    if not _come_once(product, tile):
        for number, group in enumerate(groups):
            memory_bytes = count_operand_bytes(product, tile, group * along_m) * product.batch.count
            times_us[number] += transfer_us(memory_bytes, H200_RATES.memory_gb_per_s)
    fastest = groups[times_us.index(min(times_us))]
    return 0 if fastest == grid[0] else fastest * along_m


def _tile_bytes(product: Product, tile: Tile) -> tuple[float, float]:
    """Bytes of A and of B for one tile, without rows beyond the matrices."""
    m, n, k = product.shape
    tiles_m, tiles_n = tile_grid(product.shape, tile)
    row_bytes = k * product.data_type.bits / 8
    return m / tiles_m * row_bytes, n / tiles_n * row_bytes


def _fetched_bytes(product: Product, tile: Tile, schedule: Schedule, fetches: Iterable[Fetches]) -> list[float]:
    along_m, along_n = schedule.multicast
    a_tile_bytes, b_tile_bytes = _tile_bytes(product, tile)
    a_bytes = a_tile_bytes * along_m * product.batch.count
    b_bytes = b_tile_bytes * along_n * product.batch.count
    return [each.a * a_bytes + each.b * b_bytes for each in fetches]


def _count_cluster_blocks(schedule: Schedule) -> int:
    return prod(schedule.cluster) * schedule.split


def _list_groups(tiles_m: int) -> tuple[int, ...]:
    """The groups that are compared: all tiles along m, and fewer.

    >>> _list_groups(5)
    (5, 1, 2, 3, 4)
    """
    return (tiles_m, *(group for group in _GROUPS if group < tiles_m))


@lru_cache(maxsize=4096)
def _count_fetches(grid: tuple[int, int], groups: tuple[int, ...], blocks: int, sms: int) -> tuple[Fetches, ...]:
    """For every group: the fetches of all sets, if clusters of that many blocks take the tiles in order."""
    tiles_m, tiles_n = grid
    at_once = max(1, clusters(sms, blocks))
    counted = min(tiles_m * tiles_n, _COUNTED_ROUNDS * at_once)
    place = np.arange(counted, dtype=np.int32)
    number, in_round = np.divmod(place, np.int32(at_once))
    block_set = in_round * _SETS // at_once if blocks == 1 else in_round % _SETS
    block_set += number * _SETS
    group = np.array(groups, np.int32)[:, None]
    first_m = place // (group * tiles_n) * group
    along_n, along_m = np.divmod(place - first_m * tiles_n, np.minimum(group, tiles_m - first_m))
    sets = len(groups) * (int(block_set[-1]) // _SETS + 1) * _SETS
    row = block_set + np.arange(0, sets, sets // len(groups), dtype=np.int32)[:, None]
    fetches_a = np.zeros((sets, tiles_m), bool)
    fetches_b = np.zeros((sets, tiles_n), bool)
    fetches_a[row, first_m + along_m] = True
    fetches_b[row, along_n] = True
    scale = tiles_m * tiles_n / counted
    counts = [np.count_nonzero(each.reshape(len(groups), -1), axis=1) for each in (fetches_a, fetches_b)]
    return tuple(Fetches(a * scale, b * scale) for a, b in zip(*(each.tolist() for each in counts), strict=True))
