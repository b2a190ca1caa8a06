"""A pipeline's steps with every loop run and every expression worked out: what each role does, one action after another.

    {loop = "i", count = 2, steps = [{wait = "full[i % 4]", parity = 0}]}    ──▶   wait full[0] 0,  wait full[1] 0

Barriers and slots are numbered through all blocks: number = block x barriers of a block + place in the block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.expression import Expression, reference
from tilescope.pipeline.mistake import example, pipeline_rule
from tilescope.pipeline.operation import GROUPS, OPERATIONS
from tilescope.pipeline.parts import MAX_BLOCKS, Barrier, Loop, Role, Slot, Step
from tilescope.pipeline.reader import SELF_NAMES
from tilescope.swizzle import CHUNK_BYTES

WARP_THREADS = 32
NONE = -1  # no barrier
_HELD_ACTIONS = 64


MASK = pipeline_rule(
    "pipeline-mask", "A mask has bits of the cluster's ranks, at least one.", example({"arrive": "full", "mask": 2}),
    source="PTX ISA, cp.async.bulk, ctaMask",
)  # fmt: skip
STAGE = pipeline_rule(
    "pipeline-stage", "The stage of a barrier or slot is one that it has.", example({"arrive": "full[3]"}), source="the steps themselves",
)  # fmt: skip


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


Emit = Callable[[dict[str, int]], Action]


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
        self._barriers = _Numbering(pipeline.barriers)
        self._slots = _Numbering(pipeline.slots)

    @property
    def barrier_count(self) -> int:
        """Barrier instances of all blocks."""
        return self._barriers.per_block * self.pipeline.blocks

    @property
    def slot_count(self) -> int:
        """Slot instances of all blocks."""
        return self._slots.per_block * self.pipeline.blocks

    def barrier(self, number: int) -> Barrier:
        """The description of a barrier instance."""
        found: Barrier = self._barriers.described(number)
        return found

    def slot(self, number: int) -> Slot:
        """The description of a slot instance."""
        found: Slot = self._slots.described(number)
        return found

    def barrier_rank(self, number: int) -> int:
        """The block that a barrier instance lies in."""
        return number // self._barriers.per_block

    def slot_rank(self, number: int) -> int:
        """The block that a slot instance lies in."""
        return number // self._slots.per_block

    def barrier_name(self, number: int) -> str:
        """A barrier instance as messages call it: full[2], or full[2] of block 1."""
        return self._barriers.name(number, self.pipeline.blocks)

    def slot_name(self, number: int) -> str:
        """A slot instance as messages call it."""
        return self._slots.name(number, self.pipeline.blocks)

    @cached_property
    def initialises(self) -> bool:
        """Whether some step initialises barriers; otherwise they are ready from the start."""
        return any(step.op == "init" for role in self.pipeline.roles for step in role.all_steps())

    def actions(self, agent: Agent) -> Iterator[Action]:
        """What an agent does, one action after another."""
        names = agent_names(self.pipeline, agent)
        return self._run(agent, agent.role.steps, names)

    def _run(self, agent: Agent, steps: tuple[Step | Loop, ...], names: dict[str, int]) -> Iterator[Action]:
        for step in steps:
            if isinstance(step, Loop):
                yield from self._loop(agent, step, names)
            else:
                yield from self._emitted(agent, (step,), names)

    def _loop(self, agent: Agent, loop: Loop, names: dict[str, int]) -> Iterator[Action]:
        count, start = (Expression.read(loop.counter, text, names).value(names) for text in (loop.count, loop.start))
        inner = {**names, loop.counter: start}
        if any(isinstance(step, Loop) for step in loop.steps):  # inner counts may depend on this counter
            for value in range(start, start + count):
                inner[loop.counter] = value
                yield from self._run(agent, loop.steps, inner)
            return
        yield from self._emitted(agent, loop.steps, inner, loop.counter, range(start, start + count))

    def _emitted(
        self, agent: Agent, steps: tuple[Any, ...], names: dict[str, int], counter: str = "", values: range = range(1)
    ) -> Iterator[Action]:
        """The actions of plain steps, for each value of a loop's counter."""
        compiled = [
            (
                None if step.when is None else Expression.read("when", step.when, names),
                self._emitter(agent, step, names),
            )
            for step in steps
        ]
        for value in values:
            if counter:
                names[counter] = value
            for when, emit in compiled:
                if when is None or when.value(names):
                    yield emit(names)

    def _emitter(self, agent: Agent, step: Step, names: dict[str, int]) -> Emit:
        """A function from the values of names to the action of a step: its target and arguments as numbers."""
        row, op, target = OPERATIONS[step.op], step.op, step.target
        given = {each.name: each.default for each in row.arguments} | dict(step.arguments)
        if op == "init":
            made = tuple(number for name in target for number in self._barriers.all_of(name, agent.rank))
            return lambda _: Action(op, made)

        def read(*arguments: str, default: int = 0) -> Expression:
            """The first of these arguments that the step takes."""
            found = next((name for name in arguments if name in given), "")
            return Expression.read(found or op, given.get(found, default), names)

        def unless(name: str, usual: str) -> Expression | None:
            return None if given.get(name, usual) == usual else read(name)

        blocks = self.pipeline.blocks
        own: tuple[int, ...] = (agent.rank,)
        chosen = row.target in ("group", "fence", "choice") or target in GROUPS
        on = given.get("barrier") or (target if row.target in ("barrier", "group or barrier") and not chosen else "")
        filled = (target if isinstance(target, tuple) else (target,)) if row.target in ("slot", "slots") else ()
        barriers = [self._barriers.at(on, names)] if on else []
        slots = [self._slots.at(slot, names) for slot in filled]
        into = [self._slots.at(given["into"], names)] if given.get("into") else []
        mask, label, owner = unless("mask", "own"), unless("tile", "any"), unless("barrier_rank", "own")
        value = Expression.read(op, target, names) if row.target == "number" else read("parity", "bytes", "pending")
        times = read("count", "threads", default=1)
        flag = any(given.get(name) is True for name in ("arrive", "drop", "noinc", "read"))
        choice = target if chosen else str(given.get("unit", given.get("by", "")))
        cut = CHUNK_BYTES if op == "copy" and choice == "bulk" else 1  # a bulk copy moves whole chunks

        def emit(values: dict[str, int]) -> Action:
            bits, ranks = 0, own
            if mask is not None:
                bits = mask.value(values)
                ranks = tuple(rank for rank in range(blocks) if bits >> rank & 1)
                if not 0 < bits < 1 << MAX_BLOCKS:
                    raise MASK.error("mask", f"mask {bits:#x} of {agent.name}", f"bits of the ranks 0 to {blocks - 1}",
                        f"Use {(1 << blocks) - 1:#x} for all blocks of the cluster.",
                    )  # fmt: skip
            number = value.value(values)
            owners = ranks if owner is None else tuple(owner.value({**values, "rank": rank}) for rank in ranks)
            return Action(
                op, tuple(at(rank, values) for rank in owners for at in barriers),
                tuple(at(rank, values) for rank in ranks for at in slots),
                number & 1 if op in ("wait", "tail") else number // cut * cut, times.value(values), flag, choice,
                tuple(at(rank, values) for rank in ranks for at in into), None if label is None else label.value(values),
                bits if bits >> blocks else 0,
            )  # fmt: skip

        return emit


class _Numbering:
    """Numbers for all stages of barriers or slots in all blocks."""

    def __init__(self, described: tuple[Any, ...]) -> None:
        self.first: dict[str, int] = {}
        self.places: list[tuple[Any, int]] = []
        for each in described:
            self.first[each.name] = len(self.places)
            self.places += [(each, stage) for stage in range(each.stages)]
        self.per_block = max(1, len(self.places))

    def described(self, number: int) -> Any:
        return self.places[number % self.per_block][0]

    def name(self, number: int, blocks: int) -> str:
        found, stage = self.places[number % self.per_block]
        staged = f"{found.name}[{stage}]" if found.stages > 1 else found.name
        return f"{staged} of block {number // self.per_block}" if blocks > 1 else staged

    def all_of(self, name: str, rank: int) -> tuple[int, ...]:
        first = rank * self.per_block + self.first[name]
        return tuple(range(first, first + self.places[self.first[name]][0].stages))

    def at(self, given: str, names: dict[str, int]) -> Callable[[int, dict[str, int]], int]:
        """A function from a block and the values of names to the number of what `given` refers to."""
        name, text = reference("reference", given)
        index = Expression.read(given, text, names)
        first, stages, per_block = self.first[name], self.places[self.first[name]][0].stages, self.per_block

        def number(rank: int, values: dict[str, int]) -> int:
            stage = index.value(values)
            if not 0 <= stage < stages:
                raise STAGE.error(given, f"{name}[{stage}], from {given}", f"{name} has stages 0 to {stages - 1}",
                    f"Take the index modulo {stages}, or give {name} more stages.",
                )  # fmt: skip
            return rank * per_block + first + stage

        return number


def agent_names(pipeline: Pipeline, agent: Agent) -> dict[str, int]:
    """The values of the names that an agent's expressions may use, loop counters apart."""
    across = pipeline.cluster[0]
    own = (agent.rank, agent.rank % across, agent.rank // across, agent.instance, pipeline.blocks)
    return {**pipeline.constants, **dict(zip(SELF_NAMES, own, strict=True))}


def _agent_name(pipeline: Pipeline, role: Role, instance: int, rank: int) -> str:
    which = f" {instance}" if role.instances > 1 else ""
    return f"{role.name}{which}" + (f" of block {rank}" if pipeline.blocks > 1 else "")


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
            found = next(self.source, None)
            if found is None:
                return None
            self.held.append(found)
        return self.held[number - self.first]
