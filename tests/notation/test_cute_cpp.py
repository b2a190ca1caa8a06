"""CuTe itself, built with g++ from NVIDIA's headers, prints and evaluates what the recorded texts say."""

import importlib.util
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def headers():
    """Folders of CuTe (nvidia-cutlass), the CUDA runtime's headers and CCCL (nvidia-cuda-runtime, nvidia-cuda-cccl)."""
    cutlass, nvidia = (importlib.util.find_spec(name) for name in ("cutlass_library", "nvidia"))
    found = [Path(cutlass.origin).parent / "source" / "include"] if cutlass else []
    for root in map(Path, nvidia.submodule_search_locations if nvidia else []):
        found += [path.parent for path in sorted(root.glob("*/include/cuda_runtime.h"))]
        found += [path.parent.parent for path in sorted(root.glob("*/include/cccl/cuda/version"))]
    return found


@pytest.mark.slow
def test_cute_prints_and_evaluates_the_recorded_layouts(require, tmp_path):
    compiler = require("gxx")
    folders = headers()
    assert len(folders) >= 3, (
        "CuTe's headers are missing: ./test installs nvidia-cutlass, nvidia-cuda-runtime, -cccl and -crt"
    )
    program = tmp_path / "cute_layouts"
    includes = [f"-I{folder}" for folder in folders]
    subprocess.run([compiler, "-std=c++17", "-w", *includes, HERE / "cute_layouts.cpp", "-o", program], check=True)
    printed = subprocess.check_output([program], text=True)
    assert printed.splitlines() == (HERE / "cute_layouts.tsv").read_text("utf-8").splitlines()
