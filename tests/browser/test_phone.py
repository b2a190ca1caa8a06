"""On a phone: the figure stands within the first screen, the form is folded, text grows with the reader's font."""

import pytest

from tilescope.web.pages import PAGES

pytestmark = pytest.mark.browser
SCREEN = 844  # pixels of a phone that is 390 wide
FORMS = [
    "/",
    *(
        f"/{page.name}" + (f"?{page.chooser.name}={chosen}" if page.chooser else "")
        for page in PAGES.values()
        for chosen in page.forms
    ),
]
FIRST_FIGURE = """() => {
    // of a run, the time line that one drags comes first
    const first = document.querySelector('.answer input[type=range], .answer figure svg:not(.labels)');
    return first && first.getBoundingClientRect().toJSON();
}"""


def phone(open_page, path):
    return open_page(path, width=390, height=SCREEN, has_touch=True, is_mobile=True)


def stands_in_the_first_screen(page):
    area = page.evaluate(FIRST_FIGURE)
    return area is None or area["top"] + min(area["height"], 150) <= SCREEN  # None: an answer in words


@pytest.mark.parametrize("path", ["/", pytest.param("/pipeline?given=text", marks=pytest.mark.slow)])
def test_the_figure_stands_within_the_first_screen(open_page, path):
    page = phone(open_page, path)
    assert stands_in_the_first_screen(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.slow
@pytest.mark.parametrize("path", FORMS)
def test_every_figure_stands_within_the_first_screen(open_page, path):
    page = phone(open_page, path)
    assert stands_in_the_first_screen(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_tap_unfolds_the_form_and_the_line_says_its_state(open_page):
    page = phone(open_page, "/swizzle?mode=64B")
    assert page.locator("#state").inner_text() == "64B"
    assert not page.locator("#field-mode").is_visible()
    page.locator("#fold").tap()
    page.locator("#field-mode").fill("32B")
    page.get_by_role("heading", name="Swizzle 32B").first.wait_for()
    assert page.locator("#state").inner_text() == "32B"
    page.locator("#fold").tap()
    assert not page.locator("#field-mode").is_visible()


@pytest.mark.slow
def test_the_form_of_a_phone_without_a_script_is_there(open_page):
    page = open_page("/swizzle", width=390, java_script_enabled=False)
    assert page.locator("#field-mode").is_visible()
    assert not page.locator("#fold").is_visible()


@pytest.mark.slow
def test_reasons_stand_above_a_drawing_that_is_no_longer_true(open_page):
    page = phone(open_page, "/swizzle")
    page.locator("#fold").tap()
    page.locator("#field-address").fill("seven")
    page.locator(".violations").wait_for()
    assert page.locator(".violations").bounding_box()["y"] < page.locator("figure").first.bounding_box()["y"]
    open_page.said.clear()  # the browser tells of the status 422


TEXT_SIZES = """() => [...document.querySelectorAll("p, td, h2, label, button, .swatch, figure svg text")].map((each) => {
    const svg = each.closest("svg");
    const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
    return scale * parseFloat(getComputedStyle(each).fontSize);
})"""


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/path", "/plan", "/pipeline", "/tensor-map"])
def test_all_text_grows_with_the_readers_font(open_page, path):
    page = open_page(path, width=1700)
    before = page.evaluate(TEXT_SIZES)
    page.evaluate("document.documentElement.style.fontSize = '20px'")
    after = page.evaluate(TEXT_SIZES)
    assert len(after) == len(before) > 50
    grown = [late / early for early, late in zip(before, after, strict=True)]
    assert min(grown) > 1.05
