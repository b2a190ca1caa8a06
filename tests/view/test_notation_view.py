"""The picture of a conversion says where each piece lies, the same on both sides."""

from xml.etree import ElementTree as ET

import pytest

from tilescope.layout import Modes
from tilescope.notation import convert_layout, parse_layout
from tilescope.view import draw, svg, text

DRAWN = """\
The same layout in cute

As written    Read again from cute
k mn  0  8    k mn  0  8
0     0  1    0     0  1
1     2  3    1     2  3
2     4  5    2     4  5
3     6  7    3     6  7
4     9  8    4     9  8
5    11 10    5    11 10
6    13 12    6    13 12
7    15 14    7    15 14

A cell is 8 elements of the tile (16 bytes); its number is the 16-byte place
that holds it, counted from shared address 0. One colour, one chunk of the
banks.

from          GMMA::Layout_MN_SW32_Atom<half_t>
to            Sw<1,4,3> o smem_ptr[16b](unset) o (_16,_8):(_1,_16)
unsaid there  nothing: the text says all
tile          16 x 8 elements of 16 bits: mn x k, mn contiguous
compared      128 addresses of both texts, all equal
"""


def test_draws_both_sides():
    drawn = text(convert_layout("GMMA::Layout_MN_SW32_Atom<half_t>", "cute"))
    assert [line.rstrip() for line in drawn.splitlines()] == DRAWN.splitlines()


def test_says_what_of_a_large_tile_it_shows():
    drawn = text(convert_layout("CU_TENSOR_MAP_SWIZZLE_128B", "cute", element_bits=16, shape=(64, 256)), width=200)
    assert "Drawn: 16 of 64 rows and 16 of 32" in drawn


@pytest.mark.parametrize(
    ("layout", "arguments", "piece"),
    [
        ("Sw<4,3,4> o smem_ptr[16b](unset) o (8,64):(64,1)", {}, "4 elements of the tile (8 bytes)"),
        ("Sw<5,2,5> o smem_ptr[32b](unset) o (32,32):(32,1)", {}, "element of the tile (4"),
        ("smem_ptr[16b](unset) o (8,8):(3,40)", {}, "element of the tile (2"),
        ("smem_ptr[4b](unset) o (8,64):(64,1)", {}, "32 elements of the tile (16 bytes)"),
        ("Sw<3,4,3> o smem_ptr[16b](unset) o (8,64,3):(64,1,512)", {}, "8 elements of the tile (16 bytes)"),
        ("64:1", {"element_bits": 32}, "4 elements of the tile (16 bytes)"),
        ("128B_ATOM_32B_FLIP_8B", {"element_bits": 16}, "4 elements of the tile (8 bytes)"),
    ],
)
def test_pieces_are_as_wide_as_the_swizzle_leaves_them(layout, arguments, piece):
    value = parse_layout(layout, **arguments)
    assert piece in " ".join(text(value).split())
    ET.fromstring(svg(value))


def test_cells_name_the_address_and_the_bank():
    grid = draw(parse_layout("Sw<3,4,3> o smem_ptr[16b](unset) o (12,64):(64,1)"))["tile"]
    cell = grid.rows[1].cells[0]
    assert (cell.text, cell.colour, cell.title) == ("9", 1, "mn 1, k 0 to 7: at 0x90, from bank 4")


def test_a_tensor_cores_operand_is_drawn_by_its_atoms_whatever_text_it_came_from():
    by_name = text(parse_layout("GMMA::Layout_K_SW128_Atom<half_t>"))
    by_strides = text(parse_layout("Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1)"))
    assert by_name == by_strides
    assert by_name.startswith("Operand 8 x 64 (mn x k), 16-bit elements, K-major 128B")


def test_a_thread_value_layout_says_who_holds_what():
    modes = Modes(((4, 8), (2, 2)), ((32, 1), (16, 8)))
    drawn = draw(modes, shape=(16, 8))
    holders, held = drawn["elements"], drawn["threads"]
    for row, line in enumerate(holders.rows):
        for column, cell in enumerate(line.cells):
            thread, value = (int(word[1:]) for word in cell.text.split())
            assert modes.at(thread, value) == row + 16 * column
            assert held.rows[thread].cells[value].text == str(row + 16 * column)
    ET.fromstring(drawn.svg())
    assert "Drawn: 32 of 128 threads and 16 of 64" in text(Modes(((4, 32), 64), ((2048, 64), 1)))
