"""The drawings of layouts: a tile in shared memory, whole or two of them side by side, two notations, threads and values.

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
from tilescope.layout import Layout, Modes
from tilescope.mma.canonical import CanonicalLayout
from tilescope.notation import Conversion
from tilescope.rule import rule
from tilescope.swizzle import CHUNK_BYTES, CHUNKS_PER_LINE, SMEM_LINE_BYTES
from tilescope.view.drawing import Drawing
from tilescope.view.grid import BANK_BYTES, Cell, Grid, extent
from tilescope.view.operand_view import Element, draw_operand
from tilescope.view.parts import Beside, Entry, Legend, Part, Table

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
_MOST_THREADS = 32


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
    def key(self) -> str:
        """What a cell of the tile is, and says."""
        elements = "one element" if self.elements == 1 else f"{self.elements} elements"
        return (
            f"A cell is {elements} of the tile ({self.bytes} bytes); its number is the {self.bytes}-byte place that holds it, "
            "counted from shared address 0. One colour, one chunk of the banks."
        )

    def where(self, row: int, first: int) -> str:
        """The elements of a piece, such as "mn 1, k 8 to 15"."""
        return f"{self.row_name} {row}, {self.column_name} {extent(first, self.elements, ' to ')}"

    def grid(
        self, title: str, rows: int = _MOST, columns: int = _MOST, marked: npt.NDArray[np.bool_] | None = None
    ) -> Grid:
        """The pieces of the tile, each with the place that holds it; `marked` ones are framed."""

        def cell(row: int, column: int) -> Cell:
            address, first = int(self.addresses[row, column]), column * self.elements
            said = f"{self.where(row, first)}: at {address:#x}, from bank {address // BANK_BYTES % 32}"
            chunk, link = address // CHUNK_BYTES % CHUNKS_PER_LINE, f"{row},{first}"
            mark = marked is not None and marked[row, column]
            return Cell(str(address // self.bytes), chunk, "collision" if mark else "", said, link=link)

        high, wide = self.addresses.shape
        names, firsts = (self.row_name, self.column_name), {column: column * self.elements for column in range(wide)}
        return Grid.of(title, names, range(high), firsts, cell, most=(rows, columns))


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
    facts = {
        "strides": f"`{layout.modes}` in elements" if layout.modes else f"`{layout.bit_modes}` in bits",
        "swizzle": str(layout.swizzle),
        "size": f"{layout.size_bytes} bytes from {layout.start:#x}",
        "address": f"`{layout.terms().c}`",
    }
    if element is not None:
        facts[f"element {', '.join(map(str, element))}"] = f"address {layout.address(*element):#x}"
    return Drawing(f"A tile of {described(layout)}", [grids, pieces.key, Table(facts)])


def draw_difference(one: Layout, other: Layout) -> Drawing:
    """Two layouts of one tile beside each other; pieces that lie elsewhere are marked.

    >>> draw_difference(Layout((8, 64), 16), Layout((8, 64), 16, swizzle="128B")).title
    'The layouts differ: 448 of 512 elements lie elsewhere'
    """
    if (one.shape, one.element_bits) != (other.shape, other.element_bits):
        found = f"{described(one)}, and {described(other)}"
        fix = f"Use a second tile of {by(one.shape)} elements of {one.element_bits} bits."
        raise LAYOUT_DIFFERENCE.error(
            "other", found, "two layouts of one tile and one width", fix,
            shape=one.shape, element_bits=one.element_bits,
            other_shape=other.shape, other_element_bits=other.element_bits,
        )  # fmt: skip
    arrays, names = (row_addresses(one), row_addresses(other)), None
    if one.major != other.major:  # both as mn x k
        arrays, names = ((one.addresses(), other.addresses()) if len(one.shape) == 2 else arrays), ("mn", "k")
    elsewhere = arrays[0] != arrays[1]
    both = [*zip((one, other), arrays, strict=True)]
    count = min(Pieces.of(layout, addresses, names).elements for layout, addresses in both)
    pieces = [Pieces.of(layout, addresses, names, count) for layout, addresses in both]
    marked = elsewhere.reshape(*pieces[0].addresses.shape, count).any(axis=2)
    titled = zip(("The first", "The second"), pieces, strict=True)
    grids = Beside(tuple(piece.grid(title, _MOST_WHOLE, _MOST_WHOLE // 2, marked) for title, piece in titled))
    facts = {"the first": f"`{one!r}`", "the second": f"`{other!r}`"}
    first = one.first_difference(other)
    if first is None:
        title = "The layouts are the same: every element lies at one address in both"
        return Drawing(title, [grids, pieces[0].key, Table(facts)])
    said = f"element {first}: at {one.address(*first):#x} in the first, at {other.address(*first):#x} in the second"
    legend = Legend((Entry("lies elsewhere in the other layout", 5, "collision", "5"),))
    title = f"The layouts differ: {int(elsewhere.sum())} of {elsewhere.size} elements lie elsewhere"
    return Drawing(title, [grids, legend, pieces[0].key, Table({"first difference": said} | facts)])


def _memory_grid(pieces: Pieces) -> Grid:
    """The lines of shared memory that the tile touches; a cell names the first element of the piece it holds."""
    held: dict[int, list[tuple[int, int]]] = {}
    for (row, column), address in np.ndenumerate(pieces.addresses):
        held.setdefault(int(address) // pieces.bytes, []).append((row, column * pieces.elements))
    width = max(1, min(SMEM_LINE_BYTES, 32 * pieces.bytes) // pieces.bytes)
    lines = sorted({place // width for place in held})

    def cell(line: int, column: int) -> Cell:
        place = line * width + column
        inside, where = held.get(place, []), f"from byte {place * pieces.bytes:#x} on"
        if not inside:
            return Cell("", "gap", title=f"{where}: not of the tile")
        row, first = inside[0]
        several = f", and {counted(len(inside) - 1, 'other')}" if len(inside) > 1 else ""
        link = " ".join(f"{row},{first}" for row, first in inside[:8])
        return Cell(f"{row},{first}", row, title=f"{where}: {pieces.where(row, first)}{several}", link=link)

    note = f"A cell names the {pieces.row_name},{pieces.column_name} that its piece starts with."
    names = "byte", "bank" if width * pieces.bytes == SMEM_LINE_BYTES else "word"
    labels = {line: f"{line * width * pieces.bytes:#06x}" for line in lines}
    banks = max(1, pieces.bytes // BANK_BYTES)
    columns = {place: extent(place * pieces.bytes // BANK_BYTES, banks) for place in range(width)}
    most, nouns = (_MOST_WHOLE, None), ("lines", "columns")
    return Grid.of("Shared memory", names, labels, columns, cell, notes=[note], most=most, nouns=nouns)


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


def draw_conversion(conversion: Conversion, picture: bool = True) -> Drawing:
    """Both texts with what was compared; with `picture`, the tile as each of them lays it out.

    >>> from tilescope.notation import convert_layout
    >>> found = convert_layout("GMMA::Layout_K_SW128_Atom<half_t>", "mosaic")
    >>> draw_conversion(found, picture=False).title
    'The same layout in mosaic'
    """
    said = ", ".join(f"{name} = {value}" for name, value in conversion.beside.items() if name != "start" or value)
    facts = {
        "from": f"`{conversion.source}`",
        "to": f"`{conversion.result}`",
        "unsaid there": said or "nothing: the text says all",
        "tile": described(conversion.layout),
        "compared": f"{conversion.compared} addresses of both texts, all equal",
    }
    parts: list[Part] = [Table(facts)]
    if picture:
        pieces, again = Pieces.of(conversion.layout), Pieces.of(conversion.read_again())
        grids = pieces.grid("As written"), again.grid(f"Read again from {conversion.notation}")
        parts = [Beside(grids), pieces.key, *parts]
    return Drawing(f"The same layout in {conversion.notation}", parts)


def draw_modes(modes: Modes, shape: tuple[int, int] | None = None) -> Drawing:
    """A thread-value layout: which index each thread holds, and with `shape`, which thread holds each element.

    >>> draw_modes(Modes(((4, 8), 2), ((2, 8), 1))).title
    'Thread-value layout of 32 threads x 2 values'
    """
    thread_modes, *value_modes = modes.parts
    index = Modes.joined(thread_modes, Modes.joined(*value_modes or (Modes(1, 0),))).offsets()
    grids = [_held_grid(index)] if shape is None else [_holder_grid(index, shape), _held_grid(index)]
    facts = Table({"layout": f"`{modes}`", "offsets": f"0 to {modes.cosize - 1}"})
    return Drawing("Thread-value layout of {} threads x {} values".format(*index.shape), [Beside(tuple(grids)), facts])


def _held_grid(index: npt.NDArray[np.int64]) -> Grid:
    """The index of the tile that each value of each thread is."""

    def cell(thread: int, value: int) -> Cell:
        at = index[thread, value]
        title = f"thread {thread}, value {value}: index {at}"
        return Cell(str(at), thread % 8, title=title, link=f"T{thread}V{value} T{thread}")

    rows, columns = (
        {at: f"{letter}{at}" for at in range(count)} for letter, count in zip("TV", index.shape, strict=True)
    )
    names, nouns, most = ("thread", "value"), ("threads", "values"), (_MOST_THREADS, _MOST)
    return Grid.of("What each thread holds", names, rows, columns, cell, most=most, nouns=nouns)


def _holder_grid(index: npt.NDArray[np.int64], shape: tuple[int, int]) -> Grid:
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

    rows, columns = map(range, shape)
    return Grid.of("Who holds each element", ("row", "column"), rows, columns, cell, most=(_MOST_THREADS, _MOST))
