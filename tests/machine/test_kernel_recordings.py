"""Recorded kernels leave the card's bytes in memory."""

import pytest
from kernel_recording import ERRORS, NAMES, recording, run_again


@pytest.mark.thinned(6)
@pytest.mark.parametrize("name", NAMES)
def test_memory_after_a_kernel_is_the_cards(name):
    run, arrays = run_again(name)
    assert run.outcome == "finished", [str(finding) for finding in run.findings]
    assert {finding.rule for finding in run.findings if finding.severity == "error"} == ERRORS.get(name, set())
    assert list(recording(name).differences(arrays)) == []
    assert run.printed == recording(name).printed
