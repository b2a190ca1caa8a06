"""What a page is: its forms, their fields, and the function that answers a filled one."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple
from urllib.parse import urlencode

from tilescope import view
from tilescope.errors import RuleError, Violation, unknown_name
from tilescope.inputs import READERS, Input, flag, in_words
from tilescope.rule import ARGUMENT_TYPE, rule
from tilescope.value import EXTRA, Value
from tilescope.view.drawing import Drawing
from tilescope.web.call import Call

PAGE_QUERY = rule(
    "page-query",
    "The address of a page gives every field once.",
    source="the explorer",
    passing='ts.web.pages.form_at("/swizzle?mode=128B&address=0x80")',
    failing='ts.web.pages.form_at("/swizzle?mode=128B&mode=64B")',
)
PAGE_LIMIT = rule(
    "page-limit",
    "A page of the explorer takes what it can answer within a second; the command line takes more.",
    source="the explorer",
    passing='ts.web.pages.form_at("/banks?tile=32x32").answer()',
    failing='ts.web.pages.form_at("/banks?tile=4096x4096").answer()',
)
MAX_CHARACTERS, MAX_LONG_CHARACTERS = 400, 6000
STEP = "step"  # the query's name for the place in a walk; every page that steps knows it


def limited(what: str, argument: str, count: int, most: int, fix: str) -> None:
    """Refuse what a page would take too long or too much memory to answer, before it is computed."""
    if count > most:
        raise PAGE_LIMIT.error(argument, f"{count} {what}", f"a page takes at most {most}", fix, count=count, most=most)


@dataclass(frozen=True, slots=True)
class Field(Input):
    """An input on a page, and what it holds if the address does not say."""

    preset: str = ""

    @property
    def control(self) -> str:
        """How the page shows it: a box to tick, an area for much text, a list of names, or a line."""
        if self.read is flag or self.is_long:
            return "area" if self.is_long else "tick"
        return "choice" if self.choices and not self.is_open else "line"

    @property
    def has_no_choice(self) -> bool:
        """Whether a list of names may stay without one."""
        return not self.preset or (bool(self.default) and self.default not in self.choices)

    @property
    def note(self) -> str:
        """What stands below it."""
        empty = f"Empty: {self.default}." if self.default and not self.preset else ""
        return f"{self.hint} {empty}".strip()

    def argument(self, written: str) -> Any:
        """What the text means to the library: None for an empty option, as if a command had none; RuleError if it means nothing."""
        most = MAX_LONG_CHARACTERS if self.is_long else MAX_CHARACTERS
        limited(
            "characters", self.name, len(written), most, f"Use at most {most} characters; the command line takes more."
        )
        if not written.strip() and (self.option or not self.preset):
            return None
        if self.control == "choice" and written not in self.choices:
            raise RuleError([unknown_name(self.label.lower(), self.name, written, self.choices)])
        try:
            return self.read(written)
        except ValueError as error:
            limit = f"{self.name} is {READERS[self.read][1]}"
            raise ARGUMENT_TYPE.error(self.name, error.args[0], limit, f"Write {error.args[1]}.") from None


def form(inputs: Iterable[Input], **defaults: str) -> tuple[Field, ...]:
    """The fields of a table of inputs: `defaults` are what they hold at first, else the library's own if it is a choice."""
    return tuple(
        Field(
            **{column.name: getattr(row, column.name) for column in fields(row)},
            preset=defaults.get(row.name, row.default if row.default in row.choices and not row.is_open else ""),
        )
        for row in inputs
    )


class Drag(NamedTuple):
    """A grid in which the mouse drags something: the field that takes the place, and the dimensions it moves along."""

    field: str
    grid: str  # its title
    across: int  # index of the field's number that a column changes …
    down: int | None  # … and a row


class Code(NamedTuple):
    """A program to copy, and the call and the command that write it."""

    title: str
    source: str
    call: Call
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a filled form gives: a value with its drawing, and the call that makes it."""

    call: Call
    value: Value
    drawing: Drawing
    extra: Mapping[str, Any] = field(default_factory=dict)  # stands beside the value's own data in JSON
    violations: tuple[Violation, ...] = ()
    then: Call | None = None  # a question about the value, shown below the Python that makes it
    steps: Sequence[tuple[str, str]] = ()  # of a walk: the links of the cells that each marks, and what it says
    drag: Drag | None = None
    code: Code | None = None
    leads: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # label: path, by the title of the part above

    @property
    def source(self) -> str:
        """The Python that makes the value."""
        return self.call.source() if self.then is None else f"{self.then.source()}\n{self.then.expression()}"

    def json(self) -> str:
        """The value as plain data, as `--json` of the command prints it."""
        return json.dumps(self.value.to_dict() | ({EXTRA: dict(self.extra)} if self.extra else {}), indent=2)


@dataclass(frozen=True, slots=True)
class Page:
    """One page of the explorer.

    `forms` are its forms by the choice that selects one; a page with one form has it under "". `command` are the words of
    the command that asks the same. `redirect` may send a query elsewhere, as a pasted text to the fields it fills.
    """

    name: str  # its path
    title: str
    sentence: str  # what it shows
    forms: Mapping[str, tuple[Field, ...]]
    answer: Callable[[str, dict[str, Any]], Answer]
    command: Callable[[str, dict[str, Any]], Sequence[str]]
    chooser: tuple[str, str] | None = None  # name and label of the field that selects a form
    pasted: str = ""  # what its paste box takes; empty: it has none
    redirect: Callable[[Mapping[str, str]], dict[str, str] | None] = lambda _: None

    @property
    def choice(self) -> Field | None:
        """The field that selects a form; None for a page with one."""
        if self.chooser is None:
            return None
        return Field(self.chooser[0], label=self.chooser[1], choices=tuple(self.forms), preset=next(iter(self.forms)))

    def filled(self, query: Mapping[str, str]) -> Form:
        """The form that a query fills; a name that no field has is refused."""
        choice = self.choice
        chosen = "" if choice is None else query.get(choice.name, choice.preset)
        if choice is not None and chosen not in self.forms:
            raise RuleError([unknown_name(choice.label.lower(), choice.name, chosen, self.forms)])
        written = {field.name: query.get(field.name, field.preset) for field in self.forms[chosen]}
        known = [*written, *([] if choice is None else [choice.name])]
        if strange := [name for name in query if name not in (*known, STEP)]:
            raise RuleError(unknown_name("field", name[:80], name, known) for name in strange[:8])
        step = query.get(STEP, "")
        return Form(self, chosen, written, int(step) if re.fullmatch("[0-9]{1,6}", step) else 0)


@dataclass(frozen=True, slots=True)
class Form:
    """A form with its text in it."""

    page: Page
    chosen: str
    written: Mapping[str, str]
    step: int = 0  # of the walk

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields in the order of the form."""
        return self.page.forms[self.chosen]

    def asked(self) -> dict[str, Any]:
        """What the fields say, without those that stay empty; RuleError where one cannot be read."""
        said: dict[str, Any] = {}
        wrong: list[Violation] = []
        for entry in self.fields:
            try:
                said[entry.name] = entry.argument(self.written[entry.name])
            except RuleError as error:
                wrong.extend(error.violations)
        if wrong:
            raise RuleError(wrong)
        return {name: value for name, value in said.items() if value is not None}

    def answer(self) -> Answer:
        """What the library says to it; RuleError where a field cannot be read or the library refuses."""
        return self.page.answer(self.chosen, self.asked())

    @property
    def command(self) -> tuple[str, ...] | None:
        """The words of the command that asks the same; None where a field cannot be read."""
        try:
            return tuple(self.page.command(self.chosen, self.asked()))
        except RuleError:
            return None

    def path(self, **changed: str) -> str:
        """The path and query of this state, or of one with some fields changed; defaults are left out."""
        choice = self.page.choice
        written = dict(self.written) | changed | ({} if choice is None else {choice.name: self.chosen})
        fields = [field for field in (choice, *self.fields) if field is not None]
        query = {field.name: written[field.name] for field in fields if written[field.name] != field.preset}
        return address(self.page.name, query | ({STEP: str(self.step)} if self.step and not changed else {}))

    def cure(self, violation: Violation) -> str | None:
        """The path of the state in which the violation's own change is made; None where it has none for this form."""
        change = violation.change
        if not change or any(name not in self.written for name in change):
            return None
        return self.path(**{name: in_words(value) for name, value in change.items()})


def query_of(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The query of an address; a field that stands twice is refused."""
    query = dict(listed := list(pairs))
    if len(query) < len(listed):
        raise PAGE_QUERY.error("query", "a field that stands twice", "every field once", "Write every field once.")
    return query


def command_line(words: Iterable[str]) -> str:
    """The words of a command as a shell takes them.

    >>> command_line(["explain", "it hangs"])
    "tilescope explain 'it hangs'"
    """
    return shlex.join(["tilescope", *words])


def address(page: str, query: Mapping[str, str]) -> str:
    """The path and query of a state of a page.

    >>> address("load", {"coords": "4,128"})
    '/load?coords=4,128'
    """
    return f"/{page}" + (f"?{urlencode(query, safe=',:/()')}" if query else "")


def answered(call: Call, *, drawing: Mapping[str, Any] | None = None, **more: Any) -> Answer:
    """The answer of a call, drawn with the options `drawing`."""
    value = call.run()
    return Answer(call, value, drawn(value, **(drawing or {})), **more)


def drawn(value: Value, **options: Any) -> Drawing:
    """The drawing of a value that has one."""
    drawing = view.draw(value, **options)
    assert drawing is not None, value.kind
    return drawing
