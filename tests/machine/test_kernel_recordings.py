"""Recorded kernels leave the card's bytes in memory."""

import pytest
from kernel_recording import ERRORS, NAMES, PATHS, recording, run_again


@pytest.mark.parametrize("name", NAMES)
def test_memory_after_a_kernel_is_the_cards(name):
    run, arrays = run_again(name)
    assert run.outcome == "finished", [str(finding) for finding in run.findings]
    assert {finding.rule for finding in run.findings if finding.severity == "error"} == ERRORS.get(name, set())
    assert list(recording(name).differences(arrays)) == []
    assert run.printed == recording(name).printed


@pytest.mark.parametrize("name", [name for name in PATHS if not recording(name).launch["exact"]])
def test_a_run_with_approximate_functions_says_so(name):
    run, _ = run_again(name)
    assert not run.exact
    assert any(".approx" in text or ".full" in text for text in run.inexact)
