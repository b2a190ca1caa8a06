"""The command of a question: options from its inputs, and an output: the drawing of its answer, or JSON."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from inspect import cleandoc
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click

from tilescope import view
from tilescope.cli.manual import ManualCommand
from tilescope.cli.program_command import PROGRAM_ARGUMENTS, ProgramCommand
from tilescope.names import nearest_name
from tilescope.questions.first_line import FirstLine
from tilescope.questions.question import (
    Answer,
    Asked,
    Function,
    Input,
    MadeFile,
    MisuseError,
    Question,
    Reader,
    as_options,
    default_of,
    flag,
)
from tilescope.sentence import as_python, saying_arguments
from tilescope.written import product, tile, tile_or_name

if TYPE_CHECKING:
    from rich.progress import TaskID

    from tilescope.view.drawing import Drawing

STDOUT = Path("-")
_QUIET_SECONDS = 2  # of a run that shows no counter
_COUNTER_SECONDS = 0.2  # between two counts
NARROWEST_COLUMNS = 40  # of a terminal for which drawings are laid out


@dataclass(frozen=True, slots=True)
class Output:
    """The outputs of a command, from its --quiet, --json, --svg and --out options."""

    as_json: bool = False
    svg_path: Path | None = None
    out_path: Path | None = None  # the bytes that a command makes: a map, an array
    is_quiet: bool = False  # only the first line

    def require_one_on_stdout(self) -> None:
        """Refuse two outputs that would mix on stdout."""
        to_stdout = ["--quiet"] if self.is_quiet else []
        if self.as_json:
            to_stdout.append("--json")
        if self.svg_path == STDOUT:
            to_stdout.append("--svg -")
        if self.out_path == STDOUT:
            to_stdout.append("--out -")
        if len(to_stdout) > 1:
            raise click.UsageError(f"{' and '.join(to_stdout)} both write to stdout; give one of them a file.")

    @property
    def is_stdout_taken(self) -> bool:
        """Whether stdout holds something else than the drawing."""
        return STDOUT in (self.svg_path, self.out_path)


def show(answer: Answer, output: Output, drawing: Drawing | None = None) -> int:
    """Print an answer as JSON, or its first line and what is drawn below it; give the exit status.

    Its SVG is written if requested. A value without a view provides its `drawing`.
    """
    if output.as_json or output.is_quiet:
        click.echo(answer.json() if output.as_json else quiet_text(answer.first))
        if output.svg_path is not None:
            show_drawing(drawing or draw_answer(answer), output)
    elif answer.text:
        click.echo(answer.text)
        for below in answer.below:
            click.echo()
            show(below, output)
    else:
        if answer.first.sentence and not output.is_stdout_taken:
            click.echo(f"{answer.first.sentence}\n")
        if answer.printed and not output.is_stdout_taken:
            click.echo(f"{answer.printed}\n")
        show_drawing(drawing or draw_answer(answer), output, told_above=answer.told_above)
        for below in answer.below:
            click.echo()
            show(below, Output())
        if answer.code and not output.is_stdout_taken:
            click.echo(f"\n{answer.code}")
    if answer.status is not None:
        return answer.status
    return 0 if answer.is_yes else 1


def quiet_text(first: FirstLine) -> str:
    """The output of --quiet: the sentence, and on a separate line the advice if the answer is no.

    >>> print(quiet_text(FirstLine("Refused: 6 dims; a map has 1 to 5.", "Merge two.")))
    Refused: 6 dims; a map has 1 to 5.
    Merge two.
    """
    return "\n".join(line for line in first if line)


def draw_answer(answer: Answer) -> Drawing | None:
    """The drawing of an answer's value; None if its kind has none."""
    return view.draw(answer.value, **{name: option for name, option in answer.shown.items() if option is not None})


def show_drawing(drawing: Drawing | None, output: Output, *, told_above: Iterable[str] = ()) -> None:
    """Print a drawing, if nothing else is on stdout, and write it as SVG if requested.

    The printed drawing omits the parts that were printed above it.
    """
    if drawing is None:
        return
    if not output.as_json and not output.is_quiet and not output.is_stdout_taken:
        print_drawing(drawing.without(*told_above))
    if output.svg_path is not None:
        write_to(output.svg_path, drawing.svg().encode())


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

    console = Console(width=width, highlight=False)  # detects the number of colours of the terminal
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
    """A function that shows (name, done, in all) as bars; None if no terminal would show them."""
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


@contextmanager
def step_counter() -> Iterator[Callable[[int], None] | None]:
    """A function that shows how many instructions a run has executed, once it is long; None where nobody would see them."""
    if not sys.stderr.isatty():
        yield None
        return
    process = os.getpid()
    next_time = time.monotonic() + _QUIET_SECONDS
    is_shown = False

    def show(steps: int) -> None:
        nonlocal next_time, is_shown
        now = time.monotonic()
        if now < next_time or os.getpid() != process:  # a fork runs a part of the blocks
            return
        next_time = now + _COUNTER_SECONDS
        is_shown = True
        click.echo(f"\r{steps} instructions …", err=True, nl=False)

    try:
        yield show
    finally:
        if is_shown:
            click.echo("\r\x1b[K", err=True, nl=False)  # what is printed next begins on an empty line


Gather: TypeAlias = Callable[[Asked, Output], Asked]
INPUT_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True)


def click_reader(read: Reader) -> Reader:
    """A reader for `type=` of an option: click adds the option's name to its error message."""

    @wraps(read)
    def read_option(text: str) -> object:
        try:
            return read(text)
        except ValueError as error:
            wrong, instead = error.args
            raise click.BadParameter(f"{wrong}; write {instead}.") from None

    return read_option


def output_file(text: str) -> Path:
    """A file to write to; "-" is stdout."""
    path = Path(text)
    if path.is_dir():
        raise click.BadParameter(f"{text!r} is a directory; name a file in it.")
    if not path.parent.is_dir():
        raise click.BadParameter(f"there is no directory {str(path.parent)!r} to write {path.name!r} to.")
    return path


def kernel_file(text: str) -> str:
    """A file to read, optionally followed by the name of a function: kernels.py:add."""
    file, _, function = text.rpartition(":")
    if function.isidentifier() and Path(file).is_file():
        return text
    return str(INPUT_FILE.convert(text, None, None))


# How a command takes the name of a file: one to read, one with a kernel, one with an array, one to write.
FILE_TYPES: dict[str, click.Path | Reader] = {
    "input": INPUT_FILE,
    "kernel": kernel_file,
    "array": click.Path(exists=True, dir_okay=False),
    "output": output_file,
}


def is_file(name: str) -> bool:
    """Whether a word names a file or a pipe."""
    try:
        return Path(name).exists() and not Path(name).is_dir()
    except (OSError, ValueError):  # a text that no file could be called
        return False


def one_of(choices: Iterable[str]) -> Reader:
    """A reader of one of several names; the error for an unknown name suggests a similar one.

    >>> one_of(["cute", "triton"])("triton")
    'triton'
    """
    names = list(choices)

    def read_name(text: str) -> str:
        if text in names:
            return text
        nearest = nearest_name(text, names)
        hint = f" Did you mean {nearest}?" if nearest else ""
        raise click.BadParameter(f"{text!r} is not one of {', '.join(map(repr, names))}.{hint}")

    return read_name


class Number(click.IntRange):
    """A whole number between limits, called so where a text is none."""

    name = "number"


class _ShapeCommand(ManualCommand):
    """A command whose first argument is a shape: 4096x4096x4096, or 4096 4096 4096; a type may come before it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from tilescope.data_type import DataType

        is_type_first = len(args) > 1 and args[1][:1].isdecimal() and not is_file(args[0]) and DataType.knows(args[0])
        named, rest = (args[:1], args[1:]) if is_type_first else ([], args)
        extents = list(takewhile(str.isdecimal, rest)) or rest[:1]
        args = ["x".join(extents), *named, *rest[len(extents) :]] if extents else args
        return super().parse_args(ctx, args)


def click_command(question: Question, gather: Gather | None) -> click.Command:
    """The command of a question: its inputs as arguments and options, and --quiet, --json, --svg FILE, --out FILE.

    Omitted options are not passed on: the library has their defaults. `gather` reads the files that were named.
    """

    def ask(
        *,
        as_json: bool,
        is_quiet: bool,
        svg_path: Path | None = None,
        out_path: Path | None = None,
        **said: object,
    ) -> int:
        output = Output(as_json, svg_path, out_path, is_quiet)
        output.require_one_on_stdout()
        with saying_arguments(as_python if as_json else as_options(question.inputs)):
            asked = asked_by(question.inputs, said)
            if svg_path is not None:
                asked = asked.saying(svg=True)
            try:
                answer = question.answer(asked if gather is None else gather(asked, output))
            except MisuseError as error:
                raise click.UsageError(str(error)) from None
            return show_all(question, asked, answer, output)

    starts_with_shape = bool(question.inputs) and question.inputs[0].read in (tile, tile_or_name, product)
    kind: type[ManualCommand] = _ShapeCommand if starts_with_shape else ManualCommand
    if any(row.name == PROGRAM_ARGUMENTS for row in question.inputs):
        kind = ProgramCommand
    return kind(
        question.name.split()[-1],
        callback=ask,
        params=[
            *parameters(question.inputs, question.functions),
            *output_options(is_drawn=question.is_drawn, makes=question.makes),
        ],
        help=cleandoc(question.help),
        short_help=question.summary or None,
    )


def show_all(question: Question, asked: Asked, answer: Answer, output: Output) -> int:
    """Write what a question makes, its program or its bytes, and show its answer."""
    if answer.program is not None:
        program_path: Path = asked.get("path", STDOUT)
        if output.is_quiet and program_path == STDOUT:
            raise click.UsageError("--quiet and --emit both write to stdout; give --emit a file with -o.")
        write_to(program_path, answer.program.encode())
        write_files(answer.files)
        return show(answer, output) if output.is_quiet else 0
    if output.out_path is not None:
        if answer.made is None:
            raise click.UsageError(question.makes_if)
        write_to(output.out_path, answer.made.content, answer.made.note)
    write_files(answer.files)
    return show(answer, output)


def write_files(files: Iterable[MadeFile]) -> None:
    """Write the files of an answer, and create their folders."""
    for name, file in files:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        write_to(Path(name), file.content, file.note)


def asked_by(inputs: Iterable[Input], said: Mapping[str, object]) -> Asked:
    """The values of a command line, in order: click has None, False or () for omitted ones."""
    may_repeat = {row.name: row.is_many for row in inputs}
    values: dict[str, object] = {}
    for name, value in said.items():
        is_unsaid = value is None or value is False or (may_repeat[name] and value == ())
        if not is_unsaid:
            values[name] = value
    return Asked(values)


def parameters(inputs: Iterable[Input], functions: Iterable[Function]) -> list[click.Parameter]:
    """The arguments and options of a table; the signatures of the functions have the defaults."""
    listed: list[click.Parameter] = []
    for row in inputs:
        if row.option:
            listed.append(_option(row, default_of(row, functions)))
        else:
            listed.append(_argument(row))
    return listed


def output_options(*, is_drawn: bool = True, makes: str = "") -> list[click.Parameter]:
    """--quiet, --json, --svg for what is drawn, and --out for what a command makes."""
    options = [
        click.Option(
            ["-q", "--quiet", "is_quiet"],
            is_flag=True,
            help="Print only the first line: the result, and the fix if the result is negative.",
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="Print JSON instead of a drawing."),
    ]
    if is_drawn:
        options.append(_file_option("--svg", "svg_path", "Also write the drawing as SVG; - is stdout."))
    if makes:
        options.append(_file_option("--out", "out_path", makes))
    return [*options]


def _file_option(option: str, name: str, help_text: str) -> click.Option:
    return click.Option([option, name], type=output_file, metavar="FILE", help=help_text)


def _option(row: Input, default: str) -> click.Option:
    if row.read is flag:
        return click.Option([row.option, row.name], is_flag=True, help=row.help(default))
    return click.Option(
        [*row.option.split(), row.name],
        type=_type_of(row),
        metavar=row.metavar,
        help=row.help(default),
        multiple=row.is_many,
        required=row.is_required is True,
        shell_complete=_completion_of(row),
    )


def _argument(row: Input) -> click.Argument:
    is_required = row.is_required is not False
    metavar = row.shown_as or (row.metavar if row.choices else None)
    return click.Argument(
        [row.name],
        type=_type_of(row),
        metavar=metavar,
        nargs=-1 if row.is_many else 1,
        required=is_required,
        shell_complete=_completion_of(row),
    )


def _type_of(row: Input) -> click.Path | click.IntRange | Reader:
    if row.file:
        return FILE_TYPES[row.file]
    if row.is_strict:
        return one_of(row.choices)
    if row.least is not None:
        return Number(row.least)
    return str if row.read is str else click_reader(row.read)


def _completion_of(row: Input) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """What a shell may complete a value to: the names that begin with what is typed."""

    def complete(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[str]:
        names = row.choices if row.completed is None else row.completed()
        return [name for name in names if name.casefold().startswith(typed.casefold())]

    return complete
