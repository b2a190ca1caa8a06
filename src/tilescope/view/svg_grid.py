"""A grid as SVG: how wide its columns are, how its cells are drawn, and how one that is too wide is cut.

A grid is one group a row, a rectangle and a text a cell; everything about a cell's look is a class, so that 8,192 cells
stay below a megabyte. A grid of more cells is painted: the cells of one colour are one shape, without texts.

    cells                      drawn
    up to 1,100 on a page      one shape each, with a text and a tooltip
    up to 8,192 in a file      the same
    more                       one path for all cells of a colour: M0 0h16v18h-16zM16 0h16v18h-16z …
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from math import ceil
from typing import NamedTuple

from tilescope.view.columns import Columns
from tilescope.view.grid import Grid, Row, Spanning, Tier, place_items
from tilescope.view.palette import Mark, Tint, colour_of
from tilescope.view.svg_shapes import (
    Area,
    Block,
    abreast,
    below,
    draw_frame,
    ink,
    label,
    level_line,
    mono_width,
    move_group,
    number,
    stack_titled,
)
from tilescope.view.svg_style import BODY, NARROW_TEXT, SMALL, TINY

_MOST_BANDS = 4
_HEADER_HEIGHT = 17
_HEADER_BASELINE = 12
_RULE_HEIGHT = 4
_MOST_SHAPES = 1100  # of the cells of a grid on a page, each a shape with a text and a tooltip …
_MOST_SHAPES_SAVED = 8192  # … and in a file
_WIDEST_PAINTED = 1600  # pixels of a grid of more cells, up to which its columns have room for texts
_SHRUNK_WIDTH = 430  # pixels of a wider one, whose cells have no texts: two of them fit side by side
_SMALLEST_CELL = 3  # pixels
_SMALLEST_FRAMED = 12  # pixels: a mark on a smaller cell is a dot
_LABEL_PITCH = 14  # pixels from one label to the next


class Density(NamedTuple):
    """How large the cells of a grid are, in pixels."""

    name: str  # its class, which sets the size of its texts
    cell_height: float
    font_size: int
    cell_padding: int
    header_padding: int
    least_width: int

    def air_around(self, header: str) -> int:
        """The width of a header's text plus its margin: two digits need as little as in a cell, a range of numbers more."""
        return self.cell_padding if len(header) <= 2 else self.header_padding


TIGHT = Density("dense", cell_height=18.0, font_size=TINY, cell_padding=3, header_padding=5, least_width=16)
DENSE = TIGHT._replace(cell_padding=6, least_width=18)
ROOMY = Density("roomy", cell_height=25.0, font_size=BODY, cell_padding=12, header_padding=12, least_width=28)


def grid_block(grid: Grid, *, linked: bool = False, dense: bool = False) -> Block:
    """The grid with its title, headers, labels and notes; `linked` cells bear their links, for a page with a script."""
    drawer = _GridDrawer.of(grid, DENSE if dense else own_density(grid), linked=linked)
    drawn = abreast([drawer.stub(), drawer.cells()], 0)
    text_width = max(drawer.width, NARROW_TEXT)
    return stack_titled(grid.title, [replace(drawn, width=drawer.width)], grid.notes, text_width, gap=6)


class GridBlocks(NamedTuple):
    """A grid as a page shows it: its labels stay in sight while its cells are scrolled."""

    labels: Block
    cells: Block
    painted: PaintedPlaces | None  # the positions of a painted grid's cells; None: every cell is a separate shape


class PaintedPlaces(NamedTuple):
    """The positions of a painted grid's cells, in pixels."""

    lefts: tuple[float, ...]  # of columns
    tops: tuple[float, ...]  # of rows
    width: float  # of every cell
    height: float
    font_size: int  # of their texts


def own_density(grid: Grid) -> Density:
    """The cell size of a grid without neighbours."""
    return DENSE if grid.is_dense else ROOMY


def grid_blocks(grid: Grid, density: Density | None = None) -> GridBlocks:
    """The labels and the cells of a grid, side by side, without title and notes."""
    drawer = _GridDrawer.of(grid, density or own_density(grid), linked=True)
    return GridBlocks(drawer.stub(), drawer.cells(), drawer.places() if drawer.is_painted else None)


def grid_width(grid: Grid, density: Density) -> float:
    """How wide the labels and the cells of a grid are on a page."""
    return _GridDrawer.of(grid, density, linked=True).width


def is_painted(grid: Grid, most: int = _MOST_SHAPES) -> bool:
    """Whether a grid has so many cells that those of one colour are one shape: a browser is slow with many shapes.

    >>> from tilescope.view.grid import Cell
    >>> row = Row((), (Cell(),) * 100)
    >>> is_painted(Grid("", (), (row,) * 10)), is_painted(Grid("", (), (row,) * 20))
    (False, True)
    """
    if sum(len(row.cells) for row in grid.rows) <= most:
        return False
    return all(cell.span == 1 for row in grid.rows for cell in row.cells)


def bands(grid: Grid, widest: float, *, is_dense: bool) -> list[Grid]:
    """The grid cut into as many columns as fit; whole, where that makes too many pieces."""
    fitting = _columns_that_fit(grid, widest, is_dense=is_dense)
    if fitting >= grid.columns or fitting * _MOST_BANDS < grid.columns:
        return [grid]
    starts = range(0, grid.columns, fitting)
    pieces = [grid.between(start, min(start + fitting, grid.columns)) for start in starts]
    return [pieces[0], *(replace(piece, title="") for piece in pieces[1:])]


def _columns_that_fit(grid: Grid, width: float, *, is_dense: bool) -> int:
    """How many of the grid's first columns can be drawn, behind its labels, in this width."""
    columns = _GridDrawer.of(grid, DENSE if is_dense else own_density(grid), linked=False).columns
    return sum(columns.stub + end <= width for end in columns.ends)


class _GridDrawer:
    """Draws the headers and rows of a grid, whose columns are as wide as they need to be."""

    @classmethod
    def of(cls, grid: Grid, density: Density, *, linked: bool) -> _GridDrawer:
        """The drawer of a grid; the cells of a painted one shrink to squares without text where it would be too wide."""
        drawer = cls(grid, density, linked=linked)
        if not drawer.is_painted or drawer.width <= _WIDEST_PAINTED:
            return drawer
        side = max(_SMALLEST_CELL, _SHRUNK_WIDTH / grid.columns)
        return cls(replace(grid, column_width=side), density._replace(cell_height=side), linked=linked)

    def __init__(self, grid: Grid, density: Density, *, linked: bool) -> None:
        self.grid = grid
        self.density = density
        self.linked = linked
        self.is_painted = is_painted(grid, _MOST_SHAPES if linked else _MOST_SHAPES_SAVED)
        self.columns = Columns.of(
            grid,
            label=lambda text: mono_width(text, SMALL) + 10,
            cell=lambda cell: mono_width(cell.text, density.font_size) + density.cell_padding,
            header=lambda header: mono_width(header.text, TINY) + density.air_around(header.text),
            least=density.least_width,
            gap=5,
            unnamed=6,
            fixed=grid.column_width,
        )
        self.width = self.columns.stub + (self.columns.ends[-1] if self.columns.ends else 0)
        self.label_ends = [*accumulate(self.columns.label_widths)]

    def stub(self) -> Block:
        """The names of tiers and the labels of rows, from top to bottom."""
        headers = below([self._header_names(tier) for tier in self.grid.tiers])
        every = ceil(_LABEL_PITCH / self.density.cell_height)  # one of this many labels fits
        rows = below([self._row_labels(row, is_told=place % every == 0) for place, row in enumerate(self.grid.rows)])
        return replace(below([headers, rows], gap=2), width=self.columns.stub)

    def cells(self) -> Block:
        """The headers and the cells, from top to bottom."""
        headers = below([self._headers(tier) for tier in self.grid.tiers])
        if self.is_painted:
            rows = self._painted_rows()
        else:
            rows = below([self._row_cells(row) for row in self.grid.rows])
        return replace(below([headers, rows], gap=2), width=self.width - self.columns.stub)

    def _header_names(self, tier: Tier) -> Block:
        """The text to the left of a line of headers; the names of labels are in the lowest."""
        names = self.grid.label_names if tier is self.grid.tiers[-1] else ()
        body = self._labels(names, _HEADER_BASELINE)
        body += label(self.columns.stub - 8, _HEADER_BASELINE, tier.name, "l")
        return Block(self.columns.stub, _HEADER_HEIGHT, body)

    def _headers(self, tier: Tier) -> Block:
        """A line of headers; of those that are wider than their columns, some."""
        body = ""
        every = 1
        if self.is_painted and self.grid.column_width is not None:
            widest = max((mono_width(header.text, TINY) for header in tier.headers), default=0.0)
            every = ceil((widest + self.density.header_padding) / self.grid.column_width)
        for place, (header, left, right) in enumerate(self._edges(tier.headers)):
            if place % every:
                continue
            middle = max((left + right) / 2, mono_width(header.text, TINY) / 2)  # the first stays inside the picture
            body += label(middle, _HEADER_BASELINE, header.text, "h")
            if header.span > 1:
                body += level_line(left + 1, right - 1, _HEADER_HEIGHT - 1)
        return Block(self.width, _HEADER_HEIGHT, body)

    def _row_labels(self, row: Row, *, is_told: bool) -> Block:
        """The labels of a row, if there is room for them."""
        top = _RULE_HEIGHT if row.ruled else 0
        body = self._labels(row.labels, top + self._baseline) if is_told else ""
        return Block(self.columns.stub, self.density.cell_height + top, body)

    def _row_cells(self, row: Row) -> Block:
        """The cells of a row; a text that does not fit into a column of fixed width is left out."""
        height = self.density.cell_height
        cells = []
        for cell, left, right in self._edges(row.cells):
            area = Area(left, 0, right - left, height)
            link = cell.link if self.linked else ""
            goes = cell.goes if self.linked else ""
            cells.append(draw_frame(area, cell.colour, mark=cell.mark, title=cell.title, link=link, goes=goes))
            fits = self.grid.column_width is None or mono_width(cell.text, self.density.font_size) <= right - left
            if fits:
                cells.append(label((left + right) / 2, self._baseline, cell.text, ink(cell.colour)))
        body = f'<g class="cells {self.density.name}">{"".join(cells)}</g>'
        if not row.ruled:
            return Block(self.width, height, body)
        body = level_line(0, self.width - self.columns.stub, 2) + move_group(0, _RULE_HEIGHT, body)
        return Block(self.width, height + _RULE_HEIGHT, body)

    def places(self) -> PaintedPlaces:
        """The position of the cells, from the first header down."""
        headers = _HEADER_HEIGHT * len(self.grid.tiers) + (2 if self.grid.tiers else 0)
        return PaintedPlaces(
            lefts=tuple(self.columns.starts),
            tops=tuple(headers + top for top in self._tops()),
            width=self.columns.ends[0] - self.columns.starts[0],
            height=self.density.cell_height,
            font_size=self.density.font_size,
        )

    def _tops(self) -> list[float]:
        """Of the cells of every row, from the first row on."""
        tops = []
        reached = 0.0
        for row in self.grid.rows:
            reached += _RULE_HEIGHT if row.ruled else 0
            tops.append(reached)
            reached += self.density.cell_height
        return tops

    def _painted_rows(self) -> Block:
        """All rows: one shape for the cells of a colour, one for those of a mark, and no text."""
        height = self.density.cell_height
        places = self.places()
        lefts = [number(left) for left in places.lefts]
        square = _square(places.width, height)
        is_framed = min(places.width, height) >= _SMALLEST_FRAMED
        inset = 1.0 if is_framed else min(places.width, height) / 3
        mark_lefts = [number(left + inset) for left in places.lefts]
        mark = _square(places.width - 2 * inset, height - 2 * inset)
        surfaces: dict[Tint, list[str]] = {}
        marks: dict[Mark, list[str]] = {}
        lines = []
        for row, top in zip(self.grid.rows, self._tops(), strict=True):
            at = f" {number(top)}{square}"
            mark_at = f" {number(top + inset)}{mark}"
            for column, cell in enumerate(row.cells):
                surfaces.setdefault(cell.colour, []).append(lefts[column] + at)
                if cell.mark:
                    marks.setdefault(cell.mark, []).append(mark_lefts[column] + mark_at)
            if row.ruled:
                lines.append(level_line(0, self.width - self.columns.stub, top - 2))
        shapes = [
            f'<path class="{colour_of(tint).name}" d="M{"M".join(all_of)}"/>' for tint, all_of in surfaces.items()
        ]
        kind = "frame" if is_framed else "dot"
        shapes += [f'<path class="{kind} {name}" d="M{"M".join(all_of)}"/>' for name, all_of in marks.items()]
        total = self._tops()[-1] + height
        return Block(self.width, total, f'<g class="cells painted">{"".join(shapes)}</g>{"".join(lines)}')

    @property
    def _baseline(self) -> float:
        """Of the text in a row."""
        return float(round(self.density.cell_height / 2 + self.density.font_size * 0.35))

    def _labels(self, texts: tuple[str, ...], y: float) -> str:
        return "".join(label(end - 10, y, text, "l") for text, end in zip(texts, self.label_ends, strict=False))

    def _edges(self, items: tuple[Spanning, ...]) -> Iterator[tuple[Spanning, float, float]]:
        """Cells or headers with their left and right edges, from the first column on."""
        columns = self.columns
        for first, item in place_items(items):
            yield item, columns.starts[first], columns.ends[first + item.span - 1]


def _square(width: float, height: float) -> str:
    """The rest of a path that starts at the upper left corner of a rectangle."""
    return f"h{number(width)}v{number(height)}h-{number(width)}z"
