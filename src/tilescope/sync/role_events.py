"""The events of roles: those of `sync.events`, with agents for lanes, and numbered barriers and slots for addresses.

    one run       MbarrierArrive(pc 12, lanes 0-31, address 0x400, arrivals 32)    32 threads arrived at an address
    all orders    MbarrierArrive(barriers (0,), arrivals 32)                       an agent arrives at barrier 0, whenever it comes

A class has the name of the event that a kernel emits for the same operation, and the names of its fields. Facts that
only a run has are omitted: its lanes, the phase, and whether a test passed. A few operations have no event of a run,
because a run sees them as loads, stores and special registers: waits that loop, flags in global memory, other grids,
setmaxnreg.

Barriers and slots are instances, one for each block that an action reaches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilescope.sync.events import CopyUnit
from tilescope.sync.happens_before import NONE
from tilescope.sync.proxies import TCGEN05_AFTER, TCGEN05_BEFORE, AccessKind


@dataclass(slots=True, kw_only=True)
class Action:
    """One event of an agent, which is a role in one block."""

    barriers: tuple[int, ...] = ()
    slots: tuple[int, ...] = ()
    mask_beyond: int = 0  # a mask that names blocks beyond the cluster, as it was written; else 0
    step: object = None  # its origin: returned with a mistake, and not interpreted

    @property
    def barrier(self) -> int:
        """The first of its barriers, or NONE."""
        return self.barriers[0] if self.barriers else NONE

    @property
    def arrivals_at_mbarriers(self) -> int:
        """The arrivals that it makes at each of its mbarriers, now or when its work is done."""
        return 0


# ---- mbarriers


@dataclass(slots=True, kw_only=True)
class MbarrierInit(Action):
    """mbarrier.init."""


@dataclass(slots=True, kw_only=True)
class MbarrierInval(Action):
    """mbarrier.inval, or a store over the bytes of an mbarrier."""


@dataclass(slots=True, kw_only=True)
class MbarrierWait(Action):
    """A loop of tests that ends when the phase of a parity has completed."""

    parity: int


@dataclass(slots=True, kw_only=True)
class MbarrierArrive(Action):
    """Arrivals at mbarriers, and the bytes that they expect. An empty scope is as wide as the barrier needs."""

    arrivals: int = 1
    expected_bytes: int = 0
    is_drop: bool = False
    scope: str = ""

    @property
    def arrivals_at_mbarriers(self) -> int:
        """Its arrivals."""
        return self.arrivals


@dataclass(slots=True, kw_only=True)
class MbarrierExpect(Action):
    """mbarrier.expect_tx, without an arrival."""

    size_bytes: int
    scope: str = ""


@dataclass(slots=True, kw_only=True)
class CpAsyncArriveIssued(Action):
    """cp.async.mbarrier.arrive: arrivals when all cp.async of the agent so far have completed."""

    arrivals: int = 1
    is_counted: bool = False  # .noinc

    @property
    def arrivals_at_mbarriers(self) -> int:
        """Its arrivals."""
        return self.arrivals


@dataclass(slots=True, kw_only=True)
class TmemCommit(Action):
    """tcgen05.commit: an arrival when all tensor-core work of the agent so far has completed."""

    @property
    def arrivals_at_mbarriers(self) -> int:
        """One."""
        return 1


# ---- memory


@dataclass(slots=True, kw_only=True)
class CopyIssued(Action):
    """A bulk or tensor copy into slots, one for each block that receives it. It is pending until its bytes land."""

    how: AccessKind
    size_bytes: int
    tile: int | None = None
    offset_bytes: int | None = None  # in its slot; None: after the other copies of its phase
    sources: tuple[int, ...] = ()  # slots of global memory that it reads


@dataclass(slots=True, kw_only=True)
class CpAsyncIssued(CopyIssued):
    """cp.async: the threads of an agent copy into a slot."""

    how: AccessKind = "cp.async"


@dataclass(slots=True, kw_only=True)
class SlotAccess(Action):
    """An access to slots, of which a tensor core or a store writes its result into others."""

    how: ClassVar[AccessKind] = "generic"
    into: tuple[int, ...] = ()
    tile: int | None = None  # that the slots must hold, or hold from now on


@dataclass(slots=True, kw_only=True)
class Load(SlotAccess):
    """Threads read slots; with mma their sums go to others."""


@dataclass(slots=True, kw_only=True)
class Store(SlotAccess):
    """Threads write slots."""


@dataclass(slots=True, kw_only=True)
class WgmmaIssued(SlotAccess):
    """wgmma.mma_async: its slots are read until its group is waited for."""

    how: ClassVar[AccessKind] = "wgmma"


@dataclass(slots=True, kw_only=True)
class TmemWork(SlotAccess):
    """tcgen05.mma or cp: its slots are read, and others written, until a commit is waited for."""

    how: ClassVar[AccessKind] = "tcgen05"


@dataclass(slots=True, kw_only=True)
class BulkStoreIssued(SlotAccess):
    """A bulk or tensor copy from slots to global memory. A run has a CopyIssued without an mbarrier."""

    how: ClassVar[AccessKind] = "store"
    size_bytes: int = 0


@dataclass(slots=True, kw_only=True)
class GroupCommit(Action):
    """commit_group: closes the open group."""

    unit: CopyUnit


@dataclass(slots=True, kw_only=True)
class GroupWait(Action):
    """wait_group: all but the `newest` groups have completed."""

    unit: CopyUnit
    newest: int = 0
    only_read: bool = False


# ---- fences


@dataclass(slots=True, kw_only=True)
class Fence(Action):
    """A fence of any kind."""


@dataclass(slots=True, kw_only=True)
class ProxyFence(Fence):
    """fence.proxy.async."""


@dataclass(slots=True, kw_only=True)
class MbarrierInitFence(Fence):
    """fence.mbarrier_init."""


@dataclass(slots=True, kw_only=True)
class TmemFence(Fence):
    """tcgen05.fence::before_thread_sync or after_thread_sync."""

    is_before: bool

    @property
    def kind(self) -> str:
        """Its kind in the table of fences."""
        return (TCGEN05_BEFORE if self.is_before else TCGEN05_AFTER).kind


# ---- barriers of threads


@dataclass(slots=True, kw_only=True)
class ThreadBarrier(Action):
    """An action at a barrier of threads: that of a block, or that of the cluster."""

    waits: bool = True


@dataclass(slots=True, kw_only=True)
class BarrierArrive(ThreadBarrier):
    """bar.sync, which waits, or bar.arrive."""

    number: int
    threads: int = 0  # that complete it; 0: all of the block


@dataclass(slots=True, kw_only=True)
class ClusterArrive(ThreadBarrier):
    """barrier.cluster.arrive, with the wait behind it if it waits. A relaxed one releases no data."""

    is_relaxed: bool = False


@dataclass(slots=True, kw_only=True)
class ClusterWait(ThreadBarrier):
    """barrier.cluster.wait."""


# ---- what a run has no event for


@dataclass(slots=True, kw_only=True)
class FlagAdd(Action):
    """red.release on a flag in global memory."""

    amount: int = 1


@dataclass(slots=True, kw_only=True)
class FlagPoll(Action):
    """A loop of ld.acquire that ends when a flag has reached a value."""

    value: int


@dataclass(slots=True, kw_only=True)
class GridDependency(Action):
    """griddepcontrol.wait for the end of the grid before, or .launch_dependents."""

    waits: bool


@dataclass(slots=True, kw_only=True)
class RegisterRequest(Action):
    """setmaxnreg."""

    registers: int
