"""Would my test notice a lost wait? Every mutant of a kernel, put through the test.

$ python examples/lost_wait.py
noticed  bar.sync removed, line 25
noticed  mbarrier.arrive.expect_tx.shared.b64 removed, line 22
noticed  mbarrier.try_wait.parity.shared.b64 passes at once, line 27
noticed  a wait polls once, line 28
noticed  mbarrier.init.shared.b64 with 1 arrival more, line 21
noticed  mbarrier.arrive.expect_tx.shared.b64 with 16 bytes more, line 22
noticed  mbarrier.arrive.expect_tx.shared.b64 with 16 bytes less, line 22
noticed  mbarrier.try_wait.parity.shared.b64 with the other parity, line 27
lost waits noticed: 2 of 2
"""

import numpy as np

import tilescope as ts
from tilescope.testing import assert_clean, assert_equal_to

PTX = """
.version 8.0
.target sm_90
.address_size 64

.visible .entry doubled(.param .u64 out, .param .u64 in)
{
    .shared .align 128 .b8 tile[512];
    .shared .align 8 .b64 full;
    .reg .pred %p<3>;
    .reg .b32 %r<7>;
    .reg .b64 %rd<5>;

    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [in];
    mov.u32 %r1, %tid.x;                      // 128 threads
    mov.u32 %r2, tile;
    mov.u32 %r3, full;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra $ready;
    mbarrier.init.shared.b64 [%r3], 1;        // one arrival, and 512 bytes
    mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 512;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd2], 512, [%r3];
$ready:
    bar.sync 0;
$wait:
    mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0;
    @!%p2 bra $wait;
    mad.lo.u32 %r4, %r1, 4, %r2;
    ld.shared.b32 %r5, [%r4];
    add.s32 %r6, %r5, %r5;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    st.global.b32 [%rd4], %r6;
    ret;
}
"""


def check(kernel):
    """The test: the run is clean, and the result is right."""
    numbers = np.arange(1, 129, dtype=np.int32)
    out = np.zeros_like(numbers)
    run = kernel.run(grid=1, block=128, args=[out, numbers])
    assert_clean(run)
    assert_equal_to(run, 0, 2 * numbers)


def is_noticed(mutant):
    try:
        check(mutant.kernel)
    except AssertionError:
        return True
    return False


kernel = ts.Kernel(PTX)
check(kernel)

noticed = {mutant: is_noticed(mutant) for mutant in kernel.mutants()}
for mutant, is_seen in noticed.items():
    print(f"{'noticed' if is_seen else 'missed ':8} {mutant}")

lost_waits = [is_seen for mutant, is_seen in noticed.items() if mutant.kind == "wait loop"]
print(f"lost waits noticed: {sum(lost_waits)} of {len(lost_waits)}")
