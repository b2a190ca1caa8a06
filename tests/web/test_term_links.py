"""Terms in answers lead to what explains them."""

import re
from html import unescape

import pytest

from tilescope.symptoms import TERMS
from tilescope.web.rendering import export_page
from tilescope.web.term_links import link_terms


def links(page):
    return [(unescape(path), text) for path, text in re.findall(r'<a class="term" href="([^"]*)">([^<]*)</a>', page)]


def test_a_term_is_a_link_where_it_stands_first(client):
    page = client.get("/plan").text
    found = links(page)
    assert ("/symptoms?seen=swizzle", "swizzle") in [(path, text.lower()) for path, text in found]
    assert len(found) == len({path for path, _ in found})


@pytest.mark.parametrize("path", ["/path", "/plan", "/pipeline", "/tensor-core", "/banks", "/symptoms"])
def test_every_link_leads_to_a_topic(client, path):
    found = links(client.get(path).text)
    assert found
    names = {term.name for term in TERMS}
    for address, _ in found:
        answer = client.get(address)
        assert answer.status_code == 200
        assert unescape(re.search(r'name="seen"[^>]*>([^<]*)<', answer.text)[1]) in names


def test_the_name_of_a_broken_rule_leads_to_the_rule(client):
    page = client.get("/tensor-map?box=128,300").text
    assert '<a class="term" href="/symptoms?seen=box-range"><code>box-range</code></a>' in page
    assert "box-range" in client.get("/symptoms?seen=box-range").text


def test_headings_code_and_words_within_words_are_no_links():
    told = set()
    pieces = [*link_terms("`swizzle` mbarrier.inval unswizzled tma swizzle-span Swizzles", told)]
    assert [(piece.text, piece.is_code, piece.path) for piece in pieces] == [
        ("swizzle", True, ""),
        (" mbarrier.inval unswizzled tma swizzle-span ", False, ""),
        ("Swizzles", False, "/symptoms?seen=swizzle"),
    ]
    assert told == {"swizzle"}


def test_an_exported_page_has_no_links_to_terms():
    assert links(export_page("/plan")) == []


def test_a_public_thread_is_a_link(client):
    page = client.get("/symptoms?seen=parity").text
    assert 'href="https://github.com/tile-ai/tilelang/issues/2674"' in page
    pieces = link_terms("seen in tile-ai/tilelang#460, twice", set())
    assert [(piece.text, piece.path) for piece in pieces if piece.is_thread] == [
        ("tile-ai/tilelang#460", "https://github.com/tile-ai/tilelang/issues/460")
    ]


def test_what_is_no_thread_is_no_link():
    for text in ("a#460", "x/y#", "path/a/b#12", "https://x.example/a/b#12"):
        assert not any(piece.is_thread for piece in link_terms(text, set())), text
