"""The figure of a page alone, as an address gives it: /swizzle.svg?mode=64B&pin=0.1.3&figure=dark."""

from __future__ import annotations

from typing import get_args

from tilescope.errors import RuleError, unknown_name
from tilescope.view.figure import Ground, Labelled, figure_svg, has_figure
from tilescope.web.form import FIGURE, PAGE_QUERY, Form
from tilescope.web.sheet import Sheet
from tilescope.web.side_by_side import Comparison, pin_of

NO_FIGURE = PAGE_QUERY.worded(
    argument=FIGURE,
    found="the page {page} with these fields has no figure",
    limit="a figure is saved from a page that draws one",
    fix="Leave `figure` out: the whole drawing has its tables.",
)


def page_figure(form: Form, ground: str) -> str:
    """The figures of a page, or of both its states, with the pinned cell marked."""
    grounds: tuple[Ground, ...] = get_args(Ground)
    chosen = next((name for name in grounds if name == ground), None)
    if chosen is None:
        raise RuleError([unknown_name("ground", FIGURE, ground[:80], grounds)])
    sheet = Sheet.of(form)
    compared = Comparison.of(sheet)
    drawings = [Labelled("", sheet.drawing)]
    if compared is not None:
        drawings = [Labelled("Left", compared.left.drawing), Labelled("Right", compared.right.drawing)]
    if not any(has_figure(drawing) for _, drawing in drawings):
        raise NO_FIGURE.error(page=form.page.name)
    return figure_svg(drawings, ground=chosen, pin=pin_of(form))
