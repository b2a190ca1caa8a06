"""The path page in a browser: a cell that is clicked, tapped or reached by keys is followed; the player leads through tiles."""

import re

import pytest
from browser_page import address_of

import tilescope as ts

pytestmark = pytest.mark.browser


def followed(page, element):
    """Wait until the page shows the way of an element, as "36,21"."""
    mn, k = element.split(",")
    page.get_by_role("heading", name=re.compile(rf"^Element \({mn}, {k}\) is at")).wait_for()
    page.locator("body:not(.busy)").wait_for()
    page.wait_for_url(re.compile(rf"element={mn}(,|%2C){k}"))
    assert page.locator("#field-element").input_value() == element


def cell(page, grid, goes):
    figure = page.locator("figure", has=page.get_by_role("heading", name=re.compile(grid)))
    return figure.locator(f"rect[data-goes='{goes}']").first


def test_a_click_in_any_picture_follows_its_element(open_page):
    page = open_page("/path")
    cell(page, "^Shared memory", "34,45").click()
    followed(page, "34,45")
    path = ts.plan((128, 64), "bf16").best.path(34, 45)
    assert f"byte {path.address:#x}" in page.locator(".verdict").inner_text()
    cell(page, "^The elements", "34,41").click()
    followed(page, "34,41")
    assert "pin" not in address_of(page)
    page.reload()
    followed(page, "34,41")
    assert page.locator("#readout").inner_text().startswith("mn 34, k 40 to 47")


@pytest.mark.slow
def test_a_tap_follows_an_element(open_page):
    page = open_page("/path", width=390, has_touch=True, is_mobile=True)
    cell(page, "^Global memory", "33,13").tap()
    followed(page, "33,13")


@pytest.mark.slow
def test_the_arrow_keys_move_the_element_beyond_the_rows_that_are_drawn(open_page):
    page = open_page("/path?element=38,21")
    page.locator("figure .cells-box").first.focus()
    page.keyboard.press("ArrowDown")
    followed(page, "39,21")
    page.keyboard.press("ArrowDown")  # the focus is still in the drawing, which ends here
    followed(page, "40,21")
    page.keyboard.press("ArrowRight")
    followed(page, "40,29")


@pytest.mark.slow
def test_the_player_leads_through_the_k_loop_and_the_chunks(open_page):
    page = open_page("/path?tile=128x128")
    page.get_by_role("button", name="First step").click()
    followed(page, "37,5")
    page.get_by_role("button", name="Play or pause").click()
    page.wait_for_url(re.compile("element=37(,|%2C)117"))  # the last: a busy server leaves steps before it out
    page.get_by_role(
        "heading", name="The descriptor of K step 7"
    ).wait_for()  # beyond the chunks that were drawn at first
    page.locator("body:not(.busy)").wait_for()
    page.get_by_label("Walk over").select_option("chunks")
    assert page.locator(".count").inner_text().endswith(" of 128")  # 8 rows of 16
    page.get_by_role("button", name="First step").click()
    page.get_by_role("heading", name=re.compile(r"^Element \(32, \d\) is at")).wait_for()


@pytest.mark.slow
def test_the_element_of_a_gemm_and_of_a_map_is_followed_too(open_page):
    for given, element in (("gemm&operand=B", "36,21"), ("map", "36,21")):
        page = open_page(f"/path?given={given}")
        cell(page, "^Global memory", element).click()
        followed(page, element)
