"""What atomics release and acquire, kept as a graph until somebody asks what it orders.

An atomic with acquire and release hands on a vector clock in every lane, through as many words. Few kernels ever ask for them: the
counts of a histogram order nothing. So each release is a node, and its clock is found when a thread needs it.

    node     the release of one lane at one word: the thread's epoch, its clock without what it acquired since the last
             question (`Knowledge`), and the two nodes before it: the last one at the word, the last one of the lane

    block 0, lane 5     node 7    word 0x40       before: —, —
    block 1, lane 9     node 135  word 0x40       before: 7, —
    block 1, lane 9     node 263  word 0x88       before: 70, 135

The clock of node 263 is the join of what its lane knew, and of nodes 70, 135 and 7. A question goes from the newest node to the oldest
one, and leaves out what the asking thread knows already.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.vector_clock import (
    EXECUTED,
    HAPPENS_BEFORE,
    Knowledge,
    Vector,
    VectorClock,
    Vectors,
    later_vectors,
)

Nodes = npt.NDArray[np.int64]
NO_NODE = 0
_MOST_BYTES = 1 << 28
_FIRST_ROUNDS = 64


class Round(NamedTuple):
    """The nodes that one atomic of one cluster adds, by lane."""

    cluster: int
    lanes: LaneNumbers
    epochs: Vector
    known: tuple[Knowledge, ...]
    known_by: LaneNumbers | None  # which of them, by lane; None: all know the same
    before: Nodes  # (2, lanes): at the word, of the lane


class ReleaseGraph:
    """The deferred releases of a launch."""

    def __init__(self) -> None:
        self._rounds: list[Round] = []
        self._firsts: Nodes = np.zeros(_FIRST_ROUNDS, np.int64)  # by round
        self._size_bytes = 0
        self._newest_known: tuple[Knowledge, ...] = ()
        self.next_node = NO_NODE + 1

    @property
    def is_full(self) -> bool:
        """Whether further releases must be joined at once: memory is limited."""
        return self._size_bytes > _MOST_BYTES

    def add(self, added: Round) -> None:
        """One atomic of some lanes; their nodes are numbered from `next_node` on."""
        if len(self._rounds) == len(self._firsts):
            self._firsts = np.concatenate([self._firsts, np.zeros_like(self._firsts)])
        self._firsts[len(self._rounds)] = self.next_node
        self._rounds.append(added)
        self.next_node += len(added.lanes)
        self._size_bytes += added.before.nbytes + added.epochs.nbytes
        if added.known != self._newest_known:
            self._newest_known = added.known
            self._size_bytes += sum(knowledge.vectors.nbytes for knowledge in added.known)

    def clock(self, node: int) -> VectorClock:
        """What a node released."""
        found = self._rounds[int(self._rounds_of(np.array([node]))[0])]
        vectors = np.zeros_like(found.known[0].vectors)
        others: dict[int, Vectors] = {}
        self.join(np.array([node]), found.cluster, vectors, others)
        return VectorClock(found.cluster, vectors, others)

    def _rounds_of(self, nodes: Nodes) -> Nodes:
        return np.searchsorted(self._firsts[: len(self._rounds)], nodes, side="right") - 1

    def join(self, nodes: Nodes, cluster: int, vectors: Vectors, others: dict[int, Vectors]) -> None:
        """Join the clocks of nodes into that of somebody of a cluster: `vectors` in place, `others` by cluster."""
        walk = _Walk(cluster, vectors, others)
        self._wait(walk, nodes)
        while walk.rounds:
            number = -heapq.heappop(walk.rounds)
            found = self._rounds[number]
            chosen = walk.take(number, found)
            if len(chosen):
                self._wait(walk, found.before[:, chosen].ravel())
        walk.join_epochs()

    def _wait(self, walk: _Walk, nodes: Nodes) -> None:
        """Let nodes wait for their turn, by round."""
        nodes = nodes[nodes != NO_NODE]
        if not len(nodes):
            return
        rounds = self._rounds_of(nodes)
        for number in np.unique(rounds).tolist():
            walk.wait(number, nodes[rounds == number] - self._firsts[number])


class _Walk:
    """A way through the graph from the newest nodes to the oldest."""

    def __init__(self, cluster: int, vectors: Vectors, others: dict[int, Vectors]) -> None:
        self.rounds: list[int] = []  # a heap of those that wait, negated: the newest comes first
        self._cluster = cluster
        self._vectors = vectors
        self._others = others
        self._waiting: dict[int, list[LaneNumbers]] = {}  # by round: indices of lanes
        self._visited: dict[int, npt.NDArray[np.bool_]] = {}
        self._epochs: dict[int, Vector] = {}  # by cluster and lane: of the nodes on the way
        self._joined: set[int] = set()  # ids of what was joined

    def wait(self, number: int, indices: LaneNumbers) -> None:
        """Let nodes of one round wait."""
        waiting = self._waiting.get(number)
        if waiting is None:
            heapq.heappush(self.rounds, -number)
            waiting = self._waiting[number] = []
        waiting.append(indices)

    def take(self, number: int, found: Round) -> LaneNumbers:
        """Join what the waiting nodes of a round add; their indices, without those that were known or visited."""
        visited = self._visited.get(number)
        if visited is None:
            visited = self._visited[number] = np.zeros(len(found.lanes), np.bool_)
        indices = np.unique(np.concatenate(self._waiting.pop(number)))
        indices = indices[~visited[indices]]
        visited[indices] = True
        clock = self._clock_of(found.cluster)
        if clock is not None:  # whoever knows an epoch knows what was released at its end
            indices = indices[clock[HAPPENS_BEFORE, found.lanes[indices]] < found.epochs[indices]]
        if not len(indices):
            return indices
        numbers = [0] if found.known_by is None else np.unique(found.known_by[indices]).tolist()
        for known_number in numbers:
            self._join(found.cluster, found.known[known_number])
        lanes = found.lanes[indices]
        epochs = self._epochs.get(found.cluster)
        if epochs is None:
            epochs = self._epochs[found.cluster] = np.zeros(found.known[0].lane_count, np.int32)
        epochs[lanes] = np.maximum(epochs[lanes], found.epochs[indices])
        return indices

    def _clock_of(self, cluster: int) -> Vectors | None:
        return self._vectors if cluster == self._cluster else self._others.get(cluster)

    def _join(self, cluster: int, known: Knowledge) -> None:
        if id(known) in self._joined:
            return
        self._joined.add(id(known))
        self._join_vectors(cluster, known.vectors)
        for other, vectors in known.others.items():
            self._join_vectors(other, vectors)

    def _join_vectors(self, cluster: int, vectors: Vectors) -> None:
        if cluster == self._cluster:
            part = self._vectors[:, : vectors.shape[1]]
            np.maximum(part, vectors, out=part)
        else:
            self._others[cluster] = later_vectors(self._others.get(cluster), vectors)

    def join_epochs(self) -> None:
        """Join the epochs of all nodes on the way, at its end: on the way they would hide what comes before them."""
        for cluster, epochs in self._epochs.items():
            vectors = np.zeros((EXECUTED + 1, len(epochs)), np.int32)
            vectors[[HAPPENS_BEFORE, EXECUTED]] = epochs
            self._join_vectors(cluster, vectors)
