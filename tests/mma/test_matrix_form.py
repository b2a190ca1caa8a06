"""The 8-bit forms of ldmatrix and stmatrix against PTX, CuTe's copies (BSD, nvidia-cutlass), and themselves turned round."""

import numpy as np
import pycute
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilescope as ts
from tilescope import fragment, ldmatrix, stmatrix
from tilescope.mma.matrix_form import MATRIX_FORMS
from tilescope.tma.elements import pack_values, unpack_values

# CuTe's copy traits, in bits: the rows that lanes address, and the registers that lanes hold, over one common space.
ROWS = {
    "m16n16.x1": (((2, 2, 4, 2), 128), ((128, 1024, 256, 0), 1)),
    "m16n16.x2": (((2, 2, 4, 2), 128), ((128, 1024, 256, 2048), 1)),
    "m8n16.x1": (((8, 4), 128), ((128, 0), 1)),
    "m8n16.x2": (((16, 2), 128), ((128, 0), 1)),
    "m8n16.x4": ((32, 128), (128, 1)),
    "m16n8.x1": (((8, 4), 128), ((128, 0), 1)),
    "m16n8.x2": (((16, 2), 128), ((128, 0), 1)),
    "m16n8.x4": ((32, 128), (128, 1)),
}
REGISTERS = {
    "m16n16.x1": (((4, 8), (8, 2, 2, 2)), ((256, 8), (1, 128, 64, 1024))),
    "m16n16.x2": (((4, 8), (8, 2, 2, 4)), ((256, 8), (1, 128, 64, 1024))),
    "m8n16.x1": ((32, 32), (32, 1)),
    "m8n16.x2": ((32, (32, 2)), (32, (1, 1024))),
    "m8n16.x4": ((32, (32, 4)), (32, (1, 1024))),
    "m16n8.x1": (((4, 8), (8, 2, 2)), ((256, 8), (1, 128, 64))),
    "m16n8.x2": (((4, 8), (8, 2, 2, 2)), ((256, 8), (1, 128, 64, 1024))),
    "m16n8.x4": (((4, 8), (8, 2, 2, 4)), ((256, 8), (1, 128, 64, 1024))),
}
OPCODES = {
    "m16n16": ["ldmatrix.m16n16.x{}.trans.b8", "ldmatrix.m16n16.x{}.trans.b4x16_p64"],
    "m8n16": ["ldmatrix.m8n16.x{}.b6x16_p32", "ldmatrix.sync.aligned.m8n16.x{}.shared.b8x16.b4x16_p64"],
    "m16n8": ["stmatrix.m16n8.x{}.trans.b8"],
}
# Which byte of the instruction's registers each byte of the copy's registers comes from: SM100_U8x8_LDSM_T and
# SM100_U8x16_LDSM_T of copy_sm100.hpp exchange bytes after the ldmatrix, dst0 = {tmp0.x, tmp0.y, tmp1.x, tmp1.y}.
COPY_TAKES = {"m16n16": (0, 1, 4, 5, 2, 3, 6, 7)}
CASES = [(key, opcode.format(key[-1])) for key in ROWS for opcode in OPCODES[key.split(".")[0]]]


@pytest.mark.parametrize(("key", "opcode"), CASES)
def test_registers_hold_what_cutes_copies_say(key, opcode):
    rows, registers = pycute.Layout(*ROWS[key]), pycute.Layout(*REGISTERS[key])
    found = fragment(opcode)
    addressed = found.shape[0] * found.matrices
    row_of = {rows(lane, bit): (lane, bit // 8) for lane in range(addressed) for bit in range(0, 128, 8)}
    assert found.values * 8 * 32 == pycute.size(registers)
    takes = COPY_TAKES.get(key.split(".")[0], range(8))
    for lane in range(32):
        for byte in range(found.values):
            value = byte // 8 * 8 + takes[byte % 8]
            row, column = found.coord(lane, value)
            row += found.matrix_of(lane, value) * found.shape[0]
            assert (row, column) == row_of[registers(lane, 8 * byte)], (lane, value)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("kind", ["b8", "b6x16_p32", "b4x16_p64"])
def test_a_register_holds_four_consecutive_elements(kind, count):
    """PTX ISA, ldmatrix, m16n16: register r of lane L has rows 4 (L mod 4) to + 3 of column L / 4 + 8 r, low byte first."""
    found = fragment(f"ldmatrix.m16n16.x{count}.trans.{kind}")
    for lane in range(32):
        expected = [
            (row, lane // 4 + 8 * register)
            for _ in range(count)
            for register in (0, 1)
            for row in range(lane % 4 * 4, lane % 4 * 4 + 4)
        ]
        assert list(found.held_by(lane)) == expected
        assert [found.matrix_of(lane, value) for value in range(found.values)] == [v // 8 for v in range(8 * count)]


@given(st.data())
def test_ldmatrix_reads_bytes_as_the_fragment_says(data):
    count, smem_address = data.draw(st.sampled_from((1, 2))), 0x400
    smem = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 256, 2048, np.uint8)
    address = smem_address + 16 * np.array(data.draw(st.lists(st.integers(0, 127), min_size=32, max_size=32)))
    held = fragment(f"ldmatrix.m16n16.x{count}.trans.b8")
    words = ldmatrix(smem, address, count=count, transpose=True, smem_address=smem_address, form="m16n16.b8")
    assert words.shape == (32, 2 * count)
    rows = smem.reshape(-1, 16)[(address[: 16 * count] - smem_address) // 16].reshape(count, 16, 16)
    expected = held.distribute(rows if count > 1 else rows[0]).astype(np.uint8)
    assert (words.view(np.uint8).reshape(32, -1) == expected).all()


@pytest.mark.parametrize(("form", "bits"), [("m8n16.b4x16_p64", 4), ("m8n16.b6x16_p32", 6)])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_packed_values_land_in_the_low_bits_of_a_byte_each(form, bits, count):
    values = np.random.default_rng(bits).integers(0, 1 << bits, (8 * count, 16), np.uint8)
    smem = np.full((8 * count, 16), 0xEE, np.uint8)  # what is padding must not show
    smem[:, : 2 * bits] = pack_values(values, bits)
    words = ldmatrix(smem, np.arange(32) % (8 * count) * 16, count=count, form=form)
    for lane in range(32):
        for matrix in range(count):
            row, column = 8 * matrix + lane // 4, lane % 4 * 4
            assert words[lane, matrix].tobytes() == values[row, column : column + 4].tobytes()


@pytest.mark.parametrize("count", [1, 2, 4])
def test_stmatrix_stores_bytes_as_the_fragment_says(count):
    words = np.random.default_rng(count).integers(0, 1 << 32, (32, count), np.uint32)
    smem = np.zeros(1024, np.uint8)
    place = np.arange(32) * 16 + 512
    stmatrix(words, smem, place, transpose=True, form="m16n8.b8")
    for lane in range(32):
        for matrix in range(count):
            for byte, value in enumerate(words[lane, matrix].tobytes()):
                row, column = 2 * (lane % 4) + byte % 2, lane // 4 + 8 * (byte // 2)
                assert smem[512 + (8 * matrix + row) * 16 + column] == value
    assert not smem[:512].any()


@given(st.sampled_from([4, 6]), st.integers(1, 4), st.integers(0, 99))
def test_packing_is_its_own_way_back(bits, groups, seed):
    values = np.random.default_rng(seed).integers(0, 1 << bits, (3, 16 * groups), np.uint8)
    dense = pack_values(values, bits)
    assert dense.shape == (3, 2 * bits * groups)
    assert (unpack_values(dense, bits) == values).all()
    whole = int.from_bytes(dense[1].tobytes(), "little")
    assert [whole >> bits * i & (1 << bits) - 1 for i in range(16 * groups)] == values[1].tolist()


def test_every_element_has_one_holder():
    for name, forms in MATRIX_FORMS.items():
        for form in forms:
            for direction in form.directions:
                for count in form.counts:
                    held = fragment(form.opcode(direction, count))
                    thread, value = held.holders()
                    assert len({*zip(thread.ravel().tolist(), value.ravel().tolist(), strict=True)}) == thread.size
                    assert held.registers == form.registers * count, name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "m16n16.b8", "count": 4, "transpose": True}, "moves 1 or 2"),
        ({"form": "m16n16.b8", "count": 1}, "always transposes"),
        ({"form": "m8n16.b6x16_p32", "transpose": True}, "never transposes"),
        ({"form": "m16n8.b8"}, "ldmatrix form .*; known: m8n8.b16"),
        ({"form": "m8n8.b8"}, "ldmatrix form .*; known: m8n8.b16"),
        ({"form": None}, "ldmatrix form .*; known: m8n8.b16"),
        ({"count": 3}, "moves 1, 2 or 4"),
    ],
)
def test_refuses_forms_that_do_not_exist(options, message):
    with pytest.raises(ts.RuleError, match=message):
        ldmatrix(np.zeros(1024, np.uint8), np.zeros(32, int), **options)


@pytest.mark.parametrize(
    "opcode",
    [
        "ldmatrix.m8n8.x4.b8",
        "ldmatrix.m16n16.x1.b8",
        "ldmatrix.m16n16.x4.trans.b8",
        "stmatrix.m16n16.x1.trans.b8",
        "ldmatrix.m8n16.x3.b6x16_p32",
        "ldmatrix.m8n16.x1.trans.b6x16_p32",
        "ldmatrix.m8n8",
        "stmatrix.m16n8.x1.b8",
    ],
)
def test_refuses_opcodes_that_do_not_exist(opcode):
    with pytest.raises(ts.RuleError):
        fragment(opcode)


def test_says_which_architectures_have_them():
    assert fragment("ldmatrix.m16n16.x1.trans.b8").feature == "ldmatrix_b8"
    assert fragment("stmatrix.m16n8.x1.trans.b8").feature == "stmatrix_b8"
    assert ts.ARCH["sm_100"].has("ldmatrix_b8")
    assert not ts.ARCH["sm_90"].has("ldmatrix_b8")
