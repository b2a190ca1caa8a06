"""Clocks of threads that share rows, held against plain clocks: one for every thread."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilescope.sync.lane_clocks import LaneClocks
from tilescope.sync.vector_clock import ASYNC_GLOBAL, ASYNC_SHARED, EXECUTED, HAPPENS_BEFORE, join_clocks

LANES = 8
EVERYONE = np.arange(LANES)


def test_barriers_that_share_a_column_do_not_set_it_back():
    """Only so many columns have names; further barriers share the last one."""
    clocks = LaneClocks(1, 32, 1)
    column = clocks.new_column()
    clock = clocks.clock_of(np.array([column]), np.array([5]))
    clock.put(column, 3)
    assert clock.known[column] == 5
    clock.put(column, 7)
    assert clock.known[column] == 7


class PlainClocks:
    """For every thread what it knows of every other one, what of that is fenced, and what was over in time: no rows, no tricks."""

    def __init__(self):
        self.known = [[0] * LANES for _ in range(LANES)]
        self.fenced = [[0] * LANES for _ in range(LANES)]
        self.executed = [[0] * LANES for _ in range(LANES)]
        self.now = [1] * LANES
        self.time = 1

    def advance(self, lanes):
        """Epochs are taken from one clock."""
        self.time += 1
        for lane in lanes:
            self.now[lane] = self.time

    def of(self, lanes):
        known = [max(self.known[lane][other] for lane in lanes) for other in range(LANES)]
        fenced = [max(self.fenced[lane][other] for lane in lanes) for other in range(LANES)]
        executed = [max(self.executed[lane][other] for lane in lanes) for other in range(LANES)]
        for lane in lanes:
            known[lane] = executed[lane] = self.now[lane]
        return known, fenced, executed

    def learn(self, lane, clock):
        known, fenced, executed = clock
        self.executed[lane] = [max(pair) for pair in zip(self.executed[lane], executed, strict=True)]
        self.known[lane] = [max(pair) for pair in zip(self.known[lane], known, strict=True)]
        self.fenced[lane] = [max(pair) for pair in zip(self.fenced[lane], fenced, strict=True)]

    def come_together(self, lanes):
        _, _, executed = self.of(lanes)
        for lane in lanes:
            self.executed[lane] = list(executed)
        self.advance(lanes)

    def fence(self, lane):
        self.fenced[lane] = [max(pair) for pair in zip(self.fenced[lane], self.known[lane], strict=True)]
        self.fenced[lane][lane] = self.now[lane]


some_lanes = st.lists(st.integers(0, LANES - 1), min_size=1, max_size=LANES, unique=True).map(sorted)
steps = st.lists(
    st.tuples(st.sampled_from(["meet", "hand on", "fence", "come together"]), some_lanes, some_lanes),
    min_size=1,
    max_size=12,
)


@given(steps)
def test_rows_of_threads_that_know_the_same_are_plain_clocks(taken):
    clocks = LaneClocks(1, LANES, 0)
    plain = PlainClocks()
    for step, lanes, others in taken:
        if step == "fence":
            clocks.fence(np.array(lanes), [ASYNC_SHARED])
            for lane in lanes:
                plain.fence(lane)
            plain.advance(lanes)
            continue
        if step == "come together":
            clocks.converge(np.array(lanes), LANES)
            plain.come_together(lanes)
            continue
        clock = clocks.release(np.array(lanes))
        plain_clock = plain.of(lanes)
        plain.advance(lanes)
        learning = lanes if step == "meet" else others
        if step == "meet":
            clocks.synchronize(np.array(lanes), clock)
        else:
            clocks.acquire(np.array(others), clock)
        for lane in learning:
            plain.learn(lane, plain_clock)
    for lane in range(LANES):
        others = [other for other in range(LANES) if other != lane]
        view = clocks.view(lane)
        assert view[HAPPENS_BEFORE, others].tolist() == [plain.known[lane][other] for other in others]
        assert view[EXECUTED, others].tolist() == [plain.executed[lane][other] for other in others]
        assert view[ASYNC_SHARED, others].tolist() == [plain.fenced[lane][other] for other in others]
        assert view[ASYNC_GLOBAL, others].tolist() == [0] * (LANES - 1)
        assert view[ASYNC_SHARED, lane] == plain.fenced[lane][lane]


def test_a_thread_knows_what_it_did_itself_and_not_what_its_neighbour_did():
    clocks = LaneClocks(1, LANES, 0)
    columns = np.array([3, 3])
    assert clocks.is_ordered(np.array([3, 4]), columns, np.array([1, 1])).tolist() == [True, False]


def test_a_join_knows_what_either_clock_knows_whichever_has_more_columns():
    """A barrier that is made between two releases adds columns to the second."""
    clocks = LaneClocks(1, LANES, 0)
    early = clocks.clock_of(np.array([2, 3]), np.array([7, 5]))
    for _ in range(40):
        column = clocks.new_column()
    late = clocks.clock_of(np.array([3, column]), np.array([6, 9]))
    assert late.known.shape > early.known.shape
    for joined in (join_clocks(early, late), join_clocks(late, early)):
        assert joined.known[[2, 3, column]].tolist() == [7, 6, 9]
        assert joined.known.sum() == 7 + 6 + 9
    assert join_clocks(None, early) is early


def test_what_is_done_behind_a_release_is_not_handed_on():
    clocks = LaneClocks(1, LANES, 0)
    clock = clocks.release(np.array([0]))
    clocks.acquire(np.array([5]), clock)
    epochs = np.array([1, 2])  # before the release, and behind it
    assert clocks.is_ordered(np.array([5, 5]), np.array([0, 0]), epochs).tolist() == [True, False]


@pytest.mark.parametrize("barriers", [1, 40, 100])
def test_there_is_a_column_for_every_barrier(barriers):
    clocks = LaneClocks(1, LANES, 2)
    columns = [clocks.new_column() for _ in range(barriers)]
    assert len(set(columns)) == barriers
    clocks.learn(np.array([1]), columns[-1], 7)
    assert clocks.time_known_to(EVERYONE, columns[-1]).tolist() == [0, 7, 0, 0, 0, 0, 0, 0]


def test_another_cluster_is_heard_of_and_passed_on():
    here, there, third = (LaneClocks(number, LANES, 0) for number in (1, 2, 3))
    there.acquire(np.array([0]), here.release(np.array([4])))
    third.acquire(np.array([1]), there.release(np.array([0])))
    assert third.others[third.row_of_lane[1]][1][HAPPENS_BEFORE, 4] == 1
    assert third.others[third.row_of_lane[2]] == {}
