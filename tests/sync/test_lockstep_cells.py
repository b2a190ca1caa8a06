"""Batches of blocks in lockstep: whole warps synchronize; the last read through the non-coherent cache is known for each cell."""

import numpy as np
import pytest

from tilescope.sync.shadow.lockstep_cells import BatchTimes, OrderMattersError
from tilescope.sync.shadow.noncoherent_reads import NoncoherentReads


def test_whole_warps_synchronize_and_a_part_of_one_does_not():
    times = BatchTimes(first_thread=0, block_lanes=64, blocks=1, is_judged=True)
    times.meet_warps(np.arange(32))
    assert times.now == 2
    for lanes in (np.arange(31), np.arange(33)):
        with pytest.raises(OrderMattersError):
            times.meet_warps(lanes)
    assert times.now == 2


def test_a_read_of_several_cells_stamps_each_of_them():
    reads = NoncoherentReads(16)
    assert [found.tolist() for found in reads.at(np.arange(2))] == [[0, 0], [0, 0]]
    reads.put(np.array([4, 8]), 2, np.array([70, 80]), 3)
    stamps, clusters = reads.at(np.arange(16))
    assert stamps.tolist() == [0] * 4 + [70, 70, 0, 0, 80, 80] + [0] * 6
    assert clusters.tolist() == [0] * 4 + [3, 3, 0, 0, 3, 3] + [0] * 6


def test_a_later_read_replaces_an_earlier_one():
    reads = NoncoherentReads(4)
    reads.put(np.array([0]), 3, np.array([5]), 1)
    reads.put(np.array([1]), 1, np.array([9]), 2)
    stamps, clusters = reads.at(np.arange(4))
    assert (stamps.tolist(), clusters.tolist()) == ([5, 9, 5, 0], [1, 2, 1, 0])
