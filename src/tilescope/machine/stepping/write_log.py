"""Writes to memory in the order of steps: the contents and the writer of a byte after any step.

    record     step  instruction  starts of pieces        bytes of a piece   lanes
    0          17    40           0x400 0x404 0x408 …     4                  0 1 2 …
    1          90    55           0x800                   8192               0

Contents are the last snapshot before a step, and the records after it applied in order.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.sync.address import Addresses
from tilescope.sync.cluster_shape import LaneNumbers

Bytes = npt.NDArray[np.uint8]
RecordNumbers = npt.NDArray[np.int32]
NOBODY = -1
_RECORDS_OF_A_SNAPSHOT = 4096  # applied by a query at most


class WriteRecord(NamedTuple):
    """Who wrote a byte last."""

    step: int
    pc: int
    lane: int


class WrittenPiece(NamedTuple):
    """Bytes that one lane wrote at once."""

    start: int
    content: bytes
    step: int
    pc: int


class Contents(NamedTuple):
    """Memory after a step: its bytes, and for each byte the record that wrote it last, or NOBODY."""

    content: Bytes
    records: RecordNumbers


class WriteLog:
    """Writes to one memory. `start` is its contents at first; None: only the writers are recorded, not the bytes.

    Without snapshots `at` is not available, only the last writes to some places (`latest`).
    """

    def __init__(self, start: Bytes | None = None, *, has_snapshots: bool = True) -> None:
        self._steps = array("q")
        self._pcs = array("i")
        self._piece_bytes = array("i")
        self._first_pieces = array("q", [0])  # by record: its first piece; ends with the number of all pieces
        self._first_bytes = array("q", [0])  # by record: its first byte of content
        self._starts = bytearray()
        self._lanes = bytearray()
        self._content = bytearray()
        self._most_piece_bytes = 1
        self._snapshots: list[Contents] = []
        self._now = start
        self._has_snapshots = has_snapshots
        if start is not None and has_snapshots:
            self._snapshots.append(Contents(start.copy(), np.full(len(start), NOBODY, np.int32)))

    @property
    def size_bytes(self) -> int:
        """Memory that the log takes."""
        snapshots = sum(5 * len(snapshot.content) for snapshot in self._snapshots)
        return len(self._starts) + len(self._lanes) + len(self._content) + 32 * len(self._steps) + snapshots

    def add(self, step: int, pc: int, lanes: LaneNumbers, starts: Addresses, piece_bytes: int) -> None:
        """Record that lanes wrote pieces of equal size; memory holds them now. One lane may have written all pieces."""
        self._steps.append(step)
        self._pcs.append(pc)
        self._piece_bytes.append(piece_bytes)
        self._most_piece_bytes = max(self._most_piece_bytes, piece_bytes)
        self._starts += starts.astype(np.int64).tobytes()
        self._lanes += np.broadcast_to(lanes, starts.shape).astype(np.int32).tobytes()
        self._first_pieces.append(self._first_pieces[-1] + len(starts))
        if self._now is not None:
            self._content += self._now[_places(starts, piece_bytes)].tobytes()
            self._first_bytes.append(len(self._content))
            if self._has_snapshots and len(self._steps) % _RECORDS_OF_A_SNAPSHOT == 0:
                self._snapshots.append(self._apply(len(self._steps)))

    def at(self, step: int) -> Contents:
        """Contents after a step."""
        return self._apply(bisect_right(self._steps, step))

    def pcs(self) -> npt.NDArray[np.int32]:
        """The instruction of each record."""
        return np.array(self._pcs, np.int32)

    def find(self, place: int, step: int) -> WriteRecord | None:
        """The last writer of a byte up to a step; None if it was not written."""
        records = bisect_right(self._steps, step)
        pieces = self._first_pieces[records]
        starts = np.frombuffer(self._starts, np.int64, pieces) if pieces else np.zeros(0, np.int64)
        near = np.flatnonzero((starts <= place) & (starts > place - self._most_piece_bytes))
        for piece in near[::-1].tolist():
            record = bisect_right(self._first_pieces, piece) - 1
            if place < int(starts[piece]) + self._piece_bytes[record]:
                lane = int(np.frombuffer(self._lanes, np.int32)[piece])
                return WriteRecord(self._steps[record], self._pcs[record], lane)
        return None

    def latest(self, first: int, end: int, step: int) -> list[WrittenPiece]:
        """The pieces that start from `first` on and before `end`, as they were written last up to a step, in that order."""
        records = bisect_right(self._steps, step)
        pieces = self._first_pieces[records]
        starts = np.frombuffer(self._starts, np.int64, pieces) if pieces else np.zeros(0, np.int64)
        in_range = np.flatnonzero((starts >= first) & (starts < end))
        numbers = np.searchsorted(self._first_pieces, in_range, side="right") - 1
        sizes = np.array(self._piece_bytes, np.int64)[numbers]
        keys = starts[in_range] * (self._most_piece_bytes + 1) + sizes
        _, last = np.unique(keys[::-1], return_index=True)
        written = []
        for index in sorted((len(in_range) - 1 - last).tolist()):
            piece, record, piece_bytes = int(in_range[index]), int(numbers[index]), int(sizes[index])
            byte = self._first_bytes[record] + (piece - self._first_pieces[record]) * piece_bytes
            content = bytes(self._content[byte : byte + piece_bytes])
            written.append(WrittenPiece(int(starts[piece]), content, self._steps[record], self._pcs[record]))
        return written

    def _apply(self, records: int) -> Contents:
        """The contents after a number of records."""
        number = min(records // _RECORDS_OF_A_SNAPSHOT, len(self._snapshots) - 1)
        snapshot = self._snapshots[number]
        content, writers = snapshot.content.copy(), snapshot.records.copy()
        first = number * _RECORDS_OF_A_SNAPSHOT
        starts = np.frombuffer(self._starts[8 * self._first_pieces[first] : 8 * self._first_pieces[records]], np.int64)
        data = np.frombuffer(self._content[self._first_bytes[first] : self._first_bytes[records]], np.uint8)
        for record in range(first, records):
            piece_range = slice(*(self._first_pieces[end] - self._first_pieces[first] for end in (record, record + 1)))
            byte_range = slice(*(self._first_bytes[end] - self._first_bytes[first] for end in (record, record + 1)))
            piece_bytes = self._piece_bytes[record]
            places = _places(starts[piece_range], piece_bytes)
            content[places] = data[byte_range] if isinstance(places, slice) else data[byte_range].reshape(places.shape)
            writers[places] = record
        return Contents(content, writers)


def _places(starts: Addresses, piece_bytes: int) -> slice | Addresses:
    """The places of all bytes of pieces."""
    if len(starts) == 1:
        first = int(starts[0])
        return slice(first, first + piece_bytes)
    return np.asarray(starts[:, None] + np.arange(piece_bytes))
