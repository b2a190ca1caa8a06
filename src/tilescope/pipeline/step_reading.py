"""From a step to its actions: references and expressions become numbers, once the loop counters have values.

    {wait = "full[i % 4]", parity = 0}   ──▶   a function of i   ──▶   i = 5: wait barrier 1, parity 0

A step of a loop is read once, and its action made in every round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from tilescope.pipeline.expression import Expression, reference
from tilescope.pipeline.instances import Agent, Instances
from tilescope.pipeline.operations import OPERATIONS, Argument, Written
from tilescope.pipeline.parts import Barrier, Flag, Slot, Step
from tilescope.pipeline.pipeline_rules import BARRIER_RANK, MASK_OF_CP_ASYNC, PIPELINE_MASK, PIPELINE_STAGE
from tilescope.swizzle import CHUNK_BYTES
from tilescope.sync.role_program import Action
from tilescope.sync.thread_limits import BARS, MAX_BLOCKS

Names: TypeAlias = Mapping[str, int]  # the values of names
Number: TypeAlias = Callable[[Names], int]
Place: TypeAlias = Callable[[int, Names], int]  # from a block to the number of its barrier or slot
ActionMaker: TypeAlias = Callable[[Names], Action]


@dataclass(slots=True)
class _ReadStep:
    """A step as it was read: its numbers and places depend on the values of names."""

    numbers: dict[str, Number] = field(default_factory=dict)  # by the field of an Action that they become
    places: dict[str, list[Place]] = field(default_factory=lambda: defaultdict(list))  # likewise
    choice: str = ""
    scope: str = ""
    flag: bool = False


class _Numbering(NamedTuple):
    """How the stages of a barrier, slot or flag are numbered through all blocks."""

    stages: int
    first: int  # number of stage 0 in block 0
    per_block: int  # from a block's number to that of the next block; 0: all blocks share the stages


class StepReader:
    """Reads the steps of one agent."""

    def __init__(self, instances: Instances, agent: Agent) -> None:
        self.instances = instances
        self.agent = agent
        self.blocks = instances.pipeline.blocks
        self.first_block = agent.home - agent.block  # of its grid

    def action_maker(self, step: Step, names: Names) -> ActionMaker:
        """A function from the values of names to the action of a step."""
        parts = self._read(step, names)
        number = parts.numbers.get("number", _zero)
        times = parts.numbers.get("times", _one)
        mask = parts.numbers.get("mask")
        owner = parts.numbers.get("owner")
        tile = parts.numbers.get("tile")
        offset = parts.numbers.get("offset")
        barriers = [*parts.places["barriers"], *self._barriers_of_threads(step.op, number)]
        slots = parts.places["slots"]
        into = parts.places["into"]
        sources = parts.places["sources"]
        own_rank = (self.agent.home,)
        by_chunks = step.op == "copy" and parts.choice == "bulk"
        unit_bytes = CHUNK_BYTES if by_chunks else 1  # a bulk copy moves whole chunks

        def action(values: Names) -> Action:
            bits = 0 if mask is None else mask(values)
            ranks = own_rank if mask is None else self._ranks(bits, parts.choice)
            owners = ranks if owner is None else self._owners(owner, ranks, values)
            amount = number(values)
            repeated = times(values)
            if step.op == "copy":  # every lane that issues it copies the bytes once
                amount = amount // unit_bytes * unit_bytes * repeated
                repeated = 1
            return Action(
                op=step.op,
                barriers=tuple([at(rank, values) for rank in owners for at in barriers]),
                slots=tuple([at(rank, values) for rank in ranks for at in slots]),
                number=amount,
                times=repeated,
                flag=parts.flag,
                choice=parts.choice,
                into=tuple([at(rank, values) for rank in ranks for at in into]),
                tile=None if tile is None else tile(values),
                mask=bits if bits >> self.blocks else 0,
                offset=None if offset is None else offset(values),
                scope=parts.scope,
                step=step,
                sources=tuple([at(rank, values) for rank in ranks[:1] for at in sources]),
            )

        return action

    def _read(self, step: Step, names: Names) -> _ReadStep:
        """What a step acts on, and its arguments."""
        parts = _ReadStep()
        for argument, value in step.values():
            if value == "":
                continue
            if argument.kind in ("number", "bar"):
                parts.numbers[argument.field] = _number(argument, value, names)
            elif argument.kind == "barriers":
                stages = next(row.stages for row in self.instances.pipeline.barriers if row.name == value)
                for stage in range(stages):
                    parts.places["barriers"].append(self._place("barrier", f"{value}[{stage}]", names))
            elif argument.kind == "flag":
                parts.flag = bool(value)
            elif argument.field == "scope":
                parts.scope = str(value)
            elif argument.kind == "choice" or value in argument.choices:  # commit closes a group
                parts.choice = str(value)
            else:
                parts.places[argument.field].append(self._place(argument.kind, str(value), names))
        return parts

    def _barriers_of_threads(self, op: str, bar: Number) -> list[Place]:
        """The barrier that an operation uses without naming it: the cluster's, the one of the earlier grid, or a bar."""
        instances = self.instances
        if op == "cluster":
            cluster = instances.cluster + int(self.agent.of.earlier)
            return [lambda _rank, _values: cluster]
        if op == "griddepcontrol":
            return [lambda _rank, _values: instances.grid]
        if OPERATIONS[op].target.kind == "bar":
            return [lambda rank, values: instances.mbarriers + rank * BARS + bar(values)]
        return []

    def _ranks(self, mask: int, choice: str) -> tuple[int, ...]:
        """The blocks of the cluster that a mask names."""
        if not 0 < mask < 1 << MAX_BLOCKS:
            raise PIPELINE_MASK.error(
                mask=mask,
                agent=self.agent.title,
                blocks=self.blocks,
                last_rank=self.blocks - 1,
                everyone=(1 << self.blocks) - 1,
            )
        ranks = tuple([self.first_block + rank for rank in range(self.blocks) if mask >> rank & 1])
        if choice == "cp.async" and ranks != (self.agent.home,):
            raise MASK_OF_CP_ASYNC.error(mask=mask, agent=self.agent.title)
        return ranks

    def _owners(self, owner: Number, ranks: Sequence[int], values: Names) -> tuple[int, ...]:
        """The blocks whose barriers a copy into the blocks `ranks` signals."""
        owners = tuple(owner({**values, "rank": rank - self.first_block}) for rank in ranks)
        if not all(0 <= rank < self.blocks for rank in owners):
            raise BARRIER_RANK.error(
                ranks=owners,
                agent=self.agent.title,
                blocks=self.blocks,
                last_rank=self.blocks - 1,
            )
        return tuple(self.first_block + rank for rank in owners)

    def _place(self, kind: str, written: str, names: Names) -> Place:
        """What a reference such as full[i % 4] means, as a number."""
        name, text = reference("reference", written)
        index = Expression.read(written, text, names)
        numbering = self._numbering(kind, name)
        stages = numbering.stages

        def number(rank: int, values: Names) -> int:
            stage = index.value(values)
            if not 0 <= stage < stages:
                raise PIPELINE_STAGE.error(
                    reference=written,
                    name=name,
                    stage=stage,
                    stages=stages,
                    last_stage=stages - 1,
                )
            return numbering.first + rank * numbering.per_block + stage

        return number

    def _numbering(self, kind: str, name: str) -> _Numbering:
        """How the stages of a barrier, slot or flag are numbered."""
        pipeline = self.instances.pipeline
        rows: Sequence[Barrier | Slot | Flag] = pipeline.barriers
        if kind == "slot":
            rows = pipeline.slots
        elif kind == "counter":
            rows = pipeline.flags
        place = next(place for place, row in enumerate(rows) if row.name == name)
        row = rows[place]
        first = sum(before.stages for before in rows[:place])
        if isinstance(row, Flag):
            return _Numbering(row.stages, self.instances.first_flag + first, 0)
        is_shared = isinstance(row, Slot) and row.space == "gmem"
        return _Numbering(row.stages, first, 0 if is_shared else sum(each.stages for each in rows))


def _zero(_: Names) -> int:
    return 0


def _one(_: Names) -> int:
    return 1


def _number(argument: Argument, written: Written, names: Names) -> Number:
    """A function from the values of names to an argument's number, which is checked."""
    expression = Expression.read(argument.name, written, names)
    if expression.code is None:
        constant = argument.checked(expression.constant)
        return lambda _: constant
    return lambda values: argument.checked(expression.value(values))
