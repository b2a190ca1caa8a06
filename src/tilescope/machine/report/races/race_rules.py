"""The rules of synchronization: which barrier, wait or fence must establish happens-before between two accesses.

Each rule has a kernel that passes and a kernel that fails. `wording_of` selects the rule that a conflict breaks; race_report.py fills in
the threads, the accesses and their places.
"""

from __future__ import annotations

from tilescope.errors import Severity, Wording
from tilescope.machine.report.races.convergence_report import CONVERGENCE_WORDINGS, convergence_wording
from tilescope.machine.report.races.tmem_report import (
    COMMIT_LEFT,
    LEFT_AT_END,
    NOT_WAITED_FOR,
    TENSOR_WORDINGS,
    TWO_ACCESSES,
)
from tilescope.rule import ptx_example, rule
from tilescope.sync.detector.race import Conflict, Mistake
from tilescope.sync.proxies import severity_of_fence

_SOURCE = "PTX ISA, Memory Consistency Model; spec of asynchronous operations"
_WORDS = "[np.zeros(64, np.uint32)]"
_MAP = "[np.frombuffer(ts.TensorMap('u32', (64,), (), (4,)).encode() + bytes(256), 'u1').copy()]"

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
    "Between blocks of a cluster, data of threads is passed on by arrivals and waits with .cluster scope.",
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
PROXY_FENCE = rule(
    "run-proxy-fence",
    "A fence.proxy.async separates a write by threads from a copy or a tensor core that accesses the same bytes.",
    argument="{where}",
    found=TWO_ACCESSES,
    limit="a barrier orders the two, but no fence.proxy.async is between them: the write may not be visible to the async proxy",
    fix="Put fence.proxy.async after {before_where}, before the barrier; or after the barrier, in the thread of {where}.",
    source="PTX ISA, Async proxy",
    severity=severity_of_fence("smem", "generic", "tma"),
    passing=f"ts.Kernel({ptx_example('run-proxy-fence.pass.ptx')}).run(1, 64, {_WORDS}).findings",
    failing=f"ts.Kernel({ptx_example('run-proxy-fence.fail.ptx')}).run(1, 64, {_WORDS}).findings",
)
COPY_WAIT = rule(
    "run-copy-wait",
    "Bytes of a bulk or tensor copy are accessed only after a wait for its mbarrier.",
    argument="{where}",
    found=TWO_ACCESSES,
    limit="the thread has not seen the end of the mbarrier phase that counts these bytes",
    fix="Wait for that phase with mbarrier.try_wait in a loop before {where}, or let another thread wait, then meet it at a barrier.",
    source="PTX ISA, cp.async.bulk",
    passing=f"ts.Kernel({ptx_example('run-copy-wait.pass.ptx')}).run(1, 64, {_WORDS}).findings",
    failing=f"ts.Kernel({ptx_example('run-copy-wait.fail.ptx')}).run(1, 64, {_WORDS}).findings",
)
RELAXED_COPY_WAIT = COPY_WAIT.worded(
    limit="the thread has seen the end of that phase by a relaxed wait, which makes nothing visible",
    fix="Wait with .acquire, which is the default, or put fence.acq_rel after the wait, before {where}.",
)
REFILL = rule(
    "run-refill",
    "A slot is filled again only when all its readers are done.",
    argument="{where}",
    found=TWO_ACCESSES,
    limit="this read does not happen before the refill of the slot",
    fix="Let the readers arrive at an mbarrier (or meet at a barrier) after the read{extra}, and wait for it before {where}.",
    source="PTX ISA, cp.async.bulk, wgmma.wait_group",
    passing=f"ts.Kernel({ptx_example('run-refill.pass.ptx')}).run(1, 64, {_WORDS}).findings",
    failing=f"ts.Kernel({ptx_example('run-refill.fail.ptx')}).run(1, 64, {_WORDS}).findings",
)
ACCUMULATORS = rule(
    "run-accumulators",
    "Registers of a wgmma are accessed only after wgmma.wait_group, and a wgmma.fence separates earlier writes of them from it.",
    argument="{where}",
    found="at {at} {who} {does} registers of the wgmma at {before_where}[[; seen {met}]]",
    limit="no wgmma.wait_group has waited for that product",
    fix="Put wgmma.commit_group and wgmma.wait_group before {where}.",
    source="PTX ISA, wgmma.mma_async, wgmma.fence",
    passing=f"ts.Kernel({ptx_example('run-accumulators.pass.ptx')}).run(1, 128).findings",
    failing=f"ts.Kernel({ptx_example('run-accumulators.fail.ptx')}).run(1, 128).findings",
)
ACCUMULATOR_FENCE = ACCUMULATORS.worded(
    found="at {at} {who} multiplies with registers that were written, or never fenced[[; seen {met}]]",
    limit="no wgmma.fence separates the last write of these registers from the product",
    fix="Put wgmma.fence.sync.aligned before {where}.",
)
STORE_SOURCE = rule(
    "run-store-source",
    "The source of a bulk or tensor store keeps its bytes until cp.async.bulk.wait_group.read.",
    argument="{where}",
    found=TWO_ACCESSES,
    limit="the thread that stored has not waited, or nothing orders its wait before this write",
    fix="Let the thread of {before_where} use cp.async.bulk.commit_group and cp.async.bulk.wait_group.read, then a barrier.",
    source="PTX ISA, cp.async.bulk.wait_group",
    passing=f"ts.Kernel({ptx_example('run-store-source.pass.ptx')}).run(1, 64, {_WORDS}).findings",
    failing=f"ts.Kernel({ptx_example('run-store-source.fail.ptx')}).run(1, 64, {_WORDS}).findings",
)
CP_ASYNC = rule(
    "run-cp-async",
    "Bytes of cp.async are accessed only after the thread that copied them has waited, and by other threads after a barrier too.",
    argument="{where}",
    found=TWO_ACCESSES,
    limit="the copy may still be pending: its thread has not waited, or nothing orders its wait before this access",
    fix="Use cp.async.wait_group in every thread that copied, then bar.sync, before {where}.",
    source="PTX ISA, cp.async.wait_group",
    passing=f"ts.Kernel({ptx_example('run-cp-async.pass.ptx')}).run(1, 64, {_WORDS}).findings",
    failing=f"ts.Kernel({ptx_example('run-cp-async.fail.ptx')}).run(1, 64, {_WORDS}).findings",
)
BARRIER_INIT = rule(
    "run-barrier-init",
    "An mbarrier is used only after its init and a barrier; by other blocks after a barrier of the cluster, and after "
    "fence.mbarrier_init where the arrival at it is .relaxed.",
    argument="{where}",
    found="at {at} {who} uses the mbarrier at {what}, which {before_who} initialises at {before_where}[[; seen {met}]]",
    limit="nothing makes the init visible to this thread",
    fix="Put bar.sync (in a cluster barrier.cluster.arrive and barrier.cluster.wait) after {before_where}.",
    source="PTX ISA, mbarrier.init, fence.mbarrier_init, barrier.cluster",
    passing=f"ts.Kernel({ptx_example('run-barrier-init.pass.ptx')}).run(1, 64).findings",
    failing=f"ts.Kernel({ptx_example('run-barrier-init.fail.ptx')}).run(1, 64).findings",
)
NEVER_INITIALISED = BARRIER_INIT.worded(
    found="at {at} {who} uses the mbarrier at {what}, which nobody has initialised[[; seen {met}]]",
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
    "The eight bytes of an mbarrier are written by nothing else from its init to its inval, which follows the last use.",
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
    limit="nobody uses the mbarrier afterwards, but without mbarrier.inval the state that the chip caches may be written over the data",
    fix="Put mbarrier.inval before {where}.",
    source="PTX ISA, mbarrier.inval",
    severity="warning",
    passing=f"ts.Kernel({ptx_example('run-barrier-overwritten.pass.ptx')}).run(1, 64).findings",
    failing=f"ts.Kernel({ptx_example('run-barrier-overwritten.fail.ptx')}).run(1, 64).findings",
)
INIT_FENCE = rule(
    "run-init-fence",
    "A fence.mbarrier_init stands between mbarrier.init and the barrier of the cluster after which other blocks use the mbarrier.",
    argument="{where}",
    found="at {at} {who} uses the mbarrier at {what}, which {before_who} initialises at {before_where}[[; seen {met}]]",
    limit=(
        "the documents ask for fence.mbarrier_init; here the arrival at the cluster's barrier releases,"
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
    "A wait at an mbarrier is for the running phase or for the one before it: it names only a parity.",
    argument="{where}",
    found=(
        "at {at} {who} waits for a phase of the mbarrier at {what}, and the next phase, which {before_who} ends at {before_where},"
        " may be over before this wait[[; seen {met}]]"
    ),
    limit=(
        "no arrival or copy of the next phase has to come after this wait; a wait names only a parity, so it then blocks until"
        " one more phase ends, or for ever"
    ),
    fix=(
        "After the wait, and before the next phase ends, let this thread arrive, or meet an arriving thread at a barrier;"
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
    fix="Wait for every phase of the mbarrier, one after another, or meet a thread that did at a barrier.",
)
MAP_FENCE = rule(
    "run-map-fence",
    "A map that the kernel edits is used after fence.proxy.tensormap: .release by the thread that edits, .acquire by the one that copies.",
    argument="{where}",
    found="at {at} {who} copies through the map at {what}, which {before_who} edits at {before_where}[[; seen {met}]]",
    limit="fence.proxy.tensormap::generic.release after the edit, or .acquire of this map before the copy, is missing",
    fix="Put fence.proxy.tensormap::generic.release.gpu after {before_where}, and .acquire.gpu [map], 128 before {where}.",
    source="PTX ISA, fence.proxy.tensormap",
    severity=severity_of_fence("gmem", "map", "tma"),
    passing=f"ts.Kernel({ptx_example('run-map-fence.pass.ptx')}).run(1, 64, {_MAP}).findings",
    failing=f"ts.Kernel({ptx_example('run-map-fence.fail.ptx')}).run(1, 64, {_MAP}).findings",
)
EXPECTED_BYTES = rule(
    "run-expected-bytes",
    "The copies of a phase deliver as many bytes as its mbarrier expects.",
    argument="{where}",
    found=(
        "the mbarrier at {where} of block {block}[[ and of {others:other}]] expects {expected:byte},"
        " and the copies delivered {came:byte}"
    ),
    limit="the phase ends when both are equal",
    fix="Expect {came:byte}, or issue the copies that are missing.",
    source="PTX ISA, mbarrier.expect_tx",
    passing=f"ts.Kernel({ptx_example('run-expected-bytes.pass.ptx')}).run(1, 64, {_WORDS}).findings",
    failing=f"ts.Kernel({ptx_example('run-expected-bytes.fail.ptx')}).run(1, 64, {_WORDS}).findings",
)
STUCK_BYTES = EXPECTED_BYTES.wording
SPILLED_BYTES = EXPECTED_BYTES.worded(
    found="the mbarrier at {where} of block {block}[[ and of {others:other}]] expects {expected:byte}, and the copies of the "
    "phase deliver {came:byte}",
    limit="the phase completed before its last copy did, and the next phase counts the late bytes",
    fix="Expect {came:byte}.",
)
BLOCK_END = rule(
    "run-block-end",
    "A block ends only when nothing reads or writes its shared memory any more.",
    argument="{where}",
    found=LEFT_AT_END,
    limit=NOT_WAITED_FOR,
    fix="{remedy}",
    source="PTX ISA, cp.async.bulk; CUDA C++ Programming Guide, Distributed shared memory",
    passing=f"ts.Kernel({ptx_example('run-block-end.pass.ptx')}).run(2, 64, cluster=2).findings",
    failing=f"ts.Kernel({ptx_example('run-block-end.fail.ptx')}).run(2, 64, cluster=2).findings",
)
OWN_COPY_LEFT = BLOCK_END.worded(
    severity="note",
    limit=(
        "no thread has waited for it; the documents ask for a wait, but an H200 keeps the shared memory of a block until its bulk"
        " copies are done"
    ),
)
COPIES_LEFT = rule(
    "run-copies-left",
    "Threads wait for their cp.async before they end.",
    argument="{where}",
    found=LEFT_AT_END,
    limit=NOT_WAITED_FOR,
    fix="{remedy}",
    source="PTX ISA, cp.async.wait_group",
    severity="warning",
    passing=f"ts.Kernel({ptx_example('run-copies-left.pass.ptx')}).run(1, 64, {_WORDS}).findings",
    failing=f"ts.Kernel({ptx_example('run-copies-left.fail.ptx')}).run(1, 64, {_WORDS}).findings",
)
STALE_READ = rule(
    "run-early-load",
    "A load of a word that another thread writes is ordered after that write, or repeated until it sees the write.",
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
    "What is read from shared memory was written before.",
    argument="{where}",
    found="at {at} {who} {does} {what}, which nobody has written[[; seen {met}]]",
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
    "Something was written to an operand before a tensor core multiplies it.",
    argument="{where}",
    found="at {at} {who} {does} {what}, and nobody has written a byte of that operand[[; seen {met}]]",
    limit="shared memory is not initialised when a block starts, so the whole product is arbitrary",
    fix="Check the descriptor's start address (a wrong slot or offset), or write the operand first.",
    source="CUDA C++ Programming Guide, shared memory; PTX ISA, wgmma.mma_async",
    passing=f"ts.Kernel({ptx_example('run-unwritten-operand.pass.ptx')}).run(1, 128).findings",
    failing=f"ts.Kernel({ptx_example('run-unwritten-operand.fail.ptx')}).run(1, 128).findings",
)
CP_ASYNC_FENCE = rule(
    "run-cp-async-fence",
    "A fence.proxy.async separates cp.async from a tensor core that reads its bytes.",
    argument="{where}",
    found=TWO_ACCESSES,
    limit="the documents ask for fence.proxy.async; Triton's and CUTLASS's kernels have none, and work",
    fix="To be sure, put fence.proxy.async after the wait for the copies, before the barrier.",
    source="PTX ISA, Async proxy",
    severity=severity_of_fence("smem", "cp.async", "wgmma"),
    passing=f"ts.Kernel({ptx_example('run-cp-async-fence.pass.ptx')}).run(1, 128, {_WORDS}).findings",
    failing=f"ts.Kernel({ptx_example('run-cp-async-fence.fail.ptx')}).run(1, 128, {_WORDS}).findings",
)

ROUNDED_SUM = rule(
    "run-rounded-sum",
    "A sum that the lanes of a warp add up by shuffles, and store to one word, has the same bits in all of them.",
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
    passing=f"ts.Kernel({ptx_example('run-unused-load.pass.ptx')}).run(1, 64, {_WORDS}).findings",
    failing=f"ts.Kernel({ptx_example('run-unused-load.fail.ptx')}).run(1, 64, {_WORDS}).findings",
)
NONCOHERENT_LOAD = rule(
    "run-noncoherent-load",
    "A kernel does not write bytes that it loads with ld.global.nc (__ldg, const __restrict__).",
    argument="{where}",
    found="at {at} {who} reads {what} by the non-coherent cache, and {before_who} {did} it at {before_where}[[; seen {met}]]",
    limit="the cache of ld.global.nc does not see writes of the kernel that runs, whatever orders the two",
    fix="Load it with plain ld.global: take __ldg, or const and __restrict__, away.",
    source="PTX ISA, ld.global.nc; CUDA C++ Programming Guide, Read-Only Data Cache Load Function",
    passing=f"ts.Kernel({ptx_example('run-noncoherent-load.pass.ptx')}).run(1, 64, {_WORDS}).findings",
    failing=f"ts.Kernel({ptx_example('run-noncoherent-load.fail.ptx')}).run(1, 64, {_WORDS}).findings",
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
    "proxy fence": PROXY_FENCE.wording,
    "copy wait": COPY_WAIT.wording,
    "refill": REFILL.wording,
    "accumulators": ACCUMULATORS.wording,
    "accumulator fence": ACCUMULATOR_FENCE,
    "store source": STORE_SOURCE.wording,
    "repeated store": REPEATED_STORE,
    "cp.async": CP_ASYNC.wording,
    "barrier init": BARRIER_INIT.wording,
    "init fence": INIT_FENCE.wording,
    "barrier reuse": BARRIER_REUSE,
    "dead barrier": INVALIDATED,
    "second init": BARRIER_LIFETIME.wording,
    "copy over barrier": COPY_OVER_BARRIER,
    "store over barrier": STORE_OVER_BARRIER,
    "barrier pending": PENDING_AT_INVAL,
    "narrow scope": DEFAULT_SCOPE.wording,
    "barrier overwritten": BARRIER_OVERWRITTEN.wording,
    "barrier phase": BARRIER_PHASE,
    "phase overtaken": PHASE_OVERTAKEN.wording,
    "phase skipped": PHASE_SKIPPED,
    "cluster phase": CLUSTER_PHASE,
    "map fence": MAP_FENCE.wording,
    "map copy": MAP_COPY,
    "block end": BLOCK_END.wording,
    "copy left": OWN_COPY_LEFT,
    "stale read": STALE_READ.wording,
    "lane order": LANE_ORDER,
    "noncoherent load": NONCOHERENT_LOAD.wording,
    "noncoherent store": NONCOHERENT_STORE,
    "noncoherent in place": NONCOHERENT_IN_PLACE,
    "unwritten": UNWRITTEN.wording,
    "unwritten operand": UNWRITTEN_OPERAND.wording,
    "cp.async fence": CP_ASYNC_FENCE.wording,
    "rounded sum": ROUNDED_SUM.wording,
    "unused load": UNUSED_LOAD.wording,
    **TENSOR_WORDINGS,
}


BARRIER_MISUSE: frozenset[Mistake] = frozenset(
    {"dead barrier", "second init", "copy over barrier", "store over barrier", "barrier pending"}
)
"""After these an mbarrier may do anything: hang, or fail the launch."""


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
