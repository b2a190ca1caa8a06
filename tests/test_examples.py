"""Every program of examples/ prints what its docstring shows, and examples/README.md names it.

python tests/test_examples.py --write [NAME …] fills the docstrings.
"""

import ast
import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
QUICK = (
    "bank_conflicts",
    "cute_picture",
    "invalid_value",
    "torch_tensor",
    "wrong_parity",
    "wrong_swizzle",
)
NEEDS_TRITON = ("pytest_triton", "pytest_triton_program", "run_triton")
SECONDS = re.compile(r" in [0-9.]+s$", re.MULTILINE)  # at the end of pytest's last line


def command(example):
    return f"$ python examples/{example.name}"


def shown_output(example):
    """What stands below the command in a docstring."""
    docstring = ast.get_docstring(ast.parse(example.read_text("utf-8")))
    before, _, shown = docstring.partition(f"{command(example)}\n")
    assert before, f"{example.name} shows no output"
    return textwrap.dedent(shown).rstrip()


def printed_output(example):
    """What a program prints, in a process of its own."""
    printed = subprocess.run([sys.executable, example], text=True, capture_output=True, check=False)
    assert printed.returncode == 0, printed.stdout + printed.stderr
    return comparable(printed.stdout)


def comparable(printed):
    lines = SECONDS.sub("", printed).rstrip().splitlines()
    return "\n".join(line.rstrip() for line in lines)


@pytest.mark.parametrize("name", QUICK)
def test_a_quick_example_prints_what_it_shows(name, capsys, monkeypatch):
    example = ROOT / "examples" / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(example)])
    runpy.run_path(str(example), run_name="__main__")
    assert comparable(capsys.readouterr().out) == shown_output(example)


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_every_example_prints_what_it_shows(example, require):
    if example.stem in NEEDS_TRITON:
        require("triton")
    assert printed_output(example) == shown_output(example)


def test_the_index_has_a_line_for_every_example():
    index = (ROOT / "examples" / "README.md").read_text("utf-8")
    linked = re.findall(r"^\| \[([a-z_]+\.(?:py|ipynb))\]\(\1\) \| .+ \|$", index, re.MULTILINE)
    programs = [example.name for example in EXAMPLES]
    notebooks = [path.name for path in sorted((ROOT / "examples").glob("*.ipynb"))]
    assert sorted(linked) == sorted([*programs, *notebooks])


def fill(example):
    """Write what a program prints into its docstring."""
    text = example.read_text("utf-8")
    end = text.index('"""', 3)
    before = text[3:end].partition(command(example))[0].rstrip()
    shown = textwrap.indent(f"{command(example)}\n{printed_output(example)}", "    ")
    example.write_text(f'"""{before}\n\n{shown}\n"""{text[end + 3 :]}', "utf-8")


if __name__ == "__main__":
    if "--write" in sys.argv:
        names = sys.argv[2:]
        for example in EXAMPLES:
            if not names or example.stem in names:
                fill(example)
