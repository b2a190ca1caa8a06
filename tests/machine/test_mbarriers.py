"""mbarriers in kernels: counts and phases as the card has them, who waits, what faults, what is written down."""

from pathlib import Path

import numpy as np
import pytest
from ptx_texts import fault_code, finished, kernel

from tilescope.sync.mbarrier import Mbarrier

RECORDED = np.load(Path(__file__).parent.parent / "golden" / "mbarriers.npz")
FRESH = Mbarrier(1).encode()


def test_recorded_sequences_pass_waits_give_tokens_and_end_as_on_the_card():
    """Every thread replays one sequence on a barrier of its own, all of them in one block."""
    replay = kernel(
        """
        .shared .align 8 .b8 barriers[8192];
        mov.u32 %r1, %tid.x;
        mov.u32 %r2, barriers;
        mad.lo.u32 %r2, %r1, 8, %r2;
        ld.param.u64 %d1, [operations];
        ld.param.u64 %d2, [counts];
        ld.param.u64 %d3, [passes];
        ld.param.u64 %d4, [tokens];
        mul.wide.u32 %d5, %r1, 64;
        add.s64 %d1, %d1, %d5;
        add.s64 %d2, %d2, %d5;
        add.s64 %d3, %d3, %d5;
        add.s64 %d4, %d4, %d5;
        mov.u32 %r3, 0;
    AGAIN:
        ld.global.u32 %r4, [%d1];
        ld.global.u32 %r5, [%d2];
        mov.u64 %d6, 0;
        setp.eq.u32 %p1, %r4, 0;
        setp.eq.u32 %p2, %r4, 1;
        setp.eq.u32 %p3, %r4, 2;
        setp.eq.u32 %p4, %r4, 3;
        setp.eq.u32 %p5, %r4, 4;
        setp.eq.u32 %p6, %r4, 5;
        @%p1 mbarrier.init.shared::cta.b64 [%r2], %r5;
        @%p2 mbarrier.arrive.shared::cta.b64 %d6, [%r2], %r5;
        @%p3 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], %r5;
        @%p4 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r2], %r5;
        @%p5 mbarrier.arrive_drop.shared::cta.b64 %d6, [%r2], %r5;
        @%p6 mbarrier.arrive.expect_tx.shared::cta.b64 %d6, [%r2], %r5;
        shr.u64 %d7, %d6, 32;
        st.global.u32 [%d4], %d7;
        mbarrier.test_wait.parity.shared::cta.b64 %p7, [%r2], 0;
        mbarrier.try_wait.parity.shared::cta.b64 %p8, [%r2], 1, 1000;
        selp.u32 %r6, 1, 0, %p7;
        selp.u32 %r7, 2, 0, %p8;
        or.b32 %r6, %r6, %r7;
        st.global.u32 [%d3], %r6;
        add.s64 %d1, %d1, 4;
        add.s64 %d2, %d2, 4;
        add.s64 %d3, %d3, 4;
        add.s64 %d4, %d4, 4;
        add.u32 %r3, %r3, 1;
        setp.lt.u32 %p9, %r3, 16;
        @%p9 bra AGAIN;
        mbarrier.inval.shared::cta.b64 [%r2];
        ld.shared.b64 %d8, [%r2];
        ld.param.u64 %d9, [words];
        mul.wide.u32 %d10, %r1, 8;
        add.s64 %d9, %d9, %d10;
        st.global.b64 [%d9], %d8;
        ret;
        """,
        ", ".join(f".param .u64 {name}" for name in ("operations", "counts", "passes", "tokens", "words")),
    )
    operations = RECORDED["op"].astype(np.uint32)
    counts = RECORDED["argument"].astype(np.uint32)
    sequences = len(operations)
    passes = np.zeros(operations.shape, np.uint32)
    tokens = np.zeros(operations.shape, np.uint32)
    words = np.zeros(sequences, np.uint64)
    finished(replay, sequences, [operations, counts, passes, tokens, words])
    np.testing.assert_array_equal(passes, RECORDED["passes"])
    is_arrival = np.isin(operations, (1, 4, 5))
    np.testing.assert_array_equal(tokens[is_arrival], RECORDED["token_high"][is_arrival])
    np.testing.assert_array_equal(words, RECORDED["word"])


BARRIER = """
    .shared .align 8 .b64 barrier;
    ld.param.u64 %d1, [out];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, barrier;
"""
BY_FIRST_THREAD = "setp.eq.u32 %p1, %r1, 0;"
WRITE_STATE = """
    bar.sync 0;
    @%p1 mbarrier.inval.shared.b64 [%r2];
    ld.shared.b64 %d2, [%r2];
    @%p1 st.global.b64 [%d1], %d2;
    ret;
"""


def state_after(body, threads=32):
    """The barrier after a block has run some instructions; %r1 is the thread, %r2 the barrier, %p1 is true in thread 0."""
    out = np.zeros(1, np.uint64)
    finished(kernel(f"{BARRIER}{BY_FIRST_THREAD}{body}{WRITE_STATE}"), threads, [out])
    return Mbarrier.decode(int(out[0]))


def initialised(count):
    return f"@%p1 mbarrier.init.shared.b64 [%r2], {count}; bar.sync 0;"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("mbarrier.arrive.shared.b64 _, [%r2];", Mbarrier(100).arrive(32)),
        ("mbarrier.arrive.release.cta.shared::cta.b64 %d3, [%r2], 3;", Mbarrier(100).arrive(96)),
        ("mbarrier.arrive.noComplete.release.cta.shared::cta.b64 %d3, [%r2], 2;", Mbarrier(100).arrive(64)),
        ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16;", Mbarrier(100).expect_tx(512).arrive(32)),
        ("mbarrier.arrive_drop.shared::cta.b64 _, [%r2];", Mbarrier(100).arrive_drop(32)),
        ("mbarrier.arrive_drop.expect_tx.shared.b64 %d3, [%r2], 4;", Mbarrier(100).expect_tx(128).arrive_drop(32)),
        ("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], 8;", Mbarrier(100).expect_tx(256)),
        ("@%p1 mbarrier.complete_tx.shared::cta.b64 [%r2], 8;", Mbarrier(100).complete_tx(8)),
        ("mbarrier.arrive.shared.b64 _, [%r2], 0;", Mbarrier(100)),
        (
            "cvt.u64.u32 %d4, %r2; cvta.shared.u64 %d4, %d4; mbarrier.arrive.b64 _, [%d4];",  # by generic address
            Mbarrier(100).arrive(32),
        ),
    ],
)
def test_the_lanes_of_a_warp_add_up(body, expected):
    assert state_after(initialised(100) + body) == expected


def test_warps_arrive_one_after_another():
    """Four warps of 32 at a barrier of 32: four phases, and no fault."""
    assert state_after(initialised(32) + "mbarrier.arrive.shared.b64 _, [%r2];", threads=128) == Mbarrier(32)
    assert state_after(initialised(32) + "mbarrier.arrive.shared.b64 _, [%r2];", threads=96).phase == 1


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("mbarrier.arrive.shared.b64 _, [%r2];", "mbarrier-arrivals"),
        ("mbarrier.arrive_drop.shared.b64 _, [%r2];", "mbarrier-arrivals"),
        ("@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 1048576;", "mbarrier-bytes"),
        ("mbarrier.complete_tx.shared::cta.b64 [%r2], 40000;", "mbarrier-bytes"),
    ],
)
def test_what_the_card_answers_with_a_launch_failure(body, rule):
    run = kernel(BARRIER + BY_FIRST_THREAD + initialised(31) + body + "ret;").run(1, 32, [np.zeros(1, np.uint64)])
    assert run.outcome == "fault"
    assert (run.findings[0].values["code"], run.findings[0].values["rule_name"]) == (719, rule)


def test_the_state_is_not_in_memory_before_it_is_invalidated():
    out = np.zeros(2, np.uint64)
    watched = kernel(f"""{BARRIER}
        mov.u64 %d2, 0x1234;
        st.shared.b64 [%r2], %d2;
        mbarrier.init.shared.b64 [%r2], 1;
        ld.shared.b64 %d3, [%r2];
        mbarrier.inval.shared.b64 [%r2];
        ld.shared.b64 %d4, [%r2];
        st.global.b64 [%d1], %d3;
        st.global.b64 [%d1+8], %d4;
        ret;""")
    finished(watched, 1, [out])
    assert out.tolist() == [0x1234, FRESH]


def test_a_barrier_that_nobody_initialised_is_the_word_in_memory():
    """Zeros expect no arrival: the first one is one too many. A word that threads stored counts as it stands."""
    out = np.zeros(1, np.uint64)
    of_zeros = kernel(f"{BARRIER} mbarrier.arrive.shared.b64 %d3, [%r2]; ret;")
    assert of_zeros.run(1, 1, [out]).outcome == "fault"
    stored = kernel(f"""{BARRIER}
        mov.u64 %d2, {FRESH};
        st.shared.b64 [%r2], %d2;
        mbarrier.arrive.shared.b64 %d3, [%r2];
        st.global.b64 [%d1], %d3;
        ret;""")
    run = finished(stored, 1, [out])
    assert out.tolist() == [FRESH >> 32 << 32]
    assert [finding.rule for finding in run.findings] == ["run-barrier-init"]


def test_after_inval_the_word_in_memory_counts_again():
    out = np.zeros(1, np.uint64)
    reused = kernel(f"""{BARRIER}
        mbarrier.init.shared.b64 [%r2], 7;
        mbarrier.inval.shared.b64 [%r2];
        mov.u64 %d2, {FRESH};
        st.shared.b64 [%r2], %d2;
        mbarrier.arrive.shared.b64 %d3, [%r2];
        st.global.b64 [%d1], %d3;
        ret;""")
    finished(reused, 1, [out])
    assert out[0] == FRESH >> 32 << 32


def test_a_word_that_is_no_barrier_is_a_launch_failure():
    body = "mov.u64 %d2, 1; st.shared.b64 [%r2], %d2; mbarrier.arrive.shared.b64 _, [%r2]; ret;"
    run = kernel(BARRIER + body).run(1, 1, [np.zeros(1, np.uint64)])
    assert (run.outcome, [finding.rule for finding in run.findings]) == ("fault", ["run-barrier-init"])


@pytest.mark.parametrize(
    ("instruction", "code"),
    [
        ("mbarrier.init.shared.b64 [%r2+4], 1;", 716),
        ("mbarrier.init.shared.b64 [%r2+65536], 1;", 700),
        ("mbarrier.arrive.shared.b64 _, [%r2+4];", 716),
        ("mbarrier.arrive.shared.b64 _, [%r2+65536];", 700),
        ("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2+65536], 16;", 700),
        ("mbarrier.inval.shared.b64 [%r2+65536];", 700),
        ("cp.async.mbarrier.arrive.shared.b64 [%r2+65536];", 700),
        ("mbarrier.try_wait.parity.shared.b64 %p1, [%r2+65536], 0;", 700),
        ("cp.async.mbarrier.arrive.shared.b64 [%r2+2];", 716),
    ],
)
def test_addresses_that_hold_no_barrier(instruction, code):
    assert fault_code(kernel(BARRIER + instruction + "ret;"), 1, [np.zeros(1, np.uint64)]) == code


def test_a_token_names_the_phase_that_its_arrival_belongs_to():
    """Thread 0 waits with its token until thread 32 has come, which comes last."""
    out = np.zeros(64, np.uint32)
    exchange = kernel(f"""{BARRIER}
        .shared .align 4 .b32 word;
        mov.u32 %r3, word;
        setp.eq.u32 %p1, %r1, 0;
        @%p1 mbarrier.init.shared.b64 [%r2], 64;
        bar.sync 0;
        setp.ge.u32 %p2, %r1, 32;
        @!%p2 bra ARRIVE;
        mov.u32 %r4, 7;
        st.shared.u32 [%r3], %r4;
    ARRIVE:
        mbarrier.arrive.shared.b64 %d3, [%r2];
        mbarrier.pending_count.b64 %r5, %d3;
    WAIT:
        mbarrier.try_wait.acquire.cta.shared::cta.b64 %p3, [%r2], %d3, 0x989680;
        @!%p3 bra WAIT;
        ld.shared.u32 %r4, [%r3];
        mad.lo.u32 %r4, %r5, 10, %r4;
        mul.wide.u32 %d4, %r1, 4;
        add.s64 %d1, %d1, %d4;
        st.global.u32 [%d1], %r4;
        ret;""")
    finished(exchange, 64, [out])
    assert sorted(set(out.tolist())) == [327, 647]  # 32 or 64 were pending before


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_thread_of_another_block_arrives_and_is_waited_for(seed):
    """Block 1 writes into block 0's shared memory and arrives there; block 0 arrives nowhere."""
    out = np.zeros(1, np.uint32)
    remote = kernel(f"""{BARRIER}
        .shared .align 4 .b32 word;
        mov.u32 %r3, word;
        mov.u32 %r4, %cluster_ctarank;
        mbarrier.init.shared.b64 [%r2], 1;
        fence.mbarrier_init.release.cluster;
        barrier.cluster.arrive.release.aligned;
        barrier.cluster.wait.acquire.aligned;
        setp.eq.u32 %p1, %r4, 0;
        @%p1 bra WAIT;
        mapa.shared::cluster.u32 %r5, %r3, 0;
        mapa.shared::cluster.u32 %r6, %r2, 0;
        mov.u32 %r7, 99;
        st.shared::cluster.u32 [%r5], %r7;
        mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r6];
        bra.uni END;
    WAIT:
        mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r2], 0;
        @!%p2 bra WAIT;
        ld.shared.u32 %r7, [%r3];
        st.global.u32 [%d1], %r7;
    END:
        barrier.cluster.arrive.aligned;
        barrier.cluster.wait.aligned;
        ret;""")
    run = remote.run(2, 1, [out], cluster=2, seed=seed)
    assert run.outcome == "finished", run.findings
    assert out[0] == 99


def test_a_wait_for_bytes_that_never_come_is_a_hang():
    waiting = kernel(f"""{BARRIER}
        mbarrier.init.shared.b64 [%r2], 1;
        mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 16;
    WAIT:
        mbarrier.try_wait.parity.shared.b64 %p1, [%r2], 0;
        @!%p1 bra WAIT;
        ret;""")
    assert waiting.run(1, 1, [np.zeros(1, np.uint64)]).outcome == "hang"


@pytest.mark.parametrize("seed", [None, *range(5)])
def test_a_ring_of_two_slots_hands_over_every_value_in_order(seed):
    """Warp 0 produces 20 values, warp 1 consumes them; full and empty barriers, phases that wrap ten times."""
    out = np.zeros(20, np.uint32)
    ring = kernel("""
        .shared .align 8 .b8 full[16];
        .shared .align 8 .b8 empty[16];
        .shared .align 8 .b8 slots[8];
        ld.param.u64 %d1, [out];
        mov.u32 %r1, %tid.x;
        mov.u32 %r2, full;
        mov.u32 %r3, empty;
        mov.u32 %r4, slots;
        setp.ne.u32 %p1, %r1, 0;
        @%p1 bra READY;
        mbarrier.init.shared.b64 [%r2], 1;
        mbarrier.init.shared.b64 [%r2+8], 1;
        mbarrier.init.shared.b64 [%r3], 32;
        mbarrier.init.shared.b64 [%r3+8], 32;
    READY:
        bar.sync 0;
        mov.u32 %r5, 0;
        setp.ge.u32 %p2, %r1, 32;
        @%p2 bra CONSUME;
        @%p1 bra END;
    PRODUCE:
        and.b32 %r6, %r5, 1;
        shr.u32 %r7, %r5, 1;
        not.b32 %r7, %r7;
        and.b32 %r7, %r7, 1;
        mad.lo.u32 %r8, %r6, 8, %r3;
    FREE:
        mbarrier.try_wait.parity.shared.b64 %p3, [%r8], %r7;
        @!%p3 bra FREE;
        mad.lo.u32 %r9, %r6, 4, %r4;
        mul.lo.u32 %r10, %r5, 3;
        st.shared.u32 [%r9], %r10;
        mad.lo.u32 %r8, %r6, 8, %r2;
        mbarrier.arrive.shared.b64 _, [%r8];
        add.u32 %r5, %r5, 1;
        setp.lt.u32 %p4, %r5, 20;
        @%p4 bra PRODUCE;
        bra.uni END;
    CONSUME:
        and.b32 %r6, %r5, 1;
        shr.u32 %r7, %r5, 1;
        and.b32 %r7, %r7, 1;
        mad.lo.u32 %r8, %r6, 8, %r2;
    COME:
        mbarrier.try_wait.parity.shared.b64 %p3, [%r8], %r7;
        @!%p3 bra COME;
        mad.lo.u32 %r9, %r6, 4, %r4;
        ld.shared.u32 %r10, [%r9];
        mul.wide.u32 %d2, %r5, 4;
        add.s64 %d3, %d1, %d2;
        st.global.u32 [%d3], %r10;
        mad.lo.u32 %r8, %r6, 8, %r3;
        mbarrier.arrive.shared.b64 _, [%r8];
        add.u32 %r5, %r5, 1;
        setp.lt.u32 %p4, %r5, 20;
        @%p4 bra CONSUME;
    END:
        ret;""")
    finished(ring, 64, [out], seed=seed)
    assert out.tolist() == [3 * value for value in range(20)]


def test_phases_are_written_down_with_their_arrivals_bytes_and_end(launches):
    body = """
        @%p1 mbarrier.init.shared.b64 [%r2], 32;
        bar.sync 0;
        mbarrier.arrive.shared.b64 _, [%r2];
        @%p1 mbarrier.expect_tx.shared.b64 [%r2], 64;
        mbarrier.arrive.shared.b64 _, [%r2];
        @%p1 mbarrier.complete_tx.shared.b64 [%r2], 64;
        ret;"""
    made = kernel(BARRIER + BY_FIRST_THREAD + body)
    made.run(2, 32, [np.zeros(1, np.uint64)])
    noted = [(phase.block, phase.number, phase.arrivals, phase.bytes) for phase in launches[0].phases]
    assert noted == [((0, 0, 0), 0, 32, 0), ((0, 0, 0), 1, 32, 64), ((1, 0, 0), 0, 32, 0), ((1, 0, 0), 1, 32, 64)]
    ended_by = [made.program.instructions[phase.pc].opcode for phase in launches[0].phases[:2]]
    assert ended_by == ["mbarrier.arrive.shared.b64", "mbarrier.complete_tx.shared.b64"]
