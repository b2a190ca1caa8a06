"""Orders that the detector knows in a run: of words that are invalidated, of what a warp has seen, of equal stores."""

import numpy as np
import pytest

import tilescope as ts

KERNEL = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 data, .param .u64 flag)
{
    .shared .align 16 .b8 s[256];
    .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .pred %p<8>;
    mov.u32 %r1, %tid.x; mov.u32 %r2, s;
    ld.param.u64 %d1, [data]; ld.param.u64 %d2, [flag];
    setp.eq.u32 %p0, %r1, 0; setp.eq.u32 %p1, %r1, 1; setp.eq.u32 %p2, %r1, 32; setp.lt.u32 %p3, %r1, 32;
    BODY
    ret;
}
"""


def errors_of(body, threads=64):
    run = ts.Kernel(KERNEL.replace("BODY", body)).run(1, threads, [np.zeros(64, np.uint32), np.zeros(64, np.uint32)])
    assert run.outcome == "finished"
    return {finding.rule for finding in run.findings if finding.severity == "error"}


@pytest.mark.parametrize(("barrier", "expected"), [("bar.sync 0;", set()), ("", {"run-race"})])
def test_an_mbarrier_that_is_invalidated_is_written(barrier, expected):
    invalidated = "@%p0 mbarrier.init.shared.b64 [%r2], 1; @%p0 mbarrier.inval.shared.b64 [%r2];"
    assert (
        errors_of(f"{invalidated} {barrier} @%p2 ld.shared.b64 %d3, [%r2]; @%p2 st.global.b64 [%d1], %d3;") == expected
    )


HANDED_OVER = """
    @!%p2 bra reads;
    st.global.u32 [%d1], 5;
    fence.acq_rel.gpu;
    st.relaxed.gpu.global.u32 [%d2], 1;
    bra done;
reads:
    @!%p3 bra done;
    @!%p0 bra seen;
again:
    ld.relaxed.gpu.global.u32 %r3, [%d2];
    setp.ne.u32 %p4, %r3, 1;
    @%p4 bra again;
seen:
    BARRIER
    FENCE
    @%p1 ld.global.u32 %r4, [%d1];
    @%p1 st.global.u32 [%d1+128], %r4;
done:
"""


@pytest.mark.parametrize(
    ("barrier", "fence", "expected"),
    [
        ("bar.warp.sync -1;", "fence.acq_rel.gpu;", set()),
        ("bar.warp.sync -1;", "", {"run-race"}),
        ("", "fence.acq_rel.gpu;", {"run-race"}),
    ],
)
def test_what_one_lane_has_seen_a_warp_barrier_hands_to_the_fences_of_the_others(barrier, fence, expected):
    """Lane 0 reads the flag, and lane 1 the data."""
    assert errors_of(HANDED_OVER.replace("BARRIER", barrier).replace("FENCE", fence)) == expected


STORED = """
    shl.b32 %r3, %r1, 2; add.u32 %r3, %r3, %r2;
    st.shared.u32 [%r3], %r1;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    setp.ge.u32 %p5, %r1, ISSUERS;
    @%p5 bra done;
    SOURCE
    cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r2], 64;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
done:
"""


@pytest.mark.parametrize("issuers", [1, 2, 3, 32])
def test_lanes_may_store_the_same_bytes_to_the_same_place(issuers):
    assert errors_of(STORED.replace("ISSUERS", str(issuers)).replace("SOURCE", "")) == set()


@pytest.mark.parametrize("issuers", [2, 3])
def test_lanes_that_store_other_bytes_to_the_same_place_race(issuers):
    source = "shl.b32 %r4, %r1, 4; add.u32 %r2, %r2, %r4;"
    assert errors_of(STORED.replace("ISSUERS", str(issuers)).replace("SOURCE", source)) == {"run-race"}
