"""Who wrote and read global memory last, cluster by cluster; kept for the stretches that are touched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.machine.order.cells import CellNumbers, Cells, CellTable, ReadTable
from tilescope.machine.order.stamp import Stamps

_CHUNK_CELLS = 1 << 18
_READ_PAIRS = 4  # slots for readers: by the last bits of their cluster's and their warp's number


class GlobalTable(CellTable):
    """Cells of global memory, with the cluster of each access beside it."""

    def __init__(self) -> None:
        super().__init__(_CHUNK_CELLS, _READ_PAIRS, 1)
        self.write_clusters: npt.NDArray[np.int32] = np.zeros(_CHUNK_CELLS, np.int32)
        self.thread_read_clusters: npt.NDArray[np.int32] = np.zeros((_CHUNK_CELLS, 2 * _READ_PAIRS), np.int32)
        self.unit_read_clusters: npt.NDArray[np.int32] = np.zeros((_CHUNK_CELLS, 1), np.int32)

    def write_clusters_of(self, cells: Cells) -> npt.NDArray[np.int32] | None:
        """The clusters that wrote cells."""
        clusters: npt.NDArray[np.int32] = self.write_clusters[cells]
        return clusters

    def read_tables(self) -> tuple[ReadTable, ...]:
        """Where reads are kept."""
        return (
            ReadTable(self.has_thread_reads, self.thread_reads, self.thread_read_clusters),
            ReadTable(self.has_unit_reads, self.unit_reads, self.unit_read_clusters),
        )

    def write_by(self, cluster: int, cells: CellNumbers, stamps: Stamps) -> None:
        """Cells were written by a cluster."""
        self.write(cells, stamps)
        self.write_clusters[cells] = cluster

    def read_by(self, cluster: int, cells: CellNumbers, slots: CellNumbers, stamps: Stamps) -> None:
        """Cells were read by threads of a cluster."""
        self.read_by_threads(cells, slots, stamps)
        self.thread_read_clusters[cells, slots] = cluster
        self.thread_read_clusters[cells, slots + 1] = cluster

    def read_by_copy(self, cluster: int, cells: CellNumbers, stamp: int) -> None:
        """Cells are read by a copy of a cluster."""
        self.read_by_unit(cells, 0, stamp)
        self.unit_read_clusters[cells, 0] = cluster


class LastWrite(NamedTuple):
    """The last write of a cell, and the number of the cluster that made it."""

    stamp: int
    cluster: int


class WriteColumns(NamedTuple):
    """Of one table: the last writes of its cells, and the clusters that made them."""

    stamps: Stamps
    clusters: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class LastWrites:
    """The last writes alone, which a run keeps when its reads are of no use any more."""

    cell_bytes: int
    tables: dict[int, WriteColumns]

    def at(self, address: int) -> LastWrite | None:
        """The last write of the byte at an address; None where nobody wrote it."""
        chunk, cell = divmod(address // self.cell_bytes, _CHUNK_CELLS)
        table = self.tables.get(chunk)
        if table is None or table.stamps[cell] == 0:
            return None
        return LastWrite(int(table.stamps[cell]), int(table.clusters[cell]))


class GlobalCells:
    """All cells of global memory that were touched, in tables of a quarter million."""

    def __init__(self, cell_bytes: int) -> None:
        self.cell_bytes = cell_bytes
        self._tables: dict[int, GlobalTable] = {}

    def pieces(self, cells: CellNumbers) -> Iterator[tuple[GlobalTable, CellNumbers, CellNumbers]]:
        """(table, cells in it, their positions in `cells`) of some cells."""
        chunks = cells // _CHUNK_CELLS
        first = int(chunks[0])
        if (chunks == first).all():
            yield self._table(first), cells - first * _CHUNK_CELLS, np.arange(len(cells))
            return
        for chunk in np.unique(chunks).tolist():
            places = np.flatnonzero(chunks == chunk)
            yield self._table(chunk), cells[places] - chunk * _CHUNK_CELLS, places

    def last_writes(self) -> LastWrites:
        """Who wrote each cell last."""
        written = {chunk: table for chunk, table in self._tables.items() if table.writes.any()}
        columns = {chunk: WriteColumns(table.writes, table.write_clusters) for chunk, table in written.items()}
        return LastWrites(self.cell_bytes, columns)

    def _table(self, chunk: int) -> GlobalTable:
        table = self._tables.get(chunk)
        if table is None:
            table = self._tables[chunk] = GlobalTable()
        return table


def read_slots(cluster: int, warps: CellNumbers) -> CellNumbers:
    """The pair of slots in which readers of a cluster are kept."""
    return (cluster % 2 * 2 + warps % 2) * 2
