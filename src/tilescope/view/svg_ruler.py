"""A bit ruler as SVG: fields to scale, their bit numbers above, names or keys inside, a table below."""

from __future__ import annotations

from tilescope.view.palette import colour_of
from tilescope.view.ruler import BitRuler, Piece, RulerRow, bit_span
from tilescope.view.svg_canvas import SMALL, TINY, Block, below, box, label, mono_width, moved
from tilescope.view.svg_grid import frame, ink_class

_BIT_WIDTH = {64: 17, 32: 28}  # two digits and a little air
_NUMBERS = 15  # height of the bit numbers
_BOX = 36
_EMPTY_ROW = 24


def ruler_block(ruler: BitRuler) -> Block:
    """The rows of the ruler, without title and table."""
    rows = ruler.rows()
    names = max((mono_width(ruler.row_label(row), SMALL) for row in rows), default=0.0)
    stub = names + 12 if names else 0.0
    return below([_row(ruler, row, stub) for row in rows], gap=6)


def _row(ruler: BitRuler, row: RulerRow, stub: float) -> Block:
    bit_width = _BIT_WIDTH[ruler.row_bits]
    width = ruler.row_bits * bit_width
    name = ruler.row_label(row)
    if not row.pieces:
        text = label(stub - 10, 16, name, "l") + label(stub, 16, "no named bits", "small muted")
        return Block(stub + width, _EMPTY_ROW, text)
    parts = [label(stub - 10, _NUMBERS + _BOX / 2 + 4, name, "l")]
    bit = ruler.row_bits
    for piece in row.pieces:
        left = stub + (ruler.row_bits - 1 - piece.high) * bit_width
        wide = (piece.high - piece.low + 1) * bit_width
        parts += [_unnamed(ruler.row_bits, bit, piece.high + 1, stub), moved(left, 0, _piece(piece, wide))]
        bit = piece.low
    parts.append(_unnamed(ruler.row_bits, bit, 0, stub))
    return Block(stub + width, _NUMBERS + _BOX, "".join(parts))


def _unnamed(row_bits: int, above: int, low: int, stub: float) -> str:
    """The bits from `low` to below `above`, which no field claims."""
    bit_width = _BIT_WIDTH[row_bits]
    if above <= low:
        return ""
    left = stub + (row_bits - above) * bit_width
    title = f"bits {bit_span(low, above - 1)}: no field"
    return f'<g class="cells">{box(left, (above - low) * bit_width, _BOX, "unused", title, y=_NUMBERS)}</g>'


def _piece(piece: Piece, width: float) -> str:
    field = piece.field
    colour = colour_of(field.colour)
    if piece.high == piece.low:
        numbers = label(width / 2, 11, str(piece.low), "h")
    else:
        numbers = label(2, 11, str(piece.high), "h start") + label(width - 2, 11, str(piece.low), "h end")
    shown = field.name if mono_width(field.name, TINY) + 8 <= width else piece.key
    value = field.value if mono_width(field.value, TINY) + 4 <= width or len(field.value) == 1 else ""
    title = f"bits {piece.span}: {field.name}" + (f" = {field.value}" if field.value else "")
    title += f" ({field.meaning})" if field.meaning else ""
    ink = ink_class(colour)
    name_y = _NUMBERS + (15 if value else 22)
    return (
        f'{numbers}<g class="cells dense">'
        + box(0, width, _BOX, colour.name, title, y=_NUMBERS, link=field.link)
        + frame(field.mark, 0, _NUMBERS, width, _BOX)
        + label(width / 2, name_y, shown, f"{ink} strong".strip())
        + label(width / 2, _NUMBERS + 29, value, ink)
        + "</g>"
    )
