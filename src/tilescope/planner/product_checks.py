"""What of a matrix product no tensor core computes, or no block: the rules of a product and of its tiles.

Rows of a matrix in global memory start at multiples of 16 bytes, whoever copies them; rows of C only where TMA stores
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tilescope.arch import ARCH, architectures_with
from tilescope.arithmetic import rounded_up
from tilescope.data_type import DataType
from tilescope.errors import Wording
from tilescope.mma.tcgen05_kind import tcgen05_for
from tilescope.mma.tmem_address import TMEM_LANES
from tilescope.planner.missing import (
    CONSUMER_FIX,
    CONSUMER_FOUND,
    CONSUMER_LIMIT,
    KIND_FIX,
    KIND_FOUND,
    KIND_LIMIT,
    missing_consumer,
    missing_kind,
)
from tilescope.planner.obstacle import Broken, Obstacle, broken, or_obstacles
from tilescope.planner.plans import Plan
from tilescope.planner.product import (
    ACCUMULATOR_BYTES,
    MMA_ROWS,
    TENSOR_MEMORY_COLUMNS,
    Product,
    Tile,
    accumulator_columns,
    is_exchanged,
    is_whole,
    mma_rows,
    mma_types,
)
from tilescope.planner.schedule import Schedule
from tilescope.rule import rule
from tilescope.sentence import argument_said
from tilescope.swizzle import CHUNK_BYTES

_TWO_WARPGROUPS_BYTES = 2 * 128 * 255 * 4  # 255 registers a thread: more threads have fewer
_ROW_BITS = CHUNK_BYTES * 8  # rows in global memory start at multiples of 16 bytes
_PADDED_ROW_ELEMENTS = 128  # of the packed types that shared memory holds in whole bytes
_NEVER_STORED = "16u4_align16b"
_EVERY_16_WITH_128_ROWS = ("f16", "tf32", "f8f6f4")  # kinds of tcgen05.mma

GEMM_CONSUMER = rule(
    "gemm-consumer",
    "The architecture has the consumer of the product: wgmma, tcgen05, or ldmatrix with mma.",
    argument="consumer",
    found=CONSUMER_FOUND,
    limit=CONSUMER_LIMIT,
    fix=CONSUMER_FIX,
    source='PTX ISA, "Target ISA Notes" of the instructions',
    passing='ts.plan_gemm(256, 256, 256, "bf16", consumer="wgmma")',
    failing='ts.plan_gemm(256, 256, 256, "bf16", consumer="tcgen05")',
)
GEMM_TYPE = rule(
    "gemm-type",
    "The tensor core multiplies the type on this architecture, and the copies move it and the type of C.",
    argument="data_type",
    found="{data_type} on {arch}",
    limit="mma on {arch}, fed by ldmatrix in 32-bit registers, multiplies {known:, }",
    fix='Use {data_type:="bfloat16"}[[, or {arch:="{elsewhere}"}]].',
    source='PTX ISA, "mma", "tcgen05.mma"; cuda.h, CUtensorMapDataType',
    passing='ts.plan_gemm(256, 256, 256, "bf16", arch="sm_80")',
    failing='ts.plan_gemm(256, 256, 256, "e4m3", arch="sm_80")',
)
FLOAT32_NOT_MULTIPLIED = GEMM_TYPE.worded(
    fix="Use tfloat32: its elements are float32 whose low 13 bits are ignored.",
)
KIND_NOT_MULTIPLIED = GEMM_TYPE.worded(found=KIND_FOUND, limit=KIND_LIMIT, fix=KIND_FIX)
BITS_NOT_MOVED = GEMM_TYPE.worded(
    limit="TMA moves {data_type} as {moved}, {together} to an element, and a product of bits (and.popc) "
    "is not the product of these bytes",
    fix="Plan the operand tiles as {moved} with ts.plan, k / 8 bytes wide; the product itself is not planned.",
)
RESULT_BITS_NOT_MOVED = GEMM_TYPE.worded(
    argument="output_type",
    limit="TMA moves {data_type} as {moved}, {together} to an element",
    fix='Use {output_type:="int32"}.',
)
PACKED_NOT_MOVED = GEMM_TYPE.worded(
    argument="{argument}",
    limit="TMA moves elements below 8 bits on {known:, }",
    fix='Use {argument}="int8", or another type of at least 8 bits.',
)
RESULT_NOT_STORED = GEMM_TYPE.worded(
    argument="output_type",
    limit="TMA cannot store {data_type}",
    fix='Use {output_type:="bfloat16"}.',
)
GEMM_MAJOR = rule(
    "gemm-major",
    "A and B are MN-major only if the tensor core reads MN-major elements of their width.",
    argument="{argument}",
    found="{operand} MN-major, of {data_type}",
    limit="{instruction} reads MN-major elements of {widths:, } bits",
    fix="Use {k_major}: transpose {operand} once, or while copying.",
    source='PTX ISA, "wgmma.mma_async", "tcgen05.mma", "ldmatrix"',
    passing='ts.plan_gemm(256, 256, 256, "bf16", b_major="MN")',
    failing='ts.plan_gemm(256, 256, 256, "e4m3", b_major="MN")',
)


def product_problems(product: Product) -> list[Obstacle]:
    """Why no tile of any shape serves: a consumer, type or majorness that the card lacks, or rows of a wrong length."""
    if missing := missing_consumer(GEMM_CONSUMER.wording, product.consumer, product.arch):
        return list(missing)
    if unknown := _unknown_type(product):
        return unknown
    if unmoved := list(_unmoved_types(product)):
        return list(unmoved)
    uneven = (
        broken(GEMM_ROWS, change={row.extent: row.up}, **row._asdict()) for row in _uneven_rows(product, product.shape)
    )
    return [*_unread_majors(product), *uneven]


def _unknown_type(product: Product) -> list[Obstacle]:
    """A type that the tensor core of this architecture does not multiply."""
    reader = product.tensor_core
    element = product.data_type
    if reader.loop is not None:
        extents = or_obstacles(reader.loop.extents, element)
        if isinstance(extents, list):
            return extents
        return list(missing_kind(KIND_NOT_MULTIPLIED, reader, product.arch, element))
    if product.mma_forms:
        return []
    return [
        broken(
            FLOAT32_NOT_MULTIPLIED if element.name in ("float32", "float32_ftz") else GEMM_TYPE,
            data_type=element.name,
            arch=product.arch.name,
            known=mma_types(product.arch),
            elsewhere=next((name for name, other in ARCH.items() if mma_rows(other, element)), None),
        )
    ]


def _unmoved_types(product: Product) -> Iterator[Broken]:
    """Types below a byte that TMA does not move, said once: single bits, and packed types where the architecture lacks them."""
    if not product.by_tma:
        return
    operands = _unmoved(product, "data_type", product.data_type, BITS_NOT_MOVED)
    yield from operands
    if operands and product.output_type is product.data_type:
        return
    result = _unmoved(product, "output_type", product.output_type, RESULT_BITS_NOT_MOVED)
    if not result and product.output_type.name == _NEVER_STORED:
        result = [_not_moved(product, "output_type", product.output_type, RESULT_NOT_STORED)]
    yield from result


def _unmoved(product: Product, argument: str, element: DataType, bits_not_moved: Wording) -> list[Broken]:
    """Why TMA does not move a type on this architecture, if so."""
    if element.tma.bits != element.bits:
        return [_not_moved(product, argument, element, bits_not_moved)]
    if element.is_packed and not product.arch.has("packed_types"):
        return [_not_moved(product, argument, element, PACKED_NOT_MOVED)]
    return []


def _not_moved(product: Product, argument: str, element: DataType, told: Wording) -> Broken:
    return broken(
        told,
        argument=argument,
        data_type=element.name,
        arch=product.arch.name,
        known=architectures_with("packed_types"),
        moved=element.tma.name,
        together=element.tma.bits // element.bits,
    )


def _unread_majors(product: Product) -> Iterator[Broken]:
    element = product.data_type
    widths = product.tensor_core.mn_major_bits()
    for operand, argument, major in (("A", "a_major", product.a_major), ("B", "b_major", product.b_major)):
        if major == "MN" and (element.is_packed or element.smem_bits not in widths):
            yield broken(
                GEMM_MAJOR,
                change={argument: "K"},
                argument=argument,
                k_major=argument_said(argument, "K"),
                operand=operand,
                element_bits=element.bits,
                data_type=element.name,
                instruction=product.tensor_core.instruction["MN"],
                widths=widths,
            )


GEMM_ROWS = rule(
    "gemm-rows",
    "Rows of A and B in global memory are multiples of 16 bytes, and rows of C where TMA stores them.",
    argument="{extent}",
    found="{extent} = {elements}: rows of {rows_of} are {row_bytes:.15g} bytes of {data_type}",
    limit="{mover} rows that are multiples of {multiple_elements} elements, {multiple_bytes} bytes",
    fix="Use {extent} = {up}, with rows of {rows_of} padded to {up_bytes} bytes.",
    source="cuda.h, cuTensorMapEncodeTiled; measured on an H200",
    basis="measured",
    passing='ts.plan_gemm(256, 256, 264, "bf16")',
    failing='ts.plan_gemm(256, 256, 260, "bf16")',
)
GEMM_TILE = rule(
    "gemm-tile",
    "A tile is a whole number of the tensor core's instructions, and of the rows in which TMA moves its elements.",
    argument="tile",
    found="a tile of {tile: x }",
    limit="{forms:, } take whole multiples of their m, n and k, with A and B as they are or exchanged",
    fix="Use {up: x }.",
    source='PTX ISA, "mma", "tcgen05.mma"; CUTLASS',
    passing='ts.plan_gemm(256, 256, 256, "bf16", consumer="ldmatrix", tile=(16, 8, 64))',
    failing='ts.plan_gemm(256, 256, 256, "bf16", consumer="ldmatrix", tile=(12, 8, 64))',
)
TILE_ROWS = GEMM_TILE.worded(
    found="{rows_of}: {extent} = {elements} elements of {data_type}",
    limit="TMA moves them in rows of {multiple_elements}",
    fix="Use {extent} = {up}.",
)
EXCHANGED_TILE = GEMM_TILE.worded(
    found="m = {m}, for which mma takes A and B exchanged, with C of {data_type}",
    limit="the accumulators then hold the transpose of C, and a lane stores no single elements of {element_bits} bits",
    fix="Use m = {up}, or an output_type of 8 bits or more.",
)
NARROW_TILE = GEMM_TILE.worded(
    found="n = {n}[[, taken in blocks of {block_n}]] with instructions of {rows} rows of A",
    limit="PTX lists multiples of 8, but older CUTLASS takes kind {kind} beside 128 rows with multiples of 16 alone",
    fix="Use n = {up}, or m = 64.",
)
GEMM_ACCUMULATORS = rule(
    "gemm-accumulators",
    "The accumulators of a tile fit into the registers of an SM, or into tensor memory.",
    argument="tile",
    found="{m} x {n} accumulators of {accumulator_bytes} bytes = {total_bytes} bytes",
    limit="an SM has 65536 registers of 4 bytes, and two warpgroups, with 255 registers a thread at most, "
    "hold {limit_bytes} bytes",
    fix="Use at most 128 x 256 or 256 x 128.",
    source='CUDA programming guide, compute capabilities; PTX ISA, "tensor memory"',
    passing='ts.plan_gemm(512, 512, 512, "bf16", tile=(128, 256, 64))',
    failing='ts.plan_gemm(512, 512, 512, "bf16", tile=(256, 256, 64))',
)
TENSOR_MEMORY_EXCEEDED = GEMM_ACCUMULATORS.worded(
    found="{m} x {n} accumulators of {accumulator_bytes} bytes = {total_bytes} bytes, "
    "{columns} columns of tensor memory",
    limit="tensor memory has {limit_columns} columns of {lanes} lanes x 4 bytes[[, and {others} need some of them]]",
)
GEMM_SMEM = rule(
    "gemm-smem",
    "All stages, the epilogue and the barriers of a GEMM fit into the shared memory of a block.",
    argument="stages",
    found="{stages:stage} of {a_bytes} + {b_bytes} bytes[[ and an epilogue of {epilogue_bytes}]] = {needed_bytes} bytes "
    "with barriers",
    limit="a block of {arch} has {limit_bytes} bytes"
    "[[, and at least {fewest} stages are planned unless stages=1 is asked for]]",
    fix="Use {fixes: or }.",
    source="CUDA programming guide, compute capabilities",
    passing='ts.plan_gemm(512, 512, 512, "bf16", tile=(128, 128, 64), stages=6)',
    failing='ts.plan_gemm(512, 512, 512, "bf16", tile=(128, 128, 64), stages=8)',
)
FEWEST_STAGES_EXCEED_SMEM = GEMM_SMEM.worded(argument="tile")
OPERANDS_EXCEED_SMEM = GEMM_SMEM.worded(
    argument="tile",
    found="tiles of A and B of {operand_bytes} bytes together",
    limit="a block of {arch} has {limit_bytes} bytes of shared memory",
    fix="Use {smaller: x }.",
)


class UnevenRow(NamedTuple):
    """A row whose length the copy does not take, with the next longer length that it does: the facts of a refusal."""

    rows_of: str  # the matrix
    extent: str
    elements: int
    data_type: str
    padded: bool  # TMA spreads its elements out
    mover: str
    multiple_elements: int
    multiple_bytes: int
    row_bytes: float
    up: int
    up_bytes: int


def _uneven_rows(product: Product, extents: Tile) -> Iterator[UnevenRow]:
    """Rows of A, B and C (or of their tiles) whose length the copy does not take."""
    m, n, k = extents
    a_extent, a_elements = ("k", k) if product.a_major == "K" else ("m", m)
    b_extent, b_elements = ("k", k) if product.b_major == "K" else ("n", n)
    yield from _uneven_row(product, "A", a_extent, a_elements, product.data_type)
    yield from _uneven_row(product, "B", b_extent, b_elements, product.data_type)
    if product.by_tma:  # threads store C straight from registers
        yield from _uneven_row(product, "C", "n", n, product.output_type)


def _uneven_row(product: Product, matrix: str, extent: str, elements: int, element: DataType) -> Iterator[UnevenRow]:
    by_tma = product.by_tma
    padded = by_tma and element.tma.smem_bits != element.tma.bits
    multiple = _row_multiple(product, matrix, element, padded=padded)
    up = rounded_up(elements, multiple)
    if up != elements:
        yield UnevenRow(
            rows_of=matrix,
            extent=extent,
            elements=elements,
            data_type=element.name,
            padded=padded,
            mover="TMA takes" if by_tma else "cp.async takes 16 bytes at a time of",
            multiple_elements=multiple,
            multiple_bytes=multiple * element.bits // 8,
            row_bytes=elements * element.bits / 8,
            up=up,
            up_bytes=up * element.bits // 8,
        )


def _row_multiple(product: Product, matrix: str, element: DataType, *, padded: bool) -> int:
    """Elements of which a row is a multiple: those of 16 bytes, or 64 of 6 bits; types that TMA spreads out move in rows of 128.

    Stores of 6-bit types on sm_103 move rows of 64 of them.
    """
    if padded:
        half = matrix == "C" and element.bits == 6 and product.arch.has("half_row_16u6_store")
        return _PADDED_ROW_ELEMENTS // 2 if half else _PADDED_ROW_ELEMENTS
    return _PADDED_ROW_ELEMENTS // 2 if element.bits == 6 else _ROW_BITS // element.bits


def tile_problems(product: Product, tile: Tile) -> list[Broken]:
    """Why no block computes a tile of this shape: accumulators, one stage of operands, the instruction's shape."""
    if beyond := list(_beyond_a_block(product, tile)):
        return beyond
    uneven = [broken(TILE_ROWS, **row._asdict()) for row in _uneven_rows(product, tile) if row.padded]
    return [*_partial_instructions(product, tile), *uneven]


def _beyond_a_block(product: Product, tile: Tile) -> Iterator[Broken]:
    """Accumulators, or one stage of operands, for which a block has no room."""
    if product.in_tensor_memory:
        yield from _beyond_tensor_memory(product, tile)
    else:
        yield from _beyond_registers(tile)
    m, n, k = tile
    bits = product.data_type.smem_bits
    room = product.arch.smem_per_block_bytes
    operands = (m + n) * k * bits // 8
    if operands > room:
        yield broken(
            OPERANDS_EXCEED_SMEM,
            operand_bytes=operands,
            arch=product.arch.name,
            limit_bytes=room,
            smaller=(128, 128, 1024 // bits),
        )


def _beyond_registers(tile: Tile) -> Iterator[Broken]:
    m, n, _ = tile
    total_bytes = m * n * ACCUMULATOR_BYTES
    if total_bytes > _TWO_WARPGROUPS_BYTES:
        yield broken(
            GEMM_ACCUMULATORS,
            limit_bytes=_TWO_WARPGROUPS_BYTES,
            m=m,
            n=n,
            accumulator_bytes=ACCUMULATOR_BYTES,
            total_bytes=total_bytes,
        )


def _beyond_tensor_memory(product: Product, tile: Tile) -> Iterator[Broken]:
    """Accumulators that exceed tensor memory, of which scale factors need at least one column."""
    m, n, _ = tile
    scaled = product.tensor_core.is_scaled(product.data_type)
    columns = accumulator_columns(tile)
    available = TENSOR_MEMORY_COLUMNS - 1 if scaled else TENSOR_MEMORY_COLUMNS
    if columns > available:
        yield broken(
            TENSOR_MEMORY_EXCEEDED,
            limit_columns=TENSOR_MEMORY_COLUMNS,
            lanes=TMEM_LANES,
            columns=columns,
            others="the scale factors" if scaled else None,
            m=m,
            n=n,
            accumulator_bytes=ACCUMULATOR_BYTES,
            total_bytes=m * n * ACCUMULATOR_BYTES,
        )


def _partial_instructions(product: Product, tile: Tile) -> list[Broken]:
    """Tiles that are no whole number of mma instructions, 16 rows of A by 8 columns of B, nor with A and B exchanged."""
    if not is_exchanged(product, tile):
        return []
    m, n, k = tile
    forms = product.mma_forms
    if not is_whole(forms, (n, m, k)):
        least = min(forms, key=lambda row: row.m * row.n[0] * row.k)
        up = (rounded_up(m, least.m), rounded_up(n, least.n[0]), rounded_up(k, least.k))
        return [broken(GEMM_TILE, tile=tile, forms=tuple(row.name for row in forms), up=up)]
    output = product.output_type
    if product.by_tma and output.smem_bits < 8:  # the transpose of C has no neighbours along n
        up_m = rounded_up(m, MMA_ROWS)
        return [broken(EXCHANGED_TILE, m=m, data_type=output.name, element_bits=output.smem_bits, up=up_m)]
    return []


def narrow_instruction(product: Product, tile: Tile, b: Plan) -> list[Broken]:
    """Why tcgen05.mma with 128 rows of A should not take the n of this tile, or of its blocks.

    PTX lists n in steps of 8. Older CUTLASS demands steps of 16 beside 128 rows, CUTLASS 4.2 still does where A lies in
    tensor memory, and no card has told us which is right: what all of them allow is planned.
    """
    m, n, _ = tile
    if not product.in_tensor_memory or m % TMEM_LANES or n in range(16, 257, 16):
        return []
    block = b.descriptors().block_mn
    kind = tcgen05_for(product.data_type).name
    if block % 16 == 0 or kind not in _EVERY_16_WITH_128_ROWS:
        return []
    wider = range(rounded_up(n, 16), n + 512, 16)
    up = next(extent for extent in wider if _largest_block(extent) % 16 == 0)
    block_n = None if block == n else block
    return [broken(NARROW_TILE, n=n, up=up, block_n=block_n, rows=TMEM_LANES, kind=kind)]


def _largest_block(n: int) -> int:
    """The most columns that one instruction takes of n: the largest multiple of 8 up to 256 that divides it."""
    return max(size for size in range(8, 257, 8) if n % size == 0)


GEMM_SCHEDULE = rule(
    "gemm-schedule",
    "Blocks share a product as its tensor core and its tiles allow: swapped operands and shared k are planned for wgmma.",
    argument="split",
    found="swapped, split, parts, tail or dependent with {consumer}",
    limit="they are planned for wgmma",
    fix='Leave them out, or use {consumer:="wgmma"} on sm_90.',
    source="tilescope's kernels",
    passing='ts.plan_gemm(16, 4096, 4096, "bf16", swapped=True, split=2)',
    failing='ts.plan_gemm(16, 4096, 4096, "bf16", arch="sm_80", split=2)',
)
TAIL_BESIDE_SPLIT = GEMM_SCHEDULE.worded(
    argument="tail",
    found="tail = {tail} with split = {split}, parts = {parts}",
    limit="blocks that share every tile have no last round of their own",
    fix="Use {tail:=1}, or {split:=1} and {parts:=1}.",
)
NO_TAIL = GEMM_SCHEDULE.worded(
    argument="tail",
    found="tail = {tail}, with {tiles:tile} of C for {sms:SM}",
    limit="the last round leaves {tail_tiles:tile}, of which each can be shared by at most {most:block}",
    fix="Use {tail:={most}}.",
)
PARTS_EXCEED_STAGES = GEMM_SCHEDULE.worded(
    argument="split",
    found="{others} parts of {part_bytes} bytes of sums from the other blocks of a cluster",
    limit="they lie where the stages were, {stages_bytes} bytes",
    fix="Use more stages, or a smaller split.",
)


def schedule_problems(product: Product, tile: Tile, schedule: Schedule, stages_bytes: int) -> list[Broken]:
    """Why blocks cannot share a tile in this way."""
    if product.consumer != "wgmma":
        return [] if schedule == Schedule() else [broken(GEMM_SCHEDULE, consumer=product.consumer)]
    if schedule.tail > 1:
        return list(_tail_problems(product, tile, schedule))
    rows, columns = (tile[1], tile[0]) if schedule.swapped else tile[:2]
    part_bytes = rows * schedule.share(columns) * ACCUMULATOR_BYTES
    if (schedule.split - 1) * part_bytes <= stages_bytes:
        return []
    others = schedule.split - 1
    return [broken(PARTS_EXCEED_STAGES, others=others, part_bytes=part_bytes, stages_bytes=stages_bytes)]


def _tail_problems(product: Product, tile: Tile, schedule: Schedule) -> Iterator[Broken]:
    if not schedule.persistent:
        yield broken(TAIL_BESIDE_SPLIT, tail=schedule.tail, split=schedule.split, parts=schedule.parts)
        return
    tiles_m, tiles_n = (-(-extent // size) for extent, size in zip(product.shape[:2], tile[:2], strict=True))
    tiles = tiles_m * tiles_n
    sms = product.sms or 1
    tail_tiles = tiles % sms
    most = sms // tail_tiles if tail_tiles and tiles > sms else 1
    if schedule.tail > most:
        yield broken(NO_TAIL, tail=schedule.tail, tiles=tiles, sms=sms, tail_tiles=tail_tiles, most=most)
