"""The fields of a page's form: how each is shown, what it holds unsaid, and how its text becomes an argument."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tilescope.errors import RuleError, Violation, shortened, unknown_name
from tilescope.rule import ARGUMENT_TYPE, rule
from tilescope.written import number, numbers
from tilescope.written import pair as number_pair

PAGE_LIMIT = rule(
    "page-limit",
    "A page of the explorer takes what it can answer within a second; the command line takes more.",
    source="the explorer",
    passing='ts.web.pages.form_at("/banks?tile=32x32").answer()',
    failing='ts.web.pages.form_at("/banks?tile=4096x4096").answer()',
)

Reader: TypeAlias = Callable[[str, str], Any]  # (name of the field, its text) to the argument


def limited(what: str, argument: str, count: int, most: int, fix: str) -> None:
    """Refuse what a page would take too long or too much memory to answer, before it is computed."""
    if count > most:
        raise PAGE_LIMIT.error(argument, f"{count} {what}", f"a page takes at most {most}", fix)


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


def triple(name: str, written: str) -> tuple[int, int, int]:
    """Three numbers, such as the extents of a product."""
    found: tuple[int, ...] = integers(name, written)
    if len(found) != 3:
        limit, fix = f"{name} is three numbers", "Write 4096x4096x4096."
        raise ARGUMENT_TYPE.error(name, f"{shortened(written, 40)!r} has {len(found)}", limit, fix)
    return found[0], found[1], found[2]


@dataclass(frozen=True, slots=True)
class Optional:
    """A reader with None for an empty field."""

    read: Reader

    def __call__(self, name: str, written: str) -> Any:
        """The argument, or None."""
        return self.read(name, written) if written.strip() else None


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
    option: str = ""  # of the command; empty: it stands among the words, or nowhere
    unsaid: str = ""  # what the command takes without the option

    def argument(self, written: str) -> Any:
        """What the text means to the library; RuleError where it means nothing."""
        fix = f"Use at most {self.most_characters} characters; the command line takes more."
        limited("characters", self.name, len(written), self.most_characters, fix)
        if self.control == "choice" and written not in self.choices:
            raise RuleError([unknown_name(self.label.lower(), self.name, written, self.choices)])
        return self.read(self.name, written)

    def words(self, value: Any) -> list[str]:
        """The option of the command that says the same as the field; none where the command takes it unsaid.

        >>> Field("smem_address", "Shared address", option="--smem-address", unsaid="0").words(1024)
        ['--smem-address', '0x400']
        """
        if not self.option or value is None or value is False or (said := written_argument(value)) in ("", self.unsaid):
            return []
        if value is True:
            return [self.option]
        if self.read in (pair, triple) or (isinstance(self.read, Optional) and self.read.read in (pair, triple)):
            said = said.replace(",", "x")
        said = hex(value) if self.name.endswith("address") else said
        return [f"{self.option}={said}"] if said.startswith("-") else [self.option, said]


def choice(name: str, label: str, choices: tuple[str, ...], default: str = "", hint: str = "", **more: str) -> Field:
    """A field that takes one of a few names."""
    return Field(name, label, default or choices[0], text, hint, choices, "choice", **more)  # type: ignore[arg-type]


def tick(name: str, label: str, hint: str = "", option: str = "") -> Field:
    """A field that is ticked or not."""
    return Field(name, label, "", flag, hint, control="tick", option=option)


def arguments(fields: tuple[Field, ...], written: Mapping[str, str]) -> dict[str, Any]:
    """The argument of every field by name; everything that cannot be read is one RuleError."""
    found: dict[str, Any] = {}
    wrong: list[Violation] = []
    for field in fields:
        try:
            found[field.name] = field.argument(written[field.name])
        except RuleError as error:
            wrong.extend(error.violations)
    if wrong:
        raise RuleError(wrong)
    return found


def option_words(fields: Iterable[Field], asked: Mapping[str, Any]) -> list[str]:
    """The options of the command for all fields that have one."""
    return [word for field in fields for word in field.words(asked[field.name])]


def written_argument(value: Any) -> str:
    """An argument as a field holds it: (64, 8) is "64,8".

    >>> written_argument((64, 8)), written_argument("128B"), written_argument(None)
    ('64,8', '128B', '')
    """
    if value is None:
        return ""
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(getattr(value, "name", value))
