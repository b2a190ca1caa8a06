"""The driver's verdict and the driver's bytes, on all recorded calls (tests/golden/descriptors.md)."""

from itertools import count
from pathlib import Path

import numpy as np
import pytest

import tilescope as ts
from tilescope.data_type import DATA_TYPE
from tilescope.swizzle import SWIZZLE
from tilescope.tensor_map.option import INTERLEAVE, L2_PROMOTION, OOB_FILL

GOLDEN = Path(__file__).parent.parent / "golden"
TABLES = {
    "data_type": DATA_TYPE,
    "interleave": INTERLEAVE,
    "swizzle": SWIZZLE,
    "l2_promotion": L2_PROMOTION,
    "oob_fill": OOB_FILL,
}
FEWER = {"dims": 0, "strides_bytes": 1, "box": 0, "element_strides": 0, "lower_corner": 2, "upper_corner": 2}
KINDS = {"tiled": ts.TensorMap, "im2col": ts.Im2colMap}


def recordings(kind):
    """Each call's number, arguments and 128 bytes (None: refused)."""
    with np.load(GOLDEN / f"descriptors_{kind}.npz") as file:
        columns = {name: file[name].tolist() for name in file.files if name != "descriptor"}
        descriptors = iter(np.pad(file["descriptor"], ((0, 0), (0, 6))).astype("<u8"))
    results, ranks = columns.pop("driver_result"), columns.pop("rank")
    names = {
        name: {row.driver_code: row.name for row in table.values() if row.driver_code is not None}
        for name, table in TABLES.items()
    }
    for number, result, rank, *values in zip(count(), results, ranks, *columns.values()):
        arguments = {}
        for name, value in zip(columns, values, strict=True):
            if name in TABLES:
                arguments[name] = names[name].get(value, f"number {value}")
            elif name in FEWER:
                arguments[name] = (*value, 1)[: max(0, rank - FEWER[name])]  # rank 6: a sixth entry, of 1
            else:
                arguments[name] = value
        yield number, arguments, None if result else next(descriptors).tobytes()
    assert next(descriptors, None) is None


@pytest.mark.parametrize("kind", KINDS)
def test_verdict_and_bytes_are_those_of_the_driver(kind, pytestconfig):
    make = KINDS[kind]
    step = 7 if pytestconfig.getoption("--thinned") else 1
    calls = 0
    for number, arguments, recorded in recordings(kind):
        calls += 1
        if number % step:
            continue
        if recorded is None:
            assert any(found.severity == "error" for found in make.check(**arguments)), (number, arguments)
            continue
        tensor_map = make(**arguments)  # which checks, too
        assert tensor_map.encode() == recorded, (number, arguments)
        if number % 4 == 0:  # another test holds that decoding is the inverse of encoding
            assert ts.decode_tensor_map(recorded) == tensor_map, (number, arguments)
    assert calls == {"tiled": 20000, "im2col": 10000}[kind]
