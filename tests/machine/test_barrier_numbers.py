"""A kernel that hangs by one wrong number of an mbarrier: the finding names the instruction, and the number was tried."""

from pathlib import Path

import numpy as np
import pytest
from kernel_recording import kernel as recorded_kernel
from kernel_recording import run_with
from pair_kernels import run as run_pair
from pair_kernels import variant
from pair_table import TABLE

import tilescope as ts
from tilescope.machine.edits import trial

RING = (Path(__file__).parent / "ring.ptx").read_text()
PRODUCER_PARITY = "    xor.b32 %r4, %r4, 1;\n"
CONSUMER_BARRIER = "    mov.u32 %r6, full;\n    add.u32 %r6, %r6, %r5;\nWAIT_FULL:"
POLL = "mbarrier.try_wait.parity.shared.b64 %p2, [%r6], %r4;"
EXPECT = "mbarrier.arrive.expect_tx.shared.b64 _, [%r6], 128;"
COPY = "[%r7], [%rd4], 128, [%r6];"

# What is written instead of what, and the correction that the finding tells: the number, and the instruction's line begins so.
MISTAKES = {
    "the producer starts with parity 0": (
        (PRODUCER_PARITY, "    xor.b32 %r4, %r4, 0;\n"),
        ("the other parity", POLL, 75),
    ),
    "the consumers wait for the other parity": (
        (CONSUMER_BARRIER, f"    xor.b32 %r4, %r4, 1;{CONSUMER_BARRIER}"),
        ("the other parity", POLL, 41),
    ),
    "one arrival too many is counted": (
        ("[empty], 32;", "[empty], 33;"),
        ("32 arrivals", "mbarrier.init.shared.b64 [empty], 33;", 24),
    ),
    "one arrival too few is counted": (
        ("[empty+8], 32;", "[empty+8], 31;"),
        ("32 arrivals", "mbarrier.init.shared.b64 [empty+8], 31;", 25),
    ),
    "one arrival is counted of a warp's": (
        ("[empty], 32;", "[empty], 1;"),
        ("32 arrivals", "mbarrier.init.shared.b64 [empty], 1;", 24),
    ),
    "a warp is counted where one thread arrives": (
        ("[full+8], 1;", "[full+8], 32;"),
        ("1 arrival", "mbarrier.init.shared.b64 [full+8], 32;", 23),
    ),
    "too many bytes are expected": (
        (EXPECT, EXPECT.replace("128", "144")),
        ("128 bytes", EXPECT.replace("128", "144"), 80),
    ),
    "too few bytes are expected": (
        (EXPECT, EXPECT.replace("128", "112")),
        ("128 bytes", EXPECT.replace("128", "112"), 80),
    ),
}


def wrong_ring(name):
    (right, wrong), _ = MISTAKES[name]
    assert RING.count(right) == 1
    return RING.replace(right, wrong)


def run(text, seed=None, grid=1, **options):
    """A run of a ring, and the sums that it stores."""
    sums = np.zeros(32, np.float32)
    values = np.arange(6 * 32, dtype=np.float32)
    return ts.Kernel(text).run(grid, 64, [values, sums], seed=seed, **options), sums


def errors(result):
    return [finding for finding in result.findings if finding.severity == "error"]


def corrected(text, finding):
    """A text with what a finding tells to write otherwise."""
    for one in sorted(finding.change["replace_ptx"], key=lambda one: one["start"], reverse=True):
        text = text[: one["start"]] + one["text"] + text[one["end"] :]
    return text


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", MISTAKES)
def test_the_wrong_number_is_named_in_every_finding(name):
    text = wrong_ring(name)
    result, _ = run(text)
    _, (number, instruction, line) = MISTAKES[name]
    assert result.outcome in ("hang", "fault")
    for finding in errors(result):
        (change,) = finding.change["replace_ptx"]
        assert change["line"] == line
        assert text.splitlines()[line - 1].strip().endswith(instruction)
        assert finding.fix.startswith(f"Use {number} at ring.cu:")
        assert f"PTX line {line} (" in finding.fix
        assert ": tried, and " in finding.fix


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", MISTAKES)
def test_the_corrected_kernel_computes_what_the_right_one_does(name):
    text = wrong_ring(name)
    result, _ = run(text)
    cured, sums = run(corrected(text, errors(result)[0]), seed=5)  # that no trial has
    _, right_sums = run(RING)
    assert cured.outcome == "finished"
    assert not errors(cured)
    np.testing.assert_array_equal(sums, right_sums)


def test_of_several_blocks_the_first_that_hangs_is_tried_alone(wording):
    result, _ = run(wrong_ring("the producer starts with parity 0"), grid=3)
    assert errors(result)[0].values["tried_block"] == (0, 0, 0)
    assert "block (0, 0, 0)" in errors(result)[0].fix
    wording("a remedy tried with one block", errors(result)[0].fix)


def test_a_copy_that_is_missing_is_not_cured_by_fewer_bytes():
    result, _ = run(RING.replace(COPY, COPY.replace("128, [%r6]", "64, [%r6]").replace("[%r7]", "[%r7+64]")))
    assert result.outcome == "hang"
    assert all(finding.change is None for finding in errors(result))


def test_a_wait_that_nobody_ends_is_not_cured_by_the_other_parity():
    result, _ = run(RING.replace(EXPECT, "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r6], 128;"))
    assert result.outcome == "hang"
    assert all("parity" not in finding.values.get("corrections", ()) for finding in errors(result))
    assert all(finding.change is None for finding in errors(result))


def test_a_hang_says_that_not_everything_was_tried(monkeypatch):
    monkeypatch.setattr(trial, "SHORT_STEPS", 0)
    monkeypatch.setattr(trial, "STEPS_OF_ALL_TRIALS", 1)
    result, _ = run(wrong_ring("the producer starts with parity 0"))
    steps = errors(result)[0].values["trial_steps"]
    for finding in errors(result):
        assert finding.change is None
        assert f"{steps} steps" in finding.fix


def test_a_wait_that_passes_too_early_is_cured_by_its_parity(wording):
    load = next(pairs for pairs in TABLE if pairs.name == "tma_load")
    result, _ = run_pair(load, ts.Kernel(variant(load.text, "wrong-parity")), None, advice="fixes")
    finding = errors(result)[0]
    assert finding.rule == "run-copy-wait"
    wording("a wait of the wrong parity", finding)
    (replaced,) = finding.change["replace_ptx"]
    assert replaced["text"].endswith(", [full], 0;")
    assert ", [full], 1)" in replaced["where"]
    assert replaced["where"] in finding.fix


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["ring", "emitted_gemm_f16", "gluon_specialised"])
def test_every_wrong_number_of_a_recorded_kernel_is_named(name):
    """The mutant says which line was changed, and the finding has to find it again."""
    for mutant in recorded_kernel(name).mutants():
        if mutant.kind not in ("parity", "count", "bytes"):
            continue
        result, _ = run_with(mutant.kernel, name)
        for finding in errors(result):
            lines = [one["line"] for one in finding.change["replace_ptx"]]
            assert lines == [mutant.line], (mutant.name, finding)
