"""The cause of a deadlock: from the state of a hang to the one count, byte or parity that caused it.

consumer waits for full[0], phase 0: 1 of 1 arrivals, 4096 of 8192 bytes      ──▶   "too few bytes"
producer waits for empty[0], which the consumer would release                 a consequence, so not the cause
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from itertools import chain, islice, takewhile
from typing import Any, NamedTuple

from tilescope.sync.all_orders.interpreter import Interpreter
from tilescope.sync.all_orders.mistake import BlockedAgent, EarlierStep, MistakeFoundError
from tilescope.sync.role_events import (
    Action,
    BarrierArrive,
    CopyIssued,
    CpAsyncArriveIssued,
    FlagAdd,
    FlagPoll,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierInit,
    MbarrierInval,
    MbarrierWait,
    RegisterRequest,
    ThreadBarrier,
    TmemCommit,
)
from tilescope.sync.stuck_waits import PhaseProgress, split_waits
from tilescope.sync.thread_limits import REGISTER_STEP

MAX_WAITS_SHOWN = 4  # of a circle
_LOOKAHEAD = 4096  # actions of a role that are looked at for its next arrival


def check_deadlock(state: Interpreter) -> None:
    """Raise the mistake of a run in which no agent can act and nothing is pending, if some have not exited.

    A wait that another blocked agent would complete is a consequence. So the waits that no agent would complete are
    reported first.
    """
    if all(state.exited):
        return
    blocked = state.find_blocked()
    roots = split_waits(blocked, lambda stuck: _would_be_ended(state, stuck)).causes
    for suspects in (roots, blocked):
        for cause in _CAUSES:
            for agent, action in suspects:
                error = cause.find(state, agent, action) if isinstance(action, cause.event) else None
                if error is not None:
                    raise error
    raise _circle(state, blocked)


def _would_be_ended(state: Interpreter, stuck: BlockedAgent) -> bool:
    """Whether some other agent, which is blocked itself, would still do what a wait waits for."""
    others = [agent for agent in range(state.agents) if agent != stuck.agent]
    if isinstance(stuck.action, RegisterRequest):
        return any(
            isinstance(later, RegisterRequest) and later.registers < state.registers[other]
            for other in others
            for later in _coming_actions(state, other)
        )
    return any(
        _counts_on(later, barrier)
        for other in others
        for later in _coming_actions(state, other)
        for barrier in stuck.action.barriers
    )


def _circle(state: Interpreter, blocked: Sequence[BlockedAgent]) -> MistakeFoundError:
    """Every role waits for another: a step that somebody waits for has to come before the wait that blocks it."""
    error = MistakeFoundError(
        "circle",
        agent=blocked[0].agent,
        agents=[agent for agent, _ in blocked],
        counts=[_phase_counts(state, action.barrier) for _, action in blocked],
    )
    error.blocked = blocked
    error.earlier_steps = _find_earlier_steps(state, blocked)
    return error


def _find_earlier_steps(state: Interpreter, blocked: Sequence[BlockedAgent]) -> list[EarlierStep]:
    """Steps that would let a blocked agent go on; best is a barrier of threads, then an arrival that ends the phase."""
    ranked: list[tuple[tuple[bool, bool, bool], EarlierStep]] = []
    for waiting, action in blocked[:MAX_WAITS_SHOWN]:
        for barrier in action.barriers:
            for agent, wait in blocked:
                needed = next(
                    (
                        later
                        for later in _coming_actions(state, agent)
                        if later is not wait and _counts_on(later, barrier)
                    ),
                    None,
                )
                # an agent does not synchronize with itself
                if needed is None or (agent == waiting and isinstance(needed, ThreadBarrier)):
                    continue
                rank = (
                    not isinstance(needed, ThreadBarrier),
                    state.tx[barrier] != 0,
                    _counted_by(needed) < state.pending[barrier],
                )
                ranked.append((rank, EarlierStep(agent, needed, wait, waiting)))
    return [step for _, step in sorted(ranked, key=lambda pair: pair[0])]


def _phase_counts(state: Interpreter, barrier: int) -> PhaseProgress:
    expected = state.expected[barrier]
    return PhaseProgress(state.phase[barrier], expected - state.pending[barrier], expected, state.tx[barrier])


def _find_register_shortage(state: Interpreter, agent: int, action: RegisterRequest) -> MistakeFoundError | None:
    threads = state.program.agents[agent].warpgroup_threads
    free = state.pool[state.program.agents[agent].home]
    most = state.registers[agent] + free // threads
    return MistakeFoundError(
        "registers",
        agent=agent,
        registers=action.registers,
        need=state.register_need(agent, action),
        free=free,
        most=most // REGISTER_STEP * REGISTER_STEP,
    )


def _find_missing_threads(state: Interpreter, waiting: int, action: ThreadBarrier) -> MistakeFoundError | None:
    """A barrier of threads at which no other agent will arrive."""
    barrier = action.barrier
    program = state.program
    arrived = state.total(barrier, "arrive").agents
    absent = [
        other
        for other in range(state.agents)
        if not state.exited[other]
        and other not in arrived
        and program.agents[other].is_earlier == program.agents[waiting].is_earlier
    ]
    if any(barrier in later.barriers for other in absent for later in _coming_actions(state, other)):
        return None  # it would come, and is blocked elsewhere
    if program.cluster <= barrier < program.first_flag:
        return MistakeFoundError("cluster", agents=arrived, agents_absent=absent)
    return state.arrival_mistake(barrier, "sync")


def _find_low_flag(state: Interpreter, agent: int, action: FlagPoll) -> MistakeFoundError | None:
    """A flag that never reaches the value for which somebody polls."""
    flag = action.barrier
    coming = sum(
        later.amount
        for other in range(state.agents)
        if other != agent
        for later in _coming_actions(state, other)
        if isinstance(later, FlagAdd) and flag in later.barriers
    )
    reached = state.tx[flag] + coming
    if reached < action.value:
        return MistakeFoundError("flag", agent=agent, barrier=flag, value=action.value, reached=reached)
    return None


def _find_wrong_bytes(state: Interpreter, _: int, action: MbarrierWait) -> MistakeFoundError | None:
    """All arrived, and the bytes do not match."""
    barrier = action.barrier
    progress = _phase_counts(state, barrier)
    if progress.lack != "bytes" or _bytes_to_come(state, barrier) == progress.missing_bytes:
        return None
    expected = state.total(barrier, "expect").amount
    landed = state.total(barrier, "bytes").amount
    if not landed:
        kind = "no bytes"
    else:
        kind = "too few bytes" if landed < expected else "too many bytes"
    return MistakeFoundError(kind, barrier=barrier, phase=state.phase[barrier], expected=expected, brought=landed)


def _find_wrong_count(state: Interpreter, _: int, action: MbarrierWait) -> MistakeFoundError | None:
    """All agents that arrive there have arrived in this phase, and it needs more arrivals."""
    barrier = action.barrier
    agents, arrived = state.total(barrier, "arrive")
    if not state.pending[barrier] or not agents or _will_arrive(state, barrier, but=agents):
        return None
    if state.total(barrier, "more").agents:
        return state.arrival_mistake(barrier, "noinc")
    return state.arrival_mistake(barrier, "too few arrivals" if arrived else "only empty arrivals")


def _find_missing_arrivals(state: Interpreter, agent: int, action: MbarrierWait) -> MistakeFoundError | None:
    """Arrivals are missing, and no agent will make them."""
    barrier = action.barrier
    counts = _phase_counts(state, barrier)
    if not counts.missing_arrivals or _will_arrive(state, barrier):
        return None
    if counts.has_unexpected_bytes:
        return MistakeFoundError(
            "receiver",
            barrier=barrier,
            phase=counts.phase,
            came=counts.arrived,
            expected=counts.expected,
            bytes=-counts.missing_bytes,
            landed=state.total(barrier, "bytes").amount,
        )
    if counts.arrived:
        kind = "some arrive"
    else:
        kind = "nobody arrives again" if counts.phase else "nobody arrives"
    return MistakeFoundError(
        kind,
        barrier=barrier,
        phase=counts.phase,
        came=counts.arrived,
        expected=counts.expected,
        agent=agent,
        pending=counts.missing_arrivals,
    )


def _phases_behind(state: Interpreter, agent: int, barrier: int) -> int:
    """Phases that have ended since the role last passed a wait on this barrier."""
    return state.phase[barrier] - state.last_pass.get((agent, barrier), 0)


def _find_missed_phase(state: Interpreter, agent: int, action: MbarrierWait) -> MistakeFoundError | None:
    """More than one phase ended without the role."""
    barrier = action.barrier
    phases_behind = _phases_behind(state, agent, barrier)
    if phases_behind < 2:
        return None
    arrivers = state.arrivers[barrier]
    expected = state.expected[barrier]
    if len(arrivers) > expected:
        return MistakeFoundError(
            "several roles", barrier=barrier, expected=expected, roles=len(arrivers), agents=arrivers, agent=agent
        )
    return MistakeFoundError("late", agent=agent, barrier=barrier, parity=action.parity, behind=phases_behind)


def _find_wrong_parity(state: Interpreter, agent: int, action: MbarrierWait) -> MistakeFoundError | None:
    """A phase for which the role has not waited yet has ended; with the other parity its wait would pass."""
    barrier = action.barrier
    if _phases_behind(state, agent, barrier) < 1:
        return None
    return MistakeFoundError(
        "parity",
        agent=agent,
        barrier=barrier,
        parity=action.parity,
        phase=state.phase[barrier] - 1,
        other=1 - action.parity,
    )


def _find_wrong_start(state: Interpreter, agent: int, action: MbarrierWait) -> MistakeFoundError | None:
    """A role that fills slots waits for the first phase of a barrier that only its readers end."""
    barrier = action.barrier
    is_fresh = not state.phase[barrier] and not action.parity and (agent, barrier) not in state.last_pass
    has_bytes = any(operation.op in ("expect", "bytes") for operation in state.operations[barrier])
    if state.program.agents[agent].fills_slots and is_fresh and not has_bytes:
        return MistakeFoundError("start", agent=agent, barrier=barrier)
    return None


class _Cause(NamedTuple):
    """A cause for an agent to be blocked for ever before an action."""

    event: type[Action]
    find: Callable[[Interpreter, int, Any], MistakeFoundError | None]  # state, agent, its action


# the first that holds for a blocked agent is the mistake
_CAUSES = (
    _Cause(RegisterRequest, _find_register_shortage),
    _Cause(ThreadBarrier, _find_missing_threads),
    _Cause(FlagPoll, _find_low_flag),
    _Cause(MbarrierWait, _find_wrong_bytes),
    _Cause(MbarrierWait, _find_wrong_count),
    _Cause(MbarrierWait, _find_missed_phase),
    _Cause(MbarrierWait, _find_missing_arrivals),
    _Cause(MbarrierWait, _find_wrong_parity),
    _Cause(MbarrierWait, _find_wrong_start),
)


def _coming_actions(state: Interpreter, agent: int) -> Iterator[Action]:
    """The actions that an agent would still perform."""
    action = state.current(agent)
    return iter(()) if action is None else islice(chain([action], copy(state.later_actions[agent])), _LOOKAHEAD)


def _counts_on(action: Action, barrier: int) -> bool:
    return barrier in action.barriers and not isinstance(action, MbarrierWait | MbarrierInit | MbarrierInval)


def _counted_by(action: Action) -> int:
    """The count that an action changes at a barrier: arrivals, or the threads that a barrier of threads needs."""
    match action:
        case BarrierArrive(threads=threads):
            return threads
        case FlagAdd(amount=amount):
            return amount
    return action.arrivals_at_mbarriers or 1


def _will_arrive(state: Interpreter, barrier: int, but: list[int] | None = None) -> bool:
    """Whether an agent that is not in `but` would still arrive at a barrier."""
    return any(
        barrier in action.barriers and isinstance(action, MbarrierArrive | CpAsyncArriveIssued | TmemCommit)
        for agent in range(state.agents)
        if agent not in (but or ())
        for action in _coming_actions(state, agent)
    )


def _bytes_to_come(state: Interpreter, barrier: int) -> int:
    """Bytes that blocked agents would still copy for the running phase: those agents that have copied none."""
    others = set(range(state.agents)) - {*state.total(barrier, "bytes").agents}
    of_phase = (  # up to where they expect bytes of the next one
        takewhile(lambda action: not _expects_bytes(action, barrier), _coming_actions(state, agent)) for agent in others
    )
    return sum(
        action.size_bytes * action.barriers.count(barrier)
        for action in chain(*of_phase)
        if isinstance(action, CopyIssued)
    )


def _expects_bytes(action: Action, barrier: int) -> bool:
    """Whether an action expects bytes at a barrier."""
    expects = isinstance(action, MbarrierExpect) or (isinstance(action, MbarrierArrive) and action.expected_bytes > 0)
    return expects and barrier in action.barriers
