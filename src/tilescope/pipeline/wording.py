"""Actions and barriers in words, for messages, timelines and the way into a mistake."""

from __future__ import annotations

from tilescope.pipeline.machine import Flight, Machine
from tilescope.pipeline.program import Action, Program


def action_text(program: Program, action: Action) -> str:
    """What an action does, with its barrier or slot and numbers: "wait full[2], parity 1"."""
    barriers = ", ".join(dict.fromkeys(map(program.barrier_name, action.barriers)))
    slots = ", ".join(map(program.slot_name, action.slots))
    match action.op:
        case "wait" | "tail":
            return f"{action.op} {barriers}, parity {action.number}"
        case "expect":
            return f"{'' if action.flag else 'only '}expect {action.number} bytes on {barriers}"
        case "arrive" | "release" | "cp_arrive":
            times = f", {action.times} arrivals" if action.times > 1 else ""
            return f"{action.op} {barriers}{times}"
        case "copy":
            counted = f", {action.number} bytes on {barriers}" if barriers else f", {action.number} bytes"
            return f"copy into {slots}{counted}"
        case "multiply" | "read" | "write" | "store":
            into = f" into {', '.join(map(program.slot_name, action.into))}" if action.into else ""
            return f"{action.op} {slots}{into}"
        case "commit":
            return f"commit to {barriers}" if barriers else f"commit {action.choice}"
        case "wait_group":
            return f"wait_group {action.choice} {action.number}" + (" read" if action.flag else "")
        case "sync" | "bar_arrive":
            return f"{action.op} {action.number}" + (f", {action.times} threads" if action.times else "")
        case "registers":
            return f"registers {action.number}"
        case "init":
            return f"init {barriers}"
    return f"{action.op} {action.choice}"


def flight_text(program: Program, flight: Flight) -> str:
    """What lands: "4096 bytes land in a[0], for full[0]"."""
    barrier = program.barrier_name(flight.barrier)
    if flight.op == "copy":
        return f"{flight.amount} bytes land in {program.slot_name(flight.slot)}, for {barrier}"
    return f"{flight.op} of {program.agents[flight.agent].name} arrives at {barrier}"


def phase_text(machine: Machine, barrier: int) -> str:
    """A barrier's running phase in words: "full[2], phase 1: 0 of 1 arrivals, 4096 bytes missing"."""
    name, phase = machine.program.barrier_name(barrier), machine.barriers.phase[barrier]
    came = machine.barriers.expected[barrier] - machine.barriers.pending[barrier]
    tx = machine.barriers.tx[barrier]
    missing = f", {tx} bytes missing" if tx > 0 else f", {-tx} bytes too many" if tx < 0 else ""
    return f"{name}, phase {phase}: {came} of {machine.barriers.expected[barrier]} arrivals{missing}"
