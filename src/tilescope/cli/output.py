"""What a command prints: the drawing of a value, or the value as JSON; bars for work that takes long."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilescope import view
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
