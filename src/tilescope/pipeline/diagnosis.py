"""Why nobody moves any more: from the state of a hang to the one count, byte or parity behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tilescope.errors import counted
from tilescope.pipeline.machine import Machine
from tilescope.pipeline.mistake import Mistake, example, pipeline_rule
from tilescope.pipeline.program import NONE, Action
from tilescope.pipeline.wording import action_text, phase_text
from tilescope.swizzle import CHUNK_BYTES

_LOOKAHEAD = 4096  # actions of a role that are looked at for its next arrival
_CUT = f"A bulk copy's size is cut down to a multiple of {CHUNK_BYTES}."
_ARRIVE_OPS = ("arrive", "release", "cp_arrive", "commit")


_BOTH = {"full": {"count": 1}, "empty": {"count": 1}}
_FILL = ({"expect": "full", "bytes": 64}, {"copy": "a", "bytes": 64, "barrier": "full"})
CIRCLE = pipeline_rule(
    "pipeline-circle", "Some role can always go on.",
    example({"wait": "full", "parity": 0}, {"arrive": "empty"},
            others=(({"wait": "empty", "parity": 0}, {"arrive": "full"}),), barriers=_BOTH),
    source="what waiting means",
)  # fmt: skip
LATE = pipeline_rule(
    "pipeline-late", "A phase ends only after everyone who waits for the one before has seen that end.",
    example(*({"arrive": name} for name in ("full", "full", "empty")),
            others=(({"wait": "empty", "parity": 0}, {"wait": "full", "parity": 0}),), barriers=_BOTH),
    basis="measured",
)  # fmt: skip
PARITY = pipeline_rule(
    "pipeline-parity", "A role waits with the parity of the phase that it needs, counted over the whole kernel.",
    example({"arrive": "full"}, {"wait": "full", "parity": 1}, {"arrive": "full"}), basis="measured",
)  # fmt: skip
RECEIVER = pipeline_rule(
    "pipeline-receiver", "Every block that receives bytes expects them on its own barrier.",
    example(_FILL[1], {"wait": "full", "parity": 0}), basis="measured",
)  # fmt: skip
REGISTERS = pipeline_rule(
    "pipeline-registers", "Registers of all warpgroups fit into the block's pool, which is known.",
    example({"registers": 240}, registers=168), source="PTX ISA, setmaxnreg",
)  # fmt: skip
START = pipeline_rule(
    "pipeline-start", "A producer starts with parity 1, which passes on a fresh barrier, or its slots are freed first.",
    example({"wait": "empty", "parity": 0}, *_FILL, others=(({"wait": "full", "parity": 0}, {"read": ["a"]}, {"release": "empty"}),),
            barriers=_BOTH),
    basis="measured",
)  # fmt: skip


class _Wait(NamedTuple):
    """A wait that never passes."""

    agent: int
    barrier: int
    parity: int


def diagnosed(machine: Machine) -> Mistake:
    """The mistake behind a state in which no agent can act and nothing is under way."""
    blocked = [(agent, action) for agent in range(machine.agents) if (action := machine.current(agent)) is not None]
    waits = [
        _Wait(agent, action.barriers[0], action.number) for agent, action in blocked if action.op in ("wait", "tail")
    ]
    for explain in (_registers, _meetings):
        for agent, action in blocked:
            if (found := explain(machine, agent, action)) is not None:
                return found
    for cause in (_bytes, _count, _late, _nobody, _parity, _start):
        for wait in waits:
            if (found := cause(machine, wait)) is not None:
                return found
    return _circle(machine, blocked)


def _registers(machine: Machine, agent: int, action: Action) -> Mistake | None:
    if action.op != "registers":
        return None
    who = machine.program.agents[agent]
    need, free = machine.register_need(agent, action), machine.pool[who.rank]
    return Mistake(
        "pipeline-registers", "hang", who.name,
        f"{who.name} asks for {action.number} registers a thread, {need} more, and the block's pool has {free}",
        "setmaxnreg.inc waits for ever", "Let the sum over all warpgroups stay within the registers at entry.",
    )  # fmt: skip


def _meetings(machine: Machine, agent: int, action: Action) -> Mistake | None:
    if action.op not in ("sync", "cluster"):
        return None
    program = machine.program
    key = (NONE, 0) if action.op == "cluster" else (program.agents[agent].rank, action.number)
    meeting = machine.meetings.all[key]
    missing = [
        each
        for each in range(machine.agents)
        if each not in meeting.arrived and not machine.left[each]
        and any(later.op in (action.op, "bar_arrive") and later.number == action.number for later in _coming(machine, each))
    ]  # fmt: skip
    if missing:  # somebody would come, and is held up elsewhere
        return None
    names = ", ".join(program.agents[each].name for each in meeting.arrived)
    came = sum(program.agents[each].warp_threads for each in meeting.arrived)
    if meeting.threads is None:
        absent = [program.agents[each].name for each in _not_there(machine, meeting.arrived)]
        return Mistake(
            "pipeline-sync", "hang", meeting.name,
            f"{names} wait at the cluster barrier, and {', '.join(absent)} never come there",
            "they wait for ever", "Let every role of every block arrive there.",
        )  # fmt: skip
    return Mistake(
        "pipeline-sync", "hang", meeting.name, f"{meeting.name} waits for {meeting.threads} threads and {came} come ({names})",
        "it never ends", f"Let it count {came}, or let the others come too.",
    )  # fmt: skip


def _bytes(machine: Machine, wait: _Wait) -> Mistake | None:
    """All arrived, and the bytes do not match."""
    barrier, tx = wait.barrier, machine.barriers.tx[wait.barrier]
    if tx == 0 or machine.barriers.pending[barrier] > 0 or _bytes_to_come(machine, barrier) == tx:
        return None
    name, phase, notes = (
        machine.program.barrier_name(barrier),
        machine.barriers.phase[barrier],
        machine.barriers.notes[barrier],
    )
    expected = sum(note.amount for note in notes if note.op == "expect")
    brought = sum(note.amount for note in notes if note.op == "bytes")
    return Mistake(
        "pipeline-bytes", "hang", name, f"{name}, phase {phase} expects {expected} bytes, the copies bring {brought}",
        "it never ends" if brought < expected else "it ends before the last bytes arrive, or never",
        f"Expect {brought} bytes." + (f" {_CUT}" if expected % CHUNK_BYTES else ""),
    )  # fmt: skip


def _count(machine: Machine, wait: _Wait) -> Mistake | None:
    """Everyone who ever arrives there has arrived in this phase, and it wants more."""
    barrier, pending = wait.barrier, machine.barriers.pending[wait.barrier]
    came = [note for note in machine.barriers.notes[barrier] if note.op == "arrive"]
    arrivers = {each for each in range(machine.agents) if _arrives(machine, each, barrier)} | {
        note.agent for note in came
    }
    if pending == 0 or not came or not arrivers <= {note.agent for note in came}:
        return None
    name, expected = machine.program.barrier_name(barrier), machine.barriers.expected[barrier]
    total = sum(note.amount for note in came)
    added = sum(note.amount for note in machine.barriers.notes[barrier] if note.op == "more")
    names = ", ".join(dict.fromkeys(machine.program.agents[note.agent].name for note in came))
    if added:
        return Mistake(
            "pipeline-arrivals", "hang", name,
            f"{name} counts {expected}, and cp.async.mbarrier.arrive without .noinc adds the {added} arrivals that it takes back ({names})",
            "it never ends", "Use .noinc, or count these arrivals not at all.",
        )  # fmt: skip
    return Mistake(
        "pipeline-arrivals", "hang", name,
        f"{name} counts {expected}, and phase {machine.barriers.phase[barrier]} gets {counted(total, 'arrival')}, from {names}",
        "it never ends", f"Initialise it with {total}, or let {pending} more arrive.",
    )  # fmt: skip


def _nobody(machine: Machine, wait: _Wait) -> Mistake | None:
    """Arrivals are missing and nobody will make them."""
    agent, barrier, _ = wait
    if machine.barriers.pending[barrier] == 0 or any(
        _arrives(machine, each, barrier) for each in range(machine.agents)
    ):
        return None
    program = machine.program
    name, who, expected = program.barrier_name(barrier), program.agents[agent].name, machine.barriers.expected[barrier]
    phase, pending, tx = (
        machine.barriers.phase[barrier],
        machine.barriers.pending[barrier],
        machine.barriers.tx[barrier],
    )
    came = expected - pending
    if tx < 0:
        return Mistake(
            "pipeline-receiver", "hang", name,
            f"{name}, phase {phase} gets {-tx} bytes that nobody expects there, and {came} of {expected} arrivals",
            "it never ends", "Let every block that receives bytes arm its own barrier with all that lands in it.",
        )  # fmt: skip
    if phase and came == 0:
        fix = f"Let somebody arrive once more, or let {who} wait once less."
    else:
        fix = f"Initialise it with {came}, or let {pending} more arrive." if came else "Let somebody arrive there."
    return Mistake(
        "pipeline-arrivals", "hang", name,
        f"{who} waits for phase {phase} of {name}, which has {came} of {expected} arrivals, and nobody arrives any more",
        "it never ends", fix,
    )  # fmt: skip


def _behind(machine: Machine, wait: _Wait) -> int:
    """Phases that have ended since the role last passed a wait on this barrier."""
    return machine.barriers.phase[wait.barrier] - machine.barriers.last_pass.get((wait.agent, wait.barrier), 0)


def _late(machine: Machine, wait: _Wait) -> Mistake | None:
    """More than one phase went by without the role."""
    agent, barrier, parity = wait
    behind = _behind(machine, wait)
    if behind < 2:
        return None
    name, who = machine.program.barrier_name(barrier), machine.program.agents[agent].name
    arrivers, expected = machine.barriers.arrivers[barrier], machine.barriers.expected[barrier]
    if len(arrivers) > expected:
        names = ", ".join(machine.program.agents[arriver].name for arriver in arrivers)
        return Mistake(
            "pipeline-arrivals", "hang", name, f"{name} counts {expected} and {len(arrivers)} roles arrive ({names})",
            f"its phases end too soon, and {who} misses one and waits for ever", f"Initialise it with {len(arrivers)}.",
        )  # fmt: skip
    return Mistake(
        "pipeline-late", "hang", name,
        f"{who} waits with parity {parity} on {name}, where {behind} phases have ended since it last passed",
        "it missed its phase and waits for ever",
        f"Let no phase begin before {who} has seen the one before it: its arrival must be counted on the way.",
    )  # fmt: skip


def _parity(machine: Machine, wait: _Wait) -> Mistake | None:
    """A phase that the role has not seen yet has ended; with the other parity its wait would pass."""
    agent, barrier, parity = wait
    if _behind(machine, wait) < 1:
        return None
    name, phase = machine.program.barrier_name(barrier), machine.barriers.phase[barrier]
    who = machine.program.agents[agent].name
    return Mistake(
        "pipeline-parity", "hang", name,
        f"{who} waits on {name} with parity {parity} when phase {phase - 1} has ended and parity {1 - parity} would pass",
        "it waits for ever",
        "Count uses of the stage over the whole kernel: parity (i / stages) % 2, and that XOR 1 for a producer.",
    )  # fmt: skip


def _start(machine: Machine, wait: _Wait) -> Mistake | None:
    """A role that fills slots waits for the first phase of a barrier that only its readers end."""
    agent, barrier, parity = wait
    program = machine.program
    fills = any(step.op in ("copy", "write") for step in program.agents[agent].role.all_steps())
    if machine.barriers.phase[barrier] or parity or not fills or (agent, barrier) in machine.barriers.last_pass:
        return None
    if any(note.op in ("expect", "bytes") for note in machine.barriers.notes[barrier]):
        return None
    name, who = program.barrier_name(barrier), program.agents[agent].name
    return Mistake(
        "pipeline-start", "hang", name, f"{who} starts with parity 0 on {name}", "it waits for a slot nobody will free",
        "Start with parity 1, which passes on a fresh barrier, or let the consumers arrive once before their loop.",
    )  # fmt: skip


def _circle(machine: Machine, blocked: list[tuple[int, Action]]) -> Mistake:
    program = machine.program
    said = []
    for agent, action in blocked[:4]:
        state = f" ({phase_text(machine, action.barriers[0])})" if action.op in ("wait", "tail") else ""
        said.append(f"{program.agents[agent].name} in {action_text(program, action)}{state}")
    more = f" and {len(blocked) - 4} more" if len(blocked) > 4 else ""
    return Mistake(
        "pipeline-circle", "hang", program.agents[blocked[0][0]].name, f"every role waits: {'; '.join(said)}{more}",
        "nobody moves any more", "Let one of them go on without the others.",
    )  # fmt: skip


def _not_there(machine: Machine, arrived: tuple[int, ...]) -> list[int]:
    """Agents that have neither left nor arrived."""
    return [each for each in range(machine.agents) if not machine.left[each] and each not in arrived]


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
    )  # fmt: skip


def _bytes_to_come(machine: Machine, barrier: int) -> int:
    """Bytes that held-up agents would still bring for the running phase: those that have brought none."""
    total = 0
    brought = {note.agent for note in machine.barriers.notes[barrier] if note.op == "bytes"}
    for agent in set(range(machine.agents)) - brought:
        for action in _coming(machine, agent):
            if action.op == "expect" and barrier in action.barriers:
                break
            if action.op == "copy":
                total += action.number * action.barriers.count(barrier)
    return total
