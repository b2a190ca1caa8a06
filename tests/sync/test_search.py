"""The search over all orders, on role programs without a description: one run with clocks, and every order."""

from dataclasses import replace

import pytest
from role_programs import (
    arrive,
    arrive_and_expect,
    copy,
    expect,
    fence,
    read,
    role_program,
    store,
    wait,
    write,
)

from tilescope.pipeline.mistake_messages import TEXT_OF_KIND
from tilescope.sync.all_orders.mistake import OUTCOME_OF_KIND
from tilescope.sync.all_orders.search import Run, search
from tilescope.sync.role_events import (
    ClusterArrive,
    GridDependency,
    GroupCommit,
    GroupWait,
    Load,
    MbarrierWait,
    RegisterRequest,
)
from tilescope.sync.role_program import Agent, BarrierInstance, SlotInstance
from tilescope.sync.thread_limits import BARS

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


def found_kinds(program):
    """The mistakes that a run with clocks and the search of every order find."""
    mistakes = (Run(program)(), search(program, 1_000).mistake)
    return [mistake and mistake.kind for mistake in mistakes]


@pytest.mark.parametrize(("arrivals", "kind"), [(1, None), (2, "too many arrivals")])
def test_a_phase_takes_as_many_arrivals_as_it_waits_for(arrivals, kind):
    program = role_program([arrive(0, arrivals)], [wait(0)])
    assert found_kinds(program) == [kind, kind]


@pytest.mark.parametrize(
    ("others", "kind"),
    [
        ([], None),
        ([[arrive_and_expect(1, 64), copy(1), wait(1)]], "race"),  # into the same slot
        ([[write()]], "race"),
    ],
)
def test_a_copy_writes_its_slot_until_its_phase_is_waited_for(others, kind):
    program = role_program([arrive_and_expect(0, 64), copy(0), wait(0)], *others, mbarriers=[1, 1])
    assert found_kinds(program) == [kind, kind]


STORED = [write(), fence(), store(), GroupCommit(unit="bulk")]


@pytest.mark.parametrize(
    ("between", "kind"),
    [([], "race"), ([GroupWait(unit="bulk", only_read=True)], None), ([GroupWait(unit="bulk")], None)],
    ids=["nothing", "wait_group.read", "wait_group"],
)
def test_the_slot_of_a_bulk_store_may_be_written_once_it_was_read(between, kind):
    program = role_program([*STORED, *between, write(), GroupWait(unit="bulk")], mbarriers=())
    assert found_kinds(program) == [kind, kind]


def test_the_cluster_barrier_waits_for_one_agent_fewer_when_one_exits():
    """The first agent exits behind one phase: the two others still have to arrive in each of the next ones."""
    synchronize = ClusterArrive(barriers=(1 + BARS,))
    writer = [synchronize, synchronize, write(), synchronize]
    reader = [synchronize, synchronize, synchronize, read()]
    assert found_kinds(role_program([synchronize], writer, reader)) == [None, None]
    too_early = [synchronize, synchronize, read(), synchronize]
    assert Run(role_program([synchronize], writer, too_early))().outcome == "race"


@pytest.mark.parametrize(("requested", "kind"), [(160, None), (168, None), (176, "registers")])
def test_registers_that_were_given_back_can_all_be_taken(requested, kind):
    """128 threads with 128 registers give back 40 each, so that another 128 threads can have 168."""
    roles = [[RegisterRequest(registers=registers)] for registers in (88, requested)]
    program = replace(role_program(*roles, mbarriers=(), warps=4), registers=128)
    assert found_kinds(program) == [kind, kind]


def in_two_grids(earlier, *later, starts_late):
    """Roles that run behind another grid of one role; the slot is in global memory."""
    program = role_program(*later)
    cluster = 1 + 2 * BARS
    names = ["mbarrier", *["bar"] * 2 * BARS, "cluster", "cluster", "grid"]
    return replace(
        program,
        agents=[*program.agents, Agent("earlier", home=1, warps=1, actions=lambda: iter(earlier), is_earlier=True)],
        barriers=[BarrierInstance(name, home=0, arrivals=int(name == "mbarrier")) for name in names],
        slots=[SlotInstance("c", home=0, bytes=64, space="gmem")],
        blocks=2,
        cluster=cluster,
        first_flag=cluster + 2,
        grid=cluster + 2,
        starts_late=starts_late,
    )


@pytest.mark.parametrize(
    ("starts_late", "waits", "outcome"), [(True, False, None), (False, True, None), (False, False, "race")]
)
def test_a_grid_that_starts_early_knows_the_end_of_the_one_before_only_by_waiting_for_it(starts_late, waits, outcome):
    """Even if the grid before happens to have ended long ago, as here: the reader begins behind another role."""
    dependency = [GridDependency(barriers=(3 + 2 * BARS,), waits=True)] if waits else []
    program = in_two_grids(
        [write()], [*[fence()] * 5, arrive(0)], [wait(0), *dependency, read()], starts_late=starts_late
    )
    mistake = Run(program)()
    assert (mistake and mistake.outcome) == outcome


@pytest.mark.parametrize(
    ("behind_the_wait", "kind"),
    [
        ([copy(0)], "circle"),
        ([expect(2, 64), copy(2), copy(0)], "circle"),  # bytes that are expected elsewhere
        ([arrive(2), copy(0)], "circle"),
        ([expect(0, 64), copy(0)], "too few bytes"),  # of the next phase
        ([copy(2)], "too few bytes"),
    ],
)
def test_missing_bytes_are_too_few_unless_a_blocked_agent_would_copy_them(behind_the_wait, kind):
    """128 bytes are expected, and 64 come. Whoever waits for them blocks the agent that may copy the others."""
    program = role_program(
        [arrive_and_expect(0, 128), copy(0), wait(0)],
        [wait(1), *behind_the_wait],
        [wait(0), arrive(1)],
        mbarriers=[1, 1, 1],
    )
    assert Run(program)().kind == kind


def test_every_kind_of_mistake_has_its_sentences():
    assert TEXT_OF_KIND.keys() == OUTCOME_OF_KIND.keys()
