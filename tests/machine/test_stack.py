"""alloca, stacksave and stackrestore: places, contents and limits of a thread's stack."""

import numpy as np
import pytest
from ptx_texts import kernel, per_thread

import tilescope as ts

TWO_PLACES = """
    .reg .b64 saved, size, p, q, r;
    cvt.u64.u32 size, %r60; add.s64 size, size, 8;
    stacksave.u64 saved;
    alloca.u64 p, size;
    alloca.u64 q, 32, 16;
    st.local.u32 [p], %r60; st.local.u32 [q], 77;
    ld.local.u32 %r2, [p];
    stackrestore.u64 saved;
    alloca.u64 r, size;
"""


def results(body, value):
    out = np.zeros(32, np.uint32)
    run = per_thread(TWO_PLACES + body, value).run(1, 32, [out])
    assert run.outcome == "finished", run.findings
    return out.tolist()


def test_every_thread_keeps_its_own_bytes():
    assert results("", "%r2") == list(range(32))


def test_a_restored_pointer_gives_the_same_place_again():
    assert results("sub.s64 p, p, r; cvt.u32.u64 %r1, p;", "%r1") == [0] * 32


def test_places_do_not_overlap_and_are_aligned():
    below = results("sub.s64 p, p, q; cvt.u32.u64 %r1, p;", "%r1")
    assert min(below) >= 32
    assert results("and.b64 q, q, 15; and.b64 p, p, 7; or.b64 q, q, p; cvt.u32.u64 %r1, q;", "%r1") == [0] * 32


def test_the_address_is_one_of_local_memory():
    body = "cvta.local.u64 q, p; isspacep.local %p1, q; selp.u32 %r1, 1, 0, %p1;"
    assert results(body, "%r1") == [1] * 32


def test_a_full_stack_is_a_fault_that_names_its_size():
    run = kernel(".reg .b64 p; L: alloca.u64 p, 1000; bra L;", "").run(1, 32)
    (finding,) = run.findings
    assert finding.rule == "run-out-of-bounds"
    assert "alloca of 1000 bytes" in finding.found
    assert "cudaLimitStackSize" in finding.fix


@pytest.mark.parametrize(
    "text", ["alloca.u64 p, 8, 24;", "alloca.u64 p, 8, p;", "alloca.b64 p, 8;", "stacksave.u64 p, p;"]
)
def test_other_forms_are_refused(text):
    with pytest.raises(ts.RuleError, match="ptx-unsupported"):
        kernel(f".reg .b64 p; {text}", "")
