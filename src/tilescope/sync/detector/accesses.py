"""Threads that load, store and change memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.arithmetic import ceil_div
from tilescope.sync.access import AccessSemantics
from tilescope.sync.address import Addresses
from tilescope.sync.bus import StaleValues
from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.detector.context import Witness, mistake_of
from tilescope.sync.detector.fences import Fences
from tilescope.sync.detector.race import How, Side
from tilescope.sync.detector.releases import Flags
from tilescope.sync.epoch import Stamps, columns_of, first_of_each, pcs_of, stamp_base, taken_apart
from tilescope.sync.events import Atomic, Load, MemorySpace, Store
from tilescope.sync.footprint import CellNumbers
from tilescope.sync.lane_clocks import EXECUTED
from tilescope.sync.scope import GPU
from tilescope.sync.shadow.accessor import Threads
from tilescope.sync.shadow.global_cells import Stretch, read_slots
from tilescope.sync.shadow.shadow_cells import CellTable, LaneCells, Met, ThreadReads

Same = Callable[[], npt.NDArray[np.bool_]]
"""For each lane of a store: whether what it writes lies there already."""
NO_STALE_VALUES: StaleValues = {}
_MOST_RELATIVE = 2.0**-16  # by which sums of 32 numbers of 24 bits differ, unless most of them cancel
_WEAK_READ = AccessSemantics("read", is_strong=False, acquires=False, releases=False, scope=GPU)


class Request(NamedTuple):
    """What lanes ask for: as many bytes each, from its place on."""

    lanes: LaneNumbers
    places: Addresses
    size_bytes: int
    same: Same | None = None  # None: a load, or not known

    def of(self, chosen: CellNumbers) -> Request:
        """What some of the lanes ask for."""
        same = self.same
        return Request(
            self.lanes[chosen],
            self.places[chosen],
            self.size_bytes,
            None if same is None else lambda: same()[chosen],
        )


@dataclass(frozen=True, slots=True)
class Touch:
    """An access of threads to the cells of one table, cell by cell: those of one lane follow each other."""

    space: Literal["shared", "global"]
    how: How
    is_strong: bool
    request: Request
    at: LaneCells
    cells: CellNumbers
    table_start: int  # the first cell of the table, in its space

    @property
    def writes(self) -> bool:
        """Whether it may change what lies there."""
        return self.how != "read"

    def lane_at(self, position: int) -> int:
        """The lane that touches one of the cells."""
        return int(self.request.lanes[position // self.at.each])


class Touching:
    """Loads, stores and atomics of the threads of one cluster."""

    def __init__(self, witness: Witness, fences: Fences) -> None:
        self._witness = witness
        self._fences = fences
        self.reached_blocks: set[int] = set()  # whose shared memory other blocks have touched

    def load(self, event: Load) -> StaleValues:
        """Judge a load; the lanes that get a stale value."""
        access = event.access
        if access is None:
            return NO_STALE_VALUES  # asynchronous work was judged when it was issued
        request = Request(event.lanes, event.places, event.size_bytes)
        if event.space == "shared":
            self._access_shared("read", request, access)
        else:
            self._access_memory("read", request, access)
        if not access.is_flag:
            return NO_STALE_VALUES
        return self._fences.poll(self._flags(event.space), access, event.lanes, event.places, event.size_bytes)

    def store(self, event: Store) -> None:
        """Judge a store."""
        access = event.access
        if access is None:
            return
        request = Request(event.lanes, event.places, event.size_bytes, event.is_unchanged)
        flags = self._flags(event.space)
        if event.space == "shared":
            self._access_shared("write", request, access)
        else:
            self._access_memory("write", request, access)
        if access.is_flag:
            self._fences.pass_on(flags, access, event.lanes, event.places)
        if access.is_strong:
            self._fences.early.overwritten(flags, event.places, event.held)
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
        self._fences.pass_on(flags, access, event.lanes, event.places)
        self._fences.early.overwritten(flags, event.written_places, event.held)

    def _flags(self, space: MemorySpace) -> Flags:
        return self._fences.shared_flags if space == "shared" else self._witness.launch.flags

    def _access_shared(self, how: How, request: Request, access: AccessSemantics) -> None:
        witness = self._witness
        if witness.cluster.blocks > 1:
            self._reach(request.lanes, request.places)
        touch = self.shared_touch(how, request, is_strong=access.is_strong)
        self.meet(witness.shared, touch)
        if access.kind != "write":
            self._unwritten(touch)
        stamps = self._stamps(request.lanes, is_strong=access.is_strong)
        if touch.writes:
            witness.shared.write(touch.cells, stamps.repeat(touch.at.each))
        else:
            newest = witness.knowledge.newest_stamp
            slots = request.lanes // WARP_LANES * 2
            witness.shared.read_by_threads(ThreadReads(touch.at, slots, stamps, newest))

    def source_of_copies(self, lanes: LaneNumbers, addresses: Addresses, size_bytes: int) -> None:
        """Threads read global memory by cp.async."""
        self._access_memory("read", Request(lanes, addresses, size_bytes), _WEAK_READ)

    def _access_memory(self, how: How, request: Request, access: AccessSemantics) -> None:
        memory = self._witness.launch.memory
        count = ceil_div(request.size_bytes, memory.cell_bytes)
        for piece in memory.pieces(request.places // memory.cell_bytes):
            own = request if piece.positions is None else request.of(piece.positions)
            at = LaneCells(piece.cells, count)
            if how == "read":
                self._read_memory(piece.stretch, own, at, access)
            else:
                self._write_memory(how, piece.stretch, own, at, access)

    def _read_memory(self, stretch: Stretch, request: Request, at: LaneCells, access: AccessSemantics) -> None:
        number = self._witness.number
        newest = self._witness.knowledge.newest_stamp
        if stretch.table.is_written:
            touch = Touch("global", "read", access.is_strong, request, at, at.cells, stretch.first)
            self.meet(stretch.table, touch)
        slots = read_slots(number, request.lanes // WARP_LANES)
        stamps = self._stamps(request.lanes, is_strong=access.is_strong)
        stretch.table.read_by_threads(ThreadReads(at, slots, stamps, newest, number))

    def _write_memory(
        self, how: How, stretch: Stretch, request: Request, at: LaneCells, access: AccessSemantics
    ) -> None:
        touch = Touch("global", how, access.is_strong, request, at, at.cells, stretch.first)
        self.meet(stretch.table, touch)
        stamps = self._stamps(request.lanes, is_strong=access.is_strong)
        stretch.table.write(touch.cells, stamps.repeat(at.each), self._witness.number)

    def _judge_shared_addresses(self, event: Store) -> None:
        """Lanes of one plain store that write different values to one address."""
        index = event.overwritten_lane()
        if index is None or event.stored is None:
            return
        witness = self._witness
        side = Side(event.pc, "write", int(event.lanes[index]))
        is_sum = event.pc in witness.launch.program.stores_of_sums
        is_rounded_sum = is_sum and differ_by_rounding(event.stored, event.values)
        witness.tell("rounded sum" if is_rounded_sum else "race", side, side, event.space, int(event.places[index]))

    def shared_touch(self, how: How, request: Request, *, is_strong: bool = False) -> Touch:
        """The cells of shared memory that lanes touch, one after another."""
        width = self._witness.cell_bytes
        at = LaneCells(request.places // width, ceil_div(request.size_bytes, width))
        return Touch("shared", how, is_strong, request, at, at.cells, 0)

    def _stamps(self, lanes: LaneNumbers, *, is_strong: bool) -> Stamps:
        """The stamp of what each lane does now."""
        return self._witness.knowledge.thread_stamps[lanes] | stamp_base(self._witness.pc, is_strong=is_strong)

    def meet(self, table: CellTable, touch: Touch) -> None:
        """Tell whom threads meet without knowing that they were finished."""
        threads = Threads(self._witness.knowledge, touch.request.lanes, touch.at.each)
        met = table.unknown_writes(touch.cells, threads, strong=touch.is_strong)
        if met is not None:
            self._tell(met, touch, was_write=True)
        if touch.is_strong:
            covered = table.unknown_covered(touch.cells, threads)
            if covered is not None:
                self._tell(covered, touch, was_write=True)
        if touch.writes:
            for read in table.unknown_reads(touch.cells, threads, strong=touch.is_strong):
                self._tell(read, touch, was_write=False)

    def _tell(self, met: Met, touch: Touch, *, was_write: bool) -> None:
        """One conflict for each earlier instruction; a store of the value that is already there makes none."""
        witness = self._witness
        same = touch.request.same
        if same is not None and same()[met.places // touch.at.each].all():
            return
        met = self._others_first(met, touch)
        for index in first_of_each(pcs_of(met.stamps)):
            position = int(met.places[index])
            stamp = taken_apart(int(met.stamps[index]))
            before = witness.side(stamp, was_write=was_write)
            lane = touch.lane_at(position)
            now = Side(witness.pc, touch.how, lane)
            mistake = mistake_of(before.how, now.how, was_write=was_write)
            address = self._address(touch, position)
            facts = witness.foreign(met, index)
            if mistake == "copy wait" and not facts:
                over = witness.knowledge.known_to(np.array([lane]), stamp.column, EXECUTED)
                if int(over[0]) >= stamp.epoch:
                    facts["relaxed"] = 1
            witness.tell(mistake, before, now, touch.space, address, **facts)

    def _others_first(self, met: Met, touch: Touch) -> Met:
        """The same, with what other warps did first: whatever orders that orders what the own warp did, too."""
        own_lanes = touch.request.lanes[met.places // touch.at.each]
        is_own_warp = columns_of(met.stamps) // WARP_LANES == own_lanes // WARP_LANES
        if met.clusters is not None:
            is_own_warp &= met.clusters == self._witness.number
        order = np.argsort(is_own_warp, kind="stable")
        clusters = None if met.clusters is None else met.clusters[order]
        return Met(met.stamps[order], met.places[order], clusters)

    def _address(self, touch: Touch, position: int) -> int:
        """The address of one of the cells."""
        width = self._witness.cell_bytes if touch.space == "shared" else self._witness.launch.memory.cell_bytes
        return (touch.table_start + int(touch.cells[position])) * width

    def _unwritten(self, touch: Touch) -> None:
        flags = self._witness.shared.unwritten(touch.cells)
        if flags.any():
            first = int(np.argmax(flags))
            now = Side(self._witness.pc, touch.how, touch.lane_at(first))
            self._witness.tell("unwritten", None, now, "shared", self._address(touch, first))

    def _reach(self, lanes: LaneNumbers, places: Addresses) -> None:
        """Note which blocks are touched by others; one that has ended is an error."""
        cluster = self._witness.cluster
        ranks = places // cluster.shared_stride
        is_remote = ranks != cluster.block_of_lane[lanes]
        if not is_remote.any():
            return
        reached = np.unique(ranks[is_remote]).tolist()
        self.reached_blocks.update(reached)
        for rank in self._witness.ended_blocks.intersection(reached):
            index = int(np.argmax(is_remote & (ranks == rank)))
            now = Side(self._witness.pc, "read", int(lanes[index]))
            self._witness.tell("block end", None, now, "shared", int(places[index]), rank=rank)


def differ_by_rounding(stored: npt.NDArray[np.generic], values: npt.NDArray[np.generic]) -> bool:
    """Whether words are floats of 32 bits that differ from those stored in their last bits alone.

    >>> sums = np.array([1.0, 1.0000001, 3.0], np.float32).view(np.uint32)
    >>> differ_by_rounding(sums[:1], sums[1:2]), differ_by_rounding(sums[:1], sums[2:])
    (True, False)
    """
    if stored.dtype.itemsize != np.dtype(np.float32).itemsize:
        return False
    kept = stored.view(np.float32).astype(np.float64)
    lost = values.view(np.float32).astype(np.float64)
    return bool((np.abs(kept - lost) <= _MOST_RELATIVE * np.abs(kept))[stored != values].all())
