"""Every setting of a benchmark fits the card and moves more than its caches hold."""

import pytest

import tilescope as ts
from tilescope.gpu.bench.bench_settings import SETTINGS
from tilescope.gpu.bench.stream_timing import LEAST_BYTES, MATRIX_BYTES, MAX_BOXES, MAX_STAGES

SM_SMEM_BYTES = 224 * 1024  # that the blocks of an SM may share


@pytest.mark.parametrize("topic", ["loads", "stores"])
def test_every_setting_fits_an_sm_and_moves_more_than_any_cache_holds(topic):
    for table, setting, case in SETTINGS[topic](132):
        smem_bytes = case["blocks_per_sm"] * case["streams"] * case["stages"] * case["stage_bytes"]
        assert smem_bytes <= SM_SMEM_BYTES, (table, setting)
        assert case["stages"] <= MAX_STAGES
        assert case["streams"] * case["issuers"] <= 32
        assert len(case["boxes"]) <= MAX_BOXES
        assert all(box[2] % 128 == 0 for box in case["boxes"])
        tensor_map = ts.TensorMap.from_dict(case["map"])
        rows_x, rows_y = (extent // step * step for extent, step in zip(tensor_map.dims, case["tile"], strict=True))
        assert case["bytes"] == rows_x * rows_y * tensor_map.data_type.bits // 8  # every element of whole tiles, once
        assert LEAST_BYTES <= case["bytes"] <= MATRIX_BYTES, (table, setting)
