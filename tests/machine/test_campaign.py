"""Campaigns: every mutant, seed, shape and configuration is tried, wherever the executor runs."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np

import tilescope as ts
from tilescope.testing import campaign

REVERSE = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry reverse(.param .u64 out, .param .u64 in) {
    .shared .align 4 .b8 tile[512];
    .reg .b32 %r<8>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [in];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.b32 %r2, [%rd4];
    mov.u32 %r3, tile;
    mad.lo.u32 %r4, %r1, 4, %r3;
    st.shared.b32 [%r4], %r2;
    bar.sync 0;
    mad.lo.u32 %r5, %r1, -4, %r3;
    ld.shared.b32 %r6, [%r5+508];
    add.s64 %rd5, %rd1, %rd3;
    st.global.b32 [%rd5], %r6;
    ret;
}
"""


def launch(threads=128):
    """Arguments of a run."""
    numbers = np.arange(threads, dtype=np.int32)
    return {"grid": 1, "block": threads, "args": [np.zeros_like(numbers), numbers]}


def test_a_missing_barrier_is_found_and_the_kernel_itself_is_clean():
    told = campaign(ts.Kernel(REVERSE), launch(), mutants=True, seeds=(None, 1))
    assert told.failures == ()
    assert told.survivors == ()
    assert {trial.seed for trial in told.trials} == {None, 1}
    mutants = [trial for trial in told.trials if trial.mutant is not None]
    assert mutants
    assert all("run-race" in trial.errors for trial in mutants)


def test_executors_of_threads_and_processes_give_what_one_core_gives():
    kernels = {"one": ts.Kernel(REVERSE), "other": ts.Kernel(REVERSE)}
    launches = {"small": launch, "twice": launch}
    alone = campaign(kernels, launches, mutants=True)
    assert {trial.kernel for trial in alone.trials} == {"one", "other"}
    assert {trial.launch for trial in alone.trials} == {"small", "twice"}
    for make in (ThreadPoolExecutor, ProcessPoolExecutor):
        with make(2) as executor:
            assert campaign(kernels, launches, mutants=True, executor=executor) == alone


def test_progress_is_told_and_the_table_has_a_line_for_each_mutant():
    told = []
    made = campaign(ts.Kernel(REVERSE), launch(), mutants=True, progress=lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == list(range(1, len(made.trials) + 1))
    assert told[-1] == (len(made.trials), len(made.trials))
    assert str(made).count("\n") == 1 + len({trial.mutant for trial in made.trials})
