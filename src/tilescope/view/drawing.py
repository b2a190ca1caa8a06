"""A drawing: a title and named parts, described once and printed twice, as text and as SVG.

Drawing("Swizzle 32B", {"rule": "Chunk c …", "grids": Beside({…}), "facts": Table({"repeats": "every 256 bytes"})})
    .text(width=100)     → for a terminal, a log, a docstring
    .svg()               → a standalone document for a browser or a notebook
    ["facts"]            → one part, also one of those that stand beside each other
    .without("facts")    → the drawing with less,
    .with_parts({…})     → with more,
    .figures()           → and with nothing but what is drawn: no sentences, no tables

Text is made here: lines of tinted spans, which a terminal prints with or without colour.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from itertools import accumulate, groupby, zip_longest
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tilescope.view.grid import Cell, Columns, Grid, placed
from tilescope.view.palette import MARK_SIGN, Tint, colour_of
from tilescope.view.parts import (
    Beside,
    Entry,
    Legend,
    NamedParts,
    Part,
    Parts,
    Table,
    named_parts,
    packed,
    pieces,
    plain,
    words,
)
from tilescope.view.ruler import BitField, BitRuler, RulerRow

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

__all__ = ["Beside", "Drawing", "Entry", "Legend", "Part", "Table", "lines_of", "plain_line"]
DEFAULT_WIDTH = 80
_GUTTER = 3  # columns between parts that stand side by side
_WIDEST = 96  # prose in longer lines is hard to follow
_NOTE_WIDTH = 36  # notes under a narrow grid may be this wide
_TICK_BITS = 8  # between the numbers over a bit ruler
_MAX_SCALE = 3  # characters of a bit
_NARROWEST = 12  # columns of a table keep this width even if the terminal has less …
_READABLE = 24  # … and the sentences in a last column this one


class Span(NamedTuple):
    """A piece of a line in one tint."""

    text: str
    tint: Tint = None


Line: TypeAlias = list[Span]
Placed: TypeAlias = tuple[int, int, Span]  # the first column, how many, and what they show


@dataclass(frozen=True, init=False)
class Drawing:
    """A title and the parts below it, by name; None, tables without rows and empty strings are left out.

    >>> drawing = Drawing("A line", {"size": "is 128 bytes: `32` banks of 4.", "notes": None})
    >>> print(drawing.text())
    A line
    <BLANKLINE>
    is 128 bytes: 32 banks of 4.
    >>> drawing["size"]
    'is 128 bytes: `32` banks of 4.'
    """

    title: str
    named: NamedParts  # names and parts from top to bottom; what would stand beside nothing stands alone

    def __init__(self, title: str, parts: Parts) -> None:
        object.__setattr__(self, "title", title)
        object.__setattr__(self, "named", _unwrapped(named_parts(parts)))

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts from top to bottom."""
        return tuple(part for _, part in self.named)

    def __getitem__(self, name: str) -> Part:
        """The part of that name, alone or beside others; the first if several have it."""
        for own_name, part in self.named:
            beside = part.named if isinstance(part, Beside) else ()
            for inner_name, inner in ((own_name, part), *beside):
                if inner_name == name:
                    return inner
        raise KeyError(name)

    def without(self, *names: str) -> Drawing:
        """The drawing without the parts of these names.

        >>> Drawing("Two", {"a": "one", "b": "two"}).without("a").parts
        ('two',)
        """
        return self._over((name, part) for name, part in self.named if name not in names)

    def with_parts(self, parts: Parts, *, before: str | None = None) -> Drawing:
        """The drawing with more parts, at its end or before the part of a name.

        >>> Drawing("Two", {"a": "one", "b": "two"}).with_parts({"c": "more"}, before="b").parts
        ('one', 'more', 'two')
        """
        names = [name for name, _ in self.named]
        place = len(names) if before is None else names.index(before)
        return self._over((*self.named[:place], *named_parts(parts), *self.named[place:]))

    def figures(self) -> Drawing:
        """The grids, the bit rulers and what explains them (legends, and the sentence named "key") alone.

        >>> Drawing("A word", {"said": "It is 0.", "ruler": BitRuler("", ()), "facts": Table({"size": 8})}).figures().parts
        (BitRuler(title='', fields=(), bits=64, row_bits=64, notes=()),)
        """
        drawn: list[tuple[str, Part]] = []
        for name, part in self.named:
            if isinstance(part, Beside):
                pictures = {inner: one for inner, one in part.named if isinstance(one, Grid | BitRuler)}
                drawn.append((name, Beside(pictures)))
            elif isinstance(part, Grid | BitRuler | Legend) or name == "key":
                drawn.append((name, part))
        return self._over(drawn)

    def _over(self, named: Iterable[tuple[str, Part]]) -> Drawing:
        """The same title over other parts."""
        drawing = Drawing(self.title, {})
        object.__setattr__(drawing, "named", _unwrapped(named))
        return drawing

    def lines(self, width: int = DEFAULT_WIDTH) -> list[Line]:
        """The drawing as lines of tinted spans."""
        return _stacked([_wrapped(self.title, width, "title"), *(lines_of(part, width) for part in self.parts)])

    def text(self, width: int = DEFAULT_WIDTH) -> str:
        """The drawing as text of at most `width` columns, without colour."""
        return "\n".join(map(plain_line, self.lines(width)))

    def svg(self) -> str:
        """The drawing as a standalone SVG document."""
        from tilescope.view.svg_document import document

        return document(self.title, self.parts)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """The drawing in colour, in as many of them as the terminal has."""
        from rich.text import Text

        for line in self.lines(options.max_width):
            text = Text(no_wrap=True, overflow="ignore")
            for style, spans in groupby(line, lambda span: colour_of(span.tint).terminal):
                text.append("".join(span.text for span in spans), style)
            yield text


def _unwrapped(named: Iterable[tuple[str, Part]]) -> NamedParts:
    """Parts of which one that stands beside no other stands alone."""
    unwrapped: list[tuple[str, Part]] = []
    for name, part in named:
        if isinstance(part, Beside) and len(part.named) < 2:
            unwrapped += part.named
        else:
            unwrapped.append((name, part))
    return tuple(unwrapped)


def plain_line(line: Line) -> str:
    """The line without tints and without blanks at its end."""
    return "".join(span.text for span in line).rstrip()


@singledispatch
def lines_of(part: object, width: int) -> list[Line]:
    """A part as lines of at most `width` characters, as far as it can be broken."""
    raise NotImplementedError(type(part), width)


lines_of.register(str, lambda part, width: _wrapped(part, min(width, _WIDEST)))


@lines_of.register
def _beside(part: Beside, width: int) -> list[Line]:
    blocks = [lines_of(inner, width) for inner in part.parts]
    bands = packed([(_block_width(block), block) for block in blocks], width, _GUTTER)
    return _stacked([_abreast(band) for _, band in bands])


def _abreast(blocks: list[list[Line]]) -> list[Line]:
    """Blocks of lines next to each other."""
    widths = [_block_width(block) + _GUTTER for block in blocks]
    return [
        [span for line, wide in zip(lines, widths, strict=True) for span in _padded(line, wide)][:-1]
        for lines in zip_longest(*blocks, fillvalue=[])
    ]


def _stacked(blocks: Iterable[list[Line]]) -> list[Line]:
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


def _wrapped(text: str, width: int, tint: Tint = None) -> list[Line]:
    """A text broken between words; code in it gets a tint of its own.

    >>> [plain_line(line) for line in _wrapped("one `two` three", 8)]
    ['one two', 'three']
    """
    fitting = [(len(plain(word)), word) for long in words(text) for word in _fitting(long, width)]
    return [
        [Span(piece, "code" if is_code else tint) for piece, is_code in pieces(" ".join(line))]
        for _, line in packed(fitting, width, 1)
    ]


def _fitting(word: str, width: int) -> list[str]:
    """A word as it is, or, if it is too long for a line, cut at the spaces of its code, then behind a bracket or comma.

    >>> _fitting("`f(alpha, beta)`.", 8)
    ['`f(alpha,`', '`beta)`.']
    """
    if len(plain(word)) <= width:
        return [word]
    most, cut = f".{{1,{width}}}", []
    for part in re.sub("`[^`]*`", lambda code: code[0].replace(" ", "` `"), word).split(" "):
        (text, is_code), *others = pieces(part)
        ticks = "`" * is_code
        found = [] if others else re.findall(f"{most}$|{most}(?<=[(<,:])|{most}", text)
        cut += [f"{ticks}{piece}{ticks}" for piece in found] or [part]
    return cut


def _titled(title: str, lines: list[Line], notes: Iterable[str], width: int) -> list[Line]:
    """Lines under their title and above their notes; notes are no wider than what they belong to."""
    note_width = min(width, max(_NOTE_WIDTH, _block_width(lines)))
    said = [line for note in notes for line in _wrapped(note, note_width, "muted")]
    return [*_wrapped(title, width, "title"), *lines, *said]


@lines_of.register
def _legend(part: Legend, width: int) -> list[Line]:
    lines: list[Line] = [[Span(f"{part.title}  ", "title")] if part.title else []]
    for entry in part.entries:
        sample = f" {entry.sample}{MARK_SIGN[entry.mark]} " if entry.sample or entry.mark else "   "
        first, *more = _wrapped(plain(entry.text), max(_NARROWEST, width - len(sample) - 1)) or [[]]
        item = [Span(sample, entry.colour), Span(" "), *first, Span("   ")]
        if lines[-1] and _line_width([*lines[-1], *item]) - 3 > width:
            lines.append([])
        lines[-1] += item
        lines += [[Span(" " * (len(sample) + 1)), *line] for line in more]
    return lines


@lines_of.register
def _table(part: Table, width: int) -> list[Line]:
    rows = part.lines()
    widths = _column_widths([[text for text, _ in row] for row in rows], width)
    if part.headings and sum(wide + 2 for wide in widths) - 2 > width:  # too narrow: rows as facts under each other
        records = [Table(fact for fact in zip(part.headings, row, strict=True) if fact[1]) for row in part.rows]
        return _titled(part.title, _stacked(lines_of(record, width) for record in records), part.notes, width)
    lines: list[Line] = []
    for row in rows:
        cells = [
            _wrapped(text, wide, "header" if names else None) for (text, names), wide in zip(row, widths, strict=True)
        ]
        for pieces_of in zip_longest(*cells, fillvalue=[]):
            padded = [
                _padded(piece, wide, side == "r")
                for piece, wide, side in zip(pieces_of, widths, part.align, strict=True)
            ]
            lines.append([span for piece in padded for span in (*piece, Span("  "))][:-1])
    return _titled(part.title, lines, part.notes, width)


def _column_widths(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """As wide as their texts; in a narrow terminal the last column gives way first, then the widest other ones."""
    columns = [*zip(*rows, strict=True)]
    *before, last = [max(len(plain(text)) for text in texts) for texts in columns]
    *shortest, least = [
        max([_NARROWEST, *(len(plain(word)) for text in texts for word in words(text))]) for texts in columns
    ]
    least = max(least, min(last, _READABLE)) if len(columns) > 2 else _NARROWEST  # facts break even long words
    last = min(last, max(least, min(width - sum(wide + 2 for wide in before), _WIDEST)))
    while sum(wide + 2 for wide in before) + last > width:
        can_shrink = [column for column, wide in enumerate(before) if wide > shortest[column]]
        if not can_shrink:
            break
        before[max(can_shrink, key=before.__getitem__)] -= 1
    return [*before, last]


@lines_of.register
def _grid(grid: Grid, width: int) -> list[Line]:
    """Title, headers, rows and notes.

    Columns are all as wide as the widest text plus one, without space between them, so that colours form a surface. A grid
    wider than the terminal is cut between columns (between groups, if it has them), and its blocks stand below each other.
    """
    columns = Columns.of(
        grid,
        label=lambda text: len(text) + 1,
        cell=lambda cell: len(cell.text + MARK_SIGN[cell.mark]) + 1,
        header=lambda header: len(header.short or header.text) + 1,
        least=1,
        gap=1,
        unnamed=0,
    )
    labelled = int(sum(columns.label_widths))

    def stub(labels: tuple[str, ...], name: str = "") -> Span:
        texts = zip(labels, columns.label_widths, strict=False)
        left = "".join(f"{text:>{int(wide) - 1}} " for text, wide in texts).ljust(labelled)
        return Span((left + name.rjust(columns.stub - labelled - 1)).ljust(columns.stub), "header")

    shown: list[tuple[Span, list[Placed] | None]] = []
    for tier in grid.tiers:
        headers = [(first, top.span, Span(top.short or top.text, "header")) for first, top in placed(tier.headers)]
        shown.append((stub(grid.label_names if tier is grid.tiers[-1] else (), tier.name), headers))
    for row in grid.rows:
        shown += [(stub(()), None)] if row.ruled else []
        cells = [(first, cell.span, Span(*_marked(cell.text, cell))) for first, cell in placed(row.cells)]
        shown.append((stub(row.labels), cells))
    blocks = [
        [[left, *_spans(columns, items, start, stop)] for left, items in shown]
        for start, stop in _blocks(grid, columns, width - columns.stub)
    ]
    return _titled(grid.title, _stacked(blocks), grid.notes, width)


def _marked(text: str, item: Cell | BitField) -> tuple[str, Tint]:
    """The text of a cell or field with the sign of its mark, and its tint."""
    return text + MARK_SIGN[item.mark], "collision" if item.mark == "collision" else item.colour


def _blocks(grid: Grid, columns: Columns, width: int) -> list[tuple[int, int]]:
    """Runs of columns that fit `width`, cut at the starts of groups if there are any."""
    blocks, start, stop = [], 0, 0
    for cut in [*(sorted(grid.group_starts) or range(1, grid.columns)), grid.columns]:
        if stop > start and columns.width(start, cut) > width:
            blocks.append((start, stop))
            start = stop
        stop = cut
    return [*blocks, (start, stop)]


def _spans(columns: Columns, items: list[Placed] | None, start: int, stop: int) -> Line:
    """What columns `start` to below `stop` show of headers or cells; a rule where there are none."""
    if items is None:
        return [Span("─" * int(columns.width(start, stop)), "muted")]
    line: Line = []
    for first, span, shown in items:
        low, high = max(first, start), min(first + span, stop)
        if low < high:
            wide = int(columns.width(low, high))
            said = shown.text if len(shown.text) <= wide else f"{shown.text[: wide - 1]}…"  # cut at the block's edge
            text = _centred(said, wide)
            if span > 1 and said and wide >= len(said) + 5:  # "── 3 ──": its ends must show without colour too
                text = _centred(f" {said} ", wide - 1, "─") + " "
            gap = int(columns.starts[low] - columns.ends[low - 1]) if low > start else 0
            line += [Span(" " * gap), Span(text, shown.tint)] if gap else [Span(text, shown.tint)]
    return line


@lines_of.register
def _ruler(part: BitRuler, width: int) -> list[Line]:
    """Bit numbers once, then one line a row (fields in brackets, unnamed bits as dots), then the table of the fields."""
    rows = part.rows()
    stub = max(len(row.label) + bool(row.label) for row in rows)
    scale = max(1, min(_MAX_SCALE, (width - stub) // part.row_bits))
    wide = part.row_bits * scale
    shown = wide if stub + wide <= width else wide // 2  # two parts, if narrow
    numbers = [Span(_bit_numbers(part.row_bits, scale), "header")]
    drawn = [("", numbers), *((row.label, _row(row, scale)) for row in rows)]
    lines: list[Line] = [
        [Span(label.ljust(stub), "header"), *_line_part(line, start, start + shown)]
        for start in range(0, wide, shown)
        for label, line in drawn
    ]
    table = replace(part, notes=()).table()  # below, where they may be as wide as the ruler
    blocks = [lines, lines_of(table, width)] if table else [lines]
    return _titled(part.title, _stacked(blocks), part.notes, width)


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


def _row(row: RulerRow, scale: int) -> Line:
    """One row of a ruler: the name of a field in brackets, else its key, else the key alone on every character."""
    line: Line = []
    for piece in row.pieces:
        width = (piece.high - piece.low + 1) * scale
        if piece.field is None:
            line.append(Span("·" * width, "muted"))
        else:
            name, tint = _marked(piece.field.name, piece.field)
            text = name if len(name) <= width - 2 else (piece.key + MARK_SIGN[piece.field.mark])[: max(0, width - 2)]
            line.append(Span(f"[{_centred(text, width - 2, '-')}]" if width > 2 else piece.key * width, tint))
    return line if row.fields else [Span("no named bits", "muted")]
