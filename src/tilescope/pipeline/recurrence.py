"""Long loops, proven by a short run: a state that comes back, all counts moved on alike, comes back for ever.

    i = 0 … 191     192 … 215     216 … 239     9760 … 9999
    warm up         one round  =  the same round, 24 steps later  ──▶  so are all rounds until the loop ends

A run against the nominal clock depends on its state alone. So where the state after a round of P steps equals that
before it, with every clock, phase and tile counted from the moment, further rounds repeat it, and a loop of N steps ends as
one does in which m P steps in the middle are left out. P is a period of every expression in the loops. The steps that are
left count on with their own numbers, so what comes behind the loop finds the tiles of its last steps.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tilescope.pipeline.description import SELF_NAMES, Pipeline
from tilescope.pipeline.execution import Run
from tilescope.pipeline.parts import Expression, Loop, Step, reference
from tilescope.pipeline.program import NONE, Instance, Program, agent_names, loop_values

_LONGEST_PERIOD = 128
_WARM_UP_ROUNDS = 6
_WARM_UP_STEPS = 96
_SHORT_LOOP = 256  # steps that are simply run
_ROUNDS = 2  # a recurrence may take 1 or 2 rounds


def shortened(pipeline: Pipeline) -> Shortened | None:
    """The pipeline with its long loops cut by whole rounds, or None where that is not worth it or not known to be the same."""
    known = [(agent.of, agent_names(pipeline, agent)) for agent in Program(pipeline).agents]
    long = {
        (role.name, place, values)
        for role, names in known
        for place, step in enumerate(role.steps)
        if isinstance(step, Loop) and len(values := loop_values(step, names)) > _SHORT_LOOP
    }
    loops, ranges = {name: place for name, place, _ in long}, {values for *_, values in long}
    if len(ranges) != 1 or len(loops) < len(long):  # no long loop, unequal ones, or two in a role
        return None
    values = ranges.pop()
    inside = [(role.steps[loops[role.name]], names) for role, names in known if role.name in loops]
    if any(loop_values(loop, names) != values for loop, names in inside):  # shorter in some block
        return None
    period = _period(inside, values)
    if not period:
        return None
    modulus = period * _ROUNDS
    cut = (len(values) - max(period * _WARM_UP_ROUNDS, _WARM_UP_STEPS)) // modulus * modulus
    return Shortened(pipeline, loops, len(values) - cut, period, cut) if cut > 0 else None


def _period(loops: list[tuple[Loop, dict[str, int]]], values: range) -> int:
    """The smallest period of all expressions in the long loops, or 0; tiles must count up instead."""
    columns: dict[tuple[str, tuple[int, ...]], Any] = {}
    for loop, known in loops:
        counter, names = loop.counter, known | {loop.counter: 0}
        for step in loop.steps:
            if isinstance(step, Loop) or str(step.arguments.get("tile", counter)).strip() != counter:
                return 0
            for text, is_of_receiver in _texts(step):
                expression = Expression.read(step.op, text, names)
                used = () if expression.code is None else expression.code.co_names
                for rank in range(known["blocks"]) if is_of_receiver else (known["rank"],):
                    here = names | {"rank": rank}
                    key = (expression.text, tuple(here[name] for name in used if name in SELF_NAMES))
                    if counter in used and key not in columns:
                        columns[key] = np.array([expression.value(here | {counter: value}) for value in values])
    fits = (
        period
        for period in range(1, _LONGEST_PERIOD + 1)
        if all(np.array_equal(column[period:], column[:-period]) for column in columns.values())
    )
    return next(fits, 0)


def _texts(step: Step) -> Iterator[tuple[Any, bool]]:
    """The expressions of a step that may depend on a loop's counter, its tile apart; whether `rank` is a receiver's there."""
    for argument, value in step.values():
        if argument.kind in ("number", "bar") and argument.name != "tile" and value != "":
            yield value, argument.name == "barrier_rank"
        elif argument.kind in ("barrier", "slot", "counter") and "[" in value:
            yield reference(argument.name, value)[1], False
    if step.when is not None:
        yield step.when, False


class Shortened(Run):
    """The run of a pipeline with its long loops cut; compares its state at every round of them with those before.

    The last round comes behind the cut, with the counters that it has in the whole loop.
    """

    def __init__(self, pipeline: Pipeline, loops: Mapping[str, int], steps: int, period: int, cut: int) -> None:
        before = steps - period  # steps before the cut
        long = [role.steps[loops[role.name]] for role in pipeline.roles if role.name in loops]
        super().__init__(Program(pipeline, left_out={id(loop): range(before, before + cut) for loop in long}))
        self.steps, self.period = steps, period  # left of every long loop; of a round
        self.places = {  # agents that act in a long loop
            number: place
            for number, agent in enumerate(self.machine.program.agents)
            if agent.of.name in loops and (place := self._place(agent, loops[agent.of.name])).actions
        }
        self.leader, self.ends = min(self.places, default=NONE), before // period
        self.seen: dict[bytes, int] = {}
        self.first_round: list[Any] = []  # of barriers: what they had counted when it began
        self.rounds_seen = 0
        self.recurs = False
        self.actions_cut = cut // period * sum(place.actions for place in self.places.values())

    def _place(self, agent: Instance, at: int) -> _LoopPlace:
        role, actions = agent.of, Program(self.machine.program.pipeline).actions
        loop = role.steps[at]
        assert isinstance(loop, Loop)
        one_round = replace(loop, count=self.period)
        first, length = (
            sum(1 for _ in actions(agent._replace(of=replace(role, steps=steps))))
            for steps in (role.steps[:at], (one_round,))
        )
        return _LoopPlace(first, length)

    def proves(self) -> bool:
        """Whether the short run is right, certain of its phases, and repeats itself: so is the long one."""
        return self() is None and not self.clocks.doubts and self.recurs

    def act(self, agent: int) -> None:
        """The same, and look at the state when the leading agent begins a round."""
        super().act(agent)
        if agent != self.leader or self.recurs:
            return
        first, length = self.places[agent]
        rounds, inside = divmod(self.machine.pc[agent] - first, length)
        if inside or not self.rounds_seen <= rounds < self.ends:  # in the midst, or seen already
            return
        self.rounds_seen = rounds + 1
        state = self._state(rounds)
        if state is not None:
            before = self.seen.setdefault(state, rounds)
            self.recurs = before < rounds and _ROUNDS % (rounds - before) == 0

    def _state(self, rounds: int) -> bytes | None:
        """All that the future depends on, counted from now; None while some agent is not in its loop."""
        machine, positions = self.machine, []
        for agent, (pc, left) in enumerate(zip(machine.pc, machine.left, strict=True)):
            first, length = self.places.get(agent, (0, 0))
            if agent in self.places and (left or not 0 <= pc - first < self.ends * length):
                return None
            positions.append((pc - first - rounds * length, left))
        barriers = [*zip(machine.phase, map(len, machine.notes), self.clocks.passed, strict=True)]
        self.first_round = self.first_round or barriers
        unused = [now == first for now, first in zip(barriers, self.first_round, strict=True)]
        queue = [
            (tick - self.tick, agent, None if agent != NONE else (sender, place - machine.pc[sender], number))
            for tick, _, agent, (sender, place, number) in sorted(self.queue)
        ]
        parked = sorted((barrier, agents) for barrier, agents in self.parked.items() if agents)
        busy = [max(0, until - self.tick) for until in self.busy_until]
        known = self.clocks.relative(machine.phase, machine.pc, unused)
        state = machine.relative(rounds * self.period, unused)
        return pickle.dumps((positions, known, state, queue, parked, busy))


class _LoopPlace(NamedTuple):
    """Where an agent's long loop lies: its first action, and the actions of a round."""

    first: int
    actions: int
