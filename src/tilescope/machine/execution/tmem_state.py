"""The tensor memory of the blocks of a cluster: 128 lanes x 512 columns of 32 bits each, and who has which columns.

    cells[rank, lane, column]      what is stored there
    books[rank]                    the columns that the block has allocated, as mma/tensor_memory.py counts them

A place is a number in the cells of one block: lane * 512 + column. All of it is known from documentation.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tilescope.errors import RuleError
from tilescope.machine.execution.fault import ILLEGAL_INSTRUCTION, KernelFaultError
from tilescope.mma.tensor_memory import TMEM_FULL, TensorMemory
from tilescope.mma.tmem_address import TMEM_COLUMNS, TMEM_LANES

Places = npt.NDArray[np.int64]  # lane * 512 + column
Cells = npt.NDArray[np.uint32]
LANE_SHIFT = 16  # of an address word: the lane in the upper half, the column in the lower half
COLUMN_MASK = (1 << LANE_SHIFT) - 1


class TensorMemories:
    """The tensor memory of every block of a cluster."""

    def __init__(self, blocks: int) -> None:
        self.cells: Cells = np.zeros((blocks, TMEM_LANES * TMEM_COLUMNS), np.uint32)
        self.books = [TensorMemory() for _ in range(blocks)]

    def allocate(self, rank: int, columns: int) -> int | None:
        """The first column of a new allocation; None while no range of that many columns is free.

        A block that gave up its right to allocate still gets columns: that is a finding, not a fault.
        """
        book = self.books[rank]
        try:
            allocated = replace(book, may_allocate=True).alloc(columns)
        except RuleError as error:
            if error.violations[0].rule == TMEM_FULL.name:
                return None
            raise
        self.books[rank] = replace(allocated, may_allocate=book.may_allocate)
        return allocated.last_address.column

    def is_allocated(self, rank: int, places: Places) -> npt.NDArray[np.bool_]:
        """For each place whether its column belongs to the block."""
        return np.asarray(self.books[rank].allocated[places % TMEM_COLUMNS])


def pair_ranks(rank: int, cta_group: int, blocks: int, lane: int) -> tuple[int, ...]:
    """The blocks that an instruction of cta_group 1 or 2 works for: the own one, or the pair, even rank first."""
    if cta_group == 1:
        return (rank,)
    first = rank & ~1
    if first + 1 >= blocks:
        reason = f"cta_group::2 in a cluster of {blocks}: a pair is two blocks whose ranks differ in bit 0"
        raise KernelFaultError(ILLEGAL_INSTRUCTION, reason, lane)
    return first, first + 1


def split_address(word: int) -> tuple[int, int]:
    """(lane, column) of an address word.

    >>> split_address(0x600025)
    (96, 37)
    """
    return word >> LANE_SHIFT, word & COLUMN_MASK
