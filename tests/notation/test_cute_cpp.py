"""CuTe itself, built with g++ from NVIDIA's headers, prints and evaluates what the recorded texts say."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
def test_cute_prints_and_evaluates_the_recorded_layouts(printed_by_cute):
    recorded = (HERE / "cute_layouts.tsv").read_text("utf-8").splitlines()
    assert printed_by_cute(HERE / "cute_layouts.cpp") == recorded
