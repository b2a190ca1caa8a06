"""Lanes that stand at one instruction and run it together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilescope.arch import WARP_LANES
from tilescope.machine.cluster import Cluster
from tilescope.machine.step import EVERYONE
from tilescope.sync.cluster_shape import LaneNumbers, Lanes


@dataclass(slots=True, eq=False)
class Front:
    """Lanes that stand at one instruction.

    `rounds` counts the quanta that it has used: fronts that have used fewer run first. `steps` are those of this quantum.
    """

    pc: int
    lanes: LaneNumbers
    rounds: int = 0
    steps: int = 0
    _counted: LaneNumbers | None = None  # the lanes whose warps were counted last
    _warps: int = 0

    def at(self, cluster: Cluster) -> Lanes:
        """The lanes, or the slice that means everyone."""
        return EVERYONE if len(self.lanes) == cluster.lane_count else self.lanes

    def warp_count(self) -> int:
        """How many warps the lanes belong to."""
        if self._counted is not self.lanes:
            self._counted = self.lanes
            self._warps = len(np.unique(self.lanes // WARP_LANES))
        return self._warps
