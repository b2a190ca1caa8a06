"""The parts of a drawing as one standalone SVG document.

No script, no link, no font file: it opens in any browser, in a notebook and in a README. The white
background is part of the drawing, so a dark page does not swallow its text. A grid is one group a row, a rectangle
and a text a cell; everything about a cell's look is a class, so that 8,192 cells stay below a megabyte.
"""

from __future__ import annotations

from functools import singledispatch
from itertools import accumulate
from math import ceil
from typing import NamedTuple

from tilescope.view import svg_canvas as canvas
from tilescope.view.grid import Columns, Grid, Measure, Row, Tier, number_span, placed
from tilescope.view.palette import colour_of
from tilescope.view.parts import Beside, Legend, Part, Table, packed
from tilescope.view.ruler import BitRuler, Piece, RulerRow
from tilescope.view.svg_canvas import BODY, SMALL, TINY, Block, below, label, mono_width, moved, prose

_MARGIN = 24
_PART_GAP = 26
_BESIDE_GAP = 40
_TEXT_WIDTH = 720  # text is this wide unless a grid is wider
_NARROW_TEXT = 340  # text beside a grid
_COLUMN_GAP = 18
_BIT_WIDTH = {64: 17, 32: 28}  # two digits and a little air
_NUMBERS = 15  # height of the bit numbers
_FIELD_HEIGHT = 36
_EMPTY_ROW = 24
_DENSE_COLUMNS = 24  # grids with more columns, or more rows than this, get small cells
_DENSE_ROWS = 40
_NOTE_WIDTH = 300  # notes under a narrow grid may be this wide
_HEADER_HEIGHT = 17
_RULE_HEIGHT = 4


def document(title: str, parts: tuple[Part, ...]) -> str:
    """A whole SVG document: the title, then the parts below each other."""
    width = max(_TEXT_WIDTH, *(_rigid_width(part) for part in parts), 0)
    heading = prose(title, width, size=19, classes="title")
    heading = Block(heading.width, heading.height + 6, heading.body)
    content = below([heading, *(block_of(part, width) for part in parts)], gap=_PART_GAP)
    total_width, total_height = (canvas.number(size + 2 * _MARGIN) for size in (content.width, content.height))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tilescope" role="img" '
        f'width="{total_width}" height="{total_height}" viewBox="0 0 {total_width} {total_height}">'
        f"<title>{canvas.escaped(title)}</title><defs><style>{canvas.style_sheet()}</style>{canvas.hatchings()}</defs>"
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{moved(_MARGIN, _MARGIN, content.body)}</svg>\n'
    )


def _rigid_width(part: Part) -> float:
    """The width that a part needs and cannot change; 0 for text."""
    if isinstance(part, Beside):
        return sum(_rigid_width(inner) or _NARROW_TEXT for inner in part.parts) + _BESIDE_GAP * (len(part.parts) - 1)
    if isinstance(part, Grid):
        return grid_width(part)
    return ruler_rows(part).width if isinstance(part, BitRuler) else 0


@singledispatch
def block_of(part: object, width: float) -> Block:
    """A part as a block; text is wrapped to `width`."""
    raise NotImplementedError(type(part), width)


@block_of.register
def _sentences(part: str, width: float) -> Block:
    return prose(part, width)


def _subtitle(title: str, width: float) -> Block:
    return prose(title, width, size=15, classes="sub")


def _notes(notes: tuple[str, ...], width: float) -> list[Block]:
    return [prose(note, width, size=SMALL, classes="small muted") for note in notes]


@block_of.register
def _beside(part: Beside, width: float) -> Block:
    rigid = [_rigid_width(inner) for inner in part.parts]
    rest = max(_NARROW_TEXT, (width - sum(rigid) - _BESIDE_GAP * (len(rigid) - 1)) / (rigid.count(0) or 1))
    blocks = [block_of(inner, fixed or rest) for inner, fixed in zip(part.parts, rigid, strict=True)]
    return canvas.beside(blocks, _BESIDE_GAP)


@block_of.register
def _legend(part: Legend, width: float) -> Block:
    entries = []
    for entry in part.entries:
        colour, said = colour_of(entry.colour), prose(entry.text, width)
        swatch = max(24.0, mono_width(entry.sample, BODY) + 10)
        surface = canvas.framed_box(colour, 0, 0, swatch, 22, mark=entry.mark)
        sample = label(swatch / 2, 16, entry.sample, canvas.ink_class(colour))
        body = f'<g class="cells roomy">{surface}{sample}</g>{moved(swatch + 8, 2, said.body)}'
        entries.append(Block(swatch + 8 + said.width, max(24.0, said.height + 2), body))
    lines = packed([(entry.width, entry) for entry in entries], width, 22)
    return below([_subtitle(part.title, width), *(canvas.beside(line, 22) for _, line in lines)], gap=8)


@block_of.register
def _table(part: Table, width: float) -> Block:
    rows = [*([part.headings] if part.headings else []), *part.rows]
    widths = [max((canvas.text_width(row[column]) for row in rows), default=0.0) for column in range(part.columns)]
    starts = [sum(widths[:column]) + _COLUMN_GAP * column for column in range(part.columns)]
    wides = [*(wide + 1 for wide in widths[:-1]), max(_NARROW_TEXT, width - starts[-1])]
    lines = []
    for row in rows:
        body, right, height = [], 0.0, 0.0
        for column, (text, start) in enumerate(zip(row, starts, strict=True)):
            block = prose(text, wides[column], classes="head" if part.names(row, column) else "")
            shift = widths[column] - block.width if part.right(column) else 0
            body.append(moved(start + shift, 0, block.body))
            right, height = start + block.width, max(height, block.height)
        lines.append(Block(right, height + 3, "".join(body)))
    return below([_subtitle(part.title, width), below(lines), *_notes(part.notes, width)], gap=8)


class _Geometry(NamedTuple):
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
    )


_DENSE, _ROOMY = _measure(TINY, 6.0, 5.0, 18.0), _measure(BODY, 12.0, 12.0, 28.0)


@block_of.register
def _grid(part: Grid, width: float) -> Block:  # noqa: ARG001  a grid has its own width
    return grid_block(part)


def grid_block(grid: Grid, *, linked: bool = False) -> Block:
    """The grid with its title, headers, labels and notes; `linked` cells bear their links, for a page with a script."""
    geometry = _Geometry.of(grid)
    title, *notes = _words(grid, geometry.width)
    headers = [_header_line(grid, tier, geometry) for tier in grid.tiers]
    rows = below([_row_line(row, geometry, linked) for row in grid.rows])
    body = below([below(headers), rows], gap=2)
    return below([title, Block(geometry.width, body.height, body.body), *notes], gap=6)


def grid_width(grid: Grid) -> float:
    """The width of `grid_block`, without drawing it."""
    width = _Geometry.of(grid).width
    return max(width, *(block.width for block in _words(grid, width)))


def _words(grid: Grid, width: float) -> list[Block]:
    """The title above and the notes below a grid of `width`."""
    wide = max(width, _NOTE_WIDTH)
    return [_subtitle(grid.title, wide), *_notes(grid.notes, wide)]


def _header_line(grid: Grid, tier: Tier, geometry: _Geometry) -> Block:
    names = grid.label_names if tier is grid.tiers[-1] else ()
    parts = [geometry.labels(names, 12.0), label(geometry.stub - 8, 12, tier.name, "l")]
    for first, header in placed(tier.headers):
        left, right = geometry.edges(first, header.span)
        parts.append(label((left + right) / 2, 12, header.text, "h"))
        parts += [canvas.line(left + 1, right - 1, _HEADER_HEIGHT - 1)] if header.span > 1 else []
    return Block(geometry.width, _HEADER_HEIGHT, "".join(parts))


def _row_line(row: Row, geometry: _Geometry, linked: bool) -> Block:
    height, size, density = (18.0, TINY, "dense") if geometry.dense else (25.0, BODY, "roomy")
    baseline = float(round(height / 2 + size * 0.35))
    cells = []
    for first, cell in placed(row.cells):
        left, right = geometry.edges(first, cell.span)
        colour, link = colour_of(cell.colour), cell.link if linked else ""
        cells.append(
            canvas.framed_box(colour, left, 0, right - left, height, mark=cell.mark, title=cell.title, link=link)
        )
        cells.append(label((left + right) / 2, baseline, cell.text, canvas.ink_class(colour)))
    body = f'{geometry.labels(row.labels, baseline)}<g class="cells {density}">{"".join(cells)}</g>'
    if row.ruled:
        body = canvas.line(geometry.stub, geometry.width, 2) + moved(0, _RULE_HEIGHT, body)
        height += _RULE_HEIGHT
    return Block(geometry.width, height, body)


@block_of.register
def _ruler(part: BitRuler, width: float) -> Block:
    table = Table(part.table_rows(), part.table_headings(), notes=part.notes)
    return below([_subtitle(part.title, width), ruler_rows(part), block_of(table, width)], gap=12)


def ruler_rows(ruler: BitRuler, *, linked: bool = False) -> Block:
    """The rows of the ruler, without title and table; `linked` fields bear their links, for a page with a script."""
    rows = ruler.rows()
    names = max((mono_width(ruler.row_label(row), SMALL) for row in rows), default=0.0)
    stub = names + 12 if names else 0.0
    return below([_ruler_row(ruler, row, stub, linked) for row in rows], gap=6)


def _ruler_row(ruler: BitRuler, row: RulerRow, stub: float, linked: bool) -> Block:
    bit_width = _BIT_WIDTH[ruler.row_bits]
    width = stub + ruler.row_bits * bit_width
    name = ruler.row_label(row)
    if not row.pieces:
        text = label(stub - 10, 16, name, "l") + label(stub, 16, "no named bits", "small muted")
        return Block(width, _EMPTY_ROW, text)
    parts = [label(stub - 10, _NUMBERS + _FIELD_HEIGHT / 2 + 4, name, "l")]
    for low, high, piece in row.segments(ruler.row_bits):
        left, wide = stub + (ruler.row_bits - 1 - high) * bit_width, (high - low + 1) * bit_width
        if piece is not None:
            parts.append(moved(left, 0, _ruler_piece(piece, wide, piece.field.link if linked else "")))
        elif wide:
            title = f"bits {number_span(low, high)}: no field"
            parts.append(f'<g class="cells">{canvas.box(left, wide, _FIELD_HEIGHT, "unused", title, y=_NUMBERS)}</g>')
    return Block(width, _NUMBERS + _FIELD_HEIGHT, "".join(parts))


def _ruler_piece(piece: Piece, width: float, link: str) -> str:
    field, colour = piece.field, colour_of(piece.field.colour)
    numbers = label(2, 11, str(piece.high), "h start") + label(width - 2, 11, str(piece.low), "h end")
    if piece.high == piece.low:
        numbers = label(width / 2, 11, str(piece.low), "h")
    shown = field.name if mono_width(field.name, TINY) + 8 <= width else piece.key
    value = field.value if mono_width(field.value, TINY) + 4 <= width or len(field.value) == 1 else ""
    title = f"bits {number_span(piece.low, piece.high)}: {field.name}" + (f" = {field.value}" if field.value else "")
    title += f" ({field.meaning})" if field.meaning else ""
    ink = canvas.ink_class(colour)
    return (
        f'{numbers}<g class="cells dense">'
        + canvas.framed_box(colour, 0, _NUMBERS, width, _FIELD_HEIGHT, mark=field.mark, title=title, link=link)
        + label(width / 2, _NUMBERS + (15 if value else 22), shown, f"{ink} strong".strip())
        + label(width / 2, _NUMBERS + 29, value, ink)
        + "</g>"
    )
