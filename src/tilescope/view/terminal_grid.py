"""A grid as lines of text.

Columns are all as wide as the widest text plus one, without space between them, so that colours form a
surface. A grid wider than the terminal is cut between columns (between groups where it has them)
and its blocks are printed below each other.
"""

from __future__ import annotations

from itertools import accumulate

from tilescope.view.grid import Cell, Grid, Row, placed
from tilescope.view.palette import MARK_SIGN
from tilescope.view.spans import Line, Span, centred, titled


def grid_lines(grid: Grid, width: int) -> list[Line]:
    """The grid's title, headers, rows and notes in at most `width` characters, or one group of columns a block."""
    columns = _Columns(grid)
    stub = _Stub(grid)
    lines: list[Line] = []
    for start, stop in columns.blocks(width - stub.width):
        lines += [[]] if lines else []
        for number, tier in enumerate(grid.tiers):
            names = grid.label_names if tier is grid.tiers[-1] else ()
            lines.append([stub.span(names, tier.name), *columns.header_spans(number, start, stop)])
        for row in grid.rows:
            if row.ruled:
                lines.append([stub.span(()), Span("─" * columns.width(start, stop), "muted")])
            lines.append([stub.span(row.labels), *columns.cell_spans(row, start, stop)])
    return titled(grid.title, lines, grid.notes, width)


class _Stub:
    """The labels left of the cells, and the names of the tiers at their right end."""

    def __init__(self, grid: Grid) -> None:
        labelled = [row.labels for row in grid.rows] + ([grid.label_names] if grid.label_names else [])
        self.label_widths = [max(map(len, texts)) for texts in zip(*labelled, strict=True)]
        self.name_width = max((len(tier.name) for tier in grid.tiers), default=0)
        self.width = sum(each + 1 for each in self.label_widths) + self.name_width + (self.name_width > 0)

    def span(self, labels: tuple[str, ...], name: str = "") -> Span:
        texts = labels or ("",) * len(self.label_widths)
        left = "".join(f"{text:>{each}} " for text, each in zip(texts, self.label_widths, strict=True))
        return Span(f"{left}{name:>{self.name_width}}".ljust(self.width), "header")


class _Columns:
    """Where each column begins and ends, in characters."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        widths = self._widths()
        gaps = [int(column in grid.group_starts) for column in range(grid.columns)]
        self.ends = [end + sum(gaps[: number + 1]) for number, end in enumerate(accumulate(widths))]
        self.starts = [end - each for end, each in zip(self.ends, widths, strict=True)]

    def _widths(self) -> list[int]:
        items: list[tuple[int, int, int]] = []  # span, first column, characters
        for row in self.grid.rows:
            items += [(cell.span, start, len(_cell_text(cell)) + 1) for start, cell in placed(row.cells)]
        for tier in self.grid.tiers:
            items += [(each.span, start, len(each.short or each.text) + 1) for start, each in placed(tier.headers)]
        narrowest = max((needed for span, _, needed in items if span == 1), default=1)
        widths = [narrowest] * self.grid.columns
        for span, start, needed in sorted(set(items)):
            missing = needed - sum(widths[start : start + span])
            for column in range(start, start + span):
                if missing > 0:
                    share = -(-missing // (start + span - column))
                    widths[column] += share
                    missing -= share
        return widths

    def width(self, start: int, stop: int) -> int:
        return self.ends[stop - 1] - self.starts[start]

    def blocks(self, width: int) -> list[tuple[int, int]]:
        """Runs of columns that fit `width`, cut at the starts of groups where there are any."""
        cuts = sorted(self.grid.group_starts) or list(range(1, self.grid.columns))
        blocks, start, stop = [], 0, 0
        for cut in [*cuts, self.grid.columns]:
            if stop > start and self.width(start, cut) > width:
                blocks.append((start, stop))
                start = stop
            stop = cut
        return [*blocks, (start, stop)] if self.grid.columns else [(0, 0)]

    def header_spans(self, tier: int, start: int, stop: int) -> Line:
        return self._line(
            [
                (first, each.span, Span(each.short or each.text, "header"), each.span > 1)
                for first, each in placed(self.grid.tiers[tier].headers)
            ],
            start,
            stop,
        )

    def cell_spans(self, row: Row, start: int, stop: int) -> Line:
        cells = [
            (
                first,
                cell.span,
                Span(_cell_text(cell), "collision" if cell.mark == "collision" else cell.colour),
                _is_bar(cell),
            )
            for first, cell in placed(row.cells)
        ]
        return self._line(cells, start, stop)

    def _line(self, items: list[tuple[int, int, Span, bool]], start: int, stop: int) -> Line:
        line: Line = []
        reached = self.starts[start] if stop > start else 0
        for first, span, shown, braced in items:
            low, high = max(first, start), min(first + span, stop)
            if low >= high:
                continue
            line.append(Span(" " * (self.starts[low] - reached)))
            wide = self.width(low, high)
            text = _braced(shown.text, wide) if braced else centred(shown.text, wide)
            line.append(Span(text, shown.tint))
            reached = self.ends[high - 1]
        return [span for span in line if span.text]


def _is_bar(cell: Cell) -> bool:
    """Whether a cell covers several columns, so that its ends must show without colour too."""
    return cell.span > 1 and bool(cell.text)


def _cell_text(cell: Cell) -> str:
    return cell.text + MARK_SIGN[cell.mark]


def _braced(text: str, width: int) -> str:
    """A header over several columns: "── 3 ──" where there is room."""
    return centred(f" {text} ", width - 1, "─") + " " if width >= len(text) + 5 else centred(text, width)
