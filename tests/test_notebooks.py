"""The notebooks of examples/ are executed, and show what is stored in them."""

import ast
import contextlib
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tilescope.value import Value

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
MOST_BYTES = 300_000
ids = lambda path: path.stem  # noqa: E731


def stored(path):
    return json.loads(path.read_text("utf-8"))


def outputs(notebook):
    """The source of every cell of code, and what it shows by media type."""
    shown = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            texts = [output.get("data", {"text": output.get("text")}) for output in cell["outputs"]]
            joined = [{media: "".join(text) for media, text in one.items()} for one in texts]
            shown.append(("".join(cell["source"]), joined))
    return shown


def test_there_are_three():
    assert [path.stem for path in NOTEBOOKS] == ["one_tile", "planning_a_gemm", "slow_triton_kernel"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=ids)
def test_a_stored_notebook_is_whole_small_and_names_no_machine(path):
    text = path.read_text("utf-8")
    assert len(text) < MOST_BYTES
    assert re.search(r"/(tmp|home|root)/|\\\\Users", text) is None
    counts = [cell["execution_count"] for cell in stored(path)["cells"] if cell["cell_type"] == "code"]
    assert counts == [*range(1, len(counts) + 1)]  # executed once, from top to bottom
    assert '"output_type": "error"' not in text


def test_values_in_a_notebook_are_drawn_as_they_are_stored():
    """Without Jupyter: the last line of every cell is a value, whose pictures are those in the file."""
    names = {}
    drawn = 0
    for source, shown in outputs(stored(ROOT / "examples" / "one_tile.ipynb")):
        *statements, last = ast.parse(source).body
        exec(compile(ast.Module(statements, []), "cell", "exec"), names)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            if not isinstance(last, ast.Expr):
                exec(compile(ast.Module([last], []), "cell", "exec"), names)
                value = None
            else:
                value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        if isinstance(value, Value):
            assert shown == [value._repr_mimebundle_()]
            drawn += 1
        elif printed.getvalue():
            assert shown == [{"text": printed.getvalue()}]
            drawn += 1
    assert drawn == 5


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=ids)
def test_a_notebook_shows_what_is_stored_in_it(path, require):
    require("jupyter")
    known = stored(path)
    if "triton" in known["metadata"]:
        require("triton")
    printed = subprocess.run(
        [sys.executable, ROOT / "tests" / "notebooks.py", path], text=True, capture_output=True, check=False
    )
    assert printed.returncode == 0, printed.stderr  # a cell that raises, as an assert in it does
    fresh = json.loads(printed.stdout)
    if fresh["metadata"].get("triton") == known["metadata"].get("triton"):  # another compiler makes other instructions
        assert outputs(fresh) == outputs(known)


@pytest.mark.slow
def test_a_print_in_two_parts_is_one_output(require, tmp_path):
    """A kernel sends what is printed every 0.2 s: a slow machine may see one print as two messages."""
    require("jupyter")
    source = "import sys, time\nprint('one', end='')\nsys.stdout.flush()\ntime.sleep(0.5)\nprint(' line')"
    cell = {"cell_type": "code", "id": "a", "source": source, "metadata": {}, "execution_count": None, "outputs": []}
    path = tmp_path / "slow.ipynb"
    path.write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    printed = subprocess.run(
        [sys.executable, ROOT / "tests" / "notebooks.py", path], text=True, capture_output=True, check=True
    )
    assert outputs(json.loads(printed.stdout)) == [(source, [{"text": "one line\n"}])]
