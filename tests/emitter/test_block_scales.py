"""fp8 with scales of 1 x 128 and 128 x 128, emitted and run in the machine: equal to the sums of a second implementation."""

import numpy as np
import pytest
from emitter_toolchain import link
from gemm_machine import TYPES, run_gemm

import tilescope as ts
from tilescope.emitter.emission import device_half

STAGES = {"stages": 2, "scales": "block128"}
SMALL = STAGES | {"tile": (64, 64, 128)}
SWAPPED = STAGES | {"tile": (16, 64, 128), "swapped": True}
CASES = {
    "plain": ((70, 72, 272), SMALL),
    "two warpgroups, two tiles": ((130, 136, 256), STAGES | {"tile": (128, 128, 128), "sms": 2}),
    "two blocks of a warpgroup": ((256, 64, 256), STAGES | {"tile": (256, 64, 128)}),
    "swapped, an odd number of rows": ((21, 200, 272), SWAPPED),
    "swapped, four blocks of B's rows": ((20, 256, 256), STAGES | {"tile": (16, 256, 128), "swapped": True}),
    "split, more K steps than k has": ((20, 72, 640), SWAPPED | {"split": 2}),
    "tail": ((190, 64, 512), SMALL | {"tail": 2, "sms": 2}),
    "parts": ((20, 72, 384), SWAPPED | {"parts": 2}),
    "batch": ((70, 160, 256), SMALL | {"batch": 2}),
    "batch, swapped": ((20, 160, 256), SWAPPED | {"batch": 2}),
    "contiguous experts": ((64, 160, 256), SMALL | {"experts": 3, "sms": 4}),
    "masked experts": ((70, 160, 256), SMALL | {"experts": 3, "rows": "masked", "sms": 4}),
    "masked experts, swapped": ((20, 160, 256), SWAPPED | {"experts": 3, "rows": "masked"}),
    "f32 with bias": ((64, 64, 256), SMALL | {"epilogue": "bias", "output_type": "f32"}),
    "swiglu": ((64, 512, 256), SMALL | {"epilogue": "swiglu"}),
    "swiglu, halves in different blocks": ((64, 192, 256), SMALL | {"epilogue": "swiglu"}),
    "swiglu, swapped": ((20, 192, 256), SWAPPED | {"epilogue": "swiglu"}),
    "swiglu-interleaved": ((64, 192, 256), SMALL | {"epilogue": "swiglu-interleaved"}),
    "swiglu of contiguous experts": ((64, 256, 256), SMALL | {"epilogue": "swiglu", "experts": 2}),
    "swiglu of contiguous experts, swapped": ((16, 256, 256), SWAPPED | {"epilogue": "swiglu", "experts": 2}),
}


def assert_right(gemm, c, expected, ran):
    assert ran.outcome == "finished"
    assert [finding.rule for finding in ran.findings if finding.severity == "error"] == []
    asked = ~np.isnan(expected)
    found, wanted = c.astype(np.float64)[asked], expected.astype(np.float32).astype(c.dtype).astype(np.float64)[asked]
    shares_k = gemm.schedule.tail > 1 or not gemm.schedule.persistent  # then parts are added in another order
    if gemm.fused.is_exact and not shares_k:
        assert (found == wanted).all()
    else:
        step = 2.0 ** -{"bf16": 7, "f32": 20}[gemm.output_type.ptx]
        np.testing.assert_allclose(found, wanted, rtol=step, atol=step / 8)


@pytest.mark.thinned(32)
@pytest.mark.parametrize("name", CASES)
def test_the_kernel_gives_the_scaled_product_and_no_finding(name):
    shape, options = CASES[name]
    gemm = ts.plan_gemm(*shape, "e4m3", **options)
    assert_right(gemm, *run_gemm(gemm))


@pytest.mark.slow
def test_one_kernel_takes_any_number_of_rows():
    gemm = ts.plan_gemm(128, 64, 256, "e4m3", **SMALL)
    for rows in (1, 65, 131):
        assert_right(gemm, *run_gemm(gemm, rows=rows, seed=rows))


MUTANTS = {
    "the scale of the row above": ("scales.a[i / 2 % 2] *", "scales.a[0] *"),
    "B's scale of block 0": ("n / 128 * B_ROW_SCALES", "0 * B_ROW_SCALES"),
    "A's scales of K step 0": ("k_block * row_scales + m", "0 * row_scales + m"),
    "the step's own sums unscaled": ("scales.a[i / 2 % 2] * scales.b[0]", "1.0f"),
    "scales fetched before the last step is promoted": (
        "if (k_tile > 0) promote(d, step_sums, scales);",
        (
            "Scales later = fetch_scales(a_scales, b_scales, m, n, k_tile, m_rows, warp, lane); "
            "if (k_tile > 0) promote(d, step_sums, later);"
        ),
    ),
}


@pytest.mark.thinned(5)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_scale_is_noticed(name):
    gemm = ts.plan_gemm(70, 200, 272, "e4m3", **SMALL)
    source = device_half(ts.emit(gemm, "cuda"))
    here, there = MUTANTS[name]
    assert source.count(here) == 1
    c, expected, _ = run_gemm(gemm, source=source.replace(here, there))
    assert (c.astype(np.float64) != expected.astype(TYPES["bf16"]).astype(np.float64)).mean() > 0.1


def test_the_pipeline_is_proven():
    gemm = ts.plan_gemm(512, 4096, 7168, "e4m3", scales="block128")
    assert ts.simulate(ts.plan_pipeline(gemm, consumers=2)).verdict == "proven"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"arch": "sm_100"}, r"scales = block128 for e4m3 with tcgen05; float32 scales are applied where wgmma"),
        ({"data_type": "bf16"}, r"scales = block128 for bfloat16 with wgmma"),
        ({"tile": (64, 96, 128)}, r"a tile of 64 x 96 x 128 .*n divides 128.*Use 64 x 32 x 128"),
        ({"tile": (64, 64, 64)}, r"a K step has one scale: k = 128"),
        (
            {"tile": (64, 128, 128), "n": 320, "epilogue": "swiglu"},
            r"an n that divides that of the product.*Use 64 x 64 x 128",
        ),
        ({"dependent": True}, r"a dependent launch with scales = block128"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_fix(options, sentence):
    given = {"n": 256, "data_type": "e4m3", "scales": "block128"} | options
    n, data_type = given.pop("n"), given.pop("data_type")
    with pytest.raises(ts.RuleError, match=sentence):
        ts.plan_gemm(128, n, 256, data_type, **given)


@pytest.mark.slow
def test_a_header_takes_the_scales(tmp_path):
    header = ts.emit(ts.plan_gemm(320, 64, 512, "e4m3", **SMALL, experts=4), "header")
    call = "gemm_64x512_e4m3::launch(a, b, c, m, nullptr, nullptr, nullptr, 1.0f, nullptr, 0.0f, stream)"
    main = (
        "int main(int m, char**) { const void *a = nullptr, *b = nullptr; void* c = nullptr;"
        f" cudaStream_t stream = nullptr; return {call} == cudaSuccess; }}\n"
    )
    assert link(header.replace("#pragma once", "") + main, "sm_90a", tmp_path).stat().st_size > 0
