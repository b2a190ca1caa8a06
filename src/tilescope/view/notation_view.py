"""The drawing of a conversion: the same tile as each of the two texts lays it out, side by side.

cute                          triton
k      0  8 16 24 …           k      0  8 16 24 …       a row of the tile, cut into 16-byte pieces;
mn 0   0  1  2  3 …           mn 0   0  1  2  3 …       a cell says which 16-byte chunk of shared memory
mn 1   9  8 11 10 …           mn 1   9  8 11 10 …       holds the piece, coloured by the banks it lies in
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilescope.notation import Conversion, SharedLayout
from tilescope.swizzle import CHUNK_BYTES, CHUNKS_PER_LINE
from tilescope.view.drawing import Drawing
from tilescope.view.grid import Cell, Grid, Row, Tier
from tilescope.view.parts import Beside, Paragraph, Part, Table

_MOST_ROWS = 16  # a drawing of more shows the first ones and says so
_MOST_COLUMNS = 16
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
        ("basis", conversion.basis),
    ]
    parts: list[Part] = []
    if picture:
        grids = (
            _grid("The given text", conversion.layout),
            _grid(f"Read again from {conversion.notation}", conversion.read_again()),
        )
        parts += [Beside(grids), Paragraph(_key(conversion.layout))]
    return Drawing(f"The same layout in {conversion.notation}", (*parts, Table(tuple(facts))))


def draw_shared_layout(layout: SharedLayout) -> Drawing:
    """Where each piece of the tile lies in shared memory.

    >>> from tilescope.notation import parse_layout
    >>> draw_shared_layout(parse_layout("GMMA::Layout_K_SW32_Atom<half_t>")).title
    'A tile of 8 x 16 elements of 16 bits: mn x k, k contiguous'
    """
    facts = Table(
        (
            ("strides", f"`{layout.modes}` in elements"),
            ("swizzle", f"{layout.swizzle}"),
            ("start", f"{layout.start:#x}"),
        )
    )
    return Drawing(
        f"A tile of {_described(layout)}", (_grid("The tile in shared memory", layout), Paragraph(_key(layout)), facts)
    )


def _described(layout: SharedLayout) -> str:
    extents = " x ".join(map(str, layout.shape))
    contiguous = {"K": ": mn x k, k contiguous", "MN": ": mn x k, mn contiguous", None: ""}[layout.major]
    return f"{extents} elements of {layout.element_bits} bits{contiguous}"


def _key(layout: SharedLayout) -> str:
    pieces = _pieces(layout)
    return (
        f"A cell is {_elements(pieces.piece_elements)} of the tile ({pieces.piece_bytes} bytes); its number is the "
        f"{pieces.piece_bytes}-byte place that holds it, counted from shared address 0. One colour, one chunk of the banks."
    )


def _elements(count: int) -> str:
    return "one element" if count == 1 else f"{count} elements"


def _pieces(layout: SharedLayout) -> _Pieces:
    """The widest pieces, up to 16 bytes, that no row's swizzle takes apart."""
    addresses = layout.addresses()
    if addresses.ndim == 2 and layout.major is not None:
        row_name, column_name = "mn", "k"
        if layout.major == "MN":
            addresses, row_name, column_name = addresses.T, "k", "mn"
    else:
        addresses = addresses.reshape(len(addresses), -1, order="F") if addresses.ndim > 1 else addresses[None, :]
        row_name, column_name = "index 0", "the rest"
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


def _grid(title: str, layout: SharedLayout) -> Grid:
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
    cut = [
        f"{drawn} of {all_of_them} {what}"
        for drawn, all_of_them, what in zip(shown.shape, (rows, columns), ("rows", "columns"), strict=True)
        if drawn < all_of_them
    ]
    notes = (f"The first {' and '.join(cut)}.",) if cut else ()
    tier = Tier.of(pieces.column_name, first_elements)
    return Grid(title, (tier,), tuple(grid_rows), (pieces.row_name,), notes)


def _cell(pieces: _Pieces, row: int, first: int, address: int) -> Cell:
    chunk = address // CHUNK_BYTES
    bank = address // _BANK_BYTES % (CHUNKS_PER_LINE * CHUNK_BYTES // _BANK_BYTES)
    last = first + pieces.piece_elements - 1
    where = f"{pieces.column_name} {first}" if last == first else f"{pieces.column_name} {first} to {last}"
    title = f"{pieces.row_name} {row}, {where}: at {address:#x}, from bank {bank}"
    return Cell(str(address // pieces.piece_bytes), int(chunk % CHUNKS_PER_LINE), title=title)
