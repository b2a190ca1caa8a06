"""Ways through pages as a person goes them, on a screen and on a phone: what is tapped happens, and the answer is in view."""

import re
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from browser_page import PATIENCE_MS, address_of, settled
from playwright.sync_api import expect

import tilescope as ts
from tilescope.web.rendering import export_page

pytestmark = pytest.mark.browser
SCREENS = {
    "screen": {"width": 1280, "height": 900},
    "phone": {"width": 390, "height": 844, "has_touch": True, "is_mobile": True},
}
PHONE_FIRST = tuple(reversed(SCREENS))  # of every other test ./test runs the phone, of the others the screen
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


@pytest.mark.thinned(2)
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


def unfold(page, screen):
    """On a phone the form is folded behind a line."""
    if screen == "phone":
        page.locator("#fold").tap()


def write(page, field, text):
    """Type a text into a field and wait for what is asked of the server."""
    page.locator(f"#field-{field}").fill(text)
    settled(page)


def verdict(page, pattern):
    """Wait for an answer with these words, in view."""
    page.locator(".verdict").filter(has_text=re.compile(pattern)).wait_for()
    settled(page)
    comes_into_view(page, ".verdict")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("screen", PHONE_FIRST)
def test_a_click_follows_another_element(open_page, screen):
    page = open_page("/path", **SCREENS[screen])
    verdict(page, r"Element \(37, 21\)")
    cell = page.locator("figure .cells-box").first.locator("rect[data-goes]").nth(3)
    press(page, cell, screen)
    page.locator(".verdict").filter(has_not_text="(37, 21)").wait_for()
    settled(page)
    assert "element=" in address_of(page)
    comes_into_view(page, "#readout")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("screen", SCREENS)
def test_two_cells_are_compared_and_one_is_taken_away(open_page, screen):
    page = open_page("/swizzle", **SCREENS[screen])
    cells = page.locator("figure .cells-box").first.locator("g.cells rect:not(.frame, .halo)")
    press(page, cells.nth(3), screen)
    press(page, cells.nth(11), screen)
    assert page.locator("#pins li").count() == 2
    comes_into_view(page, "#pins")
    press(page, page.get_by_role("button", name="Take away pin 1"), screen)
    assert page.locator("#pins li").count() == 1
    comes_into_view(page, "#pins")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("screen", PHONE_FIRST)
def test_a_conflict_is_cured_by_a_button(open_page, screen):
    page = open_page("/banks", **SCREENS[screen])
    verdict(page, "32-way conflict")
    press(page, page.get_by_role("link", name="Apply: pad rows by 4 bytes"), screen)
    verdict(page, "ld.b32 columns: no conflict")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("screen", SCREENS)
def test_a_refused_map_is_fixed_by_one_button(open_page, screen):
    page = open_page("/tensor-map", **SCREENS[screen])
    unfold(page, screen)
    write(page, "box", "128,300")
    press(page, page.get_by_role("button", name="Show"), screen)
    verdict(page, "Refused")
    press(page, page.get_by_role("link", name="Apply all"), screen)
    verdict(page, "Accepted")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("screen", PHONE_FIRST)
def test_another_product_is_planned_with_its_code(open_page, screen):
    page = open_page("/gemm", **SCREENS[screen])
    unfold(page, screen)
    write(page, "shape", "1024x1024x512")
    press(page, page.get_by_role("button", name="Show"), screen)
    verdict(page, "1024 x 1024 x 512")
    assert "constexpr int M = 1024" in page.locator("#source").inner_text()
    assert page.get_by_role("heading", name=re.compile("^B in shared memory")).count() == 1


@pytest.mark.thinned(2)
@pytest.mark.parametrize("screen", SCREENS)
def test_two_tiles_are_compared(open_page, screen):
    page = open_page("/plan", **SCREENS[screen])
    press(page, page.get_by_role("link", name="Compare"), screen)
    page.get_by_role("link", name="Change sides").wait_for()
    unfold(page, screen)
    write(page, "tile", "64x64")
    press(page, page.get_by_role("button", name="Show"), screen)
    settled(page)
    assert page.locator(".side").count() == 2
    comes_into_view(page, ".verdict")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("screen", PHONE_FIRST)
def test_a_hang_is_asked_about_and_tested(open_page, screen):
    page = open_page("/", **SCREENS[screen])
    page.get_by_label("What do you see").fill("the kernel hangs")
    press(page, page.get_by_role("button", name="Explain"), screen)
    verdict(page, "the kernel hangs")
    press(page, page.get_by_role("link", name="Test it on the page Pipeline").first, screen)
    verdict(page, "Hang")
    press(page, page.get_by_role("button", name="Next step"), screen)
    comes_into_view(page, "#readout")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("screen", SCREENS)
def test_a_box_is_moved(open_page, screen):
    page = open_page("/load?coords=0,0", **SCREENS[screen])
    unfold(page, screen)
    write(page, "coords", "16,11")
    press(page, page.get_by_role("button", name="Show"), screen)
    verdict(page, "outside the tensor")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("screen", PHONE_FIRST)
def test_a_layout_that_is_too_large_is_refused_in_view(open_page, screen):
    page = open_page("/layout", **SCREENS[screen])
    unfold(page, screen)
    write(page, "text", "(1024,1024):(1024,1)")
    press(page, page.get_by_role("button", name="Show"), screen)
    verdict(page, "Refused")
    comes_into_view(page, ".violations")
    open_page.said.clear()  # the browser tells of the status 422


@pytest.mark.thinned(2)
@pytest.mark.parametrize("screen", SCREENS)
def test_the_list_of_pages_leads_to_tensor_memory(open_page, screen):
    page = open_page("/", **SCREENS[screen])
    press(page, page.get_by_text("All pages"), screen)
    press(page, page.locator("#menu").get_by_role("link", name="Tensor memory"), screen)
    page.get_by_role("heading", name="Tensor memory", exact=True).wait_for()
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


@pytest.mark.thinned(2)
@pytest.mark.parametrize("screen", PHONE_FIRST)
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
    open_page.said.clear()  # between the fields, a shape does not fit its tile: the browser tells of the status 422


@pytest.mark.thinned(2)
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
    open_page.said.clear()  # a tile may be refused beside the dump of before: the browser tells of the status 422


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


def test_the_picture_of_a_page_is_copied(open_page):
    page = open_page("/swizzle", permissions=["clipboard-read", "clipboard-write"], **SCREENS["screen"])
    page.get_by_role("button", name="Copy the picture").click()
    page.locator("#copy-picture").get_by_text("Copied").wait_for()
    types = page.evaluate("navigator.clipboard.read().then((items) => items[0].types)")
    assert types == ["image/png"]
    page.get_by_role("button", name="Copy the short text").click()
    page.get_by_role("button", name="Copy the short text").get_by_text("Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").startswith("Swizzle 128B moves byte a")


@pytest.fixture
def exported_site(tmp_path):
    """An exported page in a frame, behind a server that is not the explorer's."""
    (tmp_path / "state.html").write_text(export_page("/swizzle?pin=0.1.3"), "utf-8")
    (tmp_path / "talk.html").write_text(
        "<!doctype html><iframe src='state.html' width=1200 height=800></iframe>", "utf-8"
    )
    handler = partial(QuietHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as site:
        Thread(target=site.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{site.server_port}"
        site.shutdown()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def test_an_exported_page_works_in_a_frame_of_another_site(open_page, exported_site):
    page = open_page("/", **SCREENS["screen"])
    page.goto(f"{exported_site}/talk.html")
    frame = page.frame_locator("iframe")
    frame.locator("rect.pinned").wait_for()
    frame.locator("figure .cells-box").first.locator("g.cells rect:not(.frame, .halo)").nth(3).click()
    assert frame.locator("#pins li").count() == 2
    frame.get_by_role("button", name="Next step").click()
    frame.locator("#player .count").get_by_text("2 of 64").wait_for()
    with page.expect_download() as saved:
        frame.locator("#save-svg").click()
    assert saved.value.suggested_filename == "swizzle.svg"
    assert Path(saved.value.path()).read_text("utf-8").startswith("<svg")
    open_page.said.clear()  # the site has no icon


def test_a_link_of_another_site_opens(open_page, address):
    page = open_page("/", **SCREENS["screen"])
    page.goto("data:text/html," + f"<a href='{address}/swizzle?mode=32B'>a link</a>")
    page.get_by_role("link", name="a link").click()
    page.get_by_role("heading", name=re.compile("Swizzle 32B")).first.wait_for()
