"""Findings say which element of a tile or an array two accesses meet at, where a map or an array says which."""

import numpy as np
import pytest

import tilescope as ts

HEAD = ".version 8.0 .target sm_90 .address_size 64\n"
SWIZZLED = """.version 8.0 .target sm_90 .address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out) {
    .shared .align 1024 .b8 s[1024]; .shared .align 8 .b64 m;
    .reg .b32 %r<8>; .reg .b64 %d<3>; .reg .pred %p<3>;
    mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; mov.b64 %d1, map;
    mov.u32 %r2, s;
    @%p1 bra READY;
    mbarrier.init.shared.b64 [m], 1;
    mbarrier.arrive.expect_tx.shared.b64 _, [m], 1024;
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%d1, {64, 16}], [m];
    READY: bar.sync 0;
    BEFORE
    AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [m], 0;
    @!%p2 bra AGAIN;
    BEHIND
    ret;
}"""
READ = "ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [s+0xa0];"  # line 1 of 128 bytes: chunk 2, which holds chunk 3 of row 1


def run_of(before="", behind=""):
    """The tile of columns 64 to 127 and rows 16 to 23 of a tensor of 128 x 32 f16, and what threads do with it."""
    memory = ts.Memory()
    tile = memory.map(np.zeros((32, 128), np.float16), (64, 8), swizzle="128B")
    text = SWIZZLED.replace("BEFORE", before).replace("BEHIND", behind)
    return ts.Kernel(text).run(1, 32, [tile, np.zeros(64, np.uint32)], memory=memory, advice="none")


def finding_of(run, rule):
    (found,) = [finding for finding in run.findings if finding.rule == rule]
    return found


def test_a_tile_that_is_read_too_early_is_named_by_row_and_columns(wording):
    finding = finding_of(run_of(before=READ), "run-copy-wait")
    assert "0x4a0 (s+160: row 1, columns 24 to 31 " in finding.found
    wording("a tile that is read too early", finding)
    assert finding.values["element"] == {
        "coords": (88, 17),
        "box": (64, 16),
        "holds": "element",
        "map_number": 0,
        "tensor": "args[0]",
    }


def test_the_element_survives_json():
    finding = finding_of(run_of(before=READ), "run-copy-wait")
    assert ts.Violation.from_dict(finding.to_dict()) == finding
    assert finding.to_dict()["values"]["element"]["coords"] == [88, 17]


def test_what_threads_wrote_over_a_tile_is_no_element_of_it():
    behind = "bar.sync 0; setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.u32 [s+0xa0], 1; ld.shared.u32 %r4, [s+0xa0];"
    finding = finding_of(run_of(behind=behind), "run-race")
    assert "shared address 0x4a0 (s+160), which" in finding.found
    assert finding.values["element"] is None


def test_who_overwrites_a_tile_while_others_read_it_is_told_the_element():
    behind = "ld.shared.u32 %r4, [s+0xa0]; setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.u32 [s+0xa0], 1;"
    finding = finding_of(run_of(behind=behind), "run-race")
    assert (finding.values["element"]["coords"], finding.values["element"]["tensor"]) == ((88, 17), "args[0]")
    assert "columns 24 to 25" in finding.found


def test_an_array_in_global_memory_is_named_by_the_index_of_its_element(wording):
    text = f"""{HEAD}.visible .entry k(.param .u64 n, .param .u64 out) {{
        .reg .b32 %r<4>; .reg .b64 %d<3>;
        mov.u32 %r1, %tid.x; ld.param.u64 %d1, [out];
        st.global.u32 [%d1+92], %r1;
        ret;
    }}"""
    out = np.zeros((4, 8), np.uint32)
    run = ts.Kernel(text).run(1, 2, [7, out], advice="none")
    finding = finding_of(run, "run-race")
    assert "[2, 7] of args[1] (byte 92)" in finding.found
    wording("threads that write different values", finding)
    assert finding.values["element"] == {"index": (2, 7), "elements": 1, "array": "args[1]"}


@pytest.mark.parametrize(("size_bytes", "told"), [(4, "element 7"), (16, "elements 4 to 7")])
def test_a_bulk_copy_names_the_element_that_it_brings(size_bytes, told):
    load = "ld.shared.u32 %r4, [s+28];" if size_bytes == 4 else "ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [s+16];"
    text = f"""{HEAD}.visible .entry k(.param .u64 a) {{
        .shared .align 128 .b8 s[128]; .shared .align 8 .b64 m;
        .reg .b32 %r<8>; .reg .b64 %d<3>; .reg .pred %p<3>;
        ld.param.u64 %d1, [a];
        mbarrier.init.shared.b64 [m], 1;
        mbarrier.arrive.expect_tx.shared.b64 _, [m], 128;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%d1], 128, [m];
        {load}
        W: mbarrier.try_wait.parity.shared.b64 %p2, [m], 0; @!%p2 bra W;
        ret;
    }}"""
    run = ts.Kernel(text).run(1, 1, [np.zeros(32, np.uint32)], advice="none")
    assert f"{told} of args[0])" in finding_of(run, "run-copy-wait").found
