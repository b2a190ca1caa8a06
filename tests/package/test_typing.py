"""The types that a user's checker sees: every public name is used in one program, which strict checkers accept."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tilescope

HERE = Path(__file__).parent
PROGRAM = HERE / "user_program.py"
SOURCE = Path(tilescope.__file__).parents[1]
WRONG = 'import tilescope as ts\n\nstages: str = ts.plan_gemm(512, 512, 512, "bf16").stages\nts.plan((1, 2), "bf16", majr="K")\n'


def test_the_program_uses_every_public_name():
    used = set(re.findall(r"\bts\.(\w+)", PROGRAM.read_text("utf-8")))
    assert set(tilescope.__all__) - used == {"__version__"} & set(tilescope.__all__)


def test_the_program_runs():
    done = subprocess.run([sys.executable, PROGRAM], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    assert "finished [0, 1, 2, 3]" in done.stdout
    assert done.stdout.endswith("True\n")


def test_the_package_says_that_it_is_typed():
    assert (SOURCE / "tilescope" / "py.typed").is_file()


def mypy(program, folder):
    """What mypy says of a program in its strictest mode; the package's own settings are not a user's."""
    (folder / "mypy.ini").write_text("[mypy]\nstrict = true\nwarn_unreachable = true\nfollow_imports = silent\n")
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", folder / "mypy.ini", "--cache-dir", folder / "cache", program],
        cwd=folder,
        env={"MYPYPATH": str(SOURCE), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


@pytest.fixture
def pyright(tmp_path):
    """What says what pyright thinks of a program in its strictest mode; it needs Node.js, and may fetch itself on first use."""
    program = shutil.which("pyright", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if program is None or subprocess.run([program, "--version"], capture_output=True, check=False).returncode:
        pytest.skip("pyright is not installed, or cannot start: pip install pyright")

    def checked(source):
        folder = tmp_path / "program"
        folder.mkdir()
        shutil.copy(source, folder / "program.py")
        settings = {"typeCheckingMode": "strict", "extraPaths": [str(SOURCE)], "pythonVersion": "3.11"}
        (folder / "pyrightconfig.json").write_text(json.dumps(settings))
        command = [program, "--pythonpath", sys.executable, "-p", folder]
        return subprocess.run(command, capture_output=True, encoding="utf-8", check=False)

    return checked


@pytest.mark.slow
def test_mypy_accepts_the_program_in_its_strictest_mode(tmp_path):
    done = mypy(PROGRAM, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_mypy_refuses_a_wrong_program(tmp_path):
    (tmp_path / "wrong.py").write_text(WRONG)
    said = mypy(tmp_path / "wrong.py", tmp_path).stdout
    assert "[assignment]" in said
    assert "[call-arg]" in said


@pytest.mark.slow
def test_pyright_accepts_the_program_in_its_strictest_mode(pyright):
    done = pyright(PROGRAM)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_pyright_refuses_a_wrong_program(pyright, tmp_path):
    (tmp_path / "wrong.py").write_text(WRONG)
    said = pyright(tmp_path / "wrong.py").stdout
    assert "reportAssignmentType" in said
    assert "reportCallIssue" in said
