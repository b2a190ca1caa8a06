"""Which instruction and thread wrote a byte of global memory last, as the order of a run keeps it.

address ──▶ cell ──▶ stamp: instruction, column of the thread ──▶ line, thread
                └──▶ cluster ──▶ block
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilescope.sync.cluster_shape import BlockIndex, block_index
from tilescope.sync.epoch import unpack_stamp
from tilescope.value import Value

if TYPE_CHECKING:
    from tilescope.ptx.syntax import Instruction
    from tilescope.sync.shadow.global_cells import LastWrites


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWriter(Value):
    """The instruction that wrote a piece of global memory last, and the thread that ran it."""

    ptx_line: int
    source_line: str | None
    ptx_text: str
    block: tuple[int, int, int]
    thread: int  # its number in the block


@dataclass(frozen=True, slots=True)
class LastWriters:
    """What a run keeps of the last writes to global memory; without the reads and the clocks of the order."""

    instructions: tuple[Instruction | None, ...]
    writes: LastWrites
    first_blocks: tuple[BlockIndex, ...]  # of the clusters, in the order in which they began
    cluster: BlockIndex
    block_lanes: int
    cluster_lanes: int

    def at(self, address: int) -> LastWriter | None:
        """The last writer of the byte at an address; None if it was not written."""
        write = self.writes.at(address)
        if write is None:
            return None
        stamp = unpack_stamp(write.stamp)
        rank, thread = divmod(stamp.column % self.cluster_lanes, self.block_lanes)
        instruction = self.instructions[stamp.pc]
        assert instruction is not None  # the return at the end of a body writes nothing
        return LastWriter(
            ptx_line=instruction.line,
            source_line=instruction.source_line,
            ptx_text=instruction.text,
            block=block_index(self.first_blocks[write.cluster - 1], self.cluster, rank),
            thread=thread,
        )
