"""A kernel checked in pytest, without a GPU: `pytest examples/pytest_kernel.py`, or run as a program.

In a project of its own the plugin is there once tilescope is installed, and this file would be tests/test_kernel.py.

    $ python examples/pytest_kernel.py
    ..                                                                       [100%]
    2 passed
"""

import subprocess
import sys

import numpy as np
import pytest

import tilescope as ts
from tilescope.testing import assert_equal_to

PTX = """
.version 8.0
.target sm_90
.address_size 64

.visible .entry reversed(.param .u64 out, .param .u64 in)
{
    .shared .align 4 .b8 tile[512];
    .reg .b32 %r<8>;
    .reg .b64 %rd<6>;

    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [in];
    mov.u32 %r1, %tid.x;                      // 128 threads
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.b32 %r2, [%rd4];
    mov.u32 %r3, tile;
    mad.lo.u32 %r4, %r1, 4, %r3;
    st.shared.b32 [%r4], %r2;
    bar.sync 0;                               // the other end of the tile is another warp's
    mad.lo.u32 %r5, %r1, -4, %r3;
    ld.shared.b32 %r6, [%r5+508];
    add.s64 %rd5, %rd1, %rd3;
    st.global.b32 [%rd5], %r6;
    ret;
}
"""


@pytest.mark.parametrize("seed", [0, 1])
def test_a_tile_is_reversed(tilescope_run, seed):
    numbers = np.random.default_rng(seed).integers(0, 1000, 128, dtype=np.int32)
    out = np.zeros_like(numbers)
    run = tilescope_run(
        ts.Kernel(PTX), grid=1, block=128, args=[out, numbers]
    )  # fails where something is wrong with the run
    assert_equal_to(run, 0, numbers[::-1])


if __name__ == "__main__":
    options = ["-q", "-p", "no:cacheprovider", "-p", "tilescope.pytest_plugin"]
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", *options, __file__]))
