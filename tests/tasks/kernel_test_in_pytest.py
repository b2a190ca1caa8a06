"""Our CI has no GPU. I want a test of a CUDA kernel that fails when somebody removes the __syncthreads()."""

import subprocess
import sys

IS_SLOW = True
REVERSE = """\
extern "C" __global__ void reverse(int* out, const int* in) {
    __shared__ int tile[128];
    tile[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[127 - threadIdx.x];
}
"""
TEST = """\
import numpy as np
import tilescope as ts
from tilescope.testing import assert_equal_to

def test_a_tile_is_reversed(tilescope_run):
    numbers = np.arange(128, dtype=np.int32)
    out = np.zeros_like(numbers)
    run = tilescope_run(ts.Kernel.from_cuda("reverse.cu"), grid=1, block=128, args=[out, numbers])
    assert_equal_to(run, 0, numbers[::-1])
"""


def pytest_in(folder):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "tilescope.pytest_plugin",
        "test_reverse.py",
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def solve(desk):
    desk.require("nvcc")
    desk.write("reverse.cu", REVERSE)
    desk.write("test_reverse.py", TEST)
    passed = pytest_in(desk.folder)
    assert passed.returncode == 0, passed.stdout
    desk.write("reverse.cu", REVERSE.replace("__syncthreads();", ""))
    failed = pytest_in(desk.folder)
    assert failed.returncode == 1
    assert "run-race" in failed.stdout
    assert "reverse.cu:5" in failed.stdout
