"""What was recorded on a card, and both ways of counting."""

from pathlib import Path

import numpy as np
import pytest

from tilescope.smem import banks

GOLDEN = Path(__file__).parent.parent / "golden"


def arrays(name):
    with np.load(GOLDEN / name) as file:
        return {array: file[array] for array in file.files}


@pytest.fixture(scope="session")
def recorded():
    """The counted accesses: op, lane_offset, active, wavefronts."""
    return arrays("shared_memory_wavefronts.npz")


@pytest.fixture(scope="session")
def recorded_copies():
    """The counted copies by cp.async: op, lane_offset, source_offset, active, wavefronts, conflicts."""
    return arrays("copy_wavefronts.npz")


@pytest.fixture(params=["numpy", "numba"])
def counted_by(request, monkeypatch):
    """Each way of counting, whatever the size of the batch."""
    if request.param == "numba":
        monkeypatch.setattr(banks, "FIRST_BATCH", 0)
        monkeypatch.setattr(banks, "NEXT_BATCH", 0)
    else:
        monkeypatch.setattr(banks, "kernel", lambda _: None)
    return request.param
