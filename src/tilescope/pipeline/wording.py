"""Actions, landings and barriers in words, for messages, timelines and the way into a mistake."""

from __future__ import annotations

from functools import partial

from tilescope.pipeline.program import Action, Program
from tilescope.pipeline.state import Ambiguity, Flight, State


def said(program: Program, done: Action | Flight | None, block: int | None = None) -> str:
    """What an action does: "wait full[2], parity 1"; or what lands: "4096 bytes land in a[0], for full[0]".

    Barriers and slots of `block` are named without their block.
    """
    barrier_name, slot_name = partial(program.barriers.name, block=block), partial(program.slots.name, block=block)
    if done is None:
        return "leaves"
    if isinstance(done, Flight):
        barrier = barrier_name(done.barrier)
        if done.op == "copy":
            return f"{done.number} bytes land in {slot_name(done.slots[0])}, for {barrier}"
        return f"{done.op} of {program.agents[done.agent].name} arrives at {barrier}"
    barriers = ", ".join(dict.fromkeys(map(barrier_name, done.barriers)))
    slots, into = (", ".join(map(slot_name, numbers)) for numbers in (done.slots, done.into))
    op, number = done.op, done.number
    match op:
        case "wait" | "tail":
            return f"{op} {barriers}, parity {number}"
        case "expect":
            return f"{'' if done.flag else 'only '}expect {number} bytes on {barriers}"
        case "arrive" | "release" | "cp_arrive" | "init":
            return f"{op} {barriers}" + (f", {done.times} arrivals" if done.times > 1 else "")
        case "copy":
            return f"copy into {slots}, {number} bytes" + (f" on {barriers}" if barriers else "")
        case "multiply" | "read" | "write" | "store":
            return f"{op} {slots}" + (f" into {into}" if into else "")
        case "commit" if barriers:
            return f"commit to {barriers}"
        case "wait_group":
            return f"wait_group {done.choice} {number}" + (" read" if done.flag else "")
        case "sync" | "bar_arrive":
            return f"{op} {number}" + (f", {done.times} threads" if done.times else "")
    return f"{op} {done.choice or number}"


def told(program: Program, agent: int, done: Action | Flight | None) -> str:
    """The same with the agent that acts; what lands acts by itself."""
    text = said(program, done)
    return text if isinstance(done, Flight) else f"{program.agents[agent].name}: {text}"


def phase_text(state: State, barrier: int) -> str:
    """A barrier's running phase in words: "full[2], phase 1: 0 of 1 arrivals, 4096 bytes missing"."""
    expected, tx = state.expected[barrier], state.tx[barrier]
    missing = f", {tx} bytes missing" if tx > 0 else f", {-tx} bytes too many" if tx < 0 else ""
    came = f"{expected - state.pending[barrier]} of {expected} arrivals"
    return f"{state.program.barriers.name(barrier)}, phase {state.phase[barrier]}: {came}{missing}"


_ALIASING = {
    "meet": "{agent} could meet the barrier of threads in round {phase} or the one before",
    "arrive": "What {agent} adds to {barrier} could count in phase {phase} or in an earlier one",
    "wait": "The wait of {agent} on {barrier} could pass in phase {phase} or two phases earlier, of the same parity",
    "late": "{barrier} could end phase {phase} before {agent} has seen the one before it",
    "early": "{barrier} could end phase {phase} before {agent} has added to it",
}


def aliasing_text(program: Program, ambiguity: Ambiguity) -> str:
    """An operation that could meet two phases, in words."""
    barrier = "" if ambiguity.op == "meet" else program.barriers.name(ambiguity.barrier)
    agent = program.agents[ambiguity.agent].name
    return _ALIASING[ambiguity.op].format(agent=agent, barrier=barrier, phase=ambiguity.phase)
