"""Rules of mbarriers: their init, lifetime, phases and expected bytes.

mbarrier.init, then other threads     barrier-init: a barrier or a fence is between the init and the first use
mbarrier.try_wait.parity              phase-parity: the phase before the last one happens before the wait
mbarrier.inval, st.shared             barrier-lifetime: these bytes are no longer used as an mbarrier
"""

from __future__ import annotations

from tilescope.errors import Wording
from tilescope.machine.report.races.async_rules import WORDS
from tilescope.rule import ptx_example, rule
from tilescope.sync.detector.race import Mistake

BARRIER_INIT = rule(
    "run-barrier-init",
    "An mbarrier is used only after its init and a barrier; by other blocks after a barrier of the cluster, and after "
    "fence.mbarrier_init if the arrival at that barrier is .relaxed.",
    argument="{where}",
    found="at {at} {who} uses the mbarrier at {what}, which {before_who} initialises at {before_where}[[; seen {met}]]",
    limit="nothing makes the init visible to this thread",
    fix="Put bar.sync (in a cluster barrier.cluster.arrive and barrier.cluster.wait) after {before_where}.",
    source="PTX ISA, mbarrier.init, fence.mbarrier_init, barrier.cluster",
    passing=f"ts.Kernel({ptx_example('run-barrier-init.pass.ptx')}).run(1, 64).findings",
    failing=f"ts.Kernel({ptx_example('run-barrier-init.fail.ptx')}).run(1, 64).findings",
)
NEVER_INITIALISED = BARRIER_INIT.worded(
    found="at {at} {who} uses the mbarrier at {what}, which was not initialized[[; seen {met}]]",
    limit="an operation on an mbarrier before its mbarrier.init is not defined",
    fix="Put mbarrier.init and a barrier before {where}, or check how the address is computed.",
)
INVALIDATED = BARRIER_INIT.worded(
    found="at {at} {who} uses the mbarrier at {what}, which {before_who} invalidates at {before_where}[[; seen {met}]]",
    limit="an operation on an mbarrier after its mbarrier.inval is not defined",
    fix="Put mbarrier.inval after the last use of the mbarrier, or initialise it again before {where}.",
)
BARRIER_LIFETIME = rule(
    "run-barrier-lifetime",
    "From its init to its inval, nothing else writes the eight bytes of an mbarrier, and inval follows the last use.",
    argument="{where}",
    found="at {at} {who} initialises the mbarrier at {what}, which {before_who} initialised at {before_where}[[; seen {met}]]",
    limit="a second mbarrier.init without mbarrier.inval in between is not defined",
    fix="Let one thread initialise the mbarrier once, or put mbarrier.inval before {where}.",
    source="PTX ISA, mbarrier.init, mbarrier.inval",
    passing=f"ts.Kernel({ptx_example('run-barrier-lifetime.pass.ptx')}).run(1, 64).findings",
    failing=f"ts.Kernel({ptx_example('run-barrier-lifetime.fail.ptx')}).run(1, 64).findings",
)
COPY_OVER_BARRIER = BARRIER_LIFETIME.worded(
    found="at {at} {who} {does} {what}, an mbarrier that {before_who} initialises at {before_where}[[; seen {met}]]",
    limit="a copy may not write the bytes of an mbarrier",
    fix="Check the address and the size of the copy; to use the bytes for data, put mbarrier.inval and a barrier before {where}.",
)
STORE_OVER_BARRIER = BARRIER_LIFETIME.worded(
    found="at {at} {who} {does} the mbarrier at {what}, over which {before_who} {did} at {before_where}[[; seen {met}]]",
    limit="after a store over an mbarrier, operations on it are not defined",
    fix="Store elsewhere, or put mbarrier.inval before {before_where} and mbarrier.init before {where}.",
)
PENDING_AT_INVAL = BARRIER_LIFETIME.worded(
    found="at {at} {who} invalidates the mbarrier at {what}, on which {before_where} may still be pending[[; seen {met}]]",
    limit="mbarrier.inval comes after everything that will arrive at the mbarrier, or complete on it",
    fix="Wait for that phase of the mbarrier before {where}.",
)
BARRIER_OVERWRITTEN = rule(
    "run-barrier-overwritten",
    "mbarrier.inval comes before the bytes of an mbarrier are used for something else.",
    argument="{where}",
    found="at {at} {who} {does} {what}, an mbarrier that {before_who} initialises at {before_where}[[; seen {met}]]",
    limit="the mbarrier is not used afterwards, but without mbarrier.inval the state that the chip caches may be written over the data",
    fix="Put mbarrier.inval before {where}.",
    source="PTX ISA, mbarrier.inval",
    severity="warning",
    passing=f"ts.Kernel({ptx_example('run-barrier-overwritten.pass.ptx')}).run(1, 64).findings",
    failing=f"ts.Kernel({ptx_example('run-barrier-overwritten.fail.ptx')}).run(1, 64).findings",
)
INIT_FENCE = rule(
    "run-init-fence",
    "A fence.mbarrier_init is needed between mbarrier.init and the barrier of the cluster after which other blocks use the mbarrier.",
    argument="{where}",
    found="at {at} {who} uses the mbarrier at {what}, which {before_who} initialises at {before_where}[[; seen {met}]]",
    limit=(
        "the documentation requires fence.mbarrier_init; here the arrival at the cluster's barrier releases,"
        " which covers the init by PTX's memory model"
    ),
    fix="To be sure, put fence.mbarrier_init.release.cluster after {before_where}; the arrival may then be .relaxed.",
    source="PTX ISA, fence.mbarrier_init, barrier.cluster",
    severity="note",
    passing=f"ts.Kernel({ptx_example('run-init-fence.pass.ptx')}).run(2, 64, cluster=2).findings",
    failing=f"ts.Kernel({ptx_example('run-init-fence.fail.ptx')}).run(2, 64, cluster=2).findings",
)
PHASE_OVERTAKEN = rule(
    "run-phase-parity",
    "A wait tests only a parity, so it is for the current phase of an mbarrier or the one before it.",
    argument="{where}",
    found=(
        "at {at} {who} waits for a phase of the mbarrier at {what}, and the next phase, which {before_who} ends at {before_where},"
        " may be over before this wait[[; seen {met}]]"
    ),
    limit=(
        "no arrival or copy of the next phase has to come after this wait; a wait names only a parity, so it then blocks until"
        " one more phase ends, or forever"
    ),
    fix=(
        "After the wait, and before the next phase ends, let this thread arrive, or synchronize with an arriving thread at a barrier;"
        " if it should wait for that next phase, use the other parity."
    ),
    source="PTX ISA, mbarrier.test_wait, mbarrier.try_wait: they wait for the current or the immediately preceding phase",
    passing=f"ts.Kernel({ptx_example('run-phase-parity.pass.ptx')}).run(1, 64).findings",
    failing=f"ts.Kernel({ptx_example('run-phase-parity.fail.ptx')}).run(1, 64).findings",
)
PHASE_SKIPPED = PHASE_OVERTAKEN.worded(
    found=(
        "at {at} {who} waits for a phase of the mbarrier at {what}, and the completion of the phase before does not happen before this wait"
        "[[; seen {met}]]"
    ),
    limit="a wait names only a parity: while the phase before still runs, this wait passes at once, two phases too early",
    fix="Wait for every phase of the mbarrier, one after another, or synchronize at a barrier with a thread that did.",
)
EXPECTED_BYTES = rule(
    "run-expected-bytes",
    "The copies of a phase deliver as many bytes as its mbarrier expects.",
    argument="{where}",
    found=(
        "the mbarrier at {where} of block {block}[[ and {others:other}]] expects {expected:byte},"
        " and the copies delivered {came:byte}"
    ),
    limit="the phase ends when both are equal",
    fix="Expect {came:byte}, or issue the copies that are missing.",
    source="PTX ISA, mbarrier.expect_tx",
    passing=f"ts.Kernel({ptx_example('run-expected-bytes.pass.ptx')}).run(1, 64, {WORDS}).findings",
    failing=f"ts.Kernel({ptx_example('run-expected-bytes.fail.ptx')}).run(1, 64, {WORDS}).findings",
)
STUCK_BYTES = EXPECTED_BYTES.wording
ROUNDED_BYTES = EXPECTED_BYTES.worded(
    limit="the phase ends when both are equal; a bulk copy moves multiples of 16 bytes, and rounds other sizes down without a sign",
    fix="Copy and expect {rounded_up} bytes, or {came} and the rest by threads.",
)
SPILLED_BYTES = EXPECTED_BYTES.worded(
    found="the mbarrier at {where} of block {block}[[ and {others:other}]] expects {expected:byte}, and the copies of the "
    "phase deliver {came:byte}",
    limit="the phase completed before its last copy did, and the next phase counts the late bytes",
    fix="Expect {came:byte}.",
)

BARRIER_MISUSE: frozenset[Mistake] = frozenset(
    {"dead barrier", "second init", "copy over barrier", "store over barrier", "barrier pending"}
)
"""After these an mbarrier may do anything: hang, or fail the launch."""

MBARRIER_WORDINGS: dict[Mistake, Wording] = {
    "barrier init": BARRIER_INIT.wording,
    "init fence": INIT_FENCE.wording,
    "dead barrier": INVALIDATED,
    "second init": BARRIER_LIFETIME.wording,
    "copy over barrier": COPY_OVER_BARRIER,
    "store over barrier": STORE_OVER_BARRIER,
    "barrier pending": PENDING_AT_INVAL,
    "barrier overwritten": BARRIER_OVERWRITTEN.wording,
    "phase overtaken": PHASE_OVERTAKEN.wording,
    "phase skipped": PHASE_SKIPPED,
}
