"""A vector clock: the last epoch of each column that happens before whoever has the clock.

columns           threads | their cp.async | their bulk reads | their bulk writes | warpgroups (wgmma) | barriers …

HAPPENS_BEFORE    the last epoch of each column that happens before what the thread does now
ASYNC_SHARED      the same, made visible to the async proxy by a fence.proxy.async: in shared memory …
ASYNC_GLOBAL      … and in global memory
EXECUTED          the last epoch of each column that has completed, whether or not its writes are visible
SCOPED            HAPPENS_BEFORE by releases and acquires whose scopes include both threads; only where blocks of a cluster
                  arrive at each other's mbarriers
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.sync.cluster_shape import LaneNumbers

Vector = npt.NDArray[np.int32]
Vectors = npt.NDArray[
    np.int32
]  # (4 or 5, columns): HAPPENS_BEFORE, ASYNC_SHARED, ASYNC_GLOBAL, EXECUTED, perhaps SCOPED

HAPPENS_BEFORE, ASYNC_SHARED, ASYNC_GLOBAL, EXECUTED, SCOPED = range(5)


class Resolved(NamedTuple):
    """The part of a graph of releases (release_graph.py) that a clock includes already."""

    epochs: Vector  # by lane of the cluster: the last one of which all is known that the lane knew
    words: dict[int, int]  # by word: the last node of which all is known

    def join(self, other: Resolved) -> Resolved:
        """What either includes."""
        joined = Resolved(np.maximum(self.epochs, other.epochs), dict(self.words))
        joined.add_words(other.words)
        return joined

    def add_words(self, words: dict[int, int]) -> None:
        """Include the nodes of some words, in place."""
        self.words.update((word, node) for word, node in words.items() if node > self.words.get(word, 0))


class Pending(NamedTuple):
    """Nodes of a graph of releases that a clock includes, and whose own clocks nobody has asked for yet."""

    acquired: frozenset[int]
    executed: frozenset[int]  # only what was executed happens before
    resolved: Resolved | None

    def join(self, other: Pending) -> Pending:
        """What either includes."""
        resolved = self.resolved or other.resolved
        if self.resolved is not None and other.resolved is not None and self.resolved is not other.resolved:
            resolved = self.resolved.join(other.resolved)
        return Pending(self.acquired | other.acquired, self.executed | other.executed, resolved)


NOTHING_PENDING = Pending(frozenset(), frozenset(), None)


class WordRelease(NamedTuple):
    """A release at a word, by its node in the graph of releases: it includes those before it at the same word."""

    word: int
    node: int


class OtherClocks(dict[int, Vectors]):
    """Clocks by cluster. It never changes, so that many threads share one.

    All blocks that pass a barrier of the grid join the same clocks into the same: these keep the last result for the next block.
    """

    __slots__ = ("__weakref__", "_last_join", "end")

    def __init__(self, clocks: Mapping[int, Vectors] | None = None, end: WordRelease | None = None) -> None:
        super().__init__(clocks or {})
        self.end = end  # the release that includes them and nothing else; None: there is none, or it is not known
        # Into which they were joined, and the result; None: they themselves.
        self._last_join: tuple[weakref.ref[OtherClocks], OtherClocks | None] | None = None

    def join(self, later: OtherClocks) -> OtherClocks:
        """What either includes; the same object, if the later clocks include all.

        >>> first = OtherClocks({1: np.array([[3, 2]])})
        >>> both = first.with_clock(2, np.array([[1, 1]]))
        >>> first.join(both) is both, both.join(first) is both
        (True, True)
        """
        if self is later or not later:
            return self
        if not self:
            return later
        if self.end is not None and later.end is not None and self.end.word == later.end.word:
            return later if self.end.node <= later.end.node else self
        last = later._last_join
        if last is not None and last[0]() is self:
            return last[1] or later
        joined = self._find_join(later)
        later._last_join = (weakref.ref(self), None if joined is later else joined)
        return joined

    def _find_join(self, later: OtherClocks) -> OtherClocks:
        """Blocks that hand on a lock share the arrays of all blocks before them, so most are the same array."""
        joined = {**self, **later}
        has_all = len(joined) == len(later)  # whether `later` includes all
        adds_any = len(joined) > len(self)
        for cluster in self.keys() & later.keys():
            held, new = self[cluster], later[cluster]
            if held is not new:
                joined[cluster] = both = later_vectors(held, new)
                has_all = has_all and both is new
                adds_any = adds_any or both is not held
        if has_all:
            return later
        return OtherClocks(joined) if adds_any else self

    def with_clock(self, cluster: int, vectors: Vectors) -> OtherClocks:
        """The same, and the clock of one cluster; the same object if it has that already."""
        held = self.get(cluster)
        both = later_vectors(held, vectors)
        if both is held:
            return self
        return OtherClocks({**self, cluster: both})


NO_CLOCKS = OtherClocks()


class ThreadEpochs(NamedTuple):
    """Threads of one cluster, each in one of its epochs."""

    lanes: LaneNumbers
    epochs: Vector


class VectorClock(NamedTuple):
    """What a release publishes: the clock of its cluster, and the clocks of other clusters that it has acquired."""

    cluster: int
    vectors: Vectors
    others: OtherClocks
    pending: Pending = NOTHING_PENDING  # of a barrier

    @property
    def known(self) -> Vector:
        """What happens before, visible to the async proxy or not."""
        return np.asarray(self.vectors[HAPPENS_BEFORE])

    @property
    def over(self) -> Vector:
        """Completed accesses, visible or not: enough for writes after reads."""
        return np.asarray(np.maximum(self.vectors[HAPPENS_BEFORE], self.vectors[EXECUTED]))

    def only_executed(self, columns: Sequence[int] = ()) -> VectorClock:
        """A clock that orders only execution; memory only in some columns."""
        vectors = np.zeros_like(self.vectors)
        vectors[EXECUTED] = self.vectors[EXECUTED]
        present = [column for column in columns if column < vectors.shape[1]]
        for vector in (HAPPENS_BEFORE, *range(SCOPED, len(vectors))):
            vectors[vector, present] = self.vectors[vector, present]
        return VectorClock(self.cluster, vectors, NO_CLOCKS)

    def put(self, column: int, epoch: int) -> None:
        """A column happens before whoever acquires this clock, up to an epoch; barriers may share the last column."""
        for vector in (HAPPENS_BEFORE, *range(EXECUTED, len(self.vectors))):
            self.vectors[vector, column] = max(self.vectors[vector, column], epoch)

    def with_scoped(self, scoped: Vector | None) -> VectorClock:
        """The same clock, of which a scope lets only some part, or nothing, through."""
        vectors = self.vectors.copy()
        vectors[SCOPED] = 0
        if scoped is not None:
            vectors[SCOPED, : len(scoped)] = scoped
        return self._replace(vectors=vectors)


def join_clocks(one: VectorClock | None, other: VectorClock) -> VectorClock:
    """The join of two clocks of one cluster."""
    if one is None:
        return other
    vectors = later_vectors(one.vectors, other.vectors)
    return VectorClock(one.cluster, vectors, one.others.join(other.others), one.pending.join(other.pending))


@dataclass(frozen=True, slots=True, eq=False)
class Knowledge:
    """What threads with one row know, at one moment; without their own columns, and without columns of zeros."""

    vectors: Vectors
    columns: npt.NDArray[np.intp]
    others: OtherClocks
    lane_count: int

    @classmethod
    def of(cls, vectors: Vectors, others: OtherClocks, lane_count: int) -> Knowledge:
        """A copy of a row."""
        columns = np.flatnonzero(vectors.any(axis=0))
        return cls(vectors[:, columns], columns, others, lane_count)

    def spread(self) -> Vectors:
        """The vectors with all columns."""
        last = int(self.columns[-1]) + 1 if len(self.columns) else 0
        vectors = np.zeros((len(self.vectors), max(last, self.lane_count)), np.int32)
        vectors[:, self.columns] = self.vectors
        return vectors


def later_vectors(one: Vectors | None, other: Vectors) -> Vectors:
    """The element-wise maximum; columns that one lacks are those of the other.

    If it is equal to one of the arrays, it is that array, so that many clocks share one.

    >>> one, other = np.array([[3, 2]]), np.array([[1, 2]])
    >>> later_vectors(other, one) is one
    True
    """
    if one is None or one is other:
        return other
    longer, shorter = (one, other) if one.shape[1] > other.shape[1] else (other, one)
    columns = shorter.shape[1]
    part = longer[:, :columns]
    if (part >= shorter).all():
        return longer
    if columns == longer.shape[1]:
        return shorter if (shorter >= part).all() else np.maximum(part, shorter)
    return np.concatenate([np.maximum(part, shorter), longer[:, columns:]], axis=1)
