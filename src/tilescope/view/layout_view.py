"""The drawings of layouts: a tile in shared memory, an operand with its atoms, two layouts or notations side by side.

The tile                        Shared memory
k      0  8 16 24 …             bank       0    4    8   12 …      a cell of the tile says its 16-byte place, a cell
mn 0   0  1  2  3 …             0x0000   0,0  0,8 0,16 0,24 …      of memory the piece it holds; both share a link
mn 1   9  8 11 10 …             0x0080   1,8  1,0 1,24 1,16 …

Of a tensor core's operand, a map of the atoms, and one atom both ways:

Where each atom starts             One atom, by element            The same atom, by shared memory
          k 0-63   64-127                k  0-7   8-15 …              bank   0-3   4-7   8-11 …
mn  0-7   0x0000   0x4000          mn 0    0x000  0x010           line 0     0,0   0,8   0,16
mn 8-15   0x0400   0x4400             1    0x090  0x080                1     1,8   1,0   1,24

A cell of the middle grid has the colour of the banks that hold it, a cell of the right one the colour of the
column that it comes from: a column of one colour on one side fans out over all eight on the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from tilescope.layout import AtomOrder, Layout, oriented
from tilescope.layout.comparison import contiguous_index, require_one_tile
from tilescope.mma.canonical import CanonicalLayout
from tilescope.notation import Conversion
from tilescope.sentence import by, counted
from tilescope.swizzle import CHUNK_BYTES, CHUNKS_PER_LINE, SMEM_LINE_BYTES
from tilescope.view.drawing import Beside, Drawing, Entry, Legend, Part, Table
from tilescope.view.grid import Cell, Grid, bank_of, extent, extents, memory_grid, memory_row_bytes

if TYPE_CHECKING:
    from tilescope.questions.layouts import EveryNotation

_MOST = 16  # rows and columns of a tile, in pieces …
_MAX_WHOLE = 128  # … and of one that is drawn whole; two of them have half the columns
_MAX_HELD = 4096  # pieces of a drawing of shared memory
_MAX_LINKS = 8  # pieces with which a place of shared memory is linked, where several lie there
_NARROW_MAP = 4  # columns of a map of atoms that leave room beside it
_MAX_ATOMS = 16  # rows and columns of the map of atoms; a larger one is cut around the element that is asked for
Element = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Pieces:
    """A tile cut into pieces that lie whole in shared memory, contiguous index left to right."""

    addresses: npt.NDArray[np.int64]  # of the first bytes of pieces: rows x pieces
    elements: int  # of a piece
    bytes: int
    names: tuple[str, str]  # of rows and columns
    corner: Element = (0, 0)  # what the first piece starts with

    @classmethod
    def of(
        cls,
        layout: Layout,
        *,
        addresses: npt.NDArray[np.int64] | None = None,
        names: tuple[str, str] | None = None,
        most: int | None = None,
        corner: Element = (0, 0),
    ) -> Self:
        """The widest pieces, up to 16 bytes and `most` elements, that no row's swizzle takes apart."""
        addresses = row_addresses(layout) if addresses is None else addresses
        count = most or max(1, CHUNK_BYTES * 8 // layout.element_bits)
        while count > 1 and not _whole(addresses, count, layout.element_bits):
            count //= 2
        return cls(
            addresses=addresses[:, ::count],
            elements=count,
            bytes=max(1, count * layout.element_bits // 8),
            names=names or layout.as_rows().names,
            corner=corner,
        )

    @property
    def key(self) -> str:
        """What a cell of the tile is, and says."""
        elements = "one element" if self.elements == 1 else f"{self.elements} elements"
        return (
            f"A cell is {elements} of the tile ({counted(self.bytes, 'byte')}); "
            f"its number is the {self.bytes}-byte place that holds it, counted from shared address 0. "
            "One colour, one chunk of the banks."
        )

    def firsts(self) -> tuple[range, range]:
        """The rows and columns that pieces start with."""
        row, column = self.corner
        high, wide = self.addresses.shape
        return range(row, row + high), range(column, column + wide * self.elements, self.elements)

    def where(self, row: int, column: int) -> str:
        """The elements of a piece, such as "mn 1, k 8 to 15"."""
        return f"{self.names[0]} {row}, {self.names[1]} {extent(column, self.elements, ' to ')}"

    def grid(self, title: str, most: tuple[int, int] = (_MOST, _MOST), *, in_bytes: bool = False) -> Grid:
        """The pieces of the tile, each with the number of the place that holds it, or with its address."""

        def cell(row: int, column: int) -> Cell:
            address = int(self.addresses[row - self.corner[0], (column - self.corner[1]) // self.elements])
            said = f"{self.where(row, column)}: at {address:#x}, from bank {bank_of(address)}"
            text = f"{address:#05x}" if in_bytes else str(address // self.bytes)
            return Cell(text, address // CHUNK_BYTES % CHUNKS_PER_LINE, title=said, link=f"{row},{column}")

        rows, columns = self.firsts()
        notes = []
        if in_bytes:
            notes.append("A cell is a 16-byte chunk and says its address. Colour: the four banks that hold it.")
        return Grid.of(title, self.names, rows, columns, cell, most=most, notes=notes)

    def memory(self, title: str, colour: str = "its column of the tile") -> Grid:
        """The lines of shared memory that the tile touches; a cell names the first element of the piece it holds."""
        held: dict[int, list[Element]] = {}
        for first, address in zip(product(*self.firsts()), self.addresses.ravel().tolist(), strict=True):
            held.setdefault(address // self.bytes * self.bytes, []).append(first)
        rows_are_k = self.names == ("k", "mn")  # cells name mn before k all the same

        def mn_first(row: object, column: object) -> str:
            return f"{column},{row}" if rows_are_k else f"{row},{column}"

        def cell(address: int) -> Cell:
            if address not in held:
                return Cell("", "gap", title=f"from byte {address:#x} on: not of the tile")
            (row, column), *others = held[address]
            title = f"from byte {address:#x} on: {self.where(row, column)}"
            if others:
                title += f", and {counted(len(others), 'other')}"
            link = " ".join(f"{row},{column}" for row, column in held[address][:_MAX_LINKS])
            number = (column - self.corner[1]) // self.elements
            return Cell(mn_first(row, column), number, title=title, link=link)

        note = f"A cell names the {mn_first(*self.names)} that its piece starts with. Colour: {colour}."
        row_bytes = memory_row_bytes(self.bytes)
        lines = sorted({address // row_bytes * row_bytes for address in held})
        return memory_grid(title, lines, cell, piece_bytes=self.bytes, most=_MAX_WHOLE, notes=[note])


def draw_layout(
    layout: Layout,
    *,
    element: Element | None = None,
    other: Layout | None = None,
    whole: bool = False,
    notations: EveryNotation | None = None,
) -> Drawing:
    """Where each piece of the tile lies in shared memory; of a tensor core's operand, its atoms too.

    `element` is marked and told; `other` is compared with the layout; `whole` draws the whole tile beside shared memory;
    `notations` are listed instead.

    >>> from tilescope.notation import parse_layout
    >>> draw_layout(parse_layout("((32,4),4):((16,4),1)", element_bits=8)).title
    'A tile of 128 x 4 elements of 8 bits: mn x k, k contiguous'
    """
    if notations is not None:
        return draw_notations(notations)
    if other is not None:
        return draw_difference(layout, other)
    if whole:
        return whole_layout(layout)
    canonical = CanonicalLayout.of(layout)
    if canonical is not None:
        return draw_operand(canonical, layout, element)
    pieces = Pieces.of(layout)
    row, column = oriented(layout.major, *(element or (0, 0)))
    links = set() if element is None else {f"{row},{column // pieces.elements * pieces.elements}"}
    return _drawing(layout, pieces, {"tile": pieces.grid("The tile in shared memory").marked(links)}, element)


def draw_notations(notations: EveryNotation) -> Drawing:
    """One layout as every notation writes it, or why one has no text for it."""
    texts = Table(tuple(notations.texts.items()), ("notation", "text"))
    return Drawing(f"{notations.written} in every notation", {"texts": texts, "assumed": notations.assumption})


def whole_layout(layout: Layout) -> Drawing:
    """Where each piece of the tile lies, and beside it what each place of shared memory holds.

    >>> drawing = whole_layout(Layout((8, 64), 16, swizzle="128B"))
    >>> drawing["tile"].title, drawing["memory"].title
    ('The tile', 'Shared memory')
    """
    pieces = Pieces.of(layout)
    grids = {"tile": pieces.grid("The tile", (_MAX_WHOLE, _MAX_WHOLE))}
    if pieces.addresses.size <= _MAX_HELD:
        grids["memory"] = pieces.memory("Shared memory")
    return _drawing(layout, pieces, grids)


def _drawing(layout: Layout, pieces: Pieces, grids: dict[str, Grid], element: Element | None = None) -> Drawing:
    facts = {
        "strides": f"`{layout.modes}` in elements" if layout.modes else f"`{layout.bit_modes}` in bits",
        "swizzle": str(layout.swizzle),
        "size": f"{counted(layout.size_bytes, 'byte')} from {layout.start:#x}",
        "address": f"`{layout.terms().c}`",
    }
    if element is not None:
        facts[f"element {', '.join(map(str, element))}"] = f"address {layout.address(*element):#x}"
    return Drawing(
        f"A tile of {described(layout)}",
        {"grids": Beside(grids), "key": pieces.key, "facts": Table(facts)},
    )


def draw_difference(one: Layout, other: Layout) -> Drawing:
    """Two layouts of one tile beside each other; pieces that lie elsewhere are marked.

    >>> draw_difference(Layout((8, 64), 16), Layout((8, 64), 16, swizzle="128B")).title
    'The layouts differ: 448 of 512 elements lie elsewhere'
    """
    require_one_tile(one, other)
    if one.major == other.major:
        names = one.as_rows().names
        addresses = row_addresses(one)
        other_addresses = row_addresses(other)
    else:
        names = ("mn", "k")
        addresses = one.addresses()
        other_addresses = other.addresses()
    count = min(
        Pieces.of(one, addresses=addresses).elements,
        Pieces.of(other, addresses=other_addresses).elements,
    )
    pieces = Pieces.of(one, addresses=addresses, names=names, most=count)
    other_pieces = Pieces.of(other, addresses=other_addresses, names=names, most=count)
    elsewhere = addresses != other_addresses
    marked = elsewhere.reshape(*pieces.addresses.shape, count).any(axis=2)
    links = {f"{row},{piece * count}" for row, piece in zip(*marked.nonzero(), strict=True)}
    most = (_MAX_WHOLE, _MAX_WHOLE // 2)
    grids = Beside(
        {
            "first": pieces.grid("The first", most).marked(links, "collision"),
            "second": other_pieces.grid("The second", most).marked(links, "collision"),
        }
    )
    facts = {"the first": f"`{one!r}`", "the second": f"`{other!r}`"}
    first = one.first_difference(other)
    if first is None:
        title = "The layouts are the same: every element lies at one address in both"
        return Drawing(title, {"grids": grids, "key": pieces.key, "facts": Table(facts)})
    said = f"element {first}: at {one.address(*first):#x} in the first, at {other.address(*first):#x} in the second"
    legend = Legend((Entry("lies elsewhere in the other layout", 5, "collision", "5"),))
    title = f"The layouts differ: {int(elsewhere.sum())} of {elsewhere.size} elements lie elsewhere"
    table = Table({"first difference": said} | facts)
    return Drawing(title, {"grids": grids, "legend": legend, "key": pieces.key, "facts": table})


def described(layout: Layout) -> str:
    """The tile's extents, its elements' width, and which index is contiguous."""
    said = f"{by(layout.shape)} elements of {counted(layout.element_bits, 'bit')}"
    contiguous = contiguous_index(layout)
    return said if contiguous is None else f"{said}: mn x k, {contiguous} contiguous"


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
    return bool((runs == expected).all()) and not (runs[:, :, 0] % (count * element_bits // 8)).any()


def draw_conversion(conversion: Conversion, picture: bool = True) -> Drawing:
    """Both texts with what was compared; with `picture`, the tile as each of them lays it out.

    >>> from tilescope.notation import convert_layout
    >>> found = convert_layout("GMMA::Layout_K_SW128_Atom<half_t>", "mosaic")
    >>> draw_conversion(found, picture=False).title
    'The same layout in mosaic'
    """
    beside = [f"{name} = {value}" for name, value in conversion.beside.items() if name != "start" or value]
    facts = {
        "from": f"`{conversion.source}`",
        "to": f"`{conversion.result}`",
        "unsaid there": ", ".join(beside) or "nothing: the text says all",
        "tile": described(conversion.layout),
        "compared": f"{conversion.compared} addresses of both texts, all equal",
    }
    if conversion.assumed:
        facts["assumed"] = conversion.assumption
    parts: dict[str, Part] = {}
    if picture:
        written = Pieces.of(conversion.layout)
        read_again = Pieces.of(conversion.read_again())
        parts["grids"] = Beside(
            {
                "written": written.grid("As written"),
                "read again": read_again.grid(f"Read again from {conversion.notation}"),
            }
        )
        parts["key"] = written.key
    parts["facts"] = Table(facts)
    return Drawing(f"The same layout in {conversion.notation}", parts)


def draw_canonical_layout(canonical: CanonicalLayout) -> Drawing:
    """One atom of a layout.

    >>> draw_canonical_layout(CanonicalLayout("K", "32B")).title
    'K-major 32B: one atom of 8 x 16 (mn x k), 16-bit elements'
    """
    title = (
        f"{canonical.major}-major {canonical.mode}: one atom of {by(canonical.atom)} (mn x k), "
        f"{canonical.element_bits}-bit elements"
    )
    operand = _Operand(canonical, canonical.tile(canonical.atom))
    return Drawing(
        title,
        {"sentence": operand.sentence, "grids": Beside(operand.atom_both_ways()), "facts": operand.facts()},
    )


def draw_operand(canonical: CanonicalLayout, layout: Layout, element: Element | None = None) -> Drawing:
    """A whole operand: the map of its atoms, the first one in full (or the one that holds `element`), and the facts.

    >>> canonical = CanonicalLayout("K", "128B")
    >>> print(draw_operand(canonical, canonical.tile((128, 64))).text(80).splitlines()[0])
    Operand 128 x 64 (mn x k), 16-bit elements, K-major 128B
    """
    operand = _Operand(canonical, layout, element)
    size = f"{by(layout.shape)} (mn x k), {canonical.element_bits}-bit elements"
    title = f"Operand {size}, {canonical.major}-major {canonical.mode}"
    if layout.start:
        title += f", at shared address {layout.start:#x}"
    dimension = "contiguous" if operand.order == "row" else "strided"
    follow = f"Order `{operand.order}`: atoms along the {dimension} dimension follow each other in shared memory."
    starts = operand.atom_map()
    atom = operand.atom_both_ways()
    grids: dict[str, Part] = {"atoms": starts, "atom": Beside(atom)}
    if starts.columns <= _NARROW_MAP:
        grids = {"grids": Beside({"atoms": starts, **atom})}
    return Drawing(title, {"sentence": f"{operand.sentence} {follow}", **grids, "facts": operand.facts()})


class _Operand:
    """A tile of atoms as rows and columns, and the element that is asked for."""

    def __init__(self, canonical: CanonicalLayout, layout: Layout, element: Element | None = None) -> None:
        self.canonical = canonical
        self.layout = layout
        self.element = element
        self.element_address = None if element is None else layout.address(*element)  # refuses what lies outside
        self.tile = layout.as_rows()
        self.atom = oriented(canonical.major, *canonical.atom)  # rows, columns
        self.counts = tuple(length // step for length, step in zip(self.tile.shape, self.atom, strict=True))
        self.at = oriented(canonical.major, *(element or (0, 0)))  # row, column
        row = self.at[0] // self.atom[0] * self.atom[0]
        column = self.at[1] // self.atom[1] * self.atom[1]
        self.corner = row, column  # of the atom drawn in full
        self.step_down_bytes = self._step_bytes(self.atom[0], 0) if self.counts[0] > 1 else 0
        self.step_right_bytes = self._step_bytes(0, self.atom[1]) if self.counts[1] > 1 else 0

    def _step_bytes(self, row: int, column: int) -> int:
        """Bytes from the first atom to the one that starts with this row and column."""
        return int(self.tile.logical(row, column)) - self.layout.start

    @property
    def order(self) -> AtomOrder | None:
        """Along which dimension atoms follow each other: "row" or "column"."""
        if 1 in self.counts:
            return self.layout.atom_order
        return "row" if self.step_down_bytes > self.step_right_bytes else "column"

    @property
    def sentence(self) -> str:
        """What an atom is."""
        canonical, swizzle = self.canonical, self.canonical.swizzle
        strided, contiguous = oriented(canonical.major, "mn", "k")
        moved = f"the {swizzle.name} swizzle then moves pieces of {swizzle.atom_bytes} bytes by their address"
        if not swizzle.bits:
            moved = "nothing is permuted, but this is not a tile of plain rows: a core matrix is 128 contiguous bytes"
        return (
            f"{contiguous} is contiguous. An atom of {by(canonical.atom)} (mn x k) elements is stored whole in "
            f"{canonical.atom_bytes} bytes, {canonical.atom_rows} rows along {strided} of {canonical.span_bytes} bytes each; "
            f"{moved}."
        )

    def atom_map(self) -> Grid:
        """Where each atom starts."""
        atom_bytes = self.canonical.atom_bytes

        def cell(row: int, column: int) -> Cell:
            mn, k = oriented(self.canonical.major, row, column)
            start = self.tile.logical(row, column)
            number = (start - self.layout.start) // atom_bytes
            title = f"atom {number}: mn from {mn}, k from {k}, bytes {start:#x} to {start + atom_bytes - 1:#x}"
            return Cell(f"{start:#06x}", number, "focus" if (row, column) == self.corner else "", title)

        rows = _window(self.counts[0], self.atom[0], self.corner[0])
        columns = _window(self.counts[1], self.atom[1], self.corner[1])
        notes = self._map_notes((len(rows), len(columns)))
        names = self.tile.names
        return Grid.of("Where each atom starts", names, extents(rows), extents(columns), cell, notes=notes)

    def _map_notes(self, drawn: tuple[int, int]) -> list[str]:
        row_name, column_name = self.tile.names
        notes = []
        if drawn != self.counts:
            notes.append(f"Drawn: {by(drawn)} of {by(self.counts)} atoms; the others continue in equal steps.")
        if self.step_down_bytes:
            notes.append(f"One atom down ({self.atom[0]} {row_name}): {self.step_down_bytes} bytes.")
        if self.step_right_bytes:
            notes.append(f"One atom to the right ({self.atom[1]} {column_name}): {self.step_right_bytes} bytes.")
        notes.append("The marked atom is drawn in full.")
        return notes

    def atom_both_ways(self) -> dict[str, Grid]:
        """One atom by element, and by shared memory."""
        row, column = self.corner
        high, wide = self.atom
        addresses = row_addresses(self.layout)[row : row + high, column : column + wide]
        pieces = Pieces.of(self.layout, addresses=addresses, corner=self.corner)
        links = set()
        if self.element is not None:
            links.add(f"{self.at[0]},{self.at[1] // pieces.elements * pieces.elements}")
        _, contiguous = oriented(self.canonical.major, *self.canonical.core_matrix)
        is_core_matrix = contiguous == pieces.elements
        colour = "the core matrix, a column of chunks" if is_core_matrix else "its column of the atom"
        by_element = pieces.grid("One atom, by element", in_bytes=True)
        by_memory = pieces.memory("The same atom, by shared memory", colour)
        return {"by element": by_element.marked(links), "by memory": by_memory.marked(links)}

    def facts(self) -> Table:
        """Size, core matrix, descriptor fields, readers."""
        canonical = self.canonical
        facts = {}
        address = self.element_address
        if self.element is not None and address is not None:
            mn, k = self.element
            facts[f"element {mn},{k}"] = (
                f"address {address:#x}: line {address // SMEM_LINE_BYTES}, byte {address % SMEM_LINE_BYTES} of it, "
                f"bank {bank_of(address)}"
            )
        readers = ", ".join(reader.instruction for reader in canonical.readers)
        leading, stride = canonical.offsets(self.layout)
        atoms = by(oriented(canonical.major, *self.counts))
        facts |= {
            "size": f"{self.layout.size_bytes} bytes; {atoms} atoms (mn x k)",
            "core matrix": f"{by(canonical.core_matrix)} (mn x k), {canonical.core_matrices} side by side in an atom",
            "leading": f"{leading} bytes {canonical.neighbours('leading_bytes')}",
            "stride": f"{stride} bytes {canonical.neighbours('stride_bytes')}",
            "alignment": f"{self.layout.alignment_bytes} bytes, for base offset 0",
            "read by": readers or "no instruction, with elements of this width",
            "basis": canonical.basis,
        }
        return Table(facts)


def _window(count: int, step: int, around: int) -> range:
    """Where the atoms of one direction start, those that are drawn: around the one that starts at `around`."""
    atoms = range(0, count * step, step)
    first = min(around // step - _MAX_ATOMS // 2, count - _MAX_ATOMS)
    return atoms[max(0, first) :][:_MAX_ATOMS]


DRAWINGS = {
    CanonicalLayout: draw_canonical_layout,
    Conversion: draw_conversion,
    Layout: draw_layout,
}
