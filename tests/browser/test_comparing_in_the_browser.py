"""What people do on the pages that compare, on the newer pages, and with a figure that they take along."""

import re
import xml.etree.ElementTree as ET
from urllib.parse import parse_qs, urlsplit

import pytest
from browser_page import address_of, settled

import tilescope as ts

pytestmark = pytest.mark.browser


def cell(page, number, grid=0):
    """A cell of a figure, counted row by row."""
    return page.locator("figure .cells-box").nth(grid).locator("g.cells rect:not(.frame, .halo)").nth(number)


def test_a_state_is_kept_on_the_left_while_the_right_one_is_edited(open_page):
    page = open_page("/swizzle?mode=128B")
    page.get_by_role("link", name="Compare").click()
    page.get_by_role("heading", name="Both sides give the same answer.").wait_for()
    page.get_by_label("Mode").fill("64B")
    page.get_by_role("heading", name=re.compile("mode: 64B instead of 128B")).wait_for()
    settled(page)
    page.wait_for_url(lambda url: parse_qs(urlsplit(url).query) == {"mode": ["64B"], "left": ["/swizzle"]})
    left, right = (page.locator(".side").nth(number) for number in (0, 1))
    assert "Swizzle 128B" in left.inner_text()
    assert "Swizzle 64B" in right.inner_text()
    other = open_page(page.locator("#link").inner_text())
    assert other.locator("#answer").inner_html() == page.locator("#answer").inner_html()
    page.go_back()
    page.get_by_role("heading", name="Both sides give the same answer.").wait_for()


@pytest.mark.slow
def test_both_sides_are_marked_together_and_stand_beside_each_other(open_page):
    page = open_page("/swizzle?mode=64B&left=/swizzle")
    cell(page, 11).hover()  # line 1, chunk 3 on the left
    for side in (page.locator(".side").first, page.locator(".side").last):
        side.locator("rect.partner").first.wait_for(state="attached")
    assert page.locator(".side").first.locator("rect.partner").count() == 1
    left, right = (page.locator(".side").nth(number).bounding_box() for number in (0, 1))
    assert left["y"] == right["y"]
    assert right["x"] >= left["x"] + left["width"]


def test_a_phone_shows_one_side_above_the_other_without_sideways_scroll(open_page):
    page = open_page("/swizzle?mode=64B&left=/swizzle", width=390)
    left, right = (page.locator(".side").nth(number).bounding_box() for number in (0, 1))
    assert right["y"] >= left["y"] + left["height"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.slow
def test_another_form_keeps_the_left_state(open_page):
    page = open_page("/banks?left=/banks")
    page.get_by_label("Accessed is").select_option("lanes")
    page.get_by_label("Addresses").wait_for()
    settled(page)
    assert parse_qs(urlsplit(address_of(page)).query) == {"given": ["lanes"], "left": ["/banks"]}


@pytest.mark.slow
def test_a_refused_right_state_keeps_both_drawings(open_page):
    page = open_page("/swizzle?mode=64B&left=/swizzle")
    page.get_by_label("Shared address").fill("seven")
    page.locator("#shown.stale").wait_for()
    assert page.locator(".side").count() == 2
    open_page.said.clear()  # the browser tells of the status 422


@pytest.mark.parametrize("ground", ["dark", pytest.param("light", marks=pytest.mark.slow)])
def test_the_figure_is_saved_with_the_pin_as_svg_and_png(open_page, tmp_path, ground):
    page = open_page("/swizzle")
    cell(page, 11).click()
    assert "pin=0.1.3" in address_of(page)
    saved = {}
    for name in ("SVG", "PNG"):
        said = "" if ground == "light" else ", dark"
        with page.expect_download() as download:
            page.get_by_label(f"The figure as {name}{said}", exact=True).click()
        saved[name] = tmp_path / download.value.suggested_filename
        download.value.save_as(saved[name])
    drawn = ET.parse(saved["SVG"]).getroot()
    assert [mark.get("class") for mark in drawn.iter("{http://www.w3.org/2000/svg}rect")].count("frame focus") == 2
    content = saved["PNG"].read_bytes()
    assert content.startswith(b"\x89PNG")
    width = int.from_bytes(content[16:20], "big")
    assert width == int(float(drawn.get("width")) * 300 / 96)


@pytest.mark.slow
def test_a_figure_opened_by_itself_has_its_colours_and_no_ground(open_page):
    page = open_page("/swizzle.svg?figure=dark")
    style = "getComputedStyle(document.querySelector('{}')).fill"
    assert page.evaluate(style.format("rect.c0")) == "rgb(0, 57, 112)"
    assert page.evaluate(style.format("text.l")) == "rgb(185, 192, 204)"
    assert page.evaluate("document.elementFromPoint(1, 1)?.tagName ?? 'svg'") == "svg"


@pytest.mark.slow
def test_every_page_is_in_the_list_of_pages_which_escape_closes(open_page):
    page = open_page("/swizzle", width=390)
    page.get_by_text("All pages", exact=True).click()
    page.keyboard.press("Escape")
    assert page.locator("#menu[open]").count() == 0
    page.get_by_text("All pages", exact=True).click()
    page.get_by_role("navigation", name="All pages").get_by_role("link", name="Tensor memory").click()
    page.get_by_role("heading", name="Tensor memory", exact=True).wait_for()


@pytest.mark.slow
def test_the_plan_of_a_product_leads_to_the_way_of_its_operand(open_page):
    page = open_page("/gemm")
    page.get_by_label("Product").fill("512x512x256")
    planned = ts.plan_gemm(512, 512, 256, "bf16")
    tile = " x ".join(map(str, planned.tile))
    page.get_by_role("heading", name=re.compile(f"^512 x 512 x 256 bfloat16: tile {tile},")).wait_for()
    page.get_by_role("link", name="Follow an element of B").click()
    page.get_by_role("heading", name="Path", exact=True).wait_for()
    assert page.locator("#field-tile").input_value() == "x".join(map(str, planned.b.problem.tile))


@pytest.mark.slow
def test_an_element_of_tensor_memory_is_marked_and_told(open_page):
    page = open_page("/tensor-memory?element=&load=")
    page.get_by_label("Mark element").fill("5,9")
    page.get_by_role("heading", name=re.compile(r"^Element \(m 5, n 9\) is in lane 5, column 9")).wait_for()
    settled(page)
    assert page.locator("figure rect.frame.focus").count() == 1
    place = ts.tmem_layout((128, 64)).place(5, 9)
    assert (place.lanes, place.column) == ((5,), 9)


@pytest.mark.slow
def test_two_maps_are_compared_as_they_are_typed(open_page):
    page = open_page("/diff")
    field = page.get_by_label("The other")
    field.fill(page.get_by_label("One map").input_value())
    page.get_by_role("heading", name=re.compile("same", re.IGNORECASE)).first.wait_for()
    assert page.locator("table.listing").count() == 0


@pytest.mark.slow
def test_the_first_copy_of_a_convolution_is_stepped(open_page):
    page = open_page("/conv")
    page.get_by_role("button", name="Next step").click()
    assert page.locator(".count").inner_text() == "2 of 64"
    assert page.locator("rect.partner").count() == 1 + 8  # a pixel, and its chunks


@pytest.mark.slow
def test_a_dump_that_is_pasted_is_identified(open_page):
    page = open_page("/identify")
    tile = page.get_by_label("Tile", exact=True).input_value()
    page.get_by_label("Dump of shared memory").fill(tile)
    page.get_by_role("heading", name=re.compile("^The tile is at byte 0x0 of the dump: swizzle none")).wait_for()


@pytest.mark.slow
def test_a_layout_is_converted_for_the_chosen_notation(open_page):
    page = open_page("/convert")
    page.get_by_label("To", exact=True).select_option("mosaic")
    page.get_by_role("heading", name=re.compile("^In mosaic: ")).wait_for()
    settled(page)
    assert parse_qs(urlsplit(address_of(page)).query) == {"notation": ["mosaic"]}
    cell(page, 3).click()
    assert "pin=0.0.3" in address_of(page)
