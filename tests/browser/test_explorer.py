"""The explorer in a real browser: what people do on its pages, and what they must see."""

import json
import re
import xml.etree.ElementTree as ET
from urllib.parse import parse_qs, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser_page import PATIENCE_MS, address_of, settled

import tilescope as ts
import tilescope.cli
from tilescope.symptoms import diagnose
from tilescope.web.pages import PAGES

pytestmark = pytest.mark.browser


FORMS = [
    "/",
    "/tensor-map?box=128,300",
    "/swizzle?mode=64B&left=/swizzle",
    "/banks?pad=4&left=/banks",
    *(
        f"/{page.name}" + (f"?{page.chooser.name}={chosen}" if page.chooser else "")
        for page in PAGES.values()
        for chosen in page.forms
    ),
]


def cells(page, grid):
    """The cells of the grid with this title."""
    return page.locator("figure", has=page.get_by_role("heading", name=grid, exact=True)).locator(
        "g.cells rect:not(.frame, .halo)"
    )


def faults(page):
    """What axe finds wrong with a page."""
    return [
        f"{each['id']}: {node['html'][:200]} {node['failureSummary']}"
        for each in Axe().run(page).response["violations"]
        for node in each["nodes"]
    ]


HIDDEN = "() => [...document.querySelectorAll('input')].filter((each) => each.scrollWidth > each.clientWidth + 1).map((each) => each.name)"


@pytest.mark.slow
@pytest.mark.parametrize("path", FORMS)
def test_every_page_fits_a_phone_and_no_field_hides_the_end_of_what_it_holds(open_page, path):
    page = open_page(path, width=390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate(HIDDEN) == []


# Boxes that scroll although what they lack is thinner than a cell.
STRAY = """() => [...document.querySelectorAll(".cells-box")].filter((box) =>
    [[box.scrollWidth, box.clientWidth], [box.scrollHeight, box.clientHeight]].some(([all, seen]) => all > seen && all < seen + 12)
).map((box) => box.ariaLabel)"""


# Cells of tables with a few words that take several lines.
BROKEN = """() => [...document.querySelectorAll("table.listing td:not(:last-child)")].filter((cell) => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    return cell.innerText.length <= 20 && new Set([...range.getClientRects()].map((line) => Math.round(line.bottom / 8))).size > 1;
}).map((cell) => cell.innerText)"""


@pytest.mark.slow
@pytest.mark.parametrize("path", [*FORMS, "/swizzle?mode=xor:5,2,5"])
def test_a_few_words_stay_on_one_line_and_drawings_scroll_for_a_reason(open_page, path):
    page = open_page(path, width=1280)
    assert page.evaluate(BROKEN) == []
    page.set_viewport_size({"width": 1400, "height": 900})
    assert page.evaluate(STRAY) == []


@pytest.mark.slow
def test_the_cure_stands_below_the_disease_on_the_same_scale(open_page):
    page = open_page("/banks")
    conflict, cure = (page.locator("figure").nth(place).bounding_box() for place in (0, 1))
    assert cure["y"] >= conflict["y"] + conflict["height"]
    assert (cure["x"], cure["width"]) == (conflict["x"], conflict["width"])


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("path", FORMS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_loads_without_an_error_and_has_no_fault_for_axe(open_page, path, scheme):
    assert faults(open_page(path, scheme=scheme)) == []


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("path", ["/", *(f"/{name}" for name in PAGES)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_on_a_phone_has_no_fault_for_axe(open_page, path, scheme):
    assert faults(open_page(path, width=390, scheme=scheme)) == []


def test_a_broken_map_is_cured_with_one_click(open_page):
    page = open_page("/tensor-map")
    page.get_by_label("Box").fill("128,8")
    page.get_by_text("swizzle-span").wait_for()
    broken = ts.TensorMap.check("bf16", (72, 16), (144,), (128, 8), swizzle="128B")
    expected = next(each for each in broken if each.rule == "swizzle-span")
    violation = page.locator(".violations li", has_text="swizzle-span")
    for part in (expected.found, expected.limit, expected.fix):
        assert part in violation.inner_text()
    settled(page)
    assert parse_qs(urlsplit(address_of(page)).query) == {"box": ["128,8"]}
    violation.get_by_role("link", name=re.compile("^Apply")).click()
    page.get_by_role("heading", name=re.compile("^Accepted")).wait_for()
    assert page.get_by_label("Box").input_value() == "64,8"
    page.go_back()
    page.get_by_text("swizzle-span").wait_for()
    assert page.get_by_label("Box").input_value() == "128,8"
    page.go_back()
    page.get_by_role("heading", name=re.compile("^Accepted")).wait_for()
    assert page.get_by_label("Box").input_value() == "64,8"


def centre(cell):
    box = cell.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_the_box_is_dragged_and_hovered_partners_are_the_librarys(open_page):
    page = open_page("/load?dims=80,20&coords=0,0")
    tensor = cells(page, "The copy in the tensor")
    columns = 10  # 80 elements in chunks of 8
    page.mouse.move(*centre(tensor.nth(0)))
    page.mouse.down()
    page.mouse.move(*centre(tensor.nth(3 * columns + 1)), steps=4)
    page.mouse.move(*centre(tensor.nth(5 * columns + 2)), steps=4)
    assert page.locator("#readout").inner_text() == "coordinates 16,5"
    assert page.locator("rect.near").count() == 8 * 8  # where the box would be
    page.mouse.up()
    page.wait_for_url(re.compile("coords=16(,|%2C)5"))
    settled(page)
    assert page.get_by_label("Coordinates").input_value() == "16,5"
    assert parse_qs(urlsplit(address_of(page)).query) == {"dims": ["80,20"], "coords": ["16,5"]}

    found = ts.trace(ts.TensorMap("bf16", (80, 20), (160,), (64, 8), swizzle="128B"), (16, 5))
    tensor, shared = cells(page, "The copy in the tensor"), cells(page, re.compile("^Shared memory"))
    for column, row in ((16, 5), (32, 7), (72, 12)):
        tensor.nth(row * columns + column // 8).hover()
        partner = page.locator("rect.partner")
        assert partner.count() == 1
        said = partner.locator("title").text_content()
        assert said.startswith(f"bytes {found.address_of(column, row):#x} to ")
    for place in (0, 9, 63):
        shared.nth(place).hover()
        coords = found.element_at(place * 16).coords
        at = columns * coords[1] + coords[0] // 8
        assert "partner" in tensor.nth(at).get_attribute("class")
        assert str(coords) in page.locator("#readout").inner_text()


def test_a_cell_of_the_box_is_pinned_by_a_click_that_does_not_drag_it(open_page):
    page = open_page("/load?dims=80,20&coords=0,0")
    page.mouse.click(*centre(cells(page, "The copy in the tensor").nth(11)))
    page.wait_for_url(re.compile("pin=0.1.1"))
    assert page.locator("rect.pinned").count() == 1
    assert page.get_by_label("Coordinates").input_value() == "0,0"


def test_labels_that_scroll_away_pass_below_the_readout(open_page):
    page = open_page("/load?dims=80,64&coords=0,0")
    page.evaluate("scrollTo(0, document.querySelector('figure').getBoundingClientRect().top)")
    on_top = """() => {
        const area = document.querySelector("#readout").getBoundingClientRect();
        return document.elementFromPoint(area.left + 20, area.top + area.height / 2).closest("#readout") !== null;
    }"""
    assert page.evaluate(on_top)


def test_hovering_asks_the_server_nothing(open_page):
    page = open_page("/load?dims=128,128&box=64,128&coords=64,0")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    shared = cells(page, re.compile("^Shared memory"))
    for place in range(0, 1024, 300):
        shared.nth(place).hover()
        assert page.locator("rect.partner").count() >= 1
    assert asked == []


def test_a_tile_of_128_x_128_is_painted_whole(open_page):
    page = open_page("/load?dims=128,128&box=64,128&coords=64,0")
    shapes = page.locator("figure rect[data-link]:visible").count()
    painted = (
        "[...document.querySelectorAll('.painted-cells')].flatMap((each) => JSON.parse(each.textContent).cells).flat()"
    )
    assert (
        shapes + page.evaluate(f"{painted}.filter((said) => said[2]).length") == 2 * 128 * 8
    )  # both sides, chunk by chunk


@pytest.mark.slow
def test_the_walk_of_im2col_is_stepped_and_played(open_page):
    page = open_page("/load?kind=im2col_map")
    page.get_by_role("button", name="Next step").click()
    assert page.locator(".count").inner_text() == "2 of 64"
    assert "coordinates (0, 0, -1, 0)" in page.locator("#readout").inner_text()
    marked = page.locator("rect.partner")
    assert marked.count() == 1 + 8  # a pixel, and its chunks
    assert "step=1" in address_of(page)
    page.get_by_role("button", name="Play or pause").click()
    page.locator(".count", has_text=re.compile(r"^([4-9]|\d\d) of")).wait_for()
    page.get_by_role("button", name="Play or pause").click()
    page.reload()
    assert int(page.locator(".count").inner_text().split()[0]) >= 4


@pytest.mark.parametrize(
    "text",
    [
        "Sw<3,4,3> o smem_ptr[16b](unset) o (_16,_64):(_64,_1)",
        pytest.param(
            "#ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>",
            marks=pytest.mark.slow,
        ),
        pytest.param('Layout((16, 32), 16, swizzle="64B")', marks=pytest.mark.slow),
    ],
)
def test_a_pasted_layout_is_drawn_as_the_library_reads_it(open_page, text):
    page = open_page("/layout?text=" + "Layout((8, 8), 32)")
    page.get_by_role("textbox", name="Layout").fill(text)
    layout = ts.parse_layout(text)
    page.get_by_role("heading", name=re.compile(" x ".join(map(str, layout.shape)))).wait_for()
    addresses = layout.addresses()
    shown = page.locator("figure").first.locator("g.cells rect:not(.frame, .halo) title").all_text_contents()
    assert len(shown) == addresses.size * layout.element_bits // 8 // 16
    for said in shown[:: max(1, len(shown) // 16)]:
        numbers = re.match(r"mn (\d+), k (\d+).*?(0x[0-9a-f]+)", said).groups()
        mn, k, address = (int(digits, 0) for digits in numbers)
        assert addresses[mn, k] == address


@pytest.mark.slow
def test_a_copied_link_opens_the_same_state(open_page):
    page = open_page("/banks", permissions=["clipboard-read", "clipboard-write"])
    page.get_by_label("Pattern", exact=True).fill("ldmatrix.x4")
    page.get_by_label("Tile").fill("64x64")
    page.get_by_label("Element type").fill("bf16")
    page.get_by_label("And", exact=True).fill("")
    page.get_by_role("heading", name=re.compile("^ldmatrix.x4[^;]*$")).first.wait_for()
    settled(page)
    page.evaluate("window.setTimeout = () => 0")  # the word on the button stays
    page.get_by_role("button", name="Copy the link").click()
    page.get_by_role("button", name="Copy the link").get_by_text("Copied").wait_for()
    link = page.evaluate("navigator.clipboard.readText()")
    other = open_page(link)
    assert other.locator("#answer").inner_html() == page.locator("#answer").inner_html()
    assert other.get_by_label("Pattern", exact=True).input_value() == "ldmatrix.x4"


def test_the_drawing_is_saved_as_svg_and_png_and_the_value_as_json(open_page, tmp_path):
    page = open_page("/swizzle?mode=64B")
    saved = {}
    for name in ("SVG", "PNG", "JSON"):
        with page.expect_download() as download:
            page.locator("#save-" + name.lower()).click()
        saved[name] = tmp_path / download.value.suggested_filename
        download.value.save_as(saved[name])
    assert ET.parse(saved["SVG"]).getroot().find("{http://www.w3.org/2000/svg}title").text == "Swizzle 64B"
    assert saved["PNG"].read_bytes().startswith(b"\x89PNG")
    assert saved["PNG"].stat().st_size > 10_000
    assert ts.Value.from_dict(json.loads(saved["JSON"].read_text())) == ts.Swizzle.named("64B")


def test_the_arrow_keys_visit_cells_and_their_partners(open_page):
    page = open_page("/swizzle")
    page.get_by_role("group", name=re.compile("^Logical")).focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):  # the first press enters the drawing
        page.keyboard.press(key)
    assert re.findall(r"0x\w+", page.locator("#readout").inner_text()) == ["0x90", "0x9f", "0x80", "0x8f"]
    assert page.locator("rect.partner title").text_content().startswith("bytes 0x80 to 0x8f")


def test_every_field_is_reached_and_submitted_with_the_keyboard(open_page):
    page = open_page("/swizzle")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the page"
    page.get_by_label("Mode").focus()
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.insert_text("32B")  # at once: a slow typist's "3" would be asked for, and refused
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Swizzle 32B").wait_for()


def test_pages_work_without_their_script(open_page):
    page = open_page("/tensor-map", java_script_enabled=False)
    page.get_by_label("Box").fill("128,8")
    page.get_by_role("button", name="Show").click()
    page.locator(".violations li", has_text="swizzle-span").get_by_role("link", name=re.compile("^Apply")).click()
    assert page.get_by_label("Box").input_value() == "64,8"
    assert page.get_by_role("heading", name=re.compile("^Accepted")).count() == 1


@pytest.mark.slow
def test_the_theme_is_switched_and_remembered(open_page):
    page = open_page("/swizzle", scheme="light")
    page.get_by_role("button", name="Light or dark").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 21, 27)"
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 21, 27)"


def test_a_pasted_dump_fills_the_form(open_page):
    page = open_page("/tensor-map")
    expected = ts.TensorMap("f16", (256, 64), (512,), (64, 16), swizzle="128B")
    page.get_by_role("textbox", name="Paste").fill(expected.encode().hex())
    page.get_by_role("button", name="Read it").click()
    page.get_by_role("heading", name=re.compile("256 x 64 float16")).wait_for()
    assert page.get_by_label("Box").input_value() == "64,16"


@pytest.mark.slow
def test_the_code_of_a_plan_is_copied_for_the_chosen_target(open_page):
    page = open_page("/plan", permissions=["clipboard-read", "clipboard-write"])
    page.get_by_label("Code to copy").select_option("cute")
    page.get_by_role("heading", name="The best plan as CuTe C++").wait_for()
    settled(page)
    assert parse_qs(urlsplit(address_of(page)).query) == {"target": ["cute"]}
    page.evaluate("window.setTimeout = () => 0")  # the word on the button stays
    page.get_by_role("button", name="Copy the code").click()
    page.get_by_role("button", name="Copy the code").get_by_text("Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == ts.emit(ts.plan((128, 64), "bf16").best, "cute")


@pytest.mark.slow
def test_a_mistake_in_a_pasted_pipeline_is_marked_and_mended(open_page):
    page = open_page("/pipeline")
    page.get_by_role("heading", name=re.compile("^Proven")).wait_for()
    page.get_by_label("Described by").select_option("text")
    page.locator(".violations li", has_text="pipeline-bytes").wait_for()
    assert page.locator("g.cells rect.collision:not(.frame)").count() >= 3  # two that wait forever, and the phase
    field = page.get_by_role("textbox", name="Description")
    field.fill(field.input_value().replace("16384 + 64 * (i == 3)", "16384"))
    page.get_by_role("heading", name=re.compile("^Proven")).wait_for()
    assert page.locator(".violations").count() == 0
    page.go_back()
    page.locator(".violations li", has_text="pipeline-bytes").wait_for()


@pytest.mark.slow
def test_an_example_fills_its_field(open_page):
    page = open_page("/layout")
    page.get_by_label("Examples of Layout").select_option("GMMA::Layout_K_SW128_Atom<half_t>")
    page.get_by_role("heading", name=re.compile("8 x 64")).first.wait_for()
    assert page.get_by_role("textbox", name="Layout", exact=True).input_value() == "GMMA::Layout_K_SW128_Atom<half_t>"


def test_a_step_is_part_of_the_link(open_page):
    page = open_page("/swizzle?mode=64B")
    page.get_by_role("button", name="Next step").click()
    assert page.locator("#link").inner_text() == "/swizzle?mode=64B&step=1"
    other = open_page(page.locator("#link").inner_text())
    assert other.locator("#readout").inner_text() == page.locator("#readout").inner_text()
    page.get_by_role("button", name="First step").click()
    assert page.locator("#link").inner_text() == "/swizzle?mode=64B"


def test_a_symptom_leads_to_the_page_that_tests_its_cause(open_page):
    page = open_page("/symptoms")
    seen = "cuTensorMapEncodeTiled: CUDA_ERROR_INVALID_VALUE"
    page.get_by_label("What you see", exact=True).fill(seen)
    page.get_by_role("heading", name="the encode call returns INVALID_VALUE (1)").wait_for()
    settled(page)
    first = diagnose(seen).causes[0]
    assert page.get_by_role("heading", name=f"1. {first.name}").count() == 1
    assert first.fix in page.locator("#answer").inner_text()
    page.get_by_role("link", name="Test it on the page Tensor map").first.click()
    page.get_by_role("heading", name="Tensor map", exact=True).wait_for()
    assert page.get_by_label("Strides in bytes").input_value() == "8200"
    page.locator(".violations li", has_text="stride-alignment").wait_for()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "state",
    [
        "/swizzle?mode=64B",
        "/load?kind=im2col_map",
        "/tensor-core",
        *(pytest.param(f"/{name}", marks=pytest.mark.slow) for name in PAGES),
    ],
)
def test_the_exported_file_hovers_steps_and_saves_from_disk(chromium, tmp_path, state):
    path = tmp_path / "page.html"
    assert tilescope.cli.run(["serve", "--export", state, "-o", str(path)]) == 0
    context = chromium.new_context(offline=True)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    cells = page.locator(".scroll:not(:has(.ruler)) g.cells rect[data-link]")
    if cells.count():
        cells.first.hover()
        assert page.locator("rect.here").count() == 1
        assert page.locator("#readout").inner_text() == page.locator("rect.here title").text_content()
    if page.locator("#player").count():
        page.get_by_role("button", name="Next step").click()
        assert page.locator(".count").inner_text().startswith("2 of ")
        assert page.locator("rect.partner").count() >= 1
    with page.expect_download() as download:
        page.get_by_role("button", name="PNG").click()
    assert download.value.suggested_filename.endswith(".png")
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    context.close()


@pytest.mark.slow
def test_the_text_of_a_kernel_opens_at_its_worst_finding(open_page):
    page = open_page("/run")
    row, box = page.locator("#line-47").bounding_box(), page.locator(".listed .scroll").bounding_box()
    assert box["y"] < row["y"] < box["y"] + box["height"] - row["height"]


def test_a_kernel_is_mended_on_its_page(open_page):
    page = open_page("/run")
    page.locator(".violations li", has_text="run-race").get_by_role("link", name="line 47").click()
    assert page.evaluate("document.querySelector('tr:target code').textContent") == "    ld.shared.f32 %f3, [%r9];"
    text = page.get_by_label("PTX", exact=True)
    text.fill(text.input_value().replace("    .loc 1 12 0\n", "    bar.sync 0;\n    .loc 1 12 0\n"))
    page.get_by_role("button", name="Show").click()
    page.locator(".violations").wait_for(state="detached")
    assert "bar.sync 0;" in page.locator(".lines").inner_text()
    assert cells(page, "Lines of 128 bytes; those that look alike are one row").count() > 60
