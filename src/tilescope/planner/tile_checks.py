"""The tiles of a product that no block computes: accumulators, shared memory, the shapes of instructions.

256 x 256 x 64, bf16 on sm_90     262144 bytes of accumulators; two warpgroups hold 261120
12 x 8 x 64 for mma               no whole number of m16n8k16, nor with A and B exchanged
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from tilescope.arithmetic import rounded_up
from tilescope.mma.scale_packing import ATOM_SCALES
from tilescope.mma.tcgen05_kind import in_steps
from tilescope.mma.tmem_address import TMEM_COLUMNS, TMEM_LANES
from tilescope.planner.block_scales import BLOCK, lies_in_one_block
from tilescope.planner.block_scales import NAME as BLOCK_SCALES
from tilescope.planner.gemm_schedule import Schedule
from tilescope.planner.obstacle import Broken, broken
from tilescope.planner.planned_scales import SCALED_COLUMNS, SCALED_ROWS, has_whole_atoms, largest_tile_k, scale_plans
from tilescope.planner.plans import Plan
from tilescope.planner.product import (
    ACCUMULATOR_BYTES,
    MMA_ROWS,
    Product,
    Tile,
    accumulator_columns,
    is_exchanged,
    is_whole,
)
from tilescope.planner.uneven_rows import uneven_rows
from tilescope.planner.wgmma_sums import MOST_EVENLY, PRODUCER_WARPS, needs_more_registers, share_rows
from tilescope.rule import rule

_TWO_WARPGROUPS_BYTES = 2 * 128 * 255 * 4  # 255 registers a thread: more threads have fewer
_EVERY_16_WITH_128_ROWS = ("f16", "tf32", "f8f6f4")  # kinds of tcgen05.mma
GEMM_TILE = rule(
    "gemm-tile",
    "A tile is a multiple of the tensor core's instruction shape, and of the rows in which TMA copies its elements.",
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
TILE_OF_PAIR = GEMM_TILE.worded(
    found="{letter} = {elements} of a pair's tile",
    limit="one instruction of kind {kind} takes the tile of a pair, with {letter} {known}",
    fix="Use {letter} = {up}.",
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
    "The accumulators of a tile fit into the registers of an SM or into tensor memory.",
    argument="tile",
    found="{m} x {n} accumulators of {accumulator_bytes} bytes = {total_bytes} bytes",
    limit="an SM has 65536 registers of 4 bytes, and two warpgroups, with 255 registers a thread at most, "
    "hold {limit_bytes} bytes",
    fix="Use at most 128 x 256 or 256 x 128.",
    source='CUDA programming guide, compute capabilities; PTX ISA, "tensor memory"',
    passing='ts.plan_gemm(512, 512, 512, "bf16", tile=(128, 256, 64))',
    failing='ts.plan_gemm(512, 512, 512, "bf16", tile=(256, 256, 64))',
)
FEW_STAGES_FOR_WARPS = GEMM_ACCUMULATORS.worded(
    found="{m} x {n} accumulators, {sums} a thread, and {stages:stage}",
    limit="for more than {evenly} a thread takes registers of the producer, whose {warps} warps need a stage each",
    fix="Use at most 128 x 256 or 256 x 128.",
)
SCALED_TILE = GEMM_TILE.worded(
    found="{letter} = {elements} of a tile with scale factors of {format}",
    limit="scale factors come in atoms of 128 rows, in whose middle columns of a tile may begin, so {letter} is a multiple of {multiple}",
    fix="Use {letter} = {up}.",
)
SCALED_K = GEMM_TILE.worded(
    found="k = {k} of a tile with scale factors of {format}",
    limit="scale factors come in atoms of 4, so k is a multiple of {multiple}, and one copy loads those of at most {most}",
    fix="Use k = {up}.",
)
UNEVEN_BLOCK_SCALES = GEMM_TILE.worded(
    found="a tile of {tile: x } of n = {n} with scales = {name}",
    limit="a K step has one scale: k = {block}, and n divides {block} unless A and B are swapped"
    "[[; gates side by side need an n that {halves}]]",
    fix="Use {near: x }.",
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


def tile_problems(product: Product, tile: Tile, schedule: Schedule) -> list[Broken]:
    """Why no block, or pair, computes a tile of this shape: accumulators, one stage of operands, the instruction's shape."""
    beyond = list(_beyond_a_block(product, tile, schedule))
    beyond += _unscaled_tile(product, tile, schedule)
    beyond += _uneven_blocks(product, tile, schedule)
    if schedule.cta_group == 2 and product.in_tensor_memory:
        beyond += _partial_pair(product, tile, schedule)
    if beyond:
        return beyond
    uneven = [broken(TILE_ROWS, **row._asdict()) for row in uneven_rows(product, tile) if row.padded]
    return [*_partial_instructions(product, tile), *uneven]


def _beyond_a_block(product: Product, tile: Tile, schedule: Schedule) -> Iterator[Broken]:
    """Accumulators, or one stage of operands, for which a block has no room."""
    if product.in_tensor_memory:
        yield from _beyond_tensor_memory(product, tile, schedule)
    else:
        yield from _beyond_registers(tile)
    m, n, k = tile
    bits = product.operand_type.smem_bits
    room = product.arch.smem_per_block_bytes
    operands = (m + n) * k * bits // 8 // schedule.cta_group
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


def _partial_pair(product: Product, tile: Tile, schedule: Schedule) -> Iterator[Broken]:
    """Why one instruction of a pair does not take all of a tile: m is 256, and n at most 256, in steps of the kind."""
    m, n, _ = tile
    extents = {"n": n, "m": m} if schedule.swapped else {"m": m, "n": n}
    kind = product.kind
    pair = next(shapes for shapes in kind.shapes() if shapes.form == "cta_group::2")
    for (letter, elements), sizes in zip(extents.items(), ((pair.m[-1],), pair.n), strict=True):
        if elements not in sizes:
            up = next((size for size in sizes if size >= elements), sizes[-1])
            yield broken(TILE_OF_PAIR, letter=letter, elements=elements, kind=kind.name, known=in_steps(sizes), up=up)


def _unscaled_tile(product: Product, tile: Tile, schedule: Schedule) -> Iterator[Broken]:
    """Why scale factors do not come with a tile: its rows and columns are whole atoms, and so is its k."""
    scales = product.scales
    if scales is None:
        return
    m, n, k = tile
    rows_step = SCALED_ROWS * schedule.cta_group
    columns_step = SCALED_COLUMNS if product.in_tensor_memory else SCALED_ROWS
    m_step, n_step = (columns_step, rows_step) if schedule.swapped else (rows_step, columns_step)
    for letter, elements, multiple in (("m", m, m_step), ("n", n, n_step)):
        is_whole_pair = elements % multiple == 0
        if not is_whole_pair and (product.in_tensor_memory or not has_whole_atoms(product, elements)):
            up = rounded_up(elements, multiple)
            yield broken(SCALED_TILE, letter=letter, elements=elements, format=scales.name, multiple=multiple, up=up)
    multiple = ATOM_SCALES * scales.block
    most = largest_tile_k(scales)
    if k % multiple or k > most:
        up = min(rounded_up(k, multiple), most)
        yield broken(SCALED_K, k=k, format=scales.name, multiple=multiple, most=most, up=up)


def _uneven_blocks(product: Product, tile: Tile, schedule: Schedule) -> Iterator[Broken]:
    """Why one scale of B does not serve a tile, or a K step has several of A."""
    m, n, k = tile
    side_by_side = product.fused.gate == "side by side"
    is_even = lies_in_one_block(n, product.shape[1], swapped=schedule.swapped, side_by_side=side_by_side)
    if product.block_scales and not (is_even and k == BLOCK):
        yield broken(
            UNEVEN_BLOCK_SCALES,
            tile=tile,
            n=product.shape[1],
            name=BLOCK_SCALES,
            block=BLOCK,
            halves="divides that of the product" if side_by_side else None,
            near=(m, n if is_even else gcd(BLOCK, n, product.shape[1]), BLOCK),
        )


def _beyond_tensor_memory(product: Product, tile: Tile, schedule: Schedule) -> Iterator[Broken]:
    """Accumulators that exceed tensor memory, of which scale factors need some columns."""
    sums = schedule.sums(tile)
    m, n, _ = sums
    scaled = product.scales is not None
    columns = accumulator_columns(sums)
    reserved = sum(scale.columns for scale in scale_plans(product, tile, schedule))
    available = TMEM_COLUMNS - max(reserved, int(scaled))
    if columns > available:
        yield broken(
            TENSOR_MEMORY_EXCEEDED,
            limit_columns=TMEM_COLUMNS,
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


def few_stages_for_warps(product: Product, tile: Tile, schedule: Schedule, stages: int) -> list[Broken]:
    """Why warpgroups cannot take registers of the producer: its warps take turns, so each needs a stage.

    Sums that are promoted are held twice then, instead of three times.
    """
    rows, columns, _ = schedule.sums(tile)
    takes_registers = needs_more_registers(product, rows, columns, ping_pong=schedule.ping_pong)
    if product.is_promoted or not takes_registers or stages >= PRODUCER_WARPS:
        return []
    blocks = share_rows(rows).blocks
    return [
        broken(
            FEW_STAGES_FOR_WARPS,
            m=tile[0],
            n=tile[1],
            sums=blocks * columns // 2,
            stages=stages,
            evenly=MOST_EVENLY,
            warps=PRODUCER_WARPS,
        )
    ]


def narrow_instruction(product: Product, sums: Tile, columns: Plan) -> list[Broken]:
    """Why tcgen05.mma with 128 rows should not take the columns of these accumulators, or of their blocks.

    PTX lists n in steps of 8. Older versions of CUTLASS require steps of 16 with 128 rows, and CUTLASS 4.2 still does
    if A is in tensor memory. No card was available to decide, so only shapes that all of them allow are planned.
    """
    m, n, _ = sums
    if not product.in_tensor_memory or m % TMEM_LANES or n in range(16, 257, 16):
        return []
    block = columns.descriptors().block_mn
    kind = product.kind.name
    if block % 16 == 0 or kind not in _EVERY_16_WITH_128_ROWS:
        return []
    wider = range(rounded_up(n, 16), n + 512, 16)
    up = next(extent for extent in wider if _largest_block(extent) % 16 == 0)
    block_n = None if block == n else block
    return [broken(NARROW_TILE, n=n, up=up, block_n=block_n, rows=TMEM_LANES, kind=kind)]


def _largest_block(n: int) -> int:
    """The most columns that one instruction takes of n: the largest multiple of 8 up to 256 that divides it."""
    return max(size for size in range(8, 257, 8) if n % size == 0)
