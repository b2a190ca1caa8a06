"""Long loops, proven by a short run: a state that comes back, all counts moved on alike, comes back for ever.

    i = 0 … 191     192 … 215     216 … 239     240 … 9999
    warm up         one round  =  the same round, 24 steps later  ──▶  so are all rounds until the loop ends

A run against the nominal clock depends on its state alone. So where the state after a round of P steps equals that
before it, with every clock, phase and tile counted from the moment, further rounds repeat it, and a loop of N steps ends as
one of N - m P does. P is a period of every expression in the loops.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tilescope.pipeline.description import SELF_NAMES, Pipeline
from tilescope.pipeline.execution import Run
from tilescope.pipeline.parts import Expression, Loop, Role, Step, reference
from tilescope.pipeline.program import NONE, Instance, Program, agent_names, loop_values

_LONGEST_PERIOD = 128
_WARM_UP_ROUNDS = 8
_WARM_UP_STEPS = 96  # until the fences that are remembered all lie in the loop
_SHORT_LOOP = 256  # steps that are simply run
_ROUNDS = 4  # a recurrence may take 1, 2 or 4 rounds


def shortened(pipeline: Pipeline) -> Shortened | None:
    """The pipeline with its long loops cut by whole rounds, or None where that is not worth it or not known to be the same."""
    known = [(agent.of, agent_names(pipeline, agent)) for agent in Program(pipeline).agents]
    long = {
        (role.name, place, values)
        for role, names in known
        for place, step in enumerate(role.steps)
        if isinstance(step, Loop) and len(values := loop_values(step, names)) > _SHORT_LOOP
    }
    loops, counted = {name: place for name, place, _ in long}, {values for *_, values in long}
    if len(counted) != 1 or len(loops) < len(long):  # no long loop, unequal ones, or two in a role
        return None
    values = counted.pop()
    inside = [(role.steps[loops[role.name]], names) for role, names in known if role.name in loops]
    modulus = _period(inside, values) * _ROUNDS
    cut = (len(values) - max(modulus // _ROUNDS * _WARM_UP_ROUNDS, _WARM_UP_STEPS)) // max(modulus, 1) * modulus
    return Shortened(pipeline, loops, len(values) - cut, modulus // _ROUNDS, cut) if cut > 0 else None


def _period(loops: list[tuple[Loop, dict[str, int]]], values: range) -> int:
    """The smallest period of all expressions in the long loops, or 0; tiles must count up instead."""
    columns: dict[tuple[str, tuple[int, ...]], Any] = {}
    for loop, known in loops:
        counter, names = loop.counter, known | {loop.counter: 0}
        for step in loop.steps:
            if isinstance(step, Loop) or str(step.arguments.get("tile", counter)).strip() != counter:
                return 0
            for text in _texts(step):
                expression = Expression.read(step.op, text, names)
                used = () if expression.code is None else expression.code.co_names
                key = (expression.text, tuple(names[name] for name in used if name in SELF_NAMES))
                if counter in used and key not in columns:
                    columns[key] = np.array([expression.value(names | {counter: value}) for value in values])
    fits = (
        period
        for period in range(1, _LONGEST_PERIOD + 1)
        if all(np.array_equal(column[period:], column[:-period]) for column in columns.values())
    )
    return next(fits, 0)


def _texts(step: Step) -> Iterator[Any]:
    """The expressions of a step that may depend on a loop's counter, its tile apart."""
    for argument, value in step.values():
        if argument.kind in ("number", "bar") and argument.name != "tile" and value != "":
            yield value
        elif argument.kind in ("barrier", "slot") and "[" in value:
            yield reference(argument.name, value)[1]
    if step.when is not None:
        yield step.when


class Shortened:
    """A pipeline with its long loops cut; compares the state of its run at every round of them with those before."""

    def __init__(self, pipeline: Pipeline, loops: Mapping[str, int], steps: int, period: int, cut: int) -> None:
        self.steps, self.period = steps, period  # left of every long loop; of a round
        roles = [_with_loop(role, loops[role.name], steps) if role.name in loops else role for role in pipeline.roles]
        self.program = Program(replace(pipeline, roles=tuple(roles)))
        self.places = [
            self._place(agent, loops[agent.of.name]) if agent.of.name in loops else None
            for agent in self.program.agents
        ]
        self.leader = next(number for number, place in enumerate(self.places) if place is not None)
        self.ends = steps // period
        self.seen: dict[bytes, int] = {}
        self.recurs = False
        self.actions_cut = cut // period * sum(place[1] for place in self.places if place is not None)

    def _place(self, agent: Instance, at: int) -> tuple[int, int]:
        """The number of the first action of an agent's long loop, step `at` of its role, and the actions of a round."""
        role = agent.of
        before, after = (
            sum(1 for _ in self.program.actions(agent._replace(of=replace(cut, steps=cut.steps[: at + through]))))
            for cut, through in ((role, 0), (_with_loop(role, at, self.period), 1))
        )
        return before, after - before

    def __call__(self, run: Run, agent: int) -> None:
        """Look at the state when the leading agent begins a round."""
        place = self.places[agent]
        if agent != self.leader or self.recurs or place is None:
            return
        first, length = place
        rounds, inside = divmod(run.machine.pc[agent] - first, length)
        if inside or not 0 <= rounds < self.ends:
            return
        state = self._state(run, rounds)
        if state is not None:
            before = self.seen.setdefault(state, rounds)
            self.recurs = before < rounds and _ROUNDS % (rounds - before) == 0

    def _state(self, run: Run, rounds: int) -> bytes | None:
        """All that the future depends on, counted from now; None while some agent is not in its loop."""
        machine = run.machine
        positions = []
        for pc, left, place in zip(machine.pc, machine.left, self.places, strict=True):
            first, length = place or (0, 0)
            if place is not None and (left or not 0 <= pc - first < self.ends * length):
                return None
            positions.append((pc - first - rounds * length, left))
        queue = [
            (tick - run.tick, agent, flight if flight == NONE else machine.last_key - flight)
            for tick, _, agent, flight in sorted(run.queue)
        ]
        parked = sorted((barrier, agents) for barrier, agents in run.parked.items() if agents)
        busy = [max(0, until - run.tick) for until in run.busy_until]
        return pickle.dumps((positions, machine.relative(rounds * self.period), queue, parked, busy))


def _with_loop(role: Role, at: int, count: int) -> Role:
    """The role whose loop, step `at`, has another count."""
    loop = role.steps[at]
    assert isinstance(loop, Loop)
    return replace(role, steps=(*role.steps[:at], replace(loop, count=count), *role.steps[at + 1 :]))
