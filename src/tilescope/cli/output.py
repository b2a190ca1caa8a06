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
from tilescope.errors import broken

if TYPE_CHECKING:
    from tilescope.value import Value
    from tilescope.view.drawing import Drawing

STDOUT = Path("-")


@dataclass(frozen=True, slots=True)
class Output:
    """Where a command's value goes, as its --json and --svg options say."""

    as_json: bool = False
    svg_path: Path | None = None

    def show(
        self,
        value: Value,
        drawing: Drawing | None = None,
        extra: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Print `value` as JSON or drawn, and write its SVG where one was asked for.

        `options` go to the drawing function of its kind; a value drawn otherwise brings its `drawing`.
        `extra` joins the value's own plain data in JSON.
        """
        drawn = drawing or view.draw(value, **options)
        if self.as_json:
            click.echo(json.dumps(value.to_dict() | (extra or {}), indent=2))
        elif self.svg_path != STDOUT:
            click.echo(repr(value)) if drawn is None else print_drawing(drawn)
        if self.svg_path is not None:
            if drawn is None:
                raise broken("drawing", "--svg", f"a {value.kind}", "it has no drawing", "Leave --svg out.")
            self._write(drawn.svg())

    def _write(self, svg: str) -> None:
        if self.svg_path == STDOUT:
            click.echo(svg, nl=False)
        elif self.svg_path is not None:
            self.svg_path.write_text(svg, encoding="utf-8")
            click.echo(f"wrote {self.svg_path}", err=True)


def print_drawing(drawing: Drawing) -> None:
    """Print a drawing as wide as the terminal, in colour where it is one."""
    width = shutil.get_terminal_size().columns
    if not wants_colour():
        click.echo(drawing.text(width))
        return
    from rich.console import Console

    Console(width=width, highlight=False).print(drawing)


def wants_colour() -> bool:
    """Whether stdout is a terminal that takes colours, and the user did not refuse them with NO_COLOR."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()
