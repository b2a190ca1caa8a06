"""What a slot holds: a new segment replaces bytes, a reader marks them, and a later copy makes them stale."""

import itertools

import pytest

from tilescope.sync.all_orders.contents import Segment, find_gap, mark_read, mark_stale, overwrite

BARRIER, OTHER = 0, 1
BY_THREADS = -1  # in place of a barrier: the role and the number of its cp.async group follow


def segment(start, end, fill=(BARRIER, 0, -1), **marks):
    return Segment(start, end, 0, fill, **marks)


def test_every_byte_belongs_to_the_last_segment_that_covers_it():
    before = (segment(0, 4)._replace(tile=1), segment(4, 8)._replace(tile=2))
    for start, end in itertools.combinations(range(11), 2):
        after = overwrite(before, segment(start, end)._replace(tile=3))
        held = {byte: part.tile for part in after for byte in range(part.start, part.end)}
        expected = {byte: 1 if byte < 4 else 2 for byte in range(8)} | dict.fromkeys(range(start, end), 3)
        assert held == expected
        assert sum(part.end - part.start for part in after) == len(held)  # none of them twice
        assert list(after) == sorted(after, key=lambda part: part.start)


def test_a_reader_marks_every_segment_and_changes_nothing_else():
    parts = (segment(0, 4), segment(4, 8, was_read=True))
    assert mark_read(parts) == tuple(part._replace(was_read=True) for part in parts)


@pytest.mark.parametrize(
    ("before", "begins", "is_stale"),
    [
        ((BARRIER, 0, -1), (BARRIER, 1, -1), True),  # an earlier phase
        ((BARRIER, 1, -1), (BARRIER, 1, -1), False),  # the same
        ((BARRIER, 2, -1), (BARRIER, 1, -1), False),
        ((OTHER, 0, -1), (BARRIER, 1, -1), False),  # of another barrier
        ((BY_THREADS, 3, 0), (BY_THREADS, 3, 1), True),  # an earlier group
        ((BY_THREADS, 3, 1), (BY_THREADS, 3, 1), False),
        ((BY_THREADS, 2, 0), (BY_THREADS, 3, 1), False),  # of another role
        ((BY_THREADS, 3, -1), (BY_THREADS, 3, 1), False),  # no cp.async: a plain store
        ((BARRIER, 0, -1), (BY_THREADS, 3, 1), False),
    ],
)
def test_a_copy_makes_what_an_earlier_phase_or_group_filled_stale(before, begins, is_stale):
    assert [part.is_stale for part in mark_stale((segment(0, 4, before),), begins)] == [is_stale]


def test_a_copy_makes_what_was_read_stale_whoever_filled_it():
    read, unread = segment(0, 4, (OTHER, 0, -1), was_read=True), segment(4, 8, (OTHER, 0, -1))
    assert [part.is_stale for part in mark_stale((read, unread), (BARRIER, 0, -1))] == [True, False]


@pytest.mark.parametrize(
    ("parts", "gap"),
    [
        ((), (0, 8)),
        ((segment(0, 8),), None),
        ((segment(0, 4), segment(4, 8)), None),
        ((segment(1, 8),), (0, 1)),
        ((segment(0, 7),), (7, 8)),
        ((segment(0, 3), segment(4, 8)), (3, 4)),
        ((segment(0, 4), segment(4, 8, is_stale=True)), (4, 8)),
    ],
)
def test_a_gap_is_the_first_bytes_that_nothing_has_filled_or_that_are_stale(parts, gap):
    assert find_gap(parts, 8) == gap
