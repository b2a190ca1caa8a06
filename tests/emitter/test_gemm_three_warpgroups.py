"""GEMMs of large tiles, right in the machine and proven: 192 rows of three warpgroups, 160 sums a thread, any multiple of 8 columns."""

import re

import numpy as np
import pytest
from gemm_machine import run_gemm

import tilescope as ts
from tilescope.emitter.emission import device_half

WIDE = {"tile": (256, 160, 64), "stages": 4, "sms": 2, "ping_pong": False}
TALL = {"tile": (192, 64, 64), "stages": 2, "sms": 2, "ping_pong": False}
CASES = {
    "three warpgroups": ((400, 128, 160), "bf16", TALL),
    "swapped, sharing A": ((128, 400, 96), "bf16", TALL | {"tile": (64, 192, 64), "swapped": True, "multicast": 2}),
    "a last round shared": ((400, 64, 256), "bf16", TALL | {"tail": 2}),
    "an epilogue": ((400, 128, 320), "bf16", TALL | {"epilogue": "bias+relu+residual"}),
    "promoted sums": ((200, 64, 640), "e4m3", TALL | {"tile": (192, 64, 128)}),
    "slices of 40 rows": ((230, 64, 320), "bf16", TALL | {"tile": (200, 64, 64), "swapped": True}),
    "160 sums a thread": ((300, 168, 320), "bf16", WIDE),
    "160 sums a thread, swapped": (
        (168, 264, 320),
        "bf16",
        WIDE | {"tile": (160, 256, 64), "swapped": True, "multicast": 2},
    ),
    "160 sums a thread, an epilogue": ((256, 168, 320), "bf16", WIDE | {"epilogue": "bias+relu+residual"}),
    "promoted sums of 136 columns": ((64, 152, 640), "e4m3", TALL | {"tile": (64, 136, 128)}),
}


def planned(name):
    shape, data_type, options = CASES[name]
    return ts.plan_gemm(*shape, data_type, **options)


@pytest.mark.thinned(8)
@pytest.mark.parametrize("name", CASES)
def test_the_kernel_gives_the_product_and_no_finding(name):
    c, expected, ran = run_gemm(planned(name))
    assert (ran.outcome, [finding.rule for finding in ran.findings]) == ("finished", [])
    assert (c.astype(np.float64) == expected.astype(c.dtype).astype(np.float64)).all()


def test_its_pipeline_is_proven_with_three_consumers():
    pipeline = ts.plan_pipeline(planned("three warpgroups"))
    assert {barrier.name: barrier.count for barrier in pipeline.barriers} == {"full": 1, "empty": 3}
    assert ts.simulate(pipeline).verdict == "proven"


@pytest.mark.slow
def test_a_stage_that_two_of_three_warpgroups_free_is_noticed():
    gemm = planned("three warpgroups")
    source, changed = re.subn(
        r"(mbarrier_init\(empty \+ 8 \* stage, )3\)", r"\g<1>2)", device_half(ts.emit(gemm, "cuda"))
    )
    assert changed
    _, _, ran = run_gemm(gemm, source=source)
    assert ran.outcome != "finished" or any(finding.severity == "error" for finding in ran.findings)


def test_two_warpgroups_with_many_sums_take_registers_of_the_producer():
    pipeline = ts.plan_pipeline(planned("160 sums a thread"))
    taken = [int(str(step.target)) for role in pipeline.roles for step in role.all_steps() if step.op == "registers"]
    assert (pipeline.registers, sorted(taken)) == (168, [40, 232])
    assert ts.simulate(pipeline).verdict == "proven"


def test_many_sums_need_a_stage_for_each_warp_of_the_producer():
    with pytest.raises(ts.PlanError) as refused:
        ts.plan_gemm(300, 168, 320, "bf16", **WIDE | {"stages": 3})
    assert [violation.rule for violation in refused.value.violations] == ["gemm-accumulators"]
    fewer = ts.plan_gemm(300, 168, 320, "bf16", **WIDE | {"stages": 3, "tile": (256, 128, 64)})
    assert fewer.stages == 3


def test_the_planner_chooses_more_than_128_sums_a_thread_where_rows_straddle_lines():
    gemm = ts.plan_gemm(228, 19360, 5816, "bf16")
    assert (gemm.tile, gemm.schedule.multicast) == ((256, 160, 64), (1, 2))
    assert all(ranked.stages >= 4 for ranked in gemm.ranked if ranked.tile[0] * ranked.tile[1] > 256 * 128)


def test_a_tile_beyond_the_registers_of_three_warpgroups_is_refused():
    with pytest.raises(ts.TilescopeError, match="3 warpgroups with at most 96 accumulators a thread"):
        ts.emit(ts.plan_gemm(4096, 4096, 4096, "bf16", tile=(192, 256, 64)), "cuda")


def test_stages_are_no_more_than_the_k_steps_of_a_block():
    assert ts.plan_gemm(1, 704, 256, "bf16", tile=(8, 64, 64)).stages == 4
    assert ts.plan_gemm(1, 704, 64, "bf16", tile=(8, 64, 64)).stages == 2


def test_tiles_fill_whole_rounds_of_the_card():
    gemm = ts.plan_gemm(1195, 5632, 3712, "bf16")
    whole = [tile for tile in gemm.ranked if tile.tiles == tile.rounds * 132]
    assert (200, 128, 64) in [tile.tile for tile in whole]  # 44 x 6 tiles for two rounds
    assert gemm.ranked[0] in whole
