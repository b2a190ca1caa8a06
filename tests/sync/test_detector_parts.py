"""Small parts of the detector, each for itself."""

from types import SimpleNamespace

import numpy as np
import pytest

from tilescope.sync.all_orders.mistake import MistakeFoundError
from tilescope.sync.detector.accesses import Accesses, Request, ThreadAccess
from tilescope.sync.detector.race import Side
from tilescope.sync.detector.tmem_order import Actor
from tilescope.sync.events import Converge
from tilescope.sync.lane_clocks import LaneClocks
from tilescope.sync.shadow.shadow_cells import LaneCells


@pytest.mark.parametrize(("how", "number", "warp"), [("core", 70, 2), ("core", 31, 0), ("ld", 3, 3), ("st", 70, 70)])
def test_a_thread_that_issues_is_part_of_its_warp_and_a_warp_is_itself(how, number, warp):
    actor = Actor(how, number, column=0, fenced=1, issued=2)
    assert actor.warp == warp
    assert (actor.epoch, actor.last_pc, actor.ranks) == (0, 0, set())


def test_a_mistake_is_called_by_its_kind():
    found = MistakeFoundError("race", agent=1)
    assert (str(found), found.kind, found.facts) == ("race", "race", {"agent": 1})


@pytest.mark.parametrize(
    ("masks", "together"),
    [
        (None, [[0, 1], [40]]),
        ({0: 3, 1: 3, 40: 3}, [[0, 1], [40]]),  # the same mask in two warps
        ({0: 1, 1: 2, 40: 3}, [[0], [1], [40]]),
        ({0: 0xFFFFFFFF, 1: 0xFFFFFFFF, 40: 1}, [[0, 1], [40]]),
    ],
)
def test_lanes_converge_with_those_of_their_group_that_have_their_mask(masks, together):
    lanes = np.array([0, 1, 40])
    by_lane = None
    if masks is not None:
        by_lane = np.zeros(64, np.uint32)
        by_lane[list(masks)] = list(masks.values())
    groups = Converge(0, lanes, 32, np.arange(64) // 32, by_lane).groups()
    found = [lanes[groups == group].tolist() for group in dict.fromkeys(groups.tolist())]
    assert found == together


@pytest.mark.parametrize("each", [1, 2, 4])
def test_a_cell_was_accessed_by_the_lane_whose_bytes_it_holds(each):
    lanes = np.array([3, 9, 40])
    at = LaneCells(np.array([0, 8, 16]), each)
    access = ThreadAccess("shared", "read", False, Request(lanes, 4 * at.first, 4 * each), at, at.cells, 0)
    positions = np.arange(3 * each)
    assert access.lanes_at(positions).tolist() == lanes.repeat(each).tolist()
    assert [access.lane_at(position) for position in positions.tolist()] == lanes.repeat(each).tolist()


def test_an_access_to_a_block_that_has_ended_names_the_lane_that_makes_it():
    """Lanes of block 0 access their own block, block 2, and block 1, which has ended."""
    reported = []
    context = SimpleNamespace(
        cluster=SimpleNamespace(shared_stride=1024, block_of_lane=np.repeat([0, 1, 2], 32)),
        ended_blocks={1},
        pc=7,
        report=lambda *place, **facts: reported.append((place, facts)),
    )
    accesses = Accesses(context, make_fences=None)
    accesses._reach(np.array([0, 5, 6]), np.array([16, 2048 + 32, 1024 + 48]))
    assert reported == [(("block end", None, Side(7, "read", 6), "shared", 1024 + 48), {"rank": 1})]
    assert accesses.reached_blocks == {1, 2}


def test_lanes_that_learn_a_time_know_it_and_no_others_do():
    clocks = LaneClocks(0, 64, 1)
    column = 40
    clocks.learn(np.arange(32), column, 5)
    assert clocks.time_known_to(np.arange(64), column).tolist() == [5] * 32 + [0] * 32
    clocks.learn(np.arange(64), column, 5)
    assert clocks.time_known_to(np.arange(64), column).tolist() == [5] * 64
    clocks.learn(np.arange(64), column, 3)  # which it knew already
    assert clocks.time_known_to(np.arange(64), column).min() == 5
