"""The sentences of every kind of mistake: the rule that it breaks, what was found, its consequence, and the fix.

    row      "{agent} reads tile {tile} from {slot}, which holds tile {held}"        facts    agent 1, slot 0, tile 3, held 1
        ──▶  consumer reads tile 3 from a[0], which holds tile 1: it works on the wrong tile. Let writer and reader count …

The texts of a row are templates for the facts of a case (`tilescope.sentence` has their language); `messages` fills them
in. The kinds themselves, with their outcomes, are in `tilescope.sync.all_orders.mistake`.
"""

from __future__ import annotations

from typing import NamedTuple

from tilescope.pipeline.pipeline_rules import (
    PIPELINE_ARRIVALS,
    PIPELINE_BEYOND,
    PIPELINE_BYTES,
    PIPELINE_CIRCLE,
    PIPELINE_EXIT,
    PIPELINE_FENCE,
    PIPELINE_FLAG,
    PIPELINE_INIT,
    PIPELINE_LATE,
    PIPELINE_MASK,
    PIPELINE_OVERLAP,
    PIPELINE_PARITY,
    PIPELINE_PARTIAL,
    PIPELINE_RACE,
    PIPELINE_RECEIVER,
    PIPELINE_REGISTERS,
    PIPELINE_SCOPE,
    PIPELINE_STALE,
    PIPELINE_START,
    PIPELINE_SYNC,
    PIPELINE_UNFILLED,
    PIPELINE_WARPS,
)


class MistakeText(NamedTuple):
    """The rule that a kind of mistake breaks, and its sentences."""

    rule: str
    subject: str  # the name of one of the facts, or a text itself
    found: str
    consequence: str
    fix: str
    unlisted: tuple[str, ...] = ()  # facts that only choose words: a mistake's `values` leave them out


_NEVER_ENDS = "the phase never ends"
_UNDEFINED = "what happens then is not defined"
_TORN_PHASE = "Expect the bytes of all copies of a phase before its last arrival."
_LAST_STAYS = "either may land last, and overwrite the other"
_MORE_ARRIVALS = "Initialise the barrier with {came}, or let {pending} more arrive."
_NO_FURTHER_ARRIVAL = "{agent} waits for phase {phase} of {barrier}, which has {came} of {expected} arrivals, and no other arrival follows"

TEXT_OF_KIND = {
    # masks
    "mask": MistakeText(
        rule=PIPELINE_MASK.name,
        subject="subject",
        found="the {op} of {agent} has mask {mask:#x}, which names block {beyond}, but the cluster has {blocks:block}",
        consequence="the launch fails with an address out of range (Xid 13)",
        fix="Use mask {works:#x}.[[ {more}]]",
        unlisted=("barriers", "slots"),
    ),
    # exits
    "stores": MistakeText(
        rule=PIPELINE_EXIT.name,
        subject="agent",
        found="{agent} leaves while its TMA stores may still read shared memory",
        consequence="output may be lost: an H200 ends such stores, but the documentation does not guarantee it",
        fix="Let the thread that stores end with cp.async.bulk.commit_group and cp.async.bulk.wait_group.read 0.",
    ),
    "left": MistakeText(
        rule=PIPELINE_EXIT.name,
        subject="where",
        found="{where} may have left when {who} reaches {what}",
        consequence="the launch fails (719), or another block's memory is overwritten",
        fix="Let a role of {where} wait for that before it leaves: on all stages (a tail), or at a cluster barrier.",
        unlisted=("agent", "barrier", "slot"),
    ),
    "products": MistakeText(
        rule=PIPELINE_EXIT.name,
        subject="agent",
        found="{agent} leaves while its {unit} may still read shared memory",
        consequence="that memory may belong to another block by then",
        fix="End with {ended}.",
    ),
    "cp.async left": MistakeText(
        rule=PIPELINE_EXIT.name,
        subject="agent",
        found="{agent} leaves without having waited for all of its cp.async",
        consequence="their bytes may land in memory that the block has given up",
        fix="End with cp.async.wait_all.",
    ),
    "arrival left": MistakeText(
        rule=PIPELINE_EXIT.name,
        subject="barrier",
        found="{where} may have left when the arrival of a commit or of cp.async reaches {barrier}",
        consequence="the arrival goes to memory that the block has given up; most kernels end like this",
        fix="Wait for that phase before the last role leaves.",
        unlisted=("block",),
    ),
    "copy left": MistakeText(
        rule=PIPELINE_EXIT.name,
        subject="barrier",
        found="{where} may have left when the last bytes of its copies reach {barrier}",
        consequence="an H200 keeps its memory until then; the documentation does not guarantee it",
        fix="Wait for that phase before the last role leaves.",
        unlisted=("block",),
    ),
    # counting on a barrier
    "init twice": MistakeText(
        rule=PIPELINE_INIT.name,
        subject="barrier",
        found="{agent} initialises {barrier}, which is initialised already",
        consequence="the arrivals and bytes that it has counted are lost",
        fix="Initialise the barrier once, or put mbarrier.inval between.",
    ),
    "init": MistakeText(
        rule=PIPELINE_INIT.name,
        subject="barrier",
        found="{agent} may use {barrier} before it is initialised",
        consequence="the barrier may count on from whatever its memory held",
        fix="Put a sync between init and the first use; between blocks, a cluster sync.",
    ),
    "init fence": MistakeText(
        rule=PIPELINE_INIT.name,
        subject="barrier",
        found="{agent} uses {barrier}, which another block initialised without fence.mbarrier_init",
        consequence="the barrier may count on from whatever its memory held",
        fix="Put fence.mbarrier_init.release.cluster between init and the cluster barrier.",
    ),
    "inval": MistakeText(
        rule=PIPELINE_INIT.name,
        subject="barrier",
        found="{agent} invalidates {barrier}, which {agent_before} may still use",
        consequence=_UNDEFINED,
        fix="Put a sync between the last use of the barrier and mbarrier.inval, or a store over its bytes.",
    ),
    "after inval": MistakeText(
        rule=PIPELINE_INIT.name,
        subject="barrier",
        found="{agent} uses {barrier} after it is invalidated",
        consequence=_UNDEFINED,
        fix="Invalidate the barrier, or write over its bytes, after its last use.",
    ),
    "too many arrivals": MistakeText(
        rule=PIPELINE_ARRIVALS.name,
        subject="barrier",
        found="{barrier} counts {expected}, and phase {phase} gets {came} arrivals ({agents}[[, {tx} bytes still missing]])",
        consequence="in one instruction they fail the launch (719); one after another they end the next phase too soon",
        fix="Initialise the barrier with {came}, or let {surplus} fewer arrive.",
    ),
    "piece": MistakeText(
        rule=PIPELINE_BYTES.name,
        subject="barrier",
        found="{barrier}, phase {phase} ends when {tx} of the {bytes} bytes of a copy have landed",
        consequence="a copy's bytes are counted piece by piece, and a role that waits reads old bytes",
        fix=_TORN_PHASE,
    ),
    "outstanding": MistakeText(
        rule=PIPELINE_BYTES.name,
        subject="barrier",
        found="{barrier}, phase {phase} has {tx} bytes outstanding, and a barrier counts at most {limit}",
        consequence="the launch fails (719)",
        fix="Spread the copies over {needed} barriers.",
    ),
    # memory
    "unfilled": MistakeText(
        rule=PIPELINE_UNFILLED.name,
        subject="slot",
        found="{agent} reads {slot} before anything has filled it",
        consequence="it reads garbage",
        fix="Fill {slot}, and let {agent} wait for the barrier that says so; a barrier's first phase has parity 0.",
    ),
    "stale": MistakeText(
        rule=PIPELINE_STALE.name,
        subject="slot",
        found="{agent} reads tile {tile} from {slot}, which holds tile {held}",
        consequence="it works on the wrong tile",
        fix="Let writer and reader count stages and phases through the whole kernel.",
    ),
    "beyond": MistakeText(
        rule=PIPELINE_BEYOND.name,
        subject="slot",
        found="{agent} copies {bytes} bytes to offset {offset} of {slot}, which has {size} bytes",
        consequence="the copy overwrites what is stored after the slot",
        fix="Use a slot of {end} bytes, or a smaller copy.",
    ),
    "too much": MistakeText(
        rule=PIPELINE_OVERLAP.name,
        subject="slot",
        found="the copies of one phase write {together} bytes to {slot}, which has {size} (the last copy is that of {agent})",
        consequence="they do not all fit, so one overwrites another or what is stored after the slot",
        fix="Give every copy of a phase separate bytes: offset = …, or another slot.",
    ),
    "overlap": MistakeText(
        rule=PIPELINE_OVERLAP.name,
        subject="slot",
        found="{agent} copies into bytes {first} to {last} of {slot}, and another copy of the same phase fills some of them",
        consequence=_LAST_STAYS,
        fix="Give every copy of a phase separate bytes: offset = …, or another slot.",
    ),
    "two tiles": MistakeText(
        rule=PIPELINE_OVERLAP.name,
        subject="slot",
        found="the copies of one phase write two tiles to {slot}",
        consequence=_LAST_STAYS,
        fix="Give every tile a separate slot or a separate phase.",
    ),
    "partial": MistakeText(
        rule=PIPELINE_PARTIAL.name,
        subject="slot",
        found="{agent} reads all {size} bytes of {slot}, but bytes {first} to {last} were not filled",
        consequence="it reads old bytes there",
        fix="Copy all {size} bytes, or state bytes = {bytes} for {slot}.",
    ),
    "warps": MistakeText(
        rule=PIPELINE_WARPS.name,
        subject="slot",
        found="{agent_before} {did} {slot} with {warps} warps, and {agent} {does} it ({how}) before these warps have synchronized",
        consequence="one warp continues while others may not be done",
        fix="Put a sync of all threads of {agent_before} after the access, or let every warp arrive: count = {warps}.",
    ),
    "cp.async warps": MistakeText(
        rule=PIPELINE_WARPS.name,
        subject="slot",
        found="{agent_before} fills {slot} by cp.async with {warps} warps, and {agent} {does} it ({how}) before these have synchronized",
        consequence="a warp waits for its own copies alone, and those of the others may be pending",
        fix="Put a sync of all threads of {agent_before} after cp.async.wait_group.",
    ),
    "store warps": MistakeText(
        rule=PIPELINE_WARPS.name,
        subject="slot",
        found="{agent} {does} {slot} with {warps} warps, and only one of them has waited for the store that uses it",
        consequence="the other warps may be too early",
        fix="Put a sync of all threads of {agent} after cp.async.bulk.wait_group.read.",
    ),
    "scope": MistakeText(
        rule=PIPELINE_SCOPE.name,
        subject="slot",
        found="{agent_before} {did} {slot}, and {agent} {does} it after an arrival that is relaxed, or has scope = cta in another block",
        consequence="such an arrival orders no data",
        fix="Use scope = cluster, which is the default there, and relaxed = false.",
    ),
    "early end": MistakeText(
        rule=PIPELINE_BYTES.name,
        subject="barrier",
        found="phase {phase} of {barrier} ends before all copies that signal it have landed in {slot}",
        consequence="{agent} reads old bytes, and the bytes that come late count in the next phase",
        fix=_TORN_PHASE,
    ),
    "race": MistakeText(
        rule=PIPELINE_RACE.name,
        subject="slot",
        found="{slot} is {done} by {agent} ({how}) while {doing} it",
        consequence="the data is torn in some order of the roles",
        fix="{finish}",
    ),
    "fence": MistakeText(
        rule=PIPELINE_FENCE.name,
        subject="slot",
        found="{agent_before} {did} {slot} ({how_before}), and {agent} {does} it ({how}) without {fence} between",
        consequence="the second access may overtake the first",
        fix="Put {fence} {where}.",
    ),
    # barriers of threads
    "sync counts": MistakeText(
        rule=PIPELINE_SYNC.name,
        subject="barrier",
        found="{barrier} is asked for {expected} and for {other} threads at once",
        consequence=_UNDEFINED,
        fix="Use threads = {expected} in all roles that synchronize there.",
    ),
    "cluster wait": MistakeText(
        rule=PIPELINE_SYNC.name,
        subject="the cluster barrier",
        found="{agent} waits at the cluster barrier without having arrived",
        consequence=_UNDEFINED,
        fix="Put a cluster arrive before the wait, or use cluster sync.",
    ),
    "cluster again": MistakeText(
        rule=PIPELINE_SYNC.name,
        subject="the cluster barrier",
        found="{agent} arrives at the cluster barrier again without having waited there",
        consequence=_UNDEFINED,
        fix="Put a cluster wait between the two arrivals.",
    ),
    "sync surplus": MistakeText(
        rule=PIPELINE_SYNC.name,
        subject="barrier",
        found="{barrier} waits for {expected} threads and {came} arrive ({agents})",
        consequence=_UNDEFINED,
        fix="Use threads = {came}, or another barrier id for some of them.",
    ),
    "sync": MistakeText(
        rule=PIPELINE_SYNC.name,
        subject="barrier",
        found="{barrier} waits for {expected} threads and {came} arrive ({agents})",
        consequence="those that arrive wait forever",
        fix="Use threads = {came}, or let the other threads come too.",
    ),
    "cluster": MistakeText(
        rule=PIPELINE_SYNC.name,
        subject="the cluster barrier",
        found="the cluster barrier gets the arrivals of {agents}, and never those of {agents_absent}",
        consequence="those that arrived wait forever",
        fix="Let every role of every block arrive at the cluster barrier.",
    ),
    # deadlocks
    "registers": MistakeText(
        rule=PIPELINE_REGISTERS.name,
        subject="agent",
        found="{agent} requests {registers} registers a thread, {need} more in all, and the block's pool has {free}",
        consequence="setmaxnreg.inc waits forever",
        fix="Use at most {most} registers a thread in {agent}.",
    ),
    "flag": MistakeText(
        rule=PIPELINE_FLAG.name,
        subject="barrier",
        found="{agent} polls {barrier} until it is {value}, and it only reaches {reached}",
        consequence="{agent} waits forever",
        fix="Poll for {reached}, or add {value} in all.",
    ),
    "no bytes": MistakeText(
        rule=PIPELINE_BYTES.name,
        subject="barrier",
        found="{barrier}, phase {phase} expects {expected} bytes, and no copy delivers any",
        consequence=_NEVER_ENDS,
        fix="Let the copies of these {expected} bytes signal {barrier}, or expect none.",
    ),
    "too few bytes": MistakeText(
        rule=PIPELINE_BYTES.name,
        subject="barrier",
        found="{barrier}, phase {phase} expects {expected} bytes, the copies deliver {brought}",
        consequence=_NEVER_ENDS,
        fix="Expect {brought} bytes.[[ {more}]]",
    ),
    "too many bytes": MistakeText(
        rule=PIPELINE_BYTES.name,
        subject="barrier",
        found="{barrier}, phase {phase} expects {expected} bytes, the copies deliver {brought}",
        consequence="the phase ends before the last bytes have landed, or never",
        fix="Expect {brought} bytes.[[ {more}]]",
    ),
    "noinc": MistakeText(
        rule=PIPELINE_ARRIVALS.name,
        subject="barrier",
        found="{barrier} counts {expected}, but cp.async.mbarrier.arrive without .noinc first adds the {added} arrivals "
        "that it brings ({agents})",
        consequence="the arrivals that the barrier counts never come, and " + _NEVER_ENDS,
        fix="Use .noinc.",
    ),
    "too few arrivals": MistakeText(
        rule=PIPELINE_ARRIVALS.name,
        subject="barrier",
        found="{barrier} counts {expected}, and phase {phase} gets {came:arrival}, from {agents}",
        consequence=_NEVER_ENDS,
        fix=_MORE_ARRIVALS,
    ),
    "only empty arrivals": MistakeText(
        rule=PIPELINE_ARRIVALS.name,
        subject="barrier",
        found="{barrier} counts {expected}, and phase {phase} gets {came:arrival}, from {agents}",
        consequence=_NEVER_ENDS,
        fix="Let {pending} arrive: an arrival with count = 0 counts for nothing.",
    ),
    "receiver": MistakeText(
        rule=PIPELINE_RECEIVER.name,
        subject="barrier",
        found="{barrier}, phase {phase} gets {bytes} unexpected bytes, and {came} of {expected} arrivals",
        consequence=_NEVER_ENDS,
        fix="Let every block that receives bytes expect them on its own barrier: {landed} bytes on {barrier}.",
    ),
    "some arrive": MistakeText(
        rule=PIPELINE_ARRIVALS.name,
        subject="barrier",
        found=_NO_FURTHER_ARRIVAL,
        consequence=_NEVER_ENDS,
        fix=_MORE_ARRIVALS,
    ),
    "nobody arrives": MistakeText(
        rule=PIPELINE_ARRIVALS.name,
        subject="barrier",
        found=_NO_FURTHER_ARRIVAL,
        consequence=_NEVER_ENDS,
        fix="Let some role arrive there: the phase needs {expected:arrival}.",
    ),
    "nobody arrives again": MistakeText(
        rule=PIPELINE_ARRIVALS.name,
        subject="barrier",
        found=_NO_FURTHER_ARRIVAL,
        consequence=_NEVER_ENDS,
        fix="Let some role arrive there once more, or let {agent} wait once less.",
    ),
    "several roles": MistakeText(
        rule=PIPELINE_ARRIVALS.name,
        subject="barrier",
        found="{barrier} counts {expected} and {roles} roles arrive ({agents})",
        consequence="its phases end too soon, and {agent} misses one and waits forever",
        fix="Initialise the barrier with {roles}.",
    ),
    "late": MistakeText(
        rule=PIPELINE_LATE.name,
        subject="barrier",
        found="{agent} waits with parity {parity} on {barrier}, where {behind} phases have ended since {agent} last passed",
        consequence="{agent} missed its phase and waits forever",
        fix="Let every phase need an arrival that comes after {agent} has passed the wait for the phase before.",
    ),
    "parity": MistakeText(
        rule=PIPELINE_PARITY.name,
        subject="barrier",
        found="{agent} waits on {barrier} with parity {parity}, but phase {phase} has ended and parity {other} would pass",
        consequence="{agent} waits forever",
        fix="Count uses of the stage over the whole kernel: parity (i / stages) % 2, and that XOR 1 for a producer.",
    ),
    "start": MistakeText(
        rule=PIPELINE_START.name,
        subject="barrier",
        found="{agent} starts with parity 0 on {barrier}",
        consequence="it waits for a slot that is never released",
        fix="Start with parity 1, which passes on a fresh barrier, or let the consumers arrive once before their loop.",
    ),
    "circle": MistakeText(
        rule=PIPELINE_CIRCLE.name,
        subject="agent",
        found="every role waits: {waits}",
        consequence="no role can continue",
        fix="{fix}",
    ),
}
