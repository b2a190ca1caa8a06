"""Tensor core instructions of the machine, held against fragments, descriptors and plain products of small integers."""

import itertools

import numpy as np
import pytest
from ptx_texts import HEADER

import tilescope as ts
from tilescope.data_type import DATA_TYPE
from tilescope.errors import RuleError
from tilescope.machine.kernel import Kernel
from tilescope.mma.matrix_form import MATRIX_FORMS
from tilescope.mma.mma_instruction import INSTRUCTIONS
from tilescope.tma.elements import pack_values

SMEM = 0x400  # where static shared memory begins


class Registers:
    """Registers of a kernel that are loaded from an array of (threads, count), or stored to one."""

    def __init__(self, name, count, bits=32):
        self.name = name
        self.count = count
        self.bits = bits

    def __str__(self):
        return "{" + ", ".join(f"%{self.name}{index}" for index in range(self.count)) + "}"

    def moves(self, operation):
        """ld.global or st.global of all of them, and their declaration."""
        stride = self.count * self.bits // 8
        yield f".reg .b{self.bits} %{self.name}<{self.count}>;"
        yield f"ld.param.u64 %d1, [{self.name}]; mad.wide.u32 %d1, %r0, {stride}, %d1;"
        for index in range(self.count):
            place = f"[%d1+{index * self.bits // 8}]"
            operands = (f"%{self.name}{index}", place) if operation == "ld" else (place, f"%{self.name}{index}")
            yield f"{operation}.global.b{self.bits} {', '.join(operands)};"


def copy_to_shared(size_bytes):
    """All threads copy the array `smem` to shared memory."""
    return f"""
        .shared .align 1024 .b8 buffer[{size_bytes}];
        ld.param.u64 %d1, [smem];
        mov.u32 %r1, %tid.x;
        shl.b32 %r1, %r1, 4;
        mov.u32 %r2, %ntid.x;
        shl.b32 %r2, %r2, 4;
        mov.u32 %r3, buffer;
        bra.uni CHECK;
    COPY:
        cvt.u64.u32 %d2, %r1;
        add.u64 %d2, %d1, %d2;
        ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%d2];
        add.u32 %r8, %r3, %r1;
        st.shared.v4.b32 [%r8], {{%r4, %r5, %r6, %r7}};
        add.u32 %r1, %r1, %r2;
    CHECK:
        setp.lt.u32 %p1, %r1, {size_bytes};
        @%p1 bra COPY;
        fence.proxy.async.shared::cta;
        bar.sync 0;
    """


def written(body, inputs=(), outputs=(), smem_bytes=0):
    """The text of a kernel that loads its inputs, runs the body and stores its outputs, all by thread of the grid."""
    names = [one.name for one in (*inputs, *outputs)] + ["smem"] * bool(smem_bytes)
    parameters = ", ".join(f".param .u64 {name}" for name in names)
    lines = [f"{HEADER}.visible .entry k({parameters}) {{", ".reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %d<8>;"]
    lines.append("mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r0, %r0, %r1, %r2;")
    if smem_bytes:
        lines.append(copy_to_shared(smem_bytes))
    for one in inputs:
        lines += one.moves("ld")
    stores = [line for one in outputs for line in one.moves("st")]
    lines += [line for line in stores if line.startswith(".reg")]
    lines.append(body)
    lines += [line for line in stores if not line.startswith(".reg")]
    lines.append("ret; }")
    return "\n".join(lines)


def ran(text, arguments, threads, blocks=1, **options):
    run = Kernel(text).run(blocks, threads, arguments, **options)
    assert run.outcome == "finished", run.findings
    return run


def fault_of(text, arguments, threads):
    """The finding of a run that ends with a fault."""
    run = Kernel(text).run(1, threads, arguments)
    assert run.outcome == "fault"
    return run.findings[0]


FORMS = [
    pytest.param(direction, form, count, id=form.opcode(direction, count))
    for forms in MATRIX_FORMS.values()
    for form in forms
    for direction in form.directions
    for count in form.counts
]


def matrix_opcode(direction, form, count, space=".shared"):
    shape, kind = form.name.split(".")
    trans = ".trans" * form.transposed
    return f"{direction}.sync.aligned.{shape}.x{count}{trans}{space}{'.b8x16' * ('x16' in kind)}.{kind}"


def row_addresses(seed, warps=2):
    """An address of a row of 16 bytes for every lane: no two of a warp are alike."""
    rows = np.random.default_rng(seed).permuted(np.tile(np.arange(64), (warps, 1)), axis=1)[:, :32]
    return (SMEM + rows * 16).astype(np.uint32)


@pytest.mark.parametrize(("direction", "form", "count"), [one for one in FORMS if one.values[0] == "ldmatrix"])
def test_ldmatrix_fills_registers_as_the_fragment_says(direction, form, count):
    address = Registers("address", 1)
    loaded = Registers("loaded", count * form.registers)
    body = f"{matrix_opcode(direction, form, count)} {loaded}, [%address0];"
    smem = np.random.default_rng(0).integers(0, 256, 1024, np.uint8)
    lanes = row_addresses(1)
    out = np.zeros((2, 32, loaded.count), np.uint32)
    ran(written(body, [address], [loaded], 1024), [lanes, out, smem], 64)
    options = {"count": count, "transpose": form.transposed, "smem_address": SMEM, "form": form.name}
    np.testing.assert_array_equal(out, ts.ldmatrix(smem, lanes, **options))


@pytest.mark.parametrize(("direction", "form", "count"), [one for one in FORMS if one.values[0] == "stmatrix"])
def test_stmatrix_stores_rows_as_the_fragment_says(direction, form, count):
    address = Registers("address", 1)
    stored = Registers("stored", count)
    after = Registers("after", 4)
    body = f"""
        {matrix_opcode(direction, form, count)} [%address0], {stored};
        bar.sync 0;
        mov.u32 %r1, %tid.x; mad.lo.u32 %r1, %r1, 16, {SMEM};
        ld.shared.v4.b32 {after}, [%r1];
    """
    smem = np.random.default_rng(0).integers(0, 256, 1024, np.uint8)
    registers = np.random.default_rng(2).integers(0, 1 << 32, (2, 32, count), np.uint32)
    rows = np.random.default_rng(3).permutation(64)
    lanes = (SMEM + rows.reshape(2, 32) * 16).astype(np.uint32)
    out = np.zeros((64, 4), np.uint32)
    ran(written(body, [address, stored], [after], 1024), [lanes, registers, out, smem], 64)
    for warp in range(2):
        ts.stmatrix(registers[warp], smem, lanes[warp], transpose=form.transposed, smem_address=SMEM, form=form.name)
    np.testing.assert_array_equal(out.reshape(-1).view(np.uint8), smem)


def test_ldmatrix_takes_a_generic_address_with_an_offset():
    loaded = Registers("loaded", 4)
    body = f"""
        mov.u32 %r1, %laneid; mad.lo.u32 %r1, %r1, 16, {SMEM};
        cvt.u64.u32 %d3, %r1; cvta.shared.u64 %d3, %d3;
        ldmatrix.sync.aligned.x4.m8n8.b16 {loaded}, [%d3+512];
    """
    smem = np.arange(512, dtype=np.uint16)
    out = np.zeros((32, 4), np.uint32)
    ran(written(body, [], [loaded], 1024), [out, smem], 32)
    np.testing.assert_array_equal(out, ts.ldmatrix(smem, 512 + np.arange(32) * 16))


def test_ldmatrix_x1_does_not_look_at_the_addresses_of_other_lanes():
    address = Registers("address", 1)
    loaded = Registers("loaded", 1)
    body = f"ldmatrix.sync.aligned.m8n8.x1.shared.b16 {loaded}, [%address0];"
    lanes = np.full(32, 0xFFFF_FFF1, np.uint32)
    lanes[:8] = SMEM + np.arange(8) * 16
    smem = np.arange(64, dtype=np.uint16)
    out = np.zeros((32, 1), np.uint32)
    ran(written(body, [address], [loaded], 128), [lanes, out, smem], 32)
    np.testing.assert_array_equal(out, ts.ldmatrix(smem, np.arange(32) * 16, count=1))


@pytest.mark.parametrize(("wrong", "code"), [(SMEM + 8, 716), (SMEM + 1024, 700)])
@pytest.mark.parametrize("opcode", ["ldmatrix", "stmatrix"])
def test_a_row_off_16_bytes_or_outside_of_shared_memory_is_a_fault(opcode, wrong, code):
    operands = {"ldmatrix": "{%r9}, [%address0]", "stmatrix": "[%address0], {%r9}"}[opcode]
    body = f"{opcode}.sync.aligned.m8n8.x1.shared.b16 {operands};"
    lanes = np.full(32, SMEM, np.uint32)
    lanes[5] = wrong
    text = written(body, [Registers("address", 1)], [], 1024)
    fault = fault_of(text, [lanes, np.zeros(1024, np.uint8)], 32)
    assert fault.values["code"] == code
    assert "thread (5, 0, 0)" in fault.found


def test_movmatrix_transposes_a_matrix_of_every_warp():
    moved = Registers("moved", 1)
    given = Registers("given", 1)
    matrices = np.arange(128, dtype=np.uint16).reshape(2, 8, 8)
    held = ts.fragment("ldmatrix.x1")
    words = np.stack([held.distribute(matrix) for matrix in matrices]).view(np.uint32)
    out = np.zeros_like(words)
    body = "movmatrix.sync.aligned.m8n8.trans.b16 %moved0, %given0;"
    ran(written(body, [given], [moved]), [words, out], 64)
    wanted = np.stack([held.distribute(np.ascontiguousarray(matrix.T)) for matrix in matrices]).view(np.uint32)
    np.testing.assert_array_equal(out, wanted)


def codes_of(numbers, data_type):
    """The codes of small integers as elements of a type."""
    row = ts.DataType.named(data_type)
    if row.bits < 8:
        return numbers.astype(np.int8).view(np.uint8) & ((1 << row.bits) - 1)
    return numbers.astype(row.numpy).view(f"u{row.bits // 8}")


def register_words(held, matrices):
    """(threads, registers) words of codes, one matrix or several."""
    values = held.distribute(matrices if held.matrices > 1 else matrices[0])
    if held.element_bits == 1:
        return np.packbits(values, axis=1, bitorder="little").view(np.uint32)
    if held.element_bits == 4:
        return pack_values(values, 4).view(np.uint32)
    return np.ascontiguousarray(values).view("u8" if held.element_bits == 64 else "u4")


def small_numbers(random, shape, data_type):
    """Integers that every type holds; of unsigned types none is negative."""
    if data_type == "b1":
        return random.integers(0, 2, shape)
    return random.integers(0 if data_type.startswith("u") else -3, 4, shape)


def mma_cases():
    for row in INSTRUCTIONS:
        if row.family != "mma" or row.feature == "mma_f8f6f4":
            continue
        orders = itertools.product(("row", "col"), repeat=2) if row.quad_pairs else [("row", "col")]
        for (a, b), accumulator, order in itertools.product(
            itertools.product(row.types, repeat=2), row.accumulators, orders
        ):
            ptx = [DATA_TYPE[name].ptx for name in (accumulator, a, b, accumulator)]
            opcode = f"mma.sync.aligned.{row.name[4:]}.{'.'.join(order)}.{'.'.join(ptx)}"
            yield pytest.param(row, a, b, accumulator, opcode, id=opcode[17:])


@pytest.mark.parametrize(("row", "a_type", "b_type", "accumulator", "opcode"), list(mma_cases()))
def test_mma_multiplies_the_fragments_of_every_warp(row, a_type, b_type, accumulator, opcode):
    random = np.random.default_rng(7)
    name = opcode.removeprefix("mma.sync.aligned.")
    a_held, b_held = ts.fragment(name, "A", a_type), ts.fragment(name, "B", b_type)
    c_held = ts.fragment(name, "C", accumulator)
    count = a_held.matrices
    a = small_numbers(random, (2, count, row.m, row.k), a_type)
    b = small_numbers(random, (2, count, row.k, row.n[0]), b_type)
    c = random.integers(-50, 50, (2, count, row.m, row.n[0]))
    given = {
        "a": np.stack([register_words(a_held, codes_of(one, a_type)) for one in a]),
        "b": np.stack([register_words(b_held, codes_of(one, b_type)) for one in b]),
        "c": np.stack([register_words(c_held, codes_of(one, accumulator)) for one in c]),
    }
    bits = given["c"].dtype.itemsize * 8
    inputs = [Registers(operand, words.shape[-1], bits) for operand, words in given.items()]
    d = Registers("e", inputs[2].count, bits)
    out = np.zeros_like(given["c"])
    suffix = ".and.popc" if a_type == "b1" else ""
    body = f"{opcode}{suffix} {d}, {inputs[0]}, {inputs[1]}, {inputs[2]};"
    ran(written(body, inputs, [d]), [*given.values(), out], 64)
    products = a @ b + c
    wanted = np.stack([register_words(c_held, codes_of(one, accumulator)) for one in products])
    np.testing.assert_array_equal(out, wanted)


def test_mma_of_bits_counts_those_that_differ():
    inputs = [Registers("a", 4), Registers("b", 2), Registers("c", 4)]
    d = Registers("e", 4)
    body = f"mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc {d}, {inputs[0]}, {inputs[1]}, {inputs[2]};"
    ones = np.full((32, 4), 0xFFFF_FFFF, np.uint32)
    out = np.zeros((32, 4), np.int32)
    ran(written(body, inputs, [d]), [ones, np.zeros((32, 2), np.uint32), np.full((32, 4), 5, np.uint32), out], 32)
    assert (out == 261).all()


@pytest.mark.parametrize(("saturate", "wanted"), [("", -(1 << 31) + 31), (".satfinite", (1 << 31) - 1)])
def test_integer_sums_wrap_or_saturate(saturate, wanted):
    inputs = [Registers("a", 4), Registers("b", 2), Registers("c", 4)]
    d = Registers("e", 4)
    opcode = f"mma.sync.aligned.m16n8k32.row.col{saturate}.s32.s8.s8.s32"
    ones = np.full((32, 4), 0x0101_0101, np.uint32)
    out = np.zeros((32, 4), np.int32)
    text = written(f"{opcode} {d}, {inputs[0]}, {inputs[1]}, {inputs[2]};", inputs, [d])
    ran(text, [ones, ones[:, :2].copy(), np.full((32, 4), (1 << 31) - 1, np.uint32), out], 32)
    assert (out == wanted).all()


@pytest.mark.parametrize("zeros", ["{0, 0, 0, 0}", "{0f00000000, 0f00000000, 0f00000000, 0f00000000}"])
def test_constants_stand_for_an_accumulator(zeros):
    inputs = [Registers("a", 4), Registers("b", 2)]
    d = Registers("e", 4)
    body = f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {d}, {inputs[0]}, {inputs[1]}, {zeros};"
    ones = np.ones((32, 8), np.float16)
    out = np.zeros((32, 4), np.float32)
    ran(written(body, inputs, [d]), [ones, ones[:, :4].copy(), out], 32)
    assert (out == 16).all()


def test_a_float16_accumulator_may_become_float32_in_m8n8k4():
    inputs = [Registers("a", 2), Registers("b", 2), Registers("c", 4)]
    d = Registers("e", 8)
    body = f"mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f16 {d}, {inputs[0]}, {inputs[1]}, {inputs[2]};"
    ones = np.ones((32, 4), np.float16)
    out = np.zeros((32, 8), np.float32)
    ran(written(body, inputs, [d]), [ones, ones, np.full((32, 8), 0.5, np.float16), out], 32)
    assert (out == 4.5).all()


def test_mma_waits_for_the_lanes_of_its_warp():
    """Odd lanes take a longer way to the instruction."""
    d = Registers("e", 4)
    body = f"""
        mov.u32 %r4, 0x3C003C00;
        mov.u32 %r5, %laneid; and.b32 %r6, %r5, 1; setp.eq.u32 %p1, %r6, 1;
        mov.u32 %r7, 0x3C003C00;
        @%p1 bra LONG;
        bra.uni JOIN;
    LONG:
        mov.u32 %r7, 0x40004000;
        add.u32 %r8, %r8, 1;
    JOIN:
        mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {d}, {{%r7, %r7}}, {{%r4}}, {{0, 0, 0, 0}};
    """
    out = np.zeros((64, 4), np.float32)
    for seed in (None, 0, 1, 2):
        ran(written(body, [], [d]), [out], 64, seed=seed)
        assert (out == 4 * 1 + 4 * 2).all()


def test_registers_of_threads_that_do_not_exist_hold_zeros():
    """A block of 40 threads: of the second warp eight lanes execute, which hold rows 0 and 1 (and 8 and 9) of A."""
    d = Registers("e", 4)
    body = f"""
        mov.u32 %r4, 0x3C003C00;
        mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {d}, {{%r4, %r4}}, {{%r4}}, {{0, 0, 0, 0}};
    """
    out = np.zeros((40, 4), np.float32)
    ran(written(body, [], [d]), [out], 40)
    assert (out[:32] == 8).all()
    columns = 2 * (np.arange(8) % 4)[:, None] + np.array([0, 1, 0, 1])
    np.testing.assert_array_equal(out[32:], np.where(columns < 2, 8, 0))  # B's columns 0 and 1 are held by these lanes


REFUSED = {
    "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32 {%f, %f, %f, %f}, {%r, %r, %r, %r}, {%r, %r}, {%f, %f, %f, %f}": (
        "takes .row.col, not .row.row"
    ),
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 {%f, %f, %f, %f}, {%r, %r, %r, %r}, {%r, %r}, {%f, %f, %f, %f}": (
        "f16 by bf16"
    ),
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f16 {%f, %f, %f, %f}, {%r, %r, %r, %r}, {%r, %r}, {%r, %r}": (
        "f16 with a result of"
    ),
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f, %f, %f, %f}, {%r, %r}, {%r, %r}, {%f, %f, %f, %f}": (
        "4 registers, not 2"
    ),
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%f, %f}, {%f}, {%f}, {%f, %f}": ("64 bits, unlike %f"),
    "mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%f, %f, %f, %f}, {%r, %r, %r, %r}, {%r, %r}, {%f, %f, %f, %f}": (
        "kind::f8f6f4 exists on sm_120"
    ),
    "ldmatrix.sync.aligned.m8n8.x3.shared.b16 {%r, %r, %r}, [%r]": ".x1, .x2 or .x4",
    "movmatrix.sync.aligned.m8n8.b16 %r, %r": "has no .trans",
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f, %f, %f, %f}, %d, %d, 1, 2, 1, 0, 0": (
        "the constant -1 or 1"
    ),
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f, %f, %f, %f}, %d, %d, 1, 1, 1": ("imm-trans-b, not 3"),
    "wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8 {%f, %f, %f, %f}, %d, %d, 1": "s8 by s8",
}


@pytest.mark.parametrize("instruction", REFUSED)
def test_what_no_card_has_is_refused_with_its_reason(instruction, wording):
    text = f"{HEADER}.visible .entry k() {{ .reg .f32 %f; .reg .b32 %r; .reg .b64 %d; {instruction}; ret; }}"
    with pytest.raises(RuleError) as refused:
        Kernel(text)
    (violation,) = refused.value.violations
    assert (violation.rule, violation.argument) == ("ptx-unsupported", "line 5")
    assert REFUSED[instruction] in violation.limit
    wording(f"tensor instruction: {instruction}", violation.limit)


SMEM_BYTES = 40960
WGMMA_K = {"float16": 16, "bfloat16": 16, "tfloat32": 8, "e4m3": 32, "e5m2": 32, "int8": 32, "uint8": 32}


def shared_numbers(data_type, seed=3):
    """Shared memory that holds a small integer in every element, as (codes, numbers)."""
    numbers = small_numbers(np.random.default_rng(seed), SMEM_BYTES * 8 // ts.DataType.named(data_type).bits, data_type)
    return codes_of(numbers, data_type), numbers


def numbers_at(numbers, addresses, data_type):
    """The integers at addresses of shared memory."""
    return numbers[(addresses - SMEM) // (ts.DataType.named(data_type).bits // 8)]


def wgmma_body(opcode, d, a, b, options, before=""):
    return f"""
        {before}
        wgmma.fence.sync.aligned;
        {opcode} {d}, {a}, {b}, {options};
        wgmma.commit_group.sync.aligned;
        wgmma.wait_group.sync.aligned 0;
    """


def held_d(n, k, accumulator, matrix):
    """(128, registers) words of a D."""
    held = ts.fragment(f"wgmma.m64n{n}k{k}", "D", accumulator)
    return register_words(held, codes_of(matrix, accumulator)[None])


SWIZZLES = ("none", "32B", "64B", "128B")


@pytest.mark.parametrize("majors", list(itertools.product(("K", "MN"), repeat=2)), ids="-".join)
@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_wgmma_multiplies_what_its_descriptors_read(swizzle, majors):
    """Both operands start in the middle of a pattern, at different places in it."""
    codes, numbers = shared_numbers("float16")
    a = ts.WgmmaDescriptor(SMEM + 0x20, leading_bytes=2048, stride_bytes=1024, swizzle=swizzle)
    b = ts.WgmmaDescriptor(SMEM + 0x4190, leading_bytes=1024, stride_bytes=512, swizzle=swizzle, base_offset=1)
    d = Registers("e", 16)
    trans = ", ".join("1" if major == "MN" else "0" for major in majors)
    opcode = "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16"
    body = wgmma_body(opcode, d, f"{a.encode():#x}", f"{b.encode():#x}", f"0, 1, 1, {trans}")
    out = np.zeros((128, 16), np.uint32)
    ran(written(body, [], [d], SMEM_BYTES), [out, codes], 128)
    left = numbers_at(numbers, a.addresses(majors[0], rows=64, k=16), "float16")
    right = numbers_at(numbers, b.addresses(majors[1], rows=32, k=16), "float16")
    np.testing.assert_array_equal(out, held_d(32, 16, "float32", left @ right.T))


WGMMA_TYPES = [
    ("float16", "float16", "float32"),
    ("float16", "float16", "float16"),
    ("bfloat16", "bfloat16", "float32"),
    ("tfloat32", "tfloat32", "float32"),
    ("e4m3", "e5m2", "float32"),
    ("e5m2", "e4m3", "float16"),
    ("int8", "uint8", "int32"),
    ("uint8", "int8", "int32"),
]


@pytest.mark.parametrize(("a_type", "b_type", "accumulator"), WGMMA_TYPES)
def test_wgmma_takes_a_from_registers_and_adds_to_d(a_type, b_type, accumulator):
    """B is negated where floats can be; two warpgroups hold different A and D."""
    random = np.random.default_rng(5)
    k = WGMMA_K[a_type]
    codes, numbers = shared_numbers(b_type)
    b = ts.WgmmaDescriptor(SMEM, leading_bytes=16, stride_bytes=1024, swizzle="128B")
    a_held = ts.fragment(f"wgmma.m64n24k{k}", "A", a_type)
    a = small_numbers(random, (2, 64, k), a_type)
    before = random.integers(-50, 50, (2, 64, 24))
    a_words = np.stack([register_words(a_held, codes_of(one, a_type)[None]) for one in a])
    d_words = np.stack([held_d(24, k, accumulator, one) for one in before])
    a_registers = Registers("a", 4)
    d_registers = Registers("e", d_words.shape[-1])
    ptx = ".".join(DATA_TYPE[name].ptx for name in (accumulator, a_type, b_type))
    options = "%p2"
    if accumulator != "int32":
        options += ", 1, -1"
    if DATA_TYPE[a_type].bits == 16:
        options += ", 0"
    start = "setp.eq.u32 %p2, 0, 0;"
    opcode = f"wgmma.mma_async.sync.aligned.m64n24k{k}.{ptx}"
    body = wgmma_body(opcode, d_registers, a_registers, f"{b.encode():#x}", options, start)
    # D is an input and an output: it is loaded by hand.
    loads = "\n".join(line for line in Registers("e", d_registers.count).moves("ld") if not line.startswith(".reg"))
    out = d_words.copy()
    ran(written(loads + body, [a_registers], [d_registers], SMEM_BYTES), [a_words, out, codes], 256)
    right = numbers_at(numbers, b.addresses(rows=24, k=k, element_bits=DATA_TYPE[b_type].bits), b_type)
    sign = 1 if accumulator == "int32" else -1
    wanted = [held_d(24, k, accumulator, before[group] + a[group] @ (sign * right).T) for group in range(2)]
    np.testing.assert_array_equal(out, np.stack(wanted))


@pytest.mark.parametrize("a_in_registers", [False, True])
def test_wgmma_of_bits_counts_those_that_both_have(a_in_registers):
    random = np.random.default_rng(6)
    smem = random.integers(0, 256, SMEM_BYTES, np.uint8)
    bits = np.unpackbits(smem, bitorder="little")
    descriptor = ts.WgmmaDescriptor(SMEM, leading_bytes=16, stride_bytes=1024, swizzle="128B")
    addresses = descriptor.addresses(rows=64, k=256, element_bits=1)
    matrix = bits[(addresses - SMEM) * 8 + np.arange(256) % 8].astype(np.int64)
    held = ts.fragment("wgmma.m64n16k256", "A", "b1")
    words = register_words(held, matrix[None].astype(np.uint8))
    d = Registers("e", 8)
    a = Registers("a", 4)
    word = f"{descriptor.encode():#x}"
    opcode = "wgmma.mma_async.sync.aligned.m64n16k256.s32.b1.b1.and.popc"
    body = wgmma_body(opcode, d, a if a_in_registers else word, word, "0")
    out = np.zeros((128, 8), np.uint32)
    ran(written(body, [a], [d], SMEM_BYTES), [words, out, smem], 128)
    np.testing.assert_array_equal(out, held_d(16, 256, "int32", matrix @ matrix[:16].T))


def test_every_warpgroup_has_its_own_descriptor_and_scale():
    """The second warpgroup reads A 1024 bytes further on, and adds to its D."""
    codes, numbers = shared_numbers("bfloat16")
    d = Registers("e", 4)
    descriptor = ts.WgmmaDescriptor(SMEM, leading_bytes=16, stride_bytes=1024, swizzle="128B")
    start = f"""
        mov.u32 %r1, %tid.x; shr.u32 %r1, %r1, 7; setp.eq.u32 %p2, %r1, 1;
        mov.f32 %e0, 0f42C80000; mov.f32 %e1, 0f42C80000; mov.f32 %e2, 0f42C80000; mov.f32 %e3, 0f42C80000;
        mov.b64 %d3, {descriptor.encode():#x};
        cvt.u64.u32 %d4, %r1; shl.b64 %d4, %d4, 6; add.u64 %d4, %d4, %d3;
    """
    opcode = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16"
    body = wgmma_body(opcode, d, "%d4", "%d3", "%p2, -1, 1, 0, 0", start)
    out = np.zeros((2, 128, 4), np.uint32)
    ran(written(body, [], [d], SMEM_BYTES), [out, codes], 256)
    right = numbers_at(numbers, descriptor.addresses(rows=8, k=16), "bfloat16")
    for group in range(2):
        left = numbers_at(numbers, descriptor.addresses(rows=64, k=16) + 1024 * group, "bfloat16")
        np.testing.assert_array_equal(out[group], held_d(8, 16, "float32", 100 * group - left @ right.T))


@pytest.mark.parametrize("blocks", [1, 2])
def test_warpgroups_count_from_the_first_thread_of_their_block(blocks):
    """Blocks of 160 threads, in a cluster where there are two: warps 0 to 3 multiply, while warp 4 waits for them.

    The first element of a block's operand is the block's number.
    """
    codes, numbers = shared_numbers("float16")
    descriptor = ts.WgmmaDescriptor(SMEM, leading_bytes=16, stride_bytes=1024, swizzle="128B")
    d = Registers("e", 4)
    word = f"{descriptor.encode():#x}"
    opcode = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
    product = wgmma_body(opcode, d, word, word, "0, 1, 1, 0, 0")
    body = f"""
        .reg .b16 %h;
        mov.u32 %r1, %ctaid.x; cvt.rn.f16.u32 %h, %r1; st.shared.b16 [buffer], %h;
        mov.u32 %r1, %tid.x; setp.ge.u32 %p3, %r1, 128;
        @%p3 bra AFTER;
        {product}
    AFTER:
        bar.sync 0;
    """
    out = np.full((blocks, 160, 4), 7, np.uint32)
    ran(written(body, [], [d], SMEM_BYTES), [out, codes], 160, blocks, cluster=blocks)
    for block in range(blocks):
        matrix = numbers_at(numbers, descriptor.addresses(rows=64, k=16), "float16")
        matrix[0, 0] = block
        np.testing.assert_array_equal(out[block, :128], held_d(8, 16, "float32", matrix @ matrix[:8].T))
        assert not out[block, 128:].any()


TWO_GROUPS = """
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {e}, {word}, {word}, 0, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {f}, {word}, {word}, 0, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 1;
    {between}
    wgmma.wait_group.sync.aligned 0;
"""
OPERANDS_AT_THE_START = "0x4000004000010040"


def test_without_a_seed_a_product_is_made_as_late_as_its_wait_allows():
    """1000, stored as the first element of both operands while the second product is under way, is seen by it alone."""
    codes, _ = shared_numbers("float16")
    e, f = Registers("e", 4), Registers("f", 4)
    store = ".reg .b16 %h; mov.b16 %h, 0x63D0; st.shared.b16 [buffer], %h;"
    body = TWO_GROUPS.format(e=e, f=f, word=OPERANDS_AT_THE_START, between=store)
    e_out, f_out = (np.zeros((128, 4), np.uint32) for _ in range(2))
    ran(written(body, [], [e, f], SMEM_BYTES), [e_out, f_out, codes], 128)
    assert e_out.view(np.float32)[0, 0] < 1000
    assert f_out.view(np.float32)[0, 0] > 1000**2 - 1000


def test_a_register_of_a_product_under_way_is_waited_for():
    """ptxas waits where an instruction touches an accumulator, whether or not the text does."""
    codes, _ = shared_numbers("float16")
    e, f, seen = Registers("e", 4), Registers("f", 4), Registers("g", 2)
    body = TWO_GROUPS.format(e=e, f=f, word=OPERANDS_AT_THE_START, between="mov.b32 %g0, %e0; mov.b32 %g1, %f0;")
    e_out, f_out, seen_out = (np.zeros((128, count), np.uint32) for count in (4, 4, 2))
    ran(written(body, [], [e, f, seen], SMEM_BYTES), [e_out, f_out, seen_out, codes], 128)
    assert e_out[:, 0].any()
    np.testing.assert_array_equal(seen_out, np.stack([e_out[:, 0], f_out[:, 0]], axis=1))


def test_products_of_a_warpgroup_are_made_in_their_order_with_every_seed():
    """D = A B comes between D += A B, so that any other order gives another multiple; warp 4 gives the scheduler choices."""
    codes, numbers = shared_numbers("float16")
    descriptor = ts.WgmmaDescriptor(SMEM, leading_bytes=16, stride_bytes=1024, swizzle="128B")
    word = f"{descriptor.encode():#x}"
    d = Registers("e", 4)
    opcode = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
    products = "\n".join(
        f"{opcode} {d}, {word}, {word}, {scale}, 1, 1, 0, 0; wgmma.commit_group.sync.aligned;" for scale in (1, 0, 1, 1)
    )
    body = f"""
        mov.u32 %r1, %tid.x; mov.u32 %r2, 0; setp.ge.u32 %p3, %r1, 128;
        @%p3 bra OTHER;
        wgmma.fence.sync.aligned;
        {products}
        wgmma.wait_group.sync.aligned 2;
        wgmma.wait_group.sync.aligned 0;
        bra.uni END;
    OTHER:
        add.u32 %r2, %r2, 1; setp.lt.u32 %p4, %r2, 20;
        @%p4 bra OTHER;
    END:
    """
    kernel = Kernel(written(body, [], [d], SMEM_BYTES))
    matrix = numbers_at(numbers, descriptor.addresses(rows=64, k=16), "float16")
    wanted = held_d(8, 16, "float32", 3 * (matrix @ matrix[:8].T))
    for seed in (None, *range(8)):
        out = np.zeros((160, 4), np.uint32)
        assert kernel.run(1, 160, [out, codes], seed=seed).outcome == "finished"
        np.testing.assert_array_equal(out[:128], wanted)


def test_shared_memory_is_read_when_the_product_is_made():
    """Without a fence and a wait, what is stored behind the instruction still changes its operand."""
    d = Registers("e", 4)
    descriptor = ts.WgmmaDescriptor(SMEM, leading_bytes=16, stride_bytes=1024, swizzle="128B")
    word = f"{descriptor.encode():#x}"
    body = f"""
        wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {d}, {word}, {word}, 0, 1, 1, 0, 0;
        wgmma.commit_group.sync.aligned;
        mov.u32 %r1, {SMEM}; mov.u16 %h0, 0x4000; st.shared.b16 [%r1], %h0;
        wgmma.wait_group.sync.aligned 0;
    """
    out = np.zeros((128, 4), np.float32)
    ran(written(".reg .b16 %h<2>;" + body, [], [d], SMEM_BYTES), [out, np.zeros(SMEM_BYTES, np.uint8)], 128)
    assert out[0, 0] == 4
    assert np.count_nonzero(out) == 1


PRODUCT = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f, %f, %f, %f}, %d, %d, 0, 1, 1, 0, 0;"


def product_of_word(word, warps="", smem_bytes=4096):
    """The text of a kernel whose operands both have one descriptor; `warps` jumps to END past the product."""
    return f"""{HEADER}.visible .entry k() {{
        .reg .f32 %f; .reg .b64 %d; .reg .b32 %r; .reg .pred %p;
        .shared .align 1024 .b8 buffer[{smem_bytes}];
        mov.u32 %r, %tid.x;
        {warps}
        mov.b64 %d, {word:#x};
        wgmma.fence.sync.aligned;
        {PRODUCT}
        wgmma.commit_group.sync.aligned;
        wgmma.wait_group.sync.aligned 0;
    END:
        ret;
    }}"""


@pytest.mark.parametrize(
    ("start", "leading_bytes", "smem_bytes"), [(0x1400, 128, 4096), (0xF90, 128, 4096), (0x20000, 0x20400, 229376)]
)
def test_an_operand_outside_of_the_blocks_memory_is_an_illegal_address(start, leading_bytes, smem_bytes):
    """As on an H200; the last one would lie inside if addresses wrapped at 2**18."""
    descriptor = ts.WgmmaDescriptor(start, leading_bytes=leading_bytes, stride_bytes=128, swizzle="none")
    fault = fault_of(product_of_word(descriptor.encode(), smem_bytes=smem_bytes), [], 128)
    assert fault.values["code"] == 700
    assert "wgmma.mma_async" in fault.found  # not the wait_group where it shows


def test_an_operand_may_end_where_the_blocks_memory_ends():
    """Eight core matrices of 128 bytes, and as many 128 bytes further on: 0x480 bytes."""
    word = ts.WgmmaDescriptor(SMEM + 0x1000 - 0x480, leading_bytes=128, stride_bytes=128, swizzle="none").encode()
    assert Kernel(product_of_word(word)).run(1, 128, []).outcome == "finished"


def test_bits_of_a_descriptor_that_belong_to_no_field_are_not_looked_at():
    """As on an H200."""
    word = ts.WgmmaDescriptor(SMEM, leading_bytes=128, stride_bytes=128, swizzle="none").encode()
    unused = sum(1 << bit for bit in (14, 15, 30, 31, 46, 47, 48, *range(52, 62)))
    assert Kernel(product_of_word(word | unused)).run(1, 128, []).outcome == "finished"


@pytest.mark.parametrize(
    ("threads", "warps"),
    [
        (96, ""),
        (160, "setp.lt.u32 %p, %r, 128; @%p bra END;"),
        (128, "setp.ge.u32 %p, %r, 96; @%p bra END;"),
        (256, "sub.u32 %r, %r, 64; setp.ge.u32 %p, %r, 128; @%p bra END;"),
    ],
)
def test_a_warpgroup_without_one_of_its_warps_is_an_illegal_instruction(threads, warps):
    """As on an H200: too few threads, warp 4 alone, warps 0 to 2, warps 2 to 5."""
    word = ts.WgmmaDescriptor(SMEM, leading_bytes=128, stride_bytes=128, swizzle="none").encode()
    assert fault_of(product_of_word(word, warps), [], threads).values["code"] == 715
