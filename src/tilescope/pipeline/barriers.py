"""The mbarriers of a run: what each counts in its running phase, and who certainly knows that a phase has ended.

An operation is certain of its phase when the end of the phase before lies in its past. One that is not could have met
another phase in another order of the roles: it is kept as an ambiguity.
"""

from __future__ import annotations

import numpy as np

from tilescope.pipeline.mbarrier import TX_END_BYTES
from tilescope.pipeline.mistake import MistakeFoundError
from tilescope.pipeline.state import Ambiguity, Clock, Note, State


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
    require_initialised(state, barrier, agent, clock)
    phase, before = state.phase[barrier], state.tx[barrier]
    if clock[state.agents + barrier] < phase:
        state.ambiguities.append(Ambiguity("arrive", barrier, phase, agent))
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
        raise _too_many_arrivals(state, barrier)
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


def require_initialised(state: State, barrier: int, agent: int, clock: Clock) -> None:
    """Stop where an agent cannot know that a barrier is initialised."""
    program = state.program
    if not program.initialises:
        return
    maker, time = state.initialised[barrier] or (agent, int(clock[agent]) + 1)  # by nobody: in the future
    if clock[maker] < time:
        raise program.mistake("init", agent=agent, barrier=barrier)
    if program.agents[maker].rank != program.agents[agent].rank and not any(
        time < fence <= clock[maker] for fence in state.init_fences[maker]
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
