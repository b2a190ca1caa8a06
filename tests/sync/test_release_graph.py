"""Releases of atomics in a graph: lanes that acquire the same ones share what they know, and others know no more than before."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilescope.sync import release_graph, vector_clock
from tilescope.sync.lane_clocks import LaneClocks
from tilescope.sync.release_graph import ReleaseGraph
from tilescope.sync.vector_clock import EXECUTED, HAPPENS_BEFORE, OtherClocks, ThreadEpochs, WordRelease

LANES = 4
EVERYONE = np.arange(LANES)
COUNTER, FLAG = 64, 128  # words


class Launch:
    """Clusters that count, and the last node of each word."""

    def __init__(self, clusters):
        self.graph = ReleaseGraph()
        self.last = {COUNTER: 0, FLAG: 0}
        self.clusters = [LaneClocks(number, LANES, 0) for number in range(1, clusters + 1)]
        for clocks in self.clusters:
            clocks.use_graph(self.graph)

    def count(self, clocks, lanes, word=COUNTER):
        """Lanes release at a word one after another, and see what was released there before; their nodes."""
        lanes = np.array(lanes)
        before = np.array([self.last[word], *range(self.graph.next_node, self.graph.next_node + len(lanes) - 1)])
        words = np.full(len(lanes), word)
        starts = np.zeros(len(lanes), np.intp)
        first = self.graph.next_node
        at_word = np.full(len(lanes), self.last[word])
        clocks.add_releases(lanes, clocks.own[lanes], starts, at_word, words, acquires=False)
        clocks.pending.executed.join(lanes, before, words)
        self.last[word] = self.graph.next_node - 1
        return list(range(first, self.graph.next_node))

    def acquire(self, clocks, lanes, nodes, word=COUNTER):
        """Lanes acquire nodes of a word, each its own."""
        clocks.pending.acquire(np.array(lanes), np.array(nodes), np.full(len(lanes), word))


def known(clocks, lane, cluster, vector=HAPPENS_BEFORE):
    """By lane of another cluster: the last epoch that a lane knows."""
    clocks.join_pending(np.array([lane]))
    vectors = clocks.others[clocks.row_of_lane[lane]].get(cluster)
    return [0] * LANES if vectors is None else vectors[vector, :LANES].tolist()


def test_lanes_that_count_and_see_the_same_last_count_share_one_walk_and_one_row():
    launch = Launch(2)
    here, there = launch.clusters
    launch.count(here, EVERYONE)
    *_, last = launch.count(there, EVERYONE)
    launch.acquire(there, EVERYONE, [last] * LANES)
    there.join_pending(EVERYONE)
    assert launch.graph.rounds_walked == 2  # the two counts
    assert len(set(there.row_of_lane)) == 1
    assert known(there, 3, 1) == [1] * LANES


def test_lanes_that_see_different_counts_know_different_things():
    launch = Launch(2)
    here, there = launch.clusters
    nodes = launch.count(here, EVERYONE)
    launch.acquire(there, EVERYONE, nodes)
    assert [known(there, lane, 1) for lane in EVERYONE] == [[1] * lane + [1] + [0] * (3 - lane) for lane in EVERYONE]


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_of_two_counts_that_a_lane_sees_the_later_one_counts(order):
    launch = Launch(2)
    here, there = launch.clusters
    nodes = launch.count(here, [0, 1])
    for place in order:
        launch.acquire(there, [2], [nodes[place]])
    assert (launch.graph.next_node == nodes[-1] + 1) is (order == [0, 1])  # the later one includes the other
    assert known(there, 2, 1) == [1, 1, 0, 0]


def test_what_was_executed_before_a_count_stays_known_after_an_acquire_of_another_word():
    launch = Launch(3)
    here, there, third = launch.clusters
    launch.count(here, [3])
    launch.count(third, [0])  # sees what was executed before it
    flag = launch.count(there, [1], FLAG)
    launch.acquire(third, [0], flag, FLAG)
    assert known(third, 0, 1, EXECUTED) == [0, 0, 0, 1]
    assert known(third, 0, 1) == [0] * LANES
    assert known(third, 0, 2) == [0, 1, 0, 0]


def test_what_was_executed_before_a_count_stays_known_after_an_acquire_of_an_earlier_one():
    launch = Launch(2)
    here, there = launch.clusters
    first, _ = launch.count(here, [2, 3])
    launch.count(there, [0])
    launch.acquire(there, [0], [first])
    assert known(there, 0, 1, EXECUTED) == [0, 0, 1, 1]
    assert known(there, 0, 1) == [0, 0, 1, 0]


def test_a_question_about_memory_leaves_alone_what_is_only_known_to_be_executed():
    launch = Launch(2)
    here, there = launch.clusters
    launch.count(here, [3])
    launch.count(there, [0])
    there.join_acquired(np.array([0]))
    assert launch.graph.rounds_walked == 0
    assert there.others[there.row_of_lane[0]] == {}


def test_a_node_that_is_older_than_an_access_includes_nothing_of_it():
    launch = Launch(2)
    here, there = launch.clusters
    lane = np.array([0])
    assert here.first_node_about(lane, launch.graph.next_node) == launch.graph.next_node
    launch.count(there, [1])  # older: node 1
    (node,) = launch.count(here, [0])
    launch.acquire(there, [2], [node])
    write = ThreadEpochs(lane, here.own[lane])  # in the epoch that the lane has released already
    first_node = here.first_node_about(lane, launch.graph.next_node)
    assert first_node == node
    assert there.has_completed_for(np.array([1, 2]), 1, write, first_node).tolist() == [False, True]
    here.advance(lane)
    assert here.first_node_about(lane, launch.graph.next_node) == launch.graph.next_node


def test_a_lane_whose_nodes_are_older_than_a_write_does_not_walk():
    launch = Launch(2)
    here, there = launch.clusters
    launch.count(here, [0])
    launch.count(there, [1])
    here.advance(np.array([0]))
    lane = np.array([0])
    write = ThreadEpochs(lane, here.own[lane])
    first_node = here.first_node_about(lane, launch.graph.next_node)
    assert there.has_completed_for(np.array([1]), 1, write, first_node).tolist() == [False]
    assert launch.graph.rounds_walked == 0


def test_an_epoch_that_a_clock_has_published_may_be_in_any_node():
    clocks = LaneClocks(1, LANES, 0)  # without a graph: the next node is not known
    lanes = np.array([0])
    clocks.clock(lanes)
    assert clocks.first_node_about(lanes, 7) == 0
    clocks.advance(lanes)
    assert clocks.first_node_about(lanes, 7) == 7


def test_blocks_share_what_they_know_after_barriers_of_the_grid():
    """All count, and acquire the last count; twice, so that they join it into what they knew before."""
    launch = Launch(2 * release_graph._LONG_WALK)
    for barriers in (1, 2):
        for clocks in launch.clusters:
            launch.count(clocks, [0])
        for clocks in launch.clusters:
            launch.acquire(clocks, [0], [launch.last[COUNTER]])
            clocks.join_pending(np.array([0]))
            clocks.advance(np.array([0]))
        rows = [clocks.others[clocks.row_of_lane[0]] for clocks in launch.clusters]
        assert all(row is rows[0] for row in rows)
        assert [row[HAPPENS_BEFORE, 0] for _, row in sorted(rows[0].items())] == [barriers] * len(rows)


def count_comparisons(clusters, monkeypatch):
    """How many clocks are compared by blocks that pass barriers of the grid; the first ones count in the next when others still wait."""
    compared = []
    later = vector_clock.later_vectors
    monkeypatch.setattr(vector_clock, "later_vectors", lambda *clocks: (compared.append(1), later(*clocks))[1])
    launch = Launch(clusters)
    for clocks in launch.clusters:
        launch.count(clocks, [0])
    for _ in range(3):
        for clocks in launch.clusters:
            launch.acquire(clocks, [0], [launch.last[COUNTER]])
            clocks.join_pending(np.array([0]))
            clocks.advance(np.array([0]))
            launch.count(clocks, [0])
    monkeypatch.undo()
    return len(compared)


def test_barriers_of_the_grid_compare_a_few_clocks_for_each_block(monkeypatch):
    few, many = (count_comparisons(clusters, monkeypatch) for clusters in (16, 64))
    assert many < 5 * few


EPOCHS = st.lists(st.integers(0, 3), min_size=2, max_size=2).map(lambda epochs: np.array([epochs], np.int32))
CLOCKS = st.dictionaries(st.integers(1, 4), EPOCHS, max_size=4)


def plain(clocks):
    return {cluster: vectors.tolist() for cluster, vectors in clocks.items()}


@given(st.lists(CLOCKS, min_size=2, max_size=4))
def test_a_join_of_clocks_knows_what_any_of_them_knows_and_changes_none(drawn):
    shared = [OtherClocks(clocks) for clocks in drawn]
    for one in shared:
        for _ in range(2):  # the second time the result is known
            for other in shared:
                joined = one.join(other)
                expected = {
                    cluster: np.maximum(one.get(cluster, 0), other.get(cluster, 0)).tolist()
                    for cluster in one.keys() | other.keys()
                }
                assert plain(joined) == expected
                if plain(other) == expected:
                    assert joined is one or joined is other
    assert [plain(clocks) for clocks in shared] == [plain(clocks) for clocks in drawn]


def test_of_clocks_at_one_word_the_later_one_is_the_join():
    vectors = np.array([[1]], np.int32)
    early, late = (OtherClocks({1: vectors}, WordRelease(COUNTER, node)) for node in (3, 5))
    elsewhere = OtherClocks({2: vectors}, WordRelease(FLAG, 9))
    assert early.join(late) is late
    assert late.join(early) is late
    assert plain(late.join(elsewhere)) == {1: [[1]], 2: [[1]]}
