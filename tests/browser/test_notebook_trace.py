"""A trace as a notebook shows it, in a page without a server: the mouse and the slider light up what belongs together."""

import re

import pytest

import tilescope as ts

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_the_mouse_and_the_slider_light_up_a_row(chromium, tmp_path):
    trace = ts.trace(ts.TensorMap("bf16", (64, 16), (128,), (64, 8), swizzle="128B"), (0, 4))
    shown = trace.html()
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><meta charset=utf-8><title>A notebook</title>{shown}{shown}", "utf-8")  # two cells
    page = chromium.new_page()
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(path.as_uri())
    drawn = page.locator(".tilescope-walk").first
    said = drawn.locator(".said")
    assert said.inner_text().startswith("Point at a cell")

    drawn.locator('rect[data-link="3.2"]').first.hover()
    assert drawn.locator("rect.near").count() == 2  # in the tensor, and in shared memory
    assert re.findall(r"\d+", said.inner_text()) == ["0", "16", "23", "1", "7", "3"]

    page.mouse.move(1, 1)
    drawn.locator("input").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert re.findall(r"\d+", said.inner_text()) == ["2", "8", "1", "0", "5"]
    assert drawn.locator("rect.near").count() == 16
    assert page.locator("rect.near").count() == 16  # the other cell of the notebook is left alone
    assert errors == []
    page.close()
