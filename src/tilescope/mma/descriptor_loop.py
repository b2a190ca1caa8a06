"""The descriptors that read a whole tile: one per block of mn and per K step of the loop.

One dense instruction reads 32 bytes along k. Inside a swizzled K-major atom the next step starts 32 bytes further; at
the atom's end it jumps to the next atom. A 64 x 128 bf16 tile with 128B atoms in column order:

    k            0    16    32    48  │  64    80    96   112
    start        0    32    64    96  │ 8192  8224  8256  8288          base offset 0 everywhere
    encoded     +0    +2    +4    +6  │ +512  +514  +516  +518
                └──── one atom wide ──┘ └─ 8 atoms of 1024 bytes further

MN-major operands, and K-major ones without swizzle, have two core matrices along k in each step, so the step is
twice the distance between neighbours along k.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.errors import RuleError, Violation, argument_type, ceil_div, raise_all
from tilescope.layout import AtomOrder, Layout, Major
from tilescope.mma.canonical import DESCRIPTOR_LAYOUT, READERS, CanonicalLayout, canonical_layout, tile_shape
from tilescope.mma.operand_descriptor import OperandDescriptor, neighbours_in_words
from tilescope.mma.tcgen05_kind import BLACKWELL
from tilescope.reading import attempted, known_name
from tilescope.rule import Rule, rule
from tilescope.swizzle import CHUNK_BYTES, SMEM_ALIGNMENT, SMEM_LINE_BYTES
from tilescope.value import Value, row_field

SmemOperand = Literal["A", "B"]
SMEM_OPERANDS: tuple[SmemOperand, ...] = ("A", "B")


def _loop_rules(name: str, architectures: tuple[str, ...], blocks: str, layouts: str) -> dict[str, Rule]:
    """What a loop of one instruction demands: the width of the elements, the layout, the extents of the tile."""
    make = f"ts.{name}_descriptors({{}})"
    tile = 'ts.canonical_layout("K", "128B", "bf16").tile((128, 64))'
    # fmt: off
    rows = (
        ("element", "The elements of the layout are as wide as those of the type.", f'{tile}, "f16"', f'{tile}, "e4m3"'),
        ("layout", layouts, '(128, 64), "tf32"', '(128, 64), "tf32", major="MN", swizzle="64B"'),
        ("tile", blocks, '(128, 64), "bf16"', '(72, 64), "bf16"'),
    )
    # fmt: on
    return {
        what: rule(
            f"{name}-{what}",
            demand,
            source=f'PTX ISA, {name}: "Canonical Layouts" and shapes',
            architectures=architectures,
            passing=make.format(passing),
            failing=make.format(failing),
        )
        for what, demand, passing, failing in rows
    }  # fmt: skip


LOOP_RULES = {
    "wgmma": _loop_rules(
        "wgmma", ("sm_90",), "A tile is a whole number of what one wgmma takes: 64 of m, 8 of n, 32 bytes of k.",
        "wgmma reads the canonical layouts of PTX; MN-major ones hold elements of 16 bits.",
    ),
    "tcgen05": _loop_rules(
        "tcgen05", BLACKWELL, "A tile is a whole number of what one tcgen05.mma takes of m, n and k.",
        "tcgen05 reads the canonical layouts of PTX; elements below 8 bits K-major alone.",
    ),
}  # fmt: skip


class Extents(NamedTuple):
    """What one instruction takes of its operands."""

    m: tuple[int, ...]
    n: tuple[int, ...]
    k: int


@dataclass(frozen=True, slots=True)
class DescriptorLoop(Value):
    """The descriptors of an operand tile, indexed [mn_block][k_step]."""

    described: ClassVar[type[OperandDescriptor]]

    layout: Layout
    operand: SmemOperand
    data_type: DataType = row_field(DataType.named)
    canonical: CanonicalLayout = field(init=False, repr=False, compare=False)
    leading_bytes: int = field(init=False, repr=False, compare=False)
    stride_bytes: int = field(init=False, repr=False, compare=False)
    block_mn: int = field(init=False)  # rows of A or columns of B that one instruction takes
    descriptors: tuple[tuple[OperandDescriptor, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        row = DataType.named(self.data_type)
        canonical = self._canonical()
        extents = self.extents(row)
        mn, k = tile_shape(self.layout.shape)
        self.require_readable((mn, k), row, self.operand, canonical)
        # Whole atoms, because a descriptor starts at an atom's first mn.
        choices = extents.m if self.operand == "A" else extents.n
        block_mn = max(extent for extent in choices if mn % extent == 0 and extent % canonical.atom[0] == 0)
        leading_bytes, stride_bytes = canonical.offsets(self.layout)
        for name, value in (
            ("data_type", row), ("canonical", canonical), ("block_mn", block_mn), ("leading_bytes", leading_bytes),
            ("stride_bytes", stride_bytes),
        ):  # fmt: skip
            object.__setattr__(self, name, value)
        descriptors = tuple(
            tuple(self._descriptor(mn_first, k_first) for k_first in range(0, k, self.k_per_step))
            for mn_first in range(0, mn, block_mn)
        )
        object.__setattr__(self, "descriptors", descriptors)

    def _canonical(self) -> CanonicalLayout:
        layout: object = self.layout
        fix = "Use canonical_layout(...).tile(shape)."
        if not isinstance(layout, Layout):
            raise RuleError([argument_type("layout", layout, "a Layout", fix)])
        if layout.major is None:
            limit = f"{self.described.form.instruction} reads tiles with mn or k contiguous"
            raise DESCRIPTOR_LAYOUT.error("layout", f"{layout!r}", limit, fix)
        return CanonicalLayout(layout.major, layout.swizzle, layout.element_bits)

    @classmethod
    def of(
        cls, tile: Any, data_type: Any, swizzle: Any, major: Major, atom_order: AtomOrder, operand: SmemOperand,
        smem_address: int, **options: Any,
    ) -> Self:  # fmt: skip
        """The descriptors of a tile of (mn, k) elements in atoms of a swizzle, or of a layout that says all of that."""
        row = DataType.named(data_type)
        if isinstance(tile, Layout):
            return cls(tile, operand, row, **options)
        canonical = canonical_layout(major, swizzle, row)
        shape = tile_shape(tile)
        cls.require_readable(shape, row, operand, canonical)
        return cls(canonical.tile(shape, atom_order=atom_order, start=smem_address), operand, row, **options)

    @classmethod
    def extents(cls, data_type: DataType) -> Extents:
        """What one instruction takes; RuleError where there is none for the type."""
        raise NotImplementedError

    def _descriptor(self, mn: int, k: int) -> OperandDescriptor:
        return self.described(
            self.layout.logical(mn, k), leading_bytes=self.leading_bytes, stride_bytes=self.stride_bytes,
            swizzle=self.layout.swizzle,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.descriptors)

    def __iter__(self) -> Iterator[tuple[OperandDescriptor, ...]]:
        return iter(self.descriptors)

    def __getitem__(self, mn_block: int) -> tuple[OperandDescriptor, ...]:
        return self.descriptors[mn_block]

    def addresses(self) -> npt.NDArray[np.int64]:
        """Physical byte address at which each element (mn, k) of the tile is read, as an (mn, k) array."""
        layout, first = self.canonical, self.descriptors[0][0]
        read = first.addresses(layout.major, self.block_mn, self.k_per_step, layout.element_bits)
        offset = first.physical(read) - first.start_address  # the descriptors differ in their start alone
        starts = np.array([[step.start_address for step in block] for block in self.descriptors])
        addresses: npt.NDArray[np.int64] = first.physical(starts[:, None, :, None] + offset[:, None, :])
        return addresses.reshape(self.layout.shape)

    @property
    def k_per_step(self) -> int:
        """Elements along k that one instruction takes: 32 bytes of them."""
        return self.extents(self.data_type).k

    @property
    def instruction(self) -> str:
        """The instruction that reads these descriptors; the other operand's extent as a letter."""
        raise NotImplementedError

    @property
    def advance_bytes(self) -> tuple[int, ...]:
        """What each K step adds to the start address (divided by 16: to the low word of the descriptor)."""
        return tuple(after.start_address - before.start_address for before, after in pairwise(self.descriptors[0]))

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Leading, stride and the K loop, each by its name and what it is.

        >>> from tilescope.mma.wgmma_loop import wgmma_descriptors
        >>> wgmma_descriptors((64, 64), "bf16").facts[-1]
        ('k step', '+32 bytes (+2 encoded), inside the atom')
        """
        canonical = self.canonical
        facts = []
        for name, value, step in (
            ("leading", self.leading_bytes, canonical.leading_step), ("stride", self.stride_bytes, canonical.stride_step),
        ):  # fmt: skip
            unreached = step is not None and step[0] >= self.block_mn
            note = f" (not reached: one instruction takes {self.block_mn} of mn)" if unreached else ""
            facts.append((name, f"{value} bytes {neighbours_in_words(canonical, f'{name}_bytes')}{note}"))
        steps = dict.fromkeys(zip(self.advance_bytes, self._destinations(), strict=True))
        facts += [("k step", f"+{advance} bytes (+{advance // 16} encoded), {where}") for advance, where in steps]
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
        start = self.layout.start
        line, chunk = start // SMEM_LINE_BYTES * SMEM_LINE_BYTES, start % SMEM_LINE_BYTES // CHUNK_BYTES
        if start == line:
            return ()
        swizzle = self.layout.swizzle
        limit = f"TMA writes at multiples of {SMEM_LINE_BYTES} alone; elsewhere the copy ends in error 716, misaligned address"
        if swizzle.bits:
            limit += f". The {swizzle.name} pattern starts in mid-line, at chunk {chunk}: rows of an atom cross lines"
        found = f"smem_address = {start:#x} lies {start - line} bytes behind {line:#x}"
        fix = f"Use {line:#x} or {line + SMEM_LINE_BYTES:#x}; multiples of {self.layout.alignment_bytes} have base offset 0."
        violation = SMEM_ALIGNMENT.violation("smem_address", found, limit, fix, smem_address=start)
        return (replace(violation, severity="warning"),)

    def _destinations(self) -> list[str]:
        """Where each K step goes, seen from the step before."""
        atoms = [step * self.k_per_step // self.canonical.atom[1] for step in range(len(self.descriptors[0]))]
        near = ("inside the atom", "to the next atom")
        passed = (after - before for before, after in pairwise(atoms))
        return [near[count] if count < 2 else f"past {count} atoms along k" for count in passed]

    @classmethod
    def require_readable(
        cls, shape: tuple[int, int], data_type: DataType, operand: SmemOperand, canonical: CanonicalLayout
    ) -> None:
        """Refuse what no sequence of the instruction reads, all reasons at once."""
        raise_all(cls.unreadable(shape, data_type, operand, canonical))

    @classmethod
    def unreadable(
        cls, shape: tuple[int, int], data_type: DataType, operand: SmemOperand, canonical: CanonicalLayout
    ) -> list[Violation]:
        """Why no sequence of the instruction reads a tile of this shape in this layout."""
        extents, name = cls.extents(data_type), cls.described.form.instruction
        rules = LOOP_RULES[name]
        problems: list[Violation] = []
        is_a = attempted(problems, "B", known_name, "operand", operand, SMEM_OPERANDS) == "A"
        if data_type.smem_bits != canonical.element_bits:
            problems.append(rules["element"].violation(
                "data_type", f"{data_type.name} in a layout of {canonical.element_bits}-bit elements",
                f"{data_type.name} has {data_type.smem_bits} bits",
                f'Use canonical_layout("{canonical.major}", "{canonical.swizzle.name}", "{data_type.name}").',
                layout_bits=canonical.element_bits, type_bits=data_type.smem_bits,
            ))  # fmt: skip
        narrow = data_type.is_packed and canonical.major == "MN"  # a byte each in shared memory or not
        if narrow or not any(reader.instruction == name for reader in canonical.readers):
            limit = f"{name} reads {layouts_in_words(name)}"
            readable = [
                swizzle for reader in READERS for swizzle in reader.swizzles
                if reader.instruction == name and reader.major == canonical.major and canonical.element_bits in reader.element_bits
            ]  # fmt: skip
            problems.append(rules["layout"].violation(
                "major, swizzle", f"{canonical.major}-major {canonical.mode} with {data_type.name}",
                f"{limit}; elements below 8 bits K-major alone" if narrow else limit,
                "Use K-major, or transpose while copying." if narrow or not readable else f"Use swizzle {readable[-1]}.",
            ))  # fmt: skip
        for letter, extent, multiple in (
            ("m" if is_a else "n", shape[0], (extents.m if is_a else extents.n)[0]),
            ("k", shape[1], extents.k),
        ):
            if extent % multiple:
                limit = f"{name} takes {letter} of {data_type.name} in multiples of {multiple}"
                fix, values = f"Use {ceil_div(extent, multiple) * multiple}.", {letter: extent, "multiple": multiple}
                problems.append(rules["tile"].violation("tile", f"{letter} = {extent}", limit, fix, **values))
        return problems


def layouts_in_words(instruction: str) -> str:
    """The layouts that an instruction reads, by majorness and width.

    >>> layouts_in_words("wgmma")
    'K-major 8, 16, 32, 1 bits with none, 32B, 64B, 128B; MN-major 16 bits with none, 32B, 64B, 128B'
    """
    by_layout: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for reader in READERS:
        if reader.instruction == instruction:
            by_layout.setdefault((reader.major, reader.swizzles), []).extend(reader.element_bits)
    return "; ".join(
        f"{major}-major {', '.join(map(str, bits))} bits with {', '.join(swizzles)}"
        for (major, swizzles), bits in by_layout.items()
    )
