"""The wheel and the sdist: what they hold, and that the wheel starts in an empty environment."""

import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import tilescope

ROOT = Path(__file__).parents[2]
PACKAGE = Path(tilescope.__file__).parent
NAME = f"tilescope-{tilescope.__version__}"
PAGES = {"base.html", "page.html", "first.html", "refusal.html", "explorer.css", "explorer.js"}
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}


def files_of_the_package():
    """Every file that a wheel has to bring, by its path in it."""
    files = (path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(PACKAGE.parent).as_posix(): path for path in files}


def test_the_package_has_its_pages():
    assert {Path(name).name for name in files_of_the_package()} >= PAGES


def run(command, **options):
    return subprocess.run(
        command,
        env=ENVIRONMENT,
        capture_output=True,
        encoding="utf-8",
        check=False,
        stdin=subprocess.DEVNULL,
        **options,
    )


def environment_in(folder):
    """An empty environment's interpreter."""
    venv.create(folder, with_pip=True)
    return folder / ("Scripts" if os.name == "nt" else "bin") / Path(sys.executable).name


def installed(python, *what):
    """Install by pip's ordinary settings; a test is skipped where they lead to no package index."""
    done = run([python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--quiet", *what])
    unreachable = re.search(
        r"No matching distribution found|Could not fetch|ConnectionError|Name or service", done.stderr
    )
    if done.returncode and unreachable:
        pytest.skip(f"pip finds no package index here: {unreachable[0]}")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("built")
    python = sys.executable
    if importlib.util.find_spec("hatchling") is None:
        python = environment_in(folder / "builder")
        installed(python, "hatchling>=1.24")
    done = run([python, "-m", "hatchling", "build", "-d", folder / "dist"], cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "dist"


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(built):
    (path,) = built.glob("*.whl")
    assert path.name == f"{NAME}-py3-none-any.whl"
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        metadata = wheel.read(f"{NAME}.dist-info/METADATA").decode()
        entry_points = wheel.read(f"{NAME}.dist-info/entry_points.txt").decode()
    manual = f"{NAME}.data/data/share/man/man1/tilescope.1"
    beside = {name for name in names if not name.startswith(f"{NAME}.dist-info/")}
    assert beside == {*files_of_the_package(), manual}
    assert f"{NAME}.dist-info/licenses/LICENSE" in names
    assert "tilescope = tilescope.cli:main" in entry_points
    for line in (f"Version: {tilescope.__version__}", "Requires-Python: >=3.11", "License-Expression: Apache-2.0"):
        assert f"\n{line}\n" in metadata


@pytest.mark.slow
def test_the_sdist_holds_what_builds_and_tests_it(built):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as sdist:
        names = {name.removeprefix(f"{NAME}/") for name in sdist.getnames()}
    wanted = {"pyproject.toml", "README.md", "CHANGELOG.md", "SECURITY.md", "CITATION.cff", "LICENSE", "test"}
    wanted |= {"tests/conftest.py", "docs/installing.md", "examples/run_kernel.py", ".setup/environment"}
    assert wanted <= names
    assert {f"src/{name}" for name in files_of_the_package()} <= names
    assert [name for name in names if "__pycache__" in name or name.startswith((".venv", "dist/", "devwork"))] == []


@pytest.mark.slow
def test_the_wheel_starts_in_an_empty_environment(built, tmp_path):
    (wheel,) = built.glob("*.whl")
    python = environment_in(tmp_path / "empty")
    installed(python, wheel)
    program = python.parent / "tilescope"

    version = run([program, "--version"], cwd=tmp_path)
    assert (version.stdout, version.stderr) == (f"{NAME.replace('-', ' ')}\n", "")
    assert (tmp_path / "empty" / "share" / "man" / "man1" / "tilescope.1").is_file()
    swizzle = run([program, "swizzle", "128B"], cwd=tmp_path)
    assert swizzle.returncode == 0
    assert swizzle.stdout.startswith("Swizzle 128B moves byte a to")
    assert "^ ((a >> 3) & 0x70)" in swizzle.stdout
    imported = run([python, "-W", "error", "-c", "import tilescope as ts; print(ts.Swizzle.named('128B').apply(0x80))"])
    assert (imported.stdout, imported.stderr) == ("144\n", "")
    place = run([python, "-c", "import tilescope; print(tilescope.__file__)"], cwd=tmp_path)
    assert place.stdout.startswith(str(tmp_path))

    told = run([program, "verify", "--environment"], cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert "extras missing: web" in told.stdout
    for command in (
        [program, "plan", "64x64", "bf16", "-q"],
        [program, "explain", "715", "-q"],
        [program, "run", "--help"],
    ):
        assert run(command, cwd=tmp_path).returncode == 0
    served = run([program, "serve", "--no-browser"], cwd=tmp_path)
    assert served.returncode == 3
    assert "pip install 'tilescope[web]'" in served.stderr
