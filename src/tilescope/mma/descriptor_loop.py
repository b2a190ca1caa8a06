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
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arithmetic import rounded_up
from tilescope.data_type import DataType
from tilescope.errors import RuleError, Violation, argument_type, raise_all
from tilescope.layout import Layout, Major
from tilescope.mma.canonical import (
    DESCRIPTOR_LAYOUT,
    READERS,
    READS_NO_SUCH_LAYOUT,
    READS_OTHER_WIDTHS,
    CanonicalLayout,
    DescriptorOffsets,
    readable_bits,
)
from tilescope.mma.descriptor import OperandDescriptor
from tilescope.mma.instruction import K_STEP_BYTES
from tilescope.mma.tcgen05_kind import BLACKWELL
from tilescope.reading import attempted, is_one_of, known_name, pair, plain_int
from tilescope.rule import ARGUMENT_RANGE, Rule, rule
from tilescope.sentence import by, printed
from tilescope.swizzle import CHUNK_BYTES, SMEM_ALIGNMENT, SMEM_LINE_BYTES
from tilescope.value import Value, row_field

SmemOperand = Literal["A", "B"]
SMEM_OPERANDS: tuple[SmemOperand, ...] = ("A", "B")
WIDE_STEP_BYTES = 48
WIDE_LOOP_K = 768  # 4-bit elements: whole steps of 96 in whole atoms of 256
TCGEN05_STEP = rule(
    "tcgen05-step",
    "A K step of tcgen05 is 32 bytes; on sm_103a, of 4-bit elements K-major 128B, also 48.",
    argument="k_step_bytes",
    found="k_step_bytes = {asked} with {element_bits}-bit elements, {major}-major {mode}, k = {k}",
    limit="a step is 32 bytes; 48 only of 4-bit elements, K-major 128B, with k a multiple of {wide_k} (sm_103a)",
    fix="Use k_step_bytes = {usual}.",
    source='PTX ISA, "Matrix shape" of tcgen05.mma: k = 96',
    architectures=("sm_103",),
    passing='ts.tcgen05_descriptors((128, 768), "e2m1", k_step_bytes=48)',
    failing='ts.tcgen05_descriptors((128, 256), "e2m1", k_step_bytes=48)',
)
WGMMA_ELEMENT = rule(
    "wgmma-element",
    "The layout's elements are as wide as those of the data type.",
    argument="data_type",
    found="{data_type} in a layout of {layout_bits}-bit elements",
    limit="{data_type} has {type_bits} bits",
    fix='Use canonical_layout("{major}", "{swizzle}", "{data_type}").tile({whole}), or a {layout_bits}-bit type.',
    source='PTX ISA, wgmma: "Canonical Layouts" and shapes',
    architectures=("sm_90",),
    passing='ts.wgmma_descriptors(ts.canonical_layout("K", "128B", "bf16").tile((128, 64)), "f16")',
    failing='ts.wgmma_descriptors(ts.canonical_layout("K", "128B", "bf16").tile((128, 64)), "e4m3")',
)
WGMMA_LAYOUT = rule(
    "wgmma-layout",
    "wgmma reads the canonical layouts of PTX; MN-major ones hold elements of 16 bits.",
    argument="major, swizzle",
    found="{major}-major {mode} with {data_type}",
    limit=READS_OTHER_WIDTHS,
    fix="Use K-major, or transpose while copying.",
    source='PTX ISA, wgmma: "Canonical Layouts" and shapes',
    architectures=("sm_90",),
    passing='ts.wgmma_descriptors((128, 64), "tf32")',
    failing='ts.wgmma_descriptors((128, 64), "tf32", major="MN", swizzle="64B")',
)
WGMMA_TILE = rule(
    "wgmma-tile",
    "Tiles for wgmma are multiples of m 64 (A) or n 8 (B), and of 32 bytes along k.",
    argument="tile",
    found="{extent_name} = {extent}",
    limit="{instruction} takes {extent_name} of {data_type} in multiples of {multiple}",
    fix="Use {whole}; TMA fills what lies outside the tensor with zeros.",
    source='PTX ISA, wgmma: "Canonical Layouts" and shapes',
    architectures=("sm_90",),
    passing='ts.wgmma_descriptors((128, 64), "bf16")',
    failing='ts.wgmma_descriptors((72, 64), "bf16")',
)
TCGEN05_ELEMENT = rule(
    "tcgen05-element",
    "The layout's elements are as wide as those of the data type.",
    argument="data_type",
    found="{data_type} in a layout of {layout_bits}-bit elements",
    limit="{data_type} has {type_bits} bits",
    fix='Use canonical_layout("{major}", "{swizzle}", "{data_type}").tile({whole}), or a {layout_bits}-bit type.',
    source='PTX ISA, tcgen05: "Canonical Layouts" and shapes',
    architectures=BLACKWELL,
    passing='ts.tcgen05_descriptors(ts.canonical_layout("K", "128B", "bf16").tile((128, 64)), "f16")',
    failing='ts.tcgen05_descriptors(ts.canonical_layout("K", "128B", "bf16").tile((128, 64)), "e4m3")',
)
TCGEN05_LAYOUT = rule(
    "tcgen05-layout",
    "tcgen05 reads the canonical layouts of PTX; elements below 8 bits only K-major.",
    argument="major, swizzle",
    found="{major}-major {mode} with {data_type}",
    limit=READS_OTHER_WIDTHS,
    fix="Use K-major, or transpose while copying.",
    source='PTX ISA, tcgen05: "Canonical Layouts" and shapes',
    architectures=BLACKWELL,
    passing='ts.tcgen05_descriptors((128, 64), "tf32")',
    failing='ts.tcgen05_descriptors((128, 64), "tf32", major="MN", swizzle="64B")',
)
TCGEN05_TILE = rule(
    "tcgen05-tile",
    "Tiles for tcgen05 are multiples of the m, n and k of one tcgen05.mma.",
    argument="tile",
    found="{extent_name} = {extent}",
    limit="{instruction} takes {extent_name} of {data_type} in multiples of {multiple}",
    fix="Use {whole}; TMA fills what lies outside the tensor with zeros.",
    source='PTX ISA, tcgen05: "Canonical Layouts" and shapes',
    architectures=BLACKWELL,
    passing='ts.tcgen05_descriptors((128, 64), "bf16")',
    failing='ts.tcgen05_descriptors((72, 64), "bf16")',
)
NEITHER_MAJOR = DESCRIPTOR_LAYOUT.worded(
    limit="tensor cores read tiles with mn or k contiguous",
    fix='Use Layout((128, 64), 16, swizzle="128B"), for example.',
)
TMA_ALIGNMENT = replace(
    SMEM_ALIGNMENT.worded(
        argument="smem_address",
        found="smem_address = {smem_address:#x} is {past_bytes} bytes past {below:#x}",
        limit="TMA writes only at multiples of {line_bytes}; elsewhere the copy ends in error 716, misaligned address",
        fix="Use {below:#x} or {above:#x}; multiples of {alignment_bytes} have base offset 0.",
    ),
    severity="warning",
)
PATTERN_IN_MID_LINE = TMA_ALIGNMENT.worded(
    limit=f"{TMA_ALIGNMENT.limit}. The {{swizzle}} pattern starts in mid-line, at chunk {{chunk}}: rows of an atom cross lines"
)


class LoopRules(NamedTuple):
    """What one instruction demands of the tile that its descriptors read."""

    element: Rule  # of the width of its elements
    layout: Rule
    tile: Rule  # of its extents


LOOP_RULES = {
    "wgmma": LoopRules(element=WGMMA_ELEMENT, layout=WGMMA_LAYOUT, tile=WGMMA_TILE),
    "tcgen05": LoopRules(element=TCGEN05_ELEMENT, layout=TCGEN05_LAYOUT, tile=TCGEN05_TILE),
}


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


class Extents(NamedTuple):
    """What one instruction takes of its operands."""

    m: tuple[int, ...]
    n: tuple[int, ...]
    k: int


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
        raise_all(self._step_problems(canonical, k) or self.unreadable(shape, row, self.operand, canonical))
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

    def _step_problems(self, canonical: CanonicalLayout, k: int) -> list[Violation]:
        taken = [K_STEP_BYTES]
        is_wide = (canonical.major, canonical.swizzle.name, canonical.element_bits) == ("K", "128B", 4)
        if is_wide and k % WIDE_LOOP_K == 0:
            taken.append(WIDE_STEP_BYTES)
        if is_one_of(self.k_step_bytes, taken):
            return []
        return [
            TCGEN05_STEP.violation(
                asked=printed(self.k_step_bytes),
                k_step_bytes=plain_int(self.k_step_bytes),
                element_bits=canonical.element_bits,
                major=canonical.major,
                mode=canonical.mode,
                k=k,
                wide_k=WIDE_LOOP_K,
                usual=K_STEP_BYTES,
                change={"k_step_bytes": K_STEP_BYTES},
            )
        ]

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
        if first.leading_is_address:  # every step names an atom of its own
            return np.block([[step.addresses(*read) for step in block] for block in self.descriptors])
        # All steps differ only in their start, so the first one's offsets serve all; a plan is proven by these addresses.
        offset = first.physical(first.addresses(*read)) - first.start_address
        starts = np.array([[step.start_address for step in block] for block in self.descriptors])
        return np.asarray(first.physical(starts[:, None, :, None] + offset[:, None, :])).reshape(self.layout.shape)

    @property
    def k_per_step(self) -> int:
        """Elements along k that one instruction takes: 32 bytes of them (48 where asked for)."""
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
            ("leading", leading + self._unreached(canonical.leading_step)),
            ("stride", stride + self._unreached(canonical.stride_step)),
            self.transpose_fact,
            *(("k step", step) for step in self._steps(canonical.atom[1])),
        )

    @property
    def transpose_fact(self) -> tuple[str, str]:
        """What the instruction is told of majorness, which no operand descriptor holds: name and value.

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

    def _unreached(self, step: tuple[int, int] | None) -> str:
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

        The instruction itself takes every multiple of 16, and tiles that threads store may lie there.
        """
        start = self.layout.start
        past_bytes = start % SMEM_LINE_BYTES
        if past_bytes == 0:
            return ()
        swizzle = self.layout.swizzle
        below = start - past_bytes
        told = PATTERN_IN_MID_LINE if swizzle.bits else TMA_ALIGNMENT
        violation = told.violation(
            smem_address=start,
            past_bytes=past_bytes,
            below=below,
            above=below + SMEM_LINE_BYTES,
            line_bytes=SMEM_LINE_BYTES,
            swizzle=swizzle.name,
            chunk=past_bytes // CHUNK_BYTES,
            alignment_bytes=self.layout.alignment_bytes,
        )
        return (violation,)

    @classmethod
    def unreadable(
        cls, shape: tuple[int, int], data_type: DataType, operand: SmemOperand, canonical: CanonicalLayout
    ) -> list[Violation]:
        """Why no sequence of the instruction reads a tile of this shape in this layout."""
        extents = cls.extents(data_type)
        problems: list[Violation] = []
        is_a = attempted(problems, "B", known_name, "operand", operand, SMEM_OPERANDS) == "A"
        if data_type.smem_bits != canonical.element_bits:
            problems.append(cls._other_width(shape, data_type, canonical))
        problems += cls._layout_problems(data_type, canonical)
        name = cls.described.form.instruction
        mn, k = shape
        mn_name = "m" if is_a else "n"
        mn_multiple = extents.m[0] if is_a else extents.n[0]
        for extent_name, extent, multiple in ((mn_name, mn, mn_multiple), ("k", k, extents.k)):
            if extent % multiple:
                value: dict[str, Any] = {extent_name: extent}
                problem = LOOP_RULES[name].tile.violation(
                    extent_name=extent_name,
                    extent=extent,
                    instruction=name,
                    data_type=data_type.name,
                    multiple=multiple,
                    whole=rounded_up(extent, multiple),
                    **value,
                )
                problems.append(problem)
        return problems

    @classmethod
    def _other_width(cls, shape: tuple[int, int], data_type: DataType, canonical: CanonicalLayout) -> Violation:
        """The layout was made for elements of another width than those of the type."""
        atom = CanonicalLayout(canonical.major, canonical.swizzle, data_type.smem_bits).atom
        return LOOP_RULES[cls.described.form.instruction].element.violation(
            data_type=data_type.name,
            layout_bits=canonical.element_bits,
            type_bits=data_type.smem_bits,
            major=canonical.major,
            swizzle=canonical.swizzle.name,
            whole=tuple(rounded_up(extent, step) for extent, step in zip(shape, atom, strict=True)),
        )

    @classmethod
    def _layout_problems(cls, data_type: DataType, canonical: CanonicalLayout) -> list[Violation]:
        """Whether the instruction reads the layout; narrow types only K-major, also if each takes a byte of shared memory."""
        name = cls.described.form.instruction
        major = canonical.major
        bits = canonical.element_bits
        widths = readable_bits(name, major, canonical.swizzle)
        is_narrow = data_type.is_packed and major == "MN"
        if bits in widths and not is_narrow:
            return []
        told = LOOP_RULES[name].layout.wording
        if not widths:
            told = told.worded(limit=READS_NO_SUCH_LAYOUT)
        elif bits in widths:
            told = told.worded(limit="elements below 8 bits are read only K-major")
        other_swizzle = None if is_narrow else _last_swizzle(name, major, bits)
        if other_swizzle is not None:
            told = told.worded(fix="Use swizzle {other_swizzle}.")
        problem = told.violation(
            instruction=name,
            major=major,
            mode=canonical.mode,
            data_type=data_type.name,
            element_bits=bits,
            widths=widths,
            other_swizzle=other_swizzle,
        )
        return [problem]


def _last_swizzle(instruction: str, major: Major, element_bits: int) -> str | None:
    """The widest swizzle with which an instruction reads elements of this width; None if it reads none."""
    own = [row for row in READERS if (row.instruction, row.major) == (instruction, major)]
    fitting = [row for row in own if element_bits in row.element_bits]
    return fitting[-1].swizzles[-1] if fitting else None
