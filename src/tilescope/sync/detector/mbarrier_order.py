"""mbarriers: who initialised them, what arrivals release into a phase, and which waits acquire it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.sync.address import SHARED_OFFSET_MASK, SHARED_RANK_SHIFT
from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.detector.context import DetectorContext, MbarrierUse, PhaseBytes
from tilescope.sync.detector.fences import Fences
from tilescope.sync.detector.race import How, Side
from tilescope.sync.events import (
    Flags,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierInit,
    MbarrierInval,
    MbarrierPhaseCompleted,
    MbarrierTest,
)
from tilescope.sync.lane_clocks import EXECUTED, HAPPENS_BEFORE, LaneClocks, Vector, VectorClock, join_clocks
from tilescope.sync.memory_scope import CLUSTER, CTA

_BARRIER_BYTES = 8


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


@dataclass(slots=True)
class MbarrierHistory:
    """One mbarrier. `column` counts its completed phases.

    The copies of a phase are finished for those who know that it ended.
    """

    column: int
    count: int | None = None  # arrivals that complete a phase; None: nobody has initialised it
    init: Side | None = None
    init_epoch: int = 0
    has_init_fence: bool = False  # fence.mbarrier_init of the thread that made it
    is_released: bool = False  # by that fence, or by a release of that thread at the cluster's barrier
    is_published: bool = False  # by a barrier of the cluster after that
    phases: int = 0  # completed
    first_phase: int = 0  # completed before its init
    arriving: VectorClock | None = None
    ended: VectorClock | None = None
    arrived_columns: list[LaneNumbers] = field(default_factory=list)  # in this phase
    arrived_epochs: list[Vector] = field(default_factory=list)
    ended_by: Moments | None = None  # the arrivals of the last phase, if no copy completed it
    ended_before_by: Moments | None = None  # those of the phase before
    failed_lanes: set[int] = field(default_factory=set)  # whose test of the last completed phase failed once
    last_load: tuple[int, int] | None = (
        None  # (epoch, pc) of the last copy from global memory by a thread of this block
    )
    last_copy: tuple[int, int] | None = None  # the same of the last copy by another block, or out of shared memory
    last_commit: tuple[int, int] | None = None  # the same of the last tcgen05.commit
    users: dict[int, tuple[int, int]] = field(default_factory=dict)  # by lane: (epoch, pc) of its last use
    expected_bytes: int = 0  # in this phase
    came_bytes: int = 0
    waits: dict[int, Moments] = field(
        default_factory=dict
    )  # by pc: waits for the last phase that no arrival of this one is ordered after
    byte_pcs: set[int] = field(default_factory=set)  # instructions that expected or copied bytes in this phase
    last_bytes: PhaseBytes | None = None  # of the phase before
    spilled: PhaseBytes | None = None  # of the first phase that completed while one of its copies was pending
    spilled_phase: int | None = None  # its number

    def note_arrival(self, columns: LaneNumbers, epochs: Vector) -> None:
        """Remember who arrived in this phase, and when."""
        self.arrived_columns.append(columns)
        self.arrived_epochs.append(epochs)

    def note_wait(self, pc: int, waits: Moments) -> None:
        """Lanes passed a wait for the last phase: an arrival in this one must be ordered after that."""
        held = self.waits.get(pc)
        if held is not None:
            waits = held.without(waits.columns).union(waits)
        self.waits[pc] = waits

    def arrive(self, clock: VectorClock) -> None:
        """An arrival releases a clock; waits that happen before it were in time for this phase."""
        self.arriving = join_clocks(self.arriving, clock)
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
        self.ended_before_by = self.ended_by
        self.ended_by = None
        if not self.came_bytes and self.arrived_columns:
            self.ended_by = Moments(np.concatenate(self.arrived_columns), np.concatenate(self.arrived_epochs))
        self.arrived_columns.clear()
        self.arrived_epochs.clear()
        self.failed_lanes.clear()
        self.waits.clear()
        self.last_bytes = PhaseBytes(self.expected_bytes, self.came_bytes, frozenset(self.byte_pcs))
        self.expected_bytes = 0
        self.came_bytes = 0
        self.byte_pcs.clear()

    def spill(self, size_bytes: int, phase: int) -> None:
        """A copy of a phase completed after the phase: too few bytes were expected. The first such phase is kept."""
        held = self.spilled
        if held is None:
            held = self.last_bytes
            self.spilled_phase = phase
        if held is not None and phase == self.spilled_phase:
            self.spilled = held._replace(came=held.came + size_bytes)

    def expect(self, expected_bytes: int, pc: int) -> None:
        """An instruction adds to the bytes that this phase expects."""
        self.expected_bytes += expected_bytes
        self.byte_pcs.add(pc)

    def release_clock(self, clocks: LaneClocks) -> VectorClock:
        """What waits for the last phase acquire."""
        end = clocks.clock_of(np.array([self.column]), np.array([self.phases]))
        return end if self.ended is None else join_clocks(self.ended, end)


class Mbarriers:
    """The mbarriers of one cluster, by shared address."""

    def __init__(self, context: DetectorContext, fences: Fences) -> None:
        self._context = context
        self._fences = fences
        self.at: dict[int, MbarrierHistory] = {}
        self._uses: dict[int, MbarrierUse] = {}  # of mbarriers that were invalidated, or whose block ended
        self._is_barrier: npt.NDArray[np.bool_] = np.zeros(len(context.shared.writes), np.bool_)  # by cell

    def history_at(self, address: int) -> MbarrierHistory:
        """The mbarrier at a shared address."""
        found = self.at.get(address)
        if found is None:
            found = self.at[address] = MbarrierHistory(self._context.clocks.new_column())
        return found

    def init(self, event: MbarrierInit) -> None:
        """mbarrier.init."""
        address = event.address
        held = self.history_at(address)
        epoch = int(self._context.clocks.own[event.lane])
        side = Side(event.pc, "init", event.lane)
        self.at[address] = MbarrierHistory(
            held.column, event.arrivals, side, epoch, phases=held.phases, first_phase=held.phases
        )
        self._is_barrier[self._context.cells_at(address, _BARRIER_BYTES)] = True

    def inval(self, event: MbarrierInval) -> None:
        """mbarrier.inval: all uses must have completed."""
        address = event.address
        self._require_done(address, event.lane, EXECUTED)
        if address in self.at:
            self._keep_use(address)
        self._is_barrier[self._context.cells_at(address, _BARRIER_BYTES)] = False
        held = self.history_at(address)
        self.at[address] = MbarrierHistory(held.column, phases=held.phases)

    def check_overwrite(self, lanes: LaneNumbers, places: npt.NDArray[np.int64]) -> None:
        """Threads store to shared memory: all uses of an mbarrier there must happen before."""
        is_barrier = self._is_barrier[places // self._context.cell_bytes]
        if not is_barrier.any():
            return
        for index in np.flatnonzero(is_barrier).tolist():
            for address in list(self.at):
                if 0 <= int(places[index]) - self._context.cluster.place(address) < _BARRIER_BYTES:
                    self._require_done(address, int(lanes[index]), HAPPENS_BEFORE)

    def _require_done(self, address: int, lane: int, vector: int) -> None:
        """Report a use of an mbarrier that is not ordered before its invalidation or a store over it.

        For mbarrier.inval all uses must be over in time, as in cuda::pipeline, whose last warp invalidates the mbarriers; to
        write other data there, they must have happened before.
        """
        vectors = self._context.clocks.view(lane)
        known = np.maximum(vectors[HAPPENS_BEFORE], vectors[vector])
        for user, (epoch, pc) in self.history_at(address).users.items():
            if known[user] < epoch:
                now = Side(self._context.pc, "write", lane)
                before = Side(pc, "arrival", user)
                self._context.report("barrier reuse", before, now, "shared", self._context.cluster.place(address))
                return

    def uses(self, rank: int) -> dict[int, MbarrierUse]:
        """By offset: the mbarriers of a block, invalidated ones included, and how they were used."""
        for address in self.at:
            self._keep_use(address)
        own = {address: use for address, use in self._uses.items() if address >> SHARED_RANK_SHIFT == rank}
        return {address & SHARED_OFFSET_MASK: use for address, use in own.items()}

    def _keep_use(self, address: int) -> None:
        barrier = self.at[address]
        if barrier.count is not None:
            before = self._uses.get(address, MbarrierUse(barrier.count, frozenset()))
            pcs = {pc for _, pc in barrier.users.values()}
            self._uses[address] = MbarrierUse(barrier.count, before.pcs | pcs)

    def fence_init(self, lanes: LaneNumbers) -> None:
        """fence.mbarrier_init: other blocks may use what these lanes initialised, after a barrier of the cluster."""
        for barrier in self._made_by(lanes):
            barrier.has_init_fence = True
            barrier.is_released = True

    def release_inits(self, lanes: LaneNumbers) -> None:
        """An arrival at the cluster's barrier that releases covers what its threads did before, mbarrier.init as well."""
        for barrier in self._made_by(lanes):
            barrier.is_released = True

    def publish(self, lanes: LaneNumbers) -> None:
        """A barrier of the cluster, after the release by the threads that initialised mbarriers."""
        for barrier in self._made_by(lanes):
            if barrier.is_released:
                barrier.is_published = True

    def _made_by(self, lanes: LaneNumbers) -> list[MbarrierHistory]:
        return [one for one in self.at.values() if one.init is not None and one.init.lane in lanes]

    def use(self, address: int, lanes: LaneNumbers, how: How = "arrival") -> MbarrierHistory:
        """Some lanes use an mbarrier: its init must be visible to them."""
        barrier = self.history_at(address)
        context = self._context
        pc = context.pc
        if how == "arrival":  # a copy completes with the phase
            epochs = context.clocks.own[lanes].tolist()
            barrier.users.update((lane, (epoch, pc)) for lane, epoch in zip(lanes.tolist(), epochs, strict=True))
        rank = address >> SHARED_RANK_SHIFT
        if rank in context.ended_blocks:
            side = Side(pc, how, int(lanes[0]))
            context.report("block end", None, side, "shared", context.cluster.place(address), rank=rank)
        if barrier.init is None or barrier.init.lane is None:
            return barrier
        columns = np.full(len(lanes), barrier.init.lane)
        is_ordered = context.clocks.is_ordered(lanes, columns, np.full(len(lanes), barrier.init_epoch))
        is_remote = context.cluster.block_of_lane[lanes] != rank
        is_visible = barrier.is_published | (is_ordered & ~is_remote)
        if not is_visible.all():
            now = Side(pc, how, int(lanes[np.argmin(is_visible)]))
            context.report("barrier init", barrier.init, now, "shared", context.cluster.place(address))
        elif is_remote.any() and not barrier.has_init_fence:
            now = Side(pc, how, int(lanes[np.argmax(is_remote)]))
            context.report("init fence", barrier.init, now, "shared", context.cluster.place(address))
        return barrier

    def arrive(self, event: MbarrierArrive) -> None:
        """mbarrier.arrive releases the clock of its lanes into the phase; if .relaxed, what fences before it cover."""
        barrier = self.use(event.address, event.lanes)
        self._release_by_arrival(barrier, event)
        if event.expected_bytes:
            barrier.expect(event.expected_bytes, event.pc)
        if event.is_drop and barrier.count is not None:
            barrier.count -= event.arrivals

    def _release_by_arrival(self, barrier: MbarrierHistory, event: MbarrierArrive) -> None:
        address = event.address
        lanes = event.lanes
        semantics = event.semantics
        barrier.note_arrival(lanes, self._context.clocks.own[lanes])
        is_remote = bool((self._context.cluster.block_of_lane[lanes] != address >> SHARED_RANK_SHIFT).any())
        if semantics.releases and not (is_remote and semantics.only_own_block):
            barrier.arrive(self._context.clocks.release(lanes))
            return
        for clock in (
            self._fences.fence_clock(lanes, CLUSTER if is_remote else CTA),
            self._context.published_tensor_work(lanes),
            self._context.clocks.release_execution(lanes),
        ):
            if clock is not None:
                barrier.arrive(clock)

    def expect(self, event: MbarrierExpect) -> None:
        """expect_tx, or complete_tx by a thread."""
        barrier = self.issue(event.address, event.lanes, "arrival")
        if not event.is_completion and event.size_bytes:
            barrier.expect(event.size_bytes, event.pc)

    def issue(self, address: int, lanes: LaneNumbers, how: How = "copy") -> MbarrierHistory:
        """Lanes issue copies, or expect bytes, in the current phase: it completes later, and orders nothing else."""
        barrier = self.use(address, lanes, how)
        barrier.arrive(self._context.clocks.release_execution(lanes))
        return barrier

    def complete_phase(self, event: MbarrierPhaseCompleted) -> None:
        """The phase completes. A thread that still waits for the phase before, by its parity, may miss it now."""
        address = event.address
        barrier = self.history_at(address)
        pc = event.pc
        ending = Side(pc, "copy", None) if barrier.came_bytes else Side(pc, "arrival", event.lane)
        for wait_pc, waits in barrier.waits.items():
            wait = Side(wait_pc, "wait", int(waits.columns[0]))
            self._context.report("phase overtaken", ending, wait, "shared", self._context.cluster.place(address))
        barrier.end_phase()

    def test(self, event: MbarrierTest) -> Flags:
        """Lanes test a phase: who sees that it has completed."""
        self.use(event.address, event.lanes)
        if not event.has_completed:
            return event.passes
        passes = self._find_passing(event.address, event.lanes)
        if passes.any():
            self._wait(event.address, event.lanes[passes], is_relaxed=event.is_relaxed)
        return passes

    def _find_passing(self, address: int, lanes: LaneNumbers) -> npt.NDArray[np.bool_]:
        """For lanes whose phase has completed: which tests pass.

        A poll may fail. It fails the first time unless the end of the phase happened before it in the order, so that a
        missing loop around it is found, whichever thread this run lets go first.
        """
        clocks = self._context.clocks
        barrier = self.history_at(address)
        passes = clocks.time_known_to(lanes, barrier.column) >= barrier.phases
        if not passes.all():
            passes |= np.isin(lanes, list(barrier.failed_lanes))
        if not passes.all():
            passes |= self._knows_arrivals(lanes, barrier.ended_by)
        barrier.failed_lanes.update(lanes[~passes].tolist())
        return np.asarray(passes)

    def _require_phase_before(self, address: int, lanes: LaneNumbers) -> None:
        """Report waits that may have passed two phases early: parities of phases n and n + 2 are equal."""
        barrier = self.history_at(address)
        phase_before = barrier.phases - 1
        if phase_before <= barrier.first_phase:
            return
        is_early = self._context.clocks.time_known_to(lanes, barrier.column, EXECUTED) < phase_before
        if is_early.any():
            is_early &= ~self._knows_arrivals(lanes, barrier.ended_before_by)
        if is_early.any():
            now = Side(self._context.pc, "wait", int(lanes[np.argmax(is_early)]))
            self._context.report("phase skipped", None, now, "shared", self._context.cluster.place(address))

    def _knows_arrivals(self, lanes: LaneNumbers, arrivals: Moments | None) -> npt.NDArray[np.bool_]:
        """For each lane whether all arrivals of a phase happen before; None: a copy completed that phase."""
        if arrivals is None:
            return np.zeros(len(lanes), np.bool_)
        shape = (len(lanes), len(arrivals.columns))
        columns = np.broadcast_to(arrivals.columns, shape)
        epochs = np.broadcast_to(arrivals.epochs, shape)
        return np.asarray(self._context.clocks.is_ordered(lanes, columns, epochs).all(axis=1))

    def _wait(self, address: int, lanes: LaneNumbers, *, is_relaxed: bool) -> None:
        """Lanes acquire a completed phase; a relaxed wait does at its next fence."""
        barrier = self.history_at(address)
        clocks = self._context.clocks
        clocks.note_unshared(lanes)
        barrier.note_wait(self._context.pc, Moments(lanes, clocks.own[lanes]))
        if not barrier.phases:
            return
        self._require_phase_before(address, lanes)
        clock = barrier.release_clock(clocks)
        if is_relaxed:
            clocks.acquire(lanes, clock.only_executed(self._context.tensor_work_columns))
            for lane in lanes.tolist():
                self._fences.keep(lane, clock)
        else:
            clocks.acquire(lanes, clock)
