"""What happens in a run, in sentences: actions, landings, ambiguities and mistakes. The search itself has only numbers.

MbarrierWait(barriers (2,), parity 1)   ──▶   wait full[2], parity 1
"unfilled", agent 1, slot 0             ──▶   consumer reads a[0] before anything has filled it: it reads garbage. …
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from tilescope.bits import ones
from tilescope.errors import Severity, Violation
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.instances import Instance, Instances
from tilescope.pipeline.mistake_messages import TEXT_OF_KIND
from tilescope.pipeline.operations import OPERATIONS
from tilescope.pipeline.parts import Step
from tilescope.sentence import fill_template, listed
from tilescope.swizzle import CHUNK_BYTES
from tilescope.sync.all_orders.mistake import BlockedAgent, EarlierStep, Fact, MistakeFoundError, Outcome
from tilescope.sync.all_orders.search import Done, Move
from tilescope.sync.all_orders.state import PendingOperation
from tilescope.sync.all_orders.stuck_diagnosis import MAX_WAITS_SHOWN
from tilescope.sync.proxies import PROXY_ASYNC, TCGEN05_AFTER, TCGEN05_BEFORE
from tilescope.sync.role_clocks import Ambiguity
from tilescope.sync.role_events import (
    Action,
    ClusterArrive,
    CopyIssued,
    GroupWait,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierWait,
    SlotAccess,
    TmemCommit,
)
from tilescope.value import Value


@dataclass(frozen=True, slots=True)
class Mistake(Value):
    """A mistake of a pipeline: its place, its numbers, its effect and its fix.

    >>> print(Mistake("pipeline-bytes", "hang", "full[2]", "full[2], phase 1 expects 16384 bytes, the copies bring 12288",
    ...               "the phase never ends", "Expect 12288 bytes."))
    full[2], phase 1 expects 16384 bytes, the copies bring 12288: the phase never ends. Expect 12288 bytes.
    """

    rule: str
    outcome: Outcome
    subject: str  # the barrier, slot or role
    found: str
    consequence: str
    fix: str
    way: tuple[str, ...] = ()  # the shortest path into it
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)  # the numbers and names of the sentence
    _fixed: Pipeline | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def fixed(self) -> Pipeline | None:
        """The pipeline with the fix, which was proven; None if there is only advice."""
        return self._fixed

    def fixed_by(self, pipeline: Pipeline, fix: str) -> Mistake:
        """The mistake with a fix that was proven, and the fixed pipeline."""
        fixed = replace(self, fix=fix)
        object.__setattr__(fixed, "_fixed", pipeline)
        return fixed

    def __str__(self) -> str:
        return f"{self.found}: {self.consequence}. {self.fix}"

    def violation(self, severity: Severity = "error") -> Violation:
        """The mistake as a broken rule, as other checks report theirs."""
        return Violation(self.rule, severity, self.subject, self.found, self.consequence, self.fix, values=self.values)


# ---- actions


def describe_action(parts: Instances, done: Done, block: int | None = None) -> str:
    """The description of an action: "wait full[2], parity 1"; or of a landing: "4096 bytes land in a[0], for full[0]".

    If all barriers or slots of a list are those of `block`, they are named without it.
    """
    if done is None:
        return "leaves"
    if isinstance(done, PendingOperation):
        barrier = _list_parts(parts.barriers, (done.barrier,), block)
        if done.kind == "copy":
            return f"{done.size_bytes} bytes land in {_list_parts(parts.slots, done.slots, block)}, for {barrier}"
        return f"{done.kind} of {parts.agents[done.agent].title} arrives at {barrier}"
    step = step_of(done)
    facts: dict[str, object] = {
        "target": step.target,
        "unit": "",
        "bytes": moved_bytes(done),
        "only": "only" if isinstance(done, MbarrierExpect) else "",
        "read": "read" if isinstance(done, GroupWait) and done.only_read else "",
        "relaxed": "relaxed" if isinstance(done, ClusterArrive) and done.is_relaxed else "",
        "into": "",
    }
    for name in _field_names(done):
        facts[name] = getattr(done, name)
    if facts.get("arrivals") == 1:
        facts["arrivals"] = None  # one goes without saying
    facts["barriers"] = _list_parts(parts.barriers, done.barriers, block)
    facts["slots"] = _list_parts(parts.slots, done.slots, block)
    if isinstance(done, SlotAccess):
        facts["into"] = _list_parts(parts.slots, done.into, block)
    return fill_template(OPERATIONS[step.op].sentence, facts)


_FIELD_NAMES: dict[type[Action], tuple[str, ...]] = {}  # of the events described so far: `fields` is slow


def _field_names(event: Action) -> tuple[str, ...]:
    names = _FIELD_NAMES.get(type(event))
    if names is None:
        names = _FIELD_NAMES[type(event)] = tuple(row.name for row in fields(event))
    return names


def step_of(action: Action) -> Step:
    """The step of an action."""
    assert isinstance(action.step, Step)
    return action.step


def moved_bytes(done: Action | PendingOperation) -> int:
    """The bytes that an action copies or expects, or that land."""
    match done:
        case CopyIssued() | MbarrierExpect() | PendingOperation():
            return done.size_bytes
        case MbarrierArrive():
            return done.expected_bytes
    return 0


def describe_move(parts: Instances, agent: int, done: Done) -> str:
    """An action with its agent and source line: "consumer: wait full[2], parity 1"; what lands has no agent."""
    text = describe_action(parts, done)
    if isinstance(done, PendingOperation):
        return text
    line = "" if done is None else step_of(done).at
    place = f" ({line})" if line else ""
    return f"{parts.agents[agent].title}: {text}{place}"


def describe_path(parts: Instances, path: Iterable[Move], blocked: Iterable[BlockedAgent]) -> tuple[str, ...]:
    """A path into a mistake; at the end of a deadlock are the waits that never pass."""
    moves = [describe_move(parts, agent, done) for agent, done in path]
    waits = [f"{describe_move(parts, agent, action)}: never passes" for agent, action in blocked]
    return (*moves, *waits)


def _list_parts(table: Sequence[Instance], numbers: Iterable[int], block: int | None) -> str:
    """Barriers or slots by name, those of several blocks with their block."""
    instances = [table[number] for number in numbers]
    is_own = all(part.block == block for part in instances)
    return ", ".join(dict.fromkeys(part.name if is_own else part.title for part in instances))


# ---- ambiguities

_AMBIGUITIES = {
    "sync": "{agent} could come to {barrier} in round {phase} or in the round before",
    "count": "What {agent} adds to {barrier} could count in phase {phase} or in an earlier one",
    "wait": "The wait of {agent} on {barrier} could pass in phase {phase} or two phases earlier, which has the same parity",
    "late": "Phase {phase} of {barrier} could end before {agent} has seen the phase before it end",
    "early": "Phase {phase} of {barrier} could end before {agent} has added to it",
    "place": "The bytes that {agent} copies for phase {phase} of {barrier} could be before or after those of other roles",
    "registers": "{agent} could find that other roles have taken the block's registers",
}


def describe_ambiguity(parts: Instances, ambiguity: Ambiguity) -> str:
    """An operation whose phase is not determined, as a sentence without its stop."""
    facts = {
        "agent": parts.agents[ambiguity.agent].title,
        "barrier": parts.barriers[ambiguity.barrier].title,
        "phase": ambiguity.phase,
    }
    return fill_template(_AMBIGUITIES[ambiguity.kind], facts)


# ---- mistakes


def describe_mistake(parts: Instances, error: MistakeFoundError, way: tuple[str, ...] = ()) -> Mistake:
    """A mistake in sentences: facts called agent, barrier or slot are numbers, and get their names here."""
    row = TEXT_OF_KIND[error.kind]
    facts = {name: _name_fact(parts, name, fact) for name, fact in error.facts.items()}
    make_texts = _TEXTS_OF_KIND.get(error.kind)
    texts = facts if make_texts is None else facts | make_texts(parts, error)
    return Mistake(
        rule=row.rule,
        outcome=error.outcome,
        subject=str(texts.get(row.subject, row.subject)),
        found=fill_template(row.found, texts),
        consequence=fill_template(row.consequence, texts),
        fix=fill_template(row.fix, texts),
        way=way,
        values={
            name: facts[name]
            for name, fact in error.facts.items()
            if not isinstance(fact, str) and name not in row.unlisted
        },
    )


def _name_fact(parts: Instances, name: str, fact: Fact) -> Fact:
    """A fact for sentences: agents, barriers and slots by their titles."""
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
    """The numbers of agents, barriers or slots in a fact: one, or several."""
    if isinstance(fact, int):
        return [fact]
    assert isinstance(fact, list | tuple)
    return list(fact)


class _AccessWords(NamedTuple):
    """A kind of access: its name, the subject of a sentence about it, and what orders its end before others."""

    name: str
    subject: str  # templates
    finish: str


# in these texts, {first} is the agent of an access and {second} that of the next one
_COPIED = "Expect the copy's bytes on its barrier, and wait for that phase first."
_ORDERED = "Put a barrier between: {first} arrives after its access, and {second} waits before its own."
_ACCESS_WORDS = {
    "generic": _AccessWords("threads", "{first} (threads)", _ORDERED),
    "cp.async": _AccessWords(
        "cp.async",
        "cp.async of {first}",
        "Commit its group and wait for it (cp.async.wait_group), or wait for its barrier first.",
    ),
    "tma": _AccessWords("TMA", "a TMA copy of {first}", _COPIED),
    "bulk": _AccessWords("bulk copy", "a bulk copy of {first}", _COPIED),
    "wgmma": _AccessWords(
        "wgmma", "wgmma of {first}", "Commit its group and wait for it (wgmma.wait_group) before the release."
    ),
    "tcgen05": _AccessWords(
        "tcgen05",
        "{first} (tcgen05)",
        "Wait for the barrier of a tcgen05.commit first: a thread's arrival does not wait for products.",
    ),
    "store": _AccessWords(
        "TMA store",
        "a TMA store of {first}",
        "Let the thread that stores commit its group and wait with cp.async.bulk.wait_group.read first.",
    ),
}
_DOES = {"write": "writes", "read": "reads"}
_DID = {"write": "wrote", "read": "read"}
_DONE = {"write": "written", "read": "read"}
_PLACE_OF_FENCE = {
    PROXY_ASYNC.instruction: "after the access and before the barrier",
    TCGEN05_AFTER.instruction: "after the wait",
    TCGEN05_BEFORE.instruction: "before the arrival",
}


def _pair_texts(parts: Instances, error: MistakeFoundError) -> dict[str, Fact]:
    """Texts about two accesses to a slot."""
    access = error.text("access")
    before = error.text("access_before")
    how_before = error.text("how_before")
    words_before = _ACCESS_WORDS[how_before]
    titles = {
        "first": parts.agents[error.number("agent_before")].title,
        "second": parts.agents[error.number("agent")].title,
    }
    still = "" if how_before == "generic" else "still "
    where = _PLACE_OF_FENCE.get(error.text("fence"), "")
    if how_before == "cp.async":
        where = "between the copy's end and the read"
    return {
        "does": _DOES[access],
        "did": _DID[before],
        "done": _DONE[access],
        "how": _ACCESS_WORDS[error.text("how")].name,
        "how_before": words_before.name,
        "doing": f"{fill_template(words_before.subject, titles)} {still}{_DOES[before]}",
        "finish": fill_template(words_before.finish, titles),
        "where": where,
    }


def _mask_texts(parts: Instances, error: MistakeFoundError) -> dict[str, Fact]:
    """Texts about a mask that names blocks beyond the cluster."""
    beyond = [rank for rank in ones(error.number("mask")) if rank >= error.number("blocks")]
    subjects = [
        *(parts.barriers[number] for number in _numbers(error.facts["barriers"])),
        *(parts.slots[number] for number in _numbers(error.facts["slots"])),
        parts.agents[error.number("agent")],
    ]
    assert error.action is not None
    no_peer = "With cta_group::1 a commit has no peer: leave the peer's bit out."
    return {
        "subject": subjects[0].title,
        "beyond": ", ".join(map(str, beyond)),
        "op": step_of(error.action).op,
        "more": no_peer if isinstance(error.action, TmemCommit) else "",
    }


def _exit_texts(parts: Instances, error: MistakeFoundError) -> dict[str, Fact]:
    """Texts about a block that may have exited: which block, who accesses it, and what there."""
    agent = parts.agents[error.number("agent")].title
    barrier = parts.barriers[error.number("barrier")].title
    who = {
        "role": agent,
        "copy": f"a copy of {agent}",
        "arrival": f"an arrival of {agent}",
        "landing": f"a copy or an arrival for {barrier}",
        "last warp": f"the last warp that arrives at {barrier}",
    }
    by = error.text("by")
    if by == "access":
        who["access"] = fill_template(_ACCESS_WORDS[error.text("how")].subject, {"first": agent})
    if by in ("landing", "last warp"):
        what = "it"
    elif "slot" in error.facts:
        what = parts.slots[error.number("slot")].title
    elif "barrier" in error.facts:
        what = barrier
    else:
        what = "one of its mbarriers"
    return {**_block_texts(parts, error), "who": who[by], "what": what}


def _block_texts(parts: Instances, error: MistakeFoundError) -> dict[str, Fact]:
    blocks = parts.pipeline.blocks
    grid, rank = divmod(error.number("block"), blocks)
    where = f"block {rank}" if blocks > 1 else "the block"
    return {"where": f"{where} of the grid before" if grid else where}


def _product_texts(_: Instances, error: MistakeFoundError) -> dict[str, Fact]:
    endings = {"wgmma": "wgmma.wait_group 0", "tcgen05.mma": "a wait for the barrier of a tcgen05.commit"}
    return {"ended": endings[error.text("unit")]}


def _bytes_texts(_: Instances, error: MistakeFoundError) -> dict[str, Fact]:
    is_cut = error.number("expected") % CHUNK_BYTES != 0
    return {"more": f"A bulk copy's size is cut down to a multiple of {CHUNK_BYTES}." if is_cut else ""}


def _circle_texts(parts: Instances, error: MistakeFoundError) -> dict[str, Fact]:
    """Texts about roles that wait for each other: every wait with the counts of its barrier."""
    counts = error.facts["counts"]
    assert isinstance(counts, list)
    waits = []
    for (agent, action), numbers in zip(error.blocked[:MAX_WAITS_SHOWN], counts, strict=False):
        barrier = f" ({_describe_counts(parts, action.barrier, numbers)})" if isinstance(action, MbarrierWait) else ""
        waits.append(f"{parts.agents[agent].title} at {describe_action(parts, action)!r}{barrier}")
    others = len(error.blocked) - MAX_WAITS_SHOWN
    more = f" and {others} more" if others > 0 else ""
    steps = error.earlier_steps
    fix = describe_earlier_step(parts, steps[0]) if steps else "Let one of them go on without the others."
    return {"waits": "; ".join(waits) + more, "fix": fix}


def _describe_counts(parts: Instances, barrier: int, counts: tuple[int, ...]) -> str:
    """The counts of a barrier: "full[2], phase 1: 0 of 1 arrivals, 4096 bytes missing"."""
    phase, came, expected, tx = counts
    texts = [f"{came} of {expected} arrivals"]
    if tx > 0:
        texts.append(f"{tx} bytes missing")
    elif tx < 0:
        texts.append(f"{-tx} bytes too many")
    return f"{parts.barriers[barrier].title}, phase {phase}: {', '.join(texts)}"


def describe_earlier_step(parts: Instances, step: EarlierStep) -> str:
    """Advice to move a step before a wait."""
    needed = describe_action(parts, step.needed)
    wait = describe_action(parts, step.wait)
    waiting = parts.agents[step.waiting].title
    return f"Let {parts.agents[step.blocked].title} do {needed!r} before {wait!r}: {waiting} waits for it."


_TEXTS_OF_KIND: dict[str, Callable[[Instances, MistakeFoundError], dict[str, Fact]]] = {
    "mask": _mask_texts,
    "left": _exit_texts,
    "arrival left": _block_texts,
    "copy left": _block_texts,
    "products": _product_texts,
    "warps": _pair_texts,
    "cp.async warps": _pair_texts,
    "store warps": _pair_texts,
    "scope": _pair_texts,
    "race": _pair_texts,
    "fence": _pair_texts,
    "no bytes": _bytes_texts,
    "too few bytes": _bytes_texts,
    "too many bytes": _bytes_texts,
    "circle": _circle_texts,
}
