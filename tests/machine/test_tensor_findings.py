"""Findings about tensor memory: what is missing is found, and right code has none."""

import numpy as np
import pytest
from tensor_memory_text import SMEM, SMEM_BYTES, Operand, text

import tilescope as ts

COLUMNS = 64
WORD = ts.InstructionDescriptor("f16", 128, 32, a_type="f16")
A = Operand(np.ones((128, 16), np.uint16), SMEM, swizzle="32B")
B = Operand(np.ones((32, 16), np.uint16), SMEM + 0x8000, swizzle="32B")
MMA = f"mov.b32 %r8, {WORD.encode():#x}; tcgen05.mma.cta_group::1.kind::f16 [%r1], %a0, %a1, %r8, %p6;"
RIGHT = text(MMA, COLUMNS, blocks=1, arguments=2, target="sm_100a")
COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [done];"


def found(kernel_text, seed=None):
    """(severity, rule) of what is wrong, costs left out."""
    arrays = [np.zeros(SMEM_BYTES, np.uint8), np.zeros((128, COLUMNS), np.uint32), np.zeros((128, COLUMNS), np.uint32)]
    arguments = [*arrays, A.word, B.word]
    options = {"smem_bytes": SMEM + SMEM_BYTES, "record": False, "advice": "none", "seed": seed}
    run = ts.Kernel(kernel_text).run(1, 128, arguments, **options)
    return {(finding.severity, finding.rule) for finding in run.findings if not finding.rule.startswith("run-sectors")}


def without(*pieces):
    """The right kernel without some pieces of its text."""
    changed = RIGHT
    for piece in pieces:
        assert piece in changed
        changed = changed.replace(piece, "")
    return changed


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_nothing_is_wrong_with_the_right_kernel(seed):
    assert found(RIGHT, seed) == set()


WAIT_FOR_DONE = "mbarrier.try_wait.parity.shared.b64 %p5, [done], 0;\n    @!%p5 bra DONE;"
LAST_BARRIER = "bar.sync 0;\n    barrier.cluster.arrive;\n    barrier.cluster.wait;\n    @%p2 tcgen05.dealloc"
DEALLOC = f"@%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, {COLUMNS};"

MISSING = {
    "wait::st": (["tcgen05.wait::st.sync.aligned;"], "run-tmem-order"),
    "the wait for the commit": ([WAIT_FOR_DONE], "run-tmem-order"),
    "dealloc": ([DEALLOC], "run-tmem-allocation"),
}


@pytest.mark.parametrize("name", MISSING)
@pytest.mark.parametrize("seed", [None, 1])
def test_what_is_missing_is_found(name, seed):
    pieces, rule = MISSING[name]
    assert ("error", rule) in found(without(*pieces), seed)


def test_a_barrier_before_dealloc_is_missing():
    """The other warps may still load when the first one frees the columns."""
    assert ("error", "run-tmem-order") in found(RIGHT.replace(LAST_BARRIER, "@%p2 tcgen05.dealloc"))


def test_a_relaxed_barrier_suffices_before_dealloc_for_loads_that_were_waited_for():
    relaxed = "barrier.cluster.arrive.relaxed;\n    barrier.cluster.wait;\n    @%p2 tcgen05.dealloc"
    assert not any(severity == "error" for severity, _ in found(RIGHT.replace(LAST_BARRIER, relaxed)))


@pytest.mark.parametrize("fence", ["before_thread_sync", "after_thread_sync"])
def test_a_missing_fence_is_a_note(fence):
    assert found(without(f"tcgen05.fence::{fence};")) == {("note", "run-tmem-fence")}


def test_an_operand_that_is_still_being_read_is_not_overwritten():
    """A second copy into the slot before the commit's mbarrier has said that the product is done."""
    again = (
        f"mbarrier.arrive.expect_tx.shared.b64 _, [full], {SMEM_BYTES};"
        f" cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r6], [%d1], {SMEM_BYTES}, [full];"
        " AGAIN: mbarrier.try_wait.parity.shared.b64 %p4, [full], 1; @!%p4 bra AGAIN;"
    )
    assert ("error", "run-refill") in found(RIGHT.replace(COMMIT, f"{again} {COMMIT}"))
    waited = f"{COMMIT} EARLY: mbarrier.try_wait.parity.shared.b64 %p5, [done], 0; @!%p5 bra EARLY; {again}"
    assert found(RIGHT.replace(COMMIT, waited)) == set()


def test_a_product_of_another_shape_is_not_in_order():
    """Two products into overlapping columns are in order where they have one shape and one accumulator alone."""
    other = ts.InstructionDescriptor("f16", 128, 16, a_type="f16").encode()
    second = f"mov.b32 %r8, {other:#x}; tcgen05.mma.cta_group::1.kind::f16 [%r1], %a0, %a1, %r8, %p6;"
    assert ("error", "run-tmem-order") in found(RIGHT.replace(COMMIT, f"{second} {COMMIT}"))
    same = "tcgen05.mma.cta_group::1.kind::f16 [%r1], %a0, %a1, %r8, %p6;"
    assert found(RIGHT.replace(COMMIT, f"{same} {COMMIT}")) == set()


def test_a_product_reads_what_a_product_wrote_only_behind_a_wait():
    """D of the first product as A of the second, in tensor memory."""
    second = "add.u32 %r9, %r1, 32; tcgen05.mma.cta_group::1.kind::f16 [%r9], [%r1], %a1, %r8, %p6;"
    assert ("error", "run-tmem-order") in found(RIGHT.replace(COMMIT, f"{second} {COMMIT}"))


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (("[%r1], %a0, %a1", "[%r9], %a0, %a1"), ("error", "run-tmem-columns")),
        ((f"%r1, {COLUMNS};", "%r1, 32;"), ("error", "run-tmem-allocation")),
        (("shl.b32 %r5, %r2, 16;", "mov.b32 %r5, 0;"), ("warning", "run-tmem-quarter")),
        (("tcgen05.st.sync", "@%p7 tcgen05.st.sync"), ("warning", "run-tmem-unwritten")),
    ],
)
def test_addresses_and_allocations(change, finding):
    changed = RIGHT.replace(*change).replace("mov.b16 %h1, 3;", "mov.b16 %h1, 3; add.u32 %r9, %r1, 256;")
    assert finding in found(changed)


def test_an_allocation_after_relinquish():
    relinquish = "@%p2 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"
    alloc = f"@%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [at], {COLUMNS};"
    assert found(RIGHT.replace(alloc, alloc + relinquish)) == set()
    assert ("error", "run-tmem-allocation") in found(RIGHT.replace(alloc, relinquish + alloc))


def test_an_allocation_waits_for_columns():
    """A warp that asks for columns that another one holds goes on when they are freed; alone it hangs."""
    body = (
        ".version 8.8 .target sm_100a .address_size 64 .visible .entry k() {"
        " .shared .align 4 .b32 one; .shared .align 4 .b32 two; .reg .b32 %r<4>; .reg .pred %p<3>;"
        " mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 32;"
        " @%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [one], 512; bar.sync 0;"
        " @!%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [two], 512;"
        " @%p1 ld.shared.b32 %r2, [one]; @!%p1 ld.shared.b32 %r2, [two];"
        " tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 512; ret; }"
    )
    assert ts.Kernel(body).run(1, 64).outcome == "finished"
    never_freed = body.replace("tcgen05.dealloc", "@!%p1 tcgen05.dealloc")
    run = ts.Kernel(never_freed).run(1, 64)
    assert run.outcome == "hang"
    assert any("tcgen05.alloc" in str(finding) for finding in run.findings)


def test_two_groups_in_one_kernel_are_refused():
    mixed = RIGHT.replace(DEALLOC, DEALLOC.replace("cta_group::1", "cta_group::2"))
    with pytest.raises(ts.RuleError, match="cta_group"):
        ts.Kernel(mixed)


def test_what_is_no_descriptor_is_a_fault():
    run = ts.Kernel(RIGHT.replace(f"{WORD.encode():#x}", "0x8400050")).run(
        1,
        128,
        [np.zeros(SMEM_BYTES, np.uint8), *[np.zeros((128, COLUMNS), np.uint32) for _ in range(2)], A.word, B.word],
        smem_bytes=SMEM + SMEM_BYTES,
    )
    assert run.outcome == "fault"
    assert "0x8400050 has bit 6 set" in str(run.findings[0])


MEETING = "barrier.cluster.arrive;\n    barrier.cluster.wait;\n    tcgen05.fence::after_thread_sync;\n    mov.b16"
BY_MBARRIER = """mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [met];
MET: mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 %p8, [met], 0; @!%p8 bra MET;
    tcgen05.fence::after_thread_sync;
    mov.b16"""
RELAXED = {
    "a barrier of the cluster": RIGHT.replace(MEETING, MEETING.replace("arrive;", "arrive.relaxed;")),
    "an mbarrier": (
        RIGHT.replace(MEETING, BY_MBARRIER)
        .replace(".shared .align 8 .b64 done;", ".shared .align 8 .b64 done; .shared .align 8 .b64 met;")
        .replace(
            "@%p1 mbarrier.init.shared.b64 [done], 1;",
            "@%p1 mbarrier.init.shared.b64 [done], 1; @%p1 mbarrier.init.shared.b64 [met], 128;",
        )
    ),
}


@pytest.mark.parametrize("name", RELAXED)
def test_fences_of_tcgen05_need_no_more_than_the_order_of_execution(name):
    """Relaxed arrivals hand on no memory; what stands between the fences of tensor memory they do."""
    right = RELAXED[name]
    assert right != RIGHT
    assert found(right) == set()
    assert ("error", "run-tmem-order") in found(right.replace("tcgen05.fence::before_thread_sync;", ""))


def test_a_load_that_should_wait_for_a_product_is_told_so(wording):
    """Columns that nobody has written are loaded, and then a product writes them: the load came too early."""
    body = f"mov.b32 %r8, {WORD.encode():#x}; tcgen05.mma.cta_group::1.kind::f16 [%r1], %a0, %a1, %r8, %p7;"
    early = text(body, COLUMNS, blocks=1, arguments=2, target="sm_100a")
    for piece in ("tcgen05.st.sync", "tcgen05.wait::st"):
        early = "\n".join(line for line in early.splitlines() if piece not in line)
    arrays = [np.zeros(SMEM_BYTES, np.uint8), np.zeros((128, COLUMNS), np.uint32), np.zeros((128, COLUMNS), np.uint32)]
    early = (
        early.replace("@!%p5 bra DONE;", "")
        .replace("@!%p3 bra DONE;", "@!%p3 bra AFTER;")
        .replace("DONE:\n", "AFTER:\n")
    )
    run = ts.Kernel(early).run(1, 128, [*arrays, A.word, B.word], smem_bytes=SMEM + SMEM_BYTES, advice="none")
    finding = next(one for one in run.findings if one.rule == "run-tmem-order" and "tcgen05.ld" in one.argument)
    assert "loads lanes" in finding.found
    assert "tcgen05.commit" in finding.fix
    wording("a load that does not wait for a product", finding)


def test_exchanged_strides_of_a_descriptor_are_told(wording):
    held = A.descriptor
    swapped = ts.Tcgen05Descriptor(
        held.start_address, leading_bytes=held.stride_bytes, stride_bytes=16, swizzle=held.swizzle.name
    )
    arrays = [np.zeros(SMEM_BYTES, np.uint8), np.zeros((128, COLUMNS), np.uint32), np.zeros((128, COLUMNS), np.uint32)]
    run = ts.Kernel(RIGHT).run(1, 128, [*arrays, swapped.encode(), B.word], smem_bytes=SMEM + SMEM_BYTES, advice="none")
    finding = next(one for one in run.findings if one.rule == "run-operand-overlap")
    assert (finding.values["leading_bytes"], finding.values["stride_bytes"]) == (256, 16)
    wording("exchanged strides of a descriptor", finding)
