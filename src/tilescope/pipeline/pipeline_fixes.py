"""Changes that could cure a mistake: each as the changed pipeline, with the sentence that asks for it.

    mistake     full expects 8192 bytes, the copies bring 4096
    remedies    "Expect 4096 bytes."  and the pipeline whose step expects 4096

Whoever prints a remedy runs the changed pipeline first: one that does not cure is not printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.expression import reference
from tilescope.pipeline.operations import Written
from tilescope.pipeline.parts import Barrier, Loop, Role, Step, flattened
from tilescope.pipeline.role_program import Program
from tilescope.sync.all_orders.action import Action
from tilescope.sync.all_orders.mistake import MistakeFoundError
from tilescope.sync.thread_limits import BARS, LEAST_REGISTERS, REGISTER_STEP, WARP_THREADS

_ARRIVING = ("arrive", "release")
_BAR_OPS = ("sync", "bar_arrive")
_MAX_ARRIVALS_LOOKED_AT = 4096

StepChange = Callable[[Step], tuple[Step, ...]]  # from a step to those that stand in its place


class Remedy(NamedTuple):
    """A change in words, and the pipeline with it."""

    sentence: str
    pipeline: Pipeline


def remedies(program: Program, error: MistakeFoundError) -> Iterator[Remedy]:
    """Changes that could cure a mistake, the most likely first; nothing where only advice can be given."""
    makers: dict[str, Callable[[Program, MistakeFoundError], Iterator[Remedy]]] = {
        "too few bytes": _other_bytes,
        "too many bytes": _other_bytes,
        "too few arrivals": _other_arrivals,
        "too many arrivals": _other_arrivals,
        "several roles": _other_arrivals,
        "some arrive": _other_arrivals,
        "nobody arrives": _other_arrivals,
        "nobody arrives again": _other_arrivals,
        "noinc": _other_arrivals,
        "parity": _other_parity,
        "late": _other_parity,
        "start": _other_parity,
        "registers": _fewer_registers,
        "fence": _more_fences,
        "warps": _more_meetings,
        "cp.async warps": _more_meetings,
        "circle": _other_order,
        "race": _more_waits,
        "sync": _other_threads,
        "stores": _last_wait,
        "products": _last_wait,
    }
    maker = makers.get(error.kind)
    return iter(()) if maker is None else maker(program, error)


# ---- changing steps


def _changed(pipeline: Pipeline, role: Role, change: StepChange) -> Pipeline:
    """The pipeline with some steps of a role changed."""

    def walked(steps: tuple[Step | Loop, ...]) -> tuple[Step | Loop, ...]:
        made: list[Step | Loop] = []
        for step in steps:
            if isinstance(step, Loop):
                made.append(replace(step, steps=walked(step.steps)))
            else:
                made.extend(change(step))
        return tuple(made)

    changed = replace(role, steps=walked(role.steps))
    return replace(pipeline, roles=tuple(changed if one is role else one for one in pipeline.roles))


def _with_argument(pipeline: Pipeline, role: Role, which: Callable[[Step], bool], **arguments: Written) -> Pipeline:
    """The pipeline in which the steps of a role that `which` names have other arguments."""

    def change(step: Step) -> tuple[Step, ...]:
        if not which(step):
            return (step,)
        return (replace(step, arguments={**step.arguments, **arguments}),)

    return _changed(pipeline, role, change)


def _names(step: Step, name: str) -> bool:
    """Whether a step acts on a barrier or slot of this name."""
    return any(isinstance(target, str) and target.partition("[")[0].strip() == name for target in step.targets)


def _on(name: str, *ops: str) -> Callable[[Step], bool]:
    """Whether a step is one of some operations on a barrier or slot."""
    return lambda step: step.op in ops and _names(step, name)


def _same(step: Step) -> Callable[[Step], bool]:
    return lambda other: other is step


def _steps(pipeline: Pipeline) -> Iterator[tuple[Role, Step]]:
    """Every step of every role."""
    return ((role, step) for role in pipeline.roles for step in role.all_steps())


# ---- barriers


def _other_bytes(program: Program, error: MistakeFoundError) -> Iterator[Remedy]:
    """A copy by one lane, or other expected bytes."""
    name = program.barriers[error.number("barrier")].row_name
    brought = error.number("brought")
    missing = brought - error.number("expected")
    pipeline = program.pipeline
    for role, step in _steps(pipeline):
        is_by_lanes = step.op == "copy" and step.arguments.get("lanes", 1) != 1
        barrier = step.arguments.get("barrier")  # None: a copy whose bytes no barrier counts
        if is_by_lanes and barrier is not None and reference("barrier", barrier).name == name:
            one = _with_argument(pipeline, role, _same(step), lanes=1)
            yield Remedy("Let one lane issue the copy: every lane that issues it brings the bytes once more.", one)
    expecting = [(role, step) for role, step in _steps(pipeline) if _on(name, "expect")(step)]
    for role, step in expecting:
        written = step.arguments["bytes"]
        if len(expecting) == 1 and isinstance(written, int):
            yield Remedy(f"Expect {brought} bytes.", _with_argument(pipeline, role, _same(step), bytes=brought))
        else:
            change = f"{abs(missing)} bytes {'more' if missing > 0 else 'less'}"
            changed = _with_argument(pipeline, role, _same(step), bytes=f"({written}) + ({missing})")
            yield Remedy(f"Let {role.name} expect {change}: {brought} in all.", changed)


def _other_arrivals(program: Program, error: MistakeFoundError) -> Iterator[Remedy]:
    """Another kind of arrival, another count of the barrier, or more arrivals."""
    barrier = error.number("barrier")
    row = program.barriers[barrier].of
    if not isinstance(row, Barrier):  # a barrier of threads
        return
    of_a_round = _arrivals_of_a_round(program, barrier)
    yield from _other_instructions(program.pipeline, row)
    yield from _other_counts(program.pipeline, row, (of_a_round, error.number("came")))
    yield from _more_arrivals(program.pipeline, row, of_a_round)


def _other_instructions(pipeline: Pipeline, row: Barrier) -> Iterator[Remedy]:
    """The form of an instruction that does arrive."""
    for role, step in _steps(pipeline):
        if _on(row.name, "cp_arrive")(step) and not step.arguments.get("noinc"):
            changed = _with_argument(pipeline, role, _same(step), noinc=True)
            yield Remedy("Use .noinc, so that the arrival is one of those that init counts.", changed)
        if _on(row.name, "expect")(step) and step.arguments.get("arrive") is False:
            changed = _with_argument(pipeline, role, _same(step), arrive=True)
            yield Remedy("Use mbarrier.arrive.expect_tx, which arrives as well.", changed)


def _other_counts(pipeline: Pipeline, row: Barrier, counts: tuple[int, ...]) -> Iterator[Remedy]:
    """The barrier with one of these counts."""
    for count in dict.fromkeys(counts):
        if count and count != row.count:
            barriers = tuple(replace(one, count=count) if one is row else one for one in pipeline.barriers)
            yield Remedy(f"Initialise {row.name} with {count}.", replace(pipeline, barriers=barriers))


def _more_arrivals(pipeline: Pipeline, row: Barrier, of_a_round: int) -> Iterator[Remedy]:
    """A role that arrives in every block, or as often as the barrier needs beside the other roles."""
    everyone = (1 << pipeline.blocks) - 1
    for role, step in _steps(pipeline):
        if not _on(row.name, *_ARRIVING)(step):
            continue
        if pipeline.blocks > 1 and step.arguments.get("mask") != everyone:
            changed = _with_argument(pipeline, role, _same(step), mask=everyone)
            yield Remedy(f"Let {role.name} release {row.name} in every block: mask = {everyone:#x}.", changed)
        written = step.arguments.get("count", 1)
        wanted = row.count - (of_a_round - written) if isinstance(written, int) else 0
        if wanted > 0 and wanted != written:
            changed = _with_argument(pipeline, role, _same(step), count=wanted)
            yield Remedy(f"Let {role.name} arrive at {row.name} with count = {wanted}.", changed)


def _arrivals_of_a_round(program: Program, barrier: int) -> int:
    """The arrivals at a barrier if every agent that ever arrives there does so once."""
    total = 0
    for agent in program.agents:
        for number, action in enumerate(program.actions(agent)):
            if barrier in action.barriers and _arrivals(action):
                total += _arrivals(action) * action.barriers.count(barrier)
                break
            if number >= _MAX_ARRIVALS_LOOKED_AT:
                break
    return total


def _arrivals(action: Action) -> int:
    if action.op == "expect":
        return int(action.flag)
    return action.times if action.op in (*_ARRIVING, "cp_arrive") else int(action.op == "commit")


def _other_parity(program: Program, error: MistakeFoundError) -> Iterator[Remedy]:
    name = program.barriers[error.number("barrier")].row_name
    role = program.agents[error.number("agent")].of
    waits = [step for step in role.all_steps() if _on(name, "wait", "tail")(step)]
    written = {str(step.arguments["parity"]) for step in waits}
    if len(written) != 1:
        return
    text = written.pop()
    parity = _flipped(text)
    changed = _with_argument(program.pipeline, role, _on(name, "wait", "tail"), parity=parity)
    if "parity" not in error.facts:  # it never passed: a producer
        sentence = f"Start with parity 1, which passes on a fresh barrier: parity = {parity}."
    else:
        sentence = f"Let {role.name} wait with the other parity: {parity}."
    yield Remedy(sentence, changed)


def _flipped(text: str) -> str | int:
    """The expression of the other parity.

    >>> _flipped("i / 4 % 2"), _flipped("i / 4 % 2 ^ 1"), _flipped("0")
    ('(i / 4 % 2) ^ 1', 'i / 4 % 2', 1)
    """
    if text in ("0", "1"):
        return 1 - int(text)
    head, _, tail = text.rpartition("^")
    return head.strip() if tail.strip() == "1" and head.strip() else f"({text}) ^ 1"


def _other_threads(program: Program, error: MistakeFoundError) -> Iterator[Remedy]:
    """bar.sync with as many threads as come."""
    came = error.number("came")
    asked = error.number("expected")

    def asks(step: Step) -> bool:
        return step.op in _BAR_OPS and step.arguments.get("threads", 0) in (asked, 0)

    pipeline = program.pipeline
    for number in range(len(pipeline.roles)):
        pipeline = _with_argument(pipeline, pipeline.roles[number], asks, threads=came)
    yield Remedy(f"Use threads = {came}.", pipeline)


# ---- memory


def _more_fences(program: Program, error: MistakeFoundError) -> Iterator[Remedy]:
    name = program.slots[error.number("slot")].of.name
    instruction = error.text("fence")
    first = program.agents[error.number("agent_before")].of
    second = program.agents[error.number("agent")].of
    kinds = {
        "fence.proxy.async": "proxy.async",
        "tcgen05.fence::after_thread_sync": "tcgen05.after",
        "tcgen05.fence::before_thread_sync": "tcgen05.before",
    }
    kind = kinds[instruction]
    fence = Step("fence", kind)

    def after(step: Step) -> tuple[Step, ...]:
        return (step, fence) if step.op in ("read", "write", "multiply") and _names(step, name) else (step,)

    def before(step: Step) -> tuple[Step, ...]:
        touches = step.op in ("read", "write", "multiply", "store", "copy")
        return (fence, step) if touches and _names(step, name) else (step,)

    if kind != "tcgen05.after":
        where = f"after the access of {first.name} and before its barrier"
        yield Remedy(f"Put {instruction} {where}.", _changed(program.pipeline, first, after))
    if kind != "tcgen05.before":
        sentence = f"Put {instruction} after the wait of {second.name}."
        yield Remedy(sentence, _changed(program.pipeline, second, before))


def _more_meetings(program: Program, error: MistakeFoundError) -> Iterator[Remedy]:
    """A sync of the role's warps after what they read or wrote, or after their wait for cp.async."""
    role = program.agents[error.number("agent_before")].of
    name = program.slots[error.number("slot")].of.name
    used = {step.target for _, step in _steps(program.pipeline) if step.op in _BAR_OPS}
    free = [bar for bar in range(1, BARS) if bar not in used]
    if not free or role.instances > 1:
        return
    threads = role.whole_threads(WARP_THREADS)
    sync = Step("sync", free[0], {"threads": threads})

    def after_access(step: Step) -> tuple[Step, ...]:
        if step.op in ("read", "write", "multiply") and _names(step, name):
            return step, sync
        return (step,)

    def after_fence(step: Step) -> tuple[Step, ...]:
        return (step, sync) if step.op == "fence" and step.target == "proxy.async" else (step,)

    def after_wait(step: Step) -> tuple[Step, ...]:
        return (step, sync) if step.op == "wait_group" and step.target == "cp.async" else (step,)

    pipeline = program.pipeline
    all_threads = f"the {threads} threads of {role.name}"
    if error.kind == "cp.async warps":
        yield Remedy(f"Put a sync of {all_threads} after cp.async.wait_group.", _changed(pipeline, role, after_wait))
    yield Remedy(f"Put a sync of {all_threads} after the access and its fence.", _changed(pipeline, role, after_fence))
    yield Remedy(f"Put a sync of {all_threads} after the access.", _changed(pipeline, role, after_access))


def _more_waits(program: Program, error: MistakeFoundError) -> Iterator[Remedy]:
    """A wait for a group before a slot is released, or before it is touched again."""
    role = program.agents[error.number("agent_before")].of
    waits = {
        "wgmma": _GroupWait("wgmma", "wgmma.wait_group 0", "the release", _ARRIVING),
        "store": _GroupWait("bulk", "cp.async.bulk.wait_group.read 0", "the next write", ("write", "sync")),
        "cp.async": _GroupWait(
            "cp.async", "cp.async.wait_group 0", "the read or the arrival", ("read", "multiply", *_ARRIVING)
        ),
    }
    missing = waits.get(error.text("how_before"))
    if missing is None:
        return
    commit = Step("commit", missing.group)
    wait = Step("wait_group", missing.group, {"read": True} if missing.group == "bulk" else {})

    def with_steps(*added: Step) -> Pipeline:
        return _changed(program.pipeline, role, lambda step: (*added, step) if step.op in missing.before else (step,))

    then = f"{missing.instruction} before {missing.place}"
    yield Remedy(f"Let {role.name} do {then}.", with_steps(wait))
    yield Remedy(f"Let {role.name} commit the group, and do {then}.", with_steps(commit, wait))


class _GroupWait(NamedTuple):
    """A wait for a group that is missing: its instruction, and the operations that it has to come before."""

    group: str
    instruction: str
    place: str  # in words
    before: tuple[str, ...]


# ---- roles


def _fewer_registers(program: Program, error: MistakeFoundError) -> Iterator[Remedy]:
    role = program.agents[error.number("agent")].of
    asked = error.number("registers")
    for registers in range(asked - REGISTER_STEP, LEAST_REGISTERS - 1, -REGISTER_STEP):

        def change(step: Step, registers: int = registers) -> tuple[Step, ...]:
            return (replace(step, target=registers),) if (step.op, step.target) == ("registers", asked) else (step,)

        sentence = f"Use at most {registers} registers a thread in {role.name}."
        yield Remedy(sentence, _changed(program.pipeline, role, change))


def _other_order(program: Program, error: MistakeFoundError) -> Iterator[Remedy]:
    """A step before the wait that holds it up."""
    for order in error.earlier_steps:
        role = program.agents[order.held].of
        needed = order.needed.step
        wait = order.wait.step
        assert needed is not None
        assert wait is not None
        changed = replace(role, steps=_moved(role.steps, needed, wait))
        roles = tuple(changed if one is role else one for one in program.pipeline.roles)
        yield Remedy(order.sentence, replace(program.pipeline, roles=roles))


def _moved(steps: tuple[Step | Loop, ...], needed: Step, wait: Step) -> tuple[Step | Loop, ...]:
    """The steps with one moved before a wait, or before the loop that holds the wait."""
    if not any(step is needed for step in steps):
        return tuple(
            replace(step, steps=_moved(step.steps, needed, wait)) if isinstance(step, Loop) else step for step in steps
        )
    made: list[Step | Loop] = []
    for step in steps:
        if step is wait or (isinstance(step, Loop) and any(one is wait for one in flattened(step.steps))):
            made.append(needed)
        if step is not needed:
            made.append(step)
    return tuple(made)


def _last_wait(program: Program, error: MistakeFoundError) -> Iterator[Remedy]:
    """A wait for all groups at the end of a role."""
    role = program.agents[error.number("agent")].of
    if error.kind == "stores":
        group = "bulk"
        sentence = "End with cp.async.bulk.wait_group.read 0."
    elif error.text("unit") == "wgmma":
        group = "wgmma"
        sentence = "End with wgmma.wait_group 0."
    else:
        return
    waits = [Step("commit", group), Step("wait_group", group, {"read": True} if group == "bulk" else {})]
    longer = replace(role, steps=(*role.steps, *waits))
    roles = tuple(longer if one is role else one for one in program.pipeline.roles)
    yield Remedy(sentence, replace(program.pipeline, roles=roles))
