"""The drawings of layouts as notations write them: two texts side by side, a thread-value layout."""

from __future__ import annotations

import numpy as np

from tilescope.layout import Modes
from tilescope.notation import Conversion
from tilescope.view.drawing import Drawing
from tilescope.view.grid import Cell, Grid, Row, Tier, drawn_of
from tilescope.view.layout_view import Pieces, described
from tilescope.view.parts import Beside, Part, Table

_MOST_COLUMNS = 16
_MOST_THREADS = 32


def draw_conversion(conversion: Conversion, picture: bool = True) -> Drawing:
    """Both texts with what was compared; with `picture`, the tile as each of them lays it out.

    >>> from tilescope.notation import convert_layout
    >>> found = convert_layout("GMMA::Layout_K_SW128_Atom<half_t>", "mosaic")
    >>> draw_conversion(found, picture=False).title
    'The same layout in mosaic'
    """
    said = ", ".join(f"{name} = {value}" for name, value in conversion.beside.items() if name != "start" or value)
    facts = Table((
        ("from", f"`{conversion.source}`"),
        ("to", f"`{conversion.result}`"),
        ("unsaid there", said or "nothing: the text says all"),
        ("tile", described(conversion.layout)),
        ("compared", f"{conversion.compared} addresses of both texts, all equal"),
    ))  # fmt: skip
    parts: tuple[Part, ...] = ()
    if picture:
        pieces, again = Pieces.of(conversion.layout), Pieces.of(conversion.read_again())
        titles = "The given text", f"Read again from {conversion.notation}"
        parts = Beside((pieces.grid(titles[0]), again.grid(titles[1]))), pieces.key
    return Drawing(f"The same layout in {conversion.notation}", (*parts, facts))


def draw_modes(modes: Modes, shape: tuple[int, int] | None = None) -> Drawing:
    """A thread-value layout: which index each thread holds, or with `shape`, which thread holds each element.

    >>> draw_modes(Modes(((4, 8), 2), ((2, 8), 1))).title
    'Thread-value layout of 32 threads x 2 values'
    """
    parts = (
        modes.parts if len(modes.parts) == 2 else (*modes.parts[:1], Modes.joined(*modes.parts[1:] or (Modes(1, 0),)))
    )
    threads, values = (part.size for part in parts)
    index = Modes.joined(*parts).offsets()
    held = _held_grid(index)
    grids = (held,) if shape is None else (Beside((_holder_grid(index, shape), held)),)
    facts = Table((("layout", f"`{modes}`"), ("offsets", f"0 to {modes.cosize - 1}")))
    return Drawing(f"Thread-value layout of {threads} threads x {values} values", (*grids, facts))


def _held_grid(index: np.ndarray) -> Grid:
    """The index of the tile that each value of each thread is."""
    shown = index[:_MOST_THREADS, :_MOST_COLUMNS]
    rows = tuple(
        Row((f"T{thread}",), tuple(Cell(str(at), thread % 8, title=f"thread {thread}, value {value}: index {at}",
                                        link=f"T{thread}V{value} T{thread}")
                                   for value, at in enumerate(line)))
        for thread, line in enumerate(shown.tolist())
    )  # fmt: skip
    tier = Tier.of("value", [f"V{value}" for value in range(shown.shape[1])])
    cut = drawn_of(shown.shape, index.shape, ("threads", "values"))
    return Grid("What each thread holds", (tier,), rows, ("thread",), cut)


def _holder_grid(index: np.ndarray, shape: tuple[int, int]) -> Grid:
    """The thread and value that holds each element of the tile, whose first index runs fastest."""
    holder: dict[int, list[tuple[int, int]]] = {}
    for (thread, value), at in np.ndenumerate(index):
        holder.setdefault(int(at), []).append((thread, value))

    def cell(row: int, column: int) -> Cell:
        held = holder.get(row + column * shape[0], [])
        if not held:
            return Cell("", "unused", title=f"({row}, {column}): nobody")
        said = f"({row}, {column}): " + ", ".join(f"thread {t} value {v}" for t, v in held[:4])
        thread, value = held[0]
        link = " ".join([*(f"T{t}V{v}" for t, v in held[:4]), f"T{thread}"])
        return Cell(f"T{thread} V{value}" + "+" * bool(held[1:]), thread % 8, title=said, link=link)

    shown = min(shape[0], _MOST_THREADS), min(shape[1], _MOST_COLUMNS)
    lines = tuple(Row((str(row),), tuple(cell(row, column) for column in range(shown[1]))) for row in range(shown[0]))
    cut = drawn_of(shown, shape, ("rows", "columns"))
    return Grid("Who holds each element", (Tier.of("column", range(shown[1])),), lines, ("row",), cut)
