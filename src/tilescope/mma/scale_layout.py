"""Block scaling: which block of k shares a scale factor, and how the factors come to the tensor core.

Four scales of a row share a 32-bit word; the id in the instruction descriptor selects the byte of the first one.
Instructions of k = 96 (sm_103a, 4-bit kinds) use 3 or 6 scales, which continue in the next word. A sparse instruction
covers twice the k with as many scales: its block is twice as long.

    global, shared memory                      tcgen05.cp.32x128b.warpx4           tensor memory
    atom of 128 rows x 4 scales (512 bytes)    ──────────────────────────▶         4 columns, in all four quarters
    row l: words of rows l, 32+l, 64+l, 96+l   row l goes to lanes l + 32 q       lane l, column c: word of row 32 c + l

The scale of (row i, block b) is at byte

    (i/128 * atoms along k + b/4) * 512 + (i mod 32) * 16 + (i/32 mod 4) * 4 + b mod 4

and then in lanes i mod 32 + 32 q, column b/4 * W + i/32, byte b mod 4, where W, the columns from one word of k to
the next, is 4 for 128 rows. An instruction takes the column of its word as an operand; the id in its descriptor
picks the byte.

The atom of 8 rows x 4 scales (TensorRT-LLM, FlashInfer) is a layout of global memory for few rows:

    (i/8 * atoms along k + b/4) * 32 + (i mod 8) * 4 + b mod 4

We found no documentation of its copy to tensor memory, so `steps` and `copies` refuse it.

B of a pair with m = 128 (layout B of D) has its own place: with h = n/2 column i is in lanes i mod 32 + 64 (i/h)
and 32 further on, column b/4 * 4 + (i mod h)/32. So the first half of n is in quarters 0 and 1, the second in 2 and
3, and W is 4 for up to 256 columns (CuTe's tmem_sf_frg for 2 x 2 data paths, CUTLASS and JAX).

The block-scaled mma.sync (sm_120) takes them from registers: see scale_lanes.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from tilescope.arithmetic import ceil_div
from tilescope.layout import Modes
from tilescope.layout.checks import checked_indices
from tilescope.mma.operand_descriptor import Tcgen05Descriptor
from tilescope.mma.scale_format import ScaleFormat
from tilescope.mma.scale_lanes import SCALED_EXTENTS, SCALED_OPERAND, ScaleLanes, ScaleOperand
from tilescope.mma.scale_packing import (
    ATOM_BYTES,
    ATOM_ROWS,
    ATOM_SCALES,
    SCALE_ATOM,
    Array,
    ScaleAtomName,
    atom_grid,
    pack_scales,
    scale_atom,
)
from tilescope.mma.tcgen05_kind import BLACKWELL, MMA_GROUP, Documented
from tilescope.mma.tmem_address import CELL_BITS, LANE_BITS, QUARTER_LANES, QUARTERS, TmemAddress
from tilescope.mma.tmem_layout import TmemLayout
from tilescope.reading import integer, is_one_of, known_name, plain_int
from tilescope.rule import rule
from tilescope.sentence import format_value
from tilescope.swizzle import CHUNK_BYTES, SMEM_ALIGNMENT
from tilescope.value import Value, row_field

SCALE_K = rule(
    "scale-k",
    "An instruction covers the k of its kind, and begins at a multiple of it.",
    argument="k",
    found="k = {asked}",
    limit="an instruction of kind {kind} takes {steps: or }",
    fix="Use {first}.",
    source="PTX ISA, tcgen05.mma: Block scaling",
    architectures=BLACKWELL,
    passing='ts.scale_layout(128, 256, "nvfp4").steps(64)',
    failing='ts.scale_layout(128, 256, "nvfp4").steps(32)',
)
SCALE_ROWS = rule(
    "scale-rows",
    "For B of a pair with m = 128, each half of n is a multiple of 32 columns.",
    argument="rows",
    found="B of {rows} columns in a pair with m = {m}",
    limit="each half of n is a multiple of {multiple} columns, as documented, and at most {most}",
    fix="Use 64, 128, 192 or 256.",
    source="CuTe, ScaleFactorDuplicated2by2 of mma_traits_sm100",
    architectures=BLACKWELL,
    passing='ts.scale_layout(64, 256, "nvfp4").copies("B", m=128, cta_group=2)',
    failing='ts.scale_layout(48, 256, "nvfp4").copies("B", m=128, cta_group=2)',
)
SCALE_ATOM_COPY = rule(
    "scale-atom-copy",
    "tcgen05.cp and tcgen05.mma support only scale factors in 128x4 atoms.",
    argument="atom",
    found="scale factors in {atom} atoms",
    limit="we found no documentation of how {atom} atoms are copied to tensor memory",
    fix='Repack them: ts.pack_scales(ts.unpack_scales(packed, shape, atom="{atom}")).',
    source="PTX ISA, tcgen05.mma: Block scaling; TensorRT-LLM and FlashInfer for the 8x4 layout",
    architectures=BLACKWELL,
    passing='ts.scale_layout(8, 256, "nvfp4").steps()',
    failing='ts.scale_layout(8, 256, "nvfp4", atom="8x4").steps()',
)
SCALED_GROUP = MMA_GROUP.worded(
    argument="m, cta_group",
    found="m {asked_m}, cta_group {asked_group}",
    limit="a block has m 128, a pair also 256",
    fix="Use {m:=128} with {cta_group:=1}.",
)
ATOM_ALIGNMENT = SMEM_ALIGNMENT.worded(
    argument="smem_address",
    found="smem_address = {smem_address}",
    limit="atoms start at a multiple of {multiple} bytes",
    fix="Use {below:#x}.",
)
Indices = npt.NDArray[np.integer]
# shapes of tcgen05.cp
ATOM_COPY = "32x128b.warpx4"
PAIR_B_COPY = "64x128b.warpx2::01_23"  # two atoms, half of n each
ATOM_STRIDE_BYTES = 8 * CHUNK_BYTES  # of a descriptor: 8 rows x 16 bytes
_ATOM_COLUMNS = 4  # of tensor memory


class ScaleStep(NamedTuple):
    """The location of the scale factors for one instruction along k."""

    k: int  # the first that it multiplies
    column: int  # of tensor memory: the column of its word, counted from the first word
    scale_id: int  # the byte of that word with which it begins
    scales: tuple[int, ...]  # blocks of a row that it scales


class ScaleCopy(NamedTuple):
    """One tcgen05.cp: what it reads and where it writes."""

    shape: str
    descriptor: Tcgen05Descriptor
    address: TmemAddress


@dataclass(frozen=True, slots=True)
class ScaleLayout(Documented, Value):
    """The scale factors of `rows` rows (of A, or columns of B) and `k` elements.

    >>> scales = scale_layout(128, 256, "nvfp4")
    >>> scales.blocks, scales.atoms, scales.size_bytes, scales.offset(37, 5)
    (16, (1, 4), 2048, 597)
    >>> [(step.k, step.column, step.scale_id) for step in scales.steps()][:3]
    [(0, 0, 0), (64, 4, 0), (128, 8, 0)]
    """

    names: ClassVar[tuple[str, str]] = ("row", "block")

    rows: int
    k: int
    format: ScaleFormat = row_field(ScaleFormat.named)
    atom: ScaleAtomName = "128x4"  # how factors of a block of rows are stored: 128x4, or 8x4 for few rows

    @property
    def blocks(self) -> int:
        """Scales of a row."""
        return ceil_div(self.k, self.format.block)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and blocks of a row."""
        return self.rows, self.blocks

    @property
    def atoms(self) -> tuple[int, int]:
        """Atoms along the rows and along k."""
        return atom_grid(*self.shape, SCALE_ATOM[self.atom].rows)

    @property
    def size_bytes(self) -> int:
        """Bytes in global or shared memory, padding included.

        >>> scale_layout(200, 160, "nvfp4").size_bytes, scale_layout(200, 160, "nvfp4").padding_bytes
        (3072, 1072)
        """
        return self.atoms[0] * self.atoms[1] * SCALE_ATOM[self.atom].size_bytes

    @property
    def padding_bytes(self) -> int:
        """Bytes that no scale of the matrix fills; they are zero."""
        return self.size_bytes - self.rows * self.blocks

    @property
    def modes(self) -> Modes:
        """(row, block) → byte, over whole atoms, as CuTe writes it.

        >>> print(scale_layout(256, 256, "nvfp4").modes)
        ((32,4,2),(4,4)):((16,4,2048),(1,512))
        >>> print(scale_layout(16, 256, "nvfp4", atom="8x4").modes)
        ((8,2),(4,4)):((4,128),(1,32))
        """
        atom = SCALE_ATOM[self.atom]
        down, along = self.atoms
        extents = tuple(extent for extent, _ in atom.row_digits)
        steps = tuple(step_bytes for _, step_bytes in atom.row_digits)
        return Modes(
            ((*extents, down), (ATOM_SCALES, along)),
            ((*steps, along * atom.size_bytes), (1, atom.size_bytes)),
        )

    @overload
    def offset(self, row: int, block: int) -> int: ...
    @overload
    def offset(self, row: Indices, block: Indices | int) -> npt.NDArray[np.int64]: ...
    @overload
    def offset(self, row: int, block: Indices) -> npt.NDArray[np.int64]: ...
    def offset(self, row: Indices | int, block: Indices | int) -> int | npt.NDArray[np.int64]:
        """The byte of the scale of (row, block); arrays broadcast.

        >>> scale_layout(512, 128, "nvfp4").offset(300, 6)
        2758
        """
        offset: int | npt.NDArray[np.int64] = self.modes.at(*checked_indices(self, (row, block)))
        return offset

    def locate(self, offset: int) -> tuple[int, int] | None:
        """The (row, block) of the scale at a byte; None for padding and beyond.

        >>> scale_layout(128, 256, "nvfp4").locate(597)
        (37, 5)
        """
        place = plain_int(offset)
        if place is None or not 0 <= place < self.size_bytes:
            return None
        kind = SCALE_ATOM[self.atom]
        atom, within = divmod(place, kind.size_bytes)
        down, along = divmod(atom, self.atoms[1])
        row = down * kind.rows + kind.row(within)
        block = along * ATOM_SCALES + within % 4
        return (row, block) if row < self.rows and block < self.blocks else None

    @property
    def word_columns(self) -> int:
        """Columns from one word of k to the next, of A and of most B: 4 for 128 rows (a convention)."""
        self._refuse_small_atoms()
        return _ATOM_COLUMNS * self.atoms[0]

    def columns_per_word(self, operand: ScaleOperand = "A", *, m: int = 128, cta_group: int = 1) -> int:
        """Columns from one word of k to the next: `word_columns`, but 4 for B of a pair with m = 128, however wide.

        There the halves of n are in different quarters.

        >>> scales = scale_layout(256, 1024, "nvfp4")
        >>> scales.columns_per_word("B"), scales.columns_per_word("B", m=128, cta_group=2)
        (8, 4)
        """
        return _ATOM_COLUMNS if self._halves(operand, m, cta_group) == 2 else self.word_columns

    def steps(
        self, k: int | None = None, operand: ScaleOperand = "A", *, m: int = 128, cta_group: int = 1
    ) -> tuple[ScaleStep, ...]:
        """The scales that the instructions along k need; `k` is that of the instruction: 96 for the wide ones of sm_103a.

        `operand`, `m` and `cta_group` are as in `tensor_memory`.

        >>> [(step.column, step.scale_id, step.scales) for step in scale_layout(128, 128, "mxfp8").steps()]
        [(0, 0, (0,)), (0, 1, (1,)), (0, 2, (2,)), (0, 3, (3,))]
        >>> [(step.column, step.scale_id) for step in scale_layout(128, 384, "mxfp4").steps(96)]  # 3 scales each
        [(0, 0), (0, 3), (4, 2), (8, 1)]
        """
        k_steps = self.format.k_steps
        step_k = k_steps[0] if k is None else k
        if not is_one_of(step_k, k_steps):
            raise SCALE_K.error(
                k=plain_int(k), asked=format_value(k), kind=self.format.mma_kind, steps=k_steps, first=k_steps[0]
            )
        block = self.format.block
        columns = self.columns_per_word(operand, m=m, cta_group=cta_group)
        steps = []
        for first_k in range(0, self.k, step_k):
            first_block = first_k // block
            word, scale_id = divmod(first_block, ATOM_SCALES)
            scales = tuple(range(first_block, first_block + step_k // block))
            steps.append(ScaleStep(first_k, word * columns, scale_id, scales))
        return tuple(steps)

    def tensor_memory(
        self, operand: ScaleOperand = "A", *, m: int = 128, cta_group: int = 1, address: TmemAddress | int = 0
    ) -> TmemLayout:
        """The scales in tensor memory of one block: (row, block, copy) → bit address.

        `m` is the instruction's: for a pair the pair's. Each scale is in all four quarters. Only for B of a pair with m
        = 128 (layout B), two quarters have the first half of the columns, and two the second, so that n = 256 takes 4
        columns for each word of k.

        >>> scale_layout(128, 256, "nvfp4").tensor_memory("A").place(77, 5)
        TmemPlace(cta=0, lanes=(13, 45, 77, 109), column=6, bit=8)
        >>> scale_layout(256, 256, "nvfp4").tensor_memory("B", m=128, cta_group=2).place(200, 0)
        TmemPlace(cta=0, lanes=(72, 104), column=2, bit=0)
        >>> scale_layout(256, 1024, "nvfp4").tensor_memory("B", m=128, cta_group=2).columns
        64
        """
        halves = self._halves(operand, m, cta_group)
        groups = ceil_div(self.rows // halves, QUARTER_LANES)
        quarter = QUARTER_LANES * LANE_BITS
        rows = [(QUARTER_LANES, LANE_BITS), (groups, CELL_BITS)]
        if halves == 2:
            rows.append((halves, 2 * quarter))
        word_columns = self.columns_per_word(operand, m=m, cta_group=cta_group)
        blocks = ((ATOM_SCALES, 8), (self.atoms[1], word_columns * CELL_BITS))
        copies = ((QUARTERS // halves, quarter),)
        modes = Modes.of_indices((tuple(rows), blocks, copies))
        return TmemLayout.of(modes, 8, address, operand="SFA" if operand == "A" else "SFB", matrix=self.shape)

    def copies(
        self,
        operand: ScaleOperand = "A",
        *,
        m: int = 128,
        cta_group: int = 1,
        smem_address: int = 0,
        address: TmemAddress | int = 0,
    ) -> tuple[ScaleCopy, ...]:
        """The tcgen05.cp instructions that copy the atoms from shared memory: one for every atom, into 4 columns.

        For B of a pair with m = 128 one copy transfers two atoms: that of the first half of n goes to quarters 0 and 1,
        that of the second half to quarters 2 and 3. In shared memory the two follow one another, for each word of k.

        >>> copy = scale_layout(128, 64, "nvfp4").copies(smem_address=0x2000)[0]
        >>> copy.shape, hex(copy.descriptor.encode())
        ('32x128b.warpx4', '0x400800000200')
        """
        base = TmemAddress.of(address)
        down, along = self.atoms
        first = integer("smem_address", smem_address, least=0)
        if first % CHUNK_BYTES:
            below = first // CHUNK_BYTES * CHUNK_BYTES
            raise ATOM_ALIGNMENT.error(smem_address=first, multiple=CHUNK_BYTES, below=below)
        word_columns = self.columns_per_word(operand, m=m, cta_group=cta_group)
        in_halves = self._halves(operand, m, cta_group) == 2
        copies = []
        for word in range(along):
            # an atom of every 128 rows; for a pair's B one copy transfers the two atoms of this word
            atoms = [2 * word] if in_halves else [row * along + word for row in range(down)]
            for row, atom in enumerate(atoms):
                start = first + atom * ATOM_BYTES
                descriptor = Tcgen05Descriptor(start, leading_bytes=0, stride_bytes=ATOM_STRIDE_BYTES, swizzle="none")
                place = base.moved(columns=word * word_columns + row * _ATOM_COLUMNS)
                copies.append(ScaleCopy(PAIR_B_COPY if in_halves else ATOM_COPY, descriptor, place))
        return tuple(copies)

    def mma_lanes(self, operand: ScaleOperand, *, thread_id: int = 0, byte_id: int = 0) -> ScaleLanes:
        """The lanes whose bytes a block-scaled mma.sync (sm_120) takes scale factors of this format from.

        >>> scale_layout(16, 64, "nvfp4").mma_lanes("A", thread_id=1).lane(11)
        15
        """
        return ScaleLanes(self.format, operand, thread_id, byte_id)

    def in_shared_memory(
        self, scales: npt.ArrayLike, operand: ScaleOperand = "A", *, m: int = 128, cta_group: int = 1
    ) -> Array:
        """The bytes that `copies` reads, for scales (rows, blocks): the atoms, or those of both halves of n in turn."""
        halves = np.split(np.asarray(scales), self._halves(operand, m, cta_group))
        atoms = np.stack([pack_scales(half).view(np.uint8).reshape(-1, ATOM_BYTES) for half in halves], axis=1)
        return atoms.reshape(-1)

    def _refuse_small_atoms(self) -> None:
        """Refuse 8x4 atoms: their copy to tensor memory is not documented."""
        if self.atom != "128x4":
            raise SCALE_ATOM_COPY.error(atom=self.atom)

    def _halves(self, operand: object, m: object, cta_group: object) -> int:
        """Parts of n in different quarters: 2 for B of a pair with m = 128, else 1.

        Refuses what no instruction takes.
        """
        self._refuse_small_atoms()
        known_name("operand", operand, SCALED_EXTENTS, SCALED_OPERAND)
        if not is_one_of(cta_group, (1, 2)) or not is_one_of(m, (128,) if cta_group == 1 else (128, 256)):
            raise SCALED_GROUP.error(
                m=plain_int(m),
                cta_group=plain_int(cta_group),
                asked_m=format_value(m),
                asked_group=format_value(cta_group),
            )
        if (operand, m, cta_group) != ("B", 128, 2):
            return 1
        if self.rows % (2 * QUARTER_LANES) or self.rows > 2 * ATOM_ROWS:
            raise SCALE_ROWS.error(rows=self.rows, m=128, multiple=QUARTER_LANES, most=ATOM_ROWS)
        return 2


def scale_layout(rows: int, k: int, kind: Any, *, atom: ScaleAtomName = "128x4") -> ScaleLayout:
    """Where the scale factors of a matrix of `rows` (of A, or columns of B) by `k` elements are stored.

    `kind` is mxfp8, mxfp4 or nvfp4, or a kind of tcgen05.mma; `atom` the layout that they have in memory: "128x4", or
    "8x4" as TensorRT-LLM's and FlashInfer's kernels for few rows take them.

    >>> scales = scale_layout(256, 256, "mxfp8")
    >>> scales.format.block, scales.blocks, scales.offset(200, 6)
    (32, 8, 1674)
    >>> scale_layout(8, 256, "nvfp4", atom="8x4").size_bytes, scale_layout(8, 256, "nvfp4").size_bytes
    (128, 2048)
    """
    scale_atom(atom)
    return ScaleLayout(integer("rows", rows, 1, 1 << 32), integer("k", k, 1, 1 << 32), ScaleFormat.named(kind), atom)
