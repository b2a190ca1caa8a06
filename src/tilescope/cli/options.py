"""The options of commands: those of tables of inputs, and those that every command has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce, wraps
from pathlib import Path
from typing import Any, TypeAlias

import click

from tilescope.cli.output import STDOUT, Output
from tilescope.inputs import Input, Reader, flag

Command: TypeAlias = Callable[..., Any]
_SVG = "Also write the drawing as SVG; - is stdout."
INPUT_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True)


def reading(read: Reader) -> Reader:
    """A reader for `type=` of an option: what it says of a wrong text, click says with the option's name."""

    @wraps(read)
    def read_option(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            wrong, instead = error.args
            raise click.BadParameter(f"{wrong}; write {instead}.") from None

    return read_option


def listed(read: Reader) -> Reader:
    """A reader of several values with commas between them: bf16,e4m3."""
    return lambda text: tuple(read(piece.strip()) for piece in text.split(","))


def command(
    *inputs: Input, group: click.Group | None = None, svg: bool = True, out: str | None = None, **settings: Any
) -> Callable[[Command], click.Command]:
    """A command with the arguments and options of a table, and --json and --svg FILE, its argument `output`.

    `svg=False` leaves --svg out, for commands that draw nothing; `out`, which --help shows, adds --out FILE, for
    commands that make bytes. What nobody says on the command line is not passed on: the library has its defaults.
    """

    def make(function: Command) -> click.Command:
        @wraps(function)
        def asked(*, as_json: bool, svg_path: Path | None = None, out_path: Path | None = None, **said: Any) -> Any:
            to_stdout = ["--json"] * as_json + ["--svg -"] * (svg_path == STDOUT) + ["--out -"] * (out_path == STDOUT)
            refuse((len(to_stdout) > 1, f"{' and '.join(to_stdout)} both write to stdout; give one of them a file."))
            passed = {name: value for name, value in said.items() if value is not None}
            return function(output=Output(as_json, svg_path, out_path), **passed)

        made = (group.command if group else click.command)(**settings)(options(*inputs)(asked))
        made.params.append(click.Option(["--json", "as_json"], is_flag=True, help="Print JSON instead of a drawing."))
        for name, help_text in (("svg", _SVG if svg else None), ("out", out)):
            if help_text is not None:
                file = click.Option([f"--{name}", f"{name}_path"], type=output_file, metavar="FILE", help=help_text)
                made.params.append(file)
        return made

    return make


def options(*inputs: Input) -> Callable[[Command], Command]:
    """Give a function the arguments and options of a table."""
    return lambda function: reduce(lambda wrapped, row: _parameter(row)(wrapped), reversed(inputs), function)


def _parameter(row: Input) -> Callable[[Command], Command]:
    if row.read is flag:
        return click.option(row.option, row.name, is_flag=True, help=row.help)
    shared: dict[str, Any] = {"type": reading(row.read), "shell_complete": completing(row.choices)}
    if not row.option:
        return click.argument(row.name, metavar=row.metavar if row.choices else None, **shared)
    return click.option(*row.option.split(), row.name, metavar=row.metavar, help=row.help, **shared)


def refuse(*mistakes: tuple[object, str]) -> None:
    """Say what is wrong with a command line: the sentence of the first mistake that was made."""
    for made, sentence in mistakes:
        if made:
            raise click.UsageError(sentence)


def completing(names: Iterable[str]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """What a shell may complete a value to: the names that begin with what is typed."""
    return lambda _context, _parameter, typed: [name for name in names if name.casefold().startswith(typed.casefold())]


def output_file(text: str) -> Path:
    """A file to write to; "-" is stdout."""
    path = Path(text)
    if path.is_dir():
        raise click.BadParameter(f"{text!r} is a directory; name a file in it.")
    if not path.parent.is_dir():
        raise click.BadParameter(f"there is no directory {str(path.parent)!r} to write {path.name!r} to.")
    return path
