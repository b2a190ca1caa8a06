"""The plumbing of the survey and of consan.py: their tables are well formed, and a launch by host code reaches the machine."""

import inspect
import sys
from types import SimpleNamespace

import consan
import numpy as np
import pytest
from cuda_host import aligned, build
from cuda_launches import CUDA_LAUNCHES, DRIVERS
from cute_launches import CUTE_LAUNCHES
from library_launches import LIBRARY_LAUNCHES
from public_launch import Outcome, Result
from public_source import definitions
from survey import CHECKOUTS, WHEELS, build_argument, compare, list_rows
from triton_launches import TRITON_LAUNCHES
from triton_references import TRITON_REFERENCES, reference_of

SCALE = """
__global__ void scale(float *values, const __grid_constant__ int2 by) { values[threadIdx.x] *= by.y; }
extern "C" int run(float *values, int by) {
  scale<<<1, 32>>>(values, make_int2(7, by));
  return 0;
}
"""

KERNELS = """
from library.inner.values import LIMIT
from .values import LIMIT as OTHER
try:
    import no_such_module
except ImportError:
    HAS = False
"""


def named(launch):
    return f"{launch.source} {launch.name}"


def test_the_survey_has_more_than_a_hundred_kernels_of_twelve_sources(tmp_path):
    rows = list_rows(dict.fromkeys(CHECKOUTS.values(), tmp_path), tmp_path, has_wheels=True)
    assert len(rows) == len(TRITON_LAUNCHES) + len(LIBRARY_LAUNCHES) + len(CUTE_LAUNCHES) + len(CUDA_LAUNCHES) > 100
    assert {row.source for row in rows} == {*CHECKOUTS.values(), *WHEELS}


def test_only_what_is_here_is_listed(tmp_path):
    rows = list_rows({"vLLM": tmp_path}, tmp_path, has_wheels=False)
    assert {row.source for row in rows} == {"vLLM"}


@pytest.mark.parametrize("launch", CUDA_LAUNCHES, ids=named)
def test_a_driver_has_the_function_of_its_launch(launch):
    text = (DRIVERS / launch.driver).read_text()
    assert f"int {launch.function}(" in text
    arguments, results = launch.prepare()
    assert any(
        result.found is argument or result.found.base is argument.base
        for result in results
        for argument in arrays(arguments)
    )
    assert results


def arrays(arguments):
    return [argument for argument in arguments if isinstance(argument, np.ndarray)]


@pytest.mark.parametrize("launch", LIBRARY_LAUNCHES, ids=named)
def test_a_reference_gives_arrays_of_the_shape_of_its_arguments(launch):
    arguments = [build_argument(word, index, is_gluon=False)[0] for index, word in enumerate(launch.arguments.split())]
    for index, expected in launch.reference(arguments).items():
        assert compare(arguments[index], expected).expected.shape == arguments[index].shape


@pytest.mark.parametrize("name", TRITON_REFERENCES)
def test_a_reference_of_a_triton_kernel_has_its_launch(name):
    assert any(reference_of(launch) is TRITON_REFERENCES[name] for launch in TRITON_LAUNCHES)


def test_a_result_is_right_within_its_tolerance():
    assert Result(np.array([1.0, 100.0]), np.array([1.5, 100.0]), 0.01).is_right
    assert not Result(np.array([1.0, 98.0]), np.array([1.5, 100.0]), 0.01).is_right
    assert Result(np.array([np.nan, 1.0]), np.array([np.nan, 1.0])).is_right
    assert not Result(np.array([np.nan, 1.0]), np.array([0.0, 1.0]), 1.0).is_right


def test_an_outcome_counts_errors_hangs_and_wrong_results():
    error = SimpleNamespace(severity="error")
    right = Result(np.ones(1), np.ones(1))
    wrong = Result(np.ones(1), np.zeros(1))
    finished = SimpleNamespace(outcome="finished", findings=[SimpleNamespace(severity="warning")])
    assert Outcome([finished], [right]).problems() == []
    assert len(Outcome([finished], [wrong]).problems()) == 1
    assert len(Outcome([SimpleNamespace(outcome="finished", findings=[error])], [wrong]).problems()) == 2
    assert len(Outcome([SimpleNamespace(outcome="hang", findings=[error])], [wrong]).problems()) == 1
    assert Outcome([]).problems() == ["no kernel was launched"]


def test_imports_of_a_package_are_read_from_its_files(tmp_path):
    package = tmp_path / "library"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('a package is not imported as a whole')\n")
    (package / "inner" / "values.py").write_text("if 1 > 2:\n    LIMIT = 1\nelse:\n    LIMIT = 2\n")
    (package / "inner" / "kernels.py").write_text(KERNELS)
    module = definitions(package / "inner" / "kernels.py")
    assert (module.LIMIT, module.OTHER, module.HAS) == (2, 2, False)


def expects_report(run_wrapper):
    """As ConSan's tests with FAILURE: the child's report is looked at."""
    if run_wrapper:
        result = run_in_process(expects_report, (False,))  # noqa: F821  the module of the case has it
        assert "device-side assert" in str(result.exc)
        assert "Buffer being accessed has outstanding reads" in result.driver_stderr_output


def expects_silence(run_wrapper):
    if run_wrapper:
        result = run_in_process(expects_silence, (False,))  # noqa: F821
        assert result.exc is None
        assert result.driver_stderr_output == ""


def is_skipped(run_wrapper):
    if run_wrapper:
        pytest.skip("not on this card")


@pytest.mark.parametrize(
    ("function", "messages"),
    [
        (expects_report, ["Buffer being accessed has outstanding reads"]),
        (expects_silence, []),
        (is_skipped, None),
    ],
)
def test_what_consan_says_is_read_from_the_assertions(function, messages):
    case = consan.Case("case", function, {}, sys.modules[__name__], "sm_90")
    assert consan.ask_consan(case) == messages
    assert "run_wrapper" in inspect.signature(function).parameters


@pytest.mark.parametrize(
    ("messages", "rules", "agrees"),
    [
        ([], [], True),
        ([], ["run-race"], False),
        (["Buffer being accessed has outstanding reads"], ["run-refill"], True),
        (["Buffer being accessed has outstanding reads"], ["run-hang"], False),
        (["Deadlock detected"], ["run-hang"], True),
        (["Deadlock detected"], [], False),
    ],
)
def test_a_verdict_agrees_by_kind(messages, rules, agrees):
    findings = [SimpleNamespace(severity="error", rule=rule) for rule in rules]
    assert consan.judge(messages, [SimpleNamespace(outcome="finished", findings=findings)])[0] is agrees


def test_a_test_runs_for_the_first_architecture_that_does_not_skip_it():
    def tested(*marks):
        return SimpleNamespace(test_one=SimpleNamespace(pytestmark=[mark.mark for mark in marks]))

    skipped = pytest.mark.skipif(True, reason="Requires blackwell")
    modules = {"sm_90": tested(skipped), "sm_100": tested(pytest.mark.parametrize("FAILURE", [True, False]))}
    cases = consan.list_cases(modules)
    assert [(case.name, case.arch) for case in cases] == [("test_one[True]", "sm_100"), ("test_one[False]", "sm_100")]


@pytest.mark.slow
def test_host_code_launches_on_the_machine(tmp_path, require):
    require("gxx")
    require("nvcc")
    program = build(SCALE, arch="sm_90a", cache=tmp_path)
    values = aligned(np.arange(32, dtype=np.float32))
    assert program.call("run", values, 3) == 0
    assert [run.outcome for run in program.runs] == ["finished"]
    assert np.array_equal(values, 3 * np.arange(32))
