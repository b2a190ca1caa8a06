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

from tilescope.sync.address import Addresses, places_of_each
from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.detector.context import DetectorContext
from tilescope.sync.detector.race import Side
from tilescope.sync.detector.releases import Overwritten, SyncWords
from tilescope.sync.release_graph import NO_NODE
from tilescope.sync.vector_clock import ThreadEpochs


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
        clocks = self._context.clocks
        graph = self._context.launch.releases
        next_node = NO_NODE + 1 if graph is None else graph.next_node
        for address, places in places_of_each(addresses):
            writers = lanes[places]
            flags.before[address] = Overwritten(
                dict(flags.releases.get(address, {})),
                flags.deferred.get(address, NO_NODE),
                self._context.number,
                self._context.pc,
                ThreadEpochs(writers, clocks.own[writers]),
                clocks.first_node_about(writers, next_node),
            )

    def keep_value(self, flags: SyncWords, addresses: Addresses, held: npt.NDArray[np.generic]) -> None:
        """A store or an atomic replaces these values."""
        if not self.are_possible:
            return
        for address, places in places_of_each(addresses):
            before = flags.before.get(address)
            if before is not None:
                before.value = held[places[-1]].tobytes()

    def note_polls(self, lanes: LaneNumbers, addresses: Addresses) -> None:
        """A strong load that a lane repeats at the same address polls."""
        pc = self._context.pc
        last = self._last_addresses.get(pc)
        if last is None:
            last = self._last_addresses[pc] = np.full(self._context.cluster.lane_count, -1, np.int64)
        elif (last[lanes] == addresses).any():
            self._context.launch.polling_pcs.add(pc)
        last[lanes] = addresses

    def find_unseen(
        self, flags: SyncWords, lanes: LaneNumbers, addresses: Addresses, size_bytes: int
    ) -> dict[int, Overwritten]:
        """Lanes load words: by place, the write that a lane does not see, if it reads a stale value."""
        context = self._context
        unseen: dict[int, Overwritten] = {}
        for address, places in places_of_each(addresses) if flags.before else ():
            before = flags.before.get(address)
            if before is None:
                continue
            seen = before.have_seen(context.number, context.cluster.lane_count)
            if context.pc in context.launch.late_pcs:
                seen[lanes[places]] = True
            elif before.value is not None and len(before.value) == size_bytes:
                unseen.update(dict.fromkeys(places[self._may_be_stale(lanes[places], before, seen)].tolist(), before))
        if self._once or unseen:
            self._note_loads(flags, lanes, addresses, unseen)
        return unseen

    def _may_be_stale(
        self, lanes: LaneNumbers, before: Overwritten, seen: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        """Whether loads may execute before the last write: the lane has not loaded since, and the write may not have completed.

        A strong load sees a write that happens-before it: the last block of a reduction, whose atomic counted all
        others, needs no additional fence to read their volatile words.
        """
        may_be_stale = ~seen[lanes]
        if may_be_stale.any():
            clocks = self._context.clocks
            asking = lanes if may_be_stale.all() else lanes[may_be_stale]
            has_completed = clocks.has_completed_for(asking, before.cluster, before.writers, before.first_node)
            may_be_stale[may_be_stale] = ~has_completed
        return may_be_stale

    def _note_loads(
        self, flags: SyncWords, lanes: LaneNumbers, addresses: Addresses, unseen: dict[int, Overwritten]
    ) -> None:
        """Note which lanes have read a stale value now, and which have loaded again."""
        context = self._context
        for place, (lane, address) in enumerate(zip(lanes.tolist(), addresses.tolist(), strict=True)):
            word = _Word(id(flags), address, lane)
            last_load = self._once.get(word)
            if last_load is not None and last_load.load_pc == context.pc:
                context.launch.polling_pcs.add(context.pc)
            before = unseen.get(place)
            if before is None:
                self._once.pop(word, None)
            else:
                before.have_seen(context.number, context.cluster.lane_count)[lane] = True
                self._once[word] = _StaleRead(flags, context.pc, before)

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
            before = Side(write.pc, "write", int(write.writers.lanes[0]))
            now = Side(stale_read.load_pc, "read", word.lane)
            context.report("stale read", before, now, stale_read.flags.space, word.address, **facts)
