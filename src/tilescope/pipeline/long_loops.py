"""Long loops of a pipeline, cut by whole rounds: a short run whose state recurs proves the long one.

    {loop = "i", count = 10000, steps = [{wait = "full[i % 3]", parity = "i / 3 % 2"}, …]}    period 6: 10000 ──▶ 100 steps

P is a period of every expression in the loops. `tilescope.sync.all_orders.recurrence` runs the shortened program and compares
its states, round by round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.pipeline.description import SELF_NAMES
from tilescope.pipeline.expression import Expression, reference
from tilescope.pipeline.instances import Agent
from tilescope.pipeline.operations import Written
from tilescope.pipeline.parts import Loop, Step
from tilescope.pipeline.unrolled_pipeline import UnrolledPipeline, agent_names, loop_values
from tilescope.sync.all_orders.recurrence import MAX_ROUNDS, LoopPlace, ShortenedRun

_LONGEST_PERIOD = 128
_WARM_UP_ROUNDS = 6
_WARM_UP_STEPS = 96
_SHORT_LOOP = 256  # steps that are simply run


class _LongLoop(NamedTuple):
    """A long loop of an agent's role: its place in the role, the values of its counter, and the names known there."""

    role: str
    place: int
    loop: Loop
    values: range
    names: dict[str, int]


def shorten_loops(unrolled: UnrolledPipeline) -> ShortenedRun | None:
    """A run with the long loops cut by whole rounds; None if no loop is long, or the cut may change the verdict."""
    loops = list(_outer_loops(unrolled))
    long = [loop for loop in loops if len(loop.values) > _SHORT_LOOP]
    places = {loop.role: loop.place for loop in long}
    if not long or any(loop.values != long[0].values or loop.place != places[loop.role] for loop in long):
        return None  # no long loop, unequal ones, or two in a role
    values = long[0].values
    of_all_blocks = [loop for loop in loops if places.get(loop.role) == loop.place]
    if any(loop.values != values for loop in of_all_blocks):  # shorter in some block
        return None
    period = _find_period(of_all_blocks, values)
    if not period:
        return None
    modulus = period * MAX_ROUNDS
    cut = (len(values) - max(period * _WARM_UP_ROUNDS, _WARM_UP_STEPS)) // modulus * modulus
    return _shortened_run(unrolled, places, len(values), period, cut) if cut > 0 else None


def _shortened_run(
    unrolled: UnrolledPipeline, loops: dict[str, int], steps: int, period: int, cut: int
) -> ShortenedRun:
    """The run with `cut` of the `steps` of every long loop left out, before the last round."""
    before = steps - cut - period
    pipeline = unrolled.pipeline
    long = [role.steps[loops[role.name]] for role in pipeline.roles if role.name in loops]
    shortened = UnrolledPipeline(pipeline, {id(loop): range(before, before + cut) for loop in long})
    places: dict[int, LoopPlace] = {}
    for number, agent in enumerate(unrolled.agents):
        if agent.of.name in loops:
            place = _loop_place(unrolled, agent, loops[agent.of.name], period)
            if place.actions:
                places[number] = place
    actions_cut = cut // period * sum(place.actions for place in places.values())
    return ShortenedRun(shortened.role_program, places, period=period, rounds=before // period, actions_cut=actions_cut)


def _loop_place(unrolled: UnrolledPipeline, agent: Agent, at: int, period: int) -> LoopPlace:
    steps = agent.of.steps
    loop = steps[at]
    assert isinstance(loop, Loop)
    one_round = replace(loop, count=period)
    return LoopPlace(_count_actions(steps[:at], unrolled, agent), _count_actions((one_round,), unrolled, agent))


def _count_actions(steps: tuple[Step | Loop, ...], unrolled: UnrolledPipeline, agent: Agent) -> int:
    """The number of actions that an agent does in some steps."""
    doing_these = agent._replace(of=replace(agent.of, steps=steps))
    return sum(1 for _ in unrolled.actions(doing_these))


def _outer_loops(unrolled: UnrolledPipeline) -> Iterator[_LongLoop]:
    """The outermost loops of all agents."""
    for agent in unrolled.agents:
        names = agent_names(unrolled.pipeline, agent)
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
        """Equal for two uses that give the same numbers: the text, and the values of the role's own names in it."""
        assert self.expression.code is not None
        used = self.expression.code.co_names
        return self.expression.text, tuple(self.names[name] for name in used if name in SELF_NAMES)


def _find_period(loops: Iterable[_LongLoop], values: range) -> int:
    """The smallest period of all expressions in the long loops, or 0; tiles must count up instead."""
    columns: dict[tuple[str, tuple[int, ...]], npt.NDArray[np.int64]] = {}
    for long in loops:
        counter = long.loop.counter
        for step in long.loop.steps:
            if isinstance(step, Loop) or str(step.arguments.get("tile", counter)).strip() != counter:
                return 0
            for use in _counter_uses(step, long):
                if use.key not in columns:
                    numbers = [use.expression.value(use.names | {counter: value}) for value in values]
                    columns[use.key] = np.array(numbers)
    for period in range(1, _LONGEST_PERIOD + 1):
        if all(np.array_equal(column[period:], column[:-period]) for column in columns.values()):
            return period
    return 0


def _counter_uses(step: Step, long: _LongLoop) -> Iterator[_Use]:
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
