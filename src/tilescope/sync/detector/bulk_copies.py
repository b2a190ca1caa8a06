"""Bulk and tensor copies, and stores that arrive later: units of the chip that read and write by the async proxy."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from tilescope.sync.address import SHARED_RANK_SHIFT, is_in_window
from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.detector.accesses import Request, Touching
from tilescope.sync.detector.context import Witness, mistake_of
from tilescope.sync.detector.mbarrier_order import MbarrierOrder, Mbarriers
from tilescope.sync.detector.race import Side
from tilescope.sync.epoch import UNDER_WAY, first_of_each, pcs_of, stamp_base, stamped, taken_apart
from tilescope.sync.events import AsyncStoreIssued, CopyCompleted, CopyIssued, GroupWait
from tilescope.sync.footprint import CellNumbers, Cells, one_row
from tilescope.sync.lane_clocks import (
    BULK_READ,
    BULK_WRITE,
    FENCED_GLOBAL,
    FENCED_SHARED,
    KNOWN,
    Clock,
)
from tilescope.sync.shadow.accessor import Unit
from tilescope.sync.shadow.shadow_cells import Met
from tilescope.tensor_map.map_descriptor import DESCRIPTOR_BYTES


class Landing(NamedTuple):
    """A copy into shared memory under way: the cells that it writes, with what stamp, and its mbarrier."""

    cells: Cells
    stamp: int
    barrier: MbarrierOrder
    base: int
    phase: int  # of the mbarrier, in which it was issued

    @property
    def read_stamp(self) -> int:
        """The stamp of what it reads: finished for those who know that the phase has ended."""
        return int(stamped(self.base, self.barrier.column, self.barrier.phases + 1))


class _RemoteRead(NamedTuple):
    """A copy out of a block's shared memory into another block's, which tells an mbarrier there."""

    rank: int
    barrier: MbarrierOrder
    epoch: int
    pc: int


class BulkCopies:
    """The bulk and tensor copies of one cluster."""

    def __init__(self, witness: Witness, touching: Touching, mbarriers: Mbarriers) -> None:
        self._witness = witness
        self._touching = touching
        self._mbarriers = mbarriers
        self._stores: dict[int, tuple[int, int]] = {}  # by lane: (epoch, pc) of its last store
        self._remote_reads: list[_RemoteRead] = []
        self._landings: WeakKeyDictionary[CopyIssued | AsyncStoreIssued, Landing] = WeakKeyDictionary()

    def issue(self, event: CopyIssued) -> None:
        """A bulk or tensor copy is issued."""
        if event.shared is None:
            return
        witness = self._witness
        shared = event.shared.cells(witness.cell_bytes)
        memory = None if event.memory is None else event.memory.whole_cells(witness.launch.memory.cell_bytes)
        if event.barrier is None:
            self._store(event.lane, shared, event.group)
            if memory is not None:
                self._write_memory(event.lane, memory, event.group, is_reduction=event.is_reduction)
            return
        if event.source is not None:
            self._read_source(event.lane, event.source.cells(witness.cell_bytes), event.barrier)
        landing = self._load(event.lane, shared, event.barrier, is_reduction=event.is_reduction)
        if memory is not None:
            self._read_memory(event.lane, memory, landing)
        if event.map_address is not None:
            self._read_map(event.map_address, landing)
        self._landings[event] = landing

    def complete(self, event: CopyCompleted) -> None:
        """The bytes of a copy are there; its mbarrier counts them next."""
        landing = self._landings.get(event.issue)
        if landing is not None:
            self._land(landing, event.size_bytes)

    def _load(self, lane: int, cells: Cells, barrier_address: int, *, is_reduction: bool) -> Landing:
        """A copy into shared memory that will tell an mbarrier."""
        witness = self._witness
        barrier = self._mbarriers.issue(barrier_address, np.array([lane]))
        unit = self._unit(lane, FENCED_SHARED)
        now = Side(witness.pc, "copy", lane)
        met = witness.shared.unknown_writes(cells, unit, strong=is_reduction)
        if met is not None:
            witness.tell_of_unit(met, cells, now, unit, "shared")
        for read in witness.shared.unknown_reads(cells, replace(unit, proxy=KNOWN), strong=is_reduction):
            self._tell_of_reads(read, cells, now)
        return self._under_way(cells, barrier, is_strong=is_reduction)

    def _under_way(self, cells: Cells, barrier: MbarrierOrder, *, is_strong: bool) -> Landing:
        base = stamp_base(self._witness.pc, is_strong=is_strong, is_asynchronous=True)
        stamp = int(stamped(base, barrier.column, UNDER_WAY))
        self._witness.shared.write(cells, stamp)
        barrier.last_copy = (UNDER_WAY, self._witness.pc)
        barrier.byte_pcs.add(self._witness.pc)
        return Landing(cells, stamp, barrier, base, barrier.phases)

    def _tell_of_reads(self, met: Met, cells: Cells, now: Side) -> None:
        """Reads that may come before or after a copy: of old bytes, or, where nobody had written any, of its own."""
        witness = self._witness
        for index in first_of_each(pcs_of(met.stamps)):
            before = witness.side(taken_apart(int(met.stamps[index])), was_write=False)
            address = witness.address_of(cells, int(met.places[index]), "shared")
            if witness.shared.writes[address // witness.cell_bytes] == 0:
                witness.tell("copy wait", now, before, "shared", address)
            else:
                witness.tell(mistake_of(before.how, "copy", was_write=False), before, now, "shared", address)

    def _land(self, landing: Landing, size_bytes: int) -> None:
        barrier = landing.barrier
        epoch = barrier.phases + 1
        after = int(stamped(landing.base, barrier.column, epoch))
        self._witness.shared.restamp(landing.cells, landing.stamp, after)
        barrier.last_copy = (epoch, self._witness.pc)
        barrier.came_bytes += size_bytes
        if landing.phase < barrier.phases:
            barrier.spill(size_bytes, landing.phase)

    def issue_async_store(self, event: AsyncStoreIssued) -> None:
        """st.async or red.async: each lane's value will arrive before the mbarrier's phase completes."""
        witness = self._witness
        if not event.is_by_threads:
            cells = one_row(int(event.places[0]), event.size_bytes).cells(witness.cell_bytes)
            self._landings[event] = self._load(int(event.lanes[0]), cells, event.barrier, is_reduction=False)
            return
        barrier = self._mbarriers.issue(event.barrier, event.lanes)
        touch = self._touching.shared_touch("copy", Request(event.lanes, event.places, event.size_bytes))
        self._touching.meet(witness.shared, touch)
        self._landings[event] = self._under_way(touch.cells, barrier, is_strong=False)

    def _store(self, lane: int, cells: Cells, group: int) -> None:
        """A copy out of shared memory: it reads its source until a wait_group.read, or a wait_group."""
        witness = self._witness
        self._read_shared(lane, cells)
        column = BULK_READ * witness.knowledge.lane_count + lane
        stamp = int(stamped(stamp_base(witness.pc, is_asynchronous=True), column, group + 1))
        witness.shared.read_by_unit(cells, witness.bulk_unit, stamp)
        self._stores[lane] = (group + 1, witness.pc)

    def _read_source(self, lane: int, cells: Cells, barrier_address: int) -> None:
        """The source of a copy to another block's shared memory, which is read until the mbarrier's phase ends."""
        witness = self._witness
        self._read_shared(lane, cells)
        barrier = self._mbarriers.named(barrier_address)
        epoch = barrier.phases + 1
        stamp = int(stamped(stamp_base(witness.pc, is_asynchronous=True), barrier.column, epoch))
        witness.shared.read_by_unit(cells, witness.bulk_unit, stamp)
        rank = int(witness.cluster.block_of_lane[lane])
        if barrier_address >> SHARED_RANK_SHIFT != rank:
            self._remote_reads.append(_RemoteRead(rank, barrier, epoch, witness.pc))

    def _read_shared(self, lane: int, cells: Cells) -> None:
        witness = self._witness
        unit = self._unit(lane, FENCED_SHARED)
        now = Side(witness.pc, "bulk store", lane)
        met = witness.shared.unknown_writes(cells, unit)
        if met is not None:
            witness.tell_of_unit(met, cells, now, unit, "shared")
        witness.tell_of_unwritten(cells, now)

    def wait(self, event: GroupWait) -> None:
        """cp.async.bulk.wait_group: how many groups of each lane are finished, or have been read."""
        knowledge = self._witness.knowledge
        for kind in (BULK_READ,) if event.only_read else (BULK_READ, BULK_WRITE):
            knowledge.finish_own(kind * knowledge.lane_count + event.lanes, event.completed)

    def _read_memory(self, lane: int, cells: CellNumbers, landing: Landing) -> None:
        """A copy reads global memory until the phase of its mbarrier ends."""
        if not len(cells):
            return
        witness = self._witness
        unit = self._unit(lane, FENCED_GLOBAL)
        now = Side(witness.pc, "copy", lane)
        for piece in witness.launch.memory.pieces(cells):
            table = piece.stretch.table
            met = table.unknown_writes(piece.cells, unit)
            if met is not None:
                witness.tell_of_unit(met, piece.cells + piece.stretch.first, now, unit, "global")
            table.read_by_unit(piece.cells, 0, landing.read_stamp, witness.number)

    def _read_map(self, address: int, landing: Landing) -> None:
        """A copy reads its map until the phase of its mbarrier ends."""
        witness = self._witness
        if is_in_window("param", address):
            return  # which no store changes
        for piece in witness.launch.memory.pieces(witness.global_cells_at(address, DESCRIPTOR_BYTES)):
            piece.stretch.table.read_by_unit(piece.cells, 0, landing.read_stamp, witness.number)

    def _write_memory(self, lane: int, cells: CellNumbers, group: int, *, is_reduction: bool) -> None:
        """A copy writes global memory as part of a bulk group of its thread."""
        if not len(cells):
            return
        witness = self._witness
        unit = self._unit(lane, FENCED_GLOBAL)
        now = Side(witness.pc, "bulk store", lane)
        base = stamp_base(witness.pc, is_strong=is_reduction, is_asynchronous=True)
        column = BULK_WRITE * witness.knowledge.lane_count + lane
        for piece in witness.launch.memory.pieces(cells):
            table = piece.stretch.table
            in_memory = piece.cells + piece.stretch.first
            met = table.unknown_writes(piece.cells, unit, strong=is_reduction)
            if met is not None:
                witness.tell_of_unit(met, in_memory, now, unit, "global")
            for read in table.unknown_reads(piece.cells, unit, strong=is_reduction):
                index = 0
                before = witness.side(taken_apart(int(read.stamps[index])), was_write=False)
                address = witness.address_of(in_memory, int(read.places[index]), "global")
                witness.tell("race", before, now, "global", address, **witness.foreign(read, index))
            table.write(piece.cells, int(stamped(base, column, group + 1)), witness.number)

    def _unit(self, lane: int, proxy: int) -> Unit:
        knowledge = self._witness.knowledge
        return Unit(knowledge, knowledge.view(lane), knowledge.others[knowledge.row_of_lane[lane]], proxy)

    def end(self, lanes: LaneNumbers, rank: int, clock: Clock) -> None:
        """A block has ended: what may still touch its shared memory."""
        witness = self._witness
        for address, barrier in self._mbarriers.at.items():
            if address >> SHARED_RANK_SHIFT == rank and barrier.last_copy is not None:
                epoch, pc = barrier.last_copy
                if clock.over[barrier.column] < epoch:
                    witness.tell(
                        "block end", None, Side(pc, "copy", None), "shared", witness.cluster.place(address), rank=rank
                    )
        for lane in lanes[np.isin(lanes, list(self._stores))].tolist():
            epoch, pc = self._stores[lane]
            if clock.known[BULK_READ * witness.knowledge.lane_count + lane] < epoch:
                witness.tell("block end", None, Side(pc, "bulk store", lane), "shared", None, rank=rank)
        for read in self._remote_reads:
            if read.rank == rank and clock.over[read.barrier.column] < read.epoch:
                witness.tell("block end", None, Side(read.pc, "bulk store", None), "shared", None, rank=rank)
