import subprocess
import sys

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tilescope.errors import RuleError
from tilescope.smem import banks
from tilescope.smem.banks import count_ideal, pairs_merge, wavefronts
from tilescope.smem.op import SMEM_OP, SmemOp

LANES = np.arange(32)


# The rule a second time, as plainly as it can be said: sets of words for each bank.


def width_bytes(op):
    if op.startswith("cp.async"):
        return int(op.split(".")[2])
    return 16 if "matrix" in op else int(op.split(".b")[1]) // 8


def naive_groups(op, address, active):
    """Lists of lanes that are served together."""
    if "matrix" in op:
        count = int(op.split(".x")[1][0])
        return [range(8 * matrix, 8 * matrix + 8) for matrix in range(count)]
    per_group = {16: 8, 8: 16}.get(width_bytes(op), 32)
    split = [list(range(first, first + per_group)) for first in range(0, 32, per_group)]
    if len(split) > 1 and op.startswith("ld"):
        for distance in (1, 2):
            pairs = [(i, i ^ distance) for i in range(32) if active[i] and active[i ^ distance]]
            if all(address[i] == address[j] for i, j in pairs):
                return [split[k] + split[k + 1] for k in range(0, len(split), 2)]
    return split


def naive_wavefronts(op, address, active):
    total = 0
    for lanes in naive_groups(op, address, active):
        words = {}
        for lane in lanes:
            # Lanes of a copy that write one word wait for each other.
            writer = lane if op.startswith("cp.async") else None
            if active[lane]:
                for byte in range(address[lane], address[lane] + width_bytes(op)):
                    words.setdefault(byte // 4 % 32, set()).add((byte // 4, writer))
        total += max((len(found) for found in words.values()), default=0)
    return total


def naive_ideal(op, address, active):
    return sum(1 for lanes in naive_groups(op, address, active) if any(active[lane] for lane in lanes))


@st.composite
def accesses(draw):
    """(op, 32 aligned addresses, 32 booleans): strided, paired, scattered, with any mask."""
    op = draw(st.sampled_from(list(SMEM_OP)))
    width = SMEM_OP[op].access_bytes
    lanes = range(32)
    shape = draw(st.sampled_from(["strided", "paired", "scattered", "far"]))
    if shape == "strided":
        stride, modulus = draw(st.integers(0, 64)), draw(st.sampled_from([1, 2, 4, 8, 16, 32]))
        address = [(lane % modulus * stride + lane // modulus) * width for lane in lanes]
    elif shape == "paired":
        distance = draw(st.sampled_from([1, 2, 4]))
        base = draw(st.lists(st.integers(0, 64), min_size=32, max_size=32))
        address = [base[lane & ~distance] * width for lane in lanes]
        if draw(st.booleans()):
            address[draw(st.sampled_from(lanes))] += width  # one lane breaks the pairs, unless it is inactive
    else:
        top = {"scattered": 256, "far": 1 << 40}[shape]
        address = [each * width for each in draw(st.lists(st.integers(0, top), min_size=32, max_size=32))]
    masks = st.one_of(
        st.just((1 << 32) - 1), st.integers(0, (1 << 32) - 1), st.sampled_from([0x55555555, 0x33333333, 0xFFFF, 1, 0])
    )
    mask = draw(masks)
    return op, address, [bool(mask >> lane & 1) for lane in lanes]


@pytest.mark.usefixtures("counted_by")
def test_every_recorded_access_takes_the_wavefronts_that_were_counted(recorded):
    ops = np.unique(recorded["op"])
    assert set(ops) == {name for name, row in SMEM_OP.items() if not row.is_copy}
    for op in ops:
        chosen = recorded["op"] == op
        counts = wavefronts(str(op), recorded["lane_offset"][chosen], recorded["active"][chosen])
        wrong = np.flatnonzero(counts != recorded["wavefronts"][chosen])
        assert not len(wrong), f"{op}: {len(wrong)} differ, the first is recording {np.flatnonzero(chosen)[wrong[0]]}"


@pytest.mark.usefixtures("counted_by")
def test_every_recorded_copy_takes_the_wavefronts_and_conflicts_that_were_counted(recorded_copies):
    assert set(recorded_copies["op"]) == {name for name, row in SMEM_OP.items() if row.is_copy}
    for op in np.unique(recorded_copies["op"]):
        chosen = recorded_copies["op"] == op
        address, active = recorded_copies["lane_offset"][chosen].astype(np.int64), recorded_copies["active"][chosen]
        counts = wavefronts(str(op), address, active)
        assert (counts == recorded_copies["wavefronts"][chosen]).all()
        excess = counts - count_ideal(SMEM_OP[str(op)], address, active)
        assert (excess == recorded_copies["conflicts"][chosen]).all()


def test_the_recorded_copies_read_one_line_of_global_memory_in_every_group(recorded_copies):
    for op, source in zip(recorded_copies["op"], recorded_copies["source_offset"], strict=True):
        for lanes in naive_groups(op, source, [True] * 32):
            assert len({source[lane] // 128 for lane in lanes}) == 1
            assert len({source[lane] for lane in lanes}) == len(lanes)


def test_a_single_access_gives_an_int_as_recorded(recorded):
    for i in range(0, len(recorded["op"]), 7):
        found = wavefronts(str(recorded["op"][i]), recorded["lane_offset"][i].tolist(), recorded["active"][i])
        assert type(found) is int
        assert found == recorded["wavefronts"][i], i


@given(access=accesses())
def test_equals_sets_of_words_for_each_bank(access):
    op, address, active = access
    assert wavefronts(op, address, active) == naive_wavefronts(op, address, active)


@given(access=accesses())
def test_the_compiled_loop_equals_sets_of_words_for_each_bank(access):
    op, address, active = access
    row = SMEM_OP[op]
    assume(row.words_merge)  # the loop sees copies with a line for every lane
    counts = np.zeros(1, np.int64)
    addresses = np.array([address[: row.lanes]])
    mask = np.array([active[: row.lanes]])
    banks._compiled_count()(addresses, mask, row.cell_bytes.bit_length() - 1, row.pairs_merge, counts)
    assert counts[0] == naive_wavefronts(op, address, active)


@given(access=accesses())
def test_ideal_is_the_number_of_groups_with_an_active_lane(access):
    op, address, active = access
    row = SMEM_OP[op]
    ideal = count_ideal(row, np.array([address])[:, : row.lanes], np.array([active])[:, : row.lanes])
    assert ideal[0] == naive_ideal(op, address, active)


@pytest.mark.parametrize(
    ("op", "active", "ideal"),
    [("ld.b128", ~0, 2), ("ld.b64", ~0, 1), ("st.b128", ~0, 4), ("ld.b128", 0xFF, 1), ("ld.b128", 0x100FF, 2)],
)
def test_ideal_of_lanes_in_pairs_counts_merged_groups(op, active, ideal):
    row = SMEM_OP[op]
    mask = np.array([[bool(active >> lane & 1) for lane in range(32)]])
    assert count_ideal(row, LANES[None] // 2 * row.access_bytes, mask).tolist() == [ideal]


# Degrees of one block of 8 rows x 16 bytes read by ldmatrix, from the documents: row pitch in bytes → wavefronts.
@pytest.mark.parametrize(
    ("pitch_bytes", "degree"),
    [(16, 1), (32, 2), (64, 4), (128, 8), (256, 8), (1024, 8), (144, 1), (80, 1), (272, 1), (160, 2), (192, 4)],
)
def test_ldmatrix_down_rows_of_a_linear_tile(pitch_bytes, degree):
    assert wavefronts("ldmatrix.x1", LANES * pitch_bytes) == degree
    assert wavefronts("stmatrix.x1.trans", LANES * pitch_bytes) == degree


@pytest.mark.parametrize(
    ("op", "ideal"), [("ld.b8", 1), ("ld.b16", 1), ("ld.b32", 1), ("ld.b64", 2), ("ld.b128", 4), ("st.b128", 4)]
)
def test_neighbouring_lanes_side_by_side_have_no_conflict(op, ideal):
    assert wavefronts(op, LANES * SMEM_OP[op].access_bytes) == ideal
    assert wavefronts(op, LANES[::-1] * SMEM_OP[op].access_bytes) == ideal


@pytest.mark.parametrize("stride", range(1, 65))
def test_strided_words_collide_as_often_as_the_stride_divides(stride):
    assert wavefronts("ld.b32", LANES * 4 * stride) == np.gcd(stride, 32)


def test_equal_words_are_read_together_and_written_together():
    for op in ("ld.b8", "ld.b32", "st.b16", "st.b32"):
        assert wavefronts(op, np.full(32, 64)) == 1
    assert wavefronts("ld.b8", LANES // 4 * 4 + LANES % 4) == 1  # four bytes of each word


class TestPairs:
    """Loads of 64 and 128 bits whose lanes ask in pairs take neighbouring groups together."""

    @pytest.mark.parametrize(("op", "alone", "merged"), [("ld.b64", 2, 1), ("ld.b128", 4, 2)])
    @pytest.mark.parametrize("distance", [1, 2])
    def test_pairs_halve_the_groups(self, op, alone, merged, distance):
        width = SMEM_OP[op].access_bytes
        lanes = LANES & ~distance
        numbers = np.unique(lanes, return_inverse=True)[1]
        assert wavefronts(op, numbers * width) == merged
        assert wavefronts("st" + op[2:], numbers * width) == alone

    @pytest.mark.parametrize("distance", [4, 8, 16])
    def test_other_distances_do_not(self, distance):
        numbers = np.unique(LANES & ~distance, return_inverse=True)[1]
        assert wavefronts("ld.b128", numbers * 16) == 4

    def test_one_unequal_pair_anywhere_in_the_warp_undoes_it(self):
        address = LANES // 2 * 16
        assert wavefronts("ld.b128", address) == 2
        for lane in range(32):
            assert wavefronts("ld.b128", np.where(lane == LANES, 16 * 64, address)) >= 4

    def test_an_inactive_lane_leaves_no_pair_to_be_unequal(self):
        address = np.where(LANES == 5, 16 * 66, LANES // 2 * 16)  # the banks of lane 4, another line
        assert wavefronts("ld.b128", address) == 5
        assert wavefronts("ld.b128", address, LANES != 5) == 2
        assert wavefronts("ld.b128", address, LANES != 4) == 2

    def test_pairs_are_of_one_distance_over_the_whole_warp(self):
        address = np.where(LANES < 16, LANES & ~1, LANES & ~2) * 16
        row = SmemOp.named("ld.b128")
        assert not pairs_merge(row, address[None], None)[0]
        assert pairs_merge(row, address[None], (LANES < 16)[None])[0]


def test_inactive_lanes_cost_nothing_and_are_not_looked_at():
    address = np.where(LANES < 8, LANES * 128, -3)
    assert wavefronts("ld.b32", address, LANES < 8) == 8
    assert wavefronts("ld.b128", address, LANES < 8) == 8
    assert wavefronts("ld.b32", address, np.zeros(32, bool)) == 0
    assert wavefronts("ldmatrix.x1", address) == 8


def test_a_mask_may_be_an_integer_or_fewer_axes_than_the_addresses():
    address = np.stack([LANES * 128, LANES * 4])
    assert wavefronts("ld.b32", address, 0xFF).tolist() == [8, 1]
    assert wavefronts("ld.b32", address, LANES < 8).tolist() == [8, 1]
    assert wavefronts("ld.b32", address, np.stack([LANES < 4, LANES < 8]).astype(int)).tolist() == [4, 1]


@pytest.mark.usefixtures("counted_by")
def test_counts_have_the_shape_of_the_batch():
    address = np.arange(3 * 5 * 32).reshape(3, 5, 32) * 4
    assert wavefronts("st.b32", address).tolist() == [[1] * 5] * 3
    assert wavefronts("st.b32", address.astype(np.uint16)).shape == (3, 5)
    assert wavefronts("ld.b128", np.zeros((0, 32), np.int64)).shape == (0,)


def test_a_batch_larger_than_a_block_is_counted_whole(monkeypatch):
    monkeypatch.setattr(banks, "kernel", lambda _: None)
    stride = np.arange(5000) % 65
    assert wavefronts("ld.b32", stride[:, None] * 4 * LANES).tolist() == [
        int(np.gcd(each, 32)) if each else 1 for each in stride
    ]


def test_the_compiled_loop_waits_for_a_batch_that_repays_it():
    banks._compiled_count.cache_clear()
    assert banks.kernel(banks.FIRST_BATCH - 1) is None
    assert banks.kernel(banks.FIRST_BATCH) is not None
    assert banks.kernel(banks.NEXT_BATCH) is not None
    assert banks.kernel(banks.NEXT_BATCH - 1) is None


def test_without_numba_batches_are_counted_all_the_same():
    program = (
        "import sys; sys.modules['numba'] = None\n"
        "import numpy as np; from tilescope.smem.banks import wavefronts\n"
        "print(wavefronts('ld.b32', np.arange(32) * np.full((10000, 1), 8)).sum())"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "20000\n"


@pytest.mark.parametrize(
    ("op", "address", "active", "reason"),
    [
        ("ld.b32", range(31), None, "argument-range: 31 lanes.*32 lanes"),
        ("ld.b32", 4, None, "argument-range: 1 lane;"),
        ("ld.b32", [], None, "argument-type: "),
        (
            "ld.b32",
            LANES * 2,
            None,
            "lane-alignment: lane 1.* 2, as 16 of 32 .* of 4",
        ),
        ("ldmatrix.x1", LANES * 8, None, "lane-alignment: lane 1.* 8, as 4 of 8"),
        ("ld.b8", LANES - 1, None, "argument-range: lane 0.* -1; "),
        ("st.b16", [[0] * 32, [2] * 31 + [5]], None, "lane 31 of access 1 at address 5"),
        ("ld.b32", LANES * 4.0, None, "argument-type: .*float64"),
        ("ld.b32", ["4"] * 32, None, "argument-type: "),
        ("ld.b32", [[1, 2], [3]], None, "argument-type: lanes of different lengths"),
        ("ld.b32", [1 << 70] * 32, None, "argument-type: "),
        ("ld.b32", np.full(32, 1 << 63, np.uint64), None, "argument-type: address 0x8000000000000000"),
        ("ld.b32", None, None, "argument-type: "),
        ("ld.b31", LANES, None, "unknown-name.*ld.b31.*ld.b32"),
        ("ld.b32", LANES * 4, [True] * 31, "argument-type: active = "),
        ("ld.b32", LANES * 4, 1 << 32, "argument-type: active = 4294967296 .int.; .*below 2"),
        ("ld.b32", LANES * 4, -1, "argument-type: active = -1"),
        ("ld.b32", LANES * 4, [2] * 32, "argument-type: active = "),
        ("ld.b32", LANES * 4, "all", "argument-type: active = "),
        ("ld.b32", LANES * 4, np.ones((2, 32), bool), "argument-type: active = "),
    ],
)
def test_what_is_no_access_is_refused_with_a_reason(op, address, active, reason):
    with pytest.raises(RuleError, match=reason):
        wavefronts(op, address, active)


def test_all_that_is_wrong_with_addresses_is_said_at_once():
    with pytest.raises(RuleError) as caught:
        wavefronts("ld.b64", LANES * 8 - 4)
    assert [each.rule for each in caught.value.violations] == ["argument-range", "lane-alignment"]
