"""Multiplies two matrices with Triton: descriptors of the host, and pointers. Writes the PTX of both to the folder that is named."""

import sys
from pathlib import Path

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def matmul_tma(of_a, of_b, of_c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for first in range(0, K, BK):
        total = tl.dot(of_a.load([m, first]), of_b.load([n, first]).T, total)
    of_c.store([m, n], total.to(tl.float16))


@triton.jit
def matmul_pointers(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for first in range(0, K, BK):
        x = tl.load(a + rows[:, None] * K + (first + ks)[None, :])
        y = tl.load(b + columns[None, :] * K + (first + ks)[:, None])
        total = tl.dot(x, y, total)
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(tl.float16))


def main(folder):
    torch.manual_seed(0)
    a, b = (torch.randint(-8, 9, (128, 64), device="cuda").to(torch.float16) / 8 for _ in range(2))
    by_tma, by_pointers = (torch.zeros(128, 128, device="cuda", dtype=torch.float16) for _ in range(2))
    blocks = {"BM": 64, "BN": 64, "BK": 32}
    descriptors = [
        TensorDescriptor.from_tensor(tensor, block)
        for tensor, block in ((a, [64, 32]), (b, [64, 32]), (by_tma, [64, 64]))
    ]
    kernels = (
        matmul_tma[(2, 2)](*descriptors, 64, **blocks),
        matmul_pointers[(2, 2)](a, b, by_pointers, 128, 64, **blocks),
    )
    torch.cuda.synchronize()
    for kernel in kernels:
        (Path(folder) / f"{kernel.metadata.name}.ptx").write_text(kernel.asm["ptx"])
    expected = (a.float() @ b.float().T).half()
    print(torch.equal(by_tma, expected), torch.equal(by_pointers, expected))


if __name__ == "__main__":
    main(*sys.argv[1:])
