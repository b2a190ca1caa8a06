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


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", ["emitted_gemm_f16", "triton_persistent"])
def test_recorded_rings_that_wrap_are_not_told(name):
    run, _ = run_with(recorded_kernel(name), name)
    assert "run-ring-not-wrapped" not in {finding.rule for finding in run.findings}


def test_tritons_pipeline_of_three_stages_and_three_tiles_never_wrapped():
    run, _ = run_with(recorded_kernel("mm_tma_f16"), "mm_tma_f16")
    (note,) = run.findings
    assert (note.values["slots"], note.values["fills"]) == (3, 3)
    assert [note.values[name] for name in ("axis_named", "extent_now", "extent")] == ["dims[0] of args[0]", 192, 384]


# A warp loads tiles of 128 words; 128 threads add them up, the last PEELED tiles behind the loop.
LOADED_RING = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry ring(.param .u64 a, .param .u32 tiles)
{
    .shared .align 128 .b8 tile[SLOT_BYTES];
    .shared .align 8 .b8 bars[BARRIER_BYTES];
    .reg .pred skip, done, more, wrap;
    .reg .b32 tid, n, i, slot, parity, full, buf, value;
    .reg .b64 from;
    mov.u32 tid, %tid.x;
    ld.param.u32 n, [tiles];
    ld.param.u64 from, [a];
    setp.ne.u32 skip, tid, 0;
    @skip bra inited;
    mov.u32 i, 0;
    mov.u32 full, bars;
init:
    mbarrier.init.shared::cta.b64 [full], 1;
    mbarrier.init.shared::cta.b64 [full+EMPTY], 128;
    add.u32 full, full, STEP;
    add.u32 i, i, 1;
    setp.lt.u32 more, i, STAGES;
    @more bra init;
inited:
    bar.sync 0;
    mov.u32 i, 0;
    mov.u32 slot, 0;
    setp.lt.u32 skip, tid, 128;
    @skip bra consume;
    setp.ne.u32 skip, tid, 128;
    @skip bra end;
    mov.u32 parity, 1;
load:
    mov.u32 full, bars;
    mad.lo.u32 full, slot, STEP, full;
    mov.u32 buf, tile;
    mad.lo.u32 buf, slot, 512, buf;
wait_empty:
    mbarrier.try_wait.parity.shared::cta.b64 done, [full+EMPTY], parity;
    @!done bra wait_empty;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 512;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [buf], [from], 512, [full];
    add.s64 from, from, 512;
    add.u32 slot, slot, 1;
    setp.eq.u32 wrap, slot, STAGES;
    @wrap mov.u32 slot, 0;
    @wrap xor.b32 parity, parity, 1;
    add.u32 i, i, 1;
    setp.lt.u32 more, i, n;
    @more bra load;
    bra.uni end;
consume:
    mov.u32 parity, 0;
    sub.u32 n, n, PEELED;
use:
    USE
    add.u32 i, i, 1;
    setp.lt.u32 more, i, n;
    @more bra use;
    EPILOGUE
end:
    ret;
}
"""
USE = """
    mov.u32 full, bars;
    mad.lo.u32 full, slot, STEP, full;
    mov.u32 buf, tile;
    mad.lo.u32 buf, slot, 512, buf;
    mad.lo.u32 buf, tid, 4, buf;
wait_full:
    mbarrier.try_wait.parity.shared::cta.b64 done, [full], parity;
    @!done bra wait_full;
    ld.shared.u32 value, [buf];
    mbarrier.arrive.shared::cta.b64 _, [full+EMPTY];
    add.u32 slot, slot, 1;
    setp.eq.u32 wrap, slot, STAGES;
    @wrap mov.u32 slot, 0;
    @wrap xor.b32 parity, parity, 1;
"""


def slots_of(stages, tiles, *, step, peeled=0):
    """The slots that notes about a ring name; full and empty mbarriers are `step` bytes from slot to slot."""
    epilogue = "".join(USE.replace("wait_full", f"wait_{number}") for number in range(peeled))
    empty = 8 * stages if step == 8 else 8
    text = LOADED_RING.replace("EPILOGUE", epilogue).replace("USE", USE)
    for name, number in {
        "SLOT_BYTES": 512 * stages,
        "BARRIER_BYTES": max(step, 16) * stages,
        "EMPTY": empty,
        "STEP": step,
        "STAGES": stages,
        "PEELED": peeled,
    }.items():
        text = text.replace(name, str(number))
    run = ts.Kernel(text).run(1, 160, [np.zeros(128 * tiles, np.uint32), tiles])
    assert run.outcome == "finished", run.findings
    assert not [finding for finding in run.findings if finding.severity != "note"]
    return [finding.values["slots"] for finding in run.findings if finding.rule == "run-ring-not-wrapped"]


@pytest.mark.parametrize("step", [8, 16, 24])
@pytest.mark.parametrize("stages", range(2, 9))
def test_a_ring_has_as_many_slots_as_stages(stages, step):
    assert slots_of(stages, stages, step=step) == [stages]
    assert slots_of(stages, stages + 1, step=step) == []


@pytest.mark.parametrize("step", [8, 16])
def test_slots_that_no_copy_filled_belong_to_the_ring(step):
    assert slots_of(7, 5, step=step) == [7]


@pytest.mark.parametrize("step", [8, 16])
def test_slots_that_are_waited_for_behind_the_loop_belong_to_the_ring(step):
    assert slots_of(7, 7, step=step, peeled=2) == [7]
