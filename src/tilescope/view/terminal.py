"""The parts of a drawing as lines of text: what a terminal prints, with or without colour."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from itertools import zip_longest

from tilescope.view.grid import Grid
from tilescope.view.palette import MARK_SIGN, Tint
from tilescope.view.parts import Beside, Legend, Paragraph, Table, packed, plain, word_length, words
from tilescope.view.ruler import BitRuler
from tilescope.view.spans import Line, Span, line_width, titled, wrapped
from tilescope.view.terminal_grid import grid_lines
from tilescope.view.terminal_ruler import ruler_lines

_GUTTER = 3  # columns between parts that stand side by side
_WIDEST = 96  # prose in longer lines is hard to follow
_NARROWEST = 12  # columns of a table keep this width even where the terminal has less


@singledispatch
def lines_of(part: object, width: int) -> list[Line]:
    """A part as lines of at most `width` characters, as far as it can be broken."""
    raise NotImplementedError(type(part), width)


def stacked(blocks: Sequence[list[Line]]) -> list[Line]:
    """Blocks of lines below each other, an empty line between them."""
    lines: list[Line] = []
    for block in blocks:
        lines += [[], *block] if lines else block
    return lines


@lines_of.register
def _paragraph(part: Paragraph, width: int) -> list[Line]:
    return wrapped(part.text, min(width, _WIDEST))


@lines_of.register
def _grid(part: Grid, width: int) -> list[Line]:
    return grid_lines(part, width)


@lines_of.register
def _ruler(part: BitRuler, width: int) -> list[Line]:
    table = Table(part.table_rows(), part.table_headings())
    return titled(part.title, stacked([ruler_lines(part, width), lines_of(table, width)]), part.notes, width)


@lines_of.register
def _beside(part: Beside, width: int) -> list[Line]:
    blocks = [lines_of(each, width) for each in part.parts]
    widths = [max(map(line_width, block), default=0) for block in blocks]
    return stacked([_abreast(band) for _, band in packed(zip(widths, blocks, strict=True), width, _GUTTER)])


def _abreast(blocks: list[list[Line]]) -> list[Line]:
    """Blocks of lines next to each other."""
    widths = [max(map(line_width, block), default=0) + _GUTTER for block in blocks]
    lines: list[Line] = []
    for side_by_side in zip_longest(*blocks, fillvalue=[]):
        padded = [_padded(each, wide) for each, wide in zip(side_by_side, widths, strict=True)]
        lines.append([span for each in padded for span in each][:-1])
    return lines


@lines_of.register
def _legend(part: Legend, width: int) -> list[Line]:
    lines: list[Line] = [[Span(f"{part.title}  ", "title")] if part.title else []]
    for entry in part.entries:
        sample = f" {entry.sample}{MARK_SIGN[entry.mark]} " if entry.sample or MARK_SIGN[entry.mark] else "   "
        first, *more = wrapped(plain(entry.text), max(_NARROWEST, width - len(sample) - 1)) or [[]]
        item = [Span(sample, entry.colour), Span(" "), *first, Span("   ")]
        if lines[-1] and line_width([*lines[-1], *item]) - 3 > width:
            lines.append([])
        lines[-1] += item
        lines += [[Span(" " * (len(sample) + 1)), *line] for line in more]
    return lines


@lines_of.register
def _table(part: Table, width: int) -> list[Line]:
    rows = [*([part.headings] if part.headings else []), *part.rows]
    widths = _column_widths(rows, part.columns, width)
    if part.headings and sum(each + 2 for each in widths) - 2 > width:  # too narrow: every row as facts under each other
        records = [Table(tuple(zip(part.headings, row, strict=True))) for row in part.rows]
        return titled(part.title, stacked([lines_of(record, width) for record in records]), part.notes, width)
    lines: list[Line] = []
    for row in rows:
        tint: Tint | None = "header" if row is part.headings else None
        cells = []
        for column, text in enumerate(row):
            names_a_fact = column == 0 and not part.headings and part.columns > 1
            broken = wrapped(text, widths[column], "header" if names_a_fact else tint) or [[]]
            cells.append([_padded(each, widths[column], part.right(column)) for each in broken])
        for pieces in zip_longest(*cells):
            line: Line = []
            for column, piece in enumerate(pieces):
                line += [*([Span("  ")] if column else []), *(piece or [Span(" " * widths[column])])]
            lines.append(line)
    return titled(part.title, lines, part.notes, width)


def _column_widths(rows: Sequence[tuple[str, ...]], columns: int, width: int) -> list[int]:
    """As wide as their texts; in a narrow terminal the last column gives way first, then the widest other ones."""
    if not rows:
        return [0] * columns
    *before, last = [max(len(plain(row[column])) for row in rows) for column in range(columns)]
    longest_word = [max(_longest_word(row[column]) for row in rows) for column in range(columns)]
    least = max(_NARROWEST, longest_word[-1]) if columns > 2 else _NARROWEST  # facts break even long words
    last = min(last, max(least, min(width - sum(each + 2 for each in before), _WIDEST)))
    while sum(each + 2 for each in before) + last > width:
        can_shrink = [column for column, each in enumerate(before) if each > max(_NARROWEST, longest_word[column])]
        if not can_shrink:
            break
        before[max(can_shrink, key=before.__getitem__)] -= 1
    return [*before, last]


def _longest_word(text: str) -> int:
    return max(map(word_length, words(text)), default=0)


def _padded(line: Line, width: int, right: bool = False) -> Line:
    space = Span(" " * (width - line_width(line)))
    return [space, *line] if right else [*line, space]
