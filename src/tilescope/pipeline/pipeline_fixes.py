"""Changes that could fix a mistake: each as the changed pipeline, with the sentence that suggests it.

    mistake     full expects 8192 bytes, the copies bring 4096
    fixes       "Expect 4096 bytes."  and the pipeline whose step expects 4096

Whoever prints a fix runs the changed pipeline first: one that does not help is not printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.expression import reference
from tilescope.pipeline.messages import describe_earlier_step
from tilescope.pipeline.operations import Written
from tilescope.pipeline.parts import Barrier, Loop, Role, Step, flatten_steps
from tilescope.pipeline.unrolled_pipeline import UnrolledPipeline
from tilescope.sync.all_orders.mistake import MistakeFoundError
from tilescope.sync.proxies import PROXY_ASYNC, TCGEN05_AFTER, TCGEN05_BEFORE
from tilescope.sync.thread_limits import BARS, LEAST_REGISTERS, REGISTER_STEP, WARP_THREADS

_ARRIVING = ("arrive", "release")
_BAR_OPS = ("sync", "bar_arrive")
_MAX_ACTIONS_SEARCHED = 4096

StepChange = Callable[[Step], tuple[Step, ...]]  # from a step to those in its place


class Fix(NamedTuple):
    """A change as a sentence, and the changed pipeline; without a sentence it is the fix that the mistake suggests."""

    sentence: str
    pipeline: Pipeline


def is_advised(error: MistakeFoundError) -> bool:
    """Whether the mistake's own advice stays if no change of it helps."""
    return error.kind in _ADVISED


def propose_fixes(program: UnrolledPipeline, error: MistakeFoundError) -> Iterator[Fix]:
    """Changes that could fix a mistake, the most likely first; nothing if only advice can be given."""
    proposers: dict[str, Callable[[UnrolledPipeline, MistakeFoundError], Iterator[Fix]]] = {
        "too few bytes": _change_bytes,
        "too many bytes": _change_bytes,
        "too few arrivals": _change_arrivals,
        "too many arrivals": _change_arrivals,
        "several roles": _change_arrivals,
        "some arrive": _change_arrivals,
        "nobody arrives": _change_arrivals,
        "nobody arrives again": _change_arrivals,
        "noinc": _change_arrivals,
        "parity": _flip_parity,
        "late": _flip_parity,
        "start": _flip_parity,
        "registers": _lower_registers,
        "fence": _add_fences,
        "warps": _add_warp_syncs,
        "cp.async warps": _add_warp_syncs,
        "circle": _move_step,
        "race": _add_group_waits,
        "sync": _change_threads,
        "stores": _add_last_wait,
        "products": _add_last_wait,
        **_ADVISED,
    }
    proposer = proposers.get(error.kind)
    return iter(()) if proposer is None else proposer(program, error)


# ---- changing steps


def _change_steps(pipeline: Pipeline, role: Role, change: StepChange) -> Pipeline:
    """The pipeline with some steps of a role changed."""

    def change_all(steps: tuple[Step | Loop, ...]) -> tuple[Step | Loop, ...]:
        result: list[Step | Loop] = []
        for step in steps:
            if isinstance(step, Loop):
                result.append(replace(step, steps=change_all(step.steps)))
            else:
                result.extend(change(step))
        return tuple(result)

    changed = replace(role, steps=change_all(role.steps))
    return replace(pipeline, roles=tuple(changed if other is role else other for other in pipeline.roles))


def _change_arguments(pipeline: Pipeline, role: Role, which: Callable[[Step], bool], **arguments: Written) -> Pipeline:
    """The pipeline in which the steps of a role that `which` names have other arguments."""

    def change(step: Step) -> tuple[Step, ...]:
        if not which(step):
            return (step,)
        return (replace(step, arguments={**step.arguments, **arguments}),)

    return _change_steps(pipeline, role, change)


def _acts_on(step: Step, name: str) -> bool:
    """Whether a step acts on a barrier or slot of this name."""
    return any(isinstance(target, str) and target.partition("[")[0].strip() == name for target in step.targets)


def _on(name: str, *ops: str) -> Callable[[Step], bool]:
    """Whether a step is one of some operations on a barrier or slot."""
    return lambda step: step.op in ops and _acts_on(step, name)


def _same(step: Step) -> Callable[[Step], bool]:
    return lambda other: other is step


def _steps(pipeline: Pipeline) -> Iterator[tuple[Role, Step]]:
    """Every step of every role."""
    return ((role, step) for role in pipeline.roles for step in role.all_steps())


# ---- barriers


def _change_bytes(program: UnrolledPipeline, error: MistakeFoundError) -> Iterator[Fix]:
    """A copy by one lane, or other expected bytes."""
    name = program.barriers[error.number("barrier")].row_name
    landed = error.number("brought")
    missing = landed - error.number("expected")
    pipeline = program.pipeline
    for role, step in _steps(pipeline):
        is_by_lanes = step.op == "copy" and step.arguments.get("lanes", 1) != 1
        barrier = step.arguments.get("barrier")  # None: a copy whose bytes no barrier counts
        if is_by_lanes and barrier is not None and reference("barrier", barrier).name == name:
            changed = _change_arguments(pipeline, role, _same(step), lanes=1)
            yield Fix("Let one lane issue the copy: every lane that issues it copies the bytes once more.", changed)
    expecting = [(role, step) for role, step in _steps(pipeline) if _on(name, "expect")(step)]
    for role, step in expecting:
        written = step.arguments["bytes"]
        if len(expecting) == 1:
            yield Fix(f"Expect {landed} bytes.", _change_arguments(pipeline, role, _same(step), bytes=landed))
        if len(expecting) > 1 or not isinstance(written, int):
            change = f"{abs(missing)} bytes {'more' if missing > 0 else 'less'}"
            changed = _change_arguments(pipeline, role, _same(step), bytes=f"({written}) + ({missing})")
            yield Fix(f"Let {role.name} expect {change}: {landed} in all.", changed)


def _change_arrivals(program: UnrolledPipeline, error: MistakeFoundError) -> Iterator[Fix]:
    """Another kind of arrival, another count of the barrier, or more arrivals."""
    barrier = error.number("barrier")
    row = program.barriers[barrier].of
    if not isinstance(row, Barrier):  # a barrier of threads
        return
    per_round = _arrivals_per_round(program, barrier)
    yield from _change_instructions(program.pipeline, row)
    yield from _change_count(program.pipeline, row, (per_round, error.number("came")))
    yield from _add_arrivals(program.pipeline, row, per_round)


def _change_instructions(pipeline: Pipeline, row: Barrier) -> Iterator[Fix]:
    """The form of an instruction that does arrive."""
    for role, step in _steps(pipeline):
        if _on(row.name, "cp_arrive")(step) and not step.arguments.get("noinc"):
            changed = _change_arguments(pipeline, role, _same(step), noinc=True)
            yield Fix("Use .noinc, so that the arrival is one of those that init counts.", changed)
        if _on(row.name, "expect")(step) and step.arguments.get("arrive") is False:
            changed = _change_arguments(pipeline, role, _same(step), arrive=True)
            yield Fix("Use mbarrier.arrive.expect_tx, which arrives as well.", changed)


def _change_count(pipeline: Pipeline, row: Barrier, counts: tuple[int, ...]) -> Iterator[Fix]:
    """The barrier with one of these counts."""
    for count in dict.fromkeys(counts):
        if count and count != row.count:
            barriers = tuple(replace(other, count=count) if other is row else other for other in pipeline.barriers)
            yield Fix(f"Initialise {row.name} with {count}.", replace(pipeline, barriers=barriers))


def _add_arrivals(pipeline: Pipeline, row: Barrier, per_round: int) -> Iterator[Fix]:
    """A role that arrives in every block, or as often as the barrier needs in addition to the other roles."""
    everyone = (1 << pipeline.blocks) - 1
    for role, step in _steps(pipeline):
        if not _on(row.name, *_ARRIVING)(step):
            continue
        if pipeline.blocks > 1 and step.arguments.get("mask") != everyone:
            changed = _change_arguments(pipeline, role, _same(step), mask=everyone)
            yield Fix(f"Let {role.name} release {row.name} in every block: mask = {everyone:#x}.", changed)
        written = step.arguments.get("count", 1)
        arrivals = row.count - (per_round - written) if isinstance(written, int) else 0
        if arrivals > 0 and arrivals != written:
            changed = _change_arguments(pipeline, role, _same(step), count=arrivals)
            yield Fix(f"Let {role.name} arrive at {row.name} with count = {arrivals}.", changed)


def _arrivals_per_round(program: UnrolledPipeline, barrier: int) -> int:
    """The arrivals at a barrier if every agent that ever arrives there does so once."""
    total = 0
    for agent in program.agents:
        for number, action in enumerate(program.actions(agent)):
            if barrier in action.barriers and action.arrivals_at_mbarriers:
                total += action.arrivals_at_mbarriers * action.barriers.count(barrier)
                break
            if number >= _MAX_ACTIONS_SEARCHED:
                break
    return total


def _flip_parity(program: UnrolledPipeline, error: MistakeFoundError) -> Iterator[Fix]:
    name = program.barriers[error.number("barrier")].row_name
    role = program.agents[error.number("agent")].of
    waits = [step for step in role.all_steps() if _on(name, "wait", "tail")(step)]
    written = {str(step.arguments["parity"]) for step in waits}
    if len(written) != 1:
        return
    text = written.pop()
    parity = _flipped_parity(text)
    changed = _change_arguments(program.pipeline, role, _on(name, "wait", "tail"), parity=parity)
    if "parity" not in error.facts:  # it never passed: a producer
        sentence = f"Start with parity 1, which passes on a fresh barrier: parity = {parity}."
    else:
        sentence = f"Let {role.name} wait with the other parity: {parity}."
    yield Fix(sentence, changed)


def _flipped_parity(text: str) -> str | int:
    """The expression of the other parity.

    >>> _flipped_parity("i / 4 % 2"), _flipped_parity("i / 4 % 2 ^ 1"), _flipped_parity("0")
    ('(i / 4 % 2) ^ 1', 'i / 4 % 2', 1)
    """
    if text in ("0", "1"):
        return 1 - int(text)
    head, _, tail = text.rpartition("^")
    return head.strip() if tail.strip() == "1" and head.strip() else f"({text}) ^ 1"


def _change_threads(program: UnrolledPipeline, error: MistakeFoundError) -> Iterator[Fix]:
    """bar.sync with as many threads as come."""
    came = error.number("came")
    expected = error.number("expected")

    def asks(step: Step) -> bool:
        return step.op in _BAR_OPS and step.arguments.get("threads", 0) in (expected, 0)

    pipeline = program.pipeline
    for number in range(len(pipeline.roles)):
        pipeline = _change_arguments(pipeline, pipeline.roles[number], asks, threads=came)
    yield Fix(f"Use threads = {came}.", pipeline)


# ---- memory


def _add_fences(program: UnrolledPipeline, error: MistakeFoundError) -> Iterator[Fix]:
    name = program.slots[error.number("slot")].of.name
    instruction = error.text("fence")
    first = program.agents[error.number("agent_before")].of
    second = program.agents[error.number("agent")].of
    fences = {fence.instruction: fence for fence in (PROXY_ASYNC, TCGEN05_AFTER, TCGEN05_BEFORE)}
    needed = fences[instruction]
    fence = Step("fence", needed.kind)

    def after(step: Step) -> tuple[Step, ...]:
        return (step, fence) if step.op in ("read", "write", "multiply") and _acts_on(step, name) else (step,)

    def before(step: Step) -> tuple[Step, ...]:
        is_access = step.op in ("read", "write", "multiply", "store", "copy")
        return (fence, step) if is_access and _acts_on(step, name) else (step,)

    if needed.by != "second":
        where = f"after the access of {first.name} and before its barrier"
        yield Fix(f"Put {instruction} {where}.", _change_steps(program.pipeline, first, after))
    if needed.by != "first":
        sentence = f"Put {instruction} after the wait of {second.name}."
        yield Fix(sentence, _change_steps(program.pipeline, second, before))


def _add_warp_syncs(program: UnrolledPipeline, error: MistakeFoundError) -> Iterator[Fix]:
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
        if step.op in ("read", "write", "multiply") and _acts_on(step, name):
            return step, sync
        return (step,)

    def after_fence(step: Step) -> tuple[Step, ...]:
        return (step, sync) if step.op == "fence" and step.target == "proxy.async" else (step,)

    def after_wait(step: Step) -> tuple[Step, ...]:
        return (step, sync) if step.op == "wait_group" and step.target == "cp.async" else (step,)

    pipeline = program.pipeline
    all_threads = f"the {threads} threads of {role.name}"
    if error.kind == "cp.async warps":
        yield Fix(f"Put a sync of {all_threads} after cp.async.wait_group.", _change_steps(pipeline, role, after_wait))
    yield Fix(
        f"Put a sync of {all_threads} after the access and its fence.", _change_steps(pipeline, role, after_fence)
    )
    yield Fix(f"Put a sync of {all_threads} after the access.", _change_steps(pipeline, role, after_access))


def _add_group_waits(program: UnrolledPipeline, error: MistakeFoundError) -> Iterator[Fix]:
    """A wait for a group before a slot is released, or before it is accessed again."""
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
        return _change_steps(
            program.pipeline, role, lambda step: (*added, step) if step.op in missing.before else (step,)
        )

    then = f"{missing.instruction} before {missing.place}"
    yield Fix(f"Let {role.name} do {then}.", with_steps(wait))
    yield Fix(f"Let {role.name} commit the group, and do {then}.", with_steps(commit, wait))


class _GroupWait(NamedTuple):
    """A missing wait for a group: its instruction, and the operations that it has to come before."""

    group: str
    instruction: str
    place: str  # in words
    before: tuple[str, ...]


# ---- roles


def _lower_registers(program: UnrolledPipeline, error: MistakeFoundError) -> Iterator[Fix]:
    role = program.agents[error.number("agent")].of
    requested = error.number("registers")
    for registers in range(requested - REGISTER_STEP, LEAST_REGISTERS - 1, -REGISTER_STEP):

        def change(step: Step, registers: int = registers) -> tuple[Step, ...]:
            return (replace(step, target=registers),) if (step.op, step.target) == ("registers", requested) else (step,)

        sentence = f"Use at most {registers} registers a thread in {role.name}."
        yield Fix(sentence, _change_steps(program.pipeline, role, change))


def _move_step(program: UnrolledPipeline, error: MistakeFoundError) -> Iterator[Fix]:
    """A step before the wait that blocks it."""
    for order in error.earlier_steps:
        role = program.agents[order.blocked].of
        needed = order.needed.step
        wait = order.wait.step
        assert isinstance(needed, Step)
        assert isinstance(wait, Step)
        changed = replace(role, steps=_move_before(role.steps, needed, wait))
        roles = tuple(changed if other is role else other for other in program.pipeline.roles)
        yield Fix(describe_earlier_step(program, order), replace(program.pipeline, roles=roles))


def _move_before(steps: tuple[Step | Loop, ...], needed: Step, wait: Step) -> tuple[Step | Loop, ...]:
    """The steps with one moved before a wait, or before the loop that holds the wait."""
    if not any(step is needed for step in steps):
        return tuple(
            replace(step, steps=_move_before(step.steps, needed, wait)) if isinstance(step, Loop) else step
            for step in steps
        )
    result: list[Step | Loop] = []
    for step in steps:
        if step is wait or (isinstance(step, Loop) and any(inner is wait for inner in flatten_steps(step.steps))):
            result.append(needed)
        if step is not needed:
            result.append(step)
    return tuple(result)


def _add_last_wait(program: UnrolledPipeline, error: MistakeFoundError) -> Iterator[Fix]:
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
    roles = tuple(longer if other is role else other for other in program.pipeline.roles)
    yield Fix(sentence, replace(program.pipeline, roles=roles))


# ---- clusters


def _fence_init(program: UnrolledPipeline, _: MistakeFoundError) -> Iterator[Fix]:
    """fence.mbarrier_init after every init."""
    fence = Step("fence", "mbarrier_init")
    pipeline = program.pipeline
    for role in pipeline.roles:
        pipeline = _change_steps(pipeline, role, lambda step: (step, fence) if step.op == "init" else (step,))
    yield Fix("", pipeline)


def _expect_everywhere(program: UnrolledPipeline, error: MistakeFoundError) -> Iterator[Fix]:
    """The bytes are expected in every block, not in some."""
    name = program.barriers[error.number("barrier")].row_name
    for role, expect in _steps(program.pipeline):
        if not _on(name, "expect")(expect) or expect.when is None:
            continue

        def change(step: Step, expect: Step = expect) -> tuple[Step, ...]:
            return (replace(step, when=None) if step is expect else step,)

        yield Fix("", _change_steps(program.pipeline, role, change))


def _end_together(program: UnrolledPipeline, _: MistakeFoundError) -> Iterator[Fix]:
    """Every role ends at a cluster barrier."""
    roles = tuple(replace(role, steps=(*role.steps, Step("cluster", "sync"))) for role in program.pipeline.roles)
    yield Fix("", replace(program.pipeline, roles=roles))


_ADVISED: dict[str, Callable[[UnrolledPipeline, MistakeFoundError], Iterator[Fix]]] = {
    "init fence": _fence_init,
    "receiver": _expect_everywhere,
    "left": _end_together,
}
