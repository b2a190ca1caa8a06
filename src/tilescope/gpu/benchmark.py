"""Measuring what tilescope chooses between: TMA by box, promotion, bytes in flight, busy SMs; and the planner's order.

bench(["loads"])  ──▶ Benchmark: rates in GB/s, table after table, beside plain copies of the same run
bench(["plans"])  ──▶ the same with a PlanOrder: predicted against measured, over tiles drawn by a seed
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from tilescope.arch import Arch
from tilescope.card import ROW_BYTES, Card, free_path, save_card
from tilescope.gpu.isolation import card_in_children
from tilescope.gpu.plan_order import PlanOrder, plan_order
from tilescope.gpu.streaming import LEAST_BYTES, MATRIX_BYTES, matrix_dims, rates, spread, stream
from tilescope.gpu.suite import Case
from tilescope.rule import rule
from tilescope.smem.op import WARP_LANES
from tilescope.swizzle import SMEM_LINE_BYTES, Swizzle
from tilescope.tensor_map import TensorMap
from tilescope.value import Value
from tilescope.view.drawing import Drawing
from tilescope.view.parts import Part, Table

SAVED_TOPICS = rule(
    "bench-save",
    "A card is saved from the topics loads and stores.",
    source="tilescope bench --save-card; it measures a card, so no example runs",
)
Progress = Callable[[str, int, int], None]  # topic, measurements done, measurements in all
_SWIZZLE_OF_ROW: dict[int, Any] = {128: "128B", 64: "64B", 32: "32B", 16: "none"}
_PROMOTIONS = ("none", "64B", "128B", "256B")
_MANY_SMS = 64  # from here on the whole matrix is moved
_SMALL_BOXES = 32  # of a tile, 64 bytes by 8 rows each
_ISSUING = f"loads, {_SMALL_BOXES} boxes of 8 rows by 64 bytes a tile, issuing warps"
_BAR = 32  # characters of the fastest rate
_MISSES_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate(Value):
    """One measurement."""

    table: str
    setting: str
    gb_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark(Value):
    """What a run of `tilescope bench` measured."""

    card: str
    arch: str
    driver: str
    cuda: str
    date: str  # UTC
    sms: int
    clock_mhz: int  # the highest of the SMs
    memory_clock_mhz: int
    l2_bytes: int
    seed: int
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
    if save_as is not None and free_path(save_as) and (absent := {"loads", "stores"} - set(chosen)):
        fix = f"Use {' '.join([*chosen, *sorted(absent)])}."
        raise SAVED_TOPICS.error("topics", " ".join(chosen), "loads and stores are what a card holds", fix)
    measured: list[Rate] = []
    order, weighed_by = None, None
    with card_in_children() as here:
        facts = here.facts

        def measure(topic: str, cases: Sequence[Case]) -> Iterator[float]:
            for number, rate in enumerate(rates(here, cases), 1):
                if progress is not None:
                    progress(topic, number, len(cases))
                yield rate

        for topic in chosen:
            if topic == "plans":
                where = {"arch": facts["arch"]} if card is None else {"card": card}
                order = plan_order(measure, tiles, seed, **where)
                standing = Card.of_arch(Arch.named(facts["arch"])) if card is None else Card.named(card)
                weighed_by = None if standing is None else standing.name
            else:
                settings = SETTINGS[topic](facts["sms"])
                speeds = measure(topic, [case for _, _, case in settings])
                measured += [
                    Rate(table=table, setting=setting, gb_per_s=round(speed, 1))
                    for (table, setting, _), speed in zip(settings, speeds, strict=True)
                ]
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    made = Benchmark(**facts, date=date, seed=seed, rates=tuple(measured), plan_order=order, weighed_by=weighed_by)
    return made if save_as is None else replace(made, saved=str(save_card(save_as, card_cells(made))))


Setting = tuple[str, str, Case]  # table, setting, what is measured


def boxes_of(
    row_bytes: int,
    box_rows: int,
    tile_rows: int = 64,
    *,
    tiles: int = 0,
    tile_row_bytes: int = 128,
    l2_promotion: Any = "128B",
    **options: Any,
) -> Case:
    """Tiles of `tile_rows` rows of `tile_row_bytes` in boxes of `row_bytes` by `box_rows`, 16-bit elements.

    `tiles` of them are in flight on every SM; where it is 0, `options` hold stages and streams.
    """
    columns, box, swizzle = tile_row_bytes // 2, (row_bytes // 2, box_rows), _SWIZZLE_OF_ROW[row_bytes]
    busy = min(options.get("sms") or _MANY_SMS, _MANY_SMS)
    x, y = matrix_dims((columns, tile_rows), 2, max(LEAST_BYTES, MATRIX_BYTES * busy // _MANY_SMS))
    tensor_map = TensorMap("bf16", (x, y), (2 * x,), box, swizzle=swizzle, l2_promotion=l2_promotion, address=1 << 30)
    places = [
        (column, row, (column // box[0] * tile_rows + row) * row_bytes)
        for column in range(0, columns, box[0])
        for row in range(0, tile_rows, box_rows)
    ]
    options = {"stage_bytes": tile_row_bytes * tile_rows, **(spread(tiles) if tiles else {}), **options}
    return stream(tensor_map, places, (columns, tile_rows), **options)


def _rows_of(width: int) -> str:
    return f"rows of {width} bytes"


def _loads(sms: int) -> list[Setting]:
    """96 KiB in flight on every SM, unless that is what varies."""
    settings = [
        (f"loads, L2 promotion {promotion}", _rows_of(width), boxes_of(width, 64, tiles=12, l2_promotion=promotion))
        for promotion in _PROMOTIONS
        for width in ROW_BYTES
    ]
    settings += [
        (
            f"loads, boxes of {rows} rows",
            _rows_of(width),
            boxes_of(width, rows, max(rows, 64), tiles=768 // max(rows, 64)),
        )
        for rows in (256, 128, 64, 32, 16, 8)
        for width in ROW_BYTES
    ]
    settings += [
        ("loads, bytes in flight on every SM", f"{8 * tiles} KiB", boxes_of(128, 64, tiles=tiles))
        for tiles in (1, 2, 4, 6, 8, 12, 16)
    ]
    settings += [
        (f"loads, busy SMs, {_rows_of(width)}", f"{busy}", boxes_of(width, 64, tiles=24, sms=busy))
        for width in ROW_BYTES
        for busy in (*(count for count in (1, 2, 4, 8, 16, 32, 64) if count < sms), sms)
    ]
    # What issuing costs, and that it bounds nothing above: from some number of warps on, more do not help.
    settings += [
        (_ISSUING, f"{warps}", boxes_of(64, 8, tile_row_bytes=256, stages=6, issuers=warps))
        for warps in (1, 2, 4, 8, 16)
    ]
    settings += [
        (
            "loads, tiles of 2 KiB, issuing warps",
            f"{warps}",
            boxes_of(128, 16, 16, streams=warps, stages=min(32, 48 // warps)),
        )
        for warps in (1, 2, 4, 8)
    ]
    return settings


def _stores(_sms: int) -> list[Setting]:
    settings = [
        ("stores", _rows_of(width), boxes_of(width, 64, tiles=8, direction="store", blocks_per_sm=2))
        for width in ROW_BYTES
    ]
    return settings + [
        ("stores, stages of one warp", f"{stages}", boxes_of(128, 64, direction="store", stages=stages))
        for stages in (1, 2, 4, 8)
    ]


def _plain(_sms: int) -> list[Setting]:
    return [
        ("plain kernels", "copy, read and written", {"plain": "plain_copy"}),
        ("plain kernels", "read", {"plain": "plain_read"}),
    ]


def _smem(_sms: int) -> list[Setting]:
    """Reads down the rows of a tile of 128-byte rows, as they lie and swizzled."""
    table = "shared memory of one SM, reads down the rows of a tile"
    settings: list[Setting] = []
    for op in ("ld.b32", "ld.b128", "ldmatrix.x4"):
        for swizzle in ("none", "128B"):
            lanes = [int(Swizzle.named(swizzle).apply(lane * SMEM_LINE_BYTES)) for lane in range(WARP_LANES)]
            case = {"op": op, "lanes": lanes, "active": (1 << WARP_LANES) - 1}
            settings.append((table, f"{op}, swizzle {swizzle}", case))
    return settings


SETTINGS: dict[str, Callable[[int], list[Setting]]]
SETTINGS = {"plain": _plain, "loads": _loads, "stores": _stores, "smem": _smem}
TOPICS = (*SETTINGS, "plans")


def card_cells(made: Benchmark) -> Mapping[str, Any]:
    """A benchmark of loads and stores as the cells of a card (see card.py)."""

    def by_row(table: str, setting: str = "rows of {} bytes") -> dict[int, int]:
        return {width: round(made.rate(table.format(width), setting.format(width))) for width in ROW_BYTES}

    loads = {promotion: by_row(f"loads, L2 promotion {promotion}") for promotion in _PROMOTIONS}
    few = made.rate("loads, bytes in flight on every SM", "8 KiB")  # one box of 64 rows: latency alone
    issuers = {"one thread": "1", "four warps": "4"}
    names = ("card", "arch", "sms", "clock_mhz", "l2_bytes")
    return {
        **{name: getattr(made, name) for name in names},
        "memory_gb_per_s": max(rate for row in loads.values() for rate in row.values()),
        "tma": {
            "sms": made.sms,
            "loads": loads,
            "stores": by_row("stores"),
            "sm_loads": by_row("loads, busy SMs, rows of {} bytes", "1"),
            "latency_us": round(made.sms * 8192 / few / 1e3, 3),
            "issue_ns": {who: round(made.sms * 64 * 8 / made.rate(_ISSUING, warps)) for who, warps in issuers.items()},
        },
        "source": f"measured by tilescope bench on {made.card}, driver {made.driver}, CUDA {made.cuda}, {made.date}",
    }


def draw_benchmark(benchmark: Benchmark) -> Drawing:
    """What `tilescope bench` prints: a table for everything that was varied; all bars share their scale."""
    fastest = max((rate.gb_per_s for rate in benchmark.rates), default=1.0)
    parts: list[Part] = []
    for table, group in groupby(benchmark.rates, lambda rate: rate.table):
        rows = tuple((rate.setting, f"{rate.gb_per_s:.0f}", _bar(rate.gb_per_s / fastest)) for rate in group)
        parts.append(Table(rows, ("setting", "GB/s", ""), title=table, align="lrl"))
    if (order := benchmark.plan_order) is not None:
        scores = (
            ("first choice within 3 % of the fastest", f"{order.first_choice_good} of {order.tiles} tiles"),
            ("pairs that differ by 5 %, in the planner's order", f"{order.pairs_in_order} of {order.pairs}"),
            ("predicted rate within 10 % of the measured", f"{order.predicted_good} of {order.predicted} candidates"),
        )
        parts.append(Table(scores, title="the planner's order against the measured one"))
        parts += [f"Missed: {miss}." for miss in order.misses[:_MISSES_SHOWN]]
        if (more := len(order.misses) - _MISSES_SHOWN) > 0:
            parts.append(f"And {more} more; --json has all of them.")
    if benchmark.saved is not None:
        parts.append(f"Saved as a card: {benchmark.saved}.")
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
