"""Tiles that threads write for TMA and wgmma, or read from TMA, under another swizzle: what is certain, what is doubtful."""

import numpy as np
import pytest

import tilescope as ts
from tilescope.machine.report.outcome import outcome_sentence

HEAD = """
.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 m[128], .param .align 64 .b8 n[128])
{
    .shared .align 1024 .b8 s[8192];
    .shared .align 8 .b64 full;
    .reg .pred %p<3>;
    .reg .b32 %r<40>;
    .reg .f32 %f<9>;
    .reg .b64 %d<9>;
    mov.u32 %r1, %tid.x;
    setp.eq.u32 %p1, %r1, 0;
    mov.u32 %r2, s;
    mov.u32 %r3, full;
    mov.b64 %d1, m;
    mov.b64 %d2, n;
    mov.u32 %r4, 0;
"""
LOAD = """
    @%p1 mbarrier.init.shared.b64 [%r3], 1;
    bar.sync 0;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 2048;
    @%p1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d1, {%r4, %r4}], [%r3];
    WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0;
    @!%p2 bra WAIT;
"""
STORE = """
    fence.proxy.async.shared::cta;
    bar.sync 0;
    @!%p1 bra END;
    cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d2, {%r4, %r4}], [%r2];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    END: ret;
}
"""
# 128 threads, 16 bytes each, 8 a row of 128 bytes; {lines}: how many lines the pattern of the swizzle has, less 1
PLACE = """
    shr.u32 %r5, %r1, 3;
    and.b32 %r6, %r5, {lines};
    xor.b32 %r6, %r6, %r1;
    and.b32 %r6, %r6, 7;
    shl.b32 %r7, %r5, 7;
    mad.lo.u32 %r7, %r6, 16, %r7;
    add.u32 %r7, %r7, %r2;
"""
LINES = {"none": 0, "32B": 1, "64B": 3, "128B": 7}
RULES = {"run-swizzle-mismatch", "run-swizzle-doubt", "run-operand-overlap"}


def told(body, loaded="none", stored="none", *, words=64):
    """The rules about swizzles that a kernel breaks, which loads and stores boxes of 16 rows of 128 bytes."""
    memory = ts.Memory()
    maps = [memory.map(np.zeros((16, words), np.uint32), (32, 16), swizzle=swizzle) for swizzle in (loaded, stored)]
    run = ts.Kernel(HEAD + body).run(1, 128, maps, memory=memory, advice="none")
    assert run.outcome == "finished", run.findings
    return [one for one in run.findings if one.rule in RULES]


def rules(findings):
    """Which rules, in the order in which they are told."""
    return [one.rule for one in findings]


def written(swizzle):
    """Threads write the box under a swizzle, and TMA stores it."""
    return PLACE.format(lines=LINES[swizzle]) + "st.shared.v4.u32 [%r7], {%r1, %r1, %r1, %r1};" + STORE


def read(swizzle):
    """TMA loads a box, and threads read it under a swizzle."""
    load = "ld.shared.v4.u32 {%r8, %r9, %r10, %r11}, [%r7]; ret; }"
    return LOAD + PLACE.format(lines=LINES[swizzle]) + load


@pytest.mark.parametrize("by_map", ["none", "128B"])
@pytest.mark.parametrize("by_threads", LINES)
def test_a_box_that_threads_write_has_the_swizzle_of_the_map(by_threads, by_map, wording):
    found = told(written(by_threads), stored=by_map)
    if by_threads == by_map:
        assert found == []
        return
    (finding,) = found
    assert finding.rule == ("run-swizzle-doubt" if by_threads == "none" else "run-swizzle-mismatch")
    assert (finding.values["said"], finding.values["fitting"]) == (by_map, (by_threads,))
    assert "st.shared.v4.u32" in finding.found
    assert f"swizzle {by_threads} " in finding.fix
    assert f"swizzle {by_map}." in finding.fix
    wording(f"a box written with {by_threads} and stored with {by_map}", finding)
    assert len(finding.values["ptx_lines"]) == 2


@pytest.mark.parametrize("by_map", ["none", "128B"])
@pytest.mark.parametrize("by_threads", LINES)
def test_threads_read_a_box_under_the_swizzle_of_the_map(by_threads, by_map):
    found = told(read(by_threads), loaded=by_map)
    if by_threads == by_map:
        assert found == []
        return
    (finding,) = found
    assert finding.rule == ("run-swizzle-doubt" if by_threads == "none" else "run-swizzle-mismatch")
    assert (finding.values["said"], finding.values["fitting"]) == (by_map, (by_threads,))
    assert "cp.async.bulk.tensor" in finding.found


def test_the_first_sentence_of_a_run_names_the_warnings_about_its_result(wording):
    doubtful = ts.RULES["run-swizzle-doubt"].failing
    run = eval(doubtful.replace(").findings)(", "))("), {"ts": ts, "np": np})
    wording("outcome of a run with a doubt", outcome_sentence(run))
    slow = eval(ts.RULES["run-bank-conflict"].failing.removesuffix(".findings"), {"ts": ts, "np": np})
    assert [finding.rule for finding in slow.findings] == ["run-bank-conflict"]
    assert outcome_sentence(slow).startswith("k finished: 1 block")


def test_rows_that_follow_each_other_in_global_memory_may_be_an_image_of_a_swizzled_tile():
    assert rules(told(written("128B"), stored="none", words=32)) == ["run-swizzle-doubt"]
    assert rules(told(read("128B"), loaded="none", words=32)) == ["run-swizzle-doubt"]
    assert rules(told(written("32B"), stored="128B", words=32)) == ["run-swizzle-mismatch"]


def test_a_box_goes_through_maps_of_one_swizzle(wording):
    assert told(LOAD + STORE, "128B", "128B") == []
    (finding,) = told(LOAD + STORE, "128B", "none")
    assert finding.rule == "run-swizzle-mismatch"
    assert (finding.values["said"], finding.values["lies"]) == ("none", "128B")
    wording("a box through maps of two swizzles", finding)
    assert rules(told(LOAD + STORE, "128B", "none", words=32)) == ["run-swizzle-doubt"]


IN_PLACE = """
    mad.lo.u32 %r7, %r1, 16, %r2;
    ld.shared.u32 %r8, [%r7];
    add.u32 %r8, %r8, 1;
    st.shared.u32 [%r7], {stored};
"""


def test_a_tile_that_is_changed_in_place_lies_as_it_came():
    change = IN_PLACE.format(stored="%r8")
    assert told(LOAD + change + STORE, "128B", "128B") == []
    assert rules(told(LOAD + change + STORE, "128B", "none")) == ["run-swizzle-doubt"]


def test_other_numbers_at_the_same_place_are_no_change_of_the_tile():
    other = IN_PLACE.format(stored="%r1")
    (finding,) = told(LOAD + other + STORE, "128B", "128B")
    assert (finding.rule, finding.values["said"]) == (
        "run-swizzle-doubt",
        "128B",
    )  # the load goes straight through memory


def columns(lanes_of_a_row):
    """Lanes write rows of 128 bytes under swizzle 128B, each row by one lane or by two: chunk c of row r goes to c xor r."""
    text = f"""
        setp.ge.u32 %p2, %r1, {16 * lanes_of_a_row};
        @%p2 bra STORE;
        and.b32 %r5, %r1, 15;
        shr.u32 %r6, %r1, 4;
        and.b32 %r9, %r1, 7;
    """
    for step in range(0, 8, lanes_of_a_row):
        text += f"""
            add.u32 %r8, %r6, {step};
            xor.b32 %r8, %r8, %r9;
            mad.lo.u32 %r7, %r5, 128, %r2;
            mad.lo.u32 %r7, %r8, 16, %r7;
            st.shared.v4.u32 [%r7], {{%r1, %r1, %r1, %r1}};
        """
    return text + "STORE:" + STORE


@pytest.mark.parametrize(("lanes_of_a_row", "rule"), [(1, "run-swizzle-doubt"), (2, "run-swizzle-mismatch")])
def test_one_lane_a_row_may_be_an_order_against_conflicts(lanes_of_a_row, rule):
    assert told(columns(lanes_of_a_row), stored="128B") == []
    assert rules(told(columns(lanes_of_a_row), stored="none")) == [rule]


def test_addresses_that_depend_on_data_say_nothing():
    scattered = """
        mul.lo.u32 %r5, %r1, 37;
        and.b32 %r5, %r5, 127;
        mad.lo.u32 %r7, %r5, 16, %r2;
        st.shared.v4.u32 [%r7], {%r1, %r1, %r1, %r1};
    """
    assert told(scattered + STORE, stored="128B") == []


def test_bytes_of_others_in_a_box_say_nothing():
    one_word = "@%p1 st.shared.u32 [%r2+64], %r1;"
    assert told(written("64B").replace(STORE, one_word + STORE), stored="128B") == []


PRODUCT = """
    mov.f32 %f1, 0f00000000;
    mov.b32 %r8, %f1;
    mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1, %f2, %f3, %f4}, {%r8, %r8, %r8, %r8}, {%r8, %r8}, {%f1, %f1, %f1, %f1};
    and.b32 %r9, %r1, 31;
    shr.u32 %r10, %r1, 5;
    shr.u32 %r11, %r9, 2;
    and.b32 %r12, %r9, 3;
    shl.b32 %r12, %r12, 2;
    mad.lo.u32 %r12, %r11, 128, %r12;
"""
FRAGMENTS = "".join(
    f"""
    mad.lo.u32 %r13, %r10, 2, {part};
    and.b32 %r14, %r11, {{lines}};
    xor.b32 %r13, %r13, %r14;
    mad.lo.u32 %r13, %r13, 16, %r12;
    add.u32 %r13, %r13, %r2;
    st.shared.f32 [%r13], {{value}};
    st.shared.f32 [%r13+1024], {{value}};
    """
    for part in (0, 1)
)


@pytest.mark.parametrize(("lines", "stored"), [(7, "128B"), (0, "none")])
def test_accumulators_that_lie_as_the_map_says_are_right(lines, stored):
    assert told(PRODUCT + FRAGMENTS.format(lines=lines, value="%f1") + STORE, stored=stored) == []


@pytest.mark.parametrize(
    ("value", "lines", "stored", "rule"),
    [
        ("%f1", 0, "128B", "run-swizzle-mismatch"),
        ("%f1", 7, "none", "run-swizzle-mismatch"),
        ("%f8", 0, "128B", "run-swizzle-doubt"),  # no accumulator: the order may not matter
    ],
)
def test_rows_of_accumulators_are_dealt_by_the_hardware(value, lines, stored, rule):
    found = told(PRODUCT + FRAGMENTS.format(lines=lines, value=value) + STORE, stored=stored)
    assert rules(found) == [rule]


def multiplied(code, leading_bytes, stride_bytes):
    """Zeros everywhere, multiplied through a descriptor of that code."""
    word = code << 62 | (stride_bytes >> 4) << 32 | (leading_bytes >> 4) << 16
    return f"""
        mad.lo.u32 %r7, %r1, 64, %r2;
        st.shared.v4.u32 [%r7], {{%r4, %r4, %r4, %r4}};
        st.shared.v4.u32 [%r7+16], {{%r4, %r4, %r4, %r4}};
        st.shared.v4.u32 [%r7+32], {{%r4, %r4, %r4, %r4}};
        st.shared.v4.u32 [%r7+48], {{%r4, %r4, %r4, %r4}};
        fence.proxy.async.shared::cta;
        bar.sync 0;
        cvt.u64.u32 %d3, %r2;
        shr.u64 %d3, %d3, 4;
        or.b64 %d3, %d3, {word:#x};
        wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f1, %f2, %f3, %f4}}, %d3, %d3, 0, 1, 1, 0, 0;
        wgmma.commit_group.sync.aligned;
        wgmma.wait_group.sync.aligned 0;
        ret;
    }}
    """


@pytest.mark.parametrize(
    ("code", "leading_bytes", "stride_bytes", "fitting"),
    [(1, 128, 256, "none"), (2, 128, 256, "none"), (0, 16, 1024, "128B")],
)
def test_strides_of_another_swizzle_let_elements_meet(code, leading_bytes, stride_bytes, fitting):
    found = [one for one in told(multiplied(code, leading_bytes, stride_bytes)) if one.rule == "run-operand-overlap"]
    assert {one.values["fitting"] for one in found if one.values["operand"] == "A"} == {fitting}


@pytest.mark.parametrize(
    ("code", "leading_bytes", "stride_bytes"),
    [
        (1, 16, 1024),
        (2, 16, 512),
        (3, 16, 256),
        (0, 128, 256),
        (0, 1024, 128),
        (1, 16, 0),
    ],  # the last: 8 rows for all 64
)
def test_strides_that_fit_or_fit_nothing_are_not_told(code, leading_bytes, stride_bytes):
    assert "run-operand-overlap" not in rules(told(multiplied(code, leading_bytes, stride_bytes)))


def multiplied_rows(code, leading_bytes):
    """Plain rows of 128 bytes, multiplied through a descriptor of that code with a stride of 1024 bytes."""
    word = code << 62 | (1024 >> 4) << 32 | (leading_bytes >> 4) << 16
    stores = "\n".join(f"st.shared.v4.u32 [%r7+{2048 * number}], {{%r4, %r4, %r4, %r4}};" for number in range(4))
    return f"""
        mad.lo.u32 %r7, %r1, 16, %r2;
        {stores}
        fence.proxy.async.shared::cta;
        bar.sync 0;
        cvt.u64.u32 %d3, %r2;
        shr.u64 %d3, %d3, 4;
        or.b64 %d3, %d3, {word:#x};
        wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f1, %f2, %f3, %f4}}, %d3, %d3, 0, 1, 1, 0, 0;
        wgmma.commit_group.sync.aligned;
        wgmma.wait_group.sync.aligned 0;
        ret;
    }}
    """


@pytest.mark.parametrize(("code", "rule"), [(1, "run-swizzle-doubt"), (0, "run-operand-overlap")])
def test_plain_rows_that_fit_no_descriptor_are_told_as_such(code, rule):
    """Without a swizzle a descriptor reads core matrices: neither of the two is the fix of the other."""
    found = [one for one in told(multiplied_rows(code, 16)) if one.values["operand"] == "A"]
    assert [one.rule for one in found] == [rule]
    assert found[0].values["row_bytes"] == 128
    assert found[0].fix.startswith("Write the tile with swizzle 128B")
