"""Plans for tcgen05: every layout that exists is planned, agrees with its descriptors, and nothing else is."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilescope as ts
from tilescope import compatible, plan
from tilescope.mma.consumer import Tcgen05Loop

XOR_16 = {"none", "32B", "64B", "128B"}
ARCHITECTURES = ("sm_100", "sm_103", "sm_110")
PLANNED = [
    ((128, 64), "bf16", "K", XOR_16),
    ((128, 64), "bf16", "MN", XOR_16),
    ((256, 128), "e4m3", "K", XOR_16),
    ((256, 128), "e4m3", "MN", XOR_16),
    ((128, 32), "tf32", "K", XOR_16),
    ((128, 32), "tf32", "MN", {"128B_ATOM_32B"}),
    ((128, 512), "e2m1", "K", XOR_16),
    ((128, 256), "e2m3", "K", {"128B"}),
    ((24, 64), "f16", "K", XOR_16),
]


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("tile", "data_type", "major", "swizzles"), PLANNED)
def test_every_layout_that_exists_is_planned_and_agrees(tile, data_type, major, swizzles, arch):
    report = plan(tile, data_type, major=major, consumer="tcgen05", arch=arch, fold=True)
    assert {candidate.swizzle.name for candidate in report.candidates} == swizzles
    for candidate in report.candidates:
        loop = candidate.descriptors(0x400)
        assert isinstance(loop, Tcgen05Loop)
        assert (loop.addresses() == candidate.containers.with_start(0x400).addresses()).all()
        assert (loop.addresses() // 16 == candidate.address(*_indices(tile), 0x400) // 16).all()  # the same chunk
        assert candidate.basis == "documented"
        found = compatible(candidate, smem_address=0x400, data_type=data_type)
        assert found, str(found)


def _indices(tile):
    import numpy as np

    return np.arange(tile[0])[:, None], np.arange(tile[1])[None, :]


def test_dense_4_bit_tiles_are_moved_and_read_two_to_a_byte():
    best = plan((128, 256), "e2m1", consumer="tcgen05", arch="sm_100").best
    assert (best.swizzle.name, best.box, best.smem_bytes, best.transaction_bytes) == ("128B", (256, 128), 16384, 16384)
    assert best.tensor_map(0, (1024, 1024)).data_type.name == "16u4_align8b"
    assert [hex(step.encode()) for step in best.descriptors(0x400)[0]] == [
        "0x4000404000010040",
        "0x4000404000010042",
        "0x4000404000010044",
        "0x4000404000010046",
    ]


def test_mn_major_tf32_goes_in_pieces_of_32_bytes():
    best = plan((128, 32), "tf32", major="MN", consumer="tcgen05", arch="sm_100").best
    assert (best.swizzle.name, best.box) == ("128B_ATOM_32B", (32, 32))
    assert best.tensor_map(0, (1024, 1024)).swizzle.driver_code == 4
    first = best.descriptors()[0][0]
    assert (first.leading_bytes, first.stride_bytes) == (4096, 512)


def test_6_bit_tiles_are_padded_to_a_byte_each():
    best = plan((128, 128), "e3m2", consumer="tcgen05", arch="sm_110").best
    assert (best.box, best.smem_bytes, best.transaction_bytes) == ((128, 128), 16384, 12288)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (((64, 64), "tf32", {"major": "MN", "swizzle": "128B"}), "tcgen05-layout"),
        (((128, 128), "e2m3", {"major": "MN"}), "tcgen05-layout"),
        (((128, 24), "bf16", {}), "tcgen05-tile"),
        (((60, 64), "bf16", {"operand": "A"}), "tcgen05-tile"),
        (((64, 256), "e2m1", {"operand": "A"}), "tcgen05-tile"),  # block-scaled: 128 rows of A
        (((128, 64), "f64", {}), "canonical-element"),
        (((128, 64), "f32", {}), "tcgen05-type"),
        (((128, 128), "s8", {"arch": "sm_103"}), "plan-type"),
    ],
)
def test_what_no_tcgen05_reads_is_refused_with_its_reason(arguments, rule):
    tile, data_type, options = arguments
    report = plan(tile, data_type, **({"consumer": "tcgen05", "arch": "sm_100"} | options))
    assert not report.candidates
    with pytest.raises(ts.PlanError) as caught:
        _ = report.best
    assert rule in [violation.rule for violation in caught.value.violations]


@pytest.mark.parametrize("arch", ["sm_90", "sm_120"])
def test_architectures_without_tcgen05_say_what_they_have(arch):
    with pytest.raises(ts.RuleError, match="tcgen05 exists on sm_100, sm_103, sm_110"):
        plan((128, 64), "bf16", consumer="tcgen05", arch=arch)


def test_half_rows_of_6_bit_values_are_stored_but_not_loaded():
    loads = plan((128, 128), "e2m3", consumer="tcgen05", arch="sm_103")
    assert {candidate.swizzle.name for candidate in loads.candidates} == {"128B"}
    assert "packed-load" in [violation.rule for refusal in loads.refused for violation in refusal.violations]
    stores = plan((128, 128), "e2m3", direction="store", consumer="ldmatrix", arch="sm_103")
    assert stores.candidates


# GEMMs


@pytest.mark.thinned(8)
@pytest.mark.parametrize("arch", ["sm_100", "sm_103"])
@pytest.mark.parametrize("data_type", ["bf16", "f16", "tf32", "e4m3", "e5m2"])
def test_a_large_product_is_planned_for_pairs_with_two_accumulators(arch, data_type):
    gemm = ts.plan_gemm(8192, 8192, 8192, data_type, arch=arch)
    assert (gemm.schedule.cta_group, gemm.tile[:2], gemm.sums) == (2, (256, 256), (128, 256))
    assert (gemm.a.problem.tile[0], gemm.b.problem.tile[0]) == (128, 128)  # what one block brings
    assert (gemm.accumulators, gemm.tmem_columns) == (2, 512)
    assert gemm.stages >= 6
    assert gemm.smem_bytes <= gemm.arch.smem_per_block_bytes
    assert ts.simulate(ts.plan_pipeline(gemm)).verdict == "proven"


def test_a_time_by_documented_rates_says_so():
    gemm = ts.plan_gemm(8192, 8192, 8192, "bf16", card="B200")
    [prediction] = [tile.prediction for tile in gemm.ranked[:1]]
    assert (prediction.basis, prediction.fitted, prediction.bound) == ("documented", False, "steps")
    assert 2 * 8192**3 / 2250e6 < gemm.predicted_us < 1.05 * 2 * 8192**3 / 2250e6
    assert any(reason.name == "documented-time" for reason in gemm.reasons)
    assert ts.plan_gemm(8192, 8192, 8192, "bf16", arch="sm_103").card.name == "B300"
    assert ts.plan_gemm(8192, 8192, 8192, "bf16", arch="sm_110").predicted_us is None  # no card of sm_110 is known


DOCUMENTED_CARDS = ("B200", "B300", "RTX 5090", "RTX PRO 6000")
EXTENTS = st.integers(1, 64).map(lambda count: 128 * count) | st.integers(1, 40).map(lambda count: 16 * count)


@pytest.mark.slow
@settings(max_examples=12)
@given(
    shape=st.tuples(EXTENTS, EXTENTS, EXTENTS),
    card=st.sampled_from(DOCUMENTED_CARDS),
    data_type=st.sampled_from(["bf16", "f16", "tf32", "e4m3", "mxfp8", "mxfp4", "nvfp4"]),
)
def test_every_tile_of_a_documented_card_has_a_time_above_its_floor(shape, card, data_type):
    gemm = ts.plan_gemm(*shape, data_type, card=card)
    for tile in gemm.ranked:
        prediction = tile.prediction
        assert (prediction.basis, prediction.fitted) == ("documented", False)
        assert prediction.us >= tile.floor_us > 0
        assert prediction.main_us >= max(dict(prediction.bounds_us).values())
    assert gemm.predicted_us == gemm.ranked[0].prediction.us


@pytest.mark.parametrize(
    ("card", "data_type", "tile", "tflops"),
    [
        ("RTX 5090", "bf16", (64, 128, 64), 209.5),
        ("RTX 5090", "e4m3", (64, 128, 128), 419),
        ("RTX 5090", "mxfp8", (64, 128, 128), 838),  # twice the plain type's
        ("RTX PRO 6000", "nvfp4", (128, 128, 256), 2015.2),
    ],
)
def test_a_product_by_mma_takes_whole_rounds_at_the_documented_rate(card, data_type, tile, tflops):
    sms = ts.CARD[card].sms
    m, n, k = 4096, 4096, 4096
    gemm = ts.plan_gemm(m, n, k, data_type, card=card, tile=tile)
    rounds = -(-(m // tile[0]) * (n // tile[1]) // sms)
    steps_us = rounds * 2 * tile[0] * tile[1] * k * sms / tflops / 1e6
    left = (m // tile[0]) * (n // tile[1]) - (rounds - 1) * sms
    stores_us = left * tile[0] * tile[1] * 2 / 1792e3
    assert gemm.ranked[0].prediction.bound == "steps"
    assert gemm.predicted_us == pytest.approx(steps_us + stores_us)


def test_warps_read_the_rows_and_columns_of_their_parts_from_shared_memory():
    gemm = ts.plan_gemm(256, 4096, 4096, "bf16", card="RTX PRO 6000", tile=(64, 32, 64))
    assert gemm.warps == (4, 2)
    read_bytes = (64 * 2 + 32 * 4) * 4096 * 2  # A by two warps, B by four
    rounds = 3
    bounds = dict(gemm.ranked[0].prediction.bounds_us)
    assert gemm.rounds == rounds
    assert bounds["shared memory"] == pytest.approx(rounds * read_bytes / (128 * 2617e-3) / 1e3)


def test_4_bit_types_of_a_b300_are_multiplied_32_bytes_of_k_at_a_time():
    """Its peak is that of k = 96, which no tile of 256 is multiplied by: its time is that of a B200."""
    b200, b300 = (ts.plan_gemm(4096, 4096, 4096, "nvfp4", card=card) for card in ("B200", "B300"))
    assert ts.CARD["B300"].tflops(b300.data_type) > 1.4 * ts.CARD["B200"].tflops(b200.data_type)
    assert (b300.tile, b300.predicted_us) == (b200.tile, b200.predicted_us)
    assert next(term.rate for term in b300.ranked[0].terms if term.name == "arithmetic") == 9000


def test_mma_is_no_measure_where_the_datasheet_s_rate_is_of_tcgen05():
    assert ts.plan_gemm(4096, 4096, 4096, "bf16", card="B200", consumer="ldmatrix").predicted_us is None


def test_columns_between_the_powers_of_two_fill_the_last_round():
    gemm = ts.plan_gemm(4096, 7168, 16384, "bf16", card="B200")
    whole = ts.plan_gemm(4096, 7168, 16384, "bf16", card="B200", tile=(256, 256, 64), cta_group=2)
    assert (gemm.tile, gemm.schedule.cta_group, gemm.rounds) == ((256, 224, 64), 2, 7)  # 512 pairs, 7 times 74 at once
    assert (gemm.accumulators, gemm.slices) == (2, 7)
    assert gemm.predicted_us < 0.9 * whole.predicted_us


def test_few_rows_of_a_are_columns_of_the_instruction():
    gemm = ts.plan_gemm(16, 4096, 4096, "bf16", card="B200")
    assert (gemm.schedule.swapped, gemm.sums[0]) == (True, 128)
    assert gemm.sums[1] <= 32


@pytest.mark.parametrize(
    ("tile", "options", "found"),
    [
        ((100, 256, 64), {"cta_group": 2}, ["m = 100 of a pair's tile"]),
        ((100, 513, 64), {"cta_group": 2}, ["513 columns", "m = 100 of a pair's tile", "n = 513 of a pair's tile"]),
        ((100, 256, 60), {"cta_group": 2}, ["m = 100 of a pair's tile", "A: k = 60", "B: k = 60"]),
        ((100, 256, 64), {"cta_group": 2, "split": 2}, ["m = 100 of a pair's tile", "split with tcgen05"]),
        ((128, 513, 64), {}, ["513 columns", "n = 513"]),
        ((256, 257, 64), {}, ["514 columns", "n = 257"]),
        ((100, 200, 60), {}, ["A: k = 60", "B: k = 60", "m = 100"]),
        ((100, 513, 60), {}, ["513 columns", "A: k = 60", "m = 100", "B: k = 60", "n = 513"]),
        ((512, 256, 64), {"cta_group": 2}, ["m = 512 of a pair's tile"]),
        ((256, 24, 64), {"cta_group": 2}, ["n = 24 of a pair's tile"]),
    ],
)
def test_tiles_that_no_instruction_takes_are_refused_with_every_reason(tile, options, found):
    with pytest.raises(ts.PlanError) as caught:
        ts.plan_gemm(4096, 4096, 4096, "bf16", arch="sm_100", tile=tile, **options)
    said = [violation.found for violation in caught.value.violations]
    assert len(said) == len(found)
    assert all(part in sentence for part, sentence in zip(found, said, strict=True))


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        ({"arch": "sm_100", "split": 2}, 'Leave it out, or use arch="sm_90".'),
        ({"arch": "sm_90", "cta_group": 2}, 'Leave it out, or use arch="sm_100".'),
        ({"arch": "sm_90", "consumer": "ldmatrix", "split": 2}, 'Leave it out, or use consumer="wgmma".'),
    ],
)
def test_a_schedule_of_another_tensor_core_is_refused_with_a_way_to_it(options, fix):
    with pytest.raises(ts.PlanError) as caught:
        ts.plan_gemm(4096, 4096, 4096, "bf16", **options)
    assert [violation.fix for violation in caught.value.violations] == [fix]


@pytest.mark.parametrize("data_type", ["e2m1", "16u4_align8b"])
def test_4_bit_types_are_refused_on_hopper(data_type):
    with pytest.raises(ts.PlanError, match="wgmma"):
        ts.plan_gemm(4096, 4096, 4096, data_type, arch="sm_90")


def test_scale_factors_take_columns_and_stages_of_their_own():
    gemm = ts.plan_gemm(8192, 8192, 8192, "nvfp4", card="B200", cta_group=2, tile=(256, 128, 256))
    a_scales, b_scales = gemm.scale_plans
    assert (a_scales.layout.rows, b_scales.layout.rows) == (128, 128)  # half of A's rows, and all columns of B
    assert (a_scales.columns, b_scales.columns) == (16, 16)  # 16 scales a row: 4 words of 4 columns
    assert (gemm.accumulators, gemm.tmem_columns) == (2, 512)  # 2 x 128 + 32 columns
    assert gemm.smem_offsets()["sfb"][0] - gemm.smem_offsets()["sfa"][0] == gemm.stages * 2048
    full = ts.simulate(ts.plan_pipeline(gemm)).barriers[0]
    assert full.bytes == (2 * (128 * 128 + 64 * 128 + 2 * 2048), 0)


def test_a_wide_tile_with_scale_factors_has_one_accumulator():
    assert ts.plan_gemm(512, 512, 512, "mxfp8", arch="sm_100", tile=(128, 256, 128)).accumulators == 1
    assert ts.plan_gemm(512, 512, 512, "e4m3", arch="sm_100", tile=(128, 256, 128)).accumulators == 2


@pytest.mark.parametrize(
    ("arguments", "options", "rules"),
    [
        ((256, 256, 256, "nvfp4"), {"arch": "sm_90"}, ["gemm-type", "wgmma-type", "gemm-type"]),
        (
            (256, 256, 256, "nvfp4"),
            {"arch": "sm_100", "tile": (100, 100, 100)},
            ["gemm-tile"] * 3 + ["plan-row"] * 2,
        ),
        ((256, 256, 256, "nvfp4"), {"arch": "sm_100", "swapped": True, "tile": (32, 128, 256)}, ["gemm-tile"]),
        ((256, 256, 256, "nvfp4"), {"arch": "sm_100", "tile": (128, 160, 256)}, ["gemm-tile"]),
        ((256, 256, 256, "nvfp4"), {"arch": "sm_100", "split": 2}, ["gemm-schedule"]),
        ((256, 256, 256, "nvfp4"), {"arch": "sm_100", "parts": 2}, ["gemm-schedule"]),
        ((256, 256, 256, "bf16"), {"arch": "sm_100", "scales": "nvfp4"}, ["gemm-type"]),
        ((256, 256, 256, "e2m1"), {"arch": "sm_100", "scales": "mxfp8"}, ["gemm-type"]),
        ((256, 256, 256, "bf16"), {"arch": "sm_100", "tile": (100, 64, 64), "cta_group": 2}, ["gemm-tile"]),
        (
            (256, 256, 256, "bf16"),
            {"arch": "sm_100", "tile": (100, 513, 64), "cta_group": 2},
            ["gemm-accumulators", "gemm-tile", "gemm-tile"],
        ),
        ((256, 1024, 256, "nvfp4"), {"arch": "sm_100", "tile": (128, 512, 256)}, ["gemm-accumulators"]),
    ],
    ids=str,
)
def test_wrong_requests_are_refused_with_every_reason(arguments, options, rules):
    with pytest.raises(ts.PlanError) as refused:
        ts.plan_gemm(*arguments, **options)
    assert [violation.rule for violation in refused.value.violations] == rules


def test_a_format_may_have_other_elements_than_its_usual_ones():
    gemm = ts.plan_gemm(256, 256, 256, "e5m2", arch="sm_100", scales="mxfp8")
    assert (gemm.data_type.ptx, gemm.scales.name, gemm.product.kind.name) == ("e5m2", "mxfp8", "mxf8f6f4")


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((512, 4096, 4096), (256, 128, 64)),
        ((1024, 4096, 4096), (256, 256, 64)),
        ((2048, 2048, 2048), (256, 256, 64)),
        ((4096, 2112, 7168), (256, 256, 64)),
        ((8192, 8192, 8192), (256, 256, 64)),
    ],
    ids=str,
)
def test_narrow_tiles_wait_for_shared_memory_and_come_later(shape, tile):
    """An instruction of 128 rows and 16 columns reads 144 rows for the work of 16: small tiles fill the card, but slowly."""
    gemm = ts.plan_gemm(*shape, "bf16", card="B200")
    assert (gemm.tile, gemm.schedule.cta_group) == (tile, 2)
    assert gemm.predicted_us >= gemm.floor_us


def test_each_block_of_a_pair_reads_half_of_the_columns():
    terms = {
        group: {term.name: term.us for term in gemm.ranked[0].terms}
        for group, gemm in (
            (group, ts.plan_gemm(4096, 4096, 4096, "bf16", card="B200", tile=(128 * group, 64, 64), cta_group=group))
            for group in (1, 2)
        )
    }
    ratio = terms[2]["shared-memory reads"] / terms[1]["shared-memory reads"]
    assert ratio == pytest.approx((128 + 32) / (128 + 64), rel=0.01)


# Clusters that share operands


def test_tiles_along_m_share_b_and_those_along_n_share_a():
    gemm = ts.plan_gemm(2048, 1024, 512, "bf16", arch="sm_100", tile=(256, 128, 64), cta_group=2, multicast=(2, 2))
    assert (gemm.schedule.cluster, gemm.clusters) == ((4, 2), 4 * 4)
    assert (gemm.a.box, gemm.b.box) == ((64, 64), (64, 32))  # half of what a block holds of either
    pipeline = ts.plan_pipeline(gemm)
    [producer] = [role for role in pipeline.roles if role.name == "producer"]
    masks = {str(step.target)[0]: step.arguments["mask"] for step in producer.all_steps() if step.op == "copy"}
    assert masks == {"a": "17 << x", "b": "5 << (4 * y + x % 2)"}
    assert {barrier.name: barrier.count for barrier in pipeline.barriers}["empty"] == 3
    assert ts.simulate(pipeline).verdict == "proven"


def test_a_number_is_the_tiles_along_m():
    options = {"arch": "sm_100", "tile": (128, 64, 64)}
    assert ts.plan_gemm(512, 128, 64, "bf16", multicast=2, **options).schedule.multicast == (2, 1)


@pytest.mark.parametrize(
    ("shape", "options", "found"),
    [
        ((1024, 256), {"multicast": (8, 2)}, "multicast = (8, 2) with 1 block for a tile: clusters of 16"),
        ((128, 256), {"multicast": 2}, "multicast = (2, 1), with 1 tile of 128 along m"),
        ((256, 64), {"multicast": (1, 2)}, "multicast = (1, 2), with 1 tile of 64 along n"),
        ((1024, 32), {"multicast": 4, "tile": (128, 16, 64)}, "B in 4 parts of 4 rows for each box of 16"),
    ],
    ids=str,
)
def test_a_cluster_that_does_not_fit_is_refused_with_its_reason(shape, options, found):
    with pytest.raises(ts.PlanError) as refused:
        ts.plan_gemm(*shape, 320, "bf16", arch="sm_100", **({"tile": (128, 64, 64)} | options))
    assert found in [violation.found for violation in refused.value.violations]


def test_the_search_offers_clusters_where_fewer_bytes_cost_no_round():
    """Of 2048 x 2048, 64 tiles are one round of either. Of 8192 x 8192, clusters of 4 leave SMs idle: 16 rounds, not 14."""
    shared = ts.plan_gemm(2048, 2048, 2048, "bf16", card="B200")
    assert (shared.tile, shared.schedule.cta_group, shared.schedule.multicast) == ((256, 256, 64), 2, (2, 1))
    plain = next(tile for tile in shared.others if tile.tile == shared.tile and tile.schedule.cta_group == 2)
    assert (plain.schedule.multicast, plain.behind_in) == ((1, 1), "bytes")
    said = next(str(reason) for reason in shared.reasons if reason.name == "multicast")
    assert "The 4 blocks of a cluster take 2 x 1 tiles and share B by multicast: a block fetches 24576 bytes" in said
    assert plain.busiest_bytes == 4 * shared.ranked[0].busiest_bytes / 3
    large = ts.plan_gemm(8192, 8192, 8192, "bf16", card="B200")
    assert large.schedule.multicast == (1, 1)
    clustered = ts.plan_gemm(8192, 8192, 8192, "bf16", card="B200", tile=large.tile, cta_group=2, multicast=(2, 1))
    assert (large.rounds, clustered.rounds) == (14, 16)
    assert clustered.floor_us > 1.1 * large.floor_us


def test_a_tile_that_waits_for_memory_is_offered_no_cluster():
    gemm = ts.plan_gemm(4096, 4096, 128, "bf16", card="B200")
    waiting = [tile.schedule.multicast for tile in gemm.ranked if tile.prediction.bound == "memory"]
    assert len(waiting) > 1
    assert set(waiting) == {(1, 1)}


def test_columns_of_a_scaled_tile_come_in_steps_of_64():
    """A tile of 192 begins in the middle of every other atom of 128 columns, and leaves room for two accumulators."""
    gemm = ts.plan_gemm(512, 576, 512, "nvfp4", arch="sm_100", tile=(128, 192, 256))
    assert (gemm.accumulators, gemm.scale_plans[1].columns, gemm.tmem_columns) == (2, 32, 512)
    assert ts.plan_gemm(512, 512, 512, "nvfp4", arch="sm_100", tile=(128, 256, 256)).accumulators == 1
    assert ts.emit(gemm, "cuda").count("const int shift = n % 128 / 32;") == 1


def test_few_rows_of_a_scaled_product_are_the_columns_of_its_sums():
    gemm = ts.plan_gemm(64, 4096, 4096, "mxfp8", arch="sm_100")
    assert (gemm.schedule.swapped, gemm.tile[0]) == (True, 64)
    assert not ts.plan_gemm(65, 4096, 4096, "mxfp8", arch="sm_100").schedule.swapped


def test_reasons_say_whose_a_tile_is():
    def sentences(**options):
        gemm = ts.plan_gemm(8192, 8192, 8192, "bf16", card="B200", **options)
        return [reason.sentence for reason in gemm.reasons]

    assert sentences()[0].startswith("Tile 256 x 256 x 64 of a pair: 1024 tiles of C")
    assert any("128 x 256 x 64 is equal in every term, a tile of one block." in said for said in sentences())
    assert sentences(cta_group=1)[0].startswith("Tile 128 x 256 x 64: 2048 tiles of C")
