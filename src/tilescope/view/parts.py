"""What stands around the grids of a drawing: paragraphs, tables, legends, and parts side by side.

Text may hold code between backticks: an SVG sets it in a monospaced font, a terminal in colour. The
backticks themselves are not printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from tilescope.view.grid import Grid
from tilescope.view.palette import Mark, Tint
from tilescope.view.ruler import BitRuler


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Sentences, wrapped to the width at hand."""

    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text; the last column wraps. Without headings it is a list of facts, the first column their names.

    `align` has one letter a column, "l" or "r"; columns beyond it are left-aligned.
    """

    rows: tuple[tuple[str, ...], ...]
    headings: tuple[str, ...] = ()
    title: str = ""
    align: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert len({len(row) for row in (*self.rows, self.headings) if row}) <= 1, (self.title, self.headings)

    @classmethod
    def numbered(cls, sentences: Iterable[object], title: str) -> Table:
        """Sentences below each other, counted from 1."""
        return cls(tuple((str(number), str(each)) for number, each in enumerate(sentences, 1)), title=title)

    @property
    def columns(self) -> int:
        """How many columns it has."""
        return len(self.headings or (self.rows[0] if self.rows else ()))

    def names(self, row: tuple[str, ...], column: int) -> bool:
        """Whether a cell is a heading, or names the fact beside it."""
        return row is self.headings or (column == 0 and not self.headings and self.columns > 1)

    def right(self, column: int) -> bool:
        """Whether a column is aligned at its right edge."""
        return self.align[column : column + 1] == "r"


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a legend: a swatch and what it stands for."""

    text: str
    colour: Tint | None = None
    mark: Mark = ""
    sample: str = ""  # what the swatch itself says


@dataclass(frozen=True, slots=True)
class Legend:
    """What the colours and marks of a drawing mean."""

    entries: tuple[Entry, ...]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Beside:
    """Parts next to each other; a terminal puts those that no longer fit below the others."""

    parts: tuple[Part, ...]


Part: TypeAlias = Grid | BitRuler | Paragraph | Table | Legend | Beside
Word: TypeAlias = tuple[tuple[str, bool], ...]  # pieces that stay together, each with whether it is code


def words(text: str) -> list[Word]:
    """The words of a text; code between backticks keeps its spaces and its neighbours.

    >>> words("Use `a ^ b`, not (`f`).")[:2]
    [(('Use', False),), (('a ^ b', True), (',', False))]
    """
    found: list[Word] = []
    glued = False
    for number, piece in enumerate(re.split("`([^`]*)`", text)):
        is_code = number % 2 == 1
        pieces = [piece] if is_code else piece.split()
        for position, word in enumerate(pieces):
            if found and position == 0 and glued and not piece[:1].isspace():
                found[-1] = (*found[-1], (word, is_code))
            else:
                found.append(((word, is_code),))
        glued = bool(piece) and not piece[-1].isspace()
    return found


Item = TypeVar("Item")


def packed(items: Iterable[tuple[float, Item]], width: float, gap: float) -> list[tuple[float, list[Item]]]:
    """Items of known width in lines of known width: a line takes what fits `width`, `gap` apart, and at least one.

    >>> packed([(3, "one"), (3, "two"), (5, "three")], width=8, gap=1)
    [(7, ['one', 'two']), (5, ['three'])]
    """
    lines: list[tuple[float, list[Item]]] = []
    for wide, item in items:
        if lines and lines[-1][0] + gap + wide <= width:
            lines[-1] = lines[-1][0] + (gap + wide), [*lines[-1][1], item]
        else:
            lines.append((wide, [item]))
    return lines


def word_length(word: Word) -> int:
    """Characters of a word, without its backticks."""
    return sum(len(piece) for piece, _ in word)


def plain(text: str) -> str:
    """The text without its backticks."""
    return text.replace("`", "")
