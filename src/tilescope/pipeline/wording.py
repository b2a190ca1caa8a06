"""What happens in a run, in words: actions, landings, and mistakes.

Action("wait", barriers (2,), number 1)   ──▶   wait full[2], parity 1
"unfilled", agent 1, slot 0               ──▶   consumer reads a[0] before anything has filled it: it reads garbage. …
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tilescope.pipeline.instances import Instance, Instances
from tilescope.pipeline.mistake_kinds import KINDS
from tilescope.pipeline.operations import OPERATIONS
from tilescope.sentence import filled, listed
from tilescope.sync.all_orders.action import Action, Flight
from tilescope.sync.all_orders.mistake import Fact, MistakeFoundError


def mistake_error(parts: Instances, kind: str, **facts: Fact) -> MistakeFoundError:
    """A mistake of the table: facts called agent, barrier or slot are numbers, and get their names here."""
    row = KINDS[kind]
    named = {name: _named(parts, name, fact) for name, fact in facts.items()}
    mistake = replace(
        row,
        subject=str(named.get(row.subject, row.subject)),
        found=filled(row.found, named),
        consequence=filled(row.consequence, named),
        fix=filled(row.fix, named),
        values={name: named[name] for name, fact in facts.items() if not isinstance(fact, str)},
    )
    return MistakeFoundError(mistake, kind, facts)


def _named(parts: Instances, name: str, fact: Fact) -> Fact:
    """A fact as sentences show it: agents, barriers and slots by their titles."""
    tables: dict[str, Sequence[Instance]] = {
        "agent": parts.agents,
        "agent_before": parts.agents,
        "agents": parts.agents,
        "agents_absent": parts.agents,
        "barrier": parts.barriers,
        "slot": parts.slots,
    }
    if name not in tables:
        return fact
    titles = [tables[name][number].title for number in _numbers(fact)]
    return listed(dict.fromkeys(titles))


def _numbers(fact: Fact) -> list[int]:
    """The numbers of agents, barriers or slots that a fact holds: one, or several."""
    if isinstance(fact, int):
        return [fact]
    assert isinstance(fact, list | tuple)
    return list(fact)


def said(parts: Instances, done: Action | Flight | None, block: int | None = None) -> str:
    """What an action does: "wait full[2], parity 1"; or what lands: "4096 bytes land in a[0], for full[0]".

    Where all barriers or slots of a list are those of `block`, they are named without it.
    """
    if done is None:
        return "leaves"
    if isinstance(done, Flight):
        barrier = _listed(parts.barriers, (done.barrier,), block)
        if done.op == "copy":
            return f"{done.number} bytes land in {_listed(parts.slots, done.slots, block)}, for {barrier}"
        return f"{done.op} of {parts.agents[done.agent].title} arrives at {barrier}"
    facts = {
        "barriers": _listed(parts.barriers, done.barriers, block),
        "slots": _listed(parts.slots, done.slots, block),
        "into": _listed(parts.slots, done.into, block),
        "number": done.number,
        "choice": done.choice,
        "threads": done.times,
        "arrivals": done.times if done.times > 1 else None,  # one goes without saying
        "only": "" if done.flag else "only",
        "read": "read" if done.flag else "",
    }
    return filled(OPERATIONS[done.op].said, facts)


def told(parts: Instances, agent: int, done: Action | Flight | None) -> str:
    """The same with the agent that acts; what lands acts by itself."""
    text = said(parts, done)
    if isinstance(done, Flight):
        return text
    line = "" if done is None or done.step is None else done.step.at
    place = f" ({line})" if line else ""
    return f"{parts.agents[agent].title}: {text}{place}"


def _listed(table: Sequence[Instance], numbers: Iterable[int], block: int | None) -> str:
    """Barriers or slots by name, those of several blocks with their block."""
    held = [table[number] for number in numbers]
    is_own = all(part.block == block for part in held)
    return ", ".join(dict.fromkeys(part.name if is_own else part.title for part in held))
