"""tcgen05.cp brings rows of shared memory to lanes, tcgen05.shift moves lanes, ld and st have five shapes."""

import numpy as np
import pytest
from tensor_memory_text import SMEM, SMEM_BYTES, ran

import tilescope as ts

RANDOM = np.random.default_rng(6)
COLUMNS = 32
ROWS = RANDOM.integers(0, 256, SMEM_BYTES).astype(np.uint8)
DESCRIPTOR = ts.Tcgen05Descriptor(SMEM, leading_bytes=0x1000, stride_bytes=128, swizzle="none")

# shape, rows, bytes of a row, lanes that row 33 (or the last) goes to
COPIES = [
    ("128x256b", 128, 32, 33, (33,)),
    ("128x128b", 128, 16, 33, (33,)),
    ("64x128b.warpx2::02_13", 64, 16, 33, (33, 97)),
    ("64x128b.warpx2::01_23", 64, 16, 33, (65, 97)),
    ("32x128b.warpx4", 32, 16, 31, (31, 63, 95, 127)),
    ("4x256b", 4, 32, 3, (96,)),
]


@pytest.mark.thinned(5)
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize(("shape", "rows", "row_bytes", "row", "lanes"), COPIES)
def test_rows_go_to_their_lanes(shape, rows, row_bytes, row, lanes, group):
    addresses = DESCRIPTOR.addresses("K", rows=rows, k=row_bytes, element_bits=8)
    body = f"add.u32 %r9, %r1, 4; tcgen05.cp.cta_group::{group}.{shape} [%r9], %a0;"
    result = ran(body, np.zeros((group, 128, COLUMNS), np.uint32), ROWS, DESCRIPTOR.encode())
    brought = ROWS[addresses[row] - SMEM].view(np.uint32)
    for cells in result.after:
        for lane in lanes:
            assert (cells[lane, 4 : 4 + row_bytes // 4] == brought).all()
        written = np.flatnonzero((cells != 0).any(axis=1))
        assert len(written) == rows * len(lanes)
    assert result.findings == ()


@pytest.mark.parametrize(("source", "bits", "lowest"), [("b4x16_p64", 4, 2), ("b6x16_p32", 6, 1)])
def test_narrow_elements_are_spread_to_bytes(source, bits, lowest):
    body = f"tcgen05.cp.cta_group::1.128x128b.b8x16.{source} [%r1], %a0;"
    result = ran(body, np.zeros((128, COLUMNS), np.uint32), ROWS, DESCRIPTOR.encode())
    row = ROWS[DESCRIPTOR.addresses("K", rows=128, k=16, element_bits=8)[77] - SMEM]
    values = int.from_bytes(row.tobytes(), "little")
    expected = [(values >> bits * number & (1 << bits) - 1) << lowest for number in range(16)]
    assert result.after[0, 77, :4].view(np.uint8).tolist() == expected


def test_a_shift_moves_31_lanes_of_8_columns_to_the_lane_before():
    before = RANDOM.integers(0, 1 << 32, (128, COLUMNS)).astype(np.uint32)
    result = ran("add.u32 %r9, %r1, 0x200008; tcgen05.shift.cta_group::1.down [%r9];", before, ROWS[:0])
    expected = before.copy()
    expected[32:63, 8:16] = before[33:64, 8:16]
    assert (result.after[0] == expected).all()


MOVES = """
.version 8.8
.target sm_103a
.address_size 64
.visible .entry k(.param .u64 source, .param .u64 target)
{{
    .shared .align 4 .b32 at;
    .reg .b32 %r<9>;
    .reg .b32 %w<{words}>;
    .reg .b32 %x<{registers}>;
    .reg .b64 %d<9>;
    ld.param.u64 %d1, [source];
    ld.param.u64 %d2, [target];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %d3, %r2, {row_bytes};
    add.u64 %d1, %d1, %d3;
    mul.wide.u32 %d3, %r2, {register_bytes};
    add.u64 %d2, %d2, %d3;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [at], {words};
    ld.shared.b32 %r1, [at];
    {reads}
    tcgen05.st.sync.aligned.32x32b.x{words}.b32 [%r1], {{{all_words}}};
    tcgen05.wait::st.sync.aligned;
    {load}
    tcgen05.wait::ld.sync.aligned;
    {writes}
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, {words};
    ret;
}}
"""


def loaded(opcode, registers, tail="", reduced=""):
    """Registers (32, n) that a warp loads from cells that count lanes and columns."""
    words = 64
    cells = (np.arange(32)[:, None] << 16 | np.arange(words)).astype(np.uint32)
    out = np.zeros((32, registers + bool(reduced)), np.uint32)
    names = [f"%x{number}" for number in range(out.shape[1])]
    target = "{" + ", ".join(names[:registers]) + "}" + (f", {names[-1]}" if reduced else "")
    text = MOVES.format(
        words=words,
        registers=out.shape[1],
        row_bytes=4 * words,
        register_bytes=4 * out.shape[1],
        reads="".join(f"ld.global.u32 %w{number}, [%d1+{4 * number}];" for number in range(words)),
        all_words=", ".join(f"%w{number}" for number in range(words)),
        load=f"{opcode} {target}, [%r1]{tail};",
        writes="".join(f"st.global.u32 [%d2+{4 * number}], {name};" for number, name in enumerate(names)),
    )
    run = ts.Kernel(text).run(1, 32, [cells, out])
    assert [finding for finding in run.findings if finding.severity != "note"] == []
    return out >> 16, out & 0xFFFF


# opcode, registers, thread, register, lane, column: PTX ISA by way of CuTe's copy traits
LOADS = [
    ("tcgen05.ld.sync.aligned.32x32b.x8.b32", 8, "", 5, 3, 5, 3),
    ("tcgen05.ld.sync.aligned.16x64b.x4.b32", 4, "", 7, 3, 9, 7),
    ("tcgen05.ld.sync.aligned.16x128b.x2.b32", 4, "", 13, 3, 11, 5),
    ("tcgen05.ld.sync.aligned.16x256b.x2.b32", 8, "", 30, 7, 15, 13),
    ("tcgen05.ld.sync.aligned.16x32bx2.x4.b32", 4, ", 32", 20, 2, 4, 34),
    ("tcgen05.ld.sync.aligned.16x32bx2.x4.b32", 4, ", 1048576", 20, 2, 20, 2),
]


@pytest.mark.parametrize(("opcode", "registers", "tail", "thread", "register", "lane", "column"), LOADS)
def test_registers_hold_their_cells(opcode, registers, tail, thread, register, lane, column):
    lanes, columns = loaded(opcode, registers, tail)
    assert (lanes[thread, register], columns[thread, register]) == (lane, column)


def test_packing_takes_the_low_halves_of_two_columns():
    high, low = loaded("tcgen05.ld.sync.aligned.32x32b.x4.pack::16b.b32", 4)
    assert (low[0, 3], high[0, 3]) == (6, 7)


def test_a_reduction_is_one_register_more():
    lanes, columns = loaded("tcgen05.ld.red.sync.aligned.32x32b.x8.max.u32", 8, reduced="max")
    assert (lanes[9, 8], columns[9, 8]) == (9, 7)
