"""Every suite of `tilescope verify` on the card at hand."""

import numpy as np
import pytest

from tilescope.gpu.device import Device
from tilescope.gpu.suite_table import SUITE_NAMES
from tilescope.gpu.verification import verify

pytestmark = pytest.mark.gpu


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize("name", SUITE_NAMES)
def test_the_card_does_what_tilescope_says(name):
    verification, _ = verify([name], count=30, seed=2026)
    assert [each.difference for each in verification.suites] == [""]


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize("package", ["torch", "cupy"])
def test_arrays_of_other_packages_are_taken_where_they_lie(package):
    module = pytest.importorskip(package)
    array = module.arange(1000, device="cuda") if package == "torch" else module.arange(1000)
    address = array.data_ptr() if package == "torch" else array.data.ptr
    device = Device()
    assert device.upload(array) == address
    assert np.array_equal(device.download(address, (1000,), np.int64), np.arange(1000))
