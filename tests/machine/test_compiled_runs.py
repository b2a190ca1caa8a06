"""Whole kernels whose runs of arithmetic are compiled at their first execution: results and findings are those of numpy."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_texts import per_thread

from tilescope.machine.compiled import arithmetic_runs
from tilescope.machine.compiled.native_code import compile_function
from tilescope.machine.compiled.run_code import RunCode
from tilescope.machine.step import Arithmetic, StepRun, Stretches, WordOperation, WordSource

pytestmark = pytest.mark.usefixtures("numba")


@pytest.fixture
def at_once(monkeypatch):
    """Runs are compiled when they are first executed."""
    for limit in ("COMPILE_NANOSECONDS", "COMPILE_NANOSECONDS_A_STEP", "LOAD_NANOSECONDS"):
        monkeypatch.setattr(arithmetic_runs, limit, 0)


def results(body, threads=64):
    out = np.zeros(threads, np.uint32)
    run = per_thread(body).run(1, threads, [out])
    assert run.outcome == "finished"
    return out.tolist()


@pytest.mark.usefixtures("at_once")
def test_a_guard_is_read_before_the_instruction_writes_it():
    found = results(
        """
        and.b32 %r2, %r60, 1;
        setp.eq.u32 %p1, %r2, 0;
        setp.ne.u32 %p2, %r60, %r60;
        @%p1 setp.ne.u32 %p1|%p2, %r60, %r60;
        @!%p2 add.u32 %r2, %r2, 10;
        selp.u32 %r1, 100, 0, %p1;
        add.u32 %r1, %r1, %r2;
        selp.u32 %r3, 1000, 0, %p2;
        add.u32 %r1, %r1, %r3;
        """
    )
    assert found == [1000 if lane % 2 == 0 else 11 for lane in range(64)]


def test_an_instruction_without_code_leaves_nothing_behind():
    code = RunCode([np.dtype(np.uint32)] * 3, {})
    square_root = WordOperation("sqrt", ("approx", "f32"), (WordSource(0, 32),), (1,), (32,))
    total = WordOperation("add", ("u32",), (WordSource(0, 32), WordSource(1, 32)), (2,), (32,))
    assert not code.write(Arithmetic((square_root,)))
    assert code.write(Arithmetic((total,)))
    assert compile_function(code.text("run")) is not None
    assert code.numbers == [0, 1, 2]


def test_a_run_that_is_cut_is_taken_step_by_step():
    """A second run lets a front stop at a poll; it executes nothing behind that."""
    steps = [lambda _cluster, _at: None for _ in range(4)]
    runs = {0: StepRun(tuple(steps), lambda _cluster, _at: None)}
    assert [place for place, _ in Stretches(steps, [4] * 4, runs)[0]] == [0]
    assert [place for place, _ in Stretches(steps, [2, 2, 4, 4], runs)[0]] == [0, 1]
