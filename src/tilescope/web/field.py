"""The fields of a page's form: the inputs of a question, what each holds at first, and how its text is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from tilescope.errors import RuleError, Violation, unknown_name
from tilescope.inputs import READERS, Input, flag
from tilescope.rule import ARGUMENT_TYPE, rule

PAGE_LIMIT = rule(
    "page-limit",
    "A page of the explorer takes what it can answer within a second; the command line takes more.",
    source="the explorer",
    passing='ts.web.pages.form_at("/banks?tile=32x32").answer()',
    failing='ts.web.pages.form_at("/banks?tile=4096x4096").answer()',
)


MOST_CHARACTERS, MOST_LONG_CHARACTERS = 400, 6000


def limited(what: str, argument: str, count: int, most: int, fix: str) -> None:
    """Refuse what a page would take too long or too much memory to answer, before it is computed."""
    if count > most:
        raise PAGE_LIMIT.error(argument, f"{count} {what}", f"a page takes at most {most}", fix, count=count, most=most)


@dataclass(frozen=True, slots=True)
class Field(Input):
    """An input on a page, and what it holds if the address does not say."""

    default: str = ""

    @property
    def control(self) -> str:
        """How the page shows it: a box to tick, an area for much text, a list of names, or a line."""
        if self.read is flag or self.is_long:
            return "area" if self.is_long else "tick"
        return "choice" if self.choices and not self.is_open else "line"

    @property
    def has_no_choice(self) -> bool:
        """Whether a list of names may stay without one."""
        return not self.default or (bool(self.unsaid) and self.unsaid not in self.choices)

    @property
    def note(self) -> str:
        """What stands below it."""
        empty = f"Empty: {self.unsaid}." if self.unsaid and not self.default else ""
        return f"{self.hint} {empty}".strip()

    def argument(self, written: str) -> Any:
        """What the text means to the library: None if an option stays unsaid, RuleError if it means nothing."""
        most = MOST_LONG_CHARACTERS if self.is_long else MOST_CHARACTERS
        fix = f"Use at most {most} characters; the command line takes more."
        limited("characters", self.name, len(written), most, fix)
        if not written.strip() and (self.unsaid or not self.default):
            return None
        if self.control == "choice" and written not in self.choices:
            raise RuleError([unknown_name(self.label.lower(), self.name, written, self.choices)])
        try:
            return self.read(written)
        except ValueError as error:
            wrong, instead = error.args
            limit = f"{self.name} is {READERS[self.read][1]}"
            raise ARGUMENT_TYPE.error(self.name, wrong, limit, f"Write {instead}.") from None


def form(inputs: Iterable[Input], **defaults: str) -> tuple[Field, ...]:
    """The fields of a table of inputs: `defaults` are what they hold at first, else the library's own if it is a choice."""
    return tuple(
        Field(
            **{column.name: getattr(row, column.name) for column in fields(row)},
            default=defaults.get(row.name, row.unsaid if row.unsaid in row.choices and not row.is_open else ""),
        )
        for row in inputs
    )


def arguments(form: tuple[Field, ...], written: Mapping[str, str]) -> dict[str, Any]:
    """The arguments that the fields say, by name; everything that cannot be read is one RuleError."""
    said: dict[str, Any] = {}
    wrong: list[Violation] = []
    for field in form:
        try:
            said[field.name] = field.argument(written[field.name])
        except RuleError as error:
            wrong.extend(error.violations)
    if wrong:
        raise RuleError(wrong)
    return {name: value for name, value in said.items() if value is not None}
