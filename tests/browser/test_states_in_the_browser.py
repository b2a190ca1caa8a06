"""What a page keeps: a pin, the last good drawing, the tile of another view, the history, the theme."""

import re

import pytest
from browser_page import PATIENCE_MS, address_of, settled

from tilescope.web.serving import open_listener, server

pytestmark = pytest.mark.browser


def cell(page, number, grid=0):
    """A cell of a figure, counted row by row."""
    return page.locator("figure .cells-box").nth(grid).locator("g.cells rect:not(.frame, .halo)").nth(number)


def write(page, field, text):
    """Type a text into a field, and wait for the answer."""
    page.locator(f"#field-{field}").fill(text)
    settled(page)


def test_a_pin_survives_a_reload_and_a_second_browser(open_page):
    page = open_page("/swizzle")
    cell(page, 11).click()
    assert "pin=0.1.3" in address_of(page)
    sentence = page.locator("#readout").inner_text()
    page.mouse.move(2, 2)
    assert page.locator("#readout").inner_text() == sentence
    page.reload()
    assert page.locator("#readout").inner_text() == sentence
    other = open_page(address_of(page).replace(re.match(r"http://[^/]+", address_of(page))[0], ""))
    assert other.locator("#readout").inner_text() == sentence
    assert other.locator("rect.pinned").count() == 1
    cell(other, 11).click()
    assert "pin" not in other.url


def test_a_pin_is_set_by_touch_and_another_by_keys(open_page):
    page = open_page("/swizzle", width=390, has_touch=True, is_mobile=True)
    cell(page, 0).tap()
    assert "pin=0.0.0" in address_of(page)
    box = page.locator("figure .cells-box").first
    box.focus()
    page.keyboard.press("ArrowRight")  # the first press visits the first cell
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert "pin=0.0.0,0.1.1" in address_of(page)


def test_pins_stay_beside_each_other_and_are_taken_away_one_by_one(open_page):
    page = open_page("/swizzle")
    for number in (3, 11, 20):
        cell(page, number).click()
    page.mouse.move(2, 2)
    assert "pin=0.0.3,0.1.3,0.2.4" in address_of(page)
    assert page.locator("rect.pinned").count() == 3
    said = page.locator("#pins li span").all_inner_texts()
    assert len(set(said)) == 3
    page.get_by_role("button", name="Take away pin 2").click()
    assert page.locator("#pins li span").all_inner_texts() == [said[0], said[2]]
    assert "pin=0.0.3,0.2.4" in address_of(page)
    page.reload()
    assert page.locator("#pins li span").all_inner_texts() == [said[0], said[2]]
    page.keyboard.press("Escape")
    assert page.locator("#pins li span").all_inner_texts() == [said[0]]
    cell(page, 3).click()
    assert not page.locator("#pins").is_visible()
    assert "pin" not in address_of(page)


def test_an_invalid_state_keeps_the_drawing_and_marks_the_field(open_page):
    page = open_page("/swizzle")
    drawn = page.locator("#drawing").inner_html()
    entries = page.evaluate("history.length")
    write(page, "address", "seven")
    assert page.locator("#drawing").inner_html() == drawn
    assert "stale" in page.locator("#shown").get_attribute("class")
    assert page.locator("#field-address").get_attribute("aria-invalid") == "true"
    assert "seven" in page.locator("#announced").inner_text()
    assert page.evaluate("history.length") == entries
    write(page, "address", "0x80")
    assert page.locator("#field-address").get_attribute("aria-invalid") is None
    assert page.locator(".stale").count() == 0
    open_page.said.clear()  # the browser tells of the status 422


def test_typing_makes_one_entry_of_the_history_for_each_pause(open_page):
    page = open_page("/swizzle")
    entries = page.evaluate("history.length")
    page.evaluate("Date.now = () => 1e12")  # no time passes between these
    for text in ("0x10", "0x100", "0x180"):
        write(page, "address", text)
    assert address_of(page).endswith("address=0x180")
    assert page.evaluate("history.length") == entries + 1
    page.evaluate("Date.now = () => 1e12 + 5000")
    write(page, "address", "0x200")
    assert page.evaluate("history.length") == entries + 2
    page.go_back()
    page.locator("#field-address[value='0x180']").wait_for()


@pytest.mark.slow
def test_switching_views_keeps_the_tile(open_page):
    page = open_page("/tensor-core?show=descriptors&tile=64x128")
    page.locator("#field-show").select_option("operand")
    settled(page)
    assert page.locator("#field-tile").input_value() == "64x128"


def test_a_tile_is_there_again_behind_a_view_that_has_none(open_page):
    page = open_page("/banks?tile=64x64")
    entries = page.evaluate("history.length")
    page.locator("#field-given").select_option("layout")
    page.locator("#field-text").wait_for()
    page.locator("#field-given").select_option("tile")
    page.wait_for_url("**/banks?tile=64x64")
    settled(page)
    assert page.locator("#field-tile").input_value() == "64x64"
    assert page.evaluate("history.length") == entries + 2


@pytest.mark.slow
def test_the_focus_stays_in_the_field_that_was_changed(open_page):
    page = open_page("/tensor-core")
    page.locator("#field-show").focus()
    page.locator("#field-show").select_option("fragment")  # this replaces the whole form
    settled(page)
    assert page.evaluate("document.activeElement.id") == "field-show"


def test_a_theme_that_was_chosen_is_there_before_the_page_is_painted(open_page):
    page = open_page("/symptoms")
    page.locator("#theme").click()
    chosen = page.evaluate("document.documentElement.dataset.theme")
    page.add_init_script(
        "addEventListener('DOMContentLoaded', () => { window.early = document.documentElement.dataset.theme; })"
    )
    page.route("**/explorer.js", lambda route: route.abort())  # the page's own script comes too late to be the one
    page.goto("/")
    assert page.evaluate("window.early") == chosen == "dark"
    open_page.said.clear()  # the browser tells of the script that was held back


def test_a_server_that_stopped_is_said_on_the_page(chromium):
    import threading
    import time

    with open_listener("127.0.0.1", 0) as listener:
        explorer = server()
        thread = threading.Thread(target=explorer.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not explorer.started:
            time.sleep(0.02)
        context = chromium.new_context(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}")
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.goto("/pipeline")
        explorer.should_exit = True
        thread.join(timeout=300)
    page.locator("#form button[type=submit]").click()
    page.locator("#offline").wait_for(state="visible")
    assert "tilescope serve" in page.locator("#offline").inner_text()
    context.close()


@pytest.mark.slow
def test_an_svg_opened_by_itself_has_its_colours(open_page):
    page = open_page("/swizzle.svg")
    fill = page.evaluate("getComputedStyle(document.querySelector('rect.c0')).fill")
    assert fill != "rgb(0, 0, 0)"
