"""A pipeline's steps as CUDA C++: the kernel does what `ts.plan_pipeline` says, in its order and with its numbers.

    {wait = "full[i % STAGES]", parity = "i / STAGES % 2"}     const int slot = i % STAGES;
    {release = "empty[i % STAGES]", count = 4}          ──▶    mbarrier_wait(full + 8 * slot, i / STAGES % 2);
                                                               if (threadIdx.x % 32 == 0) mbarrier_arrive(empty + 8 * slot);

Constants of the pipeline (STAGES, k_tiles) are names of the kernel, and expressions mean the same in C. What a pipeline leaves
open, how a tile is copied, multiplied or written, comes from the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.expression import Expression, reference
from tilescope.pipeline.parts import Loop, Role, Step

_REFERRED = ("wait", "tail", "expect", "arrive", "release", "copy")  # steps whose target has a stage


@dataclass(frozen=True, slots=True)
class Work:
    """What the program says for steps of a role: lines by "op name", and how its loops open."""

    lines: dict[str, list[str]]  # "copy a", "multiply", "write", "store": the lines of that step
    opening: dict[str, list[str]] = field(default_factory=dict)  # loop counter: declarations behind `slot`
    notes: dict[str, str] = field(default_factory=dict)  # "op name": a comment on the line
    unrolled: tuple[str, ...] = ()  # counters of loops that index registers
    inside: tuple[str, ...] = ()  # groups whose steps stand in a function of the program


def role_named(pipeline: Pipeline, name: str) -> Role:
    """The role of that name."""
    return next(role for role in pipeline.roles if role.name == name)


def barrier_init(pipeline: Pipeline, notes: dict[str, str]) -> str:
    """What one thread does before the block meets: barriers initialised with their counts, and fenced."""
    lines: list[str] = []
    for step in role_named(pipeline, "producer").steps:
        if isinstance(step, Loop) or step.op == "sync":
            break
        if step.op == "init":
            counts = {barrier.name: barrier.count for barrier in pipeline.barriers}
            made = [(f"mbarrier_init({name} + 8 * stage, {counts[name]});", notes[name]) for name in step.target]
            width = max(len(line) for line, _ in made)
            lines += ["for (int stage = 0; stage < STAGES; ++stage) {"]
            lines += [*(f"  {line:{width}}  // {note}" for line, note in made), "}"]
        elif step.target == "mbarrier_init":
            lines.append('asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");')
    return indented(lines, 4)


def role_text(pipeline: Pipeline, name: str, work: Work, indent: int) -> str:
    """What a role does behind the meeting of the block, as lines of C."""
    role = role_named(pipeline, name)
    met = 1 + max(
        (number for number, step in enumerate(role.steps) if isinstance(step, Step) and step.op == "sync"), default=-1
    )
    return indented(_Printer(role, work).block(role.steps[met:], ""), indent)


def indented(lines: Iterable[str], indent: int) -> str:
    """Lines moved to the right; #pragma stays at the margin."""
    return "\n".join(line if line.startswith("#") else " " * indent + line for line in lines)


def group_text(pipeline: Pipeline, group: str) -> str:
    """The steps of the consumer that close a group of wgmma and wait for it."""
    consumer = role_named(pipeline, "consumer")
    printer = _Printer(consumer, Work({}))
    steps = [step for step in consumer.all_steps() if step.target == group]
    return " ".join(line for step in steps for line in printer.step(step, ""))


def expected_bytes(pipeline: Pipeline) -> int:
    """Bytes that the full barrier expects for one stage."""
    return next(
        int(step.arguments["bytes"]) for step in role_named(pipeline, "producer").all_steps() if step.op == "expect"
    )


def waited_parity(pipeline: Pipeline, name: str) -> str:
    """The parity with which a role waits for a stage, as an expression of the counter i."""
    return next(str(step.arguments["parity"]) for step in role_named(pipeline, name).all_steps() if step.op == "wait")


def start_parity(pipeline: Pipeline, name: str) -> int:
    """The parity of a role's first wait."""
    names = {**pipeline.constants, "i": 0}
    return Expression.read("parity", waited_parity(pipeline, name), names).value(names)


class _Printer:
    """The lines of one role's steps."""

    def __init__(self, role: Role, work: Work) -> None:
        self.role, self.work = role, work

    def block(self, steps: Sequence[Step | Loop], slot: str) -> Iterator[str]:
        """Steps one after another; neighbours that one thread does share its condition."""
        held: list[str] = []
        condition = ""
        for number, each in enumerate(steps):
            if isinstance(each, Loop):
                yield from self.loop(each)
                continue
            if isinstance(each, Step) and each.target in self.work.inside:
                continue
            lines, wanted = self.step(each, slot), self._condition(each)
            held, condition = [*held, *lines], wanted
            following = steps[number + 1] if number + 1 < len(steps) else None
            if wanted and isinstance(following, Step) and self._condition(following) == wanted:
                continue
            yield from _guarded(condition, held)
            held = []

    def loop(self, loop: Loop) -> Iterator[str]:
        """A loop with the pipeline's own bounds; `slot` is the stage that its first step names."""
        start, counter = str(loop.start), loop.counter
        end = str(loop.count) if start == "0" else f"{start} + {loop.count}"
        yield "#pragma unroll" + ("" if counter in self.work.unrolled else " 1")
        yield f"for (int {counter} = {start}; {counter} < {end}; ++{counter}) {{"
        slot = _slot(loop)
        body = [f"const int slot = {slot};"] if slot else []
        body += self.work.opening.get(counter, [])
        for line in (*body, *self.block(loop.steps, slot)):
            yield line if line.startswith("#") else f"  {line}"
        yield "}"

    def step(self, step: Step, slot: str) -> list[str]:
        """The lines of one step."""
        arguments: dict[str, Any] = dict(step.arguments)
        name = step.target if isinstance(step.target, str) else ""
        at = ""
        if step.op in _REFERRED:
            name, index = reference(step.op, step.target)
            at = f"{name} + 8 * slot" if index == slot else f"{name} + 8 * ({index})"
        note = self.work.notes.get(f"{step.op} {name}".strip(), "")
        comment = f"  // {note}" if note else ""
        match step.op, name:
            case (("wait" | "tail"), _):
                return [f"mbarrier_wait({at}, {arguments['parity']});{comment}"]
            case "expect", _:
                return [f"mbarrier_arrive_expect({at}, {arguments['bytes']});{comment}"]
            case (("arrive" | "release"), _):
                return [f"mbarrier_arrive({at});{comment}"]
            case "commit", _:
                return [f"{name}_commit();{comment}"]
            case "wait_group", _:
                read = "_read" if arguments.get("read") else ""
                return [f"{name}_wait{read}<{arguments.get('pending', 0)}>();{comment}"]
            case "fence", "proxy.async":
                return [f"fence_proxy_async();{comment}"]
            case "sync", _:
                threads = arguments.get("threads", 0)
                return [f"bar_sync<{step.target}, {threads}>();{comment}" if threads else f"__syncthreads();{comment}"]
        key = f"{step.op} {name}".strip()
        return self.work.lines[key if key in self.work.lines else step.op]

    def _condition(self, step: Step) -> str:
        """Which thread does the step; empty: all of the role."""
        first = "threadIdx.x == 0"
        if step.op == "store" or step.target == "bulk":  # bulk groups belong to the thread that stores
            return first
        when = [] if step.when is None else [str(step.when)]
        if step.op in ("arrive", "release"):
            every = self.role.threads // int(step.arguments.get("count", 1))
            when += [f"threadIdx.x % {every} == 0"] if every > 1 else []
        return " && ".join(when)


def _slot(loop: Loop) -> str:
    """The stage that the first of several steps names, where it moves with the loop."""
    if len(loop.steps) < 2 or any(isinstance(each, Loop) for each in loop.steps):
        return ""
    targets = [step.target for step in loop.steps if isinstance(step, Step)]
    named = [
        name for target in targets for name in (target if isinstance(target, tuple) else (target,)) if "[" in str(name)
    ]
    index = reference("step", named[0])[1] if named else ""
    return index if loop.counter in index else ""


def _guarded(condition: str, lines: list[str]) -> Iterator[str]:
    if not condition:
        yield from lines
        return
    if "% 32" in condition:
        yield "__syncwarp();"
    if len(lines) == 1:
        yield f"if ({condition}) {lines[0]}"
        return
    yield f"if ({condition}) {{"
    yield from (f"  {line}" for line in lines)
    yield "}"
