"""The time of a GEMM from documented rates, for tensor cores whose kernels were not measured.

That is tcgen05, and mma where a card has nothing faster. Arithmetic, shared memory and memory are known; launch, L2 and power
are not, and are left out. The prediction is labelled so.
"""

from __future__ import annotations

from math import prod

from tilescope.arithmetic import ceil_div
from tilescope.mma.consumer import consumers_of
from tilescope.mma.tmem_address import TMEM_LANES
from tilescope.planner.gemm_plan import tile_grid
from tilescope.planner.gemm_rates import transfer_us
from tilescope.planner.gemm_schedule import Schedule, clusters
from tilescope.planner.mma_warps import share_among_warps
from tilescope.planner.product import Product, Tile
from tilescope.planner.ranked_tile import Prediction
from tilescope.planner.tile_groups import count_operand_bytes


def multiplies_by_lanes(product: Product) -> bool:
    """Whether it is multiplied by mma on an architecture whose datasheets' rates are those of mma."""
    return product.consumer == consumers_of(product.arch)[0] == "ldmatrix"


def predict_by_documents(product: Product, tile: Tile, schedule: Schedule) -> Prediction | None:
    """The time by the documented rates of a card; what they do not know (launch, L2, power) is left out.

    A tile is stored while the next one is multiplied, with a second accumulator or by TMA, so only the stores of the
    last round are added.
    """
    card = product.card
    tflops = product.peak_tflops
    if card is None or tflops is None or product.sms is None:
        return None
    rows, columns, _ = schedule.sums(tile)
    grid = schedule.cluster_grid(tile_grid(product.shape, tile))
    in_a_cluster = prod(schedule.cluster)
    at_once = max(1, clusters(product.sms, in_a_cluster))
    taken = prod(grid) * product.batch.count
    rounds = ceil_div(taken, at_once)
    k = schedule.k_tiles(product.shape[2], tile[2]) * tile[2]
    c_bytes = product.output_type.bits / 8
    m, n, _ = product.shape
    operand_bytes = (m + n) * product.shape[2] * product.operand_bits / 8  # once: how much the L2 holds is not known
    if card.l2_bytes is not None:
        operand_bytes = (
            count_operand_bytes(product, tile, schedule.group) * product.operand_bits / product.data_type.bits
        )
    moved_bytes = (operand_bytes + m * n * c_bytes) * product.batch.count
    bounds = {
        "steps": rounds * 2.0 * rows * columns * k * card.sms / tflops / 1e6,
        "memory": transfer_us(moved_bytes, card.memory_gb_per_s),
    }
    if card.smem_gb_per_s is not None:
        read_rows = _rows_read(product, tile, schedule)
        read_bytes = rounds * read_rows * k * product.operand_type.smem_bits // 8
        bounds["shared memory"] = transfer_us(read_bytes, card.smem_gb_per_s)
    bound = max(bounds, key=lambda name: bounds[name])
    last_blocks = (taken - (rounds - 1) * at_once) * in_a_cluster
    return Prediction(
        launch_us=0,
        main_us=bounds[bound],
        bound=bound,
        bounds_us=tuple(bounds.items()),
        epilogue_us=transfer_us(last_blocks * rows * columns * c_bytes, card.memory_gb_per_s),
        adding_us=0,
        basis="documented",
        fitted=False,
    )


def _rows_read(product: Product, tile: Tile, schedule: Schedule) -> int:
    """Rows of A and B that one K step of a block reads from shared memory.

    Every instruction of tcgen05 reads its own; of a pair's columns each block reads half. Of warps that multiply by mma, each
    reads the rows and the columns of its part.
    """
    rows, columns, _ = schedule.sums(tile)
    if product.in_tensor_memory:
        return ceil_div(rows, TMEM_LANES) * (min(rows, TMEM_LANES) + columns // schedule.cta_group)
    down, across = share_among_warps(tile)
    return rows * max(1, across) + columns * max(1, down)
