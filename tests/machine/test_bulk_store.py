"""st.bulk: the bytes that it clears, the order that it needs, and what is refused."""

import numpy as np
import pytest

import tilescope as ts

TEXT = """
.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 bytes)
{
    .shared .align 16 .b8 s[256];
    .reg .b32 %r<8>; .reg .b64 %d<6>; .reg .pred %p;
    mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r3, %r3, %r2;
    st.shared.u32 [%r3], 0xffffffff;
    bar.sync 0;
    setp.ne.u32 %p, %r1, 0;
    ld.param.u64 %d2, [bytes];
    mov.u32 %r4, s;
    add.u32 %r4, %r4, 16;
    cvt.u64.u32 %d3, %r4;
    cvta.shared.u64 %d3, %d3;
    STORE
    BARRIER
    ld.shared.u32 %r5, [%r3];
    ld.param.u64 %d1, [out]; mul.wide.u32 %d4, %r1, 4; add.s64 %d1, %d1, %d4;
    st.global.u32 [%d1], %r5;
    ret;
}
"""
FORMS = ["st.bulk.weak.shared::cta [%r4], %d2, 0;", "st.bulk.shared::cta [%r4], %d2, 0;", "st.bulk [%d3], %d2, 0;"]


def run_with(store, size_bytes, barrier="bar.sync 0;"):
    out = np.zeros(64, np.uint32)
    run = ts.Kernel(TEXT.replace("STORE", f"@!%p {store}").replace("BARRIER", barrier)).run(1, 64, [out, size_bytes])
    return run, out


@pytest.mark.parametrize("store", FORMS)
@pytest.mark.parametrize("size_bytes", [0, 8, 64, 200])
def test_it_writes_zeros_and_nothing_else(store, size_bytes):
    run, out = run_with(store, size_bytes)
    assert run.outcome == "finished"
    assert [finding.rule for finding in run.findings if finding.severity != "note"] == []
    expected = np.full(256, 0xFF, np.uint8)
    expected[16 : 16 + size_bytes] = 0
    assert out.view(np.uint8).tolist() == expected.tolist()


def test_without_a_barrier_it_races_with_other_threads():
    run, _ = run_with(FORMS[0], 64, barrier="")
    assert "run-race" in [finding.rule for finding in run.findings if finding.severity == "error"]


def test_it_ends_at_the_end_of_shared_memory():
    run, _ = run_with(FORMS[0], 248)
    assert (run.outcome, run.findings[0].rule) == ("fault", "run-out-of-bounds")


def test_a_size_that_is_no_multiple_of_8_is_a_fault():
    run, _ = run_with(FORMS[0], 12)
    assert (run.outcome, run.findings[0].rule) == ("fault", "run-illegal-instruction")


@pytest.mark.parametrize("store", ["st.bulk.weak.shared::cta [%r4], %d2, 1;", "st.bulk.global [%d3], %d2, 0;"])
def test_other_forms_are_refused(store):
    with pytest.raises(ts.RuleError, match="ptx-unsupported"):
        run_with(store, 8)


def test_hopper_has_no_bulk_store():
    with pytest.raises(ts.RuleError, match=r"st\.bulk exists on"):
        ts.Kernel(TEXT.replace("sm_100a", "sm_90a").replace("STORE", FORMS[0]).replace("BARRIER", ""))
