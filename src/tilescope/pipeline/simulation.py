"""ts.simulate: whether a pipeline is right in every order of its roles.

    one run, every operation certain of its phase, no mistake   ──▶  proven
    a hang, a fault, a race, wrong data                         ──▶  mistake, one sentence and the way into it
    an operation that could meet two phases                     ──▶  other orders are tried, then all of them

Roles do not branch on data. So one run with vector clocks (see `machine`) decides for every order, unless a wait could
pass in two phases of equal parity or an arrival count in two phases; that aliasing is reported, and searched.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from tilescope.errors import Violation, counted, printed
from tilescope.pipeline.barriers import Ambiguity, Note
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.execution import COPY_TICKS, Mark, Run, mark_text, search, with_way
from tilescope.pipeline.expression import reference
from tilescope.pipeline.machine import Machine
from tilescope.pipeline.mistake import Mistake
from tilescope.pipeline.program import NONE, Program
from tilescope.pipeline.recurrence import Watch, shortened
from tilescope.reading import plain_int
from tilescope.rule import ARGUMENT_TYPE
from tilescope.value import Value

Verdict = Literal["proven", "mistake", "undecided"]
MAX_STATES = 20_000
MAX_ACTIONS = 20_000_000
MAX_MARKS = 6_000
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
    said: str
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
        raise ARGUMENT_TYPE.error("pipeline", printed(pipeline), "a Pipeline, or plain data that describes one",
            "Use ts.plan_pipeline(…), or Pipeline.from_file(…).",
        )  # fmt: skip
    states_left = plain_int(max_states)
    if states_left is None or states_left < 0:
        raise ARGUMENT_TYPE.error(
            "max_states", printed(max_states), "an integer of at least 0", "Use 20000, for example."
        )
    if (proven := _proven_by_a_round(pipeline)) is not None:
        return proven
    program = Program(pipeline)
    run = Run(program, room=MAX_MARKS, most=MAX_ACTIONS)
    mistake = run()
    machine, states = run.machine, 0
    aliasing = tuple(dict.fromkeys(_aliasing(machine, ambiguity) for ambiguity in machine.journal.ambiguities[:64]))
    verdict: Verdict = "proven"
    if run.exhausted:
        verdict = "undecided"
    elif mistake is None and machine.journal.ambiguities:
        mistake, states, complete = _other_orders(program, machine, states_left)
        verdict = "proven" if complete else "undecided"
    elif mistake is not None:
        mistake = _shortest(program, run, mistake)
    return Simulation(
        "mistake" if mistake is not None else verdict, pipeline, mistake, tuple(machine.memory.warnings.values()), aliasing,
        machine.actions_done, states, barrier_facts(machine), tuple(_event(program, mark) for mark in _marks(run)),
    )  # fmt: skip


def _proven_by_a_round(pipeline: Pipeline) -> Simulation | None:
    """The proof of a pipeline with long loops by a run of shorter ones whose state recurs; None where that proves nothing."""
    short = shortened(pipeline)
    if short is None:
        return None
    program = Program(short.pipeline)
    run = Run(program, room=MAX_MARKS, most=MAX_ACTIONS)
    watch = run.watch = Watch(program, short)
    mistake = run()
    machine = run.machine
    if mistake is not None or machine.journal.ambiguities or not watch.recurs:
        return None
    actions = machine.actions_done + short.cut // short.period * watch.actions_per_round
    return Simulation(
        "proven", pipeline, None, tuple(machine.memory.warnings.values()), (), actions, 0, barrier_facts(machine),
        tuple(_event(program, mark) for mark in _marks(run)),
    )  # fmt: skip


def _marks(run: Run) -> list[Mark]:
    return [] if run.timeline is None else run.timeline.marks()


def _event(program: Program, mark: Mark) -> Event:
    barrier = "" if mark.barrier == NONE else program.barrier_name(mark.barrier)
    slots = tuple(map(program.slot_name, mark.slots))
    sized = mark.number if mark.op in ("flight", "copy", "expect") else 0
    who, said = program.agents[mark.agent].name, mark_text(program, mark)
    return Event(mark.start, mark.end, who, mark.op, said, barrier, mark.phase, slots, sized)


def _other_orders(program: Program, machine: Machine, max_states: int) -> tuple[Mistake | None, int, bool]:
    """Orders that delay one role or the copies as long as can be; then all orders, as far as `max_states` reaches."""
    suspects = list(dict.fromkeys(ambiguity.agent for ambiguity in machine.journal.ambiguities))
    attempts = [{"slow": agent} for agent in suspects[:8]]
    attempts += [{"copy_ticks": 1 << 30}, {"copy_ticks": 0}]
    attempts += [{"slow": agent} for agent in range(machine.agents)[:16] if agent not in suspects[:8]]
    for options in attempts:
        run = Run(program, room=MAX_MARKS, most=MAX_ACTIONS, **options)
        mistake = run()
        if mistake is not None:
            return _shortest(program, run, mistake), 0, False
    found = search(program, max_states)
    return found.mistake, found.states, found.complete


def _shortest(program: Program, run: Run, mistake: Mistake) -> Mistake:
    """The mistake with the shortest way into it; in a long run, with the last steps that touch its barrier or slot."""
    if mistake.outcome != "hang" and run.machine.actions_done <= _SHORT_ACTIONS:
        found = search(program, _SHORT_STATES).mistake
        if found is not None and (found.rule, found.subject) == (mistake.rule, mistake.subject):
            return replace(mistake, way=found.way)
    done = [mark for mark in _marks(run) if mark.op not in ("stuck", "phase")]
    touching = [
        mark for mark in done
        if (mark.barrier != NONE and program.barrier_name(mark.barrier) == mistake.subject)
        or mistake.subject in map(program.slot_name, mark.slots)
    ]  # fmt: skip
    steps = [_told(program, mark) for mark in (touching or done)[-_WAY_STEPS:]]
    return with_way(mistake, program, run.machine, steps)


def _told(program: Program, mark: Mark) -> str:
    said = mark_text(program, mark)
    return said if mark.op == "flight" else f"{program.agents[mark.agent].name}: {said}"


def _aliasing(machine: Machine, found: Ambiguity) -> str:
    who = machine.program.agents[found.agent].name
    if found.barrier == NONE:
        return f"{who} could meet the barrier of threads in round {found.phase} or the one before"
    name, phase = machine.program.barrier_name(found.barrier), found.phase
    match found.op:
        case "arrive":
            return f"What {who} adds to {name} could count in phase {phase} or in an earlier one"
        case "wait":
            return f"The wait of {who} on {name} could pass in phase {phase} or two phases earlier, of the same parity"
        case "late":
            return f"{name} could end phase {phase} before {who} has seen the one before it"
    return f"{name} could end phase {phase} before {who} has added to it"


def barrier_facts(machine: Machine) -> tuple[BarrierFacts, ...]:
    """For every barrier: its count, the bytes of its first phase in each block, who arrives, who starts with which parity."""
    program = machine.program
    pipeline = program.pipeline
    per_block = machine.program.barrier_count // pipeline.blocks
    found, first = [], 0
    for barrier in pipeline.barriers:
        notes = [_first_notes(machine, block * per_block + first) for block in range(pipeline.blocks)]
        sizes = tuple(sum(note.amount for note in each if note.op == "expect") for each in notes)
        arrivals: dict[str, int] = {}
        for note in next((each for each in notes if each), ()):
            if note.op == "arrive":
                role = program.agents[note.agent].role.name
                arrivals[role] = arrivals.get(role, 0) + note.amount
        parities = _parities(program, barrier.name)
        found.append(
            BarrierFacts(barrier.name, barrier.stages, barrier.count, sizes, tuple(arrivals.items()), parities)
        )
        first += barrier.stages
    return tuple(found)


def _first_notes(machine: Machine, barrier: int) -> tuple[Note, ...]:
    return machine.barriers.first_notes[barrier] or machine.barriers.notes[barrier]


def _parities(program: Program, name: str) -> tuple[tuple[str, int], ...]:
    """The parity of each role's first wait on a barrier."""
    found: dict[str, int] = {}
    for agent in (agent for agent in program.agents if agent.rank == 0 and agent.role.name not in found):
        if any(
            step.op in ("wait", "tail") and reference("wait", step.target)[0] == name for step in agent.role.all_steps()
        ):
            waits = (each for each in program.actions(agent) if each.op in ("wait", "tail"))
            first = next((each for each in waits if program.barrier(each.barriers[0]).name == name), None)
            if first is not None:
                found[agent.role.name] = first.number
    return tuple(found.items())


__all__ = ["COPY_TICKS", "BarrierFacts", "Event", "Simulation", "barrier_facts", "simulate"]
