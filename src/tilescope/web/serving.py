"""The listener and the server behind `tilescope serve`: who may connect, timeouts, and its headers.

connection ── request's head, whole within HEADER_SECONDS ──▶ the application
           └─ else closed: who sends a byte a minute holds no connection
"""

from __future__ import annotations

import asyncio
import socket

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tilescope.web.application import application
from tilescope.web.pages import form_at
from tilescope.web.rendering import render_form

HEADER_SECONDS = 10.0  # for the whole head of a request
MAX_CONNECTIONS = 256  # more are answered with 503; a browser opens six


def open_listener(host: str, port: int) -> socket.socket:
    """A socket that listens on `host`; OSError where it cannot.

    The protocol is explicit, because asyncio disables Nagle's algorithm only for sockets that are declared as TCP.
    Otherwise every response on a kept connection waits 40 ms for an acknowledgement.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


class HurriedProtocol(H11Protocol):
    """HTTP that closes a connection whose request does not arrive whole in time."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A new connection: its first request is awaited."""
        super().connection_made(transport)
        self._await_request()

    def data_received(self, data: bytes) -> None:
        """Bytes of a request: after its complete head, there is no timeout."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._await_request()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed; pending waits end."""
        self._stop_waiting()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse a broken request; if it was answered before the rest of its body arrived, do nothing."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _await_request(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def warm_up() -> None:
    """Build the first page and a plan once, so that the first request does not wait for imports."""
    for path in ("/path", "/plan"):
        render_form(form_at(path))


def server(host: str = "127.0.0.1") -> uvicorn.Server:
    """The explorer's server; run it with `sockets=[open_listener(host, port)]`."""
    return uvicorn.Server(
        uvicorn.Config(
            application(host),
            http=HurriedProtocol,
            ws="none",
            limit_concurrency=MAX_CONNECTIONS,
            server_header=False,
            log_level="error",
            access_log=False,
        )
    )
