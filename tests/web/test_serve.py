"""The command: a server on loopback, and one sentence where something is missing."""

import builtins
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import pytest

import tilescope.cli
from tilescope.web import serving


def test_serve_answers_on_loopback_and_ends_on_an_interrupt():
    command = [sys.executable, "-m", "tilescope", "serve", "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            address = re.search(r"http://127\.0\.0\.1:\d+/", server.stdout.readline())[0]
            with urllib.request.urlopen(address + "swizzle", timeout=300) as answer:
                assert answer.status == 200
                assert b"Swizzle 128B" in answer.read()
        finally:
            server.send_signal(signal.SIGINT)
            _, said = server.communicate(timeout=300)
    assert server.returncode in (0, 130)
    assert "Traceback" not in said


def test_a_port_that_is_taken_is_said_with_the_way_out(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert tilescope.cli.run(["serve", "--port", str(port), "--no-browser"]) == 2
    said = capsys.readouterr().err
    assert f"port {port}" in said
    assert "--port 0" in said


@pytest.mark.parametrize("arguments", [["--export", "/swizzle"], ["-o", "page.html"]])
def test_export_and_its_file_belong_together(capsys, arguments):
    assert tilescope.cli.run(["serve", *arguments]) == 2
    assert "belong together" in capsys.readouterr().err


@pytest.mark.parametrize(
    "missing", ["starlette", *(pytest.param(name, marks=pytest.mark.slow) for name in ("uvicorn", "anyio"))]
)
def test_without_the_extra_one_sentence_says_so(missing):
    hide = (
        "import sys\n"
        f"sys.modules[{missing!r}] = None\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] == {missing!r}: raise ModuleNotFoundError(name=name)\n"
        f"del sys.modules[{missing!r}]\n"
        "sys.meta_path.insert(0, Finder())\n"
        "import tilescope.cli\n"
        "sys.exit(tilescope.cli.run(['serve', '--port', '0', '--no-browser']))\n"
    )
    done = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert f"package {missing}: pip install 'tilescope[web]'." in done.stderr
    assert not done.stdout


def test_help_imports_no_server(monkeypatch):
    real = builtins.__import__

    def watched(name, *args, **kwargs):
        assert name.split(".")[0] not in ("starlette", "uvicorn", "jinja2"), name
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", watched)
    assert tilescope.cli.run(["serve", "--help"]) == 0


@pytest.fixture
def running(monkeypatch):
    """A server in a thread that gives a request a second; the port it listens on."""
    monkeypatch.setattr(serving, "HEADER_SECONDS", 1)
    with serving.open_listener("127.0.0.1", 0) as listener:
        explorer = serving.server()
        thread = threading.Thread(target=explorer.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not explorer.started:
            time.sleep(0.01)
        yield listener.getsockname()[1]
        explorer.should_exit = True
        thread.join(timeout=300)


def test_a_connection_whose_request_does_not_arrive_is_closed(running):
    with socket.create_connection(("127.0.0.1", running), timeout=300) as slow:
        slow.sendall(b"GET /swizzle HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        assert slow.recv(1) == b""  # closed by the server, where it would wait forever


def test_a_second_request_on_a_connection_is_hurried_too(running):
    request = b"GET /static/theme.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with socket.create_connection(("127.0.0.1", running), timeout=300) as kept:
        kept.sendall(request)
        answer = kept.recv(65536)
        assert b" 200 " in answer
        assert b"\r\nserver:" not in answer.lower()
        kept.sendall(request[:20])
        while kept.recv(65536):
            pass  # the rest of the first answer; the loop ends when the server closes


POSTED_BY_A_PAGE = "Origin: http://127.0.0.1\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(("method", "headers"), [("GET", ""), ("POST", ""), ("POST", POSTED_BY_A_PAGE)])
def test_a_broken_body_ends_the_connection_without_a_traceback(running, capfd, method, headers):
    head = f"{method} /swizzle HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}Transfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", running), timeout=300) as broken:
        broken.sendall(head.encode())
        if method == "POST" and not headers:
            assert b" 403 " in broken.recv(65536)  # answered before its body came
        broken.sendall(b"no number\r\n")
        while broken.recv(65536):
            pass
    time.sleep(0.3)  # what the server says, it says after it has closed the connection
    assert "Traceback" not in capfd.readouterr().err


def test_the_listener_is_tcp_by_name():
    with serving.open_listener("127.0.0.1", 0) as listener:  # asyncio sets TCP_NODELAY on such sockets alone
        assert listener.proto == socket.IPPROTO_TCP


@pytest.mark.parametrize("host", ["300.1.1.1", "192.0.2.77"])
def test_an_address_that_is_not_this_machines_gets_advice_that_helps(capsys, host):
    assert tilescope.cli.run(["serve", "--host", host, "--no-browser"]) == 2
    said = capsys.readouterr().err
    assert host in said
    assert "Leave --host out" in said
