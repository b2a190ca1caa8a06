"""The pictures of a drawing on a page: grids and bit rulers as the SVG that view/ makes; drawing.html has the rest.

A saved SVG holds the whole drawing. On a page its words are words: they wrap on a phone, grow with the reader's font
and are read aloud. Colours come from the page's style sheet, so that grids turn dark with it.
"""

from __future__ import annotations

from dataclasses import replace

from markupsafe import Markup

from tilescope.view.grid import Grid
from tilescope.view.parts import Beside, Table
from tilescope.view.ruler import BitRuler
from tilescope.view.svg_canvas import Block, number
from tilescope.view.svg_document import grid_block, ruler_rows

_BESIDE_SCALE = 0.88  # of grids that stand beside each other …
_SMALLEST_SCALE = 0.6  # … and of those that would not fit …
_BESIDE_WIDTH, _BESIDE_GAP = 1010, 32  # … into the answer of a window of 1400 pixels


def picture(part: Grid | BitRuler) -> Markup:
    """The cells of a grid, or the bits of a ruler, without the words around them."""
    return _svg(_cells(part), 1) if isinstance(part, Grid) else _svg(ruler_rows(part, linked=True), 1, " ruler")


def fitted(part: Beside) -> tuple[bool, list[tuple[object, Markup | None]]]:
    """Parts that stand beside each other, with the pictures of grids; whether they shrink in a narrower window."""
    blocks = [_cells(inner) if isinstance(inner, Grid) else None for inner in part.parts]
    scale = (_BESIDE_WIDTH - _BESIDE_GAP * len(blocks)) / max(sum(block.width for block in blocks if block), 1)
    shrinks = all(blocks) and scale >= _SMALLEST_SCALE
    scale = scale if _SMALLEST_SCALE <= scale < _BESIDE_SCALE else _BESIDE_SCALE
    pictures = [_svg(block, scale) if block else None for block in blocks]
    return shrinks, list(zip(part.parts, pictures, strict=True))


def _cells(part: Grid) -> Block:
    return grid_block(replace(part, title="", notes=()), linked=True)


def _svg(drawn: Block, scale: float, kind: str = "") -> Markup:
    width, height = drawn.width + 2, drawn.height + 2
    svg = Markup('<svg class="tilescope{}" width="{}" height="{}" viewBox="0 0 {} {}" aria-hidden="true">{}</svg>')
    sizes = map(number, (width * scale, height * scale, width, height))
    return svg.format(kind, *sizes, Markup(drawn.body))  # noqa: S704  view/ escapes what it draws


def ruler_table(part: BitRuler) -> Table:
    """The fields of a ruler, named and explained."""
    return Table(part.table_rows(), part.table_headings(), notes=part.notes)
