"""The rules of data races and stale values, and the choice of the rule that a conflict breaks.

Asynchronous work, mbarriers, tensor memory and convergence have their rules in other modules of this package.
`wording_of` selects the rule that a conflict breaks; race_report.py fills in the threads, the accesses and their
places.
"""

from __future__ import annotations

from tilescope.errors import Severity, Wording
from tilescope.machine.report.races.async_rules import ASYNC_WORDINGS, COPIES_LEFT, RELAXED_COPY_WAIT, WORDS
from tilescope.machine.report.races.convergence_report import CONVERGENCE_WORDINGS, convergence_wording
from tilescope.machine.report.races.mbarrier_rules import MBARRIER_WORDINGS, NEVER_INITIALISED
from tilescope.machine.report.races.tmem_report import (
    COMMIT_LEFT,
    TENSOR_WORDINGS,
    TWO_ACCESSES,
)
from tilescope.rule import ptx_example, rule
from tilescope.sync.detector.race import Conflict, Mistake

_SOURCE = "PTX ISA, Memory Consistency Model; spec of asynchronous operations"

RACE = rule(
    "run-race",
    "Two accesses to the same bytes, one of them a write, are ordered: by a barrier, an mbarrier, or a release and an acquire.",
    argument="{where}",
    found=TWO_ACCESSES,
    limit="nothing on this path orders the two",
    fix="Put {remedy} between them.",
    source=_SOURCE,
    passing=f"ts.Kernel({ptx_example('run-race.pass.ptx')}).run(1, 64).findings",
    failing=f"ts.Kernel({ptx_example('run-race.fail.ptx')}).run(1, 64).findings",
)
TWO_VALUES = RACE.worded(
    found="threads of one store at {at}, {who} among them, write different values to {what}[[; seen {met}]]",
    limit="which value remains is not defined",
    fix="Let one thread store it, or use an atomic.",
)
LOST_UPDATE = RACE.worded(
    limit="nothing orders the two: both load the word, change it and store it, and one of the changes may be lost",
    fix=(
        "Use an atomic in place of load, change and store (atom or red; atomicAdd);"
        " if a lock guards them, take it with .acquire and give it back with .release."
    ),
)
MAP_COPY = RACE.worded(
    severity="note",
    limit=(
        "no bar.warp.sync orders the two lanes; the whole warp executes tensormap.cp_fenceproxy together, Triton 3.6 writes this,"
        " and it is right on an H200"
    ),
    fix="To be sure, put bar.warp.sync (__syncwarp) between them.",
)
REPEATED_STORE = RACE.worded(
    severity="note",
    found="at {at} several threads, {who} among them, store the same bytes to {what}[[; seen {met}]]",
    limit="nothing orders the stores, but the result does not depend on their order: each has the same source and target",
    fix="Let one thread issue the store (elect.sync) to save the others.",
)
LANE_ORDER = RACE.worded(
    limit="lanes of a warp are not ordered without a barrier between them, and volatile accesses are no barrier",
    fix="Put bar.warp.sync 0xffffffff (__syncwarp()) between the two.",
)
NARROW_ATOMIC = RACE.worded(
    limit="both are strong, and the scope of one leaves out the thread of the other: to each other they are like plain accesses",
    fix="Use the scope .gpu for both (atomicAdd in place of atomicAdd_block, thread_scope_device in place of thread_scope_block).",
)
BARRIER_REUSE = RACE.worded(
    found="at {at} {who} invalidates or overwrites the mbarrier at {what}, which {before_who} uses at {before_where}[[; seen {met}]]",
)
_NARROW_FOUND = (
    "at {at} {who} {does} {what}, which {before_who} {did} at {before_where}; the arrival at {arrival_at} and the wait at {wait_at}"
    " order the two[[; seen {met}]]"
)
NARROW_SCOPE = RACE.worded(
    found=_NARROW_FOUND,
    limit="the threads are in different blocks, and one of both names the scope .cta, which orders nothing between blocks",
    fix="Write .release.cluster at the arrival and .acquire.cluster at the wait.",
)
BARRIER_PHASE = RACE.worded(
    found=(
        "at {at} {who} arrives at barrier {number} again, and the completion of its last phase there does not happen before this"
        " arrival[[; seen {met}]]"
    ),
    limit="which phase it joins depends on which thread is faster",
    fix="Wait for that phase first, or use another barrier.",
)
CLUSTER_PHASE = RACE.worded(
    found="at {at} {who} arrives at the barrier of the cluster again without having waited at it[[; seen {met}]]",
    limit="a second barrier.cluster.arrive before barrier.cluster.wait is not defined",
    fix="Put barrier.cluster.wait between the two arrivals.",
)
DEFAULT_SCOPE = rule(
    "run-default-scope",
    "Arrivals and waits that pass data between the blocks of a cluster have .cluster scope.",
    argument="{where}",
    found=_NARROW_FOUND,
    limit=(
        "the threads are in different blocks, and an arrival or a wait without a scope has .cta, which orders nothing between blocks;"
        " an H200 shows no symptom, B200s have failed"
    ),
    fix="Write .release.cluster at the arrival and .acquire.cluster at the wait.",
    source="PTX ISA, mbarrier.arrive, mbarrier.test_wait: the default scope",
    severity="warning",
    passing=f"ts.Kernel({ptx_example('run-default-scope.pass.ptx')}).run(2, 32, cluster=2).findings",
    failing=f"ts.Kernel({ptx_example('run-default-scope.fail.ptx')}).run(2, 32, cluster=2).findings",
)
STALE_READ = rule(
    "run-early-load",
    "A load of a word that another thread writes is ordered after that write, or repeated until it returns the "
    "written value.",
    argument="{where}",
    found=TWO_ACCESSES,
    limit="nothing on this path orders the two, and the thread loads it only once: this load returned a stale value",
    fix=(
        "Load it in a loop until it returns the new value; or first load a flag in such a loop, with fence.acq_rel (membar, __threadfence)"
        " after that load and before the store of the flag."
    ),
    source="PTX ISA, Memory Consistency Model, causality order",
    severity="warning",
    passing=f"ts.Kernel({ptx_example('run-early-load.pass.ptx')}).run(1, 64).findings",
    failing=f"ts.Kernel({ptx_example('run-early-load.fail.ptx')}).run(1, 64).findings",
)
UNWRITTEN = rule(
    "run-unwritten",
    "Shared memory is written before it is read.",
    argument="{where}",
    found="at {at} {who} {does} {what}, which was not written[[; seen {met}]]",
    limit="shared memory is not initialised when a block starts",
    fix="Write it first, or do not use the value.",
    source="CUDA C++ Programming Guide, shared memory",
    severity="warning",
    passing=f"ts.Kernel({ptx_example('run-unwritten.pass.ptx')}).run(1, 64).findings",
    failing=f"ts.Kernel({ptx_example('run-unwritten.fail.ptx')}).run(1, 64).findings",
)
UNWRITTEN_USED = UNWRITTEN.worded(
    limit="shared memory is not initialised when a block starts; with another content the kernel left other bytes in global memory",
    fix="Write it first.",
    severity="error",
)
UNWRITTEN_OPERAND = rule(
    "run-unwritten-operand",
    "At least one byte of an operand is written before a tensor core multiplies it.",
    argument="{where}",
    found="at {at} {who} {does} {what}, and no byte of that operand was written[[; seen {met}]]",
    limit="shared memory is not initialised when a block starts, so the whole product is arbitrary",
    fix="Check the descriptor's start address (a wrong slot or offset), or write the operand first.",
    source="CUDA C++ Programming Guide, shared memory; PTX ISA, wgmma.mma_async",
    passing=f"ts.Kernel({ptx_example('run-unwritten-operand.pass.ptx')}).run(1, 128).findings",
    failing=f"ts.Kernel({ptx_example('run-unwritten-operand.fail.ptx')}).run(1, 128).findings",
)

ROUNDED_SUM = rule(
    "run-rounded-sum",
    "If the lanes of a warp add up a sum by shuffles and store it to one word, all lanes have the same bits.",
    argument="{where}",
    found="threads of one store at {at}, {who} among them, write sums to {what} that differ in their last bits[[; seen {met}]]",
    limit="which of them remains is not defined; Triton's kernels do so, where fma adds a product to a shuffled one",
    fix="Do nothing if last bits do not matter. Otherwise let one lane store the sum, or round the product before it is added.",
    source=_SOURCE,
    severity="note",
    passing=f"ts.Kernel({ptx_example('run-rounded-sum.pass.ptx')}).run(1, 64).findings",
    failing=f"ts.Kernel({ptx_example('run-rounded-sum.fail.ptx')}).run(1, 64).findings",
)

UNUSED_LOAD = rule(
    "run-unused-load",
    "A load whose value is not used does not race with a write.",
    argument="{where}",
    found=TWO_ACCESSES,
    limit="nothing orders the two, but the loaded value is not used: with any other value there the kernel stores the same",
    fix="Do nothing; or let only the threads load that use the value.",
    source=_SOURCE,
    severity="note",
    passing=f"ts.Kernel({ptx_example('run-unused-load.pass.ptx')}).run(1, 64, {WORDS}).findings",
    failing=f"ts.Kernel({ptx_example('run-unused-load.fail.ptx')}).run(1, 64, {WORDS}).findings",
)
NONCOHERENT_LOAD = rule(
    "run-noncoherent-load",
    "A kernel does not write bytes that it loads with ld.global.nc (__ldg, const __restrict__).",
    argument="{where}",
    found="at {at} {who} reads {what} by the non-coherent cache, and {before_who} {did} it at {before_where}[[; seen {met}]]",
    limit="the cache of ld.global.nc does not see writes of the kernel that runs, whatever orders the two",
    fix="Load it with plain ld.global: take __ldg, or const and __restrict__, away.",
    source="PTX ISA, ld.global.nc; CUDA C++ Programming Guide, Read-Only Data Cache Load Function",
    passing=f"ts.Kernel({ptx_example('run-noncoherent-load.pass.ptx')}).run(1, 64, {WORDS}).findings",
    failing=f"ts.Kernel({ptx_example('run-noncoherent-load.fail.ptx')}).run(1, 64, {WORDS}).findings",
)
NONCOHERENT_STORE = NONCOHERENT_LOAD.worded(
    found="at {at} {who} {does} {what}, which {before_who} {did} by the non-coherent cache at {before_where}[[; seen {met}]]",
    limit="nothing orders the two, and ld.global.nc takes bytes that no thread of the kernel writes",
)
NONCOHERENT_IN_PLACE = NONCOHERENT_STORE.worded(
    limit="the load happens before this write, but ld.global.nc takes bytes that no thread of the kernel writes",
    severity="warning",
)

_WORDING_OF_MISTAKE: dict[Mistake, Wording] = {
    "race": RACE.wording,
    "repeated store": REPEATED_STORE,
    "barrier reuse": BARRIER_REUSE,
    "narrow scope": DEFAULT_SCOPE.wording,
    "barrier phase": BARRIER_PHASE,
    "cluster phase": CLUSTER_PHASE,
    "map copy": MAP_COPY,
    "stale read": STALE_READ.wording,
    "lane order": LANE_ORDER,
    "noncoherent load": NONCOHERENT_LOAD.wording,
    "noncoherent store": NONCOHERENT_STORE,
    "noncoherent in place": NONCOHERENT_IN_PLACE,
    "unwritten": UNWRITTEN.wording,
    "unwritten operand": UNWRITTEN_OPERAND.wording,
    "rounded sum": ROUNDED_SUM.wording,
    "unused load": UNUSED_LOAD.wording,
    **ASYNC_WORDINGS,
    **MBARRIER_WORDINGS,
    **TENSOR_WORDINGS,
}


def wording_of(conflict: Conflict) -> Wording:
    """The rule that a conflict breaks, in the wording that fits its two accesses."""
    if conflict.mistake == "block end" and conflict.now.how == "cp.async":
        return COPIES_LEFT.wording
    if conflict.mistake == "block end" and conflict.now.how == "tcgen05.commit":
        return COMMIT_LEFT.wording
    if conflict.mistake == "race" and conflict.before is conflict.now:
        return TWO_VALUES
    if conflict.mistake in CONVERGENCE_WORDINGS:
        return convergence_wording(conflict)
    if conflict.mistake == "narrow scope" and conflict.facts["names_scope"]:
        return NARROW_SCOPE
    if conflict.mistake == "dead barrier" and conflict.before is None:
        return NEVER_INITIALISED
    if conflict.mistake == "race" and "is_narrow" in conflict.facts:
        return NARROW_ATOMIC
    if conflict.mistake == "unwritten" and "changes_result" in conflict.facts:
        return UNWRITTEN_USED
    if conflict.mistake == "copy wait" and "relaxed" in conflict.facts:
        return RELAXED_COPY_WAIT
    return _WORDING_OF_MISTAKE[conflict.mistake]


def severity_of(conflict: Conflict) -> Severity:
    """The severity of the rule that a conflict breaks."""
    return wording_of(conflict).severity
