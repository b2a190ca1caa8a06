"""Scale factors of a matrix on their way: atoms in global and shared memory, the copies, the words in tensor memory.

    global, shared memory                      tcgen05.cp.32x128b.warpx4           tensor memory
    atom of 128 rows x 4 scales (512 bytes)    ──────────────────────────▶         4 columns, in all four quarters
    row l: words of rows l, 32+l, 64+l, 96+l   row l goes to lanes l + 32 q        lane l: word of row 32 c + l in column c

The scale of (row i, block b) lies at byte

    (i/128 * atoms along k + b/4) * 512 + (i mod 32) * 16 + (i/32 mod 4) * 4 + b mod 4

and then in lanes i mod 32 + 32 q, column b/4 * W + i/32, byte b mod 4, where W, the columns from one word of k to the next, is
4 for 128 rows. An instruction takes the column of its word as an operand; the id in its descriptor picks the byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tilescope.errors import RuleError, argument_range, ceil_div, printed
from tilescope.layout import Modes
from tilescope.mma.descriptor import Tcgen05Descriptor
from tilescope.mma.scale_format import ScaleFormat, ScaleLanes, ScaleOperand, scale_lanes
from tilescope.mma.scale_packing import ATOM_BYTES, ATOM_ROWS, ATOM_SCALES, Array, atom_grid, pack_scales
from tilescope.mma.tcgen05_kind import MMA_GROUP, Documented, blackwell_rule
from tilescope.mma.tmem_address import CELL_BITS, LANE_BITS, QUARTER_LANES, QUARTERS, TmemAddress
from tilescope.mma.tmem_layout import TmemLayout
from tilescope.reading import integer, integer_array, is_one_of, known_name, plain_int
from tilescope.rule import ARGUMENT_RANGE
from tilescope.swizzle.mode import SMEM_ALIGNMENT
from tilescope.value import Value, row_field

_PAIR_B = 'ts.scale_layout({rows}, 256, "nvfp4").copies("B", m=128, cta_group=2)'
# fmt: off
SCALE_K = blackwell_rule(
    "scale-k", "An instruction takes the k of its kind, and begins at a multiple of it.", "tcgen05.mma: Block scaling",
    'ts.scale_layout(128, 256, "nvfp4").steps(64)', 'ts.scale_layout(128, 256, "nvfp4").steps(32)',
)
SCALE_ROWS = blackwell_rule(
    "scale-rows", "For B of a pair with m = 128, each half of n is a multiple of 32 columns.",
    "CuTe, ScaleFactorDuplicated2by2 of mma_traits_sm100", _PAIR_B.format(rows=64), _PAIR_B.format(rows=48),
)
# fmt: on
_ATOM_COLUMNS = 4  # of tensor memory
_ROW_GROUP_BYTES = 128  # 8 rows of 16 bytes: the stride of the copy's descriptor


class ScaleStep(NamedTuple):
    """What one instruction along k needs: its first k, the column of its word (counted from the first), the id, its blocks."""

    k: int
    column: int
    scale_id: int
    scales: tuple[int, ...]  # blocks of the row


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

    rows: int
    k: int
    format: ScaleFormat = row_field(ScaleFormat.named)

    @property
    def blocks(self) -> int:
        """Scales of a row."""
        return ceil_div(self.k, self.format.block)

    @property
    def atoms(self) -> tuple[int, int]:
        """Atoms along the rows and along k."""
        return atom_grid(self.rows, self.blocks)

    @property
    def size_bytes(self) -> int:
        """Bytes in global or shared memory, padding included.

        >>> scale_layout(200, 160, "nvfp4").size_bytes, scale_layout(200, 160, "nvfp4").padding_bytes
        (3072, 1072)
        """
        return self.atoms[0] * self.atoms[1] * ATOM_BYTES

    @property
    def padding_bytes(self) -> int:
        """Bytes that no scale of the matrix fills; they are zero."""
        return self.size_bytes - self.rows * self.blocks

    @property
    def modes(self) -> Modes:
        """(row, block) → byte, over whole atoms, as CuTe writes it.

        >>> print(scale_layout(256, 256, "nvfp4").modes)
        ((32,4,2),(4,4)):((16,4,2048),(1,512))
        """
        down, along = self.atoms
        return Modes(((32, 4, down), (4, along)), ((16, 4, along * ATOM_BYTES), (1, ATOM_BYTES)))

    def offset(self, row: Any, block: Any) -> Any:
        """The byte of the scale of (row, block); arrays broadcast.

        >>> scale_layout(512, 128, "nvfp4").offset(300, 6)
        2758
        """
        for name, index, extent in (("row", row, self.rows), ("block", block, self.blocks)):
            array = integer_array(index)
            if array is None or (array.size and (array.min() < 0 or array.max() >= extent)):
                limit = f"{name}s 0 to {extent - 1}"
                raise RuleError([argument_range(name, index, limit, f"Use {extent - 1}, the last.")])
        coord: Any = (index if isinstance(index, int) else np.asarray(index, np.int64) for index in (row, block))
        try:
            return self.modes.at(*coord)
        except ValueError:  # shapes that do not meet
            found = f"arrays of shapes {np.shape(row)} and {np.shape(block)}"
            fix = "Use row[:, None] and block[None, :]."
            values = {"rows": np.shape(row), "blocks": np.shape(block)}
            raise ARGUMENT_RANGE.error("row, block", found, "they broadcast", fix, **values) from None

    def locate(self, offset: int) -> tuple[int, int] | None:
        """The (row, block) whose scale lies at a byte; None for padding and beyond.

        >>> scale_layout(128, 256, "nvfp4").locate(597)
        (37, 5)
        """
        place = plain_int(offset)
        if not isinstance(place, int) or not 0 <= place < self.size_bytes:
            return None
        atom, within = divmod(place, ATOM_BYTES)
        down, along = divmod(atom, self.atoms[1])
        row = down * ATOM_ROWS + within // 16 + within // 4 % 4 * 32
        block = along * ATOM_SCALES + within % 4
        return (row, block) if row < self.rows and block < self.blocks else None

    @property
    def word_columns(self) -> int:
        """Columns of tensor memory from one word of k to the next: 4 for 128 rows (a convention)."""
        return _ATOM_COLUMNS * self.atoms[0]

    def steps(self, k: int | None = None) -> tuple[ScaleStep, ...]:
        """What the instructions along k need; `k` is that of the instruction: 96 for the wide ones of sm_103a.

        >>> [(step.column, step.scale_id, step.scales) for step in scale_layout(128, 128, "mxfp8").steps()]
        [(0, 0, (0,)), (0, 1, (1,)), (0, 2, (2,)), (0, 3, (3,))]
        >>> [(step.column, step.scale_id) for step in scale_layout(128, 384, "mxfp4").steps(96)]  # 3 scales each
        [(0, 0), (0, 3), (4, 2), (8, 1)]
        """
        step_k = self.format.k_steps[0] if k is None else k
        if not is_one_of(step_k, self.format.k_steps):
            limit = f"an instruction of kind {self.format.mma_kind} takes {' or '.join(map(str, self.format.k_steps))}"
            raise SCALE_K.error("k", printed(k), limit, f"Use {self.format.k_steps[0]}.", k=plain_int(k))
        taken, steps = self.format.per_instruction(step_k), []
        for first in range(0, self.k, step_k):
            block = first // self.format.block
            word, scale_id = divmod(block, ATOM_SCALES)
            steps.append(ScaleStep(first, word * self.word_columns, scale_id, tuple(range(block, block + taken))))
        return tuple(steps)

    def tensor_memory(
        self, operand: ScaleOperand = "A", *, m: int = 128, cta_group: int = 1, address: Any = 0
    ) -> TmemLayout:
        """The scales in tensor memory: (row, block, copy) → bit address.

        Each scale lies in all four quarters. Only for B of a pair with m = 128 (layout B) do two quarters have the first
        half of the columns, and two the second.

        >>> scale_layout(128, 256, "nvfp4").tensor_memory("A").place(77, 5)
        TmemPlace(cta=0, lanes=(13, 45, 77, 109), column=6, bit=8)
        >>> scale_layout(256, 256, "nvfp4").tensor_memory("B", m=128, cta_group=2).place(200, 0)
        TmemPlace(cta=0, lanes=(72, 104), column=2, bit=0)
        """
        halved = self._is_halved(operand, m, cta_group)
        groups = ceil_div(self.rows // (1 + halved), QUARTER_LANES)
        row: tuple[Any, Any] = (QUARTER_LANES, groups), (LANE_BITS, CELL_BITS)
        if halved:
            row = (*row[0], 2), (*row[1], 2 * QUARTER_LANES * LANE_BITS)
        block = (ATOM_SCALES, self.atoms[1]), (8, self.word_columns * CELL_BITS)
        copies = 2 if halved else QUARTERS
        modes = Modes((row[0], block[0], copies), (row[1], block[1], QUARTER_LANES * LANE_BITS))
        return TmemLayout.of(modes, 8, address, operand=f"SF{operand}", matrix=(self.rows, self.blocks))

    def copies(
        self, operand: ScaleOperand = "A", *, m: int = 128, cta_group: int = 1, smem_address: int = 0, address: Any = 0
    ) -> tuple[ScaleCopy, ...]:
        """The tcgen05.cp that bring the atoms from shared memory: one for each, into 4 columns.

        For B of a pair with m = 128 one copy brings two atoms, of which the first goes to quarters 0 and 1, the second to 2 and 3.
        They lie behind each other in shared memory, for each word of k: those of the first half of n, then of the second.

        >>> copy = scale_layout(128, 64, "nvfp4").copies(smem_address=0x2000)[0]
        >>> copy.shape, hex(copy.descriptor.encode())
        ('32x128b.warpx4', '0x400800000200')
        """
        base, (down, along) = TmemAddress.of(address), self.atoms
        first = integer("smem_address", smem_address, least=0)
        if first % 16:
            found, limit = f"smem_address = {smem_address}", "atoms start at a multiple of 16 bytes"
            fix = f"Use {first // 16 * 16:#x}."
            raise SMEM_ALIGNMENT.error("smem_address", found, limit, fix, smem_address=first)
        halved = self._is_halved(operand, m, cta_group)
        shape = "64x128b.warpx2::01_23" if halved else "32x128b.warpx4"
        copies = []
        for word in range(along):
            for row in range(1 if halved else down):
                start = first + (2 * word if halved else row * along + word) * ATOM_BYTES
                source = Tcgen05Descriptor(start, leading_bytes=0, stride_bytes=_ROW_GROUP_BYTES, swizzle="none")
                target = base.moved(columns=word * self.word_columns + row * _ATOM_COLUMNS)
                copies.append(ScaleCopy(shape, source, target))
        return tuple(copies)

    def mma_lanes(self, operand: ScaleOperand, *, thread_id: int = 0, byte_id: int = 0) -> ScaleLanes:
        """The lanes whose bytes a block-scaled mma.sync (sm_120) takes scale factors of this format from.

        >>> scale_layout(16, 64, "nvfp4").mma_lanes("A", thread_id=1).lane(11)
        15
        """
        return scale_lanes(self.format, operand, thread_id=thread_id, byte_id=byte_id)

    def in_shared_memory(self, scales: Any, operand: ScaleOperand = "A", *, m: int = 128, cta_group: int = 1) -> Array:
        """The bytes that `copies` reads, for scales (rows, blocks): their atoms, or those of the two halves of n in turn."""
        if not self._is_halved(operand, m, cta_group):
            return pack_scales(scales).view(np.uint8)
        halves = np.stack([pack_scales(half) for half in np.split(np.asarray(scales), 2)])
        return np.ascontiguousarray(halves.view(np.uint8).reshape(2, -1, ATOM_BYTES).swapaxes(0, 1)).reshape(-1)

    def _is_halved(self, operand: Any, m: Any, cta_group: Any) -> bool:
        """Whether the scales are those of B in a pair with m = 128; refuses what is no operand, m, group or whole half."""
        known_name("operand", operand, ("A", "B"), "operand with scale factors")
        if not is_one_of(cta_group, (1, 2)) or not is_one_of(m, (128,) if cta_group == 1 else (128, 256)):
            found = f"m {printed(m)}, cta_group {printed(cta_group)}"
            limit = "block-scaled kinds have m 128, a pair also 256"
            values = {"m": plain_int(m), "cta_group": plain_int(cta_group)}
            raise MMA_GROUP.error("m, cta_group", found, limit, "Use m=128 with cta_group=1.", **values)
        halved = operand == "B" and bool(m == 128) and bool(cta_group == 2)
        if halved and (self.rows % (2 * QUARTER_LANES) or self.rows > 2 * ATOM_ROWS):
            limit = f"each half of n is a multiple of {QUARTER_LANES} columns, as the documents have it, and at most {ATOM_ROWS}"
            found = f"B of {self.rows} columns in a pair with m = 128"
            raise SCALE_ROWS.error("rows", found, limit, "Use 64, 128, 192 or 256.", rows=self.rows, m=128)
        return halved


def scale_layout(rows: int, k: int, kind: Any) -> ScaleLayout:
    """Where the scale factors of a matrix of `rows` (of A, or columns of B) by `k` elements lie.

    `kind` is mxfp8, mxfp4 or nvfp4, or a kind of tcgen05.mma.

    >>> scales = scale_layout(256, 256, "mxfp8")
    >>> scales.format.block, scales.blocks, scales.offset(200, 6)
    (32, 8, 1674)
    """
    return ScaleLayout(integer("rows", rows, 1, 1 << 32), integer("k", k, 1, 1 << 32), ScaleFormat.named(kind))
