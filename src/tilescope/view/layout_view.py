"""The drawings of a tile in shared memory: its pieces, a whole layout both ways, two layouts side by side.

The tile                        Shared memory
k      0  8 16 24 …             bank       0    4    8   12 …      a cell of the tile says its 16-byte place, a cell
mn 0   0  1  2  3 …             0x0000   0,0  0,8 0,16 0,24 …      of memory the piece it holds; both share a link
mn 1   9  8 11 10 …             0x0080   1,8  1,0 1,24 1,16 …
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilescope.errors import by, counted
from tilescope.layout import Layout
from tilescope.mma.canonical import CanonicalLayout
from tilescope.rule import rule
from tilescope.swizzle import CHUNK_BYTES, CHUNKS_PER_LINE, SMEM_LINE_BYTES
from tilescope.view.drawing import Drawing
from tilescope.view.grid import BANK_BYTES, Cell, Grid, Row, Tier, drawn_of, number_span
from tilescope.view.operand_view import Element, draw_operand
from tilescope.view.parts import Beside, Entry, Legend, Paragraph, Part, Table

LAYOUT_DIFFERENCE = rule(
    "layout-difference",
    "Two layouts are drawn side by side where they are of one tile, with elements of one width.",
    source="the command line",
    passing='ts.view.layout_view.draw_difference(ts.Layout((8, 64), 16), ts.Layout((8, 64), 16, swizzle="128B"))',
    failing="ts.view.layout_view.draw_difference(ts.Layout((8, 64), 16), ts.Layout((8, 64), 8))",
)

_MOST = 16  # rows and columns of a tile, in pieces …
_MOST_WHOLE = 128  # … and of one that is drawn whole; two of them have half the columns
_MOST_HELD = 4096  # pieces of a drawing of shared memory


@dataclass(frozen=True, slots=True)
class Pieces:
    """A tile cut into pieces that lie whole in shared memory, contiguous index left to right."""

    addresses: npt.NDArray[np.int64]  # of each piece's first byte: rows x pieces
    elements: int  # of a piece
    bytes: int
    row_name: str
    column_name: str

    @classmethod
    def of(
        cls,
        layout: Layout,
        addresses: npt.NDArray[np.int64] | None = None,
        names: tuple[str, str] | None = None,
        most: int | None = None,
    ) -> Pieces:
        """The widest pieces, up to 16 bytes and `most` elements, that no row's swizzle takes apart."""
        addresses = row_addresses(layout) if addresses is None else addresses
        count = most or max(1, CHUNK_BYTES * 8 // layout.element_bits)
        while count > 1 and not _whole(addresses, count, layout.element_bits):
            count //= 2
        row_name, column_name = names or layout.as_rows().names
        return cls(addresses[:, ::count], count, max(1, count * layout.element_bits // 8), row_name, column_name)

    @property
    def key(self) -> Paragraph:
        """What a cell of the tile is, and says."""
        elements = "one element" if self.elements == 1 else f"{self.elements} elements"
        return Paragraph(
            f"A cell is {elements} of the tile ({self.bytes} bytes); its number is the {self.bytes}-byte place that holds it, "
            "counted from shared address 0. One colour, one chunk of the banks."
        )

    def where(self, row: int, first: int) -> str:
        """The elements of a piece, such as "mn 1, k 8 to 15"."""
        return f"{self.row_name} {row}, {self.column_name} {number_span(first, first + self.elements - 1, ' to ')}"

    def grid(
        self, title: str, rows: int = _MOST, columns: int = _MOST, marked: npt.NDArray[np.bool_] | None = None
    ) -> Grid:
        """The pieces of the tile, each with the place that holds it; `marked` ones are framed."""
        shown = self.addresses[:rows, :columns]
        firsts = [column * self.elements for column in range(shown.shape[1])]

        def cell(row: int, column: int) -> Cell:
            address, first = int(shown[row, column]), firsts[column]
            said = f"{self.where(row, first)}: at {address:#x}, from bank {address // BANK_BYTES % 32}"
            mark = "collision" if marked is not None and marked[row, column] else ""
            chunk = address // CHUNK_BYTES % CHUNKS_PER_LINE
            return Cell(str(address // self.bytes), chunk, mark, said, link=f"{row},{first}")  # type: ignore[arg-type]

        lines = tuple(
            Row((str(row),), tuple(cell(row, column) for column in range(len(firsts)))) for row in range(len(shown))
        )
        notes = drawn_of(shown.shape, self.addresses.shape, ("rows", "columns"))
        return Grid(title, (Tier.of(self.column_name, firsts),), lines, (self.row_name,), notes)


def draw_layout(layout: Layout, element: Element | None = None, other: Layout | None = None) -> Drawing:
    """Where each piece of the tile lies in shared memory; of a tensor core's operand, its atoms too. `other` is compared.

    >>> from tilescope.notation import parse_layout
    >>> draw_layout(parse_layout("((32,4),4):((16,4),1)", element_bits=8)).title
    'A tile of 128 x 4 elements of 8 bits: mn x k, k contiguous'
    """
    if other is not None:
        return draw_difference(layout, other)
    canonical = CanonicalLayout.of(layout)
    if canonical is not None:
        return draw_operand(canonical, layout, element)
    pieces = Pieces.of(layout)
    return _drawing(layout, pieces, pieces.grid("The tile in shared memory"), element)


def whole_layout(layout: Layout) -> Drawing:
    """Where each piece of the tile lies, and beside it what each place of shared memory holds.

    >>> drawing = whole_layout(Layout((8, 64), 16, swizzle="128B"))
    >>> [grid.title for grid in drawing.parts[0].parts]
    ['The tile', 'Shared memory']
    """
    pieces = Pieces.of(layout)
    tile = pieces.grid("The tile", _MOST_WHOLE, _MOST_WHOLE)
    memory = (_memory_grid(pieces),) if pieces.addresses.size <= _MOST_HELD else ()
    return _drawing(layout, pieces, Beside((tile, *memory)))


def _drawing(layout: Layout, pieces: Pieces, grids: Part, element: Element | None = None) -> Drawing:
    facts = [
        ("strides", f"`{layout.modes}` in elements" if layout.modes else f"`{layout.bit_modes}` in bits"),
        ("swizzle", str(layout.swizzle)),
        ("size", f"{layout.size_bytes} bytes from {layout.start:#x}"),
        ("address", f"`{layout.terms().c}`"),
    ]
    if element is not None:
        facts.append((f"element {', '.join(map(str, element))}", f"address {layout.address(*element):#x}"))
    return Drawing(f"A tile of {described(layout)}", (grids, pieces.key, Table(tuple(facts))))


def draw_difference(one: Layout, other: Layout) -> Drawing:
    """Two layouts of one tile beside each other; pieces that lie elsewhere are marked.

    >>> draw_difference(Layout((8, 64), 16), Layout((8, 64), 16, swizzle="128B")).title
    'The layouts differ: 448 of 512 elements lie elsewhere'
    """
    if (one.shape, one.element_bits) != (other.shape, other.element_bits):
        found = f"{described(one)}, and {described(other)}"
        fix = f"Use a second tile of {by(one.shape)} elements of {one.element_bits} bits."
        raise LAYOUT_DIFFERENCE.error("other", found, "two layouts of one tile and one width", fix)
    arrays, names = (row_addresses(one), row_addresses(other)), None
    if one.major != other.major:  # both as mn x k
        arrays, names = ((one.addresses(), other.addresses()) if len(one.shape) == 2 else arrays), ("mn", "k")
    elsewhere = arrays[0] != arrays[1]
    both = [*zip((one, other), arrays, strict=True)]
    count = min(Pieces.of(layout, addresses, names).elements for layout, addresses in both)
    pieces = [Pieces.of(layout, addresses, names, count) for layout, addresses in both]
    marked = elsewhere.reshape(*pieces[0].addresses.shape, count).any(axis=2)
    grids = Beside(tuple(
        each.grid(title, _MOST_WHOLE, _MOST_WHOLE // 2, marked)
        for title, each in zip(("The first", "The second"), pieces, strict=True)
    ))  # fmt: skip
    facts = [("the first", f"`{one!r}`"), ("the second", f"`{other!r}`")]
    first = one.first_difference(other)
    if first is None:
        title = "The layouts are the same: every element lies at one address in both"
        return Drawing(title, (grids, pieces[0].key, Table(tuple(facts))))
    said = f"element {first}: at {one.address(*first):#x} in the first, at {other.address(*first):#x} in the second"
    legend = Legend((Entry("lies elsewhere in the other layout", 5, "collision", "5"),))
    title = f"The layouts differ: {int(elsewhere.sum())} of {elsewhere.size} elements lie elsewhere"
    return Drawing(title, (grids, legend, pieces[0].key, Table((("first difference", said), *facts))))


def _memory_grid(pieces: Pieces) -> Grid:
    """The lines of shared memory that the tile touches; a cell names the first element of the piece it holds."""
    held: dict[int, list[tuple[int, int]]] = {}
    for (row, column), address in np.ndenumerate(pieces.addresses):
        held.setdefault(int(address) // pieces.bytes, []).append((row, column * pieces.elements))
    width = max(1, min(SMEM_LINE_BYTES, 32 * pieces.bytes) // pieces.bytes)
    numbers = sorted({place // width for place in held})
    lines = tuple(
        Row(
            (f"{number * width * pieces.bytes:#06x}",),
            tuple(_held_cell(pieces, number * width + place, held) for place in range(width)),
        )
        for number in numbers[:_MOST_WHOLE]
    )
    banks = [place * pieces.bytes // BANK_BYTES for place in range(width)]
    spans = [number_span(bank, bank + max(1, pieces.bytes // BANK_BYTES) - 1) for bank in banks]
    tier = Tier.of("bank" if width * pieces.bytes == SMEM_LINE_BYTES else "word", spans)
    note = f"A cell names the {pieces.row_name},{pieces.column_name} that its piece starts with."
    cut = drawn_of((len(lines),), (len(numbers),), ("lines",))
    return Grid("Shared memory", (tier,), lines, ("byte",), (note, *cut))


def _held_cell(pieces: Pieces, place: int, all_held: dict[int, list[tuple[int, int]]]) -> Cell:
    held = all_held.get(place, [])
    where = f"from byte {place * pieces.bytes:#x} on"
    if not held:
        return Cell("", "gap", title=f"{where}: not of the tile")
    row, first = held[0]
    several = f", and {counted(len(held) - 1, 'other')}" if len(held) > 1 else ""
    link = " ".join(f"{row},{first}" for row, first in held[:8])
    return Cell(f"{row},{first}", row, title=f"{where}: {pieces.where(row, first)}{several}", link=link)


def described(layout: Layout) -> str:
    """The tile's extents, its elements' width, and which index is contiguous."""
    contiguous = {"K": ": mn x k, k contiguous", "MN": ": mn x k, mn contiguous", None: ""}[layout.major]
    return f"{by(layout.shape)} elements of {layout.element_bits} bits{contiguous}"


def row_addresses(layout: Layout) -> npt.NDArray[np.int64]:
    """The address of every element, by rows and columns of the drawing."""
    rows = layout.as_rows()
    return np.asarray(rows.address(*np.ix_(*map(np.arange, rows.shape))))


def _whole(addresses: npt.NDArray[np.int64], count: int, element_bits: int) -> bool:
    """Whether every run of `count` elements is contiguous and starts on a place of its own size."""
    rows, columns = addresses.shape
    if columns % count or count * element_bits % 8:
        return False
    runs = addresses.reshape(rows, columns // count, count)
    expected = runs[:, :, :1] + np.arange(count) * element_bits // 8
    return bool((runs == expected).all() and (runs[:, :, 0] % (count * element_bits // 8) == 0).all())
