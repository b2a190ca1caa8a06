"""What the roles of a pipeline do, one action after another, as the interpreter on the card sees it.

    {loop = "i", count = 2, steps = [{arrive = "f[i]"}]}    ──▶   arrive barrier 0, arrive barrier 1

This unrolling is the suite's own: with the simulation that it is held against it shares the grammar, and no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from tilescope.arithmetic import ceil_div
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.expression import Expression, reference
from tilescope.pipeline.operations import OPERATIONS, Argument, Written
from tilescope.pipeline.parts import Barrier, Loop, Slot, Step
from tilescope.swizzle import CHUNK_BYTES
from tilescope.sync.thread_limits import WARP_THREADS

_MAX_ROUNDS = 6000  # of a loop


class NotRunnableError(Exception):
    """The interpreter cannot run this pipeline, or it would fault; the text gives the reason."""


class Action(NamedTuple):
    """A step with all its numbers: barriers and slots are numbers in a block."""

    op: str
    targets: tuple[Any, ...]  # numbers, or the word that it is
    arguments: Mapping[str, Any]  # likewise; None: it is left out

    def ranks(self, own: int) -> list[int]:
        """The blocks that it acts on."""
        mask = self.arguments["mask"]
        return [own] if mask is None else [rank for rank in range(32) if mask >> rank & 1]


class Agent(NamedTuple):
    """One group of a role's threads in one block."""

    title: str
    block: int
    threads: int
    warps: int
    actions: tuple[Action, ...]


class Part(NamedTuple):
    """One stage of a barrier or of a slot: its name, and its count or bytes."""

    name: str
    size: int


def unroll_pipeline(pipeline: Pipeline) -> list[Agent]:
    """The agents of a pipeline with everything they do, block by block.

    >>> steps = [{"loop": "i", "count": 2, "steps": [{"arrive": "f[i]"}]}]
    >>> data = {"barriers": {"f": {"count": 1, "stages": 2}}, "roles": [{"name": "p", "steps": steps}]}
    >>> [action.targets for action in unroll_pipeline(Pipeline.from_dict(data))[0].actions]
    [(0,), (1,)]
    """
    agents = []
    for block in range(pipeline.blocks):
        for role in pipeline.roles:
            if role.mask is not None and not role.mask >> block & 1:
                continue
            for instance in range(role.instances):
                y, x = divmod(block, pipeline.cluster[0])
                names = {"rank": block, "x": x, "y": y, "instance": instance, "blocks": pipeline.blocks}
                actions = tuple(_actions(pipeline, role.steps, {**pipeline.constants, **names}))
                title = f"{role.name} {instance} of block {block}"
                agents.append(Agent(title, block, role.threads, ceil_div(role.threads, WARP_THREADS), actions))
    return agents


def _actions(pipeline: Pipeline, steps: Sequence[Step | Loop], names: dict[str, int]) -> Iterator[Action]:
    for step in steps:
        if isinstance(step, Loop):
            start = _value(step.start, names)
            count = _value(step.count, names)
            for value in range(start, start + min(count, _MAX_ROUNDS)):
                yield from _actions(pipeline, step.steps, names | {step.counter: value})
        elif step.when is None or _value(step.when, names):
            yield _action(pipeline, step, names)


def _action(pipeline: Pipeline, step: Step, names: dict[str, int]) -> Action:
    row = OPERATIONS[step.op]
    targets: list[Written] = []
    for target in step.targets:
        targets += _numbers(pipeline, row.target, target, names)
    arguments: dict[str, Written | None] = {"mask": None}
    for argument in row.arguments:
        value = step.arguments.get(argument.name, argument.default)
        if value is None or value == "":
            arguments[argument.name] = None
        else:
            arguments[argument.name] = _numbers(pipeline, argument, value, names)[0]
    return Action(step.op, tuple(targets), arguments)


def _numbers(pipeline: Pipeline, argument: Argument, value: Written, names: Mapping[str, int]) -> Sequence[Written]:
    """What a target or an argument means: numbers, or the word that it is."""
    if argument.kind in ("flag", "choice") or value in argument.choices:
        return [value]
    if argument.kind not in ("barriers", "barrier", "slot"):
        return [_value(value, names)]
    rows: Sequence[Barrier | Slot] = pipeline.slots if argument.kind == "slot" else pipeline.barriers
    name, index = reference(argument.name, value)
    place = next(place for place, row in enumerate(rows) if row.name == name)
    first = sum(row.stages for row in rows[:place])
    of_row = rows[place].stages
    if argument.kind == "barriers":
        return range(first, first + of_row)
    stage = _value(index, names)
    if not 0 <= stage < of_row:
        raise NotRunnableError(f"there is no {name}[{stage}]")
    return [first + stage]


def _value(written: Written, names: Mapping[str, int]) -> int:
    return _expression(written, tuple(names)).value(names)


@lru_cache(maxsize=4096)
def _expression(written: Written, names: tuple[str, ...]) -> Expression:
    return Expression.read("expression", written, names)


def stages(rows: Sequence[Barrier | Slot]) -> list[Part]:
    """Every stage of barriers or slots, in the order of their numbers."""
    return [
        Part(f"{row.name}[{stage}]", row.count if isinstance(row, Barrier) else row.bytes)
        for row in rows
        for stage in range(row.stages)
    ]


def copied_bytes(action: Action) -> int:
    """The bytes that a copy brings: those of all its lanes; a bulk copy's size is cut to whole chunks."""
    lanes = action.arguments.get("lanes") or 1
    size: int = action.arguments["bytes"] // CHUNK_BYTES * CHUNK_BYTES
    return lanes * size


def meeting_threads(agents: Sequence[Agent], agent: Agent, action: Action) -> int:
    """The threads that a bar.sync counts: those it says, or all of the block."""
    stated: int = action.arguments["threads"]
    return stated or sum(WARP_THREADS * each.warps for each in agents if each.block == agent.block)
