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

PROGRAM = Path(__file__).parent / "user_program.py"
SOURCE = Path(tilescope.__file__).parents[1]
WRONG = 'import tilescope as ts\n\nstages: str = ts.plan_gemm(512, 512, 512, "bf16").stages\nts.plan((1, 2), "bf16", majr="K")\n'


def test_the_program_uses_every_public_name():
    used = set(re.findall(r"\bts\.(\w+)", PROGRAM.read_text("utf-8")))
    assert set(tilescope.__all__) - used == {"__version__"} & set(tilescope.__all__)


@pytest.mark.slow
def test_the_program_runs():
    done = subprocess.run([sys.executable, PROGRAM], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    assert "finished [0, 1, 2, 3]" in done.stdout
    assert done.stdout.endswith("True\n")


def test_the_package_says_that_it_is_typed():
    assert (SOURCE / "tilescope" / "py.typed").is_file()


@pytest.fixture
def programs(tmp_path):
    """A folder with the program and with a wrong one."""
    folder = tmp_path / "programs"
    folder.mkdir()
    shutil.copy(PROGRAM, folder / "right.py")
    (folder / "wrong.py").write_text(WRONG)
    return folder


@pytest.mark.slow
def test_mypy_accepts_the_program_in_its_strictest_mode_and_refuses_a_wrong_one(programs):
    (programs / "mypy.ini").write_text("[mypy]\nstrict = true\nwarn_unreachable = true\nfollow_imports = silent\n")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        "mypy.ini",
        "--cache-dir",
        "cache",
        "right.py",
        "wrong.py",
    ]
    environment = os.environ | {"MYPYPATH": str(SOURCE)}
    done = subprocess.run(command, cwd=programs, env=environment, capture_output=True, encoding="utf-8", check=False)
    complaints = re.findall(r"^(\w+\.py):\d+: error: .*\[([\w-]+)\]$", done.stdout, re.MULTILINE)
    assert complaints == [("wrong.py", "assignment"), ("wrong.py", "call-arg")], done.stdout + done.stderr


@pytest.mark.slow
def test_pyright_accepts_the_program_in_its_strictest_mode_and_refuses_a_wrong_one(programs):
    program = shutil.which("pyright", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if program is None or subprocess.run([program, "--version"], capture_output=True, check=False).returncode:
        pytest.skip("pyright is not installed, or cannot start without Node.js: pip install pyright")
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(SOURCE)]}
    (programs / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [program, "--outputjson", "--pythonpath", sys.executable, "-p", programs]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    said = json.loads(done.stdout)["generalDiagnostics"]
    complaints = [(Path(one["file"]).name, one["rule"]) for one in said if one["severity"] != "information"]
    assert complaints == [("wrong.py", "reportAssignmentType"), ("wrong.py", "reportCallIssue")], done.stdout
