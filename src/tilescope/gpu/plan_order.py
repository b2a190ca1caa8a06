"""The planner's order against the measured one: every candidate of random tiles, streamed, and what was predicted of it.

A tile is drawn with its type, majorness, consumer and the bytes that are in flight of it: two tiles at least, 24 to 96 KiB.
One block on each SM streams them, as in kernels/streams.cu. The planner weighs its candidates for that kernel.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from tilescope.data_type import DataType
from tilescope.errors import RuleError, counted
from tilescope.gpu.streaming import MOST_BOXES, MOST_STAGES, MOST_STREAMS, issuing_warps, matrix_dims, stream
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


def plan_order(measure: Callable[[str, Sequence[Case]], list[float]], tiles: int, seed: int, **where: Any) -> PlanOrder:
    """How the planner's order and rates compare with what `measure` gives, for tiles drawn by a seed."""
    drawn = [_Drawn(random.Random(f"{seed} plans {number}"), where) for number in range(tiles)]  # noqa: S311
    cases = [case for each in drawn for case in each.cases]
    rates = iter(measure("plans", cases))
    good = pairs = in_order = predicted = 0
    misses, misjudged = [], []
    for each in drawn:
        found = [next(rates) for _ in each.candidates]
        if found[0] >= (1 - _WITHIN) * max(found):
            good += 1
        else:
            misses.append(each.miss(found))
        differing = [
            (one, other) for one, other in combinations(found, 2) if abs(one - other) > _DIFFERING * max(one, other)
        ]
        pairs += len(differing)
        in_order += sum(one > other for one, other in differing)
        for candidate, rate in zip(each.candidates, found, strict=True):
            expected = candidate.costs.gb_per_s
            if expected is not None:
                predicted += 1
                if abs(expected - rate) > _PREDICTED_WITHIN * rate:
                    misjudged.append(f"{each}: {_told(candidate)} {rate:.0f} GB/s, predicted {expected:.0f}")
    return PlanOrder(
        tiles=tiles, candidates=len(cases), first_choice_good=good, pairs=pairs, pairs_in_order=in_order,
        predicted=predicted, predicted_good=predicted - len(misjudged), misses=tuple(misses), misjudged=tuple(misjudged),
    )  # fmt: skip


class _Drawn:
    """A random tile: at least two candidates in the planner's order, and how they are streamed."""

    def __init__(self, random: random.Random, where: dict[str, Any]) -> None:
        while True:
            name = random.choice(_TYPES)
            self.size = DataType.named(name).bits // 8
            self.tile = (8 * random.randint(1, 32), 32 // self.size * random.randint(1, 16))
            major: Any = random.choice(("K", "MN")) if self.size == 2 else "K"
            options: dict[str, Any] = random.choice(({}, {"consumer": "ldmatrix"})) if self.size == 2 else {}
            in_flight_bytes = random.choice(_IN_FLIGHT_KIB) * _KIB
            tile_bytes = self.tile[0] * self.tile[1] * self.size
            if not 2 * _KIB <= tile_bytes <= 48 * _KIB:
                continue
            count = max(_FEWEST_TILES, in_flight_bytes // _whole_kib(tile_bytes))
            self.streams = min(MOST_STREAMS, count // 2)  # two stages hide the time from arrival to the next issue
            self.stages = min(MOST_STAGES, count // self.streams)
            self.in_flight_bytes = self.streams * self.stages * tile_bytes
            try:
                report = plan(self.tile, name, major=major, stages=self.streams * self.stages, **options, **where)
            except RuleError:
                continue
            usable = [
                candidate
                for candidate in report.candidates
                if candidate.copies and candidate.tma_instructions <= MOST_BOXES
            ]
            if len(usable) > 1:
                break
        self.about = f"{self.tile[0]} x {self.tile[1]} {name}, {major}-major, {self.in_flight_bytes} bytes in flight"
        issuers = {boxes: self.streams * issuing_warps(boxes, self.streams) for boxes in range(1, MOST_BOXES + 1)}
        self.candidates = weighed_for(usable, blocks_per_sm=1, issuers=issuers)

    def __str__(self) -> str:
        return self.about

    @property
    def cases(self) -> list[Case]:
        """The streams of all candidates."""
        return [self._streamed(candidate) for candidate in self.candidates]

    def _streamed(self, candidate: Plan) -> Case:
        is_mn = candidate.problem.major == "MN"
        tile = self.tile if is_mn else self.tile[::-1]
        x, y = matrix_dims(tile, self.size)
        found = candidate.tensor_map(1 << 30, (x, y) if is_mn else (y, x))
        assert isinstance(found, TensorMap)
        boxes = []
        for copy in candidate.copies:
            column, row = candidate.copy_coords(copy, 0, 0)[:2]
            boxes.append((column, row, copy.smem_offset_bytes))
        stage_bytes = _whole_kib(candidate.stage_bytes)
        return stream(found, boxes, tile, stage_bytes=stage_bytes, stages=self.stages, streams=self.streams)

    def miss(self, rates: Sequence[float]) -> str:
        """The first choice and the fastest candidate, in words."""
        fastest = max(range(len(rates)), key=rates.__getitem__)
        chosen, better = self.candidates[0], self.candidates[fastest]
        return f"{self}: {_told(chosen)} {rates[0]:.0f} GB/s, but {_told(better)} {rates[fastest]:.0f} GB/s"


def _whole_kib(size_bytes: int) -> int:
    return -(-size_bytes // _KIB) * _KIB


def _told(candidate: Plan) -> str:
    box = " x ".join(map(str, candidate.box or ()))
    return f"{counted(candidate.tma_instructions, 'box', 'boxes')} of {box}, swizzle {candidate.swizzle.name}:"
