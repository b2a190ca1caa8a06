"""Who accesses shadow memory now, and what happens before that: threads, one for each cell, or one unit for all cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.epoch import Stamp, Stamps, columns_of, epochs_of, settled_end
from tilescope.sync.footprint import CellNumbers
from tilescope.sync.lane_clocks import LaneClocks
from tilescope.sync.shadow.shadow_cells import Seen
from tilescope.sync.vector_clock import HAPPENS_BEFORE, Vector, Vectors

Flags = npt.NDArray[np.bool_]


@dataclass(slots=True, eq=False)
class Threads:
    """Threads, each with the same number of cells."""

    clocks: LaneClocks
    lanes: LaneNumbers
    cells_of_lane: int = 1
    vector: int = HAPPENS_BEFORE

    @property
    def cluster(self) -> int:
        """The number of their cluster."""
        return self.clocks.cluster

    @property
    def settled(self) -> int:
        """All accesses of their cluster with smaller stamps happen before each of them."""
        return self.clocks.settled(self.lanes) if self.vector == HAPPENS_BEFORE else settled_end(0)

    @property
    def is_whole_cluster(self) -> bool:
        """Whether all threads of the cluster have this clock."""
        return self.vector == HAPPENS_BEFORE and self.clocks.is_common(self.lanes)

    def has_made(self, stamps: Stamps) -> bool:
        """Whether each lane, or a stamp for each lane, has made the accesses to its own cells."""
        lanes = self.lanes if len(stamps) == len(self.lanes) else self.lanes.repeat(self.cells_of_lane)
        return len(stamps) == len(lanes) and bool((columns_of(stamps) == lanes).all())

    def is_unit_ordered(self, column: int, epoch: int) -> bool:
        """Whether a unit, up to an epoch, happens before all of them; their own copies do not count."""
        return self.clocks.is_ordered_for_all(self.lanes, column, epoch)

    def are_ordered(self, seen: Seen, places: CellNumbers | None) -> Flags:
        """Whether each access happens before that of its thread."""
        if places is not None:
            lanes = self.lanes[places // self.cells_of_lane]
        else:
            lanes = self.lanes.repeat(self.cells_of_lane)
        columns = columns_of(seen.stamps)
        epochs = epochs_of(seen.stamps)
        if seen.clusters is None:
            return self.clocks.is_ordered(lanes, columns, epochs, self.vector)
        is_foreign = (seen.clusters != self.clocks.cluster) & (epochs > 0)
        if not is_foreign.any():
            return self.clocks.is_ordered(lanes, np.where(epochs > 0, columns, 0), epochs, self.vector)
        is_before = self.clocks.is_ordered(
            lanes, np.where(is_foreign, 0, columns), np.where(is_foreign, 0, epochs), self.vector
        )
        for is_last_look in (False, True):
            if is_last_look:
                self.clocks.join_acquired(lanes)
            rows = self.clocks.row_of_lane[lanes]
            for row in np.unique(rows).tolist():
                chosen = is_foreign & ((rows == row) if columns.ndim == 1 else (rows == row)[:, None])
                is_before[chosen] = _are_others_ordered(self.clocks.others[row], _find_known, seen, chosen)
            if self.clocks.pending is None or is_before[is_foreign].all():
                break
        return is_before


@dataclass(frozen=True, slots=True)
class Unit:
    """A copy or a tensor core, with the clock of its issuer, and what is visible to it.

    Through the async proxy it sees accesses of threads that were fenced (`proxy` has the place), and of everything else
    what is ordered.
    """

    clocks: LaneClocks
    vectors: Vectors
    others: dict[int, Vectors]
    proxy: int = HAPPENS_BEFORE
    # Kinds of columns that need a fence: threads; with 2 their cp.async too, which tensor cores need not.
    fenced_kinds: int = 1

    @property
    def cluster(self) -> int:
        """The number of its cluster."""
        return self.clocks.cluster

    @property
    def settled(self) -> int:
        """No bound: use `are_ordered`."""
        return settled_end(0)

    @property
    def is_whole_cluster(self) -> bool:
        """False: the clock belongs only to its issuer."""
        return False

    def has_made(self, stamps: Stamps) -> bool:
        """False: use `are_ordered`."""
        return False

    def is_unit_ordered(self, column: int, epoch: int) -> bool:
        """Whether another unit, up to an epoch, happens before it."""
        return column < self.vectors.shape[1] and bool(self.vectors[HAPPENS_BEFORE, column] >= epoch)

    def find_visible(self, vectors: Vectors) -> Vector:
        """By column of a cluster's clock: the last epoch that is visible to it.

        Threads need a fence. Bulk copies need none: their completion includes a proxy fence.
        """
        if self.proxy == HAPPENS_BEFORE:
            return np.asarray(vectors[HAPPENS_BEFORE])
        visible = np.array(vectors[HAPPENS_BEFORE])
        end = self.fenced_kinds * self.clocks.lane_count  # all clusters of a launch have the same number of lanes
        visible[:end] = vectors[self.proxy, :end]
        return visible

    def happens_after(self, stamp: Stamp, cluster: int | None) -> bool:
        """Whether it happens after an access, visible or not; `cluster`: of another cluster."""
        vectors = self.vectors if cluster is None else self.others.get(cluster)
        if vectors is None or stamp.column >= vectors.shape[1]:
            return False
        return bool(vectors[HAPPENS_BEFORE, stamp.column] >= stamp.epoch)

    def are_ordered(self, seen: Seen, places: CellNumbers | None) -> Flags:
        """Whether each access happens before it, and is visible to it."""
        columns = columns_of(seen.stamps)
        epochs = epochs_of(seen.stamps)
        visible = self.find_visible(self.vectors)
        if seen.clusters is None:
            return np.asarray(visible[columns] >= epochs)
        is_foreign = (seen.clusters != self.cluster) & (epochs > 0)
        is_before = visible[np.where(is_foreign | (epochs == 0), 0, columns)] >= np.where(is_foreign, 0, epochs)
        if is_foreign.any():
            is_before[is_foreign] = _are_others_ordered(self.others, self.find_visible, seen, is_foreign)
        return np.asarray(is_before)


def _find_known(vectors: Vectors) -> Vector:
    """By column of a cluster's clock: the last epoch that happens before."""
    known: Vector = vectors[HAPPENS_BEFORE]
    return known


def _are_others_ordered(
    others: dict[int, Vectors], find_last: Callable[[Vectors], Vector], seen: Seen, chosen: Flags
) -> Flags:
    """Whether accesses of other clusters happen before; `find_last` finds the last epoch of each column that does."""
    assert seen.clusters is not None
    stamps = seen.stamps[chosen]
    clusters = seen.clusters[chosen]
    is_before = np.zeros(len(stamps), np.bool_)
    for cluster in np.unique(clusters).tolist():
        vectors = others.get(cluster)
        if vectors is None:
            continue
        vector = find_last(vectors)
        of_cluster = clusters == cluster
        columns = columns_of(stamps[of_cluster])
        is_heard_of = columns < len(vector)
        epochs = epochs_of(stamps[of_cluster])
        is_before[of_cluster] = is_heard_of & (vector[np.minimum(columns, len(vector) - 1)] >= epochs)
    return is_before
