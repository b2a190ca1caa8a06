"""Each constant that decides a plan, held by what it means: both sides of its limit, or a number from elsewhere."""

from dataclasses import replace

import pytest

import tilescope as ts
from tilescope.planner.gemm_tiles import TileCosts, behind, rank
from tilescope.planner.reasons import decisive, ranked


@pytest.mark.parametrize(
    ("percent_slower", "first"), [(0, "fewer copies"), (4, "fewer copies"), (6, "faster"), (20, "faster")]
)
def test_times_within_5_percent_are_equal(percent_slower, first):
    fast = ts.plan((64, 128), "bf16").best
    fast = replace(fast, costs=replace(fast.costs, tma_instructions=2, gmem_cycles=1000))
    slow = replace(fast, costs=replace(fast.costs, tma_instructions=1, gmem_cycles=1000 + 10 * percent_slower))
    assert ranked([fast, slow])[0] is (slow if first == "fewer copies" else fast)
    assert decisive(*((fast, slow) if first == "fewer copies" else (slow, fast))) == (
        "copies" if first == "fewer copies" else "bandwidth"
    )


def test_the_driver_keeps_1_kib_of_shared_memory_for_every_block():
    """CUDA programming guide, compute capabilities: 228 KB an SM, 1 KB of it reserved for each block."""
    best = ts.plan((128, 64), "bf16").best
    assert best.blocks_per_sm == 13  # 13 x (16384 + 8 + 1024) <= 233472 < 14 x (...); without it 14 would fit
    assert 13 * (16392 + 1024) <= 228 * 1024 < 14 * (16392 + 1024)
    assert 14 * 16392 <= 228 * 1024
    assert ts.plan((8, 64), "bf16", operand="B").best.blocks_per_sm == 32  # no more than an SM takes


@pytest.mark.parametrize(("rows", "boxes"), [(32, {32, 16}), (16, {16, 8}), (8, {8})])
def test_boxes_of_fewer_than_8_rows_are_not_tried(rows, boxes):
    report = ts.plan((rows, 64), "bf16", consumer="ld.b32 rows", swizzle="none", atom_order="column")
    assert {each.box[1] for each in report.candidates} == boxes


@pytest.mark.parametrize(("columns", "width"), [(128, 128), (256, 256), (272, 16), (512, 256)])
def test_plain_rows_are_at_most_256_elements_wide(columns, width):
    best = ts.plan((8, columns), "u8", consumer="ld.b128 rows", swizzle="none", atom_order="column").best
    assert best.box == (width, 8)  # a box has at most 256 elements along a dimension


def test_ldmatrix_reads_8_rows_at_a_time():
    with pytest.raises(ts.PlanError, match=r"plan-tile: mn = 12; ldmatrix reads 8 rows at a time\. Use mn = 16\."):
        _ = ts.plan((12, 64), "bf16", consumer="ldmatrix").best
    assert ts.plan((16, 64), "bf16", consumer="ldmatrix").best


def test_largest_numbers():
    assert ts.Problem((1 << 20, 64), "bf16").tile[0] == 1 << 20
    with pytest.raises(ts.RuleError, match=r"argument-range: tile\[0\]"):
        ts.Problem(((1 << 20) + 1, 64), "bf16")
    assert ts.Problem((64, 64), "bf16", stages=1024).stages == 1024
    with pytest.raises(ts.RuleError, match="argument-range: stages"):
        ts.Problem((64, 64), "bf16", stages=1025)
    assert ts.plan_gemm(64, 64, 64, "bf16", tile=(64, 64, 64), sms=1024).sms == 1024
    with pytest.raises(ts.RuleError, match="argument-range: sms"):
        ts.plan_gemm(64, 64, 64, "bf16", tile=(64, 64, 64), sms=1025)


@pytest.mark.parametrize(("floor_us", "near"), [(100, True), (109, True), (111, False), (130, False)])
def test_floors_within_a_tenth_are_equal(floor_us, near):
    best, other = TileCosts(100, 8, 1), TileCosts(floor_us, 4, 1)
    assert (rank(other, 100) < rank(best, 100)) == near
    assert near or behind(None, other, best, 100).name == "behind-floor"


@pytest.mark.parametrize(("tile", "in_flight", "enough"), [((24, 32), 48 << 10, False), ((16, 64), 64 << 10, True)])
def test_64_kib_in_flight_are_enough_and_48_are_not(tile, in_flight, enough):
    best = ts.plan(tile, "bf16", operand="B").best
    assert best.in_flight_bytes == in_flight
    assert ("are too few" in str(best.reasons[2])) != enough


def test_the_epilogue_stores_rows_of_128_bytes_where_the_tile_allows():
    for output, columns in (("bf16", 64), ("f32", 32), ("e4m3", 128)):
        gemm = ts.plan_gemm(512, 512, 512, "bf16", tile=(64, 128, 64), output_type=output)
        assert gemm.epilogue.problem.columns == columns


def test_two_stages_at_least_and_a_k_tile_of_128_bytes():
    assert {each.stages >= 2 for each in ts.plan_gemm(512, 512, 512, "bf16").ranked} == {True}
    for data_type, k in (("bf16", 64), ("e4m3", 128), ("tf32", 32)):
        assert {each.tile[2] for each in ts.plan_gemm(512, 512, 512, data_type).ranked} == {k}


def test_accumulators_take_at_most_half_of_the_registers():
    tiles = [each.tile for each in ts.plan_gemm(4096, 4096, 4096, "bf16").ranked]
    assert max(m * n * 4 for m, n, _ in tiles) == 65536 * 4 // 2
    assert max(m for m, _, _ in tiles) == max(n for _, n, _ in tiles) == 256
