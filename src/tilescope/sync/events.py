"""What a kernel does to memory and to its synchronization, as typed events.

    instructions ──emit──▶ bus ──▶ detector    vector clocks: which accesses race, which fences are missing
                                ├▶ costs       wavefronts and sectors
                                ├▶ tiles       does a tile fit the swizzle that reads it?
                                └▶ recorder    the events of one cluster, for the search over all orders

An event holds for all lanes that execute an instruction together. `pc` is the instruction. Shared addresses have the rank of
their block in the upper bits; `places` are offsets in one array with the shared memory of all blocks of the cluster.

Asynchronous work has two events or more: one when it is issued, and one when it completes, which names the first. So
observers can keep what they know of pending work by its first event.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from tilescope.sync.access_semantics import AccessSemantics, MbarrierSemantics
from tilescope.sync.address import Addresses
from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.footprint import Footprint, Rows

Values: TypeAlias = npt.NDArray[np.generic]
Flags: TypeAlias = npt.NDArray[np.bool_]
MemorySpace = Literal["shared", "global"]
AccessCost: TypeAlias = Any  # how the load/store unit serves an instruction: a row of the machine's table
CopyUnit = Literal["cp.async", "bulk", "wgmma"]  # whose groups a thread commits and waits for
UsedBy = Literal["store", "address", "branch"]
TmemPlaces: TypeAlias = npt.NDArray[np.int64]  # of tensor memory: lane * 512 + column


@dataclass(slots=True, eq=False)
class Load:
    """Lanes load `size_bytes` each. `access` is None where asynchronous work reads, which was judged when it was issued."""

    pc: int
    lanes: LaneNumbers
    space: MemorySpace
    addresses: Addresses
    places: Addresses  # in shared memory; in global memory the addresses
    size_bytes: int
    access: AccessSemantics | None
    cost: AccessCost | None


@dataclass(slots=True, eq=False)
class LocalStore:
    """Lanes have stored to their local memory; `places` are offsets in the local memory of the cluster."""

    pc: int
    lanes: LaneNumbers
    places: Addresses
    size_bytes: int


@dataclass(slots=True, eq=False)
class Store:
    """Lanes have stored `values`: what memory held before and, if lanes share an address, after.

    `access` is None where asynchronous work wrote, which was judged when it was issued.
    """

    pc: int
    lanes: LaneNumbers
    space: MemorySpace
    addresses: Addresses
    places: Addresses
    size_bytes: int
    access: AccessSemantics | None
    cost: AccessCost | None
    held: Values
    values: Values
    stored: Values | None  # None: as `values`, for all lanes

    def is_unchanged(self) -> Flags:
        """For each lane whether memory held its value already."""
        return _equal_rows(self.held, self.values)

    def overwritten_lane(self) -> int:
        """The index of a lane whose value another lane of this store overwrote with a different one; `stored` says that there is one."""
        assert self.stored is not None
        return int(np.argmin(_equal_rows(self.stored, self.values)))


@dataclass(slots=True, eq=False)
class Atomic:
    """Lanes read and change `size_bytes` each; the words that change are listed one by one."""

    pc: int
    lanes: LaneNumbers
    space: MemorySpace
    addresses: Addresses
    places: Addresses
    size_bytes: int
    access: AccessSemantics | None
    cost: AccessCost | None
    word_lanes: LaneNumbers  # of the elements of a vector, each a separate atomic
    word_addresses: Addresses
    word_places: Addresses
    word_bytes: int
    written_lanes: LaneNumbers
    written_places: Addresses
    written_bytes: int
    held: Values  # before, by written word


@dataclass(slots=True, eq=False)
class CpAsyncIssued:
    """cp.async: each lane copies `size_bytes` from global to shared memory."""

    pc: int
    lanes: LaneNumbers
    addresses: Addresses
    places: Addresses
    size_bytes: int
    cost: AccessCost
    source_lanes: LaneNumbers  # those that read global memory
    sources: Addresses
    is_whole: Flags  # by source lane: whether it reads all its bytes; the rest are zeros


@dataclass(slots=True, eq=False)
class CopyRequested:
    """One lane executes a bulk or tensor copy, for any number of receiving blocks."""

    pc: int
    lane: int
    direction: Literal["load", "store", "reduce"]
    map_number: int | None  # None: a bulk copy
    rows: int  # that are inside the tensor; a bulk copy is one
    row_bytes: int


@dataclass(slots=True, eq=False)
class MapRead:
    """A tensor copy reads its 128-byte tensor map."""

    pc: int
    lane: int
    address: int  # generic


@dataclass(slots=True, eq=False, weakref_slot=True)
class CopyIssued:
    """A bulk or tensor copy, of a multicast the part that one block receives. It is pending until CopyCompleted.

    `barrier` is the mbarrier that counts its bytes; without one the copy belongs to the bulk group `group` of its lane.
    """

    pc: int
    lane: int
    record: Any  # of the copy, as the run keeps it
    shared: Footprint | None  # None: no bytes
    memory: Rows | None  # of global memory; None: the other end is shared memory
    is_reduction: bool
    barrier: int | None
    group: int
    map_address: int | None = None
    source: Footprint | None = None  # in shared memory, of a copy to another block
    tensor_copy: Any | None = None


@dataclass(slots=True, eq=False)
class CopyRead:
    """A store has read its source in shared memory."""

    pc: int
    issue: CopyIssued


@dataclass(slots=True, eq=False)
class CopyCompleted:
    """The bytes of a load are written; its mbarrier counts them next."""

    pc: int
    issue: CopyIssued | AsyncStoreIssued
    size_bytes: int


@dataclass(slots=True, eq=False, weakref_slot=True)
class AsyncStoreIssued:
    """st.async, red.async, and answers of cluster launch control: values that arrive before an mbarrier's phase completes."""

    pc: int
    lanes: LaneNumbers
    places: Addresses
    size_bytes: int
    barrier: int
    is_by_threads: bool  # False: a unit of the chip writes
    reason: str  # what no pipeline can describe


@dataclass(slots=True, eq=False)
class MbarrierInit:
    """mbarrier.init."""

    pc: int
    lane: int
    address: int
    arrivals: int


@dataclass(slots=True, eq=False)
class MbarrierInval:
    """mbarrier.inval."""

    pc: int
    lane: int
    address: int


@dataclass(slots=True, eq=False)
class MbarrierArrive:
    """Arrivals of lanes of one warp at one mbarrier, and the bytes that they expect."""

    pc: int
    lanes: LaneNumbers
    address: int
    arrivals: int
    expected_bytes: int
    is_drop: bool
    semantics: MbarrierSemantics


@dataclass(slots=True, eq=False)
class MbarrierExpect:
    """mbarrier.expect_tx, or complete_tx by a thread, without an arrival."""

    pc: int
    lanes: LaneNumbers
    address: int
    size_bytes: int
    is_completion: bool


@dataclass(slots=True, eq=False)
class MbarrierPhaseCompleted:
    """All arrivals and bytes of a phase have come."""

    pc: int
    lane: int
    address: int


@dataclass(slots=True, eq=False)
class MbarrierTest:
    """Lanes test whether the phase of a parity has completed. A question: `passes` is filled in by the answer."""

    pc: int
    lanes: LaneNumbers
    address: int
    parity: int
    phase: int  # the last one that completed; -1: none
    has_completed: bool
    semantics: MbarrierSemantics
    passes: Flags


@dataclass(slots=True, eq=False, weakref_slot=True)
class CpAsyncArriveIssued:
    """cp.async.mbarrier.arrive of lanes of one warp: an arrival when all their copies have completed."""

    pc: int
    lanes: LaneNumbers
    address: int
    is_counted: bool  # .noinc


@dataclass(slots=True, eq=False)
class CpAsyncArrived:
    """The copies of some lanes have completed, and their arrival is counted next."""

    pc: int
    issue: CpAsyncArriveIssued
    lanes: LaneNumbers


@dataclass(slots=True, eq=False)
class GroupCommit:
    """commit_group: the open group of each lane, by its number."""

    pc: int
    lanes: LaneNumbers
    unit: CopyUnit
    groups: LaneNumbers


@dataclass(slots=True, eq=False)
class GroupWait:
    """wait_group: all but the `newest` groups of each lane have completed; None: everything, committed or not."""

    pc: int
    lanes: LaneNumbers
    unit: CopyUnit
    newest: int | None
    only_read: bool
    completed: LaneNumbers  # groups of each lane


@dataclass(slots=True, eq=False)
class MemoryFence:
    """fence.acq_rel, fence.sc, membar."""

    pc: int
    lanes: LaneNumbers
    scope: int


@dataclass(slots=True, eq=False)
class ProxyFence:
    """fence.proxy.async, for shared or global memory, or both."""

    pc: int
    lanes: LaneNumbers
    is_for_shared: bool
    is_for_global: bool


@dataclass(slots=True, eq=False)
class MbarrierInitFence:
    """fence.mbarrier_init."""

    pc: int
    lanes: LaneNumbers


@dataclass(slots=True, eq=False)
class TensormapRelease:
    """fence.proxy.tensormap::generic.release, or tensormap.cp_fenceproxy, which copies maps from shared memory first."""

    pc: int
    lanes: LaneNumbers
    copied_from: Addresses | None = None


@dataclass(slots=True, eq=False)
class TensormapAcquire:
    """fence.proxy.tensormap::generic.acquire of maps."""

    pc: int
    lanes: LaneNumbers
    addresses: Addresses


@dataclass(slots=True, eq=False)
class BarrierArrive:
    """bar.sync, bar.red (which wait) or bar.arrive of lanes of one block."""

    pc: int
    lanes: LaneNumbers
    rank: int
    number: int
    threads: int  # that complete it
    waits: bool


@dataclass(slots=True, eq=False)
class WaitingLanes:
    """Lanes that wait at one instruction."""

    pc: int
    lanes: LaneNumbers


@dataclass(slots=True, eq=False)
class BarrierComplete:
    """A barrier of a block is complete: the lanes that waited go on."""

    rank: int
    number: int
    threads: int
    waiting: list[WaitingLanes]
    resumed: LaneNumbers  # all lanes that waited
    is_counted: bool  # whether its instructions name the number of threads


@dataclass(slots=True, eq=False)
class BlocksMet:
    """All threads of some blocks of a batch are at one barrier."""

    pc: int
    blocks: LaneNumbers  # by their places in the batch


@dataclass(slots=True, eq=False)
class ClusterArrive:
    """barrier.cluster.arrive."""

    pc: int
    lanes: LaneNumbers
    phase: int
    is_relaxed: bool


@dataclass(slots=True, eq=False)
class ClusterWait:
    """barrier.cluster.wait is reached."""

    pc: int
    lanes: LaneNumbers


@dataclass(slots=True, eq=False)
class ClusterPass:
    """Lanes pass the cluster's barrier, having arrived in this phase."""

    lanes: LaneNumbers
    phase: int


@dataclass(slots=True, eq=False)
class WarpSync:
    """bar.warp.sync; `pc` is None where the lanes of a warp come from different instructions."""

    pc: int | None
    lanes: LaneNumbers


@dataclass(slots=True, eq=False)
class Converge:
    """Lanes of a warp or warpgroup execute an instruction together (shfl.sync, mma.sync, wgmma): no memory is ordered."""

    pc: int
    lanes: LaneNumbers
    group_lanes: int
    group_of_lane: LaneNumbers
    masks: Values | None  # by lane of the cluster: who takes part

    def groups(self) -> npt.NDArray[np.int64]:
        """A number for each lane that those have in common who execute together."""
        groups = self.group_of_lane[self.lanes]
        if self.masks is None:
            return groups
        return np.asarray(groups << 32 | self.masks[self.lanes].astype(np.uint32))


@dataclass(slots=True, eq=False)
class BranchTaken:
    """Lanes execute a branch, or another instruction with a guard. Fronts of all lanes that go the same way emit nothing."""

    pc: int
    lanes: LaneNumbers
    outcomes: Values  # by lane: the number of the target of brx.idx, otherwise whether the guard holds


@dataclass(slots=True, eq=False)
class PartialGroups:
    """Lanes execute an instruction without some of the lanes that it needs: of their warps, their warpgroups or its mask."""

    pc: int
    lanes: LaneNumbers
    missing: LaneNumbers
    is_live: Flags  # by missing lane: whether it has not exited


@dataclass(slots=True, eq=False)
class UndefinedUse:
    """A lane uses a value that a shuffle left undefined, because the lane that it comes from does not take part."""

    pc: int
    lane: int
    shuffle_pc: int
    used_by: UsedBy


@dataclass(slots=True, eq=False)
class WgmmaIssued:
    """wgmma.mma_async of one warpgroup. Operands are read, and registers used, until its group is waited for."""

    pc: int
    lanes: LaneNumbers
    operands: tuple[WgmmaOperand, ...]
    group: int
    read_registers: frozenset[int]
    used_registers: frozenset[int]


@dataclass(slots=True, eq=False)
class WgmmaOperand:
    """An operand in shared memory: its bytes, and how the instruction reads them."""

    bytes: Footprint
    read: Any
    descriptor: int


@dataclass(slots=True, eq=False)
class WgmmaFence:
    """wgmma.fence."""

    pc: int
    lanes: LaneNumbers


@dataclass(slots=True, eq=False)
class OperandRead:
    """A tensor core reads an operand through a descriptor."""

    pc: int
    shape: Any
    rank: int
    word: int  # the descriptor
    first_element: int  # its shared address, in the block
    bytes: Footprint


@dataclass(slots=True, eq=False)
class RegisterAccess:
    """An instruction reads or writes registers that a wgmma uses, or that their values are moved from or to."""

    pc: int
    lanes: LaneNumbers
    read: frozenset[int]
    written: frozenset[int]
    is_move: bool


@dataclass(slots=True, eq=False)
class LoadedRegisterAccess:
    """An instruction reads or writes registers that a tcgen05.ld loads."""

    pc: int
    lanes: LaneNumbers
    registers: frozenset[int]


@dataclass(slots=True, eq=False)
class TmemAlloc:
    """tcgen05.alloc of a warp: columns, and the shared address that their address is written to."""

    pc: int
    lanes: LaneNumbers
    address: int
    before: Any  # the allocations of the block
    after: Any
    peer: int | None = None  # the rank of the other block of the pair, with cta_group::2


@dataclass(slots=True, eq=False)
class TmemDealloc:
    """tcgen05.dealloc by a warp, of its first lane."""

    pc: int
    lane: int
    rank: int
    first_column: int
    columns: int
    is_allocated: bool


@dataclass(slots=True, eq=False)
class TmemMove:
    """tcgen05.ld or st of a warp."""

    pc: int
    lanes: LaneNumbers
    rank: int
    is_load: bool
    places: TmemPlaces
    word: int  # the address that it names
    registers: frozenset[int]  # that a load writes


@dataclass(slots=True, eq=False)
class TmemWait:
    """tcgen05.wait::ld or wait::st."""

    pc: int
    lanes: LaneNumbers
    is_load: bool


@dataclass(slots=True, eq=False)
class TmemWork:
    """tcgen05.mma, cp or shift of a thread, in one block or a pair: what the tensor core reads and writes."""

    pc: int
    lane: int
    kind: Literal["tcgen05.mma", "tcgen05.cp", "tcgen05.shift"]
    ranks: tuple[int, ...]
    shared: tuple[Addresses, ...]  # offsets in the shared memory of each block
    shared_unit_bytes: tuple[int, ...]  # read at each of them
    read: TmemPlaces
    written: TmemPlaces
    adds_d: bool = False
    shape: tuple[int, int, int] = (0, 0, 0)  # of an accumulator: its address, m and n


@dataclass(slots=True, eq=False)
class TmemFence:
    """tcgen05.fence::before_thread_sync or after_thread_sync."""

    pc: int
    lanes: LaneNumbers
    is_before: bool


@dataclass(slots=True, eq=False, weakref_slot=True)
class TmemCommit:
    """tcgen05.commit of a thread: an arrival at each mbarrier when all its tensor-core work has completed."""

    pc: int
    lane: int
    addresses: tuple[int, ...]


@dataclass(slots=True, eq=False)
class TmemCommitArrived:
    """The arrival of a commit at one of its mbarriers, which counts it next."""

    pc: int
    issue: TmemCommit
    address: int


@dataclass(slots=True, eq=False)
class InstructionReached:
    """Lanes are about to execute an instruction that somebody looks at."""

    pc: int
    lanes: LaneNumbers


@dataclass(slots=True, eq=False)
class BlockEnd:
    """All threads of a block have exited."""

    rank: int


@dataclass(slots=True, eq=False)
class ClusterEnd:
    """All blocks have ended, and all asynchronous work has completed."""


Event: TypeAlias = object
"""One of the classes above."""


def _equal_rows(one: Values, other: Values) -> Flags:
    """For each lane whether all of its words are equal."""
    is_equal = one == other
    return is_equal if is_equal.ndim == 1 else np.asarray(is_equal.all(axis=1))
