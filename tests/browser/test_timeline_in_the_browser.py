"""The timeline of a pipeline in a browser: other ticks by buttons, wheel, mouse and keys; the player; waits."""

import re

import pytest
from browser_page import address_of

pytestmark = pytest.mark.browser


BOX = "[data-pan] .cells-box"


def shows(page, ticks):
    """Wait until the page shows these ticks, as "16-47"."""
    first, last = ticks.split("-")
    page.locator(".pan .count", has_text=f"ticks {first} to {last} of").wait_for()
    page.locator("body:not(.busy)").wait_for()
    page.wait_for_url(re.compile(f"ticks={ticks}"))
    assert f"ticks={ticks}" in page.locator("#link").inner_text()


def middle(page):
    """Of the timeline's cells, where the mouse is put."""
    page.locator(BOX).scroll_into_view_if_needed()
    area = page.locator("[data-pan] svg:not(.labels)").bounding_box()
    return area["x"] + area["width"] / 2, area["y"] + area["height"] / 2


def test_buttons_and_keys_show_other_ticks(open_page):
    page = open_page("/pipeline?ticks=0-31")
    page.get_by_role("link", name="Later ticks").click()
    shows(page, "16-47")
    assert page.evaluate("document.activeElement.id") == "later"  # to be pressed again
    page.get_by_role("link", name="Fewer ticks").click()
    shows(page, "24-39")
    page.go_back()
    shows(page, "16-47")
    page.locator(BOX).focus()
    page.keyboard.press("End")
    shows(page, "87-118")
    page.keyboard.press("Home")  # the focus stayed in the new drawing
    shows(page, "0-31")
    page.keyboard.press("-")
    shows(page, "0-63")
    page.keyboard.press("PageDown")
    shows(page, "32-95")


def test_the_wheel_with_ctrl_zooms_and_the_mouse_pulls(open_page):
    page = open_page("/pipeline?ticks=32-63")
    page.mouse.move(*middle(page))
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    shows(page, "40-55")
    x, y = middle(page)
    width = page.locator("[data-pan] svg:not(.labels)").bounding_box()["width"]
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - width / 8, y, steps=3)
    page.mouse.move(x - width / 4, y, steps=3)
    page.mouse.up()
    shows(page, "44-59")
    assert "pin" not in address_of(page)


@pytest.mark.slow
def test_a_link_opens_the_same_ticks(open_page):
    page = open_page("/pipeline?ticks=16-47")
    title = page.locator("[data-pan] h3").inner_text()
    assert title == "Timeline (16 to 47 of 119 nominal ticks)"
    page.reload()
    assert page.locator("[data-pan] h3").inner_text() == title


@pytest.mark.slow
def test_the_player_goes_on_into_the_next_ticks(open_page):
    page = open_page("/pipeline?ticks=0-7")
    page.locator("#player [data-act=seek]").fill("6")  # the last of these ticks but one
    assert page.locator("#readout").inner_text().startswith("tick 6: ")
    page.get_by_role("button", name="Play or pause").click()
    page.wait_for_url(re.compile("ticks=8-15"))
    page.locator("#readout", has_text=re.compile(r"^tick (8|9|\d\d+): ")).wait_for()
    page.get_by_role("button", name="Play or pause").click()


def test_a_hovered_wait_marks_the_arrival_that_ends_it(open_page):
    page = open_page("/pipeline?ticks=0-63")
    wait = page.locator("rect", has=page.locator("title", has_text="wait full[0], parity 0, until producer")).first
    wait.hover()
    marked = page.locator("rect.partner title").all_text_contents()
    assert sorted(marked) == ["16384 bytes land in a[0], for full[0]", "full[0], phase 0"]
    wait.click()
    page.mouse.move(2, 2)
    page.wait_for_url(re.compile("pin="))
    assert page.locator("rect.partner").count() == 2


@pytest.mark.slow
def test_on_a_phone_names_stay_beside_the_timeline_that_is_scrolled(open_page):
    page = open_page("/pipeline", width=390)
    box, labels = page.locator(BOX), page.locator("[data-pan] .labels")
    before = labels.bounding_box()
    assert before["width"] <= 0.4 * box.bounding_box()["width"]
    box.evaluate("box => { box.scrollLeft = 300; }")
    assert box.evaluate("box => box.scrollLeft") == 300
    assert abs(before["x"] - labels.bounding_box()["x"]) <= 3
