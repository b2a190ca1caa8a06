"""A GEMM of TileLang, run without a GPU: one warpgroup loads by TMA, another multiplies by wgmma, mbarriers lie between them.

tilelang_gemm.ptx is what TileLang 0.1.15 and nvcc 13.4 make of `gemm`. `python run_tilelang.py compile` makes it anew, also without a GPU:
it needs pip install tilelang, nvcc and g++.

    $ python examples/run_tilelang.py
    gemm_kernel: 341 instructions
    finished, 32 copies by TMA
    errors: {'run-phase-parity': 4}
    equal to numpy: True
"""

import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

import tilescope as ts

M, N, K = 128, 128, 256
TILE = 64
KEPT = Path(__file__).with_name("tilelang_gemm.ptx")


def compiled() -> str:
    """The kernel's PTX: TileLang writes CUDA C++, nvcc compiles it with TileLang's headers."""
    import tilelang
    import tilelang.language as T  # noqa: N812
    from tilelang import tvm

    @T.prim_func
    def gemm(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(N // TILE, M // TILE, threads=128) as (bx, by):
            a_tile = T.alloc_shared((TILE, TILE), "float16")
            b_tile = T.alloc_shared((TILE, TILE), "float16")
            total = T.alloc_fragment((TILE, TILE), "float32")
            T.clear(total)
            for k in T.Pipelined(K // TILE, num_stages=2):
                T.copy(A[by * TILE, k * TILE], a_tile)
                T.copy(B[k * TILE, bx * TILE], b_tile)
                T.gemm(a_tile, b_tile, total)
            T.copy(total, C[by * TILE, bx * TILE])

    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
    with target:
        made = tilelang.lower(gemm, target=target)
    print(made.host_mod.script())  # the maps and the launch stand at its end
    package = Path(tilelang.__file__).parent
    includes = [f"-I{package / 'src'}", f"-I{package / '3rdparty' / 'cutlass' / 'include'}"]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "gemm.cu")
        source.write_text(made.kernel_source, "utf-8")
        architecture = "-gencode=arch=compute_90a,code=compute_90a"
        command = ["nvcc", "-ptx", "-std=c++17", architecture, *includes, "-o", source.with_suffix(".ptx"), source]
        subprocess.run(command, check=True)
        return source.with_suffix(".ptx").read_text("utf-8")


def main() -> None:
    text = compiled() if "compile" in sys.argv else KEPT.read_text("utf-8")
    kernel = ts.Kernel(text)
    print(f"{kernel.entry}: {len(kernel.instructions)} instructions")

    random = np.random.default_rng(0)
    a = random.integers(-2, 3, (M, K)).astype(np.float16)
    b = random.integers(-2, 3, (K, N)).astype(np.float16)
    c = np.zeros((M, N), np.float16)
    memory = ts.Memory()
    maps = []
    for matrix in (a, b):  # __tvm_tensormap_create_tiled of TileLang's host: boxes of 64 x 64, swizzle 3
        rows, columns = matrix.shape
        address = memory.place(matrix)
        tensor_map = ts.TensorMap(
            address=address,
            data_type="f16",
            dims=(columns, rows),
            strides_bytes=(2 * columns,),
            box=(TILE, TILE),
            swizzle="128B",
        )
        maps.append(tensor_map)
    run = kernel.run(grid=(N // TILE, M // TILE), block=256, args=[*maps, c], smem_bytes=32768, memory=memory)
    print(f"{run.outcome}, {len(run.copies)} copies by TMA")
    # All four warps of the loading warpgroup wait for free slots, and one of them loads. The others hold nobody up, and nobody waits
    # for them: one that comes a phase late waits for the next phase of that parity, and in the end for one that never comes.
    errors = Counter(finding.rule for finding in run.findings if finding.severity == "error")
    print("errors:", dict(errors))
    print("equal to numpy:", np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32)))


if __name__ == "__main__":
    main()
