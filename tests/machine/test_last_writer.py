"""Who wrote a byte of global memory last: stores, atomics, bulk and tensor stores, in blocks and clusters."""

import numpy as np
import pytest

import tilescope as ts

HEAD = ".version 8.0 .target sm_90 .address_size 64\n"
# Line 8 stores in every thread of every block, line 11 once more in thread 3; line 12 changes word 0.
TWO_STORES = ts.Kernel(f"""{HEAD}.visible .entry k(.param .u64 a) {{
    .reg .b32 %r<6>; .reg .b64 %d<4>; .reg .pred %p1;
    .reg .b32 %unused;
    ld.param.u64 %d1, [a];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;
    mad.lo.u32 %r4, %r2, %r3, %r1; mul.wide.u32 %d2, %r4, 4; add.s64 %d3, %d1, %d2;
    st.global.u32 [%d3], %r1;
    setp.ne.u32 %p1, %r1, 3;
    @%p1 bra DONE;
    st.global.u32 [%d3], 99;
    atom.global.add.u32 %r5, [%d1+512], 1;
    DONE: ret;
}}""")
BULK_STORE = ts.Kernel(f"""{HEAD}.visible .entry k(.param .u64 a) {{
    .shared .align 16 .b8 s[64];
    .reg .b32 %r<6>; .reg .b64 %d<4>; .reg .pred %p1;
    ld.param.u64 %d1, [a]; mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 5;
    @%p1 bra DONE;
    mov.u32 %r2, s; st.shared.u32 [%r2], 7; st.shared.u32 [%r2+4], 7; st.shared.u32 [%r2+8], 7; st.shared.u32 [%r2+12], 7;
    fence.proxy.async;
    cp.async.bulk.global.shared::cta.bulk_group [%d1+16], [s], 16;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
    DONE: ret;
}}""")


def written(**options):
    a = np.zeros((5, 32), np.uint32)
    return TWO_STORES.run(4, 32, [a], **options), a


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_the_last_store_of_every_element_with_its_thread_and_block(seed):
    run, _ = written(seed=seed)
    for block in range(4):
        for thread in range(32):
            found = run.last_writer((0, (block, thread)))
            line = 11 if thread == 3 else 8
            assert (found.ptx_line, found.block, found.thread) == (line, (block, 0, 0), thread)


def test_an_atomic_is_a_writer():
    run, _ = written()
    found = run.last_writer((0, 128))
    assert (found.ptx_text.split()[0], found.thread) == ("atom.global.add.u32", 3)


def test_an_address_and_an_index_name_the_same():
    run, _ = written()
    address = run.arrays[0].address
    assert run.last_writer(address + 4 * 35) == run.last_writer((0, 35)) == run.last_writer((0, (1, 3)))
    assert run.last_writer(address + 4 * 35 + 3) == run.last_writer((0, 35))  # its last byte


def test_what_nobody_wrote_has_no_writer():
    run, _ = written()
    assert run.last_writer((0, 129)) is None
    assert run.last_writer(0x1234) is None


def test_a_bulk_store_is_the_writer_of_its_bytes():
    run = BULK_STORE.run(2, 32, [np.zeros(16, np.uint32)], blocks=[(0, 0, 0)])
    found = run.last_writer((0, 7))
    assert (found.ptx_line, found.block, found.thread) == (9, (0, 0, 0), 5)
    assert run.last_writer((0, 3)) is None
    assert run.last_writer((0, 8)) is None


def test_the_thread_of_a_block_in_a_cluster():
    text = TWO_STORES.ptx.replace("k(.param .u64 a)", "k(.param .u64 a) .reqnctapercluster 2, 1, 1")
    run = ts.Kernel(text).run(4, 32, [np.zeros((5, 32), np.uint32)])
    found = run.last_writer((0, (3, 7)))
    assert (found.block, found.thread) == ((3, 0, 0), 7)


def test_without_findings_nothing_is_known():
    run, _ = written(findings=False)
    assert run.last_writer((0, 0)) is None


def test_plain_data_leaves_the_writers_out():
    run, _ = written()
    assert not [name for name in run.to_dict() if "writer" in name]
    assert type(run).from_dict(run.to_dict()).last_writer(run.arrays[0].address) is None


@pytest.mark.parametrize(
    "place", [(1, 0), (-1, 0), (0, 160), (0, (5, 0)), (0, (0, -1)), (0, (1,)), (0, "x"), "a", (0, 0, 0)]
)
def test_what_names_no_element_is_refused(place):
    run, _ = written()
    with pytest.raises(ts.RuleError):
        run.last_writer(place)
