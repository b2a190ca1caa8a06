"""Orders that the detector knows in a run: through mbarriers, words, maps and tensor memory, of warps, blocks and clusters."""

import numpy as np
import pytest

import tilescope as ts
from tilescope.machine.edits import second_run

KERNEL = """
.version 8.8
.target TARGET
.address_size 64
.visible .entry k(.param .u64 data, .param .u64 flag) DIRECTIVES
{
    .shared .align 128 .b8 s[512];
    .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .pred %p<8>;
    mov.u32 %r1, %tid.x; mov.u32 %r2, s;
    ld.param.u64 %d1, [data]; ld.param.u64 %d2, [flag];
    setp.eq.u32 %p0, %r1, 0; setp.eq.u32 %p1, %r1, 1; setp.eq.u32 %p2, %r1, 32; setp.lt.u32 %p3, %r1, 32;
    BODY
    ret;
}
"""


def findings_of(body, blocks=1, threads=64, *, cluster=1, target="sm_90a", arrays=None):
    directives = f".reqnctapercluster {cluster}, 1, 1" if cluster > 1 else ""
    text = KERNEL.replace("BODY", body).replace("TARGET", target).replace("DIRECTIVES", directives)
    run = ts.Kernel(text).run(blocks, threads, arrays or [np.zeros(64, np.uint32), np.zeros(64, np.uint32)])
    assert run.outcome == "finished"
    return run.findings


def errors_of(body, threads=64):
    return {finding.rule for finding in findings_of(body, threads=threads) if finding.severity == "error"}


@pytest.mark.parametrize(("barrier", "expected"), [("bar.sync 0;", set()), ("", {"run-race"})])
def test_an_mbarrier_that_is_invalidated_is_written(barrier, expected):
    invalidated = "@%p0 mbarrier.init.shared.b64 [%r2], 1; @%p0 mbarrier.inval.shared.b64 [%r2];"
    assert (
        errors_of(f"{invalidated} {barrier} @%p2 ld.shared.b64 %d3, [%r2]; @%p2 st.global.b64 [%d1], %d3;") == expected
    )


HANDED_OVER = """
    @!%p2 bra reads;
    st.global.u32 [%d1], 5;
    fence.acq_rel.gpu;
    st.relaxed.gpu.global.u32 [%d2], 1;
    bra done;
reads:
    @!%p3 bra done;
    @!%p0 bra seen;
again:
    ld.relaxed.gpu.global.u32 %r3, [%d2];
    setp.ne.u32 %p4, %r3, 1;
    @%p4 bra again;
seen:
    BARRIER
    FENCE
    @%p1 ld.global.u32 %r4, [%d1];
    @%p1 st.global.u32 [%d1+128], %r4;
done:
"""


@pytest.mark.parametrize(
    ("barrier", "fence", "expected"),
    [
        ("bar.warp.sync -1;", "fence.acq_rel.gpu;", set()),
        ("bar.warp.sync -1;", "", {"run-race"}),
        ("", "fence.acq_rel.gpu;", {"run-race"}),
    ],
)
def test_what_one_lane_has_seen_a_warp_barrier_hands_to_the_fences_of_the_others(barrier, fence, expected):
    """Lane 0 reads the flag, and lane 1 the data."""
    assert errors_of(HANDED_OVER.replace("BARRIER", barrier).replace("FENCE", fence)) == expected


STORED = """
    shl.b32 %r3, %r1, 2; add.u32 %r3, %r3, %r2;
    st.shared.u32 [%r3], %r1;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    setp.ge.u32 %p5, %r1, ISSUERS;
    @%p5 bra done;
    SOURCE
    cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r2], 64;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
done:
"""


@pytest.mark.parametrize("issuers", [1, 2, 3, 32])
def test_lanes_may_store_the_same_bytes_to_the_same_place(issuers):
    assert errors_of(STORED.replace("ISSUERS", str(issuers)).replace("SOURCE", "")) == set()


@pytest.mark.parametrize("issuers", [2, 3])
def test_lanes_that_store_other_bytes_to_the_same_place_race(issuers):
    source = "shl.b32 %r4, %r1, 4; add.u32 %r2, %r2, %r4;"
    assert errors_of(STORED.replace("ISSUERS", str(issuers)).replace("SOURCE", source)) == {"run-race"}


ARRIVAL = "@%p0 mbarrier.arrive.shared.b64 %d3, [%r2];"


@pytest.mark.parametrize(
    ("between", "rule"),
    [
        ("", "run-race"),
        ("bar.sync 0;", "run-barrier-overwritten"),
        (f"bar.sync 0; {ARRIVAL}", "run-race"),
        (f"{ARRIVAL} bar.sync 0;", "run-barrier-overwritten"),
    ],
)
def test_a_store_over_an_mbarrier_races_with_its_uses_or_overwrites_it(between, rule):
    body = f"@%p0 mbarrier.init.shared.b64 [%r2], 2; {between} @%p2 st.shared.u64 [%r2], 5;"
    assert [finding.rule for finding in findings_of(body)] == [rule]


@pytest.mark.parametrize(("barrier", "expected"), [("bar.sync 0;", set()), ("", {"run-barrier-init"})])
def test_a_thread_may_test_an_mbarrier_behind_its_init(barrier, expected):
    body = f"""
    @%p0 mbarrier.init.shared.b64 [%r2], 1;
    {ARRIVAL}
    {barrier}
    @!%p2 bra done;
again:
    mbarrier.test_wait.parity.shared.b64 %p4, [%r2], 0;
    @!%p4 bra again;
done:
"""
    assert errors_of(body) == expected


@pytest.mark.parametrize(("expected_bytes", "mistakes"), [(128, []), (64, [(64, 128)])])
def test_bytes_are_counted_that_a_thread_expects_without_arriving(expected_bytes, mistakes):
    copy = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    body = f"""
    @!%p0 bra waits;
    mbarrier.init.shared.b64 [%r2], 1;
    mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], {expected_bytes};
    add.u32 %r4, %r2, 128;
    add.u32 %r5, %r2, 256;
    {copy} [%r4], [%d1], 64, [%r2];
    {copy} [%r5], [%d1], 64, [%r2];
    mbarrier.arrive.shared.b64 %d3, [%r2];
waits:
    bar.sync 0;
again:
    mbarrier.try_wait.parity.shared.b64 %p4, [%r2], 0;
    @!%p4 bra again;
    ld.shared.u32 %r6, [%r2+256];
    st.global.u32 [%d2], %r6;
"""
    errors = [finding for finding in findings_of(body) if finding.severity == "error"]
    assert [(error.values["expected"], error.values["came"]) for error in errors] == mistakes


@pytest.mark.parametrize(
    ("arrival", "rules"),
    [
        ("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4];", []),
        ("mbarrier.arrive.shared::cluster.b64 _, [%r4];", ["run-default-scope"]),
        ("mbarrier.arrive.release.cta.shared::cluster.b64 _, [%r4];", ["run-race"]),
    ],
)
def test_an_arrival_at_another_block_orders_stores_if_its_scope_is_the_cluster(arrival, rules):
    """Every thread stores a word to the other block, and reads the mirrored one of its own block."""
    body = f"""
    mov.u32 %r3, %cluster_ctarank;
    xor.b32 %r3, %r3, 1;
    @%p0 mbarrier.init.shared.b64 [%r2], 32;
    @%p0 fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    mapa.shared::cluster.u32 %r4, %r2, %r3;
    mad.lo.u32 %r5, %r1, 4, %r4;
    st.shared::cluster.u32 [%r5+128], %r1;
    {arrival}
again:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p4, [%r2], 0;
    @!%p4 bra again;
    xor.b32 %r6, %r1, 31;
    mad.lo.u32 %r6, %r6, 4, %r2;
    ld.shared.u32 %r7, [%r6+128];
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
"""
    found = findings_of(body, blocks=2, threads=32, cluster=2)
    assert [finding.rule for finding in found] == rules
    assert all("rank 1" in finding.values["before_who"] for finding in found)


@pytest.mark.parametrize(("skipping", "warps"), [("", []), ("@%p2 bra out;", []), ("@!%p3 bra out;", [1])])
def test_a_warp_that_exits_without_the_barrier_of_the_others_is_found(skipping, warps):
    """A thread alone may leave its warp; a whole warp has skipped the barrier if it reaches code behind it."""
    found = findings_of(f"{skipping} bar.sync 0; out: st.global.u32 [%d1], 1;")
    assert [finding.values["warp"] for finding in found if finding.rule == "run-skipped-barrier"] == warps


PASSED_ON = """
    @!%p2 bra reads;
    st.global.u32 [%d1], 5;
    RELEASE
    bra done;
reads:
    @!%p0 bra done;
again:
    ACQUIRE
    setp.ne.u32 %p4, %r3, 1;
    REPEAT
    ld.global.u32 %r4, [%d1];
    st.global.u32 [%d1+128], %r4;
done:
"""
RELEASE = "st.release.gpu.global.u32 [%d2], 1;"
RELAXED_STORE = "st.relaxed.gpu.global.u32 [%d2], 1;"
ACQUIRE = "ld.acquire.gpu.global.u32 %r3, [%d2];"
RELAXED_LOAD = "ld.relaxed.gpu.global.u32 %r3, [%d2];"


def passed_on(release, acquire, repeat):
    return PASSED_ON.replace("RELEASE", release).replace("ACQUIRE", acquire).replace("REPEAT", repeat)


@pytest.mark.parametrize(
    ("release", "acquire", "expected"),
    [
        (RELEASE, ACQUIRE, set()),
        (RELAXED_STORE, ACQUIRE, {"run-race"}),
        (RELEASE, RELAXED_LOAD, {"run-race"}),
    ],
)
def test_a_load_acquires_what_a_store_released_at_the_word(release, acquire, expected):
    assert errors_of(passed_on(release, acquire, "@%p4 bra again;")) == expected


@pytest.mark.parametrize(("repeat", "runs"), [("@%p4 bra again;", 0), ("@%p4 bra done;", 1)])
def test_a_poll_that_saw_the_flag_needs_no_second_run(monkeypatch, repeat, runs):
    """One that looks once reads the value before: the path behind a raised flag takes a run in which it looks later."""
    taken = []
    monkeypatch.setattr(second_run, "_take_other_outcome", lambda *arguments: taken.append(arguments))
    findings_of(passed_on(RELEASE, ACQUIRE, repeat))
    assert len(taken) == runs


@pytest.mark.parametrize(("blocks", "threads", "writer"), [(2, 32, 1), (1, 64, None)])
def test_a_stale_read_names_the_cluster_of_the_write_if_it_is_another(blocks, threads, writer):
    body = f"""
    mov.u32 %r3, {"%ctaid.x" if blocks == 2 else "%r1"};
    @!%p0 bra looks;
    setp.eq.u32 %p4, %r3, 0;
    @!%p4 bra looks;
    st.relaxed.gpu.global.u32 [%d2], 1;
    bra done;
looks:
    setp.eq.u32 %p5, %r1, {0 if blocks == 2 else 32};
    @!%p5 bra done;
    ld.relaxed.gpu.global.u32 %r4, [%d2];
    add.u32 %r4, %r4, 1;
    st.global.u32 [%d1], %r4;
done:
"""
    (found,) = findings_of(body, blocks, threads)
    assert (found.rule, found.values.get("cluster")) == ("run-early-load", writer)


def test_clusters_are_numbered_from_1():
    (found,) = findings_of("mov.u32 %r3, %ctaid.x; @%p0 st.global.u32 [%d1], %r3;", blocks=2)
    assert (found.rule, found.values["block"], found.values["cluster"]) == ("run-race", (1, 0, 0), 1)


@pytest.mark.parametrize(
    ("loads", "writer", "severity", "reader"),
    [
        ("@%p0 ld.global.nc.u32 %r3, [%d1]; @%p2 ld.global.nc.u32 %r3, [%d1+4];", "%p0", "error", "thread (32, 0, 0)"),
        ("@%p2 ld.global.nc.u32 %r3, [%d1]; @%p0 ld.global.nc.u32 %r3, [%d1+4];", "%p2", "error", "thread (0, 0, 0)"),
        ("@%p0 ld.global.nc.u32 %r3, [%d1+4];", "%p0", "warning", "thread (0, 0, 0)"),
    ],
    ids=["another warp's", "another warp's, in the second warp", "its own"],
)
def test_a_store_names_the_noncoherent_load_that_nothing_orders_before_it(loads, writer, severity, reader):
    """It writes elements 0 and 1, as they are; only element 1 was loaded by somebody else, or at all."""
    (found,) = findings_of(f"{loads} st.global.u32 [%d2], 1; @{writer} st.global.v2.u32 [%d1], {{0, 0}};")
    assert (found.rule, found.severity) == ("run-noncoherent-load", severity)
    assert (found.values["before_who"], found.values["element"]["index"]) == (reader, (1,))


@pytest.mark.parametrize(
    ("fences", "expected"),
    [(("release", "acquire"), set()), (("release",), {"run-map-fence"}), (("acquire",), {"run-map-fence"})],
    ids="-".join,
)
def test_a_copy_sees_an_edited_map_behind_a_release_and_an_acquire(fences, expected):
    instructions = {
        "release": "fence.proxy.tensormap::generic.release.gpu;",
        "acquire": "fence.proxy.tensormap::generic.acquire.gpu [%d1], 128;",
    }
    body = f"""
    add.u32 %r3, %r2, 256;
    @!%p0 bra waits;
    mbarrier.init.shared::cta.b64 [%r3], 1;
    tensormap.replace.tile.global_address.global.b1024.b64 [%d1], %d2;
    {" ".join(instructions[fence] for fence in fences)}
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 128;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%d1, {{0, 0}}], [%r3];
waits:
    bar.sync 0;
again:
    mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r3], 0;
    @!%p4 bra again;
"""
    words = np.zeros((4, 8), np.uint32)
    tensor_map = ts.TensorMap("u32", (8, 4), (32,), (8, 4), address=0x1000)
    edited = np.frombuffer(tensor_map.encode(), np.uint8).copy()
    assert {finding.rule for finding in findings_of(body, arrays=[edited, words])} == expected


@pytest.mark.parametrize(
    ("wait", "rules"),
    [
        ("tcgen05.wait::ld.sync.aligned;", {"run-tmem-unwritten"}),
        ("", {"run-tmem-unwritten", "run-tmem-order"}),
    ],
)
def test_a_store_behind_a_load_of_unwritten_columns_is_in_order_if_the_load_was_waited_for(wait, rules):
    body = f"""
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r2], 32;
    tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
    bar.warp.sync -1;
    ld.shared.u32 %r3, [%r2];
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r4}}, [%r3];
    {wait}
    tcgen05.st.sync.aligned.32x32b.x1.b32 [%r3], {{%r1}};
    tcgen05.wait::ld.sync.aligned;
    tcgen05.wait::st.sync.aligned;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, 32;
"""
    assert {finding.rule for finding in findings_of(body, threads=32, target="sm_100a")} == rules
