"""What the memory accesses of a kernel cost, counted while it runs, by instruction.

    ld.shared.f32, 32 lanes down a column      wavefronts 32, at least 1        turns that shared memory takes (smem/banks.py)
    ld.global.f32, 32 lanes 128 bytes apart    sectors 32, at least 4           pieces of 32 bytes that are fetched
    cp.async.bulk.tensor, box 64 x 128         requests 128 of 128 bytes        rows of the box that lie in global memory

Local memory, parameters and constants are not counted; nor is what no card was measured doing: accesses of another block's shared
memory, and cp.async.cg, which goes past L1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tilescope.machine.address import (
    SHARED_RANK_SHIFT,
    SHARED_WINDOW,
    WINDOW_BYTES,
    WINDOWS,
    Addresses,
    Space,
    is_in_window,
)
from tilescope.machine.observers.access_cost import (
    AccessCounter,
    AccessKind,
    Execution,
    Where,
    sectors_of,
    wavefronts_of,
)
from tilescope.machine.observers.operand_reads import OperandReads
from tilescope.machine.observers.thread_tiles import ThreadTiles
from tilescope.machine.records import CopyKind
from tilescope.machine.step import LaneNumbers, Lanes
from tilescope.tensor_map import Copy
from tilescope.tma.walk import walk

if TYPE_CHECKING:
    from tilescope.machine.cluster import Cluster


@dataclass(slots=True)
class Traffic:
    """What the copies through one map, or all bulk copies, ask of global memory in one direction.

    A request is a row of the box that lies in the tensor: bytes that follow each other.
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
        known = self.least_request_bytes
        self.least_request_bytes = request_bytes if known is None else min(known, request_bytes)


class TrafficKey(NamedTuple):
    """Whose traffic: the number of the map (None: bulk copies, which have none), and the direction."""

    map_number: int | None
    direction: CopyKind


@dataclass(slots=True)
class Costs:
    """Counts of a launch; `finish` before they are read."""

    wavefronts: AccessCounter = field(default_factory=lambda: AccessCounter(wavefronts_of))
    sectors: AccessCounter = field(default_factory=lambda: AccessCounter(sectors_of))
    traffic: dict[TrafficKey, Traffic] = field(default_factory=dict)
    operands: OperandReads = field(default_factory=OperandReads)
    tiles: ThreadTiles = field(default_factory=ThreadTiles)

    def charge(self, cluster: Cluster, kind: AccessKind, space: Space, at: Lanes, addresses: Addresses) -> None:
        """Count an access of some lanes that went well."""
        if space == "shared":
            self._charge_shared(cluster, kind, at, addresses)
        elif space == "global":
            self._charge_global(cluster, kind, at, addresses)
        elif space == "generic":
            self._charge_generic(cluster, kind, at, addresses)

    def charge_matrices(
        self, cluster: Cluster, kind: AccessKind, space: Space, at: LaneNumbers, rows: Addresses
    ) -> None:
        """Count ldmatrix or stmatrix: `rows` are the addresses of the first lanes of every warp."""
        if kind.shared_op is None or space not in ("shared", "generic"):
            return
        own = rows - SHARED_WINDOW if space == "generic" else rows
        if int(own.min()) < 0 or int(own.max()) >= WINDOW_BYTES:  # generic addresses that lead elsewhere
            return
        self.wavefronts.add(_execution(cluster, kind, at, own))

    def charge_box(self, copy: Copy, map_number: int) -> None:
        """Count a tensor copy once, also if several blocks receive it."""
        walked = walk(copy)
        rows = walked.rows if walked.all_inside else int(np.count_nonzero(walked.inside))
        self._traffic(map_number, copy.direction).add(rows, walked.high_bytes - walked.low_bytes)

    def charge_bulk(self, direction: CopyKind, size_bytes: int) -> None:
        """Count a bulk copy from or to global memory."""
        self._traffic(None, direction).add(1 if size_bytes else 0, size_bytes)

    def _traffic(self, map_number: int | None, direction: CopyKind) -> Traffic:
        return self.traffic.setdefault(TrafficKey(map_number, direction), Traffic())

    def finish(self) -> None:
        """Count what waits to be counted."""
        self.wavefronts.finish()
        self.sectors.finish()
        self.tiles.finish()

    def _charge_generic(self, cluster: Cluster, kind: AccessKind, at: Lanes, addresses: Addresses) -> None:
        is_shared = is_in_window("shared", addresses)
        if is_shared.all():
            self._charge_shared(cluster, kind, at, addresses - SHARED_WINDOW)
            return
        is_global = ~is_shared
        for space in WINDOWS:
            is_global &= ~is_in_window(space, addresses)
        if is_global.all():
            self._charge_global(cluster, kind, at, addresses)
            return
        lanes = cluster.lanes(at)
        if is_shared.any():
            self._charge_shared(cluster, kind, lanes[is_shared], addresses[is_shared] - SHARED_WINDOW)
        if is_global.any():
            self._charge_global(cluster, kind, lanes[is_global], addresses[is_global])

    def _charge_shared(self, cluster: Cluster, kind: AccessKind, at: Lanes, addresses: Addresses) -> None:
        if kind.shared_op is None:
            return
        if cluster.blocks > 1:
            is_own = addresses >> SHARED_RANK_SHIFT == cluster.block_of_lane[at]
            if not is_own.all():
                at = cluster.lanes(at)[is_own]
                addresses = addresses[is_own]
        if len(addresses):
            self.wavefronts.add(_execution(cluster, kind, at, addresses))

    def _charge_global(self, cluster: Cluster, kind: AccessKind, at: Lanes, addresses: Addresses) -> None:
        self.sectors.add(_execution(cluster, kind, at, addresses))


def _execution(cluster: Cluster, kind: AccessKind, at: Lanes, addresses: Addresses) -> Execution:
    where = Where(cluster.first_block, cluster.launch.cluster, cluster.block_lanes)
    return Execution(cluster.pc, kind, cluster.lanes(at), addresses, where)
