"""The rows of a recording: what lanes of one cluster did that other threads can wait for or race with.

Some events are rows as they are (mbarrier operations, copies, tensor-core work). Of the others a row keeps the part that a
pipeline needs.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from tilescope.sync.address import Addresses
from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.events import (
    CopyIssued,
    CpAsyncArriveIssued,
    GroupCommit,
    GroupWait,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierInit,
    MbarrierInval,
    MemoryFence,
    TmemCommit,
    TmemDealloc,
    TmemMove,
    TmemWait,
    TmemWork,
    WarpSync,
    WgmmaIssued,
)

AccessHow = Literal["read", "write", "agreed", "atomic", "cp.async"]


class Access(NamedTuple):
    """Shared memory that lanes access themselves, or by cp.async: `size_bytes` from each address on."""

    pc: int
    lanes: LaneNumbers
    how: AccessHow
    addresses: Addresses
    size_bytes: int


class Wait(NamedTuple):
    """Lanes whose wait for a phase of an mbarrier passed; at the end of a run that hangs, those that still wait."""

    pc: int
    lanes: LaneNumbers
    address: int
    parity: int
    phase: int  # that completed, or never does, counted from 0; -1 where a fresh barrier lets a parity of 1 pass


class BlockSync(NamedTuple):
    """Lanes at a barrier of their block: bar.sync or bar.red once it is complete, bar.arrive at once."""

    pc: int
    lanes: LaneNumbers
    number: int
    threads: int
    waits: bool
    completion: int = 0  # counts the barriers that completed


class ClusterSync(NamedTuple):
    """barrier.cluster.arrive or .wait; at the end of a run that hangs, those that still wait."""

    pc: int
    lanes: LaneNumbers
    waits: bool
    has_passed: bool = True
    phase: int = 0  # of an arrival
    is_relaxed: bool = False


class Fence(NamedTuple):
    """A fence that a pipeline can express."""

    pc: int
    lanes: LaneNumbers
    kind: Literal["proxy.async", "mbarrier_init", "tcgen05.before", "tcgen05.after"]


# Stored data: the events, and for some of them only the part that matters.
Row = (
    Access
    | Wait
    | BlockSync
    | ClusterSync
    | Fence
    | MbarrierInit
    | MbarrierInval
    | MbarrierArrive
    | MbarrierExpect
    | CpAsyncArriveIssued
    | GroupCommit
    | GroupWait
    | WgmmaIssued
    | CopyIssued
    | WarpSync
    | MemoryFence
    | TmemWork
    | TmemMove
    | TmemWait
    | TmemDealloc
    | TmemCommit
)
