"""What the memory accesses of a kernel cost, counted while it runs, by instruction.

    ld.shared.f32, 32 lanes down a column      wavefronts 32, at least 1        turns that shared memory takes (smem/banks.py)
    ld.global.f32, 32 lanes 128 bytes apart    sectors 32, at least 4           pieces of 32 bytes that are fetched
    cp.async.bulk.tensor, box 64 x 128         requests 128 of 128 bytes        rows of the box that lie in global memory

A loop asks for the same pattern at other addresses, and neither count changes when all lanes of a warp move by whole words (or
sectors): so a pattern is counted once, and found again by the distances from its first lane.

    lanes at 0x400 0x480 0x500 …     →  0 0x80 0x100 …  ←     lanes at 0xc00 0xc80 0xd00 …

Local memory, parameters and constants are not counted; nor is what no card was measured doing: accesses of another block's shared
memory, and cp.async.cg, which goes past L1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.errors import RuleError
from tilescope.machine.address import SHARED_RANK_SHIFT, SHARED_WINDOW, WINDOW_BYTES, WINDOW_OF_SPACE, Addresses, Space
from tilescope.machine.operand_reads import OperandReads
from tilescope.machine.records import BlockIndex, CopyKind, block_index
from tilescope.machine.step import LaneNumbers, Lanes
from tilescope.smem.banks import count_ideal, count_wavefronts
from tilescope.smem.op import SMEM_OP, SmemOp
from tilescope.tensor_map import Copy
from tilescope.tma.walk import walk

if TYPE_CHECKING:
    from tilescope.machine.cluster import Cluster

Mask = npt.NDArray[np.bool_]
SECTOR_BYTES = 32
_SECTOR_SHIFT = SECTOR_BYTES.bit_length() - 1
_PATTERNS_KEPT = 1024  # beyond them addresses follow no pattern, and all are forgotten


class AccessKind(NamedTuple):
    """What every lane of an instruction asks of memory."""

    size_bytes: int
    shared_op: SmemOp | None  # how shared memory serves it; None: no card was measured


def access_kind(verb: Literal["ld", "st", "cp.async"], size_bytes: int) -> AccessKind:
    """Loads, stores and copies of some bytes a lane; atomics are served as stores of their width.

    >>> access_kind("ld", 16).shared_op.name, access_kind("cp.async", 8).shared_op.name
    ('ld.b128', 'cp.async.8')
    """
    name = f"cp.async.{size_bytes}" if verb == "cp.async" else f"{verb}.b{size_bytes * 8}"
    return AccessKind(size_bytes, SMEM_OP.get(name))


def matrix_kind(opcode: str, row_bytes: int) -> AccessKind:
    """A row of a matrix for every lane of ldmatrix or stmatrix that gives an address.

    >>> matrix_kind("ldmatrix.sync.aligned.m8n8.x4.shared.b16", 16).shared_op.lanes
    32
    """
    try:
        return AccessKind(row_bytes, SmemOp.named(opcode))
    except RuleError:
        return AccessKind(row_bytes, None)


class PatternCost(NamedTuple):
    """What one instruction of one or more warps costs: wavefronts or sectors."""

    cost: int
    least: int
    worst_excess: int  # of one warp
    worst_row: int  # which warp of those that ran it


_ONE_LANE = PatternCost(1, 1, 0, 0)


class Instance(NamedTuple):
    """One warp's execution of an instruction: where its lanes went."""

    kind: AccessKind
    cost: int
    least: int
    block: BlockIndex
    warp: int  # of the block
    lane_address: tuple[int | None, ...]  # of the lanes that the operation takes addresses from; None: inactive


@dataclass(slots=True)
class Tally:
    """What all executions of one instruction cost together, and the worst of them."""

    cost: int = 0
    least: int = 0
    worst_excess: int = -1  # so that one is kept as an example, conflict or not
    worst_place: tuple[
        int, ...
    ] = ()  # of its warp in the grid: of equal ones the first is kept, in whatever order they ran
    worst: Instance | None = None


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


class _Rows(NamedTuple):
    """Addresses by warp: (warps, lanes); lanes that do not take part stand where the first that does stands."""

    addresses: Addresses
    mask: Mask | None
    first_lanes: LaneNumbers  # of each warp, any lane that is in it


@dataclass(slots=True)
class Costs:
    """Counts of a launch, by the instruction's place in the program."""

    shared: dict[int, Tally] = field(default_factory=dict)  # wavefronts
    sectors: dict[int, Tally] = field(default_factory=dict)  # of global memory
    traffic: dict[TrafficKey, Traffic] = field(default_factory=dict)
    operands: OperandReads = field(default_factory=OperandReads)
    _patterns: dict[tuple[str, bytes, bytes], PatternCost] = field(default_factory=dict)

    def charge(self, cluster: Cluster, kind: AccessKind, space: Space, at: Lanes, addresses: Addresses) -> None:
        """Count an access of some lanes that went well."""
        if space == "shared":
            self._charge_shared(cluster, kind, at, addresses)
        elif space == "global":
            self.charge_global(cluster, kind, at, addresses)
        elif space == "generic":
            self._charge_generic(cluster, kind, at, addresses)

    def charge_matrices(
        self, cluster: Cluster, kind: AccessKind, space: Space, at: LaneNumbers, rows: Addresses
    ) -> None:
        """Count ldmatrix or stmatrix: `rows` are the addresses of the first lanes of every warp."""
        op = kind.shared_op
        if op is None or space not in ("shared", "generic"):
            return
        own = rows - SHARED_WINDOW if space == "generic" else rows
        by_warp = _Rows(own.reshape(-1, op.lanes), None, at[:: op.lanes])
        self._add(self.shared, cluster, kind, by_warp, self._wavefronts(op, by_warp))

    def charge_box(self, copy: Copy, map_number: int) -> None:
        """Count a tensor copy, whoever receives it."""
        walked = walk(copy)
        rows = walked.rows if walked.all_inside else int(np.count_nonzero(walked.inside))
        self._traffic(map_number, copy.direction).add(rows, walked.high_bytes - walked.low_bytes)

    def charge_bulk(self, direction: CopyKind, size_bytes: int) -> None:
        """Count a bulk copy from or to global memory."""
        self._traffic(None, direction).add(1 if size_bytes else 0, size_bytes)

    def _traffic(self, map_number: int | None, direction: CopyKind) -> Traffic:
        return self.traffic.setdefault(TrafficKey(map_number, direction), Traffic())

    def _charge_generic(self, cluster: Cluster, kind: AccessKind, at: Lanes, addresses: Addresses) -> None:
        is_shared = (addresses >= SHARED_WINDOW) & (addresses < SHARED_WINDOW + WINDOW_BYTES)
        if is_shared.all():
            self._charge_shared(cluster, kind, at, addresses - SHARED_WINDOW)
            return
        is_global = ~is_shared
        for space in ("local", "param"):
            window = WINDOW_OF_SPACE[space]
            is_global &= (addresses < window) | (addresses >= window + WINDOW_BYTES)
        if is_global.all():
            self.charge_global(cluster, kind, at, addresses)
            return
        lanes = cluster.lanes(at)
        if is_shared.any():
            self._charge_shared(cluster, kind, lanes[is_shared], addresses[is_shared] - SHARED_WINDOW)
        if is_global.any():
            self.charge_global(cluster, kind, lanes[is_global], addresses[is_global])

    def _charge_shared(self, cluster: Cluster, kind: AccessKind, at: Lanes, addresses: Addresses) -> None:
        op = kind.shared_op
        if op is None:
            return
        if cluster.blocks > 1:
            is_own = addresses >> SHARED_RANK_SHIFT == cluster.block_of_lane[at]
            if not is_own.all():
                at = cluster.lanes(at)[is_own]
                addresses = addresses[is_own]
        if len(addresses):
            rows = _by_warp(cluster, at, addresses)
            found = _ONE_LANE if len(addresses) == 1 else self._wavefronts(op, rows)
            self._add(self.shared, cluster, kind, rows, found)

    def charge_global(self, cluster: Cluster, kind: AccessKind, at: Lanes, addresses: Addresses) -> None:
        """Count an access of global memory."""
        rows = _by_warp(cluster, at, addresses)
        found = _ONE_LANE if len(addresses) == 1 else self._sectors(kind.size_bytes, rows)
        self._add(self.sectors, cluster, kind, rows, found)

    def _wavefronts(self, op: SmemOp, rows: _Rows) -> PatternCost:
        key = _pattern_key(op.name, rows, op.cell_bytes)
        found = self._patterns.get(key)
        if found is None:
            counts = count_wavefronts(op, rows.addresses, rows.mask)
            found = self._keep(key, counts, count_ideal(op, rows.addresses, rows.mask))
        return found

    def _sectors(self, size_bytes: int, rows: _Rows) -> PatternCost:
        key = _pattern_key(f"sectors of b{size_bytes * 8}", rows, SECTOR_BYTES)
        found = self._patterns.get(key)
        if found is None:
            # Accesses lie at multiples of their size, so two of them touch the same bytes or none of each other's.
            in_order = np.sort(rows.addresses, axis=1)
            asked_bytes = _different(in_order) * size_bytes
            counts = _different(in_order >> _SECTOR_SHIFT) * max(1, size_bytes // SECTOR_BYTES)
            found = self._keep(key, counts, -(-asked_bytes // SECTOR_BYTES))
        return found

    def _keep(self, key: tuple[str, bytes, bytes], counts: LaneNumbers, least: LaneNumbers) -> PatternCost:
        excess = counts - least
        worst_row = int(excess.argmax())
        found = PatternCost(int(counts.sum()), int(least.sum()), int(excess[worst_row]), worst_row)
        if len(self._patterns) >= _PATTERNS_KEPT:
            self._patterns.clear()
        self._patterns[key] = found
        return found

    def _add(
        self, tallies: dict[int, Tally], cluster: Cluster, kind: AccessKind, rows: _Rows, found: PatternCost
    ) -> None:
        tally = tallies.get(cluster.pc)
        if tally is None:
            tally = tallies[cluster.pc] = Tally()
        tally.cost += found.cost
        tally.least += found.least
        if found.worst_excess < tally.worst_excess:
            return
        place = (*cluster.first_block[::-1], int(rows.first_lanes[found.worst_row]) // WARP_LANES)
        if found.worst_excess > tally.worst_excess or place < tally.worst_place:
            tally.worst_excess = found.worst_excess
            tally.worst_place = place
            tally.worst = self._instance(tallies, cluster, kind, rows, found)

    def _instance(
        self, tallies: dict[int, Tally], cluster: Cluster, kind: AccessKind, rows: _Rows, found: PatternCost
    ) -> Instance:
        """The worst warp of an execution, on its own."""
        row = found.worst_row
        mask = None if rows.mask is None else rows.mask[row : row + 1]
        alone = _Rows(rows.addresses[row : row + 1], mask, rows.first_lanes[row : row + 1])
        if len(rows.addresses) > 1:
            is_shared = tallies is self.shared and kind.shared_op is not None
            op = kind.shared_op if is_shared else None
            found = self._sectors(kind.size_bytes, alone) if op is None else self._wavefronts(op, alone)
        rank, lane_of_block = divmod(int(alone.first_lanes[0]), cluster.block_lanes)
        places = alone.addresses[0].tolist()
        active = [True] * len(places) if mask is None else mask[0].tolist()
        return Instance(
            kind,
            found.cost,
            found.least,
            block_index(cluster.first_block, cluster.launch.cluster, rank),
            lane_of_block // WARP_LANES,
            tuple(place if taken else None for place, taken in zip(places, active, strict=True)),
        )


def _by_warp(cluster: Cluster, at: Lanes, addresses: Addresses) -> _Rows:
    """The addresses of lanes in ascending order, warp by warp."""
    if isinstance(at, slice):
        return _Rows(addresses.reshape(-1, WARP_LANES), None, np.arange(0, cluster.lane_count, WARP_LANES))
    first = int(at[0])
    if len(at) % WARP_LANES == 0 and first % WARP_LANES == 0 and int(at[-1]) - first == len(at) - 1:
        return _Rows(addresses.reshape(-1, WARP_LANES), None, at[::WARP_LANES])
    warps = at // WARP_LANES
    is_first = np.ones(len(at), np.bool_)
    is_first[1:] = warps[1:] != warps[:-1]
    starts = np.flatnonzero(is_first)
    row = np.cumsum(is_first) - 1
    by_warp = np.repeat(addresses[starts][:, None], WARP_LANES, axis=1)
    mask = np.zeros(by_warp.shape, np.bool_)
    by_warp[row, at % WARP_LANES] = addresses
    mask[row, at % WARP_LANES] = True
    return _Rows(by_warp, mask, at[starts])


def _pattern_key(name: str, rows: _Rows, step_bytes: int) -> tuple[str, bytes, bytes]:
    """The same for patterns of which every warp is moved by a multiple of `step_bytes`."""
    first = rows.addresses[:, :1] & -step_bytes
    return name, (rows.addresses - first).tobytes(), b"" if rows.mask is None else rows.mask.tobytes()


def _different(in_order: Addresses) -> Addresses:
    """How many different numbers each row of ascending ones has."""
    count: Addresses = np.count_nonzero(in_order[:, 1:] != in_order[:, :-1], axis=1) + 1
    return count
