"""The server: routes, a few workers, and a queue that refuses rather than loses.

GET /                          the first page
GET /swizzle?mode=64B          a page
GET /swizzle.svg?mode=64B      its drawing
GET /swizzle.json?mode=64B     its value
POST /run                      a page whose fields, as a JSON object, are too long for an address
POST /run/record               a run that is too long for its page is made and recorded: events that say how far it is
POST /run/compile              CUDA C++ or Triton is compiled: the fields that it fills, as JSON
POST /identify/open/dump       a file that was dropped on a field: the fields that it fills, as JSON

Any website can make a browser send requests to this server, under a host name that it resolves to 127.0.0.1. So a
request is answered only under a name of this machine (Host), and not for a page of another origin. A link that a user
follows is answered: the browser shows its page as a whole, and the other site cannot read it. A POST is answered only
for pages of this server.
"""

from __future__ import annotations

import ipaddress
import json
import re
import socket
from contextlib import suppress
from urllib.parse import urlencode

from anyio import CapacityLimiter, move_on_after, to_thread
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tilescope.errors import RuleError, unknown_name
from tilescope.questions.refusal import is_answer, refusal_json
from tilescope.view.svg_style import figure_style, style_sheet
from tilescope.web.connection_owner import is_own_user
from tilescope.web.form import FIGURE, MAX_LINK_CHARACTERS, PASTE, POSTED, filled_form, query_of
from tilescope.web.pages import OTHER_NAMES, PAGES, open_file, redirect_query
from tilescope.web.rendering import (
    hash_source,
    render_first,
    render_form,
    render_refusal,
    render_unread,
    static_file,
)
from tilescope.web.run_recorder import Recording
from tilescope.web.side_by_side import page_figure, saved_drawing, saved_json
from tilescope.web.source_compiler import compile_apart, read_source

WORKERS = 2
MAX_WAITING = 64  # requests that wait for a worker; more are refused at once
PART_HEADER = "tilescope-part"  # names the part of a page that its script shows …
ANSWER_PART = "answer"  # … and so that the long texts of its fields need not come back
_COMPILE = "/run/compile"
_OPEN = "/open/"  # in the path of a file that a field takes
_FIELDS_TYPE = "application/json"
_FILE_TYPE = "application/octet-stream"
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
    recorders = CapacityLimiter(1)
    compilers = CapacityLimiter(1)

    async def answered(request: Request) -> Response:
        if workers.statistics().tasks_waiting >= MAX_WAITING:
            return PlainTextResponse("Busy: too many requests at once. Try again.\n", 503, {"retry-after": "1"})
        body = await _body(request) if request.method == "POST" else b""
        if body is None:
            return _refusal(413, f"Body: more than {MAX_BODY_BYTES} bytes, or too slow; use the command line.")
        return await to_thread.run_sync(_answer, request, body, limiter=workers)

    async def compiled(request: Request) -> Response:
        return await _compiled(request, compilers, host)

    async def recorded(request: Request) -> Response:
        return await _recorded(request, recorders)

    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _STATIC:
            raise HTTPException(404)
        return Response(static_file(name), media_type=_STATIC[name], headers={"cache-control": "no-cache"})

    async def no_icon(_: Request) -> Response:  # a browser requests one for a drawing that it opens separately
        return Response(status_code=204)

    pages = [Route(f"/{name}", answered, methods=["GET", "POST"]) for name in PAGES]
    pages += [Route(f"/{name}{ending}", answered) for name in PAGES for ending in (".svg", ".json")]
    files = [Route(f"/{name}{_OPEN}{{field}}", answered, methods=["POST"]) for name in PAGES]
    recordings = [Route(f"/{page.name}/record", recorded, methods=["POST"]) for page in PAGES.values() if page.records]
    recordings.append(Route(_COMPILE, compiled, methods=["POST"]))
    others = [Route("/static/{name}", static), Route("/favicon.ico", no_icon)]
    return Starlette(
        routes=[Route("/", answered), *others, *pages, *files, *recordings],
        middleware=[Middleware(Guard, host=host), Middleware(GZipMiddleware, minimum_size=2048, compresslevel=4)],
        exception_handlers={404: _not_found},
    )


async def _compiled(request: Request, compilers: CapacityLimiter, host: str) -> Response:
    """The fields that a compiled text fills; only for the user who runs the server, and on this machine."""
    if not is_loopback(host):
        return _refusal(403, "Compile: a server that is open to others compiles nothing. Use tilescope run.")
    if not is_own_user(request.scope.get("client"), request.scope.get("server")):
        return _refusal(403, "Compile: only the user who runs this server compiles with it. Use tilescope run.")
    body = await _body(request)
    if body is None:
        return _refusal(413, f"Body: more than {MAX_BODY_BYTES} bytes, or too slow; use the command line.")
    if compilers.borrowed_tokens:
        return _refusal(503, "Busy: another text is being compiled. Try again when it is done.", {"retry-after": "5"})
    try:
        text = read_source(_posted_query(body))
    except RuleError as error:
        return _refusal(422, "\n".join(map(str, error.violations)))
    answer = await to_thread.run_sync(compile_apart, text, limiter=compilers)
    return _refusal(422, answer["refused"]) if "refused" in answer else JSONResponse(answer)


async def _recorded(request: Request, recorders: CapacityLimiter) -> Response:
    """Events of a recording: {"doing": "running", "steps": 2048} …, and {"done": true} or {"refused": why} at the end."""
    body = await _body(request)
    if body is None:
        return _refusal(413, f"Body: more than {MAX_BODY_BYTES} bytes, or too slow; use the command line.")
    if recorders.borrowed_tokens:
        return _refusal(503, "Busy: another run is being recorded. Try again when it is done.", {"retry-after": "5"})
    try:
        form = filled_form(PAGES[request.url.path.split("/")[1]], _posted_query(body))
    except RuleError as error:
        return _refusal(422, str(error))
    return StreamingResponse(Recording(form).events(recorders), media_type="text/event-stream")


async def _body(request: Request) -> bytes | None:
    """The body of a request; None where it is too large, or does not arrive whole in time."""
    body = bytearray()
    with move_on_after(BODY_SECONDS), suppress(ClientDisconnect):
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                return None
        return bytes(body)
    return None


def _answer(request: Request, body: bytes) -> Response:
    """The page; a mistake of our own is a 500 without a traceback, with the headers of every answer."""
    try:
        if request.url.path == "/":
            return HTMLResponse(render_first())
        return _opened_file(request, body) if _OPEN in request.url.path else _page(request, body)
    except Exception as error:  # noqa: BLE001  after any exception, the next request is answered
        mistake = type(error).__name__
        return PlainTextResponse(f"A mistake in tilescope ({mistake}). Please report the address of this page.\n", 500)


def _opened_file(request: Request, body: bytes) -> Response:
    """The fields that a file fills, as JSON; 422 with the reason where it cannot be read."""
    name = request.url.path.split("/")[1]
    try:
        return JSONResponse(open_file(PAGES[name], request.path_params["field"], body))
    except RuleError as error:
        return PlainTextResponse("\n".join(map(str, error.violations)) + "\n", 422)


def _posted_query(body: bytes) -> dict[str, str]:
    """The fields that a body gives; RuleError where it is no object of texts."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or not all(isinstance(text, str) for text in fields.values()):
        raise POSTED.error()
    return fields


def _page(request: Request, body: bytes) -> Response:
    """A page, its drawing or its value; a mistake in the query gives a 4xx response with a message."""
    name, _, ending = request.url.path.removeprefix("/").partition(".")
    page = PAGES[name]
    query: dict[str, str] = {}
    try:
        is_posted = request.method == "POST"
        query = _posted_query(body) if is_posted else query_of(request.query_params.multi_items())
        filling = redirect_query(page, query)
        if filling is not None and is_posted:
            query = dict(filling)
        elif filling is not None:
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
    status, html = render_form(form, has_texts=request.headers.get(PART_HEADER) != ANSWER_PART)
    return HTMLResponse(html, status)


async def _not_found(request: Request, error: Exception) -> Response:  # noqa: ARG001  the signature of a handler
    name, dot, ending = request.url.path.removeprefix("/").partition(".")
    if name in OTHER_NAMES:
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"/{OTHER_NAMES[name]}{dot}{ending}{query}", 307)
    nearest = unknown_name("page", "path", request.url.path.strip("/")[:80], PAGES)
    return HTMLResponse(render_refusal("No such page", (nearest,)), 404)


MAX_BODY_BYTES = 6 << 20  # a text of 2 MB, escaped as JSON, or a file
BODY_SECONDS = 20.0  # for the whole body of a request
MAX_QUERY_BYTES = MAX_LINK_CHARACTERS  # the server reads a request's first line and headers up to 65,536 bytes
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_DRAWING_STYLES = " ".join(
    f"'{hash_source(style)}'" for style in (style_sheet(), figure_style("light"), figure_style("dark"))
)
SECURITY_HEADERS = {
    # The styles of drawings are allowed by their hashes: an SVG that is opened separately contains its own.
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
        """Answer the request, or return the reason for a refusal."""
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
        """The response with the reason why a request is refused, or None."""
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        is_foreign = headers.get("origin", f"http://{host}").lower() not in (f"http://{host}", f"https://{host}")
        is_followed = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("navigate", "document")
        is_cross_site = headers.get("sec-fetch-site", "").lower() == "cross-site" and not is_followed
        if not self.is_own(host):
            return _refusal(421, "Host: this server answers only under the names of its machine.")
        if is_foreign:
            return _refusal(403, "Origin: pages of other origins are not answered.")
        if is_cross_site:
            return _refusal(403, "Sec-Fetch-Site: a page of another site asks. Open the address yourself.")
        if scope["method"] == "POST":
            return self.posted_refusal(scope["path"], headers)
        if scope["method"] not in ("GET", "HEAD"):
            sentence = "Method: pages are read with GET, or with POST where a text is long; nothing is written."
            return _refusal(405, sentence, {"allow": "GET, HEAD, POST"})
        if len(scope.get("query_string", b"")) > MAX_QUERY_BYTES:
            return _refusal(414, f"Query: more than {MAX_QUERY_BYTES} bytes; use the command line.")
        return None

    def posted_refusal(self, path: str, headers: Headers) -> Response | None:
        """The response that refuses a POST from another site, or with a type that forms can send; None if it is accepted."""
        content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        length = headers.get("content-length", "0")
        if path.strip("/").partition("/")[0] not in PAGES:
            return _refusal(405, "Method: only pages are posted to.", {"allow": "GET, HEAD"})
        if "origin" not in headers or headers.get("sec-fetch-site", "same-origin").lower() != "same-origin":
            return _refusal(403, "Origin: a POST is answered for pages of this server alone.")
        if content_type != (_FILE_TYPE if _OPEN in path else _FIELDS_TYPE):
            return _refusal(415, f"Content-Type: fields are posted as {_FIELDS_TYPE}, files as {_FILE_TYPE}.")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            return _refusal(413, f"Body: more than {MAX_BODY_BYTES} bytes; use the command line.")
        return None

    def is_own(self, host: str) -> bool:
        """Whether a Host header names this machine; bound beyond loopback, any address in digits may do so."""
        name = re.sub(r":[0-9]*$", "", host.lower())
        return name in self.names or (self.open and _is_address(name.strip("[]")))


def _refusal(status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(f"{sentence}\n", status, headers)


def is_loopback(host: str) -> bool:
    """Whether a server bound to `host` can be reached only from this machine.

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
