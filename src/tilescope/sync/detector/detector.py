"""The happens-before data-race detector of one cluster: it receives every access and synchronization, and judges them.

        load, store, atomic    ──▶ accesses           ┐
        fences, flags          ──▶ fences             │     shadow: the last accesses of each cell
        bar, barrier.cluster   ──▶ barriers           ├──▶  clocks: does that access happen before this one?
        mbarrier               ──▶ mbarriers          │     conflicts: what nothing orders
        cp.async, bulk, TMA    ──▶ copies, bulk       │
        branches, whole warps  ──▶ convergence        │
        wgmma                  ──▶ wgmma              │
        tcgen05                ──▶ tensor             ┘

What it finds depends on the path that threads take and on their data, not on the order in which this run executes them.
It also answers the two questions of the bus: who gets a stale value, and whose mbarrier test fails once.

Parts for instructions that a kernel may not have are made when the first such event comes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from tilescope.sync.address import SHARED_OFFSET_MASK, SHARED_RANK_SHIFT
from tilescope.sync.bus import Handler, StaleValues
from tilescope.sync.cluster_shape import ClusterShape
from tilescope.sync.detector.accesses import Accesses
from tilescope.sync.detector.context import BarrierBytes, DetectorContext, LaunchDetector
from tilescope.sync.detector.fences import Fences
from tilescope.sync.detector.race import Side
from tilescope.sync.detector.thread_barriers import ThreadBarriers
from tilescope.sync.epoch import unpack_stamp
from tilescope.sync.events import (
    AsyncStoreIssued,
    Atomic,
    BarrierArrive,
    BarrierComplete,
    BlockEnd,
    BranchTaken,
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
    PartialGroups,
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
    UndefinedUse,
    WarpSync,
    WgmmaFence,
    WgmmaIssued,
)
from tilescope.sync.lane_clocks import ALWAYS
from tilescope.sync.shadow.accessor import Unit
from tilescope.sync.vector_clock import ASYNC_GLOBAL, ASYNC_SHARED, HAPPENS_BEFORE, VectorClock, join_clocks

if TYPE_CHECKING:
    from tilescope.sync.detector.bulk_copies import BulkCopies
    from tilescope.sync.detector.convergence import Convergence
    from tilescope.sync.detector.map_edits import MapEdits
    from tilescope.sync.detector.mbarrier_order import Mbarriers
    from tilescope.sync.detector.thread_copies import CpAsyncOrder
    from tilescope.sync.detector.tmem_order import TmemOrder
    from tilescope.sync.detector.wgmma_order import WgmmaOrder


RECORDED_COPIES = 100_000  # limit of records that a run stores


class AtInstruction(Protocol):
    """An event of an instruction."""

    pc: int


Judge: TypeAlias = "Callable[[ClusterDetector, Any], None]"


class ClusterDetector:
    """The detector of one cluster, part by part."""

    def __init__(self, cluster: ClusterShape, launch: LaunchDetector) -> None:
        self.context = DetectorContext(cluster, launch)
        self.accesses = Accesses(self.context, lambda: self.fences)
        self.barriers = ThreadBarriers(self.context)
        launch.running[cluster.first_block] = self

    @cached_property
    def fences(self) -> Fences:
        """Fences, and releases and acquires through words in memory."""
        self.barriers.fences = Fences(self.context)
        return self.barriers.fences

    @cached_property
    def mbarriers(self) -> Mbarriers:
        """The mbarriers of all blocks."""
        from tilescope.sync.detector.mbarrier_order import Mbarriers

        return Mbarriers(self.context, self.fences, self.accesses)

    @cached_property
    def cp_async(self) -> CpAsyncOrder:
        """cp.async."""
        from tilescope.sync.detector.thread_copies import CpAsyncOrder

        return CpAsyncOrder(self.context, self.accesses, self.mbarriers)

    @cached_property
    def bulk(self) -> BulkCopies:
        """Bulk and tensor copies."""
        from tilescope.sync.detector.bulk_copies import BulkCopies

        return BulkCopies(self.context, self.accesses, self.mbarriers)

    @cached_property
    def wgmma(self) -> WgmmaOrder:
        """Wgmma."""
        from tilescope.sync.detector.wgmma_order import WgmmaOrder

        return WgmmaOrder(self.context)

    @cached_property
    def convergence(self) -> Convergence:
        """Barriers and other instructions of whole warps."""
        from tilescope.sync.detector.convergence import Convergence

        return Convergence(self.context)

    @cached_property
    def maps(self) -> MapEdits:
        """Tensor maps that the kernel edits."""
        from tilescope.sync.detector.map_edits import MapEdits

        return MapEdits(self.context)

    @cached_property
    def tmem(self) -> TmemOrder:
        """tcgen05."""
        from tilescope.sync.detector.tmem_order import TmemOrder

        return TmemOrder(self.context, self.mbarriers)

    def handlers(self) -> dict[type, Handler]:
        """Which method judges each event."""
        handlers: dict[type, Handler] = dict.fromkeys(self._judges(), self._judge)
        handlers[WarpSync] = self.barriers.sync_warps
        handlers[BarrierComplete] = self._complete_barrier
        if self.context.launch.program.collectives:
            handlers[BranchTaken] = lambda event: self.convergence.take_branch(event)
        handlers[ClusterPass] = self.barriers.pass_cluster
        handlers[BlockEnd] = self._end_block
        handlers[ClusterEnd] = self._end_cluster
        return handlers

    def _judge(self, event: AtInstruction) -> None:
        """Judge an event, after recording which instruction is judged."""
        self.context.pc = event.pc
        self._judges()[type(event)](self, event)

    @staticmethod
    @cache
    def _judges() -> dict[type, Judge]:
        """By the class of an event of an instruction: what judges it. One table serves the detectors of all clusters."""
        return {
            Store: ClusterDetector._store,
            Atomic: ClusterDetector._atomic,
            CpAsyncIssued: lambda detector, event: detector.cp_async.issue(event),
            CpAsyncArriveIssued: lambda detector, event: detector.cp_async.issue_arrival(event),
            CpAsyncArrived: lambda detector, event: detector.cp_async.arrive(event),
            GroupCommit: ClusterDetector._commit_group,
            GroupWait: ClusterDetector._wait_group,
            CopyIssued: ClusterDetector._issue_copy,
            CopyCompleted: lambda detector, event: detector.bulk.complete(event),
            AsyncStoreIssued: lambda detector, event: detector.bulk.issue_async_store(event),
            MapRead: lambda detector, event: detector.maps.read(event),
            TensormapRelease: lambda detector, event: detector.maps.release(event),
            TensormapAcquire: lambda detector, event: detector.maps.acquire(event),
            MbarrierInit: lambda detector, event: detector.mbarriers.init(event),
            MbarrierInval: lambda detector, event: detector.mbarriers.inval(event),
            MbarrierArrive: lambda detector, event: detector.mbarriers.arrive(event),
            MbarrierExpect: lambda detector, event: detector.mbarriers.expect(event),
            MbarrierPhaseCompleted: lambda detector, event: detector.mbarriers.complete_phase(event),
            MbarrierInitFence: lambda detector, event: detector.mbarriers.fence_init(event.lanes),
            MemoryFence: lambda detector, event: detector.fences.fence(event.lanes, event.scope),
            ProxyFence: ClusterDetector._fence_proxy,
            BarrierArrive: ClusterDetector._arrive_at_barrier,
            PartialGroups: lambda detector, event: detector.convergence.judge_partial_groups(event),
            ClusterArrive: ClusterDetector._arrive_at_cluster,
            Converge: ClusterDetector._converge,
            UndefinedUse: lambda detector, event: detector.convergence.use_undefined(event),
            WgmmaIssued: lambda detector, event: detector.wgmma.issue(event),
            WgmmaFence: lambda detector, event: detector.wgmma.fence(event),
            RegisterAccess: lambda detector, event: detector.wgmma.access_registers(event),
            LoadedRegisterAccess: lambda detector, event: detector.tmem.access_registers(event),
            TmemAlloc: lambda detector, event: detector.tmem.allocate(event),
            TmemDealloc: lambda detector, event: detector.tmem.deallocate(event),
            TmemMove: lambda detector, event: detector.tmem.move(event),
            TmemWait: lambda detector, event: detector.tmem.wait(event),
            TmemWork: lambda detector, event: detector.tmem.work(event),
            TmemFence: lambda detector, event: detector.tmem.fence(event),
            TmemCommit: lambda detector, event: detector.tmem.commit(event),
            TmemCommitArrived: lambda detector, event: detector.tmem.arrive(event),
        }

    def stale_values(self, load: Load) -> StaleValues:
        """Judge a load; the lanes that get a stale value."""
        self.context.pc = load.pc
        return self.accesses.load(load)

    def passing_lanes(self, test: MbarrierTest) -> Flags:
        """Judge a test of an mbarrier; for each lane whether it passes."""
        self.context.pc = test.pc
        return self.mbarriers.test(test)

    def _store(self, event: Store) -> None:
        self.accesses.store(event)
        if event.space == "shared" and event.access is not None and self._has_mbarriers:
            self.mbarriers.bytes.store(event.lanes, event.places, event.size_bytes)

    def _atomic(self, event: Atomic) -> None:
        self.accesses.atomic(event)
        if event.space == "shared" and len(event.written_lanes) and self._has_mbarriers:
            self.mbarriers.bytes.store(event.written_lanes, event.written_places, event.written_bytes)

    @property
    def _has_mbarriers(self) -> bool:
        return "mbarriers" in vars(self)

    def _commit_group(self, event: GroupCommit) -> None:
        if event.unit == "cp.async":
            self.cp_async.commit(event)

    def _wait_group(self, event: GroupWait) -> None:
        if event.unit == "cp.async" or event.newest is None:
            self.cp_async.wait(event)
        elif event.unit == "bulk":
            self.bulk.wait(event)
        else:
            self.wgmma.wait(event)

    def _issue_copy(self, event: CopyIssued) -> None:
        launch = self.context.launch
        launch.copies_issued = min(launch.copies_issued + 1, RECORDED_COPIES)
        self.bulk.issue(event)

    def _fence_proxy(self, event: ProxyFence) -> None:
        fenced = []
        if event.is_for_shared:
            fenced.append(ASYNC_SHARED)
        if event.is_for_global:
            fenced.append(ASYNC_GLOBAL)
        self.context.clocks.fence(event.lanes, fenced)

    def _converge(self, event: Converge) -> None:
        self.barriers.converge(event)
        if event.pc in self.context.launch.program.partial_masks:
            self.convergence.judge_masks(event)

    def _arrive_at_barrier(self, event: BarrierArrive) -> None:
        self.barriers.arrive(event)
        if self.context.launch.program.has_branches:
            self.convergence.arrive(event)

    def _complete_barrier(self, event: BarrierComplete) -> None:
        self.barriers.complete(event)
        if self.context.launch.program.has_branches:
            self.convergence.complete(event)

    def _arrive_at_cluster(self, event: ClusterArrive) -> None:
        if self._has_mbarriers:
            if not event.is_relaxed:
                self.mbarriers.release_inits(event.lanes)
            self.mbarriers.publish(event.lanes)
        self.barriers.arrive_at_cluster(event)

    def _end_block(self, event: BlockEnd) -> None:
        """All threads of a block have exited: nothing may still read or write its shared memory."""
        rank = event.rank
        context = self.context
        context.ended_blocks.add(rank)
        if self._has_mbarriers and not context.launch.mbarrier_uses:
            context.launch.mbarrier_uses = self.mbarriers.uses(rank)
        if "fences" in vars(self):
            self.fences.end_block(rank)
        if not context.launch.program.may_defer_releases:  # which has no asynchronous work
            self._end_pending_work(rank)

    def _end_pending_work(self, rank: int) -> None:
        """Nothing may be pending that still uses the shared memory of a block that has ended."""
        context = self.context
        lanes = np.flatnonzero(context.cluster.block_of_lane == rank)
        clock = context.clocks.clock(lanes)
        before_end = self.barriers.before_end.get(rank)
        if before_end is not None:
            clock = join_clocks(before_end, clock)
        parts = vars(self)  # those that were needed
        if "bulk" in parts:
            self.bulk.end(lanes, rank, clock)
        if "wgmma" in parts:
            self.wgmma.end(lanes, rank, clock)
        if "cp_async" in parts:
            self.cp_async.end(lanes, rank)
        if "tmem" in parts:
            self.tmem.end(rank, clock)
        if self._has_mbarriers:
            self.mbarriers.bytes.end(rank)
            self._end_of_remote_arrivals(rank, clock)
        if rank in self.accesses.reached_blocks:
            self._end_of_remote_accesses(rank, clock)

    def _end_cluster(self, event: ClusterEnd) -> None:
        """All blocks have exited and all copies have landed: record the phases that completed before all their bytes arrived."""
        context = self.context
        barriers = self.mbarriers.at if self._has_mbarriers else {}
        for address, barrier in barriers.items():
            if barrier.spilled is not None:
                block = context.cluster.block_index(address >> SHARED_RANK_SHIFT)
                context.launch.spilled.append(BarrierBytes(address & SHARED_OFFSET_MASK, block, barrier.spilled))
        context.launch.running.pop(context.cluster.first_block, None)

    def _end_of_remote_arrivals(self, rank: int, clock: VectorClock) -> None:
        """Other blocks that may still come to an mbarrier of a block that ends."""
        ranks = self.context.cluster.block_of_lane
        over = clock.over
        for address, barrier in self.mbarriers.at.items():
            if address >> SHARED_RANK_SHIFT != rank:
                continue
            for lane, (epoch, pc) in barrier.users.items():
                if ranks[lane] != rank and over[lane] < epoch:
                    side = Side(pc, "arrival", lane)
                    place = self.context.cluster.place(address)
                    self.context.report("block end", None, side, "shared", place, rank=rank)
                    break

    def _end_of_remote_accesses(self, rank: int, clock: VectorClock) -> None:
        """Accesses of other blocks to a block's shared memory that its threads do not know to be finished."""
        context = self.context
        first = rank * context.cluster.shared_stride // context.cell_bytes
        cells = slice(first, first + context.cluster.shared_stride // context.cell_bytes)
        vectors = clock.vectors.copy()
        vectors[HAPPENS_BEFORE, np.flatnonzero(context.cluster.block_of_lane == rank)] = ALWAYS
        visible = Unit(context.clocks, vectors, {})
        writes = [(context.shared.unordered_writes(cells, visible), True)]
        reads = [(unordered, False) for unordered in context.shared.unordered_reads(cells, visible)]
        for unordered, was_write in (*writes, *reads):
            if unordered is None:
                continue
            side = context.side(unpack_stamp(int(unordered.stamps[0])), was_write=was_write)
            if side.how in ("write", "read", "atomic"):
                address = context.address_of(cells, int(unordered.places[0]), "shared")
                context.report("block end", None, side, "shared", address, rank=rank)
