"""Operands that wgmma and tcgen05.mma read from shared memory, and whether they were written with the same swizzle.

Every 16 bytes of shared memory remember the tensor copy that wrote them last. A store by threads, or a bulk copy, makes them
forget it, since the swizzle of threads is not known here.

    cp.async.bulk.tensor through a map of swizzle 128B     0x400-0x43ff  ← copy 1
    wgmma, descriptor of swizzle 64B at 0x400              copy 1 wrote its first element, with another swizzle

Only the first element of an operand is checked: rows past the end of the tile may hold anything, if their results are not used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.machine.decoding.operand_shape import DESCRIPTOR_OF_INSTRUCTION, UNUSED_BITS, ReadShape
from tilescope.machine.observers.shared_marks import SharedMarks
from tilescope.mma.operand_descriptor import OperandDescriptor
from tilescope.swizzle import CHUNK_BYTES, SWIZZLE, Swizzle
from tilescope.sync.cluster_shape import BlockIndex
from tilescope.sync.shadow.lockstep_cells import OrderMattersError
from tilescope.tensor_map import Copy
from tilescope.tma.walk import placement, walk

MismatchCause = Literal["swizzle", "plain-rows", "base-offset"]
_UNMARKED = 0
_STARTS_KEPT = 256  # of one instruction
_REPEAT_BYTES = max(row.repeat_bytes for row in SWIZZLE.values())
_LOGICAL = np.arange(0, _REPEAT_BYTES, CHUNK_BYTES)


class ReadKey(NamedTuple):
    """Reads that differ only in their start."""

    pc: int
    shape: ReadShape
    word: int  # the descriptor, its start and what belongs to no field taken out

    def end(self, start: int) -> int:
        """The first byte after what is read from a start on; the swizzle's pattern does not move with the start."""
        in_pattern = start % _REPEAT_BYTES
        start_field = self.descriptor.form.word.field("start_address")
        addresses = self.shape.addresses(self.shape.descriptor(self.word | start_field.place(in_pattern)))
        return start - in_pattern + int(addresses.max()) + max(1, self.shape.element_bits // 8)

    @property
    def descriptor(self) -> OperandDescriptor:
        """The fields of the word, with start address 0."""
        return self.shape.descriptor(self.word)


@dataclass(slots=True)
class ReadTally:
    """How often an operand was read by one descriptor, from any start."""

    count: int = 0
    starts: set[int] = field(default_factory=set)


class TileCopy(NamedTuple):
    """A tensor copy as one that leaves marks: the instruction, the map and how it left its rows."""

    pc: int
    map_number: int
    swizzle: Swizzle
    row_bytes: int  # contiguous in shared memory, before the swizzle
    is_packed: bool  # whether its rows follow each other in global memory: atoms may have been laid out there before


class Mismatch(NamedTuple):
    """Operands of one instruction whose layout does not match their descriptor."""

    cause: MismatchCause
    read: ReadKey
    copy: TileCopy
    start: int  # of the first such operand
    block: BlockIndex

    @property
    def place(self) -> tuple[int, ...]:
        """Blocks in the order of the grid, then starts."""
        return (*self.block[::-1], self.start)


class _Asked(NamedTuple):
    instruction: str
    word: int
    mark: int


@dataclass(slots=True)
class OperandReads:
    """The operands that wgmma and tcgen05.mma read in a launch, and those stored with another swizzle."""

    reads: dict[ReadKey, ReadTally] = field(default_factory=dict)
    mismatches: dict[tuple[ReadKey, int], Mismatch] = field(default_factory=dict)
    _copies: list[TileCopy] = field(default_factory=list)  # mark n is that of _copies[n - 1]
    _marks: dict[TileCopy, int] = field(default_factory=dict)
    _causes: dict[_Asked, MismatchCause | None] = field(default_factory=dict)

    def note_copy(self, marks: SharedMarks, copy: Copy, map_number: int, pc: int) -> None:
        """A tensor copy has written its box."""
        tensor_map = copy.tensor_map
        walked = walk(copy)
        row_bytes = tensor_map.interleave.slice_bytes or tensor_map.inner_bytes
        is_packed = bool((np.diff(walked.starts) == walked.row_bytes).all())
        tile_copy = TileCopy(pc, map_number, tensor_map.swizzle, row_bytes, is_packed)
        mark = self._marks.get(tile_copy)
        if mark is None:
            self._copies.append(tile_copy)
            mark = self._marks[tile_copy] = len(self._copies)
        first = marks.shape.place(copy.smem_address)
        end = first + placement(tensor_map, walked.rows, copy.smem_address).footprint_bytes
        marks.make_tile_marks()[first // CHUNK_BYTES : -(-end // CHUNK_BYTES)] = mark

    def add_reads(self, other: OperandReads, blocks: int) -> None:
        """Add reads of as many blocks that all did the same."""
        for key, read in other.reads.items():
            tally = self.reads.setdefault(key, ReadTally())
            tally.count += read.count * blocks
            tally.starts |= read.starts
            if len(tally.starts) > _STARTS_KEPT:
                raise OrderMattersError("more starts of operands than are kept")

    def copy_marked(self, mark: int) -> TileCopy | None:
        """The copy that left a mark; None if no copy did."""
        return None if mark == _UNMARKED else self._copies[mark - 1]

    def note_read(self, marks: SharedMarks, shape: ReadShape, rank: int, word: int, first_element: int) -> None:
        """An operand is read from a block's shared memory; its first element is at that address."""
        start_field = DESCRIPTOR_OF_INSTRUCTION[shape.instruction].form.word.field("start_address")
        plain = word & ~(start_field.mask | UNUSED_BITS[shape.instruction])
        key = ReadKey(marks.pc, shape, plain)
        tally = self.reads.get(key)
        if tally is None:
            tally = self.reads[key] = ReadTally()
        tally.count += 1
        start = start_field.extract(word)
        if len(tally.starts) < _STARTS_KEPT:
            tally.starts.add(start)
        if marks.tile_marks is None:
            return
        mark = int(marks.tile_marks[(rank * marks.shape.shared_stride + first_element) // CHUNK_BYTES])
        if mark == _UNMARKED:
            return
        cause_key = _Asked(shape.instruction, plain, mark)
        if cause_key not in self._causes:
            self._causes[cause_key] = mismatch_cause(shape.descriptor(plain), self._copies[mark - 1])
        cause = self._causes[cause_key]
        if cause is None:
            return
        block = marks.shape.block_index(rank)
        mismatch = Mismatch(cause, key, self._copies[mark - 1], start, block)
        earliest = self.mismatches.setdefault((key, mark), mismatch)
        if mismatch.place < earliest.place:  # the first of the grid is reported, in any order of blocks
            self.mismatches[key, mark] = mismatch


def forget_tiles(marks: SharedMarks, places: npt.NDArray[np.int64], size_bytes: int) -> None:
    """Others than tensor copies wrote some bytes at these places of the cluster's shared memory."""
    if marks.tile_marks is not None:
        first = places // CHUNK_BYTES
        for chunk in range(-(-size_bytes // CHUNK_BYTES)):
            marks.tile_marks[first + chunk] = _UNMARKED


def forget_bytes(marks: SharedMarks, address: int, size_bytes: int) -> None:
    """A bulk copy wrote some bytes from a shared address on."""
    if marks.tile_marks is not None:
        first = marks.shape.place(address)
        marks.tile_marks[first // CHUNK_BYTES : -(-(first + size_bytes) // CHUNK_BYTES)] = _UNMARKED


def mismatch_cause(descriptor: OperandDescriptor, copy: TileCopy) -> MismatchCause | None:
    """Why a descriptor does not find the tile that a copy left; None where it does.

    TMA swizzles by the absolute address. Without a swizzle it leaves plain rows, and the tensor core reads core matrices, whose
    rows have 16 bytes.

    >>> from tilescope.mma.operand_descriptor import WgmmaDescriptor
    >>> right = WgmmaDescriptor(0, leading_bytes=16, stride_bytes=1024, swizzle="128B")
    >>> mismatch_cause(right, TileCopy(0, 0, SWIZZLE["128B"], 128, False)) is None
    True
    >>> mismatch_cause(right, TileCopy(0, 0, SWIZZLE["64B"], 64, False))
    'swizzle'
    """
    if descriptor.swizzle.name != copy.swizzle.name:
        return "swizzle"
    if copy.swizzle.bits == 0:
        return "plain-rows" if copy.row_bytes > CHUNK_BYTES else None
    is_alike = (descriptor.physical(_LOGICAL) == copy.swizzle.apply(_LOGICAL)).all()
    return None if is_alike else "base-offset"
