"""The state of a run: the counts of barriers, the contents of slots, pending operations, and the position of every agent.

It is what a chip would hold:

    agent 1 at action 3      barrier 0: phase 1, 1 arrival and 4096 bytes pending      a copy of 4096 bytes outstanding

What follows from it for other orders of the roles is the business of `happens_before`. A barrier of threads (bar.sync,
or that of the cluster) is one whose arrivals are threads or roles.
"""

from __future__ import annotations

from collections.abc import Hashable
from copy import copy
from itertools import chain, tee
from typing import Literal, NamedTuple, Self

from tilescope.arithmetic import ceil_div
from tilescope.sync.all_orders.contents import Contents
from tilescope.sync.all_orders.mistake import MistakeFoundError
from tilescope.sync.happens_before import Access, Clock, Fill, HappensBefore, Key
from tilescope.sync.mbarrier import ARRIVALS_END, TX_END_BYTES
from tilescope.sync.role_events import Action, BarrierArrive, ClusterArrive, ClusterWait, ThreadBarrier
from tilescope.sync.role_program import RoleProgram
from tilescope.sync.thread_limits import BARS

PendingKind = Literal["copy", "commit", "cp_arrive", "cp_drop", "late"]
Groups = tuple[tuple[Key, ...], ...]  # keys of the accesses of closed groups, and last those of the open one


class PendingOperation(NamedTuple):
    """Something issued and not finished: a copy's bytes, or an arrival that comes when work is done."""

    kind: PendingKind
    barrier: int
    agent: int
    keys: tuple[Key, ...]  # of the accesses that are finished when it lands
    key: Key  # its own: that of its access, if it has one
    issued_at: Clock | None = None  # the agent's clock at its issue; None if orders are tried one by one
    arrivals: int = 0  # of all but a copy
    size_bytes: int = 0  # of a copy
    slots: tuple[int, ...] = ()  # one, of a copy


class BarrierOperation(NamedTuple):
    """What a barrier counted in its running phase."""

    op: str  # arrive, expect, bytes, more
    agent: int
    amount: int


class ThreadArrival(NamedTuple):
    """An arrival at a barrier of threads that the agent has not waited for yet."""

    phase: int
    place: int  # of its action in the agent's role


class OperationTotal(NamedTuple):
    """The operations of one kind in a barrier's running phase."""

    agents: list[int]
    amount: int  # of all of them


class State:
    """Lists by agent, barrier, slot or block; a copy of the state copies them and shares what they hold."""

    def __init__(self, program: RoleProgram, ordering: HappensBefore) -> None:
        self.program = program
        self.ordering = ordering
        agents = self.agents = len(program.agents)
        slots, blocks, counting = len(program.slots), program.blocks, len(program.barriers)
        self.mbarriers = program.mbarriers
        self.actions_done = 0
        self.issued: list[Key] = []  # pending operations of the last action
        self.ended: list[int] = []  # barriers whose phase ended in the last action; NONE: registers were given back
        self.torn_copy: MistakeFoundError | None = None  # a phase that ended in the midst of a copy
        # by kind, name of the barrier or slot, and agent
        self.warnings: dict[tuple[str, str, int], MistakeFoundError] = {}
        # agents
        # actions after the next one; tee's iterators can be copied with the state
        self.later_actions = [tee(agent.actions(), 1)[0] for agent in program.agents]
        self.next_action = [next(source, None) for source in self.later_actions]
        self.pc = [0] * agents
        self.exited = [False] * agents
        self.registers = [program.registers] * agents
        self.groups: dict[tuple[int, str], Groups] = {}
        self.groups_finished: dict[int, int] = {}  # agent: groups of cp.async waited for, or passed to a barrier
        self.signalled_copies: dict[int, tuple[Key, ...]] = {}  # agent: cp.async whose end arrives at some barrier
        self.store_writes: dict[Key, bool] = {}  # writes of bulk stores to global memory
        self.unfinished_writes: dict[
            int, tuple[Key, ...]
        ] = {}  # agent: such writes, of which only the reads are finished
        self.uncommitted: dict[int, tuple[Key, ...]] = {}  # tcgen05 products that no commit covers
        self.unsynced: dict[int, tuple[Key, ...]] = {}  # accesses of several warps, since these last synchronized
        self.unsynced_stores: dict[int, dict[Key, int]] = {}  # agent: stores that one of its warps waited for, and when
        self.unsynced_inits: dict[int, int] = {}  # barrier: the agent of which one warp initialised it
        self.thread_arrivals: dict[tuple[int, int], ThreadArrival] = {}  # (agent, barrier of threads)
        # barriers
        counts = [barrier.arrivals for barrier in program.barriers[: program.mbarriers]]
        flags = program.grid - program.first_flag
        earlier = sum(agent.is_earlier for agent in program.agents)
        in_grids = [agents - earlier, earlier] if earlier else [agents]
        self.expected = [*counts, *[0] * blocks * BARS, *in_grids, *[0] * flags, earlier]
        self.pending = list(self.expected)  # arrivals
        self.tx = [0] * counting  # bytes that are missing; of a flag its value
        self.phase = [0] * counting
        self.expected_bytes = [0] * counting  # in the running phase
        self.operations: list[tuple[BarrierOperation, ...]] = [()] * counting  # of the running phase
        self.first_operations: dict[int, tuple[BarrierOperation, ...]] = {}  # of the first phase that ended
        self.arrivers: list[tuple[int, ...]] = [()] * counting  # agents that ever arrived
        self.last_pass: dict[tuple[int, int], int] = {}  # (agent, barrier): the phase in which its last wait passed
        self.initialised = [False] * counting
        self.invalidated = [False] * counting
        self.init_seen: dict[
            tuple[int, int], bool
        ] = {}  # (agent, barrier): its init happens-before the agent's actions
        # memory, pending operations, blocks
        self.accesses: list[tuple[Access, ...]] = [()] * slots
        self.contents: list[Contents] = [()] * slots
        self.fill_ends: dict[
            int, tuple[Fill, int]
        ] = {}  # slot: the fill whose copies follow each other, and their bytes
        self.outstanding: dict[Key, PendingOperation] = {}
        self.own_copies: dict[tuple[int, int], bool] = {}  # (block, barrier): it counts copies that the block issued
        self.pool = [0] * blocks  # registers that were given back
        # agents of a block that have not exited
        self.present = [sum(agent.home == block for agent in program.agents) for block in range(blocks)]

    def current(self, agent: int) -> Action | None:
        """An agent's next action, or None when it has exited."""
        return None if self.exited[agent] else self.next_action[agent]

    def total(self, barrier: int, op: str) -> OperationTotal:
        """The operations of one kind that a barrier's running phase counted."""
        operations = [operation for operation in self.operations[barrier] if operation.op == op]
        return OperationTotal(
            [operation.agent for operation in operations], sum(operation.amount for operation in operations)
        )

    def clone(self) -> Self:
        """An independent copy; actions are shared."""
        other = object.__new__(type(self))
        for name, value in vars(self).items():
            setattr(other, name, value.copy() if isinstance(value, list | dict) else value)
        other.later_actions = [copy(source) for source in self.later_actions]
        other.ordering = self.ordering.clone()
        return other

    def key(self) -> Hashable:
        """Equal for two states if the same may come after both, provided that their orders are equal too."""
        return (
            tuple(self.pc),
            tuple(self.exited),
            tuple(self.pending),
            tuple(self.tx),
            tuple(self.phase),
            tuple(self.expected),
            tuple(self.pool),
            tuple(self.contents),
            tuple(self.accesses),
            tuple(sorted(self.groups.items())),
            tuple(sorted(self.unsynced.items())),
            tuple(sorted(self.thread_arrivals.items())),
            tuple(sorted(self.fill_ends.items())),
            tuple(sorted((key, operation.size_bytes) for key, operation in self.outstanding.items())),
        )

    def groups_made(self, agent: int) -> int:
        """Groups of cp.async that an agent has closed, or passed to a barrier."""
        return self.groups_finished.get(agent, 0) + len(self.groups.get((agent, "cp.async"), ((),)))

    def count(
        self,
        barrier: int,
        agent: int,
        issued_at: Clock | None = None,  # the agent's clock when it issued what lands now; None: the agent acts itself
        *,
        arrivals: int = 0,
        tx: int = 0,  # bytes expected; negative: bytes that landed
        more: int = 0,  # arrivals that the phase waits for in addition
        dropped: int = 0,  # arrivals that later phases no longer wait for
        takes_back: bool = False,  # the arrivals are those that `more` added: they do not affect other counts
        without_data: bool = False,  # a relaxed arrival, or one at another block whose scope is its own
    ) -> int:
        """Count an operation on a barrier, and return the phase in which it counted."""
        self._require_initialised(barrier, agent, issued_at)
        phase = self.phase[barrier]
        if arrivals or tx or more:
            self.ordering.release(barrier, phase, agent, issued_at, without_data=without_data)
        if more:
            self.operations[barrier] += (BarrierOperation("more", agent, more),)
        if tx > 0:
            self.operations[barrier] += (BarrierOperation("expect", agent, tx),)
            self.expected_bytes[barrier] += tx
        elif tx < 0:
            self.operations[barrier] += (BarrierOperation("bytes", agent, -tx),)
        if arrivals or not (more or tx):
            self.operations[barrier] += (BarrierOperation("arrive", agent, arrivals),)
        if arrivals and agent not in self.arrivers[barrier]:
            self.arrivers[barrier] += (agent,)
        is_dead = self.pending[barrier] >= ARRIVALS_END  # all its arrivals were dropped: none may come any more
        pending = self.pending[barrier] = self.pending[barrier] + more - arrivals
        after = self.tx[barrier] = self.tx[barrier] + tx
        self.expected[barrier] -= dropped
        self._require_countable(barrier, is_dead=is_dead)
        if more or (tx > 0 and not arrivals):
            self.ordering.raise_count(barrier, agent)
        elif arrivals and not takes_back:
            self.ordering.count_arrival(barrier, agent, issued_at)
        if pending == 0 and after == 0:
            self._end_phase(barrier)
        return phase

    def _require_countable(self, barrier: int, *, is_dead: bool) -> None:
        """Stop if more arrives than a phase waits for, or its bytes exceed what a barrier counts.

        No landing of a phase happens-before something expected in it, so all that is expected can be outstanding.
        """
        pending = self.pending[barrier]
        if pending < 0 or (is_dead and pending < ARRIVALS_END):
            raise self.arrival_mistake(barrier, "too many arrivals" if barrier < self.mbarriers else "sync surplus")
        outstanding = max(self.expected_bytes[barrier], abs(self.tx[barrier]))
        if outstanding >= TX_END_BYTES:
            raise MistakeFoundError(
                "outstanding",
                barrier=barrier,
                phase=self.phase[barrier],
                tx=outstanding,
                limit=TX_END_BYTES - 1,
                needed=ceil_div(outstanding, TX_END_BYTES - 1),
            )

    def _end_phase(self, barrier: int) -> None:
        """The next phase begins."""
        phase = self.phase[barrier]
        self.ordering.end_phase(barrier, phase)
        self.phase[barrier] = phase + 1
        # a barrier from which all arrivals were dropped never ends a phase again
        self.pending[barrier] = self.expected[barrier] or ARRIVALS_END
        self.first_operations.setdefault(barrier, self.operations[barrier])
        self.operations[barrier] = ()
        self.expected_bytes[barrier] = 0
        self.ended.append(barrier)

    def signal(self, flag: int, agent: int, amount: int) -> None:
        """Add to a flag: its phases end at the values for which a role polls; an addition of 0 has no effect."""
        if not amount:
            return
        thresholds = self.program.thresholds.get(flag, [])
        self.ordering.release(flag, self.phase[flag], agent, None)
        self.operations[flag] += (BarrierOperation("arrive", agent, amount),)
        self.tx[flag] += amount
        while self.phase[flag] < len(thresholds) and self.tx[flag] >= thresholds[self.phase[flag]]:
            if self.tx[flag] > thresholds[self.phase[flag]]:
                self.ordering.overshoot(flag, self.phase[flag], agent)
            self._end_phase(flag)
            if self.phase[flag] < len(thresholds):
                self.ordering.release(flag, self.phase[flag], agent, None)

    def pass_wait(self, barrier: int, agent: int) -> None:
        """A wait passes."""
        self._require_initialised(barrier, agent)
        self._require_init_synced(barrier, agent)
        # all warps now wait for a phase that ended after one of them waited for its store
        if agent in self.unsynced_stores:
            released = self.ordering.released_epoch(barrier, agent)
            stores = self.unsynced_stores[agent]
            self.unsynced_stores[agent] = {key: time for key, time in stores.items() if time > released}
        self.ordering.pass_wait(barrier, self.phase[barrier], agent)
        self.last_pass[agent, barrier] = self.phase[barrier]

    def _require_initialised(self, barrier: int, agent: int, issued_at: Clock | None = None) -> None:
        """Stop if the init of a barrier does not happen-before its use; for a copy that lands, before its issue."""
        program = self.program
        if self.invalidated[barrier]:
            raise MistakeFoundError("after inval", agent=agent, barrier=barrier)
        if not program.initialises or barrier >= self.mbarriers:
            return
        if issued_at is None and (agent, barrier) in self.init_seen:
            return
        if not self.ordering.is_initialised(barrier, agent, issued_at):
            raise MistakeFoundError("init", agent=agent, barrier=barrier)
        is_remote = program.barriers[barrier].home != program.agents[agent].home
        if is_remote and not self.ordering.is_init_fenced(barrier, agent, issued_at):
            raise MistakeFoundError("init fence", agent=agent, barrier=barrier)
        if issued_at is None:
            self.init_seen[agent, barrier] = True

    def _require_init_synced(self, barrier: int, agent: int) -> None:
        """Stop if all warps of an agent use a barrier that one of them has initialised, before they synchronize."""
        if self.unsynced_inits.get(barrier) == agent:
            raise MistakeFoundError("init", agent=agent, barrier=barrier)

    def arrival_mistake(self, barrier: int, kind: str) -> MistakeFoundError:
        """The mistake of a barrier that waits for other arrivals than those that come."""
        agents, arrived = self.total(barrier, "arrive")
        expected = self.expected[barrier]
        return MistakeFoundError(
            kind,
            barrier=barrier,
            phase=self.phase[barrier],
            expected=expected,
            came=arrived,
            agents=agents,
            tx=self.tx[barrier],
            added=self.total(barrier, "more").amount,
            pending=self.pending[barrier],
            surplus=arrived - expected,
        )

    def threads_at(self, barrier: int, agent: int) -> int:
        """What an agent counts at a barrier of threads: its threads, or 1 at that of the cluster."""
        is_of_cluster = barrier == self.program.cluster_barrier(agent)
        return 1 if is_of_cluster else self.program.agents[agent].warp_threads

    def synchronize(self, agent: int, action: ThreadBarrier, *, counts: bool = True) -> bool:
        """Arrive at a barrier of threads, or pass one whose phase has ended; whether the action is over.

        An arrival that does not count yet is a later, separate move.
        """
        barrier = action.barriers[0]
        is_of_cluster = barrier == self.program.cluster_barrier(agent)
        arrival = self.thread_arrivals.get((agent, barrier))
        is_wait_alone = isinstance(action, ClusterWait)
        has_arrived = arrival is not None and (arrival.place == self.pc[agent] or is_wait_alone)
        if not has_arrived:
            if is_wait_alone:
                raise MistakeFoundError("cluster wait", agent=agent)
            if is_of_cluster and arrival is not None:
                raise MistakeFoundError("cluster again", agent=agent)
            if isinstance(action, BarrierArrive):
                self._expect_threads(agent, action, barrier)
            if action.waits or is_of_cluster:
                self.thread_arrivals[agent, barrier] = ThreadArrival(self.phase[barrier], self.pc[agent])
            if counts:
                is_relaxed = isinstance(action, ClusterArrive) and action.is_relaxed
                self.count(barrier, agent, arrivals=self.threads_at(barrier, agent), without_data=is_relaxed)
        if action.waits:
            if self.phase[barrier] <= self.thread_arrivals[agent, barrier].phase:
                return False
            del self.thread_arrivals[agent, barrier]
            self.ordering.acquire(barrier, agent)
        return True

    def _expect_threads(self, agent: int, action: BarrierArrive, barrier: int) -> None:
        """The first arrival at a bar.sync sets the number of threads that synchronize; the others must name the same number."""
        block = self.program.agents[agent].home
        in_block = (other for other in self.program.agents if other.home == block)
        threads = action.threads or sum(other.warp_threads for other in in_block)
        has_arrivals = bool(self.operations[barrier])
        expected = self.expected[barrier]
        if has_arrivals and expected != threads:
            raise MistakeFoundError("sync counts", barrier=barrier, expected=expected, other=threads)
        if not has_arrivals:
            self.expected[barrier] = self.pending[barrier] = threads

    def exit(self, agent: int) -> None:
        """An agent exits: the cluster barrier no longer waits for it."""
        program = self.program
        self.exited[agent] = True
        self.present[program.agents[agent].home] -= 1
        if program.agents[agent].is_earlier:
            self.count(program.grid, agent, arrivals=1)
            if self.phase[program.grid]:  # all that the grid has stored is written now
                stored = (keys for other, keys in self.unfinished_writes.items() if program.agents[other].is_earlier)
                for key in chain(*stored):
                    self.ordering.finish_with_phase(key, program.grid, 0)
        cluster = program.cluster_barrier(agent)
        has_arrived = agent in self.total(cluster, "arrive").agents
        self.ordering.release_at_exit(cluster, agent, in_next_phase=has_arrived)
        self.expected[cluster] -= 1
        if not has_arrived:
            self.pending[cluster] -= 1
            if self.pending[cluster] == 0 and self.operations[cluster]:
                self._end_phase(cluster)
