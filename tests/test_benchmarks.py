"""Every benchmark runs, at a tiny size; what it lacks it says in one sentence."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks"
BENCHMARKS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "ratio")
NEED_A_CARD = {"tma_grid", "wgmma_rates"}
IN_ONE_PROCESS = [name for name in BENCHMARKS if name not in ("start_up", "tma_grid")]
SENTENCE = re.compile(r"(\w+)\.py: [^\n]*(?:is missing|This needs)[^\n]*")


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name != "hover"])
def test_it_runs_at_a_tiny_size(name, monkeypatch, tmp_path, capsys):
    path = FOLDER / f"{name}.py"
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setattr(sys, "argv", [str(path), "--tiny"])
    ended = ""
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        ended = str(end.code)
    if ended:
        assert name in NEED_A_CARD, ended
        assert SENTENCE.fullmatch(ended)[1] == name
    else:
        printed = capsys.readouterr().out
        assert re.search(r"\d", printed)
        assert "is missing" not in printed


@pytest.mark.slow
def test_the_one_with_a_browser_runs_at_a_tiny_size(tmp_path):
    """In a process of its own: Playwright has one browser driver in a process, and a test before may have started it."""
    path = FOLDER / "hover.py"
    done = subprocess.run(
        [sys.executable, path, "--tiny"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"\d", done.stdout)


# Runs the scripts named on the command line as if the packages of no extra were installed; prints what each said.
WITHOUT_EXTRAS = """
import contextlib, io, json, runpy, sys

for package in {packages}:
    sys.modules[package] = None
sys.path.insert(0, {folder!r})
said = {{}}
for name in {names}:
    path = {folder!r} + "/" + name + ".py"
    sys.argv = [path, "--tiny"]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            runpy.run_path(path, run_name="__main__")
            ended = ""
        except SystemExit as end:
            ended = str(end.code)
    said[name] = [printed.getvalue(), ended]
print(json.dumps(said))
"""
PACKAGES = ("starlette", "uvicorn", "httpx2", "numba", "llvmlite", "cuda", "cupy", "tensor_layouts", "pycute")
# What a benchmark says that it lacks: the end of the script, or rows that are left out.
ENDS_WITHOUT = {"hover": "uvicorn", "pages": "starlette", "wgmma_rates": "cupy"}
LEAVES_OUT = {
    "banks": ["numba", "tensor_layouts"],
    "layouts": ["pycute", "tensor_layouts"],
    "load_tiles": ["numba"],
    "scales": ["numba"],
    "swizzle": ["numba", "pycute", "tensor_layouts"],
}


@pytest.fixture(scope="module")
def said_without_extras(request, tmp_path_factory):
    cases = [item.callspec.params for item in request.session.items if "said_without_extras" in item.fixturenames]
    names = [params["name"] for params in cases]  # a thinned run starts few of them
    source = WITHOUT_EXTRAS.format(packages=PACKAGES, folder=str(FOLDER), names=names)
    folder = tmp_path_factory.mktemp("without")
    return json.loads(subprocess.check_output([sys.executable, "-c", source], cwd=folder, text=True))


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", IN_ONE_PROCESS)
def test_what_is_missing_is_said_in_one_sentence(name, said_without_extras):
    printed, ended = said_without_extras[name]
    if name in ENDS_WITHOUT:
        assert SENTENCE.fullmatch(ended)[1] == name
        assert ENDS_WITHOUT[name] in ended
    else:
        assert ended == ""
    left_out = re.findall(r"^(\w+) is missing, .*: pip install .+$", printed, re.MULTILINE)
    assert sorted(left_out) == LEAVES_OUT.get(name, [])
