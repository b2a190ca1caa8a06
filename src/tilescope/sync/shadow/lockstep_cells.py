"""Shadow memory of blocks that run in lockstep: who accessed a cell last, where only barriers order threads.

    writers     the thread that stored last                   readers     the thread that has loaded since; several: their block
    adders      the thread of the last atomic since           times       of each, counted in barriers

Threads have numbers in their launch, from 1 on. An access is ordered before another one of the same thread, or of its block (its
warp), if a barrier of the block (the warp) came between. Nothing orders blocks. Whatever is not ordered so raises OrderMattersError:
the blocks run one after another instead, and the detector judges.

Loads of a stretch that was never written are only listed: arrays that a kernel only reads cost little.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.footprint import CellNumbers

Numbers = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]
_SEVERAL_BLOCKS = np.int32(-(2**31))
_MOST_WAITING = 1 << 21  # loads of threads


class OrderMattersError(Exception):
    """The result of blocks may depend on their order, or something is to be reported: they run one after another."""


class BlocksDifferError(OrderMattersError):
    """Blocks that follow a leader are about to do different things; those with equal labels still do the same."""

    def __init__(self, where: str, labels: list[bytes]) -> None:
        super().__init__(f"blocks differ in {where}")
        self.labels = [(where, label) for label in labels]  # one of each block of the batch


class BatchTimes:
    """When the blocks and warps of a batch last met at a barrier; a block that is not judged is always in order."""

    def __init__(self, first_thread: int, block_lanes: int, blocks: int, *, is_judged: bool) -> None:
        self.first_thread = first_thread
        self.block_lanes = block_lanes
        self.now = 1
        start = 0 if is_judged else np.iinfo(np.int32).max
        self._of_block: Numbers = np.full(blocks, start, np.int32)
        self._of_warp: Numbers = np.zeros(blocks * block_lanes // WARP_LANES, np.int32)

    def meet_blocks(self, blocks: LaneNumbers) -> None:
        """All threads of some blocks have met."""
        self.now += 1
        self._of_block[blocks] = np.maximum(self._of_block[blocks], self.now)

    def meet_warps(self, lanes: LaneNumbers) -> None:
        """All threads of some warps have met."""
        warps, counts = np.unique(lanes // WARP_LANES, return_counts=True)
        if (counts < WARP_LANES).any():
            raise OrderMattersError("a part of a warp has arrived")
        self.now += 1
        self._of_warp[warps] = self.now

    def are_ordered(self, who: Numbers, times: Numbers, lanes: LaneNumbers) -> Flags:
        """Whether accesses of threads, or of several of one block (below 0), happen before what lanes do now."""
        threads = lanes + self.first_thread
        blocks = np.where(who > 0, (who - 1) // self.block_lanes, -1 - who)
        is_before = (blocks == threads // self.block_lanes) & (times < self._of_block[lanes // self.block_lanes])
        if not is_before.all():
            warps = lanes // WARP_LANES
            is_own_warp = (who > 0) & ((who - 1) // WARP_LANES == threads // WARP_LANES)
            is_before |= is_own_warp & (times < self._of_warp[warps])
        return np.asarray(is_before)


class Touch(NamedTuple):
    """Cells that lanes access, one after another, and the lane of each."""

    cells: CellNumbers
    lanes: LaneNumbers
    times: BatchTimes

    @property
    def threads(self) -> Numbers:
        """The number of the thread at each cell."""
        return (self.lanes + (self.times.first_thread + 1)).astype(np.int32)

    def at(self, chosen: Flags) -> Touch:
        """Some of the cells."""
        return Touch(self.cells[chosen], self.lanes[chosen], self.times)


@dataclass(slots=True)
class _Last:
    """The last access of one kind to each cell: by whom, when, and (of stores) at which instruction."""

    who: Numbers
    times: Numbers
    pcs: Numbers

    def require_ordered(self, touch: Touch, threads: Numbers) -> Numbers:
        """Refuse a cell whose last access is neither the thread's own nor ordered before it; whose they were."""
        who = self.who[touch.cells]
        is_others = (who != threads) & (who != 0)
        if is_others.any():
            cells = touch.cells[is_others]
            if not touch.times.are_ordered(who[is_others], self.times[cells], touch.lanes[is_others]).all():
                raise OrderMattersError("two threads access a cell, and no barrier orders them")
        return who

    def put(self, touch: Touch, threads: Numbers, pc: int) -> None:
        """Threads access cells; of several at one cell the last one stays."""
        self.who[touch.cells] = threads
        self.times[touch.cells] = touch.times.now
        self.pcs[touch.cells] = pc


def _no_access(count: int) -> _Last:
    return _Last(np.zeros(count, np.int32), np.zeros(count, np.int32), np.zeros(count, np.int32))


class LastThreads(NamedTuple):
    """Cells that threads wrote last: the threads, their instructions, and whether each was an atomic."""

    cells: CellNumbers
    threads: Numbers
    pcs: Numbers
    are_strong: Flags


class CellsTouched(NamedTuple):
    """What blocks have done to the cells of a stretch, for a process that has not seen them run."""

    reads: npt.NDArray[np.uint8]  # a bit for each cell
    writes: LastThreads


class _WaitingLoad(NamedTuple):
    """A load that waits until somebody writes the stretch."""

    touch: Touch
    time: int
    is_noncoherent: bool


class LockstepCells:
    """The cells of shared memory of a batch, or of a stretch of global memory."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._stores = _no_access(count)
        self._loads = _no_access(count)
        self._atomics: _Last | None = None  # since the last store
        self._has_noncoherent: Flags | None = None
        self._waiting: list[_WaitingLoad] = []
        self._lanes_waiting = 0
        self._is_written = False

    def seed(self, last: LastThreads, is_read: Flags) -> None:
        """Begin with the last writes of clusters that have ended, and the cells that they have read."""
        self._is_written = bool(len(last.cells))
        self._stores.who[last.cells] = np.where(last.are_strong, 0, last.threads)
        self._stores.pcs[last.cells] = last.pcs
        self._loads.who[is_read] = _SEVERAL_BLOCKS
        if last.are_strong.any():
            atomics = self._atomics = _no_access(self._count)
            atomics.who[last.cells] = np.where(last.are_strong, last.threads, 0)
            atomics.pcs[last.cells] = last.pcs

    def find_unwritten(self, touch: Touch) -> bool:
        """Whether some of the cells were never written."""
        is_unwritten = self._stores.who[touch.cells] == 0
        if self._atomics is not None and is_unwritten.any():
            is_unwritten &= self._atomics.who[touch.cells] == 0
        return bool(is_unwritten.any())

    def load(self, touch: Touch, *, is_noncoherent: bool = False) -> None:
        """Threads load cells."""
        if self._is_written:
            self._load(touch, touch.times.now, is_noncoherent=is_noncoherent)
            return
        self._waiting.append(_WaitingLoad(touch, touch.times.now, is_noncoherent))
        self._lanes_waiting += len(touch.cells)
        if self._lanes_waiting > _MOST_WAITING:
            self._put_waiting()

    def _put_waiting(self) -> None:
        for waiting in self._waiting:
            self._load(waiting.touch, waiting.time, is_noncoherent=waiting.is_noncoherent)
        self._waiting.clear()
        self._lanes_waiting = 0

    def _load(self, touch: Touch, time: int, *, is_noncoherent: bool) -> None:
        threads = touch.threads
        if self._is_written:
            who = self._stores.require_ordered(touch, threads)
            if is_noncoherent and who.any():
                raise OrderMattersError("a load through the read-only cache of what the kernel writes")
            if self._atomics is not None:
                self._atomics.require_ordered(touch, threads)
        if is_noncoherent:
            if self._has_noncoherent is None:
                self._has_noncoherent = np.zeros(self._count, np.bool_)
            self._has_noncoherent[touch.cells] = True
        self._keep_load(touch, threads, time)

    def _keep_load(self, touch: Touch, threads: Numbers, time: int) -> None:
        """Keep one reader, or that there are several that nothing orders."""
        loads = self._loads
        before = loads.who[touch.cells]
        readers = threads
        blocks = -1 - (threads - 1) // touch.times.block_lanes
        is_others = (before != threads) & (before != 0)
        if is_others.any():
            is_joined = is_others.copy()
            others = touch.at(is_others)
            is_joined[is_others] = ~touch.times.are_ordered(before[is_others], loads.times[others.cells], others.lanes)
            is_own_block = (before == blocks) | (-1 - (before - 1) // touch.times.block_lanes == blocks)
            several = np.where(is_own_block & (before != _SEVERAL_BLOCKS), blocks, _SEVERAL_BLOCKS)
            readers = np.where(is_joined, several, threads)
        loads.who[touch.cells] = readers
        loads.times[touch.cells] = time
        is_shared = loads.who[touch.cells] != readers  # with another lane of this instruction
        if is_shared.any():
            loads.who[touch.cells[is_shared]] = blocks[is_shared]
            now = loads.who[touch.cells]
            is_foreign = (now < 0) & (now != blocks)
            loads.who[touch.cells[is_foreign]] = _SEVERAL_BLOCKS
            loads.who[touch.cells[readers == _SEVERAL_BLOCKS]] = _SEVERAL_BLOCKS

    def store(self, touch: Touch, pc: int, *, has_equal_values: bool) -> None:
        """Threads store to cells; `has_equal_values`: those that share a cell store the same."""
        threads = touch.threads
        self._require_writable(touch, threads)
        self._stores.require_ordered(touch, threads)
        if self._atomics is not None:
            self._atomics.require_ordered(touch, threads)
            self._atomics.who[touch.cells] = 0
        self._stores.put(touch, threads, pc)
        writers = self._stores.who[touch.cells]
        if not has_equal_values or not np.array_equal(writers, threads):
            width = touch.times.block_lanes
            if not has_equal_values or ((writers - 1) // width != (threads - 1) // width).any():
                raise OrderMattersError("two lanes store to one cell")

    @property
    def is_written(self) -> bool:
        """Whether anybody has written a cell."""
        return self._is_written

    def copy(self, cells: CellNumbers, thread: int) -> None:
        """A bulk copy of a thread writes cells: no other thread has accessed them, and none may."""
        self._is_written = True
        self._put_waiting()
        if self._loads.who[cells].any() or self.is_any_written(cells):
            raise OrderMattersError("a copy writes what others access")
        self._stores.who[cells] = _SEVERAL_BLOCKS

    def is_any_written(self, cells: CellNumbers) -> bool:
        """Whether somebody has written one of the cells."""
        is_written = self._stores.who[cells].any()
        return bool(is_written or (self._atomics is not None and self._atomics.who[cells].any()))

    def change(self, touch: Touch, pc: int, *, in_any_order: bool = False) -> None:
        """Atomics of threads change cells, in the order of blocks if that matters: no later block has done so before."""
        threads = touch.threads
        self._require_writable(touch, threads)
        self._stores.require_ordered(touch, threads)
        if self._atomics is None:
            self._atomics = _no_access(self._count)
        if not in_any_order:
            width = touch.times.block_lanes
            before = self._atomics.who[touch.cells]
            if (before > 0).any() and ((before - 1) // width > (threads - 1) // width).any():
                raise OrderMattersError("an atomic of an earlier block comes later")
        self._atomics.put(touch, threads, pc)

    def _require_writable(self, touch: Touch, threads: Numbers) -> None:
        """Refuse cells that others have loaded without a barrier since."""
        self._is_written = True
        self._put_waiting()
        self._loads.require_ordered(touch, threads)
        self._loads.who[touch.cells] = 0
        if self._has_noncoherent is not None and self._has_noncoherent[touch.cells].any():
            raise OrderMattersError("a store to what a load through the read-only cache has read")

    def last_writes(self, first_thread: int) -> LastThreads:
        """The cells that threads from a number on wrote last."""
        who = self._stores.who
        pcs = self._stores.pcs
        is_strong = np.zeros(self._count, np.bool_)
        if self._atomics is not None:
            is_strong = self._atomics.who > 0
            who = np.where(is_strong, self._atomics.who, who)
            pcs = np.where(is_strong, self._atomics.pcs, pcs)
        cells = np.flatnonzero(who > first_thread)
        return LastThreads(cells, who[cells], pcs[cells], is_strong[cells])

    def list_touched(self, first_thread: int) -> CellsTouched:
        """What threads from a number on have written, and what was read of cells that no earlier thread has written.

        Had one of these threads read what an earlier one wrote, it would have been refused.
        """
        who = self._stores.who
        is_read = self._loads.who != 0
        for waiting in self._waiting:
            is_read[waiting.touch.cells] = True
        is_read &= (who == 0) | (who > first_thread)
        return CellsTouched(np.packbits(is_read), self.last_writes(first_thread))

    def join(self, touched: CellsTouched) -> None:
        """Add what other blocks did elsewhere at the same time: neither may access what the other has written."""
        read = np.flatnonzero(np.unpackbits(touched.reads, count=self._count))
        cells = touched.writes.cells
        if self.is_any_written(read) or self.is_any_written(cells):
            raise OrderMattersError("blocks of two processes access a cell that one of them writes")
        if len(cells):
            self._is_written = True
            self._put_waiting()
            if self._loads.who[cells].any():
                raise OrderMattersError("blocks of two processes access a cell that one of them writes")
            self._stores.who[cells] = touched.writes.threads
            self._stores.pcs[cells] = touched.writes.pcs
        self._loads.who[read] = _SEVERAL_BLOCKS
