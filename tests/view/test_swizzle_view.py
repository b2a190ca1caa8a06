"""The drawing of a swizzle says what the address map says, in every mode and from every address."""

import importlib
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tilescope import view
from tilescope.errors import RuleError
from tilescope.swizzle import SWIZZLE, Swizzle
from tilescope.view.swizzle_view import draw_swizzle

MODE_128B = """\
Swizzle 128B

Chunk c of line l (128 bytes) is stored at place c XOR (l mod 8).

Logical: as a program counts          Physical: as stored in shared memory
      bank  0  4  8 12 16 20 24 28                 bank  0  4  8 12 16 20 24 28
line chunk  0  1  2  3  4  5  6  7    line   byte chunk  0  1  2  3  4  5  6  7
   0        0  1  2  3  4  5  6  7       0 0x0000        0  1  2  3  4  5  6  7
   1        0  1  2  3  4  5  6  7       1 0x0080        1  0  3  2  5  4  7  6
   2        0  1  2  3  4  5  6  7       2 0x0100        2  3  0  1  6  7  4  5
   3        0  1  2  3  4  5  6  7       3 0x0180        3  2  1  0  7  6  5  4
   4        0  1  2  3  4  5  6  7       4 0x0200        4  5  6  7  0  1  2  3
   5        0  1  2  3  4  5  6  7       5 0x0280        5  4  7  6  1  0  3  2
   6        0  1  2  3  4  5  6  7       6 0x0300        6  7  4  5  2  3  0  1
   7        0  1  2  3  4  5  6  7       7 0x0380        7  6  5  4  3  2  1  0

C              a ^ ((a >> 3) & 0x70) for the logical byte address a
address bits   6:4 XORed with 9:7
repeats        every 1024 bytes (8 lines), counted from shared address 0
alignment      shared address a multiple of 128; of 1024 for base offset 0
inner width    a multiple of 16, at most 128 bytes (128 x 8, 64 x 16 or 32 x 32
               bit); narrower rows leave gaps
architectures  sm_90, sm_100, sm_103, sm_110, sm_120
names          driver CU_TENSOR_MAP_SWIZZLE_128B, CuTe Swizzle<3,4,3> on byte
               addresses
codes          driver 3, PTX mode 3, PTX atomicity 0, wgmma 1, tcgen05 2
basis          measured on an H200 (sm_90)
sources        PTX ISA, "Swizzling Modes"; cuda.h, CUtensorMapSwizzle; CUDA C++
               Programming Guide, "The Swizzle Modes"; PTX ISA, wgmma "Matrix
               Descriptor Format"; PTX ISA, tcgen05 "Shared memory descriptor\""""

MODE_64B_AT_0X480 = """\
Swizzle 64B at shared address 0x480, base offset 1

Chunk c of line l (128 bytes) is stored at place c XOR (l mod 4).

Logical: as a program counts          Physical: as stored in shared memory
      bank  0  4  8 12 16 20 24 28                 bank  0  4  8 12 16 20 24 28
line chunk  0  1  2  3  4  5  6  7    line   byte chunk  0  1  2  3  4  5  6  7
   9        0  1  2  3  4  5  6  7       9 0x0480        1  0  3  2  5  4  7  6
  10        0  1  2  3  4  5  6  7      10 0x0500        2  3  0  1  6  7  4  5
  11        0  1  2  3  4  5  6  7      11 0x0580        3  2  1  0  7  6  5  4
           ────────────────────────                     ────────────────────────
  12        0  1  2  3  4  5  6  7      12 0x0600        0  1  2  3  4  5  6  7

The same by box rows of 64 bytes
          byte  0 16 32 48
row line chunk  0  1  2  3
  0    9        1  0  3  2
  1    9        1  0  3  2
               ────────────
  2   10        2  3  0  1
  3   10        2  3  0  1
               ────────────
  4   11        3  2  1  0
  5   11        3  2  1  0
               ────────────
  6   12        0  1  2  3
  7   12        0  1  2  3
2 rows share a line: chunk c of row
r is stored at
c ^ ((r / 2 + 1) % 4), not at
c ^ (r % 4). Row 0 holds 1 0 3 2,
not 0 1 2 3.
"""

FLIP = """\
            chunk ─ 0 ─  ─ 1 ─  ─ 2 ─  ─ 3 ─  ─ 4 ─  ─ 5 ─  ─ 6 ─  ─ 7 ─
line   byte  bank  0  2   4  6   8 10  12 14  16 18  20 22  24 26  28 30
   0 0x0000       0L 0H  1L 1H  2L 2H  3L 3H  4L 4H  5L 5H  6L 6H  7L 7H
   1 0x0080       2H 2L  3H 3L  0H 0L  1H 1L  6H 6L  7H 7L  4H 4L  5H 5L
   2 0x0100       4L 4H  5L 5H  6L 6H  7L 7H  0L 0H  1L 1H  2L 2H  3L 3H
   3 0x0180       6H 6L  7H 7L  4H 4L  5H 5L  2H 2L  3H 3L  0H 0L  1H 1L
L and H are the lower and upper 8 bytes of a chunk; odd lines exchange
them.
"""


def grids(drawing):
    return drawing["grids"].parts


def texts(grid):
    return [[cell.text for cell in row.cells] for row in grid.rows]


def facts(drawing):
    return dict(drawing["facts"].rows)


def test_mode_128b_is_drawn_whole():
    assert view.text(SWIZZLE["128B"]) == MODE_128B


def test_mode_64b_in_the_middle_of_its_pattern_with_its_box_rows():
    assert view.text(SWIZZLE["64B"], address=0x480).startswith(MODE_64B_AT_0X480)


def test_the_flip_mode_shows_halves_of_chunks():
    assert FLIP in view.text(SWIZZLE["128B_ATOM_32B_FLIP_8B"])


@pytest.mark.parametrize("mode", [name for name in SWIZZLE if "FLIP" not in name])
def test_one_period_equals_the_pattern(mode):
    logical, physical, *_ = grids(draw_swizzle(SWIZZLE[mode]))
    assert [tuple(map(int, row)) for row in texts(physical)] == list(SWIZZLE[mode].pattern())
    assert [tuple(map(int, row)) for row in texts(logical)] == [tuple(range(8))] * SWIZZLE[mode].period_lines
    assert [[cell.colour for cell in row.cells] for row in physical.rows] == [
        list(row) for row in SWIZZLE[mode].pattern()
    ]


@pytest.mark.parametrize("mode", SWIZZLE)
@pytest.mark.parametrize("start_line", range(17))
def test_from_any_line_on_cells_name_the_source_of_their_bytes(mode, start_line):
    swizzle = SWIZZLE[mode]
    _, physical, *_ = grids(draw_swizzle(swizzle, start_line * 128))
    assert len(physical.rows) == swizzle.period_lines
    piece = 128 // len(physical.rows[0].cells)
    for number, row in enumerate(physical.rows):
        line = start_line + number
        assert row.labels == (str(line), f"{line * 128:#06x}")
        assert row.ruled == (number > 0 and line % swizzle.period_lines == 0)
        for column, cell in enumerate(row.cells):
            source = swizzle.apply(line * 128 + column * piece)
            chunk, half = source % 128 // 16, source % 16 // 8
            assert cell.text == (f"{chunk}{'LH'[half]}" if piece == 8 else str(chunk))
            assert cell.colour == chunk
            assert cell.title.endswith(f"hold logical bytes {source:#x} to {source + piece - 1:#x}")


@pytest.mark.parametrize(("mode", "rows_per_line"), [("32B", 4), ("64B", 2)])
@pytest.mark.parametrize("start_line", range(9))
def test_box_rows_follow_the_rule_that_the_note_gives(mode, rows_per_line, start_line):
    *_, rows = grids(draw_swizzle(SWIZZLE[mode], start_line * 128))
    rule, mistake = re.findall(r"`(c \^ [^`]*)`", rows.notes[0])
    wrong_row, found, expected = re.search(r"Row (\d+) holds `([\d ]*)`, not `([\d ]*)`", rows.notes[0]).groups()
    python = rule.replace("/", "//")
    for r, row in enumerate(rows.rows):
        assert [cell.text for cell in row.cells] == [str(eval(python, {"c": c, "r": r})) for c in range(len(row.cells))]
        assert row.labels == (str(r), str(start_line + r // rows_per_line))
    assert [cell.text for cell in rows.rows[int(wrong_row)].cells] == found.split()
    assert [str(eval(mistake, {"c": c, "r": int(wrong_row)})) for c in range(len(found.split()))] == expected.split()
    assert found != expected


@pytest.mark.parametrize("mode", [name for name in SWIZZLE if name not in {"32B", "64B"}])
def test_modes_whose_rows_are_lines_need_no_second_table(mode):
    assert len(grids(draw_swizzle(SWIZZLE[mode]))) == 2


def test_an_address_inside_a_line_is_marked_in_both_grids():
    logical, physical = grids(draw_swizzle(SWIZZLE["128B"], 0x4A0))
    for grid, column in ((logical, 2), (physical, 3)):
        marked = [(r, c) for r, row in enumerate(grid.rows) for c, cell in enumerate(row.cells) if cell.mark]
        assert marked == [(0, column)]
    assert "TMA refuses 0x4a0" in facts(draw_swizzle(SWIZZLE["128B"], 0x4A0))["base offset"]


@pytest.mark.parametrize("mode", SWIZZLE)
def test_facts_come_from_the_table(mode):
    swizzle = SWIZZLE[mode]
    said = facts(draw_swizzle(swizzle, 0x480))
    codes = dict(re.findall(r"([\w ]+?) (\d+|-)(?:, |$)", said["codes"]))
    expected = {
        "driver": swizzle.driver_code,
        "PTX mode": swizzle.ptx_mode,
        "PTX atomicity": swizzle.ptx_atomicity,
        "wgmma": swizzle.wgmma_code,
        "tcgen05": swizzle.tcgen05_code,
    }
    assert codes == {name: "-" if code is None else str(code) for name, code in expected.items()}
    assert said["architectures"].split(", ") == list(swizzle.architectures)
    assert said["basis"].startswith(swizzle.basis)
    assert said["base offset"].startswith(f"{swizzle.base_offset(0x480)} = ")
    assert str(swizzle.repeat_bytes) in said["alignment"]
    if swizzle.span_bytes:
        assert f"at most {swizzle.span_bytes} bytes" in said["inner width"]
    expression = said["C"].split("`")[1]
    assert all(eval(expression, {"a": a}) == swizzle.apply(a) for a in range(2048))


def naive_apply(bits, base, shift, address):
    """CuTe's definition, bit by bit."""
    result = address
    for bit in range(bits):
        source, target = (base + shift + bit, base + bit) if shift >= 0 else (base + bit, base - shift + bit)
        if address >> source & 1:
            result ^= 1 << target
    return result


@st.composite
def xor_swizzles(draw):
    bits = draw(st.integers(0, 7))
    shift = draw(st.integers(bits, 9)) * draw(st.sampled_from([1, -1]))
    return bits, draw(st.integers(max(0, -shift), 12)), shift


@given(triple=xor_swizzles(), address=st.integers(0, 1 << 18))
@example(triple=(3, 3, 3), address=0)
@example(triple=(5, 2, 5), address=0x80)
@example(triple=(3, 7, -7), address=0)
def test_any_xor_swizzle_can_be_drawn_and_is_drawn_right(triple, address):
    drawing = draw_swizzle(Swizzle.xor(*triple), address)
    logical, physical = grids(drawing)
    assert 1 <= len(physical.rows) <= 32
    assert 1 <= len(physical.rows[0].cells) <= 32
    for grid, meaning in ((logical, "stored at"), (physical, "hold logical bytes")):
        for row in grid.rows:
            for cell in row.cells:
                place, end, other, other_end = (int(each, 16) for each in re.findall("0x[0-9a-f]+", cell.title))
                assert meaning in cell.title
                assert end - place == other_end - other
                for offset in {0, end - place}:
                    assert naive_apply(*triple, place + offset) == other + offset
    first = int(re.search("0x[0-9a-f]+", physical.rows[0].cells[0].title)[0], 16)
    assert first <= address < first + (int(physical.rows[0].cells[-1].title.split()[3].strip(":,"), 16) + 1 - first)
    assert max(map(len, drawing.text(80).splitlines())) <= 80


@given(triple=xor_swizzles())
def test_what_a_cell_of_an_xor_swizzle_says_is_where_its_bytes_come_from(triple):
    bits, _, shift = triple
    _, physical = grids(draw_swizzle(Swizzle.xor(*triple)))
    starts = {}
    for row in physical.rows:
        for column, cell in enumerate(row.cells):
            starts[int(re.search("0x[0-9a-f]+", cell.title)[0], 16)] = (row.labels[0], str(column))
    for row in physical.rows:
        for cell in row.cells:
            source = int(re.findall("0x[0-9a-f]+", cell.title)[2], 16)
            if source in starts:
                label, column = starts[source]
                assert cell.text == (label if shift < 0 and bits else column if shift > 0 else cell.text)


@pytest.mark.parametrize("address", [-1, 1.5, "0x80"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(RuleError):
        draw_swizzle(SWIZZLE["128B"], address)


def test_every_value_draws_itself():
    swizzle = SWIZZLE["64B"]
    assert swizzle.text() == view.text(swizzle)
    assert swizzle.svg() == view.svg(swizzle)
    assert swizzle._repr_mimebundle_() == {"text/plain": repr(swizzle), **view.notebook_pictures(swizzle)}


def test_a_value_without_a_drawing_prints_itself():
    from tilescope.arch import ARCH

    assert view.draw(ARCH["sm_90"]) is None
    assert view.svg(ARCH["sm_90"]) is None
    assert view.text(ARCH["sm_90"]) == repr(ARCH["sm_90"])


def test_the_module_of_every_kind_has_the_function_that_draws_it():
    for kind, name in view._MODULE_OF.items():
        module = importlib.import_module(f"tilescope.view.{name}")
        assert kind in {drawn.kind for drawn in module.DRAWINGS}


def test_every_function_that_draws_is_found_by_the_kind_of_its_value():
    for name in set(view._MODULE_OF.values()):
        module = importlib.import_module(f"tilescope.view.{name}")
        for drawn in module.DRAWINGS:
            assert view._MODULE_OF[drawn.kind] == name
        assert set(getattr(module, "WALKS", {})) <= set(module.DRAWINGS)
