"""The memory that every warp accessed: what it read and wrote between two acts is one read and one write.

    ld.shared a, st.shared b, ld.shared c, mbarrier.arrive     ──▶   read a and c, write b, arrive

The order of accesses between two synchronizing acts is not observable. Copies of cp.async, and the instructions
of one wgmma product, are put together likewise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tilescope.arch import WARP_LANES
from tilescope.machine.instructions.tensor_core.wgmma import WARPGROUP_WARPS, SmemRead, operand_bytes
from tilescope.machine.proof.act import Act, CannotSayError
from tilescope.machine.proof.pieces import LARGEST_CELL_BYTES, CellNumbers, CellSets, tensor_cells
from tilescope.machine.proof.recorded_rows import Access, Row
from tilescope.machine.proof.recorder import Recorder
from tilescope.mma.tmem_address import TMEM_COLUMNS, TMEM_LANES
from tilescope.swizzle import CHUNK_BYTES
from tilescope.sync.address import SHARED_OFFSET_MASK, SHARED_RANK_SHIFT
from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.events import CopyIssued, TmemDealloc, TmemMove, TmemWait, TmemWork, WgmmaIssued
from tilescope.tma.walk import placement

_GENERIC = ("read", "write", "agreed", "atomic")
_TELLING = ("arrive", "expect", "cp_arrive", "commit", "sync", "bar_arrive", "cluster")


class Touch(NamedTuple):
    """Cells that a warp accessed in one instruction, and how."""

    how: str
    cells: int
    warps: tuple[int, ...] = ()
    unseen: frozenset[int] = frozenset()
    into: int | None = None
    mask: int | None = None


@dataclass(slots=True)
class _Open:
    """Accesses of a warp that are put together."""

    pc: int = 0
    order: int = 0
    touches: list[Touch] = field(default_factory=list)

    @property
    def family(self) -> str:
        how = self.touches[0].how
        return "generic" if how in _GENERIC else how


class WarpAccesses:
    """What the warps of a cluster accessed, put together between the acts that others could notice."""

    def __init__(self, log: Recorder) -> None:
        self.log = log
        self.block_warps = log.block_lanes // WARP_LANES
        self.sets = CellSets()
        self.of_warp: dict[int, list[Act]] = {
            warp: [] for warp in range(log.blocks * self.block_warps) if log.exists[warp * WARP_LANES]
        }
        self.has_inexact_copies = False
        self._order = 0
        self._open: dict[int, _Open] = defaultdict(_Open)
        self._split: dict[tuple[int, int, int, bool], list[tuple[int, Touch]]] = {}
        self._products: dict[tuple[object, int], int] = {}
        self._moving: dict[tuple[int, bool], list[TmemMove]] = defaultdict(list)  # by warp and direction
        self._is_fenced: dict[int, bool] = {}  # by warp: a memory fence covers what it accessed
        _divide_cells(self.sets, log.rows)

    def all_acts(self) -> Iterator[Act]:
        """The acts of every warp, warp after warp."""
        for warp_acts in self.of_warp.values():
            yield from warp_acts

    def _warps(self, lanes: LaneNumbers) -> list[int]:
        if len(lanes) == len(self.log.exists):
            return list(self.of_warp)
        warps: list[int] = np.unique(lanes // WARP_LANES).tolist()
        return warps

    def _rank(self, warp: int) -> int:
        return warp // self.block_warps

    def _do(self, warp: int, act: Act) -> None:
        """Add an act of a warp after its earlier accesses."""
        self._require_moved(warp, act)
        self._close(warp)
        self.of_warp[warp].append(act._replace(order=self._order))

    def _by_warp(self, row: Access) -> list[tuple[int, Touch]]:
        """The cells that each warp reached."""
        lanes = row.lanes
        warps = lanes // WARP_LANES
        ranks = row.addresses >> SHARED_RANK_SHIFT
        if (ranks != warps // self.block_warps).any():
            raise CannotSayError("an access to the shared memory of another block by its address", row.pc)
        offsets = row.addresses & SHARED_OFFSET_MASK
        return [
            (warp, Touch(row.how, self.sets.of(offsets[warps == warp], row.size_bytes)))
            for warp in np.unique(warps).tolist()
        ]

    def _split_agreed(self, found: list[tuple[int, Touch]]) -> list[tuple[int, Touch]]:
        """The cells of each warp apart, by the warps of its block that write them too."""
        writers: dict[tuple[int, int], list[int]] = defaultdict(list)
        for warp, touch in found:
            for cell in self.sets.sets[touch.cells].tolist():
                writers[self._rank(warp), cell].append(warp)
        by_writers: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for (_, cell), writing in writers.items():
            by_writers[tuple(writing)].append(cell)
        apart = []
        for warps, cells in by_writers.items():
            in_block = tuple(warp % self.block_warps for warp in warps)
            number = self.sets.number(np.array(sorted(cells), np.int64))
            apart += [(warp, Touch("agreed", number, in_block)) for warp in warps]
        return apart

    def _touch(self, warp: int, pc: int, touch: Touch) -> None:
        self._is_fenced.pop(warp, None)
        pending = self._open[warp]
        family = "generic" if touch.how in _GENERIC else touch.how
        if pending.touches and pending.family != family:
            self._close(warp)
            pending = self._open[warp]
        if not pending.touches:
            pending.pc = pc
            pending.order = self._order
        pending.touches.append(touch)

    def _close(self, warp: int) -> None:
        """Merge the accesses of a warp since its last act."""
        pending = self._open.pop(warp, None)
        if pending is None or not pending.touches:
            return
        acts = self.of_warp[warp]
        if pending.family == "multiply":
            acts.append(Act("multiply", pending.pc, pending.order, cells=self._all_of(pending, "multiply")))
            return
        if pending.family == "tcgen05":
            acts.append(
                Act(
                    "multiply",
                    pending.pc,
                    pending.order,
                    arguments=(("unit", "tcgen05"),),
                    cells=self._all_of(pending, "tcgen05"),
                    into=self.sets.union(frozenset(touch.into for touch in pending.touches if touch.into is not None)),
                    mask=pending.touches[0].mask,
                )
            )
            return
        if pending.family == "cp.async":
            cells = self._all_of(pending, "cp.async")
            acts.append(Act("copy", pending.pc, pending.order, cells=cells, arguments=(("by", "cp.async"),)))
            return
        read_first = self._read_first(pending.touches)
        if read_first is not None:
            unseen = frozenset(barrier for touch in pending.touches for barrier in touch.unseen)
            acts.append(Act("read", pending.pc, pending.order, cells=read_first, unseen=unseen))
        for how in ("write", "atomic"):
            cells = self._all_of(pending, how)
            if cells is not None:
                acts.append(Act(how, pending.pc, pending.order, cells=cells))
        for warps in dict.fromkeys(touch.warps for touch in pending.touches if touch.how == "agreed"):
            numbers = frozenset(
                touch.cells for touch in pending.touches if touch.warps == warps and touch.how == "agreed"
            )
            acts.append(Act("agreed", pending.pc, pending.order, cells=self.sets.union(numbers), warps=warps))

    def _all_of(self, held: _Open, how: str) -> int | None:
        numbers = frozenset(touch.cells for touch in held.touches if touch.how == how)
        return self.sets.union(numbers) if numbers else None

    def _read_first(self, touches: list[Touch]) -> int | None:
        """What is read, without what the warp has written itself just before."""
        written: set[int] = set()
        read: set[int] = set()
        for how, cells, *_ in touches:
            if how in ("write", "agreed"):
                written.add(cells)
            elif how == "read" and cells not in written:
                left = self.sets.without(cells, self.sets.union(frozenset(written))) if written else cells
                if left is not None:
                    read.add(left)
        return self.sets.union(frozenset(read)) if read else None

    def _add_wgmma(self, row: WgmmaIssued) -> None:
        numbers = [self._operand(operand.read, operand.descriptor) for operand in row.operands]
        cells = self.sets.union(frozenset(numbers))
        first_warp = int(row.lanes[0]) // WARP_LANES
        for warp in range(first_warp, first_warp + WARPGROUP_WARPS):
            self._touch(warp, row.pc, Touch("multiply", cells))

    def _operand(self, read: SmemRead, descriptor: int) -> int:
        key = (read, descriptor)
        number = self._products.get(key)
        if number is None:
            chunks = np.unique(operand_bytes(read, descriptor) // CHUNK_BYTES)  # wgmma reads whole ones
            number = self.sets.of(chunks * CHUNK_BYTES, CHUNK_BYTES)
            self._products[key] = number
        return number

    def _add_tmem_work(self, row: TmemWork) -> None:
        warp = row.lane // WARP_LANES
        reads = [self._chunks_read(addresses) for addresses in row.shared]
        if len(row.read):
            reads.append(self._tensor_set(row.read))
        cells = self.sets.union(frozenset(reads))
        pending = self._open.get(warp)
        if pending is not None and any(
            touch.into is not None and self._overlap(touch.into, cells) for touch in pending.touches
        ):
            self._close(warp)  # it reads what was written just before
        mask = None
        if len(row.ranks) > 1:
            mask = sum(1 << rank for rank in row.ranks)
        self._touch(warp, row.pc, Touch("tcgen05", cells, into=self._tensor_set(row.written), mask=mask))

    def _chunks_read(self, addresses: CellNumbers) -> int:
        """The chunks of 16 bytes that a tensor core reads."""
        key = ("tcgen05", id(addresses))
        number = self._products.get(key)
        if number is None:
            number = self.sets.of(np.unique(addresses // CHUNK_BYTES) * CHUNK_BYTES, CHUNK_BYTES)
            self._products[key] = number
        return number

    def _tensor_set(self, places: CellNumbers) -> int:
        return self.sets.of(tensor_cells(places), LARGEST_CELL_BYTES)

    def _overlap(self, one: int, other: int) -> bool:
        return self.sets.without(one, other) != one

    def _add_tmem_move(self, row: TmemMove) -> None:
        self._moving[int(row.lanes[0]) // WARP_LANES, row.is_load].append(row)

    def _add_tmem_wait(self, row: TmemWait) -> None:
        """What a warp has loaded or stored is read or written at its wait."""
        for warp in self._warps(row.lanes):
            for move in self._moving.pop((warp, row.is_load), []):
                how = "read" if row.is_load else "write"
                self._touch(warp, move.pc, Touch(how, self._tensor_set(move.places)))

    def _require_moved(self, warp: int, act: Act) -> None:
        """Refuse pending loads and stores of tensor memory at a warp's synchronizing act."""
        for is_load in (True, False):
            moving = self._moving.get((warp, is_load))
            if moving and act.op in _TELLING:
                name = "ld" if is_load else "st"
                raise CannotSayError(
                    f"tcgen05.{name}, and no tcgen05.wait::{name} before the next barrier", moving[0].pc
                )

    def _add_dealloc(self, row: TmemDealloc) -> None:
        """Other warps' accesses to these columns have completed; the documentation requires no fence here."""
        warp = row.lane // WARP_LANES
        first_cells = np.arange(TMEM_LANES)[:, None] * TMEM_COLUMNS + row.first_column
        places = (first_cells + np.arange(row.columns)).ravel()
        self._do(warp, Act("fence", row.pc, 0, target="tcgen05.after"))
        self._do(warp, Act("write", row.pc, 0, cells=self._tensor_set(places)))

    def _copied_cells(self, row: CopyIssued) -> int | None:
        record = row.record
        if not record.bytes:
            return None
        addresses, size_bytes = copied_bytes(row)
        number = self.sets.of(addresses, size_bytes)
        if len(self.sets.sets[number]) * self.sets.cell_bytes != record.bytes:
            self.has_inexact_copies = True
        return number


def copied_bytes(row: CopyIssued) -> tuple[CellNumbers, int]:
    """The shared-memory bytes of a copy: addresses of its pieces, and the bytes of one."""
    record = row.record
    offset = record.shared_address & SHARED_OFFSET_MASK
    if row.tensor_copy is None:
        return np.array([offset]), record.bytes
    tensor_map = row.tensor_copy.tensor_map
    row_bytes = tensor_map.interleave.slice_bytes or tensor_map.inner_bytes
    rows = max(1, record.bytes // row_bytes)
    placed = placement(tensor_map, rows, offset)
    return offset + placed.places * placed.piece_bytes, placed.piece_bytes


def _divide_cells(sets: CellSets, rows: Iterable[Row]) -> None:
    """Choose the size of a cell by all accesses of the log."""
    seen: set[tuple[int, int]] = set()
    for row in rows:
        if isinstance(row, Access):
            key = (id(row.addresses), row.size_bytes)
            if key not in seen:
                seen.add(key)
                sets.divide_by(row.addresses, row.size_bytes)
        elif isinstance(row, CopyIssued) and row.record.bytes:
            sets.divide_by(*copied_bytes(row))
