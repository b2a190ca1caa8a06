"""tcgen05.mma.sp multiplies: the stored half of A, metadata that `compress` gives as cells of tensor memory."""

import ml_dtypes
import numpy as np
import pytest
from tensor_memory_text import SMEM, SMEM_BYTES, Operand, packed, padded, ran, write_scales

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
A_SCALE_COLUMN = 96
B_SCALE_COLUMN = 100
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


@pytest.mark.thinned(16)
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
        ({"selector": 2}, "sparsity selector 2"),
        ({"b_swizzle": "32B"}, "no document says where"),
        ({"sparse": False}, "tcgen05.mma.sp .* dense A"),
    ],
)
def test_what_no_document_tells_is_a_fault_with_its_reason(options, reason):
    with pytest.raises(AssertionError, match=reason):
        sparse_product("f16", "f16", **options)


# kind, qualifier, type of the elements, type in whose groups A is compressed, scale type, factors of a row
SCALED = [
    ("f8f6f4", "", "e2m1", "u8", None, 0),
    ("f8f6f4", "", "e3m2", "u8", None, 0),
    ("mxf8f6f4", ".block_scale", "e4m3", "e4m3", "ue8m0", 1),
    ("mxf8f6f4", ".block_scale", "e2m1", "u8", "ue8m0", 1),
    ("mxf4", ".block_scale", "e2m1", "e2m1", "ue8m0", 2),
    ("mxf4nvf4", ".block_scale.scale_vec::4X", "e2m1", "e2m1", "ue4m3", 4),
    ("mxf4nvf4", ".block_scale.block32", "e2m1", "e2m1", "ue8m0", 2),
]


@pytest.mark.thinned(32)
@pytest.mark.parametrize(("kind", "qualifier", "data_type", "grouped_as", "scale_type", "scales"), SCALED)
def test_narrow_elements_and_scale_factors(kind, qualifier, data_type, grouped_as, scale_type, scales):
    """A factor belongs to twice as many elements of k as in a dense product; 4 bits go in pairs where they are packed."""
    random = np.random.default_rng(11)
    m = 128
    options = {"scale_type": scale_type} if scales else {}
    word = ts.InstructionDescriptor(kind, m, N, a_type=data_type, b_type=data_type, sparse=True, **options)
    k = 2 * word.k
    element = ts.DataType.named(data_type).numpy
    together = 2 if grouped_as == "e2m1" else 1
    chosen = random.permuted(np.tile([True, True, False, False], (m * k // 4 // together, 1)), axis=1)
    is_stored = np.repeat(chosen.reshape(m, -1), together, axis=1)
    a = np.where(is_stored, random.integers(1, 4, (m, k)), 0).astype(element)
    b = random.integers(-3, 4, (N, k)).astype(element)
    codes = a.view(np.uint8)
    values, metadata = ts.compress(a if grouped_as == data_type else codes, grouped_as, instruction="tcgen05.mma.sp")
    cells = np.zeros((1, 128, COLUMNS), np.uint32)
    cells[0, :, METADATA_COLUMN : METADATA_COLUMN + metadata.shape[-1]] = metadata[0, 0]
    exponents = random.integers(-2, 3, (m + N, max(scales, 1))) if scales else np.zeros((m + N, 1), np.int64)
    scale_operands = ""
    if scales:
        scale_codes = (exponents + 127 if scale_type == "ue8m0" else exponents + 7 << 3).astype(np.uint8)
        write_scales(cells[0], scale_codes[:m], "A", A_SCALE_COLUMN, m, 1)
        write_scales(cells[0], scale_codes[m:], "B", B_SCALE_COLUMN, m, 1)
        scale_operands = " [%r10], [%r11],"
    in_smem = packed if together == 2 else padded
    image = np.zeros(SMEM_BYTES, np.uint8)
    left = Operand(in_smem(values.view(element)), SMEM, swizzle="32B")
    right = Operand(in_smem(b), B_AT, swizzle="64B")
    left.write(image)
    right.write(image)
    body = f"mov.b32 %r8, {word.encode():#x}; add.u32 %r9, %r1, {METADATA_COLUMN};"
    body += f"add.u32 %r10, %r1, {A_SCALE_COLUMN}; add.u32 %r11, %r1, {B_SCALE_COLUMN};"
    body += f"tcgen05.mma.sp.cta_group::1.kind::{kind}{qualifier} [%r1], %a0, %a1, [%r9], %r8,{scale_operands} %p7;"
    result = ran(body, cells, image, left.word, right.word)
    factors = np.exp2(exponents.astype(np.float64)).repeat(k // exponents.shape[1], axis=1)
    expected = (a.astype(np.float64) * factors[:m]) @ (b.astype(np.float64) * factors[m:]).T
    assert (result.after[0, :, :N].view(np.float32) == expected).all()
    assert result.findings == ()
