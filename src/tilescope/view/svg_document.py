"""The parts of a drawing as one standalone SVG document.

No script, no link, no font file: it opens in any browser, in a notebook and in a README. The white
background is part of the drawing, so a dark page does not swallow its text.

    >>> drawn = document("One sentence", ("It stands below the title.",))
    >>> drawn.partition(" xmlns")[0], "<title>One sentence</title>" in drawn
    ('<svg', True)

Every part says first which width it cannot change. The widest decides; texts are wrapped to it.
`svg_grid` draws grids, `svg_ruler` rulers of bits, and `svg_style` has the classes that both use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, singledispatch
from math import inf
from typing import NamedTuple

from tilescope.view.drawing_parts import Beside, Legend, Part, pack_lines
from tilescope.view.grid import Grid
from tilescope.view.ruler import BitRuler
from tilescope.view.svg_grid import bands, grid_block
from tilescope.view.svg_ruler import ruler_rows
from tilescope.view.svg_shapes import (
    Area,
    Block,
    abreast,
    below,
    draw_frame,
    escape,
    fit_block,
    ink,
    label,
    mono_width,
    move_group,
    number,
    prose,
    stack_titled,
)
from tilescope.view.svg_style import BODY, NARROW_TEXT, TITLE, hatchings, style_sheet
from tilescope.view.table import Table

_MARGIN = 24
_PART_GAP = 26
_BESIDE_GAP = 40
_SMALLEST_BESIDE = 0.85  # parts side by side are drawn at least in this scale; else some are placed below the others
_BAND_GAP = 10  # between the pieces of a grid that is wider than its page
_ENTRY_GAP = 22  # between the entries of a legend
_TEXT_WIDTH = 720  # text is this wide unless a grid is wider
_COLUMN_GAP = 18


class Laid(NamedTuple):
    """How a part is laid out."""

    rigid_width: float  # the width that it cannot change; 0 for text
    draw: Callable[[float], Block]  # draws it with its text wrapped to a width


class Room(NamedTuple):
    """What a page has for a drawing."""

    widest: float = inf  # pixels
    has_script: bool = False  # one that reads the links of cells


WITHOUT_LIMIT = Room()
NOTEBOOK = Room(widest=960)  # as wide as the cells of a notebook in a window of 1100 pixels
SCRIPTED_NOTEBOOK = NOTEBOOK._replace(has_script=True)


def document(title: str, parts: tuple[Part, ...], room: Room = WITHOUT_LIMIT) -> str:
    """A whole SVG document: the title, then the parts below each other."""
    room = room._replace(widest=room.widest - 2 * _MARGIN)
    laid = [laid_out(part, room) for part in parts]
    width = max([_TEXT_WIDTH, *(part.rigid_width for part in laid)])
    heading = prose(title, width, size=TITLE, classes="title")
    heading = replace(heading, height=heading.height + 6)
    content = below([heading, *(part.draw(width) for part in laid)], gap=_PART_GAP)
    content = fit_block(content, room.widest)  # a table may be wider than the text above it
    total_width = number(content.width + 2 * _MARGIN)
    total_height = number(content.height + 2 * _MARGIN)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tilescope" role="img" '
        f'width="{total_width}" height="{total_height}" viewBox="0 0 {total_width} {total_height}">'
        f"<title>{escape(title)}</title><defs><style>{style_sheet()}</style>{hatchings()}</defs>"
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{move_group(_MARGIN, _MARGIN, content.body)}</svg>\n'
    )


@singledispatch
def laid_out(part: object, room: Room = WITHOUT_LIMIT) -> Laid:
    """The width that a part cannot change, and how it is drawn in the room that a page has."""
    raise NotImplementedError(type(part))


@laid_out.register
def _text(part: str, _: Room = WITHOUT_LIMIT) -> Laid:
    return Laid(0, partial(prose, part))


@laid_out.register
def _beside(part: Beside, room: Room = WITHOUT_LIMIT) -> Laid:
    laid: list[Laid] = []
    for inner in part.parts:
        if isinstance(inner, Grid):
            laid.append(_grid(inner, room, is_dense=part.is_dense))
        else:
            laid.append(laid_out(inner, room))
    total_width = _width_beside(laid)
    if total_width <= room.widest:
        return Laid(total_width, partial(_abreast, laid))
    if total_width * _SMALLEST_BESIDE <= room.widest:
        return Laid(room.widest, lambda _: fit_block(_abreast(laid, total_width), room.widest))
    lines = [line for _, line in pack_lines([(_width(inner), inner) for inner in laid], room.widest, _BESIDE_GAP)]
    widest_line = max(_width_beside(line) for line in lines)
    return Laid(widest_line, lambda width: below([_abreast(line, width) for line in lines], gap=_PART_GAP))


def _width(laid: Laid) -> float:
    """The width that a part needs beside others."""
    return laid.rigid_width or NARROW_TEXT


def _width_beside(laid: Sequence[Laid]) -> float:
    """The width of parts side by side."""
    return sum(map(_width, laid)) + _BESIDE_GAP * (len(laid) - 1)


def _abreast(laid: Sequence[Laid], width: float) -> Block:
    """Parts side by side; texts share the width that grids leave."""
    free_width = width - _BESIDE_GAP * (len(laid) - 1) - sum(inner.rigid_width for inner in laid)
    texts = sum(inner.rigid_width == 0 for inner in laid)
    text_width = max(NARROW_TEXT, free_width / max(1, texts))
    return abreast([inner.draw(inner.rigid_width or text_width) for inner in laid], _BESIDE_GAP)


@laid_out.register
def _legend(part: Legend, _: Room = WITHOUT_LIMIT) -> Laid:
    def draw(width: float) -> Block:
        entries = []
        for entry in part.entries:
            text = prose(entry.text, width)
            swatch = max(24.0, mono_width(entry.sample, BODY) + 10)
            sample = label(swatch / 2, 16, entry.sample, ink(entry.colour))
            surface = draw_frame(Area(0, 0, swatch, 22), entry.colour, mark=entry.mark)
            body = f'<g class="cells roomy">{surface}{sample}</g>{move_group(swatch + 8, 2, text.body)}'
            entries.append(Block(swatch + 8 + text.width, max(24.0, text.height + 2), body))
        lines = pack_lines([(entry.width, entry) for entry in entries], width, _ENTRY_GAP)
        return stack_titled(part.title, [abreast(line, _ENTRY_GAP) for _, line in lines], (), width)

    return Laid(0, draw)


@laid_out.register
def _table(part: Table, _: Room = WITHOUT_LIMIT) -> Laid:
    def cell(column: int, text: str, is_name: bool, width: float = inf) -> Block:
        classes = []
        if is_name:
            classes.append("head")
        if part.align[column] == "r":
            classes.append("end")
        return prose(text, width, classes=" ".join(classes))

    lines = part.lines()
    rows = [[cell(column, *entry) for column, entry in enumerate(line)] for line in lines]
    widths = [max(block.width for block in column) for column in zip(*rows, strict=True)]
    starts = [sum(widths[:column]) + _COLUMN_GAP * column for column in range(len(widths))]
    anchors = [  # of texts: their left ends, or their right ones
        start + width if side == "r" else start for start, width, side in zip(starts, widths, part.align, strict=True)
    ]

    def draw(width: float) -> Block:
        drawn = []
        for line, blocks in zip(lines, rows, strict=True):
            last = cell(len(line) - 1, *line[-1], max(NARROW_TEXT, width - starts[-1]))  # wraps
            cells = [*blocks[:-1], last]
            body = "".join(move_group(anchor, 0, block.body) for anchor, block in zip(anchors, cells, strict=True))
            height = max(block.height for block in cells)
            drawn.append(Block(starts[-1] + last.width, height + 3, body))
        return stack_titled(part.title, [below(drawn)], part.notes, width)

    return Laid(0, draw)


@laid_out.register
def _grid(part: Grid, room: Room = WITHOUT_LIMIT, *, is_dense: bool = False) -> Laid:
    block = grid_block(part, dense=is_dense, linked=room.has_script)
    if block.width > room.widest:
        block = fit_block(_in_bands(part, room, is_dense=is_dense or part.is_dense), room.widest)
    return Laid(block.width, lambda _: block)


def _in_bands(grid: Grid, room: Room, *, is_dense: bool) -> Block:
    """A grid that is wider than its page, cut into pieces below each other; its notes are below the last."""
    pieces = bands(replace(grid, notes=()), room.widest, is_dense=is_dense)
    pieces[-1] = replace(pieces[-1], notes=grid.notes)
    blocks = [grid_block(piece, dense=is_dense, linked=room.has_script) for piece in pieces]
    return below(blocks, gap=_BAND_GAP)


@laid_out.register
def _ruler(part: BitRuler, room: Room = WITHOUT_LIMIT) -> Laid:
    rows = ruler_rows(part, linked=room.has_script)
    if rows.width > room.widest:
        rows = ruler_rows(part, linked=room.has_script, is_narrow=True)
    table = laid_out(part.table())
    return Laid(rows.width, lambda width: stack_titled(part.title, [rows, table.draw(width)], (), width, gap=12))
