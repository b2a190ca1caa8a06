"""Tensor memory against a second, naive implementation: formulas element by element, loops instead of arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilescope.errors import RuleError
from tilescope.mma.datapath import DATAPATHS
from tilescope.mma.fragment import fragment
from tilescope.mma.operand_descriptor import Tcgen05Descriptor, WgmmaDescriptor
from tilescope.mma.scale_layout import scale_layout
from tilescope.mma.scale_packing import pack_scales, unpack_scales
from tilescope.mma.tensor_memory import TensorMemory
from tilescope.mma.tmem_address import TmemAddress
from tilescope.mma.tmem_budget import tmem_budget
from tilescope.mma.tmem_copy import CP_SHAPES
from tilescope.mma.tmem_form import TMEM_FORMS
from tilescope.mma.tmem_layout import TmemLayout, tmem_layout

# The formulas of PTX's figures, as one writes them down: lane and column of register r of thread t.
NAIVE = {
    "32x32b": lambda t, r: (t, r),
    "16x64b": lambda t, r: (t // 4 + 8 * (t % 2), t // 2 % 2 + 2 * r),
    "16x128b": lambda t, r: (t // 4 + 8 * (r % 2), t % 4 + 4 * (r // 2)),
    "16x256b": lambda t, r: (t // 4 + 8 * (r // 2 % 2), r % 2 + 2 * (t % 4) + 8 * (r // 4)),
}
ALL_MOVES = [f"{name}.x{count}" for name, form in TMEM_FORMS.items() for count in form.counts]


def numbered(**options):
    cells = (np.arange(128)[:, None] << 16 | np.arange(512)[None, :]).astype(np.uint32)
    return TensorMemory(cells, allocations=((0, 512),), **options)


def refused(function, *arguments, **options):
    with pytest.raises(RuleError) as caught:
        function(*arguments, **options)
    return [violation.rule for violation in caught.value.violations]


@pytest.mark.parametrize("name", ALL_MOVES)
def test_loads_follow_the_formulas(name):
    shape, count = name.split(".x")
    form = TMEM_FORMS[shape]
    columns = form.columns * int(count)
    if columns * form.places > 512:
        return
    registers = numbered().load(name, TmemAddress(32, 0), warp=5)
    assert registers.shape == (32, form.registers * int(count))
    for thread in range(32):
        for register in range(registers.shape[1]):
            if shape == "16x32bx2":
                lane, column = thread % 16, register + int(count) * (thread // 16)
            else:
                lane, column = NAIVE[shape](thread, register)
            assert registers[thread, register] == TmemAddress(32 + lane, column).encode()


@pytest.mark.parametrize("name", [name for name in ALL_MOVES if int(name.split(".x")[1]) <= 16])
@pytest.mark.parametrize("packed", [False, True])
def test_what_is_stored_is_loaded_again(name, packed):
    registers = np.random.default_rng(1).integers(
        0, 2**32, (32, TMEM_FORMS[name.split(".")[0]].registers * int(name.split(".x")[1]))
    )
    registers = registers.astype(np.uint32)
    pack, unpack = (".pack::16b", ".unpack::16b") if packed else ("", "")
    memory = TensorMemory().alloc(512).store(name + unpack, registers, TmemAddress(64, 0), warp=2)
    assert (memory.load(name + pack, TmemAddress(64, 0), warp=2) == registers).all()
    touched = fragment(f"tcgen05.ld.{name}{pack}")
    assert np.count_nonzero(memory.cells) <= touched.shape[0] * touched.shape[1] * touched.matrices


@pytest.mark.parametrize("name", [f"{name}{pack}" for name in ALL_MOVES for pack in ("", ".pack::16b")])
def test_a_fragment_and_its_inverse_cancel(name):
    held = fragment(f"tcgen05.ld.{name}")
    values = np.arange(held.threads * held.values).reshape(held.threads, held.values)
    assert (held.distribute(held.collect(values)) == values).all()
    thread, value = held.holders()
    matrix, row, column = held.indices()
    assert (thread[matrix, row, column] == np.arange(32)[:, None]).all()
    assert (value[matrix, row, column] == np.arange(held.values)[None, :]).all()


def test_halves_of_packed_registers_are_neighbouring_columns():
    cells = np.zeros((128, 512), np.uint32)
    cells[:, :] = np.arange(512) | 0xABCD0000  # the upper halves are not taken
    memory = TensorMemory(cells, allocations=((0, 512),))
    for name in ("32x32b", "16x64b", "16x128b", "16x256b"):
        registers = memory.load(f"{name}.x2.pack::16b", 0, warp=0)
        for thread in range(32):
            for register in range(registers.shape[1]):
                column = NAIVE[name](thread, register)[1]
                assert registers[thread, register] == 2 * column | (2 * column + 1) << 16


def naive_place(letter, m, n, whole_n):
    """Lane and column of element (m, n) of a block's accumulator: the formulas of PTX's figures."""
    if letter in ("A", "D"):
        return m, n
    if letter in ("B", "E"):
        return m + 64 * (n // (whole_n // 2)), n % (whole_n // 2)
    if letter in ("C", "F"):
        return m % 16 + 32 * (m // 16), n
    return m + 32 * (n // (whole_n // 4)), n % (whole_n // 4)


@pytest.mark.parametrize("letter", DATAPATHS)
def test_accumulators_follow_the_formulas(letter):
    path = DATAPATHS[letter]
    for n in path.n_known()[-2:]:
        layout = tmem_layout(
            (path.m, n), cta_group=path.cta_group, ws=path.ws == (True,), sparse=path.sparse == (True,)
        )
        for row in range(0, path.m, 13):
            for column in range(n):
                lane, cell = naive_place(letter, row % path.rows, column, n)
                assert layout.place(row, column) == (row // path.rows, (lane,), cell, 0)
                if column % 31 == 0:
                    assert layout.element_at(lane, cell, cta=row // path.rows) == (row, column)
        assert layout.columns == n // path.n_parts


LANES_OF_ROW = {
    "128x256b": lambda row: [row],
    "128x128b": lambda row: [row],
    "4x256b": lambda row: [32 * row],
    "64x128b.warpx2::02_13": lambda row: [row, row + 64],
    "64x128b.warpx2::01_23": lambda row: [row % 32 + 64 * (row // 32), row % 32 + 64 * (row // 32) + 32],
    "32x128b.warpx4": lambda row: [row, row + 32, row + 64, row + 96],
}


@pytest.mark.parametrize("shape", CP_SHAPES)
@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
def test_copies_move_every_byte(shape, swizzle):
    row = CP_SHAPES[shape]
    smem = np.random.default_rng(2).integers(0, 256, 64 << 10).astype(np.uint8)
    stride = {"none": 256, "32B": 256, "64B": 512, "128B": 1024}[swizzle]
    descriptor = Tcgen05Descriptor(0x400, leading_bytes=128, stride_bytes=stride, swizzle=swizzle)
    memory = numbered().copy(shape, smem, descriptor, TmemAddress(0, 8))
    read = descriptor.addresses("K", rows=row.rows, k=row.row_bytes, element_bits=8)
    expected = numbered().cells.copy()
    for i in range(row.rows):
        for lane in LANES_OF_ROW[shape](i):
            for byte in range(row.row_bytes):
                cell = expected[lane, 8 + byte // 4]
                shift = 8 * (byte % 4)
                expected[lane, 8 + byte // 4] = (int(cell) & ~(0xFF << shift)) | int(smem[read[i, byte]]) << shift
    assert (memory.cells == expected).all()


@pytest.mark.parametrize(("name", "bits", "shift"), [("b8x16.b4x16_p64", 4, 2), ("b8x16.b6x16_p32", 6, 1)])
def test_copies_spread_narrow_values_to_bytes(name, bits, shift):
    smem = np.random.default_rng(3).integers(0, 256, 4096).astype(np.uint8)
    descriptor = Tcgen05Descriptor(0, leading_bytes=0, stride_bytes=128, swizzle="none")
    memory = TensorMemory().alloc(32).copy("32x128b.warpx4", smem, descriptor, 0, decompress=name)
    for row in range(32):
        dense = int.from_bytes(smem[row * 16 : row * 16 + 16].tobytes(), "little")
        for value in range(16):
            wanted = (dense >> bits * value & (1 << bits) - 1) << shift
            assert memory.cells[row + 32, value // 4] >> 8 * (value % 4) & 0xFF == wanted
    assert [finding.rule for finding in memory.findings] == ["tmem-decompression"]
    assert ("unconfirmed" in memory.findings[0].limit) == (bits == 6)


def test_a_shift_moves_31_rows_to_the_lane_before():
    """PTX ISA, "Data movement shape": .31x256b for tcgen05.shift."""
    memory = numbered().shift(TmemAddress(32, 16))
    assert memory.cells[32, 16] == TmemAddress(33, 16).encode()
    assert memory.cells[62, 23] == TmemAddress(63, 23).encode()
    assert memory.cells[63, 23] == TmemAddress(63, 23).encode()
    changed = np.argwhere(memory.cells != numbered().cells)
    assert (changed.min(axis=0).tolist(), changed.max(axis=0).tolist()) == ([32, 16], [62, 23])
    assert len(np.unique(changed[:, 0])) == 31
    assert [finding.rule for finding in memory.findings] == ["tmem-unconfirmed"]


@pytest.mark.parametrize("warp", range(4))
def test_a_warp_stays_in_its_own_quarter_and_is_warned_about_a_foreign_one(warp):
    """DeepGEMM lets all warps of its epilogue pass lane 0; PTX asks for 32 x (warp mod 4)."""
    memory = numbered()
    own, foreign = TmemAddress(32 * warp), TmemAddress(32 * ((warp + 1) % 4))
    assert (memory.load("32x32b.x8", foreign, warp=warp) == memory.load("32x32b.x8", own, warp=warp)).all()
    registers = np.full((32, 8), 7, np.uint32)
    stored, warned = (memory.store("32x32b.x8", registers, place, warp=warp) for place in (own, foreign))
    assert (stored.cells == warned.cells).all()
    assert stored.findings == ()
    assert [(each.rule, each.severity) for each in warned.findings] == [("tmem-quarter", "warning")]
    lanes = {name: warned.findings[0].values[name] for name in ("lane", "first_lane", "last_lane", "right_lane")}
    assert lanes == {"lane": foreign.lane, "first_lane": 32 * warp, "last_lane": 32 * warp + 31, "right_lane": own.lane}
    upper = memory.load("16x64b.x4", TmemAddress(32 * ((warp + 1) % 4) + 16), warp=warp)
    assert (upper == memory.load("16x64b.x4", TmemAddress(32 * warp + 16), warp=warp)).all()


def test_rules_of_loads_and_stores():
    memory = TensorMemory().alloc(64)
    assert refused(memory.load, "32x32b.x8", TmemAddress(16, 0), warp=0) == ["tmem-lane"]
    assert memory.load("16x64b.x8", TmemAddress(16, 0), warp=0).shape == (32, 8)
    assert refused(memory.load, "16x64b.x8", TmemAddress(8, 0), warp=0) == ["tmem-lane"]
    assert refused(memory.load, "32x32b.x64", TmemAddress(0, 32), warp=0) == ["tmem-unallocated"]
    assert refused(memory.load, "32x32b.x64", TmemAddress(0, 480), warp=0) == ["tmem-extent"]
    assert refused(memory.load, "32x32b.x64", TmemAddress(33, 480), warp=0) == [
        "tmem-lane",
        "tmem-extent",
    ]
    assert refused(memory.load, "16x256b.x64", 0, warp=0) == ["tmem-count"]
    assert refused(memory.load, "16x32bx2.x8", 0, warp=0, split=60) == ["tmem-unallocated"]
    assert refused(memory.load, "32x32b.x8", 0, warp=0, split=8) == ["tmem-split"]
    assert refused(memory.load, "32x32b.x8.unpack::16b", 0, warp=0) == ["tmem-pack"]
    assert refused(memory.load, "tcgen05.st.32x32b.x8", 0, warp=0) == ["unknown-name"]
    assert refused(memory.store, "32x32b.x8", np.zeros((32, 4), np.uint32), 0, warp=0) == ["argument-range"]
    assert refused(TensorMemory().load, "32x32b.x1", 0, warp=0) == ["tmem-unallocated"]


def test_loads_with_a_reduction():
    values = np.random.default_rng(4).normal(size=(32, 8)).astype(np.float32)
    memory = TensorMemory().alloc(32).store("32x32b.x8", values, 0, warp=0)
    reductions = {
        "max.f32": values.max(axis=1),
        "min.f32": values.min(axis=1),
        "max.abs.f32": np.abs(values).max(axis=1),
        "min.s32": values.view(np.int32).min(axis=1),
        "max.u32": values.view(np.uint32).max(axis=1),
    }
    for name, reduced in reductions.items():
        registers = memory.load(f"tcgen05.ld.red.32x32b.x8.{name}", 0, warp=0)
        assert registers.shape == (32, 9)
        assert (registers[:, :8] == values.view(np.uint32)).all()
        assert (registers[:, 8] == reduced.view(np.uint32)).all(), name
    assert refused(memory.load, "tcgen05.ld.red.16x64b.x8.max.f32", 0, warp=0) == ["tmem-reduction"]
    assert refused(memory.load, "tcgen05.ld.red.32x32b.x1.max.f32", 0, warp=0) == ["tmem-reduction"]
    assert refused(memory.load, "tcgen05.ld.red.16x32bx2.x2.max.f32", 0, warp=0) == [
        "tmem-reduction"
    ]  # combined or not?
    assert refused(memory.load, "tcgen05.ld.red.32x32b.x8.max", 0, warp=0) == ["tmem-reduction"]


def test_allocation():
    memory = TensorMemory().alloc(256).alloc(64).alloc(32)
    assert memory.allocations == ((0, 256), (256, 64), (320, 32))
    assert memory.last_address == TmemAddress(0, 320)
    with pytest.raises(RuleError, match=r"tmem-full.*columns 0 to 255, columns 256 to 319") as full:
        memory.alloc(256)
    assert full.value.violations[0].values["allocations"] == memory.allocations
    freed = memory.dealloc(TmemAddress(0, 0), 256)
    assert [finding.rule for finding in freed.alloc(128).findings] == ["tmem-alloc-order"]
    assert freed.alloc(128).last_address.column == 0
    assert refused(memory.dealloc, TmemAddress(0, 0), 128) == ["tmem-dealloc"]
    assert refused(memory.dealloc, TmemAddress(0, 32), 32) == ["tmem-dealloc"]
    assert refused(memory.relinquish().alloc, 32) == ["tmem-relinquished"]
    assert [each.rule for each in memory.exit_problems()] == ["tmem-leak"] * 3
    assert TensorMemory().exit_problems() == ()
    for wrong in (0, 31, 33, 48, 96, 1024, -32, 32.0, None, "32"):
        assert refused(TensorMemory().alloc, wrong) == ["tmem-alloc"]


@pytest.mark.parametrize(
    "allocations",
    [
        [(0, 64), (32, 32)],
        [(32, 32), (0, 64)],
        [(0, 32), (0, 32)],
        [(480, 64)],
        [(512, 32)],
        [(16, 32)],
        [(32 * number, 32) for number in range(17)],
        [(0, 32)] * 1000,
    ],
    ids=lambda allocations: str(allocations)[:20],
)
def test_allocated_ranges_are_within_the_columns_and_do_not_overlap(allocations):
    assert refused(TensorMemory, allocations=allocations) == ["tmem-alloc"]


def test_all_columns_may_be_allocated_in_any_order():
    ranges = tuple((32 * number, 32) for number in reversed(range(16)))
    memory = TensorMemory(allocations=ranges)
    assert memory.allocations == ranges
    assert memory.allocated.all()


def test_a_range_starts_at_a_multiple_of_its_size():
    memory = TensorMemory().alloc(32).alloc(64)
    assert memory.allocations == ((0, 32), (64, 64))
    assert memory.alloc(32).last_address.column == 32


def test_a_budget_says_what_does_not_fit_and_why(wording):
    d = tmem_layout((128, 256))
    scales = scale_layout(256, 512, "nvfp4").tensor_memory("B")
    fits = tmem_budget({"D": d, "SFA": scale_layout(128, 512, "nvfp4").tensor_memory("A"), "SFB": scales})
    assert fits.fits
    assert [(part.name, part.first_column) for part in fits.parts] == [("D", 0), ("SFA", 256), ("SFB", 288)]
    assert fits.alloc_columns == 512
    full = tmem_budget({"D": (d, 2), "SFB": scales})
    assert not full.fits
    assert full.alloc_columns is None
    assert "SFB needs 64 columns after 512 taken" in full.violations[0].found
    wording("a budget says what does not fit and why", full.violations[0].found)
    shared = tmem_budget({"D": (tmem_layout((64, 256)), 4)})  # two of them at lane 16
    assert shared.fits
    assert [(part.first_column, part.lane) for part in shared.parts] == [(0, 0), (0, 16), (256, 0), (256, 16)]


def test_addresses():
    assert refused(TmemAddress, 128, 0) == ["tmem-address"]
    assert refused(TmemAddress, 0, 512) == ["tmem-address"]
    assert refused(TmemAddress, -1, 513) == ["tmem-address"] * 2
    assert refused(TmemAddress(0, 511).moved, columns=1) == ["tmem-address"]
    for word, said in ((0x00800000, "lane below"), (0x200, "ran over"), (0x40000000, "CuTe"), (1 << 32, "32 bits")):
        with pytest.raises(RuleError, match=said):
            TmemAddress.decode(word)
    for lane in range(128):
        for column in range(0, 512, 7):
            assert TmemAddress.decode(TmemAddress(lane, column).encode()) == TmemAddress(lane, column)


@pytest.mark.parametrize(
    "layout",
    [
        tmem_layout((128, 64), address=TmemAddress(0, 32)),
        tmem_layout((256, 128), operand="A", cta_group=2, data_type="bf16"),
        scale_layout(128, 256, "nvfp4").tensor_memory("A"),
    ],
    ids=["D", "A of a pair", "scales"],
)
def test_a_layout_survives_plain_data(layout):
    again = TmemLayout.from_dict(layout.to_dict())
    assert again == layout
    assert (again.bit_addresses() == layout.bit_addresses()).all()
    without_start = {name: value for name, value in layout.to_dict().items() if name != "start"}
    assert refused(TmemLayout.from_dict, without_start) == ["missing-field"]


@pytest.mark.parametrize("data", [None, 5, "tmem_layout", [("start", 0)]])
def test_what_is_no_table_has_no_field_of_a_layout(data):
    assert refused(TmemLayout.from_dict, data) == ["missing-field"]


def test_matrices_start_where_their_layout_may():
    assert refused(tmem_layout, (128, 64), address=TmemAddress(16)) == ["tmem-lane"]
    assert refused(tmem_layout, (64, 64), address=TmemAddress(8)) == ["tmem-lane"]
    assert refused(tmem_layout, (128, 64), address=TmemAddress(32)) == ["tmem-extent"]
    assert refused(tmem_layout, (128, 256), address=TmemAddress(0, 300)) == ["tmem-extent"]
    assert refused(tmem_layout, (96, 64)) == ["tmem-datapath"]
    assert refused(tmem_layout, (128, 60)) == ["tmem-n"]
    assert refused(tmem_layout, (128, 60), data_type="bf16") == ["tmem-n", "tmem-type"]
    assert refused(tmem_layout, (32, 64), operand="A", ws=True) == ["tmem-unknown"]
    assert refused(tmem_layout, (128, 24), operand="A", data_type="bf16") == ["tmem-k"]
    assert refused(tmem_layout, (64, 32), operand="metadata") == ["tmem-unknown"]
    assert refused(tmem_layout, (64, 128), operand="metadata", data_type="e2m1", ws=True) == ["tmem-unknown"]
    assert "TVM" in tmem_layout((64, 32), operand="A", ws=True).source
    assert "CuTe and Triton" in tmem_layout((64, 32), operand="A").source


def test_provenance_names_every_source_that_agrees():
    """Triton gives A in tensor memory the encoding of D; JAX issues metadata of 4 bits and three shapes of tcgen05.cp."""
    assert tmem_layout((128, 128), operand="metadata", data_type="e2m1").source == "CuTe and JAX"
    assert tmem_layout((128, 16), operand="metadata", data_type="tf32").source == "one source: CuTe"
    assert {name: row.source for name, row in CP_SHAPES.items()} == {
        "128x256b": "CuTe and TVM",
        "128x128b": "CuTe, TVM and JAX",
        "64x128b.warpx2::02_13": "CuTe and TVM",
        "64x128b.warpx2::01_23": "CuTe, TVM and JAX",
        "32x128b.warpx4": "CuTe, TVM and JAX",
        "4x256b": "CuTe and TVM",
    }


def naive_offset(row, block, blocks):
    words = -(-blocks // 4)
    return (row // 128 * words + block // 4) * 512 + row % 32 * 16 + row // 32 % 4 * 4 + block % 4


@given(st.integers(1, 400), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_packing_follows_the_formula_and_comes_back(rows, blocks, seed):
    scales = np.random.default_rng(seed).integers(1, 256, (rows, blocks)).astype(np.uint8)
    packed = pack_scales(scales)
    layout = scale_layout(rows, blocks * 16, "nvfp4")
    assert packed.size == layout.size_bytes
    assert np.count_nonzero(packed) == rows * blocks  # padding is zero
    for row, block in {(0, 0), (rows - 1, blocks - 1), (rows // 2, blocks // 3), (rows * 2 // 3, blocks // 2)}:
        assert packed[naive_offset(row, block, blocks)] == scales[row, block]
        assert layout.offset(row, block) == naive_offset(row, block, blocks)
        assert layout.locate(layout.offset(row, block)) == (row, block)
    assert (unpack_scales(packed, (rows, blocks)) == scales).all()


@pytest.mark.thinned(4)
@pytest.mark.parametrize("shape", [(2048, 512), (4096, 256), (16384, 72), (1280, 1024)])
def test_large_matrices_take_another_way_to_the_same_bytes(shape):
    scales = np.random.default_rng(5).integers(0, 256, shape).astype(np.uint8)
    rows, blocks = shape
    wanted = scales.reshape(rows // 128, 4, 32, blocks // 4, 4).transpose(0, 3, 2, 1, 4).ravel()
    packed = pack_scales(scales)
    assert (packed == wanted).all()
    assert (unpack_scales(packed, shape) == scales).all()
    plain = np.zeros(shape, np.uint8)
    assert unpack_scales(packed, shape, out=plain) is plain
    assert (plain == scales).all()
    part = np.zeros((rows - 3, blocks - 1), np.uint8)
    assert (unpack_scales(pack_scales(scales[:-3, :-1]), part.shape, out=part) == scales[:-3, :-1]).all()
    scales.flags.writeable = packed.flags.writeable = False
    assert (pack_scales(scales) == packed).all()
    assert (unpack_scales(packed, shape) == scales).all()
    batches = np.stack([scales, scales[::-1]])
    assert (unpack_scales(pack_scales(batches), shape) == batches).all()


def test_packing_refuses_what_it_cannot_take():
    scales = np.zeros((128, 4), np.uint8)
    assert refused(pack_scales, scales.astype(np.float32)) == ["argument-type"]
    assert refused(pack_scales, scales[0]) == ["argument-type"]
    assert refused(pack_scales, scales, out=np.zeros(100, np.uint8)) == ["out-array"]
    assert refused(unpack_scales, np.zeros(512, np.uint8), (256, 4)) == ["scale-size"]
    assert refused(unpack_scales, np.zeros(512, np.uint8), (256,)) == ["argument-range"]
    target = np.ones(512, np.uint8)
    assert pack_scales(scales, out=target) is target
    assert not target.any()


@pytest.mark.parametrize(("n", "columns"), [(64, 64), (128, 64), (192, 64), (256, 64)])
def test_b_scales_of_a_pair_with_m_128_fill_4_columns_for_each_word(n, columns):
    """JAX copies every word of k to 4 columns, whatever n is; CuTe and CUTLASS have the same for n = 256."""
    scales = scale_layout(n, 1024, "nvfp4")
    placed = scales.tensor_memory("B", m=128, cta_group=2)
    used = {
        scales_at.column for block in range(64) for scales_at in (placed.place(0, block), placed.place(n - 1, block))
    }
    assert max(used) < columns
    assert [copy.address.column for copy in scales.copies("B", m=128, cta_group=2)] == list(range(0, columns, 4))


@pytest.mark.parametrize(
    ("rows", "k", "kind", "operand", "where"),
    [
        (128, 512, "nvfp4", "A", {}),
        (256, 256, "mxfp8", "B", {}),
        (64, 256, "mxfp4", "A", {"m": 128, "cta_group": 2}),
        (256, 512, "nvfp4", "B", {"m": 128, "cta_group": 2}),
        (128, 256, "nvfp4", "B", {"m": 128, "cta_group": 2}),
        (192, 256, "mxfp8", "B", {"m": 128, "cta_group": 2}),
        (256, 256, "nvfp4", "B", {"m": 256, "cta_group": 2}),
    ],
)
def test_copies_bring_the_scales_where_instructions_look(rows, k, kind, operand, where):
    layout = scale_layout(rows, k, kind)
    scales = np.random.default_rng(6).integers(0, 256, (rows, layout.blocks)).astype(np.uint8)
    smem = layout.in_shared_memory(scales, operand, **where)
    memory = TensorMemory().alloc(512)
    for copy in layout.copies(operand, **where, smem_address=0x1000, address=TmemAddress(0, 64)):
        memory = memory.copy(copy.shape, smem, copy.descriptor, copy.address, smem_address=0x1000)
    placed = layout.tensor_memory(operand, **where, address=TmemAddress(0, 64))
    for row in range(0, rows, 11):
        for block in range(layout.blocks):
            found = placed.place(row, block)
            for lane in found.lanes:
                assert memory.cells[lane, found.column] >> found.bit & 0xFF == scales[row, block]


def test_a_copy_needs_a_descriptor_of_its_own_kind():
    wgmma = WgmmaDescriptor(0, leading_bytes=0, stride_bytes=128, swizzle="none")
    assert refused(numbered().copy, "32x128b.warpx4", np.zeros(512, np.uint8), wgmma, 0) == ["argument-type"]
    descriptor = Tcgen05Descriptor(0, leading_bytes=0, stride_bytes=128, swizzle="none")
    assert refused(numbered().copy, "32x128b.warpx4", np.zeros(100, np.uint8), descriptor, 0) == ["smem-extent"]
    assert refused(numbered().copy, "128x128b.warpx4", np.zeros(4096, np.uint8), descriptor, 0) == ["tmem-cp-shape"]
    assert refused(numbered().copy, "32x128b", np.zeros(4096, np.uint8), descriptor, 0) == ["tmem-cp-shape"]
    assert refused(numbered().copy, "32x128b.warpx4", np.zeros(4096, np.uint8), descriptor, TmemAddress(4)) == [
        "tmem-extent"
    ]
    columns = numbered().copy("32x128b.warpx4", np.zeros(4096, np.uint8), descriptor, TmemAddress(0, 2)).findings
    assert [finding.rule for finding in columns] == ["tmem-cp-column"]


@pytest.mark.parametrize("letter", DATAPATHS)
def test_every_address_leads_back_to_its_element(letter):
    """Over whole matrices: D, A and metadata of every layout, each copy of them."""
    path = DATAPATHS[letter]
    where = {"cta_group": path.cta_group, "ws": path.ws == (True,), "sparse": path.sparse == (True,)}
    layouts = [tmem_layout((path.m, 64), **where)]
    if path.a_source is not None:
        layouts += [
            tmem_layout((path.m, 64), operand="A", data_type=kind, **where) for kind in ("tf32", "bf16", "e2m1")
        ]
    if path.rows == 128:
        layouts += [tmem_layout((path.m, 32), operand="metadata", data_type="f16", cta_group=path.cta_group)]
    for layout in layouts:
        rows, columns = layout.rows, layout.matrix[1]
        bits = layout.bit_addresses()
        assert np.unique(bits).size == bits.size == rows * columns * layout.copies
        owner = np.full((128, 512 * 32), -1)  # which element starts at each bit
        owner[bits >> 21, bits & 0x1FFFFF] = np.arange(rows * columns).reshape(rows, columns, 1)
        assert (owner[bits >> 21, bits & 0x1FFFFF] == np.arange(rows * columns).reshape(rows, columns, 1)).all()
        for row, column in ((0, 0), (rows - 1, columns - 1), (rows // 3, columns // 5)):
            place = layout.place(row, column)
            assert all(layout.element_at(lane, place.column, place.bit) == (row, column) for lane in place.lanes)


@pytest.mark.parametrize("junk", [2, "yes", None])
def test_may_allocate_is_true_or_false(junk):
    with pytest.raises(RuleError, match="may_allocate is True or False"):
        TensorMemory(may_allocate=junk)
    assert TensorMemory(may_allocate=False).may_allocate is False


def test_a_copy_that_reaches_beyond_the_lanes_names_the_last_one():
    atom = scale_layout(128, 64, "nvfp4").copies()[0]
    memory = TensorMemory().alloc(32)
    with pytest.raises(RuleError, match=r"at lane 1 reaches lane 128; lanes end at 127\. Use lane 0"):
        memory.copy(atom.shape, np.zeros(4096, np.uint8), atom.descriptor, TmemAddress(lane=1))
    memory.copy(atom.shape, np.zeros(4096, np.uint8), atom.descriptor, TmemAddress(lane=0))


def test_a_shift_starts_at_a_quarter():
    memory = TensorMemory().alloc(32)
    for lane in range(0, 128, 16):
        if lane % 32 == 0:
            memory.shift(TmemAddress(lane, 0))
            continue
        with pytest.raises(
            RuleError, match=f"lane {lane}; tcgen05.shift starts at a multiple of 32 lanes. Use lane {lane - 16}"
        ):
            memory.shift(TmemAddress(lane, 0))


def test_all_that_is_no_memory_is_refused_at_once():
    with pytest.raises(RuleError) as refused:
        TensorMemory(cells=np.zeros(3, np.uint32), allocations="x", findings=3)
    assert [found.argument for found in refused.value.violations] == ["cells", "allocations", "findings"]


def test_an_accumulator_of_no_shape_or_type_is_refused():
    with pytest.raises(RuleError, match="tmem-n"):
        tmem_layout((128, 20))
    with pytest.raises(RuleError, match="tmem-type"):
        tmem_layout((128, 64), data_type="bf16")
