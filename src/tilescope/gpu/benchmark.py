"""Measuring what tilescope chooses between: TMA by box, promotion, bytes in flight, busy SMs; and the planner's order.

bench(["loads"])  ──▶ Benchmark: rates in GB/s, table after table, beside plain copies of the same run
bench(["plans"])  ──▶ the same with a PlanOrder: predicted against measured, over tiles drawn by a seed

A tile is drawn with its type, majorness, consumer and the bytes that are in flight of it: two tiles at least, 24 to 96 KiB.
One block on each SM streams them, as in kernels/streams.cu. The planner weighs its candidates for that kernel.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, groupby
from typing import NamedTuple

import numpy as np

from tilescope.arch import WARP_LANES, Arch, ArchName
from tilescope.arithmetic import rounded_up
from tilescope.card import ROW_BYTES, Card, free_path, save_card
from tilescope.data_type import DataType
from tilescope.errors import DeviceError, RuleError
from tilescope.gpu import streaming
from tilescope.gpu.isolation import CardInChildren, MeasuredOnCard, Progress, card_in_children
from tilescope.gpu.streaming import (
    LEAST_BYTES,
    MATRIX_BYTES,
    MAX_BOXES,
    Box,
    Spread,
    issuing_warps,
    matrix_dims,
    spread,
    stream,
)
from tilescope.gpu.suites import Case
from tilescope.layout import Major
from tilescope.planner import Plan, plan, weighed_for
from tilescope.questions.first_lines import line
from tilescope.questions.question import FirstLine
from tilescope.rule import rule
from tilescope.sentence import by, counted
from tilescope.smem.op import SmemOp
from tilescope.swizzle import SMEM_LINE_BYTES, Swizzle, SwizzleName
from tilescope.tensor_map import TensorMap
from tilescope.tensor_map.option import L2PromotionName
from tilescope.value import Value
from tilescope.view.drawing import Drawing
from tilescope.view.parts import Part, Table

SAVED_TOPICS = rule(
    "bench-save",
    "A card is saved from the topics loads and stores.",
    argument="topics",
    found="{chosen: }",
    limit="loads and stores are what a card holds",
    fix="Use {needed: }.",
    source="tilescope bench --save-card; it measures a card, so no example runs",
)
_SWIZZLE_OF_ROW: dict[int, SwizzleName] = {128: "128B", 64: "64B", 32: "32B", 16: "none"}
_PROMOTIONS: tuple[L2PromotionName, ...] = ("none", "64B", "128B", "256B")
_BATCH = 100  # measurements that travel together
_MANY_SMS = 64  # from here on the whole matrix is moved
_ISSUING = "loads, 32 boxes of 8 rows by 64 bytes a tile, issuing warps"
_BAR = 32  # characters of the fastest rate
_MISSES_SHOWN = 20
_KIB = 1024
_WITHIN = 0.03  # of the fastest candidate: a good first choice
_PREDICTED_WITHIN = 0.10  # of the measured rate: a good prediction
_DIFFERING = 0.05  # of the faster: a pair whose order counts
_TYPES = ("bf16", "f16", "f32", "e4m3")
_MAJORS: tuple[Major, ...] = ("K", "MN")
_IN_FLIGHT_KIB = (24, 32, 48, 64, 96)  # on every SM
_FEWEST_TILES = 2  # in flight: one arrives while the other is read


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate(Value):
    """One measurement."""

    table: str
    setting: str
    gb_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOrder(Value):
    """The planner's order against the measured one."""

    tiles: int
    candidates: int
    first_choice_good: int  # tiles whose first choice is within 3 % of the fastest candidate
    pairs: int  # of candidates of one tile that differ by more than 5 %
    pairs_in_order: int
    predicted: int  # candidates for which the planner names a rate
    predicted_good: int  # of these, within 10 % of the measured rate
    misses: tuple[str, ...]  # in words, the tiles whose first choice is not good
    misjudged: tuple[str, ...]  # in words, the predictions that are not good


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
                if card is None:
                    standing = Card.of_arch(arch)
                    where = Where(arch=arch)
                else:
                    standing = Card.named(card)
                    where = Where(card=standing)
                order = plan_order(measure, tiles, seed, where)
                weighed_by = None if standing is None else standing.name
            else:
                settings = SETTINGS[topic](here.facts["sms"])
                speeds = measure(topic, [setting.case for setting in settings])
                measured += [
                    Rate(table=setting.table, setting=setting.name, gb_per_s=round(speed, 1))
                    for setting, speed in zip(settings, speeds, strict=True)
                ]
    made = Benchmark(**here.facts, seed=seed, rates=tuple(measured), plan_order=order, weighed_by=weighed_by)
    if save_as is None:
        return made
    return replace(made, saved=str(save_card(save_as, card_cells(made))))


def rates(
    card: CardInChildren, topic: str, cases: Sequence[Case], *, progress: Progress | None = None
) -> Iterator[float]:
    """The GB/s of every case on the card."""
    card.compile(streaming.KERNELS)
    outcomes = card.outcomes(streaming.NAME, cases, together=_BATCH)
    for number, (case, outcome) in enumerate(zip(cases, outcomes, strict=True), 1):
        if not outcome.data:
            raise DeviceError(f"A measurement failed ({outcome.ended}): {case}.")
        if progress is not None:
            progress(topic, number, len(cases))
        yield case["bytes"] / struct.unpack("<d", outcome.data)[0] / 1e9


class Setting(NamedTuple):
    """One thing that is measured: the table in which its rate stands, its row there, and the case."""

    table: str
    name: str
    case: Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Whose rates the planner uses: those of an architecture, or of a card."""

    arch: Arch | ArchName | None = None
    card: Card | None = None


def boxes_of(
    row_bytes: int,
    box_rows: int,
    tile_rows: int = 64,
    *,
    in_flight: Spread,
    tile_row_bytes: int = 128,
    l2_promotion: L2PromotionName = "128B",
    direction: str = "load",
    issuers: int | None = None,
    blocks_per_sm: int = 1,
    sms: int | None = None,
) -> Case:
    """Tiles of `tile_rows` rows of `tile_row_bytes` in boxes of `row_bytes` by `box_rows`, 16-bit elements.

    `in_flight` says how many tiles are in flight in every block; for the rest see `stream`.
    """
    columns = tile_row_bytes // 2
    box_columns = row_bytes // 2
    busy = min(sms or _MANY_SMS, _MANY_SMS)
    x, y = matrix_dims((columns, tile_rows), 2, max(LEAST_BYTES, MATRIX_BYTES * busy // _MANY_SMS))
    tensor_map = TensorMap(
        "bf16",
        (x, y),
        (2 * x,),
        (box_columns, box_rows),
        swizzle=_SWIZZLE_OF_ROW[row_bytes],
        l2_promotion=l2_promotion,
        address=1 << 30,
    )
    boxes = [
        Box(column, row, (column // box_columns * tile_rows + row) * row_bytes)
        for column in range(0, columns, box_columns)
        for row in range(0, tile_rows, box_rows)
    ]
    return stream(
        tensor_map,
        boxes,
        (columns, tile_rows),
        in_flight,
        stage_bytes=tile_row_bytes * tile_rows,
        direction=direction,
        issuers=issuers,
        blocks_per_sm=blocks_per_sm,
        sms=sms,
    )


def _rows_of(width: int) -> str:
    return f"rows of {width} bytes"


def _loads(sms: int) -> list[Setting]:
    """96 KiB in flight on every SM, unless that is what varies. The last two tables say that issuing bounds none above."""
    settings = []
    for promotion in _PROMOTIONS:
        for width in ROW_BYTES:
            case = boxes_of(width, 64, in_flight=spread(12), l2_promotion=promotion)
            settings.append(Setting(f"loads, L2 promotion {promotion}", _rows_of(width), case))
    for rows in (256, 128, 64, 32, 16, 8):
        tile_rows = max(rows, 64)
        for width in ROW_BYTES:
            case = boxes_of(width, rows, tile_rows, in_flight=spread(768 // tile_rows))
            settings.append(Setting(f"loads, boxes of {rows} rows", _rows_of(width), case))
    for tiles in (1, 2, 4, 6, 8, 12, 16):
        case = boxes_of(128, 64, in_flight=spread(tiles))
        settings.append(Setting("loads, bytes in flight on every SM", f"{8 * tiles} KiB", case))
    busy_sms = [count for count in (1, 2, 4, 8, 16, 32, 64) if count < sms]
    for width in ROW_BYTES:
        for busy in (*busy_sms, sms):
            case = boxes_of(width, 64, in_flight=spread(24), sms=busy)
            settings.append(Setting(f"loads, busy SMs, {_rows_of(width)}", f"{busy}", case))
    for warps in (1, 2, 4, 8, 16):
        case = boxes_of(64, 8, tile_row_bytes=256, in_flight=Spread(1, stages=6), issuers=warps)
        settings.append(Setting(_ISSUING, f"{warps}", case))
    for in_flight in (Spread(1, 32), Spread(2, 24), Spread(4, 12), Spread(8, 6)):  # every stream has a warp
        case = boxes_of(128, 16, 16, in_flight=in_flight)
        settings.append(Setting("loads, tiles of 2 KiB, issuing warps", f"{in_flight.streams}", case))
    return settings


def _stores(_sms: int) -> list[Setting]:
    settings = []
    for width in ROW_BYTES:
        case = boxes_of(width, 64, in_flight=spread(8), direction="store", blocks_per_sm=2)
        settings.append(Setting("stores", _rows_of(width), case))
    for stages in (1, 2, 4, 8):
        case = boxes_of(128, 64, in_flight=Spread(1, stages), direction="store")
        settings.append(Setting("stores, stages of one warp", f"{stages}", case))
    return settings


def _plain(_sms: int) -> list[Setting]:
    copied: Case = {"plain": "plain_copy", "bytes": MATRIX_BYTES}
    read: Case = {"plain": "plain_read", "bytes": MATRIX_BYTES}
    return [
        Setting("plain kernels", "copy, read and written", copied),
        Setting("plain kernels", "read", read),
    ]


def _smem(_sms: int) -> list[Setting]:
    """Reads down the rows of a tile of 128-byte rows, as they lie and swizzled."""
    rows = np.arange(WARP_LANES) * SMEM_LINE_BYTES
    settings = []
    for op_name in ("ld.b32", "ld.b128", "ldmatrix.x4"):
        op = SmemOp.named(op_name)
        for swizzle in ("none", "128B"):
            case: Case = {
                "op": op.name,
                "lanes": Swizzle.named(swizzle).apply(rows).tolist(),
                "bytes": op.lanes * op.access_bytes,
                "active": (1 << WARP_LANES) - 1,
            }
            table = "shared memory of one SM, reads down the rows of a tile"
            settings.append(Setting(table, f"{op.name}, swizzle {swizzle}", case))
    return settings


SETTINGS: dict[str, Callable[[int], list[Setting]]]
SETTINGS = {"plain": _plain, "loads": _loads, "stores": _stores, "smem": _smem}
TOPICS = (*SETTINGS, "plans")


@dataclass(frozen=True, slots=True)
class DrawnTile:
    """A random tile: at least two candidates in the planner's order, and how each is streamed."""

    about: str
    candidates: Sequence[Plan]
    cases: Sequence[Case]


class _Measured(NamedTuple):
    """A candidate and its measured rate."""

    candidate: Plan
    gb_per_s: float

    def __str__(self) -> str:
        boxes = counted(self.candidate.tma_instructions, "box", "boxes")
        shape = by(self.candidate.box or ())
        return f"{boxes} of {shape}, swizzle {self.candidate.swizzle.name}: {self.gb_per_s:.0f} GB/s"


def plan_order(
    measure: Callable[[str, Sequence[Case]], Iterable[float]], tiles: int, seed: int, where: Where
) -> PlanOrder:
    """How the planner's order and rates compare with what `measure` gives, for tiles drawn by a seed."""
    drawn = [drawn_tile(random.Random(f"{seed} plans {number}"), where) for number in range(tiles)]  # noqa: S311
    cases = [case for tile in drawn for case in tile.cases]
    rates_measured = iter(list(measure("plans", cases)))
    in_order: list[bool] = []  # pairs
    predicted = 0
    misses = []
    misjudged = []
    for tile in drawn:
        ranked = [_Measured(candidate, next(rates_measured)) for candidate in tile.candidates]
        first = ranked[0]
        fastest = max(ranked, key=lambda row: row.gb_per_s)
        if first.gb_per_s < (1 - _WITHIN) * fastest.gb_per_s:
            misses.append(f"{tile.about}: {first}, but {fastest}")
        for one, other in combinations([row.gb_per_s for row in ranked], 2):
            if abs(one - other) > _DIFFERING * max(one, other):
                in_order.append(one > other)
        for row in ranked:
            expected = row.candidate.costs.gb_per_s
            if expected is None:
                continue
            predicted += 1
            if abs(expected - row.gb_per_s) > _PREDICTED_WITHIN * row.gb_per_s:
                misjudged.append(f"{tile.about}: {row}, predicted {expected:.0f}")
    return PlanOrder(
        tiles=tiles,
        candidates=len(cases),
        first_choice_good=tiles - len(misses),
        pairs=len(in_order),
        pairs_in_order=sum(in_order),
        predicted=predicted,
        predicted_good=predicted - len(misjudged),
        misses=tuple(misses),
        misjudged=tuple(misjudged),
    )


def drawn_tile(random: random.Random, where: Where) -> DrawnTile:
    """The next tile that a generator draws."""
    while True:
        name = random.choice(_TYPES)
        size = DataType.named(name).bits // 8
        tile = (8 * random.randint(1, 32), 32 // size * random.randint(1, 16))
        major: Major = "K"
        consumer = None
        if size == 2:
            major = random.choice(_MAJORS)
            consumer = random.choice((None, "ldmatrix"))
        in_flight_bytes = random.choice(_IN_FLIGHT_KIB) * _KIB
        tile_bytes = tile[0] * tile[1] * size
        if not 2 * _KIB <= tile_bytes <= 48 * _KIB:
            continue
        in_flight = spread(max(_FEWEST_TILES, in_flight_bytes // rounded_up(tile_bytes, _KIB)))
        stages = in_flight.streams * in_flight.stages
        try:
            report = plan(tile, name, major=major, consumer=consumer, stages=stages, arch=where.arch, card=where.card)
        except RuleError:
            continue
        usable = [
            candidate for candidate in report.candidates if candidate.copies and candidate.tma_instructions <= MAX_BOXES
        ]
        if len(usable) > 1:
            break
    streams = in_flight.streams
    issuers = {boxes: streams * issuing_warps(boxes, streams) for boxes in range(1, MAX_BOXES + 1)}
    candidates = weighed_for(usable, blocks_per_sm=1, issuers=issuers)
    about = f"{tile[0]} x {tile[1]} {name}, {major}-major, {stages * tile_bytes} bytes in flight"
    return DrawnTile(about, candidates, [_streamed(candidate, size, in_flight) for candidate in candidates])


def _streamed(candidate: Plan, element_bytes: int, in_flight: Spread) -> Case:
    problem = candidate.problem
    mn, k = problem.tile
    if problem.major == "MN":
        tile = (mn, k)  # contiguous elements, rows
        x, y = matrix_dims(tile, element_bytes)
        tensor_map = candidate.tensor_map(1 << 30, (x, y))
    else:
        tile = (k, mn)
        x, y = matrix_dims(tile, element_bytes)
        tensor_map = candidate.tensor_map(1 << 30, (y, x))
    boxes = []
    for copy in candidate.copies:
        column, row, *_ = candidate.copy_coords(copy, 0, 0)
        boxes.append(Box(column, row, copy.smem_offset_bytes))
    return stream(tensor_map, boxes, tile, in_flight, stage_bytes=candidate.stage_bytes)


def card_cells(made: Benchmark) -> dict[str, object]:
    """A benchmark of loads and stores as the cells of a card (see card.py)."""

    def by_row(table: str) -> dict[int, int]:
        return {width: round(made.rate(table, _rows_of(width))) for width in ROW_BYTES}

    def issue_ns(warps: int) -> int:
        """Of a box of 8 rows by 64 bytes, on every SM."""
        return round(made.sms * 64 * 8 / made.rate(_ISSUING, f"{warps}"))

    loads = {promotion: by_row(f"loads, L2 promotion {promotion}") for promotion in _PROMOTIONS}
    few = made.rate("loads, bytes in flight on every SM", "8 KiB")  # one box of 64 rows: latency alone
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
            "sm_loads": {width: round(made.rate(f"loads, busy SMs, {_rows_of(width)}", "1")) for width in ROW_BYTES},
            "latency_us": round(made.sms * 8192 / few / 1e3, 3),
            "issue_ns": {"one thread": issue_ns(warps=1), "four warps": issue_ns(warps=4)},
        },
        "source": f"measured by tilescope bench on {made.card}, {made.software}",
    }


def benchmark_line(benchmark: Benchmark) -> FirstLine:
    """The fastest rate that was measured."""
    fastest = max(benchmark.rates, key=lambda rate: rate.gb_per_s, default=None)
    order = benchmark.plan_order
    return line(
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
    """What `tilescope bench` prints: a table for everything that was varied; all bars share their scale."""
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
