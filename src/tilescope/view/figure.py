"""The figures of a drawing for a paper, a slide or a page: without title, sentences, tables and background.

A figure is at most as wide as two columns of a paper: 2 x 85 mm, which is 642 pixels at 96 to the inch. Grids that stand
beside each other go below each other where they need more. A grid that is wider by itself goes on in bands below; one
that would need many bands is made smaller. Rulers have lines of 32 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Literal, NamedTuple

from tilescope.view.drawing import Drawing
from tilescope.view.drawing_parts import Beside, Legend, Part, pack_lines
from tilescope.view.grid import Cell, Grid
from tilescope.view.ruler import BitField, BitRuler
from tilescope.view.svg_document import laid_out
from tilescope.view.svg_grid import bands, grid_block
from tilescope.view.svg_ruler import ruler_keys, ruler_rows
from tilescope.view.svg_shapes import Block, abreast, below, escape, fit_block, move_group, number, stack_titled
from tilescope.view.svg_style import figure_style, hatchings

Ground = Literal["light", "dark"]  # the background of the figure
MM_PER_INCH = 25.4
PIXELS_PER_INCH = 96
COLUMN_MM = 85
WIDEST_PIXELS = int(2 * COLUMN_MM / MM_PER_INCH * PIXELS_PER_INCH)  # 642
_MARGIN = 2  # frames of marked cells extend by a pixel
_WIDEST = WIDEST_PIXELS - 2 * _MARGIN  # of what is drawn
_SWATCH = 60  # beside the text of a legend
_PART_GAP = 20
_BESIDE_GAP = 28
_BAND_GAP = 10


class Pin(NamedTuple):
    """A cell of a drawing: which figure, which row of it and which cell of the row, counted from 0."""

    figure: int
    row: int
    column: int


class Labelled(NamedTuple):
    """A drawing, and the heading of its figures; empty for a single drawing."""

    label: str
    drawing: Drawing


def has_figure(drawing: Drawing) -> bool:
    """Whether a drawing has a grid or a ruler.

    >>> has_figure(Drawing("Nothing", {"said": "It is 0."}))
    False
    """
    return any(True for _ in _figures(drawing))


def figure_svg(drawings: Sequence[Labelled], *, ground: Ground, pins: Sequence[Pin] = ()) -> str:
    """The figures of drawings as one SVG document with a transparent ground; pinned cells and their partners are marked.

    >>> grid = Grid.of("", ("line", "chunk"), [0], [0, 1], lambda line, chunk: Cell(str(chunk), chunk))
    >>> drawn = figure_svg([Labelled("", Drawing("Two cells", {"cells": grid}))], ground="dark", pins=[Pin(0, 0, 1)])
    >>> drawn.count('class="frame focus"'), "Two cells" in drawn.partition("</title>")[2]
    (1, False)
    """
    drawings = mark_pinned(drawings, pins)
    blocks: list[Block] = []
    for label, drawing in drawings:
        drawn = [block for _, part in drawing.figures().named for block in _blocks(part)]
        blocks.append(stack_titled(label, [below(drawn, gap=_PART_GAP)], (), _WIDEST))
    content = below(blocks, gap=_PART_GAP)
    width = number(content.width + 2 * _MARGIN)
    height = number(content.height + 2 * _MARGIN)
    title = "; ".join(drawing.title for _, drawing in drawings)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tilescope" role="img" '
        f'width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        f"<title>{escape(title)}</title><defs><style>{figure_style(ground)}</style>{hatchings(ground)}</defs>"
        f"{move_group(_MARGIN, _MARGIN, content.body)}</svg>\n"
    )


def _blocks(part: Part) -> Iterator[Block]:
    """The drawn content of a part, from top to bottom, without sentences."""
    match part:
        case Grid():
            yield from _grid_blocks(part, is_dense=part.is_dense)
        case BitRuler():
            rows = ruler_rows(part, is_narrow=True)
            keys = laid_out(ruler_keys(part)).draw(_WIDEST - _SWATCH)
            yield fit_block(stack_titled(part.title, [rows, keys], (), _WIDEST, gap=12), _WIDEST)
        case Legend():
            yield fit_block(laid_out(part).draw(_WIDEST - _SWATCH), _WIDEST)
        case Beside():
            inner = [list(_inner_blocks(inner_part, is_dense=part.is_dense)) for inner_part in part.parts]
            columns = [below(blocks, gap=_BAND_GAP) for blocks in inner]
            for _, line in pack_lines([(block.width, block) for block in columns], _WIDEST, _BESIDE_GAP):
                yield abreast(line, _BESIDE_GAP)


def _inner_blocks(part: Part, *, is_dense: bool) -> Iterator[Block]:
    if isinstance(part, Grid):
        yield from _grid_blocks(part, is_dense=is_dense)
    else:
        yield from _blocks(part)


def _grid_blocks(grid: Grid, *, is_dense: bool) -> Iterator[Block]:
    """A grid without its notes, in bands where it is too wide."""
    for band in bands(replace(grid, notes=()), _WIDEST, is_dense=is_dense):
        yield fit_block(grid_block(band, dense=is_dense), _WIDEST)


def _figures(drawing: Drawing) -> Iterator[Grid | BitRuler]:
    """Grids and rulers in the order of the page."""
    for part in drawing.parts:
        inner = part.parts if isinstance(part, Beside) else (part,)
        yield from (figure for figure in inner if isinstance(figure, Grid | BitRuler))


def mark_pinned(drawings: Sequence[Labelled], pins: Sequence[Pin]) -> list[Labelled]:
    """Drawings with the pinned cells marked, and all cells that share the first word of the link of one."""
    marked = [*drawings]
    for pin in pins:
        marked = _mark_pin(marked, pin)
    return marked


def _mark_pin(drawings: list[Labelled], pin: Pin) -> list[Labelled]:
    figures = [figure for _, drawing in drawings for figure in _figures(drawing)]
    pinned = _find_pin(figures[pin.figure], pin) if pin.figure < len(figures) else None
    if pinned is None:
        return drawings
    partners = frozenset(pinned.link.split()[:1])
    numbers = count()

    def marked(part: Part) -> Part:
        if isinstance(part, Grid):
            here = (pin.row, pin.column) if next(numbers) == pin.figure else None
            return _marked_grid(part, here, partners)
        if isinstance(part, BitRuler):
            next(numbers)
            return replace(part, fields=tuple(_marked_field(field, partners) for field in part.fields))
        return part

    return [Labelled(label, drawing.mapped(marked)) for label, drawing in drawings]


def _find_pin(figure: Grid | BitRuler, pin: Pin) -> Cell | BitField | None:
    """The pinned cell; None if the figure has no such cell, or for bits without a field."""
    if isinstance(figure, BitRuler):
        pieces = [piece for row in figure.rows() if row.fields for piece in row.pieces]
        return pieces[pin.row].field if pin.row < len(pieces) and pin.column == 0 else None
    rows = [row.cells for row in figure.rows if row.cells]
    if pin.row >= len(rows) or pin.column >= len(rows[pin.row]):
        return None
    return rows[pin.row][pin.column]


def _marked_grid(grid: Grid, here: tuple[int, int] | None, partners: frozenset[str]) -> Grid:
    """The grid with a mark on the cell `here` (a row that has cells, and a cell of it), and on the partners."""
    marked = grid.marked(partners)
    if here is None:
        return marked
    numbers = [number for number, row in enumerate(grid.rows) if row.cells]
    number = numbers[here[0]]
    row = marked.rows[number]
    cells = [*row.cells]
    cells[here[1]] = replace(cells[here[1]], mark="focus")
    rows = (*marked.rows[:number], replace(row, cells=tuple(cells)), *marked.rows[number + 1 :])
    return replace(marked, rows=rows)


def _marked_field(field: BitField, partners: frozenset[str]) -> BitField:
    return replace(field, mark="focus") if field.link in partners else field
