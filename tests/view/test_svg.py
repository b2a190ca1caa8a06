"""SVG documents are sound, say what the drawing says, and no text lies on another."""

import itertools
import json
import re
import subprocess
import xml.etree.ElementTree as ET

import pytest

from tilescope.view.drawing import Drawing
from tilescope.view.drawing_parts import Beside
from tilescope.view.grid import Cell, Grid, Row, Tier
from tilescope.view.palette import colour_of
from tilescope.view.svg_shapes import Area, draw_frame
from tilescope.view.table import Table

SMALLEST_TEXT = 11  # pixels


def grids(parts):
    for part in parts:
        if isinstance(part, Grid):
            yield part
        elif isinstance(part, Beside):
            yield from grids(part.parts)


def overlapping(boxes):
    """Pairs of texts whose boxes meet, found by a sweep from top to bottom."""
    boxes = sorted((box for box in boxes if box.text.strip()), key=lambda box: box.top)
    for number, one in enumerate(boxes):
        for other in boxes[number + 1 :]:
            if other.top >= one.bottom:
                break
            if one.left < other.right and other.left < one.right:
                yield one, other


def test_the_sweep_finds_texts_that_overlap(read_svg):
    source = Drawing("x", {"words": "some words"}).svg().replace('<text y="14">', '<text y="-24">')
    assert [(one.text, other.text) for one, other in overlapping(read_svg(source).texts)] == [("x", "some words")]


def test_no_text_lies_on_another_or_leaves_the_page(sample, read_svg):
    page = read_svg(sample.svg())
    assert [(one.text, other.text) for one, other in overlapping(page.texts)] == []
    width, height = page.size
    for box in page.texts:
        assert box.left >= 0, box
        assert box.right <= width, box
        assert box.top >= 0, box
        assert box.bottom <= height, box


def test_all_text_is_large_enough(sample, read_svg):
    assert min(box.size for box in read_svg(sample.svg()).texts) >= SMALLEST_TEXT


def test_cell_text_stays_inside_its_cell(sample, read_svg):
    page = read_svg(sample.svg())
    bands = {(cell.top, cell.height): [] for row in page.rows for cell in row}
    for (top, height), texts in bands.items():
        texts += [box for box in page.texts if top < (box.top + box.bottom) / 2 < top + height]
    for row in page.rows:
        for cell in row:
            for box in bands[cell.top, cell.height]:
                if cell.left < (box.left + box.right) / 2 < cell.left + cell.width:
                    assert cell.left <= box.left, (cell, box)
                    assert box.right <= cell.left + cell.width, (cell, box)


def test_every_cell_shows_its_text_colour_mark_and_tooltip(sample, read_svg):
    for grid in grids(sample.parts):
        page = read_svg(Drawing("", {"grid": grid}).svg())
        for row, shown in zip(grid.rows, page.rows, strict=True):
            assert [cell.text for cell in row.cells] == [cell.text for cell in shown]
            assert [colour_of(cell.colour).fill for cell in row.cells] == [cell.fill for cell in shown]
            assert [cell.mark for cell in row.cells] == [cell.mark for cell in shown]
            assert [cell.title for cell in row.cells] == [cell.title for cell in shown]
            inks = [colour_of(cell.colour).ink for cell in row.cells if cell.text]
            assert inks == [cell.ink for cell in shown if cell.text]


def test_cells_of_a_row_touch_and_do_not_overlap(sample, read_svg):
    for row in read_svg(sample.svg()).rows:
        for left, right in itertools.pairwise(row):
            assert 0 <= right.left - (left.left + left.width) <= 6, (left, right)


@pytest.mark.parametrize(("columns", "rows"), [(25, 2), (2, 41), (24, 40)])
def test_grids_beside_each_other_have_cells_of_one_height(read_svg, columns, rows):
    few, many = (
        Grid("", (), tuple(Row(("",), tuple(Cell("1") for _ in range(across))) for _ in range(down)))
        for across, down in ((2, 2), (columns, rows))
    )
    page = read_svg(Drawing("", {"grids": Beside({"few": few, "many": many})}).svg())
    dense = (columns, rows) != (24, 40)
    assert {cell.height for row in page.rows for cell in row} == {18 if dense else 25}


def test_a_right_aligned_column_ends_in_one_line(read_svg):
    numbers = ("1", "128", "1111111", "+32 B")
    table = Table(((number, "x") for number in numbers), ("m", "n"), align="rl")
    page = read_svg(Drawing("", {"table": table}).svg())
    assert len({round(box.right, 6) for box in page.texts if box.text in ("m", *numbers)}) == 1


def test_the_document_stands_alone(sample):
    source = sample.svg()
    root = ET.fromstring(source)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    assert root.find("{http://www.w3.org/2000/svg}title").text == sample.title
    assert not re.search(r"<script|href|@import|src=|url\((?!#tilescope)", source)
    assert source.count("http") == 1  # the namespace
    background = root.find("{http://www.w3.org/2000/svg}rect")
    assert (background.get("width"), background.get("fill")) == ("100%", "#ffffff")
    ids = re.findall(r' id="([^"]+)"', source)
    assert all(name.startswith("tilescope-") for name in ids)  # several drawings may share a page


def test_the_style_touches_nothing_else_on_a_page(sample):
    sheet = re.search("<style>(.*)</style>", sample.svg())[1]
    selectors = [each for found in re.findall(r"([^{}]+)\{", sheet) for each in found.split(",")]
    assert all(selector.startswith(".tilescope ") for selector in selectors), selectors


def test_foreign_text_is_escaped(read_svg):
    nasty = 'a<b & "c" \x00\x1b ]]> \u2028'
    grid = Grid(nasty, (Tier.of(nasty, [nasty]),), (Row((nasty,), (Cell(nasty, 1, title=nasty),)),), (nasty,), (nasty,))
    page = read_svg(Drawing(nasty, {"grid": grid, "words": nasty}).svg())
    assert page.rows[-1][-1].title.startswith('a<b & "c" \ufffd\ufffd ]]>')


def test_eight_thousand_cells_stay_below_a_megabyte():
    cells = [
        tuple(Cell(str(m * 64 + k & 31), m * 64 + k & 31, title=f"m {m}, k {k}") for k in range(64)) for m in range(128)
    ]
    tiers = (Tier.of("chunk", range(8), span=8), Tier.of("k", range(64)))
    grid = Grid("", tiers, tuple(Row((str(m),), row) for m, row in enumerate(cells)), ("m",))
    assert len(Drawing("An operand", {"grid": grid}).svg().encode()) < 1_000_000


def test_every_bit_of_a_ruler_is_drawn_once(parts, read_svg):
    ruler = parts["descriptor"]()
    page = read_svg(Drawing("", {"ruler": ruler}).svg())
    boxes = [cell for row in page.rows for cell in row]
    lines = {}
    for cell in boxes:
        lines.setdefault(cell.top, []).append(cell)
    assert len(lines) == sum(bool(row.fields) for row in ruler.rows())
    for cells in lines.values():
        cells.sort(key=lambda cell: cell.left)
        assert sum(cell.width for cell in cells) == 64 * 14.5
        for left, right in itertools.pairwise(cells):
            assert right.left == left.left + left.width
    marked = [cell for cell in boxes if cell.mark]
    assert [(cell.title, cell.mark) for cell in marked] == [("bits 17-18: L2 promotion = 2 (128B)", "collision")]


def test_a_line_inside_a_frame_does_not_cross_the_digits_of_a_narrow_cell():
    narrow, wide = (draw_frame(Area(0, 0, width, 18), 0, mark="collision") for width in (16, 28))
    assert "frame collision" in narrow
    assert "halo" not in narrow
    assert "halo" in wide


OVERLAPS = """
<script>
const found = [];
for (const svg of document.querySelectorAll("svg")) {
  const boxes = [...svg.querySelectorAll("text")].map(text => [text.textContent, text.getBoundingClientRect()]);
  const page = svg.getBoundingClientRect();
  boxes.sort((one, other) => one[1].top - other[1].top);
  boxes.forEach(([text, box], number) => {
    if (box.left < page.left || box.right > page.right || box.bottom > page.bottom) found.push([svg.id, text, "page"]);
    for (let next = number + 1; next < boxes.length && boxes[next][1].top + 4 < box.bottom; next++) {
      const other = boxes[next][1];
      if (box.left + 0.5 < other.right && other.left + 0.5 < box.right) found.push([svg.id, text, boxes[next][0]]);
    }
  });
  for (const cell of svg.querySelectorAll(".cells")) for (const text of cell.querySelectorAll("text")) {
    const box = text.getBoundingClientRect(), middle = (box.left + box.right) / 2;
    const around = [...cell.querySelectorAll("rect:not(.frame):not(.halo)")].map(rect => rect.getBoundingClientRect())
      .find(rect => rect.left < middle && middle < rect.right);
    if (!around || box.left < around.left || around.right < box.right) found.push([svg.id, text.textContent, "cell"]);
  }
}
document.body.innerHTML = "<pre id=found></pre>";
document.getElementById("found").textContent = JSON.stringify(found);
</script>
"""


@pytest.mark.slow
@pytest.mark.browser
def test_a_browser_finds_no_text_on_another(samples, require, tmp_path):
    chromium = require("browser")
    page = tmp_path / "page.html"
    body = "".join(drawn.svg().replace("<svg ", f'<svg id="{name}" ', 1) for name, drawn in samples.items())
    page.write_text(f"<!doctype html><meta charset=utf-8><body>{body}{OVERLAPS}", "utf-8")
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        f"--user-data-dir={tmp_path}/data",
    ]
    said = subprocess.run(
        [chromium, *options, "--dump-dom", page.as_uri()], capture_output=True, text=True, check=True, timeout=600
    )
    assert json.loads(re.search("<pre id=.?found.?>(.*)</pre>", said.stdout)[1]) == []
