"""A grid as SVG: one group a row, a rectangle and a text a cell.

Grids of many cells get smaller cells. Everything about a cell's look is a class, so that 8,192 cells
stay below a megabyte.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import ceil

from tilescope.view.grid import Cell, Grid, Row, placed
from tilescope.view.palette import Colour, Mark, colour_of
from tilescope.view.svg_canvas import (
    BODY,
    SMALL,
    TINY,
    Block,
    below,
    box,
    label,
    line,
    mono_width,
    moved,
    prose,
)

_DENSE_COLUMNS = 24  # grids with more columns, or more rows than this, get small cells
_DENSE_ROWS = 40
_GROUP_GAP = 5
_NOTE_WIDTH = 300  # notes under a narrow grid may be this wide
_HEADER_HEIGHT = 17
_RULE_HEIGHT = 4


@dataclass(frozen=True, slots=True)
class _Geometry:
    """Where the labels and columns of a grid lie, and how large its cells and their text are."""

    label_widths: list[float]
    stub: float  # where the cells begin
    starts: list[float]
    ends: list[float]
    dense: bool
    cell_height: float
    baseline: float  # of the text in a cell

    @classmethod
    def of(cls, grid: Grid) -> _Geometry:
        dense = grid.columns > _DENSE_COLUMNS or len(grid.rows) > _DENSE_ROWS
        size, height, padding = (TINY, 18.0, 6.0) if dense else (BODY, 25.0, 12.0)
        label_widths, stub = _stub(grid)
        widths = _column_widths(grid, size, padding)
        gaps = [_GROUP_GAP if column in grid.group_starts else 0 for column in range(grid.columns)]
        ends = [stub + end for end in accumulate(width + gap for width, gap in zip(widths, gaps, strict=True))]
        starts = [end - width for end, width in zip(ends, widths, strict=True)]
        return cls(label_widths, stub, starts, ends, dense, height, float(round(height / 2 + size * 0.35)))

    @property
    def width(self) -> float:
        return self.ends[-1] if self.ends else self.stub

    def edges(self, first: int, span: int) -> tuple[float, float]:
        """The left and right edge of `span` columns from `first` on."""
        return self.starts[first], self.ends[first + span - 1]


def grid_block(grid: Grid) -> Block:
    """The grid with its title, headers, labels and notes."""
    geometry = _Geometry.of(grid)
    title, notes = _words(grid, geometry.width)
    headers = [_header_line(grid, number, geometry) for number in range(len(grid.tiers))]
    rows = below([_row_line(row, geometry) for row in grid.rows])
    body = below([below(headers), rows], gap=2)
    return below([title, Block(geometry.width, body.height, body.body), *notes], gap=6)


def grid_width(grid: Grid) -> float:
    """The width of `grid_block`, without drawing it."""
    width = _Geometry.of(grid).width
    title, notes = _words(grid, width)
    return max(width, title.width, *(note.width for note in notes))


def _words(grid: Grid, width: float) -> tuple[Block, list[Block]]:
    """The title above and the notes below a grid of the given width."""
    wide = max(width, _NOTE_WIDTH)
    return (
        prose(grid.title, wide, size=15, classes="sub"),
        [prose(note, wide, size=SMALL, classes="small muted") for note in grid.notes],
    )


def _header_line(grid: Grid, number_of_tier: int, geometry: _Geometry) -> Block:
    tier = grid.tiers[number_of_tier]
    names = grid.label_names if tier is grid.tiers[-1] else ()
    parts = [_labels(names, geometry.label_widths, 12.0), label(geometry.stub - 8, 12, tier.name, "l")]
    for first, header in placed(tier.headers):
        left, right = geometry.edges(first, header.span)
        parts.append(label((left + right) / 2, 12, header.text, "h"))
        if header.span > 1:
            parts.append(line(left + 1, right - 1, _HEADER_HEIGHT - 1))
    return Block(geometry.width, _HEADER_HEIGHT, "".join(parts))


def _row_line(row: Row, geometry: _Geometry) -> Block:
    cells = []
    for first, cell in placed(row.cells):
        left, right = geometry.edges(first, cell.span)
        cells.append(_cell(cell, left, right, geometry))
    labels = _labels(row.labels, geometry.label_widths, geometry.baseline)
    text_class = "dense" if geometry.dense else "roomy"
    body = f'{labels}<g class="cells {text_class}">{"".join(cells)}</g>'
    if not row.ruled:
        return Block(geometry.width, geometry.cell_height, body)
    rule = line(geometry.stub, geometry.width, 2)
    return Block(geometry.width, geometry.cell_height + _RULE_HEIGHT, rule + moved(0, _RULE_HEIGHT, body))


def _stub(grid: Grid) -> tuple[list[float], float]:
    """Widths of the label columns, and where the cells begin."""
    labelled = [row.labels for row in grid.rows] + ([grid.label_names] if grid.label_names else [])
    widths = [max(mono_width(text, SMALL) for text in texts) + 10 for texts in zip(*labelled, strict=True)]
    names = max((mono_width(tier.name, SMALL) + 10 for tier in grid.tiers if tier.name), default=0.0)
    return widths, float(ceil(sum(widths) + (names or 6)))


def _column_widths(grid: Grid, size: int, padding: float) -> list[float]:
    header_padding = padding if padding > 10 else 5.0
    items = {
        (cell.span, first, mono_width(cell.text, size) + padding)
        for row in grid.rows
        for first, cell in placed(row.cells)
    }
    items |= {
        (each.span, first, mono_width(each.text, TINY) + header_padding)
        for tier in grid.tiers
        for first, each in placed(tier.headers)
    }
    narrowest = max((needed for span, _, needed in items if span == 1), default=0.0)
    widths = [max(narrowest, 18.0 if padding < 10 else 28.0)] * grid.columns
    for span, first, needed in sorted(items):
        missing = needed - sum(widths[first : first + span])
        if missing > 0:
            for column in range(first, first + span):
                widths[column] += missing / span
    return [float(ceil(width)) for width in widths]


def _labels(labels: tuple[str, ...], widths: list[float], baseline: float) -> str:
    right_ends = accumulate(widths)
    return "".join(label(end - 10, baseline, text, "l") for text, end in zip(labels, right_ends, strict=False))


def _cell(cell: Cell, left: float, right: float, geometry: _Geometry) -> str:
    colour = colour_of(cell.colour)
    return (
        box(left, right - left, geometry.cell_height, colour.name, cell.title, link=cell.link)
        + frame(cell.mark, left, 0, right - left, geometry.cell_height)
        + label((left + right) / 2, geometry.baseline, cell.text, ink_class(colour))
    )


def ink_class(colour: Colour) -> str:
    """The class of text on a colour; black, the ink of a cell, needs none."""
    return {"#000000": "", "#ffffff": "w"}.get(colour.ink, f"on-{colour.name}")


def frame(mark: Mark, x: float, y: float, width: float, height: float) -> str:
    """The frame of a marked cell, with a white line inside, so that it shows on every colour."""
    if not mark:
        return ""
    inner = box(x + 2.5, width - 5, height - 5, "halo", y=y + 2.5)
    return inner + box(x + 1, width - 2, height - 2, f"frame {mark}", y=y + 1)
