"""./tilescope and ./test set themselves up: anywhere, once, whoever else is starting, and offline from then on."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAUNCHED = ["tilescope", "test", ".setup", "pyproject.toml"]  # what a launcher looks at before it sets something up
CHECKOUT = [*LAUNCHED, "README.md", "LICENSE", "src"]
LAUNCHERS = {
    "tilescope": (["swizzle", "128B"], "128B"),
    "test": (["--version"], "pytest"),
}  # quick work, a word of its output
FEW = ('"pytest>', '"pytest-xdist>', '"hypothesis>', '"ruff>', '"mypy>')
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
# Python compiles what it imports; pip would compile everything, which takes half the time.
ENVIRONMENT["PIP_NO_COMPILE"] = "1"
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""} | dict.fromkeys(
    ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"], "http://127.0.0.1:9"
)


def copy_of_the_checkout(folder, names=CHECKOUT):
    folder.mkdir()
    for name in names:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, folder / name)
    return folder


def with_few_packages(checkout):
    """Let ./test need a few small packages: what it needs by its own pyproject.toml are gigabytes."""
    project = checkout / "pyproject.toml"
    before, begin, rest = project.read_text("utf-8").partition("dev = [\n")
    listed, end, after = rest.partition("]\n\n")
    few = [line for line in listed.splitlines(keepends=True) if line.strip().startswith(FEW)]
    assert len(few) == len(FEW)
    project.write_text(before + begin + "".join(few) + end + after, "utf-8")


def start(launcher, *arguments, cwd="/", **environment):
    return subprocess.Popen(
        [launcher, *(arguments or LAUNCHERS[launcher.name][0])],
        cwd=cwd,
        env=ENVIRONMENT | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    )


def finish(process):
    """Standard output and error of a launcher that succeeds."""
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return output, errors


def sets_up(process, launcher):
    """Whether a launcher that does its work had something to set up, and said so in one line."""
    output, errors = finish(process)
    assert LAUNCHERS[launcher][1] in output
    lines = [line for line in errors.splitlines() if "waiting for the set-up" not in line]
    assert len(lines) <= 1
    assert all(line.startswith("tilescope: setting up .venv") for line in lines)
    return bool(lines)


def refusal(launcher, **environment):
    """The one line on standard error of a launcher that exits with 3."""
    process = start(launcher, **environment)
    output, errors = process.communicate()
    assert (process.returncode, output) == (3, ""), errors
    (line,) = errors.splitlines()
    return line


def programs(folder, **scripts):
    """A folder of shell scripts to put on the PATH."""
    folder.mkdir()
    for name, script in scripts.items():
        program = folder / name.replace("_", "-")
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    return folder


def python_that(folder, change):
    """A PYTHONPATH under which every Python starts with `change`."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(f"import sys, platform, os\n{change}\n")
    return str(folder)


OLD = "sys.version_info = (3, 10, 12, 'final', 0)\nplatform.python_version = lambda: '3.10.12'"
WITHOUT_ENSUREPIP = "sys.modules['ensurepip'] = None"


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_an_old_python_is_refused_in_one_sentence(tmp_path, launcher, wording):
    checkout = copy_of_the_checkout(tmp_path / "checkout", LAUNCHED)
    line = refusal(checkout / launcher, PYTHONPATH=python_that(tmp_path / "old", OLD))
    assert line.startswith("tilescope: Python 3.11 ")
    assert line.endswith("python3 is 3.10.12.")
    wording("an old Python", line)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_missing_python_is_refused_in_one_sentence(tmp_path, launcher, wording):
    checkout = copy_of_the_checkout(tmp_path / "checkout", LAUNCHED)
    tools = ["sh", "dirname", "readlink", "tail", "cksum"]
    path = programs(tmp_path / "bin", **{name: f'exec {shutil.which(name)} "$@"' for name in tools})
    line = refusal(checkout / launcher, PATH=str(path))
    assert line.startswith("tilescope: Python 3.11 ")
    assert "no python3" in line
    wording("no Python", line)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_without_ensurepip_the_command_that_brings_it_is_named(tmp_path, launcher):
    checkout = copy_of_the_checkout(tmp_path / "checkout", LAUNCHED)
    path = programs(tmp_path / "bin", id="echo 1000", apt_get="echo called >&2")
    python = python_that(tmp_path / "python", WITHOUT_ENSUREPIP)
    line = refusal(checkout / launcher, PATH=f"{path}:{ENVIRONMENT['PATH']}", PYTHONPATH=python)
    assert line.startswith("tilescope: Python cannot make environments")
    assert line.endswith(": sudo apt-get install -y python3-venv")


@pytest.mark.slow
def test_without_ensurepip_root_installs_it(tmp_path):
    checkout = copy_of_the_checkout(tmp_path / "checkout")
    installed = tmp_path / "installed"
    apt_get = f'case "$*" in install*python3-venv) echo "$*" >{installed} ;; esac'
    path = programs(tmp_path / "bin", id="echo 0", dpkg_query="exit 1", apt_get=apt_get)
    python = python_that(tmp_path / "python", f"if not os.path.exists({str(installed)!r}): {WITHOUT_ENSUREPIP}")
    process = start(checkout / "tilescope", PATH=f"{path}:{ENVIRONMENT['PATH']}", PYTHONPATH=python)
    assert sets_up(process, "tilescope")
    assert installed.read_text() == "install -y -qq --no-install-recommends python3-venv\n"


@pytest.mark.slow
def test_started_together_they_set_up_once_and_then_work_offline_from_anywhere_and_after_a_move(tmp_path):
    checkout = copy_of_the_checkout(tmp_path / "a checkout")
    with_few_packages(checkout)
    names = ["tilescope", "test", "tilescope"]
    processes = [start(checkout / name) for name in names]
    said = [sets_up(process, name) for process, name in zip(processes, names, strict=True)]
    assert said[1], "the packages of the tests were set up by nobody"
    assert said[0] + said[2] <= 1, "two launchers set up the same"
    assert_works_anywhere(checkout, tmp_path)
    assert_keeps_folder_arguments_and_status(checkout, tmp_path)

    moved = tmp_path / "moved"
    shutil.copytree(checkout, moved, symlinks=True)  # worse than a move: the old folder still answers
    source = moved / "src" / "tilescope" / "__init__.py"
    source.write_text(source.read_text("utf-8").replace('__version__ = "', '__version__ = "9.'), "utf-8")
    for name in LAUNCHERS:
        assert not sets_up(start(moved / name, **OFFLINE), name)
    (moved / "tests").mkdir()
    (moved / "tests" / "test_home.py").write_text(
        f"import tilescope\ndef test(): assert tilescope.__file__ == {str(source)!r}\n"
    )
    assert "1 passed" in finish(start(moved / "test", "tests/test_home.py", **OFFLINE))[0]
    python = moved / ".venv" / "bin" / "python"
    for program in ([moved / "tilescope"], [python, "-m", "tilescope"]):
        version, errors = finish(start(*program, "--version", **OFFLINE))
        assert (version.split()[1].startswith("9."), errors) == (True, "")
    for tool in ("mypy", "pytest", "ruff"):
        finish(start(python, "-m", tool, "--version", **OFFLINE))


def assert_works_anywhere(checkout, tmp_path):
    (tmp_path / "folder").symlink_to(checkout)
    for name in LAUNCHERS:
        (tmp_path / "link").symlink_to(checkout / name)
        (tmp_path / name).symlink_to("link")
        assert not sets_up(start(checkout / name, cwd=checkout, **OFFLINE), name)
        assert not sets_up(start(checkout / name, cwd=tmp_path, **OFFLINE), name)
        assert not sets_up(start(tmp_path / name, **OFFLINE), name)
        assert not sets_up(start(tmp_path / "folder" / name, **OFFLINE), name)
        (tmp_path / "link").unlink()


def assert_keeps_folder_arguments_and_status(checkout, tmp_path):
    (tmp_path / "numpy.py").write_text("raise SystemExit('a file of the working folder was imported')")
    finish(start(checkout / "tilescope", "swizzle", "128B", "--svg", "a picture.svg", cwd=tmp_path))
    assert (tmp_path / "a picture.svg").read_text("utf-8").lstrip().startswith("<")
    wrong = start(checkout / "tilescope", "swizzle", "no such mode")
    assert "no such mode" in wrong.communicate()[1]
    assert wrong.returncode == 2


@pytest.mark.slow
def test_sets_up_again_after_a_holder_of_the_lock_was_killed_and_when_the_stamp_is_untrue(tmp_path):
    checkout = copy_of_the_checkout(tmp_path / "checkout")
    python = checkout / ".venv" / "bin" / "python"
    killed = start(checkout / "tilescope")
    while not python.exists() and killed.poll() is None:
        time.sleep(0.01)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert sets_up(start(checkout / "tilescope"), "tilescope")
    assert not sets_up(start(checkout / "tilescope", **OFFLINE), "tilescope")

    with (checkout / "pyproject.toml").open("a") as project:
        project.write("# changed\n")
    kept = python.lstat().st_mtime_ns
    assert sets_up(start(checkout / "tilescope"), "tilescope")
    assert python.lstat().st_mtime_ns == kept, "the environment itself was still sound"

    (checkout / ".venv" / "base.stamp").write_text("")  # as after a full disk
    assert sets_up(start(checkout / "tilescope"), "tilescope")

    python.unlink()
    python.symlink_to("/usr/bin/env")  # as after an upgrade: the interpreter is another one
    assert sets_up(start(checkout / "tilescope"), "tilescope")
