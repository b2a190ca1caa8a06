"""What the memory accesses of a kernel cost, counted while it runs, by instruction.

    ld.shared.f32, 32 lanes down a column      wavefronts 32, at least 1        turns that shared memory takes (smem/banks.py)
    ld.global.f32, 32 lanes 128 bytes apart    sectors 32, at least 4           pieces of 32 bytes that are fetched
    cp.async.bulk.tensor, box 64 x 128         requests 128 of 128 bytes        rows of the box inside the tensor

Local memory, parameters and constants are not counted; nor is what no card was measured doing: accesses of another block's shared
memory, and cp.async.cg, which goes past L1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tilescope.machine.decoding.access_kind import AccessKind
from tilescope.machine.execution.records import CopyKind
from tilescope.machine.observers.access_cost import AccessCounter, Execution, Where, sectors_of, wavefronts_of
from tilescope.machine.observers.operand_reads import OperandReads
from tilescope.machine.observers.thread_tiles import ThreadTiles
from tilescope.sync.address import SHARED_RANK_SHIFT, Addresses
from tilescope.sync.bus import Handler
from tilescope.sync.cluster_shape import BlockIndex, ClusterShape, LaneNumbers
from tilescope.sync.events import (
    Atomic,
    CopyRequested,
    CpAsyncIssued,
    Load,
    Store,
)


@dataclass(slots=True)
class Traffic:
    """The traffic of the copies through one map, or of all bulk copies, in one direction.

    A request is a row of the box inside the tensor: contiguous bytes.
    """

    boxes: int = 0
    requests: int = 0
    bytes: int = 0
    least_request_bytes: int | None = None

    def add(self, requests: int, request_bytes: int) -> None:
        """Count one copy."""
        self.boxes += 1
        if not requests:
            return
        self.requests += requests
        self.bytes += requests * request_bytes
        least = self.least_request_bytes
        self.least_request_bytes = request_bytes if least is None else min(least, request_bytes)

    def join(self, other: Traffic) -> None:
        """Add other copies."""
        self.boxes += other.boxes
        self.requests += other.requests
        self.bytes += other.bytes
        least = [
            request_bytes
            for request_bytes in (self.least_request_bytes, other.least_request_bytes)
            if request_bytes is not None
        ]
        self.least_request_bytes = min(least, default=None)


class TrafficKey(NamedTuple):
    """The key of a traffic row: the number of the map (None for bulk copies), and the direction."""

    map_number: int | None
    direction: CopyKind


@dataclass(slots=True)
class Costs:
    """Counts of a launch; `finish` before they are read."""

    wavefronts: AccessCounter = field(default_factory=lambda: AccessCounter(wavefronts_of))
    sectors: AccessCounter = field(default_factory=lambda: AccessCounter(sectors_of))
    traffic: dict[TrafficKey, Traffic] = field(default_factory=dict)
    operands: OperandReads = field(default_factory=OperandReads)
    tiles: ThreadTiles = field(init=False)
    has_tiles: bool = False  # whether tiles are watched

    def __post_init__(self) -> None:
        self.tiles = ThreadTiles(self.operands)

    def handlers(self, cluster: ClusterShape, starts: Sequence[BlockIndex] = ()) -> dict[type, Handler]:
        """What counts the events of one cluster, or of blocks in lockstep that start at some places of the grid."""
        return ClusterCosts(self, cluster, starts).handlers()

    def add(self, other: Costs) -> None:
        """Add the costs of blocks that have run in lockstep."""
        self.wavefronts.add_counts(other.wavefronts)
        self.sectors.add_counts(other.sectors)
        self.operands.add_reads(other.operands, 1)
        for key, traffic in other.traffic.items():
            self.traffic.setdefault(key, Traffic()).join(traffic)

    def count_copy(self, event: CopyRequested) -> None:
        """Count a copy once, also if several blocks receive it."""
        self._traffic(event.map_number, event.direction).add(event.rows, event.row_bytes)

    def _traffic(self, map_number: int | None, direction: CopyKind) -> Traffic:
        return self.traffic.setdefault(TrafficKey(map_number, direction), Traffic())

    def finish(self) -> None:
        """Count what waits to be counted."""
        self.wavefronts.finish()
        self.sectors.finish()
        if self.has_tiles:
            self.tiles.finish()


class ClusterCosts:
    """Counts the events of one cluster into the costs of its launch."""

    def __init__(self, costs: Costs, cluster: ClusterShape, starts: Sequence[BlockIndex]) -> None:
        self._costs = costs
        self._cluster = cluster
        self._has_remote = cluster.blocks > 1 and not starts
        extents = (1, 1, 1) if starts else cluster.extents
        first_blocks = np.array(starts or (cluster.first_block,), np.int64)
        self._where = Where(first_blocks, extents, cluster.block_lanes, cluster.lane_count // len(first_blocks))

    def handlers(self) -> dict[type, Handler]:
        """Which method counts each event."""
        return {
            Load: self._count,
            Store: self._count,
            Atomic: self._count,
            CpAsyncIssued: self._cp_async,
            CopyRequested: self._costs.count_copy,
        }

    def _cp_async(self, event: CpAsyncIssued) -> None:
        self._count_shared(event.pc, event.cost, event.lanes, event.addresses)
        if len(event.sources):
            self._costs.sectors.add(Execution(event.pc, event.cost, event.source_lanes, event.sources, self._where))

    def _count(self, event: Load | Store | Atomic) -> None:
        """Count an access of some lanes that went well."""
        cost: AccessKind | None = event.cost
        if cost is None:
            return
        if event.space == "shared":
            self._count_shared(event.pc, cost, event.lanes, event.addresses)
        elif not cost.is_matrix:
            self._costs.sectors.add(Execution(event.pc, cost, event.lanes, event.addresses, self._where))

    def _count_shared(self, pc: int, cost: AccessKind, lanes: LaneNumbers, addresses: Addresses) -> None:
        if cost.shared_op is None:
            return
        if self._has_remote:
            is_own = addresses >> SHARED_RANK_SHIFT == self._cluster.block_of_lane[lanes]
            if not is_own.all():
                lanes = lanes[is_own]
                addresses = addresses[is_own]
        if len(addresses):
            self._costs.wavefronts.add(Execution(pc, cost, lanes, addresses, self._where))
