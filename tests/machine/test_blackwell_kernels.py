"""Kernels for sm_100 as compilers make them run and equal a plain product, without an error among the findings."""

import importlib.util
import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from blackwell_launches import LAUNCHES, product

import tilescope as ts

GOLDEN = Path(__file__).parents[1] / "golden" / "blackwell"
RECORDED = json.loads((GOLDEN / "launches.json").read_text())
COMPILED = [name for name in LAUNCHES if name not in RECORDED]


def assert_equal_to_a_plain_product(name, ptx, launched, seed=None):
    launch = LAUNCHES[name]()
    run = ts.Kernel(ptx).run(
        launch.grid,
        launched["threads"],
        launch.arguments,
        memory=launch.memory,
        smem_bytes=launched["smem_bytes"],
        cluster=launch.cluster,
        seed=seed,
        record=False,
    )
    assert [str(finding) for finding in run.findings if finding.severity != "note"] == []
    assert run.outcome == "finished"
    difference = np.abs(launch.result.astype(np.float64) - launch.expected).max()
    assert difference <= launch.tolerance * np.abs(launch.expected).max()


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_texts_compute_a_plain_product(name):
    assert_equal_to_a_plain_product(name, (GOLDEN / f"{name}.ptx").read_text(), RECORDED[name])


def test_a_map_of_another_swizzle_than_the_descriptors_is_told(wording):
    """The product is wrong, and nothing but the swizzle says why."""
    launch = product(swizzle="128B_ATOM_32B")
    launched = RECORDED["product"]
    run = ts.Kernel((GOLDEN / "product.ptx").read_text()).run(
        launch.grid,
        launched["threads"],
        launch.arguments,
        memory=launch.memory,
        smem_bytes=launched["smem_bytes"],
        record=False,
        advice="none",
    )
    mismatches = [finding for finding in run.findings if finding.rule == "run-swizzle-mismatch"]
    assert [finding.severity for finding in mismatches] == ["error"] * 2  # A and B
    assert [finding.values["operand"] for finding in mismatches] == ["A", "B"]
    assert "128B_ATOM_32B" in mismatches[0].fix
    assert "code 1 in bits 61-63" in mismatches[0].fix
    wording("a map of another swizzle than the descriptor", mismatches[0])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", RECORDED)
def test_completion_times_change_nothing(name, seed):
    assert_equal_to_a_plain_product(name, (GOLDEN / f"{name}.ptx").read_text(), RECORDED[name], seed)


@pytest.fixture(scope="session")
def compiled(require):
    """The compiler of the folder's kernels; it needs Triton."""
    require("triton")
    spec = importlib.util.spec_from_file_location("blackwell_kernels", GOLDEN / "kernels.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["blackwell_kernels"] = module  # where Triton looks for what a kernel calls
    spec.loader.exec_module(module)
    return module.compiled


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_triton_kernels_compute_a_plain_product(name, compiled):
    ptx, launched = compiled(name)
    assert_equal_to_a_plain_product(name, ptx, launched)


# The prints of a tutorial are taken out: they are most of its text.
PRINTS = re.compile(r"if \(thread0\(\)\) \{\n(?:.*\n)*?\s*\} __syncthreads\(\);")
# The documents want fence.mbarrier_init before other blocks use an mbarrier; the tutorials trust in the barrier of the cluster.
CLUSTER_SYNC = "cute::cluster_sync();"
WITH_FENCE = "cutlass::arch::fence_barrier_init(); cute::cluster_sync();"
# name, m, n, k, tile of the instruction, cluster, blocks of a tile
TUTORIALS = [
    ("02_mma_tma_sm100", 128, 256, 128, (128, 256), (1, 1), 1),
    ("03_mma_tma_multicast_sm100", 512, 1024, 64, (128, 256), (4, 4), 1),
    ("04_mma_tma_2sm_sm100", 512, 1024, 64, (256, 256), (4, 4), 2),
]


def tutorial_text(name, folder, require):
    """PTX of a CuTe tutorial for Blackwell, as nvcc makes it from the headers of nvidia-cutlass."""
    nvcc = Path(require("nvcc"))
    source = Path(require("cutlass")).parent / "source"
    tutorial = source / "examples" / "cute" / "tutorial" / "blackwell"
    text = PRINTS.sub("", (tutorial / f"{name}.cu").read_text()).replace(CLUSTER_SYNC, WITH_FENCE)
    (folder / f"{name}.cu").write_text('#include "cutlass/arch/barrier.h"\n' + text)
    toolkit = nvcc.parent.parent
    folders = [
        source / "include",
        source / "tools" / "util" / "include",
        tutorial,
        toolkit / "include",
        toolkit / "include" / "cccl",
    ]
    command = [
        nvcc,
        "-std=c++17",
        "-ptx",
        "-arch=sm_100a",
        "--expt-relaxed-constexpr",
        *[f"-I{one}" for one in folders],
    ]
    environment = os.environ | {"PATH": f"{nvcc.parent}:{os.environ['PATH']}"}
    subprocess.run(
        [*command, "-o", "kernel.ptx", f"{name}.cu"], cwd=folder, env=environment, check=True, capture_output=True
    )
    return (folder / "kernel.ptx").read_text()


# All four warps wait at barriers that the first one alone drives: another may still wait when two phases have ended.
MISTAKES = {"02_mma_tma_sm100": {"run-phase-parity"}}


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "m", "n", "k", "tile", "cluster", "group"), TUTORIALS)
def test_cute_tutorials_compute_a_plain_product(name, m, n, k, tile, cluster, group, tmp_path, require):
    """D = A B^T + C / 2: one block, a cluster with multicast copies, a cluster of pairs."""
    kernel = ts.Kernel(tutorial_text(name, tmp_path, require), "gemm_device")
    random = np.random.default_rng(4)
    a, b = (random.integers(-3, 4, (rows, k)).astype(np.float16) for rows in (m, n))
    c, d = random.standard_normal((m, n)).astype(np.float32), np.zeros((m, n), np.float32)
    memory = ts.Memory()
    idesc = ts.InstructionDescriptor("f16", *tile, a_type="f16").encode()
    a_rows = tile[0] // group // cluster[1]
    b_rows = tile[1] // group // (cluster[0] // group)
    maps = [memory.map(array, (64, rows), swizzle="128B").encode() for array, rows in ((a, a_rows), (b, b_rows))]
    arguments = [
        struct.pack("<ii4x", m, k),
        struct.pack("<ii4x", n, k),
        *[struct.pack("<iii4xQ", m, n, n, memory.place(array)) for array in (c, d)],
        bytes(1),
        struct.pack("<II", idesc, idesc),
        bytes(1),
        *[encoded + bytes(128) for encoded in maps],
        1.0,
        0.5,
    ]
    grid = (m // tile[0] * group, n // tile[1])
    run = kernel.run(grid, 128, arguments, memory=memory, smem_bytes=0xC200, cluster=(*cluster, 1), record=False)
    assert run.outcome == "finished", [str(finding) for finding in run.findings]
    assert {finding.rule for finding in run.findings if finding.severity == "error"} <= MISTAKES.get(name, set())
    assert np.abs(d - (plain(a, b) + 0.5 * c)).max() < 1e-4


def plain(a, b):
    return a.astype(np.float64) @ b.astype(np.float64).T
