"""The planner's order against the measured one: every candidate of random tiles, streamed, and what was predicted of it.

A tile is drawn with its type, majorness, consumer and the bytes that are in flight of it: two tiles at least, 24 to 96 KiB.
One block on each SM streams them, as in kernels/streams.cu. The planner weighs its candidates for that kernel.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from tilescope.data_type import DataType
from tilescope.errors import RuleError, counted
from tilescope.gpu.streaming import MAX_BOXES, issuing_warps, matrix_dims, spread, stream
from tilescope.gpu.suite import Case
from tilescope.planner import Plan, plan, weighed_for
from tilescope.tensor_map import TensorMap
from tilescope.value import Value

_KIB = 1024
_WITHIN, _PREDICTED_WITHIN, _DIFFERING = 0.03, 0.10, 0.05
_TYPES = ("bf16", "f16", "f32", "e4m3")
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
    misses: tuple[str, ...]  # in words, the tiles whose first choice is not good
    misjudged: tuple[str, ...]  # in words, the predictions that are not good


def plan_order(
    measure: Callable[[str, Sequence[Case]], Iterable[float]], tiles: int, seed: int, **where: Any
) -> PlanOrder:
    """How the planner's order and rates compare with what `measure` gives, for tiles drawn by a seed."""
    drawn = [drawn_tile(random.Random(f"{seed} plans {number}"), **where) for number in range(tiles)]  # noqa: S311
    cases = [case for tile in drawn for case in tile.cases]
    rates = iter(list(measure("plans", cases)))
    pairs: list[bool] = []  # whether they are in order
    predicted = 0
    misses, misjudged = [], []
    for tile in drawn:
        measured = [next(rates) for _ in tile.candidates]
        fastest = max(measured)
        if measured[0] < (1 - _WITHIN) * fastest:
            better = tile.candidates[measured.index(fastest)]
            first = _told(tile.candidates[0], measured[0])
            misses.append(f"{tile.about}: {first}, but {_told(better, fastest)}")
        pairs += [
            one > other for one, other in combinations(measured, 2) if abs(one - other) > _DIFFERING * max(one, other)
        ]
        for candidate, rate in zip(tile.candidates, measured, strict=True):
            expected = candidate.costs.gb_per_s
            predicted += expected is not None
            if expected is not None and abs(expected - rate) > _PREDICTED_WITHIN * rate:
                misjudged.append(f"{tile.about}: {_told(candidate, rate)}, predicted {expected:.0f}")
    return PlanOrder(
        tiles=tiles,
        candidates=len(cases),
        first_choice_good=tiles - len(misses),
        pairs=len(pairs),
        pairs_in_order=sum(pairs),
        predicted=predicted,
        predicted_good=predicted - len(misjudged),
        misses=tuple(misses),
        misjudged=tuple(misjudged),
    )


@dataclass(frozen=True, slots=True)
class DrawnTile:
    """A random tile: at least two candidates in the planner's order, and how each is streamed."""

    about: str
    candidates: Sequence[Plan]
    cases: Sequence[Case]


def drawn_tile(random: random.Random, **where: Any) -> DrawnTile:
    """The next tile that a generator draws, for an `arch` or a `card`."""
    while True:
        name = random.choice(_TYPES)
        size = DataType.named(name).bits // 8
        tile = (8 * random.randint(1, 32), 32 // size * random.randint(1, 16))
        major: Any = random.choice(("K", "MN")) if size == 2 else "K"
        options: dict[str, Any] = random.choice(({}, {"consumer": "ldmatrix"})) if size == 2 else {}
        in_flight_bytes = random.choice(_IN_FLIGHT_KIB) * _KIB
        tile_bytes = tile[0] * tile[1] * size
        if not 2 * _KIB <= tile_bytes <= 48 * _KIB:
            continue
        places = spread(max(_FEWEST_TILES, in_flight_bytes // (-(-tile_bytes // _KIB) * _KIB)))
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
    box = " x ".join(map(str, candidate.box or ()))
    boxes = counted(candidate.tma_instructions, "box", "boxes")
    return f"{boxes} of {box}, swizzle {candidate.swizzle.name}: {rate:.0f} GB/s"
