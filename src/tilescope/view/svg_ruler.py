"""A ruler of bits as SVG: rows of 64 bits or 32, fields between their bit numbers, highest bit on the left.

     31            14 13             0
    +----------------+----------------+
    |      size      |    address     |     a field: its name, and its value if there is room
    +----------------+----------------+

A narrow ruler has lines of 32 bits; where a field's name has no room it has a letter, which `ruler_keys` explains.
"""

from __future__ import annotations

from tilescope.view.drawing_parts import Entry, Legend
from tilescope.view.number_span import number_span
from tilescope.view.ruler import NARROW_BITS, BitField, BitRuler, Piece, RulerRow
from tilescope.view.svg_shapes import Area, Block, below, box, draw_frame, ink, label, mono_width, move_group
from tilescope.view.svg_style import SMALL, TINY

_BIT_WIDTH = {64: 14.5, 32: 28.0}  # two digits and a little air
NARROW_BIT_WIDTH = _BIT_WIDTH[64]  # in lines of 32 bits
_NUMBERS = 15  # height of the bit numbers
_FIELD_HEIGHT = 36
_EMPTY_ROW = 24


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
    """The meaning of the letters in a narrow ruler, for fields whose names do not fit."""
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
        message = f"{row.label}: no named bits" if row.label else "no named bits"
        return Block(width, _EMPTY_ROW, label(0, 16, message, "small muted"))
    body = label(stub - 10, _NUMBERS + _FIELD_HEIGHT / 2 + 4, row.label, "l")
    for piece in row.pieces:
        left = stub + (row.first_bit + bits - 1 - piece.high) * bit_width
        piece_width = (piece.high - piece.low + 1) * bit_width
        if piece.field is None:
            area = Area(left, _NUMBERS, piece_width, _FIELD_HEIGHT)
            title = f"bits {number_span(piece.low, piece.high)}: no field"
            body += f'<g class="cells">{box(area, "unused", title=title)}</g>'
        else:
            body += move_group(left, 0, _ruler_piece(piece, piece.field, piece_width, linked=linked))
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
        draw_frame(area, field.colour, mark=field.mark, title=title, link=field.link if linked else ""),
        label(width / 2, _NUMBERS + (15 if value else 22), name, f"{field_ink} strong".strip()),
        label(width / 2, _NUMBERS + 29, value, field_ink),
    ]
    return f'{numbers}<g class="cells dense">{"".join(shapes)}</g>'
