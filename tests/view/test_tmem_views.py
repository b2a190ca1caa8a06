"""The drawings of tensor memory and scale factors say what the values say."""

import numpy as np
import pytest

import tilescope as ts
from tilescope import view
from tilescope.mma.datapath import DATAPATHS
from tilescope.mma.scale_layout import ScaleLanes
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
    assert "Every element lies there 2 times." in copies
    assert "one source: TVM" in view.text(ts.tmem_layout((64, 64), operand="A", ws=True))


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


@pytest.mark.parametrize("kind", ["mxfp8", "mxfp4", "nvfp4"])
def test_every_lane_of_sm_120_is_told(kind):
    """Rows 0 to 7 of A from lanes 0, 4 … 28, rows 8 to 15 from the lanes beside them; columns of B from lanes 0, 4 … 28."""
    told = " ".join(view.text(ts.scale_layout(128, 256, kind), width=80).split())
    assert "A from lanes 0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29 (rows 0 to 15)" in told
    assert "B from lanes 0, 4, 8, 12, 16, 20, 24, 28 (columns 0 to 7)" in told
    assert "…" not in told.split("sm_120")[1].split("basis")[0]


def test_columns_of_b_in_a_pair_are_told_where_they_are_fewer():
    told, narrow = (" ".join(view.text(ts.scale_layout(n, 256, "nvfp4"), width=80).split()) for n in (256, 128))
    assert "as B of a pair with m = 128: 16, 4 for each word" in told
    assert "as B of a pair" not in narrow


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
    assert f"a second accumulator fits in at lane {free}." in view.text(layout)
    assert not {free, free + 15} & {*layout.lanes}
