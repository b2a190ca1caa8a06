"""What mbarriers and words in memory hand on from those who release to those who acquire."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tilescope.machine.order.knowledge import Clock, Knowledge, Vector, joined
from tilescope.machine.step import LaneNumbers


@dataclass(slots=True)
class BarrierOrder:
    """One mbarrier: who made it, what its arrivals brought, and what an ended phase hands on.

    `column` counts phases that have ended: the copies of a phase are finished for those who know that it ended.
    """

    column: int
    init_pc: int | None = None
    init_lane: int = 0
    init_epoch: int = 0
    is_fenced: bool = False  # by fence.mbarrier_init of the thread that made it
    is_published: bool = False  # by a barrier of the cluster behind that fence
    phases: int = 0  # that have ended
    arriving: Clock | None = None
    ended: Clock | None = None
    arrived_columns: list[LaneNumbers] = field(default_factory=list)  # in this phase
    arrived_epochs: list[Vector] = field(default_factory=list)
    ended_by: tuple[LaneNumbers, Vector] | None = None  # the arrivals of the last phase, if no copy ended it
    failed_lanes: set[int] = field(default_factory=set)  # whose poll for the phase that ended last failed once
    last_copy: tuple[int, int] | None = None  # (epoch, pc) of the last copy that reports here
    expected_bytes: int = 0  # in this phase
    came_bytes: int = 0

    def note_arrival(self, columns: LaneNumbers, epochs: Vector) -> None:
        """Remember who arrived in this phase, and when."""
        self.arrived_columns.append(columns)
        self.arrived_epochs.append(epochs)

    def arrive(self, clock: Clock) -> None:
        """An arrival hands on what its threads know."""
        self.arriving = joined(self.arriving, clock)

    def end_phase(self) -> None:
        """All have arrived, and all bytes have come."""
        self.phases += 1
        self.ended = self.arriving
        self.ended_by = None
        if not self.came_bytes and self.arrived_columns:
            self.ended_by = np.concatenate(self.arrived_columns), np.concatenate(self.arrived_epochs)
        self.arrived_columns.clear()
        self.arrived_epochs.clear()
        self.failed_lanes.clear()
        self.expected_bytes = 0
        self.came_bytes = 0

    def pass_on(self, knowledge: Knowledge, lanes: LaneNumbers) -> None:
        """Lanes have seen the last phase end."""
        if self.ended is not None:
            knowledge.acquire(lanes, self.ended)
        if self.phases:
            knowledge.learn(lanes, self.column, self.phases)


@dataclass(slots=True)
class Words:
    """Words in memory through which threads hand on what they know: flags, counters, locks.

    A word keeps what was released to it, cluster by cluster, since each atomic on it carries on what the last one released.
    """

    released: dict[int, dict[int, Clock]] = field(default_factory=dict)  # by address, then by cluster

    def release(self, address: int, clock: Clock) -> None:
        """A store or an atomic hands something on."""
        clocks = self.released.setdefault(address, {})
        clocks[clock.cluster] = joined(clocks.get(clock.cluster), clock)

    def at(self, address: int) -> list[Clock]:
        """What a load from there learns."""
        clocks = self.released.get(address)
        return [] if clocks is None else list(clocks.values())
