"""What every thread of a cluster knows to have happened before: clocks of all others, kept once for threads that know the same.

    columns    threads | their cp.async | their bulk reads | their bulk writes | warpgroups (wgmma) | mbarriers …
    known      the last epoch of each column that happened before
    fenced     the same, but made visible to the async proxy by a fence.proxy.async on the way

Threads that met at a barrier know the same, so they share one row. A thread's own columns are not in it: what it did
itself it always knows, and what its own copies did it knows when it has waited for them.

        bar.sync            every thread learns what each of them knows: one row for all
        mbarrier            an arrival adds what its thread knows; who sees the phase end takes all of it
        fence.proxy.async   fenced = known
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.machine.order.stamp import COLUMN_END, Columns, Epochs
from tilescope.machine.step import LaneNumbers

Vector = npt.NDArray[np.int32]

THREAD, CP_ASYNC, BULK_READ, BULK_WRITE = range(4)
OWN_KINDS = 4  # columns that every thread has
ALWAYS = np.int32(2**31 - 1)  # an epoch that is never reached: everything of that column is known
_FIRST_BARRIERS = 32
_FIRST_ROWS = 4


class Clock(NamedTuple):
    """What a release hands on: the clocks of its own cluster, and those of other clusters that it has heard of."""

    cluster: int
    known: Vector
    fenced: Vector
    others: dict[int, tuple[Vector, Vector]]  # by cluster: known, fenced


def joined(one: Clock | None, other: Clock) -> Clock:
    """Both clocks of one cluster in one."""
    if one is None:
        return other
    others = dict(one.others)
    for cluster, (known, fenced) in other.others.items():
        others[cluster] = _later(others.get(cluster), known, fenced)
    known, fenced = _later((one.known, one.fenced), other.known, other.fenced)
    return Clock(one.cluster, known, fenced, others)


def _later(held: tuple[Vector, Vector] | None, known: Vector, fenced: Vector) -> tuple[Vector, Vector]:
    if held is None:
        return known, fenced
    return _maximum(held[0], known), _maximum(held[1], fenced)


def _maximum(one: Vector, other: Vector) -> Vector:
    """The later of two clocks; columns that one has not heard of are those of the other."""
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    result = longer.copy()
    np.maximum(result[: len(shorter)], shorter, out=result[: len(shorter)])
    return result


class Knowledge:
    """The clocks of all threads of one cluster."""

    def __init__(self, cluster: int, lane_count: int, warpgroups: int) -> None:
        self.cluster = cluster
        self.lane_count = lane_count
        self.first_warpgroup = OWN_KINDS * lane_count
        self.first_barrier = self.first_warpgroup + warpgroups
        self.columns = self.first_barrier
        width = self.columns + _FIRST_BARRIERS
        self.known = np.zeros((_FIRST_ROWS, width), np.int32)
        self.fenced = np.zeros((_FIRST_ROWS, width), np.int32)
        self.others: list[dict[int, tuple[Vector, Vector]]] = [{} for _ in range(_FIRST_ROWS)]
        self.row_of_lane: npt.NDArray[np.intp] = np.zeros(lane_count, np.intp)
        self._lanes_of_row = [lane_count] + [0] * (_FIRST_ROWS - 1)
        # Of threads: the epoch of what they do now. Of their copies: what they know to be finished.
        self.own: Vector = np.zeros(OWN_KINDS * lane_count, np.int32)
        self.own[:lane_count] = 1
        self.own_fenced: Vector = np.zeros(OWN_KINDS * lane_count, np.int32)

    # Columns and rows ----------------------------------------------------------------------------------------------

    def new_column(self) -> int:
        """A column for another mbarrier."""
        column = self.columns
        self.columns += 1
        if self.columns > self.known.shape[1]:
            more = np.zeros((len(self.known), self.known.shape[1] - self.first_barrier), np.int32)
            self.known = np.hstack([self.known, more])
            self.fenced = np.hstack([self.fenced, more])
        return min(column, COLUMN_END - 1)

    def rows_alone(self, lanes: LaneNumbers) -> list[int]:
        """The rows of some lanes, which nobody else shares from now on."""
        rows, counts = np.unique(self.row_of_lane[lanes], return_counts=True)
        alone = []
        for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
            if count < self._lanes_of_row[row]:
                leaving = lanes[self.row_of_lane[lanes] == row]
                alone.append(self._move(leaving, row, self.known[row], self.fenced[row], self.others[row]))
            else:
                alone.append(row)
        return alone

    def _move(
        self, lanes: LaneNumbers, row: int, known: Vector, fenced: Vector, others: dict[int, tuple[Vector, Vector]]
    ) -> int:
        """Put lanes of one row into a row of their own."""
        new = self._free_row()
        self.known[new] = known
        self.fenced[new] = fenced
        self.others[new] = dict(others)
        self.row_of_lane[lanes] = new
        self._lanes_of_row[new] = len(lanes)
        self._lanes_of_row[row] -= len(lanes)
        return new

    def _free_row(self) -> int:
        for row, count in enumerate(self._lanes_of_row):
            if count == 0:
                return row
        rows = len(self._lanes_of_row)
        self.known = np.vstack([self.known, np.zeros_like(self.known)])
        self.fenced = np.vstack([self.fenced, np.zeros_like(self.fenced)])
        self.others += [{} for _ in range(rows)]
        self._lanes_of_row += [0] * rows
        return rows

    # What is handed on ---------------------------------------------------------------------------------------------

    def clock(self, lanes: LaneNumbers, own_epochs: Vector | None = None) -> Clock:
        """What some lanes know together; of themselves what they did up to now, or up to some epochs."""
        rows = np.unique(self.row_of_lane[lanes])
        known = self.known[rows].max(axis=0)
        fenced = self.fenced[rows].max(axis=0)
        columns = (np.arange(OWN_KINDS)[:, None] * self.lane_count + lanes).ravel()
        own = self.own[columns]
        if own_epochs is not None:
            own[: len(lanes)] = own_epochs
        known[columns] = np.maximum(known[columns], own)
        fenced[columns] = np.maximum(fenced[columns], self.own_fenced[columns])
        others: dict[int, tuple[Vector, Vector]] = {}
        for row in rows.tolist():
            for cluster, (their_known, their_fenced) in self.others[row].items():
                others[cluster] = _later(others.get(cluster), their_known, their_fenced)
        return Clock(self.cluster, known, fenced, others)

    def release(self, lanes: LaneNumbers) -> Clock:
        """What some lanes hand on; what they do from now on is not part of it."""
        clock = self.clock(lanes)
        self.own[lanes] += 1
        return clock

    def acquire(self, lanes: LaneNumbers, clock: Clock) -> None:
        """Some lanes learn what a release handed on."""
        if clock.cluster == self.cluster and not clock.others and self._covers(lanes, clock):
            return
        width = len(clock.known)
        for row in self.rows_alone(lanes):
            if clock.cluster == self.cluster:
                np.maximum(self.known[row, :width], clock.known, out=self.known[row, :width])
                np.maximum(self.fenced[row, :width], clock.fenced, out=self.fenced[row, :width])
            else:
                self._hear_of(row, clock.cluster, clock.known, clock.fenced)
            for cluster, (known, fenced) in clock.others.items():
                self._hear_of(row, cluster, known, fenced)

    def _hear_of(self, row: int, cluster: int, known: Vector, fenced: Vector) -> None:
        if cluster == self.cluster:
            np.maximum(self.known[row, : len(known)], known, out=self.known[row, : len(known)])
            np.maximum(self.fenced[row, : len(fenced)], fenced, out=self.fenced[row, : len(fenced)])
        else:
            others = self.others[row]
            others[cluster] = _later(others.get(cluster), known, fenced)

    def _covers(self, lanes: LaneNumbers, clock: Clock) -> bool:
        """Whether lanes of one row know all of a clock already."""
        rows = self.row_of_lane[lanes]
        row = rows[0]
        if (rows != row).any():
            return False
        width = len(clock.known)
        return bool((self.known[row, :width] >= clock.known).all() and (self.fenced[row, :width] >= clock.fenced).all())

    def meet(self, lanes: LaneNumbers, clock: Clock) -> None:
        """Lanes that all gave what they know to a clock share it from now on."""
        rows, counts = np.unique(self.row_of_lane[lanes], return_counts=True)
        for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
            self._lanes_of_row[row] -= count
        new = self._free_row()
        self.known[new] = 0
        self.fenced[new] = 0
        self.known[new, : len(clock.known)] = clock.known
        self.fenced[new, : len(clock.fenced)] = clock.fenced
        self.others[new] = dict(clock.others)
        self.row_of_lane[lanes] = new
        self._lanes_of_row[new] = len(lanes)

    def learn(self, lanes: LaneNumbers, column: int, epoch: int) -> None:
        """Some lanes learn that a column has come to an epoch."""
        if (self.known[self.row_of_lane[lanes], column] >= epoch).all():
            return
        for row in self.rows_alone(lanes):
            self.known[row, column] = max(self.known[row, column], epoch)

    def fence(self, lanes: LaneNumbers) -> None:
        """fence.proxy.async: all that some lanes know is visible to the async proxy."""
        rows = np.unique(self.row_of_lane[lanes])
        if (self.fenced[rows] < self.known[rows]).any():
            for row in self.rows_alone(lanes):
                np.maximum(self.fenced[row], self.known[row], out=self.fenced[row])
        columns = (np.arange(OWN_KINDS)[:, None] * self.lane_count + lanes).ravel()
        self.own_fenced[columns] = self.own[columns]
        self.own[lanes] += 1

    # Questions -----------------------------------------------------------------------------------------------------

    def is_known(self, lanes: LaneNumbers, columns: Columns, epochs: Epochs) -> npt.NDArray[np.bool_]:
        """For each lane one or several columns and epochs: whether they happened before what it does now."""
        rows = self.row_of_lane[lanes]
        if (rows == rows[0]).all():
            known = self.known[rows[0]][columns] >= epochs
        elif columns.ndim > 1:
            known = self.known[rows[:, None], columns] >= epochs
        else:
            known = self.known[rows, columns] >= epochs
        if known.all():
            return np.asarray(known)
        own_lanes = lanes[:, None] if columns.ndim > 1 else lanes
        is_own = (columns < self.first_warpgroup) & (columns % self.lane_count == own_lanes)
        own_columns = np.minimum(columns, self.first_warpgroup - 1)
        is_done = (columns < self.lane_count) | (self.own[own_columns] >= epochs)
        return np.asarray(known | (is_own & is_done))

    def view(self, lane: int) -> tuple[Vector, Vector]:
        """(known, fenced) of one lane, its own columns included."""
        row = self.row_of_lane[lane]
        known = self.known[row].copy()
        fenced = self.fenced[row].copy()
        columns = np.arange(OWN_KINDS) * self.lane_count + lane
        known[columns] = np.maximum(known[columns], self.own[columns])
        known[lane] = ALWAYS
        fenced[columns] = np.maximum(fenced[columns], self.own_fenced[columns])
        return known, fenced

    def warpgroup_view(self, lanes: LaneNumbers, warp_lanes: int) -> tuple[Vector, Vector]:
        """(known, fenced) of a warpgroup: what some lane of each of its warps has."""
        rows = self.row_of_lane[lanes]
        if (rows == rows[0]).all():
            return self.known[rows[0]], self.fenced[rows[0]]
        views = []
        for first in range(0, len(lanes), warp_lanes):
            warp = lanes[first : first + warp_lanes]
            clock = self.clock(warp)
            clock.known[warp] = ALWAYS
            views.append((clock.known, clock.fenced))
        known = np.minimum.reduce([view[0] for view in views])
        fenced = np.minimum.reduce([view[1] for view in views])
        return known, fenced
