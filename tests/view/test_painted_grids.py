"""A grid of many cells is painted: one shape for a colour, whatever the number of cells."""

import re
from itertools import pairwise

import pytest

from tilescope.layout import Layout
from tilescope.view import draw
from tilescope.view.grid import Cell, Grid, Row, Tier
from tilescope.view.svg_grid import grid_blocks, is_painted


def grid(rows, columns, **fields):
    """A grid whose cells count through the eight colours."""
    lines = [
        Row((str(row),), tuple(Cell(f"{row}.{column}", (row + column) % 8) for column in range(columns)))
        for row in range(rows)
    ]
    return Grid("Many", (Tier.of("", range(columns)),), tuple(lines), ("row",), **fields)


def squares(body, name):
    """The places of the cells of a colour."""
    path = re.search(rf'<path class="{name}" d="([^"]*)"', body)[1]
    return [tuple(map(float, place)) for place in re.findall(r"M([\d.]+) ([\d.]+)h", path)]


def test_every_cell_of_a_colour_is_a_square_of_one_shape():
    many = grid(64, 32)
    blocks = grid_blocks(many)
    assert blocks.cells.body.count("<path") == 8
    assert "<rect" not in blocks.cells.body
    places = blocks.painted
    for colour in range(8):
        expected = {
            (round(places.lefts[column], 1), round(places.tops[row] - places.tops[0], 1))
            for row in range(64)
            for column in range(32)
            if (row + column) % 8 == colour
        }
        assert {*squares(blocks.cells.body, f"c{colour}")} == expected


def test_few_cells_are_shapes_of_their_own():
    blocks = grid_blocks(grid(8, 8))
    assert blocks.painted is None
    assert blocks.cells.body.count("<rect") == 64


def test_columns_with_room_for_texts_are_as_wide_as_texts_need():
    roomy = grid_blocks(grid(128, 16)).painted
    tight = grid_blocks(grid(64, 256)).painted
    assert roomy.width >= 5 * roomy.font_size * 0.61
    assert tight.width == tight.height == 3


def test_labels_of_small_rows_stand_apart():
    body = grid_blocks(grid(256, 256)).labels.body
    heights = sorted({float(y) for y in re.findall(r'translate\(0 ([\d.]+)\)"><text', body)})
    assert len(heights) == -(-256 // 5)  # rows of 3 pixels: every fifth label has its 14
    assert min(late - early for early, late in pairwise(heights)) >= 14


def test_marks_of_small_cells_are_dots_and_of_larger_ones_frames():
    marked = grid(64, 256).rows
    rows = tuple(Row(row.labels, tuple(Cell("", 0, "collision") for _ in row.cells)) for row in marked)
    assert 'class="dot collision"' in grid_blocks(Grid("", (), rows, ("row",))).cells.body
    few = tuple(Row(row.labels, row.cells[:20]) for row in rows)
    assert 'class="frame collision"' in grid_blocks(Grid("", (), few, ("row",))).cells.body


def test_a_grid_whose_cells_cover_several_columns_is_not_painted():
    wide = Row(("a",), (Cell(span=2),) * 2000)
    assert not is_painted(Grid("", (), (wide,)))


@pytest.mark.parametrize("shape", [(128, 128), (256, 256)])
def test_two_layouts_drawn_whole_are_few_shapes(shape):
    mn, k = shape
    drawing = draw(Layout((mn, k), 16), other=Layout((mn, k), 16, major="MN"), whole=True)
    svg = drawing.svg()
    assert svg.count("<rect") + svg.count("<path") + svg.count("<text") < 2500


def test_a_tile_of_256_x_256_is_drawn_whole():
    drawing = draw(Layout((256, 256), 16), whole=True)
    assert sum(len(row.cells) for row in drawing["tile"].rows) == 256 * 256 // 8
    assert sum(len(row.cells) for row in drawing["memory"].rows) == 256 * 256 // 8
