"""Running a pipeline: once against a nominal clock, and in every order where that must decide.

Times are nominal: an action takes a tick, a copy lands six ticks after its issue, a tensor core is busy for four. They
make a timeline readable and choose one order of many; no verdict rests on them.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable
from dataclasses import replace
from itertools import count
from typing import NamedTuple

from tilescope.pipeline.role_program import Program
from tilescope.pipeline.wording import told
from tilescope.sync.all_orders.action import NONE, Action, Flight, Key
from tilescope.sync.all_orders.interpreter import Machine
from tilescope.sync.all_orders.mistake import Mistake, MistakeFoundError
from tilescope.sync.all_orders.stuck_diagnosis import blocked_agents, check_hang
from tilescope.sync.one_order import Sight
from tilescope.sync.role_clocks import Clocks

COPY_TICKS = 6
MULTIPLY_TICKS = 4
MAX_ACTIONS = 20_000_000
_HELD_MARKS = 3_000  # at the beginning of a long run, and as many at its end
_AT_LAST = 1 << 40  # ticks: after everything else
_NO_KEY: Key = (NONE, NONE, NONE)


class Mark(NamedTuple):
    """A piece of a timeline: what an agent did from tick to tick; copies in flight name the agent that issued them."""

    start: int
    end: int
    agent: int
    op: str  # that of an action, or flight, phase, stuck
    done: Action | Flight
    barrier: int = NONE
    phase: int = NONE


class Due(NamedTuple):
    """What comes next in a run: at equal ticks, in the order in which it was noted."""

    tick: int
    order: int
    agent: int  # NONE: something lands
    flight: Key


class Run:
    """One run against the nominal clock; `slow` agents and late landings act when nothing else can."""

    def __init__(self, program: Program, *, slow: int | None = None, copy_ticks: int = COPY_TICKS) -> None:
        self.clocks = Clocks(program)
        self.machine = Machine(program, self.clocks)
        self.slow = slow
        self.copy_ticks = copy_ticks  # from issue to landing
        self.first_marks: list[Mark] = []
        self.last_marks: deque[Mark] = deque(maxlen=_HELD_MARKS)
        self.waiting: dict[int, int] = {}  # agent: since when
        self.order = count(self.machine.agents)
        # a heap; empty at the end, unless that was beyond MAX_ACTIONS
        self.queue = [Due(0, agent, agent, _NO_KEY) for agent in range(self.machine.agents)]
        self.parked: dict[int, list[int]] = {}  # barrier, or NONE: agents that wait
        self.busy_until = [0] * self.machine.agents
        self.parities: dict[tuple[str, str], int] = {}  # barrier and role: the parity of its first wait
        self.tick = 0
        self.error: MistakeFoundError | None = None  # at which the run ended

    def __call__(self) -> Mistake | None:
        """Run to the end, or to the first mistake."""
        machine = self.machine
        try:
            while self.queue:
                due = heapq.heappop(self.queue)
                self.tick = due.tick
                if due.agent == NONE:
                    self._land(machine.flights[due.flight])
                else:
                    self.act(due.agent)
                if machine.actions_done > MAX_ACTIONS:
                    return None
            check_hang(machine)
            for barrier in range(machine.barriers):
                self.clocks.stays_open(barrier, machine.phase[barrier], machine.pending[barrier], machine.tx[barrier])
            self.clocks.checks_registers()
            machine.check_exits(self.clocks)
        except MistakeFoundError as error:
            for agent, action in blocked_agents(machine):  # waits that never pass, up to the end of the run
                since = self.waiting.get(agent, self.tick)
                barrier, phase = self._barrier(action)
                self._mark(Mark(since, self.tick + COPY_TICKS, agent, "stuck", action, barrier, phase))
            self.error = error
            return error.mistake
        return None

    def marks(self) -> list[Mark]:
        """The timeline in order of time: of a long run its beginning and its end."""
        return sorted([*self.first_marks, *self.last_marks], key=lambda mark: (mark.start, mark.agent))

    def _mark(self, mark: Mark) -> None:
        if len(self.first_marks) < _HELD_MARKS:
            self.first_marks.append(mark)
        else:
            self.last_marks.append(mark)

    def _push(self, ticks: int, agent: int, flight: Key = _NO_KEY) -> None:
        """Let an agent act, or something land, after that many ticks."""
        tick = self.tick + (_AT_LAST if agent == self.slow else ticks)
        heapq.heappush(self.queue, Due(tick, next(self.order), agent, flight))

    def act(self, agent: int) -> None:
        """Let an agent do its next action, or wait for it."""
        machine = self.machine
        action = machine.current(agent)
        place = machine.pc[agent]
        took = 1
        barrier, phase = self._barrier(action)
        if action is not None and action.waits:
            names = machine.program.barriers[barrier].row_name, machine.program.agents[agent].row_name
            self.parities.setdefault(names, action.number)
        if not machine.enabled(agent):
            assert action is not None
            waited_for = machine.program.grid if machine.starts_late(agent) else action.barrier
            self.parked.setdefault(waited_for, []).append(agent)
            self.waiting.setdefault(agent, self.tick)
            return
        machine.perform(agent)
        for key in machine.sent:
            self._push(self._ticks(machine.flights[key]), NONE, key)
        if action is not None:
            if action.op == "multiply":
                self.busy_until[agent] = max(self.busy_until[agent], self.tick) + MULTIPLY_TICKS
            elif (action.op, action.choice, action.number) == ("wait_group", "wgmma", 0):
                took = max(1, self.busy_until[agent] - self.tick)
            if machine.pc[agent] == place:  # it has arrived at a meeting, and waits there
                self.waiting.setdefault(agent, self.tick)
            else:
                since = self.waiting.pop(agent, self.tick)
                self._mark(Mark(since, self.tick + took, agent, action.op, action, barrier, phase))
        self._wake(agent, action)
        if not machine.left[agent]:
            self._push(took, agent)

    def _barrier(self, action: Action | None) -> tuple[int, int]:
        """The mbarrier of an action and its running phase."""
        barrier = NONE if action is None else action.barrier
        return (barrier, self.machine.phase[barrier]) if 0 <= barrier < self.machine.barriers else (NONE, NONE)

    def _ticks(self, flight: Flight) -> int:
        """How long something is under way."""
        return self.copy_ticks if flight.op == "copy" else MULTIPLY_TICKS

    def _land(self, flight: Flight) -> None:
        start = self.tick - self._ticks(flight)
        phase = self.machine.phase[flight.barrier]
        self._mark(Mark(start, self.tick, flight.agent, "flight", flight, flight.barrier, phase))
        self.machine.land(flight)
        self._wake(flight.agent, flight)

    def _wake(self, agent: int, cause: Action | Flight | None) -> None:
        """Let those go on who waited for what just ended, and note which phase that was."""
        for barrier in dict.fromkeys(self.machine.ended):
            if 0 <= barrier < self.machine.barriers and cause is not None:
                self._mark(Mark(self.tick, self.tick, agent, "phase", cause, barrier, self.machine.phase[barrier] - 1))
            for waiting in self.parked.pop(barrier, ()):
                self._push(0, waiting)


class Found(NamedTuple):
    """What a search found: the first mistake, the states it saw, and whether those were all."""

    mistake: Mistake | None
    states: int
    is_complete: bool
    error: MistakeFoundError | None = None  # of the mistake


Way = tuple["Way", int, Action | Flight | None] | None  # the way before, the agent, what it did or what landed


def search(program: Program, max_states: int) -> Found:
    """The first mistake in the orders of all actions and landings, shortest first."""
    machine = Machine(program, Sight())
    seen = {_key(machine)}
    queue: deque[tuple[Machine, Way]] = deque([(machine, None)])
    while queue:
        machine, path = queue.popleft()
        acting = machine
        way = path
        try:
            moves = _moves(machine)
            if not moves:
                check_hang(machine)
            for agent, done in moves:
                acting = machine.clone()
                way = (path, agent, done)
                if isinstance(done, Flight):
                    acting.land(done)
                else:
                    acting.perform(agent)
                key = _key(acting)
                if key not in seen:
                    if len(seen) >= max_states:
                        return Found(None, len(seen), is_complete=False)
                    seen.add(key)
                    queue.append((acting, way))
        except MistakeFoundError as error:
            torn = acting.piece if error.mistake.outcome == "race" else None
            mistake = with_way(torn or error.mistake, machine, _steps(program, way))
            return Found(mistake, len(seen), is_complete=False, error=error if torn is None else None)
    return Found(None, len(seen), is_complete=True)


def _sight(machine: Machine) -> Sight:
    """What is under way in the order of a machine that is searched."""
    assert isinstance(machine.order, Sight)
    return machine.order


def _key(machine: Machine) -> Hashable:
    """Equal for two machines if the same may come after both: a search visits only one of them."""
    return machine.key(), _sight(machine).key()


def _steps(program: Program, way: Way) -> list[str]:
    """A way in words, from its beginning."""
    steps: list[str] = []
    while way is not None:
        way, agent, done = way
        steps.append(told(program, agent, done))
    return steps[::-1]


def _moves(machine: Machine) -> list[tuple[int, Action | Flight | None]]:
    """All that can happen next: agents with their actions, and landings.

    One move alone where its place among the others changes nothing: a fence, the end of a group, and an agent that
    leaves (the earlier it does, the more can reach for a block that has gone), unless that ends an access of its own.
    """
    moves: list[tuple[int, Action | Flight | None]] = []
    for agent in filter(machine.enabled, range(machine.agents)):
        action = machine.current(agent)
        if action is None:
            changes_nothing = agent not in machine.uncovered
        else:
            changes_nothing = action.op == "fence" or (action.op == "commit" and action.choice != "")
        if changes_nothing and agent not in _sight(machine).ends_with_step:
            return [(agent, action)]
        moves.append((agent, action))
    flights = [*filter(machine.can_land, machine.flights.values())]
    pieces = [  # of copies whose first bytes leave their barrier's count at 0 before the last have come
        flight._replace(number=machine.tx[flight.barrier])
        for flight in flights
        if flight.op == "copy" and 0 < machine.tx[flight.barrier] < flight.number
    ]
    return moves + [(NONE, flight) for flight in (*flights, *pieces)]


def with_way(mistake: Mistake, machine: Machine, steps: list[str]) -> Mistake:
    """The mistake with a way into it; for a hang, what every role waits for stands at its end."""
    blocked = blocked_agents(machine) if mistake.outcome == "hang" else []
    ends = [f"{told(machine.program, agent, action)}: never passes" for agent, action in blocked]
    return replace(mistake, way=(*steps, *ends))
