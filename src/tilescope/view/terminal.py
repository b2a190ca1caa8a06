"""The parts of a drawing as lines of text: what a terminal prints, with or without colour."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from itertools import zip_longest

from tilescope.view.grid import Grid
from tilescope.view.palette import MARK_SIGN, Tint
from tilescope.view.parts import Beside, Legend, Paragraph, Table, plain
from tilescope.view.ruler import BitRuler
from tilescope.view.spans import Line, Span, line_width, titled, wrapped
from tilescope.view.terminal_grid import grid_lines
from tilescope.view.terminal_ruler import ruler_lines

_GUTTER = 3  # columns between parts that stand side by side
_WIDEST = 96  # prose in longer lines is hard to follow
_NARROWEST = 12  # the last column of a table keeps this width even where the terminal has less


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
    bands: list[list[list[Line]]] = []  # each band a list of blocks that fit next to each other
    taken = 0
    for block in (lines_of(each, width) for each in part.parts):
        wide = max(map(line_width, block), default=0)
        if bands and taken + _GUTTER + wide <= width:
            bands[-1].append(block)
            taken += _GUTTER + wide
        else:
            bands.append([block])
            taken = wide
    return stacked([_abreast(band) for band in bands])


def _abreast(blocks: list[list[Line]]) -> list[Line]:
    """Blocks of lines next to each other."""
    widths = [max(map(line_width, block), default=0) for block in blocks]
    lines: list[Line] = []
    for side_by_side in zip_longest(*blocks, fillvalue=[]):
        line: Line = []
        for each, taken in zip(side_by_side, widths, strict=True):
            line += [*each, Span(" " * (taken + _GUTTER - line_width(each)))]
        lines.append(line[:-1])
    return lines


@lines_of.register
def _legend(part: Legend, width: int) -> list[Line]:
    lines: list[Line] = [[Span(f"{part.title}  ", "title")] if part.title else []]
    for entry in part.entries:
        sample = f"{entry.sample}{MARK_SIGN[entry.mark]}" or " "
        item = [Span(f" {sample} ", entry.colour), Span(f" {plain(entry.text)}   ")]
        if lines[-1] and line_width([*lines[-1], *item]) - 3 > width:
            lines.append([])
        lines[-1] += item
    return lines


@lines_of.register
def _table(part: Table, width: int) -> list[Line]:
    rows = [*([part.headings] if part.headings else []), *part.rows]
    widths = [max((len(plain(row[column])) for row in rows), default=0) for column in range(part.columns)]
    before = sum(each + 2 for each in widths[:-1])
    last = max(_NARROWEST, min(width - before, _WIDEST))
    lines: list[Line] = []
    for row in rows:
        tint: Tint | None = "header" if row is part.headings else None
        line: Line = []
        for column, text in enumerate(row[:-1]):
            names_a_fact = column == 0 and not part.headings
            line += [
                *_aligned(text, widths[column], part.right(column), "header" if names_a_fact else tint),
                Span("  "),
            ]
        final = [
            _padded(each, min(last, widths[-1]), part.right(part.columns - 1)) for each in wrapped(row[-1], last, tint)
        ]
        lines.append([*line, *(final[0] if final else [])])
        lines += [[Span(" " * before), *each] for each in final[1:]]
    return titled(part.title, lines, part.notes, width)


def _aligned(text: str, width: int, right: bool, tint: Tint | None) -> Line:
    return _padded([span for line in wrapped(text, 1 << 20, tint) for span in line], width, right)


def _padded(line: Line, width: int, right: bool) -> Line:
    space = Span(" " * (width - line_width(line)))
    return [space, *line] if right else [*line, space]
