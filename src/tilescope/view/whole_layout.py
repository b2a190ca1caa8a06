"""A whole layout both ways, and two layouts side by side.

The tile                        Shared memory
k      0  8 16 24 …             bank       0    4    8   12 …      a cell of the tile says its 16-byte place, a cell
mn 0   0  1  2  3 …             0x0000   0,0  0,8 0,16 0,24 …      of memory the piece it holds; both share a link
mn 1   9  8 11 10 …             0x0080   1,8  1,0 1,24 1,16 …
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilescope.errors import by, counted
from tilescope.layout import Layout
from tilescope.rule import rule
from tilescope.swizzle import CHUNK_BYTES, CHUNKS_PER_LINE, SMEM_LINE_BYTES
from tilescope.view.drawing import Drawing
from tilescope.view.grid import Cell, Grid, Row, Tier, number_span
from tilescope.view.notation_view import Pieces, described, key_sentence, pieces_of, row_addresses
from tilescope.view.parts import Beside, Entry, Legend, Paragraph, Table

LAYOUT_DIFFERENCE = rule(
    "layout-difference",
    "Two layouts are drawn side by side where they are of one tile, with elements of one width.",
    source="the command line",
    passing='ts.view.whole_layout.draw_difference(ts.Layout((8, 64), 16), ts.Layout((8, 64), 16, swizzle="128B"))',
    failing="ts.view.whole_layout.draw_difference(ts.Layout((8, 64), 16), ts.Layout((8, 64), 8))",
)

MOST_ROWS = MOST_COLUMNS = 128  # of a tile, in pieces; two tiles have half the columns
_MOST_HELD = 4096  # pieces of a drawing of shared memory
_BANK_BYTES = 4


def whole_layout(layout: Layout) -> Drawing:
    """Where each piece of the tile lies, and beside it what each place of shared memory holds.

    >>> drawing = whole_layout(Layout((8, 64), 16, swizzle="128B"))
    >>> [grid.title for grid in drawing.parts[0].parts]
    ['The tile', 'Shared memory']
    """
    pieces = pieces_of(row_addresses(layout), layout)
    grids = [tile_grid("The tile", pieces)]
    if pieces.addresses.size <= _MOST_HELD:
        grids.append(_memory_grid(pieces))
    facts = Table((
        ("strides", f"`{layout.modes}` in elements" if layout.modes else f"`{layout.bit_modes}` in bits"),
        ("swizzle", str(layout.swizzle)),
        ("size", f"{layout.size_bytes} bytes from {layout.start:#x}"),
        ("address", f"`{layout.terms().c}`"),
    ))  # fmt: skip
    return Drawing(f"A tile of {described(layout)}", (Beside(tuple(grids)), Paragraph(key_sentence(pieces)), facts))


def draw_difference(one: Layout, other: Layout) -> Drawing:
    """Two layouts of one tile beside each other; pieces that lie elsewhere are marked.

    >>> draw_difference(Layout((8, 64), 16), Layout((8, 64), 16, swizzle="128B")).title
    'The layouts differ: 448 of 512 elements lie elsewhere'
    """
    if (one.shape, one.element_bits) != (other.shape, other.element_bits):
        found = f"{described(one)}, and {described(other)}"
        fix = f"Use a second tile of {by(one.shape)} elements of {one.element_bits} bits."
        raise LAYOUT_DIFFERENCE.error("other", found, "two layouts of one tile and one width", fix)
    arrays = row_addresses(one), row_addresses(other)
    if one.major != other.major and len(one.shape) == 2:  # both as mn x k
        arrays = one.addresses(), other.addresses()
    elsewhere = arrays[0] != arrays[1]
    names = ("mn", "k") if one.major != other.major else None
    both = [pieces_of(addresses, layout, names) for addresses, layout in zip(arrays, (one, other), strict=True)]
    count = min(each.piece_elements for each in both)
    grids = []
    for title, addresses, layout in zip(("The first", "The second"), arrays, (one, other), strict=True):
        pieces = pieces_of(addresses, layout, names, count)
        rows, columns = pieces.addresses.shape
        marked = elsewhere.reshape(rows, columns, count).any(axis=2)
        grids.append(tile_grid(title, pieces, marked, MOST_COLUMNS // 2))
    differing = int(elsewhere.sum())
    if not differing:
        title = "The layouts are the same: every element lies at one address in both"
    else:
        title = f"The layouts differ: {differing} of {elsewhere.size} elements lie elsewhere"
    legend = Legend((Entry("lies elsewhere in the other layout", 5, "collision", "5"),)) if differing else None
    facts = []
    first = one.first_difference(other)
    if first is not None:
        here, there = one.address(*first), other.address(*first)
        facts.append(("first difference", f"element {first}: at {here:#x} in the first, at {there:#x} in the second"))
    facts += [("the first", f"`{one!r}`"), ("the second", f"`{other!r}`")]
    legends = () if legend is None else (legend,)
    return Drawing(title, (Beside(tuple(grids)), *legends, Paragraph(key_sentence(pieces)), Table(tuple(facts))))


def tile_grid(
    title: str, pieces: Pieces, marked: npt.NDArray[np.bool_] | None = None, most_columns: int = MOST_COLUMNS
) -> Grid:
    """The pieces of a tile, each with the place that holds it; `marked` ones are framed."""
    rows, columns = pieces.addresses.shape
    shown = pieces.addresses[:MOST_ROWS, :most_columns]
    firsts = [column * pieces.piece_elements for column in range(shown.shape[1])]
    lines = []
    for number, line in enumerate(shown.tolist()):
        cells = []
        for column, (first, address) in enumerate(zip(firsts, line, strict=True)):
            said = f"{pieces.where(number, first)}: at {address:#x}, bank {address // _BANK_BYTES % 32}"
            differs = marked is not None and bool(marked[number, column])
            cells.append(Cell(
                str(address // pieces.piece_bytes), int(address // CHUNK_BYTES % CHUNKS_PER_LINE),
                "collision" if differs else "", said, link=f"{number},{first}",
            ))  # fmt: skip
        lines.append(Row((str(number),), tuple(cells)))
    cut = [
        f"{drawn} of {whole} {what}"
        for drawn, whole, what in zip(shown.shape, (rows, columns), ("rows", "columns"), strict=True)
        if drawn < whole
    ]
    notes = (f"Drawn: {' and '.join(cut)}.",) if cut else ()
    return Grid(title, (Tier.of(pieces.column_name, firsts),), tuple(lines), (pieces.row_name,), notes)


def _memory_grid(pieces: Pieces) -> Grid:
    """The lines of shared memory that the tile touches; a cell names the first element of the piece it holds."""
    held: dict[int, list[tuple[int, int]]] = {}
    for (row, column), address in np.ndenumerate(pieces.addresses):
        held.setdefault(int(address) // pieces.piece_bytes, []).append((row, column * pieces.piece_elements))
    width = max(1, min(SMEM_LINE_BYTES, 32 * pieces.piece_bytes) // pieces.piece_bytes)
    lines = []
    numbers = sorted({place // width for place in held})
    for number in numbers[:MOST_ROWS]:
        cells = [
            _held_cell(pieces, place, held.get(place, [])) for place in range(number * width, (number + 1) * width)
        ]
        lines.append(Row((f"{number * width * pieces.piece_bytes:#06x}",), tuple(cells)))
    banks = [place * pieces.piece_bytes // _BANK_BYTES for place in range(width)]
    spans = [number_span(bank, bank + max(1, pieces.piece_bytes // _BANK_BYTES) - 1) for bank in banks]
    tier = Tier.of("bank" if width * pieces.piece_bytes == SMEM_LINE_BYTES else "word", spans)
    notes = [f"A cell names the {pieces.row_name},{pieces.column_name} that its piece starts with."]
    notes += [f"Drawn: {MOST_ROWS} of {len(numbers)} lines."] if len(numbers) > MOST_ROWS else []
    return Grid("Shared memory", (tier,), tuple(lines), ("byte",), tuple(notes))


def _held_cell(pieces: Pieces, place: int, held: list[tuple[int, int]]) -> Cell:
    address = place * pieces.piece_bytes
    where = f"from byte {address:#x} on"
    if not held:
        return Cell("", "gap", title=f"{where}: not of the tile")
    row, first = held[0]
    several = f", and {counted(len(held) - 1, 'other')}" if len(held) > 1 else ""
    link = " ".join(f"{row},{first}" for row, first in held[:8])
    return Cell(f"{row},{first}", row, title=f"{where}: {pieces.where(row, first)}{several}", link=link)
