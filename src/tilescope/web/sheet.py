"""An answered form: its drawing, and what a page lets a reader do with the drawing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from tilescope import view
from tilescope.pipeline.simulation import Simulation
from tilescope.planner.plans import ElementPath
from tilescope.questions.page import Code, Leads, ListedLine, Sentences
from tilescope.questions.question import Answer, Asked
from tilescope.tma import Trace
from tilescope.view.drawing import Drawing
from tilescope.view.walk_step import Step

if TYPE_CHECKING:
    from tilescope.view.timeline_lanes import Ticks
from tilescope.web.form import LEAST_TICKS, MOST_TICKS, Form

_DRAGGED_OPERATIONS = ("load", "store")  # four gathered rows are not dragged


class Pan(NamedTuple):
    """The part of a timeline that is drawn, and the paths of the parts around it; None where it ends."""

    first: int
    shown: int  # ticks
    total: int
    to_start: str | None
    earlier: str | None
    later: str | None
    to_end: str | None
    closer: str | None
    farther: str | None
    onward: str | None  # where a player goes on that has reached the last tick …
    backward: str | None  # … or, backwards, the first

    @classmethod
    def of(cls, form: Form, shown: Ticks) -> Pan:
        """The parts around those ticks: a step moves by half of what is drawn, a zoom keeps its middle."""
        first, count, total = shown.first, shown.shown, shown.total
        half = max(1, count // 2)
        has_earlier = first > 0
        has_later = shown.end < total
        can_zoom_in = half >= LEAST_TICKS
        can_zoom_out = count < min(total, MOST_TICKS)
        return cls(
            first=first,
            shown=count,
            total=total,
            to_start=form.path_to_ticks(0, count) if has_earlier else None,
            earlier=form.path_to_ticks(max(0, first - half), count) if has_earlier else None,
            later=form.path_to_ticks(min(first + half, total - count), count) if has_later else None,
            to_end=form.path_to_ticks(total - count, count) if has_later else None,
            closer=form.path_to_ticks(first + half // 2, half) if can_zoom_in else None,
            farther=form.path_to_ticks(max(0, first - half), min(2 * count, MOST_TICKS)) if can_zoom_out else None,
            onward=form.path_to_ticks(shown.end, count) if has_later else None,
            backward=form.path_to_ticks(max(0, first - count), count) if has_earlier else None,
        )


class Drag(NamedTuple):
    """A part of the drawing that the mouse drags: the field that takes the place, and the dimensions it moves along."""

    field: str
    part: str
    across: int  # index of the field's number that a column changes …
    down: int | None  # … and a row


@dataclass(frozen=True, slots=True)
class Sheet:
    """An answered form, drawn once: what its page and its saved files show."""

    form: Form
    asked: Asked
    answer: Answer
    drawing: Drawing

    @classmethod
    def of(cls, form: Form) -> Sheet:
        """The sheet of a filled form; RuleError where there is no answer."""
        asked, answer = _answer_form(form)
        drawing = view.draw(answer.value, **_drawn_with(form, answer))
        assert drawing is not None, answer.value.kind
        return cls(form, asked, answer, drawing.without(answer.told_in) if answer.told_in else drawing)

    @property
    def headline(self) -> str:
        """The answer in a sentence, as in the command's first line."""
        return self.answer.first.sentence or self.drawing.title

    @property
    def python(self) -> str:
        """The Python that makes the value."""
        call = self.answer.call
        then = self.answer.then
        assert call is not None, self.form.page.name
        return call.source() if then is None else f"{then.source()}\n{then.expression()}"

    @property
    def steps(self) -> tuple[Step, ...]:
        """The walk over the drawing."""
        if not self.form.description.walks:
            return ()
        return view.walk(self.answer.value, **_drawn_with(self.form, self.answer))

    @property
    def pan(self) -> Pan | None:
        """The part of the timeline that is drawn; None where there is no timeline."""
        simulation = self.answer.value
        if not self.form.description.pans or not isinstance(simulation, Simulation):
            return None
        from tilescope.view.pipeline_view import shown_ticks

        block = self.answer.shown.get("block")
        assert block is None or isinstance(block, int)
        return Pan.of(self.form, shown_ticks(simulation, block=block, ticks=self.form.ticks))

    @property
    def moves(self) -> Mapping[str, str]:
        """What the arrow keys write into the field that takes a place of the drawing, where they leave what is drawn."""
        path = self.answer.value
        if not self.form.description.picked or not isinstance(path, ElementPath):
            return {}
        from tilescope.view.path_view import moves_of

        return moves_of(path)

    @property
    def drag(self) -> Drag | None:
        """What the mouse drags: the plane of a tensor, along the dimensions that it shows."""
        field = self.form.description.dragged
        trace = self.answer.value
        if not field or not isinstance(trace, Trace) or trace.operation not in _DRAGGED_OPERATIONS:
            return None
        from tilescope.view.tensor_plane import plane_dims

        across, down = plane_dims(trace)
        return Drag(field, "plane", across, down)

    @property
    def leads(self) -> Leads:
        """The pages to which the parts of the drawing lead."""
        return self.form.description.leads(self.asked, self.answer)

    @property
    def listing(self) -> tuple[ListedLine, ...]:
        """The user's text, line by line, with the findings of each line."""
        return self.form.description.listing(self.asked, self.answer)

    def code(self) -> Code | Sentences:
        """A program below the drawing, or the sentences with the reason why there is none."""
        return self.form.description.code(self.asked, self.answer)


@dataclass(frozen=True)
class _AskedState:
    """The question of a form, for any part of the answer."""

    form: Form = field(compare=False)
    page_name: str
    chosen: str
    written: tuple[tuple[str, str], ...]


def _answer_form(form: Form) -> tuple[Asked, Answer]:
    """The question of a form and its answer; cached for a timeline, because every part of it is a separate page."""
    if not form.description.pans:
        asked = form.asked()
        return asked, form.answer_shown(asked)
    return _kept_answer(_AskedState(form, form.page.name, form.chosen, tuple(form.written.items())))


@lru_cache(maxsize=4)
def _kept_answer(state: _AskedState) -> tuple[Asked, Answer]:
    asked = state.form.asked()
    return asked, state.form.answer_shown(asked)


def _drawn_with(form: Form, answer: Answer) -> dict[str, object]:
    """The options with which the page draws an answer."""
    options = {**answer.shown, **form.description.shown, "ticks": form.ticks}
    return {name: option for name, option in options.items() if option is not None}
