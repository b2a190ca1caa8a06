"""The events of one cluster that other threads can wait for or race with, kept while it runs.

    a row        one instruction: its place in the text, the lanes that executed it together, what it acted on
    the order    that of the run; the rows of one warp are in its program order

A test of an mbarrier that fails is not a row: only the wait that passes is. Equal addresses of accesses are stored once for all
rows of a loop, so the recording grows with what is accessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.machine.execution.records import CopyRecord
from tilescope.machine.proof.recorded_rows import Access, AccessHow, BlockSync, ClusterSync, Fence, Row, Wait
from tilescope.sync.address import SHARED_RANK_SHIFT, Addresses
from tilescope.sync.bus import Handler
from tilescope.sync.cluster_shape import BlockIndex, ClusterShape, LaneNumbers
from tilescope.sync.events import (
    AsyncStoreIssued,
    Atomic,
    BarrierArrive,
    BarrierComplete,
    ClusterArrive,
    ClusterWait,
    CopyIssued,
    CpAsyncArriveIssued,
    CpAsyncIssued,
    GroupCommit,
    GroupWait,
    Load,
    MapRead,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierInit,
    MbarrierInitFence,
    MbarrierInval,
    MbarrierTest,
    MemoryFence,
    ProxyFence,
    Store,
    TensormapRelease,
    TmemAlloc,
    TmemCommit,
    TmemDealloc,
    TmemFence,
    TmemMove,
    TmemWait,
    TmemWork,
    WaitingLanes,
    WarpSync,
    WgmmaIssued,
)
from tilescope.tensor_map.map_descriptor import DESCRIPTOR_BYTES

ROWS_KEPT = 100_000
_TMEM_ADDRESS_BYTES = 4


class _CommonAddresses(NamedTuple):
    """Lanes that share addresses: all lanes in the order of addresses, and for each but the first whether it has that of the one before."""

    order: LaneNumbers
    is_same: npt.NDArray[np.bool_]


@dataclass(eq=False)
class _Pattern:
    """The addresses of the lanes of an access."""

    addresses: Addresses

    @cached_property
    def common(self) -> _CommonAddresses | None:
        """Which lanes share an address; None if no two do."""
        if len(self.addresses) == 1:
            return None
        order = np.argsort(self.addresses, kind="stable")
        is_same = self.addresses[order][1:] == self.addresses[order][:-1]
        return _CommonAddresses(order, is_same) if is_same.any() else None


class _Poll(NamedTuple):
    """A wait that has not passed."""

    pc: int
    parity: int
    phase: int


@dataclass(slots=True)
class _Range:
    """The addresses that one instruction accessed, from the lowest to the end of the highest."""

    start: int
    end: int

    def overlaps(self, other: _Range) -> bool:
        return self.start < other.end and other.start < self.end


@dataclass(slots=True)
class GlobalMemoryUse:
    """The global memory that a cluster reads and writes, by instruction."""

    read: dict[int, _Range] = field(default_factory=dict)
    written: dict[int, _Range] = field(default_factory=dict)
    shared: dict[int, None] = field(default_factory=dict)  # atomics, and accesses through which threads synchronize
    map_edits: dict[int, None] = field(default_factory=dict)  # fences that release an edited tensor map


def _extend(ranges: dict[int, _Range], pc: int, addresses: Addresses, size_bytes: int) -> None:
    """Add `size_bytes` from each address on to the range of an instruction."""
    if not len(addresses):
        return
    start = int(addresses.min())
    end = int(addresses.max()) + size_bytes
    covered = ranges.get(pc)
    if covered is None:
        ranges[pc] = _Range(start, end)
    else:
        covered.start = min(covered.start, start)
        covered.end = max(covered.end, end)


@dataclass(slots=True)
class Recorder:
    """The rows of one cluster, in the order of the run: the first ROWS_KEPT of them."""

    rows: list[Row] = field(default_factory=list)
    is_cut: bool = False
    hangs_elsewhere: bool = False  # no recorded thread waits at it
    refused: dict[str, int] = field(
        default_factory=dict
    )  # the reason why no pipeline can describe the run, and the instruction
    blocks: int = 1
    block_lanes: int = 0
    exists: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))  # of all lanes
    first_block: BlockIndex = (0, 0, 0)
    shared_end: int = 0
    global_memory: GlobalMemoryUse = field(default_factory=GlobalMemoryUse)
    _patterns: dict[bytes, _Pattern] = field(default_factory=dict)
    _last_patterns: dict[int, tuple[Addresses, _Pattern]] = field(default_factory=dict)  # by instruction
    _failed: dict[tuple[int, int], _Poll] = field(default_factory=dict)  # by warp and address
    _unreleased: dict[int, int] = field(
        default_factory=dict
    )  # mbarriers, with the lane of an init that no fence covers
    _completed: int = 0  # barriers of blocks
    _counted: tuple[LaneNumbers, int] | None = None  # lanes, and how many warps they belong to

    def handlers(self, cluster: ClusterShape) -> dict[type, Handler]:
        """What keeps the events of a cluster."""
        self.blocks = cluster.blocks
        self.block_lanes = cluster.block_lanes
        self.exists = cluster.exists
        self.first_block = cluster.first_block
        self.shared_end = cluster.shared_end
        event_types = (
            MbarrierArrive,
            CpAsyncArriveIssued,
            GroupCommit,
            GroupWait,
            WgmmaIssued,
            TmemMove,
            TmemWait,
            TmemCommit,
            MemoryFence,
        )
        handlers: dict[type, Handler] = dict.fromkeys(event_types, self._add)
        return handlers | {
            Load: self._load,
            Store: self._store,
            Atomic: self._atomic,
            CpAsyncIssued: self._cp_async,
            CopyIssued: self._copy,
            AsyncStoreIssued: lambda event: self._async_store(event, cluster),
            MbarrierInit: self._init,
            MbarrierInval: self._inval,
            MbarrierExpect: self._expect,
            MbarrierTest: self._test,
            MbarrierInitFence: self._fence_init,
            ProxyFence: self._fence_proxy,
            TmemFence: self._fence_tensor_memory,
            BarrierArrive: self._arrive_at_block,
            BarrierComplete: self._complete_block,
            ClusterArrive: self._arrive_at_cluster,
            ClusterWait: lambda event: self._add(ClusterSync(event.pc, event.lanes, waits=True)),
            WarpSync: self._sync_warp,
            MapRead: lambda event: _extend(
                self.global_memory.read, event.pc, np.array([event.address]), DESCRIPTOR_BYTES
            ),
            TensormapRelease: self._release_maps,
            TmemAlloc: self._allocate,
            TmemDealloc: self._deallocate,
            TmemWork: self._work,
        }

    def _add(self, row: Row) -> None:
        """Keep a row, unless there are too many."""
        if len(self.rows) >= ROWS_KEPT:
            self.is_cut = True
            return
        self.rows.append(row)

    def _refuse(self, pc: int, reason: str) -> None:
        """Something was done that a pipeline has no step for."""
        self.refused.setdefault(reason, pc)

    def _add_access(self, event: Load | Store | Atomic | CpAsyncIssued, how: AccessHow) -> None:
        if len(self.rows) >= ROWS_KEPT:
            self.is_cut = True
            return
        pattern = self._pattern_at(event.pc, event.addresses)
        self._add(Access(event.pc, event.lanes, how, pattern.addresses, event.size_bytes))

    def _pattern_at(self, pc: int, addresses: Addresses) -> _Pattern:
        """The pattern of an instruction's addresses; an array that the instruction had last is not compared again."""
        last = self._last_patterns.get(pc)
        if last is None or last[0] is not addresses:
            last = self._last_patterns[pc] = (addresses, self._pattern_of(addresses))
        return last[1]

    def _pattern_of(self, addresses: Addresses) -> _Pattern:
        """The same addresses, held once for all rows."""
        content = addresses.tobytes()
        pattern = self._patterns.get(content)
        if pattern is None:
            pattern = self._patterns[content] = _Pattern(addresses.copy())
        return pattern

    def _load(self, event: Load) -> None:
        if event.access is None:
            return
        is_edit = event.access.kind == "write"  # its store follows
        if event.space == "global":
            _extend(self.global_memory.read, event.pc, event.addresses, event.size_bytes)
            if event.access.is_flag:
                self.global_memory.shared[event.pc] = None
        elif not is_edit:
            self._add_access(event, "read")

    def _atomic(self, event: Atomic) -> None:
        if event.space == "shared":
            self._add_access(event, "atomic")
        else:
            self.global_memory.shared[event.pc] = None

    def _cp_async(self, event: CpAsyncIssued) -> None:
        _extend(self.global_memory.read, event.pc, event.sources, event.size_bytes)
        self._add_access(event, "cp.async")

    def _store(self, event: Store) -> None:
        """A store of lanes; where some of them share an address and write the same there, they agree."""
        if event.access is None:
            return
        if event.space == "global":
            _extend(self.global_memory.written, event.pc, event.addresses, event.size_bytes)
            if event.access.is_flag:
                self.global_memory.shared[event.pc] = None
            return
        how: AccessHow = "write"
        common = None if self.is_cut else self._pattern_at(event.pc, event.addresses).common
        if common is not None:
            ordered = event.values[common.order]
            differs = ordered[1:] != ordered[:-1]
            if ordered.ndim > 1:
                differs = differs.any(axis=1)
            how = "write" if (differs & common.is_same).any() else "agreed"
        self._add_access(event, how)

    def _copy(self, event: CopyIssued) -> None:
        if event.source is not None:
            self._refuse(event.pc, "a bulk copy from shared memory to the shared memory of a block")
        if event.memory is not None:
            is_load = event.barrier is not None
            ranges = self.global_memory.read if is_load else self.global_memory.written
            _extend(ranges, event.pc, event.memory.starts, event.memory.row_bytes)
        self._add(event)

    def _async_store(self, event: AsyncStoreIssued, cluster: ClusterShape) -> None:
        """An answer of cluster launch control comes as a bulk copy does; st.async and red.async have no step."""
        if event.is_by_threads:
            self._refuse(event.pc, event.reason)
            return
        block_start = event.barrier >> SHARED_RANK_SHIFT << SHARED_RANK_SHIFT
        (start,) = cluster.places(np.array([block_start])).tolist()
        (lane,) = event.lanes.tolist()
        address = block_start + int(event.places[0]) - start
        record = CopyRecord(event.pc, self.first_block, lane, "load", event.size_bytes, address, event.barrier)
        self._add(CopyIssued(event.pc, lane, record, None, None, is_reduction=False, barrier=event.barrier, group=0))

    def _init(self, event: MbarrierInit) -> None:
        self._unreleased[event.address] = event.lane
        self._add(event)

    def _inval(self, event: MbarrierInval) -> None:
        self._unreleased.pop(event.address, None)
        self._add(event)

    def _expect(self, event: MbarrierExpect) -> None:
        if event.is_completion:
            self._refuse(event.pc, "mbarrier.complete_tx by a thread")
        else:
            self._add(event)

    def _test(self, event: MbarrierTest) -> None:
        """A test of lanes of the same phase: a row if it passed, else kept in case no event follows it."""
        passes = event.passes
        is_of_all = bool(passes.all()) or not passes.any()
        for has_passed in (bool(passes[0]),) if is_of_all else (False, True):
            lanes = event.lanes if is_of_all else event.lanes[passes == has_passed]
            warps = {int(lanes[0]) // WARP_LANES} if len(lanes) == 1 else set((lanes // WARP_LANES).tolist())
            for warp in warps:
                self._failed.pop((warp, event.address), None)  # so that the last one is the newest
                if not has_passed:
                    self._failed[warp, event.address] = _Poll(event.pc, event.parity, event.phase + 1)
            if has_passed:
                self._add(Wait(event.pc, lanes, event.address, event.parity, event.phase))

    def _fence_init(self, event: MbarrierInitFence) -> None:
        self._makers_among(event.lanes)
        self._add(Fence(event.pc, event.lanes, "mbarrier_init"))

    def _makers_among(self, lanes: LaneNumbers) -> list[int]:
        """The lanes whose mbarrier.init no fence had covered; from now on one does."""
        addresses = [address for address, maker in self._unreleased.items() if maker in lanes]
        return sorted({self._unreleased.pop(address) for address in addresses})

    def _fence_proxy(self, event: ProxyFence) -> None:
        if event.is_for_shared:
            self._add(Fence(event.pc, event.lanes, "proxy.async"))

    def _fence_tensor_memory(self, event: TmemFence) -> None:
        self._add(Fence(event.pc, event.lanes, "tcgen05.before" if event.is_before else "tcgen05.after"))

    def _arrive_at_block(self, event: BarrierArrive) -> None:
        if not event.waits:
            self._add(BlockSync(event.pc, event.lanes, event.number, event.threads, waits=False))

    def _complete_block(self, event: BarrierComplete) -> None:
        """Without a count a barrier completes when all warps that live have arrived, each counted once."""
        self._completed += 1
        threads = event.threads
        if not event.is_counted and event.waiting:
            threads = WARP_LANES * self._count_warps(event.resumed)
        self._add_waiting(event, threads, self._completed)

    def _count_warps(self, lanes: LaneNumbers) -> int:
        """The warps of some lanes; cached, because a barrier in a loop has the same ones again."""
        if self._counted is None or self._counted[0] is not lanes:
            self._counted = (lanes, int(np.count_nonzero(np.bincount(lanes // WARP_LANES))))
        return self._counted[1]

    def _add_waiting(self, event: BarrierComplete, threads: int, completion: int) -> None:
        for waiting in event.waiting:
            self._add(BlockSync(waiting.pc, waiting.lanes, event.number, threads, True, completion))

    def _arrive_at_cluster(self, event: ClusterArrive) -> None:
        """A release covers all that the threads did before it, so their mbarrier.init needs no fence."""
        makers = [] if event.is_relaxed else self._makers_among(event.lanes)
        if makers:
            self._add(Fence(event.pc, np.array(makers), "mbarrier_init"))
        self._add(ClusterSync(event.pc, event.lanes, False, phase=event.phase, is_relaxed=event.is_relaxed))

    def _release_maps(self, event: TensormapRelease) -> None:
        self.global_memory.map_edits[event.pc] = None
        if event.copied_from is not None:
            addresses = self._pattern_of(event.copied_from).addresses
            self._add(Access(event.pc, event.lanes, "read", addresses, DESCRIPTOR_BYTES))

    def _sync_warp(self, event: WarpSync) -> None:
        if event.pc is not None:
            self._add(event)

    def _allocate(self, event: TmemAlloc) -> None:
        """tcgen05.alloc writes the address of its columns; copies over it need no proxy fence."""
        lanes = event.lanes[:1]
        addresses = self._pattern_of(np.array([event.address])).addresses
        self._add(Access(event.pc, lanes, "write", addresses, _TMEM_ADDRESS_BYTES))
        self._add(Fence(event.pc, lanes, "proxy.async"))

    def _deallocate(self, event: TmemDealloc) -> None:
        if event.is_allocated:
            self._add(event)

    def _work(self, event: TmemWork) -> None:
        if event.kind == "tcgen05.shift":
            self._refuse(event.pc, "tcgen05.shift")
        else:
            self._add(event)

    def end(
        self,
        incomplete: Sequence[BarrierComplete],
        spinning: Sequence[LaneNumbers],
        at_cluster: Sequence[WaitingLanes],
    ) -> None:
        """The cluster hangs: whoever still waits gets the row of that wait, which never passed.

        Lanes that spin do so at their last test that failed; one that was not tried again is not a wait.
        """
        warps = {warp for lanes in spinning for warp in (lanes // WARP_LANES).tolist()}
        last = {warp: (address, poll) for (warp, address), poll in self._failed.items() if warp in warps}
        waiting = [barrier for barrier in incomplete if barrier.waiting]
        self.hangs_elsewhere = not last and not waiting and not at_cluster
        for warp, (address, poll) in last.items():
            first_lane = np.array([warp * WARP_LANES])
            self._add(Wait(poll.pc, first_lane, address, poll.parity, poll.phase))
        for barrier in waiting:
            self._add_waiting(barrier, barrier.threads, self._completed + 1)
        if not last and not waiting:  # those who wait for the cluster are often victims of the other waits
            for waiters in at_cluster:
                self._add(ClusterSync(waiters.pc, waiters.lanes, waits=True, has_passed=False))
