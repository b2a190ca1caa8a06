"""mbarriers: who initialised them, what arrivals release into a phase, and which waits acquire it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilescope.sync.access_semantics import MbarrierSemantics
from tilescope.sync.address import SHARED_OFFSET_MASK, SHARED_RANK_SHIFT
from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.detector.accesses import Accesses
from tilescope.sync.detector.context import DetectorContext, MbarrierUse, NarrowRelease
from tilescope.sync.detector.fences import Fences
from tilescope.sync.detector.mbarrier_bytes import MbarrierBytes
from tilescope.sync.detector.mbarrier_history import MbarrierHistory, Moments, RemoteArrival, Use
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
from tilescope.sync.memory_scope import CLUSTER, CTA, GPU
from tilescope.sync.vector_clock import EXECUTED, join_clocks


class Mbarriers:
    """The mbarriers of one cluster, by shared address."""

    def __init__(self, context: DetectorContext, fences: Fences, accesses: Accesses) -> None:
        self._context = context
        self._fences = fences
        self.bytes = MbarrierBytes(context, accesses)
        self.at: dict[int, MbarrierHistory] = {}
        self._uses: dict[int, MbarrierUse] = {}  # of mbarriers that were invalidated, or whose block ended

    def history_at(self, address: int) -> MbarrierHistory:
        """The mbarrier at a shared address."""
        history = self.at.get(address)
        if history is None:
            history = self.at[address] = MbarrierHistory(self._context.clocks.new_column())
        return history

    def init(self, event: MbarrierInit) -> None:
        """mbarrier.init."""
        address = event.address
        previous = self.history_at(address)
        epoch = int(self._context.clocks.own[event.lane])
        side = Side(event.pc, "init", event.lane)
        history = MbarrierHistory(
            previous.column, event.arrivals, side, epoch, phases=previous.phases, first_phase=previous.phases
        )
        self.bytes.init(address, previous, history)
        self.at[address] = history

    def inval(self, event: MbarrierInval) -> None:
        """mbarrier.inval."""
        address = event.address
        previous = self.history_at(address)
        invalidated = self.bytes.inval(address, event.lane, previous)
        self._keep_use(address)
        self.at[address] = MbarrierHistory(previous.column, phases=previous.phases, invalidated=invalidated)

    def uses(self, rank: int) -> dict[int, MbarrierUse]:
        """By offset: the mbarriers of a block, invalidated ones included, and how they were used."""
        for address in self.at:
            self._keep_use(address)
        block_uses = {address: use for address, use in self._uses.items() if address >> SHARED_RANK_SHIFT == rank}
        return {address & SHARED_OFFSET_MASK: use for address, use in block_uses.items()}

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
        return [history for history in self.at.values() if history.init is not None and history.init.lane in lanes]

    def use(self, address: int, lanes: LaneNumbers, how: How = "arrival") -> MbarrierHistory:
        """Some lanes use an mbarrier: its init must be visible to them."""
        barrier = self.history_at(address)
        context = self._context
        pc = context.pc
        is_live = self.bytes.require_live(address, barrier, Side(pc, how, int(lanes[0])))
        if how == "arrival":  # a copy completes with the phase
            barrier.note_use(Use(lanes, context.clocks.own[lanes], pc))
        rank = address >> SHARED_RANK_SHIFT
        if rank in context.ended_blocks:
            side = Side(pc, how, int(lanes[0]))
            context.report("block end", None, side, "shared", context.cluster.place(address), rank=rank)
        if not is_live or barrier.init is None or barrier.init.lane is None:
            return barrier
        if context.cluster.blocks == 1 and context.clocks.is_ordered_for_all(
            lanes, barrier.init.lane, barrier.init_epoch
        ):
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
        if not semantics.is_relaxed and is_remote and self._context.clocks.has_scopes:
            barrier.arrive_remotely(event.pc, self._context.clocks.release(lanes), semantics)
            return
        if not semantics.is_relaxed:
            barrier.arrive(self._context.clocks.release(lanes))
            return
        fenced = self._fences.fence_clock(lanes, CLUSTER if is_remote else CTA)
        if fenced is not None and is_remote and self._context.clocks.has_scopes:
            barrier.arrive_remotely(event.pc, fenced, semantics)
            fenced = None
        for clock in (
            fenced,
            self._context.published_tensor_work(lanes),
            self._context.clocks.release_execution(lanes),
        ):
            if clock is not None:
                barrier.arrive(clock, is_nearby=not is_remote)

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
        poll = self._context.poll_at(event.pc, is_of_mbarrier=True)
        if not event.has_completed:
            return event.passes
        passes = event.passes
        if event.pc not in self._context.launch.late_pcs:
            passes = self._find_passing(event.address, event.lanes)
        if passes.any():
            poll.has_passed = True
            self._wait(event.address, event.lanes[passes], event.semantics)
        return passes

    def _find_passing(self, address: int, lanes: LaneNumbers) -> Flags:
        """For lanes whose phase has completed: which tests pass.

        A poll may fail. It fails the first time unless the end of the phase happened before it in the order, so that a
        missing loop around it is found, whichever thread this run lets go first.
        """
        clocks = self._context.clocks
        barrier = self.history_at(address)
        passes: Flags = clocks.time_known_to(lanes, barrier.column) >= barrier.phases
        if barrier.has_failed is not None:
            passes |= barrier.has_failed[lanes]
        if passes.all():
            return passes
        passes |= self._knows_arrivals(lanes, barrier.ended_by)
        if barrier.has_failed is None:
            barrier.has_failed = np.zeros(clocks.lane_count, np.bool_)
        barrier.has_failed[lanes[~passes]] = True
        return passes

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
        """For each lane whether all arrivals of a phase have come before; None: a copy completed that phase."""
        if arrivals is None:
            return np.zeros(len(lanes), np.bool_)
        shape = (len(lanes), len(arrivals.columns))
        columns = np.broadcast_to(arrivals.columns, shape)
        epochs = np.broadcast_to(arrivals.epochs, shape)
        clocks = self._context.clocks
        is_known = clocks.is_ordered(lanes, columns, epochs) | clocks.is_ordered(lanes, columns, epochs, EXECUTED)
        return np.asarray(is_known.all(axis=1))

    def _wait(self, address: int, lanes: LaneNumbers, semantics: MbarrierSemantics) -> None:
        """Lanes acquire a completed phase; a relaxed wait does at its next fence."""
        barrier = self.history_at(address)
        clocks = self._context.clocks
        clocks.note_unshared(lanes)
        barrier.note_wait(self._context.pc, Moments(lanes, clocks.own[lanes]))
        if not barrier.phases:
            return
        self._require_phase_before(address, lanes)
        clock = barrier.release_clock(clocks, GPU if semantics.is_relaxed else semantics.scope)
        if semantics.is_relaxed:
            clocks.acquire(lanes, clock.only_executed(self._context.tensor_work_columns))
            for lane in lanes.tolist():
                self._fences.keep(lane, clock)
            return
        for pc, arrival in barrier.ended_by_remote.items():
            narrow = [side for side in (arrival.semantics, semantics) if side.scope == CTA]
            if narrow:
                self._keep_narrow_release(pc, arrival, names_scope=any(side.names_scope for side in narrow))
        clocks.acquire(lanes, clock)

    def _keep_narrow_release(self, pc: int, arrival: RemoteArrival, *, names_scope: bool) -> None:
        """Record an arrival of another block, and this wait for it, which are ordered only by block scope."""
        releases = self._context.narrow_releases
        before = releases.get((pc, self._context.pc))
        clock = join_clocks(None if before is None else before.clock, arrival.clock)
        releases[pc, self._context.pc] = NarrowRelease(clock, names_scope)
