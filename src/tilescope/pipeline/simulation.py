"""ts.simulate: whether a pipeline is right in every order of its roles.

    one run, every phase determined, no mistake            ──▶  proven
    the same, of a kernel that does more than that         ──▶  synchronization proven
    a deadlock, a fault, a data race, wrong data           ──▶  mistake, one sentence and the path into it
    an operation that could meet two phases                ──▶  other orders are tried, then all of them

Roles do not branch on data. So one run with vector clocks (see `tilescope.sync.role_clocks`) decides for every order, unless
a wait could pass in two phases of equal parity or an arrival count in two phases; that aliasing is reported, and searched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, Literal, NamedTuple

from tilescope.errors import RuleError, Violation, argument_type
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.expression import reference
from tilescope.pipeline.instances import Instances
from tilescope.pipeline.long_loops import shorten_loops
from tilescope.pipeline.messages import (
    Mistake,
    describe_action,
    describe_ambiguity,
    describe_mistake,
    describe_path,
    moved_bytes,
    step_of,
)
from tilescope.pipeline.parts import Role, Step
from tilescope.pipeline.pipeline_fixes import Fix, is_advised, propose_fixes
from tilescope.pipeline.unrolled_pipeline import UnrolledPipeline
from tilescope.reading import integer
from tilescope.sentence import counted
from tilescope.sync.all_orders.mistake import MistakeFoundError
from tilescope.sync.all_orders.search import COPY_TICKS, Found, Mark, Move, Run, search
from tilescope.sync.all_orders.state import PendingOperation
from tilescope.sync.happens_before import NONE
from tilescope.sync.role_events import Action
from tilescope.sync.trials import TrialBudget, Verdict, try_candidates
from tilescope.value import Value

Answer = Literal["proven", "synchronization proven", "mistake", "undecided"]
PROVEN: tuple[Answer, ...] = ("proven", "synchronization proven")
MAX_STATES = 20_000
_SUSPECTS = 8  # roles with ambiguities that are delayed in turn
_SLOW_ROLES = 16  # among which the others are delayed after them
_NEVER_TICKS = 1 << 30  # of a copy that lands when nothing else can happen
_SHORT_STATES = 400  # searched for the shortest path into a mistake that is known already
_SHORT_ACTIONS = 1_000
_PATH_STEPS = 16
_MAX_FIXES = 24
_FIX_STATES = 2_000
_FIX_ACTIONS = 100_000  # actions and states that all fixes of a short pipeline may use together
_ACTIONS_OF_ALL_FIXES = _MAX_FIXES  # times the actions of the pipeline itself
_NO_FIX = (
    "Follow the steps that lead to it: no single change of a count, of bytes, of a parity or of a step fixes it, "
    "of those that were tried."
)
_ARRIVING = ("arrive", "release", "expect", "commit")


@dataclass(frozen=True, slots=True)
class Event(Value):
    """A piece of the timeline, in nominal ticks: what a role did, or a pending copy."""

    start: int
    end: int
    role: str
    op: str
    said: str  # in words; a barrier or slot without a block in its name is in the role's block, or where the bytes land
    barrier: str = ""
    phase: int = -1
    slots: tuple[str, ...] = ()
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class BarrierFacts(Value):
    """The requirements of a barrier: its count, and for the first phase in every block the bytes and the arriving roles."""

    name: str
    stages: int
    count: int
    bytes: tuple[int, ...]  # expected in the first phase of stage 0, in each block
    arrivals: tuple[tuple[str, int], ...]  # role and its arrivals from all blocks, in the first block that gets any
    parities: tuple[tuple[str, int], ...]  # role and the parity of its first wait


@dataclass(frozen=True, slots=True)
class Simulation(Value):
    """The verdict about a pipeline: proven, a mistake, or undecided after `states` states."""

    verdict: Answer
    pipeline: Pipeline
    mistake: Mistake | None
    warnings: tuple[Mistake, ...]
    aliasing: tuple[str, ...]  # operations whose phase is not determined
    actions: int
    states: int  # of the search; 0 where one run decided
    barriers: tuple[BarrierFacts, ...]
    events: tuple[Event, ...]
    limits: tuple[str, ...] = ()  # what the verdict takes for granted
    not_covered: tuple[str, ...] = ()  # operations outside the pipeline; then only its synchronization is proven

    def __bool__(self) -> bool:
        return self.verdict == "proven"

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The mistake as a broken rule; empty where there is none."""
        return () if self.mistake is None else (self.mistake.violation(),)

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        if self.mistake is not None:
            return str(self.mistake)
        if self.verdict == "undecided" and self.pipeline.mistakes_found:
            mistakes = "; ".join(self.pipeline.mistakes_found)
            return f"Not proven: {mistakes}. The steps of the pipeline do not describe it."
        if self.verdict == "undecided":
            looked_at = f"{self.states} states" if self.states else f"{self.actions} actions"
            why = f" {self.aliasing[0]}." if self.aliasing else ""
            return f"Undecided after {looked_at}.{why}"
        looked_at = counted(self.actions, "action")
        if self.states:
            looked_at += f" and {counted(self.states, 'state')}"
        if self.not_covered:
            uncovered = "; ".join(self.not_covered)
            return f"Synchronization proven for every order: {looked_at}, no hang. Memory not covered: {uncovered}."
        return f"Proven for every order: {looked_at}, no hang, no race."


def simulate(pipeline: Pipeline | dict[str, Any], *, max_states: int = MAX_STATES) -> Simulation:
    """Whether a pipeline is correct in every interleaving of its roles, or the first mistake with the path to it.

    `pipeline` comes from `ts.plan_pipeline`, from `Pipeline.from_file`, or is plain data. `max_states` bounds the search
    that follows if a wait could pass in two phases of equal parity.

    >>> import tilescope as ts
    >>> print(ts.simulate({
    ...     "barriers": {"full": {"count": 1}}, "slots": {"a": {"bytes": 4096}},
    ...     "roles": [{"name": "thread", "steps": [
    ...         {"expect": "full", "bytes": 8192},
    ...         {"copy": "a", "bytes": 4096, "barrier": "full"},
    ...         {"wait": "full", "parity": 0},
    ...         {"read": ["a"]},
    ...     ]}],
    ... }).sentence)
    full, phase 0 expects 8192 bytes, the copies deliver 4096: the phase never ends. Expect 4096 bytes.
    """
    if isinstance(pipeline, dict):
        pipeline = Pipeline.from_dict(pipeline)
    if not isinstance(pipeline, Pipeline):
        raise RuleError(
            [argument_type("pipeline", pipeline, "a Pipeline, or its plain data", "Use ts.plan_pipeline(…).")]
        )
    decision = _decide(pipeline, integer("max_states", max_states, least=0))
    run = decision.run
    unrolled = decision.unrolled
    mistake = decision.mistake
    if mistake is not None:
        verdict: Answer = "mistake"
        mistake = _with_fix(decision, mistake)
    else:
        verdict = "undecided"
        if decision.is_complete and not pipeline.mistakes_found:
            verdict = "synchronization proven" if pipeline.not_covered else "proven"
    aliasing = dict.fromkeys(describe_ambiguity(unrolled, ambiguity) for ambiguity in run.clocks.ambiguities)
    return Simulation(
        verdict=verdict,
        pipeline=pipeline,
        mistake=mistake,
        warnings=tuple(describe_mistake(unrolled, warning) for warning in run.state.warnings.values()),
        aliasing=tuple(aliasing),
        actions=run.state.actions_done + decision.actions_cut,
        states=decision.states,
        barriers=tuple(_barrier_facts(unrolled, run)),
        events=tuple(_event(unrolled, mark) for mark in run.marks()),
        limits=tuple(find_assumptions(pipeline)),
        not_covered=pipeline.not_covered,
    )


def _with_fix(decision: _Decision, mistake: Mistake) -> Mistake:
    """The mistake with a fix that was tried; best is one after which the pipeline is proven."""
    assert decision.error is not None
    budget = TrialBudget(_FIX_ACTIONS + _ACTIONS_OF_ALL_FIXES * decision.run.state.actions_done)
    other_mistakes: dict[str, Mistake] = {}

    def judge(fix: Fix) -> Verdict:
        try:
            fixed = _decide(fix.pipeline, _FIX_STATES)
        except RuleError:
            return "fails"
        budget.spend(fixed.run.state.actions_done + fixed.states)
        if fixed.mistake is None:
            return "fixes" if fixed.is_complete else "fails"
        other_mistakes.setdefault(fix.sentence, fixed.mistake)
        return "fails" if _is_same(fixed.mistake, mistake) else "helps"

    fixes = islice(propose_fixes(decision.unrolled, decision.error), _MAX_FIXES)
    result = try_candidates(fixes, judge, budget)
    if result.fix is not None:
        return mistake.fixed_by(result.fix.pipeline, result.fix.sentence or mistake.fix)
    if result.help is not None:
        other = other_mistakes[result.help.sentence]
        return replace(mistake, fix=f"{result.help.sentence} Then another mistake shows: {other.found} ({other.rule}).")
    return replace(mistake, fix=_NO_FIX) if result.tried and not is_advised(decision.error) else mistake


def _is_same(mistake: Mistake, other: Mistake) -> bool:
    """Whether two mistakes break the same rule in the same place."""
    return mistake.rule == other.rule and mistake.subject == other.subject


class _Decision(NamedTuple):
    """A run with what it, or a search after it, decided."""

    unrolled: UnrolledPipeline
    run: Run
    mistake: Mistake | None = None
    states: int = 0
    is_complete: bool = True  # without a mistake: whether that holds for every order
    actions_cut: int = 0
    error: MistakeFoundError | None = None  # of the mistake


def _decide(pipeline: Pipeline, max_states: int, copy_ticks: int = COPY_TICKS) -> _Decision:
    """Run a pipeline once; if phases are not determined, try other orders."""
    unrolled = UnrolledPipeline(pipeline)
    short = shorten_loops(unrolled)
    if short is not None and short.proves():  # a short run whose state recurs proves a long loop
        return _Decision(unrolled, short, actions_cut=short.actions_cut)
    program = unrolled.role_program
    run = Run(program, copy_ticks=copy_ticks)
    error = run()
    ambiguities = run.clocks.ambiguities
    if error is not None:
        if not ambiguities or error.outcome in ("hang", "launch failure"):
            return _Decision(unrolled, run, _shortest(unrolled, run, error), error=error)
        result = search(program, max_states)  # what clocks cannot order may still be ordered
        if result.mistake is None and result.is_complete:
            return _Decision(unrolled, run, states=result.states, is_complete=not program.has_weak_arrivals)
        return _Decision(unrolled, run, _shortest(unrolled, run, error), result.states, error=error)
    if run.queue:  # too many actions
        return _Decision(unrolled, run, is_complete=False)
    if ambiguities:
        return _try_other_orders(unrolled, run, max_states)
    return _Decision(unrolled, run)


def _try_other_orders(unrolled: UnrolledPipeline, run: Run, max_states: int) -> _Decision:
    """Try orders that delay one role or the copies as long as can be; then all orders, as far as `max_states` reaches."""
    program = unrolled.role_program
    suspects = list(dict.fromkeys(ambiguity.agent for ambiguity in run.clocks.ambiguities))[:_SUSPECTS]
    others = [agent for agent in range(run.state.agents)[:_SLOW_ROLES] if agent not in suspects]
    runs = chain(
        (Run(program, slow=agent) for agent in suspects),
        (Run(program, copy_ticks=ticks) for ticks in (_NEVER_TICKS, 0)),
        (Run(program, slow=agent) for agent in others),
    )
    for other in runs:
        error = other()
        if error is not None and error.outcome in ("hang", "launch failure"):
            return _Decision(unrolled, run, _shortest(unrolled, other, error), is_complete=False, error=error)
    result = search(program, max_states)
    is_complete = result.is_complete and not program.has_weak_arrivals
    return _Decision(unrolled, run, _found_mistake(unrolled, result), result.states, is_complete, error=result.mistake)


def _found_mistake(unrolled: UnrolledPipeline, found: Found) -> Mistake | None:
    """The mistake of a search, with the path into it."""
    if found.mistake is None:
        return None
    return describe_mistake(unrolled, found.mistake, describe_path(unrolled, found.path, found.blocked))


def _shortest(unrolled: UnrolledPipeline, run: Run, error: MistakeFoundError) -> Mistake:
    """The mistake with the shortest path into it; in a long run, with the last steps that use its barrier or slot."""
    mistake = describe_mistake(unrolled, error)
    if mistake.outcome != "hang" and run.state.actions_done <= _SHORT_ACTIONS:
        other = _found_mistake(unrolled, search(unrolled.role_program, _SHORT_STATES))
        if other is not None and _is_same(other, mistake):
            return replace(mistake, way=other.way)
    done = [mark for mark in run.marks() if mark.kind not in ("stuck", "phase")]
    using = [mark for mark in done if _uses(unrolled, mark, mistake.subject)]
    path = [Move(mark.agent, mark.done) for mark in (using or done)[-_PATH_STEPS:]]
    blocked = run.state.find_blocked() if mistake.outcome == "hang" else []
    return replace(mistake, way=describe_path(unrolled, path, blocked))


# ---- the timeline and the facts of barriers


class _UsedParts(NamedTuple):
    """The title of a barrier, empty if there is none, and those of slots."""

    barrier: str
    slots: tuple[str, ...]


def _used_parts(parts: Instances, mark: Mark) -> _UsedParts:
    """The barrier and the slots of a mark; the end of a phase uses no slots."""
    slots = () if mark.kind in ("phase", "stuck") else mark.done.slots
    barrier = "" if mark.barrier == NONE else parts.barriers[mark.barrier].title
    return _UsedParts(barrier, tuple(parts.slots[slot].title for slot in slots))


def _uses(parts: Instances, mark: Mark, title: str) -> bool:
    used = _used_parts(parts, mark)
    return title == used.barrier or title in used.slots


def _event(parts: Instances, mark: Mark) -> Event:
    used = _used_parts(parts, mark)
    moves_bytes = mark.kind == "action" or (mark.kind == "flight" and used.slots)
    agent = parts.agents[mark.agent]
    block = parts.barriers[mark.done.barrier].block if isinstance(mark.done, PendingOperation) else agent.block
    return Event(
        start=mark.start,
        end=mark.end,
        role=agent.title,
        op=step_of(mark.done).op if isinstance(mark.done, Action) and mark.kind == "action" else mark.kind,
        said=describe_action(parts, mark.done, block),
        barrier=used.barrier,
        phase=mark.phase,
        slots=used.slots,
        bytes=moved_bytes(mark.done) if moves_bytes else 0,
    )


def _barrier_facts(parts: Instances, run: Run) -> Iterator[BarrierFacts]:
    state = run.state
    pipeline = parts.pipeline
    parities: dict[tuple[str, str], int] = {}  # of the first wait of each role at any stage of a barrier
    for (number, agent), parity in run.parities.items():
        parities.setdefault((parts.barriers[number].row_name, parts.agents[agent].row_name), parity)
    for barrier in pipeline.barriers:
        firsts = [at for at, part in enumerate(parts.barriers) if part.of == barrier and part.number == 0]
        in_blocks = [state.first_operations.get(at) or state.operations[at] for at in firsts]
        operations = in_blocks[: pipeline.blocks]
        of_earlier_grid = in_blocks[pipeline.blocks :]
        if any(of_earlier_grid) and not any(operations):
            operations = of_earlier_grid
        sizes = tuple(
            sum(operation.amount for operation in in_block if operation.op == "expect") for in_block in operations
        )
        arrivals: Counter[str] = Counter()
        for operation in next((in_block for in_block in operations if in_block), ()):
            if operation.op == "arrive":
                arrivals[parts.agents[operation.agent].of.name] += operation.amount
        waits = ((role.name, parities.get((barrier.name, role.name))) for role in pipeline.roles)
        first_parities = tuple((role, parity) for role, parity in waits if parity is not None)
        yield BarrierFacts(barrier.name, barrier.stages, barrier.count, sizes, tuple(arrivals.items()), first_parities)


# ---- the limits of the model


def find_assumptions(pipeline: Pipeline) -> Iterator[str]:
    """What the simulation of this pipeline assumes, in sentences.

    >>> wait, read = {"wait": "full", "parity": 0}, {"read": ["a"]}
    >>> role = {"name": "consumer", "threads": 128, "steps": [wait, read]}
    >>> data = {"barriers": {"full": {"count": 1}}, "slots": {"a": {"bytes": 64}}, "roles": [role]}
    >>> print(*find_assumptions(Pipeline.from_dict(data)))
    The warps of a role are assumed to pass a wait together.
    """
    steps = [(role, step) for role in pipeline.roles for step in role.all_steps()]
    if any(role.warps > 1 and step.op in ("wait", "tail") for role, step in steps):
        yield "The warps of a role are assumed to pass a wait together."
    if any(_reads_own_writes(role) for role in pipeline.roles):
        yield "The threads of a role are assumed to read only what they wrote themselves, or to synchronize before they read."
    if pipeline.blocks > 1 and any(step.op in _ARRIVING and "mask" in step.arguments for _, step in steps):
        yield "An arrival at the barriers of several blocks is assumed to reach all of them at once."
    if any(not _slot_bytes(pipeline, step) for _, step in steps if step.op == "copy"):
        yield "Slots without `bytes` are assumed to be filled whole by their copies."
    if any(step.arguments.get("unit") == "tcgen05" for _, step in steps):
        yield "The behaviour of tcgen05 follows the documentation; it was not measured on a card."


def _reads_own_writes(role: Role) -> bool:
    """Whether a role of several warps reads slots that it has written."""
    accessed: dict[str, set[str]] = {"read": set(), "write": set()}
    for step in role.all_steps():
        if step.op in accessed:
            accessed[step.op] |= {reference(step.op, target)[0] for target in step.targets}
    return role.warps > 1 and bool(accessed["read"] & accessed["write"])


def _slot_bytes(pipeline: Pipeline, step: Step) -> int:
    name = reference("copy", step.target)[0]
    return next(slot.bytes for slot in pipeline.slots if slot.name == name)
