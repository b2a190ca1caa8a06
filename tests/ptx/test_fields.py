"""The modifiers of an instruction by what they say."""

import pytest

from tilescope.ptx.opcode import Fields, fields_of

WRITTEN_FORMS = """
mov.b16 mov.b32 mov.b64 mov.b128 mov.f32 mov.pred mov.u16 mov.u32 mov.s32 mov.u64
add.s16 add.s32 add.s64 add.u16 add.u32 add.u64 add.cc.u32 addc.cc.u32 sub.s32 sub.sat.s32 mul.lo.s32 mul.hi.u32 mul.wide.s32
mad.lo.s32 mad.wide.u32 mad.hi.cc.u32 mul24.lo.u32 div.u32 div.s32 rem.u32 rem.s32 min.s32 max.u64 max.s16x2 neg.s32 abs.s32
and.b16 or.b32 xor.b64 not.b32 shl.b32 shr.u32 shr.s32 bfe.u32 bfi.b32 bfind.shiftamt.u32 prmt.b32 prmt.b32.f4e popc.b32
clz.b64 brev.b32 shf.l.wrap.b32 shf.r.clamp.b32 lop3.b32 dp4a.u32.s32 dp2a.lo.u32.s32 fns.b32 szext.clamp.s32 bmsk.wrap.b32
add.f16 add.rn.f16x2 add.rn.bf16 add.rn.bf16x2 add.f32 add.rn.ftz.f32 add.rz.sat.f32 add.rn.f32x2 add.rn.f64 sub.f32 mul.rn.f32
fma.rn.f32 fma.rn.relu.f16x2 fma.rn.bf16x2 div.full.f32 div.rn.f32 div.approx.ftz.f32 neg.f32 abs.ftz.f32 max.f32 max.NaN.f32
max.ftz.xorsign.abs.f32 min.f16x2 ex2.approx.ftz.f32 ex2.approx.f16x2 lg2.approx.f32 rcp.approx.ftz.f32 rcp.rn.f64
rsqrt.approx.f32 sqrt.rn.f32 sqrt.approx.f32 sin.approx.f32 cos.approx.f32 tanh.approx.f32 copysign.f32 testp.finite.f32
cvt.rn.f16.f32 cvt.rzi.s32.f32 cvt.rni.ftz.f32.f32 cvt.rna.tf32.f32 cvt.rn.f16x2.f32 cvt.rn.relu.bf16x2.f32
cvt.rn.satfinite.e4m3x2.f32 cvt.rn.f16x2.e4m3x2 cvt.rn.satfinite.e5m2x2.f16x2 cvt.rn.satfinite.e2m1x2.f32
cvt.rp.satfinite.ue8m0x2.f32 cvt.rn.bf16x2.ue8m0x2 cvt.sat.u8.s32 cvt.u64.u32 cvt.pack.sat.u8.s32.b32
cvt.rs.satfinite.e4m3x4.f32
setp.eq.s32 setp.lt.and.u32 setp.lo.u32 setp.neu.ftz.f32 setp.nan.f32 set.lt.u32.f32 set.hi.u32.u32 selp.b32 slct.f32.s32
bra bra.uni brx.idx brx.idx.uni call.uni call ret ret.uni exit trap brkpt
ld.global.b32 ld.global.nc.v4.b32 ld.shared::cta.b8 ld.shared::cluster.b32 ld.local.f32 ld.param.b64 ld.const.f32 ld.b128
ld.global.L1::no_allocate.L2::cache_hint.v4.f32 ld.global.L1::evict_last.L2::128B.v8.f32 ld.volatile.global.u32
ld.relaxed.gpu.global.u32 ld.acquire.sys.global.u32 ld.acquire.cluster.shared::cluster.b32 ld.global.ca.b32 ld.global.lu.b32
ld.mmio.relaxed.sys.global.u32 st.global.cs.v2.b64 st.release.gpu.global.u32 st.weak.global.wt.b32 st.param.b32
st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 st.bulk.weak.shared::cta
atom.global.add.u32 atom.global.gpu.acq_rel.add.u32 atom.shared.cas.b32 atom.add.noftz.f16x2 atom.global.v4.f32.add
atom.global.min.s64 atom.inc.u32 atom.exch.b128 red.global.add.f32 red.relaxed.gpu.global.max.u32
red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32
cvta.to.global.u64 cvta.global.u64 cvta.param.u64 cvta.to.shared::cta.u64 mapa.shared::cluster.u32 mapa.u64
getctarank.shared::cluster.u32 isspacep.shared::cluster prefetch.global.L2 prefetch.tensormap prefetch.param.tensormap
prefetch.global.L2::evict_last prefetchu.L1 applypriority.global.L2::evict_normal discard.global.L2
createpolicy.fractional.L2::evict_first.b64 createpolicy.range.global.L2::evict_last.L2::evict_unchanged.b64
shfl.sync.bfly.b32 shfl.sync.idx.b32 shfl.sync.up.b32 shfl.sync.down.b32 vote.sync.ballot.b32 vote.sync.any.pred
vote.sync.uni.pred match.any.sync.b32 match.all.sync.b64 redux.sync.add.s32 redux.sync.max.abs.NaN.f32 activemask.b32
elect.sync bar.warp.sync
bar.sync bar.arrive bar.red.popc.u32 bar.red.and.pred barrier.sync barrier.sync.aligned barrier.arrive.aligned
barrier.cta.sync.aligned barrier.cluster.arrive.release.aligned barrier.cluster.arrive.relaxed.aligned
barrier.cluster.wait.acquire.aligned barrier.cluster.wait membar.gl membar.cta membar.sys fence.acq_rel.gpu fence.sc.sys
fence.acquire.cluster fence.proxy.async fence.proxy.async.shared::cta fence.proxy.async.global fence.proxy.alias
fence.proxy.tensormap::generic.release.gpu fence.proxy.tensormap::generic.acquire.sys fence.mbarrier_init.release.cluster
fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster setmaxnreg.inc.sync.aligned.u32
setmaxnreg.dec.sync.aligned.u32 griddepcontrol.wait griddepcontrol.launch_dependents nanosleep.u32
cp.async.ca.shared.global cp.async.cg.shared::cta.global.L2::128B cp.async.commit_group cp.async.wait_group cp.async.wait_all
cp.async.mbarrier.arrive.noinc.shared::cta.b64 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes cp.async.bulk.global.shared::cta.bulk_group
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2
cp.async.bulk.tensor.4d.shared::cta.global.im2col.mbarrier::complete_tx::bytes
cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes
cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group cp.async.bulk.tensor.3d.global.shared::cta.im2col_no_offs.bulk_group
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16
cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.inc.u32
cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group cp.async.bulk.commit_group cp.async.bulk.wait_group
cp.async.bulk.wait_group.read cp.async.bulk.prefetch.L2.global cp.async.bulk.prefetch.tensor.2d.L2.global.tile
tensormap.replace.tile.global_address.global.b1024.b64 tensormap.replace.tile.box_dim.shared::cta.b1024.b32
tensormap.replace.tile.swizzle_mode.global.b1024.b32
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned
mbarrier.init.shared::cta.b64 mbarrier.inval.b64 mbarrier.arrive.shared::cta.b64 mbarrier.arrive.expect_tx.shared.b64
mbarrier.arrive.release.cluster.shared::cluster.b64 mbarrier.arrive.noComplete.release.cta.shared.b64 mbarrier.arrive_drop.b64
mbarrier.expect_tx.relaxed.cta.shared::cta.b64 mbarrier.complete_tx.shared::cluster.b64 mbarrier.test_wait.shared.b64
mbarrier.test_wait.parity.shared.b64 mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 mbarrier.pending_count.b64
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.s8.s32
mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32
mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f16.f16.f16.f16
mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0
ldmatrix.sync.aligned.m8n8.x4.shared.b16 ldmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16
ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8x16.b6x16_p32 stmatrix.sync.aligned.m8n8.x4.shared.b16
stmatrix.sync.aligned.m16n8.x2.trans.shared.b8 movmatrix.sync.aligned.m8n8.trans.b16
wgmma.fence.sync.aligned wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 wgmma.commit_group.sync.aligned
wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 wgmma.mma_async.sync.aligned.m64n8k32.s32.satfinite.s8.u8
wgmma.wait_group.sync.aligned
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 tcgen05.dealloc.cta_group::2.sync.aligned.b32
tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned tcgen05.ld.sync.aligned.32x32b.x64.b32
tcgen05.ld.sync.aligned.16x32bx2.x8.b32 tcgen05.ld.sync.aligned.16x64b.x8.pack::16b.b32
tcgen05.st.sync.aligned.16x128b.x2.unpack::16b.b32
tcgen05.wait::ld.sync.aligned tcgen05.wait::st.sync.aligned tcgen05.mma.cta_group::1.kind::f16
tcgen05.mma.sp.cta_group::2.kind::i8.collector::a::lastuse tcgen05.mma.ws.cta_group::1.kind::tf32.collector::b1::fill
tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X tcgen05.cp.cta_group::1.128x256b
tcgen05.cp.cta_group::2.64x128b.warpx2::02_13.b8x16.b4x16_p64 tcgen05.cp.cta_group::1.32x128b.warpx4
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 tcgen05.shift.cta_group::1.down
tcgen05.fence::before_thread_sync tcgen05.fence::after_thread_sync
"""
FORMS = WRITTEN_FORMS.split()


@pytest.mark.parametrize("form", FORMS)
def test_every_word_of_a_form_is_known(form):
    name, *modifiers = form.split(".")
    assert fields_of(name, tuple(modifiers)).unknown == ()


def test_a_word_that_no_table_has_is_told():
    assert fields_of("ld", ("global", "sideways", "b32")).unknown == ("sideways",)


@pytest.mark.parametrize(
    ("form", "fields"),
    [
        ("ret", Fields("ret")),
        ("ld.b32", Fields("ld", types=("b32",))),
        (
            "ld.acquire.gpu.global.L1::no_allocate.L2::cache_hint.v4.b32",
            Fields(
                "ld",
                spaces=("global",),
                types=("b32",),
                vector=4,
                scope="gpu",
                order="acquire",
                hints=("L1::no_allocate", "L2::cache_hint"),
            ),
        ),
        ("ld.global.nc.b32", Fields("ld", spaces=("global",), types=("b32",), cache="nc")),
        (
            "cvt.rn.ftz.satfinite.f16x2.f32",
            Fields("cvt", types=("f16x2", "f32"), rounding="rn", flags=frozenset({"ftz", "satfinite"})),
        ),
        ("setp.lo.and.u32", Fields("setp", types=("u32",), comparison="lo", operation="and")),
        ("mul.lo.u32", Fields("mul", types=("u32",), half="lo")),
        ("shfl.sync.down.b32", Fields("shfl", types=("b32",), mode="down", flags=frozenset({"sync"}))),
        ("bar.sync", Fields("bar.sync")),
        ("bar.red.and.pred", Fields("bar.red", types=("pred",), operation="and")),
        ("membar.gl", Fields("membar", scope="gl")),
        (
            "fence.proxy.tensormap::generic.acquire.gpu",
            Fields("fence.proxy.tensormap::generic", scope="gpu", order="acquire"),
        ),
        (
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
            Fields(
                "mma",
                types=("f32", "bf16", "bf16", "f32"),
                shapes=("m16n8k16",),
                layouts=("row", "col"),
                flags=frozenset({"sync", "aligned"}),
            ),
        ),
        (
            "ldmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16",
            Fields(
                "ldmatrix",
                spaces=("shared::cta",),
                types=("b16",),
                shapes=("m8n8",),
                count=4,
                flags=frozenset({"sync", "aligned", "trans"}),
            ),
        ),
        (
            "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.cta_group::2",
            Fields(
                "cp.async.bulk.tensor",
                spaces=("shared::cluster", "global"),
                rank=3,
                completion="mbarrier::complete_tx::bytes",
                cta_group=2,
                flags=frozenset({"im2col"}),
            ),
        ),
        (
            "tcgen05.mma.ws.cta_group::1.kind::f16",
            Fields("tcgen05.mma.ws", cta_group=1, kind="kind::f16"),
        ),
        (
            "atom.global.sys.acq_rel.cas.b64",
            Fields("atom", spaces=("global",), types=("b64",), scope="sys", order="acq_rel", operation="cas"),
        ),
    ],
)
def test_words_are_told_by_what_they_say(form, fields):
    name, *modifiers = form.split(".")
    assert fields_of(name, tuple(modifiers)) == fields


def test_the_first_space_and_type_have_names():
    fields = fields_of("cvta", ("to", "global", "u64"))
    assert (fields.space, fields.type) == ("global", "u64")
    assert fields_of("ld", ("b32",)).space is None
    assert fields_of("ret", ()).type is None
