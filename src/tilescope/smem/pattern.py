"""Where the lanes of a warp go in a tile: offsets in the plain tile, row after row without gaps.

    rows                        columns                     ldmatrix.x4
    ┌───┬───┬───┬───┐           ┌───┬───┬───┬───┐           ┌───────┬───────┐
    │ 0 │ 1 │ 2 │ 3 │           │ 0 │ 8 │16 │24 │           │  0-7  │ 16-23 │   8 rows of 16 bytes each:
    ├───┼───┼───┼───┤           ├───┼───┼───┼───┤           ├───────┼───────┤   lane r of a matrix
    │ 4 │ 5 │ 6 │ 7 │           │ 1 │ 9 │17 │25 │           │ 8-15  │ 24-31 │   addresses its row r
    └───┴───┴───┴───┘           └───┴───┴───┴───┘           └───────┴───────┘
    a cell is one lane's access; when the warp is used up, the next instruction goes on

Each function gives (instructions, 32) byte offsets, and which lanes take part (None: all).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tilescope.arch import ARCH
from tilescope.arithmetic import rounded_up
from tilescope.errors import RuleError, raise_all
from tilescope.layout import Layout, Modes
from tilescope.mma.fragment import Fragment
from tilescope.rule import rule
from tilescope.sentence import by, printed
from tilescope.smem.op import WARP_LANES, SmemOp
from tilescope.swizzle import CHUNK_BYTES

Offsets = tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_] | None]
Order = Literal["rows", "columns"]
Lanes = tuple[int, int]  # how many rows, and pieces of a row, the 32 lanes take together
MATRIX_ROWS = 8
RESULTS = ("D", "tmem")  # operands that are stored from registers; what tcgen05.ld brings are results too
MAX_TILE_BYTES = max(arch.smem_per_sm_bytes for arch in ARCH.values())

# fmt: off
(TILE_WIDTH, LANE_BLOCK, MATRIX_TILE, MATRIX_TRANSPOSE, FRAGMENT_TILE, THREAD_VALUES, ACCESS_TORN, ELEMENT_LOAD,
 TILE_SIZE) = (
    rule(name, demand, source=source, passing=f"ts.Access.{passing}", failing=f"ts.Access.{failing}")
    for name, demand, source, passing, failing in (
        ("tile-width", "A row of the tile is a multiple of what one lane takes.", "the walk by rows or columns",
         'rows((8, 64), 16, "ld.b128")', 'rows((8, 60), 16, "ld.b128")'),
        ("lane-block", "Lanes dealt as a block are 32, and whole blocks cover the tile.", "a warp has 32 lanes",
         'named("ld.b32 lanes 8x4", (64, 64), 32)', 'named("ld.b32 lanes 8x5", (64, 64), 32)'),
        ("matrix-tile", "A tile for ldmatrix or stmatrix is a whole number of the matrices that one instruction moves.",
         "PTX ISA, ldmatrix and stmatrix: matrices of 8 rows of 16 bytes", "ldmatrix((64, 64), 16)", "ldmatrix((24, 64), 16)"),
        ("matrix-transpose", "ldmatrix.trans transposes elements of 16 bits.", "PTX ISA, ldmatrix .m8n8 .b16",
         "ldmatrix((64, 64), 16, transpose=True)", "ldmatrix((64, 64), 8, transpose=True)"),
        ("fragment-tile", "A fragment is loaded from a tile that is a whole number of its operand, of the same element width.",
         "PTX ISA, matrix fragments of mma", 'fragment(ts.fragment("mma.m16n8k16", "A", "bf16"), (64, 64))',
         'fragment(ts.fragment("mma.m16n8k16", "A", "bf16"), (24, 64))'),
        ("thread-values", "A thread-value layout has two indices, thread and value, and leads to indices inside its tile.",
         "CuTe, thread-value layouts", "thread_values(((32, 32), (1, 32)), ts.Layout((32, 32), 32))",
         "thread_values(((32, 33), (1, 32)), ts.Layout((32, 32), 32))"),
        ("access-torn", "The bytes that one lane takes at once lie beside each other, and the swizzle moves them together.",
         "PTX ISA, ld.shared and st.shared: one address for all bytes of a vector",
         'rows((8, 64), 16, "ld.b32").on(ts.Layout((8, 64), 16, swizzle="xor:3,2,5"))',
         'rows((8, 64), 16, "ld.b64").on(ts.Layout((8, 64), 16, swizzle="xor:3,2,5"))'),
        ("element-load", "A lane loads 8, 16, 32, 64 or 128 bits.", "PTX ISA, ld.shared", "transpose((64, 64), 8)",
         "transpose((64, 64), 4)"),
        ("tile-size", "A tile fits into the shared memory of a multiprocessor.",
         "CUDA C++ Programming Guide, shared memory per multiprocessor", "rows((912, 256), 8)", "rows((913, 256), 8)"),
    )
)

# How many matrices an instruction takes down and across the tile, and which follow each other first:
# ldmatrix as the operands of mma.m16n8k16 want them (x2: B, x4: A), stmatrix as its results come.
_MATRICES: dict[tuple[bool, bool, int], tuple[int, int, Order]] = {
    # load,  trans, count: down across first
    (True,  False, 1): (1, 1, "columns"),
    (True,  False, 2): (1, 2, "columns"),
    (True,  False, 4): (2, 2, "columns"),
    (True,  True,  1): (1, 1, "rows"),
    (True,  True,  2): (2, 1, "rows"),
    (True,  True,  4): (2, 2, "rows"),
    (False, False, 1): (1, 1, "columns"),
    (False, False, 2): (2, 1, "columns"),
    (False, False, 4): (2, 2, "columns"),
    (False, True,  1): (1, 1, "rows"),
    (False, True,  2): (1, 2, "rows"),
    (False, True,  4): (2, 2, "rows"),
}
# fmt: on


def vectors(op: SmemOp, tile: Any, element_bits: Any, order: Order | Lanes) -> Offsets:
    """The whole tile in pieces of one lane's access, in the order in which lanes take them, or block by block.

    >>> offsets, active = vectors(SmemOp.named("ld.b128"), (8, 64), 16, "columns")
    >>> offsets.shape, offsets[0, :10].tolist()  # 8 rows of 128 bytes: lane 8 starts the next column
    ((2, 32), [0, 128, 256, 384, 512, 640, 768, 896, 16, 144])
    >>> vectors(SmemOp.named("ld.b32"), (8, 64), 16, (8, 4))[0][0, :6].tolist()  # 8 rows x 4 pieces of 4 bytes
    [0, 4, 8, 12, 128, 132]
    """
    rows, row_bytes = tile_bytes(tile, element_bits)
    width = op.access_bytes
    if row_bytes % width:
        raise TILE_WIDTH.error(
            "tile", f"rows of {row_bytes} bytes", f"{op.name} takes {width} bytes a lane",
            f"Widen the tile to {rounded_up(row_bytes, width)} bytes a row, or use a narrower access.",
            row_bytes=row_bytes, access_bytes=width,
        )  # fmt: skip
    offset = np.arange(rows)[:, None] * row_bytes + np.arange(0, row_bytes, width)
    if isinstance(order, str):
        return _warps((offset if order == "rows" else offset.T).reshape(-1, 1))
    down, across = order
    if down < 1 or across < 1 or down * across != WARP_LANES or rows % down or offset.shape[1] % across:
        raise LANE_BLOCK.error(
            "lanes", f"lanes {down}x{across} on {rows} rows of {offset.shape[1]} pieces",
            "32 lanes as rows x pieces, which divide the rows of the tile and the pieces of a row",
            "Use lanes 8x4, for example, or a larger tile.", lanes=order, rows=rows, pieces=offset.shape[1],
        )  # fmt: skip
    blocks = offset.reshape(rows // down, down, -1, across).swapaxes(1, 2)
    return blocks.reshape(-1, WARP_LANES), None


def matrices(op: SmemOp, tile: Any, element_bits: Any) -> Offsets:
    """An ldmatrix or stmatrix walk over the tile, along each band of rows.

    >>> offsets, _ = matrices(SmemOp.named("ldmatrix.x4"), (64, 64), 16)
    >>> offsets.shape, offsets[0, ::8].tolist()  # below each other first, then beside
    ((16, 32), [0, 1024, 16, 1040])
    """
    rows, row_bytes = tile_bytes(tile, element_bits)
    transposed = op.name.endswith(".trans")
    down, across, order = _MATRICES[op.is_load, transposed, op.groups]
    high, wide_bytes = down * MATRIX_ROWS, across * CHUNK_BYTES
    problems = []
    if rows % high or row_bytes % wide_bytes:
        problems.append(MATRIX_TILE.violation(
            "tile", f"{rows} rows of {row_bytes} bytes", f"{op.name} takes {high} rows of {wide_bytes} bytes at a time",
            f"Use {rounded_up(rows, high)} rows of {rounded_up(row_bytes, wide_bytes)} bytes.",
            rows=rows, row_bytes=row_bytes, matrix_rows=high, matrix_row_bytes=wide_bytes,
        ))  # fmt: skip
    if transposed and element_bits != 16:
        problems.append(MATRIX_TRANSPOSE.violation(
            "element_bits", f"{element_bits} bits", f"{op.name} transposes elements of 16 bits",
            "Use it without .trans, or 16-bit elements.", element_bits=element_bits,
        ))  # fmt: skip
    raise_all(problems)
    matrix = np.arange(op.groups)
    below, beside = (matrix % down, matrix // down) if order == "columns" else (matrix // across, matrix % across)
    lane = (below[:, None] * MATRIX_ROWS + np.arange(MATRIX_ROWS)) * row_bytes + beside[:, None] * CHUNK_BYTES
    corner = np.arange(0, rows, high)[:, None] * row_bytes + np.arange(0, row_bytes, wide_bytes)
    offset = corner.reshape(-1, 1) + lane.reshape(1, -1)
    unasked = np.zeros((len(offset), WARP_LANES - op.lanes), np.int64)
    return np.concatenate([offset, unasked], axis=1), None


def fragments(fragment: Fragment, tile: Any, transpose: bool, bits: int) -> tuple[SmemOp, Offsets]:
    """Loads (stores for D) of an operand's registers straight from the tile, as wide as its values lie together.

    `bits` of an element in the tile: the operand's own, but results may be converted on their way.

    >>> from tilescope.mma.fragment import fragment
    >>> op, (offsets, _) = fragments(fragment("mma.m16n8k16", "A", "bf16"), (16, 64), False, 16)
    >>> op.name, offsets.shape, offsets[0, :6].tolist()  # 4 registers of each of 4 blocks; 4 lanes to a row
    ('ld.b32', (16, 32), [0, 4, 8, 12, 128, 132])
    """
    if fragment.matrices > 1:
        raise FRAGMENT_TILE.error(
            "fragment", f"{fragment.instruction} holds {fragment.matrices} matrices",
            "a tile is read as blocks of one operand", "Use Access.ldmatrix or Access.stmatrix.",
        )  # fmt: skip
    rows, row_bytes = tile_bytes(tile, bits)
    _, down, across = fragment.indices()
    if (fragment.operand == "B") != transpose:  # a K-major B lies as n rows of k
        down, across = across, down
    high, wide = int(down.max()) + 1, int(across.max()) + 1
    columns = row_bytes * 8 // bits
    if rows % high or columns % wide:
        whole = rounded_up(rows, high), rounded_up(columns, wide)
        names = {"A": "mk", "B": "nk"}.get(fragment.operand, "mn")[:: -1 if transpose else 1]
        raise FRAGMENT_TILE.error(
            "tile", f"{rows} x {columns} elements ({by(names)})",
            f"operand {fragment.operand} of {fragment.instruction} takes {high} x {wide}", f"Use {by(whole)}.",
            {"tile": whole}, tile=(rows, columns), operand=(high, wide),
        )  # fmt: skip
    corner = np.arange(0, rows, high)[:, None] * columns + np.arange(0, columns, wide)
    element = corner.reshape(-1, 1, 1) + (down * columns + across)  # block, thread, value
    op = _widest(element, bits, columns, "st" if fragment.operand in RESULTS else "ld")
    first = element[:, :, :: op.access_bytes * 8 // bits] * bits // 8
    return op, _warps(first.reshape(-1, first.shape[2]))


def thread_values(tv: Modes, layout: Layout, op: SmemOp | None) -> tuple[SmemOp, Offsets]:
    """Physical addresses of (thread, value) → index of the tile, the first index of the tile fastest.

    >>> op, (address, _) = thread_values(Modes((32, 8), (1, 32)), Layout((32, 8), 16), None)  # a row of 16 bytes each
    >>> op.name, address[0, :3].tolist()
    ('ld.b128', [0, 16, 32])
    """
    index = tv.offsets() if tv.size <= MAX_TILE_BYTES * 8 else np.array([-1])
    if index.ndim != 2 or index.min() < 0 or index.max() >= layout.elements:
        raise THREAD_VALUES.error(
            "tv", f"{tv}, {index.ndim} indices, offsets up to {index.max()}",
            f"two indices, thread and value, and offsets within the {layout.elements} elements of the tile",
            f"Use offsets of at most {layout.elements - 1}, such as (32,{max(1, layout.elements // 32)}):(1,32).",
            indices=index.ndim, last_offset=int(index.max()), elements=layout.elements,
        )  # fmt: skip
    coord = np.unravel_index(index, layout.shape, order="F")
    bits = layout.element_bits
    element = (layout.address(*coord) * 8 + (layout.bit_offsets()[coord] % 8 if bits < 8 else 0)) // bits
    widest = _widest(element[None], bits, 128, "ld" if op is None or op.is_load else "st")
    if op is not None and op.access_bytes > widest.access_bytes:
        raise ACCESS_TORN.error(
            "op", f"{op.name} of {tv}", f"a thread's neighbouring values allow {widest.access_bytes} bytes",
            f"Use {widest.name}.", {"op": widest.name},
            access_bytes=op.access_bytes, together_bytes=widest.access_bytes,
        )  # fmt: skip
    op = op or widest
    return op, _warps(element[:, :: max(1, op.access_bytes * 8 // bits)] * bits // 8)


def _widest(element: npt.NDArray[np.int64], bits: int, columns: int, direction: str) -> SmemOp:
    """The widest access whose elements are neighbours in every thread, and that is aligned in every row."""
    for width in (128, 64, 32, 16, 8):
        count, rest = divmod(width, bits)
        if rest or count < 1 or element.shape[2] % count or columns % count:
            continue
        together = element.reshape(*element.shape[:2], -1, count)
        if (together == together[..., :1] + np.arange(count)).all() and not (together[..., 0] % count).any():
            return SmemOp.named(f"{direction}.b{width}")
    raise no_element_load(bits)


def no_element_load(element_bits: Any) -> RuleError:
    """The error for single elements of a width that no lane loads."""
    return ELEMENT_LOAD.error(
        "element_bits", f"single elements of {printed(element_bits)} bits", "a lane moves 8, 16, 32, 64 or 128 bits",
        "Use 8-bit elements, or the K-major tile, where neighbours share a byte.", element_bits=element_bits,
    )  # fmt: skip


def tile_bytes(tile: Any, element_bits: Any) -> tuple[int, int]:
    """Rows, and bytes of a row, of a plain tile (rows, columns) of elements that fits shared memory."""
    plain = Layout(tile, element_bits)
    rows, row_bytes = plain.shape[0], plain.size_bytes // plain.shape[0]
    if plain.size_bytes > MAX_TILE_BYTES:
        raise TILE_SIZE.error(
            "tile", f"{rows} rows of {row_bytes} bytes, {plain.size_bytes} in all",
            f"no multiprocessor has more than {MAX_TILE_BYTES} bytes of shared memory",
            f"Use at most {MAX_TILE_BYTES // row_bytes} rows." if row_bytes <= MAX_TILE_BYTES else "Use shorter rows.",
            rows=rows, row_bytes=row_bytes, tile_bytes=plain.size_bytes, limit_bytes=MAX_TILE_BYTES,
        )  # fmt: skip
    return rows, row_bytes


def _warps(offset: npt.NDArray[np.int64]) -> Offsets:
    """Offsets (thread, value), an instruction for each value of 32 threads; the last lanes of the last ones may be idle."""
    threads, values = offset.shape
    idle = -threads % WARP_LANES
    padded = np.concatenate([offset, np.zeros((idle, values), np.int64)]) if idle else offset
    mask = np.repeat(np.arange(len(padded)).reshape(-1, WARP_LANES) < threads, values, axis=0) if idle else None
    return padded.reshape(-1, WARP_LANES, values).swapaxes(1, 2).reshape(-1, WARP_LANES), mask
