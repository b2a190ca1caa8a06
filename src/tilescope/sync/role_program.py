"""A role program: the operations of a kernel's roles as plain values. Clocks and search work on it, independent of its origin.

    producer   expect full[0], 4096 bytes    copy into a[0], for full[0]
    consumer   wait full[0], parity 0        read a[0]

An agent is one role in one block: the unit that acts. Roles do not branch on data, so each agent has one sequence of
actions. Agents, barriers and slots are known by their numbers. The barriers of all blocks are numbered through:

    barriers   full[0]  full[1]  …  | bar 0 … bar 15  … | the cluster barrier | flags | the grid before
    number     0        1             mbarriers           cluster               first_flag   grid
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tilescope.arithmetic import rounded_up
from tilescope.sync.role_events import Action
from tilescope.sync.thread_limits import WARP_THREADS, WARPGROUP_THREADS


class Agent(NamedTuple):
    """A role in one block: threads that act together."""

    role: str  # its name; the agents of one role share it
    home: int  # its block among those of all grids: this grid's come first, then the earlier grid's
    warps: int
    actions: Callable[[], Iterator[Action]]  # from the first on, each time it is called
    is_earlier: bool = False  # of the grid that runs before this one
    fills_slots: bool = False  # by copies or writes

    @property
    def warp_threads(self) -> int:
        """Its threads in whole warps."""
        return self.warps * WARP_THREADS

    @property
    def warpgroup_threads(self) -> int:
        """Its threads in whole warpgroups."""
        return rounded_up(self.warp_threads, WARPGROUP_THREADS)


class BarrierInstance(NamedTuple):
    """A barrier of one block: an mbarrier, a barrier of threads, a flag in global memory, or the end of a grid."""

    name: str  # its stages share it
    home: int
    arrivals: int = 0  # that end a phase of an mbarrier


class SlotInstance(NamedTuple):
    """A buffer that is filled and emptied in turn."""

    name: str  # its stages share it
    home: int
    bytes: int  # 0: not stated
    space: str  # smem, tmem, gmem


@dataclass(frozen=True, slots=True)
class RoleProgram:
    """The agents of a kernel with their actions, and the barriers and slots that these name by number."""

    agents: Sequence[Agent]
    barriers: Sequence[BarrierInstance]
    slots: Sequence[SlotInstance]
    blocks: int  # of all grids
    cluster_blocks: int
    mbarriers: int  # the first barriers
    cluster: int  # number of the cluster barrier; that of the earlier grid follows
    first_flag: int
    grid: int
    registers: int  # of each thread at entry
    thresholds: Mapping[int, Sequence[int]]  # flag: the values, in order, for which some agent polls
    initialises: bool  # some action initialises barriers; otherwise they are ready from the start
    invalidates: bool  # some action invalidates barriers
    has_weak_arrivals: bool  # arrivals that release no data: of scope cta to another block, or relaxed
    starts_late: bool  # agents of this grid start when the grid before has ended
    has_split_arrivals: bool = False  # threads of one warp arrive behind cp.async in two phases
    is_measured: bool = False  # as an H200: a block's memory stays until the copies that it has issued are done

    def cluster_barrier(self, agent: int) -> int:
        """The cluster barrier of an agent's grid."""
        return self.cluster + int(self.agents[agent].is_earlier)

    def is_thread_barrier(self, barrier: int) -> bool:
        """Whether a barrier is one of threads: a named barrier of a block, or that of the cluster."""
        return self.mbarriers <= barrier < self.first_flag

    def is_flag(self, barrier: int) -> bool:
        """Whether a barrier is a flag in global memory."""
        return self.first_flag <= barrier < self.grid
