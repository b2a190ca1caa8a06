"""A pipeline's steps as CUDA C++: the kernel executes the steps of `ts.plan_pipeline` in its order and with its numbers.

    {wait = "full[i % STAGES]", parity = "i / STAGES % 2"}     mbarrier_wait(full + 8 * slot, phase);
    {release = "empty[i % STAGES]", count = 4}          ──▶    if (threadIdx.x % 32 == 0) mbarrier_arrive(empty + 8 * slot);

Constants of the pipeline (STAGES, k_tiles) are names of the kernel, and expressions mean the same in C. A loop that takes one
stage after another counts them in `slot` and `phase`: a division by a number of stages that is no power of two takes a fifth of
the time of a short K step. What a pipeline leaves open, how a tile is copied, multiplied or written, comes from the program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from tilescope.emitter.source_template import indent_lines
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.expression import Expression, reference
from tilescope.pipeline.operations import GROUPS, Written
from tilescope.pipeline.parts import Loop, Role, Step

_CALLS = {  # `at` is the address of a step's barrier, `name` that of its group
    "wait": "mbarrier_wait({at}, {parity})",
    "tail": "mbarrier_wait({at}, {parity})",
    "expect": "mbarrier_arrive_expect({at}, {bytes})",
    "arrive": "mbarrier_arrive({at})",
    "release": "{arrival}",
    "commit": "{commit_call}",
    "wait_group": "{name}_wait{suffix}<{pending}>()",
    "fence": "{fence_name}()",
    "sync": "{meeting}",
    "cluster": "cluster_sync()",
    "griddepcontrol": "griddepcontrol_{name}()",
}
_FENCES = {
    "proxy.async": "fence_proxy_async",
    "tcgen05.before": "tcgen05_fence_before",
    "tcgen05.after": "tcgen05_fence_after",
}


@dataclass(frozen=True, slots=True)
class Work:
    """The text of a program for the steps of a role: lines by "op name", and how its loops open."""

    lines: dict[str, list[str]]  # "copy a", "multiply", "write", "store": the lines of that step
    opening: dict[str, list[str]] = field(default_factory=dict)  # loop counter: declarations behind `slot`
    notes: dict[str, str] = field(default_factory=dict)  # "op name", or the call: a comment on the line
    unrolled: tuple[str, ...] = ()  # counters of loops that index registers
    doubled: tuple[str, ...] = ()  # of loops that hand registers on to the next turn: two turns at a time need no moves
    closing: dict[str, list[str]] = field(default_factory=dict)  # loop counter: lines behind the loop
    behind: dict[str, list[str]] = field(default_factory=dict)  # a call: lines that follow it
    inside: tuple[str, ...] = ()  # groups whose steps are in a function of the program


def role_named(pipeline: Pipeline, name: str) -> Role:
    """The role of that name."""
    return next(role for role in pipeline.roles if role.name == name)


def role_text(pipeline: Pipeline, name: str, work: Work, indent: int) -> str:
    """A role's steps after the block has synchronized, as lines of C; #pragma stays at the margin."""
    role = role_named(pipeline, name)
    lines = _Printer(role, work).block(role.steps[_behind_meeting(role) :], "")
    return "\n".join(indent_lines(lines, indent))


def _behind_meeting(role: Role) -> int:
    """The index of the step after the first synchronization of the block, or the cluster."""
    syncs = (
        place for place, step in enumerate(role.steps, 1) if isinstance(step, Step) and step.op in ("sync", "cluster")
    )
    return next(syncs, 0)


def group_text(pipeline: Pipeline, group: str) -> str:
    """The steps of the consumer that close a group of wgmma and wait for it."""
    consumer = role_named(pipeline, "consumer")
    printer = _Printer(consumer, Work({}))
    return " ".join(line for step in consumer.all_steps() if step.target == group for line in printer.step(step, ""))


@dataclass(frozen=True, slots=True)
class StageFacts:
    """The numbers of a load's two barriers: arrivals, bytes, the parities of both roles, and with which the consumer starts."""

    full_count: int
    empty_count: int
    expected_bytes: int | str  # a number, or an expression
    consumer_parity: str
    producer_parity: str
    start_parity: int


def stage_facts(pipeline: Pipeline) -> StageFacts:
    """The numbers of the barriers of a pipeline that loads."""
    counts = {barrier.name: barrier.count for barrier in pipeline.barriers}
    consumer_parity = _first_step(pipeline, "consumer", "wait").arguments["parity"]
    names = {**pipeline.constants, "i": 0}
    return StageFacts(
        full_count=counts["full"],
        empty_count=counts["empty"],
        expected_bytes=_first_step(pipeline, "producer", "expect").arguments["bytes"],
        consumer_parity=str(consumer_parity),
        producer_parity=str(_first_step(pipeline, "producer", "wait").arguments["parity"]),
        start_parity=Expression.read("parity", consumer_parity, names).value(names),
    )


def _first_step(pipeline: Pipeline, role: str, op: str) -> Step:
    """The first step of a role that is this operation."""
    return next(step for step in role_named(pipeline, role).all_steps() if step.op == op)


class _Printer:
    """The lines of one role's steps."""

    def __init__(self, role: Role, work: Work) -> None:
        self.role = role
        self.work = work
        self.takes_turns = any(isinstance(step, Loop) and step.counter == "turn" for step in role.steps)
        self.ring: _Ring | None = None  # the stages that the loop takes one after another

    def block(self, steps: Sequence[Step | Loop], slot: str) -> Iterator[str]:
        """Steps one after another; neighbours that one thread does share its condition."""
        printed = (step for step in steps if isinstance(step, Loop) or step.target not in self.work.inside)
        for condition, group in groupby(printed, self._condition):
            lines = [line for step in group for line in self.step(step, slot)]
            if not lines:
                continue
            if "% 32" in condition:
                yield "__syncwarp();"
            if not condition:
                yield from lines
            elif len(lines) == 1:
                yield f"if ({condition}) {lines[0]}"
            else:
                yield from (f"if ({condition}) {{", *(f"  {line}" for line in lines), "}")

    def loop(self, loop: Loop) -> Iterator[str]:
        """A loop with the pipeline's own bounds; `slot` is the stage that its first step names. One turn is written out.

        A loop whose count is a condition is an if.
        """
        start = str(loop.start)
        counter = loop.counter
        if "<" in str(loop.count):
            yield f"if ({loop.count}) {{"
            yield from indent_lines(self.block(loop.steps, ""), 2)
            yield "}"
            return
        slot = _slot(loop, has_opening=counter in self.work.opening)
        ring, outer = self.ring or _find_ring(loop), self.ring
        if str(loop.count) == "1":
            written_out = list(self.block(loop.steps, ""))
            code = " ".join(line.partition("//")[0] for line in written_out)
            if re.search(rf"\b{counter}\b", code) is None:
                yield from written_out
                return
        end = str(loop.count) if start == "0" else f"{start} + {loop.count}"
        turns = " 2" if counter in self.work.doubled else " 1"
        yield "#pragma unroll" if counter in self.work.unrolled else f"#pragma unroll{turns}"
        begin = "" if ring is None or outer is not None else ring.begin
        advance = "" if ring is None or ring.counter != counter else ", next_stage(slot, phase)"
        yield f"for (int {counter} = {start}{begin}; {counter} < {end}; ++{counter}{advance}) {{"
        self.ring = ring
        body = [*self.work.opening.get(counter, []), *self.block(loop.steps, slot)]
        self.ring = outer
        if slot and ring is None:
            body.insert(0, f"const int slot = {slot};")
        yield from indent_lines(body, 2)
        yield "}"
        yield from self.work.closing.get(counter, [])

    def step(self, step: Step | Loop, slot: str) -> list[str]:
        """The lines of one step."""
        if isinstance(step, Loop):
            return list(self.loop(step))
        name = index = ""
        if isinstance(step.target, str) and step.op not in ("fence", "sync"):
            name, index = reference(step.op, step.target)
        if f"{step.op} {step.target}" in self.work.lines:
            return self.work.lines[f"{step.op} {step.target}"]
        if step.op not in _CALLS:
            named = f"{step.op} {name or _first_name(step)}"
            return self.work.lines[named if named in self.work.lines else step.op]
        values = {argument.name: value for argument, value in step.values()}
        threads = values.get("threads")
        place = "slot" if index == slot else f"({index})"
        if self.ring is not None:
            place = self.ring.places.get(index, place)
            if "parity" in values:
                values["parity"] = str(values["parity"]).replace(self.ring.parity, "phase")
        at = f"{name} + 8 * {place}"
        mask = values.get("mask")
        call = _CALLS[step.op].format(
            **values,
            name=name,
            at=at,
            commit_call=_commit(name, at, mask),
            fence_name=_FENCES.get(str(step.target), ""),
            arrival=_arrival(at, mask, self._count_arrivals(step)),
            suffix="_read" if values.get("read") else "",
            meeting=_write_barrier(step.target, threads),
        )
        note = self.work.notes.get(call, self.work.notes.get(f"{step.op} {name or step.target}", ""))
        return [f"{call};  // {note}" if note else f"{call};", *self.work.behind.get(call, [])]

    def _condition(self, step: Step | Loop) -> str:
        """Which thread does the step; empty: all of the role."""
        if isinstance(step, Loop):
            return ""
        by_one = self.role.name == "consumer" and step.op in ("copy", "expect")
        when = [] if step.when is None else [str(step.when)]
        if step.op == "store" or step.target == "bulk" or by_one:  # bulk groups belong to the thread that stores
            if self.takes_turns:  # each stores its own tile
                when.append(f"threadIdx.x % {self.role.threads} == 0")
            elif "instance" not in "".join(when):
                when.append("threadIdx.x == 0")
            return " && ".join(when).replace("instance == 0", "threadIdx.x == 0")
        if step.op in ("arrive", "release"):
            threads = self._count_arrivals(step)
            blocks = _masked_blocks(step.arguments.get("mask"))
            if blocks > 1:  # a thread for every block
                when.append(f"threadIdx.x % {threads} < {blocks}")
            elif threads > 1:
                when.append(f"threadIdx.x % {threads} == 0")
        return " && ".join(when)

    def _count_arrivals(self, step: Step) -> int:
        """Threads of the role of which one arrives."""
        return self.role.threads // int(step.arguments.get("count", 1))


@dataclass(frozen=True, slots=True)
class _Ring:
    """The stages that a loop takes one after another: `slot` is the stage, `phase` the parity of its use."""

    step: str  # the number of a step, as an expression
    counter: str  # of the loop that counts steps
    start: str  # of that counter
    end: str = ""  # of a loop in this one that counts them: its first step behind

    @property
    def begin(self) -> str:
        """The declarations of both, behind the loop's counter."""
        first = _without_parentheses(self.step).removesuffix(self.counter).removesuffix(" + ")
        if self.start != "0":
            first = f"({first} + {self.start})" if first else f"({self.start})"
        return f", slot = {first} % STAGES, phase = {first} / STAGES % 2" if first else ", slot = 0, phase = 0"

    @property
    def parity(self) -> str:
        """The expression of `phase`."""
        return f"{self.step} / STAGES % 2"

    @property
    def places(self) -> dict[str, str]:
        """The stages of this step and of the one before it, by the expressions of their numbers."""
        step = _without_parentheses(self.step)
        before = [f"({step} - 1) % STAGES"]
        if self.end:
            before.append(f"({step.removesuffix(self.counter)}{self.end} - 1) % STAGES")
        return {f"{self.step} % STAGES": "slot"} | dict.fromkeys(before, "((slot == 0 ? STAGES : slot) - 1)")


def _find_ring(loop: Loop) -> _Ring | None:
    """The stages through which a loop steps, or a loop in it that goes on where it ended: from a multiple of the counter."""
    inner = [
        step
        for step in loop.steps
        if isinstance(step, Loop) and re.fullmatch(rf"{step.count} \* {loop.counter}", str(step.start))
    ]
    nested = [(each, "0", f"{each.start} + {each.count}") for each in inner if str(loop.start) == "0"]
    for counted, start, end in ((loop, str(loop.start), ""), *nested):
        for step in counted.steps:
            for target in () if isinstance(step, Loop) or step.op == "tail" else step.targets:
                number, _, ring = str(target).partition("[")[2].removesuffix("]").rpartition(" % ")
                ends = _without_parentheses(number).split(" + ")[-1] == counted.counter
                if ring == "STAGES" and ends:
                    return _Ring(number, counted.counter, start, end)
    return None


def _without_parentheses(expression: str) -> str:
    """An expression without the pair of parentheses around all of it.

    >>> _without_parentheses("((2 * turn + instance) * K_TILES + k_tile)"), _without_parentheses("k_tile")
    ('(2 * turn + instance) * K_TILES + k_tile', 'k_tile')
    """
    return expression[1:-1] if expression.startswith("(") and expression.endswith(")") else expression


def _write_barrier(bar: object, threads: Written | None) -> str:
    """The call that synchronizes threads: all of the block, or those of a barrier, whose number may differ between warpgroups.

    >>> _write_barrier(1, 128), _write_barrier("1 + instance", 128), _write_barrier(0, None)
    ('bar_sync<1, 128>()', 'bar_sync_at<128>(1 + instance)', '__syncthreads()')
    """
    if not threads:
        return "__syncthreads()"
    return f"bar_sync<{bar}, {threads}>()" if str(bar).isdigit() else f"bar_sync_at<{threads}>({bar})"


def _masked_blocks(mask: Written | None) -> int:
    """Blocks of a mask that is a number: all of the first ones; 1 where it is none, or an expression for one block.

    >>> _masked_blocks(3), _masked_blocks("1 << (rank - rank % 2)"), _masked_blocks(None)
    (2, 1, 1)
    """
    return mask.bit_count() if isinstance(mask, int) and mask else 1


def _arrival(at: str, mask: Written | None, threads: int) -> str:
    """The call of one arrival: at this block's barrier, at that of the one block of a mask, or by a thread each at all of them.

    >>> _arrival("empty", "1 << (rank - rank % 2)", 1), _arrival("empty", 1, 1)
    ('mbarrier_arrive_at(empty, rank - rank % 2)', 'mbarrier_arrive_at(empty, 0)')
    >>> _arrival("empty", 3, 128)
    'mbarrier_arrive_at(empty, threadIdx.x % 128)'
    """
    if not mask:
        return f"mbarrier_arrive({at})"
    if _masked_blocks(mask) > 1:
        return f"mbarrier_arrive_at({at}, threadIdx.x % {threads})"
    block = str(mask).removeprefix("1 << (").removesuffix(")") if "<<" in str(mask) else "0"
    return f"mbarrier_arrive_at({at}, {block})"


def _commit(name: str, at: str, mask: Written | None) -> str:
    """The call that closes a group, or makes the products so far arrive at a barrier, in a pair at that of every block."""
    if name in GROUPS:
        return f"{name}_commit()"
    return f"tcgen05_commit({at}, {mask})" if mask else f"tcgen05_commit({at})"


def _first_name(step: Step) -> str:
    """The name of the first of several slots that a step acts on."""
    return reference(step.op, str(step.targets[0]))[0]


def _slot(loop: Loop, *, has_opening: bool) -> str:
    """The stage that the first of several steps names, where it moves with the loop; declarations may need it for one."""
    steps = [step for step in loop.steps if isinstance(step, Step)]
    if (len(loop.steps) == 1 and not has_opening) or len(steps) < len(loop.steps):
        return ""
    stages = [reference("step", target)[1] for step in steps for target in step.targets if "[" in str(target)]
    its_own = stages and "instance" in stages[0] and loop.counter != "k_tile"  # of every consumer
    return stages[0] if stages and not its_own and loop.counter in stages[0] else ""
