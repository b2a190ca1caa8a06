"""Recorded kernels leave the card's bytes in memory."""

import pytest
from kernel_recording import PATHS, recording, run_again


@pytest.mark.parametrize("name", PATHS)
def test_memory_after_a_kernel_is_the_cards(name):
    run, arrays = run_again(name)
    assert run.outcome == "finished", [str(finding) for finding in run.findings]
    assert [str(finding) for finding in run.findings if finding.severity == "error"] == []
    assert list(recording(name).differences(arrays)) == []
    assert run.printed == recording(name).printed


@pytest.mark.parametrize("name", PATHS)
def test_a_run_says_whether_its_bits_are_the_cards(name):
    if not recording(name).launch["exact"]:
        assert not run_again(name)[0].exact
