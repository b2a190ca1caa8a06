"""A filled form: the state that the address of a page holds, and the addresses of the states around it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, urlsplit

from tilescope.errors import RuleError, Violation, unknown_name
from tilescope.questions.page import Page, PageForm, address
from tilescope.questions.question import Answer, Asked, MisuseError, as_fields, in_words
from tilescope.rule import rule
from tilescope.sentence import saying_arguments, shorten
from tilescope.web.field import Field, choice_of, fields_of

PAGE_QUERY = rule(
    "page-query",
    "The address of a page has every field once.",
    argument="query",
    found="a field that occurs twice",
    limit="every field once",
    fix="Write every field once.",
    source="the explorer",
    passing='ts.web.pages.form_at("/swizzle?mode=128B&address=0x80")',
    failing='ts.web.pages.form_at("/swizzle?mode=128B&mode=64B")',
)
POSTED = PAGE_QUERY.worded(
    argument="body",
    found="a body that is no object of texts",
    limit="fields are posted as a JSON object of texts",
    fix='Send {{"mode": "64B"}}, for example.',
)
MISUSED = PAGE_QUERY.worded(
    found="{sentence}",
    limit="fields go together as the options of the command do",
    fix="Fill the field that is missing, or empty one of them.",
)
OTHER_PAGE = PAGE_QUERY.worded(
    argument="left",
    found="'{written}' on the left",
    limit="a page compares two of its states",
    fix="Write the address of a state, such as /{page}.",
)
STEP = "step"  # the query's name for the position in a walk; every page with steps uses it
PIN = "pin"  # the query's name for the cells that stay marked: figure, row and column of each, counted from 0
MAX_PINS = 8
MAX_LINK_CHARACTERS = 60_000
TICKS = "ticks"  # the query's name for the part of a timeline that is drawn: the first tick and the last
LEFT = "left"  # the query's name for the state that another is compared with: the path and query of a page
FIGURE = "figure"  # the query's name for the background of a standalone figure: light or dark
PASTE = "paste"  # the query's name for a text that fills the fields
_STATE_CHARACTERS = 2000  # of a field that are looked at for that line
LONGEST_STATE_WORDS = 28  # characters of a field in the line that describes the state of a form
_PIN = r"[0-9]{1,3}(?:\.[0-9]{1,5}){2}"
_PINS = f"{_PIN}(?:,{_PIN}){{0,{MAX_PINS - 1}}}"
LEAST_TICKS = 8  # of a timeline on a page
MOST_TICKS = 512
MAX_FIX_ROUNDS = 8  # each makes the change of one violation


@dataclass(frozen=True, slots=True)
class Form:
    """A form with its text in it."""

    page: Page
    chosen: str
    fields: tuple[Field, ...]
    written: Mapping[str, str]
    step: int = 0  # of the walk
    pins: str = ""  # the cells that stay marked, as the query has them: "0.1.3,0.4.0"
    ticks: tuple[int, int] | None = None  # of a timeline: the first that is drawn, and how many; None: as the view does
    left: Form | None = None  # the state that this one is compared with

    @property
    def description(self) -> PageForm:
        """The form that is filled."""
        return self.page.forms[self.chosen]

    @property
    def state_words(self) -> str:
        """The state of the form in one line: its choice and its fields, without defaults."""
        parts = [self.chosen.replace("_", " ")] if self.chosen else []
        for entry in self.fields:
            written = self.written[entry.name][:_STATE_CHARACTERS].strip()
            is_hidden = entry.name in self.description.rare and written == entry.preset
            if written and written != entry.default and not is_hidden:
                parts.append(entry.input.label if entry.control == "tick" else " ".join(written.split()))
        return " · ".join(shorten(words, LONGEST_STATE_WORDS) for words in parts)

    @property
    def rare_fields(self) -> tuple[Field, ...]:
        """Those under "More"."""
        return tuple(entry for entry in self.fields if entry.name in self.description.rare)

    @property
    def says_more(self) -> bool:
        """Whether a field under "More" holds something else than at first, so that it must be seen."""
        return any(self.written[entry.name] != entry.preset for entry in self.rare_fields)

    def asked(self) -> Asked:
        """The inputs of the question; RuleError if a field cannot be parsed. Empty fields are omitted."""
        values: dict[str, object] = {}
        if self.page.chooser is not None:
            values[self.page.chooser.name] = self.chosen
        wrong: list[Violation] = []
        for entry in self.fields:
            try:
                value = entry.argument(self.written[entry.name])
            except RuleError as error:
                wrong.extend(error.violations)
                continue
            if value is not None:
                values[entry.name] = value
        if wrong:
            raise RuleError(wrong)
        return self.description.asking(Asked(values, self.description.limits))

    def answer(self) -> Answer:
        """The library's answer; RuleError if a field cannot be parsed or the library refuses."""
        return self.answer_to(self.asked())

    def answer_to(self, asked: Asked) -> Answer:
        """The library's answer with Python's names: JSON is the same here and on the command line."""
        answer = self.description.answer or self.description.question.answer
        try:
            return answer(asked)
        except MisuseError as error:
            raise MISUSED.error(sentence=str(error).rstrip(".")) from None

    def answer_shown(self, asked: Asked) -> Answer:
        """The same answer as the page shows it: fixes name the fields of the form."""
        with saying_arguments(as_fields(self.description.question.inputs)):
            return self.answer_to(asked)

    @property
    def command(self) -> tuple[str, ...] | None:
        """The words of the equivalent command; None if a field cannot be parsed."""
        try:
            return tuple(self.description.question.words(self.asked()))
        except RuleError:
            return None

    def path(self, **changed: str) -> str:
        """The path and query of this state, or of one with some fields changed; defaults are left out."""
        query = self._query(changed)
        if self.step and not changed:
            query[STEP] = str(self.step)
        if self.pins and not changed:
            query[PIN] = self.pins
        if self.ticks and not changed:
            first, count = self.ticks
            query[TICKS] = f"{first}-{first + count - 1}"
        return address(self.page.name, query | self._left_query())

    @property
    def has_link(self) -> bool:
        """Whether an address holds the state: a longer one is posted, and has no link."""
        if any(len(text) > MAX_LINK_CHARACTERS for text in self.written.values()):
            return False
        return len(self.path()) <= MAX_LINK_CHARACTERS

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
        """The path of the figure of only this state, for a light or a dark background."""
        path, _, query = self.path().partition("?")
        return f"{path}.svg?{query}&{FIGURE}={ground}" if query else f"{path}.svg?{FIGURE}={ground}"

    @property
    def alone(self) -> Form:
        """The state without a comparison, pinned cells and steps."""
        return replace(self, left=None, pins="", step=0)

    @property
    def comparing_path(self) -> str:
        """The path of this state side by side with itself, so that the right one can be edited."""
        return replace(self, left=self.alone, pins="", step=0).path()

    @property
    def swapped_path(self) -> str:
        """The path of the left state, with this one on its left."""
        assert self.left is not None, self.page.name
        return replace(self.left, left=self.alone).path()

    def path_to_ticks(self, first: int, count: int) -> str:
        """The path of this state with another part of its timeline; a step and a pin are of the part that is left."""
        return replace(self, step=0, pins="", ticks=(first, count)).path()

    def path_to(self, chosen: str) -> str:
        """The path of another form of the page, in which the fields that both have, by name and label, keep their text."""
        choice = choice_of(self.page)
        assert choice is not None, self.page.name
        query = {} if chosen == choice.preset else {choice.name: chosen}
        labels = {entry.name: entry.input.label for entry in self.fields}
        for entry in fields_of(self.page.forms[chosen]):
            is_shared = labels.get(entry.name) == entry.input.label
            text = self.written[entry.name] if is_shared else entry.preset
            if text != entry.preset and entry.takes(text):
                query[entry.name] = text
        return address(self.page.name, query | self._left_query())

    def wrong_fields(self, violations: Iterable[Violation]) -> frozenset[str]:
        """The fields that violations are about: `box[0]` is about the field `box`.

        An argument without a field, such as the shape (m, n), is mapped by the names of the violation's values.

        >>> from tilescope.questions.menu import MENU
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
        change = self._fields_of(violation)
        return self.path(**change) if change else None

    def _fields_of(self, violation: Violation) -> dict[str, str]:
        """The fields that a violation's change fills; empty where the form has no field for some of it.

        An extent, such as k, is one of the numbers of a field:

        >>> from tilescope.questions.menu import MENU
        >>> page = next(page for page in MENU if page.name == "plan")
        >>> form = filled_form(page, {"tile": "128x60"})
        >>> [form._fields_of(violation) for violation in form.answer().violations]
        [{'tile': '128x64'}]
        """
        fields: dict[str, str] = {}
        for name, value in (violation.change or {}).items():
            if name in self.written:
                fields[name] = in_words(value)
            elif name in self.description.extents:
                field_name, place = self.description.extents[name]
                extents = re.findall("[0-9]+", fields.get(field_name, self.written[field_name]))
                if place >= len(extents):
                    return {}
                extents[place] = in_words(value)
                fields[field_name] = "x".join(extents)
            else:
                return {}
        return fields

    def fixes(self, violations: Iterable[Violation], answer: Answer | None) -> dict[str, str]:
        """The paths of the states in which more than one violation's change is made, by the label of each button.

        A form may know its own fixes, as `--fix` of its command does. Another one makes the changes of its violations in
        turn, until none is left.
        """
        try:
            fixes = self.description.fixes(self.asked(), answer)
        except RuleError:  # a field that cannot be read
            fixes = {}
        cures = {path for path in map(self.cure, violations) if path is not None}
        if not fixes and len(cures) > 1:
            changes = self._all_changes()
            fixes = {"Apply all": changes} if changes else {}
        paths = {label: self.path(**fields) for label, fields in fixes.items()}
        return {label: path for label, path in paths.items() if path not in cures}

    def _all_changes(self) -> dict[str, str]:
        """The fields with the changes of all errors made in turn; empty where an error stays."""
        changed: dict[str, str] = {}
        for _ in range(MAX_FIX_ROUNDS):
            state = replace(self, written={**self.written, **changed})
            errors = [violation for violation in state._violations() if violation.severity == "error"]
            if not errors:
                return changed
            cure = next(filter(None, map(state._fields_of, errors)), None)
            if cure is None:
                return {}
            changed |= cure
        return {}

    def _violations(self) -> tuple[Violation, ...]:
        try:
            return self.answer().violations
        except RuleError as error:
            return error.violations


def filled_form(page: Page, query: Mapping[str, str]) -> Form:
    """The form that a query fills; a name that no field has is refused."""
    choice = choice_of(page)
    chosen = "" if choice is None else query.get(choice.name, choice.preset)
    if choice is not None and chosen not in page.forms:
        raise RuleError([unknown_name(choice.input.label.lower(), choice.name, chosen, page.forms)])
    fields = fields_of(page.forms[chosen])
    written = {field.name: query.get(field.name, field.preset) for field in fields}
    names = [*written] if choice is None else [*written, choice.name]
    if page.is_compared:
        names.append(LEFT)
    strange = [name for name in query if name not in (*names, STEP, PIN, TICKS)]
    if strange:
        raise RuleError(unknown_name("field", name[:80], name, names) for name in strange[:8])
    step = query.get(STEP, "")
    pins = query.get(PIN, "")
    return Form(
        page,
        chosen,
        fields,
        written,
        step=int(step) if re.fullmatch("[0-9]{1,6}", step) else 0,
        pins=pins if re.fullmatch(_PINS, pins) else "",
        ticks=_ticks_of(query.get(TICKS, "")) if page.forms[chosen].pans else None,
        left=_left_form(page, query[LEFT]) if LEFT in query else None,
    )


def _left_form(page: Page, written: str) -> Form:
    """The state on the left, as the address of a page; RuleError where it is none of this page."""
    try:
        place = urlsplit(written)
        pairs = parse_qsl(place.query, keep_blank_values=True, max_num_fields=100)
    except ValueError:
        raise OTHER_PAGE.error(page=page.name, written=shorten(written, 60)) from None
    query = query_of(pairs)
    is_elsewhere = place.scheme or place.netloc or place.path != f"/{page.name}"
    if is_elsewhere or LEFT in query:
        raise OTHER_PAGE.error(page=page.name, written=shorten(written, 60))
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


def query_of(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The query of an address; a field that occurs twice is refused."""
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
