"""A page and its command answer the same in every state of a form: the same JSON whole, or the same refusal.

States are made from the forms: one or two fields changed from what the form holds at first, to one of the field's own choices,
to a sample of what people write there, or to nothing. ./test tries some of each form's states, --all many more.
"""

import io
import json
import random
import re
from contextlib import redirect_stderr, redirect_stdout
from itertools import combinations

import pytest

from tilescope import cli, written
from tilescope.questions.page import address
from tilescope.questions.question import PAGE_LIMIT
from tilescope.web.field import fields_of
from tilescope.web.pages import PAGES, form_at

FORMS = [(page.name, chosen) for page in PAGES.values() for chosen in page.forms]

MAP = '{"data_type": "bf16", "dims": [%d, 64], "strides_bytes": [256], "box": [64, 8]}'

# What people write into a field that offers no choices: by its name, else by how it is read.
BY_NAME = {
    "tile": ("64x64", "64x128", "128x32", "32x24"),
    "shape": ("512x512x256", "128x256x1024"),
    "dims": ("64,64", "4096,4096,8", "100,9", "64,32,32,4", "72"),
    "strides_bytes": ("256", "100", "512,8192"),
    "box": ("64,64", "128,8", "16,8,1", "64,300"),
    "lower_corner": ("0,0", "-1"),
    "upper_corner": ("0,0", "-2,-2"),
    "lower_width": ("0", "-1"),
    "upper_width": ("0", "-3"),
    "channels_per_pixel": ("32", "128"),
    "pixels_per_column": ("32", "1024"),
    "element_strides": ("1", "1,2", "1,1,1,1", "1,9"),
    "coords": ("0,0", "-8,4", "8,0,0,0", "4,4"),
    "offsets": ("0,0", "1,2"),
    "address": ("0x0", "0x480", "0x7f0000000010"),
    "pad": ("0", "4", "16"),
    "atom": ("8x64", "8x32"),
    "element": ("0,0", "9,17", "500,0"),
    "element_bits": ("8", "16", "32"),
    "word": ("0x08400010", "0x000003f0001ffffe", "0xffffffffffffffff"),
    "lane": ("5", "40"),
    "stages": ("1", "2"),
    "consumers": ("1", "2"),
    "steps": ("1", "5"),
    "cluster": ("1x1", "2x1"),
    "cta_group": ("1", "2"),
    "global_shape": ("4096x4096", "100x100"),
    "hex": ("ff" * 128, "00" * 64),
    "smem_block": ("0", "0,0,0", "1"),
    "smem_at": ("42", "shift.cu:12", "42:9", "3", "there"),
    "launch": ("[launch]\ngrid = [1]\nblock = [32]", "[launch", "launch = 3"),
    "image": ("2x16x16x64", "1x32x128", "1x8x16x16x32", "4x4"),
    "filters": ("64x3x3", "32x5", "16x1x1", "64x3x3x3"),
    "stride": ("1", "2", "2,1", "1,1,1"),
    "dilation": ("1", "2"),
    "m": ("64", "256", "100"),
    "n": ("16", "256", "300"),
    "k": ("16", "32", "100"),
    "load": ("32x32b.x8", "16x64b.x4", "32x32b"),
    "budget": ("D:128x512", "D:128x256*2,A:128x64", "D:64x128,D:64x128", "64*2,D:128x64:f16", "SFA:128x256", "Q:1x1"),
    "one": (MAP % 64, (MAP + "\n" + MAP) % (64, 128), "00" * 128, "12 34"),
    "dump": ("0x00010000 0x00030002 " * 64, "00" * 512, "zz", "00000000: 0001 0203"),
    "tile_text": ("00" * 512, "0001 0203", "0x00010000", "not hexadecimal"),
    "shape_of_two": ("8x32", "16x16", "128x256", "8"),
    "sms": ("8", "0"),
    "seen": ("715", "garbage in every second row", "swizzle"),
}
BY_READER = {
    written.smem_address: ("0x0", "0x80", "0x400"),
    written.tile: ("64x64", "16x8"),
}
SAME_FORM = {
    ("layout", "other"): "text",  # takes what the other field offers
    ("pipeline", "other"): "tile",
    ("layout", "shape"): "global_shape",
    ("convert", "shape"): "global_shape",
    ("identify", "shape"): "shape_of_two",
    ("identify", "tile"): "tile_text",
    ("tensor-memory", "shape"): "shape_of_two",
    ("gemm", "tile"): "shape",
    ("diff", "other"): "one",
}


def written_in(page, field, fields):
    """What a state may hold in a field, beside what it holds at first: nothing at last."""
    if field.control == "tick":
        return ["yes"]
    alike = SAME_FORM.get((page, field.name), field.name)
    choices = next((other.input.choices for other in fields if other.name == alike), ()) or field.input.choices
    samples = () if choices else BY_NAME.get(alike, BY_READER.get(field.input.read, ()))
    return [text for text in (*choices, *samples, "") if text != field.preset]


def states(page_name, chosen):
    """The form as it is at first, then every state with one field changed, then with two."""
    page = PAGES[page_name]
    fields = fields_of(page.forms[chosen])
    kind = {} if page.chooser is None else {page.chooser.name: chosen}
    changed = {field.name: written_in(page_name, field, fields) for field in fields}
    one = [{name: text} for name, texts in changed.items() for text in texts]
    two = [
        {first: text, second: other}
        for first, second in combinations(changed, 2)
        for text in changed[first]
        for other in changed[second]
    ]
    return [address(page_name, kind | state) for state in [{}, *one, *two]], 1 + len(one)


def some(page_name, chosen, most_of_one, of_two):
    """The first state, some of those with one field changed and some with two: the same at every run."""
    listed, ones = states(page_name, chosen)
    draw = random.Random(f"{page_name} {chosen}")
    one = draw.sample(listed[1:ones], min(most_of_one, ones - 1))
    two = draw.sample(listed[ones:], min(of_two, len(listed) - ones))
    return [listed[0], *one, *two]


def commanded(words, stdin=""):
    """The exit status of a command, and what it prints on stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        status = cli.run([*words, "--json"])
    return status, out.getvalue(), err.getvalue()


def difference(client, state, timeless):
    """How the page at an address and its command differ; None where they agree."""
    path, question, query = state.partition("?")
    page = client.get(f"{path}.json{question}{query}")
    form = form_at(state)
    if form.command is None:  # a field cannot be read: the page says so, and shows no command
        return None if page.status_code == 422 else f"{page.status_code} without a command"
    stdin = next((form.written[field.name] for field in form.fields if field.input.is_long), "")
    status, out, err = commanded(form.command, stdin)
    if page.headers["content-type"] == "application/json":
        if status not in (0, 1):
            return f"the page answers, the command ends with {status}: {err}"
        printed = timeless(json.loads(out))
        return None if printed == page.json() else f"JSON differs: {unlike(page.json(), printed)}"
    assert page.status_code == 422, page.text
    refused = page.text.splitlines()
    if all(line.startswith(PAGE_LIMIT.name) for line in refused):
        return None  # the command takes more
    if status != 2:
        return f"the page refuses, the command ends with {status}: {page.text}"
    said = [re.sub("^(error|warning|note): ", "", line) for line in err.splitlines()]
    if said == refused or said[0].startswith("Usage:"):  # click refuses words in sentences of its own
        return None
    return f"other reasons: the page {refused}, the command {said}"


def unlike(one, other, at=""):
    """The first place where two JSON values differ, and both values there."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        places = [(f"{at}.{key}", one[key], other[key]) for key in one]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        places = [(f"{at}[{index}]", *pair) for index, pair in enumerate(zip(one, other, strict=True))]
    else:
        return f"{at}: {str(one)[:300]} and {str(other)[:300]}"
    return next((unlike(first, second, place) for place, first, second in places if first != second), "")


# States in which a page and its command were once of two minds, and states that both refuse in a way of their own.
NAMED = [
    "/banks?tile=64x64&data_type=bf16&swizzle=32B&pattern=ldmatrix.x4&other=&pad=",  # an emptied padding
    "/banks?tile=64x64&data_type=bf16&swizzle=64B&pattern=ldmatrix.x4&other=&pad=",
    "/banks?tile=64x128&data_type=bf16&swizzle=128B&pattern=ldmatrix.x4&other=&pad=",
    "/banks?tile=64x32&data_type=bf16&swizzle=128B&pattern=ldmatrix.x4&other=&pad=0",
    "/banks?tile=128x64&data_type=bf16&swizzle=128B&pattern=ldmatrix.x4.trans&other=cp.async&major=MN",
    "/banks?tile=2048&pattern=ld.b64 rows&other=",
    "/banks?tile=64x64&data_type=bf16&pattern=ldmatrix.x4&pad=1",  # the padding is named
    "/banks?given=layout&text=",
    "/tensor-map?kind=im2col_wide_map&swizzle=none",  # not what such a map takes anyway
    "/tensor-map?kind=im2col_wide_map&arch=sm_90",
    "/tensor-map?kind=im2col_wide_map&mode=",
    "/tensor-map?kind=im2col_wide_map&lower_width=&upper_width=",
    "/tensor-map?element_strides=1",
    "/tensor-map?dims=",
    "/tensor-map?data_type=bf17",
    "/load?coords=4,0",  # error 715
    "/load?data_type=e2m3",
    "/plan?tile=64x63",  # no plan
    "/plan?data_type=bf17",
    "/layout?other=Layout((64, 64), 16)",  # another tile
    "/layout?text=GMMA::Layout_K_SW128_Atom<half_t>&major=K",
    "/swizzle?address=0x0",
    "/symptoms?seen=",
    "/symptoms?seen=swizzle",  # a word and no symptom
    "/symptoms?seen=box-range",
    "/convert?text=Layout((60, 60), 16, padding_bytes=8)&notation=triton",  # no such text
    "/tensor-memory?element=&load=32x32b.x32",  # a load of nothing
    "/tensor-memory?m=",
    "/conv?stride=2&direction=dgrad",  # no such map
    "/identify?shape=",
    "/identify?tile=ff",
]


@pytest.mark.parametrize("state", NAMED)
def test_a_page_and_its_command_answer_the_same_where_they_once_differed(client, timeless, state):
    assert difference(client, state, timeless) is None


@pytest.mark.parametrize(("tile", "swizzle"), [("64x64", "32B"), ("64x64", "64B"), ("64x128", "128B")])
def test_an_emptied_padding_leaves_rows_as_tma_writes_them(client, tile, swizzle):
    query = {"tile": tile, "data_type": "bf16", "swizzle": swizzle, "pattern": "ldmatrix.x4", "other": "", "pad": ""}
    cost = client.get("/banks.json", params=query).json()["costs"][0]
    assert cost["wavefronts"] == cost["ideal"]


@pytest.mark.parametrize("query", ["swizzle=none", "arch=sm_90"])
def test_an_im2col_wide_map_is_refused_by_the_page_and_by_its_command(client, query):
    state = f"/tensor-map?kind=im2col_wide_map&{query}"
    assert not client.get(state.replace("?", ".json?")).json()["accepted"]
    assert commanded(form_at(state).command)[0] == 1


def test_the_command_stands_below_a_refusal_too(client):
    page = client.get("/banks?tile=512x512")
    assert page.status_code == 422
    assert "<code>page-limit</code>" in page.text
    assert "tilescope banks 512x512 f32" in page.text


@pytest.mark.parametrize(("page", "chosen"), FORMS)
def test_a_page_and_its_command_answer_the_same(client, timeless, page, chosen):
    one, two = (1, 1) if chosen == "gemm" else (3, 4)  # a GEMM's pipeline takes half a second to run
    differing = {state: difference(client, state, timeless) for state in some(page, chosen, one, two)}
    assert {state: found for state, found in differing.items() if found} == {}


@pytest.mark.slow
@pytest.mark.parametrize(("page", "chosen"), FORMS)
def test_a_page_and_its_command_answer_the_same_in_many_states(client, timeless, page, chosen, request):
    one, two = (15, 10) if chosen == "gemm" else (40, 24)
    if request.config.getoption("--every-case"):
        one, two = 100, 60
    differing = {state: difference(client, state, timeless) for state in some(page, chosen, one, two)}
    assert {state: found for state, found in differing.items() if found} == {}
