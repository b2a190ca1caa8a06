"""Measuring what tilescope chooses between: TMA by box, promotion, bytes in flight, busy SMs; and the planner's order.

bench(["loads"])  ──▶ Benchmark: rates in GB/s, table after table, beside plain copies of the same run
bench(["plans"])  ──▶ the same with a PlanOrder: predicted against measured, over tiles drawn by a seed

`bench_settings` lists what is varied, `plan_order` draws the tiles.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

from tilescope.arch import Arch
from tilescope.card import ROW_BYTES, Card, free_path, save_card
from tilescope.errors import DeviceError
from tilescope.gpu.bench import stream_timing
from tilescope.gpu.bench.bench_settings import ISSUING, PROMOTIONS, SETTINGS, rows_of
from tilescope.gpu.bench.plan_order import PlanOrder, Where, plan_order
from tilescope.gpu.driver.isolation import CardInChildren, MeasuredOnCard, Progress, card_in_children
from tilescope.gpu.verify.suites import Case
from tilescope.questions.first_line import FirstLine, make_line
from tilescope.rule import rule
from tilescope.value import Value
from tilescope.view.drawing import Drawing
from tilescope.view.drawing_parts import Part
from tilescope.view.table import Table

SAVED_TOPICS = rule(
    "bench-save",
    "A saved card needs the topics loads and stores.",
    argument="topics",
    found="{chosen: }",
    limit="loads and stores are what a card holds",
    fix="Use {needed: }.",
    source="tilescope bench --save-card; it measures a card, so no example runs",
)
_BATCH = 100  # measurements that travel together
_BAR = 32  # characters of the fastest rate
_MISSES_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate(Value):
    """One measurement."""

    table: str
    setting: str
    gb_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark(MeasuredOnCard):
    """What a run of `tilescope bench` measured."""

    rates: tuple[Rate, ...]
    plan_order: PlanOrder | None = None
    weighed_by: str | None = None  # the card whose rates the planner used
    saved: str | None = None  # the file of the card that was saved

    def rate(self, table: str, setting: str) -> float:
        """One rate, by its table and setting."""
        return next(rate.gb_per_s for rate in self.rates if (rate.table, rate.setting) == (table, setting))


def bench(
    topics: Iterable[str] = (),
    *,
    tiles: int = 200,
    seed: int = 1,
    card: str | None = None,
    save_as: str | None = None,
    progress: Progress | None = None,
) -> Benchmark:
    """Measure topics (none: all) on the card of this machine; `tiles` are drawn by `seed` for the planner's order.

    `card` names whose rates the planner uses; `save_as` keeps what was measured as a card of that name.
    """
    chosen = list(topics) or list(TOPICS)
    if save_as is not None:
        free_path(save_as)
        absent = sorted({"loads", "stores"} - set(chosen))
        if absent:
            raise SAVED_TOPICS.error(chosen=chosen, needed=[*chosen, *absent])
    measured: list[Rate] = []
    order = None
    weighed_by = None
    with card_in_children() as here:
        measure = partial(rates, here, progress=progress)
        for topic in chosen:
            if topic == "plans":
                arch = Arch.named(here.facts["arch"])
                weighed_by = Card.of_arch(arch) if card is None else Card.named(card)
                where = Where(arch=arch) if card is None else Where(card=weighed_by)
                order = plan_order(measure, tiles, seed, where)
            else:
                settings = SETTINGS[topic](here.facts["sms"])
                speeds = measure(topic, [setting.case for setting in settings])
                for setting, speed in zip(settings, speeds, strict=True):
                    measured.append(Rate(table=setting.table, setting=setting.name, gb_per_s=round(speed, 1)))
    benchmark = Benchmark(
        **here.facts,
        seed=seed,
        rates=tuple(measured),
        plan_order=order,
        weighed_by=None if weighed_by is None else weighed_by.name,
    )
    if save_as is None:
        return benchmark
    return replace(benchmark, saved=str(save_card(save_as, card_cells(benchmark))))


def rates(
    card: CardInChildren, topic: str, cases: Sequence[Case], *, progress: Progress | None = None
) -> Iterator[float]:
    """The GB/s of every case on the card."""
    card.compile(stream_timing.KERNELS)
    outcomes = card.outcomes(stream_timing.NAME, cases, together=_BATCH)
    for number, (case, outcome) in enumerate(zip(cases, outcomes, strict=True), 1):
        if not outcome.data:
            raise DeviceError(f"A measurement failed ({outcome.ended}): {case}.")
        if progress is not None:
            progress(topic, number, len(cases))
        yield case["bytes"] / struct.unpack("<d", outcome.data)[0] / 1e9


TOPICS = (*SETTINGS, "plans")


def card_cells(made: Benchmark) -> dict[str, object]:
    """A benchmark of loads and stores as the cells of a card (see card/saved.py)."""

    def by_row(table: str) -> dict[int, int]:
        return {width: round(made.rate(table, rows_of(width))) for width in ROW_BYTES}

    def issue_ns(warps: int) -> int:
        """Of a box of 8 rows by 64 bytes, on every SM."""
        return round(made.sms * 64 * 8 / made.rate(ISSUING, f"{warps}"))

    loads = {promotion: by_row(f"loads, L2 promotion {promotion}") for promotion in PROMOTIONS}
    few = made.rate("loads, bytes in flight on every SM", "8 KiB")  # one box of 64 rows: only latency
    return {
        "card": made.card,
        "arch": made.arch,
        "sms": made.sms,
        "clock_mhz": made.clock_mhz,
        "l2_bytes": made.l2_bytes,
        "memory_gb_per_s": max(rate for row in loads.values() for rate in row.values()),
        "tma": {
            "sms": made.sms,
            "loads": loads,
            "stores": by_row("stores"),
            "sm_loads": {width: round(made.rate(f"loads, busy SMs, {rows_of(width)}", "1")) for width in ROW_BYTES},
            "latency_us": round(made.sms * 8192 / few / 1e3, 3),
            "issue_ns": {"one thread": issue_ns(warps=1), "four warps": issue_ns(warps=4)},
        },
        "source": f"measured by tilescope bench on {made.card}, {made.software}",
    }


def benchmark_line(benchmark: Benchmark) -> FirstLine:
    """The fastest rate that was measured."""
    fastest = max(benchmark.rates, key=lambda rate: rate.gb_per_s, default=None)
    order = benchmark.plan_order
    return make_line(
        "{card}[[: at most {rate} GB/s ({table}, {setting})]][[; the planner's first choice was good for {good} of {tiles} "
        "tiles]].",
        card=benchmark.card,
        rate="" if fastest is None else f"{fastest.gb_per_s:.0f}",
        table="" if fastest is None else fastest.table,
        setting="" if fastest is None else fastest.setting,
        good="" if order is None else str(order.first_choice_good),
        tiles="" if order is None else order.tiles,
    )


def draw_benchmark(benchmark: Benchmark) -> Drawing:
    """The output of `tilescope bench`: a table for every varied setting; all bars share their scale."""
    fastest = max((rate.gb_per_s for rate in benchmark.rates), default=1.0)
    parts: list[Part] = []
    for table, group in groupby(benchmark.rates, lambda rate: rate.table):
        rows = tuple((rate.setting, f"{rate.gb_per_s:.0f}", _bar(rate.gb_per_s / fastest)) for rate in group)
        parts.append(Table(rows, ("setting", "GB/s", ""), title=table, align="lrl"))
    order = benchmark.plan_order
    if order is not None:
        scores = (
            ("first choice within 3 % of the fastest", f"{order.first_choice_good} of {order.tiles} tiles"),
            ("pairs that differ by 5 %, in the planner's order", f"{order.pairs_in_order} of {order.pairs}"),
            ("predicted rate within 10 % of the measured", f"{order.predicted_good} of {order.predicted} candidates"),
        )
        parts.append(Table(scores, title="the planner's order against the measured one"))
        parts += [f"Missed: {miss}." for miss in order.misses[:_MISSES_SHOWN]]
        more = len(order.misses) - _MISSES_SHOWN
        if more > 0:
            parts.append(f"And {more} more; --json has all of them.")
    if benchmark.saved is not None:
        parts.append(f"Saved as a card: {benchmark.saved}.")
    clocks = f"{benchmark.clock_mhz} MHz at most, memory {benchmark.memory_clock_mhz} MHz"
    return Drawing(f"{benchmark.card}, {benchmark.sms} SMs, {clocks}, {benchmark.software}", {"parts": tuple(parts)})


def _bar(share: float) -> str:
    """A bar in eighths of a character."""
    eighths = round(share * _BAR * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
