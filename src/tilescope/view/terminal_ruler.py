"""A bit ruler as lines of text, one to three characters a bit."""

from __future__ import annotations

from tilescope.view.palette import MARK_SIGN
from tilescope.view.ruler import BitRuler, Piece, RulerRow
from tilescope.view.spans import Line, Span, centred, line_part

_TICK_BITS = 8
_MAX_SCALE = 3


def ruler_lines(ruler: BitRuler, width: int) -> list[Line]:
    """Bit numbers once, then one line a row: fields in brackets, unnamed bits as dots."""
    rows = ruler.rows()
    stub = max((len(ruler.row_label(row)) for row in rows), default=0)
    stub += 1 if stub else 0
    scale = max(1, min(_MAX_SCALE, (width - stub) // ruler.row_bits))
    drawn: list[tuple[str, Line]] = [("", [Span(_bit_numbers(ruler.row_bits, scale), "header")])]
    for row in rows:
        pieces = _pieces(ruler, row, scale) if row.pieces else [Span("no named bits", "muted")]
        drawn.append((ruler.row_label(row), pieces))
    shown = ruler.row_bits * scale  # of a terminal that is narrower, several parts below each other
    shown = shown if stub + shown <= width else ruler.row_bits // 2
    parts = range(0, ruler.row_bits * scale, shown)
    return [
        [Span(label.ljust(stub), "header"), *line_part(line, start, start + shown)] for start in parts for label, line in drawn
    ]


def _bit_numbers(row_bits: int, scale: int) -> str:
    """The number of every eighth bit, its last digit over the bit, and that of the highest bit."""
    line = [" "] * (row_bits * scale)
    for bit in [row_bits - 1, *range(row_bits - _TICK_BITS, -1, -_TICK_BITS)]:
        text = str(bit)
        end = max(len(text), (row_bits - bit) * scale)
        line[end - len(text) : end] = text
    return "".join(line)


def _pieces(ruler: BitRuler, row: RulerRow, scale: int) -> Line:
    line: Line = []
    for low, high, piece in row.segments(ruler.row_bits):
        width = (high - low + 1) * scale
        if piece is None:
            line.append(Span("·" * width, "muted"))
        else:
            tint = "collision" if piece.field.mark == "collision" else piece.field.colour
            line.append(Span(_boxed(piece, width), tint))
    return [span for span in line if span.text]


def _boxed(piece: Piece, width: int) -> str:
    """The field's name in brackets, else its key, else the key alone on every character.

    A mark's sign takes the place of the last character before the bracket.
    """
    sign = MARK_SIGN[piece.field.mark]
    if width < 3:
        return piece.key * width
    inside = width - 2
    name = piece.field.name + sign
    text = name if len(name) <= inside else (piece.key + sign)[:inside]
    return f"[{centred(text, inside, '-')}]"
