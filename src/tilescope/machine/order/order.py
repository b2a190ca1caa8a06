"""The order of one cluster's accesses: every instruction that touches memory, or orders such, is told here.

        cluster, copies, wgmma, barriers ──▶ Order ──▶ cells    who touched this last, and does this thread know?
                                               │
                                               └─────▶ Conflicts

What is found depends on the path that threads take and on their data, not on which of them this run let go first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.machine.address import SHARED_OFFSET_MASK, SHARED_RANK_SHIFT, Addresses
from tilescope.machine.order.accessor import Threads, Unit
from tilescope.machine.order.barrier_order import BarrierOrder, Words
from tilescope.machine.order.cells import CellNumbers, Cells, CellTable, Met
from tilescope.machine.order.conflict import Conflict, Conflicts, How, Mistake, Side
from tilescope.machine.order.global_cells import GlobalCells, read_slots
from tilescope.machine.order.knowledge import BULK_READ, BULK_WRITE, CP_ASYNC, Clock, Knowledge, Vector, joined
from tilescope.machine.order.semantics import Meaning, cell_bytes, meanings
from tilescope.machine.order.stamp import (
    UNDER_WAY,
    Stamp,
    columns_of,
    epochs_of,
    first_of_each,
    pcs_of,
    stamp_base,
    stamped,
    taken_apart,
)
from tilescope.machine.program import Program
from tilescope.machine.records import block_index
from tilescope.machine.step import LaneNumbers

if TYPE_CHECKING:
    from tilescope.machine.cluster import Cluster

Same = Callable[[], npt.NDArray[np.bool_]]
"""For each lane of a store: whether what it writes lies there already."""
WARPGROUP_LANES = 128
_GROUPS_REMEMBERED = 64  # of cp.async: how many commits back a wait may reach


class LaunchOrder:
    """What all clusters of a launch share."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.meanings: list[Meaning | None] = meanings(program)
        self.shared_cell_bytes = cell_bytes(program, "shared")
        self.conflicts = Conflicts()
        self.memory = GlobalCells(cell_bytes(program, "global"))
        self.words = Words()
        self.clusters = 0


class RegisterUse(NamedTuple):
    """What an instruction does to registers of wgmma, or to others that their values are moved from or to."""

    settled: frozenset[int]  # those of wgmma: products that use them are finished first
    read: frozenset[int]
    written: frozenset[int]
    is_move: bool


class Product(NamedTuple):
    """A wgmma: the epoch of its group, and its instruction."""

    epoch: int
    pc: int


class Landing(NamedTuple):
    """A copy into shared memory under way: the cells that it writes, with what stamp, and its mbarrier."""

    cells: Cells
    stamp: int
    barrier: BarrierOrder
    base: int


@dataclass(slots=True)
class CopyGroups:
    """The cp.async of every thread: epochs that end with a commit, or with an arrival behind them."""

    epochs: npt.NDArray[np.int32]
    committed: npt.NDArray[np.int32]  # (remembered, lanes): the epoch that each commit ended
    issued: npt.NDArray[np.int32]  # the last epoch in which each lane copied something
    arrived: npt.NDArray[np.int32]  # the last epoch that an mbarrier was told of
    pcs: npt.NDArray[np.int64]


class Order:
    """The order of one cluster."""

    def __init__(self, cluster: Cluster, launch_order: LaunchOrder) -> None:
        launch_order.clusters += 1
        self.cluster = cluster
        self.launch = launch_order
        self.number = launch_order.clusters
        lanes = cluster.lane_count
        self.warpgroup_of_lane = cluster.grouping(WARPGROUP_LANES).of_lane
        warpgroups = int(self.warpgroup_of_lane[-1]) + 1
        self.knowledge = Knowledge(self.number, lanes, warpgroups)
        self.cell_bytes = launch_order.shared_cell_bytes
        cells = len(cluster.shared) // self.cell_bytes + 1
        self.shared = CellTable(cells, lanes // WARP_LANES, warpgroups + 1)
        self._bulk_unit = warpgroups
        self.barriers: dict[int, BarrierOrder] = {}
        self.words = Words()  # in shared memory
        self.fence_epochs: npt.NDArray[np.int32] = np.zeros(lanes, np.int32)  # of each thread's last fence; 0: none
        self.unfenced: dict[int, list[Clock]] = {}  # what relaxed loads saw: learnt at the next fence of the lane
        self.copies = CopyGroups(
            np.ones(lanes, np.int32),
            np.zeros((_GROUPS_REMEMBERED, lanes), np.int32),
            np.zeros(lanes, np.int32),
            np.zeros(lanes, np.int32),
            np.zeros(lanes, np.int64),
        )
        self.bulk_reads: dict[int, tuple[int, int]] = {}  # by lane: (epoch, pc) of its last bulk store
        self.products: dict[int, tuple[int, int]] = {}  # by warpgroup: (epoch, pc) of its last wgmma
        self.dirty_registers: dict[int, set[int]] = {}  # by warpgroup: written since its wgmma.fence
        self.fenced_warpgroups: set[int] = set()
        self.products_of: dict[int, dict[int, Product]] = {}  # by warpgroup, then by register: the last that uses it
        self.block_clocks: dict[tuple[int, int], Clock] = {}  # of barriers of blocks: (rank, number)
        self.cluster_clocks: dict[int, Clock] = {}  # of the cluster's barrier, by phase
        self.map_edits: dict[int, MapEdit] = {}
        self.ended_blocks: set[int] = set()
        self.reached_blocks: set[int] = set()  # whose shared memory other blocks have touched

    # Threads touch memory ------------------------------------------------------------------------------------------

    def touch_shared(self, lanes: LaneNumbers, places: Addresses, size_bytes: int, same: Same | None) -> None:
        """A load (`same` is None) or a store of threads; `places` are those in the cluster's shared memory."""
        meaning = self.launch.meanings[self.cluster.pc]
        if meaning is None:
            return
        if same is not None and meaning.kind == "atomic":
            return  # its load was told
        if self.cluster.blocks > 1:
            self._reach(lanes, places)
        cells, lane_of_cell = self._spread(lanes, places, size_bytes, self.cell_bytes)
        threads = Threads(self.knowledge, lane_of_cell)
        is_read = same is None and meaning.kind != "atomic"
        self._meet(
            self.shared,
            cells,
            threads,
            _Touch(
                "shared",
                is_read,
                meaning,
                lane_of_cell,
                cells * self.cell_bytes,
                same,
                len(lanes),
                how=meaning.kind,
            ),
        )
        base = stamp_base(self.cluster.pc, is_strong=meaning.is_strong)
        stamps = stamped(base, lane_of_cell, self.knowledge.own[lane_of_cell])
        if is_read:
            unwritten = self.shared.unwritten(cells)
            if unwritten.any():
                self._unwritten(unwritten, lane_of_cell, cells)
            self.shared.read_by_threads(cells, lane_of_cell // WARP_LANES * 2, stamps)
        else:
            self.shared.write(cells, stamps)
        if meaning.is_strong:
            self._order_by_words(self.words, meaning, lanes, places)

    def touch_global(self, lanes: LaneNumbers, addresses: Addresses, size_bytes: int, same: Same | None) -> None:
        """A load (`same` is None) or a store of threads to global memory."""
        meaning = self.launch.meanings[self.cluster.pc]
        if meaning is None or (same is not None and meaning.kind == "atomic"):
            return
        self._touch_global(lanes, addresses, size_bytes, same, meaning)
        if meaning.is_strong:
            self._order_by_words(self.launch.words, meaning, lanes, addresses)

    def read_global(self, lanes: LaneNumbers, addresses: Addresses, size_bytes: int) -> None:
        """Threads read global memory by an instruction that is no load: the source of cp.async."""
        self._touch_global(lanes, addresses, size_bytes, None, _WEAK_READ)

    def _touch_global(
        self, lanes: LaneNumbers, addresses: Addresses, size_bytes: int, same: Same | None, meaning: Meaning
    ) -> None:
        memory = self.launch.memory
        every_cell, lane_of_every = self._spread(lanes, addresses, size_bytes, memory.cell_bytes)
        base = stamp_base(self.cluster.pc, is_strong=meaning.is_strong)
        is_read = same is None and meaning.kind != "atomic"
        for table, cells, positions in memory.pieces(every_cell):
            lane_of_cell = lane_of_every[positions]
            threads = Threads(self.knowledge, lane_of_cell)
            touched = every_cell[positions] * memory.cell_bytes
            touch = _Touch("global", is_read, meaning, lane_of_cell, touched, same, len(lanes), positions, meaning.kind)
            self._meet(table, cells, threads, touch)
            stamps = stamped(base, lane_of_cell, self.knowledge.own[lane_of_cell])
            if is_read:
                table.read_by(self.number, cells, read_slots(self.number, lane_of_cell // WARP_LANES), stamps)
            else:
                table.write_by(self.number, cells, stamps)

    def two_values(self, space: Literal["shared", "global"], lane: int, address: int) -> None:
        """Two threads of one store wrote different values to one place."""
        if self.launch.meanings[self.cluster.pc] not in (None, *_STRONG_WRITES):
            side = Side(self.cluster.pc, "write", lane)
            self._add("race", side, side, space, address)

    def _meet(self, table: CellTable, cells: CellNumbers, threads: Threads, touch: _Touch) -> None:
        """Report whom threads meet without knowing that they were finished."""
        strong = touch.meaning.is_strong
        met = table.unknown_writes(cells, threads, strong=strong)
        if met is not None and not (touch.same is not None and self._is_same(touch, met)):
            self._report(met, touch, was_write=True)
        if not touch.is_read:
            for read in table.unknown_reads(cells, threads, strong=strong):
                if touch.same is None or not self._is_same(touch, read):
                    self._report(read, touch, was_write=False)

    def _is_same(self, touch: _Touch, met: Met) -> bool:
        """Whether all that was met is overwritten with what lies there: nobody can tell who was first."""
        assert touch.same is not None
        places = met.places if touch.positions is None else touch.positions[met.places]
        cells_of_lane = touch.cells_in_all // touch.lane_count if touch.cells_in_all else 1
        return bool(touch.same()[places // cells_of_lane].all())

    def _report(self, met: Met, touch: _Touch, *, was_write: bool) -> None:
        """One conflict for each instruction that was met."""
        for index in first_of_each(pcs_of(met.stamps)):
            place = int(met.places[index])
            before = self._side(taken_apart(int(met.stamps[index])), was_write=was_write)
            now = Side(self.cluster.pc, touch.how, int(touch.lane_of_cell[place]))
            mistake = _mistake(before.how, now.how, was_write=was_write)
            facts = self._foreign(met, index)
            self._add(mistake, before, now, touch.space, int(touch.addresses[place]), **facts)

    def _foreign(self, met: Met, index: int) -> dict[str, int]:
        """The cluster that was met, where it is another one."""
        if met.clusters is None or int(met.clusters[index]) == self.number:
            return {}
        return {"cluster": int(met.clusters[index])}

    def _unwritten(self, flags: npt.NDArray[np.bool_], lane_of_cell: LaneNumbers, cells: CellNumbers) -> None:
        first = int(np.argmax(flags))
        now = Side(self.cluster.pc, "read", int(lane_of_cell[first]))
        self._add("unwritten", None, now, "shared", int(cells[first]) * self.cell_bytes)

    def _spread(
        self, lanes: LaneNumbers, places: Addresses, size_bytes: int, cell_bytes: int
    ) -> tuple[CellNumbers, LaneNumbers]:
        """The cells that lanes touch, one after another, and the lane of each."""
        first = places // cell_bytes
        count = -(-size_bytes // cell_bytes)
        if count == 1:
            return first, lanes
        cells = (first[:, None] + np.arange(count)).ravel()
        return cells, np.repeat(lanes, count)

    def _reach(self, lanes: LaneNumbers, places: Addresses) -> None:
        """Note which blocks are touched by others; one that has ended is an error."""
        ranks = places // self.cluster.shared_stride
        is_remote = ranks != self.cluster.block_of_lane[lanes]
        if not is_remote.any():
            return
        reached = np.unique(ranks[is_remote]).tolist()
        self.reached_blocks.update(reached)
        for rank in self.ended_blocks.intersection(reached):
            index = int(np.argmax(is_remote & (ranks == rank)))
            now = Side(self.cluster.pc, "read", int(lanes[index]))
            self._add("block end", None, now, "shared", int(places[index]), rank=rank)

    # Words that order ----------------------------------------------------------------------------------------------

    def _order_by_words(self, words: Words, meaning: Meaning, lanes: LaneNumbers, addresses: Addresses) -> None:
        """Releases and acquires through flags, counters and locks."""
        if meaning.kind != "write" and words.released:
            for lane, address in zip(lanes.tolist(), addresses.tolist(), strict=True):
                for clock in words.at(address):
                    self._see(lane, clock, at_once=meaning.acquires)
        if meaning.kind != "read":
            may_release = np.ones(len(lanes), np.bool_) if meaning.releases else self.fence_epochs[lanes] > 0
            if may_release.any():
                self._release_to(words, lanes[may_release], addresses[may_release], by_fence=not meaning.releases)

    def _see(self, lane: int, clock: Clock, *, at_once: bool) -> None:
        if at_once:
            self.knowledge.acquire(np.array([lane]), clock)
        else:
            self.unfenced.setdefault(lane, []).append(clock)

    def _release_to(self, words: Words, lanes: LaneNumbers, addresses: Addresses, *, by_fence: bool) -> None:
        for address in np.unique(addresses).tolist():
            own = lanes[addresses == address]
            epochs = self.fence_epochs[own] if by_fence else None
            words.release(address, self.knowledge.clock(own, epochs))
        if not by_fence:
            self.knowledge.own[lanes] += 1

    def fence(self, lanes: LaneNumbers) -> None:
        """fence.acq_rel, fence.sc, membar."""
        if self.unfenced:
            for lane in lanes.tolist():
                for clock in self.unfenced.pop(lane, ()):
                    self.knowledge.acquire(np.array([lane]), clock)
        self.fence_epochs[lanes] = self.knowledge.own[lanes]
        self.knowledge.own[lanes] += 1

    def fence_proxy(self, lanes: LaneNumbers) -> None:
        """fence.proxy.async."""
        self.knowledge.fence(lanes)

    # Barriers of threads -------------------------------------------------------------------------------------------

    def meet_warps(self, lanes: LaneNumbers) -> None:
        """bar.warp.sync: the lanes of each warp learn what they know together."""
        warps = lanes // WARP_LANES
        for warp in np.unique(warps).tolist():
            own = lanes[warps == warp]
            self.knowledge.meet(own, self.knowledge.release(own))

    def come_to_block_barrier(self, rank: int, number: int, lanes: LaneNumbers) -> None:
        """bar.sync, bar.red or bar.arrive of some lanes."""
        key = (rank, number)
        self.block_clocks[key] = joined(self.block_clocks.get(key), self.knowledge.release(lanes))

    def block_barrier_ended(self, rank: int, number: int, waiting: list[LaneNumbers]) -> None:
        """The lanes that waited go on, with what all brought."""
        clock = self.block_clocks.pop((rank, number), None)
        if clock is not None and waiting:
            self.knowledge.meet(np.concatenate(waiting), clock)

    def come_to_cluster_barrier(self, phase: int, lanes: LaneNumbers, *, is_relaxed: bool) -> None:
        """barrier.cluster.arrive."""
        for barrier in self.barriers.values():
            if barrier.is_fenced and barrier.init_lane in lanes:
                barrier.is_published = True
        if not is_relaxed:
            clock = self.knowledge.release(lanes)
            self.cluster_clocks[phase] = joined(self.cluster_clocks.get(phase), clock)

    def pass_cluster_barrier(self, phase: int, lanes: LaneNumbers) -> None:
        """barrier.cluster.wait."""
        clock = self.cluster_clocks.get(phase)
        if clock is not None:
            self.knowledge.acquire(lanes, clock)

    # Mbarriers -----------------------------------------------------------------------------------------------------

    def barrier(self, address: int) -> BarrierOrder:
        """The mbarrier at a shared address."""
        found = self.barriers.get(address)
        if found is None:
            found = self.barriers[address] = BarrierOrder(self.knowledge.new_column())
        return found

    def init(self, address: int, lane: int) -> None:
        """mbarrier.init."""
        barrier = self.barrier(address)
        barrier.init_pc = self.cluster.pc
        barrier.init_lane = lane
        barrier.init_epoch = int(self.knowledge.own[lane])
        barrier.is_fenced = False
        barrier.is_published = False
        barrier.arriving = None
        barrier.ended = None
        barrier.expected_bytes = 0
        barrier.came_bytes = 0

    def fence_init(self, lanes: LaneNumbers) -> None:
        """fence.mbarrier_init: what these lanes made may be used by other blocks behind a barrier of the cluster."""
        for barrier in self.barriers.values():
            if barrier.init_lane in lanes:
                barrier.is_fenced = True

    def use(self, address: int, lanes: LaneNumbers, how: How = "arrival") -> BarrierOrder:
        """Some lanes use an mbarrier: its init must be visible to them."""
        barrier = self.barrier(address)
        if barrier.init_pc is None:
            return barrier
        column = np.full(len(lanes), barrier.init_lane)
        is_known = self.knowledge.is_known(lanes, column, np.full(len(lanes), barrier.init_epoch))
        rank = address >> SHARED_RANK_SHIFT
        is_remote = self.cluster.block_of_lane[lanes] != rank
        is_visible = np.where(is_remote, barrier.is_published, is_known | barrier.is_published)
        if not is_visible.all():
            before = Side(barrier.init_pc, "init", barrier.init_lane)
            now = Side(self.cluster.pc, how, int(lanes[np.argmin(is_visible)]))
            self._add("barrier init", before, now, "shared", self._place(address))
        return barrier

    def arrive(self, address: int, lanes: LaneNumbers, *, is_relaxed: bool = False) -> None:
        """mbarrier.arrive: what the lanes know is handed on when the phase ends."""
        barrier = self.use(address, lanes)
        barrier.note_arrival(lanes, self.knowledge.own[lanes])
        if not is_relaxed:
            barrier.arrive(self.knowledge.release(lanes))

    def arrive_behind_copies(self, address: int, lanes: LaneNumbers) -> Vector:
        """cp.async.mbarrier.arrive is issued: the epochs of the lanes' copies that it will tell of."""
        self.use(address, lanes)
        epochs: Vector = self.copies.epochs[lanes].copy()
        self.copies.epochs[lanes] += 1
        self.copies.arrived[lanes] = epochs
        return epochs

    def copies_arrived(self, address: int, lanes: LaneNumbers, epochs: Vector) -> None:
        """The copies of the lanes are done, and their arrival is counted."""
        known = np.zeros(self.knowledge.columns, np.int32)
        columns = CP_ASYNC * self.knowledge.lane_count + lanes
        known[columns] = epochs
        barrier = self.barrier(address)
        barrier.note_arrival(columns, epochs)
        barrier.arrive(Clock(self.number, known, np.zeros_like(known), {}))

    def may_pass(self, address: int, lanes: LaneNumbers) -> npt.NDArray[np.bool_]:
        """For lanes whose phase has ended: who sees that at once.

        A poll may fail. It fails the first time unless the end of the phase happened before it in the order, so that a
        missing loop behind it is found whatever the run let go first.
        """
        barrier = self.barrier(address)
        passes = self.knowledge.known[self.knowledge.row_of_lane[lanes], barrier.column] >= barrier.phases
        if not passes.all():
            passes |= np.isin(lanes, list(barrier.failed_lanes))
        if not passes.all() and barrier.ended_by is not None:
            columns, epochs = barrier.ended_by
            shape = (len(lanes), len(columns))
            known = self.knowledge.is_known(lanes, np.broadcast_to(columns, shape), np.broadcast_to(epochs, shape))
            passes |= known.all(axis=1)
        barrier.failed_lanes.update(lanes[~passes].tolist())
        return np.asarray(passes)

    def waited(self, address: int, lanes: LaneNumbers) -> None:
        """Lanes have seen a phase end."""
        self.barrier(address).pass_on(self.knowledge, lanes)

    # cp.async ------------------------------------------------------------------------------------------------------

    def copy_by_threads(self, lanes: LaneNumbers, places: Addresses, size_bytes: int) -> None:
        """cp.async is issued: each lane will write its bytes at any time before it waits."""
        cells, lane_of_cell = self._spread(lanes, places, size_bytes, self.cell_bytes)
        threads = Threads(self.knowledge, lane_of_cell)
        touch = _Touch(
            "shared", False, _CP_WRITE, lane_of_cell, cells * self.cell_bytes, None, len(lanes), how="cp.async"
        )
        self._meet(self.shared, cells, threads, touch)
        columns = CP_ASYNC * self.knowledge.lane_count + lane_of_cell
        stamps = stamped(stamp_base(self.cluster.pc), columns, self.copies.epochs[lane_of_cell])
        self.shared.write(cells, stamps)
        self.copies.issued[lanes] = self.copies.epochs[lanes]
        self.copies.pcs[lanes] = self.cluster.pc

    def commit_copies(self, lanes: LaneNumbers, groups: LaneNumbers) -> None:
        """cp.async.commit_group: `groups` are the numbers of the groups that end."""
        self.copies.committed[groups % _GROUPS_REMEMBERED, lanes] = self.copies.epochs[lanes]
        self.copies.epochs[lanes] += 1

    def wait_for_copies(self, lanes: LaneNumbers, last_groups: LaneNumbers) -> None:
        """cp.async.wait_group: groups up to these are finished; -1: none."""
        is_any = last_groups >= 0
        lanes = lanes[is_any]
        epochs = self.copies.committed[last_groups[is_any] % _GROUPS_REMEMBERED, lanes]
        columns = CP_ASYNC * self.knowledge.lane_count + lanes
        self.knowledge.own[columns] = np.maximum(self.knowledge.own[columns], epochs)

    def wait_for_all_copies(self, lanes: LaneNumbers) -> None:
        """cp.async.wait_all."""
        columns = CP_ASYNC * self.knowledge.lane_count + lanes
        self.knowledge.own[columns] = self.copies.epochs[lanes]
        self.copies.epochs[lanes] += 1

    # Bulk and tensor copies ----------------------------------------------------------------------------------------

    def load_issued(self, lane: int, cells: Cells, barrier_address: int, *, is_reduction: bool = False) -> Landing:
        """A copy into shared memory that will tell an mbarrier."""
        barrier = self.use(barrier_address, np.array([lane]), "copy")
        self._unit_writes(lane, cells, is_strong=is_reduction)
        base = stamp_base(self.cluster.pc, is_strong=is_reduction)
        stamp = int(stamped(base, barrier.column, UNDER_WAY))
        self.shared.write(cells, stamp)
        barrier.last_copy = (UNDER_WAY, self.cluster.pc)
        return Landing(cells, stamp, barrier, base)

    def landed(self, landing: Landing, size_bytes: int) -> None:
        """The bytes of a copy are there; its mbarrier is told next."""
        barrier = landing.barrier
        epoch = barrier.phases + 1
        self.shared.restamp(landing.cells, landing.stamp, int(stamped(landing.base, barrier.column, epoch)))
        barrier.last_copy = (epoch, self.cluster.pc)
        barrier.came_bytes += size_bytes

    def store_async_issued(
        self, lanes: LaneNumbers, addresses: Addresses, size_bytes: int, barrier_address: int
    ) -> Landing:
        """st.async or red.async: each lane's value will arrive before the mbarrier's phase ends."""
        barrier = self.use(barrier_address, lanes, "copy")
        places = self.cluster.shared_places(addresses)
        cells, lane_of_cell = self._spread(lanes, places, size_bytes, self.cell_bytes)
        threads = Threads(self.knowledge, lane_of_cell)
        touch = _Touch("shared", False, _CP_WRITE, lane_of_cell, cells * self.cell_bytes, None, len(lanes), how="copy")
        self._meet(self.shared, cells, threads, touch)
        base = stamp_base(self.cluster.pc)
        stamp = int(stamped(base, barrier.column, UNDER_WAY))
        self.shared.write(cells, stamp)
        barrier.last_copy = (UNDER_WAY, self.cluster.pc)
        return Landing(cells, stamp, barrier, base)

    def _unit_writes(self, lane: int, cells: Cells, *, is_strong: bool) -> None:
        known, fenced = self.knowledge.view(lane)
        others = self.knowledge.others[self.knowledge.row_of_lane[lane]]
        met = self.shared.unknown_writes(cells, self._async_unit(known, fenced, others), strong=is_strong)
        if met is not None:
            self._report_unit(met, cells, Side(self.cluster.pc, "copy", lane), known, was_write=True)
        reader = Unit(self.number, known, others, by_async_proxy=False)
        for read in self.shared.unknown_reads(cells, reader, strong=is_strong):
            self._report_unit(read, cells, Side(self.cluster.pc, "copy", lane), known, was_write=False)

    def _async_unit(self, known: Vector, fenced: Vector, others: dict[int, tuple[Vector, Vector]]) -> Unit:
        """What the async proxy sees: of threads what was fenced, of everything else what is known."""
        visible = known.copy()
        threads = self.knowledge.lane_count
        visible[:threads] = fenced[:threads]
        return Unit(self.number, visible, others, by_async_proxy=True)

    def _report_unit(self, met: Met, cells: Cells, now: Side, known: Vector, *, was_write: bool) -> None:
        for index in first_of_each(pcs_of(met.stamps)):
            stamp = taken_apart(int(met.stamps[index]))
            before = self._side(stamp, was_write=was_write)
            mistake = _mistake(before.how, now.how, was_write=was_write)
            if was_write and before.how in ("write", "atomic") and known[stamp.column] >= stamp.epoch:
                mistake = "proxy fence"
            place = int(met.places[index])
            cell = (cells.start or 0) + place if isinstance(cells, slice) else int(cells[place])
            self._add(mistake, before, now, "shared", cell * self.cell_bytes)

    def store_issued(self, lane: int, cells: Cells, group: int) -> None:
        """A copy out of shared memory: it reads its source until a wait_group.read, or a wait_group."""
        self._unit_reads(lane, cells)
        column = BULK_READ * self.knowledge.lane_count + lane
        stamp = int(stamped(stamp_base(self.cluster.pc), column, group + 1))
        self.shared.read_by_unit(cells, self._bulk_unit, stamp)
        self.bulk_reads[lane] = (group + 1, self.cluster.pc)

    def copy_between_blocks(self, lane: int, cells: Cells, barrier_address: int) -> None:
        """The source of a copy to another block's shared memory, which is read until the mbarrier's phase ends."""
        self._unit_reads(lane, cells)
        barrier = self.barrier(barrier_address)
        stamp = int(stamped(stamp_base(self.cluster.pc), barrier.column, barrier.phases + 1))
        self.shared.read_by_unit(cells, self._bulk_unit, stamp)

    def _unit_reads(self, lane: int, cells: Cells) -> None:
        known, fenced = self.knowledge.view(lane)
        others = self.knowledge.others[self.knowledge.row_of_lane[lane]]
        now = Side(self.cluster.pc, "bulk store", lane)
        met = self.shared.unknown_writes(cells, self._async_unit(known, fenced, others))
        if met is not None:
            self._report_unit(met, cells, now, known, was_write=True)
        self._unwritten_by_unit(cells, now)

    def _unwritten_by_unit(self, cells: Cells, now: Side) -> None:
        flags = self.shared.unwritten(cells)
        if flags.any():
            place = int(np.argmax(flags))
            cell = (cells.start or 0) + place if isinstance(cells, slice) else int(cells[place])
            self._add("unwritten", None, now, "shared", cell * self.cell_bytes)

    def global_by_copy(self, lane: int, cells: CellNumbers, group: int | None, *, is_reduction: bool = False) -> None:
        """A copy reads global memory (`group` is None) or writes it as part of a bulk group of its thread."""
        if not len(cells):
            return
        known, fenced = self.knowledge.view(lane)
        unit = self._async_unit(known, fenced, self.knowledge.others[self.knowledge.row_of_lane[lane]])
        now = Side(self.cluster.pc, "copy" if group is None else "bulk store", lane)
        base = stamp_base(self.cluster.pc, is_strong=is_reduction)
        for table, own, positions in self.launch.memory.pieces(cells):
            met = table.unknown_writes(own, unit, strong=is_reduction)
            if met is not None:
                self._report_global(met, cells[positions], now, known, was_write=True)
            if group is None:
                stamp = int(stamped(base, lane, int(self.knowledge.own[lane])))
                table.read_by_copy(self.number, own, stamp)
                continue
            for read in table.unknown_reads(own, unit, strong=is_reduction):
                self._report_global(read, cells[positions], now, known, was_write=False)
            column = BULK_WRITE * self.knowledge.lane_count + lane
            table.write_by(self.number, own, stamped(base, column, group + 1))

    def _report_global(self, met: Met, cells: CellNumbers, now: Side, known: Vector, *, was_write: bool) -> None:
        for index in first_of_each(pcs_of(met.stamps)):
            stamp = taken_apart(int(met.stamps[index]))
            before = self._side(stamp, was_write=was_write)
            mistake = _mistake(before.how, now.how, was_write=was_write)
            facts = self._foreign(met, index)
            is_known = not facts and known[stamp.column] >= stamp.epoch
            if was_write and is_known and before.how in ("write", "atomic"):
                mistake = "proxy fence"
            address = int(cells[met.places[index]]) * self.launch.memory.cell_bytes
            self._add(mistake, before, now, "global", address, **facts)

    def wait_for_stores(self, lanes: LaneNumbers, groups_done: LaneNumbers, *, only_read: bool) -> None:
        """cp.async.bulk.wait_group: how many groups of each lane are finished, or have been read."""
        for kind in (BULK_READ,) if only_read else (BULK_READ, BULK_WRITE):
            columns = kind * self.knowledge.lane_count + lanes
            self.knowledge.own[columns] = np.maximum(self.knowledge.own[columns], groups_done)

    # wgmma ---------------------------------------------------------------------------------------------------------

    def product_issued(self, lanes: LaneNumbers, operands: list[CellNumbers], group: int) -> None:
        """A wgmma of one warpgroup reads its operands until wait_group."""
        warpgroup = int(self.warpgroup_of_lane[lanes[0]])
        known, fenced = self.knowledge.warpgroup_view(lanes, WARP_LANES)
        unit = self._async_unit(known, fenced, {})
        now = Side(self.cluster.pc, "wgmma", int(lanes[0]))
        column = self.knowledge.first_warpgroup + warpgroup
        stamp = int(stamped(stamp_base(self.cluster.pc), column, group + 1))
        for cells in operands:
            met = self.shared.unknown_writes(cells, unit)
            if met is not None:
                self._report_unit(met, cells, now, known, was_write=True)
            self._unwritten_by_unit(cells, now)
            self._note_unfenced_copies(cells, fenced, now)
            self.shared.read_by_unit(cells, warpgroup, stamp)
        self.products[warpgroup] = (group + 1, self.cluster.pc)

    def _note_unfenced_copies(self, cells: CellNumbers, fenced: Vector, now: Side) -> None:
        """Operands that cp.async wrote, and no proxy fence since: documents ask for one, public kernels have none."""
        if not self.copies.issued.any():
            return
        stamps = self.shared.writes[cells]
        columns = columns_of(stamps)
        lanes = self.knowledge.lane_count
        is_unfenced = (columns // lanes == CP_ASYNC) & (fenced[columns] < epochs_of(stamps))
        if is_unfenced.any():
            place = int(np.argmax(is_unfenced))
            before = self._side(taken_apart(int(stamps[place])), was_write=True)
            self._add("cp.async fence", before, now, "shared", int(cells[place]) * self.cell_bytes)

    def wait_for_products(self, lanes: LaneNumbers, groups_done: int) -> None:
        """wgmma.wait_group of one warpgroup: so many of its groups are finished."""
        column = self.knowledge.first_warpgroup + int(self.warpgroup_of_lane[lanes[0]])
        self.knowledge.learn(lanes, column, groups_done)

    def registers_fenced(self, lanes: LaneNumbers) -> None:
        """wgmma.fence."""
        for warpgroup in np.unique(self.warpgroup_of_lane[lanes]).tolist():
            self.dirty_registers.pop(warpgroup, None)
            self.fenced_warpgroups.add(warpgroup)

    def registers_touched(self, lanes: LaneNumbers, use: RegisterUse) -> None:
        """Threads read or write registers of a wgmma, or others that their values are moved from or to."""
        for warpgroup in np.unique(self.warpgroup_of_lane[lanes]).tolist():
            under_way = self.products_of.get(warpgroup)
            dirty = self.dirty_registers.setdefault(warpgroup, set())
            if use.is_move:
                self._move_registers(under_way, dirty, use)
                continue
            dirty.update(use.written)
            if under_way:
                self._require_products(warpgroup, lanes, under_way, use)

    def _move_registers(self, under_way: dict[int, Product] | None, dirty: set[int], use: RegisterUse) -> None:
        """A mov gives a value another name: what holds for the one holds for the other."""
        if dirty.isdisjoint(use.read):
            dirty.difference_update(use.written)
        else:
            dirty.update(use.written)
        if not under_way:
            return
        product = next((under_way[number] for number in use.read if number in under_way), None)
        for number in use.written:
            if product is None:
                under_way.pop(number, None)
            else:
                under_way[number] = product

    def _require_products(
        self, warpgroup: int, lanes: LaneNumbers, under_way: dict[int, Product], use: RegisterUse
    ) -> None:
        """Registers of a product may be touched when its group has been waited for."""
        column = self.knowledge.first_warpgroup + warpgroup
        own = lanes[self.warpgroup_of_lane[lanes] == warpgroup]
        done = int(self.knowledge.known[self.knowledge.row_of_lane[own], column].min())
        for number in (*use.read, *use.written):
            product = under_way.get(number)
            if product is None:
                continue
            if product.epoch > done:
                now = Side(self.cluster.pc, "read" if number in use.read else "write", int(own[0]))
                self._add("accumulators", Side(product.pc, "wgmma", None), now, "registers", None)
            under_way.pop(number)

    def registers_used(self, lanes: LaneNumbers, read: frozenset[int], all_of_it: frozenset[int], group: int) -> None:
        """A wgmma of one warpgroup uses registers: a fence must stand behind what wrote them, and before the first."""
        warpgroup = int(self.warpgroup_of_lane[lanes[0]])
        is_dirty = not read.isdisjoint(self.dirty_registers.get(warpgroup, ()))
        if is_dirty or warpgroup not in self.fenced_warpgroups:
            now = Side(self.cluster.pc, "wgmma", int(lanes[0]))
            self._add("accumulator fence", None, now, "registers", None)
        product = Product(group + 1, self.cluster.pc)
        self.products_of.setdefault(warpgroup, {}).update(dict.fromkeys(all_of_it, product))

    # Maps that are edited ------------------------------------------------------------------------------------------

    def map_edited(self, address: int, lane: int) -> None:
        """tensormap.replace, or a copy of a map, in global memory."""
        self.map_edits[address] = MapEdit(self.cluster.pc, lane)

    def map_released(self, lanes: LaneNumbers) -> None:
        """fence.proxy.tensormap … .release, of those who edited."""
        for edit in self.map_edits.values():
            if edit.lane in lanes:
                edit.is_released = True

    def map_acquired(self, lanes: LaneNumbers, addresses: Addresses) -> None:
        """fence.proxy.tensormap … .acquire of a map."""
        for lane, address in zip(lanes.tolist(), addresses.tolist(), strict=True):
            edit = self.map_edits.get(address)
            if edit is not None and edit.is_released:
                edit.acquired[lane] = int(self.knowledge.own[lane])
        self.knowledge.own[lanes] += 1

    def map_used(self, address: int, lane: int) -> None:
        """A copy goes through a map of global memory."""
        edit = self.map_edits.get(address)
        if edit is None:
            return
        known, _ = self.knowledge.view(lane)
        if not any(known[by] >= epoch for by, epoch in edit.acquired.items()):
            before = Side(edit.pc, "write", edit.lane)
            self._add("map fence", before, Side(self.cluster.pc, "copy", lane), "global", address)

    # The end -------------------------------------------------------------------------------------------------------

    def block_ended(self, rank: int) -> None:
        """All threads of a block have ended: nothing may still read or write its shared memory."""
        self.ended_blocks.add(rank)
        lanes = np.flatnonzero(self.cluster.block_of_lane == rank)
        clock = self.knowledge.clock(lanes)
        for address, barrier in self.barriers.items():
            if address >> SHARED_RANK_SHIFT == rank and barrier.last_copy is not None:
                epoch, pc = barrier.last_copy
                if clock.known[barrier.column] < epoch:
                    self._add("block end", None, Side(pc, "copy", None), "shared", self._place(address), rank=rank)
        for lane in lanes[np.isin(lanes, list(self.bulk_reads))].tolist():
            epoch, pc = self.bulk_reads[lane]
            if clock.known[BULK_READ * self.knowledge.lane_count + lane] < epoch:
                self._add("block end", None, Side(pc, "bulk store", lane), "shared", None, rank=rank)
        for warpgroup in np.unique(self.warpgroup_of_lane[lanes]).tolist():
            epoch, pc = self.products.get(warpgroup, (0, 0))
            if clock.known[self.knowledge.first_warpgroup + warpgroup] < epoch:
                self._add("block end", None, Side(pc, "wgmma", None), "shared", None, rank=rank)
        self._end_of_copies(lanes)
        if rank in self.reached_blocks:
            self._end_of_reached(rank, clock)

    def _end_of_copies(self, lanes: LaneNumbers) -> None:
        """cp.async that nobody waited for."""
        done = np.maximum(self.knowledge.own[CP_ASYNC * self.knowledge.lane_count + lanes], self.copies.arrived[lanes])
        is_left = self.copies.issued[lanes] > done
        if is_left.any():
            lane = int(lanes[np.argmax(is_left)])
            rank = int(self.cluster.block_of_lane[lane])
            side = Side(int(self.copies.pcs[lane]), "cp.async", lane)
            self._add("block end", None, side, "shared", None, rank=rank)

    def _end_of_reached(self, rank: int, clock: Clock) -> None:
        """Accesses of other blocks to a block's shared memory that its threads do not know to be finished."""
        first = rank * self.cluster.shared_stride // self.cell_bytes
        cells = slice(first, first + self.cluster.shared_stride // self.cell_bytes)
        known = clock.known.copy()
        known[: self.knowledge.lane_count][self.cluster.block_of_lane == rank] = np.iinfo(np.int32).max
        visible = Unit(self.number, known, {}, by_async_proxy=False)
        left = [self.shared.unknown_writes(cells, visible), *self.shared.unknown_reads(cells, visible)]
        for met in left:
            if met is None:
                continue
            stamp = taken_apart(int(met.stamps[0]))
            side = self._side(stamp, was_write=True)
            if side.how in ("write", "read", "atomic"):
                self._add("block end", None, side, "shared", (first + int(met.places[0])) * self.cell_bytes, rank=rank)

    # Reports -------------------------------------------------------------------------------------------------------

    def _place(self, address: int) -> int:
        """The place of a shared address in the memory of the cluster."""
        return (address >> SHARED_RANK_SHIFT) * self.cluster.shared_stride + (address & SHARED_OFFSET_MASK)

    def cells_at(self, address: int, size_bytes: int) -> slice:
        """The cells of bytes that follow each other in shared memory."""
        first = self._place(address)
        return slice(first // self.cell_bytes, -(-(first + size_bytes) // self.cell_bytes))

    def global_cells_at(self, address: int, size_bytes: int) -> CellNumbers:
        """The cells of global memory that lie wholly in bytes that follow each other."""
        return self.global_cells_of_rows(np.array([address]), size_bytes)

    def global_cells_of_rows(self, starts: Addresses, row_bytes: int) -> CellNumbers:
        """The cells that lie wholly in rows of global memory."""
        width = self.launch.memory.cell_bytes
        first = -(-starts // width)
        end = (starts + row_bytes) // width
        most = int((end - first).max(initial=0))
        cells = first[:, None] + np.arange(most)
        return cells[cells < end[:, None]]

    def _side(self, stamp: Stamp, *, was_write: bool) -> Side:
        """Who left a stamp."""
        lanes = self.knowledge.lane_count
        kind, lane = divmod(stamp.column, lanes)
        if stamp.column >= self.knowledge.first_barrier:
            return Side(stamp.pc, "copy", None)
        if stamp.column >= self.knowledge.first_warpgroup:
            return Side(stamp.pc, "wgmma", None)
        if kind == CP_ASYNC:
            return Side(stamp.pc, "cp.async", lane)
        if kind in (BULK_READ, BULK_WRITE):
            return Side(stamp.pc, "bulk store", lane)
        meaning = self.launch.meanings[stamp.pc]
        how: How = "write" if was_write else "read"
        return Side(stamp.pc, how if meaning is None else meaning.kind, lane)

    def _add(
        self,
        mistake: Mistake,
        before: Side | None,
        now: Side,
        space: Literal["shared", "global", "registers"],
        address: int | None,
        **facts: int,
    ) -> None:
        cluster = self.cluster
        rank = facts.get("rank", 0 if now.lane is None else int(cluster.block_of_lane[now.lane]))
        block = block_index(cluster.first_block, cluster.launch.cluster, rank)
        self.launch.conflicts.add(Conflict(mistake, before, now, space, address, block, facts))


@dataclass(slots=True)
class MapEdit:
    """A map in global memory that the kernel has changed."""

    pc: int
    lane: int
    is_released: bool = False
    acquired: dict[int, int] = field(default_factory=dict)  # by lane: the epoch of its acquire


class _Touch(NamedTuple):
    """An access of threads, cell by cell."""

    space: Literal["shared", "global"]
    is_read: bool
    meaning: Meaning
    lane_of_cell: LaneNumbers
    addresses: Addresses  # of the cells
    same: Same | None
    lane_count: int
    positions: CellNumbers | None = None  # of these cells among all of the access
    how: How = "read"

    @property
    def cells_in_all(self) -> int:
        """Cells of the whole access."""
        return len(self.lane_of_cell) if self.positions is None else int(self.positions[-1]) + 1


_WEAK_READ = Meaning("read", is_strong=False, acquires=False, releases=False)
_CP_WRITE = Meaning("write", is_strong=False, acquires=False, releases=False)
_STRONG_WRITES = tuple(
    Meaning("write", is_strong=True, acquires=False, releases=releases) for releases in (False, True)
)


def _mistake(before: How, now: How, *, was_write: bool) -> Mistake:
    """What two accesses that nothing orders amount to."""
    if before == "copy" and was_write:
        return "copy wait"
    if before == "cp.async":
        return "cp.async"
    if before == "bulk store" and not was_write:
        return "store source"
    if before == "wgmma" or (now == "copy" and not was_write):
        return "refill"
    return "race"
