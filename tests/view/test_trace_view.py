"""The drawing of a copy, whole, and what its cells say."""

import re
from textwrap import dedent

import pytest

import tilescope as ts
from tilescope import view
from tilescope.tma.place import place_of


def grids(trace, **options):
    drawing = view.draw(trace, **options)
    return drawing["plane"], drawing["memory"]


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
         (2.0)  the part of the copy outside the tensor
         0.1~  the tensor ends within the chunk; the rest is outside
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
    assert "12 bytes behind the rows' ends" in view.text(trace)


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


def cells_of(grid):
    """(first of dim 1, first of dim 0) of every cell, with its text."""
    starts = [int(header.text) for header in grid.tiers[-1].headers]
    return {
        (int(row.labels[0]), start): cell.text
        for row in grid.rows
        for start, cell in zip(starts, row.cells, strict=True)
    }


@pytest.mark.thinned(3)
@pytest.mark.parametrize("coords", [(2048, 1024), (128, 256), (0, 0), (4064, -10), (4032, 4032), (-64, 4090)])
def test_a_box_in_a_large_tensor_has_cells_of_its_own(coords):
    """A box of 64 x 64 filled a cell of 512 x 512."""
    a = ts.TensorMap("bf16", (4096, 4096), (8192,), (64, 64), swizzle="128B")
    plane, shared = grids(ts.trace(a, coords))
    cells = cells_of(plane)
    edges = [sorted({place[axis] for place in cells} | {4096, coords[1 - axis] + 64}) for axis in (0, 1)]
    copied = 0
    for (down, across), text in cells.items():
        ends = edges[0][edges[0].index(down) + 1], edges[1][edges[1].index(across) + 1]
        inside = 0 <= down < 4096 and 0 <= across < 4096
        places = zip(coords[::-1], (down, across), ends, strict=True)
        boxed = all(first <= at and end <= first + 64 for first, at, end in places)
        assert text == ("box" if inside else "(box)") if boxed else text in ("·", ""), (down, across)
        copied += boxed * (ends[0] - down) * (ends[1] - across)
    assert copied == 64 * 64
    assert len(shared.rows) == 32
    assert shared.notes == ("Drawn: 32 of 64 lines.",)
    assert len(grids(ts.trace(a, coords), lines=None)[1].rows) == 64


def test_rows_that_are_gathered_have_cells_of_their_own():
    a = ts.TensorMap("bf16", (4096, 4096), (8192,), (64, 1), arch="sm_100")
    plane, shared = grids(ts.trace(a, (64, 5, 900, 6, 3000), operation="gather4"), lines=3)
    assert [place for place, text in cells_of(plane).items() if text == "box"] == [(5, 64), (900, 64), (3000, 64)]
    assert shared.notes == ("Drawn: 3 of 4 lines.",)


def test_pixels_of_a_large_image_have_cells_of_their_own():
    a = ts.Im2colMap(
        "f16",
        (64, 56, 56, 8),
        (128, 7168, 401408),
        lower_corner=(-1, -1),
        upper_corner=(-1, -1),
        channels_per_pixel=64,
        pixels_per_column=128,
        swizzle="128B",
    )
    plane, _ = grids(ts.trace(a, (0, 50, -1, 0)))
    held = {place: text for place, text in cells_of(plane).items() if text not in ("·", "")}
    # five pixels of line -1, two whole lines of 56 (W -1 to 54), eleven pixels of line 2
    assert held == {
        (-1, 50): "(0)",
        (0, -1): "(5)",
        (0, 0): "6",
        (0, 10): "16",
        (0, 50): "56",
        (2, -1): "(117)",
        (2, 0): "118",
    }


def legend_of(trace):
    return [(entry.sample, entry.text) for entry in view.draw(trace)["legend"].entries]


def test_the_legend_says_that_eight_colours_repeat():
    for rows, said in ((8, "every row has its colour"), (9, "the eight colours repeat")):
        a = ts.TensorMap("bf16", (64, 16), (128,), (64, rows), swizzle="128B")
        (key,) = [text for mark, text in legend_of(ts.trace(a, (0, 0))) if mark == "0.0"]
        assert key.startswith(f"row 0; {said}")


def test_the_legend_explains_the_numbers_of_pixels():
    a = ts.Im2colMap.for_convolution(
        1, 4, 4, 16, 3, 3, pad=1, data_type="f16", channels_per_pixel=16, pixels_per_column=6
    ).tensor_map
    (key,) = [text for mark, text in legend_of(ts.trace(a, (0, 1, -1, 0))) if mark == "3"]
    assert key.startswith("pixel that becomes row 3; ")


FLIP = {"swizzle": "128B_ATOM_32B_FLIP_8B", "arch": "sm_100"}
DRAWN = {
    # copy: what its cells look like
    "plain": (ts.TensorMap("bf16", (64, 64), (128,), (64, 4), swizzle="128B"), (0, 0), {}, {"0.0"}),
    "one row": (ts.TensorMap("u8", (256,), (), (64,)), (0,), {}, {"0.0", "-"}),
    "one chunk a row": (ts.TensorMap("u8", (16, 64), (16,), (16, 8)), (0, 0), {}, {"0"}),
    "one chunk": (ts.TensorMap("u8", (64,), (), (16,)), (0,), {}, {"0", "-"}),
    "one chunk, cut": (ts.TensorMap("u8", (40,), (), (16,)), (32,), {}, {"0", "0~", "-"}),
    "four bits": (ts.TensorMap("16u4_align16b", (128, 4), (64,), (128, 4), arch="sm_100"), (0, 0), {}, {"0.0"}),
    "six bits": (ts.TensorMap("16u6_align16b", (128, 4), (96,), (128, 4), arch="sm_100"), (0, 0), {}, {"0.0"}),
    "narrow": (ts.TensorMap("u8", (64, 4), (64,), (16, 4), swizzle="32B"), (0, 0), {}, {"0", "-"}),
    "flip": (ts.TensorMap("bf16", (64, 64), (128,), (64, 4), **FLIP), (0, 0), {}, {"0.0", "0.0x"}),
    "a single line": (ts.TensorMap("bf16", (64, 64), (128,), (64, 1), **FLIP), (0, 0), {}, {"0.0"}),
    "an odd line": (ts.TensorMap("bf16", (64, 64), (128,), (64, 1), **FLIP), (0, 0), {"smem_address": 128}, {"0.0x"}),
    "flip, cut": (
        ts.TensorMap("u8", (20, 2), (32,), (32, 2), **FLIP),
        (0, 0),
        {},
        {"0.0", "0.0~", "0.0x", "0.0~x", "-"},
    ),
    "outside": (ts.TensorMap("u8", (64, 4), (64,), (64, 2)), (0, 4), {}, {"fill", "(0.0)"}),
    "overrun": (ts.TensorMap("u8", (20, 4), (32,), (32, 4)), (0, 0), {"operation": "store"}, {"0.0", "overrun"}),
    "dropped": (
        ts.TensorMap("u8", (20, 4), (32,), (48, 4)),
        (0, 0),
        {"operation": "store"},
        {"0.0", "overrun", "drop", "(0.0)", "-"},
    ),
    "pixels": (ts.TensorMap("u16", (8, 2, 2), (128, 256), (8, 1, 1), interleave="16B"), (0, 0, 0), {}, {"0"}),
}


def look(text, mark):
    """What kind of cell it is, whatever its row and chunk are."""
    return "overrun" if mark == "collision" else re.sub(r"\d+", "0", text)


@pytest.mark.parametrize("name", DRAWN)
def test_the_legend_has_what_the_drawing_has_and_nothing_else(name):
    a, coords, options, looks = DRAWN[name]
    trace = ts.trace(a, coords, **options)
    drawing = view.draw(trace)
    legend = drawing["legend"]
    drawn = {look(cell.text, cell.mark) for grid in grids(trace) for row in grid.rows for cell in row.cells}
    assert drawn - {"", "·", "box"} == looks
    explained = [look(entry.sample, entry.mark) for entry in legend.entries]
    wanted = {"box"} & drawn
    for each in looks:  # the name of a chunk, and each sign behind it
        label = each.rstrip("~x")
        wanted |= {label, *(label + sign for sign in each.removeprefix(label))}
    assert sorted(explained) == sorted(wanted)
    assert "row.chunk" not in str(legend) or any("." in each for each in looks)
    assert "<svg" in drawing.svg()


def test_cells_that_hold_several_pixels_are_explained():
    a = ts.TensorMap("u16", (40, 10, 2, 4), (640, 6400, 12800), (16, 4, 1, 2), interleave="16B")
    drawing = view.draw(ts.trace(a, (3, 4, 1, 1)))
    legend = drawing["legend"]
    assert any(entry.text.startswith("pixel that becomes row 0; ") for entry in legend.entries)
    plane, _ = grids(ts.trace(a, (3, 4, 1, 1)))
    assert any(note.endswith("every 4 of W.") for note in plane.notes)
    edges = [int(header.text) for header in plane.tiers[-1].headers]
    assert all(edge % 4 == 0 for edge in edges if edge not in (3, 19))


def test_the_halves_of_odd_lines_are_exchanged_and_marked_wherever_the_tensor_ends():
    for dims in range(1, 33):
        a = ts.TensorMap("u8", (dims, 4), (32,), (32, 4), **FLIP)
        for start in (0, 128):
            _, shared = grids(ts.trace(a, (0, 0), smem_address=start))
            for line, row in enumerate(shared.rows, start // 128):
                named = [cell.text for cell in row.cells if cell.text not in ("-", "fill")]
                assert named
                assert all(text.endswith("x") == (line % 2 == 1) for text in named), (dims, line, named)


def test_bytes_that_a_store_overruns_are_not_dropped():
    def said(inner, row):
        a = ts.TensorMap("u8", (20, 4), (32,), (inner, 4))
        facts = dict(view.draw(ts.trace(a, (0, row), operation="store"))["facts"].rows)
        return facts.get("outside"), facts.get("overrun", "")[:8]

    assert said(32, 0) == (None, "48 bytes")
    assert said(48, 0) == ("16 bytes of every row: dropped", "48 bytes")
    outside, overrun = said(48, 2)
    assert re.findall(r"\d+", outside) == ["2", "4", "16", "2"]
    assert overrun == "24 bytes"
    assert said(32, 2) == ("2 of 4 rows: dropped", "24 bytes")
    assert said(32, 4) == ("4 of 4 rows: dropped", "")
    assert said(16, 0) == (None, "")


@pytest.mark.parametrize(
    ("rank", "interleave"),
    [
        *((rank, "none") for rank in range(1, 6)),
        *((rank, "16B") for rank in range(3, 6)),  # an interleaved tensor has three dimensions or more
    ],
)
def test_every_rank_can_be_drawn(rank, interleave):
    a = ts.TensorMap("u16", (8,) * rank, (128,) * (rank - 1), (8, *[2] * (rank - 1)), interleave=interleave)
    assert "Shared memory" in view.text(ts.trace(a, (0,) * rank))


def test_what_is_asked_for_is_marked_on_both_sides():
    a = ts.TensorMap("bf16", (64, 16), (128,), (64, 8), swizzle="128B")
    trace = ts.trace(a, (0, 8), smem_address=0x480)
    place = place_of(trace, 3, 9)
    tensor, shared = grids(trace, places=(place,))
    for grid in (tensor, shared):
        (marked,) = [cell for row in grid.rows for cell in row.cells if cell.mark]
        assert (marked.text, marked.mark) == ("3.1", "focus")
    (line, chunk) = divmod(place.address - 0x480, 128)
    assert shared.rows[line].cells[chunk // 16].mark == "focus"
    assert "3.1*  what was asked for" in view.text(trace, places=(place,))
