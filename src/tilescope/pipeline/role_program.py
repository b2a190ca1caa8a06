"""A pipeline's steps with every loop run and every expression worked out: what each role does, one action after another.

{loop = "i", count = 2, steps = [{wait = "full[i % 4]", parity = 0}]}    ──▶   wait full[0] 0,  wait full[1] 0
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

from tilescope.errors import RuleError, argument_range
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.expression import Expression
from tilescope.pipeline.instances import Agent, Instances
from tilescope.pipeline.parts import Loop, Step
from tilescope.pipeline.step_reading import ActionMaker, Names, StepReader
from tilescope.sync.all_orders.action import Action

MAX_ROUNDS = 1 << 24  # of a loop


class _StepRead(NamedTuple):
    """When a step is done, and what makes its action."""

    when: Expression
    action: ActionMaker


_StepsRead: TypeAlias = dict[int, _StepRead]  # by the id of a step


class Program(Instances):
    """The agents of a pipeline, each a role in a block, their actions, and the barriers and slots that these name."""

    def __init__(self, pipeline: Pipeline, left_out: Mapping[int, range] | None = None) -> None:
        super().__init__(pipeline)
        self.left_out = left_out or {}  # id of a loop: the numbers of the rounds that are not run
        steps = [step for role in pipeline.roles for step in role.all_steps()]
        self.initialises = any(step.op == "init" for step in steps)  # otherwise barriers are ready from the start
        # an arrival with scope = "cta" hands no data to another block
        self.has_weak_arrivals = any(step.arguments.get("scope") == "cta" for step in steps)
        launches = [any(map(_launches, role.all_steps())) for role in pipeline.roles if role.earlier]
        # roles of this grid start when the one before has ended, unless all its roles let them start sooner
        self.starts_late = bool(launches) and not all(launches)
        self.thresholds = self._thresholds() if pipeline.flags else {}

    def _thresholds(self) -> dict[int, list[int]]:
        """The values, in order, for which some role polls a flag."""
        polled: dict[int, set[int]] = {}
        for agent in self.agents:
            for action in self.actions(agent):
                if action.op == "poll" and action.number:
                    polled.setdefault(action.barriers[0], set()).add(action.number)
        return {flag: sorted(values) for flag, values in polled.items()}

    def actions(self, agent: Agent) -> Iterator[Action]:
        """What an agent does, one action after another."""
        return self._run(StepReader(self, agent), agent.of.steps, agent_names(self.pipeline, agent), {})

    def _run(
        self, reader: StepReader, steps: Sequence[Step | Loop], names: dict[str, int], read: _StepsRead
    ) -> Iterator[Action]:
        for step in steps:
            if isinstance(step, Loop):
                for value in self._values(step, names):
                    yield from self._run(reader, step.steps, names | {step.counter: value}, read)
                continue
            if id(step) not in read:
                when = Expression.read("when", 1 if step.when is None else step.when, names)
                read[id(step)] = _StepRead(when, reader.action_maker(step, names))
            when, action = read[id(step)]
            if when.value(names):
                yield action(names)

    def _values(self, loop: Loop, names: Names) -> Iterable[int]:
        values = loop_values(loop, names)
        skipped = self.left_out.get(id(loop))
        return values if skipped is None else chain(values[: skipped.start], values[skipped.stop :])


def _launches(step: Step) -> bool:
    return step.op == "griddepcontrol" and step.target == "launch"


def loop_values(loop: Loop, names: Names) -> range:
    """The values that a loop's counter takes."""
    count = Expression.read(loop.counter, loop.count, names).value(names)
    start = Expression.read(loop.counter, loop.start, names).value(names)
    if count > MAX_ROUNDS:
        fix = "Use fewer: a few hundred rounds show what a ring of stages does."
        raise RuleError([argument_range(f"count of {loop.counter}", count, f"at most {MAX_ROUNDS} rounds", fix)])
    return range(start, start + count)


def agent_names(pipeline: Pipeline, agent: Agent) -> dict[str, int]:
    """The values of the names that an agent's expressions may use, loop counters apart: the constants, and SELF_NAMES."""
    y, x = divmod(agent.block, pipeline.cluster[0])
    return {
        **pipeline.constants,
        "rank": agent.block,
        "x": x,
        "y": y,
        "instance": agent.number,
        "blocks": pipeline.blocks,
    }
