"""Findings of a run: faults with the card's number, hangs with everybody who waits, runs that do not end."""

import re

import numpy as np
import pytest
from ptx_texts import kernel

import tilescope as ts
from tilescope.machine.kernel import Kernel
from tilescope.machine.memory import Memory
from tilescope.machine.report.finding_text import format_finding

POINTER = ".param .u64 out"


def only_finding(body, arguments, block=32, grid=1, before="", **options):
    run = kernel(body, POINTER if arguments else "", before=before).run(grid, block, arguments, **options)
    errors = [finding for finding in run.findings if finding.severity == "error"]
    assert len(errors) == 1, run.findings
    return errors[0]


# Faults: the codes were measured on an H200.

SHARED = ".shared .align 16 .b8 own[64]; mov.u32 %r1, own;"
FAULTS = {
    "global, outside": (700, "ld.param.u64 %d1, [out]; ld.global.u32 %r2, [%d1+64];"),
    "global, a null pointer": (700, "ld.global.u32 %r2, [%d1];"),
    "global, misaligned": (716, "ld.param.u64 %d1, [out]; ld.global.u32 %r2, [%d1+2];"),
    "global, misaligned vector": (716, "ld.param.u64 %d1, [out]; ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d1+8];"),
    "atomic, misaligned": (716, "ld.param.u64 %d1, [out]; red.global.add.u32 [%d1+2], 1;"),
    "atomic, outside": (700, "ld.param.u64 %d1, [out]; atom.global.add.u32 %r2, [%d1-4], 1;"),
    "shared, behind": (700, f"{SHARED} ld.shared.u32 %r2, [%r1+64];"),
    "shared, far behind": (700, f"{SHARED} ld.shared.u32 %r2, [%r1+0xf00000];"),
    "shared, of a block that is not there": (715, f"{SHARED} ld.shared.u32 %r2, [%r1+0x1000000];"),
    "shared, misaligned": (716, f"{SHARED} st.shared.u32 [%r1+1], %r2;"),
    "shared atomic, of a block that is not there": (715, f"{SHARED} red.shared::cluster.add.u32 [%r1+0x2000000], 1;"),
    "mbarrier, misaligned": (716, f"{SHARED} mbarrier.init.shared.b64 [%r1+4], 1;"),
    "ldmatrix, misaligned": (716, f"{SHARED} ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r2}}, [%r1+8];"),
    "cp.async, misaligned": (716, f"{SHARED} ld.param.u64 %d1, [out]; cp.async.ca.shared.global [%r1+2], [%d1], 4;"),
    "cp.async, from nowhere": (700, f"{SHARED} cp.async.ca.shared.global [%r1], [%d1], 4; cp.async.wait_all;"),
    "local, outside": (700, ".local .align 4 .b8 depot[16]; mov.u64 %d1, depot; ld.local.u32 %r2, [%d1+16];"),
    "trap": (719, "trap;"),
    "brkpt": (719, "brkpt;"),
    "a branch beyond its table": (719, "T: .branchtargets A; mov.u32 %r1, 3; brx.idx %r1, T; A: ret;"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_has_the_number_of_the_card(name):
    code, body = FAULTS[name]
    run = kernel(body).run(1, 1, [np.zeros(16, np.uint32)])
    assert run.outcome == "fault"
    assert [finding.values["code"] for finding in run.findings] == [code]
    assert str(code) in run.findings[0].limit
    assert ("pointer" in run.findings[0].fix) == (name in ("global, a null pointer", "cp.async, from nowhere"))


@pytest.mark.parametrize(
    "body",
    [
        f"{SHARED} ld.shared.u32 %r2, [16]; st.shared.u32 [1020], %r2;",  # the reserved KiB
        "mov.u64 %d1, out; cvta.param.u64 %d2, %d1; st.u32 [%d2], 7;",  # parameters
    ],
)
def test_what_the_card_lets_pass_passes(body):
    assert kernel(body).run(1, 32, [np.zeros(16, np.uint32)]).outcome == "finished"


THREADS = """
    .loc 1 12 5
    ld.param.u64 %d1, [out];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %tid.y;
    mov.u32 %r3, %ctaid.x;
    mad.lo.u32 %r4, %r2, 8, %r1;
    mad.lo.u32 %r4, %r3, 64, %r4;
    mul.wide.u32 %d2, %r4, 4;
    add.s64 %d1, %d1, %d2;
    .loc 1 14 9
    st.global.u32 [%d1], %r1;
"""


def test_a_fault_names_the_line_the_thread_and_the_nearest_array(wording):
    finding = only_finding(
        THREADS, [np.zeros(100, np.uint32)], block=(8, 8), grid=2, before='.file 1 "/home/me/scale.cu"'
    )
    assert finding.rule == "run-out-of-bounds"
    assert finding.argument.startswith("scale.cu:14, PTX line ")
    assert finding.values["who"] == "thread (4, 4, 0) of block (1, 0, 0)"
    assert finding.values["address"] == 0x7F0000000190
    assert "0x7f0000000000, args[0]" in finding.values["lies"]
    wording("an access past the end of an array", finding)


@pytest.mark.parametrize(
    ("offset", "distances"),
    [
        (-12, ["12 bytes", "16 bytes", "0x7f0000000000"]),
        (24, ["8 bytes", "16 bytes", "0x7f0000000000"]),
        (1 << 40, []),
    ],
)
def test_the_distance_to_the_nearest_array_is_told(offset, distances, wording):
    memory = Memory()
    array = np.zeros(4, np.uint32)
    address = memory.place(array) + offset
    finding = only_finding("ld.param.u64 %d1, [out]; ld.global.u32 %r1, [%d1];", [address], memory=memory)
    assert re.findall(r"\d+ bytes|0x7f0000000000", finding.values["lies"]) == distances
    wording(f"an address {offset} bytes from an array", finding.found)


def test_of_two_arrays_the_nearer_one_is_named():
    memory = Memory()
    far = np.zeros(4, np.uint32)
    near = np.zeros(8, np.uint32)
    memory.place(far)
    finding = only_finding(
        "ld.param.u64 %d1, [out]; ld.global.u32 %r1, [%d1];", [memory.place(near) + 40], memory=memory
    )
    assert re.findall(r"\d+ bytes", finding.values["lies"]) == ["8 bytes", "32 bytes"]


def test_an_access_across_the_end_of_an_array_is_told_as_such(wording):
    body = "ld.param.u64 %d1, [out]; ld.global.u64 %d2, [%d1+8];"
    finding = only_finding(body, [np.zeros(3, np.uint32)])
    assert re.findall(r"\d+ bytes", finding.values["lies"]) == ["4 bytes", "12 bytes"]
    wording("an access across the end of an array", finding.found)


def test_a_variable_of_the_text_has_its_name():
    finding = only_finding(
        "mov.u64 %d1, table; ld.global.u32 %r1, [%d1+16];", [], before=".global .align 4 .b32 table[4];"
    )
    assert "16 bytes" in finding.values["lies"]
    assert finding.values["lies"].endswith("0x7f0000000000, variable table")


def test_a_long_instruction_is_shortened():
    registers = ", ".join(f"%r{number}" for number in range(40))
    body = f".reg .b32 %a_register_with_a_long_name<4>; ld.global.u32 %a_register_with_a_long_name1, [%d1+16]; // {registers}"
    assert len(only_finding(body, []).argument) < 120


# Hangs

WAIT = """
    .shared .align 8 .b64 full[2];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, full;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra HERE;
    mbarrier.init.shared.b64 [%r2+8], 2;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r2+8], 4096;
HERE:
    bar.sync 0;
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p2, [%r2+8], PARITY;
    @!%p2 bra WAIT;
"""


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_a_phase_that_never_ends_is_told_with_what_is_missing(seed, wording):
    (bytes_missing,) = kernel(WAIT.replace("PARITY", "0"), POINTER).run(4, 128, [0], seed=seed).findings
    assert bytes_missing.rule == "run-expected-bytes"
    assert [bytes_missing.values[name] for name in ("expected", "came", "others")] == [4096, 0, 3]
    (wait,) = bytes_missing.values["also"]
    assert wait["rule"] == "run-hang"
    assert "mbarrier.try_wait" in wait["argument"]
    assert "threads 0-127 of block" in wait["found"]
    assert "3 other blocks" in wait["found"]
    assert "0x408 (full+8) with parity 0" in wait["found"]
    assert "1 of 2 arrivals and 4096 bytes" in wait["found"]
    wording("a phase that never ends", re.sub(r"block \(\d, 0, 0\)", "BLOCK", "\n".join(format_finding(bytes_missing))))


def test_the_other_parity_passes():
    assert kernel(WAIT.replace("PARITY", "1")).run(1, 128, [0]).outcome == "finished"


def test_an_mbarrier_without_init_is_told(wording):
    body = ".shared .align 8 .b64 full; A: mbarrier.try_wait.parity.shared.b64 %p1, [full], 0; @!%p1 bra A;"
    finding = only_finding(body, [])
    assert (finding.rule, finding.severity, finding.values["address"]) == ("run-barrier-init", "error", 0x400)
    wording("a wait at an mbarrier without init", finding)


TWO_BARRIERS = """
    mov.u32 %r1, %tid.x;
    setp.lt.u32 %p1, %r1, 32;
    @%p1 bra FIRST;
    bar.sync 1;
    bra.uni END;
FIRST:
    bar.sync 2;
END:
    ret;
"""


def test_threads_at_two_barriers_are_told_of_each_other(wording):
    run = kernel(TWO_BARRIERS, "").run(1, 96)
    assert run.outcome == "hang"
    (finding,) = run.findings
    told = ("who", "number", "arrived", "expected")
    assert [finding.values[name] for name in told] == ["threads 32-95 of block (0, 0, 0)", 1, 64, 96]
    assert finding.values["others"].startswith("threads 0-31 ")
    assert "(bar.sync 2)" in finding.values["others"]
    (second,) = finding.values["also"]
    assert (
        "threads 0-31 of block (0, 0, 0) cannot pass barrier 2, which 32 of 96 threads have reached" in second["found"]
    )
    wording("threads at two barriers", finding)


def test_threads_that_ended_are_missing_at_a_barrier_with_a_number(wording):
    body = "mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 32; @%p1 exit; bar.sync 3, 64;"
    finding = only_finding(body, [], block=64)
    assert [finding.values[name] for name in ("number", "arrived", "expected")] == [3, 32, 64]
    assert "threads 32-63" in finding.values["others"]
    wording("a barrier that ended threads do not reach", finding.found)


def test_a_barrier_for_more_threads_than_there_are(wording):
    finding = only_finding("bar.sync 0, 64;", [], block=32)
    assert [finding.values[name] for name in ("number", "arrived", "expected")] == [0, 32, 64]
    wording("a barrier for more threads than there are", finding.found)


PARTLY_SERVED = """
    .shared .align 8 .b64 full;
    .shared .align 8 .b64 empty;
    mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra READY;
    mbarrier.init.shared.b64 [full], 1;
    mbarrier.init.shared.b64 [empty], 3;
READY:
    bar.sync 0;
    setp.lt.u32 %p2, %r1, 32;
    @%p2 bra CONSUMER;
PRODUCER:
    mbarrier.try_wait.parity.shared.b64 %p3, [empty], 0;
    @!%p3 bra PRODUCER;
    mbarrier.arrive.shared.b64 _, [full];
    ret;
CONSUMER:
    @!%p1 mbarrier.arrive.shared.b64 _, [empty];
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p4, [full], 0;
    @!%p4 bra WAIT;
    ret;
"""


def test_an_mbarrier_that_got_some_of_its_arrivals_comes_before_one_to_which_nobody_came(wording):
    run = kernel(PARTLY_SERVED, "").run(1, 64, advice="none")
    (first,) = run.findings
    assert (first.values["variable"], first.values["parity"]) == ("empty", "parity 0")
    assert "2 of 3 arrivals" in first.found
    wording("an mbarrier that lacks arrivals", first)
    (second,) = first.values["also"]
    assert "(full) with parity 0" in second["found"]


def test_parts_of_a_warp_that_wait_for_each_other(wording):
    body = """
        mov.u32 %r1, %tid.x;
        and.b32 %r2, %r1, 31;
        setp.ge.u32 %p1, %r2, 16;
        @%p1 bra SHUFFLE;
        bar.sync 0;
        bra.uni END;
    SHUFFLE:
        shfl.sync.bfly.b32 %r3, %r1, 1, 31, -1;
        bar.sync 0;
    END:
        ret;
    """
    run = kernel(body, "").run(1, 64)
    assert run.outcome == "finished"
    assert {finding.rule for finding in run.findings} == {"run-convergence"}
    told = "\n".join(finding.found for finding in run.findings)
    assert "threads 0-15 of block" in told
    assert "threads 16-31 of the same warp" in told
    wording("parts of a warp that wait for each other", told)


def test_a_barrier_of_the_cluster_that_one_block_does_not_reach(wording):
    body = """
        mov.u32 %r1, %cluster_ctarank;
        setp.eq.u32 %p1, %r1, 1;
        @%p1 bra OTHER;
        barrier.cluster.arrive;
        barrier.cluster.wait;
        ret;
    OTHER:
        bar.sync 0, 128;
    """
    run = kernel(body, "").run(2, 64, cluster=2)
    (finding,) = run.findings
    told = "\n".join((finding.found, *(other["found"] for other in finding.values["also"])))
    assert "threads 0-63 of block (0, 0, 0)" in told
    assert "threads 0-63 of block (1, 0, 0)" in told
    wording("a barrier of the cluster", told)


POLL = "ld.param.u64 %d1, [out]; W: ld.acquire.gpu.global.u32 %r1, [%d1+4]; setp.eq.u32 %p1, %r1, 5; @%p1 bra W;"


def test_blocks_that_wait_for_a_word_of_global_memory(wording):
    finding = only_finding(POLL, [np.full(4, 5, np.uint32)], grid=6)
    assert finding.values["who"].startswith("threads 0-31 of block (0, 0, 0) ")
    assert "5 other blocks" in finding.values["who"]
    assert (finding.values["address"], finding.values["word"]) == (0x7F0000000004, 5)
    assert finding.values["owner"].endswith(", args[0]")
    wording("a loop that polls a word", finding)


def test_a_word_of_shared_memory():
    body = ".shared .align 4 .b32 flag; W: ld.volatile.shared.u32 %r1, [flag]; setp.eq.u32 %p1, %r1, 0; @%p1 bra W;"
    finding = only_finding(body, [])
    assert [finding.values[name] for name in ("address", "owner", "word")] == [0x400, "flag", 0]


def test_a_loop_that_waits_for_nothing(wording):
    finding = only_finding("A: bra A;", [], grid=2)
    assert "another block" in finding.values["who"]
    wording("a loop that waits for nothing", finding)


def test_one_thread_that_waits_is_named_alone():
    body = "mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 7; @%p1 exit; A: bra A;"
    assert only_finding(body, []).values["who"] == "thread 7 of block (0, 0, 0)"


def test_many_different_waits_are_counted(wording):
    """Every thread spins at an instruction of its own."""
    labels = ", ".join(f"L{number}" for number in range(32))
    loops = "\n".join(f"L{number}: bra L{number};" for number in range(32))
    run = kernel(f"mov.u32 %r1, %tid.x; T: .branchtargets {labels}; brx.idx %r1, T; {loops}", "").run(1, 32)
    assert run.outcome == "hang"
    (finding,) = run.findings
    assert len(finding.values["also"]) == 20
    assert finding.values["also"][-1]["found"] == "12 more groups of threads wait"
    wording("many different waits", "\n".join(format_finding(finding)))


# Runs that do not end

COUNTING = "mov.u32 %r2, %tid.x; setp.ge.u32 %p1, %r2, 20; @%p1 exit; AGAIN: add.u32 %r1, %r1, 1; bra AGAIN;"


def test_a_run_that_does_not_end_says_where_its_threads_are(wording):
    finding = only_finding(COUNTING, [], max_steps=2000)
    assert finding.rule == "run-stopped"
    assert finding.limit == "max_steps = 2000"
    assert "threads 0-19 of block (0, 0, 0)" in finding.values["standing"]
    wording("a run that does not end", finding)


@pytest.mark.parametrize(
    "body",
    [
        COUNTING,
        "A: ld.param.u64 %d1, [out]; atom.global.add.u32 %r1, [%d1], 1; bra A;",
        "A: mov.u64 %d1, %clock64; bra A;",
        "A: mov.u32 %r2, %laneid; shfl.sync.bfly.b32 %r1, %r2, 1, 31, -1; add.u32 %r3, %r3, %r1; bra A;",
        "A: bar.sync 0; add.u32 %r3, %r3, 1; bra A;",
    ],
)
def test_hostile_loops_are_stopped(body):
    run = kernel(body).run(1 << 20, 64, [np.zeros(4, np.uint32)], max_steps=3000)
    assert run.outcome == "stopped"
    assert [finding.rule for finding in run.findings] == ["run-stopped"]


def test_a_run_that_ends_has_no_findings():
    assert kernel("bar.sync 0;", "").run(3, 96).findings == ()


def test_a_warpgroup_that_is_not_whole_hangs_and_says_so():
    """Warp 3 of five waits at a barrier that nobody ends, while warps 0 to 2 wait for it at wgmma.fence."""
    broken = kernel("""
        mov.u32 %r1, %tid.x;
        setp.lt.u32 %p1, %r1, 96;
        @%p1 bra FENCE;
        bar.sync 1, 160;
    FENCE:
        wgmma.fence.sync.aligned;
    """)
    run = broken.run(1, 160, [np.zeros(1, np.uint32)])
    assert run.outcome == "hang"
    (finding,) = run.findings
    assert "wgmma.fence" in finding.found + "".join(other["found"] for other in finding.values["also"])


def test_the_clock_ends_a_run_too():
    finding = only_finding(COUNTING, [], max_seconds=0.05)
    assert finding.rule == "run-stopped"
    assert (finding.argument, finding.limit) == ("max_seconds", "max_seconds = 0.05")


def test_a_finding_has_the_lines_of_its_instructions():
    text = """.version 8.0
        .target sm_90
        .address_size 64
        .entry k() {
            .shared .b8 s[512]; .reg .b32 %r<4>;
            mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r2, %r2, %r3;
            st.shared.u32 [%r2], %r1;
            ld.shared.u32 %r1, [s+128];
            ret;
        }"""
    (race,) = Kernel(text).run(1, 64).findings
    assert race.values["ptx_lines"] == (8, 7)


def test_threads_that_add_to_one_word_are_told_to_use_an_atomic():
    add = """
        .shared .align 4 .b32 sum;
        mov.u32 %r1, %tid.x;
        setp.eq.u32 %p1, %r1, 0;
        @%p1 st.shared.u32 [sum], 0;
        bar.sync 0;
        mov.u32 %r2, sum;
        ld.shared.u32 %r3, [%r2];
        add.u32 %r3, %r3, 1;
        st.shared.u32 [%r2], %r3;
    """
    races = [finding for finding in kernel(add, "").run(1, 64).findings if finding.rule == "run-race"]
    assert races
    assert all("atomic" in race.fix and "bar.sync" not in race.fix for race in races)


# Lines: a page and an editor find the instructions of every finding by its values.

RUN_RULES = sorted(name for name, row in ts.RULES.items() if name.startswith("run-") and "findings" in str(row.failing))


@pytest.mark.parametrize("name", RUN_RULES)
def test_every_finding_of_a_run_has_the_lines_of_its_instructions(name):
    findings = eval(ts.RULES[name].failing, {"ts": ts, "np": np})  # the rule book's own example
    assert name in {finding.rule for finding in findings}
    for finding in findings:
        assert finding.values["ptx_lines"], finding
        assert isinstance(finding.values["source_lines"], tuple)


def test_a_finding_has_the_source_lines_of_both_instructions():
    body = """
    .loc 1 3 0
    .shared .align 16 .b8 s[256];
    mov.u32 %r1, %tid.x;
    st.shared.u32 [s], %r1;
    .loc 1 9 0
    ld.shared.u32 %r2, [s];
    """
    run = kernel(body, "", before='.file 1 "turn.cu"').run(1, 64, advice="none")
    found = {finding.rule: finding.values["source_lines"] for finding in run.findings if "reads" in finding.found}
    assert found == {"run-race": ("turn.cu:9", "turn.cu:3")}


def test_bytes_that_never_come_name_the_instructions_that_expect_and_bring_them():
    findings = eval(ts.RULES["run-expected-bytes"].failing, {"ts": ts, "np": np})
    (found,) = [finding for finding in findings if finding.rule == "run-expected-bytes"]
    assert found.values["ptx_lines"] == (19, 20, 22)  # expect_tx, the bulk copy, and the wait that hangs


def test_a_truth_value_is_no_number_of_seconds():
    with pytest.raises(ts.RuleError, match="max_seconds"):
        kernel("", "").run(1, 32, max_seconds=True)


UNROLLED = """
    .shared .align 4 .b8 _ZZ4turnPjE4tile[512];
    mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, _ZZ4turnPjE4tile; add.u32 %r4, %r3, %r2;
    mov.u32 %r5, 252; sub.u32 %r5, %r5, %r2; add.u32 %r5, %r5, %r3;
    .loc 1 5 0
    st.shared.u32 [%r4], %r1;
    st.shared.u32 [%r4+256], %r1;
    .loc 1 7 0
    ld.shared.u32 %r6, [%r5];
    ld.shared.u32 %r6, [%r5+256];
    .loc 1 8 0
    ld.shared.u32 %r6, [%r5];
    ret;
"""


def test_what_two_source_lines_do_alike_is_told_once(wording):
    run = kernel(UNROLLED, "", before='.file 1 "turn.cu"').run(1, 64, [], advice="none")
    races = [finding for finding in run.findings if finding.rule == "run-race"]
    assert [finding.values["source_lines"] for finding in races] == [
        ("turn.cu:7", "turn.cu:5"),
        ("turn.cu:8", "turn.cu:5"),
    ]
    first, second = races
    assert [first.values[name] for name in ("at", "who", "does")] == [
        "turn.cu:7",
        "thread (0, 0, 0) of block (0, 0, 0)",
        "reads",
    ]
    assert "0x4fc (tile+252)" in first.values["what"]
    assert first.values["times"] == 2
    wording("a race seen by several instructions of a line", first.found)
    assert (first.values["conflicts"], len(first.values["ptx_lines"])) == (2, 4)
    assert second.values["conflicts"] == 1


def test_source_lines_that_one_barrier_orders_are_told_once():
    run = kernel(UNROLLED, "", before='.file 1 "turn.cu"').run(1, 64, [])
    (race,) = [finding for finding in run.findings if finding.rule == "run-race"]
    assert race.values["source_lines"] == ("turn.cu:7", "turn.cu:5", "turn.cu:8")
    assert (race.values["others_gone"], race.values["other_lines"]) == (1, ("turn.cu:8",))


def test_without_source_lines_every_pair_is_told():
    text = UNROLLED.replace(".loc 1 5 0", "").replace(".loc 1 7 0", "").replace(".loc 1 8 0", "")
    run = kernel(text, "").run(1, 64, [], advice="none")
    assert len([finding for finding in run.findings if finding.rule == "run-race"]) == 3


# Mbarriers: the cause is told before its victims.

RING = """
    .shared .align 128 .b8 tile[64];
    .shared .align 8 .b64 full;
    .shared .align 8 .b64 empty;
    ld.param.u64 %d1, [out];
    mov.u32 %r1, %tid.x;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared.b64 [full], 1;
    @%p1 mbarrier.init.shared.b64 [empty], 31;
    bar.sync 0;
    mov.u32 %r2, 0;
    mov.u32 %r3, 1;
    @!%p1 bra READ;
FILL:
    {wait_empty}
    mbarrier.arrive.expect_tx.shared.b64 _, [full], {bytes};
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%d1], 32, [full];
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile+32], [%d1], 32, [full];
    xor.b32 %r3, %r3, 1;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p2, %r2, 4;
    @%p2 bra FILL;
    ret;
READ:
    xor.b32 %r3, %r3, 1;
    {wait_full}
    ld.shared.u32 %r4, [tile+32];
    mbarrier.arrive.shared.b64 _, [empty];
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p2, %r2, 4;
    @%p2 bra READ;
    ret;
"""
PARTS = {
    "wait_empty": "E: mbarrier.try_wait.parity.shared.b64 %p3, [empty], %r3; @!%p3 bra E;",
    "wait_full": "F: mbarrier.try_wait.parity.shared.b64 %p3, [full], %r3; @!%p3 bra F;",
    "bytes": "64",
}


TWO_COPIES = """
    .shared .align 128 .b8 tile[32];
    .shared .align 8 .b64 full;
    ld.param.u64 %d1, [a];
    mov.u32 %r1, tile;
    mbarrier.init.shared.b64 [full], 1;
    mbarrier.arrive.expect_tx.shared.b64 _, [full], 16;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d1], 16, [full];
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+16], [%d1], 16, [full];
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p1, [full], 0;
    @!%p1 bra WAIT;
    ld.shared.u32 %r2, [%r1+16];
    st.global.u32 [%d1], %r2;
    ret;
"""


def test_bytes_of_a_second_copy_that_nobody_expects_are_the_first_thing_told(wording):
    """The second copy lands when the block has ended: nobody waits for it, though the kernel waits."""
    run = kernel(TWO_COPIES, ".param .u64 a").run(1, 1, [np.zeros(16, np.uint32)])
    assert run.outcome == "finished"
    assert [finding.rule for finding in run.findings] == ["run-expected-bytes", "run-block-end"]
    assert [other["rule"] for other in run.findings[0].values["also"]] == ["run-copy-wait"]
    assert (run.findings[0].values["expected"], run.findings[0].values["came"]) == (16, 32)
    assert "32 bytes" in run.findings[0].fix
    wording("bytes that nobody expects", run.findings[0])


@pytest.mark.parametrize(("size_bytes", "fix"), [(40, "Copy and expect 48 bytes"), (32, None)])
def test_a_bulk_copy_whose_size_is_cut_down_is_told_so(size_bytes, fix):
    body = TWO_COPIES.replace("full], 16;", f"full], {size_bytes};", 1).replace(
        "[%r1], [%d1], 16", f"[%r1], [%d1], {size_bytes}"
    )
    body = "\n".join(line for line in body.splitlines() if "%r1+16], [%d1]" not in line).replace("tile[32]", "tile[64]")
    run = kernel(body, ".param .u64 a").run(1, 1, [np.zeros(16, np.uint32)], advice="none")
    assert (run.outcome == "hang") == (fix is not None)
    if fix is not None:
        assert run.findings[0].rule == "run-expected-bytes"
        assert (run.findings[0].values["expected"], run.findings[0].values["came"]) == (40, 32)
        assert fix in run.findings[0].fix
        assert "multiples of 16" in run.findings[0].limit


def ring_findings(**changed):
    run = kernel(RING.format(**{**PARTS, **changed}), POINTER).run(1, 32, [np.zeros(16, np.uint32)], advice="none")
    return run.outcome, [finding for finding in run.findings if finding.severity == "error"]


def test_a_right_ring_has_no_finding():
    assert ring_findings() == ("finished", [])


def test_a_phase_that_ends_before_its_bytes_have_come_says_how_many_to_expect():
    _, findings = ring_findings(bytes="32")
    assert findings[0].rule == "run-expected-bytes"
    assert (findings[0].values["expected"], findings[0].values["came"]) == (32, 64)
    assert findings[0].fix == "Expect 64 bytes."


def test_an_mbarrier_that_is_armed_again_is_named_with_what_it_waits_for(wording):
    outcome, findings = ring_findings(wait_empty="")
    assert outcome == "fault"
    assert findings[0].rule == "run-launch-failure"
    assert "(full)" in findings[0].found
    assert "64 bytes" in findings[0].limit
    wording("an mbarrier that is armed again", findings[0])


def test_a_read_that_does_not_wait_is_told_before_those_who_cannot_go_on():
    outcome, findings = ring_findings(wait_full="")
    assert outcome in ("fault", "hang")
    assert findings[0].rule == "run-copy-wait"
    assert {"run-hang", "run-launch-failure"} & {finding.rule for finding in findings[1:]}


def test_a_relaxed_wait_is_told_as_one():
    """It has seen the phase end, so another wait would not help."""
    relaxed = "F: mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 %p3, [full], %r3; @!%p3 bra F;"
    outcome, findings = ring_findings(wait_full=relaxed)
    assert outcome == "finished"
    assert findings[0].rule == "run-copy-wait"
    assert "by a relaxed wait" in findings[0].limit
    assert ring_findings(wait_full=f"{relaxed} fence.acq_rel.cta;") == ("finished", [])


def test_a_race_names_a_thread_of_another_warp_where_there_is_one():
    body = """
        mov.u32 %r1, %tid.x;
        setp.eq.u32 %p1, %r1, 0;
        @%p1 st.shared.u32 [maximum], %r1;
        bar.sync 0;
        ld.shared.u32 %r2, [maximum];
        @%p1 st.shared.u32 [maximum], 7;
        ret;
    """
    run = kernel(body, "", before=".shared .align 4 .b32 maximum;").run(1, 64, [], advice="none")
    (finding,) = run.findings
    assert (finding.values["before_who"], finding.values["did"]) == ("thread (32, 0, 0)", "reads")
    assert finding.values["remedy"] == "bar.sync (__syncthreads)"


def test_a_race_names_another_block_where_there_is_one():
    body = """
        mov.u32 %r1, %tid.x;
        mov.u32 %r2, %ctaid.x;
        or.b32 %r3, %r1, %r2;
        setp.eq.u32 %p1, %r3, 0;
        ld.param.u64 %d1, [out];
        @%p1 st.global.u32 [%d1], 0;
        red.global.add.u32 [%d1], 1;
        ret;
    """
    run = kernel(body).run(2, 64, [np.zeros(1, np.uint32)], advice="none")
    (finding,) = run.findings
    assert finding.values["who"] == "thread (0, 0, 0) of block (1, 0, 0)"
    assert (finding.values["does"], finding.values["did"]) == ("changes", "writes")
    assert finding.values["before_who"] == "another block"


def test_an_operand_beyond_shared_memory_is_a_matter_of_its_descriptor(wording):
    body = """
        .shared .align 1024 .b8 tile[1024];
        mov.u32 %r1, tile;
        shr.u32 %r1, %r1, 4;
        cvt.u64.u32 %d1, %r1;
        or.b64 %d1, %d1, 0x4000008000010000;
        wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r4, %r5, %r6, %r7}, %d1, %d1, 0, 1, 1, 0, 0;
        wgmma.commit_group.sync.aligned;
        wgmma.wait_group.sync.aligned 0;
        ret;
    """
    finding = kernel(body, "").run(1, 128).findings[0]
    assert finding.rule == "run-out-of-bounds"
    assert "(LBO, SBO)" in finding.fix
    wording("an operand beyond shared memory", finding)
