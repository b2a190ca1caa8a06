"""The drawings of layouts as notations write them: a tile in shared memory, two texts side by side, a thread-value layout.

cute                          triton
k      0  8 16 24 …           k      0  8 16 24 …       a row of the tile, cut into 16-byte pieces;
mn 0   0  1  2  3 …           mn 0   0  1  2  3 …       a cell says which 16-byte chunk of shared memory
mn 1   9  8 11 10 …           mn 1   9  8 11 10 …       holds the piece, coloured by the banks it lies in
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilescope.layout import Layout, Modes
from tilescope.mma.canonical import CanonicalLayout
from tilescope.notation import Conversion
from tilescope.swizzle import CHUNK_BYTES, CHUNKS_PER_LINE
from tilescope.view.drawing import Drawing
from tilescope.view.grid import Cell, Grid, Row, Tier
from tilescope.view.operand_view import Element, draw_operand
from tilescope.view.parts import Beside, Paragraph, Part, Table

_MOST_ROWS = 16  # a drawing of more shows the first ones and says so
_MOST_COLUMNS = 16
_MOST_THREADS = 32
_BANK_BYTES = 4


@dataclass(frozen=True, slots=True)
class _Pieces:
    """A tile cut into pieces that lie whole in shared memory, contiguous index left to right."""

    addresses: npt.NDArray[np.int64]  # of each piece's first byte: rows x pieces
    piece_elements: int
    piece_bytes: int
    row_name: str
    column_name: str


def draw_conversion(conversion: Conversion, picture: bool = True) -> Drawing:
    """Both texts with what was compared; with `picture`, the tile as each of them lays it out.

    >>> from tilescope.notation import convert_layout
    >>> found = convert_layout("GMMA::Layout_K_SW128_Atom<half_t>", "mosaic")
    >>> draw_conversion(found, picture=False).title
    'The same layout in mosaic'
    """
    said = ", ".join(f"{name} = {value}" for name, value in conversion.beside.items() if name != "start" or value)
    facts = [
        ("from", f"`{conversion.source}`"),
        ("to", f"`{conversion.result}`"),
        ("unsaid there", said or "nothing: the text says all"),
        ("tile", _described(conversion.layout)),
        ("compared", f"{conversion.compared} addresses of both texts, all equal"),
    ]
    parts: list[Part] = []
    if picture:
        grids = (
            _grid("The given text", conversion.layout),
            _grid(f"Read again from {conversion.notation}", conversion.read_again()),
        )
        parts += [Beside(grids), Paragraph(_key(conversion.layout))]
    return Drawing(f"The same layout in {conversion.notation}", (*parts, Table(tuple(facts))))


def draw_layout(layout: Layout, element: Element | None = None) -> Drawing:
    """Where each piece of the tile lies in shared memory; of a tensor core's operand, its atoms too.

    >>> from tilescope.notation import parse_layout
    >>> draw_layout(parse_layout("((32,4),4):((16,4),1)", element_bits=8)).title
    'A tile of 128 x 4 elements of 8 bits: mn x k, k contiguous'
    """
    canonical = CanonicalLayout.of(layout)
    if canonical is not None:
        return draw_operand(canonical, layout, element)
    facts = [("strides", f"`{layout.modes}` in elements" if layout.modes else f"`{layout.bit_modes}` in bits")]
    facts += [("swizzle", f"{layout.swizzle}"), ("start", f"{layout.start:#x}"), ("size", f"{layout.size_bytes} bytes")]
    if element is not None:
        facts.append((f"element {', '.join(map(str, element))}", f"address {layout.address(*element):#x}"))
    facts.append(("address", f"`{layout.terms().c}`"))
    grid = _grid("The tile in shared memory", layout)
    return Drawing(f"A tile of {_described(layout)}", (grid, Paragraph(_key(layout)), Table(tuple(facts))))


def draw_modes(modes: Modes, shape: tuple[int, int] | None = None) -> Drawing:
    """A thread-value layout: which index each thread holds, or with `shape`, which thread holds each element.

    >>> draw_modes(Modes(((4, 8), 2), ((2, 8), 1))).title
    'Thread-value layout of 32 threads x 2 values'
    """
    parts = (
        modes.parts if len(modes.parts) == 2 else (*modes.parts[:1], Modes.joined(*modes.parts[1:] or (Modes(1, 0),)))
    )
    threads, values = (part.size for part in parts)
    held = _held_grid(Modes.joined(*parts))
    grids = (held,) if shape is None else (Beside((_holder_grid(Modes.joined(*parts), shape), held)),)
    facts = Table((("layout", f"`{modes}`"), ("offsets", f"0 to {modes.cosize - 1}")))
    return Drawing(f"Thread-value layout of {threads} threads x {values} values", (*grids, facts))


def _held_grid(modes: Modes) -> Grid:
    """The index of the tile that each value of each thread is."""
    index = modes.offsets()
    shown = index[:_MOST_THREADS, :_MOST_COLUMNS]
    rows = tuple(
        Row((f"T{thread}",), tuple(Cell(str(at), thread % 8, title=f"thread {thread}, value {value}: index {at}")
                                   for value, at in enumerate(line)))
        for thread, line in enumerate(shown.tolist())
    )  # fmt: skip
    tier = Tier.of("value", [f"V{value}" for value in range(shown.shape[1])])
    return Grid(
        "What each thread holds", (tier,), rows, ("thread",), _cut(shown.shape, index.shape, ("threads", "values"))
    )


def _holder_grid(modes: Modes, shape: tuple[int, int]) -> Grid:
    """The thread and value that holds each element of the tile, whose first index runs fastest."""
    index, (rows, columns) = modes.offsets(), shape
    holder: dict[int, list[tuple[int, int]]] = {}
    for (thread, value), at in np.ndenumerate(index):
        holder.setdefault(int(at), []).append((thread, value))
    lines = []
    for row in range(min(rows, _MOST_THREADS)):
        cells = []
        for column in range(min(columns, _MOST_COLUMNS)):
            held = holder.get(row + column * rows, [])
            said = f"({row}, {column}): " + (", ".join(f"thread {t} value {v}" for t, v in held[:4]) or "nobody")
            first = f"T{held[0][0]} V{held[0][1]}" + ("+" if held[1:] else "") if held else ""
            cells.append(Cell(first, held[0][0] % 8 if held else "unused", title=said))
        lines.append(Row((str(row),), tuple(cells)))
    tier = Tier.of("column", range(min(columns, _MOST_COLUMNS)))
    drawn = len(lines), min(columns, _MOST_COLUMNS)
    return Grid("Who holds each element", (tier,), tuple(lines), ("row",), _cut(drawn, shape, ("rows", "columns")))


def _cut(shown: tuple[int, ...], whole: tuple[int, ...], names: tuple[str, str]) -> tuple[str, ...]:
    """What of a large grid is drawn."""
    cut = [
        f"{drawn} of {all_of_them} {what}"
        for drawn, all_of_them, what in zip(shown, whole, names, strict=True)
        if drawn < all_of_them
    ]
    return (f"The first {' and '.join(cut)}.",) if cut else ()


def _described(layout: Layout) -> str:
    extents = " x ".join(map(str, layout.shape))
    contiguous = {"K": ": mn x k, k contiguous", "MN": ": mn x k, mn contiguous", None: ""}[layout.major]
    return f"{extents} elements of {layout.element_bits} bits{contiguous}"


def _key(layout: Layout) -> str:
    pieces = _pieces(layout)
    return (
        f"A cell is {_elements(pieces.piece_elements)} of the tile ({pieces.piece_bytes} bytes); its number is the "
        f"{pieces.piece_bytes}-byte place that holds it, counted from shared address 0. One colour, one chunk of the banks."
    )


def _elements(count: int) -> str:
    return "one element" if count == 1 else f"{count} elements"


def _pieces(layout: Layout) -> _Pieces:
    """The widest pieces, up to 16 bytes, that no row's swizzle takes apart."""
    rows = layout.as_rows()
    addresses = np.asarray(rows.address(*np.ix_(*map(np.arange, rows.shape))))
    row_name, column_name = rows.names
    count = max(1, CHUNK_BYTES * 8 // layout.element_bits)
    while count > 1 and not _whole(addresses, count, layout.element_bits):
        count //= 2
    return _Pieces(addresses[:, ::count], count, max(1, count * layout.element_bits // 8), row_name, column_name)


def _whole(addresses: npt.NDArray[np.int64], count: int, element_bits: int) -> bool:
    """Whether every run of `count` elements is contiguous and starts on a place of its own size."""
    rows, columns = addresses.shape
    length = count * element_bits // 8
    if columns % count or count * element_bits % 8:
        return False
    runs = addresses.reshape(rows, columns // count, count)
    expected = runs[:, :, :1] + np.arange(count) * element_bits // 8
    return bool((runs == expected).all() and (runs[:, :, 0] % length == 0).all())


def _grid(title: str, layout: Layout) -> Grid:
    pieces = _pieces(layout)
    rows, columns = pieces.addresses.shape
    shown = pieces.addresses[:_MOST_ROWS, :_MOST_COLUMNS]
    first_elements = [column * pieces.piece_elements for column in range(shown.shape[1])]
    grid_rows = []
    for number, line in enumerate(shown.tolist()):
        cells = tuple(
            _cell(pieces, number, first, address) for first, address in zip(first_elements, line, strict=True)
        )
        grid_rows.append(Row((str(number),), cells))
    tier = Tier.of(pieces.column_name, first_elements)
    cut = _cut(shown.shape, (rows, columns), ("rows", "columns"))
    return Grid(title, (tier,), tuple(grid_rows), (pieces.row_name,), cut)


def _cell(pieces: _Pieces, row: int, first: int, address: int) -> Cell:
    chunk = address // CHUNK_BYTES
    bank = address // _BANK_BYTES % (CHUNKS_PER_LINE * CHUNK_BYTES // _BANK_BYTES)
    last = first + pieces.piece_elements - 1
    where = f"{pieces.column_name} {first}" if last == first else f"{pieces.column_name} {first} to {last}"
    title = f"{pieces.row_name} {row}, {where}: at {address:#x}, from bank {bank}"
    return Cell(str(address // pieces.piece_bytes), int(chunk % CHUNKS_PER_LINE), title=title)
