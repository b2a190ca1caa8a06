"""docs/images/path.svg, the moving picture of README.md and the front page: one box on its way to the registers.

    python tests/front_picture.py        draws it anew

A tensor map names a box of a matrix; TMA copies its rows to shared memory and swizzles them; a wgmma descriptor reads them in
four K steps; the sums lie in registers of a warp. Every place is asked of the library: `ts.trace` has the address of each chunk,
the descriptors of `ts.wgmma_descriptors` the bytes of each K step, `ts.fragment` the lanes.

Without motion the picture shows the box copied and the first K step. Motion is CSS inside the file, so that it also moves where a page
shows it as a picture, and stays still for readers who ask for less motion.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

import tilescope as ts
from tilescope.view.palette import CHUNK_COLOURS

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "path.svg"

ROWS = CHUNKS = 8  # of the box, the first eight of its 64 rows
SMEM_ADDRESS = 0x400
BOX_ELEMENTS = 64
CHUNK_ELEMENTS = 8
CHUNK_BYTES = 16
LINE_BYTES = 128
BOX_COLUMN, BOX_ROW = 1, 2  # which box of the tensor: coordinates (64, 128)
K_STEPS = 4

WIDTH, HEIGHT = 794, 384  # pixels
TOP = 84
CELL = 24
LANE_WIDTH = 32
TENSOR_COLUMNS, TENSOR_CELL_WIDTH = 5, 20
TENSOR_LEFT, BOX_LEFT, SHARED_LEFT, LANES_LEFT = 16, 162, 402, 650
BOTTOM = TOP + ROWS * CELL
BELOW_Y, CAPTION_Y = BOTTOM + 26, BOTTOM + 84
FONT = 'system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",Arial,sans-serif'
MONO = 'ui-monospace,"SF Mono",Menlo,"DejaVu Sans Mono",monospace'

# When things happen, in percent of a turn.
SECONDS = 16
BOX_CHOSEN = 8
FIRST_ROW_LEAVES, ROW_AFTER_ROW, ROW_TRAVELS = 13, 2.5, 9
FIRST_STEP, STEP_LASTS = 50, 11
TURN_ENDS = 97
FIRST_FRAME = 55  # the box is in shared memory, and the first K step is read: no reader sees an empty picture


class Chunk(NamedTuple):
    """A chunk of 16 bytes: its place in the box and in the lines of shared memory."""

    row: int
    number: int
    line: int
    place: int


class KStep(NamedTuple):
    """One step of the K loop: its descriptor, and the places (line, chunk) that it reads."""

    descriptor: int
    places: tuple[tuple[int, int], ...]


def place_of(address):
    """Line and chunk of an address, counted from the start of the tile."""
    offset = address - SMEM_ADDRESS
    return offset // LINE_BYTES, offset % LINE_BYTES // CHUNK_BYTES


def copy_of_the_box():
    tensor_map = ts.TensorMap("bf16", (4096, 4096), (8192,), (BOX_ELEMENTS, BOX_ELEMENTS), swizzle="128B")
    return ts.trace(tensor_map, (BOX_COLUMN * BOX_ELEMENTS, BOX_ROW * BOX_ELEMENTS), smem_address=SMEM_ADDRESS)


def chunks(copy):
    """Where TMA puts the chunks of the first eight rows."""
    first_column, first_row = copy.coords
    for row in range(ROWS):
        for number in range(CHUNKS):
            address = copy.address_of(first_column + number * CHUNK_ELEMENTS, first_row + row)
            yield Chunk(row, number, *place_of(address))


def k_steps():
    """What each descriptor of the K loop makes wgmma read of these rows."""
    loop = ts.wgmma_descriptors((BOX_ELEMENTS, BOX_ELEMENTS), "bf16", swizzle="128B", smem_address=SMEM_ADDRESS)
    for descriptor in loop.descriptors[0]:
        addresses = descriptor.addresses(rows=BOX_ELEMENTS, k=16)[:ROWS].ravel().tolist()
        yield KStep(descriptor.encode(), tuple(sorted({place_of(address) for address in addresses})))


def lanes():
    """The lanes that hold a row of the result, row by row."""
    result = ts.fragment("wgmma.m64n8k16", operand="D", data_type="f32")
    return [tuple(dict.fromkeys(result.holder(row, column)[0] for column in range(8))) for row in range(ROWS)]


# --- the picture at rest


def text(x, y, kind, words):
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{words}</text>'


def square(left, row, column, label, colour):
    x, y = left + column * CELL, TOP + row * CELL
    return (
        f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill="{colour.fill}" stroke="#fff"/>'
        f'<text x="{x + CELL / 2:g}" y="{y + 16}" class="cell" style="fill:{colour.ink}">{label}</text>'
    )


def outline(left, places):
    """The path around each of some places, for one element instead of many."""
    return "".join(f"M{left + column * CELL} {TOP + row * CELL}h{CELL}v{CELL}h-{CELL}z" for row, column in places)


def tensor():
    """Boxes of the tensor, the chosen one marked, and the lines that lead to its picture."""
    for row in range(ROWS):
        for column in range(TENSOR_COLUMNS):
            x, y = TENSOR_LEFT + column * TENSOR_CELL_WIDTH, TOP + row * CELL
            yield f'<rect x="{x}" y="{y}" width="{TENSOR_CELL_WIDTH}" height="{CELL}" class="empty"/>'
    x, y = TENSOR_LEFT + BOX_COLUMN * TENSOR_CELL_WIDTH, TOP + BOX_ROW * CELL
    right = x + TENSOR_CELL_WIDTH
    yield f'<path class="lead" d="M{right} {y}L{BOX_LEFT - 18} {TOP}M{right} {y + CELL}L{BOX_LEFT - 18} {BOTTOM}"/>'
    yield f'<rect x="{x}" y="{y}" width="{TENSOR_CELL_WIDTH}" height="{CELL}" class="chosen"/>'


def headings(copy):
    for left, title, below in (
        (TENSOR_LEFT, "Tensor", "boxes of 64 x 64"),
        (BOX_LEFT, "Box", "rows 0 to 7, chunks of 16 bytes"),
        (SHARED_LEFT, "Shared memory, 128B", ""),
        (LANES_LEFT, "Registers", "rows 0 to 7 of D"),
    ):
        yield text(left, 40, "title", title)
        yield text(left, TOP - 9, "head", below)
    for chunk in range(CHUNKS):
        yield text(SHARED_LEFT + (chunk + 0.5) * CELL, TOP - 9, "head middle", chunk * 4)
    yield text(SHARED_LEFT - 8, TOP - 9, "head end", "bank")
    yield text(TENSOR_LEFT, BELOW_Y, "head", f"coordinates {copy.coords}")
    yield text(BOX_LEFT, BELOW_Y, "head", f"the mbarrier expects {copy.transaction_bytes} bytes")
    for row in range(ROWS):
        yield text(BOX_LEFT - 6, TOP + row * CELL + 16, "head end", row)
    for x, words in (
        ((BOX_LEFT + CHUNKS * CELL + SHARED_LEFT) / 2, "TMA"),
        ((SHARED_LEFT + CHUNKS * CELL + LANES_LEFT) / 2, "wgmma"),
    ):
        y = TOP + ROWS * CELL / 2
        yield text(x, y - 12, "head middle", words)
        yield f'<path class="arrow" d="M{x - 9:g} {y}h15m-5 -5l5 5l-5 5"/>'


def empty_places():
    """Cells of the box and of shared memory, to be filled."""
    for left in (BOX_LEFT, SHARED_LEFT):
        for row, column in np.ndindex(ROWS, CHUNKS):
            x, y = left + column * CELL, TOP + row * CELL
            yield f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" class="empty"/>'


def registers(held):
    """Lanes by rows; four veils of colour, one for each K step, add up as the sums do."""
    for row, names in enumerate(held):
        for column in range(len(names)):
            x, y = LANES_LEFT + column * LANE_WIDTH, TOP + row * CELL
            yield f'<rect x="{x}" y="{y}" width="{LANE_WIDTH}" height="{CELL}" class="empty"/>'
    width, height = LANE_WIDTH * len(held[0]), ROWS * CELL
    for step in range(K_STEPS):
        yield f'<rect x="{LANES_LEFT}" y="{TOP}" width="{width}" height="{height}" class="sum sum{step}"/>'
    for row, names in enumerate(held):
        for column, lane in enumerate(names):
            yield text(LANES_LEFT + (column + 0.5) * LANE_WIDTH, TOP + row * CELL + 16, "cell lane", f"T{lane}")


def copied(chunk):
    """A chunk at its place in shared memory, with the way back to the box for the motion."""
    way = BOX_LEFT + chunk.number * CELL - (SHARED_LEFT + chunk.place * CELL)
    drawn = square(SHARED_LEFT, chunk.line, chunk.place, chunk.number, CHUNK_COLOURS[chunk.number])
    return f'<g class="copied row{chunk.row}" style="--way:{way}px">{drawn}</g>'


def marked(number, step):
    """What one K step reads: other chunks pale, its own outlined, its descriptor below."""
    everywhere = {(row, column) for row in range(ROWS) for column in range(CHUNKS)}
    others = sorted(everywhere - set(step.places))
    in_the_box = [(row, column) for row in range(ROWS) for column in (2 * number, 2 * number + 1)]
    return (
        f'<g class="step step{number}">'
        f'<path class="pale" d="{outline(SHARED_LEFT, others)}"/>'
        f'<path class="read" d="{outline(SHARED_LEFT, step.places)}{outline(BOX_LEFT, in_the_box)}"/>'
        f'<text x="{SHARED_LEFT}" y="{BELOW_Y}" class="head">descriptor of K step {number}</text>'
        f'<text x="{SHARED_LEFT}" y="{BELOW_Y + 19}" class="word">{step.descriptor:#018x}</text></g>'
    )


TOLD = (
    ("still", "Chunk c of row r lies at place c XOR r. K step 0 reads chunks 0 and 1 of each row."),
    ("told told0", "A tensor map names the tensor and the box; two coordinates choose one box."),
    ("told told1", "TMA copies it row by row. Chunk c of row r goes to place c XOR r: a column meets all banks."),
    ("told told2", "A descriptor names start, strides and swizzle. Each K step adds 32 bytes to the start."),
)


# --- its motion


def shown(name, first, last):
    """Keyframes of something that is seen from one percentage to another."""
    return f"@keyframes {name}{{0%,{first:g}%{{opacity:0}}{first + 1:g}%,{last:g}%{{opacity:1}}{last + 1:g}%,100%{{opacity:0}}}}"


def row_motion(row):
    """A row leaves the box for its line of shared memory, every chunk on its own way."""
    leaves = FIRST_ROW_LEAVES + row * ROW_AFTER_ROW
    arrives = leaves + ROW_TRAVELS
    return (
        f"@keyframes row{row}{{0%,{leaves:g}%{{transform:translateX(var(--way));opacity:0}}"
        f"{leaves + 0.1:g}%{{transform:translateX(var(--way));opacity:1}}"
        f"{arrives:g}%,{TURN_ENDS}%{{transform:none;opacity:1}}100%{{transform:none;opacity:0}}}}"
    )


def motion():
    """All keyframes, and who follows which."""
    step_starts = [FIRST_STEP + number * STEP_LASTS for number in range(K_STEPS)]
    last_row_arrives = FIRST_ROW_LEAVES + (ROWS - 1) * ROW_AFTER_ROW + ROW_TRAVELS
    before = f"translate({-BOX_COLUMN * TENSOR_CELL_WIDTH}px,{-BOX_ROW * CELL}px)"
    keyframes = [
        f"@keyframes chosen{{0%,2%{{transform:{before}}}{BOX_CHOSEN}%,100%{{transform:none}}}}",
        f"@keyframes box{{0%,{BOX_CHOSEN}%{{opacity:0}}{BOX_CHOSEN + 3}%,{TURN_ENDS}%{{opacity:1}}100%{{opacity:0}}}}",
        "@keyframes gone{0%,100%{opacity:0}}",
        shown("told0", 0, FIRST_ROW_LEAVES - 1),
        shown("told1", FIRST_ROW_LEAVES, last_row_arrives + 4),
        shown("told2", FIRST_STEP - 2, TURN_ENDS),
        *(row_motion(row) for row in range(ROWS)),
        *(shown(f"step{number}", start, start + STEP_LASTS - 1) for number, start in enumerate(step_starts)),
        *(
            f"@keyframes sum{number}{{0%,{start + 2}%{{opacity:0}}{start + 5}%,{TURN_ENDS}%{{opacity:.22}}100%{{opacity:0}}}}"
            for number, start in enumerate(step_starts)
        ),
    ]
    followers = [f".{name}{{animation-name:{name}}}" for name in ("chosen", "box")]
    followers += [
        f".{name}{number}{{animation-name:{name}{number}}}" for name in ("step", "sum") for number in range(K_STEPS)
    ]
    followers += [f".row{row}{{animation-name:row{row}}}" for row in range(ROWS)]
    followers += [f".told{number}{{animation-name:told{number}}}" for number in range(3)]
    followers += [".still{animation-name:gone}", ".lead{animation-name:box}"]
    moves = ".chosen,.box,.lead,.copied,.step,.sum,.told,.still"
    return (
        f"@media (prefers-reduced-motion:no-preference){{{''.join(keyframes)}"
        f"{moves}{{animation-duration:{SECONDS}s;animation-delay:-{FIRST_FRAME * SECONDS / 100}s;animation-iteration-count:infinite}}"
        f".copied{{animation-timing-function:ease-in-out}}{''.join(followers)}}}"
    )


def style():
    at_rest = (
        f"text{{font:13px {FONT};fill:#1b1f27}}.title{{font-size:16px;font-weight:600}}.head{{font-size:12px;fill:#4a5160}}"
        ".cell{font-size:13px;text-anchor:middle}.lane{font-size:12px}.middle{text-anchor:middle}.end{text-anchor:end}"
        f".word{{font:14px {MONO}}}.caption{{font-size:15px;text-anchor:middle}}"
        ".empty{fill:#e6e9ee;stroke:#fff}.chosen{fill:#0f766e;stroke:#0f766e;stroke-width:2}"
        ".lead{stroke:#0f766e;stroke-dasharray:3 3;fill:none}.arrow{stroke:#4a5160;stroke-width:1.6;fill:none}"
        ".pale{fill:#fff;fill-opacity:.78}.read{fill:none;stroke:#111;stroke-width:2}"
        ".sum{fill:#0f766e;opacity:0}.sum0{opacity:.22}.step{opacity:0}.step0{opacity:1}.told{opacity:0}"
    )
    return at_rest + motion()


def drawn():
    """The whole picture."""
    copy = copy_of_the_box()
    title = "A box of a tensor goes by TMA to swizzled shared memory, and in four K steps of wgmma to registers"
    box = [
        square(BOX_LEFT, row, number, number, CHUNK_COLOURS[number]) for row in range(ROWS) for number in range(CHUNKS)
    ]
    parts = [
        *tensor(),
        *headings(copy),
        *empty_places(),
        f'<g class="box">{"".join(box)}</g>',
        *registers(lanes()),
        *map(copied, chunks(copy)),
        *(marked(number, step) for number, step in enumerate(k_steps())),
        *(text(WIDTH / 2, CAPTION_Y, f"caption {name}", words) for name, words in TOLD),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f"<title>{title}</title><style>{style()}</style>"
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


if __name__ == "__main__":
    PICTURE.write_text(drawn(), "utf-8")
