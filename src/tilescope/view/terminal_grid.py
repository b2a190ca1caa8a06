"""A grid as lines of text.

Columns are all as wide as the widest text plus one, without space between them, so that colours form a
surface. A grid wider than the terminal is cut between columns (between groups where it has them)
and its blocks are printed below each other.
"""

from __future__ import annotations

from tilescope.view.grid import Cell, Columns, Grid, Measure, placed
from tilescope.view.palette import MARK_SIGN
from tilescope.view.spans import Line, Span, centred, titled

_Item = tuple[int, int, Span, bool]  # the first column, how many, what they show, and whether it is drawn as a brace


def grid_lines(grid: Grid, width: int) -> list[Line]:
    """The grid's title, headers, rows and notes in at most `width` characters, or one group of columns a block."""
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
                (first, cell.span, Span(_cell_text(cell), "collision" if cell.mark == "collision" else cell.colour), False)
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
            text = _braced(shown.text, wide) if braced else centred(shown.text, wide)
            line += [Span(" " * int(columns.starts[low] - reached)), Span(text, shown.tint)]
            reached = columns.ends[high - 1]
    return [span for span in line if span.text]


def _cell_text(cell: Cell) -> str:
    return cell.text + MARK_SIGN[cell.mark]


def _braced(text: str, width: int) -> str:
    """A header over several columns: "── 3 ──" where there is room."""
    return centred(f" {text} ", width - 1, "─") + " " if width >= len(text) + 5 else centred(text, width)


_MEASURE = Measure(
    label=len,
    cell=lambda cell: len(_cell_text(cell)) + 1,
    header=lambda header: len(header.short or header.text) + 1,
    least=1,
    gap=1,
    share=lambda missing, columns: -(-missing // columns),
)
