"""A long loop is proven by a round that recurs: so whatever the future depends on must tell two rounds apart."""

import pytest
from role_programs import arrive, read, role_program, wait, write

from tilescope.sync.all_orders.contents import Segment
from tilescope.sync.all_orders.recurrence import LoopPlace, ShortenedRun, _ClocksFromNow, _StateFromNow
from tilescope.sync.happens_before import Access

ACCESS = Access((0, 0, 0), 0, write=True, how="generic", start=0, end=64, fill=(0, 1, -1), tile=3)
OTHER_VALUES = {
    "key": (0, 1, 0),
    "agent": 1,
    "write": False,
    "how": "async",
    "start": 1,
    "end": 63,
    "fill": (0, 2, -1),
    "tile": 4,
}
SEGMENT = Segment(0, 64, 3, (0, 1, -1))
OTHER_SEGMENTS = {"start": 1, "end": 63, "tile": 4, "fill": (0, 2, -1), "was_read": True, "is_stale": True}


def run():
    return ShortenedRun(role_program([write(), arrive(0)], [wait(0), read()]), {}, period=1, rounds=1, actions_cut=0)


def state_parts(accesses=(), contents=(), tiles=0):
    state = run().state
    state.accesses[0], state.contents[0] = accesses, contents
    return _StateFromNow(state, tiles).parts([False] * len(state.phase))


@pytest.mark.parametrize("name", Access._fields)
def test_two_states_that_differ_in_an_access_are_told_apart(name):
    changed = ACCESS._replace(**{name: OTHER_VALUES[name]})
    assert state_parts(accesses=(ACCESS,)) != state_parts(accesses=(changed,))


@pytest.mark.parametrize("name", Segment._fields)
def test_two_states_that_differ_in_what_a_slot_holds_are_told_apart(name):
    changed = SEGMENT._replace(**{name: OTHER_SEGMENTS[name]})
    assert state_parts(contents=(SEGMENT,)) != state_parts(contents=(changed,))


def test_tiles_are_counted_from_the_round():
    later = [held._replace(tile=held.tile + 5) for held in (ACCESS, SEGMENT)]
    assert state_parts((ACCESS,), (SEGMENT,)) == state_parts((later[0],), (later[1],), tiles=5)
    assert state_parts((ACCESS,), (SEGMENT,)) != state_parts((later[0],), (later[1],))


def clock_parts(unused, raised):
    clocks = run().clocks
    clocks.raised[0] = raised
    return _ClocksFromNow(clocks, [0] * len(unused), [0, 0]).parts(unused)


def test_the_clocks_of_a_barrier_count_if_it_is_used():
    barriers = len(run().state.phase)
    for is_unused in (False, True):
        unused = [is_unused] + [not is_unused] * (barriers - 1)
        is_equal = clock_parts(unused, ()) == clock_parts(unused, ((0, 1),))
        assert is_equal == is_unused


@pytest.mark.parametrize(
    ("place", "is_inside"), [(-1, False), (0, True), (5, True), (6, False)], ids=["before", "first", "last", "behind"]
)
def test_a_state_is_compared_while_every_agent_is_in_its_loop(place, is_inside):
    """Agent 1's loop begins at its action 2 and has two rounds of three actions before the cut."""
    program = role_program([write(), arrive(0)], [wait(0), read()])
    shortened = ShortenedRun(program, {1: LoopPlace(2, 3)}, period=1, rounds=2, actions_cut=0)
    shortened.state.pc[1] = 2 + place
    assert (shortened._state_from_now(0) is not None) == is_inside
    shortened.state.exited[1] = True
    assert shortened._state_from_now(0) is None
