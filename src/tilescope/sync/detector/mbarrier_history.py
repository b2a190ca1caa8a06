"""What the detector remembers of one mbarrier: its init, the running phase, the last completed phase, and who used it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.sync.access_semantics import MbarrierSemantics
from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.detector.context import PhaseBytes
from tilescope.sync.detector.race import Side
from tilescope.sync.lane_clocks import LaneClocks
from tilescope.sync.memory_scope import CTA
from tilescope.sync.vector_clock import EXECUTED, SCOPED, Vector, VectorClock, join_clocks

BARRIER_BYTES = 8
_MOST_LATE_USES = 64


class Moments(NamedTuple):
    """Arrivals or passed waits: columns (threads, or their copies), each with its epoch."""

    columns: LaneNumbers
    epochs: Vector

    def without(self, columns: LaneNumbers) -> Moments:
        """Those of all other columns."""
        is_other = ~np.isin(self.columns, columns)
        return Moments(self.columns[is_other], self.epochs[is_other])

    def union(self, more: Moments) -> Moments:
        """These and more."""
        return Moments(np.concatenate([self.columns, more.columns]), np.concatenate([self.epochs, more.epochs]))

    def not_over(self, clock: VectorClock) -> Moments:
        """Those that, by a clock, have not completed."""
        is_open = clock.vectors[EXECUTED, self.columns] < self.epochs
        return Moments(self.columns[is_open], self.epochs[is_open])


class Use(NamedTuple):
    """Lanes use an mbarrier by one instruction: the epoch of each."""

    lanes: LaneNumbers
    epochs: Vector
    pc: int


class RemoteArrival(NamedTuple):
    """Arrivals of another block by one instruction: their semantics, and what they release."""

    semantics: MbarrierSemantics
    clock: VectorClock


class Commit(NamedTuple):
    """A tcgen05.commit at an mbarrier. The commits of one thread arrive in their order."""

    epoch: int  # the phase in which it arrived; PENDING until then
    pc: int
    lane: int
    number: int  # counts the commits of the cluster


@dataclass(slots=True)
class MbarrierHistory:
    """One mbarrier. `column` counts its completed phases.

    The copies of a phase are finished for those who know that it ended.
    """

    column: int
    count: int | None = None  # arrivals that complete a phase; None before the init
    init: Side | None = None
    init_epoch: int = 0
    has_init_fence: bool = False  # fence.mbarrier_init of the thread that made it
    is_released: bool = False  # by that fence, or by a release of that thread at the cluster's barrier
    is_published: bool = False  # by a barrier of the cluster after that
    phases: int = 0  # completed
    first_phase: int = 0  # completed before its init
    invalidated: Side | None = None  # by the last mbarrier.inval; None: there was none, or an init since
    overwrite: Side | None = None  # the first store over it, as long as it was not used since
    arriving: VectorClock | None = None
    ended: VectorClock | None = None
    arriving_nearby: VectorClock | None = None  # what arrivals of the own block release, if scopes matter
    ended_nearby: VectorClock | None = None
    remote_arrivals: dict[int, RemoteArrival] = field(default_factory=dict)  # by pc, in this phase, if scopes matter
    ended_by_remote: dict[int, RemoteArrival] = field(default_factory=dict)
    arrived_columns: list[LaneNumbers] = field(default_factory=list)  # in this phase
    arrived_epochs: list[Vector] = field(default_factory=list)
    ended_by: Moments | None = None  # the arrivals of the last phase, if no copy completed it
    ended_before_by: Moments | None = None  # those of the phase before
    has_failed: npt.NDArray[np.bool_] | None = None  # by lane: whether a test of the last completed phase failed once
    # Copies by whether a thread of this block loads from global memory; by pc those that will complete here.
    last_copy: dict[bool, tuple[int, int]] = field(default_factory=dict)  # (epoch, pc) of the last that completed
    pending_copies: dict[bool, Counter[int]] = field(default_factory=lambda: {True: Counter(), False: Counter()})
    late_arrivals: dict[int, Moments] = field(default_factory=dict)  # by pc: of cp.async.mbarrier.arrive
    last_commit: Commit | None = None
    _users: dict[int, tuple[int, int]] = field(default_factory=dict)  # by lane: (epoch, pc) of its last use
    _late_uses: list[Use] = field(default_factory=list)  # that are not in `_users` yet
    expected_bytes: int = 0  # in this phase
    came_bytes: int = 0
    waits: dict[int, Moments] = field(
        default_factory=dict
    )  # by pc: waits for the last phase that no arrival of this one is ordered after
    byte_pcs: set[int] = field(default_factory=set)  # instructions that expected or copied bytes in this phase
    last_bytes: PhaseBytes | None = None  # of the phase before
    spilled: PhaseBytes | None = None  # of the first phase that completed while one of its copies was pending
    spilled_phase: int | None = None  # its number

    @property
    def users(self) -> dict[int, tuple[int, int]]:
        """By lane: (epoch, pc) of its last use."""
        for use in self._late_uses:
            moments = zip(use.epochs.tolist(), repeat(use.pc), strict=False)
            self._users.update(zip(use.lanes.tolist(), moments, strict=False))
        self._late_uses.clear()
        return self._users

    def note_use(self, use: Use) -> None:
        """Lanes use it; a thread's earlier uses happen before."""
        late = self._late_uses
        if late and late[-1].lanes is use.lanes:
            late[-1] = use
            return
        late.append(use)
        if len(late) > _MOST_LATE_USES:
            _ = self.users

    def note_arrival(self, columns: LaneNumbers, epochs: Vector) -> None:
        """Remember who arrived in this phase, and when."""
        self.arrived_columns.append(columns)
        self.arrived_epochs.append(epochs)

    def note_wait(self, pc: int, waits: Moments) -> None:
        """Lanes passed a wait for the last phase: an arrival in this one must be ordered after that."""
        earlier = self.waits.get(pc)
        if earlier is not None:
            waits = earlier.without(waits.columns).union(waits)
        self.waits[pc] = waits

    def arrive_remotely(self, pc: int, clock: VectorClock, semantics: MbarrierSemantics) -> None:
        """An arrival of another block releases a clock: a scope of one block does not reach this one."""
        before = self.remote_arrivals.get(pc)
        self.remote_arrivals[pc] = RemoteArrival(
            semantics, join_clocks(None if before is None else before.clock, clock)
        )
        self.arrive(clock.with_scoped(None) if semantics.scope == CTA else clock, is_nearby=False)

    def arrive(self, clock: VectorClock, *, is_nearby: bool = True) -> None:
        """An arrival releases a clock; waits that happen before it were in time for this phase."""
        self.arriving = join_clocks(self.arriving, clock)
        if is_nearby and len(clock.vectors) > SCOPED:
            self.arriving_nearby = join_clocks(self.arriving_nearby, clock)
        for pc, waits in list(self.waits.items()):
            left = waits.not_over(clock)
            if len(left.columns):
                self.waits[pc] = left
            else:
                del self.waits[pc]

    def end_phase(self) -> None:
        """All have arrived, and all bytes have come."""
        self.phases += 1
        self.ended = self.arriving
        self.ended_nearby = self.arriving_nearby
        self.arriving_nearby = None
        self.ended_by_remote = self.remote_arrivals
        self.remote_arrivals = {}
        self.ended_before_by = self.ended_by
        self.ended_by = None
        if not self.came_bytes and self.arrived_columns:
            self.ended_by = Moments(np.concatenate(self.arrived_columns), np.concatenate(self.arrived_epochs))
        self.arrived_columns.clear()
        self.arrived_epochs.clear()
        self.has_failed = None
        self.waits.clear()
        self.last_bytes = PhaseBytes(self.expected_bytes, self.came_bytes, frozenset(self.byte_pcs))
        self.expected_bytes = 0
        self.came_bytes = 0
        self.byte_pcs.clear()

    def issue_copy(self, pc: int, *, is_own_load: bool) -> None:
        """A copy is issued whose bytes this mbarrier will count."""
        self.pending_copies[is_own_load][pc] += 1
        self.byte_pcs.add(pc)

    def complete_copy(self, pc: int, size_bytes: int, *, is_own_load: bool) -> None:
        """The bytes of a copy have come, in the running phase."""
        self.pending_copies[is_own_load][pc] -= 1
        self.last_copy[is_own_load] = (self.phases + 1, pc)
        self.came_bytes += size_bytes

    def unfinished_copy(self, known: Vector, *, is_own_load: bool) -> int | None:
        """The pc of a copy of a kind whose completion is not known by a clock; None: all of them are."""
        for pc, count in self.pending_copies[is_own_load].items():
            if count:
                return pc
        epoch, pc = self.last_copy.get(is_own_load, (0, 0))
        return pc if known[self.column] < epoch else None

    def note_late_arrival(self, pc: int, arrivals: Moments) -> None:
        """Lanes will arrive when their copies have completed."""
        earlier = self.late_arrivals.get(pc)
        self.late_arrivals[pc] = arrivals if earlier is None else earlier.without(arrivals.columns).union(arrivals)

    def spill(self, size_bytes: int, phase: int) -> None:
        """A copy of a phase completed after the phase: too few bytes were expected. The first such phase is recorded."""
        phase_bytes = self.spilled
        if phase_bytes is None:
            phase_bytes = self.last_bytes
            self.spilled_phase = phase
        if phase_bytes is not None and phase == self.spilled_phase:
            self.spilled = phase_bytes._replace(came=phase_bytes.came + size_bytes)

    def expect(self, expected_bytes: int, pc: int) -> None:
        """An instruction adds to the bytes that this phase expects."""
        self.expected_bytes += expected_bytes
        self.byte_pcs.add(pc)

    def release_clock(self, clocks: LaneClocks, scope: int) -> VectorClock:
        """What waits for the last phase acquire with a scope."""
        end = clocks.clock_of(np.array([self.column]), np.array([self.phases]))
        if self.ended is None:
            return end
        if not clocks.has_scopes or scope > CTA:
            return join_clocks(self.ended, end)
        nearby = None if self.ended_nearby is None else self.ended_nearby.vectors[SCOPED]
        return join_clocks(self.ended.with_scoped(nearby), end)
