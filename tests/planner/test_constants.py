"""Each constant that decides a plan, held by what it means: both sides of its limit, or a number from elsewhere."""

from dataclasses import replace

import pytest

import tilescope as ts
from tilescope.planner.gemm_tiles import behind, rank
from tilescope.planner.plan_reasons import decisive, rank_plans
from tilescope.planner.product import mma_rows


@pytest.mark.parametrize(
    ("percent_slower", "first"), [(0, "fewer copies"), (4, "fewer copies"), (6, "faster"), (20, "faster")]
)
def test_times_within_5_percent_are_equal(percent_slower, first):
    fast = ts.plan((64, 128), "bf16").best
    fast = replace(fast, costs=replace(fast.costs, tma_instructions=2, gmem_cycles=1000))
    slow = replace(fast, costs=replace(fast.costs, tma_instructions=1, gmem_cycles=1000 + 10 * percent_slower))
    assert rank_plans([fast, slow])[0] is (slow if first == "fewer copies" else fast)
    assert decisive(*((fast, slow) if first == "fewer copies" else (slow, fast))) == (
        "copies" if first == "fewer copies" else "bandwidth"
    )


def test_the_driver_keeps_1_kib_of_shared_memory_for_every_block():
    """CUDA programming guide, compute capabilities: 228 KB an SM, 1 KB of it reserved for each block."""
    best = ts.plan((128, 64), "bf16").best
    assert best.blocks_per_sm == 13  # 13 x (16384 + 8 + 1024) <= 233472 < 14 x (...); without it 14 would fit
    assert 13 * (16392 + 1024) <= 228 * 1024 < 14 * (16392 + 1024)
    assert 14 * 16392 <= 228 * 1024
    assert ts.plan((72, 64), "bf16", operand="B").best.blocks_per_sm == 22  # 23 x (9216 + 8 + 512) would fit
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
    with pytest.raises(ts.PlanError, match=r"plan-tile.*= 12.*8 rows.*= 16\."):
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
    first = ts.plan_gemm(512, 512, 512, "bf16", tile=(64, 64, 64)).ranked[0]
    first = replace(first, prediction=None)  # floors decide where no time is predicted
    best, other = (
        replace(first, terms=(replace(first.terms[0], us=us),), busiest_bytes=fetched)
        for us, fetched in ((100, 8), (floor_us, 4))
    )
    assert (rank(other, 100) < rank(best, 100)) == near
    assert near or behind(other, best, 100).name == "behind-floor"


@pytest.mark.parametrize(("tile", "in_flight", "enough"), [((24, 32), 48 << 10, False), ((16, 64), 64 << 10, True)])
def test_64_kib_in_flight_are_enough_and_48_are_not(tile, in_flight, enough):
    best = ts.plan(tile, "bf16", operand="B").best
    assert best.in_flight_bytes == in_flight
    assert ("are too few" in str(best.reasons[2])) != enough


def test_the_epilogue_stores_rows_of_128_bytes_where_the_tile_allows():
    for output, columns in (("bf16", 64), ("f32", 32), ("e4m3", 128)):
        gemm = ts.plan_gemm(512, 512, 512, "bf16", tile=(64, 128, 64), output_type=output)
        assert gemm.epilogue.problem.columns == columns


def test_two_stages_at_least_and_a_k_tile_of_128_bytes_or_of_256_where_six_stages_fit():
    assert {each.stages >= 2 for each in ts.plan_gemm(512, 512, 512, "bf16").ranked} == {True}
    for data_type, k in (("bf16", {64, 128}), ("e4m3", {128}), ("tf32", {32, 64})):  # 8-bit sums are promoted every 128
        ranked = ts.plan_gemm(512, 512, 4096, data_type).ranked  # a shorter k has fewer steps than stages fit
        assert {each.tile[2] for each in ranked} == k
        assert all(each.stages >= 6 for each in ranked if each.tile[2] > min(k))


def test_a_thread_holds_at_most_128_sums_and_96_of_three_warpgroups():
    """A tile has 128 threads for every 64 rows of its sums, of 256 rows for every 128; swapped ones have them along n."""
    tiles = [(each.tile, each.schedule.swapped) for each in ts.plan_gemm(4096, 4096, 4096, "bf16").ranked]
    held = {}
    for (m, n, _), swapped in tiles:
        rows, columns = (n, m) if swapped else (m, n)
        threads = {64: 128, 128: 256, 192: 384, 256: 256}[rows]
        held[rows] = max(held.get(rows, 0), rows * columns // threads)
    assert held[128] == 128
    assert all(sums <= (96 if rows == 192 else 128) for rows, sums in held.items())
    assert 192 in held
    assert max(m for (m, _, _), _ in tiles) == max(n for (_, n, _), _ in tiles) == 256


def stages_of(tile, **options):
    return ts.plan_gemm(4096, 4096, 4096, "bf16", tile=tile, **options).stages


def test_stages_are_as_many_as_keep_enough_in_flight_and_no_more_than_8_beyond_that():
    """210 GB/s of one SM x 0.75 us = 157,500 bytes: 7 stages of 22 KiB, of which 9 would fit."""
    assert stages_of((64, 112, 64)) == 8
    assert -(-157_500 // (176 * 128)) == 7
    assert 9 * 176 * 128 + 64 * 112 * 2 <= 227 * 1024
    assert stages_of((128, 192, 128)) == 2  # 80 KiB a stage: a third does not fit, and two are enough to plan


def test_extents_of_a_product_end_at_2_to_the_32():
    """What a tensor map takes: dims up to 2^32."""
    assert ts.plan_gemm(1 << 32, 64, 64, "bf16", tile=(64, 64, 64)).shape[0] == 1 << 32
    with pytest.raises(ts.RuleError, match="argument-range: m"):
        ts.plan_gemm((1 << 32) + 1, 64, 64, "bf16", tile=(64, 64, 64))


def test_eight_warps_share_the_largest_tile_of_mma_with_128_accumulators_each():
    """A thread has 255 registers: half of them for sums, and 8 warps of them fill half of the register file."""
    warps = ts.plan_gemm(4096, 4096, 4096, "bf16", tile=(128, 256, 32), arch="sm_80").warps
    assert warps[0] * warps[1] == 8
    assert 128 * 256 // (8 * 32) == 128


def test_tiles_of_96_columns_cut_a_result_of_192_in_two():
    """Tensor cores whose floors decide: 128 x 2 tiles of 96 columns, in two rounds, fetch less than 128 x 3 of 64, in three."""
    tiles = [each.tile[1] for each in ts.plan_gemm(16384, 192, 4096, "bf16", arch="sm_100", cta_group=1).ranked]
    assert tiles.index(96) < tiles.index(64)
    assert (128, 96, 64) in [each.tile for each in ts.plan_gemm(4096, 192, 4096, "bf16").ranked]


def test_tiles_of_224_columns_fill_the_last_round():
    """28672 columns: 2 x 128 tiles of 224 are 1.94 rounds of 132 SMs, 2 x 112 of 256 are 1.70."""
    gemm = ts.plan_gemm(256, 28672, 4096, "bf16")
    assert gemm.tile == (128, 224, 64)
    assert (gemm.tiles, gemm.rounds) == (256, 2)
    assert gemm.epilogue.problem.columns == 32  # 64 do not divide 224


def test_accumulators_are_4_bytes_in_65536_registers_of_which_a_thread_has_255(wording):
    """CUDA programming guide: 64 K registers of 32 bits an SM, 255 a thread."""
    [said] = [
        str(each)
        for each in ts.plan_gemm(512, 512, 512, "bf16", tile=(128, 256, 64)).reasons
        if each.name == "registers"
    ]
    assert "Accumulators, 128 x 256 of 4 bytes" in said
    assert "131072 of the 262144 bytes" in said
    wording("accumulators are 4 bytes in 65536 registers of which a thread has 255", said)
    refused = {}
    for n in (248, 256):
        with pytest.raises(ts.PlanError) as error:
            ts.plan_gemm(4096, 4096, 4096, "bf16", tile=(256, n, 64))
        refused[n] = {each.rule for each in error.value.violations}
    assert 256 * 248 * 4 < 2 * 128 * 255 * 4 < 256 * 256 * 4
    assert "gemm-accumulators" not in refused[248]
    assert "gemm-accumulators" in refused[256]


@pytest.mark.parametrize(("tile", "fits"), [((128, 512, 64), True), ((256, 256, 64), True), ((256, 512, 64), False)])
def test_tensor_memory_has_512_columns_of_128_lanes(tile, fits):
    """PTX ISA, tensor memory."""
    if fits:
        assert ts.plan_gemm(4096, 4096, 4096, "bf16", tile=tile, arch="sm_100").tile == tile
    else:
        with pytest.raises(ts.PlanError, match="1024 columns of tensor memory"):
            ts.plan_gemm(4096, 4096, 4096, "bf16", tile=tile, arch="sm_100")


@pytest.mark.parametrize(
    ("data_type", "options", "k", "next_k"),
    [("bf16", {}, 56, 60), ("16u4_align16b", {"arch": "sm_100", "output_type": "bf16"}, 128, 64)],
)
def test_rows_in_global_memory_are_multiples_of_16_bytes_or_128_padded_elements(data_type, options, k, next_k):
    assert ts.plan_gemm(256, 256, k, data_type, **options).shape[2] == k
    with pytest.raises(ts.PlanError, match="gemm-rows"):
        ts.plan_gemm(256, 256, next_k, data_type, **options)


def test_sparse_traffic_fetches_no_neighbours():
    assert ts.plan((128, 64), "bf16", traffic="sparse").best.l2_promotion == "none"
    assert ts.plan((128, 64), "bf16").best.l2_promotion == "128B"


@pytest.mark.parametrize(("arrivals", "count"), [("warpgroup", 1), ("warp", 4), ("thread", 128)])
def test_a_warpgroup_is_4_warps_of_32_threads(arrivals, count):
    pipeline = ts.plan_pipeline(ts.plan((128, 64), "bf16").best, arrivals=arrivals)
    assert [barrier.count for barrier in pipeline.barriers] == [1, count]


@pytest.mark.parametrize(("consumers", "registers"), [(2, (168, 40, 232)), (3, (128, 32, 160))])
def test_registers_move_from_the_producer_to_the_consumers(consumers, registers):
    """CUTLASS takes 40 and 232 for two consumers; what is given up is what is taken, in steps of 8."""
    tiles = [ts.plan(tile, "bf16").best for tile in ((64 * consumers, 64), (256, 64))]
    data = ts.plan_pipeline(tiles, stages=2, consumers=consumers).to_dict()
    taken = [step["registers"] for role in data["roles"] for step in role["steps"] if "registers" in step]
    assert (data["registers"], *taken) == registers
    entry, producing, consuming = registers
    assert entry * (consumers + 1) >= producing + consumers * consuming
    assert entry * 128 * (consumers + 1) <= 65536
    assert not any(each % 8 for each in registers)


def test_the_epilogue_does_not_meet_at_the_barrier_of_syncthreads():
    roles = ts.plan_pipeline(ts.plan_gemm(512, 512, 512, "bf16")).to_dict()["roles"]
    text = str(roles)
    assert "'sync': 1, 'threads': 128" in text
    assert "'sync': 0, 'threads'" not in text


def test_ldmatrix_feeds_the_forms_of_mma_with_16_rows():
    """s8 has m8n8k16 too; its D lies otherwise than an epilogue is planned for."""
    found = mma_rows(ts.Arch.named("sm_80"), ts.DataType.named("s8"))
    assert [row.name for row in found] == ["mma.m16n8k16", "mma.m16n8k32"]
