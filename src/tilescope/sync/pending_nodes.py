"""Which nodes of the graph of releases (release_graph.py) the threads of one cluster have acquired or observed, and not joined yet."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.release_graph import NO_NODE, Nodes, ReleaseGraph


class LaneNodes:
    """One node of each lane: the join of all that it was given. One that is negated is the lane's own, without its release."""

    def __init__(self, graph: ReleaseGraph, lane_count: int) -> None:
        self._graph = graph
        self.by_lane: Nodes = np.zeros(lane_count, np.int64)
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

    def join(self, lanes: LaneNumbers, nodes: Nodes) -> None:
        """Give a node to each of some lanes, beside those that it has."""
        is_new = (nodes != NO_NODE) & (nodes != self._last[lanes])
        if not is_new.any():
            return
        lanes, nodes = lanes[is_new], nodes[is_new]
        self._last[lanes] = nodes
        has_others = (self.by_lane[lanes] != NO_NODE) & (self.by_lane[lanes] != nodes)
        if has_others.any():
            nodes = nodes.copy()
            nodes[has_others] = self._graph.add_joins(np.stack([self.by_lane[lanes[has_others]], nodes[has_others]]))
        self.by_lane[lanes] = nodes
        self._may_have_any = True

    def put(self, lanes: LaneNumbers, nodes: Nodes) -> None:
        """Give each lane a node that includes those that it has."""
        self.by_lane[lanes] = nodes
        self._may_have_any = True

    def put_all(self, lanes: LaneNumbers, nodes: frozenset[int]) -> None:
        """Give some lanes the same nodes, instead of those that they have."""
        if not nodes:
            self.clear(lanes)
        elif len(nodes) == 1:
            self.put(lanes, np.array([*nodes]))
        else:
            self.put(lanes, self._graph.add_joins(np.array([[node] for node in sorted(nodes)])))

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

    def groups(self, lanes: LaneNumbers, rows: LaneNumbers) -> Iterator[tuple[LaneNumbers, Nodes, Nodes]]:
        """All lanes with the same row and nodes as some lane, with these nodes; lanes without any are left out."""
        if not (self.acquired.has_any(lanes) or self.executed.has_any(lanes)):
            return
        keys = np.stack([rows, self.acquired.by_lane, self.executed.by_lane])
        asked = keys[:, lanes]
        asked = asked[:, (asked[1:] != NO_NODE).any(axis=0)]
        for key in np.unique(asked, axis=1).T:
            yield np.flatnonzero((keys == key[:, None]).all(axis=0)), key[1:2], key[2:]

    def clear(self, lanes: LaneNumbers) -> None:
        """What some lanes had has been joined."""
        self.acquired.clear(lanes)
        self.executed.clear(lanes)
