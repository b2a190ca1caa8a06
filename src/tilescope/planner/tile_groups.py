"""The order of the tiles of C: which blocks share the rows that they fetch, and how often memory delivers the operands.

group 0    down m, one column of tiles after another      every row of A again for each column, unless the L2 holds A
group 4    4 tiles down m, then the next column           A comes once for a group, and B again for every group
group 1    along n

Rows that several blocks of a set fetch cost the L2 once. The sets were found by timing 608 kernels on an H200 in up to eight
orders each:

    blocks without clusters    eight sets of 16 or 17 consecutive blocks
    clusters                   cluster i is in set i mod 8: the eight GPCs take clusters in turn

What C takes of the L2 counts, too: B stays there for the next group only if C does not replace it. By this rule, 155 other
kernels took 0.9 % longer in the mean than in their fastest order (at most 8 %). Examples, in microseconds:

                           tiles        down m    groups of 8    groups of 4    along n
    833 x 2000 x 3056      8 x 16                                         20         26
    768 x 1536 x 7168     12 x 11           29             25             25         38
    2183 x 20416 x 2560   14 x 107         303            306            314        375
    7054 x 29888 x 448    56 x 234         270            288            307        315
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from math import log2, prod
from typing import NamedTuple

import numpy as np

from tilescope.arithmetic import ceil_div
from tilescope.planner.gemm_plan import tile_grid
from tilescope.planner.gemm_rates import H200_RATES, GemmRates, transfer_us
from tilescope.planner.gemm_schedule import PLAIN, Schedule, clusters
from tilescope.planner.product import Product, Tile

_SETS = 8  # of blocks that share what they fetch: as many as an H200 has GPCs
_GROUPS = (4, 8, 2, 16, 1)  # tiles along m, or clusters, that are taken together, beside all
_NEAR = 1.02  # times the fewest bytes: the first of the groups above is taken
_COUNTED_ROUNDS = 2  # of the card: later rounds fetch as much
_L2_SHARE_HELD = 0.4  # of the L2: up to this much is still there when it is needed again; of twice that, nothing
_C_WEIGHT = 2.0  # of bytes of C in what the L2 holds, by those of operands: fitted
_FETCHED_WEIGHT = 0.25  # of the time of the L2, by that of memory: fitted
_SECTOR_BYTES = 32  # that the L2 writes together
_FARTHEST = 64  # tiles between two neighbours along n: more of them cost no more


class Fetches(NamedTuple):
    """How often a set of blocks fetches the rows of A of a tile, and those of B."""

    a: float
    b: float


def count_operand_bytes(product: Product, tile: Tile, group: int) -> float:
    """Operand bytes from memory: A once for every group, and B again for every group, unless the L2 holds what is shared.

    Where one round takes all tiles, their blocks go through k together: every operand comes once.
    """
    m, n, k = product.shape
    row_bytes = k * product.data_type.bits / 8
    tiles_m, tiles_n = tile_grid(product.shape, tile)
    sms = product.sms or 1
    if tiles_m * tiles_n <= sms:
        return (m + n) * row_bytes
    tiles_down = min(group or tiles_m, tiles_m)
    columns_at_once = max(1, sms // tiles_down)
    rows = tiles_down * tile[0]
    c_bytes = rows * product.c_shape[1] * product.output_type.bits / 8 * _C_WEIGHT  # of a group
    a_again = _missed_share(
        product, (rows + columns_at_once * tile[1]) * row_bytes + c_bytes * columns_at_once / tiles_n
    )
    b_again = _missed_share(product, (rows + n) * row_bytes + c_bytes)
    a_times = 1 + (ceil_div(tiles_n, columns_at_once) - 1) * a_again
    groups_at_once = max(1, sms // (tiles_down * tiles_n))
    b_times = 1 + (ceil_div(tiles_m, tiles_down * groups_at_once) - 1) * b_again
    return (m * a_times + n * b_times) * row_bytes


def _missed_share(product: Product, bytes_between: float) -> float:
    """What the L2 no longer holds of data, if so many bytes pass through it before they are needed again."""
    l2_bytes = product.card.l2_bytes if product.card is not None else None
    held_bytes = (l2_bytes or 0) * _L2_SHARE_HELD
    return min(1.0, max(0.0, bytes_between / held_bytes - 1)) if held_bytes else 1.0


def count_fetched_bytes(product: Product, tile: Tile, schedule: Schedule) -> float:
    """Operand bytes that the sets of blocks fetch from the L2.

    >>> from tilescope.planner import plan_gemm
    >>> product = plan_gemm(833, 2000, 3056, "bf16").product
    >>> [round(count_fetched_bytes(product, (112, 128, 64), Schedule(group=group)) / 1e6) for group in (4, 1)]
    [51, 104]
    """
    grid = schedule.cluster_grid(tile_grid(product.shape, tile))
    group = min(max(1, schedule.group // schedule.multicast[0]), grid[0]) if schedule.group else grid[0]
    groups = _list_groups(grid[0])
    counted = groups if group in groups else (group,)
    fetches = _count_fetches(grid, counted, _count_cluster_blocks(schedule), product.sms or 1)
    return _fetched_bytes(product, tile, schedule, fetches)[counted.index(group)]


def count_stored_bytes(product: Product, tile: Tile, schedule: Schedule, rates: GemmRates = H200_RATES) -> float:
    """Bytes of C that memory writes, and those that the edges between tiles along n cost.

    At an edge within a sector of 32 bytes, two blocks write a part of the sector each, in every row. The more tiles are taken
    between the two, the more this costs.

    >>> from tilescope.planner import plan_gemm
    >>> product = plan_gemm(8192, 12296, 64, "bf16").product
    >>> [round(count_stored_bytes(product, (128, 128, 64), Schedule(group=group)) / 1e6) for group in (1, 0)]
    [259, 372]
    """
    c_bytes = prod(product.c_shape) * product.output_type.bits / 8
    grid = schedule.cluster_grid(tile_grid(product.shape, tile))
    down = min(max(1, schedule.group // schedule.multicast[0]), grid[0]) if schedule.group else grid[0]
    is_torn = product.c_shape[1] * product.output_type.bits // 8 % _SECTOR_BYTES > 0
    apart = log2(min(down, _FARTHEST))
    edge_bytes = rates.apart_bytes * apart
    inner_bytes = 0.0  # at an edge within a cluster
    if is_torn:
        edge_bytes = rates.torn_bytes + rates.torn_apart_bytes * apart
        inner_bytes = rates.torn_bytes * rates.inner_share
    inner_edges = grid[1] * (schedule.multicast[1] - 1)
    return c_bytes + product.shape[0] * ((grid[1] - 1) * edge_bytes + inner_edges * inner_bytes)


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
    times_us = []
    for group, shared_bytes in zip(groups, _fetched_bytes(product, tile, schedule, fetches), strict=True):
        ordered = replace(schedule, group=group * along_m)
        memory_bytes = count_operand_bytes(product, tile, ordered.group) + count_stored_bytes(product, tile, ordered)
        memory_bytes *= product.batch.count
        l2_us = transfer_us(shared_bytes, H200_RATES.shared_l2_gb_per_s)
        times_us.append(_FETCHED_WEIGHT * l2_us + transfer_us(memory_bytes, H200_RATES.memory_gb_per_s))
    limit_us = _NEAR * min(times_us)
    group = next(group for group, us in zip(groups, times_us, strict=True) if us <= limit_us)
    return 0 if group == grid[0] else group * along_m


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
    """The groups that are compared: fewer tiles than there are along m, and all.

    >>> _list_groups(5)
    (4, 2, 1, 5)
    """
    return (*(group for group in _GROUPS if group < tiles_m), tiles_m)


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
    group = np.array(groups, np.int64)[:, None]  # millions of tiles along m, times those along n
    first_m = place // (group * tiles_n) * group
    along_n, along_m = np.divmod(place - first_m * tiles_n, np.minimum(group, tiles_m - first_m))
    sets = len(groups) * (int(block_set[-1]) // _SETS + 1) * _SETS
    row = block_set + np.arange(0, sets, sets // len(groups), dtype=np.int32)[:, None]
    fetches_a = np.zeros((sets, min(tiles_m, counted)), bool)  # the first n tiles lie in the first n rows and columns
    fetches_b = np.zeros((sets, min(tiles_n, counted)), bool)
    fetches_a[row, first_m + along_m] = True
    fetches_b[row, along_n] = True
    scale = tiles_m * tiles_n / counted
    counts = [np.count_nonzero(each.reshape(len(groups), -1), axis=1) for each in (fetches_a, fetches_b)]
    return tuple(Fetches(a * scale, b * scale) for a, b in zip(*(each.tolist() for each in counts), strict=True))
