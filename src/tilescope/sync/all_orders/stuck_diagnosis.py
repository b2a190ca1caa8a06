"""Why nobody moves any more: from the state of a hang to the one count, byte or parity that caused it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from itertools import chain, islice, takewhile
from typing import NamedTuple

from tilescope.pipeline.mistake_kinds import BULK_CUT
from tilescope.pipeline.wording import mistake_error, said
from tilescope.swizzle import CHUNK_BYTES
from tilescope.sync.all_orders.action import WAITS, Action
from tilescope.sync.all_orders.interpreter import Machine
from tilescope.sync.all_orders.mistake import EarlierStep, MistakeFoundError
from tilescope.sync.thread_limits import REGISTER_STEP, WARPGROUP_THREADS

_LOOKAHEAD = 4096  # actions of a role that are looked at for its next arrival
_ARRIVE_OPS = ("arrive", "release", "cp_arrive", "commit")
_MEET_OPS = ("sync", "bar_arrive", "cluster")
_WAITS_SHOWN = 4


def check_hang(machine: Machine) -> None:
    """Raise the mistake of a run in which no agent can act and nothing is under way, if some have not left.

    A wait that another blocked agent would end is a consequence. So the waits that nobody would end any more come first.
    """
    if all(machine.left):
        return
    blocked = blocked_agents(machine)
    roots = [(agent, action) for agent, action in blocked if not _would_be_ended(machine, agent, action)]
    for suspects in (roots, blocked):
        for cause in _CAUSES:
            for agent, action in suspects:
                found = cause.find(machine, agent, action, action.barrier) if action.op in cause.ops else None
                if found is not None:
                    raise found
    raise _circle(machine, blocked)


def _would_be_ended(machine: Machine, agent: int, action: Action) -> bool:
    """Whether some other agent, which is held up itself, would still do what a wait waits for."""
    if action.op == "registers":
        return any(
            later.op == "registers" and later.number < machine.registers[other]
            for other in range(machine.agents)
            if other != agent
            for later in _coming(machine, other)
        )
    return any(
        _counts_on(later, barrier)
        for other in range(machine.agents)
        if other != agent
        for later in _coming(machine, other)
        for barrier in action.barriers
    )


def blocked_agents(machine: Machine) -> list[tuple[int, Action]]:
    """Agents that cannot act, and the action before which they stand."""
    blocked = []
    for agent in range(machine.agents):
        action = machine.current(agent)
        if action is not None and not machine.enabled(agent):
            blocked.append((agent, action))
    return blocked


def _circle(machine: Machine, blocked: list[tuple[int, Action]]) -> MistakeFoundError:
    """Every role waits for another: a step that somebody waits for has to come before the wait that holds it up."""
    program = machine.program
    texts = [
        f"{program.agents[agent].title} at {said(program, action)!r}{_counts(machine, action)}"
        for agent, action in blocked[:_WAITS_SHOWN]
    ]
    more = f" and {len(blocked) - _WAITS_SHOWN} more" if len(blocked) > _WAITS_SHOWN else ""
    orders = _earlier_steps(machine, blocked)
    error = mistake_error(
        program,
        "circle",
        agent=blocked[0][0],
        waits="; ".join(texts) + more,
        fix=orders[0].sentence if orders else "Let one of them go on without the others.",
        agents=[agent for agent, _ in blocked],
        counts=[(action.number, action.times, *_state(machine, action.barrier)) for _, action in blocked],
    )
    error.earlier_steps = orders
    return error


def _earlier_steps(machine: Machine, blocked: list[tuple[int, Action]]) -> list[EarlierStep]:
    """Steps that would let a blocked agent go on; best is a meeting, then an arrival that ends the phase."""
    program = machine.program
    ranked: list[tuple[tuple[bool, bool, bool], EarlierStep]] = []
    for agent, action in blocked[:_WAITS_SHOWN]:
        for barrier in action.barriers:
            for held, wait in blocked:
                needed = next(
                    (later for later in _coming(machine, held) if later is not wait and _counts_on(later, barrier)),
                    None,
                )
                if needed is None or (held == agent and needed.op in _MEET_OPS):  # nobody meets with itself
                    continue
                sentence = (
                    f"Let {program.agents[held].title} do {said(program, needed)!r} before {said(program, wait)!r}: "
                    f"{program.agents[agent].title} waits for it."
                )
                rank = (
                    needed.op not in _MEET_OPS,
                    machine.tx[barrier] != 0,
                    needed.times < machine.pending[barrier],
                )
                ranked.append((rank, EarlierStep(held, needed, wait, sentence)))
    return [step for _, step in sorted(ranked, key=lambda pair: pair[0])]


class _Counts(NamedTuple):
    """What a barrier has counted in its running phase."""

    phase: int
    came: int  # arrivals
    expected: int  # arrivals
    tx: int  # bytes that are missing; negative: that are too many


def _state(machine: Machine, barrier: int) -> _Counts:
    expected = machine.expected[barrier]
    return _Counts(machine.phase[barrier], expected - machine.pending[barrier], expected, machine.tx[barrier])


def _counts(machine: Machine, action: Action) -> str:
    """What the barrier of a wait has counted: " (full[2], phase 1: 0 of 1 arrivals, 4096 bytes missing)"."""
    if not action.waits:
        return ""
    counts = _state(machine, action.barrier)
    parts = [f"{counts.came} of {counts.expected} arrivals"]
    if counts.tx > 0:
        parts.append(f"{counts.tx} bytes missing")
    elif counts.tx < 0:
        parts.append(f"{-counts.tx} bytes too many")
    name = machine.program.barriers[action.barrier].title
    return f" ({name}, phase {counts.phase}: {', '.join(parts)})"


def _registers(machine: Machine, agent: int, action: Action, _: int) -> MistakeFoundError | None:
    free = machine.pool[machine.program.agents[agent].home]
    most = machine.registers[agent] + free // machine.program.agents[agent].of.whole_threads(WARPGROUP_THREADS)
    return mistake_error(
        machine.program,
        "registers",
        agent=agent,
        registers=action.number,
        need=machine.register_need(agent, action),
        free=free,
        most=most // REGISTER_STEP * REGISTER_STEP,
    )


def _meetings(machine: Machine, waiting: int, _: Action, barrier: int) -> MistakeFoundError | None:
    """A meeting to which nobody else will come."""
    came = machine.noted(barrier, "arrive").agents
    absent = [
        other
        for other in range(machine.agents)
        if not machine.left[other]
        and other not in came
        and machine.program.earlier[other] == machine.program.earlier[waiting]
    ]
    if any(barrier in later.barriers for other in absent for later in _coming(machine, other)):
        return None  # it would come, and is held up elsewhere
    if machine.program.cluster <= barrier < machine.program.first_flag:
        return mistake_error(machine.program, "cluster", agents=came, agents_absent=absent)
    return machine.miscounted(barrier, "sync")


def _flag(machine: Machine, agent: int, action: Action, flag: int) -> MistakeFoundError | None:
    """A flag that never reaches the value for which somebody polls."""
    coming = sum(
        later.times
        for other in range(machine.agents)
        if other != agent
        for later in _coming(machine, other)
        if later.op == "signal" and flag in later.barriers
    )
    reached = machine.tx[flag] + coming
    if reached < action.number:
        return mistake_error(machine.program, "flag", agent=agent, barrier=flag, value=action.number, reached=reached)
    return None


def _bytes(machine: Machine, _: int, __: Action, barrier: int) -> MistakeFoundError | None:
    """All arrived, and the bytes do not match."""
    tx = machine.tx[barrier]
    if tx == 0 or machine.pending[barrier] > 0 or _bytes_to_come(machine, barrier) == tx:
        return None
    expected = machine.noted(barrier, "expect").amount
    brought = machine.noted(barrier, "bytes").amount
    if not brought:
        kind = "no bytes"
    else:
        kind = "too few bytes" if brought < expected else "too many bytes"
    return mistake_error(
        machine.program,
        kind,
        barrier=barrier,
        phase=machine.phase[barrier],
        expected=expected,
        brought=brought,
        more=BULK_CUT if expected % CHUNK_BYTES else "",
    )


def _count(machine: Machine, _: int, __: Action, barrier: int) -> MistakeFoundError | None:
    """Everyone who ever arrives there has arrived in this phase, and it wants more."""
    agents, came = machine.noted(barrier, "arrive")
    if not machine.pending[barrier] or not agents or _arrives(machine, barrier, but=agents):
        return None
    if machine.noted(barrier, "more").agents:
        return machine.miscounted(barrier, "noinc")
    return machine.miscounted(barrier, "too few arrivals" if came else "only empty arrivals")


def _nobody(machine: Machine, agent: int, _: Action, barrier: int) -> MistakeFoundError | None:
    """Arrivals are missing and nobody will make them."""
    pending = machine.pending[barrier]
    if pending == 0 or _arrives(machine, barrier):
        return None
    counts = _state(machine, barrier)
    if counts.tx < 0:
        return mistake_error(
            machine.program,
            "receiver",
            barrier=barrier,
            phase=counts.phase,
            came=counts.came,
            expected=counts.expected,
            bytes=-counts.tx,
            landed=machine.noted(barrier, "bytes").amount,
        )
    if counts.came:
        kind = "some arrive"
    else:
        kind = "nobody arrives again" if counts.phase else "nobody arrives"
    return mistake_error(
        machine.program,
        kind,
        barrier=barrier,
        phase=counts.phase,
        came=counts.came,
        expected=counts.expected,
        agent=agent,
        pending=pending,
    )


def _behind(machine: Machine, agent: int, barrier: int) -> int:
    """Phases that have ended since the role last passed a wait on this barrier."""
    return machine.phase[barrier] - machine.last_pass.get((agent, barrier), 0)


def _late(machine: Machine, agent: int, action: Action, barrier: int) -> MistakeFoundError | None:
    """More than one phase went by without the role."""
    behind = _behind(machine, agent, barrier)
    if behind < 2:
        return None
    arrivers = machine.arrivers[barrier]
    expected = machine.expected[barrier]
    if len(arrivers) > expected:
        return mistake_error(
            machine.program,
            "several roles",
            barrier=barrier,
            expected=expected,
            roles=len(arrivers),
            agents=arrivers,
            agent=agent,
        )
    return mistake_error(machine.program, "late", agent=agent, barrier=barrier, parity=action.number, behind=behind)


def _parity(machine: Machine, agent: int, action: Action, barrier: int) -> MistakeFoundError | None:
    """A phase that the role has not seen yet has ended; with the other parity its wait would pass."""
    if _behind(machine, agent, barrier) < 1:
        return None
    return mistake_error(
        machine.program,
        "parity",
        agent=agent,
        barrier=barrier,
        parity=action.number,
        phase=machine.phase[barrier] - 1,
        other=1 - action.number,
    )


def _start(machine: Machine, agent: int, action: Action, barrier: int) -> MistakeFoundError | None:
    """A role that fills slots waits for the first phase of a barrier that only its readers end."""
    fills = any(step.op in ("copy", "write") for step in machine.program.agents[agent].of.all_steps())
    fresh = not machine.phase[barrier] and not action.number and (agent, barrier) not in machine.last_pass
    if fills and fresh and not any(note.op in ("expect", "bytes") for note in machine.notes[barrier]):
        return mistake_error(machine.program, "start", agent=agent, barrier=barrier)
    return None


class _Cause(NamedTuple):
    """Why an agent may be blocked for ever before one of some operations."""

    ops: tuple[str, ...]
    find: Callable[[Machine, int, Action, int], MistakeFoundError | None]  # from an agent, its action and the barrier


# the first that holds for a blocked agent is the mistake
_CAUSES = (
    _Cause(("registers",), _registers),
    _Cause(_MEET_OPS, _meetings),
    _Cause(("poll",), _flag),
    _Cause(WAITS, _bytes),
    _Cause(WAITS, _count),
    _Cause(WAITS, _late),
    _Cause(WAITS, _nobody),
    _Cause(WAITS, _parity),
    _Cause(WAITS, _start),
)


def _coming(machine: Machine, agent: int) -> Iterator[Action]:
    """What an agent would still do."""
    action = machine.current(agent)
    return iter(()) if action is None else islice(chain([action], copy(machine.sources[agent])), _LOOKAHEAD)


def _counts_on(action: Action, barrier: int) -> bool:
    return barrier in action.barriers and action.op not in (*WAITS, "init")


def _arrives(machine: Machine, barrier: int, but: list[int] | None = None) -> bool:
    """Whether an agent that is not in `but` would still arrive at a barrier."""
    return any(
        barrier in action.barriers and (action.op in _ARRIVE_OPS or (action.op == "expect" and action.flag))
        for agent in range(machine.agents)
        if agent not in (but or ())
        for action in _coming(machine, agent)
    )


def _bytes_to_come(machine: Machine, barrier: int) -> int:
    """Bytes that held-up agents would still bring for the running phase: those that have brought none."""
    others = set(range(machine.agents)) - {*machine.noted(barrier, "bytes").agents}
    of_phase = (  # up to where they expect bytes of the next one
        takewhile(lambda action: action.op != "expect" or barrier not in action.barriers, _coming(machine, agent))
        for agent in others
    )
    return sum(action.number * action.barriers.count(barrier) for action in chain(*of_phase) if action.op == "copy")
