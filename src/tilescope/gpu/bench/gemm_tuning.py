"""`tilescope bench gemm --tune SHAPE`: the ranked alternatives of a plan, each timed on the card, and which of them is best.

plan_gemm ranks up to 16 kernels by predicted time     all of them take turns on the same inputs, cuBLAS beside them
--save-card NAME                                       their times are kept: plan_gemm(…, card=NAME) ranks by them
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields, replace

from tilescope.card import Card, add_timed_gemms, card_called, describe_card, free_path, saved_card
from tilescope.card.timed_gemms import TimedGemm
from tilescope.errors import DeviceError
from tilescope.gpu.bench.gemm_benchmark import (
    REPLAYS,
    Asked,
    GemmBenchmark,
    GemmTime,
    kernel_words,
    measured_on_card,
    plan_asked,
)
from tilescope.gpu.bench.gemm_timing import Contender, GemmTiming, Loaded, cubin
from tilescope.gpu.driver.isolation import Progress
from tilescope.planner import GemmPlan, plan_gemm
from tilescope.planner.gemm_correction import MODEL, name_kernel, name_product
from tilescope.planner.gemm_time import predict_time
from tilescope.planner.ranked_tile import RankedTile

NO_RATES = (
    "{card} has no measured TMA rates in tilescope's table, so nothing is predicted that times could correct. "
    "Measure them first: tilescope bench loads stores --save-card {name}."
)


def tune_gemm(
    products: Sequence[Asked],
    *,
    seed: int = 1,
    card: str | None = None,
    save_as: str | None = None,
    progress: Progress | None = None,
) -> GemmBenchmark:
    """Time every ranked alternative of the products; `save_as` keeps the times in the user's own card of that name."""
    if save_as is not None:
        free_path(save_as)
    planned: list[GemmPlan] = []

    def measure(timing: GemmTiming) -> Iterator[GemmTime]:
        if save_as is not None and saved_card(save_as) is None:
            _require_rates(timing.device.facts["card"], save_as)
        for number, product in enumerate(products, 1):
            plans = alternatives(plan_asked(product, card))
            planned.extend(plans)
            yield from _times(timing, plans, seed)
            if progress is not None:
                progress("tune", number, len(products))

    benchmark = replace(measured_on_card(measure, seed), is_tuned=True)
    if save_as is None:
        return benchmark
    if saved_card(save_as) is None:
        card_row = _require_rates(benchmark.card, save_as)
        describe_card(save_as, card_row, benchmark.card)
    timed = [
        timed_gemm(plan, time.ours_us, benchmark.date) for plan, time in zip(planned, benchmark.times, strict=True)
    ]
    return replace(benchmark, saved=str(add_timed_gemms(save_as, timed)))


def _require_rates(driver_name: str, save_as: str) -> Card:
    """The card of the table that the driver names, with rates that a prediction needs."""
    card_row = card_called(driver_name)
    if card_row is None or card_row.tma is None:
        raise DeviceError(NO_RATES.format(card=driver_name, name=save_as))
    return card_row


def alternatives(plan: GemmPlan) -> list[GemmPlan]:
    """The plans of a product's ranked kernels, in their order.

    >>> [each.tile for each in alternatives(plan_gemm(16, 4096, 4096, "bf16"))][0]
    (16, 64, 128)
    """
    return [_plan_again(plan, ranked) for ranked in plan.ranked]


def _plan_again(plan: GemmPlan, ranked: RankedTile) -> GemmPlan:
    product = plan.product
    options = {field.name: getattr(ranked.schedule, field.name) for field in fields(ranked.schedule)}
    return plan_gemm(
        *product.shape,
        product.data_type,
        output_type=product.output_type,
        card=product.card,
        scales="block128" if product.block_scales else product.scales,
        tile=ranked.tile,
        stages=ranked.stages,
        sms=product.sms,
        **options,
    )


def _times(timing: GemmTiming, plans: list[GemmPlan], seed: int) -> Iterator[GemmTime]:
    """All alternatives of a product, and cuBLAS, on the same matrices."""
    with ProcessPoolExecutor() as executor:
        images = list(executor.map(cubin, plans))
    loaded = [Loaded(timing, plan, image) for plan, image in zip(plans, images, strict=True)]
    matrices = loaded[0].with_scales(timing.matrices(plans[0], seed=seed))
    contenders = [Contender(str(number), kernel) for number, kernel in enumerate(loaded)]
    took = timing.microseconds([*contenders, *timing.cublas(matrices[0])], matrices, replays=REPLAYS)
    for kernel in loaded:
        kernel.unload()
    timing.device.free()
    for number, plan in enumerate(plans):
        yield GemmTime(
            shape=plan.shape,
            data_type=plan.data_type,
            kernel=kernel_words(plan),
            ours_us=took[str(number)],
            predicted_us=plan.predicted_us,
            gemm_ex_us=took.get("cublasGemmEx"),
            lt_us=took.get("cublasLt"),
        )


def timed_gemm(plan: GemmPlan, us: float, date: str) -> TimedGemm:
    """A measured time, and the time predicted without corrections."""
    prediction = predict_time(plan.product, plan.tile, plan.schedule, plan.stages)
    assert prediction is not None
    return TimedGemm(
        product=name_product(plan.product),
        kernel=name_kernel(plan.tile, plan.schedule),
        us=round(us, 3),
        predicted_us=round(prediction.us, 3),
        bound=prediction.bound,
        date=date,
        model=MODEL,
    )
