"""The run page as a person uses it, on a screen and on a phone: steps, examples, fixes, the editor."""

from urllib.parse import urlencode

import pytest
from browser_page import PATIENCE_MS, address_of, settled
from playwright.sync_api import expect
from test_journeys import PHONE_FIRST, SCREENS, comes_into_view, press, tap_where_it_stands

from tilescope.questions import run_page
from tilescope.questions.run_page import RUN_FORM
from tilescope.web import application

pytestmark = pytest.mark.browser


def wait_for_step(page, step):
    """Wait until the state of a step is shown; it says its number in its first sentence."""
    page.locator("#drawing").get_by_text(f"Step {step} of 37:").wait_for(timeout=PATIENCE_MS)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("screen", SCREENS)
def test_dragging_the_time_line_shows_the_state_there(open_page, screen):
    page = open_page("/run", **SCREENS[screen])
    wait_for_step(page, 37)
    place = page.locator("#step-range")
    place.scroll_into_view_if_needed()
    area = place.bounding_box()
    x, y = area["x"] + area["width"] / 2, area["y"] + area["height"] / 2
    if screen == "phone":
        page.touchscreen.tap(x, y)
    else:
        page.mouse.move(area["x"] + area["width"] - 8, y)
        page.mouse.down()
        page.mouse.move(x, y, steps=6)
        page.mouse.up()
    step = int(place.input_value())
    assert 16 <= step <= 21
    wait_for_step(page, step)
    assert f"smem_at={step}" in address_of(page)
    comes_into_view(page, "#step-range")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("screen", PHONE_FIRST)
def test_buttons_and_fast_arrow_keys_lose_no_step(open_page, screen):
    page = open_page("/run?smem_at=20", **SCREENS[screen])
    wait_for_step(page, 20)
    button = page.get_by_role("button", name="One step back")
    button.scroll_into_view_if_needed()
    if screen == "phone":
        tap_where_it_stands(page, button)
    else:
        button.click()
    wait_for_step(page, 19)
    page.locator("#step-range").focus()
    for _ in range(8):
        page.keyboard.press("ArrowRight")
    wait_for_step(page, 27)
    assert page.locator("#step-count").inner_text() == "27 of 37"
    assert page.locator("#field-smem_at").input_value() == "27"


def test_an_event_leads_to_its_step_and_the_line_is_marked(open_page):
    page = open_page("/run", **SCREENS["screen"])
    page.get_by_text("Events (4)").click()
    page.get_by_role("button", name="step 10").click()
    wait_for_step(page, 10)
    page.locator(".lines tr.at[data-line='32']").wait_for(timeout=PATIENCE_MS)
    assert "load" in page.locator("#drawing").get_by_role("table").filter(has_text="issued at step").inner_text()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("screen", SCREENS)
def test_a_fix_is_a_button_and_its_answer_is_in_view(open_page, screen):
    page = open_page("/run", **SCREENS[screen])
    page.locator(".gutter b.error").first.wait_for(state="attached", timeout=PATIENCE_MS)
    assert page.locator(".gutter b.error").all_text_contents() == ["42", "47"]
    button = page.get_by_role("link", name="Apply the fix")
    button.scroll_into_view_if_needed()
    if screen == "phone":
        tap_where_it_stands(page, button)
    else:
        button.click()
    page.get_by_role("link", name="Apply the fix").wait_for(state="detached", timeout=PATIENCE_MS)
    settled(page)
    assert "bar.sync 0;\n    ld.shared.f32 %f3" in page.locator("#field-ptx").input_value()
    assert "error" not in page.locator(".verdict").inner_text()
    comes_into_view(page, ".verdict")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("screen", PHONE_FIRST)
def test_an_example_fills_both_fields(open_page, screen):
    page = open_page("/run", **SCREENS[screen])
    if screen == "phone":
        page.locator("#fold").tap()
    page.get_by_text("Examples", exact=True).click()
    page.get_by_role("link", name="A wait for the wrong parity, wrong").click()
    page.wait_for_url("**/run?ptx=*", timeout=PATIENCE_MS)
    assert "run-phase-parity" in page.locator("#said").inner_text()
    assert "block = [64]" in page.locator("#field-launch").input_value()


def test_the_editor_numbers_and_colours_lines_as_they_are_typed(open_page):
    page = open_page("/run", **SCREENS["screen"])
    area = page.locator("#field-ptx")
    area.wait_for(timeout=PATIENCE_MS)
    assert page.locator("#form .editor .ink").first.inner_text().rstrip() == RUN_FORM.presets["ptx"].rstrip()
    area.evaluate("area => { area.setSelectionRange(0, 0); area.focus(); }")
    page.keyboard.type("// one more\n")
    settled(page)
    lines = RUN_FORM.presets["ptx"].count("\n") + 2
    assert page.locator("#form .editor .gutter").first.inner_text().split()[-1] == str(lines)
    assert page.locator("#form .editor .code-comment").first.inner_text() == "// one more"
    assert page.locator("#form .editor .ink").first.bounding_box()["y"] == area.bounding_box()["y"]


def test_the_lines_in_sight_of_a_long_text_are_coloured_and_numbered(open_page):
    page = open_page("/run", **SCREENS["screen"])
    area = page.locator("#field-ptx")
    area.wait_for(timeout=PATIENCE_MS)
    text = RUN_FORM.presets["ptx"] + "\n// filling" * 60_000 + "\n// the last line"
    area.evaluate(
        "(area, text) => { area.value = text; area.dispatchEvent(new Event('input', { bubbles: true })); }", text
    )
    assert "Press Show" in page.locator(".verdict").inner_text()  # no request at every key
    assert page.locator("#form .editor .sheet").first.inner_text().count("\n") < 200
    area.evaluate("area => { area.scrollTop = area.scrollHeight; }")
    page.locator("#form .editor .sheet").first.get_by_text("// the last line").wait_for(timeout=PATIENCE_MS)
    last = page.locator("#form .editor .sheet").first.get_by_text("// the last line").bounding_box()
    box = area.bounding_box()
    assert box["y"] < last["y"] < box["y"] + box["height"]


LOOP = """.version 8.0 .target sm_90 .address_size 64
.entry count() {
    .reg .b32 %r<3>; .reg .pred %p;
    mov.u32 %r1, 0;
again:
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p, %r1, ROUNDS;
    @%p bra again;
    ret;
}"""
PLAIN = "[launch]\ngrid = [1]\nblock = [32]"


def long_run(rounds):
    return f"/run?{urlencode({'ptx': LOOP.replace('ROUNDS', str(rounds)), 'launch': PLAIN})}"


@pytest.fixture
def short_page(monkeypatch):
    """A page that runs 500 steps, so that a run of 6,000 is long."""
    monkeypatch.setitem(run_page._LIMITS, "steps", 500)


def refused(open_page):
    """Forget that the browser reports the answer 422 to a page that is refused."""
    kept = [line for line in open_page.said if "422" not in line]
    open_page.said[:] = kept


@pytest.mark.usefixtures("short_page")
@pytest.mark.thinned(2)
@pytest.mark.parametrize("screen", SCREENS)
def test_a_long_run_is_recorded_by_a_button_and_its_answer_is_in_view(open_page, screen):
    rounds = 2000 + len(screen)  # the run of the other screen is kept
    steps = 3 * rounds + 2
    page = open_page(long_run(rounds), **SCREENS[screen])
    press(page, page.get_by_role("button", name="Run and record up to 300,000 steps"), screen)
    page.locator("#drawing").get_by_text(f"Step {steps} of {steps}:").wait_for(timeout=PATIENCE_MS)
    comes_into_view(page, ".verdict")
    assert "count finished" in page.locator(".verdict").inner_text()
    page.locator("#step-range").focus()
    page.keyboard.press("ArrowLeft")
    page.locator("#drawing").get_by_text(f"Step {steps - 1} of {steps}:").wait_for(timeout=PATIENCE_MS)
    refused(open_page)


@pytest.mark.usefixtures("short_page")
@pytest.mark.thinned(2)
@pytest.mark.parametrize("screen", PHONE_FIRST)
def test_a_recording_is_cancelled_by_a_button(open_page, screen):
    page = open_page(long_run(90_000), **SCREENS[screen])
    press(page, page.get_by_role("button", name="Run and record up to 300,000 steps"), screen)
    page.locator("#recording-said").get_by_text("running: ").wait_for(timeout=PATIENCE_MS)
    comes_into_view(page, "#recording-bar")
    press(page, page.get_by_role("button", name="Cancel"), screen)
    page.locator("#recording-said").get_by_text("Cancelled.").wait_for(timeout=PATIENCE_MS)
    expect(page.locator("#record")).to_be_enabled()
    refused(open_page)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("screen", SCREENS)
def test_a_source_is_compiled_by_a_button_and_its_answer_is_in_view(open_page, screen, monkeypatch):
    asked = []
    made = {"ptx": LOOP.replace("ROUNDS", "3"), "launch": PLAIN, "said": "Compiled kernel.cu by a compiler."}
    answers = [{"refused": "kernel.cu(2): error: expected a semicolon"}, made]
    monkeypatch.setattr(application, "compile_apart", lambda text: asked.append(text) or answers[len(asked) - 1])
    page = open_page("/run", **SCREENS[screen])
    if screen == "phone":
        page.locator("#fold").tap()
    page.get_by_text("CUDA C++ or Triton").click()
    button = page.get_by_role("button", name="Compile and run")
    press(page, button, screen)
    page.locator("#source-said").get_by_text("expected a semicolon").wait_for(timeout=PATIENCE_MS)
    comes_into_view(page, "#source-said")
    press(page, button, screen)
    page.locator("#drawing").get_by_text("Step 11 of 11:").wait_for(timeout=PATIENCE_MS)
    comes_into_view(page, ".verdict")
    assert page.locator("#field-launch").input_value() == PLAIN
    assert asked[1].source.startswith("// Reverses 256 numbers")
    refused(open_page)


def test_nothing_is_compiled_without_a_click(open_page, monkeypatch, tmp_path):
    monkeypatch.setattr(application, "compile_apart", None)
    page = open_page("/run", **SCREENS["screen"])
    source = tmp_path / "kernel.py"
    source.write_text("import nothing")
    page.locator("[data-opens='source']").set_input_files(source)
    expect(page.locator("#field-source")).to_have_value("import nothing")
    expect(page.locator("#field-language")).to_have_value("triton")
    expect(page.locator("#field-signature")).to_be_visible()
    page.reload()
    expect(page.locator("#field-source")).to_have_value("import nothing")
    settled(page)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("screen", PHONE_FIRST)
def test_a_mistake_of_a_pipeline_is_fixed_by_a_button(open_page, screen):
    page = open_page("/pipeline?given=text", **SCREENS[screen])
    press(page, page.get_by_role("link", name="Apply the fix"), screen)
    page.get_by_role("heading", name="Proven for every order").wait_for(timeout=PATIENCE_MS)
    comes_into_view(page, ".verdict")


def test_the_coloured_text_covers_the_text_that_is_typed(open_page):
    page = open_page("/run")
    editor = page.locator(".editor:visible").first
    editor.locator(".sheet").wait_for()
    above, padding = editor.evaluate(
        """editor => {
            const area = editor.querySelector("textarea"), sheet = editor.querySelector(".sheet");
            return [sheet.getBoundingClientRect().top - area.getBoundingClientRect().top, parseFloat(getComputedStyle(area).paddingTop)];
        }"""
    )
    assert abs(above - padding) < 1
