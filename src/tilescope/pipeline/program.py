"""A pipeline's steps with every loop run and every expression worked out: what each role does, one action after another.

    {loop = "i", count = 2, steps = [{wait = "full[i % 4]", parity = 0}]}    ──▶   wait full[0] 0,  wait full[1] 0

Barriers and slots are numbered through all blocks: number = block x barriers of a block + place in the block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from tilescope.pipeline.description import SELF_NAMES, Pipeline
from tilescope.pipeline.expression import Expression, reference
from tilescope.pipeline.mistake import KINDS, MASK, STAGE, Mistake, MistakeFoundError
from tilescope.pipeline.parts import MAX_BLOCKS, OPERATIONS, Loop, Role, Step
from tilescope.swizzle import CHUNK_BYTES

WARP_THREADS = 32
NONE = -1  # no barrier
WAITS = ("wait", "tail")
_HELD_ACTIONS = 64


class Action(NamedTuple):
    """A step with all its numbers. Barriers and slots are instances, one for each block that it acts on."""

    op: str
    barriers: tuple[int, ...] = ()
    slots: tuple[int, ...] = ()
    number: int = 0  # parity, bytes, pending groups, barrier id, registers
    times: int = 1  # arrivals, threads
    flag: bool = False
    choice: str = ""  # which copy, unit, group, fence
    into: tuple[int, ...] = ()
    tile: int | None = None
    mask: int = 0  # as written, where it names blocks beyond the cluster

    @property
    def waits(self) -> bool:
        """Whether it waits for a phase of a barrier."""
        return self.op in WAITS


class Agent(NamedTuple):
    """A role in a block: what the simulation moves forward."""

    name: str
    rank: int
    role: Role
    instance: int

    @property
    def warp_threads(self) -> int:
        """Its threads as bar.sync counts them: whole warps."""
        return -(-self.role.threads // WARP_THREADS) * WARP_THREADS


class Instance(NamedTuple):
    """A stage of a barrier or slot, or a role, in one block."""

    name: str  # without its block: full[2]
    of: str  # the barrier, slot or role
    stage: int | None  # None if it has only one
    block: int


Emit = Callable[[dict[str, int]], Action]
Emitters = dict[int, tuple[Expression, Emit]]  # id of a step: when it is done, and its action


class Program:
    """The agents of a pipeline and the actions of each."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.agents = [
            Agent(_agent_name(pipeline, role, instance, rank), rank, role, instance)
            for rank in range(pipeline.blocks)
            for role in pipeline.roles
            if role.mask is None or role.mask >> rank & 1
            for instance in range(role.instances)
        ]
        self.barriers = Instances(pipeline.barriers, pipeline.blocks)
        self.slots = Instances(pipeline.slots, pipeline.blocks)

    @cached_property
    def initialises(self) -> bool:
        """Whether some step initialises barriers; otherwise they are ready from the start."""
        return any(step.op == "init" for role in self.pipeline.roles for step in role.all_steps())

    def mistake(self, kind: str, more: str = "", **facts: Any) -> MistakeFoundError:
        """A mistake of the table: facts called agent, barrier or slot are numbers, and get their names here."""
        row = KINDS[kind]
        named = {name: self._named(name, fact) for name, fact in facts.items()}
        found, consequence, fix = (text.format(**named) for text in (row.found, row.consequence, row.fix))
        values = {name: named[name] for name, fact in facts.items() if not isinstance(fact, str)}
        subject = named.get(row.subject, row.subject)
        return MistakeFoundError(Mistake(row.rule, row.outcome, subject, found, consequence, fix + more, values=values))

    def _named(self, name: str, fact: Any) -> Any:
        tables = {
            "agent": self._agent_name,
            "agents": self._agent_name,
            "barrier": self.barriers.name,
            "slot": self.slots.name,
        }
        name_of = tables.get(name.partition("_")[0])
        if name_of is None:
            return fact
        return name_of(fact) if isinstance(fact, int) else ", ".join(dict.fromkeys(map(name_of, fact)))

    def _agent_name(self, number: int) -> str:
        return self.agents[number].name

    def actions(self, agent: Agent) -> Iterator[Action]:
        """What an agent does, one action after another."""
        return self._run(agent, agent.role.steps, agent_names(self.pipeline, agent), {})

    def _run(
        self, agent: Agent, steps: tuple[Step | Loop, ...], names: dict[str, int], emitters: Emitters
    ) -> Iterator[Action]:
        for step in steps:
            if isinstance(step, Loop):
                for value in loop_values(step, names):
                    yield from self._run(agent, step.steps, names | {step.counter: value}, emitters)
                continue
            if id(step) not in emitters:
                when = Expression.read("when", 1 if step.when is None else step.when, names)
                emitters[id(step)] = when, self._emitter(agent, step, names)
            when, emit = emitters[id(step)]
            if when.value(names):
                yield emit(names)

    def _emitter(self, agent: Agent, step: Step, names: dict[str, int]) -> Emit:
        """A function from the values of names to the action of a step: its target and arguments as numbers."""
        row, op, blocks = OPERATIONS[step.op], step.op, self.pipeline.blocks
        own: tuple[int, ...] = (agent.rank,)
        if op == "init":
            made = tuple(number for name in step.targets for number in self.barriers.all_of(name, agent.rank))
            return lambda _: Action(op, made)
        numbers = {"number": Expression.of(0), "times": Expression.of(1)}
        places: dict[str, list[Place]] = {"barriers": [], "slots": [], "into": []}
        tables = {"barrier": self.barriers, "slot": self.slots}
        flag, choice = False, ""
        for argument in row.arguments:
            value = step.arguments.get(argument.name, argument.default)
            if argument.kind == "flag":
                flag = bool(value)
            elif argument.kind == "choice":
                choice = str(value)
            elif argument.kind in tables and value:
                places[argument.field].append(tables[argument.kind].at(value, names))
            elif argument.kind == "number" and value not in ("own", "any"):
                numbers[argument.field] = Expression.read(argument.name, value, names)
        if row.target in ("slot", "slots"):
            places["slots"] += [self.slots.at(slot, names) for slot in step.targets]
        elif row.target == "number":
            numbers["number"] = Expression.read(op, step.target, names)
        elif step.target in row.choices:
            choice = step.target
        else:
            places["barriers"].append(self.barriers.at(step.target, names))
        number, times, tile = numbers["number"], numbers["times"], numbers.get("tile")
        mask, owner = numbers.get("mask"), numbers.get("owner")
        barriers, slots, into = places.values()
        cut = CHUNK_BYTES if op == "copy" and choice == "bulk" else 1  # a bulk copy moves whole chunks

        def emit(values: dict[str, int]) -> Action:
            bits, ranks = 0, own
            if mask is not None:
                bits = mask.value(values)
                ranks = tuple(rank for rank in range(blocks) if bits >> rank & 1)
                if not 0 < bits < 1 << MAX_BLOCKS:
                    raise MASK.error(
                        "mask",
                        f"mask {bits:#x} of {agent.name}",
                        f"bits of the ranks 0 to {blocks - 1}",
                        f"Use {(1 << blocks) - 1:#x} for all blocks of the cluster.",
                        mask=bits,
                        blocks=blocks,
                    )
            owners = ranks if owner is None else tuple(owner.value({**values, "rank": rank}) for rank in ranks)
            counted = number.value(values)
            return Action(
                op,
                tuple(at(rank, values) for rank in owners for at in barriers),
                tuple(at(rank, values) for rank in ranks for at in slots),
                counted & 1 if op in WAITS else counted // cut * cut,
                times.value(values),
                flag,
                choice,
                tuple(at(rank, values) for rank in ranks for at in into),
                None if tile is None else tile.value(values),
                bits if bits >> blocks else 0,
            )

        return emit


Place = Callable[[int, dict[str, int]], int]


class Instances:
    """All stages of barriers or slots in all blocks, by number."""

    def __init__(self, described: tuple[Any, ...], blocks: int) -> None:
        self.blocks = blocks
        self.first: dict[str, int] = {}
        self.places: list[tuple[Any, int]] = []
        for row in described:
            self.first[row.name] = len(self.places)
            self.places += [(row, stage) for stage in range(row.stages)]
        self.per_block = len(self.places)

    @property
    def count(self) -> int:
        """Instances of all blocks."""
        return self.per_block * self.blocks

    def row(self, number: int) -> Any:
        """The description of an instance."""
        return self.places[number % self.per_block][0]

    def rank(self, number: int) -> int:
        """The block that an instance lies in."""
        return number // self.per_block

    def instance(self, number: int) -> Instance:
        """An instance as its own block sees it."""
        row, stage = self.places[number % self.per_block]
        staged = row.stages > 1
        return Instance(
            f"{row.name}[{stage}]" if staged else row.name, row.name, stage if staged else None, self.rank(number)
        )

    def name(self, number: int, block: int | None = None) -> str:
        """An instance as messages call it: full[2], or full[2] of block 1 unless that is the block spoken of."""
        instance = self.instance(number)
        is_plain = self.blocks == 1 or instance.block == block
        return instance.name if is_plain else f"{instance.name} of block {instance.block}"

    def all_of(self, name: str, rank: int) -> range:
        """The numbers of all stages of `name` in a block."""
        first = rank * self.per_block + self.first[name]
        return range(first, first + self.places[self.first[name]][0].stages)

    def at(self, written: str, names: dict[str, int]) -> Place:
        """A function from a block and the values of names to the number of what a reference such as full[i % 4] means."""
        name, text = reference("reference", written)
        index = Expression.read(written, text, names)
        first, stages, per_block = self.first[name], self.row(self.first[name]).stages, self.per_block

        def number(rank: int, values: dict[str, int]) -> int:
            stage = index.value(values)
            if not 0 <= stage < stages:
                raise STAGE.error(
                    written,
                    f"{name}[{stage}], from {written}",
                    f"{name} has stages 0 to {stages - 1}",
                    f"Take the index modulo {stages}.",
                    stage=stage,
                    stages=stages,
                )
            return rank * per_block + first + stage

        return number


def loop_values(loop: Loop, names: Mapping[str, int]) -> range:
    """The values that a loop's counter takes."""
    count, start = (Expression.read(loop.counter, text, names).value(names) for text in (loop.count, loop.start))
    return range(start, start + count)


def agent_names(pipeline: Pipeline, agent: Agent) -> dict[str, int]:
    """The values of the names that an agent's expressions may use, loop counters apart."""
    across = pipeline.cluster[0]
    own = (agent.rank, agent.rank % across, agent.rank // across, agent.instance, pipeline.blocks)
    return {**pipeline.constants, **dict(zip(SELF_NAMES, own, strict=True))}


def _agent_name(pipeline: Pipeline, role: Role, instance: int, rank: int) -> str:
    return _name_in_block(role, instance) + (f" of block {rank}" if pipeline.blocks > 1 else "")


def _name_in_block(role: Role, instance: int) -> str:
    return f"{role.name} {instance}" if role.instances > 1 else role.name


def instances_by_name(pipeline: Pipeline) -> dict[str, Instance]:
    """Barriers, slots and roles of all blocks, by the names that messages and events have for them.

    >>> import tilescope as ts
    >>> pipeline = ts.plan_pipeline(ts.plan((128, 64), "bf16").best, stages=2, cluster=(2, 1))
    >>> instances_by_name(pipeline)["full[1] of block 0"]
    Instance(name='full[1]', of='full', stage=1, block=0)
    """
    program = Program(pipeline)
    held = (program.barriers, program.slots)
    named = {
        instances.name(number): instances.instance(number) for instances in held for number in range(instances.count)
    }
    for agent in program.agents:
        named[agent.name] = Instance(_name_in_block(agent.role, agent.instance), agent.role.name, None, agent.rank)
    return named


class Steps:
    """An agent's actions by number; those behind the one asked for are kept only where `keep` says so."""

    def __init__(self, actions: Iterator[Action], keep: bool) -> None:
        self.source, self.keep, self.first = actions, keep, 0
        self.held: list[Action] = []

    def at(self, number: int) -> Action | None:
        """The action of that number, or None behind the last; what lies behind it may be forgotten."""
        if not self.keep and number - self.first > _HELD_ACTIONS:
            del self.held[: number - self.first]
            self.first = number
        return self.peek(number)

    def peek(self, number: int) -> Action | None:
        """The same, forgetting nothing."""
        while self.first + len(self.held) <= number:
            action = next(self.source, None)
            if action is None:
                return None
            self.held.append(action)
        return self.held[number - self.first]
