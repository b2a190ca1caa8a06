"""Shell completion: what the page says works, and what is offered."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tilescope.cli import COMMANDS, main

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text("utf-8")
PROGRAMS = str(Path(sys.executable).parent)
ENVIRONMENT = {"PATH": os.pathsep.join([PROGRAMS, os.environ["PATH"]]), "HOME": "/nonexistent"}


@pytest.fixture
def offered(monkeypatch, capsys):
    """`offered("mma", "inst")`: what a shell is offered for the last word."""

    def completions(*words):
        monkeypatch.setenv("_TILESCOPE_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", " ".join(("tilescope", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        with pytest.raises(SystemExit):
            main()
        return [line.partition(",")[2] for line in capsys.readouterr().out.splitlines() if line]

    return completions


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (("pl",), ["plan"]),
        (("load", "--sw"), ["--swizzle"]),
        (("mma", "inst"), ["instruction"]),
        (("swizzle", "128B_"), ["128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B"]),
        (("check", "--type", "bf"), ["bfloat16"]),
        (("explain", "swizzle-s"), ["swizzle-span"]),
        (("bogus", "--"), []),
        (("load", '"unclosed'), []),
    ],
)
def test_commands_options_and_names_are_offered(offered, words, completed):
    found = offered(*words)
    assert [name for name in completed if name not in found] == []
    assert len(found) == len(completed) or words[0] in ("check", "bogus")


def test_every_command_is_offered(offered):
    assert offered("") == list(COMMANDS)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_the_page_says_teaches_the_shell(shell):
    (block,) = re.findall(rf"```{shell}\n(.*?)```", PAGE, re.DOTALL)
    instruction = re.search(r"_TILESCOPE_COMPLETE=(\w+) tilescope", block)[1]
    assert instruction == f"{shell}_source"
    script = subprocess.run(
        ["tilescope"],
        env=ENVIRONMENT | {"_TILESCOPE_COMPLETE": instruction},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "_tilescope_completion" in script
    assert f"{shell}_complete" in script
    if shell == "bash" and shutil.which("bash"):
        typed = "COMP_WORDS=(tilescope expl); COMP_CWORD=1; _tilescope_completion tilescope; echo ${COMPREPLY[@]}"
        asked = f"{block}\n{typed}; complete -p tilescope"
        done = subprocess.run(["bash", "-c", asked], env=ENVIRONMENT, capture_output=True, text=True, check=False)
        assert done.stdout.splitlines()[0] == "explain", done
        assert "_tilescope_completion" in done.stdout.splitlines()[1]
