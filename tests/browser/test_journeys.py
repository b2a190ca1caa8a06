"""Ways through pages as a person goes them, on a screen and on a phone: what is tapped happens, and the answer is in view."""

import re

import numpy as np
import pytest
from browser_page import PATIENCE_MS, address_of, settled
from playwright.sync_api import expect

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


def press(page, locator, screen):
    """Click, or tap where the element stands."""
    if screen == "phone":
        locator.scroll_into_view_if_needed()
        tap_where_it_stands(page, locator)
    else:
        locator.click()


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


@pytest.mark.parametrize("screen", SCREENS)
def test_a_text_beyond_the_length_of_an_address_is_answered(open_page, screen):
    page = open_page("/identify", **SCREENS[screen])
    if screen == "phone":
        page.locator("#fold").tap()
    tile = bytes(range(256)) * 90
    page.locator("#field-shape").fill("180x128")
    page.locator("#field-data_type").fill("u8")
    page.locator("#field-tile").fill(tile.hex())
    page.locator("#field-dump").fill(tile.hex())
    press(page, page.get_by_role("button", name="Show"), screen)
    page.get_by_text("too long for a link").wait_for()
    settled(page)
    assert "stale" not in (page.locator("#shown").get_attribute("class") or "")
    comes_into_view(page, ".verdict")


@pytest.mark.parametrize("screen", SCREENS)
def test_a_file_that_is_opened_fills_the_fields_and_is_answered_in_view(open_page, tmp_path, screen):
    tile = np.arange(8 * 64, dtype=np.uint16).reshape(8, 64)
    np.save(tmp_path / "tile.npy", tile)
    (tmp_path / "dump.bin").write_bytes(ts.Swizzle.named("128B").swizzle(tile).tobytes())
    page = open_page("/identify", **SCREENS[screen])
    if screen == "phone":
        page.locator("#fold").tap()
    page.locator("[data-opens=tile]").set_input_files(tmp_path / "tile.npy")
    expect(page.locator("#field-shape")).to_have_value("8x64", timeout=PATIENCE_MS)
    page.locator("[data-opens=dump]").set_input_files(tmp_path / "dump.bin")
    page.get_by_role("heading", name=re.compile("swizzle 128B")).first.wait_for()
    comes_into_view(page, ".verdict")
    open_page.said.clear()  # the tile alone is not in the dump of before: the browser tells of no status, or of 422


DROP = """([name, text, place]) => {
    const files = new DataTransfer();
    files.items.add(new File([text], name));
    document.querySelector(place).dispatchEvent(new DragEvent("drop", { dataTransfer: files, bubbles: true, cancelable: true }));
}"""


def test_a_dropped_file_finds_its_field_by_its_ending(open_page):
    page = open_page("/run", **SCREENS["screen"])
    launch = page.locator("#field-launch").input_value()
    page.evaluate(DROP, ["mine.toml", launch + "\n# mine", "h1"])
    expect(page.locator("#field-launch")).to_have_value(re.compile("# mine$"), timeout=PATIENCE_MS)
    settled(page)
    page.evaluate(DROP, ["kernel.ptx", "no kernel", "#field-launch"])  # the field under the pointer takes it
    expect(page.locator("#field-launch")).to_have_value("no kernel", timeout=PATIENCE_MS)
    page.locator(".verdict.refused").wait_for()
    open_page.said.clear()  # the browser tells of the status 422


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
