"""The options and argument types that commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeAlias, overload

import click

from tilescope.cli.output import Output
from tilescope.errors import shortened

Command: TypeAlias = Callable[..., Any]


def number(text: str) -> int:
    """An integer as people write it: 1024, 0x400, 0b1000, 1_024. For `type=` of an option or argument.

    >>> number("0x400"), number("1_024"), number("-16")
    (1024, 1024, -16)
    """
    try:
        return int(text, 10 if text.strip().lstrip("+-").isdecimal() else 0)
    except ValueError:
        raise click.BadParameter(f"{shortened(text, 40)!r} is not a number; write 1024, 0x400 or 1_024.") from None


def address(text: str) -> int:
    """A byte address: a number of at least 0."""
    found = number(text)
    if found < 0:
        raise click.BadParameter(f"{shortened(text, 40)} is negative; addresses start at 0.")
    return found


def extents(text: str) -> tuple[int, ...]:
    """Extents as people write a tile or a shape: 128x64, 4096x4096x4096.

    >>> extents("128x64"), extents("4096 x 4096 x 64")
    ((128, 64), (4096, 4096, 64))
    """
    if re.fullmatch(r"\s*\d{1,12}(\s*[xX*,]\s*\d{1,12})+\s*", text) is None:
        raise click.BadParameter(f"{shortened(text, 40)!r} is not a shape; write 128x64.")
    return tuple(int(piece) for piece in re.findall(r"\d+", text))


def svg_file(text: str) -> Path:
    """A file to write a drawing to; "-" is stdout."""
    path = Path(text)
    if path.is_dir():
        raise click.BadParameter(f"{text!r} is a directory; name a file in it, such as {path / 'drawing.svg'}.")
    if not path.parent.is_dir():
        raise click.BadParameter(f"there is no directory {str(path.parent)!r} to write {path.name!r} to.")
    return path


@overload
def output_options(command: Command) -> Command: ...
@overload
def output_options(*, svg: bool) -> Callable[[Command], Command]: ...
def output_options(command: Command | None = None, *, svg: bool = True) -> Command | Callable[[Command], Command]:
    """Give a command --json and --svg FILE; it receives them as one argument, `output`.

    `@output_options(svg=False)` leaves --svg out, for commands that draw nothing.
    """
    if command is None:
        return lambda command: _with_output(command, svg)
    return _with_output(command, svg)


def _with_output(command: Command, svg: bool) -> Command:
    @wraps(command)
    def with_output(*args: Any, as_json: bool, svg_path: Path | None = None, **options: Any) -> Any:
        return command(*args, output=Output(as_json, svg_path), **options)

    wrapped: Command = with_output
    if svg:
        saying = "Also write the drawing as SVG; - is stdout."
        wrapped = click.option("--svg", "svg_path", type=svg_file, metavar="FILE", help=saying)(wrapped)
    saying = "Print the value as JSON instead of a drawing."
    return click.option("--json", "as_json", is_flag=True, help=saying)(wrapped)
