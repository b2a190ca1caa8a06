"""A matrix product in Triton, compiled and run without a GPU: descriptors made as Triton's host makes them, held against numpy.

$ python examples/run_triton.py
compiled matmul without a GPU
finished, 14 copies by TMA
errors: []
equal to numpy: True
"""

import importlib.util

import numpy as np

import tilescope as ts


def main() -> None:
    import triton
    import triton.language as tl

    @triton.jit
    def matmul(of_a, of_b, of_c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
        """C = A B^T, a tile of C for every program."""
        m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
        total = tl.zeros((BM, BN), tl.float32)
        for first in range(0, K, BK):
            total = tl.dot(of_a.load([m, first]), of_b.load([n, first]).T, total)
        of_c.store([m, n], total.to(tl.float16))

    described = "tensordesc<fp16[64,64]>"  # a descriptor, and the block that it moves
    kernel = ts.Kernel.from_triton(matmul, [described, described, described, "i32:16"], {"BM": 64, "BN": 64, "BK": 64})
    print(f"compiled {kernel.entry} without a GPU")

    random = np.random.default_rng(0)
    a = random.integers(-2, 3, (128, 192)).astype(np.float16)
    b = random.integers(-2, 3, (64, 192)).astype(np.float16)
    c = np.zeros((128, 64), np.float16)
    run = kernel.run(grid=(2, 1), args=[a, b, c, 192])  # neither block nor shared memory: Triton said them
    print(f"{run.outcome}, {len(run.copies)} copies by TMA")
    print("errors:", [finding.rule for finding in run.findings if finding.severity == "error"])
    print("equal to numpy:", np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T))


if __name__ == "__main__":
    if importlib.util.find_spec("triton") is None:
        print("Triton is not installed: pip install triton")
    else:
        main()
