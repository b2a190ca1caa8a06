"""The drawings of scale factors: an atom in memory, its words in tensor memory, and the lanes that hold them in registers.

    One atom of scale factors, 512 bytes       In tensor memory
    byte   0-3    4-7    8-11   12-15          column   0       1       2       3
    row 0  0      32     64     96             warp 0   0-31    32-63   64-95   96-127     the same in every quarter
    row 1  1      33     65     97

Row 37 is in row 5 of the atom, bytes 4 to 7, and in lane 5 of every quarter, column 1.
"""

from __future__ import annotations

from tilescope.arithmetic import ceil_div
from tilescope.mma.scale_lanes import ScaleLanes
from tilescope.mma.scale_layout import ScaleLayout
from tilescope.mma.scale_packing import ATOM_BYTES, ATOM_ROWS, ATOM_SCALES
from tilescope.mma.tmem_address import QUARTER_LANES, QUARTERS
from tilescope.view.drawing import Beside, Drawing, Table
from tilescope.view.grid import Cell, Grid
from tilescope.view.number_span import extent, number_span
from tilescope.view.small_scale_view import draw_small_atoms

_ROWS_SHOWN = 8  # of the 32 of an atom
_ATOM_LINES = 32  # of 16 bytes, in an atom
_LINE_BYTES = 16
_MAX_STEPS = 8
_MAX_COLUMNS = 8  # of the words of scale factors


def draw_scale_layout(
    scales: ScaleLayout, element: tuple[int, int] | None = None, block: tuple[int, int] | None = None
) -> Drawing:
    """An atom in memory and in tensor memory; the scale of an `element` (row, k) or a `block` (row, block) is marked.

    >>> from tilescope.mma.scale_layout import scale_layout
    >>> draw_scale_layout(scale_layout(128, 256, "nvfp4")).title
    'Scale factors of 128 x 256 elements, nvfp4: 128 x 16 of ue4m3'
    """
    row = scales.format
    if element is not None:
        block = element[0], element[1] // row.block
    title = _asked_for(block, element)
    if scales.atom == "8x4":
        return draw_small_atoms(scales, block, title)
    size = f"{scales.rows} x {scales.k} elements, {row.name}: {scales.rows} x {scales.blocks} of {row.scale_type}"
    sentence = (
        f"One scale for {row.block} elements of k. Four scales of a row are a 32-bit word; "
        f"128 rows x 4 scales are an atom of {ATOM_BYTES} bytes. `r37` is the word of row 37."
    )
    first, along = block or (0, 0)
    links = set()
    if block is not None:
        links = {f"row{first}", f"rows{first // QUARTER_LANES * QUARTER_LANES}"}
    atom = _atom_grid(scales, first, along).marked(links)
    columns = _column_grid(scales, first, along).marked(links)
    return Drawing(
        f"Scale factors of {size}",
        {
            "sentence": sentence,
            "element": None if block is None else _place_table(scales, block, title),
            "grids": Beside({"atom": atom, "columns": columns}),
            "tables": Beside({"steps": _steps(scales), "facts": _facts(scales)}),
        },
    )


def _steps(scales: ScaleLayout) -> Table:
    records = (
        {
            "k": step.k,
            "column": step.column,
            "id": step.scale_id,
            "blocks": number_span(step.scales[0], step.scales[-1]),
        }
        for step in scales.steps()
    )
    return Table.of(records, "Operands of the instructions", "rrrr", most=_MAX_STEPS, noun="instructions")


def _atom_grid(scales: ScaleLayout, around: int, block: int) -> Grid:
    """The rows of 16 bytes of the atom that holds the scale of a row and block, eight of them around it."""
    down = around // ATOM_ROWS
    along = block // ATOM_SCALES
    first = around % _ATOM_LINES // _ROWS_SHOWN * _ROWS_SHOWN
    atom = down * scales.atoms[1] + along
    blocks = f"blocks {_blocks_of_word(scales, along)}"

    def cell(line: int, byte: int) -> Cell:
        row = down * ATOM_ROWS + byte // ATOM_SCALES * _ATOM_LINES + line
        at = atom * ATOM_BYTES + line * _LINE_BYTES + byte
        if row >= scales.rows:
            return Cell("padding", "gap", title=f"bytes {at:#x}: zero")
        return Cell(f"r{row}", byte // ATOM_SCALES, title=f"row {row}, {blocks}, at byte {at:#x}", link=f"row{row}")

    note = f"Rows {extent(first, _ROWS_SHOWN, ' to ')} of {_ATOM_LINES}; atom {atom} of {scales.atoms[0] * scales.atoms[1]}."
    lines = range(first, first + _ROWS_SHOWN)
    labels = {line: (str(line), f"{atom * ATOM_BYTES + line * _LINE_BYTES:#x}") for line in lines}
    words = {byte: extent(byte, ATOM_SCALES) for byte in range(0, _LINE_BYTES, ATOM_SCALES)}
    names = ("row", "byte", "byte")
    return Grid.of("One atom in global and shared memory", names, labels, words, cell, notes=[note])


def _blocks_of_word(scales: ScaleLayout, word: int) -> str:
    """The blocks of k whose scales share a word: 4 to 7."""
    first = word * ATOM_SCALES
    return f"{first} to {min(first + ATOM_SCALES, scales.blocks) - 1}"


def _column_grid(scales: ScaleLayout, around: int, block: int) -> Grid:
    """The columns of tensor memory with the rows whose words they hold, quarter by quarter."""
    along = block // ATOM_SCALES
    groups = ceil_div(scales.rows, QUARTER_LANES)
    first_group = around // QUARTER_LANES // _MAX_COLUMNS * _MAX_COLUMNS
    first = along * scales.word_columns

    def cell(quarter: int, group: int) -> Cell:
        first_row = group * QUARTER_LANES
        rows = f"r{first_row}-{min(first_row + QUARTER_LANES, scales.rows) - 1}"
        title = f"lane l of quarter {quarter}, column {first + group}: the word of row {first_row} + l"
        return Cell(rows, group, title=title, link=f"rows{first_row}")

    blocks = _blocks_of_word(scales, along)
    note = f"Blocks {blocks} of k; the next word is {scales.word_columns} columns further on."
    labels = {
        quarter: (f"warp {quarter}", extent(quarter * QUARTER_LANES, QUARTER_LANES)) for quarter in range(QUARTERS)
    }
    columns = {group: first + group for group in range(first_group, min(groups, first_group + _MAX_COLUMNS))}
    return Grid.of("Words in tensor memory", ("quarter", "lane", "column"), labels, columns, cell, notes=[note])


def _asked_for(block: tuple[int, int] | None, element: tuple[int, int] | None) -> str:
    """The request, as the title of the table about it; empty without one."""
    if element is not None:
        return f"Element (row {element[0]}, k {element[1]})"
    return "" if block is None else f"Scale (row {block[0]}, block {block[1]})"


def _place_table(scales: ScaleLayout, asked: tuple[int, int], title: str) -> Table:
    row, block = asked
    width = scales.format.block
    offset = scales.offset(row, block)
    place = scales.tensor_memory("A").place(row, block)
    step = next(step for step in scales.steps() if block in step.scales)
    atom, byte = divmod(offset, ATOM_BYTES)
    lanes = ", ".join(map(str, place.lanes))
    rows = {
        "scale": f"row {row}, block {block} (k {extent(block * width, width, ' to ')})",
        "in memory": f"byte {offset} ({offset:#x}): atom {atom}, row {byte // 16}, byte {byte % 16}",
        "in tensor memory": f"lanes {lanes}, column {place.column}, byte {place.bit // 8} of the cell",
        "read by": f"the instruction at k {step.k}, with id {step.scale_id} and the word at column {step.column}",
    }
    return Table(rows, title=title)


def _facts(scales: ScaleLayout) -> Table:
    row = scales.format
    down, along = scales.atoms
    facts = {
        "atoms": f"{down} x {along} (rows x k), {scales.size_bytes} bytes, of which {scales.padding_bytes} are padding",
        "tcgen05": f"kind::{row.mma_kind}, scale_vec {row.qualifier}, scale type {row.scale_type}",
        "ids": ", ".join(map(str, row.ids(row.k_steps[0]))),
        "copies": f"{down * along} x tcgen05.cp.32x128b.warpx4, stride 128 bytes, no swizzle",
        "columns": _column_facts(scales),
        "sm_120": _register_facts(scales),
        "basis": "documented",
    }
    return Table(facts)


def _register_facts(scales: ScaleLayout) -> str:
    """Which lanes of a warp hold scale factors in registers, as sm_120 reads them."""
    a = scales.mma_lanes("A")
    b = scales.mma_lanes("B")
    a_lanes = ", ".join(map(str, a.lanes()))
    b_lanes = ", ".join(map(str, b.lanes()))
    return (
        f"{a.instruction}, thread-id 0: A from lanes {a_lanes} (rows 0 to {a.extent - 1}); "
        f"B from lanes {b_lanes} (columns 0 to {b.extent - 1}). Thread-id t: 2 t lanes further on for A, t for B"
    )


def _column_facts(scales: ScaleLayout) -> str:
    """Columns of tensor memory; fewer for B of a pair with m = 128, whose halves of n are in different quarters."""
    along = scales.atoms[1]
    columns = scales.word_columns
    columns_text = f"{columns * along}: {columns} for each word of k"
    if scales.rows not in (192, 256):  # up to 128 columns they are as many; the other widths no pair has
        return columns_text
    as_b = scales.columns_per_word("B", m=128, cta_group=2)
    return f"{columns_text}; as B of a pair with m = 128: {as_b * along}, {as_b} for each word"


def draw_scale_lanes(lanes: ScaleLanes) -> Drawing:
    """The lanes of a warp with the row or column whose scales their register holds."""
    indices = {lanes.lane(index): index for index in range(lanes.extent)}
    name = "row" if lanes.operand == "A" else "column"

    def cell(first: int, offset: int) -> Cell:
        lane = first + offset
        if lane not in indices:
            return Cell("", "unused", title=f"lane {lane}: not looked at")
        index = indices[lane]
        return Cell(str(index), index, title=f"lane {lane}: {name} {index}")

    grid = Grid.of(f"Which {name} each lane's register serves", ("lane", "+"), range(0, 32, 8), range(8), cell)
    used = ", ".join(map(str, lanes.bytes_used))
    facts = Table({"bytes": f"{used} of the register, for the {len(lanes.bytes_used)} blocks of k"})
    ids = f"thread-id {lanes.thread_id}, byte-id {lanes.byte_id}"
    title = f"{lanes.instruction}, {lanes.format.name}: scale factors of {lanes.operand}, {ids}"
    return Drawing(title, {"lanes": grid, "facts": facts})


DRAWINGS = {ScaleLanes: draw_scale_lanes, ScaleLayout: draw_scale_layout}
