"""Measuring what tilescope chooses between: TMA by box, promotion, bytes in flight, busy SMs; and the planner's order.

bench(["loads"])  ──▶ Benchmark: rates in GB/s, table after table, beside plain copies of the same run
bench(["plans"])  ──▶ the same with a PlanOrder: predicted against measured, over tiles drawn by a seed
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tilescope.arch import Arch
from tilescope.card import ROW_BYTES, Card, free_path, save_card
from tilescope.errors import DeviceError, RuleError, unknown_name
from tilescope.gpu.compiling import compiled
from tilescope.gpu.isolation import COMMAND, Child, Workers, greeted
from tilescope.gpu.plan_order import PlanOrder, plan_order
from tilescope.gpu.streaming import LEAST_BYTES, MATRIX_BYTES, matrix_dims, moved_bytes, stream
from tilescope.gpu.suite import Case
from tilescope.rule import rule
from tilescope.smem.op import WARP_LANES
from tilescope.swizzle import SMEM_LINE_BYTES, Swizzle
from tilescope.tensor_map import TensorMap
from tilescope.value import Value

SAVED_TOPICS = rule(
    "bench-save", "A card is saved from the topics loads and stores.", source="tilescope bench --save-card"
)
Progress = Callable[[str, int, int], None]  # topic, measurements done, measurements in all
_SWIZZLE_OF_ROW = {128: "128B", 64: "64B", 32: "32B", 16: "none"}
_PROMOTIONS = ("none", "64B", "128B", "256B")
_BATCH = 100  # measurements that travel together
_SECONDS_AT_MOST = 120.0
_MANY_SMS = 64  # from here on the whole matrix is moved
_SMALL_BOXES = 32  # of a tile, 64 bytes by 8 rows each


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
        return next(each.gb_per_s for each in self.rates if (each.table, each.setting) == (table, setting))


def bench(
    topics: Iterable[str] = (), *, tiles: int = 200, seed: int = 1, card: str | None = None,
    save_as: str | None = None, progress: Progress | None = None,
) -> Benchmark:  # fmt: skip
    """Measure topics (none: all) on the card of this machine; `tiles` are drawn by `seed` for the planner's order.

    `card` names whose rates the planner uses; `save_as` keeps what was measured as a card of that name.
    """
    chosen = list(topics) or list(TOPICS)
    if strange := [name for name in chosen if name not in TOPICS]:
        raise RuleError(unknown_name("topic", "topics", name, TOPICS) for name in strange)
    if save_as is not None and free_path(save_as) and not {"loads", "stores"} <= set(chosen):
        raise SAVED_TOPICS.error("topics", " ".join(chosen), "loads and stores are what a card holds", "Add them.")
    with tempfile.TemporaryDirectory() as folder:
        with Child((*COMMAND, folder)) as child:
            facts: dict[str, Any] = dict(greeted(child))
            facts |= child.ask({"about": "card"}, _SECONDS_AT_MOST)
        for name in ("streams", "accesses"):
            Path(folder, f"{name}.cubin").write_bytes(compiled(name, f"{facts['arch']}a"))
        measure = _Measure(Path(folder), progress)
        rates: list[Rate] = []
        order, weighed_by = None, None
        for topic in chosen:
            if topic == "plans":
                where = {"arch": facts["arch"]} if card is None else {"card": card}
                order = plan_order(measure, tiles, seed, **where)
                standing = Card.of_arch(Arch.named(facts["arch"])) if card is None else Card.named(card)
                weighed_by = None if standing is None else standing.name
            else:
                settings = SETTINGS[topic](facts["sms"])
                measured = measure(topic, [case for _, _, case in settings])
                rates += [
                    Rate(table=table, setting=setting, gb_per_s=round(rate, 1))
                    for (table, setting, _), rate in zip(settings, measured, strict=True)
                ]
    facts["date"] = datetime.now(UTC).strftime("%Y-%m-%d")
    made = Benchmark(**facts, seed=seed, rates=tuple(rates), plan_order=order, weighed_by=weighed_by)
    if save_as is None:
        return made
    return replace(made, saved=str(save_card(save_as, card_cells(made))))


class _Measure:
    """Runs streams in a child and gives their rates in GB/s."""

    def __init__(self, folder: Path, progress: Progress | None) -> None:
        self._folder = folder
        self._progress = progress

    def __call__(self, topic: str, cases: Sequence[Case]) -> list[float]:
        batches = [cases[first : first + _BATCH] for first in range(0, len(cases), _BATCH)]
        rates: list[float] = []
        for outcomes in Workers("streams", self._folder, COMMAND).outcomes(batches, _SECONDS_AT_MOST):
            for outcome in outcomes:
                if outcome.ended:
                    raise DeviceError(f"A measurement failed ({outcome.ended}): {cases[len(rates)]}.")
                (seconds,) = struct.unpack("<d", outcome.data)
                rates.append(moved_bytes(cases[len(rates)]) / seconds / 1e9)
            if self._progress is not None:
                self._progress(topic, len(rates), len(cases))
        return rates


Setting = tuple[str, str, Case]  # table, setting, what is measured


def _boxes_of(
    row_bytes: int, box_rows: int, tile_rows: int = 64, *, l2_promotion: Any = "128B", direction: str = "load",
    tile_row_bytes: int = 128, **options: Any,
) -> Case:  # fmt: skip
    """Tiles of `tile_rows` rows of 128 bytes in boxes of `row_bytes` by `box_rows`, 16-bit elements."""
    busy, columns = options.get("sms") or _MANY_SMS, tile_row_bytes // 2
    size_bytes = max(LEAST_BYTES, MATRIX_BYTES * min(busy, _MANY_SMS) // _MANY_SMS)
    x, y = matrix_dims((columns, tile_rows), 2, size_bytes)
    box, swizzle = (row_bytes // 2, box_rows), Swizzle.named(_SWIZZLE_OF_ROW[row_bytes])
    tensor_map = TensorMap("bf16", (x, y), (2 * x,), box, swizzle=swizzle, l2_promotion=l2_promotion, address=1 << 30)
    places = [
        (column, row, (column // box[0] * tile_rows + row) * row_bytes)
        for column in range(0, columns, box[0])
        for row in range(0, tile_rows, box_rows)
    ]
    stage_bytes = tile_row_bytes * tile_rows
    return stream(tensor_map, places, (columns, tile_rows), direction=direction, stage_bytes=stage_bytes, **options)


def _rows_of(width: int) -> str:
    return f"rows of {width} bytes"


def _loads(sms: int) -> list[Setting]:
    """96 KiB in flight on every SM, unless that is what varies."""
    settings: list[Setting] = []
    for promotion in _PROMOTIONS:
        table = f"loads, L2 promotion {promotion}"
        settings += [
            (table, _rows_of(width), _boxes_of(width, 64, l2_promotion=promotion, streams=6, stages=2))
            for width in ROW_BYTES
        ]
    for rows in (256, 128, 64, 32, 16, 8):
        tile_rows = max(rows, 64)
        count = 96 * 1024 // (128 * tile_rows)
        streams = max(1, count // 2)
        settings += [
            (f"loads, boxes of {rows} rows", _rows_of(width),
             _boxes_of(width, rows, tile_rows, streams=streams, stages=count // streams))
            for width in ROW_BYTES
        ]  # fmt: skip
    settings += [
        ("loads, bytes in flight on every SM", f"{8 * count} KiB", _boxes_of(128, 64, streams=max(1, count // 2), stages=min(2, count)))
        for count in (1, 2, 4, 6, 8, 12, 16)
    ]  # fmt: skip
    for width in ROW_BYTES:
        counts = [count for count in (1, 2, 4, 8, 16, 32, 64) if count < sms]
        settings += [
            (f"loads, busy SMs, {_rows_of(width)}", f"{count}", _boxes_of(width, 64, streams=8, stages=3, sms=count))
            for count in (*counts, sms)
        ]
    # What issuing costs, and that it bounds nothing above: from some number of warps on, more do not help.
    settings += [
        (f"loads, {_SMALL_BOXES} boxes of 8 rows by 64 bytes a tile, issuing warps", f"{warps}",
         _boxes_of(64, 8, 64, tile_row_bytes=256, stages=6, issuers=warps))
        for warps in (1, 2, 4, 8, 16)
    ]  # fmt: skip
    settings += [
        ("loads, tiles of 2 KiB, issuing warps", f"{warps}", _boxes_of(128, 16, 16, streams=warps, stages=min(32, 48 // warps)))
        for warps in (1, 2, 4, 8)
    ]  # fmt: skip
    return settings


def _stores(_sms: int) -> list[Setting]:
    settings = [
        ("stores", _rows_of(width), _boxes_of(width, 64, direction="store", stages=2, streams=4, blocks_per_sm=2))
        for width in ROW_BYTES
    ]
    return settings + [
        ("stores, stages of one warp", f"{stages}", _boxes_of(128, 64, direction="store", stages=stages))
        for stages in (1, 2, 4, 8)
    ]


def _plain(_sms: int) -> list[Setting]:
    return [
        ("plain kernels", "copy, read and written", {"plain": "plain_copy"}),
        ("plain kernels", "read", {"plain": "plain_read"}),
    ]


def _smem(_sms: int) -> list[Setting]:
    """Reads down the rows of a tile of 128-byte rows, as they lie and swizzled."""
    settings: list[Setting] = []
    for op in ("ld.b32", "ld.b128", "ldmatrix.x4"):
        for swizzle in ("none", "128B"):
            lanes = [int(Swizzle.named(swizzle).apply(lane * SMEM_LINE_BYTES)) for lane in range(WARP_LANES)]
            case = {"op": op, "lanes": lanes, "active": (1 << WARP_LANES) - 1}
            settings.append(
                ("shared memory of one SM, reads down the rows of a tile", f"{op}, swizzle {swizzle}", case)
            )
    return settings


SETTINGS: dict[str, Callable[[int], list[Setting]]] = {
    "plain": _plain,
    "loads": _loads,
    "stores": _stores,
    "smem": _smem,
}
TOPICS = (*SETTINGS, "plans")


def card_cells(made: Benchmark) -> Mapping[str, Any]:
    """A benchmark of loads and stores as the cells of a card (see card.py)."""
    loads = {
        promotion: {width: round(made.rate(f"loads, L2 promotion {promotion}", _rows_of(width))) for width in ROW_BYTES}
        for promotion in _PROMOTIONS
    }
    few = made.rate("loads, bytes in flight on every SM", "8 KiB")  # one box of 64 rows: latency alone
    table = f"loads, {_SMALL_BOXES} boxes of 8 rows by 64 bytes a tile, issuing warps"
    box_bytes = 64 * 8
    return {
        "card": made.card, "arch": made.arch, "sms": made.sms, "clock_mhz": made.clock_mhz, "l2_bytes": made.l2_bytes,
        "memory_gb_per_s": max(rate for row in loads.values() for rate in row.values()),
        "tma": {
            "sms": made.sms, "loads": loads,
            "stores": {width: round(made.rate("stores", _rows_of(width))) for width in ROW_BYTES},
            "sm_loads": {width: round(made.rate(f"loads, busy SMs, {_rows_of(width)}", "1")) for width in ROW_BYTES},
            "latency_us": round(made.sms * 8192 / few / 1e3, 3),
            "issue_ns": {
                name: round(made.sms * box_bytes / made.rate(table, warps))
                for name, warps in (("one thread", "1"), ("four warps", "4"))
            },
        },
        "source": f"measured by tilescope bench on {made.card}, driver {made.driver}, CUDA {made.cuda}, {made.date}",
    }  # fmt: skip
