"""Ways through pages as a person goes them, on a screen and on a phone: what is tapped happens, and the answer is in view."""

import re

import pytest
from browser_page import PATIENCE_MS, address_of, settled

import tilescope as ts

pytestmark = pytest.mark.browser
SCREENS = {
    "screen": {"width": 1280, "height": 900},
    "phone": {"width": 390, "height": 844, "has_touch": True, "is_mobile": True},
}
MAP = ts.TensorMap("f16", (256, 64), (512,), (64, 16), swizzle="128B")


def in_view(page, place):
    """Whether an element stands within the window, below the bar."""
    area = page.locator(place).first.bounding_box()
    if area is None:  # the page is being replaced
        return False
    bar = page.locator(".bar").bounding_box()
    return bar["y"] + bar["height"] <= area["y"] and area["y"] + area["height"] <= page.viewport_size["height"]


def comes_into_view(page, place):
    """Wait until an element stands within the window; a busy machine may take its time."""
    for _ in range(PATIENCE_MS // 100):
        if in_view(page, place):
            return
        page.wait_for_timeout(100)
    assert in_view(page, place)


def tap_where_it_stands(page, locator):
    """Tap the place where an element is now: whatever moves away under the finger is missed."""
    area = locator.bounding_box()
    page.touchscreen.tap(area["x"] + area["width"] / 2, area["y"] + area["height"] / 2)


@pytest.mark.parametrize("screen", SCREENS)
def test_a_pasted_map_is_answered_in_view(open_page, screen):
    page = open_page("/tensor-map", **SCREENS[screen])
    if screen == "phone":
        page.locator("#fold").tap()
    page.get_by_role("textbox", name="Paste").fill(MAP.encode().hex())
    button = page.get_by_role("button", name="Read it")
    if screen == "phone":
        tap_where_it_stands(page, button)
    else:
        button.click()
    page.get_by_role("heading", name=re.compile("256 x 64 float16")).wait_for()
    comes_into_view(page, ".verdict")


@pytest.mark.parametrize("path", ["/tensor-map", "/gemm"])
def test_a_tap_on_show_is_not_lost_and_its_answer_is_in_view(open_page, path):
    page = open_page(path, **SCREENS["phone"])
    page.locator("#fold").tap()
    field = page.locator("#form .field:has(.hint) input").last
    field.focus()
    button = page.get_by_role("button", name="Show")
    button.scroll_into_view_if_needed()
    tap_where_it_stands(page, button)
    comes_into_view(page, ".verdict")


def test_eight_fast_arrow_keys_are_eight_moves(open_page):
    page = open_page("/path?element=34,21", **SCREENS["screen"])
    page.locator("figure .cells-box").first.focus()
    for _ in range(8):  # beyond the rows that are drawn
        page.keyboard.press("ArrowDown")
    page.wait_for_url(re.compile("element=42(,|%2C)21"))


def test_the_next_step_leads_beyond_the_ticks_that_are_drawn_and_back(open_page):
    page = open_page("/pipeline?ticks=0-15", **SCREENS["screen"])
    for _ in range(16):
        page.get_by_role("button", name="Next step").click()
    page.wait_for_url(re.compile("ticks=16-31"))
    settled(page)
    page.get_by_role("button", name="Step back").click()
    page.wait_for_url(re.compile("ticks=0-15"))
    settled(page)
    assert page.locator("#player .count").inner_text() == "16 of 16"


def test_escape_takes_the_pin_away(open_page):
    page = open_page("/swizzle?pin=0.1.3", **SCREENS["screen"])
    assert page.locator("rect.pinned").count() == 1
    page.keyboard.press("Escape")
    assert page.locator("rect.pinned").count() == 0
    assert "pin" not in address_of(page)


def test_a_text_that_is_too_long_dims_the_answer_and_says_why_in_red(open_page):
    page = open_page("/run", **SCREENS["screen"])
    before = page.locator(".verdict").inner_text()
    page.locator("#field-ptx").fill("// " + "x" * 70_000)
    page.locator(".verdict.refused").wait_for()
    assert page.locator(".verdict").inner_text() != before
    assert "stale" in page.locator("#shown").get_attribute("class")
    open_page.said.clear()


def test_what_is_copied_is_what_is_shown(open_page, address):
    page = open_page("/swizzle?mode=64B", permissions=["clipboard-read", "clipboard-write"], **SCREENS["screen"])
    page.get_by_role("button", name="Copy the link").click()
    page.get_by_role("button", name="Copy the link").get_by_text("Copied").wait_for()
    shown = page.locator("code:has(#link)").inner_text()
    assert page.evaluate("navigator.clipboard.readText()") == shown == f"{address}/swizzle?mode=64B"


def test_a_link_of_another_site_opens(open_page, address):
    page = open_page("/", **SCREENS["screen"])
    page.goto("data:text/html," + f"<a href='{address}/swizzle?mode=32B'>a link</a>")
    page.get_by_role("link", name="a link").click()
    page.get_by_role("heading", name=re.compile("Swizzle 32B")).first.wait_for()
