"""The shape of a cluster: its blocks and their threads as lanes, and the positions of shared addresses in one array of all blocks.

A block without a cluster is a cluster of one. Threads are lanes of one long row: block after block, each padded to whole
warps, so that lane // 32 is a warp.

    block of rank 0, 40 threads     lanes 0-39 exist, 40-63 do not; warps 0 and 1
    block of rank 1                 lanes 64-103, …
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tilescope.sync.address import SHARED_OFFSET_MASK, SHARED_RANK_SHIFT, Addresses

LaneNumbers: TypeAlias = npt.NDArray[np.intp]
Lanes: TypeAlias = slice | LaneNumbers  # the slice means all lanes of the cluster
BlockIndex: TypeAlias = tuple[int, int, int]
WARPGROUP_LANES = 128


class LaneGrouping(NamedTuple):
    """Lanes in groups that execute together; the last group of a block may be smaller."""

    first_lanes: LaneNumbers  # of each group
    of_lane: LaneNumbers  # the group of each lane


@dataclass(frozen=True, slots=True, eq=False)
class ClusterShape:
    """Which blocks a cluster has, which lanes belong to which block, and how its shared memory is laid out."""

    first_block: BlockIndex  # in the grid
    extents: BlockIndex  # blocks of the cluster along x, y, z
    block_threads: int
    block_lanes: int  # threads of a block, padded to whole warps
    shared_end: int  # of a block's shared memory, from address 0 of its window
    shared_stride: int  # from the shared memory of one block to that of the next, in the cluster's array
    blocks: int = field(init=False)
    lane_count: int = field(init=False)
    all_lanes: LaneNumbers = field(init=False)
    block_of_lane: LaneNumbers = field(init=False)
    exists: npt.NDArray[np.bool_] = field(init=False)  # by lane: whether it is a thread, not padding
    _groupings: dict[int, LaneGrouping] = field(default_factory=dict)

    def __post_init__(self) -> None:
        put = object.__setattr__
        width, height, depth = self.extents
        put(self, "blocks", width * height * depth)
        put(self, "lane_count", self.blocks * self.block_lanes)
        lanes = np.arange(self.lane_count)
        lanes.flags.writeable = False
        put(self, "all_lanes", lanes)
        put(self, "block_of_lane", lanes // self.block_lanes)
        put(self, "exists", lanes % self.block_lanes < self.block_threads)

    def grouping(self, group_lanes: int) -> LaneGrouping:
        """The warps (32 lanes) or warpgroups (128) of all blocks; each block begins a new one."""
        grouping = self._groupings.get(group_lanes)
        if grouping is None:
            starts_in_block = np.arange(0, self.block_lanes, group_lanes)
            first_lanes = (np.arange(self.blocks)[:, None] * self.block_lanes + starts_in_block).ravel()
            of_lane = np.searchsorted(first_lanes, self.all_lanes, side="right") - 1
            grouping = self._groupings[group_lanes] = LaneGrouping(first_lanes, of_lane)
        return grouping

    def place(self, address: int) -> int:
        """The offset of a shared address in the cluster's array of shared memory."""
        return (address >> SHARED_RANK_SHIFT) * self.shared_stride + (address & SHARED_OFFSET_MASK)

    def places(self, addresses: Addresses) -> Addresses:
        """The offsets of shared addresses in the cluster's array of shared memory."""
        return (addresses >> SHARED_RANK_SHIFT) * self.shared_stride + (addresses & SHARED_OFFSET_MASK)

    def block_index(self, rank: int) -> BlockIndex:
        """The index in the grid of the block with that rank."""
        return block_index(self.first_block, self.extents, rank)


def block_index(first_block: BlockIndex, extents: BlockIndex, rank: int) -> BlockIndex:
    """The index in the grid of the block with that rank in its cluster; ranks count x first.

    >>> block_index((4, 0, 0), (2, 2, 1), 3)
    (5, 1, 0)
    """
    width, height, _ = extents
    x, y, z = first_block
    return x + rank % width, y + rank // width % height, z + rank // width // height
