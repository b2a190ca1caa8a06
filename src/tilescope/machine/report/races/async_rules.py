"""Rules of asynchronous work: copies, cp.async and wgmma need a wait before their bytes are used, and fences between proxies.

cp.async.bulk … [full]        copy-wait: a thread reads its bytes after a wait for `full`
st.shared, then a bulk store  proxy-fence: fence.proxy.async is between the two
ret                           block-end: nothing is pending that still accesses the shared memory of the block
"""

from __future__ import annotations

from tilescope.errors import Wording
from tilescope.machine.report.races.tmem_report import LEFT_AT_END, NOT_WAITED_FOR, TWO_ACCESSES
from tilescope.rule import ptx_example, rule
from tilescope.sync.detector.race import Mistake
from tilescope.sync.proxies import severity_of_fence

WORDS = "[np.zeros(64, np.uint32)]"  # the argument of examples
_MAP = "[np.frombuffer(ts.TensorMap('u32', (64,), (), (4,)).encode() + bytes(256), 'u1').copy()]"

PROXY_FENCE = rule(
    "run-proxy-fence",
    "A fence.proxy.async separates a write by threads from a copy or a tensor core that accesses the same bytes.",
    argument="{where}",
    found=TWO_ACCESSES,
    limit="a barrier orders the two, but no fence.proxy.async is between them: the write may not be visible to the async proxy",
    fix="Put fence.proxy.async after {before_where}, before the barrier; or after the barrier, in the thread of {where}.",
    source="PTX ISA, Async proxy",
    severity=severity_of_fence("smem", "generic", "tma"),
    passing=f"ts.Kernel({ptx_example('run-proxy-fence.pass.ptx')}).run(1, 64, {WORDS}).findings",
    failing=f"ts.Kernel({ptx_example('run-proxy-fence.fail.ptx')}).run(1, 64, {WORDS}).findings",
)
COPY_WAIT = rule(
    "run-copy-wait",
    "Bytes of a bulk or tensor copy are accessed only after a wait for its mbarrier.",
    argument="{where}",
    found=TWO_ACCESSES,
    limit="the thread has not seen the end of the mbarrier phase that counts these bytes",
    fix="Wait for that phase with mbarrier.try_wait in a loop before {where}, or in another thread, and synchronize with it at a barrier.",
    source="PTX ISA, cp.async.bulk",
    passing=f"ts.Kernel({ptx_example('run-copy-wait.pass.ptx')}).run(1, 64, {WORDS}).findings",
    failing=f"ts.Kernel({ptx_example('run-copy-wait.fail.ptx')}).run(1, 64, {WORDS}).findings",
)
RELAXED_COPY_WAIT = COPY_WAIT.worded(
    limit="the thread has seen the end of that phase by a relaxed wait, which makes nothing visible",
    fix="Wait with .acquire, which is the default, or put fence.acq_rel after the wait, before {where}.",
)
REFILL = rule(
    "run-refill",
    "A slot is filled again only after all its readers have finished.",
    argument="{where}",
    found=TWO_ACCESSES,
    limit="this read does not happen before the refill of the slot",
    fix="Let the readers arrive at an mbarrier (or at a barrier) after the read{extra}, and wait for it before {where}.",
    source="PTX ISA, cp.async.bulk, wgmma.wait_group",
    passing=f"ts.Kernel({ptx_example('run-refill.pass.ptx')}).run(1, 64, {WORDS}).findings",
    failing=f"ts.Kernel({ptx_example('run-refill.fail.ptx')}).run(1, 64, {WORDS}).findings",
)
ACCUMULATORS = rule(
    "run-accumulators",
    "Registers of a wgmma are accessed only after wgmma.wait_group, and a wgmma.fence separates earlier writes to "
    "them from the wgmma.",
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
    "The source of a bulk or tensor store is not written before cp.async.bulk.wait_group.read.",
    argument="{where}",
    found=TWO_ACCESSES,
    limit="the thread that stored has not waited, or nothing orders its wait before this write",
    fix="Let the thread of {before_where} use cp.async.bulk.commit_group and cp.async.bulk.wait_group.read, then a barrier.",
    source="PTX ISA, cp.async.bulk.wait_group",
    passing=f"ts.Kernel({ptx_example('run-store-source.pass.ptx')}).run(1, 64, {WORDS}).findings",
    failing=f"ts.Kernel({ptx_example('run-store-source.fail.ptx')}).run(1, 64, {WORDS}).findings",
)
CP_ASYNC = rule(
    "run-cp-async",
    "Bytes of cp.async are accessed only after the thread that copied them has waited, and by other threads only "
    "after a barrier too.",
    argument="{where}",
    found=TWO_ACCESSES,
    limit="the copy may still be pending: its thread has not waited, or nothing orders its wait before this access",
    fix="Use cp.async.wait_group in every thread that copied, then bar.sync, before {where}.",
    source="PTX ISA, cp.async.wait_group",
    passing=f"ts.Kernel({ptx_example('run-cp-async.pass.ptx')}).run(1, 64, {WORDS}).findings",
    failing=f"ts.Kernel({ptx_example('run-cp-async.fail.ptx')}).run(1, 64, {WORDS}).findings",
)
CP_ASYNC_FENCE = rule(
    "run-cp-async-fence",
    "A fence.proxy.async separates cp.async from a tensor core that reads its bytes.",
    argument="{where}",
    found=TWO_ACCESSES,
    limit="the documentation requires fence.proxy.async; Triton's and CUTLASS's kernels omit it, and work",
    fix="To be sure, put fence.proxy.async after the wait for the copies, before the barrier.",
    source="PTX ISA, Async proxy",
    severity=severity_of_fence("smem", "cp.async", "wgmma"),
    passing=f"ts.Kernel({ptx_example('run-cp-async-fence.pass.ptx')}).run(1, 128, {WORDS}).findings",
    failing=f"ts.Kernel({ptx_example('run-cp-async-fence.fail.ptx')}).run(1, 128, {WORDS}).findings",
)
MAP_FENCE = rule(
    "run-map-fence",
    "After the kernel edits a map, fence.proxy.tensormap precedes its use: .release by the thread that edits, "
    ".acquire by the thread that copies.",
    argument="{where}",
    found="at {at} {who} copies through the map at {what}, which {before_who} edits at {before_where}[[; seen {met}]]",
    limit="fence.proxy.tensormap::generic.release after the edit, or .acquire of this map before the copy, is missing",
    fix="Put fence.proxy.tensormap::generic.release.gpu after {before_where}, and .acquire.gpu [map], 128 before {where}.",
    source="PTX ISA, fence.proxy.tensormap",
    severity=severity_of_fence("gmem", "map", "tma"),
    passing=f"ts.Kernel({ptx_example('run-map-fence.pass.ptx')}).run(1, 64, {_MAP}).findings",
    failing=f"ts.Kernel({ptx_example('run-map-fence.fail.ptx')}).run(1, 64, {_MAP}).findings",
)
BLOCK_END = rule(
    "run-block-end",
    "A block exits only after all accesses to its shared memory have completed.",
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
        "no thread has waited for it; the documentation requires a wait, but an H200 keeps the shared memory of a block until its bulk"
        " copies are done"
    ),
)
COPIES_LEFT = rule(
    "run-copies-left",
    "Threads wait for their cp.async before they exit.",
    argument="{where}",
    found=LEFT_AT_END,
    limit=NOT_WAITED_FOR,
    fix="{remedy}",
    source="PTX ISA, cp.async.wait_group",
    severity="warning",
    passing=f"ts.Kernel({ptx_example('run-copies-left.pass.ptx')}).run(1, 64, {WORDS}).findings",
    failing=f"ts.Kernel({ptx_example('run-copies-left.fail.ptx')}).run(1, 64, {WORDS}).findings",
)

ASYNC_WORDINGS: dict[Mistake, Wording] = {
    "proxy fence": PROXY_FENCE.wording,
    "copy wait": COPY_WAIT.wording,
    "refill": REFILL.wording,
    "accumulators": ACCUMULATORS.wording,
    "accumulator fence": ACCUMULATOR_FENCE,
    "store source": STORE_SOURCE.wording,
    "cp.async": CP_ASYNC.wording,
    "map fence": MAP_FENCE.wording,
    "block end": BLOCK_END.wording,
    "copy left": OWN_COPY_LEFT,
    "cp.async fence": CP_ASYNC_FENCE.wording,
}
