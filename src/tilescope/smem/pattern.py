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

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import ARCH, WARP_LANES
from tilescope.arithmetic import rounded_up
from tilescope.errors import RuleError, raise_all
from tilescope.layout import Layout, Modes
from tilescope.mma.fragment import Fragment
from tilescope.rule import rule
from tilescope.sentence import format_value
from tilescope.smem.op import SmemOp
from tilescope.swizzle import CHUNK_BYTES

Offsets = tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_] | None]
Order = Literal["rows", "columns"]
Lanes = tuple[int, int]  # how many rows, and pieces of a row, the 32 lanes take together
MATRIX_ROWS = 8
_EXTENTS = {"A": ("m", "k"), "B": ("n", "k")}  # of an operand as stored in a tile; results are m x n
RESULTS = ("D", "tmem")  # operands that are stored from registers, including results of tcgen05.ld
MAX_TILE_BYTES = max(arch.smem_per_sm_bytes for arch in ARCH.values())

TILE_WIDTH = rule(
    "tile-width",
    "A row of the tile is a multiple of the bytes that one lane accesses.",
    argument="tile",
    found="rows of {row_bytes} bytes",
    limit="{op} takes {access_bytes} bytes a lane",
    fix="Widen the tile to {whole_bytes} bytes a row, or use a narrower access.",
    source="the walk by rows or columns",
    passing='ts.Access.rows((8, 64), 16, "ld.b128")',
    failing='ts.Access.rows((8, 60), 16, "ld.b128")',
)
LANE_BLOCK = rule(
    "lane-block",
    "A block of lanes has 32 of them, and whole blocks cover the tile.",
    argument="lanes",
    found="lanes {lanes:x} on {rows} rows of {pieces} pieces",
    limit="32 lanes as rows x pieces, which divide the rows of the tile and the pieces of a row",
    fix="Use lanes 8x4, for example, or a larger tile.",
    source="a warp has 32 lanes",
    passing='ts.Access.named("ld.b32 lanes 8x4", (64, 64), 32)',
    failing='ts.Access.named("ld.b32 lanes 8x5", (64, 64), 32)',
)
MATRIX_TILE = rule(
    "matrix-tile",
    "The extents of a tile for ldmatrix or stmatrix are multiples of the matrices that one instruction moves.",
    argument="tile",
    found="{rows} rows of {row_bytes} bytes",
    limit="{op} takes {matrix_rows} rows of {matrix_row_bytes} bytes at a time",
    fix="Use {whole_rows} rows of {whole_row_bytes} bytes.",
    source="PTX ISA, ldmatrix and stmatrix: matrices of 8 rows of 16 bytes",
    passing="ts.Access.ldmatrix((64, 64), 16)",
    failing="ts.Access.ldmatrix((24, 64), 16)",
)
MATRIX_TRANSPOSE = rule(
    "matrix-transpose",
    "ldmatrix.trans transposes elements of 16 bits.",
    argument="element_bits",
    found="{element_bits} bits",
    limit="{op} transposes elements of 16 bits",
    fix="Use it without .trans, or 16-bit elements.",
    source="PTX ISA, ldmatrix .m8n8 .b16",
    passing="ts.Access.ldmatrix((64, 64), 16, transpose=True)",
    failing="ts.Access.ldmatrix((64, 64), 8, transpose=True)",
)
FRAGMENT_TILE = rule(
    "fragment-tile",
    "The extents of the tile are multiples of the fragment's operand, with the same element width.",
    argument="tile",
    found="{tile: x } elements ({extents: x })",
    limit="operand {letter} of {instruction} takes {operand: x }",
    fix="Use {whole: x }.",
    source="PTX ISA, matrix fragments of mma",
    passing='ts.Access.fragment(ts.fragment("mma.m16n8k16", "A", "bf16"), (64, 64))',
    failing='ts.Access.fragment(ts.fragment("mma.m16n8k16", "A", "bf16"), (24, 64))',
)
SEVERAL_MATRICES = FRAGMENT_TILE.worded(
    argument="fragment",
    found="{instruction} holds {matrices} matrices",
    limit="a tile is read as blocks of one operand",
    fix="Use Access.ldmatrix or Access.stmatrix.",
)
FRAGMENT_WIDTH = FRAGMENT_TILE.worded(
    argument="element_bits",
    found="a tile of {element_bits}-bit elements",
    limit="operand {letter} of {instruction} has {operand_bits} bits; only results are converted",
    fix="Use {element_bits:={operand_bits}}.",
)
THREAD_VALUES = rule(
    "thread-values",
    "A thread-value layout has two indices, thread and value, and its results are indices of its tile.",
    argument="tv",
    found="{tv}, {indices} indices, offsets up to {last_offset}",
    limit="two indices, thread and value, and offsets within the {elements} elements of the tile",
    fix="Use offsets of at most {last_element}, such as (32,{values_each}):(1,32).",
    source="CuTe, thread-value layouts",
    passing="ts.Access.thread_values(((32, 32), (1, 32)), ts.Layout((32, 32), 32))",
    failing="ts.Access.thread_values(((32, 33), (1, 32)), ts.Layout((32, 32), 32))",
)
ACCESS_TORN = rule(
    "access-torn",
    "The bytes that one lane accesses at once are contiguous in the tile, and the swizzle keeps them together.",
    argument="layout",
    found="{access_bytes} bytes a lane across rows of {run_bytes} bytes",
    limit="a lane's bytes are contiguous",
    fix="Use wider atoms or a narrower access.",
    source="PTX ISA, ld.shared and st.shared: one address for all bytes of a vector",
    passing='ts.Access.rows((8, 64), 16, "ld.b32").on(ts.Layout((8, 64), 16, swizzle="xor:3,2,5"))',
    failing='ts.Access.rows((8, 64), 16, "ld.b64").on(ts.Layout((8, 64), 16, swizzle="xor:3,2,5"))',
)
TORN_BY_SWIZZLE = ACCESS_TORN.worded(
    found="{access_bytes} bytes a lane with swizzle {swizzle}",
    limit="the swizzle moves pieces of {piece_bytes} bytes",
    fix="Access at most {piece_bytes} bytes a lane, or use a swizzle with larger atoms.",
)
TORN_VALUES = ACCESS_TORN.worded(
    argument="op",
    found="{op} of {tv}",
    limit="a thread's neighbouring values allow {together_bytes} bytes",
    fix="Use {widest}.",
)
ELEMENT_LOAD = rule(
    "element-load",
    "A lane loads 8, 16, 32, 64 or 128 bits.",
    argument="element_bits",
    found="single elements of {width} bits",
    limit="a lane moves 8, 16, 32, 64 or 128 bits",
    fix="Use 8-bit elements, or the K-major tile, where neighbours share a byte.",
    source="PTX ISA, ld.shared",
    passing="ts.Access.transpose((64, 64), 8)",
    failing="ts.Access.transpose((64, 64), 4)",
)
TILE_SIZE = rule(
    "tile-size",
    "A tile fits into the shared memory of a multiprocessor.",
    argument="tile",
    found="{rows} rows of {row_bytes} bytes, {tile_bytes} in all",
    limit="no multiprocessor has more than {limit_bytes} bytes of shared memory",
    fix="Use at most {most_rows} rows.",
    source="CUDA C++ Programming Guide, shared memory per multiprocessor",
    passing="ts.Access.rows((912, 256), 8)",
    failing="ts.Access.rows((913, 256), 8)",
)
ROW_SIZE = TILE_SIZE.worded(fix="Use shorter rows.")


class MatrixWalk(NamedTuple):
    """How many matrices an instruction takes down and across the tile, and which follow each other first."""

    down: int
    across: int
    first: Order


# ldmatrix as the operands of mma.m16n8k16 need them (x2: B, x4: A), stmatrix as its results are stored.
_MATRICES: dict[tuple[bool, bool, int], MatrixWalk] = {
    # load,  trans, count:   down across first
    (True, False, 1): MatrixWalk(1, 1, "columns"),
    (True, False, 2): MatrixWalk(1, 2, "columns"),
    (True, False, 4): MatrixWalk(2, 2, "columns"),
    (True, True, 1): MatrixWalk(1, 1, "rows"),
    (True, True, 2): MatrixWalk(2, 1, "rows"),
    (True, True, 4): MatrixWalk(2, 2, "rows"),
    (False, False, 1): MatrixWalk(1, 1, "columns"),
    (False, False, 2): MatrixWalk(2, 1, "columns"),
    (False, False, 4): MatrixWalk(2, 2, "columns"),
    (False, True, 1): MatrixWalk(1, 1, "rows"),
    (False, True, 2): MatrixWalk(1, 2, "rows"),
    (False, True, 4): MatrixWalk(2, 2, "rows"),
}


def vectors(op: SmemOp, tile: tuple[int, int], element_bits: int, order: Order | Lanes) -> Offsets:
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
        whole_bytes = rounded_up(row_bytes, width)
        raise TILE_WIDTH.error(row_bytes=row_bytes, op=op.name, access_bytes=width, whole_bytes=whole_bytes)
    offset = np.arange(rows)[:, None] * row_bytes + np.arange(0, row_bytes, width)
    if isinstance(order, str):
        return _warps((offset if order == "rows" else offset.T).reshape(-1, 1))
    down, across = order
    if down < 1 or across < 1 or down * across != WARP_LANES or rows % down or offset.shape[1] % across:
        raise LANE_BLOCK.error(lanes=order, rows=rows, pieces=offset.shape[1])
    blocks = offset.reshape(rows // down, down, -1, across).swapaxes(1, 2)
    return blocks.reshape(-1, WARP_LANES), None


def matrices(op: SmemOp, tile: tuple[int, int], element_bits: int) -> Offsets:
    """An ldmatrix or stmatrix walk over the tile, along each band of rows.

    >>> offsets, _ = matrices(SmemOp.named("ldmatrix.x4"), (64, 64), 16)
    >>> offsets.shape, offsets[0, ::8].tolist()  # below each other first, then beside
    ((16, 32), [0, 1024, 16, 1040])
    """
    rows, row_bytes = tile_bytes(tile, element_bits)
    transposed = op.name.endswith(".trans")
    walk = _MATRICES[op.is_load, transposed, op.groups]
    high = walk.down * MATRIX_ROWS
    wide_bytes = walk.across * CHUNK_BYTES
    problems = []
    if rows % high or row_bytes % wide_bytes:
        problem = MATRIX_TILE.violation(
            rows=rows,
            row_bytes=row_bytes,
            op=op.name,
            matrix_rows=high,
            matrix_row_bytes=wide_bytes,
            whole_rows=rounded_up(rows, high),
            whole_row_bytes=rounded_up(row_bytes, wide_bytes),
        )
        problems.append(problem)
    if transposed and element_bits != 16:
        problems.append(MATRIX_TRANSPOSE.violation(element_bits=element_bits, op=op.name))
    raise_all(problems)
    matrix = np.arange(op.groups)
    if walk.first == "columns":
        beside, below = np.divmod(matrix, walk.down)
    else:
        below, beside = np.divmod(matrix, walk.across)
    lane = (below[:, None] * MATRIX_ROWS + np.arange(MATRIX_ROWS)) * row_bytes + beside[:, None] * CHUNK_BYTES
    corner = np.arange(0, rows, high)[:, None] * row_bytes + np.arange(0, row_bytes, wide_bytes)
    offset = corner.reshape(-1, 1) + lane.reshape(1, -1)
    unasked = np.zeros((len(offset), WARP_LANES - op.lanes), np.int64)
    return np.concatenate([offset, unasked], axis=1), None


def fragments(fragment: Fragment, tile: tuple[int, int], transpose: bool, bits: int) -> tuple[SmemOp, Offsets]:
    """Loads (stores for D) of an operand's registers directly from the tile, as wide as its contiguous values.

    `bits` of an element in the tile: the operand's own, but results may be converted on their way.

    >>> from tilescope.mma.fragment import fragment
    >>> op, (offsets, _) = fragments(fragment("mma.m16n8k16", "A", "bf16"), (16, 64), False, 16)
    >>> op.name, offsets.shape, offsets[0, :6].tolist()  # 4 registers of each of 4 blocks; 4 lanes to a row
    ('ld.b32', (16, 32), [0, 4, 8, 12, 128, 132])
    """
    if fragment.matrices > 1:
        raise SEVERAL_MATRICES.error(instruction=fragment.instruction, matrices=fragment.matrices)
    rows, row_bytes = tile_bytes(tile, bits)
    _, down, across = fragment.indices()
    if (fragment.operand == "B") != transpose:  # a K-major B has n rows of k
        down, across = across, down
    high, wide = int(down.max()) + 1, int(across.max()) + 1
    columns = row_bytes * 8 // bits
    if rows % high or columns % wide:
        rounded = (rounded_up(rows, high), rounded_up(columns, wide))
        outer, inner = _EXTENTS.get(fragment.operand, ("m", "n"))
        raise FRAGMENT_TILE.error(
            tile=(rows, columns),
            extents=(inner, outer) if transpose else (outer, inner),
            letter=fragment.operand,
            instruction=fragment.instruction,
            operand=(high, wide),
            whole=rounded,
            change={"tile": rounded},
        )
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
            tv=str(tv),
            indices=index.ndim,
            last_offset=int(index.max()),
            elements=layout.elements,
            last_element=layout.elements - 1,
            values_each=max(1, layout.elements // WARP_LANES),
        )
    coord = np.unravel_index(index, layout.shape, order="F")
    bits = layout.element_bits
    bit_in_byte = layout.bit_offsets()[coord] % 8 if bits < 8 else 0
    element = (layout.address(*coord) * 8 + bit_in_byte) // bits
    widest = _widest(element[None], bits, 128, "ld" if op is None or op.is_load else "st")
    if op is not None and op.access_bytes > widest.access_bytes:
        raise TORN_VALUES.error(
            op=op.name,
            tv=str(tv),
            access_bytes=op.access_bytes,
            together_bytes=widest.access_bytes,
            widest=widest.name,
            change={"op": widest.name},
        )
    op = op or widest
    return op, _warps(element[:, :: max(1, op.access_bytes * 8 // bits)] * bits // 8)


def _widest(element: npt.NDArray[np.int64], bits: int, columns: int, direction: str) -> SmemOp:
    """The widest access whose elements are neighbours in every thread, and that is aligned in every row."""
    for width in (128, 64, 32, 16, 8):
        count, remainder = divmod(width, bits)
        if remainder or count < 1 or element.shape[2] % count or columns % count:
            continue
        together = element.reshape(*element.shape[:2], -1, count)
        first = together[..., :1]
        are_neighbours = (together == first + np.arange(count)).all()
        is_aligned = (first % count == 0).all()
        if are_neighbours and is_aligned:
            return SmemOp.named(f"{direction}.b{width}")
    raise no_element_load(bits)


def no_element_load(element_bits: object) -> RuleError:
    """The error for single elements of a width that no lane loads."""
    return ELEMENT_LOAD.error(width=format_value(element_bits), element_bits=element_bits)


def tile_bytes(tile: tuple[int, int], element_bits: int) -> tuple[int, int]:
    """Rows, and bytes of a row, of a plain tile (rows, columns) of elements that fits shared memory."""
    plain = Layout(tile, element_bits)
    rows = plain.shape[0]
    row_bytes = plain.size_bytes // rows
    if plain.size_bytes > MAX_TILE_BYTES:
        wording = TILE_SIZE.wording if row_bytes <= MAX_TILE_BYTES else ROW_SIZE
        raise wording.error(
            rows=rows,
            row_bytes=row_bytes,
            tile_bytes=plain.size_bytes,
            limit_bytes=MAX_TILE_BYTES,
            most_rows=MAX_TILE_BYTES // row_bytes,
        )
    return rows, row_bytes


def _warps(offset: npt.NDArray[np.int64]) -> Offsets:
    """Offsets (thread, value), an instruction for each value of 32 threads; the last lanes of the last ones may be idle."""
    threads, values = offset.shape
    idle = -threads % WARP_LANES
    mask = None
    if idle:
        offset = np.concatenate([offset, np.zeros((idle, values), np.int64)])
        takes_part = np.arange(len(offset)).reshape(-1, WARP_LANES) < threads
        mask = np.repeat(takes_part, values, axis=0)
    return offset.reshape(-1, WARP_LANES, values).swapaxes(1, 2).reshape(-1, WARP_LANES), mask
