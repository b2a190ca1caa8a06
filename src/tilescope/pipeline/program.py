"""A pipeline's steps with every loop run and every expression worked out: what each role does, one action after another.

    {loop = "i", count = 2, steps = [{wait = "full[i % 4]", parity = 0}]}    ──▶   wait full[0] 0,  wait full[1] 0

Barriers and slots are numbered through all blocks: number = block x barriers of a block + place in the block. Behind the
mbarriers come the barriers of threads: those of every block, and that of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from tilescope.errors import RuleError, argument_range
from tilescope.pipeline.description import SELF_NAMES, Pipeline
from tilescope.pipeline.mistake import DEMANDS, KINDS, MistakeFoundError
from tilescope.pipeline.parts import (
    BARS,
    MAX_BLOCKS,
    OPERATIONS,
    Argument,
    Expression,
    Loop,
    Role,
    Step,
    reference,
)
from tilescope.swizzle import CHUNK_BYTES

NONE = -1  # no barrier
WAITS = ("wait", "tail")
MAX_ROUNDS = 1 << 40  # of a loop
Key = tuple[
    int, int, int
]  # of an access or a flight: its agent, the place of the action in its role, the place in the action


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


Place = Callable[[int, dict[str, int]], int]  # from a block and the values of names to the number of a barrier or slot
Emit = Callable[[dict[str, int]], Action]
Emitters = dict[int, tuple[Expression, Emit]]  # id of a step: when it is done, and its action


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
        blocks = range(self.blocks)
        title = "{} of block {}" if pipeline.blocks > 1 else "{}"

        def instance(of: Any, number: int, home: int, name: str) -> Instance:
            grid, block = divmod(home, pipeline.blocks)
            full = name if getattr(of, "space", "") == "gmem" else title.format(name, block)
            of_earlier = grid and not isinstance(of, Role)  # roles have names of their own
            return Instance(of, number, block, name, f"{full} of the grid before" if of_earlier else full, home)

        self.agents = [
            instance(role, number, home, f"{role.name} {number}" if role.instances > 1 else role.name)
            for home in blocks
            for role in pipeline.roles
            if role.earlier == (home >= pipeline.blocks)
            if role.mask is None or role.mask >> home % pipeline.blocks & 1
            for number in range(role.instances)
        ]
        self.barriers, self.slots = (
            [
                instance(row, stage, block, f"{row.name}[{stage}]" if row.stages > 1 else row.name)
                for block in blocks
                for row in rows
                for stage in range(row.stages)
            ]
            for rows in (pipeline.barriers, pipeline.slots)
        )
        self.mbarriers = len(self.barriers)
        self.barriers += [instance("bar", bar, block, f"bar {bar}") for block in blocks for bar in range(BARS)]
        self.cluster = len(self.barriers)  # that of every grid
        self.barriers += [
            instance("cluster", 0, home, "the cluster barrier")._replace(title="the cluster barrier")
            for home in blocks[:: pipeline.blocks]
        ]
        self.first_flag = len(self.barriers)
        for row in pipeline.flags:
            names = [f"{row.name}[{stage}]" if row.stages > 1 else row.name for stage in range(row.stages)]
            self.barriers += [Instance(row, stage, 0, name, name) for stage, name in enumerate(names)]
        self.grid = len(self.barriers)
        self.barriers.append(Instance("grid", 0, 0, "the grid before", "the grid before"))
        self.earlier = [agent.of.earlier for agent in self.agents]
        launches = [any(map(_launches, role.all_steps())) for role in pipeline.roles if role.earlier]
        # roles of this grid start when the one before has ended, unless all its roles let them start sooner
        self.starts_late = bool(launches) and not all(launches)
        self.thresholds = self._thresholds() if pipeline.flags else {}

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
        """A function from the values of names to the action of a step: its target and arguments as numbers."""
        op, blocks = step.op, self.pipeline.blocks
        numbers: dict[str, Callable[[dict[str, int]], int]] = {}
        places: dict[str, list[Place]] = {"barriers": [], "slots": [], "into": [], "sources": []}
        plain: dict[str, Any] = {"flag": False, "choice": "", "scope": ""}
        for argument, value in step.values():
            if value == "":
                continue
            if argument.kind in ("number", "bar"):
                numbers[argument.field] = _number(argument, value, names)
            elif argument.kind == "barriers":
                stages = range(next(row.stages for row in self.pipeline.barriers if row.name == value))
                places["barriers"] += [self._place("barrier", f"{value}[{stage}]", names) for stage in stages]
            elif argument.kind == "flag":
                plain["flag"] = value
            elif argument.kind == "choice":
                plain[argument.field] = value
            elif value in argument.choices:  # commit closes a group
                plain["choice"] = value
            else:
                places[argument.field].append(self._place(argument.kind, value, names))
        number = numbers.get("number", _zero)
        times = numbers.get("times", _one)
        tile, mask, owner, offset = (numbers.get(name) for name in ("tile", "mask", "owner", "offset"))
        barriers, slots, into, sources = places.values()
        if op == "cluster":
            barriers.append(lambda _, __: self.cluster + agent.of.earlier)
        elif op == "griddepcontrol":
            barriers.append(lambda _, __: self.grid)
        elif OPERATIONS[op].target.kind == "bar":
            barriers.append(lambda rank, values: self.mbarriers + rank * BARS + number(values))
        own_rank: tuple[int, ...] = (agent.home,)
        first = agent.home - agent.block  # of its grid's blocks
        cut = CHUNK_BYTES if op == "copy" and plain["choice"] == "bulk" else 1  # a bulk copy moves whole chunks

        def emit(values: dict[str, int]) -> Action:
            bits, ranks = 0, own_rank
            if mask is not None:
                bits = mask(values)
                ranks = tuple(first + rank for rank in range(blocks) if bits >> rank & 1)
                if not 0 < bits < 1 << MAX_BLOCKS:
                    found, limit = f"mask {bits:#x} of {agent.title}", f"bits of the ranks 0 to {blocks - 1}"
                    fix = f"Use {(1 << blocks) - 1:#x} for all blocks of the cluster."
                    raise DEMANDS["pipeline-mask"].error("mask", found, limit, fix, mask=bits, blocks=blocks)
            owners = ranks
            if owner is not None:
                owners = tuple(first + owner({**values, "rank": rank - first}) for rank in ranks)
            if not all(0 <= rank - first < blocks for rank in owners):
                found, limit = f"barrier_rank {owners} of {agent.title}", f"ranks 0 to {blocks - 1}"
                fix = "Use the rank of a block of the cluster."
                raise DEMANDS["pipeline-mask"].error("barrier_rank", found, limit, fix, ranks=owners, blocks=blocks)
            amount, repeated = number(values), times(values)
            if op == "copy":  # every lane that issues it brings the bytes once
                amount, repeated = amount // cut * cut * repeated, 1
            return Action(
                op,
                tuple(at(rank, values) for rank in owners for at in barriers),
                tuple(at(rank, values) for rank in ranks for at in slots),
                amount,
                repeated,
                plain["flag"],
                plain["choice"],
                tuple(at(rank, values) for rank in ranks for at in into),
                None if tile is None else tile(values),
                bits if bits >> blocks else 0,
                None if offset is None else offset(values),
                plain["scope"],
                step,
                tuple(at(rank, values) for rank in ranks[:1] for at in sources),
            )

        return emit

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


def _launches(step: Step) -> bool:
    return (step.op, step.target) == ("griddepcontrol", "launch")


def _zero(_: dict[str, int]) -> int:
    return 0


def _one(_: dict[str, int]) -> int:
    return 1


def _number(argument: Argument, written: Any, names: dict[str, int]) -> Callable[[dict[str, int]], int]:
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
        raise RuleError(
            [argument_range(f"count of {loop.counter}", count, "at most 2^40 rounds", f"Use {MAX_ROUNDS}.")]
        )
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
