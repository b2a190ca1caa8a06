"""Figures of thousands of cells: few nodes, and what the mouse, the keys and a pin say of a cell is what the library says."""

import re

import pytest

import tilescope as ts

pytestmark = pytest.mark.browser
TWO = "/layout?text=(128,128):(128,1)&element_bits=16&other=(128,128):(1,128)"


def middle_of(page, figure, line, column):
    """Where a cell of a painted figure lies in the window."""
    return page.evaluate(
        """([figure, line, column]) => {
            const box = document.querySelectorAll("#drawing .cells-box")[figure], svg = box.querySelector(".paint");
            const told = JSON.parse(box.querySelector(".painted-cells").textContent), area = svg.getBoundingClientRect();
            const scale = area.width / svg.viewBox.baseVal.width;
            return [area.left + (told.lefts[column] + told.width / 2) * scale, area.top + (told.tops[line] + told.height / 2) * scale];
        }""",
        [figure, line, column],
    )


def test_two_tiles_of_128_x_128_are_few_nodes_and_every_cell_is_found(open_page):
    page = open_page(TWO)
    assert page.evaluate("document.querySelectorAll('*').length") < 1500
    first, second = ts.Layout((128, 128), 16), ts.Layout((128, 128), 16, major="MN")
    for mn, k in ((0, 0), (17, 100), (127, 3)):
        page.mouse.move(*middle_of(page, 0, mn, k))
        assert f"mn {mn}, k {k}: at {first.address(mn, k):#x}" in page.locator("#readout").inner_text()
        partner = page.locator("rect.partner title").text_content()
        assert f"mn {mn}, k {k}: at {second.address(mn, k):#x}" in partner
    page.mouse.move(2, 2)
    assert page.locator(".marks rect").count() == 0


@pytest.mark.slow
def test_a_cell_of_a_painted_figure_is_pinned_and_another_by_keys(open_page):
    page = open_page(TWO)
    page.mouse.click(*middle_of(page, 0, 5, 7))
    page.wait_for_url(re.compile("pin=0.5.7"))
    sentence = page.locator("#readout").inner_text()
    page.reload()
    assert page.locator("#readout").inner_text() == sentence
    page.locator(".cells-box").first.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):  # the first press visits the first cell
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("pin=0.5.7,0.1.1"))
    assert page.locator("rect.pinned").count() == 2


@pytest.mark.slow
def test_texts_stand_where_the_figure_is_scrolled_to(open_page):
    page = open_page("/layout?text=(256,256):(256,1)&element_bits=16")
    box = page.locator(".cells-box").first
    last = str(255 * 32 + 31)  # the place that holds the last 16 bytes
    assert box.get_by_text(last, exact=True).count() == 0
    box.evaluate("box => { box.scrollTop = box.scrollHeight; }")
    box.get_by_text(last, exact=True).wait_for()
    assert box.locator("text").count() < 3000


@pytest.mark.slow
def test_the_box_of_a_large_tensor_is_dragged(open_page):
    page = open_page("/load?dims=256,160&box=64,32&coords=0,0")
    page.mouse.move(*middle_of(page, 0, 3, 1))
    page.mouse.down()
    page.mouse.move(*middle_of(page, 0, 8, 3), steps=4)
    assert page.locator("#readout").inner_text() == "coordinates 16,5"
    page.mouse.up()
    page.locator("#field-coords").and_(page.locator("input")).wait_for()
    page.locator("body:not(.busy)").wait_for()
    assert page.locator("#field-coords").input_value() == "16,5"
