"""Random GEMMs of all forms are right on the card; `random_products.py` draws more of them."""

import pytest
import random_products


@pytest.mark.usefixtures("card")
def test_random_products_are_right():
    products, wrong, _ = random_products.run(16, 4, seed=3, quiet=True)
    assert (products, wrong) == (64, [])


@pytest.mark.usefixtures("card")
def test_a_wrong_product_is_noticed(monkeypatch):
    """The comparison can fail: with other numbers of A than the kernel gets."""
    expected = random_products.Case.expected

    def shifted(case):
        case.a = case.a[..., ::-1]
        return expected(case)

    monkeypatch.setattr(random_products.Case, "expected", shifted)
    _, wrong, _ = random_products.run(2, 2, seed=5, quiet=True)
    assert wrong
