"""The suite `pipelines` without a card: steps as rows, what reads must see, how outcomes are judged and told."""

import json
import random
import re

import numpy as np
import pytest

import tilescope as ts
from tilescope.cli import run
from tilescope.errors import RuleError
from tilescope.gpu.driver.nvrtc import kernel_source
from tilescope.gpu.verify.suites import Outcome, pipeline_generator, pipeline_steps, suite_named
from tilescope.gpu.verify.suites.pipeline_actions import NotRunnableError
from tilescope.gpu.verify.suites.pipeline_order import NEVER
from tilescope.gpu.verify.suites.pipeline_steps import OPS, ROW_BYTES, Encoded, source_rows
from tilescope.gpu.verify.suites.pipeline_suite import (
    _DETAIL_FIELDS,
    _FIELDS,
    _RESULT,
    SEEDS,
    describe_outcome,
    launch_tables,
    summary,
)

SUITE = suite_named("pipelines")
RIGHT = bytes(SEEDS + 4 * len(_DETAIL_FIELDS))


def ring(*, parity="i / 2 % 2 ^ 1", copied=64, threads=32, release=1):
    """Two stages of 64 bytes, four tiles."""
    return {
        "barriers": {"full": {"count": 1, "stages": 2}, "empty": {"count": release, "stages": 2}},
        "slots": {"a": {"stages": 2, "bytes": 64}},
        "roles": [
            {
                "name": "producer",
                "steps": [
                    {
                        "loop": "i",
                        "count": 4,
                        "steps": [
                            {"wait": "empty[i % 2]", "parity": parity},
                            {"expect": "full[i % 2]", "bytes": copied},
                            {"copy": "a[i % 2]", "bytes": copied, "barrier": "full[i % 2]", "tile": "i"},
                        ],
                    }
                ],
            },
            {
                "name": "consumer",
                "threads": threads,
                "steps": [
                    {
                        "loop": "i",
                        "count": 4,
                        "steps": [
                            {"wait": "full[i % 2]", "parity": "i / 2 % 2"},
                            {"read": ["a[i % 2]"], "tile": "i"},
                            {"release": "empty[i % 2]", "count": release},
                        ],
                    }
                ],
            },
        ],
    }


def one_role(*steps, slots=None, barriers=None, threads=1):
    role = {"name": "p", "threads": threads, "steps": list(steps)}
    return {"barriers": barriers or {"f": {"count": 1}}, "slots": slots or {"a": {"bytes": 64}}, "roles": [role]}


def rows(encoded, op):
    return [row for row in encoded.rows if row[0] == OPS.index(op)]


def test_the_kernel_numbers_steps_and_results_as_the_suite_does():
    text = kernel_source("pipelines")
    numbered = {
        name: re.search(rf"enum \{{ {name}.*? \}}", text)[0][7:-2].split(", ") for name in ("END", "HUNG_WARPS")
    }
    assert [name.casefold() for name in numbered["END"]] == list(OPS)
    assert [name.casefold() for name in numbered["HUNG_WARPS"]] == [*_FIELDS, "result_fields"]
    constants = dict(re.findall(r"(MAX_WARPS|MARK) = (\w+)", text))
    assert int(constants["MAX_WARPS"]) == pipeline_steps.MAX_WARPS
    assert int(constants["MARK"], 16) == pipeline_steps.MARK
    assert len(re.search(r"struct Step \{ int (.*?); \}", text)[1].split(", ")) == len(Encoded(ring()).rows[0])
    assert len(re.search(r"struct Warp \{ int (.*?); \}", text)[1].split(", ")) == len(Encoded(ring()).warp_table()[0])


def test_a_ring_becomes_rows_with_places_in_shared_memory():
    encoded = Encoded(ring())
    producer_at_empty, consumer_at_full = [[2, 1], [3, 1], [2, 0], [3, 0]], [[0, 0], [1, 0], [0, 1], [1, 1]]
    assert [row[1:3] for row in rows(encoded, "wait")] == producer_at_empty + consumer_at_full
    copies = rows(encoded, "copy")
    assert [(barrier, at, size) for _, barrier, at, size, *_ in copies] == [(0, 128, 64), (1, 192, 64)] * 2
    assert [source // ROW_BYTES for *_, source, _lanes, _meets in copies] == [0, 1, 2, 3]
    assert [serials.tolist() for serials in encoded.expected] == [[serial] * 4 for serial in range(4)]


def test_a_read_of_what_no_copy_filled_can_never_be_right():
    encoded = Encoded(ring(copied=32))
    assert [serials.tolist() for serials in encoded.expected[:2]] == [[0, 0, NEVER, NEVER], [1, 1, NEVER, NEVER]]


def test_a_read_names_its_tile():
    copies = [{"copy": "a", "bytes": 64, "barrier": "f", "tile": tile} for tile in (0, 1)]
    steps = [{"expect": "f", "bytes": 128}, *copies, {"wait": "f", "parity": 0}]
    assert Encoded(one_role(*steps, {"read": ["a"], "tile": 1})).expected[0].tolist() == [1] * 4
    assert Encoded(one_role(*steps, {"read": ["a"], "tile": 0})).expected[0].tolist() == [NEVER] * 4


def test_copies_of_one_fill_lie_behind_each_other():
    halves = [{"copy": "a", "bytes": size, "barrier": "f"} for size in (16, 48)]
    encoded = Encoded(one_role({"expect": "f", "bytes": 64}, *halves, {"wait": "f", "parity": 0}, {"read": ["a"]}))
    first, second = rows(encoded, "copy")
    assert (second[2] - first[2], second[5] % ROW_BYTES) == (16, 16)
    assert encoded.expected[0].tolist() == [0, 1, 1, 1]


def test_the_source_holds_the_serial_of_every_chunk():
    table = source_rows(3).reshape(3, ROW_BYTES // 16, 4)
    assert table.nbytes == 3 * ROW_BYTES
    assert table[2, 5].tolist() == [2, 5, 0xFFFFFFFF - 2, pipeline_steps.MARK]


def test_warps_of_a_role_share_its_steps_and_each_has_its_place():
    encoded = Encoded(ring(threads=100, release=4))
    table = encoded.warp_table()
    first = len([place for place in encoded.places if place.agent.startswith("producer")])
    assert table[:6] == [
        *([0, 0, 1, 0, 0],),
        *([first, warp, 4, 1, 1 + warp] for warp in range(4)),
        [-1, 0, 1, 0, 0],
    ]
    assert encoded.warps_of_cluster == 5


def test_a_wgmma_reads_again_when_it_is_waited_for():
    multiply = [{"multiply": ["a"]}, {"commit": "wgmma"}, {"fence": "proxy.async"}, {"wait_group": "wgmma"}]
    encoded = Encoded(one_role({"write": ["a"]}, {"fence": "proxy.async"}, *multiply, threads=128))
    names = [OPS[row[0]] for row in encoded.rows]
    assert names == ["write", "fence", "read", "fence", "read", "end"]
    assert [row[4] for row in rows(encoded, "read")] == [1, 1]  # by the first warp


def test_the_cluster_does_not_wait_for_a_role_that_has_left():
    waits = {"name": "waits", "steps": [{"write": ["a"]}, {"cluster": "sync"}, {"read": ["a"]}]}
    leaves = {"name": "leaves", "steps": [{"fence": "proxy.async"}]}
    stays = {"name": "stays", "steps": [{"wait": "f", "parity": 0}]}
    data = {"cluster": [2, 1], "barriers": {"f": {"count": 1}}, "slots": {"a": {"bytes": 16}}}
    assert [serials.tolist() for serials in Encoded(data | {"roles": [waits, leaves]}).expected] == [[0], [1]]
    assert [serials.tolist() for serials in Encoded(data | {"roles": [waits, stays]}).expected] == [[NEVER], [NEVER]]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (one_role({"arrive": "f", "count": 2}), "a barrier faults"),
        (one_role({"init": ["f"]}, {"init": ["f"]}), "initialised twice"),
        (one_role({"copy": "a", "bytes": 24, "barrier": "f"}), "no bulk copy"),
        (one_role({"write": ["a"]}, slots={"a": {"bytes": 24}}), "24 bytes"),
        (one_role({"write": ["a"]}, threads=544), "more steps or warps"),
        (one_role({"write": ["a"]}) | {"cluster": [3, 1]}, "clusters of 3"),
        (one_role({"commit": "f"}), "tcgen05"),
    ],
)
def test_what_the_interpreter_cannot_run_is_refused(data, why):
    with pytest.raises(NotRunnableError, match=why):
        Encoded(data)


def test_tables_of_several_pipelines_point_into_each_other():
    first, second = Encoded(ring()), Encoded(ring(threads=64, release=2))
    pipelines, warps, steps, serials, counts, copied = launch_tables([first, second])
    assert pipelines[:, 0].tolist() == [0, 16]
    assert warps[16, 0] == len(first.rows)
    own = steps[len(first.rows) :]
    reads = own[own[:, 0] == OPS.index("read")]
    assert [serials[at : at + 4].tolist() for at in reads[:, 3]] == [[serial] * 4 for serial in range(4)]
    assert counts[pipelines[1, 3] :].tolist() == [1, 1, 2, 2]
    assert len(copied) * 16 >= 8 * ROW_BYTES


def measured(encoded, **fields):
    """What the card reports when everything is right, but for some fields of the third seed."""
    results = np.zeros(SEEDS, _RESULT)
    results["warps_done"] = encoded.warps_of_cluster
    for name, value in fields.items():
        results[name][2] = value
    return Outcome(b"".join(summary(encoded, results, 0)))


def test_only_a_proven_pipeline_can_differ():
    right, wrong = {"pipeline": ring()}, {"pipeline": ring(parity="i / 2 % 2")}
    hung = {"hung_warps": 2, "hung_step": 0}
    assert ts.simulate(ring()).verdict == "proven"
    assert SUITE.difference(right, measured(Encoded(ring()))) == ""
    assert "hung under 1 of 24 seeds" in SUITE.difference(right, measured(Encoded(ring()), **hung))
    assert SUITE.difference(wrong, measured(Encoded(wrong["pipeline"]), **hung)) == ""
    assert "error 719" in SUITE.difference(right, Outcome(ended="error 719"))
    assert SUITE.difference(wrong, Outcome(ended="error 719")) == ""


def test_what_happened_is_said_with_the_step_and_the_serials():
    encoded = Encoded(ring())
    read = next(number for number, row in enumerate(encoded.rows) if row[0] == OPS.index("read"))
    found = {"wrong_chunks": 3, "wrong_step": read, "wrong_chunk": 1, "found": -0x11111112, "expected": 0}
    words = describe_outcome({"pipeline": ring()}, measured(encoded, **found))
    assert "read wrong data under 1 of 24" in words
    assert "seed 2: consumer 0 of block 0: read [0]" in words
    assert "chunk 1 has serial 0xeeeeeeee instead" in words
    assert "0x0" in words
    assert "did not report" in describe_outcome({"pipeline": ring()}, measured(encoded, warps_done=1))


def test_verdicts_and_outcomes_are_counted_and_the_smallest_failure_is_printed_whole():
    small, large = ring(), ring(threads=100, release=4)
    hangs = ring(parity="i / 2 % 2")
    hung = {"hung_warps": 1, "hung_step": 0}
    outcomes = [measured(Encoded(data), **hung) for data in (large, small, hangs)]
    outcomes.append(measured(Encoded(small)))
    note = SUITE.note([{"pipeline": data} for data in (large, small, hangs, small)], outcomes)
    assert "proven 3: hung 2, right 1" in note
    assert "hang 1: hung 1" in note
    assert json.loads(note.splitlines()[-1]) == small


@pytest.mark.usefixtures("predicting")
def test_the_command_tells_what_became_of_all_pipelines(capsys):
    assert run(["verify", "pipelines", "--count", "6"]) == 0
    shown = capsys.readouterr().out
    assert "says in all 6 cases." in shown
    assert re.search(r"proven \d+: right \d+", shown)


def test_a_proven_pipeline_that_goes_wrong_ends_the_command_with_status_1(predicting, capsys):
    predicting("WRONG")
    assert run(["verify", "pipelines", "--count", "6", "--json"]) == 1
    (suite,) = json.loads(capsys.readouterr().out)["suites"]
    assert suite["equal"] < suite["cases"]
    assert "proven, but the card" in suite["difference"]


@pytest.mark.parametrize(
    "shape", dict.fromkeys(pipeline_generator._SHAPES), ids=lambda shape: shape.__name__.strip("_")
)
def test_shapes_run_in_every_order_tried_and_show_every_read_one_content(shape):
    """A shape with nothing changed in it ends, and names no tile that is not there; a feasible pipeline may do anything."""
    ran = 0
    for number in range(8):
        data = shape(random.Random(f"{shape.__name__} {number}"))
        try:
            encoded = Encoded(data)
        except (RuleError, NotRunnableError):
            continue
        ran += 1
        if shape.__name__ != "draw_feasible_pipeline":
            assert not any((serials == NEVER).any() for serials in encoded.expected), json.dumps(data)
    assert ran


def test_half_of_what_is_drawn_is_proven_and_the_rest_goes_wrong_in_several_ways():
    found = [ts.simulate(case["pipeline"], max_states=50) for case in SUITE.cases(48, 3, "sm_90")]
    verdicts = [each.verdict if each.mistake is None else each.mistake.outcome for each in found]
    assert verdicts.count("proven") > 16
    assert {"hang", "race"} <= set(verdicts)
