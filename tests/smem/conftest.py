"""What was recorded on a card, and both ways of counting."""

from pathlib import Path

import numpy as np
import pytest

from tilescope.smem import banks

GOLDEN = Path(__file__).parent.parent / "golden" / "shared_memory_wavefronts.npz"


@pytest.fixture(scope="session")
def recorded():
    """The counted accesses: op, lane_offset, active, wavefronts."""
    with np.load(GOLDEN) as file:
        return {name: file[name] for name in file.files}


@pytest.fixture(params=["numpy", "numba"])
def counted_by(request, monkeypatch):
    """Each way of counting, whatever the size of the batch."""
    if request.param == "numba":
        monkeypatch.setattr(banks, "FIRST_BATCH", 0)
        monkeypatch.setattr(banks, "NEXT_BATCH", 0)
    else:
        monkeypatch.setattr(banks, "kernel", lambda _: None)
    return request.param
