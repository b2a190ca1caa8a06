"""The fields of a page's form: how each is shown, what it holds unsaid, and how its text becomes an argument."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tilescope.errors import RuleError, Violation, broken, shortened, unknown_name

Reader: TypeAlias = Callable[[str, str], Any]  # (name of the field, its text) to the argument
_INTEGER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F_]+|[0-9][0-9_]*)")
_INTEGER_CHARACTERS = 40


def text(name: str, written: str) -> str:  # noqa: ARG001  the signature of a reader
    """The text as it stands, blanks at its ends dropped."""
    return written.strip()


def integer(name: str, written: str) -> int:
    """An integer: 1024, 0x400, 1_024.

    >>> integer("address", "0x400")
    1024
    """
    plain = written.strip()
    if len(plain) > _INTEGER_CHARACTERS or not _INTEGER.fullmatch(plain):
        raise broken(
            "argument-type", name, f"{name} = {shortened(written, 40)!r}", "an integer", "Write 1024 or 0x400."
        )
    return int(plain, 16) if "x" in plain.lower() else int(plain, 10)


def integers(name: str, written: str) -> tuple[int, ...]:
    """Integers separated by commas, blanks or x: 64,8 or 64 x 8.

    >>> integers("box", "64, 8"), integers("tile", "128x64"), integers("coords", "")
    ((64, 8), (128, 64), ())
    """
    plain = written.strip().strip("()[]")
    if re.fullmatch(r"[1-9]\d*(\s*[xX]\s*\d+)+", plain):
        plain = re.sub("[xX]", ",", plain)
    return tuple(integer(name, piece) for piece in re.split(r"\s*,\s*|\s+", plain.strip(" ,")) if piece)


def pair(name: str, written: str) -> tuple[int, int]:
    """Two integers: a tile, an element."""
    found = integers(name, written)
    if len(found) != 2:
        raise broken("argument-length", name, f"{name} has {len(found)} numbers", "two", "Write two, such as 128x64.")
    return found[0], found[1]


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
            raise broken("page-limit", self.name, found, limit, "Give less; the command line takes more.")
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
