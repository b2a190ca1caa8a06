"""Releases and acquires of threads through words in memory, and the fences that make relaxed accesses such."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilescope.sync.access import AccessSemantics
from tilescope.sync.address import Addresses
from tilescope.sync.bus import StaleValues
from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.detector.context import DetectorContext
from tilescope.sync.detector.releases import Release, SyncWords
from tilescope.sync.detector.stale_reads import StaleReads
from tilescope.sync.lane_clocks import VectorClock, join_clocks
from tilescope.sync.scope import GPU


class Fences:
    """What the threads of one cluster hand on and learn by words in memory."""

    def __init__(self, context: DetectorContext) -> None:
        self._context = context
        lanes = context.cluster.lane_count
        self.shared_flags = SyncWords("shared")
        # By reach: the epoch of each thread's last fence that reaches at least that far; 0: none.
        self.epochs: npt.NDArray[np.int32] = np.zeros((GPU + 1, lanes), np.int32)
        self._seen: dict[int, list[Release]] = {}  # what relaxed loads saw: learnt at the next fence of the lane
        self.stale = StaleReads(context)

    def synchronize_by_load(
        self, flags: SyncWords, meaning: AccessSemantics, lanes: LaneNumbers, addresses: Addresses, size_bytes: int
    ) -> StaleValues:
        """Strong loads of words: what is learnt from them, and which lanes are early and get the value before."""
        older: StaleValues = {}
        if not flags.left and not flags.before:
            return older
        for place, (lane, address) in enumerate(zip(lanes.tolist(), addresses.tolist(), strict=True)):
            lefts = flags.at(address)
            unseen = self.stale.come(flags, lane, address, size_bytes)
            if unseen is not None and unseen.value is not None:
                older[place] = unseen.value
                lefts = list(unseen.left.values())
            for left in lefts:
                self._see(lane, left, meaning)
        return older

    def synchronize_by_store(
        self, flags: SyncWords, meaning: AccessSemantics, lanes: LaneNumbers, addresses: Addresses
    ) -> None:
        """Strong stores and atomics: what is learnt from words, and what is left there."""
        if meaning.kind == "atomic":
            self.stale.change(flags, lanes, addresses)
        self.stale.write(flags, lanes, addresses)
        if meaning.kind != "atomic":
            self._release(flags, meaning, lanes, addresses)
            return
        is_handing_on = meaning.releases or bool(self.epochs[0, lanes].any())
        for turn in _turns(addresses) if is_handing_on else [np.arange(len(lanes))]:
            if flags.left:
                for lane, address in zip(lanes[turn].tolist(), addresses[turn].tolist(), strict=True):
                    for left in flags.at(address):
                        self._see(lane, left, meaning)
            self._release(flags, meaning, lanes[turn], addresses[turn])

    def _release(self, flags: SyncWords, meaning: AccessSemantics, lanes: LaneNumbers, addresses: Addresses) -> None:
        """Leave at words what a release hands on; without one, what the last fence of each lane covers."""
        if meaning.releases:
            self._leave(flags, lanes, addresses, None, meaning.scope)
            self._context.clocks.advance(lanes)
            return
        for reach in range(meaning.scope, -1, -1):
            is_fenced = self.epochs[reach, lanes] > 0
            if is_fenced.any():
                fenced = lanes[is_fenced]
                self._leave(flags, fenced, addresses[is_fenced], self.epochs[reach], reach)

    def _see(self, lane: int, left: Release, meaning: AccessSemantics) -> None:
        rank = int(self._context.cluster.block_of_lane[lane])
        if not left.reaches(self._context.number, rank, meaning.scope):
            return
        if meaning.acquires:
            self._context.clocks.acquire(np.array([lane]), left.clock)
            return
        if (
            meaning.kind == "atomic"
        ):  # it has counted others: what they did before is over, as the guide's last block relies on
            self._context.clocks.acquire(np.array([lane]), left.clock.only_executed())
        self._observe(lane, left)

    def _observe(self, lane: int, left: Release) -> None:
        seen = self._seen.setdefault(lane, [])
        if not any(held is left for held in seen):
            seen.append(left)

    def observed_by(self, lanes: LaneNumbers) -> list[Release]:
        """What relaxed loads of some lanes saw, and no fence has made known yet."""
        if not self._seen:
            return []
        seen = {id(left): left for lane in lanes.tolist() for left in self._seen.get(lane, ())}
        return list(seen.values())

    def share_observed(self, lanes: LaneNumbers, seen: list[Release]) -> None:
        """Lanes unordered others that saw something at a barrier: a fence of their own after it makes that known to them too.

        So the last block of a reduction reads what other blocks wrote: one thread counts, all fence after bar.sync.
        """
        if not seen:
            return
        merged: dict[tuple[int, int, int], Release] = {}
        for left in seen:
            key = (left.clock.cluster, left.rank, left.reach)
            held = merged.get(key)
            merged[key] = left if held is None else left._replace(clock=join_clocks(held.clock, left.clock))
        for lane in lanes.tolist():
            self._seen[lane] = list(merged.values())

    def covered(self, lanes: LaneNumbers, reach: int) -> VectorClock | None:
        """What a relaxed arrival of some lanes hands on: all that their last fence, of that reach, covers."""
        epochs = self.epochs[reach]
        fenced = lanes[epochs[lanes] > 0]
        if not len(fenced):
            return None
        return self._context.clocks.clock(fenced, epochs[fenced])

    def _leave(
        self,
        flags: SyncWords,
        lanes: LaneNumbers,
        addresses: Addresses,
        epochs: npt.NDArray[np.int32] | None,
        reach: int,
    ) -> None:
        """Leave at each word what its lanes know; of themselves only what they did up to some epochs."""
        ranks = self._context.cluster.block_of_lane[lanes]
        for address, rank in {*zip(addresses.tolist(), ranks.tolist(), strict=True)}:
            own = lanes[(addresses == address) & (ranks == rank)]
            clock = self._context.clocks.clock(own, None if epochs is None else epochs[own])
            flags.leave(address, Release(clock, reach, rank))

    def keep(self, lane: int, clock: VectorClock) -> None:
        """A relaxed wait saw the end of a phase: what it hands on is learnt at the next fence."""
        rank = int(self._context.cluster.block_of_lane[lane])
        self._observe(lane, Release(clock, GPU, rank))

    def fence(self, lanes: LaneNumbers, reach: int) -> None:
        """fence.acq_rel, fence.sc, membar."""
        clocks = self._context.clocks
        if self._seen:
            self._acquire_observed(lanes, reach)
        for nearer in range(reach + 1):
            self.epochs[nearer, lanes] = clocks.own[lanes]
        clocks.advance(lanes)

    def _acquire_observed(self, lanes: LaneNumbers, reach: int) -> None:
        """What relaxed loads of some lanes saw is learnt, by all at once who saw the same."""
        ranks = self._context.cluster.block_of_lane
        seen: dict[int, Release] = {}
        seen_by: dict[int, list[int]] = {}
        for lane in lanes.tolist():
            for left in self._seen.pop(lane, ()):
                if left.reaches(self._context.number, int(ranks[lane]), reach):
                    seen[id(left)] = left
                    seen_by.setdefault(id(left), []).append(lane)
        for key in reversed(seen):  # what was left later says more
            self._context.clocks.acquire(np.array(sorted(set(seen_by[key]))), seen[key].clock)


def _turns(addresses: Addresses) -> list[npt.NDArray[np.intp]]:
    """Lanes of one atomic that meet at a word come one after another: their places, turn by turn.

    >>> [turn.tolist() for turn in _turns(np.array([64, 68, 64, 64]))]
    [[0, 1], [2], [3]]
    """
    order = np.argsort(addresses, kind="stable")
    in_order = addresses[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = in_order[1:] != in_order[:-1]
    starts = np.flatnonzero(is_first)
    rank = np.empty(len(order), np.intp)
    rank[order] = np.arange(len(order)) - starts[np.cumsum(is_first) - 1]
    return [np.flatnonzero(rank == turn) for turn in range(int(rank.max()) + 1)]
