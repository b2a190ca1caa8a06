"""Shadow memory of global memory, cluster by cluster; made for the stretches of arrays that are accessed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from tilescope.sync.epoch import Stamps
from tilescope.sync.footprint import CellNumbers
from tilescope.sync.shadow.shadow_cells import CellTable, Clusters

_STRETCH_CELLS = 1 << 18
_READ_PAIRS = 4  # slots for readers: by the last bits of their cluster's and their warp's number


class Region(Protocol):
    """An array in global memory."""

    @property
    def address(self) -> int:
        """Its first byte."""

    @property
    def end(self) -> int:
        """The first byte after it."""


class Regions(Protocol):
    """Global memory, as far as the shadow must know it: where arrays are placed."""

    def region_at(self, address: int) -> Region | None:
        """The array that holds a byte; None where nothing is placed."""


class Stretch(NamedTuple):
    """Consecutive cells of one array: at most a quarter million."""

    first: int
    end: int
    table: CellTable


class Piece(NamedTuple):
    """Some cells of one stretch: their numbers in its table, and their positions among all (None: they are all)."""

    stretch: Stretch
    cells: CellNumbers
    positions: CellNumbers | None


class LastWrite(NamedTuple):
    """The last write of a cell, and the number of the cluster that made it."""

    stamp: int
    cluster: int


class Written(NamedTuple):
    """Of one stretch: the last writes of its cells, and the clusters that made them."""

    first: int
    stamps: Stamps
    clusters: Clusters


@dataclass(frozen=True, slots=True)
class LastWrites:
    """Only the last writes, which a run keeps after its end."""

    cell_bytes: int
    stretches: tuple[Written, ...]

    def at(self, address: int) -> LastWrite | None:
        """The last write of the byte at an address; None if it was never written."""
        cell = address // self.cell_bytes
        for first, stamps, clusters in self.stretches:
            place = cell - first
            if 0 <= place < len(stamps):
                stamp = int(stamps[place])
                return None if stamp == 0 else LastWrite(stamp, clusters.at(place))
        return None


class GlobalCells:
    """All cells of global memory that were accessed, in stretches of arrays."""

    def __init__(self, memory: Regions, cell_bytes: int) -> None:
        self.cell_bytes = cell_bytes
        self._memory = memory
        self._stretches: dict[int, Stretch] = {}  # by first cell
        self._latest: Stretch | None = None

    def pieces(self, cells: CellNumbers) -> Iterator[Piece]:
        """Split cells by stretch, in the order of addresses."""
        stretch = self.stretch_at(int(cells.min()))
        if int(cells.max()) < stretch.end:
            yield Piece(stretch, cells - stretch.first, None)
            return
        remaining = np.arange(len(cells))
        while len(remaining):
            stretch = self.stretch_at(int(cells[remaining].min()))
            is_inside = cells[remaining] < stretch.end
            positions = remaining[is_inside]
            yield Piece(stretch, cells[positions] - stretch.first, positions)
            remaining = remaining[~is_inside]

    def is_written_between(self, first: int, last: int) -> bool:
        """Whether somebody has written a stretch that has some of these cells."""
        return any(
            stretch.first <= last and first < stretch.end and stretch.table.is_written
            for stretch in self._stretches.values()
        )

    def last_writes(self) -> LastWrites:
        """The last write of each cell."""
        written = []
        for first, _, table in self._stretches.values():
            if table.is_written:
                assert table.write_clusters is not None
                written.append(Written(first, table.writes, table.write_clusters))
        return LastWrites(self.cell_bytes, tuple(written))

    def stretch_at(self, cell: int) -> Stretch:
        """The stretch that has a cell."""
        latest = self._latest
        if latest is not None and latest.first <= cell < latest.end:
            return latest
        first, end = self._bounds(cell)
        stretch = self._stretches.get(first)
        if stretch is None:
            table = CellTable(end - first, _READ_PAIRS, 1, is_shared=False)
            stretch = self._stretches[first] = Stretch(first, end, table)
        self._latest = stretch
        return stretch

    def _bounds(self, cell: int) -> tuple[int, int]:
        """The first cell of a stretch, and the first one after it: a cell belongs to the array of its first byte."""
        region = self._memory.region_at(cell * self.cell_bytes)
        if region is None:
            return cell, cell + 1
        begin = -(-region.address // self.cell_bytes)
        first = cell - (cell - begin) % _STRETCH_CELLS
        return first, min(first + _STRETCH_CELLS, -(-region.end // self.cell_bytes))


def read_slots(cluster: int, warps: CellNumbers) -> CellNumbers:
    """The pair of slots for readers of a cluster."""
    return (cluster % 2 * 2 + warps % 2) * 2
