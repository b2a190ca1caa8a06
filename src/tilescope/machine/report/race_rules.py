"""The rules of order between instructions: which barrier, wait or fence has to stand between two accesses.

Each rule has a kernel that keeps it and one that breaks it. `rule_of` says which rule a conflict breaks; order_findings.py
fills in who did what, and where.
"""

from __future__ import annotations

from tilescope.errors import Severity, Wording
from tilescope.machine.report.tmem_report import (
    COMMIT_LEFT,
    LEFT_AT_END,
    NOT_WAITED_FOR,
    TENSOR_RULES,
    TWO_ACCESSES,
)
from tilescope.rule import Rule, rule
from tilescope.sync.detector.race import Conflict, Mistake

_SOURCE = "PTX ISA, Memory Consistency Model; spec of asynchronous operations"
_HEAD = (
    ".version 8.0 .target sm_90a .address_size 64 .visible .entry k(.param .u64 a) {"
    " .shared .align 128 .b8 s[1024]; .shared .align 8 .b64 m; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .pred %p<4>; .reg .f32 %f<8>;"
    " ld.param.u64 %d1, [a]; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r2, %r2, %r3;"
    " setp.eq.u32 %p1, %r1, 0; "
)
_WORDS = "[np.zeros(64, np.uint32)]"
_WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p2, [m], 0; @!%p2 bra W;"
_INIT = "@%p1 mbarrier.init.shared.b64 [m], 1; bar.sync 0;"
_LOAD = (
    "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [m], 16;"
    " @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%d1], 16, [m];"
)
_STORE = (
    "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%d1], [s], 16; cp.async.bulk.commit_group;"
    " cp.async.bulk.wait_group{read} 0;"
)
_PRODUCT_ALONE = (
    "mov.u32 %r4, s; shr.u32 %r4, %r4, 4; or.b32 %r4, %r4, 0x80000; cvt.u64.u32 %d2, %r4;"
    " mov.u64 %d3, 0x800000000; or.b64 %d2, %d2, %d3; {fence}"
    " wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {{%f0, %f1, %f2, %f3}}, {{%r5, %r6, %r7, %r8}}, %d2, 0, 1, 1;"
    " wgmma.commit_group.sync.aligned; {wait} add.f32 %f4, %f0, %f1; wgmma.wait_group.sync.aligned 0;"
)
_PRODUCT = "st.shared.u32 [%r2], 0; st.shared.u32 [%r2+512], 0; fence.proxy.async; bar.sync 0; " + _PRODUCT_ALONE
_PRODUCT_WAIT = "wgmma.wait_group.sync.aligned 0;"


def _example(body: str, threads: int = 64) -> str:
    return f'ts.Kernel("{_HEAD}{body} ret; }}").run(1, {threads}, {_WORDS}).findings'


def _cluster_example(body: str) -> str:
    """Two blocks that are one cluster."""
    return f'ts.Kernel("{_HEAD}{body} ret; }}").run(2, 64, {_WORDS}, cluster=2).findings'


RACE = rule(
    "run-race",
    "Two accesses to the same bytes, one of them a write, are ordered: by a barrier, an mbarrier, or a release and an acquire.",
    argument="{where}",
    found=TWO_ACCESSES,
    limit="nothing on this path orders the two",
    fix="Put {remedy} between them.",
    source=_SOURCE,
    passing=_example("st.shared.u32 [%r2], %r1; bar.sync 0; ld.shared.u32 %r4, [s+128];"),
    failing=_example("st.shared.u32 [%r2], %r1; ld.shared.u32 %r4, [s+128];"),
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
BARRIER_REUSE = RACE.worded(
    found="at {at} {who} invalidates or overwrites the mbarrier at {what}, which {before_who} uses at {before_where}[[; seen {met}]]",
)
BARRIER_PHASE = RACE.worded(
    found="at {at} {who} arrives at barrier {number} again, and does not know that its last phase there has ended[[; seen {met}]]",
    limit="which phase it joins depends on which thread is faster",
    fix="Wait for that phase first, or use another barrier.",
)
CLUSTER_PHASE = RACE.worded(
    found="at {at} {who} arrives at the barrier of the cluster again without having waited at it[[; seen {met}]]",
    limit="a second barrier.cluster.arrive before barrier.cluster.wait is not defined",
    fix="Put barrier.cluster.wait between the two arrivals.",
)
PROXY_FENCE = rule(
    "run-proxy-fence",
    "A fence.proxy.async separates a write by threads from a copy or a tensor core that touches the same bytes.",
    argument="{where}",
    found=TWO_ACCESSES,
    limit="a barrier orders the two, but no fence.proxy.async is between them: the write may not be visible to the async proxy",
    fix="Put fence.proxy.async after {before_where}, before the barrier; or after the barrier, in the thread of {where}.",
    source="PTX ISA, Async proxy",
    passing=_example(
        f"st.shared.u32 [%r2], %r1; fence.proxy.async; bar.sync 0; {_STORE.format(read='')}",
    ),
    failing=_example(f"st.shared.u32 [%r2], %r1; bar.sync 0; {_STORE.format(read='')}"),
)
COPY_WAIT = rule(
    "run-copy-wait",
    "Bytes that a bulk or tensor copy brings are touched only after a wait for its mbarrier.",
    argument="{where}",
    found=TWO_ACCESSES,
    limit="the thread has not seen the end of the mbarrier phase that counts these bytes",
    fix="Wait for that phase with mbarrier.try_wait in a loop before {where}, or let another thread wait, then meet it at a barrier.",
    source="PTX ISA, cp.async.bulk",
    passing=_example(f"{_INIT} {_LOAD} {_WAIT} ld.shared.u32 %r4, [s];"),
    failing=_example(f"{_INIT} {_LOAD} ld.shared.u32 %r4, [s]; {_WAIT}"),
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
    limit="nothing tells the thread that fills the slot that this read is over",
    fix="Let the readers arrive at an mbarrier (or meet at a barrier) after the read{extra}, and wait for it before {where}.",
    source="PTX ISA, cp.async.bulk, wgmma.wait_group",
    passing=_example(
        f"{_INIT} st.shared.u32 [%r2], 0; bar.sync 0; ld.shared.u32 %r4, [s]; fence.proxy.async; bar.sync 0; {_LOAD} {_WAIT}"
    ),
    failing=_example(
        f"{_INIT} st.shared.u32 [%r2], 0; fence.proxy.async; bar.sync 0; ld.shared.u32 %r4, [s]; {_LOAD} {_WAIT}"
    ),
)
ACCUMULATORS = rule(
    "run-accumulators",
    "Registers of a wgmma are touched only after wgmma.wait_group, and a wgmma.fence separates earlier writes of them from it.",
    argument="{where}",
    found="at {at} {who} {does} registers of the wgmma at {before_where}[[; seen {met}]]",
    limit="no wgmma.wait_group has waited for that product",
    fix="Put wgmma.commit_group and wgmma.wait_group before {where}.",
    source="PTX ISA, wgmma.mma_async, wgmma.fence",
    passing=_example(_PRODUCT.format(fence="wgmma.fence.sync.aligned;", wait=_PRODUCT_WAIT), 128),
    failing=_example(_PRODUCT.format(fence="wgmma.fence.sync.aligned;", wait=""), 128),
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
    passing=_example(
        f"st.shared.u32 [%r2], %r1; fence.proxy.async; bar.sync 0; {_STORE.format(read='.read')} bar.sync 0; st.shared.u32 [%r2], 5;"
    ),
    failing=_example(
        f"st.shared.u32 [%r2], %r1; fence.proxy.async; bar.sync 0; {_STORE.format(read='.read')} st.shared.u32 [%r2], 5;"
    ),
)
CP_ASYNC = rule(
    "run-cp-async",
    "What cp.async brings is touched only after the thread that copied it has waited, and by other threads after a barrier too.",
    argument="{where}",
    found=TWO_ACCESSES,
    limit="the copy may still be under way: its thread has not waited, or nothing orders its wait before this access",
    fix="Use cp.async.wait_group in every thread that copied, then bar.sync, before {where}.",
    source="PTX ISA, cp.async.wait_group",
    passing=_example(
        "cp.async.ca.shared.global [%r2], [%d1], 4; cp.async.wait_all; bar.sync 0; ld.shared.u32 %r4, [s+128];"
    ),
    failing=_example("cp.async.ca.shared.global [%r2], [%d1], 4; cp.async.wait_all; ld.shared.u32 %r4, [s+128];"),
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
    passing=_example(f"{_INIT} mbarrier.test_wait.parity.shared.b64 %p2, [m], 1;"),
    failing=_example("@%p1 mbarrier.init.shared.b64 [m], 1; mbarrier.test_wait.parity.shared.b64 %p2, [m], 1;"),
)
_REMOTE_ARRIVAL = (
    "@%p1 mbarrier.init.shared.b64 [m], 1; {fence} barrier.cluster.arrive; barrier.cluster.wait;"
    " mov.u32 %r4, %cluster_ctarank; xor.b32 %r4, %r4, 1; mov.u32 %r5, m; mapa.shared::cluster.u32 %r5, %r5, %r4;"
    " @%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5]; barrier.cluster.arrive; barrier.cluster.wait;"
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
    passing=_cluster_example(_REMOTE_ARRIVAL.format(fence="fence.mbarrier_init.release.cluster;")),
    failing=_cluster_example(_REMOTE_ARRIVAL.format(fence="")),
)
_TWO_PHASES = (
    "@%p1 mbarrier.init.shared.b64 [m], 32; bar.sync 0; setp.lt.u32 %p3, %r1, 32;"
    " W: mbarrier.try_wait.parity.shared.b64 %p2, [m], 1; @!%p2 bra W; {barrier} @%p3 mbarrier.arrive.shared.b64 _, [m];"
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
    passing=_example(_TWO_PHASES.format(barrier="bar.sync 0;")),
    failing=_example(_TWO_PHASES.format(barrier="")),
)
PHASE_SKIPPED = PHASE_OVERTAKEN.worded(
    found=(
        "at {at} {who} waits for a phase of the mbarrier at {what}, and does not know that the phase before has ended"
        "[[; seen {met}]]"
    ),
    limit="a wait names only a parity: while the phase before still runs, this wait passes at once, two phases too early",
    fix="Wait for every phase of the mbarrier, one after another, or meet a thread that did at a barrier.",
)
_MAP = "[np.frombuffer(ts.TensorMap('u32', (64,), (), (4,)).encode() + bytes(256), 'u1').copy()]"
_EDIT = (
    f"{_INIT} add.u64 %d2, %d1, 128; @%p1 tensormap.replace.tile.global_address.global.b1024.b64 [%d1], %d2; {{fence}}"
    " @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [m], 16;"
    " @%p1 cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%d1, {{%r1}}], [m];"
    f" {_WAIT}"
)
_MAP_FENCES = (
    "fence.proxy.tensormap::generic.release.gpu; bar.sync 0; fence.proxy.tensormap::generic.acquire.gpu [%d1], 128;"
)
MAP_FENCE = rule(
    "run-map-fence",
    "A map that the kernel edits is used after fence.proxy.tensormap: .release by the thread that edits, .acquire by the one that copies.",
    argument="{where}",
    found="at {at} {who} copies through the map at {what}, which {before_who} edits at {before_where}[[; seen {met}]]",
    limit="fence.proxy.tensormap::generic.release after the edit, or .acquire of this map before the copy, is missing",
    fix="Put fence.proxy.tensormap::generic.release.gpu after {before_where}, and .acquire.gpu [map], 128 before {where}.",
    source="PTX ISA, fence.proxy.tensormap",
    passing=f'ts.Kernel("{_HEAD}{_EDIT.format(fence=_MAP_FENCES)} ret; }}").run(1, 64, {_MAP}).findings',
    failing=f'ts.Kernel("{_HEAD}{_EDIT.format(fence="bar.sync 0;")} ret; }}").run(1, 64, {_MAP}).findings',
)
_EXPECT = (
    f"{_INIT} @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [m], {{bytes}};"
    " @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%d1], 16, [m];"
    f" {_WAIT}"
)
EXPECTED_BYTES = rule(
    "run-expected-bytes",
    "The copies of a phase bring as many bytes as its mbarrier was told to expect.",
    argument="{where}",
    found="the mbarrier at {where} of block {block}[[ and of {others:other}]] was told to expect {expected:byte}, and {came:byte} came",
    limit="the phase ends when both are equal",
    fix="Expect {came:byte}, or issue the copies that are missing.",
    source="PTX ISA, mbarrier.expect_tx",
    passing=_example(_EXPECT.format(bytes=16)),
    failing=_example(_EXPECT.format(bytes=32)),
)
SPILLED_BYTES = EXPECTED_BYTES.worded(
    found="the mbarrier at {where} of block {block}[[ and of {others:other}]] was told to expect {expected:byte}, and the copies of the "
    "phase bring {came:byte}",
    limit="the phase ended before the last of them came, and the next one counts what came too late",
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
    passing=_example(f"{_INIT} {_LOAD} {_WAIT}"),
    failing=_example(f"{_INIT} {_LOAD}"),
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
    passing=_example("cp.async.ca.shared.global [%r2], [%d1], 4; cp.async.wait_all;"),
    failing=_example("cp.async.ca.shared.global [%r2], [%d1], 4;"),
)
_FLAGGED = (
    "@%p1 st.volatile.shared.u32 [s], 0; @%p1 st.volatile.shared.u32 [s+4], 0; bar.sync 0; setp.ne.u32 %p2, %r1, 32;"
    " @%p1 st.volatile.shared.u32 [s], 5; {fence} @%p1 st.volatile.shared.u32 [s+4], 1; @%p2 bra E;"
    " W: ld.volatile.shared.u32 %r4, [s+4]; setp.eq.u32 %p3, %r4, 0; @%p3 bra W; {fence} ld.volatile.shared.u32 %r5, [s]; E:"
)
EARLY_LOAD = rule(
    "run-early-load",
    "A load of a word that another thread writes is ordered after that write, or repeated until it sees the write.",
    argument="{where}",
    found=TWO_ACCESSES,
    limit="nothing on this path orders the two, and the thread loads it only once: here it got the value before that write",
    fix=(
        "Load it in a loop until the value has come; or first load a flag in such a loop, with fence.acq_rel (membar, __threadfence)"
        " after that load and before the store of the flag."
    ),
    source="PTX ISA, Memory Consistency Model, causality order",
    severity="warning",
    passing=_example(_FLAGGED.format(fence="membar.cta;")),
    failing=_example(_FLAGGED.format(fence="")),
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
    passing=_example("st.shared.u32 [%r2], %r1; ld.shared.u32 %r4, [%r2];"),
    failing=_example("ld.shared.u32 %r4, [%r2];"),
)
UNWRITTEN_OPERAND = rule(
    "run-unwritten-operand",
    "Something was written to an operand before a tensor core multiplies it.",
    argument="{where}",
    found="at {at} {who} {does} {what}, and nobody has written a byte of that operand[[; seen {met}]]",
    limit="shared memory is not initialised when a block starts, so the whole product is arbitrary",
    fix="Check the descriptor's start address (a wrong slot or offset), or write the operand first.",
    source="CUDA C++ Programming Guide, shared memory; PTX ISA, wgmma.mma_async",
    passing=_example(_PRODUCT.format(fence="wgmma.fence.sync.aligned;", wait=_PRODUCT_WAIT), 128),
    failing=_example(_PRODUCT_ALONE.format(fence="wgmma.fence.sync.aligned;", wait=_PRODUCT_WAIT), 128),
)
_CP_PRODUCT = (
    "cp.async.ca.shared.global [%r2], [%d1], 4; cp.async.ca.shared.global [%r2+512], [%d1], 4; cp.async.wait_all; {fence} bar.sync 0;"
    " mov.u32 %r4, s; shr.u32 %r4, %r4, 4; or.b32 %r4, %r4, 0x80000; cvt.u64.u32 %d2, %r4; mov.u64 %d3, 0x800000000;"
    " or.b64 %d2, %d2, %d3; wgmma.fence.sync.aligned;"
    " wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {{%f0, %f1, %f2, %f3}}, {{%r5, %r6, %r7, %r8}}, %d2, 0, 1, 1;"
    " wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
)
CP_ASYNC_FENCE = rule(
    "run-cp-async-fence",
    "A fence.proxy.async separates cp.async from a tensor core that reads its bytes.",
    argument="{where}",
    found=TWO_ACCESSES,
    limit="the documents ask for fence.proxy.async; Triton's and CUTLASS's kernels have none, and work",
    fix="To be sure, put fence.proxy.async after the wait for the copies, before the barrier.",
    source="PTX ISA, Async proxy",
    severity="note",
    passing=_example(_CP_PRODUCT.format(fence="fence.proxy.async;"), 128),
    failing=_example(_CP_PRODUCT.format(fence=""), 128),
)

_SUM = (
    "cvt.rn.f32.u32 %f1, %r1; add.f32 %f1, %f1, 0f3E4CCCCD; mul.f32 %f2, %f1, %f1; mov.b32 %r4, %f2;"
    " shfl.sync.bfly.b32 %r5, %r4, 1, 31, -1; mov.b32 %f3, %r5; {add} setp.lt.u32 %p2, %r1, 2; @%p2 st.shared.f32 [s], %f4;"
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
    passing=_example(_SUM.format(add="add.rn.f32 %f4, %f2, %f3;")),
    failing=_example(_SUM.format(add="fma.rn.f32 %f4, %f1, %f1, %f3;")),
)

_RULE_OF_MISTAKE: dict[Mistake, Rule | Wording] = {
    "race": RACE,
    "proxy fence": PROXY_FENCE,
    "copy wait": COPY_WAIT,
    "refill": REFILL,
    "accumulators": ACCUMULATORS,
    "accumulator fence": ACCUMULATOR_FENCE,
    "store source": STORE_SOURCE,
    "cp.async": CP_ASYNC,
    "barrier init": BARRIER_INIT,
    "init fence": INIT_FENCE,
    "barrier reuse": BARRIER_REUSE,
    "barrier phase": BARRIER_PHASE,
    "phase overtaken": PHASE_OVERTAKEN,
    "phase skipped": PHASE_SKIPPED,
    "cluster phase": CLUSTER_PHASE,
    "map fence": MAP_FENCE,
    "block end": BLOCK_END,
    "early load": EARLY_LOAD,
    "unwritten": UNWRITTEN,
    "unwritten operand": UNWRITTEN_OPERAND,
    "cp.async fence": CP_ASYNC_FENCE,
    "rounded sum": ROUNDED_SUM,
    **TENSOR_RULES,
}


def rule_of(conflict: Conflict) -> Rule | Wording:
    """The rule that a conflict breaks, in the wording that fits its two sides."""
    if conflict.mistake == "block end" and conflict.now.how == "cp.async":
        return COPIES_LEFT
    if conflict.mistake == "block end" and conflict.now.how == "tcgen05.commit":
        return COMMIT_LEFT
    if conflict.mistake == "race" and conflict.before is conflict.now:
        return TWO_VALUES
    if conflict.mistake == "copy wait" and "relaxed" in conflict.facts:
        return RELAXED_COPY_WAIT
    return _RULE_OF_MISTAKE[conflict.mistake]


def severity_of(conflict: Conflict) -> Severity:
    """How bad a conflict is."""
    return rule_of(conflict).severity
