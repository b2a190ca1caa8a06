"""What goes wrong in a pipeline: the rules, a row for every kind of mistake, and a mistake with its numbers and its sentence.

row      "{agent} reads tile {tile} from {slot}, which holds tile {held}"        facts    agent 1, slot 0, tile 3, held 1
    ──▶  consumer reads tile 3 from a[0], which holds tile 1: it multiplies wrong data. Let both sides count …
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tilescope.errors import Severity, Violation
from tilescope.rule import Basis, Rule, rule
from tilescope.swizzle import CHUNK_BYTES
from tilescope.value import Value

Outcome = Literal["hang", "launch failure", "race", "wrong data", "undefined"]


@dataclass(frozen=True, slots=True)
class Mistake(Value):
    """What goes wrong: where, the numbers, what happens then, and what to change.

    >>> print(Mistake("pipeline-bytes", "hang", "full[2]", "full[2], phase 1 expects 16384 bytes, the copies bring 12288",
    ...               "it never ends", "Expect 12288 bytes."))
    full[2], phase 1 expects 16384 bytes, the copies bring 12288: it never ends. Expect 12288 bytes.
    """

    rule: str
    outcome: Outcome
    subject: str  # the barrier, slot or role
    found: str
    consequence: str
    fix: str
    way: tuple[str, ...] = ()  # the shortest way into it
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)  # the numbers and names of the sentence

    def __str__(self) -> str:
        return f"{self.found}: {self.consequence}. {self.fix}"

    def violation(self, severity: Severity = "error") -> Violation:
        """The mistake as a broken rule, as other checks report theirs."""
        return Violation(self.rule, severity, self.subject, self.found, self.consequence, self.fix, values=self.values)


class MistakeFoundError(Exception):
    """Stops a run at its first mistake; never leaves this package.

    `kind` is its row of the table below, `facts` the numbers of agents, barriers and slots that its sentence was made of.
    """

    def __init__(self, mistake: Mistake, kind: str, facts: dict[str, Any]) -> None:
        super().__init__(str(mistake))
        self.mistake, self.kind, self.facts = mistake, kind, facts


_RIGHT = 'ts.simulate(ts.plan_pipeline(ts.plan((64, 64), "bf16").best, steps=3)).violations'
GRAMMAR = "the grammar of descriptions"
_MBARRIER = {"measured": "PTX ISA, mbarrier; an H200", "documented": "PTX ISA, mbarrier"}


def example(
    *steps: dict[str, Any], others: tuple[tuple[dict[str, Any], ...], ...] = (), threads: int = 1, **fields: Any
) -> str:
    """An expression that simulates roles with these steps on a barrier `full` and a slot `a`."""
    roles: list[dict[str, Any]] = [
        {"name": f"role {number}", "steps": list(listed)} for number, listed in enumerate((steps, *others))
    ]
    if threads > 1:
        roles[0]["threads"] = threads
    data = {"barriers": {"full": {"count": 1}}, "slots": {"a": {"bytes": 4096}}, "roles": roles} | fields
    return f"ts.simulate({data}).violations"


def pipeline_rule(name: str, demand: str, failing: str, *, basis: Basis = "documented", source: str = "") -> Rule:
    """A rule that `ts.simulate` finds broken; what ts.plan_pipeline plans keeps all of them."""
    return rule(name, demand, source=source or _MBARRIER[basis], basis=basis, passing=_RIGHT, failing=failing)


_BOTH = {"full": {"count": 1}, "empty": {"count": 1}}
_WAIT, _READ, _WRITE, _STORE = {"wait": "full", "parity": 0}, {"read": ["a"]}, {"write": ["a"]}, {"store": ["a"]}
_COPY = {"copy": "a", "bytes": 64, "barrier": "full"}
_WAIT_EMPTY = {"wait": "empty", "parity": 0}

# fmt: off
# every demand on a pipeline, and the smallest one that breaks it
DEMANDS = {row.name: row for row in (
    pipeline_rule("pipeline-arrivals",
        "As many arrivals come in a phase as the barrier counts: fewer never end it, more in one instruction fault.",
        example({"arrive": "full"}, _WAIT, barriers={"full": {"count": 2}}), basis="measured"),
    pipeline_rule("pipeline-bytes",
        "The bytes that a phase expects are those that its copies bring, and are expected before its last arrival.",
        example({"expect": "full", "bytes": 128}, _COPY, _WAIT, _READ), basis="measured"),
    pipeline_rule("pipeline-beyond", "A copy ends within its slot.",
        example({"expect": "full", "bytes": 8192}, _COPY | {"bytes": 8192}, _WAIT, _READ), basis="measured", source="an H200"),
    pipeline_rule("pipeline-circle", "Some role can always go on.",
        example(_WAIT, {"arrive": "empty"}, others=((_WAIT_EMPTY, {"arrive": "full"}),), barriers=_BOTH),
        source="what waiting means"),
    pipeline_rule("pipeline-exit", "A block stays until everything that reaches into it has come, and until its stores have been read.",
        example(_WRITE, {"fence": "proxy.async"}, _STORE, {"commit": "bulk"}), source="PTX ISA, cp.async.bulk.wait_group; mapa"),
    pipeline_rule("pipeline-fence",
        "A fence stands between accesses of threads and those of TMA or tensor cores, and around tensor memory.",
        example(_WRITE, _STORE), source="PTX ISA, async proxy; tcgen05.fence"),
    pipeline_rule("pipeline-flag", "As much is added to a flag in global memory as somebody polls for.",
        example({"signal": "done"}, {"poll": "done", "value": 2}, flags={"done": {}}), source="what waiting means"),
    pipeline_rule("pipeline-init", "A barrier is initialised, and known to be, before it is used; across blocks with fence.mbarrier_init.",
        example({"init": ["full"]}, others=(({"arrive": "full"},),))),
    pipeline_rule("pipeline-late", "A phase ends only after everyone who waits for the one before has seen that end.",
        example(*({"arrive": name} for name in ("full", "full", "empty")), others=((_WAIT_EMPTY, _WAIT),), barriers=_BOTH),
        basis="measured"),
    pipeline_rule("pipeline-mask", "A mask has bits of the cluster's ranks, at least one.", example({"arrive": "full", "mask": 2}),
        source="PTX ISA, cp.async.bulk, ctaMask"),
    pipeline_rule("pipeline-overlap", "The copies of one phase fill different bytes of their slot.",
        example({"expect": "full", "bytes": 8192}, *[_COPY | {"bytes": 4096}] * 2, _WAIT, _READ), basis="measured", source="an H200"),
    pipeline_rule("pipeline-partial", "A slot that is read has been filled whole since it was last read.",
        example({"expect": "full", "bytes": 64}, _COPY, _WAIT, _READ), basis="measured", source="an H200"),
    pipeline_rule("pipeline-parity", "A role waits with the parity of the phase that it needs, counted over the whole kernel.",
        example({"arrive": "full"}, {"wait": "full", "parity": 1}, {"arrive": "full"}), basis="measured"),
    pipeline_rule("pipeline-race", "A slot is written only when all reads of it are finished, and read only when it is filled.",
        example({"expect": "full", "bytes": 64}, _COPY, _READ), source="PTX ISA, memory consistency model"),
    pipeline_rule("pipeline-receiver", "Every block that receives bytes expects them on its own barrier.", example(_COPY, _WAIT),
        basis="measured"),
    pipeline_rule("pipeline-registers", "Registers of all warpgroups fit into the block's pool, which is known.",
        example({"registers": 240}, registers=168), source="PTX ISA, setmaxnreg"),
    pipeline_rule("pipeline-scope", "An arrival that lets another block see data has the scope of the cluster.",
        example({"write": ["a"], "when": "rank == 0"}, {"fence": "proxy.async"},
                {"arrive": "full", "mask": 2, "scope": "cta", "when": "rank == 0"},
                {"wait": "full", "parity": 0, "when": "rank == 1"}, {"expect": "full", "bytes": 4096, "mask": 1, "when": "rank == 1"},
                {"copy": "a", "bytes": 4096, "barrier": "full", "mask": 1, "when": "rank == 1"},
                {"wait": "full", "parity": 0, "when": "rank == 0"}, {"cluster": "sync"}, cluster=[2, 1]),
        source="PTX ISA, mbarrier.arrive"),
    pipeline_rule("pipeline-stage", "The stage of a barrier or slot is one that it has.", example({"arrive": "full[3]"}),
        source="the steps themselves"),
    pipeline_rule("pipeline-stale", "A slot holds the tile that its reader means.", example(_WRITE | {"tile": 0}, _READ | {"tile": 1}),
        source="the tiles that the steps name"),
    pipeline_rule("pipeline-start", "A producer starts with parity 1, which passes on a fresh barrier, or its slots are freed first.",
        example(_WAIT_EMPTY, {"expect": "full", "bytes": 64}, _COPY, others=((_WAIT, _READ, {"release": "empty"}),), barriers=_BOTH),
        basis="measured"),
    pipeline_rule("pipeline-sync", "As many threads meet at a bar.sync as all of them name, and every role comes to the cluster barrier.",
        example({"sync": 1, "threads": 64}), source="PTX ISA, bar; barrier.cluster", basis="measured"),
    pipeline_rule("pipeline-warps",
        "Warps of a role meet, or all arrive, before one of them stores or releases what the others read or wrote.",
        example(_WRITE, {"fence": "proxy.async"}, _STORE, {"commit": "bulk"}, {"wait_group": "bulk"}, threads=128),
        source="PTX ISA, bar; memory consistency model"),
    pipeline_rule("pipeline-unfilled", "A slot is filled before it is read.", example(_READ), source="the steps themselves"),
)}


_NEVER, _UNDEFINED, _OLD = "it never ends", "what happens then is not defined", "it may count on old bytes"
_SOME_MORE = "Initialise it with {came}, or let {pending} more arrive."

# every kind of mistake: its texts are templates for the facts of a case; `subject` names one of these facts, or is a text itself
KINDS = {
    # a mask, and leaving
    "mask": Mistake("pipeline-mask", "launch failure", "subject",
        "the {op} of {agent} has mask {mask:#x}, which names block {beyond}, and the cluster has {size}",
        "an address out of range (Xid 13), a launch failure", "Use mask {works:#x}.{more}"),
    "stores": Mistake("pipeline-exit", "race", "agent", "{agent} leaves while its TMA stores may still read shared memory",
        "output is lost", "End with cp.async.bulk.commit_group and wait_group.read 0 in the issuing thread."),
    "left": Mistake("pipeline-exit", "launch failure", "where", "{where} may have left when {who} reaches {what}",
        "launch failure (719), or another block's memory is overwritten",
        "Let its roles wait for it before they leave: a tail of waits on all stages, or a cluster barrier."),
    "products": Mistake("pipeline-exit", "race", "agent",
        "{agent} leaves while its {unit} may still read shared memory",
        "the block's memory may belong to another by then", "End with {ended}."),
    "cp.async left": Mistake("pipeline-exit", "race", "agent", "{agent} leaves with cp.async that nobody has waited for",
        "they land in memory that the block has given up", "End with cp.async.wait_all."),
    "arrival left": Mistake("pipeline-exit", "undefined", "barrier",
        "{where} may have left when an arrival by a commit or cp.async comes to {barrier}",
        "it comes to memory that the block has given up; most kernels end so", "Wait for that phase before the last role leaves."),
    # counting on a barrier
    "init twice": Mistake("pipeline-init", "undefined", "barrier", "{agent} initialises {barrier}, which is initialised already",
        "arrivals and bytes that it has counted are lost", "Initialise it once, or put mbarrier.inval between."),
    "init": Mistake("pipeline-init", "undefined", "barrier", "{agent} uses {barrier} without knowing that it is initialised",
        _OLD, "Put a sync (cluster sync for other blocks) between init and the first use."),
    "init fence": Mistake("pipeline-init", "undefined", "barrier",
        "{agent} uses {barrier}, initialised in another block without fence.mbarrier_init",
        _OLD, "Put fence.mbarrier_init.release.cluster between init and the cluster barrier."),
    "too many arrivals": Mistake("pipeline-arrivals", "launch failure", "barrier",
        "{barrier} counts {expected} and {came} arrivals come in phase {phase} ({agents}{still})",
        "launch failure (719), or a phase that ends too soon where single arrivals bring them",
        "Initialise it with {came}, or let {surplus} fewer arrive."),
    "piece": Mistake("pipeline-bytes", "race", "barrier",
        "{barrier}, phase {phase} ends when {tx} of the {bytes} bytes of a copy have landed",
        "a copy's bytes count piece by piece, and whoever waits reads old bytes",
        "Expect the bytes of all copies of the phase before its last arrival."),
    "outstanding": Mistake("pipeline-bytes", "launch failure", "barrier", "{barrier}, phase {phase} has {tx} bytes outstanding",
        "a barrier counts up to {limit}: launch failure (719)", "Spread the copies over {needed} barriers."),
    # memory
    "unfilled": Mistake("pipeline-unfilled", "wrong data", "slot", "{agent} reads {slot} before anything has filled it",
        "it reads garbage", "Wait for the barrier that its copy completes, with the parity of its first phase: 0."),
    "stale": Mistake("pipeline-stale", "wrong data", "slot", "{agent} reads tile {tile} from {slot}, which holds tile {held}",
        "it multiplies wrong data", "Let both sides count stages and phases over the whole kernel."),
    "beyond": Mistake("pipeline-beyond", "wrong data", "slot",
        "{agent} copies {bytes} bytes to offset {offset} of {slot}, which has {size}",
        "what lies behind it is overwritten", "Use a slot of {end} bytes, or a smaller copy."),
    "overlap": Mistake("pipeline-overlap", "wrong data", "slot",
        "copies of one phase bring {together} bytes into {slot}, which has {size}: the last, of {agent}, lies over another",
        "either may land last", "Give every copy of a phase bytes of its own: offset = …, or another slot."),
    "two tiles": Mistake("pipeline-overlap", "wrong data", "slot", "copies of one phase bring two tiles into {slot}",
        "either may land last", "Give every tile a slot of its own, or a phase of its own."),
    "partial": Mistake("pipeline-partial", "wrong data", "slot",
        "{agent} reads all {size} bytes of {slot}, of which bytes {first} to {last} were not filled",
        "it reads old bytes there", "Copy all {size} bytes, or state the slot with {bytes} bytes."),
    "warps": Mistake("pipeline-warps", "race", "slot",
        "{agent_before} {did} {slot} with {warps} warps and {agent} {does} it ({how}) before they have met",
        "other warps may not be done when one of them goes on",
        "Put a sync of all its threads behind the access, or let every warp arrive: count = {warps}."),
    "store warps": Mistake("pipeline-warps", "race", "slot",
        "{agent} {does} {slot} with {warps} warps, of which one has waited until a store had read it",
        "the others may be there before it", "Put a sync of all its threads behind cp.async.bulk.wait_group.read."),
    "scope": Mistake("pipeline-scope", "race", "slot",
        "{agent_before} {did} {slot} and {agent} {does} it behind an arrival with scope = cta at another block's barrier",
        "that arrival orders nothing between blocks", "Use scope = cluster, which is the default there."),
    "early end": Mistake("pipeline-bytes", "race", "barrier",
        "phase {phase} of {barrier} ends before all copies that signal it have landed in {slot}",
        "{agent} reads old bytes, and those that come late spoil the next phase",
        "Expect the bytes of every copy in the phase that it signals, before the last arrival."),
    "race": Mistake("pipeline-race", "race", "slot", "{slot} is {done} by {agent} ({how}) while {doing} it",
        "the data is torn in some order of the roles", "{finish}"),
    "fence": Mistake("pipeline-fence", "race", "slot",
        "{agent_before} {did} {slot} ({how_before}) and {agent} {does} it ({how}) without {fence}",
        "the second may come before the first", "Put {fence} {where}."),
    # barriers of threads
    "sync counts": Mistake("pipeline-sync", "undefined", "barrier", "{barrier} is asked for {expected} and for {other} threads at once",
        _UNDEFINED, "Use threads = {expected} in all roles that meet there."),
    "cluster wait": Mistake("pipeline-sync", "undefined", "the cluster barrier",
        "{agent} waits at the cluster barrier without having arrived",
        _UNDEFINED, "Put cluster arrive before it, or use sync."),
    "cluster again": Mistake("pipeline-sync", "undefined", "the cluster barrier",
        "{agent} arrives at the cluster barrier again without having waited there",
        _UNDEFINED, "Put cluster wait before it."),
    "sync surplus": Mistake("pipeline-sync", "undefined", "barrier", "{barrier} waits for {expected} threads and {came} come ({agents})",
        _UNDEFINED, "Let it count {came}, or use another barrier id."),
    "sync": Mistake("pipeline-sync", "hang", "barrier", "{barrier} waits for {expected} threads and {came} come ({agents})",
        _NEVER, "Let it count {came}, or let the others come too."),
    "cluster": Mistake("pipeline-sync", "hang", "the cluster barrier",
        "{agents} wait at the cluster barrier, and {agents_absent} never come there",
        "they wait for ever", "Let every role of every block arrive there."),
    # nobody moves
    "registers": Mistake("pipeline-registers", "hang", "agent",
        "{agent} asks for {registers} registers a thread, {need} more, and the block's pool has {free}",
        "setmaxnreg.inc waits for ever", "Use at most {most} registers a thread there."),
    "flag": Mistake("pipeline-flag", "hang", "barrier", "{agent} polls {barrier} until it is {value}, and it reaches {reached}",
        "it waits for ever", "Poll for {reached}, or let {value} be added."),
    "too few bytes": Mistake("pipeline-bytes", "hang", "barrier",
        "{barrier}, phase {phase} expects {expected} bytes, the copies bring {brought}", _NEVER, "Expect {brought} bytes.{more}"),
    "too many bytes": Mistake("pipeline-bytes", "hang", "barrier",
        "{barrier}, phase {phase} expects {expected} bytes, the copies bring {brought}",
        "it ends before the last bytes arrive, or never", "Expect {brought} bytes.{more}"),
    "noinc": Mistake("pipeline-arrivals", "hang", "barrier",
        "{barrier} counts {expected}, and cp.async.mbarrier.arrive without .noinc adds the {added} arrivals that it takes back ({agents})",
        _NEVER, "Use .noinc."),
    "too few arrivals": Mistake("pipeline-arrivals", "hang", "barrier",
        "{barrier} counts {expected}, and phase {phase} gets {arrivals}, from {agents}", _NEVER, _SOME_MORE),
    "receiver": Mistake("pipeline-receiver", "hang", "barrier",
        "{barrier}, phase {phase} gets {bytes} bytes that nobody expects there, and {came} of {expected} arrivals",
        _NEVER, "Let every block that receives bytes arm its own barrier with all that lands in it: {landed} bytes here."),
    **{kind: Mistake("pipeline-arrivals", "hang", "barrier",
        "{agent} waits for phase {phase} of {barrier}, which has {came} of {expected} arrivals, and nobody arrives any more",
        _NEVER, fix) for kind, fix in (
            ("some arrive", _SOME_MORE), ("nobody arrives", "Let {arrivals} come there."),
            ("nobody arrives again", "Let somebody arrive once more, or let {agent} wait once less."))},
    "several roles": Mistake("pipeline-arrivals", "hang", "barrier", "{barrier} counts {expected} and {roles} roles arrive ({agents})",
        "its phases end too soon, and {agent} misses one and waits for ever", "Initialise it with {roles}."),
    "late": Mistake("pipeline-late", "hang", "barrier",
        "{agent} waits with parity {parity} on {barrier}, where {behind} phases have ended since it last passed",
        "it missed its phase and waits for ever",
        "Let no phase begin before {agent} has seen the one before it: its arrival must be counted on the way."),
    "parity": Mistake("pipeline-parity", "hang", "barrier",
        "{agent} waits on {barrier} with parity {parity} when phase {phase} has ended and parity {other} would pass",
        "it waits for ever", "Count uses of the stage over the whole kernel: parity (i / stages) % 2, and that XOR 1 for a producer."),
    "start": Mistake("pipeline-start", "hang", "barrier", "{agent} starts with parity 0 on {barrier}",
        "it waits for a slot nobody will free",
        "Start with parity 1, which passes on a fresh barrier, or let the consumers arrive once before their loop."),
    "circle": Mistake("pipeline-circle", "hang", "agent", "every role waits: {waits}", "nobody moves any more", "{fix}"),
}
# fmt: on
BULK_CUT = f" A bulk copy's size is cut down to a multiple of {CHUNK_BYTES}."
