"""A drawing: a title and parts, described once and printed twice, as text and as SVG.

Drawing("Swizzle 32B", ["Chunk c …", Beside((logical, physical)), Table({"repeats": "every 256 bytes"})])
    .text(width=100)   → for a terminal, a log, a docstring
    .svg()             → a standalone document for a browser or a notebook
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from tilescope.view.palette import colour_of
from tilescope.view.parts import Beside, Part
from tilescope.view.terminal import Line, lines_of, plain_line, stacked, wrapped

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

DEFAULT_WIDTH = 80


@dataclass(frozen=True, slots=True, init=False)
class Drawing:
    """A title and the parts below it; None, tables without rows and empty strings are left out.

    >>> print(Drawing("A line", ["is 128 bytes: `32` banks of 4.", None]).text())
    A line
    <BLANKLINE>
    is 128 bytes: 32 banks of 4.
    """

    title: str
    parts: tuple[Part, ...]

    def __init__(self, title: str, parts: Iterable[Part | None]) -> None:
        alone = [part.parts[0] if isinstance(part, Beside) and len(part.parts) == 1 else part for part in parts]
        object.__setattr__(self, "title", title)
        object.__setattr__(self, "parts", tuple(part for part in alone if part))

    def lines(self, width: int = DEFAULT_WIDTH) -> list[Line]:
        """The drawing as lines of tinted spans."""
        return stacked([wrapped(self.title, width, "title"), *(lines_of(part, width) for part in self.parts)])

    def text(self, width: int = DEFAULT_WIDTH) -> str:
        """The drawing as text of at most `width` columns, without colour."""
        return "\n".join(map(plain_line, self.lines(width)))

    def svg(self) -> str:
        """The drawing as a standalone SVG document."""
        from tilescope.view.svg_document import document

        return document(self.title, self.parts)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """The drawing in colour, in as many of them as the terminal has."""
        from rich.text import Text

        for line in self.lines(options.max_width):
            text = Text(no_wrap=True, overflow="ignore")
            for style, spans in groupby(line, lambda span: colour_of(span.tint).terminal):
                text.append("".join(span.text for span in spans), style)
            yield text
