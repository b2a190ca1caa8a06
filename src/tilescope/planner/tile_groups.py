"""The order of the tiles of C, and how often memory delivers the operands in that order.

group 0    down m, one column of tiles after another      every row of A again for each column, unless the L2 holds A
group 4    4 tiles down m, then the next column           A comes once for a group, and B again for every group
group 1    along n
"""

from __future__ import annotations

from math import isqrt

from tilescope.arithmetic import ceil_div, rounded_up
from tilescope.planner.gemm_plan import tile_grid
from tilescope.planner.gemm_schedule import GROUPED_TILES
from tilescope.planner.product import Product, Tile

_NEIGHBOURS = 16  # SMs of a GPC
_FEW_ROUNDS = 2  # that take all tiles: which SM has which decides what its neighbours fetch with it
_L2_SHARE_HELD = 0.6  # of the L2: matrices that fit into it come from memory once


def count_operand_bytes(product: Product, tile: Tile, group: int) -> float:
    """Operand bytes from memory: A once for every group, and B again for every group, unless the L2 holds what is shared."""
    m, n, k = product.shape
    element = product.data_type.bits / 8
    tiles_m, tiles_n = tile_grid(product.shape, tile)
    rows = min(group or tiles_m, tiles_m)
    l2_bytes = product.card.l2_bytes if product.card is not None else None
    held_bytes = (l2_bytes or 0) * _L2_SHARE_HELD
    a_bytes = m * k * element
    b_bytes = n * k * element
    if a_bytes + b_bytes <= held_bytes:
        return a_bytes + b_bytes
    columns_at_once = max(1, (product.sms or 1) // rows)
    a_times = 1 if rows * tile[0] * k * element <= held_bytes else ceil_div(tiles_n, columns_at_once)
    b_times = 1 if b_bytes <= held_bytes else ceil_div(tiles_m, rows)
    return a_bytes * a_times + b_bytes * b_times


def choose_group(product: Product, tile: Tile) -> int:
    """Tiles along m that are taken together: all; 16, if fewer bytes come from memory then; or one: tiles go along n.

    Data that neighbouring SMs load together costs the L2 once. On an H200, tiles along n were up to 1.4 times as fast
    if they are fewer than along m (3251 x 576 x 11328, 26 x 5 tiles: 66 us instead of 96), and slower if they are more.
    """
    tiles_m, tiles_n = tile_grid(product.shape, tile)
    if tiles_m * tiles_n <= _FEW_ROUNDS * (product.sms or 1):
        return _group_near_square(tile, tiles_m)
    clearly_fewer = 2 * tiles_n < tiles_m or tile[1] <= tile[0]
    if 1 < tiles_n <= tiles_m and clearly_fewer:
        return 1
    if tiles_m <= GROUPED_TILES:
        return 0
    plain = count_operand_bytes(product, tile, 0)
    return GROUPED_TILES if count_operand_bytes(product, tile, GROUPED_TILES) < plain else 0


def _group_near_square(tile: Tile, tiles_m: int) -> int:
    """Tiles along m that are taken together where few rounds take all: 16 neighbours then fetch about as much of A as of B.

    On an H200 they were up to 1.5 times as fast as other orders: 768 x 1536 x 7168, 12 x 11 tiles of 64 x 144, took 25 us in
    groups of 4, 33 down m and 39 along n; 2932 x 576 x 8192, 14 x 9 tiles of 216 x 64, was 1.47 times as fast along n.

    >>> _group_near_square((64, 144, 64), 12), _group_near_square((64, 256, 64), 5), _group_near_square((216, 64, 64), 14)
    (4, 0, 2)
    """
    square = max(1, isqrt(_NEIGHBOURS * tile[1] // tile[0]))
    group = 1 << square.bit_length() - 1
    even = ceil_div(tiles_m, max(1, round(tiles_m / group)))  # no group of a few that are left
    if even > 1:
        even = rounded_up(even, 2)  # pairs of SMs share
    return even if even < tiles_m else 0
