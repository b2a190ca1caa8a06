"""A pipeline's steps with every loop run and every expression worked out: what each role does, one action after another.

    {loop = "i", count = 2, steps = [{wait = "full[i % 4]", parity = 0}]}    ──▶   wait full[0] 0,  wait full[1] 0

Barriers and slots are numbered through all blocks: number = block x barriers of a block + place in the block. Behind the
mbarriers come the barriers of threads: those of every block, and that of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple

from tilescope.errors import RuleError, argument_range
from tilescope.pipeline.demands import DEMANDS
from tilescope.pipeline.description import SELF_NAMES, Pipeline
from tilescope.pipeline.kinds import KINDS
from tilescope.pipeline.mistake import MistakeFoundError
from tilescope.pipeline.parts import (
    BARS,
    MAX_BLOCKS,
    OPERATIONS,
    Argument,
    Barrier,
    Expression,
    Flag,
    Loop,
    Role,
    Slot,
    Step,
    reference,
)
from tilescope.swizzle import CHUNK_BYTES

NONE = -1  # no barrier
WAITS = ("wait", "tail")
MAX_ROUNDS = 1 << 24  # of a loop
# of an access or a flight: its agent, the place of the action in its role, the place in the action
Key = tuple[int, int, int]


class Action(NamedTuple):
    """A step with all its numbers. Barriers and slots are instances, one for each block that it acts on."""

    op: str
    barriers: tuple[int, ...]
    slots: tuple[int, ...]
    number: int  # parity, bytes, pending groups, barrier id, registers
    times: int  # arrivals, threads
    flag: bool
    choice: str  # which copy, unit, group, fence
    into: tuple[int, ...]
    tile: int | None
    mask: int  # as written, where it names blocks beyond the cluster
    offset: int | None = None  # of a copy in its slot; None: behind the others of its fill
    scope: str = ""  # of an arrival, where it is stated
    step: Step | None = None  # as written
    sources: tuple[int, ...] = ()  # slots of global memory that a copy reads

    @property
    def barrier(self) -> int:
        """The first of its barriers, or NONE."""
        return self.barriers[0] if self.barriers else NONE

    @property
    def waits(self) -> bool:
        """Whether it waits for a phase of an mbarrier."""
        return self.op in WAITS

    @property
    def meets(self) -> bool:
        """Whether it waits at a barrier of threads."""
        return self.op == "sync" or (self.op == "cluster" and self.choice != "arrive")


class Flight(NamedTuple):
    """Something under way: a copy's bytes, or an arrival that comes when work is done."""

    op: str  # copy, commit, cp_arrive, cp_drop
    barrier: int
    number: int  # bytes, or arrivals
    slots: tuple[int, ...]  # one, of a copy
    agent: int
    past: Any  # what the agent knew when it sent it; None where orders are tried one by one
    keys: tuple[Key, ...]  # of the accesses that are finished when it lands
    key: Key = (NONE, NONE, NONE)  # its own, among those of accesses


class Instance(NamedTuple):
    """A stage of a barrier or slot, or one of a role's groups of threads, in one block."""

    of: Any  # Barrier, Slot or Role; of a barrier of threads its name
    number: int  # its stage; of a role which group
    block: int
    name: str  # in its block: full[2], consumer 1
    title: str  # as messages call it: full[2] of block 1
    home: int = 0  # its block among those of all grids: the earlier grid's come behind this one's

    @property
    def stage(self) -> int | None:
        """Its stage; None if there is only one."""
        return self.number if getattr(self.of, "stages", 1) > 1 else None


Number = Callable[[dict[str, int]], int]  # from the values of names to a number
Place = Callable[[int, dict[str, int]], int]  # from a block and the values of names to the number of a barrier or slot
Emit = Callable[[dict[str, int]], Action]
Emitters = dict[int, tuple[Expression, Emit]]  # id of a step: when it is done, and its action


@dataclass(slots=True)
class _Parts:
    """A step as it was read: its numbers and places depend on the values of names."""

    numbers: dict[str, Number] = field(default_factory=dict)  # by the field of an Action
    places: dict[str, list[Place]] = field(
        default_factory=lambda: {"barriers": [], "slots": [], "into": [], "sources": []}
    )
    choices: dict[str, str] = field(default_factory=lambda: {"choice": "", "scope": ""})
    flag: bool = False


class Program:
    """The agents of a pipeline, each a role in a block, their actions, and the barriers and slots that these name."""

    def __init__(self, pipeline: Pipeline, left_out: Mapping[int, range] | None = None) -> None:
        self.pipeline = pipeline
        self.left_out = left_out or {}  # id of a loop: the numbers of the rounds that are not run
        # otherwise barriers are ready from the start
        self.initialises = any(step.op == "init" for role in pipeline.roles for step in role.all_steps())
        # an arrival with scope = "cta" hands no data to another block
        self.has_weak_arrivals = any(
            step.arguments.get("scope") == "cta" for role in pipeline.roles for step in role.all_steps()
        )
        # blocks of this grid, and of the earlier one, which have barriers and memory of their own
        self.blocks = pipeline.blocks * (1 + any(role.earlier for role in pipeline.roles))
        self.agents = [
            self._instance(role, number, home, f"{role.name} {number}" if role.instances > 1 else role.name)
            for home in range(self.blocks)
            for role in pipeline.roles
            if role.earlier == (home >= pipeline.blocks)
            if role.mask is None or role.mask >> home % pipeline.blocks & 1
            for number in range(role.instances)
        ]
        self.slots = self._stages(pipeline.slots)
        self.barriers = self._stages(pipeline.barriers)
        self.mbarriers = len(self.barriers)
        self.barriers += [
            self._instance("bar", bar, home, f"bar {bar}") for home in range(self.blocks) for bar in range(BARS)
        ]
        self.cluster = len(self.barriers)  # that of every grid
        self.barriers += [
            Instance("cluster", 0, 0, "the cluster barrier", "the cluster barrier", home)
            for home in range(0, self.blocks, pipeline.blocks)
        ]
        self.first_flag = len(self.barriers)
        self.barriers += [
            Instance(row, stage, 0, name, name)
            for row in pipeline.flags
            for stage, name in enumerate(_stage_names(row))
        ]
        self.grid = len(self.barriers)
        self.barriers.append(Instance("grid", 0, 0, "the grid before", "the grid before"))
        self.earlier = [agent.of.earlier for agent in self.agents]
        launches = [any(map(_launches, role.all_steps())) for role in pipeline.roles if role.earlier]
        # roles of this grid start when the one before has ended, unless all its roles let them start sooner
        self.starts_late = bool(launches) and not all(launches)
        self.thresholds = self._thresholds() if pipeline.flags else {}

    def _instance(self, of: Any, number: int, home: int, name: str) -> Instance:
        """A part of a block; in a cluster its title names the block, unless all blocks share it."""
        grid, block = divmod(home, self.pipeline.blocks)
        is_shared = isinstance(of, Slot) and of.space == "gmem"
        title = name if is_shared or self.pipeline.blocks == 1 else f"{name} of block {block}"
        if grid and not isinstance(of, Role):  # roles have names of their own
            title = f"{title} of the grid before"
        return Instance(of, number, block, name, title, home)

    def _stages(self, rows: Iterable[Barrier | Slot]) -> list[Instance]:
        """The stages of barriers or slots, of one block after another."""
        return [
            self._instance(row, stage, home, name)
            for home in range(self.blocks)
            for row in rows
            for stage, name in enumerate(_stage_names(row))
        ]

    def cluster_of(self, agent: int) -> int:
        """The cluster barrier of an agent's grid."""
        return self.cluster + int(self.earlier[agent])

    def _thresholds(self) -> dict[int, list[int]]:
        """The values, in order, for which some role polls a flag."""
        polled: dict[int, set[int]] = {}
        for agent in self.agents:
            for action in self.actions(agent):
                if action.op == "poll" and action.number:
                    polled.setdefault(action.barriers[0], set()).add(action.number)
        return {flag: sorted(values) for flag, values in polled.items()}

    def mistake(self, kind: str, **facts: Any) -> MistakeFoundError:
        """A mistake of the table: facts called agent, barrier or slot are numbers, and get their names here."""
        row, named = KINDS[kind], {name: self._named(name, fact) for name, fact in facts.items()}
        texts = {part: getattr(row, part).format(**named) for part in ("found", "consequence", "fix")}
        values = {name: named[name] for name, fact in facts.items() if not isinstance(fact, str)}
        mistake = replace(row, subject=named.get(row.subject, row.subject), values=values, **texts)
        return MistakeFoundError(mistake, kind, facts)

    def _named(self, name: str, fact: Any) -> Any:
        tables = {"agent": self.agents, "agents": self.agents, "barrier": self.barriers, "slot": self.slots}
        table = tables.get(name.partition("_")[0])
        if table is None:
            return fact
        return ", ".join(dict.fromkeys(table[number].title for number in ([fact] if isinstance(fact, int) else fact)))

    def said(self, done: Action | Flight | None, block: int | None = None) -> str:
        """What an action does: "wait full[2], parity 1"; or what lands: "4096 bytes land in a[0], for full[0]".

        Where all barriers or slots of a list are those of `block`, they are named without it.
        """
        if done is None:
            return "leaves"

        def listed(table: list[Instance], *numbers: int) -> str:
            parts = [table[number] for number in numbers]
            is_own = all(part.block == block for part in parts)
            return ", ".join(dict.fromkeys(part.name if is_own else part.title for part in parts))

        if isinstance(done, Flight):
            barrier = listed(self.barriers, done.barrier)
            if done.op == "copy":
                return f"{done.number} bytes land in {listed(self.slots, *done.slots)}, for {barrier}"
            return f"{done.op} of {self.agents[done.agent].title} arrives at {barrier}"
        barriers, into = listed(self.barriers, *done.barriers), listed(self.slots, *done.into)
        return OPERATIONS[done.op].said.format(
            barriers=barriers,
            slots=listed(self.slots, *done.slots),
            number=done.number,
            choice=done.choice,
            only="" if done.flag else "only ",
            read=" read" if done.flag else "",
            arrivals=f", {done.times} arrivals" if done.times > 1 else "",
            threads=f", {done.times} threads" if done.times else "",
            on=f" on {barriers}" if barriers else "",
            to=f"to {barriers}" if barriers else "",
            into=f" into {into}" if into else "",
        )

    def told(self, agent: int, done: Action | Flight | None) -> str:
        """The same with the agent that acts; what lands acts by itself."""
        text = self.said(done)
        return text if isinstance(done, Flight) else f"{self.agents[agent].title}: {text}"

    def actions(self, agent: Instance) -> Iterator[Action]:
        """What an agent does, one action after another."""
        return self._run(agent, agent.of.steps, agent_names(self.pipeline, agent), {})

    def _run(
        self, agent: Instance, steps: tuple[Step | Loop, ...], names: dict[str, int], emitters: Emitters
    ) -> Iterator[Action]:
        for step in steps:
            if isinstance(step, Loop):
                for value in self._values(step, names):
                    yield from self._run(agent, step.steps, names | {step.counter: value}, emitters)
                continue
            if id(step) not in emitters:
                when = Expression.read("when", 1 if step.when is None else step.when, names)
                emitters[id(step)] = when, self._emitter(agent, step, names)
            when, emit = emitters[id(step)]
            if when.value(names):
                yield emit(names)

    def _values(self, loop: Loop, names: dict[str, int]) -> Iterable[int]:
        values = loop_values(loop, names)
        skipped = self.left_out.get(id(loop))
        return values if skipped is None else chain(values[: skipped.start], values[skipped.stop :])

    def _emitter(self, agent: Instance, step: Step, names: dict[str, int]) -> Emit:
        """A function from the values of names to the action of a step."""
        parts = self._read(step, names)
        number, times = parts.numbers.get("number", _zero), parts.numbers.get("times", _one)
        mask, owner = parts.numbers.get("mask"), parts.numbers.get("owner")
        tile, offset = parts.numbers.get("tile"), parts.numbers.get("offset")
        barriers = [*parts.places["barriers"], *self._barriers_of_threads(step.op, number, agent)]
        slots, into, sources = parts.places["slots"], parts.places["into"], parts.places["sources"]
        own_rank = (agent.home,)
        by_chunks = step.op == "copy" and parts.choices["choice"] == "bulk"
        unit_bytes = CHUNK_BYTES if by_chunks else 1  # a bulk copy moves whole chunks

        def emit(values: dict[str, int]) -> Action:
            bits = 0 if mask is None else mask(values)
            ranks = own_rank if mask is None else self._ranks(bits, parts.choices["choice"], agent)
            owners = ranks if owner is None else self._owners(owner, ranks, values, agent)
            amount, repeated = number(values), times(values)
            if step.op == "copy":  # every lane that issues it brings the bytes once
                amount, repeated = amount // unit_bytes * unit_bytes * repeated, 1
            return Action(
                op=step.op,
                barriers=tuple([at(rank, values) for rank in owners for at in barriers]),
                slots=tuple([at(rank, values) for rank in ranks for at in slots]),
                number=amount,
                times=repeated,
                flag=parts.flag,
                choice=parts.choices["choice"],
                into=tuple([at(rank, values) for rank in ranks for at in into]),
                tile=None if tile is None else tile(values),
                mask=bits if bits >> self.pipeline.blocks else 0,
                offset=None if offset is None else offset(values),
                scope=parts.choices["scope"],
                step=step,
                sources=tuple([at(rank, values) for rank in ranks[:1] for at in sources]),
            )

        return emit

    def _read(self, step: Step, names: dict[str, int]) -> _Parts:
        """What a step acts on, and its arguments."""
        parts = _Parts()
        for argument, value in step.values():
            if value == "":
                continue
            if argument.kind in ("number", "bar"):
                parts.numbers[argument.field] = _number(argument, value, names)
            elif argument.kind == "barriers":
                stages = range(next(row.stages for row in self.pipeline.barriers if row.name == value))
                parts.places["barriers"] += [self._place("barrier", f"{value}[{stage}]", names) for stage in stages]
            elif argument.kind == "flag":
                parts.flag = value
            elif argument.kind == "choice":
                parts.choices[argument.field] = value
            elif value in argument.choices:  # commit closes a group
                parts.choices["choice"] = value
            else:
                parts.places[argument.field].append(self._place(argument.kind, value, names))
        return parts

    def _barriers_of_threads(self, op: str, bar: Number, agent: Instance) -> list[Place]:
        """The barrier that an operation means without naming it: of the cluster, of the grid before, or a bar of its block."""
        if op == "cluster":
            return [lambda _, __: self.cluster + agent.of.earlier]
        if op == "griddepcontrol":
            return [lambda _, __: self.grid]
        if OPERATIONS[op].target.kind == "bar":
            return [lambda rank, values: self.mbarriers + rank * BARS + bar(values)]
        return []

    def _ranks(self, mask: int, choice: str, agent: Instance) -> tuple[int, ...]:
        """The blocks of the cluster that a mask names."""
        blocks = self.pipeline.blocks
        if not 0 < mask < 1 << MAX_BLOCKS:
            found, limit = f"mask {mask:#x} of {agent.title}", f"bits of the ranks 0 to {blocks - 1}"
            fix = f"Use {(1 << blocks) - 1:#x} for all blocks of the cluster."
            raise DEMANDS["pipeline-mask"].error("mask", found, limit, fix, mask=mask, blocks=blocks)
        first = agent.home - agent.block  # of its grid's blocks
        ranks = tuple([first + rank for rank in range(blocks) if mask >> rank & 1])
        if choice == "cp.async" and ranks != (agent.home,):
            found, limit = f"mask {mask:#x} of cp.async of {agent.title}", "cp.async writes memory of its own block"
            fix = "Leave the mask out, or use by = bulk."
            raise DEMANDS["pipeline-mask"].error("mask", found, limit, fix, mask=mask)
        return ranks

    def _owners(
        self, owner: Number, ranks: tuple[int, ...], values: dict[str, int], agent: Instance
    ) -> tuple[int, ...]:
        """The blocks whose barriers a copy into the blocks `ranks` signals."""
        first, blocks = agent.home - agent.block, self.pipeline.blocks  # the first block of its grid
        owners = tuple(owner({**values, "rank": rank - first}) for rank in ranks)
        if not all(0 <= rank < blocks for rank in owners):
            found, limit = f"barrier_rank {owners} of {agent.title}", f"ranks 0 to {blocks - 1}"
            fix = "Use the rank of a block of the cluster."
            raise DEMANDS["pipeline-mask"].error("barrier_rank", found, limit, fix, ranks=owners, blocks=blocks)
        return tuple(first + rank for rank in owners)

    def _place(self, kind: str, written: str, names: dict[str, int]) -> Place:
        """What a reference such as full[i % 4] means, as a number."""
        name, text = reference("reference", written)
        index = Expression.read(written, text, names)
        if kind == "counter":
            held, offset = self.barriers[self.first_flag : self.grid], self.first_flag
        else:
            held, offset = self.slots if kind == "slot" else self.barriers[: self.mbarriers], 0
        first = next(number for number, part in enumerate(held) if part.of.name == name)
        stages = held[first].of.stages
        is_shared = kind == "counter" or (kind == "slot" and held[first].of.space == "gmem")
        per_block = 0 if is_shared else len(held) // self.blocks

        def number(rank: int, values: dict[str, int]) -> int:
            stage = index.value(values)
            if not 0 <= stage < stages:
                found, limit = f"{name}[{stage}], from {written}", f"{name} has stages 0 to {stages - 1}"
                fix = f"Take the index modulo {stages}."
                raise DEMANDS["pipeline-stage"].error(written, found, limit, fix, stage=stage, stages=stages)
            return offset + rank * per_block + first + stage

        return number


def _stage_names(row: Barrier | Slot | Flag) -> list[str]:
    """full[0], full[1], …; a single stage has the name alone."""
    return [f"{row.name}[{stage}]" for stage in range(row.stages)] if row.stages > 1 else [row.name]


def _launches(step: Step) -> bool:
    return (step.op, step.target) == ("griddepcontrol", "launch")


def _zero(_: dict[str, int]) -> int:
    return 0


def _one(_: dict[str, int]) -> int:
    return 1


def _number(argument: Argument, written: Any, names: dict[str, int]) -> Number:
    """A function from the values of names to an argument's number, which is checked."""
    expression = Expression.read(argument.name, written, names)
    if expression.code is None:
        constant = argument.checked(expression.constant)
        return lambda _: constant
    return lambda values: argument.checked(expression.value(values))


def loop_values(loop: Loop, names: Mapping[str, int]) -> range:
    """The values that a loop's counter takes."""
    count, start = (Expression.read(loop.counter, text, names).value(names) for text in (loop.count, loop.start))
    if count > MAX_ROUNDS:
        fix = "Use fewer: a few hundred rounds show what a ring of stages does."
        raise RuleError([argument_range(f"count of {loop.counter}", count, f"at most {MAX_ROUNDS} rounds", fix)])
    return range(start, start + count)


def agent_names(pipeline: Pipeline, agent: Instance) -> dict[str, int]:
    """The values of the names that an agent's expressions may use, loop counters apart."""
    y, x = divmod(agent.block, pipeline.cluster[0])
    own = (agent.block, x, y, agent.number, pipeline.blocks)
    return {**pipeline.constants, **dict(zip(SELF_NAMES, own, strict=True))}


def instances_by_name(pipeline: Pipeline) -> dict[str, Instance]:
    """Barriers, slots and roles of all blocks, by the names that messages and events have for them.

    >>> import tilescope as ts
    >>> pipeline = ts.plan_pipeline(ts.plan((128, 64), "bf16").best, stages=2, cluster=(2, 1))
    >>> full = instances_by_name(pipeline)["full[1] of block 0"]
    >>> full.name, full.stage, full.block
    ('full[1]', 1, 0)
    """
    program = Program(pipeline)
    return {part.title: part for part in (*program.barriers, *program.slots, *program.agents)}
