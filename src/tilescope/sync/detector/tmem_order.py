"""Tensor memory has an order of its own: what finishes when, and who knows it.

    tcgen05.ld, st           of a warp; finished at its wait::ld, wait::st, and then known to those whom a barrier tells
    tcgen05.mma, cp, shift   of a thread; in order among themselves, finished for those who saw a commit's mbarrier end its phase
    fence::before_thread_sync, fence::after_thread_sync
                             stand before the barrier in the one thread, behind it in the other. The documents have them in every
                             example, and say that ordinary barriers work too; Triton's kernels have none. So a missing fence is a note.

Who loads, stores or issues has a column of the clocks (see knowledge.py), and a second one that counts what a fence has published.
A cell is 16 lanes of one column: no instruction but cp.4x256b touches less.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.arithmetic import ceil_div
from tilescope.machine.address import SHARED_RANK_SHIFT
from tilescope.machine.step import LaneNumbers
from tilescope.mma.tmem_address import QUARTER_LANES, QUARTERS, TMEM_COLUMNS, TMEM_LANES
from tilescope.sync.detector.context import PublishedColumns, Witness
from tilescope.sync.detector.mbarrier_order import MbarrierOrder, Mbarriers
from tilescope.sync.detector.race import Side
from tilescope.sync.epoch import UNDER_WAY, Stamp, Stamps, stamp_base, stamped, taken_apart
from tilescope.sync.lane_clocks import FENCED_SHARED, Clock, joined
from tilescope.sync.shadow.accessor import Unit

if TYPE_CHECKING:
    from tilescope.machine.instructions.tensor_core.pending_product import Uses
    from tilescope.mma.tensor_memory import TensorMemory
    from tilescope.mma.tmem_form import TmemMove

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
    """A warp that loads or stores, or a thread that lets the tensor core work: it does one thing after another."""

    how: ActorHow
    number: int  # of the warp, or of the thread, in its cluster
    column: int  # what is finished
    fenced: int  # what is finished and published by fence::before_thread_sync, or by a commit
    issued: int  # what is published, finished or not
    epoch: int = 0
    last_pc: int = 0
    ranks: set[int] = field(default_factory=set)  # the blocks whose shared memory it has read

    @property
    def warp(self) -> int:
        """The warp that it is, or belongs to."""
        return self.number // WARP_LANES if self.how == "core" else self.number


class Committed(NamedTuple):
    """A commit under way: the mbarrier, and what its arrival will hand on."""

    barrier: MbarrierOrder
    clock: Clock
    actor: Actor
    epoch: int
    pc: int


class Moving(NamedTuple):
    """What a warp loads or stores."""

    lanes: LaneNumbers
    rank: int
    places: Places
    word: int  # the address that it named
    registers: frozenset[int]  # that a load brings


class _Allocation(NamedTuple):
    """Columns that a block has, and who asked for them."""

    rank: int
    first: int
    columns: int
    side: Side


class _Access(NamedTuple):
    """Whoever touches tensor memory now."""

    now: Side
    lanes: LaneNumbers  # the thread, or the warp
    actor: Actor
    rank: int


class TensorMemoryOrder:
    """The accesses to the tensor memory of one cluster."""

    def __init__(self, witness: Witness, mbarriers: Mbarriers) -> None:
        self._witness = witness
        self._mbarriers = mbarriers
        self._actors: dict[tuple[str, int], Actor] = {}
        self._by_column: dict[int, Actor] = {}
        self._behind_fence: dict[int, npt.NDArray[np.int32]] = {}  # by column `fenced`, then by lane: at its last fence
        self._allocations: list[_Allocation] = []
        self._loading: dict[int, dict[int, int]] = {}  # by warp, then by register: the epoch of the load that brings it
        self._shapes: dict[Shape, int] = {}
        self._writes: Stamps = np.zeros(0, np.int64)
        self._shape_of_write: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self._reads: Stamps = np.zeros((0, 0), np.int64)

    def _make_tables(self) -> None:
        if len(self._writes):
            return
        cluster = self._witness.cluster
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
        found = self._actors.get(key)
        if found is None:
            knowledge = self._witness.knowledge
            found = Actor(how, number, knowledge.new_column(), knowledge.new_column(), knowledge.new_column())
            self._actors[key] = found
            self._by_column[found.column] = found
            self._witness.tensor_columns[found.column] = PublishedColumns(found.fenced, found.issued)
        return found

    def _begin(self, actor: Actor) -> int:
        """The stamp of the next thing that somebody does."""
        actor.epoch += 1
        actor.last_pc = self._witness.cluster.pc
        return int(stamped(stamp_base(actor.last_pc, is_asynchronous=True), actor.column, actor.epoch))

    def move(self, move: TmemMove, moving: Moving) -> None:
        """tcgen05.ld or st of a warp."""
        lanes, rank, places, word, registers = moving
        cluster = self._witness.cluster
        warp = int(lanes[0]) // WARP_LANES
        is_load = move.direction == "ld"
        now = Side(cluster.pc, "tcgen05.ld" if is_load else "tcgen05.st", int(lanes[0]))
        actor = self._actor("ld" if is_load else "st", warp)
        access = _Access(now, lanes, actor, rank)
        self._require_quarter(access, word)
        self._require_allocated(access, places)
        cells = self._cells(rank, places)
        self._meet_writes(access, cells)
        if is_load:
            self._require_written(access, cells)
            slot = warp % (cluster.block_lanes // WARP_LANES) // QUARTERS
            self._reads[cells, slot] = self._begin(actor)
            self._loading.setdefault(warp, {}).update(dict.fromkeys(registers, actor.epoch))
        else:
            self._meet_reads(access, cells)
            self._write(cells, self._begin(actor), _NO_SHAPE)

    def wait(self, kind: str, lanes: LaneNumbers) -> None:
        """tcgen05.wait::ld, wait::st: what the warps have begun is finished."""
        how: Literal["ld", "st"] = "ld" if kind == "tcgen05.ld" else "st"
        warps = lanes // WARP_LANES
        for warp in np.unique(warps).tolist():
            actor = self._actors.get((how, warp))
            if actor is not None:
                self._witness.knowledge.learn(lanes[warps == warp], actor.column, actor.epoch)
            if how == "ld":
                self._loading.pop(warp, None)

    def touch(self, registers: frozenset[int], lanes: LaneNumbers) -> None:
        """Threads read or write registers that a load brings: it is finished, whether or not they have waited for it."""
        if not self._loading:
            return
        warps = lanes // WARP_LANES
        for warp in np.unique(warps).tolist():
            loading = self._loading.get(warp, {})
            came = {loading[register] for register in registers if register in loading}
            if came:
                left = {register: epoch for register, epoch in loading.items() if epoch not in came}
                self._loading[warp] = left
                actor = self._actor("ld", warp)
                finished = min(left.values(), default=actor.epoch + 1) - 1
                self._witness.knowledge.learn(lanes[warps == warp], actor.column, finished)

    def change(self, how: UnitHow, lane: int, uses: list[tuple[int, Places]]) -> None:
        """tcgen05.cp and shift: cells that a thread lets the tensor core write, by block."""
        actor = self._actor("core", lane)
        stamp = self._begin(actor)
        for rank, places in uses:
            access = _Access(Side(self._witness.cluster.pc, how, lane), np.array([lane]), actor, rank)
            self._require_allocated(access, places)
            cells = self._cells(rank, places)
            self._meet_writes(access, cells, in_order=np.ones(len(cells), np.bool_))
            self._meet_reads(access, cells)
            self._write(cells, stamp, _NO_SHAPE)

    def multiply(self, lane: int, uses: list[Uses], *, adds_d: bool, shape: Shape) -> None:
        """tcgen05.mma: D, and what is read of tensor memory, by block."""
        actor = self._actor("core", lane)
        stamp = self._begin(actor)
        number = self._shapes.setdefault(shape, len(self._shapes) + 1)
        for rank, d, read in uses:
            access = _Access(Side(self._witness.cluster.pc, "tcgen05.mma", lane), np.array([lane]), actor, rank)
            self._require_allocated(access, np.concatenate([d, read]))
            d_cells = self._cells(rank, d)
            written_by_copy = self._shape_of_write
            if len(read):
                cells = self._cells(rank, read)
                self._meet_writes(access, cells, in_order=written_by_copy[cells] == _NO_SHAPE)
                self._require_written(access, cells)
                self._reads[cells, -1] = stamp
            same = self._shape_of_write[d_cells]
            self._meet_writes(access, d_cells, in_order=(same == number) | (same == _NO_SHAPE))
            self._meet_reads(access, d_cells)
            if adds_d:
                self._require_written(access, d_cells)
            self._write(d_cells, stamp, number)

    def _write(self, cells: Cells, stamp: int, shape: int) -> None:
        self._writes[cells] = stamp
        self._shape_of_write[cells] = shape
        self._reads[cells] = 0

    def _meet_writes(self, access: _Access, cells: Cells, in_order: CellFlags | None = None) -> None:
        """Writes that must be finished; `in_order`: cells where those of the same thread's tensor core are anyway."""
        stamps = self._writes[cells]
        for stamp in np.unique(stamps[stamps != 0]).tolist():
            is_met = stamps == stamp
            is_piped = in_order is not None and bool(in_order[is_met].all())
            self._require_finished(access, taken_apart(stamp), int(cells[np.argmax(is_met)]), is_piped=is_piped)

    def _meet_reads(self, access: _Access, cells: Cells) -> None:
        """Reads that must be over before the cells are written."""
        stamps = self._reads[cells]
        for stamp in np.unique(stamps[stamps != 0]).tolist():
            is_met = (stamps == stamp).any(axis=1)
            cell = int(cells[np.argmax(is_met)])
            if (self._writes[cells[is_met]] == 0).all():
                self._require_not_early(access, taken_apart(stamp), cell)
            else:
                self._require_finished(access, taken_apart(stamp), cell, is_piped=True)

    def _require_not_early(self, access: _Access, read: Stamp, cell: int) -> None:
        """A load of cells that nobody had written, and that nothing orders before this write, should have come behind it."""
        reader = self._by_column[read.column]
        if (
            reader.how == "core"
            or int(self._witness.knowledge.known_to(access.lanes, reader.column).max()) >= read.epoch
        ):
            return
        self._witness.tell("tensor memory", access.now, self._side(reader, read.pc), "tensor", self._address(cell))

    def _require_finished(self, access: _Access, before: Stamp, cell: int, *, is_piped: bool) -> None:
        """An error unless the accessor knows that something is finished; a note where fences are missing."""
        other = self._by_column[before.column]
        if is_piped and other.how == "core" and self._is_issued_before(access, other, before.epoch):
            return
        knowledge = self._witness.knowledge
        known = int(knowledge.known_to(access.lanes, other.column).max())
        if known < before.epoch:
            self._tell("tensor memory", self._side(other, before.pc), access, cell)
        elif access.now.how != "tcgen05.dealloc" and not self._is_fenced(access, other, before.epoch):
            self._tell("tensor fence", self._side(other, before.pc), access, cell)

    def _is_issued_before(self, access: _Access, other: Actor, epoch: int) -> bool:
        """Whether two works of tensor cores are in order: of one thread, or of two that fences and a barrier order."""
        if access.actor is other:
            return True
        if access.actor.how != "core":
            return False
        known = int(self._witness.knowledge.known_to(access.lanes, other.issued).max())
        return known >= epoch

    def _is_fenced(self, access: _Access, other: Actor, epoch: int) -> bool:
        """Whether the fences of the documents stand on the way; a warp that waited for its own needs none."""
        if other.how != "core" and other.warp == int(access.lanes[0]) // WARP_LANES:
            return True
        at_fence = self._behind_fence.get(other.fenced)
        return at_fence is not None and int(at_fence[access.lanes].max()) >= epoch

    def _side(self, actor: Actor, pc: int) -> Side:
        return self._witness.tensor_side(pc, actor.number * WARP_LANES if actor.how != "core" else actor.number)

    def _tell(
        self, mistake: Literal["tensor memory", "tensor fence"], before: Side, access: _Access, cell: int
    ) -> None:
        self._witness.tell(mistake, before, access.now, "tensor", self._address(cell))

    def _require_written(self, access: _Access, cells: Cells) -> None:
        is_unwritten = self._writes[cells] == 0
        if is_unwritten.any():
            cell = int(cells[np.argmax(is_unwritten)])
            self._witness.tell("tensor unwritten", None, access.now, "tensor", self._address(cell))

    def _require_allocated(self, access: _Access, places: Places) -> None:
        memory = self._witness.cluster.tensor_memory
        is_allocated = memory.is_allocated(access.rank, places)
        if not is_allocated.all():
            columns = places[~is_allocated] % TMEM_COLUMNS
            place = int(places[np.argmin(is_allocated)])
            lane, column = divmod(place, TMEM_COLUMNS)
            address = access.rank << PLACE_RANK_SHIFT | lane << 16 | column
            first, last = int(columns.min()), int(columns.max())
            self._witness.tell("tensor columns", None, access.now, "tensor", address, first=first, last=last)

    def _require_quarter(self, access: _Access, word: int) -> None:
        lane = word >> 16
        warp = access.actor.number % (self._witness.cluster.block_lanes // WARP_LANES)
        if lane // QUARTER_LANES != warp % QUARTERS:
            own = warp % QUARTERS * QUARTER_LANES + lane % QUARTER_LANES
            self._witness.tell("tensor quarter", None, access.now, "tensor", None, lane=lane, warp=warp, own_lane=own)

    def read_shared(self, how: UnitHow, lane: int, rank: int, addresses: Places, size_bytes: int) -> None:
        """Operands in a block's shared memory, which the tensor core reads until a commit says that it is done."""
        witness = self._witness
        first_byte = rank * witness.cluster.shared_stride
        starts = (addresses.ravel() + first_byte) // witness.cell_bytes
        per_unit = max(1, size_bytes // witness.cell_bytes)
        cells = np.unique(starts[:, None] + np.arange(per_unit))
        if int(cells[-1]) >= len(witness.shared.writes):
            return  # a fault when it is performed
        knowledge = witness.knowledge
        unit = Unit(knowledge, knowledge.view(lane), {}, FENCED_SHARED)
        now = Side(witness.cluster.pc, how, lane)
        met = witness.shared.unknown_writes(cells, unit)
        if met is not None:
            witness.tell_of_unit(met, cells, now, unit, "shared")
        witness.tell_of_unwritten(cells, now)
        actor = self._actor("core", lane)
        actor.ranks.add(rank)
        stamp = int(stamped(stamp_base(witness.cluster.pc, is_asynchronous=True), actor.column, actor.epoch + 1))
        witness.shared.read_by_unit(cells, witness.tensor_unit, stamp)

    def commit(self, lane: int, address: int) -> Committed:
        """tcgen05.commit: the arrival will tell that all that the thread has issued is finished."""
        knowledge = self._witness.knowledge
        actor = self._actor("core", lane)
        barrier = self._mbarriers.use(address, np.array([lane]), "tcgen05.commit")
        finished = knowledge.clock_of(
            np.array([actor.column, actor.fenced, actor.issued]), np.full(3, actor.epoch, np.int32)
        )
        clock = joined(knowledge.clock(np.array([lane])), finished)
        pc = self._witness.cluster.pc
        barrier.last_commit = (UNDER_WAY, pc)
        return Committed(barrier, clock, actor, actor.epoch, pc)

    def arrived(self, committed: Committed) -> None:
        """The arrival of a commit; its mbarrier is told next."""
        barrier = committed.barrier
        barrier.note_arrival(np.array([committed.actor.column]), np.array([committed.epoch], np.int32))
        barrier.arrive(committed.clock)
        barrier.last_commit = (barrier.phases + 1, committed.pc)

    def fence_before(self, lanes: LaneNumbers) -> None:
        """tcgen05.fence::before_thread_sync: what these lanes have finished, and issued, is published."""
        knowledge = self._witness.knowledge
        warps = lanes // WARP_LANES
        is_of_warp = {warp: warps == warp for warp in np.unique(warps).tolist()}
        own_lanes = set(lanes.tolist())
        for actor in self._actors.values():
            if actor.how == "core":
                if actor.number in own_lanes:
                    own = np.array([actor.number])
                    knowledge.learn(own, actor.issued, actor.epoch)
                continue
            if actor.number in is_of_warp:
                own = lanes[is_of_warp[actor.number]]
                knowledge.learn(own, actor.fenced, int(knowledge.known_to(own, actor.column).max()))

    def fence_after(self, lanes: LaneNumbers) -> None:
        """tcgen05.fence::after_thread_sync: what these lanes know by now is in order with what they issue from now on."""
        knowledge = self._witness.knowledge
        for actor in self._actors.values():
            known = knowledge.known_to(lanes, actor.fenced)
            if not known.any():
                continue
            held = self._behind_fence.get(actor.fenced)
            if held is None:
                held = self._behind_fence[actor.fenced] = np.zeros(knowledge.lane_count, np.int32)
            held[lanes] = np.maximum(held[lanes], known)

    def allocate(self, lanes: LaneNumbers, address: int, before: TensorMemory, after: TensorMemory) -> None:
        """tcgen05.alloc of a warp: the right to allocate, and the address that it leaves in shared memory.

        The warp knows that address at once. Copies over it need no proxy fence: Triton's kernels have none.
        """
        witness = self._witness
        now = Side(witness.cluster.pc, "tcgen05.alloc", int(lanes[0]))
        rank = int(witness.cluster.block_of_lane[lanes[0]])
        first, columns = after.allocations[-1]
        actor = self._actor("alloc", int(lanes[0]) // WARP_LANES)
        witness.shared.write(witness.cells_at(address, _ADDRESS_BYTES), self._begin(actor))
        witness.knowledge.learn(lanes, actor.column, actor.epoch)
        self._allocations.append(_Allocation(rank, first, columns, now))
        if not before.may_allocate:
            self._witness.tell("tensor relinquished", None, now, "tensor", None, columns=columns)
        elif before.allocations and columns > before.allocations[-1][1]:
            last = before.allocations[-1][1]
            self._witness.tell("tensor growth", None, now, "tensor", None, columns=columns, before_columns=last)

    def free(self, lane: int, rank: int, first: int, columns: int) -> None:
        """tcgen05.dealloc: nothing may still touch the columns."""
        self._allocations = [held for held in self._allocations if (held.rank, held.first) != (rank, first)]
        warp_lanes = lane // WARP_LANES * WARP_LANES + np.arange(WARP_LANES)
        actor = self._actor("st", lane // WARP_LANES)
        access = _Access(Side(self._witness.cluster.pc, "tcgen05.dealloc", lane), warp_lanes, actor, rank)
        lanes = np.arange(0, TMEM_LANES, _CELL_LANES)
        places = (lanes[:, None] * TMEM_COLUMNS + first + np.arange(columns)).ravel()
        cells = self._cells(rank, places)
        self._meet_writes(access, cells)
        self._meet_reads(access, cells)
        self._write(cells, 0, _NO_SHAPE)

    def free_nothing(self, lane: int, rank: int, first: int, columns: int) -> None:
        """tcgen05.dealloc of what is no allocation of the block."""
        now = Side(self._witness.cluster.pc, "tcgen05.dealloc", lane)
        self._witness.tell("tensor dealloc", None, now, "tensor", None, first=first, columns=columns)

    def end(self, rank: int, clock: Clock) -> None:
        """A block has ended: what may still read its shared memory or come to its mbarriers, and columns not freed."""
        witness = self._witness
        for actor in self._actors.values():
            if rank in actor.ranks and clock.known[actor.column] < actor.epoch:
                side = witness.tensor_side(actor.last_pc, None)
                witness.tell("block end", None, side, "shared", None, rank=rank)
        for address, barrier in self._mbarriers.at.items():
            if address >> SHARED_RANK_SHIFT == rank and barrier.last_commit is not None:
                epoch, pc = barrier.last_commit
                if clock.over[barrier.column] < epoch:
                    witness.tell("block end", None, Side(pc, "tcgen05.commit", None), "shared", None, rank=rank)
        for held in self._allocations:
            if held.rank == rank:
                last = held.first + held.columns - 1
                facts = {"rank": rank, "first": held.first, "last": last, "columns": held.columns}
                witness.tell("tensor leak", None, held.side, "tensor", None, **facts)
