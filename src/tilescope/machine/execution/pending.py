"""Asynchronous work: copies by TMA, bulk copies, cp.async, wgmma, tcgen05.

    issued ──────────── at any time between ──────────── waited for
                                                             └─ done here where no seed is given: as late as its wait allows

A piece of work belongs to the lanes that issued it. cp.async, bulk copies and wgmma are waited for by groups, which are
counted for each thread; loads report to an mbarrier. A bulk store has two halves: its source is read, then global
memory is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from tilescope.arch import WARP_LANES
from tilescope.sync.cluster_shape import LaneNumbers

WorkKind = Literal["load", "cp.async", "bulk", "wgmma", "tcgen05", "tcgen05.ld", "tcgen05.st", "arrival"]
MOST_WORKS = 1024  # under way in a cluster at once; beyond that the oldest is done first, as with a full queue
GROUP_KINDS: tuple[WorkKind, ...] = ("cp.async", "bulk", "wgmma")
IN_ORDER: tuple[WorkKind, ...] = ("wgmma", "tcgen05")  # kinds whose works are done in the order of their issue


@dataclass(slots=True, eq=False)
class Work:
    """One asynchronous instruction of one or more lanes, not yet done.

    `perform` does it for some of its lanes. `groups` holds the number of the group that each lane put it in. `barrier` is
    the shared address of the mbarrier to notify. `read` is the first half of a bulk store, None once it is done.
    """

    kind: WorkKind
    pc: int
    lanes: LaneNumbers
    perform: Callable[[LaneNumbers], None]
    groups: LaneNumbers | None = None
    barrier: int | None = None
    read: Callable[[], None] | None = None
    registers: frozenset[int] = frozenset()  # that a wgmma or tcgen05.ld reads or writes when it is performed

    def read_source(self) -> None:
        """Do the first half of a bulk store."""
        if self.read is not None:
            self.read()
            self.read = None


@dataclass(slots=True)
class Pending:
    """All asynchronous work of a cluster, oldest first, and the open group of each thread."""

    lane_count: int
    works: list[Work]
    open_groups: dict[WorkKind, LaneNumbers] = field(init=False)

    def __post_init__(self) -> None:
        self.open_groups = {kind: np.zeros(self.lane_count, np.intp) for kind in GROUP_KINDS}

    def add(self, work: Work) -> None:
        """Issue work; that of a group goes to the open one of its lanes."""
        if work.kind in self.open_groups:
            work.groups = self.open_groups[work.kind][work.lanes]
        self.works.append(work)
        if len(self.works) > MOST_WORKS:
            self.finish(self.works[0])

    def commit(self, kind: WorkKind, lanes: LaneNumbers) -> None:
        """Close the open group of some lanes."""
        self.open_groups[kind][lanes] += 1

    def wait_group(self, kind: WorkKind, lanes: LaneNumbers, newest: int, *, only_read: bool = False) -> None:
        """Finish all groups of the lanes but the `newest` ones; of bulk stores, perhaps only the reading."""
        limit = np.full(self.lane_count, -1, np.intp)
        limit[lanes] = self.open_groups[kind][lanes] - newest
        for work in [work for work in self.works if work.kind == kind and work.groups is not None]:
            assert work.groups is not None
            is_due = work.groups < limit[work.lanes]
            if not is_due.any():
                continue
            if only_read:
                work.read_source()
            else:
                self.finish(work, work.lanes[is_due])

    def wait_all(self, kind: WorkKind, lanes: LaneNumbers) -> None:
        """Finish all work of the lanes, committed or not."""
        for work in [work for work in self.works if work.kind == kind]:
            due = work.lanes[np.isin(work.lanes, lanes)]
            if len(due):
                self.finish(work, due)

    def settle(self, registers: frozenset[int], lanes: LaneNumbers, group_of_lane: LaneNumbers) -> None:
        """Finish the wgmma of some lanes that use these registers, and those before them.

        ptxas waits before an instruction that accesses a pending accumulator, whether or not the PTX has a wait.
        """
        products = [work for work in self.works if work.kind == "wgmma"]
        using = [number for number, work in enumerate(products) if work.registers & registers]
        if not using:
            return
        groups = np.unique(group_of_lane[lanes])
        for work in products[: using[-1] + 1]:
            due = work.lanes[np.isin(group_of_lane[work.lanes], groups)]
            if len(due):
                self.finish(work, due)

    def is_using(self, registers: frozenset[int]) -> bool:
        """Whether a pending wgmma uses one of some registers."""
        return any(work.kind == "wgmma" and not work.registers.isdisjoint(registers) for work in self.works)

    def settle_loads(self, registers: frozenset[int], lanes: LaneNumbers) -> None:
        """Finish the tcgen05.ld of some lanes' warps that load these registers: a read of one waits for its load."""
        loads = [work for work in self.works if work.kind == "tcgen05.ld" and not work.registers.isdisjoint(registers)]
        warps = np.unique(lanes // WARP_LANES) if loads else lanes
        for work in loads:
            if int(work.lanes[0]) // WARP_LANES in warps:
                self.finish(work)

    def finish(self, work: Work, lanes: LaneNumbers | None = None) -> None:
        """Do a piece of work, for all or some of its lanes, and forget it."""
        if lanes is None or len(lanes) == len(work.lanes):
            self.works.remove(work)
            lanes = work.lanes
        else:
            stays = ~np.isin(work.lanes, lanes)
            work.lanes = work.lanes[stays]
            if work.groups is not None:
                work.groups = work.groups[stays]
        work.read_source()
        work.perform(lanes)

    def finish_all(self) -> None:
        """Do everything that is left: the end of a kernel waits for it."""
        while self.works:
            self.finish(self.works[0])
