"""The descriptors that read a whole tile: one per block of mn and per K step of the loop.

One dense instruction reads 32 bytes along k. Inside a swizzled K-major atom the next step starts 32 bytes further; at
the atom's end it jumps to the next atom. A 64 x 128 bf16 tile with 128B atoms in column order:

    k            0    16    32    48  │  64    80    96   112
    start        0    32    64    96  │ 8192  8224  8256  8288          base offset 0 everywhere
    encoded     +0    +2    +4    +6  │ +512  +514  +516  +518
                └──── one atom wide ──┘ └─ 8 atoms of 1024 bytes further

MN-major operands, and K-major ones without swizzle, have two core matrices along k in a step, so the step is
twice the distance between neighbours along k.

A step of 48 bytes (k = 96 of 4-bit values, sm_103a) runs over the end of a 128-byte atom; its descriptor names the atom
in which it goes on:

    k bytes    0     48    96   144   192   240   288   336   384        eight steps in three atoms
    step       │  0  │  1  │  2┄┄│  3  │  4  │┄5┄┄│  6  │  7  │
    atom       └────────────128┘└───────────256┘└───────────384┘
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.errors import RuleError, Violation, argument_type, raise_all
from tilescope.layout import Layout
from tilescope.mma.canonical import DESCRIPTOR_LAYOUT, CanonicalLayout, DescriptorOffsets
from tilescope.mma.mma_instruction import K_STEP_BYTES
from tilescope.mma.operand_descriptor import OperandDescriptor
from tilescope.mma.readable_tile import Extents, SmemOperand, step_problems, tile_problems, tma_alignment_findings
from tilescope.reading import pair
from tilescope.rule import ARGUMENT_RANGE
from tilescope.sentence import by
from tilescope.swizzle import CHUNK_BYTES
from tilescope.value import Value, row_field

NEITHER_MAJOR = DESCRIPTOR_LAYOUT.worded(
    limit="tensor cores read tiles with mn or k contiguous",
    fix='Use Layout((128, 64), 16, swizzle="128B"), for example.',
)


def smem_tile(argument: str, layout: object) -> Layout:
    """The (mn, k) tile of a layout of shared memory; its first stage if it has several."""
    fix = "Use Layout((64, 64), 16), for example."
    if not isinstance(layout, Layout) or layout.unit_bits != Layout.unit_bits:
        raise RuleError([argument_type(argument, layout, "a layout of shared memory", fix)])
    tile = layout if len(layout.shape) == 2 else layout.stage()
    if tile is None:
        raise ARGUMENT_RANGE.error(
            argument=argument,
            found=f"a layout of {by(layout.shape)}",
            limit="a tile of mn x k, or stages of one",
            fix=fix,
            shape=layout.shape,
        )
    return tile


@dataclass(frozen=True, slots=True)
class DescriptorLoop(Value):
    """The descriptors of an operand tile, indexed [mn_block][k_step]."""

    described: ClassVar[type[OperandDescriptor]]
    k_step_bytes = K_STEP_BYTES  # no field: wgmma has one step

    layout: Layout
    operand: SmemOperand
    data_type: DataType = row_field(DataType.named)
    leading_bytes: int = field(init=False, repr=False, compare=False)
    stride_bytes: int = field(init=False, repr=False, compare=False)
    block_mn: int = field(init=False)  # rows of A or columns of B that one instruction takes
    descriptors: tuple[tuple[OperandDescriptor, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        row = DataType.named(self.data_type)
        canonical = self.canonical
        mn, k = shape = pair("tile", self.layout.shape, 1)
        raise_all(
            step_problems(self.k_step_bytes, canonical, k) or self.unreadable(shape, row, self.operand, canonical)
        )
        extents = self.extents(row)
        # Whole atoms, because a descriptor starts at an atom's first mn.
        choices = extents.m if self.operand == "A" else extents.n
        block_mn = max(extent for extent in choices if mn % extent == 0 and extent % canonical.atom[0] == 0)
        offsets = canonical.offsets(self.layout)
        step_k = self.k_step_bytes * 8 // row.smem_bits
        descriptors = tuple(
            tuple(self._descriptor_at(mn_first, k_first, offsets) for k_first in range(0, k, step_k))
            for mn_first in range(0, mn, block_mn)
        )
        object.__setattr__(self, "data_type", row)
        object.__setattr__(self, "leading_bytes", offsets.leading_bytes)
        object.__setattr__(self, "stride_bytes", offsets.stride_bytes)
        object.__setattr__(self, "block_mn", block_mn)
        object.__setattr__(self, "descriptors", descriptors)

    def _descriptor_at(self, mn: int, k: int, offsets: DescriptorOffsets) -> OperandDescriptor:
        """The descriptor of the step that starts at (mn, k)."""
        layout = self.layout
        return self.described(
            layout.logical(mn, k),
            leading_bytes=offsets.leading_bytes,
            stride_bytes=offsets.stride_bytes,
            swizzle=layout.swizzle,
        )

    @property
    def canonical(self) -> CanonicalLayout:
        """The tensor core's layout of the tile."""
        layout = smem_tile("layout", self.layout)
        if layout.major is None:
            raise NEITHER_MAJOR.error(layout=repr(layout), shape=layout.shape, element_bits=layout.element_bits)
        return CanonicalLayout(layout.major, layout.swizzle, layout.element_bits)

    @classmethod
    def extents(cls, data_type: DataType) -> Extents:
        """What one instruction takes; RuleError if none multiplies the type."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.descriptors)

    def __iter__(self) -> Iterator[tuple[OperandDescriptor, ...]]:
        return iter(self.descriptors)

    def __getitem__(self, mn_block: int) -> tuple[OperandDescriptor, ...]:
        return self.descriptors[mn_block]

    def addresses(self) -> npt.NDArray[np.int64]:
        """Physical byte address at which element (mn, k) of the tile is read, as an (mn, k) array."""
        read = (self.canonical.major, self.block_mn, self.k_per_step, self.layout.element_bits)
        first = self[0][0]
        if first.leading_is_address:  # every step reads another atom
            return np.block([[step.addresses(*read) for step in block] for block in self.descriptors])
        # All steps differ only in their start, so the first one's offsets serve all; a plan is proven by these addresses.
        offset = first.physical(first.addresses(*read)) - first.start_address
        starts = np.array([[step.start_address for step in block] for block in self.descriptors])
        return np.asarray(first.physical(starts[:, None, :, None] + offset[:, None, :])).reshape(self.layout.shape)

    @property
    def k_per_step(self) -> int:
        """Elements along k of one instruction: 32 bytes of them (48 if requested)."""
        return self.k_step_bytes * 8 // self.data_type.smem_bits

    @property
    def instruction(self) -> str:
        """The instruction that reads these descriptors; the other operand's extent as a letter."""
        raise NotImplementedError

    @property
    def advance_bytes(self) -> tuple[int, ...]:
        """What a K step adds to the start address (divided by 16: to the low word of the descriptor)."""
        return tuple(after.start_address - before.start_address for before, after in pairwise(self.descriptors[0]))

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Leading, stride and the K loop: name and meaning.

        >>> from tilescope.mma.consumer import wgmma_descriptors
        >>> wgmma_descriptors((64, 64), "bf16").facts[-2:]
        (('imm-trans-a', '0 (tnspA: Major::K)'), ('k step', '+32 bytes (+2 encoded), inside the atom'))
        """
        canonical = self.canonical
        leading = f"{self.leading_bytes} bytes {canonical.neighbours('leading_bytes')}"
        stride = f"{self.stride_bytes} bytes {canonical.neighbours('stride_bytes')}"
        return (
            ("leading", leading + self._note_unreached_field(canonical.leading_step)),
            ("stride", stride + self._note_unreached_field(canonical.stride_step)),
            self.transpose_fact,
            *(("k step", step) for step in self._steps(canonical.atom[1])),
        )

    @property
    def transpose_fact(self) -> tuple[str, str]:
        """The instruction's operand for the majorness, which no operand descriptor contains: name and value.

        >>> from tilescope.mma.consumer import tcgen05_descriptors, wgmma_descriptors
        >>> wgmma_descriptors((64, 64), "bf16", major="MN", operand="B").transpose_fact
        ('imm-trans-b', '1 (tnspB: Major::MN)')
        >>> tcgen05_descriptors((128, 64), "bf16", major="MN").transpose_fact
        ('transpose A', '1 (bit 15 of the instruction descriptor)')
        """
        raise NotImplementedError

    @property
    def transpose(self) -> str:
        """The same as a sentence."""
        name, value = self.transpose_fact
        return f"{name} = {value}"

    def _note_unreached_field(self, step: tuple[int, int] | None) -> str:
        """A note where one instruction does not go as far as a field leads."""
        if step is None or step[0] < self.block_mn:
            return ""
        return f" (not reached: one instruction takes {self.block_mn} of mn)"

    def _steps(self, atom_k: int) -> list[str]:
        """The different K steps of the loop, in words."""
        atoms = [step * self.k_per_step // atom_k for step in range(len(self.descriptors[0]))]
        steps = []
        for advance, (before, after) in zip(self.advance_bytes, pairwise(atoms), strict=True):
            if before == after:
                place = "inside the atom"
            elif after == before + 1:
                place = "to the next atom"
            else:
                place = f"past {after - before} atoms along k"
            steps.append(f"+{advance} bytes (+{advance // CHUNK_BYTES} encoded), {place}")
        return list(dict.fromkeys(steps))

    @property
    def explanation(self) -> tuple[str, ...]:
        """The facts as sentences."""
        return tuple(f"{name} = {fact}" for name, fact in self.facts)

    @property
    def findings(self) -> tuple[Violation, ...]:
        """A warning where the tile starts at an address that TMA cannot write to.

        The instruction accepts every multiple of 16, and tiles that threads store may be at such addresses.
        """
        return tma_alignment_findings(self.layout)

    @classmethod
    def unreadable(
        cls, shape: tuple[int, int], data_type: DataType, operand: SmemOperand, canonical: CanonicalLayout
    ) -> list[Violation]:
        """Why no sequence of the instruction reads a tile of this shape in this layout."""
        return tile_problems(
            cls.described.form.instruction,
            cls.extents(data_type),
            shape,
            data_type,
            operand=operand,
            canonical=canonical,
        )
