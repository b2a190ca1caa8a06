"""The shapes of tiles that wgmma multiplies.

rows       64, 128, 192 or 256: blocks of 64 for one or two warpgroups
columns    8 to 256, what one instruction takes; usual widths, and those that fill whole rounds of the card
k          one span of 128 bytes; of small tiles also two
"""

from __future__ import annotations

from collections.abc import Iterator

from tilescope.arithmetic import ceil_div, rounded_up
from tilescope.planner.block_scales import lies_in_one_block
from tilescope.planner.gemm_request import IsReadable
from tilescope.planner.gemm_schedule import COLUMN_GROUP
from tilescope.planner.gemm_tiles import K_TILE_BYTES, TILE_N, WIDE_TILES
from tilescope.planner.product import Product, Tile
from tilescope.planner.schedule_choices import FEWEST_K_TILES
from tilescope.planner.wgmma_sums import most_sums, share_rows

_WGMMA_ROWS = (64, 128, 192, 256)  # of tiles
_FITTED_TILES = 4  # columns are also cut into equal tiles, at most this many …
_FITTED_ROUNDS = 4  # … and into as many as fill one round of the card, or more rounds, at most this many
_FEWEST_FITTED = 40  # columns of such tiles at least: of narrow ones, all that differ by 8 are slow
_LARGEST_COLUMNS = 256  # of one wgmma
_K_SPANS = (1, 2)  # of a K tile: two halve the steps to issue …
_EXPERT_ROWS = 128  # of a tile, where experts have as many: smaller tiles fetch the weights of an expert more often
# of a tile, where registers hold them: over 7 draws of rows, 128 x 128 took 4 % longer than 128 x 256
_EXPERT_SUMS = 128 * 256
_SHARED_ROWS = 16  # of a tile that two blocks fetch: each a whole number of the swizzle's 8
_WIDE_STAGES = 6  # … and were faster on an H200 where this many stages of them fit, slower where fewer do


def list_wgmma_tiles(product: Product, swapped: bool, is_readable: IsReadable) -> Iterator[Tile]:
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
        for columns in _list_widths(product, ceil_div(rows_extent, rows), columns_extent):
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
            for tile_k in _list_tile_ks(product, span_k, rows, columns):
                yield (columns, rows, tile_k) if swapped else (rows, columns, tile_k)


def _list_widths(product: Product, row_tiles: int, columns_extent: int) -> list[int]:
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


def _list_tile_ks(product: Product, span_k: int, rows: int, columns: int) -> Iterator[int]:
    """The k of a tile: a span; of small tiles also two, where k has several such steps and sums need no promotion."""
    slice_bytes = rows * K_TILE_BYTES
    for spans in _K_SPANS:
        tile_k = spans * span_k
        stages_bytes = _WIDE_STAGES * (rows + columns) * spans * K_TILE_BYTES
        fits = stages_bytes + slice_bytes < product.arch.smem_per_block_bytes
        if spans == 1 or (fits and not product.is_promoted and product.shape[2] >= FEWEST_K_TILES * tile_k):
            yield tile_k
