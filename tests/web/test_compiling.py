"""CUDA C++ and Triton on the run page: compiled after a click, for the user of the server alone, within limits."""

import json
import os
import socket
import sys
import time
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from tilescope.questions.run_page import SOURCE_SAMPLE
from tilescope.questions.source_text import SourceText
from tilescope.web import application as served
from tilescope.web import source_compiler
from tilescope.web.connection_owner import is_own_user

OWN = {"origin": "http://127.0.0.1:8765"}
MADE = {"ptx": "ret;", "launch": "[launch]\n", "said": "Compiled."}


@pytest.fixture
def posting(client, monkeypatch):
    """`posting(fields, **headers)`: post to a server that takes the client for its own user; what it compiles is listed."""
    texts = []
    monkeypatch.setattr(served, "is_own_user", lambda *_: True)
    monkeypatch.setattr(served, "compile_apart", lambda text: texts.append(text) or MADE)

    def post(fields, **headers):
        body = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
        said = OWN | {"content-type": "application/json"} | headers
        said = {name.replace("_", "-"): value for name, value in said.items() if value is not None}
        return client.post("/run/compile", content=body, headers=said)

    post.texts = texts
    return post


def test_a_posted_text_is_compiled_and_fills_the_fields(posting):
    answer = posting({"language": "cuda", "source": "int a;", "launch": "[launch]"})
    assert (answer.status_code, answer.json()) == (200, MADE)
    assert posting.texts == [SourceText("cuda", "int a;", launch="[launch]")]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": None}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "none"}, 403),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/x-www-form-urlencoded"}, 415),
        ({"content_type": "multipart/form-data"}, 415),
        ({"host": "evil.example"}, 421),
    ],
)
def test_nobody_elses_page_has_anything_compiled(posting, headers, status):
    assert posting({"source": "int a;"}, **headers).status_code == status
    assert posting.texts == []


@pytest.mark.parametrize(
    "path",
    ["/run/compile", "/run/compile?source=x", "/run?source=x", "/run?language=triton&source=x", "/run.json?source=x"],
)
def test_a_link_compiles_nothing(client, monkeypatch, path):
    monkeypatch.setattr(served, "is_own_user", lambda *_: True)
    monkeypatch.setattr(served, "compile_apart", None)
    followed = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    for headers in ({}, followed):
        assert client.get(path, headers=headers).status_code in (405, 422)


def test_a_page_that_is_posted_compiles_nothing(client, monkeypatch):
    monkeypatch.setattr(served, "compile_apart", None)
    answer = client.post("/run", json={"source": "x", "language": "cuda"}, headers=OWN)
    assert answer.status_code == 422


def test_another_user_of_the_machine_is_refused(client, monkeypatch):
    monkeypatch.setattr(served, "compile_apart", None)
    answer = client.post("/run/compile", json={"source": "x"}, headers=OWN)  # the test client has no socket
    assert answer.status_code == 403
    assert "only the user who runs this server" in answer.text


def test_a_server_that_is_open_to_others_compiles_nothing(monkeypatch):
    monkeypatch.setattr(served, "is_own_user", lambda *_: True)
    monkeypatch.setattr(served, "compile_apart", None)
    with TestClient(served.application("0.0.0.0"), base_url="http://127.0.0.1:8765") as opened:
        answer = opened.post("/run/compile", json={"source": "x"}, headers=OWN)
    assert answer.status_code == 403
    assert "open to others" in answer.text


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not say who has a socket")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_owner_of_a_connection_is_known(monkeypatch, host):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip(f"no {host} here")
    with listener, socket.create_connection(listener.getsockname()[:2]) as client:
        ends = client.getsockname()[:2], listener.getsockname()[:2]
        assert is_own_user(*ends)
        assert not is_own_user((ends[0][0], ends[0][1] ^ 1), ends[1])
        user = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: user + 1)
        assert not is_own_user(*ends)
    assert not is_own_user(None, None)
    assert not is_own_user(("testclient", 50000), ("testserver", 80))


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b'{"source": 7}', b'{"nobody": "x"}', b'{"language": "perl"}', b"\xff\xfe", b"[" * 100_000],
)
def test_bodies_that_are_no_text_are_refused(posting, body):
    answer = posting(body)
    assert answer.status_code == 422
    assert "Traceback" not in answer.text
    assert posting.texts == []


def test_a_text_that_is_too_long_is_refused_with_the_limit(posting):
    answer = posting({"source": "x" * 200_001})
    assert answer.status_code == 422
    assert "at most 200000" in answer.text


@given(
    fields=st.dictionaries(
        st.sampled_from([*SourceText._fields, "file", "__class__", "options"]),
        st.one_of(st.text(max_size=60), st.integers(), st.none()),
        max_size=5,
    )
)
def test_no_fields_break_the_server(client, fields):
    with patch.object(served, "is_own_user", lambda *_: True), patch.object(served, "compile_apart", lambda _: MADE):
        answer = client.post("/run/compile", json=fields, headers=OWN)
    assert answer.status_code in (200, 422)
    assert "Traceback" not in answer.text


def compiled(**fields):
    return source_compiler.compile_apart(SourceText(**fields))


def test_cuda_is_compiled_and_its_race_is_found_at_its_line(client, require):
    require("gxx")
    require("nvcc")
    made = compiled(language="cuda", source=SOURCE_SAMPLE)
    assert "Compiled kernel.cu by nvcc" in made["said"]
    assert 'entry = "reverse"' in made["launch"]
    assert "block = [256" in made["launch"]
    page = client.post("/run", json={"ptx": made["ptx"], "launch": made["launch"]}, headers=OWN)
    assert "<code>run-race</code>" in page.text
    assert 'data-source="kernel.cu:6"' in page.text


def test_errors_of_the_compiler_name_the_line_and_no_folder(require):
    require("gxx")
    require("nvcc")
    said = compiled(language="cuda", source="int x = ;")["refused"]
    assert "kernel.cu(1): error" in said
    assert "tilescope-" not in said


def test_a_compiler_that_is_missing_is_named_with_what_installs_it(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "path", [place for place in sys.path if "triton" not in place])
    said = compiled(language="triton", source="import nothing_of_this_name", signature="*fp32")["refused"]
    assert "pip install" in said


@pytest.mark.slow
def test_what_takes_too_long_is_ended_with_all_its_processes(monkeypatch, tmp_path):
    monkeypatch.setattr(source_compiler, "COMPILE_SECONDS", 1)
    mark = tmp_path / "mark"
    source = (
        f"import subprocess, time\nsubprocess.Popen(['sh', '-c', 'sleep 2; touch {mark}'])\nwhile True: time.sleep(1)\n"
    )
    said = compiled(language="triton", source=source, signature="*fp32")["refused"]
    assert "goes on after 1 s" in said
    time.sleep(2)
    assert not mark.exists()


def test_a_process_that_dies_is_told():
    said = compiled(language="triton", source="import os\nos._exit(7)", signature="*fp32")["refused"]
    assert "status 7" in said


def test_what_an_import_prints_is_no_part_of_the_answer(require):
    require("triton")
    source = """
import os, sys
print("{"); sys.stdout.flush(); os.write(1, b"}")
import triton
import triton.language as tl
@triton.jit
def add(x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)
"""
    made = compiled(language="triton", source=source, signature="*fp32, i32", constants="BLOCK=64")
    assert "compiled add by Triton" in made["said"]
    assert "block = [128]" in made["launch"]
