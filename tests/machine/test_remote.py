"""st.async and red.async: values that another block's mbarrier counts."""

import numpy as np
import pytest
from ptx_texts import kernel

# Block 0 sends; block 1 expects bytes, waits for its barrier and stores what came.
SENT = """
    .shared .align 16 .b8 box[1024];
    .shared .align 8 .b64 barrier;
    mov.u32 %r1, %cluster_ctarank;
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, box;
    mov.u32 %r4, barrier;
    setp.eq.u32 %p1, %r1, 0;
    setp.eq.u32 %p2, %r2, 0;
    shl.b32 %r10, %r2, 4;
    add.u32 %r11, %r3, %r10;
    st.shared.v4.u32 [%r11], {100, 100, 100, 100};
    @%p2 mbarrier.init.shared.b64 [%r4], 1;
    @%p2 fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    mapa.shared::cluster.u32 %r5, %r3, 1;
    mapa.shared::cluster.u32 %r6, %r4, 1;
    add.u32 %r7, %r5, %r10;
    add.u32 %r20, %r2, 1;
    add.u32 %r21, %r2, 2;
    @!%p1 bra RECEIVE;
    INSTRUCTION
    bra.uni END;
RECEIVE:
    @%p2 mbarrier.arrive.expect_tx.shared.b64 _, [%r4], BYTES;
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p3, [%r4], 0;
    @!%p3 bra WAIT;
    ld.shared.v4.u32 {%r30, %r31, %r32, %r33}, [%r11];
    ld.param.u64 %d1, [out];
    cvt.u64.u32 %d2, %r10;
    add.s64 %d1, %d1, %d2;
    st.global.v4.u32 [%d1], {%r30, %r31, %r32, %r33};
END:
    barrier.cluster.arrive;
    barrier.cluster.wait;
"""
STORE = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes"
REDUCE = "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes"


def received(instruction, expected_bytes, seed=None):
    out = np.zeros((32, 4), np.uint32)
    body = SENT.replace("INSTRUCTION", instruction).replace("BYTES", str(expected_bytes))
    run = kernel(body).run(2, 32, [out], cluster=2, seed=seed)
    return run, out


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
@pytest.mark.parametrize(
    ("form", "words"),
    [("u32 [%r7], %r20", 1), ("v2.b32 [%r7], {%r20, %r21}", 2), ("v4.f32 [%r7], {%r20, %r21, %r20, %r21}", 4)],
)
def test_a_store_arrives_before_its_bytes_are_counted(form, words, seed):
    run, out = received(f"{STORE}.{form}, [%r6];", words * 4 * 32, seed)
    assert run.outcome == "finished", run.findings
    thread = np.arange(32)
    sent = np.stack([thread + 1, thread + 2, thread + 1, thread + 2], axis=1)
    sent[:, words:] = 100
    np.testing.assert_array_equal(out, sent)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("add.u32", 100 + sum(range(1, 33))),
        ("min.s32", 1),
        ("max.u32", 100),
        ("xor.b32", 100 ^ int(np.bitwise_xor.reduce(np.arange(1, 33)))),
        ("inc.u32", 31 % 8),  # 100 is beyond 7: the first lane makes it 0
    ],
)
@pytest.mark.parametrize("seed", [None, 0])
def test_reductions_of_all_lanes_meet_at_one_word(form, expected, seed):
    """All lanes send to the first word, where 100 lies."""
    operand = "7" if form == "inc.u32" else "%r20"
    run, out = received(f"{REDUCE}.{form} [%r5], {operand}, [%r6];", 4 * 32, seed)
    assert run.outcome == "finished", run.findings
    assert out[0, 0] == expected
    assert (out.reshape(-1)[1:] == 100).all()


def test_bytes_that_nobody_sends_are_a_hang():
    run, _ = received(f"{STORE}.u32 [%r7], %r20, [%r6];", 4 * 32 + 4)
    assert run.outcome == "hang"
    (finding,) = (each for each in run.findings if each.severity == "error")
    assert (finding.rule, finding.values["expected"]) == ("run-expected-bytes", 4 * 32 + 4)
    waits = [each["found"] for each in finding.values["also"] if each["rule"] == "run-hang"]
    assert any("0 of 1 arrival" in wait and "4 bytes" in wait for wait in waits)


def test_a_block_that_is_not_in_the_cluster_is_fault_715():
    run, _ = received(f"{STORE}.u32 [%r7+0x1000000], %r20, [%r6];", 128)
    assert run.findings[0].values["code"] == 715
