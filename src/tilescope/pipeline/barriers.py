"""The barriers of a run: what each counts in its running phase, and who certainly knows that a phase has ended.

A barrier of threads, bar.sync or that of the cluster, is one whose arrivals are threads or roles. An operation is certain
of its phase when the end of the phase before lies in its past. One that is not could have met another phase in another
order of the roles: it is kept as an ambiguity.
"""

from __future__ import annotations

import numpy as np

from tilescope.pipeline.mbarrier import TX_END_BYTES
from tilescope.pipeline.mistake import MistakeFoundError
from tilescope.pipeline.parts import WARP_THREADS
from tilescope.pipeline.program import Action, Clock
from tilescope.pipeline.state import Ambiguity, Note, State


def pass_wait(state: State, barrier: int, agent: int, clock: Clock, time: int) -> None:
    """A wait passes: the agent knows all that those who ended the phase before knew."""
    _require_initialised(state, barrier, agent, clock)
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
    _require_initialised(state, barrier, agent, clock)
    phase, before = state.phase[barrier], state.tx[barrier]
    if clock[state.agents + barrier] < phase:
        state.ambiguities.append(Ambiguity("arrive" if barrier < state.barriers else "meet", barrier, phase, agent))
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
        raise _too_many(state, barrier)
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
    state.ended.append(barrier)


def _require_initialised(state: State, barrier: int, agent: int, clock: Clock) -> None:
    """Stop where an agent cannot know that a barrier is initialised."""
    program = state.program
    if not program.initialises or barrier >= state.barriers:
        return
    maker, time = state.initialised[barrier] or (agent, int(clock[agent]) + 1)  # by nobody: in the future
    if clock[maker] < time:
        raise program.mistake("init", agent=agent, barrier=barrier)
    if program.agents[maker].block != program.agents[agent].block and not any(
        time < fence <= clock[maker] for fence in state.fences.get((maker, "mbarrier_init"), ())
    ):
        raise program.mistake("init fence", agent=agent, barrier=barrier)


def _too_many(state: State, barrier: int) -> MistakeFoundError:
    """The mistake of a barrier to which more arrivals come than it waits for."""
    if barrier >= state.barriers:
        return wrong_threads(state, barrier, "sync surplus")
    (agents, came), expected, tx = state.noted(barrier, "arrive"), state.expected[barrier], state.tx[barrier]
    still = f", {tx} bytes still missing" if tx else ""
    return state.program.mistake(
        "too many arrivals", barrier=barrier, expected=expected, came=came, phase=state.phase[barrier], agents=agents,
        still=still, surplus=came - expected, tx=tx,
    )  # fmt: skip


def meet(state: State, agent: int, action: Action, clock: Clock) -> bool:
    """Arrive at a barrier of threads, or leave one whose phase has ended; whether the action is over."""
    barrier, place = action.barriers[0], state.program.agents[agent]
    of_cluster = barrier == state.program.cluster
    if (agent, barrier) not in state.standing or not action.meets:
        if action.choice == "wait":
            raise state.program.mistake("cluster wait", agent=agent)
        came, expected = state.noted(barrier, "arrive")[0], state.expected[barrier]
        if of_cluster:
            threads = int(agent not in came)
        else:
            in_block = (other.of for other in state.program.agents if other.block == place.block)
            asked = action.times or sum(role.whole_threads(WARP_THREADS) for role in in_block)
            if came and expected != asked:
                raise state.program.mistake("sync counts", barrier=barrier, threads=expected, other=asked)
            if not came:
                state.expected[barrier] = state.pending[barrier] = asked
            threads = place.of.whole_threads(WARP_THREADS)
        if action.meets or of_cluster:
            state.standing[agent, barrier] = state.phase[barrier]
        count(state, barrier, agent, clock, arrivals=threads)
    if action.meets:
        if state.phase[barrier] <= state.standing[agent, barrier]:
            return False
        del state.standing[agent, barrier]
        np.maximum(clock, state.released[barrier], out=clock)
    return True


def leave(state: State, agent: int) -> None:
    """An agent leaves: the cluster barrier no longer waits for it."""
    state.left[agent] = True
    state.present[state.program.agents[agent].block] -= 1
    cluster = state.program.cluster
    state.expected[cluster] -= 1
    if agent not in state.noted(cluster, "arrive")[0]:
        state.pending[cluster] -= 1
        if state.pending[cluster] == 0 and state.gathered[cluster] is not None:
            _end_phase(state, cluster, None)


def wrong_threads(state: State, barrier: int, kind: str) -> MistakeFoundError:
    """The mistake of a bar.sync to which another number of threads comes than it waits for."""
    agents, came = state.noted(barrier, "arrive")
    return state.program.mistake(kind, barrier=barrier, threads=state.expected[barrier], came=came, agents=agents)
