"""A matrix product as it is asked for, and what of it no tensor core computes.

    C (m x n)  =  A (m x k)  x  B (n x k, the k x n matrix seen by its columns)

    accumulators of a tile, of 4 bytes, lie in
        registers          65536 of 4 bytes an SM, 255 a thread      wgmma, mma (ldmatrix)
        tensor memory      512 columns of 128 lanes x 4 bytes        tcgen05

Rows of a matrix in global memory start at multiples of 16 bytes, whoever copies them; rows of C only where TMA stores
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from tilescope.arch import ARCH, Arch, architectures_with
from tilescope.arithmetic import rounded_up
from tilescope.card import Card
from tilescope.data_type import DataType
from tilescope.layout import Major
from tilescope.mma.consumer import CONSUMER, Consumer, missing_consumer
from tilescope.mma.instruction import INSTRUCTIONS, Instruction
from tilescope.mma.tcgen05_kind import tcgen05_for
from tilescope.planner.reason import Obstacle, or_obstacles, plan_rule

if TYPE_CHECKING:
    from tilescope.planner.plans import Plan

Tile = tuple[int, int, int]  # m, n, k

EXTENTS = {"A": ("m", "k"), "B": ("n", "k"), "C": ("m", "n")}
ACCUMULATOR_BYTES = 4  # f32 or s32
REGISTER_FILE_BYTES = 65536 * 4  # of an SM
_TWO_WARPGROUPS_BYTES = 2 * 128 * 255 * 4  # 255 registers a thread: more threads have fewer
TENSOR_MEMORY_LANES = 128
TENSOR_MEMORY_COLUMNS = 512
_ROW_BITS = 128  # rows in global memory start at multiples of 16 bytes
_PADDED_ROW_ELEMENTS = 128  # of the packed types that shared memory holds in whole bytes
_MMA_ROWS = 16  # of A; the forms with 8 rows have another D fragment than ts.plan counts for an epilogue
_LIES_AS = {"16u4_align8b": "e2m1", "16u4_align16b": "e2m1", "16u6_align16b": "e2m3"}  # names of TMA alone
_NEVER_STORED = "16u4_align16b"
_EVERY_16_WITH_128_ROWS = ("f16", "tf32", "f8f6f4")  # kinds of tcgen05.mma


class Product(NamedTuple):
    """C = A x B: extents, types, majornesses, and the card that is to compute it."""

    shape: tuple[int, int, int]
    data_type: DataType
    output_type: DataType
    arch: Arch
    card: Card | None
    consumer: str
    a_major: Major
    b_major: Major
    sms: int | None

    @property
    def tensor_core(self) -> Consumer:
        """The row of its consumer."""
        return CONSUMER[self.consumer]

    @property
    def in_tensor_memory(self) -> bool:
        """Whether the accumulators lie in tensor memory, and not in registers."""
        return self.tensor_core.accumulators == "tensor memory"

    @property
    def by_tma(self) -> bool:
        """Whether TMA moves the tiles, and not threads."""
        return self.arch.has("tma")

    @property
    def mma_forms(self) -> tuple[Instruction, ...]:
        """The forms of mma that multiply its elements; none where the tensor core reads by descriptors."""
        return () if self.tensor_core.reads_by_descriptor else mma_rows(self.arch, self.data_type)


# fmt: off
GEMM_CONSUMER = plan_rule(
    "gemm-consumer", "The architecture has the consumer of the product: wgmma, tcgen05, or ldmatrix with mma.",
    'PTX ISA, "Target ISA Notes" of the instructions', 'ts.plan_gemm(256, 256, 256, "bf16", consumer="wgmma")',
    'ts.plan_gemm(256, 256, 256, "bf16", consumer="tcgen05")',
)
_ON_ARCH, _MULTIPLIES = "{data_type} on {arch}", "mma on {arch}, fed by ldmatrix in 32-bit registers, multiplies {known:, }"
GEMM_TYPE = plan_rule(
    "gemm-type", "The tensor core multiplies the type on this architecture, and the copies move it and the type of C.",
    'PTX ISA, "mma", "tcgen05.mma"; cuda.h, CUtensorMapDataType', 'ts.plan_gemm(256, 256, 256, "bf16", arch="sm_80")',
    'ts.plan_gemm(256, 256, 256, "e4m3", arch="sm_80")',
    said=(_ON_ARCH, _MULTIPLIES, 'Use data_type="bfloat16"[, or arch="{elsewhere}"].'),
    float32=(_ON_ARCH, _MULTIPLIES, "Use tfloat32: its elements are float32 whose low 13 bits are ignored."),
    data_type=(_ON_ARCH, ("TMA moves {data_type} as {moved}, {together} to an element, and a product of bits (and.popc) "
               "is not the product of these bytes"),
               "Plan the operand tiles as {moved} with ts.plan, k / 8 bytes wide; the product itself is not planned."),
    output_type=(_ON_ARCH, "TMA moves {data_type} as {moved}, {together} to an element", 'Use output_type="int32".'),
    packed=(_ON_ARCH, "TMA moves elements below 8 bits on {known:, }", 'Use {argument}="int8", or another type of at least 8 bits.'),
    stored=(_ON_ARCH, "TMA cannot store {data_type}", 'Use output_type="bfloat16".'),
)
GEMM_MAJOR = plan_rule(
    "gemm-major", "A and B are MN-major only if the tensor core reads MN-major elements of their width.",
    'PTX ISA, "wgmma.mma_async", "tcgen05.mma", "ldmatrix"', 'ts.plan_gemm(256, 256, 256, "bf16", b_major="MN")',
    'ts.plan_gemm(256, 256, 256, "e4m3", b_major="MN")',
    said=("{operand} MN-major, of {data_type}", "{instruction} reads MN-major elements of {widths:, } bits",
          'Use {argument}="K": transpose {operand} once, or while copying.'),
)
# fmt: on


def product_problems(product: Product) -> list[Obstacle]:
    """Why no tile of any shape serves: a consumer, type or majorness that the card lacks, or rows of a wrong length."""
    missing = missing_consumer(product.consumer, product.arch)
    if missing is not None:
        return [GEMM_CONSUMER.row.violation("consumer", *missing)]
    uneven = (
        GEMM_ROWS.broken(row["extent"], "said", {row["extent"]: row["up"]}, **row)
        for row in _uneven_rows(product, product.shape)
    )
    return _unknown_type(product) or [*_unmoved_types(product)] or [*_unread_majors(product), *uneven]


def _unknown_type(product: Product) -> list[Obstacle]:
    arch, row, reader = product.arch, product.data_type, product.tensor_core
    if reader.loop is not None:
        if isinstance(against := or_obstacles(reader.loop.extents, row), list):
            return against
        missing = reader.missing_kind(arch, row)
        return [] if missing is None else [GEMM_TYPE.row.violation("data_type", *missing)]
    if product.mma_forms:
        return []
    elsewhere = next((name for name, other in ARCH.items() if mma_rows(other, row)), None)
    told = {"data_type": row.name, "arch": arch.name, "known": mma_types(arch), "elsewhere": elsewhere}
    return [GEMM_TYPE.broken("data_type", "float32" if row.name in ("float32", "float32_ftz") else "said", **told)]


def _unmoved_types(product: Product) -> Iterator[Obstacle]:
    """Types below a byte that TMA does not move, said once: single bits, and packed types where the architecture lacks them."""
    said = None
    for argument, row in (("data_type", product.data_type), ("output_type", product.output_type)):
        cases = {
            argument: row.tma.bits != row.bits,
            "packed": row.is_packed and not product.arch.has("packed_types"),
            "stored": argument == "output_type" and row.name == _NEVER_STORED,
        }
        case = next((case for case, holds in cases.items() if holds and product.by_tma), None)
        if case is not None and row is not said:
            said, moved = row, {"moved": row.tma.name, "together": row.tma.bits // row.bits}
            told = {"data_type": row.name, "arch": product.arch.name, "known": architectures_with("packed_types")}
            yield GEMM_TYPE.broken(argument, case, argument=argument, **told, **moved)


def _unread_majors(product: Product) -> Iterator[Obstacle]:
    row, widths = product.data_type, product.tensor_core.mn_major_bits()
    told = {"data_type": row.name, "instruction": product.tensor_core.instruction["MN"], "widths": widths}
    for operand, name, major in (("A", "a_major", product.a_major), ("B", "b_major", product.b_major)):
        if major == "MN" and (row.is_packed or row.smem_bits not in widths):
            yield GEMM_MAJOR.broken(
                name, "said", {name: "K"}, argument=name, operand=operand, element_bits=row.bits, **told
            )


@cache
def mma_rows(arch: Arch, data_type: DataType) -> tuple[Instruction, ...]:
    """The mma instructions that multiply elements of this type as ldmatrix brings them: 32 bits a register.

    >>> [row.name for row in mma_rows(Arch.named("sm_80"), DataType.named("bf16"))]
    ['mma.m16n8k8', 'mma.m16n8k16']
    >>> mma_rows(Arch.named("sm_80"), DataType.named("e4m3"))
    ()
    """
    name = _LIES_AS.get(data_type.name, data_type.name)
    return tuple(
        row
        for row in INSTRUCTIONS
        if (row.family, row.m, row.per_register * data_type.smem_bits) == ("mma", _MMA_ROWS, 32)
        and name in row.types
        and arch.has(row.feature)
    )


def mma_types(arch: Arch) -> tuple[str, ...]:
    """The types that mma multiplies on this architecture when ldmatrix feeds it.

    >>> mma_types(Arch.named("sm_80"))
    ('float16', 'int8', 'uint8', 'int4', 'uint4', 'b1', 'tfloat32', 'bfloat16')
    """
    named = dict.fromkeys(name for row in INSTRUCTIONS if row.family == "mma" for name in row.types)
    return tuple(name for name in named if mma_rows(arch, DataType.named(name)))


# fmt: off
GEMM_ROWS = plan_rule(
    "gemm-rows", "Rows of A and B in global memory are multiples of 16 bytes, and rows of C where TMA stores them.",
    "cuda.h, cuTensorMapEncodeTiled; measured on an H200",
    'ts.plan_gemm(256, 256, 264, "bf16")', 'ts.plan_gemm(256, 256, 260, "bf16")', "measured",
    said=("{extent} = {elements}: rows of {rows_of} are {row_bytes:.15g} bytes of {data_type}",
          "{mover} rows that are multiples of {multiple_elements} elements, {multiple_bytes} bytes",
          "Use {extent} = {up}, with rows of {rows_of} padded to {up_bytes} bytes."),
)
GEMM_TILE = plan_rule(
    "gemm-tile", "A tile is a whole number of the tensor core's instructions, and of the rows in which TMA moves its elements.",
    'PTX ISA, "mma", "tcgen05.mma"; CUTLASS', 'ts.plan_gemm(256, 256, 256, "bf16", consumer="ldmatrix", tile=(16, 8, 64))',
    'ts.plan_gemm(256, 256, 256, "bf16", consumer="ldmatrix", tile=(12, 8, 64))',
    rows=("{rows_of}: {extent} = {elements} elements of {data_type}", "TMA moves them in rows of {multiple_elements}",
          "Use {extent} = {up}."),
    forms=("a tile of {tile: x }", "{forms:, } take whole multiples of their m, n and k, with A and B as they are or exchanged",
           "Use {up: x }."),
    exchanged=("m = {m}, for which mma takes A and B exchanged, with C of {data_type}",
               "the accumulators then hold the transpose of C, and a lane stores no single elements of {element_bits} bits",
               "Use m = {up}, or an output_type of 8 bits or more."),
    narrow=("n = {n}[, taken in blocks of {block_n}] with instructions of {rows} rows of A",
            "PTX lists multiples of 8, but older CUTLASS takes kind {kind} beside 128 rows with multiples of 16 alone",
            "Use n = {up}, or m = 64."),
)
GEMM_ACCUMULATORS = plan_rule(
    "gemm-accumulators", "The accumulators of a tile fit into the registers of an SM, or into tensor memory.",
    'CUDA programming guide, compute capabilities; PTX ISA, "tensor memory"',
    'ts.plan_gemm(512, 512, 512, "bf16", tile=(128, 256, 64))', 'ts.plan_gemm(512, 512, 512, "bf16", tile=(256, 256, 64))',
    registers=("{m} x {n} accumulators of {accumulator_bytes} bytes = {total_bytes} bytes",
               "an SM has 65536 registers of 4 bytes, and two warpgroups, with 255 registers a thread at most, hold {limit_bytes} bytes",
               "Use at most 128 x 256 or 256 x 128."),
    tmem=("{m} x {n} accumulators of {accumulator_bytes} bytes = {total_bytes} bytes, {columns} columns of tensor memory",
          "tensor memory has {limit_columns} columns of {lanes} lanes x 4 bytes[, and {others} need some of them]",
          "Use at most 128 x 256 or 256 x 128."),
)
GEMM_SMEM = plan_rule(
    "gemm-smem", "All stages, the epilogue and the barriers of a GEMM fit into the shared memory of a block.",
    "CUDA programming guide, compute capabilities", 'ts.plan_gemm(512, 512, 512, "bf16", tile=(128, 128, 64), stages=6)',
    'ts.plan_gemm(512, 512, 512, "bf16", tile=(128, 128, 64), stages=8)',
    tile=("tiles of A and B of {operand_bytes} bytes together", "a block of {arch} has {limit_bytes} bytes of shared memory",
          "Use {smaller: x }."),
    stages=("{stages:stage} of {a_bytes} + {b_bytes} bytes[ and an epilogue of {epilogue_bytes}] = {needed_bytes} bytes with barriers",
            "a block of {arch} has {limit_bytes} bytes[, and at least {fewest} stages are planned unless stages=1 is asked for]",
            "Use {fixes: or }."),
)
# fmt: on


def _uneven_rows(product: Product, extents: Tile) -> Iterator[dict[str, Any]]:
    """Rows of A, B and C (or of their tiles) whose length the copy does not take, with the next longer length that it does."""
    lengths, by_tma = dict(zip("mnk", extents, strict=True)), product.by_tma
    for matrix, extent, row in (
        ("A", "k" if product.a_major == "K" else "m", product.data_type),
        ("B", "k" if product.b_major == "K" else "n", product.data_type),
        ("C", "n", product.output_type),
    ):
        elements, padded = lengths[extent], by_tma and row.tma.smem_bits != row.tma.bits
        half = padded and matrix == "C" and row.bits == 6 and product.arch.has("half_row_16u6_store")
        whole = _PADDED_ROW_ELEMENTS if padded and not half else _PADDED_ROW_ELEMENTS // 2
        multiple = whole if padded or row.bits == 6 else _ROW_BITS // row.bits
        up = rounded_up(elements, multiple)
        if up != elements and (by_tma or matrix != "C"):
            yield {
                "rows_of": matrix,
                "extent": extent,
                "elements": elements,
                "data_type": row.name,
                "padded": padded,
                "mover": "TMA takes" if by_tma else "cp.async takes 16 bytes at a time of",
                "multiple_elements": multiple,
                "multiple_bytes": multiple * row.bits // 8,
                "row_bytes": elements * row.bits / 8,
                "up": up,
                "up_bytes": up * row.bits // 8,
            }


def tile_problems(product: Product, tile: Tile) -> list[Obstacle]:
    """Why no block computes a tile of this shape: accumulators, one stage of operands, the instruction's shape."""
    # types that TMA spreads out to a byte an element move in whole rows of 128 (stores on sm_103: of 64)
    uneven = (GEMM_TILE.broken("tile", "rows", **row) for row in _uneven_rows(product, tile) if row["padded"])
    return _beyond_a_block(product, tile) or [*_partial_instructions(product, tile), *uneven]


def accumulator_columns(tile: Tile) -> int:
    """Columns of tensor memory that a tile's accumulators take: n for every 128 rows.

    >>> accumulator_columns((256, 128, 64))
    256
    """
    return -(-tile[0] // TENSOR_MEMORY_LANES) * tile[1]


def _beyond_a_block(product: Product, tile: Tile) -> list[Obstacle]:
    """Accumulators, or one stage of operands, for which a block has no room."""
    (m, n, k), bits, room, in_tmem = (
        tile,
        product.data_type.smem_bits,
        product.arch.smem_per_block_bytes,
        product.in_tensor_memory,
    )
    columns, operands, smaller = accumulator_columns(tile), (m + n) * k * bits // 8, (128, 128, 1024 // bits)
    scaled = in_tmem and product.tensor_core.is_scaled(product.data_type)
    sums = {"m": m, "n": n, "accumulator_bytes": ACCUMULATOR_BYTES, "total_bytes": m * n * ACCUMULATOR_BYTES}
    # fmt: off
    checks = (
        (not in_tmem and sums["total_bytes"] > _TWO_WARPGROUPS_BYTES,
         GEMM_ACCUMULATORS.broken("tile", "registers", limit_bytes=_TWO_WARPGROUPS_BYTES, **sums)),
        (in_tmem and columns + scaled > TENSOR_MEMORY_COLUMNS,
         GEMM_ACCUMULATORS.broken("tile", "tmem", limit_columns=TENSOR_MEMORY_COLUMNS, lanes=TENSOR_MEMORY_LANES, columns=columns,
                                  others="the scale factors" if scaled else None, **sums)),
        (operands > room,
         GEMM_SMEM.broken("tile", "tile", operand_bytes=operands, arch=product.arch.name, limit_bytes=room, smaller=smaller)),
    )
    # fmt: on
    return [one for broken, one in checks if broken]


def _partial_instructions(product: Product, tile: Tile) -> list[Obstacle]:
    """Tiles that are no whole number of mma instructions, 16 rows of A by 8 columns of B, nor with A and B exchanged."""
    (m, n, k), forms, bits = tile, product.mma_forms, product.output_type.smem_bits
    if not is_exchanged(product, tile):
        return []
    if not _is_whole(forms, (n, m, k)):
        least = min(forms, key=lambda row: row.m * row.n[0] * row.k)
        up = tuple(rounded_up(extent, part) for extent, part in zip(tile, (least.m, least.n[0], least.k), strict=True))
        return [GEMM_TILE.broken("tile", "forms", tile=tile, forms=tuple(row.name for row in forms), up=up)]
    told = {"data_type": product.output_type.name, "element_bits": bits, "up": rounded_up(m, _MMA_ROWS)}
    unstored = product.by_tma and bits < 8  # the transpose of C has no neighbours along n
    return [GEMM_TILE.broken("tile", "exchanged", m=m, **told)] if unstored else []


def is_exchanged(product: Product, tile: Tile) -> bool:
    """Whether mma takes B as its first operand and A as its second, because m is no multiple of 16.

    >>> bf16, hopper = DataType.named("bf16"), Arch.named("sm_90")
    >>> product = Product((8, 64, 64), bf16, bf16, hopper, None, "ldmatrix", "K", "K", 132)
    >>> is_exchanged(product, (8, 64, 64)), is_exchanged(product, (16, 64, 64))
    (True, False)
    """
    return bool(product.mma_forms) and not _is_whole(product.mma_forms, tile)


def _is_whole(forms: tuple[Instruction, ...], tile: Tile) -> bool:
    m, n, k = tile
    return any(m % row.m == 0 and n % row.n[0] == 0 and k % row.k == 0 for row in forms)


def narrow_instruction(product: Product, tile: Tile, b: Plan) -> Iterator[Obstacle]:
    """Why tcgen05.mma with 128 rows of A should not take the n of this tile, or of its blocks.

    PTX lists n in steps of 8. Older CUTLASS demands steps of 16 beside 128 rows, CUTLASS 4.2 still does where A lies in
    tensor memory, and no card has told us which is right: what all of them allow is planned.
    """
    m, n, _ = tile
    if not product.in_tensor_memory or m % TENSOR_MEMORY_LANES or n in range(16, 257, 16):
        return
    block, kind = b.descriptors().block_mn, tcgen05_for(product.data_type).name
    if block % 16 and kind in _EVERY_16_WITH_128_ROWS:
        wider = range(rounded_up(n, 16), n + 512, 16)
        up = next(up for up in wider if max(size for size in range(8, 257, 8) if up % size == 0) % 16 == 0)
        told = {"block_n": None if block == n else block, "rows": TENSOR_MEMORY_LANES, "kind": kind}
        yield GEMM_TILE.broken("tile", "narrow", n=n, up=up, **told)
