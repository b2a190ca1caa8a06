"""Who may ask, and how much: Host and Origin, methods, the length of a query, and the headers of every answer.

A page on the web can make a browser ask this server, under a name of its own that it points at 127.0.0.1. So a request is
answered only under a name of this machine (Host), and never for a page of another origin.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_QUERY_BYTES = 16_384
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """The middleware in front of every page; `host` is the address that the server is bound to."""

    def __init__(self, app: ASGIApp, host: str = "127.0.0.1") -> None:
        self.app = app
        self.names = _LOOPBACK | {host.lower()}
        self.open = not is_loopback(host)
        if self.open:
            self.names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or say why not."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # no page has a socket
            await send({"type": "websocket.close", "code": 1003})
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
            await send(message)

        refusal = self.refusal(scope)
        answering: ASGIApp = self.app
        if refusal is not None:
            status, sentence = refusal
            answering = PlainTextResponse(sentence + "\n", status, {"allow": "GET, HEAD"} if status == 405 else None)
        await answering(scope, receive, send_guarded)

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Why a request is not answered, or None."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self.is_own(host):
            return HTTPStatus.MISDIRECTED_REQUEST, "Host: this server answers under the names of its own machine alone."
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}"):
            return HTTPStatus.FORBIDDEN, "Origin: pages of other origins are not answered."
        if scope["method"] not in ("GET", "HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, "Method: pages are read with GET; nothing is written."
        if len(scope.get("query_string", b"")) > MOST_QUERY_BYTES:
            return HTTPStatus.REQUEST_URI_TOO_LONG, f"Query: more than {MOST_QUERY_BYTES} bytes; use the command line."
        return None

    def is_own(self, host: str) -> bool:
        """Whether a Host header names this machine; bound beyond loopback, any address in digits may do so."""
        name = re.sub(r":[0-9]*$", "", host.lower())
        return name in self.names or (self.open and _is_address(name.strip("[]")))


def is_loopback(host: str) -> bool:
    """Whether a server bound to `host` is reached from this machine alone.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, False)
    """
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
