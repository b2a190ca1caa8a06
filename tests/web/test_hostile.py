"""Thousands of hostile queries at every route: each is answered or refused, shortly, and never with a traceback."""

from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilescope.web.field import fields_of
from tilescope.web.pages import PAGES

MAX_CHARACTERS = 5_000_000  # of one answer: what a page draws is bounded, whatever it is asked
FORMS = [(page, chosen) for page in PAGES.values() for chosen in page.forms]

numbers = st.one_of(
    st.integers(-(2**70), 2**70),
    st.integers(-3, 300),
    st.sampled_from(
        [0, -1, 1, 16, 63, 64, 65, 127, 128, 255, 256, 257, 1 << 16, 1 << 31, 1 << 32, 1 << 40, 1 << 63, 1 << 64]
    ),
)
lists = st.lists(numbers, min_size=0, max_size=7).map(lambda found: ",".join(map(str, found)))
shapes = st.lists(st.integers(0, 5000), min_size=1, max_size=4).map(lambda found: "x".join(map(str, found)))
modes = st.recursive(
    st.integers(0, 1 << 21).map(str),
    lambda inner: st.lists(inner, min_size=1, max_size=4).map(lambda each: f"({','.join(each)})"),
)
layouts = st.builds(lambda one, two: f"{one}:{two}", modes, modes)
pasted = st.sampled_from(
    [
        "Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1)",
        "Sw<3,4,3> o smem_ptr[16b](unset) o (_4096,_4096):(_4096,_1)",
        "((4,8),(2,2)):((32,1),(16,8))",
        "(1048576,1048576):(1,1048576)",
        "(2,2,2,2,2,2,2,2,2,2):(1,2,4,8,16,32,64,128,256,512)",
        "#ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>",
        "#ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0]}>",
        "GMMA::Layout_K_SW128_Atom<half_t>",
        "(TileTransform((8, 64)), SwizzleTransform(128))",
        'Layout((64, 64), 16, swizzle="128B")',
        "Layout((999999, 999999), 16)",
        '{"barriers": {"full": {"count": 1}}, "roles": [{"name": "x", "steps": [{"wait": "full", "parity": "1 << 99"}]}]}',
        '[[roles]]\nname = "x"\nsteps = [{loop = "i", count = "9 * 999999999", steps = [{loop = "j", count = "i", steps = []}]}]',
        '[barriers]\nfull = {count = 0}\n[[roles]]\nname = "x"\ninstances = 32\nsteps = [{arrive = "full[-1]"}]',
        "715",
        "it hangs",
        "`hang`",
        "128B",
        "xor:3,4,3",
        "xor:30,30,30",
        "xor:1,0,40",
        "xor:20,0,20",
        "transpose",
        "ldmatrix.x4",
        "ld.b128 rows",
        "ld.b32: lane * 33 * 4",
        "ld.b32: lane ** lane ** lane",
        "ld.b32: 1 << (1 << 60)",
        "mma.m16n8k16 A bf16",
        "wgmma.m64n256k16",
        "e2m1",
        "tf32",
        "b1",
        "0x4000004000010040",
        "9" * 350,
        "0x" + "f" * 300,
        "1_0_0",
        "\uff11\uff12",
        "-0",
        "+7",
        "1e9",
        "nan",
        "inf",
        "0b11",
        "NaN,1",
        "\x00",
        "\ud7ff",
        "\u202e",
        "a" * 5000,
        "%s%n",
        "../..",
        "${7*7}",
        "{{7*7}}",
        "'; DROP",
        "\n\r\t",
        '{"dims": [[[[]]]]}',
        '{"kind": "tensor_map"}',
        "[" * 900,
        "{" * 900,
        "0x0 " * 16,
        "ff" * 128,
        "globalDim (1,2)",
        "Failed to initialize the TMA descriptor",
    ]
)
texts = st.one_of(numbers.map(str), numbers.map(hex), lists, shapes, layouts, pasted, st.text(max_size=60))


def _texts_for(field):
    choices = field.input.choices
    return st.one_of(texts, st.sampled_from(choices), st.just(field.preset)) if choices else texts


def query_of(page, chosen):
    """Some fields of the form with hostile text, the others left alone or with a choice of theirs."""
    fields = {field.name: _texts_for(field) for field in fields_of(page.forms[chosen])}
    filled = st.fixed_dictionaries({}, optional=fields)
    return filled.map(lambda query: query | ({page.chooser.name: chosen} if page.chooser else {}))


def asked(client, path, query):
    answer = client.get(path, params=query)
    assert answer.status_code in (200, 303, 414, 422), (path, query, answer.text[:300])
    assert "Traceback" not in answer.text
    assert len(answer.text) < MAX_CHARACTERS, (path, query)
    return answer


@pytest.mark.hypothesis  # which sees no law inside a test
@pytest.mark.parametrize(("page", "chosen"), FORMS, ids=[f"{page.name}-{chosen}" for page, chosen in FORMS])
def test_hostile_queries_are_answered_or_refused(client, markup_problems, page, chosen):
    @settings(max_examples=10)
    @given(query=query_of(page, chosen), ending=st.sampled_from(["", "", "", ".svg", ".json"]))
    def law(query, ending):
        answer = asked(client, f"/{page.name}{ending}", query)
        if not ending and answer.status_code != 303 and len(answer.text) < 200_000:
            assert markup_problems(answer.text) == []

    law()


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize(("page", "chosen"), FORMS, ids=[f"{page.name}-{chosen}" for page, chosen in FORMS])
def test_many_more_hostile_queries_are_answered_or_refused(client, page, chosen):
    @settings(max_examples=150)
    @given(query=query_of(page, chosen), ending=st.sampled_from(["", ".svg", ".json"]))
    def law(query, ending):
        asked(client, f"/{page.name}{ending}", query)

    law()


@given(query=st.dictionaries(st.text(max_size=20), texts, max_size=5), path=st.text(max_size=30))
def test_no_path_and_no_name_of_a_field_breaks_a_page(client, query, path):
    answer = client.get("/" + quote(path, safe=""), params=query)
    assert answer.status_code in (200, 303, 404, 414, 422), answer.text[:300]
    assert "Traceback" not in answer.text


@given(text=st.one_of(texts, st.text(max_size=400)))
def test_whatever_is_pasted_is_read_or_refused(client, text):
    answer = asked(client, "/tensor-map", {"paste": text})
    if answer.status_code == 303:
        assert client.get(answer.headers["location"]).status_code in (200, 422)
