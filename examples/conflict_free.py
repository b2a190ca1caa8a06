"""A transpose through shared memory, asserted to be free of bank conflicts: once it is not, and once a padding cures it.

$ python examples/conflict_free.py
rows of 128 bytes: 1 access of shared memory with bank conflicts:
  PTX line 33 (ld.shared.b32 %r7, [%r4]): 1024 wavefronts, 32 would do
rows of 132 bytes: free of conflicts
"""

import numpy as np

import tilescope as ts
from tilescope.testing import assert_conflict_free, assert_equal_to


def transpose(row_bytes):
    """A warp reads 32 x 32 integers by rows into shared memory, whose rows have `row_bytes`, and writes them by columns."""
    return ts.Kernel(f"""
.version 8.0
.target sm_90
.address_size 64

.visible .entry transpose(.param .u64 out, .param .u64 in)
{{
    .shared .align 4 .b8 tile[{32 * row_bytes}];
    .reg .pred %p<2>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<4>;

    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [in];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd1, %rd1, %rd3;
    add.s64 %rd2, %rd2, %rd3;
    mov.u32 %r2, tile;
    mad.lo.u32 %r3, %r1, 4, %r2;              // lane 4 bytes on: a row
    mad.lo.u32 %r4, %r1, {row_bytes}, %r2;    // lane a row on: a column
    mov.u32 %r5, 0;
$rows:
    ld.global.b32 %r6, [%rd2];
    st.shared.b32 [%r3], %r6;
    add.s64 %rd2, %rd2, 128;
    add.s32 %r3, %r3, {row_bytes};
    add.s32 %r5, %r5, 1;
    setp.lt.u32 %p1, %r5, 32;
    @%p1 bra $rows;
    bar.warp.sync -1;
$columns:
    ld.shared.b32 %r7, [%r4];
    st.global.b32 [%rd1], %r7;
    add.s64 %rd1, %rd1, 128;
    add.s32 %r4, %r4, 4;
    add.s32 %r5, %r5, -1;
    setp.ne.u32 %p1, %r5, 0;
    @%p1 bra $columns;
    ret;
}}
""")


numbers = np.arange(1024, dtype=np.int32).reshape(32, 32)
for row_bytes in (128, 132):
    out = np.zeros_like(numbers)
    run = transpose(row_bytes).run(grid=1, block=32, args=[out, numbers])
    assert_equal_to(run, 0, numbers.T)
    try:
        assert_conflict_free(run, "ld.shared")
    except AssertionError as conflict:
        print(f"rows of {row_bytes} bytes: {conflict}")
    else:
        print(f"rows of {row_bytes} bytes: free of conflicts")
