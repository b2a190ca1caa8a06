"""A grid: cells under headers, rows with labels. Every table of chunks, banks, lanes or elements is one.

                bank   0  4  8 12 16 20 24 28      a tier of headers
    line  byte chunk   0  1  2  3  4  5  6  7      another; `line` and `byte` name the labels
       0  0x00         0  1  2  3  4  5  6  7      a row: two labels, eight cells
       1  0x80         1  0  3  2  5  4  7  6

A grid says what is where, not how it looks: `terminal` prints it, `svg_document` draws it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from math import ceil
from typing import NamedTuple, TypeVar

from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES
from tilescope.view.palette import Mark, Tint

BANK_BYTES = 4
Text = TypeVar("Text")


def number_span(first: int, last: int, between: str = "-") -> str:
    """Numbers from `first` to `last` in short.

    >>> number_span(0, 3), number_span(7, 7)
    ('0-3', '7')
    """
    return f"{first}{between}{last}" if last > first else str(first)


def extent(first: int, length: int, between: str = "-") -> str:
    """The `length` numbers from `first` on, in short.

    >>> extent(8, 8), extent(7, 1)
    ('8-15', '7')
    """
    return number_span(first, first + length - 1, between)


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Neighbouring numbers as first and last.

    >>> runs([0, 1, 2, 5])
    [(0, 2), (5, 5)]
    """
    gathered: list[tuple[int, int]] = []
    for number in numbers:
        first = gathered.pop()[0] if gathered and number == gathered[-1][1] + 1 else number
        gathered.append((first, number))
    return gathered


def holding(texts: Mapping[Text, object]) -> list[Text]:
    """The texts whose condition holds.

    >>> holding({"always": True, "never": 0})
    ['always']
    """
    return [text for text, holds in texts.items() if holds]


def drawn_of(shown: Iterable[int], whole: Iterable[int], nouns: Iterable[str]) -> tuple[str, ...]:
    """The note below a grid that is cut; none if all is drawn.

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
    colour: Tint = None
    mark: Mark = ""
    title: str = ""
    span: int = 1  # columns it covers
    link: str = ""  # words, separated by blanks


@dataclass(frozen=True, slots=True)
class Header:
    """What stands above `span` columns; a terminal prints `short`, if there is one."""

    text: str
    span: int = 1
    short: str = ""

    @classmethod
    def of_numbers(cls, first: int, length: int) -> Header:
        """The header over numbers, of which a terminal prints the first.

        >>> Header.of_numbers(4, 4)
        Header(text='4-7', span=1, short='4')
        """
        return cls(extent(first, length), short=str(first))


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
        return cls(name, tuple(text if isinstance(text, Header) else Header(str(text), span) for text in texts))


@dataclass(frozen=True, slots=True)
class Row:
    """A row of cells behind its labels; `ruled` draws a line above it, where a pattern starts again."""

    labels: tuple[str, ...]
    cells: tuple[Cell, ...]
    ruled: bool = False


Down = TypeVar("Down")
Across = TypeVar("Across")


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

    @classmethod
    def of(
        cls,
        title: str,
        names: tuple[str, ...],
        rows: Mapping[Down, str | tuple[str, ...]] | Iterable[Down],
        columns: Mapping[Across, object] | Iterable[Across],
        cell: Callable[[Down, Across], Cell],
        *,
        rule_every: int = 0,
        outer: tuple[Tier, ...] = (),
        notes: Iterable[str] = (),
        most: tuple[int | None, int | None] = (None, None),
        nouns: tuple[str, str] = ("rows", "columns"),
    ) -> Grid:
        """The grid of `cell(row, column)`; a mapping says what the labels and headers read, else they are the numbers.

        `names` are those of a row's labels, then that of the columns. A rule stands above rows that are multiples of
        `rule_every`, the first left out; `outer` tiers stand above the headers. At most `most` rows and columns are drawn.

        >>> grid = Grid.of("Sums", ("row", "k"), range(9), {0: "0-7", 8: "8-15"}, lambda a, b: Cell(str(a + b)), most=(2, None))
        >>> [cell.text for cell in grid.rows[1].cells], grid.notes
        (['1', '9'], ('Drawn: 2 of 9 rows.',))
        """
        down = rows if isinstance(rows, Mapping) else {row: str(row) for row in rows}
        across = columns if isinstance(columns, Mapping) else {column: column for column in columns}
        shown = [*across][: most[1]]
        lines: list[Row] = []
        for row, label in [*down.items()][: most[0]]:
            ruled = bool(rule_every and lines and isinstance(row, int) and row % rule_every == 0)
            labels = (label,) if isinstance(label, str) else label
            lines.append(Row(labels, tuple(cell(row, column) for column in shown), ruled))
        cut = drawn_of((len(lines), len(shown)), (len(down), len(across)), nouns)
        tiers = (*outer, Tier.of(names[-1], (across[column] for column in shown)))
        return cls(title, tiers, tuple(lines), names[:-1], (*notes, *cut))

    def marked(self, links: Collection[str], mark: Mark = "focus") -> Grid:
        """The grid with a mark on the cells that bear one of the links.

        >>> grid = Grid("", (), (Row((), (Cell(link="a b"), Cell(link="c"))),)).marked({"b"})
        >>> [cell.mark for cell in grid.rows[0].cells]
        ['focus', '']
        """
        asked = {*links}
        rows = [
            replace(
                row,
                cells=tuple(replace(cell, mark=mark) if asked & {*cell.link.split()} else cell for cell in row.cells),
            )
            for row in self.rows
        ]
        return replace(self, rows=tuple(rows)) if links else self

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


def memory_grid(
    title: str,
    first: int,
    end: int,
    cell: Callable[[int], Cell],
    *,
    most: int | None = None,
    period: int = 0,
    numbered: bool = False,
    notes: tuple[str, ...] = (),
) -> Grid:
    """Shared memory by its lines of 128 bytes: eight chunks of 16 bytes, each under the four banks that hold it.

    The lines with bytes `first` to below `end`, at most `most` of them; `cell` draws the chunk at an address. A rule stands
    above every line that starts a pattern of `period` lines; `numbered` adds the numbers of the chunks.

    >>> grid = memory_grid("Two lines", 0x80, 0x110, lambda address: Cell(hex(address)))
    >>> grid.rows[1].labels, grid.rows[1].cells[2].text
    (('0x0100',), '0x120')
    """
    lines, chunks = range(first // SMEM_LINE_BYTES, -(-end // SMEM_LINE_BYTES)), range(0, SMEM_LINE_BYTES, CHUNK_BYTES)
    rows: list[Row] = []
    for line in lines[:most]:
        cells = tuple(cell(line * SMEM_LINE_BYTES + byte) for byte in chunks)
        ruled = bool(rows and period) and line % period == 0
        rows.append(Row((f"{line * SMEM_LINE_BYTES:#06x}",), cells, ruled))
    banks = Tier.of("bank", (Header.of_numbers(byte // BANK_BYTES, CHUNK_BYTES // BANK_BYTES) for byte in chunks))
    tiers = (banks, Tier.of("chunk", range(len(chunks)))) if numbered else (banks,)
    return Grid(title, tiers, tuple(rows), ("byte",), (*notes, *drawn_of((len(rows),), (len(lines),), ("lines",))))


def chunk_bytes(address: int) -> str:
    """The bytes and the banks of a chunk, for its tooltip.

    >>> chunk_bytes(0x90)
    'bytes 0x90 to 0x9f, banks 4-7'
    """
    banks = extent(address // BANK_BYTES % 32, CHUNK_BYTES // BANK_BYTES)
    return f"bytes {address:#x} to {address + CHUNK_BYTES - 1:#x}, banks {banks}"


Spanning = TypeVar("Spanning", Cell, Header)


def placed(items: tuple[Spanning, ...]) -> Iterator[tuple[int, Spanning]]:
    """Each cell or header with its first column.

    >>> [start for start, _ in placed((Cell(span=4), Cell(span=2), Cell()))]
    [0, 4, 6]
    """
    return zip(accumulate((item.span for item in items), initial=0), items, strict=False)


class Measure(NamedTuple):
    """How wide a grid's texts are on a canvas, in its characters or pixels."""

    label: Callable[[str], float]
    cell: Callable[[Cell], float]
    header: Callable[[Header], float]
    least: float  # of a column
    gap: float  # before a group of columns


class Columns(NamedTuple):
    """Where the labels and the columns of a grid lie."""

    label_widths: list[float]
    starts: list[float]  # from the first column on
    ends: list[float]

    @classmethod
    def of(cls, grid: Grid, measure: Measure) -> Columns:
        """All columns as wide as the widest text of one; those under a wider span share what it needs."""
        items = {(cell.span, start, measure.cell(cell)) for row in grid.rows for start, cell in placed(row.cells)}
        for tier in grid.tiers:
            items |= {(header.span, start, measure.header(header)) for start, header in placed(tier.headers)}
        widest = max((needed for span, _, needed in items if span == 1), default=0)
        widths = [ceil(max(widest, measure.least))] * grid.columns
        for span, start, needed in sorted(items):
            for column in range(start, start + span):
                missing = needed - sum(widths[start : start + span])
                widths[column] += max(0, ceil(missing / (start + span - column)))
        gaps = [measure.gap if column in grid.group_starts else 0 for column in range(grid.columns)]
        ends = list(accumulate(width + gap for width, gap in zip(widths, gaps, strict=True)))
        labelled = [row.labels for row in grid.rows] + ([grid.label_names] if grid.label_names else [])
        labels = [max(map(measure.label, texts)) for texts in zip(*labelled, strict=True)]
        return cls(labels, [end - width for end, width in zip(ends, widths, strict=True)], ends)

    def width(self, start: int, stop: int) -> float:
        """The width of columns `start` to below `stop`."""
        return self.ends[stop - 1] - self.starts[start]
