"""Pages as HTML: one template for all pages of the table, one for the first page, one for refusals."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from tilescope.errors import RuleError, Violation
from tilescope.view.palette import CHUNK_COLOURS, ROLES, colour_of
from tilescope.view.parts import plain, words
from tilescope.view.svg_canvas import hatchings, style_sheet
from tilescope.web.drawn import fitted, picture, ruler_table
from tilescope.web.page import Answer, Form
from tilescope.web.pages import PAGES


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("tilescope.web"), autoescape=select_autoescape(), undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    functions = (colour_of, fitted, picture, plain, ruler_table, words)
    environment.globals |= {function.__name__: function for function in functions}
    environment.globals |= {"pages": PAGES, "hatchings": Markup(hatchings())}  # noqa: S704  colours, no text
    return environment


def static_file(name: str) -> str:
    """A file of the page: its script, or its style with the colours of the drawings."""
    content = (files("tilescope.web") / "static" / name).read_text("utf-8")
    return content + _drawing_rules() if name.endswith(".css") else content


def _drawing_rules() -> str:
    """The style of view/, and the same colours for the swatches of a legend."""
    swatches = "".join(
        f".tint-{colour.name}{{background:{colour.fill};color:{colour.ink}}}"
        for colour in (*CHUNK_COLOURS, *ROLES.values())
    )
    return f"\n@layer drawing{{{style_sheet()}{swatches}}}\n"


def render_form(form: Form, *, standalone: dict[str, Any] | None = None) -> tuple[int, str]:
    """The status and the page of a filled form: its answer, or what is wrong with it."""
    answer: Answer | None = None
    try:
        answer = form.answer()
        violations = answer.violations
    except RuleError as error:
        violations = error.violations
    cured = [(violation, form.cure(violation)) for violation in violations]
    html = _rendered("page.html", form=form, page=form.page, answer=answer, standalone=standalone, violations=cured)
    return 422 if answer is None else 200, html


def render_first() -> str:
    """The first page: the path of a tile."""
    from tilescope.web.first import stations

    return _rendered("first.html", stations=stations(), standalone=None)


def render_refusal(title: str, violations: tuple[Violation, ...]) -> str:
    """A page that says why there is no page."""
    return _rendered("refusal.html", title=title, violations=violations, standalone=None)


def _rendered(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(**values)
