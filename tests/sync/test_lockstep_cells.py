"""Batches of blocks in lockstep: whole warps synchronize; the last read through the non-coherent cache is known for each cell."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from tilescope.sync.detector.lockstep_order import CopyTouch, LockstepMemory, touch_cells
from tilescope.sync.footprint import Rows
from tilescope.sync.shadow.global_cells import GlobalCells
from tilescope.sync.shadow.lockstep_cells import BatchTimes, LastThreads, LockstepCells, OrderMattersError, Touch
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


LANES = 64  # of a block, in two warps
CELL_BYTES = 4
ARRAY = SimpleNamespace(address=1 << 20, end=(1 << 20) + 4096)


def times(blocks=2):
    return BatchTimes(first_thread=0, block_lanes=LANES, blocks=blocks, is_judged=True)


def touch(lane, *cells, batch):
    return Touch(np.array(cells), np.full(len(cells), lane), batch)


@pytest.mark.parametrize("each", [1, 2, 3])
def test_every_cell_of_an_access_is_touched_by_its_own_lane(each):
    touched = touch_cells(np.array([8, 20]), each, np.array([5, 6]), times())
    pairs = zip(touched.cells.tolist(), touched.lanes.tolist(), strict=True)
    assert list(pairs) == [(first + offset, lane) for first, lane in ((8, 5), (20, 6)) for offset in range(each)]


def is_refused(access):
    try:
        access()
    except OrderMattersError:
        return True
    return False


ACCESSES = {
    "load": lambda cells, at: cells.load(at),
    "store": lambda cells, at: cells.store(at, 7, has_equal_values=True),
    "atomic": lambda cells, at: cells.change(at, 7),
    "copy": lambda cells, at: cells.copy(at.cells, 1 + int(at.lanes[0])),
}


MEETINGS = {
    "nobody": lambda batch: batch.meet_warps(np.arange(0)),
    "warp": lambda batch: batch.meet_warps(np.arange(32)),
    "block": lambda batch: batch.meet_blocks(np.array([0])),
}
ORDERED_BY = {
    1: {"warp", "block"},
    40: {"block"},
    70: set(),
}  # lane 0 with another lane of its warp, of its block, of another


@pytest.mark.parametrize("first", ["load", "store", "atomic"])
@pytest.mark.parametrize("second", ["load", "store", "atomic"])
def test_two_accesses_of_a_cell_need_a_barrier_that_orders_them(first, second):
    """Loads need none; atomics of one cell need none either, as long as they come in the order of blocks."""
    is_harmless = first == second and first in ("load", "atomic")
    for (meeting, meet), (other, ordering) in itertools.product(MEETINGS.items(), ORDERED_BY.items()):
        batch = times()
        cells = LockstepCells(8)
        ACCESSES[first](cells, touch(0, 3, batch=batch))
        meet(batch)
        at = touch(other, 3, batch=batch)
        refused = is_refused(lambda cells=cells, at=at: ACCESSES[second](cells, at))
        assert refused == (meeting not in ordering and not is_harmless), (meeting, other)


@pytest.mark.parametrize("first", ["load", "store", "atomic"])
@pytest.mark.parametrize("second", ["load", "store", "atomic"])
def test_a_thread_is_in_order_with_itself_and_with_those_that_access_other_cells(first, second):
    batch = times()
    cells = LockstepCells(8)
    ACCESSES[first](cells, touch(0, 3, batch=batch))
    ACCESSES[second](cells, touch(0, 3, batch=batch))
    ACCESSES[second](cells, touch(40, 2, 4, batch=batch))


def test_an_atomic_of_an_earlier_block_that_comes_later_is_refused():
    batch = times()
    cells = LockstepCells(8)
    cells.change(touch(70, 3, batch=batch), 7)
    assert is_refused(lambda: cells.change(touch(0, 3, batch=batch), 7))


@pytest.mark.parametrize("before", ["load", "store", "atomic", "copy"])
def test_a_copy_writes_only_what_nobody_else_accesses(before):
    batch = times()
    for cell, expected in ((3, True), (4, False)):
        cells = LockstepCells(8)
        ACCESSES[before](cells, touch(0, 3, batch=batch))
        assert is_refused(lambda cells=cells, cell=cell: cells.copy(np.array([cell]), 1)) == expected


@pytest.mark.parametrize("writer", ["store", "atomic", "copy"])
def test_a_cell_is_unwritten_until_somebody_writes_it(writer):
    batch = times()
    cells = LockstepCells(8)
    assert not cells.is_written
    assert cells.find_unwritten(touch(0, 3, batch=batch))
    cells.load(touch(0, 3, batch=batch))
    assert (cells.is_written, cells.find_unwritten(touch(0, 3, batch=batch))) == (False, True)
    ACCESSES[writer](cells, touch(0, 2, batch=batch))
    assert (cells.is_written, cells.is_any_written(np.array([2, 3]))) == (True, True)
    assert not cells.is_any_written(np.array([3]))
    assert [cells.find_unwritten(touch(0, *some, batch=batch)) for some in ((2,), (3,), (2, 3))] == [False, True, True]


@pytest.mark.parametrize("is_strong", [False, True])
def test_clusters_that_have_ended_leave_their_last_writes_and_their_reads(is_strong):
    batch = times()
    cells = LockstepCells(4)
    is_read = np.array([True, False, False, False])
    left = LastThreads(*(np.array([one]) for one in (1, 500, 7, is_strong)))
    cells.seed(left, is_read)
    assert cells.is_written
    refused = [
        is_refused(lambda cell=cell: cells.store(touch(0, cell, batch=batch), 7, has_equal_values=True))
        for cell in range(4)
    ]
    assert refused == [True, True, False, False]
    assert [cells.find_unwritten(touch(0, cell, batch=batch)) for cell in range(4)] == [True, False, False, False]
    last = cells.last_writes(400)
    assert [last.cells.tolist(), last.threads.tolist(), last.pcs.tolist(), last.are_strong.tolist()] == [
        [1],
        [500],
        [7],
        [is_strong],
    ]


@pytest.mark.parametrize("ours", ["load", "store", "atomic"])
@pytest.mark.parametrize("theirs", ["load", "store"])
def test_blocks_of_two_processes_may_share_only_cells_that_both_read(ours, theirs):
    batch = times()
    for cell, is_shared in ((3, True), (4, False)):
        here, there = LockstepCells(8), LockstepCells(8)
        ACCESSES[ours](here, touch(0, 3, batch=batch))
        ACCESSES[theirs](there, touch(70, cell, batch=batch))
        refused = is_refused(lambda here=here, there=there: here.join(there.list_touched(0)))
        assert refused == (is_shared and not ours == theirs == "load")


@pytest.mark.parametrize(("written", "is_read"), [(0, True), (15, True), (-1, False), (17, False), (100, False)])
def test_a_copy_may_not_read_what_the_kernel_writes(written, is_read):
    """A row of 64 bytes from the array's cell 8 on; a cell beside it may be written."""
    memory = SimpleNamespace(region_at=lambda address: ARRAY if ARRAY.address <= address < ARRAY.end else None)
    lockstep = LockstepMemory(GlobalCells(memory, CELL_BYTES), LANES, 0)
    start = ARRAY.address + 8 * CELL_BYTES
    row = Rows(np.array([start]), 64)
    lockstep.add_copies([CopyTouch(pc=5, lane=0, rows=row, is_write=False)], 0)
    address = np.array([start + written * CELL_BYTES])
    for cells, at in lockstep.touches(np.array([0]), address, CELL_BYTES, times()):
        cells.store(at, 7, has_equal_values=True)
    assert is_refused(lockstep.require_unwritten_sources) == is_read


@pytest.mark.parametrize(
    ("other", "has_equal_values", "expected"), [(1, True, False), (40, True, False), (1, False, True), (70, True, True)]
)
def test_lanes_that_store_to_one_cell_at_once_are_of_one_block_and_store_the_same(other, has_equal_values, expected):
    at = Touch(np.array([3, 3]), np.array([0, other]), times())
    assert is_refused(lambda: LockstepCells(8).store(at, 7, has_equal_values=has_equal_values)) == expected
