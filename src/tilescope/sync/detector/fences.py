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
from tilescope.sync.pending_nodes import LaneNodes
from tilescope.sync.release_graph import NO_NODE, Indices, Nodes, ReleaseGraph
from tilescope.sync.vector_clock import ThreadEpochs, VectorClock

if TYPE_CHECKING:
    from tilescope.sync.detector.stale_reads import StaleReads


_POLLED_WORDS = 8  # of one poll that are remembered
_ADDRESS_BITS = 50


class _LaneWord(NamedTuple):
    """A word as one lane sees it."""

    flags: int  # id of the words' table: of shared or of global memory
    address: int
    lane: int


class Observed(NamedTuple):
    """What relaxed accesses of some lanes observed, and no fence has acquired yet."""

    releases: list[Release]
    nodes: frozenset[int]  # of the graph of releases

    def join(self, other: Observed) -> Observed:
        """What either has."""
        return Observed(self.releases + other.releases, self.nodes | other.nodes)


NOTHING_OBSERVED = Observed([], frozenset())


class _Turns(NamedTuple):
    """The lanes of an atomic in the order of their words, and at each word in the order in which they execute."""

    order: Indices
    is_first: npt.NDArray[np.bool_]  # at its word
    starts: Indices  # by place in the order: that of the first lane at the same word

    @classmethod
    def of(cls, addresses: Addresses) -> _Turns:
        order = np.argsort(addresses, kind="stable")
        in_order = addresses[order]
        is_first = np.ones(len(order), np.bool_)
        is_first[1:] = in_order[1:] != in_order[:-1]
        places = np.flatnonzero(is_first)
        return cls(order, is_first, places[np.cumsum(is_first) - 1])


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
        self._seen_nodes: LaneNodes | None = None  # the same, of the graph of releases
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
        if not flags.releases and not flags.before and not flags.deferred:
            return stale_values
        unseen = self.stale.find_unseen(flags, lanes, addresses, size_bytes)
        for place, overwritten in unseen.items():
            assert overwritten.value is not None
            stale_values[place] = overwritten.value
        if not poll.has_passed:
            poll.has_passed = any(
                place not in unseen and address in flags.before for place, address in enumerate(addresses.tolist())
            )
        if flags.releases:
            for place, (lane, address) in enumerate(zip(lanes.tolist(), addresses.tolist(), strict=True)):
                old = unseen.get(place)
                releases = flags.at(address) if old is None else list(reversed(old.releases.values()))
                self._observe_releases(_LaneWord(id(flags), address, lane), releases, access)
        if flags.deferred or unseen:
            nodes = np.array([flags.deferred.get(address, NO_NODE) for address in addresses.tolist()], np.int64)
            for place, overwritten in unseen.items():
                nodes[place] = overwritten.node
            self._observe_nodes(lanes, nodes, self._word_numbers(flags, addresses), access)
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
        if self._may_defer(flags, addresses):
            self._defer(flags, access, lanes, addresses)
            return
        self._take_from_graph(flags, addresses)
        is_handing_on = access.releases or bool(self.epochs[0, lanes].any())
        for turn in _turns(addresses) if is_handing_on else [np.arange(len(lanes))]:
            if flags.releases:
                for lane, address in zip(lanes[turn].tolist(), addresses[turn].tolist(), strict=True):
                    self._observe_releases(_LaneWord(id(flags), address, lane), flags.at(address), access)
            self._release(flags, access, lanes[turn], addresses[turn])

    def _may_defer(self, flags: SyncWords, addresses: Addresses) -> bool:
        """Whether all releases at the words of an atomic are in the graph, and its own may be put there."""
        launch = self._context.launch
        if not launch.program.may_defer_releases or self._context.cluster.blocks > 1:
            return False
        if launch.releases is not None and launch.releases.is_full:
            return False
        return not flags.releases or flags.releases.keys().isdisjoint(addresses.tolist())

    def _defer(self, flags: SyncWords, access: AccessSemantics, lanes: LaneNumbers, addresses: Addresses) -> None:
        """Put the releases of an atomic into the graph; lanes at one word execute one after another.

        releases                      its lanes release what they know
        relaxed or acquires, fenced   … what they knew at their last fence
        acquires                      its lanes acquire what was released at their words
        relaxed or releases           … observe it: the next fence acquires
        """
        launch = self._context.launch
        if launch.releases is None:
            launch.releases = ReleaseGraph()
        clocks = self._context.clocks
        released = clocks.own[lanes] if access.releases else self.epochs[GPU, lanes]
        turns = _Turns.of(addresses)
        is_releasing = released[turns.order] > 0
        before = self._nodes_before(flags, turns, is_releasing, addresses, launch.releases.next_node)
        words = self._word_numbers(flags, addresses)[turns.order]
        if not is_releasing.any():
            self._observe_nodes(lanes[turns.order], before, words, access)
            return
        clocks.use_graph(launch.releases)
        releasing = turns.order[is_releasing]
        new_starts = np.searchsorted(np.flatnonzero(is_releasing), turns.starts[is_releasing])
        at_word = np.where(before >= launch.releases.next_node, NO_NODE, before)[is_releasing]
        clocks.add_releases(
            lanes[releasing],
            released[releasing],
            new_starts,
            at_word,
            words[is_releasing],
            acquires=access.acquires,
        )
        if not access.acquires:
            self._observe_nodes(lanes[turns.order], before, words, access)
        else:
            clocks.note_unshared(lanes[turns.order[before != NO_NODE]])
            if not is_releasing.all():
                others = ~is_releasing
                self._observe_nodes(lanes[turns.order[others]], before[others], words[others], access)
        if access.releases:
            clocks.advance(lanes)

    def _nodes_before(
        self,
        flags: SyncWords,
        turns: _Turns,
        is_releasing: npt.NDArray[np.bool_],
        addresses: Addresses,
        first_node: int,
    ) -> Nodes:
        """By turn: the last release at each lane's word. Lanes of this atomic release nodes from a first one on."""
        firsts = addresses[turns.order[turns.is_first]].tolist()
        at_words = np.array([flags.deferred.get(address, NO_NODE) for address in firsts], np.int64)
        before: Nodes = at_words[np.cumsum(turns.is_first) - 1]
        if not is_releasing.any():
            return before
        released = np.concatenate([[0], np.cumsum(is_releasing)])  # by turn: how many lanes released before it
        has_earlier = released[:-1] > released[turns.starts]
        before[has_earlier] = first_node + released[:-1][has_earlier] - 1
        last_turns = np.append(np.flatnonzero(turns.is_first)[1:], len(addresses)) - 1
        for address, start, end in zip(
            firsts, released[turns.starts[last_turns]].tolist(), released[last_turns + 1].tolist(), strict=True
        ):
            if end > start:
                flags.deferred[address] = first_node + end - 1
        return before

    def _word_numbers(self, flags: SyncWords, addresses: Addresses) -> Nodes:
        """Numbers of words in the launch."""
        number = 0 if flags.space == "global" else self._context.number
        words: Nodes = addresses.astype(np.int64) + (number << _ADDRESS_BITS)
        return words

    def _observe_nodes(self, lanes: LaneNumbers, nodes: Nodes, words: Nodes, access: AccessSemantics) -> None:
        """Lanes observe releases of the graph at some words."""
        if not nodes.any():
            return
        graph = self._context.launch.releases
        assert graph is not None
        clocks = self._context.clocks
        pending = clocks.use_graph(graph)
        if access.acquires:
            pending.acquire(lanes, nodes, words)
            clocks.note_unshared(lanes[nodes != NO_NODE])
            return
        if access.kind == "atomic":
            pending.executed.join(lanes, nodes, words)
            clocks.note_unshared(lanes[nodes != NO_NODE])
        if self._seen_nodes is None:
            self._seen_nodes = LaneNodes(graph, clocks.lane_count)
        self._seen_nodes.join(lanes, nodes, words)

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
                if not self._is_known(word.lane, release):
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
            if release.reaches(self._context.number, rank, access.scope) and not self._is_known(lane, release):
                if access.kind == "atomic":
                    self._context.clocks.acquire(np.array([lane]), release.clock.only_executed())
                self._observe(lane, release)

    def _is_known(self, lane: int, release: Release) -> bool:
        """Whether a lane has joined the clock of a release of another cluster, as far as its threads' epochs show it."""
        return bool(release.threads) and self._context.clocks.has_joined(lane, release.clock.cluster, release.threads)

    def _observe(self, lane: int, release: Release) -> None:
        self._seen.setdefault(lane, {}).setdefault(id(release), release)

    def observed_by(self, lanes: LaneNumbers) -> Observed:
        """What relaxed accesses of some lanes observed, and no fence has acquired yet."""
        nodes = frozenset[int]() if self._seen_nodes is None else self._seen_nodes.distinct(lanes)
        if not self._seen:
            return Observed([], nodes) if nodes else NOTHING_OBSERVED
        observed: dict[int, Release] = {}
        for lane in lanes.tolist():
            observed.update(self._seen.get(lane, {}))
        return Observed(list(observed.values()), nodes)

    def share_observed(self, lanes: LaneNumbers, seen: Observed) -> None:
        """Lanes synchronized with others that observed releases: a fence of theirs acquires those too.

        So the last block of a reduction reads what other blocks wrote: one thread counts, all fence after bar.sync.
        """
        if seen.nodes and self._seen_nodes is not None:
            self._seen_nodes.put_all(lanes, seen.nodes)
        if not seen.releases:
            return
        merged: dict[tuple[int, int, int], Release] = {}
        for release in seen.releases:
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
            threads = (ThreadEpochs(word_lanes, self._context.clocks.own[word_lanes]),)
            flags.add(address, Release(clock, scope, rank, includes=includes, threads=threads))
        self._context.clocks.note_release(lanes)

    def keep(self, lane: int, clock: VectorClock) -> None:
        """A relaxed wait observed a completed phase, which the next fence acquires."""
        rank = int(self._context.cluster.block_of_lane[lane])
        self._observe(lane, Release(clock, GPU, rank))

    def fence(self, lanes: LaneNumbers, scope: int) -> None:
        """fence.acq_rel, fence.sc, membar."""
        clocks = self._context.clocks
        if self._seen:
            self._acquire_observed(lanes, scope)
        if self._seen_nodes is not None:
            self._acquire_nodes(self._seen_nodes, lanes)
        for nearer in range(scope + 1):
            self.epochs[nearer, lanes] = clocks.own[lanes]
        clocks.advance(lanes)

    def _acquire_nodes(self, seen: LaneNodes, lanes: LaneNumbers) -> None:
        """Acquire what relaxed accesses of some lanes observed in the graph, where all fences have the scope of the grid."""
        nodes = seen.by_lane[lanes]
        is_any = nodes != NO_NODE
        clocks = self._context.clocks
        if clocks.pending is not None and is_any.any():
            acquiring = lanes[is_any]
            clocks.pending.acquire(acquiring, nodes[is_any], seen.words[acquiring])
            clocks.note_unshared(acquiring)
            seen.clear(lanes)

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
            release = observed[key]
            unknowing = [lane for lane in sorted(set(observing_lanes[key])) if not self._is_known(lane, release)]
            if unknowing:
                self._context.clocks.acquire(np.array(unknowing), release.clock)


def _turns(addresses: Addresses) -> list[npt.NDArray[np.intp]]:
    """Lanes of one atomic at the same word execute one after another: their indices, turn by turn.

    >>> [turn.tolist() for turn in _turns(np.array([64, 68, 64, 64]))]
    [[0, 1], [2], [3]]
    """
    turns = _Turns.of(addresses)
    rank = np.empty(len(addresses), np.intp)
    rank[turns.order] = np.arange(len(addresses)) - turns.starts
    return [np.flatnonzero(rank == turn) for turn in range(int(rank.max()) + 1)]
