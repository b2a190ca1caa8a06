"""Long loops, proven by a short run: a state that comes back, all counts moved on alike, comes back for ever.

    i = 0 … 191     192 … 215     216 … 239     9760 … 9999
    warm up         one round  =  the same round, 24 steps later  ──▶  so are all rounds until the loop ends

A run against the nominal clock depends on its state alone. So where the state after a round of P steps equals that
before it, with every clock, phase and tile counted from the moment, further rounds repeat it, and a loop of N steps ends as
one does in which m P steps in the middle are left out. P is a period of every expression in the loops. The steps that are
left count on with their own numbers, so what comes after the loop finds the tiles of its last steps.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.pipeline.description import SELF_NAMES, Pipeline
from tilescope.pipeline.expression import Expression, reference
from tilescope.pipeline.instances import Agent
from tilescope.pipeline.operations import Written
from tilescope.pipeline.parts import Loop, Step
from tilescope.pipeline.role_program import Program, agent_names, loop_values
from tilescope.sync.all_orders.action import NONE, Key
from tilescope.sync.all_orders.clocks_from_now import ClocksFromNow
from tilescope.sync.all_orders.search import Run

_LONGEST_PERIOD = 128
_WARM_UP_ROUNDS = 6
_WARM_UP_STEPS = 96
_SHORT_LOOP = 256  # steps that are simply run
_ROUNDS = 2  # a recurrence may take 1 or 2 rounds


class _LongLoop(NamedTuple):
    """A long loop of an agent's role: where it stands in the role, the values of its counter, and the names known there."""

    role: str
    place: int
    loop: Loop
    values: range
    names: dict[str, int]


def shortened(pipeline: Pipeline) -> Shortened | None:
    """The pipeline with its long loops cut by whole rounds; None if no loop is long, or the cut may change the verdict."""
    loops = list(_loops(pipeline))
    long = [loop for loop in loops if len(loop.values) > _SHORT_LOOP]
    places = {loop.role: loop.place for loop in long}
    if not long or any(loop.values != long[0].values or loop.place != places[loop.role] for loop in long):
        return None  # no long loop, unequal ones, or two in a role
    values = long[0].values
    of_all_blocks = [loop for loop in loops if places.get(loop.role) == loop.place]
    if any(loop.values != values for loop in of_all_blocks):  # shorter in some block
        return None
    period = _period(of_all_blocks, values)
    if not period:
        return None
    modulus = period * _ROUNDS
    cut = (len(values) - max(period * _WARM_UP_ROUNDS, _WARM_UP_STEPS)) // modulus * modulus
    return Shortened(pipeline, places, len(values) - cut, period, cut) if cut > 0 else None


def _loops(pipeline: Pipeline) -> Iterator[_LongLoop]:
    """The outermost loops of all agents."""
    for agent in Program(pipeline).agents:
        names = agent_names(pipeline, agent)
        for place, step in enumerate(agent.of.steps):
            if isinstance(step, Loop):
                yield _LongLoop(agent.of.name, place, step, loop_values(step, names), names)


class _Text(NamedTuple):
    """An expression of a step, and whether `rank` in it is the rank of a block that receives a copy."""

    written: Written
    is_of_receiver: bool = False


class _Use(NamedTuple):
    """An expression that depends on a loop's counter, with the values of the other names."""

    expression: Expression
    names: dict[str, int]

    @property
    def key(self) -> tuple[str, tuple[int, ...]]:
        """Equal for two uses that give the same numbers: the text, and what it uses of what a role knows of itself."""
        assert self.expression.code is not None
        used = self.expression.code.co_names
        return self.expression.text, tuple(self.names[name] for name in used if name in SELF_NAMES)


def _period(loops: Iterable[_LongLoop], values: range) -> int:
    """The smallest period of all expressions in the long loops, or 0; tiles must count up instead."""
    columns: dict[tuple[str, tuple[int, ...]], npt.NDArray[np.int64]] = {}
    for long in loops:
        counter = long.loop.counter
        for step in long.loop.steps:
            if isinstance(step, Loop) or str(step.arguments.get("tile", counter)).strip() != counter:
                return 0
            for use in _uses(step, long):
                if use.key not in columns:
                    numbers = [use.expression.value(use.names | {counter: value}) for value in values]
                    columns[use.key] = np.array(numbers)
    for period in range(1, _LONGEST_PERIOD + 1):
        if all(np.array_equal(column[period:], column[:-period]) for column in columns.values()):
            return period
    return 0


def _uses(step: Step, long: _LongLoop) -> Iterator[_Use]:
    """The expressions of a step that depend on the loop's counter; those of receivers for every block that may be one."""
    names = long.names | {long.loop.counter: 0}
    for text in _texts(step):
        expression = Expression.read(step.op, text.written, names)
        if expression.code is None or long.loop.counter not in expression.code.co_names:
            continue
        ranks = range(names["blocks"]) if text.is_of_receiver else [names["rank"]]
        for rank in ranks:
            yield _Use(expression, names | {"rank": rank})


def _texts(step: Step) -> Iterator[_Text]:
    """The expressions of a step, its tile apart."""
    for argument, value in step.values():
        if argument.kind in ("number", "bar") and argument.name != "tile" and value != "":
            yield _Text(value, is_of_receiver=argument.name == "barrier_rank")
        elif argument.kind in ("barrier", "slot", "counter") and "[" in str(value):
            yield _Text(reference(argument.name, value).stage)
    if step.when is not None:
        yield _Text(step.when)


class Shortened(Run):
    """The run of a pipeline with its long loops cut; compares its state at every round of them with those before.

    The last round comes after the cut, with the counters that it has in the whole loop.
    """

    def __init__(self, pipeline: Pipeline, loops: Mapping[str, int], steps: int, period: int, cut: int) -> None:
        before = steps - period  # steps before the cut
        long = [role.steps[loops[role.name]] for role in pipeline.roles if role.name in loops]
        super().__init__(Program(pipeline, left_out={id(loop): range(before, before + cut) for loop in long}))
        self.steps = steps  # that are left of every long loop
        self.period = period  # steps of a round
        self.places: dict[int, _LoopPlace] = {}  # agents that act in a long loop
        whole = Program(pipeline)
        for number, agent in enumerate(whole.agents):
            if agent.of.name in loops:
                place = self._place(whole, agent, loops[agent.of.name])
                if place.actions:
                    self.places[number] = place
        self.leader = min(self.places, default=NONE)
        self.ends = before // period  # rounds before the cut
        self.seen: dict[bytes, int] = {}
        self.first_round: list[_Counted] = []  # of barriers, when it began
        self.rounds_seen = 0
        self.recurs = False
        self.actions_cut = cut // period * sum(place.actions for place in self.places.values())

    def _place(self, whole: Program, agent: Agent, at: int) -> _LoopPlace:
        steps = agent.of.steps
        loop = steps[at]
        assert isinstance(loop, Loop)
        one_round = replace(loop, count=self.period)
        first = _actions_in(steps[:at], whole, agent)
        return _LoopPlace(first, _actions_in((one_round,), whole, agent))

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

    def _relative(self, key: Key) -> Key:
        """A key whose action is counted from where its agent stands."""
        agent, place, number = key
        return agent, place - self.machine.pc[agent], number

    def _state(self, rounds: int) -> bytes | None:
        """All that the future depends on, counted from now; None while some agent is not in its loop."""
        machine = self.machine
        positions = []
        for agent, (pc, left) in enumerate(zip(machine.pc, machine.left, strict=True)):
            first, length = self.places.get(agent, (0, 0))
            if agent in self.places and (left or not 0 <= pc - first < self.ends * length):
                return None
            positions.append((pc - first - rounds * length, left))
        barriers = [
            _Counted(phase, len(notes), passed)
            for phase, notes, passed in zip(machine.phase, machine.notes, self.clocks.passed, strict=True)
        ]
        self.first_round = self.first_round or barriers
        unused = [now == first for now, first in zip(barriers, self.first_round, strict=True)]
        queue = [
            (due.tick - self.tick, due.agent, None if due.agent != NONE else self._relative(due.flight))
            for due in sorted(self.queue)
        ]
        parked = sorted((barrier, agents) for barrier, agents in self.parked.items() if agents)
        busy = [max(0, until - self.tick) for until in self.busy_until]
        known = ClocksFromNow(self.clocks, machine.phase, machine.pc).parts(unused)
        state = machine.relative(rounds * self.period, unused)
        return pickle.dumps((positions, known, state, queue, parked, busy))


def _actions_in(steps: tuple[Step | Loop, ...], program: Program, agent: Agent) -> int:
    """The number of actions that an agent does in some steps."""
    doing_these = agent._replace(of=replace(agent.of, steps=steps))
    return sum(1 for _ in program.actions(doing_these))


class _Counted(NamedTuple):
    """What a barrier has counted: unused in a round that changes none of it."""

    phase: int
    notes: int
    passed: dict[int, int]


class _LoopPlace(NamedTuple):
    """Where an agent's long loop lies: its first action, and the actions of a round."""

    first: int
    actions: int
