"""Which tile of C a block should compute: the shapes worth trying, what they cost, and their order.

The floor of a tile is the longest of four times, none of which a kernel with these tiles undercuts:

    arithmetic            whole rounds of the card, a tile for every SM a round, at the card's highest FLOP/s for the type
    shared-memory reads   the operands of those rounds, 128 bytes a cycle. By descriptor every instruction reads its own: with
                          64 rows of A and 8 of B, 32 bytes a row, m64n8k16 takes 18 cycles, not the 4 of its sums. Lanes
                          (ldmatrix) read every row of the tile at least once
    loads of one SM       the operand bytes of the SM with the most tiles, at one SM's rate for rows of that width, or once
                          the bytes in flight (stages x bytes of a stage) in the time that a copy takes
    memory                A, B and C moved once, at the rate that the bytes in flight on every SM reach

A time whose rate the card's row does not have is left out. Shapes whose predicted time is within 0.25 % of the shortest, or
without a prediction whose floor is within a tenth of the lowest, are compared by the operand bytes that the busiest SM
fetches, then by the tensor-core instructions of one K step; then the one with fewer rows comes first. So large matrices get
large tiles, and where there is little work all SMs get some.

4096 x 4096 x 4096 bf16 on an H200:
    tile           tiles   rounds   floor      busiest SM
    128 x 256        512        4   132.4 us   4 x (128 + 256) x 4096 x 2 bytes = 12.6 MB    2 wgmma a K step
    256 x 128        512        4   132.4 us   the same                                      4 wgmma
    128 x 128       1024        8   132.4 us   16.8 MB
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

from tilescope.arithmetic import ceil_div
from tilescope.card import REQUEST_BYTES, Card
from tilescope.mma.readable_tile import Extents
from tilescope.planner.gemm_correction import predict_on_card
from tilescope.planner.gemm_plan import tile_grid
from tilescope.planner.gemm_rates import transfer_us
from tilescope.planner.gemm_schedule import Schedule, clusters
from tilescope.planner.gemm_time import raised_to
from tilescope.planner.planned_scales import has_whole_atoms
from tilescope.planner.plans import Plan
from tilescope.planner.problem import Operand
from tilescope.planner.product import Product, Tile
from tilescope.planner.ranked_tile import FloorTerm, RankedTile
from tilescope.planner.reason import Reason
from tilescope.sentence import in_mb

TILE_M = (64, 128, 256)
TILE_N = (8, 16, 32, 64, 96, 128, 192, 256)
WIDE_TILES = (160, 224)  # additional columns: some fill the last round if the usual ones leave SMs idle
# elements: half the registers of an SM, so that two warpgroups keep as many for everything else; or half of
# tensor memory, so that the next tile starts while this one is stored
LARGEST_ACCUMULATOR = 128 * 256
_PAIR_COLUMNS = 32  # of a pair's tiles: whole atoms of 8 rows of B, and of 16 columns of sums, for each block
K_TILE_BYTES = 128  # bytes of k per tile: one 128B span
_NEAR_FLOOR_RATIO = 1.1  # floors this close count as equal …
NEAR_TIME_RATIO = 1.0025  # … and predicted times this close
_SHARING_COST = 0.25  # of a shape's bytes, for every further block that shares k


def tile_shapes(
    product: Product, is_readable: Callable[[Operand, tuple[int, int]], bool], rows_known: tuple[int, ...]
) -> list[Tile]:
    """The shapes worth trying: no accumulators beyond half the room, and no extent twice as large as its matrix.

    The smallest extent that the consumer reads is never too large: mxf4 has 128 rows at least, however few A has.
    """
    tile_k = K_TILE_BYTES * 8 // product.operand_type.smem_bits

    def worth_trying(matrix: Operand, known: tuple[int, ...], extent: int) -> list[int]:
        fitting = [size for size in known if has_whole_atoms(product, size, of_columns=matrix == "B")]
        smallest = next((size for size in fitting if is_readable(matrix, (size, tile_k))), fitting[0])
        return [size for size in known if size <= smallest or size < 2 * extent]

    m, n, _ = product.shape
    rows = worth_trying("A", rows_known, m)
    columns = worth_trying("B", _columns_known(product), n)
    return [
        (down, across, tile_k)
        for down in rows
        for across in columns
        if down * across <= LARGEST_ACCUMULATOR
        and has_whole_atoms(product, down)
        and has_whole_atoms(product, across, of_columns=True)
    ]


def pair_shapes(product: Product) -> list[Tile]:
    """The tiles of a pair worth trying: 256 rows, which every kind of tcgen05 takes in a pair, and columns in steps of 32.

    >>> from tilescope.arch import Arch
    >>> from tilescope.data_type import DataType
    >>> bf16 = DataType.named("bf16")
    >>> product = Product((512, 100, 64), bf16, bf16, Arch.named("sm_100"), None, "tcgen05", "K", "K", 148)
    >>> pair_shapes(product)
    [(256, 32, 64), (256, 64, 64), (256, 96, 64), (256, 128, 64), (256, 160, 64), (256, 192, 64)]
    """
    m, n, _ = product.shape
    if m < TILE_M[-1]:  # one block has all rows, or most of them
        return []
    tile_k = K_TILE_BYTES * 8 // product.operand_type.smem_bits
    columns = [
        across
        for across in _columns_known(product)
        if across % _PAIR_COLUMNS == 0 and (across == _PAIR_COLUMNS or across < 2 * n)
    ]
    return [(TILE_M[-1], across, tile_k) for across in columns if has_whole_atoms(product, across, of_columns=True)]


def _columns_known(product: Product) -> tuple[int, ...]:
    """The columns of tiles worth trying: accumulators in tensor memory leave registers free for odd ones."""
    return tuple(sorted((*TILE_N, *WIDE_TILES))) if product.in_tensor_memory else TILE_N


def weigh_tile(
    product: Product, tile: Tile, schedule: Schedule, operands: tuple[Plan, Plan] | None, stages: int
) -> RankedTile:
    """What a shape costs, before it is compared with others.

    `operands` are the plans of A and B; None: rows of 128 bytes, and as much in flight as helps.
    """
    m, n, k = product.shape
    grid = tile_grid(product.shape, tile)
    tiles = prod(grid) * product.batch.count
    at_once = max(
        1, clusters(product.sms or 1, prod(schedule.cluster))
    )  # in a round every SM, or cluster, takes its tiles
    rounds = ceil_div(
        prod(schedule.cluster_grid(grid)) * product.batch.count, at_once
    )  # in the last one, possibly fewer
    k_of_a_block = min(k, schedule.k_tiles(k, tile[2]) * tile[2])
    k_of_all_rounds = rounds * k_of_a_block
    if schedule.tail > 1:  # the tiles of the last round are shared
        k_of_all_rounds -= k - min(k, ceil_div(schedule.k_tiles(k, tile[2]), schedule.tail) * tile[2])
    row_bytes = k_of_all_rounds * product.data_type.bits // 8
    group = schedule.cta_group
    b_sharers, a_sharers = schedule.multicast
    fetched = _Fetched(
        min(m, tile[0]) * row_bytes // (group * a_sharers), min(n, tile[1]) * row_bytes // (group * b_sharers)
    )
    sums = schedule.sums(tile)
    instructions = _instructions(product, sums)
    terms = _floor_terms(
        product, _Share(sums, k_of_all_rounds, group), fetched, _loads(product, fetched, operands, stages)
    )
    return RankedTile(
        tile=tile,
        schedule=schedule,
        prediction=raised_to(predict_on_card(product, tile, schedule, stages), terms, product.card),
        stages=stages,
        tiles=tiles,
        rounds=None if product.sms is None else rounds,
        terms=terms,
        busiest_bytes=sum(fetched),
        instructions=instructions.along_m * instructions.along_n,
        behind=Reason.of("first"),
    )


class _Fetched(NamedTuple):
    """Operand bytes of the SM with the most tiles; rows beyond the matrix are filled, not fetched."""

    a_bytes: int
    b_bytes: int


class _LoadRates(NamedTuple):
    """Rates of loads: of the whole card, and of one SM where that was measured."""

    memory_gb_per_s: float
    sm_gb_per_s: float | None


def _loads(product: Product, fetched: _Fetched, operands: tuple[Plan, Plan] | None, stages: int) -> _LoadRates | None:
    """The rates of loads in the card's row; None without a card."""
    card = product.card
    if card is None:
        return None
    if not product.by_tma or card.tma is None:
        return _LoadRates(float(card.memory_gb_per_s), None)
    if operands is None:
        in_flight = None
        enough = card.tma.enough_in_flight_bytes
        widths = [REQUEST_BYTES, REQUEST_BYTES]
    else:
        in_flight = stages * sum(plan.transaction_bytes for plan in operands)
        enough = max(1, min(in_flight, sum(fetched)))  # not more than the whole
        widths = [plan.gmem_request_bytes for plan in operands]
    took_ns = 0.0
    for part_bytes, width in zip(fetched, widths, strict=True):
        took_ns += part_bytes / card.tma.one_sm(width, enough)
    return _LoadRates(
        memory_gb_per_s=card.tma.load(REQUEST_BYTES, in_flight_bytes=in_flight),
        sm_gb_per_s=sum(fetched) / took_ns,
    )


class _Share(NamedTuple):
    """The work of the busiest SM: a tile in every round, and a part of k of each tile."""

    tile: Tile  # as its tensor core sees it
    k: int  # elements of k of all its tiles
    cta_group: int  # blocks that multiply together: each reads its part of the columns


def _floor_terms(product: Product, share: _Share, fetched: _Fetched, loads: _LoadRates | None) -> tuple[FloorTerm, ...]:
    """The times that no kernel with this tile undercuts by the card's rates, the longest first."""
    card = product.card
    if card is None or loads is None:
        return ()
    m, n, k = product.shape
    tile_m, tile_n, _ = share.tile
    element = product.operand_type
    terms = []
    tflops = product.peak_tflops
    if tflops is not None:
        flop = 2 * tile_m * tile_n * share.k * card.sms
        basis = card.basis(element.name) or "documented"
        terms.append(FloorTerm("arithmetic", flop / tflops / 1e6, tflops, "TFLOP/s", basis))
    if card.smem_gb_per_s is not None:
        read_bytes = _rows_read(product, share) * (share.k * element.smem_bits // 8)
        terms.append(_transfer("shared-memory reads", read_bytes, card.smem_gb_per_s, card, "smem_gb_per_s"))
    if loads.sm_gb_per_s is not None:
        terms.append(_transfer("loads of one SM", sum(fetched), loads.sm_gb_per_s, card, "tma"))
    moved_bytes = (m + n) * k * product.operand_bits / 8 + prod(product.c_shape) * product.output_type.bits / 8
    moved_bytes *= product.batch.count
    terms.append(_transfer("memory", moved_bytes, loads.memory_gb_per_s, card, "memory_gb_per_s"))
    return tuple(sorted(terms, key=lambda term: -term.us))


def _transfer(name: str, moved_bytes: float, gb_per_s: float, card: Card, cell: str) -> FloorTerm:
    """The time that bytes take at a rate; `cell` is the rate's place in the card's row."""
    return FloorTerm(name, transfer_us(moved_bytes, gb_per_s), gb_per_s, "GB/s", card.basis(cell) or "documented")


class _Instructions(NamedTuple):
    """Instructions of one K step along m and along n, and the rows of A and B that one of them takes."""

    along_m: int
    along_n: int
    rows: int


def _instructions(product: Product, tile: Tile) -> _Instructions:
    """The instructions of one K step of a tile."""
    m, n, _ = tile
    loop = product.tensor_core.loop
    if loop is None:
        forms = [(row.m, row.n[0]) for row in product.mma_forms]
    else:
        extents = _extents(product)
        forms = [(_block(m, extents.m), _block(n, extents.n))]
    counts = [_Instructions(ceil_div(m, form_m), ceil_div(n, form_n), form_m + form_n) for form_m, form_n in forms]
    return min(counts, key=lambda count: count.along_m * count.along_n)


def _extents(product: Product) -> Extents:
    """The m and n of the instruction that reads by descriptor."""
    loop = product.tensor_core.loop
    assert loop is not None
    return loop.extents(product.operand_type)


def _rows_read(product: Product, share: _Share) -> int:
    """Rows of A and B that a K step reads of one SM's shared memory: by descriptor every instruction its own, lanes every row once.

    The blocks of a pair read half of the columns each, for both.
    """
    tile = share.tile
    if not product.tensor_core.reads_by_descriptor:
        return tile[0] + tile[1]
    instructions = _instructions(product, tile)
    columns = _block(tile[1], _extents(product).n) if share.cta_group > 1 else 0
    rows = instructions.rows - columns + columns // share.cta_group
    return instructions.along_m * instructions.along_n * rows


def _block(extent: int, known: tuple[int, ...]) -> int:
    """What one instruction takes of an extent: the most that divides it."""
    return max((size for size in known if extent % size == 0), default=known[0])


def time_us(tile: RankedTile) -> float:
    """The predicted time if it was fitted to measurements; else the floor; 0 where neither is known."""
    if tile.prediction is not None and _is_timed(tile):
        return tile.prediction.us
    return tile.floor_us or 0.0


def _is_timed(tile: RankedTile) -> bool:
    """Whether its time decides, and not its floor."""
    return tile.prediction is not None and tile.prediction.fitted


def rank(tile: RankedTile, lowest_us: float) -> tuple[float, float, int]:
    """The sort key of shapes: predicted time, or floor; the bytes of the busiest SM; instructions.

    `lowest_us` is the lowest time, or floor, of all: near ones count as equal. Bytes count a quarter more for every
    further block that shares k, since blocks that share wait for each other.
    """
    near = NEAR_TIME_RATIO if _is_timed(tile) else _NEAR_FLOOR_RATIO
    counted_bytes = tile.busiest_bytes * (1 + _SHARING_COST * (tile.schedule.blocks_of_a_tile - 1))
    if _is_timed(tile):  # of equal times, one without clusters
        counted_bytes *= prod(tile.schedule.cluster)
    return max(time_us(tile), near * lowest_us), counted_bytes, tile.instructions


def behind(tile: RankedTile, best: RankedTile, lowest_us: float) -> Reason:
    """The first term in which a shape is behind the best."""
    tile_rank = rank(tile, lowest_us)
    best_rank = rank(best, lowest_us)
    if tile_rank[0] > best_rank[0]:
        named = "behind-time" if _is_timed(tile) else "behind-floor"
        return Reason.of(named, here=time_us(tile), there=lowest_us)
    here = tile.busiest_bytes
    there = best.busiest_bytes
    if tile_rank[1] > best_rank[1] and here <= there:
        in_a_cluster = prod(tile.schedule.cluster)
        if in_a_cluster > prod(best.schedule.cluster):
            return Reason.of("behind-cluster", blocks=in_a_cluster)
        return Reason.of("behind-sharing", blocks=tile.schedule.blocks_of_a_tile)
    if here > there:
        return Reason.of(_behind_in_bytes(tile, best), here=here, there=there)
    if tile.instructions > best.instructions:
        return Reason.of("behind-instructions", here=tile.instructions, there=best.instructions)
    return Reason.of("behind-order")


def _behind_in_bytes(tile: RankedTile, best: RankedTile) -> str:
    """The reason that tells the bytes apart: in megabytes where those differ."""
    if tile.rounds is None:
        return "behind-all-bytes"
    if in_mb(tile.busiest_bytes) == in_mb(best.busiest_bytes):
        return "behind-few-bytes"
    return "behind-bytes"
