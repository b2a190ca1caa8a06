"""The words of the trade: those of the names of terms and of the sentences about them.

Parsing all sentences of the glossary takes long, so the result is cached.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

from tilescope.symptoms.json_cache import Json, cached_json
from tilescope.symptoms.tables import TERMS, table_sources
from tilescope.symptoms.word_forms import ASKING, CONTEXT, fold_word

_MAKING = ("word_forms.py", "vocabulary.py")  # another way to take words apart makes another vocabulary


def written_words() -> frozenset[str]:
    """The words of the sentences about terms, in exactly that form: "line" is a term, "standing in line" is not."""
    return _words()["written"]


def name_words() -> frozenset[str]:
    """The words of the names of terms, and others of the trade, folded."""
    return _words()["names"]


def vocabulary() -> frozenset[str]:
    """The words of the trade as questions have them."""
    return _words()["all"]


@cache
def _words() -> dict[str, frozenset[str]]:
    sources = [*table_sources().values(), *(files(__package__).joinpath(name).read_bytes() for name in _MAKING)]
    stored: Any = cached_json("vocabulary", sources, _make_vocabulary)
    return {name: frozenset(words) for name, words in stored.items()}


def _make_vocabulary() -> Json:
    meanings = " ".join(term.meaning for term in TERMS).casefold().replace(". ", " ")
    written = set(re.findall(r"[\w.:]+", meanings))
    spelled = " ".join(f"{term.name} {' '.join(term.aliases)}" for term in TERMS)
    names = set(map(fold_word, re.findall(r"[\w.:]+", spelled.casefold()))) | CONTEXT
    everything = set(map(fold_word, written)) | names | ASKING
    return {"written": sorted(written), "names": sorted(names), "all": sorted(everything)}
