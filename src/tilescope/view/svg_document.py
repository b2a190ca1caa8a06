"""The parts of a drawing as one standalone SVG document.

No script, no link, no font file: it opens in any browser, in a notebook and in a README. The white
background is part of the drawing, so a dark page does not swallow its text.
"""

from __future__ import annotations

from functools import singledispatch

from tilescope.view.grid import Grid, number_span
from tilescope.view.palette import colour_of
from tilescope.view.parts import Beside, Legend, Paragraph, Part, Table
from tilescope.view.ruler import BitRuler, Piece, RulerRow
from tilescope.view.svg_canvas import (
    BODY,
    SMALL,
    TINY,
    Block,
    below,
    beside,
    box,
    escaped,
    hatchings,
    label,
    mono_width,
    moved,
    number,
    prose,
    style_sheet,
    text_width,
)
from tilescope.view.svg_grid import frame, grid_block, grid_width, ink_class

_MARGIN = 24
_PART_GAP = 26
_BESIDE_GAP = 40
_TEXT_WIDTH = 720  # text is this wide where no grid is wider
_NARROW_TEXT = 340  # text beside a grid
_COLUMN_GAP = 18
_BIT_WIDTH = {64: 17, 32: 28}  # two digits and a little air
_NUMBERS = 15  # height of the bit numbers
_FIELD_HEIGHT = 36
_EMPTY_ROW = 24


def document(title: str, parts: tuple[Part, ...]) -> str:
    """A whole SVG document: the title, then the parts below each other."""
    width = max(_TEXT_WIDTH, *(_rigid_width(part) for part in parts), 0)
    heading = prose(title, width, size=19, classes="title")
    heading = Block(heading.width, heading.height + 6, heading.body)
    content = below([heading, *(block_of(part, width) for part in parts)], gap=_PART_GAP)
    total_width, total_height = number(content.width + 2 * _MARGIN), number(content.height + 2 * _MARGIN)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tilescope" role="img" '
        f'width="{total_width}" height="{total_height}" viewBox="0 0 {total_width} {total_height}">'
        f"<title>{escaped(title)}</title><defs><style>{style_sheet()}</style>{hatchings()}</defs>"
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{moved(_MARGIN, _MARGIN, content.body)}</svg>\n'
    )


def _rigid_width(part: Part) -> float:
    """The width that a part needs and cannot change; 0 for text."""
    if isinstance(part, Beside):
        return sum(_rigid_width(each) or _NARROW_TEXT for each in part.parts) + _BESIDE_GAP * (len(part.parts) - 1)
    if isinstance(part, Grid):
        return grid_width(part)
    return ruler_rows(part).width if isinstance(part, BitRuler) else 0


@singledispatch
def block_of(part: object, width: float) -> Block:
    """A part as a block; text is wrapped to `width`."""
    raise NotImplementedError(type(part), width)


@block_of.register
def _paragraph(part: Paragraph, width: float) -> Block:
    return prose(part.text, width)


@block_of.register
def _grid(part: Grid, width: float) -> Block:  # noqa: ARG001  a grid has its own width
    return grid_block(part)


@block_of.register
def _ruler(part: BitRuler, width: float) -> Block:
    table = Table(part.table_rows(), part.table_headings(), notes=part.notes)
    return below([_subtitle(part.title, width), ruler_rows(part), block_of(table, width)], gap=12)


@block_of.register
def _beside(part: Beside, width: float) -> Block:
    rigid = [_rigid_width(each) for each in part.parts]
    flexible = rigid.count(0) or 1
    rest = max(_NARROW_TEXT, (width - sum(rigid) - _BESIDE_GAP * (len(rigid) - 1)) / flexible)
    return beside([block_of(each, fixed or rest) for each, fixed in zip(part.parts, rigid, strict=True)], _BESIDE_GAP)


@block_of.register
def _legend(part: Legend, width: float) -> Block:
    x = y = widest = 0.0
    body = []
    for entry in part.entries:
        colour = colour_of(entry.colour)
        swatch = max(24.0, mono_width(entry.sample, BODY) + 10)
        wide = swatch + 8 + text_width(entry.text)
        if x and x + wide > width:
            x, y = 0.0, y + 26
        sample = label(swatch / 2, 16, entry.sample, ink_class(colour))
        surface = box(0, swatch, 22, colour.name) + frame(entry.mark, 0, 0, swatch, 22)
        said = moved(swatch + 8, 2, prose(entry.text, width).body)
        body.append(moved(x, y, f'<g class="cells roomy">{surface}{sample}</g>{said}'))
        x += wide + 22
        widest = max(widest, x - 22)
    entries = Block(widest, y + 24, "".join(body))
    return below([_subtitle(part.title, width), entries], gap=8)


@block_of.register
def _table(part: Table, width: float) -> Block:
    rows = [*([part.headings] if part.headings else []), *part.rows]
    widths = [max((text_width(row[column]) for row in rows), default=0.0) for column in range(part.columns)]
    starts = [sum(widths[:column]) + _COLUMN_GAP * column for column in range(part.columns)]
    last = max(_NARROW_TEXT, width - starts[-1]) if starts else width
    lines = []
    for row in rows:
        wides = [*(width + 1 for width in widths[:-1]), last]
        shown = [
            prose(text, wide, classes="head" * part.names(row, column))
            for column, (text, wide) in enumerate(zip(row, wides, strict=True))
        ]
        rights = [start + block.width for start, block in zip(starts, shown, strict=True)]
        shifts = [(widths[column] - block.width) * part.right(column) for column, block in enumerate(shown)]
        body = "".join(
            moved(start + shift, 0, block.body) for start, shift, block in zip(starts, shifts, shown, strict=True)
        )
        lines.append(Block(max(rights), max(block.height for block in shown) + 3, body))
    notes = [prose(note, width, size=SMALL, classes="small muted") for note in part.notes]
    return below([_subtitle(part.title, width), below(lines), *notes], gap=8)


def _subtitle(title: str, width: float) -> Block:
    return prose(title, width, size=15, classes="sub")


def ruler_rows(ruler: BitRuler, *, linked: bool = False) -> Block:
    """The rows of the ruler, without title and table; `linked` fields bear their links, for a page with a script."""
    rows = ruler.rows()
    names = max((mono_width(ruler.row_label(row), SMALL) for row in rows), default=0.0)
    stub = names + 12 if names else 0.0
    return below([_ruler_row(ruler, row, stub, linked) for row in rows], gap=6)


def _ruler_row(ruler: BitRuler, row: RulerRow, stub: float, linked: bool) -> Block:
    bit_width = _BIT_WIDTH[ruler.row_bits]
    width = ruler.row_bits * bit_width
    name = ruler.row_label(row)
    if not row.pieces:
        text = label(stub - 10, 16, name, "l") + label(stub, 16, "no named bits", "small muted")
        return Block(stub + width, _EMPTY_ROW, text)
    parts = [label(stub - 10, _NUMBERS + _FIELD_HEIGHT / 2 + 4, name, "l")]
    for low, high, piece in row.segments(ruler.row_bits):
        left, wide = stub + (ruler.row_bits - 1 - high) * bit_width, (high - low + 1) * bit_width
        if piece is not None:
            parts.append(moved(left, 0, _ruler_piece(piece, wide, piece.field.link if linked else "")))
        elif wide:
            unnamed = box(left, wide, _FIELD_HEIGHT, "unused", f"bits {number_span(low, high)}: no field", y=_NUMBERS)
            parts.append(f'<g class="cells">{unnamed}</g>')
    return Block(stub + width, _NUMBERS + _FIELD_HEIGHT, "".join(parts))


def _ruler_piece(piece: Piece, width: float, link: str) -> str:
    field = piece.field
    colour = colour_of(field.colour)
    numbers = label(2, 11, str(piece.high), "h start") + label(width - 2, 11, str(piece.low), "h end")
    if piece.high == piece.low:
        numbers = label(width / 2, 11, str(piece.low), "h")
    shown = field.name if mono_width(field.name, TINY) + 8 <= width else piece.key
    value = field.value if mono_width(field.value, TINY) + 4 <= width or len(field.value) == 1 else ""
    title = f"bits {piece.span}: {field.name}" + (f" = {field.value}" if field.value else "")
    title += f" ({field.meaning})" if field.meaning else ""
    ink = ink_class(colour)
    name_y = _NUMBERS + (15 if value else 22)
    return (
        f'{numbers}<g class="cells dense">'
        + box(0, width, _FIELD_HEIGHT, colour.name, title, y=_NUMBERS, link=link)
        + frame(field.mark, 0, _NUMBERS, width, _FIELD_HEIGHT)
        + label(width / 2, name_y, shown, f"{ink} strong".strip())
        + label(width / 2, _NUMBERS + 29, value, ink)
        + "</g>"
    )
