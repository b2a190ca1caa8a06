"""Failures of every sort become one sentence and an exit status; nothing ends in a traceback."""

import os
import re
import subprocess
import sys

import click
import pytest

import tilescope.cli
from tilescope import __version__
from tilescope.cli import COMMANDS, OWN_MODULES, run, watch_command
from tilescope.errors import DeviceError, RuleError, TensorMapError, TilescopeError, Violation
from tilescope.gpu.verify.suites import SUITE_NAMES
from tilescope.pipeline.toml_text import template_names
from tilescope.questions import swizzle_questions
from tilescope.questions.refusal import OF_INPUT
from tilescope.rule import RULES

PROGRAM = [sys.executable, "-m", "tilescope"]


def program(*arguments, **environment):
    """The program in a process of its own."""
    return subprocess.run(
        [*PROGRAM, *arguments], capture_output=True, text=True, timeout=300, check=False, env=os.environ | environment
    )


@pytest.fixture
def failing(monkeypatch):
    """Let `tilescope swizzle` fail with a given exception, as if the library had raised it."""

    def fail_with(error):
        def named(_):
            raise error

        monkeypatch.setattr(swizzle_questions, "Swizzle", type("Swizzle", (), {"named": staticmethod(named)}))
        return run(["swizzle", "128B"])

    return fail_with


def violation(rule):
    return Violation(rule, "error", "box[0]", "256 bytes", "at most 128", "Halve it.")


def test_every_command_can_be_loaded_and_says_what_it_does():
    for name in COMMANDS:
        command = tilescope.cli.tilescope.get_command(None, name)
        assert isinstance(command, click.Command)
        for each in command.commands.values() if isinstance(command, click.Group) else (command,):
            assert each.help
            has_json = "--json" in {option for parameter in each.params for option in parameter.opts}
            assert has_json == (name != "serve")  # whose pages have JSON of their own


def test_the_help_lists_every_command(capsys):
    assert run(["--help"]) == 0
    listed = capsys.readouterr().out
    for name, said in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(said)}$", listed, re.MULTILINE)


def test_no_arguments_show_the_help(capsys):
    assert run([]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("Usage: tilescope")
    assert shown.err == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name, capsys):
    assert run([name, "--help"]) == 0
    assert f"Usage: tilescope {name}" in capsys.readouterr().out


def test_the_version(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith(f"tilescope {__version__}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["swizle"], "Did you mean swizzle?"),
        (["zzz"], "No such command 'zzz'. Commands: "),
        (["mma", "fragmnt"], "Did you mean fragment?"),
        (["mma", "m64n128k16"], "Commands: check, descriptors, fragment, "),
        (["swizzle", "128B", "--jsno"], "--json"),
        (["--nope"], "--nope"),
        (["swizzle"], "MODE"),
        (["swizzle", "128B", "64B"], "64B"),
        (["swizzle", "128B", "--address"], "--address"),
    ],
)
def test_a_command_line_not_understood(arguments, said, capsys):
    assert run(arguments) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.out == ""


@pytest.mark.parametrize("error_type", [RuleError, TensorMapError])
def test_broken_rules_of_the_hardware_are_the_answer_no(failing, capsys, error_type, wording):
    assert failing(error_type([violation("span"), violation("rank")])) == 1
    shown = capsys.readouterr()
    assert shown.err == ""
    refusal, _, *errors = shown.out.splitlines()
    assert refusal.startswith("Refused: 256 bytes")
    assert [line.split(": ")[:2] for line in errors] == [["error", "span"], ["error", "rank"]]
    wording(f"two broken rules of a {error_type.__name__}", shown.out)


def test_input_that_is_not_understood_is_said_on_stderr(failing, capsys):
    assert failing(RuleError([violation("span"), violation("unknown-name")])) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert [line.split(": ")[:2] for line in shown.err.splitlines()] == [["error", "span"], ["error", "unknown-name"]]


def test_rules_of_input_exist():
    assert sorted(OF_INPUT - set(RULES)) == []


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (DeviceError("No GPU was found."), 3, "No GPU was found."),
        (
            ModuleNotFoundError("No module", name="uvicorn"),
            3,
            "pip install 'tilescope[web]'.",
        ),
        (
            ModuleNotFoundError("No module", name="cuda.core"),
            3,
            "pip install 'tilescope[gpu]'.",
        ),
        (TilescopeError("It cannot be."), 2, "error: It cannot be."),
        (click.FileError("a.txt", "gone"), 2, "file 'a.txt': gone"),
        (PermissionError(13, "Permission denied", "a.svg"), 2, "error: a.svg: Permission denied."),
        (KeyboardInterrupt(), 130, ""),
        (click.Abort(), 130, ""),
        (SystemExit(7), 7, ""),
    ],
)
def test_what_went_wrong_decides_the_status(failing, capsys, error, status, said):
    assert failing(error) == status
    shown = capsys.readouterr()
    assert shown.err.strip().endswith(said)
    assert bool(shown.err) == bool(said)
    assert shown.out == ""


@pytest.mark.parametrize(
    "error", [ValueError("bad\nvalue"), ModuleNotFoundError("No module named 'json5'", name="json5")]
)
def test_a_mistake_of_its_own_is_one_sentence(failing, capsys, monkeypatch, error):
    monkeypatch.delenv("TILESCOPE_DEBUG", raising=False)
    assert failing(error) == 70
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert type(error).__name__ in said
    assert "report" in said
    monkeypatch.setenv("TILESCOPE_DEBUG", "1")
    assert failing(error) == 70
    assert capsys.readouterr().err.startswith("Traceback")


def test_a_command_decides_its_status(monkeypatch, capsys):
    monkeypatch.setitem(COMMANDS, "refuse", "Says no.")
    monkeypatch.setitem(OWN_MODULES, "refuse", "watch_command")
    monkeypatch.setattr(watch_command, "COMMANDS", [click.Command("refuse", callback=lambda: 1)])
    assert run(["refuse"]) == 1
    assert capsys.readouterr().err == ""


def test_the_program_ends_with_the_status():
    assert program("swizzle", "32B").returncode == 0
    refused = program("swizzle", "33B")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "Did you mean 32B?" in refused.stderr


@pytest.mark.thinned(3)
@pytest.mark.parametrize("colour", [{}, {"FORCE_COLOR": "1"}])
@pytest.mark.parametrize("arguments", [["swizzle", "xor:5,2,5"], ["swizzle", "128B", "--json"], ["--help"]])
def test_a_reader_that_goes_away_is_no_failure_worth_words(arguments, colour):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"} | colour
    process = subprocess.Popen(
        [*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    process.stdout.close()
    assert process.wait(timeout=300) == 141
    assert process.stderr.read() == ""
    process.stderr.close()


def test_an_encoding_without_lines_gets_the_rest():
    shown = program("swizzle", "64B", "--address", "0x80", PYTHONIOENCODING="latin-1")
    assert shown.returncode == 0
    assert "????" in shown.stdout
    assert "line   byte chunk  0  1  2  3" in shown.stdout


def test_a_shell_can_ask_for_completions():
    shown = program(_TILESCOPE_COMPLETE="bash_complete", COMP_WORDS="tilescope swi", COMP_CWORD="1")
    assert shown.stdout == "plain,swizzle\n"


def test_the_commands_import_neither_rich_nor_each_other():
    code = (
        "import sys; from tilescope.cli import run; run(['swizzle', '128B'])\n"
        "unwanted = ('rich', 'tilescope.questions.topic_questions', 'tilescope.planner', 'tilescope.tma')\n"
        "print([name for name in unwanted if name in sys.modules], file=sys.stderr)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stderr == "[]\n"


@pytest.mark.thinned(3)
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("arguments", "status"), [("swizzle 128B", 0), ("swizzle 129B", 2)])
def test_closed_streams_are_no_mistake(arguments, status, closed):
    command = f"'{sys.executable}' -m tilescope {arguments} {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == status
    assert "mistake" not in done.stderr


def every_command():
    """(name, command) of each command and each command of a group."""
    for name in COMMANDS:
        command = tilescope.cli.tilescope.get_command(None, name)
        yield [name], command
        for inner, each in getattr(command, "commands", {}).items():
            yield [name, inner], each


@pytest.mark.parametrize(
    ("command", "heading", "names"), [("verify", "Suites:", SUITE_NAMES), ("pipeline", "Templates:", template_names())]
)
def test_the_help_names_every_suite_and_template(command, heading, names, capsys):
    run([command, "--help"])
    paragraph = capsys.readouterr().out.partition(heading)[2].partition(".\n\n")[0]
    assert sorted("".join(paragraph.split()).split(",")) == sorted(names)


@pytest.mark.parametrize("words", [words for words, _ in every_command()], ids=" ".join)
def test_help_keeps_its_lines_apart_and_fits_80_columns(words, capsys):
    assert run([*words, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "\\b" not in shown
    assert "\b" not in shown
    assert [line for line in shown.splitlines() if len(line) > 80] == []
    examples = [line for line in shown.splitlines() if line.count("tilescope ") > 1 and "Usage" not in line]
    assert examples == []


def test_json_and_svg_do_not_share_stdout(capsys):
    assert run(["swizzle", "128B", "--json", "--svg", "-"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "both write to stdout" in shown.err


@pytest.mark.parametrize("width", [40, 60])
@pytest.mark.parametrize(
    "arguments",
    [["explain", "swizzle"], ["explain", "box-range"], ["load", "--type", "bf16", "--dims", "64,64", "--box", "64,4"]],
)
def test_a_narrow_terminal_gets_narrow_text(arguments, width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    assert run(arguments) == 0
    _, *lines = capsys.readouterr().out.splitlines()  # the answer stands in one line, however narrow the terminal
    assert max(map(len, lines)) <= width


def test_no_terminal_is_narrower_than_40_columns(monkeypatch, capsys):
    shown = set()
    for width in ("1", "40"):
        monkeypatch.setenv("COLUMNS", width)
        assert run(["explain", "swizzle"]) == 0
        shown.add(capsys.readouterr().out)
    assert len(shown) == 1


@pytest.mark.parametrize(
    "command",
    [["swizzle", "128B"], ["mma", "layout", "64x64", "bf16"], ["banks", "64x64", "bf16", "--pattern", "ldmatrix.x4"]],
)
def test_a_shared_address_has_one_name(command, capsys):
    shown = set()
    for option in ("--smem-address", "--address"):
        assert run([*command, option, "0x400", "--json"]) == 0
        shown.add(capsys.readouterr().out)
    assert len(shown) == 1


def test_an_option_that_takes_one_value_is_refused_when_it_is_given_twice(capsys):
    status = run(["check", "--type", "bf16", "--dims", "64,64", "--box", "64,8", "--box", "64,16"])
    assert status == 2
    assert "--box is given twice" in capsys.readouterr().err


def test_options_that_may_be_repeated_and_flags_are_taken(capsys):
    assert run(["banks", "128x64", "bf16", "--pattern", "ldmatrix.x4", "--pattern", "transpose", "-q", "-q"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "written", [["64x64", "bf16"], ["bf16", "64x64"], ["64", "64", "bf16"], ["bf16", "64", "64"], ["64,64", "bf16"]]
)
def test_a_shape_and_a_type_in_either_order(written, capsys):
    assert run(["plan", *written, "-q"]) == 0
    assert capsys.readouterr().out.startswith("64 x 64 bfloat16: ")
