"""Launches: what is checked before a kernel runs, and how arguments lie."""

import numpy as np
import pytest
from ptx_texts import HEADER, kernel

import tilescope as ts
from tilescope.errors import RuleError
from tilescope.machine.kernel import Kernel


def rules_broken(call):
    with pytest.raises(RuleError) as caught:
        call()
    return [violation.rule for violation in caught.value.violations]


EMPTY = kernel("ret;", "")


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"grid": 1, "block": 1025}, "launch-block"),
        ({"grid": 1, "block": (1, 1, 65)}, "launch-block"),
        ({"grid": 4, "block": 32, "cluster": 3}, "launch-cluster"),
        ({"grid": 32, "block": 32, "cluster": 32}, "launch-cluster"),
        ({"grid": 1, "block": 32, "smem_bytes": 1 << 20}, "launch-shared-memory"),
        ({"grid": (1, 2, 3, 4), "block": 32}, "argument-range"),
        ({"grid": 0, "block": 32}, "argument-range"),
        ({"grid": 1 << 31, "block": 32}, "argument-range"),
        ({"grid": (1, 1 << 16), "block": 32}, "argument-range"),
        ({"grid": 1, "block": 32, "args": [1]}, "kernel-arguments"),
        ({"grid": 2, "block": 32, "blocks": [(2,)]}, "argument-range"),
        ({"grid": 2, "block": 32, "blocks": [(0, 0, 0, 0)]}, "argument-range"),
        ({"grid": 2, "block": 32, "blocks": [()]}, "argument-range"),
        ({"grid": True, "block": 32}, "argument-type"),
    ],
)
def test_a_launch_that_no_card_takes_is_refused(options, rule):
    assert rules_broken(lambda: EMPTY.run(**options)) == [rule]


def test_extents_may_be_numpy_integers():
    run = EMPTY.run(np.int64(2), np.uint32(64), cluster=np.int32(2))
    assert (run.grid, run.block, run.cluster) == ((2, 1, 1), (64, 1, 1), (2, 1, 1))


def test_a_kernel_that_wants_256_threads_gets_256():
    wants = kernel("ret;", "", directives=".reqntid 256")
    assert rules_broken(lambda: wants.run(1, 128)) == ["launch-block"]
    assert wants.run(1, 256).outcome == "finished"


def test_a_grid_that_is_too_large_is_told_its_limits_and_the_largest_one():
    with pytest.raises(RuleError) as caught:
        EMPTY.run((1 << 31, 70000), 32)
    [violation] = caught.value.violations
    assert "2147483647" in violation.limit
    assert "(2147483647, 65535)" in violation.fix


def test_everything_wrong_with_a_launch_is_told_at_once():
    told = rules_broken(lambda: EMPTY.run(4, 2048, cluster=3, smem_bytes=1 << 20))
    assert told == ["launch-block", "launch-cluster", "launch-shared-memory"]


def test_parameters_lie_at_their_own_alignment():
    """A byte, a double, a struct of 12 bytes and a half, stored back one by one."""
    back = kernel(
        """
        ld.param.u8 %r1, [a];
        ld.param.u64 %d1, [b];
        ld.param.u32 %r2, [c+8];
        ld.param.u16 %h1, [d];
        ld.param.u64 %d2, [out];
        st.global.u32 [%d2], %r1;
        st.global.u64 [%d2+8], %d1;
        st.global.u32 [%d2+16], %r2;
        st.global.u16 [%d2+20], %h1;
        """,
        ".param .u8 a, .param .f64 b, .param .align 4 .b8 c[12], .param .b16 d, .param .u64 out",
    )
    out = np.zeros(24, np.uint8)
    run = back.run(1, 1, [200, -2.5, np.arange(3, dtype=np.uint32).tobytes(), 0xBEEF, out])
    assert run.outcome == "finished"
    assert out[0] == 200
    assert out[8:16].view(np.float64)[0] == -2.5
    assert out[16:20].view(np.uint32)[0] == 2
    assert out[20:22].view(np.uint16)[0] == 0xBEEF


@pytest.mark.parametrize(
    ("parameter", "argument"),
    [
        (".param .u32 a", "seven"),
        (".param .u32 a", 1 << 32),
        (".param .u32 a", np.zeros(4)),
        (".param .align 64 .b8 a[128]", b"short"),
        (".param .align 4 .b8 a[12]", 7),
        (".param .u64 a", None),
    ],
)
def test_an_argument_that_does_not_fit_its_parameter_is_refused(parameter, argument):
    assert rules_broken(lambda: kernel("ret;", parameter).run(1, 1, [argument])) == ["kernel-argument"]


def test_a_pointer_to_a_map_is_where_its_bytes_lie():
    copy_of_map = kernel(
        """
        ld.param.u64 %d1, [map];
        ld.global.u64 %d2, [%d1+64];
        ld.param.u64 %d3, [out];
        st.global.u64 [%d3], %d2;
        """,
        ".param .u64 map, .param .u64 out",
    )
    tensor_map = ts.TensorMap("f16", (64, 64), (128,), (64, 8), address=0x1000)
    out = np.zeros(1, np.uint64)
    copy_of_map.run(1, 1, [tensor_map, out])
    assert out.tobytes() == tensor_map.encode()[64:72]


def test_a_map_is_128_bytes_of_the_driver():
    memory_of_map = kernel(
        """
        mov.b64 %d1, map;
        ld.param.u64 %d2, [map+64];
        ld.param.u64 %d3, [out];
        st.global.u64 [%d3], %d2;
        """,
        ".param .align 64 .b8 map[128], .param .u64 out",
    )
    tensor_map = ts.TensorMap("f16", (64, 64), (128,), (64, 8), address=0x1000)
    out = np.zeros(1, np.uint64)
    memory_of_map.run(1, 1, [tensor_map, out])
    assert out.tobytes() == tensor_map.encode()[64:72]


TWO_ENTRIES = HEADER + ".visible .entry _Z5scalePf() { ret; } .visible .entry _Z3addPf() { ret; }"


def test_an_entry_is_found_by_a_part_of_its_name():
    assert Kernel(TWO_ENTRIES, entry="scale").entry == "_Z5scalePf"
    assert Kernel(TWO_ENTRIES, entry="_Z3addPf").entry == "_Z3addPf"
    assert rules_broken(lambda: Kernel(TWO_ENTRIES)) == ["kernel-entry"]
    assert rules_broken(lambda: Kernel(TWO_ENTRIES, entry="Pf")) == ["kernel-entry"]


def test_the_name_of_a_file_in_place_of_its_text_is_told_how_to_read_it():
    with pytest.raises(RuleError) as caught:
        Kernel("build/scale.ptx")
    [violation] = caught.value.violations
    assert violation.rule == "ptx-syntax"
    assert 'open("build/scale.ptx").read()' in violation.fix


@pytest.mark.parametrize("entry", [None, "scale"])
def test_a_text_without_an_entry_is_not_asked_to_name_one(entry):
    with pytest.raises(RuleError) as caught:
        Kernel(HEADER + ".visible .func scale() { ret; }", entry=entry)
    [violation] = caught.value.violations
    assert violation.rule == "kernel-entry"
    assert "template" in violation.limit
    assert "Name one" not in violation.fix


INSTANCES = HEADER + "".join(
    f".visible .entry {name}() {{ ret; }} "
    for name in ("_Z4scanPj", "_Z5scan2Pj", "_ZN2ns4gemmILi128ELb1EfEEvPT1_", "_ZN2ns4gemmILi64ELb0EfEEvPT1_")
)


@pytest.mark.parametrize(
    ("asked", "entry"),
    [
        ("scan", "_Z4scanPj"),  # although scan2 has it, too
        ("scan2", "_Z5scan2Pj"),
        ("ns::gemm<128, true, float>", "_ZN2ns4gemmILi128ELb1EfEEvPT1_"),
        ("gemm<64,false,float>", "_ZN2ns4gemmILi64ELb0EfEEvPT1_"),
        ("<64", "_ZN2ns4gemmILi64ELb0EfEEvPT1_"),
    ],
)
def test_an_entry_is_found_as_the_source_writes_it(asked, entry):
    assert Kernel(INSTANCES, entry=asked).entry == entry


def test_entries_are_told_as_the_source_writes_them(wording):
    with pytest.raises(RuleError) as caught:
        Kernel(INSTANCES, entry="gemm")
    (violation,) = caught.value.violations
    assert violation.rule == "kernel-entry"
    assert violation.values["known"] == ("ns::gemm<128, true, float>", "ns::gemm<64, false, float>")
    assert 'entry="ns::gemm<128, true, float>"' in violation.fix
    wording("an entry that several names have", violation)


def test_two_entries_of_one_name_are_told_as_ptx_writes_them():
    with pytest.raises(RuleError, match="the text has _Z3addPf, _Z3addPd"):
        Kernel(HEADER + ".visible .entry _Z3addPf() { ret; } .visible .entry _Z3addPd() { ret; }", entry="add")


def test_a_kernel_is_shown_as_the_source_writes_it():
    text = HEADER + ".visible .entry _Z3addILi4EEvPf(.param .u64 _Z3addILi4EEvPf_param_0) { ret; }"
    assert repr(Kernel(text)) == "<Kernel add<4>(.u64 param_0): 1 instruction, 0 bytes of static shared memory>"
    with pytest.raises(RuleError, match=r"; param_0 is a \.u64") as caught:
        Kernel(text).run(1, 1, ["seven"])
    assert "_Z3add" not in str(caught.value)


def test_all_that_cannot_be_run_is_told_with_its_line():
    text = (
        HEADER + ".visible .entry k() {\n.reg .b32 %r<3>;\nsuld.b.1d.b32.trap %r1, [%r2];\nret;\ntld4.r.2d.b32 %r1;\n}"
    )
    with pytest.raises(RuleError) as caught:
        Kernel(text)
    told = [(violation.rule, violation.values["line"]) for violation in caught.value.violations]
    assert told == [("ptx-unsupported", 7), ("ptx-unsupported", 9)]


def test_special_registers_count_blocks_and_threads():
    numbers = kernel(
        """
        mov.u32 %r1, %tid.y;
        mov.u32 %r2, %ctaid.z;
        mov.u32 %r3, %nctaid.y;
        mov.u32 %r4, %ntid.x;
        mov.u32 %r5, %laneid;
        mov.u32 %r6, %warpid;
        mov.u32 %r7, %tid.x;
        mov.u32 %r8, %ctaid.y;
        mad.lo.u32 %r9, %r2, %r3, %r8;
        mad.lo.u32 %r9, %r9, 3, %r1;
        mad.lo.u32 %r9, %r9, %r4, %r7;
        ld.param.u64 %d1, [out];
        mul.wide.u32 %d2, %r9, 8;
        add.s64 %d1, %d1, %d2;
        st.global.v2.u32 [%d1], {%r5, %r6};
        """
    )
    out = np.zeros((2 * 2 * 3 * 20, 2), np.uint32)
    assert numbers.run((1, 2, 2), (20, 3), [out]).outcome == "finished"
    thread = np.arange(len(out)) % 60
    np.testing.assert_array_equal(out, np.stack([thread % 32, thread // 32], axis=1))


def test_a_run_lists_its_copies_and_the_phases_of_its_barriers():
    """One bulk load of 64 bytes into a barrier that one thread arms: a copy, and a phase that it ends."""
    loads = kernel(
        """
        .shared .align 128 .b8 tile[64];
        .shared .align 8 .b64 full;
        mov.u32 %r1, tile;
        mov.u32 %r2, full;
        ld.param.u64 %d1, [from];
        mbarrier.init.shared.b64 [%r2], 1;
        mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 64;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d1], 64, [%r2];
    WAIT:
        mbarrier.try_wait.parity.shared.b64 %p1, [%r2], 0;
        @!%p1 bra WAIT;
        """,
        ".param .u64 from",
    )
    memory = ts.Memory()
    source = np.zeros(64, np.uint8)
    run = loads.run(1, 1, [source], memory=memory)
    (copy,) = run.copies
    (phase,) = run.barriers
    assert (copy.direction, copy.bytes, copy.thread, copy.other_address) == ("load", 64, 0, memory.place(source))
    assert (phase.address, phase.number, phase.arrivals, phase.bytes) == (copy.barrier, 0, 1, 64)
    assert "cp.async.bulk" in run.instructions[5].ptx_text
    assert phase.ptx_line == copy.ptx_line == run.instructions[5].ptx_line


def test_an_entry_that_does_nothing_need_not_be_told_apart():
    """CUB's headers bring one."""
    empty = ".visible .entry empty() { ret; }"
    own = ".visible .entry own(.param .u64 a) { ret; }"
    text = f".version 8.0 .target sm_90 .address_size 64 {empty} {own}"
    assert ts.Kernel(text).entry == "own"
    assert ts.Kernel(text, "empty").entry == "empty"
    with pytest.raises(ts.RuleError, match="no entry is named"):
        ts.Kernel(text + " .visible .entry other(.param .u64 a) { ret; }")


DYNAMIC = f"""{HEADER}
.extern .shared .align 16 .b8 smem[];
.visible .entry k()
{{
    .reg .b32 %r<4>;
    mov.u32 %r1, %tid.x;
    shl.b32 %r2, %r1, 2;
    mov.u32 %r3, smem;
    add.u32 %r2, %r2, %r3;
    st.shared.u32 [%r2], %r1;
    ret;
}}
"""


@pytest.mark.parametrize("smem_bytes", [0, 64])
def test_dynamic_shared_memory_that_is_missing_is_named_with_its_size(smem_bytes):
    run = Kernel(DYNAMIC).run(1, 128, smem_bytes=smem_bytes)
    (finding,) = run.findings
    assert finding.rule == "run-out-of-bounds"
    assert (finding.values["smem_bytes"], finding.values["needed_bytes"]) == (smem_bytes, 512)
    assert f"{smem_bytes} bytes of dynamic shared memory" in finding.limit
    assert "512" in finding.fix
    assert ("index" in finding.fix) == (smem_bytes > 0)
    assert "--smem 512" in finding.fix
    assert Kernel(DYNAMIC).run(1, 128, smem_bytes=512).findings == ()


def test_a_wild_address_is_not_blamed_on_the_launch():
    wild = DYNAMIC.replace("shl.b32 %r2, %r1, 2", "or.b32 %r2, %r1, 0xf00000")
    (finding,) = Kernel(wild.replace("st.shared.u32", "st.shared.u8")).run(1, 32, smem_bytes=512).findings
    assert "--smem" not in finding.fix
    (finding,) = Kernel(wild.replace("st.shared.u32", "st.shared.u8")).run(1, 32).findings
    assert finding.values["needed_bytes"] is None
    assert "--smem N" in finding.fix


def test_static_shared_memory_is_not_blamed_on_the_launch():
    text = DYNAMIC.replace(".extern .shared .align 16 .b8 smem[];", ".shared .align 16 .b8 smem[64];")
    (finding,) = Kernel(text).run(1, 128).findings
    assert "--smem" not in finding.fix
