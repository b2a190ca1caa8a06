"""A benchmark drawn: a table with bars for each thing that was varied, and the planner's order in words."""

from __future__ import annotations

from itertools import groupby

from tilescope.gpu.benchmark import Benchmark
from tilescope.gpu.plan_order import PlanOrder
from tilescope.view.drawing import Drawing
from tilescope.view.parts import Paragraph, Part, Table

_BAR = 32  # characters of the fastest rate
_HEADINGS = ("setting", "GB/s", "")
_MISSES_SHOWN = 20


def draw_benchmark(benchmark: Benchmark) -> Drawing:
    """What `tilescope bench` prints; bars of one drawing share their scale."""
    fastest = max((rate.gb_per_s for rate in benchmark.rates), default=1.0)
    parts: list[Part] = []
    for table, rates in groupby(benchmark.rates, lambda rate: rate.table):
        rows = tuple((rate.setting, f"{rate.gb_per_s:.0f}", _bar(rate.gb_per_s / fastest)) for rate in rates)
        parts.append(Table(rows, _HEADINGS, title=table, align="lrl"))
    if benchmark.plan_order is not None:
        parts += _order(benchmark.plan_order)
    if benchmark.saved is not None:
        parts.append(Paragraph(f"Saved as a card: {benchmark.saved}."))
    clocks = f"{benchmark.clock_mhz} MHz at most, memory {benchmark.memory_clock_mhz} MHz"
    where = f"{benchmark.card}, {benchmark.sms} SMs, {clocks}, driver {benchmark.driver}"
    return Drawing(f"{where}, CUDA {benchmark.cuda}, {benchmark.date}", tuple(parts))


def _bar(share: float) -> str:
    """A bar in eighths of a character.

    >>> _bar(0.5)
    '████████████████'
    """
    eighths = round(share * _BAR * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _order(order: PlanOrder) -> list[Part]:
    rows = (
        ("first choice within 3 % of the fastest", f"{order.first_choice_good} of {order.tiles} tiles"),
        ("pairs that differ by 5 %, in the planner's order", f"{order.pairs_in_order} of {order.pairs}"),
        ("predicted rate within 10 % of the measured", f"{order.predicted_good} of {order.predicted} candidates"),
    )
    parts: list[Part] = [Table(rows, title="the planner's order against the measured one")]
    shown = order.misses[:_MISSES_SHOWN]
    parts += [Paragraph(f"Missed: {miss}.") for miss in shown]
    if len(order.misses) > len(shown):
        parts.append(Paragraph(f"And {len(order.misses) - len(shown)} more; --json has all of them."))
    return parts
