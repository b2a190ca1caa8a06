"""What `ts.simulate` says beyond right and wrong: sentences, ways, warnings, bounds, speed."""

import pytest
from descriptions import RIGHT, planned, ring
from naive import naive

import tilescope as ts
from tilescope import view
from tilescope.cli import run
from tilescope.pipeline import simulation
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.long_loops import shorten_loops
from tilescope.pipeline.messages import describe_path
from tilescope.pipeline.unrolled_pipeline import UnrolledPipeline
from tilescope.sync.all_orders.search import search


def changed(data, place, **arguments):
    steps = data["roles"][place[0]]["steps"]
    for number in place[1:-1]:
        steps = steps[number]["steps"]
    steps[place[-1]] |= arguments
    return data


@pytest.mark.parametrize(
    ("data", "rule", "subject", "values"),
    [
        (
            changed(ring(stages=3, steps=6), (0, 0, 1), bytes=4096 + 2048),
            "pipeline-bytes",
            "full[0]",
            {"barrier": "full[0]", "phase": 0, "expected": 6144, "brought": 5120},
        ),
        (
            changed(ring(), (0, 0, 0), parity="(i / 2) % 2"),
            "pipeline-start",
            "empty[0]",
            {"agent": "producer", "barrier": "empty[0]"},
        ),
        (
            ring(consumers=2) | {"barriers": {"full": {"count": 1, "stages": 2}, "empty": {"count": 1, "stages": 2}}},
            "pipeline-arrivals",
            "empty[0]",
            {
                "barrier": "empty[0]",
                "expected": 1,
                "roles": 2,
                "agents": "consumer 0 and consumer 1",
                "agent": "producer",
            },
        ),
    ],
)
def test_a_mistake_is_one_sentence_with_barrier_numbers_and_fix(data, rule, subject, values, wording):
    found = ts.simulate(data)
    assert (found.mistake.rule, found.mistake.subject, found.mistake.values) == (rule, subject, values)
    wording(f"a mistake of {rule}", found.sentence)


def test_a_slot_written_while_wgmma_reads_it():
    data = ring(steps=3)
    del data["roles"][1]["steps"][0]["steps"][3]
    found = ts.simulate(data).mistake
    assert (found.outcome, found.subject) == ("race", "a[0]")
    assert (found.values["agent"], found.values["agent_before"]) == ("producer", "consumer")
    assert "wgmma" in found.found
    assert found.way[0] == "producer: wait empty[0], parity 1"
    assert found.way[-1].startswith("producer: copy into a[0], 4096 bytes")


def test_waiting_for_fewer_groups_than_are_open_keeps_the_last_reads_alive():
    data = ring(stages=2, steps=6)
    data["roles"][1]["steps"][0]["steps"][3]["pending"] = 1
    assert ts.simulate(data).mistake.rule == "pipeline-race"
    steps = data["roles"][1]["steps"][0]["steps"]
    steps[4] = {"release": "empty[(i + 1) % 2]", "when": "i > 0"}  # the slot of the step before
    data["roles"][1]["steps"] += [{"wait_group": "wgmma"}, {"release": "empty[1]"}]
    assert ts.simulate(data).verdict == "proven"


def test_reading_threads_are_warned_of_the_strict_fence():
    data = RIGHT["ldmatrix"]()
    loop = next(step for step in data["roles"][1]["steps"] if "loop" in step)
    loop["steps"] = [step for step in loop["steps"] if "fence" not in step]
    found = ts.simulate(data)
    assert found.verdict == "proven"
    assert [each.rule for each in found.warnings] == ["pipeline-fence"]


def late_expect(first, copied, late):
    """A barrier that is armed with the first bytes, and with the rest when the copies are under way."""
    copies = [{"copy": f"a[{n}]", "bytes": size, "barrier": "full"} for n, size in enumerate(copied)]
    return {
        "barriers": {"full": {"count": 1}},
        "slots": {"a": {"stages": len(copied), "bytes": copied[0]}},
        "roles": [
            {"name": "producer", "steps": [{"expect": "full", "bytes": first}, *copies, *late]},
            {"name": "reader", "threads": 32, "steps": [{"wait": "full", "parity": 0}, {"read": ["a[0]"]}]},
        ],
    }


def test_events_name_blocks_where_they_speak_of_others():
    found = ts.simulate(ts.plan_pipeline(ts.plan((64, 64), "bf16").best, stages=1, steps=2, cluster=(1, 2)))
    copies = {event.said for event in found.events if event.op == "copy" and event.role == "producer of block 1"}
    (copy,) = copies
    assert all(place in copy for place in ("a of block 0", "a of block 1", "full of block 0", "full of block 1"))
    assert "4096 bytes" in copy
    waits = {event.said for event in found.events if event.op == "wait" and event.role == "consumer of block 1"}
    assert waits == {"wait full, parity 0", "wait full, parity 1"}


@pytest.mark.parametrize(
    ("data", "values"),
    [
        # all bytes of one copy, of which a part is expected late: whole copies would never end the phase too soon
        (
            late_expect(4096, [5120], [{"expect": "full", "bytes": 1024, "arrive": False}]),
            {"barrier": "full", "phase": 0, "tx": 4096, "bytes": 5120},
        ),
        (
            late_expect(1024, [4096, 1024], [{"expect": "full", "bytes": 4096, "arrive": False}]),
            {"barrier": "full", "phase": 0, "tx": 1024, "bytes": 4096},
        ),
        (
            late_expect(0, [4096], [{"expect": "full", "bytes": 4096, "arrive": False}]),
            {"slot": "a", "agent": "reader", "agent_before": "producer"},
        ),
    ],
)
def test_bytes_that_are_expected_after_the_last_arrival_come_too_late(data, values, wording):
    found = ts.simulate(data)
    assert found.mistake.outcome == "race"
    assert found.mistake.values == values
    wording(f"bytes that come too late: {values}", found.sentence)
    assert naive(data)


def test_bytes_may_be_expected_behind_the_copy_with_the_last_arrival():
    data = late_expect(4096, [5120], [])
    data["roles"][0]["steps"] = [
        data["roles"][0]["steps"][1],
        {"expect": "full", "bytes": 4096, "arrive": False},
        {"expect": "full", "bytes": 1024},
    ]
    assert ts.simulate(data).verdict == "proven"
    assert naive(data) == ""


def test_setmaxnreg_beyond_the_pool_never_ends(wording):
    data = planned([(64, 64)], stages=2, steps=2, consumers=2)
    assert data["registers"] == 168
    for step in data["roles"][1]["steps"]:
        if "registers" in step:
            step["registers"] = 240
    found = ts.simulate(data).mistake
    assert (found.rule, found.outcome) == ("pipeline-registers", "hang")
    assert [found.values[name] for name in ("registers", "need", "free")] == [240, 9216, 7168]
    wording("registers beyond the pool", found)


def test_the_fix_of_a_circle_names_the_step_to_move_and_moving_it_works(wording):
    """Who waits, for which step of whom, and before which wait that step has to come."""
    wait, arrive = (
        ({"wait": "full", "parity": 0}, {"wait": "empty", "parity": 0}),
        ({"arrive": "empty"}, {"arrive": "full"}),
    )
    data = {"barriers": {"full": {"count": 1}, "empty": {"count": 1}}, "slots": {}}
    roles = [{"name": f"role {number}", "steps": [wait[number], arrive[number]]} for number in range(2)]
    found = ts.simulate(data | {"roles": roles}).mistake
    assert found.rule == "pipeline-circle"
    assert found.values["agents"] == "role 0 and role 1"
    assert "'arrive full' before 'wait empty" in found.fix
    wording("a circle of waits", found)
    roles[1]["steps"].reverse()
    assert ts.simulate(data | {"roles": roles}).verdict == "proven"


def test_the_fix_of_a_circle_lets_a_role_meet_the_others_first():
    data = RIGHT["planned"]()
    steps = data["roles"][0]["steps"]
    assert "sync" in steps[2]
    steps[2], steps[3] = steps[3], steps[2]
    found = ts.simulate(data).mistake
    assert (found.rule, found.subject) == ("pipeline-circle", "producer")
    assert "'sync 0' before 'wait empty[0], parity 0'" in found.fix


def test_threads_that_never_come_to_a_bar_are_counted_in_its_block(wording):
    """The roles of the other block come to theirs."""
    data = RIGHT["split meetings"]()
    data["roles"][0]["steps"][5]["when"] = "rank == 1"
    found = ts.simulate(data).mistake
    assert (found.rule, found.outcome, found.subject) == ("pipeline-sync", "hang", "bar 1 of block 0")
    assert [found.values[name] for name in ("expected", "came", "agents")] == [64, 32, "taker of block 0"]
    wording("threads that a bar lacks", found)


def test_aliasing_is_reported_and_bounds_the_search():
    """Arrivals that nobody waits for may count in any phase; here that does no harm, and every order is looked at."""
    data = {
        "barriers": {"done": {"count": 1}},
        "slots": {},
        "roles": [{"name": f"role {number}", "steps": [{"arrive": "done"}, {"arrive": "done"}]} for number in range(2)],
    }
    found = ts.simulate(data)
    assert found.verdict == "proven"
    assert found.states > 1
    assert "could count in phase" in found.aliasing[0]
    bounded = ts.simulate(data, max_states=2)
    assert (bounded.verdict, bounded.states) == ("undecided", 2)
    assert bounded.sentence.startswith("Undecided after 2 states. What role ")


def test_a_block_that_leaves_too_early():
    data = RIGHT["multicast"]()
    data["roles"][0]["steps"].pop()
    found = ts.simulate(data).mistake
    assert found.rule == "pipeline-exit"


@pytest.mark.parametrize(("cluster", "stages"), [((2, 2), 4), pytest.param((4, 4), 12, marks=pytest.mark.slow)])
def test_ten_thousand_steps_are_proven_by_a_round(cluster, stages):
    """benchmarks/pipeline.py has the seconds; what makes them few is that a short run stands for the whole loop."""
    plans = [ts.plan((64, 64), "bf16").best] * 2
    pipeline = ts.plan_pipeline(plans, stages=stages, consumers=2, cluster=cluster, steps=10_000)
    short = shorten_loops(UnrolledPipeline(pipeline))
    assert (short.rounds + 1) * short.period < 350
    found = ts.simulate(pipeline)
    assert found.verdict == "proven"
    assert found.actions > cluster[0] * cluster[1] * 3 * 10_000


def test_what_is_no_pipeline_is_refused():
    for given in (None, 3, "ring.toml", [ring()]):
        with pytest.raises(ts.RuleError):
            ts.simulate(given)
    with pytest.raises(ts.RuleError):
        ts.simulate(ring(), max_states=-1)


def test_a_loop_that_would_never_end_is_refused_at_once():
    steps = [{"init": "f"}, {"loop": "i", "count": (1 << 24) + 1, "steps": [{"arrive": "f"}]}]
    data = {"barriers": {"f": {"count": 1}}, "roles": [{"name": "p", "steps": steps}]}
    with pytest.raises(ts.RuleError, match="16777217; at most 16777216 rounds") as refused:
        ts.simulate(data)
    assert refused.value.violations[0].argument == "count of i"


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"stages": 0}, "stages"),
        ({"stages": 15}, "stages"),  # 14 fit into a block
        ({"consumers": 99}, "consumers"),
        ({"cluster": (0, 1)}, "cluster"),
        ({"cluster": 99}, "cluster"),
        ({"cta_group": 2}, "cta_group"),
        ({"cta_group": 3}, "cta_group"),
        ({"arrivals": "lane"}, "arrivals"),
        ({"steps": 0}, "steps"),
    ],
)
def test_arguments_of_plan_pipeline_are_checked(arguments, argument):
    with pytest.raises(ts.RuleError) as refused:
        ts.plan_pipeline(ts.plan((128, 64), "bf16").best, **arguments)
    assert refused.value.violations[0].argument == argument
    for given in (None, [], [3], "128x64"):
        with pytest.raises(ts.RuleError):
            ts.plan_pipeline(given)


@pytest.mark.parametrize("name", RIGHT)
def test_every_pipeline_and_its_run_are_drawn(name):
    pipeline = Pipeline.from_dict(RIGHT[name]())
    found = ts.simulate(pipeline)
    for width in (60, 100):
        drawn = view.text(found, width=width)
        assert drawn.startswith(f"{pipeline.name}: proven"[:40])
        assert max(map(len, drawn.splitlines())) <= width
    assert "<svg" in found.svg()
    assert all(role.name in view.text(pipeline) for role in pipeline.roles)


def test_the_drawing_of_a_hang_marks_the_waits_that_never_pass():
    drawn = view.text(ts.simulate(changed(ring(), (0, 0, 1), bytes=16)), width=120)
    assert "full[0]!" in drawn
    assert "nothing: it never passes" in drawn
    assert "The way into it" in drawn


def test_the_command(tmp_path, capsys):
    assert run(["pipeline", "128x64", "bf16", "--stages", "2"]) == 0
    assert capsys.readouterr().out.startswith("Proven for every order: ")
    assert run(["pipeline", "128x64", "bf16", "--stages", "2", "--describe"]) == 0
    path = tmp_path / "kernel.toml"
    path.write_text(
        capsys.readouterr().out.replace(
            '{expect = "full[i % STAGES]", bytes = 16384}', '{expect = "full[i % STAGES]", bytes = 16000}'
        )
    )
    assert run(["pipeline", str(path)]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "expects 16000 bytes" in printed
    assert "16384" in printed
    for arguments in (["nothing.toml"], ["128x64", "bf17"], ["128", "bf16"], [str(path), "--block", "3"]):
        assert run(["pipeline", *arguments]) == 2
        assert "Traceback" not in capsys.readouterr().err


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "name",
    [
        "ring of three, seven steps",
        "multicast",
        "tcgen05",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("two consumers", "ldmatrix", "cp.async", "stores")),
    ],
)
def test_long_loops_proven_by_a_round_equal_the_whole_run(name, monkeypatch):
    data = RIGHT[name]()
    for role in data["roles"]:
        for step in role["steps"]:
            if "loop" in step and "start" not in step:
                step["count"] = 611
        for step in role["steps"]:
            if "start" in step:
                step["start"] = 611
    quick = ts.simulate(data)
    monkeypatch.setattr(simulation, "shorten_loops", lambda _: None)
    whole = ts.simulate(data)
    assert (quick.verdict, quick.actions, quick.barriers) == (whole.verdict, whole.actions, whole.barriers)
    assert (quick.verdict, quick.aliasing, quick.warnings) == ("proven", (), ())


@pytest.mark.parametrize(
    ("expression", "period"),
    [
        ("i % 4", 4),
        ("(i / 4) % 2", 8),
        ("i % 6 ^ 1", 6),
        ("0", 1),
        ("i", None),
        ("i * (rank + 1) % 7", 7),
        ("i * i % 12", 6),
    ],
)
def test_the_period_of_a_loop(expression, period):
    data = ring() | {"barriers": {"full": {"count": 1, "stages": 12}, "empty": {"count": 1, "stages": 12}}}
    for role in data["roles"]:
        role["steps"] = [{"loop": "i", "count": 1000, "steps": [{"wait": f"full[{expression}]", "parity": 0}]}]
    short = shorten_loops(UnrolledPipeline(Pipeline.from_dict(data)))
    assert (short and short.period) == period


@pytest.mark.parametrize("steps", [[], [{"arrive": "full", "when": "i > 5000"}]])
def test_a_long_loop_may_do_nothing(steps):
    first = [{"loop": "i", "count": 1000, "steps": steps}, {"arrive": "full"}]
    roles = [{"name": "first", "steps": first}, {"name": "second", "steps": [{"wait": "full", "parity": 0}]}]
    assert ts.simulate({"barriers": {"full": {"count": 1}}, "slots": {}, "roles": roles}).verdict == "proven"


def test_a_mistake_late_in_a_long_loop_is_found():
    data = ring(steps=1500)
    data["roles"][0]["steps"][0]["steps"][1]["bytes"] = "5120 + (i == 1321)"
    found = ts.simulate(data).mistake
    assert (found.rule, found.values) == (
        "pipeline-bytes",
        {"barrier": "full[1]", "phase": 660, "expected": 5121, "brought": 5120},
    )


def test_the_search_follows_every_order_to_its_end():
    """A role that has left stays away: what the others then wait for never comes."""
    steps = {"leaver": [{"arrive": "done"}], "waiter": [{"wait": "done", "parity": 0}, {"wait": "done", "parity": 1}]}
    roles = [{"name": name, "steps": listed} for name, listed in steps.items()]
    pipeline = Pipeline.from_dict({"barriers": {"done": {"count": 1}}, "slots": {}, "roles": roles})
    unrolled = UnrolledPipeline(pipeline)
    found = search(unrolled.role_program, 1000)
    way = describe_path(unrolled, found.path, found.blocked)
    assert found.mistake.outcome == "hang"
    assert "leaver: leaves" in way
    assert way[-1].startswith("waiter: wait done, parity 1")
