"""What every warp did at mbarriers, from init to inval, and at barriers of threads.

    0x400   init ── arrive, wait ── inval      full
            init ── …                          full_1: another mbarrier in the same place

A warp is one role. It has waited when its first lanes have, and has arrived at the barrier of the cluster when its last have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tilescope.arch import WARP_LANES
from tilescope.arithmetic import rounded_up
from tilescope.machine.proof.act import Act, BarrierUse, CannotSayError
from tilescope.machine.proof.recorded_rows import Access, BlockSync, ClusterSync, Fence, Row, Wait
from tilescope.machine.proof.recorder import Recorder
from tilescope.machine.proof.warp_accesses import Touch, WarpAccesses, copied_bytes
from tilescope.pipeline.operations import Written
from tilescope.sync.address import SHARED_OFFSET_MASK, SHARED_RANK_SHIFT, Addresses
from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.events import (
    CopyIssued,
    CpAsyncArriveIssued,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierInit,
    MbarrierInval,
    MemoryFence,
    WarpSync,
)
from tilescope.sync.mbarrier import MBARRIER_BYTES
from tilescope.sync.proxies import PROXY_ASYNC


@dataclass(slots=True)
class _AtCluster:
    """A phase of the cluster's barrier at which lanes of a warp have arrived: the acts so far, and these lanes."""

    phase: int
    acts: list[Act]
    lanes: set[int]
    has_wait: bool = False


class WarpBarriers(WarpAccesses):
    """What the warps of a cluster did at mbarriers and at barriers of threads."""

    def __init__(self, log: Recorder) -> None:
        super().__init__(log)
        self.barriers: list[BarrierUse] = []
        self._barrier_at: dict[int, int] = {}  # shared address → number in `barriers`
        self._uses: dict[int, int] = defaultdict(int)  # shared address → inits so far
        self._number_of_use: dict[tuple[int, int], int] = {}
        self._former_barrier: dict[int, int] = {}  # shared address → the last one that was invalidated there
        self._inits_to_come = _inits_by_address(log.rows)
        self._shared_with_data = _mbarriers_over_data(log.rows, self._inits_to_come)
        if self._shared_with_data:
            self.sets.divide_by(np.array(sorted(self._shared_with_data)), MBARRIER_BYTES)
        self._waited: dict[tuple[int, int, int], set[int]] = {}  # warp, barrier and phase: lanes that have waited
        self._met: dict[tuple[int, int], int] = {}
        # lanes of a warp that have not waited for the phase of a barrier that others of it waited for, by warp and barrier
        self._left_out: dict[int, dict[int, set[int]]] = defaultdict(dict)
        self._at_cluster: dict[int, _AtCluster] = {}  # by warp: the last phase at which it arrived

    def _add_inval(self, row: MbarrierInval) -> None:
        warp = row.lane // WARP_LANES
        self._touch_as_data(warp, row.address, row.pc)
        self._end_barrier(warp, row.address, row.pc)

    def _touch_as_data(self, warp: int, address: int, pc: int) -> None:
        """mbarrier.init and inval write bytes that are data at other times.

        A copy over an mbarrier that was invalidated needs no proxy fence, as in the run.
        """
        if address in self._shared_with_data and address >> SHARED_RANK_SHIFT == self._rank(warp):
            cells = self.sets.of(np.array([address & SHARED_OFFSET_MASK]), MBARRIER_BYTES)
            self._touch(warp, pc, Touch("write", cells))
            self._do(warp, Act("fence", pc, 0, target=PROXY_ASYNC.kind))

    def _end_barrier(self, warp: int, address: int, pc: int) -> None:
        """A warp invalidates an mbarrier, or writes over it."""
        number = self._barrier_at.pop(address, None)
        if number is not None:
            self._former_barrier[address] = number
            self._do(warp, Act("inval", pc, 0, barrier=number, mask=self._mask(warp, address)))

    def _end_barriers_under(self, warp: int, pc: int, addresses: Addresses, size_bytes: int) -> None:
        """Bytes are written: end the mbarriers at these addresses."""
        for address in list(self._barrier_at):
            if address in self._shared_with_data and bool(
                ((addresses < address + MBARRIER_BYTES) & (address < addresses + size_bytes)).any()
            ):
                self._end_barrier(warp, address, pc)

    def _add_init(self, row: MbarrierInit) -> None:
        warp = row.lane // WARP_LANES
        offset = row.address & SHARED_OFFSET_MASK
        if row.address >> SHARED_RANK_SHIFT != self._rank(warp):
            raise CannotSayError("mbarrier.init in another block", row.pc)
        number = self._barrier_at.get(row.address)
        if number is None:
            use = (offset, self._uses[row.address])
            self._uses[row.address] += 1
            number = self._number_of_use.setdefault(use, len(self.barriers))
            if number == len(self.barriers):
                self.barriers.append(BarrierUse(*use, row.arrivals))
            self._barrier_at[row.address] = number
        self._touch_as_data(warp, row.address, row.pc)
        if self.barriers[number].arrivals != row.arrivals:
            raise CannotSayError("an mbarrier with another count in another block, or a second time", row.pc)
        self._do(warp, Act("init", row.pc, 0, barrier=number))

    def _barrier(self, address: int, pc: int) -> int:
        number = self._barrier_at.get(address, self._former_barrier.get(address))
        if number is None and address in self._inits_to_come:  # by an init that comes too late
            use = (address & SHARED_OFFSET_MASK, 0)
            number = self._number_of_use.setdefault(use, len(self.barriers))
            if number == len(self.barriers):
                self.barriers.append(BarrierUse(*use, self._inits_to_come[address]))
        if number is None:
            raise CannotSayError("an mbarrier that was never initialised", pc)
        return number

    def _mask(self, warp: int, address: int) -> int | None:
        rank = address >> SHARED_RANK_SHIFT
        return None if rank == self._rank(warp) else 1 << rank

    def _add_expect(self, row: MbarrierExpect) -> None:
        if row.size_bytes:
            warp = int(row.lanes[0]) // WARP_LANES
            arguments: tuple[tuple[str, Written], ...] = (("bytes", row.size_bytes), ("arrive", False))
            self._do(warp, self._arrival(warp, row)._replace(op="expect", arguments=arguments))
        else:
            self._barrier(row.address, row.pc)

    def _arrival(self, warp: int, row: MbarrierArrive | MbarrierExpect) -> Act:
        barrier = self._barrier(row.address, row.pc)
        return Act("arrive", row.pc, 0, barrier=barrier, mask=self._mask(warp, row.address))

    def _add_arrive(self, row: MbarrierArrive) -> None:
        warp = int(row.lanes[0]) // WARP_LANES
        act = self._arrival(warp, row)
        if row.expected_bytes:
            is_both = row.arrivals == 1 and not row.is_drop
            arguments: list[tuple[str, Written]] = [("bytes", row.expected_bytes)]
            if not is_both:
                arguments.append(("arrive", False))
            self._do(warp, act._replace(op="expect", arguments=tuple(arguments)))
            if is_both:
                return
        if row.arrivals:
            counts: list[tuple[str, Written]] = [("count", row.arrivals)] if row.arrivals > 1 else []
            if row.is_drop:
                counts.append(("drop", True))
            self._do(warp, act._replace(arguments=tuple(counts)))

    def _add_arrive_after_copies(self, row: CpAsyncArriveIssued) -> None:
        arguments: list[tuple[str, Written]] = [("count", len(row.lanes))]
        if row.is_counted:
            arguments.append(("noinc", True))
        barrier = self._barrier(row.address, row.pc)
        warp = int(row.lanes[0]) // WARP_LANES
        self._do(warp, Act("cp_arrive", row.pc, 0, barrier=barrier, arguments=tuple(arguments)))

    def _add_wait(self, row: Wait) -> None:
        number = self._barrier(row.address, row.pc)
        for warp in self._warps(row.lanes):
            if self._mask(warp, row.address) is not None:
                raise CannotSayError("a wait for the mbarrier of another block", row.pc)
            lanes = {lane for lane in row.lanes.tolist() if lane // WARP_LANES == warp}
            waited = self._waited.setdefault((warp, number, row.phase), set())
            is_first = not waited or bool(waited & lanes)  # not: its other lanes have waited already
            self._leave_out(warp, number, row.lanes, is_first=is_first)
            if not is_first:
                waited |= lanes
                continue
            self._waited[warp, number, row.phase] = lanes
            self._do(warp, Act("wait", row.pc, 0, barrier=number, arguments=(("parity", row.parity),)))

    def _leave_out(self, warp: int, barrier: int, lanes: LaneNumbers, *, is_first: bool) -> None:
        """Note the lanes of a warp that have not waited for a phase."""
        left_out = self._left_out[warp]
        if is_first:
            first_lane = warp * WARP_LANES
            left_out[barrier] = set(range(first_lane, first_lane + WARP_LANES))
        left_out[barrier] = left_out.get(barrier, set()) - set(lanes.tolist())
        if not left_out[barrier]:
            del left_out[barrier]

    def _unseen_barriers(self, warp: int, lanes: LaneNumbers) -> frozenset[int]:
        """Barriers for which some of these lanes have not waited, while others of their warp have."""
        left_out = self._left_out.get(warp)
        if not left_out:
            return frozenset()
        acting = set(lanes.tolist())
        return frozenset(barrier for barrier, lanes_left in left_out.items() if lanes_left & acting)

    def _add_warp_sync(self, row: WarpSync) -> None:
        """Lanes that synchronize learn what any of them has waited for."""
        lanes = row.lanes
        for warp in self._warps(row.lanes):
            left_out = self._left_out.get(warp)
            if left_out:
                synchronized = set(lanes[lanes // WARP_LANES == warp].tolist())
                for lanes_left in left_out.values():
                    if synchronized - lanes_left:
                        lanes_left.difference_update(synchronized)

    def _add_block_sync(self, row: BlockSync) -> None:
        threads = rounded_up(row.threads, WARP_LANES)
        for warp in self._warps(row.lanes):
            if row.waits:
                self._left_out.pop(warp, None)
            if row.waits and self._met.get((warp, row.number)) == row.completion:  # its other lanes took another path
                continue
            self._met[warp, row.number] = row.completion
            op = "sync" if row.waits else "bar_arrive"
            self._do(warp, Act(op, row.pc, 0, target=row.number, arguments=(("threads", threads),)))

    def _add_cluster_sync(self, row: ClusterSync) -> None:
        for warp in self._warps(row.lanes):
            if row.waits:
                self._wait_for_cluster(warp, row)
            else:
                self._arrive_at_cluster(warp, row)

    def _arrive_at_cluster(self, warp: int, row: ClusterSync) -> None:
        """A warp has arrived when all its lanes have: those that come before their elected lane do not count yet."""
        lanes = {lane for lane in row.lanes.tolist() if lane // WARP_LANES == warp}
        earlier = self._at_cluster.get(warp)
        has_wait = False  # of its other lanes, which may come to the next barrier before these lanes wait
        if earlier is not None and earlier.phase == row.phase:
            has_wait = earlier.has_wait
            if earlier.lanes & lanes:
                raise CannotSayError("barrier.cluster.arrive again, without barrier.cluster.wait", row.pc)
            for act in earlier.acts:
                self.of_warp[warp].remove(act)
            lanes |= earlier.lanes
        elif earlier is not None and not earlier.has_wait:
            raise CannotSayError("barrier.cluster.arrive again, without barrier.cluster.wait", row.pc)
        is_relaxed = row.is_relaxed and not self._is_fenced.get(warp, False)
        arguments: tuple[tuple[str, Written], ...] = (("relaxed", True),) if is_relaxed else ()
        self._do(warp, Act("cluster", row.pc, 0, target="arrive", arguments=arguments))
        self._at_cluster[warp] = _AtCluster(row.phase, [self.of_warp[warp][-1]], lanes)
        if has_wait:
            self._wait_for_cluster(warp, row)

    def _wait_for_cluster(self, warp: int, row: ClusterSync) -> None:
        self._left_out.pop(warp, None)
        arrived = self._at_cluster.get(warp)
        if arrived is None or arrived.has_wait:  # its other lanes wait already, unless it never arrived
            if row.has_passed or arrived is not None:
                return
            self._do(warp, Act("cluster", row.pc, 0, target="wait"))
            return
        self._do(warp, Act("cluster", row.pc, 0, target="wait"))
        arrived.acts.append(self.of_warp[warp][-1])
        arrived.has_wait = True

    def _add_memory_fence(self, row: MemoryFence) -> None:
        """fence.acq_rel by a whole warp: a relaxed arrival behind it releases what the warp accessed before."""
        lanes = row.lanes // WARP_LANES
        for warp in self._warps(row.lanes):
            first_lane = warp * WARP_LANES
            expected = int(self.log.exists[first_lane : first_lane + WARP_LANES].sum())
            self._is_fenced[warp] = int((lanes == warp).sum()) == expected

    def _add_fence(self, row: Fence) -> None:
        for warp in self._warps(row.lanes):
            self._do(warp, Act("fence", row.pc, 0, target=row.kind))


def _inits_by_address(rows: Iterable[Row]) -> dict[int, int]:
    """The arrivals that the first init at each shared address counts."""
    inits: dict[int, int] = {}
    for row in rows:
        if isinstance(row, MbarrierInit):
            inits.setdefault(row.address, row.arrivals)
    return inits


def _mbarriers_over_data(rows: Iterable[Row], inits: dict[int, int]) -> set[int]:
    """The addresses of mbarriers whose bytes are accessed as data too."""
    overlapping: set[int] = set()
    addresses = np.array(sorted(inits), np.int64)
    seen: set[tuple[int, int]] = set()
    for row in rows:
        if isinstance(row, Access):
            starts, size_bytes = row.addresses, row.size_bytes
            key = (id(starts), size_bytes)
        elif isinstance(row, CopyIssued) and row.record.bytes:
            starts, size_bytes = copied_bytes(row)
            starts = starts + (row.record.shared_address >> SHARED_RANK_SHIFT << SHARED_RANK_SHIFT)
            key = (row.record.shared_address, row.record.bytes)
        else:
            continue
        if key not in seen and len(addresses):
            seen.add(key)
            ordered = np.sort(starts)
            # the last access that starts before the end of an mbarrier reaches into it, or none does
            before = np.searchsorted(ordered, addresses + MBARRIER_BYTES) - 1
            reaches = (before >= 0) & (ordered[before] + size_bytes > addresses)
            overlapping.update(addresses[reaches].tolist())
    return overlapping
