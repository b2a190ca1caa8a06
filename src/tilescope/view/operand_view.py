"""The drawing of a tensor-core operand in shared memory: its atoms, one atom both ways, and the facts.

Where each atom starts             One atom, by element            The same atom, by shared memory
          k 0-63   64-127                k  0-7   8-15 …              bank   0-3   4-7   8-11 …
mn  0-7   0x0000   0x4000          mn 0    0x000  0x010           line 0     0,0   0,8   0,16
mn 8-15   0x0400   0x4400             1    0x090  0x080                1     1,8   1,0   1,24

A cell of the middle grid has the colour of the banks that hold it, a cell of the right one the colour of the core
matrix it belongs to: a column of one colour on one side fans out over all eight on the other.
"""

from __future__ import annotations

from tilescope.layout import Layout, oriented
from tilescope.mma.canonical import CanonicalLayout
from tilescope.mma.descriptor import neighbours_in_words
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES
from tilescope.view.drawing import Drawing
from tilescope.view.grid import Cell, Grid, Header, chunk_bytes, extent, memory_grid
from tilescope.view.palette import Mark
from tilescope.view.parts import Beside, Part, Table

_NARROW_MAP = 4  # columns of a map of atoms that leave room beside it
_MOST_ATOMS = 16  # rows and columns of the map of atoms; a larger one is cut around the element that is asked for
Element = tuple[int, int]


def draw_canonical_layout(canonical: CanonicalLayout) -> Drawing:
    """One atom of a layout.

    >>> draw_canonical_layout(CanonicalLayout("K", "32B")).title
    'K-major 32B: one atom of 8 x 16 (mn x k), 16-bit elements'
    """
    mn, k = canonical.atom
    title = f"{canonical.major}-major {canonical.mode}: one atom of {mn} x {k} (mn x k), {canonical.element_bits}-bit elements"
    operand = _Operand(canonical, canonical.tile(canonical.atom), None)
    return Drawing(title, [_atom_sentence(canonical), Beside(operand.atom_both_ways()), operand.facts()])


def draw_operand(canonical: CanonicalLayout, layout: Layout, element: Element | None = None) -> Drawing:
    """A whole operand: the map of its atoms, the first one in full (or the one that holds `element`), and the facts.

    >>> canonical = CanonicalLayout("K", "128B")
    >>> print(draw_operand(canonical, canonical.tile((128, 64))).text(80).splitlines()[0])
    Operand 128 x 64 (mn x k), 16-bit elements, K-major 128B
    """
    mn, k = layout.shape
    if element is not None:
        layout.address(*element)  # refuses what lies outside
    title = (
        f"Operand {mn} x {k} (mn x k), {canonical.element_bits}-bit elements, {canonical.major}-major {canonical.mode}"
    )
    if layout.start:
        title += f", at shared address {layout.start:#x}"
    operand = _Operand(canonical, layout, element)
    order = layout.atom_order if 1 in operand.grid else "row" if operand.down > operand.right else "column"
    dimension = "contiguous" if order == "row" else "strided"
    follow = f"Order `{order}`: atoms along the {dimension} dimension follow each other in shared memory."
    starts, atom = operand.atom_map(), operand.atom_both_ways()
    grids: list[Part] = [Beside((starts, *atom))] if starts.columns <= _NARROW_MAP else [starts, Beside(atom)]
    return Drawing(title, [f"{_atom_sentence(canonical)} {follow}", *grids, operand.facts()])


def _atom_sentence(canonical: CanonicalLayout) -> str:
    mn, k = canonical.atom
    strided, contiguous = oriented(canonical.major, "mn", "k")
    moved = f"the {canonical.swizzle.name} swizzle then moves pieces of {canonical.swizzle.atom_bytes} bytes by their address"
    if canonical.swizzle.bits == 0:
        moved = "nothing is permuted, but this is not a tile of plain rows: a core matrix is 128 contiguous bytes"
    return (
        f"{contiguous} is contiguous. An atom of {mn} x {k} (mn x k) elements is stored whole in {canonical.atom_bytes} bytes, "
        f"{canonical.atom_rows} rows along {strided} of {canonical.span_bytes} bytes each; {moved}."
    )


class _Operand:
    """A tile of atoms as rows and columns, and the element that is asked for."""

    def __init__(self, canonical: CanonicalLayout, layout: Layout, element: Element | None) -> None:
        self.canonical, self.layout, self.element = canonical, layout, element
        self.tile = layout.as_rows()
        self.atom = oriented(canonical.major, *canonical.atom)
        self.grid = self.tile.shape[0] // self.atom[0], self.tile.shape[1] // self.atom[1]
        self.per_chunk = CHUNK_BYTES * 8 // canonical.element_bits
        self.at = None if element is None else oriented(canonical.major, *element)  # row, column
        row, column = self.at or (0, 0)
        self.corner = row - row % self.atom[0], column - column % self.atom[1]  # of the atom drawn in full
        first = self.tile.logical(0, 0)
        self.down = self.tile.logical(self.atom[0], 0) - first if self.grid[0] > 1 else 0
        self.right = self.tile.logical(0, self.atom[1]) - first if self.grid[1] > 1 else 0

    def atom_map(self) -> Grid:
        """Where each atom starts."""
        rows, columns = (
            _window(range(0, count * step, step), at // step)
            for count, at, step in zip(self.grid, self.corner, self.atom, strict=True)
        )
        row_name, column_name = self.tile.names
        notes = []
        if (len(rows), len(columns)) != self.grid:
            drawn = f"{len(rows)} x {len(columns)} of {self.grid[0]} x {self.grid[1]} atoms"
            notes.append(f"Drawn: {drawn}; the others continue in equal steps.")
        if self.down:
            notes.append(f"One atom down ({self.atom[0]} {row_name}): {self.down} bytes.")
        if self.right:
            notes.append(f"One atom to the right ({self.atom[1]} {column_name}): {self.right} bytes.")
        down = {row: extent(row, self.atom[0]) for row in rows}
        across = {column: extent(column, self.atom[1]) for column in columns}
        notes.append("The marked atom is drawn in full.")
        return Grid.of("Where each atom starts", self.tile.names, down, across, self._atom_cell, notes=notes)

    def _atom_cell(self, row: int, column: int) -> Cell:
        mn, k = oriented(self.canonical.major, row, column)
        start, atom_bytes = self.tile.logical(row, column), self.canonical.atom_bytes
        number = (start - self.layout.start) // atom_bytes
        title = f"atom {number}: mn from {mn}, k from {k}, bytes {start:#x} to {start + atom_bytes - 1:#x}"
        return Cell(f"{start:#06x}", number, "focus" if (row, column) == self.corner else "", title)

    def atom_both_ways(self) -> tuple[Grid, Grid]:
        """One atom by element, and by shared memory."""
        (first_row, first_column), (high, wide) = self.corner, self.atom
        rows = range(first_row, first_row + high)
        columns = range(first_column, first_column + wide, self.per_chunk)
        held = {self.tile.address(row, column): (row, column) for row in rows for column in columns}

        def mark(row: int, column: int) -> Mark:
            return "focus" if self.at in [(row, column + place) for place in range(self.per_chunk)] else ""

        def by_element(row: int, column: int) -> Cell:
            mn, k = oriented(self.canonical.major, row, column)
            address = self.tile.address(row, column)
            chunk, title = address % SMEM_LINE_BYTES // CHUNK_BYTES, f"mn {mn}, k {k}: {chunk_bytes(address)}"
            return Cell(f"{address:#05x}", chunk, mark(row, column), title, link=f"{address:x}")

        def by_memory(address: int) -> Cell:
            if address not in held:
                return Cell("", "unused", title=f"{address:#x}: not of this atom")
            row, column = held[address]
            mn, k = oriented(self.canonical.major, row, column)
            core_matrix = columns.index(column) * CHUNK_BYTES // self.canonical.swizzle.atom_bytes
            title = f"{chunk_bytes(address)}: from mn {mn}, k {k}; core matrix {core_matrix}"
            return Cell(f"{mn},{k}", core_matrix, mark(row, column), title, link=f"{address:x}")

        element_note = "A cell is a 16-byte chunk and says its address. Colour: the four banks that hold it."
        memory_note = "A cell names the mn,k that its chunk starts with. Colour: the core matrix, a column of chunks."
        headers = {column: Header.of_numbers(column, self.per_chunk) for column in columns}
        names, title = self.tile.names, "The same atom, by shared memory"
        elements = Grid.of("One atom, by element", names, rows, headers, by_element, notes=[element_note])
        return elements, memory_grid(title, min(held), max(held) + 1, by_memory, notes=(memory_note,))

    def facts(self) -> Table:
        """Size, core matrix, descriptor fields, readers."""
        canonical, rows = self.canonical, {}
        if self.element is not None:
            address = self.layout.address(*self.element)
            line, byte = divmod(address, SMEM_LINE_BYTES)
            said = f"address {address:#x}: line {line}, byte {byte} of it, bank {address // 4 % 32}"
            rows[f"element {self.element[0]},{self.element[1]}"] = said
        readers = ", ".join(reader.instruction for reader in canonical.readers)
        (mn, k), (mn_atoms, k_atoms) = canonical.core_matrix, oriented(canonical.major, *self.grid)
        leading, stride = canonical.offsets(self.layout)
        rows |= {
            "size": f"{self.layout.size_bytes} bytes; {mn_atoms} x {k_atoms} atoms (mn x k)",
            "core matrix": f"{mn} x {k} (mn x k), {canonical.core_matrices} side by side in an atom",
            "leading": f"{leading} bytes {neighbours_in_words(canonical, 'leading_bytes')}",
            "stride": f"{stride} bytes {neighbours_in_words(canonical, 'stride_bytes')}",
            "alignment": f"{self.layout.alignment_bytes} bytes, for base offset 0",
            "read by": readers or "no instruction, with elements of this width",
            "basis": canonical.basis,
        }
        return Table(rows)


def _window(atoms: range, around: int) -> range:
    first = min(max(0, around - _MOST_ATOMS // 2), max(0, len(atoms) - _MOST_ATOMS))
    return atoms[first : first + _MOST_ATOMS]
