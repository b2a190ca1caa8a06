"""A grid: cells under headers, rows with labels. Every table of chunks, banks, lanes or elements is one.

                bank   0  4  8 12 16 20 24 28      a tier of headers
    line  byte chunk   0  1  2  3  4  5  6  7      another; `line` and `byte` name the labels
       0  0x00         0  1  2  3  4  5  6  7      a row: two labels, eight cells
       1  0x80         1  0  3  2  5  4  7  6

A grid says what is where, not how it looks: `terminal` prints it, `svg` draws it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from math import ceil
from typing import NamedTuple, TypeVar

from tilescope.view.palette import Mark, Tint

BANK_BYTES = 4


def number_span(first: int, last: int, between: str = "-") -> str:
    """Numbers from `first` to `last` in short.

    >>> number_span(0, 3), number_span(7, 7)
    ('0-3', '7')
    """
    return f"{first}{between}{last}" if last > first else str(first)


def drawn_of(shown: Iterable[int], whole: Iterable[int], nouns: Iterable[str]) -> tuple[str, ...]:
    """The note below a grid that is cut; none where all is drawn.

    >>> drawn_of((16, 8), (64, 8), ("rows", "columns"))
    ('Drawn: 16 of 64 rows.',)
    """
    cut = [f"{some} of {every} {noun}" for some, every, noun in zip(shown, whole, nouns, strict=True) if some < every]
    return (f"Drawn: {' and '.join(cut)}.",) if cut else ()


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: short text, a colour (chunk number or role), a mark, and a sentence for the tooltip.

    Cells of one drawing that show the same thing share a word of `link`: a page that knows the mouse marks them all.

    >>> Cell("3", 3, title="line 0, chunk 3")
    Cell(text='3', colour=3, mark='', title='line 0, chunk 3', span=1, link='')
    """

    text: str = ""
    colour: Tint | None = None
    mark: Mark = ""
    title: str = ""
    span: int = 1  # columns it covers
    link: str = ""  # words, separated by blanks


@dataclass(frozen=True, slots=True)
class Header:
    """What stands above `span` columns; a terminal prints `short` where it is given."""

    text: str
    span: int = 1
    short: str = ""


@dataclass(frozen=True, slots=True)
class Tier:
    """One line of headers with its name, such as "bank" or "chunk".

    >>> Tier.of("chunk", range(2), span=4).headers
    (Header(text='0', span=4, short=''), Header(text='1', span=4, short=''))
    """

    name: str
    headers: tuple[Header, ...]

    @classmethod
    def of(cls, name: str, texts: Iterable[object], *, span: int = 1) -> Tier:
        """A tier of equally wide headers."""
        return cls(name, tuple(Header(str(text), span) for text in texts))

    @classmethod
    def of_ranges(cls, name: str, count: int, length: int) -> Tier:
        """A tier of `count` headers for `length` numbers each, of which a terminal prints the first.

        >>> Tier.of_ranges("bank", 2, 4).headers
        (Header(text='0-3', span=1, short='0'), Header(text='4-7', span=1, short='4'))
        """
        firsts = range(0, count * length, length)
        return cls(name, tuple(Header(number_span(first, first + length - 1), short=str(first)) for first in firsts))


@dataclass(frozen=True, slots=True)
class Row:
    """A row of cells behind its labels; `ruled` draws a line above it, where a pattern starts again."""

    labels: tuple[str, ...]
    cells: tuple[Cell, ...]
    ruled: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of cells under tiers of headers, with a title above and notes below."""

    title: str
    tiers: tuple[Tier, ...]
    rows: tuple[Row, ...]
    label_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for tier in self.tiers:
            assert sum(header.span for header in tier.headers) == self.columns, (self.title, tier.name)
        for row in self.rows:
            assert sum(cell.span for cell in row.cells) == self.columns, (self.title, row.labels)
            assert len(row.labels) == len(self.rows[0].labels), (self.title, row.labels)
        assert not self.label_names or not self.rows or len(self.label_names) == len(self.rows[0].labels)

    @property
    def columns(self) -> int:
        """How many columns every row and tier covers."""
        if self.rows:
            return sum(cell.span for cell in self.rows[0].cells)
        return sum(header.span for header in self.tiers[-1].headers) if self.tiers else 0

    @property
    def group_starts(self) -> frozenset[int]:
        """Columns where a group of the outermost tier begins, the first left out: a little space goes there."""
        if not self.tiers or all(header.span == 1 for header in self.tiers[0].headers):
            return frozenset()
        return frozenset(start for start, _ in placed(self.tiers[0].headers)) - {0}


Spanning = TypeVar("Spanning", Cell, Header)


def placed(items: tuple[Spanning, ...]) -> Iterator[tuple[int, Spanning]]:
    """Each cell or header with its first column.

    >>> [start for start, _ in placed((Cell(span=4), Cell(span=2), Cell()))]
    [0, 4, 6]
    """
    start = 0
    for item in items:
        yield start, item
        start += item.span


class Measure(NamedTuple):
    """How wide a grid's texts are on a canvas, in its characters or pixels."""

    label: Callable[[str], float]
    cell: Callable[[Cell], float]
    header: Callable[[Header], float]
    least: float  # of a column
    gap: float  # before a group of columns
    share: Callable[[float, int], float]  # what the first of some columns takes of a width that they lack


class Columns(NamedTuple):
    """Where the labels and the columns of a grid lie."""

    label_widths: list[float]
    starts: list[float]  # from the first column on
    ends: list[float]

    @classmethod
    def of(cls, grid: Grid, measure: Measure) -> Columns:
        """All columns as wide as the widest text of one; those under a wider span share what it needs."""
        items = {(cell.span, start, measure.cell(cell)) for row in grid.rows for start, cell in placed(row.cells)}
        items |= {
            (each.span, start, measure.header(each)) for tier in grid.tiers for start, each in placed(tier.headers)
        }
        widest = max((needed for span, _, needed in items if span == 1), default=0)
        widths = [max(widest, measure.least)] * grid.columns
        for span, start, needed in sorted(items):
            for column in range(start, start + span):
                missing = needed - sum(widths[start : start + span])
                widths[column] += measure.share(missing, start + span - column) if missing > 0 else 0
        widths = [ceil(width) for width in widths]
        gaps = [measure.gap if column in grid.group_starts else 0 for column in range(grid.columns)]
        ends = list(accumulate(width + gap for width, gap in zip(widths, gaps, strict=True)))
        labelled = [row.labels for row in grid.rows] + ([grid.label_names] if grid.label_names else [])
        labels = [max(map(measure.label, texts)) for texts in zip(*labelled, strict=True)]
        return cls(labels, [end - width for end, width in zip(ends, widths, strict=True)], ends)

    def width(self, start: int, stop: int) -> float:
        """The width of columns `start` to below `stop`."""
        return self.ends[stop - 1] - self.starts[start]
