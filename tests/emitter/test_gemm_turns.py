"""Warpgroups that take tiles in turn: right in the machine, proven, and a wrong order is noticed."""

import re

import numpy as np
import pytest
from gemm_machine import run_gemm

import tilescope as ts
from tilescope.emitter.emission import device_half

SMALL = {"tile": (64, 128, 64), "stages": 3, "sms": 2, "ping_pong": True}
CASES = {
    "plain": ((200, 200, 160), "bf16", SMALL),
    "two blocks of rows": ((300, 264, 160), "bf16", SMALL | {"tile": (128, 128, 64), "stages": 2}),
    "multicast": ((300, 264, 160), "bf16", SMALL | {"tile": (128, 64, 64), "sms": 4, "multicast": 2}),
    "swapped, a residual": (
        (260, 200, 192),
        "bf16",
        SMALL | {"tile": (128, 64, 64), "swapped": True, "epilogue": "scale+residual"},
    ),
    "sums of a K step are promoted": ((192, 256, 256), "e4m3", SMALL | {"tile": (64, 128, 128), "stages": 2}),
    "a batch": ((64, 136, 128), "bf16", SMALL | {"batch": 3, "sms": 1}),
    "one tile": ((64, 128, 128), "bf16", SMALL),
}
MUTANTS = {
    "nobody waits for its turn": (r"mbarrier_wait\(order[^;]*;", ";"),
    "the turn is given to itself": (r"order \+ 8 \* \(1 - instance\)", "order + 8 * (instance)"),
    "the parity of the turn": (r"\(turn \+ 1 - instance\) % 2", "(turn + instance) % 2"),
    "empty counts both": (r"mbarrier_init\(empty \+ 8 \* stage, 1\)", "mbarrier_init(empty + 8 * stage, 2)"),
    "one buffer for both": (r"instance \* 2 \+ slice", "slice"),
    "both take the same tiles": (r"const int t = 2 \* turn \+ instance;", "const int t = 2 * turn;"),
}


def planned(name):
    shape, data_type, options = CASES[name]
    return ts.plan_gemm(*shape, data_type, **options)


def is_right(c, expected):
    return (c.astype(np.float64) == expected.astype(c.dtype).astype(np.float64)).all()


@pytest.mark.thinned(9)
@pytest.mark.parametrize("name", CASES)
def test_the_kernel_gives_the_product_and_no_finding(name):
    gemm = planned(name)
    assert gemm.schedule.ping_pong
    c, expected, ran = run_gemm(gemm)
    assert (ran.outcome, [finding.rule for finding in ran.findings if finding.severity == "error"]) == ("finished", [])
    assert is_right(c, expected)


@pytest.mark.parametrize("name", CASES)
def test_its_pipeline_is_proven_over_two_turns_of_each(name):
    pipeline = ts.plan_pipeline(planned(name))
    counts = {barrier.name: (barrier.count, barrier.stages) for barrier in pipeline.barriers}
    assert counts["order"] == (1, 2)
    assert pipeline.constants["tiles"] == 4
    assert ts.simulate(pipeline).verdict == "proven"


@pytest.mark.slow
@pytest.mark.thinned(6)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_order_is_noticed(mutant):
    gemm = ts.plan_gemm(320, 128, 192, "bf16", **(SMALL | {"sms": 1}))
    pattern, replacement = MUTANTS[mutant]
    source, changed = re.subn(pattern, replacement, device_half(ts.emit(gemm, "cuda")))
    assert changed
    c, expected, ran = run_gemm(gemm, source=source)
    found = [finding.rule for finding in ran.findings if finding.severity == "error"]
    assert found or ran.outcome != "finished" or not is_right(c, expected)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"split": 2}, "ping_pong with split = 2"),
        ({"tail": 2, "sms": 6}, "ping_pong with tail = 2"),
        ({"tile": (128, 256, 64)}, "a tile of 128 x 256 x 64 with 32768 sums for one warpgroup"),
        ({"arch": "sm_100"}, "ping_pong with tcgen05"),
    ],
    ids=str,
)
def test_what_does_not_take_turns_is_refused_with_its_reason(options, found):
    with pytest.raises(ts.PlanError) as refused:
        ts.plan_gemm(512, 512, 1024, "bf16", **({"tile": (128, 128, 64), "ping_pong": True} | options))
    assert found in [violation.found for violation in refused.value.violations]
