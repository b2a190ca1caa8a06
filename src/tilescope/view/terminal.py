"""The parts of a drawing as lines of text: what a terminal prints, with or without colour."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from itertools import zip_longest

from tilescope.view.grid import Cell, Columns, Grid, Measure, placed
from tilescope.view.palette import MARK_SIGN
from tilescope.view.parts import Beside, Legend, Paragraph, Table, packed, plain, word_length, words
from tilescope.view.ruler import BitRuler, Piece, RulerRow
from tilescope.view.spans import Line, Span, centred, line_part, line_width, titled, wrapped

_GUTTER = 3  # columns between parts that stand side by side
_WIDEST = 96  # prose in longer lines is hard to follow
_TICK_BITS = 8  # between the numbers over a bit ruler
_MAX_SCALE = 3  # characters of a bit
_NARROWEST = 12  # columns of a table keep this width even where the terminal has less
_Item = tuple[int, int, Span, bool]  # the first column, how many, what they show, and whether it is drawn as a brace


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
def _ruler(part: BitRuler, width: int) -> list[Line]:
    table = Table(part.table_rows(), part.table_headings())
    return titled(part.title, stacked([_ruler_lines(part, width), lines_of(table, width)]), part.notes, width)


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
    if (
        part.headings and sum(each + 2 for each in widths) - 2 > width
    ):  # too narrow: every row as facts under each other
        records = [Table(tuple(zip(part.headings, row, strict=True))) for row in part.rows]
        return titled(part.title, stacked([lines_of(record, width) for record in records]), part.notes, width)
    lines: list[Line] = []
    for row in rows:
        cells = [
            wrapped(text, widths[column], "header" if part.names(row, column) else None)
            for column, text in enumerate(row)
        ]
        for pieces in zip_longest(*cells, fillvalue=[]):
            padded = [_padded(each, widths[column], part.right(column)) for column, each in enumerate(pieces)]
            lines.append([span for each in padded for span in (*each, Span("  "))][:-1])
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


@lines_of.register
def _grid(grid: Grid, width: int) -> list[Line]:
    """Title, headers, rows and notes.

    Columns are all as wide as the widest text plus one, without space between them, so that colours form a surface. A grid
    wider than the terminal is cut between columns (between groups where it has them), and its blocks stand below each other.
    """
    columns = Columns.of(grid, _MEASURE)
    name_width = max((len(tier.name) for tier in grid.tiers), default=0)
    stub = sum(int(each) + 1 for each in columns.label_widths) + name_width + (name_width > 0)

    def line(labels: tuple[str, ...], spans: Line, name: str = "") -> Line:
        texts = labels or ("",) * len(columns.label_widths)
        left = "".join(f"{text:>{each}} " for text, each in zip(texts, columns.label_widths, strict=True))
        return [Span(f"{left}{name:>{name_width}}".ljust(stub), "header"), *spans]

    lines: list[Line] = []
    for start, stop in _blocks(grid, columns, width - stub):
        lines += [[]] if lines else []
        for tier in grid.tiers:
            names = grid.label_names if tier is grid.tiers[-1] else ()
            headers = [
                (first, each.span, Span(each.short or each.text, "header"), each.span > 1)
                for first, each in placed(tier.headers)
            ]
            lines.append(line(names, _spans(columns, headers, start, stop), tier.name))
        for row in grid.rows:
            if row.ruled:
                lines.append(line((), [Span("─" * int(columns.width(start, stop)), "muted")]))
            cells: list[_Item] = [
                (
                    first,
                    cell.span,
                    Span(_cell_text(cell), "collision" if cell.mark == "collision" else cell.colour),
                    cell.span > 1 and bool(cell.text),  # its ends must show without colour too
                )
                for first, cell in placed(row.cells)
            ]
            lines.append(line(row.labels, _spans(columns, cells, start, stop)))
    return titled(grid.title, lines, grid.notes, width)


def _blocks(grid: Grid, columns: Columns, width: int) -> list[tuple[int, int]]:
    """Runs of columns that fit `width`, cut at the starts of groups where there are any."""
    cuts = sorted(grid.group_starts) or list(range(1, grid.columns))
    blocks, start, stop = [], 0, 0
    for cut in [*cuts, grid.columns]:
        if stop > start and columns.width(start, cut) > width:
            blocks.append((start, stop))
            start = stop
        stop = cut
    return [*blocks, (start, stop)] if grid.columns else [(0, 0)]


def _spans(columns: Columns, items: list[_Item], start: int, stop: int) -> Line:
    """What columns `start` to below `stop` show of a line of headers or cells."""
    line: Line = []
    reached = columns.starts[start] if stop > start else 0
    for first, span, shown, braced in items:
        low, high = max(first, start), min(first + span, stop)
        if low < high:
            wide = int(columns.width(low, high))
            said = shown.text if len(shown.text) <= wide else f"{shown.text[: wide - 1]}…"  # cut at the block's edge
            text = _braced(said, wide) if braced else centred(said, wide)
            line += [Span(" " * int(columns.starts[low] - reached)), Span(text, shown.tint)]
            reached = columns.ends[high - 1]
    return [span for span in line if span.text]


def _cell_text(cell: Cell) -> str:
    return cell.text + MARK_SIGN[cell.mark]


def _braced(text: str, width: int) -> str:
    """A header or cell over several columns: "── 3 ──" where there is room."""
    return centred(f" {text} ", width - 1, "─") + " " if width >= len(text) + 5 else centred(text, width)


_MEASURE = Measure(
    label=len,
    cell=lambda cell: len(_cell_text(cell)) + 1,
    header=lambda header: len(header.short or header.text) + 1,
    least=1,
    gap=1,
    share=lambda missing, columns: -(-missing // columns),
)


def _ruler_lines(ruler: BitRuler, width: int) -> list[Line]:
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
        [Span(label.ljust(stub), "header"), *line_part(line, start, start + shown)]
        for start in parts
        for label, line in drawn
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
