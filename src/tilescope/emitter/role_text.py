"""A pipeline's steps as CUDA C++: the kernel does what `ts.plan_pipeline` says, in its order and with its numbers.

    {wait = "full[i % STAGES]", parity = "i / STAGES % 2"}     const int slot = i % STAGES;
    {release = "empty[i % STAGES]", count = 4}          ──▶    mbarrier_wait(full + 8 * slot, i / STAGES % 2);
                                                               if (threadIdx.x % 32 == 0) mbarrier_arrive(empty + 8 * slot);

Constants of the pipeline (STAGES, k_tiles) are names of the kernel, and expressions mean the same in C. What a pipeline leaves
open, how a tile is copied, multiplied or written, comes from the program.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.parts import OPERATIONS, Expression, Loop, Role, Step, reference


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


def role_text(pipeline: Pipeline, name: str, work: Work, indent: int) -> str:
    """What a role does behind the meeting of the block, as lines of C; #pragma stays at the margin."""
    role = role_named(pipeline, name)
    met = max(
        (place for place, step in enumerate(role.steps, 1) if isinstance(step, Step) and step.op == "sync"), default=0
    )
    lines = _Printer(role, work).block(role.steps[met:], "")
    return "\n".join(line if line.startswith("#") else " " * indent + line for line in lines)


def group_text(pipeline: Pipeline, group: str) -> str:
    """The steps of the consumer that close a group of wgmma and wait for it."""
    consumer = role_named(pipeline, "consumer")
    printer = _Printer(consumer, Work({}))
    return " ".join(line for step in consumer.all_steps() if step.target == group for line in printer.step(step, ""))


def expected_bytes(pipeline: Pipeline) -> int:
    """Bytes that the full barrier expects for one stage."""
    return int(_first(pipeline, "producer", "expect").arguments["bytes"])


def waited_parity(pipeline: Pipeline, name: str) -> str:
    """The parity with which a role waits for a stage, as an expression of the counter i."""
    return str(_first(pipeline, name, "wait").arguments["parity"])


def start_parity(pipeline: Pipeline, name: str) -> int:
    """The parity of a role's first wait."""
    names = {**pipeline.constants, "i": 0}
    return Expression.read("parity", waited_parity(pipeline, name), names).value(names)


def _first(pipeline: Pipeline, role: str, op: str) -> Step:
    return next(step for step in role_named(pipeline, role).all_steps() if step.op == op)


class _Printer:
    """The lines of one role's steps."""

    def __init__(self, role: Role, work: Work) -> None:
        self.role, self.work = role, work

    def block(self, steps: Sequence[Step | Loop], slot: str) -> Iterator[str]:
        """Steps one after another; neighbours that one thread does share its condition."""
        printed = (step for step in steps if isinstance(step, Loop) or step.target not in self.work.inside)
        for condition, group in groupby(printed, self._condition):
            lines = [line for step in group for line in self.step(step, slot)]
            if not condition:
                yield from lines
                continue
            if "% 32" in condition:
                yield "__syncwarp();"
            if len(lines) == 1:
                yield f"if ({condition}) {lines[0]}"
            else:
                yield from (f"if ({condition}) {{", *(f"  {line}" for line in lines), "}")

    def loop(self, loop: Loop) -> Iterator[str]:
        """A loop with the pipeline's own bounds; `slot` is the stage that its first step names."""
        start, counter, slot = str(loop.start), loop.counter, _slot(loop)
        end = str(loop.count) if start == "0" else f"{start} + {loop.count}"
        yield "#pragma unroll" + ("" if counter in self.work.unrolled else " 1")
        yield f"for (int {counter} = {start}; {counter} < {end}; ++{counter}) {{"
        opening = [f"const int slot = {slot};"] if slot else []
        for line in (*opening, *self.work.opening.get(counter, []), *self.block(loop.steps, slot)):
            yield line if line.startswith("#") else f"  {line}"
        yield "}"

    def step(self, step: Step | Loop, slot: str) -> list[str]:
        """The lines of one step."""
        if isinstance(step, Loop):
            return list(self.loop(step))
        name, at, arguments = step.target if isinstance(step.target, str) else "", "", step.arguments
        if name and OPERATIONS[step.op].target.kind in ("barrier", "slot"):
            name, index = reference(step.op, name)
            at = f"{name} + 8 * slot" if index == slot else f"{name} + 8 * ({index})"
        match step.op:
            case "wait" | "tail":
                call = f"mbarrier_wait({at}, {arguments['parity']})"
            case "expect":
                call = f"mbarrier_arrive_expect({at}, {arguments['bytes']})"
            case "arrive" | "release":
                call = f"mbarrier_arrive({at})"
            case "commit":
                call = f"{name}_commit()"
            case "wait_group":
                call = f"{name}_wait{'_read' if arguments.get('read') else ''}<{arguments.get('pending', 0)}>()"
            case "fence":
                call = "fence_proxy_async()"
            case "sync":
                threads = arguments.get("threads", 0)
                call = f"bar_sync<{step.target}, {threads}>()" if threads else "__syncthreads()"
            case _:
                return self.work.lines.get(f"{step.op} {name}") or self.work.lines[step.op]
        note = self.work.notes.get(f"{step.op} {name}", "")
        return [f"{call};  // {note}" if note else f"{call};"]

    def _condition(self, step: Step | Loop) -> str:
        """Which thread does the step; empty: all of the role."""
        if isinstance(step, Loop):
            return ""
        if step.op == "store" or step.target == "bulk":  # bulk groups belong to the thread that stores
            return "threadIdx.x == 0"
        when = [] if step.when is None else [str(step.when)]
        if step.op in ("arrive", "release"):
            threads = self.role.threads // int(step.arguments.get("count", 1))
            when += [f"threadIdx.x % {threads} == 0"] if threads > 1 else []
        return " && ".join(when)


def _slot(loop: Loop) -> str:
    """The stage that the first of several steps names, where it moves with the loop."""
    steps = [step for step in loop.steps if isinstance(step, Step)]
    named = [target for step in steps for target in step.targets if "[" in str(target)]
    if len(loop.steps) < 2 or len(steps) < len(loop.steps) or not named:
        return ""
    index = reference("step", named[0])[1]
    return index if loop.counter in index else ""
