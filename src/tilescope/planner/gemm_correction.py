"""Predicted times of GEMMs, corrected by what was timed on the card: the times that the search ranks by.

Cards of the table have no corrections. One of the user's own has those that `bench gemm --tune SHAPE --save-card NAME` kept, and they
count where the card is named: plan_gemm(…, card=NAME).
"""

from __future__ import annotations

from dataclasses import replace
from zlib import crc32

from tilescope.planner.block_scales import NAME as BLOCK_SCALES
from tilescope.planner.gemm_rates import H200_RATES
from tilescope.planner.gemm_schedule import Schedule, schedule_words
from tilescope.planner.gemm_time import predict_time
from tilescope.planner.product import Product, Tile
from tilescope.planner.ranked_tile import Prediction

MODEL = f"{crc32(repr(H200_RATES).encode()):08x}"  # a name for what predicts: its rates


def predict_on_card(product: Product, tile: Tile, schedule: Schedule, stages: int = 0) -> Prediction | None:
    """The time of a product with a tile and a schedule, as it was measured or corrected; None where it cannot be predicted."""
    prediction = predict_time(product, tile, schedule, stages)
    if prediction is None or product.card is None or product.card.timed_gemms is None:
        return prediction
    correction = product.card.timed_gemms.correct(
        name_product(product), name_kernel(tile, schedule), prediction.us, prediction.bound, MODEL
    )
    if correction is None:
        return prediction
    ratio = correction.ratio
    return replace(
        prediction,
        launch_us=prediction.launch_us * ratio,
        main_us=prediction.main_us * ratio,
        epilogue_us=prediction.epilogue_us * ratio,
        adding_us=prediction.adding_us * ratio,
        timed_kernels=correction.kernels,
        timed_on=correction.date,
        basis="measured",
    )


def name_product(product: Product) -> str:
    """A product in one line, with everything except the card that its kernels' times depend on.

    >>> from tilescope.planner import plan_gemm
    >>> name_product(plan_gemm(64, 256, 256, "e4m3", batch=2, epilogue="bias").product)
    '64x256x256 e4m3 to bf16, KK, batch of 2, bias'
    """
    shape = "x".join(map(str, product.shape))
    words = [f"{shape} {product.data_type.ptx} to {product.output_type.ptx}", f"{product.a_major}{product.b_major}"]
    if product.block_scales:
        words.append(BLOCK_SCALES)
    if product.batch.count > 1 or product.batch.is_of_experts:
        words.append(str(product.batch))
    if not product.fused.is_plain:
        words.append(str(product.fused))
    return ", ".join(words)


def name_kernel(tile: Tile, schedule: Schedule) -> str:
    """A tile and how its blocks share the work.

    >>> name_kernel((16, 64, 128), Schedule(swapped=True, split=2))
    '16x64x128, swapped, split 2'
    """
    words = schedule_words(schedule)
    return "x".join(map(str, tile)) + (f", {words}" if words else "")
