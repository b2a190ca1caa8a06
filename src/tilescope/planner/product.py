"""The request for a matrix product.

C (m x n)  =  A (m x k)  x  B (n x k, the k x n matrix seen by its columns)

accumulators of a tile, of 4 bytes, lie in
    registers          65536 of 4 bytes an SM, 255 a thread      wgmma, mma (ldmatrix)
    tensor memory      512 columns of 128 lanes x 4 bytes        tcgen05
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from tilescope.arch import Arch
from tilescope.arithmetic import ceil_div
from tilescope.card import Card
from tilescope.data_type import DataType
from tilescope.layout import Major
from tilescope.mma.consumer import CONSUMER, Consumer
from tilescope.mma.mma_instruction import INSTRUCTIONS, Instruction
from tilescope.mma.scale_format import ScaleFormat
from tilescope.mma.tcgen05_kind import Tcgen05Kind, tcgen05_for
from tilescope.mma.tmem_address import TMEM_COLUMNS, TMEM_LANES
from tilescope.planner.fused_epilogue import PLAIN_EPILOGUE, Fused
from tilescope.planner.gemm_batch import ONE, Batch

Tile = tuple[int, int, int]  # m, n, k

_BF16 = DataType.named("bfloat16")
_UNPACKED_E2M1 = DataType.named("16u4_align16b")  # sixteen elements to 16 bytes of shared memory
ACCUMULATOR_BYTES = 4  # f32 or s32
REGISTER_FILE_BYTES = 65536 * 4  # of an SM
MMA_ROWS = 16  # of A; the forms with 8 rows have another D fragment than ts.plan counts for an epilogue
_LIES_AS = {"16u4_align8b": "e2m1", "16u4_align16b": "e2m1", "16u6_align16b": "e2m3"}  # names only of TMA


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
    scales: ScaleFormat | None = None  # of blocks of k, of both operands
    batch: Batch = ONE
    fused: Fused = PLAIN_EPILOGUE
    block_scales: bool = False  # of float32, applied in registers: block_scales.py

    @property
    def tensor_core(self) -> Consumer:
        """The row of its consumer."""
        return CONSUMER[self.consumer]

    @property
    def in_tensor_memory(self) -> bool:
        """Whether the accumulators are in tensor memory instead of registers."""
        return self.tensor_core.accumulators == "tensor memory"

    @property
    def c_shape(self) -> tuple[int, int]:
        """Rows and columns of C: of gated columns half."""
        return self.shape[0], self.fused.columns(self.shape[1])

    @property
    def operand_type(self) -> DataType:
        """The type of A and B in tensor maps and shared memory: e2m1 without scale factors takes a byte for each element.

        Only the block-scaled kinds read two elements to a byte.
        """
        return _UNPACKED_E2M1 if self.scales is None and self.data_type.name == "e2m1" else self.data_type

    @property
    def kind(self) -> Tcgen05Kind:
        """The kind of tcgen05.mma that multiplies it."""
        return tcgen05_for(self.operand_type) if self.scales is None else self.scales.kind_row

    @property
    def operand_bits(self) -> float:
        """Bits of an element of A or B in global memory, with its part of a scale factor."""
        return self.data_type.bits if self.scales is None else self.data_type.bits + 8 / self.scales.block

    @property
    def tflops(self) -> float | None:
        """The card's TFLOP/s for it, sustained for seconds; None without a card or a known rate."""
        return None if self.card is None else self.card.tflops(self.operand_type, self._scales_name)

    @property
    def peak_tflops(self) -> float | None:
        """The card's TFLOP/s that no kernel with its instructions exceeds; None without a card or a known rate.

        An instruction of tcgen05 processes 32 bytes of k in the same cycles for every type. A B300 reaches its peak of
        4-bit types with 48 bytes, which no planned tile uses.
        """
        if self.card is None:
            return None
        peak = self.card.peak_tflops(self.operand_type, self._scales_name)
        bf16 = self.card.tflops(_BF16)
        if peak is None or bf16 is None or not self.in_tensor_memory:
            return peak
        return min(peak, bf16 * _BF16.bits / self.operand_type.smem_bits)

    @property
    def _scales_name(self) -> str:
        return "" if self.scales is None else self.scales.name

    @property
    def by_tma(self) -> bool:
        """Whether TMA moves the tiles, and not threads."""
        return self.arch.has("tma")

    @property
    def is_promoted(self) -> bool:
        """Whether the sums of a K step are added to others of full precision: wgmma cuts sums of 8-bit floats to 14 bits."""
        return self.consumer == "wgmma" and self.data_type.ptx in ("e4m3", "e5m2")

    @property
    def has_float_sums(self) -> bool:
        """Whether the accumulators are float32."""
        return self.data_type.ptx not in ("s8", "u8", "s4", "u4", "b1")

    @property
    def mma_forms(self) -> tuple[Instruction, ...]:
        """The forms of mma that multiply its elements; none where the tensor core reads by descriptors."""
        return () if self.tensor_core.reads_by_descriptor else mma_rows(self.arch, self.operand_type)


@cache
def mma_rows(arch: Arch, data_type: DataType) -> tuple[Instruction, ...]:
    """The mma instructions that multiply elements of this type as loaded by ldmatrix: 32 bits per register.

    >>> [row.name for row in mma_rows(Arch.named("sm_80"), DataType.named("bf16"))]
    ['mma.m16n8k8', 'mma.m16n8k16']
    >>> mma_rows(Arch.named("sm_80"), DataType.named("e4m3"))
    ()
    """
    name = _LIES_AS.get(data_type.name, data_type.name)
    return tuple(
        row
        for row in INSTRUCTIONS
        if (row.family, row.m, row.per_register * data_type.smem_bits) == ("mma", MMA_ROWS, 32)
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


def accumulator_columns(sums: Tile) -> int:
    """Columns of tensor memory that the accumulators of one block take: their columns for every 128 rows.

    >>> accumulator_columns((256, 128, 64))
    256
    """
    return ceil_div(sums[0], TMEM_LANES) * sums[1]


def accumulator_buffers(sums: Tile, scale_columns: int = 0) -> int:
    """Accumulators that take turns in tensor memory: two, so that one is multiplied while the other is stored, or one.

    Scale factors need columns too.

    >>> accumulator_buffers((128, 256, 64)), accumulator_buffers((256, 256, 64)), accumulator_buffers((128, 256, 256), 48)
    (2, 1, 1)
    """
    return min(2, (TMEM_COLUMNS - scale_columns) // accumulator_columns(sums))


def is_exchanged(product: Product, tile: Tile) -> bool:
    """Whether mma takes B as its first operand and A as its second, because m is no multiple of 16.

    >>> bf16, hopper = DataType.named("bf16"), Arch.named("sm_90")
    >>> product = Product((8, 64, 64), bf16, bf16, hopper, None, "ldmatrix", "K", "K", 132)
    >>> is_exchanged(product, (8, 64, 64)), is_exchanged(product, (16, 64, 64))
    (True, False)
    """
    return bool(product.mma_forms) and not is_whole(product.mma_forms, tile)


def is_whole(forms: tuple[Instruction, ...], tile: Tile) -> bool:
    """Whether a tile is a whole number of one of the instructions."""
    m, n, k = tile
    return any(m % row.m == 0 and n % row.n[0] == 0 and k % row.k == 0 for row in forms)
