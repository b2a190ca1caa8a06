"""The PTX texts of the tests are a module beside them."""

import sys
from pathlib import Path

import pytest

from tilescope.machine import kernel as kernel_module

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def launches(monkeypatch):
    """The launches that a test ran, with the records of their copies and barriers."""
    seen = []
    told = kernel_module.run_of

    def told_and_kept(launch, result, notes):
        seen.append(launch)
        return told(launch, result, notes)

    monkeypatch.setattr(kernel_module, "run_of", told_and_kept)
    return seen
