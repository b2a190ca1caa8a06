"""Reads by ld.global.nc of one stretch of global memory: the last one of each cell, which later writes do not clear.

They wait in a list until somebody writes the stretch: arrays that a kernel only reads cost little.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.sync.epoch import Stamps
from tilescope.sync.footprint import CellNumbers

ClusterNumbers = npt.NDArray[np.int32]
_MOST_WAITING = 1 << 16  # cells that wait for their places in the arrays


class _Read(NamedTuple):
    """One instruction by which lanes of a cluster read cells: the same number each, from the first one on."""

    first: CellNumbers
    each: int
    stamps: Stamps
    cluster: int


class NoncoherentReads:
    """The last read by ld.global.nc of each cell."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._waiting: list[_Read] = []
        self._cells_waiting = 0
        self._stamps: Stamps | None = None
        self._clusters: ClusterNumbers | None = None

    def put(self, first: CellNumbers, each: int, stamps: Stamps, cluster: int) -> None:
        """Lanes of a cluster read cells: the same number each, from the first one on."""
        self._waiting.append(_Read(first, each, stamps, cluster))
        self._cells_waiting += len(stamps) * each
        if self._cells_waiting > _MOST_WAITING:
            self._put_waiting()

    def at(self, cells: CellNumbers) -> tuple[Stamps, ClusterNumbers]:
        """The stamps of the last reads of cells, 0 where there is none, and their clusters."""
        self._put_waiting()
        if self._stamps is None or self._clusters is None:
            return np.zeros(len(cells), np.int64), np.zeros(len(cells), np.int32)
        return self._stamps[cells], self._clusters[cells]

    def _put_waiting(self) -> None:
        if not self._waiting:
            return
        if self._stamps is None or self._clusters is None:
            self._stamps = np.zeros(self._count, np.int64)
            self._clusters = np.zeros(self._count, np.int32)
        for read in self._waiting:
            for offset in range(read.each):
                self._stamps[read.first + offset] = read.stamps
                self._clusters[read.first + offset] = read.cluster
        self._waiting.clear()
        self._cells_waiting = 0
