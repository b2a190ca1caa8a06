"""Loads of flags: one that nothing orders behind the last write may come before it, and learns only what lay there then."""

import numpy as np
import pytest
from ptx_texts import finished, kernel

PASSED_ON = """
    ld.param.u64 %d1, [data];
    ld.param.u64 %d2, [flag];
    ld.param.u64 %d3, [out];
    mov.u32 %r1, %ctaid.x;
    setp.eq.u32 %p1, %r1, 0;
    @!%p1 bra READ;
    st.global.u32 [%d1], 5;
    st.release.gpu.global.u32 [%d2], 1;
    st.global.u32 [%d1+4], 6;
    st.release.gpu.global.u32 [%d2], 2;
    ret;
READ:
    ld.acquire.gpu.global.u32 %r2, [%d2];
    setp.lt.u32 %p2, %r2, LEAST;
    @%p2 bra READ;
    ld.global.u32 %r3, [%d1+OFFSET];
    st.global.u32 [%d3], %r3;
"""
PARAMETERS = ".param .u64 data, .param .u64 flag, .param .u64 out"


def passed_on(least, offset, seed):
    out = np.zeros(1, np.uint32)
    text = PASSED_ON.replace("LEAST", str(least)).replace("OFFSET", str(offset))
    run = kernel(text, PARAMETERS).run(2, 1, [np.zeros(2, np.uint32), np.zeros(1, np.uint32), out], seed=seed)
    assert run.outcome == "finished", run.findings
    return [finding.rule for finding in run.findings if finding.severity == "error"], int(out[0])


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
@pytest.mark.parametrize(("least", "offset", "read"), [(1, 0, 5), (2, 0, 5), (2, 4, 6)])
def test_what_was_released_with_the_value_that_is_seen_is_known(least, offset, read, seed):
    assert passed_on(least, offset, seed) == ([], read)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_what_was_released_later_is_not_known(seed):
    rules, _ = passed_on(1, 4, seed)
    assert rules == ["run-race"]


def test_a_thread_sees_what_it_added_itself():
    out = np.zeros(32, np.uint32)
    finished(
        kernel(
            """
            .shared .align 4 .b32 counter;
            mov.u32 %r1, %tid.x;
            setp.eq.u32 %p1, %r1, 0;
            @%p1 st.shared.u32 [counter], 0;
            bar.sync 0;
            atom.shared.add.u32 %r2, [counter], 1;
            ld.volatile.shared.u32 %r3, [counter];
            sub.u32 %r3, %r3, %r2;
            ld.param.u64 %d1, [out];
            mad.wide.u32 %d1, %r1, 4, %d1;
            st.global.u32 [%d1], %r3;
            """
        ),
        32,
        [out],
    )
    assert (out >= 1).all()


def test_the_first_load_of_a_flag_sees_the_value_before_an_unordered_write():
    """Block 0 has long ended when block 1 looks: it could have come earlier all the same."""
    seen = np.zeros(2, np.uint32)
    text = """
        ld.param.u64 %d1, [flag];
        ld.param.u64 %d2, [out];
        mov.u32 %r1, %ctaid.x;
        setp.eq.u32 %p1, %r1, 0;
        @%p1 st.relaxed.gpu.global.u32 [%d1], 7;
        @%p1 ret;
        ld.relaxed.gpu.global.u32 %r2, [%d1];
        ld.relaxed.gpu.global.u32 %r3, [%d1];
        st.global.u32 [%d2], %r2;
        st.global.u32 [%d2+4], %r3;
    """
    run = kernel(text, ".param .u64 flag, .param .u64 out").run(2, 1, [np.full(1, 3, np.uint32), seen])
    assert run.findings == ()
    assert seen.tolist() == [3, 7]
