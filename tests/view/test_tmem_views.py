"""The drawings of tensor memory say what the values say."""

import numpy as np
import pytest

import tilescope as ts
from tilescope import view
from tilescope.mma.datapath import DATAPATHS
from tilescope.mma.tmem_address import TmemAddress


def numbers(text):
    """The numbers of a span: 0-15, or 7."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


@pytest.mark.parametrize("letter", DATAPATHS)
def test_every_cell_names_what_lies_there(letter):
    path = DATAPATHS[letter]
    layout = ts.tmem_layout(
        (path.m, 64), cta_group=path.cta_group, ws=path.ws == (True,), sparse=path.sparse == (True,)
    )
    element = (path.m - 3, 41)
    marked = []
    drawing = view.draw(layout, element=element)
    assert f"layout {letter}" in drawing.title
    words = layout.bit_addresses()[..., 0] >> 5
    for cta in range(path.cta_group):
        grid = drawing[f"block {cta}"]
        lies = {
            (int(word) >> 16, int(word) & 0xFFFF): (row + cta * path.rows, column)
            for (row, column), word in np.ndenumerate(words)
        }
        columns = [numbers(header.text) for header in grid.tiers[0].headers]
        assert len(grid.rows) == 8
        for row in grid.rows:
            lanes = numbers(row.labels[1])
            for cell, across in zip(row.cells, columns, strict=True):
                drawn = {(m, n) for m in numbers(row.labels[2]) for n in numbers(cell.text)} if cell.text else set()
                there = {lies.get((lane, column)) for lane in lanes for column in across} - {None}
                assert drawn == there
                if cell.mark:
                    marked.append((cta, lanes, across))
    place = layout.place(*element)
    ((cta, lanes, across),) = marked
    assert cta == place.cta
    assert place.lanes[0] in lanes
    assert place.column in across


def test_elements_that_share_a_cell_are_all_named():
    grid = view.draw(ts.tmem_layout((128, 64), operand="A", data_type="e4m3"))["block 0"]
    assert [cell.text for cell in grid.rows[0].cells] == ["0-15", "16-31", "32-47", "48-63"]


def test_an_element_is_told_with_its_address():
    text = view.text(ts.tmem_layout((128, 128), cta_group=2), element=(70, 100))
    for said in ("block    1 of the pair", "lane     70", "column   36", "address  0x00460024", "2 (mod 4) reaches it"):
        assert said in text
    copies = view.text(ts.tmem_layout((128, 64), operand="A", cta_group=2), width=200, element=(3, 5))
    assert "lanes    3, 67" in copies
    assert "bits 16-31 of the cell" in copies
    assert "Every element is there 2 times." in copies
    assert "one source: TVM" in view.text(ts.tmem_layout((64, 64), operand="A", ws=True))


def test_allocations_and_budgets_are_drawn():
    memory = ts.TensorMemory().alloc(32).alloc(128)
    grid = view.draw(memory)["columns"]
    owners = [cell.text for row in grid.rows for cell in row.cells]
    assert owners == ["0", *["free"] * 3, *["1"] * 4, *["free"] * 8]
    assert "160 of 512 columns allocated" in view.text(memory)
    assert "should not grow" in view.text(memory, width=100)
    assert "given up" in view.text(memory.relinquish())
    budget = ts.TensorMemory.budget({"D": (ts.tmem_layout((64, 256)), 2), "A": ts.tmem_layout((128, 64), operand="A")})
    assert "0-255, from lane 16" in view.text(budget)
    assert "tcgen05.alloc 512 columns" in view.text(budget)
    full = ts.TensorMemory.budget({"D": (ts.tmem_layout((128, 256)), 3)})
    assert "does not fit" in view.text(full)
    assert "no room" in view.text(full)


def test_verdicts_and_addresses_are_drawn():
    warned = ts.compatible(ts.tmem_layout((128, 64)), "tcgen05.ld.32x32b.x64", warp=1, address=0)
    assert "agrees; warning: lane-quarter" in view.text(warned)
    assert "0x00200000" in view.text(warned)
    wrong = ts.compatible(ts.tmem_layout((128, 64)), "tcgen05.ld.32x32b.x64", warp=1, address=0x00200040)
    assert "does not agree: columns" in view.text(wrong)
    assert "lane 96 of 128: quarter 3" in view.text(TmemAddress(96, 37))


@pytest.mark.parametrize("form", ["32x32b.x8", "16x64b.x4", "16x128b.x2", "16x256b.x2.pack::16b", "16x32bx2.x4"])
def test_fragments_of_loads_name_lanes_and_columns(form):
    held = ts.fragment(f"tcgen05.ld.{form}")
    drawing = view.draw(held, lane=5)
    assert "(lane x column)" in drawing.title
    assert "operand" not in drawing.title
    assert np.prod(held.shape) * held.matrices == held.threads * held.values
    assert "Thread 5 holds" in view.text(held, lane=5)


@pytest.mark.parametrize(("address", "free"), [(0, 16), (16 << 16, 0)])
def test_a_second_accumulator_fits_where_the_first_is_not(address, free):
    layout = ts.tmem_layout((64, 64), address=address)
    assert f"lane {free}." in view.text(layout)
    assert not {free, free + 15} & {*layout.lanes}
