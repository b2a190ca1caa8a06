"""Scale factors of a block-scaled GEMM: the part that one block loads for a K step, and its place in tensor memory.

    global: atoms of 128 rows x 4 scales, 512 bytes     one TMA box a stage      tcgen05.cp, an atom each
    ┌ row atom 0: k atoms 0 1 2 3 … ┐  ─────────────▶  [row atom][k atom][512]  ─────────────▶  4 columns an atom
    └ row atom 1: k atoms 0 1 2 3 … ┘

nvfp4, a tile of 128 x 256 with 256 of k (16 scales per row): A has 4 atoms in 16 columns, B has 8 in 32. The atoms of a
box are stored as in `ts.scale_layout` of the tile, so the same value describes the copies and the columns of every
instruction.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilescope.arithmetic import rounded_up
from tilescope.mma.scale_format import ScaleFormat
from tilescope.mma.scale_layout import ScaleCopy, ScaleLayout, ScaleStep, scale_layout
from tilescope.mma.scale_packing import ATOM_BYTES, ATOM_ROWS, ATOM_SCALES
from tilescope.mma.tmem_address import QUARTER_LANES
from tilescope.planner.gemm_schedule import Schedule
from tilescope.planner.product import Product, Tile
from tilescope.tensor_map import TensorMap

_WORD_BYTES = 8  # TMA moves atoms as 64-bit words: a box has at most 256 of them along k, 4 atoms
ATOM_WORDS = ATOM_BYTES // _WORD_BYTES
_SMEM_ALIGNMENT = 128  # of what TMA writes without a swizzle
_BOX_WORDS = 256
SCALED_MMA = "mma_f8f6f4"  # what an architecture must have for mma with scale factors (see arch.py)
SCALE_SLOTS = ("sfa", "sfb")  # names of the scale factors' stages
SCALED_ROWS = ATOM_ROWS  # rows of the sums, in steps of which a scaled tile is planned
SCALED_COLUMNS = ATOM_ROWS // 2  # and columns: a tile may begin in the middle of an atom, as CUTLASS's of 64 and 192 do


@dataclass(frozen=True, slots=True)
class ScalePlan:
    """The scale factors of one operand in a stage: their box, their atoms and their columns.

    >>> scales = ScalePlan.of(256, 256, ScaleFormat.named("nvfp4"))
    >>> scales.stage_bytes, scales.columns, scales.box
    (4096, 32, (256, 2))
    """

    layout: ScaleLayout

    @classmethod
    def of(cls, rows: int, k: int, scale_format: ScaleFormat) -> ScalePlan:
        """Those of a tile of that many rows (of A, or columns of B) and that much k."""
        return cls(scale_layout(rows, k, scale_format))

    @property
    def stage_bytes(self) -> int:
        """Shared memory of a stage."""
        return self.layout.size_bytes

    @property
    def transaction_bytes(self) -> int:
        """Bytes that a stage's barrier expects."""
        return self.layout.size_bytes

    @property
    def smem_alignment_bytes(self) -> int:
        """What the address of a stage must be a multiple of."""
        return _SMEM_ALIGNMENT

    @property
    def columns(self) -> int:
        """Columns of tensor memory."""
        return self.layout.word_columns * self.layout.atoms[1]

    @property
    def block_columns(self) -> int:
        """Columns from the scales of 128 rows to those of the next 128."""
        return ATOM_ROWS // QUARTER_LANES

    @property
    def box(self) -> tuple[int, int]:
        """Words along k, and atoms along the rows."""
        down, along = self.layout.atoms
        return along * ATOM_WORDS, down

    @property
    def copies(self) -> tuple[ScaleCopy, ...]:
        """The tcgen05.cp instructions of a stage at shared address 0 and column 0."""
        return self.layout.copies()

    @property
    def steps(self) -> tuple[ScaleStep, ...]:
        """The word and the byte of it with which each instruction along k begins."""
        return self.layout.steps()

    def tensor_map(self, address: int, rows: int, k: int) -> TensorMap:
        """The map of all scale factors of a matrix with that many rows and that much k, packed in 128x4 atoms.

        >>> ScalePlan.of(128, 256, ScaleFormat.named("nvfp4")).tensor_map(0, 300, 1024).dims
        (1024, 3)
        """
        down, along = scale_layout(rows, k, self.layout.format).atoms
        return TensorMap(
            "uint64",
            dims=(along * ATOM_WORDS, down),
            strides_bytes=(along * ATOM_BYTES,),
            box=self.box,
            address=address,
        )


def scale_plans(product: Product, tile: Tile, schedule: Schedule) -> tuple[ScalePlan, ...]:
    """The scale factors of A, then of B, for one block: of a pair half of the rows of the sums, and all their columns.

    Columns come in whole atoms, too: of a tile of 192 two, in whose first one the tile may begin behind 64 columns.
    """
    if product.scales is None:
        return ()
    m, n, k = tile
    m_parts, n_parts = (1, schedule.cta_group) if schedule.swapped else (schedule.cta_group, 1)
    return (
        ScalePlan.of(rounded_up(m // m_parts, SCALED_ROWS), k, product.scales),
        ScalePlan.of(rounded_up(n // n_parts, SCALED_ROWS), k, product.scales),
    )


def has_whole_atoms(product: Product, extent: int, *, of_columns: bool = False) -> bool:
    """Whether rows of a tile are whole atoms of scale factors, or columns halves of them; mma also takes tiles within one atom."""
    step = SCALED_COLUMNS if of_columns and product.in_tensor_memory else SCALED_ROWS
    if product.scales is None or extent % step == 0:
        return True
    return not product.in_tensor_memory and SCALED_ROWS % extent == 0


def largest_tile_k(scale_format: ScaleFormat) -> int:
    """The most k of a tile whose scales fit into one box.

    >>> largest_tile_k(ScaleFormat.named("nvfp4"))
    256
    """
    return _BOX_WORDS // ATOM_WORDS * ATOM_SCALES * scale_format.block
