"""The PTX texts of the tests are a module beside them."""

import sys
from pathlib import Path

import pytest

from tilescope.machine import kernel_launch as kernel_module

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def numba(require):
    """For tests of compiled code: skipped without numba, and failed where it is required, as in CI."""
    require("numba")


@pytest.fixture
def launches(monkeypatch):
    """The launches that a test ran, with the records of their copies and barriers."""
    seen = []
    build_run = kernel_module.build_run

    def keep_launch(launch, result, notes, after):
        seen.append(launch)
        return build_run(launch, result, notes, after)

    monkeypatch.setattr(kernel_module, "build_run", keep_launch)
    return seen
