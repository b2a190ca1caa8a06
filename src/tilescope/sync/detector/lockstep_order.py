"""The order of blocks that run in lockstep: nothing that they do may depend on it, and nothing may be there to report.

    load, store, atomic     ──▶ shadow/lockstep_cells.py: no other thread accesses the cell, unless a barrier orders the two
    barriers                ──▶ the times by which accesses are ordered
    anything doubtful       ──▶ OrderMattersError

A batch that comes to its end has done what its blocks do one after another. The detector of a cluster would have found nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tilescope.arch import WARP_LANES
from tilescope.arithmetic import ceil_div
from tilescope.sync.access_semantics import AccessSemantics
from tilescope.sync.address import Addresses
from tilescope.sync.bus import Handler, StaleValues
from tilescope.sync.cluster_shape import ClusterShape, LaneNumbers
from tilescope.sync.detector.context import ProgramFacts
from tilescope.sync.epoch import columns_of, is_strong, pack_stamps, pcs_of, stamp_base
from tilescope.sync.events import (
    Atomic,
    BlocksMet,
    Converge,
    Flags,
    Load,
    MbarrierTest,
    PartialGroups,
    Store,
    UndefinedUse,
    WarpSync,
)
from tilescope.sync.footprint import CellNumbers, Rows
from tilescope.sync.lane_clocks import BULK_WRITE
from tilescope.sync.memory_scope import GPU
from tilescope.sync.shadow.global_cells import GlobalCells, Stretch
from tilescope.sync.shadow.lockstep_cells import (
    BatchTimes,
    CellsTouched,
    LastThreads,
    LockstepCells,
    OrderMattersError,
    Touch,
)

_NO_STALE_VALUES: StaleValues = {}


class CopyTouch(NamedTuple):
    """A bulk copy of a lane of a batch, and the bytes of global memory that it reads or writes."""

    pc: int
    lane: int
    rows: Rows
    is_write: bool


class CopiedCells(NamedTuple):
    """Cells of the stretch that begins at `first`, which a bulk copy has written."""

    first: int
    cells: CellNumbers
    pc: int
    thread: int  # in the launch, from 1 on


class MemoryTouched(NamedTuple):
    """Global-memory accesses of some batches, for a process that did not run them; by the first cell of a stretch."""

    cells: dict[int, CellsTouched]
    copied: list[CopiedCells]
    rows_read: dict[tuple[bytes, int], Rows]


class LockstepMemory:
    """Global memory, as all batches of a launch access it; `cells` has what clusters did that ran before them."""

    def __init__(self, cells: GlobalCells, block_lanes: int, first_thread: int) -> None:
        self._cells = cells
        self._block_lanes = block_lanes
        self._first_thread = first_thread  # of the batches
        self._rows_read: dict[tuple[bytes, int], Rows] = {}  # by their starts and their size
        self._copied: list[tuple[Stretch, CellNumbers, int, int]] = []  # what copies wrote: instruction, thread
        self._tables: dict[int, tuple[Stretch, LockstepCells]] = {}  # by first cell

    def touches(
        self, lanes: LaneNumbers, addresses: Addresses, size_bytes: int, times: BatchTimes
    ) -> Iterator[tuple[LockstepCells, Touch]]:
        """The cells that lanes access, stretch by stretch."""
        width = self._cells.cell_bytes
        each = ceil_div(size_bytes, width)
        for piece in self._cells.pieces(addresses // width):
            piece_lanes = lanes if piece.positions is None else lanes[piece.positions]
            yield self._table(piece.stretch), touch_cells(piece.cells, each, piece_lanes, times)

    def _table(self, stretch: Stretch) -> LockstepCells:
        entry = self._tables.get(stretch.first)
        if entry is None:
            entry = self._tables[stretch.first] = (stretch, self._begin(stretch))
        return entry[1]

    def _begin(self, stretch: Stretch) -> LockstepCells:
        """What clusters that ran before have left."""
        table = LockstepCells(stretch.end - stretch.first)
        past = stretch.table.past_accesses()
        if past is not None:
            if past.has_covered:
                raise OrderMattersError("an atomic has followed a plain store")
            written = past.written
            stamps = past.writes.stamps
            assert past.writes.clusters is not None
            threads = (past.writes.clusters - 1) * self._block_lanes + columns_of(stamps) % self._block_lanes + 1
            last = LastThreads(written, threads.astype(np.int32), pcs_of(stamps).astype(np.int32), is_strong(stamps))
            table.seed(last, past.is_read)
        return table

    def add_copies(self, touches: Sequence[CopyTouch], first_thread: int) -> None:
        """Bulk copies of a batch: no other thread may access the bytes that they write."""
        for touch in touches:
            if not len(touch.rows.starts) or not touch.rows.row_bytes:
                continue  # a box that is completely outside its tensor
            if not touch.is_write:
                self._rows_read.setdefault((touch.rows.starts.tobytes(), touch.rows.row_bytes), touch.rows)
                continue
            cells = touch.rows.whole_cells(self._cells.cell_bytes)
            if len(cells) * self._cells.cell_bytes != len(touch.rows.starts) * touch.rows.row_bytes:
                raise OrderMattersError("a copy writes parts of cells")
            for piece in self._cells.pieces(cells):
                thread = first_thread + touch.lane + 1
                self._table(piece.stretch).copy(piece.cells, thread)
                self._copied.append((piece.stretch, piece.cells, touch.pc, thread))

    def list_touched(self, first_thread: int) -> MemoryTouched:
        """What blocks from a thread on have done, and what others have read before them."""
        cells = {first: table.list_touched(first_thread) for first, (_, table) in self._tables.items()}
        copied = [
            CopiedCells(stretch.first, copied_cells, pc, thread)
            for stretch, copied_cells, pc, thread in self._copied
            if thread > first_thread
        ]
        return MemoryTouched(cells, copied, self._rows_read)

    def join(self, touched: MemoryTouched) -> None:
        """Add what other batches did elsewhere at the same time."""
        for first, other in touched.cells.items():
            self._table(self._cells.stretch_at(first)).join(other)
        for first, cells, pc, thread in touched.copied:
            stretch = self._cells.stretch_at(first)
            self._table(stretch).copy(cells, thread)
            self._copied.append((stretch, cells, pc, thread))
        self._rows_read |= touched.rows_read

    def require_unwritten_sources(self) -> None:
        """Refuse copies that read what somebody has written."""
        for rows in self._rows_read.values():
            first = rows.starts // self._cells.cell_bytes
            each = ceil_div(rows.row_bytes, self._cells.cell_bytes) + 1
            if not self._may_be_written(rows):
                continue
            cells = np.unique((first[:, None] + np.arange(each)).ravel())
            for piece in self._cells.pieces(cells):
                if self._table(piece.stretch).is_any_written(piece.cells):
                    raise OrderMattersError("a copy reads what the kernel writes")

    def _may_be_written(self, rows: Rows) -> bool:
        """Whether the array that contains the rows was written."""
        low = int(rows.starts.min()) // self._cells.cell_bytes
        high = (int(rows.starts.max()) + rows.row_bytes) // self._cells.cell_bytes
        return self._cells.is_written_between(low, high) or any(
            stretch.first <= high and low < stretch.end and table.is_written for stretch, table in self._tables.values()
        )

    def finish(self) -> None:
        """Keep the last writes of all batches, as those of their clusters."""
        for stretch, cells, pc, thread in self._copied:
            cluster, lane = divmod(thread - 1, self._block_lanes)
            column = BULK_WRITE * self._block_lanes + lane
            stamp = pack_stamps(stamp_base(pc, is_asynchronous=True), column, 1)
            clusters = np.full(len(cells), cluster + 1, np.int32)
            stretch.table.put_last_writes(cells, np.broadcast_to(stamp, cells.shape), clusters)
        for stretch, table in self._tables.values():
            cells, threads, pcs, are_strong = table.last_writes(self._first_thread)
            if len(cells):
                clusters, columns = np.divmod(threads.astype(np.int64) - 1, self._block_lanes)
                bases = pcs.astype(np.int64) * stamp_base(1) + are_strong * stamp_base(0, is_strong=True)
                stamps = pack_stamps(0, columns, 1) | bases
                stretch.table.put_last_writes(cells, stamps, (clusters + 1).astype(np.int32))


def touch_cells(first: Addresses, each: int, lanes: LaneNumbers, times: BatchTimes) -> Touch:
    """As many cells of each lane, from its first one on."""
    if each == 1:
        return Touch(first, lanes, times)
    return Touch((first[:, None] + np.arange(each)).ravel(), lanes.repeat(each), times)


class LockstepOrder:
    """Watches one batch. Without `facts` nothing is reported: what one block does to itself is not looked at."""

    def __init__(
        self,
        shape: ClusterShape,
        memory: LockstepMemory,
        first_thread: int,
        facts: ProgramFacts | None,
        *,
        do_atomics_commute: bool = False,
    ) -> None:
        self._memory = memory
        self._facts = facts
        self._do_atomics_commute = do_atomics_commute  # those in global memory, whose results nobody uses
        self._block_of_lane = shape.block_of_lane
        self._times = BatchTimes(first_thread, shape.block_lanes, shape.blocks, is_judged=facts is not None)
        self._shared: LockstepCells | None = None
        self._shared_bytes = shape.blocks * shape.shared_stride

    def handlers(self) -> dict[type, Handler]:
        """Which method looks at each event."""
        return {
            Store: self._store,
            Atomic: self._change,
            BlocksMet: self._meet_blocks,
            WarpSync: self._meet_warps,
            Converge: self._converge,
            PartialGroups: self._refuse,
            UndefinedUse: self._refuse,
        }

    def stale_values(self, load: Load) -> StaleValues:
        """None: no block waits for another block's word."""
        access = self._plain(load.access)
        if load.space == "shared":
            touch = self._touch_shared(load.lanes, load.places, load.size_bytes)
            if touch is not None:
                self._require_written(touch)
                self._shared_cells().load(touch)
        else:
            for table, touch in self._memory.touches(load.lanes, load.places, load.size_bytes, self._times):
                table.load(touch, is_noncoherent=access.is_noncoherent and self._facts is not None)
        return _NO_STALE_VALUES

    def passing_lanes(self, test: MbarrierTest) -> Flags:
        """Never called: kernels with mbarriers do not run in lockstep."""
        raise OrderMattersError("an mbarrier")

    def _store(self, event: Store) -> None:
        self._plain(event.access)
        has_equal_values = event.stored is None or self._facts is None
        if event.space == "shared":
            touch = self._touch_shared(event.lanes, event.places, event.size_bytes)
            if touch is not None:
                self._shared_cells().store(touch, event.pc, has_equal_values=has_equal_values)
            return
        for table, touch in self._memory.touches(event.lanes, event.places, event.size_bytes, self._times):
            table.store(touch, event.pc, has_equal_values=has_equal_values)

    def _change(self, event: Atomic) -> None:
        access = event.access
        if access is None or (event.space == "global" and access.scope < GPU):
            raise OrderMattersError("an atomic whose scope is narrower than the grid")
        if event.space == "shared":
            touch = self._touch_shared(event.lanes, event.places, event.size_bytes)
            if touch is not None:
                self._require_written(touch)
                self._shared_cells().change(touch, event.pc)
            return
        for table, touch in self._memory.touches(event.lanes, event.places, event.size_bytes, self._times):
            table.change(touch, event.pc, in_any_order=self._do_atomics_commute)

    def _plain(self, access: AccessSemantics | None) -> AccessSemantics:
        if access is None or access.is_strong:
            raise OrderMattersError("an access through which blocks may synchronize")
        return access

    def _touch_shared(self, lanes: LaneNumbers, places: Addresses, size_bytes: int) -> Touch | None:
        """The cells of shared memory that lanes access; None if not needed."""
        if self._facts is None:
            return None
        width = self._facts.shared_cell_bytes
        return touch_cells(places // width, ceil_div(size_bytes, width), lanes, self._times)

    def _shared_cells(self) -> LockstepCells:
        if self._shared is None:
            assert self._facts is not None
            self._shared = LockstepCells(ceil_div(self._shared_bytes, self._facts.shared_cell_bytes))
        return self._shared

    def _require_written(self, touch: Touch) -> None:
        if self._shared_cells().find_unwritten(touch):
            raise OrderMattersError("a load of shared memory that nobody has written")

    def _meet_blocks(self, event: BlocksMet) -> None:
        self._times.meet_blocks(event.blocks)

    def _meet_warps(self, event: WarpSync) -> None:
        self._times.meet_warps(event.lanes)

    def _converge(self, event: Converge) -> None:
        """Lanes that name a mask are in it."""
        if self._facts is None or event.masks is None or event.pc not in self._facts.partial_masks:
            return
        masks = event.masks[event.lanes].astype(np.uint32)
        if not (masks >> (event.lanes % WARP_LANES).astype(np.uint32) & 1).all():
            raise OrderMattersError("a lane that is not in its mask")

    def _refuse(self, event: object) -> None:
        raise OrderMattersError(f"an event to judge: {type(event).__name__}")
