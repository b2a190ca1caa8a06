"""The order of blocks that follow a leader: what they do to shared memory is judged once, as the leader does it.

shared memory     all blocks access the same addresses: the leader's part of the event goes to its detector
global memory     each block has its own addresses, which no other block writes (detector/lockstep_order.py)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilescope.sync.address import Addresses
from tilescope.sync.bus import Bus, Handler, StaleValues
from tilescope.sync.cluster_shape import ClusterShape, LaneNumbers
from tilescope.sync.detector.context import ProgramFacts
from tilescope.sync.detector.lockstep_order import LockstepMemory, LockstepOrder
from tilescope.sync.events import (
    Atomic,
    BarrierComplete,
    Load,
    OperandRead,
    RegisterAccess,
    Store,
    UndefinedUse,
    Values,
    WarpSync,
)
from tilescope.sync.shadow.lockstep_cells import OrderMattersError


class LeaderOrder(LockstepOrder):
    """Watches a batch, and tells the observers of its leader what the leader does."""

    def __init__(
        self,
        shape: ClusterShape,
        memory: LockstepMemory,
        first_thread: int,
        facts: ProgramFacts | None,
        leader: Bus,
    ) -> None:
        super().__init__(shape, memory, first_thread, facts)
        self._leader = leader
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
        """None: nobody waits for another block's word."""
        if load.space != "shared":
            return super().stale_values(load)
        if self._facts is not None and load.access is not None:
            lanes, places = self._leader_part(load)
            addresses = load.addresses[: len(lanes)]
            if self._leader.load(replace(load, lanes=lanes, places=places, addresses=addresses)):
                raise OrderMattersError("a stale value")
        return {}

    def _store(self, event: Store) -> None:
        if event.space != "shared":
            super()._store(event)
        elif self._facts is not None and event.access is not None:
            if event.stored is not None:
                raise OrderMattersError("two lanes store to one cell")
            lanes, places = self._leader_part(event)
            values = event.values[: len(lanes)]
            own = replace(event, lanes=lanes, places=places, addresses=event.addresses[: len(lanes)])
            self._leader.emit(replace(own, held=_others(values), values=values, stored=None))

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
        waiting = sum(len(one.lanes) for one in event.waiting)
        if waiting == self._block_threads:
            self._times.meet_blocks(np.arange(self._blocks))

    def _leader_lanes(self, lanes: LaneNumbers) -> LaneNumbers:
        """The leader's lanes of an event; the others have the same."""
        if self._alike is None or self._alike[0] is not lanes:
            self._alike = (lanes, self._first_of_alike(lanes, self._block_lanes))
        return self._alike[1]

    def _first_of_alike(self, numbers: LaneNumbers, stride: int) -> LaneNumbers:
        """The numbers of the leader; those of each block after it are a stride larger."""
        if len(numbers) % self._blocks:
            raise OrderMattersError("blocks do different things")
        rows = numbers.reshape(self._blocks, -1)
        if not (rows == rows[0] + np.arange(self._blocks)[:, None] * stride).all():
            raise OrderMattersError("blocks do different things")
        return np.asarray(rows[0])

    def _leader_part(self, event: Load | Store) -> tuple[LaneNumbers, Addresses]:
        """The leader's lanes and places of an access to shared memory."""
        return self._leader_lanes(event.lanes), self._first_of_alike(event.places, self._shared_stride)


def _others(values: Values) -> Values:
    """Values that differ from these: a store of a value that is there already is judged as any other."""
    words = np.ascontiguousarray(values)
    return np.asarray((~words.view(f"u{words.dtype.itemsize}")).view(words.dtype))
