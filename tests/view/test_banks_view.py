from xml.etree import ElementTree

import numpy as np
import pytest

from tilescope import view
from tilescope.layout import Layout
from tilescope.smem.access import Access
from tilescope.smem.layout_search import find_layouts
from tilescope.smem.op import SMEM_OP
from tilescope.smem.report import bank_report, tile_report
from tilescope.view.banks_view import bank_grid

LANES = np.arange(32)


def test_a_report_is_drawn_whole():
    assert (
        bank_report("ld.b128", LANES % 8 * 128 + LANES // 8 * 32, 0x0000FF0F).text()
        == """\
ld.b128: 12 wavefronts, 2 without conflicts

Lanes 8-15 need 8 wavefronts; bank 8 is busiest. In banks 8-11 wait lanes 8
(0x20), 9 (0xa0), 10 (0x120), 11 (0x1a0), 12 (0x220), 13 (0x2a0), 14 (0x320), 15
(0x3a0).

Lanes by bank
lanes   line bank  0   4   8   12  16  20  24  28
  0-3 0x0000       0!
  0-3 0x0080       1!
  0-3 0x0100       2!
  0-3 0x0180       3!
                  ────────────────────────────────
 8-15 0x0000               8!
 8-15 0x0080               9!
 8-15 0x0100              10!
 8-15 0x0180              11!
 8-15 0x0200              12!
 8-15 0x0280              13!
 8-15 0x0300              14!
 8-15 0x0380              15!

 5!  waits: its group wants several words of this bank, one a wavefront

Nsight Compute counter                                    for each execution
l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum                      12
l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum                  10

Compare the wavefront counter first: the conflict counter also takes in waiting
for other traffic, and counters without _op_ld or _op_st count one more for the
launch. Nsight Compute's n-way is wavefronts per instruction, so a 16-byte load
or an ldmatrix.x4 without any conflict shows as 4-way."""
    )


@pytest.mark.parametrize("op", SMEM_OP)
@pytest.mark.parametrize("stride", [0, 1, 2, 3, 8, 17])
def test_every_lane_stands_in_the_bank_and_line_it_wants(op, stride):
    row = SMEM_OP[op]
    address = LANES * stride * row.access_bytes
    report = bank_report(op, address, 0x7FFF7FFF)
    grid = bank_grid(report)
    unused_half = any(note.startswith("No lane wants") for note in grid.notes)
    assert grid.columns == (16 if unused_half else 128 // row.cell_bytes)
    assert not unused_half or row.cell_bytes == 4
    first_bank = int(grid.tiers[-1].headers[0].short)
    found = {}
    for line in grid.rows:
        for column, cell in enumerate(line.cells):
            if cell.text:
                found[int(line.labels[-1], 0) + first_bank * 4 + column * row.cell_bytes, line.labels[0]] = cell
    for group in report.groups:
        waiting = {at for collision in group.collisions for at in collision.addresses}
        label = next(
            (text for _, text in found if len(report.groups) > 1 and int(text.split("-")[0]) in group.lanes), None
        )
        for lane in group.lanes:
            at = int(address[lane]) // row.cell_bytes * row.cell_bytes
            cell = found[at, label or f"{at // 128 * 128:#06x}"]
            assert (cell.mark == "collision") == (at in waiting)
            assert cell.colour in group.lanes
            assert f"bank{'s' if row.cell_bytes > 4 else ''} {at // 4 % 32}" in cell.title


def test_lanes_that_share_a_word_share_a_cell():
    texts = [cell.text for cell in bank_grid(bank_report("ld.b32", LANES // 4 * 4)).rows[0].cells]
    assert texts[:9] == ["0-3", "4-7", "8-11", "12-15", "16-19", "20-23", "24-27", "28-31", ""]
    assert bank_grid(bank_report("ld.b32", LANES % 2 * 4)).rows[0].cells[1].text == "1+"


def test_a_tile_report_has_a_table_and_the_worst_instruction_of_what_collides():
    tile = (16, 64)
    text = tile_report(
        [Access.rows(tile, 16, "st.b128"), Access.ldmatrix(tile, 16)], Layout(tile, 16, start=0x400)
    ).text()
    assert text.splitlines()[:6] == [
        "Shared-memory accesses to 16 x 64 elements of 16 bits, from 0x400",
        "",
        "pattern       instructions  wavefronts  ideal  excess  verdict",
        "st.b128 rows             4          16     16       0  no conflict",
        "ldmatrix.x4              4         128     16     112  8-way conflict",
        "Counted by l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum and",
    ]
    assert "Worst instruction of ldmatrix.x4: 32 wavefronts" in text
    assert "st.b128 rows:" not in text


def test_without_a_conflict_the_first_pattern_is_drawn():
    text = tile_report(Access.expression("lane * 4")).text()
    assert "ld.b32: lane * 4: 1 wavefront\n" in text
    assert "No conflict: 1 group of lanes" in text
    assert tile_report(Access("ld.b32", np.zeros((0, 32), int))).text().startswith("Shared-memory accesses\n")
    assert "No lane is active." in bank_report("ld.b32", LANES * 4, 0).text()


def test_a_search_lists_each_layout_with_its_proof():
    tile = (32, 32)
    search = find_layouts([Access.rows(tile, 32, "st.b32"), Access.transpose(tile, 32)], tile=tile, element_bits=32)
    assert (
        view.text(search, width=100)
        == """\
Layouts for 32 x 32 elements of 32 bits

17 of 111 layouts tried serve every pattern without a conflict.

Wavefronts of each pattern
layout                st.b32 rows (ideal 32)    ld.b32 columns (ideal  excess  made by
                                                                  32)
swizzle xor:5,2,5                         32                       32       0  a ^ ((a >> 5) & 0x7c)
pad rows by 4 bytes                       32                       32       0  pitch 132 B, +128 B
pad rows by 12 bytes                      32                       32       0  pitch 140 B, +384 B
pad rows by 20 bytes                      32                       32       0  pitch 148 B, +640 B
pad rows by 28 bytes                      32                       32       0  pitch 156 B, +896 B
swizzle 128B                              32                      128      96  TMA
As good, but not listed: 12 of the paddings."""
    )


@pytest.mark.parametrize(
    "value",
    [
        bank_report("ld.b32", LANES * 128),
        bank_report("ldmatrix.x4", LANES * 16),
        tile_report(Access.transpose((32, 32), 32), Layout((32, 32), 32, padding_bytes=4)),
        find_layouts(Access.ldmatrix((16, 64), 16), tile=(16, 64), element_bits=16),
    ],
    ids=lambda value: value.kind,
)
def test_the_picture_is_a_document(value):
    assert ElementTree.fromstring(value.svg()).tag.endswith("svg")
