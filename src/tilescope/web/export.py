"""One page as one file: style, script, drawing and tables inside, for a blog or a talk. It needs no server."""

from __future__ import annotations

import base64
import hashlib

from markupsafe import Markup

from tilescope.web.pages import form_at
from tilescope.web.rendering import render_form, static_file


def exported(url: str) -> str:
    """The page at `url`, whole or from its path on, as a document that hovers and steps by itself.

    >>> exported("/swizzle?mode=64B").count("<script")
    2
    """
    form = form_at(url)
    answer = form.answer()
    style, script = static_file("explorer.css"), static_file("explorer.js")
    standalone = {
        "style": Markup(style),  # noqa: S704  our own files
        "script": Markup(script),  # noqa: S704
        "policy": f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data: blob:",
        "svg": _data("image/svg+xml", answer.drawing.svg()),
        "json": _data("application/json", answer.json()),
    }
    return render_form(form, standalone=standalone)[1]


def _hash(text: str) -> str:
    """The text as a content security policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _data(media_type: str, text: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(text.encode()).decode()}"
