"""A drawing: a title and parts, described once and rendered twice, as text and as SVG.

Drawing("Swizzle 32B", (Beside((logical, physical)), facts))
    .text(width=100)   → for a terminal, a log, a docstring
    .svg()             → a standalone document for a browser or a notebook
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from tilescope.view.palette import colour_of
from tilescope.view.parts import Part
from tilescope.view.spans import Line, ansi_line, plain_line, wrapped
from tilescope.view.terminal import lines_of, stacked

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

DEFAULT_WIDTH = 80


@dataclass(frozen=True, slots=True)
class Drawing:
    """A title and the parts below it.

    >>> from tilescope.view.parts import Paragraph
    >>> print(Drawing("A line", (Paragraph("is 128 bytes: `32` banks of 4."),)).text())
    A line
    <BLANKLINE>
    is 128 bytes: 32 banks of 4.
    """

    title: str
    parts: tuple[Part, ...]

    def lines(self, width: int = DEFAULT_WIDTH) -> list[Line]:
        """The drawing as lines of tinted spans."""
        return stacked([wrapped(self.title, width, "title"), *(lines_of(part, width) for part in self.parts)])

    def text(self, width: int = DEFAULT_WIDTH, *, colour: bool = False) -> str:
        """The drawing as text of at most `width` columns; with `colour`, in 24-bit ANSI escapes."""
        return "\n".join(map(ansi_line if colour else plain_line, self.lines(width)))

    def svg(self) -> str:
        """The drawing as a standalone SVG document."""
        from tilescope.view.svg_document import document

        return document(self.title, self.parts)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        for line in self.lines(options.max_width):
            text = Text(no_wrap=True, overflow="ignore")
            for style, spans in groupby(line, lambda span: colour_of(span.tint).terminal):
                text.append("".join(span.text for span in spans), style)
            yield text
