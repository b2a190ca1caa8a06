"""Instructions that a warp or a warpgroup executes together, such as shfl.sync, mma.sync, wgmma and bar.warp.sync."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.machine.cluster import Cluster, Front
from tilescope.machine.program import Constant, Program
from tilescope.machine.step import Step
from tilescope.sync.cluster_shape import LaneNumbers, Lanes
from tilescope.sync.events import Converge, PartialGroups

if TYPE_CHECKING:
    from tilescope.machine.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Collective:
    """An instruction that its warp (or warpgroup) executes together: it waits for lanes that are on their way.

    `mask` is the register with the lanes that take part; without it all that live do. `meets_elsewhere`: lanes may come
    to another instruction of the kind, as to two __syncwarp() in two branches.
    """

    step: Step
    mask: int | None = None
    group_lanes: int = WARP_LANES
    meets_elsewhere: bool = False

    def take(self, schedule: Schedule, front: Front) -> None:
        """Run for the groups that are complete; the others wait."""
        cluster = schedule.cluster
        schedule.gathered(front)
        if len(front.lanes) < cluster.lane_count:
            complete = self.complete(cluster, front.lanes, front.lanes)
            if not complete.all():
                schedule.gather(front, complete)
                if not len(front.lanes):
                    return
        if cluster.has_exits:
            announce_missing_lanes(cluster, front, self.needed_lanes(cluster, front.lanes))
        self._execute(schedule, front)

    def take_without_rest(self, schedule: Schedule, front: Front) -> None:
        """Run for the lanes that are here, although it needs others that live."""
        cluster = schedule.cluster
        announce_missing_lanes(cluster, front, self.needed_lanes(cluster, front.lanes))
        self._execute(schedule, front)

    def needed_lanes(self, cluster: Cluster, lanes: LaneNumbers) -> npt.NDArray[np.bool_]:
        """By lane of the cluster whether the instruction needs it: a thread of the group, or of a mask."""
        if self.mask is None:
            group_of_lane = cluster.grouping(self.group_lanes).of_lane
            return np.isin(group_of_lane, group_of_lane[lanes]) & cluster.exists
        is_needed = np.zeros(cluster.lane_count, np.bool_)
        masks = cluster.registers[self.mask][lanes].astype(np.uint32)
        by_warp = is_needed.reshape(-1, WARP_LANES)
        for mask in np.unique(masks).tolist():
            is_in_mask = mask >> np.arange(WARP_LANES) & 1 == 1
            by_warp[np.unique(lanes[masks == mask] // WARP_LANES)] |= is_in_mask
        return is_needed & cluster.exists

    def _execute(self, schedule: Schedule, front: Front) -> None:
        cluster = schedule.cluster
        pc = front.pc
        if cluster.bus.is_heard:
            masks = None if self.mask is None else cluster.registers[self.mask]
            group_of_lane = cluster.grouping(self.group_lanes).of_lane
            cluster.emit(Converge(pc, front.lanes, self.group_lanes, group_of_lane, masks))
        if cluster.undefined is not None and self.mask is None:
            cluster.undefined.combine(front.lanes)
        self.step(cluster, front.at(cluster))
        schedule.go_on(front, pc + 1)

    def complete(self, cluster: Cluster, lanes: LaneNumbers, present: LaneNumbers) -> npt.NDArray[np.bool_]:
        """For each lane whether everyone it waits for is among those present."""
        is_missing = cluster.live.copy()
        is_missing[present] = False
        if self.mask is None:
            grouping = cluster.grouping(self.group_lanes)
            missing = np.logical_or.reduceat(is_missing, grouping.first_lanes)
            return np.asarray(~missing[grouping.of_lane[lanes]])
        masks = cluster.registers[self.mask][lanes].astype(np.uint32)
        bits = np.packbits(is_missing.reshape(-1, WARP_LANES), axis=1, bitorder="little").view("<u4")[:, 0]
        return np.asarray((bits[lanes // WARP_LANES] & masks) == 0)


def names_all_lanes(program: Program, mask: int) -> bool:
    """Whether a register is a constant that names all lanes of a warp."""
    content = program.read_only.get(mask)
    return isinstance(content, Constant) and content.bits == (1 << WARP_LANES) - 1


def gather_warps(schedule: Schedule, front: Front) -> bool:
    """Let a front at an .aligned instruction have whole warps of lanes that live; False if all its lanes wait for others."""
    cluster = schedule.cluster
    schedule.gathered(front)
    if len(front.lanes) < cluster.lane_count:
        complete = _WARP.complete(cluster, front.lanes, front.lanes)
        if not complete.all():
            schedule.gather(front, complete)
    return len(front.lanes) > 0


def announce_missing_threads(cluster: Cluster, front: Front) -> None:
    """Emit the threads that are missing in the warps of a front."""
    warp_of_lane = cluster.grouping(WARP_LANES).of_lane
    announce_missing_lanes(cluster, front, np.isin(warp_of_lane, warp_of_lane[front.lanes]) & cluster.exists)


def announce_missing_lanes(cluster: Cluster, front: Front, is_needed: npt.NDArray[np.bool_]) -> None:
    """Emit the lanes that the instruction of a front needs, and that are not in it."""
    is_needed[front.lanes] = False
    missing = np.flatnonzero(is_needed)
    if len(missing) and cluster.bus.is_heard:
        cluster.emit(PartialGroups(front.pc, front.lanes, missing, cluster.live[missing]))


def _do_nothing(cluster: Cluster, at: Lanes) -> None:
    """The step of an instruction that only has to gather its warp."""


_WARP = Collective(_do_nothing)
