"""The workflow and the hook for other projects' CI do what they promise: their commands run here, in a project of two files."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tilescope

EXAMPLES = Path(__file__).parents[2] / "examples"
ACCEPTED = '{"data_type": "bf16", "dims": [4096, 1000], "strides_bytes": [8192], "box": [64, 64], "swizzle": "128B"}'
REFUSED = ACCEPTED.replace("[64, 64]", "[128, 64]")
LAUNCH = """\
[launch]
ptx = "reverse.ptx"
grid = [1]
block = [64]

[[argument]]
kind = "array"
type = "f32"
shape = [64]
fill = "arange"
"""


@pytest.fixture
def project(tmp_path):
    """An empty repository with the script, and `tilescope` on its PATH."""
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "tilescope"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tilescope "$@"\n')
    program.chmod(0o755)
    folder = tmp_path / "project"
    folder.mkdir()
    shutil.copy(EXAMPLES / "check-kernels.sh", folder)
    subprocess.run(["git", "init", "-q", folder], check=True)
    return folder


def run_in(project, script):
    source = str(Path(tilescope.__file__).parents[1])
    environment = os.environ | {"PATH": f"{project.parent / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": source}
    return subprocess.run(
        ["sh", "-c", script], cwd=project, env=environment, capture_output=True, text=True, check=False
    )


def workflow_script():
    """The last command of the workflow, as a shell gets it."""
    text = (EXAMPLES / "tilescope-ci.yml").read_text("utf-8")
    return re.findall(r"^      - run: (.*)$", text, re.MULTILINE)[-1]


def test_the_workflow_passes_with_an_accepted_map_and_fails_with_a_refused_one(project):
    (project / "x.map.json").write_text(ACCEPTED)
    subprocess.run(["git", "-C", project, "add", "."], check=True)
    done = run_in(project, workflow_script())
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Accepted: ")
    (project / "x.map.json").write_text(REFUSED)
    done = run_in(project, workflow_script())
    assert done.returncode != 0
    assert "swizzle 128B takes a row of at most 128 bytes" in done.stdout


@pytest.mark.slow
def test_the_script_runs_kernels_and_finds_their_races(project):
    (project / "reverse.launch.toml").write_text(LAUNCH)
    kernel = (EXAMPLES / "reverse.ptx").read_text("utf-8")
    (project / "reverse.ptx").write_text(kernel)
    done = run_in(project, "sh check-kernels.sh reverse.launch.toml")
    assert done.returncode == 1
    assert "run-race" in done.stdout
    load = re.search(r"^\s*ld\.shared\.f32.*$", kernel, re.MULTILINE)[0]
    (project / "reverse.ptx").write_text(kernel.replace(load, f"\tbar.sync 0;\n{load}"))
    done = run_in(project, "sh check-kernels.sh reverse.launch.toml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_file_of_another_kind_is_named(project):
    done = run_in(project, "sh check-kernels.sh README.md")
    assert done.returncode == 1
    assert "README.md is neither *.map.json nor *.launch.toml" in done.stderr


def test_the_page_shows_a_hook_for_these_files():
    page = (EXAMPLES.parent / "docs" / "installing.md").read_text("utf-8")
    assert "entry: sh check-kernels.sh" in page
    pattern = re.search(r"files: (\S+)\n", page)[1]
    assert re.search(pattern, "maps/x.map.json")
    assert re.search(pattern, "x.launch.toml")
    assert not re.search(pattern, "x.json")
