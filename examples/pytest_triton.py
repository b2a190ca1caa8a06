"""A Triton kernel checked in pytest, without a GPU: `pytest examples/pytest_triton.py`, or run as a program.

Triton compiles for Hopper without a card, and the kernel runs here. The fixture `tilescope_run` fails the test at a race, a
fault or an access outside the arrays, also where the numbers are right. The lengths are those where masks go wrong.

    $ python examples/pytest_triton.py
    ...                                                                      [100%]
    3 passed
"""

import subprocess
import sys

import numpy as np
import pytest

import tilescope as ts
from tilescope.testing import assert_equal_to

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")


@triton.jit
def row_softmax(out, rows, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    place = tl.arange(0, BLOCK)
    inside = place < columns
    values = tl.load(rows + row * columns + place, mask=inside, other=float("-inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + place, powers / tl.sum(powers, axis=0), mask=inside)


@pytest.mark.parametrize("columns", [1, 127, 128])
def test_rows_add_up_to_one(tilescope_run, columns):
    kernel = ts.Kernel.from_triton(row_softmax, "*fp32, *fp32, i32", {"BLOCK": 128}, num_warps=2)
    rows = np.random.default_rng(0).normal(size=(4, columns)).astype(np.float32)
    out = np.zeros_like(rows)
    run = tilescope_run(kernel, grid=4, args=[out, rows, columns])
    powers = np.exp(rows - rows.max(axis=1, keepdims=True))
    assert_equal_to(run, 0, powers / powers.sum(axis=1, keepdims=True), rtol=1e-6)


if __name__ == "__main__":
    options = ["-q", "-p", "no:cacheprovider", "-p", "tilescope.pytest_plugin"]
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", *options, __file__]))
