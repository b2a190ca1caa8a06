"""mma.sync with a .kind (sm_120): narrow types of A and B, mixed, and scale factors from chosen lanes and bytes."""

import ml_dtypes
import numpy as np
import pytest

import tilescope as ts

TYPES = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
}
RANDOM = np.random.default_rng(8)
LANE = np.arange(32)
ROW, COLUMN = LANE[:, None] // 4 + 8 * (np.arange(4) // 2), 2 * (LANE[:, None] % 4) + np.arange(4) % 2  # of C and D
TEXT = """
.version 8.8
.target sm_120a
.address_size 64
.visible .entry k(.param .u64 words, .param .u64 out)
{{
    .reg .b32 %r<20>;
    .reg .b64 %d<5>;
    .reg .f32 %f<4>;
    ld.param.u64 %d1, [words];
    ld.param.u64 %d2, [out];
    mov.u32 %r15, %tid.x;
    mul.wide.u32 %d3, %r15, 48;
    add.u64 %d1, %d1, %d3;
    mul.wide.u32 %d3, %r15, 16;
    add.u64 %d2, %d2, %d3;
    {loads}
    mma.sync.aligned.{opcode} {{%f0, %f1, %f2, %f3}}, {{%r0, %r1, %r2, %r3}}, {{%r4, %r5}}, {{%r6, %r7, %r8, %r9}}{scales};
    st.global.v4.f32 [%d2], {{%f0, %f1, %f2, %f3}};
    ret;
}}
"""


def registers(codes, operand, type_name, k):
    """(32, n) words of an operand (rows, k) of codes, as its fragment holds them."""
    _, first, second = ts.fragment(f"mma.m16n8k{k}", operand, type_name).indices()
    held = codes[first, second] if operand == "A" else codes[second, first]
    if k == 64:
        held = held[:, ::2] & 15 | held[:, 1::2] << 4
    elif type_name == "e2m1":
        held = held << 2
    return np.ascontiguousarray(held.astype(np.uint8)).view(np.uint32)


def multiplied(opcode, a, b, c, types, words=(), ids=""):
    k = a.shape[1]
    data = np.zeros((32, 12), np.uint32)
    data[:, :4] = registers(a.view(np.uint8), "A", types[0], k)
    data[:, 4:6] = registers(b.view(np.uint8), "B", types[1], k)
    data[:, 6:10] = c[ROW, COLUMN].view(np.uint32)
    for column, word in enumerate(words, 10):
        data[:, column] = word
    loads = "".join(f"ld.global.u32 %r{number}, [%d1+{4 * number}];" for number in range(12))
    out = np.zeros((32, 4), np.float32)
    run = ts.Kernel(TEXT.format(loads=loads, opcode=opcode, scales=ids)).run(1, 32, [data, out])
    assert run.outcome == "finished"
    d = np.zeros((16, 8), np.float32)
    d[ROW, COLUMN] = out
    return d


def operands(types, k):
    a, b = (RANDOM.integers(-3, 4, (rows, k)).astype(TYPES[name]) for rows, name in zip((16, 8), types, strict=True))
    return a, b, RANDOM.integers(-9, 9, (16, 8)).astype(np.float32)


@pytest.mark.parametrize("types", [("e4m3", "e2m1"), ("e3m2", "e2m3"), ("e2m1", "e5m2")])
def test_narrow_types_are_mixed(types):
    a, b, c = operands(types, 32)
    opcode = f"kind::f8f6f4.m16n8k32.row.col.f32.{types[0]}.{types[1]}.f32"
    expected = a.astype(np.float64) @ b.astype(np.float64).T + c
    assert (multiplied(opcode, a, b, c, types) == expected).all()


# kind, scale_vec, scale type, types, k, (byte-id, thread-id) of A and of B
SCALED = [
    ("mxf8f6f4", 1, "ue8m0", ("e5m2", "e2m1"), 32, (3, 1), (1, 2)),
    ("mxf4", 2, "ue8m0", ("e2m1", "e2m1"), 64, (2, 1), (0, 3)),
    ("mxf4nvf4", 2, "ue8m0", ("e2m1", "e2m1"), 64, (0, 0), (2, 0)),
    ("mxf4nvf4", 4, "ue4m3", ("e2m1", "e2m1"), 64, (0, 1), (0, 3)),
    ("mxf4nvf4", 4, "ue8m0", ("e2m1", "e2m1"), 64, (0, 0), (0, 0)),
]


@pytest.mark.parametrize(("kind", "count", "scale_type", "types", "k", "a_ids", "b_ids"), SCALED)
def test_scale_factors_come_from_chosen_lanes(kind, count, scale_type, types, k, a_ids, b_ids):
    """Row i of A: lane 4 (i mod 8) + i / 8 + 2 thread-id; column j of B: lane 4 j + thread-id; bytes from byte-id on."""
    a, b, c = operands(types, k)
    exponents = RANDOM.integers(-2, 3, (24, count))
    codes = exponents + 127 if scale_type == "ue8m0" else exponents + 7 << 3
    words = np.zeros((2, 32), np.uint32)
    for row in range(16):
        lane = 4 * (row % 8) + row // 8 + 2 * a_ids[1]
        words[0, lane] = sum(int(code) << 8 * (a_ids[0] + j) for j, code in enumerate(codes[row]))
    for column in range(8):
        words[1, 4 * column + b_ids[1]] = sum(
            int(code) << 8 * (b_ids[0] + j) for j, code in enumerate(codes[16 + column])
        )
    opcode = (
        f"kind::{kind}.block_scale.scale_vec::{count}X.m16n8k{k}.row.col.f32.{types[0]}.{types[1]}.f32.{scale_type}"
    )
    ids = f", %r10, {{{a_ids[0]}, {a_ids[1]}}}, %r11, {{{b_ids[0]}, {b_ids[1]}}}"
    factors = np.exp2(exponents.astype(np.float64)).repeat(k // count, axis=1)
    expected = (a.astype(np.float64) * factors[:16]) @ (b.astype(np.float64) * factors[16:]).T + c
    assert (multiplied(opcode, a, b, c, types, words, ids) == expected).all()


def test_ids_that_do_not_exist_are_a_fault():
    a, b, c = operands(("e2m1", "e2m1"), 64)
    opcode = "kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3"
    with pytest.raises(AssertionError, match="fault"):
        multiplied(opcode, a, b, c, ("e2m1", "e2m1"), np.zeros((2, 32), np.uint32), ", %r10, {1, 0}, %r11, {0, 0}")


def test_scale_registers_may_stand_in_braces():
    """CUTLASS writes {%r10}, {0, 0}."""
    a, b, c = operands(("e2m1", "e2m1"), 64)
    opcode = "kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3"
    scales = np.full((2, 32), 0x38404038, np.uint32)
    plain, braced = (
        multiplied(opcode, a, b, c, ("e2m1", "e2m1"), scales, written)
        for written in (", %r10, {0, 0}, %r11, {0, 0}", ", {%r10}, {0, 0}, {%r11}, {0, 0}")
    )
    assert np.array_equal(plain, braced)
    assert plain.any()
