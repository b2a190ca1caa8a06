"""tcgen05.mma.sp multiplies: the stored half of A, metadata that `compress` gives as cells of tensor memory."""

import ml_dtypes
import numpy as np
import pytest
from tensor_memory_text import SMEM, SMEM_BYTES, Operand, ran

import tilescope as ts

TYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "s8": np.int8,
}
COLUMNS = 128
METADATA_COLUMN = 64
N = 32
B_AT = SMEM + 0x8000


def sparse_product(kind, data_type, *, selector=0, b_swizzle="64B", m=128, opcode="tcgen05.mma.sp", sparse=True):
    """D of a random sparse A and of B, and what it should be."""
    random = np.random.default_rng(9)
    word = ts.InstructionDescriptor(
        kind, m, N, a_type=data_type, b_type=data_type, sparse=sparse, sparsity_selector=selector
    )
    k = 2 * word.k
    group = 2 if data_type == "tf32" else 4
    a = np.where(np.arange(k) % group < group // 2, random.integers(-3, 4, (m, k)), 0)
    a = np.roll(a, 1, axis=1).astype(TYPES[data_type])
    b = random.integers(-3, 4, (N, k)).astype(TYPES[data_type])
    values, metadata = ts.compress(a, data_type, instruction="tcgen05.mma.sp")
    cells = np.zeros((1, 128, COLUMNS), np.uint32)
    first = METADATA_COLUMN + selector
    cells[0, :, first : first + metadata.shape[-1]] = metadata[0, 0]
    image = np.zeros(SMEM_BYTES, np.uint8)
    left = Operand(np.ascontiguousarray(values).view(f"u{values.itemsize}"), SMEM, swizzle="32B")
    right = Operand(b.view(f"u{b.itemsize}"), B_AT, swizzle=b_swizzle)
    left.write(image)
    right.write(image)
    body = f"mov.b32 %r8, {word.encode():#x}; add.u32 %r9, %r1, {METADATA_COLUMN};"
    body += f"{opcode}.cta_group::1.kind::{kind} [%r1], %a0, %a1, [%r9], %r8, %p7;"
    result = ran(body, cells, image, left.word, right.word)
    d_type = np.int32 if data_type == "s8" else np.float32
    return result, result.after[0, :, :N].view(d_type), a.astype(np.float64) @ b.astype(np.float64).T


@pytest.mark.parametrize(
    ("kind", "data_type", "selector"),
    [
        ("f16", "f16", 0),
        ("f16", "bf16", 1),
        ("tf32", "tf32", 0),
        ("tf32", "tf32", 1),
        ("f8f6f4", "e4m3", 0),
        ("i8", "s8", 0),
    ],
)
def test_a_sparse_product_equals_the_plain_one(kind, data_type, selector):
    result, d, expected = sparse_product(kind, data_type, selector=selector)
    assert (d == expected).all()
    assert result.findings == ()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"selector": 2}, "documents speak of the columns of 0 and 1 alone"),
        ({"b_swizzle": "32B"}, "no document says where its second half lies"),
        ({"sparse": False}, "tcgen05.mma.sp with an instruction descriptor of a dense A"),
    ],
)
def test_what_no_document_tells_is_a_fault_with_its_reason(options, reason):
    with pytest.raises(AssertionError, match=reason):
        sparse_product("f16", "f16", **options)


def test_scale_factors_with_a_sparse_a_are_refused():
    body = "tcgen05.mma.sp.cta_group::1.kind::mxf8f6f4.block_scale [%r1], %a0, %a1, [%r9], %r8, [%r1], [%r1], %p7;"
    with pytest.raises(ts.RuleError, match="without scale factors alone"):
        ran(body, np.zeros((1, 128, COLUMNS), np.uint32), np.zeros(16, np.uint8), 0, 0)
