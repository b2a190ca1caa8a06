"""The state of a run: everything that actions and landings change, by agent, barrier, slot and block.

Every agent, every barrier and every barrier of threads has a place in a vector clock. An agent's clock holds, for another
agent, the number of its actions that certainly lie in the past, and for a barrier the phases that have certainly ended:

    producer  arrive ──▶ phase 0 of full ends ──▶ consumer passes its wait     clock: producer 3, full 1

Roles do not branch on data, so if every operation certainly meets the phase that it met in this run, it meets it in
every order of the roles, and what is ordered by clocks is ordered in all of them. An operation that could have met
another phase, since the end of the phase before does not certainly lie in its past, is kept in `aliasing`.

A barrier of threads, bar.sync or that of the cluster, is one whose arrivals are threads or roles.
"""

from __future__ import annotations

from copy import copy
from itertools import tee
from typing import Any, NamedTuple, Self

import numpy as np

from tilescope.errors import counted
from tilescope.pipeline.mbarrier import TX_END_BYTES
from tilescope.pipeline.mistake import Mistake, MistakeFoundError
from tilescope.pipeline.parts import WARP_THREADS
from tilescope.pipeline.program import BARS, NONE, Action, Clock, Flight, Program

_ALIASING = {
    "meet": "{agent} could meet the barrier of threads in round {phase} or the one before",
    "arrive": "What {agent} adds to {barrier} could count in phase {phase} or in an earlier one",
    "wait": "The wait of {agent} on {barrier} could pass in phase {phase} or two phases earlier, of the same parity",
    "late": "{barrier} could end phase {phase} before {agent} has seen the one before it",
    "early": "{barrier} could end phase {phase} before {agent} has added to it",
}
_ALIASING_TOLD = 64
Points = tuple[tuple[int, int], ...]  # places of a clock with values: agents with times, barriers with phases
Groups = tuple[tuple[int, ...], ...]  # keys of the accesses of closed groups, and last those of the open one


class Access(NamedTuple):
    """One access to a slot; with a `key` it ends later than it begins, and `State.finished` says when."""

    agent: int
    time: int
    write: bool
    how: str  # a row of machine.HOW
    key: int | None = None
    fill: tuple[int, int] | None = None  # barrier and phase that count a copy's bytes: copies of one fill may overlap


class Note(NamedTuple):
    """What a barrier counted in its running phase."""

    op: str  # arrive, expect, bytes, more
    agent: int
    amount: int


class State:
    """Lists by agent, barrier, slot or block; a copy of the state copies them and shares what they hold."""

    def __init__(self, program: Program) -> None:
        self.program = program
        agents = self.agents = len(program.agents)
        slots, blocks, counting = len(program.slots), program.pipeline.blocks, len(program.barriers)
        self.barriers = program.mbarriers
        zero = np.zeros(agents + counting, np.int64)
        self.actions_done = 0
        self.last_key = 0  # of accesses and flights
        self.ended: list[int] = []  # barriers whose phase ended in the last action; NONE: registers were given back
        self.aliasing: dict[str, int] = {}  # operations that could meet another phase than they met, and their agents
        self.early: Mistake | None = None  # a phase that could end in the midst of a copy, though not in this run
        self.warnings: dict[tuple[str, str, str], Mistake] = {}
        # agents
        # actions after the next one; tee's iterators can be copied with the state
        self.sources = [tee(program.actions(agent), 1)[0] for agent in program.agents]
        self.next_action = [next(source, None) for source in self.sources]
        self.pc = [0] * agents
        self.left = [False] * agents
        self.clock: list[Clock] = [zero] * agents
        self.registers = [program.pipeline.registers or 0] * agents
        self.groups: dict[tuple[int, str], Groups] = {}
        self.fences: dict[tuple[int, str], tuple[int, ...]] = {}  # (agent, kind): times
        self.fence_clock: dict[tuple[int, str], Clock] = {}  # what an agent knew at its last fence of a kind
        self.standing: dict[tuple[int, int], int] = {}  # (agent, barrier of threads): the phase that it has arrived in
        # barriers
        counts = [barrier.of.count for barrier in program.barriers[: self.barriers]]
        self.expected = [*counts, *[0] * blocks * BARS, agents]
        self.pending = list(self.expected)
        self.tx = [0] * counting
        self.phase = [0] * counting
        self.gathered: list[Clock | None] = [None] * counting  # what those who counted in the running phase know
        self.released: list[Clock] = [zero] * counting  # what those know who pass a wait now
        self.notes: list[tuple[Note, ...]] = [()] * counting  # of the running phase
        self.first_notes: dict[int, tuple[Note, ...]] = {}  # of the first phase that ended
        self.arrivers: list[tuple[int, ...]] = [()] * counting  # agents that ever arrived
        self.raised: list[Points] = [()] * counting  # bytes expected, and no arrival certainly after them
        self.passed: list[Points] = [()] * counting  # waits that passed in the running phase
        self.last_pass: dict[tuple[int, int], int] = {}  # (agent, barrier): the phase in which its last wait passed
        self.initialised: list[tuple[int, int] | None] = [None] * counting  # agent and time
        # memory, flights, blocks
        self.accesses: list[tuple[Access, ...]] = [()] * slots
        self.content: list[int | None] = [None] * slots
        self.finished: dict[int, Points] = {}  # key of an access: which values of a clock mean that it is finished
        self.flights: dict[int, Flight] = {}
        self.pool = [0] * blocks  # registers that were given back
        # agents of a block that have not left
        self.present = [sum(agent.block == block for agent in program.agents) for block in range(blocks)]
        self.remote: dict[tuple[int, int], int] = {}  # (block, place): a clock value that its exit must know

    def current(self, agent: int) -> Action | None:
        """What an agent does next, or None when it has left."""
        return None if self.left[agent] else self.next_action[agent]

    def noted(self, barrier: int, op: str) -> tuple[list[int], int]:
        """The agents whose operations of a kind a barrier's running phase counted, and the sum of their amounts."""
        notes = [note for note in self.notes[barrier] if note.op == op]
        return [note.agent for note in notes], sum(note.amount for note in notes)

    def _doubt(self, op: str, barrier: int, phase: int, agent: int) -> None:
        """An operation could meet another phase than it met."""
        if len(self.aliasing) < _ALIASING_TOLD:
            names = {"agent": self.program.agents[agent].title, "barrier": self.program.barriers[barrier].title}
            self.aliasing[_ALIASING[op].format(phase=phase, **names)] = agent

    def clone(self) -> Self:
        """An independent copy; clocks and actions are shared."""
        other = object.__new__(type(self))
        for name, value in vars(self).items():
            setattr(other, name, value.copy() if isinstance(value, list | dict) else value)
        other.sources = [copy(source) for source in self.sources]
        return other

    def key(self) -> tuple[Any, ...]:
        """Equal for two states if the same may come after both; a search visits only one of them."""
        flights = sorted(
            (flight.op, flight.barrier, flight.number, flight.slots, flight.agent, flight.tile or 0)
            for flight in self.flights.values()
        )
        groups = (
            (key, len(groups), len(groups[-1])) for key, groups in sorted(self.groups.items()) if key[1] != "tcgen05"
        )
        under_way = tuple(
            tuple(
                (access.agent, access.write, access.how)
                for access in accesses
                if access.key is not None and not self.finished[access.key]
            )
            for accesses in self.accesses
        )
        lists: tuple[list[Any], ...] = (self.pc, self.left, self.pending, self.tx, self.phase, self.pool, self.content)
        return (*map(tuple, lists), tuple(flights), *groups, tuple(sorted(self.standing.items())), under_way)

    def relative(self, tiles: int) -> list[Any]:
        """The state counted from now, equal in two rounds of a loop if the second repeats the first.

        Clocks count from what has happened, keys from the last one, tiles from `tiles`.
        """
        now = np.array([*(clock[agent] for agent, clock in enumerate(self.clock)), *self.phase])
        counts, last = now.tolist(), self.last_key

        def since(clock: Clock | None) -> bytes | None:
            return None if clock is None else (clock - now).tobytes()

        def ago(points: Any) -> list[tuple[int, int]]:
            return [(place, value - counts[place]) for place, value in points]

        def tile(number: int | None) -> int | None:
            return None if number is None else number - tiles

        def keys(numbers: tuple[int, ...]) -> list[int]:
            return [last - key for key in numbers if key in self.finished]

        def fill(barrier: int, phase: int) -> tuple[int, int]:
            return barrier, phase - (self.phase[barrier] if barrier != NONE else 0)

        def touched(access: Access) -> tuple[Any, ...]:
            times = ago(((access.agent, access.time), *self.finished.get(access.key or 0, ())))
            return access.write, access.how, times, access.fill and fill(*access.fill), access.key and last - access.key

        released = self.released if self.standing else self.released[: self.barriers]  # nobody looks at a past meeting
        return [
            [since(clock) for clock in (*self.clock, *self.gathered, *released)],
            self.pending, self.tx, self.expected, [phase % 2 for phase in self.phase[: self.barriers]],
            [ago(points) for points in (*self.raised, *self.passed)],
            [[touched(access) for access in accesses] for accesses in self.accesses],
            [tile(number) for number in self.content],
            [
                (last - key, op, barrier, number, slots, agent, since(clock), keys(held), tile(content))
                for op, barrier, number, slots, agent, clock, held, content, key in self.flights.values()
            ],
            [(key, [*map(keys, groups)]) for key, groups in sorted(self.groups.items())],
            [
                (agent, kind, ago((agent, time) for time in times), since(self.fence_clock[agent, kind]))
                for (agent, kind), times in sorted(self.fences.items()) if kind != "mbarrier_init"  # it lies before the loop
            ],
            [[note.agent for note in notes] for notes in self.notes[self.barriers :]],
            sorted(self.standing.items()), self.registers, self.pool,
            sorted((block, *ago([(place, value)])) for (block, place), value in self.remote.items()),
            sorted((agent, fill(barrier, phase)) for (agent, barrier), phase in self.last_pass.items()),
        ]  # fmt: skip

    def pass_wait(self, barrier: int, agent: int, clock: Clock, time: int) -> None:
        """A wait passes: the agent knows all that those who ended the phase before knew."""
        self._require_initialised(barrier, agent, clock)
        phase = self.phase[barrier]
        if phase >= 2 and clock[self.agents + barrier] < phase - 1:
            self._doubt("wait", barrier, phase, agent)
        if phase:
            np.maximum(clock, self.released[barrier], out=clock)
        self.passed[barrier] += ((agent, time),)
        self.last_pass[agent, barrier] = phase

    def count(
        self,
        barrier: int,
        agent: int,
        clock: Clock,
        *,
        arrivals: int = 0,
        tx: int = 0,  # bytes expected; negative: bytes that landed
        more: int = 0,  # arrivals that the phase waits for in addition
        dropped: int = 0,  # arrivals that later phases no longer wait for
        lands: bool = False,
        covers: bool = True,  # whether an arrival also comes behind the bytes that its agent expected
    ) -> int:
        """Count an operation on a barrier; the phase that it met."""
        self._require_initialised(barrier, agent, clock)
        phase, before = self.phase[barrier], self.tx[barrier]
        if clock[self.agents + barrier] < phase:
            self._doubt("arrive" if barrier < self.barriers else "meet", barrier, phase, agent)
        rows = (("more", more), ("expect", tx), ("arrive", arrivals))
        noted = [("bytes", -tx)] if lands else [row for row in rows if row[1]] or [("arrive", 0)]
        self.notes[barrier] += tuple(Note(op, agent, amount) for op, amount in noted)
        if arrivals and agent not in self.arrivers[barrier]:
            self.arrivers[barrier] += (agent,)
        pending = self.pending[barrier] = self.pending[barrier] + more - arrivals
        after = self.tx[barrier] = before + tx
        self.expected[barrier] -= dropped
        if lands and pending == 0 and 0 < before < -tx and self.early is None:
            self.early = self.program.mistake("piece", barrier=barrier, phase=phase, tx=before, bytes=-tx).mistake
        if pending < 0:
            raise self.miscounted(barrier, "too many arrivals" if barrier < self.barriers else "sync surplus")
        if abs(after) >= TX_END_BYTES:
            most = TX_END_BYTES - 1
            needed = -(-abs(after) // most)
            raise self.program.mistake("outstanding", barrier=barrier, phase=phase, tx=after, limit=most, needed=needed)
        if more or (tx > 0 and not arrivals):
            self.raised[barrier] += ((agent, int(clock[agent])),)
        elif arrivals and covers and self.raised[barrier]:
            self.raised[barrier] = tuple(point for point in self.raised[barrier] if clock[point[0]] < point[1])
        gathered = self.gathered[barrier]
        self.gathered[barrier] = clock if gathered is None else np.maximum(gathered, clock)
        if pending == 0 and after == 0:
            self._end_phase(barrier, None if lands else clock)
        return phase

    def _end_phase(self, barrier: int, clock: Clock | None) -> None:
        """The next phase begins; `clock` is that of the agent whose own action ended this one."""
        phase, place, gathered = self.phase[barrier], self.agents + barrier, self.gathered[barrier]
        assert gathered is not None
        if self.raised[barrier]:
            self._doubt("early", barrier, phase, self.raised[barrier][0][0])
        for waiter, time in self.passed[barrier]:
            if gathered[waiter] < time:
                self._doubt("late", barrier, phase, waiter)
        released = np.maximum(gathered, self.released[barrier])
        released[place] = phase + 1
        if clock is not None and (gathered <= clock).all():  # nothing else was needed: the agent knows
            clock[place] = phase + 1
        self.released[barrier], self.gathered[barrier] = released, None
        self.phase[barrier], self.pending[barrier] = phase + 1, self.expected[barrier]
        self.raised[barrier] = self.passed[barrier] = ()
        self.first_notes.setdefault(barrier, self.notes[barrier])
        self.notes[barrier] = ()
        self.ended.append(barrier)

    def _require_initialised(self, barrier: int, agent: int, clock: Clock) -> None:
        """Stop where an agent cannot know that a barrier is initialised."""
        program = self.program
        if not program.initialises or barrier >= self.barriers:
            return
        maker, time = self.initialised[barrier] or (agent, int(clock[agent]) + 1)  # by nobody: in the future
        if clock[maker] < time:
            raise program.mistake("init", agent=agent, barrier=barrier)
        if program.agents[maker].block != program.agents[agent].block and not any(
            time < fence <= clock[maker] for fence in self.fences.get((maker, "mbarrier_init"), ())
        ):
            raise program.mistake("init fence", agent=agent, barrier=barrier)

    def miscounted(self, barrier: int, kind: str) -> MistakeFoundError:
        """The mistake of a barrier that waits for other arrivals than those that come."""
        (agents, came), expected, tx = self.noted(barrier, "arrive"), self.expected[barrier], self.tx[barrier]
        return self.program.mistake(
            kind, barrier=barrier, phase=self.phase[barrier], expected=expected, came=came, agents=agents, tx=tx,
            arrivals=counted(came, "arrival"), added=self.noted(barrier, "more")[1], pending=self.pending[barrier],
            surplus=came - expected, still=f", {tx} bytes still missing" if tx else "",
        )  # fmt: skip

    def meet(self, agent: int, action: Action, clock: Clock) -> bool:
        """Arrive at a barrier of threads, or leave one whose phase has ended; whether the action is over."""
        barrier, place = action.barriers[0], self.program.agents[agent]
        of_cluster = barrier == self.program.cluster
        if (agent, barrier) not in self.standing or not action.meets:
            if action.choice == "wait":
                raise self.program.mistake("cluster wait", agent=agent)
            came, expected = self.noted(barrier, "arrive")[0], self.expected[barrier]
            if of_cluster:
                threads = int(agent not in came)
            else:
                in_block = (other.of for other in self.program.agents if other.block == place.block)
                asked = action.times or sum(role.whole_threads(WARP_THREADS) for role in in_block)
                if came and expected != asked:
                    raise self.program.mistake("sync counts", barrier=barrier, expected=expected, other=asked)
                if not came:
                    self.expected[barrier] = self.pending[barrier] = asked
                threads = place.of.whole_threads(WARP_THREADS)
            if action.meets or of_cluster:
                self.standing[agent, barrier] = self.phase[barrier]
            self.count(barrier, agent, clock, arrivals=threads)
        if action.meets:
            if self.phase[barrier] <= self.standing[agent, barrier]:
                return False
            del self.standing[agent, barrier]
            np.maximum(clock, self.released[barrier], out=clock)
        return True

    def leave(self, agent: int) -> None:
        """An agent leaves: the cluster barrier no longer waits for it."""
        self.left[agent] = True
        self.present[self.program.agents[agent].block] -= 1
        cluster = self.program.cluster
        self.expected[cluster] -= 1
        if agent not in self.noted(cluster, "arrive")[0]:
            self.pending[cluster] -= 1
            if self.pending[cluster] == 0 and self.gathered[cluster] is not None:
                self._end_phase(cluster, None)
