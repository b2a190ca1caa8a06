"""mbarriers between blocks, and beyond their counts: what needs a scope, what a card reports, and one finding for one mistake."""

from pathlib import Path

import numpy as np
import pytest
from pair_kernels import SEEDS, run, variant
from pair_table import TABLE
from ptx_texts import kernel

import tilescope as ts

KERNELS = {pairs.name: pairs for pairs in TABLE}


def serious(result):
    """The rules of errors and warnings."""
    return [finding.rule for finding in result.findings if finding.severity != "note"]


@pytest.mark.parametrize("scope", ["", ".release.cta", ".release.cluster"])
def test_an_arrival_that_frees_a_slot_for_a_copy_needs_no_scope(scope):
    pairs = KERNELS["multicast_ring"]
    text = variant(pairs.text)
    assert "mbarrier.arrive.release.cluster.shared::cluster" in text
    text = text.replace("mbarrier.arrive.release.cluster", f"mbarrier.arrive{scope}")
    for seed in SEEDS:
        result, case = run(pairs, ts.Kernel(text), seed)
        assert serious(result) == []
        np.testing.assert_array_equal(case.out, case.expected)


@pytest.mark.parametrize(
    ("arrival", "wait", "severity"),
    [
        (".release.cluster", ".acquire.cluster", None),
        ("", ".acquire.cluster", "warning"),
        (".release.cluster", "", "warning"),
        ("", "", "warning"),
        (".release.cta", "", "error"),
        ("", ".acquire.cta", "error"),
    ],
)
def test_the_narrower_scope_of_an_arrival_and_its_wait_counts(arrival, wait, severity):
    pairs = KERNELS["remote_scope"]
    text = variant(pairs.text).replace("arrive.release.cluster", f"arrive{arrival}")
    text = text.replace("try_wait.parity.acquire.cluster", f"try_wait.parity{wait}")
    result, _ = run(pairs, ts.Kernel(text), None)
    found = {finding.severity for finding in result.findings if finding.severity != "note"}
    assert found == (set() if severity is None else {severity})


def test_a_wait_in_another_thread_of_the_block_passes_the_scope_on():
    """Thread 0 waits with the scope of the cluster; the others learn of it by bar.sync."""
    pairs = KERNELS["remote_scope"]
    waits = "    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [full], 0;"
    text = variant(pairs.text)
    assert waits in text
    text = text.replace("wait:\n", "    @!first bra joined;\nwait:\n").replace(
        "    xor.b32 mirror, tid, 127;", "joined:\n    bar.sync 0;\n    xor.b32 mirror, tid, 127;"
    )
    # the second phase needs the first one to be seen, which bar.sync shows
    result, case = run(pairs, ts.Kernel(text), None)
    assert serious(result) == []
    np.testing.assert_array_equal(case.out, case.expected)


NOINC = """
    .shared .align 8 .b8 barrier[8];
    .shared .align 16 .b8 tile[512];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, barrier;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared.b64 [%r2], COUNT;
    bar.sync 0;
    ld.param.u64 %d1, [source];
    mad.wide.u32 %d2, %r1, 4, %d1;
    mov.u32 %r3, tile;
    mad.lo.u32 %r3, %r1, 4, %r3;
    cp.async.ca.shared.global [%r3], [%d2], 4;
    cp.async.mbarrier.arrive.noinc.shared.b64 [%r2];
    cp.async.wait_all;
    bar.sync 0;
    ret;
"""


@pytest.mark.parametrize(("count", "phases"), [(1, 128), (64, 2), (127, 1), (128, 1), (129, 0)])
@pytest.mark.parametrize("seed", SEEDS)
def test_noinc_arrivals_beyond_the_count_complete_phase_after_phase(count, phases, seed):
    made = kernel(NOINC.replace("COUNT", str(count)), ".param .u64 source")
    result = made.run(1, 128, [np.arange(128, dtype=np.uint32)], seed=seed)
    assert (result.outcome, serious(result)) == ("finished", [])
    assert len(result.barriers) == phases


def test_a_hang_at_an_mbarrier_without_init_is_one_finding():
    body = """
        .shared .align 8 .b8 barrier[8];
        mov.u32 %r1, %tid.x;
        mov.u32 %r2, barrier;
        setp.ge.u32 %p1, %r1, 32;
        @%p1 bra JOIN;
    WAIT:
        mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0;
        @!%p2 bra WAIT;
    JOIN:
        bar.sync 0;
        ret;
    """
    result = kernel(body, "").run(1, 128)
    assert (result.outcome, serious(result)) == ("hang", ["run-barrier-init"])


def test_inval_behind_a_commit_waits_for_its_arrival():
    text = (Path(ts.__file__).parent / "rule_examples" / "run-commit-left.fail.ptx").read_text()
    invalidated = text.replace("    ret;", "    @%p1 mbarrier.inval.shared.b64 [m];\n    ret;")
    findings = [finding for finding in ts.Kernel(invalidated).run(1, 32).findings if finding.severity == "error"]
    assert [finding.rule for finding in findings] == ["run-barrier-lifetime"]
    lines = [invalidated.splitlines()[line - 1] for line in findings[0].values["ptx_lines"]]
    assert "mbarrier.inval" in lines[0]
    assert "tcgen05.commit" in lines[1]
