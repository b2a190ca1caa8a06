"""Kernels of Triton, Gluon and CuTe, compiled here, run without an error among their findings, and are right."""

import importlib.util
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import tilescope as ts

TESTS = Path(__file__).parent.parent
DESCRIBED = "tensordesc<fp16[64,64]>"


@pytest.fixture(scope="module")
def kernels(require):
    """The kernels of tests/golden/kernels_own, of which Triton compiles any."""
    require("triton")
    return imported(TESTS / "golden" / "kernels_own" / "triton_kernels.py")


def imported(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def whole_numbers(shape, dtype=np.float16, most=2, seed=0):
    """Numbers of which sums of products are exact."""
    return np.random.default_rng(seed).integers(-most, most + 1, shape).astype(dtype)


def assert_sound(run):
    assert run.outcome == "finished", run.findings
    assert [finding for finding in run.findings if finding.severity == "error"] == []


def product(a, b):
    return a.astype(np.float32) @ b.astype(np.float32)


def test_triton_fills_in_threads_shared_memory_and_descriptors(kernels):
    kernel = ts.Kernel.from_triton(
        kernels.clustered, [DESCRIBED] * 3 + ["i32:16"], {"BM": 64, "BN": 64, "BK": 64}, num_warps=4
    )
    a, b, c = whole_numbers((64, 128)), whole_numbers((128, 128), seed=1), np.zeros((64, 128), np.float16)
    run = kernel.run((1, 2), args=[a, b, c, 128])
    assert_sound(run)
    assert (run.block, run.grid) == ((128, 1, 1), (1, 2, 1))
    assert kernel.host.smem_bytes >= 2 * 64 * 64 * 2
    assert np.array_equal(c, product(a, b.T))
    assert run.last_writer((2, (5, 70))).source_line.startswith("triton_kernels.py:")
    assert "tensordesc<fp16[64,64]> of_a" in repr(kernel)
    assert next(kernel.mutants()).kernel.host is kernel.host


def test_a_mistake_in_the_source_is_told_with_its_line(kernels):
    with pytest.raises(ts.RuleError) as refused:
        ts.Kernel.from_triton(kernels.turned, "*fp16, *fp16, i32, i32", {"B": 63})
    (violation,) = refused.value.violations
    assert re.search(r"triton_kernels\.py:\d+: ", str(violation))
    assert "power of 2" in str(violation)
    assert "`i = tl" in str(violation)


def test_options_that_triton_does_not_have_are_refused(kernels):
    with pytest.raises(ts.RuleError, match="Did you mean num_warps"):
        ts.Kernel.from_triton(kernels.turned, "*fp16, *fp16, i32, i32", {"B": 64}, num_warp=4)


def test_a_plain_function_is_no_kernel(require):
    require("triton")
    with pytest.raises(ts.RuleError, match=r"Put @triton.jit above the function"):
        ts.Kernel.from_triton(whole_numbers, "*fp16")


def test_without_triton_one_sentence_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(ts.DeviceError, match=r"pip install 'tilescope\[triton\]'"):
        ts.Kernel.from_triton(whole_numbers, "*fp16")


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_90", "sm_80"])
@pytest.mark.parametrize(("told", "dtype"), [("fp16", np.float16), ("fp32", np.float32), ("i8", np.int8)])
def test_product_by_pointers(kernels, arch, told, dtype):
    import triton.language as tl

    is_whole = told == "i8"
    total = "i32" if is_whole else "fp32"
    constants = {
        "ZERO": 0 if is_whole else 0.0,
        "SUM": tl.int32 if is_whole else tl.float32,
        "BM": 64,
        "BN": 64,
        "BK": 32,
    }
    kernel = ts.Kernel.from_triton(
        kernels.product, [f"*{told}", f"*{told}", f"*{total}", "i32", "i32", "i32"], constants, arch=arch
    )
    a, b = whole_numbers((100, 96), dtype), whole_numbers((96, 72), dtype, seed=1)
    c = np.zeros((100, 72), np.int32 if is_whole else np.float32)
    assert_sound(kernel.run((2, 2), args=[a, b, c, 100, 72, 96]))
    assert np.array_equal(c, product(a, b))


@pytest.mark.slow
def test_persistent_product_by_descriptors_of_the_kernel(kernels):
    kernel = ts.Kernel.from_triton(
        kernels.persistent, "*fp16, *fp16, *fp16, i32, i32, i32", {"BM": 64, "BN": 64, "BK": 64, "BLOCKS": 2}
    )
    a, b, c = whole_numbers((128, 128)), whole_numbers((192, 128), seed=1), np.zeros((128, 192), np.float16)
    assert_sound(kernel.run(2, args=[a, b, c, 128, 192, 128]))
    assert np.array_equal(c, product(a, b.T))


@pytest.mark.slow
def test_product_in_clusters(kernels):
    types = ["tensordesc<fp16[128,64]>"] * 2 + ["tensordesc<fp16[128,128]>", "i32"]
    kernel = ts.Kernel.from_triton(kernels.clustered, types, {"BM": 128, "BN": 128, "BK": 64}, num_ctas=2)
    a, b, c = whole_numbers((256, 128)), whole_numbers((128, 128), seed=1), np.zeros((256, 128), np.float16)
    run = kernel.run((2, 1), args=[a, b, c, 128])
    assert_sound(run)
    assert (run.grid, run.cluster) == ((4, 1, 1), (2, 1, 1))
    assert np.array_equal(c, product(a, b.T))


@pytest.mark.slow
def test_ring_of_gluon_with_warps_of_its_own(kernels):
    from triton.experimental.gluon import language as gl

    layout = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2, transposed=False)
    described = f"tensordesc<fp16[64,64],{layout!r}>"
    kernel = ts.Kernel.from_triton(kernels.specialised, [described] * 3 + ["i32"], {"STAGES": 2})
    a, b, c = whole_numbers((128, 192)), whole_numbers((128, 192), seed=1), np.zeros((128, 128), np.float16)
    run = kernel.run((2, 2), args=[a, b, c, 3])
    assert_sound(run)
    assert run.block[0] > 128
    assert np.array_equal(c, product(a, b.T))


@pytest.mark.slow
def test_turned_matrix(kernels):
    kernel = ts.Kernel.from_triton(kernels.turned, "*fp16, *fp16, i32, i32", {"B": 64})
    x, y = whole_numbers((100, 72)), np.zeros((72, 100), np.float16)
    assert_sound(kernel.run((2, 2), args=[x, y, 100, 72]))
    assert np.array_equal(y, x.T)


@pytest.mark.slow
def test_sorted_rows(kernels):
    kernel = ts.Kernel.from_triton(kernels.sorts, "*fp32, *fp32, *fp32", {"ROWS": 4, "COLUMNS": 32, "K": 8})
    x = np.random.default_rng(0).standard_normal((4, 32)).astype(np.float32)
    down, top = np.zeros_like(x), np.zeros((4, 8), np.float32)
    assert_sound(kernel.run(1, args=[x, down, top]))
    assert np.array_equal(down, -np.sort(-x, 1))
    assert np.array_equal(top, -np.sort(-x, 1)[:, :8])


@pytest.mark.slow
def test_scans(kernels):
    kernel = ts.Kernel.from_triton(kernels.scans, "*fp32, *fp32, *fp32, *fp32", {"ROWS": 8, "COLUMNS": 16})
    x = whole_numbers((8, 16), np.float32)
    sums, backwards, pairs = (np.zeros_like(x) for _ in range(3))
    assert_sound(kernel.run(1, args=[x, sums, backwards, pairs]))
    assert np.array_equal(sums, np.cumsum(x, 1))
    assert np.array_equal(backwards, np.cumsum(x[::-1], 0)[::-1])


@pytest.mark.slow
def test_gathered_rows(kernels):
    kernel = ts.Kernel.from_triton(kernels.gathers, "*fp32, *i32, *fp32", {"ROWS": 4, "COLUMNS": 32})
    x, y = whole_numbers((4, 32), np.float32), np.zeros((4, 32), np.float32)
    index = np.random.default_rng(1).integers(0, 32, (4, 32)).astype(np.int32)
    assert_sound(kernel.run(1, args=[x, index, y]))
    assert np.array_equal(y, np.take_along_axis(x, index, 1))


@pytest.mark.slow
def test_layer_norm(kernels):
    kernel = ts.Kernel.from_triton(kernels.normed, "*fp16, *fp16, *fp16, *fp16, i32, fp32", {"B": 128})
    x = np.random.default_rng(0).standard_normal((3, 200)).astype(np.float16)
    y, weight, bias = np.zeros_like(x), np.ones(200, np.float16), np.zeros(200, np.float16)
    assert_sound(kernel.run(3, args=[x, y, weight, bias, 200, 1e-5]))
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    assert np.abs(y - expected).max() < 2e-3


@pytest.mark.slow
def test_convolution(kernels):
    kernel = ts.Kernel.from_triton(kernels.convolved, "*fp16, *fp16, *fp16, i32, i32", {"B": 64, "C": 16})
    x, w, y = (
        whole_numbers((8, 8, 16), most=1),
        whole_numbers((3, 3, 16, 16), most=1, seed=1),
        np.zeros((8, 8, 16), np.float16),
    )
    assert_sound(kernel.run(1, args=[x, w, y, 8, 8]))
    padded = np.pad(x.astype(np.float32), ((1, 1), (1, 1), (0, 0)))
    taps = [product(padded[i : i + 8, j : j + 8].reshape(64, 16), w[i, j]) for i in range(3) for j in range(3)]
    assert np.array_equal(y.reshape(64, 16), np.sum(taps, 0))


@pytest.fixture(scope="module")
def cute(require):
    """The launches of CuTe's tutorials; they need nvcc, a C++ compiler and the nvidia-cutlass wheel."""
    for piece in ("gxx", "nvcc", "cutlass"):
        require(piece)
    return imported(TESTS / "public_kernels" / "cute_launches.py")


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("file", ["tiled_copy", "sgemm_1", "sgemm_2", "sgemm_sm80"])
def test_tutorials_of_cute(cute, file):
    launch = next(one for one in cute.CUTE_LAUNCHES if one.file == file)
    run, found, expected = launch.launched()
    assert_sound(run)
    assert np.array_equal(found, expected)


@pytest.mark.slow
def test_a_tutorial_of_cute_with_maps_inside_structs_is_right_and_its_mistake_is_found(cute):
    run, found, expected = cute.WGMMA_TMA.launched()
    assert (run.outcome, [finding.rule for finding in run.findings]) == ("finished", ["run-block-end"])
    assert np.array_equal(found, expected)


def test_a_file_of_cuda_is_compiled_by_what_is_there(tmp_path, require):
    from tilescope.machine.launch.cuda_compiler import compile_cuda

    require("gxx")
    require("nvcc")
    source = tmp_path / "scale.cu"
    source.write_text('extern "C" __global__ void scale(float* a, float by) {\n  a[threadIdx.x] *= by;\n}\n')
    made = compile_cuda(source)
    assert made.compiler.startswith("nvcc V")
    assert made.target == "sm_90a"
    numbers = np.arange(32, dtype=np.float32)
    run = ts.Kernel(made.ptx).run(1, 32, [numbers, 2.0])
    assert numbers[3] == 6
    assert run.instructions[-2].source_line == "scale.cu:2"


def test_nvrtc_compiles_where_there_is_no_nvcc(require, tmp_path, monkeypatch):
    from tilescope.machine.launch import cuda_compiler

    require("nvrtc")
    monkeypatch.setattr(cuda_compiler, "find_nvcc", lambda: None)
    source = tmp_path / "scale.cu"
    source.write_text('extern "C" __global__ void scale(float* a, float by) {\n  a[threadIdx.x] *= by;\n}\n')
    made = cuda_compiler.compile_cuda(source, arch="sm_80")
    assert made.compiler.startswith("NVRTC")
    assert ".target sm_80" in made.ptx
    source.write_text("__global__ void wrong() { x = 1; }\n")
    with pytest.raises(ts.RuleError, match=r'wrong\(\)|identifier "x" is undefined'):
        cuda_compiler.compile_cuda(source)


@pytest.mark.parametrize(
    "given",
    ["nowhere.cu", ".", "__global__ void f() {}\n", "a long text; " * 900],
    ids=["path", "folder", "text", "long"],
)
def test_what_is_no_file_of_cuda_is_refused_before_a_compiler_sees_it(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ts.RuleError) as refused:
        ts.Kernel.from_cuda(given)
    (violation,) = refused.value.violations
    assert violation.rule == "cuda-compile"
    assert violation.limit == "the path of a CUDA C++ file"
    assert len(str(violation)) < 300


def test_without_a_compiler_one_sentence_says_what_is_missing(tmp_path, monkeypatch):
    from tilescope.machine.launch import cuda_compiler

    source = tmp_path / "scale.cu"
    source.touch()
    monkeypatch.setattr(cuda_compiler, "find_nvcc", lambda: None)
    monkeypatch.setattr(cuda_compiler.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ts.DeviceError, match="neither is installed"):
        cuda_compiler.compile_cuda(source)
    monkeypatch.setattr(cuda_compiler, "find_nvcc", lambda: Path("/opt/nvcc"))
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(ts.DeviceError, match=r"no g\+\+"):
        cuda_compiler.compile_cuda(source)
