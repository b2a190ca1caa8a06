"""One page as one file: style, script, drawing and tables inside, for a blog or a talk. It needs no server."""

from __future__ import annotations

import base64
import hashlib
import json
from urllib.parse import parse_qsl, unquote, urlsplit

from markupsafe import Markup

from tilescope.errors import RuleError, shortened, unknown_name
from tilescope.web.page import STEP
from tilescope.web.page_rules import PAGE_QUERY
from tilescope.web.pages import PAGES
from tilescope.web.rendering import render_form, static_file


def exported(url: str) -> str:
    """The page at `url`, whole or from its path on, as a document that hovers and steps by itself.

    >>> exported("/swizzle?mode=64B").count("<script")
    2
    """
    try:
        place = urlsplit(url)
    except ValueError as error:
        raise PAGE_QUERY.error(
            "url", f"{shortened(url, 60)!r}: {error}", "the address of a page", "Try /swizzle."
        ) from None
    name = unquote(place.path).strip("/")
    if name not in PAGES:
        raise RuleError([unknown_name("page", "url", name[:80], PAGES)])
    pairs = parse_qsl(place.query, keep_blank_values=True, max_num_fields=100)
    query = dict(pairs)
    if len(query) < len(pairs):
        raise PAGE_QUERY.error("url", "a field that is given twice", "every field once", "Give every field once.")
    page = PAGES[name]
    form = page.filled(page.redirect(query) or query)
    answer = form.answer()
    style, script = static_file("explorer.css"), static_file("explorer.js")
    standalone = {
        "style": Markup(style),  # noqa: S704  our own files
        "script": Markup(script),  # noqa: S704
        "policy": f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data: blob:",
        "svg": _data("image/svg+xml", answer.drawing.svg()),
        "json": _data("application/json", json.dumps(answer.to_dict(), indent=2)),
    }
    return render_form(form, query.get(STEP, ""), standalone=standalone).html


def _hash(text: str) -> str:
    """The text as a content security policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _data(media_type: str, text: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(text.encode()).decode()}"
