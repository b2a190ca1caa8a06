"""Barriers of threads: bar.sync of a block, and the barrier of the cluster."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilescope.pipeline.program import NONE, Action
from tilescope.pipeline.state import CLUSTER, Ambiguity, Clock, Meeting, State

Key = tuple[int, int]


def meeting_key(state: State, agent: int, action: Action) -> Key:
    """The key of the meeting that an action is about."""
    return CLUSTER if action.op == "cluster" else (state.program.agents[agent].rank, action.number)


def meeting_facts(key: Key) -> dict[str, Any]:
    """A meeting as messages call it, and its number."""
    return {"meeting": "the cluster barrier"} if key == CLUSTER else {"meeting": f"bar {key[1]}", "bar": key[1]}


def can_meet(state: State, agent: int, action: Action) -> bool:
    """Whether an agent can arrive, or leave."""
    key = meeting_key(state, agent, action)
    at = state.standing.get((agent, key))
    return at is None or state.meetings[key].generation > at


def meet(state: State, agent: int, action: Action, clock: Clock) -> bool:
    """Arrive at a meeting, or leave one that is complete; whether the action is over."""
    key = meeting_key(state, agent, action)
    if (agent, key) not in state.standing:
        if action.choice == "wait":
            raise state.program.mistake("cluster wait", agent=agent, **meeting_facts(key))
        state.standing[agent, key] = _arrive(state, key, agent, action, clock)
    meeting = state.meetings[key]
    if meeting.generation <= state.standing[agent, key]:
        return False
    del state.standing[agent, key]
    assert meeting.done is not None
    np.maximum(clock, meeting.done, out=clock)
    return True


def arrive(state: State, agent: int, action: Action, clock: Clock) -> None:
    """Arrive without waiting."""
    key = meeting_key(state, agent, action)
    generation = _arrive(state, key, agent, action, clock)
    if key == CLUSTER:
        state.standing[agent, key] = generation


def leave(state: State, agent: int) -> None:
    """An agent leaves: the cluster barrier no longer waits for it."""
    state.left[agent] = True
    if CLUSTER in state.meetings:
        _settle(state, CLUSTER)


def _arrive(state: State, key: Key, agent: int, action: Action, clock: Clock) -> int:
    """Arrive at a meeting for as many threads as the action says; its generation."""
    threads = None if key == CLUSTER else action.times or _warp_threads(state, _of_block(state, key[0]))
    meeting = state.meetings.get(key, Meeting(threads))
    if meeting.arrived and meeting.threads != threads:
        raise state.program.mistake("sync counts", **meeting_facts(key), threads=meeting.threads, other=threads)
    if clock[state.place(key)] < meeting.generation:
        state.ambiguities.append(Ambiguity("meet", NONE, meeting.generation, agent))
    state.meetings[key] = meeting._replace(
        threads=threads,
        arrived=(*meeting.arrived, agent),
        clock=clock.copy() if meeting.clock is None else np.maximum(meeting.clock, clock),
    )
    _settle(state, key)
    return meeting.generation


def _settle(state: State, key: Key) -> None:
    """End the meeting's generation when everyone is there."""
    meeting = state.meetings[key]
    if meeting.threads is None:
        complete = all(left or agent in meeting.arrived for agent, left in enumerate(state.left))
    else:
        came = _warp_threads(state, meeting.arrived)
        if came > meeting.threads:
            raise state.program.mistake(
                "sync surplus", **meeting_facts(key), threads=meeting.threads, came=came, agents=meeting.arrived
            )
        complete = came == meeting.threads
    if complete and meeting.clock is not None:
        generation, done = meeting.generation + 1, meeting.clock.copy()
        done[state.place(key)] = generation
        state.meetings[key] = Meeting(meeting.threads, generation, done=done)
        state.ended.append(NONE)


def _warp_threads(state: State, agents: tuple[int, ...]) -> int:
    return sum(state.program.agents[agent].warp_threads for agent in agents)


def _of_block(state: State, rank: int) -> tuple[int, ...]:
    return tuple(number for number, agent in enumerate(state.program.agents) if agent.rank == rank)
