"""Barriers of threads: of a warp, of a block by its number, of the cluster. Each joins the clocks of its threads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.sync.detector.context import DetectorContext
from tilescope.sync.detector.fences import NOTHING_OBSERVED, Fences, Observed
from tilescope.sync.detector.race import Side
from tilescope.sync.events import BarrierArrive, BarrierComplete, ClusterArrive, ClusterPass, Converge, WarpSync
from tilescope.sync.memory_scope import CLUSTER
from tilescope.sync.vector_clock import EXECUTED, Vector, VectorClock, join_clocks


@dataclass(slots=True)
class NamedBarrier:
    """One barrier of one block. `column` counts its completed phases."""

    column: int
    arrived: Vector  # by lane: the phase of its last arrival
    phases: int = 0
    newest_arrival: int = 0  # the largest phase of `arrived`
    arriving: VectorClock | None = None
    observed: Observed = NOTHING_OBSERVED  # by the lanes that arrived


class ThreadBarriers:
    """What the threads of one cluster acquire at barriers."""

    def __init__(self, context: DetectorContext) -> None:
        self._context = context
        self.fences: Fences | None = None  # None: the threads have neither fenced nor released anything yet
        self._named: dict[tuple[int, int], NamedBarrier] = {}  # (rank, number)
        self._cluster: dict[int, VectorClock] = {}  # by phase: what arrivals released
        self._executed: dict[
            int, VectorClock
        ] = {}  # by phase: what had been done when threads arrived, released or not
        self._has_arrived: npt.NDArray[np.bool_] = np.zeros(
            context.cluster.lane_count, np.bool_
        )  # and not passed since
        self.before_end: dict[int, VectorClock] = {}  # by rank: what was done when it passed a barrier of the cluster

    def sync_warps(self, event: WarpSync) -> None:
        """bar.warp.sync: join the clocks of the lanes of each warp."""
        clocks = self._context.clocks
        lanes = event.lanes
        warps = lanes // WARP_LANES
        for warp in np.unique(warps).tolist():
            warp_lanes = lanes[warps == warp]
            clocks.synchronize(warp_lanes, clocks.release_at_barrier(warp_lanes))
            if self.fences is not None:
                self.fences.share_observed(warp_lanes, self.fences.observed_by(warp_lanes))

    def converge(self, event: Converge) -> None:
        """shfl.sync, mma.sync, wgmma …: the lanes of each group wait for each other, and no memory is ordered."""
        clocks = self._context.clocks
        if not clocks.has_unshared(event.lanes, event.group_lanes):
            return
        groups = event.groups()
        for group in np.unique(groups).tolist():
            clocks.converge(event.lanes[groups == group], event.group_lanes)

    def arrive(self, event: BarrierArrive) -> None:
        """bar.sync, bar.red or bar.arrive of some lanes of a block."""
        clocks = self._context.clocks
        lanes = event.lanes
        number = event.number
        barrier = self._named.get((event.rank, number))
        if barrier is None:
            barrier = self._named[event.rank, number] = NamedBarrier(
                clocks.new_column(), np.zeros(clocks.lane_count, np.int32)
            )
        if clocks.least_known_to(lanes, barrier.column, EXECUTED) < barrier.newest_arrival:
            is_lost = ~clocks.is_time_known_to(lanes, barrier.column, barrier.arrived[lanes], EXECUTED)
            if is_lost.any():
                now = Side(self._context.pc, "arrival", int(lanes[np.argmax(is_lost)]))
                self._context.report("barrier phase", None, now, "registers", None, number=number)
        barrier.newest_arrival = barrier.phases + 1
        barrier.arrived[lanes] = barrier.newest_arrival
        barrier.arriving = join_clocks(barrier.arriving, clocks.release_at_barrier(lanes))
        if self.fences is not None:
            barrier.observed = barrier.observed.join(self.fences.observed_by(lanes))

    def complete(self, event: BarrierComplete) -> None:
        """The barrier is complete: the lanes that waited acquire the clocks of all."""
        barrier = self._named.get((event.rank, event.number))
        if barrier is None or barrier.arriving is None:
            return
        clock = barrier.arriving
        barrier.phases += 1
        observed = barrier.observed
        barrier.arriving = None
        barrier.observed = NOTHING_OBSERVED
        if event.waiting:
            lanes = event.resumed
            clock.put(barrier.column, barrier.phases)
            self._context.clocks.synchronize(lanes, clock)
            if self.fences is not None:
                self.fences.share_observed(lanes, observed)

    def arrive_at_cluster(self, event: ClusterArrive) -> None:
        """barrier.cluster.arrive: a relaxed one releases what fences before it cover."""
        clocks = self._context.clocks
        lanes = event.lanes
        phase = event.phase
        if self._has_arrived[lanes].any():
            now = Side(self._context.pc, "arrival", int(lanes[np.argmax(self._has_arrived[lanes])]))
            self._context.report("cluster phase", None, now, "registers", None)
        self._has_arrived[lanes] = True
        self._executed[phase] = join_clocks(self._executed.get(phase), clocks.clock(lanes))
        if not event.is_relaxed:
            self._cluster[phase] = join_clocks(self._cluster.get(phase), clocks.release(lanes))
            return
        covered = None if self.fences is None else self.fences.fence_clock(lanes, CLUSTER)
        for clock in (covered, self._context.published_tensor_work(lanes)):
            if clock is not None:
                self._cluster[phase] = join_clocks(self._cluster.get(phase), clock)

    def pass_cluster(self, event: ClusterPass) -> None:
        """barrier.cluster.wait."""
        lanes = event.lanes
        phase = event.phase
        self._has_arrived[lanes] = False
        clock = self._cluster.get(phase)
        if clock is not None:
            self._context.clocks.acquire(lanes, clock)
        come = self._executed.get(phase)
        if come is not None:
            self._context.clocks.acquire(lanes, come.only_executed())
            for rank in np.unique(self._context.cluster.block_of_lane[lanes]).tolist():
                self.before_end[rank] = join_clocks(self.before_end.get(rank), come)
