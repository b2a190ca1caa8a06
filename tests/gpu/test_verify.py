"""Every suite of `tilescope verify` on the card at hand."""

import pytest

from tilescope.arch import Arch
from tilescope.gpu.verify.suites import SUITE_NAMES, suite_named
from tilescope.gpu.verify.verification import verify

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", SUITE_NAMES)
def test_the_card_does_what_tilescope_says(card, name):
    if not Arch.named(card.facts["arch"]).has(suite_named(name).feature):
        pytest.skip("needs a newer card")
    verification, _ = verify([name], count=30, seed=2026)
    assert [suite.difference for suite in verification.suites] == [""]
