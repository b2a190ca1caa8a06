"""Predicted bandwidth, cell by cell as it was measured on an H200."""

import pytest

import tilescope as ts
from tilescope.planner.bandwidth import bandwidth_share, best_promotion, gmem_cycles

# GB/s of 64 x 64 fp16 tiles in boxes of so many bytes a row; loads by L2 promotion, stores whatever it was.
LOADED = {"none": (4552, 4042, 3480, 2461), "128B": (4559, 4519, 3970, 2554), "256B": (4231, 4036, 3467, 2385)}
STORED = (4190, 4319, 3060, 886)
WIDTHS = (128, 64, 32, 16)
BY_ROWS = {  # loads with promotion 128B, in another run
    64: (4411, 4373, 3863, 2498),
    32: (4460, 4391, 3894, 2440),
    16: (4422, 4376, 3801, 2384),
    8: (4434, 4370, 3443, 1946),
}


@pytest.mark.parametrize("width", WIDTHS)
def test_widths_are_as_measured(width):
    column = WIDTHS.index(width)
    for promotion, row in LOADED.items():
        assert bandwidth_share("load", width, 64, promotion) * 4559 == pytest.approx(row[column])
        assert bandwidth_share("store", width, 64, promotion) * 4319 == pytest.approx(STORED[column])


@pytest.mark.parametrize("rows", BY_ROWS)
def test_short_boxes_lose_what_was_measured_and_never_gain(rows):
    for column, width in enumerate(WIDTHS):
        lost = min(1, BY_ROWS[rows][column] / BY_ROWS[64][column])
        assert bandwidth_share("load", width, rows, "128B") == pytest.approx(lost * LOADED["128B"][column] / 4559)
        assert bandwidth_share("store", width, rows, "128B") == bandwidth_share("store", width, 64, "128B")


def test_the_promotion_is_the_fastest_for_dense_traffic():
    assert all(
        LOADED[best_promotion("dense")][column] == max(row[column] for row in LOADED.values()) for column in range(4)
    )
    assert ts.plan((64, 64), "bf16", traffic="sparse").best.l2_promotion == best_promotion("sparse") == "none"


def test_cycles_are_bytes_by_the_rate_of_one_multiprocessor():
    assert gmem_cycles("load", 1 << 20, 0.5) == round((1 << 20) / (0.5 * 4559e9 / 132 / 1.98e9))
