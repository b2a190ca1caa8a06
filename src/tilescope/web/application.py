"""The server: routes, a few workers, and a queue that refuses rather than loses.

GET /                          the first page
GET /swizzle?mode=64B          a page
GET /swizzle.svg?mode=64B      its drawing
GET /swizzle.json?mode=64B     its value

A page on the web can make a browser ask this server, under a name of its own that it points at 127.0.0.1. So a request is
answered only under a name of this machine (Host), and never for a page of another origin. A link that somebody follows is
answered: the browser shows its page as a whole, and the other site sees nothing of it.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from urllib.parse import urlencode

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tilescope.errors import RuleError, unknown_name
from tilescope.questions.refusal import is_answer, refusal_json
from tilescope.view.svg_style import figure_style, style_sheet
from tilescope.web.form import FIGURE, PASTE, filled_form, query_of
from tilescope.web.pages import OTHER_NAMES, PAGES, redirect_query
from tilescope.web.rendering import (
    hash_source,
    render_first,
    render_form,
    render_refusal,
    render_unread,
    static_file,
)
from tilescope.web.side_by_side import page_figure, saved_drawing, saved_json

WORKERS = 2
MAX_WAITING = 64  # requests that wait for a worker; more are refused at once
_STATIC = {
    "explorer.css": "text/css",
    "explorer.js": "text/javascript",
    "run.css": "text/css",
    "run.js": "text/javascript",
    "theme.js": "text/javascript",
}


def application(host: str = "127.0.0.1") -> Starlette:
    """The explorer as an ASGI application, for a server bound to `host`."""
    workers = CapacityLimiter(WORKERS)

    async def answered(request: Request) -> Response:
        if workers.statistics().tasks_waiting >= MAX_WAITING:
            return PlainTextResponse("Busy: too many requests at once. Try again.\n", 503, {"retry-after": "1"})
        return await to_thread.run_sync(_answer, request, limiter=workers)

    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _STATIC:
            raise HTTPException(404)
        return Response(static_file(name), media_type=_STATIC[name], headers={"cache-control": "no-cache"})

    async def no_icon(_: Request) -> Response:  # a browser asks for one beside a drawing that it opens by itself
        return Response(status_code=204)

    pages = [Route(f"/{name}{ending}", answered) for name in PAGES for ending in ("", ".svg", ".json")]
    return Starlette(
        routes=[Route("/", answered), Route("/static/{name}", static), Route("/favicon.ico", no_icon), *pages],
        middleware=[Middleware(Guard, host=host), Middleware(GZipMiddleware, minimum_size=2048, compresslevel=4)],
        exception_handlers={404: _not_found},
    )


def _answer(request: Request) -> Response:
    """The page; a mistake of our own is a 500 without a traceback, with the headers of every answer."""
    try:
        return HTMLResponse(render_first()) if request.url.path == "/" else _page(request)
    except Exception as error:  # noqa: BLE001  whatever it is, the next request is answered
        mistake = type(error).__name__
        return PlainTextResponse(f"A mistake in tilescope ({mistake}). Please report the address of this page.\n", 500)


def _page(request: Request) -> Response:
    """A page, its drawing or its value; whatever is wrong with the query is a 4xx that says so."""
    name, _, ending = request.url.path.removeprefix("/").partition(".")
    page = PAGES[name]
    query: dict[str, str] = {}
    try:
        query = query_of(request.query_params.multi_items())
        filling = redirect_query(page, query)
        if filling is not None:
            return RedirectResponse(f"/{name}?{urlencode(filling)}", 303)
        ground = query.pop(FIGURE, None) if ending == "svg" else None
        form = filled_form(page, query)
        if ground is not None:
            return Response(page_figure(form, ground), media_type="image/svg+xml")
        if ending == "svg":
            return Response(saved_drawing(form).svg(), media_type="image/svg+xml")
        if ending == "json":
            return Response(saved_json(form), media_type="application/json")
    except RuleError as error:
        if ending == "json" and is_answer(error):  # what the command prints
            return Response(refusal_json(error), 422, media_type="application/json")
        if ending:
            return PlainTextResponse(f"{error}\n", 422)
        if PASTE in query:
            return HTMLResponse(render_unread(page, query[PASTE], error.violations), 422)
        return HTMLResponse(render_refusal(page.title, error.violations), 422)
    status, html = render_form(form)
    return HTMLResponse(html, status)


async def _not_found(request: Request, error: Exception) -> Response:  # noqa: ARG001  the signature of a handler
    name, dot, ending = request.url.path.removeprefix("/").partition(".")
    if name in OTHER_NAMES:
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"/{OTHER_NAMES[name]}{dot}{ending}{query}", 307)
    nearest = unknown_name("page", "path", request.url.path.strip("/")[:80], PAGES)
    return HTMLResponse(render_refusal("No such page", (nearest,)), 404)


MAX_QUERY_BYTES = 60_000  # the server reads a request's first line and headers up to 65,536 bytes
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_DRAWING_STYLES = " ".join(
    f"'{hash_source(style)}'" for style in (style_sheet(), figure_style("light"), figure_style("dark"))
)
SECURITY_HEADERS = {
    # The styles of drawings are named by their hashes: an SVG that is opened by itself brings its own.
    "content-security-policy": f"default-src 'none'; script-src 'self'; style-src 'self' {_DRAWING_STYLES}; "
    "img-src 'self' blob: data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
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
                MutableHeaders(scope=message).update(SECURITY_HEADERS)
            await send(message)

        await (self.refusal(scope) or self.app)(scope, receive, send_guarded)

    def refusal(self, scope: Scope) -> Response | None:
        """The answer that says why a request is refused, or None."""
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        is_foreign = headers.get("origin", f"http://{host}").lower() not in (f"http://{host}", f"https://{host}")
        is_followed = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("navigate", "document")
        is_cross_site = headers.get("sec-fetch-site", "").lower() == "cross-site" and not is_followed
        if not self.is_own(host):
            return _refusal(421, "Host: this server answers under the names of its own machine alone.")
        if is_foreign:
            return _refusal(403, "Origin: pages of other origins are not answered.")
        if is_cross_site:
            return _refusal(403, "Sec-Fetch-Site: a page of another site asks. Open the address yourself.")
        if scope["method"] not in ("GET", "HEAD"):
            sentence = "Method: pages are read with GET; nothing is written."
            return _refusal(405, sentence, {"allow": "GET, HEAD"})
        if len(scope.get("query_string", b"")) > MAX_QUERY_BYTES:
            return _refusal(414, f"Query: more than {MAX_QUERY_BYTES} bytes; use the command line.")
        return None

    def is_own(self, host: str) -> bool:
        """Whether a Host header names this machine; bound beyond loopback, any address in digits may do so."""
        name = re.sub(r":[0-9]*$", "", host.lower())
        return name in self.names or (self.open and _is_address(name.strip("[]")))


def _refusal(status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(f"{sentence}\n", status, headers)


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
