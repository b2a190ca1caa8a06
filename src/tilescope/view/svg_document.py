"""The parts of a drawing as one standalone SVG document.

No script, no link, no font file: it opens in any browser, in a notebook and in a README. The white
background is part of the drawing, so a dark page does not swallow its text. A grid is one group a row, a rectangle
and a text a cell; everything about a cell's look is a class, so that 8,192 cells stay below a megabyte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial, singledispatch
from itertools import accumulate
from math import inf
from typing import NamedTuple

from tilescope.view.grid import Columns, Grid, Row, Spanning, Tier, number_span, placed
from tilescope.view.parts import Beside, Entry, Legend, Part, Table, packed
from tilescope.view.ruler import NARROW_BITS, BitField, BitRuler, Piece, RulerRow
from tilescope.view.svg_shapes import (
    Area,
    Block,
    abreast,
    below,
    box,
    escaped,
    framed,
    ink,
    label,
    level_line,
    mono_width,
    moved,
    number,
    prose,
    titled,
)
from tilescope.view.svg_style import BODY, SMALL, TINY, TITLE, hatchings, style_sheet

_MARGIN = 24
_PART_GAP = 26
_BESIDE_GAP = 40
_ENTRY_GAP = 22  # between the entries of a legend
_TEXT_WIDTH = 720  # text is this wide unless a grid is wider
_NARROW_TEXT = 360  # text beside a grid, and the title and notes of a narrow one
_COLUMN_GAP = 18
_BIT_WIDTH = {64: 17, 32: 28}  # two digits and a little air
NARROW_BIT_WIDTH = _BIT_WIDTH[64]  # in lines of 32 bits
_NUMBERS = 15  # height of the bit numbers
_FIELD_HEIGHT = 36
_EMPTY_ROW = 24
_HEADER_HEIGHT = 17
_HEADER_BASELINE = 12
_RULE_HEIGHT = 4


class Laid(NamedTuple):
    """How a part is laid out."""

    rigid_width: float  # the width that it cannot change; 0 for text
    draw: Callable[[float], Block]  # draws it with its text wrapped to a width


class Density(NamedTuple):
    """How large the cells of a grid are, in pixels."""

    name: str  # its class
    cell_height: float
    font_size: int
    cell_padding: int
    header_padding: int
    least_width: int


_DENSE = Density("dense", cell_height=18.0, font_size=TINY, cell_padding=6, header_padding=5, least_width=18)
_ROOMY = Density("roomy", cell_height=25.0, font_size=BODY, cell_padding=12, header_padding=12, least_width=28)


def document(title: str, parts: tuple[Part, ...]) -> str:
    """A whole SVG document: the title, then the parts below each other."""
    laid = [laid_out(part) for part in parts]
    width = max([_TEXT_WIDTH, *(part.rigid_width for part in laid)])
    heading = prose(title, width, size=TITLE, classes="title")
    heading = replace(heading, height=heading.height + 6)
    content = below([heading, *(part.draw(width) for part in laid)], gap=_PART_GAP)
    total_width = number(content.width + 2 * _MARGIN)
    total_height = number(content.height + 2 * _MARGIN)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tilescope" role="img" '
        f'width="{total_width}" height="{total_height}" viewBox="0 0 {total_width} {total_height}">'
        f"<title>{escaped(title)}</title><defs><style>{style_sheet()}</style>{hatchings()}</defs>"
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{moved(_MARGIN, _MARGIN, content.body)}</svg>\n'
    )


@singledispatch
def laid_out(part: object) -> Laid:
    """The width that a part cannot change, and how it is drawn."""
    raise NotImplementedError(type(part))


@laid_out.register
def _text(part: str) -> Laid:
    return Laid(0, partial(prose, part))


@laid_out.register
def _beside(part: Beside) -> Laid:
    laid = [
        _grid(inner, is_dense=part.is_dense) if isinstance(inner, Grid) else laid_out(inner) for inner in part.parts
    ]
    gaps = _BESIDE_GAP * (len(laid) - 1)
    texts = sum(inner.rigid_width == 0 for inner in laid)

    def draw(width: float) -> Block:
        free = width - gaps - sum(inner.rigid_width for inner in laid)
        text_width = max(_NARROW_TEXT, free / max(1, texts))
        return abreast([inner.draw(inner.rigid_width or text_width) for inner in laid], _BESIDE_GAP)

    return Laid(sum(inner.rigid_width or _NARROW_TEXT for inner in laid) + gaps, draw)


@laid_out.register
def _legend(part: Legend) -> Laid:
    def draw(width: float) -> Block:
        entries = []
        for entry in part.entries:
            text = prose(entry.text, width)
            swatch = max(24.0, mono_width(entry.sample, BODY) + 10)
            sample = label(swatch / 2, 16, entry.sample, ink(entry.colour))
            surface = framed(Area(0, 0, swatch, 22), entry.colour, mark=entry.mark)
            body = f'<g class="cells roomy">{surface}{sample}</g>{moved(swatch + 8, 2, text.body)}'
            entries.append(Block(swatch + 8 + text.width, max(24.0, text.height + 2), body))
        lines = packed([(entry.width, entry) for entry in entries], width, _ENTRY_GAP)
        return titled(part.title, [abreast(line, _ENTRY_GAP) for _, line in lines], (), width)

    return Laid(0, draw)


@laid_out.register
def _table(part: Table) -> Laid:
    def cell(column: int, text: str, is_name: bool, width: float = inf) -> Block:
        classes = []
        if is_name:
            classes.append("head")
        if part.align[column] == "r":
            classes.append("end")
        return prose(text, width, classes=" ".join(classes))

    lines = part.lines()
    rows = [[cell(column, *said) for column, said in enumerate(line)] for line in lines]
    widths = [max(block.width for block in column) for column in zip(*rows, strict=True)]
    starts = [sum(widths[:column]) + _COLUMN_GAP * column for column in range(len(widths))]
    anchors = [  # of texts: their left ends, or their right ones
        start + width if side == "r" else start for start, width, side in zip(starts, widths, part.align, strict=True)
    ]

    def draw(width: float) -> Block:
        drawn = []
        for line, blocks in zip(lines, rows, strict=True):
            last = cell(len(line) - 1, *line[-1], max(_NARROW_TEXT, width - starts[-1]))  # wraps
            fitted = [*blocks[:-1], last]
            body = "".join(moved(anchor, 0, block.body) for anchor, block in zip(anchors, fitted, strict=True))
            height = max(block.height for block in fitted)
            drawn.append(Block(starts[-1] + last.width, height + 3, body))
        return titled(part.title, [below(drawn)], part.notes, width)

    return Laid(0, draw)


@laid_out.register
def _grid(part: Grid, *, is_dense: bool = False) -> Laid:
    block = grid_block(part, dense=is_dense)
    return Laid(block.width, lambda _: block)


def grid_block(grid: Grid, *, linked: bool = False, dense: bool = False) -> Block:
    """The grid with its title, headers, labels and notes; `linked` cells bear their links, for a page with a script."""
    drawer = _GridDrawer(grid, _DENSE if dense or grid.is_dense else _ROOMY, linked=linked)
    headers = below([drawer.header(tier) for tier in grid.tiers])
    rows = below([drawer.row(row) for row in grid.rows])
    drawn = below([headers, rows], gap=2)
    text_width = max(drawer.width, _NARROW_TEXT)
    return titled(grid.title, [replace(drawn, width=drawer.width)], grid.notes, text_width, gap=6)


def columns_that_fit(grid: Grid, width: float, *, dense: bool = False) -> int:
    """How many of the grid's first columns can be drawn, behind its labels, in this width."""
    columns = _GridDrawer(grid, _DENSE if dense or grid.is_dense else _ROOMY, linked=False).columns
    return sum(columns.stub + end <= width for end in columns.ends)


class _GridDrawer:
    """Draws the headers and rows of a grid, whose columns are as wide as they need to be."""

    def __init__(self, grid: Grid, density: Density, *, linked: bool) -> None:
        self.grid = grid
        self.density = density
        self.linked = linked
        self.columns = Columns.of(
            grid,
            label=lambda text: mono_width(text, SMALL) + 10,
            cell=lambda cell: mono_width(cell.text, density.font_size) + density.cell_padding,
            header=lambda header: mono_width(header.text, TINY) + density.header_padding,
            least=density.least_width,
            gap=5,
            unnamed=6,
        )
        self.width = self.columns.stub + (self.columns.ends[-1] if self.columns.ends else 0)
        self.label_ends = [*accumulate(self.columns.label_widths)]

    def header(self, tier: Tier) -> Block:
        """A line of headers; the names of labels stand in the lowest."""
        names = self.grid.label_names if tier is self.grid.tiers[-1] else ()
        body = self._labels(names, _HEADER_BASELINE)
        body += label(self.columns.stub - 8, _HEADER_BASELINE, tier.name, "l")
        for header, left, right in self._edges(tier.headers):
            body += label((left + right) / 2, _HEADER_BASELINE, header.text, "h")
            if header.span > 1:
                body += level_line(left + 1, right - 1, _HEADER_HEIGHT - 1)
        return Block(self.width, _HEADER_HEIGHT, body)

    def row(self, row: Row) -> Block:
        """A row of cells behind its labels."""
        height = self.density.cell_height
        baseline = float(round(height / 2 + self.density.font_size * 0.35))
        cells = []
        for cell, left, right in self._edges(row.cells):
            area = Area(left, 0, right - left, height)
            link = cell.link if self.linked else ""
            cells.append(framed(area, cell.colour, mark=cell.mark, title=cell.title, link=link))
            cells.append(label((left + right) / 2, baseline, cell.text, ink(cell.colour)))
        body = f'{self._labels(row.labels, baseline)}<g class="cells {self.density.name}">{"".join(cells)}</g>'
        if not row.ruled:
            return Block(self.width, height, body)
        body = level_line(self.columns.stub, self.width, 2) + moved(0, _RULE_HEIGHT, body)
        return Block(self.width, height + _RULE_HEIGHT, body)

    def _labels(self, texts: tuple[str, ...], y: float) -> str:
        return "".join(label(end - 10, y, text, "l") for text, end in zip(texts, self.label_ends, strict=False))

    def _edges(self, items: tuple[Spanning, ...]) -> Iterator[tuple[Spanning, float, float]]:
        """Cells or headers with their left and right edges."""
        columns = self.columns
        for first, item in placed(items):
            yield item, columns.stub + columns.starts[first], columns.stub + columns.ends[first + item.span - 1]


@laid_out.register
def _ruler(part: BitRuler) -> Laid:
    rows = ruler_rows(part)
    table = laid_out(part.table())
    return Laid(rows.width, lambda width: titled(part.title, [rows, table.draw(width)], (), width, gap=12))


def ruler_rows(ruler: BitRuler, *, linked: bool = False, is_narrow: bool = False) -> Block:
    """The rows of the ruler, without title and table; `linked` fields bear their links, for a page with a script.

    A narrow one has lines of 32 bits, as wide as bits are in rows of 64.
    """
    rows = ruler.narrow_rows() if is_narrow else ruler.rows()
    bits = NARROW_BITS if is_narrow else ruler.row_bits
    bit_width = NARROW_BIT_WIDTH if is_narrow else _BIT_WIDTH[bits]
    names = max(mono_width(row.label, SMALL) for row in rows)
    stub = names + 12 if names else 0.0
    return below([_ruler_row(row, bits, stub, bit_width=bit_width, linked=linked) for row in rows], gap=6)


def ruler_keys(ruler: BitRuler) -> Legend:
    """What the letters stand for that a narrow ruler has where a field's name has no room."""
    entries = []
    word = ""
    for row in ruler.narrow_rows():
        word = row.label or word
        for piece in row.pieces:
            width = (piece.high - piece.low + 1) * NARROW_BIT_WIDTH
            if piece.field is not None and not _has_room(piece.field, width):
                entries.append(Entry(f"{word} {piece.field.name}".strip(), piece.field.colour, sample=piece.key))
    return Legend(tuple(entries))


def _has_room(field: BitField, width: float) -> bool:
    """Whether the name of a field fits a piece of it."""
    return mono_width(field.name, TINY) + 8 <= width


def _ruler_row(row: RulerRow, bits: int, stub: float, *, bit_width: int, linked: bool) -> Block:
    width = stub + bits * bit_width
    if not row.fields:
        text = label(stub - 10, 16, row.label, "l") + label(stub, 16, "no named bits", "small muted")
        return Block(width, _EMPTY_ROW, text)
    body = label(stub - 10, _NUMBERS + _FIELD_HEIGHT / 2 + 4, row.label, "l")
    for piece in row.pieces:
        left = stub + (row.first_bit + bits - 1 - piece.high) * bit_width
        piece_width = (piece.high - piece.low + 1) * bit_width
        if piece.field is None:
            area = Area(left, _NUMBERS, piece_width, _FIELD_HEIGHT)
            title = f"bits {number_span(piece.low, piece.high)}: no field"
            body += f'<g class="cells">{box(area, "unused", title=title)}</g>'
        else:
            body += moved(left, 0, _ruler_piece(piece, piece.field, piece_width, linked=linked))
    return Block(width, _NUMBERS + _FIELD_HEIGHT, body)


def _ruler_piece(piece: Piece, field: BitField, width: float, *, linked: bool) -> str:
    if piece.high == piece.low:
        numbers = label(width / 2, 11, str(piece.low), "h")
    else:
        numbers = label(2, 11, str(piece.high), "h start") + label(width - 2, 11, str(piece.low), "h end")
    name = field.name if _has_room(field, width) else piece.key
    has_room = mono_width(field.value, TINY) + 4 <= width or len(field.value) == 1
    value = field.value if has_room else ""
    title = f"bits {number_span(piece.low, piece.high)}: {field.name}"
    if field.value:
        title += f" = {field.value}"
    if field.meaning:
        title += f" ({field.meaning})"
    area = Area(0, _NUMBERS, width, _FIELD_HEIGHT)
    field_ink = ink(field.colour)
    shapes = [
        framed(area, field.colour, mark=field.mark, title=title, link=field.link if linked else ""),
        label(width / 2, _NUMBERS + (15 if value else 22), name, f"{field_ink} strong".strip()),
        label(width / 2, _NUMBERS + 29, value, field_ink),
    ]
    return f'{numbers}<g class="cells dense">{"".join(shapes)}</g>'
