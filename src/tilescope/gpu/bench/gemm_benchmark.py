"""`tilescope bench gemm`: emitted GEMMs and cuBLAS, in one process, on inputs that exceed the L2.

ours      the plan's kernel, as `emit` writes it
cuBLAS    cublasGemmEx, and of the algorithms that cublasLt's heuristic names the fastest; 64 MB of workspace
ratio     the faster of the two cuBLAS times / ours: above 1, ours is faster
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from math import exp, log
from pathlib import Path
from typing import NamedTuple

from tilescope.card import Card
from tilescope.data_type import DataType
from tilescope.errors import DeviceError
from tilescope.gpu.bench.gemm_timing import Contender, GemmTiming, Loaded, cubin
from tilescope.gpu.driver.device import CudaError, Device
from tilescope.gpu.driver.isolation import MeasuredOnCard, Progress
from tilescope.gpu.driver.nvrtc import compile_kernels
from tilescope.planner import GemmPlan, plan_gemm
from tilescope.planner.block_scales import NAME as BLOCK_SCALES
from tilescope.planner.gemm_schedule import schedule_words
from tilescope.questions.first_line import FirstLine, make_line
from tilescope.sentence import by
from tilescope.value import Value, row_field
from tilescope.view.drawing import Drawing
from tilescope.view.drawing_parts import Part
from tilescope.view.table import Table

REPLAYS = 15
_LOW_BATCH_ROWS = 128  # m of a product that is bound by its weights
_BAR = 20  # characters of a ratio of 1
_BATCHES = (1, 8, 16, 32, 64, 128, 256, 512)
_WEIGHTS = ((4096, 4096), (8192, 8192), (4096, 14336), (28672, 4096))
_OTHERS = ((2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192), (128, 128, 65536), (4096, 11008, 4096))
_FP8_BATCHES = (16, 128, 512)  # of every pair of n and k, also in e4m3

Shape = tuple[int, int, int]


class Asked(NamedTuple):
    """A product to measure."""

    shape: Shape
    data_type: str
    scales: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmTime(Value):
    """One product: the plan, its measured and predicted time, and those of cuBLAS; microseconds."""

    shape: Shape
    data_type: DataType = row_field(DataType.named)
    kernel: str  # description of tile and schedule
    ours_us: float
    predicted_us: float | None
    gemm_ex_us: float | None  # None: cublasGemmEx does not take the type
    lt_us: float | None

    @property
    def cublas_us(self) -> float | None:
        """The faster of the two."""
        times = [time for time in (self.gemm_ex_us, self.lt_us) if time is not None]
        return min(times, default=None)

    @property
    def ratio(self) -> float | None:
        """How many times as fast ours is."""
        return None if self.cublas_us is None else self.cublas_us / self.ours_us

    @property
    def tflops(self) -> float:
        """10^12 operations a second."""
        m, n, k = self.shape
        return 2 * m * n * k / self.ours_us / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmBenchmark(MeasuredOnCard):
    """What a run of `tilescope bench gemm` measured."""

    cublas: str  # its version
    times: tuple[GemmTime, ...]
    is_tuned: bool = False  # whether the times are those of every alternative of a plan, in its order
    saved: str | None = None  # the file of the card that keeps them

    def mean_ratio(self, rows: Iterable[GemmTime]) -> float | None:
        """The geometric mean of the ratios."""
        ratios = [row.ratio for row in rows if row.ratio is not None]
        return exp(sum(map(log, ratios)) / len(ratios)) if ratios else None


def default_products() -> list[Asked]:
    """Low-batch products of four layers, square and deep ones; a third of the layers' also in e4m3."""
    layers = [(m, n, k) for n, k in _WEIGHTS for m in _BATCHES]
    products = [Asked(shape, "bf16") for shape in (*layers, *_OTHERS)]
    return products + [Asked(shape, "e4m3") for shape in layers if shape[0] in _FP8_BATCHES]


def bench_gemm(
    products: Sequence[Asked] = (),
    *,
    seed: int = 1,
    card: str | None = None,
    dependent: bool = False,
    progress: Progress | None = None,
) -> GemmBenchmark:
    """Measure products (none: the default table); `card` names whose rates the planner uses, `seed` draws the numbers.

    `dependent`: our kernels are launched while the ones before them run, as layers of a model would be.
    """
    requested = list(products) or default_products()
    planning = _Planning(card, dependent)
    return measured_on_card(lambda timing: _times(timing, requested, planning, seed, progress), seed)


def measured_on_card(measure: Callable[[GemmTiming], Iterable[GemmTime]], seed: int) -> GemmBenchmark:
    """What `measure` times on the card of this machine."""
    with tempfile.TemporaryDirectory() as folder:
        device = Device(Path(folder))
        (Path(folder) / "normal.cubin").write_bytes(compile_kernels("normal", f"{device.facts['arch']}a"))
        try:
            timing = GemmTiming(device)
            times = tuple(measure(timing))
        except CudaError as error:
            raise DeviceError(f"CUDA answered {error.args[0]} while products were measured.") from error
    return GemmBenchmark(
        **device.facts,
        date=datetime.now(UTC).date().isoformat(),
        seed=seed,
        cublas=timing.blas.version,
        times=times,
    )


class _Built(NamedTuple):
    """A plan and its kernel."""

    plan: GemmPlan
    image: bytes


class _Planning(NamedTuple):
    """How products are planned."""

    card: str | None
    dependent: bool


def plan_asked(product: Asked, card: str | None, *, dependent: bool = False) -> GemmPlan:
    """The plan of a product; `card` names whose rates the planner uses."""
    whose = None if card is None else Card.named(card)
    return plan_gemm(*product.shape, product.data_type, scales=product.scales, card=whose, dependent=dependent)


def _build(product: Asked, planning: _Planning) -> _Built:
    plan = plan_asked(product, planning.card, dependent=planning.dependent)
    return _Built(plan, cubin(plan))


def _times(
    timing: GemmTiming, asked: Sequence[Asked], planning: _Planning, seed: int, progress: Progress | None
) -> list[GemmTime]:
    times = []
    with ProcessPoolExecutor() as executor:
        built = executor.map(_build, asked, [planning] * len(asked))
        for number, build in enumerate(built, 1):
            times.append(_time(timing, build, seed))
            if progress is not None:
                progress("gemm", number, len(asked))
    return times


def _time(timing: GemmTiming, built: _Built, seed: int) -> GemmTime:
    """One product: all contenders on the same matrices."""
    plan = built.plan
    loaded = Loaded(timing, plan, built.image)
    matrices = loaded.with_scales(timing.matrices(plan, seed=seed))
    contenders = [Contender("ours", loaded), *timing.cublas(matrices[0])]
    took = timing.microseconds(contenders, matrices, replays=REPLAYS)
    loaded.unload()
    timing.device.free()
    return GemmTime(
        shape=plan.shape,
        data_type=plan.data_type,
        kernel=kernel_words(plan),
        ours_us=took["ours"],
        predicted_us=plan.predicted_us,
        gemm_ex_us=took.get("cublasGemmEx"),
        lt_us=took.get("cublasLt"),
    )


def kernel_words(plan: GemmPlan) -> str:
    """The tile of a plan and how its blocks share the work.

    >>> kernel_words(plan_gemm(8, 4096, 14336, "bf16"))
    '8 x 64, swapped, parts 2'
    """
    words = [by(plan.tile[:2]), schedule_words(plan.schedule), f"scales {BLOCK_SCALES}" if plan.block_scales else ""]
    return ", ".join(filter(None, words))


def saved_text(benchmark: GemmBenchmark) -> str:
    """The numbers as JSON."""
    return json.dumps(benchmark.to_dict(), indent=1) + "\n"


def gemm_benchmark_line(benchmark: GemmBenchmark) -> FirstLine:
    """The geometric mean of all ratios, and the worst; of alternatives, which one is best."""
    if benchmark.is_tuned:
        return _tuned_line(benchmark)
    rated = [row for row in benchmark.times if row.ratio is not None]
    worst = min(rated, key=lambda row: row.ratio or 0.0, default=None)
    mean = benchmark.mean_ratio(rated)
    return make_line(
        "{card}[[: {mean} times as fast as cuBLAS over {products:product}]][[, at worst {worst} at {shape}]].",
        card=benchmark.card,
        mean="" if mean is None else f"{mean:.2f}",
        products=len(rated),
        worst="" if worst is None else f"{worst.ratio:.2f}",
        shape="" if worst is None else by(worst.shape),
    )


def by_product(times: Sequence[GemmTime]) -> list[list[GemmTime]]:
    """The alternatives of one product after another, in the planner's order."""
    return [list(rows) for _, rows in groupby(times, key=lambda time: (time.shape, time.data_type.name))]


def _tuned_line(benchmark: GemmBenchmark) -> FirstLine:
    """The fastest kernel of the first product, and what the planner's choice takes."""
    tuned = by_product(benchmark.times)
    chosen = tuned[0][0]
    best = min(tuned[0], key=lambda time: time.ours_us)
    return make_line(
        "{shape}: {best} is best of {kernels:kernel}, {us} us[[; the planner's choice, {chosen}, takes {chosen_us} us]]"
        "[[; {more:product} more below]].",
        shape=by(best.shape),
        best=best.kernel,
        kernels=len(tuned[0]),
        us=f"{best.ours_us:.1f}",
        chosen=None if best is chosen else chosen.kernel,
        chosen_us=None if best is chosen else f"{chosen.ours_us:.1f}",
        more=len(tuned) - 1 or None,
    )


def _draw_tuning(benchmark: GemmBenchmark) -> list[Part]:
    """A table for every product: its kernels, the fastest first, with their places in the planner's order."""
    parts: list[Part] = []
    for rows in by_product(benchmark.times):
        fastest = sorted(enumerate(rows, 1), key=lambda row: row[1].ours_us)
        records = [{"ranked": place} | _record(time) for place, time in fastest]
        parts.append(Table.of(records, f"{by(rows[0].shape)} {rows[0].data_type.name}, microseconds", "rllrrrrrlr"))
    if benchmark.saved is not None:
        parts.append(f"Kept in {benchmark.saved}: plans for the card of that name are ranked by these times.")
    return parts


def draw_gemm_benchmark(benchmark: GemmBenchmark) -> Drawing:
    """A table for every type: times, rates, ratios as bars, predictions; and the means."""
    title = f"{benchmark.card}, {benchmark.sms} SMs, cuBLAS {benchmark.cublas}, {benchmark.software}"
    if benchmark.is_tuned:
        return Drawing(title, {"parts": tuple(_draw_tuning(benchmark))})
    parts: list[Part] = []
    for name in dict.fromkeys(row.data_type.name for row in benchmark.times):
        rows = [row for row in benchmark.times if row.data_type.name == name]
        parts.append(Table.of(map(_record, rows), f"{name}, microseconds", "llrrrrrlr"))
        parts += _means(benchmark, rows)
    return Drawing(title, {"parts": tuple(parts)})


def _record(row: GemmTime) -> dict[str, object]:
    def time(us: float | None) -> str | None:
        return None if us is None else f"{us:.1f}"

    ratio = row.ratio
    return {
        "m x n x k": by(row.shape),
        "kernel": row.kernel,
        "ours": time(row.ours_us),
        "TFLOP/s": f"{row.tflops:.0f}",
        "cublasGemmEx": time(row.gemm_ex_us),
        "cublasLt": time(row.lt_us),
        "ratio": None if ratio is None else f"{ratio:.2f}",
        "": None if ratio is None else "█" * round(ratio * _BAR),
        "predicted": time(row.predicted_us),
    }


def _means(benchmark: GemmBenchmark, rows: Sequence[GemmTime]) -> list[str]:
    low = [row for row in rows if row.shape[0] <= _LOW_BATCH_ROWS]
    others = [row for row in rows if row.shape[0] > _LOW_BATCH_ROWS]
    sentences = []
    for words, chosen in ((f"m up to {_LOW_BATCH_ROWS}", low), ("the others", others)):
        mean = benchmark.mean_ratio(chosen)
        if mean is not None:
            sentences.append(f"Geometric mean of the ratios, {words}: {mean:.3f}.")
    predicted = [row for row in rows if row.predicted_us is not None]
    near = [row for row in predicted if abs((row.predicted_us or 0) / row.ours_us - 1) <= 0.15]
    if predicted:
        sentences.append(f"Predicted within 15 %: {len(near)} of {len(predicted)}.")
    return sentences
