"""A page on the web: the fields of its forms, a filled form, and what the form's answer shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from tilescope import view
from tilescope.errors import RuleError, Violation, unknown_name
from tilescope.pipeline.simulation import Simulation
from tilescope.planner.element_path import ElementPath
from tilescope.questions.page import Code, Leads, ListedLine, Page, PageForm, Sentences, address
from tilescope.questions.question import PAGE_LIMIT, READERS, Answer, Asked, Input, MisuseError, flag, in_words
from tilescope.rule import ARGUMENT_TYPE, rule
from tilescope.sentence import shortened
from tilescope.tma import Trace
from tilescope.view.drawing import Drawing
from tilescope.view.step import Step

if TYPE_CHECKING:
    from tilescope.view.pipeline_view import Ticks

PAGE_QUERY = rule(
    "page-query",
    "The address of a page gives every field once.",
    argument="query",
    found="a field that stands twice",
    limit="every field once",
    fix="Write every field once.",
    source="the explorer",
    passing='ts.web.pages.form_at("/swizzle?mode=128B&address=0x80")',
    failing='ts.web.pages.form_at("/swizzle?mode=128B&mode=64B")',
)
MISUSED = PAGE_QUERY.worded(
    found="{sentence}",
    limit="fields go together as the options of the command do",
    fix="Fill the field that is missing, or empty one of them.",
)
OTHER_PAGE = PAGE_QUERY.worded(
    argument="left",
    found="'{written}' on the left",
    limit="a page compares states of its own, one with another",
    fix="Write the address of a state, such as /{page}.",
)
MAX_CHARACTERS = 400  # of a field
MAX_LONG_CHARACTERS = 6000
STEP = "step"  # the query's name for the place in a walk; every page that steps knows it
PIN = "pin"  # the query's name for the cell that stays marked: figure, row and column, counted from 0
TICKS = "ticks"  # the query's name for the part of a timeline that is drawn: the first tick and the last
LEFT = "left"  # the query's name for the state that another is compared with: the path and query of a page
FIGURE = "figure"  # the query's name, for an SVG, of the ground that its figure alone stands on: light or dark
PASTE = "paste"  # the query's name for a text that fills the fields
LONGEST_STATE_WORDS = 28  # characters of a field in the line that says the state of a form
LEAST_TICKS = 8  # of a timeline on a page
MOST_TICKS = 512
_DRAGGED_OPERATIONS = ("load", "store")  # four gathered rows are not dragged


@dataclass(frozen=True, slots=True)
class Field:
    """An input on a page, and what it holds if the address does not say."""

    input: Input
    default: str  # what the library takes if it stays empty, in words
    preset: str

    @property
    def name(self) -> str:
        """In the address of the page."""
        return self.input.name

    @property
    def control(self) -> str:
        """How the page shows it: a box to tick, an area for much text, a list of names, or a line."""
        if self.input.is_long:
            return "area"
        if self.input.read is flag:
            return "tick"
        return "choice" if self.input.choices and not self.input.is_open else "line"

    @property
    def has_no_choice(self) -> bool:
        """Whether a list of names may stay without one."""
        return not self.preset or (bool(self.default) and self.default not in self.input.choices)

    @property
    def note(self) -> str:
        """What stands below it; a line or a list of names says itself what it is if it stays empty."""
        if self.control != "area" or not self.default or self.preset:
            return self.input.hint
        return f"{self.input.hint} Empty: {self.default}.".strip()

    @property
    def may_stay_empty(self) -> bool:
        """Whether an empty field says nothing, as a command without the option; otherwise it is read, and refused."""
        return self.input.is_required is not True and bool(self.input.option or not self.preset)

    def takes(self, written: str) -> bool:
        """Whether the text may stand in it: a list of names takes those alone."""
        return self.control != "choice" or written in self.input.choices or (not written and self.has_no_choice)

    def argument(self, written: str) -> object:
        """What the text means to the question: None for an empty option, as if a command had none.

        RuleError if it means nothing.
        """
        most = self.input.longest or (MAX_LONG_CHARACTERS if self.input.is_long else MAX_CHARACTERS)
        if len(written) > most:
            fix = f"Use at most {most} characters; the command line takes more."
            raise PAGE_LIMIT.error(argument=self.name, what="characters", count=len(written), most=most, fix=fix)
        if not written.strip() and self.may_stay_empty:
            return None
        if self.control == "choice" and written not in self.input.choices:
            raise RuleError([unknown_name(self.input.label.lower(), self.name, written, self.input.choices)])
        try:
            return self.input.read(written)
        except ValueError as error:
            wrong, instead = error.args
            known = READERS.get(self.input.read)
            limit = self.input.hint.rstrip(".") if known is None else f"{self.name} is {known.called}"
            raise ARGUMENT_TYPE.error(argument=self.name, found=wrong, limit=limit, fix=f"Write {instead}.") from None


def fields_of(form: PageForm) -> tuple[Field, ...]:
    """The fields of a form: they hold at first what the form presets, else the library's own choice.

    >>> from tilescope.questions.swizzles import SWIZZLE_FORM
    >>> [(field.name, field.preset) for field in fields_of(SWIZZLE_FORM)]
    [('mode', '128B'), ('address', '0x0')]
    """
    fields = []
    for row in form.inputs:
        default = form.question.default(row)
        own_choice = default if default in row.choices and not row.is_open else ""
        fields.append(Field(row, default, form.presets.get(row.name, own_choice)))
    return tuple(fields)


def choice_of(page: Page) -> Field | None:
    """The field that selects a form; None for a page with one."""
    if page.chooser is None:
        return None
    return Field(page.chooser, "", preset=next(iter(page.forms)))


@dataclass(frozen=True, slots=True)
class Form:
    """A form with its text in it."""

    page: Page
    chosen: str
    fields: tuple[Field, ...]
    written: Mapping[str, str]
    step: int = 0  # of the walk
    pin: str = ""  # the cell that stays marked
    ticks: tuple[int, int] | None = None  # of a timeline: the first that is drawn, and how many; None: as the view does
    left: Form | None = None  # the state that this one is compared with

    @property
    def description(self) -> PageForm:
        """The form that is filled."""
        return self.page.forms[self.chosen]

    @property
    def state_words(self) -> str:
        """What the form says, in one line: its choice and its fields, but for those that say what is taken anyway."""
        said = [self.chosen.replace("_", " ")] if self.chosen else []
        for entry in self.fields:
            written = self.written[entry.name].strip()
            is_hidden = entry.name in self.description.rare and written == entry.preset
            if written and written != entry.default and not is_hidden:
                said.append(entry.input.label if entry.control == "tick" else " ".join(written.split()))
        return " · ".join(shortened(words, LONGEST_STATE_WORDS) for words in said)

    @property
    def rare_fields(self) -> tuple[Field, ...]:
        """Those under "More"."""
        return tuple(entry for entry in self.fields if entry.name in self.description.rare)

    @property
    def says_more(self) -> bool:
        """Whether a field under "More" holds something else than at first, so that it must be seen."""
        return any(self.written[entry.name] != entry.preset for entry in self.rare_fields)

    def asked(self) -> Asked:
        """What the question is asked; RuleError where a field cannot be read. Fields that stay empty say nothing."""
        said: dict[str, object] = {}
        if self.page.chooser is not None:
            said[self.page.chooser.name] = self.chosen
        wrong: list[Violation] = []
        for entry in self.fields:
            try:
                value = entry.argument(self.written[entry.name])
            except RuleError as error:
                wrong.extend(error.violations)
                continue
            if value is not None:
                said[entry.name] = value
        if wrong:
            raise RuleError(wrong)
        return self.description.asking(Asked(said, self.description.limits))

    def answer(self) -> Answer:
        """What the library says to it; RuleError where a field cannot be read or the library refuses."""
        return self.answer_to(self.asked())

    def answer_to(self, asked: Asked) -> Answer:
        """What the library says to what is asked."""
        answer = self.description.answer or self.description.question.answer
        try:
            return answer(asked)
        except MisuseError as error:
            raise MISUSED.error(sentence=str(error).rstrip(".")) from None

    @property
    def command(self) -> tuple[str, ...] | None:
        """The words of the command that asks the same; None where a field cannot be read."""
        try:
            return tuple(self.description.question.words(self.asked()))
        except RuleError:
            return None

    def path(self, **changed: str) -> str:
        """The path and query of this state, or of one with some fields changed; defaults are left out."""
        query = self._query(changed)
        if self.step and not changed:
            query[STEP] = str(self.step)
        if self.pin and not changed:
            query[PIN] = self.pin
        if self.ticks and not changed:
            first, count = self.ticks
            query[TICKS] = f"{first}-{first + count - 1}"
        return address(self.page.name, query | self._left_query())

    def _query(self, changed: Mapping[str, str]) -> dict[str, str]:
        """The fields that hold something else than at first."""
        written = {**self.written, **changed}
        fields = list(self.fields)
        choice = choice_of(self.page)
        if choice is not None:
            fields.insert(0, choice)
            written[choice.name] = self.chosen
        return {field.name: written[field.name] for field in fields if written[field.name] != field.preset}

    def _left_query(self) -> dict[str, str]:
        return {} if self.left is None else {LEFT: self.left.path()}

    def figure_path(self, ground: str) -> str:
        """The path of the figure of this state alone, for a light or a dark ground."""
        path, _, query = self.path().partition("?")
        return f"{path}.svg?{query}&{FIGURE}={ground}" if query else f"{path}.svg?{FIGURE}={ground}"

    @property
    def alone(self) -> Form:
        """The state by itself: with no other beside it, no cell pinned and no step taken."""
        return replace(self, left=None, pin="", step=0)

    @property
    def comparing_path(self) -> str:
        """The path of this state beside itself, where the right one is then edited."""
        return replace(self, left=self.alone, pin="", step=0).path()

    @property
    def swapped_path(self) -> str:
        """The path of the left state, with this one on its left."""
        assert self.left is not None, self.page.name
        return replace(self.left, left=self.alone).path()

    def path_to_ticks(self, first: int, count: int) -> str:
        """The path of this state with another part of its timeline; a step and a pin are of the part that is left."""
        return replace(self, step=0, pin="", ticks=(first, count)).path()

    def path_to(self, chosen: str) -> str:
        """The path of another form of the page, in which the fields that both have, by name and label, keep their text."""
        choice = choice_of(self.page)
        assert choice is not None, self.page.name
        query = {} if chosen == choice.preset else {choice.name: chosen}
        labels = {entry.name: entry.input.label for entry in self.fields}
        for entry in fields_of(self.page.forms[chosen]):
            is_shared = labels.get(entry.name) == entry.input.label
            kept = self.written[entry.name] if is_shared else entry.preset
            if kept != entry.preset and entry.takes(kept):
                query[entry.name] = kept
        return address(self.page.name, query | self._left_query())

    def wrong_fields(self, violations: Iterable[Violation]) -> frozenset[str]:
        """The fields that violations are about: `box[0]` is about the field `box`.

        An argument that no field has, such as the shape (m, n), is told by the names of the violation's values.

        >>> from tilescope.questions.pages import MENU
        >>> page = next(page for page in MENU if page.name == "tensor-map")
        >>> form = filled_form(page, {"box": "300,8"})
        >>> sorted(form.wrong_fields(form.answer().violations))
        ['box']
        """
        named: set[str] = set()
        for violation in violations:
            if violation.severity == "error":
                argument = violation.argument.partition("[")[0]
                named |= {argument} if argument in self.written else set(violation.values)
        return frozenset(named & set(self.written))

    def cure(self, violation: Violation) -> str | None:
        """The path of the state in which the violation's own change is made; None where it has none for this form."""
        change = violation.change
        if not change or any(name not in self.written for name in change):
            return None
        return self.path(**{name: in_words(value) for name, value in change.items()})


def filled_form(page: Page, query: Mapping[str, str]) -> Form:
    """The form that a query fills; a name that no field has is refused."""
    choice = choice_of(page)
    chosen = "" if choice is None else query.get(choice.name, choice.preset)
    if choice is not None and chosen not in page.forms:
        raise RuleError([unknown_name(choice.input.label.lower(), choice.name, chosen, page.forms)])
    fields = fields_of(page.forms[chosen])
    written = {field.name: query.get(field.name, field.preset) for field in fields}
    known = [*written] if choice is None else [*written, choice.name]
    if page.is_compared:
        known.append(LEFT)
    strange = [name for name in query if name not in (*known, STEP, PIN, TICKS)]
    if strange:
        raise RuleError(unknown_name("field", name[:80], name, known) for name in strange[:8])
    step = query.get(STEP, "")
    pin = query.get(PIN, "")
    return Form(
        page,
        chosen,
        fields,
        written,
        step=int(step) if re.fullmatch("[0-9]{1,6}", step) else 0,
        pin=pin if re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,5}){2}", pin) else "",
        ticks=_ticks_of(query.get(TICKS, "")) if page.forms[chosen].pans else None,
        left=_left_form(page, query[LEFT]) if LEFT in query else None,
    )


def _left_form(page: Page, written: str) -> Form:
    """The state on the left, as the address of a page; RuleError where it is none of this page."""
    try:
        place = urlsplit(written)
        pairs = parse_qsl(place.query, keep_blank_values=True, max_num_fields=100)
    except ValueError:
        raise OTHER_PAGE.error(page=page.name, written=shortened(written, 60)) from None
    query = query_of(pairs)
    is_elsewhere = place.scheme or place.netloc or place.path != f"/{page.name}"
    if is_elsewhere or LEFT in query:
        raise OTHER_PAGE.error(page=page.name, written=shortened(written, 60))
    return filled_form(page, query).alone


def _ticks_of(written: str) -> tuple[int, int] | None:
    """The first tick of "64-127" and how many they are; None where it is no part of a timeline that a page draws.

    >>> _ticks_of("64-127"), _ticks_of("7-3"), _ticks_of("first")
    ((64, 64), None, None)
    """
    if not re.fullmatch("[0-9]{1,6}-[0-9]{1,6}", written):
        return None
    first, last = map(int, written.split("-"))
    count = last - first + 1
    return (first, count) if LEAST_TICKS <= count <= MOST_TICKS else None


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
    onward: str | None  # where a player goes on that has reached the last tick

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
        asked, answer = _answered(form)
        drawing = view.draw(answer.value, **_drawn_with(form, answer))
        assert drawing is not None, answer.value.kind
        return cls(form, asked, answer, drawing.without(answer.told_in) if answer.told_in else drawing)

    @property
    def headline(self) -> str:
        """The answer in a sentence, as the command's first line says it."""
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
        """The text that was asked about, line by line, with what was found there."""
        return self.form.description.listing(self.asked, self.answer)

    def code(self) -> Code | Sentences:
        """A program below the drawing, or the sentences that say why there is none."""
        return self.form.description.code(self.asked, self.answer)


@dataclass(frozen=True)
class _AskedState:
    """What a form asks, whichever part of the answer it shows."""

    form: Form = field(compare=False)
    page_name: str
    chosen: str
    written: tuple[tuple[str, str], ...]


def _answered(form: Form) -> tuple[Asked, Answer]:
    """What a form asks and its answer; that of a timeline is kept, because every part of it is a page of its own."""
    if not form.description.pans:
        asked = form.asked()
        return asked, form.answer_to(asked)
    return _kept_answer(_AskedState(form, form.page.name, form.chosen, tuple(form.written.items())))


@lru_cache(maxsize=4)
def _kept_answer(state: _AskedState) -> tuple[Asked, Answer]:
    asked = state.form.asked()
    return asked, state.form.answer_to(asked)


def _drawn_with(form: Form, answer: Answer) -> dict[str, object]:
    """The options with which the page draws an answer."""
    options = {**answer.shown, **form.description.shown, "ticks": form.ticks}
    return {name: option for name, option in options.items() if option is not None}


def query_of(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The query of an address; a field that stands twice is refused."""
    listed = list(pairs)
    query = dict(listed)
    if len(query) < len(listed):
        raise PAGE_QUERY.error()
    return query


def command_line(words: Iterable[str]) -> str:
    """The words of a command as a shell takes them.

    >>> command_line(["explain", "it hangs"])
    "tilescope explain 'it hangs'"
    """
    return shlex.join(["tilescope", *words])
