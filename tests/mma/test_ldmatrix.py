"""ldmatrix and stmatrix against recordings of an H200, the fragments they fill, and each other."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilescope as ts
from tilescope import canonical_layout, fragment, ldmatrix, stmatrix

GOLDEN = Path(__file__).parents[1] / "golden"


def test_registers_are_those_of_the_card():
    with np.load(GOLDEN / "ldmatrix.npz") as archive:
        kinds, offsets, registers = archive["kind"], archive["lane_offset"], archive["registers"]
    smem = np.arange(16384, dtype=np.uint16)
    for case, kind in enumerate(kinds.tolist()):
        count = (1, 2, 4)[kind % 3]
        for given_as in (smem, smem.view(np.uint8), smem.tobytes()):
            got = ldmatrix(given_as, offsets[case], count=count, transpose=kind >= 3)
            assert got.dtype == np.uint32
            assert np.array_equal(got, registers[case][:, :count]), case


def naive_ldmatrix(smem, lane_address, count, transpose):
    """One element at a time."""
    words = smem.view(np.uint16)
    out = np.zeros((32, count), np.uint32)
    for matrix in range(count):
        for lane in range(32):
            for half in (0, 1):
                row, column = (2 * (lane % 4) + half, lane // 4) if transpose else (lane // 4, 2 * (lane % 4) + half)
                out[lane, matrix] |= int(words[lane_address[8 * matrix + row] // 2 + column]) << 16 * half
    return out


ROWS = st.lists(st.integers(0, 255), min_size=32, max_size=32).map(lambda rows: np.array(rows) * 16)


@given(ROWS, st.sampled_from([1, 2, 4]), st.booleans())
def test_loads_as_the_naive_reading(lane_address, count, transpose):
    smem = np.random.default_rng(1).integers(0, 256, 4096, dtype=np.uint8)
    expected = naive_ldmatrix(smem, lane_address, count, transpose)
    assert np.array_equal(ldmatrix(smem, lane_address, count=count, transpose=transpose), expected)
    shifted = ldmatrix(smem, lane_address + 0x800, count=count, transpose=transpose, smem_address=0x800)
    assert np.array_equal(shifted, expected)


@given(st.permutations(range(64)), st.sampled_from([1, 2, 4]), st.booleans())
def test_a_store_is_undone_by_a_load(places, count, transpose):
    lane_address = np.array(places[:32]) * 16
    smem = np.full(1024, 0xEE, np.uint8)
    registers = np.random.default_rng(2).integers(0, 1 << 32, (32, count), dtype=np.uint32)
    stmatrix(registers, smem, lane_address, transpose=transpose)
    assert np.array_equal(ldmatrix(smem, lane_address, count=count, transpose=transpose), registers)
    written = np.zeros(1024, bool)
    for first in lane_address[: 8 * count]:
        written[first : first + 16] = True
    assert (smem[~written] == 0xEE).all()


def test_many_accesses_at_once():
    smem = np.arange(2048, dtype=np.uint16)
    addresses = np.random.default_rng(3).integers(0, 256, (5, 3, 32)) * 16
    got = ldmatrix(smem, addresses, count=2)
    assert got.shape == (5, 3, 32, 2)
    for where in np.ndindex(5, 3):
        assert np.array_equal(got[where], ldmatrix(smem, addresses[where], count=2))


def coords_of(tile, registers, matrix_register=0):
    """The (m, k) that each lane holds, where shared memory was filled with its own addresses / 2."""
    halves = np.ascontiguousarray(registers[:, [matrix_register]]).view("<u2")
    return [[tile.locate(2 * int(half)) for half in lane] for lane in halves]


@pytest.mark.parametrize(
    ("major", "swizzle", "shape", "transpose", "lane_0", "lane_22"),
    [
        ("K", "none", (16, 8), False, [(0, 0), (0, 1)], [(5, 4), (5, 5)]),
        ("MN", "32B", (16, 8), False, [(0, 0), (1, 0)], [(4, 5), (5, 5)]),
        ("MN", "32B", (16, 8), True, [(0, 0), (0, 1)], [(5, 4), (5, 5)]),
    ],
)
def test_transposed_operands_need_trans(*, major, swizzle, shape, transpose, lane_0, lane_22):
    """The first ldmatrix.x1 of an A operand of mma.m16n8k8, K-major and M-major."""
    tile = canonical_layout(major, swizzle, "bf16").tile(shape)
    smem = np.arange(tile.size_bytes // 2, dtype=np.uint16)
    row = np.arange(32) % 8
    lanes = tile.address(row, 0 * row) if major == "K" else tile.address(0 * row, row)
    held = coords_of(tile, ldmatrix(smem, lanes, count=1, transpose=transpose))
    assert (held[0], held[22]) == (lane_0, lane_22)
    if major == "K" or transpose:
        a = fragment("mma.m16n8k8", operand="A", data_type="bf16")
        assert held == [list(a.held_by(lane)[:2]) for lane in range(32)]


@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
@pytest.mark.parametrize("major", ["K", "MN"])
def test_recipes_fill_the_fragments_of_m16n8k16(major, swizzle):
    """x4 for A, x2 for B; an MN-major source takes the same matrices with .trans, rows counted by k."""
    lane = np.arange(32)
    for operand, count, corner_mn, corner_k in (
        ("A", 4, lane // 8 % 2 * 8, lane // 16 * 8),
        ("B", 2, 0 * lane, lane // 8 % 2 * 8),
    ):
        layout = canonical_layout(major, swizzle, "bf16")
        tile = layout.tile((max(16, layout.atom[0]), max(16, layout.atom[1])), start=0x1000)
        smem = np.arange(tile.size_bytes // 2, dtype=np.uint16)
        row = lane % 8  # of the matrix: along mn or along k
        lanes = tile.address(corner_mn + row, corner_k) if major == "K" else tile.address(corner_mn, corner_k + row)
        registers = ldmatrix(smem, lanes, count=count, transpose=major == "MN", smem_address=0x1000)
        held = np.ascontiguousarray(registers).view("<u2")
        wanted = fragment("mma.m16n8k16", operand=operand, data_type="bf16")
        for thread in range(32):
            for value in range(wanted.values):
                coord = wanted.coord(thread, value)
                mn_k = coord if operand == "A" else coord[::-1]
                assert tile.locate(0x1000 + 2 * int(held[thread, value])) == mn_k, (operand, thread, value)


def good(**changes):
    return {"smem": np.zeros(1024, np.uint8), "lane_address": np.arange(32) * 16} | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": 3}, "1, 2 or 4"),
        ({"count": True}, "1, 2 or 4"),
        ({"count": [4]}, "1, 2 or 4"),
        ({"lane_address": np.arange(32) * 16 + 8}, "multiples of 16.*"),
        ({"lane_address": np.arange(32) * 64}, r"16 passes 0x400 \(16.*32 row.*wrong\)"),
        ({"lane_address": np.arange(32) * 16 - 16}, "lane 0 passes -0x10"),
        ({"lane_address": np.arange(16) * 16}, "32 integer addresses"),
        ({"lane_address": 0}, "32 integer addresses"),
        ({"lane_address": [[0], [0, 1]]}, "Use rows of one length"),
        ({"lane_address": np.arange(32) * 16.0}, "32 integer addresses"),
        ({"smem_address": -1}, "0 to 2"),
        ({"smem_address": 0x400}, "smem holds 0x400 to 0x800"),
        ({"smem": np.zeros((32, 64), np.uint8)[:, :32]}, "C-contiguous"),
        ({"smem": np.zeros(4, object)}, "array of object"),
        ({"smem": 5}, "an array or a buffer"),
    ],
)
def test_refuses_loads_that_would_fault(changes, message):
    arguments = good(**changes)
    smem, lane_address = arguments.pop("smem"), arguments.pop("lane_address")
    with pytest.raises(ts.RuleError, match=message):
        ldmatrix(smem, lane_address, **arguments)


def test_lanes_beyond_the_count_may_give_anything():
    lanes = np.where(np.arange(32) < 8, np.arange(32) * 16, -5)
    assert ldmatrix(np.zeros(128, np.uint8), lanes, count=1).shape == (32, 1)


def test_refuses_stores_that_cannot_be():
    registers = np.zeros((32, 4), np.uint32)
    smem, lanes = np.zeros(1024, np.uint8), np.arange(32) * 16
    frozen = smem.copy()
    frozen.flags.writeable = False
    for arguments, message in (
        ((registers[:, :3], smem, lanes), r"\(32, 4\)"),
        ((registers[:16], smem, lanes), r"\(32, 4\)"),
        ((registers.astype(float), smem, lanes), "32-bit words"),
        ((registers.astype(np.int64) - 1, smem, lanes), "beyond 32 bits"),
        ((registers, frozen, lanes), "read-only"),
        ((registers, bytes(1024), lanes), "read-only"),
        ((registers, smem, lanes * 4), "lane 16 passes 0x400"),
        ((registers, smem, np.zeros((2, 32), int)), "one store takes 32"),
    ):
        with pytest.raises(ts.RuleError, match=message):
            stmatrix(*arguments)
    assert not smem.any()


def test_two_different_rows_at_one_address_are_refused():
    lanes = np.arange(32) * 16
    lanes[9] = lanes[2]
    smem = np.zeros(1024, np.uint8)
    stmatrix(np.zeros((32, 2), np.uint32), smem, lanes)  # equal rows: whichever comes last
    with pytest.raises(ts.RuleError, match="lanes 2 and 9 both give 0x20"):
        stmatrix(np.arange(64, dtype=np.uint32).reshape(32, 2), smem, lanes)


def test_signed_words_keep_their_bits():
    smem = np.zeros(128, np.uint8)
    stmatrix(np.full((32, 1), -2, np.int32), smem, np.arange(32) * 16)
    assert smem.view(np.uint32)[0] == 0xFFFFFFFE
