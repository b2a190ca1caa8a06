"""Fixes of kernels as people write them: one finding for one mistake, and the fix in the language of the source."""

from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from ptx_texts import kernel as kernel_of

import tilescope as ts
from tilescope.machine.edits import trial
from tilescope.machine.report.remedy_report import spell
from tilescope.machine.report.source_spelling import SPELLINGS

SOURCE = Path(__file__).parent / "fixes.cu"


class Wrong(NamedTuple):
    """A kernel of fixes.cu with a mistake: the rule that it breaks, and what its fix must name."""

    entry: str
    mistake: str
    rule: str
    fix: str
    grid: int = 1

    def __str__(self):
        return f"{self.entry} {self.mistake}"


WRONG = [
    Wrong("unrolled", "NO_FIRST_BARRIER", "run-race", "`__syncthreads()` (`bar.sync 0;`)"),
    Wrong("unrolled", "NO_SECOND_BARRIER", "run-race", "`__syncthreads()` (`bar.sync 0;`)"),
    Wrong("reduction", "NO_BARRIER", "run-race", "`__syncthreads()` (`bar.sync 0;`)"),
    Wrong("neighbours", "NO_WARP_BARRIER", "run-race", "`__syncwarp()` (`bar.warp.sync 0xffffffff;`)"),
    Wrong("through_memory", "NO_BARRIER", "run-race", "`__syncthreads()` (`bar.sync 0;`)", grid=2),
    Wrong("stages", "PENDING_GROUPS=2", "run-cp-async", "`__pipeline_wait_prior(1)` (`cp.async.wait_group 1;`)"),
    Wrong("stages", "PENDING_GROUPS=3", "run-cp-async", "`__pipeline_wait_prior(1)` (`cp.async.wait_group 1;`)"),
    Wrong("counted", "ARRIVALS=129", "run-hang", "128 arrivals at"),
    Wrong("counted", "ARRIVALS=64", "run-hang", "128 arrivals at"),
    Wrong("named", "BARRIER_THREADS=64", "run-race", "`bar.sync 1, 128;`"),
    Wrong("named", "BARRIER_THREADS=160", "run-hang", "128 threads at"),
    Wrong(
        "flagged",
        "SCOPE=cuda::thread_scope_block",
        "run-race",
        "`cuda::atomic_ref<T, cuda::thread_scope_device>`",
        grid=2,
    ),
    Wrong("fenced", "FENCE=__threadfence_block()", "run-race", "`__threadfence()` (`membar.gl;`)", grid=2),
]


@cache
def compiled_text(mistakes):
    """The PTX of fixes.cu with mistakes."""
    return ts.Kernel.from_cuda(SOURCE, "unrolled", options=[f"-D{mistake}" for mistake in mistakes]).ptx


def made_together(mistake):
    """The mistakes of one compilation: of each kernel one, so that the kernel with `mistake` has no other."""
    of_kernel = {"two_tiles": ["NO_BARRIERS"]}
    for row in WRONG:
        of_kernel.setdefault(row.entry, []).append(row.mistake)
    (names,) = (names for names in zip_longest(*of_kernel.values()) if mistake in names)
    return tuple(dict.fromkeys(filter(None, names)))


@cache
def compiled(entry, mistake=None):
    """A kernel of fixes.cu, right or with a mistake."""
    return ts.Kernel(compiled_text(() if mistake is None else made_together(mistake)), entry)


def run(kernel, grid=1, **options):
    """Run a kernel of fixes.cu with its 128 threads; the result and its array."""
    rng = np.random.default_rng(17)
    out = np.zeros(1024, np.int32)
    arrays = [out, rng.integers(0, 100, 1024).astype(np.int32), np.zeros(1024, np.int32)]
    return kernel.run(grid, 128, arrays[: len(kernel.parameters)], **options), out


def errors(result):
    return [finding for finding in result.findings if finding.severity == "error"]


def threads_at_barriers(result):
    """How many threads executed each bar.sync."""
    return [one.threads for one in result.instructions if one.ptx_text.startswith("bar.sync")]


def edited(text, finding):
    """A text with the insertions or the corrections of a finding."""
    edits = [(one["offset"], one["offset"], f" {one['text']} ") for one in finding.change.get("insert_ptx", ())]
    edits += [(one["start"], one["end"], one["text"]) for one in finding.change.get("replace_ptx", ())]
    for start, end, words in sorted(edits, reverse=True):
        text = text[:start] + words + text[end:]
    return text


def fix_kernel(kernel, finding):
    """A kernel with the fix of a finding."""
    return ts.Kernel(edited(kernel.ptx, finding), kernel.entry)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("entry", dict.fromkeys(row.entry for row in WRONG))
def test_a_right_kernel_of_cuda_has_no_finding(require, entry):
    require("nvcc")
    result, _ = run(compiled(entry), 2)
    assert result.outcome == "finished"
    assert [finding for finding in result.findings if finding.severity != "note"] == []


@pytest.mark.thinned(7)
@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_one_mistake_in_cuda_is_one_finding_with_one_fix(require, wrong):
    require("nvcc")
    kernel = compiled(wrong.entry, wrong.mistake)
    result, _ = run(kernel, wrong.grid)
    (finding,) = errors(result)  # a hang and its cause are one
    assert finding.rule == wrong.rule
    assert wrong.fix in finding.fix
    assert "tried" in finding.fix
    assert not [one for one in result.findings if one.severity == "warning"]


@pytest.mark.thinned(7)
@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_the_fixed_kernel_computes_what_the_right_one_does(require, wrong):
    require("nvcc")
    kernel = compiled(wrong.entry, wrong.mistake)
    result, _ = run(kernel, wrong.grid)
    again, out = run(fix_kernel(kernel, errors(result)[0]), wrong.grid, seed=5)  # that no trial has
    _, right = run(compiled(wrong.entry), wrong.grid)
    assert again.outcome == "finished"
    assert errors(again) == []
    np.testing.assert_array_equal(out, right)


def test_two_mistakes_are_two_findings(require):
    require("nvcc")
    result, _ = run(compiled("two_tiles", "NO_BARRIERS"))
    first, second = errors(result)
    assert first.change != second.change
    assert first.values["source_lines"] != second.values["source_lines"]


def test_unrolled_copies_are_one_finding_without_trials(require):
    require("nvcc")
    result, _ = run(compiled("unrolled", "NO_FIRST_BARRIER"), advice="none")
    (finding,) = errors(result)
    assert finding.values["conflicts"] == 8
    assert finding.change is None


def test_a_barrier_is_not_put_where_threads_have_diverged(require):
    require("nvcc")
    kernel = compiled("reduction", "NO_BARRIER")
    result, _ = run(kernel)
    again, _ = run(fix_kernel(kernel, errors(result)[0]))
    threads = threads_at_barriers(again)
    assert len(threads) > 1
    assert set(threads) <= {128 * rounds for rounds in range(1, 8)}


# The same in PTX that is written by hand, whose fixes are PTX.

THREAD_WORD = """
    .shared .align 16 .b8 tile[2048];
    ld.param.u64 %d1, [out];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, tile;
    mad.lo.u32 %r3, %r1, 4, %r2;
"""  # %r3: the thread's own word


def words_of_pair(mask):
    """%r3 is the thread's own word, %r4 that of the thread whose number differs in the bits of a mask."""
    return THREAD_WORD + f"xor.b32 %r4, %r1, {mask}; mad.lo.u32 %r4, %r4, 4, %r2;"


UNROLLED = words_of_pair(127) + "mov.u32 %r6, 0;"
ROUND = """
    .loc 1 5 0
    add.u32 %r7, %r6, %r1;
    st.shared.u32 [%r3], %r7;
    {first}
    .loc 1 7 0
    ld.shared.u32 %r5, [%r4];
    add.u32 %r6, %r6, %r5;
    {second}
"""
END = """
    mad.wide.u32 %d1, %r1, 4, %d1;
    st.global.u32 [%d1], %r6;
    ret;
"""


def unrolled(file, first="bar.sync 0;", second="bar.sync 0;"):
    """A loop of four rounds that a compiler unrolled, from a file."""
    body = UNROLLED + 4 * ROUND.format(first=first, second=second) + END
    return kernel_of(body, before=f'.file 1 "{file}"')


def run_words(kernel, grid=1, block=128, **options):
    return kernel.run(grid, block, [np.zeros(256, np.uint32)], **options)


def sole_change(finding, kind):
    """The text of the only insertion or correction of a finding."""
    (change,) = finding.change[kind]
    return change["text"]


def one_round(first=""):
    """One round of the loop, written by hand: no line of a source belongs to it."""
    return UNROLLED + ROUND.format(first=first, second="").replace(".loc", "//") + END


def test_a_barrier_that_an_unrolled_loop_lacks_is_one_finding():
    assert not run_words(unrolled("loop.cu")).findings
    for missing in ({"first": ""}, {"second": ""}):
        (finding,) = run_words(unrolled("loop.cu", **missing)).findings
        assert {one["text"] for one in finding.change["insert_ptx"]} == {"bar.sync 0;"}
        assert len(finding.change["insert_ptx"]) >= 3


@pytest.mark.parametrize(
    ("file", "spelled"),
    [
        ("loop.cu", "`__syncthreads()` (`bar.sync 0;`)"),
        ("loop.cuh", "`__syncthreads()` (`bar.sync 0;`)"),
        ("kernels.py", "`tl.debug_barrier()` (`bar.sync 0;`)"),
        ("loop.txt", "Put `bar.sync 0;`"),
    ],
)
def test_a_fix_is_spelled_in_the_language_of_the_source(file, spelled):
    (finding,) = run_words(unrolled(file, first="")).findings
    assert spelled in finding.fix


def test_a_text_written_by_hand_is_fixed_in_ptx():
    (finding,) = run_words(kernel_of(one_round())).findings
    assert finding.fix.startswith("Put `bar.sync 0;` before PTX line")


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda spelling: spelling.ptx)
def test_every_instruction_has_a_name_in_some_language(spelling):
    assert spelling.cuda or spelling.triton or spelling.cute
    assert all(name.format(0, 1).count("{") == name.format(0, 1).count("{}") for name in spelling[1:])


def test_fences_and_waits_have_the_names_of_their_libraries():
    assert spell("fence.proxy.async;", "triton") == "fence_async_shared()"
    assert spell("fence.proxy.async;", "cute") == "cutlass::arch::fence_view_async_shared()"
    assert spell("wgmma.wait_group.sync.aligned 1;", "cute") == "cute::warpgroup_wait<1>()"
    assert spell("wgmma.wait_group.sync.aligned 1;", "cuda") is None
    assert spell("bar.warp.sync 0xffff;", "cuda") == "__syncwarp(0xffff)"
    assert (
        spell("cp.async.bulk.wait_group.read 1;", "cuda")
        == "cuda::ptx::cp_async_bulk_wait_group_read(cuda::ptx::n32_t<1>{})"
    )
    assert spell("cp.async.bulk.wait_group 0;", "cuda") == "cuda::ptx::cp_async_bulk_wait_group(cuda::ptx::n32_t<0>{})"
    acquire = spell("fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;", "cuda")
    assert acquire is not None
    assert acquire.endswith("map, cuda::ptx::n32_t<128>{})")


GROUPS = f"""{THREAD_WORD}
    mad.wide.u32 %d2, %r1, 4, %d1;
    cp.async.ca.shared.global [%r3], [%d2], 4;
    cp.async.commit_group;
    cp.async.ca.shared.global [%r3+512], [%d2], 4;
    cp.async.commit_group;
    cp.async.ca.shared.global [%r3+1024], [%d2], 4;
    cp.async.commit_group;
    cp.async.wait_group {{groups}};
    ld.shared.u32 %r4, [%r3+{{offset}}];
    cp.async.wait_all;
    st.global.u32 [%d2+512], %r4;
    ret;
"""


@pytest.mark.parametrize(("groups", "offset", "needed"), [(3, 0, 2), (2, 512, 1), (3, 512, 1), (2, 1024, 0)])
def test_a_wait_leaves_as_many_groups_pending_as_it_can(groups, offset, needed):
    (finding,) = run_words(kernel_of(GROUPS.format(groups=groups, offset=offset))).findings
    assert sole_change(finding, "replace_ptx") == f"cp.async.wait_group {needed};"
    assert not run_words(kernel_of(GROUPS.format(groups=needed, offset=offset))).findings


FLAG = """
    ld.param.u64 %d1, [out];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %tid.x;
    setp.ne.u32 %p1, %r2, 0;
    @%p1 ret;
    setp.ne.u32 %p2, %r1, 0;
    @%p2 bra reader;
    st.global.u32 [%d1+4], 7;
    st.release.{release}.global.u32 [%d1], 1;
    ret;
reader:
    ld.acquire.{acquire}.global.u32 %r3, [%d1];
    setp.eq.u32 %p3, %r3, 0;
    @%p3 bra reader;
    ld.global.u32 %r4, [%d1+4];
    st.global.u32 [%d1+8], %r4;
    ret;
"""


@pytest.mark.parametrize(
    ("release", "acquire", "widened"),
    [("cta", "gpu", ["st.release.gpu"]), ("gpu", "cta", ["ld.acquire.gpu"]), ("cta", "cta", ["st", "ld"])],
)
def test_the_scope_that_is_too_narrow_is_widened(release, acquire, widened):
    result = run_words(kernel_of(FLAG.format(release=release, acquire=acquire)), 2, 32)
    finding = errors(result)[0]
    texts = [one["text"] for one in finding.change["replace_ptx"]]
    assert len(texts) == len(widened)
    assert all(any(text.startswith(start) for text in texts) for start in widened)
    assert all(".gpu." in text for text in texts)


def test_blocks_that_synchronize_at_the_scope_of_the_card_are_right():
    assert not run_words(kernel_of(FLAG.format(release="gpu", acquire="gpu")), 2, 32).findings


@pytest.mark.parametrize(("threads", "rule"), [(32, "run-race"), (64, "run-race"), (96, "run-hang")])
def test_a_barrier_for_too_few_threads_gets_their_number(threads, rule):
    (finding,) = errors(run_words(kernel_of(one_round(f"bar.sync 1, {threads};"))))
    assert finding.rule == rule  # of 96 threads the fourth warp waits forever
    assert sole_change(finding, "replace_ptx") == "bar.sync 1, 128;"


COUNTED = f"""{words_of_pair(127)}
    .shared .align 8 .b64 full;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared.b64 [full], {{count}};
    bar.sync 0;
    st.shared.u32 [%r3], %r1;
    mbarrier.arrive.shared.b64 _, [full];
wait:
    mbarrier.try_wait.parity.shared.b64 %p2, [full], 0;
    @!%p2 bra wait;
    ld.shared.u32 %r6, [%r4];
"""


@pytest.mark.parametrize("count", [129, 127, 160])
def test_a_count_that_is_wrong_is_corrected_instead_of_one_more_barrier(count):
    found = errors(run_words(kernel_of(COUNTED.format(count=count) + END)))
    assert found
    for finding in found:
        assert sole_change(finding, "replace_ptx").endswith("mbarrier.init.shared.b64 [full], 128;")
    assert not run_words(kernel_of(COUNTED.format(count=128) + END)).findings


VOLATILE = f"""{words_of_pair(16)}
    st.volatile.shared.u32 [%r3], %r1;
    {{barrier}}
    ld.volatile.shared.u32 %r6, [%r4];
"""


def test_lanes_of_a_warp_are_told_to_synchronize_their_warp():
    barrier = "bar.warp.sync 0xffffffff;"
    wrong = kernel_of(VOLATILE.format(barrier="") + END)
    finding = run_words(wrong, 1, 32).findings[0]
    assert sole_change(finding, "insert_ptx") == barrier
    assert "loop" not in finding.fix
    untried = run_words(wrong, 1, 32, advice="none").findings[0]
    assert "loop" not in untried.fix
    assert not run_words(kernel_of(VOLATILE.format(barrier=barrier) + END), 1, 32).findings


def test_a_warp_barrier_names_the_lanes_that_reach_it():
    """Lanes 0-15 alone exchange words: a barrier for all 32 would wait for the others."""
    store = "st.shared.u32 [%r3], %r1;"
    half = UNROLLED + "setp.gt.u32 %p1, %r1, 15; @%p1 bra end;" + store + "xor.b32 %r4, %r1, 1;"
    half += "mad.lo.u32 %r4, %r4, 4, %r2; ld.shared.u32 %r6, [%r4];"
    half += "mad.wide.u32 %d2, %r1, 4, %d1; st.global.u32 [%d2+512], %r6; end:"
    (finding,) = errors(run_words(kernel_of(half + END)))
    assert sole_change(finding, "insert_ptx") == "bar.warp.sync 0xffff;"


def test_a_barrier_of_the_block_is_put_where_its_threads_converge():
    body = UNROLLED + "setp.gt.u32 %p1, %r1, 63; @%p1 bra join; st.shared.u32 [%r3], %r1; join: mov.u32 %r7, 0;"
    body += "setp.lt.u32 %p2, %r1, 64; @%p2 bra end; ld.shared.u32 %r6, [%r4]; end:"
    kernel = kernel_of(body + END)
    (finding,) = errors(run_words(kernel))
    assert sole_change(finding, "insert_ptx") == "bar.sync 0;"
    assert threads_at_barriers(run_words(fix_kernel(kernel, finding))) == [128]


def test_trials_do_not_look_at_the_clock(monkeypatch):
    """The budget of trials is a number of steps: a limit in seconds ends the run, never a trial."""
    limits = []
    made = trial.Launch

    def noted(**fields):
        limits.append(fields.get("max_seconds"))
        return made(**fields)

    monkeypatch.setattr(trial, "Launch", noted)
    result = run_words(unrolled("loop.cu", first=""), max_seconds=100)
    assert result.findings[0].change is not None
    assert len(limits) >= 4
    assert set(limits) == {None}


def test_a_trial_of_many_blocks_runs_the_block_of_the_finding_first(monkeypatch):
    """Sixteen blocks with a race each: all trials together take about three times the steps of the run."""
    monkeypatch.setattr(trial, "SHORT_STEPS", 0)
    body = UNROLLED + "mov.u32 %r7, %ctaid.x; mad.wide.u32 %d1, %r7, 512, %d1;" + ROUND.format(first="", second="")
    kernel = kernel_of(body.replace(".loc", "//") + END)
    result = kernel.run(16, 128, [np.zeros(16 * 128, np.uint32)])
    (finding,) = errors(result)
    assert finding.change is not None
