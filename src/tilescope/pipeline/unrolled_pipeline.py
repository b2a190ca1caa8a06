"""A pipeline unrolled: every loop run and every expression evaluated, so that each role is a sequence of actions.

{loop = "i", count = 2, steps = [{wait = "full[i % 4]", parity = 0}]}    ──▶   wait full[0] 0,  wait full[1] 0

`UnrolledPipeline.role_program` is what the search over all orders executes: plain values, without the description.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import NamedTuple, TypeAlias

from tilescope.errors import RuleError, argument_range
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.expression import Expression
from tilescope.pipeline.instances import Agent, Instances
from tilescope.pipeline.parts import Loop, Step
from tilescope.pipeline.step_reading import ActionMaker, Names, StepReader
from tilescope.sync.role_events import Action, FlagPoll
from tilescope.sync.role_program import Agent as RoleAgent
from tilescope.sync.role_program import BarrierInstance, RoleProgram, SlotInstance

MAX_ROUNDS = 1 << 24  # of a loop


class _PreparedStep(NamedTuple):
    """When a step is done, and what makes its action."""

    when: Expression
    make_action: ActionMaker


_PreparedSteps: TypeAlias = dict[int, _PreparedStep]  # by the id of a step


class UnrolledPipeline(Instances):
    """The agents of a pipeline, each a role in a block, their actions, and the barriers and slots that these name."""

    def __init__(self, pipeline: Pipeline, skipped_rounds: Mapping[int, range] | None = None) -> None:
        super().__init__(pipeline)
        self._skipped_rounds = skipped_rounds or {}  # id of a loop: the numbers of the rounds that are not run
        self._thresholds = self._find_thresholds() if pipeline.flags else {}

    @cached_property
    def role_program(self) -> RoleProgram:
        """The same as plain values, which a search executes."""
        pipeline = self.pipeline
        steps = [step for role in pipeline.roles for step in role.all_steps()]
        launches = [any(map(_launches, role.all_steps())) for role in pipeline.roles if role.earlier]
        return RoleProgram(
            agents=[self._role_agent(agent) for agent in self.agents],
            barriers=[
                BarrierInstance(barrier.row_name, barrier.home, self.counts[number] if number < self.mbarriers else 0)
                for number, barrier in enumerate(self.barriers)
            ],
            slots=[SlotInstance(slot.of.name, slot.home, slot.of.bytes, slot.of.space) for slot in self.slots],
            blocks=self.blocks,
            cluster_blocks=pipeline.blocks,
            mbarriers=self.mbarriers,
            cluster=self.cluster,
            first_flag=self.first_flag,
            grid=self.grid,
            registers=pipeline.registers or 0,
            thresholds=self._thresholds,
            initialises=any(step.op == "init" for step in steps),
            invalidates=any(step.op == "inval" for step in steps),
            has_weak_arrivals=any(
                step.arguments.get("scope") == "cta" or step.arguments.get("relaxed") for step in steps
            ),
            has_split_arrivals=any(map(self._arrives_beyond, steps)),
            # unless all roles of the earlier grid let this one start sooner
            starts_late=bool(launches) and not all(launches),
            is_measured=pipeline.basis == "measured",
        )

    def _arrives_beyond(self, step: Step) -> bool:
        """Whether threads arrive behind cp.async in numbers of which a count is no multiple, and the card decides."""
        if self.pipeline.basis != "measured" or step.op != "cp_arrive" or not step.arguments.get("noinc"):
            return False
        name = str(step.target).partition("[")[0]
        arrivals = step.arguments.get("count", 1)
        counts = [barrier.count for barrier in self.pipeline.barriers if barrier.name == name]
        return not isinstance(arrivals, int) or any(count % arrivals for count in counts)

    def _role_agent(self, agent: Agent) -> RoleAgent:
        role = agent.of
        return RoleAgent(
            role=role.name,
            home=agent.home,
            warps=role.warps,
            actions=partial(self.actions, agent),
            is_earlier=role.earlier,
            fills_slots=any(step.op in ("copy", "write") for step in role.all_steps()),
        )

    def _find_thresholds(self) -> dict[int, list[int]]:
        """The values, in order, for which some role polls a flag."""
        polled: dict[int, set[int]] = {}
        for agent in self.agents:
            for action in self.actions(agent):
                if isinstance(action, FlagPoll) and action.value:
                    polled.setdefault(action.barriers[0], set()).add(action.value)
        return {flag: sorted(values) for flag, values in polled.items()}

    def actions(self, agent: Agent) -> Iterator[Action]:
        """The actions of an agent, one after another."""
        return self._unroll(StepReader(self, agent), agent.of.steps, agent_names(self.pipeline, agent), {})

    def _unroll(
        self, reader: StepReader, steps: Sequence[Step | Loop], names: dict[str, int], prepared: _PreparedSteps
    ) -> Iterator[Action]:
        for step in steps:
            if isinstance(step, Loop):
                for value in self._counter_values(step, names):
                    yield from self._unroll(reader, step.steps, names | {step.counter: value}, prepared)
                continue
            if id(step) not in prepared:
                when = Expression.read("when", 1 if step.when is None else step.when, names)
                prepared[id(step)] = _PreparedStep(when, reader.action_maker(step, names))
            when, make_action = prepared[id(step)]
            if when.value(names):
                yield make_action(names)

    def _counter_values(self, loop: Loop, names: Names) -> Iterable[int]:
        values = loop_values(loop, names)
        skipped = self._skipped_rounds.get(id(loop))
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
