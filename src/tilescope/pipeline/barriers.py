"""The barriers of a run: what each counts in its running phase, and who certainly knows that a phase has ended.

A barrier of threads, bar.sync or that of the cluster, is one whose arrivals are threads or roles. An operation is certain
of its phase when the end of the phase before lies in its past. One that is not could have met another phase in another
order of the roles: it is kept as an ambiguity.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilescope.pipeline.mbarrier import TX_END_BYTES
from tilescope.pipeline.mistake import MistakeFoundError
from tilescope.pipeline.program import NONE, Action
from tilescope.pipeline.state import BARS, Ambiguity, Clock, Note, State


def pass_wait(state: State, barrier: int, agent: int, clock: Clock, time: int) -> None:
    """A wait passes: the agent knows all that those who ended the phase before knew."""
    require_initialised(state, barrier, agent, clock)
    phase = state.phase[barrier]
    if phase >= 2 and clock[state.agents + barrier] < phase - 1:
        state.ambiguities.append(Ambiguity("wait", barrier, phase, agent))
    if phase:
        np.maximum(clock, state.released[barrier], out=clock)
    state.passed[barrier] += ((agent, time),)
    state.last_pass[agent, barrier] = phase


def count(
    state: State,
    barrier: int,
    agent: int,
    clock: Clock,
    *,
    arrivals: int = 0,
    tx: int = 0,  # bytes expected; negative: bytes that landed
    more: int = 0,  # arrivals that the phase waits for in addition
    dropped: int = 0,  # arrivals that later phases no longer wait for
    lands: bool = False,
    covers: bool = True,  # whether an arrival also comes behind the bytes that its agent expected
) -> int:
    """Count an operation on a barrier; the phase that it met."""
    of_threads = barrier >= state.barriers
    if not of_threads:
        require_initialised(state, barrier, agent, clock)
    phase, before = state.phase[barrier], state.tx[barrier]
    if clock[state.agents + barrier] < phase:
        state.ambiguities.append(Ambiguity("meet" if of_threads else "arrive", barrier, phase, agent))
    counted = (("more", more), ("expect", tx), ("arrive", arrivals))
    noted = [("bytes", -tx)] if lands else [row for row in counted if row[1]] or [("arrive", 0)]
    state.notes[barrier] += tuple(Note(op, agent, amount) for op, amount in noted)
    if arrivals and agent not in state.arrivers[barrier]:
        state.arrivers[barrier] += (agent,)
    pending = state.pending[barrier] = state.pending[barrier] + more - arrivals
    after = state.tx[barrier] = before + tx
    state.expected[barrier] -= dropped
    if lands and pending == 0 and 0 < before < -tx and state.early is None:
        state.early = state.program.mistake("piece", barrier=barrier, phase=phase, tx=before, bytes=-tx).mistake
    if pending < 0:
        raise wrong_threads(state, barrier, "sync surplus") if of_threads else _too_many_arrivals(state, barrier)
    if abs(after) >= TX_END_BYTES:
        most = TX_END_BYTES - 1
        needed = -(-abs(after) // most)
        raise state.program.mistake("outstanding", barrier=barrier, phase=phase, tx=after, limit=most, needed=needed)
    if more or (tx > 0 and not arrivals):
        state.raised[barrier] += ((agent, int(clock[agent])),)
    elif arrivals and covers and state.raised[barrier]:
        state.raised[barrier] = tuple(point for point in state.raised[barrier] if clock[point[0]] < point[1])
    gathered = state.gathered[barrier]
    state.gathered[barrier] = clock if gathered is None else np.maximum(gathered, clock)
    if pending == 0 and after == 0:
        _end_phase(state, barrier, None if lands else clock)
    return phase


def _end_phase(state: State, barrier: int, clock: Clock | None) -> None:
    """The next phase begins; `clock` is that of the agent whose own action ended this one."""
    phase, place, gathered = state.phase[barrier], state.agents + barrier, state.gathered[barrier]
    assert gathered is not None
    if state.raised[barrier]:
        state.ambiguities.append(Ambiguity("early", barrier, phase, state.raised[barrier][0][0]))
    state.ambiguities += [
        Ambiguity("late", barrier, phase, waiter) for waiter, time in state.passed[barrier] if gathered[waiter] < time
    ]
    released = np.maximum(gathered, state.released[barrier])
    released[place] = phase + 1
    if clock is not None and (gathered <= clock).all():  # nothing else was needed: the agent knows
        clock[place] = phase + 1
    state.released[barrier], state.gathered[barrier] = released, None
    state.phase[barrier], state.pending[barrier] = phase + 1, state.expected[barrier]
    state.raised[barrier] = state.passed[barrier] = ()
    if phase == 0:
        state.first_notes[barrier] = state.notes[barrier]
    state.notes[barrier] = ()
    state.ended.append(barrier if barrier < state.barriers else NONE)


def require_initialised(state: State, barrier: int, agent: int, clock: Clock) -> None:
    """Stop where an agent cannot know that a barrier is initialised."""
    program = state.program
    if not program.initialises:
        return
    maker, time = state.initialised[barrier] or (agent, int(clock[agent]) + 1)  # by nobody: in the future
    if clock[maker] < time:
        raise program.mistake("init", agent=agent, barrier=barrier)
    if program.agents[maker].rank != program.agents[agent].rank and not any(
        time < fence <= clock[maker] for fence in state.fences.get((maker, "mbarrier_init"), ())
    ):
        raise program.mistake("init fence", agent=agent, barrier=barrier)


def _too_many_arrivals(state: State, barrier: int) -> MistakeFoundError:
    notes = [note for note in state.notes[barrier] if note.op == "arrive"]
    came, expected, tx = sum(note.amount for note in notes), state.expected[barrier], state.tx[barrier]
    return state.program.mistake(
        "too many arrivals",
        barrier=barrier,
        expected=expected,
        came=came,
        phase=state.phase[barrier],
        agents=[note.agent for note in notes],
        still=f", {tx} bytes still missing" if tx else "",
        surplus=came - expected,
        tx=tx,
    )


def meeting(state: State, agent: int, action: Action) -> int:
    """The number of the barrier of threads that an action is about."""
    if action.op == "cluster":
        return state.cluster
    return state.barriers + state.program.agents[agent].rank * BARS + action.number % BARS


def can_meet(state: State, agent: int, action: Action) -> bool:
    """Whether an agent can arrive at a barrier of threads, or leave it."""
    barrier = meeting(state, agent, action)
    return state.phase[barrier] > state.standing.get((agent, barrier), NONE)


def meet(state: State, agent: int, action: Action, clock: Clock, *, waits: bool = True) -> bool:
    """Arrive at a barrier of threads, or leave one whose phase has ended; whether the action is over."""
    barrier = meeting(state, agent, action)
    if (agent, barrier) not in state.standing or not waits:
        if action.choice == "wait":
            raise state.program.mistake("cluster wait", agent=agent)
        phase, came = state.phase[barrier], arrived(state, barrier)
        if barrier == state.cluster:
            threads = int(agent not in came)
        else:
            agents = state.program.agents
            threads = agents[agent].warp_threads
            asked = action.times or sum(other.warp_threads for other in agents if other.rank == agents[agent].rank)
            if came and state.expected[barrier] != asked:
                facts = meeting_facts(state, barrier)
                raise state.program.mistake("sync counts", **facts, threads=state.expected[barrier], other=asked)
            if not came:
                state.expected[barrier] = state.pending[barrier] = asked
        if waits or barrier == state.cluster:
            state.standing[agent, barrier] = phase
        count(state, barrier, agent, clock, arrivals=threads)
    if waits:
        if state.phase[barrier] <= state.standing[agent, barrier]:
            return False
        del state.standing[agent, barrier]
        np.maximum(clock, state.released[barrier], out=clock)
    return True


def leave(state: State, agent: int) -> None:
    """An agent leaves: the cluster barrier no longer waits for it."""
    state.left[agent] = True
    state.present[state.program.agents[agent].rank] -= 1
    cluster = state.cluster
    state.expected[cluster] -= 1
    if agent not in arrived(state, cluster):
        state.pending[cluster] -= 1
        if state.pending[cluster] == 0 and state.gathered[cluster] is not None:
            _end_phase(state, cluster, None)


def arrived(state: State, barrier: int) -> tuple[int, ...]:
    """The agents that have arrived in the running phase."""
    return tuple(note.agent for note in state.notes[barrier] if note.op == "arrive")


def meeting_facts(state: State, barrier: int) -> dict[str, Any]:
    """A bar.sync as messages call it, and its number."""
    number = (barrier - state.barriers) % BARS
    return {"meeting": f"bar {number}", "bar": number}


def wrong_threads(state: State, barrier: int, kind: str) -> MistakeFoundError:
    """The mistake of a bar.sync to which another number of threads comes than it waits for."""
    agents, threads = arrived(state, barrier), state.expected[barrier]
    came = sum(state.program.agents[agent].warp_threads for agent in agents)
    return state.program.mistake(kind, **meeting_facts(state, barrier), threads=threads, came=came, agents=agents)
