"""Barriers of threads: of a warp, of a block by its number, of the cluster."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.sync.detector.context import Witness
from tilescope.sync.detector.fences import Fences
from tilescope.sync.detector.race import Side
from tilescope.sync.detector.releases import Left
from tilescope.sync.events import BarrierArrive, BarrierComplete, ClusterArrive, ClusterPass, Converge, WarpSync
from tilescope.sync.lane_clocks import Clock, Vector, joined
from tilescope.sync.scope import CLUSTER


@dataclass(slots=True)
class NamedBarrier:
    """One barrier of one block. `column` counts its phases that have ended."""

    column: int
    came: Vector  # by lane: the phase that it came to last
    phases: int = 0
    arriving: Clock | None = None
    seen: list[Left] = field(default_factory=list)  # by relaxed loads of those who came, with no fence since


class ThreadBarriers:
    """What the threads of one cluster learn from each other at barriers."""

    def __init__(self, witness: Witness, fences: Fences) -> None:
        self._witness = witness
        self._fences = fences
        self._named: dict[tuple[int, int], NamedBarrier] = {}  # (rank, number)
        self._cluster: dict[int, Clock] = {}  # by phase: what arrivals released
        self._come: dict[int, Clock] = {}  # by phase: what had been done when threads came, released or not
        self._has_come: npt.NDArray[np.bool_] = np.zeros(witness.cluster.lane_count, np.bool_)  # and not passed since
        self.before_end: dict[int, Clock] = {}  # by rank: what was done when it passed a barrier of the cluster

    def sync_warps(self, event: WarpSync) -> None:
        """bar.warp.sync: the lanes of each warp learn what they know together."""
        knowledge = self._witness.knowledge
        lanes = event.lanes
        warps = lanes // WARP_LANES
        for warp in np.unique(warps).tolist():
            own = lanes[warps == warp]
            knowledge.meet(own, knowledge.release(own))
            self._fences.share_seen(own, self._fences.seen_by(own))

    def converge(self, event: Converge) -> None:
        """shfl.sync, mma.sync, wgmma …: the lanes of each group wait for each other, and no memory is ordered."""
        knowledge = self._witness.knowledge
        if not knowledge.has_news(event.lanes, event.group_lanes):
            return
        groups = event.groups()
        for group in np.unique(groups).tolist():
            knowledge.come_together(event.lanes[groups == group], event.group_lanes)

    def arrive(self, event: BarrierArrive) -> None:
        """bar.sync, bar.red or bar.arrive of some lanes of a block."""
        knowledge = self._witness.knowledge
        lanes = event.lanes
        number = event.number
        barrier = self._named.get((event.rank, number))
        if barrier is None:
            barrier = self._named[event.rank, number] = NamedBarrier(
                knowledge.new_column(), np.zeros(knowledge.lane_count, np.int32)
            )
        is_lost = knowledge.known_to(lanes, barrier.column) < barrier.came[lanes]
        if is_lost.any():
            now = Side(self._witness.pc, "arrival", int(lanes[np.argmax(is_lost)]))
            self._witness.tell("barrier phase", None, now, "registers", None, number=number)
        barrier.came[lanes] = barrier.phases + 1
        barrier.arriving = joined(barrier.arriving, knowledge.release(lanes))
        barrier.seen += self._fences.seen_by(lanes)

    def complete(self, event: BarrierComplete) -> None:
        """All have come: the lanes that waited go on, with what all brought."""
        barrier = self._named.get((event.rank, event.number))
        if barrier is None or barrier.arriving is None:
            return
        clock = barrier.arriving
        barrier.phases += 1
        seen = barrier.seen
        barrier.arriving = None
        barrier.seen = []
        if event.waiting:
            lanes = np.concatenate([waiting.lanes for waiting in event.waiting])
            self._witness.knowledge.meet(lanes, clock)
            self._witness.knowledge.learn(lanes, barrier.column, barrier.phases)
            self._fences.share_seen(lanes, seen)

    def arrive_at_cluster(self, event: ClusterArrive) -> None:
        """barrier.cluster.arrive: a relaxed one releases what fences before it cover."""
        knowledge = self._witness.knowledge
        lanes = event.lanes
        phase = event.phase
        if self._has_come[lanes].any():
            now = Side(self._witness.pc, "arrival", int(lanes[np.argmax(self._has_come[lanes])]))
            self._witness.tell("cluster phase", None, now, "registers", None)
        self._has_come[lanes] = True
        self._come[phase] = joined(self._come.get(phase), knowledge.clock(lanes))
        if not event.is_relaxed:
            self._cluster[phase] = joined(self._cluster.get(phase), knowledge.release(lanes))
            return
        covered = self._fences.covered(lanes, CLUSTER)
        for clock in (covered, self._witness.published_tensor_work(lanes)):
            if clock is not None:
                self._cluster[phase] = joined(self._cluster.get(phase), clock)

    def pass_cluster(self, event: ClusterPass) -> None:
        """barrier.cluster.wait."""
        lanes = event.lanes
        phase = event.phase
        self._has_come[lanes] = False
        clock = self._cluster.get(phase)
        if clock is not None:
            self._witness.knowledge.acquire(lanes, clock)
        come = self._come.get(phase)
        if come is not None:
            self._witness.knowledge.acquire(lanes, come.executed_part())
            for rank in np.unique(self._witness.cluster.block_of_lane[lanes]).tolist():
                self.before_end[rank] = joined(self.before_end.get(rank), come)
