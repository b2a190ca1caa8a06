"""The metadata of a sparse A: a register of every lane, from which the lanes that the selector chooses are read."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.machine.cluster import Cluster
from tilescope.machine.instructions.tensor_core.register_tile import LaneGroups
from tilescope.machine.program import Assembler
from tilescope.machine.step import RefusedError
from tilescope.mma.fragment import NIBBLE_BITS, fragment
from tilescope.mma.sparsity import Nibbles
from tilescope.ptx.syntax import Immediate, Operand
from tilescope.sentence import listed


class MetadataOperand(NamedTuple):
    """Operand E of an instruction, and its selector."""

    register: int
    instruction: str
    data_type: str  # of A
    selector: int

    def nibbles(self, cluster: Cluster, groups: LaneGroups) -> Nibbles:
        """The metadata of warps or warpgroups: (warps, m, groups of k)."""
        places = _places(self.instruction, self.data_type, self.selector)
        registers = cluster.registers[self.register][groups.lanes].astype(np.uint32)
        words = registers.reshape(groups.group_count, -1)
        nibbles: Nibbles = (words[:, places.lane] >> places.first_bit & 0xF).astype(np.uint8)
        return nibbles


def metadata_operand(
    assembler: Assembler, instruction: str, data_type: str, metadata: Operand, selector: Operand
) -> MetadataOperand:
    """The operands that name metadata; a selector that the instruction does not have is refused."""
    copies = fragment(instruction, "E", data_type).copies
    if not isinstance(selector, Immediate) or selector.value not in range(copies):
        selectors = listed([str(number) for number in range(copies)], "or")
        raise RefusedError(f"the sparsity selector of {instruction} with A of {data_type} is the constant {selectors}")
    return MetadataOperand(assembler.source(metadata, "b32"), instruction, data_type, selector.value)


class _Places(NamedTuple):
    """Where the nibble of every (m, group) is stored."""

    lane: npt.NDArray[np.int64]
    first_bit: npt.NDArray[np.uint32]


@lru_cache(maxsize=64)
def _places(instruction: str, data_type: str, selector: int) -> _Places:
    thread, value = fragment(instruction, "E", data_type).holders(selector)
    return _Places(thread[0], (value[0] * NIBBLE_BITS).astype(np.uint32))
