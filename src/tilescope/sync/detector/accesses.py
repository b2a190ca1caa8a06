"""Loads, stores and atomics of threads: each is compared with the accesses that shadow memory holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.arithmetic import ceil_div
from tilescope.sync.access_semantics import AccessSemantics
from tilescope.sync.address import Addresses
from tilescope.sync.bus import StaleValues
from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.detector.context import DetectorContext, classify_conflict
from tilescope.sync.detector.fences import Fences
from tilescope.sync.detector.moral_strength import drop_morally_strong
from tilescope.sync.detector.noncoherent_loads import Writer, judge_noncoherent_load, judge_noncoherent_store
from tilescope.sync.detector.race import How, Side
from tilescope.sync.detector.releases import SyncWords
from tilescope.sync.epoch import (
    Stamps,
    are_asynchronous,
    columns_of,
    first_of_each,
    is_strong,
    pcs_of,
    stamp_base,
    unpack_stamp,
)
from tilescope.sync.events import Atomic, Load, MemorySpace, Store
from tilescope.sync.footprint import CellNumbers, Cells
from tilescope.sync.memory_scope import CTA, GPU
from tilescope.sync.shadow.accessor import Threads
from tilescope.sync.shadow.global_cells import Stretch, read_slots
from tilescope.sync.shadow.shadow_cells import CellTable, LaneCells, ThreadReads, Unordered
from tilescope.sync.vector_clock import EXECUTED, SCOPED

Same = Callable[[], npt.NDArray[np.bool_]]
"""For each lane of a store: whether memory already holds its value."""
NO_STALE_VALUES: StaleValues = {}
_MOST_RELATIVE = 2.0**-16  # by which sums of 32 numbers of 24 bits differ, unless most of them cancel
_LEAST_TERM = 2.0**-6  # terms of a sum are taken to be at least this large
_WEAK_READ = AccessSemantics("read", is_strong=False, acquires=False, releases=False, scope=GPU, is_flag=False)


class Request(NamedTuple):
    """The bytes that lanes access: the same number each, from its place on."""

    lanes: LaneNumbers
    places: Addresses
    size_bytes: int
    same: Same | None = None  # None: a load, or not known

    def of(self, chosen: CellNumbers) -> Request:
        """The request of some of the lanes."""
        same = self.same
        return Request(
            self.lanes[chosen],
            self.places[chosen],
            self.size_bytes,
            None if same is None else lambda: same()[chosen],
        )


class ThreadAccess(NamedTuple):
    """An access of threads to the cells of one table, lane after lane."""

    space: Literal["shared", "global"]
    how: How
    is_strong: bool
    request: Request
    at: LaneCells
    cells: CellNumbers
    table_start: int  # the first cell of the table, in its space
    scope: int = GPU

    @property
    def writes(self) -> bool:
        """Whether it may change memory."""
        return self.how != "read"

    def lane_at(self, position: int) -> int:
        """The lane that accesses one of the cells."""
        return int(self.request.lanes[position // self.at.each])

    def lanes_at(self, positions: CellNumbers) -> LaneNumbers:
        """The lanes that access some of the cells."""
        return self.request.lanes[positions // self.at.each]


@dataclass(slots=True, eq=False)
class _SharedSite:
    """The cells of shared memory that lanes accessed at an instruction, as long as their places are the same array."""

    lanes: LaneNumbers
    places: Addresses
    size_bytes: int
    at: LaneCells
    cells: CellNumbers
    slots: CellNumbers | None = None  # for reads; None: there was none
    is_new: bool = True  # whether it was accessed once
    are_written: bool = False  # whether somebody has written all cells, once and for all


class Accesses:
    """Loads, stores and atomics of the threads of one cluster."""

    def __init__(self, context: DetectorContext, make_fences: Callable[[], Fences]) -> None:
        self._context = context
        self._make_fences = make_fences
        self._sites: dict[int, _SharedSite] = {}  # by instruction: its last access of shared memory
        self.reached_blocks: set[int] = set()  # whose shared memory other blocks have accessed

    @cached_property
    def _fences(self) -> Fences:
        """Releases and acquires through words in memory; made at the first strong access."""
        return self._make_fences()

    def load(self, event: Load) -> StaleValues:
        """Judge a load; the lanes that get a stale value."""
        access = event.access
        if access is None:
            return NO_STALE_VALUES  # asynchronous work was judged when it was issued
        request = Request(event.lanes, event.places, event.size_bytes)
        how: How = "write" if access.kind == "write" else "read"  # a load that is part of an edit
        if event.space == "shared":
            self._access_shared(how, request, access)
        else:
            self._access_memory(how, request, access)
        if not access.is_flag:
            return NO_STALE_VALUES
        self._fences.stale.note_polls(event.lanes, event.addresses)
        return self._fences.synchronize_by_load(
            self._flags(event.space), access, event.lanes, event.places, event.size_bytes
        )

    def store(self, event: Store) -> None:
        """Judge a store."""
        access = event.access
        if access is None:
            return
        request = Request(event.lanes, event.places, event.size_bytes, event.is_unchanged)
        if event.space == "shared":
            self._access_shared("write", request, access)
        else:
            self._access_memory("write", request, access)
        if access.is_flag:
            self._fences.synchronize_by_store(self._flags(event.space), access, event.lanes, event.places)
        if access.is_strong:
            self._fences.stale.keep_value(self._flags(event.space), event.places, event.held)
        else:
            self._judge_shared_addresses(event)

    def atomic(self, event: Atomic) -> None:
        """Judge an atomic."""
        access = event.access
        if access is None:
            return
        request = Request(event.lanes, event.places, event.size_bytes)
        flags = self._flags(event.space)
        if event.space == "shared":
            self._access_shared("atomic", request, access)
        else:
            self._access_memory("atomic", request, access)
        if access.scope == CTA and self._context.cluster.blocks > 1:
            self._judge_blocks_of_atomic(event)
        self._fences.synchronize_by_store(flags, access, event.lanes, event.places)
        self._fences.stale.keep_value(flags, event.written_places, event.held)

    def _flags(self, space: MemorySpace) -> SyncWords:
        return self._fences.shared_flags if space == "shared" else self._context.launch.flags

    def _access_shared(self, how: How, request: Request, access: AccessSemantics) -> None:
        context = self._context
        if context.cluster.blocks > 1:
            self._reach(request.lanes, request.places)
        site = self._site_of(request)
        at = site.at
        thread_access = ThreadAccess("shared", how, access.is_strong, request, at, site.cells, 0, access.scope)
        self.find_races(context.shared, thread_access)
        if access.kind != "write" and not site.are_written:
            site.are_written = not self._report_unwritten(thread_access)
        stamps = self._stamps(request.lanes, is_strong=access.is_strong)
        if how != "read":
            context.shared.write(site.cells, stamps if at.each == 1 else stamps.repeat(at.each))
        else:
            if site.slots is None:
                site.slots = request.lanes // WARP_LANES * 2
            context.shared.read_by_threads(ThreadReads(at, site.slots, stamps, context.clocks.newest_stamp))

    def _site_of(self, request: Request) -> _SharedSite:
        """The cells of an access of shared memory; found again only if its lanes or places are other arrays."""
        pc = self._context.pc
        lanes, places, size_bytes, _ = request
        site = self._sites.get(pc)
        if site is None or site.places is not places or site.lanes is not lanes or site.size_bytes != size_bytes:
            width = self._context.cell_bytes
            at = LaneCells(places // width, ceil_div(size_bytes, width))
            site = self._sites[pc] = _SharedSite(lanes, places, size_bytes, at, at.cells)
        elif site.is_new:
            site.is_new = False
            site.at = site.at._replace(are_distinct=_are_distinct(site.cells))
        return site

    def stamp_write(self, lanes: LaneNumbers, cells: Cells) -> None:
        """Lanes have written cells of shared memory by something other than a store."""
        stamps = self._stamps(lanes, is_strong=False)
        self._context.shared.write(cells, stamps)

    def source_of_copies(self, lanes: LaneNumbers, addresses: Addresses, size_bytes: int) -> None:
        """Threads read global memory by cp.async."""
        self._access_memory("read", Request(lanes, addresses, size_bytes), _WEAK_READ)

    def _access_memory(self, how: How, request: Request, access: AccessSemantics) -> None:
        memory = self._context.launch.memory
        count = ceil_div(request.size_bytes, memory.cell_bytes)
        for piece in memory.pieces(request.places // memory.cell_bytes):
            part = request if piece.positions is None else request.of(piece.positions)
            at = LaneCells(piece.cells, count)
            if how == "read":
                self._read_memory(piece.stretch, part, at, access)
            else:
                self._write_memory(how, piece.stretch, part, at, access)

    def _read_memory(self, stretch: Stretch, request: Request, at: LaneCells, access: AccessSemantics) -> None:
        number = self._context.number
        newest = self._context.clocks.newest_stamp
        if stretch.table.is_written:
            thread_access = _global_access("read", access, request, at, stretch)
            self.find_races(stretch.table, thread_access)
        slots = read_slots(number, request.lanes // WARP_LANES)
        stamps = self._stamps(request.lanes, is_strong=access.is_strong)
        stretch.table.read_by_threads(ThreadReads(at, slots, stamps, newest, number))
        if access.is_noncoherent:
            judge_noncoherent_load(self._context, stretch, at, stamps)

    def _write_memory(
        self, how: How, stretch: Stretch, request: Request, at: LaneCells, access: AccessSemantics
    ) -> None:
        thread_access = _global_access(how, access, request, at, stretch)
        self.find_races(stretch.table, thread_access)
        if stretch.table.noncoherent is not None:
            threads = Threads(self._context.clocks, request.lanes, at.each)
            writer = Writer(how, request.lanes, at.each)
            judge_noncoherent_store(self._context, stretch, thread_access.cells, threads, writer)
        stamps = self._stamps(request.lanes, is_strong=access.is_strong)
        stretch.table.write(thread_access.cells, stamps.repeat(at.each), self._context.number)

    def _judge_shared_addresses(self, event: Store) -> None:
        """Lanes of one plain store that write different values to one address."""
        if event.stored is None:
            return
        index = event.overwritten_lane()
        context = self._context
        side = Side(event.pc, "write", int(event.lanes[index]))
        is_sum = event.pc in context.launch.program.stores_of_sums
        is_rounded_sum = is_sum and differ_by_rounding(event.stored, event.values)
        context.report("rounded sum" if is_rounded_sum else "race", side, side, event.space, int(event.places[index]))

    def _judge_blocks_of_atomic(self, event: Atomic) -> None:
        """Lanes of several blocks that execute one atomic of scope .cta together at one address."""
        blocks = self._context.cluster.block_of_lane[event.lanes]
        order = np.lexsort((blocks, event.places))
        is_same_word = event.places[order][1:] == event.places[order][:-1]
        is_other_block = blocks[order][1:] != blocks[order][:-1]
        pairs = np.flatnonzero(is_same_word & is_other_block)
        if len(pairs):
            first, second = order[pairs[0]], order[pairs[0] + 1]
            before = Side(event.pc, "atomic", int(event.lanes[first]))
            now = Side(event.pc, "atomic", int(event.lanes[second]))
            self._context.report("race", before, now, event.space, int(event.places[second]), is_narrow=1)

    def shared_access(self, how: How, request: Request, *, is_strong: bool = False, scope: int = GPU) -> ThreadAccess:
        """An access of lanes to cells of shared memory."""
        width = self._context.cell_bytes
        at = LaneCells(request.places // width, ceil_div(request.size_bytes, width))
        return ThreadAccess("shared", how, is_strong, request, at, at.cells, 0, scope)

    def _stamps(self, lanes: LaneNumbers, *, is_strong: bool) -> Stamps:
        """The stamp of this access of each lane."""
        stamps = self._context.clocks.thread_stamps
        lane_stamps = stamps if lanes is self._context.cluster.all_lanes else stamps[lanes]
        return lane_stamps | stamp_base(self._context.pc, is_strong=is_strong)

    def find_races(self, table: CellTable, thread_access: ThreadAccess) -> None:
        """Report recorded accesses that conflict with this one and are not ordered before it."""
        threads = Threads(self._context.clocks, thread_access.request.lanes, thread_access.at.each)
        has_one_scope = self._context.launch.program.scopes is None
        is_excused = thread_access.how == "atomic" and has_one_scope
        unordered = table.unordered_writes(
            thread_access.cells, threads, strong=is_excused, strong_abroad=thread_access.is_strong and has_one_scope
        )
        if unordered is not None:
            self._judge(unordered, thread_access, was_write=True)
        if self._context.clocks.has_scopes:
            self._find_narrow_scopes(table, thread_access)
        if thread_access.is_strong:
            covered = table.unordered_covered(thread_access.cells, threads)
            if covered is not None:
                self._report(covered, thread_access, was_write=True)
        if thread_access.writes:
            for read in table.unordered_reads(thread_access.cells, threads, strong=is_excused):
                self._judge(read, thread_access, was_write=False)

    def _judge(self, unordered: Unordered, thread_access: ThreadAccess, *, was_write: bool) -> None:
        """Report unordered accesses; of two that are morally strong only those of lanes of one warp, a load and a store."""
        self._report(unordered, thread_access, was_write=was_write)
        if not thread_access.is_strong or thread_access.how == "atomic" or was_write == thread_access.writes:
            return
        are_strong = is_strong(unordered.stamps)
        own_lanes = thread_access.request.lanes[unordered.places // thread_access.at.each]
        are_neighbors = are_strong & self._is_own_warp(unordered, own_lanes)
        for index in first_of_each(pcs_of(unordered.stamps[are_neighbors])):
            chosen = unordered.where(are_neighbors)
            before = self._context.side(unpack_stamp(int(chosen.stamps[index])), was_write=was_write)
            if before.how == "atomic" or self._is_unchanged(chosen, thread_access):
                continue
            position = int(chosen.places[index])
            now = Side(self._context.pc, thread_access.how, thread_access.lane_at(position))
            address = self._address(thread_access, position)
            self._context.report("lane order", before, now, thread_access.space, address)

    def _is_own_warp(self, unordered: Unordered, own_lanes: LaneNumbers) -> npt.NDArray[np.bool_]:
        """Which accesses were made by another lane of the own warp."""
        is_own_warp = columns_of(unordered.stamps) // WARP_LANES == own_lanes // WARP_LANES
        if unordered.clusters is not None:
            is_own_warp &= unordered.clusters == self._context.number
        return np.asarray(is_own_warp)

    def _is_unchanged(self, unordered: Unordered, thread_access: ThreadAccess) -> bool:
        """Whether memory already held what a store writes to the cells of unordered accesses."""
        same = thread_access.request.same
        return same is not None and bool(same()[unordered.places // thread_access.at.each].all())

    def _find_narrow_scopes(self, table: CellTable, thread_access: ThreadAccess) -> None:
        """Report accesses of other blocks' threads that only a release or an acquire with the scope of one block orders."""
        context = self._context
        lanes = thread_access.request.lanes
        threads = Threads(context.clocks, lanes, thread_access.at.each, SCOPED)
        kinds = [(table.unordered_writes(thread_access.cells, threads, strong=thread_access.is_strong), True)]
        if thread_access.writes:
            reads = table.unordered_reads(thread_access.cells, threads, strong=thread_access.is_strong)
            kinds += [(read, False) for read in reads]
        for unordered, was_write in kinds:
            if unordered is None:
                continue
            accesses = context.own_unordered(unordered)
            for index in first_of_each(pcs_of(accesses.stamps)):
                stamp = unpack_stamp(int(accesses.stamps[index]))
                position = int(accesses.places[index])
                lane = thread_access.lane_at(position)
                at = np.array([lane]), np.array([stamp.column]), np.array([stamp.epoch])
                if stamp.column < context.clocks.lane_count and bool(context.clocks.is_ordered(*at)[0]):
                    now = Side(context.pc, thread_access.how, lane)
                    address = self._address(thread_access, position)
                    context.report_narrow_scope(stamp, now, thread_access.space, address, was_write=was_write)

    def _report(self, unordered: Unordered, thread_access: ThreadAccess, *, was_write: bool) -> None:
        """Report one conflict for each earlier instruction.

        A store of the value that is already there does not conflict with threads. It does with a copy, which may still be pending.
        """
        context = self._context
        conflicting = self._drop_harmless(unordered, thread_access)
        if conflicting is None:
            return
        unordered = self._others_first(conflicting, thread_access)
        if context.launch.racing_loads is not None:
            context.note_racing_loads(unordered, thread_access.lanes_at(unordered.places), was_write=was_write)
        for index in first_of_each(pcs_of(unordered.stamps)):
            position = int(unordered.places[index])
            stamp = unpack_stamp(int(unordered.stamps[index]))
            before = context.side(stamp, was_write=was_write)
            lane = thread_access.lane_at(position)
            now = Side(context.pc, thread_access.how, lane)
            mistake = classify_conflict(before.how, now.how, was_write=was_write)
            if self._is_map_copy(before, now, unordered, index):
                mistake = "map copy"
            address = self._address(thread_access, position)
            facts = context.foreign(unordered, index)
            if thread_access.is_strong and stamp.is_strong:
                facts["is_narrow"] = 1
            if mistake == "copy wait" and not facts:
                over = context.clocks.time_known_to(np.array([lane]), stamp.column, EXECUTED)
                if int(over[0]) >= stamp.epoch:
                    facts["relaxed"] = 1
            context.report(mistake, before, now, thread_access.space, address, **facts)

    def _drop_harmless(self, unordered: Unordered, thread_access: ThreadAccess) -> Unordered | None:
        """Unordered accesses without those that are morally strong with this one, or that equal values excuse; None: none is left."""
        if thread_access.is_strong:
            lanes = thread_access.lanes_at(unordered.places)
            racing = drop_morally_strong(self._context, unordered, lanes, thread_access.scope)
            if racing is None:
                return None
            unordered = racing
        same = thread_access.request.same
        if same is None:
            return unordered
        is_harmless = same()[unordered.places // thread_access.at.each] & ~are_asynchronous(unordered.stamps)
        if is_harmless.all():
            return None
        return unordered.where(~is_harmless) if are_asynchronous(unordered.stamps).any() else unordered

    def _is_map_copy(self, before: Side, now: Side, unordered: Unordered, index: int) -> bool:
        """Whether a lane edits a map in shared memory that its warp copies with tensormap.cp_fenceproxy.

        All lanes of the warp execute the copy together, after the edit. Triton 3.6 has no bar.warp.sync between the two, and
        its kernels are right on an H200.
        """
        program = self._context.launch.program
        if not program.map_copies or self._context.foreign(unordered, index):
            return False
        if before.lane is None or now.lane is None or before.lane // WARP_LANES != now.lane // WARP_LANES:
            return False
        pcs = (before.pc, now.pc)
        return any(pc in program.map_edits for pc in pcs) and any(pc in program.map_copies for pc in pcs)

    def _others_first(self, unordered: Unordered, thread_access: ThreadAccess) -> Unordered:
        """The same, other warps first: whatever orders those also orders accesses of the warp itself."""
        own_lanes = thread_access.request.lanes[unordered.places // thread_access.at.each]
        return unordered.where(np.argsort(self._is_own_warp(unordered, own_lanes), kind="stable"))

    def _address(self, thread_access: ThreadAccess, position: int) -> int:
        """The address of one of the cells."""
        width = self._context.cell_bytes if thread_access.space == "shared" else self._context.launch.memory.cell_bytes
        return (thread_access.table_start + int(thread_access.cells[position])) * width

    def _report_unwritten(self, thread_access: ThreadAccess) -> bool:
        """Report a cell that was never written. False if there is none."""
        flags = self._context.shared.find_unwritten(thread_access.cells)
        if not flags.any():
            return False
        first = int(np.argmax(flags))
        now = Side(self._context.pc, thread_access.how, thread_access.lane_at(first))
        self._context.report("unwritten", None, now, "shared", self._address(thread_access, first))
        return True

    def _reach(self, lanes: LaneNumbers, places: Addresses) -> None:
        """Note which blocks are accessed by others; an access to a block that has ended is an error."""
        cluster = self._context.cluster
        ranks = places // cluster.shared_stride
        is_remote = ranks != cluster.block_of_lane[lanes]
        if not is_remote.any():
            return
        reached = np.unique(ranks[is_remote]).tolist()
        self.reached_blocks.update(reached)
        for rank in self._context.ended_blocks.intersection(reached):
            index = int(np.argmax(is_remote & (ranks == rank)))
            now = Side(self._context.pc, "read", int(lanes[index]))
            self._context.report("block end", None, now, "shared", int(places[index]), rank=rank)


def _are_distinct(cells: CellNumbers) -> bool:
    in_order = np.sort(cells)
    return not (in_order[1:] == in_order[:-1]).any()


def _global_access(
    how: How, access: AccessSemantics, request: Request, at: LaneCells, stretch: Stretch
) -> ThreadAccess:
    """An access of lanes to cells of one stretch of global memory."""
    return ThreadAccess("global", how, access.is_strong, request, at, at.cells, stretch.first, access.scope)


def differ_by_rounding(stored: npt.NDArray[np.generic], values: npt.NDArray[np.generic]) -> bool:
    """Whether 32-bit floats differ from the stored ones only in their last bits, or in those of their terms.

    Terms of about 1 may add up to nearly 0: then only their rounding remains.

    >>> sums = np.array([1.0, 1.0000001, 3.0], np.float32).view(np.uint32)
    >>> differ_by_rounding(sums[:1], sums[1:2]), differ_by_rounding(sums[:1], sums[2:])
    (True, False)
    >>> near_zero = np.array([3e-9, -5e-9, 1e-3], np.float32).view(np.uint32)
    >>> differ_by_rounding(near_zero[:1], near_zero[1:2]), differ_by_rounding(near_zero[:1], near_zero[2:])
    (True, False)
    """
    if stored.dtype.itemsize != np.dtype(np.float32).itemsize:
        return False
    old = stored.view(np.float32).astype(np.float64)
    new = values.view(np.float32).astype(np.float64)
    return bool((np.abs(old - new) <= _MOST_RELATIVE * np.maximum(np.abs(old), _LEAST_TERM))[stored != values].all())
