"""Every page answers; what it shows is what it ran: its Python and its command give the page's own JSON."""

import html
import io
import json
import re
import shlex
import tracemalloc
import xml.etree.ElementTree as ET
from functools import cache
from urllib.parse import quote, urlencode

import pytest

import tilescope.cli
from tilescope.emitter.emission import TARGETS
from tilescope.symptoms import SYMPTOM
from tilescope.value import own_data
from tilescope.web.form import STEP
from tilescope.web.pages import PAGES, form_at

SVG = "{http://www.w3.org/2000/svg}"

ONE_COPY = {
    "barriers": {"full": {"count": 1}},
    "slots": {"a": {"bytes": 4096}},
    "roles": [
        {
            "name": "thread",
            "steps": [
                {"expect": "full", "bytes": 4096},
                {"copy": "a", "bytes": 4096, "barrier": "full"},
                {"read": ["a"]},
            ],
        }
    ],
}  # it reads before the bytes are there

TWO_MAPS = "\n".join(
    json.dumps({"data_type": "bf16", "dims": [4096, 64], "strides_bytes": [8192], "box": [64, rows]})
    for rows in (8, 16)
)

# A state of every form, and some that are not the defaults.
STATES = [
    *(
        f"/{page.name}" + (f"?{page.chooser.name}={chosen}" if page.chooser else "")
        for page in PAGES.values()
        for chosen in page.forms
    ),
    "/swizzle?mode=xor:2,3,3&address=0x480",
    "/swizzle?mode=CU_TENSOR_MAP_SWIZZLE_64B",
    "/tensor-map?dims=4096,4096,8&box=64,64,1&l2_promotion=128B&address=0x7f0000000000",
    "/tensor-map?box=128,300",
    "/tensor-map?arch=sm_100&swizzle=128B_ATOM_32B",
    "/load?dims=128,128&box=64,128&coords=0,0",
    "/load?coords=-8,-2&oob_fill=nan&smem_address=0x480",
    "/load?dims=100,9&strides_bytes=256&box=24,4&coords=88,7&operation=store&swizzle=64B",
    "/load?kind=im2col_map&coords=0,3,3,1&offsets=1,2",
    "/layout?text=((4,8),(2,2)):((32,1),(16,8))&shape=16x8",
    "/layout?text=(32,4):(4,1)",
    "/layout?text=(8,(4,2)):(4,(1,32))&element_bits=16&major=K",
    '/layout?text=Layout((64, 64), 16, swizzle="128B")&other=Layout((64, 64), 16, swizzle="64B", atom=(64, 32))',
    "/layout?text=Layout((64, 64), 16)&other=Layout((64, 64), 16)",
    "/layout?text=GMMA::Layout_MN_SW128_Atom<half_t>&other=(64,8):(8,1)&element_bits=16",
    '/layout?text=Layout((128, 128), 16, atom=(8, 64), swizzle="128B")&smem_address=0x400',
    "/banks?tile=64x64&data_type=bf16&pattern=ldmatrix.x4&other=&swizzle=128B",
    "/banks?tile=64x64&data_type=bf16&pattern=ldmatrix.x4&other=st.b128 rows",
    "/banks?tile=32x32&pad=4",
    "/banks?given=layout&text=(64,64):(64,1)&element_bits=16&other=st.b128 rows",
    "/banks?given=lanes&pattern=ld.b128: lane * 32",
    "/tensor-core?tile=64x128&major=MN&operand=B&atom_order=row&smem_address=0x1000",
    "/tensor-core?reader=tcgen05&data_type=e4m3&tile=128x128",
    "/tensor-core?show=operand&element=9,17",
    "/tensor-core?show=fragment&instruction=ldmatrix.x4&operand=&data_type=&lane=5",
    "/tensor-core?show=fragment&instruction=wgmma.m64n128k16&operand=D&data_type=f32",
    "/tensor-core?show=word&word=0x08400010",
    "/plan?tile=128x64&data_type=e4m3&arch=sm_100&consumer=tcgen05&stages=4",
    "/plan?card=B200",
    "/plan?arch=sm_80",
    "/plan?tile=64x64&consumer=ld.b128 columns&fold=yes&global_shape=4096x4096",
    "/plan?tile=64x64&major=MN&consumer=ldmatrix&operand=B",
    "/plan?target=none",
    "/plan?tile=64x64&direction=store&target=python",
    "/plan?arch=sm_80&target=triton",
    "/pipeline?other=256x64&consumers=2&cluster=2x1",
    "/pipeline?stages=2&steps=5&arrivals=thread&no_multicast=yes&cluster=2x1&arch=sm_100",
    "/pipeline?other=256x64&cluster=4x4&consumers=2",
    "/pipeline?given=gemm&shape=4096x4096x4096&cluster=2x1",
    "/pipeline?given=gemm&shape=4096x4096x512&arch=sm_100&cluster=2x2&cta_group=2&stages=3",
    "/pipeline?copy=cp.async&consumer=ldmatrix&arch=sm_80",
    "/pipeline?given=text&text=" + quote(json.dumps(ONE_COPY)),
    "/kernel?known=flash-attention-4-forward-64&size_STAGES=4",
    "/kernel?given=text&blocks_per_sm=1",
    "/run?smem_at=shift.cu:12",
    "/run?draw=lines",
    "/gemm?shape=256x256x128&data_type=e4m3&arch=sm_100&target=cuda",
    "/tensor-memory?m=256&n=256&cta_group=2&element=200,17&load=",
    "/tensor-memory?show=operand&k=32&metadata=yes&sparse=yes&element=",
    "/tensor-memory?show=scales&shape=8x256&atom=8x4&element=",
    "/tensor-memory?show=budget&budget=D:128x256*2,A:128x64",
    "/diff?other=" + quote(TWO_MAPS),
    "/conv?direction=wgrad",
    "/conv?stride=2&direction=dgrad",
    "/conv?image=1x32x128&filters=32x5&pad=2",
    "/identify?dump=" + "00" * 512,
    "/convert?notation=mosaic",
    "/convert?text=(8,64):(64,1)&element_bits=16&notation=tilescope",
    "/symptoms?seen=715",
    "/symptoms?seen=garbage in every second row",
    "/symptoms?seen=-1 is not it: misaligned address",
]


def page_of(client, state):
    answer = client.get(state)
    assert answer.status_code == 200, answer.text
    return answer.text


@pytest.fixture(scope="module")
def drawn(client):
    """`drawn(state)`: a page, and `drawn(state, ".json")` what it saves; made once for all that is asked of it."""

    @cache
    def answer(state, ending=""):
        return saved(client, state, ending).text

    return answer


def shown(page, name):
    """What stands in the element with this id."""
    return html.unescape(re.search(rf'<(code|span) id="{name}">(.*?)</\1>', page, re.DOTALL)[2])


def saved(client, state, ending):
    path, question, query = state.partition("?")
    answer = client.get(path + ending + question + query)
    assert answer.status_code == 200, answer.text
    return answer


@pytest.mark.parametrize("state", STATES)
def test_a_page_is_well_formed_and_shows_no_error(drawn, markup_problems, state):
    page = drawn(state)
    assert markup_problems(page) == []
    assert "Traceback" not in page


@pytest.mark.parametrize("state", STATES)
def test_the_headline_of_a_page_is_the_first_line_of_its_command(drawn, state):
    headline = html.unescape(re.search(r'<h2 class="verdict">(.*?)</h2>', drawn(state))[1])
    assert headline == json.loads(drawn(state, ".json"))["answer"]


@pytest.mark.parametrize("state", STATES)
def test_the_python_that_a_page_shows_makes_the_value_that_it_saves(drawn, state):
    source = shown(drawn(state), "python")
    expected = json.loads(drawn(state, ".json"))
    if expected["kind"] == "map_report" and not expected["accepted"]:
        with pytest.raises(tilescope.TensorMapError):
            exec(source, {})
        return
    namespace = {}
    exec(source, namespace)
    assigned = re.findall(r"^(\w+) = ", source, re.MULTILINE)
    value = namespace[assigned[-1] if "other" not in assigned else "layout"]
    found = json.loads(json.dumps(value.to_dict()))
    expected = own_data(expected)
    assert found == (expected["tensor_map"] if expected["kind"] == "map_report" else expected)


@pytest.mark.parametrize("state", STATES)
def test_the_command_that_a_page_shows_prints_the_value_that_it_saves(drawn, state, capsys, monkeypatch, timeless):
    page = drawn(state)
    words = shlex.split(shown(page, "command"))
    if "-" in words:  # it reads what stands in the page's field
        written = html.unescape(re.search(r"<textarea[^>]* name=[^>]*>(.*?)</textarea>", page, re.DOTALL)[1])
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(written.encode())))
    assert words[0] == "tilescope"
    expected = json.loads(drawn(state, ".json"))
    assert tilescope.cli.run([*words[1:], "--json"]) in (0, 1)
    assert timeless(json.loads(capsys.readouterr().out)) == expected


def painted_cells(told):
    """The cells of a painted figure: text, tooltip, link and colour of each."""
    return [cell for row in json.loads(told)["cells"] for cell in row]


def titles_on(page):
    """The tooltips of all cells of a page from top to bottom; those of a painted figure stand behind its picture."""
    found = re.findall(r'<rect[^>]*><title>([^<]*)</title>|class="painted-cells">(.*?)</script>', page, re.DOTALL)
    titles = []
    for title, painted in found:
        titles += [cell[1] for cell in painted_cells(painted) if cell[1]] if painted else [html.unescape(title)]
    return titles


@pytest.mark.parametrize("state", STATES)
def test_a_saved_drawing_is_a_document_with_every_cell_of_the_page(drawn, state):
    drawing = ET.fromstring(drawn(state, ".svg"))
    assert drawing.tag == f"{SVG}svg"
    titles = [title.text for rect in drawing.iter(f"{SVG}rect") for title in rect.iter(f"{SVG}title")]
    assert titles == titles_on(drawn(state))


@pytest.mark.parametrize("state", STATES)
def test_the_link_that_a_page_shows_leads_to_the_same_page(client, drawn, state):
    page = drawn(state)
    assert page_of(client, shown(page, "link")) == page


@pytest.mark.parametrize("state", STATES)
def test_every_step_marks_cells_that_are_drawn(drawn, state):
    page = drawn(state)
    found = re.search(r'id="steps">(.*?)</script>', page, re.DOTALL)
    if found is None:
        return
    words = {word for link in re.findall(r'data-link="([^"]*)"', page) for word in html.unescape(link).split()}
    steps = json.loads(found[1])
    assert steps
    for links, label, goes, _ in steps:
        assert label
        assert set(links.split()) & words or goes, (links, label)  # or it leads to what is not drawn yet


def test_the_first_page_leads_to_every_page_and_every_station_answers(client):
    first = page_of(client, "/")
    links = {html.unescape(link) for link in re.findall(r'<a href="(/[^"]*)"', first)}
    assert {f"/{name}" for name in PAGES} <= links
    for link in links:
        assert client.get(link).status_code == 200, link


def cures_of(page):
    return [html.unescape(link) for link in re.findall(r'<a class="button cure" href="([^"]*)"', page)]


@pytest.mark.parametrize(
    ("query", "rule"),
    [
        ("box=128,8", "swizzle-span"),
        ("box=64,300", "box-range"),
        ("strides_bytes=100&dims=48,20", "stride-alignment"),
        ("address=0x8", "address-alignment"),
        ("swizzle=none&box=4,8&element_strides=1,9", "element-stride-range"),
    ],
)
def test_a_violation_is_cured_by_its_own_link(client, query, rule):
    page = page_of(client, f"/tensor-map?{query}")
    assert f"<code>{rule}</code>" in page
    assert "Refused" in page
    for _ in range(8):  # a cure may uncover the next mistake
        links = cures_of(page)
        if "Refused" not in page:
            break
        assert links, page
        page = page_of(client, links[0])
    assert f"<code>{rule}</code>" not in page
    assert "Accepted" in page


def test_cures_of_everything_that_the_rules_refuse_lead_to_pages(client):
    for rule in tilescope.RULES.values():
        failing = dict(rule.failing) if hasattr(rule, "failing") and isinstance(rule.failing, dict) else {}
        if not {"data_type", "dims", "box"} <= failing.keys():
            continue
        query = {
            name: ",".join(map(str, value)) if isinstance(value, tuple | list) else value
            for name, value in failing.items()
        }
        answer = client.get("/tensor-map", params={"kind": "tensor_map"} | query)
        assert answer.status_code in (200, 422), rule.name
        for link in cures_of(answer.text):
            assert client.get(link).status_code == 200, (rule.name, link)


@pytest.mark.parametrize(
    ("pasted", "field", "value"),
    [
        ('{"data_type": "f16", "dims": [256, 64], "strides_bytes": [512], "box": [64, 16]}', "box", "64,16"),
        (tilescope.TensorMap("f16", (256, 64), (512,), (64, 16), swizzle="128B").encode().hex(), "dims", "256,64"),
    ],
)
def test_a_pasted_map_fills_the_fields(client, pasted, field, value):
    answer = client.get("/tensor-map", params={"paste": pasted})
    assert answer.status_code == 303
    page = page_of(client, answer.headers["location"])
    assert f'name="{field}" value="{value}"' in page
    assert "Accepted" in page


def test_pasted_bytes_that_are_no_map_are_shown_bit_by_bit(client):
    answer = client.get("/tensor-map", params={"paste": "ff" * 128})
    assert answer.status_code == 303
    page = page_of(client, answer.headers["location"])
    assert "Not a tensor map" in page
    assert 'class="violations"' in page


@pytest.mark.parametrize("target", [target for target in TARGETS if target != "header"])
@pytest.mark.parametrize("query", ["", "tile=64x64&direction=store&", "data_type=e4m3&stages=4&"])
def test_the_code_of_a_plan_is_what_its_command_and_its_python_write(client, capsys, target, query):
    page = page_of(client, f"/plan?{query}target={target}")
    if "No " + target in page:  # a sentence instead
        with pytest.raises(tilescope.RuleError):
            tilescope.emit(eval(_planned(page), {"ts": tilescope}).best, target)
        return
    source = shown(page, "source")
    assert eval(shown(page, "code-python"), {"ts": tilescope}) == source
    assert tilescope.cli.run(shlex.split(shown(page, "code-command"))[1:]) == 0
    assert capsys.readouterr().out.rstrip("\n") == source.rstrip("\n")


def _planned(page):
    return shown(page, "python").partition("report = ")[2]


def test_a_saved_plan_runs_no_emitter(client, monkeypatch):
    monkeypatch.setattr("tilescope.emitter.emission.emit", None)
    assert saved(client, "/plan", ".svg").text.startswith("<svg")


@pytest.mark.parametrize("page", PAGES)
def test_a_saved_value_is_not_drawn(client, monkeypatch, page):
    monkeypatch.setattr("tilescope.view.draw", None)
    assert saved(client, f"/{page}", ".json").json()["kind"]


def test_a_plan_without_code_says_why(client):
    page = page_of(client, "/plan?direction=store&target=triton")
    assert 'id="source"' not in page
    assert "No triton code: emit" in page


def test_the_mistake_of_a_pipeline_is_said_and_marked(client):
    page = page_of(client, "/pipeline?given=text")
    found = saved(client, "/pipeline?given=text", ".json").json()
    assert found["verdict"] == "mistake"
    assert found["mistake"]["found"] in html.unescape(page)
    assert re.search(r'<rect[^>]*class="collision"[^>]*><title>full\[1\], phase 1', page)
    assert "the mistake" in page
    cured = saved(client, "/pipeline?given=text&text=" + quote(_sample(page).replace("64 * (i == 3)", "0")), ".json")
    assert cured.json()["verdict"] == "proven"


def _sample(page):
    return html.unescape(re.search(r"<textarea[^>]* name=[^>]*>(.*?)</textarea>", page, re.DOTALL)[1])


KERNEL_TEXT = """
roles = {{p = {{warps = 1}}, c = {{warps = 4}}}}
tiles = {tiles}
loops = {{k = {{count = {count}}}, j = {{inside = "k", count = {count}}}}}
steps = [
    {{role = "p", operation = "load", writes = ["t0"], loop = "j"}},
    {{role = "c", operation = "threads", reads = ["t0"], loop = "j"}},
]
"""


@pytest.mark.parametrize(
    ("tiles", "stages", "count", "sentence"),
    [
        (19, "1", 2, "19 tiles"),
        (1, "[1, 34]", 2, "33 stages to choose"),
        (1, "1", 33, "2178 rounds of steps"),
        (1, "1", 2, ""),
    ],
)
def test_a_described_kernel_that_is_too_large_is_refused_before_it_is_planned(client, tiles, stages, count, sentence):
    rows = [f't{number} = {{shape = [64, 64], data_type = "bf16", stages = {stages}}}' for number in range(tiles)]
    text = KERNEL_TEXT.format(tiles=f"{{{', '.join(rows)}}}", count=count)
    answer = client.get("/kernel", params={"given": "text", "text": text})
    assert answer.status_code == (422 if sentence else 200), answer.text
    assert sentence in answer.text


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"cluster": "4x4", "consumers": "3"}, "64 roles in all blocks"),
        ({"given": "gemm", "shape": "4096x4096x65536"}, "more than 10000 steps"),
        ({"given": "gemm", "shape": "4096x4096"}, "shape is three numbers"),
        ({"steps": "1000"}, "more than 1000 steps"),
        ({"tile": "99999x99999"}, "elements"),
        (
            {"given": "text", "text": '[[roles]]\nname="x"\nsteps=[{loop="i", count=9999999, steps=[]}]'},
            "more than 1000",
        ),
        (
            {"given": "text", "text": '[[roles]]\nname="x"\nsteps=[{loop="i", count=999999999999, steps=[]}]'},
            "at most 16777216 rounds",
        ),
        ({"given": "text", "text": "roles = 3"}, "argument-type"),
        ({"given": "text", "text": "<script>"}, "stdin"),
        ({"given": "text", "text": "a" * 7000}, "at most 6000"),
    ],
)
def test_a_pipeline_that_is_too_large_or_wrong_is_refused_before_it_runs(client, monkeypatch, query, sentence):
    monkeypatch.setattr("tilescope.questions.pipeline_questions.simulate", None)
    answer = client.get("/pipeline", params=query)
    assert answer.status_code == 422
    assert sentence in answer.text
    assert "<script>" not in answer.text


def pages_of_causes(page):
    """(cause, path) of the links that stand below the causes of a page of symptoms."""
    for section in page.split("<h3")[1:]:
        cause = re.search(r"\d+\. ([\w-]+)", section)
        link = re.search(r'<a[^>]* href="([^"]*)"[^>]*>Test it on the page', section)
        if cause and link:
            yield cause[1], html.unescape(link[1])


@pytest.mark.slow
def test_every_cause_leads_to_a_page_that_shows_its_command_or_has_none(client):
    led = set()
    for symptom in SYMPTOM:
        page = page_of(client, "/symptoms?" + urlencode({"seen": symptom}))
        for cause, path in pages_of_causes(page):
            if cause in led:
                continue
            led.add(cause)
            answer = client.get(path)
            assert answer.status_code in (200, 422), path
            assert "unknown-name" not in answer.text  # every field is one of the page's
    assert {
        "parity",
        "coordinate-16-bytes",
        "stride-16-bytes",
        "swizzle-by-row",
        "atom-step",
        "plain-pitch",
        "few-stages",
    } <= led


@pytest.mark.parametrize(
    ("state", "pages"),
    [
        ("/plan", ["load", "tensor-core", "pipeline"]),
        ("/plan?tile=256x128&major=MN&operand=B&fold=yes&stages=3", ["load", "tensor-core", "pipeline"]),
        ("/plan?arch=sm_100&data_type=e4m3&tile=128x128", ["load", "tensor-core", "pipeline"]),
        ("/plan?arch=sm_80", []),
        ("/plan?tile=64x64&direction=store", []),
        ("/tensor-map", ["load"]),
        ("/tensor-map?dims=4096,4096,8&box=64,64,1&address=0x7f0000000000", ["load"]),
        ("/tensor-map?kind=im2col_map", ["load"]),
        ("/tensor-map?kind=im2col_wide_map", ["load"]),
        ("/tensor-map?box=128,300", []),
        ("/gemm", ["path", "path", "pipeline"]),
        ("/gemm?shape=4096x4096x4095", []),
        ("/tensor-memory?show=scales", ["tensor-memory"]),
        ("/diff", ["tensor-map", "tensor-map"]),
        ("/conv", ["load", "tensor-map"]),
        ("/conv?stride=2&direction=dgrad", []),
        ("/identify", ["layout"]),
        ("/convert", ["layout", "banks"]),
        ("/convert?notation=triton", ["layout", "banks"]),
    ],
)
def test_a_plan_and_a_map_lead_to_the_pages_that_go_on(client, state, pages):
    page = page_of(client, state)
    leads = re.findall(r'<p class="leads">(.*?)</p>', page, re.DOTALL)
    links = [html.unescape(link) for lead in leads for link in re.findall(r'href="([^"]*)"', lead)]
    assert [link.strip("/").partition("?")[0] for link in links] == pages
    for link in links:
        page_of(client, link)


@pytest.mark.parametrize("chosen", ["tile", "layout", "lanes"])
def test_another_form_of_a_page_answers_with_what_it_keeps(client, chosen):
    page = page_of(client, "/banks?tile=64x64")
    link = re.search(rf'<option value="{chosen}" data-path="([^"]*)"', page)[1]
    page_of(client, html.unescape(link))


def test_words_that_name_no_symptom_lead_to_the_nearest(client):
    page = page_of(client, "/symptoms?seen=H100 vs B200")
    assert "Nothing known by these words" in page
    assert 'href="/symptoms?seen=it+works+on+Hopper+and+fails+on+Blackwell"' in page


def test_a_place_in_a_walk_is_part_of_the_address(client):
    assert 'data-step="5"' in page_of(client, f"/swizzle?{STEP}=5")
    for strange in ("-1", "x", "\uff15", "9" * 9):
        assert 'data-step="0"' in page_of(client, f"/swizzle?{STEP}={strange}")


def test_a_tile_of_128_x_128_is_drawn_whole(client):
    page = page_of(client, "/load?dims=128,128&box=64,128&coords=64,0")
    painted = re.findall(r'class="painted-cells">(.*?)</script>', page, re.DOTALL)
    linked = page.count("data-link=") + sum(bool(cell[2]) for told in painted for cell in painted_cells(told))
    assert linked == 2 * 128 * 8  # both sides, chunk by chunk


# Twelve roles whose arrivals may meet any phase.
MANY_ORDERS = """
barriers = {full = {stages = 2, count = 1}}
[[roles]]
name = "p"
instances = 11
steps = [{loop = "i", count = 40, steps = [{arrive = "full[i % 2]"}]}]
[[roles]]
name = "c"
steps = [{loop = "i", count = 10, steps = [{wait = "full[i % 2]", parity = "(i / 2) % 2"}]}]
"""

# The most that each page takes, as slow as it can be made.
LARGEST = [
    "/plan?tile=512x256&fold=yes",
    "/plan?tile=128x256&data_type=u8&consumer=ld.b8 columns",
    "/banks?tile=128x256&data_type=u8&other=st.b8 columns",
    "/banks?given=layout&text=(256,128):(128,1)&element_bits=8&pattern=transpose",
    "/layout?text=(128,128):(129,1)&element_bits=64",
    "/layout?text=(128,128):(128,1)&element_bits=8&other=(128,128):(1,128)",
    "/layout?text=(1024,32):(32,1)&shape=1024x32",
    "/tensor-core?tile=512x256",
    "/tensor-core?tile=256x1024&data_type=u8",
    "/load?dims=256,160&box=64,160&coords=0,0",
    "/load?dims=256,256,256&box=64,256,7&coords=0,0,0",
    "/load?kind=im2col_map&dims=64,160,160,2&pixels_per_column=1024",
    "/swizzle?mode=xor:5,0,5",
    "/plan?tile=128x256&data_type=u8&stages=4&target=python",
    "/pipeline?cluster=2x1&consumers=2&steps=30",
    "/pipeline?other=256x64&cluster=4x4&consumers=2&steps=22",
    "/pipeline?given=gemm&cluster=2x2",
    "/pipeline?given=gemm&arch=sm_100&data_type=e4m3&cluster=2x1",
    "/pipeline?given=text&text=" + quote(MANY_ORDERS),
    "/symptoms?seen=" + quote("hang slow wrong zero nan conflict multicast " * 40),
]


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("state", LARGEST)
def test_the_largest_that_a_page_takes_needs_little_memory(client, state):
    tracemalloc.start()
    try:
        page = page_of(client, state)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(page) < 5_000_000
    assert most < 200_000_000


def test_the_line_that_says_a_forms_state_shows_what_a_text_begins_with():
    words = form_at("/diff").state_words
    assert words.startswith('{ "data_type": "bf16"')


def test_a_map_and_a_descriptor_without_an_element_are_compared(client):
    page = page_of(client, "/path?given=map&element=")
    assert "ts.compatible(tensor_map, descriptor)" in page
    assert "The descriptor reads something else" in page
