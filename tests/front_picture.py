"""docs/images/path.svg, the moving picture of the front page: eight chunks on their way to the registers.

    python tests/front_picture.py        draws it anew

One column of 16-byte chunks of a 64 x 64 bf16 tile goes from global memory by TMA to swizzled shared memory, and by ldmatrix
to registers. Every place is asked of the library: `plan.path` has the chunk's place in shared memory, `ts.fragment` the
lanes. Motion is CSS, so that the file also moves where a page shows it as a picture; whoever asks for less motion
sees the chunks in shared memory.
"""

from pathlib import Path
from typing import NamedTuple

import tilescope as ts
from tilescope.view.palette import CHUNK_COLOURS

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "path.svg"

ROWS = CHUNKS = 8
CHUNK = 2  # the column that moves
CELL_WIDTH, CELL_HEIGHT = 30, 24  # pixels
TOP = 82
GLOBAL_LEFT, SHARED_LEFT, REGISTERS_LEFT = 16, 314, 584
WIDTH, HEIGHT = 720, 330
SECONDS = 10
FONT = 'system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",Arial,sans-serif'
CAPTION_Y = TOP + ROWS * CELL_HEIGHT + 34


class Way(NamedTuple):
    """The places of one chunk, as columns of the three pictures."""

    row: int
    shared_chunk: int
    bank: int
    lanes: tuple[int, ...]


def ways():
    """The way of the moving chunk of every row."""
    plan = ts.plan((64, 64), "bf16", consumer="ldmatrix").best
    matrix = ts.fragment("ldmatrix.x1")
    for row in range(ROWS):
        path = plan.path(row, CHUNK * 8)
        lanes = tuple(dict.fromkeys(matrix.holder(row, column)[0] for column in range(8)))
        yield Way(row, path.smem_chunk, path.bank, lanes)


def cell(left, row, column, label, ground="#eef0f3", ink="#5b6270"):
    x, y = left + column * CELL_WIDTH, TOP + row * CELL_HEIGHT
    return (
        f'<rect x="{x}" y="{y}" width="{CELL_WIDTH}" height="{CELL_HEIGHT}" fill="{ground}" stroke="#ffffff"/>'
        f'<text x="{x + CELL_WIDTH / 2:g}" y="{y + 16}" class="cell" style="fill:{ink}">{label}</text>'
    )


def panels(found):
    """The three pictures at rest."""
    swizzle = ts.Swizzle.named("128B").pattern()
    for row in range(ROWS):
        for chunk in range(CHUNKS):
            yield cell(GLOBAL_LEFT, row, chunk, f"{row}.{chunk}")
            yield cell(SHARED_LEFT, row, chunk, f"{row}.{swizzle[row][chunk]}")
    for way in found:
        for column, lane in enumerate(way.lanes):
            yield cell(REGISTERS_LEFT, way.row, column, f"T{lane}")
    for chunk in range(CHUNKS):
        x = SHARED_LEFT + chunk * CELL_WIDTH + CELL_WIDTH / 2
        yield f'<text x="{x:g}" y="{TOP - 8}" class="head">{chunk * 4}</text>'
    yield f'<text x="{SHARED_LEFT - 8}" y="{TOP - 8}" class="head end">bank</text>'
    for left, title in (
        (GLOBAL_LEFT, "Global memory"),
        (SHARED_LEFT, "Shared memory, 128B"),
        (REGISTERS_LEFT, "Registers"),
    ):
        yield f'<text x="{left}" y="38" class="title">{title}</text>'
    yield f'<text x="{GLOBAL_LEFT}" y="{TOP - 8}" class="head start">rows of a bf16 tile, chunks of 16 bytes</text>'
    yield f'<text x="{REGISTERS_LEFT}" y="{TOP - 8}" class="head start">lanes of a warp</text>'


def moving(way):
    """The chunk itself, at its place in shared memory, where it is seen without motion."""
    colour = CHUNK_COLOURS[way.row]
    label = f"{way.row}.{CHUNK}"
    return f'<g class="chunk way{way.row}">{cell(SHARED_LEFT, way.row, way.shared_chunk, label, colour.fill, colour.ink)}</g>'


def held(way):
    """The lanes of a row in its colour, once its chunk has arrived."""
    colour = CHUNK_COLOURS[way.row]
    cells = [
        cell(REGISTERS_LEFT, way.row, at, f"T{lane}", colour.fill, colour.ink) for at, lane in enumerate(way.lanes)
    ]
    return f'<g class="held">{"".join(cells)}</g>'


def motion(way):
    """From global memory, one row after the other; then all at once to registers."""
    from_global = GLOBAL_LEFT + CHUNK * CELL_WIDTH - (SHARED_LEFT + way.shared_chunk * CELL_WIDTH)
    to_registers = REGISTERS_LEFT + 1.5 * CELL_WIDTH - (SHARED_LEFT + way.shared_chunk * CELL_WIDTH)
    leaves = 10 + 2 * way.row
    return (
        f"@keyframes way{way.row}{{0%,{leaves}%{{transform:translateX({from_global:g}px)}}"
        f"{leaves + 12}%,62%{{transform:translateX(0);opacity:1}}73%{{transform:translateX({to_registers:g}px);opacity:1}}"
        f"75%,100%{{transform:translateX({to_registers:g}px);opacity:0}}}}"
        f".way{way.row}{{animation:way{way.row} {SECONDS}s ease-in-out infinite}}"
    )


def captions(found):
    """What happens, while it happens."""
    banks = len({way.bank for way in found})
    told = (
        ("told1", f"Eight chunks below each other: column {CHUNK} of the tile."),
        (
            "told2",
            f"TMA writes chunk {CHUNK} of row r to place {CHUNK} XOR r: {banks} rows, {banks} groups of banks.",
        ),
        ("told3", "ldmatrix reads all eight in one wavefront; four lanes share a row."),
    )
    for name, text in told:
        yield f'<text x="{WIDTH / 2:g}" y="{CAPTION_Y}" class="caption {name}">{text}</text>'


def style(found):
    told = (
        "@keyframes held{0%,72%{opacity:0}74%,97%{opacity:1}100%{opacity:0}}"
        "@keyframes told1{0%,7%{opacity:1}9%,98%{opacity:0}100%{opacity:1}}"
        "@keyframes told2{0%,9%{opacity:0}11%,59%{opacity:1}61%,100%{opacity:0}}"
        "@keyframes told3{0%,61%{opacity:0}63%,96%{opacity:1}98%,100%{opacity:0}}"
        f".held{{animation:held {SECONDS}s linear infinite}}"
        f".told1{{animation:told1 {SECONDS}s linear infinite}}"
        f".told2{{animation:told2 {SECONDS}s linear infinite}}"
        f".told3{{animation:told3 {SECONDS}s linear infinite}}"
    )
    still = "@media (prefers-reduced-motion:reduce){.chunk,.held,.caption{animation:none}.told1,.told3{display:none}}"
    return (
        f"text{{font:13px {FONT};fill:#1b1f27}}text.cell{{font-size:12px;text-anchor:middle}}"
        ".title{font-size:16px;font-weight:600}.head{font-size:12px;fill:#4a5160;text-anchor:middle}"
        ".end{text-anchor:end}.start{text-anchor:start}.caption{font-size:15px;text-anchor:middle}"
        + "".join(map(motion, found))
        + told
        + still
    )


def drawn():
    """The whole picture."""
    found = list(ways())
    title = "Eight 16-byte chunks on their way: global memory, TMA, swizzled shared memory, ldmatrix, registers"
    body = "\n".join([*panels(found), *map(held, found), *map(moving, found), *captions(found)])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f"<title>{title}</title><style>{style(found)}</style>"
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


if __name__ == "__main__":
    PICTURE.write_text(drawn(), "utf-8")
