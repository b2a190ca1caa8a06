"""Fragments against the formulas of the PTX manual, CuTe's layouts (pycute, tensor-layouts), and themselves turned round."""

import numpy as np
import pycute
import pytest
from tensor_layouts import atoms_nv

import tilescope as ts
from tilescope import fragment
from tilescope.mma.mma_instruction import INSTRUCTIONS, SPARSE_INSTRUCTIONS

EIGHTS = tuple(range(8, 257, 8))
INTEGER_N = (8, 16, 24, 32, *range(48, 257, 16))

# PTX ISA, "Matrix Fragments for mma.*", as written there: element i of the lane with groupID g and
# threadID_in_group t. First the count of elements, then A: (row, k), B: (k, col).
# fmt: off
MULTIPLICANDS = {
    ("m16n8k16", "f16 bf16"):
        (8, lambda i, g, t: (g + 8 * (i // 2 % 2), 2 * t + i % 2 + 8 * (i // 4)),
         4, lambda i, g, t: (2 * t + i % 2 + 8 * (i // 2), g)),
    ("m16n8k8", "f16 bf16"):
        (4, lambda i, g, t: (g + 8 * (i // 2), 2 * t + i % 2),
         2, lambda i, g, t: (2 * t + i, g)),
    ("m16n8k8", "tf32 f64"):
        (4, lambda i, g, t: (g + 8 * (i % 2), t + 4 * (i // 2)),
         2, lambda i, g, t: (t + 4 * i, g)),
    ("m16n8k4", "tf32 f64"):
        (2, lambda i, g, t: (g + 8 * i, t),
         1, lambda i, g, t: (t + i, g)),
    ("m16n8k16", "f64"):
        (8, lambda i, g, t: (g + 8 * (i % 2), t + 4 * (i // 2)),
         4, lambda i, g, t: (t + 4 * i, g)),
    ("m16n8k32", "s8 u8 e4m3 e5m2 e3m2 e2m3 e2m1"):
        (16, lambda i, g, t: (g + 8 * (i // 4 % 2), 4 * t + i % 4 + 16 * (i // 8)),
         8, lambda i, g, t: (4 * t + i % 4 + 16 * (i // 4), g)),
    ("m16n8k16", "s8 u8 e4m3 e5m2"):
        (8, lambda i, g, t: (g + 8 * (i // 4), 4 * t + i % 4),
         4, lambda i, g, t: (4 * t + i, g)),
    ("m16n8k64", "s4 u4 e2m1"):
        (32, lambda i, g, t: (g + 8 * (i // 8 % 2), 8 * t + i % 8 + 32 * (i // 16)),
         16, lambda i, g, t: (8 * t + i % 8 + 32 * (i // 8), g)),
    ("m16n8k32", "s4 u4"):
        (16, lambda i, g, t: (g + 8 * (i // 8), 8 * t + i % 8),
         8, lambda i, g, t: (8 * t + i, g)),
    ("m16n8k256", "b1"):
        (128, lambda i, g, t: (g + 8 * (i // 32 % 2), 32 * t + i % 32 + 128 * (i // 64)),
         64, lambda i, g, t: (32 * t + i % 32 + 128 * (i // 32), g)),
    ("m16n8k128", "b1"):
        (64, lambda i, g, t: (g + 8 * (i // 32), 32 * t + i % 32),
         32, lambda i, g, t: (32 * t + i, g)),
    ("m8n8k16", "s8 u8"):
        (4, lambda i, g, t: (g, 4 * t + i), 4, lambda i, g, t: (4 * t + i, g)),
    ("m8n8k32", "s4 u4"):
        (8, lambda i, g, t: (g, 8 * t + i), 8, lambda i, g, t: (8 * t + i, g)),
    ("m8n8k128", "b1"):
        (32, lambda i, g, t: (g, 32 * t + i), 32, lambda i, g, t: (32 * t + i, g)),
    ("m8n8k4", "f64"):
        (1, lambda i, g, t: (g, t + i), 1, lambda i, g, t: (t + i, g)),
}
# fmt: on
ACCUMULATORS = {
    "m8n8k4": "f64",
    "m8n8k16": "s32",
    "m8n8k32": "s32",
    "m8n8k128": "s32",
    "m16n8k4": "f32 f64",
    "m16n8k8": "f16 f32 f64",
    "m16n8k16": "f16 f32 f64 s32",
    "m16n8k32": "f16 f32 s32",
    "m16n8k64": "f32 s32",
    "m16n8k128": "s32",
    "m16n8k256": "s32",
}
WGMMA_A = {
    "k16": ("f16 bf16", 8, lambda i, g, t: (g + 8 * (i // 2 % 2), 2 * t + i % 2 + 8 * (i // 4))),
    "k8": ("tf32", 4, lambda i, g, t: (g + 8 * (i % 2), t + 4 * (i // 2))),
    "k32": ("s8 u8 e4m3 e5m2", 16, lambda i, g, t: (g + 8 * (i // 4 % 2), 4 * t + i % 4 + 16 * (i // 8))),
    "k256": ("b1", 128, lambda i, g, t: (g + 8 * (i // 32 % 2), 32 * t + i % 32 + 128 * (i // 64))),
}


def assert_as_written(found, count, formula):
    assert found.values == count
    warp, lane = np.divmod(np.arange(found.threads)[:, None], 32)
    row, column = formula(np.arange(count)[None, :], lane // 4, lane % 4)
    _, found_row, found_column = found.indices()
    assert (found_row == 16 * warp + row).all()
    assert (found_column == column).all()
    assert found.coord(5, count - 1) == (found_row[5, -1], found_column[5, -1])


def every_fragment():
    """All operands of all instructions and types; wgmma at the smallest, an odd and the largest n."""
    for row in INSTRUCTIONS:
        for n in {row.n[0], row.n[2 % len(row.n)], row.n[-1]}:
            name = f"{row.family}.m{row.m}n{n}k{row.k}"
            orders = (".row.col", ".row.row", ".col.row", ".col.col") if row.quad_pairs else ("",)
            for data_type in row.types:
                for operand in ("A",) if row.family == "wgmma" else ("A", "B"):
                    yield from ((name + order, operand, data_type) for order in orders)
            for data_type in row.accumulators:
                yield from ((name + order, operand, data_type) for order in orders for operand in ("C", "D"))
    for direction in ("ldmatrix", "stmatrix"):
        for count in (1, 2, 4):
            yield from ((f"{direction}.x{count}{trans}", "matrix", "bf16") for trans in ("", ".trans"))


ALL = sorted(set(every_fragment()))


def multiplicand_cases():
    return [(shape, name, rule) for (shape, names), rule in MULTIPLICANDS.items() for name in names.split()]


@pytest.mark.parametrize(("shape", "data_type", "rule"), multiplicand_cases(), ids=lambda part: str(part)[:12])
def test_a_and_b_are_where_the_manual_says(shape, data_type, rule):
    a_count, a_formula, b_count, b_formula = rule
    assert_as_written(fragment(f"mma.{shape}", "A", data_type), a_count, a_formula)
    assert_as_written(fragment(f"mma.{shape}", "B", data_type), b_count, b_formula)


def test_the_manuals_table_covers_the_instructions():
    written = {(shape, ts.DataType.named(name).name) for shape, name, _ in multiplicand_cases()}
    known = {
        (f"m{row.m}n{row.n[0]}k{row.k}", name) for row in INSTRUCTIONS if row.family == "mma" for name in row.types
    }
    assert known - written == {("m8n8k4", "float16")}  # the quad pairs, below
    assert written <= known


@pytest.mark.parametrize("operand", ["C", "D"])
@pytest.mark.parametrize("shape", ACCUMULATORS)
def test_accumulators_are_where_the_manual_says(shape, operand):
    for name in ACCUMULATORS[shape].split():
        found = fragment(f"mma.{shape}", operand, name)
        if shape.startswith("m16"):
            assert_as_written(found, 4, lambda i, g, t: (g + 8 * (i // 2), 2 * t + i % 2))
        else:
            assert_as_written(found, 2, lambda i, g, t: (g, 2 * t + i))


@pytest.mark.parametrize("n", EIGHTS)
def test_wgmma_accumulators_are_where_the_manual_says(n):
    found = fragment(f"wgmma.m64n{n}k16", "D", "f32")
    assert_as_written(found, n // 2, lambda i, g, t: (g + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * t + i % 2))
    last = n // 8
    assert str(found.tv_layout) == (
        f"((4,8,4),(2,2,{last})):((128,1,16),(64,8,512))" if last > 1 else "((4,8,4),(2,2)):((128,1,16),(64,8))"
    )
    assert fragment(f"wgmma.m64n{n}k8", "D", "f32").tv_layout == found.tv_layout
    assert fragment(f"wgmma.m64n{n}k16", "D", "f16").registers * 2 == found.registers


@pytest.mark.parametrize("k", WGMMA_A)
def test_wgmma_register_operands_are_where_the_manual_says(k):
    names, count, formula = WGMMA_A[k]
    for name in names.split():
        assert_as_written(fragment(f"wgmma.m64n16{k}", "A", name), count, formula)


def test_wgmma_takes_the_n_of_its_type():
    known = {name: row.n for row in INSTRUCTIONS if row.family == "wgmma" for name in row.types}
    assert {name for name, n in known.items() if n == EIGHTS} == {"float16", "bfloat16", "tfloat32", "e4m3", "e5m2"}
    assert {name for name, n in known.items() if n == INTEGER_N} == {"int8", "uint8", "b1"}


def test_the_quad_pairs_of_m8n8k4_are_where_the_manual_says():
    def low(lane):
        return 0 if lane < 16 else 4

    written = {
        ("row.col", "A", "f16"): (4, lambda lane, i: (lane % 4 + low(lane), i)),
        ("col.row", "A", "f16"): (4, lambda lane, i: (i + low(lane), lane % 4)),
        ("col.row", "B", "f16"): (4, lambda lane, i: (lane % 4, i + low(lane))),
        ("row.col", "B", "f16"): (4, lambda lane, i: (i, lane % 4 + low(lane))),
        ("row.col", "D", "f16"): (8, lambda lane, i: (lane % 4 + low(lane), i)),
        ("row.col", "D", "f32"): (
            8,
            lambda lane, i: ((lane & 1) + (i & 2) + low(lane), (i & 4) + (lane & 2) + (i & 1)),
        ),
    }
    for (order, operand, data_type), (count, formula) in written.items():
        found = fragment(f"mma.m8n8k4.{order}", operand, data_type)
        assert (found.values, found.matrices) == (count, 4)
        for lane in range(32):
            for i in range(count):
                assert found.coord(lane, i) == formula(lane, i), (order, operand, lane, i)
                assert found.matrix_of(lane, i) == lane % 16 // 4
    assert fragment("mma.m8n8k4", "A", "f16") == fragment("mma.m8n8k4.row.col", "A", "f16")


# What CuTe's traits say, from the independent tensor-layouts package: (atom, instruction, type of A and B, of C).
ORACLE = [
    ("SM75_8x8x16_S32S8S8S32_TN", "m8n8k16", "s8", "s32"),
    ("SM80_16x8x8_F16F16F16F16_TN", "m16n8k8", "f16", "f16"),
    ("SM80_16x8x16_F32F16F16F32_TN", "m16n8k16", "f16", "f32"),
    ("SM80_16x8x8_F32BF16BF16F32_TN", "m16n8k8", "bf16", "f32"),
    ("SM80_16x8x16_F32BF16BF16F32_TN", "m16n8k16", "bf16", "f32"),
    ("SM80_16x8x4_F32TF32TF32F32_TN", "m16n8k4", "tf32", "f32"),
    ("SM80_16x8x8_F32TF32TF32F32_TN", "m16n8k8", "tf32", "f32"),
    ("SM80_8x8x4_F64F64F64F64_TN", "m8n8k4", "f64", "f64"),
    ("SM80_16x8x16_S32S8S8S32_TN", "m16n8k16", "s8", "s32"),
    ("SM80_16x8x32_S32S8S8S32_TN", "m16n8k32", "u8", "s32"),
    ("SM80_8x8x32_S32S4S4S32_TN", "m8n8k32", "s4", "s32"),
    ("SM80_16x8x32_S32S4S4S32_TN", "m16n8k32", "u4", "s32"),
    ("SM80_16x8x64_S32S4S4S32_TN", "m16n8k64", "s4", "s32"),
    ("SM80_8x8x128_S32U1U1S32_TN_XORPOPC", "m8n8k128", "b1", "s32"),
    ("SM80_16x8x128_S32U1U1S32_TN_XORPOPC", "m16n8k128", "b1", "s32"),
    ("SM80_16x8x256_S32U1U1S32_TN_XORPOPC", "m16n8k256", "b1", "s32"),
    ("SM89_16x8x32_F32E4M3E4M3F32_TN", "m16n8k32", "e4m3", "f32"),
    ("SM90_16x8x4_F64F64F64F64_TN", "m16n8k4", "f64", "f64"),
    ("SM90_16x8x8_F64F64F64F64_TN", "m16n8k8", "f64", "f64"),
    ("SM90_16x8x16_F64F64F64F64_TN", "m16n8k16", "f64", "f64"),
]


def spelled(layout):
    return str(layout).replace(" ", "")


@pytest.mark.parametrize(("atom", "shape", "multiplicand", "accumulator"), ORACLE)
def test_tv_layouts_are_cutes(atom, shape, multiplicand, accumulator):
    oracle = getattr(atoms_nv, atom)
    assert str(fragment(f"mma.{shape}", "A", multiplicand).tv_layout) == spelled(oracle.a_layout)
    if atom == "SM80_16x8x32_S32S4S4S32_TN":  # a slip of CuTe's: its B is not one to one, so we follow the manual
        assert len({oracle.b_layout(lane, value) for lane in range(32) for value in range(8)}) < 256
    else:
        assert str(fragment(f"mma.{shape}", "B", multiplicand).tv_layout) == spelled(oracle.b_layout)
    assert str(fragment(f"mma.{shape}", "C", accumulator).tv_layout) == spelled(oracle.c_layout)


@pytest.mark.parametrize(
    ("suffix", "orders"), [("TN", "row.col"), ("NT", "col.row"), ("NN", "col.col"), ("TT", "row.row")]
)
@pytest.mark.parametrize(("accumulator", "middle"), [("f16", "F16F16F16F16"), ("f32", "F32F16F16F32")])
def test_quad_pairs_are_cutes(suffix, orders, accumulator, middle):
    oracle = getattr(atoms_nv, f"SM70_8x8x4_{middle}_{suffix}")
    for operand, layout in (("A", oracle.a_layout), ("B", oracle.b_layout), ("D", oracle.c_layout)):
        ours = fragment(f"mma.m8n8k4.{orders}", operand, "f16" if operand != "D" else accumulator)
        rows, columns = ours.shape
        for quad_pair in range(4):
            for thread in range(8):
                lane = oracle.thr_id(thread) + 4 * quad_pair
                for value in range(ours.values):
                    index = ours.tv_layout.at(lane, value) - quad_pair * rows * columns
                    assert index == layout(thread, value), (operand, lane, value)


WGMMA_ORACLE = [name for name in vars(atoms_nv) if name.startswith("SM90_64x") and not name.endswith("SPARSE")]


@pytest.mark.parametrize("name", WGMMA_ORACLE)
def test_wgmma_accumulators_are_cutes(name):
    oracle = getattr(atoms_nv, name)
    m, n, k = oracle.shape_mnk
    accumulator = {"F16": "f16", "F32": "f32", "S32": "s32"}[name.split("_")[2][:3]]
    ours = fragment(f"wgmma.m{m}n{n}k{k}", "D", accumulator).tv_layout
    assert [ours.at(thread, value) for thread in range(0, 128, 5) for value in range(n // 2)] == [
        oracle.c_layout(thread, value) for thread in range(0, 128, 5) for value in range(n // 2)
    ]


@pytest.mark.parametrize(
    ("instruction", "operand", "data_type", "tv_layout"),
    [
        ("mma.m16n8k16", "A", "bf16", "((4,8),(2,2,2)):((32,1),(16,8,128))"),
        ("mma.m16n8k16", "B", "bf16", "((4,8),(2,2)):((16,1),(8,64))"),
        ("mma.m16n8k16", "C", "f32", "((4,8),(2,2)):((32,1),(16,8))"),
        ("mma.m16n8k8", "A", "f16", "((4,8),(2,2)):((32,1),(16,8))"),
        ("mma.m16n8k32", "A", "e4m3", "((4,8),(4,2,2)):((64,1),(16,8,256))"),
        ("mma.m16n8k32", "B", "e4m3", "((4,8),(4,2)):((32,1),(8,128))"),
        ("wgmma.m64n64k16", "D", "f32", "((4,8,4),(2,2,8)):((128,1,16),(64,8,512))"),
        ("wgmma.m64n64k16", "A", "bf16", "((4,8,4),(2,2,2)):((128,1,16),(64,8,512))"),
        ("wgmma.m64n64k8", "A", "tf32", "((4,8,4),(2,2)):((64,1,16),(8,256))"),
        ("wgmma.m64n64k32", "A", "s8", "((4,8,4),(4,2,2)):((256,1,16),(64,8,1024))"),
        ("ldmatrix.x4", "matrix", "b16", "((4,8),(2,4)):((16,1),(8,64))"),
        ("ldmatrix.x1.trans", "matrix", "b16", "((4,8),2):((2,8),1)"),
    ],
)
def test_published_tv_layouts(instruction, operand, data_type, tv_layout):
    if data_type == "b16":
        data_type = None
    assert str(fragment(instruction, operand, data_type).tv_layout) == tv_layout


def test_the_inverse_of_the_a_fragment_is_the_published_one():
    a = fragment("mma.m16n8k8", operand="A", data_type="bf16")
    assert str(a.inverse) == "((8,2),(2,4)):((4,64),(32,1))"
    right = pycute.right_inverse(pycute.Layout(a.tv_layout.shape, a.tv_layout.stride))
    assert str(right).replace(" ", "") == "(8,2,2,4):(4,64,32,1)"


@pytest.mark.parametrize(("instruction", "operand", "data_type"), ALL)
def test_every_fragment_is_one_to_one_and_its_inverse_is_pycutes(instruction, operand, data_type):
    found = fragment(instruction, operand, data_type)
    rows, columns = found.shape
    assert found.threads * found.values == found.matrices * rows * columns
    # every element once
    matrix, row, column = found.indices()
    flat = (matrix * rows + row) * columns + column
    assert np.array_equal(np.sort(flat, axis=None), np.arange(flat.size))
    # the inverse is CuTe's, and composes with the layout to the identity
    tv = pycute.Layout(found.tv_layout.shape, found.tv_layout.stride)
    inverse = pycute.Layout(found.inverse.shape, found.inverse.stride)
    right = pycute.right_inverse(tv)
    assert pycute.size(right) == flat.size
    for index in range(0, flat.size, max(1, flat.size // 64)):
        assert inverse(index) == right(index)
        assert tv(inverse(index)) == index
    identity = pycute.coalesce(pycute.composition(tv, inverse))
    assert (identity.shape, identity.stride) == (flat.size, 1)
    # lookups agree with the arrays
    thread, value = found.holders()
    for index in range(0, flat.size, max(1, flat.size // 64)):
        where = tuple(int(part) for part in np.unravel_index(index, thread.shape))
        holder = found.holder(*where[1:], matrix=where[0])
        assert holder == (thread[where], value[where])
        assert (found.matrix_of(*holder), *found.coord(*holder)) == where


@pytest.mark.parametrize(("instruction", "operand", "data_type"), ALL[::7])
def test_distribute_and_collect_are_inverse(instruction, operand, data_type):
    found = fragment(instruction, operand, data_type)
    shape = (found.matrices, *found.shape) if found.matrices > 1 else found.shape
    matrix = np.arange(np.prod(shape)).reshape(shape)
    assert (found.collect(found.distribute(matrix)) == matrix).all()
    assert ts.Value.from_dict(found.to_dict()) == found


@pytest.mark.parametrize(("instruction", "copies"), [("wmma.m16n16k16", 2), ("wmma.m32n8k16", 4)])
def test_an_element_that_a_lane_has_in_several_registers_is_read_from_the_first(instruction, copies):
    found = fragment(instruction, "B", "f16")
    assert found.copies == copies
    thread, value = found.holders()
    for row, column in np.ndindex(found.shape):
        lane = int(thread[0, row, column])
        values = [number for number, place in enumerate(found.held_by(lane)) if place == (row, column)]
        assert len(values) == copies
        assert int(value[0, row, column]) == values[0]


def test_registers_of_packed_types():
    def bits(name, instruction="mma.m16n8k32", operand="A"):
        found = fragment(instruction, operand, name)
        return found.element_bits, found.registers

    assert bits("e4m3") == (8, 4)
    assert bits("e2m1") == (8, 4)  # four bits in a byte of their own
    assert bits("s4") == (4, 2)
    assert bits("e2m1", "mma.m16n8k64") == (4, 4)
    assert bits("b1", "mma.m16n8k256") == (1, 4)
    assert bits("f64", "mma.m16n8k16") == (64, 16)
    assert bits("f16", "mma.m16n8k16", "D") == (16, 2)
    assert fragment("mma.m16n8k32", "A", "s4").register_of(9) == (1, 4)


@pytest.mark.parametrize("operand", ["A", "B"])
@pytest.mark.parametrize(("name", "lowest"), [("e2m1", 2), ("e2m3", 0), ("e3m2", 0), ("e4m3", 0), ("e5m2", 0)])
def test_narrow_floats_sit_where_kind_f8f6f4_wants_them(name, lowest, operand):
    """PTX ISA, mma.m16n8k32 .kind::f8f6f4: 4 bits in the middle of their byte, 6 bits low; CuTe's mma_traits_sm120.hpp
    shifts what ldmatrix left in the low bits of a byte by two for 4-bit types alone."""
    found = fragment("mma.m16n8k32", operand, name)
    for value in range(found.values):
        assert found.register_of(value) == (value // 4, value % 4 * 8 + lowest)
    packed = fragment("ldmatrix.m8n16.x1.b4x16_p64", data_type="e2m1")
    assert [packed.register_of(value) for value in range(4)] == [(0, 0), (0, 8), (0, 16), (0, 24)]
    assert fragment("mma.m16n8k64", operand, "e2m1").register_of(1) == (0, 4)


def test_features_name_the_architectures():
    def where(instruction, operand, data_type):
        return ts.ARCH["sm_80"].has(fragment(instruction, operand, data_type).feature)

    assert where("mma.m16n8k16", "A", "bf16")
    assert where("mma.m16n8k16", "D", "f32")
    assert not where("mma.m16n8k32", "A", "e4m3")
    assert not where("wgmma.m64n8k16", "D", "f32")
    assert where("ldmatrix.x4", "matrix", "bf16")
    assert not where("stmatrix.x4", "matrix", "bf16")


def test_whole_opcodes_are_understood():
    assert fragment("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", "A", "bf16") == fragment(
        "m16n8k8", "A", "bf16"
    )
    opcode = "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16"
    assert fragment(opcode, "D", "f32").instruction == "wgmma.m64n128k16"
    assert fragment("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16").instruction == "ldmatrix.x4.trans"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mma.m16n8k7", "A", "bf16"), "mma.m16n8k16.*wgmma.m64nNk16"),
        (("mma.m64n8k16", "A", "bf16"), "there are mma.m8n8k4"),
        (("wgmma.m16n8k16", "A", "bf16"), "there are mma.m8n8k4"),
        (("wgmma.m64n12k16", "A", "bf16"), "8 to 256 in eights"),
        (("wgmma.m64n40k32", "D", "s32"), "wgmma.m64n40k32.*float16, float32"),
        (("", "A", "bf16"), "Use mma.m16n8k16."),
        ((None, "A", "bf16"), "Use mma.m16n8k16."),
        (("mma.m16n8k16", "E", "bf16"), "known: A, B, C, D"),
        (("mma.m16n8k16", None, "bf16"), "known: A, B, C, D"),
        (("wgmma.m64n8k16", "B", "bf16"), "wgmma reads B from shared memory"),
        (("mma.m16n8k16", "A", "tf32"), "float16, bfloat16, int8, uint8, e4m3, e5m2, float64"),
        (("mma.m16n8k16", "A", None), "mma.m16n8k16.*float16"),
        (("mma.m16n8k16", "D", "bf16"), "Use float32: pass the accumulator"),
        (("mma.m16n8k16", "A", "bf61"), "Did you mean bf16|known: "),
        (("mma.m16n8k16.col.row", "A", "bf16"), "only mma.m8n8k4 with f16"),
        (("ldmatrix.x3",), "x1, .x2 or .x4"),
        (("ldmatrix",), "x1, .x2 or .x4"),
        (("ldmatrix.x4.b8",), "x1, .x2 or .x4"),
        (("ldmatrix.x4", "A"), "known: matrix"),
        (("ldmatrix.x4", "A", "f32"), "known: matrix"),  # first the operand: types are told of the one that there is
        (("tcgen05.ld.32x32b.x8", "D", "bf16"), "known: tmem"),
        (("ldmatrix.x4", "matrix", "f32"), "uint16, float16, bfloat16"),
    ],
)
def test_refuses_what_does_not_exist_and_lists_what_does(arguments, message):
    with pytest.raises(ts.RuleError, match=message):
        fragment(*arguments)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: a.coord(32, 0), "thread = 32; 0 to 31"),
        (lambda a: a.coord(0, 4), "value = 4; 0 to 3"),
        (lambda a: a.coord(-1, 0), "thread = -1; 0 to 31"),
        (lambda a: a.coord(1.0, 0), "thread is an integer"),
        (lambda a: a.holder(16, 0), "row = 16; 0 to 15"),
        (lambda a: a.holder(0, 8), "column = 8; 0 to 7"),
        (lambda a: a.holder(0, 0, 1), "matrix = 1; 0 to 0"),
        (lambda a: a.register_of(4), "value = 4; 0 to 3"),
        (lambda a: a.distribute(np.zeros((8, 16))), "16 x 8"),
        (lambda a: a.collect(np.zeros((32, 2))), "32 x 4"),
    ],
)
def test_refuses_indices_outside(call, message):
    with pytest.raises(ts.RuleError, match=message):
        call(fragment("mma.m16n8k8", "A", "bf16"))


@pytest.mark.parametrize(
    ("instruction", "inputs", "accumulator"),
    [
        ("mma.m16n8k16", "bf16", "float32"),
        ("mma.m16n8k32", "e4m3", "float32"),
        ("mma.m16n8k32", "s8", "int32"),
        ("mma.m8n8k4", "f64", None),
    ],
)
def test_an_input_type_for_the_accumulator_is_answered_with_its_sums(instruction, inputs, accumulator):
    if accumulator is None:
        assert ts.fragment(instruction, "D", inputs)
        return
    with pytest.raises(ts.RuleError, match=f"Use {accumulator}: pass the accumulator"):
        ts.fragment(instruction, "D", inputs)
    assert ts.fragment(instruction, "D", accumulator)


def test_a_register_holds_32_bits_of_elements():
    """A float64 takes two of them; narrow floats of kind f8f6f4 take a byte each, with four bits or six."""
    for row in (*INSTRUCTIONS, *SPARSE_INSTRUCTIONS):
        for name in row.types:
            bits = ts.DataType.named(name).smem_bits
            width = 8 if row.per_register == 4 and bits < 8 else min(bits, 32)
            assert row.per_register * width == 32, (row.family, row.k, name)
