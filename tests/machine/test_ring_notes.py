"""Notes about rings of slots that never wrapped: which slots, and how far to raise the number of tiles."""

import numpy as np
import pytest
from kernel_recording import kernel as recorded_kernel
from kernel_recording import run_with

import tilescope as ts

# One thread copies tiles of 8 rows into a ring of four slots, and reads a word of each; parity and slot are computed.
RING = """.version 8.0
.target sm_90
.address_size 64
.file 1 "ring.cu"
.visible .entry ring(.param .align 64 .b8 map[128], .param .u32 tiles) {
    .shared .align 128 .b8 slots[4096]; .shared .align 8 .b8 full[32];
    .reg .b32 %r<12>; .reg .b64 %d<2>; .reg .pred %p<4>;
    mov.b64 %d1, map; ld.param.u32 %r9, [tiles]; mov.u32 %r1, 0; mov.u32 %r10, full;
    mbarrier.init.shared.b64 [full], 1; mbarrier.init.shared.b64 [full+8], 1;
    mbarrier.init.shared.b64 [full+16], 1; mbarrier.init.shared.b64 [full+24], 1;
    LOOP:
    and.b32 %r2, %r1, 3; shr.u32 %r3, %r1, 2; and.b32 %r3, %r3, 1;
    mad.lo.u32 %r4, %r2, 8, %r10;
    mov.u32 %r5, slots; mad.lo.u32 %r5, %r2, 1024, %r5;
    shl.b32 %r6, %r1, 3;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r4], 1024;
    .loc 1 12 0
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r5], [%d1, {0, %r6}], [%r4];
    WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [%r4], PARITY;
    @!%p1 bra WAIT;
    ld.shared.u32 %r7, [%r5];
    add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, %r9;
    @%p2 bra LOOP;
    ret;
}
"""


def notes_of(tiles, *, rows=None, parity="%r3", **options):
    memory = ts.Memory()
    rows = 8 * tiles if rows is None else rows
    tensor_map = memory.map(np.zeros((rows, 32), np.float32), (32, 8))
    kernel = ts.Kernel(RING.replace("PARITY", parity))
    run = kernel.run(1, 1, [tensor_map, tiles], memory=memory, **options)
    assert run.outcome == "finished", run.findings
    return [finding for finding in run.findings if finding.rule == "run-ring-not-wrapped"]


@pytest.mark.parametrize("tiles", [1, 2, 3, 4])
def test_a_ring_of_four_slots_with_at_most_four_tiles_never_wrapped(tiles):
    (note,) = notes_of(tiles)
    assert note.severity == "note"
    assert note.values["slots"] == 4
    assert note.values["fills"] == tiles
    assert note.values["addresses"] == (0x1400, 0x1408, 0x1410, 0x1418)
    assert note.values["source_lines"] == ("ring.cu:12",)


def test_the_note_says_how_far_to_raise_the_tensor(wording):
    (note,) = notes_of(3)
    assert [note.values[name] for name in ("slots", "fills", "wanted")] == [4, 3, 8]
    assert note.values["addresses"] == (0x1400, 0x1408, 0x1410, 0x1418)
    assert "(full)" in note.found
    assert [note.values[name] for name in ("axis_named", "extent_now", "extent")] == ["dims[1] of args[0]", 24, 64]
    wording("a ring that never wrapped", note)


def test_a_tensor_that_is_large_enough_need_not_grow(wording):
    (note,) = notes_of(3, rows=64)
    assert (note.values["wanted"], note.values["extent"]) == (8, None)
    wording("a ring that never wrapped, of a large tensor", note.fix)


@pytest.mark.parametrize("tiles", [5, 8])
def test_a_ring_that_wrapped_is_not_told(tiles):
    assert notes_of(tiles) == []


def test_a_tile_that_is_awaited_once_is_no_ring():
    assert notes_of(1, parity="0") == []
    assert notes_of(1, parity="%r11") == []  # a register that nobody writes
    constant = RING.replace("LOOP:", "mov.u32 %r11, 0; LOOP:").replace("PARITY", "%r11")
    memory = ts.Memory()
    tensor_map = memory.map(np.zeros((8, 32), np.float32), (32, 8))
    assert ts.Kernel(constant).run(1, 1, [tensor_map, 1], memory=memory).findings == ()


def test_a_tile_that_is_awaited_before_the_loop_is_no_ring():
    ring = ts.RULES["run-ring-not-wrapped"].failing  # its loop goes round once
    assert len(eval(ring, {"ts": ts, "np": np})) == 1
    assert eval(ring.replace("@%p2 bra LOOP;", ""), {"ts": ts, "np": np}) == ()


@pytest.mark.parametrize("name", ["emitted_gemm_f16", "triton_persistent"])
def test_recorded_rings_that_wrap_are_not_told(name):
    run, _ = run_with(recorded_kernel(name), name)
    assert "run-ring-not-wrapped" not in {finding.rule for finding in run.findings}


def test_tritons_pipeline_of_three_stages_and_three_tiles_never_wrapped():
    run, _ = run_with(recorded_kernel("mm_tma_f16"), "mm_tma_f16")
    (note,) = run.findings
    assert (note.values["slots"], note.values["fills"]) == (3, 3)
    assert [note.values[name] for name in ("axis_named", "extent_now", "extent")] == ["dims[0] of args[0]", 192, 384]
