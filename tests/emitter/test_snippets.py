"""Pieces of code say what the plan says: addresses at every element, calls that compile, words as the descriptors have them."""

import ast
import contextlib
import subprocess

import numpy as np
import pytest
from emitter_sample import PLANS
from emitter_toolchain import cuda_root, nvrtc

import tilescope as ts
from tilescope.emitter.snippets import SNIPPETS

SOME = [name for number, name in enumerate(PLANS) if number % 5 == 0]
MAPS = {
    "tiled": ts.TensorMap("bf16", (4096, 1000), (8192,), (64, 64), swizzle="128B", l2_promotion="128B"),
    "one dimension": ts.TensorMap("f32", (4096,), (), (256,)),
    "nan": ts.TensorMap("f16", (64, 64, 8), (128, 8192), (64, 8, 2), element_strides=(1, 2, 1), oob_fill="nan"),
    "im2col": ts.Im2colMap(
        "f16",
        (64, 32, 32, 4),
        (128, 4096, 131072),
        lower_corner=(-1, -1),
        upper_corner=(-1, -1),
        channels_per_pixel=64,
        pixels_per_column=64,
        swizzle="128B",
    ),
    "wide": ts.Im2colWideMap(
        "f16",
        (64, 32, 32, 1),
        (128, 4096, 131072),
        lower_width=-1,
        upper_width=-1,
        channels_per_pixel=64,
        pixels_per_column=32,
        swizzle="128B",
        arch="sm_100",
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_the_address_in_python_is_the_layouts_own_at_every_element(name):
    plan, found = PLANS[name], {}
    exec(ts.snippet(plan, "address-python"), found)
    mn, k = np.indices(plan.problem.tile)
    assert np.array_equal(found["element_address"](0x400, mn, k), plan.address(mn, k, 0x400))


@pytest.mark.parametrize("name", SOME)
def test_the_address_in_triton_is_the_same_expression(name):
    plan, found = PLANS[name], {}
    exec(ts.snippet(plan, "address-triton").replace("@triton.jit\n", ""), found)
    mn, k = np.indices(plan.problem.tile)
    assert np.array_equal(found["element_address"](0x400, mn, k), plan.address(mn, k, 0x400))


@pytest.mark.parametrize("name", SOME)
def test_the_address_in_c_compiles(name):
    kernel = 'extern "C" __global__ void f(unsigned* a) { *a = element_address(*a, threadIdx.x, 0); }'
    assert nvrtc(ts.snippet(PLANS[name], "address") + kernel, "sm_90")


@pytest.mark.parametrize("name", MAPS)
def test_the_encode_call_compiles_against_the_drivers_header(name, require, tmp_path):
    source = tmp_path / "encode.cpp"
    source.write_text(
        "#include <cuda.h>\nvoid f(void* address) {\n" + ts.snippet(MAPS[name], "encode") + "(void)result; }\n"
    )
    headers = cuda_root() / "include"
    subprocess.run(
        [require("gxx"), "-std=c++17", "-Wall", "-Werror", "-fsyntax-only", f"-I{headers}", source], check=True
    )


def test_the_alignment_of_a_declared_map_is_left_to_its_type():
    """64 bytes up to CUDA 12, 128 from CUDA 13 on: a number in the declaration is wrong for one of them."""
    (declared,) = [line for line in ts.snippet(MAPS["tiled"], "encode").splitlines() if "CUtensorMap map" in line]
    assert declared.startswith("CUtensorMap map;")


def test_a_program_without_the_drivers_header_aligns_its_map_as_every_header_does(require, tmp_path):
    program = ts.emit(ts.plan((128, 64), "bf16").best, "cuda")
    (struct,) = [line for line in program.splitlines() if line.startswith("struct") and "TensorMap {" in line]
    assert struct.startswith("struct alignas(128) TensorMap {")
    assert ".param .align 128 .b8 map[128]" in ts.emit(ts.plan((128, 64), "bf16").best, "ptx")
    source = tmp_path / "alignment.cpp"
    source.write_text(f"#include <cuda.h>\n{struct}\nstatic_assert(alignof(TensorMap) == alignof(CUtensorMap));\n")
    headers = cuda_root() / "include"  # of CUDA 13
    subprocess.run([require("gxx"), "-std=c++17", "-fsyntax-only", f"-I{headers}", source], check=True)


@pytest.mark.parametrize("name", MAPS)
def test_the_bindings_call_names_what_the_bindings_have(name):
    from cuda.bindings import driver

    for node in ast.walk(ast.parse(ts.snippet(MAPS[name], "encode-bindings"))):
        match node:
            case ast.Attribute(ast.Attribute(ast.Name("driver"), enumeration), member):
                assert hasattr(getattr(driver, enumeration), member)
            case ast.Attribute(ast.Name("driver"), member):
                assert hasattr(driver, member)


def test_the_core_call_names_what_cuda_core_has():
    from cuda.core import _tensor_map
    from cuda.core.utils import StridedMemoryView

    assert hasattr(StridedMemoryView, "as_tensor_map")
    for name in ("tiled", "nan"):
        for node in ast.walk(ast.parse(ts.snippet(MAPS[name], "encode-core"))):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id.startswith("TensorMap")
            ):
                assert hasattr(getattr(_tensor_map, node.value.id), node.attr)


def test_descriptors_are_the_plans_own():
    plan = ts.plan((128, 64), "bf16").best
    text = ts.snippet(plan, "descriptors")
    assert [hex(step.encode()) in text for block in plan.descriptors() for step in block] == [True] * 8


def test_barriers_expect_what_the_plan_brings():
    text = ts.snippet(ts.plan((128, 64), "bf16", stages=4).best, "barriers")
    assert "16384 bytes" in text
    assert "constexpr int STAGES = 4;" in text
    assert "[%0], 1;" in text
    assert "[%0], 4;" not in text
    by_warps = ts.snippet(ts.plan((64, 64), "bf16", consumer="ldmatrix", stages=2).best, "barriers")
    assert "[%0], 4;" in by_warps
    kernel = f'extern "C" __global__ void f() {{\n{by_warps}}}'
    assert nvrtc(kernel, "sm_90")


@pytest.mark.parametrize("name", SNIPPETS)
def test_every_snippet_is_text_or_a_reason(name):
    for plan in PLANS.values():
        with contextlib.suppress(ts.RuleError):
            assert ts.snippet(plan, name).endswith("\n")


def test_a_map_alone_has_its_encode_call_only():
    with pytest.raises(ts.RuleError, match="encode call"):
        ts.snippet(MAPS["tiled"], "fences")
    with pytest.raises(ts.RuleError, match="Did you mean encode"):
        ts.snippet(MAPS["tiled"], "encod")
