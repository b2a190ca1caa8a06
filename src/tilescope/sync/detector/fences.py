"""Releases and acquires of threads through words in memory, and the fences that make relaxed accesses such."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilescope.sync.access import AccessSemantics
from tilescope.sync.address import Addresses
from tilescope.sync.bus import StaleValues
from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.detector.context import Witness
from tilescope.sync.detector.releases import Flags, Left
from tilescope.sync.detector.stale_reads import EarlyLoads
from tilescope.sync.lane_clocks import Clock, joined
from tilescope.sync.scope import GPU


class Fences:
    """What the threads of one cluster hand on and learn by words in memory."""

    def __init__(self, witness: Witness) -> None:
        self._witness = witness
        lanes = witness.cluster.lane_count
        self.shared_flags = Flags("shared")
        # By reach: the epoch of each thread's last fence that reaches at least that far; 0: none.
        self.epochs: npt.NDArray[np.int32] = np.zeros((GPU + 1, lanes), np.int32)
        self._seen: dict[int, list[Left]] = {}  # what relaxed loads saw: learnt at the next fence of the lane
        self.early = EarlyLoads(witness)

    def poll(
        self, flags: Flags, meaning: AccessSemantics, lanes: LaneNumbers, addresses: Addresses, size_bytes: int
    ) -> StaleValues:
        """Strong loads of words: what is learnt from them, and which lanes are early and get the value before."""
        older: StaleValues = {}
        if not flags.left and not flags.before:
            return older
        for place, (lane, address) in enumerate(zip(lanes.tolist(), addresses.tolist(), strict=True)):
            lefts = flags.at(address)
            unseen = self.early.come(flags, lane, address, size_bytes)
            if unseen is not None and unseen.value is not None:
                older[place] = unseen.value
                lefts = list(unseen.left.values())
            for left in lefts:
                self._see(lane, left, meaning)
        return older

    def pass_on(self, flags: Flags, meaning: AccessSemantics, lanes: LaneNumbers, addresses: Addresses) -> None:
        """Strong stores and atomics: what is learnt from words, and what is left there."""
        if meaning.kind == "atomic":
            self.early.change(flags, lanes, addresses)
        self.early.write(flags, lanes, addresses)
        if meaning.kind != "atomic":
            self._hand_on(flags, meaning, lanes, addresses)
            return
        is_handing_on = meaning.releases or bool(self.epochs[0, lanes].any())
        for turn in _turns(addresses) if is_handing_on else [np.arange(len(lanes))]:
            if flags.left:
                for lane, address in zip(lanes[turn].tolist(), addresses[turn].tolist(), strict=True):
                    for left in flags.at(address):
                        self._see(lane, left, meaning)
            self._hand_on(flags, meaning, lanes[turn], addresses[turn])

    def _hand_on(self, flags: Flags, meaning: AccessSemantics, lanes: LaneNumbers, addresses: Addresses) -> None:
        """Leave at words what a release hands on; without one, what the last fence of each lane covers."""
        if meaning.releases:
            self._leave(flags, lanes, addresses, None, meaning.scope)
            self._witness.knowledge.advance(lanes)
            return
        for reach in range(meaning.scope, -1, -1):
            is_fenced = self.epochs[reach, lanes] > 0
            if is_fenced.any():
                fenced = lanes[is_fenced]
                self._leave(flags, fenced, addresses[is_fenced], self.epochs[reach], reach)

    def _see(self, lane: int, left: Left, meaning: AccessSemantics) -> None:
        rank = int(self._witness.cluster.block_of_lane[lane])
        if not left.is_seen_by(self._witness.number, rank, meaning.scope):
            return
        if meaning.acquires:
            self._witness.knowledge.acquire(np.array([lane]), left.clock)
            return
        if (
            meaning.kind == "atomic"
        ):  # it has counted others: what they did before is over, as the guide's last block relies on
            self._witness.knowledge.acquire(np.array([lane]), left.clock.executed_part())
        self._keep_seen(lane, left)

    def _keep_seen(self, lane: int, left: Left) -> None:
        seen = self._seen.setdefault(lane, [])
        if not any(held is left for held in seen):
            seen.append(left)

    def seen_by(self, lanes: LaneNumbers) -> list[Left]:
        """What relaxed loads of some lanes saw, and no fence has made known yet."""
        if not self._seen:
            return []
        seen = {id(left): left for lane in lanes.tolist() for left in self._seen.get(lane, ())}
        return list(seen.values())

    def share_seen(self, lanes: LaneNumbers, seen: list[Left]) -> None:
        """Lanes met others that saw something at a barrier: a fence of their own after it makes that known to them too.

        So the last block of a reduction reads what other blocks wrote: one thread counts, all fence after bar.sync.
        """
        if not seen:
            return
        merged: dict[tuple[int, int, int], Left] = {}
        for left in seen:
            key = (left.clock.cluster, left.rank, left.reach)
            held = merged.get(key)
            merged[key] = left if held is None else left._replace(clock=joined(held.clock, left.clock))
        for lane in lanes.tolist():
            self._seen[lane] = list(merged.values())

    def covered(self, lanes: LaneNumbers, reach: int) -> Clock | None:
        """What a relaxed arrival of some lanes hands on: all that their last fence, of that reach, covers."""
        epochs = self.epochs[reach]
        fenced = lanes[epochs[lanes] > 0]
        if not len(fenced):
            return None
        return self._witness.knowledge.clock(fenced, epochs[fenced])

    def _leave(
        self,
        flags: Flags,
        lanes: LaneNumbers,
        addresses: Addresses,
        epochs: npt.NDArray[np.int32] | None,
        reach: int,
    ) -> None:
        """Leave at each word what its lanes know; of themselves only what they did up to some epochs."""
        ranks = self._witness.cluster.block_of_lane[lanes]
        for address, rank in {*zip(addresses.tolist(), ranks.tolist(), strict=True)}:
            own = lanes[(addresses == address) & (ranks == rank)]
            clock = self._witness.knowledge.clock(own, None if epochs is None else epochs[own])
            flags.leave(address, Left(clock, reach, rank))

    def keep(self, lane: int, clock: Clock) -> None:
        """A relaxed wait saw the end of a phase: what it hands on is learnt at the next fence."""
        rank = int(self._witness.cluster.block_of_lane[lane])
        self._keep_seen(lane, Left(clock, GPU, rank))

    def fence(self, lanes: LaneNumbers, reach: int) -> None:
        """fence.acq_rel, fence.sc, membar."""
        knowledge = self._witness.knowledge
        if self._seen:
            self._learn_seen(lanes, reach)
        for nearer in range(reach + 1):
            self.epochs[nearer, lanes] = knowledge.own[lanes]
        knowledge.advance(lanes)

    def _learn_seen(self, lanes: LaneNumbers, reach: int) -> None:
        """What relaxed loads of some lanes saw is learnt, by all at once who saw the same."""
        ranks = self._witness.cluster.block_of_lane
        seen: dict[int, Left] = {}
        seen_by: dict[int, list[int]] = {}
        for lane in lanes.tolist():
            for left in self._seen.pop(lane, ()):
                if left.is_seen_by(self._witness.number, int(ranks[lane]), reach):
                    seen[id(left)] = left
                    seen_by.setdefault(id(left), []).append(lane)
        for key in reversed(seen):  # what was left later says more
            self._witness.knowledge.acquire(np.array(sorted(set(seen_by[key]))), seen[key].clock)


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
