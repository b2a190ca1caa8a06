"""The drawing of a copy, whole, and what its cells say."""

from textwrap import dedent

import pytest

import tilescope as ts
from tilescope import view
from tilescope.view.grid import Grid
from tilescope.view.parts import Beside, Legend


def grids(trace, **options):
    beside = next(part for part in view.draw(trace, **options).parts if isinstance(part, Beside))
    return [part for part in beside.parts if isinstance(part, Grid)]


def test_a_copy_cut_by_both_edges_whole():
    a = ts.TensorMap("f16", (20, 5), (64,), (16, 3), swizzle="64B")
    assert [line.rstrip() for line in view.text(ts.trace(a, (8, 3)), width=80).splitlines()] == dedent("""\
        Load of a box at (8, 3) to shared address 0x0

        The copy in the tensor
        dim 1 dim 0   0     8     16
            0         ·     ·     ·
            1         ·     ·     ·
            2         ·     ·     ·
            3         ·    0.0   0.1
            4         ·    1.0   1.1
            5             (2.0) (2.1)
        A cell is 8 x 1 elements.

        Shared memory, swizzle 64B
                bank   0    4    8   12   16   20   24   28
          byte chunk   0    1    2    3    4    5    6    7
        0x0000        0.0 0.1~   -    -   1.0 1.1~   -    -
        0x0080       fill fill   -    -    -    -    -    -

         0.0  row 0; every row has its colour, and a cell says row.chunk
         fill  outside the tensor: filled with zero
         (2.0)  the part of the copy that lies outside the tensor
         0.0~  the tensor ends within the chunk; the rest is outside
         -  not part of the copy: keeps its bytes

        tensor    float16, dims (20, 5), strides (64,) bytes
        copy      3 rows of 32 bytes, 64 bytes apart
        mbarrier  expect_tx 96 bytes
        written   96 bytes of shared memory
        outside   1 of 3 rows and 8 bytes of the other 2: filled
        basis     measured
        """).splitlines()


def test_each_cell_of_shared_memory_names_the_row_and_chunk_that_lie_there():
    a = ts.TensorMap("bf16", (64, 64), (128,), (64, 16), swizzle="128B")
    trace = ts.trace(a, (0, 8), smem_address=0x480)
    _, shared = grids(trace)
    for line, row in enumerate(shared.rows):
        for place, cell in enumerate(row.cells):
            address = 0x480 + line * 128 + place * 16
            origin = trace.element_at(address)
            assert (cell.text, cell.colour) == (f"{origin.row}.{origin.coords[0] // 8}", origin.row)
            assert f"elements {origin.coords} to" in cell.title


def test_a_store_marks_what_it_overruns():
    a = ts.TensorMap("u8", (20, 4), (32,), (32, 2))
    trace = ts.trace(a, (0, 3), operation="store")
    _, shared = grids(trace)
    assert [cell.mark for cell in shared.rows[0].cells] == ["", "collision", *[""] * 6]
    assert [cell.text for cell in shared.rows[0].cells] == ["0.0", "0.1", "drop", "drop", "-", "-", "-", "-"]
    assert "24 bytes" not in view.text(trace)
    assert "12 bytes behind the rows' ends are overwritten" in view.text(trace)


def test_a_column_of_pixels_is_drawn_in_its_image():
    a = ts.Im2colMap.for_convolution(
        1, 4, 4, 16, 3, 3, pad=1, data_type="f16", channels_per_pixel=16, pixels_per_column=6
    ).tensor_map
    plane, _ = grids(ts.trace(a, (0, 1, -1, 0)))
    assert [[cell.text for cell in row.cells] for row in plane.rows] == [
        ["", "", "(0)", "(1)", ""],
        ["(2)", "3", "4", "5", "·"],
        ["", "·", "·", "·", "·"],
        ["", "·", "·", "·", "·"],
        ["", "·", "·", "·", "·"],
    ]


def test_a_box_in_a_large_tensor_is_a_spot_to_scale():
    a = ts.TensorMap("bf16", (4096, 4096), (8192,), (64, 64), swizzle="128B")
    plane, shared = grids(ts.trace(a, (2048, 1024)))
    spots = [
        (row, column)
        for row, cells in enumerate(plane.rows)
        for column, cell in enumerate(cells.cells)
        if cell.text == "box"
    ]
    assert spots == [(4, 8)]
    assert len(shared.rows) == 32
    assert shared.notes == ("32 more lines are not drawn.",)
    assert len(grids(ts.trace(a, (2048, 1024)), lines=None)[1].rows) == 64


@pytest.mark.parametrize(("options", "sample"), [
    ({"swizzle": "128B_ATOM_32B_FLIP_8B", "arch": "sm_100"}, "0.0x"), ({"swizzle": "128B"}, "0.0"),
])  # fmt: skip
def test_the_legend_has_what_the_drawing_has(options, sample):
    a = ts.TensorMap("bf16", (64, 64), (128,), (64, 4), **options)
    drawing = view.draw(ts.trace(a, (0, 0)))
    (legend,) = [part for part in drawing.parts if isinstance(part, Legend)]
    assert [entry.sample for entry in legend.entries] == ["0.0", "0.0x"][: 1 + (sample == "0.0x")]
    assert "<svg" in drawing.svg()


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("interleave", ["none", "16B"])
def test_every_rank_can_be_drawn(rank, interleave):
    if interleave != "none" and rank < 3:
        pytest.skip("an interleaved tensor has three dimensions or more")
    a = ts.TensorMap("u16", (8,) * rank, (128,) * (rank - 1), (8, *[2] * (rank - 1)), interleave=interleave)
    assert "Shared memory" in view.text(ts.trace(a, (0,) * rank))
