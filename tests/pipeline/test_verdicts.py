"""What a verdict rests on: not on nominal times; and what it says beyond it: remedies that were tried, limits, scopes, lanes."""

import json
from pathlib import Path

import pytest
from descriptions import RIGHT, ring
from generated import pipelines
from naive import naive

import tilescope as ts
from tilescope import view
from tilescope.cli import run
from tilescope.pipeline import simulation
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.toml_text import toml_text

GOLDEN = Path(__file__).parent.parent / "golden" / "pipelines"
FALSE_PROOFS = {row["name"]: row["pipeline"] for row in json.loads((GOLDEN / "false_proofs.json").read_text())}
SEEDS_OF_TICKS = (0, 1, 40, 1 << 30)


def decided(data, copy_ticks):
    found = simulation._decide(Pipeline.from_dict(data), 20_000, copy_ticks)
    return "mistake" if found.mistake else "proven" if found.is_complete else "undecided"


@pytest.mark.parametrize("name", sorted(FALSE_PROOFS.keys() - {"L"}))
def test_the_verdict_on_what_was_once_proven_does_not_change_with_the_time_of_copies(name):
    assert {decided(FALSE_PROOFS[name], ticks) for ticks in SEEDS_OF_TICKS} == {"mistake"}


@pytest.mark.parametrize("count", [20, pytest.param(60, marks=pytest.mark.slow)])
def test_no_verdict_changes_with_the_time_of_copies(count):
    for name, data in pipelines(90, count):
        try:
            verdicts = {decided(data, ticks) for ticks in SEEDS_OF_TICKS}
        except ts.RuleError:
            continue
        assert len(verdicts) == 1, (name, verdicts, data)


# the rule by which every case is named
RULES = {
    "A": "pipeline-race",
    "A2": "pipeline-race",
    "B": "pipeline-race",
    "B2": "pipeline-race",
    "C": "pipeline-arrivals",
    "D": "pipeline-overlap",
    "E": "pipeline-beyond",
    "E2": "pipeline-partial",
    "F": "pipeline-bytes",
    "G": "pipeline-registers",
    "H": "pipeline-init",
    "I": "pipeline-warps",
    "I2": "pipeline-warps",
    "J": "pipeline-stale",
    "K": "pipeline-overlap",
    "M": "pipeline-exit",
}


@pytest.mark.parametrize("name", RULES)
def test_what_was_once_proven_is_found_by_its_name(name):
    assert ts.simulate(FALSE_PROOFS[name]).mistake.rule == RULES[name]


def test_every_number_that_no_instruction_takes_is_named_at_once():
    with pytest.raises(ts.RuleError) as refused:
        ts.simulate(FALSE_PROOFS["L"])
    assert [violation.rule for violation in refused.value.violations] == ["pipeline-number"] * 5
    assert [violation.found for violation in refused.value.violations] == [
        "bytes = -16",
        "bytes = -16",
        "count = -1",
        "parity = 2",
        "sync = 17",
    ]


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.toml")))
def test_real_kernels_are_proven_by_one_run(name):
    found = ts.simulate(Pipeline.from_file(GOLDEN / f"{name}.toml"))
    assert (found.verdict, found.states, found.aliasing) == ("proven", 0, ())


# ---- remedies


def cured(data, changes):
    """The data with the change that a remedy asks for."""
    text = json.dumps(data)
    for before, after in changes.items():
        assert before in text, before
        text = text.replace(before, after)
    return json.loads(text)


def test_a_reader_that_did_not_wait_is_not_told_to_expect_bytes(wording):
    data = {
        "barriers": {"full": {"count": 1}, "other": {"count": 1}},
        "slots": {"a": {"bytes": 64}},
        "roles": [
            {
                "name": "producer",
                "steps": [
                    {"expect": "full", "bytes": 64},
                    {"copy": "a", "bytes": 64, "barrier": "full"},
                    {"wait": "full", "parity": 0},
                    {"expect": "full", "bytes": 64},
                    {"copy": "a", "bytes": 64, "barrier": "full"},
                    {"arrive": "other"},
                ],
            },
            {"name": "reader", "steps": [{"wait": "other", "parity": 0}, {"read": ["a"]}]},
        ],
    }
    found = ts.simulate(data).mistake
    assert found.rule == "pipeline-race"
    wording("a reader that did not wait", found)


def test_a_producer_that_is_stuck_elsewhere_is_not_told_to_start_with_parity_1():
    """It waits for a consumer that never frees a slot, because that one waits at a bar.sync for a role that never comes."""
    data = ring(stages=1, steps=3)
    data["roles"][1]["steps"][0]["steps"].insert(3, {"sync": 1, "threads": 160})
    found = ts.simulate(data).mistake
    assert (found.rule, found.subject) == ("pipeline-sync", "bar 1")
    assert found.fix == "Use threads = 128."
    assert ts.simulate(cured(data, {'"threads": 160': '"threads": 128'})).verdict == "proven"


def test_a_barrier_is_to_be_initialised_with_the_arrivals_of_all_roles():
    """In the phase that hangs four of eight arrivals have come: the others are held up behind it."""
    data = ring(stages=2, steps=4, consumers=2)
    data["barriers"]["empty"]["count"] = 16
    for step in data["roles"][1]["steps"][0]["steps"]:
        if "release" in step:
            step["count"] = 4
    found = ts.simulate(data).mistake
    assert found.fix == "Initialise empty with 8."
    assert ts.simulate(cured(data, {'"count": 16': '"count": 8'})).verdict == "proven"


def test_a_release_that_another_block_lacks_is_found(wording):
    data = RIGHT["multicast"]()
    loop = next(step for step in data["roles"][1]["steps"] if "loop" in step)
    del loop["steps"][-1]["mask"]
    found = ts.simulate(data).mistake
    assert (found.rule, found.values["expected"], found.values["came"]) == ("pipeline-arrivals", 2, 1)
    assert "mask = 0x3" in found.fix
    wording("a release that another block lacks", found)
    loop["steps"][-1]["mask"] = 3
    assert ts.simulate(data).verdict == "proven"


def test_the_most_registers_that_fit_are_named():
    data = {
        "registers": 168,
        "roles": [
            {"name": "producer", "threads": 128, "steps": [{"registers": 40}]},
            {"name": "consumer", "threads": 128, "instances": 2, "steps": [{"registers": 240}]},
        ],
    }
    found = ts.simulate(data).mistake
    assert "at most 232 registers" in found.fix
    assert ts.simulate(cured(data, {"240": "232"})).verdict == "proven"
    assert ts.simulate(cured(data, {"240": "240"})).verdict == "mistake"


def test_a_remedy_that_does_not_cure_is_not_printed(wording):
    """Both a wrong count and a slot that nobody fills."""
    data = {
        "barriers": {"full": {"count": 2}},
        "slots": {"a": {"bytes": 64}},
        "roles": [{"name": "lonely", "steps": [{"arrive": "full"}, {"wait": "full", "parity": 0}, {"read": ["a"]}]}],
    }
    found = ts.simulate(data).mistake
    assert found.rule == "pipeline-arrivals"
    assert "Initialise full with 1." in found.fix
    assert found.fix.endswith("(pipeline-unfilled).")
    wording("a remedy behind which another mistake shows", found)


def test_remedies_of_changed_rings_cure():
    """Whatever remedy is printed for a ring with one wrong number, it says nothing of another mistake."""
    told = 0
    for place, argument, values in (
        ((0, 0), "parity", ["(i / 2) % 2"]),
        ((0, 1), "bytes", [5119, 4096, 6144, 16]),
        ((1, 0), "parity", ["(i / 2) % 2 ^ 1"]),
        ((1, 4), "count", [2]),
    ):
        for value in values:
            data = ring(steps=4)
            data["roles"][place[0]]["steps"][0]["steps"][place[1]][argument] = value
            found = ts.simulate(data)
            assert found.verdict == "mistake"
            told += "another mistake" not in found.mistake.fix and "no single change" not in found.mistake.fix
    assert told >= 6


# ---- sentences that can be followed


def one_role(*steps, barriers=None, slot_bytes=128, threads=1):
    role = {"name": "lone", "threads": threads, "steps": list(steps)}
    return {"barriers": barriers or {"full": {"count": 1}}, "slots": {"a": {"bytes": slot_bytes}}, "roles": [role]}


def test_copies_that_overlap_in_part_name_the_bytes_of_the_second():
    copies = [{"copy": "a", "bytes": 64, "barrier": "full", "offset": offset} for offset in (0, 32)]
    found = ts.simulate(one_role({"expect": "full", "bytes": 128}, *copies)).mistake
    assert found.rule == "pipeline-overlap"
    assert "bytes 32 to 95 of a" in found.found
    assert (found.values["first"], found.values["last"]) == (32, 95)


def test_a_phase_that_no_copy_signals_is_not_told_to_expect_0_bytes(wording):
    found = ts.simulate(one_role({"expect": "full", "bytes": 128}, {"wait": "full", "parity": 0})).mistake
    assert (found.rule, found.values["expected"], found.values["brought"]) == ("pipeline-bytes", 128, 0)
    wording("a phase that no copy signals", found)


def test_a_barrier_whose_arrivals_count_0_is_not_told_to_count_0(wording):
    steps = [{"arrive": "full", "count": "1 - 1"}, {"wait": "full", "parity": 0}]
    found = ts.simulate(one_role(*steps)).mistake
    assert found.rule == "pipeline-arrivals"
    assert (found.values["expected"], found.values["came"]) == (1, 0)
    wording("arrivals that count 0", found)


def test_an_open_group_is_to_be_committed_before_it_is_waited_for(wording):
    data = one_role({"copy": "a", "bytes": 128, "by": "cp.async"}, {"read": ["a"]})
    found = ts.simulate(data).mistake
    assert "cp.async.wait_group 0" in found.fix
    wording("an open group", found)
    data["roles"][0]["steps"][1:1] = [{"commit": "cp.async"}, {"wait_group": "cp.async"}]
    assert ts.simulate(data).verdict == "proven"


def test_a_change_that_was_tried_in_vain_is_not_advised(wording):
    """p waits for a phase that nobody ends; flipping its parity cures nothing."""
    found = ts.simulate(FALSE_PROOFS["C"]).mistake
    assert (found.rule, found.values["came"], found.values["expected"]) == ("pipeline-arrivals", 0, 1)
    wording("no change that was tried cures it", found)
    assert found.way


def test_no_role_is_told_to_come_to_a_meeting_before_it_comes_there():
    """The writer comes to bar 2 twice in a round, the taker once."""

    def meet(number, when="1"):
        return {"sync": number, "threads": 96, "when": when}

    writer = [meet(2, "i > 0"), {"write": ["a"]}, {"fence": "proxy.async"}, meet(2, "i > 0"), meet(1)]
    taker = [meet(1), {"read": ["a"]}, {"bar_arrive": 2, "threads": 96, "when": "i < 2"}]
    roles = [
        {"name": "writer", "threads": 64, "steps": [{"loop": "i", "count": 3, "steps": writer}]},
        {"name": "taker", "threads": 32, "steps": [{"loop": "i", "count": 3, "steps": taker}]},
    ]
    found = ts.simulate({"slots": {"a": {"bytes": 64}}, "roles": roles}).mistake
    assert found.rule == "pipeline-circle"
    assert "writer waits for it" not in found.fix or "Let taker" in found.fix


# ---- scope, lanes, extents


def remote_release(scope):
    """Block 0 writes its slot and lets block 1, which copies over it, go on by a remote arrival."""
    arrive = {"arrive": "go", "mask": 2, "when": "rank == 0"} | ({"scope": scope} if scope else {})
    return {
        "cluster": [2, 1],
        "barriers": {"go": {"count": 1}, "full": {"count": 1}},
        "slots": {"a": {"bytes": 64}},
        "roles": [
            {
                "name": "one",
                "steps": [
                    {"write": ["a"], "when": "rank == 0"},
                    {"fence": "proxy.async"},
                    arrive,
                    {"wait": "go", "parity": 0, "when": "rank == 1"},
                    {"expect": "full", "bytes": 64, "mask": 1, "when": "rank == 1"},
                    {"copy": "a", "bytes": 64, "barrier": "full", "mask": 1, "when": "rank == 1"},
                    {"wait": "full", "parity": 0, "when": "rank == 0"},
                    {"cluster": "sync"},
                ],
            }
        ],
    }


def test_an_arrival_with_the_scope_of_a_block_orders_nothing_for_another():
    """NVIDIA/cutlass#3643."""
    assert ts.simulate(remote_release("")).verdict == "proven"
    assert ts.simulate(remote_release("cluster")).verdict == "proven"
    found = ts.simulate(remote_release("cta")).mistake
    assert (found.rule, found.subject) == ("pipeline-scope", "a of block 0")
    assert "scope = cta" in found.found


def test_a_bulk_copy_that_32_lanes_issue_brings_its_bytes_32_times(wording):
    """NVIDIA/cudnn-frontend#453."""
    data = {
        "barriers": {"full": {"count": 1}},
        "slots": {"a": {}},
        "roles": [
            {
                "name": "warp",
                "threads": 32,
                "steps": [
                    {"expect": "full", "bytes": 512},
                    {"copy": "a", "bytes": 512, "barrier": "full", "by": "bulk", "lanes": 32},
                    {"wait": "full", "parity": 0},
                    {"read": ["a"]},
                ],
            }
        ],
    }
    found = ts.simulate(data).mistake
    assert (found.rule, found.values["expected"], found.values["brought"]) == ("pipeline-bytes", 512, 16384)
    wording("a copy that 32 lanes issue", found)
    assert ts.simulate(cured(data, {'"lanes": 32': '"lanes": 1'})).verdict == "proven"
    each_its_own = cured(data, {'"expect": "full", "bytes": 512': '"expect": "full", "bytes": 16384'})
    assert ts.simulate(each_its_own).verdict == "proven"


def test_a_copy_by_lanes_without_a_barrier_is_no_remedy_for_another_barriers_bytes():
    steps = [
        {"copy": "b", "bytes": 128, "by": "cp.async", "lanes": 32},
        {"commit": "cp.async"},
        {"wait_group": "cp.async"},
        {"expect": "full", "bytes": 8192},
        {"copy": "a", "bytes": 4096, "barrier": "full"},
        {"wait": "full", "parity": 0},
    ]
    data = {
        "barriers": {"full": {"count": 1}},
        "slots": {"a": {"bytes": 4096}, "b": {"bytes": 4096}},
        "roles": [{"name": "warp", "threads": 32, "steps": steps}],
    }
    assert ts.simulate(data).mistake.fix == "Expect 4096 bytes."


# ---- flags in global memory, and grids that depend on each other


def split_k(polled=2, meet=True):
    """Three blocks write partial sums; two add to a flag, and the first reads them all."""
    return {
        "cluster": [3, 1],
        "flags": {"ready": {}},
        "slots": {"partial": {"stages": 3, "space": "gmem", "bytes": 64}},
        "roles": [
            {
                "name": "worker",
                "threads": 128,
                "steps": [
                    {"write": ["partial[rank]"], "when": "rank > 0", "tile": "rank"},
                    *([{"sync": 1, "threads": 128}] if meet else []),
                    {"signal": "ready", "when": "rank > 0"},
                    {"poll": "ready", "value": polled, "when": "rank == 0"},
                    {"read": ["partial[1]"], "when": "rank == 0", "tile": 1},
                    {"read": ["partial[2]"], "when": "rank == 0", "tile": 2},
                ],
            }
        ],
    }


def test_a_flag_in_global_memory_lets_one_block_read_what_others_wrote():
    assert ts.simulate(split_k()).verdict == "proven"
    assert ts.simulate(split_k(polled=1)).mistake.rule == "pipeline-race"
    assert ts.simulate(split_k(meet=False)).mistake.outcome == "race"


def test_a_flag_that_never_reaches_its_value_hangs(wording):
    found = ts.simulate(split_k(polled=3)).mistake
    assert (found.rule, found.outcome) == ("pipeline-flag", "hang")
    assert (found.subject, found.values["value"], found.values["reached"]) == ("ready", 3, 2)
    wording("a flag that never reaches its value", found)


def test_the_turns_of_a_semaphore_are_proven():
    """Every block adds its part to the same memory when the flag has its rank."""
    steps = [
        {"poll": "turn", "value": "rank"},
        {"read": ["sum"], "when": "rank > 0"},
        {"write": ["sum"]},
        {"sync": 1, "threads": 128},
        {"signal": "turn"},
    ]
    data = {
        "cluster": [4, 1],
        "flags": {"turn": {}},
        "slots": {"sum": {"space": "gmem", "bytes": 64}},
        "roles": [{"name": "worker", "threads": 128, "steps": steps}],
    }
    found = ts.simulate(data)
    assert found.verdict == "proven", found.sentence
    steps[0]["value"] = 0
    assert ts.simulate(data).mistake.outcome in ("race", "wrong data")


def dependent(waits, launches):
    """A grid that writes, and one that loads what it wrote."""
    return {
        "barriers": {"full": {"count": 1}},
        "slots": {"data": {"space": "gmem", "bytes": 64}, "a": {"bytes": 64}},
        "roles": [
            {
                "name": "grid before",
                "earlier": True,
                "steps": [
                    *([{"griddepcontrol": "launch"}] if launches else []),
                    {"write": ["data"]},
                    {"fence": "proxy.async"},
                ],
            },
            {
                "name": "producer",
                "steps": [
                    *([{"griddepcontrol": "wait"}] if waits else []),
                    {"expect": "full", "bytes": 64},
                    {"copy": "a", "bytes": 64, "barrier": "full", "source": "data"},
                ],
            },
            {"name": "consumer", "steps": [{"wait": "full", "parity": 0}, {"read": ["a"]}]},
        ],
    }


@pytest.mark.parametrize(("waits", "launches"), [(True, True), (True, False), (False, False)])
def test_a_dependent_grid_that_waits_or_starts_late_is_proven(waits, launches):
    assert ts.simulate(dependent(waits, launches)).verdict == "proven"


def test_a_dependent_grid_that_starts_early_has_to_wait():
    found = ts.simulate(dependent(waits=False, launches=True)).mistake
    assert found.subject == "data"
    assert found.outcome in ("race", "wrong data")


def stored(read_only):
    """A store whose result another role reads behind a flag."""
    return {
        "flags": {"done": {}},
        "slots": {"c": {"bytes": 64}, "out": {"space": "gmem", "bytes": 64}},
        "roles": [
            {
                "name": "writer",
                "steps": [
                    {"write": ["c"]},
                    {"fence": "proxy.async"},
                    {"store": "c", "into": "out"},
                    {"commit": "bulk"},
                    {"wait_group": "bulk", "read": read_only},
                    {"signal": "done"},
                ],
            },
            {"name": "reader", "steps": [{"poll": "done", "value": 1}, {"read": ["out"]}]},
        ],
    }


def test_a_store_whose_source_has_been_read_may_still_be_writing():
    assert ts.simulate(stored(read_only=False)).verdict == "proven"
    found = ts.simulate(stored(read_only=True)).mistake
    assert (found.rule, found.subject) == ("pipeline-race", "out")


@pytest.mark.parametrize("data", [split_k(), dependent(waits=True, launches=True), stored(read_only=True)])
def test_flags_and_grids_are_written_and_read_as_toml(data):
    pipeline = Pipeline.from_dict(data)
    assert Pipeline.from_text(toml_text(pipeline).encode(), "pipeline.toml") == pipeline
    assert Pipeline.from_dict(pipeline.to_dict()) == pipeline
    assert "global memory" in view.text(pipeline) or not pipeline.flags


def test_a_flag_that_does_not_exist_is_called_a_flag():
    with pytest.raises(ts.RuleError, match="flag ready"):
        ts.simulate({"roles": [{"name": "one", "steps": [{"signal": "ready"}]}]})


# ---- several warps

STORED_BY_ONE_WARP = [
    {"write": ["c"]},
    {"fence": "proxy.async"},
    {"sync": 1, "threads": 128},
    {"store": "c"},
    {"commit": "bulk"},
]


@pytest.mark.parametrize("meets", [True, False])
def test_one_warp_that_waited_for_its_store_does_not_speak_for_the_others(meets):
    steps = [
        *STORED_BY_ONE_WARP,
        {"wait_group": "bulk", "read": True},
        *([{"sync": 1, "threads": 128}] if meets else []),
        {"write": ["c"]},
    ]
    data = {"slots": {"c": {"bytes": 64}}, "roles": [{"name": "epilogue", "threads": 128, "steps": steps}]}
    found = ts.simulate(data)
    assert (found.verdict, naive(data)) == (("proven", "") if meets else ("mistake", "race"))
    if not meets:
        assert found.mistake.rule == "pipeline-warps"


def test_a_read_between_does_not_make_up_for_the_meeting():
    """The store is over for one warp; that all of them read the slot meanwhile says nothing of it."""
    steps = [
        *STORED_BY_ONE_WARP,
        {"wait_group": "bulk"},
        {"read": ["c"]},
        {"write": ["c"]},
    ]
    data = {"slots": {"c": {"bytes": 64}}, "roles": [{"name": "epilogue", "threads": 128, "steps": steps}]}
    assert naive(data) == "race"
    assert ts.simulate(data).mistake.rule == "pipeline-warps"


@pytest.mark.parametrize("again", ["arrive", "sync"])
def test_arriving_at_the_cluster_barrier_twice_without_a_wait_is_undefined(again):
    steps = [{"cluster": "arrive"}, {"cluster": again}, {"cluster": "wait"}]
    data = {"cluster": [2, 1], "roles": [{"name": "one", "steps": steps[: 3 if again == "arrive" else 2]}]}
    assert naive(data) == "undefined"
    found = ts.simulate(data).mistake
    assert (found.rule, found.outcome) == ("pipeline-sync", "undefined")


# ---- what is printed


def test_limits_of_the_model_stand_beside_the_verdict_where_they_apply(wording):
    (limit,) = ts.simulate(RIGHT["ring of two"]()).limits
    wording("a limit of the model", limit)
    tcgen05 = ts.simulate(RIGHT["tcgen05"]())
    assert any("tcgen05" in limit for limit in tcgen05.limits)
    assert " ".join(tcgen05.limits)[:40] in view.text(tcgen05, width=400)
    alone = {"barriers": {"f": {"count": 1}}, "roles": [{"name": "one", "steps": [{"arrive": "f"}]}]}
    assert ts.simulate(alone).limits == ()


def test_a_mistake_in_the_first_step_is_drawn(tmp_path, capsys):
    """NVIDIA/cutlass#2364: arrive.expect_tx before init."""
    path = tmp_path / "early.json"
    steps = [{"expect": "full", "bytes": 64}, {"init": ["full"]}]
    path.write_text(json.dumps({"barriers": {"full": {"count": 1}}, "roles": [{"name": "one", "steps": steps}]}))
    assert run(["pipeline", str(path), "--svg", str(tmp_path / "early.svg")]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "full before it is initialised" in printed
    assert "<svg" in (tmp_path / "early.svg").read_text()
