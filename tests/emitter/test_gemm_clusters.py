"""GEMMs of wgmma whose blocks fetch an operand for each other: right in the machine, proven, and wrong counts are noticed."""

import re

import numpy as np
import pytest
from gemm_machine import run_gemm

import tilescope as ts
from tilescope.emitter.emission import device_half

SMALL = {"tile": (64, 64, 64), "stages": 2, "sms": 4, "ping_pong": False}
CASES = {
    "B": ((300, 200, 160), SMALL | {"multicast": 2}),
    "A, two warpgroups": ((300, 200, 160), SMALL | {"tile": (128, 64, 64), "multicast": (1, 2)}),
    "B, swapped": ((100, 200, 96), SMALL | {"tile": (16, 64, 64), "swapped": True, "multicast": 2}),
    "A, MN-major": ((136, 200, 96), SMALL | {"a_major": "MN", "multicast": (1, 2)}),
    "B, groups, an epilogue": (
        (300, 200, 160),
        SMALL | {"multicast": 2, "group": 2, "epilogue": "scale+bias+residual"},
    ),
    "A, parts of k, a residual": (
        (130, 200, 448),
        SMALL | {"tile": (64, 128, 64), "sms": 132, "multicast": (1, 2), "parts": 3, "epilogue": "residual"},
    ),
    "B, four blocks": ((200, 128, 320), SMALL | {"sms": 16, "multicast": (4, 1)}),
    "A, four blocks, swapped": ((100, 256, 320), SMALL | {"sms": 16, "swapped": True, "multicast": (1, 4)}),
    "B, a batch": ((136, 72, 96), SMALL | {"multicast": 2, "batch": 3}),
    "A, a batch, swapped, groups": (
        (104, 200, 96),
        SMALL | {"tile": (16, 64, 64), "swapped": True, "multicast": (1, 2), "group": 2, "batch": 2},
    ),
    "A, a batch, parts of k": (
        (70, 200, 320),
        SMALL | {"tile": (64, 64, 64), "sms": 132, "multicast": (1, 2), "parts": 2, "batch": 2},
    ),
    "B, four blocks, parts of k": ((200, 128, 640), SMALL | {"sms": 132, "multicast": (4, 1), "parts": 2}),
    "B, a last round shared": ((320, 192, 256), SMALL | {"sms": 16, "multicast": 2, "tail": 4}),
}
MUTANTS = {
    "empty counts one block": (r"mbarrier_init\(empty \+ 8 \* stage, 2\)", "mbarrier_init(empty + 8 * stage, 1)"),
    "empty counts three": (r"mbarrier_init\(empty \+ 8 \* stage, 2\)", "mbarrier_init(empty + 8 * stage, 3)"),
    "full counts two": (r"mbarrier_init\(full \+ 8 \* stage, 1\)", "mbarrier_init(full + 8 * stage, 2)"),
    "half of B expected": (r"(mbarrier_arrive_expect\(full \+ 8 \* slot, )16384\)", r"\g<1>12288)"),
    "slots freed at home alone": (r"threadIdx.x % 128 < 2\)", "threadIdx.x % 128 < 1)"),
    "slots freed here only": (r"mbarrier_arrive_at\(([^;]*), threadIdx.x % 128\);", r"mbarrier_arrive(\1);"),
    "B for this block alone": (r"3 << \(2 \* y\)", "1 << rank"),
    "the other part of B": (r"b_part = x;", "b_part = 1 - x;"),
    "nobody waits for empty": (r"mbarrier_wait\(empty \+ 8 \* slot[^;]*;  // passes", ";  // passes"),
    "blocks start alone": (r"cluster_sync\(\);  // both", "__syncthreads();  // both"),
}
EQUIVALENT = {"the other part of B"}  # each block fetches half: which of them is the same to both


def planned(name):
    shape, options = CASES[name]
    return ts.plan_gemm(*shape, "bf16", **options)


def errors(ran):
    return [finding.rule for finding in ran.findings if finding.severity == "error"]


@pytest.mark.thinned(14)
@pytest.mark.parametrize("name", CASES)
def test_the_kernel_gives_the_product_and_no_finding(name):
    gemm = planned(name)
    c, expected, ran = run_gemm(gemm)
    assert (ran.outcome, [finding.rule for finding in ran.findings]) == ("finished", [])
    assert (c.astype(np.float64) == expected.astype(c.dtype).astype(np.float64)).all()


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", CASES)
def test_its_pipeline_is_proven(name):
    gemm = planned(name)
    pipeline = ts.plan_pipeline(gemm)
    counts = {barrier.name: barrier.count for barrier in pipeline.barriers}
    assert (counts["full"], counts["empty"]) == (1, max(gemm.schedule.multicast) * (2 if gemm.sums[0] == 128 else 1))
    assert ts.simulate(pipeline).verdict == "proven"


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_count_is_noticed(mutant):
    gemm = planned("B")
    pattern, replacement = MUTANTS[mutant]
    source, changed = re.subn(pattern, replacement, device_half(ts.emit(gemm, "cuda")))
    assert changed
    c, expected, ran = run_gemm(gemm, source=source)
    wrong = (c.astype(np.float64) != expected.astype(c.dtype).astype(np.float64)).any()
    assert bool(errors(ran) or ran.outcome != "finished" or wrong) == (mutant not in EQUIVALENT)


def test_a_block_that_frees_a_slot_releases_nothing_to_the_cluster():
    """A release to the cluster cost 0.8 us a K step on an H200, and there is nothing to release."""
    source = device_half(ts.emit(planned("B"), "cuda"))
    assert "mbarrier.arrive.shared::cluster.b64" in source
    assert "mbarrier.arrive.release.cluster" not in source


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"multicast": (2, 2)}, "multicast = (2, 2) with wgmma"),
        ({"multicast": 4, "sms": 8}, "multicast = (4, 1): 8 clusters of 4 blocks"),
        ({"multicast": 2, "split": 2}, "multicast = (2, 1) with split = 2"),
        ({"multicast": 2, "dependent": True}, "multicast = (2, 1) with a dependent launch"),
        ({"multicast": 2, "experts": 3}, "multicast = (2, 1) with experts"),
        ({"multicast": 2, "epilogue": "swiglu"}, "multicast = (2, 1) with gates side by side"),
    ],
    ids=str,
)
def test_what_a_cluster_does_not_do_is_refused_with_its_reason(options, found):
    with pytest.raises(ts.PlanError) as refused:
        ts.plan_gemm(300, 256, 1024, "bf16", tile=(64, 64, 64), **options)
    assert found in [violation.found for violation in refused.value.violations]


def test_every_form_launches_whole_clusters():
    """A grid that is no multiple of the cluster is refused by the driver."""
    gemm = ts.plan_gemm(200, 192, 320, "bf16", tile=(64, 64, 64), multicast=(4, 1), parts=1)
    assert gemm.blocks_on(132) == 12
    assert "blocks = 4 * (ALL_TILES < sms / 4 ? ALL_TILES : sms / 4);" in ts.emit(gemm, "cuda")
