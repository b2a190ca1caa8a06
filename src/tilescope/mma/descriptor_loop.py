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
from tilescope.layout import Layout
from tilescope.mma.canonical import DESCRIPTOR_LAYOUT, READERS, CanonicalLayout, unread_layout
from tilescope.mma.descriptor import OperandDescriptor
from tilescope.mma.instruction import K_STEP_BYTES
from tilescope.mma.tcgen05_kind import BLACKWELL
from tilescope.reading import attempted, is_one_of, known_name, pair, plain_int
from tilescope.rule import ARGUMENT_RANGE, rule
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
    source='PTX ISA, "Matrix shape" of tcgen05.mma: k = 96',
    architectures=("sm_103",),
    passing='ts.tcgen05_descriptors((128, 768), "e2m1", k_step_bytes=48)',
    failing='ts.tcgen05_descriptors((128, 256), "e2m1", k_step_bytes=48)',
)


_TILE = 'ts.canonical_layout("K", "128B", "bf16").tile((128, 64))'
# The rules of each instruction's loop: element width, layout, extents of the tile.
# fmt: off
LOOP_RULES = {
    name: {
        what: rule(f"{name}-{what}", demand, source=f'PTX ISA, {name}: "Canonical Layouts" and shapes', architectures=where,
                   passing=f"ts.{name}_descriptors({passing})", failing=f"ts.{name}_descriptors({failing})")
        for what, demand, passing, failing in (
            ("element", "The layout's elements are as wide as those of the data type.", f'{_TILE}, "f16"', f'{_TILE}, "e4m3"'),
            ("layout", layouts, '(128, 64), "tf32"', '(128, 64), "tf32", major="MN", swizzle="64B"'),
            ("tile", blocks, '(128, 64), "bf16"', '(72, 64), "bf16"'),
        )
    }
    for name, where, blocks, layouts in (
        ("wgmma", ("sm_90",), "Tiles for wgmma are multiples of m 64 (A) or n 8 (B), and of 32 bytes along k.",
         "wgmma reads the canonical layouts of PTX; MN-major ones hold elements of 16 bits."),
        ("tcgen05", BLACKWELL, "Tiles for tcgen05 are multiples of the m, n and k of one tcgen05.mma.",
         "tcgen05 reads the canonical layouts of PTX; elements below 8 bits only K-major."),
    )
}
# fmt: on


def smem_tile(argument: str, layout: Any) -> Layout:
    """The (mn, k) tile of a layout of shared memory; its first stage if it has several."""
    fix = "Use Layout((64, 64), 16), for example."
    if not isinstance(layout, Layout) or layout.unit_bits != Layout.unit_bits:
        raise RuleError([argument_type(argument, layout, "a layout of shared memory", fix)])
    tile = layout if len(layout.shape) == 2 else layout.stage()
    if tile is None:
        found, limit = f"a layout of {by(layout.shape)}", "a tile of mn x k, or stages of one"
        raise ARGUMENT_RANGE.error(argument, found, limit, fix, shape=layout.shape)
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
        row, layout, canonical = DataType.named(self.data_type), self.layout, self.canonical
        mn, k = shape = pair("tile", layout.shape, 1)
        raise_all(self._step_problems(canonical, k) or self.unreadable(shape, row, self.operand, canonical))
        extents, wide = self.extents(row), self.k_step_bytes == WIDE_STEP_BYTES
        # Whole atoms, because a descriptor starts at an atom's first mn.
        choices = extents.m if self.operand == "A" else extents.n
        block_mn = max(extent for extent in choices if mn % extent == 0 and extent % canonical.atom[0] == 0)
        offsets, step_k = canonical.offsets(layout), self.k_step_bytes * 8 // row.smem_bits

        def at(mn_first: int, k_first: int) -> OperandDescriptor:
            options: dict[str, Any] = offsets._asdict()
            if wide:
                atom_k = canonical.atom[1]
                following = min(k_first // atom_k + 1, k // atom_k - 1) * atom_k  # the last step needs none
                options |= {"leading_bytes": layout.logical(mn_first, following), "leading_is_address": True}
            return self.described(layout.logical(mn_first, k_first), swizzle=layout.swizzle, **options)

        steps = (tuple(at(mn_first, k_first) for k_first in range(0, k, step_k)) for mn_first in range(0, mn, block_mn))
        made = {"data_type": row, "block_mn": block_mn, "descriptors": tuple(steps)}
        for name, value in (offsets._asdict() | made).items():
            object.__setattr__(self, name, value)

    @property
    def canonical(self) -> CanonicalLayout:
        """The tensor core's layout of the tile."""
        layout = smem_tile("layout", self.layout)
        if layout.major is None:
            limit = "tensor cores read tiles with mn or k contiguous"
            fix = 'Use Layout((128, 64), 16, swizzle="128B"), for example.'
            values = {"shape": layout.shape, "element_bits": layout.element_bits}
            raise DESCRIPTOR_LAYOUT.error("layout", f"{layout!r}", limit, fix, **values)
        return CanonicalLayout(layout.major, layout.swizzle, layout.element_bits)

    def _step_problems(self, canonical: CanonicalLayout, k: int) -> list[Violation]:
        step_bytes, bits = self.k_step_bytes, canonical.element_bits
        is_wide = k % WIDE_LOOP_K == 0 and (canonical.major, canonical.swizzle.name, bits) == ("K", "128B", 4)
        if is_one_of(step_bytes, (K_STEP_BYTES, WIDE_STEP_BYTES)[: 1 + is_wide]):
            return []
        what = f"{bits}-bit elements, {canonical.major}-major {canonical.mode}, k = {k}"
        found = f"k_step_bytes = {printed(step_bytes)} with {what}"
        limit = (
            f"a step is 32 bytes; 48 only of 4-bit elements, K-major 128B, with k a multiple of {WIDE_LOOP_K} (sm_103a)"
        )
        fix, right = f"Use k_step_bytes = {K_STEP_BYTES}.", {"k_step_bytes": K_STEP_BYTES}
        values = {"k_step_bytes": plain_int(step_bytes), "k": k, "element_bits": bits}
        return [TCGEN05_STEP.violation("k_step_bytes", found, limit, fix, right, **values)]

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
        read, first = (self.canonical.major, self.block_mn, self.k_per_step, self.layout.element_bits), self[0][0]
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
        >>> wgmma_descriptors((64, 64), "bf16").facts[-1]
        ('k step', '+32 bytes (+2 encoded), inside the atom')
        """
        canonical, facts = self.canonical, []
        for name, value, step in (
            ("leading", self.leading_bytes, canonical.leading_step),
            ("stride", self.stride_bytes, canonical.stride_step),
        ):
            unreached = step is not None and step[0] >= self.block_mn
            note = f" (not reached: one instruction takes {self.block_mn} of mn)" if unreached else ""
            facts.append((name, f"{value} bytes {canonical.neighbours(f'{name}_bytes')}{note}"))
        atoms = [step * self.k_per_step // canonical.atom[1] for step in range(len(self.descriptors[0]))]
        near = ("inside the atom", "to the next atom")
        passed = (after - before for before, after in pairwise(atoms))
        where = [near[count] if count < 2 else f"past {count} atoms along k" for count in passed]
        steps = dict.fromkeys(zip(self.advance_bytes, where, strict=True))
        facts += [("k step", f"+{advance} bytes (+{advance // 16} encoded), {place}") for advance, place in steps]
        return tuple(facts)

    @property
    def explanation(self) -> tuple[str, ...]:
        """The facts as sentences."""
        return tuple(f"{name} = {fact}" for name, fact in self.facts)

    @property
    def findings(self) -> tuple[Violation, ...]:
        """A warning where the tile starts at an address that TMA cannot write to.

        The instruction itself takes every multiple of 16, and tiles that threads store may lie there.
        """
        start, swizzle = self.layout.start, self.layout.swizzle
        line, chunk = start // SMEM_LINE_BYTES * SMEM_LINE_BYTES, start % SMEM_LINE_BYTES // CHUNK_BYTES
        if start == line:
            return ()
        limit = f"TMA writes only at multiples of {SMEM_LINE_BYTES}; elsewhere the copy ends in error 716, misaligned address"
        if swizzle.bits:
            limit += f". The {swizzle.name} pattern starts in mid-line, at chunk {chunk}: rows of an atom cross lines"
        found = f"smem_address = {start:#x} is {start - line} bytes past {line:#x}"
        fix = f"Use {line:#x} or {line + SMEM_LINE_BYTES:#x}; multiples of {self.layout.alignment_bytes} have base offset 0."
        violation = SMEM_ALIGNMENT.violation("smem_address", found, limit, fix, smem_address=start)
        return (replace(violation, severity="warning"),)

    @classmethod
    def unreadable(
        cls, shape: tuple[int, int], data_type: DataType, operand: SmemOperand, canonical: CanonicalLayout
    ) -> list[Violation]:
        """Why no sequence of the instruction reads a tile of this shape in this layout."""
        extents, name = cls.extents(data_type), cls.described.form.instruction
        major, bits, rules, label = canonical.major, canonical.element_bits, LOOP_RULES[name], data_type.name
        problems: list[Violation] = []
        is_a = attempted(problems, "B", known_name, "operand", operand, SMEM_OPERANDS) == "A"
        if data_type.smem_bits != bits:
            found, limit = f"{label} in a layout of {bits}-bit elements", f"{label} has {data_type.smem_bits} bits"
            atom = CanonicalLayout(major, canonical.swizzle, data_type.smem_bits).atom
            whole = tuple(rounded_up(extent, step) for extent, step in zip(shape, atom, strict=True))
            fix = f'Use canonical_layout("{major}", "{canonical.swizzle.name}", "{label}").tile({whole}), or a {bits}-bit type.'
            widths = {"layout_bits": bits, "type_bits": data_type.smem_bits}
            problems.append(rules["element"].violation("data_type", found, limit, fix, **widths))
        narrow = data_type.is_packed and major == "MN"  # also where every element takes a byte in shared memory
        unread = unread_layout(name, major, canonical.swizzle, bits)
        if unread := unread or "elements below 8 bits are read only K-major" * narrow:
            other = [row for row in READERS if row[:2] == (name, major) and bits in row.element_bits and not narrow]
            fix = f"Use swizzle {other[-1].swizzles[-1]}." if other else "Use K-major, or transpose while copying."
            found = f"{major}-major {canonical.mode} with {label}"
            problems.append(rules["layout"].violation("major, swizzle", found, unread, fix, element_bits=bits))
        steps = zip("mk" if is_a else "nk", shape, ((extents.m if is_a else extents.n)[0], extents.k), strict=True)
        return problems + [
            rules["tile"].violation(
                "tile", f"{letter} = {extent}", f"{name} takes {letter} of {label} in multiples of {multiple}",
                f"Use {rounded_up(extent, multiple)}.", **{letter: extent, "multiple": multiple},
            )
            for letter, extent, multiple in steps
            if extent % multiple
        ]  # fmt: skip
