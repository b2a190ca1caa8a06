"""Where an instruction last accessed shared memory.

A loop mostly uses the same addresses again. They are compared once, and then all facts about them are known: that they
are aligned and in bounds, their position in the cluster's array, and whether two lanes share one. An event carries the
arrays of the site, so an observer that has seen the same array objects can reuse its result.

    pc 12   ld.shared.f32, lanes 0 … 255 at 0x400 …     checked, and kept as the site of pc 12
    pc 12   the same lanes and addresses                one comparison
    pc 12   the next buffer                             checked, and kept instead
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tilescope.sync.address import Addresses
from tilescope.sync.cluster_shape import LaneNumbers

MOST_LANES = 4096  # of an access that is cached: blocks in lockstep have many
MOST_SITES = 4096


@dataclass(eq=False)
class SharedSite:
    """Lanes that access as many words each, and where."""

    lanes: LaneNumbers
    addresses: Addresses
    places: Addresses  # offsets in the cluster's array of shared memory
    dtype: np.dtype[np.generic]
    count: int  # words of a lane

    def has_same(self, lanes: LaneNumbers, addresses: Addresses, dtype: np.dtype[np.generic], count: int) -> bool:
        """Whether an access is of the same lanes to the same words."""
        if len(addresses) != len(self.addresses) or count != self.count or dtype != self.dtype:
            return False
        if addresses[0] != self.addresses[0] or not (addresses == self.addresses).all():
            return False
        return lanes is self.lanes or bool((lanes == self.lanes).all())

    @cached_property
    def words(self) -> npt.NDArray[np.int64]:
        """The numbers of the words in the array: (lanes,), or (lanes, count)."""
        first = self.places // self.dtype.itemsize
        return first if self.count == 1 else first[:, None] + np.arange(self.count)

    @cached_property
    def is_of_distinct_words(self) -> bool:
        """Whether no two lanes have the same address; accesses are aligned, so they do not overlap otherwise."""
        in_order = np.sort(self.addresses)
        return not (in_order[1:] == in_order[:-1]).any()
