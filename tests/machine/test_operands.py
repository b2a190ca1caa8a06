"""Operands that an instruction does not take are refused, as ptxas refuses them, and a named variable knows its own space."""

import subprocess
from pathlib import Path

import pytest
from ptx_texts import HEADER, REGISTERS, finished, kernel

import tilescope as ts

SHARED = ".shared .align 128 .b8 s[256]; .shared .align 8 .b64 m;"
REFUSED = [
    ("bar.sync 16;", "0 to 15, not 16"),
    ("bar.sync 0, 33;", "multiple of 32, not 33"),
    ("bar.arrive 1;", "bar.arrive needs"),
    ("bar.red.popc.u32 %r2, 0;", "bar.red takes a result"),
    ("mov.b64 {%r1, %r2, %r3}, %d1;", "not 3 of 64 bits"),
    ("mov.b32 %r1, {%h1, %h2, %h3};", "not 3 of 32 bits"),
    ("mov.b64 {%h1, %h2}, %d1;", "%h1 has 16 bits"),
    ("ld.shared.b128 %r1, [s];", "element 128"),
    ("ld.shared.u64 %r1, [s];", "%r1 has 32 bits"),
    ("st.shared.v2.u64 [s], {%d1, %r2};", "%r2 has 32 bits"),
    ("ld.shared.v2.u32 {%r1}, [s];", "2 registers expected, not 1"),
    ("atom.shared.add.u32 %r2, [s];", "1 value, not 0"),
    ("atom.shared.cas.b32 %r2, [s], %r1;", "2 values, not 1"),
    ("red.shared.add.u32 %r2, [%d1+8], %r1;", "not [%d1+8]"),
    ("ld.shared.u32 %r1, {%r2, _};", "not {%r2, _}"),
    ("add.u32 %r1, %r2;", "add.u32 takes 2 source operands, not 1"),
    ("call nothing;", "nothing is not a function"),
    ("min.f32 %r1, %r2;", "2 or 3 source operands"),
    ("setp.eq.u32 %r1, %r2, %r3;", "%r1 is a .b32"),
    ("selp.b32 %r1, %r2, %r3, %r4;", "%r4 is a .b32"),
    ("add.u32 %r1, %r2, %p1;", "where a .u32"),
    ("div.s64 %d1, !%p1, %d3;", "where a .s64"),
    ("mov.b32 {%h1, %h2}, %p1;", "where a .b32"),
    ("mov.b64 {%r1, %r2}, %r3;", "32 bits, where 64"),
    (".reg .b128 %q; sub.u32 %r1, %q, %r3;", "%q has 128 bits"),
    (".reg .b128 %q; mov.b128 %d1, %q;", "64 bits, where 128"),
]


@pytest.mark.parametrize(("instruction", "reason"), REFUSED)
def test_operands_that_an_instruction_does_not_take_are_refused(instruction, reason, wording):
    with pytest.raises(ts.RuleError) as refused:
        kernel(f"{SHARED} {instruction} ret;", "")
    (violation,) = refused.value.violations
    assert violation.argument.startswith("line 12")
    assert reason in str(violation)
    wording(f"operands of {instruction}", violation)


def test_a_constant_of_128_bits_is_refused():
    """ptxas takes it; no document says what its upper half is."""
    with pytest.raises(ts.RuleError) as refused:
        kernel(f"{SHARED} st.shared.b128 [s], 1; ret;", "")
    assert refused.value.violations[0].rule == "ptx-unsupported"
    assert "128 bits" in refused.value.violations[0].limit


@pytest.mark.parametrize("instruction", [instruction for instruction, _ in REFUSED])
def test_ptxas_refuses_them_too(instruction, require, tmp_path):
    ptxas = Path(require("nvcc")).with_name("ptxas")
    text = f"{HEADER}.visible .entry k()\n{{{REGISTERS}{SHARED} {instruction} ret;\n}}\n"
    (tmp_path / "k.ptx").write_text(text)
    command = [str(ptxas), "-arch=sm_90a", str(tmp_path / "k.ptx"), "-o", str(tmp_path / "k.cubin")]
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


ROUND = """
    mov.u32 %r1, %tid.x;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init{shared}.b64 [m], 32;
    bar.sync 0;
    mbarrier.arrive{shared}.b64 %d1, [m];
WAIT:
    mbarrier.try_wait.parity{shared}.b64 %p2, [m], 0;
    @!%p2 bra WAIT;
    ret;
"""


@pytest.mark.parametrize("shared", [".shared", ""])
def test_a_named_mbarrier_is_in_shared_memory_without_its_state_space_too(shared):
    run = finished(kernel(SHARED + ROUND.format(shared=shared), ""), 32, [])
    assert run.findings == ()
    assert [(phase.arrivals, phase.address) for phase in run.barriers] == [(32, 0x500)]


def test_an_mbarrier_at_a_generic_address_of_global_memory_is_named_by_that_address(wording):
    made = kernel("ld.param.u64 %d1, [out]; mbarrier.init.b64 [%d1], 1; ret;")
    (finding,) = made.run(1, 1, [0x7F0000000000]).findings
    assert (finding.rule, finding.values["address"]) == ("run-illegal-instruction", 0x7F0000000000)
    wording("an mbarrier in global memory", finding)


def test_an_index_beyond_its_table_is_told_of_the_thread_that_has_it(wording):
    body = "mov.u32 %r1, %tid.x; brx.idx %r1, TABLE; TABLE: .branchtargets END; END: ret;"
    (finding,) = kernel(body, "").run(1, 32, []).findings
    assert finding.values["who"] == "thread (1, 0, 0) of block (0, 0, 0)"
    assert "index 1" in finding.values["reason"]
    assert "1 target" in finding.values["reason"]
    wording("an index beyond its table", finding)


# What an H200 (driver 580.159.04, CUDA 13.0) does with numbers and counts that come from registers.
MEETING = "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 32; selp.b32 %r2, {one}, {other}, %p1; bar.sync %r2, 64; ret;"


@pytest.mark.parametrize(
    ("one", "other", "outcome"),
    [(1, 17, "finished"), (1, 33, "finished"), (0, 16, "finished"), (1, 257, "finished"), (1, 2, "hang")],
)
def test_numbers_of_barriers_count_modulo_16(one, other, outcome):
    assert kernel(MEETING.format(one=one, other=other), "").run(1, 64, []).outcome == outcome


@pytest.mark.parametrize(
    ("instruction", "threads", "outcome"),
    [
        ("bar.sync 1, %r1;", 0, "finished"),
        ("bar.sync 1, %r1;", 64, "finished"),
        ("bar.sync 1, %r1;", 96, "hang"),
        ("bar.sync 1, %r1;", 1024, "hang"),
        ("bar.sync 1, %r1;", 1056, "hang"),
        ("bar.sync 1, %r1;", 1536, "hang"),
        ("bar.sync 1, %r1;", 1664, "fault"),
        ("bar.sync 1, %r1;", 2048, "fault"),
        ("bar.sync 1, %r1;", 4096, "finished"),
        ("bar.sync 1, %r1;", 4128, "finished"),
        ("bar.sync 1, %r1;", 4160, "finished"),
        ("bar.sync 1, %r1;", 65600, "finished"),
        ("bar.sync 1, %r1;", 1, "fault"),
        ("bar.sync 1, %r1;", 31, "fault"),
        ("bar.sync 1, %r1;", 33, "fault"),
        ("barrier.sync 1, %r1;", 48, "fault"),
        ("bar.red.popc.u32 %r2, 1, %r1, %p1;", 33, "fault"),
        ("bar.arrive 1, %r1;", 33, "fault"),
        ("bar.arrive 1, %r1;", 0, "fault"),
    ],
)
def test_whole_warps_meet_at_a_barrier(instruction, threads, outcome):
    run = kernel(f"ld.param.u32 %r1, [n]; {instruction} ret;", ".param .u32 n").run(1, 64, [threads])
    assert run.outcome == outcome
    if outcome == "fault":
        assert run.findings[0].values["code"] == 715
