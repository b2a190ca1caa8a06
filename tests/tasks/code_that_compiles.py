"""I want a 4-stage TMA loop for a 128 x 64 bf16 tile as CUDA C++ that compiles, to start from."""

import subprocess

from tilescope.machine.launch.cuda_compiler import find_nvcc

IS_SLOW = True


def solve(desk):
    desk.require("gxx")
    desk.require("nvcc")
    said = desk.type("tilescope plan 128x64 bf16 --stages 4 --emit cuda -o tile.cu")
    assert said.status == 0
    source = (desk.folder / "tile.cu").read_text()
    assert "constexpr int STAGES = 4;" in source
    assert "CU_TENSOR_MAP_SWIZZLE_128B" in source
    flags = ["-std=c++17", "-gencode=arch=compute_90a,code=sm_90a", "-cubin", "-o", "tile.cubin", "tile.cu"]
    made = subprocess.run([find_nvcc(), *flags], cwd=desk.folder, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert (desk.folder / "tile.cubin").read_bytes().startswith(b"\x7fELF")
