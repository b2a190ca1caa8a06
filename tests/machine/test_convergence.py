"""Findings about convergence: which lines they name, what they propose, and that a run ends as on a card."""

import numpy as np
import pytest
from kernel_recording import run_again
from pair_kernels import SEEDS, found_lines, run, variant
from pairs_of_convergence import CONVERGENCE, MASK, PAIRS, SKIPPED

import tilescope as ts

DIVERGENT = [
    (pairs, mistake)
    for pairs in PAIRS
    for mistake, finding in pairs.mistakes.items()
    if finding in (CONVERGENCE, SKIPPED)
]
HEAD = """
.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{
    .shared .align 16 .b8 tile[1024];
    .reg .pred p, q;
    .reg .b32 tid, lane, x, y, at, i;
    .reg .b64 to;
    mov.u32 tid, %tid.x;
    and.b32 lane, tid, 31;
    mov.u32 at, tile;
    mad.lo.u32 at, tid, 4, at;
    ld.param.u64 to, [out];
    mad.wide.u32 to, tid, 4, to;
    mov.u32 x, tid;
"""
TAIL = """
    st.global.u32 [to], x;
    ret;
}
"""


def findings_of(body, *, threads=64, seed=None, advice="none"):
    out = np.zeros(128, np.uint32)
    result = ts.Kernel(HEAD + body + TAIL).run(1, threads, [out], seed=seed, advice=advice)
    assert result.outcome == "finished", result.findings
    return [finding for finding in result.findings if finding.severity != "note"], out


def rules_of(body, **options):
    return {(finding.rule, finding.severity) for finding in findings_of(body, **options)[0]}


@pytest.mark.parametrize(
    ("pairs", "mistake"), DIVERGENT, ids=[f"{pairs.name}-{mistake}" for pairs, mistake in DIVERGENT]
)
def test_a_finding_names_the_barrier_and_then_the_branch(pairs, mistake):
    lines = found_lines(pairs.text, mistake)
    text = variant(pairs.text, mistake).splitlines()
    kernel = ts.Kernel("\n".join(text))
    for seed in SEEDS:
        result, _ = run(pairs, kernel, seed)
        findings = [finding for finding in result.findings if finding.rule in pairs.mistakes[mistake].rules]
        assert result.outcome == "finished"
        for finding in findings:
            named = finding.values["ptx_lines"]
            assert set(named) <= lines, (named, lines)
            assert " bra " not in text[named[0] - 1]
        assert lines == {line for finding in findings for line in finding.values["ptx_lines"]}


@pytest.mark.parametrize("mistake", ["odd-threads", "half-warp", "both-sides", "predicated"])
def test_the_fix_of_a_divergent_barrier_moves_it(mistake):
    pairs = PAIRS[0]
    result, _ = run(pairs, ts.Kernel(variant(pairs.text, mistake)), None, advice="fixes")
    findings = [finding for finding in result.findings if finding.rule == "run-convergence"]
    assert findings
    assert all("out of the branch" in finding.fix and finding.change is None for finding in findings)


WARP_TREE = next(pairs for pairs in PAIRS if pairs.name == "warp_tree")


@pytest.mark.thinned(8)
@pytest.mark.parametrize("mistake", WARP_TREE.mistakes)
def test_the_fix_of_lanes_without_order_is_a_barrier_of_the_warp(mistake):
    result, _ = run(WARP_TREE, ts.Kernel(variant(WARP_TREE.text, mistake)), None, advice="fixes")
    errors = [finding for finding in result.findings if finding.severity == "error"]
    assert errors
    assert all("bar.warp.sync" in finding.fix for finding in errors)


def test_each_warp_counts_once_at_a_barrier():
    """Half of each warp arrives, and the barrier completes for them, as on an H200."""
    body = """
        st.shared.u32 [at], x;
        setp.ge.u32 p, lane, 16;
        @p bra wait;
        bar.sync 0;
        st.volatile.shared.u32 [tile+512], 1;
    wait:
        ld.volatile.shared.u32 y, [tile+512];
        setp.eq.u32 q, y, 0;
        @q bra wait;
    """
    findings, out = findings_of(body)
    assert {finding.rule for finding in findings} >= {"run-convergence"}
    np.testing.assert_array_equal(out[:64], np.arange(64))


def test_an_aligned_barrier_counts_whole_warps_of_a_block_that_has_fewer_threads():
    assert rules_of("bar.sync 0, 64; bar.sync 0;", threads=48) == set()


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_lanes_that_were_only_delayed_come_together(seed):
    body = """
        mov.u32 i, 0;
    loop:
        setp.ge.u32 p, i, lane;
        @p bra behind;
        add.u32 i, i, 1;
        setp.eq.u32 q, i, 7;
        @q bra behind;
        bra loop;
    behind:
        setp.lt.u32 p, lane, 5;
        @p add.u32 x, x, 1;
        @p bra small;
        add.u32 x, x, 2;
    small:
        bar.sync 0;
        bar.red.popc.u32 y, 0, p;
        shfl.sync.bfly.b32 y, x, 1, 31, -1;
    """
    assert rules_of(body, seed=seed) == set()


def test_a_return_in_a_nested_branch_is_an_early_return():
    body = """
        setp.ge.u32 p, lane, 16;
        setp.eq.u32 q, lane, 20;
        @!p bra join;
        st.global.u32 [to], 9;
        @q ret;
    join:
        bar.sync 0;
    """
    assert rules_of(body) == set()


def test_threads_that_go_around_and_then_return_in_a_later_branch_are_missed():
    body = """
        setp.ge.u32 p, lane, 16;
        setp.eq.u32 q, lane, 20;
        @p bra join;
        bar.sync 0;
    join:
        st.shared.u32 [at], x;
        @q ret;
    """
    assert rules_of(body) == {("run-convergence", "error")}


def test_lanes_that_take_turns_at_one_barrier_do_not_hide_each_other():
    body = """
        setp.ge.u32 p, lane, 16;
        @p bra upper;
        bar.sync 0;
    upper:
        setp.lt.u32 q, lane, 16;
        st.shared.u32 [at], x;
        @q bra join;
        bar.sync 0;
    join:
    """
    assert rules_of(body) == {("run-convergence", "error")}


@pytest.mark.parametrize(
    ("use", "is_wrong"),
    [
        ("and.b32 y, y, 0; add.u32 x, x, y;", False),
        ("setp.lt.u32 p, tid, 32; selp.b32 y, y, 3, p; add.u32 x, x, y;", False),
        ("setp.lt.u32 p, tid, 32; setp.gt.and.u32 q, y, 1, p; @q add.u32 x, x, 1;", False),
        ("mov.u32 y, 4; add.u32 x, x, y;", False),
        ("setp.lt.u32 p, tid, 32; @p add.u32 x, x, y;", False),
        ("setp.gt.u32 q, y, 1; @q add.u32 x, x, 1;", True),
        ("vote.sync.any.pred q, 0, -1; add.u32 x, x, y;", True),
        ("shfl.sync.idx.b32 y, y, 0, 31, -1; add.u32 x, x, y;", True),
        ("min.u32 x, x, y;", True),
    ],
)
def test_an_undefined_value_is_followed_to_its_use(use, is_wrong):
    body = f"shfl.sync.down.b32 y, x, 16, 31, -1; {use}"
    assert rules_of(body, threads=48) == ({("run-undefined-lane", "error")} if is_wrong else set())


def test_a_lane_beyond_the_segment_keeps_its_own_value():
    assert rules_of("shfl.sync.down.b32 y, x, 8, 0x100f, -1; add.u32 x, x, y;", threads=32) == set()
    assert rules_of("shfl.sync.up.b32 y, x, 1, 0, -1; add.u32 x, x, y;", threads=48) == set()


@pytest.mark.parametrize("mistake", ["vote", "match", "redux", "shuffle"])
def test_a_thread_that_its_own_mask_leaves_out_is_named(mistake):
    pairs = next(pairs for pairs in PAIRS if pairs.name == "votes_of_masks")
    result, _ = run(pairs, ts.Kernel(variant(pairs.text, mistake)), None)
    finding = next(finding for finding in result.findings if finding.rule in MASK.rules)
    assert finding.values["mask"] == 0x7FFF


def test_warps_with_as_many_barriers_on_different_paths_skip_none():
    """Roles of Gluon: a warp stays in the loop of roles, another one leaves it and meets the first at other barriers."""
    result, _ = run_again("gluon_specialised")
    assert [finding.rule for finding in result.findings if finding.rule in SKIPPED.rules] == []
