"""The positions of a grid's columns: as wide as the widest text that covers one, with a gap between groups.

    bank      0-15     16-31        two headers over two columns each
    chunk     0   1    2   3        a gap before column 2, where the second header starts
             |---|---|_|---|---|    starts 0 3 7 10, ends 3 6 10 13, for columns of 3 and a gap of 1

A terminal counts in characters, an SVG in pixels, and both use this module; rich.table supports neither pixels nor
spans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil
from typing import NamedTuple, Self

from tilescope.view.grid import Cell, Grid, Header, place_items


class _Need(NamedTuple):
    """The width that a cell or header needs."""

    span: int  # columns that it covers
    start: int  # the first of them
    width: float


def _column_widths(needs: Iterable[_Need], columns: int, least: float) -> list[int]:
    """All columns as wide as the widest that covers one; those under a wider span share what it needs."""
    widest = max((need.width for need in needs if need.span == 1), default=0)
    widths = [ceil(max(widest, least))] * columns
    for need in sorted(needs):  # narrow spans first
        end = need.start + need.span
        for column in range(need.start, end):
            missing = need.width - sum(widths[need.start : end])
            widths[column] += max(0, ceil(missing / (end - column)))
    return widths


class Columns(NamedTuple):
    """The positions of a grid's labels and columns."""

    label_widths: list[float]
    stub: int  # width of the labels and the names of tiers
    starts: list[float]  # behind the stub
    ends: list[float]

    @classmethod
    def of(
        cls,
        grid: Grid,
        *,
        label: Callable[[str], float],
        cell: Callable[[Cell], float],
        header: Callable[[Header], float],
        least: float,
        gap: float,
        unnamed: float,
        fixed: float | None = None,
    ) -> Self:
        """All columns as wide as the widest text of one; those under a wider span share what it needs.

        `label`, `cell` and `header` return the width of texts, in characters or pixels; `least` is the width of the
        narrowest column, `gap` comes before a group of columns, `unnamed` before those of a grid without names of
        tiers; a `fixed` width is that of all columns, independent of their texts.
        """
        widths: Sequence[float] = [fixed or least] * grid.columns
        if fixed is None:
            needs = {
                _Need(shown.span, start, cell(shown)) for row in grid.rows for start, shown in place_items(row.cells)
            }
            for tier in grid.tiers:
                needs |= {_Need(shown.span, start, header(shown)) for start, shown in place_items(tier.headers)}
            widths = _column_widths(needs, grid.columns, least)
        groups = grid.group_starts
        starts: list[float] = []
        ends: list[float] = []
        reached = 0.0
        for column, width in enumerate(widths):
            if column in groups:
                reached += gap
            starts.append(reached)
            reached += width
            ends.append(reached)
        labelled = [row.labels for row in grid.rows]
        if grid.label_names:
            labelled.append(grid.label_names)
        label_widths = [max(map(label, texts)) for texts in zip(*labelled, strict=True)]
        names = max((label(tier.name) for tier in grid.tiers if tier.name), default=unnamed)
        return cls(label_widths, ceil(sum(label_widths) + names), starts, ends)

    def width(self, start: int, stop: int) -> float:
        """The width of columns `start` to below `stop`."""
        return self.ends[stop - 1] - self.starts[start]
