"""What a run writes down of its copies and mbarriers: the first hundred thousand of each.

CopyRecord      one TMA or bulk copy; a multicast is one for every block that receives it
PhaseRecord     one phase of one mbarrier that ended
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from tilescope.sync.cluster_shape import BlockIndex

CopyKind = Literal["load", "store", "reduce"]
RECORDS_KEPT = 100_000


class CutEdit(NamedTuple):
    """A tensormap.replace whose value the map did not keep: the first at its instruction."""

    pc: int
    field: str  # as PTX names it
    ordinal: int
    value: int  # that was written
    kept: int


class CopyRecord(NamedTuple):
    """A copy between global and shared memory, or between the shared memory of two blocks, as it was issued.

    `shared_address` is where a load writes and a store reads; its upper bits are the rank of the block. A tensor copy has
    `coords` and the number of its map; a bulk copy has the address of its other end.
    """

    pc: int
    block: BlockIndex  # of the thread that issued it
    lane: int  # of the thread, in its cluster
    kind: CopyKind
    bytes: int
    shared_address: int
    barrier: int | None = None  # the shared address of the mbarrier that counts the bytes; None: a bulk group
    coords: tuple[int, ...] | None = None
    map_number: int | None = None  # in the launch's `maps`
    other_address: int | None = None


class PhaseRecord(NamedTuple):
    """A phase of an mbarrier, from its first arrival to its end."""

    address: int
    block: BlockIndex  # whose shared memory contains it
    number: int  # 0 after init
    arrivals: int
    bytes: int  # that were expected in it
    pc: int  # of the arrival, or of the copy, that ended it


class RunningPhase(NamedTuple):
    """The phase of an mbarrier that has not ended."""

    number: int = 0
    bytes: int = 0
