"""The vector clocks (vector_clock.py) of all threads of one cluster; threads with equal clocks share one row.

Threads that synchronize at a barrier have equal clocks afterwards. A thread's own columns are not in its row: its own accesses
always happen before, and its own copies once it has waited for them.

    bar.sync            joins the clocks of all threads: one row for everybody
    mbarrier            an arrival releases its thread's clock into the phase; a wait acquires the completed phase
    fence.proxy.async   copies HAPPENS_BEFORE to ASYNC_…
    shfl.sync, wgmma …  lanes converge: EXECUTED alone is joined, since no memory is ordered

This class serves one run, whose data is known: it is mutable and compares thousands of epochs with one integer
(`settled`). `role_clocks` serves the search over all orders.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.sync.cluster_shape import WARPGROUP_LANES, LaneNumbers
from tilescope.sync.epoch import COLUMN_END, Columns, Epochs, Stamps, pack_stamps, settled_end, stamp_of_epoch
from tilescope.sync.pending_nodes import LaneNodes, PendingNodes
from tilescope.sync.release_graph import NO_NODE, Asking, Indices, Nodes, ReleaseGraph, Releases
from tilescope.sync.vector_clock import (
    EXECUTED,
    HAPPENS_BEFORE,
    NO_CLOCKS,
    SCOPED,
    Knowledge,
    OtherClocks,
    Pending,
    Resolved,
    ThreadEpochs,
    Vector,
    VectorClock,
    Vectors,
)

THREAD, CP_ASYNC, BULK_READ, BULK_WRITE = range(4)
OWN_KINDS = 4  # columns that every thread has
ALWAYS = np.int32(2**31 - 1)  # later than any epoch: everything of that column happens before
_FIRST_BARRIERS = 32
_FIRST_ROWS = 4


def _fence_vectors(vectors: Vectors, vector: int) -> Vectors:
    """The same clock, with all that happens before visible to the async proxy; a release may share the old one."""
    fenced = vectors.copy()
    np.maximum(fenced[vector], fenced[HAPPENS_BEFORE], out=fenced[vector])
    return fenced


class LaneClocks:
    """The vector clocks of all threads of one cluster."""

    def __init__(self, cluster: int, lane_count: int, warpgroups: int, *, has_scopes: bool = False) -> None:
        self.cluster = cluster
        self.pending: PendingNodes | None = None  # None: nothing of the graph of releases was acquired
        self._knowledge: dict[int, Knowledge] = {}  # by row, as long as it does not change
        self._resolved: dict[int, Resolved] = {}  # by row: what was joined of the graph
        self._has_released: npt.NDArray[np.bool_] = np.zeros(lane_count, np.bool_)  # by lane: through a word
        # By lane: the last epoch that others could learn of before it ended, and the first node of the graph that may include it.
        self._published: Vector = np.zeros(lane_count, np.int32)
        self._published_from: Nodes = np.zeros(lane_count, np.int64)
        self.lane_count = lane_count
        self.has_scopes = has_scopes
        self._vectors = SCOPED + 1 if has_scopes else SCOPED
        self.first_warpgroup = OWN_KINDS * lane_count
        self.first_barrier = self.first_warpgroup + warpgroups
        self.columns = self.first_barrier
        self._rows: npt.NDArray[np.int32] = np.zeros(
            (_FIRST_ROWS, self._vectors, self.columns + _FIRST_BARRIERS), np.int32
        )
        self.others: list[OtherClocks] = [NO_CLOCKS] * _FIRST_ROWS  # by row
        # By row and cluster: what was joined last into `others`; many releases carry the same array.
        self._last_joined: list[dict[int, Vectors]] = [{} for _ in range(_FIRST_ROWS)]
        self.row_of_lane: npt.NDArray[np.intp] = np.zeros(lane_count, np.intp)
        self._lanes_of_row = [lane_count] + [0] * (_FIRST_ROWS - 1)
        # HAPPENS_BEFORE, of threads: their current epoch; of their copies: the last epoch they have waited for.
        self._own: npt.NDArray[np.int32] = np.zeros((self._vectors, OWN_KINDS * lane_count), np.int32)
        self._own[HAPPENS_BEFORE, :lane_count] = 1
        self._own_epochs: Vector = self._own[HAPPENS_BEFORE]
        self._own_epochs.flags.writeable = False
        self._time = 1  # the newest epoch of any thread
        self._thread_columns: Columns = np.arange(lane_count)
        self.thread_stamps: Stamps = pack_stamps(0, self._thread_columns, self._time)  # of the current epoch of each
        self._settled: list[int | None] = [None] * _FIRST_ROWS  # by row; None: to be found
        # The last answer of _row_of; None: lanes have moved since.
        self._row_found: tuple[LaneNumbers, int | None] | None = None
        # By group size (a warp, a warpgroup): lanes that have acquired something since their group last converged.
        self._unshared: dict[int, npt.NDArray[np.bool_]] = {}

    @property
    def own(self) -> Vector:
        """By column of a thread: its current epoch, and the last epoch of its own copies that it has waited for; read-only."""
        return self._own_epochs

    def complete_own(self, columns: LaneNumbers, epochs: Vector | LaneNumbers) -> None:
        """Threads have waited for their own copies up to some epochs."""
        self._own[HAPPENS_BEFORE, columns] = np.maximum(self._own[HAPPENS_BEFORE, columns], epochs)

    @property
    def newest_stamp(self) -> int:
        """The largest stamp that a thread can have left."""
        return settled_end(self._time) - 1

    def advance(self, lanes: LaneNumbers) -> None:
        """Begin a new epoch of some lanes."""
        self._time += 1
        if len(lanes) == self.lane_count:
            self._own[HAPPENS_BEFORE, : self.lane_count] = self._time
            self.thread_stamps = self._thread_columns | stamp_of_epoch(self._time)
            return
        self._own[HAPPENS_BEFORE, lanes] = self._time
        self.thread_stamps[lanes] = lanes | stamp_of_epoch(self._time)

    def new_column(self) -> int:
        """A column for one more barrier."""
        column = self.columns
        self.columns += 1
        if self.columns > self._rows.shape[2]:
            new_columns = np.zeros((*self._rows.shape[:2], self._rows.shape[2] - self.first_barrier), np.int32)
            self._rows = np.concatenate([self._rows, new_columns], axis=2)
        return min(column, COLUMN_END - 1)

    def time_known_to(self, lanes: LaneNumbers, column: int, vector: int = HAPPENS_BEFORE) -> Vector:
        """The last epoch of a column that happens before each lane; the column is not its own."""
        if vector == EXECUTED:
            self.join_pending(lanes)
        else:
            self.join_acquired(lanes)
        epochs: Vector = self._rows[self.row_of_lane[lanes], vector, column]
        return epochs

    def is_time_known_to(
        self, lanes: LaneNumbers, column: int, epochs: Vector, vector: int = HAPPENS_BEFORE
    ) -> npt.NDArray[np.bool_]:
        """Whether a column, up to an epoch of each lane, happens before it; the column is not its own."""
        is_known = np.asarray(self._rows[self.row_of_lane[lanes], vector, column] >= epochs)
        if self.pending is None or is_known.all():
            return is_known
        return np.asarray(self.time_known_to(lanes, column, vector) >= epochs)

    def least_known_to(self, lanes: LaneNumbers, column: int, vector: int = HAPPENS_BEFORE) -> int:
        """The last epoch of a column that is sure to happen before all of some lanes; the column is not theirs."""
        row = self._row_of(lanes)
        if row is not None:
            return int(self._rows[row, vector, column])
        return int(self._rows[self.row_of_lane[lanes], vector, column].min())

    def _row_of(self, lanes: LaneNumbers) -> int | None:
        """The row that some lanes share; None if they have several."""
        found = self._row_found
        if found is not None and found[0] is lanes:
            return found[1]
        row = int(self.row_of_lane[lanes[0]])
        is_shared = self._lanes_of_row[row] == self.lane_count or bool((self.row_of_lane[lanes] == row).all())
        self._row_found = (lanes, row if is_shared else None)
        return self._row_found[1]

    def _rows_of(self, lanes: LaneNumbers) -> list[int]:
        """The rows of some lanes, each once."""
        row = self._row_of(lanes)
        rows: list[int] = np.unique(self.row_of_lane[lanes]).tolist() if row is None else [row]
        return rows

    def _rows_alone(self, lanes: LaneNumbers) -> list[int]:
        """The rows of some lanes, copied so that no other lane shares them."""
        row = self._row_of(lanes)
        if row is not None and self._lanes_of_row[row] == len(lanes):
            return [row]
        row_of_each = self.row_of_lane[lanes]
        alone = []
        for row, count in enumerate(np.bincount(row_of_each).tolist()):
            if not count:
                continue
            if count == self._lanes_of_row[row]:
                alone.append(row)
                continue
            leaving = lanes if count == len(lanes) else lanes[row_of_each == row]
            new = self._free_row()
            self._rows[new] = self._rows[row]
            self.others[new] = self.others[row]
            self._last_joined[new] = dict(self._last_joined[row])
            self._settled[new] = self._settled[row]
            self._knowledge.pop(new, None)
            self._set_resolved(new, self._resolved.get(row))
            self._lanes_of_row[row] -= count
            self._settle(leaving, new)
            alone.append(new)
        return alone

    def _are_equal(self, rows: list[int]) -> bool:
        """Whether rows are equal; those with clocks of other clusters are not compared."""
        if any(self.others[row] for row in rows):
            return False
        return bool((self._rows[rows[1:]] == self._rows[rows[0]]).all())

    def _settle(self, lanes: LaneNumbers, row: int) -> None:
        self.row_of_lane[slice(None) if len(lanes) == self.lane_count else lanes] = row
        self._row_found = None
        self._lanes_of_row[row] = len(lanes)

    def _free_row(self) -> int:
        for row, count in enumerate(self._lanes_of_row):
            if count == 0:
                return row
        rows = len(self._lanes_of_row)
        self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self.others += [NO_CLOCKS] * rows
        self._last_joined += [{} for _ in range(rows)]
        self._settled += [None] * rows
        self._lanes_of_row += [0] * rows
        return rows

    def _own_columns(self, lanes: LaneNumbers) -> LaneNumbers | slice:
        """The columns of some lanes, kind by kind; those of all lanes, which ascend, follow each other."""
        if len(lanes) == self.lane_count and (lanes[1:] > lanes[:-1]).all():
            return slice(0, OWN_KINDS * self.lane_count)
        return (np.arange(OWN_KINDS)[:, None] * self.lane_count + lanes).ravel()

    def clock(self, lanes: LaneNumbers, own_epochs: Vector | None = None) -> VectorClock:
        """The join of the clocks of some lanes; of themselves up to now, or up to given epochs."""
        self._note_publication(lanes)
        self.join_pending(lanes)
        return self._clock(lanes, own_epochs)

    def _clock(self, lanes: LaneNumbers, own_epochs: Vector | None = None) -> VectorClock:
        """The same, without what is pending."""
        rows = self._rows_of(lanes)
        vectors = self._rows[rows[0]].copy() if len(rows) == 1 else self._rows[rows].max(axis=0)
        others = self.others[rows[0]]
        for row in rows[1:]:
            others = others.join(self.others[row])
        if own_epochs is None and len(lanes) == self.lane_count:
            self._join_own_of_all(vectors)
        else:
            columns = self._own_columns(lanes)
            own_vectors = np.array(self._own[:, columns])
            own_vectors[EXECUTED, : len(lanes)] = own_vectors[HAPPENS_BEFORE, : len(lanes)]
            if own_epochs is not None:
                own_vectors[HAPPENS_BEFORE, : len(lanes)] = own_epochs
            own_vectors[SCOPED:] = own_vectors[HAPPENS_BEFORE]
            vectors[:, columns] = np.maximum(vectors[:, columns], own_vectors)
        return VectorClock(self.cluster, vectors, others)

    def _join_own_of_all(self, vectors: Vectors) -> None:
        """Join the own columns of all lanes into a clock, in place: what a barrier of the whole cluster releases."""
        part = vectors[:, : self.first_warpgroup]
        np.maximum(part, self._own, out=part)
        executed = part[EXECUTED, : self.lane_count]
        np.maximum(executed, self._own[HAPPENS_BEFORE, : self.lane_count], out=executed)
        if self.has_scopes:
            np.maximum(part[SCOPED], self._own[HAPPENS_BEFORE], out=part[SCOPED])

    def clock_of(self, columns: LaneNumbers, epochs: Vector | LaneNumbers) -> VectorClock:
        """A clock with epochs for some columns, and nothing else."""
        vectors = np.zeros((self._vectors, self.columns), np.int32)
        vectors[HAPPENS_BEFORE, columns] = epochs
        vectors[SCOPED:, columns] = epochs
        vectors[EXECUTED, columns] = epochs
        return VectorClock(self.cluster, vectors, NO_CLOCKS)

    def release_execution(self, lanes: LaneNumbers) -> VectorClock:
        """The completed accesses when some lanes do something that releases no memory; they begin a new epoch."""
        clock = self.release(lanes)
        return clock.only_executed()

    def release(self, lanes: LaneNumbers) -> VectorClock:
        """Release: the clock of some lanes, which begin a new epoch."""
        self.join_pending(lanes)
        clock = self._clock(lanes)
        self.advance(lanes)
        return clock

    def acquire(self, lanes: LaneNumbers, clock: VectorClock) -> None:
        """Acquire: join a released clock into those of some lanes."""
        if self._covers(lanes, clock):
            return
        self.note_unshared(lanes)
        for row in self._rows_alone(lanes):
            self.others[row] = self.others[row].join(clock.others)
            if self.cluster in clock.others:
                self._join_row(row, self.cluster, clock.others[self.cluster])
            self._join_row(row, clock.cluster, clock.vectors)

    def release_at_barrier(self, lanes: LaneNumbers) -> VectorClock:
        """The same for a barrier: what is pending stays so, for all lanes that it joins."""
        clock = self._clock(lanes)
        if self.pending is not None:
            resolved = None
            for row in self._rows_of(lanes):
                of_row = self._resolved.get(row)
                if of_row is not None:
                    resolved = of_row if resolved is None else resolved.join(of_row)
            clock = clock._replace(
                pending=Pending(self.pending.acquired.distinct(lanes), self.pending.executed.distinct(lanes), resolved)
            )
        self.advance(lanes)
        return clock

    def use_graph(self, graph: ReleaseGraph) -> PendingNodes:
        """The nodes of the graph that these threads have acquired."""
        if self.pending is None:
            self.pending = PendingNodes(graph, self.lane_count)
        return self.pending

    def add_releases(
        self, lanes: LaneNumbers, released: Vector, starts: Indices, at_word: Nodes, words: Nodes, *, acquires: bool
    ) -> None:
        """Add nodes to the graph: lanes release at some words what they know now, their own epochs up to given ones.

        If they acquire, too, the nodes include all that they know.
        """
        pending = self.pending
        assert pending is not None
        self._note_publication(lanes)
        rows = self._rows_of(lanes)
        known_by = None if len(rows) == 1 else np.searchsorted(rows, self.row_of_lane[lanes])
        known = tuple(self._knowledge_of(row) for row in rows)
        acquired = pending.acquired.by_lane[lanes]
        executed = pending.executed.by_lane[lanes]
        first = pending.graph.next_node
        epochs = self._own_epochs[lanes]
        pending.graph.add_releases(
            Releases(
                self.cluster,
                lanes,
                epochs,
                released,
                known,
                known_by,
                starts,
                at_word,
                acquired,
                executed,
                words,
                acquires,
            )
        )
        self.note_release(lanes)
        if acquires:
            pending.acquired.put(lanes, -np.arange(first, first + len(lanes)), words)
            pending.executed.clear(lanes)

    def _knowledge_of(self, row: int) -> Knowledge:
        """A copy of a row; the same one as long as the row does not change."""
        knowledge = self._knowledge.get(row)
        if knowledge is None:
            knowledge = Knowledge.of(self._rows[row], self.others[row], self.lane_count)
            self._knowledge[row] = knowledge
        return knowledge

    def join_acquired(self, lanes: LaneNumbers) -> None:
        """Somebody asks what memory accesses happen before some lanes: join what they have acquired."""
        if self.pending is not None:
            self._join_nodes(self.pending.acquired, lanes, is_executed=False)

    def join_pending(self, lanes: LaneNumbers) -> None:
        """The same, and what they know only to be executed."""
        if self.pending is not None:
            self.join_acquired(lanes)
            self._join_nodes(self.pending.executed, lanes, is_executed=True)

    def _join_nodes(self, nodes: LaneNodes, lanes: LaneNumbers, *, is_executed: bool) -> None:
        assert self.pending is not None
        for group, node in nodes.groups(lanes, self.row_of_lane):
            row = self._rows_alone(group)[0]
            self._change(row)
            resolved = self._resolved.get(row) or Resolved(np.zeros(self.lane_count, np.int32), {})
            resolved = Resolved(resolved.epochs.copy(), dict(resolved.words))
            asking = Asking(self.cluster, self._rows[row], self.others[row], resolved)
            self.pending.graph.join(asking, node, is_executed=is_executed)
            self.others[row] = asking.others
            self._resolved[row] = resolved
            nodes.clear(group)

    def has_joined(self, lane: int, cluster: int, threads: Sequence[ThreadEpochs]) -> bool:
        """Whether a lane has joined all that threads of another cluster knew in some epochs."""
        if cluster == self.cluster or self.has_scopes:
            return False
        for is_last_look in (False, True):
            if is_last_look:
                if self.pending is None:
                    return False
                self.join_acquired(np.array([lane]))
            vectors = self.others[self.row_of_lane[lane]].get(cluster)
            if vectors is not None and all((vectors[HAPPENS_BEFORE, one.lanes] >= one.epochs).all() for one in threads):
                return True
        return False

    def _note_publication(self, lanes: LaneNumbers) -> None:
        """Others can learn of the current epochs of some lanes before these end."""
        is_first = self._published[lanes] != self._own_epochs[lanes]
        if is_first.any():
            lanes = lanes[is_first]
            self._published[lanes] = self._own_epochs[lanes]
            self._published_from[lanes] = NO_NODE if self.pending is None else self.pending.graph.next_node

    def first_node_about(self, lanes: LaneNumbers, next_node: int) -> int:
        """Older nodes of the graph include nothing of the current epochs of some lanes."""
        is_published = self._published[lanes] == self._own_epochs[lanes]
        return int(self._published_from[lanes][is_published].min(initial=next_node))

    def _set_resolved(self, row: int, resolved: Resolved | None) -> None:
        if resolved is not None:
            self._resolved[row] = resolved
        else:
            self._resolved.pop(row, None)

    def _may_learn_of_others(self, lanes: LaneNumbers) -> bool:
        """Whether something pending may order what other threads of the cluster did before some lanes."""
        if self.pending is None:
            return False
        return int(self._has_released.sum()) > int(self._has_released[lanes].sum())

    def note_release(self, lanes: LaneNumbers) -> None:
        """Lanes have released something through a word."""
        self._has_released[lanes] = True

    def _change(self, row: int) -> None:
        """A row changes: forget what was computed of it."""
        self._settled[row] = None
        self._knowledge.pop(row, None)

    def _join_row(self, row: int, cluster: int, vectors: Vectors) -> None:
        self._knowledge.pop(row, None)
        if cluster == self.cluster:
            part = self._rows[row, :, : vectors.shape[1]]
            np.maximum(part, vectors, out=part)
            self._settled[row] = None
        elif self._last_joined[row].get(cluster) is not vectors:
            self.others[row] = self.others[row].with_clock(cluster, vectors)
            self._last_joined[row][cluster] = vectors

    def _covers(self, lanes: LaneNumbers, clock: VectorClock) -> bool:
        """Whether the row of some lanes already includes a clock."""
        row = self._row_of(lanes)
        if row is None or not self._includes(row, clock.cluster, clock.vectors):
            return False
        return self.others[row] is clock.others or all(
            self._includes(row, cluster, vectors) for cluster, vectors in clock.others.items()
        )

    def _includes(self, row: int, cluster: int, vectors: Vectors) -> bool:
        """Whether a row already has the epochs of a cluster."""
        if self._last_joined[row].get(cluster) is vectors:
            return True
        row_vectors = self._rows[row] if cluster == self.cluster else self.others[row].get(cluster)
        if row_vectors is None or row_vectors is vectors:
            return row_vectors is not None
        columns = vectors.shape[1]
        return columns <= row_vectors.shape[1] and bool((row_vectors[:, :columns] >= vectors).all())

    def synchronize(self, lanes: LaneNumbers, clock: VectorClock) -> None:
        """Give some lanes one clock, to which all of them contributed."""
        if len(lanes) == self.lane_count:
            self._lanes_of_row = [0] * len(self._lanes_of_row)
        else:
            for row, count in Counter(self.row_of_lane[lanes].tolist()).items():
                self._lanes_of_row[row] -= count
        new = self._free_row()
        columns = clock.vectors.shape[1]
        self._rows[new, :, :columns] = clock.vectors
        self._rows[new, :, columns:] = 0
        self._change(new)
        self.others[new] = clock.others
        self._last_joined[new] = {}
        self._set_resolved(new, clock.pending.resolved)
        self._settle(lanes, new)
        if self.pending is not None:
            self.pending.acquired.put_all(lanes, clock.pending.acquired)
            self.pending.executed.put_all(lanes, clock.pending.executed)

    def note_unshared(self, lanes: LaneNumbers) -> None:
        """Some lanes acquired or waited for something: the rest of their group gets it, in time, when it converges."""
        for group_lanes in (WARP_LANES, WARPGROUP_LANES):
            unshared = self._unshared.get(group_lanes)
            if unshared is None:
                unshared = self._unshared[group_lanes] = np.zeros(self.lane_count, np.bool_)
            unshared[lanes] = True

    def has_unshared(self, lanes: LaneNumbers, group_lanes: int) -> bool:
        """Whether convergence of a group of `group_lanes` would change any clock."""
        unshared = self._unshared.get(group_lanes)
        return unshared is not None and bool(unshared[lanes].any())

    def converge(self, lanes: LaneNumbers, group_lanes: int) -> None:
        """Lanes of a group converge: each lane's completed accesses count as completed for all of them."""
        if self._may_learn_of_others(lanes):
            self.join_pending(lanes)
        row = self._row_of(lanes)
        if row is None:
            executed = self._rows[self._rows_of(lanes), EXECUTED].max(axis=0)
        else:
            executed = self._rows[row, EXECUTED].copy()
        executed[lanes] = np.maximum(executed[lanes], self.own[lanes])
        alone = self._rows_alone(lanes)
        self._rows[alone, EXECUTED] = executed
        for row in alone:
            self._knowledge.pop(row, None)
        if len(alone) > 1 and self._are_equal(alone):
            for row in alone[1:]:
                self._lanes_of_row[row] = 0
            self._settle(lanes, alone[0])
        self.advance(lanes)
        if len(lanes) == group_lanes:
            for size, unshared in self._unshared.items():
                if size <= group_lanes:
                    unshared[lanes] = False

    def learn(self, lanes: LaneNumbers, column: int, epoch: int) -> None:
        """A column happens before some lanes, up to an epoch."""
        if self.least_known_to(lanes, column) >= epoch:
            return
        for row in self._rows_alone(lanes):
            self._knowledge.pop(row, None)
            for vector in (HAPPENS_BEFORE, *range(EXECUTED, self._vectors)):
                self._rows[row, vector, column] = max(self._rows[row, vector, column], epoch)

    def fence(self, lanes: LaneNumbers, fenced: Iterable[int]) -> None:
        """fence.proxy.async: all that happens before some lanes is visible to the async proxy, in some memory spaces.

        That includes what they have acquired from other clusters: the fence may be the reader's.
        """
        self.join_pending(lanes)
        for vector in fenced:
            rows = self._rows_of(lanes)
            if any(self._has_unfenced(row, vector) for row in rows):
                for row in self._rows_alone(lanes):
                    self._knowledge.pop(row, None)
                    np.maximum(self._rows[row, vector], self._rows[row, HAPPENS_BEFORE], out=self._rows[row, vector])
                    self.others[row] = OtherClocks(
                        {
                            cluster: _fence_vectors(other_vectors, vector)
                            for cluster, other_vectors in self.others[row].items()
                        }
                    )
            columns = self._own_columns(lanes)
            self._own[vector, columns] = self._own[HAPPENS_BEFORE, columns]
        self.advance(lanes)

    def _has_unfenced(self, row: int, vector: int) -> bool:
        """Whether anything happens before a row that is not visible to the async proxy."""
        if (self._rows[row, vector] < self._rows[row, HAPPENS_BEFORE]).any():
            return True
        return any(
            (other_vectors[vector] < other_vectors[HAPPENS_BEFORE]).any() for other_vectors in self.others[row].values()
        )

    def is_ordered(
        self, lanes: LaneNumbers, columns: Columns, epochs: Epochs, vector: int = HAPPENS_BEFORE
    ) -> npt.NDArray[np.bool_]:
        """For each lane one or several columns and epochs: whether they happen before what it does now."""
        is_before = self._is_before(lanes, columns, epochs, vector)
        if is_before.all():
            return is_before
        own_lanes = lanes[:, None] if columns.ndim > 1 else lanes
        is_own = (columns < self.first_warpgroup) & (columns % self.lane_count == own_lanes)
        own_columns = np.minimum(columns, self.first_warpgroup - 1)
        is_own &= (columns < self.lane_count) | (self.own[own_columns] >= epochs)
        is_before |= is_own
        if self.pending is not None and not is_before.all():
            self.join_acquired(lanes)
            is_before = self._is_before(lanes, columns, epochs, vector) | is_own
        return is_before

    def _is_before(self, lanes: LaneNumbers, columns: Columns, epochs: Epochs, vector: int) -> npt.NDArray[np.bool_]:
        row = self._row_of(lanes)
        if row is not None:
            return np.asarray(self._rows[row, vector][columns] >= epochs)
        rows = self.row_of_lane[lanes]
        return np.asarray(self._rows[rows[:, None] if columns.ndim > 1 else rows, vector, columns] >= epochs)

    def settled(self, lanes: LaneNumbers) -> int:
        """All stamps of threads below this are sure to happen before each of some lanes."""
        row = self._row_of(lanes)
        if row is not None:
            return self._settled_of(row)
        return min(self._settled_of(row) for row in self._rows_of(lanes))

    def _settled_of(self, row: int) -> int:
        settled = self._settled[row]
        if settled is None:
            settled = self._settled[row] = settled_end(int(self._rows[row, HAPPENS_BEFORE, : self.lane_count].min()))
        return settled

    def is_common(self, lanes: LaneNumbers) -> bool:
        """Whether all threads of the cluster share the clock of some lanes."""
        return self._lanes_of_row[int(self.row_of_lane[lanes[0]])] == self.lane_count

    def is_ordered_for_all(self, lanes: LaneNumbers, column: int, epoch: int) -> bool:
        """Whether a column, up to an epoch, is sure to happen before each of some lanes."""
        return all(bool(self._rows[row, HAPPENS_BEFORE, column] >= epoch) for row in self._rows_of(lanes))

    def has_completed_for(
        self, lanes: LaneNumbers, cluster: int, threads: ThreadEpochs, first_node: int
    ) -> npt.NDArray[np.bool_]:
        """For each lane whether what some thread of any cluster did in an epoch has completed before what the lane does now.

        `first_node`: older nodes of the graph of releases do not include it.
        """
        has_completed = self._has_completed_for(lanes, cluster, threads)
        if self.pending is None or has_completed.all():
            return has_completed
        asking = lanes[~has_completed]
        asking = asking[self.pending.newest(asking) >= first_node]
        if not len(asking):
            return has_completed
        self.join_pending(asking)
        return self._has_completed_for(lanes, cluster, threads)

    def _has_completed_for(self, lanes: LaneNumbers, cluster: int, threads: ThreadEpochs) -> npt.NDArray[np.bool_]:
        rows = self.row_of_lane[lanes]
        has_completed = np.zeros(len(lanes), np.bool_)
        for row in self._rows_of(lanes):
            vectors = self._rows[row] if cluster == self.cluster else self.others[row].get(cluster)
            if vectors is not None:
                last = np.maximum(vectors[HAPPENS_BEFORE, threads.lanes], vectors[EXECUTED, threads.lanes])
                if (last >= threads.epochs).any():
                    has_completed |= rows == row
        return has_completed

    def view(self, lane: int) -> Vectors:
        """The clock of one lane, its own columns included."""
        self.join_pending(np.array([lane]))
        vectors = self._rows[self.row_of_lane[lane]].copy()
        columns = np.arange(OWN_KINDS) * self.lane_count + lane
        vectors[:, columns] = np.maximum(vectors[:, columns], self._own[:, columns])
        vectors[HAPPENS_BEFORE, lane] = ALWAYS
        vectors[SCOPED:, columns] = vectors[HAPPENS_BEFORE, columns]
        return np.asarray(vectors)

    def warpgroup_view(self, lanes: LaneNumbers, warp_lanes: int) -> Vectors:
        """The clock of a warpgroup: what happens before some lane of each of its warps."""
        self.join_pending(lanes)
        row = self._row_of(lanes)
        if row is not None:
            shared: Vectors = self._rows[row]
            return shared
        views = []
        for first in range(0, len(lanes), warp_lanes):
            warp = lanes[first : first + warp_lanes]
            clock = self.clock(warp)
            clock.known[warp] = ALWAYS
            views.append(clock.vectors)
        return np.asarray(np.minimum.reduce(views))
