"""Advice: barriers that ordered nothing are named, those that order something never are."""

import numpy as np
import pytest
from kernel_recording import kernel as recorded_kernel
from kernel_recording import run_with

import tilescope as ts

HEAD = """.version 8.0
.target sm_90
.address_size 64
.file 1 "mirror.cu"
.visible .entry mirror(.param .u64 a, .param .u32 rounds) {
    .shared .align 4 .b8 s[512];
    .reg .b32 %r<12>; .reg .b64 %d<4>; .reg .pred %p<4>;
    ld.param.u64 %d1, [a]; ld.param.u32 %r9, [rounds];
    mov.u32 %r1, %tid.x; mov.u32 %r2, s; mov.u32 %r8, 0;
    mad.lo.u32 %r3, %r1, 4, %r2;
    sub.u32 %r4, 63, %r1; mad.lo.u32 %r4, %r4, 4, %r2;
    mad.wide.u32 %d2, %r1, 4, %d1;
    LOOP:
"""
TAIL = """
    add.u32 %r8, %r8, 1; setp.lt.u32 %p1, %r8, %r9;
    @%p1 bra LOOP;
    ret;
}
"""
WRITE = "add.u32 %r5, %r1, %r8; st.shared.u32 [%r3], %r5;"
READ = "ld.shared.u32 %r6, [%r4]; st.global.u32 [%d2], %r6;"


def advice_of(*body, rounds=3):
    """The notes about barriers of a kernel whose threads exchange words, round after round."""
    text = HEAD + "\n".join(body) + TAIL
    run = ts.Kernel(text).run(1, 64, [np.zeros(64, np.uint32), rounds], advice="barriers")
    assert run.outcome == "finished"
    return [finding for finding in run.findings if finding.rule == "run-idle-barrier"]


def test_barriers_that_order_something_are_not_named():
    assert advice_of(WRITE, "bar.sync 0;", READ, "bar.sync 0;") == []


def test_a_barrier_behind_another_one_is_named_with_its_line(wording):
    (note,) = advice_of(WRITE, "bar.sync 0;", ".loc 1 7 0", "bar.sync 0;", READ, ".loc 1 9 0", "bar.sync 0;")
    assert note.severity == "note"
    assert (note.values["idle"], note.values["barriers"]) == (1, 3)
    wording("a barrier that orders nothing", note)
    assert note.values["ptx_lines"] == (15,)


def test_of_two_barriers_of_which_one_is_enough_one_is_named():
    (note,) = advice_of(WRITE, ".loc 1 7 0", "bar.sync 0;", "bar.sync 0;", READ, ".loc 1 9 0", "bar.sync 0;")
    assert note.values["idle"] == 1
    assert note.values["source_lines"] == ("mirror.cu:7",)


def test_what_is_named_can_go_together():
    body = [WRITE, "bar.sync 0;", "bar.sync 0;", "bar.sync 0;", READ, "bar.sync 0;", "bar.sync 0;"]
    (note,) = advice_of(*body)
    assert note.values["idle"] == 3
    lines = (HEAD + "\n".join(body) + TAIL).splitlines()
    for line in note.values["ptx_lines"]:
        lines[line - 1] = lines[line - 1].replace("bar.sync 0;", "")
    run = ts.Kernel("\n".join(lines) + "\n").run(1, 64, [np.zeros(64, np.uint32), 3], advice="all")
    assert run.findings == ()


def test_a_barrier_of_a_loop_that_went_round_once_is_not_judged():
    assert advice_of(WRITE, "bar.sync 0;", READ, "bar.sync 0;", rounds=1) == []


def test_a_barrier_that_only_one_thread_pair_needs_is_not_named():
    meet = "setp.eq.u32 %p2, %r1, 5; @%p2 st.shared.u32 [s+256], %r8;"
    see = "setp.eq.u32 %p3, %r1, 40; @%p3 ld.shared.u32 %r7, [s+256];"
    assert advice_of(meet, "bar.sync 0;", see, "bar.sync 0;") == []


def test_barriers_of_a_run_with_errors_are_not_tried(wording):
    (note,) = advice_of(WRITE, READ, "bar.sync 0;")
    assert (note.rule, note.severity) == ("run-idle-barrier", "note")
    assert "barriers" not in note.values
    assert "errors" in note.values["reason"]
    wording("barriers of a run with errors", note)


def test_nothing_is_said_about_barriers_that_never_ran():
    text = HEAD + "setp.gt.u32 %p2, %r1, 99; @%p2 bra NEVER; bra.uni BEHIND; NEVER: bar.sync 0; BEHIND:" + TAIL
    run = ts.Kernel(text).run(1, 64, [np.zeros(64, np.uint32), 2], advice="all")
    assert run.findings == ()


def test_a_ring_that_never_wrapped_says_nothing_of_its_barriers():
    run, _ = run_with(recorded_kernel("mm_tma_f16"), "mm_tma_f16", advice="all")
    rules = [finding.rule for finding in run.findings]
    assert rules == ["run-ring-not-wrapped", "run-idle-barrier"]
    assert "never wrapped" in run.findings[1].found


def test_tritons_transposition_keeps_the_barriers_that_it_needs():
    run, _ = run_with(recorded_kernel("transpose_tma"), "transpose_tma", advice="barriers")
    (note,) = [finding for finding in run.findings if finding.rule == "run-idle-barrier"]
    assert (note.values["idle"], note.values["barriers"]) == (3, 7)


def test_the_arrays_hold_what_the_kernel_left_in_them():
    numbers = np.zeros(64, np.uint32)
    text = HEAD + f"{WRITE} bar.sync 0; bar.sync 0; {READ} bar.sync 0;" + TAIL
    ts.Kernel(text).run(1, 64, [numbers, 1], advice="all")
    assert numbers.tolist() == list(range(63, -1, -1))


@pytest.mark.parametrize("wrong", [1, "yes", None])
def test_unknown_advice_is_refused(wrong):
    with pytest.raises(ts.RuleError, match="advice"):
        ts.Kernel(HEAD + TAIL).run(1, 64, [np.zeros(64, np.uint32), 1], advice=wrong)
