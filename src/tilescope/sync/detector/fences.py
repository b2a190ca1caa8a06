"""Releases and acquires through words in memory, and the fences that turn relaxed accesses into them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.sync.access_semantics import AccessSemantics
from tilescope.sync.address import Addresses
from tilescope.sync.bus import StaleValues
from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.detector.context import DetectorContext
from tilescope.sync.detector.releases import Release, SyncWords
from tilescope.sync.memory_scope import GPU
from tilescope.sync.release_graph import NO_NODE, ReleaseGraph
from tilescope.sync.vector_clock import VectorClock

if TYPE_CHECKING:
    from tilescope.sync.detector.stale_reads import StaleReads


LEAST_DEFERRED_LANES = 8
_POLLED_WORDS = 8  # of one poll that are remembered


class _LaneWord(NamedTuple):
    """A word as one lane sees it."""

    flags: int  # id of the words' table: of shared or of global memory
    address: int
    lane: int


class Fences:
    """What the threads of one cluster release and acquire through words in memory."""

    def __init__(self, context: DetectorContext) -> None:
        self._context = context
        lanes = context.cluster.lane_count
        self.shared_flags = SyncWords("shared")
        # By scope: the epoch of each thread's last fence of at least that scope; 0: none.
        self.epochs: npt.NDArray[np.int32] = np.zeros((GPU + 1, lanes), np.int32)
        # By lane, then by id: releases that relaxed loads observed, acquired at the next fence of the lane.
        self._seen: dict[int, dict[int, Release]] = {}
        self._known: dict[_LaneWord, int] = {}  # all releases up to this number happen before the lane

    @cached_property
    def stale(self) -> StaleReads:
        """Loads that may return the value before the last write."""
        from tilescope.sync.detector.stale_reads import StaleReads

        return StaleReads(self._context)

    def end_block(self, rank: int) -> None:
        """The threads of a block have exited."""
        if "stale" in vars(self):
            self.stale.end(rank)

    def synchronize_by_load(
        self, flags: SyncWords, access: AccessSemantics, lanes: LaneNumbers, addresses: Addresses, size_bytes: int
    ) -> StaleValues:
        """Strong loads: acquire the releases at their words; lanes that may read a stale value get it."""
        stale_values: StaleValues = {}
        poll = self._context.poll_at(self._context.pc)
        if flags.space == "global" and not poll.has_passed and len(poll.words) < _POLLED_WORDS:
            poll.words.update(addresses[:_POLLED_WORDS].tolist())
        if not flags.releases and not flags.before:
            return stale_values
        for place, (lane, address) in enumerate(zip(lanes.tolist(), addresses.tolist(), strict=True)):
            releases = flags.at(address)
            unseen = self.stale.on_load(flags, lane, address, size_bytes)
            if unseen is not None and unseen.value is not None:
                stale_values[place] = unseen.value
                releases = list(reversed(unseen.releases.values()))
            elif address in flags.before:
                poll.has_passed = True
            self._observe_releases(_LaneWord(id(flags), address, lane), releases, access)
        return stale_values

    def synchronize_by_store(
        self, flags: SyncWords, access: AccessSemantics, lanes: LaneNumbers, addresses: Addresses
    ) -> None:
        """Strong stores and atomics: acquire the releases at their words (atomics), and release."""
        if access.kind == "atomic":
            self.stale.change(flags, lanes, addresses)
        self.stale.write(flags, lanes, addresses)
        if access.kind != "atomic":
            self._take_from_graph(flags, addresses)
            self._release(flags, access, lanes, addresses)
            return
        if self._may_defer(flags, access, addresses):
            self._defer(flags, lanes, addresses)
            return
        self._take_from_graph(flags, addresses)
        is_handing_on = access.releases or bool(self.epochs[0, lanes].any())
        for turn in _turns(addresses) if is_handing_on else [np.arange(len(lanes))]:
            if flags.releases:
                for lane, address in zip(lanes[turn].tolist(), addresses[turn].tolist(), strict=True):
                    self._observe_releases(_LaneWord(id(flags), address, lane), flags.at(address), access)
            self._release(flags, access, lanes[turn], addresses[turn])

    def _may_defer(self, flags: SyncWords, access: AccessSemantics, addresses: Addresses) -> bool:
        """Whether an atomic acquires and releases in many lanes, at words whose releases are all in the graph."""
        if not (access.acquires and access.releases) or len(addresses) < LEAST_DEFERRED_LANES:
            return False
        launch = self._context.launch
        if not launch.program.may_defer_releases or self._context.cluster.blocks > 1:
            return False
        if launch.releases is not None and launch.releases.is_full:
            return False
        return not flags.releases or flags.releases.keys().isdisjoint(addresses.tolist())

    def _defer(self, flags: SyncWords, lanes: LaneNumbers, addresses: Addresses) -> None:
        """Put the releases of an atomic into the graph; lanes at one word execute one after another."""
        launch = self._context.launch
        if launch.releases is None:
            launch.releases = ReleaseGraph()
        first = launch.releases.next_node
        order = np.argsort(addresses, kind="stable")
        is_repeated = addresses[order[1:]] == addresses[order[:-1]]
        begins = order[np.concatenate([[True], ~is_repeated])]
        ends = order[np.concatenate([~is_repeated, [True]])]
        at_words = np.zeros(len(lanes), np.int64)
        at_words[order[1:][is_repeated]] = first + order[:-1][is_repeated]
        at_words[begins] = [flags.deferred.get(address, NO_NODE) for address in addresses[begins].tolist()]
        self._context.clocks.defer(launch.releases, lanes, at_words)
        flags.deferred.update(zip(addresses[ends].tolist(), (first + ends).tolist(), strict=True))

    def _take_from_graph(self, flags: SyncWords, addresses: Addresses) -> None:
        """Words whose releases are in the graph get a release with the clock of the last one, which includes the others."""
        releases = self._context.launch.releases
        if releases is None or not flags.deferred:
            return
        for address in addresses.tolist():
            node = flags.deferred.pop(address, NO_NODE)
            if node != NO_NODE:
                flags.add(address, Release(releases.clock(node), GPU, 0))

    def _release(self, flags: SyncWords, access: AccessSemantics, lanes: LaneNumbers, addresses: Addresses) -> None:
        """Release at words; a relaxed access releases what the last fence of each lane covers."""
        if access.releases:
            self._record_release(flags, lanes, addresses, None, access.scope)
            self._context.clocks.advance(lanes)
            return
        for scope in range(access.scope, -1, -1):
            is_fenced = self.epochs[scope, lanes] > 0
            if is_fenced.any():
                fenced = lanes[is_fenced]
                self._record_release(flags, fenced, addresses[is_fenced], self.epochs[scope], scope)

    def _observe_releases(self, word: _LaneWord, releases: Sequence[Release], access: AccessSemantics) -> None:
        """A lane observes the releases at a word, the newest first, and skips those that it has acquired already."""
        if not access.acquires:
            self._keep_observed(word.lane, releases, access)
            return
        number = self._context.number
        rank = int(self._context.cluster.block_of_lane[word.lane])
        acquired = self._known.get(word, 0)
        are_all_known = True
        for release in releases:
            if release.number <= acquired:
                break  # an acquired release includes this one and those before it
            if release.reaches(number, rank, access.scope):
                self._context.clocks.acquire(np.array([word.lane]), release.clock)
                acquired = max(acquired, release.includes)
            else:
                are_all_known = False
        if releases and are_all_known:
            self._known[word] = max(acquired, releases[0].number)

    def _keep_observed(self, lane: int, releases: Sequence[Release], access: AccessSemantics) -> None:
        """A relaxed access observes releases, which the next fence of the lane acquires.

        An atomic has counted others: what they did before has completed, as threadFenceReduction relies on.
        """
        rank = int(self._context.cluster.block_of_lane[lane])
        for release in reversed(releases):
            if release.reaches(self._context.number, rank, access.scope):
                if access.kind == "atomic":
                    self._context.clocks.acquire(np.array([lane]), release.clock.only_executed())
                self._observe(lane, release)

    def _observe(self, lane: int, release: Release) -> None:
        self._seen.setdefault(lane, {}).setdefault(id(release), release)

    def observed_by(self, lanes: LaneNumbers) -> list[Release]:
        """Releases that relaxed loads of some lanes observed, and no fence has acquired yet."""
        if not self._seen:
            return []
        observed: dict[int, Release] = {}
        for lane in lanes.tolist():
            observed.update(self._seen.get(lane, {}))
        return list(observed.values())

    def share_observed(self, lanes: LaneNumbers, seen: list[Release]) -> None:
        """Lanes synchronized with others that observed releases: a fence of theirs acquires those too.

        So the last block of a reduction reads what other blocks wrote: one thread counts, all fence after bar.sync.
        """
        if not seen:
            return
        merged: dict[tuple[int, int, int], Release] = {}
        for release in seen:
            key = (release.clock.cluster, release.rank, release.scope)
            previous = merged.get(key)
            merged[key] = release if previous is None else release.join(previous)
        for lane in lanes.tolist():
            self._seen[lane] = {id(release): release for release in merged.values()}

    def fence_clock(self, lanes: LaneNumbers, scope: int) -> VectorClock | None:
        """What a relaxed arrival of some lanes releases: all that their last fence of that scope covers."""
        epochs = self.epochs[scope]
        fenced = lanes[epochs[lanes] > 0]
        if not len(fenced):
            return None
        return self._context.clocks.clock(fenced, epochs[fenced])

    def _record_release(
        self,
        flags: SyncWords,
        lanes: LaneNumbers,
        addresses: Addresses,
        epochs: npt.NDArray[np.int32] | None,
        scope: int,
    ) -> None:
        """Record at each word the clock of its lanes; of themselves only up to given epochs."""
        ranks = self._context.cluster.block_of_lane[lanes]
        for address, rank in {*zip(addresses.tolist(), ranks.tolist(), strict=True)}:
            word_lanes = lanes[(addresses == address) & (ranks == rank)]
            clock = self._context.clocks.clock(word_lanes, None if epochs is None else epochs[word_lanes])
            includes = max(self._known.get(_LaneWord(id(flags), address, lane), 0) for lane in word_lanes.tolist())
            flags.add(address, Release(clock, scope, rank, includes=includes))

    def keep(self, lane: int, clock: VectorClock) -> None:
        """A relaxed wait observed a completed phase, which the next fence acquires."""
        rank = int(self._context.cluster.block_of_lane[lane])
        self._observe(lane, Release(clock, GPU, rank))

    def fence(self, lanes: LaneNumbers, scope: int) -> None:
        """fence.acq_rel, fence.sc, membar."""
        clocks = self._context.clocks
        if self._seen:
            self._acquire_observed(lanes, scope)
        for nearer in range(scope + 1):
            self.epochs[nearer, lanes] = clocks.own[lanes]
        clocks.advance(lanes)

    def _acquire_observed(self, lanes: LaneNumbers, scope: int) -> None:
        """Acquire what relaxed loads of some lanes observed, once for all lanes that observed the same."""
        ranks = self._context.cluster.block_of_lane
        observed: dict[int, Release] = {}
        observing_lanes: dict[int, list[int]] = {}
        for lane in lanes.tolist():
            for release in self._seen.pop(lane, {}).values():
                if release.reaches(self._context.number, int(ranks[lane]), scope):
                    observed[id(release)] = release
                    observing_lanes.setdefault(id(release), []).append(lane)
        for key in reversed(observed):  # later releases include earlier ones
            self._context.clocks.acquire(np.array(sorted(set(observing_lanes[key]))), observed[key].clock)


def _turns(addresses: Addresses) -> list[npt.NDArray[np.intp]]:
    """Lanes of one atomic at the same word execute one after another: their indices, turn by turn.

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
