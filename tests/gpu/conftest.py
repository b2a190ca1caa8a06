"""Tests in this folder need an NVIDIA GPU of compute capability 9.0 and the `gpu` extra; elsewhere they skip."""

import sys
from pathlib import Path

import pytest

from tilescope.errors import DeviceError

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "emitter")]
collect_ignore = ["watched"]  # programs that tests start: to import one is to run it


@pytest.fixture(scope="session")
def card():
    """The card, or a skip that says what is missing."""
    from tilescope.gpu.driver.device import Device

    try:
        found = Device()
    except DeviceError as error:
        pytest.skip(str(error))
    if found.facts["arch"] != "sm_90":
        pytest.skip("needs a GPU of compute capability 9.0: that is what the rules were measured on")
    return found
