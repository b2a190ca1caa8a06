"""Long loops, proven by a short run: a state that comes back, all counts moved on alike, comes back for ever.

    i = 0 … 191     192 … 215     216 … 239     240 … 9999
    warm up         one round  =  the same round, 24 steps later  ──▶  so are all rounds until the loop ends

A run against the nominal clock depends on its state alone. So where the state after a round of P steps equals that
before it, with every clock, phase and tile counted from the moment, further rounds repeat it, and a loop of N steps ends as
one of N - m P does. P is a period of every expression in the loops.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tilescope.errors import RuleError
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.execution import Run
from tilescope.pipeline.expression import Expression, reference
from tilescope.pipeline.machine import Machine
from tilescope.pipeline.memory import Clock
from tilescope.pipeline.parts import Loop, Role, Step
from tilescope.pipeline.program import NONE, Agent, Program, agent_names
from tilescope.pipeline.reader import SELF_NAMES

_LONGEST_PERIOD = 128
_WARM_UP_ROUNDS = 8
_WARM_UP_STEPS = 96  # until the fences that are remembered all lie in the loop
_SHORT_LOOP = 256  # steps that are simply run
_ROUNDS = 4  # a recurrence may take 1, 2 or 4 rounds
_TEXTS = ("parity", "bytes", "count", "mask", "barrier_rank", "pending", "threads")


class Shortened(NamedTuple):
    """A pipeline with its long loops cut, and what was cut."""

    pipeline: Pipeline
    steps: int  # left of each long loop
    cut: int
    period: int
    loops: dict[str, int]  # role: which of its steps is the long loop


def shortened(pipeline: Pipeline) -> Shortened | None:
    """The pipeline with its long loops cut by whole rounds, or None where that is not worth it or not known to be the same."""
    pipeline = _with_numbers(pipeline)
    loops = [loop for role in pipeline.roles if (loop := _long_loop(role)) is not None]
    counts = {(loop.count, loop.start) for loop in loops}
    if len(counts) != 1:
        return None
    (count, start) = counts.pop()
    period = _period(pipeline, count, start)
    if period is None:
        return None
    modulus = period * _ROUNDS
    cut = (count - max(period * _WARM_UP_ROUNDS, _WARM_UP_STEPS)) // modulus * modulus
    if cut < modulus:
        return None
    roles = tuple(_with_count(role, count - cut) for role in pipeline.roles)
    places = {role.name: role.steps.index(loop) for role in pipeline.roles if (loop := _long_loop(role)) is not None}
    return Shortened(replace(pipeline, roles=roles), count - cut, cut, period, places)


def _with_numbers(pipeline: Pipeline) -> Pipeline:
    """The pipeline with the bounds of its outer loops as numbers, where constants give them."""

    def bound(given: Any) -> Any:
        try:
            return Expression.read("count", given, pipeline.constants).value(pipeline.constants)
        except RuleError:  # it depends on the block
            return given

    roles = [
        replace(role, steps=tuple(
            replace(step, count=bound(step.count), start=bound(step.start)) if isinstance(step, Loop) else step for step in role.steps
        ))
        for role in pipeline.roles
    ]  # fmt: skip
    return replace(pipeline, roles=tuple(roles))


def _long_loop(role: Role) -> Loop | None:
    """The one long loop of a role, if it stands at the top and holds no other."""
    found = [
        step
        for step in role.steps
        if isinstance(step, Loop) and isinstance(step.count, int) and step.count > _SHORT_LOOP
    ]
    if len(found) != 1 or not isinstance(found[0].start, int) or any(isinstance(each, Loop) for each in found[0].steps):
        return None
    return found[0]


def _with_count(role: Role, count: int) -> Role:
    loop = _long_loop(role)
    if loop is None:
        return role
    return replace(role, steps=tuple(replace(loop, count=count) if step is loop else step for step in role.steps))


def _period(pipeline: Pipeline, count: int, start: int) -> int | None:
    """The smallest period of all expressions in the long loops; tiles must count up instead."""
    columns: dict[tuple[str, tuple[int, ...]], Any] = {}
    for agent in Program(pipeline).agents:
        loop = _long_loop(agent.role)
        if loop is None:
            continue
        names = {**agent_names(pipeline, agent), loop.counter: start}
        for step in loop.steps:
            assert isinstance(step, Step)
            if "tile" in step.arguments and str(step.arguments["tile"]).strip() != loop.counter:
                return None
            for text in _texts(step):
                expression = Expression.read(step.op, text, names)
                used = () if expression.code is None else expression.code.co_names
                if loop.counter not in used:
                    continue
                key = (expression.text, tuple(names[each] for each in used if each in SELF_NAMES))
                if key not in columns:
                    values = dict(names)
                    columns[key] = np.array(
                        [_set(values, loop.counter, i, expression) for i in range(start, start + count)]
                    )
    for period in range(1, _LONGEST_PERIOD + 1):
        if all(np.array_equal(column[period:], column[:-period]) for column in columns.values()):
            return period
    return None


def _set(names: dict[str, int], counter: str, value: int, expression: Expression) -> int:
    names[counter] = value
    return expression.value(names)


def _texts(step: Step) -> list[Any]:
    """The expressions of a step that may depend on a loop's counter, its tile apart."""
    found = [step.arguments[name] for name in _TEXTS if name in step.arguments]
    if step.when is not None:
        found.append(step.when)
    if step.op in ("sync", "bar_arrive", "registers"):
        return [*found, step.target]
    targets = step.target if isinstance(step.target, tuple) else (step.target,)
    named = (*targets, *(step.arguments[name] for name in ("barrier", "into") if step.arguments.get(name)))
    return [*found, *(reference(step.op, each)[1] for each in named if "[" in each)]


class Watch:
    """Compares the state of a run at every round of a long loop with those before."""

    def __init__(self, program: Program, short: Shortened) -> None:
        self.period = short.period
        self.places = [
            _place(program, agent, short.loops[agent.role.name], short.period)
            if agent.role.name in short.loops
            else None
            for agent in program.agents
        ]
        self.leader = next(number for number, place in enumerate(self.places) if place is not None)
        self.ends = short.steps // short.period
        self.seen: dict[bytes, int] = {}
        self.recurs = False
        self.actions_per_round = sum(place[1] for place in self.places if place is not None)

    def __call__(self, run: Run, agent: int) -> None:
        """Look at the state when the leading agent begins a round."""
        place = self.places[self.leader]
        if agent != self.leader or self.recurs or place is None:
            return
        first, length = place
        done = run.machine.pc[agent] - first
        if done < 0 or done % length or done // length >= self.ends:
            return
        state = self._state(run, done // length)
        if state is None:
            return
        before = self.seen.setdefault(state, done // length)
        self.recurs = before < done // length and _ROUNDS % (done // length - before) == 0

    def _state(self, run: Run, rounds: int) -> bytes | None:
        """All that the future depends on, counted from now; None while some agent is not in its loop."""
        machine = run.machine
        positions = []
        for agent, place in enumerate(self.places):
            if place is None:
                positions.append((machine.pc[agent], machine.left[agent]))
                continue
            done = machine.pc[agent] - place[0]
            if machine.left[agent] or not 0 <= done < self.ends * place[1]:
                return None
            positions.append((done - rounds * place[1], False))
        return pickle.dumps((positions, _machine_state(machine, rounds * self.period), _queue_state(run)))


def _place(program: Program, agent: Agent, at: int, period: int) -> tuple[int, int]:
    """The number of the first action of an agent's long loop, step `at` of its role, and the actions of a round."""
    loop = agent.role.steps[at]
    assert isinstance(loop, Loop)
    lengths = [
        sum(1 for _ in program.actions(agent._replace(role=replace(agent.role, steps=steps))))
        for steps in (agent.role.steps[:at], (replace(loop, count=period),))
    ]
    return lengths[0], lengths[1]


def _machine_state(machine: Machine, tiles: int) -> Any:
    barriers, meetings = machine.barriers, machine.meetings
    now = np.zeros(machine.width, np.int64)
    now[: machine.agents] = [clock[agent] for agent, clock in enumerate(machine.clock)]
    now[machine.agents : machine.agents + len(barriers.phase)] = barriers.phase
    for key, meeting in meetings.all.items():
        now[meetings.place(key)] = meeting.generation

    def since(clock: Clock | None) -> bytes | None:
        return None if clock is None else (clock - now).tobytes()

    def tile(number: int | None) -> int | None:
        return None if number is None else number - tiles

    def fill(counted: tuple[int, int] | None) -> tuple[int, int] | None:
        return (
            None
            if counted is None
            else (counted[0], counted[1] - (barriers.phase[counted[0]] if counted[0] >= 0 else 0))
        )

    memory, last = machine.memory, machine.next_number
    accesses = [
        [
            (
                each.agent, each.time - int(now[each.agent]), each.write, each.how, fill(each.fill),
                None if each.key is None else last - each.key,
                [(place, value - int(now[place])) for place, value in memory.finished.get(each.key or 0, ())],
            )
            for each in group
        ]
        for group in memory.accesses
    ]  # fmt: skip
    counted = [
        (
            barriers.pending[number], barriers.tx[number], barriers.phase[number] % 2, barriers.expected[number],
            since(barriers.gathered[number]), since(barriers.released[number]),
            [[(agent, time - int(now[agent])) for agent, time in each] for each in (barriers.raised[number], barriers.passed[number])],
        )
        for number in range(len(barriers.phase))
    ]  # fmt: skip
    standing = any(at != NONE for at in (*meetings.arrived_at, *meetings.cluster_at))
    met = [
        (key, each.arrived, since(each.clock), since(each.done) if standing else b"")
        for key, each in sorted(meetings.all.items())
    ]
    flights = [
        (
            last - flight.number, flight.op, flight.barrier, flight.amount, flight.slot, flight.agent, since(flight.clock),
            [last - key for key in flight.keys if memory.alive(key)], tile(flight.tile),
        )
        for flight in machine.flights.values()
    ]  # fmt: skip
    groups = [
        (key, [last - each for each in opened], [[last - each for each in group] for group in closed])
        for key, (opened, closed) in sorted(machine.groups.items())
    ]
    fences = [
        [[time - int(now[agent]) for time in times] for agent, times in enumerate(kind)]
        for kind in (memory.proxy_fences, memory.before_fences)
    ]
    return (
        [since(clock) for clock in machine.clock], counted, accesses, [tile(each) for each in memory.content], flights, groups, fences,
        [since(clock) for clock in (*memory.proxy_clock, *memory.after_clock)],
        [[last - key for key in keys if memory.alive(key)] for keys in machine.mma],
        met, meetings.arrived_at, meetings.cluster_at, machine.registers, machine.pool,
        sorted((key, value - int(now[key[1]])) for key, value in machine.remote.items()),
        sorted((key, phase - barriers.phase[key[1]]) for key, phase in barriers.last_pass.items()),
    )  # fmt: skip


def _queue_state(run: Run) -> Any:
    last = run.machine.next_number
    queue = [
        (tick - run.tick, agent, last - flight if flight >= 0 else flight)
        for tick, _, agent, flight in sorted(run.queue)
    ]
    parked = sorted((on, agents) for on, agents in run.parked.items() if agents)
    return queue, parked, [max(0, busy - run.tick) for busy in run.busy_until]
