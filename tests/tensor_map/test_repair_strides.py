"""The strides that broken rules name together are those that --fix takes."""

import pytest

import tilescope as ts
from tilescope.tensor_map import MapArguments


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
