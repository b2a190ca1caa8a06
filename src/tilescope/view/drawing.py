"""A drawing: a title and named parts, described once and printed twice, as text and as SVG.

Drawing("Swizzle 32B", {"rule": "Chunk c …", "grids": Beside({…}), "facts": Table({"repeats": "every 256 bytes"})})
    .text(width=100)     → for a terminal, a log, a docstring
    .svg()               → a standalone document for a browser or a notebook
    ["facts"]            → one part, also one of those that stand beside each other
    .without("facts")    → the drawing with less,
    .with_parts({…})     → with more,
    .figures()           → and with nothing but what is drawn: no sentences, no tables

`text_lines` makes the text, `svg_document` the SVG.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from tilescope.view.drawing_parts import Beside, Entry, Legend, NamedParts, Part, Parts, named_parts
from tilescope.view.grid import Grid
from tilescope.view.palette import colour_of
from tilescope.view.ruler import BitRuler
from tilescope.view.table import Table
from tilescope.view.text_lines import Line, lines_of, plain_line, stack_blocks, wrap_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

__all__ = ["Beside", "Drawing", "Entry", "Legend", "Part", "Table"]
DEFAULT_WIDTH = 80


@dataclass(frozen=True, init=False)
class Drawing:
    """A title and the parts below it, by name; None, tables without rows and empty strings are left out.

    >>> drawing = Drawing("A line", {"size": "is 128 bytes: `32` banks of 4.", "notes": None})
    >>> print(drawing.text())
    A line
    <BLANKLINE>
    is 128 bytes: 32 banks of 4.
    >>> drawing["size"]
    'is 128 bytes: `32` banks of 4.'
    """

    title: str
    named: NamedParts  # names and parts from top to bottom

    def __init__(self, title: str, parts: Parts) -> None:
        object.__setattr__(self, "title", title)
        object.__setattr__(self, "named", _unwrap_single(named_parts(parts)))

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts from top to bottom."""
        return tuple(part for _, part in self.named)

    def __getitem__(self, name: str) -> Part:
        """The part of that name, also among parts side by side; the first if several have it."""
        for own_name, part in self.named:
            beside = part.named if isinstance(part, Beside) else ()
            for inner_name, inner in ((own_name, part), *beside):
                if inner_name == name:
                    return inner
        raise KeyError(name)

    def without(self, *names: str) -> Drawing:
        """The drawing without the parts of these names.

        >>> Drawing("Two", {"a": "one", "b": "two"}).without("a").parts
        ('two',)
        """
        return self._over((name, part) for name, part in self.named if name not in names)

    def with_parts(self, parts: Parts) -> Drawing:
        """The drawing with more parts at its end.

        >>> Drawing("Two", {"a": "one", "b": "two"}).with_parts({"c": "more"}).parts
        ('one', 'two', 'more')
        """
        return self._over((*self.named, *named_parts(parts)))

    def figures(self) -> Drawing:
        """Only the grids, the bit rulers and their explanations (legends, and the sentence named "key").

        >>> Drawing("A word", {"said": "It is 0.", "ruler": BitRuler("", ())}).figures().parts
        (BitRuler(title='', fields=(), bits=64, row_bits=64, notes=()),)
        """
        drawn: list[tuple[str, Part]] = []
        for name, part in self.named:
            if isinstance(part, Beside):
                pictures = {
                    inner: inner_part for inner, inner_part in part.named if isinstance(inner_part, Grid | BitRuler)
                }
                drawn.append((name, Beside(pictures)))
            elif isinstance(part, Grid | BitRuler | Legend) or name == "key":
                drawn.append((name, part))
        return self._over(drawn)

    def mapped(self, change: Callable[[Part], Part]) -> Drawing:
        """The drawing with `change` applied to every part, in order; parts side by side one by one.

        >>> Drawing("Two", {"a": "one", "b": "two"}).mapped(lambda part: part * 2).parts
        ('oneone', 'twotwo')
        """
        changed: list[tuple[str, Part]] = []
        for name, part in self.named:
            if isinstance(part, Beside):
                grouped: dict[str, tuple[Part, ...]] = {}
                for inner, inner_part in part.named:
                    grouped[inner] = (*grouped.get(inner, ()), change(inner_part))
                changed.append((name, Beside(grouped)))
            else:
                changed.append((name, change(part)))
        return self._over(changed)

    def _over(self, named: Iterable[tuple[str, Part]]) -> Drawing:
        """The same title over other parts."""
        drawing = Drawing(self.title, {})
        object.__setattr__(drawing, "named", _unwrap_single(named))
        return drawing

    def lines(self, width: int = DEFAULT_WIDTH) -> list[Line]:
        """The drawing as lines of tinted spans."""
        return stack_blocks([wrap_text(self.title, width, "title"), *(lines_of(part, width) for part in self.parts)])

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


def _unwrap_single(named: Iterable[tuple[str, Part]]) -> NamedParts:
    """Parts; one without a neighbour is not wrapped."""
    unwrapped: list[tuple[str, Part]] = []
    for name, part in named:
        if isinstance(part, Beside) and len(part.named) < 2:
            unwrapped += part.named
        else:
            unwrapped.append((name, part))
    return tuple(unwrapped)
