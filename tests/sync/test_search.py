"""The search over all orders, on role programs without a description: one run with clocks, and every order."""

import pytest
from role_programs import arrive, fence, read, role_program, store, wait, write

from tilescope.pipeline.mistake_messages import TEXT_OF_KIND
from tilescope.sync.all_orders.mistake import OUTCOME_OF_KIND
from tilescope.sync.all_orders.search import Run, search
from tilescope.sync.role_events import Load, MbarrierWait

ORDERED = role_program([write(), arrive(0)], [wait(0), read()])
PROGRAMS = {
    "ordered by a barrier": (ORDERED, None),
    "a read that waits for nothing": (role_program([write(), arrive(0)], [read()]), "race"),
    "two writes without a barrier": (role_program([write()], [write()], mbarriers=()), "race"),
    "an arrival that nobody makes": (role_program([write()], [wait(0), read()]), "nobody arrives"),
    "one arrival of two": (role_program([write(), arrive(0)], [wait(0), read()], mbarriers=[2]), "too few arrivals"),
    "two waits for each other": (
        role_program([wait(0), arrive(1)], [wait(1), arrive(0)], mbarriers=[1, 1]),
        "circle",
    ),
    "a parity of the phase before": (role_program([write(), arrive(0)], [wait(0, parity=1), read()]), "race"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_run_with_clocks_and_the_search_of_every_order_find_the_same_mistake(name):
    program, kind = PROGRAMS[name]
    mistake = Run(program)()
    found = search(program, 1_000)
    if kind is None:
        assert (mistake, found.mistake, found.is_complete) == (None, None, True)
    else:
        assert mistake.kind == kind
        # in the order that is found first, the slot may be read before anything was written
        assert found.mistake.kind in {kind, "unfilled"}


def test_a_mistake_carries_the_numbers_of_its_agents_and_slots():
    mistake = Run(role_program([write()], [write()], mbarriers=()))()
    facts = {name: mistake.facts[name] for name in ("slot", "agent", "agent_before", "access", "access_before")}
    assert facts == {"slot": 0, "agent": 1, "agent_before": 0, "access": "write", "access_before": "write"}


def test_a_deadlock_names_the_agents_that_are_blocked():
    program, _ = PROGRAMS["two waits for each other"]
    found = search(program, 1_000)
    assert found.mistake.outcome == "hang"
    assert [(agent, type(action)) for agent, action in found.blocked] == [(0, MbarrierWait), (1, MbarrierWait)]


def test_the_path_into_a_mistake_leads_to_it():
    program, _ = PROGRAMS["a read that waits for nothing"]
    *_, (agent, done) = search(program, 1_000).path
    assert (agent, type(done)) == (1, Load)


def test_an_operation_whose_phase_is_not_determined_is_an_ambiguity():
    """Two arrivals of one agent end two phases; the other agent may wait for the first after both have ended."""
    run = Run(role_program([arrive(0), arrive(0)], [wait(0)]))
    run()
    assert {(ambiguity.kind, ambiguity.agent) for ambiguity in run.clocks.ambiguities} == {("late", 1)}
    assert search(run.state.program, 1_000).mistake.outcome == "hang"


@pytest.mark.parametrize("between", [[], [fence()]])
def test_a_store_needs_a_proxy_fence_behind_what_threads_wrote(between):
    mistake = Run(role_program([write(), *between, store()]))()
    assert mistake.kind == ("stores" if between else "fence")  # nobody waits for the store either


@pytest.mark.parametrize(("arrivals", "outcome"), [(4, None), (1, "race")])
def test_a_phase_at_which_all_warps_arrive_orders_what_all_of_them_wrote(arrivals, outcome):
    program = role_program([write(), arrive(0, arrivals)], [wait(0), read()], mbarriers=[arrivals], warps=4)
    mistake = Run(program)()
    assert (mistake and mistake.outcome) == outcome


def test_every_kind_of_mistake_has_its_sentences():
    assert TEXT_OF_KIND.keys() == OUTCOME_OF_KIND.keys()
