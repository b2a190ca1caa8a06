"""The page of pipelines: parts of a timeline by their address, and samples of mistakes."""

import re
from html import unescape

import pytest

import tilescope as ts
from tilescope.pipeline.description import Pipeline
from tilescope.questions.pipeline_samples import CLUSTER, RING, SAMPLES, STORE
from tilescope.symptoms import diagnose
from tilescope.web.pages import form_at
from tilescope.web.sheet import Sheet


def link(page, name):
    """Where a button above the timeline leads; None if there is nothing there."""
    found = re.search(rf'id="{name}" href="([^"]*)"', page)
    return None if found is None else unescape(found[1])


def test_an_address_names_the_ticks_that_are_drawn(client):
    page = client.get("/pipeline?ticks=16-47").text
    assert "Timeline (16 to 47 of 119 nominal ticks)" in page
    assert "ticks 16 to 47 of 119" in page
    assert 'data-pan="16 32 119"' in page
    assert "Timeline (16 to 47 of 119 nominal ticks)" in client.get("/pipeline.svg?ticks=16-47").text


def test_the_buttons_lead_to_the_ticks_around(client):
    page = client.get("/pipeline?ticks=16-47").text
    assert {name: link(page, name) for name in ("to-start", "earlier", "later", "to-end", "closer", "farther")} == {
        "to-start": "/pipeline?ticks=0-31",
        "earlier": "/pipeline?ticks=0-31",
        "later": "/pipeline?ticks=32-63",
        "to-end": "/pipeline?ticks=87-118",
        "closer": "/pipeline?ticks=24-39",
        "farther": "/pipeline?ticks=0-63",
    }
    assert re.search(r'data-onward="/pipeline\?ticks=48-79"', page)


def test_nothing_leads_beyond_the_ends(client):
    first = client.get("/pipeline").text
    assert (link(first, "to-start"), link(first, "earlier")) == (None, None)
    last = client.get("/pipeline?ticks=55-118").text
    assert (link(last, "later"), link(last, "to-end"), "data-onward" in last) == (None, None, False)


@pytest.mark.parametrize("written", ["7-3", "x", "0-99999", "1-2", "-5-20", "0-63-80"])
def test_ticks_that_are_no_part_of_a_timeline_are_passed_over(client, written):
    page = client.get("/pipeline", params={"ticks": written})
    assert page.status_code == 200
    assert "Timeline (the first 64 of 119 nominal" in page.text


def test_the_ticks_of_a_page_without_a_timeline_are_passed_over(client):
    assert client.get("/swizzle?ticks=0-15").status_code == 200


def test_the_player_walks_over_the_ticks_that_are_drawn(client):
    page = client.get("/pipeline?ticks=16-47").text
    assert page.count("tick 16: ") == 1
    assert "tick 47: " in page
    assert "tick 48: " not in page


@pytest.mark.parametrize("text", [RING, CLUSTER, STORE], ids=["ring", "cluster", "store"])
def test_a_sample_without_its_mistake_is_proven(text):
    assert ts.simulate(Pipeline.from_text(text.encode(), "sample.toml")).verdict == "proven"


@pytest.mark.parametrize("cause", SAMPLES)
def test_the_page_finds_the_mistake_of_a_sample(client, cause):
    sample = SAMPLES[cause]
    assert sample.line in sample.right
    page = client.get("/pipeline", params={"given": "text", "text": sample.text}).text
    assert re.findall(r'<b class="severity">error</b> <a[^>]*><code>([a-z-]*)</code>', page) == [sample.rule]


def test_a_cause_leads_to_the_sample_that_has_it(client):
    page = client.get("/symptoms", params={"seen": "the kernel hangs in try_wait"}).text
    causes = [cause.name for cause in diagnose("the kernel hangs in try_wait").causes if cause.name in SAMPLES]
    assert {"parity", "barrier-bytes", "barrier-arrivals"} <= {*causes}
    leads = [unescape(found) for found in re.findall(r'href="(/pipeline\?given=text[^"]*)"', page)]
    assert len(leads) >= 3  # causes that are only listed have none
    assert [form_at(lead).written["text"] for lead in leads] == [SAMPLES[cause].text for cause in causes[: len(leads)]]


def test_the_field_offers_the_samples_by_their_causes(client):
    page = client.get("/pipeline?given=text").text
    offered = re.findall(r"<option value=\"name[^\"]*\">([^<]*)</option>", page)
    assert offered == [*SAMPLES]


def test_a_pinned_wait_and_the_arrival_that_ends_it_are_marked_in_the_svg(client):
    """The consumer's second cell is its first wait, on full[0]; the copy into a[0] and phase 0 of full[0] belong to it."""
    timeline = Sheet.of(form_at("/pipeline")).drawing["timeline"]
    row = next(number for number, line in enumerate(timeline.rows) if line.labels == ("role", "consumer"))
    column = next(number for number, cell in enumerate(timeline.rows[row].cells) if cell.title.startswith("wait full"))
    plain = client.get("/pipeline.svg").text
    pinned = client.get(f"/pipeline.svg?pin=0.{row}.{column}").text
    assert plain.count("frame focus") == 0
    assert pinned.count("frame focus") == 3
    assert client.get(f"/pipeline.svg?pin=0.{row}.{column}&figure=dark").text.count("frame focus") == 3


@pytest.mark.parametrize("cause", [cause for cause in SAMPLES if cause != "slot-index"])
def test_a_mistake_has_its_proven_fix_as_a_button(client, cause):
    page = client.get("/pipeline", params={"given": "text", "text": SAMPLES[cause].text}).text
    (path,) = re.findall(r'<a class="button cure" href="([^"]*)">Apply the fix</a>', page)
    fixed = client.get(unescape(path)).text
    assert "Proven for every order" in fixed
    assert "Apply the fix" not in fixed


def test_a_mistake_with_advice_alone_has_no_button(client):
    page = client.get("/pipeline", params={"given": "text", "text": SAMPLES["slot-index"].text}).text
    assert "pipeline-stale" in page
    assert "Apply the fix" not in page
