"""Tensor maps that a kernel edits in global memory: fences of the tensormap proxy release and acquire their changes.

tensormap.replace or st                 an edit, by the generic proxy
fence.proxy.tensormap .release          releases the edits that happen before it …
fence.proxy.tensormap .acquire [map]    … to copies through this map that happen after it
"""

from __future__ import annotations

from typing import NamedTuple

from tilescope.sync.address import is_in_window
from tilescope.sync.detector.context import DetectorContext
from tilescope.sync.detector.race import Side
from tilescope.sync.epoch import Stamps, columns_of, epochs_of, unpack_stamp
from tilescope.sync.events import MapRead, TensormapAcquire, TensormapRelease
from tilescope.sync.vector_clock import HAPPENS_BEFORE, Vector, VectorClock, join_clocks
from tilescope.tensor_map.map_descriptor import DESCRIPTOR_BYTES


class _Acquired(NamedTuple):
    """One acquire: its lane and epoch, and what had been released by then."""

    lane: int
    epoch: int
    released: VectorClock | None


class MapEdits:
    """The fences of maps in one cluster."""

    def __init__(self, context: DetectorContext) -> None:
        self._context = context
        self._released: VectorClock | None = None
        self._acquired: dict[int, list[_Acquired]] = {}  # by the map's address

    def release(self, event: TensormapRelease) -> None:
        """fence.proxy.tensormap::generic.release."""
        self._released = join_clocks(self._released, self._context.clocks.release(event.lanes))

    def acquire(self, event: TensormapAcquire) -> None:
        """fence.proxy.tensormap::generic.acquire of a map."""
        clocks = self._context.clocks
        for lane, address in zip(event.lanes.tolist(), event.addresses.tolist(), strict=True):
            self._acquired.setdefault(address, []).append(_Acquired(lane, int(clocks.own[lane]), self._released))
        clocks.advance(event.lanes)

    def read(self, event: MapRead) -> None:
        """A copy reads a map: edits by this cluster must have been released, and then acquired."""
        context = self._context
        address = event.address
        lane = event.lane
        if is_in_window("param", address):
            return  # which no store changes
        for piece in context.launch.memory.pieces(context.global_cells_at(address, DESCRIPTOR_BYTES)):
            stamps, clusters = piece.stretch.table.last_writes(piece.cells, context.number)
            is_own = stamps != 0
            if clusters is not None:
                is_own &= clusters == context.number
            if not is_own.any():
                continue
            edits = stamps[is_own]
            clock = context.clocks.view(lane)[HAPPENS_BEFORE]
            if any(self._covers(acquired, clock, edits) for acquired in self._acquired.get(address, ())):
                continue
            before = context.side(unpack_stamp(int(edits[0])), was_write=True)
            context.report("map fence", before, Side(context.pc, "copy", lane), "global", address)

    def _covers(self, acquired: _Acquired, known: Vector, edits: Stamps) -> bool:
        """Whether an acquire happens before, and the release of all edits before it."""
        if acquired.released is None or known[acquired.lane] < acquired.epoch:
            return False
        return bool((acquired.released.known[columns_of(edits)] >= epochs_of(edits)).all())
