"""Global memory: releases at one word, racing loads that nobody uses, unwritten bytes, residency, and limits of the race detector."""

import numpy as np
import pytest
from ptx_texts import finished, kernel

import tilescope as ts
from tilescope.machine.decoding import assembly
from tilescope.machine.edits import second_run
from tilescope.machine.execution.residency import find_registers, find_residency
from tilescope.ptx.reader import read_module
from tilescope.sync import release_graph
from tilescope.sync.lane_clocks import LaneClocks

IN_TURN = """
    ld.param.u64 %d1, [counter];
    mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra END;
    COUNT
    ld.HOW.u32 %r2, [%d1+4];
    add.u32 %r2, %r2, 1;
    st.HOW.u32 [%d1+4], %r2;
    COUNT
END:
"""
ACQUIRE_RELEASE = "atom.acq_rel.gpu.global.add.u32 %r2, [%d1], 1;"
FENCED = "fence.acq_rel.gpu; atom.relaxed.gpu.global.add.u32 %r2, [%d1], 1; fence.acq_rel.gpu;"


def work_of_clocks(text, blocks, monkeypatch):
    """How many nodes of the graph of releases were visited, and clocks compared, by blocks that run one after another."""
    work = {"visited": 0, "compared": 0}
    take, includes = release_graph._Walk.take, LaneClocks._includes

    def count(name, method):
        def counting(*args):
            work[name] += 1
            return method(*args)

        return counting

    monkeypatch.setattr(release_graph._Walk, "take", count("visited", take))
    monkeypatch.setattr(LaneClocks, "_includes", count("compared", includes))
    counts = np.zeros(2, np.uint32)
    run = finished(kernel(text, ".param .u64 counter"), 32, [counts], blocks=blocks, seed=1)
    monkeypatch.undo()
    assert counts.tolist() == [2 * blocks, blocks]
    assert not run.findings
    return np.array([*work.values()])


@pytest.mark.parametrize("count", [ACQUIRE_RELEASE, FENCED], ids=["acquire and release", "fences"])
@pytest.mark.parametrize("how", ["global", "volatile.global"])
def test_the_clocks_of_blocks_that_take_turns_are_joined_in_linear_time(monkeypatch, count, how):
    text = IN_TURN.replace("COUNT", count).replace("HOW", how)
    of_24, of_48, of_96 = (work_of_clocks(text, blocks, monkeypatch) for blocks in (24, 48, 96))
    assert of_24.any()
    assert ((of_96 - of_48) <= 2 * (of_48 - of_24)).all()


def test_more_instructions_than_a_stamp_can_name_are_refused(monkeypatch):
    body = "mov.u32 %r1, 1;\n" * 8
    kernel(body)
    monkeypatch.setattr(assembly, "PC_END", 7)
    with pytest.raises(ts.RuleError, match="at most 7 instructions") as refused:
        kernel(body)
    assert [violation.rule for violation in refused.value.violations] == ["ptx-unsupported"]


REDUNDANT = """
    ld.param.u64 %d1, [x];
    mov.u32 %r1, %tid.x;
    setp.lt.u32 %p1, %r1, 1;
    ld.global.u32 %r2, [%d1];
    MADE %r3, %r2, 7;
    @%p1 st.global.u32 [%d1], %r3;
"""


def rules_of(run):
    return [(finding.severity, finding.rule) for finding in run.findings]


def test_a_load_whose_value_only_masked_stores_use_is_a_note():
    run = finished(kernel(REDUNDANT.replace("MADE", "add.u32"), ".param .u64 x"), 64, [np.ones(1, np.uint32)])
    assert rules_of(run) == [("note", "run-unused-load")]


@pytest.mark.parametrize(("operation", "held"), [("min.u32", 9), ("max.u32", 3), ("and.b32", 9)])
def test_a_load_that_other_threads_store_elsewhere_is_used(operation, held):
    text = REDUNDANT.replace("MADE", operation) + "@!%p1 st.global.u32 [%d1+4], %r3;"
    run = finished(kernel(text, ".param .u64 x"), 64, [np.full(2, held, np.uint32)])
    assert ("error", "run-race") in rules_of(run)
    assert ("note", "run-unused-load") not in rules_of(run)


def test_an_unwritten_word_that_reaches_no_result_stays_a_warning():
    text = """
        .shared .align 4 .b32 s[64];
        ld.shared.u32 %r1, [s];
        and.b32 %r1, %r1, 0;
        ld.param.u64 %d1, [out];
        st.global.u32 [%d1], %r1;
    """
    run = finished(kernel(text), 1, [np.ones(1, np.uint32)])
    assert rules_of(run) == [("warning", "run-unwritten")]
    run = finished(kernel(text.replace("and.b32 %r1, %r1, 0;", "")), 1, [np.ones(1, np.uint32)])
    assert rules_of(run) == [("error", "run-unwritten")]


@pytest.mark.parametrize(
    ("arch", "lanes", "shared_bytes", "blocks", "room"),
    [
        ("sm_90", 1024, 1024, 265, 264),
        ("sm_90", 1024, 1024, 264, None),
        ("sm_90", 32, 228 << 10, 133, 132),
        ("sm_90", 32, 1024, 132 * 32 + 1, 132 * 32),
        ("sm_100", 32, 228 << 10, 149, 148),
        ("sm_89", 1024, 1024, 143, 142),
    ],
)
def test_a_card_holds_as_many_blocks_as_fit_on_its_multiprocessors(arch, lanes, shared_bytes, blocks, room):
    residency = find_residency(arch, lanes, shared_bytes, blocks)
    assert (None if residency is None else residency.blocks) == room


RACING_LOAD = """
    .shared .align 4 .b8 tile[256];
    ld.param.u64 %d1, [out];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, tile;
    mad.lo.u32 %r3, %r1, 4, %r2;
    mad.wide.u32 %d1, %r1, 4, %d1;
    st.shared.u32 [%r3], %r1;
    ld.shared.u32 %r4, [tile+128];
    {use}
    st.global.u32 [%d1], %r4;
    ret;
"""


@pytest.mark.parametrize(
    ("use", "copied", "rule"),
    [
        ("", True, ("error", "run-race")),
        ("add.u32 %r4, %r4, 1;", False, ("error", "run-race")),
        ("and.b32 %r4, %r4, 0;", False, ("note", "run-unused-load")),
        ("@%p1 mov.u32 %r4, 0;", False, ("error", "run-race")),
    ],
)
def test_a_second_run_asks_for_the_use_of_a_load_only_if_the_text_does_not_show_it(monkeypatch, use, copied, rule):
    second_runs = []
    run_grid = second_run.run_grid

    def note_run(*arguments):
        second_runs.append(arguments)
        return run_grid(*arguments)

    monkeypatch.setattr(second_run, "run_grid", note_run)
    result = kernel(RACING_LOAD.format(use=use)).run(1, 64, [np.zeros(64, np.uint32)], advice="none")
    assert rules_of(result) == [rule]
    assert bool(second_runs) is not copied


@pytest.mark.parametrize(
    ("directives", "body", "registers", "room"),
    [
        (".maxnreg 168", "setmaxnreg.dec.sync.aligned.u32 40;", 168, 132),
        (".maxntid 384 .minnctapersm 1", "setmaxnreg.dec.sync.aligned.u32 40;", 168, 132),
        (".maxntid 384 .minnctapersm 2", "setmaxnreg.dec.sync.aligned.u32 40;", 80, 264),
        (".maxnreg 168", "", None, 660),  # ptxas may use fewer
    ],
)
def test_registers_count_where_the_text_fixes_them(directives, body, registers, room):
    text = f".version 8.6 .target sm_90a .address_size 64 .entry k() {directives} {{ {body} ret; }}"
    entry = read_module(text).functions["k"]
    assert find_registers(entry, 384) == registers
    assert find_residency("sm_90", 384, 1024, 1000, registers).blocks == room
