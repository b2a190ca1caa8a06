"""Which slots of the pipeline a stage of a tile uses.

A tile that shares its bytes with no other one is a slot, or one for each instance of the role that writes it. Overlaid
tiles are cut into the pieces of memory that they share, so that the proof covers the overlays:

    V 0..90111, O over 0..32767    pieces 0..32767 (V, O) and 32768..90111 (V)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from tilescope.kernel_plan.handovers import Ring
from tilescope.kernel_plan.kernel_description import KernelStep, KernelTile
from tilescope.kernel_plan.kernel_file import KernelDescription
from tilescope.kernel_plan.placement import Placement
from tilescope.kernel_plan.ring_counters import RingCounters
from tilescope.pipeline.pipeline_rules import Plain


@dataclass(frozen=True, slots=True)
class Piece:
    """A slot of the pipeline that a stage of a tile uses, and the condition under which it does."""

    slot: str
    bytes: int
    when: str = ""

    def if_also(self, condition: str) -> Piece:
        """The piece with one condition more."""
        return Piece(self.slot, self.bytes, f"{self.when} and {condition}" if self.when else condition)


class _Cut(NamedTuple):
    """A part of a memory between two ends of tiles, and the half of the lanes."""

    low: int
    high: int
    half: int


def _start_of(cut: _Cut) -> int:
    return cut.low


@dataclass(frozen=True, slots=True)
class TileSlots:
    """The slots of a planned kernel's tiles."""

    kernel: KernelDescription
    rings: tuple[Ring, ...]
    stages: Mapping[str, int]
    shared: Placement
    tensor: Placement
    _cuts: Mapping[str, tuple[_Cut, ...]] = field(init=False)
    _cut_tiles: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        overlaid = [block for pair in (*self.shared.overlays, *self.tensor.overlays) for block in pair]
        object.__setattr__(self, "_cut_tiles", frozenset(name for block in overlaid for name in block.tiles))
        object.__setattr__(self, "_cuts", {memory: tuple(self._cut_memory(memory)) for memory in ("shared", "tensor")})

    def slots(self) -> Plain:
        """The pipeline's table of slots."""
        slots: Plain = {}
        for ring in self.rings:
            for name in ring.tiles:
                for piece in self._all_pieces(ring, name):
                    slots[piece.slot] = self._slot(name)
        return slots

    def of_tiles(self, names: Sequence[str], place: int) -> list[Piece]:
        """The pieces that the step at a place uses of several tiles."""
        pieces: list[Piece] = []
        for name in names:
            for ring in self.rings:
                if name in ring.tiles:
                    pieces += self.of_tile(ring, name, place)
        return pieces

    def of_tile(self, ring: Ring, name: str, place: int) -> list[Piece]:
        """The pieces that a step of a role uses of a tile; what rescales a sum skips the first round of its loop."""
        tile = self.kernel.tile(name)
        fill = next(number for number, names in enumerate(ring.fills) if name in names)
        stage = RingCounters(self.kernel, self.stages).stage(ring, fill)
        step = self.kernel.steps[place]
        is_first = place in ring.turns[fill][0].places
        if ring.behind and is_first and name in step.writes and name in step.inputs:  # there is no sum yet
            return [piece.if_also(f"{ring.home[-1]} > 0") for piece in self._plain_pieces(ring, tile, stage, step)]
        return self._plain_pieces(ring, tile, stage, step)

    def _plain_pieces(self, ring: Ring, tile: KernelTile, stage: str, step: KernelStep) -> list[Piece]:
        """The pieces of one stage: those of the role's own instance, if it writes one each; of an exchanged tile, all."""
        name = tile.name
        copies = self.kernel.copies_of(tile)
        writers = {each.role for _, each in self.kernel.writes_of(name)}
        is_own = step.role in writers and not (tile.exchanged and name in step.inputs)
        if name in self._cut_tiles:
            instance = "instance" if is_own and copies > 1 else ""
            return self._cut_pieces(ring, tile, stage, instance)
        slot = ring.name if len(ring.fills) > 1 else name
        size = tile.stage_bytes
        if copies == 1:
            return [Piece(f"{slot}[{stage}]", size)]
        if is_own:
            return [Piece(f"{slot}[{stage} * {copies} + instance]", size)]
        return [Piece(f"{slot}[{stage} * {copies} + {number}]", size) for number in range(copies)]

    def _cut_pieces(self, ring: Ring, tile: KernelTile, stage: str, own: str) -> list[Piece]:
        """The pieces of each stage and instance of a tile that shares memory, each with its condition."""
        placement = self.shared if tile.memory == "shared" else self.tensor
        pieces = []
        count = self.stages[tile.name]
        copies = self.kernel.copies_of(tile)
        for number in range(count):
            for copy in range(copies):
                conditions = []
                if count > 1:
                    conditions.append(f"{stage} == {number}")
                if own:
                    conditions.append(f"{own} == {copy}")
                start, end, half = self._extent(placement, ring, tile, number * copies + copy)
                cuts = self._cuts[tile.memory]
                for low, high, lanes in cuts[bisect_left(cuts, start, key=_start_of) :]:
                    if high > end:
                        break
                    if half & lanes:
                        slot = f"{tile.memory}_{low}_{lanes}"
                        size = min(high - low, max(0, start + tile.stage_bytes - low))
                        pieces.append(Piece(slot, size if tile.memory == "shared" else 0, " and ".join(conditions)))
        return pieces

    def _extent(self, placement: Placement, ring: Ring, tile: KernelTile, number: int) -> tuple[int, int, int]:
        """First and last address, and the lanes, of a stage of a tile."""
        blocks = placement.blocks_of(tile.name)
        if tile.memory == "tensor":
            block = blocks[number]
            spot = placement.packing.spots[block.name]
            return spot.offset, spot.offset + block.size, spot.half
        block = blocks[0]
        spot = placement.packing.spots[block.name]
        if len(ring.fills) > 1:  # slots of a turning ring move, so that all of them count as one
            return spot.offset, spot.offset + block.size, spot.half
        start = spot.offset + number * block.stride
        return start, start + block.stride, spot.half

    def _cut_memory(self, memory: str) -> Iterable[_Cut]:
        """The parts that the ends of all overlaid stages cut a memory into."""
        placement = self.shared if memory == "shared" else self.tensor
        ends: set[int] = set()
        for ring in self.rings:
            for name in ring.tiles:
                tile = self.kernel.tile(name)
                if tile.memory == memory and name in self._cut_tiles:
                    for number in range(self.stages[name] * self.kernel.copies_of(tile)):
                        start, end, _ = self._extent(placement, ring, tile, number)
                        ends |= {start, end}
        halves = (1, 2) if memory == "tensor" else (3,)
        return (_Cut(low, high, half) for low, high in pairwise(sorted(ends)) for half in halves)

    def _all_pieces(self, ring: Ring, name: str) -> list[Piece]:
        """All pieces of a tile, of every stage."""
        if name in self._cut_tiles:
            return self._cut_pieces(ring, self.kernel.tile(name), "0", "")
        return [Piece(ring.name if len(ring.fills) > 1 else name, self.kernel.tile(name).stage_bytes)]

    def _slot(self, name: str) -> Plain:
        tile = self.kernel.tile(name)
        row: Plain = {} if tile.memory == "shared" else {"space": "tmem"}
        if name not in self._cut_tiles:
            row["stages"] = self.stages[name] * self.kernel.copies_of(tile)
        return row
