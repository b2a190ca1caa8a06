"""The descriptors that read a whole tile: one per block of mn and per K step of the loop.

One wgmma reads 32 bytes along k. Inside a swizzled K-major atom the next step starts 32 bytes further; at the
atom's end it jumps to the next atom. A 64 x 128 bf16 tile with 128B atoms in column order:

    k            0    16    32    48  │  64    80    96   112
    start        0    32    64    96  │ 8192  8224  8256  8288          base offset 0 everywhere
    encoded     +0    +2    +4    +6  │ +512  +514  +516  +518
                └──── one atom wide ──┘ └─ 8 atoms of 1024 bytes further

MN-major operands, and K-major ones without swizzle, have two core matrices along k in each step, so the step is
twice the distance between neighbours along k.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from tilescope.data_type import DataType
from tilescope.errors import RuleError, Violation
from tilescope.layout import AtomOrder
from tilescope.mma.canonical import CanonicalLayout, Major, OperandTile, canonical_layout, tile_shape
from tilescope.mma.instruction import WGMMA_M, Instruction, wgmma_for
from tilescope.mma.wgmma import WgmmaDescriptor, neighbours_in_words
from tilescope.swizzle import Swizzle, SwizzleName
from tilescope.value import Value, row_field

WgmmaOperand = Literal["A", "B"]


@dataclass(frozen=True, slots=True)
class WgmmaLoop(Value):
    """The descriptors of an operand tile, indexed [mn_block][k_step].

    >>> loop = wgmma_descriptors((128, 64), "bf16", swizzle="128B")
    >>> len(loop), len(loop[0]), loop.instruction
    (2, 4, 'wgmma.m64nNk16')
    >>> [descriptor.start_address for descriptor in loop[1]]
    [8192, 8224, 8256, 8288]
    """

    tile: OperandTile
    operand: WgmmaOperand
    data_type: DataType = row_field(DataType.named)
    block_mn: int = field(init=False)  # rows of A or columns of B that one instruction takes
    descriptors: tuple[tuple[WgmmaDescriptor, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        row = wgmma_for(self.data_type)
        object.__setattr__(self, "data_type", DataType.named(self.data_type))
        _require_readable(self.tile.shape, self.data_type, self.operand, self.tile.canonical)
        block_mn = _block_mn(self.tile.shape[0], self.operand, row, self.tile.canonical)
        object.__setattr__(self, "block_mn", block_mn)
        mn, k = self.tile.shape
        descriptors = tuple(
            tuple(self._descriptor(mn_first, k_first) for k_first in range(0, k, row.k))
            for mn_first in range(0, mn, block_mn)
        )
        object.__setattr__(self, "descriptors", descriptors)

    def _descriptor(self, mn: int, k: int) -> WgmmaDescriptor:
        return WgmmaDescriptor(
            self.tile.logical(mn, k),
            leading_bytes=self.tile.leading_bytes,
            stride_bytes=self.tile.stride_bytes,
            swizzle=self.tile.canonical.swizzle,
        )

    def __len__(self) -> int:
        return len(self.descriptors)

    def __iter__(self) -> Iterator[tuple[WgmmaDescriptor, ...]]:
        return iter(self.descriptors)

    def __getitem__(self, mn_block: int) -> tuple[WgmmaDescriptor, ...]:
        return self.descriptors[mn_block]

    @property
    def k_per_step(self) -> int:
        """Elements along k that one instruction takes: 32 bytes of them."""
        return wgmma_for(self.data_type).k

    @property
    def instruction(self) -> str:
        """The instruction that reads these descriptors; the other operand's extent as a letter."""
        return f"wgmma.m{WGMMA_M}n{self.block_mn if self.operand == 'B' else 'N'}k{self.k_per_step}"

    @property
    def advance_bytes(self) -> tuple[int, ...]:
        """What each K step adds to the start address (divided by 16: to the low word of the descriptor).

        >>> wgmma_descriptors((64, 128), "bf16", swizzle="128B").advance_bytes
        (32, 32, 32, 8096, 32, 32, 32)
        >>> wgmma_descriptors((64, 32), "bf16", swizzle="32B", atom_order="row").advance_bytes
        (256,)
        """
        return tuple(after.start_address - before.start_address for before, after in pairwise(self.descriptors[0]))

    @property
    def words(self) -> tuple[str, ...]:
        """Leading, stride and the K loop explained.

        >>> for sentence in wgmma_descriptors((64, 32), "bf16", swizzle="32B").words:
        ...     print(sentence)
        leading = 16 bytes (ignored: inside a swizzled atom k is contiguous, and one instruction stays inside)
        stride = 256 bytes from the atom at (mn 0, k 0) to the next 8 mn, at (mn 8, k 0)
        k step = +2048 bytes (+128 encoded), to the next atom
        """
        canonical = self.tile.canonical
        sentences = []
        for name, value, step in (
            ("leading_bytes", self.tile.leading_bytes, canonical.leading_step),
            ("stride_bytes", self.tile.stride_bytes, canonical.stride_step),
        ):
            sentence = f"{name.removesuffix('_bytes')} = {value} bytes {neighbours_in_words(canonical, name)}"
            if step is not None and step[0] >= self.block_mn:
                sentence += f" (not reached: one instruction takes {self.block_mn} of mn)"
            sentences.append(sentence)
        steps = dict.fromkeys(zip(self.advance_bytes, self._advances_in_words(), strict=True))
        sentences += [f"k step = +{advance} bytes (+{advance // 16} encoded), {words}" for advance, words in steps]
        return tuple(sentences)

    def _advances_in_words(self) -> list[str]:
        atom_k = self.tile.canonical.atom[1]
        found = []
        for step in range(1, len(self.descriptors[0])):
            k = step * self.k_per_step
            if k % atom_k:
                found.append("inside the atom")
            else:
                passed = max(1, self.k_per_step // atom_k)
                found.append("to the next atom" if passed == 1 else f"past {passed} atoms along k")
        return found


def wgmma_descriptors(
    tile: tuple[int, int],
    data_type: Any,
    *,
    swizzle: SwizzleName | Swizzle,
    major: Major = "K",
    atom_order: AtomOrder = "column",
    operand: WgmmaOperand = "A",
    smem_address: int = 0,
) -> WgmmaLoop:
    """The descriptors with which wgmma reads a tile of (mn, k) elements, for every block of mn and K step.

    A is read in blocks of 64 rows, B in the largest n that the instruction has and that divides the tile.

    >>> loop = wgmma_descriptors((64, 64), "bf16", swizzle="128B", smem_address=0x400)
    >>> [hex(descriptor.encode()) for descriptor in loop[0]][:2]
    ['0x4000004000010040', '0x4000004000010042']
    >>> loop = wgmma_descriptors((128, 32), "bf16", major="MN", swizzle="64B", operand="B")
    >>> loop.tile.leading_bytes, loop.tile.stride_bytes, loop.advance_bytes
    (2048, 512, (1024,))
    """
    row = DataType.named(data_type)
    canonical = canonical_layout(major, swizzle, row)
    shape = tile_shape(tile)
    _require_readable(shape, row, operand, canonical)
    return WgmmaLoop(canonical.tile(shape, atom_order=atom_order, start=smem_address), operand, row)


def _require_readable(
    shape: tuple[int, int], data_type: DataType, operand: WgmmaOperand, canonical: CanonicalLayout
) -> None:
    """Refuse what no sequence of wgmma reads, all reasons at once."""
    row = wgmma_for(data_type)
    problems = []

    def refuse(rule: str, argument: str, found: str, limit: str, fix: str) -> None:
        problems.append(Violation(rule, "error", argument, found, limit, fix))

    if operand not in ("A", "B"):
        refuse("wgmma-operand", "operand", repr(operand), "wgmma has operands A and B in shared memory", "Use A or B.")
    if data_type.smem_bits != canonical.element_bits:
        refuse(
            "wgmma-element", "data_type", f"{data_type.name} in a layout of {canonical.element_bits}-bit elements",
            f"{data_type.name} has {data_type.smem_bits} bits", "Make the layout for this type.",
        )  # fmt: skip
    if not any(reader.instruction == "wgmma" for reader in canonical.readers):
        refuse(
            "wgmma-layout", "major, swizzle", f"{canonical.major}-major {canonical.mode} with {data_type.name}",
            "wgmma reads none, 32B, 64B and 128B, MN-major only with 16-bit types (f16, bf16)",
            "Use K-major, or transpose while copying." if canonical.major == "MN" else "Use 128B.",
        )  # fmt: skip
    mn, k = shape
    for name, extent, multiple, limit in (
        ("m" if operand == "A" else "n", mn, WGMMA_M if operand == "A" else row.n[0], f"wgmma takes operand {operand}"),
        ("k", k, row.k, f"wgmma takes k of {data_type.name}"),
    ):
        if extent % multiple:
            nearest = -(-extent // multiple) * multiple
            refuse("wgmma-tile", "tile", f"{name} = {extent}", f"{limit} in multiples of {multiple}", f"Use {nearest}.")
    if problems:
        raise RuleError(problems)


def _block_mn(mn: int, operand: WgmmaOperand, row: Instruction, canonical: CanonicalLayout) -> int:
    """The mn that one instruction takes; whole atoms, because a descriptor starts at an atom's first mn."""
    if operand == "A":
        return WGMMA_M
    return max(n for n in row.n if mn % n == 0 and n % canonical.atom[0] == 0)
