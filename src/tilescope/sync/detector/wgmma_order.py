"""wgmma: until its group is waited for, it reads its operands in shared memory, and its registers belong to it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilescope.arch import WARP_LANES
from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.detector.context import DetectorContext
from tilescope.sync.detector.race import Side
from tilescope.sync.epoch import pack_stamp, stamp_base
from tilescope.sync.events import GroupWait, RegisterAccess, WgmmaFence, WgmmaIssued
from tilescope.sync.shadow.accessor import Unit
from tilescope.sync.vector_clock import ASYNC_SHARED, VectorClock


class Product(NamedTuple):
    """A wgmma: the epoch of its group, and its instruction."""

    epoch: int
    pc: int


class KnownEpoch(NamedTuple):
    """The last epoch of a warpgroup that happens before all of some lanes."""

    lanes: LaneNumbers
    epoch: int


class WgmmaOrder:
    """The wgmma of one cluster, by warpgroup."""

    def __init__(self, context: DetectorContext) -> None:
        self._context = context
        self._last: dict[int, Product] = {}
        self._pending: dict[int, dict[int, Product]] = {}  # then by register: the last product that uses it
        self._dirty: dict[int, set[int]] = {}  # registers written since the last wgmma.fence
        self._known: dict[int, KnownEpoch] = {}
        self._fenced: set[int] = set()  # warpgroups that have executed a wgmma.fence

    def issue(self, event: WgmmaIssued) -> None:
        """A wgmma of one warpgroup reads its operands, and uses registers, until wait_group."""
        self._read_operands(event)
        self._use_registers(event)

    def _read_operands(self, event: WgmmaIssued) -> None:
        context = self._context
        lanes = event.lanes
        group = event.group
        warpgroup = int(context.warpgroup_of_lane[lanes[0]])
        vectors = context.clocks.warpgroup_view(lanes, WARP_LANES)
        unit = Unit(context.clocks, vectors, {}, ASYNC_SHARED)
        now = Side(context.pc, "wgmma", int(lanes[0]))
        column = context.clocks.first_warpgroup + warpgroup
        stamp = pack_stamp(stamp_base(context.pc, is_asynchronous=True), column, group + 1)
        for operand in event.operands:
            cells = operand.bytes.cells(context.cell_bytes)
            assert not isinstance(cells, slice)
            unordered = context.shared.unordered_writes(cells, unit)
            if unordered is not None:
                context.report_unit(unordered, cells, now, unit, "shared")
            context.report_narrow_writes(context.shared, cells, now, unit)
            context.report_unwritten(cells, now)
            context.note_unfenced_copies(cells, vectors[ASYNC_SHARED], now)
            context.shared.read_by_unit(cells, warpgroup, stamp)
        self._last[warpgroup] = Product(group + 1, context.pc)

    def wait(self, event: GroupWait) -> None:
        """wgmma.wait_group: the groups of each warpgroup but the newest ones have completed."""
        clocks = self._context.clocks
        warpgroups = self._context.warpgroup_of_lane[event.lanes]
        for warpgroup in np.unique(warpgroups).tolist():
            is_own = warpgroups == warpgroup
            completed = int(event.completed[is_own][0])
            clocks.learn(event.lanes[is_own], clocks.first_warpgroup + warpgroup, completed)

    def end(self, lanes: LaneNumbers, rank: int, clock: VectorClock) -> None:
        """Report pending wgmma of a block that has ended."""
        first = self._context.clocks.first_warpgroup
        for warpgroup in self._context.warpgroups_of(lanes):
            last = self._last.get(warpgroup)
            if last is not None and clock.known[first + warpgroup] < last.epoch:
                self._context.report("block end", None, Side(last.pc, "wgmma", None), "shared", None, rank=rank)

    def fence(self, event: WgmmaFence) -> None:
        """wgmma.fence."""
        for warpgroup in self._context.warpgroups_of(event.lanes):
            self._dirty.pop(warpgroup, None)
            self._fenced.add(warpgroup)

    def _use_registers(self, event: WgmmaIssued) -> None:
        """Report a missing fence between writes of registers, or the start, and wgmma."""
        lanes = event.lanes
        warpgroup = int(self._context.warpgroup_of_lane[lanes[0]])
        pc = event.pc
        is_dirty = not event.read_registers.isdisjoint(self._dirty.get(warpgroup, ()))
        if is_dirty or warpgroup not in self._fenced:
            now = Side(pc, "wgmma", int(lanes[0]))
            self._context.report("accumulator fence", None, now, "registers", None)
        self._pending.setdefault(warpgroup, {}).update(
            dict.fromkeys(event.used_registers, Product(event.group + 1, pc))
        )

    def access_registers(self, use: RegisterAccess) -> None:
        """Threads read or write registers of a wgmma, or others that their values are moved from or to."""
        lanes = use.lanes
        for warpgroup in self._context.warpgroups_of(lanes):
            pending = self._pending.get(warpgroup, {})
            dirty = self._dirty.setdefault(warpgroup, set())
            if use.is_move:
                _move(pending, dirty, use)
                continue
            dirty.update(use.written)
            if not (pending.keys().isdisjoint(use.read) and pending.keys().isdisjoint(use.written)):
                self._require_finished(warpgroup, pending, use)

    def _require_finished(self, warpgroup: int, pending: dict[int, Product], use: RegisterAccess) -> None:
        """Report an access to registers of a pending wgmma."""
        for number in (*use.read, *use.written):
            product = pending.pop(number, None)
            if product is None or self._is_finished(warpgroup, product, use.lanes):
                continue
            first_lane = int(self._own_lanes(warpgroup, use.lanes)[0])
            now = Side(self._context.pc, "read" if number in use.read else "write", first_lane)
            self._context.report("accumulators", Side(product.pc, "wgmma", None), now, "registers", None)

    def _is_finished(self, warpgroup: int, product: Product, lanes: LaneNumbers) -> bool:
        """Whether the end of a wgmma happens before those of the lanes that are of its warpgroup.

        Clocks of lanes only grow: whatever happened-before the last instruction need not be checked again.
        """
        finished = self._known.get(warpgroup)
        if finished is None or finished.lanes is not lanes or product.epoch > finished.epoch:
            clocks = self._context.clocks
            epochs = clocks.time_known_to(self._own_lanes(warpgroup, lanes), clocks.first_warpgroup + warpgroup)
            finished = self._known[warpgroup] = KnownEpoch(lanes, int(epochs.min()))
        return product.epoch <= finished.epoch

    def _own_lanes(self, warpgroup: int, lanes: LaneNumbers) -> LaneNumbers:
        """Those lanes that are of a warpgroup."""
        return np.asarray(lanes[self._context.warpgroup_of_lane[lanes] == warpgroup])


def _move(pending: dict[int, Product], dirty: set[int], use: RegisterAccess) -> None:
    """A mov gives a value another register: what holds for the one holds for the other."""
    if dirty.isdisjoint(use.read):
        dirty.difference_update(use.written)
    else:
        dirty.update(use.written)
    product = next((pending[number] for number in use.read if number in pending), None)
    for number in use.written:
        if product is None:
            pending.pop(number, None)
        else:
            pending[number] = product
