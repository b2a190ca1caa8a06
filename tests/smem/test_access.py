import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilescope.errors import RuleError
from tilescope.layout import Layout
from tilescope.mma.canonical import canonical_layout
from tilescope.mma.fragment import fragment
from tilescope.mma.ldmatrix import ldmatrix, stmatrix
from tilescope.smem.access import Access
from tilescope.smem.banks import wavefronts
from tilescope.smem.op import SMEM_OP
from tilescope.swizzle import SWIZZLE
from tilescope.value import Value


def plain_bytes(access):
    """Every byte that the pattern touches in the plain tile, in the order of instruction, lane and byte."""
    used = np.broadcast_to(np.arange(32) < access.op.lanes, access.lane_address.shape)
    used = used if access.active is None else used & access.active
    return (access.lane_address[used][:, None] + np.arange(access.op.access_bytes)).reshape(-1)


@pytest.mark.parametrize("op", [name for name in SMEM_OP if "matrix" not in name])
@pytest.mark.parametrize("make", [Access.rows, Access.columns])
@pytest.mark.parametrize("tile", [(8, 64), (3, 32), (64, 48), (1, 16)])
def test_rows_and_columns_take_each_byte_of_the_tile_once(op, make, tile):
    access = make(tile, 16, op)
    assert sorted(plain_bytes(access)) == list(range(tile[0] * tile[1] * 2))


def test_rows_go_along_the_row_and_columns_down_the_column():
    tile = (64, 64)
    assert Access.rows(tile, 32, "ld.b64").lane_address[1, :2].tolist() == [256, 264]
    assert Access.columns(tile, 32, "ld.b64").lane_address[2, :2].tolist() == [8, 264]
    assert Access.rows((3, 32), 16, "ld.b64").active.tolist() == [[lane < 24 for lane in range(32)]]


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_a_transposition_reads_single_elements_down_the_columns(bits):
    access = Access.transpose((32, 32), bits)
    assert access == Access.columns((32, 32), bits, f"ld.b{bits}")
    assert access.lane_address[1].tolist() == [row * 4 * bits + bits // 8 for row in range(32)]


@pytest.mark.parametrize("name", [name for name in SMEM_OP if "matrix" in name])
def test_matrix_walks_take_each_byte_of_the_tile_once(name):
    access = Access.named(name, (32, 32), 16)
    assert sorted(plain_bytes(access)) == list(range(32 * 32 * 2))


class TestMatrixWalksServeMma:
    """What the walk brings is what mma.m16n8k16 wants: the emulated ldmatrix fills the documented fragments."""

    @staticmethod
    def registers_of(held, block):
        return np.ascontiguousarray(held.distribute(block)).view(np.uint32)

    @pytest.mark.parametrize(
        ("operand", "count", "transpose", "high", "wide"),
        [("A", 4, False, 16, 16), ("A", 4, True, 16, 16), ("B", 2, False, 8, 16), ("B", 2, True, 16, 8)],
    )
    def test_loads(self, operand, count, transpose, high, wide):
        tile = np.random.default_rng(1).integers(0, 1 << 16, (32, 32), dtype=np.uint16)
        walk = Access.ldmatrix(tile.shape, 16, count=count, transpose=transpose)
        held = fragment("mma.m16n8k16", operand, "bf16")
        blocks = [
            tile[row : row + high, column : column + wide]
            for row in range(0, 32, high)
            for column in range(0, 32, wide)
        ]
        assert len(blocks) == walk.instructions
        for address, block in zip(walk.lane_address, blocks, strict=True):
            as_operand = block if (operand == "B") == transpose else block.T
            expected = self.registers_of(held, np.ascontiguousarray(as_operand))
            assert (ldmatrix(tile, address, count=count, transpose=transpose) == expected).all()

    @pytest.mark.parametrize("transpose", [False, True])
    @pytest.mark.parametrize("count", [2, 4])
    def test_stores(self, transpose, count):
        result = np.random.default_rng(2).integers(0, 1 << 16, (32, 32), dtype=np.uint16)
        held = fragment("mma.m16n8k16", "D", "f16")
        tile = np.zeros((32, 32), np.uint16)
        walk = Access.stmatrix(tile.shape, count=count, transpose=transpose)
        for address in walk.lane_address:
            first_row, first_column = divmod(int(address[0]) // 2, 32)
            m, n = (first_column, first_row) if transpose else (first_row, first_column)
            parts = [self.registers_of(held, result[m : m + 16, n + 8 * i : n + 8 * i + 8]) for i in range(count // 2)]
            stmatrix(np.concatenate(parts, axis=1), tile, address, transpose=transpose)
        assert (tile == (result.T if transpose else result)).all()


@pytest.mark.parametrize(
    ("instruction", "operand", "data_type", "op"),
    [
        ("mma.m16n8k16", "A", "bf16", "ld.b32"),
        ("mma.m16n8k16", "B", "bf16", "ld.b32"),
        ("mma.m16n8k16", "D", "f32", "st.b64"),
        ("mma.m16n8k16", "C", "f16", "ld.b32"),
        ("mma.m16n8k8", "A", "tf32", "ld.b32"),
        ("mma.m16n8k32", "B", "e4m3", "ld.b32"),
        ("mma.m16n8k64", "A", "int4", "ld.b32"),
        ("wgmma.m64n32k16", "D", "f32", "st.b64"),
        ("wgmma.m64n32k16", "A", "f16", "ld.b32"),
    ],
)
def test_fragments_take_what_each_thread_holds(instruction, operand, data_type, op):
    held = fragment(instruction, operand, data_type)
    high, wide = held.shape[::-1] if operand == "B" else held.shape
    access = Access.fragment(held, (2 * high, 2 * wide))
    assert access.op.name == op
    bits = held.element_bits
    assert sorted(plain_bytes(access)) == list(range(4 * high * wide * bits // 8))
    in_block = access.lane_address[: access.instructions // 4].reshape(held.threads // 32, -1, 32)  # warp, access, lane
    per_access = access.op.access_bytes * 8 // bits
    for thread in range(held.threads):
        wanted = [coord[::-1] if operand == "B" else coord for coord in held.held_by(thread)]
        element = [(row * 2 * wide + column) * bits // 8 for row, column in wanted[::per_access]]
        assert in_block[thread // 32, :, thread % 32].tolist() == element


def test_a_transposed_fragment_reads_single_elements_of_an_mn_major_tile():
    held = fragment("mma.m16n8k16", "A", "bf16")
    access = Access.fragment(held, (16, 16), transpose=True)
    assert access.op.name == "ld.b16"
    assert access.lane_address[1, 5] == (held.coord(5, 1)[1] * 16 + held.coord(5, 1)[0]) * 2


LAYOUTS = [
    Layout((64, 64), 16),
    Layout((64, 64), 16, padding_bytes=16, start=0x100),
    Layout((64, 64), 16, swizzle="128B", start=0x480),
    Layout((64, 64), 16, swizzle="xor:2,4,5"),
    Layout((64, 64), 16, atom=(8, 32), swizzle="64B", start=512),
    Layout((64, 64), 16, atom=(8, 16), atom_order="row", swizzle="32B"),
    Layout((64, 64), 16, atom=(8, 8)),
    Layout((64, 64), 16, swizzle="128B_ATOM_32B"),
    canonical_layout("K", "64B", "bf16").tile((64, 64)),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("text", ["st.b128 rows", "ld.b16 columns", "ldmatrix.x4", "stmatrix.x2", "ldmatrix.x1.trans"])
def test_a_placed_lane_finds_its_own_elements(layout, text):
    plain = Access.named(text, (64, 64), 16)
    placed = plain.on(layout)
    address_of = layout.addresses().reshape(-1)
    lanes = plain.op.lanes
    for byte in range(0, plain.op.access_bytes, 2):
        element = plain.lane_address[..., :lanes] // 2 + byte // 2
        assert (placed.lane_address[..., :lanes] + byte == address_of[element]).all()
    assert placed.layout == layout


def test_bytes_within_an_element_go_with_it():
    layout = Layout((8, 32), 32, swizzle="128B", start=256)
    placed = Access("ld.b8", np.arange(32) * 5).on(layout)
    for lane in range(32):
        element, byte = divmod(lane * 5, 4)
        assert placed.lane_address[lane] == layout.address(element // 32, element % 32) + byte


@given(padding=st.sampled_from([0, 16, 48]), mode=st.sampled_from(list(SWIZZLE)), start=st.sampled_from([0, 128, 1024]))
def test_where_accesses_stay_whole_their_bytes_lie_together(padding, mode, start):
    layout = Layout((32, 96), 8, padding_bytes=padding, swizzle=mode, start=start)
    plain = Access.rows((32, 96), 8, "ld.b128")
    if SWIZZLE[mode].flip_bytes:
        with pytest.raises(RuleError, match="access-torn"):
            plain.on(layout)
        plain = Access.rows((32, 96), 8, "ld.b64")
    placed = plain.on(layout)
    addresses = layout.addresses().reshape(-1)
    for byte in range(plain.op.access_bytes):
        assert (addresses[plain.lane_address + byte] == placed.lane_address + byte).all()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (
            lambda: Access.rows((8, 12), 8),
            "tile-width.*12 bytes; ld.b128 takes 16 bytes.*16",
        ),
        (lambda: Access.rows((8, 0), 8), r"argument-range: shape\[1\] = 0"),
        (lambda: Access.rows((8, 8), 7), "argument-range: element_bits = 7"),
        (
            lambda: Access.rows((2048, 2048), 8),
            "tile-size: 2048 rows.*2048 bytes.*no.*233472 bytes",
        ),
        (lambda: Access.ldmatrix((10**9, 64), 16), "address-window: "),
        (lambda: Access.rows((8, 8), 16, "ldmatrix.x4"), "pattern-op: ldmatrix.x4"),
        (
            lambda: Access.ldmatrix((12, 64), 16),
            "matrix-tile: 12 rows.*128 bytes; .*takes 16 rows.*32 bytes.*16",
        ),
        (lambda: Access.ldmatrix((16, 8), 16), "matrix-tile: 16 rows of 16 bytes"),
        (lambda: Access.ldmatrix((16, 64), 8, transpose=True), "matrix-transpose: 8 bits"),
        (lambda: Access.ldmatrix((16, 64), 16, count=3), "unknown-name: operation ldmatrix.x3"),
        (lambda: Access.ldmatrix((16, 64), 16, transpose=np.zeros(2)), "argument-type: transpose = array"),
        (
            lambda: Access.fragment(fragment("mma.m16n8k16", "A", "bf16"), (16, 16), transpose=1),
            "argument-type: transpose = 1",
        ),
        (lambda: Access.rows((8, 64), 16).on((8, 64)), "argument-type: layout = .*Layout"),
        (lambda: Access.transpose((16, 64), 4), "element-load: single elements of 4 bits"),
        (lambda: Access.fragment("A", (16, 16)), "argument-type: fragment = 'A'"),
        (lambda: Access.fragment(fragment("mma.m16n8k16", "A", "bf16"), (16, 24)), "takes 16 x 16. Use 16 x 32"),
        (lambda: Access.fragment(fragment("ldmatrix.x4"), (16, 16)), "fragment-tile: ldmatrix.x4 holds 4 matrices"),
        (
            lambda: Access.fragment(fragment("mma.m16n8k64", "A", "int4"), (64, 64), transpose=True),
            "element-load: single elements of 4 bits",
        ),
        (lambda: Access.expression("lane * 2"), "lane-alignment: lane 1 at address 2"),
        (lambda: Access.expression("lane - 1", "ld.b8"), "argument-range: lane 0 at address -1"),
        (lambda: Access("ld.b32", range(31)), "argument-range: 31 lanes"),
        (lambda: Access("ld.b32", range(0, 128, 4), name=np.zeros(2)), "argument-type: name = array"),
        (lambda: Access.named("ld.b32 rowz", (8, 8), 32), "unknown-name: pattern ld.b32 rowz"),
        (lambda: Access.named("", (8, 8), 32), "unknown-name: pattern"),
        (lambda: Access.named(7, (8, 8), 32), "unknown-name: pattern 7"),
        (lambda: Access.named("ldmatrix.x4"), "pattern-tile: .*without a tile"),
        (lambda: Access.named("mma.m16n8k16 A f32", (16, 16), 16), "fragment-type: "),
        (lambda: Access.named("mma.m16n8k16 A.row bf16", (16, 16), 16), "unknown-name: operand A.row"),
        (lambda: Access.named("mma.m16n8k16 A bf16", (16, 16), 8), "8-bit.*16 bits"),
        (lambda: Access.named("mma.m1n1k1 A bf16", (16, 16), 16), "unknown-name: 'mma.m1n1k1'"),
        (
            lambda: Access.rows((64, 64), 16).on(Layout((8, 64), 16)),
            "tile-bounds: ld.b128 reaches.*8191; .*1024",
        ),
        (
            lambda: Access.rows((64, 64), 16).on(Layout((64, 64), 16, swizzle="xor:5,2,5")),
            "access-torn: 16 bytes a lane",
        ),
        (lambda: Access.rows((64, 64), 16).on(Layout((64, 64), 16, atom=(8, 4))), "access-torn: .*rows of 8 bytes"),
        (
            lambda: Access.rows((64, 64), 16).on(Layout((64, 64), 16, padding_bytes=4)),
            "lane-alignment: lane 8 of access 0",
        ),
        (lambda: Access.rows((8, 64), 16).on(Layout((8, 64), 16)).on(Layout((8, 64), 16)), "placed-twice"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(make, reason):
    with pytest.raises(RuleError, match=reason):
        make()


@pytest.mark.parametrize(
    ("text", "access"),
    [
        ("st.b128 rows", Access.rows((64, 64), 16, "st.b128")),
        ("LDS.64 columns", Access.columns((64, 64), 16, "ld.b64")),
        ("transpose", Access.transpose((64, 64), 16)),
        ("ldmatrix.x4", Access.ldmatrix((64, 64), 16)),
        ("ldmatrix.x2.trans", Access.ldmatrix((64, 64), 16, count=2, transpose=True)),
        ("stmatrix.x1", Access.stmatrix((64, 64), count=1)),
        ("cp.async", Access.rows((64, 64), 16, "cp.async.16")),
        ("cp.async.8", Access.rows((64, 64), 16, "cp.async.8")),
        ("cp.async.ca columns", Access.columns((64, 64), 16, "cp.async.16")),
        ("mma.m16n8k16 b.trans bf16", Access.fragment(fragment("mma.m16n8k16", "B", "bf16"), (64, 64), transpose=True)),
        ("ld.b32 : lane * 4", Access("ld.b32", range(0, 128, 4), name="ld.b32: lane * 4")),
    ],
)
def test_a_text_names_a_pattern(text, access):
    assert Access.named(text, (64, 64), 16) == access


def test_is_a_value():
    access = Access.rows((3, 32), 16, "ld.b64").on(Layout((3, 32), 16, start=0x80))
    assert Value.from_dict(json.loads(json.dumps(access.to_dict()))) == access
    assert access != Access.rows((3, 32), 16, "ld.b64")
    assert len({access, Access.from_dict(access.to_dict())}) == 1
    with pytest.raises(ValueError, match="read-only"):
        access.lane_address[0, 0] = 4


def test_a_pattern_of_one_instruction_may_be_one_axis():
    access = Access.expression("lane * 128")
    assert access.instructions == 1
    assert wavefronts(access.op, access.lane_address) == 32
    assert access.on(Layout((32, 32), 32, swizzle="xor:5,2,5")).lane_address.tolist() == [
        lane * 132 for lane in range(32)
    ]


def test_lanes_that_give_no_address_are_not_placed():
    plain = Access("ldmatrix.x1", [*range(0, 128, 16), *[1 << 30] * 24])
    assert plain.on(Layout((8, 8), 16, start=0x80)).lane_address[:8].tolist() == list(range(128, 256, 16))
