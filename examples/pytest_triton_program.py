"""Tests that launch Triton kernels as programs do, without a GPU: `pytest --tilescope examples/pytest_triton_program.py`.

`add[grid](…)` compiles as for a card, and runs here. Every launch is checked: an error fails the test, even if the numbers are
right. With torch, tensors on "cuda" work as they do on a card; here a numpy array is the tensor. Run as a program it starts pytest:

    $ python examples/pytest_triton_program.py
    ....                                                                     [100%]
    4 passed
"""

import subprocess
import sys

import numpy as np
import pytest

from tilescope.triton import tensor

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@triton.jit
def count_wrongly(total):
    tl.store(total, tl.load(total) + 1)  # programs overwrite each other's sums: tl.atomic_add(total, 1) would be right


@pytest.mark.parametrize("n", [1, 255, 256])
def test_sums(n):
    x, y = np.random.default_rng(0).normal(size=(2, n)).astype(np.float32)
    out = np.zeros(n, np.float32)
    add[(triton.cdiv(n, 128),)](tensor(x), tensor(y), tensor(out), n, BLOCK=128)
    assert (out == x + y).all()


@pytest.mark.tilescope(findings=["run-race"])
def test_the_race_is_found():
    count_wrongly[(4,)](tensor(np.zeros(1, np.int32)))


if __name__ == "__main__":
    options = ["-q", "--no-summary", "-p", "no:cacheprovider", "-p", "tilescope.pytest_plugin", "--tilescope"]
    options += ["-W", "ignore::UserWarning"]  # Triton 3.9 announces another default of its successor
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", *options, __file__]))
