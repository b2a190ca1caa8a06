"""The drawing of a tensor core's operand: a map of its atoms, and one atom both ways.

Where each atom starts             One atom, by element            The same atom, by shared memory
          k 0-63   64-127                k  0-7   8-15 …              bank   0-3   4-7   8-11 …
mn  0-7   0x0000   0x4000          mn 0    0x000  0x010           line 0     0,0   0,8   0,16
mn 8-15   0x0400   0x4400             1    0x090  0x080                1     1,8   1,0   1,24

A cell of the middle grid has the colour of the banks that hold it, a cell of the right one the colour of the
column that it comes from: a column of one colour on one side fans out over all eight on the other.
"""

from __future__ import annotations

from tilescope.layout import AtomOrder, Layout, oriented
from tilescope.mma.canonical import CanonicalLayout
from tilescope.sentence import by
from tilescope.swizzle import SMEM_LINE_BYTES
from tilescope.view.drawing import Beside, Drawing, Part, Table
from tilescope.view.grid import Cell, Grid
from tilescope.view.memory_grid import bank_of
from tilescope.view.number_span import extents
from tilescope.view.tile_pieces import Element, Pieces, row_addresses

_NARROW_MAP = 4  # columns of a map of atoms that leave space beside it
_MAX_ATOMS = 16  # rows and columns of the map of atoms; a larger one is cut around the requested element


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
    """A tile of atoms as rows and columns, and the requested element."""

    def __init__(self, canonical: CanonicalLayout, layout: Layout, element: Element | None = None) -> None:
        self.canonical = canonical
        self.layout = layout
        self.element = element
        self.element_address = None if element is None else layout.address(*element)  # refuses elements outside
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
        canonical = self.canonical
        swizzle = canonical.swizzle
        strided, contiguous = oriented(canonical.major, "mn", "k")
        moved = f"the {swizzle.name} swizzle then moves pieces of {swizzle.atom_bytes} bytes by their address"
        if not swizzle.bits:
            moved = "nothing is permuted, but this is not a tile of plain rows: a core matrix is 128 contiguous bytes"
        return (
            f"{contiguous} is contiguous. An atom of {by(canonical.atom)} (mn x k) elements is stored whole in "
            f"{canonical.atom_bytes} bytes, {canonical.atom_rows} rows along {strided} "
            f"of {canonical.span_bytes} bytes each; {moved}."
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

        rows = _drawn_starts(self.counts[0], self.atom[0], self.corner[0])
        columns = _drawn_starts(self.counts[1], self.atom[1], self.corner[1])
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


def _drawn_starts(count: int, step: int, around: int) -> range:
    """Where the atoms of one direction that are drawn start: around the one that starts at `around`.

    >>> list(_drawn_starts(20, 8, 128))[:2], len(_drawn_starts(20, 8, 128))
    ([32, 40], 16)
    """
    middle = around // step
    first = max(0, min(middle - _MAX_ATOMS // 2, count - _MAX_ATOMS))
    end = min(first + _MAX_ATOMS, count)
    return range(first * step, end * step, step)


DRAWINGS = {CanonicalLayout: draw_canonical_layout}
