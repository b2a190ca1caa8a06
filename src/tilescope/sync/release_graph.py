"""What atomics release and acquire, kept as a graph until somebody asks what it orders.

An atomic that releases hands on a vector clock in every lane, through as many words. Few kernels ever ask for them: the counts of
a histogram order nothing, and of all blocks that count in the last one asks. So each release is a node, and its clock is found when a
thread needs it.

    node     the release of one lane at one word: what its thread had read as a clock at that moment (`Knowledge`), the epoch
             that it released, and the nodes before it: at the word, and those that the lane had acquired

    block 0, lane 5     node 7    word 0x40       before: —, —
    block 1, lane 9     node 135  word 0x40       before: 7, —
    block 1, lane 9     node 263  word 0x88       before: 70, 135

The clock of node 263 is the join of what its lane knew, and of nodes 70, 135 and 7. A question goes from the newest node to the oldest
one, and leaves out what the asking thread has joined already. What a relaxed atomic observes orders only execution until
a fence: such nodes are a lane's `executed` ones. The negated number of a node stands for what its lane had acquired: all that happens
before the node but the lane's own accesses, which a later release after an earlier fence does not publish.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.vector_clock import (
    EXECUTED,
    HAPPENS_BEFORE,
    NO_CLOCKS,
    Knowledge,
    OtherClocks,
    Resolved,
    Vector,
    VectorClock,
    Vectors,
    WordRelease,
    later_vectors,
)

Nodes = npt.NDArray[np.int64]
NO_NODE = 0
_MOST_BYTES = 1 << 28
_FIRST_ROUNDS = 64
_LONG_WALK = 4  # rounds
_MOST_COMPLETE = 1 << 18  # clocks of other clusters in what long walks have found: most are shared arrays
_NOBODY = 0  # the number of no cluster
_WHOLE, _EXECUTED, _ACQUIRED = range(
    3
)  # what a walk takes of a node: all, what was executed, what its lane had acquired
Indices = npt.NDArray[np.intp]


class Releases(NamedTuple):
    """The nodes that one atomic of one cluster adds, by lane; those at one word follow each other in their order."""

    cluster: int
    lanes: LaneNumbers
    epochs: Vector  # when each lane released: who has joined what it knew at their end has joined this, too
    released: Vector  # the same, which it ends, or that of the lane's last fence
    known: tuple[Knowledge, ...]
    known_by: LaneNumbers | None  # which of them, by lane; None: all know the same
    starts: Indices  # the first index of the same word
    at_word: Nodes  # the node before at the word, if this atomic did not add it
    acquired: Nodes
    executed: Nodes
    words: Nodes
    acquires: bool  # whether the lanes have acquired what was released there before

    @property
    def size_bytes(self) -> int:
        """About what its arrays take."""
        return 8 * len(self.lanes) * (len(self) - 4)


class Joins(NamedTuple):
    """Nodes that are the join of others, and nothing else."""

    before: Nodes  # (2 or more, nodes)

    @property
    def size_bytes(self) -> int:
        """Of its array."""
        return self.before.nbytes


@dataclass(slots=True, eq=False)
class Asking:
    """Who asks, and what it knows: its arrays are changed in place, `others` is replaced."""

    cluster: int
    vectors: Vectors
    others: OtherClocks  # may include an older clock of this cluster, too: `vectors` includes it
    resolved: Resolved

    @classmethod
    def nobody(cls) -> Asking:
        """One who knows nothing: it gets all that happens before a node."""
        return cls(_NOBODY, np.zeros((0, 0), np.int32), NO_CLOCKS, Resolved(np.zeros(0, np.int32), {}))

    def join_own(self, vectors: Vectors) -> None:
        """Join another clock of the same cluster into `vectors`."""
        part = self.vectors[:, : vectors.shape[1]]
        np.maximum(part, vectors, out=part)


class _End(NamedTuple):
    """Where a walk begins: a node, of which only what has been executed may count."""

    node: int
    is_executed: bool


class _Complete(NamedTuple):
    """All that happens before a node, or has been executed, found once for all who ask."""

    others: OtherClocks  # the asking cluster included
    words: dict[int, int]


class ReleaseGraph:
    """The deferred releases of a launch."""

    def __init__(self) -> None:
        self._rounds: list[Releases | Joins] = []
        self._firsts: Nodes = np.zeros(_FIRST_ROUNDS, np.int64)  # by round
        self._size_bytes = 0
        self._newest_known: tuple[Knowledge, ...] = ()
        self._complete: dict[_End, _Complete] = {}  # the last ones
        self._clocks_complete = 0  # clocks of clusters that they hold
        self.next_node = NO_NODE + 1
        self.rounds_walked = 0  # by all who asked

    @property
    def is_full(self) -> bool:
        """Whether further releases must be joined at once: memory is limited."""
        return self._size_bytes > _MOST_BYTES

    def add_releases(self, added: Releases) -> None:
        """One atomic of some lanes; their nodes are numbered from `next_node` on."""
        self._add(added, len(added.lanes))
        if added.known != self._newest_known:
            self._newest_known = added.known
            self._size_bytes += sum(knowledge.vectors.nbytes for knowledge in added.known)

    def add_joins(self, before: Nodes) -> Nodes:
        """Nodes that join those of each column."""
        first = self.next_node
        self._add(Joins(before), before.shape[1])
        return np.arange(first, self.next_node)

    def _add(self, added: Releases | Joins, count: int) -> None:
        if len(self._rounds) == len(self._firsts):
            self._firsts = np.concatenate([self._firsts, np.zeros_like(self._firsts)])
        self._firsts[len(self._rounds)] = self.next_node
        self._rounds.append(added)
        self.next_node += count
        self._size_bytes += added.size_bytes

    def clock(self, node: int) -> VectorClock:
        """What a release has published, and all others at its word before it."""
        found = self._rounds[int(self._rounds_of(np.array([node]))[0])]
        assert isinstance(found, Releases)
        asking = Asking.nobody()
        self.join(asking, np.array([node]))
        others = dict(asking.others)
        vectors = others.pop(found.cluster)
        return VectorClock(found.cluster, vectors, OtherClocks(others))

    def _rounds_of(self, nodes: Nodes) -> Indices:
        return np.searchsorted(self._firsts[: len(self._rounds)], nodes, side="right") - 1

    def join(self, asking: Asking, nodes: Nodes, *, is_executed: bool = False) -> None:
        """Join the clocks of nodes into that of somebody, or only what has been executed."""
        walk = self._walk(asking, nodes, is_executed)
        if walk.newest is not None and (walk.visited > _LONG_WALK or (walk.has_found_complete and walk.visited)):
            complete = self._keep_complete(walk.newest)
            asking.others = asking.others.join(complete.others)  # the same object for all who ask

    def _walk(self, asking: Asking, nodes: Nodes, is_executed: bool) -> _Walk:
        walk = _Walk(asking, self._complete)
        self._wait(walk, nodes, is_executed)
        while walk.rounds:
            number = -heapq.heappop(walk.rounds)
            found = self._rounds[number]
            if isinstance(found, Joins):
                for only_executed in (False, True):
                    self._wait(walk, found.before[:, walk.take_joins(number, found, only_executed)], only_executed)
                continue
            taken = walk.take(number, found, int(self._firsts[number]))
            self._wait(walk, found.acquired[taken.unknown], is_executed=False)
            self._wait(walk, found.executed[taken.unknown], is_executed=True)
            for only_executed, indices in zip((False, True), taken.at_words, strict=True):
                self._wait(walk, found.at_word[found.starts[indices]], only_executed)
        walk.finish()
        self.rounds_walked += walk.visited
        return walk

    def _keep_complete(self, end: _End) -> _Complete:
        """Keep all that is known at the end of a walk: the next who asks goes no further."""
        asking = Asking.nobody()
        self._walk(asking, np.array([end.node]), end.is_executed)
        while self._complete and self._clocks_complete + len(asking.others) > _MOST_COMPLETE:
            oldest = self._complete.pop(next(iter(self._complete)))
            self._clocks_complete -= len(oldest.others)
        others = OtherClocks(asking.others, None if end.is_executed else self._at_word(end.node))
        self._complete[end] = complete = _Complete(others, asking.resolved.words)
        self._clocks_complete += len(others)
        return complete

    def _at_word(self, node: int) -> WordRelease:
        """A release and its word."""
        number = int(self._rounds_of(np.array([node]))[0])
        found = self._rounds[number]
        assert isinstance(found, Releases)
        return WordRelease(int(found.words[node - int(self._firsts[number])]), node)

    def _wait(self, walk: _Walk, nodes: Nodes, is_executed: bool) -> None:
        """Let nodes wait for their turn, by round."""
        nodes = nodes[nodes != NO_NODE]
        if not len(nodes):
            return
        is_acquired = nodes < 0
        if is_acquired.any():
            self._wait_by_round(walk, -nodes[is_acquired], _ACQUIRED)
            nodes = nodes[~is_acquired]
            if not len(nodes):
                return
        self._wait_by_round(walk, nodes, _EXECUTED if is_executed else _WHOLE)

    def _wait_by_round(self, walk: _Walk, nodes: Nodes, part: int) -> None:
        rounds = self._rounds_of(nodes)
        if len(nodes) == 1:
            walk.wait(int(rounds[0]), nodes - self._firsts[rounds], part)
            return
        for number in np.unique(rounds).tolist():
            walk.wait(number, nodes[rounds == number] - self._firsts[number], part)


class _Round:
    """How far a walk has come at the nodes of one round."""

    __slots__ = ("is_visited", "waiting")

    def __init__(self) -> None:
        self.waiting: tuple[list[Nodes], ...] = ([], [], [])  # by what is taken of them
        self.is_visited: list[npt.NDArray[np.bool_] | None] = [None, None, None]

    def take(self, part: int, count: int) -> Indices:
        """The indices that wait, each once in a walk."""
        waiting = self.waiting[part]
        if not waiting:
            return np.zeros(0, np.intp)
        visited = self.is_visited[part]
        if visited is None:
            visited = self.is_visited[part] = np.zeros(count, np.bool_)
        indices = waiting[0] if len(waiting) == 1 else np.concatenate(waiting)
        waiting.clear()
        if count > 1:
            indices = np.unique(indices)
        indices = indices[~visited[indices]]
        visited[indices] = True
        return indices


class _Taken(NamedTuple):
    """Releases of a round that a walk goes on from."""

    unknown: Indices  # of whose lanes something may not be known yet
    at_words: tuple[Indices, Indices]  # before which something at the word may not be: acquired, and executed


class _Walk:
    """A way through the graph from the newest nodes to the oldest.

    A thread can know an epoch of its own cluster without the releases that were acquired before it (`Asking.resolved`). So
    knowledge that would hide nodes is joined at the end.
    """

    def __init__(self, asking: Asking, complete: dict[_End, _Complete]) -> None:
        self.rounds: list[int] = []  # a heap of those that wait, negated: the newest comes first
        self.visited = 0  # rounds of releases
        self.has_found_complete = False  # something that was found before
        self.newest: _End | None = None  # the newest release, if there is one in its round
        self._asking = asking
        self._complete = complete
        self._found: dict[int, _Round] = {}
        self._epochs: dict[int, Vectors] = {}  # by cluster: what its releases published, by lane
        self._resolved = np.zeros_like(asking.resolved.epochs)
        self._words: dict[int, int] = {}
        self._known: dict[int, tuple[int, Knowledge]] = {}  # by id: with its cluster
        self._executed: dict[int, tuple[int, Knowledge]] = {}  # the same, of which only what was executed counts

    def wait(self, number: int, indices: Nodes, part: int) -> None:
        """Let nodes of one round wait."""
        found = self._found.get(number)
        if found is None:
            found = self._found[number] = _Round()
        if not any(found.waiting):
            heapq.heappush(self.rounds, -number)
        found.waiting[part].append(indices)

    def take_joins(self, number: int, found: Joins, is_executed: bool) -> Indices:
        """The joins of a round that wait."""
        return self._found[number].take(_EXECUTED if is_executed else _WHOLE, found.before.shape[1])

    def take(self, number: int, found: Releases, first: int) -> _Taken:
        """Note what the waiting releases of a round add, without what was known or visited."""
        self.visited += 1
        whole, executed, acquired = self._take_waiting(self._found[number], found, first)
        unknown = self._unknown(found, whole)
        self._note_whole(found, unknown)
        if len(acquired):
            self._note(found, acquired, self._known)
            unknown = np.union1d(unknown, acquired)
        only_executed = self._unknown(found, executed)
        self._note_executed(found, only_executed)
        if found.acquires:
            return _Taken(unknown, (unknown, only_executed))
        for word, node in zip(found.words[whole].tolist(), (first + whole).tolist(), strict=True):
            if node > self._words.get(word, NO_NODE):
                self._words[word] = node
        return _Taken(unknown, (whole, executed))

    def _take_waiting(self, waiting: _Round, found: Releases, first: int) -> tuple[Indices, Indices, Indices]:
        """The releases of a round that wait, and those before them at their words, by what is taken of them."""
        count = len(found.lanes)
        whole, executed = (
            self._without_complete(found, waiting.take(part, count), first, is_executed=part == _EXECUTED)
            for part in (_WHOLE, _EXECUTED)
        )
        if self.newest is None and len(whole) == 1:
            self.newest = _End(first + int(whole[0]), is_executed=False)
        elif self.newest is None and len(executed) == 1:
            self.newest = _End(first + int(executed[0]), is_executed=True)
        whole, executed = (_with_those_before(indices, found.starts) for indices in (whole, executed))
        acquired = waiting.take(_ACQUIRED, count)
        if len(acquired):
            whole = np.union1d(whole, _those_before(acquired, found.starts))
            acquired = self._unknown(found, np.setdiff1d(acquired, whole))
        whole, executed = (self._without_known_words(found, indices, first) for indices in (whole, executed))
        return whole, executed, acquired

    def _note_whole(self, found: Releases, indices: Indices) -> None:
        """Note all of some releases: what their lanes knew, and what they released."""
        if not len(indices):
            return
        self._note(found, indices, self._known)
        self._later_epochs(found, HAPPENS_BEFORE, indices, found.released)
        self._later_epochs(found, EXECUTED, indices, found.epochs)
        self._resolve(found, indices)

    def _note_executed(self, found: Releases, indices: Indices) -> None:
        """Note of some releases only that they were executed, and what their lanes knew to be."""
        if not len(indices):
            return
        self._note(found, indices, self._executed)
        self._later_epochs(found, EXECUTED, indices, found.epochs)

    def _resolve(self, found: Releases, indices: Indices) -> None:
        """Note that all of some releases becomes known; a lane whose epoch one does not end may release again in it."""
        if found.cluster == self._asking.cluster:
            lanes = found.lanes[indices]
            ends_epoch = found.released[indices] == found.epochs[indices]
            self._resolved[lanes] = np.maximum(self._resolved[lanes], found.epochs[indices] - ~ends_epoch)

    def _without_complete(self, found: Releases, indices: Indices, first: int, is_executed: bool) -> Indices:
        """Join what has been found before, and leave out where."""
        if not self._complete:
            return indices
        left = []
        for index in indices.tolist():
            complete = self._complete.get(_End(first + index, is_executed))
            if complete is None:
                left.append(index)
                continue
            self.has_found_complete = True
            this = np.array([index])
            if len(self._without_known_words(found, this, first)) or len(self._unknown(found, this)):
                self._join_complete(complete, is_executed)
        return np.array(left, np.intp)

    def _join_complete(self, complete: _Complete, is_executed: bool) -> None:
        asking = self._asking
        self._join_all(complete.others)
        if is_executed:
            return
        own = complete.others.get(asking.cluster)
        if own is not None:
            epochs = asking.resolved.epochs
            np.maximum(epochs, own[HAPPENS_BEFORE, : len(epochs)], out=epochs)
        asking.resolved.add_words(complete.words)

    def _without_known_words(self, found: Releases, indices: Indices, first: int) -> Indices:
        """Without those that are known, and all before them at their words."""
        words = self._asking.resolved.words
        if found.acquires or not words or not len(indices):
            return indices
        nodes = first + indices
        known = [words.get(word, NO_NODE) for word in found.words[indices].tolist()]
        return indices[nodes > np.array(known)]

    def _unknown(self, found: Releases, indices: Indices) -> Indices:
        """Those releases of whose lanes something may not be known yet."""
        if found.cluster == self._asking.cluster:
            resolved: Vector | None = self._asking.resolved.epochs
        else:
            vectors = self._asking.others.get(found.cluster)
            resolved = None if vectors is None else vectors[HAPPENS_BEFORE]
        if resolved is None or not len(indices):
            return indices
        return indices[resolved[found.lanes[indices]] < found.epochs[indices]]

    def _later_epochs(self, found: Releases, vector: int, indices: Indices, epochs: Vector) -> None:
        """Note epochs of the lanes of some releases: those that happen before, or those that were executed."""
        noted = self._epochs.get(found.cluster)
        if noted is None:
            noted = self._epochs[found.cluster] = np.zeros((EXECUTED + 1, found.known[0].lane_count), np.int32)
        lanes = found.lanes[indices]
        noted[vector, lanes] = np.maximum(noted[vector, lanes], epochs[indices])

    def _note(self, found: Releases, indices: Indices, known: dict[int, tuple[int, Knowledge]]) -> None:
        """Note what lanes knew; what they knew of other clusters hides nothing."""
        numbers = [0] if found.known_by is None else np.unique(found.known_by[indices]).tolist()
        for number in numbers:
            knowledge = found.known[number]
            if id(knowledge) in known:
                continue
            known[id(knowledge)] = (found.cluster, knowledge)
            if known is self._known:
                self._join_all(knowledge.others)

    def _join_all(self, others: OtherClocks) -> None:
        asking = self._asking
        joined = asking.others.join(others)
        if joined is asking.others:
            return
        asking.others = joined
        own = others.get(asking.cluster)
        if own is not None:
            asking.join_own(own)

    def finish(self) -> None:
        """Join what was noted on the way."""
        clocks = [(cluster, knowledge.spread()) for cluster, knowledge in self._known.values()]
        for cluster, knowledge in self._executed.values():
            vectors = knowledge.spread()
            vectors[:EXECUTED] = 0
            vectors[EXECUTED + 1 :] = 0
            clocks.append((cluster, vectors))
        clocks += self._epochs.items()
        asking = self._asking
        learned: dict[int, Vectors] = {}
        for cluster, vectors in clocks:
            if cluster == asking.cluster:
                asking.join_own(vectors)
            else:
                learned[cluster] = later_vectors(learned.get(cluster), vectors)
        asking.others = asking.others.join(OtherClocks(learned))
        epochs = self._asking.resolved.epochs
        np.maximum(epochs, self._resolved, out=epochs)
        self._asking.resolved.add_words(self._words)


def _with_those_before(indices: Indices, starts: Indices) -> Indices:
    """Nodes, and those before them at the same words.

    >>> _with_those_before(np.array([1, 4]), np.array([0, 0, 2, 3, 3])).tolist()
    [0, 1, 3, 4]
    """
    if len(starts) == 1 or not len(indices):
        return indices
    return _find_between(starts[indices], indices + 1, len(starts))


def _those_before(indices: Indices, starts: Indices) -> Indices:
    """The nodes before some others at the same words.

    >>> _those_before(np.array([1, 4]), np.array([0, 0, 2, 3, 3])).tolist()
    [0, 3]
    """
    return _find_between(starts[indices], indices, len(starts))


def _find_between(begins: Indices, ends: Indices, count: int) -> Indices:
    """The numbers below a count that lie in some range."""
    changes = np.zeros(count + 1, np.intp)
    np.add.at(changes, begins, 1)
    np.subtract.at(changes, ends, 1)
    return np.flatnonzero(np.cumsum(changes[:-1]))
