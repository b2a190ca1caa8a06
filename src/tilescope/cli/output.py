"""What a command prints: the drawing of a value, or the value as JSON."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilescope import view
from tilescope.value import EXTRA

if TYPE_CHECKING:
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
        self, value: Value, drawing: Drawing | None = None, extra: dict[str, Any] | None = None, **options: Any
    ) -> None:
        """Print `value` as JSON or drawn, and write its SVG where one was asked for.

        `options` go to the drawing function of its kind; a value drawn otherwise brings its `drawing`.
        `extra` stands beside the value's own plain data in JSON, under a key that `Value.from_dict` passes over.
        """
        if self.as_json:
            click.echo(json.dumps(value.to_dict() | ({EXTRA: extra} if extra else {}), indent=2))
            if self.svg_path is None:
                return
        drawn = drawing or view.draw(value, **options)
        if self.svg_path is not None and drawn is None:
            raise view.DRAWING.error("--svg", f"a {value.kind}", "it has no drawing", "Leave --svg out.")
        if not self.as_json and STDOUT not in (self.svg_path, self.out_path):
            click.echo(repr(value)) if drawn is None else print_drawing(drawn)
        if self.svg_path is not None and drawn is not None:
            _write(drawn.svg().encode(), self.svg_path)

    def write(self, content: bytes, saying: str = "") -> None:
        """Write the bytes that a command makes to --out, where it was given; `saying` goes to stderr with its name."""
        if self.out_path is not None:
            _write(content, self.out_path, saying)


def _write(content: bytes, path: Path, saying: str = "") -> None:
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
