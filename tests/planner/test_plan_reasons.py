"""Reasons are data first: every sentence is made from named values, and reads as people write."""

import copy
import json
import pickle
import re

import pytest

import tilescope as ts
from tilescope.planner import Reason
from tilescope.planner.reason import SENTENCES
from tilescope.sentence import fact_names
from tilescope.value import Value


def sentences(tile, data_type="bf16", **options):
    return [str(reason) for reason in ts.plan(tile, data_type, **options).best.reasons]


def said(tile, **options):
    return "\n".join(sentences(tile, **options))


def test_the_predicted_rate_is_a_number_with_its_card(wording):
    assert "4559 GB/s on an H200" in said((128, 64))
    assert re.search(r"2400 GB/s on an H200, 53 %", said((128, 64), swizzle="none"))
    assert re.search(r"4190 GB/s on an H200, 97 %", said((128, 64), direction="store"))
    wording("rates of a store", said((128, 64), direction="store"))
    assert re.search(r"Not weighed: .* B200", said((128, 64), arch="sm_100"))
    assert re.search(r"Not weighed: .* RTX 5090", said((128, 64), card="RTX 5090"))
    assert re.search(r"Not weighed: .* B300", said((128, 64), arch="sm_103"))
    assert "no card of sm_110" in said((128, 64), arch="sm_110")
    assert "at most 2039 GB/s on an A100" in said((128, 64), card="A100")
    assert re.search(r"Not weighed: .* H100 SXM", said((128, 64), arch="H100"))
    wording("rates that are not known", said((128, 64), arch="H100"))


def test_few_bytes_in_flight_lower_the_predicted_rate(wording):
    """32 blocks of a tile of 1 KiB: 32 KiB in flight on an SM, at which 3925 of 4336 GB/s were measured."""
    best = ts.plan((8, 64), "bf16", operand="B").best
    assert (best.blocks_per_sm, best.in_flight_bytes) == (32, 32768)
    assert best.costs.gb_per_s == pytest.approx(4559 * 3925 / 4336, rel=0.01)
    assert "[: 32768" not in str(best.reasons[2])
    wording("few bytes in flight lower the predicted rate", str(best.reasons[2]))
    assert ts.plan((8, 64), "bf16", operand="B", stages=4).best.costs.gb_per_s == 4559


def test_rows_are_counted_in_spans(wording):
    wording("rows are counted in spans", sentences((64, 128))[0])
    wording("rows are counted in spans, 2", sentences((64, 64))[0])


def test_a_result_has_no_k():
    store = ts.plan((128, 64), "bf16", direction="store")
    assert store.problem.extent_names == ("m", "n")
    assert "(m, n) at" in store.text()
    assert "(mn, k) at" in ts.plan((128, 64), "bf16").text()
    with pytest.raises(ts.PlanError, match="plan-row: n = 63"):
        ts.plan((64, 63), "bf16", direction="store")


def test_a_ranking_counts_no_ranks_that_it_does_not_show():
    drawn = ts.plan((128, 64), "bf16").text()
    ranking = drawn[drawn.index("Plans, best first") :]
    assert ranking.splitlines()[2].startswith("128B")
    assert not re.search(r"^ *\d+  ", ranking.split("\n\n")[0], re.MULTILINE)


def test_a_reason_comes_before_the_candidates_that_it_refuses():
    drawn = " ".join(ts.plan((100, 64), "bf16").text().split())
    assert "Refused 1 wgmma-tile: n = 100" in drawn
    assert "wgmma takes n of bfloat16" in drawn
    assert "multiples of 8. Use 104; TMA fills" in drawn


def test_one_thread_that_issues_many_small_copies_is_named(wording):
    """46 ns a copy: 16 boxes of 1 KiB take longer to issue than 132 SMs' share of 4559 GB/s takes to bring them."""
    best = ts.plan((128, 64), "bf16", swizzle="32B", atom_order="row").best
    [said] = [str(each) for each in best.reasons if each.name == "issue"]
    assert "thread issues 64 copies in 2.94" in said
    assert "us, and their bytes take 0.558" in said
    wording("one thread that issues many small copies is named", said)
    assert not [each for each in ts.plan((128, 64), "bf16").best.reasons if each.name == "issue"]


COMPLETIONS = [
    ({}, ("mbarrier", 16384, None, False, "every reader"), 8),
    ({"direction": "store"}, ("bulk group", None, "fence.proxy.async.shared::cta", True, "the issuing thread"), 0),
    ({"copy": "cp.async"}, ("cp.async group", None, "fence.proxy.async.shared::cta", True, "every copying thread"), 0),
    ({"copy": "cp.async", "consumer": "ldmatrix"}, ("cp.async group", None, None, True, "every copying thread"), 0),
    ({"copy": "ld.global"}, ("barrier", None, "fence.proxy.async.shared::cta", True, "every copying thread"), 0),
    ({"copy": "ld.global", "consumer": "ld.b128 rows"}, ("barrier", None, None, True, "every copying thread"), 0),
    ({"consumer": "ldmatrix"}, ("mbarrier", 16384, None, False, "every reader"), 8),
]


@pytest.mark.parametrize(("options", "expected", "barrier_bytes"), COMPLETIONS)
def test_completion_is_data(options, expected, barrier_bytes):
    best = ts.plan((128, 64), "bf16", **options).best
    found = best.completion
    assert (found.mechanism, found.expected_bytes, found.fence, found.barrier, found.waited_by) == expected
    assert best.barrier_bytes == barrier_bytes
    fences = [reason for reason in map(str, best.reasons) if "fence" in reason]
    assert bool(fences) == (found.fence is not None)


def test_a_reason_survives_json_pickle_and_copies():
    for reason in ts.plan_gemm(1000, 512, 512, "bf16", arch="sm_90").reasons:
        assert Value.from_dict(json.loads(json.dumps(reason.to_dict()))) == reason
        assert pickle.loads(pickle.dumps(reason)) == copy.deepcopy(reason) == reason
        assert hash(copy.copy(reason)) == hash(reason)
        assert reason.to_dict()["sentence"] == str(reason) == reason.text()


@pytest.mark.parametrize("name", SENTENCES)
def test_every_sentence_is_said_of_a_plan_or_a_tile(name):
    """Whole: with every value there; short: with every bracket left out."""
    template = SENTENCES[name]
    numbers = {"here", "there", "share", "gb_per_s", "issue_us", "memory_us", "floor_us", "full"}
    tuples = {
        "box",
        "cells",
        "steps",
        "tile",
        "terms",
        "options",
        "tied",
        "alike",
        "next",
        "matrices",
        "clustered",
        "a_shape",
        "b_shape",
        "shared",
    }
    counts = set(re.findall(r"\{(\w+):[a-zA-Z]+[|}]", template)) - {"card"}

    def example(fact):
        if fact in numbers:
            return 0.5
        if fact in tuples:
            return "1", "2"
        return 1 if fact in counts else "H200"

    facts = {fact: example(fact) for fact in fact_names(template)}
    whole = str(Reason(name, facts))
    assert "{" not in whole
    assert "[" not in whole
    optional = {fact for part in re.findall(r"\[\[(.*?)\]\]", template) for fact in fact_names(part)}
    short = str(Reason(name, facts | dict.fromkeys(optional)))
    assert (len(short) < len(whole)) == bool(optional)
    assert "None" not in short


@pytest.mark.parametrize("arch", ["sm_100", "sm_120"])
def test_a_tile_of_packed_elements_names_the_kinds_that_read_it(arch, wording):
    [reason] = [reason for reason in sentences((128, 256), "e2m1", arch=arch) if "two to a byte" in reason]
    wording("a tile of packed elements", reason)
    unpacked = ts.plan((128, 256), "16u4_align16b", arch=arch).best
    assert unpacked.stage_bytes == 2 * ts.plan((128, 256), "e2m1", arch=arch).best.stage_bytes
    assert "two to a byte" not in "\n".join(map(str, unpacked.reasons))
