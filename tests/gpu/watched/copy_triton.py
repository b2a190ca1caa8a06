"""Copies a matrix with Triton host descriptors, then an empty one."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def copy(source, target, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    row = tl.program_id(0) * BLOCK_M
    column = tl.program_id(1) * BLOCK_N
    target.store([row, column], source.load([row, column]))


def copied(rows, columns):
    source = torch.randn(rows, columns, device="cuda", dtype=torch.float16)
    target = torch.zeros_like(source)
    block = [64, 64]
    descriptors = [TensorDescriptor(each, [rows, columns], [columns, 1], block) for each in (source, target)]
    copy[(max(1, rows // 64), columns // 64)](*descriptors, *block)
    return torch.equal(source, target)


print("256 x 512:", copied(256, 512))
try:
    print("0 x 512:", copied(0, 512))
except Exception as error:
    print("0 x 512:", str(error).strip().splitlines()[0])
