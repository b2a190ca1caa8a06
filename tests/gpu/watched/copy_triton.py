"""Copies a matrix with Triton host descriptors, then one whose rows lie too far apart for TMA."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def copy(source, target, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    row = tl.program_id(0) * BLOCK_M
    column = tl.program_id(1) * BLOCK_N
    target.store([row, column], source.load([row, column]))


def copied(rows, columns, row_elements):
    source = torch.randn(rows, columns, device="cuda", dtype=torch.float16)
    target = torch.zeros_like(source)
    block = [64, 64]
    descriptors = [TensorDescriptor(each, [rows, columns], [row_elements, 1], block) for each in (source, target)]
    copy[(rows // 64, columns // 64)](*descriptors, *block)
    return torch.equal(source, target)


print("256 x 512:", copied(256, 512, 512))
try:
    print("rows 2^40 bytes apart:", copied(256, 512, 2**39))
except Exception as error:
    print("rows 2^40 bytes apart:", str(error).strip().splitlines()[0])
