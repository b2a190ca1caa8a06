"""tcgen05.mma multiplies: one instruction each, every kind, layout and place of its operands."""

import ml_dtypes
import numpy as np
import pytest
from tensor_memory_text import SMEM, SMEM_BYTES, Operand, packed, padded, ran, write_scales

import tilescope as ts
from tilescope.mma.tmem_layout import tmem_layout

TYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "s8": np.int8,
    "u8": np.uint8,
}
RANDOM = np.random.default_rng(5)
COLUMNS = 128
B_AT = SMEM + 0x8000


def whole_numbers(shape, type_name, least=-3, most=3):
    """Small whole numbers, whose sums of products are exact in any order."""
    return RANDOM.integers(max(least, 0) if type_name == "u8" else least, most + 1, shape).astype(TYPES[type_name])


def placed(cells, layout, values):
    """Elements of one block of a layout, written to cells (128, columns) bit by bit."""
    codes = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}").astype(np.uint64)
    for copy in range(layout.copies):
        bits = layout.bit_addresses()[..., copy]
        lane, column, shift = bits >> 21, bits % (1 << 21) >> 5, bits % 32
        for row, element in np.ndindex(codes.shape):
            at = lane[row, element], column[row, element]
            cells[at] |= np.uint32(int(codes[row, element]) << int(shift[row, element]))


def held(cells, layout, dtype):
    """The elements of one block, read from cells (128, columns)."""
    bits = layout.bit_addresses()[..., 0]
    words = cells[bits >> 21, bits % (1 << 21) >> 5]
    return np.ascontiguousarray(words.astype(f"u{np.dtype(dtype).itemsize}")).view(dtype)


def empty_cells(blocks=1):
    return np.zeros((blocks, 128, COLUMNS), np.uint32)


def mma(kind, group=1, ws=""):
    return f"tcgen05.mma{ws}.cta_group::{group}.kind::{kind} [%r1], %a0, %a1, %r8, %p7;"


def idesc(kind, m, n, **fields):
    word = ts.InstructionDescriptor(kind, m, n, **fields)
    return word, f"mov.b32 %r8, {word.encode():#x};"


# kind, A, B, D, m, n, majors
SINGLE = [
    ("f16", "f16", "f16", "float32", 128, 64, "KK"),
    ("f16", "bf16", "bf16", "float32", 128, 32, "KM"),
    ("f16", "f16", "f16", "float16", 128, 16, "MM"),
    ("f16", "f16", "f16", "float32", 64, 64, "KK"),
    ("tf32", "tf32", "tf32", "float32", 128, 32, "KK"),
    ("f8f6f4", "e4m3", "e5m2", "float32", 128, 32, "KK"),
    ("i8", "s8", "u8", "int32", 128, 32, "KK"),
]


@pytest.mark.parametrize(("kind", "a_type", "b_type", "d_type", "m", "n", "majors"), SINGLE)
def test_one_block_multiplies(kind, a_type, b_type, d_type, m, n, majors):
    word, setting = idesc(
        kind,
        m,
        n,
        a_type=a_type,
        b_type=b_type,
        d_type=d_type,
        a_major="K" if majors[0] == "K" else "MN",
        b_major="K" if majors[1] == "K" else "MN",
    )
    a, b = whole_numbers((m, word.k), a_type), whole_numbers((n, word.k), b_type)
    swizzles = [
        "32B" if major == "K" else "64B" if extent * a.itemsize >= 64 else "32B"
        for major, extent in zip(majors, (m, n), strict=True)
    ]
    image = np.zeros(SMEM_BYTES, np.uint8)
    left = Operand(codes_of(a), SMEM, major=word.a_major, swizzle=swizzles[0])
    right = Operand(codes_of(b), B_AT, major=word.b_major, swizzle=swizzles[1])
    left.write(image)
    right.write(image)
    result = ran(setting + mma(kind), empty_cells(), image, left.word, right.word)
    layout = tmem_layout((m, n), data_type=d_type)
    expected = a.astype(np.float64) @ b.astype(np.float64).T
    assert (held(result.after[0], layout, layout_type(d_type)).astype(np.float64) == expected).all()
    assert result.findings == ()


def codes_of(values):
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")


def layout_type(name):
    return {"float32": np.float32, "float16": np.float16, "int32": np.int32}[name]


@pytest.mark.parametrize(("m", "n"), [(256, 64), (128, 64)])
def test_a_pair_multiplies(m, n):
    """Each block holds half of A and of B; here both halves of B are equal, and so are those of A."""
    _, setting = idesc("f16", m, n, a_type="f16")
    a, b = whole_numbers((m // 2, 16), "f16"), whole_numbers((n // 2, 16), "f16")
    image = np.zeros(SMEM_BYTES, np.uint8)
    left, right = Operand(codes_of(a), SMEM, swizzle="32B"), Operand(codes_of(b), B_AT, swizzle="32B")
    left.write(image)
    right.write(image)
    result = ran(setting + mma("f16", group=2), empty_cells(2), image, left.word, right.word)
    layout = tmem_layout((m, n), cta_group=2)
    expected = np.tile(a.astype(np.float64) @ b.astype(np.float64).T, (1, 2))
    for block in range(2):
        assert (held(result.after[block], layout, np.float32) == expected).all()
    assert result.findings == ()


@pytest.mark.parametrize("m", [32, 64, 128])
def test_weight_stationary_products(m):
    _, setting = idesc("f16", m, 64, a_type="f16")
    a, b = whole_numbers((m, 16), "f16"), whole_numbers((64, 16), "f16")
    image = np.zeros(SMEM_BYTES, np.uint8)
    left, right = Operand(codes_of(a), SMEM, swizzle="32B"), Operand(codes_of(b), B_AT, swizzle="32B")
    left.write(image)
    right.write(image)
    instruction = mma("f16", ws=".ws").replace("%p7;", "%p7, 0;")
    result = ran(setting + instruction, empty_cells(), image, left.word, right.word)
    layout = tmem_layout((m, 64), ws=True)
    assert (held(result.after[0], layout, np.float32) == a.astype(np.float64) @ b.astype(np.float64).T).all()


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("group", "m"), [(1, 128), (1, 64), (2, 256), (2, 128)])
def test_a_lies_in_tensor_memory(group, m):
    """A of bf16 from column 64 on, D before it."""
    _, setting = idesc("f16", m, 64, a_type="bf16")
    a, b = whole_numbers((m // group, 16), "bf16"), whole_numbers((64 // group, 16), "bf16")
    image = np.zeros(SMEM_BYTES, np.uint8)
    right = Operand(codes_of(b), B_AT, swizzle="32B")
    right.write(image)
    cells = empty_cells(group)
    layout = tmem_layout((m, 16), operand="A", data_type="bf16", cta_group=group, address=64)
    for block in range(group):
        placed(cells[block], layout, a)
    body = f"{setting} add.u32 %r9, %r1, 64; tcgen05.mma.cta_group::{group}.kind::f16 [%r1], [%r9], %a0, %r8, %p7;"
    result = ran(body, cells, image, right.word)
    d = tmem_layout((m, 64), cta_group=group)
    expected = np.tile(a.astype(np.float64) @ b.astype(np.float64).T, (1, group))
    for block in range(group):
        assert (held(result.after[block], d, np.float32) == expected).all()


def test_d_is_added_scaled_and_masked():
    """D before counts, divided by 2 ** 3; lanes 0 and 33 keep it."""
    word, setting = idesc("f16", 128, 32, a_type="f16", negate_a=True)
    a, b = whole_numbers((128, 16), "f16"), whole_numbers((32, 16), "f16")
    image = np.zeros(SMEM_BYTES, np.uint8)
    left, right = Operand(codes_of(a), SMEM, swizzle="32B"), Operand(codes_of(b), B_AT, swizzle="32B")
    left.write(image)
    right.write(image)
    cells = empty_cells()
    before = (8 * RANDOM.integers(-9, 9, (128, 32))).astype(np.float32)
    layout = tmem_layout((word.m, word.n))
    placed(cells[0], layout, before)
    body = (
        f"{setting} mov.b32 %r10, 1; mov.b32 %r11, 2; mov.b32 %r12, 0;"
        " tcgen05.mma.cta_group::1.kind::f16 [%r1], %a0, %a1, %r8, {%r10, %r11, %r12, %r12}, %p6, 3;"
    )
    result = ran(body, cells, image, left.word, right.word)
    expected = before / 8 - a.astype(np.float64) @ b.astype(np.float64).T
    expected[[0, 33]] = before[[0, 33]]
    assert (held(result.after[0], layout, np.float32) == expected).all()


def test_products_follow_each_other():
    """Two products of one thread into one accumulator are in order, and need no wait between them."""
    _, setting = idesc("f16", 128, 32, a_type="f16")
    a, b = whole_numbers((128, 32), "f16"), whole_numbers((32, 32), "f16")
    image = np.zeros(SMEM_BYTES, np.uint8)
    left, right = Operand(codes_of(a), SMEM, swizzle="64B"), Operand(codes_of(b), B_AT, swizzle="64B")
    left.write(image)
    right.write(image)
    body = f"{setting} {mma('f16')} add.u64 %a0, %a0, 2; add.u64 %a1, %a1, 2; {mma('f16').replace('%p7', '%p6')}"
    for seed in (None, 3):
        result = ran(body, empty_cells(), image, left.word, right.word, seed=seed)
        layout = tmem_layout((128, 32))
        assert (held(result.after[0], layout, np.float32) == a.astype(np.float64) @ b.astype(np.float64).T).all()
        assert result.findings == ()


@pytest.mark.parametrize(("a_type", "b_type"), [("e2m1", "e4m3"), ("e3m2", "e2m3"), ("e2m3", "e2m1")])
def test_narrow_elements_lie_padded_in_shared_memory(a_type, b_type):
    """16 elements of 4 or 6 bits at the front of 16 bytes."""
    _, setting = idesc("f8f6f4", 128, 32, a_type=a_type, b_type=b_type)
    a, b = whole_numbers((128, 32), a_type, -2, 2), whole_numbers((32, 32), b_type, -2, 2)
    image = np.zeros(SMEM_BYTES, np.uint8)
    left, right = (Operand(padded(values), address, swizzle="32B") for values, address in ((a, SMEM), (b, B_AT)))
    left.write(image)
    right.write(image)
    result = ran(setting + mma("f8f6f4"), empty_cells(), image, left.word, right.word)
    layout = tmem_layout((128, 32))
    assert (held(result.after[0], layout, np.float32) == a.astype(np.float64) @ b.astype(np.float64).T).all()


# kind, qualifier, type of the elements, scale type, k, block
SCALED = [
    ("mxf8f6f4", ".block32", "e4m3", "ue8m0", 32, 32),
    ("mxf4", "", "e2m1", "ue8m0", 64, 32),
    ("mxf4nvf4", ".block32", "e2m1", "ue8m0", 64, 32),
    ("mxf4nvf4", ".scale_vec::4X", "e2m1", "ue4m3", 64, 16),
    ("mxf4nvf4", ".block16", "e2m1", "ue8m0", 64, 16),
]


@pytest.mark.thinned(6)
@pytest.mark.parametrize(("group", "m", "n"), [(1, 128, 64), (2, 256, 64), (2, 128, 64)])
@pytest.mark.parametrize(("kind", "qualifier", "type_name", "scale_type", "k", "block"), SCALED)
def test_scale_factors_lie_in_tensor_memory(group, m, n, kind, qualifier, type_name, scale_type, k, block):
    """D in columns 0 to 63, scale factors of A from column 64 on, those of B from column 68 on; ids begin at byte 0."""
    _, setting = idesc(kind, m, n, a_type=type_name, b_type=type_name, scale_type=scale_type)
    a, b = whole_numbers((m // group, k), type_name), whole_numbers((n // group, k), type_name)
    exponents = RANDOM.integers(-2, 3, (m // group + n, k // block))
    codes = (exponents + 127 if scale_type == "ue8m0" else exponents + 7 << 3).astype(np.uint8)
    of_a, of_b = codes[: m // group], codes[m // group :]
    image = np.zeros(SMEM_BYTES, np.uint8)
    in_smem = padded if k == 32 else packed
    left, right = (Operand(in_smem(values), at, swizzle="32B") for values, at in ((a, SMEM), (b, B_AT)))
    left.write(image)
    right.write(image)
    cells = empty_cells(group)
    for block_cells in cells:
        write_scales(block_cells, of_a, "A", 64, m, group)
        write_scales(block_cells, of_b, "B", 68, m, group)
    scales = "add.u32 %r9, %r1, 64; add.u32 %r10, %r1, 68;"
    body = (
        f"{setting} {scales} tcgen05.mma.cta_group::{group}.kind::{kind}.block_scale{qualifier}"
        " [%r1], %a0, %a1, %r8, [%r9], [%r10], %p7;"
    )
    result = ran(body, cells, image, left.word, right.word)
    factors = np.exp2(exponents.astype(np.float64)).repeat(block, axis=1)
    scaled_a = a.astype(np.float64) * factors[: m // group]
    scaled_b = np.tile(b.astype(np.float64), (group, 1)) * factors[m // group :]
    layout = tmem_layout((m, n), cta_group=group)
    for block_cells in result.after:
        assert (held(block_cells, layout, np.float32) == scaled_a @ scaled_b.T).all()


LOAD = """
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .align 128 .b8 map[128], .param .u64 out)
{
    .shared .align 1024 .b8 tile[4096];
    .shared .align 8 .b64 full;
    .reg .b32 %r<4>;
    .reg .b64 %d<4>;
    .reg .pred %p<2>;
    mov.b64 %d1, map;
    ld.param.u64 %d2, [out];
    mbarrier.init.shared.b64 [full], 1;
    mbarrier.arrive.expect_tx.shared.b64 _, [full], 4096;
    mov.u32 %r1, 0;
    cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [tile], [%d1, {%r1, %r1}], [full];
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p1, [full], 0;
    @!%p1 bra WAIT;
    cp.async.bulk.global.shared::cta.bulk_group [%d2], [tile], 4096;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    ret;
}
"""


@pytest.mark.parametrize("swizzle", ["128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B"])
def test_copies_through_maps_with_the_swizzles_of_sm_100(swizzle):
    memory = ts.Memory()
    source, out = RANDOM.standard_normal((32, 32)).astype(np.float32), np.zeros(4096, np.uint8)
    tensor_map = memory.map(source, (32, 32), swizzle=swizzle, arch="sm_100")
    run = ts.Kernel(LOAD).run(1, 1, [tensor_map, out], memory=memory)
    assert run.outcome == "finished"
    assert (out == ts.load(tensor_map, source.view(np.uint8).ravel(), (0, 0))).all()
    assert not (out == source.view(np.uint8).ravel()).all()


def test_mn_major_tf32_has_atoms_of_32_bytes():
    """B of tf32 with n contiguous: 128B with 32-byte atoms is the only mode that has it."""
    _, setting = idesc("tf32", 128, 32, a_type="tf32", b_major="MN")
    a, b = whole_numbers((128, 8), "tf32"), whole_numbers((32, 8), "tf32")
    image = np.zeros(SMEM_BYTES, np.uint8)
    left = Operand(codes_of(a), SMEM, swizzle="32B")
    left.write(image)
    descriptor = ts.Tcgen05Descriptor(B_AT, leading_bytes=512, stride_bytes=512, swizzle="128B_ATOM_32B")
    addresses = descriptor.addresses("MN", rows=32, k=8, element_bits=32) - B_AT + 0x8000
    for byte in range(4):
        image[addresses + byte] = codes_of(b).view(np.uint8).reshape(32, 8, 4)[..., byte]
    result = ran(setting + mma("tf32"), empty_cells(), image, left.word, descriptor.encode())
    layout = tmem_layout((128, 32))
    assert (held(result.after[0], layout, np.float32) == a.astype(np.float64) @ b.astype(np.float64).T).all()
