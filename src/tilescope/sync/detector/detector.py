"""The happens-before data-race detector of one cluster: it hears of every access and synchronization, and judges them.

        load, store, atomic    ──▶ accesses           ┐
        fences, flags          ──▶ fences             │     shadow: the last accesses of each cell
        bar, barrier.cluster   ──▶ barriers           ├──▶  clocks: does that access happen before this one?
        mbarrier               ──▶ mbarriers          │     conflicts: what nothing orders
        cp.async, bulk, TMA    ──▶ copies, bulk       │
        wgmma                  ──▶ products           │
        tcgen05                ──▶ tensor             ┘

What it finds depends on the path that threads take and on their data, not on the order in which this run executes them.
It also answers the two questions of the bus: who gets a stale value, and whose mbarrier test fails once.

Parts for instructions that a kernel may not have are made when the first such event comes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tilescope.sync.address import SHARED_OFFSET_MASK, SHARED_RANK_SHIFT
from tilescope.sync.bus import Handler, StaleValues
from tilescope.sync.cluster_shape import ClusterShape
from tilescope.sync.detector.accesses import Touching
from tilescope.sync.detector.context import BarrierBytes, LaunchOrder, Witness
from tilescope.sync.detector.fences import Fences
from tilescope.sync.detector.mbarrier_order import Mbarriers
from tilescope.sync.detector.race import Side
from tilescope.sync.detector.thread_barriers import ThreadBarriers
from tilescope.sync.epoch import taken_apart
from tilescope.sync.events import (
    AsyncStoreIssued,
    Atomic,
    BarrierArrive,
    BarrierComplete,
    BlockEnd,
    ClusterArrive,
    ClusterEnd,
    ClusterPass,
    Converge,
    CopyCompleted,
    CopyIssued,
    CpAsyncArrived,
    CpAsyncArriveIssued,
    CpAsyncIssued,
    Flags,
    GroupCommit,
    GroupWait,
    Load,
    LoadedRegisterAccess,
    MapRead,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierInit,
    MbarrierInitFence,
    MbarrierInval,
    MbarrierPhaseCompleted,
    MbarrierTest,
    MemoryFence,
    ProxyFence,
    RegisterAccess,
    Store,
    TensormapAcquire,
    TensormapRelease,
    TmemAlloc,
    TmemCommit,
    TmemCommitArrived,
    TmemDealloc,
    TmemFence,
    TmemMove,
    TmemWait,
    TmemWork,
    WarpSync,
    WgmmaFence,
    WgmmaIssued,
)
from tilescope.sync.lane_clocks import ALWAYS, FENCED_GLOBAL, FENCED_SHARED, KNOWN, Clock, joined
from tilescope.sync.shadow.accessor import Unit

if TYPE_CHECKING:
    from tilescope.sync.detector.bulk_copies import BulkCopies
    from tilescope.sync.detector.map_edits import MapEdits
    from tilescope.sync.detector.thread_copies import ThreadCopies
    from tilescope.sync.detector.tmem_order import TensorMemoryOrder
    from tilescope.sync.detector.wgmma_order import Products

RECORDED_COPIES = 100_000  # a run keeps records of no more


class Order:
    """The detector of one cluster, part by part."""

    def __init__(self, cluster: ClusterShape, launch: LaunchOrder) -> None:
        self.witness = Witness(cluster, launch)
        self.fences = Fences(self.witness)
        self.touching = Touching(self.witness, self.fences)
        self.barriers = ThreadBarriers(self.witness, self.fences)
        self.mbarriers = Mbarriers(self.witness, self.fences)
        launch.running[cluster.first_block] = self

    @cached_property
    def copies(self) -> ThreadCopies:
        """cp.async."""
        from tilescope.sync.detector.thread_copies import ThreadCopies

        return ThreadCopies(self.witness, self.touching, self.mbarriers)

    @cached_property
    def bulk(self) -> BulkCopies:
        """Bulk and tensor copies."""
        from tilescope.sync.detector.bulk_copies import BulkCopies

        return BulkCopies(self.witness, self.touching, self.mbarriers)

    @cached_property
    def products(self) -> Products:
        """Wgmma."""
        from tilescope.sync.detector.wgmma_order import Products

        return Products(self.witness)

    @cached_property
    def maps(self) -> MapEdits:
        """Tensor maps that the kernel edits."""
        from tilescope.sync.detector.map_edits import MapEdits

        return MapEdits(self.witness)

    @cached_property
    def tensor(self) -> TensorMemoryOrder:
        """tcgen05."""
        from tilescope.sync.detector.tmem_order import TensorMemoryOrder

        return TensorMemoryOrder(self.witness, self.mbarriers)

    def handlers(self) -> dict[type, Handler]:
        """Which method judges each event."""
        judges: dict[type, Callable[[Any], None]] = {
            Store: self._store,
            Atomic: self._atomic,
            CpAsyncIssued: lambda event: self.copies.issue(event),
            CpAsyncArriveIssued: lambda event: self.copies.issue_arrival(event),
            CpAsyncArrived: lambda event: self.copies.arrive(event),
            GroupCommit: self._commit_group,
            GroupWait: self._wait_group,
            CopyIssued: self._issue_copy,
            CopyCompleted: lambda event: self.bulk.complete(event),
            AsyncStoreIssued: lambda event: self.bulk.issue_async_store(event),
            MapRead: lambda event: self.maps.read(event),
            TensormapRelease: lambda event: self.maps.release(event),
            TensormapAcquire: lambda event: self.maps.acquire(event),
            MbarrierInit: self.mbarriers.init,
            MbarrierInval: self.mbarriers.inval,
            MbarrierArrive: self.mbarriers.arrive,
            MbarrierExpect: self.mbarriers.expect,
            MbarrierPhaseCompleted: self.mbarriers.complete_phase,
            MbarrierInitFence: lambda event: self.mbarriers.fence_init(event.lanes),
            MemoryFence: lambda event: self.fences.fence(event.lanes, event.scope),
            ProxyFence: self._fence_proxy,
            BarrierArrive: self.barriers.arrive,
            ClusterArrive: self._arrive_at_cluster,
            Converge: self.barriers.converge,
            WgmmaIssued: lambda event: self.products.issue(event),
            WgmmaFence: lambda event: self.products.fence(event),
            RegisterAccess: lambda event: self.products.access_registers(event),
            LoadedRegisterAccess: lambda event: self.tensor.access_registers(event),
            TmemAlloc: lambda event: self.tensor.allocate(event),
            TmemDealloc: lambda event: self.tensor.deallocate(event),
            TmemMove: lambda event: self.tensor.move(event),
            TmemWait: lambda event: self.tensor.wait(event),
            TmemWork: lambda event: self.tensor.work(event),
            TmemFence: lambda event: self.tensor.fence(event),
            TmemCommit: lambda event: self.tensor.commit(event),
            TmemCommitArrived: lambda event: self.tensor.arrive(event),
        }
        handlers = {event_class: self._at_pc(judge) for event_class, judge in judges.items()}
        handlers[WarpSync] = self.barriers.sync_warps
        handlers[BarrierComplete] = self.barriers.complete
        handlers[ClusterPass] = self.barriers.pass_cluster
        handlers[BlockEnd] = self._end_block
        handlers[ClusterEnd] = self._end_cluster
        return handlers

    def _at_pc(self, judge: Callable[[Any], None]) -> Handler:
        """A handler that says first which instruction is judged."""
        witness = self.witness

        def handle(event: Any) -> None:
            witness.pc = event.pc
            judge(event)

        return handle

    def stale_values(self, load: Load) -> StaleValues:
        """Judge a load; the lanes that get a stale value."""
        self.witness.pc = load.pc
        return self.touching.load(load)

    def passing_lanes(self, test: MbarrierTest) -> Flags:
        """Judge a test of an mbarrier; for each lane whether it passes."""
        self.witness.pc = test.pc
        return self.mbarriers.test(test)

    def _store(self, event: Store) -> None:
        self.touching.store(event)
        if event.space == "shared":
            self.mbarriers.overwritten(event.lanes, event.places)

    def _atomic(self, event: Atomic) -> None:
        self.touching.atomic(event)
        if event.space == "shared" and len(event.written_lanes):
            self.mbarriers.overwritten(event.written_lanes, event.written_places)

    def _commit_group(self, event: GroupCommit) -> None:
        if event.unit == "cp.async":
            self.copies.commit(event)

    def _wait_group(self, event: GroupWait) -> None:
        if event.unit == "cp.async" or event.newest is None:
            self.copies.wait(event)
        elif event.unit == "bulk":
            self.bulk.wait(event)
        else:
            self.products.wait(event)

    def _issue_copy(self, event: CopyIssued) -> None:
        launch = self.witness.launch
        launch.copies_issued = min(launch.copies_issued + 1, RECORDED_COPIES)
        self.bulk.issue(event)

    def _fence_proxy(self, event: ProxyFence) -> None:
        fenced = []
        if event.is_for_shared:
            fenced.append(FENCED_SHARED)
        if event.is_for_global:
            fenced.append(FENCED_GLOBAL)
        self.witness.knowledge.fence(event.lanes, fenced)

    def _arrive_at_cluster(self, event: ClusterArrive) -> None:
        if not event.is_relaxed:
            self.mbarriers.release_inits(event.lanes)
        self.mbarriers.publish(event.lanes)
        self.barriers.arrive_at_cluster(event)

    def _end_block(self, event: BlockEnd) -> None:
        """All threads of a block have exited: nothing may still read or write its shared memory."""
        rank = event.rank
        witness = self.witness
        witness.ended_blocks.add(rank)
        if not witness.launch.mbarrier_uses:
            witness.launch.mbarrier_uses = self.mbarriers.uses(rank)
        lanes = np.flatnonzero(witness.cluster.block_of_lane == rank)
        clock = witness.knowledge.clock(lanes)
        before_end = self.barriers.before_end.get(rank)
        if before_end is not None:
            clock = joined(before_end, clock)
        parts = vars(self)  # those that were needed
        if "bulk" in parts:
            self.bulk.end(lanes, rank, clock)
        if "products" in parts:
            self.products.end(lanes, rank, clock)
        if "copies" in parts:
            self.copies.end(lanes, rank)
        self.fences.early.end(rank)
        if "tensor" in parts:
            self.tensor.end(rank, clock)
        self._end_of_remote_arrivals(rank, clock)
        if rank in self.touching.reached_blocks:
            self._end_of_remote_accesses(rank, clock)

    def _end_cluster(self, event: ClusterEnd) -> None:
        """All blocks have ended, and all copies have landed: keep the phases that completed before all their bytes came."""
        witness = self.witness
        for address, barrier in self.mbarriers.at.items():
            if barrier.spilled is not None:
                block = witness.cluster.block_index(address >> SHARED_RANK_SHIFT)
                witness.launch.spilled.append(BarrierBytes(address & SHARED_OFFSET_MASK, block, barrier.spilled))
        witness.launch.running.pop(witness.cluster.first_block, None)

    def _end_of_remote_arrivals(self, rank: int, clock: Clock) -> None:
        """Other blocks that may still come to an mbarrier of a block that ends."""
        ranks = self.witness.cluster.block_of_lane
        for address, barrier in self.mbarriers.at.items():
            if address >> SHARED_RANK_SHIFT != rank:
                continue
            for lane, (epoch, pc) in barrier.users.items():
                if ranks[lane] != rank and clock.known[lane] < epoch:
                    side = Side(pc, "arrival", lane)
                    place = self.witness.cluster.place(address)
                    self.witness.tell("block end", None, side, "shared", place, rank=rank)
                    break

    def _end_of_remote_accesses(self, rank: int, clock: Clock) -> None:
        """Accesses of other blocks to a block's shared memory that its threads do not know to be finished."""
        witness = self.witness
        first = rank * witness.cluster.shared_stride // witness.cell_bytes
        cells = slice(first, first + witness.cluster.shared_stride // witness.cell_bytes)
        vectors = clock.vectors.copy()
        vectors[KNOWN, np.flatnonzero(witness.cluster.block_of_lane == rank)] = ALWAYS
        visible = Unit(witness.knowledge, vectors, {})
        for met in (witness.shared.unknown_writes(cells, visible), *witness.shared.unknown_reads(cells, visible)):
            if met is None:
                continue
            side = witness.side(taken_apart(int(met.stamps[0])), was_write=True)
            if side.how in ("write", "read", "atomic"):
                address = witness.address_of(cells, int(met.places[0]), "shared")
                witness.tell("block end", None, side, "shared", address, rank=rank)
