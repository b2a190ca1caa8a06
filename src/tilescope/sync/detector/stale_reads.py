"""Stale reads: a strong load that nothing orders after the last write may return the value before it.

    block 0    st.release [flag], 1
    block 1    ld.acquire [flag]      0: it may execute earlier, whichever block this run executes first
               ld.acquire [flag]      1: the second load sees the write, as a polling loop does in the end

So a missing loop, or a mistake in one that this run would never repeat, is found. A thread that read a stale value and did not
load again went on with it; that is reported when its block ends, unless the instruction is one that polls: a decoupled look-back
loads a word again and again until it holds a sum, and goes on with whichever sum it is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.sync.address import Addresses
from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.detector.context import DetectorContext
from tilescope.sync.detector.race import Side
from tilescope.sync.detector.releases import Overwritten, SyncWords
from tilescope.sync.release_graph import NO_NODE


class _Word(NamedTuple):
    """A word as one lane sees it."""

    flags: int  # id of the words' table: of shared or of global memory
    address: int
    lane: int


class _StaleRead(NamedTuple):
    """A load that got a stale value, and the write that it did not see."""

    flags: SyncWords
    load_pc: int
    write: Overwritten


class StaleReads:
    """The stale reads of one cluster."""

    def __init__(self, context: DetectorContext) -> None:
        self._context = context
        self.are_possible = context.launch.program.has_flag_loads
        self._once: dict[_Word, _StaleRead] = {}  # lanes that read a stale value, and have not loaded again
        self._last_addresses: dict[int, Addresses] = {}  # by instruction: what each lane loaded last

    def write(self, flags: SyncWords, lanes: LaneNumbers, addresses: Addresses) -> None:
        """Strong stores or atomics begin: keep the releases at their words as they were before."""
        if not self.are_possible:
            return
        epochs = self._context.clocks.own[lanes].tolist()
        written: dict[int, Overwritten] = {}
        for address, lane, epoch in zip(addresses.tolist(), lanes.tolist(), epochs, strict=True):
            before = written.get(address)
            if before is None:
                releases = dict(flags.releases.get(address, {}))
                node = flags.deferred.get(address, NO_NODE)
                before = written[address] = Overwritten(releases, node, self._context.number, self._context.pc)
            before.writers[lane] = epoch
        flags.before.update(written)

    def keep_value(self, flags: SyncWords, addresses: Addresses, held: npt.NDArray[np.generic]) -> None:
        """A store or an atomic replaces these values."""
        if not self.are_possible:
            return
        for address, value in zip(addresses.tolist(), held, strict=True):
            before = flags.before.get(address)
            if before is not None:
                before.value = value.tobytes()

    def note_polls(self, lanes: LaneNumbers, addresses: Addresses) -> None:
        """A strong load that a lane repeats at the same address polls."""
        pc = self._context.pc
        last = self._last_addresses.get(pc)
        if last is None:
            last = self._last_addresses[pc] = np.full(self._context.cluster.lane_count, -1, np.int64)
        elif (last[lanes] == addresses).any():
            self._context.launch.polling_pcs.add(pc)
        last[lanes] = addresses

    def on_load(self, flags: SyncWords, lane: int, address: int, size_bytes: int) -> Overwritten | None:
        """A lane loads a word: the write that it does not see, if it reads a stale value."""
        word = _Word(id(flags), address, lane)
        before = flags.before.get(address)
        pc = self._context.pc
        last_load = self._once.get(word)
        if last_load is not None and last_load.load_pc == pc:
            self._context.launch.polling_pcs.add(pc)
        if before is not None and pc in self._context.launch.late_pcs:
            before.seen_by.add((self._context.number, lane))
        if before is None or not self._may_be_stale(lane, before, size_bytes):
            self._once.pop(word, None)
            return None
        before.seen_by.add((self._context.number, lane))
        self._once[word] = _StaleRead(flags, pc, before)
        return before

    def _may_be_stale(self, lane: int, before: Overwritten, size_bytes: int) -> bool:
        """Whether a load may execute before the last write: the lane has not loaded since, and the write may not have completed.

        A strong load sees a write that happens-before it: the last block of a reduction, whose atomic counted all
        others, needs no additional fence to read their volatile words.
        """
        number = self._context.number
        if before.value is None or len(before.value) != size_bytes or (number, lane) in before.seen_by:
            return False
        if before.cluster == number and lane in before.writers:
            return False
        is_over = self._context.clocks.has_completed_for
        return not any(is_over(lane, before.cluster, *writer) for writer in before.writers.items())

    def change(self, flags: SyncWords, lanes: LaneNumbers, addresses: Addresses) -> None:
        """Atomics see the last write."""
        if self._once:
            for lane, address in zip(lanes.tolist(), addresses.tolist(), strict=True):
                self._once.pop(_Word(id(flags), address, lane), None)

    def end(self, rank: int) -> None:
        """The threads of a block have exited: report those that went on with a stale value."""
        context = self._context
        for word, stale_read in list(self._once.items()):
            if context.cluster.block_of_lane[word.lane] != rank:
                continue
            del self._once[word]
            if stale_read.load_pc in context.launch.program.decisions:
                continue  # a thread that looks once may take either branch
            write = stale_read.write
            facts = {} if write.cluster == context.number else {"cluster": write.cluster}
            before = Side(write.pc, "write", next(iter(write.writers)))
            now = Side(stale_read.load_pc, "read", word.lane)
            context.report("stale read", before, now, stale_read.flags.space, word.address, **facts)
