"""Running a pipeline: once against a nominal clock, and in every order where that must decide.

Times are nominal: an action takes a tick, a copy lands six ticks after its issue, a tensor core is busy for four. They
make a timeline readable and choose one order of many; no verdict rests on them.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from tilescope.pipeline.diagnosis import diagnosed
from tilescope.pipeline.machine import Flight, Machine
from tilescope.pipeline.mistake import Mistake, MistakeFoundError
from tilescope.pipeline.program import NONE, Action, Program
from tilescope.pipeline.wording import action_text, flight_text

COPY_TICKS = 6
MULTIPLY_TICKS = 4
_AT_LAST = 1 << 40  # ticks: after everything else
_ALONE = ("fence",)  # actions whose place among those of other roles changes nothing


class Mark(NamedTuple):
    """A piece of a timeline: what an agent did from tick to tick; copies in flight name the agent that issued them."""

    start: int
    end: int
    agent: int
    op: str
    done: Action | Flight
    barrier: int = NONE
    phase: int = NONE
    slots: tuple[int, ...] = ()
    number: int = 0  # bytes


def mark_text(program: Program, mark: Mark) -> str:
    """What a mark stands for, in words."""
    if isinstance(mark.done, Action):
        return action_text(program, mark.done)
    return flight_text(program, mark.done)


class Timeline:
    """What a run did: of a long run its beginning and its end."""

    def __init__(self, most: int) -> None:
        self.first: list[Mark] = []
        self.last: deque[Mark] = deque(maxlen=most // 2)
        self.room = most - most // 2
        self.waiting: dict[int, int] = {}  # agent: since when

    def add(self, mark: Mark) -> None:
        """Keep a mark while there is room."""
        (self.first if len(self.first) < self.room else self.last).append(mark)

    def marks(self) -> list[Mark]:
        """All that was kept, in order of time."""
        return sorted([*self.first, *self.last], key=lambda mark: (mark.start, mark.agent))


class Run:
    """One run against the nominal clock; `slow` agents and late landings act when nothing else can."""

    def __init__(
        self, program: Program, *, slow: int = NONE, copy_ticks: int = COPY_TICKS, room: int = 0, most: int = 1 << 62
    ) -> None:
        self.machine = Machine(program)
        self.slow, self.copy_ticks, self.most = slow, copy_ticks, most
        self.timeline = Timeline(room) if room else None
        self.queue: list[tuple[int, int, int, int]] = []  # tick, order, agent or NONE, flight
        self.parked: dict[int, list[int]] = {}  # barrier, or NONE: agents that wait
        self.busy_until = [0] * self.machine.agents
        self.issued: dict[int, int] = {}
        self.watch: Callable[[Run, int], None] | None = None  # called after every action of an agent
        self.order = 0
        self.tick = 0
        self.exhausted = False

    def __call__(self) -> Mistake | None:
        """Run to the end, or to the first mistake."""
        machine = self.machine
        for agent in range(machine.agents):
            self._push(0, agent, NONE)
        try:
            while self.queue:
                self.tick, _, agent, flight = heapq.heappop(self.queue)
                if agent == NONE:
                    self._land(flight)
                else:
                    self._act(agent)
                    if self.watch is not None:
                        self.watch(self, agent)
                if machine.actions_done > self.most:
                    self.exhausted = True
                    return None
            if not all(machine.left):
                self._mark_blocked()
                return diagnosed(machine)
            machine.check_exits()
        except MistakeFoundError as found:
            self._mark_blocked()
            return found.mistake
        return machine.journal.early

    def _push(self, tick: int, agent: int, flight: int) -> None:
        self.order += 1
        heapq.heappush(self.queue, (tick, self.order, agent, flight))

    def _act(self, agent: int) -> None:
        machine = self.machine
        action = machine.current(agent)
        if not machine.enabled(agent):
            assert action is not None
            on = action.barriers[0] if action.op in ("wait", "tail") else NONE
            self.parked.setdefault(on, []).append(agent)
            if self.timeline is not None:
                self.timeline.waiting.setdefault(agent, self.tick)
            return
        before = machine.next_number
        phase = machine.barriers.phase[action.barriers[0]] if action is not None and action.barriers else NONE
        place = machine.pc[agent]
        machine.perform(agent)
        took = 1
        if action is not None and action.op == "multiply":
            self.busy_until[agent] = max(self.busy_until[agent], self.tick) + MULTIPLY_TICKS
        if action is not None and action.op == "wait_group" and action.choice == "wgmma" and action.number == 0:
            took = max(1, self.busy_until[agent] - self.tick)
        for number in range(before + 1, machine.next_number + 1):
            if number in machine.flights:
                ticks = self.copy_ticks if machine.flights[number].op == "copy" else MULTIPLY_TICKS
                self.issued[number] = self.tick
                self._push(self.tick + ticks, NONE, number)
        if self.timeline is not None and action is not None:
            since = self.timeline.waiting.pop(agent, self.tick)
            if machine.pc[agent] == place:
                self.timeline.waiting[agent] = since
            else:
                on = action.barriers[0] if action.barriers else NONE
                self.timeline.add(
                    Mark(since, self.tick + took, agent, action.op, action, on, phase, action.slots, action.number)
                )
        self._wake(agent, action)
        if not machine.left[agent]:
            self._push(self.tick + (_AT_LAST if agent == self.slow else took), agent, NONE)

    def _land(self, flight: int) -> None:
        machine = self.machine
        under_way = machine.flights[flight]
        phase = machine.barriers.phase[under_way.barrier]
        issued = self.issued.pop(flight)
        if self.timeline is not None:
            slots = (under_way.slot,) if under_way.slot != NONE else ()
            amount = under_way.amount if under_way.op == "copy" else 0
            self.timeline.add(
                Mark(issued, self.tick, under_way.agent, "flight", under_way, under_way.barrier, phase, slots, amount)
            )
        machine.land(flight)
        self._wake(under_way.agent, under_way)

    def _wake(self, agent: int, cause: Action | Flight | None) -> None:
        """Let those go on who waited for what just ended, and note which phase that was."""
        for on in dict.fromkeys(self.machine.journal.ended):
            if self.timeline is not None and on != NONE and cause is not None:
                phase = self.machine.barriers.phase[on] - 1
                self.timeline.add(Mark(self.tick, self.tick, agent, "phase", cause, on, phase))
            for waiting in self.parked.pop(on, ()):
                self._push(self.tick + (_AT_LAST if waiting == self.slow else 0), waiting, NONE)

    def _mark_blocked(self) -> None:
        """Waits that never pass, up to the end of the run."""
        if self.timeline is None:
            return
        machine = self.machine
        for agent in range(machine.agents):
            action = machine.current(agent)
            if action is not None and not machine.enabled(agent):
                since = self.timeline.waiting.get(agent, self.tick)
                on = action.barriers[0] if action.barriers else NONE
                phase = machine.barriers.phase[on] if on != NONE else NONE
                self.timeline.add(Mark(since, self.tick + COPY_TICKS, agent, "stuck", action, on, phase))


class Found(NamedTuple):
    """What a search over orders ends with."""

    mistake: Mistake | None
    states: int
    complete: bool  # every order was looked at


def search(program: Program, most_states: int) -> Found:
    """Look at the orders of all actions and landings, the shortest first, until a mistake or `most_states` states."""
    start = Machine(program, keep=True)
    start_key = start.key()
    seen = {start_key}
    waiting: deque[tuple[Machine, Any]] = deque([(start, None)])
    while waiting:
        machine, path = waiting.popleft()
        moves = _moves(machine)
        if not moves:
            try:
                if not all(machine.left):
                    return Found(_with_way(diagnosed(machine), program, machine, path), len(seen), complete=False)
                machine.check_exits()
            except MistakeFoundError as found:
                return Found(_with_way(found.mistake, program, machine, path), len(seen), complete=False)
        for agent, flight, piece in moves:
            following = machine.clone()
            step = _step_text(machine, agent, flight, piece)
            try:
                if agent == NONE:
                    following.land(flight, piece)
                else:
                    following.perform(agent)
            except MistakeFoundError as found:
                return Found(_with_way(found.mistake, program, machine, (path, step)), len(seen), complete=False)
            key = following.key()
            if key not in seen:
                if len(seen) >= most_states:
                    return Found(None, len(seen), complete=False)
                seen.add(key)
                waiting.append((following, (path, step)))
    return Found(None, len(seen), complete=True)


def _moves(machine: Machine) -> list[tuple[int, int, int]]:
    """(agent, NONE, 0) or (NONE, flight, piece) for all that can happen next; one alone where its place changes nothing."""
    found = []
    for agent in range(machine.agents):
        if machine.left[agent] or not machine.enabled(agent):
            continue
        action = machine.current(agent)
        if action is not None and (action.op in _ALONE or (action.op == "commit" and action.choice)):
            return [(agent, NONE, 0)]
        found.append((agent, NONE, 0))
    pieces = [(NONE, flight, piece) for flight in machine.flights if (piece := machine.piece_of(flight))]
    return found + [(NONE, flight, 0) for flight in machine.flights] + pieces


def _step_text(machine: Machine, agent: int, flight: int, piece: int) -> str:
    program = machine.program
    if agent == NONE:
        under_way = machine.flights[flight]
        return flight_text(program, under_way._replace(amount=piece) if piece else under_way)
    action = machine.current(agent)
    return f"{program.agents[agent].name}: {'leaves' if action is None else action_text(program, action)}"


def _with_way(mistake: Mistake, program: Program, machine: Machine, path: Any) -> Mistake:
    """The mistake with the steps that led to it, and where everyone then stands."""
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(step)
    return with_way(mistake, program, machine, steps[::-1])


def with_way(mistake: Mistake, program: Program, machine: Machine, steps: list[str]) -> Mistake:
    """The mistake with a way into it; for a hang, what every role waits for stands at its end."""
    ends = []
    if mistake.outcome == "hang":
        for agent in range(machine.agents):
            action = machine.current(agent)
            if action is not None and not machine.enabled(agent):
                ends.append(f"{program.agents[agent].name}: {action_text(program, action)}: never passes")
    return replace(mistake, way=(*steps, *ends))
