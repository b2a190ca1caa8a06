"""The drawing of scale factors: an atom in memory, the words in tensor memory, what each instruction is told.

One atom, 512 bytes                        In tensor memory
byte   0-3    4-7    8-11   12-15          column   0       1       2       3
row 0  0      32     64     96             warp 0   0-31    32-63   64-95   96-127     the same in every quarter
row 1  1      33     65     97
"""

from __future__ import annotations

from tilescope.mma.scale_lanes import ScaleLanes, scale_lanes
from tilescope.mma.scale_layout import ScaleLayout
from tilescope.mma.scale_packing import ATOM_BYTES, ATOM_ROWS, ATOM_SCALES
from tilescope.mma.tmem_address import QUARTER_LANES, QUARTERS
from tilescope.view.drawing import Drawing
from tilescope.view.grid import Cell, Grid, Row, Tier, drawn_of, number_span
from tilescope.view.parts import Beside, Paragraph, Part, Table

_ROWS_SHOWN = 8  # of the 32 of an atom
_MOST_STEPS = 8
_MOST_COLUMNS = 8  # of tensor memory


def draw_scale_layout(scales: ScaleLayout, element: tuple[int, int] | None = None) -> Drawing:
    """An atom in memory and in tensor memory; with `element` (row, k) the scale that it shares is marked and told.

    >>> from tilescope.mma.scale_layout import scale_layout
    >>> draw_scale_layout(scale_layout(128, 256, "nvfp4")).title
    'Scale factors of 128 x 256 elements, nvfp4: 128 x 16 of ue4m3'
    """
    row = scales.format
    title = f"Scale factors of {scales.rows} x {scales.k} elements, {row.name}: {scales.rows} x {scales.blocks} of {row.scale_type}"
    said = (
        f"One scale for {row.block} elements of k. Four scales of a row are a 32-bit word; 128 rows x 4 scales are an atom of "
        f"{ATOM_BYTES} bytes. `r37` is the word of row 37."
    )
    parts: list[Part] = [Paragraph(said)]
    place = None
    if element is not None:
        place = element[0], element[1] // row.block
        parts.append(_element_table(scales, element))
    parts += [
        Beside((_atom_grid(scales, place), _column_grid(scales, place))),
        Beside((_steps(scales), _facts(scales))),
    ]
    return Drawing(title, tuple(parts))


def _atom_of(place: tuple[int, int] | None) -> tuple[int, int]:
    return (0, 0) if place is None else (place[0] // ATOM_ROWS, place[1] // ATOM_SCALES)


def _atom_grid(scales: ScaleLayout, place: tuple[int, int] | None) -> Grid:
    """The rows of 16 bytes of one atom, the first eight or those around the element."""
    down, along = _atom_of(place)
    first = 0 if place is None else place[0] % 32 // _ROWS_SHOWN * _ROWS_SHOWN
    start = (down * scales.atoms[1] + along) * ATOM_BYTES
    lines = []
    for line in range(first, first + _ROWS_SHOWN):
        cells = []
        for word in range(4):
            row = down * ATOM_ROWS + word * 32 + line
            if row >= scales.rows:
                cells.append(Cell("padding", "gap", title=f"bytes {start + line * 16 + word * 4:#x}: zero"))
                continue
            blocks = f"blocks {along * 4} to {min(along * 4 + 3, scales.blocks - 1)}"
            focus = place is not None and row == place[0]
            said = f"row {row}, {blocks}, at byte {start + line * 16 + word * 4:#x}"
            cells.append(Cell(f"r{row}", word, "focus" if focus else "", said))
        lines.append(Row((str(line), f"{start + line * 16:#x}"), tuple(cells)))
    atoms = scales.atoms[0] * scales.atoms[1]
    note = f"Rows {first} to {first + _ROWS_SHOWN - 1} of 32; atom {down * scales.atoms[1] + along} of {atoms}."
    tier = Tier.of("byte", (f"{4 * word}-{4 * word + 3}" for word in range(4)))
    return Grid("One atom in global and shared memory", (tier,), tuple(lines), ("row", "byte"), (note,))


def _column_grid(scales: ScaleLayout, place: tuple[int, int] | None) -> Grid:
    """The columns of tensor memory with the rows whose words they hold, quarter by quarter."""
    _, along = _atom_of(place)
    groups = -(-scales.rows // QUARTER_LANES)
    first_group = 0 if place is None else place[0] // QUARTER_LANES // _MOST_COLUMNS * _MOST_COLUMNS
    shown = range(first_group, min(groups, first_group + _MOST_COLUMNS))
    first = along * scales.word_columns
    lines = []
    for quarter in range(QUARTERS):
        cells = tuple(
            Cell(
                f"r{group * 32}-{min(group * 32 + 31, scales.rows - 1)}", group,
                "focus" if place is not None and place[0] // QUARTER_LANES == group else "",
                f"lane l of quarter {quarter}, column {first + group}: the word of row {group * 32} + l",
            )
            for group in shown
        )  # fmt: skip
        lines.append(Row((f"warp {quarter}", f"{32 * quarter}-{32 * quarter + 31}"), cells))
    last = min(along * 4 + 3, scales.blocks - 1)
    blocks = f"Blocks {along * 4} to {last} of k; the next word is {scales.word_columns} columns further on."
    tier = Tier.of("column", (first + group for group in shown))
    return Grid("Words in tensor memory", (tier,), tuple(lines), ("quarter", "lane"), (blocks,))


def _element_table(scales: ScaleLayout, element: tuple[int, int]) -> Table:
    row, block = element[0], element[1] // scales.format.block
    offset = scales.offset(row, block)
    place = scales.tensor_memory("A").place(row, block)
    step = next(each for each in scales.steps() if block in each.scales)
    lanes, width = ", ".join(map(str, place.lanes)), scales.format.block
    atom, byte = divmod(offset, ATOM_BYTES)
    rows = (
        ("scale", f"row {row}, block {block} (k {block * width} to {(block + 1) * width - 1})"),
        ("in memory", f"byte {offset} ({offset:#x}): atom {atom}, row {byte // 16}, byte {byte % 16}"),
        ("in tensor memory", f"lanes {lanes}, column {place.column}, byte {place.bit // 8} of the cell"),
        ("read by", f"the instruction at k {step.k}, with id {step.scale_id} and the word at column {step.column}"),
    )
    return Table(rows, title=f"Element (row {row}, k {element[1]})")


def _steps(scales: ScaleLayout) -> Table:
    steps = scales.steps()
    rows = tuple(
        (str(step.k), str(step.column), str(step.scale_id), number_span(step.scales[0], step.scales[-1]))
        for step in steps[:_MOST_STEPS]
    )
    notes = drawn_of((len(rows),), (len(steps),), ("instructions",))
    return Table(rows, ("k", "column", "id", "blocks"), title="What instructions are told", align="rrrr", notes=notes)


def _facts(scales: ScaleLayout) -> Table:
    row, (down, along) = scales.format, scales.atoms
    a, b = scale_lanes(row, "A"), scale_lanes(row, "B")
    return Table((
        ("atoms", f"{down} x {along} (rows x k), {scales.size_bytes} bytes, of which {scales.padding_bytes} are padding"),
        ("tcgen05", f"kind::{row.mma_kind}, scale_vec {row.qualifier}, scale type {row.scale_type}"),
        ("ids", ", ".join(map(str, row.ids(row.k_steps[0])))),
        ("copies", f"{down * along} x tcgen05.cp.32x128b.warpx4, stride 128 bytes, no swizzle"),
        ("columns", f"{scales.word_columns * along}: {scales.word_columns} for each word of k"),
        ("sm_120", f"{a.instruction}: A from lanes {_listed(a.lanes())}; B from lanes {_listed(b.lanes())} (thread-id 0)"),
        ("basis", "documented"),
    ))  # fmt: skip


def _listed(lanes: tuple[int, ...]) -> str:
    return ", ".join(map(str, lanes[:4])) + " …"


def draw_scale_lanes(found: ScaleLanes) -> Drawing:
    """The lanes of a warp with the row or column whose scales their register holds."""
    held = {found.lane(index): index for index in range(found.extent)}
    name = "row" if found.operand == "A" else "column"
    lines = []
    for first in range(0, 32, 8):
        cells = tuple(
            Cell(f"{held[lane]}", held[lane], title=f"lane {lane}: {name} {held[lane]}") if lane in held
            else Cell("", "unused", title=f"lane {lane}: not looked at")
            for lane in range(first, first + 8)
        )  # fmt: skip
        lines.append(Row((str(first),), cells))
    grid = Grid(f"Which {name} each lane's register serves", (Tier.of("+", range(8)),), tuple(lines), ("lane",))
    used = ", ".join(map(str, found.bytes_used))
    facts = Table((("bytes", f"{used} of the register, for the {len(found.bytes_used)} blocks of k"),))
    title = f"{found.instruction}, {found.format.name}: scale factors of {found.operand}"
    title += f", thread-id {found.thread_id}, byte-id {found.byte_id}"
    return Drawing(title, (grid, facts))
