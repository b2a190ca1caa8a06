"""Special registers that an H200 was asked for."""

import numpy as np
import pytest
from ptx_texts import kernel, per_thread

import tilescope as ts

MEASURED = {
    "%nwarpid": 64,
    "%nsmid": 132,
    "%dynamic_smem_size": 512,
    "%total_smem_size": 512 + 16,
    "%aggr_smem_size": 512 + 16 + 1024,
    "%reserved_smem_offset_begin": 0,
    "%reserved_smem_offset_end": 0x120,
    "%reserved_smem_offset_cap": 0x400,
    "%reserved_smem_offset_0": 0,
    "%reserved_smem_offset_1": 0,
}


@pytest.mark.parametrize("register", MEASURED)
def test_a_register_holds_what_the_card_gave(register):
    out = np.zeros(32, np.uint32)
    reading = per_thread(f".shared .align 16 .b8 own[16]; mov.u32 %r2, own; mov.u32 %r1, {register};")
    assert reading.run(1, 32, [out], smem_bytes=512).outcome == "finished"
    np.testing.assert_array_equal(out, [MEASURED[register]] * 32)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("add.u32 %r1, %envreg3, 1;", "%envreg3"),
        ("add.u32 %r1, %clock, 1;", "%clock changes"),
        ("tex.1d.v4.f32.s32 {%r1, %r2, %r3, %r4}, [%d1, {%r5}];", "textures, surfaces and samplers"),
    ],
)
def test_what_the_machine_does_not_have_is_refused_with_its_reason(body, reason, wording):
    with pytest.raises(ts.RuleError, match="ptx-unsupported") as caught:
        kernel(body)
    assert reason in caught.value.violations[0].limit
    wording(f"not in the machine: {body}", caught.value.violations[0].limit)


@pytest.mark.parametrize(
    ("instruction", "reason"),
    [
        ("tex.2d.v4.f32.f32 {%r1, %r2, %r3, %r4}, [%d1, {%r5, %r6}];", "textures"),
        ("tld4.r.2d.v4.f32.f32 {%r1, %r2, %r3, %r4}, [%d1, {%r5, %r6}];", "textures"),
        ("txq.width.b32 %r1, [%d1];", "textures"),
        ("suld.b.1d.b32.trap %r1, [%d1, {%r2}];", "surfaces"),
        ("sust.b.1d.b32.trap [%d1, {%r2}], %r3;", "surfaces"),
        ("sured.b.add.1d.u32.trap [%d1, {%r2}], %r3;", "surfaces"),
        ("multimem.ld_reduce.relaxed.sys.global.add.u32 %r1, [%d1];", "multimem"),
        ("multimem.st.relaxed.sys.global.u32 [%d1], %r1;", "multimem"),
        ("multimem.red.relaxed.sys.global.add.u32 [%d1], %r1;", "multimem"),
    ],
)
def test_objects_of_the_driver_and_of_several_cards_are_refused_by_name(instruction, reason):
    with pytest.raises(ts.RuleError) as caught:
        kernel(instruction)
    (violation,) = caught.value.violations
    assert violation.rule == "ptx-unsupported"
    assert instruction.partition(" ")[0] in violation.found
    assert reason in violation.limit
    assert violation.fix


def test_grid_sync_of_cooperative_groups_has_its_word():
    """The driver's workspace: its size, then the word that sync_grids counts in; its address in two environment registers."""
    body = (
        "ld.param.u64 %d1, [out]; mov.u32 %r1, %envreg2; mov.u32 %r2, %envreg1; mov.b64 %d2, {%r1, %r2};"
        " atom.global.add.u32 %r3, [%d2+4], 1; mov.u32 %r4, %ctaid.x; mad.wide.u32 %d1, %r4, 4, %d1; st.global.u32 [%d1], %r3;"
    )
    out = np.full(3, 9, np.uint32)
    run = kernel(body, ".param .u64 out").run(3, 1, [out])
    assert run.outcome == "finished"
    assert sorted(out.tolist()) == [0, 1, 2]
