"""What nothing orders, in words: a finding for each pair of instructions, however often they met.

attention.py:41, PTX line 310 (ld.shared.b32 …): thread 40 of block (0, 0, 0) reads shared address 0x480 (tile+128), which
thread 8 writes at attention.py:38, PTX line 290 (st.shared.b32 …); nothing orders the two
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tilescope.errors import Severity, Violation, Wording
from tilescope.machine.address import SHARED_OFFSET_MASK, SHARED_RANK_SHIFT
from tilescope.machine.element import Element, array_element, tile_element
from tilescope.machine.launch import Launch
from tilescope.machine.lost_update import is_lost_update
from tilescope.machine.order.conflict import Conflict, How, Insertion, Mistake, Side
from tilescope.machine.order.witness import BarrierBytes, PhaseBytes
from tilescope.machine.places import (
    array_named,
    block_of,
    instruction_named,
    line_facts,
    line_named,
    shared_variable,
    thread_index,
)
from tilescope.machine.program import Program
from tilescope.machine.records import block_index
from tilescope.machine.schedule import Schedule
from tilescope.machine.tensor_findings import (
    BY_WARP,
    COMMIT_LEFT,
    FINISH,
    TENSOR_END_REMEDY,
    TENSOR_LEFT,
    TENSOR_RULES,
    TENSOR_UNIT_VERB,
    TENSOR_UNITS,
    TENSOR_VERB,
    tensor_place,
)
from tilescope.rule import Rule, rule
from tilescope.sentence import listed

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


_FOUND = "at {at} {who} {does} {what}[[, which {before_who} {did} at {before_where}]][[; this was met {met}]]"

RACE = rule(
    "run-race",
    "Two accesses to the same bytes, one of them a write, are ordered: by a barrier, an mbarrier, or a release and an acquire.",
    argument="{where}",
    found=_FOUND,
    limit="nothing on this path orders the two",
    fix="Put {remedy} between them.",
    source=_SOURCE,
    passing=_example("st.shared.u32 [%r2], %r1; bar.sync 0; ld.shared.u32 %r4, [s+128];"),
    failing=_example("st.shared.u32 [%r2], %r1; ld.shared.u32 %r4, [s+128];"),
)
TWO_VALUES = RACE.worded(
    found="threads of one store at {at}, {who} among them, write different values to {what}[[; this was met {met}]]",
    limit="which of them stays is not defined",
    fix="Let one thread store it, or use an atomic.",
)
LOST_UPDATE = RACE.worded(
    limit="nothing orders the two: both load the word, change it and store it, and one of the changes may be lost",
    fix=(
        "Use an atomic in place of load, change and store (atom or red; atomicAdd);"
        " where a lock guards them, take it with .acquire and give it back with .release."
    ),
)
BARRIER_REUSE = RACE.worded(
    found="at {at} {who} takes away the mbarrier at {what}, which {before_who} uses at {before_where}[[; this was met {met}]]",
)
BARRIER_PHASE = RACE.worded(
    found="at {at} {who} comes to barrier {number} again, and does not know that its last phase there has ended[[; this was met {met}]]",
    limit="which phase it joins depends on who is faster",
    fix="Wait for that phase first, or use another barrier.",
)
CLUSTER_PHASE = RACE.worded(
    found="at {at} {who} comes to the barrier of the cluster again without having waited at it[[; this was met {met}]]",
    limit="a second barrier.cluster.arrive before barrier.cluster.wait is not defined",
    fix="Put barrier.cluster.wait between the two arrivals.",
)
PROXY_FENCE = rule(
    "run-proxy-fence",
    "Between a write by threads and a copy or a tensor core that touches the same bytes stands fence.proxy.async.",
    argument="{where}",
    found=_FOUND,
    limit="a barrier orders the two, but no fence.proxy.async stands on the way: the write may not be visible to the async proxy",
    fix="Put fence.proxy.async behind {before_where}, before the barrier; or behind the barrier, in the thread of {where}.",
    source="PTX ISA, Async proxy",
    passing=_example(
        f"st.shared.u32 [%r2], %r1; fence.proxy.async; bar.sync 0; {_STORE.format(read='')}",
    ),
    failing=_example(f"st.shared.u32 [%r2], %r1; bar.sync 0; {_STORE.format(read='')}"),
)
COPY_WAIT = rule(
    "run-copy-wait",
    "Bytes that a bulk or tensor copy brings are touched behind the wait for its mbarrier.",
    argument="{where}",
    found=_FOUND,
    limit="the thread has not seen the mbarrier's phase end in which these bytes are counted",
    fix="Wait for that phase with mbarrier.try_wait in a loop before {where}, or let a thread wait that then meets this one at a barrier.",
    source="PTX ISA, cp.async.bulk",
    passing=_example(f"{_INIT} {_LOAD} {_WAIT} ld.shared.u32 %r4, [s];"),
    failing=_example(f"{_INIT} {_LOAD} ld.shared.u32 %r4, [s]; {_WAIT}"),
)
REFILL = rule(
    "run-refill",
    "A slot is filled again when everybody who reads it is done.",
    argument="{where}",
    found=_FOUND,
    limit="whoever fills the slot does not know that this read is over",
    fix="Let the readers arrive at an mbarrier (or come to a barrier) behind the read{extra}, and wait for it before {where}.",
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
    "Registers of a wgmma are touched behind wgmma.wait_group, and written before wgmma.fence.",
    argument="{where}",
    found="at {at} {who} {does} registers of the wgmma at {before_where}[[; this was met {met}]]",
    limit="no wgmma.wait_group has waited for that product",
    fix="Put wgmma.commit_group and wgmma.wait_group before {where}.",
    source="PTX ISA, wgmma.mma_async, wgmma.fence",
    passing=_example(_PRODUCT.format(fence="wgmma.fence.sync.aligned;", wait=_PRODUCT_WAIT), 128),
    failing=_example(_PRODUCT.format(fence="wgmma.fence.sync.aligned;", wait=""), 128),
)
ACCUMULATOR_FENCE = ACCUMULATORS.worded(
    found="at {at} {who} multiplies with registers that were written, or never fenced[[; this was met {met}]]",
    limit="no wgmma.fence stands between what wrote the registers and the product",
    fix="Put wgmma.fence.sync.aligned before {where}.",
)
STORE_SOURCE = rule(
    "run-store-source",
    "The source of a bulk or tensor store keeps its bytes until cp.async.bulk.wait_group.read.",
    argument="{where}",
    found=_FOUND,
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
    "What cp.async brings is touched behind the wait of the thread that copied it, and by other threads behind a barrier.",
    argument="{where}",
    found=_FOUND,
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
    "An mbarrier is used behind its init and a barrier; by other blocks behind fence.mbarrier_init and a barrier of the cluster.",
    argument="{where}",
    found="at {at} {who} uses the mbarrier at {what}, which {before_who} initialises at {before_where}[[; this was met {met}]]",
    limit="nothing makes the init visible to this thread",
    fix="Put bar.sync (in a cluster fence.mbarrier_init and barrier.cluster) behind {before_where}.",
    source="PTX ISA, mbarrier.init, fence.mbarrier_init",
    passing=_example(f"{_INIT} mbarrier.test_wait.parity.shared.b64 %p2, [m], 1;"),
    failing=_example("@%p1 mbarrier.init.shared.b64 [m], 1; mbarrier.test_wait.parity.shared.b64 %p2, [m], 1;"),
)
_TWO_PHASES = (
    "@%p1 mbarrier.init.shared.b64 [m], 32; bar.sync 0; setp.lt.u32 %p3, %r1, 32;"
    " W: mbarrier.try_wait.parity.shared.b64 %p2, [m], 1; @!%p2 bra W; {barrier} @%p3 mbarrier.arrive.shared.b64 _, [m];"
)
PHASE_OVERTAKEN = rule(
    "run-phase-parity",
    "Whoever waits at an mbarrier waits for the phase that runs, or for the one before it: a wait asks only for a parity.",
    argument="{where}",
    found=(
        "at {at} {who} waits for a phase of the mbarrier at {what}, and the next phase, which {before_who} ends at {before_where},"
        " may be over before this wait[[; this was met {met}]]"
    ),
    limit=(
        "no arrival or copy of the next phase comes after this wait; a wait asks for a parity, so it then blocks until yet"
        " another phase ends, or for ever"
    ),
    fix=(
        "Let this thread arrive, or meet an arriving thread at a barrier, behind the wait and before the next phase ends;"
        " if it should wait for that next phase, use the other parity."
    ),
    source="PTX ISA, mbarrier.test_wait, mbarrier.try_wait: they wait for the current or the immediately preceding phase",
    passing=_example(_TWO_PHASES.format(barrier="bar.sync 0;")),
    failing=_example(_TWO_PHASES.format(barrier="")),
)
PHASE_SKIPPED = PHASE_OVERTAKEN.worded(
    found=(
        "at {at} {who} waits for a phase of the mbarrier at {what}, and does not know that the phase before has ended"
        "[[; this was met {met}]]"
    ),
    limit="a wait asks for a parity: where the phase before still runs, this wait passes at once, two phases too early",
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
    "A map that the kernel edits is used behind fence.proxy.tensormap: .release by the editor, .acquire by the user.",
    argument="{where}",
    found="at {at} {who} copies through the map at {what}, which {before_who} edits at {before_where}[[; this was met {met}]]",
    limit="no fence.proxy.tensormap::generic.release behind the edit and .acquire of this map before the copy",
    fix="Put fence.proxy.tensormap::generic.release.gpu behind {before_where}, and .acquire.gpu [map], 128 before {where}.",
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
    "A block ends when nothing reads or writes its shared memory any more.",
    argument="{where}",
    found="block {block} ends while {subject}[[; this was met {met}]]",
    limit="nobody has waited for it",
    fix="{remedy}",
    source="PTX ISA, cp.async.bulk; CUDA C++ Programming Guide, Distributed shared memory",
    passing=_example(f"{_INIT} {_LOAD} {_WAIT}"),
    failing=_example(f"{_INIT} {_LOAD}"),
)
COPIES_LEFT = rule(
    "run-copies-left",
    "Threads wait for their cp.async before they end.",
    argument="{where}",
    found="block {block} ends while {subject}[[; this was met {met}]]",
    limit="nobody has waited for it",
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
    "A word that others change is loaded behind the write that it shall see, or until that write is seen.",
    argument="{where}",
    found=_FOUND,
    limit="nothing on this path orders the two, and the thread does not load it again: here it saw the value before that write",
    fix=(
        "Load it in a loop until it has come; or load a flag so first, with fence.acq_rel (membar, __threadfence) behind that load,"
        " and before the store of the flag."
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
    found="at {at} {who} {does} {what}, which nobody has written[[; this was met {met}]]",
    limit="shared memory holds anything when a block begins",
    fix="Write it first, or do not use what is read.",
    source="CUDA C++ Programming Guide, shared memory",
    severity="warning",
    passing=_example("st.shared.u32 [%r2], %r1; ld.shared.u32 %r4, [%r2];"),
    failing=_example("ld.shared.u32 %r4, [%r2];"),
)
UNWRITTEN_OPERAND = rule(
    "run-unwritten-operand",
    "A tensor core multiplies an operand of which something was written.",
    argument="{where}",
    found="at {at} {who} {does} {what}, and nobody has written a byte of that operand[[; this was met {met}]]",
    limit="shared memory holds anything when a block begins, so the whole product is arbitrary",
    fix="Look at the descriptor's start address (another slot, or an offset too much), or write the operand first.",
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
    "Between cp.async and a tensor core that reads its bytes stands fence.proxy.async.",
    argument="{where}",
    found=_FOUND,
    limit="the documents ask for fence.proxy.async; Triton's and CUTLASS's kernels have none, and work",
    fix="Put fence.proxy.async behind the wait for the copies, before the barrier, to be sure.",
    source="PTX ISA, Async proxy",
    severity="note",
    passing=_example(_CP_PRODUCT.format(fence="fence.proxy.async;"), 128),
    failing=_example(_CP_PRODUCT.format(fence=""), 128),
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
    **TENSOR_RULES,
}

_VERB: dict[How, str] = {
    "read": "reads",
    "write": "writes",
    "atomic": "changes",
    "cp.async": "copies by cp.async to",
    "copy": "copies to",
    "bulk store": "stores from",
    "wgmma": "multiplies from",
    "init": "initialises",
    "arrival": "uses",
    "wait": "waits for",
    **TENSOR_VERB,
}
_UNIT_NAMED: dict[How, str] = {
    "copy": "a bulk or tensor copy",
    "wgmma": "a wgmma",
    "bulk store": "a bulk or tensor store",
    **TENSOR_UNITS,
}
_UNIT_VERB: dict[How, str] = {
    "copy": "brings",
    "wgmma": "reads",
    "bulk store": "reads",
    "cp.async": "copies by cp.async",
    **TENSOR_UNIT_VERB,
}
_LEFT: dict[How, str] = {
    "copy": "the copy at {where} may still write its shared memory",
    "bulk store": "the store at {where} may still read its shared memory",
    "wgmma": "the product at {where} may still read its shared memory",
    "cp.async": "the copy at {where} may still write its shared memory",
    "read": "another block may still read its shared memory at {where}",
    "write": "another block may still write its shared memory at {where}",
    "atomic": "another block may still change its shared memory at {where}",
    "arrival": "another block may still use an mbarrier of it at {where}",
    **TENSOR_LEFT,
}
_END_REMEDY: dict[How, str] = {
    "copy": "Wait for the mbarrier of the copy before the block ends, or do not issue it.",
    "bulk store": "Use cp.async.bulk.commit_group and cp.async.bulk.wait_group.read before the block ends.",
    "wgmma": "Use wgmma.commit_group and wgmma.wait_group 0 before the block ends.",
    "cp.async": "Use cp.async.wait_all before the block ends.",
    **TENSOR_END_REMEDY,
}
_CLUSTER_REMEDY = "Put barrier.cluster.arrive and barrier.cluster.wait before the end of the block."
_TRIED = "Put {insertions:and}: tried, and this finding is gone[[, and {others_gone:other} with it]]."
_IN_CUDA: dict[str | int, str] = {
    "bar.sync 0;": "__syncthreads()",
    "bar.warp.sync 0xffffffff;": "__syncwarp()",
    "barrier.cluster.arrive; barrier.cluster.wait;": "cluster.sync()",
    "fence.acq_rel.gpu;": "__threadfence()",
    "fence.acq_rel.cta;": "__threadfence_block()",
}


def byte_findings(launch: Launch, schedules: Sequence[Schedule]) -> Iterator[Violation]:
    """Mbarriers to which other bytes came than were expected, those of several blocks once.

    Of a run that ended, phases that ended while a copy was under way; of clusters that hang, also phases that cannot end.
    """
    if launch.order is None:
        return
    spilled = [*launch.order.spilled]
    stuck: list[BarrierBytes] = []
    for schedule in schedules:
        cluster = schedule.cluster
        if cluster.order is None:
            continue
        under_way = {work.barrier for work in cluster.pending.works}
        for address, barrier in cluster.order.mbarriers.at.items():
            block = block_of(cluster, address >> SHARED_RANK_SHIFT)
            offset = address & SHARED_OFFSET_MASK
            if barrier.spilled is not None:
                spilled.append(BarrierBytes(offset, block, barrier.spilled))
            elif barrier.expected_bytes != barrier.came_bytes and address not in under_way:
                held = PhaseBytes(barrier.expected_bytes, barrier.came_bytes, frozenset(barrier.byte_pcs))
                stuck.append(BarrierBytes(offset, block, held))
    for told, counted in ((SPILLED_BYTES, spilled), (EXPECTED_BYTES.wording, stuck)):
        yield from _told_of_bytes(launch.program, told, counted)


def _told_of_bytes(program: Program, told: Wording, counted: Sequence[BarrierBytes]) -> Iterator[Violation]:
    alike: dict[tuple[int, int, int], list[BarrierBytes]] = {}
    for one in counted:
        alike.setdefault((one.offset, one.bytes.expected, one.bytes.came), []).append(one)
    for (offset, expected, came), (first, *others) in alike.items():
        variable = shared_variable(program, offset)
        where = f"shared address {offset:#x}" + ("" if variable is None else f" ({variable})")
        lines = line_facts(program, *sorted(first.bytes.pcs))
        yield told.violation(where=where, block=first.block, others=len(others), expected=expected, came=came, **lines)


def order_findings(launch: Launch) -> tuple[Violation, ...]:
    """What nothing orders in a run, in the order in which it was met; what two source lines do alike is told once."""
    if launch.order is None:
        return ()
    alike: dict[tuple[object, ...], list[Conflict]] = {}
    for conflict in launch.order.conflicts.found.values():
        if conflict.mistake == "early load" and conflict.now.pc in launch.order.polling_pcs:
            continue
        alike.setdefault(_told_with(launch.program, conflict), []).append(conflict)
    groups = [*alike.values()]
    return tuple(_finding(launch, group, groups) for group in groups)


def _told_with(program: Program, conflict: Conflict) -> tuple[object, ...]:
    """What conflicts share that are told together: the source lines, what is done there, and the remedy.

    A loop over rows that is unrolled four times has four stores, and another one four loads: 16 pairs, and one mistake.
    """
    instructions = [program.instructions[pc] for pc in conflict.pcs if pc is not None]
    sources = [None if one is None or one.source is None else str(one.source) for one in instructions]
    if None in sources:
        return conflict.mistake, *conflict.pcs, conflict.now.how, conflict.space
    before = None if conflict.before is None else conflict.before.how
    insertions = None if conflict.remedy is None else conflict.remedy.insertions
    is_one_store = conflict.before is conflict.now
    is_lost = conflict.mistake == "race" and is_lost_update(program, conflict)
    done = (conflict.mistake, is_one_store, is_lost, before, conflict.now.how, conflict.space)
    return *done, *sources, insertions


class _Told(NamedTuple):
    """One side of a conflict, in words."""

    who: str
    verb: str


def severity_of(conflict: Conflict) -> Severity:
    """How bad a conflict is."""
    return _rule_of(conflict).severity


def _rule_of(conflict: Conflict) -> Rule | Wording:
    if conflict.mistake == "block end" and conflict.now.how == "cp.async":
        return COPIES_LEFT
    if conflict.mistake == "block end" and conflict.now.how == "tcgen05.commit":
        return COMMIT_LEFT
    if conflict.mistake == "race" and conflict.before is conflict.now:
        return TWO_VALUES
    return _RULE_OF_MISTAKE[conflict.mistake]


def _finding(launch: Launch, group: Sequence[Conflict], groups: Sequence[Sequence[Conflict]]) -> Violation:
    """The first of conflicts that are alike, and how often all of them were met."""
    conflict = group[0]
    facts = _facts(launch, conflict) | _met(launch, group)
    told = _rule_of(conflict)
    if told is RACE and is_lost_update(launch.program, conflict):
        told = LOST_UPDATE
    remedy = conflict.remedy
    if remedy is None:
        return told.violation(**facts)
    places = [_inserted(launch, one) for one in remedy.insertions]
    facts["insertions"] = _put(places)
    others = [other for other in groups if other is not group and severity_of(other[0]) == "error"]
    facts["others_gone"] = sum(remedy.gone.issuperset(one.pcs for one in other) for other in others)
    return told.worded(fix=_TRIED).violation(change={"insert_ptx": places}, **facts)


def _met(launch: Launch, group: Sequence[Conflict]) -> dict[str, object]:
    """How often conflicts were met, in numbers and in words, and all their lines."""
    times = sum(one.times for one in group)
    pcs = dict.fromkeys(pc for one in group for pc in one.pcs if pc is not None)
    facts: dict[str, object] = {"times": times, "met": f"{times} times" if times > 1 else None, "conflicts": len(group)}
    if len(group) > 1:
        what = "instructions of this line" if group[0].before is None else "pairs of instructions of these lines"
        facts["met"] = f"{times} times by {len(group)} {what}"
    return facts | line_facts(launch.program, *pcs)


def _inserted(launch: Launch, insertion: Insertion) -> dict[str, str | int]:
    """An insertion as data: the text, and the instruction that it stands before or behind."""
    instruction = launch.program.instructions[insertion.pc]
    assert instruction is not None
    return {
        "text": insertion.text,
        "place": insertion.place,
        "line": instruction.line,
        "offset": insertion.offset,
        "where": instruction_named(launch.program, insertion.pc),
    }


def _put(places: list[dict[str, str | int]]) -> list[str]:
    """Insertions in words; one text at several places is written once."""
    by_text: dict[str | int, list[str]] = {}
    for one in places:
        by_text.setdefault(one["text"], []).append(f"{one['place']} {one['where']}")
    said = []
    for text, spots in by_text.items():
        known_as = _IN_CUDA.get(text)
        name = f"`{text}`" if known_as is None else f"`{text}` ({known_as})"
        said.append(f"{name} {listed(spots)}")
    return said


def _facts(launch: Launch, conflict: Conflict) -> dict[str, Any]:
    now = conflict.now
    before = conflict.before
    where = instruction_named(launch.program, now.pc)
    facts: dict[str, Any] = {
        **conflict.facts,
        "where": where,
        "at": line_named(launch.program, now.pc),
        "block": conflict.block,
    }
    if conflict.mistake == "block end":
        facts["subject"] = _LEFT[now.how].format(where=where)
        facts["remedy"] = _END_REMEDY.get(now.how, _CLUSTER_REMEDY)
        return facts
    facts["who"] = _thread(launch, conflict, now)
    facts["does"] = _VERB[now.how]
    element = _element(launch, conflict)
    facts["what"] = _bytes(launch, conflict, element)
    facts["element"] = None if element is None else element.facts
    facts["address"] = conflict.address
    if before is None or (conflict.mistake == "race" and before is now):
        return facts
    other = _other_side(launch, conflict, before)
    facts["before_who"] = other.who
    facts["did"] = other.verb
    facts["before_where"] = instruction_named(launch.program, before.pc)
    facts["remedy"] = _barrier_between(launch, conflict, before)
    facts["finish"] = FINISH.get(before.how)
    facts["extra"] = " (wgmma: behind wgmma.wait_group)" if before.how == "wgmma" else ""
    return facts


def _thread(launch: Launch, conflict: Conflict, side: Side) -> str:
    if side.lane is None:
        return _UNIT_NAMED[side.how]
    thread = thread_index(launch, side.lane % launch.block_lanes)
    named = f"thread {thread} of block {conflict.block}"
    return f"the warp of {named}" if side.how in BY_WARP else named


def _other_side(launch: Launch, conflict: Conflict, before: Side) -> _Told:
    verb = _UNIT_VERB.get(before.how, _VERB[before.how])
    if "cluster" in conflict.facts:
        return _Told("another block", verb)
    if before.how in _UNIT_NAMED:
        return _Told(_UNIT_NAMED[before.how], verb)
    assert before.lane is not None
    rank, thread = divmod(before.lane, launch.block_lanes)
    named = f"thread {thread_index(launch, thread)}"
    if before.how in BY_WARP:
        named = f"the warp of {named}"
    if conflict.now.lane is not None and conflict.now.lane // launch.block_lanes != rank:
        named += f" of the block with rank {rank} in the cluster"
    return _Told(named, verb)


def _element(launch: Launch, conflict: Conflict) -> Element | None:
    """The element of a tile or an array that two accesses meet at, where a map or an array says which."""
    if conflict.space == "shared":
        return tile_element(launch, conflict)
    address = conflict.address
    region = None if address is None else launch.memory.region_at(address)
    if address is None or region is None or launch.order is None or region.array.dtype.itemsize == 1:
        return None
    return array_element(launch, region, address, launch.order.memory.cell_bytes)


def _bytes(launch: Launch, conflict: Conflict, element: Element | None) -> str | None:
    """The bytes that two accesses meet at."""
    address = conflict.address
    if address is None:
        return None
    if conflict.space == "tensor":
        return tensor_place(address)
    if conflict.space == "global":
        region = launch.memory.region_at(address)
        if region is None:
            return f"global address {address:#x}"
        byte = f"byte {address - region.address}"
        return f"{byte} of {array_named(launch, region)}" if element is None else f"{element.named} ({byte})"
    rank, offset = divmod(address, launch.shared_stride)
    variable = shared_variable(launch.program, offset)
    known_as = [one for one in (variable, None if element is None else element.named) if one is not None]
    told = f"shared address {offset:#x}" + (f" ({': '.join(known_as)})" if known_as else "")
    own_rank = None if conflict.now.lane is None else conflict.now.lane // launch.block_lanes
    return (
        told
        if own_rank in (None, rank)
        else f"{told} of block {block_index((0, 0, 0), launch.cluster, rank)} of the cluster"
    )


def _barrier_between(launch: Launch, conflict: Conflict, before: Side) -> str:
    """The narrowest barrier that both sides can come to."""
    if "cluster" in conflict.facts:
        return "a release by the one block and an acquire by the other (a flag with st.release and ld.acquire)"
    if before.lane is None or conflict.now.lane is None:
        return "a barrier"
    if before.lane // 32 == conflict.now.lane // 32:
        return "bar.warp.sync (__syncwarp)"
    if before.lane // launch.block_lanes == conflict.now.lane // launch.block_lanes:
        return "bar.sync (__syncthreads)"
    return "barrier.cluster.arrive and barrier.cluster.wait"
