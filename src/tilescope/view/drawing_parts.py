"""The parts of a drawing: grids, bit rulers, tables, legends, parts side by side, and sentences, which are strings.

Parts have names, by which a page asks for one. Strings may hold code between backticks: an SVG sets it in a
monospaced font, a terminal in colour. The backticks themselves are not printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from tilescope.view.grid import Grid
from tilescope.view.palette import Mark, Tint

if TYPE_CHECKING:
    from tilescope.view.ruler import BitRuler

_CODE = re.compile("`([^`]*)`")
_WORD = re.compile(r"(?:`[^`]*`|\S)+")
Item = TypeVar("Item")


def _cell_text(value: object) -> str:
    return "-" if value is None else str(value)


class TableText(NamedTuple):
    """A text of a table, and whether it is a heading or names the fact beside it."""

    text: str
    is_name: bool = False


@dataclass(frozen=True, init=False)
class Table:
    """Rows of text; the last column wraps. Without headings it is a list of facts, the first column their names.

    Rows hold whatever can be printed, "-" for None; a dictionary gives facts, of which empty ones are left out. `align`
    has one letter a column, "l" or "r"; columns beyond it are left-aligned. Rows beyond `most` are counted in a note.

    >>> Table({"copies": 4, "note": ""}).rows
    (('copies', '4'),)
    >>> Table(([k] for k in range(9)), ["k"], most=2, noun="steps").notes
    ('The first 2 of 9 steps.',)
    """

    rows: tuple[tuple[str, ...], ...]
    headings: tuple[str, ...]
    title: str
    align: str
    notes: tuple[str, ...]

    def __init__(
        self,
        rows: Mapping[str, object] | Iterable[Iterable[object]],
        headings: Iterable[str] = (),
        title: str = "",
        align: str = "",
        notes: Iterable[str] = (),
        *,
        most: int | None = None,
        noun: str = "rows",
    ) -> None:
        if isinstance(rows, Mapping):
            rows = [(name, said) for name, said in rows.items() if said != ""]
        cells = tuple(tuple(map(_cell_text, row)) for row in rows)
        if most is not None and len(cells) > most:
            notes = (*notes, f"The first {most} of {len(cells)} {noun}.")
        headed = tuple(headings)
        columns = len(headed)
        if not headed and cells:
            columns = len(cells[0])
        object.__setattr__(self, "rows", cells[:most])
        object.__setattr__(self, "headings", headed)
        object.__setattr__(self, "title", title)
        object.__setattr__(self, "align", align.ljust(columns, "l"))
        object.__setattr__(self, "notes", tuple(notes))

    @classmethod
    def of(
        cls,
        records: Iterable[Mapping[str, object]],
        title: str = "",
        align: str = "",
        *,
        notes: Iterable[str] = (),
        most: int | None = None,
        noun: str = "rows",
    ) -> Table:
        """A row for each record, under the names of its fields.

        >>> Table.of([{"stage": 0, "start": "0x400"}, {"stage": 1, "start": None}])
        Table(rows=(('0', '0x400'), ('1', '-')), headings=('stage', 'start'), title='', align='ll', notes=())
        """
        listed = [*records]
        headings = next(iter(listed), {})
        return cls((record.values() for record in listed), headings, title, align, notes, most=most, noun=noun)

    @classmethod
    def numbered(cls, sentences: Iterable[object], title: str) -> Table:
        """Sentences below each other, counted from 1."""
        return cls(enumerate(sentences, 1), title=title)

    def __bool__(self) -> bool:
        return bool(self.rows)

    def lines(self) -> list[list[TableText]]:
        """All rows, the headings first."""
        if self.headings:
            heading = [TableText(text, is_name=True) for text in self.headings]
            return [heading, *([TableText(text) for text in row] for row in self.rows)]
        has_names = len(self.align) > 1  # a list of facts: the first column names them
        return [
            [TableText(text, is_name=has_names and column == 0) for column, text in enumerate(row)] for row in self.rows
        ]


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a legend: a swatch and what it stands for."""

    text: str
    colour: Tint = None
    mark: Mark = ""
    sample: str = ""  # what the swatch itself says


@dataclass(frozen=True, slots=True)
class Legend:
    """What the colours and marks of a drawing mean."""

    entries: tuple[Entry, ...]
    title: str = ""


@dataclass(frozen=True, slots=True, init=False)
class Beside:
    """Parts next to each other, by name; a terminal puts those that no longer fit below the others.

    >>> Beside({"left": "one", "right": "two"}).parts
    ('one', 'two')
    """

    named: NamedParts

    def __init__(self, parts: Parts) -> None:
        object.__setattr__(self, "named", named_parts(parts))

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts from left to right."""
        return tuple(part for _, part in self.named)

    @property
    def is_dense(self) -> bool:
        """Whether cells are small in all its grids, so that lines beside each other are as high."""
        return any(isinstance(part, Grid) and part.is_dense for part in self.parts)


Part: TypeAlias = "str | Grid | BitRuler | Table | Legend | Beside"
NamedParts: TypeAlias = "tuple[tuple[str, Part], ...]"
Parts: TypeAlias = "Mapping[str, Part | tuple[Part | None, ...] | None]"


def named_parts(parts: Parts) -> NamedParts:
    """Parts with their names: a tuple is several parts of one name; None, empty strings and empty tables are left out.

    >>> named_parts({"rule": "Nothing moves.", "notes": ("One.", "Two."), "facts": None})
    (('rule', 'Nothing moves.'), ('notes', 'One.'), ('notes', 'Two.'))
    """
    named: list[tuple[str, Part]] = []
    for name, given in parts.items():
        several = given if isinstance(given, tuple) else (given,)
        named += [(name, part) for part in several if part]
    return tuple(named)


def words(text: str) -> list[str]:
    """The words of a text; code between backticks keeps its spaces and its neighbours.

    >>> words("Use `a ^ b`, not (`f`).")
    ['Use', '`a ^ b`,', 'not', '(`f`).']
    """
    return _WORD.findall(text)


def pieces(text: str) -> list[tuple[str, bool]]:
    """The text without its backticks, cut where code begins and ends, and whether a piece is code.

    >>> pieces("(`f`).")
    [('(', False), ('f', True), (').', False)]
    """
    return [(piece, number % 2 == 1) for number, piece in enumerate(_CODE.split(text)) if piece]


def plain(text: str) -> str:
    """The text without its backticks."""
    return text.replace("`", "")


def packed(items: Iterable[tuple[float, Item]], width: float, gap: float) -> list[tuple[float, list[Item]]]:
    """Items of known width in lines of known width: a line takes what fits `width`, `gap` apart, and at least one.

    >>> packed([(3, "one"), (3, "two"), (5, "three")], width=8, gap=1)
    [(7, ['one', 'two']), (5, ['three'])]
    """
    lines: list[tuple[float, list[Item]]] = []
    for item_width, item in items:
        if lines and lines[-1][0] + gap + item_width <= width:
            line_width, line = lines[-1]
            lines[-1] = (line_width + (gap + item_width), [*line, item])
        else:
            lines.append((item_width, [item]))
    return lines
