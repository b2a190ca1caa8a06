import json

import numpy as np
import pytest

from tilescope.errors import RuleError
from tilescope.layout import Layout
from tilescope.smem.access import Access
from tilescope.smem.banks import wavefronts
from tilescope.smem.report import tile_report
from tilescope.swizzle import SWIZZLE
from tilescope.value import Value


@pytest.mark.parametrize(("mode", "row_bytes"), [("32B", 32), ("64B", 64), ("128B", 128)])
@pytest.mark.parametrize("start", [0, 128, 0x480])
def test_modes_with_rows_of_their_span_serve_every_column_block_and_row_stores(mode, row_bytes, start):
    tile = (64, row_bytes // 2)
    layout = Layout(tile, 16, swizzle=mode, start=start)
    report = tile_report([Access.ldmatrix(tile, 16, count=1), Access.rows(tile, 16, "st.b128")], layout)
    assert report.conflict_free
    assert [cost.wavefronts for cost in report.costs] == [8 * row_bytes // 16, 64 * row_bytes // 128]


@pytest.mark.parametrize(
    ("mode", "degree"), [("128B_ATOM_32B", 2), ("128B_ATOM_64B", 4), ("none", 8), ("64B", 2), ("32B", 4)]
)
def test_modes_with_128_byte_rows_and_the_degree_of_each_column_block(mode, degree):
    layout = Layout((8, 64), 16, swizzle=mode)
    placed = Access.ldmatrix((8, 64), 16, count=1).on(layout)
    assert wavefronts(placed.op, placed.lane_address).tolist() == [degree] * 8


@pytest.mark.parametrize(("row_bytes", "degree"), [(16, 1), (32, 2), (64, 4), (128, 8), (256, 8)])
def test_a_linear_tile_of_8_rows(row_bytes, degree):
    tile = (8, row_bytes // 2)
    (cost,) = tile_report(Access.ldmatrix(tile, 16, count=1), Layout(tile, 16)).costs
    assert cost.wavefronts == degree * row_bytes // 16
    assert cost.verdict == ("no conflict" if degree == 1 else f"{degree}-way conflict")


def test_sums_instructions_and_explains_the_worst():
    tile = (64, 64)
    layout = Layout(tile, 32, padding_bytes=8)
    access = Access.transpose(tile, 32)
    counts = wavefronts(access.op, access.on(layout).lane_address)
    (cost,) = tile_report([access], layout).costs
    assert (cost.name, cost.instructions, cost.wavefronts) == ("ld.b32 columns", 128, counts.sum())
    assert (cost.ideal, cost.excess) == (128, counts.sum() - 128)
    assert cost.worst.wavefronts == counts.max()
    assert tile_report([access, access], layout).excess == 2 * cost.excess


def test_the_worst_instruction_is_explained_wherever_it_stands():
    lanes = np.arange(32)
    (cost,) = tile_report(Access("ld.b32", [lanes * 4, lanes * 16, lanes * 128, lanes * 4], [lanes > 0] * 4)).costs
    assert (cost.worst.wavefronts, cost.worst.lane_address[1], cost.worst.lane_address[0]) == (31, 128, None)


def test_partial_warps_have_an_ideal_of_their_own():
    tile = (3, 32)  # 24 lanes of 8 bytes: two groups, the second half empty
    (cost,) = tile_report(Access.rows(tile, 16, "ld.b64"), Layout(tile, 16)).costs
    assert (cost.instructions, cost.wavefronts, cost.ideal) == (1, 2, 2)
    (cost,) = tile_report(Access("ld.b128", np.arange(32) * 16, active=0xFF)).costs
    assert (cost.wavefronts, cost.ideal) == (1, 1)


def test_without_a_layout_addresses_are_taken_as_they_are():
    report = tile_report(Access.expression("lane * 33 * 4"))
    assert (report.layout, report.wavefronts, report.ideal) == (None, 1, 1)


def test_no_instruction_costs_nothing():
    (cost,) = tile_report(Access("ld.b32", np.zeros((0, 32), int))).costs
    assert (cost.instructions, cost.wavefronts, cost.ideal, cost.worst, cost.verdict) == (0, 0, 0, None, "no conflict")


def test_survives_json():
    tile = (16, 64)
    report = tile_report([Access.ldmatrix(tile, 16), Access.rows(tile, 16)], Layout(tile, 16, swizzle=SWIZZLE["64B"]))
    assert Value.from_dict(json.loads(json.dumps(report.to_dict()))) == report


@pytest.mark.parametrize("accesses", [[], None, "ldmatrix.x4", [1], 7, np.float64(8), np.zeros(2)])
def test_what_is_no_access_is_refused(accesses):
    with pytest.raises(RuleError, match=r"argument-type: .*one Access or more"):
        tile_report(accesses, Layout((8, 8), 16))
