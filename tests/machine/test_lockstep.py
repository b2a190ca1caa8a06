"""Blocks in lockstep do what they do one after another: results, counts, costs and findings are equal."""

from __future__ import annotations

import json
import os
import sys
import threading
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_recording import PATHS, recording
from kernel_recording import kernel as recorded_kernel
from ptx_texts import kernel

import tilescope as ts
from tilescope.machine.decoding.independent_blocks import are_blocks_independent
from tilescope.machine.execution import forked_call, launch_grid, lockstep

BLOCKS = 5
THREADS = 64
WORDS = BLOCKS * THREADS

HEADER = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 source, .param .u64 out, .param .u64 sum) {
    .reg .pred %p;
    .reg .b32 %tid, %block, %i, %v, %w, %n, %at;
    .reg .b64 %in, %to, %count, %a;
    .shared .align 4 .b8 s[512];
    ld.param.u64 %in, [source];
    ld.param.u64 %to, [out];
    ld.param.u64 %count, [sum];
    mov.u32 %tid, %tid.x;
    mov.u32 %block, %ctaid.x;
    mad.lo.u32 %i, %block, 64, %tid;
    mov.u32 %v, %i;
    shl.b32 %at, %tid, 2;
    mov.u32 %w, s;
    add.u32 %at, %at, %w;
"""

FRAGMENTS = {
    "arithmetic": "mad.lo.u32 %v, %v, 2654435761, {k}; xor.b32 %v, %v, %i;",
    "float": "cvt.rn.f32.u32 %w, %v; add.rn.f32 %w, %w, 0f3F800000; mov.b32 %v, %w;",
    "load": "add.u32 %w, %i, {k}; rem.u32 %w, %w, 320; mul.wide.u32 %a, %w, 4; add.u64 %a, %a, %in;"
    " ld.global.u32 %w, [%a]; add.u32 %v, %v, %w;",
    "store": "mul.wide.u32 %a, %i, 4; add.u64 %a, %a, %to; st.global.u32 [%a], %v;",
    "store elsewhere": "add.u32 %w, %i, {k}; mul.wide.u32 %a, %w, 4; add.u64 %a, %a, %to; st.global.u32 [%a], %v;",
    "load elsewhere": "add.u32 %w, %i, {k}; mul.wide.u32 %a, %w, 4; add.u64 %a, %a, %to;"
    " ld.global.u32 %w, [%a]; add.u32 %v, %v, %w;",
    "share": "st.shared.u32 [%at], %v;",
    "take": "xor.b32 %w, %at, 4; ld.shared.u32 %w, [%w]; add.u32 %v, %v, %w;",
    "barrier": "bar.sync 0;",
    "warp barrier": "bar.warp.sync -1;",
    "shuffle": "shfl.sync.bfly.b32 %w, %v, 1, 31, -1; add.u32 %v, %v, %w;",
    "count": "atom.global.add.u32 %w, [%count], {k}; xor.b32 %v, %v, %w;",
    "count in block": "setp.eq.u32 %p, %tid, {k}; @%p red.global.add.u32 [%count+4], %block;",
    "share a count": "red.shared.add.u32 [s], 1;",
    "branch": "setp.lt.u32 %p, %tid, {k}; @%p bra $skip{n}; add.u32 %v, %v, 7; $skip{n}:",
    "branch of blocks": "setp.lt.u32 %p, %block, {k}; @%p bra $skip{n}; mul.lo.u32 %v, %v, 3; $skip{n}:",
    "loop": "and.b32 %n, %tid, 3; $again{n}: add.u32 %v, %v, %n; setp.eq.u32 %p, %n, 0; @%p bra $done{n};"
    " sub.u32 %n, %n, 1; bra $again{n}; $done{n}:",
    "loop of blocks": "mov.u32 %n, %block; $again{n}: xor.b32 %v, %v, %n; setp.eq.u32 %p, %n, 0; @%p bra $done{n};"
    " sub.u32 %n, %n, 1; bra $again{n}; $done{n}:",
    "load of block 1 in block 4": "setp.eq.u32 %p, %block, 4; add.u32 %w, %tid, 64; selp.u32 %w, %w, %i, %p; mul.wide.u32 %a, %w, 4;"
    " add.u64 %a, %a, %to; ld.global.u32 %w, [%a]; add.u32 %v, %v, %w;",
    "store of block 1 in block 4": "setp.eq.u32 %p, %block, 4; add.u32 %w, %tid, 64; selp.u32 %w, %w, %i, %p; mul.wide.u32 %a, %w, 4;"
    " add.u64 %a, %a, %to; st.global.u32 [%a], %v;",
    "load of block 4 in block 1": "setp.eq.u32 %p, %block, 1; add.u32 %w, %tid, 256; selp.u32 %w, %w, %i, %p; mul.wide.u32 %a, %w, 4;"
    " add.u64 %a, %a, %to; ld.global.u32 %w, [%a]; add.u32 %v, %v, %w;",
    "return": "setp.gt.u32 %p, %i, 250; @%p ret;",
}


def text_of(choices):
    """A kernel of fragments, each with its number."""
    lines = [FRAGMENTS[name].format(k=k, n=n) for n, (name, k) in enumerate(choices)]
    return HEADER + "\n".join("    " + line for line in lines) + "\n    " + FRAGMENTS["store"] + "\n    ret;\n}\n"


def told(run, arrays):
    """All that a run says, what it left in memory, and what was recorded of its first cluster."""
    placed = [one for one in run.arrays if one is not None]
    addresses = [one.address + offset for one in placed for offset in range(0, one.array.nbytes, 148)]
    writers = [repr(run.last_writer(address)) for address in addresses[:100]]
    log = run._recorded.log
    with np.printoptions(threshold=sys.maxsize):
        recorded = repr((log.rows, log.global_memory, log.refused))
    said = json.dumps(run.to_dict(), default=str, sort_keys=True)
    return said, [array.tobytes() for array in arrays], writers, recorded


def run_fragments(kernel, *, findings, max_seconds=60):
    source = np.arange(WORDS, dtype=np.uint32) * 977
    out = np.zeros(WORDS + 16, np.uint32)
    count = np.zeros(2, np.uint32)
    run = kernel.run(
        BLOCKS,
        THREADS,
        [source, out, count],
        findings=findings,
        advice="none",
        max_steps=20_000,
        max_seconds=max_seconds,
    )
    return run, [source, out, count]


def allow_processes(patch, processes):
    """Let as many processes share the blocks, however few they are; a list of what forks have sent back."""
    joined = []
    join = lockstep._Lockstep._join

    def noted(self, done):
        joined.append(done)
        join(self, done)

    patch.setattr(lockstep, "_LEAST_SHARED_WORK", 0)
    patch.setattr(lockstep, "_LEAST_SHARED_STEPS", 0)
    patch.setattr(lockstep, "count_processes", lambda: processes)
    patch.setattr(lockstep._Lockstep, "_join", noted)
    return joined


def run_both(monkeypatch, launch, *, leads_first=True):
    """What a launch gives in lockstep, and what it gives with one block after another; how often lockstep came to its end."""
    ended = []

    def note(run):
        def noted(launch):
            ended.append(run(launch))
            return ended[-1]

        return noted

    with monkeypatch.context() as patch:
        patch.setattr(lockstep, "_LEAST_BLOCKS", 1)
        patch.setattr(lockstep, "_LEAST_BLOCKS_LED_BY_FIRST", 1 if leads_first else 1 << 30)
        patch.setattr(launch_grid, "run_in_lockstep", note(lockstep.run_in_lockstep))
        patch.setattr(launch_grid, "run_led_by_first", note(lockstep.run_led_by_first))
        together = told(*launch())
        patch.setattr(launch_grid, "may_run_in_lockstep", lambda _: False)
        alone = told(*launch())
    return together, alone, sum(one is not None for one in ended)


CHOICES = st.lists(st.tuples(st.sampled_from(sorted(FRAGMENTS)), st.integers(0, 5)), min_size=1, max_size=9)


@given(CHOICES, st.booleans())
def test_random_kernels_give_the_same(choices, findings):
    with pytest.MonkeyPatch.context() as monkeypatch:
        kernel = ts.Kernel(text_of(choices))
        together, alone, _ = run_both(monkeypatch, lambda: run_fragments(kernel, findings=findings))
    assert together == alone


@pytest.mark.parametrize(
    ("names", "is_ended"),
    [
        (["load", "arithmetic", "float"], True),
        (["share", "barrier", "take"], True),
        (["share", "take"], False),  # a race
        (["store elsewhere"], False),  # blocks overwrite each other's words
        (["count"], True),  # atomics of one instruction come in the order of blocks
        (["count", "count"], False),  # those of two do not
        (["branch of blocks", "loop of blocks", "shuffle"], True),
        (["return", "barrier"], False),  # threads of a block have exited
    ],
)
def test_what_ends_in_lockstep(monkeypatch, names, is_ended):
    kernel = ts.Kernel(text_of([(name, 2) for name in names]))
    together, alone, ended = run_both(monkeypatch, lambda: run_fragments(kernel, findings=True))
    assert together == alone
    assert bool(ended) == is_ended


SHARED = [
    (["load", "arithmetic", "float"], 3),
    (["share", "barrier", "take"], 3),
    (["load elsewhere"], 3),  # words before and behind, which other blocks write: one after another
    (["store elsewhere"], 3),
    (["load of block 1 in block 4"], 2),  # each of two processes would see nothing
    (["load of block 4 in block 1"], 2),
    (["store of block 1 in block 4"], 2),
    (["share", "take"], 3),
    (["branch of blocks", "loop of blocks", "shuffle"], 2),
    (["count"], 3),  # atomics have an order
]
ENDED_SHARED = {
    ("load", "arithmetic", "float"),
    ("share", "barrier", "take"),
    ("branch of blocks", "loop of blocks", "shuffle"),
}


@pytest.mark.parametrize(("names", "processes"), SHARED)
@pytest.mark.parametrize("findings", [True, False])
def test_processes_share_the_blocks(monkeypatch, names, processes, findings):
    kernel = ts.Kernel(text_of([(name, 2) for name in names]))
    joined = allow_processes(monkeypatch, processes)
    together, alone, _ = run_both(monkeypatch, lambda: run_fragments(kernel, findings=findings, max_seconds=None))
    assert together == alone
    if tuple(names) in ENDED_SHARED:
        assert len(joined) == processes - 1


@pytest.mark.slow
@settings(derandomize=True, max_examples=25, deadline=None)
@given(CHOICES, st.booleans())
def test_random_kernels_in_two_processes_give_the_same(choices, findings):
    with pytest.MonkeyPatch.context() as monkeypatch:
        allow_processes(monkeypatch, 2)
        kernel = ts.Kernel(text_of(choices))
        launch = partial(run_fragments, kernel, findings=findings, max_seconds=None)
        together, alone, _ = run_both(monkeypatch, launch)
    assert together == alone


def test_blocks_of_a_fork_that_fails_run_here(monkeypatch):
    kernel = ts.Kernel(text_of([("load", 1), ("arithmetic", 2)]))
    joined = allow_processes(monkeypatch, 2)
    monkeypatch.setattr(lockstep._Lockstep, "_run_share", lambda *_: os._exit(1))
    together, alone, ended = run_both(monkeypatch, lambda: run_fragments(kernel, findings=True, max_seconds=None))
    assert (together, ended, joined) == (alone, 1, [])


def test_a_process_with_other_threads_does_not_fork(monkeypatch):
    monkeypatch.setenv("TILESCOPE_CORES", "3")
    monkeypatch.setattr(forked_call.multiprocessing, "parent_process", lambda: None)
    monkeypatch.setattr(forked_call.threading, "enumerate", lambda: [threading.current_thread()])
    assert forked_call.count_processes() == (3 if sys.platform == "linux" else 1)
    monkeypatch.setattr(forked_call.threading, "enumerate", lambda: [threading.current_thread(), threading.Thread()])
    assert forked_call.count_processes() == 1


@pytest.mark.thinned(5)
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("leads_first", [True, False])
@pytest.mark.parametrize("findings", [True, False])
def test_blocks_with_copies_and_wgmma_follow_a_leader(monkeypatch, findings, leads_first, processes):
    joined = allow_processes(monkeypatch, processes)
    monkeypatch.setattr(lockstep, "_MOST_LANES", 2 * 256)  # two blocks of a batch: the first one leads its own
    launch = recording("mm_tma_f16").launch
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal((256, 256)).astype(np.float16) for _ in range(2))

    def run():
        memory = ts.Memory()
        arrays = [a.copy(), b.copy(), np.zeros((256, 256), np.float16)]
        args = []
        for array in arrays:
            args += [memory.map(array, (64, 128), swizzle="128B"), 256, 256, 256, 1]
        kernel = recorded_kernel("mm_tma_f16")
        options = {"memory": memory, "smem_bytes": launch["smem_bytes"], "findings": findings}
        return kernel.run((2, 2), 256, [*args, 256, 0, 0], advice="none", **options), arrays

    together, alone, ended = run_both(monkeypatch, run, leads_first=leads_first)
    assert (ended, len(joined)) == (1, processes - 1)
    assert together == alone


@pytest.mark.thinned(5)
@pytest.mark.parametrize("kind", ["wait", "barrier", "fence", "parity", "bytes"])
def test_mutants_of_a_pipeline_give_the_same(monkeypatch, kind):
    mutants = [mutant for mutant in recorded_kernel("mm_tma_f16").mutants() if mutant.kind == kind]
    a = np.ones((256, 128), np.float16)
    for mutant in mutants[:2]:

        def run(mutant=mutant):
            memory = ts.Memory()
            arrays = [a.copy(), a.copy(), np.zeros((256, 256), np.float16)]
            args = []
            for array in arrays:
                args += [memory.map(array, (64, 128), swizzle="128B"), *array.shape, array.shape[1], 1]
            options = {"memory": memory, "smem_bytes": 98328, "advice": "none", "max_steps": 20_000}
            return mutant.kernel.run((2, 2), 256, [*args, 128, 0, 0], **options), arrays

        together, alone, _ = run_both(monkeypatch, run)
        assert together == alone


def test_a_box_wholly_outside_its_tensor_follows_a_leader(monkeypatch):
    launch = recording("mm_tma_f16").launch

    def run():
        memory = ts.Memory()
        arrays = [np.ones((128, 128), np.float16), np.ones((128, 128), np.float16), np.zeros((128, 128), np.float16)]
        args = []
        for array in arrays:
            args += [memory.map(array, (64, 128), swizzle="128B"), 128, 128, 128, 1]
        options = {"memory": memory, "smem_bytes": launch["smem_bytes"], "advice": "none"}
        return recorded_kernel("mm_tma_f16").run((2, 2), 256, [*args, 128, 0, 0], **options), arrays

    together, alone, ended = run_both(monkeypatch, run)
    assert ended == 1
    assert together == alone


def test_an_accumulator_that_is_written_under_a_pending_wgmma_is_written_after_it(monkeypatch):
    """ptxas waits before such an instruction. A leader's product is one of all blocks, so blocks run one after another."""
    text = PATHS["mm_tma_f16"].with_suffix(".ptx").read_text("utf-8")
    line = "mov.b32 \t%r28, %r26;"
    assert line in text
    changed = ts.Kernel(text.replace(line, "mov.b32 \t%r139, %r26;"))

    def run():
        memory = ts.Memory()
        arrays = [np.ones((256, 128), np.float16), np.ones((128, 256), np.float16), np.zeros((256, 256), np.float16)]
        args = []
        for array in arrays:
            args += [memory.map(array, (64, 128), swizzle="128B"), *array.shape, array.shape[1], 1]
        options = {"memory": memory, "smem_bytes": 98328, "advice": "none"}
        return changed.run((2, 2), 256, [*args, 128, 0, 0], **options), arrays

    together, alone, ended = run_both(monkeypatch, run)
    assert ended == 0
    assert together == alone


@pytest.mark.thinned(4)
@pytest.mark.parametrize("odd_block", [0, 3])
def test_maps_are_known_again_after_a_leader_is_undone(monkeypatch, odd_block):
    """One block adds up one tile less than the others: the first cluster leads in vain, and its copies are undone."""
    text = PATHS["mm_tma_f16"].with_suffix(".ptx").read_text("utf-8")
    line = "ld.param.b32 	%r16, [mm_tma_param_15];"
    assert line in text
    fewer = f"setp.eq.u32 %odd, %r14, {odd_block}; @%odd sub.s32 %r16, %r16, 64;"
    changed = ts.Kernel(text.replace(line, f"{line} .reg .pred %odd; {fewer}"))

    def run():
        memory = ts.Memory()
        arrays = [np.ones((512, 128), np.float16), np.ones((128, 128), np.float16), np.zeros((512, 128), np.float16)]
        args = []
        for array in arrays:
            args += [memory.map(array, (64, 128), swizzle="128B"), *array.shape, array.shape[1], 1]
        options = {"memory": memory, "smem_bytes": 98328, "advice": "none"}
        return changed.run((4, 1), 256, [*args, 128, 0, 0], **options), arrays

    together, alone, _ = run_both(monkeypatch, run)
    assert together == alone


KINDS = {  # what blocks do, as PTX of their numbers %r14: each takes `less` elements of k less
    "the first block": "setp.eq.u32 %odd, %r14, 0; selp.u32 %less, 64, 0, %odd;",
    "the last block": "setp.eq.u32 %odd, %r14, 8; selp.u32 %less, 64, 0, %odd;",
    "every second block": "and.b32 %less, %r14, 1; mul.lo.u32 %less, %less, 64;",
    "three kinds": "rem.u32 %less, %r14, 3; setp.eq.u32 %odd, %less, 2; setp.eq.u32 %other, %less, 1; @%odd bra ODD; "
    "@%other bra OTHER; ODD: mov.u32 %lane, 1; OTHER: mov.u32 %less, 0;",
    "another thread": "and.b32 %less, %r14, 1; mov.u32 %lane, %tid.x; setp.eq.u32 %odd, %lane, %less; "
    "@%odd st.shared.u32 [global_smem+98336], %lane; mov.u32 %less, 0;",
}


def run_kinds(name, *, findings):
    """A product of nine blocks of several kinds."""
    text = PATHS["mm_tma_f16"].with_suffix(".ptx").read_text("utf-8")
    line = "ld.param.b32 	%r16, [mm_tma_param_15];"
    assert line in text
    declared = f".reg .pred %odd, %other; .reg .b32 %less, %lane; {KINDS[name]} sub.s32 %r16, %r16, %less;"
    changed = ts.Kernel(text.replace(line, f"{line} {declared}"))
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in [(1152, 192), (192, 128)])

    def run():
        memory = ts.Memory()
        arrays = [a.copy(), b.copy(), np.zeros((1152, 128), np.float16)]
        args = []
        for array in arrays:
            args += [memory.map(array, (64, 128), swizzle="128B"), *array.shape, array.shape[1], 1]
        options = {"memory": memory, "smem_bytes": 98344, "advice": "none", "findings": findings}
        return changed.run((9, 1), 256, [*args, 192, 0, 0], **options), arrays

    return run


@pytest.mark.thinned(5)
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("findings", "leads_first", "processes"), [(True, True, 1), (False, False, 2)])
def test_blocks_that_do_something_else_follow_a_leader_of_their_own(
    monkeypatch, name, findings, leads_first, processes
):
    allow_processes(monkeypatch, processes)
    monkeypatch.setattr(lockstep, "_MOST_LANES", 3 * 256)
    together, alone, ended = run_both(monkeypatch, run_kinds(name, findings=findings), leads_first=leads_first)
    assert ended == 1
    assert together == alone


@pytest.mark.parametrize(
    ("limit", "value"), [("_MOST_KINDS", 2), ("_LEAST_BLOCKS_OF_KIND", 4), ("_MOST_SORTED", 8), ("_MOST_TRIES", 1)]
)
def test_blocks_of_many_kinds_run_one_after_another(monkeypatch, limit, value):
    monkeypatch.setattr(lockstep, limit, value)
    together, alone, ended = run_both(monkeypatch, run_kinds("three kinds", findings=True))
    assert ended == 0
    assert together == alone


def test_a_grid_needs_little_memory_in_lockstep():
    launch = ts.Kernel(text_of([("load", 1)]))
    source = np.zeros(WORDS, np.uint32)
    out = np.zeros(4096 * THREADS + 16, np.uint32)
    run = launch.run(4096, THREADS, [source, out, np.zeros(2, np.uint32)])
    assert run.outcome == "finished"
    assert run.findings == ()


TAKES_LOCK = """
    ld.param.u64 %d1, [out];
AGAIN:
    atom.global.acq_rel.gpu.cas.b32 %r1, [%d1], 0, 1;
    bar.sync 0;
    setp.ne.u32 %p1, %r1, 0;
    LOOP
"""


@pytest.mark.parametrize(("loop", "is_independent"), [("@%p1 bra AGAIN;", False), ("", True)])
def test_blocks_that_take_a_lock_together_run_one_after_another(loop, is_independent):
    """In lockstep they would go round the loop, while the block that holds the lock waits for its turn."""
    program = kernel(TAKES_LOCK.replace("LOOP", loop), ".param .u64 out").program
    assert are_blocks_independent(program) == is_independent
