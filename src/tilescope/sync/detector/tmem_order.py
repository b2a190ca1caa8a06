"""Tensor memory: when its accesses complete, and what they happen before.

    tcgen05.ld, st           of a warp; complete at its wait::ld, wait::st, and are then released by ordinary barriers
    tcgen05.mma, cp, shift   of a thread; ordered among themselves, complete for waits on the mbarrier of a later commit
    fence::before_thread_sync, fence::after_thread_sync
                             before the barrier in one thread, after it in the other. The documents have them in every example,
                             and say that ordinary barriers work too; Triton's kernels have none. So a missing fence is a note.

Each actor that loads, stores or issues has a column of the clocks (see lane_clocks), and two more for what a fence has released.
A cell is 16 lanes of one column: no instruction but cp.4x256b accesses less.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.arithmetic import ceil_div
from tilescope.mma.tmem_address import QUARTER_LANES, QUARTERS, TMEM_COLUMNS, TMEM_LANES
from tilescope.sync.address import SHARED_RANK_SHIFT
from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.detector.context import DetectorContext, PublishedColumns
from tilescope.sync.detector.mbarrier_history import Commit, MbarrierHistory
from tilescope.sync.detector.mbarrier_order import Mbarriers
from tilescope.sync.detector.race import Side
from tilescope.sync.epoch import PENDING, Stamp, Stamps, pack_stamp, stamp_base, unpack_stamp
from tilescope.sync.events import (
    LoadedRegisterAccess,
    TmemAlloc,
    TmemCommit,
    TmemCommitArrived,
    TmemDealloc,
    TmemFence,
    TmemMove,
    TmemWait,
    TmemWork,
)
from tilescope.sync.shadow.accessor import Unit
from tilescope.sync.vector_clock import ASYNC_SHARED, EXECUTED, VectorClock, join_clocks

Places = npt.NDArray[np.int64]  # lane * 512 + column
Cells = npt.NDArray[np.int64]
CellFlags = npt.NDArray[np.bool_]
ActorHow = Literal["ld", "st", "alloc", "core"]
UnitHow = Literal["tcgen05.mma", "tcgen05.cp", "tcgen05.shift"]
Shape = tuple[int, int, int]  # of an accumulator: its address, m and n
_CELL_LANES = 16
_BLOCK_CELLS = TMEM_LANES // _CELL_LANES * TMEM_COLUMNS
_NO_SHAPE = 0
_ADDRESS_BYTES = 4
PLACE_RANK_SHIFT = 32  # of the address of a conflict: rank, lane, column


@dataclass(slots=True, eq=False)
class Actor:
    """A warp that loads or stores, or a thread that issues tensor-core work: it does one thing after another."""

    how: ActorHow
    number: int  # of the warp, or of the thread, in its cluster
    column: int  # what has completed
    fenced: int  # what has completed and was released by fence::before_thread_sync, or by a commit
    issued: int  # what was released, completed or not
    epoch: int = 0
    last_pc: int = 0
    ranks: set[int] = field(default_factory=set)  # the blocks whose shared memory it has read

    @property
    def warp(self) -> int:
        """The warp that it is, or is part of."""
        return self.number // WARP_LANES if self.how == "core" else self.number


class Committed(NamedTuple):
    """A pending commit: the mbarrier, and what its arrival will release."""

    barrier: MbarrierHistory
    clock: VectorClock
    actor: Actor
    epoch: int
    commit: Commit


class _Allocation(NamedTuple):
    """Columns that a block has allocated, and by which access."""

    rank: int
    first: int
    columns: int
    side: Side


class _Access(NamedTuple):
    """The access to tensor memory that is judged."""

    now: Side
    lanes: LaneNumbers  # the thread, or the warp
    actor: Actor
    rank: int


class TmemOrder:
    """The accesses to the tensor memory of one cluster."""

    def __init__(self, context: DetectorContext, mbarriers: Mbarriers) -> None:
        self._context = context
        self._mbarriers = mbarriers
        self._actors: dict[tuple[str, int], Actor] = {}
        self._by_column: dict[int, Actor] = {}
        self._behind_fence: dict[
            int, npt.NDArray[np.int32]
        ] = {}  # by column `fenced`, then by lane: its clock at its last fence
        self._allocations: list[_Allocation] = []
        self._loading: dict[int, dict[int, int]] = {}  # by warp, then by register: the epoch of the load that writes it
        self._shapes: dict[Shape, int] = {}
        self._commits: WeakKeyDictionary[TmemCommit, dict[int, Committed]] = WeakKeyDictionary()
        self._commit_count = 0
        self._writes: Stamps = np.zeros(0, np.int64)
        self._shape_of_write: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self._reads: Stamps = np.zeros((0, 0), np.int64)

    def _make_tables(self) -> None:
        if len(self._writes):
            return
        cluster = self._context.cluster
        count = cluster.blocks * _BLOCK_CELLS
        warps = cluster.block_lanes // WARP_LANES
        readers = ceil_div(warps, QUARTERS) + 1  # warps that reach the quarter, and the tensor core
        self._writes = np.zeros(count, np.int64)
        self._shape_of_write = np.zeros(count, np.int32)
        self._reads = np.zeros((count, readers), np.int64)

    def _cells(self, rank: int, places: Places) -> Cells:
        """The cells of places, each once."""
        self._make_tables()
        lanes, columns = np.divmod(places, TMEM_COLUMNS)
        return np.unique(rank * _BLOCK_CELLS + lanes // _CELL_LANES * TMEM_COLUMNS + columns)

    def _address(self, cell: int) -> int:
        """A cell as the address of a conflict."""
        rank, place = divmod(cell, _BLOCK_CELLS)
        lane_group, column = divmod(place, TMEM_COLUMNS)
        return rank << PLACE_RANK_SHIFT | lane_group * _CELL_LANES << 16 | column

    def _actor(self, how: ActorHow, number: int) -> Actor:
        key = (how, number)
        actor = self._actors.get(key)
        if actor is None:
            clocks = self._context.clocks
            actor = Actor(how, number, clocks.new_column(), clocks.new_column(), clocks.new_column())
            self._actors[key] = actor
            self._by_column[actor.column] = actor
            self._context.tensor_columns[actor.column] = PublishedColumns(actor.fenced, actor.issued)
        return actor

    def _begin(self, actor: Actor) -> int:
        """The stamp of the next access of an actor."""
        actor.epoch += 1
        actor.last_pc = self._context.pc
        return pack_stamp(stamp_base(actor.last_pc, is_asynchronous=True), actor.column, actor.epoch)

    def move(self, event: TmemMove) -> None:
        """tcgen05.ld or st of a warp."""
        lanes = event.lanes
        rank = event.rank
        places = event.places
        is_load = event.is_load
        cluster = self._context.cluster
        warp = int(lanes[0]) // WARP_LANES
        now = Side(event.pc, "tcgen05.ld" if is_load else "tcgen05.st", int(lanes[0]))
        actor = self._actor("ld" if is_load else "st", warp)
        access = _Access(now, lanes, actor, rank)
        self._require_quarter(access, event.word)
        self._require_allocated(access, places)
        cells = self._cells(rank, places)
        self._meet_writes(access, cells)
        if is_load:
            self._require_written(access, cells)
            slot = warp % (cluster.block_lanes // WARP_LANES) // QUARTERS
            self._reads[cells, slot] = self._begin(actor)
            self._loading.setdefault(warp, {}).update(dict.fromkeys(event.registers, actor.epoch))
        else:
            self._meet_reads(access, cells)
            self._write(cells, self._begin(actor), _NO_SHAPE)

    def wait(self, event: TmemWait) -> None:
        """tcgen05.wait::ld, wait::st: what the warps have issued has completed."""
        how: Literal["ld", "st"] = "ld" if event.is_load else "st"
        lanes = event.lanes
        warps = lanes // WARP_LANES
        for warp in np.unique(warps).tolist():
            actor = self._actors.get((how, warp))
            if actor is not None:
                self._context.clocks.learn(lanes[warps == warp], actor.column, actor.epoch)
            if how == "ld":
                self._loading.pop(warp, None)

    def access_registers(self, event: LoadedRegisterAccess) -> None:
        """Threads access registers that a load writes: it has completed, whether or not they waited for it."""
        if not self._loading:
            return
        lanes = event.lanes
        warps = lanes // WARP_LANES
        for warp in np.unique(warps).tolist():
            loading = self._loading.get(warp, {})
            completed = {loading[register] for register in event.registers if register in loading}
            if completed:
                pending = {register: epoch for register, epoch in loading.items() if epoch not in completed}
                self._loading[warp] = pending
                actor = self._actor("ld", warp)
                finished = min(pending.values(), default=actor.epoch + 1) - 1
                self._context.clocks.learn(lanes[warps == warp], actor.column, finished)

    def work(self, event: TmemWork) -> None:
        """tcgen05.mma, cp and shift of a thread."""
        for rank in event.ranks:
            for addresses, unit_bytes in zip(event.shared, event.shared_unit_bytes, strict=True):
                self._read_shared(event.kind, event.lane, rank, addresses, unit_bytes)
        if event.kind == "tcgen05.mma":
            self._multiply(event)
        else:
            self._change(event.kind, event.lane, [(rank, event.written) for rank in event.ranks])

    def _change(self, how: UnitHow, lane: int, uses: list[tuple[int, Places]]) -> None:
        """tcgen05.cp and shift: cells that the tensor core writes, by block."""
        actor = self._actor("core", lane)
        stamp = self._begin(actor)
        for rank, places in uses:
            access = _Access(Side(self._context.pc, how, lane), np.array([lane]), actor, rank)
            self._require_allocated(access, places)
            cells = self._cells(rank, places)
            self._meet_writes(access, cells, in_order=np.ones(len(cells), np.bool_))
            self._meet_reads(access, cells)
            self._write(cells, stamp, _NO_SHAPE)

    def _multiply(self, event: TmemWork) -> None:
        """tcgen05.mma: D, and what is read of tensor memory, by block."""
        lane = event.lane
        actor = self._actor("core", lane)
        stamp = self._begin(actor)
        number = self._shapes.setdefault(event.shape, len(self._shapes) + 1)
        d = event.written
        read = event.read
        for rank in event.ranks:
            access = _Access(Side(self._context.pc, "tcgen05.mma", lane), np.array([lane]), actor, rank)
            self._require_allocated(access, np.concatenate([d, read]))
            d_cells = self._cells(rank, d)
            written_by_copy = self._shape_of_write
            if len(read):
                cells = self._cells(rank, read)
                self._meet_writes(access, cells, in_order=written_by_copy[cells] == _NO_SHAPE)
                self._require_written(access, cells)
                self._reads[cells, -1] = stamp
            shapes = self._shape_of_write[d_cells]
            self._meet_writes(access, d_cells, in_order=(shapes == number) | (shapes == _NO_SHAPE))
            self._meet_reads(access, d_cells)
            if event.adds_d:
                self._require_written(access, d_cells)
            self._write(d_cells, stamp, number)

    def _write(self, cells: Cells, stamp: int, shape: int) -> None:
        self._writes[cells] = stamp
        self._shape_of_write[cells] = shape
        self._reads[cells] = 0

    def _meet_writes(self, access: _Access, cells: Cells, in_order: CellFlags | None = None) -> None:
        """Report writes that have not completed; `in_order`: cells where work of the same thread is pipelined."""
        stamps = self._writes[cells]
        for stamp in np.unique(stamps[stamps != 0]).tolist():
            is_met = stamps == stamp
            is_piped = in_order is not None and bool(in_order[is_met].all())
            self._require_finished(access, unpack_stamp(stamp), int(cells[np.argmax(is_met)]), is_piped=is_piped)

    def _meet_reads(self, access: _Access, cells: Cells) -> None:
        """Report reads that are not ordered before a write of the cells."""
        stamps = self._reads[cells]
        for stamp in np.unique(stamps[stamps != 0]).tolist():
            is_met = (stamps == stamp).any(axis=1)
            cell = int(cells[np.argmax(is_met)])
            if (self._writes[cells[is_met]] == 0).all():
                self._require_not_early(access, unpack_stamp(stamp), cell)
            else:
                self._require_finished(access, unpack_stamp(stamp), cell, is_piped=True)

    def _require_not_early(self, access: _Access, read: Stamp, cell: int) -> None:
        """Report a load of unwritten cells that is unordered with this write: it should have come after it."""
        reader = self._by_column[read.column]
        if (
            reader.how == "core"
            or int(self._context.clocks.time_known_to(access.lanes, reader.column).max()) >= read.epoch
        ):
            return
        self._context.report("tensor memory", access.now, self._side(reader, read.pc), "tensor", self._address(cell))

    def _require_finished(self, access: _Access, before: Stamp, cell: int, *, is_piped: bool) -> None:
        """Report an access that has not completed; if it has, a missing fence."""
        other = self._by_column[before.column]
        if is_piped and other.how == "core" and self._is_issued_before(access, other, before.epoch):
            return
        clocks = self._context.clocks
        known_epoch = int(clocks.time_known_to(access.lanes, other.column).max())
        if known_epoch < before.epoch and not self._is_freed_later(access, other, before.epoch):
            self._report("tensor memory", self._side(other, before.pc), access, cell)
        elif access.now.how != "tcgen05.dealloc" and not self._is_fenced(access, other, before.epoch):
            self._report("tensor fence", self._side(other, before.pc), access, cell)

    def _is_freed_later(self, access: _Access, other: Actor, epoch: int) -> bool:
        """Whether columns are freed after a load of them has completed: a load that has its values needs no more than that."""
        if access.now.how != "tcgen05.dealloc" or other.how != "ld":
            return False
        return int(self._context.clocks.time_known_to(access.lanes, other.column, EXECUTED).max()) >= epoch

    def _is_issued_before(self, access: _Access, other: Actor, epoch: int) -> bool:
        """Whether tensor-core work is in issue order: of one thread, or of two that fences and a barrier order."""
        if access.actor is other:
            return True
        if access.actor.how != "core":
            return False
        issued_epoch = int(self._context.clocks.time_known_to(access.lanes, other.issued).max())
        return issued_epoch >= epoch

    def _is_fenced(self, access: _Access, other: Actor, epoch: int) -> bool:
        """Whether the documented fences are between the accesses; a warp that waited for its own access needs none."""
        if other.how != "core" and other.warp == int(access.lanes[0]) // WARP_LANES:
            return True
        at_fence = self._behind_fence.get(other.fenced)
        return at_fence is not None and int(at_fence[access.lanes].max()) >= epoch

    def _side(self, actor: Actor, pc: int) -> Side:
        return self._context.tensor_side(pc, actor.number * WARP_LANES if actor.how != "core" else actor.number)

    def _report(
        self, mistake: Literal["tensor memory", "tensor fence"], before: Side, access: _Access, cell: int
    ) -> None:
        self._context.report(mistake, before, access.now, "tensor", self._address(cell))

    def _require_written(self, access: _Access, cells: Cells) -> None:
        is_unwritten = self._writes[cells] == 0
        if is_unwritten.any():
            cell = int(cells[np.argmax(is_unwritten)])
            self._context.report("tensor unwritten", None, access.now, "tensor", self._address(cell))

    def _require_allocated(self, access: _Access, places: Places) -> None:
        columns_held = np.zeros(TMEM_COLUMNS, np.bool_)
        for allocation in self._allocations:
            if allocation.rank == access.rank:
                columns_held[allocation.first : allocation.first + allocation.columns] = True
        is_allocated = columns_held[places % TMEM_COLUMNS]
        if not is_allocated.all():
            columns = places[~is_allocated] % TMEM_COLUMNS
            place = int(places[np.argmin(is_allocated)])
            lane, column = divmod(place, TMEM_COLUMNS)
            address = access.rank << PLACE_RANK_SHIFT | lane << 16 | column
            first, last = int(columns.min()), int(columns.max())
            self._context.report("tensor columns", None, access.now, "tensor", address, first=first, last=last)

    def _require_quarter(self, access: _Access, word: int) -> None:
        lane = word >> 16
        warp = access.actor.number % (self._context.cluster.block_lanes // WARP_LANES)
        if lane // QUARTER_LANES != warp % QUARTERS:
            own_lane = warp % QUARTERS * QUARTER_LANES + lane % QUARTER_LANES
            self._context.report(
                "tensor quarter", None, access.now, "tensor", None, lane=lane, warp=warp, own_lane=own_lane
            )

    def _read_shared(self, how: UnitHow, lane: int, rank: int, addresses: Places, size_bytes: int) -> None:
        """Operands in a block's shared memory, which the tensor core reads until a commit completes."""
        context = self._context
        first_byte = rank * context.cluster.shared_stride
        starts = (addresses.ravel() + first_byte) // context.cell_bytes
        per_unit = max(1, size_bytes // context.cell_bytes)
        cells = np.unique(starts[:, None] + np.arange(per_unit))
        if int(cells[-1]) >= len(context.shared.writes):
            return  # a fault when it is performed
        clocks = context.clocks
        unit = Unit(clocks, clocks.view(lane), {}, ASYNC_SHARED)
        now = Side(context.pc, how, lane)
        unordered = context.shared.unordered_writes(cells, unit)
        if unordered is not None:
            context.report_unit(unordered, cells, now, unit, "shared")
        context.report_unwritten(cells, now)
        context.note_unfenced_copies(cells, unit.vectors[ASYNC_SHARED], now)
        actor = self._actor("core", lane)
        actor.ranks.add(rank)
        stamp = pack_stamp(stamp_base(context.pc, is_asynchronous=True), actor.column, actor.epoch + 1)
        context.shared.read_by_unit(cells, context.tensor_unit, stamp)

    def commit(self, event: TmemCommit) -> None:
        """tcgen05.commit: its arrivals release all tensor-core work that the thread has issued."""
        for address in event.addresses:
            self._commits.setdefault(event, {})[address] = self._commit(event.lane, address)

    def _commit(self, lane: int, address: int) -> Committed:
        clocks = self._context.clocks
        actor = self._actor("core", lane)
        barrier = self._mbarriers.use(address, np.array([lane]), "tcgen05.commit")
        finished = clocks.clock_of(
            np.array([actor.column, actor.fenced, actor.issued]), np.full(3, actor.epoch, np.int32)
        )
        clock = join_clocks(clocks.clock(np.array([lane])), finished)
        self._commit_count += 1
        barrier.last_commit = Commit(PENDING, self._context.pc, lane, self._commit_count)
        return Committed(barrier, clock, actor, actor.epoch, barrier.last_commit)

    def arrive(self, event: TmemCommitArrived) -> None:
        """The arrival of a commit; its mbarrier counts it next."""
        committed = self._commits[event.issue].pop(event.address)
        barrier = committed.barrier
        barrier.note_arrival(np.array([committed.actor.column]), np.array([committed.epoch], np.int32))
        barrier.arrive(committed.clock)
        barrier.last_commit = committed.commit._replace(epoch=barrier.phases + 1)

    def fence(self, event: TmemFence) -> None:
        """tcgen05.fence::before_thread_sync or after_thread_sync."""
        if event.is_before:
            self._fence_before(event.lanes)
        else:
            self._fence_after(event.lanes)

    def _fence_before(self, lanes: LaneNumbers) -> None:
        """tcgen05.fence::before_thread_sync: release what these lanes have completed, and issued."""
        clocks = self._context.clocks
        warps = lanes // WARP_LANES
        is_of_warp = {warp: warps == warp for warp in np.unique(warps).tolist()}
        own_lanes = set(lanes.tolist())
        for actor in self._actors.values():
            if actor.how == "core":
                if actor.number in own_lanes:
                    actor_lanes = np.array([actor.number])
                    clocks.learn(actor_lanes, actor.issued, actor.epoch)
                continue
            if actor.number in is_of_warp:
                actor_lanes = lanes[is_of_warp[actor.number]]
                clocks.learn(actor_lanes, actor.fenced, int(clocks.time_known_to(actor_lanes, actor.column).max()))

    def _fence_after(self, lanes: LaneNumbers) -> None:
        """tcgen05.fence::after_thread_sync: what happens before these lanes is ordered before their later work."""
        clocks = self._context.clocks
        for actor in self._actors.values():
            known_epochs = clocks.time_known_to(lanes, actor.fenced)
            if not known_epochs.any():
                continue
            epochs = self._behind_fence.get(actor.fenced)
            if epochs is None:
                epochs = self._behind_fence[actor.fenced] = np.zeros(clocks.lane_count, np.int32)
            epochs[lanes] = np.maximum(epochs[lanes], known_epochs)

    def allocate(self, event: TmemAlloc) -> None:
        """tcgen05.alloc of a warp: the right to allocate, and the address that it leaves in shared memory.

        The warp has that address at once. Copies over it need no proxy fence: Triton's kernels have none.
        """
        context = self._context
        lanes = event.lanes
        before = event.before
        now = Side(event.pc, "tcgen05.alloc", int(lanes[0]))
        rank = int(context.cluster.block_of_lane[lanes[0]])
        first, columns = event.after.allocations[-1]
        actor = self._actor("alloc", int(lanes[0]) // WARP_LANES)
        context.shared.write(context.cells_at(event.address, _ADDRESS_BYTES), self._begin(actor))
        context.clocks.learn(lanes, actor.column, actor.epoch)
        self._allocations.append(_Allocation(rank, first, columns, now))
        if not before.may_allocate:
            self._context.report("tensor relinquished", None, now, "tensor", None, columns=columns)
        elif before.allocations and columns > before.allocations[-1][1]:
            last = before.allocations[-1][1]
            self._context.report("tensor growth", None, now, "tensor", None, columns=columns, before_columns=last)
        if event.peer is not None and not self._is_running(event.peer, lanes):
            self._context.report("tensor peer", None, now, "tensor", None, columns=columns)

    def _is_running(self, rank: int, lanes: LaneNumbers) -> bool:
        """Whether anything that a thread of a block did has completed before what these lanes do: it has started."""
        threads = self._context.cluster.block_of_lane == rank
        over = self._context.clocks.clock(lanes).over[: len(threads)]
        return bool(over[threads].any())

    def deallocate(self, event: TmemDealloc) -> None:
        """tcgen05.dealloc: report accesses to the columns that have not completed."""
        lane = event.lane
        rank = event.rank
        first = event.first_column
        columns = event.columns
        if not event.is_allocated:
            now = Side(event.pc, "tcgen05.dealloc", lane)
            self._context.report("tensor dealloc", None, now, "tensor", None, first=first, columns=columns)
            return
        self._allocations = [
            allocation for allocation in self._allocations if (allocation.rank, allocation.first) != (rank, first)
        ]
        warp_lanes = lane // WARP_LANES * WARP_LANES + np.arange(WARP_LANES)
        actor = self._actor("st", lane // WARP_LANES)
        access = _Access(Side(self._context.pc, "tcgen05.dealloc", lane), warp_lanes, actor, rank)
        lanes = np.arange(0, TMEM_LANES, _CELL_LANES)
        places = (lanes[:, None] * TMEM_COLUMNS + first + np.arange(columns)).ravel()
        cells = self._cells(rank, places)
        self._meet_writes(access, cells)
        self._meet_reads(access, cells)
        self._write(cells, 0, _NO_SHAPE)

    def end(self, rank: int, clock: VectorClock) -> None:
        """Report pending work on a block that has ended, and columns that were not deallocated."""
        context = self._context
        for actor in self._actors.values():
            if rank in actor.ranks and clock.known[actor.column] < actor.epoch:
                side = context.tensor_side(actor.last_pc, None)
                context.report("block end", None, side, "shared", None, rank=rank)
        for address, barrier in self._mbarriers.at.items():
            commit = barrier.last_commit
            if address >> SHARED_RANK_SHIFT != rank or commit is None:
                continue
            if clock.over[barrier.column] < commit.epoch:
                side = Side(commit.pc, "tcgen05.commit", None)
                context.report("block end", None, side, "shared", None, rank=rank)
        for allocation in self._allocations:
            if allocation.rank == rank:
                last = allocation.first + allocation.columns - 1
                facts = {"rank": rank, "first": allocation.first, "last": last, "columns": allocation.columns}
                context.report("tensor leak", None, allocation.side, "tensor", None, **facts)
