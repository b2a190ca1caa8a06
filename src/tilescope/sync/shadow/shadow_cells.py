"""Shadow memory: the last write and the last reads of each cell.

A cell is as wide as the narrowest access of the kernel. It has the stamp of its last write, and of the reads since: one
slot for the first and one for the last lane of each warp that read it by one instruction, and one for each unit that is
not a thread (the tensor cores of a warpgroup, bulk stores). A write clears the reads.

An atomic over a plain write keeps that write too: atomics of others may race with it, although not with the atomic.

    thread 0 of block 0: *sum = 0;                  the last plain write
                         atomicAdd(sum, a);         the last write
    thread 0 of block 1: atomicAdd(sum, b);         does not race with the last write, but with the plain one

Reads by threads matter only to the next write. They wait in a list until somebody writes, or until there are many, and are then
put into their slots together: arrays that a kernel only reads cost little.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from tilescope.sync.epoch import Stamps, is_asynchronous, is_strong, unpack_stamp
from tilescope.sync.footprint import CellNumbers, Cells
from tilescope.sync.shadow.noncoherent_reads import NoncoherentReads

ClusterNumbers = npt.NDArray[np.int32]
Number = TypeVar("Number", bound=np.generic)
_MOST_WAITING = 1 << 16  # cells that were read, as many as wait for their slots
_MOST_OWN_READS = 4  # reads between two writes of a thread that are compared with the second


class Seen(NamedTuple):
    """Recorded accesses: stamps, and the clusters that made them (None: all are the accessor's own)."""

    stamps: Stamps
    clusters: ClusterNumbers | None


class Accessor(Protocol):
    """Who accesses cells: a lane for each of them, or one unit for all."""

    @property
    def cluster(self) -> int:
        """The number of its cluster."""

    @property
    def settled(self) -> int:
        """All accesses of its cluster with smaller stamps happen before it."""

    @property
    def is_whole_cluster(self) -> bool:
        """Whether all threads of its cluster have its clock."""

    def is_unit_ordered(self, column: int, epoch: int) -> bool:
        """Whether a unit, up to an epoch, happens before it; False also where one comparison cannot tell."""

    def are_ordered(self, seen: Seen, places: CellNumbers | None) -> npt.NDArray[np.bool_]:
        """Whether recorded accesses happen before this one; `places`: at which of its cells, None: at all."""

    def has_made(self, stamps: Stamps) -> bool:
        """Whether each of its lanes, or a stamp for each lane, has made the recorded accesses to its own cells."""


class Unordered(NamedTuple):
    """Recorded accesses that are not ordered before a new one: their stamps, and where."""

    stamps: Stamps
    places: CellNumbers  # positions in the cells of the access
    clusters: ClusterNumbers | None  # that made them; None: the own one

    def where(self, chosen: npt.NDArray[np.bool_] | CellNumbers) -> Unordered:
        """Some of them, or all in another order."""
        clusters = None if self.clusters is None else self.clusters[chosen]
        return Unordered(self.stamps[chosen], self.places[chosen], clusters)


class PastAccesses(NamedTuple):
    """What a table holds of clusters that have ended: the last writes, and which cells were read since."""

    written: CellNumbers
    writes: Seen  # of these cells
    is_read: npt.NDArray[np.bool_]
    has_covered: bool  # whether an atomic has followed a plain write


class LaneCells(NamedTuple):
    """The cells that lanes access: the same number each, from the first one on."""

    first: CellNumbers
    each: int
    are_distinct: bool = False  # True: no two lanes access one cell; False: they may

    @property
    def cells(self) -> CellNumbers:
        """One lane after another.

        >>> LaneCells(np.array([8, 2]), 3).cells.tolist()
        [8, 9, 10, 2, 3, 4]
        """
        if self.each == 1:
            return self.first
        return (self.first[:, None] + np.arange(self.each)).ravel()


class ThreadReads(NamedTuple):
    """One instruction by which lanes read cells, each with its own stamp into its own pair of slots."""

    at: LaneCells
    slots: CellNumbers
    stamps: Stamps
    newest: int  # no stamp is larger
    cluster: int = 0

    def by_cell(self) -> tuple[CellNumbers, CellNumbers, Stamps]:
        """For each cell of each lane: its number, the first of its slots, and its stamp."""
        if self.at.each == 1:
            return self.at.first, self.slots, self.stamps
        return self.at.cells, self.slots.repeat(self.at.each), self.stamps.repeat(self.at.each)


class Clusters:
    """The cluster that made each access of a table; stored once as long as it is the same one."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self.first = 0  # the number of the first cluster; 0: none yet
        self._behind_first: ClusterNumbers | None = None  # offset of the numbers from those of the first cluster

    def put(self, cells: Cells | tuple[Cells, CellNumbers | int], clusters: int | ClusterNumbers) -> None:
        """Accesses were made by a cluster, or by one for each of them."""
        if self._behind_first is None:
            if isinstance(clusters, int) and self.first in (0, clusters):
                self.first = clusters
                return
            self._behind_first = np.zeros(self._shape, np.int32)
        self._behind_first[cells] = clusters - self.first

    def of(self, cells: Cells, stamps: Stamps, cluster: int) -> ClusterNumbers | None:
        """The clusters that made the accesses of cells, or of their slots; None where all are of one cluster."""
        if self._behind_first is not None:
            return self._behind_first[cells] + np.int32(self.first)
        return None if self.first == cluster else np.full(stamps.shape, self.first, np.int32)

    def are_all_of(self, cluster: int) -> bool:
        """Whether all accesses are of one cluster."""
        return self._behind_first is None and self.first == cluster

    def at(self, cell: int) -> int:
        """The cluster that made the access of one cell."""
        return self.first if self._behind_first is None else self.first + int(self._behind_first[cell])


class ReadTable:
    """The reads of cells, by slots.

    When all threads of a cluster know all reads of their shared memory, as after a barrier, no read matters any more.
    """

    def __init__(self, count: int, slots: int, *, is_shared: bool) -> None:
        self._stamps: Stamps = np.zeros((count, slots), np.int64)
        self._has_reads: npt.NDArray[np.bool_] = np.zeros(count, np.bool_)
        self._clusters = None if is_shared else Clusters((count, slots))
        self._is_empty = True
        self._newest = 0  # the largest stamp of a thread
        self._last_of_units: dict[int, int] = {}  # by column: its last epoch

    def put_threads(self, reads: Sequence[ThreadReads]) -> None:
        """Instructions read cells, each lane into its pair of slots: the first lane and the last one stay, of the last instruction."""
        cells, slots, stamps = (_in_a_row(pieces) for pieces in zip(*[one.by_cell() for one in reads], strict=True))
        clusters: int | ClusterNumbers = reads[0].cluster
        if any(one.cluster != clusters for one in reads):
            clusters = np.repeat(
                np.array([one.cluster for one in reads], np.int32), [len(one.slots) * one.at.each for one in reads]
            )
        self._newest = max(self._newest, int(stamps.max()))
        self._put((cells, slots + 1), stamps, clusters)
        if not all(one.at.are_distinct for one in reads):  # otherwise each lane is the first and the last one
            backwards = _lanes_backwards(reads)
            cells, slots, stamps = cells[backwards], slots[backwards], stamps[backwards]
            clusters = clusters if isinstance(clusters, int) else clusters[backwards]
        self._put((cells, slots), stamps, clusters)

    def put_unit(self, cells: Cells, slot: int, stamp: int, cluster: int) -> None:
        """A unit reads cells."""
        assert is_asynchronous(stamp)  # or it would pass for one of a thread
        column, epoch, _, _ = unpack_stamp(stamp)
        self._last_of_units[column] = max(self._last_of_units.get(column, 0), epoch)
        self._put((cells, slot), stamp, cluster)

    def _put(self, at: tuple[Cells, CellNumbers | int], stamps: Stamps | int, clusters: int | ClusterNumbers) -> None:
        self._is_empty = False
        self._has_reads[at[0]] = True
        self._stamps[at] = stamps
        if self._clusters is not None:
            self._clusters.put(at, clusters)

    @property
    def has_reads(self) -> npt.NDArray[np.bool_]:
        """Which cells were read since they were last written."""
        return self._has_reads

    def has_none_of(self, cells: Cells) -> bool:
        """Whether no thread has read cells since they were last written."""
        return self._is_empty or not self._has_reads[cells].any()

    def forget(self, cells: Cells) -> None:
        """Cells were written: clear their reads."""
        if not self._is_empty and self._has_reads[cells].any():
            self._has_reads[cells] = False
            self._stamps[cells] = 0

    def unknown(self, cells: Cells, accessor: Accessor, *, strong: bool) -> Unordered | None:
        """The reads of cells that are not ordered before the accessor."""
        if self._is_empty or self._is_settled(accessor):
            return None
        places = np.flatnonzero(self._has_reads[cells])
        if not len(places):
            return None
        read_cells = places + (cells.start or 0) if isinstance(cells, slice) else cells[places]
        stamps = self._stamps[read_cells]
        clusters = None if self._clusters is None else self._clusters.of(read_cells, stamps, accessor.cluster)
        if clusters is None and int(stamps.max()) < accessor.settled:
            return None
        is_unknown = (stamps != 0) & ~accessor.are_ordered(Seen(stamps, clusters), places)
        if strong:
            is_unknown &= ~is_strong(stamps)
        rows, slots = np.nonzero(is_unknown)
        if not len(rows):
            return None
        return Unordered(stamps[rows, slots], places[rows], None if clusters is None else clusters[rows, slots])

    def _is_settled(self, accessor: Accessor) -> bool:
        """Whether all reads happen before an accessor of shared memory; if before everybody, they are cleared."""
        if self._clusters is not None or self._newest >= accessor.settled:
            return False
        if not all(accessor.is_unit_ordered(column, epoch) for column, epoch in self._last_of_units.items()):
            return False
        if accessor.is_whole_cluster:  # stamps may stay: they happen before whoever finds them
            self._has_reads[:] = False
            self._is_empty = True
            self._newest = 0
            self._last_of_units.clear()
        return True


class CellTable:
    """The cells of one stretch of memory: a cluster's shared memory, or global memory, which several clusters access."""

    def __init__(self, count: int, warps: int, units: int, *, is_shared: bool = True) -> None:
        self.writes: Stamps = np.zeros(count, np.int64)
        self.write_clusters = None if is_shared else Clusters((count,))
        self.is_written = False
        self._newest_write = 0  # no stamp of `writes` is larger
        self._covered: Stamps | None = None  # plain writes that atomics have followed; 0: none
        self._covered_clusters = None if is_shared else Clusters((count,))
        self._thread_reads = ReadTable(count, 2 * warps, is_shared=is_shared)
        self._unit_reads = ReadTable(count, units, is_shared=is_shared)
        self._waiting: list[ThreadReads] = []
        self._cells_waiting = 0
        # All waiting reads are of these cells, each by its writer; None: not known.
        self._awaited_cells: Cells | None = None
        self.noncoherent: NoncoherentReads | None = None  # None: no thread has read them by ld.global.nc

    def last_writes(self, cells: Cells, cluster: int) -> Seen:
        """The last writes of cells, as somebody of a cluster finds them."""
        stamps = self.writes[cells]
        return Seen(stamps, None if self.write_clusters is None else self.write_clusters.of(cells, stamps, cluster))

    def unordered_writes(
        self, cells: Cells, accessor: Accessor, *, strong: bool = False, strong_abroad: bool = False
    ) -> Unordered | None:
        """The last writes of cells that are not ordered before the accessor; two strong accesses do not race.

        `strong_abroad`: of a strong accessor whose order matters in its own cluster, as that of lanes of one warp does.
        """
        if not self.is_written or (self._newest_write < accessor.settled and self._is_of_one(accessor.cluster)):
            return None
        seen = self.last_writes(cells, accessor.cluster)
        newest = int(seen.stamps.max(initial=0))
        if newest == 0 or (seen.clusters is None and _is_known(newest, seen.stamps, accessor)):
            return None
        if (strong or strong_abroad) and (is_strong(seen.stamps) | (seen.stamps == 0)).all():
            is_abroad = seen.clusters is not None and bool((seen.clusters != accessor.cluster).all())
            if strong or is_abroad:
                return None
        is_unknown = ~accessor.are_ordered(seen, None)
        if strong:
            is_unknown &= ~is_strong(seen.stamps)
        places = np.flatnonzero(is_unknown)
        if not len(places):
            return None
        return Unordered(seen.stamps[places], places, None if seen.clusters is None else seen.clusters[places])

    def unordered_covered(self, cells: Cells, accessor: Accessor) -> Unordered | None:
        """The plain writes below an atomic that are not ordered before the accessor."""
        if self._covered is None:
            return None
        stamps = self._covered[cells]
        if not stamps.any():
            return None
        kept_clusters = self._covered_clusters
        clusters = None if kept_clusters is None else kept_clusters.of(cells, stamps, accessor.cluster)
        is_unknown = (stamps != 0) & ~accessor.are_ordered(Seen(stamps, clusters), None)
        places = np.flatnonzero(is_unknown)
        if not len(places):
            return None
        return Unordered(stamps[places], places, None if clusters is None else clusters[places])

    def unordered_reads(self, cells: Cells, accessor: Accessor, *, strong: bool = False) -> Iterator[Unordered]:
        """The reads of cells since their last write that are not ordered before the accessor."""
        if self._waiting:
            if self._are_settled(self._waiting, accessor):
                self._forget_waiting()
            elif self._are_of_writers(self._waiting, cells, accessor):
                self._awaited_cells = cells
            else:
                self._put_waiting()
        for table in (self._thread_reads, self._unit_reads):
            unordered = table.unknown(cells, accessor, strong=strong)
            if unordered is not None:
                yield unordered

    def find_unwritten(self, cells: Cells) -> npt.NDArray[np.bool_]:
        """The cells that were never written."""
        return np.asarray(self.writes[cells] == 0)

    def write(self, cells: Cells, stamps: Stamps | int, cluster: int = 0) -> None:
        """Record a write of cells, each by a thread, or all by a unit; their reads are cleared."""
        if isinstance(stamps, int):
            assert is_asynchronous(stamps)
            newest = first = stamps
        else:
            first = int(stamps.flat[0]) if stamps.size else 0  # all stamps of a write are of one instruction
            newest = int(stamps.max(initial=0))
        if self._awaited_cells is cells:
            self._forget_waiting()  # the write clears all of them
        self._put_waiting()
        if self.is_written:
            self._cover(cells, is_by_atomic=unpack_stamp(first).is_strong, cluster=cluster)
        self.is_written = True
        self._newest_write = max(self._newest_write, newest)
        self.writes[cells] = stamps
        if self.write_clusters is not None:
            self.write_clusters.put(cells, cluster)
        self._thread_reads.forget(cells)
        self._unit_reads.forget(cells)

    def _cover(self, cells: Cells, *, is_by_atomic: bool, cluster: int) -> None:
        """Keep the plain writes that an atomic follows; another plain write replaces them."""
        if not is_by_atomic:
            if self._covered is not None:
                self._covered[cells] = 0
            return
        last = self.last_writes(cells, cluster)
        is_plain = (last.stamps != 0) & ~is_strong(last.stamps)
        if not is_plain.any():
            return
        if self._covered is None:
            self._covered = np.zeros(len(self.writes), np.int64)
        numbers = (np.arange(cells.start, cells.stop) if isinstance(cells, slice) else cells)[is_plain]
        self._covered[numbers] = last.stamps[is_plain]
        if self._covered_clusters is not None:
            self._covered_clusters.put(numbers, cluster if last.clusters is None else last.clusters[is_plain])

    def restamp(self, cells: Cells, before: int, after: int) -> None:
        """Replace a stamp where it still is the last write."""
        stamps = self.writes[cells]
        self.writes[cells] = np.where(stamps == before, after, stamps)
        self._newest_write = max(self._newest_write, after)

    def read_by_threads(self, reads: ThreadReads) -> None:
        """Record reads; for lanes that share a pair of slots, the first and the last one of an instruction."""
        self._waiting.append(reads)
        self._awaited_cells = None
        self._cells_waiting += len(reads.slots) * reads.at.each
        if self._cells_waiting > _MOST_WAITING:
            self._put_waiting()

    def read_by_unit(self, cells: Cells, unit: int, stamp: int, cluster: int = 0) -> None:
        """Record a read by a unit, which lasts until somebody waits for it."""
        self._unit_reads.put_unit(cells, unit, stamp, cluster)

    def past_accesses(self) -> PastAccesses | None:
        """All accesses of clusters that have ended; None if there are none."""
        self._put_waiting()
        is_read = self._thread_reads.has_reads | self._unit_reads.has_reads
        if not self.is_written and not is_read.any():
            return None
        written = np.flatnonzero(self.writes)
        return PastAccesses(written, self.last_writes(written, cluster=-1), is_read, self._covered is not None)

    def put_last_writes(self, cells: CellNumbers, stamps: Stamps, clusters: ClusterNumbers) -> None:
        """Record the last writes of clusters that have ended."""
        assert self.write_clusters is not None
        self.is_written = True
        self.writes[cells] = stamps
        self._newest_write = max(self._newest_write, int(stamps.max(initial=0)))
        self.write_clusters.put(cells, clusters)

    def _put_waiting(self) -> None:
        """Put waiting reads into their slots; of instructions that share a slot the last one counts."""
        if self._waiting:
            self._thread_reads.put_threads(self._waiting)
            self._forget_waiting()

    def _are_settled(self, waiting: Sequence[ThreadReads], accessor: Accessor) -> bool:
        """Whether waiting reads happen before everybody who can access shared memory."""
        if self.write_clusters is not None or not accessor.is_whole_cluster:
            return False
        return max(reads.newest for reads in waiting) < accessor.settled

    def _are_of_writers(self, waiting: Sequence[ThreadReads], cells: Cells, accessor: Accessor) -> bool:
        """Whether all that is known to have read cells which lanes write now is each of these lanes itself."""
        if isinstance(cells, slice) or len(waiting) > _MOST_OWN_READS or not self._thread_reads.has_none_of(cells):
            return False
        return all(
            reads.at.are_distinct
            and reads.cluster in (0, accessor.cluster)
            and np.array_equal(reads.at.cells, cells)
            and accessor.has_made(reads.stamps)
            for reads in waiting
        )

    def _is_of_one(self, cluster: int) -> bool:
        """Whether one cluster has made all writes: of shared memory its own."""
        return self.write_clusters is None or self.write_clusters.are_all_of(cluster)

    def _forget_waiting(self) -> None:
        self._waiting.clear()
        self._cells_waiting = 0
        self._awaited_cells = None


def _is_known(newest: int, stamps: Stamps, accessor: Accessor) -> bool:
    """Whether writes of its own cluster happen before an accessor, as far as one comparison can decide."""
    if newest < accessor.settled:
        return True
    if not is_asynchronous(newest):
        return accessor.has_made(stamps)
    if int(stamps.min()) != newest:
        return False
    column, epoch, _, _ = unpack_stamp(newest)
    return accessor.is_unit_ordered(column, epoch)


def _in_a_row(pieces: Sequence[npt.NDArray[Number]]) -> npt.NDArray[Number]:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _lanes_backwards(reads: Sequence[ThreadReads]) -> CellNumbers:
    """The cells of instructions one after another, in each of them from the last lane to the first."""
    ends = np.cumsum([len(one.slots) * one.at.each for one in reads]).tolist()
    return _in_a_row([np.arange(start, end)[::-1] for start, end in itertools.pairwise([0, *ends])])
