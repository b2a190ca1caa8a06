"""Bulk copies and reductions in kernels, in every direction; what they move, when, and what faults."""

import numpy as np
import pytest
from ptx_texts import fault_code, finished, kernel

import tilescope as ts
from tilescope.machine.execution.pending import MOST_WORKS, Pending, Work

SEEDS = [None, 0, 1]
SOURCE_AND_OUT = ".param .u64 source, .param .u64 out"
DYNAMIC = ".extern .shared .align 1024 .b8 dynamic[];"


def numbered(count, dtype=np.uint8):
    return np.arange(count).astype(dtype)


BARRIER = """
    .shared .align 8 .b64 barrier;
    .shared .align 128 .b8 buffer[2048];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, buffer;
    mov.u32 %r3, barrier;
    ld.param.u64 %d1, [source];
    ld.param.u64 %d2, [out];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared.b64 [%r3], 1;
    fence.mbarrier_init.release.cluster;
    mad.lo.u32 %r4, %r1, 4, %r2;
    mul.wide.u32 %d3, %r1, 4;
    bar.sync 0;
"""
WAIT = """
    WAIT:
        mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0;
        @!%p2 bra WAIT;
"""
SHOW_WORDS = """
    add.s64 %d4, %d2, %d3;
    ld.shared.u32 %r5, [%r4];
    st.global.u32 [%d4], %r5;
    ret;
"""
FILL_WORDS = """
    add.s64 %d4, %d1, %d3;
    ld.global.u32 %r5, [%d4];
    st.shared.u32 [%r4], %r5;
    fence.proxy.async.shared::cta;
    bar.sync 0;
"""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("target_space", ["shared::cluster", "shared::cta"])
@pytest.mark.parametrize("size_bytes", [16, 24, 512])
def test_a_bulk_load_moves_what_bulk_load_says(size_bytes, target_space, seed):
    source = numbered(512)
    out = np.zeros(512, np.uint8)
    moved = ts.bulk_load(source, 0, size_bytes)
    loaded = kernel(
        f"""{BARRIER}
        @!%p1 bra WAIT;
        mbarrier.arrive.expect_tx.shared.b64 _, [%r3], {len(moved)};
        cp.async.bulk.{target_space}.global.mbarrier::complete_tx::bytes [%r2], [%d1], {size_bytes}, [%r3];
        {WAIT}{SHOW_WORDS}""",
        SOURCE_AND_OUT,
    )
    finished(loaded, 128, [source, out], seed=seed)
    np.testing.assert_array_equal(out[: len(moved)], moved)
    assert not out[len(moved) :].any()


def test_a_barrier_that_expects_the_bytes_that_were_cut_off_hangs():
    cut = kernel(
        f"""{BARRIER}
        mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 24;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d1], 24, [%r3];
        {WAIT} ret;""",
        SOURCE_AND_OUT,
    )
    assert cut.run(1, 1, [numbered(64), np.zeros(64, np.uint8)]).outcome == "hang"


STORE = """
    @!%p1 ret;
    {copy}
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    ret;
"""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("size_bytes", [24, 512])
def test_a_bulk_store_moves_what_bulk_store_says(size_bytes, seed):
    source = numbered(512)
    out = np.full(600, 7, np.uint8)
    copy = f"mov.u32 %r6, {size_bytes}; cp.async.bulk.global.shared::cta.bulk_group [%d2+16], [%r2], %r6;"
    finished(kernel(BARRIER + FILL_WORDS + STORE.format(copy=copy), SOURCE_AND_OUT), 128, [source, out], seed=seed)
    np.testing.assert_array_equal(out, ts.bulk_store(source, np.full(600, 7, np.uint8), 16, size_bytes))


@pytest.mark.parametrize(
    ("form", "data_type"),
    [
        ("add.u32", "u32"),
        ("add.u64", "u64"),
        ("add.f32", "f32"),
        ("add.f64", "f64"),
        ("add.noftz.f16", "f16"),
        ("add.noftz.bf16", "bf16"),
        ("min.s32", "s32"),
        ("max.s64", "s64"),
        ("min.f16", "f16"),
        ("max.bf16", "bf16"),
        ("inc.u32", "u32"),
        ("dec.u32", "u32"),
        ("and.b32", "u32"),
        ("or.b64", "u64"),
        ("xor.b32", "u32"),
    ],
)
def test_a_bulk_reduction_combines_as_one_through_a_map(form, data_type):
    generator = np.random.default_rng(0)
    source = generator.integers(0, 256, 512, np.uint8)
    before = generator.integers(0, 256, 512, np.uint8)
    out = before.copy()
    copy = f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{form} [%d2], [%r2], 512;"
    finished(kernel(BARRIER + FILL_WORDS + STORE.format(copy=copy), SOURCE_AND_OUT), 128, [source, out])
    elements = 512 * 8 // ts.DataType.named(data_type).bits
    a = ts.TensorMap(data_type, (elements,), (), (min(elements, 256),))
    wanted = before.copy()
    for first in range(0, elements, a.box[0]):
        ts.store(a, source[first * 512 // elements :], wanted, (first,), reduce=form.partition(".")[0])
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("reduction", ["", ".add.u32"])
def test_a_bulk_copy_goes_from_one_block_to_another(reduction, seed):
    """Block 0 sends its buffer to block 1, whose barrier counts the bytes; or adds it to block 1's, which is the same."""
    source = numbered(128, np.uint32)
    out = np.zeros(128, np.uint32)
    family = "cp.reduce" if reduction else "cp"
    sent = kernel(
        f"""{BARRIER}{FILL_WORDS}
        @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 512;
        barrier.cluster.arrive.aligned;
        barrier.cluster.wait.aligned;
        mov.u32 %r6, %cluster_ctarank;
        setp.eq.u32 %p3, %r6, 1;
        @%p3 bra WAIT;
        mapa.shared::cluster.u32 %r7, %r2, 1;
        mapa.shared::cluster.u32 %r8, %r3, 1;
        @%p1 {family}.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes{reduction} [%r7], [%r2], 512, [%r8];
        bra.uni END;
        {WAIT}
        add.s64 %d4, %d2, %d3;
        ld.shared.u32 %r5, [%r4];
        st.global.u32 [%d4], %r5;
    END:
        barrier.cluster.arrive.aligned;
        barrier.cluster.wait.aligned;
        ret;""",
        SOURCE_AND_OUT,
    )
    finished(sent, 128, [source, out], blocks=2, cluster=2, seed=seed)
    np.testing.assert_array_equal(out, source * 2 if reduction else source)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("cta_mask", [0b0011, 0b1010, 0b1111])
def test_a_bulk_multicast_reaches_the_blocks_of_its_mask(cta_mask, seed):
    source = numbered(512)
    out = np.zeros((4, 512), np.uint8)
    cast = kernel(
        f"""{BARRIER}
        mov.u32 %r6, %cluster_ctarank;
        mul.wide.u32 %d5, %r6, 512;
        add.s64 %d2, %d2, %d5;
        mov.u32 %r7, 1;
        shl.b32 %r7, %r7, %r6;
        and.b32 %r7, %r7, {cta_mask};
        setp.eq.u32 %p3, %r7, 0;
        @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 512;
        barrier.cluster.arrive.aligned;
        barrier.cluster.wait.aligned;
        setp.eq.and.u32 %p4, %r6, 0, %p1;
        mov.b16 %h1, {cta_mask};
        @%p4 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r2], [%d1], 512, [%r3], %h1;
        @%p3 bra END;
        {WAIT}
        add.s64 %d4, %d2, %d3;
        ld.shared.u32 %r5, [%r4];
        st.global.u32 [%d4], %r5;
    END:
        barrier.cluster.arrive.aligned;
        barrier.cluster.wait.aligned;
        ret;""",
        SOURCE_AND_OUT,
    )
    finished(cast, 128, [source, out], blocks=4, cluster=4, seed=seed)
    for rank in range(4):
        np.testing.assert_array_equal(out[rank], source if cta_mask >> rank & 1 else np.zeros(512, np.uint8))


@pytest.mark.parametrize(("read", "wanted"), [("", 1), (".read", 1), (None, 2)])
def test_the_source_of_a_store_is_free_after_the_wait_for_its_reading(read, wanted):
    """Ones are stored, then overwritten by twos; without a wait the store reads as late as it may: twos."""
    out = np.zeros(16, np.uint8)
    wait = "" if read is None else f"cp.async.bulk.wait_group{read} 0;"
    overwritten = kernel(
        f"""{BARRIER}
        mov.u32 %r6, 0x01010101;
        st.shared.v4.u32 [%r2], {{%r6, %r6, %r6, %r6}};
        cp.async.bulk.global.shared::cta.bulk_group [%d2], [%r2], 16;
        cp.async.bulk.commit_group;
        {wait}
        mov.u32 %r6, 0x02020202;
        st.shared.v4.u32 [%r2], {{%r6, %r6, %r6, %r6}};
        cp.async.bulk.wait_group 0;
        ret;""",
        SOURCE_AND_OUT,
    )
    finished(overwritten, 1, [numbered(16), out])
    assert set(out.tolist()) == {wanted}


@pytest.mark.parametrize(
    ("copy", "code"),
    [
        ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2+8], [%d1], 16, [%r3];", 716),
        ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d1+8], 16, [%r3];", 716),
        ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d1], 16, [%r3+4];", 716),
        ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d1], 4096, [%r3];", 700),
        ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d1+4096], 16, [%r3];", 700),
        ("cp.async.bulk.global.shared::cta.bulk_group [%d2+8], [%r2], 16;", 716),
        ("cp.async.bulk.global.shared::cta.bulk_group [%d2+4096], [%r2], 16;", 700),
    ],
)
def test_what_the_card_answers_to_a_wrong_bulk_copy(copy, code):
    made = kernel(BARRIER + copy + "ret;", SOURCE_AND_OUT)
    assert fault_code(made, 1, [numbered(4096), np.zeros(512, np.uint8)]) == code


def test_a_store_to_a_read_only_array_is_fault_700():
    out = np.zeros(512, np.uint8)
    out.flags.writeable = False
    made = kernel(f"{BARRIER} cp.async.bulk.global.shared::cta.bulk_group [%d2], [%r2], 16; ret;", SOURCE_AND_OUT)
    assert fault_code(made, 1, [numbered(512), out]) == 700


def test_the_wait_for_the_reading_of_a_store_is_no_wait_for_its_writing():
    out = np.zeros(8, np.uint32)
    read_only = kernel(
        f"""{BARRIER}
        mov.u32 %r6, 5;
        st.shared.v4.u32 [%r2], {{%r6, %r6, %r6, %r6}};
        cp.async.bulk.global.shared::cta.bulk_group [%d2], [%r2], 16;
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group.read 0;
        ld.global.u32 %r7, [%d2];
        cp.async.bulk.wait_group 0;
        ld.global.u32 %r8, [%d2];
        st.global.v2.u32 [%d2+16], {{%r7, %r8}};
        ret;""",
        SOURCE_AND_OUT,
    )
    finished(read_only, 1, [numbered(16), out])
    assert out.tolist() == [5, 5, 5, 5, 0, 5, 0, 0]


@pytest.mark.slow
def test_a_block_that_spins_on_memory_sees_a_bulk_store_of_another():
    """Block 0 waits for a flag that block 1 stores."""
    out = np.zeros(8, np.uint32)
    flag = kernel(
        f"""{BARRIER}
        mov.u32 %r6, %ctaid.x;
        setp.eq.u32 %p3, %r6, 1;
        @%p3 bra SEND;
    SPIN:
        ld.acquire.gpu.global.u32 %r7, [%d2];
        setp.eq.u32 %p2, %r7, 0;
        @%p2 bra SPIN;
        st.global.u32 [%d2+16], %r7;
        ret;
    SEND:
        mov.u32 %r6, 5;
        st.shared.v4.u32 [%r2], {{%r6, %r6, %r6, %r6}};
        cp.async.bulk.global.shared::cta.bulk_group [%d2], [%r2], 16;
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0;
        ret;""",
        SOURCE_AND_OUT,
    )
    finished(flag, 1, [numbered(16), out], blocks=2)
    assert out.tolist() == [5, 5, 5, 5, 5, 0, 0, 0]


def test_loads_without_end_that_nobody_waits_for_end_with_the_budget():
    """Only so many are under way at once: the oldest is done when another one comes."""
    endless = kernel(
        f"""{BARRIER}
    AGAIN:
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d1], 16, [%r3];
        mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r3], 16;
        bra AGAIN;""",
        SOURCE_AND_OUT,
    )
    assert endless.run(1, 1, [numbered(64), numbered(64)], max_steps=4 * MOST_WORKS).outcome == "stopped"


def test_only_so_many_pieces_of_work_are_under_way_and_the_oldest_goes_first():
    done = []
    pending = Pending(1, [])
    for number in range(MOST_WORKS + 3):
        pending.add(Work("load", number, np.array([0]), lambda _, number=number: done.append(number)))
    assert done == [0, 1, 2]
    assert len(pending.works) == MOST_WORKS


def test_copies_of_many_threads_and_bytes_count_for_many_steps():
    """32 threads copy 64 KiB each: 31 steps for the others, 16 for each thread's bytes, are more than 400."""
    body = """
        .shared .align 8 .b64 barrier;
        ld.param.u64 %d1, [source];
        mov.u32 %r2, dynamic;
        mov.u32 %r3, barrier;
        COPY
        ret;"""
    copy = "cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r2], SIZE;"
    outcomes = []
    for size_bytes in (16, 1 << 16):
        made = kernel(body.replace("COPY", copy.replace("SIZE", str(size_bytes))), ".param .u64 source", before=DYNAMIC)
        run = made.run(1, 32, [np.zeros(1 << 16, np.uint8)], smem_bytes=1 << 16, max_steps=400)
        outcomes.append(run.outcome)
    assert outcomes == ["finished", "stopped"]
