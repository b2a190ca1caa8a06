"""Products that models use, emitted and run in the machine: epilogues, batches, experts, and any number of rows."""

import re

import numpy as np
import pytest
from emitter_toolchain import link, nvrtc_ptx
from gemm_machine import TYPES, arrays_of, expected_of, run_gemm

import tilescope as ts
from tilescope.emitter.emission import device_half
from tilescope.emitter.gemm_parameters import gemm_parameters
from tilescope.planner.gemm_maps import launch_rows

SMALL = {"tile": (64, 64, 64), "stages": 2}
SWAPPED = {"tile": (16, 64, 64), "swapped": True, "stages": 2}
CASES = {
    "bias": ((70, 72, 128), "bf16", SMALL | {"epilogue": "bias"}),
    "bias, swapped": ((20, 72, 128), "bf16", SWAPPED | {"epilogue": "bias"}),
    "bias+relu": ((64, 64, 64), "f16", SMALL | {"epilogue": "bias+relu"}),
    "bias+gelu": ((64, 64, 64), "bf16", SMALL | {"epilogue": "bias+gelu"}),
    "scale+silu": ((64, 64, 64), "bf16", SMALL | {"epilogue": "scale+silu", "output_type": "f32"}),
    "scale to e4m3": (
        (64, 64, 64),
        "e4m3",
        {"tile": (64, 64, 128), "stages": 2, "epilogue": "scale", "output_type": "e4m3"},
    ),
    "scale+residual": ((70, 72, 128), "bf16", SMALL | {"epilogue": "scale+residual"}),
    "scale+residual, swapped": ((20, 72, 128), "bf16", SWAPPED | {"epilogue": "scale+residual"}),
    "residual, split": ((20, 128, 256), "bf16", SWAPPED | {"split": 2, "epilogue": "bias+residual"}),
    "bias, two slices": ((64, 128, 64), "bf16", {"tile": (64, 128, 64), "stages": 2, "epilogue": "bias"}),
    "swiglu": ((70, 160, 128), "bf16", {"tile": (64, 128, 64), "stages": 2, "epilogue": "swiglu"}),
    "swiglu, two warpgroups": (
        (128, 128, 64),
        "bf16",
        {"tile": (128, 128, 64), "stages": 2, "epilogue": "scale+swiglu"},
    ),
    "swiglu, swapped": ((20, 160, 128), "bf16", SWAPPED | {"epilogue": "bias+swiglu"}),
    "swiglu-interleaved": ((70, 160, 128), "bf16", SMALL | {"epilogue": "bias+swiglu-interleaved"}),
    "swiglu of e4m3": ((64, 128, 128), "e4m3", {"tile": (64, 128, 128), "stages": 2, "epilogue": "scale+swiglu"}),
    "batch": ((70, 72, 128), "bf16", SMALL | {"batch": 3}),
    "batch, MN-major": ((72, 72, 80), "bf16", SMALL | {"batch": 2, "a_major": "MN", "b_major": "MN"}),
    "batch, swapped, split": ((20, 64, 256), "bf16", SWAPPED | {"batch": 2, "split": 2}),
    "batch, in groups": ((200, 128, 64), "bf16", SMALL | {"batch": 2, "group": 2, "sms": 3}),
    "batch with bias and residual": ((70, 72, 64), "bf16", SMALL | {"batch": 2, "epilogue": "bias+residual"}),
    "contiguous experts": ((80, 72, 128), "bf16", SMALL | {"experts": 3, "sms": 4}),
    "contiguous experts, swapped": ((20, 72, 128), "bf16", SWAPPED | {"experts": 3}),
    "contiguous experts, swiglu": ((64, 128, 64), "bf16", SMALL | {"experts": 2, "epilogue": "bias+swiglu"}),
    "masked experts": ((100, 72, 128), "bf16", SMALL | {"experts": 3, "rows": "masked", "sms": 4}),
    "masked experts, a last round shared": (
        (100, 72, 256),
        "bf16",
        SMALL | {"experts": 3, "rows": "masked", "sms": 4, "tail": 2},
    ),
    "masked experts, two warpgroups": (
        (150, 72, 128),
        "bf16",
        {"tile": (128, 64, 64), "stages": 2, "experts": 5, "rows": "masked", "sms": 4},
    ),
    "contiguous experts, two warpgroups": (
        (256, 72, 128),
        "bf16",
        {"tile": (128, 64, 64), "stages": 2, "experts": 3, "epilogue": "bias", "sms": 4},
    ),
    "masked experts, swapped": ((20, 72, 128), "bf16", SWAPPED | {"experts": 3, "rows": "masked", "epilogue": "relu"}),
    "two spans of k": ((64, 64, 256), "bf16", {"tile": (64, 64, 128), "stages": 2}),
}


def assert_right(gemm, c, expected, ran):
    assert ran.outcome == "finished"
    assert [finding.rule for finding in ran.findings if finding.severity == "error"] == []
    asked = ~np.isnan(expected)
    found, wanted = c.astype(np.float64)[asked], expected.astype(c.dtype).astype(np.float64)[asked]
    if gemm.fused.is_exact:
        assert (found == wanted).all()
    else:
        step = 2.0 ** -{"e4m3": 3, "bf16": 7, "f16": 10, "f32": 10}[gemm.output_type.ptx]
        np.testing.assert_allclose(found, wanted, rtol=step, atol=step / 8)


@pytest.mark.thinned(16)
@pytest.mark.parametrize("name", CASES)
def test_the_kernel_gives_the_product_and_no_finding(name):
    shape, data_type, options = CASES[name]
    gemm = ts.plan_gemm(*shape, data_type, **options)
    assert_right(gemm, *run_gemm(gemm))


ROWS = {
    "persistent": (SMALL | {"sms": 2}, (1, 64, 65, 200)),
    "split": (SWAPPED | {"split": 2}, (7, 40)),
    "tail": (
        SMALL | {"tail": 2, "sms": 4},
        (64, 190, 320, 448),
    ),  # 320 and 448: five tiles and seven, too many to share
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", ROWS)
def test_one_kernel_takes_any_number_of_rows(name):
    options, several = ROWS[name]
    gemm = ts.plan_gemm(several[-2] if name == "tail" else 128, 64, 256, "bf16", **options)
    for rows in several:
        assert_right(gemm, *run_gemm(gemm, rows=rows, seed=rows))


def test_a_wrong_row_of_experts_is_noticed():
    """The comparison can fail: with the experts of another seed, other rows of B are multiplied."""
    gemm = ts.plan_gemm(80, 72, 128, "bf16", **SMALL, experts=3)
    c, _, _ = run_gemm(gemm, seed=1)
    _, other, _ = run_gemm(gemm, seed=2)
    assert (c.astype(np.float64) != other.astype(TYPES["bf16"]).astype(np.float64)).any()


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    "name", ["bias+gelu", "batch with bias and residual", "contiguous experts, swiglu", "masked experts, swapped"]
)
def test_the_epilogue_by_itself_gives_what_the_fused_one_does(name):
    """A program that is timed beside cuBLAS runs it behind the plain product."""
    shape, data_type, options = CASES[name]
    gemm = ts.plan_gemm(*shape, data_type, **options)
    source = "#define WITH_CUBLAS\n" + device_half(ts.emit(gemm, "cuda"))
    kernel = ts.Kernel(nvrtc_ptx(source, "sm_90a").rstrip("\0"), "unfused_kernel")
    made = arrays_of(gemm, np.random.default_rng(1), launch_rows(gemm))
    expected = expected_of(gemm, made)
    whose = np.maximum(made["experts"], 0) if gemm.batch.rows == "contiguous" else None
    b = made["b"] if whose is None else made["b"][None, whose]
    products = made["a"] @ b.transpose(0, 2, 1) if whose is None else np.einsum("irk,irnk->irn", made["a"], b)
    c = np.zeros(expected.shape, TYPES[gemm.output_type.ptx])
    others = [made[each.name] for each in gemm_parameters(gemm) if each.is_checked]
    ran = kernel.run(-(-c.size // 256), 256, [products.astype(TYPES[data_type]), c, *others])
    assert_right(gemm, c, expected, ran)


HEADERS = {
    "persistent": (SMALL, "1.0f, nullptr, 0.0f, stream"),
    "clusters of a batch": (SMALL | {"batch": 3, "multicast": 2}, "1.0f, nullptr, 0.0f, stream"),
    "tail": (SMALL | {"tail": 2, "sms": 4}, "1.0f, c, 1.0f, workspace, stream"),
    "experts": (SMALL | {"experts": 4, "epilogue": "bias"}, "nullptr, 1.0f, nullptr, nullptr, 0.0f, stream"),
}


@pytest.mark.slow
@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", HEADERS)
def test_a_header_compiles_with_a_call_of_its_launch(name, tmp_path):
    options, arguments = HEADERS[name]
    header = ts.emit(ts.plan_gemm(320, 64, 512, "bf16", **options), "header")
    call = f"gemm_64x512_bf16::launch(a, b, c, m, {arguments})"
    main = (
        "int main(int m, char**) { const void *a = nullptr, *b = nullptr; unsigned short* c = nullptr; void* workspace = nullptr;"
        f" cudaStream_t stream = nullptr; (void)workspace; return {call} == cudaSuccess; }}\n"
    )
    assert link(header.replace("#pragma once", "") + main, "sm_90a", tmp_path).stat().st_size > 0


RESIDUAL_MUTANTS = {
    "fewer bytes expected": (r"(mbarrier_arrive_expect\(residual_full[^,]*, )8192\)", r"\g<1>4096)"),
    "more bytes expected": (r"(mbarrier_arrive_expect\(residual_full[^,]*, )8192\)", r"\g<1>8208)"),
    "nobody waits": (r"mbarrier_wait\(residual_full[^;]*;", ";"),
    "the parity of the tile before": (r"(mbarrier_wait\(residual_full[^;]*), t % 2\)", r"\1, t % 2 ^ 1)"),
    "two arrivals": (r"mbarrier_init\(residual_full \+ 8 \* i, 1\)", "mbarrier_init(residual_full + 8 * i, 2)"),
    "C is still read": (
        r"bulk_wait_read<0>\(\);  // TMA has read the last slice\n *mbarrier_arrive_exp",
        "mbarrier_arrive_exp",
    ),
}


@pytest.mark.thinned(6)
@pytest.mark.parametrize("mutant", RESIDUAL_MUTANTS)
def test_a_residual_that_comes_otherwise_is_noticed(mutant):
    """TMA brings it into the buffers of C while the sums are made: bytes, parity and waits count."""
    gemm = ts.plan_gemm(64, 320, 128, "bf16", tile=(64, 64, 64), stages=2, sms=1, epilogue="scale+residual")
    assert (gemm.stages_residual, ts.simulate(ts.plan_pipeline(gemm)).verdict) == (True, "proven")
    pattern, replacement = RESIDUAL_MUTANTS[mutant]
    source, changed = re.subn(pattern, replacement, device_half(ts.emit(gemm, "cuda")))
    assert changed == 1
    c, expected, ran = run_gemm(gemm, source=source)
    wrong = (c.astype(np.float64) != expected.astype(c.dtype).astype(np.float64)).any()
    assert ran.outcome != "finished" or wrong or any(finding.severity == "error" for finding in ran.findings)


def test_a_residual_is_brought_ahead_where_c_has_the_room():
    large = ts.plan_gemm(4096, 4096, 4096, "bf16", epilogue="residual", tile=(128, 256, 64))
    assert (large.stages, large.c_buffers, large.slices, large.stages_residual) == (3, 4, 4, True)
    other_type = ts.plan_gemm(256, 256, 256, "bf16", epilogue="residual", output_type="e4m3", tile=(64, 64, 64))
    dependent = ts.plan_gemm(256, 256, 256, "bf16", epilogue="residual", dependent=True, tile=(64, 64, 64))
    assert not other_type.stages_residual
    assert not dependent.stages_residual


@pytest.mark.parametrize(
    ("data_type", "options", "is_early"),
    [
        ("bf16", {}, True),
        ("bf16", {"swapped": True}, True),
        ("bf16", {"dependent": True}, False),  # the kernel before may write it until A has come
        ("e4m3", {}, False),  # sums are held twice, so the K steps leave no registers for it
    ],
)
def test_a_bias_is_loaded_before_the_k_steps_where_they_leave_registers(data_type, options, is_early):
    tile = (64, 64, 128 if data_type == "e4m3" else 64)
    gemm = ts.plan_gemm(300, 256, 512, data_type, tile=tile, epilogue="bias", split=1, parts=1, **options)
    consumer = device_half(ts.emit(gemm, "cuda")).partition("    return;\n")[2]
    assert (consumer.index("load_bias(") < consumer.index("multiply(")) == is_early
