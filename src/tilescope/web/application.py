"""The server: routes, a few workers, and a queue that refuses rather than loses.

GET /                          the first page
GET /swizzle?mode=64B          a page
GET /swizzle.svg?mode=64B      its drawing
GET /swizzle.json?mode=64B     its value
"""

from __future__ import annotations

from urllib.parse import urlencode

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from tilescope.errors import RuleError, unknown_name
from tilescope.web.guard import Guard
from tilescope.web.page import query_of
from tilescope.web.pages import PAGES
from tilescope.web.rendering import render_first, render_form, render_refusal, static_file

WORKERS = 2
MOST_WAITING = 64  # requests that wait for a worker; more are refused at once
_STATIC = {"explorer.css": "text/css", "explorer.js": "text/javascript"}


def application(host: str = "127.0.0.1") -> Starlette:
    """The explorer as an ASGI application, for a server bound to `host`."""
    workers = CapacityLimiter(WORKERS)

    async def answered(request: Request) -> Response:
        if workers.statistics().tasks_waiting >= MOST_WAITING:
            return PlainTextResponse("Busy: too many requests at once. Try again.\n", 503, {"retry-after": "1"})
        return await to_thread.run_sync(_answer, request, limiter=workers)

    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _STATIC:
            raise HTTPException(404)
        return Response(static_file(name), media_type=_STATIC[name], headers={"cache-control": "no-cache"})

    pages = [Route(f"/{name}{ending}", answered) for name in PAGES for ending in ("", ".svg", ".json")]
    return Starlette(
        routes=[Route("/", answered), Route("/static/{name}", static), *pages],
        middleware=[Middleware(Guard, host=host), Middleware(GZipMiddleware, minimum_size=2048, compresslevel=4)],
        exception_handlers={404: _not_found},
    )


def _answer(request: Request) -> Response:
    """The page; a mistake of our own is a 500 without a traceback, with the headers of every answer."""
    try:
        return HTMLResponse(render_first()) if request.url.path == "/" else _page(request)
    except Exception as error:  # noqa: BLE001  whatever it is, the next request is answered
        sentence = f"A mistake in tilescope ({type(error).__name__}). Please report the address of this page."
        return PlainTextResponse(f"{sentence}\n", 500)


def _page(request: Request) -> Response:
    """A page, its drawing or its value; whatever is wrong with the query is a 4xx that says so."""
    name, _, ending = request.url.path.removeprefix("/").partition(".")
    page = PAGES[name]
    try:
        query = query_of(request.query_params.multi_items())
        filling = page.redirect(query)
        if filling is not None:
            return RedirectResponse(f"/{name}?{urlencode(filling)}", 303)
        form = page.filled(query)
        if ending == "svg":
            return Response(form.answer().drawing.svg(), media_type="image/svg+xml")
        if ending == "json":
            return Response(form.answer().json(), media_type="application/json")
    except RuleError as error:
        if ending:
            return PlainTextResponse(f"{error}\n", 422)
        return HTMLResponse(render_refusal(page.title, error.violations), 422)
    status, html = render_form(form)
    return HTMLResponse(html, status)


async def _not_found(request: Request, error: Exception) -> Response:  # noqa: ARG001  the signature of a handler
    nearest = unknown_name("page", "path", request.url.path.strip("/")[:80], PAGES)
    return HTMLResponse(render_refusal("No such page", (nearest,)), 404)
