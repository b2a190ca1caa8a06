"""Shared parts of bulk and tensor copies: the addresses of their bytes, the targets of a multicast, and their records."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilescope.errors import RuleError
from tilescope.machine.cluster import Cluster
from tilescope.machine.execution.fault import ILLEGAL_ADDRESS, KernelFaultError, fault_of
from tilescope.machine.execution.records import RECORDS_KEPT, CopyRecord
from tilescope.machine.memory import GlobalMemory
from tilescope.sync.address import SHARED_OFFSET_MASK, SHARED_RANK_SHIFT
from tilescope.sync.cluster_shape import BlockIndex, block_index
from tilescope.tma.transfer import receivers

Bytes = npt.NDArray[np.uint8]
_NOTHING: Bytes = np.zeros(0, np.uint8)


def shared_from(cluster: Cluster, lane: int, address: int, size_bytes: int = 0) -> Bytes:
    """The shared memory of a block from an address to its end; a fault where that is shorter than the copy."""
    try:
        rank, offset = cluster.split_shared(address)
    except KernelFaultError as fault:
        fault.lane = lane
        if fault.shared_end is not None:
            fault.shared_end += max(size_bytes - 1, 0)
        raise
    content = cluster.shared_bytes(rank)[offset:]
    if len(content) < size_bytes:
        end = cluster.launch.shared_end
        reason = (
            f"{size_bytes} bytes from shared address {address:#x} on, but shared memory of a block ends at {end:#x}"
        )
        raise KernelFaultError(ILLEGAL_ADDRESS, reason, lane, address, shared_end=offset + size_bytes)
    return content


def global_from(memory: GlobalMemory, address: int) -> Bytes:
    """Global memory from an address to the end of its array; empty if no array is there."""
    region = memory.region_at(address)
    if region is None:
        return _NOTHING
    return region.content[address - region.address :]


def writeable_from(cluster: Cluster, lane: int, address: int) -> Bytes:
    """Global memory that a copy may write."""
    content = global_from(cluster.memory, address)
    if not content.flags.writeable:
        raise KernelFaultError(ILLEGAL_ADDRESS, "a store to a read-only array", lane, address)
    cluster.memory.begin_write(address)
    return content


def cast_to(cluster: Cluster, lane: int, address: int, cta_mask: int) -> list[int]:
    """The same offset in every block that a multicast reaches; a mask without a bit reaches none, as measured."""
    if cta_mask == 0:
        return []
    try:
        ranks = receivers(cta_mask, cluster.blocks)
    except RuleError as error:
        raise fault_of(error, lane) from None
    offset = address & SHARED_OFFSET_MASK
    return [(rank << SHARED_RANK_SHIFT) + offset for rank in ranks]


def issuing_block(cluster: Cluster, lane: int) -> BlockIndex:
    """The block of a thread, by its place in the grid."""
    return block_index(cluster.first_block, cluster.launch.cluster, int(cluster.block_of_lane[lane]))


def keep_record(cluster: Cluster, record: CopyRecord) -> None:
    """Count a copy, and keep its record if there are not too many."""
    cluster.launch.charge(1, record.bytes)
    copies = cluster.launch.copies
    if len(copies) < RECORDS_KEPT:
        copies.append(record)
