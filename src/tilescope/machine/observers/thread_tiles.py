"""Tiles that threads write for TMA or wgmma, or read from TMA: whether both sides use the same swizzle.

Only the addresses of threads show which swizzle they use (lane_pattern). Every 4 bytes of shared memory remember the store that
wrote them last, with the swizzles under which its lanes went straight:

    st.shared.v4 by 32 lanes      straight under 64B and 128B      0x400-0x5ff  ← store 7
    wgmma, descriptor of 32B      all that it reads was written under 64B or 128B, and not under 32B: a misfit

Where the lanes of each instruction fit several swizzles, the instructions that wrote a tile, in their order, are looked at together:
their numbers are bits that move the lanes too.

Bytes that others wrote, and lanes that go straight under no swizzle, are unknown. An operand or a box with such a part is not
judged.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arithmetic import ceil_div
from tilescope.machine.decoding.dataflow import made_of
from tilescope.machine.decoding.operand_shape import ReadShape
from tilescope.machine.observers.lane_pattern import (
    BIT_OF_MODE,
    NO_PATTERN,
    PATTERN_BYTES,
    LanePattern,
    lane_groups,
    lane_pattern,
    pattern_of_groups,
)
from tilescope.machine.observers.operand_reads import OperandReads, TileCopy, forget_tiles
from tilescope.machine.observers.shared_marks import WORD_BYTES, Marks, SharedMarks
from tilescope.mma.operand_descriptor import OperandDescriptor
from tilescope.swizzle import CHUNK_BYTES
from tilescope.sync.address import SHARED_OFFSET_MASK, SHARED_RANK_SHIFT
from tilescope.sync.cluster_shape import BlockIndex, LaneNumbers
from tilescope.tensor_map import Copy
from tilescope.tma.walk import walk

Places = npt.NDArray[np.int64]
MisfitKind = Literal[
    "operand",  # wgmma reads what threads wrote
    "store",  # TMA stores what threads wrote
    "load",  # threads read what TMA loaded
    "copy",  # TMA stores what TMA loaded
]
_UNKNOWN = 0
_CHANGED = -1  # a tile that TMA loaded, and threads changed in place
_GROUP_ROWS = 8  # of a core matrix
_PATTERNS_OF_AN_INSTRUCTION = 64  # more are addresses that depend on data: they are not looked at any more
_JOINT_STORES = 64  # the most instructions that are looked at together


class Access(NamedTuple):
    """A load or store of many lanes: the instruction, and how its lanes went."""

    pc: int
    pattern: LanePattern


class Misfit(NamedTuple):
    """A tile that one side lays out, or reads, under another swizzle than the other side."""

    kind: MisfitKind
    pc: int  # of the wgmma, of the tensor store, or of the threads' load
    said: str  # the swizzle of the descriptor or of the map
    pattern: LanePattern  # of all accesses together
    accesses: tuple[Access, ...]  # of threads, in the order of the program
    start: int
    block: BlockIndex
    operand: str = ""  # of wgmma
    copy: TileCopy | None = None  # TMA's part: the load, or the store if threads wrote
    is_packed: bool = False  # whether the rows of a box without a swizzle follow each other in global memory
    is_changed: bool = False  # whether threads changed in place what TMA loaded

    @property
    def place(self) -> tuple[int, ...]:
        """Blocks in the order of the grid, then starts."""
        return (*self.block[::-1], self.start)


class _MisfitKey(NamedTuple):
    kind: MisfitKind
    pc: int
    said: str
    operand: str
    pcs: tuple[int, ...]


class _ReadBox(NamedTuple):
    """Loads of one instruction from the tile of one tensor copy."""

    pc: int
    copy: TileCopy


class _LastRead(NamedTuple):
    """The last load of threads from a tile that TMA loaded."""

    marks: SharedMarks
    pc: int
    places: Places


@dataclass(slots=True)
class ThreadTiles:
    """The tiles of a launch that threads share with TMA and wgmma."""

    operands: OperandReads
    misfits: dict[_MisfitKey, Misfit] = field(default_factory=dict)
    written: dict[tuple[int, str], int] = field(default_factory=dict)  # modes under which threads wrote an operand
    _stores: list[Access] = field(default_factory=list)  # mark n is that of _stores[n - 1]
    _places: list[Places] = field(default_factory=list)  # where the lanes of each store last wrote, in their block
    _marks: dict[Access, int] = field(default_factory=dict)
    _patterns: dict[tuple[bytes, tuple[int, ...]], LanePattern] = field(default_factory=dict)
    _patterns_seen: Counter[int] = field(default_factory=Counter)  # by instruction
    _joint: dict[tuple[int, ...], LanePattern] = field(default_factory=dict)
    _loads: dict[_ReadBox, Misfit] = field(default_factory=dict)
    _last_read: _LastRead | None = None
    _in_place: set[int] = field(default_factory=set)  # loads of what is stored at the same place again
    _made_of: dict[int, frozenset[int]] = field(default_factory=dict)  # what registers hold of the value of a load

    def note_store(self, marks: SharedMarks, lanes: LaneNumbers, places: Places, size_bytes: int) -> None:
        """Threads wrote some bytes each, at these places of the cluster's shared memory."""
        if self._changes_in_place(marks, places):
            mark = _CHANGED
        else:
            forget_tiles(marks, places, size_bytes)
            mark = self._mark(marks, lanes, places)
        if marks.store_marks is None and mark == _UNKNOWN:
            return
        store_marks = marks.make_store_marks()
        first = places // WORD_BYTES
        for word in range(ceil_div(size_bytes, WORD_BYTES)):
            store_marks[first + word] = mark

    def note_load(self, marks: SharedMarks, lanes: LaneNumbers, places: Places) -> None:
        """Handle a load from shared memory: compare it with the tiles of tensor copies."""
        assert marks.tile_marks is not None
        copies = marks.tile_marks[places // CHUNK_BYTES]
        copy = self.operands.copy_marked(int(copies[0]))
        if copy is None or copy.swizzle.name not in BIT_OF_MODE or (copies != copies[0]).any():
            return
        self._last_read = _LastRead(marks, marks.pc, places)
        pattern = self._pattern(marks, lanes, places)
        if pattern is NO_PATTERN:
            return
        load = Access(marks.pc, pattern)
        box = _ReadBox(marks.pc, copy)
        misfit = self._loads.get(box)
        if misfit is None:
            rank, start = divmod(int(places[0]), marks.shape.shared_stride)
            block = marks.shape.block_index(rank)
            self._loads[box] = Misfit(
                "load",
                marks.pc,
                copy.swizzle.name,
                pattern,
                (load,),
                start,
                block,
                copy=copy,
                is_packed=copy.is_packed,
            )
        elif load not in misfit.accesses:
            self._loads[box] = misfit._replace(
                pattern=_both(misfit.pattern, pattern), accesses=(*misfit.accesses, load)
            )

    def _changes_in_place(self, marks: SharedMarks, places: Places) -> bool:
        """Whether threads update elements of TMA's tile in place: the layout of the tile is unchanged."""
        read = self._last_read
        if read is None or read.marks is not marks or not np.array_equal(read.places, places):
            return False
        if read.pc not in self._made_of:
            self._made_of[read.pc] = made_of(marks.program, marks.program.targets[read.pc])
        if self._made_of[read.pc].isdisjoint(marks.program.registers_named[marks.pc]):
            return False
        self._in_place.add(read.pc)
        return True

    def finish(self) -> None:
        """Judge the loads, now that all loads of every instruction have been seen."""
        for load in self._loads.values():
            if load.pc not in self._in_place:
                self._judge(load)
        self._loads.clear()

    def judge_operand(
        self, marks: SharedMarks, shape: ReadShape, rank: int, descriptor: OperandDescriptor, words: Places
    ) -> None:
        """An operand is read from a block's memory: all of its words, by their numbers in the cluster's shared memory."""
        if marks.store_marks is None or descriptor.base_offset or descriptor.swizzle.name not in BIT_OF_MODE:
            return
        stores = _marks_in(marks.store_marks[words])
        if not stores:
            return
        pattern = self._pattern_of(stores)
        if not pattern.is_clear:  # bytes between its rows belong to the same tile, and may give more information
            first = int(words[0])
            span = int(words[-1]) + 1 - first
            if shape.major == "K":  # 8 rows and the next 8 are a stride apart; the last 8 rows end as the others do
                span = max(span, shape.rows // _GROUP_ROWS * descriptor.stride_bytes // WORD_BYTES)
            around = _marks_in(marks.store_marks[first : first + span])
            pattern = _narrow(pattern, self._pattern_of(around)) if around else pattern
        read = (marks.pc, shape.operand)
        self.written[read] = self.written.get(read, pattern.straight) & pattern.straight
        self._judge(
            Misfit(
                "operand",
                marks.pc,
                descriptor.swizzle.name,
                pattern,
                self._stores_of(stores),
                descriptor.start_address,
                marks.shape.block_index(rank),
                operand=shape.operand,
            )
        )

    def judge_store(self, marks: SharedMarks, copy: Copy, map_number: int, pc: int) -> None:
        """A tensor copy stores its box, which threads wrote, or another tensor copy."""
        tensor_map = copy.tensor_map
        swizzle = tensor_map.swizzle
        if swizzle.name not in BIT_OF_MODE or tensor_map.interleave.slice_bytes:
            return
        if tensor_map.inner_bytes != tensor_map.pitch_bytes:  # gaps between rows have no owner
            return
        walked = walk(copy)
        rank = copy.smem_address >> SHARED_RANK_SHIFT
        start = copy.smem_address & SHARED_OFFSET_MASK
        first = rank * marks.shape.shared_stride + start
        end = first + walked.rows * walked.row_bytes
        block = marks.shape.block_index(rank)
        is_packed = bool((np.diff(walked.starts) == walked.row_bytes).all())
        if marks.store_marks is not None:
            numbers = _marks_in(marks.store_marks[first // WORD_BYTES : end // WORD_BYTES])
            if numbers:
                box = TileCopy(pc, map_number, swizzle, walked.row_bytes, is_packed)
                pattern = self._pattern_of(numbers)
                stores = self._stores_of(numbers)
                self._judge(
                    Misfit("store", pc, swizzle.name, pattern, stores, start, block, copy=box, is_packed=is_packed)
                )
        loaded = self._find_loaded_tile(marks, first, end)
        if loaded is not None:
            bits = BIT_OF_MODE.get(loaded.swizzle.name, 0)
            is_changed = False
            if marks.store_marks is not None:
                is_changed = bool((marks.store_marks[first // WORD_BYTES : end // WORD_BYTES] == _CHANGED).any())
            self._judge(
                Misfit(
                    "copy",
                    pc,
                    swizzle.name,
                    LanePattern(bits, bits),
                    (),
                    start,
                    block,
                    copy=loaded,
                    is_packed=loaded.is_packed if loaded.swizzle.bits == 0 else is_packed,
                    is_changed=is_changed,
                )
            )

    def _find_loaded_tile(self, marks: SharedMarks, first: int, end: int) -> TileCopy | None:
        """The one tensor copy that loaded all of these bytes."""
        if marks.tile_marks is None:
            return None
        copies = marks.tile_marks[first // CHUNK_BYTES : ceil_div(end, CHUNK_BYTES)]
        mark = int(copies[0])
        return self.operands.copy_marked(mark) if (copies == mark).all() else None

    def _judge(self, seen: Misfit) -> None:
        """Keep a misfit; of equal ones that of the first block of the grid, in any order of blocks."""
        mode_bit = BIT_OF_MODE.get(seen.said)
        fitting = seen.pattern.straight
        if mode_bit is None or not fitting or fitting & mode_bit:
            return
        pcs = tuple(access.pc for access in seen.accesses) if seen.copy is None else (seen.copy.pc,)
        key = _MisfitKey(seen.kind, seen.pc, seen.said, seen.operand, pcs)
        earliest = self.misfits.setdefault(key, seen)
        if seen.place < earliest.place:
            self.misfits[key] = seen

    def _mark(self, marks: SharedMarks, lanes: LaneNumbers, places: Places) -> int:
        pattern = self._pattern(marks, lanes, places)
        if not pattern.straight:
            return _UNKNOWN
        store = Access(marks.pc, pattern)
        mark = self._marks.get(store)
        if mark is None:
            self._stores.append(store)
            self._places.append(places)
            mark = self._marks[store] = len(self._stores)
        self._places[mark - 1] = places % marks.shape.shared_stride if marks.shape.blocks > 1 else places
        return mark

    def _pattern(self, marks: SharedMarks, lanes: LaneNumbers, places: Places) -> LanePattern:
        """How the lanes of an access go, looked up where lanes went the same way before."""
        if len(places) == 1:
            return NO_PATTERN
        groups = lane_groups(lanes, marks.shape.block_lanes)
        if not groups:
            return NO_PATTERN
        offsets = places % marks.shape.shared_stride if marks.shape.blocks > 1 else places
        offsets = offsets - (int(offsets[0]) & -PATTERN_BYTES)
        key = (offsets.tobytes(), groups)
        cached = self._patterns.get(key)
        if cached is not None:
            return cached
        self._patterns_seen[marks.pc] += 1
        if self._patterns_seen[marks.pc] > _PATTERNS_OF_AN_INSTRUCTION:
            return NO_PATTERN
        pattern = self._patterns[key] = pattern_of_groups(*key)
        return pattern

    def _stores_of(self, marks: tuple[int, ...]) -> tuple[Access, ...]:
        return tuple(sorted(self._stores[mark - 1] for mark in marks))

    def _pattern_of(self, marks: tuple[int, ...]) -> LanePattern:
        """The lane patterns of several stores: each store separately, and all of them together if that adds information."""
        stores = [self._stores[mark - 1] for mark in marks]
        pattern = stores[0].pattern
        for store in stores[1:]:
            pattern = _both(pattern, store.pattern)
        sizes = {(store.pattern.lanes, len(self._places[mark - 1])) for store, mark in zip(stores, marks, strict=True)}
        is_whole = len(marks) & (len(marks) - 1) == 0 and len(sizes) == 1
        if pattern.is_clear or len(marks) > _JOINT_STORES or not is_whole:
            return pattern
        return _narrow(pattern, self._joint_pattern(marks))

    def _joint_pattern(self, marks: tuple[int, ...]) -> LanePattern:
        """The pattern of stores one after another: the number of a store is another number of lanes."""
        ordered = sorted(marks, key=lambda mark: self._stores[mark - 1].pc)
        places = [self._places[mark - 1] for mark in ordered]
        base = min(int(store_places[0]) for store_places in places) & -PATTERN_BYTES
        key = (*ordered, *(int(store_places[0]) - base for store_places in places))
        pattern = self._joint.get(key)
        if pattern is None:
            lanes = self._stores[marks[0] - 1].pattern.lanes
            offsets = np.concatenate([store_places.reshape(-1, lanes) for store_places in places], axis=1)
            pattern = self._joint[key] = lane_pattern(offsets)
        return pattern


def forget_stores(marks: SharedMarks, address: int, size_bytes: int) -> None:
    """A copy wrote some bytes from a shared address on."""
    if marks.store_marks is not None:
        first = (address >> SHARED_RANK_SHIFT) * marks.shape.shared_stride + (address & SHARED_OFFSET_MASK)
        marks.store_marks[first // WORD_BYTES : -(-(first + size_bytes) // WORD_BYTES)] = _UNKNOWN


def _marks_in(marks: Marks) -> tuple[int, ...]:
    """The stores that left these marks; none where some bytes are unknown."""
    least = int(marks.min())
    if least <= _UNKNOWN:
        return ()
    if least == int(marks.max()):
        return (least,)
    return tuple(np.unique(marks).tolist())


def _narrow(known: LanePattern, wider: LanePattern) -> LanePattern:
    """What a look at more lanes leaves of a pattern; the pattern itself where that fits nothing."""
    straight = known.straight & wider.straight
    return LanePattern(straight, wider.additive, wider.lanes) if straight else known


def _both(one: LanePattern, other: LanePattern) -> LanePattern:
    return LanePattern(one.straight & other.straight, one.additive & other.additive, one.lanes)
