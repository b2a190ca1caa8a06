"""Instructions that a warp or a warpgroup executes together, such as shfl.sync, mma.sync, wgmma and bar.warp.sync."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.machine.cluster import Cluster, Front
from tilescope.machine.step import Step
from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.events import Converge

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
        pc = front.pc
        schedule.gathered(front)
        if len(front.lanes) < cluster.lane_count:
            complete = self.complete(cluster, front.lanes, front.lanes)
            if not complete.all():
                schedule.gather(front, complete)
                if not len(front.lanes):
                    return
        if cluster.bus.is_heard:
            masks = None if self.mask is None else cluster.registers[self.mask]
            group_of_lane = cluster.grouping(self.group_lanes).of_lane
            cluster.emit(Converge(pc, front.lanes, self.group_lanes, group_of_lane, masks))
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
