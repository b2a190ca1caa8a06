"""From a step to its events: references and expressions become numbers, once the loop counters have values.

    {wait = "full[i % 4]", parity = 0}   ──▶   a function of i   ──▶   i = 5: MbarrierWait, barrier 1, parity 0

A step of a loop is read once, and its event made in every round. The events are those of `sync.role_events`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from tilescope.pipeline.expression import Expression, reference
from tilescope.pipeline.instances import Agent, Instances
from tilescope.pipeline.operations import Argument, Written
from tilescope.pipeline.parts import Barrier, Flag, Slot, Step
from tilescope.pipeline.pipeline_rules import BARRIER_RANK, MASK_OF_CP_ASYNC, PIPELINE_MASK, PIPELINE_STAGE
from tilescope.swizzle import CHUNK_BYTES
from tilescope.sync.role_events import (
    Action,
    BarrierArrive,
    BulkStoreIssued,
    ClusterArrive,
    ClusterWait,
    CopyIssued,
    CpAsyncArriveIssued,
    CpAsyncIssued,
    FlagAdd,
    FlagPoll,
    GridDependency,
    GroupCommit,
    GroupWait,
    Load,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierInit,
    MbarrierInitFence,
    MbarrierInval,
    MbarrierWait,
    ProxyFence,
    RegisterRequest,
    Store,
    TmemCommit,
    TmemFence,
    TmemWork,
    WgmmaIssued,
)
from tilescope.sync.thread_limits import BARS, MAX_BLOCKS

Names: TypeAlias = Mapping[str, int]  # the values of names
Number: TypeAlias = Callable[[Names], int]
Place: TypeAlias = Callable[[int, Names], int]  # from a block to the number of its barrier or slot
ActionMaker: TypeAlias = Callable[[Names], Action]


@dataclass(slots=True)
class _ReadStep:
    """A step as it was read: its numbers and places depend on the values of names."""

    numbers: dict[str, Number] = field(default_factory=dict)  # by the field of the event that they become
    places: dict[str, list[Place]] = field(default_factory=lambda: defaultdict(list))  # likewise
    constants: dict[str, Any] = field(default_factory=dict)  # likewise: flags, and choices among names
    form: str = ""  # which of the events that its operation can be


class _EventForm(NamedTuple):
    """The event that a step becomes: its class, and fields that the operation decides."""

    event: Callable[..., Action]
    constants: Mapping[str, object] = {}
    renamed: Mapping[str, str] = {}  # fields whose name in the event is another one
    ignored: tuple[str, ...] = ()  # arguments that this form has no use for


# by operation, and by the form that its target or an argument chooses
_EVENTS = {
    ("init", ""): _EventForm(MbarrierInit),
    ("inval", ""): _EventForm(MbarrierInval),
    ("wait", ""): _EventForm(MbarrierWait),
    ("tail", ""): _EventForm(MbarrierWait),
    ("expect", ""): _EventForm(MbarrierArrive, renamed={"size_bytes": "expected_bytes"}),
    ("expect", "only"): _EventForm(MbarrierExpect),
    ("arrive", ""): _EventForm(MbarrierArrive),
    ("release", ""): _EventForm(MbarrierArrive),
    ("copy", "tma"): _EventForm(CopyIssued, {"how": "tma"}),
    ("copy", "bulk"): _EventForm(CopyIssued, {"how": "bulk"}),
    ("copy", "cp.async"): _EventForm(CpAsyncIssued),
    ("cp_arrive", ""): _EventForm(CpAsyncArriveIssued),
    ("read", ""): _EventForm(Load),
    ("write", ""): _EventForm(Store),
    ("multiply", "wgmma"): _EventForm(WgmmaIssued),
    ("multiply", "tcgen05"): _EventForm(TmemWork),
    ("multiply", "mma"): _EventForm(Load),
    ("store", ""): _EventForm(BulkStoreIssued),
    ("commit", ""): _EventForm(TmemCommit),
    ("commit", "group"): _EventForm(GroupCommit),
    ("wait_group", ""): _EventForm(GroupWait),
    ("fence", "proxy.async"): _EventForm(ProxyFence),
    ("fence", "mbarrier_init"): _EventForm(MbarrierInitFence),
    ("fence", "tcgen05.before"): _EventForm(TmemFence, {"is_before": True}),
    ("fence", "tcgen05.after"): _EventForm(TmemFence, {"is_before": False}),
    ("sync", ""): _EventForm(BarrierArrive, {"waits": True}),
    ("bar_arrive", ""): _EventForm(BarrierArrive, {"waits": False}),
    ("cluster", "sync"): _EventForm(ClusterArrive, {"waits": True}),
    ("cluster", "arrive"): _EventForm(ClusterArrive, {"waits": False}),
    ("cluster", "wait"): _EventForm(ClusterWait, ignored=("is_relaxed",)),
    ("signal", ""): _EventForm(FlagAdd),
    ("poll", ""): _EventForm(FlagPoll),
    ("griddepcontrol", "wait"): _EventForm(GridDependency, {"waits": True}),
    ("griddepcontrol", "launch"): _EventForm(GridDependency, {"waits": False}),
    ("registers", ""): _EventForm(RegisterRequest),
}


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
        if not parts.constants.pop("arrives", True):
            parts.form = "only"
        form = _EVENTS[step.op, parts.form]
        mask = parts.numbers.pop("mask", None)
        owner = parts.numbers.pop("owner", None)
        lanes = parts.numbers.pop("lanes", None)
        numbers = [(form.renamed.get(name, name), number) for name, number in parts.numbers.items()]
        constants = {**parts.constants, **form.constants, "step": step}
        for name in form.ignored:
            del constants[name]
        barriers = [*parts.places.pop("barriers", ()), *self._barriers_of_threads(step.op, parts.numbers.get("number"))]
        sources = parts.places.pop("sources", [])
        places = [*parts.places.items()]  # of slots
        own_rank: tuple[int, ...] = (self.agent.home,)
        is_bulk = step.op == "copy" and parts.form == "bulk"
        unit_bytes = CHUNK_BYTES if is_bulk else 1  # a bulk copy moves whole chunks

        def action(values: Names) -> Action:
            ranks = own_rank
            fields: dict[str, Any] = constants.copy()
            if mask is not None:
                bits = mask(values)
                ranks = self._ranks(bits, parts.form)
                fields["mask_beyond"] = bits if bits >> self.blocks else 0
            for name, number in numbers:
                fields[name] = number(values)
            if lanes is not None:  # every lane that issues a copy copies the bytes once
                fields["size_bytes"] = fields["size_bytes"] // unit_bytes * unit_bytes * lanes(values)
            if barriers:
                owners = ranks if owner is None else self._owners(owner, ranks, values)
                fields["barriers"] = tuple([at(rank, values) for rank in owners for at in barriers])
            for name, parts_of_name in places:
                fields[name] = tuple([at(rank, values) for rank in ranks for at in parts_of_name])
            if sources:
                fields["sources"] = tuple([at(ranks[0], values) for at in sources])
            return form.event(**fields)

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
                parts.constants[argument.field] = bool(value)
            elif argument.field == "form":
                parts.form = str(value)
            elif argument.kind == "choice":
                parts.constants[argument.field] = str(value)
            elif value in argument.choices:  # commit closes a group
                parts.form = "group"
                parts.constants["unit"] = str(value)
            else:
                parts.places[argument.field].append(self._place(argument.kind, str(value), names))
        return parts

    def _barriers_of_threads(self, op: str, bar: Number | None) -> list[Place]:
        """The barrier that an operation uses without naming it: the cluster's, the one of the earlier grid, or a bar."""
        instances = self.instances
        if op == "cluster":
            cluster = instances.cluster + int(self.agent.of.earlier)
            return [lambda _rank, _values: cluster]
        if op == "griddepcontrol":
            return [lambda _rank, _values: instances.grid]
        if bar is not None:
            return [lambda rank, values: instances.mbarriers + rank * BARS + bar(values)]
        return []

    def _ranks(self, mask: int, form: str) -> tuple[int, ...]:
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
        if form == "cp.async" and ranks != (self.agent.home,):
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


def _number(argument: Argument, written: Written, names: Names) -> Number:
    """A function from the values of names to an argument's number, which is checked."""
    expression = Expression.read(argument.name, written, names)
    if expression.code is None:
        constant = argument.check_range(expression.constant)
        return lambda _: constant
    return lambda values: argument.check_range(expression.value(values))
