"""The parts of a drawing as one standalone SVG document.

No script, no link, no font file: it opens in any browser, in a notebook and in a README. The white
background is part of the drawing, so a dark page does not swallow its text. A grid is one group a row, a rectangle
and a text a cell; everything about a cell's look is a class, so that 8,192 cells stay below a megabyte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial, singledispatch
from itertools import accumulate
from math import ceil, inf
from typing import NamedTuple

from tilescope.view.grid import Columns, Grid, Row, Spanning, Tier, number_span, placed
from tilescope.view.palette import Mark, Tint, colour_of
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
_SMALLEST_BESIDE = 0.85  # parts beside each other are drawn at least in this scale; else some go below the others
_BAND_GAP = 10  # between the pieces of a grid that is wider than its page
_MOST_BANDS = 4
_ENTRY_GAP = 22  # between the entries of a legend
_TEXT_WIDTH = 720  # text is this wide unless a grid is wider
_NARROW_TEXT = 360  # text beside a grid, and the title and notes of a narrow one
_COLUMN_GAP = 18
_BIT_WIDTH = {64: 14.5, 32: 28.0}  # two digits and a little air
NARROW_BIT_WIDTH = _BIT_WIDTH[64]  # in lines of 32 bits
_NUMBERS = 15  # height of the bit numbers
_FIELD_HEIGHT = 36
_EMPTY_ROW = 24
_HEADER_HEIGHT = 17
_HEADER_BASELINE = 12
_RULE_HEIGHT = 4
_MOST_SHAPES = 1100  # of the cells of a grid on a page, each a shape with a text and a tooltip …
_MOST_SHAPES_SAVED = 8192  # … and in a file
_WIDEST_PAINTED = 1600  # pixels of a grid of more cells, up to which its columns have room for texts
_SHRUNK_WIDTH = 430  # pixels of a wider one, whose cells have no texts: two of them stand beside each other
_SMALLEST_CELL = 3  # pixels
_SMALLEST_FRAMED = 12  # pixels: a mark on a smaller cell is a dot
_LABEL_PITCH = 14  # pixels from one label to the next


class Laid(NamedTuple):
    """How a part is laid out."""

    rigid_width: float  # the width that it cannot change; 0 for text
    draw: Callable[[float], Block]  # draws it with its text wrapped to a width


class Density(NamedTuple):
    """How large the cells of a grid are, in pixels."""

    name: str  # its class, which says the size of its texts
    cell_height: float
    font_size: int
    cell_padding: int
    header_padding: int
    least_width: int

    def air_around(self, header: str) -> int:
        """What the text of a header needs beside its width: two digits as little as in a cell, a range of numbers more."""
        return self.cell_padding if len(header) <= 2 else self.header_padding


TIGHT = Density("dense", cell_height=18.0, font_size=TINY, cell_padding=3, header_padding=5, least_width=16)
DENSE = TIGHT._replace(cell_padding=6, least_width=18)
ROOMY = Density("roomy", cell_height=25.0, font_size=BODY, cell_padding=12, header_padding=12, least_width=28)


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
    content = fitted(content, room.widest)  # a table may be wider than the text above it
    total_width = number(content.width + 2 * _MARGIN)
    total_height = number(content.height + 2 * _MARGIN)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tilescope" role="img" '
        f'width="{total_width}" height="{total_height}" viewBox="0 0 {total_width} {total_height}">'
        f"<title>{escaped(title)}</title><defs><style>{style_sheet()}</style>{hatchings()}</defs>"
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{moved(_MARGIN, _MARGIN, content.body)}</svg>\n'
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
        return Laid(room.widest, lambda _: fitted(_abreast(laid, total_width), room.widest))
    lines = [line for _, line in packed([(_width(inner), inner) for inner in laid], room.widest, _BESIDE_GAP)]
    widest_line = max(_width_beside(line) for line in lines)
    return Laid(widest_line, lambda width: below([_abreast(line, width) for line in lines], gap=_PART_GAP))


def _width(laid: Laid) -> float:
    """The width that a part needs beside others."""
    return laid.rigid_width or _NARROW_TEXT


def _width_beside(laid: Sequence[Laid]) -> float:
    """The width of parts that stand beside each other."""
    return sum(map(_width, laid)) + _BESIDE_GAP * (len(laid) - 1)


def _abreast(laid: Sequence[Laid], width: float) -> Block:
    """Parts beside each other; texts share the width that grids leave."""
    free_width = width - _BESIDE_GAP * (len(laid) - 1) - sum(inner.rigid_width for inner in laid)
    texts = sum(inner.rigid_width == 0 for inner in laid)
    text_width = max(_NARROW_TEXT, free_width / max(1, texts))
    return abreast([inner.draw(inner.rigid_width or text_width) for inner in laid], _BESIDE_GAP)


def fitted(block: Block, widest: float) -> Block:
    """The block, made smaller where it is too wide."""
    if block.width <= widest:
        return block
    scale = widest / block.width
    return Block(widest, block.height * scale, f'<g transform="scale({scale:.4f})">{block.body}</g>')


@laid_out.register
def _legend(part: Legend, _: Room = WITHOUT_LIMIT) -> Laid:
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
def _table(part: Table, _: Room = WITHOUT_LIMIT) -> Laid:
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
def _grid(part: Grid, room: Room = WITHOUT_LIMIT, *, is_dense: bool = False) -> Laid:
    block = grid_block(part, dense=is_dense, linked=room.has_script)
    if block.width > room.widest:
        block = fitted(_in_bands(part, room, is_dense=is_dense or part.is_dense), room.widest)
    return Laid(block.width, lambda _: block)


def _in_bands(grid: Grid, room: Room, *, is_dense: bool) -> Block:
    """A grid that is wider than its page, cut into pieces below each other; its notes stand below the last."""
    pieces = bands(replace(grid, notes=()), room.widest, is_dense=is_dense)
    pieces[-1] = replace(pieces[-1], notes=grid.notes)
    blocks = [grid_block(piece, dense=is_dense, linked=room.has_script) for piece in pieces]
    return below(blocks, gap=_BAND_GAP)


def grid_block(grid: Grid, *, linked: bool = False, dense: bool = False) -> Block:
    """The grid with its title, headers, labels and notes; `linked` cells bear their links, for a page with a script."""
    drawer = _GridDrawer.of(grid, DENSE if dense else own_density(grid), linked=linked)
    drawn = abreast([drawer.stub(), drawer.cells()], 0)
    text_width = max(drawer.width, _NARROW_TEXT)
    return titled(grid.title, [replace(drawn, width=drawer.width)], grid.notes, text_width, gap=6)


class GridBlocks(NamedTuple):
    """A grid as a page shows it: its labels stay in sight while its cells are scrolled."""

    labels: Block
    cells: Block
    painted: PaintedPlaces | None  # where the cells of a painted grid lie; None: every cell is a shape of its own


class PaintedPlaces(NamedTuple):
    """Where the cells of a painted grid lie, in pixels."""

    lefts: tuple[float, ...]  # of columns
    tops: tuple[float, ...]  # of rows
    width: float  # of every cell
    height: float
    font_size: int  # of their texts


def own_density(grid: Grid) -> Density:
    """How large the cells of a grid are that stands alone."""
    return DENSE if grid.is_dense else ROOMY


def grid_blocks(grid: Grid, density: Density | None = None) -> GridBlocks:
    """The labels and the cells of a grid, which stand beside each other, without title and notes."""
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
        every = ceil(_LABEL_PITCH / self.density.cell_height)  # a label every so many rows has room
        rows = below([self._row_labels(row, is_told=place % every == 0) for place, row in enumerate(self.grid.rows)])
        return replace(below([headers, rows], gap=2), width=self.columns.stub)

    def cells(self) -> Block:
        """The headers and the cells, from top to bottom."""
        headers = below([self._headers(tier) for tier in self.grid.tiers])
        rows = self._painted_rows() if self.is_painted else below([self._row_cells(row) for row in self.grid.rows])
        return replace(below([headers, rows], gap=2), width=self.width - self.columns.stub)

    def _header_names(self, tier: Tier) -> Block:
        """What stands left of a line of headers; the names of labels stand in the lowest."""
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
            cells.append(framed(area, cell.colour, mark=cell.mark, title=cell.title, link=link, goes=goes))
            fits = self.grid.column_width is None or mono_width(cell.text, self.density.font_size) <= right - left
            if fits:
                cells.append(label((left + right) / 2, self._baseline, cell.text, ink(cell.colour)))
        body = f'<g class="cells {self.density.name}">{"".join(cells)}</g>'
        if not row.ruled:
            return Block(self.width, height, body)
        body = level_line(0, self.width - self.columns.stub, 2) + moved(0, _RULE_HEIGHT, body)
        return Block(self.width, height + _RULE_HEIGHT, body)

    def places(self) -> PaintedPlaces:
        """Where the cells lie, from the first header down."""
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
        for first, item in placed(items):
            yield item, columns.starts[first], columns.ends[first + item.span - 1]


def _square(width: float, height: float) -> str:
    """The rest of a path that starts at the upper left corner of a rectangle."""
    return f"h{number(width)}v{number(height)}h-{number(width)}z"


@laid_out.register
def _ruler(part: BitRuler, room: Room = WITHOUT_LIMIT) -> Laid:
    rows = ruler_rows(part, linked=room.has_script)
    if rows.width > room.widest:
        rows = ruler_rows(part, linked=room.has_script, is_narrow=True)
    table = laid_out(part.table())
    return Laid(rows.width, lambda width: titled(part.title, [rows, table.draw(width)], (), width, gap=12))


def ruler_rows(ruler: BitRuler, *, linked: bool = False, is_narrow: bool = False) -> Block:
    """The rows of the ruler, without title and table; `linked` fields bear their links, for a page with a script.

    A narrow one has lines of 32 bits, as wide as bits are in rows of 64.
    """
    rows = ruler.narrow_rows() if is_narrow else ruler.rows()
    bits = NARROW_BITS if is_narrow else ruler.row_bits
    bit_width = NARROW_BIT_WIDTH if is_narrow else _BIT_WIDTH[bits]
    names = max((mono_width(row.label, SMALL) for row in rows if row.fields), default=0.0)
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


def _ruler_row(row: RulerRow, bits: int, stub: float, *, bit_width: float, linked: bool) -> Block:
    width = stub + bits * bit_width
    if not row.fields:
        said = f"{row.label}: no named bits" if row.label else "no named bits"
        return Block(width, _EMPTY_ROW, label(0, 16, said, "small muted"))
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
    both = mono_width(f"{piece.high} {piece.low}", TINY)
    if piece.high == piece.low:
        numbers = label(width / 2, 11, str(piece.low), "h")
    elif both > width:
        numbers = label(2, 11, str(piece.high), "h start")
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
