"""How many wavefronts of shared memory, or sectors of global memory, the executions of each instruction take.

A loop asks for the same pattern at other addresses, and neither count changes when all lanes of a warp move by whole words (or
sectors): so a pattern is counted once, and found again by the distances from its first lane.

    lanes at 0x400 0x480 0x500 …     →  0 0x80 0x100 …  ←     lanes at 0xc00 0xc80 0xd00 …

What is not known yet waits until there is enough of it to be counted together: addresses that follow no pattern cost
little more than those that do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.errors import RuleError
from tilescope.machine.address import Addresses
from tilescope.machine.records import BlockIndex, block_index
from tilescope.machine.step import LaneNumbers
from tilescope.smem.banks import count_ideal, count_wavefronts
from tilescope.smem.op import SMEM_OP, SmemOp

Mask = npt.NDArray[np.bool_]
SECTOR_BYTES = 32
_SECTOR_SHIFT = SECTOR_BYTES.bit_length() - 1
_PATTERNS_KEPT = 1024  # of each kind of count; beyond them all are forgotten
_WARPS_WAITING = 512  # executions by one warp that wait to be counted together


class AccessKind(NamedTuple):
    """What every lane of an instruction asks of memory."""

    size_bytes: int
    shared_op: SmemOp | None  # how shared memory serves it; None: no card was measured


def access_kind(verb: Literal["ld", "st", "cp.async"], size_bytes: int) -> AccessKind:
    """Loads, stores and copies of some bytes a lane; atomics are served as stores of their width.

    >>> access_kind("ld", 16).shared_op.name, access_kind("cp.async", 8).shared_op.name
    ('ld.b128', 'cp.async.8')
    """
    name = f"cp.async.{size_bytes}" if verb == "cp.async" else f"{verb}.b{size_bytes * 8}"
    return AccessKind(size_bytes, SMEM_OP.get(name))


def matrix_kind(opcode: str, row_bytes: int) -> AccessKind:
    """A row of a matrix for every lane of ldmatrix or stmatrix that gives an address.

    >>> matrix_kind("ldmatrix.sync.aligned.m8n8.x4.shared.b16", 16).shared_op.lanes
    32
    """
    try:
        return AccessKind(row_bytes, SmemOp.named(opcode))
    except RuleError:
        return AccessKind(row_bytes, None)


class Where(NamedTuple):
    """A cluster in its grid: enough to name the block and the warp of a lane."""

    first_block: BlockIndex
    cluster: BlockIndex  # its extents
    block_lanes: int


class Execution(NamedTuple):
    """An instruction, as some warps of a cluster executed it together.

    Addresses are (warps, lanes); lanes that do not take part stand where the first one stands that does.
    """

    pc: int
    kind: AccessKind
    addresses: Addresses
    mask: Mask | None
    first_lanes: LaneNumbers  # of each warp, any lane that is in it
    where: Where


class Instance(NamedTuple):
    """One warp's execution of an instruction: where its lanes went, and what that took."""

    kind: AccessKind
    cost: int
    least: int
    block: BlockIndex
    warp: int  # of the block
    lane_address: tuple[int | None, ...]  # of the lanes that the operation takes addresses from; None: inactive


@dataclass(slots=True)
class Tally:
    """What all executions of one instruction cost together, and the worst of them."""

    cost: int = 0
    least: int = 0
    worst_excess: int = -1  # so that one is kept as an example, conflict or not
    worst_place: tuple[int, ...] = ()  # of equal ones the first of the grid is kept, in whatever order they ran
    worst: Instance | None = None


class WarpCounts(NamedTuple):
    """Counts for each warp, and the least possible."""

    cost: LaneNumbers
    least: LaneNumbers


class PatternCost(NamedTuple):
    """What an execution by one or more warps costs, and the warp with the largest excess."""

    cost: int
    least: int
    worst_row: int
    worst_cost: int
    worst_least: int


_ONE_LANE = PatternCost(1, 1, 0, 1, 1)
PatternKey = tuple[AccessKind, bytes, bytes]


def wavefronts_of(kind: AccessKind, addresses: Addresses, mask: Mask | None) -> WarpCounts:
    """Turns of shared memory, by the measured rule."""
    assert kind.shared_op is not None
    return WarpCounts(count_wavefronts(kind.shared_op, addresses, mask), count_ideal(kind.shared_op, addresses, mask))


def sectors_of(kind: AccessKind, addresses: Addresses, _mask: Mask | None) -> WarpCounts:
    """Pieces of 32 bytes that are touched, and as many as would hold the bytes.

    Accesses lie at multiples of their size, so two of them touch the same bytes or none of each other's.

    >>> counts = sectors_of(access_kind("ld", 4), np.arange(32)[None] * 8, None)
    >>> counts.cost, counts.least
    (array([8]), array([4]))
    """
    in_order = np.sort(addresses, axis=1)
    asked_bytes = _different(in_order) * kind.size_bytes
    touched = _different(in_order >> _SECTOR_SHIFT) * max(1, kind.size_bytes // SECTOR_BYTES)
    return WarpCounts(touched, -(-asked_bytes // SECTOR_BYTES))


def _different(in_order: Addresses) -> Addresses:
    """How many different numbers each row of ascending ones has."""
    count: Addresses = np.count_nonzero(in_order[:, 1:] != in_order[:, :-1], axis=1) + 1
    return count


class _Waiting(NamedTuple):
    key: PatternKey
    execution: Execution


@dataclass(slots=True)
class AccessCounter:
    """Counts one thing of every execution, by instruction; `finish` before the tallies are read."""

    count: Callable[[AccessKind, Addresses, Mask | None], WarpCounts]
    tallies: dict[int, Tally] = field(default_factory=dict)  # by the instruction's place in the program
    _patterns: dict[PatternKey, PatternCost] = field(default_factory=dict)
    _waiting: dict[tuple[AccessKind, bool], list[_Waiting]] = field(default_factory=dict)
    _warps_waiting: int = 0

    def add(self, execution: Execution, step_bytes: int) -> None:
        """Count an execution; its cost is that of any other whose warps moved by multiples of `step_bytes`."""
        addresses = execution.addresses
        mask = execution.mask
        first = addresses[:, :1] & -step_bytes
        key = (execution.kind, (addresses - first).tobytes(), b"" if mask is None else mask.tobytes())
        found = self._patterns.get(key)
        if found is not None:
            self._tally(execution, found)
            return
        self._waiting.setdefault((execution.kind, mask is None), []).append(_Waiting(key, execution))
        self._warps_waiting += len(addresses)
        if self._warps_waiting >= _WARPS_WAITING:
            self.finish()

    def add_lane(self, execution: Execution) -> None:
        """Count an execution by one lane, which meets no other."""
        self._tally(execution, _ONE_LANE)

    def finish(self) -> None:
        """Count what waits."""
        for waiting in self._waiting.values():
            self._count_together(waiting)
        self._waiting.clear()
        self._warps_waiting = 0

    def _count_together(self, waiting: list[_Waiting]) -> None:
        executions = [one.execution for one in waiting]
        first = executions[0]
        addresses = np.concatenate([one.addresses for one in executions])
        mask = None
        if first.mask is not None:
            mask = np.concatenate([one.mask for one in executions if one.mask is not None])
        counts = self.count(first.kind, addresses, mask)
        start = 0
        for key, execution in waiting:
            end = start + len(execution.addresses)
            found = _summed(WarpCounts(counts.cost[start:end], counts.least[start:end]))
            start = end
            if len(self._patterns) >= _PATTERNS_KEPT:
                self._patterns.clear()
            self._patterns[key] = found
            self._tally(execution, found)

    def _tally(self, execution: Execution, found: PatternCost) -> None:
        tally = self.tallies.get(execution.pc)
        if tally is None:
            tally = self.tallies[execution.pc] = Tally()
        tally.cost += found.cost
        tally.least += found.least
        excess = found.worst_cost - found.worst_least
        if excess < tally.worst_excess:
            return
        row = found.worst_row
        warp = int(execution.first_lanes[row]) // WARP_LANES
        place = (*execution.where.first_block[::-1], warp, int(execution.addresses[row, 0]))
        if excess > tally.worst_excess or place < tally.worst_place:
            tally.worst_excess = excess
            tally.worst_place = place
            tally.worst = _instance(execution, found)


def _summed(counts: WarpCounts) -> PatternCost:
    worst_row = int((counts.cost - counts.least).argmax())
    return PatternCost(
        int(counts.cost.sum()),
        int(counts.least.sum()),
        worst_row,
        int(counts.cost[worst_row]),
        int(counts.least[worst_row]),
    )


def _instance(execution: Execution, found: PatternCost) -> Instance:
    """The worst warp of an execution."""
    row = found.worst_row
    where = execution.where
    rank, lane_of_block = divmod(int(execution.first_lanes[row]), where.block_lanes)
    places = execution.addresses[row].tolist()
    active = [True] * len(places) if execution.mask is None else execution.mask[row].tolist()
    return Instance(
        execution.kind,
        found.worst_cost,
        found.worst_least,
        block_index(where.first_block, where.cluster, rank),
        lane_of_block // WARP_LANES,
        tuple(place if taken else None for place, taken in zip(places, active, strict=True)),
    )
