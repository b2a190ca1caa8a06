"""Every suite of `tilescope verify` on the card at hand."""

import numpy as np
import pytest

from tilescope.arch import Arch
from tilescope.gpu.device import Device
from tilescope.gpu.suites import SUITE_NAMES, suite_named
from tilescope.gpu.verification import verify

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", SUITE_NAMES)
def test_the_card_does_what_tilescope_says(card, name):
    if not Arch.named(card.arch).has(suite_named(name).feature):
        pytest.skip("needs a newer card")
    verification, _ = verify([name], count=30, seed=2026)
    assert [suite.difference for suite in verification.suites] == [""]


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize("package", ["torch", "cupy"])
def test_arrays_of_other_packages_are_taken_where_they_lie(package):
    module = pytest.importorskip(package)
    array = module.arange(1000, device="cuda") if package == "torch" else module.arange(1000)
    address = array.data_ptr() if package == "torch" else array.data.ptr
    device = Device()
    assert device.upload(array) == address
    assert np.array_equal(device.download(address, (1000,), np.int64), np.arange(1000))
