"""Where an instruction last accessed shared memory.

In most iterations of a loop an instruction accesses the same addresses. One comparison then replaces the checks of alignment and
bounds and the computation of offsets. Events carry the arrays of the site, so an observer that sees the same array objects again
need not examine them.

    pc 12   ld.shared.f32, lanes 0 … 255 at 0x400 …     checked, and cached as the site of pc 12
    pc 12   the same lanes and addresses                one comparison
    pc 12   the next buffer                             checked, and cached instead
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilescope.sync.address import Addresses
from tilescope.sync.cluster_shape import LaneNumbers

MOST_LANES = 4096  # of an access that is cached: blocks in lockstep have many
MOST_SITES = 4096


@dataclass(eq=False)
class SharedSite:
    """Lanes, each of which accesses `count` words, and the places of these words."""

    lanes: LaneNumbers
    addresses: Addresses
    places: Addresses  # offsets in the cluster's array of shared memory
    words: npt.NDArray[np.int64]  # the numbers of the words in that array: (lanes,), or (lanes, count)
    dtype: np.dtype[np.generic]
    count: int  # words of a lane

    def has_same(self, lanes: LaneNumbers, addresses: Addresses, dtype: np.dtype[np.generic], count: int) -> bool:
        """Whether the same lanes access the same words."""
        if len(addresses) != len(self.addresses) or count != self.count or dtype != self.dtype:
            return False
        if addresses[0] != self.addresses[0] or not (addresses == self.addresses).all():
            return False
        return lanes is self.lanes or bool((lanes == self.lanes).all())
