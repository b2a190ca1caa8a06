"""The planner's order against the measured one, over random tiles.

    draw a tile ──▶ plan it: candidates in the planner's order ──▶ measure each ──▶ 4000, 4100 and 3000 GB/s, say

The first choice is good: within 3 % of the fastest. Two pairs differ by more than 5 %, 4000 and 3000, 4100 and 3000; both are
in the planner's order. A predicted rate is good within 10 % of the measured one.

A tile is drawn with its type, majorness, consumer and the bytes that are in flight of it: two tiles at least, 24 to 96 KiB.
One block on each SM streams them, as in kernels/streams.cu. The planner weighs its candidates for that kernel.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from tilescope.arch import Arch, ArchName
from tilescope.arithmetic import rounded_up
from tilescope.card import Card
from tilescope.data_type import DataType
from tilescope.errors import RuleError
from tilescope.gpu.bench.stream_timing import MAX_BOXES, Box, Spread, issuing_warps, matrix_dims, spread, stream
from tilescope.gpu.verify.suites import Case
from tilescope.layout import Major
from tilescope.planner import Plan, plan, weighed_for
from tilescope.sentence import by, counted
from tilescope.value import Value

_KIB = 1024
_WITHIN = 0.03  # of the fastest candidate: a good first choice
_PREDICTED_WITHIN = 0.10  # of the measured rate: a good prediction
_DIFFERING = 0.05  # of the faster: a pair whose order counts
_TYPES = ("bf16", "f16", "f32", "e4m3")
_MAJORS: tuple[Major, ...] = ("K", "MN")
_IN_FLIGHT_KIB = (24, 32, 48, 64, 96)  # on every SM
_FEWEST_TILES = 2  # in flight: one arrives while the other is read


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
    misses: tuple[str, ...]  # descriptions of the tiles whose first choice is not good
    misjudged: tuple[str, ...]  # descriptions of the predictions that are not good


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The source of the planner's rates: an architecture, or a card."""

    arch: Arch | ArchName | None = None
    card: Card | None = None


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
    drawn = [draw_tile(random.Random(f"{seed} plans {number}"), where) for number in range(tiles)]  # noqa: S311
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
        for earlier, later in combinations([row.gb_per_s for row in ranked], 2):
            if abs(earlier - later) > _DIFFERING * max(earlier, later):
                in_order.append(earlier > later)
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


def draw_tile(random: random.Random, where: Where) -> DrawnTile:
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
    return DrawnTile(about, candidates, [_stream_case(candidate, size, in_flight) for candidate in candidates])


def _stream_case(candidate: Plan, element_bytes: int, in_flight: Spread) -> Case:
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
