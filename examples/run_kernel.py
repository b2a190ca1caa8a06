"""A kernel of one warp, run without a GPU: the sums of rows by shuffles, held against numpy.

$ python examples/run_kernel.py
finished: 312 warp instructions
every bit is the card's: True
busiest: shfl.sync.bfly.b32 %r6, %r4, %r5, 31, -1, 40 times
equal to numpy: True
"""

import numpy as np

import tilescope as ts

PTX = """
.version 8.0
.target sm_90
.address_size 64

.visible .entry row_sums(.param .u64 sums, .param .u64 rows)
{
    .reg .pred %p<3>;
    .reg .b32 %r<12>;
    .reg .b64 %rd<8>;

    ld.param.u64 %rd1, [sums];
    ld.param.u64 %rd2, [rows];
    mov.u32 %r1, %ctaid.x;                    // one block a row of 32 integers
    mov.u32 %r2, %laneid;
    mad.lo.u32 %r3, %r1, 32, %r2;
    mul.wide.u32 %rd3, %r3, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.b32 %r4, [%rd4];
    mov.b32 %r5, 16;                          // lanes 16, 8, 4, 2, 1 apart
$halve:
    shfl.sync.bfly.b32 %r6, %r4, %r5, 31, -1;
    add.s32 %r4, %r4, %r6;
    shr.u32 %r5, %r5, 1;
    setp.ne.s32 %p1, %r5, 0;
    @%p1 bra $halve;

    setp.ne.s32 %p2, %r2, 0;                  // lane 0 stores
    mul.wide.u32 %rd5, %r1, 4;
    add.s64 %rd6, %rd1, %rd5;
    @!%p2 st.global.b32 [%rd6], %r4;
    ret;
}
"""

kernel = ts.Kernel(PTX)
rows = np.random.default_rng(0).integers(-1000, 1000, (8, 32), dtype=np.int32)
sums = np.zeros(8, np.int32)
run = kernel.run(grid=8, block=32, args=[sums, rows])
print(f"{run.outcome}: {sum(line.warps for line in run.instructions)} warp instructions")
print("every bit is the card's:", run.exact)
busiest = max(run.instructions, key=lambda line: line.warps)
print(f"busiest: {busiest.ptx_text}, {busiest.warps} times")
print("equal to numpy:", bool((sums == rows.sum(axis=1)).all()))
