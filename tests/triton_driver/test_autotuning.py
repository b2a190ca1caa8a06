"""Autotuners and benchmarks without time."""

import math

import numpy as np
import pytest

import tilescope.triton
from tilescope.triton.autotuning import NO_REPORT, NO_TIME


def arguments():
    return tilescope.triton.tensor(np.ones(64, np.int32)), tilescope.triton.tensor(np.zeros(1, np.int32))


def test_the_first_valid_configuration_is_taken(kernels, capsys):
    x, out = arguments()
    with tilescope.triton.device() as device:
        kernels.add_up[lambda meta: (math.ceil(64 / meta["BLOCK"]),)](x, out, 64)
    assert kernels.add_up.best_config.kwargs["BLOCK"] == 64  # 128 fails its static assertion
    assert len(device.runs) == 1
    assert out.array[0] == 64


def test_all_valid_configurations_run_and_the_result_is_that_of_one_launch(kernels, capsys):
    x, out = arguments()
    with tilescope.triton.device(autotune="all") as device:
        for _ in range(2):  # the second time the choice is known
            out.array[0] = 0
            kernels.add_up[lambda meta: (math.ceil(64 / meta["BLOCK"]),)](x, out, 64)
            assert out.array[0] == 64
    assert [run.grid[0] for run in device.runs] == [1, 2, 1, 1]


def test_choices_are_neither_kept_by_triton_nor_written_to_disk(kernels, capsys, monkeypatch):
    import triton

    monkeypatch.setattr(kernels.add_up, "cache_results", True)
    x, out = arguments()
    with tilescope.triton.device():
        kernels.add_up[lambda meta: (math.ceil(64 / meta["BLOCK"]),)](x, out, 64)
    assert kernels.add_up.cache == {}
    from pathlib import Path

    assert not list(Path(triton.knobs.cache.dir).rglob("*.autotune.json"))


def test_a_benchmark_gets_nan_and_calls_nothing(kernels, capsys):
    import triton.testing

    called = []
    with tilescope.triton.device() as device:
        assert math.isnan(triton.testing.do_bench(lambda: called.append(1)))
        assert [math.isnan(time) for time in triton.testing.do_bench(lambda: None, quantiles=[0.5, 0.2])] == [True] * 2
        assert triton.runtime.driver.active.get_benchmarker() == device.bench
    assert called == []
    assert capsys.readouterr().err.count(NO_TIME) == 1


def test_a_performance_report_is_skipped_in_a_sentence(kernels, capsys):
    import triton.testing

    benchmark = triton.testing.Benchmark(
        x_names=["n"], x_vals=[1], line_arg="by", line_vals=["a"], line_names=["a"], plot_name="p", args={}
    )
    report = triton.testing.perf_report(benchmark)(lambda n, by: pytest.fail("it was run"))
    with tilescope.triton.device() as device:
        report.run(print_data=True)
    assert device.report().notes == (NO_REPORT,)
