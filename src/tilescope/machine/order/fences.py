"""Releases and acquires of threads through words in memory, and the fences that make relaxed accesses such."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilescope.machine.address import Addresses
from tilescope.machine.order.flags import CARD, Flags, Left, Overwritten
from tilescope.machine.order.knowledge import Clock
from tilescope.machine.order.semantics import Meaning
from tilescope.machine.order.witness import Witness
from tilescope.machine.step import LaneNumbers

OlderValues = dict[int, bytes]
"""By the place of a lane in a load: what the word held before its last write, where the lane is early."""


class Fences:
    """What the threads of one cluster hand on and learn by words in memory."""

    def __init__(self, witness: Witness) -> None:
        self._witness = witness
        lanes = witness.cluster.lane_count
        self.shared_flags = Flags()
        # By reach: the epoch of each thread's last fence that reaches at least that far; 0: none.
        self.epochs: npt.NDArray[np.int32] = np.zeros((CARD + 1, lanes), np.int32)
        self._seen: dict[int, list[Left]] = {}  # what relaxed loads saw: learnt at the next fence of the lane
        self._has_loads = any(one is not None and one.is_flag_load for one in witness.launch.meanings)

    def poll(
        self, flags: Flags, meaning: Meaning, lanes: LaneNumbers, addresses: Addresses, size_bytes: int
    ) -> OlderValues:
        """Strong loads of words: what is learnt from them, and which lanes are early and get the value before."""
        older: OlderValues = {}
        if not flags.left and not flags.before:
            return older
        for place, (lane, address) in enumerate(zip(lanes.tolist(), addresses.tolist(), strict=True)):
            before = flags.before.get(address)
            if before is None or not self._is_early(lane, before, size_bytes):
                lefts = flags.at(address)
            else:
                assert before.value is not None
                older[place] = before.value
                before.seen_by.add((self._witness.number, lane))
                lefts = list(before.left.values())
            for left in lefts:
                self._see(lane, left, meaning)
        return older

    def _is_early(self, lane: int, before: Overwritten, size_bytes: int) -> bool:
        """Whether a load may come before the last write: nothing orders the two, and it has not come here since."""
        number = self._witness.number
        if before.value is None or len(before.value) != size_bytes or (number, lane) in before.seen_by:
            return False
        if before.cluster == number and lane in before.writers:
            return False
        has_heard = self._witness.knowledge.has_heard_of
        return not any(has_heard(lane, before.cluster, *writer) for writer in before.writers.items())

    def overwritten(self, flags: Flags, addresses: Addresses, held: npt.NDArray[np.generic]) -> None:
        """A store or an atomic changes memory: what words held before, if they are loaded as flags."""
        meaning = self._witness.launch.meanings[self._witness.cluster.pc]
        if not self._has_loads or meaning is None or not meaning.is_strong:
            return
        for address, value in zip(addresses.tolist(), held, strict=True):
            before = flags.before.get(address)
            if before is not None:
                before.value = value.tobytes()

    def pass_on(self, flags: Flags, meaning: Meaning, lanes: LaneNumbers, addresses: Addresses) -> None:
        """Strong stores and atomics: what is learnt from words, and what is left there."""
        if meaning.kind == "atomic" and flags.left:
            for lane, address in zip(lanes.tolist(), addresses.tolist(), strict=True):
                for left in flags.at(address):
                    self._see(lane, left, meaning)
        if self._has_loads:
            epochs = self._witness.knowledge.own[lanes].tolist()
            writers = zip(addresses.tolist(), lanes.tolist(), epochs, strict=True)
            flags.overwrite(self._witness.number, writers)
        if meaning.releases:
            self._leave(flags, lanes, addresses, None, meaning.reach)
            self._witness.knowledge.own[lanes] += 1
            return
        for reach in range(meaning.reach, -1, -1):
            is_fenced = self.epochs[reach, lanes] > 0
            if is_fenced.any():
                fenced = lanes[is_fenced]
                self._leave(flags, fenced, addresses[is_fenced], self.epochs[reach], reach)

    def _see(self, lane: int, left: Left, meaning: Meaning) -> None:
        rank = int(self._witness.cluster.block_of_lane[lane])
        if not left.is_seen_by(self._witness.number, rank, meaning.reach):
            return
        if meaning.acquires:
            self._witness.knowledge.acquire(np.array([lane]), left.clock)
        else:
            self._seen.setdefault(lane, []).append(left)

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
        self._seen.setdefault(lane, []).append(Left(clock, CARD, rank))

    def fence(self, lanes: LaneNumbers, reach: int) -> None:
        """fence.acq_rel, fence.sc, membar."""
        knowledge = self._witness.knowledge
        if self._seen:
            ranks = self._witness.cluster.block_of_lane
            for lane in lanes.tolist():
                for left in self._seen.pop(lane, ()):
                    if left.is_seen_by(self._witness.number, int(ranks[lane]), reach):
                        knowledge.acquire(np.array([lane]), left.clock)
        for nearer in range(reach + 1):
            self.epochs[nearer, lanes] = knowledge.own[lanes]
        knowledge.own[lanes] += 1
