"""`tilescope run program.py`, `tilescope run -m module`, `pytest --tilescope`, and the workflow of the how-to."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tilescope.arch import ARCH
from tilescope.cli import run
from tilescope.pytest_plugin import ARCHITECTURES

ROOT = Path(__file__).parent.parent.parent
PROGRAM = """
import sys

import numpy as np
import triton
import triton.language as tl

from tilescope.triton import tensor


@triton.jit
def fill(x, value, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), value)


@triton.jit
def lose_updates(count):
    tl.store(count, tl.load(count) + 1)


def main(what, status=0):
    x = np.zeros(64, np.int32)
    if what == "race":
        lose_updates[(4,)](tensor(x))
    if what == "fill":
        fill[(1,)](tensor(x), 7, BLOCK=64)
        print(x.sum())
    if what == "odd":
        fill[(1,)](tensor(x), 7, BLOCK=63)
    if what == "raise":
        raise ValueError("as it likes")
    sys.exit(int(status))


if __name__ == "__main__":
    main(*sys.argv[1:])
"""


@pytest.fixture(autouse=True)
def _folder(kernels, tmp_path, monkeypatch):
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)


def test_a_program_runs_with_its_arguments(capsys):
    assert run(["run", "program.py", "--", "fill"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("448\n1 launch of 1 kernel for sm_90")


def test_the_status_is_the_programs_own():
    assert run(["run", "program.py", "--", "fill", "5"]) == 5


def test_an_error_among_the_findings_is_status_1(capsys):
    assert run(["run", "program.py", "--", "race"]) == 1
    shown = capsys.readouterr()
    assert "error run-race" in shown.out
    assert re.search(r"launched at: .*program\.py:\d+", shown.out)
    assert "RuleError: run-race" in shown.err


def test_an_accepted_finding_does_not_stop_the_program():
    assert run(["run", "program.py", "--allow", "run-race", "--", "race", "0"]) == 0


def test_what_a_program_raises_is_printed_as_python_prints_it(capsys):
    assert run(["run", "program.py", "--", "raise"]) == 1
    trace = capsys.readouterr().err
    assert "ValueError: as it likes" in trace
    assert "runpy" not in trace


def test_a_kernel_that_cannot_be_compiled_ends_in_a_sentence(capsys):
    assert run(["run", "program.py", "--", "odd"]) == 1
    told = capsys.readouterr().err
    assert re.search(r"tilescope: fill \(program\.py:\d+\) cannot be compiled for sm_90: .*power of 2\.\n", told)
    assert "Traceback" not in told


def test_a_module_runs_with_everything_behind_it(capsys):
    assert run(["run", "--arch", "sm_80", "-m", "program", "fill", "3"]) == 3
    assert "for sm_80" in capsys.readouterr().out


def test_json_has_the_launches_and_the_program_prints_to_stderr(capsys):
    assert run(["run", "--json", "program.py", "--", "fill"]) == 0
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    assert (report["kind"], report["launches"], report["kernels"][0]["name"]) == ("program_report", 1, "fill")
    assert "448" in shown.err


def test_options_of_one_kernel_are_refused_for_a_program(capsys):
    assert run(["run", "program.py", "--block", "128"]) == 2
    assert "program.py:kernel" in capsys.readouterr().err


def test_arguments_that_a_kernel_does_not_have_are_refused(capsys, tmp_path):
    (tmp_path / "k.ptx").write_text(".version 8.0 .target sm_90 .address_size 64 .entry k() { ret; }")
    assert run(["run", "k.ptx", "--grid", "1", "--block", "32", "--", "7"]) == 2
    assert "kernel-arguments" in capsys.readouterr().err


def test_a_program_and_a_module_together_are_refused(capsys):
    assert run(["run", "program.py", "-m", "program"]) == 2
    assert "keep one of them" in capsys.readouterr().err


def test_one_kernel_of_a_program_is_still_run_by_its_name(capsys):
    assert (
        run(["run", "program.py:fill", "--grid", "1", "--constexpr", "BLOCK=64", "--arg", "i32:64", "--arg", "7"]) == 0
    )


def run_pytest(*arguments, folder):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tilescope.pytest_plugin"]
    environment = os.environ | {"TRITON_DEFAULT_FP_FUSION": "1"}
    return subprocess.run(
        [*command, *arguments], cwd=folder, capture_output=True, text=True, check=False, env=environment
    )


TESTS = """
import numpy as np
import pytest
from program import fill, lose_updates
from tilescope.triton import tensor


def test_right():
    x = np.zeros(64, np.int32)
    fill[(1,)](tensor(x), 7, BLOCK=64)
    assert (x == 7).all()


def test_wrong():
    lose_updates[(4,)](tensor(np.zeros(1, np.int32)))


def test_wrong_and_silent():
    try:
        lose_updates[(4,)](tensor(np.zeros(1, np.int32)))
    except ValueError:
        pass


@pytest.mark.tilescope(findings=["run-race"])
def test_expected():
    lose_updates[(4,)](tensor(np.zeros(1, np.int32)))


@pytest.mark.tilescope(findings=["run-race"])
def test_expected_and_missing():
    test_right()


@pytest.mark.tilescope(findings=["run-hang"])
def test_another_expected():
    lose_updates[(4,)](tensor(np.zeros(1, np.int32)))
"""


def test_tests_fail_by_errors_and_by_missing_findings(tmp_path):
    (tmp_path / "test_kernels.py").write_text(TESTS)
    done = run_pytest("--tilescope", "test_kernels.py", folder=tmp_path)
    failed = set(re.findall(r"^FAILED test_kernels\.py::(\w+)", done.stdout, re.MULTILINE))
    assert failed == {"test_wrong", "test_wrong_and_silent", "test_expected_and_missing", "test_another_expected"}
    assert "2 passed" in done.stdout
    assert re.search(r"At program\.py:\d+ a thread", done.stdout)
    assert "6 launches of 2 kernels for sm_90" in done.stdout


def test_an_architecture_is_taken_by_its_name_alone(tmp_path):
    (tmp_path / "test_kernels.py").write_text(TESTS)
    done = run_pytest("--tilescope=sm_80", "test_kernels.py", "-k", "right", folder=tmp_path)
    assert "for sm_80" in done.stdout, done.stdout
    refused = run_pytest("--tilescope=sm_77", "test_kernels.py", folder=tmp_path)
    assert (refused.returncode, "sm_77" in refused.stderr) == (4, True)


def test_every_architecture_has_an_option():
    assert tuple(ARCH) == ARCHITECTURES


def test_the_workflow_of_the_how_to_passes_on_the_example(tmp_path):
    """Its commands, but for the installation, in a project that has the example as its tests."""
    workflow = (ROOT / "examples" / "triton-ci.yml").read_text()
    assert workflow in (ROOT / "docs" / "how-to" / "triton-in-ci.md").read_text()
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "examples" / "pytest_triton_program.py", tmp_path / "tests" / "test_kernels.py")
    install, *commands = re.findall(r"- run: (.+)", workflow)
    assert install == "pip install 'tilescope[triton]' pytest"
    architectures = re.search(r"arch: \[(.+)\]", workflow)[1].split(", ")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {
        "PATH": path,
        "PYTEST_PLUGINS": "tilescope.pytest_plugin",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    for arch in architectures:
        for command in commands:
            text = command.replace("${{ matrix.arch }}", arch)
            done = subprocess.run(
                ["bash", "-c", text], cwd=tmp_path, capture_output=True, text=True, check=False, env=environment
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert f"for {arch}" in done.stdout
