"""Watches the tiles that TMA, wgmma and tcgen05 share with threads, in kernels that have such instructions."""

from __future__ import annotations

from tilescope.machine.observers.costs import Costs
from tilescope.machine.observers.operand_reads import forget_bytes
from tilescope.machine.observers.shared_marks import WORD_BYTES, SharedMarks
from tilescope.machine.observers.thread_tiles import forget_stores
from tilescope.machine.program import Program
from tilescope.sync.bus import Handler
from tilescope.sync.cluster_shape import ClusterShape
from tilescope.sync.events import AsyncStoreIssued, Atomic, CopyCompleted, CopyRead, Load, OperandRead, Store


class TileUse:
    """Follows the tiles of one cluster, and judges whether writers and readers use the same swizzle."""

    def __init__(self, costs: Costs, cluster: ClusterShape, program: Program) -> None:
        self._operands = costs.operands
        self._tiles = costs.tiles
        self._marks = SharedMarks(cluster, program)

    def handlers(self) -> dict[type, Handler]:
        """Which method follows each event."""
        return {
            Load: self._load,
            Store: self._store,
            Atomic: self._atomic,
            CopyCompleted: self._complete_copy,
            CopyRead: self._read_copy,
            OperandRead: self._read_operand,
        }

    def _load(self, event: Load) -> None:
        if event.space == "shared" and self._marks.tile_marks is not None:
            self._tiles.note_load(self._marks.at(event.pc), event.lanes, event.places)

    def _store(self, event: Store) -> None:
        if event.space == "shared":
            self._tiles.note_store(self._marks.at(event.pc), event.lanes, event.places, event.size_bytes)

    def _atomic(self, event: Atomic) -> None:
        if event.space != "shared":
            return
        marks = self._marks.at(event.pc)
        if marks.tile_marks is not None:
            self._tiles.note_load(marks, event.lanes, event.places)
        if len(event.written_lanes):
            self._tiles.note_store(marks, event.written_lanes, event.written_places, event.written_bytes)

    def _complete_copy(self, event: CopyCompleted) -> None:
        """A load has written shared memory."""
        issue = event.issue
        if isinstance(issue, AsyncStoreIssued):
            return
        marks = self._marks
        record = issue.record
        if issue.tensor_copy is None:
            forget_bytes(marks, record.shared_address, event.size_bytes)
            forget_stores(marks, record.shared_address, event.size_bytes)
            return
        self._operands.note_copy(marks, issue.tensor_copy, record.map_number, issue.pc)
        box_bytes = issue.tensor_copy.tensor_map.smem_bytes
        forget_stores(marks, record.shared_address, max(event.size_bytes, box_bytes))

    def _read_copy(self, event: CopyRead) -> None:
        issue = event.issue
        if issue.tensor_copy is not None:
            self._tiles.judge_store(self._marks, issue.tensor_copy, issue.record.map_number, event.pc)

    def _read_operand(self, event: OperandRead) -> None:
        marks = self._marks.at(event.pc)
        self._operands.note_read(marks, event.shape, event.rank, event.word, event.first_element)
        if marks.store_marks is not None:
            words = event.bytes.cells(WORD_BYTES)
            assert not isinstance(words, slice)
            descriptor = event.shape.descriptor(event.word)
            self._tiles.judge_operand(marks, event.shape, event.rank, descriptor, words)
