"""cp.async: copies of single threads, waited for by groups or through an mbarrier.

A thread's copy happens before what the thread does after waiting for its group, and before others once that is released to them.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.detector.accesses import Accesses, Request
from tilescope.sync.detector.context import DetectorContext
from tilescope.sync.detector.mbarrier_history import Moments
from tilescope.sync.detector.mbarrier_order import Mbarriers
from tilescope.sync.detector.race import Side
from tilescope.sync.epoch import pack_stamps, stamp_base
from tilescope.sync.events import CpAsyncArrived, CpAsyncArriveIssued, CpAsyncIssued, GroupCommit, GroupWait
from tilescope.sync.lane_clocks import CP_ASYNC
from tilescope.sync.vector_clock import Vector

_GROUPS_REMEMBERED = 64  # how many commits back a wait may reach


class CpAsyncOrder:
    """The cp.async of every thread of one cluster: epochs end with a commit, or with an arrival after the copies."""

    def __init__(self, context: DetectorContext, accesses: Accesses, mbarriers: Mbarriers) -> None:
        self._context = context
        self._accesses = accesses
        self._mbarriers = mbarriers
        lanes = context.cluster.lane_count
        self._first_column = CP_ASYNC * lanes
        self._epochs: npt.NDArray[np.int32] = np.ones(lanes, np.int32)
        self._committed: npt.NDArray[np.int32] = np.zeros((_GROUPS_REMEMBERED, lanes), np.int32)
        self.issued: npt.NDArray[np.int32] = np.zeros(lanes, np.int32)  # the last epoch in which each lane copied
        self._arrived: npt.NDArray[np.int32] = np.zeros(
            lanes, np.int32
        )  # the last one whose arrival at an mbarrier was issued
        self._pcs: npt.NDArray[np.int64] = np.zeros(lanes, np.int64)
        self._epochs_of_arrival: WeakKeyDictionary[CpAsyncArriveIssued, Vector] = WeakKeyDictionary()

    def issue(self, event: CpAsyncIssued) -> None:
        """cp.async is issued: each lane will write its bytes at any time before it waits."""
        context = self._context
        lanes = event.lanes
        thread_access = self._accesses.shared_access("cp.async", Request(lanes, event.places, event.size_bytes))
        self._accesses.find_races(context.shared, thread_access)
        self._mbarriers.bytes.copy(thread_access.cells, Side(context.pc, "cp.async", int(lanes[0])))
        base = stamp_base(context.pc, is_asynchronous=True)
        stamps = pack_stamps(base, self._first_column + lanes, self._epochs[lanes])
        context.shared.write(thread_access.cells, stamps.repeat(thread_access.at.each))
        self.issued[lanes] = self._epochs[lanes]
        context.has_cp_async = True
        self._pcs[lanes] = context.pc
        if event.is_whole.any():
            sources = event.sources[event.is_whole]
            self._accesses.source_of_copies(event.source_lanes[event.is_whole], sources, event.size_bytes)

    def commit(self, event: GroupCommit) -> None:
        """cp.async.commit_group."""
        lanes = event.lanes
        self._committed[event.groups % _GROUPS_REMEMBERED, lanes] = self._epochs[lanes]
        self._epochs[lanes] += 1

    def wait(self, event: GroupWait) -> None:
        """cp.async.wait_group, wait_all."""
        lanes = event.lanes
        if event.newest is None:
            self._complete(lanes, self._epochs[lanes])
            self._epochs[lanes] += 1
            return
        last_groups = event.completed - 1
        is_any = last_groups >= 0
        waiting = lanes[is_any]
        self._complete(waiting, self._committed[last_groups[is_any] % _GROUPS_REMEMBERED, waiting])

    def _complete(self, lanes: LaneNumbers, epochs: Vector) -> None:
        self._context.clocks.complete_own(self._first_column + lanes, epochs)

    def issue_arrival(self, event: CpAsyncArriveIssued) -> None:
        """cp.async.mbarrier.arrive is issued: it will release the copies that the lanes have issued so far."""
        lanes = event.lanes
        barrier = self._mbarriers.issue(event.address, lanes, "arrival")
        epochs: Vector = self._epochs[lanes].copy()
        barrier.note_late_arrival(event.pc, Moments(self._first_column + lanes, epochs))
        self._epochs[lanes] += 1
        self._arrived[lanes] = epochs
        self._epochs_of_arrival[event] = epochs

    def arrive(self, event: CpAsyncArrived) -> None:
        """The copies of the lanes have completed, and their arrival is counted."""
        issue = event.issue
        lanes = event.lanes
        epochs = self._epochs_of_arrival[issue][np.isin(issue.lanes, lanes)]
        address = issue.address
        columns = self._first_column + lanes
        barrier = self._mbarriers.history_at(address)
        barrier.note_arrival(columns, epochs)
        barrier.arrive(self._context.clocks.clock_of(columns, epochs))

    def end(self, lanes: LaneNumbers, rank: int) -> None:
        """Report pending copies of the lanes of a block that has ended."""
        completed = np.maximum(self._context.clocks.own[self._first_column + lanes], self._arrived[lanes])
        is_left = self.issued[lanes] > completed
        if is_left.any():
            lane = int(lanes[np.argmax(is_left)])
            side = Side(int(self._pcs[lane]), "cp.async", lane)
            self._context.report("block end", None, side, "shared", None, rank=rank)
