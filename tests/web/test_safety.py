"""Who is answered, what is never done, and that nobody is lost in a crowd."""

import asyncio
import builtins
import io
import os
import socket
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from tilescope.web.application import MAX_QUERY_BYTES, MAX_WAITING, SECURITY_HEADERS, WORKERS, Guard, application
from tilescope.web.field import fields_of
from tilescope.web.pages import OTHER_NAMES, PAGES, form_at

ROUTES = ["/", "/static/explorer.css", "/static/explorer.js"]
ROUTES += [f"/{name}{ending}" for name in PAGES for ending in ("", ".svg", ".json")]


@pytest.mark.parametrize("route", [*ROUTES, "/nowhere", "/swizzle?mode=7", "/static/../guard.py"])
def test_every_answer_carries_the_policy(client, route):
    answer = client.get(route)
    for name, value in SECURITY_HEADERS.items():
        assert answer.headers[name] == value
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert "*" not in answer.headers["content-security-policy"]
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost", "LOCALHOST:1", "[::1]:8765"])
def test_names_of_this_machine_are_answered(client, host):
    assert client.get("/swizzle", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8765", "", "[::1", "10.0.0.1"]
)
def test_other_names_are_refused_with_the_reason(client, host):
    answer = client.get("/swizzle", headers={"host": host})
    assert answer.status_code == 421
    assert answer.text.startswith("Host:")


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:1", "http://localhost:8765", ""])
def test_pages_of_other_origins_are_refused(client, origin):
    answer = client.get("/swizzle.json", headers={"origin": origin})
    assert answer.status_code == 403
    assert answer.text.startswith("Origin:")


def test_the_servers_own_pages_are_answered(client):
    assert client.get("/swizzle", headers={"origin": "http://127.0.0.1:8765"}).status_code == 200


def test_a_server_that_is_open_to_others_answers_under_addresses_and_its_own_name_alone():
    guard = Guard(None, host="0.0.0.0")
    assert guard.is_own("192.168.1.7:8765")
    assert guard.is_own("[fe80::1]:8765")
    assert guard.is_own(socket.gethostname())
    assert not guard.is_own("evil.example")
    assert not Guard(None).is_own("192.168.1.7")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("route", ["/", "/tensor-map", "/static/explorer.js"])
def test_nothing_is_written(client, route, method):
    answer = client.request(method, route)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD, POST"


@pytest.mark.parametrize("route", ["/", "/static/explorer.js", "/nowhere"])
def test_only_pages_are_posted_to(client, route):
    answer = client.post(route, headers={"origin": "http://127.0.0.1:8765"})
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD"


def test_a_query_that_is_too_long_is_refused_before_it_is_read(client):
    answer = client.get("/swizzle?mode=" + "A" * MAX_QUERY_BYTES)
    assert answer.status_code == 414


@pytest.mark.parametrize(
    ("query", "rule"),
    [
        ("/swizzle?mode=128B&mode=64B", "page-query"),
        ("/swizzle?mood=128B", "unknown-name"),
        ("/swizzle?address=twelve", "argument-type"),
        ("/swizzle?address=-1", "argument-type"),
        ("/tensor-map?kind=flat", "unknown-name"),
        ("/load?data_type=u8&dims=16,256,256&box=16,256,56&coords=0,0,0", "page-limit"),
        ("/plan?tile=100000x100000", "page-limit"),
        ("/banks?tile=4096x4096", "page-limit"),
        ("/tensor-core?tile=65536x65536", "page-limit"),
        ("/layout?text=" + "(" * 3000, "notation-text"),
    ],
)
def test_what_is_wrong_is_a_4xx_with_the_rule(client, query, rule):
    answer = client.get(query)
    assert answer.status_code == 422
    assert f"<code>{rule}</code>" in answer.text


def test_an_unknown_page_names_the_nearest(client):
    answer = client.get("/swizzel")
    assert answer.status_code == 404
    assert "Did you mean swizzle?" in answer.text


@pytest.mark.parametrize(
    ("asked", "lead"),
    [
        ("/tmem", "/tensor-memory"),
        ("/tmem.svg?show=scales", "/tensor-memory.svg?show=scales"),
        ("/explain?seen=715", "/symptoms?seen=715"),
    ],
)
def test_another_name_of_a_page_leads_to_it(client, asked, lead):
    answer = client.get(asked)
    assert (answer.status_code, answer.headers["location"]) == (307, lead)
    assert client.get(lead).status_code == 200
    assert form_at(asked.replace(".svg", "")) == form_at(lead.replace(".svg", ""))


def test_other_names_are_no_pages_and_lead_to_pages():
    assert OTHER_NAMES.keys().isdisjoint(PAGES)
    assert set(OTHER_NAMES.values()) <= set(PAGES)


INJECTION = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>{{7*7}}"


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_whatever_is_typed_is_shown_as_text(client, markup_problems, page):
    for chosen, form in page.forms.items():
        for field in fields_of(form):
            query = {field.name: INJECTION} | ({page.chooser.name: chosen} if page.chooser else {})
            answer = client.get(f"/{page.name}", params=query)
            is_text = page.name == "symptoms"  # whatever is typed there is a question, answered with what is near
            assert is_text or answer.status_code == 422 or "Refused" in answer.text, field.name
            assert "<script>alert" not in answer.text
            assert "<img" not in answer.text
            assert "{{7*7}}" in answer.text
            assert markup_problems(answer.text) == []


def test_names_of_fields_are_shown_as_text_too(client, markup_problems):
    answer = client.get("/swizzle", params={INJECTION: "1", "mode": INJECTION})
    assert answer.status_code == 422
    assert "<script>alert" not in answer.text
    assert markup_problems(answer.text) == []


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "-", "../../../etc/passwd", "pyproject.toml", "file:///etc/passwd", __file__]
)
def test_no_file_of_the_reader_is_opened(client, monkeypatch, path):
    def refuse(*args, **_):
        raise AssertionError(f"opened {args}")

    def ask():
        for query in ({"paste": path}, {"kind": "bytes", "hex": path}, {"dims": path}):
            assert client.get("/tensor-map", params=query).status_code == 422
        assert client.get("/layout", params={"text": path}).status_code == 422
        assert client.get(f"/static/{path}").status_code == 404

    ask()  # modules and templates are read once
    monkeypatch.setattr(builtins, "open", refuse)
    monkeypatch.setattr(io, "open", refuse)
    monkeypatch.setattr(os, "open", refuse)
    ask()


async def _crowd(count):
    transport = httpx2.ASGITransport(application())
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as asking:
        return await asyncio.gather(
            *(asking.get(f"/load?swizzle=none&box=8,8&coords=0,{number}") for number in range(count))
        )


def _run(coroutine):
    """Run a coroutine in a thread of its own: Playwright's tests may have left a loop running in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


CROWD = WORKERS + MAX_WAITING + 30


def test_many_requests_at_once_are_served_or_refused():
    answers = _run(_crowd(CROWD))
    served = [number for number, answer in enumerate(answers) if answer.status_code == 200]
    refused = [answer for answer in answers if answer.status_code == 503]
    assert len(served) + len(refused) == CROWD
    assert len(served) >= WORKERS + MAX_WAITING
    for number in served:  # nobody got another one's page
        assert f'value="0,{number}"' in answers[number].text
    for answer in refused:
        assert answer.headers["retry-after"]
        assert answer.headers["content-security-policy"]


@pytest.mark.slow
def test_after_a_crowd_everyone_is_served_again():
    async def twice():
        transport = httpx2.ASGITransport(application())
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as asking:
            await asyncio.gather(*(asking.get("/swizzle") for _ in range(CROWD)))
            return await asking.get("/swizzle")

    assert _run(twice()).status_code == 200


def test_a_page_of_another_site_is_refused_even_without_an_origin(client):
    answer = client.get("/swizzle", headers={"sec-fetch-site": "cross-site"})
    assert answer.status_code == 403
    assert answer.text.startswith("Sec-Fetch-Site:")
    assert client.get("/swizzle", headers={"sec-fetch-site": "none"}).status_code == 200


def test_a_link_that_is_followed_from_another_site_is_answered_and_a_frame_is_not(client):
    followed = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert client.get("/swizzle", headers=followed).status_code == 200
    for other in ({"sec-fetch-dest": "iframe"}, {"sec-fetch-mode": "no-cors"}, {"origin": "http://evil.example"}):
        assert client.get("/swizzle", headers=followed | other).status_code == 403


def test_a_paste_that_cannot_be_read_keeps_the_form_and_the_text(client):
    answer = client.get("/tensor-map", params={"paste": "this is <no> map"})
    assert answer.status_code == 422
    assert 'id="form"' in answer.text
    assert ">this is &lt;no&gt; map</textarea>" in answer.text
