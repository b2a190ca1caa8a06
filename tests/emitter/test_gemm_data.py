"""The test data of emitted GEMMs: sums that C can hold, so that a wrong product is seen."""

import re

import numpy as np
import pytest

import tilescope as ts


@pytest.mark.thinned(3)
@pytest.mark.parametrize("data_type", ["u8", "s8", "e4m3", "bf16"])
@pytest.mark.parametrize("k", [64, 512])
def test_sums_stay_in_the_range_of_c_and_notice_spoiled_input(data_type, k):
    m, n = 64, 64
    source = ts.emit(ts.plan_gemm(m, n, k, data_type), "python")
    names = {"np": np}
    exec(re.search(r"^def numbers.*?(?=^\S)", source, re.MULTILINE | re.DOTALL)[0], names)
    least = 0 if data_type == "u8" else -1
    a, b = (names["numbers"](rows * k, seed).astype(np.int64) + least for rows, seed in ((m, 0), (n, m * k)))
    largest = {"u8": 255, "s8": 127, "e4m3": 448, "bf16": 1 << 100}[data_type]
    product = a.reshape(m, k) @ b.reshape(n, k).T
    assert (abs(product) < largest).mean() > 0.2
    assert len(np.unique(product)) > 10
    a[:k] = least + 2  # what an argument of the program does
    assert ((a.reshape(m, k) @ b.reshape(n, k).T)[0] != product[0]).mean() > 0.5
