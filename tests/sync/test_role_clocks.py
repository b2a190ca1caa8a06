"""Laws of happens-before that the vector clocks of roles keep."""

import pytest
from role_programs import role_program

from tilescope.sync.happens_before import Access
from tilescope.sync.one_order import OneOrder
from tilescope.sync.role_clocks import RoleClocks

FIRST, SECOND, THIRD = 0, 1, 2
BARRIER, OTHER = 0, 1


def clocks():
    return RoleClocks(role_program([], [], [], mbarriers=[1, 1]))


def access_of(ordering, agent):
    """An access of a single warp, finished when the agent begins its next action."""
    ordering.advance(agent)
    access = Access((agent, 0, 0), agent, write=True, how="generic", start=0, end=64)
    ordering.begin_access(access, ends_at_once=True)
    return access


def hand_over(ordering, barrier, releasing, acquiring):
    """One agent arrives and ends phase 0; another one waits for it."""
    ordering.advance(releasing)
    ordering.release(barrier, 0, releasing, None)
    ordering.end_phase(barrier, 0)
    ordering.advance(acquiring)
    ordering.pass_wait(barrier, 1, acquiring)


def test_nothing_orders_the_accesses_of_two_agents_by_itself():
    ordering = clocks()
    access = access_of(ordering, FIRST)
    ordering.advance(SECOND)
    assert not ordering.is_ordered(access, SECOND)


def test_an_agent_is_ordered_after_its_own_accesses():
    ordering = clocks()
    access = access_of(ordering, FIRST)
    ordering.advance(FIRST)
    assert ordering.is_ordered(access, FIRST)


def test_a_wait_acquires_what_an_arrival_released():
    ordering = clocks()
    access = access_of(ordering, FIRST)
    hand_over(ordering, BARRIER, FIRST, SECOND)
    assert ordering.is_ordered(access, SECOND)
    assert not ordering.is_ordered(access, THIRD)


def test_happens_before_is_transitive():
    ordering = clocks()
    access = access_of(ordering, FIRST)
    hand_over(ordering, BARRIER, FIRST, SECOND)
    hand_over(ordering, OTHER, SECOND, THIRD)
    assert ordering.is_ordered(access, THIRD)


def test_an_access_after_the_release_is_not_ordered():
    ordering = clocks()
    ordering.advance(FIRST)
    ordering.release(BARRIER, 0, FIRST, None)
    access = access_of(ordering, FIRST)
    ordering.end_phase(BARRIER, 0)
    ordering.advance(SECOND)
    ordering.pass_wait(BARRIER, 1, SECOND)
    assert not ordering.is_ordered(access, SECOND)


def test_a_copy_releases_the_clock_of_its_issue_and_not_of_its_landing():
    ordering = clocks()
    ordering.advance(FIRST)
    issued_at = ordering.snapshot(FIRST)
    access = access_of(ordering, FIRST)
    ordering.advance(FIRST)
    ordering.release(BARRIER, 0, FIRST, issued_at)
    ordering.end_phase(BARRIER, 0)
    ordering.advance(SECOND)
    ordering.pass_wait(BARRIER, 1, SECOND)
    assert not ordering.is_ordered(access, SECOND)


def test_a_fence_covers_accesses_that_happen_before_it():
    ordering = clocks()
    access = access_of(ordering, FIRST)
    ordering.fence(SECOND, "proxy.async", [access], own=())
    assert not ordering.is_fenced(access, "proxy.async", None, SECOND)
    hand_over(ordering, BARRIER, FIRST, SECOND)
    ordering.fence(SECOND, "proxy.async", [access], own=())
    assert ordering.is_fenced(access, "proxy.async", None, SECOND)
    assert not ordering.is_fenced(access, "proxy.async", [FIRST], SECOND)


def test_a_barrier_is_initialised_for_whoever_the_init_happens_before():
    ordering = clocks()
    ordering.advance(FIRST)
    ordering.initialise(BARRIER, FIRST)
    ordering.advance(FIRST)
    ordering.advance(SECOND)
    assert [ordering.is_initialised(BARRIER, agent, None) for agent in (FIRST, SECOND)] == [True, False]
    hand_over(ordering, OTHER, FIRST, SECOND)
    assert ordering.is_initialised(BARRIER, SECOND, None)
    assert not ordering.is_initialised(BARRIER, THIRD, None)


def test_a_clone_does_not_change_with_its_original():
    ordering = clocks()
    access = access_of(ordering, FIRST)
    other = ordering.clone()
    hand_over(ordering, BARRIER, FIRST, SECOND)
    assert ordering.is_ordered(access, SECOND)
    assert not other.is_ordered(access, SECOND)


def test_in_one_order_an_access_is_pending_until_its_agent_goes_on():
    ordering = OneOrder()
    access = access_of(ordering, FIRST)
    assert not ordering.is_ordered(access, SECOND)
    ordering.advance(FIRST)
    assert ordering.is_ordered(access, SECOND)


@pytest.mark.parametrize(
    ("changes", "is_ambiguous"),
    [
        ([(FIRST, -40), (SECOND, 40)], False),  # what is given back suffices, whenever it is
        ([(FIRST, -40), (SECOND, 41)], True),
        ([(FIRST, -40), (SECOND, 24), (THIRD, 24)], True),  # for one of them, not for both
        ([(FIRST, -24), (SECOND, -24), (THIRD, 48)], False),
        ([(FIRST, 1)], True),
        ([(FIRST, -40)], False),
        ([(FIRST, 40), (FIRST, -40)], True),  # given back after it was taken
    ],
)
def test_registers_that_are_taken_must_be_given_back_by_others_in_any_order(changes, is_ambiguous):
    ordering = clocks()
    for agent, registers in changes:
        ordering.advance(agent)
        ordering.take_registers(agent, 0, registers)
    ordering.check_registers()
    assert [ambiguity.kind for ambiguity in ordering.ambiguities] == ["registers"] * is_ambiguous


def test_registers_of_another_block_are_of_no_use():
    ordering = clocks()
    ordering.take_registers(FIRST, 0, -40)
    ordering.take_registers(SECOND, 1, 40)
    ordering.check_registers()
    assert [(ambiguity.kind, ambiguity.agent) for ambiguity in ordering.ambiguities] == [("registers", SECOND)]
