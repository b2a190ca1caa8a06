"""Drawings of shapes and strides: a thread-value layout by thread and by element, or the offsets of a plain tile.

Who holds each element             What each thread holds           ((4,8),(2,2)):((32,1),(16,8)) of 16 x 8
row column   0     1     2          value   V0   V1   V2   V3
0          T0 V0 T0 V1 T1 V0        T0       0   16    8   24       index 16 is row 0, column 1: the first index runs
1          T4 V0 T4 V1 T5 V0        T1      32   48   40   56       fastest
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.layout import Modes
from tilescope.view.drawing import Beside, Drawing, Table
from tilescope.view.grid import Cell, Grid
from tilescope.view.walk_step import Step

_MAX_COLUMNS = 16  # of a grid
_MAX_HOLDERS = 4  # of an element that several threads hold, named


def draw_modes(modes: Modes, shape: tuple[int, int] | None = None) -> Drawing:
    """A thread-value layout: which index each thread holds, and with `shape`, which thread holds each element.

    A plain matrix is a tile, unless a `shape` is passed: then its rows are threads which hold elements of another tile.

    >>> draw_modes(Modes(((4, 8), 2), ((2, 8), 1))).title
    'Thread-value layout of 32 threads x 2 values'
    >>> draw_modes(Modes((8, 64), (64, 1))).title
    'Tile of 8 rows x 64 columns'
    """
    if modes.is_matrix and shape is None:
        return _draw_matrix(modes)
    index = _index_of_values(modes)
    threads, values = index.shape
    grids = {}
    if shape is not None:
        grids["elements"] = _holders_grid(index, shape)
    grids["threads"] = _held_grid(index)
    facts = Table({"layout": f"`{modes}`", "offsets": f"0 to {modes.cosize - 1}"})
    title = f"Thread-value layout of {threads} threads x {values} values"
    return Drawing(title, {"grids": Beside(grids), "facts": facts})


def _index_of_values(modes: Modes) -> npt.NDArray[np.int64]:
    """The index that each thread holds as each of its values: the first mode counts threads, the others values."""
    threads, *values = modes.indices
    one_value = ((1, 0),)
    return Modes.of_indices((threads, tuple(chain(*values)) or one_value)).offsets()


def _draw_matrix(modes: Modes) -> Drawing:
    """A tile of rows and columns: the offset of each element."""
    offset = modes.offsets()
    rows, columns = offset.shape

    def cell(row: int, column: int) -> Cell:
        at = offset[row, column]
        return Cell(str(at), column // 8 % 8, title=f"row {row}, column {column}: offset {at}", link=f"{row},{column}")

    grid = Grid.of(
        "The offset of each element",
        ("row", "column"),
        range(rows),
        range(columns),
        cell,
        most=(WARP_LANES, _MAX_COLUMNS),
        nouns=("rows", "columns"),
    )
    facts = Table({"layout": f"`{modes}`", "offsets": f"0 to {modes.cosize - 1}, in elements"})
    return Drawing(f"Tile of {rows} rows x {columns} columns", {"grids": Beside({"elements": grid}), "facts": facts})


class _Holder(NamedTuple):
    """A thread, and the number of its value that holds an element."""

    thread: int
    value: int

    @property
    def link(self) -> str:
        return f"T{self.thread}V{self.value}"


def _holders_grid(index: npt.NDArray[np.int64], shape: tuple[int, int]) -> Grid:
    """Which thread holds each element of a tile, whose first index runs fastest."""
    holders: dict[int, list[_Holder]] = {}
    for (thread, value), at in np.ndenumerate(index):
        holders.setdefault(int(at), []).append(_Holder(thread, value))

    def cell(row: int, column: int) -> Cell:
        holding_it = holders.get(row + column * shape[0], [])
        if not holding_it:
            return Cell("", "unused", title=f"({row}, {column}): nobody")
        first = holding_it[0]
        text = f"T{first.thread} V{first.value}"
        if len(holding_it) > 1:
            text += "+"
        named = holding_it[:_MAX_HOLDERS]
        holder_names = ", ".join(f"thread {holder.thread} value {holder.value}" for holder in named)
        links = [holder.link for holder in named]
        links.append(f"T{first.thread}")
        return Cell(text, first.thread % 8, title=f"({row}, {column}): {holder_names}", link=" ".join(links))

    rows, columns = shape
    most = (WARP_LANES, _MAX_COLUMNS)
    return Grid.of("Who holds each element", ("row", "column"), range(rows), range(columns), cell, most=most)


def _held_grid(index: npt.NDArray[np.int64]) -> Grid:
    """Which index each thread holds."""

    def cell(thread: int, value: int) -> Cell:
        at = index[thread, value]
        title = f"thread {thread}, value {value}: index {at}"
        return Cell(str(at), thread % 8, title=title, link=f"T{thread}V{value} T{thread}")

    threads, values = index.shape
    return Grid.of(
        "What each thread holds",
        ("thread", "value"),
        {thread: f"T{thread}" for thread in range(threads)},
        {value: f"V{value}" for value in range(values)},
        cell,
        most=(WARP_LANES, _MAX_COLUMNS),
        nouns=("threads", "values"),
    )


def walk_modes(modes: Modes, shape: tuple[int, int] | None = None, **_: object) -> Iterator[Step]:
    """The threads of a warp; a plain tile has none."""
    if modes.is_matrix and shape is None:
        return
    for thread in range(min(WARP_LANES, modes.parts[0].size)):
        yield Step(f"T{thread}", f"thread {thread}")


DRAWINGS = {Modes: draw_modes}
WALKS = {Modes: walk_modes}
