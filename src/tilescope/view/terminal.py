"""The parts of a drawing as lines of tinted text: what a terminal prints, with or without colour."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import singledispatch
from itertools import accumulate, zip_longest
from typing import NamedTuple, TypeAlias

from tilescope.view.grid import Cell, Columns, Grid, Header, Measure, placed
from tilescope.view.palette import MARK_SIGN, Tint
from tilescope.view.parts import Beside, Legend, Table, Word, packed, plain, words
from tilescope.view.ruler import BitRuler, Piece, RulerRow

_GUTTER = 3  # columns between parts that stand side by side
_WIDEST = 96  # prose in longer lines is hard to follow
_NOTE_WIDTH = 36  # notes under a narrow grid may be this wide
_TICK_BITS = 8  # between the numbers over a bit ruler
_MAX_SCALE = 3  # characters of a bit
_NARROWEST = 12  # columns of a table keep this width even if the terminal has less


class Span(NamedTuple):
    """A piece of a line in one tint."""

    text: str
    tint: Tint = None


Line: TypeAlias = list[Span]


def plain_line(line: Line) -> str:
    """The line without tints and without blanks at its end."""
    return "".join(span.text for span in line).rstrip()


@singledispatch
def lines_of(part: object, width: int) -> list[Line]:
    """A part as lines of at most `width` characters, as far as it can be broken."""
    raise NotImplementedError(type(part), width)


@lines_of.register
def _sentences(part: str, width: int) -> list[Line]:
    return wrapped(part, min(width, _WIDEST))


@lines_of.register
def _beside(part: Beside, width: int) -> list[Line]:
    blocks = [lines_of(inner, width) for inner in part.parts]
    bands = packed([(_block_width(block), block) for block in blocks], width, _GUTTER)
    return stacked([_abreast(band) for _, band in bands])


def _abreast(blocks: list[list[Line]]) -> list[Line]:
    """Blocks of lines next to each other."""
    widths = [_block_width(block) + _GUTTER for block in blocks]
    return [
        [span for line, wide in zip(side_by_side, widths, strict=True) for span in _padded(line, wide)][:-1]
        for side_by_side in zip_longest(*blocks, fillvalue=[])
    ]


def stacked(blocks: Sequence[list[Line]]) -> list[Line]:
    """Blocks of lines below each other, an empty line between them."""
    lines: list[Line] = []
    for block in blocks:
        lines += [[], *block] if lines else block
    return lines


def _line_width(line: Line) -> int:
    return sum(len(span.text) for span in line)


def _block_width(lines: Iterable[Line]) -> int:
    return max(map(_line_width, lines), default=0)


def _padded(line: Line, width: int, right: bool = False) -> Line:
    space = Span(" " * (width - _line_width(line)))
    return [space, *line] if right else [*line, space]


def _centred(text: str, width: int, filling: str = " ") -> str:
    """The text in the middle, the odd character of filling after it (str.center wavers).

    >>> _centred("3", 4), _centred("12", 3)
    (' 3  ', '12 ')
    """
    left = max(0, width - len(text)) // 2
    return (filling * left + text).ljust(width, filling)


def _word_length(word: Word) -> int:
    return sum(len(piece) for piece, _ in word)


def wrapped(text: str, width: int, tint: Tint = None) -> list[Line]:
    """A text broken between words; code in it gets a tint of its own.

    >>> [plain_line(line) for line in wrapped("one `two` three", 8)]
    ['one two', 'three']
    """
    fitting = [(_word_length(word), word) for long in words(text) for word in _fitting(long, width)]
    space: Word = ((" ", False),)
    return [
        [
            Span(piece, "code" if is_code else tint)
            for number, word in enumerate(line)
            for piece, is_code in (*(space if number else ()), *word)
        ]
        for _, line in packed(fitting, width, 1)
    ]


def _fitting(word: Word, width: int) -> list[Word]:
    """A word as it is, or, if it is too long for a line, cut at the spaces of its code, then behind a bracket or comma."""
    if _word_length(word) <= width:
        return [word]
    cut: list[Word] = []
    for text, is_code in word:
        first, *more = text.split(" ")
        cut[-1:] = [(*cut[-1], (first, is_code))] if cut else [((first, is_code),)]
        cut += [((piece, is_code),) for piece in more]
    most = f".{{1,{width}}}"
    parts: list[Word] = []
    for piece in cut:
        if _word_length(piece) <= width or len(piece) > 1:
            parts.append(piece)
        else:
            [(text, is_code)] = piece
            parts += [((part, is_code),) for part in re.findall(f"{most}$|{most}(?<=[(<,:])|{most}", text)]
    return parts


def _titled(title: str, lines: list[Line], notes: Iterable[str], width: int) -> list[Line]:
    """Lines under their title and above their notes; notes are no wider than what they belong to."""
    note_width = min(width, max(_NOTE_WIDTH, _block_width(lines)))
    said = [line for note in notes for line in wrapped(note, note_width, "muted")]
    return [*wrapped(title, width, "title"), *lines, *said]


@lines_of.register
def _legend(part: Legend, width: int) -> list[Line]:
    lines: list[Line] = [[Span(f"{part.title}  ", "title")] if part.title else []]
    for entry in part.entries:
        sample = f" {entry.sample}{MARK_SIGN[entry.mark]} " if entry.sample or entry.mark else "   "
        first, *more = wrapped(plain(entry.text), max(_NARROWEST, width - len(sample) - 1)) or [[]]
        item = [Span(sample, entry.colour), Span(" "), *first, Span("   ")]
        if lines[-1] and _line_width([*lines[-1], *item]) - 3 > width:
            lines.append([])
        lines[-1] += item
        lines += [[Span(" " * (len(sample) + 1)), *line] for line in more]
    return lines


@lines_of.register
def _table(part: Table, width: int) -> list[Line]:
    rows = [*([part.headings] if part.headings else []), *part.rows]
    widths = _column_widths(rows, part.columns, width)
    if part.headings and sum(wide + 2 for wide in widths) - 2 > width:  # too narrow: rows as facts under each other
        records = [Table(zip(part.headings, row, strict=True)) for row in part.rows]
        return _titled(part.title, stacked([lines_of(record, width) for record in records]), part.notes, width)
    lines: list[Line] = []
    for row in rows:
        cells = [
            wrapped(text, widths[column], "header" if part.names(row, column) else None)
            for column, text in enumerate(row)
        ]
        for pieces in zip_longest(*cells, fillvalue=[]):
            padded = [_padded(piece, widths[column], part.right(column)) for column, piece in enumerate(pieces)]
            lines.append([span for piece in padded for span in (*piece, Span("  "))][:-1])
    return _titled(part.title, lines, part.notes, width)


def _column_widths(rows: Sequence[tuple[str, ...]], columns: int, width: int) -> list[int]:
    """As wide as their texts; in a narrow terminal the last column gives way first, then the widest other ones."""
    if not rows:
        return [0] * columns
    *before, last = [max(len(plain(row[column])) for row in rows) for column in range(columns)]
    longest_word = [
        max((_word_length(word) for row in rows for word in words(row[column])), default=0) for column in range(columns)
    ]
    least = max(_NARROWEST, longest_word[-1]) if columns > 2 else _NARROWEST  # facts break even long words
    last = min(last, max(least, min(width - sum(wide + 2 for wide in before), _WIDEST)))
    while sum(wide + 2 for wide in before) + last > width:
        can_shrink = [column for column, wide in enumerate(before) if wide > max(_NARROWEST, longest_word[column])]
        if not can_shrink:
            break
        before[max(can_shrink, key=before.__getitem__)] -= 1
    return [*before, last]


def _cell_text(cell: Cell) -> str:
    return cell.text + MARK_SIGN[cell.mark]


def _header_text(header: Header) -> str:
    return header.short or header.text


_MEASURE = Measure(
    label=len,
    cell=lambda cell: len(_cell_text(cell)) + 1,
    header=lambda header: len(_header_text(header)) + 1,
    least=1,
    gap=1,
)


@lines_of.register
def _grid(grid: Grid, width: int) -> list[Line]:
    """Title, headers, rows and notes.

    Columns are all as wide as the widest text plus one, without space between them, so that colours form a surface. A grid
    wider than the terminal is cut between columns (between groups, if it has them), and its blocks stand below each other.
    """
    columns = Columns.of(grid, _MEASURE)
    name_width = max((len(tier.name) for tier in grid.tiers), default=0)
    stub = sum(int(wide) + 1 for wide in columns.label_widths) + name_width + (name_width > 0)

    def line(labels: tuple[str, ...], spans: Line, name: str = "") -> Line:
        texts = labels or ("",) * len(columns.label_widths)
        left = "".join(f"{text:>{wide}} " for text, wide in zip(texts, columns.label_widths, strict=True))
        return [Span(f"{left}{name:>{name_width}}".ljust(stub), "header"), *spans]

    lines: list[Line] = []
    for start, stop in _blocks(grid, columns, width - stub):
        lines += [[]] if lines else []
        for tier in grid.tiers:
            names = grid.label_names if tier is grid.tiers[-1] else ()
            headers = [
                (first, header.span, Span(_header_text(header), "header")) for first, header in placed(tier.headers)
            ]
            lines.append(line(names, _spans(columns, headers, start, stop), tier.name))
        for row in grid.rows:
            if row.ruled:
                lines.append(line((), [Span("─" * int(columns.width(start, stop)), "muted")]))
            cells = [
                (first, cell.span, Span(_cell_text(cell), "collision" if cell.mark == "collision" else cell.colour))
                for first, cell in placed(row.cells)
            ]
            lines.append(line(row.labels, _spans(columns, cells, start, stop)))
    return _titled(grid.title, lines, grid.notes, width)


def _blocks(grid: Grid, columns: Columns, width: int) -> list[tuple[int, int]]:
    """Runs of columns that fit `width`, cut at the starts of groups if there are any."""
    cuts = sorted(grid.group_starts) or list(range(1, grid.columns))
    blocks, start, stop = [], 0, 0
    for cut in [*cuts, grid.columns]:
        if stop > start and columns.width(start, cut) > width:
            blocks.append((start, stop))
            start = stop
        stop = cut
    return [*blocks, (start, stop)] if grid.columns else [(0, 0)]


def _spans(columns: Columns, items: list[tuple[int, int, Span]], start: int, stop: int) -> Line:
    """What columns `start` to below `stop` show of headers or cells: first column, how many, and what they show."""
    line: Line = []
    reached = columns.starts[start] if stop > start else 0
    for first, span, shown in items:
        low, high = max(first, start), min(first + span, stop)
        if low < high:
            wide = int(columns.width(low, high))
            said = shown.text if len(shown.text) <= wide else f"{shown.text[: wide - 1]}…"  # cut at the block's edge
            text = _centred(said, wide)
            if span > 1 and said and wide >= len(said) + 5:  # "── 3 ──": its ends must show without colour too
                text = _centred(f" {said} ", wide - 1, "─") + " "
            line += [Span(" " * int(columns.starts[low] - reached)), Span(text, shown.tint)]
            reached = columns.ends[high - 1]
    return [span for span in line if span.text]


@lines_of.register
def _ruler(part: BitRuler, width: int) -> list[Line]:
    """Bit numbers once, then one line a row (fields in brackets, unnamed bits as dots), then the table of the fields."""
    rows = part.rows()
    stub = max(len(part.row_label(row)) for row in rows) + 1 if part.bits > part.row_bits else 0
    scale = max(1, min(_MAX_SCALE, (width - stub) // part.row_bits))
    drawn: list[tuple[str, Line]] = [("", [Span(_bit_numbers(part.row_bits, scale), "header")])]
    drawn += [(part.row_label(row), _pieces(part, row, scale)) for row in rows]
    shown = (
        part.row_bits * scale if stub + part.row_bits * scale <= width else part.row_bits // 2
    )  # two parts, if narrow
    lines: list[Line] = [
        [Span(label.ljust(stub), "header"), *_line_part(line, start, start + shown)]
        for start in range(0, part.row_bits * scale, shown)
        for label, line in drawn
    ]
    table = Table(part.table_rows(), part.table_headings())
    return _titled(part.title, stacked([lines, lines_of(table, width)]), part.notes, width)


def _line_part(line: Line, start: int, stop: int) -> Line:
    """The characters of a line from `start` to below `stop`.

    >>> _line_part([Span("abc", 1), Span("de")], 2, 4)
    [Span(text='c', tint=1), Span(text='d', tint=None)]
    """
    begins = accumulate((len(span.text) for span in line), initial=0)
    cut = [
        Span(span.text[max(0, start - at) : max(0, stop - at)], span.tint)
        for at, span in zip(begins, line, strict=False)
    ]
    return [span for span in cut if span.text]


def _bit_numbers(row_bits: int, scale: int) -> str:
    """The number of every eighth bit, its last digit over the bit, and that of the highest bit."""
    line = [" "] * (row_bits * scale)
    for bit in [row_bits - 1, *range(row_bits - _TICK_BITS, -1, -_TICK_BITS)]:
        text = str(bit)
        end = max(len(text), (row_bits - bit) * scale)
        line[end - len(text) : end] = text
    return "".join(line)


def _pieces(ruler: BitRuler, row: RulerRow, scale: int) -> Line:
    if not row.pieces:
        return [Span("no named bits", "muted")]
    line: Line = []
    for low, high, piece in row.segments(ruler.row_bits):
        width = (high - low + 1) * scale
        if piece is None:
            line.append(Span("·" * width, "muted"))
        else:
            field = piece.field
            line.append(Span(_boxed(piece, width), "collision" if field.mark == "collision" else field.colour))
    return [span for span in line if span.text]


def _boxed(piece: Piece, width: int) -> str:
    """The field's name in brackets, else its key, else the key alone on every character.

    A mark's sign takes the place of the last character before the bracket.
    """
    if width < 3:
        return piece.key * width
    sign = MARK_SIGN[piece.field.mark]
    name = piece.field.name + sign
    text = name if len(name) <= width - 2 else (piece.key + sign)[: width - 2]
    return f"[{_centred(text, width - 2, '-')}]"
