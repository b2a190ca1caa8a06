"""Threads: divergence, loops, calls, barriers, and blocks that wait for each other."""

import numpy as np
import pytest
from ptx_texts import kernel, per_thread


def outputs(run_kernel, threads, blocks=1, **options):
    out = np.zeros(threads * blocks, np.uint32)
    run = run_kernel.run(blocks, threads, [out], **options)
    assert run.outcome == "finished", run.findings
    return out


def test_every_thread_has_its_own_branch():
    odd_and_even = per_thread("""
        and.b32 %r2, %r62, 1;
        setp.eq.u32 %p1, %r2, 0;
        @%p1 bra EVEN;
        add.u32 %r1, %r62, 1000;
        bra.uni JOIN;
    EVEN:
        mov.u32 %r1, %r62;
    JOIN:
    """)
    thread = np.arange(100)
    np.testing.assert_array_equal(outputs(odd_and_even, 100), np.where(thread % 2, thread + 1000, thread))


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_loops_of_different_length_end_at_one_barrier(seed):
    """Thread t adds t + … + 1, then reads what its neighbour found."""
    sums = per_thread("""
        .shared .align 4 .b8 sums[1024];
        mov.u32 %r1, 0;
        mov.u32 %r2, %r62;
    AGAIN:
        add.u32 %r1, %r1, %r2;
        sub.u32 %r2, %r2, 1;
        setp.gt.s32 %p1, %r2, 0;
        @%p1 bra AGAIN;
        mov.u32 %r3, sums;
        shl.b32 %r4, %r62, 2;
        add.u32 %r5, %r3, %r4;
        st.shared.u32 [%r5], %r1;
        bar.sync 0;
        xor.b32 %r4, %r4, 4;
        add.u32 %r5, %r3, %r4;
        ld.shared.u32 %r1, [%r5];
    """)
    thread = np.arange(200) ^ 1
    np.testing.assert_array_equal(outputs(sums, 200, seed=seed), thread * (thread + 1) // 2)


def test_threads_that_left_are_not_waited_for():
    """Half of the block exits; the others meet at bar.sync all the same."""
    half = kernel("""
        mov.u32 %r1, %tid.x;
        setp.ge.u32 %p1, %r1, 64;
        @%p1 exit;
        bar.sync 0;
        ld.param.u64 %d1, [out];
        mul.wide.u32 %d2, %r1, 4;
        add.s64 %d1, %d1, %d2;
        st.global.u32 [%d1], 7;
    """)
    np.testing.assert_array_equal(outputs(half, 128), [7] * 64 + [0] * 64)


def test_a_named_barrier_counts_arrivals_of_threads_that_do_not_wait():
    """Warp 0 waits at barrier 1 for 64 threads; warp 1 stores, arrives and goes on."""
    handed_over = per_thread("""
        .shared .align 4 .b32 word;
        setp.lt.u32 %p1, %r62, 32;
        @%p1 bra WAIT;
        st.shared.u32 [word], 42;
        bar.arrive 1, 64;
        mov.u32 %r1, 1;
        bra.uni END;
    WAIT:
        bar.sync 1, 64;
        ld.shared.u32 %r1, [word];
    END:
    """)
    np.testing.assert_array_equal(outputs(handed_over, 64), [42] * 32 + [1] * 32)


@pytest.mark.parametrize(("reduction", "expected"), [("popc.u32", 20), ("or.pred", 1), ("and.pred", 0)])
def test_bar_red_tells_everyone_the_votes_of_all(reduction, expected):
    target = "%r1" if reduction.startswith("popc") else "%p2"
    voted = per_thread(f"""
        setp.lt.u32 %p1, %r62, 20;
        bar.red.{reduction} {target}, 0, %p1;
        {"" if target == "%r1" else "selp.u32 %r1, 1, 0, %p2;"}
    """)
    np.testing.assert_array_equal(outputs(voted, 64), [expected] * 64)


def test_a_table_of_branches_sends_each_thread_its_way():
    switched = per_thread("""
        and.b32 %r2, %r62, 3;
    TABLE: .branchtargets ZERO, ONE, TWO, THREE;
        brx.idx %r2, TABLE;
    ZERO:
        mov.u32 %r1, 10;
        bra.uni END;
    ONE:
        mov.u32 %r1, 11;
        bra.uni END;
    TWO:
        mov.u32 %r1, 12;
        bra.uni END;
    THREE:
        mov.u32 %r1, 13;
    END:
    """)
    np.testing.assert_array_equal(outputs(switched, 40), 10 + np.arange(40) % 4)


FUNCTIONS = """
.func (.param .b32 result) square(.param .b32 a)
{
    .reg .b32 %r<3>;
    ld.param.b32 %r1, [a];
    mul.lo.u32 %r2, %r1, %r1;
    st.param.b32 [result], %r2;
    ret;
}
.func (.param .b32 sum) add_squares(.param .b32 a, .param .b32 b)
{
    .reg .b32 %r<6>;
    ld.param.b32 %r1, [a];
    ld.param.b32 %r2, [b];
    { .param .b32 p; .param .b32 q; st.param.b32 [p], %r1; call.uni (q), square, (p); ld.param.b32 %r3, [q]; }
    { .param .b32 p; .param .b32 q; st.param.b32 [p], %r2; call.uni (q), square, (p); ld.param.b32 %r4, [q]; }
    add.u32 %r5, %r3, %r4;
    st.param.b32 [sum], %r5;
    ret;
}
"""


def test_functions_call_functions_from_different_places():
    called = kernel(
        """
        mov.u32 %r1, %tid.x;
        setp.lt.u32 %p1, %r1, 16;
        @%p1 bra FIRST;
        { .param .b32 x; .param .b32 y; st.param.b32 [x], %r1; call.uni (y), square, (x); ld.param.b32 %r2, [y]; }
        bra.uni END;
    FIRST:
        { .param .b32 x; .param .b32 y; .param .b32 z; st.param.b32 [x], %r1; st.param.b32 [y], 3;
          call.uni (z), add_squares, (x, y); ld.param.b32 %r2, [z]; }
    END:
        ld.param.u64 %d1, [out];
        mul.wide.u32 %d2, %r1, 4;
        add.s64 %d1, %d1, %d2;
        st.global.u32 [%d1], %r2;
        """,
        before=FUNCTIONS,
    )
    thread = np.arange(32)
    np.testing.assert_array_equal(outputs(called, 32), np.where(thread < 16, thread**2 + 9, thread**2))


WAITS_FOR_THE_LAST_BLOCK = """
        ld.param.u64 %d1, [out];
        mov.u32 %r1, %ctaid.x;
        mov.u32 %r2, %nctaid.x;
        sub.u32 %r2, %r2, 1;
        setp.eq.u32 %p1, %r1, %r2;
        @%p1 bra LAST;
    POLL:
        ld.acquire.gpu.global.u32 %r3, [%d1];
        setp.eq.u32 %p2, %r3, 0;
        @%p2 bra POLL;
        mul.wide.u32 %d2, %r1, 4;
        add.s64 %d2, %d1, %d2;
        st.global.u32 [%d2+4], %r3;
        ret;
    LAST:
        st.release.gpu.global.u32 [%d1], 9;
"""


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_a_block_may_wait_for_one_that_starts_later(seed):
    out = np.zeros(5, np.uint32)
    run = kernel(WAITS_FOR_THE_LAST_BLOCK).run(4, 32, [out], seed=seed)
    assert run.outcome == "finished"
    np.testing.assert_array_equal(out, [9, 9, 9, 9, 0])


def test_a_wait_that_nobody_ends_is_a_hang():
    out = np.zeros(5, np.uint32)
    run = kernel(WAITS_FOR_THE_LAST_BLOCK.replace("], 9", "], 0")).run(4, 32, [out])
    assert run.outcome == "hang"
    assert run.blocks_run == 1


def test_a_loop_that_changes_nothing_is_a_hang_and_one_that_counts_is_stopped():
    assert kernel("AGAIN: bra AGAIN;").run(1, 32, [0]).outcome == "hang"
    counting = kernel("AGAIN: add.u32 %r1, %r1, 1; bra AGAIN;")
    assert counting.run(1, 32, [0], max_steps=10_000).outcome == "stopped"


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_blocks_of_a_cluster_read_each_others_shared_memory(seed):
    """Every block stores its rank; after the cluster's barrier it reads its neighbour's, and waits before it leaves."""
    neighbours = kernel("""
        .shared .align 4 .b32 own;
        mov.u32 %r1, %cluster_ctarank;
        st.shared.u32 [own], %r1;
        barrier.cluster.arrive.aligned;
        barrier.cluster.wait.aligned;
        add.u32 %r2, %r1, 1;
        and.b32 %r2, %r2, 3;
        mov.u32 %r3, own;
        mapa.shared::cluster.u32 %r4, %r3, %r2;
        ld.shared::cluster.u32 %r5, [%r4];
        barrier.cluster.arrive.aligned;
        barrier.cluster.wait.aligned;
        ld.param.u64 %d1, [out];
        mov.u32 %r6, %ctaid.x;
        mul.wide.u32 %d2, %r6, 4;
        add.s64 %d1, %d1, %d2;
        st.global.u32 [%d1], %r5;
    """)
    out = np.zeros(8, np.uint32)
    assert neighbours.run(8, 64, [out], cluster=4, seed=seed).outcome == "finished"
    np.testing.assert_array_equal(out, [1, 2, 3, 0, 1, 2, 3, 0])


def test_only_the_blocks_that_were_asked_for_run():
    numbered = per_thread("add.u32 %r1, %r60, 1;")
    out = np.zeros(128, np.uint32)
    run = numbered.run(4, 32, [out], blocks=[(1,), (3,)])
    assert run.blocks_run == 2
    np.testing.assert_array_equal(np.flatnonzero(out), [*range(32, 64), *range(96, 128)])


def test_two_syncwarps_in_two_branches_meet():
    """The halves of a warp wait for each other at different bar.warp.sync."""
    met = per_thread("""
        .shared .align 4 .b32 word;
        setp.lt.u32 %p1, %r62, 16;
        @%p1 bra LOW;
        bar.warp.sync -1;
        ld.shared.u32 %r1, [word];
        bra.uni END;
    LOW:
        st.shared.u32 [word], 5;
        bar.warp.sync -1;
        mov.u32 %r1, 6;
    END:
    """)
    np.testing.assert_array_equal(outputs(met, 32), [6] * 16 + [5] * 16)


def test_a_grid_of_a_billion_blocks_is_not_listed_first():
    run = kernel("ret;", "").run(1_000_000_000, 32, max_steps=10_000, seed=3)
    assert run.outcome == "stopped"
    assert 0 < run.blocks_run < 200


def test_a_wait_that_counts_its_turns_lets_other_blocks_run():
    """Block 0 counts while it polls: it never sees the same registers twice, and still does not starve block 1."""
    counted = kernel("""
        ld.param.u64 %d1, [out];
        mov.u32 %r1, %ctaid.x;
        setp.eq.u32 %p1, %r1, 1;
        @%p1 bra STORE;
        mov.u32 %r2, 0;
    POLL:
        add.u32 %r2, %r2, 1;
        ld.volatile.global.u32 %r3, [%d1];
        setp.eq.u32 %p2, %r3, 0;
        @%p2 bra POLL;
        st.global.u32 [%d1+4], %r3;
        ret;
    STORE:
        st.volatile.global.u32 [%d1], 5;
    """)
    out = np.zeros(2, np.uint32)
    assert counted.run(2, 32, [out]).outcome == "finished"
    assert out.tolist() == [5, 5]


def test_a_wait_of_a_thousand_clock_ticks_ends():
    timed = kernel("""
        mov.u64 %d1, %globaltimer;
    WAIT:
        mov.u64 %d2, %globaltimer;
        sub.u64 %d3, %d2, %d1;
        setp.lt.u64 %p1, %d3, 1000000000;
        @%p1 bra WAIT;
    """)
    assert timed.run(1, 32, [0], max_steps=100_000).outcome == "finished"


def test_a_wait_with_a_clock_that_nobody_ends_is_a_hang():
    """The loop sleeps longer and longer by the clock, and looks at a word that nobody writes."""
    timed = kernel("""
        ld.param.u64 %d1, [out];
    POLL:
        mov.u64 %d2, %globaltimer;
        ld.acquire.gpu.global.u32 %r1, [%d1];
        setp.eq.u32 %p1, %r1, 0;
        @%p1 bra POLL;
    """)
    assert timed.run(2, 32, [np.zeros(1, np.uint32)]).outcome == "hang"
