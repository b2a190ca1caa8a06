"""The words of the trade, each explained in a few sentences: glossary.toml."""

from __future__ import annotations

from typing import NamedTuple

from tilescope.symptoms.tables import table


class Term(NamedTuple):
    """A word, what it means, other spellings, and what to read next."""

    name: str
    meaning: str
    aliases: tuple[str, ...] = ()
    see: tuple[str, ...] = ()


TERMS = tuple(Term(name, **entry) for name, entry in table("glossary").items())
