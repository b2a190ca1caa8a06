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
from typing import Any, NamedTuple

from tilescope.arch import ARCH, Arch, architectures_with
from tilescope.card import Card
from tilescope.data_type import DataType
from tilescope.errors import RuleError, Violation
from tilescope.layout import Major
from tilescope.mma.consumer import CONSUMER, Consumer, missing_consumer
from tilescope.mma.instruction import INSTRUCTIONS, Instruction
from tilescope.mma.tcgen05_kind import tcgen05_for
from tilescope.planner.plans import Plan
from tilescope.planner.refusal import refusal
from tilescope.rule import RULES

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


def product_problems(product: Product) -> list[Violation]:
    """Why no tile of any shape serves: a consumer, type or majorness that the card lacks, or rows of a wrong length."""
    missing = missing_consumer(product.consumer, product.arch)
    if missing is not None:
        return [RULES["gemm-consumer"].violation("consumer", *missing)]
    return _unknown_type(product) or _unmoved_types(product) or [*_unread_majors(product), *_wrong_row_lengths(product)]


def _unknown_type(product: Product) -> list[Violation]:
    arch, row, reader = product.arch, product.data_type, product.tensor_core
    if reader.loop is not None:
        try:
            reader.loop.extents(row)
        except RuleError as error:
            return list(error.violations)
        missing = reader.missing_kind(arch, row)
        return [] if missing is None else [RULES["gemm-type"].violation("data_type", *missing)]
    if product.mma_forms:
        return []
    elsewhere = next((name for name, other in ARCH.items() if mma_rows(other, row)), None)
    case = "float32" if row.name in ("float32", "float32_ftz") else ""
    told = {"data_type": row.name, "arch": arch.name, "known": mma_types(arch), "elsewhere": elsewhere}
    return [refusal("gemm-type", "data_type", case, **told)]


def _unmoved_types(product: Product) -> list[Violation]:
    """Types below a byte that TMA does not move: single bits, and packed types where the architecture lacks them."""
    problems = _unmoved(product, "data_type", product.data_type)
    said = problems and product.output_type == product.data_type
    return problems if said else problems + _unmoved(product, "output_type", product.output_type)


def _unmoved(product: Product, argument: str, row: DataType) -> list[Violation]:
    cases = {
        argument: row.tma.bits != row.bits,
        "packed": row.is_packed and not product.arch.has("packed_types"),
        "stored": argument == "output_type" and row.name == _NEVER_STORED,
    }
    case = next((case for case, holds in cases.items() if holds and product.by_tma), None)
    told = {"moved": row.tma.name, "together": row.tma.bits // row.bits, "known": architectures_with("packed_types")}
    named = {"argument": argument, "data_type": row.name, "arch": product.arch.name}
    return [] if case is None else [refusal("gemm-type", argument, case, **named, **told)]


def _unread_majors(product: Product) -> Iterator[Violation]:
    row, widths = product.data_type, product.tensor_core.mn_major_bits()
    told = {"data_type": row.name, "instruction": product.tensor_core.instruction["MN"], "widths": widths}
    for matrix, name, major in (("A", "a_major", product.a_major), ("B", "b_major", product.b_major)):
        if major == "MN" and (row.is_packed or row.smem_bits not in widths):
            yield refusal(
                "gemm-major", name, "", {name: "K"}, argument=name, matrix=matrix, element_bits=row.bits, **told
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


def _uneven_rows(product: Product, extents: Tile) -> Iterator[dict[str, Any]]:
    """Rows of A, B and C (or of their tiles) whose length the copy does not take, with the next longer length that it does."""
    lengths = dict(zip("mnk", extents, strict=True))
    for matrix, extent, row in (
        ("A", "k" if product.a_major == "K" else "m", product.data_type),
        ("B", "k" if product.b_major == "K" else "n", product.data_type),
        ("C", "n", product.output_type),
    ):
        multiple, elements = 64 if row.bits == 6 else _ROW_BITS // row.bits, lengths[extent]
        padded = product.by_tma and row.tma.smem_bits != row.tma.bits
        if padded:
            half = matrix == "C" and row.bits == 6 and product.arch.has("half_row_16u6_store")
            multiple = _PADDED_ROW_ELEMENTS // 2 if half else _PADDED_ROW_ELEMENTS
        up = -(-elements // multiple) * multiple
        if up != elements and (product.by_tma or matrix != "C"):
            yield {
                "matrix": matrix, "extent": extent, "elements": elements, "data_type": row.name, "padded": padded,
                "multiple_elements": multiple, "multiple_bytes": multiple * row.bits // 8, "row_bytes": elements * row.bits / 8,
                "up": up, "up_bytes": up * row.bits // 8,
            }  # fmt: skip


def _wrong_row_lengths(product: Product) -> Iterator[Violation]:
    mover = "TMA takes" if product.by_tma else "cp.async takes 16 bytes at a time of"
    for row in _uneven_rows(product, product.shape):
        yield refusal("gemm-rows", row["extent"], "", {row["extent"]: row["up"]}, mover=mover, **row)


def tile_problems(product: Product, tile: Tile) -> list[Violation]:
    """Why no block computes a tile of this shape: accumulators, one stage of operands, the instruction's shape."""
    # types that TMA spreads out to a byte an element move in whole rows of 128 (stores on sm_103: of 64)
    uneven = (refusal("gemm-tile", "tile", "rows", **row) for row in _uneven_rows(product, tile) if row["padded"])
    return list(_beyond_a_block(product, tile)) or [*_partial_instructions(product, tile), *uneven]


def accumulator_columns(tile: Tile) -> int:
    """Columns of tensor memory that a tile's accumulators take: n for every 128 rows.

    >>> accumulator_columns((256, 128, 64))
    256
    """
    return -(-tile[0] // TENSOR_MEMORY_LANES) * tile[1]


def _beyond_a_block(product: Product, tile: Tile) -> Iterator[Violation]:
    """Accumulators, or one stage of operands, for which a block has no room."""
    m, n, k = tile
    total, columns, bits = m * n * ACCUMULATOR_BYTES, accumulator_columns(tile), product.data_type.smem_bits
    scaled = product.in_tensor_memory and product.tensor_core.is_scaled(product.data_type)
    in_tmem, registers = columns + scaled <= TENSOR_MEMORY_COLUMNS, total <= _TWO_WARPGROUPS_BYTES
    if not (in_tmem if product.in_tensor_memory else registers):
        yield refusal(
            "gemm-accumulators", "tile", "tmem" if product.in_tensor_memory else "", m=m, n=n, total_bytes=total, columns=columns,
            accumulator_bytes=ACCUMULATOR_BYTES, limit_bytes=_TWO_WARPGROUPS_BYTES, limit_columns=TENSOR_MEMORY_COLUMNS,
            lanes=TENSOR_MEMORY_LANES, others="the scale factors" if scaled else None,
        )  # fmt: skip
    operands, room = (m + n) * k * bits // 8, product.arch.smem_per_block_bytes
    if operands > room:
        told = {"arch": product.arch.name, "smaller": (128, 128, 1024 // bits)}
        yield refusal("gemm-smem", "tile", operand_bytes=operands, limit_bytes=room, **told)


def _partial_instructions(product: Product, tile: Tile) -> Iterator[Violation]:
    """Tiles that are no whole number of mma instructions, 16 rows of A by 8 columns of B, nor with A and B exchanged."""
    (m, n, k), forms, bits = tile, product.mma_forms, product.output_type.smem_bits
    if not is_exchanged(product, tile):
        return
    if not _is_whole(forms, (n, m, k)):
        least = min(forms, key=lambda row: row.m * row.n[0] * row.k)
        up = tuple(-(-extent // part) * part for extent, part in zip(tile, (least.m, least.n[0], least.k), strict=True))
        yield refusal("gemm-tile", "tile", tile=tile, forms=tuple(row.name for row in forms), up=up)
    elif product.by_tma and bits < 8:  # the transpose of C has no neighbours along n
        told = {"data_type": product.output_type.name, "element_bits": bits}
        yield refusal("gemm-tile", "tile", "exchanged", m=m, up=-(-m // _MMA_ROWS) * _MMA_ROWS, **told)


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


def narrow_instruction(product: Product, tile: Tile, b: Plan) -> Iterator[Violation]:
    """Why tcgen05.mma with 128 rows of A should not take the n of this tile, or of its blocks.

    PTX lists n in steps of 8. Older CUTLASS demands steps of 16 beside 128 rows, CUTLASS 4.2 still does where A lies in
    tensor memory, and no card has told us which is right: what all of them allow is planned.
    """
    m, n, _ = tile
    if not product.in_tensor_memory or m % TENSOR_MEMORY_LANES or n in range(16, 257, 16):
        return
    block, kind = b.descriptors().block_mn, tcgen05_for(product.data_type).name
    if block % 16 and kind in _EVERY_16_WITH_128_ROWS:
        up = next(wider for wider in range(-(-n // 16) * 16, n + 512, 16) if _largest_block(wider) % 16 == 0)
        told = {"block_n": None if block == n else block, "rows": TENSOR_MEMORY_LANES, "kind": kind}
        yield refusal("gemm-tile", "tile", "narrow", n=n, up=up, **told)


def _largest_block(n: int) -> int:
    return max(block for block in range(8, 257, 8) if n % block == 0)
