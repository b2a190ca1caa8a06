"""cp.async in kernels: what it moves, which wait it is done by, arrivals behind it, what faults."""

import numpy as np
import pytest
from ptx_texts import fault_code, finished, kernel

UNTOUCHED = 0xEE
SEEDS = [None, 0, 1]


def numbered(count, dtype=np.uint8):
    return np.arange(count).astype(dtype)


CP_ASYNC = """
    .shared .align 16 .b8 buffer[4096];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, buffer;
    mad.lo.u32 %r2, %r1, 16, %r2;
    ld.param.u64 %d1, [source];
    ld.param.u64 %d2, [out];
    mul.wide.u32 %d3, %r1, 16;
    add.s64 %d1, %d1, %d3;
    add.s64 %d2, %d2, %d3;
    mov.u32 %r3, 0xEEEEEEEE;
    st.shared.v4.u32 [%r2], {%r3, %r3, %r3, %r3};
"""
SHOW_BUFFER = """
    ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r2];
    st.global.v4.u32 [%d2], {%r4, %r5, %r6, %r7};
    ret;
"""
SOURCE_AND_OUT = ".param .u64 source, .param .u64 out"


def copied(body, threads=64, seed=None, source=None):
    """16 bytes of shared memory a thread, after a body that copies from [%d1] to [%r2]."""
    source = numbered(threads * 16) if source is None else source
    out = np.zeros(threads * 16, np.uint8)
    finished(kernel(CP_ASYNC + body + SHOW_BUFFER, SOURCE_AND_OUT), threads, [source, out], seed=seed)
    return out.reshape(threads, 16)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("opcode", "size_bytes"), [("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)])
def test_cp_async_moves_its_bytes_before_the_wait_ends(opcode, size_bytes, seed):
    body = f"cp.async.{opcode}.shared.global.L2::128B [%r2], [%d1], {size_bytes}; cp.async.wait_all;"
    wanted = numbered(64 * 16).reshape(64, 16)
    wanted[:, size_bytes:] = UNTOUCHED
    np.testing.assert_array_equal(copied(body, seed=seed), wanted)


@pytest.mark.parametrize("size_bytes", [4, 8, 16])
def test_cp_async_takes_its_source_size_and_fills_with_zeros(size_bytes):
    """Thread t takes t mod 20 bytes, at most all of them."""
    body = f"rem.u32 %r8, %r1, 20; cp.async.ca.shared.global [%r2], [%d1], {size_bytes}, %r8; cp.async.wait_all;"
    wanted = numbered(64 * 16).reshape(64, 16)
    taken = np.minimum(np.arange(64) % 20, size_bytes)
    wanted[np.arange(16) >= taken[:, None]] = 0
    wanted[:, size_bytes:] = UNTOUCHED
    np.testing.assert_array_equal(copied(body), wanted)


@pytest.mark.parametrize("predicate", ["%p1", "!%p1"])
def test_cp_async_may_ignore_its_source(predicate):
    body = f"setp.lt.u32 %p1, %r1, 10; cp.async.cg.shared.global [%r2], [%d1], 16, {predicate}; cp.async.wait_all;"
    wanted = numbered(64 * 16).reshape(64, 16)
    is_ignored = np.arange(64) < 10
    wanted[is_ignored if predicate == "%p1" else ~is_ignored] = 0
    np.testing.assert_array_equal(copied(body), wanted)


def test_a_source_of_no_bytes_is_never_touched():
    body = "mov.u64 %d1, 8; mov.u32 %r8, 0; cp.async.cg.shared.global [%r2], [%d1], 16, %r8; cp.async.wait_all;"
    assert not copied(body).any()


def test_without_a_wait_the_bytes_have_not_come():
    assert (copied("cp.async.cg.shared.global [%r2], [%d1], 16; cp.async.commit_group;") == UNTOUCHED).all()


def test_a_wait_leaves_the_newest_groups_alone():
    """Three groups of 4 bytes each; the wait allows one to be under way."""
    body = """
        cp.async.ca.shared.global [%r2], [%d1], 4;
        cp.async.commit_group;
        cp.async.ca.shared.global [%r2+4], [%d1+4], 4;
        cp.async.commit_group;
        cp.async.ca.shared.global [%r2+8], [%d1+8], 4;
        cp.async.commit_group;
        cp.async.wait_group 1;
    """
    wanted = numbered(64 * 16).reshape(64, 16)
    wanted[:, 8:] = UNTOUCHED
    np.testing.assert_array_equal(copied(body), wanted)


def test_a_wait_is_for_the_copies_of_its_own_threads():
    body = """
        cp.async.ca.shared.global [%r2], [%d1], 4;
        cp.async.commit_group;
        setp.lt.u32 %p1, %r1, 40;
        @%p1 cp.async.wait_group 0;
    """
    out = copied(body)
    assert (out[:40, :4] == numbered(64 * 16).reshape(64, 16)[:40, :4]).all()
    assert (out[40:] == UNTOUCHED).all()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("noinc", "count"), [("", 1), (".noinc", 64)])
def test_an_arrival_behind_copies_ends_the_phase_when_they_are_done(noinc, count, seed):
    """Without .noinc the barrier counts its init alone: thread 0's arrival, behind everybody's."""
    body = f"""
        .shared .align 8 .b64 barrier;
        mov.u32 %r9, barrier;
        setp.eq.u32 %p1, %r1, 0;
        @%p1 mbarrier.init.shared.b64 [%r9], {count};
        bar.sync 0;
        cp.async.cg.shared.global [%r2], [%d1], 16;
        cp.async.mbarrier.arrive{noinc}.shared.b64 [%r9];
        bar.sync 0;
        {"@%p1 mbarrier.arrive.shared.b64 _, [%r9];" if count == 1 else ""}
    WAIT:
        mbarrier.try_wait.parity.shared.b64 %p2, [%r9], 0;
        @!%p2 bra WAIT;
        xor.b32 %r2, %r2, 16;
    """
    wanted = numbered(64 * 16).reshape(32, 2, 16)[:, ::-1].reshape(64, 16)  # what the neighbour copied
    np.testing.assert_array_equal(copied(body, seed=seed), wanted)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("cp.async.cg.shared.global [%r2+8], [%d1], 16;", 716),
        ("cp.async.ca.shared.global [%r2], [%d1+2], 4;", 716),
        ("cp.async.ca.shared.global [%r2+65536], [%d1], 4;", 700),
        ("cp.async.ca.shared.global [%r2], [%d1+65536], 4; cp.async.wait_all;", 700),
        ("cp.async.ca.shared.global [%r2], [%d1+65536], 4;", 700),  # at the end of the kernel
        ("mov.u64 %d1, 0x7e0000000400; cp.async.ca.shared.global [%r2], [%d1], 4;", 717),  # the window of shared memory
    ],
)
def test_what_the_card_answers_to_a_wrong_cp_async(body, code):
    made = kernel(CP_ASYNC + body + SHOW_BUFFER, SOURCE_AND_OUT)
    assert fault_code(made, 64, [numbered(1024), np.zeros(1024, np.uint8)]) == code
