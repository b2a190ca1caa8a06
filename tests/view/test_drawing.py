"""Parts of a drawing have names; figures can be had alone; a walk marks cells that the drawing has."""

import pytest

import tilescope as ts
from tilescope import view
from tilescope.layout import Modes
from tilescope.mma.consumer import tcgen05_descriptors, wgmma_descriptors
from tilescope.mma.fragment import fragment
from tilescope.swizzle import SWIZZLE
from tilescope.view.drawing import Beside, Drawing, Table
from tilescope.view.drawing_parts import Entry, Legend
from tilescope.view.grid import Cell, Grid, Row

GRID = Grid("A grid", (), (Row((), (Cell("1"),)),))
FACTS = Table({"size": "8 bytes"})


def names(drawing):
    return [name for name, _ in drawing.named]


def test_what_is_empty_is_left_out_and_a_tuple_is_several_parts_of_one_name():
    drawing = Drawing(
        "", {"none": None, "empty": "", "no rows": Table({}), "notes": ("one", "", "two"), "facts": FACTS}
    )
    assert drawing.named == (("notes", "one"), ("notes", "two"), ("facts", FACTS))


def test_a_part_is_found_alone_or_beside_others():
    drawing = Drawing("", {"said": "words", "grids": Beside({"left": GRID, "right": FACTS})})
    assert drawing["said"] == "words"
    assert drawing["left"] is GRID
    assert drawing["grids"].parts == (GRID, FACTS)
    with pytest.raises(KeyError, match="'nothing'"):
        drawing["nothing"]


def test_what_would_stand_beside_nothing_stands_alone():
    assert Drawing("", {"grids": Beside({"left": GRID, "right": None})}).named == (("left", GRID),)


def test_parts_are_left_out_and_added_by_name():
    drawing = Drawing("", {"a": "1", "b": "2", "c": "3"})
    assert names(drawing.without("a", "c")) == ["b"]
    assert names(drawing.with_parts({"d": "4"})) == ["a", "b", "c", "d"]
    assert names(drawing.with_parts({"d": ("4", "5")})) == ["a", "b", "c", "d", "d"]
    assert names(drawing) == ["a", "b", "c"]


def test_figures_are_grids_rulers_and_what_explains_them():
    legend = Legend((Entry("a chunk", 0),))
    beside = Beside({"grid": GRID, "facts": FACTS})
    drawing = Drawing("", {"said": "words", "beside": beside, "legend": legend, "key": "A cell is …", "facts": FACTS})
    assert drawing.figures().named == (("grid", GRID), ("legend", legend), ("key", "A cell is …"))
    assert names(view.draw(ts.Swizzle.named("128B")).figures()) == ["grids"]
    assert names(view.draw(ts.inspect_descriptor(0x4000004000010040)).figures()) == ["ruler"]


COPY = ts.trace(ts.TensorMap("bf16", (64, 16), (128,), (64, 8), swizzle="128B"), (0, 4))
WALKED = {
    "swizzle": (SWIZZLE["128B"], {}),
    "swizzle from an address": (SWIZZLE["64B"], {"address": 0x480}),
    "copy": (COPY, {"lines": 256, "exact": (32, 160)}),
    "fragment": (fragment("mma.m16n8k16", "A", "bf16"), {"lane": 5}),
    "modes": (Modes(((4, 8), (2, 2)), ((32, 1), (16, 8))), {"shape": (16, 8)}),
    "wgmma": (wgmma_descriptors((128, 64), "bf16", swizzle="128B"), {"chunks": True}),
    "tcgen05": (tcgen05_descriptors((256, 64), "bf16", swizzle="128B", cta_group=2), {"chunks": True}),
}


@pytest.mark.parametrize("name", WALKED)
def test_every_step_of_a_walk_marks_cells_of_the_drawing(name):
    value, options = WALKED[name]
    links = set()
    for part in view.draw(value, **options).figures().parts:
        for grid in part.parts if isinstance(part, Beside) else [part]:
            for row in grid.rows if isinstance(grid, Grid) else ():
                links |= {word for cell in row.cells for word in cell.link.split()}
    steps = view.walk(value, **options)
    assert steps
    for step in steps:
        assert step.sentence
        assert set(step.links.split()) <= links


def test_a_value_without_a_walk_has_no_steps():
    assert view.walk(ts.TensorMap("u8", (64,), (), (64,))) == ()
    assert view.walk(ts.Card.named("H200")) == ()


def test_a_grid_of_any_extent_takes_the_rows_that_are_drawn():
    extent = 1 << 60
    asked = ([extent - 1], [])
    grid = Grid.of(
        "", ("row", "k"), range(extent), range(extent), lambda a, b: Cell(str(a - b)), most=(4, 2), asked=asked
    )
    assert [row.labels for row in grid.rows] == [(str(extent - 4 + place),) for place in range(4)]
    assert [cell.text for cell in grid.rows[-1].cells] == [str(extent - 1), str(extent - 2)]
    assert grid.notes == (f"Drawn: rows {extent - 4} to {extent - 1} of {extent} and 2 of {extent} columns.",)
