"""The tables of prose: causes.toml, symptoms.toml, glossary.toml, words.toml beside this file."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any, TypeVar

from tilescope.errors import RuleError, unknown_name
from tilescope.value import Row

Named = TypeVar("Named", bound=Row)


def table(name: str) -> dict[str, dict[str, Any]]:
    """The entries of a table, by name; lists are tuples."""
    entries = tomllib.loads(files(__package__).joinpath(f"{name}.toml").read_text("utf-8"))
    return {
        title: {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
        for title, entry in entries.items()
    }


def row_named(kind: type[Named], rows: dict[str, Named], name: object) -> Named:
    """The row called `name`, or the row itself; a RuleError names the nearest."""
    if isinstance(name, kind):
        return name
    row = rows.get(name) if isinstance(name, str) else None
    if row is None:
        noun = kind.__name__.lower()
        raise RuleError([unknown_name(noun, noun, name, rows)])
    return row
