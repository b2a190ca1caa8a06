"""How blocks can share the tiles of a product that wgmma multiplies.

one tile after another       the last round perhaps shared by several blocks
multicast                    the blocks of a cluster fetch an operand for each other
ping-pong                    two warpgroups take tiles in turn
k split                      over the blocks of a cluster, or over clusters, while SMs would be idle
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import NamedTuple

from tilescope.arithmetic import ceil_div
from tilescope.planner.gemm_plan import tile_grid
from tilescope.planner.gemm_schedule import (
    COLUMN_GROUP,
    LARGEST_PARTS,
    LARGEST_SHARING,
    LARGEST_SPLIT,
    MOST_SUMS,
    PLAIN,
    Schedule,
    clusters,
)
from tilescope.planner.product import Product, Tile
from tilescope.planner.tile_groups import choose_group

FEWEST_K_TILES = 3  # of a block that shares k
_MOST_SHARED_PARTS = 4  # of k, whose blocks also share an operand
# Columns of a tile that warpgroups take in turn: of 30 wider ones, 27 were slower than another kernel.
_WIDEST_TURNED = 192
_FEWEST_TURNED = 64 * 128  # sums of a tile that warpgroups take in turn …
# … and its K steps: of longer tiles the epilogue is too small a part for the smaller tile to pay
_MOST_TURNED_K_TILES = 32
_EXPERT_TAIL = 4  # blocks that share a tile of the last round, at most: how many tiles there are is known at the launch


def list_schedules(product: Product, tile: Tile, *, swapped: bool) -> Iterator[Schedule]:
    """How blocks can share a tile: one tile after another, the last round shared, or k split while SMs would be idle."""
    k_tiles = ceil_div(product.shape[2], tile[2])
    group = 0 if product.batch.rows == "masked" else choose_group(product, tile)
    plain = Schedule(swapped=swapped, group=group)
    yield plain
    if product.batch.is_of_experts:  # how many tiles there are is known at the launch
        if k_tiles >= FEWEST_K_TILES * _EXPERT_TAIL:
            yield replace(plain, tail=_EXPERT_TAIL)
        return
    yield from _share_last_round(product, tile, plain)
    yield from _take_turns(product, tile, plain)
    for multicast in _list_clusters(product, tile):
        shared = _in_order(product, tile, replace(plain, multicast=multicast))
        yield shared
        yield from _share_last_round(product, tile, shared)
        yield from _take_turns(product, tile, shared)
        yield from _share_k(product, tile, shared)
    tiles = prod(tile_grid(product.shape, tile)) * product.batch.count
    sms = product.sms or 1
    if tiles > sms:
        return
    for split in (1, 2, 4, LARGEST_SPLIT):
        most = min(clusters(sms, split) // tiles, LARGEST_PARTS)
        ordered = _in_order(product, tile, replace(plain, split=split))
        for parts in sorted({1, 2, 3, (most + 1) // 2, most}):
            shared_by = split * parts
            if 1 <= parts <= most and shared_by > 1 and k_tiles >= FEWEST_K_TILES * shared_by:
                yield replace(ordered, parts=parts)


def _in_order(product: Product, tile: Tile, schedule: Schedule) -> Schedule:
    """The schedule with the order of tiles in which its clusters fetch least."""
    return replace(schedule, group=choose_group(product, tile, schedule))


class _Rounds(NamedTuple):
    """How often the card's blocks, or clusters, take their tiles."""

    taken: int  # by blocks, or clusters
    at_once: int

    @classmethod
    def of(cls, product: Product, tile: Tile, schedule: Schedule) -> _Rounds:
        """Those of a schedule."""
        grid = schedule.cluster_grid(tile_grid(product.shape, tile))
        return cls(prod(grid) * product.batch.count, max(1, clusters(product.sms or 1, prod(schedule.cluster))))


def _share_last_round(product: Product, tile: Tile, schedule: Schedule) -> Iterator[Schedule]:
    """The tiles of a last round that would leave SMs idle are shared by 2 blocks, or by as many as there are."""
    k_tiles = ceil_div(product.shape[2], tile[2])
    rounds = _Rounds.of(product, tile, schedule)
    remainder = rounds.taken % rounds.at_once
    if rounds.taken <= rounds.at_once or not remainder:
        return
    for tail in {2, min(rounds.at_once // remainder, k_tiles // 4)}:
        if 1 < tail <= rounds.at_once // remainder and k_tiles >= FEWEST_K_TILES * tail:
            yield replace(schedule, tail=tail)


def _share_k(product: Product, tile: Tile, schedule: Schedule) -> Iterator[Schedule]:
    """Clusters that share an operand, and k."""
    k_tiles = ceil_div(product.shape[2], tile[2])
    rounds = _Rounds.of(product, tile, schedule)
    most = min(rounds.at_once // rounds.taken, k_tiles // FEWEST_K_TILES, _MOST_SHARED_PARTS)
    for parts in range(2, most + 1):
        yield replace(schedule, parts=parts)


def _take_turns(product: Product, tile: Tile, schedule: Schedule) -> Iterator[Schedule]:
    """Warpgroups that take tiles in turn, where a block has several short ones and one warpgroup has registers for a tile.

    On an H200 none of them was the fastest kernel of a product with k beyond 2048, fused epilogues among them. Sums that are promoted
    are not offered: the tensor core waits for one warpgroup's additions, where two would alternate.
    """
    rows, columns, _ = schedule.sums(tile)
    rounds = _Rounds.of(product, tile, schedule)
    is_short = schedule.k_tiles(product.shape[2], tile[2]) <= _MOST_TURNED_K_TILES
    several = rounds.taken > rounds.at_once and is_short and not product.is_promoted
    if several and columns <= _WIDEST_TURNED and _FEWEST_TURNED <= rows * columns <= MOST_SUMS:
        yield replace(schedule, ping_pong=True)


def _list_clusters(product: Product, tile: Tile) -> Iterator[tuple[int, int]]:
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
            if tiles >= blocks and is_whole and (blocks == 2 or _runs_at_once(product, tile, multicast)):
                yield multicast


def _runs_at_once(product: Product, tile: Tile, multicast: tuple[int, int]) -> bool:
    """Whether the card runs all clusters of a sharing in one round."""
    rounds = _Rounds.of(product, tile, replace(PLAIN, multicast=multicast))
    return rounds.taken <= rounds.at_once
