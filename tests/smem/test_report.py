import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilescope.errors import RuleError
from tilescope.smem.banks import wavefronts
from tilescope.smem.op import SMEM_OP
from tilescope.smem.report import bank_report, layout_as_written
from tilescope.value import Value

LANES = np.arange(32)


def test_every_recorded_access_is_reported_as_counted(recorded):
    for op, address, active, counted in zip(*(recorded[name] for name in recorded), strict=True):
        report = bank_report(str(op), address, active)
        assert report.wavefronts == counted, (op, address)
        assert report.excess == sum(group.wavefronts - 1 for group in report.groups if group.lanes)


@given(
    op=st.sampled_from(list(SMEM_OP)),
    numbers=st.lists(st.integers(0, 96), min_size=32, max_size=32),
    active=st.integers(0, (1 << 32) - 1),
)
def test_collisions_name_every_lane_that_waits_and_nothing_else(op, numbers, active):
    row = SMEM_OP[op]
    address = [number * row.access_bytes for number in numbers]
    report = bank_report(op, address, active)
    assert report.wavefronts == wavefronts(op, address, active)
    taking_part = [lane for lane in range(row.lanes) if active >> lane & 1]
    assert [lane for group in report.groups for lane in group.lanes] == taking_part
    assert [lane for lane in range(32) if report.lane_address[lane] is not None] == taking_part
    for group in report.groups:
        words = {}  # bank: {word, and its writer if a copy writes it: lanes}
        for lane in group.lanes:
            for byte in range(address[lane], address[lane] + row.access_bytes):
                turn = byte // 4, lane if row.is_copy else None
                words.setdefault(byte // 4 % 32, {}).setdefault(turn, set()).add(lane)
        degree = {bank: len(found) for bank, found in words.items()}
        assert group.wavefronts == max(degree.values(), default=0)
        busiest = [bank for bank, count in sorted(degree.items()) if count == group.wavefronts]
        assert group.busiest_bank == (busiest[0] if busiest else None)
        named = {bank: collision for collision in group.collisions for bank in collision.banks}
        assert set(named) == {bank for bank, count in degree.items() if count > 1}
        for bank, collision in named.items():
            place = collision.banks.index(bank)
            found = [(word[place], set(lanes)) for word, lanes in zip(collision.words, collision.lanes, strict=True)]
            assert found == [(word, lanes) for (word, _), lanes in words[bank].items()]


def test_the_report_of_a_column_names_lanes_words_banks_and_counters():
    report = bank_report("ld.b32", LANES * 256)
    assert (report.wavefronts, report.ideal, report.excess, report.degree) == (32, 1, 31, 32)
    assert (report.busiest_bank, report.verdict, report.conflict_free) == (0, "32-way conflict", False)
    (collision,) = report.groups[0].collisions
    assert collision.banks == (0,)
    assert collision.lanes == tuple((lane,) for lane in range(32))
    assert collision.addresses == tuple(range(0, 32 * 256, 256))
    assert report.counters == {
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": 32,
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": 31,
    }
    assert any("Compare the wavefront counter first" in note for note in report.notes)


def test_stores_are_counted_as_stores():
    assert {name.split("shared_")[1] for name in bank_report("stmatrix.x1", LANES * 16).counters} == {"op_st.sum"}


def test_copies_are_counted_as_copies_and_the_note_says_which():
    report = bank_report("cp.async.16", LANES * 32)
    assert (report.wavefronts, report.ideal, report.verdict) == (8, 4, "2-way conflict")
    assert report.counters == {
        "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum": 8,
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum": 4,
    }
    assert "cp.async.cg goes past L1" in report.notes[0]


def test_lanes_of_a_copy_that_write_one_word_wait_for_each_other():
    report = bank_report("cp.async.4", [0, 4, 0, *range(12, 128, 4)])
    assert report.wavefronts == 2
    (collision,) = report.groups[0].collisions
    assert (collision.addresses, collision.lanes) == ((0, 0), ((0,), (2,)))
    assert "0+ is lane 0 with others" in report.text()


def test_every_recorded_copy_is_reported_as_counted(recorded_copies):
    names = ("op", "lane_offset", "active", "wavefronts", "conflicts")
    for op, address, active, counted, conflicts in zip(*(recorded_copies[name] for name in names), strict=True):
        report = bank_report(str(op), address, active)
        assert (report.wavefronts, report.excess) == (counted, conflicts), (op, address)


@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
@pytest.mark.parametrize("tile", [(64, 128), (128, 32), (16, 64), (1, 512)])
def test_an_mn_major_tile_lies_as_the_transposed_k_major_one(tile, swizzle):
    rows = layout_as_written(tile, 16, swizzle)
    columns = layout_as_written(tile[::-1], 16, swizzle, major="MN")
    assert (columns.major, columns.shape, rows.shape) == ("MN", tile[::-1], tile)
    assert (rows.addresses() == columns.addresses().T).all()


def test_lanes_that_want_one_word_stand_together():
    report = bank_report("ld.b32", [0, 0, 128, 128] * 8)
    assert report.groups[0].collisions[0].lanes[1] == tuple(lane for lane in range(32) if lane % 4 > 1)


def test_the_worst_collision_comes_first():
    address = [0, 128, 4, 132, 260, *range(20, 128, 4)]
    found = [(collision.banks, collision.degree) for collision in bank_report("ld.b32", address).groups[0].collisions]
    assert found == [((1,), 3), ((0,), 2)]


def test_merged_groups_are_one_group_and_the_note_says_so():
    report = bank_report("ld.b128", LANES // 2 * 16)
    assert [group.lanes for group in report.groups] == [tuple(range(16)), tuple(range(16, 32))]
    assert (report.wavefronts, report.ideal) == (2, 2)
    assert "go together in twos" in report.notes[0]


def test_a_partial_ldmatrix_is_counted_and_noted():
    report = bank_report("ldmatrix.x2", LANES * 16, 0xFF)
    assert (report.wavefronts, report.ideal) == (1, 1)
    assert ".aligned" in report.notes[0]


def test_no_active_lane_costs_nothing():
    report = bank_report("st.b64", LANES * 8, 0)
    assert (report.wavefronts, report.ideal, report.degree, report.busiest_bank) == (0, 0, 0, None)
    assert report.conflict_free


@pytest.mark.parametrize("op", SMEM_OP)
def test_survives_json(op):
    report = bank_report(op, LANES * 272, 0x7FFFFFFF)
    assert Value.from_dict(json.loads(json.dumps(report.to_dict()))) == report
    assert hash(report) == hash(bank_report(op, LANES * 272, 0x7FFFFFFF))
    assert report.to_dict()["lane_address"][1] == "0x110"


def test_is_about_one_access():
    with pytest.raises(RuleError, match=r"argument-range: an array of shape \(2, 32\)"):
        bank_report("ld.b32", np.zeros((2, 32), int))
