"""The figure of a page alone: no sentence, no ground, two columns wide at most, with the pinned cell marked."""

import base64
import hashlib
import re
import xml.etree.ElementTree as ET
from functools import cache
from itertools import pairwise

import pytest

from tilescope.view.figure import WIDEST_PIXELS
from tilescope.web.pages import PAGES, form_at
from tilescope.web.sheet import Sheet

SVG = "{http://www.w3.org/2000/svg}"
WITHOUT_FIGURE = ["diff", "symptoms"]
STATES = [
    *(
        f"/{page.name}.svg?{page.chooser.name}={chosen}&" if page.chooser else f"/{page.name}.svg?"
        for page in PAGES.values()
        for chosen in page.forms
        if page.name not in WITHOUT_FIGURE and chosen != "im2col_wide_map"  # which was never measured: it has no bytes
    ),
    "/load.svg?kind=im2col_wide_map&",
    "/swizzle.svg?mode=64B&left=/swizzle&",
    "/banks.svg?tile=64x64&data_type=bf16&pattern=ldmatrix.x4&other=&",
]


def figure(client, state, ground="light"):
    answer = client.get(f"{state}figure={ground}")
    assert answer.status_code == 200, answer.text
    return answer


@pytest.fixture(scope="module")
def drawn_of(client):
    """`drawn_of(state)`: the figure of a state, drawn once for all that is asked of it."""
    return cache(lambda state: ET.fromstring(figure(client, state).text))


@pytest.mark.parametrize("state", STATES)
def test_a_figure_is_two_columns_wide_at_most(drawn_of, state):
    assert WIDEST_PIXELS == 642  # 170 mm, 96 pixels to the inch
    drawn = drawn_of(state)
    assert 0 < float(drawn.get("width")) <= WIDEST_PIXELS


def reach(element, left=0.0, scale=1.0):
    """The right edge of everything that is drawn."""
    moved = re.fullmatch(r"translate\((\S+) \S+\)", element.get("transform", ""))
    scaled = re.fullmatch(r"scale\((\S+)\)", element.get("transform", ""))
    if moved:
        left += scale * float(moved[1])
    if scaled:
        scale *= float(scaled[1])
    if element.tag == f"{SVG}rect":
        yield left + scale * (float(element.get("x", 0)) + float(element.get("width")))
    for inner in element:
        if inner.tag != f"{SVG}defs":
            yield from reach(inner, left, scale)


@pytest.mark.parametrize("state", STATES)
def test_every_cell_of_a_figure_lies_within_it(drawn_of, state):
    drawn = drawn_of(state)
    assert max(reach(drawn)) <= float(drawn.get("width"))


@pytest.mark.parametrize("state", STATES)
def test_a_figure_has_no_ground_and_says_nothing_about_the_answer(client, drawn_of, state):
    drawn = drawn_of(state)
    assert not [rect for rect in drawn if rect.tag == f"{SVG}rect"]
    said = client.get(state.replace(".svg", ".json")).json()["answer"]
    shown = " ".join("".join(text.itertext()) for text in drawn.iter(f"{SVG}text"))
    assert shown
    assert said not in shown


@pytest.mark.parametrize("state", ["/swizzle.svg?", "/load.svg?", "/layout.svg?", "/tensor-memory.svg?"])
def test_a_figure_has_every_cell_of_the_page(client, state):
    cells = re.compile(r"<rect[^>]*><title>([^<]*)</title>")
    page = client.get(state.replace(".svg", "")).text
    assert cells.findall(figure(client, state).text) == cells.findall(page) != []


@pytest.mark.parametrize("ground", ["light", "dark"])
def test_the_pinned_cell_and_its_partners_are_marked(client, ground, wording):
    drawn = ET.fromstring(figure(client, "/swizzle.svg?pin=0.1.3&", ground).text)
    marked = []
    for group in drawn.iter(f"{SVG}g"):
        shapes = list(group)
        for shape, halo in pairwise(shapes):
            if halo.get("class") == "halo":
                marked.append(shape.find(f"{SVG}title").text)
    logical, physical = (re.findall(r"0x\w+|\d+-\d+", title) for title in marked)
    assert logical == ["0xb0", "0xbf", "0xa0", "0xaf"]
    assert physical == ["0xa0", "0xaf", "8-11", "0xb0", "0xbf"]
    wording("titles of a pinned cell and its partner", "\n".join(marked))


def test_every_pinned_cell_is_marked_with_its_partners(client):
    one = figure(client, "/swizzle.svg?pin=0.1.3&").text.count('class="frame focus"')
    two = figure(client, "/swizzle.svg?pin=0.1.3,0.4.0&").text.count('class="frame focus"')
    assert two == 2 * one > 0


def test_a_pinned_field_of_a_word_is_marked(client):
    drawn = figure(client, "/tensor-core.svg?show=word&pin=0.0.0&").text
    assert drawn.count('class="frame focus"') == 1
    assert re.search(r"<title>bits 62-63: swizzle[^<]*</title></rect><rect [^>]*halo", drawn)


@pytest.mark.parametrize("pin", ["0.99.0", "9.0.0", "0.0.99", "7", ""])
def test_a_pin_of_no_cell_marks_nothing(client, pin):
    assert 'class="frame focus"' not in figure(client, f"/swizzle.svg?pin={pin}&").text


@pytest.mark.parametrize("ground", ["light", "dark"])
def test_the_policy_names_the_style_of_a_figure(client, ground):
    answer = figure(client, "/swizzle.svg?", ground)
    (style,) = re.findall("<style>(.*?)</style>", answer.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in answer.headers["content-security-policy"]


def test_a_wide_timeline_goes_on_in_bands_with_the_same_events(client):
    drawn = figure(client, "/pipeline.svg?").text
    assert drawn.count(">KiB in flight<") > 1
    assert "scale(" not in drawn  # so that its text keeps its size


@pytest.mark.parametrize("name", PAGES)
def test_a_page_offers_its_figure_where_it_draws_one(client, name):
    page = client.get(f"/{name}").text
    links = re.findall(r'id="figure-(light|dark)"[^>]* href="([^"]*)"', page)
    assert [ground for ground, _ in links] == ([] if name in WITHOUT_FIGURE else ["light", "dark"])
    for _, link in links:
        assert client.get(link).headers["content-type"].startswith("image/svg+xml")


@pytest.mark.parametrize(
    ("address", "rule"),
    [
        ("/swizzle.svg?figure=only", "unknown-name"),
        ("/swizzle.svg?figure=", "unknown-name"),
        ("/swizzle?figure=dark", "unknown-name"),
        ("/swizzle.json?figure=dark", "unknown-name"),
        ("/diff.svg?figure=light", "page-query"),
        ("/swizzle.svg?mode=7&figure=light", "unknown-name"),
    ],
)
def test_what_has_no_figure_is_refused(client, address, rule):
    answer = client.get(address)
    assert answer.status_code == 422
    assert rule in answer.text


def test_pictures_of_banks_before_and_after_have_the_same_columns():
    drawing = Sheet.of(form_at("/banks")).drawing
    (pair,) = [part for name, part in drawing.named if name == "lanes 0"]
    before, after = pair.parts
    assert before.tiers[-1] == after.tiers[-1]
    assert len(before.tiers[-1].headers) == 32


def test_a_gemm_shows_its_operands_and_its_code(client):
    page = client.get("/gemm").text
    assert "A in shared memory, swizzle 128B: row.chunk" in page
    assert "B in shared memory, swizzle 128B: row.chunk" in page
    assert "The best plan as a CUDA program" in page


def test_a_layout_that_is_too_large_is_refused_as_what_it_is(client):
    page = client.get("/layout", params={"text": "(1024,1024):(1024,1)"}).text
    assert "1048576 elements" in page
    assert "Draw a part of it, such as (256,256):(1024,1)." in page
    assert "threads" not in re.search(r'<ul class="violations".*?</ul>', page, re.DOTALL)[0]


def test_the_bar_names_tensor_memory(client):
    bar = re.search(r'<nav aria-label="Pages">.*?</nav>', client.get("/").text, re.DOTALL)[0]
    assert 'href="/tensor-memory"' in bar
