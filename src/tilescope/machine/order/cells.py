"""Who wrote and who read each piece of memory last.

A cell is as wide as the narrowest access of the kernel. It keeps its last write, and the reads since: one slot for the
first and one for the last lane of each warp that read it by one instruction, and one for every unit that reads
by itself (the tensor cores of a warpgroup, bulk stores). A write ends a generation: reads of an older one count no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from tilescope.machine.order.stamp import GENERATION_MASK, Stamps, generation_of, is_strong, with_generation

CellNumbers = npt.NDArray[np.intp]
Cells: TypeAlias = slice | CellNumbers


class Seen(NamedTuple):
    """Accesses that lie in memory: stamps, and the clusters that made them (None: all are of one)."""

    stamps: Stamps
    clusters: npt.NDArray[np.int32] | None


class Accessor(Protocol):
    """Whoever touches cells: a lane for each of them, or one unit for all."""

    def knows(self, seen: Seen, places: CellNumbers | None) -> npt.NDArray[np.bool_]:
        """Whether others' accesses were finished before this one; `places`: at which of its cells, None: at all."""


class Met(NamedTuple):
    """Accesses that an access met without knowing that they were finished: their stamps, and where."""

    stamps: Stamps
    places: CellNumbers  # positions in the cells of the access
    clusters: npt.NDArray[np.int32] | None  # that made them; None: the own one


class ReadTable(NamedTuple):
    """Reads by cell and slot; `has_reads` says which cells have any."""

    has_reads: npt.NDArray[np.bool_]
    stamps: Stamps
    clusters: npt.NDArray[np.int32] | None


class CellTable:
    """The cells of one stretch of memory."""

    def __init__(self, count: int, warps: int, units: int) -> None:
        self.writes: Stamps = np.zeros(count, np.int64)
        self.generations: npt.NDArray[np.uint8] = np.zeros(count, np.uint8)
        self.thread_reads: Stamps = np.zeros((count, 2 * warps), np.int64)
        self.unit_reads: Stamps = np.zeros((count, units), np.int64)
        self.has_thread_reads: npt.NDArray[np.bool_] = np.zeros(count, np.bool_)
        self.has_unit_reads: npt.NDArray[np.bool_] = np.zeros(count, np.bool_)

    # Questions -----------------------------------------------------------------------------------------------------

    def unknown_writes(self, cells: Cells, accessor: Accessor, *, strong: bool = False) -> Met | None:
        """The last writes of cells that the accessor does not know; two strong accesses may meet."""
        stamps = self.writes[cells]
        clusters = self.write_clusters_of(cells)
        is_unknown = ~accessor.knows(Seen(stamps, clusters), None)
        if not is_unknown.any():
            return None
        if strong:
            is_unknown &= ~is_strong(stamps)
        places = np.flatnonzero(is_unknown)
        if not len(places):
            return None
        return Met(stamps[places], places, None if clusters is None else clusters[places])

    def unknown_reads(self, cells: Cells, accessor: Accessor, *, strong: bool = False) -> Iterator[Met]:
        """The reads of cells since their last write that the accessor does not know."""
        for table in self.read_tables():
            has_reads, reads, clusters = table
            places = np.flatnonzero(has_reads[cells])
            if not len(places):
                continue
            own = places + (cells.start or 0) if isinstance(cells, slice) else cells[places]
            stamps = reads[own]
            generations = self.generations[own].astype(np.int64) & GENERATION_MASK
            is_unknown = (stamps != 0) & (generation_of(stamps) == generations[:, None])
            is_unknown &= ~accessor.knows(Seen(stamps, None if clusters is None else clusters[own]), places)
            if strong:
                is_unknown &= ~is_strong(stamps)
            rows, slots = np.nonzero(is_unknown)
            if len(rows):
                their_clusters = None if clusters is None else clusters[own][rows, slots]
                yield Met(stamps[rows, slots], places[rows], their_clusters)

    def write_clusters_of(self, cells: Cells) -> npt.NDArray[np.int32] | None:
        """The clusters that wrote cells; None where all of the memory belongs to one."""
        return None

    def read_tables(self) -> tuple[ReadTable, ...]:
        """Where reads are kept."""
        return (
            ReadTable(self.has_thread_reads, self.thread_reads, None),
            ReadTable(self.has_unit_reads, self.unit_reads, None),
        )

    def unwritten(self, cells: Cells) -> npt.NDArray[np.bool_]:
        """Which cells nobody has written."""
        return np.asarray(self.writes[cells] == 0)

    # Accesses ------------------------------------------------------------------------------------------------------

    def write(self, cells: Cells, stamps: Stamps | int) -> None:
        """Cells were written: the reads before that count no more."""
        self.writes[cells] = stamps
        self.generations[cells] += 1
        self.has_thread_reads[cells] = False
        self.has_unit_reads[cells] = False

    def restamp(self, cells: Cells, before: int, after: int) -> None:
        """Cells that still have one stamp as their last write get another."""
        stamps = self.writes[cells]
        self.writes[cells] = np.where(stamps == before, after, stamps)

    def read_by_threads(self, cells: CellNumbers, slots: CellNumbers, stamps: Stamps) -> None:
        """Cells were read, each by a thread: the first and the last one of a pair of slots are kept."""
        held = with_generation(stamps, self.generations[cells] & GENERATION_MASK)
        self.thread_reads[cells, slots + 1] = held
        backwards = np.arange(len(cells) - 1, -1, -1)  # copies: numpy walks reversed views in the order of memory
        self.thread_reads[cells[backwards], slots[backwards]] = held[backwards]
        self.has_thread_reads[cells] = True

    def read_by_unit(self, cells: Cells, unit: int, stamp: int) -> None:
        """Cells are read by a unit of the chip, until somebody waits for it."""
        generations = self.generations[cells] & GENERATION_MASK
        self.unit_reads[cells, unit] = with_generation(np.int64(stamp), generations)
        self.has_unit_reads[cells] = True
