"""The state of a run: everything that actions and landings change, by agent, barrier, slot and block.

Every agent, every barrier and every barrier of threads has a place in a vector clock. An agent's clock holds, for another
agent, the number of its actions that certainly lie in the past, and for a barrier the phases that have certainly ended:

    producer  arrive ──▶ phase 0 of full ends ──▶ consumer passes its wait     clock: producer 3, full 1

Roles do not branch on data, so if every operation certainly meets the phase that it met in this run, it meets it in
every order of the roles, and what is ordered by clocks is ordered in all of them. An operation that could have met
another phase is kept in `ambiguities`.
"""

from __future__ import annotations

from copy import copy
from itertools import tee
from typing import Any, NamedTuple, Self

import numpy as np

from tilescope.pipeline.mistake import Mistake
from tilescope.pipeline.program import BARS, NONE, Action, Clock, Flight, Program

Points = tuple[tuple[int, int], ...]  # places of a clock with values: agents with times, barriers with phases
Groups = tuple[tuple[int, ...], ...]  # keys of the accesses of closed groups, and last those of the open one


class Access(NamedTuple):
    """One access to a slot; with a `key` it ends later than it begins, and `State.finished` says when."""

    agent: int
    time: int
    write: bool
    how: str  # a row of memory.HOW
    key: int | None = None
    fill: tuple[int, int] | None = None  # barrier and phase that count a copy's bytes: copies of one fill may overlap


class Note(NamedTuple):
    """What a barrier counted in its running phase."""

    op: str  # arrive, expect, bytes, more
    agent: int
    amount: int


class Ambiguity(NamedTuple):
    """An operation that could meet another phase than it met."""

    op: str  # arrive, wait, late, early, meet
    barrier: int
    phase: int
    agent: int


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
        self.ambiguities: list[Ambiguity] = []
        self.early: Mistake | None = None  # a phase that ends with a piece of a copy, though not in this run
        self.warnings: dict[tuple[str, str, str], Mistake] = {}
        # agents
        self.sources = [tee(program.actions(agent), 1)[0] for agent in program.agents]  # of actions behind the next one
        self.next_action = [next(source, None) for source in self.sources]
        self.pc = [0] * agents
        self.left = [False] * agents
        self.clock: list[Clock] = [zero] * agents
        self.registers = [program.pipeline.registers or 0] * agents
        self.groups: dict[tuple[int, str], Groups] = {}
        self.fences: dict[tuple[int, str], tuple[int, ...]] = {}  # (agent, kind): times
        self.fence_clock: dict[tuple[int, str], Clock] = {}  # what an agent knew at its last one
        self.standing: dict[tuple[int, int], int] = {}  # (agent, barrier of threads): the phase that it has arrived in
        # barriers
        counts = [barrier.of.count for barrier in program.barriers[: self.barriers]]
        self.expected = [*counts, *[0] * blocks * BARS, agents]
        self.pending = list(self.expected)
        self.tx = [0] * counting
        self.phase = [0] * counting
        self.gathered: list[Clock | None] = [None] * counting  # what those who counted in the running phase know
        self.released: list[Clock] = [zero] * counting  # what those know who pass a wait now
        self.notes: list[tuple[Note, ...]] = [()] * counting
        self.first_notes: list[tuple[Note, ...]] = [()] * counting
        self.arrivers: list[tuple[int, ...]] = [()] * counting  # agents that ever arrived
        self.raised: list[Points] = [()] * counting  # bytes that were expected without an arrival behind them
        self.passed: list[Points] = [()] * counting  # waits that passed in the running phase
        self.last_pass: dict[tuple[int, int], int] = {}  # (agent, barrier): the phase in which its last wait passed
        self.initialised: list[tuple[int, int] | None] = [None] * counting  # agent and time
        # memory, flights, blocks
        self.accesses: list[tuple[Access, ...]] = [()] * slots
        self.content: list[int | None] = [None] * slots
        self.finished: dict[int, Points] = {}  # key of an access: which values of a clock mean that it is finished
        self.flights: dict[int, Flight] = {}
        self.pool = [0] * blocks  # registers that were given back
        self.present = [sum(agent.block == block for agent in program.agents) for block in range(blocks)]
        self.remote: dict[tuple[int, int], int] = {}  # (block, place): a clock value that its exit must know

    def current(self, agent: int) -> Action | None:
        """What an agent does next, or None when it has left."""
        return None if self.left[agent] else self.next_action[agent]

    def noted(self, barrier: int, op: str) -> tuple[list[int], int]:
        """The agents of which a barrier's running phase counted something of that kind, and how much in all."""
        notes = [note for note in self.notes[barrier] if note.op == op]
        return [note.agent for note in notes], sum(note.amount for note in notes)

    def clone(self) -> Self:
        """An independent copy; clocks and actions are shared."""
        other = object.__new__(type(self))
        for name, value in vars(self).items():
            setattr(other, name, value.copy() if isinstance(value, list | dict) else value)
        other.sources = [copy(source) for source in self.sources]
        return other

    def key(self) -> tuple[Any, ...]:
        """What distinguishes two states for what may come after them."""
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
        """All that the future depends on: clocks counted from what has happened, keys from the last one, tiles from `tiles`."""
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
                for key, op, barrier, number, slots, agent, clock, held, content in self.flights.values()
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
