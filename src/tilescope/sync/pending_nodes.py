"""Which nodes of the graph of releases (release_graph.py) the threads of one cluster have acquired or observed, and not joined yet."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.release_graph import NO_NODE, Nodes, ReleaseGraph

NO_WORD = 0


class LaneNodes:
    """One node of each lane: the join of all that it was given. One that is negated is the lane's own, without its release.

    A release at a word includes those before it: lanes that poll a counter and all see its last value have one and the same node.
    """

    def __init__(self, graph: ReleaseGraph, lane_count: int) -> None:
        self._graph = graph
        self.by_lane: Nodes = np.zeros(lane_count, np.int64)
        self.words: Nodes = np.zeros(lane_count, np.int64)  # by lane: where all of it was released; NO_WORD: at several
        self._last: Nodes = np.zeros(lane_count, np.int64)  # given to each lane: a poll gives the same one again
        self._may_have_any = False

    def has_any(self, lanes: LaneNumbers) -> bool:
        """Whether some lane has a node."""
        return self._may_have_any and bool(self.by_lane[lanes].any())

    def distinct(self, lanes: LaneNumbers) -> frozenset[int]:
        """The nodes of some lanes, each once."""
        if not self._may_have_any:
            return frozenset()
        return frozenset(self.by_lane[lanes].tolist()) - {NO_NODE}

    def join(self, lanes: LaneNumbers, nodes: Nodes, words: Nodes) -> None:
        """Give a node to each of some lanes, released at some word, beside those that it has."""
        is_new = (nodes != NO_NODE) & (nodes != self._last[lanes])
        if not is_new.any():
            return
        lanes, nodes, words = lanes[is_new], nodes[is_new], words[is_new]
        self._last[lanes] = nodes
        held = self.by_lane[lanes]
        has_others = (held != NO_NODE) & (held != nodes) & ~self._are_included(lanes, nodes, words)
        if has_others.any():
            nodes, words = nodes.copy(), words.copy()
            nodes[has_others] = self._graph.add_joins(np.stack([held[has_others], nodes[has_others]]))
            words[has_others] = NO_WORD
        self.put(lanes, nodes, words)

    def _are_included(self, lanes: LaneNumbers, nodes: Nodes, words: Nodes) -> npt.NDArray[np.bool_]:
        """Whether nodes at some words include what lanes have."""
        return np.asarray((self.words[lanes] == words) & (words != NO_WORD) & (np.abs(self.by_lane[lanes]) <= nodes))

    def forget_included(self, lanes: LaneNumbers, nodes: Nodes, words: Nodes) -> None:
        """Clear what nodes at some words include."""
        if self._may_have_any:
            self.clear(lanes[self._are_included(lanes, nodes, words)])

    def put(self, lanes: LaneNumbers, nodes: Nodes, words: Nodes | int) -> None:
        """Give each lane a node that includes those that it has."""
        self.by_lane[lanes] = nodes
        self.words[lanes] = words
        self._may_have_any = True

    def put_all(self, lanes: LaneNumbers, nodes: frozenset[int]) -> None:
        """Give some lanes the same nodes, instead of those that they have."""
        if not nodes:
            self.clear(lanes)
        elif len(nodes) == 1:
            self.put(lanes, np.array([*nodes]), NO_WORD)
        else:
            self.put(lanes, self._graph.add_joins(np.array([[node] for node in sorted(nodes)])), NO_WORD)

    def groups(self, lanes: LaneNumbers, rows: LaneNumbers) -> Iterator[tuple[LaneNumbers, Nodes]]:
        """All lanes with the same row and node as some lane, with this node; lanes without any are left out."""
        if not self.has_any(lanes):
            return
        asking = lanes[self.by_lane[lanes] != NO_NODE]
        for row, node in {*zip(rows[asking].tolist(), self.by_lane[asking].tolist(), strict=True)}:
            yield np.flatnonzero((rows == row) & (self.by_lane == node)), np.array([node])

    def clear(self, lanes: LaneNumbers) -> None:
        """Some lanes have none."""
        if self._may_have_any:
            self.by_lane[lanes] = NO_NODE
            self._may_have_any = bool(self.by_lane.any())


class PendingNodes:
    """What the lanes of one cluster have acquired, and what they know to be executed."""

    def __init__(self, graph: ReleaseGraph, lane_count: int) -> None:
        self.graph = graph
        self.acquired = LaneNodes(graph, lane_count)
        self.executed = LaneNodes(graph, lane_count)

    def acquire(self, lanes: LaneNumbers, nodes: Nodes, words: Nodes) -> None:
        """Lanes acquire nodes at some words; what they know to be executed before these is included."""
        self.acquired.join(lanes, nodes, words)
        self.executed.forget_included(lanes, nodes, words)

    def newest(self, lanes: LaneNumbers) -> Nodes:
        """The newest node that each lane may have; 0: none."""
        return np.asarray(np.maximum(np.abs(self.acquired.by_lane[lanes]), np.abs(self.executed.by_lane[lanes])))
