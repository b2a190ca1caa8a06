"""A whole layout both ways, and two of them: every cell is held against the layout's own addresses."""

import re

import numpy as np
import pytest

from tilescope.errors import RuleError
from tilescope.layout import Layout
from tilescope.notation import parse_layout, parse_modes
from tilescope.view import draw
from tilescope.view.layout_view import draw_difference, whole_layout

LAYOUTS = [
    Layout((16, 64), 16, swizzle="128B"),
    Layout((16, 64), 16, swizzle="64B", atom=(16, 32), start=0x480),
    Layout((8, 33), 32, padding_bytes=4),
    Layout((32, 32), 32, swizzle="xor:5,2,5"),
    Layout((16, 64), 8, swizzle="32B", atom=(8, 32), atom_order="row"),
    parse_layout("GMMA::Layout_MN_SW128_Atom<half_t>"),
    parse_layout("(8,(4,2)):(4,(1,32))", element_bits=16),
    parse_layout("(8,8):(1,8)", element_bits=16),
    parse_layout("((32,4),4):((16,4),1)", element_bits=8),
]


def grids(drawing):
    return drawing["grids"].parts


def cells(grid):
    return [cell for row in grid.rows for cell in row.cells]


def coordinates(title):
    """The first element that a cell's sentence names, as (mn, k)."""
    found = dict(re.findall(r"\b(mn|k) (\d+)", title))
    return int(found["mn"]), int(found["k"])


@pytest.mark.parametrize("layout", LAYOUTS, ids=repr)
def test_every_piece_of_the_tile_is_where_the_layout_says_and_memory_holds_it_there(layout):
    tile, memory = grids(whole_layout(layout))
    lies_at = {}
    for cell in cells(tile):
        mn, k = coordinates(cell.title)
        address = layout.address(mn, k)
        assert f"at {address:#x}," in cell.title
        assert cell.colour == address // 16 % 8
        lies_at[cell.link] = address
    assert len(lies_at) == len(cells(tile))
    seen = set()
    for row in memory.rows:
        piece_bytes = int(re.match(r"from byte (0x\w+)", row.cells[1].title)[1], 16) - int(row.labels[0], 16)
        for place, cell in enumerate(row.cells):
            address = int(row.labels[0], 16) + place * piece_bytes
            assert cell.title.startswith(f"from byte {address:#x} on")
            assert {lies_at[link] for link in cell.link.split()} == ({address} if cell.link else set())
            assert (cell.colour == "gap") == (not cell.link)
            seen.update(cell.link.split())
    assert seen == set(lies_at)


@pytest.mark.parametrize("one", LAYOUTS[:2] + LAYOUTS[4:5], ids=repr)
@pytest.mark.parametrize("major", ["K", "MN"])
def test_what_is_marked_is_what_lies_elsewhere(one, major):
    other = Layout(one.shape, one.element_bits, major=major, start=one.start)
    drawing = draw_difference(one, other)
    elsewhere = one.addresses() != other.addresses()
    assert f"{elsewhere.sum()} of {elsewhere.size} elements are elsewhere" in drawing.title
    for grid, layout in zip(grids(drawing), (one, other), strict=True):
        shown = cells(grid)
        per_cell = elsewhere.size // len(shown)
        marked = 0
        for cell in shown:
            mn, k = coordinates(cell.title)
            assert f"at {layout.address(mn, k):#x}," in cell.title
            marked += bool(cell.mark)
        assert marked * per_cell >= elsewhere.sum()
        assert marked * per_cell - elsewhere.sum() < per_cell * len(shown)


def test_one_layout_in_two_notations_has_no_difference():
    layout = Layout((64, 64), 16, swizzle="128B")
    same = parse_layout("Sw<3,4,3> o smem_ptr[16b](unset) o (_64,_64):(_64,_1)")
    drawing = draw_difference(layout, same)
    assert "are the same" in drawing.title
    assert not any(cell.mark for grid in grids(drawing) for cell in cells(grid))


@pytest.mark.parametrize("other", [Layout((8, 64), 16), Layout((16, 64), 8)])
def test_layouts_of_different_tiles_are_not_compared(other):
    with pytest.raises(RuleError, match="one tile"):
        draw_difference(Layout((16, 64), 16), other)


def test_threads_and_values_are_linked_both_ways():
    modes = parse_modes("((4,8),(2,2)):((32,1),(16,8))")
    holders, held = grids(draw(modes, shape=(16, 8)))
    index = modes.offsets()
    at = {cell.link.split()[0]: int(cell.text) for cell in cells(held)}
    for place, cell in enumerate(cells(holders)):
        row, column = divmod(place, 8)
        assert at[cell.link.split()[0]] == row + 16 * column
    assert sorted(at.values()) == sorted(np.ravel(index).tolist())


@pytest.mark.parametrize("major", ["K", "MN"])
def test_the_element_asked_for_is_marked(major):
    layout = Layout((16, 16), 32, major=major)
    grid = draw(layout, element=(5, 9))["tile"]
    (marked,) = [cell for row in grid.rows for cell in row.cells if cell.mark]
    assert marked.link == ("5,8" if major == "K" else "9,4")
    assert (marked.mark, int(marked.text)) == ("focus", layout.address(5, 9) // 16)


def test_one_of_something_is_singular():
    text = Layout((1, 1), 8).text() + Layout((8, 256), 1).text()
    assert "(1 byte)" in text
    assert "size     1 byte from" in text
    assert "elements of 1 bit:" in text
