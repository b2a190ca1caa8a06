"""The rules of tensor memory, and the phrases of findings about it.

mm.cu:61, PTX line 310 (tcgen05.ld …): the warp of thread 32 of block (0, 0, 0) loads lanes 32 to 47, column 8 of tensor memory, which
a tcgen05.mma uses at mm.cu:48, PTX line 288 (tcgen05.mma …); no thread has waited for it
"""

from __future__ import annotations

from tilescope.errors import Wording
from tilescope.mma.tcgen05_kind import BLACKWELL
from tilescope.rule import ptx_example, rule
from tilescope.sync.detector.race import How, Mistake
from tilescope.sync.proxies import severity_of_fence

# Sentences that the rules of shared and of tensor memory have in common.
TWO_ACCESSES = "at {at} {who} {does} {what}[[, which {before_who} {did} at {before_where}]][[; seen {met}]]"
LEFT_AT_END = "block {block} ends while {subject}[[; seen {met}]]"
NOT_WAITED_FOR = "no thread has waited for it"


TENSOR_ORDER = rule(
    "run-tmem-order",
    (
        "Tensor memory is accessed again only after the previous access has completed: after wait::ld or wait::st for "
        "loads and stores, after a commit and its mbarrier for mma, cp and shift."
    ),
    argument="{where}",
    found=TWO_ACCESSES,
    limit="no thread has waited for it, or nothing orders the wait before this access",
    fix="{finish}. If another thread accesses it next, put a barrier in between.",
    source="PTX ISA, Memory Consistency Model for 5th generation of TensorCore operations",
    architectures=BLACKWELL,
    passing=f"ts.Kernel({ptx_example('run-tmem-order.pass.ptx')}).run(1, 32).findings",
    failing=f"ts.Kernel({ptx_example('run-tmem-order.fail.ptx')}).run(1, 32).findings",
)
TENSOR_FENCE = rule(
    "run-tmem-fence",
    "tcgen05.fence::before_thread_sync and after_thread_sync surround the barrier that orders tcgen05 instructions of "
    "two threads.",
    argument="{where}",
    found=TWO_ACCESSES,
    limit=(
        "it is finished and a barrier orders the two, but the fences that the documentation requires are missing; "
        "Triton's kernels have none, and work"
    ),
    fix=(
        "To be sure, put tcgen05.fence::after_thread_sync between the wait or barrier and {where}, "
        "and tcgen05.fence::before_thread_sync between {before_where} and the barrier (a commit needs none)."
    ),
    source="PTX ISA, Memory Consistency Model for 5th generation of TensorCore operations: canonical synchronization patterns",
    architectures=BLACKWELL,
    severity=severity_of_fence("tmem", "tcgen05", "generic"),
    passing=f"ts.Kernel({ptx_example('run-tmem-fence.pass.ptx')}).run(1, 32).findings",
    failing=f"ts.Kernel({ptx_example('run-tmem-fence.fail.ptx')}).run(1, 32).findings",
)
TENSOR_COLUMNS = rule(
    "run-tmem-columns",
    "tcgen05 instructions access columns that the block has allocated.",
    argument="{where}",
    found="at {at} {who} {does} {columns_named} of tensor memory[[; seen {met}]]",
    limit="the block has not allocated that part of tensor memory: it may be another block's",
    fix="Allocate it with tcgen05.alloc, or check how the address is computed.",
    source="PTX ISA, tcgen05.alloc; the run-time checks that ptxas emits with -g-tensor-memory-access-check",
    architectures=BLACKWELL,
    passing=f"ts.Kernel({ptx_example('run-tmem-columns.pass.ptx')}).run(1, 32).findings",
    failing=f"ts.Kernel({ptx_example('run-tmem-columns.fail.ptx')}).run(1, 32).findings",
)
TENSOR_LEAK = rule(
    "run-tmem-allocation",
    "A block frees exactly once what it allocated, and allocates nothing after relinquish_alloc_permit.",
    argument="{where}",
    found="block {block} ends with {columns_named} of tensor memory allocated[[; seen {met}]]",
    limit="a kernel frees all of its tensor memory before it ends",
    fix="Put tcgen05.dealloc with {columns:column} before the end, in the warp that allocated them.",
    source="PTX ISA, tcgen05.alloc, tcgen05.dealloc, tcgen05.relinquish_alloc_permit",
    architectures=BLACKWELL,
    passing=f"ts.Kernel({ptx_example('run-tmem-allocation.pass.ptx')}).run(1, 32).findings",
    failing=f"ts.Kernel({ptx_example('run-tmem-allocation.fail.ptx')}).run(1, 32).findings",
)
TENSOR_DEALLOC = TENSOR_LEAK.worded(
    found="at {at} {who} frees {columns:column} from column {first} on[[; seen {met}]]",
    limit="the block has no such allocation: tcgen05.dealloc frees exactly what one tcgen05.alloc allocated",
    fix="Free the address that tcgen05.alloc wrote, with the same number of columns, once.",
)
TENSOR_RELINQUISHED = TENSOR_LEAK.worded(
    found="at {at} {who} allocates {columns:column} after relinquish_alloc_permit[[; seen {met}]]",
    limit="the block has given up its right to allocate",
    fix="Allocate before tcgen05.relinquish_alloc_permit.",
)
TENSOR_GROWTH = rule(
    "run-tmem-growth",
    "Successive allocations of a block do not grow.",
    argument="{where}",
    found="at {at} {who} allocates {columns:column} after {before_columns}[[; seen {met}]]",
    limit="the number of columns should not increase between two allocations of a block",
    fix="Make the larger allocation first.",
    source="PTX ISA, tcgen05.alloc",
    architectures=BLACKWELL,
    severity="warning",
    passing=f"ts.Kernel({ptx_example('run-tmem-growth.pass.ptx')}).run(1, 32).findings",
    failing=f"ts.Kernel({ptx_example('run-tmem-growth.fail.ptx')}).run(1, 32).findings",
)
TENSOR_PEER = rule(
    "run-tmem-peer",
    "Both blocks of a pair have started before tcgen05.alloc.cta_group::2.",
    argument="{where}",
    found="at {at} {who} allocates {columns:column} with cta_group::2[[; seen {met}]]",
    limit="nothing orders the start of the other block of the pair before it: that block may not run yet, and the allocation needs both",
    fix="Put barrier.cluster.arrive and barrier.cluster.wait before {where}.",
    source="PTX ISA, tcgen05.alloc; CUTLASS and Triton, whose kernels failed without it on a B200",
    architectures=BLACKWELL,
    severity="warning",
    passing=f"ts.Kernel({ptx_example('run-tmem-peer.pass.ptx')}).run(2, 32, cluster=2).findings",
    failing=f"ts.Kernel({ptx_example('run-tmem-peer.fail.ptx')}).run(2, 32, cluster=2).findings",
)
TENSOR_QUARTER = rule(
    "run-tmem-quarter",
    "A warp loads and stores the 32 lanes of the quarter given by its number modulo 4, and its address names these "
    "lanes.",
    argument="{where}",
    found="at {at} {who}, warp {warp}, {does} tensor memory at lane {lane}[[; seen {met}]]",
    limit="it accesses the lanes of its quarter, whatever lane the address has",
    fix="Set the lane of the address to {own_lane}: PTX requires it, and debug builds trap.",
    source="PTX ISA, tcgen05.ld: Access restrictions; DeepGEMM passes lane 0 in every warp, CuTe asserts",
    architectures=BLACKWELL,
    severity="warning",
    passing=f"ts.Kernel({ptx_example('run-tmem-quarter.pass.ptx')}).run(1, 32).findings",
    failing=f"ts.Kernel({ptx_example('run-tmem-quarter.fail.ptx')}).run(1, 32).findings",
)
TENSOR_UNWRITTEN = rule(
    "run-tmem-unwritten",
    "Tensor memory is written before it is read.",
    argument="{where}",
    found="at {at} {who} {does} {what}, which was not written[[; seen {met}]]",
    limit="tensor memory is not initialised when it is allocated",
    fix="Write it first (an mma with enable-input-d false does), or do not use the value.",
    source="PTX ISA, tcgen05.alloc",
    architectures=BLACKWELL,
    severity="warning",
    passing=f"ts.Kernel({ptx_example('run-tmem-unwritten.pass.ptx')}).run(1, 32).findings",
    failing=f"ts.Kernel({ptx_example('run-tmem-unwritten.fail.ptx')}).run(1, 32).findings",
)
COMMIT_LEFT = rule(
    "run-commit-left",
    "The arrival of a tcgen05.commit happens before the block of its mbarrier exits.",
    argument="{where}",
    found=LEFT_AT_END,
    limit=NOT_WAITED_FOR,
    fix="{remedy}",
    source="PTX ISA, tcgen05.commit",
    architectures=BLACKWELL,
    severity="warning",
    passing=f"ts.Kernel({ptx_example('run-commit-left.pass.ptx')}).run(1, 32).findings",
    failing=f"ts.Kernel({ptx_example('run-commit-left.fail.ptx')}).run(1, 32).findings",
)

TENSOR_WORDINGS: dict[Mistake, Wording] = {
    "tensor memory": TENSOR_ORDER.wording,
    "tensor fence": TENSOR_FENCE.wording,
    "tensor columns": TENSOR_COLUMNS.wording,
    "tensor quarter": TENSOR_QUARTER.wording,
    "tensor unwritten": TENSOR_UNWRITTEN.wording,
    "tensor relinquished": TENSOR_RELINQUISHED,
    "tensor growth": TENSOR_GROWTH.wording,
    "tensor peer": TENSOR_PEER.wording,
    "tensor dealloc": TENSOR_DEALLOC,
    "tensor leak": TENSOR_LEAK.wording,
}
TENSOR_VERB: dict[How, str] = {
    "tcgen05.alloc": "allocates",
    "tcgen05.dealloc": "frees",
    "tcgen05.ld": "loads",
    "tcgen05.st": "stores to",
    "tcgen05.mma": "multiplies with",
    "tcgen05.cp": "copies with",
    "tcgen05.shift": "shifts",
    "tcgen05.commit": "uses",
}
TENSOR_UNITS: dict[How, str] = {
    "tcgen05.alloc": "a tcgen05.alloc",
    "tcgen05.mma": "a tcgen05.mma",
    "tcgen05.cp": "a tcgen05.cp",
    "tcgen05.shift": "a tcgen05.shift",
    "tcgen05.commit": "a tcgen05.commit",
}
TENSOR_UNIT_VERB: dict[How, str] = {
    "tcgen05.alloc": "writes",
    "tcgen05.mma": "uses",
    "tcgen05.cp": "uses",
    "tcgen05.shift": "shifts",
}
BY_WARP: tuple[How, ...] = ("tcgen05.ld", "tcgen05.st", "tcgen05.alloc", "tcgen05.dealloc")
TENSOR_LEFT: dict[How, str] = {
    "tcgen05.mma": "the product at {where} may still read its shared memory",
    "tcgen05.cp": "the copy at {where} may still read its shared memory",
    "tcgen05.shift": "the shift at {where} may still be pending",
    "tcgen05.commit": "the arrival of the commit at {where} may still be pending at one of its mbarriers",
}
_COMMIT_REMEDY = "Use tcgen05.commit and wait for its mbarrier before the block ends."
TENSOR_END_REMEDY: dict[How, str] = {
    "tcgen05.mma": _COMMIT_REMEDY,
    "tcgen05.cp": _COMMIT_REMEDY,
    "tcgen05.shift": _COMMIT_REMEDY,
    "tcgen05.commit": "Wait for the mbarrier of the commit before the block ends.",
}
_COMMIT_AND_WAIT = "Use tcgen05.commit in the thread that issues it, and wait for the mbarrier of the commit"
FINISH: dict[How, str] = {
    "tcgen05.ld": "Use tcgen05.wait::ld in the warp that loads",
    "tcgen05.st": "Use tcgen05.wait::st in the warp that stores",
    "tcgen05.mma": _COMMIT_AND_WAIT,
    "tcgen05.cp": _COMMIT_AND_WAIT,
    "tcgen05.shift": _COMMIT_AND_WAIT,
}


def name_columns(first: int, last: int) -> str:
    """Name columns of tensor memory.

    >>> name_columns(8, 8), name_columns(0, 31)
    ('column 8', 'columns 0 to 31')
    """
    return f"column {first}" if first == last else f"columns {first} to {last}"


def name_tensor_cell(address: int) -> str:
    """Name the cell of a conflict: 16 lanes of a column.

    >>> name_tensor_cell(0x00200008)
    'lanes 32 to 47, column 8 of tensor memory'
    """
    lane = address >> 16 & 0xFF
    return f"lanes {lane} to {lane + 15}, column {address & 0xFFFF} of tensor memory"
