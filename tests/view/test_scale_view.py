"""The drawings of scale factors say where each one lies."""

import pytest

import tilescope as ts
from tilescope import view
from tilescope.mma.scale_lanes import ScaleLanes


def numbers(text):
    """The numbers of a span: 0-15, or 7."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


@pytest.mark.parametrize(("rows", "kind"), [(128, "nvfp4"), (200, "mxfp8"), (256, "mxfp4"), (64, "nvfp4")])
def test_scale_factors_are_drawn_where_they_lie(rows, kind):
    scales = ts.scale_layout(rows, 512, kind)
    element = (rows - 1, 300)
    block = 300 // scales.format.block
    drawing = view.draw(scales, element=element)
    atom = drawing["atom"]
    words = drawing["columns"]
    for row in atom.rows:
        for place, cell in enumerate(row.cells):
            found = scales.locate(int(row.labels[1], 0) + 4 * place)
            assert cell.text == ("padding" if found is None else f"r{found[0]}")
            assert bool(cell.mark) == (found is not None and found[0] == element[0])
    placed = scales.tensor_memory("A")
    headers = [int(header.text) for header in words.tiers[0].headers]
    for row in words.rows:
        for column, cell in zip(headers, row.cells, strict=True):
            held = numbers(cell.text.removeprefix("r"))
            assert all(placed.place(each, block).column == column for each in held)
            assert placed.place(held[0], block).lanes[0] + 32 * int(row.labels[0][-1]) == numbers(row.labels[1])[0]
    offset = scales.offset(rows - 1, block)
    assert f"byte {offset} ({offset:#x})" in view.text(scales, element=element)


def test_lanes_of_scale_factors_are_drawn():
    found = ScaleLanes("mxfp4", "A", thread_id=1, byte_id=2)
    grid = view.draw(found)["lanes"]
    for row in grid.rows:
        for place, cell in enumerate(row.cells):
            lane = int(row.labels[0]) + place
            assert cell.text == (str(found.lanes().index(lane)) if lane in found.lanes() else "")
    assert "2, 3 of the register" in view.text(found)


@pytest.mark.parametrize("kind", ["mxfp8", "mxfp4", "nvfp4"])
def test_every_lane_of_sm_120_is_told(kind):
    """Rows 0 to 7 of A from lanes 0, 4 … 28, rows 8 to 15 from the lanes beside them; columns of B from lanes 0, 4 … 28."""
    told = " ".join(view.text(ts.scale_layout(128, 256, kind), width=80).split())
    assert "A from lanes 0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29 (rows 0 to 15)" in told
    assert "B from lanes 0, 4, 8, 12, 16, 20, 24, 28 (columns 0 to 7)" in told
    assert "…" not in told.split("sm_120")[1].split("basis")[0]


def test_columns_of_b_in_a_pair_are_told_where_they_are_fewer():
    told, narrow = (" ".join(view.text(ts.scale_layout(n, 256, "nvfp4"), width=80).split()) for n in (256, 128))
    assert "B of a pair with m = 128: 16" in told
    assert "4 for each word" in told
    assert "as B of a pair" not in narrow
