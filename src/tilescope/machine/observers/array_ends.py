"""Reads of shared memory that leave the array, or the tile, in which they begin.

    .shared .b8 a[8192], b[8192]              a wgmma reads 64 rows of 32 bytes from a + 128 on: the last one is in b

An array is a declared variable in which the address begins (see decoding/array_origin.py). In one large array a tile is the box
that a tensor copy wrote. An operand that begins in a row of a tile other than the first of eight, and ends in the tile of another
copy, took one step of K too many: a swizzled operand begins at a multiple of eight rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tilescope.machine.decoding.array_origin import ArrayExtent, ArrayReads, find_array_reads
from tilescope.machine.program import Program
from tilescope.sync.address import Addresses
from tilescope.sync.bus import Handler
from tilescope.sync.cluster_shape import BlockIndex, ClusterShape
from tilescope.sync.events import CopyIssued, Load, OperandRead
from tilescope.tma.walk import placement, walk

_ATOM_ROWS = 8
_CELL_BYTES = 16
_OPERANDS_REMEMBERED = 4096


class Tile(NamedTuple):
    """The box of a tensor copy in the cluster's shared memory."""

    first: int
    end: int
    row_bytes: int  # of a swizzle; 0: none
    pc: int


class PastEnd(NamedTuple):
    """A read that leaves the array or tile in which it begins: the first one of its instruction."""

    pc: int
    lane: int | None
    block: BlockIndex
    operand: str | None  # "A" or "B" of a tensor core
    array: ArrayExtent | None
    tile_pc: int | None  # the copy of the tile
    address: int  # of the first such byte, in the block


class WatchedReads(NamedTuple):
    """The reads of a program that can leave an array or a tile."""

    reads: ArrayReads
    has_operands: bool  # whether a tensor core reads shared memory


@dataclass(slots=True)
class ArrayEnds:
    """The reads of a launch that leave their array or tile."""

    watched: WatchedReads
    found: dict[tuple[int, str | None], PastEnd] = field(default_factory=dict)

    def handlers(self, cluster: ClusterShape) -> dict[type, Handler]:
        """What looks at the reads of one cluster."""
        watch = _ClusterReads(self, cluster)
        handlers: dict[type, Handler] = {}
        if self.watched.has_operands:
            handlers = {OperandRead: watch.read_operand, CopyIssued: watch.note_copy}
        if self.watched.reads.loads:
            handlers[Load] = watch.load
        return handlers

    def array_at(self, offset: int) -> ArrayExtent | None:
        """The array that holds a byte of a block's shared memory."""
        return next((array for array in self.watched.reads.arrays if array.first <= offset < array.end), None)


def find_watched_reads(program: Program) -> WatchedReads | None:
    """The reads to watch; None if no read of the program can leave an array or a tile."""
    reads = find_array_reads(program)
    has_operands = any(
        instruction is not None and instruction.name in ("wgmma", "tcgen05") for instruction in program.instructions
    )
    return WatchedReads(reads, has_operands) if has_operands or reads.loads else None


class _ClusterReads:
    """The reads of one cluster."""

    def __init__(self, ends: ArrayEnds, cluster: ClusterShape) -> None:
        self._ends = ends
        self._cluster = cluster
        self._tiles: dict[int, Tile] = {}  # by first byte
        self._judged: set[tuple[int, str, int, int]] = set()  # (pc, operand, descriptor, rank) since the last new tile
        self._places_inside: dict[int, Addresses] = {}  # by instruction: those of its last load, all inside their array

    def load(self, event: Load) -> None:
        """Threads load: all bytes are in the array in which the address begins."""
        array = self._ends.watched.reads.loads.get(event.pc)
        if array is None or event.space != "shared" or (event.pc, None) in self._ends.found:
            return
        if self._places_inside.get(event.pc) is event.places:
            return
        ranks, offsets = np.divmod(event.places, self._cluster.shared_stride)
        is_outside = (offsets < array.first) | (offsets + event.size_bytes > array.end)
        if not is_outside.any():
            self._places_inside[event.pc] = event.places
            return
        for index in np.flatnonzero(is_outside).tolist():
            offset = int(offsets[index])
            first_outside = max(offset, array.end) if offset >= array.first else offset
            other = self._ends.array_at(first_outside)
            if other is not None:
                block = self._cluster.block_index(int(ranks[index]))
                lane = int(event.lanes[index])
                self._keep(PastEnd(event.pc, lane, block, None, array, None, first_outside))
                return

    def note_copy(self, event: CopyIssued) -> None:
        """A tensor copy will write its box; boxes that it covers are no longer tiles."""
        copy = event.tensor_copy
        if copy is None or event.barrier is None:
            return
        tensor_map = copy.tensor_map
        first = self._cluster.place(copy.smem_address)
        previous = self._tiles.get(first)
        if previous is not None and previous.pc == event.pc:
            return
        end = first + placement(tensor_map, walk(copy).rows, copy.smem_address).footprint_bytes
        covered = [tile.first for tile in self._tiles.values() if tile.first < end and first < tile.end]
        for start in covered:
            del self._tiles[start]
        row_bytes = tensor_map.swizzle.span_bytes or 0
        self._tiles[first] = Tile(first, end, row_bytes, event.pc)
        self._judged.clear()

    def read_operand(self, event: OperandRead) -> None:
        """A tensor core reads an operand."""
        name = event.shape.operand
        key = (event.pc, name, event.word, event.rank)
        if key in self._judged or (event.pc, name) in self._ends.found:
            return
        if len(self._judged) < _OPERANDS_REMEMBERED:
            self._judged.add(key)
        cells = event.bytes.cells(_CELL_BYTES)
        assert not isinstance(cells, slice)
        first_byte = event.rank * self._cluster.shared_stride
        past = self._find_outside_array(event, cells * _CELL_BYTES - first_byte)
        if past is None:
            past = self._find_outside_tile(event, cells * _CELL_BYTES)
        if past is not None:
            self._keep(past)

    def _find_outside_array(self, event: OperandRead, offsets: Addresses) -> PastEnd | None:
        name = event.shape.operand
        array = self._ends.watched.reads.operands.get((event.pc, name))
        if array is None:
            array = self._ends.array_at(event.first_element)
        if array is None:
            return None
        outside = offsets[(offsets < array.first) | (offsets >= array.end)]
        for offset in outside[:1].tolist():
            other = self._ends.array_at(offset)
            if other is not None:
                block = self._cluster.block_index(event.rank)
                return PastEnd(event.pc, None, block, name, array, None, offset)
        return None

    def _find_outside_tile(self, event: OperandRead, places: Addresses) -> PastEnd | None:
        start = event.rank * self._cluster.shared_stride + event.first_element
        tile = next((candidate for candidate in self._tiles.values() if candidate.first <= start < candidate.end), None)
        if tile is None or not tile.row_bytes or (start - tile.first) // tile.row_bytes % _ATOM_ROWS == 0:
            return None
        beyond = places[places >= tile.end]
        if not len(beyond):
            return None
        place = int(beyond.min())
        other = next(
            (candidate for candidate in self._tiles.values() if candidate.first <= place < candidate.end), None
        )
        if other is None:
            return None
        block = self._cluster.block_index(event.rank)
        offset = place % self._cluster.shared_stride
        return PastEnd(event.pc, None, block, event.shape.operand, None, tile.pc, offset)

    def _keep(self, past: PastEnd) -> None:
        self._ends.found.setdefault((past.pc, past.operand), past)
