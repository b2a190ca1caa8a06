"""Two states of a page side by side: both in the link, both drawn, and their difference said in words."""

import html
import json
import re
import shlex
from urllib.parse import quote

import pytest

import tilescope.cli
from tilescope.web.pages import PAGES, form_at

COMPARED = ["swizzle", "plan", "banks", "pipeline"]

# A left and a right state of every page that compares, and what the right one has instead.
PAIRS = [
    ("/swizzle", "/swizzle?mode=64B", "mode: 64B instead of 128B"),
    ("/swizzle?address=0x480", "/swizzle", "base offset: 0 instead of 1"),
    ("/plan", "/plan?swizzle=64B", "copies: 2 of box 32 x 128 instead of 1"),
    ("/plan", "/plan?tile=64x63", "a plan on the left"),
    (
        "/banks",
        "/banks?pad=4",
        "32 wavefronts (no conflict) instead of 1024",
    ),
    ("/banks", "/banks?given=lanes", "32 wavefronts (no conflict)"),
    ("/pipeline", "/pipeline?stages=2", "75 nominal ticks instead of 119 nominal"),
    ("/pipeline", "/pipeline?given=text", "phase 1 expects 16448 bytes"),
]


def beside(left, right, ending=""):
    """The address of the right state with the left one beside it."""
    path, _, query = right.partition("?")
    return f"{path}{ending}?{query}{'&' if query else ''}left={quote(left, safe='')}"


def verdict(page):
    return html.unescape(re.search(r'<h2 class="verdict">(.*?)</h2>', page)[1])


def headline(client, state):
    path, mark, query = state.partition("?")
    return client.get(f"{path}.json{mark}{query}").json()["answer"]


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("left", "right", "difference"), PAIRS)
def test_both_states_are_shown_and_their_difference_is_said(client, markup_problems, left, right, difference, wording):
    page = client.get(beside(left, right)).text
    assert markup_problems(page) == []
    assert difference in verdict(page)
    wording(f"{left} beside {right}", verdict(page))
    sides = [html.unescape(side) for side in re.findall(r'<h3 id="side-\d"><b>\w+</b> (.*?)</h3>', page)]
    assert sides == [headline(client, left), headline(client, right)]


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("left", "right", "difference"), PAIRS)
def test_the_link_holds_both_states_and_each_side_has_its_command(client, left, right, difference):
    page = client.get(beside(left, right)).text
    link = html.unescape(re.search(r'<span id="link">(.*?)</span>', page)[1])
    assert client.get(link).text == page
    for name, state in (("command", right), ("left-command", left)):
        said = html.unescape(re.search(rf'<code id="{name}">(.*?)</code>', page)[1])
        assert tuple(shlex.split(said)[1:]) == form_at(state).command, difference


@pytest.mark.parametrize(("left", "right", "_"), [PAIRS[0], PAIRS[4]])
def test_both_values_and_both_drawings_are_saved(client, capsys, left, right, _):
    saved = client.get(beside(left, right, ".json")).json()
    for name, state in (("left", left), ("right", right)):
        assert tilescope.cli.run([*form_at(state).command, "--json"]) in (0, 1)
        assert saved[name] == json.loads(capsys.readouterr().out)
    page = client.get(beside(left, right)).text
    drawn = client.get(beside(left, right, ".svg")).text
    cells = re.compile(r"<rect[^>]*><title>([^<]*)</title>")
    assert cells.findall(drawn) == cells.findall(page) != []


def test_the_same_state_twice_gives_the_same_answer(client, wording):
    page = client.get("/swizzle?mode=32B&pin=0.1.3").text
    link = html.unescape(re.search(r'<a class="button" id="compare" href="([^"]*)"', page)[1])
    both = client.get(link).text
    wording("the same state twice gives the same answer", verdict(both))
    assert "Swizzle 32B" in both


def test_changing_sides_twice_leads_back(client):
    address = beside("/swizzle", "/swizzle?mode=64B")

    def changed(path):
        return html.unescape(re.search(r'href="([^"]*)">Change sides', client.get(path).text)[1])

    other = form_at(changed(address))
    assert other.written["mode"] == "128B"
    assert other.left.written["mode"] == "64B"
    assert client.get(changed(changed(address))).text == client.get(address).text


def test_another_form_of_the_page_and_a_cure_keep_the_left_state():
    form = form_at(beside("/banks?pad=4", "/banks"))
    assert form_at(form.path_to("lanes")).left == form.left
    assert form_at(form.path(tile="64x64")).left == form.left


@pytest.mark.parametrize("name", PAGES)
def test_only_pages_that_compare_offer_it(client, name):
    page = client.get(f"/{name}").text
    assert ('id="compare"' in page) == (name in COMPARED)
    if name not in COMPARED:
        assert client.get(f"/{name}?left=/{name}").status_code == 422


@pytest.mark.parametrize(
    "left",
    [
        "",
        "swizzle",
        "/banks",
        "//evil.example/swizzle",
        "http://evil.example/swizzle",
        "http://[",
        "/swizzle?mode=7",
        "/swizzle?mood=128B",
        "/swizzle?mode=64B&mode=32B",
        "/swizzle?left=/swizzle",
        "/swizzle?address=<script>",
        "\x00",
        "/swizzle?" + "a=1&" * 200,
    ],
)
@pytest.mark.parametrize("ending", ["", ".svg", ".json"])
def test_a_left_state_that_is_none_is_refused(client, left, ending):
    answer = client.get(f"/swizzle{ending}", params={"left": left})
    assert answer.status_code == 422
    if ending:
        assert answer.headers["content-type"].startswith(("text/plain", "application/json"))
    else:
        assert "<script>" not in answer.text
    assert "Traceback" not in answer.text
