"""A matrix product as it is asked for, and what of it no tensor core computes.

    C (m x n)  =  A (m x k)  x  B (n x k, the k x n matrix seen by its columns)

    accumulators of a tile, 4 bytes each, lie in
        registers          65536 of 4 bytes an SM, 255 a thread      wgmma, mma (ldmatrix)
        tensor memory      512 columns of 128 lanes x 4 bytes        tcgen05

Rows of a matrix in global memory start at multiples of 16 bytes, whoever copies them; rows of C only where TMA stores
them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from tilescope.arch import ARCH, Arch, architectures_with
from tilescope.card import Card
from tilescope.data_type import DataType
from tilescope.errors import RuleError, Violation, by
from tilescope.layout import Major
from tilescope.mma.consumer import CONSUMER, Consumer, missing_consumer
from tilescope.mma.instruction import INSTRUCTIONS, Instruction
from tilescope.mma.tcgen05_kind import tcgen05_for
from tilescope.planner.gemm_rules import (
    GEMM_ACCUMULATORS,
    GEMM_CONSUMER,
    GEMM_MAJOR,
    GEMM_ROWS,
    GEMM_SMEM,
    GEMM_TILE,
    GEMM_TYPE,
)

Tile = tuple[int, int, int]  # m, n, k

MATRICES = ("A", "B", "C")
EXTENTS = {"A": ("m", "k"), "B": ("n", "k"), "C": ("m", "n")}
ACCUMULATOR_BYTES = 4  # f32 or s32
REGISTER_FILE_BYTES = 65536 * 4  # of an SM
_TWO_WARPGROUPS_BYTES = 2 * 128 * 255 * 4  # 255 registers a thread: more threads have fewer each
TENSOR_MEMORY_LANES = 128
TENSOR_MEMORY_COLUMNS = 512
_ROW_BITS = 128  # rows in global memory start at multiples of 16 bytes
_PADDED_ROW_ELEMENTS = 128  # of the packed types that shared memory holds in a byte each
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
    def by_tma(self) -> bool:
        """Whether TMA moves the tiles, and not threads."""
        return self.arch.has("tma")


def product_problems(product: Product) -> list[Violation]:
    """Why no tile of any shape serves: no such consumer, type or majorness on the card, or rows out of step."""
    return (
        _missing_consumer(product)
        or _unknown_type(product)
        or _unmoved_types(product)
        or [*_unread_majors(product), *_rows_out_of_step(product)]
    )


def _missing_consumer(product: Product) -> list[Violation]:
    missing = missing_consumer(product.consumer, product.arch)
    return [] if missing is None else [GEMM_CONSUMER.violation("consumer", *missing)]


def _unknown_type(product: Product) -> list[Violation]:
    arch, row, reader = product.arch, product.data_type, product.tensor_core
    if reader.loop is not None:
        try:
            reader.loop.extents(row)
            missing = reader.missing_kind(arch, row)
        except RuleError as error:
            return list(error.violations)
        return [] if missing is None else [GEMM_TYPE.violation("data_type", *missing)]
    if mma_rows(arch, row):
        return []
    elsewhere = [name for name, other in ARCH.items() if mma_rows(other, row)]
    fix = 'Use data_type="bfloat16"' + (f', or arch="{elsewhere[0]}".' if elsewhere else ".")
    if row.name in ("float32", "float32_ftz"):
        fix = "Use tfloat32: its elements are float32 whose low 13 bits are ignored."
    return [
        GEMM_TYPE.violation(
            "data_type",
            f"{row.name} on {arch.name}",
            f"mma on {arch.name}, fed by ldmatrix in 32-bit registers, multiplies {', '.join(mma_types(arch))}",
            fix,
        )
    ]


def _unmoved_types(product: Product) -> list[Violation]:
    """Elements of less than a byte: no TMA moves single bits as such, and not every one the packed types."""
    problems: list[Violation] = []
    rows = {"data_type": product.data_type, "output_type": product.output_type} if product.by_tma else {}
    for argument, row in rows.items():
        name = row.name
        if problems and row == product.data_type:
            continue  # said of the operands
        if row.tma.bits != row.bits:
            limit = f"TMA moves {name} as {row.tma.name}, {row.tma.bits // row.bits} to an element"
            fix = 'Use output_type="int32", for example.'
            if argument == "data_type":
                limit += ", and a product of bits (and.popc) is not the product of these bytes"
                fix = f"Plan the operand tiles as {row.tma.name} with ts.plan, k / 8 bytes wide; the product itself is not planned."
        elif row.is_packed and not product.arch.has("packed_types"):
            limit = f"TMA moves elements below 8 bits on {', '.join(architectures_with('packed_types'))}"
            fix = f'Use {argument}="int8", or another type of at least 8 bits.'
        elif argument == "output_type" and name == _NEVER_STORED:
            limit, fix = f"TMA cannot store {name}", 'Use output_type="bfloat16", for example.'
        else:
            continue
        problems.append(GEMM_TYPE.violation(argument, f"{name} on {product.arch.name}", limit, fix))
    return problems


def _unread_majors(product: Product) -> list[Violation]:
    row, widths = product.data_type, product.tensor_core.mn_major_bits()
    if row.smem_bits in widths and not row.is_packed:
        return []
    *first, last = map(str, widths)
    listed = f"{', '.join(first)} and {last}" if first else last
    return [
        GEMM_MAJOR.violation(
            name, f"{matrix} MN-major, of {row.name}",
            f"{product.tensor_core.instruction['MN']} reads MN-major elements of {listed} bits",
            f'Use {name}="K": transpose {matrix} once, or while copying.', {name: "K"}, element_bits=row.bits,
        )
        for matrix, name, major in (("A", "a_major", product.a_major), ("B", "b_major", product.b_major))
        if major == "MN"
    ]  # fmt: skip


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
        if row.family == "mma"
        and name in row.types
        and row.per_register * data_type.smem_bits == 32
        and row.m == _MMA_ROWS
        and arch.has(row.feature)
    )


def mma_types(arch: Arch) -> tuple[str, ...]:
    """The types that mma multiplies on this architecture when ldmatrix feeds it.

    >>> mma_types(Arch.named("sm_80"))
    ('float16', 'int8', 'uint8', 'int4', 'uint4', 'b1', 'tfloat32', 'bfloat16')
    """
    named = dict.fromkeys(name for row in INSTRUCTIONS if row.family == "mma" for name in row.types)
    return tuple(name for name in named if mma_rows(arch, DataType.named(name)))


def _rows_out_of_step(product: Product) -> list[Violation]:
    m, n, k = product.shape
    contiguous = {
        "A": ("k", k) if product.a_major == "K" else ("m", m),
        "B": ("k", k) if product.b_major == "K" else ("n", n),
        "C": ("n", n),
    }
    problems = []
    for matrix in MATRICES if product.by_tma else MATRICES[:2]:
        row = product.output_type if matrix == "C" else product.data_type
        name, extent = contiguous[matrix]
        step = _row_step(product, row, stored=matrix == "C")
        if extent % step:
            up = -(-extent // step) * step
            mover = "TMA takes" if product.by_tma else "cp.async takes 16 bytes at a time of"
            problems.append(GEMM_ROWS.violation(
                name,
                f"{name} = {extent}: rows of {matrix} are {extent * row.bits / 8:g} bytes of {row.name}",
                f"{mover} rows that are multiples of {step} elements, {step * row.bits // 8} bytes",
                f"Use {name} = {up}, with rows of {matrix} padded to {up * row.bits // 8} bytes.", {name: up},
                elements=extent, row_bytes=extent * row.bits / 8, multiple_elements=step,
            ))  # fmt: skip
    return problems


def _row_step(product: Product, row: DataType, *, stored: bool) -> int:
    """Elements that a row in global memory is a multiple of."""
    if product.by_tma and _is_padded(row):
        half = stored and row.bits == 6 and product.arch.has("half_row_16u6_store")
        return _PADDED_ROW_ELEMENTS // 2 if half else _PADDED_ROW_ELEMENTS
    return 64 if row.bits == 6 else _ROW_BITS // row.bits


def _is_padded(row: DataType) -> bool:
    return row.tma.smem_bits != row.tma.bits


def tile_problems(product: Product, tile: Tile) -> list[Violation]:
    """Why no block computes a tile of this shape: accumulators, one stage of operands, the instruction's shape."""
    problems = _accumulators(product, tile)
    operands = (tile[0] + tile[1]) * tile[2] * product.data_type.smem_bits // 8
    if operands > product.arch.smem_per_block_bytes:
        problems.append(GEMM_SMEM.violation(
            "tile", f"tiles of A and B of {operands} bytes together",
            f"a block of {product.arch.name} has {product.arch.smem_per_block_bytes} bytes of shared memory",
            "Use a smaller tile.", operand_bytes=operands, limit_bytes=product.arch.smem_per_block_bytes,
        ))  # fmt: skip
    return problems or [
        *(_not_whole_mmas(product, tile) or _torn_by_exchange(product, tile)),
        *_broken_padded_rows(product, tile),
    ]


def accumulator_columns(tile: Tile) -> int:
    """Columns of tensor memory that a tile's accumulators take: n for every 128 rows.

    >>> accumulator_columns((256, 128, 64))
    256
    """
    return -(-tile[0] // TENSOR_MEMORY_LANES) * tile[1]


def _accumulators(product: Product, tile: Tile) -> list[Violation]:
    m, n, _ = tile
    total = m * n * ACCUMULATOR_BYTES
    found = f"{m} x {n} accumulators of {ACCUMULATOR_BYTES} bytes = {total} bytes"
    if product.tensor_core.accumulators == "tensor memory":
        scaled = product.tensor_core.is_scaled(product.data_type)
        columns = accumulator_columns(tile)
        if columns < TENSOR_MEMORY_COLUMNS or (columns == TENSOR_MEMORY_COLUMNS and not scaled):
            return []
        found += f", {columns} columns of tensor memory"
        limit = f"tensor memory has {TENSOR_MEMORY_COLUMNS} columns of {TENSOR_MEMORY_LANES} lanes x 4 bytes"
        limit += ", and the scale factors need some of them" if scaled else ""
    elif total <= _TWO_WARPGROUPS_BYTES:
        return []
    else:
        limit = (
            f"an SM has 65536 registers of 4 bytes, and two warpgroups, with 255 registers a thread at most, "
            f"hold {_TWO_WARPGROUPS_BYTES} bytes"
        )
    return [
        GEMM_ACCUMULATORS.violation(
            "tile",
            found,
            limit,
            "Use at most 128 x 256 or 256 x 128.",
            m=m,
            n=n,
            accumulator_bytes=ACCUMULATOR_BYTES,
            total_bytes=total,
            columns=accumulator_columns(tile),
        )
    ]


def _not_whole_mmas(product: Product, tile: Tile) -> list[Violation]:
    """Whole instructions: 16 rows of A and 8 columns of B, or A and B exchanged."""
    if product.tensor_core.reads_by_descriptor:
        return []  # descriptors know their own shapes
    rows = mma_rows(product.arch, product.data_type)
    either_way = (tile, (tile[1], tile[0], tile[2]))
    if any(_is_whole(each, row) for row in rows for each in either_way):
        return []
    least = min(rows, key=lambda row: row.m * row.n[0] * row.k)
    near = tuple(-(-extent // part) * part for extent, part in zip(tile, (least.m, least.n[0], least.k), strict=True))
    return [GEMM_TILE.violation(
        "tile", f"a tile of {by(tile)}",
        f"{', '.join(row.name for row in rows)} take whole multiples of their m, n and k, with A and B as they are or exchanged",
        f"Use {by(near)}.", **dict(zip("mnk", tile, strict=True)),
    )]  # fmt: skip


def _torn_by_exchange(product: Product, tile: Tile) -> list[Violation]:
    """The transpose of C in registers has no neighbours along n, which elements below a byte need."""
    bits = product.output_type.smem_bits
    if not product.by_tma or bits >= 8 or not is_exchanged(product, tile):
        return []
    return [GEMM_TILE.violation(
        "tile", f"m = {tile[0]}, for which mma takes A and B exchanged, with C of {product.output_type.name}",
        f"the accumulators then hold the transpose of C, and a lane stores no single elements of {bits} bits",
        f"Use m = {-(-tile[0] // _MMA_ROWS) * _MMA_ROWS}, or an output_type of 8 bits or more.",
        m=tile[0], element_bits=bits,
    )]  # fmt: skip


def _broken_padded_rows(product: Product, tile: Tile) -> list[Violation]:
    """Types that TMA spreads out to a byte an element move in whole rows of 128 (stores on sm_103: of 64)."""
    problems = []
    operand, result = product.data_type, product.output_type
    for matrix, name, extent, row in (
        ("A", "k", tile[2], operand), ("B", "k", tile[2], operand), ("C", "n", tile[1], result),
    ):  # fmt: skip
        step = _row_step(product, row, stored=matrix == "C")
        if product.by_tma and _is_padded(row) and extent % step:
            problems.append(GEMM_TILE.violation(
                "tile", f"{matrix}: {name} = {extent} elements of {row.name}",
                f"TMA moves them in rows of {step}", f"Use {name} = {-(-extent // step) * step}.",
                elements=extent, multiple_elements=step,
            ))  # fmt: skip
    return problems


def is_exchanged(product: Product, tile: Tile) -> bool:
    """Whether mma takes B as its first operand and A as its second, because m has no 16 rows for it.

    >>> bf16, hopper = DataType.named("bf16"), Arch.named("sm_90")
    >>> product = Product((8, 64, 64), bf16, bf16, hopper, None, "ldmatrix", "K", "K", 132)
    >>> is_exchanged(product, (8, 64, 64)), is_exchanged(product, (16, 64, 64))
    (True, False)
    """
    rows = () if product.tensor_core.reads_by_descriptor else mma_rows(product.arch, product.data_type)
    return bool(rows) and not any(_is_whole(tile, row) for row in rows)


def _is_whole(tile: Tile, row: Instruction) -> bool:
    return tile[0] % row.m == 0 and tile[1] % row.n[0] == 0 and tile[2] % row.k == 0


def narrow_instruction(product: Product, tile: Tile, block_n: int) -> list[Violation]:
    """Why tcgen05.mma with 128 rows of A should not take `block_n` columns of B.

    PTX lists n in steps of 8. Older CUTLASS demands steps of 16 beside 128 rows, CUTLASS 4.2 still does where A lies in
    tensor memory, and no card has told us which is right: what all of them allow is planned.
    """
    in_registers = product.tensor_core.accumulators == "registers"
    if in_registers or tile[0] % TENSOR_MEMORY_LANES or block_n % 16 == 0:
        return []
    kind = tcgen05_for(product.data_type)
    if kind.name not in _EVERY_16_WITH_128_ROWS:
        return []
    blocks = "" if block_n == tile[1] else f", taken in blocks of {block_n}"
    near = next(n for n in range(-(-tile[1] // 16) * 16, tile[1] + 512, 16) if _largest_block(n) % 16 == 0)
    return [GEMM_TILE.violation(
        "tile", f"n = {tile[1]}{blocks} with instructions of 128 rows of A",
        f"PTX lists multiples of 8, but older CUTLASS takes kind {kind.name} beside 128 rows with multiples of 16 alone",
        f"Use n = {near}, or m = 64.", n=tile[1], block_n=block_n, rows=TENSOR_MEMORY_LANES,
    )]  # fmt: skip


def _largest_block(n: int) -> int:
    return max(each for each in range(8, 257, 8) if n % each == 0)


def of_matrix(matrix: str, violations: Iterable[Violation]) -> tuple[Violation, ...]:
    """Violations of a plan for one matrix, saying which it is; what cures a tile is no argument of the product."""
    return tuple(replace(violation, found=f"{matrix}: {violation.found}", change=None) for violation in violations)
