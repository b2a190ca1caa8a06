"""The enumerations of a map, beside those of the driver."""

import typing

import pytest

import tilescope as ts
from tilescope.data_type import DATA_TYPE
from tilescope.swizzle import SWIZZLE
from tilescope.tensor_map import option
from tilescope.tensor_map.option import INTERLEAVE, L2_PROMOTION, OOB_FILL, Interleave, L2Promotion, OobFill


@pytest.mark.parametrize(
    ("names", "table"),
    [
        (option.InterleaveName, INTERLEAVE),
        (option.L2PromotionName, L2_PROMOTION),
        (option.OobFillName, OOB_FILL),
    ],
)
def test_the_literal_names_are_those_of_the_table(names, table):
    assert typing.get_args(names) == tuple(table)
    assert [row.driver_code for row in table.values()] == list(range(len(table)))


@pytest.mark.parametrize(
    ("kind", "table"), [(Interleave, INTERLEAVE), (L2Promotion, L2_PROMOTION), (OobFill, OOB_FILL)]
)
def test_rows_are_found_by_either_name_whatever_the_case(kind, table):
    for row in table.values():
        for name in (row, row.name, row.name.upper(), row.driver_name, f" {row.driver_name.lower()} "):
            assert kind.named(name) is row
    with pytest.raises(ts.RuleError, match="unknown-name"):
        kind.named("512B")


def test_numbers_and_names_are_the_drivers():
    from cuda.bindings import driver

    ours = {
        "CUtensorMapInterleave": {row.driver_name: row.driver_code for row in INTERLEAVE.values()},
        "CUtensorMapL2promotion": {row.driver_name: row.driver_code for row in L2_PROMOTION.values()},
        "CUtensorMapFloatOOBfill": {row.driver_name: row.driver_code for row in OOB_FILL.values()},
        "CUtensorMapSwizzle": {
            f"CU_TENSOR_MAP_SWIZZLE_{row.name.upper()}": row.driver_code
            for row in SWIZZLE.values()
            if row.driver_code is not None
        },
        "CUtensorMapDataType": {
            f"CU_TENSOR_MAP_DATA_TYPE_{row.name.upper()}": row.driver_code
            for row in DATA_TYPE.values()
            if row.driver_code is not None
        },
        "CUtensorMapIm2ColWideMode": {"CU_TENSOR_MAP_IM2COL_WIDE_MODE_W": 0, "CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128": 1},
    }
    for name, rows in ours.items():
        assert rows == {each.name: int(each) for each in getattr(driver, name)}, name
