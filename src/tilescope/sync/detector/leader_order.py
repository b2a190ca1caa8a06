"""The order of blocks that follow a leader: what they do to shared memory is judged once, as the leader does it.

shared memory     all blocks access the same addresses: the leader's part of the event goes to its detector
global memory     each block has its own addresses, which no other block writes (detector/lockstep_order.py). If the leader is the
                  first block of the grid, nobody has judged it alone before: its part goes to its detector, too
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from tilescope.sync.address import Addresses
from tilescope.sync.bus import Bus, Handler, StaleValues
from tilescope.sync.cluster_shape import ClusterShape, LaneNumbers
from tilescope.sync.detector.context import ProgramFacts
from tilescope.sync.detector.lockstep_order import LockstepMemory, LockstepOrder
from tilescope.sync.events import (
    Atomic,
    BarrierComplete,
    Flags,
    Load,
    OperandRead,
    RegisterAccess,
    Store,
    UndefinedUse,
    Values,
    WarpSync,
)
from tilescope.sync.shadow.lockstep_cells import BlocksDifferError, OrderMattersError


class LeaderOrder(LockstepOrder):
    """Watches a batch, and tells the observers of its leader what the leader does."""

    def __init__(
        self,
        shape: ClusterShape,
        memory: LockstepMemory,
        first_thread: int,
        facts: ProgramFacts | None,
        leader: Bus,
        *,
        is_first: bool,
    ) -> None:
        super().__init__(shape, memory, first_thread, facts)
        self._leader = leader
        self._is_first = is_first
        self._blocks = shape.blocks
        self._block_lanes = shape.block_lanes
        self._shared_stride = shape.shared_stride
        self._block_threads = shape.block_threads
        self._alike: tuple[LaneNumbers, LaneNumbers] | None = None  # lanes of all blocks, and of the leader

    def handlers(self) -> dict[type, Handler]:
        """Which method looks at each event of the batch."""
        return {
            Store: self._store,
            Atomic: self._refuse,
            WarpSync: self._meet_warps,
            RegisterAccess: self._access_registers,
            OperandRead: self._read_operand,
            UndefinedUse: self._refuse,
        }

    def leader_handlers(self) -> dict[type, Handler]:
        """Which method looks at events of the leader."""
        return {BarrierComplete: self._complete_barrier}

    def stale_values(self, load: Load) -> StaleValues:
        """None: no block waits for another block's word."""
        if load.space != "shared":
            super().stale_values(load)
            is_own = self._lanes_of_first(load)
            leader_load = None if is_own is None else _part(load, is_own)
        elif self._leader.is_heard and load.access is not None:
            lanes, places = self._leader_part(load)
            leader_load = replace(load, lanes=lanes, places=places, addresses=load.addresses[: len(lanes)])
        else:
            leader_load = None
        if leader_load is not None and self._leader.load(leader_load):
            raise OrderMattersError("a stale value")
        return {}

    def _store(self, event: Store) -> None:
        if event.space != "shared":
            super()._store(event)
            is_own = self._lanes_of_first(event)
            if is_own is not None:
                leader_store = _part(event, is_own)
                values = event.values[is_own]
                stored = None if event.stored is None else event.stored[is_own]
                if stored is not None and (stored == values).all():
                    stored = None
                self._leader.emit(replace(leader_store, held=event.held[is_own], values=values, stored=stored))
        elif self._leader.is_heard and event.access is not None:
            if event.stored is not None and self._facts is not None:
                raise OrderMattersError("two lanes store to one cell")
            lanes, places = self._leader_part(event)
            values = event.values[: len(lanes)]
            leader_store = replace(
                event,
                lanes=lanes,
                places=places,
                addresses=event.addresses[: len(lanes)],
                held=_others(values),
                values=values,
                stored=None,
            )
            self._leader.emit(leader_store)

    def _lanes_of_first(self, event: Load | Store) -> Flags | None:
        """The lanes of an access to global memory that belong to the first block of the grid; None: none, or not requested."""
        if not self._is_first or not self._leader.is_heard:
            return None
        is_own: Flags = event.lanes < self._block_lanes
        return is_own if is_own.any() else None

    def _meet_warps(self, event: WarpSync) -> None:
        super()._meet_warps(event)
        self._leader.emit(WarpSync(event.pc, self._leader_lanes(event.lanes)))

    def _access_registers(self, event: RegisterAccess) -> None:
        lanes = self._leader_lanes(event.lanes)
        self._leader.emit(RegisterAccess(event.pc, lanes, event.read, event.written, event.is_move))

    def _read_operand(self, event: OperandRead) -> None:
        if event.rank == 0:
            self._leader.emit(event)

    def _complete_barrier(self, event: BarrierComplete) -> None:
        waiting = sum(len(waiters.lanes) for waiters in event.waiting)
        if waiting == self._block_threads:
            self._times.meet_blocks(np.arange(self._blocks))

    def _leader_lanes(self, lanes: LaneNumbers) -> LaneNumbers:
        """The leader's lanes of an event; the others have the same."""
        if self._alike is None or self._alike[0] is not lanes:
            self._alike = (lanes, self._first_of_alike(lanes, self._block_lanes))
        return self._alike[1]

    def _first_of_alike(self, numbers: LaneNumbers, stride: int) -> LaneNumbers:
        """The numbers of the leader; those of each block after it are a stride larger."""
        rows = numbers.reshape(self._blocks, -1) if len(numbers) % self._blocks == 0 else None
        if rows is None or (rows[1:] - rows[:-1] != stride).any():
            by_block = [numbers[numbers // stride == block] - block * stride for block in range(self._blocks)]
            raise BlocksDifferError("what they access", [own.tobytes() for own in by_block])
        return np.asarray(rows[0])

    def _leader_part(self, event: Load | Store) -> tuple[LaneNumbers, Addresses]:
        """The leader's lanes and places of an access to shared memory."""
        return self._leader_lanes(event.lanes), self._first_of_alike(event.places, self._shared_stride)


_Access = TypeVar("_Access", Load, Store)


def _part(event: _Access, is_own: Flags) -> _Access:
    """The part of some lanes of an access."""
    return replace(event, lanes=event.lanes[is_own], places=event.places[is_own], addresses=event.addresses[is_own])


def _others(values: Values) -> Values:
    """Values that differ from these: a store of a value that is there already is judged as any other."""
    words = np.ascontiguousarray(values)
    return np.asarray((~words.view(f"u{words.dtype.itemsize}")).view(words.dtype))
