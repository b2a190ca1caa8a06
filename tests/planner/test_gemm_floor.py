"""Floors of GEMMs held against what an H200 took: no kernel undercuts them."""

import re
from pathlib import Path

import pytest

import tilescope as ts

MEASURED = Path(__file__).parents[2] / "docs" / "on-the-card.md"
ROW = re.compile(
    r"\| (\d+), (\d+), (\d+) \| [^|]+ \| ([\d.]+) \|"
)  # m, n, k, kernel, microseconds of the emitted kernel


def measured_products():
    """(m, n, k, type, microseconds) of every row; the sentence above a table begins with the type, where it is not bf16."""
    data_type = "bf16"
    for line in MEASURED.read_text("utf-8").splitlines():
        if line.startswith(("bf16", "e4m3", "60 shapes")):
            data_type = "e4m3" if line.startswith("e4m3") else "bf16"
        row = ROW.match(line)
        if row:
            m, n, k = map(int, row.groups()[:3])
            yield m, n, k, data_type, float(row[4])


PRODUCTS = list(measured_products())


def test_the_page_has_its_rows():
    assert len(PRODUCTS) > 100
    assert {product[3] for product in PRODUCTS} == {"bf16", "e4m3"}


@pytest.mark.slow
@pytest.mark.parametrize(("m", "n", "k", "data_type", "measured_us"), PRODUCTS)
def test_no_measured_kernel_undercuts_its_floor(m, n, k, data_type, measured_us):
    assert ts.plan_gemm(m, n, k, data_type, output_type="bf16").floor_us < measured_us
