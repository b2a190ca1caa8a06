"""mbarriers: who made them, what arrivals hand on, and who has seen a phase end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.machine.address import SHARED_OFFSET_MASK, SHARED_RANK_SHIFT
from tilescope.machine.order.conflict import How, Side
from tilescope.machine.order.fences import Fences
from tilescope.machine.order.knowledge import KNOWN, Clock, Knowledge, Vector, joined
from tilescope.machine.order.witness import Witness
from tilescope.machine.records import MbarrierUse
from tilescope.machine.step import LaneNumbers

_BARRIER_BYTES = 8


@dataclass(slots=True)
class MbarrierOrder:
    """One mbarrier. `column` counts its phases that have ended.

    The copies of a phase are finished for those who know that it ended.
    """

    column: int
    init: Side | None = None
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
    users: dict[int, tuple[int, int]] = field(default_factory=dict)  # by lane: (epoch, pc) of its last use
    expected_bytes: int = 0  # in this phase
    came_bytes: int = 0
    byte_pcs: set[int] = field(default_factory=set)  # instructions that expected or copied bytes in this phase

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
        self.byte_pcs.clear()

    def expect(self, expected_bytes: int, pc: int) -> None:
        """An instruction says how many bytes are to come in this phase."""
        self.expected_bytes += expected_bytes
        self.byte_pcs.add(pc)

    def handed_on(self, knowledge: Knowledge) -> Clock:
        """What the end of the last phase tells those who see it."""
        end = knowledge.clock_of(np.array([self.column]), np.array([self.phases]))
        return end if self.ended is None else joined(self.ended, end)


class ArrivalOrder(NamedTuple):
    """What an arrival orders: nothing where it is .relaxed, only the own block where its scope is .cta."""

    releases: bool
    only_own_block: bool


class Mbarriers:
    """The mbarriers of one cluster, by shared address."""

    def __init__(self, witness: Witness, fences: Fences) -> None:
        self._witness = witness
        self._fences = fences
        self.at: dict[int, MbarrierOrder] = {}
        self._uses: dict[int, MbarrierUse] = {}  # of those that ended, or were taken away
        self._is_barrier: npt.NDArray[np.bool_] = np.zeros(len(witness.shared.writes), np.bool_)  # by cell

    def named(self, address: int) -> MbarrierOrder:
        """The mbarrier at a shared address."""
        found = self.at.get(address)
        if found is None:
            found = self.at[address] = MbarrierOrder(self._witness.knowledge.new_column())
        return found

    def init(self, address: int, lane: int) -> None:
        """mbarrier.init."""
        held = self.named(address)
        epoch = int(self._witness.knowledge.own[lane])
        side = Side(self._witness.cluster.pc, "init", lane)
        self.at[address] = MbarrierOrder(held.column, side, epoch, phases=held.phases)
        self._is_barrier[self._witness.cells_at(address, _BARRIER_BYTES)] = True

    def forget(self, address: int, lane: int) -> None:
        """mbarrier.inval: everybody must be done with it."""
        self._require_done(address, lane)
        if address in self.at:
            self._keep_use(address)
        self._is_barrier[self._witness.cells_at(address, _BARRIER_BYTES)] = False
        held = self.named(address)
        self.at[address] = MbarrierOrder(held.column, phases=held.phases)

    def overwritten(self, lanes: LaneNumbers, places: npt.NDArray[np.int64]) -> None:
        """Threads store to shared memory: where an mbarrier lies, everybody must be done with it."""
        is_barrier = self._is_barrier[places // self._witness.cell_bytes]
        if not is_barrier.any():
            return
        for index in np.flatnonzero(is_barrier).tolist():
            for address in list(self.at):
                if 0 <= int(places[index]) - self._witness.place(address) < _BARRIER_BYTES:
                    self._require_done(address, int(lanes[index]))

    def _require_done(self, address: int, lane: int) -> None:
        """Whoever takes an mbarrier away must know that nobody uses it any more."""
        known = self._witness.knowledge.view(lane)[KNOWN]
        for user, (epoch, pc) in self.named(address).users.items():
            if known[user] < epoch:
                now = Side(self._witness.cluster.pc, "write", lane)
                before = Side(pc, "arrival", user)
                self._witness.tell("barrier reuse", before, now, "shared", self._witness.place(address))
                return

    def uses(self, rank: int) -> dict[int, MbarrierUse]:
        """By offset: the mbarriers of a block, those that were taken away included, and how they were used."""
        for address in self.at:
            self._keep_use(address)
        own = {address: use for address, use in self._uses.items() if address >> SHARED_RANK_SHIFT == rank}
        return {address & SHARED_OFFSET_MASK: use for address, use in own.items()}

    def _keep_use(self, address: int) -> None:
        state = self._witness.cluster.mbarriers.get(address)
        if state is not None:
            before = self._uses.get(address, MbarrierUse(state.count, frozenset()))
            pcs = {pc for _, pc in self.at[address].users.values()}
            self._uses[address] = MbarrierUse(state.count, before.pcs | pcs)

    def fence_init(self, lanes: LaneNumbers) -> None:
        """fence.mbarrier_init: what these lanes made may be used by other blocks behind a barrier of the cluster."""
        for barrier in self.at.values():
            if barrier.init is not None and barrier.init.lane in lanes:
                barrier.is_fenced = True

    def publish(self, lanes: LaneNumbers) -> None:
        """A barrier of the cluster behind the fence of those who made mbarriers."""
        for barrier in self.at.values():
            if barrier.is_fenced and barrier.init is not None and barrier.init.lane in lanes:
                barrier.is_published = True

    def use(self, address: int, lanes: LaneNumbers, how: How = "arrival") -> MbarrierOrder:
        """Some lanes use an mbarrier: its init must be visible to them."""
        barrier = self.named(address)
        witness = self._witness
        pc = witness.cluster.pc
        if how == "arrival":  # a copy is finished for those who know that the phase has ended
            epochs = witness.knowledge.own[lanes].tolist()
            barrier.users.update((lane, (epoch, pc)) for lane, epoch in zip(lanes.tolist(), epochs, strict=True))
        rank = address >> SHARED_RANK_SHIFT
        if rank in witness.ended_blocks:
            side = Side(pc, how, int(lanes[0]))
            witness.tell("block end", None, side, "shared", witness.place(address), rank=rank)
        if barrier.init is None or barrier.init.lane is None:
            return barrier
        columns = np.full(len(lanes), barrier.init.lane)
        is_known = witness.knowledge.is_known(lanes, columns, np.full(len(lanes), barrier.init_epoch))
        is_remote = witness.cluster.block_of_lane[lanes] != rank
        is_visible = barrier.is_published | (is_known & ~is_remote)
        if not is_visible.all():
            now = Side(pc, how, int(lanes[np.argmin(is_visible)]))
            witness.tell("barrier init", barrier.init, now, "shared", witness.place(address))
        return barrier

    def arrive(self, address: int, lanes: LaneNumbers, order: ArrivalOrder) -> None:
        """mbarrier.arrive: what the lanes know is handed on when the phase ends."""
        barrier = self.use(address, lanes)
        barrier.note_arrival(lanes, self._witness.knowledge.own[lanes])
        is_remote = bool((self._witness.cluster.block_of_lane[lanes] != address >> SHARED_RANK_SHIFT).any())
        if order.releases and not (is_remote and order.only_own_block):
            barrier.arrive(self._witness.knowledge.release(lanes))

    def may_pass(self, address: int, lanes: LaneNumbers) -> npt.NDArray[np.bool_]:
        """For lanes whose phase has ended: who sees that at once.

        A poll may fail. It fails the first time unless the end of the phase happened before it in the order, so that a
        missing loop behind it is found whatever the run let go first.
        """
        knowledge = self._witness.knowledge
        barrier = self.named(address)
        passes = knowledge.known_to(lanes, barrier.column) >= barrier.phases
        if not passes.all():
            passes |= np.isin(lanes, list(barrier.failed_lanes))
        if not passes.all() and barrier.ended_by is not None:
            columns, epochs = barrier.ended_by
            shape = (len(lanes), len(columns))
            known = knowledge.is_known(lanes, np.broadcast_to(columns, shape), np.broadcast_to(epochs, shape))
            passes |= known.all(axis=1)
        barrier.failed_lanes.update(lanes[~passes].tolist())
        return np.asarray(passes)

    def waited(self, address: int, lanes: LaneNumbers, *, is_relaxed: bool) -> None:
        """Lanes have seen a phase end; a relaxed wait learns from it at the next fence."""
        barrier = self.named(address)
        if not barrier.phases:
            return
        clock = barrier.handed_on(self._witness.knowledge)
        if is_relaxed:
            for lane in lanes.tolist():
                self._fences.keep(lane, clock)
        else:
            self._witness.knowledge.acquire(lanes, clock)
