"""The predicted time of a GEMM: never below the floor, and right for K tiles of any width."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import tilescope as ts

FIRST_LOAD_US = 0.75  # latency of a TMA load on an H200, which the time from one launch to the next includes
TILE_K = {"bf16": (16, 32, 64, 128, 256), "e4m3": (32, 64, 128), "tf32": (8, 16, 32, 64)}


@st.composite
def plans(draw):
    """A plan of any shape, tile, K tile, number of stages and schedule that the planner takes."""
    data_type = draw(st.sampled_from(sorted(TILE_K)))
    m, n, k = (8 * draw(st.integers(1, most)) for most in (600, 600, 900))
    options = {"stages": draw(st.sampled_from([None, 1, 2, 4]))}
    if draw(st.booleans()):
        columns = 8 * draw(st.integers(1, 32))
        rows = draw(st.sampled_from([64, 128, 256]))
        tile_k = draw(st.sampled_from(TILE_K[data_type]))
        options["swapped"] = draw(st.booleans())
        options["tile"] = (columns, rows, tile_k) if options["swapped"] else (rows, columns, tile_k)
        options["split"] = draw(st.sampled_from([None, 1, 2, 4]))
        options["tail"] = draw(st.sampled_from([None, 2]))
    try:
        return ts.plan_gemm(m, n, k, data_type, **options)
    except ts.PlanError:
        assume(False)


@given(plans())
def test_no_tile_is_predicted_below_its_floor(plan):
    for tile in plan.ranked:
        assert tile.prediction.us >= tile.floor_us
        assert tile.prediction.main_us >= tile.floor_us - FIRST_LOAD_US - 1e-9
        assert tile.prediction.main_us >= max(us for _, us in tile.prediction.bounds_us) * (1 - 1e-9)


@pytest.mark.parametrize(
    ("tile", "measured_us"), [((128, 256, 128), 276.4), ((128, 256, 64), 175.1), ((128, 256, 32), 180.2)]
)
def test_few_stages_wait_for_their_bytes(tile, measured_us):
    """4096 x 4096 x 4096 on an H200: two stages of 128 elements of k hide no latency."""
    assert ts.plan_gemm(4096, 4096, 4096, "bf16", tile=tile).predicted_us == pytest.approx(measured_us, rel=0.08)


def test_few_stages_are_predicted_as_slow_as_their_loads():
    """One stage of 16 KB at a time: the loads of one SM take as long as their latency says, whatever the steps would."""
    plan = ts.plan_gemm(4096, 4096, 4096, "bf16", tile=(64, 64, 64), stages=1)
    assert plan.predicted_us > plan.floor_us > 2 * ts.plan_gemm(4096, 4096, 4096, "bf16").predicted_us


def test_small_tiles_take_two_spans_of_k_a_step_where_six_stages_of_them_fit():
    """1024 x 512 x 2560 on an H200: 64 x 64 x 64 took 9.8 us, 64 x 64 x 128 8.3; 64 x 96 x 64 9.5, 64 x 96 x 128 9.9."""
    plan = ts.plan_gemm(1024, 512, 2560, "bf16")
    assert plan.tile[2] == 128
    wide = [tile for tile in plan.ranked if tile.tile[2] == 128]
    assert min(tile.stages for tile in wide) >= 6
    assert (64, 96, 128) not in [tile.tile for tile in wide]
    assert {tile.tile[2] for tile in ts.plan_gemm(1024, 512, 2560, "e4m3").ranked} == {
        128
    }  # one span: sums are promoted
    assert {tile.tile[2] for tile in ts.plan_gemm(1024, 512, 256, "bf16").ranked} == {
        64
    }  # fewer than three steps of 128


# Mean microseconds of 8 experts with 0 to 512 rows each, n = 4096, k = 7168, over 7 draws on an H200; loops of cuBLAS took 237.
EXPERTS_US = {
    ((128, 256, 64), 4): 222,
    ((128, 192, 64), 4): 226,
    ((128, 224, 64), 4): 229,
    ((128, 192, 64), 1): 252,
    ((128, 256, 64), 1): 253,
}


@pytest.mark.parametrize("m", [155, 176, 216, 256, 312, 500])
def test_experts_get_one_kernel_however_their_mean_rows_fill_rounds(m):
    """How many tiles there are is known at the launch: a kernel that suits the mean alone was up to 1.3 times as slow."""
    plan = ts.plan_gemm(m, 4096, 7168, "bf16", experts=8)
    assert (plan.tile, plan.schedule.tail) == ((128, 256, 64), 4)


def test_kernels_of_experts_are_ranked_as_they_were_measured():
    plans = {
        key: ts.plan_gemm(256, 4096, 7168, "bf16", experts=8, tile=key[0], swapped=False, tail=key[1])
        for key in EXPERTS_US
    }
    predicted = sorted(plans, key=lambda key: plans[key].predicted_us)
    assert predicted[:3] == list(EXPERTS_US)[:3]
    for key, us in EXPERTS_US.items():
        assert plans[key].predicted_us == pytest.approx(us, rel=0.15)
