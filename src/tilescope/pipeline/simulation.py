"""ts.simulate: whether a pipeline is right in every order of its roles.

    one run, every operation certain of its phase, no mistake   ──▶  proven
    a hang, a fault, a race, wrong data                         ──▶  mistake, one sentence and the way into it
    an operation that could meet two phases                     ──▶  other orders are tried, then all of them

Roles do not branch on data. So one run with vector clocks (see `state`) decides for every order, unless a wait could
pass in two phases of equal parity or an arrival count in two phases; that aliasing is reported, and searched.

Long loops are proven by a short run: a state that comes back, all counts moved on alike, comes back for ever.

    i = 0 … 191     192 … 215     216 … 239     240 … 9999
    warm up         one round  =  the same round, 24 steps later  ──▶  so are all rounds until the loop ends

A run against the nominal clock depends on its state alone. So where the state after a round of P steps equals that
before it, with every clock, phase and tile counted from the moment, further rounds repeat it, and a loop of N steps ends as
one of N - m P does. P is a period of every expression in the loops.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from tilescope.errors import RuleError, Violation, argument_type, counted
from tilescope.pipeline.description import SELF_NAMES, Pipeline
from tilescope.pipeline.execution import Mark, Run, search, with_way
from tilescope.pipeline.mistake import Mistake
from tilescope.pipeline.parts import Expression, Loop, Role, Step, reference
from tilescope.pipeline.program import NONE, Flight, Instance, Program, agent_names, loop_values
from tilescope.pipeline.state import State
from tilescope.reading import integer
from tilescope.value import Value

Verdict = Literal["proven", "mistake", "undecided"]
MAX_STATES = 20_000
_SUSPECTS, _SLOW_ROLES = 8, 16  # roles that are delayed in turn: first those with ambiguities
_NEVER_TICKS = 1 << 30  # of a copy that lands when nothing else can happen
_SHORT_STATES = 400  # searched for the shortest way into a mistake that is known already
_SHORT_ACTIONS = 1_000
_WAY_STEPS = 16
_LONGEST_PERIOD = 128
_WARM_UP_ROUNDS = 8
_WARM_UP_STEPS = 96  # until the fences that are remembered all lie in the loop
_SHORT_LOOP = 256  # steps that are simply run
_ROUNDS = 4  # a recurrence may take 1, 2 or 4 rounds


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
        raise RuleError(
            [argument_type("pipeline", pipeline, "a Pipeline, or its plain data", "Use ts.plan_pipeline(…).")]
        )
    max_states = integer("max_states", max_states, least=0)
    short, run = shortened(pipeline), Run(Program(pipeline))
    mistake: Mistake | None = None
    states, actions_cut, complete = 0, 0, True
    if short is not None and short.proves():  # a short run whose state recurs proves a long loop
        run, actions_cut = short, short.actions_cut
    elif (mistake := run()) is not None:
        mistake = _shortest(run, mistake)
    elif run.machine.aliasing and not run.queue:
        mistake, states, complete = _other_orders(run.machine, max_states)
    machine = run.machine
    return Simulation(
        "mistake" if mistake is not None else "proven" if complete and not run.queue else "undecided",
        pipeline,
        mistake,
        tuple(machine.warnings.values()),
        tuple(machine.aliasing),
        machine.actions_done + actions_cut,
        states,
        tuple(_barrier_facts(run)),
        tuple(_event(machine.program, mark) for mark in run.marks()),
    )


def _touched(program: Program, mark: Mark) -> tuple[str, ...]:
    """The name of its barrier, or nothing, and those of the slots that were touched: by the end of a phase none."""
    slots = () if mark.op in ("phase", "stuck") else mark.done.slots
    barrier = "" if mark.barrier == NONE else program.barriers[mark.barrier].title
    return (barrier, *(program.slots[slot].title for slot in slots))


def _event(program: Program, mark: Mark) -> Event:
    barrier, *slots = _touched(program, mark)
    size = mark.done.number if mark.op in ("copy", "expect") or (mark.op == "flight" and slots) else 0
    agent = program.agents[mark.agent]
    block = program.barriers[mark.done.barrier].block if isinstance(mark.done, Flight) else agent.block
    what = program.said(mark.done, block)
    return Event(mark.start, mark.end, agent.title, mark.op, what, barrier, mark.phase, tuple(slots), size)


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
    touching = [mark for mark in done if mistake.subject in _touched(program, mark)]
    steps = [program.told(mark.agent, mark.done) for mark in (touching or done)[-_WAY_STEPS:]]
    return with_way(mistake, run.machine, steps)


def _barrier_facts(run: Run) -> Iterator[BarrierFacts]:
    machine, pipeline = run.machine, run.machine.program.pipeline
    for barrier in pipeline.barriers:
        firsts = (at for at, part in enumerate(machine.program.barriers) if part.of == barrier and part.number == 0)
        notes = [machine.first_notes.get(at) or machine.notes[at] for at in firsts]
        sizes = tuple(sum(note.amount for note in noted if note.op == "expect") for noted in notes)
        arrivals: Counter[str] = Counter()
        for note in next((noted for noted in notes if noted), ()):
            if note.op == "arrive":
                arrivals[machine.program.agents[note.agent].of.name] += note.amount
        waits = ((role.name, run.parities.get((barrier.name, role.name))) for role in pipeline.roles)
        parities = tuple((role, parity) for role, parity in waits if parity is not None)
        yield BarrierFacts(barrier.name, barrier.stages, barrier.count, sizes, tuple(arrivals.items()), parities)


def shortened(pipeline: Pipeline) -> Shortened | None:
    """The pipeline with its long loops cut by whole rounds, or None where that is not worth it or not known to be the same."""
    known = [(agent.of, agent_names(pipeline, agent)) for agent in Program(pipeline).agents]
    long = {
        (role.name, place, values)
        for role, names in known
        for place, step in enumerate(role.steps)
        if isinstance(step, Loop) and len(values := loop_values(step, names)) > _SHORT_LOOP
    }
    loops, ranges = {name: place for name, place, _ in long}, {values for *_, values in long}
    if len(ranges) != 1 or len(loops) < len(long):  # no long loop, unequal ones, or two in a role
        return None
    values = ranges.pop()
    inside = [(role.steps[loops[role.name]], names) for role, names in known if role.name in loops]
    period = _period(inside, values)
    if not period:
        return None
    modulus = period * _ROUNDS
    cut = (len(values) - max(period * _WARM_UP_ROUNDS, _WARM_UP_STEPS)) // modulus * modulus
    return Shortened(pipeline, loops, len(values) - cut, period, cut) if cut > 0 else None


def _period(loops: list[tuple[Loop, dict[str, int]]], values: range) -> int:
    """The smallest period of all expressions in the long loops, or 0; tiles must count up instead."""
    columns: dict[tuple[str, tuple[int, ...]], Any] = {}
    for loop, known in loops:
        counter, names = loop.counter, known | {loop.counter: 0}
        for step in loop.steps:
            if isinstance(step, Loop) or str(step.arguments.get("tile", counter)).strip() != counter:
                return 0
            for text in _texts(step):
                expression = Expression.read(step.op, text, names)
                used = () if expression.code is None else expression.code.co_names
                key = (expression.text, tuple(names[name] for name in used if name in SELF_NAMES))
                if counter in used and key not in columns:
                    columns[key] = np.array([expression.value(names | {counter: value}) for value in values])
    fits = (
        period
        for period in range(1, _LONGEST_PERIOD + 1)
        if all(np.array_equal(column[period:], column[:-period]) for column in columns.values())
    )
    return next(fits, 0)


def _texts(step: Step) -> Iterator[Any]:
    """The expressions of a step that may depend on a loop's counter, its tile apart."""
    for argument, value in step.values():
        if argument.kind in ("number", "bar") and argument.name != "tile" and value != "":
            yield value
        elif argument.kind in ("barrier", "slot") and "[" in value:
            yield reference(argument.name, value)[1]
    if step.when is not None:
        yield step.when


class Shortened(Run):
    """The run of a pipeline with its long loops cut; compares its state at every round of them with those before."""

    def __init__(self, pipeline: Pipeline, loops: Mapping[str, int], steps: int, period: int, cut: int) -> None:
        roles = [_with_loop(role, loops[role.name], steps) if role.name in loops else role for role in pipeline.roles]
        super().__init__(Program(replace(pipeline, roles=tuple(roles))))
        self.steps, self.period = steps, period  # left of every long loop; of a round
        self.places = {  # agents that act in a long loop: its first action, and the actions of a round
            number: place
            for number, agent in enumerate(self.machine.program.agents)
            if agent.of.name in loops and (place := self._place(agent, loops[agent.of.name]))[1]
        }
        self.leader, self.ends = min(self.places, default=NONE), steps // period
        self.seen: dict[bytes, int] = {}
        self.recurs = False
        self.actions_cut = cut // period * sum(length for _, length in self.places.values())

    def _place(self, agent: Instance, at: int) -> tuple[int, int]:
        role, actions = agent.of, self.machine.program.actions
        before, one_round = (
            sum(1 for _ in actions(agent._replace(of=replace(role, steps=steps))))
            for steps in (role.steps[:at], _with_loop(role, at, self.period).steps[at : at + 1])
        )
        return before, one_round

    def proves(self) -> bool:
        """Whether the short run is right, certain of its phases, and repeats itself: so is the long one."""
        return self() is None and not self.machine.aliasing and self.recurs

    def act(self, agent: int) -> None:
        """The same, and look at the state when the leading agent begins a round."""
        super().act(agent)
        if agent != self.leader or self.recurs:
            return
        first, length = self.places[agent]
        rounds, inside = divmod(self.machine.pc[agent] - first, length)
        if inside or not 0 <= rounds < self.ends:
            return
        state = self._state(rounds)
        if state is not None:
            before = self.seen.setdefault(state, rounds)
            self.recurs = before < rounds and _ROUNDS % (rounds - before) == 0

    def _state(self, rounds: int) -> bytes | None:
        """All that the future depends on, counted from now; None while some agent is not in its loop."""
        machine, positions = self.machine, []
        for agent, (pc, left) in enumerate(zip(machine.pc, machine.left, strict=True)):
            first, length = self.places.get(agent, (0, 0))
            if agent in self.places and (left or not 0 <= pc - first < self.ends * length):
                return None
            positions.append((pc - first - rounds * length, left))
        queue = [
            (tick - self.tick, agent, flight if flight == NONE else machine.last_key - flight)
            for tick, _, agent, flight in sorted(self.queue)
        ]
        parked = sorted((barrier, agents) for barrier, agents in self.parked.items() if agents)
        busy = [max(0, until - self.tick) for until in self.busy_until]
        return pickle.dumps((positions, machine.relative(rounds * self.period), queue, parked, busy))


def _with_loop(role: Role, at: int, count: int) -> Role:
    """The role whose loop, step `at`, has another count."""
    loop = role.steps[at]
    assert isinstance(loop, Loop)
    return replace(role, steps=(*role.steps[:at], replace(loop, count=count), *role.steps[at + 1 :]))
