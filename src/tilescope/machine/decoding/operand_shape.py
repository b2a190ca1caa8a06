"""An operand of wgmma or tcgen05.mma in shared memory, as its descriptor is read."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.layout import Major
from tilescope.mma.operand_descriptor import OperandDescriptor, Tcgen05Descriptor, WgmmaDescriptor

DESCRIPTOR_OF_INSTRUCTION: dict[str, type[OperandDescriptor]] = {"wgmma": WgmmaDescriptor, "tcgen05": Tcgen05Descriptor}
UNUSED_BITS = {
    name: sum(1 << bit for bit in row.form.word.reserved_ones((1 << 64) - 1))
    for name, row in DESCRIPTOR_OF_INSTRUCTION.items()
}


class ReadShape(NamedTuple):
    """One operand of an instruction, as its descriptor is read."""

    operand: Literal["A", "B"]
    rows: int  # of m or n
    k: int
    element_bits: int
    major: Major
    instruction: Literal["wgmma", "tcgen05"] = "wgmma"

    def descriptor(self, word: int) -> OperandDescriptor:
        """The bits of a word that the instruction uses; it ignores bits that belong to no field."""
        return DESCRIPTOR_OF_INSTRUCTION[self.instruction].decode(word & ~UNUSED_BITS[self.instruction])

    def addresses(self, descriptor: OperandDescriptor) -> npt.NDArray[np.int64]:
        """Where a descriptor finds the elements: (rows, k) byte addresses."""
        return descriptor.addresses(self.major, self.rows, self.k, self.element_bits)
