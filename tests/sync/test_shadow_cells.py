"""Who touched a cell last: reads count until the next write, and only those that the next one does not know."""

import numpy as np
import pytest

from tilescope.sync.epoch import Stamp, columns_of, pack_stamps, stamp_base, unpack_stamp
from tilescope.sync.shadow.shadow_cells import CellTable, LaneCells, ThreadReads

CELLS = np.array([2, 3])


class Knows:
    """Somebody who knows some columns."""

    is_whole_cluster = False

    def __init__(self, *columns, cluster=1, settled=0):
        self.columns = columns
        self.cluster = cluster
        self.settled = settled

    def has_made(self, stamps):
        return bool(np.isin(columns_of(stamps), self.columns).all())

    def is_unit_ordered(self, column, epoch):
        return column in self.columns

    def are_ordered(self, seen, places):
        return (seen.stamps == 0) | np.isin(columns_of(seen.stamps), self.columns)


def read_by(columns, *, cells, pc):
    """One instruction by which lanes of one warp read a cell each."""
    stamps = pack_stamps(stamp_base(pc), np.array(columns), 1)
    return ThreadReads(LaneCells(np.array(cells), 1), np.zeros(len(cells), np.intp), stamps, int(stamps.max()))


def stamps_of(met):
    return [unpack_stamp(int(stamp)) for stamp in met.stamps]


def table_with_a_write_by(column):
    table = CellTable(8, warps=1, units=1)
    table.write(CELLS, pack_stamps(stamp_base(10), column, 1))
    return table


def test_a_write_is_met_by_those_who_do_not_know_it():
    table = table_with_a_write_by(5)
    assert table.unordered_writes(CELLS, Knows(5)) is None
    assert stamps_of(table.unordered_writes(CELLS, Knows(6))) == [Stamp(5, 1, 10, is_strong=False)] * 2


def test_two_strong_accesses_may_meet():
    table = CellTable(8, warps=1, units=1)
    table.write(CELLS, pack_stamps(stamp_base(10, is_strong=True), 5, 1))
    assert table.unordered_writes(CELLS, Knows(), strong=True) is None
    assert table.unordered_writes(CELLS, Knows(), strong=False) is not None


def test_the_first_and_the_last_reader_of_a_cell_are_kept():
    table = table_with_a_write_by(5)
    table.read_by_threads(read_by([0, 1, 2], cells=[2, 2, 2], pc=11))
    (met,) = table.unordered_reads(np.array([2]), Knows(5))
    assert sorted(stamp.column for stamp in stamps_of(met)) == [0, 2]


def test_a_write_ends_the_reads_before_it():
    table = table_with_a_write_by(5)
    table.read_by_threads(read_by([0, 1], cells=CELLS, pc=11))
    table.read_by_unit(CELLS, 0, int(pack_stamps(stamp_base(12, is_asynchronous=True), 40, 1)))
    assert len(list(table.unordered_reads(CELLS, Knows()))) == 2
    table.write(CELLS, pack_stamps(stamp_base(13), 6, 1))
    assert list(table.unordered_reads(CELLS, Knows())) == []
    table.read_by_threads(read_by([7], cells=[2], pc=14))
    (met,) = table.unordered_reads(CELLS, Knows())
    assert [stamp.column for stamp in stamps_of(met)] == [7, 7]  # as the first and as the last one


def test_a_write_ends_reads_that_nobody_has_looked_at():
    table = table_with_a_write_by(5)
    table.read_by_threads(read_by([0, 1], cells=CELLS, pc=11))
    table.write(CELLS, pack_stamps(stamp_base(13), 6, 1))
    assert list(table.unordered_reads(CELLS, Knows())) == []


def test_a_unit_whose_read_may_be_pending_is_found_by_those_who_know_all_threads():
    table = table_with_a_write_by(5)
    table.read_by_unit(CELLS, 0, int(pack_stamps(stamp_base(12, is_asynchronous=True), 40, 1)))
    newest = int(pack_stamps(stamp_base(20), 63, 9))
    (unordered,) = table.unordered_reads(CELLS, Knows(settled=newest))
    assert {stamp.column for stamp in stamps_of(unordered)} == {40}
    assert list(table.unordered_reads(CELLS, Knows(40, settled=newest))) == []


@pytest.mark.parametrize(("cluster", "is_own"), [(1, True), (2, False)])
def test_a_read_by_the_same_lane_of_another_cluster_is_not_the_writers_own(cluster, is_own):
    table = CellTable(8, warps=1, units=1, is_shared=False)
    reads = read_by([0, 1], cells=CELLS, pc=11)
    table.read_by_threads(reads._replace(at=LaneCells(CELLS, 1, are_distinct=True), cluster=1))

    class Writer(Knows):
        def are_ordered(self, seen, places):
            others = np.zeros_like(seen.stamps, bool) if seen.clusters is None else seen.clusters != self.cluster
            return super().are_ordered(seen, places) & ~others

    unordered = list(table.unordered_reads(CELLS, Writer(0, 1, cluster=cluster)))
    assert (unordered == []) == is_own


def test_only_cells_that_still_hold_a_copy_are_stamped_anew():
    table = table_with_a_write_by(5)
    before = int(table.writes[2])
    table.write(np.array([3]), pack_stamps(stamp_base(20), 6, 1))
    table.restamp(slice(2, 4), before, int(pack_stamps(stamp_base(10), 5, 9)))
    assert [unpack_stamp(int(stamp)).epoch for stamp in table.writes[2:4]] == [9, 1]


def test_cells_that_nobody_wrote():
    assert table_with_a_write_by(5).find_unwritten(slice(0, 5)).tolist() == [True, True, False, False, True]
