"""Copies that signal a pair of blocks, and clusters that take over the work of others."""

import numpy as np
import pytest

import tilescope as ts

MULTICAST = """
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .align 128 .b8 map[128], .param .u64 out)
{{
    .shared .align 128 .b8 tile[1024];
    .shared .align 8 .b64 full;
    .reg .b16 %h<2>;
    .reg .b32 %r<9>;
    .reg .b64 %d<5>;
    .reg .pred %p<4>;
    mov.b64 %d1, map;
    ld.param.u64 %d2, [out];
    mov.u32 %r1, %cluster_ctarank;
    setp.eq.u32 %p1, %r1, 0;
    mbarrier.init.shared.b64 [full], 1;
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    mov.u32 %r2, 0;
    mov.b16 %h1, 3;
    @!%p1 bra END;
    mbarrier.arrive.expect_tx.shared.b64 _, [full], 2048;
    cp.async.bulk.tensor.2d{group}.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster
        [tile], [%d1, {{%r2, %r2}}], [full], %h1;
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p2, [full], 0;
    @!%p2 bra WAIT;
END:
    barrier.cluster.arrive;
    barrier.cluster.wait;
    shl.b32 %r3, %r1, 10;
    cvt.u64.u32 %d3, %r3;
    add.u64 %d3, %d2, %d3;
    cp.async.bulk.global.shared::cta.bulk_group [%d3], [tile], 1024;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    ret;
}}
"""


def multicast(group):
    memory = ts.Memory()
    source, out = np.arange(256, dtype=np.uint32).reshape(8, 32), np.zeros((2, 8, 32), np.uint32)
    tensor_map = memory.map(source, (32, 8), arch="sm_100")
    run = ts.Kernel(MULTICAST.format(group=group)).run(2, 1, [tensor_map, out], memory=memory, cluster=2, advice="none")
    return run, (out == source).all()


def test_a_pair_is_signalled_at_one_mbarrier():
    """With .cta_group::2 the bytes of both blocks come to the mbarrier of the block whose rank is even, as the one named."""
    run, is_equal = multicast(".cta_group::2")
    assert run.outcome == "finished"
    assert is_equal
    assert [finding for finding in run.findings if finding.severity == "error"] == []


def test_without_a_group_every_block_is_signalled_at_its_own():
    run, _ = multicast("")
    assert run.outcome == "hang"


TAKE_OVER = """
.version 9.0
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 a)
{
    .shared .align 16 .b8 answer[16];
    .shared .align 8 .b64 m;
    .reg .b32 %r<9>;
    .reg .b64 %d<9>;
    .reg .b128 %q<2>;
    .reg .pred %p<4>;
    ld.param.u64 %d1, [a];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %tid.x;
    setp.eq.u32 %p1, %r2, 0;
    mov.u32 %r5, 0;
    @%p1 mbarrier.init.shared.b64 [m], 1;
    bar.sync 0;
LOOP:
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [m], 16;
    @%p1 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [answer], [m];
    mul.wide.u32 %d2, %r1, 4;
    add.u64 %d2, %d2, %d1;
    @%p1 red.global.add.u32 [%d2], 1;
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p2, [m], %r5;
    @!%p2 bra WAIT;
    xor.b32 %r5, %r5, 1;
    ld.shared.b128 %q1, [answer];
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p3, %q1;
    @%p3 clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r1, %r3, %r4, _}, %q1;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    @%p3 bra LOOP;
    ret;
}
"""


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_every_tile_is_worked_on_once(seed):
    """Whether a block takes over all others, or some of them begin themselves."""
    tiles = np.zeros(10, np.uint32)
    run = ts.Kernel(TAKE_OVER).run(10, 32, [tiles], seed=seed)
    assert run.outcome == "finished"
    assert tiles.tolist() == [1] * 10
    assert [finding for finding in run.findings if finding.severity != "note"] == []
