"""Findings tell right kernels from the same kernels with one mistake."""

import numpy as np
import pytest
from pair_kernels import FOLDER, SEEDS, found_lines, mistakes_of, run, variant
from pair_table import TABLE

import tilescope as ts

KERNELS = {pairs.name: pairs for pairs in TABLE}
MISTAKES = [(pairs.name, mistake) for pairs in TABLE for mistake in pairs.mistakes]


def told(result, severities):
    """The rules of the findings of some severities."""
    return {finding.rule for finding in result.findings if finding.severity in severities}


def test_every_kernel_of_the_folder_is_in_the_table():
    assert sorted(KERNELS) == sorted(path.stem for path in FOLDER.glob("*.ptx"))
    assert len(KERNELS) == len(TABLE)


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_marks_the_mistakes_of_the_table(name):
    text = KERNELS[name].text
    assert mistakes_of(text) == set(KERNELS[name].mistakes)
    assert len({variant(text, mistake) for mistake in (None, *KERNELS[name].mistakes)}) == 1 + len(
        KERNELS[name].mistakes
    )


def test_a_variant_leaves_out_and_has_lines_of_its_own():
    text = "a; // not in x\nb; // only in x, y\nc;\n"
    assert variant(text).split("\n") == ["a; // not in x", "", "c;", ""]
    assert variant(text, "x").split("\n") == ["", "b; // only in x, y", "c;", ""]
    assert variant(text, "y").split("\n") == ["a; // not in x", "b; // only in x, y", "c;", ""]


@pytest.mark.parametrize("name", KERNELS)
def test_a_right_kernel_gives_its_result_and_no_finding(name):
    pairs = KERNELS[name]
    kernel = ts.Kernel(variant(pairs.text))
    for seed in SEEDS:
        result, case = run(pairs, kernel, seed)
        assert result.outcome == "finished", (seed, result.findings)
        assert told(result, {"error", "warning"}) <= {"run-bank-conflict"}, (seed, result.findings)
        np.testing.assert_array_equal(case.out, case.expected, err_msg=f"seed {seed}")


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", [0, 3, 4, 5])
def test_right_and_wrong_are_told_apart_with_other_seeds(seed):
    for pairs in TABLE:
        result, _ = run(pairs, ts.Kernel(variant(pairs.text)), seed)
        assert told(result, {"error", "warning"}) <= {"run-bank-conflict"}, (pairs.name, result.findings)
        for mistake, expected in pairs.mistakes.items():
            result, _ = run(pairs, ts.Kernel(variant(pairs.text, mistake)), seed)
            assert told(result, {expected.severity}) & expected.rules, (pairs.name, mistake, result.findings)


@pytest.mark.thinned(16)
@pytest.mark.parametrize(("name", "mistake"), MISTAKES)
def test_a_mistake_is_told_with_every_seed(name, mistake):
    pairs = KERNELS[name]
    expected = pairs.mistakes[mistake]
    lines = found_lines(pairs.text, mistake)
    kernel = ts.Kernel(variant(pairs.text, mistake))
    for seed in SEEDS:
        result, _ = run(pairs, kernel, seed)
        assert result.outcome != "stopped", (seed, result.findings)
        findings = [
            finding
            for finding in result.findings
            if finding.severity == expected.severity and finding.rule in expected.rules
        ]
        assert findings, (seed, result.findings)
        if lines:
            assert any(lines & set(finding.values["ptx_lines"]) for finding in findings), (seed, lines, findings)
