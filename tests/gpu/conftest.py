"""Tests in this folder need an NVIDIA GPU of compute capability 9.0 and the `gpu` extra; elsewhere they skip."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
collect_ignore = ["watched"]  # programs that tests start: to import one is to run it


@pytest.fixture(scope="session")
def card():
    """The card, or a skip that says what is missing."""
    try:
        from card import Card
    except ImportError as error:
        pytest.skip(f"needs {error.name}: pip install 'tilescope[gpu]'")
    try:
        found = Card()
    except Exception as error:  # noqa: BLE001  whatever a missing driver or card raises
        pytest.skip(f"needs an NVIDIA GPU and its driver ({type(error).__name__})")
    if not found.is_hopper:
        pytest.skip("needs a GPU of compute capability 9.0: that is what the rules were measured on")
    found.compile()
    return found
