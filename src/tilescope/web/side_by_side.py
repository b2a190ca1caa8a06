"""Two states of a page side by side: the left one is fixed, the right one can be edited."""

from __future__ import annotations

import json
from typing import NamedTuple, Self, get_args

from tilescope.errors import RuleError, unknown_name
from tilescope.questions.answer_differences import differences
from tilescope.view.drawing import Drawing
from tilescope.view.figure import Ground, Labelled, Pin, figure_svg, has_figure, mark_pinned
from tilescope.web.form import FIGURE, PAGE_QUERY, Form
from tilescope.web.sheet import Sheet

NO_FIGURE = PAGE_QUERY.worded(
    argument=FIGURE,
    found="the page {page} with these fields has no figure",
    limit="a figure is saved from a page that draws one",
    fix="Leave `figure` out: the whole drawing has its tables.",
)


class Comparison(NamedTuple):
    """The sheets of both states."""

    left: Sheet
    right: Sheet

    @classmethod
    def of(cls, right: Sheet) -> Self | None:
        """The sheet beside the state that it is compared with; None without a comparison.

        RuleError where the left state has no answer.
        """
        left_form = right.form.left
        return None if left_form is None else cls(Sheet.of(left_form), right)

    @property
    def sentence(self) -> str:
        """How the right answer differs from the left one."""
        return differences(self.left.answer, self.right.answer)

    def drawing(self) -> Drawing:
        """Both drawings, one below the other."""
        drawing = Drawing(self.sentence, {})
        for side, sheet in (("Left", self.left), ("Right", self.right)):
            drawing = drawing.with_parts({side: f"{side}: {sheet.headline}"})
            for name, part in sheet.drawing.named:
                drawing = drawing.with_parts({name: part})
        return drawing

    def json(self) -> str:
        """Both values."""
        left = json.loads(self.left.form.answer().json())
        right = json.loads(self.right.form.answer().json())
        return json.dumps({"answer": self.sentence, "left": left, "right": right}, indent=2)


def saved_drawing(form: Form) -> Drawing:
    """What a page saves as SVG: its drawing, or those of both states, with pinned cells and their partners marked."""
    sheet = Sheet.of(form)
    compared = Comparison.of(sheet)
    drawing = sheet.drawing if compared is None else compared.drawing()
    return mark_pinned([Labelled("", drawing)], pins_of(form))[0].drawing


def pins_of(form: Form) -> tuple[Pin, ...]:
    """The cells that a page keeps marked, in the order in which they were pinned."""
    written = form.pins.split(",") if form.pins else []
    return tuple(Pin(*map(int, pin.split("."))) for pin in written)


def saved_json(form: Form) -> str:
    """What a page saves as JSON: its value, or those of both states."""
    if form.left is None:
        return form.answer().json()
    compared = Comparison.of(Sheet.of(form))
    assert compared is not None
    return compared.json()


def page_figure(form: Form, ground: str) -> str:
    """The figures of a page, or of both its states, with pinned cells marked."""
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
    return figure_svg(drawings, ground=chosen, pins=pins_of(form))
