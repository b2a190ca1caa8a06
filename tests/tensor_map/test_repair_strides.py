"""The strides that broken rules name together are those that --fix takes."""

import pytest

import tilescope as ts
from tilescope.tensor_map import MapArguments
from tilescope.tensor_map.repair import _dense_strides


@pytest.mark.parametrize(
    ("dims", "strides_bytes", "together"),
    [
        ((103, 57, 7, 5, 3), (206, 11742, 82194, 410970), (208, 11856, 82992, 414960)),
        ((1023, 1024, 4), (2046, 2095104), (2048, 2097152)),
        ((100, 57), (200,), (208,)),
        ((64, 8, 4), (136, 4096), (144, 4096)),  # room for the padded rows
        ((103, 57, 4), (206, 0), (208, 0)),  # a broadcast stays
    ],
)
def test_fixes_printed_together_are_what_fix_does(dims, strides_bytes, together):
    box = (8, *(1 for _ in dims[1:]))
    broken = [row for row in ts.TensorMap.check("bf16", dims, strides_bytes, box) if row.rule == "stride-alignment"]
    assert {row.change["strides_bytes"] for row in broken} == {together}
    given = {"data_type": "bf16", "dims": dims, "strides_bytes": strides_bytes, "box": box}
    assert MapArguments.of(given).repaired().given["strides_bytes"] == together
    assert [row.values["taken"] for row in broken] == [together[row.values["axis"]] for row in broken]


def test_a_window_that_overlapped_before_stays_though_smaller_strides_are_padded():
    """Rows of 20 bytes, four of them every 24 bytes: they end at byte 92, so a stride of 80 bytes overlaps and 96 does not."""
    for window, together in ((80, (32, 80)), (96, (32, 128))):
        (broken,) = [
            row
            for row in ts.TensorMap.check("u8", (20, 4, 2), (24, window), (16, 1, 1))
            if row.rule == "stride-alignment"
        ]
        assert broken.change["strides_bytes"] == together


@pytest.mark.parametrize(
    ("dims", "strides_bytes"),
    [
        ((64,), ()),
        ((64, 8), (128,)),
        ((64, 8, 4), (128, 1024)),
        ((64, 1, 4, 2), (128, 128, 512)),  # one row: the next index is as far
        ((64, 0, 4), (128, 128)),  # none is told elsewhere
        ((0, 8, 4), (16, 128)),
        ((60, 8, 4), (128, 1024)),  # a row of 120 bytes, padded to 16
    ],
)
def test_dense_strides_leave_no_gap_but_the_padding_of_a_row(dims, strides_bytes):
    assert _dense_strides({"data_type": "bf16", "dims": dims}) == strides_bytes
