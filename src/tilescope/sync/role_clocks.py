"""Vector clocks of roles: one run with them decides for every order of the roles.

Every agent and every barrier has a column in a vector clock. An agent's clock holds, for another agent, the number of its
actions that happen-before (in every order), and for a barrier the number of phases whose end happens-before:

    producer  arrive ──▶ phase 0 of full ends ──▶ consumer passes its wait     clock: producer 3, full 1

An arrival releases the agent's clock to the running phase; a wait that passes acquires it: the two clocks are joined
(the larger value of each column). An epoch is a column and a value: "producer 3".

Roles do not branch on data. So if the phase of every operation is determined, each counts or waits in
the same phase in every order, there is no deadlock, and what the clocks order is ordered in all of them. The phase is determined of

    a count     if the end of the phase before happens-before it (for a copy: before its issue)
    a wait      if the end of the phase two before happens-before it (the parity cannot be an older one), and the wait
                happens-before something that the running phase needs (that cannot end before the wait has passed)
    a phase     if everything that raises its count (expected bytes, cp.async without .noinc) happens-before an
                arrival that it needs: so it ends when all of it has come, and not before

If a phase is not determined, an `Ambiguity` is stored, and every order is tried. Clocks are joined at waits and at
arrivals: if all operations of a phase are arrivals that happen-before an agent's action, so does the end of the phase.
A landing happens-before only a wait that passed, even if the copy was issued long ago.

The second row of a clock is what data follows: an arrival at another block's barrier with scope cta leaves it out.

Why these are not the clocks of one run (`lane_clocks`): `LaneClocks` follows one interleaving of thousands of threads, so it
is mutable, shares rows among lanes, and compares packed epochs by the thousand. It also keeps a row per proxy. `RoleClocks`
answers for all interleavings. So its arrays are copied on write, because a pending copy keeps the clock of its issue; one
column is several warps, of which the last may be late (`DelayedArrival`); and it can say that an operation's phase is
not determined, which makes sense only for roles that do not branch on data.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from copy import copy
from typing import NamedTuple, TypeAlias

import numpy as np

from tilescope.sync.happens_before import Access, Clock, HappensBefore, Key
from tilescope.sync.proxies import ACCESS_FENCES
from tilescope.sync.role_program import RoleProgram

# a column of a clock and its value: an agent and how many actions it began, or a barrier and its phases that ended
Epoch: TypeAlias = tuple[int, int]

_MAX_AMBIGUITIES = 64
_WARP_SYNCS = 7  # synchronizations of an agent's warps that are remembered, and one more


class Ambiguity(NamedTuple):
    """An operation whose phase is not determined: it could be another one in another order."""

    kind: str  # sync, count, wait, late, early, place, registers
    barrier: int
    phase: int
    agent: int


class DelayedArrival(NamedTuple):
    """An arrival of several warps, one of which may have continued before the last has arrived.

    It is complete for whoever comes after a later synchronization of the warps, or after a phase in which it counted.
    """

    agent: int
    time: int
    phases: tuple[Epoch, ...]


class ArrivalPhase(NamedTuple):
    """A phase that ended by arrivals only: its end happens-before whatever all of them happen-before."""

    phase: int
    clock: Clock
    delayed: tuple[DelayedArrival, ...]


class RegisterRise(NamedTuple):
    """Registers that an agent takes from its block's pool."""

    agent: int
    time: int
    registers: int


class RoleClocks(HappensBefore):
    """The vector clocks of agents, and the clocks that barriers, accesses and fences pass between them."""

    is_one_order = False

    def __init__(self, program: RoleProgram) -> None:
        self.program = program
        self.agents = len(program.agents)
        barriers = len(program.barriers)
        rows = 2 if program.has_weak_arrivals or program.has_split_arrivals else 1
        zero = np.zeros((rows, self.agents + barriers), np.int64)
        self.ambiguities: dict[Ambiguity, None] = {}  # in the order in which they were found
        self.clock: list[Clock] = [zero] * self.agents
        # barriers
        self.gathered: list[Clock | None] = [None] * barriers  # released to the running phase
        self.gathered_next = self.gathered.copy()  # released to the next phase already, by agents that have exited
        self.has_landings = [False] * barriers  # in the running phase: only a wait orders its end
        self.released: list[Clock] = [zero] * barriers  # acquired by those who pass a wait now
        self.released_at: dict[tuple[int, int], Clock] = {}  # the same, of every phase of a flag
        # arrivals of the running phase of which the last warp may be late, and the last two phases that ended by arrivals
        self.delayed: list[tuple[DelayedArrival, ...]] = [()] * barriers
        self.arrival_phases: list[tuple[ArrivalPhase, ...]] = [()] * barriers
        self.delayed_remote: dict[tuple[int, int, int], DelayedArrival] = {}  # block, barrier, agent: the last one
        # agent of several warps: when all of these last synchronized or arrived, and the epoch that follows
        self.warp_syncs: dict[int, tuple[tuple[int, Epoch], ...]] = {}
        # what raised the phase's count, and happens-before no arrival of the phase so far
        self.raised: list[tuple[Epoch, ...]] = [()] * barriers
        self.passed: list[dict[int, int]] = [{}] * barriers  # waits that passed in the running phase: agent and time
        # where barriers are invalidated: agents with the times of their last uses, and the last landing with its agent
        self.uses: dict[int, dict[int, int]] = {}
        self.last_landings: dict[int, tuple[int, int]] = {}
        self.initialised: dict[int, Epoch] = {}
        self.init_fences: dict[int, tuple[int, ...]] = {}  # agent: times
        # accesses
        self.finished: dict[Key, tuple[Epoch, ...]] = {}  # an access is finished for whoever has one of these epochs
        self.fenced: dict[tuple[Key, str], tuple[Epoch, ...]] = {}  # an access and a kind of fence: agents and times
        # blocks
        self.remote: dict[tuple[int, int], int] = {}  # block, column: a value that some agent of the block must have
        self.local: dict[tuple[int, int], int] = {}  # the same where it does no harm
        self.register_rises: dict[int, list[RegisterRise]] = {}  # block: what its agents took
        self.register_falls: dict[
            int, int
        ] = {}  # block: registers that are released, independent of the requests of others

    def clone(self) -> RoleClocks:
        """An independent copy; the arrays are shared, and never changed in place."""
        other = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, list | dict):
                setattr(other, name, value.copy())
        return other

    def _add_ambiguity(self, kind: str, barrier: int, phase: int, agent: int) -> None:
        """Keep an operation whose phase is not determined."""
        if len(self.ambiguities) < _MAX_AMBIGUITIES:
            self.ambiguities[Ambiguity(kind, barrier, phase, agent)] = None

    def advance(self, agent: int) -> None:
        """An agent begins its next action."""
        clock = self.clock[agent] = self.clock[agent].copy()
        clock[:, agent] += 1

    def snapshot(self, agent: int) -> Clock:
        """An agent's clock, for what it issues now."""
        return self.clock[agent]

    def _own_epoch(self, agent: int) -> Epoch:
        return agent, int(self.clock[agent][0, agent])

    def _is_phase_over(self, clock: Clock, barrier: int, phase: int) -> bool:
        """Whether the end of a phase happens-before whoever has this clock."""
        if phase < 0 or clock[0, self.agents + barrier] > phase:
            return True
        return any(
            ended.phase >= phase
            and (ended.clock[0] <= clock[0]).all()
            and all(self._is_complete(arrival, clock) for arrival in ended.delayed)
            for ended in self.arrival_phases[barrier]
        )

    def _is_complete(self, arrival: DelayedArrival, clock: Clock) -> bool:
        """Whether the last warp of an arrival happens-before whoever has this clock."""
        if any(clock[0, column] >= value for column, value in arrival.phases):
            return True
        later = (epoch for time, epoch in self.warp_syncs.get(arrival.agent, ()) if time > arrival.time)
        return any(clock[0, column] >= value for column, value in later)

    def delay_arrival(self, barriers: Sequence[int], phases: Sequence[int], blocks: Sequence[int], agent: int) -> None:
        """The last warp of the arrival that an agent makes now, at barriers of some blocks, may come later."""
        epochs = tuple((self.agents + barrier, phase + 1) for barrier, phase in zip(barriers, phases, strict=True))
        arrival = DelayedArrival(*self._own_epoch(agent), epochs)
        for epoch in epochs:
            self._add_warp_sync(agent, epoch)
        for barrier, block in zip(barriers, blocks, strict=True):
            self.delayed[barrier] += (arrival,)
            if block != self.program.agents[agent].home:
                self.delayed_remote[block, barrier, agent] = arrival

    def synchronize_warps(self, agent: int) -> None:
        """All warps of an agent synchronize: what each did before happens-before what any does next."""
        self._add_warp_sync(agent, self._own_epoch(agent))

    def arrive_with_all_warps(self, agent: int, barrier: int, phase: int) -> None:
        """All warps of an agent arrive and go on: what they did before happens-before the end of that phase."""
        self._add_warp_sync(agent, (self.agents + barrier, phase + 1))

    def _add_warp_sync(self, agent: int, epoch: Epoch) -> None:
        if self.program.agents[agent].warps > 1:
            self.warp_syncs[agent] = (*self.warp_syncs.get(agent, ())[-_WARP_SYNCS:], (self.epoch(agent), epoch))

    def release(
        self, barrier: int, phase: int, agent: int, issued_at: Clock | None, *, without_data: bool = False
    ) -> None:
        """Release a clock to a phase: that of the agent, or with `issued_at` that of something it issued before."""
        clock = self.clock[agent] if issued_at is None else issued_at
        if not self._is_phase_over(clock, barrier, phase - 1):
            kind = "sync" if self.program.is_thread_barrier(barrier) else "count"
            self._add_ambiguity(kind, barrier, phase, agent)
        self.has_landings[barrier] |= issued_at is not None
        if self.program.invalidates:
            if issued_at is None:
                self._add_use(barrier, agent)
            else:
                self.last_landings[barrier] = phase, agent
        if without_data:
            clock = clock.copy()
            clock[1] = 0
        gathered = self.gathered[barrier]
        self.gathered[barrier] = clock if gathered is None else np.maximum(gathered, clock)

    def release_at_exit(self, barrier: int, agent: int, *, in_next_phase: bool) -> None:
        """An agent exits: the cluster barrier counts it as arrived from now on.

        A phase in which it has arrived may end before it exits; the next one may not.
        """
        phases = self.gathered_next if in_next_phase else self.gathered
        clock = self.clock[agent]
        gathered = phases[barrier]
        phases[barrier] = clock if gathered is None else np.maximum(gathered, clock)

    def raise_count(self, barrier: int, agent: int) -> None:
        """Raise what a phase waits for, without arriving."""
        self.raised[barrier] += (self._own_epoch(agent),)

    def count_arrival(self, barrier: int, agent: int, issued_at: Clock | None) -> None:
        """Count an arrival that the phase needs: what happens-before it was raised before the phase can end."""
        if self.raised[barrier]:
            clock = self.clock[agent] if issued_at is None else issued_at
            self.raised[barrier] = tuple(epoch for epoch in self.raised[barrier] if clock[0, epoch[0]] < epoch[1])

    def end_phase(self, barrier: int, phase: int) -> None:
        """A phase ends in this run; keep an ambiguity if it could end too soon in another order."""
        gathered = self.gathered[barrier]
        assert gathered is not None
        if self.raised[barrier]:
            self._add_ambiguity("early", barrier, phase, self.raised[barrier][0][0])
        for waiter, time in self.passed[barrier].items():
            if gathered[0, waiter] < time:
                self._add_ambiguity("late", barrier, phase, waiter)
        released = np.maximum(gathered, self.released[barrier])
        released[:, self.agents + barrier] = phase + 1
        self.released[barrier] = released
        if self.program.is_flag(barrier):
            self.released_at[barrier, phase] = released
        last = self.arrival_phases[barrier][-1:]
        ended = ArrivalPhase(phase, gathered, self.delayed[barrier])
        self.arrival_phases[barrier] = last if self.has_landings[barrier] else (*last, ended)
        self.gathered[barrier] = self.gathered_next[barrier]
        self.gathered_next[barrier] = None
        self.has_landings[barrier] = False
        self.delayed[barrier] = ()
        self.raised[barrier] = ()
        self.passed[barrier] = {}

    def check_open_phase(self, barrier: int, phase: int, pending: int, tx: int) -> None:
        """A phase does not end in this run; keep an ambiguity if it could end in another order."""
        if pending == 0 and (self.raised[barrier] or tx < 0):
            agent = self.raised[barrier][0][0] if self.raised[barrier] else 0
            self._add_ambiguity("early", barrier, phase, agent)

    def pass_wait(self, barrier: int, phase: int, agent: int) -> None:
        """A wait passes: the agent acquires what was released to the phase before."""
        clock = self.clock[agent]
        if not self._is_phase_over(clock, barrier, phase - 2):
            self._add_ambiguity("wait", barrier, phase, agent)
        self.acquire(barrier, agent)
        if self.program.invalidates:
            self._add_use(barrier, agent)
        self.passed[barrier] = {**self.passed[barrier], agent: int(clock[0, agent])}

    def _add_use(self, barrier: int, agent: int) -> None:
        self.uses[barrier] = {**self.uses.get(barrier, {}), agent: self.epoch(agent)}

    def find_unordered_use(self, barrier: int, agent: int) -> int | None:
        """An agent whose use of a barrier does not happen-before the action of another; None if all of them do."""
        clock = self.clock[agent]
        for user, time in self.uses.get(barrier, {}).items():
            if clock[0, user] < time:
                return user
        phase, issuer = self.last_landings.get(barrier, (-1, agent))
        return None if self._is_phase_over(clock, barrier, phase) else issuer

    def pass_poll(self, flag: int, phase: int, agent: int) -> None:
        """A poll passes: the agent acquires the releases up to the value, and no later ones."""
        clock = self.clock[agent]
        if phase >= 0:
            np.maximum(clock, self.released_at[flag, phase], out=clock)

    def overshoot(self, flag: int, phase: int, agent: int) -> None:
        """A flag reaches more than somebody polls for: in another order less would have sufficed."""
        self._add_ambiguity("early", flag, phase, agent)

    def mix_tiles(self, barrier: int, phase: int, agent: int) -> None:
        """Copies of several agents fill a slot one after another, and copy different tiles."""
        self._add_ambiguity("place", barrier, phase, agent)

    def acquire(self, barrier: int, agent: int) -> None:
        """An agent joins its clock with what was released to the last phase."""
        clock = self.clock[agent]
        np.maximum(clock, self.released[barrier], out=clock)

    # accesses

    def begin_access(self, access: Access, *, ends_at_once: bool) -> None:
        """An access begins; one of a single warp is finished for whoever comes after the warp's next action."""
        self.finished[access.key] = (self._own_epoch(access.agent),) if ends_at_once else ()

    def finish_access(self, key: Key, agent: int) -> None:
        """The access is finished for whoever comes after the agent's action."""
        self._finish(key, self._own_epoch(agent))

    def finish_with_phase(self, key: Key, barrier: int, phase: int) -> None:
        """The access is finished for whoever comes after the end of the phase."""
        self._finish(key, (self.agents + barrier, phase + 1))

    def _finish(self, key: Key, epoch: Epoch) -> None:
        if key in self.finished:
            self.finished[key] += (epoch,)

    def finish_after_arrivals(self, key: Key, barrier: int, phase: int) -> None:
        """All warps arrive in a phase: their access is finished for whoever comes after its end."""
        self.finish_with_phase(key, barrier, phase)

    def released_epoch(self, barrier: int, agent: int) -> int:
        """The agent's last own epoch that happens-before the end of the barrier's last phase."""
        return int(self.released[barrier][0, agent])

    def is_tracked(self, key: Key) -> bool:
        """Whether an access may still matter."""
        return key in self.finished

    def forget_access(self, key: Key) -> None:
        """An access no longer matters: it happens-before another one that takes its place."""
        del self.finished[key]
        for kind in ACCESS_FENCES:
            self.fenced.pop((key, kind), None)

    def is_ordered(self, access: Access, agent: int) -> bool:
        """Whether the end of an access happens-before the agent's current action."""
        return self._is_finished(access.key, self.clock[agent])

    def _is_finished(self, key: Key, clock: Clock) -> bool:
        return any(clock[-1, column] >= value for column, value in self.finished[key])

    def is_ordered_out_of_scope(self, access: Access, agent: int) -> bool:
        """Whether an access is finished for an agent, but only through an arrival whose scope is the other block."""
        clock = self.clock[agent]
        return any(clock[0, column] >= value for column, value in self.finished[access.key])

    def must_keep(self, access: Access) -> bool:
        """Whether later accesses have to be compared with this one: clocks compare with all of them."""
        return access.key in self.finished

    def fence(self, agent: int, kind: str, accesses: Iterable[Access], own: Container[Key]) -> None:
        """A fence: it covers the accesses of the agent's own warps, and those that happen-before it."""
        clock = self.clock[agent]
        for access in accesses:
            if access.key in own or self._is_finished(access.key, clock):
                before = self.fenced.get((access.key, kind), ())
                if all(fencer != agent for fencer, _ in before):
                    self.fenced[access.key, kind] = (*before, self._own_epoch(agent))

    def is_fenced(self, access: Access, kind: str, by: Iterable[int] | None, agent: int) -> bool:
        """Whether a fence is between an access and the agent's; `by` selects whose fences count, None all."""
        clock = self.clock[agent]
        return any(
            clock[-1, fencer] >= time and (by is None or fencer in by)
            for fencer, time in self.fenced.get((access.key, kind), ())
        )

    # init, exit and registers

    def initialise(self, barrier: int, agent: int) -> None:
        """An agent initialises a barrier."""
        self.initialised[barrier] = self._own_epoch(agent)

    def fence_inits(self, agent: int) -> None:
        """A fence.mbarrier_init: other blocks see what the agent has initialised."""
        self.init_fences[agent] = (*self.init_fences.get(agent, ()), self.epoch(agent))

    def is_initialised(self, barrier: int, agent: int, issued_at: Clock | None) -> bool:
        """Whether the init of a barrier happens-before the agent's action."""
        clock = self.clock[agent] if issued_at is None else issued_at
        maker, time = self.initialised.get(barrier, (agent, self.epoch(agent) + 1))  # by no agent: in the future
        if clock[-1, maker] >= time:
            return True
        # an arrival that releases no data passes on what fence.mbarrier_init has released
        return bool(clock[0, maker] >= time) and self.is_init_fenced(barrier, agent, issued_at)

    def is_init_fenced(self, barrier: int, agent: int, issued_at: Clock | None) -> bool:
        """Whether a fence of the agent that initialised a barrier has made that visible to other blocks."""
        clock = self.clock[agent] if issued_at is None else issued_at
        maker, time = self.initialised[barrier]
        return any(time < fence <= clock[0, maker] for fence in self.init_fences.get(maker, ()))

    def epoch(self, agent: int) -> int:
        """How many actions an agent has begun."""
        return int(self.clock[agent][0, agent])

    def access_block(self, block: int, agent: int) -> None:
        """An agent accesses another block, which must not have exited."""
        self.remote[block, agent] = self.epoch(agent)

    def land_in_block(self, block: int, barrier: int, phase: int, *, harmless: bool) -> None:
        """Something lands in a block, which must not have exited; an arrival of a commit or of cp.async is harmless."""
        landings = self.local if harmless else self.remote
        landings[block, self.agents + barrier] = phase + 1

    def find_unordered_exits(self, uses: dict[tuple[int, int], int]) -> Iterable[tuple[int, int]]:
        """The blocks and columns of `remote` or `local` that happen-before the exit of no agent of the block."""
        for (block, column), value in uses.items():
            if not any(clock[0, column] >= value for clock in self._clocks_of_block(block)):
                yield block, column

    def find_delayed_exits(self) -> Iterable[tuple[int, int]]:
        """The blocks, and the barriers, at which the last warp of another block's role may arrive too late."""
        for (block, barrier, _), arrival in self.delayed_remote.items():
            if not any(self._is_complete(arrival, clock) for clock in self._clocks_of_block(block)):
                yield block, barrier

    def _clocks_of_block(self, block: int) -> Iterable[Clock]:
        agents = self.program.agents
        return (clock for clock, agent in zip(self.clock, agents, strict=True) if agent.home == block)

    def take_registers(self, agent: int, block: int, registers: int) -> None:
        """Setmaxnreg takes registers from the block's pool, or gives some back."""
        rises = self.register_rises.setdefault(block, [])
        clock = self.clock[agent]
        if registers > 0:
            rises.append(RegisterRise(agent, self.epoch(agent), registers))
        elif not any(clock[0, rise.agent] >= rise.time for rise in rises):
            self.register_falls[block] = self.register_falls.get(block, 0) - registers

    def check_registers(self) -> None:
        """After the run: keep an ambiguity if what is given back in any order does not suffice for all that is taken."""
        for block, rises in self.register_rises.items():
            if rises and sum(rise.registers for rise in rises) > self.register_falls.get(block, 0):
                self._add_ambiguity("registers", 0, 0, rises[0].agent)
