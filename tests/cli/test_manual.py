"""--help is a page of a manual: synopsis, what is answered, options, examples, exit statuses, where to go on."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

import tilescope.cli
from tilescope.cli import COMMANDS, run
from tilescope.cli.manual import manuals

DOCS = Path(__file__).parents[2] / "docs"
MANY_OPTIONS = 15  # of a command's own: more are read below headings


def every_command():
    """(words, command) of each command and each command of a group."""
    for name in COMMANDS:
        command = tilescope.cli.tilescope.get_command(None, name)
        yield name, command
        for inner, each in getattr(command, "commands", {}).items():
            yield f"{name} {inner}", each


ALL = dict(every_command())
EXAMPLES = [example.run for manual in manuals().values() for example in manual.examples]
# What other examples name: files of the user's, a card, a server, a program to watch.
FOREIGN = re.compile(
    r"\.(bin|npy|npz|txt|log|json|jsonl|ptx|toml|launch|csv|cu|py)\b|…|serve|watch|^tilescope (verify|bench)( [a-z]|$)"
    "|--save|pbpaste"
)
RUN_HERE = [line for line in EXAMPLES if not FOREIGN.search(line.replace("\\\n", " "))]


def options_of(command):
    return {option for parameter in command.params for option in parameter.opts if option.startswith("-")}


def test_every_command_has_a_manual_and_no_other():
    assert set(manuals()) == set(ALL)


@pytest.mark.parametrize("words", ALL)
def test_the_sections_stand_in_the_order_of_a_manual(words, capsys):
    assert run([*words.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    options = "Commands:" if words == "mma" else "Output:"
    if words == "serve":
        options = "Options:"
    sections = [f"Usage: tilescope {words}", options, "Examples:", "Exit status:", "See also:"]
    places = [shown.find(section) for section in sections]
    assert -1 not in places
    assert places == sorted(places)
    answers = shown.partition("\n\n")[2].partition("\n\n")[0]
    assert len(answers.split()) >= 8, "the paragraph below the synopsis says what is answered"
    assert shown.count("Exit status") == 1


def test_the_list_of_commands_ends_with_exit_statuses_and_where_to_go_on(capsys):
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.index("On this machine:") < shown.index("Exit status:") < shown.index("See also:")
    assert re.findall(r"^  (\d) ", shown.partition("Exit status:")[2], re.MULTILINE) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("words", ALL)
def test_every_option_is_shown_once_with_a_sentence(words, capsys):
    run([*words.split(), "--help"])
    shown = capsys.readouterr().out.partition("\nExamples:")[0].partition("\nOptions:")[2]
    program = click.Context(
        tilescope.cli.tilescope, help_option_names=["-h", "--help"]
    )  # a command keeps its first answer
    context = click.Context(ALL[words], info_name=words, parent=program)
    for parameter in ALL[words].get_params(context):
        if isinstance(parameter, click.Option):
            name = max(parameter.opts, key=len)
            assert len(re.findall(rf"^  (?:-\w, )?(?:--[\w-]+, )?{name}(?=[ ,\n])", shown, re.MULTILINE)) == 1, name
            assert parameter.help, f"{name} says nothing"


@pytest.mark.parametrize("words", ALL)
def test_a_paragraph_ends_where_a_sentence_ends(words, capsys):
    run([*words.split(), "--help"])
    text = capsys.readouterr().out.partition("\nOptions:")[0].partition("\n\n")[2]
    for paragraph in text.rstrip().split("\n\n"):
        is_list = re.search(r"\S {2,}\S", paragraph) is not None
        assert is_list or paragraph.endswith((".", ":")), paragraph


@pytest.mark.parametrize("words", ALL)
def test_headings_name_options_of_the_command_once(words):
    named = [option for options in manuals()[words].groups.values() for option in options]
    assert sorted(named) == sorted(set(named))
    assert set(named) <= options_of(ALL[words])


def test_many_options_are_read_below_headings():
    many = [words for words, command in ALL.items() if len(options_of(command)) > MANY_OPTIONS]
    assert [words for words in many if not manuals()[words].groups] == []


@pytest.mark.parametrize("words", ALL)
def test_it_leads_to_other_commands_and_to_a_page(words):
    manual = manuals()[words]
    assert manual.see_also
    assert set(manual.see_also) <= set(ALL) - {words}
    assert (DOCS / manual.page).is_file()


@pytest.mark.parametrize("line", EXAMPLES, ids=lambda line: line[:60])
def test_examples_name_commands_and_options_that_exist(line):
    spoken = shlex.split(line.replace("\\\n", " ").partition("| ")[2] or line.replace("\\\n", " "))
    assert spoken[0] == "tilescope"
    command = " ".join(spoken[1:3]) if spoken[1] == "mma" else spoken[1]
    assert command in ALL
    given = spoken[: spoken.index("--")] if "--" in spoken else spoken
    assert {word for word in given if re.match(r"--?[a-z]", word)} <= options_of(ALL[command])


@pytest.mark.parametrize("words", ALL)
def test_the_first_example_is_of_the_command_itself(words):
    example = manuals()[words].examples[0].run
    assert example.startswith(f"tilescope {words}")


def test_most_examples_run_here():
    assert len(RUN_HERE) > 45


@pytest.mark.slow
@pytest.mark.parametrize("line", RUN_HERE)
def test_an_example_that_needs_nothing_else_runs(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    said = shlex.split(line.replace("\\\n", " ").partition(" > ")[0])[1:]
    assert run(said) in (0, 1), capsys.readouterr().err
    assert capsys.readouterr().out


def test_help_loads_nothing_heavy():
    """The help of every command, one after another in a new interpreter: tables, numpy and the machine are not needed for it."""
    code = (
        "import contextlib, io, sys\n"
        "from tilescope.cli import run\n"
        "with contextlib.redirect_stdout(io.StringIO()) as printed:\n"
        f"    statuses = [run([*words.split(), '--help']) for words in {list(ALL)}]\n"
        "assert statuses == [0] * len(statuses)\n"
        "assert printed.getvalue().count('Usage: tilescope ') == len(statuses)\n"
        "print(*sorted(name for name in sys.modules if name.split('.')[0] in ('numpy', 'ml_dtypes', 'tilescope')))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    loaded = found.stdout.split()
    assert "tilescope.cli" in loaded
    assert not [name for name in loaded if name.startswith(("numpy", "ml_dtypes"))]
    light = {"cli", "errors", "extras", "html_table", "late_names", "names", "questions", "sentence"}
    assert {name.split(".")[1] for name in loaded if "." in name} <= light


def test_a_narrow_terminal_gets_narrow_help(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    assert run(["swizzle", "--help"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 60
