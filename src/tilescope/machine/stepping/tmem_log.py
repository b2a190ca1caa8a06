"""Writes to the tensor memory of a cluster in the order of steps, and the columns that its blocks have allocated.

    record     step  instruction  lane  block  cells written          values
    0          40    tcgen05.st   0     0      0 1 2 … (lane * 512 + column)

Asynchronous work writes when it completes: then its cells are recorded.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.machine.cluster import Cluster
from tilescope.machine.execution.pending import Work
from tilescope.mma.tensor_memory import TensorMemory
from tilescope.mma.tmem_address import TMEM_COLUMNS, TMEM_LANES
from tilescope.sync.bus import Handler
from tilescope.sync.events import TmemAlloc, TmemDealloc, TmemMove, TmemPlaces, TmemWork

CELLS = TMEM_LANES * TMEM_COLUMNS
NOBODY = -1
_RECORDS_OF_A_SNAPSHOT = 256  # applied by a query at most
_UNITS = frozenset({"tcgen05", "tcgen05.st"})


class TmemWrite(NamedTuple):
    """Cells of one block that one instruction wrote."""

    step: int
    pc: int
    lane: int
    rank: int
    places: npt.NDArray[np.int32]
    values: npt.NDArray[np.uint32]


class TmemContents(NamedTuple):
    """The tensor memory of a block: its cells, and for each the write that was last, or NOBODY."""

    cells: npt.NDArray[np.uint32]
    writes: npt.NDArray[np.int32]


class _Issue(NamedTuple):
    """Work that will write tensor memory."""

    pc: int
    lane: int
    ranks: tuple[int, ...]
    places: TmemPlaces


class TmemLog:
    """The tensor memory of one cluster: `settle` records, `at` and `books_at` read."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.writes: list[TmemWrite] = []
        self._steps: list[int] = []
        self._books: list[tuple[int, tuple[TensorMemory, ...]]] = []
        self._snapshots: list[list[TmemContents]] = []  # by number, by block
        self._issues: list[_Issue] = []  # of this step
        self._pending: dict[int, _Issue] = {}  # by id of the work
        self._are_books_changed = False
        self._known_places: dict[bytes, npt.NDArray[np.int32]] = {}

    @property
    def size_bytes(self) -> int:
        """Memory that the log takes."""
        values = sum(4 * len(write.values) for write in self.writes)
        return values + 4 * sum(map(len, self._known_places.values())) + 8 * CELLS * len(self._snapshots)

    def handlers(self) -> dict[type, Handler]:
        """What listens to the events of the cluster."""
        return {
            TmemAlloc: self._change_books,
            TmemDealloc: self._change_books,
            TmemMove: self._move,
            TmemWork: self._work,
        }

    def _change_books(self, _: object) -> None:
        self._are_books_changed = True

    def _move(self, event: TmemMove) -> None:
        if not event.is_load:
            self._issues.append(_Issue(event.pc, int(event.lanes[0]), (event.rank,), event.places))

    def _work(self, event: TmemWork) -> None:
        self._issues.append(_Issue(event.pc, event.lane, event.ranks, event.written))

    def settle(self, step: int) -> None:
        """Record what a step has changed: work that completed, and columns that were allocated."""
        if self._are_books_changed:
            self._are_books_changed = False
            self._books.append((step, tuple(self._cluster.tensor_memory.books)))
        if not self._issues and not self._pending:
            return
        works = [work for work in self._cluster.works if work.kind in _UNITS]
        is_open = {id(work) for work in works}
        completed = [self._pending.pop(number) for number in [*self._pending] if number not in is_open]
        for work in works:
            if id(work) not in self._pending:
                self._take_issue(work)
        completed += self._issues  # issued and completed in one step
        self._issues = []
        for issue in completed:
            self._add(step, issue)

    def _take_issue(self, work: Work) -> None:
        """Find what a piece of work writes; each was announced right before its work was queued."""
        for index, issue in enumerate(self._issues):
            if issue.pc == work.pc and issue.lane == int(work.lanes[0]):
                self._pending[id(work)] = self._issues.pop(index)
                return

    def _add(self, step: int, issue: _Issue) -> None:
        places = issue.places.astype(np.int32)
        places = self._known_places.setdefault(places.tobytes(), places)
        for rank in issue.ranks:
            values = self._cluster.tensor_memory.cells[rank][places]
            self.writes.append(TmemWrite(step, issue.pc, issue.lane, rank, places, values))
            self._steps.append(step)
            if len(self.writes) % _RECORDS_OF_A_SNAPSHOT == 0:
                self._snapshots.append([self._apply(other, len(self.writes)) for other in range(self._cluster.blocks)])

    def at(self, rank: int, step: int) -> TmemContents:
        """The tensor memory of a block after a step."""
        return self._apply(rank, bisect_right(self._steps, step))

    def books_at(self, rank: int, step: int) -> TensorMemory | None:
        """The allocations of a block after a step; None before the first of its cluster."""
        place = bisect_right(self._books, step, key=lambda row: row[0])
        return self._books[place - 1][1][rank] if place else None

    def _apply(self, rank: int, writes: int) -> TmemContents:
        number = min(writes // _RECORDS_OF_A_SNAPSHOT, len(self._snapshots))
        if number:
            snapshot = self._snapshots[number - 1][rank]
            contents = TmemContents(snapshot.cells.copy(), snapshot.writes.copy())
        else:
            contents = TmemContents(np.zeros(CELLS, np.uint32), np.full(CELLS, NOBODY, np.int32))
        for index in range(number * _RECORDS_OF_A_SNAPSHOT, writes):
            write = self.writes[index]
            if write.rank == rank:
                contents.cells[write.places] = write.values
                contents.writes[write.places] = index
        return contents
