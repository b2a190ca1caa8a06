"""Moral strength: two strong accesses race unless the scope of each includes the thread of the other.

    block 0    atom.cta.add [sum], a        .cta: atomic for the threads of block 0
    block 1    atom.cta.add [sum], b        .cta: atomic for the threads of block 1, so the two race

Most programs have .gpu scope for all of their strong accesses: then `ProgramFacts.scopes` is None, and this check is
skipped.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.detector.context import DetectorContext
from tilescope.sync.epoch import columns_of, is_strong, pcs_of
from tilescope.sync.memory_scope import CLUSTER, CTA, GPU
from tilescope.sync.shadow.shadow_cells import Unordered

Scopes = npt.NDArray[np.int8]


def drop_morally_strong(
    context: DetectorContext, unordered: Unordered, lanes: LaneNumbers, scope: int
) -> Unordered | None:
    """Unordered accesses without those that are morally strong with the strong access of `lanes`, one for each of them."""
    is_racing = ~is_strong(unordered.stamps) | is_narrow(context, unordered, lanes, scope)
    places = np.flatnonzero(is_racing)
    if not len(places):
        return None
    clusters = None if unordered.clusters is None else unordered.clusters[places]
    return Unordered(unordered.stamps[places], unordered.places[places], clusters)


def is_narrow(context: DetectorContext, unordered: Unordered, lanes: LaneNumbers, scope: int) -> npt.NDArray[np.bool_]:
    """For strong accesses, each with a lane of this cluster: whether the scope of one leaves out the other."""
    scopes = context.launch.program.scopes
    if scopes is None:
        return np.zeros(len(unordered.stamps), np.bool_)
    block_of_lane = context.cluster.block_of_lane
    columns = columns_of(unordered.stamps)
    is_thread = columns < context.clocks.lane_count
    other_blocks = block_of_lane[np.where(is_thread, columns, 0)]
    needed = np.where(other_blocks == block_of_lane[lanes], CTA, CLUSTER)
    if unordered.clusters is not None:
        needed[unordered.clusters != context.number] = GPU
    narrower = np.minimum(scopes[pcs_of(unordered.stamps)], scope)
    return np.asarray(is_thread & (narrower < needed))
