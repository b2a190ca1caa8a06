"""The tcgen05 descriptors of a whole K loop over a tile.

A step of 48 bytes (k = 96 of 4-bit values, sm_103a) runs over the end of a 128-byte atom; its descriptor names the atom
in which it goes on:

    k bytes    0     48    96   144   192   240   288   336   384        eight steps in three atoms
    step       │  0  │  1  │  2┄┄│  3  │  4  │┄5┄┄│  6  │  7  │
    atom       └────────────128┘└───────────256┘└───────────384┘
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.errors import Violation, printed, raise_all
from tilescope.layout import AtomOrder, Layout, Major
from tilescope.mma.canonical import CanonicalLayout
from tilescope.mma.descriptor_loop import DescriptorLoop, Extents, SmemOperand
from tilescope.mma.instruction import K_STEP_BYTES
from tilescope.mma.operand_descriptor import OperandDescriptor
from tilescope.mma.tcgen05 import Tcgen05Descriptor
from tilescope.mma.tcgen05_kind import MMA_GROUP, tcgen05_for
from tilescope.reading import is_one_of
from tilescope.rule import rule
from tilescope.swizzle import Swizzle, SwizzleName

WIDE_STEP_BYTES = 48
TCGEN05_STEP = rule(
    "tcgen05-step", "A K step of tcgen05 is 32 bytes; on sm_103a, of 4-bit elements K-major 128B, also 48.",
    source='PTX ISA, "Matrix shape" of tcgen05.mma: k = 96', architectures=("sm_103",),
    passing='ts.tcgen05_descriptors((128, 768), "e2m1", k_step_bytes=48)',
    failing='ts.tcgen05_descriptors((128, 256), "e2m1", k_step_bytes=48)',
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tcgen05Loop(DescriptorLoop):
    """The descriptors with which tcgen05 reads an operand tile, indexed [mn_block][k_step].

    >>> loop = tcgen05_descriptors((256, 64), "bf16", swizzle="128B")
    >>> len(loop), len(loop[0]), loop.instruction
    (2, 4, 'tcgen05.mma.kind::f16, m128 k16')
    >>> [hex(descriptor.encode()) for descriptor in loop[1]][:2]
    ['0x4000404000010400', '0x4000404000010402']
    """

    described: ClassVar[type[OperandDescriptor]] = Tcgen05Descriptor
    form: ClassVar[str] = "cta_group::1"  # of the instruction: its row in Tcgen05Kind.shapes
    blocks: ClassVar[int] = 1  # that share m and n of the instruction

    k_step_bytes: int = K_STEP_BYTES

    def __post_init__(self) -> None:
        raise_all(_wide_step_problems(self.k_step_bytes, self._canonical(), self.layout.shape[-1]))
        DescriptorLoop.__post_init__(self)

    @classmethod
    def extents(cls, data_type: DataType) -> Extents:
        """What one block holds of the instruction's m and n, and 32 bytes of k."""
        kind = tcgen05_for(data_type)
        shapes = next((row for row in kind.shapes() if row.form == cls.form), kind.shapes()[0])
        return Extents(tuple(m // cls.blocks for m in shapes.m), tuple(n // cls.blocks for n in shapes.n), kind.k)

    def _descriptor(self, mn: int, k: int) -> OperandDescriptor:
        if self.k_step_bytes == K_STEP_BYTES:
            return DescriptorLoop._descriptor(self, mn, k)
        layout, atom_k = self.layout, self.canonical.atom[1]
        following = min(k // atom_k + 1, layout.shape[1] // atom_k - 1) * atom_k  # the last step needs none
        return Tcgen05Descriptor(
            layout.logical(mn, k), leading_bytes=layout.logical(mn, following), stride_bytes=self.stride_bytes,
            swizzle=layout.swizzle, leading_is_address=True,
        )  # fmt: skip

    def addresses(self) -> npt.NDArray[np.int64]:
        """Physical byte address at which each element (mn, k) of the tile is read, as an (mn, k) array."""
        if self.k_step_bytes == K_STEP_BYTES:
            return DescriptorLoop.addresses(self)
        layout = self.canonical  # each step names an atom of its own: one by one
        return np.concatenate([
            np.concatenate([
                step.addresses(layout.major, self.block_mn, self.k_per_step, layout.element_bits) for step in block
            ], axis=1)
            for block in self.descriptors
        ])  # fmt: skip

    @property
    def k_per_step(self) -> int:
        """Elements along k that one instruction takes: 32 bytes of them (48 where asked for)."""
        return self.k_step_bytes * 8 // self.data_type.smem_bits

    @property
    def instruction(self) -> str:
        """The instruction that reads these descriptors."""
        form = "" if self.form == Tcgen05Loop.form else f".{self.form}"
        extent = f"{'m' if self.operand == 'A' else 'n'}{self.block_mn * self.blocks}"
        return f"tcgen05.mma{form}.kind::{tcgen05_for(self.data_type).name}, {extent} k{self.k_per_step}"


@dataclass(frozen=True, slots=True)
class Tcgen05PairLoop(Tcgen05Loop):
    """The descriptors of one block of a pair (cta_group::2): it holds half of A's rows, and half of B's columns.

    >>> loop = tcgen05_descriptors((128, 64), "bf16", swizzle="128B", cta_group=2)
    >>> len(loop), loop.block_mn, loop.instruction
    (1, 128, 'tcgen05.mma.cta_group::2.kind::f16, m256 k16')
    """

    form: ClassVar[str] = "cta_group::2"
    blocks: ClassVar[int] = 2
    _extends_a_kind: ClassVar[bool] = True  # of one block alone, the loop is a value of its own


@dataclass(frozen=True, slots=True)
class Tcgen05WsLoop(Tcgen05Loop):
    """The descriptors of the .ws instruction, which also has m = 32."""

    form: ClassVar[str] = "cta_group::1.ws"
    _extends_a_kind: ClassVar[bool] = True


def tcgen05_descriptors(
    tile: tuple[int, int] | Layout, data_type: Any, *, swizzle: SwizzleName | Swizzle = "128B", major: Major = "K",
    atom_order: AtomOrder = "column", operand: SmemOperand = "A", smem_address: int = 0, k_step_bytes: int = K_STEP_BYTES,
    cta_group: int = 1,
) -> Tcgen05Loop:  # fmt: skip
    """The descriptors with which tcgen05 reads a tile of (mn, k) elements, for every block of mn and K step.

    A is read in blocks of 128 rows, or 64; B in the largest n that one instruction has and that divides the tile. The
    blocks are those of cta_group::1; with cta_group=2 the tile is what one block of the pair holds, half of A's rows or of B's
    columns. `k_step_bytes` is 48 for the k = 96 instructions of sm_103a. A `Layout` in place of the tile says its swizzle,
    majorness, order and address itself.

    >>> loop = tcgen05_descriptors((128, 8), "tf32", major="MN", swizzle="128B_ATOM_32B", smem_address=0x400)
    >>> loop.leading_bytes, loop.stride_bytes, hex(loop[0][0].encode())
    (1024, 512, '0x2000402000400040')
    >>> wide = tcgen05_descriptors((128, 768), "e2m1", swizzle="128B", k_step_bytes=48)
    >>> [(hex(step.start_address), hex(step.leading_bytes)) for step in wide[0]][1:4]
    [('0x30', '0x4000'), ('0x60', '0x4000'), ('0x4010', '0x8000')]
    """
    if not is_one_of(cta_group, (1, 2)):
        raise MMA_GROUP.error("cta_group", printed(cta_group), "one block multiplies, or a pair", "Use 1 or 2.")
    loop = Tcgen05PairLoop if cta_group == 2 else Tcgen05Loop
    return loop.of(tile, data_type, swizzle, major, atom_order, operand, smem_address, k_step_bytes=k_step_bytes)


def _wide_step_problems(step_bytes: Any, canonical: CanonicalLayout, k: int) -> list[Violation]:
    if is_one_of(step_bytes, (K_STEP_BYTES,)):
        return []
    layout = canonical.major, canonical.swizzle.name, canonical.element_bits
    wide = is_one_of(step_bytes, (WIDE_STEP_BYTES,)) and layout == ("K", "128B", 4)
    step_k = WIDE_STEP_BYTES * 2
    if wide and k % step_k == 0:
        return []
    return [TCGEN05_STEP.violation(
        "k_step_bytes",
        f"k_step_bytes = {printed(step_bytes)} with {canonical.element_bits}-bit elements, {canonical.major}-major "
        f"{canonical.mode}, k = {k}",
        f"steps are 32 bytes, or 48 of 4-bit elements, K-major 128B, with k a multiple of {step_k} (sm_103a)",
        f"Use {K_STEP_BYTES}.", {"k_step_bytes": K_STEP_BYTES}, k=k, element_bits=canonical.element_bits,
    )]  # fmt: skip
