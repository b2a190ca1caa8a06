"""What can be read: no text below 10 pixels, none that covers another or leaves its cell, none that is pale.

Every page in every form, two states side by side, the gallery, and figures of many cells, at 1280 pixels and on a phone.
"""

import pytest

from tilescope.questions.gallery import GALLERY
from tilescope.web.pages import PAGES

pytestmark = pytest.mark.browser
SMALLEST_PIXELS = 10
LEAST_CONTRAST = 4.5  # WCAG 2, level AA
SCREEN = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}

STATES = [
    "/",
    *(
        f"/{page.name}" + (f"?{page.chooser.name}={chosen}" if page.chooser else "")
        for page in PAGES.values()
        for chosen in page.forms
    ),
    *(exhibit.path for exhibit in GALLERY),
    "/swizzle?mode=64B&left=/swizzle",
    "/banks?pad=4&left=/banks",
    "/plan?tile=64x64&left=/plan",
    "/pipeline?stages=2&left=/pipeline",
    "/tensor-map?box=128,300",
    "/swizzle?mode=xor:5,2,5",
    "/layout?text=(128,128):(128,1)&element_bits=16&other=(128,128):(1,128)",
    "/layout?text=(256,256):(256,1)&element_bits=16",
    "/load?dims=256,160&box=64,32&coords=0,0",
    "/no-such-page",
]

# Every visible text with the pixels of its font, in a picture times the picture's scale.
SIZES = """() => {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), sizes = [];
    while (walker.nextNode()) {
        const node = walker.currentNode, element = node.parentElement;
        if (!node.textContent.trim() || element.closest("script, title, option, datalist, .unseen")) continue;
        const range = document.createRange();
        range.selectNodeContents(node);
        if (!range.getBoundingClientRect().width) continue;
        const drawn = element instanceof SVGElement ? element.getScreenCTM() : { a: 1, b: 0 };
        sizes.push([parseFloat(getComputedStyle(element).fontSize) * Math.hypot(drawn.a, drawn.b), node.textContent.trim()]);
    }
    for (const control of document.querySelectorAll("input, select, textarea"))
        sizes.push([parseFloat(getComputedStyle(control).fontSize), control.name]);
    return sizes;
}"""

# Texts of a picture that cover each other, that leave the picture, and texts of cells that leave their cell.
MISPLACED = """() => [...document.querySelectorAll("figure svg")].flatMap((svg) => {
    const area = svg.getBoundingClientRect(), found = [];
    const texts = [...svg.querySelectorAll("text")].map((text) => [text.getBoundingClientRect(), text]).filter(([box]) => box.width);
    const cells = [...svg.querySelectorAll(".cells rect:not(.frame, .halo)")].map((cell) => cell.getBoundingClientRect());
    texts.sort((one, other) => one[0].top - other[0].top);
    texts.forEach(([box, text], place) => {
        const said = text.textContent;
        const leaves = box.left < area.left - 1 || box.right > area.right + 1 || box.bottom > area.bottom + 2;
        if (leaves) found.push(`${said} leaves its picture`);
        const x = (box.left + box.right) / 2, y = (box.top + box.bottom) / 2;
        const holds = (cell) => cell.left <= x && x <= cell.right && cell.top <= y && y <= cell.bottom;
        const cell = text.closest(".cells") && cells.find(holds);
        if (cell && (box.left < cell.left - 1 || box.right > cell.right + 1)) found.push(`${said} leaves its cell`);
        for (const [other, beside] of texts.slice(place + 1)) {
            if (other.top >= box.bottom - 3) break;
            if (Math.min(box.right, other.right) - Math.max(box.left, other.left) > 1) found.push(`${said} covers ${beside.textContent}`);
        }
    });
    return found;
})"""

# The contrast of the texts of pictures with the cell below them, as dim as it is, or with the page.
CONTRASTS = """() => {
    const channels = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map(Number);
    const linear = (part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    const light = (colour) => colour.reduce((sum, part, place) => sum + [0.2126, 0.7152, 0.0722][place] * linear(part / 255), 0);
    const pattern = (fill) => document.querySelector(`${fill.match(/#[^")]+/)[0]} rect`);
    const hatched = (fill) => fill.startsWith("url") ? getComputedStyle(pattern(fill)).fill : fill;
    const ground = channels(getComputedStyle(document.querySelector(".answer") ?? document.body).backgroundColor);
    return [...document.querySelectorAll("figure svg:not(.paint)")].flatMap((svg) => {
        const shapes = [...svg.querySelectorAll(".cells rect:not(.frame, .halo)")];
        const cells = shapes.map((cell) => [cell.getBoundingClientRect(), getComputedStyle(cell)]);
        return [...svg.querySelectorAll("text")].map((text) => {
            const box = text.getBoundingClientRect(), x = (box.left + box.right) / 2, y = (box.top + box.bottom) / 2;
            const [, cell] = cells.find(([area]) => area.left <= x && x <= area.right && area.top <= y && y <= area.bottom) ?? [];
            const surface = cell && hatched(cell.fill), seen = surface && surface !== "none" ? Number(cell.opacity) : 0;
            const fill = seen ? channels(surface) : ground;
            const below = light(fill.map((part, place) => part * seen + ground[place] * (1 - seen)));
            const ink = light(channels(getComputedStyle(text).fill));
            return [(Math.max(ink, below) + 0.05) / (Math.min(ink, below) + 0.05), text.textContent];
        });
    });
}"""


def smallest(page):
    """Texts below 10 pixels, rounding aside."""
    return [(round(size, 2), text) for size, text in page.evaluate(SIZES) if size < SMALLEST_PIXELS - 0.005]


def pale(page):
    return [(round(contrast, 2), text) for contrast, text in page.evaluate(CONTRASTS) if contrast < LEAST_CONTRAST]


def looked_at(page):
    """What cannot be read on a screen and on a phone, in light and in dark."""
    found = {}
    for width, size in (("screen", SCREEN), ("phone", PHONE)):
        page.set_viewport_size(size)
        found[f"small, {width}"] = smallest(page)[:5]
        found[f"misplaced, {width}"] = page.evaluate(MISPLACED)[:5]
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found[f"pale, {scheme}"] = pale(page)[:5]
    return {name: texts for name, texts in found.items() if texts}


def test_all_texts_of_the_first_page_can_be_read(open_page):
    page = open_page("/", width=1280)
    assert len(page.evaluate(SIZES)) > 300
    assert looked_at(page) == {}


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
def test_all_texts_can_be_read(open_page, state):
    page = open_page(state, width=1280)
    assert looked_at(page) == {}
    if state == "/no-such-page":
        open_page.said.clear()  # the browser tells of the status 404
