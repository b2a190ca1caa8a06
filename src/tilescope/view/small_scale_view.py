"""The drawing of scale factors in 8x4 atoms: the words of eight neighbouring rows, one behind the other.

row byte   0-3
  0  0x0   r0
  1  0x4   r1
"""

from __future__ import annotations

from tilescope.mma.scale_layout import ScaleLayout
from tilescope.mma.scale_packing import ATOM_SCALES, SCALE_ATOM
from tilescope.view.drawing import Beside, Drawing, Table
from tilescope.view.grid import Cell, Grid
from tilescope.view.number_span import extent


def draw_small_atoms(scales: ScaleLayout, block: tuple[int, int] | None, asked_for: str) -> Drawing:
    """An 8x4 atom in memory; the scale of a `block` (row, block) is marked, and described under the title `asked_for`."""
    row = scales.format
    atom = SCALE_ATOM[scales.atom]
    sentence = (
        f"One scale for {row.block} elements of k. Four scales of a row are a 32-bit word; "
        f"{atom.rows} rows x {ATOM_SCALES} scales are an atom of {atom.size_bytes} bytes, those along k one behind the "
        "other. `r5` is the word of row 5."
    )
    first_row, first_block = block or (0, 0)
    links = set() if block is None else {f"row{first_row}"}
    return Drawing(
        f"Scale factors of {scales.rows} x {scales.k} elements, {row.name}: {scales.rows} x {scales.blocks} of "
        f"{row.scale_type}, in 8x4 atoms",
        {
            "sentence": sentence,
            "element": None if block is None else _place_table(scales, block, asked_for),
            "grids": Beside({"atom": _atom_grid(scales, first_row, first_block).marked(links)}),
            "tables": Beside({"facts": _facts(scales)}),
        },
    )


def _atom_grid(scales: ScaleLayout, around: int, block: int) -> Grid:
    """The words of the atom that holds the scale of a row and block."""
    atom = SCALE_ATOM[scales.atom]
    down = around // atom.rows
    along = block // ATOM_SCALES
    number = down * scales.atoms[1] + along
    start = number * atom.size_bytes
    blocks = f"blocks {along * 4} to {min(along * 4 + 3, scales.blocks - 1)}"

    def cell(line: int, _: int) -> Cell:
        row = down * atom.rows + line
        at = start + line * ATOM_SCALES
        if row >= scales.rows:
            return Cell("padding", "gap", title=f"bytes {at:#x}: zero")
        return Cell(f"r{row}", line, title=f"row {row}, {blocks}, at byte {at:#x}", link=f"row{row}")

    labels = {line: (str(line), f"{start + line * ATOM_SCALES:#x}") for line in range(atom.rows)}
    note = f"{blocks.capitalize()}; atom {number} of {scales.atoms[0] * scales.atoms[1]}."
    return Grid.of(
        "One atom in global memory", ("row", "byte", "byte"), labels, {0: extent(0, ATOM_SCALES)}, cell, notes=[note]
    )


def _place_table(scales: ScaleLayout, asked: tuple[int, int], title: str) -> Table:
    row, block = asked
    width = scales.format.block
    offset = scales.offset(row, block)
    atom, byte = divmod(offset, SCALE_ATOM[scales.atom].size_bytes)
    facts = {
        "scale": f"row {row}, block {block} (k {extent(block * width, width, ' to ')})",
        "in memory": f"byte {offset} ({offset:#x}): atom {atom}, row {byte // ATOM_SCALES}, byte {byte % ATOM_SCALES}",
    }
    return Table(facts, title=title)


def _facts(scales: ScaleLayout) -> Table:
    down, along = scales.atoms
    size = f"{scales.size_bytes} bytes, of which {scales.padding_bytes} are padding"
    return Table(
        {
            "atoms": f"{down} x {along} (rows x k), {size}",
            "offset": f"(row / 8 * {along} + block / 4) * 32 + row % 8 * 4 + block % 4",
            "taken by": "kernels of TensorRT-LLM and FlashInfer for few rows (SWIZZLED_8x4, R8c4)",
            "tensor memory": "no document says how these atoms get there; tcgen05.cp takes 128x4 atoms",
            "basis": "documented",
        }
    )
