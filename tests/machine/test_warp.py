"""Instructions of a warp, against one lane at a time in plain Python."""

import numpy as np
import pytest
from ptx_texts import kernel, per_thread

from tilescope.errors import RuleError

FULL = 0xFFFFFFFF

LOADED = """
    mov.u32 %r10, %tid.x;
    ld.param.u64 %d1, [a];
    ld.param.u64 %d2, [b];
    ld.param.u64 %d3, [out];
    mul.wide.u32 %d4, %r10, 4;
    add.s64 %d1, %d1, %d4;
    add.s64 %d2, %d2, %d4;
    add.s64 %d3, %d3, %d4;
    ld.global.u32 %r1, [%d1];
    ld.global.u32 %r2, [%d2];
"""
PARAMETERS = ".param .u64 a, .param .u64 b, .param .u64 out, .param .u64 flag"
STORED = """
    st.global.u32 [%d3], %r3;
    ld.param.u64 %d5, [flag];
    add.s64 %d5, %d5, %d4;
    selp.u32 %r4, 1, 0, %p1;
    st.global.u32 [%d5], %r4;
"""


def words(seed, count, bits=32):
    return np.random.default_rng(seed).integers(0, 1 << bits, count, dtype=np.uint64).astype(np.uint32)


def results(instruction, a, b, before="", seed=None):
    """(%r3, %p1) of every thread after an instruction whose operands are %r1 and %r2, the words of a and b."""
    out = np.zeros(len(a), np.uint32)
    flag = np.zeros(len(a), np.uint32)
    run = kernel(f"{LOADED}{before}{instruction}{STORED}", PARAMETERS).run(
        1, len(a), [a.copy(), b.copy(), out, flag], seed=seed
    )
    assert run.outcome == "finished", run.findings
    return out, flag


def shuffled(mode, lane, b, c):
    """(source lane, is in range) as the PTX ISA writes it down."""
    bval, cval, segment = b & 31, c & 31, c >> 8 & 31
    last = (lane & segment) | (cval & ~segment & 31)
    if mode == "up":
        j = lane - bval
        is_in_range = j >= last
    elif mode == "down":
        j = lane + bval
        is_in_range = j <= last
    elif mode == "bfly":
        j = lane ^ bval
        is_in_range = j <= last
    else:
        j = (lane & segment) | (bval & ~segment & 31)
        is_in_range = j <= last
    return (j if is_in_range else lane), is_in_range


CLAMPS = {"up": (0, 0x1800, 0x1C00), "down": (0x1F, 0x181F, 0x1C03), "bfly": (0x1F, 0x181F), "idx": (0x1F, 0x1E1F, 7)}


@pytest.mark.parametrize("mode", CLAMPS)
@pytest.mark.parametrize("is_constant", [True, False])
def test_a_shuffle_copies_from_the_lane_that_the_isa_computes(mode, is_constant):
    a = words(1, 64)
    for clamp in CLAMPS[mode]:
        distances = np.full(64, 3, np.uint32) if is_constant else words(clamp, 64)
        b = "3" if is_constant else "%r2"
        out, flag = results(f"shfl.sync.{mode}.b32 %r3|%p1, %r1, {b}, {clamp}, -1;", a, distances)
        for thread in range(64):
            source, is_in_range = shuffled(mode, thread % 32, int(distances[thread]), clamp)
            assert out[thread] == a[thread // 32 * 32 + source], (clamp, thread)
            assert flag[thread] == is_in_range, (clamp, thread)


def test_a_shuffle_may_overwrite_its_source():
    out, _ = results("shfl.sync.bfly.b32 %r1, %r1, 16, 31, -1; mov.u32 %r3, %r1;", words(2, 32), words(3, 32))
    np.testing.assert_array_equal(out, np.roll(words(2, 32), 16))


HALVES = """
    and.b32 %r5, %r10, 31;
    setp.lt.u32 %p2, %r5, 16;
    mov.u32 %r6, 0xffff0000;
    @%p2 mov.u32 %r6, 0x0000ffff;
"""


def test_two_masks_in_a_warp_are_two_groups():
    """Each half of the warp adds up its own lanes, though both stand at the same instruction."""
    a = words(4, 64, bits=8)
    out, _ = results("redux.sync.add.u32 %r3, %r1, %r6;", a, a, before=HALVES)
    np.testing.assert_array_equal(out, np.repeat(a.reshape(4, 16).sum(axis=1), 16))


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_a_branch_waits_for_the_lanes_of_its_mask_only(seed):
    """Odd lanes shuffle among themselves in a branch that even lanes never enter."""
    a = words(5, 64)
    branch = """
        and.b32 %r5, %r10, 1;
        setp.eq.u32 %p1, %r5, 0;
        mov.u32 %r3, 0;
        @%p1 bra JOIN;
        shfl.sync.bfly.b32 %r3, %r1, 2, 31, 0xaaaaaaaa;
    JOIN:
    """
    out, _ = results(branch, a, a, seed=seed)
    thread = np.arange(64)
    np.testing.assert_array_equal(out, np.where(thread % 2, a[thread ^ 2], 0))


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_lanes_that_come_later_are_waited_for(seed):
    """Lane 0 of each warp comes 40 rounds of a loop after the others, to a shuffle of all."""
    a = words(6, 64)
    late = """
        and.b32 %r5, %r10, 31;
        setp.ne.u32 %p2, %r5, 0;
        mov.u32 %r6, 40;
        @%p2 bra HERE;
    AGAIN:
        sub.u32 %r6, %r6, 1;
        setp.ne.u32 %p3, %r6, 0;
        @%p3 bra AGAIN;
    HERE:
        shfl.sync.idx.b32 %r3, %r1, 0, 31, -1;
    """
    out, _ = results(late, a, a, seed=seed)
    np.testing.assert_array_equal(out, np.repeat(a[::32], 32))


def test_lanes_that_ended_are_not_waited_for():
    a = words(7, 32)
    ended = "setp.ge.u32 %p2, %r10, 20; @%p2 exit; redux.sync.max.u32 %r3, %r1, -1;"
    out, _ = results(ended, a, a)
    np.testing.assert_array_equal(out, [a[:20].max()] * 20 + [0] * 12)


VOTES = {
    "all": all,
    "any": any,
    "uni": lambda votes: len(set(votes)) == 1,
}


@pytest.mark.parametrize("mode", VOTES)
@pytest.mark.parametrize("threshold", [0, 1, 200, 256])
def test_a_vote_counts_every_lane_of_the_warp(mode, threshold):
    a = words(8, 50, bits=8)  # the second warp has 18 lanes
    _, flag = results(f"setp.lt.u32 %p2, %r1, {threshold}; vote.sync.{mode}.pred %p1, %p2, -1;", a, a)
    expected = []
    for warp in (a[:32], a[32:]):
        expected += [VOTES[mode]([bool(value < threshold) for value in warp])] * len(warp)
    np.testing.assert_array_equal(flag, expected)


def test_a_ballot_is_the_votes_as_bits_of_the_mask_alone():
    a = words(9, 32, bits=8)
    ballot = "setp.lt.u32 %p2, %r1, 128; @!%p3 vote.sync.ballot.b32 %r3, !%p2, 0xff00;"
    out, _ = results(f"setp.eq.u32 %p3, %r10, 99; sub.u32 %r4, %r10, 8; setp.ge.u32 %p3, %r4, 8; {ballot}", a, a)
    bits = sum(1 << lane for lane in range(8, 16) if a[lane] >= 128)
    np.testing.assert_array_equal(out, [0] * 8 + [bits] * 8 + [0] * 16)


@pytest.mark.parametrize("mode", ["any", "all"])
def test_match_finds_the_lanes_of_the_same_value(mode):
    a = words(10, 64, bits=2)
    a[32:] = 3
    target = "%r3" if mode == "any" else "%r3|%p1"
    out, flag = results(f"match.{mode}.sync.b32 {target}, %r1, -1;", a, a)
    for thread in range(64):
        warp = a[thread // 32 * 32 :][:32]
        same = sum(1 << lane for lane in range(32) if warp[lane] == a[thread])
        if mode == "all":
            assert flag[thread] == (same == FULL)
            same = FULL if same == FULL else 0
        assert out[thread] == same


def test_match_looks_at_all_64_bits():
    a = words(11, 32, bits=1)
    b = words(12, 32, bits=1)
    out, _ = results("mov.b64 %d6, {%r1, %r2}; match.any.sync.b64 %r3, %d6, -1;", a, b)
    for lane in range(32):
        is_same = (a == a[lane]) & (b == b[lane])
        assert out[lane] == sum(1 << other for other in range(32) if is_same[other])


INTEGER_REDUCTIONS = {
    "add.u32": lambda lanes: int(lanes.sum(dtype=np.uint64)) & FULL,
    "add.s32": lambda lanes: int(lanes.sum(dtype=np.uint64)) & FULL,
    "min.u32": lambda lanes: int(lanes.min()),
    "max.u32": lambda lanes: int(lanes.max()),
    "min.s32": lambda lanes: int(lanes.view(np.int32).min()) & FULL,
    "max.s32": lambda lanes: int(lanes.view(np.int32).max()) & FULL,
    "and.b32": lambda lanes: int(np.bitwise_and.reduce(lanes)),
    "or.b32": lambda lanes: int(np.bitwise_or.reduce(lanes)),
    "xor.b32": lambda lanes: int(np.bitwise_xor.reduce(lanes)),
}


@pytest.mark.parametrize("form", INTEGER_REDUCTIONS)
@pytest.mark.parametrize("threads", [32, 45])
def test_redux_reduces_the_lanes_that_are_there(form, threads):
    a = words(13, threads)
    out, _ = results(f"redux.sync.{form} %r3, %r1, -1;", a, a)
    expected = [INTEGER_REDUCTIONS[form](a[first : first + 32]) for first in range(0, threads, 32)]
    np.testing.assert_array_equal(out, np.repeat(expected, 32)[:threads])


LEAST_OF_ALL = {"min.u32": FULL, "max.s32": 0x80000000, "min.s32": 0x7FFFFFFF, "and.b32": FULL, "max.u32": 0}


@pytest.mark.parametrize("form", LEAST_OF_ALL)
def test_lanes_that_are_not_there_change_no_reduction(form):
    a = np.full(20, LEAST_OF_ALL[form], np.uint32)
    out, _ = results(f"redux.sync.{form} %r3, %r1, -1;", a, a)
    np.testing.assert_array_equal(out, a)


NAN = 0x7FC00001
CANONICAL_NAN = 0x7FFFFFFF


@pytest.mark.parametrize(
    ("form", "values", "expected"),
    [
        ("max.f32", [1.0, -7.0], 1.0),
        ("min.f32", [1.0, -7.0], -7.0),
        ("max.abs.f32", [1.0, -7.0], 7.0),
        ("min.abs.f32", [1.0, -7.0], 1.0),
        ("max.f32", [-0.0, 0.0], 0.0),
        ("min.f32", [0.0, -0.0], -0.0),
        ("max.f32", [-np.inf, -np.inf], -np.inf),
        ("max.abs.f32", [-np.inf, 1.0], np.inf),
        ("max.abs.NaN.f32", [-np.inf, 1.0], np.inf),
        ("max.NaN.f32", [-5.0, -6.0], -5.0),
        ("max.f32", [np.nan, 2.0], 2.0),
    ],
)
def test_redux_of_floats_orders_zeros_and_drops_nans(form, values, expected):
    a = np.resize(np.array(values, np.float32), 20).view(np.uint32)
    out, _ = results(f"redux.sync.{form} %r3, %r1, -1;", a, a)
    np.testing.assert_array_equal(out, np.full(20, expected, np.float32).view(np.uint32))


@pytest.mark.parametrize(("form", "with_number"), [("max.NaN.f32", True), ("max.f32", False), ("min.abs.f32", False)])
def test_redux_gives_the_canonical_nan(form, with_number):
    a = np.full(32, NAN, np.uint32)
    if with_number:
        a[5:] = 0x3F800000
    out, _ = results(f"redux.sync.{form} %r3, %r1, -1;", a, a)
    np.testing.assert_array_equal(out, [CANONICAL_NAN] * 32)


def test_elect_chooses_the_lowest_lane_that_is_there():
    a = words(14, 64)
    out, flag = results(
        "and.b32 %r5, %r10, 31; setp.lt.u32 %p2, %r5, 3; @%p2 exit; elect.sync %r3|%p1, 0xffffffff;", a, a
    )
    lane = np.arange(64) % 32
    np.testing.assert_array_equal(out, np.where(lane < 3, 0, 3))
    np.testing.assert_array_equal(flag, lane == 3)


def test_activemask_has_the_lanes_of_the_branch():
    masks = per_thread("""
        setp.lt.u32 %p1, %r62, 5;
        @%p1 bra FEW;
        activemask.b32 %r1;
        bra.uni JOIN;
    FEW:
        activemask.b32 %r1;
    JOIN:
    """)
    out = np.zeros(40, np.uint32)
    masks.run(1, 40, [out])
    np.testing.assert_array_equal(out, [31] * 5 + [FULL - 31] * 27 + [255] * 8)


@pytest.mark.parametrize(
    "instruction",
    [
        "shfl.bfly.b32 %r1, %r2, 1, 31;",
        "vote.all.pred %p1, %p2;",
        "redux.sync.add.f32 %r1, %r2, -1;",
        "redux.sync.abs.max.s32 %r1, %r2, -1;",
    ],
)
def test_what_no_architecture_since_volta_has_is_refused(instruction):
    with pytest.raises(RuleError, match="ptx-unsupported"):
        kernel(instruction)
