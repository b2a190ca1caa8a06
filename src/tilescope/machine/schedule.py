"""The scheduler of a cluster: threads at the same instruction execute it together.

    front        lanes at one instruction. A branch splits a front, a label at which two arrive joins them.
    ready        fronts that can run: those at the smallest instruction first, so that the others catch up
    gathering    lanes at an instruction that waits for the rest of their warp (shfl.sync, bar.sync, mma.sync, wgmma …)
    barriers     lanes at bar.sync or barrier.cluster.wait
    spinning     fronts that went round a loop without seeing anything new: they run again when something changes,
                 or, where the loop reads a clock, when time has passed

If no front is ready, asynchronous work completes, so as late as its wait allows. With a seed it may complete at any earlier time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tilescope.machine.cluster import Cluster, Front
from tilescope.machine.execution.block_barrier import BlockBarriers
from tilescope.machine.execution.call_frames import MAX_CALL_DEPTH, CallFrames
from tilescope.machine.execution.fault import KernelFaultError
from tilescope.machine.execution.pending import IN_ORDER, Work
from tilescope.machine.launch.launch import Versions
from tilescope.machine.step import Turn
from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.events import BlockEnd, BranchTaken, ClusterEnd, InstructionReached, WarpSync

QUANTUM_STEPS = 4096  # that a front may take before the others get their turn
MOST_PATIENCE = 1024  # clusters that one lets go first that waited in vain: a barrier over many blocks
IDLE_STEPS = 8 * QUANTUM_STEPS  # without a change of global memory: then another cluster may have its turn
_EARLY_CHANCE = 0.3  # with a seed: that a piece of work is done when the scheduler chooses

LoopKey = tuple[int, int, int]  # a branch back, the first of the lanes that take it, and how many they are
ClusterState = Literal["finished", "blocked", "idle", "stopped"]
"""blocked: until another cluster changes memory. idle: it looks at a clock, or counts, while it waits. stopped: no steps left."""


class LoopVisit(NamedTuple):
    """The values that lanes saw when they last returned to the start of a loop; `registers` only if memory did not change."""

    versions: Versions
    registers: bytes | None


@dataclass(slots=True)
class Spinning:
    """A front that waits for a change, and the versions that it last saw."""

    front: Front
    versions: Versions
    reads_clock: bool


@runtime_checkable
class Rendezvous(Turn, Protocol):
    """An instruction that waits for all lanes of its mask."""

    @property
    def meets_elsewhere(self) -> bool:
        """Whether lanes may come to another instruction of the kind, as to two __syncwarp() in two branches."""

    def complete(self, cluster: Cluster, lanes: LaneNumbers, present: LaneNumbers) -> npt.NDArray[np.bool_]:
        """For each lane whether everyone it waits for is among those present."""


@runtime_checkable
class Gathering(Turn, Protocol):
    """An instruction that waits for the rest of a warp, and that a card executes without it if it never comes."""

    def take_without_rest(self, schedule: Schedule, front: Front) -> None:
        """Execute it by the lanes that are here."""


@dataclass(slots=True, eq=False)
class Schedule:
    """Runs one cluster, as far as it can go."""

    cluster: Cluster
    ready: list[Front] = field(default_factory=list)
    gathering: dict[int, LaneNumbers] = field(default_factory=dict)
    spinning: list[Spinning] = field(default_factory=list)
    barriers: BlockBarriers = field(init=False)
    thread_counts: npt.NDArray[np.int64] = field(init=False)  # by instruction: differences of how many ran it
    warp_counts: npt.NDArray[np.int64] = field(init=False)
    returns: npt.NDArray[np.int32] = field(init=False)  # (depth, lanes): where calls go back to
    depth: npt.NDArray[np.intp] = field(init=False)
    call_frames: CallFrames | None = field(init=False)  # None: no function calls itself
    loop_visits: dict[LoopKey, LoopVisit] = field(default_factory=dict)
    finds_spins: bool = True  # whether a loop that sees nothing new waits for a change
    _turns_to_wait: int = 0  # of other clusters, before it looks again at what they changed
    _last_wait: int = 0
    _late_polls: set[LoopKey] = field(default_factory=set)  # that have let other clusters go first
    _quiet_steps: int = 0  # since global memory changed, or asynchronous work was done
    _continues: bool = False  # whether the front of the turn that was just taken goes on
    _has_calls: bool = field(init=False)

    def __post_init__(self) -> None:
        cluster = self.cluster
        program = cluster.program
        self.barriers = BlockBarriers(cluster)
        self.thread_counts = np.zeros(len(program.steps) + 1, np.int64)
        self.warp_counts = np.zeros(len(program.steps) + 1, np.int64)
        self._has_calls = len(program.functions) > 1
        calls = MAX_CALL_DEPTH if program.frames else len(program.functions)
        self.returns = np.zeros((calls + 1, cluster.lane_count), np.int32)
        self.call_frames = CallFrames(program, cluster.lane_count) if program.frames else None
        self.depth = np.zeros(cluster.lane_count, np.intp)
        self.ready.append(Front(0, np.flatnonzero(cluster.exists)))

    def run(self) -> ClusterState:
        """Run until every thread has ended, no thread can continue without another cluster, or the budget is spent."""
        cluster = self.cluster
        launch = cluster.launch
        while True:
            if launch.steps_left <= 0:
                return "stopped"
            self._work_at_random_times()
            front = self._next_front()
            if front is not None and front.pc in launch.late_pcs and self._has_others_first(front):
                self.add(front)
                if self._work():
                    continue
                return "idle"
            if front is not None:
                if self._advance_idly(front):
                    return "idle"
                continue
            if self._meet_elsewhere():
                continue
            if not cluster.live.any():
                self._end_cluster()
                return "finished"
            if self._wake() or self._work():
                continue
            return "idle" if any(spinning.reads_clock for spinning in self.spinning) else "blocked"

    def _end_cluster(self) -> None:
        """All threads have exited: the end of a kernel waits for its asynchronous work."""
        if self.cluster.works:
            self.cluster.pending.finish_all()
        self.cluster.emit(ClusterEnd())

    def wait_longer(self, *, has_written: bool) -> None:
        """It can only wait again: if it has written nothing since it was woken, it lets twice as many others go first."""
        self._last_wait = 0 if has_written else min(2 * self._last_wait + 1, MOST_PATIENCE)
        self._turns_to_wait = self._last_wait // 2

    def is_patient(self) -> bool:
        """Whether it lets another cluster go first once more."""
        if self._turns_to_wait == 0:
            return False
        self._turns_to_wait -= 1
        return True

    def wake_for_others(self) -> bool:
        """Let spinning fronts look again, if another cluster changed memory. True where one does."""
        return self._wake()

    def pass_time(self) -> bool:
        """Resume fronts that read a clock or count while they wait. False if there are none, or time does not help."""
        if self.ready:
            return True
        timed = [spinning for spinning in self.spinning if spinning.reads_clock]
        if not timed or not self.cluster.launch.pass_time(self.versions()):
            return False
        for spinning in timed:
            self.spinning.remove(spinning)
            self.add(spinning.front)
        return True

    def _advance_idly(self, front: Front) -> bool:
        """Run a front. True if the cluster has made many steps that no other cluster observes, so that another one may run."""
        launch = self.cluster.launch
        version = self.cluster.memory.version
        steps_left = launch.steps_left
        self._advance(front)
        self._quiet_steps += steps_left - launch.steps_left
        if self.cluster.memory.version != version:
            self._quiet_steps = 0
        if self._quiet_steps < IDLE_STEPS:
            return False
        self._quiet_steps = 0
        return not self._work()

    def _next_front(self) -> Front | None:
        if not self.ready:
            return None
        random = self.cluster.random
        late = self.cluster.launch.late_pcs
        ready = [front for front in self.ready if front.pc not in late] if late else self.ready
        ready = ready or self.ready
        if random is not None:
            least = min(front.rounds for front in ready)
            chosen = random.choice([front for front in ready if front.rounds == least])
        else:
            chosen = min(ready, key=self._turn_order)
        self.ready.remove(chosen)
        return chosen

    def _turn_order(self, front: Front) -> tuple[int, int, int]:
        """Whose turn is first: threads in called functions, so that those that have returned wait for the rest of their warp."""
        depth = int(self.depth[front.lanes].max()) if self._has_calls else 0
        return front.rounds, -depth, front.pc

    def _has_others_first(self, front: Front) -> bool:
        """Whether a front at a late poll lets asynchronous work, or once the other clusters, go first."""
        if self.cluster.works:
            return True
        key = (front.pc, int(front.lanes[0]), len(front.lanes))
        if key in self._late_polls:
            return False
        self._late_polls.add(key)
        return True

    def _find_limit(self, front: Front) -> int:
        """The instruction from which on a front lets others catch up: that of another front, or a late poll."""
        limit = min((other.pc for other in self.ready), default=len(self.cluster.program.steps))
        late = self.cluster.launch.late_pcs
        return min([limit, *[pc for pc in late if pc > front.pc]]) if late else limit

    def _advance(self, front: Front) -> None:
        """Run a front until it is parked, split, ended or has used its quantum, or another one should catch up."""
        cluster = self.cluster
        program = cluster.program
        stretches = cluster.stretches
        turns = program.turns
        ends = program.straight_end
        limit = self._find_limit(front)
        at = front.at(cluster)
        pc = front.pc
        while True:
            end = ends[pc]
            if end > pc:
                try:
                    for place, step in stretches[pc]:
                        cluster.pc = place
                        step(cluster, at)
                except KernelFaultError:
                    self._count(front, pc, place + 1)
                    raise
                self._count(front, pc, end)
                pc = end
                front.pc = pc
            turn = turns[pc]
            if turn is not None:
                cluster.pc = pc
                self._count(front, pc, pc + 1)
                if not self._turn(front):
                    return
                if front.at(cluster) is not at:
                    at = front.at(cluster)
                pc = front.pc
                stretches = cluster.stretches
            if front.steps > QUANTUM_STEPS or cluster.launch.steps_left <= 0:
                front.steps = 0
                front.rounds += 1
                self.add(front)
                return
            if pc >= limit or (turn is not None and self.ready):
                self.add(front)
                return

    def _turn(self, front: Front) -> bool:
        """Take a turn with the lanes whose guard is true; the others continue. True if the front simply continues."""
        cluster = self.cluster
        pc = front.pc
        turn = cluster.program.turns[pc]
        assert turn is not None
        guard = cluster.program.guards[pc]
        if guard is not None:
            number, is_negated = guard
            holds = cluster.registers[number][front.lanes].astype(np.bool_) ^ is_negated
            if cluster.undefined is not None:
                cluster.undefined.branch(pc, number, front.lanes)
            holds_for_any = bool(holds.any())
            holds_for_all = holds_for_any and bool(holds.all())
            if cluster.bus.is_heard and (holds_for_any != holds_for_all or len(holds) < cluster.lane_count):
                cluster.emit(BranchTaken(pc, front.lanes, holds))
            if not holds_for_any:
                front.pc = pc + 1
                return True
            if not holds_for_all:
                self.add(Front(pc + 1, front.lanes[~holds], front.rounds, front.steps))
                front.lanes = front.lanes[holds]
        self._continues = False
        cluster.emit(InstructionReached(pc, front.lanes))
        turn.take(self, front)
        return self._continues

    def go_on(self, front: Front, pc: int) -> None:
        """For a turn: all lanes of the front continue at an instruction."""
        front.pc = pc
        self._continues = True

    def _count(self, front: Front, start: int, end: int) -> None:
        lanes = len(front.lanes)
        warps = front.warp_count()
        self.thread_counts[start] += lanes
        self.thread_counts[end] -= lanes
        self.warp_counts[start] += warps
        self.warp_counts[end] -= warps
        front.steps += end - start
        self.cluster.launch.count_steps(end - start)

    def add(self, front: Front) -> None:
        """Make a front ready; it is merged into a front at the same instruction."""
        if not len(front.lanes):
            return
        for other in self.ready:
            if other.pc == front.pc:
                other.lanes = np.sort(np.concatenate([other.lanes, front.lanes]))
                other.rounds = max(other.rounds, front.rounds)
                return
        self.ready.append(front)

    def gather(self, front: Front, complete: npt.NDArray[np.bool_]) -> None:
        """Keep the lanes of a front that wait for the rest of their warp; `front` keeps those that are complete."""
        waiting = front.lanes[~complete]
        self.gathering[front.pc] = waiting
        front.lanes = front.lanes[complete]

    def gathered(self, front: Front) -> None:
        """Let lanes that waited at the front's instruction join it."""
        waiting = self.gathering.pop(front.pc, None)
        if waiting is not None:
            front.lanes = np.sort(np.concatenate([waiting, front.lanes]))

    def _meet_elsewhere(self) -> bool:
        """Resume lanes that wait for each other at different bar.warp.sync. False if there are none."""
        turns = self.cluster.program.turns
        meeting: dict[int, Rendezvous] = {}
        for pc in self.gathering:
            turn = turns[pc]
            if isinstance(turn, Rendezvous) and turn.meets_elsewhere:
                meeting[pc] = turn
        if len(meeting) < 2:
            return False
        present = np.concatenate([self.gathering[pc] for pc in meeting])
        moved = False
        resumed: list[LaneNumbers] = []
        for pc, rendezvous in meeting.items():
            lanes = self.gathering.pop(pc)
            complete = rendezvous.complete(self.cluster, lanes, present)
            if complete.any():
                moved = True
                resumed.append(lanes[complete])
                self.add(Front(pc + 1, lanes[complete]))
            if not complete.all():
                self.gathering[pc] = lanes[~complete]
        if resumed:
            self.cluster.emit(WarpSync(None, np.concatenate(resumed)))
        return moved

    def find_gatherings(self) -> list[int]:
        """The instructions at which lanes wait for the rest of their warp, in the order of the program."""
        return sorted(pc for pc in self.gathering if isinstance(self.cluster.program.turns[pc], Gathering))

    def diverge(self, pc: int) -> None:
        """Let the lanes that gather at an instruction execute it without the rest of their warp, which cannot come."""
        turn = self.cluster.program.turns[pc]
        assert isinstance(turn, Gathering)
        front = Front(pc, self.gathering.pop(pc))
        self.cluster.pc = pc
        self._continues = False
        turn.take_without_rest(self, front)
        if self._continues:
            self.add(front)

    def spin(self, front: Front, *, reads_clock: bool) -> None:
        """Park a front until memory, a barrier or asynchronous work changes, or time passes."""
        self.spinning.append(Spinning(front, self.versions(), reads_clock))

    def versions(self) -> Versions:
        """Counts of what changed in this cluster and in global memory."""
        return Versions(self.cluster.version, self.cluster.memory.version)

    def exit(self, lanes: LaneNumbers) -> None:
        """End threads, and resume those that waited only for them."""
        self.cluster.live[lanes] = False
        self.cluster.has_exits = True
        self._end_blocks(lanes)
        for released in self.barriers.after_exit(lanes):
            self.add(released)
        for pc in list(self.gathering):  # a warp may be complete without those that ended
            self.add(Front(pc, self.gathering.pop(pc)))

    def _end_blocks(self, lanes: LaneNumbers) -> None:
        """Blocks end that have no threads left."""
        cluster = self.cluster
        if not cluster.bus.is_heard:
            return
        for rank in np.unique(cluster.block_of_lane[lanes]).tolist():
            if not cluster.live[cluster.block_of_lane == rank].any():
                cluster.emit(BlockEnd(rank))

    def meet_in_lockstep(self, front: Front) -> bool:
        """Resume blocks that have all arrived at a barrier. False: the barriers handle it."""
        return False

    def release(self, fronts: Iterable[Front]) -> None:
        """Resume the lanes of a barrier."""
        for front in fronts:
            self.add(front)

    def _wake(self) -> bool:
        now = self.versions()
        woken = [spinning for spinning in self.spinning if spinning.versions != now]
        self.spinning = [spinning for spinning in self.spinning if spinning.versions == now]
        for spinning in woken:
            self.add(spinning.front)
        return bool(woken)

    def _work(self) -> bool:
        """Do the oldest work that somebody waits for, or the oldest of all. False if there is none."""
        works = self.cluster.works
        if not works:
            return False
        waited_for = [work for work in works if work.barrier in self.cluster.polled]
        self._finish((waited_for or works)[0])
        return True

    def _work_at_random_times(self) -> None:
        random = self.cluster.random
        works = self.cluster.works
        while random is not None and works and random.random() < _EARLY_CHANCE:
            chosen = random.choice(works)
            if chosen.kind in IN_ORDER:
                chosen = next(work for work in works if work.kind == chosen.kind)
            self._finish(chosen)

    def _finish(self, work: Work) -> None:
        cluster = self.cluster
        cluster.pc = work.pc
        cluster.pending.finish(work)
        cluster.version += 1
