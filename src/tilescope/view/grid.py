"""A grid: cells under headers, rows with labels. Every table of chunks, banks, lanes or elements is one.

                bank   0  4  8 12 16 20 24 28      a tier of headers
    line  byte chunk   0  1  2  3  4  5  6  7      another; `line` and `byte` name the labels
       0  0x00         0  1  2  3  4  5  6  7      a row: two labels, eight cells
       1  0x80         1  0  3  2  5  4  7  6

A grid has the contents and positions, not the appearance: `text_lines` prints it, `svg_grid` draws it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Self, TypeVar

from tilescope.view.number_span import extent
from tilescope.view.palette import Mark, Tint

_DENSE_COLUMNS = 24  # grids with more columns, or more rows than this, have small cells in an SVG
_DENSE_ROWS = 40


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: short text, a colour (chunk number or role), a mark, and a sentence for the tooltip.

    Cells of one drawing that show the same thing share a word of `link`: a page marks all of them when the mouse is
    over one.

    >>> Cell("3", 3, title="line 0, chunk 3")
    Cell(text='3', colour=3, mark='', title='line 0, chunk 3', span=1, link='', goes='')
    """

    text: str = ""
    colour: Tint = None
    mark: Mark = ""
    title: str = ""
    span: int = 1  # columns it covers
    link: str = ""  # words, separated by blanks
    goes: str = ""  # what a click writes into the field of the page that takes a place of the drawing


@dataclass(frozen=True, slots=True)
class Header:
    """A header above `span` columns; a terminal prints `short`, if there is one."""

    text: str
    span: int = 1
    short: str = ""

    @classmethod
    def of_numbers(cls, first: int, length: int) -> Self:
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
    def of(cls, name: str, texts: Iterable[object], *, span: int = 1) -> Self:
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
    column_width: float | None = None  # pixels in an SVG, which leaves out wider texts; None: as wide as texts need

    def __post_init__(self) -> None:
        assert len({*self._line_spans()}) <= 1, self.title

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
        ruled: Collection[Down] = (),
        outer: Iterable[Tier] = (),
        notes: Iterable[str] = (),
        most: tuple[int | None, int | None] = (None, None),
        asked: tuple[Collection[Down], Collection[Across]] = ((), ()),
        nouns: tuple[str, str] = ("rows", "columns"),
    ) -> Self:
        """The grid of `cell(row, column)`; mappings have the texts of labels and headers, else they are the numbers.

        `names` are those of a row's labels, then that of the columns. A rule stands above `ruled` rows and those that
        are multiples of `rule_every`, the first left out; `outer` tiers stand above the headers. At most `most` rows and
        columns are drawn: the first, or those around the rows and columns that were `asked` for.

        >>> columns = {0: "0-7", 8: "8-15"}
        >>> grid = Grid.of("Sums", ("row", "k"), range(9), columns, lambda a, b: Cell(str(a + b)), most=(2, None))
        >>> [cell.text for cell in grid.rows[1].cells], grid.notes
        (['1', '9'], ('Drawn: 2 of 9 rows.',))
        >>> grid = Grid.of("", ("row", "k"), range(9), columns, lambda a, b: Cell(), most=(2, None), asked=([5], []))
        >>> [row.labels for row in grid.rows], grid.notes
        ([('4',), ('5',)], ('Drawn: rows 4 to 5 of 9.',))
        """
        down: Sequence[Down] = rows if isinstance(rows, Sequence) else [*rows]  # a range stays one, however long
        across: Sequence[Across] = columns if isinstance(columns, Sequence) else [*columns]
        most_rows, most_columns = most
        shown_rows = _window(down, most_rows, asked[0])
        shown_columns = _window(across, most_columns, asked[1])

        def labels_of(row: Down) -> tuple[str, ...]:
            label = rows[row] if isinstance(rows, Mapping) else str(row)
            return (label,) if isinstance(label, str) else label

        lines: list[Row] = []
        for row in shown_rows:
            labels = labels_of(row)
            is_multiple = rule_every > 0 and isinstance(row, int) and row % rule_every == 0
            is_ruled = bool(lines) and (is_multiple or row in ruled)
            lines.append(Row(labels, tuple(cell(row, column) for column in shown_columns), is_ruled))
        cut = [
            _cut_words(down, shown_rows, lambda row: labels_of(row)[-1], nouns[0]),
            _cut_words(across, shown_columns, str, nouns[1]),
        ]
        all_notes = [*notes]
        if any(cut):
            all_notes.append(f"Drawn: {' and '.join(filter(None, cut))}.")
        headers = columns if isinstance(columns, Mapping) else {column: column for column in shown_columns}
        tiers = (*outer, Tier.of(names[-1], (headers[column] for column in shown_columns)))
        return cls(title, tiers, tuple(lines), names[:-1], tuple(all_notes))

    def marked(self, links: Collection[str]) -> Self:
        """The grid with a focus on the cells that bear one of the links.

        >>> grid = Grid("", (), (Row((), (Cell(link="a b"), Cell(link="c"))),)).marked({"b"})
        >>> [cell.mark for cell in grid.rows[0].cells]
        ['focus', '']
        """
        if not links:
            return self
        link_set = {*links}

        def marked(cell: Cell) -> Cell:
            return replace(cell, mark="focus") if link_set & {*cell.link.split()} else cell

        rows = (replace(row, cells=tuple(map(marked, row.cells))) for row in self.rows)
        return replace(self, rows=tuple(rows))

    def around_marks(self, most: int) -> Self:
        """The grid with the rows around its marks, `most` for each; without any rows if nothing is marked.

        >>> rows = [Row((str(row),), (Cell(mark="focus" if row == 5 else ""),)) for row in range(9)]
        >>> grid = Grid("", (), tuple(rows)).around_marks(4)
        >>> [row.labels for row in grid.rows], grid.notes
        ([('4',), ('5',), ('6',), ('7',)], ('Drawn: rows 4 to 7 of 9.',))
        """
        marked = [number for number, row in enumerate(self.rows) if any(cell.mark for cell in row.cells)]
        if not marked:
            return replace(self, rows=())
        numbers = range(len(self.rows))
        shown = _window(numbers, most, marked)
        cut = _cut_words(numbers, shown, lambda number: self.rows[number].labels[-1], "rows")
        notes = (*self.notes, f"Drawn: {cut}.") if cut else self.notes
        return replace(self, rows=tuple(self.rows[number] for number in shown), notes=notes)

    def between(self, first: int, stop: int) -> Self:
        """The columns `first` to below `stop`; the numbers on both sides of a cut are shown if there is space.

        >>> grid = Grid("", (), (Row((), (Cell("wait", span=3), Cell("b"))),)).between(2, 4)
        >>> [(cell.text, cell.span) for cell in grid.rows[0].cells]
        [('', 1), ('b', 1)]
        """
        tiers = tuple(replace(tier, headers=_cut_items(tier.headers, first, stop)) for tier in self.tiers)
        rows = tuple(replace(row, cells=_cut_items(row.cells, first, stop)) for row in self.rows)
        return replace(self, tiers=tiers, rows=rows)

    def _line_spans(self) -> Iterator[int]:
        """How many columns the tiers and rows cover."""
        yield from (sum(header.span for header in tier.headers) for tier in self.tiers)
        yield from (sum(cell.span for cell in row.cells) for row in self.rows)

    @property
    def columns(self) -> int:
        """How many columns every row and tier covers."""
        return next(self._line_spans(), 0)

    @property
    def is_dense(self) -> bool:
        """Whether it has so many columns or rows that its cells are small."""
        return self.columns > _DENSE_COLUMNS or len(self.rows) > _DENSE_ROWS

    @property
    def group_starts(self) -> frozenset[int]:
        """Columns where a group of the outermost tier begins, the first left out: a little space goes there."""
        headers = self.tiers[0].headers if self.tiers else ()
        grouped = any(header.span > 1 for header in headers)
        return frozenset(start for start, _ in place_items(headers) if start and grouped)


Entry = TypeVar("Entry")


def _window(entries: Sequence[Entry], most: int | None, asked: Collection[Entry]) -> list[Entry]:
    """At most `most` entries: the first ones, or, cut into windows of that size, the windows with requested entries.

    >>> _window([*range(9)], 2, [5]), _window([*range(9)], 2, []), _window([*range(9)], 4, [0, 8])
    ([4, 5], [0, 1], [0, 1, 2, 3, 8])
    """
    if most is None or len(entries) <= most:
        return [*entries]
    windows = {entries.index(entry) // most for entry in asked if entry in entries} or {0}
    return [entry for window in sorted(windows) for entry in entries[window * most : (window + 1) * most]]


def _cut_words(entries: Sequence[Entry], shown: list[Entry], name: Callable[[Entry], str], noun: str) -> str:
    """Which entries are drawn, if not all of them; a window that does not begin with the first is named."""
    if len(shown) == len(entries):
        return ""
    first = entries.index(shown[0])
    if first > 0 and [*entries[first : first + len(shown)]] == shown:
        return f"{noun} {name(shown[0])} to {name(shown[-1])} of {len(entries)}"
    return f"{len(shown)} of {len(entries)} {noun}"


Spanning = TypeVar("Spanning", Cell, Header)


def place_items(items: tuple[Spanning, ...]) -> Iterator[tuple[int, Spanning]]:
    """Each cell or header with its first column.

    >>> [start for start, _ in place_items((Cell(span=4), Cell(span=2), Cell()))]
    [0, 4, 6]
    """
    return zip(accumulate((item.span for item in items), initial=0), items, strict=False)


def _cut_items(items: tuple[Spanning, ...], first: int, stop: int) -> tuple[Spanning, ...]:
    """What cells or headers show of the columns `first` to below `stop`."""
    pieces: list[Spanning] = []
    for start, item in place_items(items):
        low = max(start, first)
        high = min(start + item.span, stop)
        if low >= high:
            continue
        is_larger = 2 * (high - low) > item.span
        has_room = high - low >= len(item.text)  # a column has room for a character
        pieces.append(replace(item, span=high - low, text=item.text if is_larger or has_room else ""))
    return tuple(pieces)
