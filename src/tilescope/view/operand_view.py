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
from tilescope.view.grid import Cell, Grid, Header, Row, Tier, number_span
from tilescope.view.memory_grid import chunk_bytes, memory_grid
from tilescope.view.palette import Mark
from tilescope.view.parts import Beside, Paragraph, Table

_NARROW_MAP = 4  # columns of a map of atoms that leave room beside it
_MOST_ATOMS = 16  # rows and columns of the map of atoms; a larger one is cut around what is asked for
Element = tuple[int, int]


def draw_canonical_layout(canonical: CanonicalLayout) -> Drawing:
    """One atom of a layout.

    >>> draw_canonical_layout(CanonicalLayout("K", "32B")).title
    'K-major 32B: one atom of 8 x 16 (mn x k), 16-bit elements'
    """
    mn, k = canonical.atom
    title = f"{canonical.major}-major {canonical.mode}: one atom of {mn} x {k} (mn x k), {canonical.element_bits}-bit elements"
    operand = _Operand(canonical, canonical.tile(canonical.atom), None)
    return Drawing(title, (Paragraph(_atom_sentence(canonical)), Beside(operand.atom_both_ways()), operand.facts()))


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
    follow = {
        "column": "atoms along the strided dimension follow each other in shared memory",
        "row": "atoms along the contiguous dimension follow each other in shared memory",
    }[order or "column"]
    sentence = f"{_atom_sentence(canonical)} Order `{order}`: {follow}."
    starts, atom = operand.atom_map(), operand.atom_both_ways()
    grids = (Beside((starts, *atom)),) if starts.columns <= _NARROW_MAP else (starts, Beside(atom))
    return Drawing(title, (Paragraph(sentence), *grids, operand.facts()))


def _atom_sentence(canonical: CanonicalLayout) -> str:
    mn, k = canonical.atom
    strided, contiguous = oriented(canonical.major, "mn", "k")
    if canonical.swizzle.bits == 0:
        moved = "nothing is permuted, but this is not a tile of plain rows: a core matrix is 128 contiguous bytes"
    else:
        moved = f"the {canonical.swizzle.name} swizzle then moves pieces of {canonical.swizzle.atom_bytes} bytes by their address"
    return (
        f"{contiguous} is contiguous. An atom of {mn} x {k} (mn x k) elements is stored whole in {canonical.atom_bytes} bytes, "
        f"{canonical.atom_rows} rows along {strided} of {canonical.span_bytes} bytes each; {moved}."
    )


def _window(count: int, around: int) -> range:
    first = min(max(0, around - _MOST_ATOMS // 2), max(0, count - _MOST_ATOMS))
    return range(first, min(count, first + _MOST_ATOMS))


def _extent(first: int, length: int) -> str:
    return number_span(first, first + length - 1)


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
        self.offsets = canonical.offsets(layout)
        first = self.tile.logical(0, 0)
        self.down, self.right = (
            self.tile.logical(*place) - first if inside else 0
            for place, inside in (((self.atom[0], 0), self.grid[0] > 1), ((0, self.atom[1]), self.grid[1] > 1))
        )

    def atom_map(self) -> Grid:
        """Where each atom starts."""
        (rows_per_atom, columns_per_atom), (high, wide) = self.atom, self.grid
        down, across = (
            _window(count, at // step) for count, at, step in zip(self.grid, self.corner, self.atom, strict=True)
        )
        row_name, column_name = self.tile.names
        rows = tuple(
            Row(
                (_extent(number * rows_per_atom, rows_per_atom),),
                tuple(self._atom_cell(number * rows_per_atom, other * columns_per_atom) for other in across),
            )
            for number in down
        )
        headers = tuple(Header(_extent(number * columns_per_atom, columns_per_atom)) for number in across)
        notes = []
        if len(down) < high or len(across) < wide:
            notes.append(
                f"Drawn: {len(down)} x {len(across)} of {high} x {wide} atoms; the others continue in equal steps."
            )
        if high > 1:
            notes.append(f"One atom down ({rows_per_atom} {row_name}): {self.down} bytes.")
        if wide > 1:
            notes.append(f"One atom to the right ({columns_per_atom} {column_name}): {self.right} bytes.")
        notes.append("The marked atom is drawn in full.")
        return Grid("Where each atom starts", (Tier(column_name, headers),), rows, (row_name,), tuple(notes))

    def _atom_cell(self, row: int, column: int) -> Cell:
        mn, k = oriented(self.canonical.major, row, column)
        start, atom_bytes = self.tile.logical(row, column), self.canonical.atom_bytes
        number = (start - self.layout.start) // atom_bytes
        title = f"atom {number}: mn from {mn}, k from {k}, bytes {start:#x} to {start + atom_bytes - 1:#x}"
        return Cell(f"{start:#06x}", number, "focus" if (row, column) == self.corner else "", title)

    def atom_both_ways(self) -> tuple[Grid, Grid]:
        """One atom by element, and by shared memory."""
        first_row, first_column = self.corner
        chunks = [
            [(row, column) for column in range(first_column, first_column + self.atom[1], self.per_chunk)]
            for row in range(first_row, first_row + self.atom[0])
        ]
        return self._by_element(chunks), self._by_memory(chunks)

    def _mark(self, row: int, column: int) -> Mark:
        """Whether the chunk that starts here holds the element."""
        if self.at is None:
            return ""
        return "focus" if row == self.at[0] and column <= self.at[1] < column + self.per_chunk else ""

    def _by_element(self, chunks: list[list[Element]]) -> Grid:
        def cell(row: int, column: int) -> Cell:
            mn, k = oriented(self.canonical.major, row, column)
            address = self.tile.address(row, column)
            place, title = address % SMEM_LINE_BYTES // CHUNK_BYTES, f"mn {mn}, k {k}: {chunk_bytes(address)}"
            return Cell(f"{address:#05x}", place, self._mark(row, column), title, link=f"{address:x}")

        row_name, column_name = self.tile.names
        rows = tuple(Row((str(line[0][0]),), tuple(cell(*chunk) for chunk in line)) for line in chunks)
        headers = (Header(_extent(column, self.per_chunk), short=str(column)) for _, column in chunks[0])
        note = "A cell is a 16-byte chunk and says its address. Colour: the four banks that hold it."
        return Grid("One atom, by element", (Tier(column_name, tuple(headers)),), rows, (row_name,), (note,))

    def _by_memory(self, chunks: list[list[Element]]) -> Grid:
        held = {self.tile.address(*chunk): (chunk, number) for line in chunks for number, chunk in enumerate(line)}

        def cell(address: int) -> Cell:
            if address not in held:
                return Cell("", "unused", title=f"{address:#x}: not of this atom")
            (row, column), number = held[address]
            mn, k = oriented(self.canonical.major, row, column)
            core_matrix = number * CHUNK_BYTES // self.canonical.swizzle.atom_bytes
            title = f"{chunk_bytes(address)}: from mn {mn}, k {k}; core matrix {core_matrix}"
            return Cell(f"{mn},{k}", core_matrix, self._mark(row, column), title, link=f"{address:x}")

        note = "A cell names the mn,k that its chunk starts with. Colour: the core matrix, a column of chunks."
        return memory_grid("The same atom, by shared memory", min(held), max(held) + 1, cell, notes=(note,))

    def facts(self) -> Table:
        """Size, core matrix, descriptor fields, readers."""
        canonical, rows = self.canonical, []
        if self.element is not None:
            address = self.layout.address(*self.element)
            line, byte = divmod(address, SMEM_LINE_BYTES)
            said = f"address {address:#x}: line {line}, byte {byte} of it, bank {address // 4 % 32}"
            rows.append((f"element {self.element[0]},{self.element[1]}", said))
        readers = ", ".join(reader.instruction for reader in canonical.readers)
        (mn, k), (mn_atoms, k_atoms) = canonical.core_matrix, oriented(canonical.major, *self.grid)
        leading, stride = self.offsets
        rows += [
            ("size", f"{self.layout.size_bytes} bytes; {mn_atoms} x {k_atoms} atoms (mn x k)"),
            ("core matrix", f"{mn} x {k} (mn x k), {canonical.core_matrices} side by side in an atom"),
            ("leading", f"{leading} bytes {neighbours_in_words(canonical, 'leading_bytes')}"),
            ("stride", f"{stride} bytes {neighbours_in_words(canonical, 'stride_bytes')}"),
            ("alignment", f"{self.layout.alignment_bytes} bytes, for base offset 0"),
            ("read by", readers or "no instruction, with elements of this width"),
            ("basis", canonical.basis),
        ]
        return Table(tuple(rows))
