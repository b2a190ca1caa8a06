"""A run that is too long for its page: recorded after a click, with progress, within limits, for pages of this server alone."""

import json
import threading
import time

import anyio
import pytest

from tilescope.questions import run_page
from tilescope.questions.question import Asked
from tilescope.web.form import filled_form
from tilescope.web.pages import PAGES
from tilescope.web.run_recorder import CancelledRecordingError, Recording

OWN = {"origin": "http://127.0.0.1:8765"}
LAUNCH = "[launch]\ngrid = [1]\nblock = [32]\n"
LOOP = """.version 8.0 .target sm_90 .address_size 64
.entry count() {{
    .reg .b32 %r<3>; .reg .pred %p;
    mov.u32 %r1, 0;
again:
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p, %r1, {rounds};
    @%p bra again;
    ret;
}}"""


def fields_of(rounds, **others):
    return {"ptx": LOOP.format(rounds=rounds), "launch": LAUNCH, **others}


@pytest.fixture
def short_page(monkeypatch):
    """A page that runs 500 steps, so that a run of 6,000 is long."""
    monkeypatch.setitem(run_page._LIMITS, "steps", 500)


def events_of(answer):
    return [json.loads(line.removeprefix("data: ")) for line in answer.text.split("\n\n") if line]


@pytest.mark.usefixtures("short_page")
def test_a_long_run_is_refused_recorded_after_a_click_and_then_answered(client):
    fields = fields_of(2000)
    refused = client.post("/run", json=fields, headers=OWN)
    assert refused.status_code == 422
    assert "Run and record up to 300,000 steps" in refused.text
    answer = client.post("/run/record", json=fields, headers=OWN)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert events_of(answer)[-1] == {"done": True}
    page = client.post("/run", json=fields | {"smem_at": "4321"}, headers=OWN)
    assert page.status_code == 200
    assert "Step 4321 of 6002:" in page.text


@pytest.mark.usefixtures("short_page")
def test_a_run_that_does_not_end_is_recorded_up_to_the_limit(client, monkeypatch):
    monkeypatch.setattr(run_page, "RECORDED_STEPS", 3000)
    fields = fields_of(1_000_000)
    assert events_of(client.post("/run/record", json=fields, headers=OWN))[-1] == {"done": True}
    page = client.post("/run", json=fields | {"smem_at": "2000"}, headers=OWN)
    assert page.status_code == 200
    assert "max_steps = 3000" in page.text


def test_a_recording_that_nobody_asked_for_ends_early_and_is_offered_as_a_button(client, monkeypatch):
    monkeypatch.setattr(run_page, "_STATE_SECONDS", -1.0)
    fields = fields_of(1777)
    refused = client.post("/run", json=fields, headers=OWN)
    assert refused.status_code == 422
    assert "a recording that goes on after 1024 steps" in refused.text
    assert "Run and record up to 300,000 steps" in refused.text
    assert events_of(client.post("/run/record", json=fields, headers=OWN))[-1] == {"done": True}
    assert client.post("/run", json=fields, headers=OWN).status_code == 200


def test_a_text_that_is_no_kernel_is_refused_with_the_reason(client):
    answer = client.post("/run/record", json={"ptx": "ret", "launch": LAUNCH}, headers=OWN)
    assert "ptx" in events_of(answer)[-1]["refused"]


def test_what_takes_much_memory_is_refused_before_it_is_made(client):
    launch = LAUNCH.replace("32", "1024") + "cluster = [8]\n"
    answer = client.post("/run/record", json=fields_of(5, launch=launch), headers=OWN)
    assert "8192 threads of a cluster" in events_of(answer)[-1]["refused"]


@pytest.mark.usefixtures("short_page")
def test_a_recording_names_its_phases_and_ends_when_it_is_cancelled():
    asked = filled_form(PAGES["run"], fields_of(2000)).asked()
    assert isinstance(asked, Asked)
    seen = []
    run_page.record_run(asked, lambda doing, steps: seen.append((doing, steps)))
    assert {doing for doing, _ in seen} == {"running", "recording"}
    assert max(steps for _, steps in seen) <= 6002

    def cancel(*_):
        raise CancelledRecordingError

    with pytest.raises(CancelledRecordingError):
        run_page.record_run(filled_form(PAGES["run"], fields_of(2001)).asked(), cancel)


def test_nobody_who_listens_ends_the_thread(monkeypatch):
    ended = threading.Event()

    def record(_, progress):
        try:
            while True:
                progress("running", 1)
                time.sleep(0.005)
        finally:
            ended.set()

    form = filled_form(PAGES["run"], fields_of(3))
    monkeypatch.setattr(Recording, "_record", lambda self: record(form, self._progress))

    async def listen_once():
        events = Recording(form).events(anyio.CapacityLimiter(1))
        assert json.loads((await anext(events)).removeprefix("data: "))["doing"] == "waiting"
        await events.aclose()
        with anyio.fail_after(60):
            while not ended.is_set():
                await anyio.sleep(0.01)

    thread = threading.Thread(target=anyio.run, args=(listen_once,))
    thread.start()
    thread.join(60)
    assert ended.is_set()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        (OWN | {"sec-fetch-site": "cross-site"}, 403),
        (OWN | {"sec-fetch-site": "same-site"}, 403),
        (OWN | {"content-type": "text/plain"}, 415),
        (OWN | {"content-type": "application/x-www-form-urlencoded"}, 415),
        (OWN | {"host": "evil.example"}, 421),
    ],
)
def test_only_a_page_of_this_server_has_a_run_recorded(client, monkeypatch, headers, status):
    monkeypatch.setattr(run_page, "run_launch", None)
    body = json.dumps(fields_of(5)).encode()
    answer = client.post("/run/record", content=body, headers={"content-type": "application/json"} | headers)
    assert answer.status_code == status


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"ptx": 7}', b'{"nobody": "x"}', b"\xff\xfe", b"[" * 100_000])
def test_bodies_that_are_no_fields_are_refused(client, body):
    answer = client.post("/run/record", content=body, headers=OWN | {"content-type": "application/json"})
    assert answer.status_code == 422
    assert "Traceback" not in answer.text


def test_a_link_never_records(client):
    assert client.get("/run/record").status_code == 405
    assert client.get("/run/record?ptx=x").status_code == 405
    assert client.post("/swizzle/record", json={}, headers=OWN).status_code in (404, 405)
