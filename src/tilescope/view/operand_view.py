"""The drawing of a tensor-core operand in shared memory: its atoms, one atom both ways, and the facts.

Where each atom starts             One atom, by element            The same atom, by shared memory
          k 0-63   64-127                k  0-7   8-15 …              bank   0-3   4-7   8-11 …
mn  0-7   0x0000   0x4000          mn 0    0x000  0x010           line 0     0,0   0,8   0,16
mn 8-15   0x0400   0x4400             1    0x090  0x080                1     1,8   1,0   1,24

A cell of the middle grid has the colour of the banks that hold it, a cell of the right one the colour of the core
matrix it belongs to: a column of one colour on one side fans out over all eight on the other.
"""

from __future__ import annotations

from tilescope.mma.canonical import CanonicalLayout, OperandTile
from tilescope.mma.operand_descriptor import neighbours_in_words
from tilescope.swizzle import CHUNK_BYTES, CHUNKS_PER_LINE, SMEM_LINE_BYTES
from tilescope.view.drawing import Drawing
from tilescope.view.grid import Cell, Grid, Header, Row, Tier
from tilescope.view.palette import Mark
from tilescope.view.parts import Beside, Paragraph, Table

_NARROW_MAP = 4  # columns of a map of atoms that leave room beside it
_MOST_ATOMS = 16  # rows and columns of the map of atoms; a larger one is cut around what is asked for
Element = tuple[int, int]


def draw_canonical_layout(layout: CanonicalLayout) -> Drawing:
    """One atom of a layout.

    >>> draw_canonical_layout(CanonicalLayout("K", "32B")).title
    'K-major 32B: one atom of 8 x 16 (mn x k), 16-bit elements'
    """
    mn, k = layout.atom
    title = f"{layout.major}-major {layout.mode}: one atom of {mn} x {k} (mn x k), {layout.element_bits}-bit elements"
    tile = layout.tile(layout.atom)
    return Drawing(
        title, (Paragraph(_atom_sentence(layout)), Beside(_atom_both_ways(tile, (0, 0), None)), _facts(tile))
    )


def draw_operand_tile(tile: OperandTile, element: Element | None = None) -> Drawing:
    """A whole operand: the map of its atoms, the first one in full (or the one that holds `element`), and the facts.

    >>> print(draw_operand_tile(CanonicalLayout("K", "128B").tile((128, 64))).text(80).splitlines()[0])
    Operand 128 x 64 (mn x k), 16-bit elements, K-major 128B
    """
    layout = tile.canonical
    mn, k = tile.shape
    if element is not None:
        tile.address(*element)  # refuses what lies outside
    title = f"Operand {mn} x {k} (mn x k), {layout.element_bits}-bit elements, {layout.major}-major {layout.mode}"
    if tile.start:
        title += f", at shared address {tile.start:#x}"
    follow = {
        "column": "atoms along the strided dimension follow each other in shared memory",
        "row": "atoms along the contiguous dimension follow each other in shared memory",
    }[tile.atom_order]
    sentence = f"{_atom_sentence(layout)} Order `{tile.atom_order}`: {follow}."
    corner = _corner(element or (0, 0), layout)
    starts, atom = _atom_map(tile, corner), _atom_both_ways(tile, corner, element)
    grids = (Beside((starts, *atom)),) if starts.columns <= _NARROW_MAP else (starts, Beside(atom))
    return Drawing(title, (Paragraph(sentence), *grids, _facts(tile, element)))


def _atom_sentence(layout: CanonicalLayout) -> str:
    mn, k = layout.atom
    contiguous, strided = ("k", "mn") if layout.major == "K" else ("mn", "k")
    if layout.swizzle.bits == 0:
        moved = "nothing is permuted, but this is not a tile of plain rows: a core matrix is 128 contiguous bytes"
    else:
        moved = (
            f"the {layout.swizzle.name} swizzle then moves pieces of {layout.swizzle.atom_bytes} bytes by their address"
        )
    return (
        f"{contiguous} is contiguous. An atom of {mn} x {k} (mn x k) elements is stored whole in {layout.atom_bytes} bytes, "
        f"{layout.atom_rows} rows along {strided} of {layout.span_bytes} bytes each; {moved}."
    )


def _corner(element: Element, layout: CanonicalLayout) -> Element:
    """The first element of the atom that holds `element`."""
    (mn, k), (atom_mn, atom_k) = element, layout.atom
    return mn // atom_mn * atom_mn, k // atom_k * atom_k


def _drawn(layout: CanonicalLayout, mn: int, k: int) -> tuple[int, int]:
    """(mn, k) as (row, column) of a drawing, in which the contiguous dimension runs left to right."""
    return (mn, k) if layout.major == "K" else (k, mn)


def _window(count: int, around: int) -> range:
    first = min(max(0, around - _MOST_ATOMS // 2), max(0, count - _MOST_ATOMS))
    return range(first, min(count, first + _MOST_ATOMS))


def _extent(first: int, length: int) -> str:
    return f"{first}-{first + length - 1}" if length > 1 else str(first)


def _atom_map(tile: OperandTile, corner: Element) -> Grid:
    layout = tile.canonical
    rows_per_atom, columns_per_atom = _drawn(layout, *layout.atom)
    high, wide = _drawn(layout, *tile.atom_grid)
    focus_row, focus_column = _drawn(layout, *corner)
    down, across = _window(high, focus_row // rows_per_atom), _window(wide, focus_column // columns_per_atom)
    row_name, column_name = _drawn_names(layout)
    rows = []
    for down_number in down:
        cells = []
        for across_number in across:
            row, column = down_number * rows_per_atom, across_number * columns_per_atom
            mn, k = _drawn(layout, row, column)
            start = tile.logical(mn, k)
            number = (start - tile.start) // layout.atom_bytes
            title = f"atom {number}: mn from {mn}, k from {k}, bytes {start:#x} to {start + layout.atom_bytes - 1:#x}"
            cells.append(Cell(f"{start:#06x}", number, "focus" if (mn, k) == corner else "", title))
        rows.append(Row((_extent(down_number * rows_per_atom, rows_per_atom),), tuple(cells)))
    headers = tuple(Header(_extent(number * columns_per_atom, columns_per_atom)) for number in across)
    notes = []
    if len(down) < high or len(across) < wide:
        notes.append(
            f"Drawn: {len(down)} x {len(across)} of {high} x {wide} atoms; the others continue in equal steps."
        )
    step_down, step_right = tile.layout.atom_strides_bytes
    if high > 1:
        notes.append(f"One atom down ({rows_per_atom} {row_name}): {step_down} bytes.")
    if wide > 1:
        notes.append(f"One atom to the right ({columns_per_atom} {column_name}): {step_right} bytes.")
    notes.append("The marked atom is drawn in full.")
    return Grid(
        "Where each atom starts",
        (Tier(column_name, headers),),
        tuple(rows),
        (row_name,),
        tuple(notes),
    )


def _drawn_names(layout: CanonicalLayout) -> tuple[str, str]:
    return ("mn", "k") if layout.major == "K" else ("k", "mn")


def _atom_both_ways(tile: OperandTile, corner: Element, element: Element | None) -> tuple[Grid, Grid]:
    return _by_element(tile, corner, element), _by_memory(tile, corner, element)


def _chunks(tile: OperandTile, corner: Element) -> list[list[Element]]:
    """The first element of every 16-byte chunk of an atom, by rows of the drawing."""
    layout = tile.canonical
    per_chunk = CHUNK_BYTES * 8 // layout.element_bits
    first_row, first_column = _drawn(layout, *corner)
    rows, columns = _drawn(layout, *layout.atom)
    return [
        [_drawn(layout, row, column) for column in range(first_column, first_column + columns, per_chunk)]
        for row in range(first_row, first_row + rows)
    ]


def _holds(tile: OperandTile, chunk: Element, element: Element | None) -> bool:
    if element is None:
        return False
    layout = tile.canonical
    per_chunk = CHUNK_BYTES * 8 // layout.element_bits
    (row, column), (at_row, at_column) = _drawn(layout, *chunk), _drawn(layout, *element)
    return row == at_row and column <= at_column < column + per_chunk


def _by_element(tile: OperandTile, corner: Element, element: Element | None) -> Grid:
    layout = tile.canonical
    per_chunk = CHUNK_BYTES * 8 // layout.element_bits
    row_name, column_name = _drawn_names(layout)
    rows = []
    for chunks in _chunks(tile, corner):
        cells = []
        for mn, k in chunks:
            address = tile.address(mn, k)
            place = address % SMEM_LINE_BYTES // CHUNK_BYTES
            title = f"mn {mn}, k {k}: bytes {address:#x} to {address + CHUNK_BYTES - 1:#x}, banks {4 * place}-{4 * place + 3}"
            mark: Mark = "focus" if _holds(tile, (mn, k), element) else ""
            cells.append(Cell(f"{address:#05x}", place, mark, title, link=f"{address:x}"))
        rows.append(Row((str(_drawn(layout, *chunks[0])[0]),), tuple(cells)))
    first_columns = [_drawn(layout, *chunk)[1] for chunk in _chunks(tile, corner)[0]]
    tier = Tier(column_name, tuple(Header(_extent(first, per_chunk), short=str(first)) for first in first_columns))
    note = "A cell is a 16-byte chunk and says its address. Colour: the four banks that hold it."
    return Grid("One atom, by element", (tier,), tuple(rows), (row_name,), (note,))


def _by_memory(tile: OperandTile, corner: Element, element: Element | None) -> Grid:
    layout = tile.canonical
    held = {}
    for chunks in _chunks(tile, corner):
        for number, chunk in enumerate(chunks):
            held[tile.address(*chunk)] = chunk, number * CHUNK_BYTES // layout.swizzle.atom_bytes
    first, last = min(held) // SMEM_LINE_BYTES, max(held) // SMEM_LINE_BYTES
    rows = []
    for line in range(first, last + 1):
        cells = []
        for place in range(CHUNKS_PER_LINE):
            address = line * SMEM_LINE_BYTES + place * CHUNK_BYTES
            if address not in held:
                cells.append(Cell("", "unused", title=f"{address:#x}: not of this atom"))
                continue
            (mn, k), core_matrix = held[address]
            title = (
                f"bytes {address:#x} to {address + CHUNK_BYTES - 1:#x}: from mn {mn}, k {k}; core matrix {core_matrix}"
            )
            mark: Mark = "focus" if _holds(tile, (mn, k), element) else ""
            cells.append(Cell(f"{mn},{k}", core_matrix, mark, title, link=f"{address:x}"))
        rows.append(Row((f"{line * SMEM_LINE_BYTES:#06x}",), tuple(cells)))
    banks = tuple(Header(f"{4 * place}-{4 * place + 3}", short=str(4 * place)) for place in range(CHUNKS_PER_LINE))
    note = "A cell names the mn,k that its chunk starts with. Colour: the core matrix, a column of chunks."
    return Grid("The same atom, by shared memory", (Tier("bank", banks),), tuple(rows), ("byte",), (note,))


def _facts(tile: OperandTile, element: Element | None = None) -> Table:
    layout = tile.canonical
    mn, k = layout.core_matrix
    rows = []
    if element is not None:
        address = tile.address(*element)
        line, byte = divmod(address, SMEM_LINE_BYTES)
        said = f"address {address:#x}: line {line}, byte {byte} of it, bank {address // 4 % 32}"
        rows.append((f"element {element[0]},{element[1]}", said))
    readers = (
        ", ".join(reader.instruction for reader in layout.readers) or "no instruction, with elements of this width"
    )
    rows += [
        ("size", f"{tile.size_bytes} bytes; {tile.atom_grid[0]} x {tile.atom_grid[1]} atoms (mn x k)"),
        ("core matrix", f"{mn} x {k} (mn x k), {layout.core_matrices} side by side in an atom"),
        ("leading", f"{tile.leading_bytes} bytes {neighbours_in_words(layout, 'leading_bytes')}"),
        ("stride", f"{tile.stride_bytes} bytes {neighbours_in_words(layout, 'stride_bytes')}"),
        ("alignment", f"{tile.alignment_bytes} bytes, for base offset 0"),
        ("read by", readers),
        ("basis", layout.basis),
    ]
    return Table(tuple(rows))
