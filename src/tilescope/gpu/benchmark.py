"""Measuring what tilescope chooses between: TMA by box, promotion, bytes in flight, busy SMs; and the planner's order.

bench(["loads"])  ──▶ Benchmark: rates in GB/s, table after table, beside plain copies of the same run
bench(["plans"])  ──▶ the same with a PlanOrder: predicted against measured, over tiles drawn by a seed
"""

from __future__ import annotations

import random
import struct
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

from tilescope.data_type import DataType
from tilescope.errors import DeviceError, RuleError, counted, unknown_name
from tilescope.gpu.compiling import compiled
from tilescope.gpu.isolation import COMMAND, Child, Workers, greeted
from tilescope.gpu.streaming import (
    LEAST_BYTES,
    MATRIX_BYTES,
    MOST_BOXES,
    MOST_STAGES,
    MOST_STREAMS,
    SM_SMEM_BYTES,
    matrix_dims,
    moved_bytes,
    stream,
)
from tilescope.gpu.suite import Case
from tilescope.planner import Plan, plan
from tilescope.smem.op import WARP_LANES
from tilescope.swizzle import SMEM_LINE_BYTES, Swizzle
from tilescope.tensor_map import TensorMap
from tilescope.value import Value

Progress = Callable[[str, int, int], None]  # topic, measurements done, measurements in all
_SWIZZLE_OF_ROW = {128: "128B", 64: "64B", 32: "32B", 16: "none"}
_KIB = 1024
_BATCH = 100  # measurements that travel together
_SECONDS_AT_MOST = 120.0
_WITHIN, _PREDICTED_WITHIN, _DIFFERING = 0.03, 0.10, 0.05
_PLAN_TYPES = ("bf16", "f16", "f32", "e4m3")
_PLAN_IN_FLIGHT_BYTES = 96 * _KIB  # of one SM
_MANY_SMS = 64  # from here on the whole matrix is moved


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark(Value):
    """What a run of `tilescope bench` measured."""

    card: str
    arch: str
    driver: str
    cuda: str
    date: str  # UTC
    sms: int
    clock_mhz: int  # the highest
    seed: int
    rates: tuple[Rate, ...]
    plan_order: PlanOrder | None = None


def bench(
    topics: Iterable[str] = (), *, tiles: int = 200, seed: int = 1, progress: Progress | None = None
) -> Benchmark:
    """Measure topics (none: all) on the card of this machine; `tiles` are drawn by `seed` for the planner's order."""
    chosen = list(topics) or list(TOPICS)
    if strange := [name for name in chosen if name not in TOPICS]:
        raise RuleError(unknown_name("topic", "topics", name, TOPICS) for name in strange)
    with tempfile.TemporaryDirectory() as folder:
        with Child((*COMMAND, folder)) as child:
            facts: dict[str, Any] = dict(greeted(child))
            card = child.ask({"about": "card"}, _SECONDS_AT_MOST)
        for name in ("streams", "accesses"):
            Path(folder, f"{name}.cubin").write_bytes(compiled(name, f"{facts['arch']}a"))
        measure = _Measure(Path(folder), progress)
        rates: list[Rate] = []
        order = None
        for topic in chosen:
            if topic == "plans":
                order = _plan_order(measure, tiles, seed, facts["arch"])
            else:
                settings = SETTINGS[topic](card["sms"])
                measured = measure(topic, [case for _, _, case in settings])
                rates += [
                    Rate(table=table, setting=setting, gb_per_s=round(rate, 1))
                    for (table, setting, _), rate in zip(settings, measured, strict=True)
                ]
    facts["date"] = datetime.now(UTC).strftime("%Y-%m-%d")
    return Benchmark(**facts, **card, seed=seed, rates=tuple(rates), plan_order=order)


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
    **options: Any,
) -> Case:  # fmt: skip
    """Tiles of `tile_rows` rows of 128 bytes in boxes of `row_bytes` by `box_rows`, 16-bit elements."""
    busy = options.get("sms") or _MANY_SMS
    x, y = matrix_dims((64, tile_rows), 2, max(LEAST_BYTES, MATRIX_BYTES * min(busy, _MANY_SMS) // _MANY_SMS))
    box = (row_bytes // 2, box_rows)
    tensor_map = TensorMap(
        "bf16", (x, y), (2 * x,), box, swizzle=_SWIZZLE_OF_ROW[row_bytes], l2_promotion=l2_promotion, address=1 << 30  # type: ignore[arg-type]
    )  # fmt: skip
    places = [
        (column, row, (column // box[0] * tile_rows + row) * row_bytes)
        for column in range(0, 64, box[0])
        for row in range(0, tile_rows, box_rows)
    ]
    return stream(tensor_map, places, (64, tile_rows), direction=direction, stage_bytes=128 * tile_rows, **options)


_FULL: dict[str, Any] = {"stages": 3, "streams": 4, "blocks_per_sm": 2}  # 192 KiB in flight of tiles of 8 KiB


def _loads(sms: int) -> list[Setting]:
    settings: list[Setting] = []
    for promotion in ("none", "64B", "128B", "256B"):
        table = f"loads, L2 promotion {promotion}"
        settings += [
            (table, f"rows of {width} bytes", _boxes_of(width, 64, l2_promotion=promotion, **_FULL))
            for width in _SWIZZLE_OF_ROW
        ]
    for rows in (256, 128, 64, 32, 16, 8):
        table = f"loads, boxes of {rows} rows"
        tall = (
            {"stages": 1, "streams": 3, "blocks_per_sm": 2}
            if rows == 256
            else {"stages": 3, "streams": 2, "blocks_per_sm": 2}
        )
        tile_rows = max(rows, 64)
        settings += [
            (table, f"rows of {width} bytes", _boxes_of(width, rows, tile_rows, **(tall if rows > 64 else _FULL)))
            for width in _SWIZZLE_OF_ROW
        ]
    table = "loads, bytes in flight on every SM"
    settings += [
        (table, f"{8 * stages} KiB", _boxes_of(128, 64, stages=stages)) for stages in (1, 2, 3, 4, 6, 8, 12, 24)
    ]
    for width in _SWIZZLE_OF_ROW:
        table = f"loads, busy SMs, rows of {width} bytes"
        counts = [count for count in (1, 2, 4, 8, 16, 32, 64) if count < sms]
        settings += [
            (table, f"{count}", _boxes_of(width, 64, stages=3, streams=8, sms=count)) for count in (*counts, sms)
        ]
    table = "loads of 2 KiB tiles, issuing warps"
    settings += [
        (table, f"{streams}", _boxes_of(128, 16, 16, stages=64 // streams if streams > 1 else 32, streams=streams))
        for streams in (1, 2, 4, 8)
    ]
    return settings


def _stores(_sms: int) -> list[Setting]:
    settings = [
        (
            "stores",
            f"rows of {width} bytes",
            _boxes_of(width, 64, direction="store", stages=2, streams=4, blocks_per_sm=2),
        )
        for width in _SWIZZLE_OF_ROW
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


def _plan_order(measure: _Measure, tiles: int, seed: int, arch: Any) -> PlanOrder:
    """Every rank-2 candidate of random tiles, streamed; how the planner's order and rates compare."""
    drawn = [_candidates(random.Random(f"{seed} plans {number}"), arch) for number in range(tiles)]  # noqa: S311
    cases = [_streamed(each) for candidates in drawn for each in candidates]
    rates = iter(measure("plans", cases))
    good = pairs = in_order = predicted = predicted_good = 0
    misses = []
    for candidates in drawn:
        found = [next(rates) for _ in candidates]
        if found[0] >= (1 - _WITHIN) * max(found):
            good += 1
        else:
            misses.append(_miss(candidates, found))
        differing = [
            (one, other) for one, other in combinations(found, 2) if abs(one - other) > _DIFFERING * max(one, other)
        ]
        pairs += len(differing)
        in_order += sum(one > other for one, other in differing)
        for candidate, rate in zip(candidates, found, strict=True):
            if candidate.costs.gb_per_s is not None:
                predicted += 1
                predicted_good += abs(candidate.costs.gb_per_s - rate) <= _PREDICTED_WITHIN * rate
    return PlanOrder(
        tiles=tiles, candidates=len(cases), first_choice_good=good, pairs=pairs, pairs_in_order=in_order,
        predicted=predicted, predicted_good=predicted_good, misses=tuple(misses),
    )  # fmt: skip


def _candidates(random: random.Random, arch: Any) -> tuple[Plan, ...]:
    """At least two candidates of a random tile, in the planner's order."""
    while True:
        data_type = random.choice(_PLAN_TYPES)
        size = DataType.named(data_type).bits // 8
        tile = (8 * random.randint(1, 32), 32 // size * random.randint(1, 16))
        major: Any = random.choice(("K", "MN")) if size == 2 else "K"
        options: dict[str, Any] = random.choice(({}, {"consumer": "ldmatrix"})) if size == 2 else {}
        tile_bytes = tile[0] * tile[1] * size
        if not 2 * _KIB <= tile_bytes <= 48 * _KIB:
            continue
        streams, stages = _streams_and_stages(tile_bytes)
        try:
            report = plan(tile, data_type, major=major, arch=arch, stages=streams * stages, **options)
        except RuleError:
            continue
        usable = tuple(
            candidate
            for candidate in report.candidates
            if candidate.copies and candidate.tma_instructions <= MOST_BOXES
        )
        if len(usable) > 1:
            return usable


def _streams_and_stages(tile_bytes: int) -> tuple[int, int]:
    """Streams of a block, and stages of each, that keep about 96 KiB of such tiles in flight."""
    count = max(1, _PLAN_IN_FLIGHT_BYTES // (-(-tile_bytes // _KIB) * _KIB))
    streams = max(
        1, min(MOST_STREAMS, count // 2)
    )  # two stages of a stream hide the time from arrival to the next issue
    return streams, min(MOST_STAGES, count // streams)


def _streamed(candidate: Plan) -> Case:
    problem = candidate.problem
    tile = problem.tile if problem.major == "MN" else (problem.tile[1], problem.tile[0])
    x, y = matrix_dims(tile, problem.data_type.bits // 8)
    shape = (x, y) if problem.major == "MN" else (y, x)
    boxes = [(*candidate.copy_coords(copy, 0, 0)[:2], copy.smem_offset_bytes) for copy in candidate.copies]
    stage_bytes = -(-candidate.stage_bytes // _KIB) * _KIB
    streams, stages = _streams_and_stages(problem.tile[0] * problem.tile[1] * problem.data_type.bits // 8)
    found = candidate.tensor_map(1 << 30, shape)
    assert isinstance(found, TensorMap)
    blocks = max(1, min(candidate.blocks_per_sm, SM_SMEM_BYTES // (streams * stages * stage_bytes)))
    return stream(found, boxes, tile, stage_bytes=stage_bytes, stages=stages, streams=streams, blocks_per_sm=blocks)  # type: ignore[arg-type]


def _miss(candidates: Sequence[Plan], rates: Sequence[float]) -> str:
    fastest = max(range(len(rates)), key=rates.__getitem__)
    chosen, better = candidates[0], candidates[fastest]
    problem = chosen.problem
    return (
        f"{problem.tile[0]} x {problem.tile[1]} {problem.data_type.name}, {problem.major}-major: "
        f"{_told(chosen)} {rates[0]:.0f} GB/s, but {_told(better)} {rates[fastest]:.0f} GB/s"
    )


def _told(candidate: Plan) -> str:
    box = " x ".join(map(str, candidate.box or ()))
    return f"{counted(candidate.tma_instructions, 'box', 'boxes')} of {box}, swizzle {candidate.swizzle.name}:"
