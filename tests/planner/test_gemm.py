"""A GEMM's three plans share one budget, and its tiles follow the work there is."""

from itertools import pairwise

import pytest

import tilescope as ts


def test_large_products_take_large_tiles_and_all_stages_that_fit():
    gemm = ts.plan_gemm(4096, 4096, 4096, "bf16")
    assert gemm.tile == (128, 256, 64)
    assert gemm.stages == 4
    assert gemm.smem_bytes <= gemm.budget_bytes
    assert gemm.smem_bytes + gemm.a.stage_bytes + gemm.b.stage_bytes > gemm.budget_bytes


def test_low_batch_products_give_every_sm_a_tile():
    gemm = ts.plan_gemm(16, 4096, 4096, "bf16")
    assert gemm.tile[0] == 64
    assert gemm.tiles > 100
    assert gemm.rounds == 1


def test_shared_memory_is_laid_out_without_overlap_and_aligned():
    gemm = ts.plan_gemm(1000, 1000, 1000, "f16")
    places = sorted(
        [(start, gemm.a) for start in gemm.smem_offsets()["a"]]
        + [(start, gemm.b) for start in gemm.smem_offsets()["b"]]
        + [(start, gemm.epilogue) for start in gemm.smem_offsets()["epilogue"]],
        key=lambda each: each[0],
    )
    for (start, plan), (after, _) in pairwise(places):
        assert start + plan.smem_bytes <= after
    assert all(start % plan.smem_alignment_bytes == 0 for start, plan in places)
    assert places[-1][0] + places[-1][1].smem_bytes <= gemm.smem_bytes


def test_the_maps_of_a_gemm_are_sound():
    gemm = ts.plan_gemm(4096, 2048, 1024, "e4m3")
    assert gemm.a.tensor_map(0).dims == (1024, 4096)
    assert gemm.b.tensor_map(0).dims == (1024, 2048)
    assert gemm.epilogue.tensor_map(0).dims == (2048, 4096)


def test_cards_without_tma_copy_with_threads():
    gemm = ts.plan_gemm(4096, 4096, 4096, "f16", arch="sm_80")
    assert (gemm.a.problem.copy, gemm.a.problem.consumer) == ("cp.async", "ldmatrix")


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        (((0, 64, 64, "bf16"), {}), "gemm-shape"),
        (((64, 64, 63, "bf16"), {}), "stride-alignment"),
        (((64, 64, 64, "bf16"), {"tile": (64, 64)}), "gemm-tile"),
        (((64, 64, 64, "bf16"), {"stages": 99}), "gemm-smem"),
        (((64, 64, 64, "bf16"), {"consumer": "magic"}), "gemm-consumer"),
        (((64, 64, 64, "f64"), {}), "canonical-element"),
    ],
)
def test_nonsense_is_refused_with_a_rule(asked, rule):
    shape, options = asked
    with pytest.raises(ts.RuleError) as refused:
        ts.plan_gemm(*shape, **options)
    assert rule in {each.rule for each in refused.value.violations}
