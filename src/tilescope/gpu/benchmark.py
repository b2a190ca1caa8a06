"""Measuring what tilescope chooses between: TMA by box, promotion, bytes in flight, busy SMs; and the planner's order.

bench(["loads"])  ──▶ Benchmark: rates in GB/s, table after table, beside plain copies of the same run
bench(["plans"])  ──▶ the same with a PlanOrder: predicted against measured, over tiles drawn by a seed

A tile is drawn with its type, majorness, consumer and the bytes that are in flight of it: two tiles at least, 24 to 96 KiB.
One block on each SM streams them, as in kernels/streams.cu. The planner weighs its candidates for that kernel.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, groupby, product
from typing import Any

import numpy as np

from tilescope.arch import WARP_LANES, Arch
from tilescope.arithmetic import rounded_up
from tilescope.card import ROW_BYTES, Card, free_path, save_card
from tilescope.data_type import DataType
from tilescope.errors import DeviceError, RuleError
from tilescope.gpu import streaming
from tilescope.gpu.isolation import CardInChildren, MadeOnCard, Progress, card_in_children
from tilescope.gpu.streaming import LEAST_BYTES, MATRIX_BYTES, MAX_BOXES, issuing_warps, matrix_dims, spread, stream
from tilescope.gpu.suites import Case
from tilescope.planner import Plan, plan, weighed_for
from tilescope.rule import rule
from tilescope.sentence import by, counted
from tilescope.smem.op import SmemOp
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
_SWIZZLE_OF_ROW: dict[int, Any] = {128: "128B", 64: "64B", 32: "32B", 16: "none"}
_PROMOTIONS = ("none", "64B", "128B", "256B")
_BATCH = 100  # measurements that travel together
_MANY_SMS = 64  # from here on the whole matrix is moved
_ISSUING = "loads, 32 boxes of 8 rows by 64 bytes a tile, issuing warps"
_BAR = 32  # characters of the fastest rate
_MISSES_SHOWN = 20
_KIB = 1024
_WITHIN, _PREDICTED_WITHIN, _DIFFERING = 0.03, 0.10, 0.05
_TYPES = ("bf16", "f16", "f32", "e4m3")
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
class Benchmark(MadeOnCard):
    """What a run of `tilescope bench` measured."""

    sms: int
    clock_mhz: int  # the highest of the SMs
    memory_clock_mhz: int
    l2_bytes: int
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
    order, standing = None, None
    with card_in_children() as here:
        arch, measure = here.facts["arch"], partial(rates, here, progress=progress)
        for topic in chosen:
            if topic == "plans":
                order = plan_order(measure, tiles, seed, **({"arch": arch} if card is None else {"card": card}))
                standing = Card.of_arch(Arch.named(arch)) if card is None else Card.named(card)
            else:
                settings = SETTINGS[topic](here.facts["sms"])
                speeds = measure(topic, [case for _, _, case in settings])
                measured += [
                    Rate(table=table, setting=setting, gb_per_s=round(speed, 1))
                    for (table, setting, _), speed in zip(settings, speeds, strict=True)
                ]
    weighed_by = None if standing is None else standing.name
    made = Benchmark(**here.facts, seed=seed, rates=tuple(measured), plan_order=order, weighed_by=weighed_by)
    return made if save_as is None else replace(made, saved=str(save_card(save_as, card_cells(made))))


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
    """96 KiB in flight on every SM, unless that is what varies. The last two tables say that issuing bounds none above."""
    busy_sms = (*(count for count in (1, 2, 4, 8, 16, 32, 64) if count < sms), sms)
    in_flight = "loads, bytes in flight on every SM"
    return [
        *(
            (f"loads, L2 promotion {promotion}", _rows_of(width), boxes_of(width, 64, tiles=12, l2_promotion=promotion))
            for promotion, width in product(_PROMOTIONS, ROW_BYTES)
        ),
        *(
            (f"loads, boxes of {rows} rows", _rows_of(width), boxes_of(width, rows, tall, tiles=768 // tall))
            for (rows, tall), width in product(((rows, max(rows, 64)) for rows in (256, 128, 64, 32, 16, 8)), ROW_BYTES)
        ),
        *((in_flight, f"{8 * tiles} KiB", boxes_of(128, 64, tiles=tiles)) for tiles in (1, 2, 4, 6, 8, 12, 16)),
        *(
            (f"loads, busy SMs, {_rows_of(width)}", f"{busy}", boxes_of(width, 64, tiles=24, sms=busy))
            for width, busy in product(ROW_BYTES, busy_sms)
        ),
        *(
            (_ISSUING, f"{warps}", boxes_of(64, 8, tile_row_bytes=256, stages=6, issuers=warps))
            for warps in (1, 2, 4, 8, 16)
        ),
        *(
            ("loads, tiles of 2 KiB, issuing warps", f"{warps}", boxes_of(128, 16, 16, streams=warps, stages=stages))
            for warps, stages in ((1, 32), (2, 24), (4, 12), (8, 6))
        ),
    ]


def _stores(_sms: int) -> list[Setting]:
    return [
        *(
            ("stores", _rows_of(width), boxes_of(width, 64, tiles=8, direction="store", blocks_per_sm=2))
            for width in ROW_BYTES
        ),
        *(
            ("stores, stages of one warp", f"{stages}", boxes_of(128, 64, direction="store", stages=stages))
            for stages in (1, 2, 4, 8)
        ),
    ]


def _plain(_sms: int) -> list[Setting]:
    kernels = {"copy, read and written": "plain_copy", "read": "plain_read"}
    return [("plain kernels", setting, {"plain": kernel, "bytes": MATRIX_BYTES}) for setting, kernel in kernels.items()]


def _smem(_sms: int) -> list[Setting]:
    """Reads down the rows of a tile of 128-byte rows, as they lie and swizzled."""
    rows = np.arange(WARP_LANES) * SMEM_LINE_BYTES
    lanes = {name: Swizzle.named(name).apply(rows).tolist() for name in ("none", "128B")}
    ops = [SmemOp.named(name) for name in ("ld.b32", "ld.b128", "ldmatrix.x4")]
    cases = {
        f"{op.name}, swizzle {name}": {"op": op.name, "lanes": lanes[name], "bytes": op.lanes * op.access_bytes}
        for op, name in product(ops, lanes)
    }
    table, active = "shared memory of one SM, reads down the rows of a tile", {"active": (1 << WARP_LANES) - 1}
    return [(table, setting, case | active) for setting, case in cases.items()]


SETTINGS: dict[str, Callable[[int], list[Setting]]]
SETTINGS = {"plain": _plain, "loads": _loads, "stores": _stores, "smem": _smem}
TOPICS = (*SETTINGS, "plans")


@dataclass(frozen=True, slots=True)
class DrawnTile:
    """A random tile: at least two candidates in the planner's order, and how each is streamed."""

    about: str
    candidates: Sequence[Plan]
    cases: Sequence[Case]


def plan_order(
    measure: Callable[[str, Sequence[Case]], Iterable[float]], tiles: int, seed: int, **where: Any
) -> PlanOrder:
    """How the planner's order and rates compare with what `measure` gives, for tiles drawn by a seed."""
    drawn = [drawn_tile(random.Random(f"{seed} plans {number}"), **where) for number in range(tiles)]  # noqa: S311
    cases = [case for tile in drawn for case in tile.cases]
    measured = iter(list(measure("plans", cases)))
    in_order: list[bool] = []  # pairs
    predicted, misses, misjudged = 0, [], []
    for tile in drawn:
        ranked = [(candidate, next(measured)) for candidate in tile.candidates]
        first, fastest = ranked[0], max(ranked, key=lambda pair: pair[1])
        if first[1] < (1 - _WITHIN) * fastest[1]:
            misses.append(f"{tile.about}: {_told(*first)}, but {_told(*fastest)}")
        pairs = combinations((rate for _, rate in ranked), 2)
        in_order += [one > other for one, other in pairs if abs(one - other) > _DIFFERING * max(one, other)]
        for candidate, rate in ranked:
            if (expected := candidate.costs.gb_per_s) is not None:
                predicted += 1
                if abs(expected - rate) > _PREDICTED_WITHIN * rate:
                    misjudged.append(f"{tile.about}: {_told(candidate, rate)}, predicted {expected:.0f}")
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


def drawn_tile(random: random.Random, **where: Any) -> DrawnTile:
    """The next tile that a generator draws, for an `arch` or a `card`."""
    while True:
        name = random.choice(_TYPES)
        size = DataType.named(name).bits // 8
        tile = (8 * random.randint(1, 32), 32 // size * random.randint(1, 16))
        major: Any = random.choice(("K", "MN")) if size == 2 else "K"
        options: dict[str, Any] = random.choice(({}, {"consumer": "ldmatrix"})) if size == 2 else {}
        in_flight_bytes, tile_bytes = random.choice(_IN_FLIGHT_KIB) * _KIB, tile[0] * tile[1] * size
        if not 2 * _KIB <= tile_bytes <= 48 * _KIB:
            continue
        places = spread(max(_FEWEST_TILES, in_flight_bytes // rounded_up(tile_bytes, _KIB)))
        stages = places["streams"] * places["stages"]
        try:
            report = plan(tile, name, major=major, stages=stages, **options, **where)
        except RuleError:
            continue
        usable = [
            candidate for candidate in report.candidates if candidate.copies and candidate.tma_instructions <= MAX_BOXES
        ]
        if len(usable) > 1:
            break
    streams = places["streams"]
    issuers = {boxes: streams * issuing_warps(boxes, streams) for boxes in range(1, MAX_BOXES + 1)}
    candidates = weighed_for(usable, blocks_per_sm=1, issuers=issuers)
    about = f"{tile[0]} x {tile[1]} {name}, {major}-major, {stages * tile_bytes} bytes in flight"
    return DrawnTile(about, candidates, [_streamed(candidate, size, places) for candidate in candidates])


def _streamed(candidate: Plan, element_bytes: int, places: dict[str, Any]) -> Case:
    problem = candidate.problem
    order = 1 if problem.major == "MN" else -1  # to contiguous elements, rows
    tile: Any = problem.tile[::order]
    dims: Any = matrix_dims(tile, element_bytes)
    tensor_map = candidate.tensor_map(1 << 30, dims[::order])
    assert isinstance(tensor_map, TensorMap)
    boxes: Any = [(*candidate.copy_coords(copy, 0, 0)[:2], copy.smem_offset_bytes) for copy in candidate.copies]
    return stream(tensor_map, boxes, tile, stage_bytes=candidate.stage_bytes, **places)


def _told(candidate: Plan, rate: float) -> str:
    boxes = counted(candidate.tma_instructions, "box", "boxes")
    return f"{boxes} of {by(candidate.box or ())}, swizzle {candidate.swizzle.name}: {rate:.0f} GB/s"


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
        "source": f"measured by tilescope bench on {made.card}, {made.software}",
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
    return Drawing(f"{benchmark.card}, {benchmark.sms} SMs, {clocks}, {benchmark.software}", {"parts": tuple(parts)})


def _bar(share: float) -> str:
    """A bar in eighths of a character."""
    eighths = round(share * _BAR * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
