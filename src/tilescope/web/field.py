"""The fields of a page's form: how each is shown, what it holds unsaid, and how its text becomes an argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tilescope.errors import RuleError, Violation, unknown_name
from tilescope.rule import ARGUMENT_TYPE
from tilescope.web.page_rules import PAGE_LIMIT
from tilescope.written import number, numbers
from tilescope.written import pair as number_pair

Reader: TypeAlias = Callable[[str, str], Any]  # (name of the field, its text) to the argument


def text(name: str, written: str) -> str:  # noqa: ARG001  the signature of a reader
    """The text as it stands, blanks at its ends dropped."""
    return written.strip()


def _for_fields(read: Callable[[str], Any], wanted: str) -> Reader:
    """A reader of numbers whose refusals are violations of the rule about arguments."""

    def reading(name: str, written: str) -> Any:
        try:
            return read(written)
        except ValueError as error:
            found, instead = error.args
            raise ARGUMENT_TYPE.error(name, found, f"{name} is {wanted}", f"Write {instead}.") from None

    return reading


integer = _for_fields(number, "a number")
integers = _for_fields(numbers, "numbers")
pair = _for_fields(number_pair, "two numbers")


def optional(read: Reader) -> Reader:
    """The reader, with None for an empty field."""
    return lambda name, written: read(name, written) if written.strip() else None


def flag(name: str, written: str) -> bool:
    """A box that is ticked."""
    if written not in ("", "yes"):
        raise RuleError([unknown_name("tick", name, written, ["yes"])])
    return written == "yes"


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its name in the query, its label, what it holds where the query does not say, and its reader."""

    name: str
    label: str
    default: str = ""
    read: Reader = text
    hint: str = ""
    choices: tuple[str, ...] = ()
    control: Literal["line", "choice", "tick", "area"] = "line"
    most_characters: int = 400

    def argument(self, written: str) -> Any:
        """What the text means to the library; RuleError where it means nothing."""
        if len(written) > self.most_characters:
            found, limit = f"{self.name} has {len(written)} characters", f"at most {self.most_characters}"
            raise PAGE_LIMIT.error(
                self.name, found, limit, f"Use at most {self.most_characters} characters; the command line takes more."
            )
        if self.control == "choice" and written not in self.choices:
            raise RuleError([unknown_name(self.label.lower(), self.name, written, self.choices)])
        return self.read(self.name, written)


def choice(name: str, label: str, choices: tuple[str, ...], default: str = "", hint: str = "") -> Field:
    """A field that takes one of a few names."""
    return Field(name, label, default or choices[0], text, hint, choices, "choice")


def tick(name: str, label: str, hint: str = "") -> Field:
    """A field that is ticked or not."""
    return Field(name, label, "", flag, hint, control="tick")


def arguments(fields: tuple[Field, ...], written: Mapping[str, str]) -> dict[str, Any]:
    """The argument of every field by name; everything that cannot be read is one RuleError."""
    found: dict[str, Any] = {}
    wrong: list[Violation] = []
    for each in fields:
        try:
            found[each.name] = each.argument(written[each.name])
        except RuleError as error:
            wrong.extend(error.violations)
    if wrong:
        raise RuleError(wrong)
    return found
