"""What every role certainly knows: one run with these clocks decides for every order of the roles.

Every agent and every barrier has a place in a vector clock. An agent's clock holds, for another agent, the number of its
actions that certainly lie in the past, and for a barrier the phases that have certainly ended:

    producer  arrive ──▶ phase 0 of full ends ──▶ consumer passes its wait     clock: producer 3, full 1

Roles do not branch on data. So if every operation certainly meets the phase that it met in this run, it meets it in every
order, nobody hangs, and what the clocks order is ordered in all of them. An operation is certain when

    a count     the end of the phase before lies in the past of whoever counts (of a copy: of whoever issued it)
    a wait      the end of the phase two before lies in its past (the parity cannot be an older one), and the wait itself
                lies in the past of something that the running phase needs (it cannot end before the wait has passed)
    a phase     everything that raises its count (expected bytes, cp.async without .noinc) lies in the past of an
                arrival that it needs: so it ends when all of it has come, and not before

What is not certain is kept in `doubts`, and every order is tried. Knowledge comes from waits, and from arrivals alone: if all
operations of a phase are arrivals that lie in an agent's past, it knows that the phase has ended. A landing is known to
nobody before a wait, however long ago the copy was issued.

The second row of a clock is what data follows: an arrival at another block's barrier with scope = "cta" leaves it out.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from copy import copy
from typing import NamedTuple

import numpy as np

from tilescope.pipeline.role_program import Program
from tilescope.sentence import filled
from tilescope.sync.all_orders.action import Clock, Key
from tilescope.sync.happens_before import Access, Order

Point = tuple[int, int]  # a place of a clock and its value: an agent and a time, or a barrier and its ended phases

_DOUBTS = {
    "meet": "{agent} could come to {barrier} in round {phase} or in the round before",
    "count": "What {agent} adds to {barrier} could count in phase {phase} or in an earlier one",
    "wait": "The wait of {agent} on {barrier} could pass in phase {phase} or two phases earlier, which has the same parity",
    "late": "Phase {phase} of {barrier} could end before {agent} has seen the phase before it end",
    "early": "Phase {phase} of {barrier} could end before {agent} has added to it",
    "place": "The bytes that {agent} copies for phase {phase} of {barrier} could lie before or after those of other roles",
    "registers": "{agent} could find that other roles have taken the block's registers",
}
_MAX_DOUBTS = 64
_MEETINGS = 7  # of an agent's warps that are remembered, and one more


class LateArrival(NamedTuple):
    """An arrival of several warps, of which one may have gone on before the last has come.

    It has come for whoever knows that its agent met later, or that a phase in which it counted has ended.
    """

    agent: int
    time: int
    phases: tuple[Point, ...]


class Arrived(NamedTuple):
    """A phase that ended by arrivals alone: whoever knows all of them knows its end."""

    phase: int
    known: Clock
    late: tuple[LateArrival, ...]


class RegisterRise(NamedTuple):
    """Registers that an agent takes from its block's pool."""

    agent: int
    time: int
    registers: int


class Clocks(Order):
    """Clocks of agents, and what barriers, accesses and fences hand on through them."""

    tries_orders = False

    def __init__(self, program: Program) -> None:
        self.program = program
        self.agents = len(program.agents)
        barriers = len(program.barriers)
        zero = np.zeros((2 if program.has_weak_arrivals else 1, self.agents + barriers), np.int64)
        self.doubts: dict[str, int] = {}  # what is not certain, and the agent
        self.clock: list[Clock] = [zero] * self.agents
        # barriers
        self.gathered: list[Clock | None] = [None] * barriers  # what those who counted in the running phase know
        self.gathered_next = self.gathered.copy()  # what those know who count in the next phase already: they have left
        self.has_landings = [False] * barriers  # in the running phase: only a wait tells its end
        self.released: list[Clock] = [zero] * barriers  # what those know who pass a wait now
        self.released_at: dict[tuple[int, int], Clock] = {}  # the same, of every phase of a flag
        # arrivals of the running phase of which the last warp may be late, and the last two phases that ended by arrivals
        self.late: list[tuple[LateArrival, ...]] = [()] * barriers
        self.arrived: list[tuple[Arrived, ...]] = [()] * barriers
        self.late_remote: dict[tuple[int, int, int], LateArrival] = {}  # block, barrier, agent: the last one
        # agent of several warps: when all of these last met or arrived, and what tells that
        self.meetings: dict[int, tuple[tuple[int, Point], ...]] = {}
        self.raised: list[tuple[Point, ...]] = [()] * barriers  # what no arrival of the phase is certainly behind
        self.passed: list[dict[int, int]] = [{}] * barriers  # waits that passed in the running phase: agent and time
        self.initialised: dict[int, Point] = {}
        self.init_fences: dict[int, tuple[int, ...]] = {}  # agent: times
        # accesses
        self.finished: dict[Key, tuple[Point, ...]] = {}  # which values of a clock mean that it is finished
        self.fenced: dict[tuple[Key, str], tuple[Point, ...]] = {}  # an access and a kind of fence: agents and times
        # blocks
        self.remote: dict[tuple[int, int], int] = {}  # block, place: a value that some agent of the block must know
        self.local: dict[tuple[int, int], int] = {}  # the same where it does no harm
        self.register_rises: dict[int, list[RegisterRise]] = {}  # block: what its agents took
        self.register_falls: dict[int, int] = {}  # block: registers that are given back whatever others take

    def clone(self) -> Clocks:
        """An independent copy; the arrays are shared, and nobody changes them."""
        other = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, list | dict):
                setattr(other, name, value.copy())
        return other

    def doubt(self, what: str, barrier: int, phase: int, agent: int) -> None:
        """Note that something is not certain."""
        if len(self.doubts) < _MAX_DOUBTS:
            facts = {
                "agent": self.program.agents[agent].title,
                "barrier": self.program.barriers[barrier].title,
                "phase": phase,
            }
            self.doubts[filled(_DOUBTS[what], facts)] = agent

    def begin(self, agent: int) -> None:
        """An agent begins its next action."""
        clock = self.clock[agent] = self.clock[agent].copy()
        clock[:, agent] += 1

    def past(self, agent: int) -> Clock:
        """What an agent knows now, for what it sends on its way."""
        return self.clock[agent]

    def _now(self, agent: int) -> Point:
        return agent, int(self.clock[agent][0, agent])

    def _knows_end(self, clock: Clock, barrier: int, phase: int) -> bool:
        """Whether the end of a phase certainly lies in a past."""
        if phase < 0 or clock[0, self.agents + barrier] > phase:
            return True
        return any(
            one.phase >= phase
            and (one.known[0] <= clock[0]).all()
            and all(self._has_come(late, clock) for late in one.late)
            for one in self.arrived[barrier]
        )

    def _has_come(self, late: LateArrival, clock: Clock) -> bool:
        """Whether the last warp of an arrival has certainly come."""
        if any(clock[0, place] >= value for place, value in late.phases):
            return True
        later = (point for time, point in self.meetings.get(late.agent, ()) if time > late.time)
        return any(clock[0, place] >= value for place, value in later)

    def is_late(self, barriers: Sequence[int], phases: Sequence[int], blocks: Sequence[int], agent: int) -> None:
        """The arrival that an agent makes now, at barriers of some blocks, may be late by a warp."""
        points = tuple((self.agents + barrier, phase + 1) for barrier, phase in zip(barriers, phases, strict=True))
        late = LateArrival(*self._now(agent), points)
        for point in points:
            self._all_warps_come(agent, point)
        for barrier, block in zip(barriers, blocks, strict=True):
            self.late[barrier] += (late,)
            if block != self.program.agents[agent].home:
                self.late_remote[block, barrier, agent] = late

    def warps_meet(self, agent: int) -> None:
        """All warps of an agent meet: what they did before has come."""
        self._all_warps_come(agent, self._now(agent))

    def warps_arrive(self, agent: int, barrier: int, phase: int) -> None:
        """All warps of an agent arrive somewhere and go on: when that phase ends, what they did before has come."""
        self._all_warps_come(agent, (self.agents + barrier, phase + 1))

    def _all_warps_come(self, agent: int, point: Point) -> None:
        if self.program.agents[agent].of.warps > 1:
            self.meetings[agent] = (*self.meetings.get(agent, ())[-_MEETINGS:], (self.time(agent), point))

    def counts(self, barrier: int, phase: int, agent: int, past: Clock | None, *, weak: bool = False) -> None:
        """Something counts on a barrier: an agent's action, or with `past` a landing of what it sent."""
        clock = self.clock[agent] if past is None else past
        if not self._knows_end(clock, barrier, phase - 1):
            of_threads = self.program.mbarriers <= barrier < self.program.first_flag
            self.doubt("meet" if of_threads else "count", barrier, phase, agent)
        self.has_landings[barrier] |= past is not None
        if weak:
            clock = clock.copy()
            clock[1] = 0
        gathered = self.gathered[barrier]
        self.gathered[barrier] = clock if gathered is None else np.maximum(gathered, clock)

    def leaves(self, barrier: int, agent: int, *, in_next_phase: bool) -> None:
        """An agent leaves: the cluster barrier takes it as arrived from now on.

        A phase in which it has arrived may end before it leaves; the next one may not.
        """
        held = self.gathered_next if in_next_phase else self.gathered
        clock = self.clock[agent]
        gathered = held[barrier]
        held[barrier] = clock if gathered is None else np.maximum(gathered, clock)

    def raises(self, barrier: int, agent: int) -> None:
        """An agent raises what a phase waits for without arriving."""
        self.raised[barrier] += (self._now(agent),)

    def arrives(self, barrier: int, agent: int, past: Clock | None) -> None:
        """An arrival that the phase needs: what lies in its past has been raised before the phase can end."""
        if self.raised[barrier]:
            clock = self.clock[agent] if past is None else past
            self.raised[barrier] = tuple(point for point in self.raised[barrier] if clock[0, point[0]] < point[1])

    def ends(self, barrier: int, phase: int) -> None:
        """A phase ends in this run; note where in another one it could end too soon."""
        gathered = self.gathered[barrier]
        assert gathered is not None
        if self.raised[barrier]:
            self.doubt("early", barrier, phase, self.raised[barrier][0][0])
        for waiter, time in self.passed[barrier].items():
            if gathered[0, waiter] < time:
                self.doubt("late", barrier, phase, waiter)
        released = np.maximum(gathered, self.released[barrier])
        released[:, self.agents + barrier] = phase + 1
        self.released[barrier] = released
        if self.program.first_flag <= barrier < self.program.grid:
            self.released_at[barrier, phase] = released
        last = self.arrived[barrier][-1:]
        ended = Arrived(phase, gathered, self.late[barrier])
        self.arrived[barrier] = last if self.has_landings[barrier] else (*last, ended)
        self.gathered[barrier] = self.gathered_next[barrier]
        self.gathered_next[barrier] = None
        self.has_landings[barrier] = False
        self.late[barrier] = ()
        self.raised[barrier] = ()
        self.passed[barrier] = {}

    def stays_open(self, barrier: int, phase: int, pending: int, tx: int) -> None:
        """A phase that does not end in this run; note whether in another one it could."""
        if pending == 0 and (self.raised[barrier] or tx < 0):
            agent = self.raised[barrier][0][0] if self.raised[barrier] else 0
            self.doubt("early", barrier, phase, agent)

    def passes(self, barrier: int, phase: int, agent: int) -> None:
        """A wait passes: the agent knows all that those who ended the phase before knew."""
        clock = self.clock[agent]
        if not self._knows_end(clock, barrier, phase - 2):
            self.doubt("wait", barrier, phase, agent)
        self.meets(barrier, agent)
        self.passed[barrier] = {**self.passed[barrier], agent: int(clock[0, agent])}

    def polls(self, flag: int, phase: int, agent: int) -> None:
        """A poll passes: the agent knows what those knew who brought the flag to its value, whatever came later."""
        clock = self.clock[agent]
        if phase >= 0:
            np.maximum(clock, self.released_at[flag, phase], out=clock)

    def overshoots(self, flag: int, phase: int, agent: int) -> None:
        """A flag reaches more than somebody polls for: in another order less would have sufficed."""
        self.doubt("early", flag, phase, agent)

    def mixes(self, barrier: int, phase: int, agent: int) -> None:
        """Copies of several agents lie behind each other in a slot, and bring different tiles."""
        self.doubt("place", barrier, phase, agent)

    def meets(self, barrier: int, agent: int) -> None:
        """An agent knows what those knew who ended the last phase."""
        clock = self.clock[agent]
        np.maximum(clock, self.released[barrier], out=clock)

    # accesses

    def starts(self, access: Access, *, ends_at_once: bool) -> None:
        """An access begins; a warp's own one is over for whoever comes behind the warp's next action."""
        self.finished[access.key] = (self._now(access.agent),) if ends_at_once else ()

    def finishes(self, key: Key, agent: int) -> None:
        """Whoever knows of the agent's action knows that the access is finished."""
        self._finish(key, self._now(agent))

    def finishes_with(self, key: Key, barrier: int, phase: int) -> None:
        """Whoever knows that the phase has ended knows that the access is finished."""
        self._finish(key, (self.agents + barrier, phase + 1))

    def _finish(self, key: Key, point: Point) -> None:
        if key in self.finished:
            self.finished[key] += (point,)

    def finishes_after(self, key: Key, barrier: int, phase: int) -> None:
        """All warps arrive in a phase: whoever knows that it has ended knows that their access is finished."""
        self.finishes_with(key, barrier, phase)

    def hears_of_itself(self, barrier: int, agent: int) -> int:
        """Up to which of an agent's own actions the last phase of a barrier came behind."""
        return int(self.released[barrier][0, agent])

    def is_alive(self, key: Key) -> bool:
        """Whether an access may still matter."""
        return key in self.finished

    def forgets(self, key: Key) -> None:
        """An access no longer matters: another one came certainly behind it."""
        del self.finished[key]
        for kind in ("proxy.async", "tcgen05.before", "tcgen05.after"):
            self.fenced.pop((key, kind), None)

    def knows(self, access: Access, agent: int) -> bool:
        """Whether an access is finished for an agent."""
        return self._is_over(access.key, self.clock[agent])

    def _is_over(self, key: Key, clock: Clock) -> bool:
        return any(clock[-1, place] >= value for place, value in self.finished[key])

    def is_out_of_scope(self, access: Access, agent: int) -> bool:
        """Whether an access is over, but what ordered it was an arrival whose scope ends at the other block."""
        clock = self.clock[agent]
        return any(clock[0, place] >= value for place, value in self.finished[access.key])

    def needs_later(self, access: Access) -> bool:
        """Whether an access must be kept for what comes: clocks compare with all of them."""
        return access.key in self.finished

    def fences(self, agent: int, kind: str, accesses: Iterable[Access], own: Container[Key]) -> None:
        """A fence: it counts for what the agent's warps did themselves, and for what the agent knows to be finished."""
        clock = self.clock[agent]
        for access in accesses:
            if access.key in own or self._is_over(access.key, clock):
                before = self.fenced.get((access.key, kind), ())
                if all(fencer != agent for fencer, _ in before):
                    self.fenced[access.key, kind] = (*before, self._now(agent))

    def is_fenced(self, access: Access, kind: str, by: Iterable[int] | None, agent: int) -> bool:
        """Whether a fence lies between an access and the agent's; `by` says whose fences count, None all."""
        clock = self.clock[agent]
        return any(
            clock[-1, fencer] >= time and (by is None or fencer in by)
            for fencer, time in self.fenced.get((access.key, kind), ())
        )

    # init and leaving

    def initialises(self, barrier: int, agent: int) -> None:
        """An agent initialises a barrier."""
        self.initialised[barrier] = self._now(agent)

    def shows_init(self, agent: int) -> None:
        """A fence.mbarrier_init: other blocks see what the agent has initialised."""
        self.init_fences[agent] = (*self.init_fences.get(agent, ()), self.time(agent))

    def is_ready(self, barrier: int, agent: int, past: Clock | None) -> bool:
        """Whether an agent knows that a barrier is initialised."""
        clock = self.clock[agent] if past is None else past
        maker, time = self.initialised.get(barrier, (agent, self.time(agent) + 1))  # by nobody: in the future
        return bool(clock[0, maker] >= time)

    def is_shown(self, barrier: int, agent: int, past: Clock | None) -> bool:
        """Whether a fence of the agent that initialised a barrier has made that known to other blocks."""
        clock = self.clock[agent] if past is None else past
        maker, time = self.initialised[barrier]
        return any(time < fence <= clock[0, maker] for fence in self.init_fences.get(maker, ()))

    def time(self, agent: int) -> int:
        """How many actions an agent has begun."""
        return int(self.clock[agent][0, agent])

    def reaches(self, block: int, agent: int) -> None:
        """An agent reaches into another block, which must not have left."""
        self.remote[block, agent] = self.time(agent)

    def lands_in(self, block: int, barrier: int, phase: int, *, harmless: bool) -> None:
        """Something lands in a block, which must not have left; an arrival by a commit or cp.async there is harmless."""
        held = self.local if harmless else self.remote
        held[block, self.agents + barrier] = phase + 1

    def unseen(self, held: dict[tuple[int, int], int]) -> Iterable[tuple[int, int]]:
        """The blocks, and the places, of `remote` or `local` that no agent of the block has seen when it leaves."""
        for (block, place), value in held.items():
            agents = self.program.agents
            clocks = (clock for clock, agent in zip(self.clock, agents, strict=True) if agent.home == block)
            if not any(clock[0, place] >= value for clock in clocks):
                yield block, place

    def unseen_warps(self) -> Iterable[tuple[int, int]]:
        """The blocks, and the barriers, at which the last warp of another block's role may arrive too late."""
        for (block, barrier, _), late in self.late_remote.items():
            agents = self.program.agents
            clocks = (clock for clock, agent in zip(self.clock, agents, strict=True) if agent.home == block)
            if not any(self._has_come(late, clock) for clock in clocks):
                yield block, barrier

    def takes_registers(self, agent: int, block: int, registers: int) -> None:
        """Setmaxnreg takes registers from the block's pool, or gives some back."""
        rises = self.register_rises.setdefault(block, [])
        clock = self.clock[agent]
        if registers > 0:
            rises.append(RegisterRise(agent, self.time(agent), registers))
        elif not any(clock[0, rise.agent] >= rise.time for rise in rises):
            self.register_falls[block] = self.register_falls.get(block, 0) - registers

    def checks_registers(self) -> None:
        """After the run: whether what is given back whatever happens suffices for all that is taken, in any order."""
        for block, rises in self.register_rises.items():
            if rises and sum(rise.registers for rise in rises) > self.register_falls.get(block, 0):
                self.doubt("registers", 0, 0, rises[0].agent)
