"""ts.simulate: whether a pipeline is right in every order of its roles.

    one run, every operation certain of its phase, no mistake   ──▶  proven
    a hang, a fault, a race, wrong data                         ──▶  mistake, one sentence and the way into it
    an operation that could meet two phases                     ──▶  other orders are tried, then all of them

Roles do not branch on data. So one run with vector clocks (see `state`) decides for every order, unless a wait could
pass in two phases of equal parity or an arrival count in two phases; that aliasing is reported, and searched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from tilescope.errors import Violation, counted, printed
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.execution import Mark, Run, search, with_way
from tilescope.pipeline.mistake import Mistake
from tilescope.pipeline.program import NONE, Flight, Program
from tilescope.pipeline.recurrence import shortened
from tilescope.pipeline.state import State
from tilescope.reading import integer
from tilescope.rule import ARGUMENT_TYPE
from tilescope.value import Value

Verdict = Literal["proven", "mistake", "undecided"]
MAX_STATES = 20_000
_SUSPECTS, _SLOW_ROLES = 8, 16  # roles that are delayed in turn: first those with ambiguities
_NEVER_TICKS = 1 << 30  # of a copy that lands when nothing else can happen
_SHORT_STATES = 400  # searched for the shortest way into a mistake that is known already
_SHORT_ACTIONS = 1_000
_WAY_STEPS = 16


@dataclass(frozen=True, slots=True)
class Event(Value):
    """A piece of the timeline, in nominal ticks: what a role did, or bytes in flight."""

    start: int
    end: int
    role: str
    op: str
    said: str  # what has no block in its name lies in the role's, or where the bytes land
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
            why = f" {self.aliasing[0]}." if self.aliasing else ""
            return f"Undecided after {self.states or self.actions} {'states' if self.states else 'actions'}.{why}"
        searched = f" and {counted(self.states, 'state')}" if self.states else ""
        return f"Proven for every order: {counted(self.actions, 'action')}{searched}, no hang, no race."


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
    full, phase 0 expects 8192 bytes, the copies bring 4096: it never ends. Expect 4096 bytes.
    """
    if isinstance(pipeline, dict):
        pipeline = Pipeline.from_dict(pipeline)
    if not isinstance(pipeline, Pipeline):
        raise ARGUMENT_TYPE.error(
            "pipeline",
            printed(pipeline),
            "a Pipeline, or plain data that describes one",
            "Use ts.plan_pipeline(…), or Pipeline.from_file(…).",
        )
    max_states = integer("max_states", max_states, least=0)
    short = shortened(pipeline)
    if short is not None:  # a short run whose state recurs proves a long loop
        run = Run(short.program, watch=short)
        if run() is None and not run.machine.aliasing and short.recurs:
            return _simulation(pipeline, run, None, "proven", more=short.actions_cut)
    run = Run(Program(pipeline))
    mistake, states = run(), 0
    verdict: Verdict = "undecided" if run.queue else "proven"
    if mistake is not None:
        mistake = _shortest(run, mistake)
    elif run.machine.aliasing and not run.queue:
        mistake, states, complete = _other_orders(run.machine, max_states)
        verdict = "proven" if complete else "undecided"
    return _simulation(pipeline, run, mistake, verdict, states)


def _simulation(
    pipeline: Pipeline, run: Run, mistake: Mistake | None, verdict: Verdict, states: int = 0, *, more: int = 0
) -> Simulation:
    machine = run.machine
    return Simulation(
        verdict if mistake is None else "mistake",
        pipeline,
        mistake,
        tuple(machine.warnings.values()),
        tuple(machine.aliasing),
        machine.actions_done + more,
        states,
        tuple(_barrier_facts(run)),
        tuple(_event(machine.program, mark) for mark in run.marks()),
    )


def _event(program: Program, mark: Mark) -> Event:
    barrier = "" if mark.barrier == NONE else program.barriers[mark.barrier].title
    slots = tuple(program.slots[slot].title for slot in mark.slots)
    size = mark.done.number if mark.op in ("copy", "expect") or (mark.op == "flight" and slots) else 0
    agent = program.agents[mark.agent]
    block = program.barriers[mark.done.barrier].block if isinstance(mark.done, Flight) else agent.block
    what = program.said(mark.done, block)
    return Event(mark.start, mark.end, agent.title, mark.op, what, barrier, mark.phase, slots, size)


def _other_orders(machine: State, max_states: int) -> tuple[Mistake | None, int, bool]:
    """Orders that delay one role or the copies as long as can be; then all orders, as far as `max_states` reaches."""
    suspects = list(dict.fromkeys(machine.aliasing.values()))[:_SUSPECTS]
    others = [agent for agent in range(machine.agents)[:_SLOW_ROLES] if agent not in suspects]
    late_copies: list[dict[str, Any]] = [{"copy_ticks": _NEVER_TICKS}, {"copy_ticks": 0}]
    for options in [{"slow": agent} for agent in suspects] + late_copies + [{"slow": agent} for agent in others]:
        run = Run(machine.program, **options)
        if (mistake := run()) is not None:
            return _shortest(run, mistake), 0, False
    return search(machine.program, max_states)


def _shortest(run: Run, mistake: Mistake) -> Mistake:
    """The mistake with the shortest way into it; in a long run, with the last steps that touch its barrier or slot."""
    program = run.machine.program
    if mistake.outcome != "hang" and run.machine.actions_done <= _SHORT_ACTIONS:
        other, *_ = search(program, _SHORT_STATES)
        if other is not None and (other.rule, other.subject) == (mistake.rule, mistake.subject):
            return replace(mistake, way=other.way)
    done = [mark for mark in run.marks() if mark.op not in ("stuck", "phase")]
    touching = [
        mark
        for mark in done
        if mistake.subject
        in (program.barriers[mark.barrier].title, *(program.slots[slot].title for slot in mark.slots))
    ]
    steps = [program.told(mark.agent, mark.done) for mark in (touching or done)[-_WAY_STEPS:]]
    return with_way(mistake, run.machine, steps)


def _barrier_facts(run: Run) -> Iterator[BarrierFacts]:
    machine, pipeline = run.machine, run.machine.program.pipeline
    for barrier in pipeline.barriers:
        firsts = (at for at, part in enumerate(machine.program.barriers) if part.of == barrier and part.number == 0)
        notes = [machine.first_notes.get(at) or machine.notes[at] for at in firsts]
        sizes = tuple(sum(note.amount for note in noted if note.op == "expect") for noted in notes)
        arrivals: dict[str, int] = {}
        for note in next((noted for noted in notes if noted), ()):
            if note.op == "arrive":
                role = machine.program.agents[note.agent].of.name
                arrivals[role] = arrivals.get(role, 0) + note.amount
        waits = ((role.name, run.parities.get((barrier.name, role.name))) for role in pipeline.roles)
        parities = tuple((role, parity) for role, parity in waits if parity is not None)
        yield BarrierFacts(barrier.name, barrier.stages, barrier.count, sizes, tuple(arrivals.items()), parities)
