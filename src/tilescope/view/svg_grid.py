"""A grid as SVG: one group a row, a rectangle and a text a cell.

Grids of many cells get smaller cells. Everything about a cell's look is a class, so that 8,192 cells
stay below a megabyte.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import ceil

from tilescope.view.grid import Cell, Columns, Grid, Measure, Row, Tier, placed
from tilescope.view.palette import Colour, Mark, colour_of
from tilescope.view.svg_canvas import BODY, SMALL, TINY, Block, below, box, label, line, mono_width, moved, prose

_DENSE_COLUMNS = 24  # grids with more columns, or more rows than this, get small cells
_DENSE_ROWS = 40
_NOTE_WIDTH = 300  # notes under a narrow grid may be this wide
_HEADER_HEIGHT = 17
_RULE_HEIGHT = 4


@dataclass(frozen=True, slots=True)
class _Geometry:
    """Where the labels and columns of a grid lie, and how large its cells and their text are."""

    columns: Columns
    stub: float  # where the cells begin
    dense: bool

    @classmethod
    def of(cls, grid: Grid) -> _Geometry:
        dense = grid.columns > _DENSE_COLUMNS or len(grid.rows) > _DENSE_ROWS
        columns = Columns.of(grid, _DENSE if dense else _ROOMY)
        names = max((mono_width(tier.name, SMALL) + 10 for tier in grid.tiers if tier.name), default=6.0)
        return cls(columns, float(ceil(sum(columns.label_widths) + names)), dense)

    @property
    def width(self) -> float:
        return self.stub + (self.columns.ends[-1] if self.columns.ends else 0)

    @property
    def cell_height(self) -> float:
        return 18.0 if self.dense else 25.0

    @property
    def baseline(self) -> float:
        """Of the text in a cell."""
        return float(round(self.cell_height / 2 + (TINY if self.dense else BODY) * 0.35))

    def edges(self, first: int, span: int) -> tuple[float, float]:
        """The left and right edge of `span` columns from `first` on."""
        return self.stub + self.columns.starts[first], self.stub + self.columns.ends[first + span - 1]

    def labels(self, labels: tuple[str, ...], baseline: float) -> str:
        right_ends = accumulate(self.columns.label_widths)
        return "".join(label(end - 10, baseline, text, "l") for text, end in zip(labels, right_ends, strict=False))


def _measure(size: int, padding: float, header_padding: float, least: float) -> Measure:
    return Measure(
        label=lambda text: mono_width(text, SMALL) + 10,
        cell=lambda cell: mono_width(cell.text, size) + padding,
        header=lambda header: mono_width(header.text, TINY) + header_padding,
        least=least,
        gap=5,
        share=lambda missing, columns: missing / columns,
    )


_DENSE, _ROOMY = _measure(TINY, 6.0, 5.0, 18.0), _measure(BODY, 12.0, 12.0, 28.0)


def grid_block(grid: Grid, *, linked: bool = False) -> Block:
    """The grid with its title, headers, labels and notes; `linked` cells bear their links, for a page with a script."""
    geometry = _Geometry.of(grid)
    title, notes = _words(grid, geometry.width)
    headers = [_header_line(grid, tier, geometry) for tier in grid.tiers]
    rows = below([_row_line(row, geometry, linked) for row in grid.rows])
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


def _header_line(grid: Grid, tier: Tier, geometry: _Geometry) -> Block:
    names = grid.label_names if tier is grid.tiers[-1] else ()
    parts = [geometry.labels(names, 12.0), label(geometry.stub - 8, 12, tier.name, "l")]
    for first, header in placed(tier.headers):
        left, right = geometry.edges(first, header.span)
        parts.append(label((left + right) / 2, 12, header.text, "h"))
        parts += [line(left + 1, right - 1, _HEADER_HEIGHT - 1)] if header.span > 1 else []
    return Block(geometry.width, _HEADER_HEIGHT, "".join(parts))


def _row_line(row: Row, geometry: _Geometry, linked: bool) -> Block:
    cells = "".join(
        _cell(cell, *geometry.edges(first, cell.span), geometry, cell.link if linked else "")
        for first, cell in placed(row.cells)
    )
    labels = geometry.labels(row.labels, geometry.baseline)
    body = f'{labels}<g class="cells {"dense" if geometry.dense else "roomy"}">{cells}</g>'
    if not row.ruled:
        return Block(geometry.width, geometry.cell_height, body)
    rule = line(geometry.stub, geometry.width, 2)
    return Block(geometry.width, geometry.cell_height + _RULE_HEIGHT, rule + moved(0, _RULE_HEIGHT, body))


def _cell(cell: Cell, left: float, right: float, geometry: _Geometry, link: str) -> str:
    colour = colour_of(cell.colour)
    return (
        box(left, right - left, geometry.cell_height, colour.name, cell.title, link=link)
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
