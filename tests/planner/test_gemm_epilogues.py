"""Epilogues, batches and experts as data: what words mean, what is refused, the maps, and the numbers of a plan."""

import pytest

import tilescope as ts
from tilescope.planner.fused_epilogue import EPILOGUE_WORDS, Fused
from tilescope.planner.gemm_maps import gemm_map, launch_rows


@pytest.mark.parametrize("word", EPILOGUE_WORDS)
def test_words_lead_back_to_themselves(word):
    assert str(Fused.named(word)) == word
    assert str(Fused.named(f"bias+{word}" if word != "none" else "bias")).startswith("bias") or word == "scale"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"epilogue": "tanh"}, "unknown-name: epilogue tanh"),
        ({"epilogue": "bias", "arch": "sm_80"}, r"gemm-epilogue: bias with ldmatrix; they are planned for wgmma"),
        ({"batch": 2, "arch": "sm_100"}, r"gemm-epilogue: batch of 2 with tcgen05"),
        ({"epilogue": "swiglu", "b_major": "MN"}, r"gates side by side in an MN-major B"),
        ({"epilogue": "swiglu", "n": 72}, r"n = 72 with epilogue = swiglu.*Use n=80"),
        ({"epilogue": "relu", "data_type": "s8"}, r"its sums are int32"),
        ({"experts": 2, "batch": 2}, r"experts are a batch with separate rows"),
        ({"rows": "masked"}, r"rows = 'masked' without experts"),
        (
            {"experts": 2, "rows": "masked", "tile": (64, 64, 64), "split": 2},
            r"masked rows with blocks that share every k",
        ),
        ({"experts": 2, "dependent": True}, r"a dependent launch with experts"),
        ({"epilogue": "swiglu", "tile": (64, 72, 64)}, r"72 columns of sums that a block stores"),
    ],
)
def test_what_does_not_go_together_is_refused_with_the_fix(options, sentence):
    given = {"n": 256, "data_type": "bf16"} | options
    n, data_type = given.pop("n"), given.pop("data_type")
    with pytest.raises(ts.RuleError, match=sentence):
        ts.plan_gemm(128, n, 256, data_type, **given)


def test_gates_side_by_side_come_in_turn():
    """Row 8 of a tile in shared memory is the first row of the other half of B: a map of four dimensions."""
    gemm = ts.plan_gemm(128, 512, 256, "bf16", epilogue="swiglu", tile=(64, 128, 64))
    made = gemm_map(gemm, "b")
    assert (made.dims, made.box) == ((256, 8, 2, 32), (64, 8, 2, 8))
    assert made.strides_bytes == (512, 256 * 512, 8 * 512)
    assert gemm_map(gemm, "c").dims == (256, 128)
    interleaved = ts.plan_gemm(128, 512, 256, "bf16", epilogue="swiglu-interleaved", tile=(64, 128, 64))
    assert gemm_map(interleaved, "b").dims == (256, 512)


@pytest.mark.parametrize("many", [{"batch": 8}, {"experts": 8, "rows": "masked"}, {"experts": 8, "rows": "contiguous"}])
def test_the_grid_has_a_block_for_every_tile_of_all_products(many):
    gemm = ts.plan_gemm(512, 512, 512, "bf16", **many)
    assert gemm.schedule.cluster == (1, 1)
    assert gemm.clusters == gemm.tiles
    assert gemm.blocks_on(132) == min(gemm.tiles, 132)


def test_a_batch_multiplies_tiles_bytes_and_time():
    one, eight = (ts.plan_gemm(1024, 1024, 1024, "bf16", tile=(128, 256, 64), batch=count) for count in (1, 8))
    assert eight.tiles == 8 * one.tiles
    memory = [{term.name: term.us for term in gemm.ranked[0].terms}["memory"] for gemm in (one, eight)]
    assert memory[1] == pytest.approx(8 * memory[0])
    assert eight.predicted_us == pytest.approx(27.1, rel=0.05)  # measured on an H200


def test_experts_have_groups_of_whole_tiles():
    gemm = ts.plan_gemm(80, 256, 512, "bf16", experts=4, tile=(64, 128, 64))
    assert launch_rows(gemm) == 4 * 128
    assert [len(gemm_map(gemm, name).dims) for name in "abc"] == [2, 3, 2]
    masked = ts.plan_gemm(80, 256, 512, "bf16", experts=4, rows="masked", tile=(64, 128, 64))
    assert [len(gemm_map(masked, name).dims) for name in "abc"] == [3, 3, 3]
    said = " ".join(str(reason) for reason in gemm.reasons)
    assert "a group starts at a multiple of 64" in said


def test_what_a_gemm_is_not_written_as_is_refused():
    gemm = ts.plan_gemm(128, 256, 256, "bf16", epilogue="bias", tile=(64, 64, 64))
    with pytest.raises(ts.RuleError, match="python of a GEMM with epilogue bias"):
        ts.emit(gemm, "python")
    with pytest.raises(ts.RuleError, match=r"ptx of a GEMM.*Use cuda, python, header"):
        ts.emit(gemm, "ptx")
    with pytest.raises(ts.RuleError, match="header of a tile"):
        ts.emit(ts.plan((64, 64), "bf16").best, "header")
    header = ts.emit(gemm, "header")
    assert (
        "launch(const void* a, const void* b, void* c, int m, float alpha, const float* bias, const Residual* residual, "
        in header
    )
    assert "float beta, cudaStream_t stream)" in header


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, ""),
        ({"epilogue": "bias"}, "as python: epilogues, batches and experts are written as CUDA C++"),
        ({"arch": "sm_100"}, "as header: a header launches kernels of wgmma"),
        ({"output_type": "u8"}, "as cuda, python and header: f32 sums become bf16"),
    ],
)
def test_what_a_plan_is_not_written_as_is_said_with_it(options, sentence):
    drawn = " ".join(ts.plan_gemm(128, 256, 256, "bf16", **options).text().split())
    assert ("not emitted" in drawn) == bool(sentence)
    assert sentence in drawn
