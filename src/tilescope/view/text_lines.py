"""The parts of a drawing as text: lines of tinted spans, which a terminal prints with or without colour.

rich colours these lines but does not lay them out: it has no cells that span columns, it wraps code like prose, and
loading it would add 70 ms to every command whose output is piped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import singledispatch
from itertools import accumulate, zip_longest
from typing import NamedTuple, TypeAlias

from tilescope.view.columns import Columns
from tilescope.view.drawing_parts import Beside, Entry, Legend, pack_lines, pieces, plain, words
from tilescope.view.grid import Cell, Grid, Header, place_items
from tilescope.view.palette import MARK_SIGN, Tint
from tilescope.view.ruler import BitField, BitRuler, Piece, RulerRow
from tilescope.view.table import Table

_GUTTER = 3  # columns between parts side by side
_WIDEST = 96  # prose in longer lines is hard to follow
_NOTE_WIDTH = 36  # notes under a narrow grid may be this wide
_TICK_BITS = 8  # between the numbers over a bit ruler
_MAX_SCALE = 3  # characters of a bit
_COLUMN_GAP = 2  # between the columns of a table, which …
_NARROWEST = 12  # … keep this width even if the terminal has less, …
_READABLE = 24  # … and the sentences in a last column this one
_ENTRY_GAP = 3  # between the entries of a legend


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
def _text(part: str, width: int) -> list[Line]:
    return wrap_text(part, min(width, _WIDEST))


@lines_of.register
def _beside(part: Beside, width: int) -> list[Line]:
    blocks = [lines_of(inner, width) for inner in part.parts]
    bands = pack_lines([(_block_width(block), block) for block in blocks], width, _GUTTER)
    return stack_blocks([_abreast(band) for _, band in bands])


def _abreast(blocks: list[list[Line]]) -> list[Line]:
    """Blocks of lines next to each other."""
    widths = [_block_width(block) for block in blocks]
    lines: list[Line] = []
    for side_by_side in zip_longest(*blocks, fillvalue=[]):
        line: Line = []
        for number, (piece, width) in enumerate(zip(side_by_side, widths, strict=True), 1):
            is_last = number == len(blocks)
            line += piece if is_last else _pad_line(piece, width + _GUTTER)
        lines.append(line)
    return lines


def stack_blocks(blocks: Iterable[list[Line]]) -> list[Line]:
    """Blocks of lines below each other, an empty line between them."""
    lines: list[Line] = []
    for block in blocks:
        lines += [[], *block] if lines else block
    return lines


def _line_width(line: Line) -> int:
    return sum(len(span.text) for span in line)


def _block_width(lines: Iterable[Line]) -> int:
    return max(map(_line_width, lines), default=0)


def _pad_line(line: Line, width: int, *, right: bool = False) -> Line:
    """The line filled up to a width, behind it or before it."""
    space = Span(" " * (width - _line_width(line)))
    return [space, *line] if right else [*line, space]


def _centre(text: str, width: int, filling: str = " ") -> str:
    """The text in the middle, the odd character of filling after it (str.center wavers).

    >>> _centre("3", 4), _centre("12", 3)
    (' 3  ', '12 ')
    """
    left = max(0, width - len(text)) // 2
    return (filling * left + text).ljust(width, filling)


def wrap_text(text: str, width: int, tint: Tint = None) -> list[Line]:
    """A text wrapped between words; code in it gets a separate tint.

    >>> [plain_line(line) for line in wrap_text("one `two` three", 8)]
    ['one two', 'three']
    """
    fitting = [piece for word in words(text) for piece in _cut_word(word, width)]
    lines = pack_lines([(len(plain(word)), word) for word in fitting], width, 1)
    return [
        [Span(piece, "code" if is_code else tint) for piece, is_code in pieces(" ".join(line))] for _, line in lines
    ]


def _cut_word(word: str, width: int) -> list[str]:
    """A word as it is, or, if it is too long for a line, cut at the spaces of its code, then behind a bracket or comma.

    >>> _cut_word("`f(alpha, beta)`.", 8)
    ['`f(alpha,`', '`beta)`.']
    """
    if len(plain(word)) <= width:
        return [word]
    spaced = re.sub("`[^`]*`", lambda code: code[0].replace(" ", "` `"), word)
    cut: list[str] = []
    for part in spaced.split(" "):
        spans = pieces(part)
        if len(spans) != 1:  # code and adjacent words stay together
            cut.append(part)
            continue
        text, is_code = spans[0]
        cut += [f"`{piece}`" if is_code else piece for piece in _pieces_of_width(text, width)]
    return cut


def _pieces_of_width(text: str, width: int) -> list[str]:
    """A text cut behind brackets, commas or colons into pieces of at most `width`; anywhere, if it has none.

    >>> _pieces_of_width("f(alpha,beta)", 8)
    ['f(alpha,', 'beta)']
    """
    most = f".{{1,{width}}}"
    return re.findall(f"{most}$|{most}(?<=[(<,:])|{most}", text)


def _add_title_and_notes(title: str, lines: list[Line], notes: Iterable[str], width: int) -> list[Line]:
    """Lines under their title and above their notes; notes are no wider than what they belong to."""
    note_width = min(width, max(_NOTE_WIDTH, _block_width(lines)))
    note_lines = [line for note in notes for line in wrap_text(note, note_width, "muted")]
    return [*wrap_text(title, width, "title"), *lines, *note_lines]


@lines_of.register
def _legend(part: Legend, width: int) -> list[Line]:
    lines: list[Line] = [[Span(f"{part.title}  ", "title")] if part.title else []]
    is_full = False  # behind an entry of several lines the next one begins a line
    for entry in part.entries:
        first, *more = _entry_lines(entry, width)
        if is_full or (lines[-1] and _line_width([*lines[-1], *first]) > width):
            lines.append([])
        lines[-1] += [*first, Span(" " * _ENTRY_GAP)]
        lines += more
        is_full = bool(more)
    return lines


def _entry_lines(entry: Entry, width: int) -> list[Line]:
    """A swatch and its meaning; lines below the first are indented."""
    sample = "   "
    if entry.sample or entry.mark:
        sample = f" {entry.sample}{MARK_SIGN[entry.mark]} "
    indent = len(sample) + 1
    first, *more = wrap_text(plain(entry.text), max(_NARROWEST, width - indent)) or [[]]
    swatch = Span(sample, entry.colour)
    return [[swatch, Span(" "), *first], *([Span(" " * indent), *line] for line in more)]


@lines_of.register
def _table(part: Table, width: int) -> list[Line]:
    rows = part.lines()
    widths = _column_widths([[text for text, _ in row] for row in rows], width)
    if part.headings and _table_width(widths) > width:
        return _add_title_and_notes(part.title, _facts_of_rows(part, width), part.notes, width)
    lines: list[Line] = []
    for row in rows:
        cells = [
            wrap_text(text, column_width, "header" if is_name else None)
            for (text, is_name), column_width in zip(row, widths, strict=True)
        ]
        for side_by_side in zip_longest(*cells, fillvalue=[]):
            line: Line = []
            for piece, column_width, side in zip(side_by_side, widths, part.align, strict=True):
                if line:
                    line.append(Span(" " * _COLUMN_GAP))
                line += _pad_line(piece, column_width, right=side == "r")
            lines.append(line)
    return _add_title_and_notes(part.title, lines, part.notes, width)


def _facts_of_rows(table: Table, width: int) -> list[Line]:
    """The rows of a table that is too wide, as facts under each other."""
    records = []
    for row in table.rows:
        facts = [(heading, text) for heading, text in zip(table.headings, row, strict=True) if text]
        records.append(lines_of(Table(facts), width))
    return stack_blocks(records)


def _table_width(widths: Sequence[int]) -> int:
    return sum(widths) + _COLUMN_GAP * (len(widths) - 1)


def _column_widths(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """As wide as their texts; in a narrow terminal the last column gives way first, then the widest other ones."""
    columns = [*zip(*rows, strict=True)]
    widths = [max(len(plain(text)) for text in texts) for texts in columns]
    shortest = [_longest_word(texts) for texts in columns]
    least = _NARROWEST  # facts break even long words
    if len(columns) > 2:
        least = max(shortest[-1], min(widths[-1], _READABLE))
    left = width - (_table_width(widths) - widths[-1])
    widths[-1] = min(widths[-1], max(least, min(left, _WIDEST)))
    while _table_width(widths) > width:
        can_shrink = [column for column in range(len(widths) - 1) if widths[column] > shortest[column]]
        if not can_shrink:
            break
        widest = max(can_shrink, key=lambda column: widths[column])
        widths[widest] -= 1
    return widths


def _longest_word(texts: Iterable[str]) -> int:
    """The width below which a column breaks words."""
    return max([_NARROWEST, *(len(plain(word)) for text in texts for word in words(text))])


class _Placed(NamedTuple):
    """What a grid shows in some of its columns."""

    first: int
    span: int
    text: str
    tint: Tint


class _GridLine(NamedTuple):
    """A line of a grid: the text to the left of the columns, and the columns; None for a rule."""

    stub: Span
    items: list[_Placed] | None


@lines_of.register
def _grid(grid: Grid, width: int) -> list[Line]:
    """Title, headers, rows and notes.

    Columns are all as wide as the widest text plus one, without space between them, so that colours form a surface. A
    grid wider than the terminal is cut between columns (between groups, if it has them), and its blocks stand below
    each other.
    """
    columns = Columns.of(
        grid,
        label=lambda text: len(text) + 1,
        cell=lambda cell: len(_marked_text(cell.text, cell)) + 1,
        header=lambda header: len(_short(header)) + 1,
        least=1,
        gap=1,
        unnamed=0,
    )
    lines = [*_header_lines(grid, columns), *_row_lines(grid, columns)]
    blocks = [
        [[line.stub, *_spans(columns, line.items, start, stop)] for line in lines]
        for start, stop in _blocks(grid, columns, width - columns.stub)
    ]
    return _add_title_and_notes(grid.title, stack_blocks(blocks), grid.notes, width)


def _header_lines(grid: Grid, columns: Columns) -> Iterable[_GridLine]:
    """The tiers of headers; the names of labels are in the lowest."""
    for tier in grid.tiers:
        names = grid.label_names if tier is grid.tiers[-1] else ()
        headers = [_Placed(first, header.span, _short(header), "header") for first, header in place_items(tier.headers)]
        yield _GridLine(_stub(columns, names, tier.name), headers)


def _row_lines(grid: Grid, columns: Columns) -> Iterable[_GridLine]:
    for row in grid.rows:
        if row.ruled:
            yield _GridLine(_stub(columns, ()), None)
        cells = [
            _Placed(first, cell.span, _marked_text(cell.text, cell), _tint(cell))
            for first, cell in place_items(row.cells)
        ]
        yield _GridLine(_stub(columns, row.labels), cells)


def _stub(columns: Columns, labels: tuple[str, ...], name: str = "") -> Span:
    """The labels of a row, each at the right end of its column, and the name of a tier."""
    labelled = int(sum(columns.label_widths))
    texts = zip(labels, columns.label_widths, strict=False)
    left = "".join(f"{text:>{int(width) - 1}} " for text, width in texts).ljust(labelled)
    return Span((left + name.rjust(columns.stub - labelled - 1)).ljust(columns.stub), "header")


def _short(header: Header) -> str:
    return header.short or header.text


def _marked_text(text: str, item: Cell | BitField) -> str:
    """The text of a cell or field with the sign of its mark."""
    return text + MARK_SIGN[item.mark]


def _tint(item: Cell | BitField) -> Tint:
    return "collision" if item.mark == "collision" else item.colour


def _blocks(grid: Grid, columns: Columns, width: int) -> list[tuple[int, int]]:
    """Runs of columns that fit `width`, cut at the starts of groups if there are any."""
    blocks = []
    start = 0
    stop = 0
    for cut in [*(sorted(grid.group_starts) or range(1, grid.columns)), grid.columns]:
        if stop > start and columns.width(start, cut) > width:
            blocks.append((start, stop))
            start = stop
        stop = cut
    return [*blocks, (start, stop)]


def _spans(columns: Columns, items: list[_Placed] | None, start: int, stop: int) -> Line:
    """What columns `start` to below `stop` show of headers or cells; a rule where there are none."""
    if items is None:
        return [Span("─" * int(columns.width(start, stop)), "muted")]
    line: Line = []
    for item in items:
        low = max(item.first, start)
        high = min(item.first + item.span, stop)
        if low >= high:
            continue
        gap = int(columns.starts[low] - columns.ends[low - 1]) if low > start else 0
        if gap:
            line.append(Span(" " * gap))
        line.append(Span(_fit_text(item, int(columns.width(low, high))), item.tint))
    return line


def _fit_text(item: _Placed, width: int) -> str:
    """The text of an item in a number of characters: centred, cut at the edge of a block."""
    text = item.text if len(item.text) <= width else f"{item.text[: width - 1]}…"
    if item.span > 1 and text and width >= len(text) + 5:  # "── 3 ──": its ends must show without colour too
        return _centre(f" {text} ", width - 1, "─") + " "
    return _centre(text, width)


@lines_of.register
def _ruler(part: BitRuler, width: int) -> list[Line]:
    """Bit numbers, one line a row (fields in brackets, unnamed bits as dots), then the table of the fields."""
    rows = part.rows()
    stub = max(len(row.label) + 1 if row.label else 0 for row in rows)
    scale = max(1, min(_MAX_SCALE, (width - stub) // part.row_bits))
    ruler_width = part.row_bits * scale
    shown = ruler_width if stub + ruler_width <= width else ruler_width // 2  # two parts, if narrow
    numbers = [Span(_bit_numbers(part.row_bits, scale), "header")]
    drawn = [("", numbers), *((row.label, _ruler_line(row, scale)) for row in rows)]
    lines: list[Line] = []
    for start in range(0, ruler_width, shown):
        for label, line in drawn:
            lines.append([Span(label.ljust(stub), "header"), *_line_part(line, start, start + shown)])
    blocks = [lines]
    table = replace(part, notes=()).table()  # the notes are below, where they may be as wide as the ruler
    if table:
        blocks.append(lines_of(table, width))
    return _add_title_and_notes(part.title, stack_blocks(blocks), part.notes, width)


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


def _ruler_line(row: RulerRow, scale: int) -> Line:
    """One row of a ruler, or that it has no fields."""
    if not row.fields:
        return [Span("no named bits", "muted")]
    return [_ruler_piece(piece, (piece.high - piece.low + 1) * scale) for piece in row.pieces]


def _ruler_piece(piece: Piece, width: int) -> Span:
    """The name of a field in brackets, else its key, else only the key on every character; dots for no field."""
    field = piece.field
    if field is None:
        return Span("·" * width, "muted")
    if width <= 2:
        return Span(piece.key * width, _tint(field))
    name = _marked_text(field.name, field)
    text = name if len(name) <= width - 2 else _marked_text(piece.key, field)[: width - 2]
    return Span(f"[{_centre(text, width - 2, '-')}]", _tint(field))
