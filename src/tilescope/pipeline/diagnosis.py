"""Why nobody moves any more: from the state of a hang to the one count, byte or parity behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

from tilescope.errors import counted
from tilescope.pipeline.barriers import arrived, meeting, wrong_threads
from tilescope.pipeline.machine import Machine
from tilescope.pipeline.mistake import BULK_CUT
from tilescope.pipeline.program import Action
from tilescope.pipeline.wording import phase_text, said
from tilescope.swizzle import CHUNK_BYTES

_LOOKAHEAD = 4096  # actions of a role that are looked at for its next arrival
_ARRIVE_OPS = ("arrive", "release", "cp_arrive", "commit")
_REGISTER_STEP = 8  # setmaxnreg takes multiples of it
_WAITS_SHOWN = 4


class _Wait(NamedTuple):
    """A wait that never passes, and what its barrier counts."""

    agent: int
    barrier: int
    parity: int
    phase: int
    expected: int
    pending: int
    tx: int

    @property
    def came(self) -> int:
        return self.expected - self.pending


def diagnose(machine: Machine) -> NoReturn:
    """Raise the mistake behind a state in which no agent can act and nothing is under way."""
    blocked = [(agent, action) for agent in range(machine.agents) if (action := machine.current(agent)) is not None]
    for explain in (_registers, _meetings):
        for agent, action in blocked:
            explain(machine, agent, action)
    waits = [
        _Wait(agent, at, action.number, machine.phase[at], machine.expected[at], machine.pending[at], machine.tx[at])
        for agent, action in blocked
        if action.waits
        for at in action.barriers
    ]
    for cause in (_bytes, _count, _late, _nobody, _parity, _start):
        for wait in waits:
            cause(machine, wait)
    program = machine.program
    texts = []
    for agent, action in blocked[:_WAITS_SHOWN]:
        counts = f" ({phase_text(machine, action.barriers[0])})" if action.waits else ""
        texts.append(f"{program.agents[agent].name} in {said(program, action)}{counts}")
    more = f" and {len(blocked) - _WAITS_SHOWN} more" if len(blocked) > _WAITS_SHOWN else ""
    raise program.mistake(
        "circle",
        agent=blocked[0][0],
        waits="; ".join(texts) + more,
        roles=len(blocked),
        counts=[wait[2:] for wait in waits],
    )


def _registers(machine: Machine, agent: int, action: Action) -> None:
    if action.op == "registers":
        free = machine.pool[machine.program.agents[agent].rank]
        most = machine.registers[agent] + free // machine.register_threads(agent)
        raise machine.program.mistake(
            "registers", agent=agent, registers=action.number, need=machine.register_need(agent, action), free=free,
            most=most // _REGISTER_STEP * _REGISTER_STEP,
        )  # fmt: skip


def _meetings(machine: Machine, agent: int, action: Action) -> None:
    """A meeting to which nobody else will come."""
    if action.op not in ("sync", "cluster"):
        return
    barrier = meeting(machine, agent, action)
    came = arrived(machine, barrier)
    absent = [other for other in range(machine.agents) if not machine.left[other] and other not in came]
    for other in absent:
        if any(
            later.op in (action.op, "bar_arrive") and later.number == action.number for later in _coming(machine, other)
        ):
            return  # it would come, and is held up elsewhere
    if barrier == machine.cluster:
        raise machine.program.mistake("cluster", agents=came, agents_absent=absent)
    raise wrong_threads(machine, barrier, "sync")


def _bytes(machine: Machine, wait: _Wait) -> None:
    """All arrived, and the bytes do not match."""
    if wait.tx == 0 or wait.pending > 0 or _bytes_to_come(machine, wait.barrier) == wait.tx:
        return
    expected, brought = (_noted(machine, wait.barrier, op) for op in ("expect", "bytes"))
    raise machine.program.mistake(
        "too few bytes" if brought < expected else "too many bytes",
        BULK_CUT if expected % CHUNK_BYTES else "",
        barrier=wait.barrier,
        phase=wait.phase,
        expected=expected,
        brought=brought,
    )


def _count(machine: Machine, wait: _Wait) -> None:
    """Everyone who ever arrives there has arrived in this phase, and it wants more."""
    barrier = wait.barrier
    arrived = [note.agent for note in machine.notes[barrier] if note.op == "arrive"]
    if wait.pending == 0 or not arrived:
        return
    if any(_arrives(machine, agent, barrier) for agent in range(machine.agents) if agent not in arrived):
        return
    came, added = (_noted(machine, barrier, op) for op in ("arrive", "more"))
    raise machine.program.mistake(
        "noinc" if added else "too few arrivals", barrier=barrier, expected=wait.expected, added=added, phase=wait.phase,
        arrivals=counted(came, "arrival"), came=came, pending=wait.pending, agents=arrived,
    )  # fmt: skip


def _nobody(machine: Machine, wait: _Wait) -> None:
    """Arrivals are missing and nobody will make them."""
    agent, barrier, _, phase, expected, pending, tx = wait
    if pending == 0 or any(_arrives(machine, other, barrier) for other in range(machine.agents)):
        return
    facts: dict[str, Any] = {"barrier": barrier, "phase": phase, "came": wait.came, "expected": expected}
    if tx < 0:
        raise machine.program.mistake("receiver", **facts, bytes=-tx, landed=_noted(machine, barrier, "bytes"))
    if wait.came:
        fix = f"Initialise it with {wait.came}, or let {pending} more arrive."
    elif phase:
        fix = f"Let somebody arrive once more, or let {machine.program.agents[agent].name} wait once less."
    else:
        fix = f"Let {counted(expected, 'arrival')} come there."
    raise machine.program.mistake("nobody arrives", **facts, agent=agent, pending=pending, fix=fix)


def _behind(machine: Machine, wait: _Wait) -> int:
    """Phases that have ended since the role last passed a wait on this barrier."""
    return wait.phase - machine.last_pass.get((wait.agent, wait.barrier), 0)


def _late(machine: Machine, wait: _Wait) -> None:
    """More than one phase went by without the role."""
    agent, barrier, parity, _, expected, *_ = wait
    behind, arrivers = _behind(machine, wait), machine.arrivers[barrier]
    if behind < 2:
        return
    if len(arrivers) > expected:
        raise machine.program.mistake(
            "several roles", barrier=barrier, expected=expected, roles=len(arrivers), agents=arrivers, agent=agent
        )
    raise machine.program.mistake("late", agent=agent, barrier=barrier, parity=parity, behind=behind)


def _parity(machine: Machine, wait: _Wait) -> None:
    """A phase that the role has not seen yet has ended; with the other parity its wait would pass."""
    agent, barrier, parity, phase, *_ = wait
    if _behind(machine, wait) >= 1:
        raise machine.program.mistake(
            "parity", agent=agent, barrier=barrier, parity=parity, phase=phase - 1, other=1 - parity
        )


def _start(machine: Machine, wait: _Wait) -> None:
    """A role that fills slots waits for the first phase of a barrier that only its readers end."""
    agent, barrier, parity, phase, *_ = wait
    fills = any(step.op in ("copy", "write") for step in machine.program.agents[agent].role.all_steps())
    fresh = not phase and not parity and (agent, barrier) not in machine.last_pass
    if fills and fresh and not any(note.op in ("expect", "bytes") for note in machine.notes[barrier]):
        raise machine.program.mistake("start", agent=agent, barrier=barrier)


def _noted(machine: Machine, barrier: int, op: str) -> int:
    """What the running phase counted of a kind, all together."""
    return sum(note.amount for note in machine.notes[barrier] if note.op == op)


def _coming(machine: Machine, agent: int) -> Iterator[Action]:
    """What an agent would still do."""
    if machine.left[agent]:
        return
    for number in range(machine.pc[agent], machine.pc[agent] + _LOOKAHEAD):
        action = machine.steps[agent].peek(number)
        if action is None:
            return
        yield action


def _arrives(machine: Machine, agent: int, barrier: int) -> bool:
    """Whether an agent would still arrive at a barrier."""
    return any(
        barrier in action.barriers and (action.op in _ARRIVE_OPS or (action.op == "expect" and action.flag))
        for action in _coming(machine, agent)
    )


def _bytes_to_come(machine: Machine, barrier: int) -> int:
    """Bytes that held-up agents would still bring for the running phase: those that have brought none."""
    total = 0
    brought = {note.agent for note in machine.notes[barrier] if note.op == "bytes"}
    for agent in set(range(machine.agents)) - brought:
        for action in _coming(machine, agent):
            if action.op == "expect" and barrier in action.barriers:
                break
            if action.op == "copy":
                total += action.number * action.barriers.count(barrier)
    return total
