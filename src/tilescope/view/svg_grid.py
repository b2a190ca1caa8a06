"""A grid as SVG: one group a row, a rectangle and a text a cell.

Grids of many cells get smaller cells. Everything about a cell's look is a class, so that 8,192 cells
stay below a megabyte.
"""

from __future__ import annotations

from itertools import accumulate

from tilescope.view.grid import Cell, Grid, placed
from tilescope.view.palette import MARK_SIGN, colour_of
from tilescope.view.svg_canvas import (
    BODY,
    SMALL,
    TINY,
    Block,
    below,
    box,
    label,
    mono_width,
    moved,
    number,
    prose,
)

_DENSE_COLUMNS = 24  # grids with more columns, or more rows than this, get small cells
_DENSE_ROWS = 40
_GROUP_GAP = 5
_NOTE_WIDTH = 300  # notes under a narrow grid may be this wide
_HEADER_HEIGHT = 17


def grid_block(grid: Grid) -> Block:
    """The grid with its title, headers, labels and notes."""
    body = _body(grid)
    width = max(body.width, _NOTE_WIDTH)
    title = prose(grid.title, width, size=15, classes="sub") if grid.title else Block(0, 0, "")
    notes = [prose(note, width, size=SMALL, classes="small muted") for note in grid.notes]
    return below([title, body, *notes], gap=6)


def _body(grid: Grid) -> Block:
    dense = grid.columns > _DENSE_COLUMNS or len(grid.rows) > _DENSE_ROWS
    size, height, padding = (TINY, 18.0, 6.0) if dense else (BODY, 25.0, 12.0)
    label_widths, stub = _stub(grid)
    widths = _column_widths(grid, size, padding)
    gaps = [_GROUP_GAP if column in grid.group_starts else 0 for column in range(grid.columns)]
    ends = [stub + end for end in accumulate(width + gap for width, gap in zip(widths, gaps, strict=True))]
    starts = [end - width for end, width in zip(ends, widths, strict=True)]
    lines = []
    y = 0.0
    for tier in grid.tiers:
        names = grid.label_names if tier is grid.tiers[-1] else ()
        parts = [_labels(names, label_widths, 12.0), label(stub - 8, 12, tier.name, "l")]
        for first, header in placed(tier.headers):
            left, right = starts[first], ends[first + header.span - 1]
            parts.append(label((left + right) / 2, 12, header.text, "h"))
            if header.span > 1:
                parts.append(
                    f'<path d="M{number(left + 1)} {_HEADER_HEIGHT - 1}h{number(right - left - 2)}" class="line"/>'
                )
        lines.append(moved(0, y, "".join(parts)))
        y += _HEADER_HEIGHT
    y += 2 if grid.tiers else 0
    baseline = height / 2 + size * 0.35
    text_class = "n" if dense else "k"
    for row in grid.rows:
        rule = f'<path d="M{number(stub)} -2h{number(ends[-1] - stub)}" class="line"/>' if row.ruled else ""
        y += 4 if row.ruled else 0
        cells = [
            _cell(cell, starts[first], ends[first + cell.span - 1], height, baseline, text_class)
            for first, cell in placed(row.cells)
        ]
        lines.append(moved(0, y, rule + _labels(row.labels, label_widths, baseline) + "".join(cells)))
        y += height
    return Block(ends[-1] if ends else stub, y, "".join(lines))


def _stub(grid: Grid) -> tuple[list[float], float]:
    """Widths of the label columns, and where the cells begin."""
    labelled = [row.labels for row in grid.rows] + ([grid.label_names] if grid.label_names else [])
    widths = [max(mono_width(text, SMALL) for text in texts) + 10 for texts in zip(*labelled, strict=True)]
    names = max((mono_width(tier.name, SMALL) + 10 for tier in grid.tiers if tier.name), default=0.0)
    return widths, sum(widths) + (names or 6)


def _column_widths(grid: Grid, size: int, padding: float) -> list[float]:
    header_padding = padding if padding > 10 else 5.0
    items = {
        (cell.span, first, mono_width(_text(cell), size) + padding)
        for row in grid.rows
        for first, cell in placed(row.cells)
    }
    items |= {
        (each.span, first, mono_width(each.text, TINY) + header_padding)
        for tier in grid.tiers
        for first, each in placed(tier.headers)
    }
    narrowest = max((needed for span, _, needed in items if span == 1), default=0.0)
    widths = [max(narrowest, 18.0 if padding < 10 else 28.0)] * grid.columns
    for span, first, needed in sorted(items):
        missing = needed - sum(widths[first : first + span])
        if missing > 0:
            for column in range(first, first + span):
                widths[column] += missing / span
    return widths


def _labels(labels: tuple[str, ...], widths: list[float], baseline: float) -> str:
    right_ends = accumulate(widths)
    return "".join(label(end - 10, baseline, text, "l") for text, end in zip(labels, right_ends, strict=False))


def _cell(cell: Cell, left: float, right: float, height: float, baseline: float, text_class: str) -> str:
    colour = colour_of(cell.colour)
    parts = [
        box(left, right - left, height, f"cell {colour.name}", cell.title),
        label((left + right) / 2, baseline, _text(cell), f"{text_class} on-{colour.name}"),
    ]
    return "".join([parts[0], ring(cell.mark, left, 0, right - left, height), parts[1]])


def ring(mark: str, x: float, y: float, width: float, height: float) -> str:
    """The frame of a marked cell: coloured on white, so that it shows on every colour."""
    if not mark:
        return ""
    return box(x + 3, width - 6, height - 6, "halo", y=y + 3) + box(
        x + 2.5, width - 5, height - 5, f"ring {mark}", y=y + 2.5
    )


def _text(cell: Cell) -> str:
    return cell.text + MARK_SIGN[cell.mark]
