"""How many wavefronts of shared memory, or sectors of global memory, the executions of each instruction take.

Executions wait until there are enough of them to be counted together, warp by warp: a thousand warps take little longer than one.

    pc 12   lanes 0 … 63    addresses …       →    warp 0   32 addresses
    pc 12   lanes 32, 33    addresses …            warp 1   32 addresses
                                                   warp 1    2 addresses

An execution with the very arrays that its instruction had last is counted together with that one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.machine.decoding.access_kind import AccessKind
from tilescope.smem.banks import count_ideal, count_wavefronts
from tilescope.sync.address import Addresses
from tilescope.sync.cluster_shape import BlockIndex, LaneNumbers, block_index

Mask = npt.NDArray[np.bool_]
SECTOR_BYTES = 32
_SECTOR_SHIFT = SECTOR_BYTES.bit_length() - 1
_WARP_SHIFT = WARP_LANES.bit_length() - 1  # numpy divides four times slower than it shifts
_MOST_WAITING = 1 << 15  # lanes whose addresses wait to be counted together


class Where(NamedTuple):
    """A cluster in its grid, or several that run in lockstep: enough to name the block and the warp of a lane."""

    first_blocks: npt.NDArray[np.int64]  # (clusters, 3): x, y, z
    cluster: BlockIndex  # its extents
    block_lanes: int
    cluster_lanes: int


class Execution(NamedTuple):
    """An instruction, as some lanes of a cluster executed it together, in ascending order."""

    pc: int
    kind: AccessKind
    lanes: LaneNumbers
    addresses: Addresses
    where: Where

    def is_same(self, other: Execution) -> bool:
        """Whether another execution of the instruction has the same arrays: what one costs, the other costs."""
        return self.addresses is other.addresses and self.lanes is other.lanes and self.where is other.where


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
    worst_excess: int = -1  # so that one execution is stored as an example, with or without a conflict
    worst_place: tuple[int, ...] = ()  # of equal executions the first of the grid is stored, in any order of blocks
    worst: Instance | None = None

    def is_worse(self, excess: int, place: tuple[int, ...]) -> bool:
        """Whether an execution is worse than the worst so far, or as bad and further in front."""
        return excess > self.worst_excess or (excess == self.worst_excess and place < self.worst_place)

    def keep(self, excess: int, place: tuple[int, ...], instance: Instance | None) -> None:
        """Keep an execution as the worst."""
        self.worst_excess = excess
        self.worst_place = place
        self.worst = instance


class WarpCounts(NamedTuple):
    """Counts for each warp, and the least possible."""

    cost: LaneNumbers
    least: LaneNumbers


def wavefronts_of(kind: AccessKind, addresses: Addresses, mask: Mask | None) -> WarpCounts:
    """Turns of shared memory, by the measured rule."""
    assert kind.shared_op is not None
    return WarpCounts(count_wavefronts(kind.shared_op, addresses, mask), count_ideal(kind.shared_op, addresses, mask))


def sectors_of(kind: AccessKind, addresses: Addresses, _mask: Mask | None) -> WarpCounts:
    """The accessed sectors of 32 bytes, and the minimum number for the bytes.

    Accesses are aligned to their size, so two of them are equal or disjoint.

    >>> from tilescope.machine.decoding.access_kind import access_kind
    >>> counts = sectors_of(access_kind("ld", 4), np.arange(32)[None] * 8, None)
    >>> counts.cost, counts.least
    (array([8]), array([4]))
    """
    is_in_order = (addresses[:, 1:] >= addresses[:, :-1]).all()
    in_order = addresses if is_in_order else np.sort(addresses, axis=1)
    asked_bytes = _different(in_order) * kind.size_bytes
    touched = _different(in_order >> _SECTOR_SHIFT) * max(1, kind.size_bytes // SECTOR_BYTES)
    return WarpCounts(touched, -(-asked_bytes // SECTOR_BYTES))


def _different(in_order: Addresses) -> Addresses:
    """How many different numbers each row of ascending ones has."""
    count: Addresses = np.count_nonzero(in_order[:, 1:] != in_order[:, :-1], axis=1) + 1
    return count


class WarpRows(NamedTuple):
    """Executions taken apart: a row for every warp that took part in one.

    Addresses are (rows, lanes); inactive lanes have the address of the first active lane.
    """

    execution: LaneNumbers  # which of the executions
    first_lane: LaneNumbers  # of the cluster, the first that takes part
    addresses: Addresses
    mask: Mask | None  # None: all lanes take part


def warp_rows(executions: Sequence[Execution]) -> WarpRows:
    """The warps of executions of one kind."""
    width = executions[0].kind.lanes
    lanes = np.concatenate([execution.lanes for execution in executions])
    addresses = np.concatenate([execution.addresses for execution in executions])
    execution_of_lane = np.repeat(np.arange(len(executions)), [len(execution.lanes) for execution in executions])
    warps = lanes >> _WARP_SHIFT
    is_first = np.ones(len(lanes), np.bool_)
    is_first[1:] = (warps[1:] != warps[:-1]) | (execution_of_lane[1:] != execution_of_lane[:-1])
    starts = np.flatnonzero(is_first)
    if len(starts) * width == len(lanes):
        return WarpRows(execution_of_lane[starts], lanes[starts], addresses.reshape(-1, width), None)
    row = np.cumsum(is_first) - 1
    column = lanes % WARP_LANES
    by_warp = np.repeat(addresses[starts][:, None], width, axis=1)
    by_warp[row, column] = addresses
    mask = np.zeros(by_warp.shape, np.bool_)
    mask[row, column] = True
    return WarpRows(execution_of_lane[starts], lanes[starts], by_warp, mask)


@dataclass(slots=True)
class _Repeated:
    """An execution that waits to be counted, and how often its instruction has had the same since."""

    execution: Execution
    times: int = 1


@dataclass(slots=True)
class AccessCounter:
    """Counts one thing of every execution, by instruction; `finish` before the tallies are read."""

    count: Callable[[AccessKind, Addresses, Mask | None], WarpCounts]
    tallies: dict[int, Tally] = field(default_factory=dict)  # by the instruction's place in the program
    _waiting: dict[AccessKind, list[_Repeated]] = field(default_factory=dict)
    _last: dict[int, _Repeated] = field(default_factory=dict)  # by instruction, of those that wait
    _lanes_waiting: int = 0

    def add(self, execution: Execution) -> None:
        """Count an execution, sooner or later."""
        last = self._last.get(execution.pc)
        if last is not None and execution.is_same(last.execution):
            last.times += 1
            return
        waiting = self._last[execution.pc] = _Repeated(execution)
        self._waiting.setdefault(execution.kind, []).append(waiting)
        self._lanes_waiting += len(execution.addresses)
        if self._lanes_waiting >= _MOST_WAITING:
            self.finish()

    def finish(self) -> None:
        """Count what waits."""
        for waiting in self._waiting.values():
            self._count_together([entry.execution for entry in waiting], np.array([entry.times for entry in waiting]))
        self._waiting.clear()
        self._last.clear()
        self._lanes_waiting = 0

    def _count_together(self, executions: list[Execution], times: LaneNumbers) -> None:
        rows = warp_rows(executions)
        counts = self.count(executions[0].kind, rows.addresses, rows.mask)
        times_of_row = times[rows.execution]
        pcs = np.array([execution.pc for execution in executions])[rows.execution]
        places, lanes = _first_blocks(executions, rows)
        excess = counts.cost - counts.least
        # Of an instruction's rows the worst comes first, of equal ones the first of the grid.
        in_order = np.lexsort((rows.addresses[:, 0], lanes // WARP_LANES, *places.T, -excess, pcs))
        pcs_in_order = pcs[in_order]
        starts = np.flatnonzero(np.diff(pcs_in_order, prepend=-1))
        costs = np.add.reduceat((counts.cost * times_of_row)[in_order], starts)
        leasts = np.add.reduceat((counts.least * times_of_row)[in_order], starts)
        tallies = [self.tallies.setdefault(pc, Tally()) for pc in pcs_in_order[starts].tolist()]
        for tally, cost, least in zip(tallies, costs.tolist(), leasts.tolist(), strict=True):
            tally.cost += cost
            tally.least += least
        worst = in_order[starts]
        columns = (worst, lanes[worst], excess[worst], rows.addresses[worst, 0], rows.execution[worst])
        for tally, (x, y, z), row, lane, row_excess, address, number in zip(
            tallies, places[worst].tolist(), *(column.tolist() for column in columns), strict=True
        ):
            place = (z, y, x, lane // WARP_LANES, address)
            if tally.is_worse(row_excess, place):
                first = _FirstLane((x, y, z), lane)
                tally.keep(row_excess, place, _instance(executions[number], first, rows, counts, row))

    def add_counts(self, other: AccessCounter) -> None:
        """Add what another counter has counted of other clusters of the launch."""
        other.finish()
        for pc, other_tally in other.tallies.items():
            tally = self.tallies.setdefault(pc, Tally())
            tally.cost += other_tally.cost
            tally.least += other_tally.least
            if tally.is_worse(other_tally.worst_excess, other_tally.worst_place):
                tally.keep(other_tally.worst_excess, other_tally.worst_place, other_tally.worst)


class _FirstLane(NamedTuple):
    """The first lane of a warp that took part, in its cluster, and the cluster's first block."""

    first_block: BlockIndex
    lane: int


def _first_blocks(executions: Sequence[Execution], rows: WarpRows) -> tuple[npt.NDArray[np.int64], LaneNumbers]:
    """For each row the first block of its cluster, and its first lane in the cluster."""
    wheres = [execution.where for execution in executions]
    width = wheres[0].cluster_lanes
    starts = np.cumsum([0, *[len(where.first_blocks) for where in wheres[:-1]]])
    clusters = starts[rows.execution] + rows.first_lane // width
    return np.concatenate([where.first_blocks for where in wheres])[clusters], rows.first_lane % width


def _instance(execution: Execution, first: _FirstLane, rows: WarpRows, counts: WarpCounts, row: int) -> Instance:
    """One warp's execution."""
    where = execution.where
    rank, lane_of_block = divmod(first.lane, where.block_lanes)
    places: list[int | None] = rows.addresses[row].tolist()
    if rows.mask is not None:
        active = rows.mask[row].tolist()
        places = [place if is_active else None for place, is_active in zip(places, active, strict=True)]
    return Instance(
        execution.kind,
        int(counts.cost[row]),
        int(counts.least[row]),
        block_index(first.first_block, where.cluster, rank),
        lane_of_block // WARP_LANES,
        tuple(places),
    )
