"""Barriers of a block (bar.sync, bar.arrive, bar.red) and of a cluster (barrier.cluster).

A barrier of a block completes when as many threads have arrived as the instruction names; without a number, all threads that
have not exited. bar.arrive counts its threads, which do not wait. An .aligned instruction counts whole warps, whichever of their
threads arrive (measured on an H200): a warp whose parts arrive one after the other counts once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.machine.cluster import Cluster, Front
from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.events import BarrierComplete, ClusterPass, WaitingLanes

Votes = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Waiting:
    """Lanes at a barrier, and where they continue.

    bar.red adds the predicates of its lanes as `votes`; `write_result` takes those of all lanes when the barrier completes.
    """

    pc: int
    lanes: LaneNumbers
    votes: Votes | None = None
    write_result: Callable[[Votes], None] | None = None


@dataclass(slots=True)
class BlockBarrier:
    """One barrier of one block."""

    present: npt.NDArray[np.bool_]  # by lane of the cluster: whether it counts as arrived
    arrived: int = 0
    expected: int | None = None  # None: all threads that live
    waiting: list[Waiting] = field(default_factory=list)

    def completion(self, rank: int, number: int, threads: int) -> BarrierComplete:
        """The event of its completion by the lanes that wait now."""
        waiting = [WaitingLanes(front.pc - 1, front.lanes) for front in self.waiting]
        lanes = [front.lanes for front in self.waiting]
        resumed = lanes[0] if len(lanes) == 1 else np.concatenate([np.empty(0, np.int64), *lanes])
        return BarrierComplete(rank, number, threads, waiting, resumed, self.expected is not None)


@dataclass(slots=True)
class BlockBarriers:
    """All barriers of the blocks of a cluster, and that of the cluster itself."""

    cluster: Cluster
    named: dict[tuple[int, int], BlockBarrier] = field(default_factory=dict)  # (rank, number)
    cluster_arrived: LaneNumbers = field(init=False)  # lanes that arrived at the cluster barrier in this phase
    cluster_phase: int = 0
    cluster_waiting: list[Waiting] = field(default_factory=list)
    lane_phase: LaneNumbers = field(init=False)  # the phase that each lane's last arrival belongs to

    def __post_init__(self) -> None:
        self.cluster_arrived = np.zeros(self.cluster.lane_count, np.intp)
        self.lane_phase = np.zeros(self.cluster.lane_count, np.intp)

    def arrive(
        self, rank: int, number: int, lanes: LaneNumbers, expected: int | None, *, is_aligned: bool
    ) -> BlockBarrier:
        """Count lanes of one block at a barrier; an .aligned instruction counts their whole warps."""
        barrier = self.named.get((rank, number))
        if barrier is None:
            barrier = self.named[rank, number] = BlockBarrier(np.zeros(self.cluster.lane_count, np.bool_))
        if is_aligned:
            barrier.arrived += self._count_warps(barrier, lanes)
            rows = barrier.present.reshape(-1, WARP_LANES)
            rows[lanes // WARP_LANES] = True
        else:
            barrier.arrived += len(lanes)
            barrier.present[lanes] = True
        barrier.expected = expected
        return barrier

    def _count_warps(self, barrier: BlockBarrier, lanes: LaneNumbers) -> int:
        """The threads that warps count for; the second part of a warp counts for nothing."""
        first, count = int(lanes[0]), len(lanes)
        if first % WARP_LANES == 0 and count % WARP_LANES == 0 and int(lanes[-1]) - first == count - 1:
            return count  # whole warps: lanes ascend
        warps, counts = np.unique(lanes // WARP_LANES, return_counts=True)
        lives = self.cluster.live.reshape(-1, WARP_LANES)[warps].sum(axis=1)
        is_second_part = (counts < lives) & barrier.present[warps * WARP_LANES]
        return WARP_LANES * int((~is_second_part).sum())

    def complete(self, rank: int, number: int) -> list[Front]:
        """The fronts that a barrier lets go, if all have come."""
        barrier = self.named.get((rank, number))
        if barrier is None:
            return []
        expected = barrier.expected
        if expected is None:
            running = self.cluster.live & (self.cluster.block_of_lane == rank)
            expected = int(running.sum())
            is_complete = not (running & ~barrier.present).any()
        else:
            is_complete = barrier.arrived >= expected
        if not is_complete:
            return []
        del self.named[rank, number]
        if self.cluster.bus.is_heard:
            self.cluster.emit(barrier.completion(rank, number, expected))
        if len(barrier.waiting) != 1 or barrier.arrived != len(barrier.waiting[0].lanes):
            self.cluster.version += 1  # lanes met others: what one of them waits for may have come nearer
        return _release_fronts(barrier.waiting)

    def after_exit(self, lanes: LaneNumbers) -> list[Front]:
        """The fronts that continue because the threads they waited for have ended."""
        fronts: list[Front] = []
        for rank, number in list(self.named):
            fronts += self.complete(rank, number)
        return fronts + self.complete_cluster()

    def incomplete(self) -> list[BarrierComplete]:
        """The barriers of blocks at which lanes still wait, as they would be if they completed."""
        block_threads = self.cluster.block_threads
        return [
            barrier.completion(rank, number, barrier.expected or block_threads)
            for (rank, number), barrier in self.named.items()
        ]

    def cluster_arrive(self, lanes: LaneNumbers) -> None:
        """Count lanes at the barrier of the cluster."""
        self.lane_phase[lanes] = self.cluster_phase
        self.cluster_arrived[lanes] = 1

    def complete_cluster(self) -> list[Front]:
        """Complete the phase of the cluster barrier if every running thread has arrived; returns the fronts that then continue."""
        live = self.cluster.live
        if not self.cluster_arrived.any() or (live & (self.cluster_arrived == 0)).any():
            return []
        self.cluster_arrived[:] = 0
        self.cluster_phase += 1
        self.cluster.version += 1
        waiting = self.cluster_waiting
        self.cluster_waiting = []
        for waiters in waiting:
            self.pass_cluster(waiters.lanes)
        return _release_fronts(waiting)

    def pass_cluster(self, lanes: LaneNumbers) -> None:
        """Lanes pass the cluster's barrier."""
        for phase in np.unique(self.lane_phase[lanes]).tolist():
            self.cluster.emit(ClusterPass(lanes[self.lane_phase[lanes] == phase], phase))

    def has_passed_cluster(self, lanes: LaneNumbers) -> bool:
        """Whether the phase in which these lanes arrived has ended."""
        return bool((self.lane_phase[lanes] < self.cluster_phase).all())


def _release_fronts(waiting: list[Waiting]) -> list[Front]:
    votes = [waiters.votes for waiters in waiting if waiters.votes is not None]
    for waiters in waiting:
        if waiters.write_result is not None:
            waiters.write_result(np.concatenate(votes))
    return [Front(waiters.pc, waiters.lanes) for waiters in waiting]
