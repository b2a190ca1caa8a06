"""ts.simulate: whether a pipeline is right in every order of its roles.

    one run, everything certain of its phase, no mistake   ──▶  proven
    a hang, a fault, a race, wrong data                    ──▶  mistake, one sentence and the way into it
    something that could meet two phases                   ──▶  other orders are tried, then all of them

Roles do not branch on data. So one run with vector clocks (see `clocks`) decides for every order, unless a wait could
pass in two phases of equal parity or an arrival count in two phases; that aliasing is reported, and searched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, Literal, NamedTuple

from tilescope.errors import RuleError, Violation, argument_type
from tilescope.pipeline.assumptions import limits
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.pipeline_fixes import remedies
from tilescope.pipeline.role_program import Program
from tilescope.pipeline.wording import said, told
from tilescope.reading import integer
from tilescope.sentence import counted
from tilescope.sync.all_orders.action import NONE, Flight
from tilescope.sync.all_orders.mistake import Mistake, MistakeFoundError
from tilescope.sync.all_orders.recurrence import shortened
from tilescope.sync.all_orders.search import COPY_TICKS, Found, Mark, Run, search, with_way
from tilescope.value import Value

Verdict = Literal["proven", "mistake", "undecided"]
MAX_STATES = 20_000
_SUSPECTS = 8  # roles with ambiguities that are delayed in turn
_SLOW_ROLES = 16  # among which the others are delayed after them
_NEVER_TICKS = 1 << 30  # of a copy that lands when nothing else can happen
_SHORT_STATES = 400  # searched for the shortest way into a mistake that is known already
_SHORT_ACTIONS = 1_000
_WAY_STEPS = 16
_MAX_REMEDIES = 24
_REMEDY_STATES = 2_000
_NO_CURE = (
    "Follow the steps that lead to it: no single change of a count, of bytes, of a parity or of a step cures it, "
    "of those that were tried."
)


@dataclass(frozen=True, slots=True)
class Event(Value):
    """A piece of the timeline, in nominal ticks: what a role did, or bytes in flight."""

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
    """What a barrier needs: its count, and for the first phase in every block the bytes and who arrives."""

    name: str
    stages: int
    count: int
    bytes: tuple[int, ...]  # expected in the first phase of stage 0, in each block
    arrivals: tuple[tuple[str, int], ...]  # role and its arrivals from all blocks, in the first block that gets any
    parities: tuple[tuple[str, int], ...]  # role and the parity of its first wait


@dataclass(frozen=True, slots=True)
class Simulation(Value):
    """What became of a pipeline: proven, a mistake, or undecided after `states` states."""

    verdict: Verdict
    pipeline: Pipeline
    mistake: Mistake | None
    warnings: tuple[Mistake, ...]
    aliasing: tuple[str, ...]  # operations that could meet two phases
    actions: int
    states: int  # of the search; 0 where one run decided
    barriers: tuple[BarrierFacts, ...]
    events: tuple[Event, ...]
    limits: tuple[str, ...] = ()  # what the verdict takes for granted

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
        if self.verdict == "undecided":
            looked_at = f"{self.states} states" if self.states else f"{self.actions} actions"
            why = f" {self.aliasing[0]}." if self.aliasing else ""
            return f"Undecided after {looked_at}.{why}"
        looked_at = counted(self.actions, "action")
        if self.states:
            looked_at += f" and {counted(self.states, 'state')}"
        return f"Proven for every order: {looked_at}, no hang, no race."


def simulate(pipeline: Pipeline | dict[str, Any], *, max_states: int = MAX_STATES) -> Simulation:
    """Whether a pipeline is right in every order of its roles, or the first mistake with the way into it.

    `pipeline` comes from `ts.plan_pipeline`, from `Pipeline.from_file`, or is plain data. `max_states` bounds the search
    that follows where a wait could pass in two phases of equal parity.

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
    full, phase 0 expects 8192 bytes, the copies bring 4096: the phase never ends. Expect 4096 bytes.
    """
    if isinstance(pipeline, dict):
        pipeline = Pipeline.from_dict(pipeline)
    if not isinstance(pipeline, Pipeline):
        raise RuleError(
            [argument_type("pipeline", pipeline, "a Pipeline, or its plain data", "Use ts.plan_pipeline(…).")]
        )
    decided = _decide(pipeline, integer("max_states", max_states, least=0))
    run = decided.run
    mistake = decided.mistake
    machine = run.machine
    if mistake is not None:
        verdict: Verdict = "mistake"
        mistake = _with_remedy(machine.program, mistake, decided.error)
    else:
        verdict = "proven" if decided.is_complete else "undecided"
    return Simulation(
        verdict=verdict,
        pipeline=pipeline,
        mistake=mistake,
        warnings=tuple(machine.warnings.values()),
        aliasing=tuple(run.clocks.doubts),
        actions=machine.actions_done + decided.actions_cut,
        states=decided.states,
        barriers=tuple(_barrier_facts(run)),
        events=tuple(_event(machine.program, mark) for mark in run.marks()),
        limits=tuple(limits(pipeline)),
    )


def _with_remedy(program: Program, mistake: Mistake, error: MistakeFoundError | None) -> Mistake:
    """The mistake with a remedy that was tried; best is one after which the pipeline is proven."""
    if error is None:
        return mistake
    tried = [*islice(remedies(program, error), _MAX_REMEDIES)]
    helping = ""
    for remedy in tried:
        try:
            left = _decide(remedy.pipeline, _REMEDY_STATES)
        except RuleError:
            continue
        if left.mistake is None and left.is_complete:
            return replace(mistake, fix=remedy.sentence)
        if not helping and left.mistake is not None and not _is_same(left.mistake, mistake):
            helping = f"{remedy.sentence} Then another mistake shows: {left.mistake.found} ({left.mistake.rule})."
    if helping:
        return replace(mistake, fix=helping)
    if tried:
        return replace(mistake, fix=_NO_CURE)
    return mistake


def _is_same(one: Mistake, other: Mistake) -> bool:
    """Whether two mistakes break the same rule in the same place."""
    return one.rule == other.rule and one.subject == other.subject


class _Decided(NamedTuple):
    """A run with what it, or a search after it, decided."""

    run: Run
    mistake: Mistake | None = None
    states: int = 0
    is_complete: bool = True  # without a mistake: whether that holds for every order
    actions_cut: int = 0
    error: MistakeFoundError | None = None  # of the mistake


def _decide(pipeline: Pipeline, max_states: int, copy_ticks: int = COPY_TICKS) -> _Decided:
    """Run a pipeline once; where that leaves doubts, try other orders."""
    short = shortened(pipeline)
    if short is not None and short.proves():  # a short run whose state recurs proves a long loop
        return _Decided(short, actions_cut=short.actions_cut)
    run = Run(Program(pipeline), copy_ticks=copy_ticks)
    mistake = run()
    doubts = run.clocks.doubts
    if mistake is not None:
        if not doubts or mistake.outcome in ("hang", "launch failure"):
            return _Decided(run, _shortest(run, mistake), error=run.error)
        found = search(run.machine.program, max_states)  # what clocks cannot order may still be in order
        if found.mistake is None and found.is_complete:
            return _Decided(run, states=found.states, is_complete=not run.machine.program.has_weak_arrivals)
        return _Decided(run, _shortest(run, mistake), found.states, error=run.error)
    if run.queue:  # too many actions
        return _Decided(run, is_complete=False)
    if doubts:
        found = _other_orders(run, max_states)
        certain = found.is_complete and not run.machine.program.has_weak_arrivals
        return _Decided(run, found.mistake, found.states, certain, error=found.error)
    return _Decided(run)


class _Touched(NamedTuple):
    """The title of a barrier, empty where there is none, and those of slots."""

    barrier: str
    slots: tuple[str, ...]


def _touched(program: Program, mark: Mark) -> _Touched:
    """The barrier and the slots of what was done; the end of a phase touches no slots."""
    slots = () if mark.op in ("phase", "stuck") else mark.done.slots
    barrier = "" if mark.barrier == NONE else program.barriers[mark.barrier].title
    return _Touched(barrier, tuple(program.slots[slot].title for slot in slots))


def _touches(program: Program, mark: Mark, title: str) -> bool:
    touched = _touched(program, mark)
    return title == touched.barrier or title in touched.slots


def _event(program: Program, mark: Mark) -> Event:
    touched = _touched(program, mark)
    moves_bytes = mark.op in ("copy", "expect") or (mark.op == "flight" and touched.slots)
    agent = program.agents[mark.agent]
    block = program.barriers[mark.done.barrier].block if isinstance(mark.done, Flight) else agent.block
    return Event(
        start=mark.start,
        end=mark.end,
        role=agent.title,
        op=mark.op,
        said=said(program, mark.done, block),
        barrier=touched.barrier,
        phase=mark.phase,
        slots=touched.slots,
        bytes=mark.done.number if moves_bytes else 0,
    )


def _other_orders(run: Run, max_states: int) -> Found:
    """Orders that delay one role or the copies as long as can be; then all orders, as far as `max_states` reaches."""
    machine = run.machine
    suspects = list(dict.fromkeys(run.clocks.doubts.values()))[:_SUSPECTS]
    others = [agent for agent in range(machine.agents)[:_SLOW_ROLES] if agent not in suspects]
    program = machine.program
    runs = chain(
        (Run(program, slow=agent) for agent in suspects),
        (Run(program, copy_ticks=ticks) for ticks in (_NEVER_TICKS, 0)),
        (Run(program, slow=agent) for agent in others),
    )
    for other in runs:
        mistake = other()
        if mistake is not None and mistake.outcome in ("hang", "launch failure"):
            return Found(_shortest(other, mistake), 0, is_complete=False, error=other.error)
    return search(program, max_states)


def _shortest(run: Run, mistake: Mistake) -> Mistake:
    """The mistake with the shortest way into it; in a long run, with the last steps that touch its barrier or slot."""
    program = run.machine.program
    if mistake.outcome != "hang" and run.machine.actions_done <= _SHORT_ACTIONS:
        other = search(program, _SHORT_STATES).mistake
        if other is not None and _is_same(other, mistake):
            return replace(mistake, way=other.way)
    done = [mark for mark in run.marks() if mark.op not in ("stuck", "phase")]
    touching = [mark for mark in done if _touches(program, mark, mistake.subject)]
    steps = [told(program, mark.agent, mark.done) for mark in (touching or done)[-_WAY_STEPS:]]
    return with_way(mistake, run.machine, steps)


def _barrier_facts(run: Run) -> Iterator[BarrierFacts]:
    machine = run.machine
    pipeline = machine.program.pipeline
    for barrier in pipeline.barriers:
        firsts = [at for at, part in enumerate(machine.program.barriers) if part.of == barrier and part.number == 0]
        counted_there = [machine.first_notes.get(at) or machine.notes[at] for at in firsts]
        notes = counted_there[: pipeline.blocks]
        of_earlier_grid = counted_there[pipeline.blocks :]
        if any(of_earlier_grid) and not any(notes):
            notes = of_earlier_grid
        sizes = tuple(sum(note.amount for note in noted if note.op == "expect") for noted in notes)
        arrivals: Counter[str] = Counter()
        for note in next((noted for noted in notes if noted), ()):
            if note.op == "arrive":
                arrivals[machine.program.agents[note.agent].of.name] += note.amount
        waits = ((role.name, run.parities.get((barrier.name, role.name))) for role in pipeline.roles)
        parities = tuple((role, parity) for role, parity in waits if parity is not None)
        yield BarrierFacts(barrier.name, barrier.stages, barrier.count, sizes, tuple(arrivals.items()), parities)
