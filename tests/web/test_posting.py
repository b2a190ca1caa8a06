"""What is too long for an address is posted, by pages of this server alone; a dropped file fills fields."""

import asyncio
import io
from concurrent.futures import ThreadPoolExecutor

import httpx2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilescope.web import application as served
from tilescope.web.application import MAX_BODY_BYTES
from tilescope.web.pages import PAGES

OWN = {"origin": "http://127.0.0.1:8765"}
FIELDS = OWN | {"content-type": "application/json"}
FILE = OWN | {"content-type": "application/octet-stream"}
OPENING = [(page.name, field) for page in PAGES.values() for form in page.forms.values() for field in form.opens]


def saved(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def archived(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


@pytest.mark.parametrize("query", [{"mode": "64B"}, {"mode": "64B", "address": "0x480"}, {"mode": "7"}])
def test_a_posted_page_is_the_page_of_the_address(client, query):
    got = client.get("/swizzle", params=query)
    posted = client.post("/swizzle", json=query, headers=OWN)
    assert (posted.status_code, posted.text) == (got.status_code, got.text)


def test_a_posted_paste_fills_the_fields(client):
    page = client.post(
        "/tensor-map", json={"paste": '{"data_type": "f16", "dims": [64, 8], "box": [64, 8]}'}, headers=OWN
    )
    assert page.status_code == 200
    assert 'value="64,8"' in page.text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "application/json"}, 403),  # nobody says which page asks
        (FIELDS | {"origin": "http://evil.example"}, 403),
        (FIELDS | {"origin": "null"}, 403),
        (FIELDS | {"sec-fetch-site": "cross-site"}, 403),
        (FIELDS | {"sec-fetch-site": "same-site"}, 403),
        (FIELDS | {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, 403),
        (FIELDS | {"host": "evil.example"}, 421),
        (OWN | {"content-type": "text/plain"}, 415),  # which a form of another site could send
        (OWN | {"content-type": "application/x-www-form-urlencoded"}, 415),
        (FIELDS | {"content-length": "many"}, 413),
    ],
)
def test_a_post_of_another_page_is_refused(client, headers, status):
    assert client.post("/swizzle", content=b'{"mode": "64B"}', headers=headers).status_code == status


def test_a_body_that_is_too_large_is_refused_with_and_without_its_length(client):
    large = b'{"mode": "' + b"A" * MAX_BODY_BYTES + b'"}'
    assert client.post("/swizzle", content=large, headers=FIELDS).status_code == 413
    assert client.post("/swizzle", content=iter([large]), headers=FIELDS).status_code == 413


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"7", b'{"mode": 7}', b'{"mode": {}}', b"[" * 100_000, b"\xff\xfe"])
def test_a_body_that_is_no_object_of_texts_is_refused(client, body):
    answer = client.post("/swizzle", content=body, headers=FIELDS)
    assert answer.status_code == 422
    assert "<code>page-query</code>" in answer.text


@pytest.mark.hypothesis
@given(
    page=st.sampled_from(list(PAGES)), fields=st.dictionaries(st.text(max_size=12), st.text(max_size=80), max_size=4)
)
def test_hostile_posts_are_answered_or_refused(client, page, fields):
    answer = client.post(f"/{page}", json=fields, headers=OWN)
    assert answer.status_code in (200, 422)
    assert "Traceback" not in answer.text


@pytest.mark.hypothesis
@given(
    place=st.sampled_from(OPENING),
    content=st.binary(max_size=300),
    start=st.sampled_from([b"", b"PK\x03\x04", b"\x93NUMPY"]),
)
def test_hostile_files_are_read_or_refused(client, place, content, start):
    page, field = place
    answer = client.post(f"/{page}/open/{field}", content=start + content, headers=FILE)
    assert answer.status_code in (200, 422), answer.text
    assert "Traceback" not in answer.text


def test_a_text_fills_its_field(client):
    assert client.post("/run/open/ptx", content=b"\xef\xbb\xbf.version 8.0", headers=FILE).json() == {
        "ptx": ".version 8.0"
    }


def test_what_is_no_text_is_refused_for_a_field_of_text(client):
    answer = client.post("/run/open/ptx", content=b"\x7fELF\x00", headers=FILE)
    assert answer.status_code == 422
    assert "no text" in answer.text


def test_a_saved_tile_fills_its_shape_and_type_too(client):
    tile = np.arange(8, dtype=np.float16).reshape(2, 4)
    expected = {"tile": f"0000: {tile.tobytes().hex(' ', 2)}", "shape": "2x4", "data_type": "float16"}
    for content in (saved(tile), archived(tile=tile), archived(any_name=tile), archived(tile=tile, other=tile + 1)):
        assert client.post("/identify/open/tile", content=content, headers=FILE).json() == expected


def test_an_archive_of_other_arrays_is_refused_with_their_names(client):
    answer = client.post("/identify/open/tile", content=archived(a=np.zeros(2), b=np.zeros(2)), headers=FILE)
    assert answer.status_code == 422
    assert "a, b" in answer.text


def test_an_archive_that_unpacks_to_too_much_is_not_unpacked(client):
    file = io.BytesIO()
    np.savez_compressed(file, tile=np.zeros(50_000_000, np.uint8))
    assert len(file.getvalue()) < MAX_BODY_BYTES
    assert client.post("/identify/open/tile", content=file.getvalue(), headers=FILE).status_code == 422


def test_bare_bytes_of_a_map_are_a_dump_of_them(client):
    fields = client.post("/tensor-map/open/paste", content=bytes(range(128)), headers=FILE).json()
    assert fields["paste"].startswith("0000: 0001 0203")


def test_a_state_that_is_too_long_for_a_link_says_so(client):
    dump = "00 " * 60_000
    page = client.post(
        "/identify", json={"dump": dump, "tile": "00 01 02 03", "shape": "2x2", "data_type": "u8"}, headers=OWN
    )
    assert "too long for a link" in page.text
    assert 'id="save-svg"' not in page.text


def test_a_body_that_drips_is_not_awaited(monkeypatch):
    monkeypatch.setattr(served, "BODY_SECONDS", 0.05)

    async def dripping():
        for _ in range(100):
            await asyncio.sleep(0.2)
            yield b" "

    async def ask():
        transport = httpx2.ASGITransport(served.application())
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765") as asking:
            return await asking.post("/swizzle", content=dripping(), headers=FIELDS)

    with ThreadPoolExecutor(1) as thread:  # Playwright's tests may have left a loop running in this one
        answer = thread.submit(asyncio.run, ask()).result(timeout=20)
    assert answer.status_code == 413


def test_a_page_that_goes_away_within_its_body_is_no_mistake():
    parts = [{"type": "http.request", "body": b'{"mode"', "more_body": True}, {"type": "http.disconnect"}]
    names = [(name.encode(), text.encode()) for name, text in (FIELDS | {"host": "127.0.0.1:8765"}).items()]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/swizzle",
        "raw_path": b"/swizzle",
        "query_string": b"",
        "headers": names,
    }
    sent = []

    async def receive():
        return parts.pop(0)

    async def send(message):
        sent.append(message)

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, served.application()(scope, receive, send)).result(timeout=20)
    assert sent[0]["status"] == 413
