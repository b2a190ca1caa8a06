"""Small pipelines that are wrong in some order, each of which once slipped through the proof; `naive` tries every order."""

import pytest
from naive import naive

import tilescope as ts
from tilescope.pipeline import simulation
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.long_loops import shorten_loops
from tilescope.pipeline.unrolled_pipeline import UnrolledPipeline
from tilescope.sync.all_orders.search import search

FENCE = {"fence": "proxy.async"}


def role(name, *steps, threads=32, **more):
    return {"name": name, "threads": threads, "steps": list(steps), **more}


def pipeline(*roles, barriers=(), slots=(), **more):
    """Barriers count 1 and slots have 16 bytes, unless they say otherwise."""
    counts = {name: {"count": 1} for name in barriers} | (barriers if isinstance(barriers, dict) else {})
    held = {name: {"bytes": 16} for name in slots} | (slots if isinstance(slots, dict) else {})
    return {"barriers": counts, "slots": held, "roles": list(roles), **more}


def unrolled(data):
    return UnrolledPipeline(Pipeline.from_dict(data))


def wait(barrier, parity=0):
    return {"wait": barrier, "parity": parity}


def copy(slot="a", barrier="f", size=16, **more):
    return {"copy": slot, "bytes": size, "barrier": barrier, **more}


def expect(barrier="f", size=16, **more):
    return {"expect": barrier, "bytes": size, **more}


def multiply(slot, into, **more):
    return {"multiply": [slot], "unit": "tcgen05", "into": into, **more}


MEET = {"sync": 1, "threads": 64}
TENSOR_MEMORY = {"space": "tmem"}

# what every order shows, and the rule that simulate names
WRONG = {
    "an arrival at a barrier of which all arrivals were dropped": (
        "fault",
        "pipeline-arrivals",
        pipeline(role("p", {"arrive": "f", "drop": True}, {"arrive": "f"}), barriers="f"),
    ),
    "a copy issued before its barrier is known to be initialised, which its role knows when it lands": (
        "undefined",
        "pipeline-init",
        pipeline(
            role("p", copy(), MEET, expect(), wait("f"), {"read": ["a"]}),
            role("q", {"init": ["f"]}, MEET),
            barriers="f",
            slots="a",
        ),
    ),
    "a cluster barrier that ends before somebody who has arrived leaves": (
        "race",
        "pipeline-race",
        pipeline(
            role("p", {"write": ["a"]}, {"cluster": "arrive"}, {"read": ["a"]}),
            role("q", *[FENCE] * 6, {"cluster": "sync"}, {"write": ["a"]}),
            slots="a",
        ),
    ),
    "a multiplication that reads another block's memory when that block has left": (
        "fault",
        "pipeline-exit",
        pipeline(
            role("load", expect(), copy(), wait("f"), {"arrive": "g", "mask": 1}),
            role("multiply", wait("g"), multiply("a", "acc", mask=3), {"commit": "d"}, wait("d"), mask=1),
            barriers={"f": {"count": 1}, "g": {"count": 2}, "d": {"count": 1}},
            slots={"a": {"bytes": 16}, "acc": TENSOR_MEMORY},
            cluster=[2, 1],
        ),
    ),
    "a block that leaves when a multiplication for it has begun, and before it has ended": (
        "fault",
        "pipeline-exit",
        pipeline(
            role("load", expect(), copy(), wait("f"), {"arrive": "g", "mask": 1}, wait("h")),
            role(
                "multiply",
                wait("g"),
                multiply("a", "acc", mask=3),
                {"commit": "d"},
                {"arrive": "h", "mask": 3},
                wait("d"),
                mask=1,
            ),
            barriers={"f": {"count": 1}, "g": {"count": 2}, "h": {"count": 1}, "d": {"count": 1}},
            slots={"a": {"bytes": 16}, "acc": TENSOR_MEMORY},
            cluster=[2, 1],
        ),
    ),
    "copies of two roles without barrier into one slot": (
        "race",
        "pipeline-race",
        pipeline(
            role("p", {"copy": "a", "bytes": 16}), role("q", {"copy": "a", "bytes": 16}), slots={"a": {"bytes": 0}}
        ),
    ),
    "a block that leaves under a copy that no barrier hears of": (
        "fault",
        "pipeline-exit",
        pipeline(role("p", {"copy": "a", "bytes": 16}), slots="a"),
    ),
    "copies of two roles in one phase, of which either may lie first": (
        "stale",
        "pipeline-stale",
        pipeline(
            role("p", expect(), copy(tile=1)),
            role("q", expect(size=32), copy(size=32)),
            role(
                "r", wait("f"), expect("g"), copy(barrier="g", offset=0, tile=5), wait("g"), {"read": ["a"], "tile": 5}
            ),
            barriers={"f": {"count": 2}, "g": {"count": 1}},
            slots={"a": {"bytes": 48}},
        ),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_in_some_order_is_a_mistake(name):
    seen, rule, data = WRONG[name]
    assert naive(data) == seen
    found = ts.simulate(data)
    assert found.verdict == "mistake", found.sentence
    assert found.mistake.rule == rule, found.sentence


def test_a_missing_fence_of_tensor_memory_is_worth_a_look_and_no_mistake():
    """A read by threads that is not forgotten behind one by the tensor core of the same role."""
    data = pipeline(
        role("first", {"write": ["operand"]}, {"fence": "tcgen05.before"}, {"sync": 1, "threads": 128}),
        role("second", {"sync": 1, "threads": 128}, multiply("operand", "acc"), {"commit": "e"}),
        role(
            "third",
            {"sync": 1, "threads": 128},
            wait("e"),
            {"fence": "tcgen05.after"},
            {"read": ["acc"]},
            multiply("acc", "other"),
            {"commit": "f"},
        ),
        role("fourth", {"sync": 1, "threads": 128}, wait("f"), multiply("operand", "acc"), {"commit": "g"}, wait("g")),
        barriers="efg",
        slots=dict.fromkeys(("operand", "acc", "other"), TENSOR_MEMORY),
    )
    assert naive(data) == ""
    found = ts.simulate(data)
    assert found.verdict == "proven", found.sentence
    assert {warning.rule for warning in found.warnings} == {"pipeline-fence"}


def test_nobody_waits_for_what_adds_nothing_to_a_flag():
    data = pipeline(
        role("writer", {"write": ["sums"]}, {"signal": "ready", "count": 0}),
        role("other", *[FENCE] * 4, {"signal": "ready"}),
        role("reader", {"poll": "ready", "value": 1}, {"read": ["sums"]}),
        slots={"sums": {"space": "gmem"}},
        flags={"ready": {}},
    )
    assert ts.simulate(data).mistake.rule == "pipeline-race"


@pytest.mark.parametrize("read", [False, True])
def test_all_stores_of_a_grid_are_written_when_it_has_ended(read):
    stored = {"store": ["a"], "into": "sums"}, {"commit": "bulk"}, {"wait_group": "bulk", "read": read}
    data = pipeline(
        role("epilogue", {"write": ["a"]}, FENCE, *stored, earlier=True),
        role("next", {"griddepcontrol": "wait"}, {"read": ["sums"]}),
        slots={"a": {"bytes": 16}, "sums": {"space": "gmem"}},
    )
    assert ts.simulate(data).verdict == "proven"


def test_bytes_of_the_last_phase_of_a_barrier_end_it():
    steps = expect(arrive=False), {"arrive": "f", "drop": True}, copy(), wait("f"), {"read": ["a"]}
    data = pipeline(role("p", *steps), barriers="f", slots="a")
    assert naive(data) == ""
    assert ts.simulate(data).verdict == "proven"


# ---- one round in the midst of a long loop is another one ----

ROUNDS = 700


def loop(*steps):
    return {"loop": "i", "count": ROUNDS, "steps": list(steps)}


def multicast(barrier_rank):
    """A block that fills both, with the barrier of the block that `barrier_rank` says for each."""
    copies = copy(mask=3, barrier_rank=barrier_rank)
    produce = loop(wait("e", "i % 2 ^ 1"), expect(mask=3), copies)
    consume = loop(wait("f", "i % 2"), {"read": ["a"]}, {"release": "e", "mask": 1})
    return pipeline(
        role("producer", produce, {"cluster": "sync"}, mask=1),
        role("consumer", consume, {"cluster": "sync"}),
        barriers={"f": {"count": 1}, "e": {"count": 2}},
        slots="a",
        cluster=[2, 1],
    )


def polling(flag):
    """Roles that hand a slot on, and poll a flag in each round."""
    produce = loop(wait("e", "i % 2 ^ 1"), expect(), copy())
    consume = loop(wait("f", "i % 2"), {"poll": flag, "value": 1}, {"read": ["a"]}, {"release": "e"})
    return pipeline(
        role("producer", {"signal": "ready[0]"}, produce),
        role("consumer", consume),
        barriers="ef",
        slots="a",
        flags={"ready": {"stages": 2}},
    )


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (multicast("rank"), multicast("rank * (i != 300)")),
        (polling("ready[0]"), polling("ready[i == 300]")),
    ],
)
def test_a_round_that_differs_is_not_left_out(right, wrong, monkeypatch):
    assert ts.simulate(right).verdict == "proven"
    found = ts.simulate(wrong)
    assert found.verdict == "mistake"
    monkeypatch.setattr(simulation, "shorten_loops", lambda _: None)
    assert ts.simulate(wrong).mistake == found.mistake


def test_a_loop_that_is_shorter_in_one_block_is_not_cut():
    """It would lose rounds of which the others know nothing."""
    data = multicast("rank")
    data["roles"][1]["steps"][0]["count"] = f"{ROUNDS} - 600 * rank"
    assert shorten_loops(unrolled(multicast("rank"))) is not None
    assert shorten_loops(unrolled(data)) is None


# ---- warps of a role that are not together ----


@pytest.mark.parametrize(
    "between", [{"arrive": "g", "count": 4}, {"bar_arrive": 1, "threads": 160}, {"cluster": "arrive"}]
)
def test_a_warp_does_not_store_what_others_wrote_before_all_have_met(between):
    stored = {"store": ["a"]}, {"commit": "bulk"}, {"wait_group": "bulk"}
    meeting = {"sync": 2, "threads": 128}

    def verdict(*steps):
        writer = role("writer", {"write": ["a"]}, FENCE, *steps, *stored, threads=128)
        return ts.simulate(pipeline(writer, barriers={"g": {"count": 4}}, slots="a")).verdict

    assert verdict(between) == "mistake"
    assert verdict(between, meeting) == "proven"
    assert verdict(meeting) == "proven"


def test_no_warp_copies_into_a_slot_before_it_knows_that_a_store_has_read_it():
    stored = {"store": ["a"]}, {"commit": "bulk"}, {"wait_group": "bulk"}
    copied = {"copy": "a", "bytes": 16, "by": "cp.async"}, {"commit": "cp.async"}, {"wait_group": "cp.async"}
    meeting = {"sync": 1, "threads": 128}

    def steps(*between):
        return pipeline(role("p", {"write": ["a"]}, FENCE, meeting, *stored, *between, *copied, threads=128), slots="a")

    assert naive(steps()) == "race"
    assert ts.simulate(steps()).mistake.rule == "pipeline-warps"
    assert naive(steps(meeting)) == ""
    assert ts.simulate(steps(meeting)).verdict == "proven"


def test_the_search_remembers_a_store_that_one_warp_has_waited_for_behind_a_read():
    stored = {"store": ["a"]}, {"commit": "bulk"}, {"wait_group": "bulk"}
    meeting = {"sync": 1, "threads": 64}
    steps = {"write": ["a"]}, FENCE, meeting, *stored, {"read": ["a"]}, {"write": ["a"]}
    data = pipeline(role("p", *steps, threads=64), slots="a")
    assert naive(data) == "race"
    assert search(unrolled(data).role_program, 1_000).mistake.kind == "store warps"
    assert ts.simulate(data).mistake.rule == "pipeline-warps"


# a wait for cp.async covers the copies of the thread that waits, and of no other
COPIED = {"copy": "a", "bytes": 16, "by": "cp.async"}, {"commit": "cp.async"}, {"wait_group": "cp.async"}
TOUCHES = {
    "read": [{"read": ["a"]}],
    "multiply": [{"multiply": ["a"], "unit": "mma"}],
    "write": [{"write": ["a"]}],
    "copy": COPIED,
}
ALL_ARRIVE = {"arrive": "g", "count": 4}
NOT_MET = {
    "nothing": [],
    "a fence": [FENCE],
    "one arrives": [{"arrive": "one"}, wait("one")],
    "an arrival of all": [ALL_ARRIVE],
    "bar.arrive": [{"bar_arrive": 1, "threads": 160}],
    "the cluster's arrive": [{"cluster": "arrive"}],
    "two arrivals": [{"cluster": "arrive"}, {"bar_arrive": 1, "threads": 160}],
}
MET = {
    "bar.sync": [{"sync": 1, "threads": 128}],
    "an mbarrier": [ALL_ARRIVE, wait("g")],
    "the cluster's barrier": [{"cluster": "sync"}],
    "the cluster's barrier in two steps": [{"cluster": "arrive"}, {"cluster": "wait"}],
}


def copied_and_touched(between, touch, threads=128):
    barriers = {"g": {"count": 4}, "one": {"count": 1}}
    return pipeline(role("p", *COPIED, *between, *touch, threads=threads), barriers=barriers, slots="a")


@pytest.mark.parametrize("touch", TOUCHES)
@pytest.mark.parametrize("between", NOT_MET)
def test_no_warp_touches_what_other_warps_copy_before_they_have_met(between, touch):
    data = copied_and_touched(NOT_MET[between], TOUCHES[touch])
    assert naive(data) == "race"
    assert ts.simulate(data).mistake.rule == "pipeline-warps"
    assert search(unrolled(data).role_program, 1_000).mistake.kind == "cp.async warps"


@pytest.mark.parametrize("touch", TOUCHES)
@pytest.mark.parametrize("between", MET)
def test_warps_that_have_met_know_what_all_of_them_copied(between, touch):
    data = copied_and_touched(MET[between], TOUCHES[touch])
    assert naive(data) == ""
    assert ts.simulate(data).verdict == "proven"
    found = search(unrolled(data).role_program, 1_000)
    assert (found.mistake, found.is_complete) == (None, True)


@pytest.mark.parametrize("touch", TOUCHES)
def test_a_lone_warp_knows_what_it_copied(touch):
    data = copied_and_touched([], TOUCHES[touch], threads=32)
    assert naive(data) == ""
    assert ts.simulate(data).verdict == "proven"


def test_the_remedy_is_a_sync_after_the_wait_for_the_copies(wording):
    found = ts.simulate(copied_and_touched([], TOUCHES["read"])).mistake
    assert (found.rule, found.values) == (
        "pipeline-warps",
        {"agent": "p", "agent_before": "p", "slot": "a", "warps": 4},
    )
    assert "128 threads of p" in found.fix
    wording("copies of several warps", found)


def test_warps_know_of_copies_that_arrive_at_a_barrier_for_which_all_of_them_wait():
    steps = COPIED[0], {"cp_arrive": "g", "count": 4, "noinc": True}, *COPIED[1:], wait("g"), {"read": ["a"]}
    data = pipeline(role("p", *steps, threads=128), barriers={"g": {"count": 4}}, slots="a")
    assert naive(data) == ""
    assert ts.simulate(data).verdict == "proven"


# ---- two grids: each has barriers and shared memory of its own ----

LAUNCH, GRID_WAIT = {"griddepcontrol": "launch"}, {"griddepcontrol": "wait"}


def grids(earlier, later, **more):
    slots = {"sums": {"space": "gmem"}, "a": {"bytes": 16}}
    roles = role("earlier", *earlier, threads=64, earlier=True), role("later", *later, threads=64)
    return pipeline(*roles, barriers={"f": {"count": 2}}, slots=slots, **more)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((), ({"cluster": "sync"},)),
        (({"cluster": "sync"},), ({"cluster": "sync"},)),
        (({"sync": 1, "threads": 128},), ({"sync": 1, "threads": 128},)),
        (({"arrive": "f", "count": 2},), (wait("f"),)),
    ],
)
def test_nothing_but_its_end_orders_a_grid_before_the_next(first, second):
    write, read = {"write": ["sums"]}, {"read": ["sums"]}
    assert ts.simulate(grids((LAUNCH, write, *first), (*second, read))).verdict == "mistake"


def test_grids_do_not_share_memory_or_registers():
    assert ts.simulate(grids(({"write": ["a"]},), ({"read": ["a"]},))).mistake.rule == "pipeline-unfilled"
    found = ts.simulate(grids(({"registers": 24},), ({"registers": 104},), registers=64))
    assert found.mistake.rule == "pipeline-registers"


@pytest.mark.parametrize("met", [{"sync": 1}, {"sync": 1, "threads": 64}, {"cluster": "sync"}])
def test_threads_of_each_grid_meet_among_themselves(met):
    earlier = GRID_WAIT, LAUNCH, {"write": ["sums"]}, met  # it waits for the grid before it
    assert ts.simulate(grids(earlier, (GRID_WAIT, {"read": ["sums"]}, met))).verdict == "proven"
    assert ts.simulate(grids(earlier, (GRID_WAIT, {"read": ["sums"]}))).verdict == "proven"


@pytest.mark.parametrize("step", [expect(mask=2), expect(mask=2, arrive=False), {"arrive": "f", "mask": 2}])
def test_nothing_reaches_the_barrier_of_a_block_that_may_have_left(step):
    data = pipeline(role("p", step, mask=1), role("q", FENCE, mask=2), barriers="f", cluster=[2, 1])
    assert naive(data) == "fault"
    assert ts.simulate(data).mistake.rule == "pipeline-exit"
