"""Bulk and tensor copies, and stores that arrive later: units of the chip that access memory by the async proxy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from tilescope.sync.address import SHARED_RANK_SHIFT, is_in_window
from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.detector.accesses import Accesses, Request
from tilescope.sync.detector.context import DetectorContext, classify_conflict
from tilescope.sync.detector.mbarrier_history import MbarrierHistory
from tilescope.sync.detector.mbarrier_order import Mbarriers
from tilescope.sync.detector.noncoherent_loads import Writer, judge_noncoherent_store
from tilescope.sync.detector.race import Side
from tilescope.sync.epoch import (
    PENDING,
    Stamps,
    columns_of,
    epochs_of,
    first_of_each,
    pack_stamp,
    pcs_of,
    stamp_base,
    unpack_stamp,
)
from tilescope.sync.events import AsyncStoreIssued, CopyCompleted, CopyIssued, GroupWait
from tilescope.sync.footprint import CellNumbers, Cells, one_row
from tilescope.sync.lane_clocks import BULK_READ, BULK_WRITE, CP_ASYNC
from tilescope.sync.shadow.accessor import Unit
from tilescope.sync.shadow.shadow_cells import Unordered
from tilescope.sync.vector_clock import ASYNC_GLOBAL, ASYNC_SHARED, HAPPENS_BEFORE, VectorClock
from tilescope.tensor_map.map_descriptor import DESCRIPTOR_BYTES


class PendingCopy(NamedTuple):
    """A pending copy into shared memory: the cells that it writes, with what stamp, and its mbarrier."""

    cells: Cells
    stamp: int
    barrier: MbarrierHistory
    base: int
    phase: int  # of the mbarrier, in which it was issued
    is_own_load: bool  # from global memory, by a thread of the mbarrier's block

    @property
    def read_stamp(self) -> int:
        """The stamp of what it reads, which completes with the mbarrier's phase."""
        return pack_stamp(self.base, self.barrier.column, self.barrier.phases + 1)


class _RemoteRead(NamedTuple):
    """A copy out of a block's shared memory into another block's, which an mbarrier there counts."""

    rank: int
    barrier: MbarrierHistory
    epoch: int
    pc: int


@dataclass(slots=True)
class _RepeatedStore:
    """A store to global memory that several lanes issue with the same operands, and the bytes that it reads."""

    operands: tuple[object, ...]
    sources: Stamps  # of the last writes of its source: equal stamps are equal bytes
    epochs: dict[int, int]  # by lane: of its bulk group

    def is_repeated_by(self, other: _RepeatedStore) -> bool:
        """Whether another lane stores the same bytes to the same place."""
        return self.operands == other.operands and np.array_equal(self.sources, other.sources)


class BulkCopies:
    """The bulk and tensor copies of one cluster."""

    def __init__(self, context: DetectorContext, accesses: Accesses, mbarriers: Mbarriers) -> None:
        self._context = context
        self._accesses = accesses
        self._mbarriers = mbarriers
        self._stores: dict[int, tuple[int, int]] = {}  # by lane: (epoch, pc) of its last store
        self._repeated: dict[int, _RepeatedStore] = {}  # by pc: the last store to global memory
        self._remote_reads: list[_RemoteRead] = []
        self._pending: WeakKeyDictionary[CopyIssued | AsyncStoreIssued, PendingCopy] = WeakKeyDictionary()

    def issue(self, event: CopyIssued) -> None:
        """A bulk or tensor copy is issued."""
        if event.shared is None:
            return
        context = self._context
        shared = self._inside(event.shared.cells(context.cell_bytes))
        memory = None if event.memory is None else event.memory.whole_cells(context.launch.memory.cell_bytes)
        if event.barrier is None:
            self._store(event.lane, shared, event.group)
            if memory is not None:
                if not event.is_reduction:
                    self._note_store(event, shared)
                self._write_memory(event.lane, memory, event.group, is_reduction=event.is_reduction)
            return
        if event.source is not None:
            self._read_source(event.lane, event.source.cells(context.cell_bytes), event.barrier)
        is_own = event.barrier >> SHARED_RANK_SHIFT == context.cluster.block_of_lane[event.lane]
        is_own_load = bool(is_own) and event.source is None
        pending = self._load(
            event.lane, shared, event.barrier, is_reduction=event.is_reduction, is_own_load=is_own_load
        )
        if memory is not None:
            self._read_memory(event.lane, memory, pending)
        if event.map_address is not None:
            self._read_map(event.map_address, pending)
        self._pending[event] = pending

    def _inside(self, cells: Cells) -> Cells:
        """Cells without those behind the end of shared memory, at which the copy faults when it is carried out."""
        return cells if isinstance(cells, slice) else cells[cells < len(self._context.shared.writes)]

    def complete(self, event: CopyCompleted) -> None:
        """The bytes of a copy are there; its mbarrier counts them next."""
        pending = self._pending.get(event.issue)
        if pending is not None:
            self._land(pending, event.size_bytes)

    def _load(
        self, lane: int, cells: Cells, barrier_address: int, *, is_reduction: bool, is_own_load: bool
    ) -> PendingCopy:
        """A copy into shared memory that an mbarrier counts."""
        context = self._context
        barrier = self._mbarriers.issue(barrier_address, np.array([lane]))
        unit = self._unit(lane, ASYNC_SHARED)
        now = Side(context.pc, "copy", lane)
        unordered = context.shared.unordered_writes(cells, unit, strong=is_reduction)
        if unordered is not None:
            context.report_unit(unordered, cells, now, unit, "shared")
        for read in context.shared.unordered_reads(cells, replace(unit, proxy=HAPPENS_BEFORE), strong=is_reduction):
            self._report_reads(read, cells, now)
        self._mbarriers.bytes.copy(cells, now)
        return self._under_way(cells, barrier, is_strong=is_reduction, is_own_load=is_own_load)

    def _under_way(self, cells: Cells, barrier: MbarrierHistory, *, is_strong: bool, is_own_load: bool) -> PendingCopy:
        base = stamp_base(self._context.pc, is_strong=is_strong, is_asynchronous=True)
        stamp = pack_stamp(base, barrier.column, PENDING)
        self._context.shared.write(cells, stamp)
        barrier.issue_copy(self._context.pc, is_own_load=is_own_load)
        return PendingCopy(cells, stamp, barrier, base, barrier.phases, is_own_load)

    def _report_reads(self, unordered: Unordered, cells: Cells, now: Side) -> None:
        """Report reads that are unordered with a copy: of old bytes or, if these were never written, of the copied bytes."""
        context = self._context
        for index in first_of_each(pcs_of(unordered.stamps)):
            before = context.side(unpack_stamp(int(unordered.stamps[index])), was_write=False)
            address = context.address_of(cells, int(unordered.places[index]), "shared")
            if context.shared.writes[address // context.cell_bytes] == 0:
                context.report("copy wait", now, before, "shared", address)
            else:
                context.report(classify_conflict(before.how, "copy", was_write=False), before, now, "shared", address)

    def _land(self, pending: PendingCopy, size_bytes: int) -> None:
        barrier = pending.barrier
        epoch = barrier.phases + 1
        after = pack_stamp(pending.base, barrier.column, epoch)
        self._context.shared.restamp(pending.cells, pending.stamp, after)
        barrier.complete_copy(self._context.pc, size_bytes, is_own_load=pending.is_own_load)
        if pending.phase < barrier.phases:
            barrier.spill(size_bytes, pending.phase)

    def issue_async_store(self, event: AsyncStoreIssued) -> None:
        """st.async or red.async: each lane's value will arrive before the mbarrier's phase completes."""
        context = self._context
        if not event.is_by_threads:
            cells = one_row(int(event.places[0]), event.size_bytes).cells(context.cell_bytes)
            self._pending[event] = self._load(
                int(event.lanes[0]), cells, event.barrier, is_reduction=False, is_own_load=False
            )
            return
        barrier = self._mbarriers.issue(event.barrier, event.lanes)
        thread_access = self._accesses.shared_access("copy", Request(event.lanes, event.places, event.size_bytes))
        self._accesses.find_races(context.shared, thread_access)
        self._mbarriers.bytes.copy(thread_access.cells, Side(context.pc, "copy", int(event.lanes[0])))
        self._pending[event] = self._under_way(thread_access.cells, barrier, is_strong=False, is_own_load=False)

    def _store(self, lane: int, cells: Cells, group: int) -> None:
        """A copy out of shared memory: it reads its source until a wait_group.read, or a wait_group."""
        context = self._context
        self._read_shared(lane, cells)
        column = BULK_READ * context.clocks.lane_count + lane
        stamp = pack_stamp(stamp_base(context.pc, is_asynchronous=True), column, group + 1)
        context.shared.read_by_unit(cells, context.bulk_unit, stamp)
        self._stores[lane] = (group + 1, context.pc)

    def _read_source(self, lane: int, cells: Cells, barrier_address: int) -> None:
        """The source of a copy to another block's shared memory, which is read until the mbarrier's phase completes."""
        context = self._context
        self._read_shared(lane, cells)
        barrier = self._mbarriers.history_at(barrier_address)
        epoch = barrier.phases + 1
        stamp = pack_stamp(stamp_base(context.pc, is_asynchronous=True), barrier.column, epoch)
        context.shared.read_by_unit(cells, context.bulk_unit, stamp)
        rank = int(context.cluster.block_of_lane[lane])
        if barrier_address >> SHARED_RANK_SHIFT != rank:
            self._remote_reads.append(_RemoteRead(rank, barrier, epoch, context.pc))

    def _read_shared(self, lane: int, cells: Cells) -> None:
        context = self._context
        unit = self._unit(lane, ASYNC_SHARED)
        now = Side(context.pc, "bulk store", lane)
        unordered = context.shared.unordered_writes(cells, unit)
        if unordered is not None:
            context.report_unit(unordered, cells, now, unit, "shared")
        context.report_narrow_writes(context.shared, cells, now, unit)
        context.report_unwritten(cells, now)

    def wait(self, event: GroupWait) -> None:
        """cp.async.bulk.wait_group: how many groups of each lane have completed, or have been read."""
        clocks = self._context.clocks
        for kind in (BULK_READ,) if event.only_read else (BULK_READ, BULK_WRITE):
            clocks.complete_own(kind * clocks.lane_count + event.lanes, event.completed)

    def _read_memory(self, lane: int, cells: CellNumbers, pending: PendingCopy) -> None:
        """A copy reads global memory until the phase of its mbarrier completes."""
        if not len(cells):
            return
        context = self._context
        unit = self._unit(lane, ASYNC_GLOBAL)
        now = Side(context.pc, "copy", lane)
        for piece in context.launch.memory.pieces(cells):
            table = piece.stretch.table
            unordered = table.unordered_writes(piece.cells, unit)
            if unordered is not None:
                context.report_unit(unordered, piece.cells + piece.stretch.first, now, unit, "global")
            context.report_narrow_writes(table, piece.cells, now, unit, table_start=piece.stretch.first)
            table.read_by_unit(piece.cells, 0, pending.read_stamp, context.number)

    def _read_map(self, address: int, pending: PendingCopy) -> None:
        """A copy reads its map until the phase of its mbarrier completes."""
        context = self._context
        if is_in_window("param", address):
            return  # which no store changes
        for piece in context.launch.memory.pieces(context.global_cells_at(address, DESCRIPTOR_BYTES)):
            piece.stretch.table.read_by_unit(piece.cells, 0, pending.read_stamp, context.number)

    def _write_memory(self, lane: int, cells: CellNumbers, group: int, *, is_reduction: bool) -> None:
        """A copy writes global memory as part of a bulk group of its thread."""
        if not len(cells):
            return
        context = self._context
        unit = self._unit(lane, ASYNC_GLOBAL)
        now = Side(context.pc, "bulk store", lane)
        base = stamp_base(context.pc, is_strong=is_reduction, is_asynchronous=True)
        column = BULK_WRITE * context.clocks.lane_count + lane
        for piece in context.launch.memory.pieces(cells):
            table = piece.stretch.table
            in_memory = piece.cells + piece.stretch.first
            unordered = table.unordered_writes(piece.cells, unit, strong=is_reduction)
            if unordered is not None and not is_reduction:
                unordered = self._without_repeated(unordered, in_memory, now)
            if unordered is not None:
                context.report_unit(unordered, in_memory, now, unit, "global")
            for read in table.unordered_reads(piece.cells, replace(unit, proxy=HAPPENS_BEFORE), strong=is_reduction):
                index = 0
                before = context.side(unpack_stamp(int(read.stamps[index])), was_write=False)
                address = context.address_of(in_memory, int(read.places[index]), "global")
                context.report("race", before, now, "global", address, **context.foreign(read, index))
            if table.noncoherent is not None:
                writer = Writer(now.how, np.array([lane]), len(piece.cells))
                judge_noncoherent_store(context, piece.stretch, piece.cells, unit, writer)
            table.write(piece.cells, pack_stamp(base, column, group + 1), context.number)

    def _note_store(self, event: CopyIssued, cells: Cells) -> None:
        """Remember a store; another lane may issue it again, as all lanes of a warp do in CUTLASS's epilogues."""
        epoch = event.group + 1
        store = _RepeatedStore(event.record._replace(lane=0), self._context.shared.writes[cells].copy(), {})
        last = self._repeated.get(event.pc)
        if last is not None and last.is_repeated_by(store):
            store.epochs.update(last.epochs)
        store.epochs[event.lane] = epoch
        self._repeated[event.pc] = store

    def _without_repeated(self, unordered: Unordered, cells: CellNumbers, now: Side) -> Unordered | None:
        """Leave out stores of the same bytes by other lanes, whose sources may still be read: they change nothing."""
        clocks = self._context.clocks
        epochs = self._repeated[now.pc].epochs
        columns = columns_of(unordered.stamps)
        is_equal = np.zeros(len(columns), np.bool_)
        for lane, epoch in epochs.items():
            if lane == now.lane or clocks.own[BULK_READ * clocks.lane_count + lane] >= epoch:
                continue
            column = BULK_WRITE * clocks.lane_count + lane
            is_equal |= (
                (columns == column) & (epochs_of(unordered.stamps) == epoch) & (pcs_of(unordered.stamps) == now.pc)
            )
        if unordered.clusters is not None:
            is_equal &= unordered.clusters == self._context.number
        if not is_equal.any():
            return unordered
        index = int(np.argmax(is_equal))
        before = self._context.side(unpack_stamp(int(unordered.stamps[index])), was_write=True)
        address = self._context.address_of(cells, int(unordered.places[index]), "global")
        self._context.report("repeated store", before, now, "global", address)
        if is_equal.all():
            return None
        left = ~is_equal
        clusters = None if unordered.clusters is None else unordered.clusters[left]
        return Unordered(unordered.stamps[left], unordered.places[left], clusters)

    def _unit(self, lane: int, proxy: int) -> Unit:
        clocks = self._context.clocks
        others = clocks.others[clocks.row_of_lane[lane]]
        return Unit(clocks, clocks.view(lane), others, proxy, fenced_kinds=CP_ASYNC + 1)

    def end(self, lanes: LaneNumbers, rank: int, clock: VectorClock) -> None:
        """Report pending copies that may still access the shared memory of a block that has ended.

        An H200 keeps a block's shared memory until the block's own copies from and to global memory have completed. The
        documents do not promise it: a note. It does not keep the block for copies of other blocks.
        """
        context = self._context
        clocks = context.clocks
        for address, barrier in self._mbarriers.at.items():
            if address >> SHARED_RANK_SHIFT != rank:
                continue
            place = context.cluster.place(address)
            own_pc = barrier.unfinished_copy(clock.over, is_own_load=True)
            if own_pc is not None:
                context.report("copy left", None, Side(own_pc, "copy", None), "shared", place, rank=rank)
            other_pc = barrier.unfinished_copy(clock.over, is_own_load=False)
            if other_pc is not None:
                context.report("block end", None, Side(other_pc, "copy", None), "shared", place, rank=rank)
        for lane in lanes[np.isin(lanes, list(self._stores))].tolist():
            epoch, pc = self._stores[lane]
            if clock.known[BULK_READ * clocks.lane_count + lane] < epoch:
                context.report("copy left", None, Side(pc, "bulk store", lane), "shared", None, rank=rank)
        for read in self._remote_reads:
            if read.rank == rank and clock.over[read.barrier.column] < read.epoch:
                context.report("block end", None, Side(read.pc, "bulk store", None), "shared", None, rank=rank)
