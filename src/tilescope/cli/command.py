"""What every command has: options from tables of inputs, and an output: the drawing of a value, or the value as JSON."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from tilescope import view
from tilescope.inputs import Input, Reader, flag
from tilescope.value import EXTRA

if TYPE_CHECKING:
    from rich.progress import TaskID

    from tilescope.value import Value
    from tilescope.view.drawing import Drawing

STDOUT = Path("-")
NARROWEST_COLUMNS = 40  # of a terminal for which drawings are laid out


@dataclass(frozen=True, slots=True)
class Output:
    """Where a command's value goes, as its --json, --svg and --out options say."""

    as_json: bool = False
    svg_path: Path | None = None
    out_path: Path | None = None  # the bytes that a command makes: a map, an array

    def show(
        self, value: Value, drawing: Drawing | None = None, *, ok: bool = True, extra: Any = None, **options: Any
    ) -> int:
        """Print `value` as JSON or drawn, write its SVG if one was asked for, and give the status: 1 if not `ok`.

        `options` that are not None go to the drawing function of its kind; a value drawn otherwise brings its `drawing`.
        `extra` stands beside the value's own plain data in JSON, under a key that `Value.from_dict` passes over.
        """
        status = 0 if ok else 1
        if self.as_json:
            click.echo(json.dumps(value.to_dict() | ({EXTRA: extra} if extra else {}), indent=2))
            if self.svg_path is None:
                return status
        drawn = drawing or view.draw(value, **{name: option for name, option in options.items() if option is not None})
        assert drawn is not None, value.kind
        if not self.as_json and STDOUT not in (self.svg_path, self.out_path):
            print_drawing(drawn)
        if self.svg_path is not None:
            write_to(self.svg_path, drawn.svg().encode())
        return status


def write_to(path: Path, content: bytes, saying: str = "") -> None:
    """Write what a command makes to a file or stdout; `saying` goes to stderr behind the file's name."""
    if path == STDOUT:
        click.echo(content, nl=False)
    else:
        path.write_bytes(content)
        click.echo(f"wrote {path}{saying}", err=True)


def print_drawing(drawing: Drawing) -> None:
    """Print a drawing as wide as the terminal, in colour where it is one."""
    width = max(NARROWEST_COLUMNS, shutil.get_terminal_size().columns)
    if not wants_colour():
        click.echo(drawing.text(width))
        return
    from rich.console import Console

    console = Console(width=width, highlight=False)  # knows how many colours the terminal has
    with console.capture() as captured:
        console.print(drawing)
    click.echo(captured.get(), nl=False, color=True)


def wants_colour() -> bool:
    """Whether stdout is a terminal that takes colours, and the user did not refuse them with NO_COLOR."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None] | None]:
    """A function that shows (name, done, in all) as bars; None where nobody would see them."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            bars.update(tasks[name], completed=done)

        yield show


Command: TypeAlias = Callable[..., Any]
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
        for name, help_text in (("svg", "Also write the drawing as SVG; - is stdout." if svg else None), ("out", out)):
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
