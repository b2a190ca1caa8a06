"""The wgmma descriptors of a whole K loop over a tile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilescope.data_type import DataType
from tilescope.layout import AtomOrder, Layout, Major
from tilescope.mma.descriptor_loop import DescriptorLoop, Extents, SmemOperand
from tilescope.mma.instruction import WGMMA_M, wgmma_for
from tilescope.mma.operand_descriptor import OperandDescriptor
from tilescope.mma.wgmma import WgmmaDescriptor
from tilescope.swizzle import Swizzle, SwizzleName


@dataclass(frozen=True, slots=True)
class WgmmaLoop(DescriptorLoop):
    """The descriptors with which wgmma reads an operand tile, indexed [mn_block][k_step].

    >>> loop = wgmma_descriptors((128, 64), "bf16", swizzle="128B")
    >>> len(loop), len(loop[0]), loop.instruction
    (2, 4, 'wgmma.m64nNk16')
    >>> [descriptor.start_address for descriptor in loop[1]]
    [8192, 8224, 8256, 8288]
    >>> wgmma_descriptors((64, 128), "bf16", swizzle="128B").advance_bytes
    (32, 32, 32, 8096, 32, 32, 32)
    >>> for sentence in wgmma_descriptors((64, 32), "bf16", swizzle="32B").explanation:
    ...     print(sentence)
    leading = 16 bytes (ignored: inside a swizzled atom k is contiguous, and one instruction stays inside)
    stride = 256 bytes from the atom at (mn 0, k 0) to the next 8 mn, at (mn 8, k 0)
    k step = +2048 bytes (+128 encoded), to the next atom
    """

    described: ClassVar[type[OperandDescriptor]] = WgmmaDescriptor

    @classmethod
    def extents(cls, data_type: DataType) -> Extents:
        """64 rows of A, the n of the type, 32 bytes of k."""
        row = wgmma_for(data_type)
        return Extents((WGMMA_M,), row.n, row.k)

    @property
    def instruction(self) -> str:
        """The instruction that reads these descriptors; the other operand's extent as a letter."""
        return f"wgmma.m{WGMMA_M}n{self.block_mn if self.operand == 'B' else 'N'}k{self.k_per_step}"


def wgmma_descriptors(
    tile: tuple[int, int] | Layout, data_type: Any, *, swizzle: SwizzleName | Swizzle = "128B", major: Major = "K",
    atom_order: AtomOrder = "column", operand: SmemOperand = "A", smem_address: int = 0,
) -> WgmmaLoop:  # fmt: skip
    """The descriptors with which wgmma reads a tile of (mn, k) elements, for every block of mn and K step.

    A is read in blocks of 64 rows, B in the largest n that the instruction has and that divides the tile. A `Layout` in
    place of the tile says its swizzle, majorness, order and address itself.

    >>> loop = wgmma_descriptors((64, 64), "bf16", swizzle="128B", smem_address=0x400)
    >>> [hex(descriptor.encode()) for descriptor in loop[0]][:2]
    ['0x4000004000010040', '0x4000004000010042']
    >>> loop = wgmma_descriptors((128, 32), "bf16", major="MN", swizzle="64B", operand="B")
    >>> loop.leading_bytes, loop.stride_bytes, loop.advance_bytes
    (2048, 512, (1024,))
    """
    return WgmmaLoop.of(tile, data_type, swizzle, major, atom_order, operand, smem_address)
